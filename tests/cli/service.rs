//! The agent as a service: its notifications to systemd, its signals, its settings file, and the hint for
//! who logs in.

use std::os::unix::net::UnixDatagram;
use std::time::{Duration, Instant};

use crate::daemon_process::Daemon;
use crate::test_host::{self, Node, QUIET, config, files};
use rustix::process::Signal;

const SETTINGS: &str = "root/etc/machine-config-agent/settings.toml";
const HINT: &str = "root/run/motd.d/90-machine-config-agent.motd";

/// Notifications to systemd, one by one.
struct Manager(UnixDatagram);

impl Manager {
    fn listen(node: &Node) -> Self {
        let socket = UnixDatagram::bind(node.path("notify")).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
        Self(socket)
    }

    fn receive(&self) -> String {
        let mut bytes = [0; 4096];
        let count = self.0.recv(&mut bytes).unwrap();
        String::from_utf8(bytes[..count].to_vec()).unwrap()
    }

    /// Returns the messages up to one that holds these words, that one included.
    fn until(&self, words: &str) -> Vec<String> {
        let mut all = vec![self.receive()];
        while !all.last().unwrap().contains(words) {
            all.push(self.receive());
        }
        all
    }
}

fn started(node: Node, variables: &[(&str, &str)]) -> (Daemon, Manager) {
    let manager = Manager::listen(&node);
    let socket = node.text("notify");
    let variables = [&[("NOTIFY_SOCKET", socket.as_str())], variables].concat();
    (Daemon::start_with(node, &["--reboot-by", "supervisor"], &variables), manager)
}

fn follow(daemon: &Daemon, name: &str, text: &str) {
    daemon.put("policy.yaml", QUIET);
    let desired = config(name, &files(&[("/etc/lab.conf", text)]));
    daemon.put(&format!("machineconfigs/{name}.yaml"), &desired);
    daemon.put("target.yaml", &format!("config: {name}\n"));
}

/// CRA-006, MCD-014: an idle agent ends at once.
#[tokio::test(flavor = "current_thread")]
async fn idle_agent_ends_within_five_seconds_of_sigterm() {
    for signal in [Signal::TERM, Signal::INT] {
        let mut daemon = Daemon::start(Node::new());
        follow(&daemon, "rendered-worker-a", "a");
        daemon.until_done("rendered-worker-a").await;
        let asked = Instant::now();
        daemon.signal(signal);
        let status = daemon.end(Duration::from_secs(5));
        assert!(status.success() && asked.elapsed() < Duration::from_secs(5), "{status}");
        assert!(daemon.log().contains("Stopped by a signal"), "{}", daemon.log());
    }
}

/// CRA-006, MCD-015: a batch that is under way ends before SIGTERM takes effect. All of its files are there, and the record says so;
/// the next process goes on from it.
#[tokio::test(flavor = "current_thread")]
async fn sigterm_waits_for_batch_under_way() {
    const FILES: usize = 1500;
    let node = Node::new();
    node.put("root/etc/many/.keep", "");
    let root = machine_config_agent::host::Root::open(&node.path("root")).unwrap();
    let mut begun = machine_config_agent::host::watch::Watch::new(&root, [], ["/etc/many"]).unwrap();
    let mut daemon = Daemon::start(node);
    daemon.put("policy.yaml", QUIET);
    let paths: Vec<String> = (0..FILES).map(|number| format!("/etc/many/{number}")).collect();
    let all: Vec<(&str, &str)> = paths.iter().map(|path| (path.as_str(), "x")).collect();
    daemon.put("machineconfigs/rendered-worker-a.yaml", &config("rendered-worker-a", &files(&all)));
    daemon.put("target.yaml", "config: rendered-worker-a\n");
    begun.changed().await.unwrap();
    daemon.signal(Signal::TERM);
    assert!(daemon.end(Duration::from_secs(120)).success());
    let there = paths.iter().filter(|path| daemon.node.path(&format!("root{path}")).exists()).count();
    assert_eq!(there, FILES, "{}", daemon.log());
    assert!(daemon.log().contains("files: 1500 steps done"), "{}", daemon.log());
    let mut daemon = Daemon::start(std::mem::replace(&mut daemon.node, Node::new()));
    daemon.until_done("rendered-worker-a").await;
    assert!(!daemon.log().contains("steps begun"), "nothing is written twice: {}", daemon.log());
}

