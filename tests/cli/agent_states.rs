//! States of the agent's unit as `status` tells them: the program on the machine's own root, with a bus on which a test plays systemd.
#![allow(clippy::unused_self, reason = "its methods have the shape of the interface")]

use std::path::Path;
use std::process::{Child, Command};
use std::sync::{Arc, Mutex};

use serde_json::Value;
use zbus::zvariant::OwnedObjectPath;

use crate::logind::start_bus;
use crate::ran;
use crate::test_host::{BINARY, Node, STATE, config, files};

const OBJECT: &str = "/org/freedesktop/systemd1";
const UNIT: &str = "/org/freedesktop/systemd1/unit/agent";

/// State of the agent's unit, and of the machine.
#[derive(Debug, Clone, Copy)]
struct Unit {
    load: &'static str,
    active: &'static str,
    sub: &'static str,
    result: &'static str,
    file: &'static str,
    /// Code of `waitid(2)`, and exit code or signal.
    ended: (i32, i32),
    queued: bool,
    system: &'static str,
}

const STOPPED: Unit = Unit {
    load: "loaded",
    active: "inactive",
    sub: "dead",
    result: "success",
    file: "enabled",
    ended: (1, 0),
    queued: false,
    system: "running",
};

#[derive(Clone)]
struct Shared(Arc<Mutex<Unit>>);

impl Shared {
    fn unit(&self) -> Unit {
        *self.0.lock().unwrap()
    }
}

struct Manager(Shared);
struct OfUnit(Shared);
struct OfService(Shared);

#[zbus::interface(name = "org.freedesktop.systemd1.Manager")]
impl Manager {
    fn load_unit(&self, name: String) -> OwnedObjectPath {
        assert_eq!(name, "machine-config-agent.service");
        OwnedObjectPath::try_from(UNIT).unwrap()
    }

    #[zbus(property)]
    fn system_state(&self) -> String {
        self.0.unit().system.to_owned()
    }
}

#[zbus::interface(name = "org.freedesktop.systemd1.Unit")]
impl OfUnit {
    #[zbus(property)]
    fn load_state(&self) -> String {
        self.0.unit().load.to_owned()
    }

    #[zbus(property)]
    fn active_state(&self) -> String {
        self.0.unit().active.to_owned()
    }

    #[zbus(property)]
    fn sub_state(&self) -> String {
        self.0.unit().sub.to_owned()
    }

    #[zbus(property)]
    fn unit_file_state(&self) -> String {
        self.0.unit().file.to_owned()
    }

    #[zbus(property)]
    fn job(&self) -> (u32, OwnedObjectPath) {
        let number = u32::from(self.0.unit().queued);
        (number, OwnedObjectPath::try_from("/").unwrap())
    }

    #[zbus(property)]
    fn state_change_timestamp(&self) -> u64 {
        1_790_000_000_000_000
    }
}

#[zbus::interface(name = "org.freedesktop.systemd1.Service")]
impl OfService {
    #[zbus(property)]
    fn result(&self) -> String {
        self.0.unit().result.to_owned()
    }

    #[zbus(property)]
    fn exec_main_code(&self) -> i32 {
        self.0.unit().ended.0
    }

    #[zbus(property)]
    fn exec_main_status(&self) -> i32 {
        self.0.unit().ended.1
    }
}

struct Bus {
    daemon: Child,
    unit: Shared,
    _connection: zbus::Connection,
}

impl Bus {
    async fn start(root: &Path) -> Self {
        let (daemon, address) = start_bus(root);
        let unit = Shared(Arc::new(Mutex::new(STOPPED)));
        let connection = zbus::connection::Builder::address(address.trim())
            .unwrap()
            .name("org.freedesktop.systemd1")
            .unwrap()
            .serve_at(OBJECT, Manager(unit.clone()))
            .unwrap()
            .serve_at(UNIT, OfUnit(unit.clone()))
            .unwrap()
            .serve_at(UNIT, OfService(unit.clone()))
            .unwrap()
            .build()
            .await
            .unwrap();
        Self { daemon, unit, _connection: connection }
    }
}

impl Drop for Bus {
    fn drop(&mut self) {
        drop(self.daemon.kill());
        drop(self.daemon.wait());
    }
}

