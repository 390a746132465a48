//! `firstboot` on a bare host: when there is nothing to do, when the file can't be used, when it is not alone. What it does
//! to a real deployment: `tests/sandbox/firstboot.rs`.

use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use machine_config_agent::host::root::Root;
use machine_config_agent::host::watch::Watch;
use serde_json::{Value, json};

use crate::program::make_program;
use crate::test_host::{Node, STATE, config, files, ignition};

const FILE: &str = "root/etc/ignition-machine-config-encapsulated.json";
const RENAMED_CONFIG: &str = "root/etc/ignition-machine-config-encapsulated.json.bak";
const TIMEOUT: Duration = Duration::from_secs(120);
const WORDS: [&str; 7] = ["firstboot", "--root", "root", "--os-backend", "none", "--reboot-by", "supervisor"];

/// A host that Ignition has left, with a console.
fn provisioned(spec: &Value) -> Node {
    let node = Node::new();
    node.put("root/dev/console", "");
    node.put(FILE, config("rendered-worker-a", spec));
    node
}

/// The usual encapsulated config: nothing of Ignition.
fn empty() -> Value {
    ignition(json!({}))
}

/// A first boot that is under way; it is ended with the test.
pub struct Running<'a> {
    node: &'a Node,
    child: Child,
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

impl<'a> Running<'a> {
    pub fn start(node: &'a Node, log: &str) -> Self {
        let log = std::fs::File::create(node.path(log)).unwrap();
        let child =
            node.command(&WORDS).stdout(log.try_clone().unwrap()).stderr(Stdio::from(log)).spawn().unwrap();
        Self { node, child }
    }

    /// Waits until a file holds all words.
    pub async fn until(&self, path: &str, words: &[&str]) {
        self.until_text(path, &format!("{words:?}"), |text| words.iter().all(|word| text.contains(word)))
            .await;
    }

    /// Waits for the text of a file.
    async fn until_text(&self, path: &str, what: &str, is_it: impl Fn(&str) -> bool) {
        let root = Root::open(self.node.dir.path()).unwrap();
        let mut watch = Watch::new(&root, [&*format!("/{path}")], []).unwrap();
        while !is_it(&std::fs::read_to_string(self.node.path(path)).unwrap_or_default()) {
            let changed = tokio::time::timeout(TIMEOUT, watch.changed()).await;
            assert!(changed.is_ok(), "{path} does not hold {what}: {}", self.node.read(path));
            changed.unwrap().unwrap();
        }
    }