#[tokio::test(flavor = "current_thread")]
async fn systemd_is_reported_ready_after_recovery_and_every_state() {
    let (mut daemon, manager) = started(Node::new(), &[]);
    manager.receive();
    follow(&daemon, "rendered-worker-a", "a");
    daemon.until_done("rendered-worker-a").await;
    let told = manager.until("Done: rendered-worker-a");
    assert!(
        told.iter().any(|line| line.contains("STATUS=Working: Applying for rendered-worker-a")),
        "{told:?}"
    );
    daemon.put("target.yaml", "config: rendered-worker-x\n");
    manager.until("STATUS=Degraded: ConfigNotFound");
}

/// An enabled unit on a host without a target: it is up and says what it waits for, and it holds nothing that another agent needs.
#[tokio::test(flavor = "current_thread")]
async fn first_target_is_waited_for() {
    let (mut daemon, manager) = started(Node::new(), &[("WATCHDOG_USEC", "400000")]);
    let first = manager.receive();
    let file = daemon.node.path("control/target.yaml");
    assert_eq!(first, format!("READY=1\nSTATUS=Waits for {}\n", file.display()));
    assert_eq!([manager.receive(), manager.receive()], ["WATCHDOG=1\n"; 2], "it is well");
    assert!(
        daemon.log().contains("Waiting for ") && daemon.log().contains("target.yaml, which does not exist")
    );
    let desired = config("rendered-worker-b", &files(&[("/etc/lab.conf", "b")]));
    daemon.node.put("other.yaml", desired);
    let other = daemon.node.apply("other.yaml");
    assert_eq!(other.code, 0, "another agent works meanwhile: {}", other.err);
    follow(&daemon, "rendered-worker-a", "a");
    daemon.until_done("rendered-worker-a").await;
    let (mut daemon, manager) = started(Node::new(), &[]);
    manager.until("Waits for");
    daemon.signal(Signal::TERM);
    assert!(daemon.end(Duration::from_secs(5)).success());
}

/// Work that a crash left open is finished before systemd is notified that the service is up.
#[tokio::test(flavor = "current_thread")]
async fn ready_waits_for_recovery() {
    let flags = ["--reboot-by", "supervisor"];
    let mut doomed = Daemon::start_with(Node::new(), &flags, &[("MCA_FAIL_POINT", "kill:synced")]);
    follow(&doomed, "rendered-worker-a", "a");
    assert!(!doomed.end(Duration::from_secs(120)).success());
    assert!(!doomed.node.path("root/etc/lab.conf").exists());
    let node = std::mem::replace(&mut doomed.node, Node::new());
    let (daemon, manager) = started(node, &[]);
    assert_eq!(manager.receive(), "READY=1\nSTATUS=Working: Applying for rendered-worker-a\n");
    assert_eq!(daemon.node.read("root/etc/lab.conf"), "a");
}

/// An idle agent gives a sign of life each half of the interval, and only while systemd asks for it.
#[tokio::test(flavor = "current_thread")]
async fn watchdog_is_fed_by_idle_agent() {
    // From before the start: a test that reads late finds signs that waited for it.
    let since = Instant::now();
    let (_daemon, manager) = started(Node::new(), &[("WATCHDOG_USEC", "400000")]);
    assert!(manager.receive().starts_with("READY=1\n"));
    assert_eq!(manager.receive(), "WATCHDOG=1\n", "the first pass is progress");
    let signs: Vec<String> = (0..5).map(|_| manager.receive()).collect();
    assert_eq!(signs, ["WATCHDOG=1\n"; 5]);
    // Five halves of the interval: the wait is between the signs, and no shorter.
    assert!(since.elapsed() > Duration::from_millis(700), "{:?}", since.elapsed());
    // Another process's watchdog, or none.
    for variables in [&[("WATCHDOG_USEC", "400000"), ("WATCHDOG_PID", "1")][..], &[]] {
        let (_daemon, manager) = started(Node::new(), variables);
        assert!(manager.receive().starts_with("READY=1\n"));
        manager.0.set_read_timeout(Some(Duration::from_millis(600))).unwrap();
        assert!(manager.0.recv(&mut [0; 64]).is_err(), "nobody asked");
    }
}