/// Runs `status` on `/`, in which the node's state and its bus are mounted.
async fn status(node: &Node, flags: &str) -> (i32, String) {
    let script = format!(
        "set -e; here=$PWD; mount -t tmpfs tmpfs /run; mkdir -p /run/dbus /run/systemd/system; \
         mount --bind \"$here/root/run/dbus\" /run/dbus; mount -t tmpfs tmpfs /var/lib; \
         cp -a \"$here/root/{STATE}\" /var/lib/; exec '{BINARY}' status --os-backend none {flags}"
    );
    let directory = node.dir.path().to_owned();
    let run = move || {
        let mut unshare = Command::new("unshare");
        unshare.args(["-m", "sh", "-c", &script]).current_dir(directory).output().unwrap()
    };
    let output = tokio::task::spawn_blocking(run).await.unwrap();
    let err = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(err.is_empty(), "{err}");
    (output.status.code().unwrap(), String::from_utf8(output.stdout).unwrap())
}

/// State, and then what `status` says of it: state of the node, agent, cause, next step.
type Row = (Unit, &'static str, &'static str, &'static str, &'static str);

#[allow(clippy::too_many_lines, reason = "a table")]
fn rows() -> [Row; 10] {
    let again = Unit { active: "activating", sub: "auto-restart", result: "signal", ..STOPPED };
    [
        (STOPPED, "Degraded", "not running (inactive)", "no process follows the target", "systemctl status"),
        (
            Unit { load: "masked", file: "masked", ..STOPPED },
            "Degraded",
            "not running (inactive, masked)",
            "nothing watches the config",
            "systemctl unmask machine-config-agent.service",
        ),
        (
            Unit { active: "failed", sub: "failed", result: "signal", ended: (2, 9), ..STOPPED },
            "Degraded",
            "not running (failed, killed by signal 9)",
            "no process follows the target",
            "journalctl -u machine-config-agent",
        ),
        (
            Unit { ended: (2, 9), ..again },
            "Degraded",
            "not running (restarting, killed by signal 9)",
            "no process follows the target",
            "systemctl status",
        ),
        (
            Unit { active: "failed", sub: "failed", result: "exit-code", ended: (1, 104), ..STOPPED },
            "Degraded",
            "not running (failed, exit 104)",
            "no process follows the target",
            "systemctl status",
        ),
        (Unit { queued: true, ..STOPPED }, "Working", "starting", "", "the start of the agent"),
        (
            Unit { active: "activating", sub: "start", ..STOPPED },
            "Working",
            "starting",
            "",
            "the start of the agent",
        ),
        (
            Unit { system: "stopping", ..STOPPED },
            "Working",
            "stopped: the machine goes down",
            "",
            "the shutdown of this machine",
        ),
        (
            Unit { active: "deactivating", sub: "stop-sigterm", system: "stopping", queued: true, ..STOPPED },
            "Working",
            "stopped: the machine goes down",
            "",
            "the shutdown of this machine",
        ),
        (Unit { file: "disabled", ..STOPPED }, "Done", "not running (inactive, disabled)", "", ""),
    ]
}

/// Issue 33: a masked, a killed, a starting agent, and one that a shutdown has stopped, say what they are.
#[tokio::test(flavor = "current_thread")]
async fn states_of_agents_unit_are_told_by_program() {
    const NAME: &str = "states_of_agents_unit_are_told_by_program";
    let allowed = Command::new("unshare").args(["-m", "mount", "-t", "tmpfs", "x", "/mnt"]).output();
    if !allowed.is_ok_and(|output| output.status.success()) {
        return ran::not_run(NAME, "to mount (CAP_SYS_ADMIN)");
    }
    let node = Node::new();
    node.put("a.json", config("rendered-worker-a", &files(&[])));
    assert_eq!(node.apply("a.json").code, 0);
    let bus = Bus::start(&node.path("root")).await;
    for (unit, state, agent, message, next) in rows() {
        *bus.unit.0.lock().unwrap() = unit;
        let (code, json) = status(&node, "--output json --exit-code").await;
        let document: Value = serde_json::from_str(&json).unwrap();
        let expected = match state {
            "Done" => 0,
            "Working" => 1,
            _ => 4,
        };
        assert_eq!(code, expected, "{unit:?}");
        let (_, text) = status(&node, "").await;
        assert_eq!(document["state"], state, "{unit:?}: {text}");
        assert_eq!(document["agent"]["text"], agent, "{unit:?}");
        let told = document["fault"]["message"].as_str().unwrap_or_default();
        assert_eq!((told.is_empty(), told.contains(message)), (message.is_empty(), true), "{unit:?}: {told}");
        assert!(
            text.contains(&format!("is {state}")) && text.contains(agent) && text.contains(next),
            "{text}"
        );
        // Of a dead agent the time of its end.
        let since = document["since"].as_str().unwrap();
        assert_eq!(since.starts_with("2026-09-21T"), state == "Degraded", "{unit:?}: {since}");
    }
}