    pub fn is_under_way(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    pub fn end(mut self) -> i32 {
        self.child.wait().unwrap().code().unwrap()
    }
}

/// MCD-234: nmstate that fails is tried again ever less often, by the same process, and the console has its last words.
#[test]
fn interface_names_are_pinned_by_a_later_try() {
    let node = Node::new();
    node.put("root/dev/console", "");
    node.put("root/etc/os-release", "ID=rhel\nVERSION_ID=9.6\n");
    let program = "#!/bin/sh\necho try >> \"$3/tries\"\n[ $(wc -l < \"$3/tries\") = 2 ] || { echo 'no link yet' >&2; exit 1; }\n";
    make_program(&node.path("root/usr/bin/nmstatectl"), program);
    let ran = node.run(&[&WORDS[..], &["--persist-nics"]].concat());
    assert_eq!((ran.code, node.read("root/tries")), (0, "try\ntry\n".to_owned()), "{}", ran.err);
    let console = node.read("root/dev/console");
    assert!(console.contains("CommandFailed") && console.contains("no link yet"), "{console}");
    assert!(ran.err.contains("no link yet") && ran.err.contains("are pinned"), "{}", ran.err);
}

/// Replaces the file as an administrator would.
fn correct(node: &Node, spec: &Value) {
    node.put("new", config("rendered-worker-a", spec));
    std::fs::rename(node.path("new"), node.path(FILE)).unwrap();
}

/// BOOT-001: without the file nothing is done, not even the agent's own directory is touched.
#[test]
fn no_encapsulated_file_changes_nothing() {
    let node = Node::new();
    let before = node.listing("root");
    let ran = node.run(&WORDS);
    assert_eq!((ran.code, node.listing("root")), (0, before), "{}", ran.err);
    assert!(ran.out.contains("nothing to do"), "{}", ran.out);
}

/// BOOT-002, BOOT-006, MCD-222: a host that is as the file says: the file is renamed, nothing is rebooted, a second run does nothing; what is
/// committed is for the daemon to say, which knows the whole config.
#[test]
fn host_as_described_needs_no_reboot() {
    let node = provisioned(&empty());
    let ran = node.run(&WORDS);
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(!node.path(FILE).exists());
    assert_eq!(node.read(RENAMED_CONFIG), config("rendered-worker-a", &empty()));
    for committed in [&format!("root/{STATE}/current.json"), "root/etc/machine-config-daemon/currentconfig"] {
        assert!(!node.path(committed).exists(), "{committed}");
    }
    let before = node.listing("root");
    let again = node.run(&WORDS);
    assert_eq!((again.code, node.listing("root")), (0, before));
    // The daemon, which `apply` stands in for, takes it over as it is.
    node.put("root/etc/app.conf", "a");
    let whole = files(&[("/etc/app.conf", "a")]);
    node.commit("rendered-worker-a.json", &whole);
    assert!(node.path(&format!("root/{STATE}/current.json")).exists());
}

/// A config that names files, too: Ignition's files stay, different ones are written, and it costs the reboot.
#[test]
fn whole_config_in_file_is_applied_with_one_reboot() {
    let node = provisioned(&files(&[("/etc/a.conf", "a"), ("/etc/b.conf", "b")]));
    node.put("root/etc/a.conf", "a");
    let ran = node.run(&WORDS);
    assert_eq!(ran.code, 133, "{}", ran.err);
    assert!(node.path(FILE).exists(), "it is complete only in the next boot");
    assert_eq!(node.read("root/etc/b.conf"), "b");
    node.put("root/proc/sys/kernel/random/boot_id", "0f1e2d3c-4b5a-4978-8796-a5b4c3d2e1f1\n");
    let ran = node.run(&WORDS);
    assert_eq!((ran.code, node.path(FILE).exists()), (0, false), "{}", ran.err);
}

/// An unusable file is reported on the console, in the log and by `status`, and read again when it changes; the process
/// stays meanwhile, so the kubelet does not start.
#[tokio::test(flavor = "current_thread")]
async fn unusable_file_is_reported_and_retried_when_it_changes() {
    let tagged =
        json!({"osImageURL": "registry.example/os:latest", "config": {"ignition": {"version": "3.5.0"}}});
    let kernel = json!({"kernelType": "turbo", "config": {"ignition": {"version": "3.5.0"}}});
    let version = json!({"config": {"ignition": {"version": "9.0.0"}}});
    let node = provisioned(&empty());
    let broken = "{\"kind\": \"MachineConfig\", ".to_owned();
    let named = |spec: &Value| config("rendered-worker-a", spec);
    let cases = [
        (broken, "encapsulated"),
        (String::new(), "it is empty"),
        (named(&tagged), "registry.example/os:latest"),
        (named(&version), "9.0.0"),
        (named(&kernel), "turbo"),
    ];
    for (number, (text, cause)) in cases.iter().enumerate() {
        node.put("root/dev/console", "");
        node.put(FILE, text);
        let log = format!("log-{number}");
        let running = Running::start(&node, &log);
        running
            .until("root/dev/console", &["machine-config-agent: ", cause, "the kubelet waits", "Next: "])
            .await;
        let console = node.read("root/dev/console");
        let line = console.lines().find(|line| line.contains("the kubelet waits")).unwrap();
        assert_eq!(line.matches("Next: ").count(), 1, "{line}");
        running.until(&log, &[cause, "Next: "]).await;
        let status = node.run(&["status", "--root", "root", "--os-backend", "none"]);
        assert!(status.out.contains(cause), "{}", status.out);
        correct(&node, &empty());
        assert_eq!(running.end(), 0, "{cause}: {}", node.read(&log));
        assert!(node.path(RENAMED_CONFIG).exists());
    }
}

/// BOOT-018: a change that needs an installation is refused as Unreconcilable, and waited for.
#[tokio::test(flavor = "current_thread")]
async fn fips_mismatch_is_refused() {
    let node = provisioned(&json!({"fips": true, "config": {"ignition": {"version": "3.5.0"}}}));
    node.put("root/proc/sys/crypto/fips_enabled", "0\n");
    let running = Running::start(&node, "log");
    running
        .until(
            "root/run/machine-config-agent/report.json",
            &["\"Unreconcilable\"", "refusing to modify FIPS"],
        )
        .await;
    running.until("root/dev/console", &["refusing to modify FIPS"]).await;
    correct(&node, &empty());
    assert_eq!(running.end(), 0);
}

/// Fields of the OS are refused on a host without a backend, and the first boot waits.
#[tokio::test(flavor = "current_thread")]
async fn fields_of_missing_os_are_refused() {
    let ignition = json!({"ignition": {"version": "3.5.0"}});
    for (field, value) in [
        ("kernelArguments", json!(["nosmt"])),
        ("kernelType", json!("realtime")),
        ("osImageURL", json!(format!("reg.test/os@sha256:{}", "a".repeat(64)))),
        ("fips", json!(true)),
        ("extensions", json!(["usbguard"])),
    ] {
        let node = provisioned(&json!({"config": ignition, field: value}));
        let running = Running::start(&node, "log");
        running.until("root/dev/console", &["the kubelet waits", &format!("spec.{field}")]).await;
        assert!(node.path(FILE).exists() && !node.path(RENAMED_CONFIG).exists(), "{field}");
        correct(&node, &empty());
        assert_eq!(running.end(), 0, "{field}");
    }
}

/// BOOT-013: of two at once one acts; the other one waits, and ends with it.
#[tokio::test(flavor = "current_thread")]
async fn second_first_boot_waits_for_lock() {
    let node = provisioned(&json!({"config": {"ignition": {"version": "9.0.0"}}}));
    let first = Running::start(&node, "first");
    first.until("root/dev/console", &["the kubelet waits"]).await;
    let second = Running::start(&node, "second");
    // It tries by itself ever less often: after the fifth time not for 16 seconds.
    second.until_text("second", "5 tries", |text| text.matches("another agent").count() == 5).await;
    correct(&node, &empty());
    assert_eq!(first.end(), 0);
    let since = Instant::now();
    assert_eq!(second.end(), 0);
    assert!(
        since.elapsed() < Duration::from_secs(8),
        "the end of the first one is an event: {:?}",
        since.elapsed()
    );
    assert!(!node.read("second").contains("complete"), "{}", node.read("second"));
}

#[tokio::test(flavor = "current_thread")]
async fn stopped_first_boot_fails_its_unit() {
    let node = provisioned(&json!({"config": {"ignition": {"version": "9.0.0"}}}));
    let running = Running::start(&node, "log");
    running.until("root/dev/console", &["the kubelet waits"]).await;
    let pid = rustix::process::Pid::from_child(&running.child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert_eq!(running.end(), 104);
    assert!(node.path(FILE).exists());
}

/// MCD-226: the file on a host that has a committed config is no order to take that config back.
#[test]
fn managed_host_is_left_to_its_daemon() {
    let node = provisioned(&empty());
    node.commit("rendered-worker-a.json", &files(&[("/etc/app.conf", "a")]));
    let other = node.text(FILE).replace("encapsulated", "other");
    std::fs::copy(node.path(FILE), &other).unwrap();
    let ran = node.run(&WORDS);
    assert_eq!((ran.code, node.path(FILE).exists()), (0, false), "{}", ran.err);
    assert_eq!(node.read("root/etc/app.conf"), "a");
    let named = other.strip_prefix(&node.text("root")).unwrap();
    let ran = node.run(&[&WORDS[..], &["--machineconfig-file", named]].concat());
    assert_eq!(ran.code, 102);
    assert!(ran.err.contains("not a first boot") && std::path::Path::new(&other).exists(), "{}", ran.err);
}

/// `/var` was kept over an installation: the state in it is not this host's. Also when it dies in between.
#[test]
fn state_of_earlier_installation_is_dropped() {
    let node = provisioned(&empty());
    node.commit("rendered-worker-a.json", &files(&[("/etc/app.conf", "a")]));
    std::fs::remove_dir_all(node.path("root/etc/machine-config-daemon")).unwrap();
    std::fs::remove_file(node.path("root/etc/app.conf")).unwrap();
    let current = node.path("root/var/lib/machine-config-agent/current.json");
    assert!(current.exists());
    let killed = node.command(&WORDS).env("MCA_FAIL_POINT", "kill:earlier-installation").output().unwrap();
    assert!(killed.status.code().is_none() && current.exists(), "{killed:?}");
    let ran = node.run(&WORDS);
    assert_eq!((ran.code, node.path(FILE).exists(), current.exists()), (0, false, false), "{}", ran.err);
    assert!(
        ran.err.contains("an earlier installation of this host, which had rendered-worker-a"),
        "{}",
        ran.err
    );
    assert!(!node.path("root/etc/app.conf").exists());
}

/// The host is a copy of a managed one: the state in it is that of the machine that was copied, seen by its machine-id or its name.
/// Also when it dies in between.
#[test]
fn state_of_copied_machine_is_dropped() {
    for (path, before, after) in [
        ("root/etc/machine-id", "5a4db0c5a4db0c5a4db0c5a4db0c5a4d\n", "0c5a4d5a4db0c5a4db0c5a4db0c5a4db\n"),
        ("root/etc/hostname", "template\n", "worker-7\n"),
    ] {
        let node = provisioned(&empty());
        node.put(path, before);
        node.commit("rendered-worker-a.json", &files(&[("/etc/app.conf", "a")]));
        node.put(path, after);
        let [current, of_mcd] =
            ["var/lib/machine-config-agent/current.json", "etc/machine-config-daemon/currentconfig"]
                .map(|name| node.path(&format!("root/{name}")));
        let killed =
            node.command(&WORDS).env("MCA_FAIL_POINT", "kill:earlier-installation").output().unwrap();
        assert!(killed.status.code().is_none() && current.exists(), "{path}: {killed:?}");
        let ran = node.run(&WORDS);
        let found = (ran.code, node.path(FILE).exists(), current.exists(), of_mcd.exists());
        assert_eq!(found, (0, false, false, false), "{path}: {}", ran.err);
    }
}

/// An image that was built with `apply`, and without `--into-image`: the state in it and MCD's files are not this host's.
#[test]
fn state_of_image_is_dropped() {
    let node = Node::new();
    node.put("root/dev/console", "");
    node.commit("rendered-worker-a.json", &files(&[("/etc/app.conf", "a")]));
    in_image(&node);
    let ran = node.run(&WORDS);
    assert_eq!((ran.code, node.path(FILE).exists()), (0, false), "{}{}", ran.out, ran.err);
    assert!(ran.err.contains("came with the image, which had rendered-worker-a"), "{}", ran.err);
    assert!(ran.out.contains("the first boot is complete"), "{}", ran.out);
    for state in ["current.json", "record.json"] {
        assert!(!node.path(&format!("root/{STATE}/{state}")).exists(), "{state}");
    }
}

/// An open update without a committed config may be the first one of this host, by an agent that did not write down which machine it is:
/// its originals are all that brings the host back.
#[test]
fn open_update_of_unknown_machine_keeps_its_originals() {
    let node = Node::new();
    node.put("root/dev/console", "");
    leave_open(&node);
    let machine = node.path(&format!("root/{STATE}/machine.json"));
    assert!(!machine.exists() || std::fs::remove_file(machine).is_ok());
    in_image(&node);
    let ran = node.run(&WORDS);
    assert!(!ran.err.contains("Dropped the state"), "{}", ran.err);
    assert!(ran.err.contains("Resuming update"), "{}", ran.err);
}

/// Makes `/etc` that of the image, and the machine another one that provisions itself.
fn in_image(node: &Node) {
    let copied = std::process::Command::new("cp")
        .args(["-a", &node.text("root/etc"), &node.text("root/usr/etc")])
        .status()
        .unwrap();
    assert!(copied.success());
    node.put("root/etc/machine-id", "5a4db0c5a4db0c5a4db0c5a4db0c5a4d\n");
    node.put("root/proc/sys/kernel/random/boot_id", "0f1e2d3c-4b5a-4978-8796-a5b4c3d2e1f1\n");
    node.put(FILE, config("rendered-worker-b", &empty()));
}

/// A person's update before the first boot: it is of this host, and no build left it.
#[test]
fn update_of_this_machine_stays() {
    let node = Node::new();
    node.put("root/dev/console", "");
    node.put("root/etc/machine-id", "5a4db0c5a4db0c5a4db0c5a4db0c5a4d\n");
    leave_open(&node);
    node.put(FILE, config("rendered-worker-b", &empty()));
    let ran = node.run(&WORDS);
    assert!(!ran.err.contains("Dropped the state"), "{}", ran.err);
}

/// Leaves the reboot of an update to somebody.
fn leave_open(node: &Node) {
    node.put("rendered-worker-a.json", config("rendered-worker-a", &files(&[("/opt/app.conf", "a")])));
    let words = [&crate::test_host::apply("rendered-worker-a.json")[..9], &["--no-reboot", "--yes"]].concat();
    let ran = node.run(&words);
    assert!(ran.code == 0 && ran.out.contains("has to reboot"), "{}{}", ran.out, ran.err);
}

/// A file that somebody left on a host of the same machine-id and name takes nothing back.
#[test]
fn state_of_this_machine_stays() {
    let node = provisioned(&empty());
    node.put("root/etc/machine-id", "5a4db0c5a4db0c5a4db0c5a4db0c5a4d\n");
    node.put("root/etc/hostname", "worker-7\n");
    node.commit("rendered-worker-a.json", &files(&[("/etc/app.conf", "a")]));
    let ran = node.run(&WORDS);
    assert_eq!((ran.code, node.path(FILE).exists()), (0, false), "{}", ran.err);
    assert!(node.path("root/var/lib/machine-config-agent/current.json").exists());
}

/// MCD-226, MCD-227: the daemon clears away what the provisioning left.
#[tokio::test(flavor = "current_thread")]
async fn daemon_clears_leftovers_of_provisioning() {
    let node = provisioned(&empty());
    let preset = "root/etc/systemd/system-preset/20-ignition.preset";
    node.put(preset, "enable app.service\n");
    node.put("control/machineconfigs/rendered-worker-a.json", config("rendered-worker-a", &empty()));
    node.put("control/target.yaml", "config: rendered-worker-a\n");
    let mut daemon = crate::daemon_process::Daemon::start(node);
    daemon.until("its report", |report| report["state"] == "Done" || report["state"] == "Working").await;
    assert!(!daemon.node.path(preset).exists() && !daemon.node.path(FILE).exists());
    assert!(daemon.node.path(RENAMED_CONFIG).exists());
}

/// MCD-007: installed under MCD's name, the binary takes MCD's words.
#[test]
fn binary_takes_mcds_words_under_its_name() {
    let node = provisioned(&empty());
    let program = node.path("machine-config-daemon");
    std::os::unix::fs::symlink(crate::test_host::BINARY, &program).unwrap();
    let run = |words: &[&str]| {
        let output = std::process::Command::new(&program).args(words).env_clear().output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        (output.status.code().unwrap(), String::from_utf8(text).unwrap())
    };
    let (code, text) = run(&["version"]);
    assert!(code == 0 && text.starts_with("MachineConfigDaemon 0."), "{text}");
    let (code, text) = run(&["start", "--v=2"]);
    assert!(code != 0 && text.contains("node-name is required"), "{text}");
    let (code, text) =
        run(&["start", "--node-name=worker-0", "--root-mount=/nowhere", "--kubeconfig=/nowhere"]);
    assert!(code == 102 && text.contains("/nowhere"), "{code} {text}");
}