/// SIGHUP reads the settings again; a broken file leaves the old ones, and its error is logged.
#[tokio::test(flavor = "current_thread")]
async fn sighup_reads_settings_again() {
    let node = Node::new();
    node.put(SETTINGS, "[os]\nstall = '2m'\n");
    let (mut daemon, manager) = started(node, &[]);
    follow(&daemon, "rendered-worker-a", "a");
    manager.until("Done: rendered-worker-a");
    let reload = |settings: &str| {
        daemon.node.put(SETTINGS, settings);
        daemon.signal(Signal::HUP);
        // Before it, the status may have changed with the settings before.
        let told = manager.until("RELOADING=1");
        let monotonic = told.last().and_then(|one| one.strip_prefix("RELOADING=1\nMONOTONIC_USEC="));
        assert!(monotonic.unwrap().trim().parse::<u64>().unwrap() > 0, "{told:?}");
        manager.until("READY=1");
        daemon.log()
    };
    let log = reload("[os]\nstall = '3m'\n");
    assert!(log.contains("Reloaded the settings") && log.contains("stall: 180s"), "{log}");
    let log = reload("[os]\nstall = 'long'\n");
    let wrong = "warning: SettingsInvalid: /etc/machine-config-agent/settings.toml: os.stall = \"long\": must be a duration";
    assert!(
        log.contains(wrong)
            && log.contains(
                "the settings stay as they are. Next: Correct /etc/machine-config-agent/settings.toml "
            ),
        "{log}"
    );
    assert_eq!(log.matches("Reloaded the settings").count(), 1);
    // What another version of the agent knows is named, and the rest acts.
    let log = reload("[os]\nstall = '4m'\nspeed = 1\n");
    let unknown =
        "Not applied: /etc/machine-config-agent/settings.toml os.speed: this agent has no such setting";
    assert!(log.contains("stall: 240s") && log.contains(unknown), "{log}");
    let is_named = |report: &serde_json::Value| {
        report["state"] == "Done" && report["notApplied"].to_string().contains("settings.toml os.speed")
    };
    daemon.until("the unknown key", is_named).await;
    let status = daemon.node.run(&["status", "--root", "root", "--os-backend", "none"]);
    assert!(
        status.out.contains("is Done") && status.out.contains("settings.toml os.speed"),
        "{}",
        status.out
    );
    std::fs::remove_file(daemon.node.path(SETTINGS)).unwrap();
    daemon.signal(Signal::HUP);
    manager.until("RELOADING=1");
    manager.until("READY=1");
    assert!(daemon.log().contains("stall: 900s"), "{}", daemon.log());
}

/// A file that is named has to be there; a broken one stops who typed the command, and not the service.
#[tokio::test(flavor = "current_thread")]
async fn broken_settings_file_does_not_keep_node_without_its_agent() {
    let node = Node::new();
    node.put("own.toml", "soft-reboot = 'sometimes'\n");
    node.put("a.json", config("a", &files(&[("/etc/lab.conf", "a")])));
    let words = [&test_host::apply("a.json")[..], &["--settings", "own.toml"]].concat();
    let ran = node.run(&words);
    assert_eq!(ran.code, 2, "{}", ran.err);
    assert!(ran.err.contains("own.toml is invalid: line 1: it is `sometimes`, and must be"), "{}", ran.err);
    let ran = node.run(&["daemon", "--directory", ".", "--root", "root", "--settings", "no.toml"]);
    assert_eq!(ran.code, 102, "{}", ran.err);
    assert!(ran.err.contains("no.toml") && ran.err.contains("there is no such file"), "{}", ran.err);
    let settings = node.text("own.toml");
    let flags = ["--reboot-by", "supervisor", "--settings", &settings];
    let mut daemon = Daemon::start_with(node, &flags, &[]);
    follow(&daemon, "rendered-worker-a", "a");
    // The config is applied, and the report says what is wrong beside it.
    daemon.until_fault("SettingsInvalid", &["own.toml is invalid"]).await;
    daemon.until_logged(&["Update ", "to rendered-worker-a is done: "]).await;
    assert!(daemon.log().contains("SettingsInvalid"), "{}", daemon.log());
}

/// A fault before the agent's work is an error with an id, and no exit code that systemd has another name for.
#[test]
fn start_up_fault_is_logged_as_error_with_message_id() {
    let node = Node::new();
    node.put("control/.keep", "");
    let host = ["--root", "root", "--os-backend", "none", "--log-format", "json"];
    let ends = |words: &[&str], code: i32, reason: &str| {
        let ran = node.run(&[&["daemon"], words, &host].concat());
        assert_eq!(ran.code, code, "{}", ran.err);
        let line: serde_json::Value = serde_json::from_str(ran.err.lines().last().unwrap()).unwrap();
        assert_eq!((&line["level"], &line["MCA_FAULT"]), (&"ERROR".into(), &reason.into()), "{line}");
        assert_eq!(line["MESSAGE_ID"], machine_config_agent::model::message::FAILED);
        assert!(line["message"].as_str().unwrap().starts_with(&format!("{reason}: ")), "{line}");
    };
    ends(&[], 102, "InvalidArguments");
    ends(&["--directory", "nowhere"], 104, "UnexpectedKind");
    node.put("control/target.yaml", "config: rendered-worker-a\n");
    node.put(&format!("root/{}/record.json", test_host::STATE), "rubbish");
    ends(&["--directory", "control"], 105, "StateUnreadable");
    // Each unit runs a service.
    for verb in [&["firstboot"][..], &["stateroot", "trial"]] {
        let ran = node.run(&[verb, &["--settings", "nowhere.toml"]].concat());
        assert!(ran.code == 102 && ran.err.starts_with("error: InvalidArguments: "), "{verb:?}: {}", ran.err);
    }
    // A one-shot verb keeps the codes of the documents, and its text.
    let ran = node.run(&["status", "--root", "root", "--os-backend", "none"]);
    assert_eq!(ran.code, 5);
    assert!(ran.err.starts_with("error: ") && ran.err.contains("\nNext: "), "{}", ran.err);
}

/// MCD-002: the flag has precedence over `NODE_NAME`, which serves where there is no flag.
#[tokio::test(flavor = "current_thread")]
async fn flag_names_node_before_environment() {
    for (flags, name) in [(&["--node-name", "by-flag"][..], "by-flag"), (&[], "by-environment")] {
        let flags = [&["--reboot-by", "supervisor"], flags].concat();
        let mut daemon = Daemon::start_with(Node::new(), &flags, &[("NODE_NAME", "by-environment")]);
        follow(&daemon, "rendered-worker-a", "a");
        daemon.until_done("rendered-worker-a").await;
        assert_eq!(daemon.report().unwrap()["node"], name);
    }
}

/// systemd starts no service again after an error that only other arguments, or a person, can end.
#[test]
fn units_restart_after_transient_exit_codes() {
    for (unit, restart) in [("", "always"), ("-firstboot", "on-failure"), ("-stateroot", "on-failure")] {
        let unit = format!("systemd/machine-config-agent{unit}.service");
        let text = std::fs::read_to_string(&unit).unwrap();
        for line in [&format!("Restart={restart}"), "RestartPreventExitStatus=2 102 105"] {
            assert!(text.lines().any(|one| one == line), "{unit} has no {line}");
        }
    }
}

/// A daemon that starts beside a first boot would put away the file that this completes: it follows each unit that does.
#[test]
fn daemon_follows_first_boot() {
    let read = |unit: &str| std::fs::read_to_string(format!("systemd/{unit}.service")).unwrap();
    let names = |text: &str, key: &str, unit: &str| {
        text.lines()
            .any(|line| line.strip_prefix(key).is_some_and(|units| units.split(' ').any(|one| one == unit)))
    };
    let (daemon, first) = (read("machine-config-agent"), read("machine-config-agent-firstboot"));
    assert!(names(&first, "Before=", "machine-config-agent.service"));
    assert!(names(&daemon, "After=", "machine-config-daemon-firstboot.service"));
}

/// A login to a node at fault shows the fault; a healthy node shows nothing.
#[tokio::test(flavor = "current_thread")]
async fn degraded_node_shows_fault_at_login() {
    let mut daemon = Daemon::start(Node::new());
    follow(&daemon, "rendered-worker-a", "a");
    daemon.until_done("rendered-worker-a").await;
    assert!(!daemon.node.path("root/run/motd.d").exists());
    let hint = machine_config_agent::host::Root::open(&daemon.node.path("root")).unwrap();
    let mut watch = machine_config_agent::host::watch::Watch::new(
        &hint,
        ["/run/motd.d/90-machine-config-agent.motd"],
        [],
    )
    .unwrap();
    daemon.put("target.yaml", "config: rendered-worker-x\n");
    daemon.until_fault("ConfigNotFound", &[]).await;
    while !daemon.node.path(HINT).exists() {
        watch.changed().await.unwrap();
    }
    let text = daemon.node.read(HINT);
    assert!(text.starts_with("machine-config-agent: this node is Degraded. ConfigNotFound: "), "{text}");
    assert!(text.ends_with("\nSee: machine-config-agent status\n"), "{text}");
    daemon.put("target.yaml", "config: rendered-worker-a\n");
    daemon.until_done("rendered-worker-a").await;
    while daemon.node.path(HINT).exists() {
        watch.changed().await.unwrap();
    }
}
