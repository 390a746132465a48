//! The daemon with a directory as its control plane: what is wrong with the directory is in the report, the old
//! target stays, and a correction is noticed without a restart.

use std::time::Duration;

use crate::daemon_process::Daemon;
use crate::ran;
use crate::test_host::{self, Node, QUIET, config, files};
use machine_config_agent::host::root::Root;
use machine_config_agent::host::watch::Watch;
use serde_json::{Value, json};

fn motd(name: &str, text: &str) -> String {
    config(name, &files(&[("/etc/motd", text)]))
}

fn status(daemon: &Daemon) -> Value {
    let words = ["status", "--output", "json", "--root", "root", "--os-backend", "none"];
    serde_json::from_str(&daemon.node.run(&words).out).unwrap()
}

/// The journal has what is not applied, too.
#[tokio::test(flavor = "current_thread")]
async fn fields_without_effect_are_logged() {
    let mut daemon = Daemon::start(Node::new());
    let spec = test_host::ignition(json!({"passwd": {"users": [{"name": "core", "noLogInit": true}]}}));
    daemon.put("machineconfigs/rendered-worker-a.yaml", &config("rendered-worker-a", &spec));
    daemon.put("target.yaml", "config: rendered-worker-a\n");
    daemon.until_done("rendered-worker-a").await;
    let named = r#"Not applied: passwd.users "core" noLogInit: it only counts when the account is made"#;
    daemon.until_logged(&[named]).await;
}

#[tokio::test(flavor = "current_thread")]
async fn directory_error_is_reported_and_clears() {
    let mut daemon = Daemon::start(Node::new());
    daemon.put("policy.yaml", QUIET);
    daemon.put("machineconfigs/rendered-worker-a.yaml", &motd("rendered-worker-a", "a"));
    daemon.put("target.yaml", "config: rendered-worker-a\n");
    daemon.until_done("rendered-worker-a").await;

    // Not by rename: the agent sees the half of it.
    daemon.node.put("control/target.yaml", "config: [rendered-");
    daemon.until_fault("InvalidDocument", &["target.yaml", "Next: Correct"]).await;
    assert!(daemon.log().contains("InvalidDocument: "), "it is in the journal too: {}", daemon.log());
    let report = daemon.report().unwrap();
    assert_eq!(report["desiredConfig"], "rendered-worker-a", "the old target stays");
    assert_eq!(std::fs::read(daemon.node.path("root/etc/motd")).unwrap(), b"a");
    assert_eq!(status(&daemon)["fault"], report["fault"], "no record tells it, `status` does");

    // A file that was not synced, after a power cut.
    daemon.put("target.yaml", "\n");
    let words = "/target.yaml is not valid: it can't be read: it is empty. Next: ";
    daemon.until(words, |report| report["reason"].as_str().unwrap().contains(words)).await;

    daemon.put("target.yaml", "config: rendered-worker-b\n");
    daemon.until_fault("ConfigNotFound", &["rendered-worker-b", "machineconfigs", "Next: Put"]).await;
    let told = status(&daemon);
    assert_eq!(told["desired"]["config"], "rendered-worker-b");
    assert_eq!(
        (&told["state"], &told["current"]["config"]),
        (&json!("Degraded"), &json!("rendered-worker-a"))
    );
    daemon.put("machineconfigs/rendered-worker-b.yaml", &motd("rendered-worker-x", "b"));
    daemon
        .until_fault("ConfigMisnamed", &["rendered-worker-b.yaml", "rendered-worker-x", "Next: Correct"])
        .await;
    daemon.put("policy.yaml", "kind: [");
    daemon.put("machineconfigs/rendered-worker-b.yaml", &motd("rendered-worker-b", "b"));
    daemon.until_fault("InvalidDocument", &["policy.yaml", "Next: Correct"]).await;
    daemon.put("policy.yaml", QUIET);
    daemon.until_done("rendered-worker-b").await;
    assert_eq!(std::fs::read(daemon.node.path("root/etc/motd")).unwrap(), b"b");

    let old = motd("rendered-worker-c", "c").replace("3.5.0", "2.2.0");
    daemon.put("machineconfigs/rendered-worker-c.yaml", &old);
    daemon.put("target.yaml", "config: rendered-worker-c\n");
    daemon.until_fault("InvalidConfig", &["rendered-worker-c", "2.2.0", "convert", "Next: Correct"]).await;
    daemon.put("machineconfigs/rendered-worker-c.yaml", &motd("rendered-worker-c", "c"));
    daemon.until_done("rendered-worker-c").await;
    assert!(status(&daemon)["fault"].is_null());
    assert!(daemon.child.try_wait().unwrap().is_none(), "the daemon has ended: {}", daemon.log());

    // An agent that stops holds nothing: the next one reports the refusal.
    daemon.put("target.yaml", "config: rendered-worker-d\n");
    daemon.until_fault("ConfigNotFound", &["rendered-worker-d"]).await;
    daemon.signal(rustix::process::Signal::TERM);
    assert!(daemon.end(std::time::Duration::from_secs(60)).success());
    assert!(status(&daemon)["fault"].is_null());
}

/// Of two files of one config nobody knows which one is meant, whichever came first.
#[tokio::test(flavor = "current_thread")]
async fn config_in_two_files_is_refused_until_one_is_left() {
    let mut daemon = Daemon::start(Node::new());
    daemon.put("policy.yaml", QUIET);
    daemon.put("machineconfigs/rendered-worker-a.yaml", &motd("rendered-worker-a", "a"));
    daemon.put("target.yaml", "config: rendered-worker-a\n");
    daemon.until_done("rendered-worker-a").await;
    daemon.put("machineconfigs/rendered-worker-a.json", &motd("rendered-worker-a", "b"));
    let words = [
        "rendered-worker-a.json",
        "rendered-worker-a.yaml",
        "both hold MachineConfig rendered-worker-a",
        "Next: Remove one of the two",
    ];
    daemon.until_fault("InvalidDocument", &words).await;
    assert_eq!(std::fs::read(daemon.node.path("root/etc/motd")).unwrap(), b"a");
    std::fs::remove_file(daemon.node.path("control/machineconfigs/rendered-worker-a.yaml")).unwrap();
    daemon.until_done("rendered-worker-a").await;
    let is_new = |report: &Value| report["fault"].is_null() && report["state"] == "Done";
    daemon.until("the file that is left", is_new).await;
    assert_eq!(std::fs::read(daemon.node.path("root/etc/motd")).unwrap(), b"b");
}

/// An image by tag is named with its field, and an unknown field is a mistake of the person who wrote the file: neither is touched.
#[tokio::test(flavor = "current_thread")]
async fn image_by_tag_and_unknown_field_are_refused_until_corrected() {
    let mut daemon = Daemon::start(Node::new());
    daemon.put("policy.yaml", QUIET);
    daemon.put("machineconfigs/rendered-worker-b.yaml", &motd("rendered-worker-b", "b"));
    daemon.put("target.yaml", "config: rendered-worker-b\n");
    daemon.until_done("rendered-worker-b").await;
    daemon.put("target.yaml", "config: rendered-worker-b\nimage: registry.test/os:latest\n");
    let words = ["target.yaml", "image: image \"registry.test/os:latest\" is refused", "Next: Correct"];
    daemon.until_fault("InvalidImage", &words).await;

    let typo = motd("rendered-worker-c", "c").replace("\"storage\"", "\"storge\"");
    daemon.put("machineconfigs/rendered-worker-c.yaml", &typo);
    daemon.put("target.yaml", "config: rendered-worker-c\n");
    let words =
        ["rendered-worker-c.yaml", "spec.config.storge", "did you mean storage?", "--allow-unknown-fields"];
    daemon.until_fault("InvalidDocument", &words).await;
    let told = status(&daemon);
    assert_eq!(
        (&told["state"], &told["current"]["config"]),
        (&json!("Degraded"), &json!("rendered-worker-b"))
    );
    assert_eq!(std::fs::read(daemon.node.path("root/etc/motd")).unwrap(), b"b");
    daemon.put("machineconfigs/rendered-worker-c.yaml", &motd("rendered-worker-c", "c"));
    daemon.until_done("rendered-worker-c").await;
}

/// With the flag the field passes, named by the daemon's report and by `verify`.
#[tokio::test(flavor = "current_thread")]
async fn unknown_fields_that_are_allowed_are_named() {
    let mut daemon = Daemon::start_with(Node::new(), &["--allow-unknown-fields"], &[]);
    daemon.put("policy.yaml", QUIET);
    let typo = motd("rendered-worker-c", "c").replace("\"storage\"", "\"storge\":{},\"storage\"");
    daemon.put("machineconfigs/rendered-worker-c.yaml", &typo);
    daemon.put("target.yaml", "config: rendered-worker-c\n");
    daemon.until_done("rendered-worker-c").await;
    assert!(status(&daemon).to_string().contains("spec.config.storge"), "{}", status(&daemon));
    daemon.node.put("c.yaml", &typo);
    let host = ["--root", "root", "--os-backend", "none"];
    let verify =
        |more: &[&str]| daemon.node.run(&[&["verify", "--config", "c.yaml"], &host[..], more].concat());
    assert_eq!(verify(&[]).code, 4);
    let allowed = verify(&["--allow-unknown-fields"]);
    assert!(
        allowed.code == 0 && allowed.out.contains("spec.config.storge"),
        "{}{}",
        allowed.out,
        allowed.err
    );
}

/// The identity of a target is its name and its content: a file edited in place is another one, in another form it is not.
#[tokio::test(flavor = "current_thread")]
async fn file_edited_in_place_is_another_target() {
    let mut daemon = Daemon::start(Node::new());
    daemon.put("policy.yaml", QUIET);
    let path = "machineconfigs/rendered-worker-a.yaml";
    daemon.put(path, &motd("rendered-worker-a", "a"));
    daemon.put("target.yaml", "config: rendered-worker-a\n");
    daemon.until_done("rendered-worker-a").await;

    daemon.put(path, &motd("rendered-worker-a", "b"));
    let at = daemon.node.path("root/etc/motd");
    let written = || std::fs::read_to_string(&at).unwrap();
    daemon.until("the new content", |report| report["state"] == "Done" && written() == "b").await;
    assert!(daemon.log().contains("desired: rendered-worker-a, whose content changed"), "{}", daemon.log());

    // It is not valid: the old content stays, and the correction is another target again.
    let broken = motd("rendered-worker-a", "c").replace("data:,c", "https://a.test/c");
    daemon.put(path, &broken);
    let refused = |report: &Value| {
        report["state"] == "Degraded" && report["reason"].as_str().unwrap().contains("/etc/motd")
    };
    let report = daemon.until("the refusal", refused).await;
    assert_eq!((&report["contentChanged"], written().as_str()), (&json!(true), "b"));
    let told = status(&daemon);
    assert_eq!((&told["contentChanged"], &told["current"]), (&json!(true), &told["desired"]));
    let text = daemon.node.run(&["status", "--root", "root", "--os-backend", "none"]).out;
    assert!(text.contains("desired  rendered-worker-a (content changed)"), "{text}");

    daemon.put(path, &motd("rendered-worker-a", "d"));
    daemon.until_done("rendered-worker-a").await;
    assert_eq!(written(), "d");
    let updates = daemon.log().matches("is done: ").count();
    assert_eq!(updates, 3, "{}", daemon.log());

    let mut object: Value = serde_json::from_str(&motd("rendered-worker-a", "d")).unwrap();
    object["metadata"]["labels"] = json!({"a": "b"});
    daemon.put(path, &serde_json::to_string_pretty(&object).unwrap());
    daemon.put("target.yaml", "config: rendered-worker-b\n");
    daemon.until_fault("ConfigNotFound", &["rendered-worker-b"]).await;
    daemon.put("target.yaml", "config: rendered-worker-a\n");
    daemon.until_done("rendered-worker-a").await;
    assert_eq!(daemon.log().matches("is done: ").count(), updates, "{}", daemon.log());
}

/// MCD-221: MCD's own files are part of a commit. A directory of them that another user owns keeps it waiting: the fault names
/// the directory and its end, and nothing is reported as done before.
#[tokio::test(flavor = "current_thread")]
async fn unsafe_directory_of_mcd_is_reported_until_it_is_mended() {
    let node = Node::new();
    let mcd = node.path("root/etc/machine-config-daemon");
    std::fs::create_dir_all(&mcd).unwrap();
    std::os::unix::fs::chown(&mcd, Some(1000), None).unwrap();
    let mut daemon = Daemon::start(node);
    daemon.put("policy.yaml", QUIET);
    daemon.put("machineconfigs/rendered-worker-a.yaml", &motd("rendered-worker-a", "a"));
    daemon.put("target.yaml", "config: rendered-worker-a\n");
    let words = ["/etc/machine-config-daemon belongs to another user", "Next: ", "chown root:root"];
    daemon.until_fault("UnsafeDirectory", &words).await;
    assert!(!daemon.log().contains("is done: 1 step"), "{}", daemon.log());
    assert_eq!(status(&daemon)["fault"]["reason"], "UnsafeDirectory");
    std::os::unix::fs::chown(&mcd, Some(0), None).unwrap();
    daemon.until_done("rendered-worker-a").await;
    assert!(daemon.log().contains("is done: 1 step"), "{}", daemon.log());
    assert!(daemon.node.read("root/etc/machine-config-daemon/currentconfig").contains("rendered-worker-a"));
}

/// Follows the report that `status` shows: the one in the control directory may have no safe path.
struct Refusals {
    watch: Watch,
}

impl Refusals {
    const FILE: &str = "root/run/machine-config-agent/report.json";

    fn new(node: &Node) -> Self {
        let root = Root::open(node.dir.path()).unwrap();
        Self { watch: Watch::new(&root, [format!("/{}", Self::FILE).as_str()], []).unwrap() }
    }

    async fn until(&mut self, daemon: &Daemon, reason: &str, words: &[&str]) {
        loop {
            let text = std::fs::read_to_string(daemon.node.path(Self::FILE)).unwrap_or_default();
            if text.contains(&format!("\"{reason}\"")) && words.iter().all(|word| text.contains(word)) {
                return;
            }
            let changed = tokio::time::timeout(Duration::from_secs(120), self.watch.changed()).await;
            assert!(changed.is_ok(), "not {reason} with {words:?}: {text}\n{}", daemon.log());
        }
    }
}

fn mode(node: &Node, path: &str, mode: u32) {
    node.mode(path, mode);
}

/// Changes the owner of a path, also of a link itself; returns true if this user could.
fn give_away(node: &Node, path: &str) -> bool {
    std::os::unix::fs::lchown(node.path(path), Some(1000), None).is_ok()
}

/// Sets a config, with the new target broken before its rename.
fn ask(daemon: &Daemon, name: &str, spoil: impl FnOnce(&Node)) {
    daemon.node.put("control/next", format!("config: {name}\n"));
    spoil(&daemon.node);
    std::fs::rename(daemon.node.path("control/next"), daemon.node.path("control/target.yaml")).unwrap();
}

/// A target, a config, a policy and each directory on the way is applied as root: a user who may change one is root.
#[tokio::test(flavor = "current_thread")]
async fn files_writable_by_others_are_refused_until_repaired() {
    let mut daemon = Daemon::start(Node::new());
    let mut refusals = Refusals::new(&daemon.node);
    daemon.put("policy.yaml", QUIET);
    daemon.put("machineconfigs/rendered-worker-0.yaml", &motd("rendered-worker-0", "0"));
    daemon.put("target.yaml", "config: rendered-worker-0\n");
    daemon.until_done("rendered-worker-0").await;
    let rows: [(&str, u32, u32, &str); 8] = [
        ("control/next", 0o644, 0o664, "UnsafeFile"),
        ("control/next", 0o600, 0o602, "UnsafeFile"),
        ("control/policy.yaml", 0o644, 0o646, "UnsafeFile"),
        ("control/machineconfigs/NAME.yaml", 0o644, 0o660, "UnsafeFile"),
        ("control/machineconfigs", 0o755, 0o775, "UnsafeDirectory"),
        ("control", 0o755, 0o1777, "UnsafeDirectory"),
        ("control", 0o755, 0o770, "UnsafeDirectory"),
        ("", 0o700, 0o777, "UnsafeDirectory"),
    ];
    let mut done = 0;
    for (path, good, bad, reason) in rows {
        for by_owner in [false, true] {
            let (before, name) = (done.to_string(), format!("rendered-worker-{}", done + 1));
            let path = path.replace("NAME", &name);
            let shown = path.replace("/next", "/target.yaml");
            let text = (done + 1).to_string();
            daemon.put(&format!("machineconfigs/{name}.yaml"), &motd(&name, &text));
            let mut owned = false;
            ask(&daemon, &name, |node| {
                owned = by_owner && give_away(node, &path);
                if !owned {
                    mode(node, &path, bad);
                }
            });
            let full = daemon.node.text(&shown);
            let full = full.trim_end_matches('/');
            let words: [&str; 3] = if owned {
                [full, "uid 1000", &format!("chown root:root {full}")]
            } else {
                [full, &format!("mode {bad:04o}"), &format!("chmod go-w {full}")]
            };
            refusals.until(&daemon, reason, &words).await;
            assert_eq!(status(&daemon)["fault"]["reason"], reason);
            assert_eq!(daemon.node.read("root/etc/motd"), before, "{path} was carried out");
            if owned {
                std::os::unix::fs::lchown(daemon.node.path(&shown), Some(0), None).unwrap();
            } else {
                mode(&daemon.node, &shown, good);
            }
            daemon.until_done(&name).await;
            done += 1;
            assert_eq!(daemon.node.read("root/etc/motd"), done.to_string());
        }
    }
}

/// A link is followed where only root could have made it, and what it leads to is checked as well.
#[tokio::test(flavor = "current_thread")]
async fn links_are_followed_from_safe_hands_only() {
    let mut daemon = Daemon::start(Node::new());
    let mut refusals = Refusals::new(&daemon.node);
    daemon.put("policy.yaml", QUIET);
    for name in ["a", "b", "c"] {
        let name = format!("rendered-worker-{name}");
        daemon.put(&format!("machineconfigs/{name}.yaml"), &motd(&name, &name));
    }
    let link = |daemon: &Daemon, to: &str, mine: bool| {
        let node = &daemon.node;
        drop(std::fs::remove_file(node.path("control/next")));
        std::os::unix::fs::symlink(to, node.path("control/next")).unwrap();
        assert!(mine || give_away(node, "control/next") || !rustix::process::geteuid().is_root());
        std::fs::rename(node.path("control/next"), node.path("control/target.yaml")).unwrap();
    };
    daemon.node.put("elsewhere/target", "config: rendered-worker-a\n");
    link(&daemon, "../elsewhere/target", true);
    daemon.until_done("rendered-worker-a").await;
    daemon.node.put("elsewhere/other", "config: rendered-worker-b\n");
    mode(&daemon.node, "elsewhere/other", 0o666);
    let absolute = daemon.node.text("elsewhere/other");
    link(&daemon, &absolute, true);
    refusals.until(&daemon, "UnsafeFile", &["elsewhere/other", "mode 0666"]).await;
    daemon.node.put("elsewhere/third", "config: rendered-worker-c\n");
    if rustix::process::geteuid().is_root() {
        link(&daemon, "../elsewhere/third", false);
        let words = ["control/target.yaml", "is a link that another user could have made", "uid 1000"];
        refusals.until(&daemon, "UnsafeDirectory", &words).await;
    }
    assert_eq!(daemon.node.read("root/etc/motd"), "rendered-worker-a");
    link(&daemon, "../elsewhere/third", true);
    daemon.until_done("rendered-worker-c").await;
}

#[tokio::test(flavor = "current_thread")]
async fn recreated_directory_is_followed() {
    let mut daemon = Daemon::start(Node::new());
    let mut refusals = Refusals::new(&daemon.node);
    daemon.put("policy.yaml", QUIET);
    daemon.put("machineconfigs/rendered-worker-a.yaml", &motd("rendered-worker-a", "a"));
    daemon.put("target.yaml", "config: rendered-worker-a\n");
    daemon.until_done("rendered-worker-a").await;
    let (here, aside) = (daemon.node.path("control"), daemon.node.path("control.old"));
    std::fs::rename(&here, &aside).unwrap();
    refusals.until(&daemon, "Io", &["open the control directory"]).await;
    assert!(!here.exists(), "the agent has made it itself");
    // Another one, whole at once.
    daemon.node.put("control.new/policy.yaml", QUIET);
    daemon.node.put("control.new/machineconfigs/rendered-worker-b.yaml", motd("rendered-worker-b", "b"));
    daemon.node.put("control.new/target.yaml", "config: rendered-worker-b\n");
    std::fs::rename(daemon.node.path("control.new"), &here).unwrap();
    daemon.until_done("rendered-worker-b").await;
    // And one that is made piece by piece.
    std::fs::rename(&here, daemon.node.path("control.older")).unwrap();
    daemon.node.put("control/policy.yaml", QUIET);
    daemon.put("machineconfigs/rendered-worker-c.yaml", &motd("rendered-worker-c", "c"));
    daemon.put("target.yaml", "config: rendered-worker-c\n");
    daemon.until_done("rendered-worker-c").await;
    // Its files are followed as those of the first were.
    daemon.put("machineconfigs/rendered-worker-d.yaml", &motd("rendered-worker-d", "d"));
    daemon.node.put("control/target.yaml", "config: rendered-worker-d\n");
    daemon.until_done("rendered-worker-d").await;
    assert_eq!(daemon.node.read("control.old/target.yaml"), "config: rendered-worker-a\n");
}

/// Waits for a fault of this reason with all of these texts.
async fn until_reported(daemon: &mut Daemon, reason: &str, words: &[&str]) {
    let said = |report: &Value, word: &&str| report["reason"].as_str().unwrap().contains(*word);
    let told =
        |report: &Value| report["fault"]["reason"] == reason && words.iter().all(|word| said(report, word));
    daemon.until(&format!("{reason}: {words:?}"), told).await;
}

/// The largest memory that a process had, in kilobytes.
fn peak(daemon: &Daemon) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", daemon.child.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}

/// 300 MB instead of a target, a config or a policy cost no memory, and a pipe does not block.
#[tokio::test(flavor = "current_thread")]
async fn huge_files_are_refused_unread() {
    let mut daemon = Daemon::start(Node::new());
    daemon.put("policy.yaml", QUIET);
    daemon.put("machineconfigs/rendered-worker-a.yaml", &motd("rendered-worker-a", "a"));
    daemon.put("target.yaml", "config: rendered-worker-a\n");
    daemon.until_done("rendered-worker-a").await;
    let before = peak(&daemon);
    let huge = |daemon: &Daemon, path: &str| {
        daemon.node.put("huge", "");
        let file = std::fs::File::options().write(true).open(daemon.node.path("huge")).unwrap();
        file.set_len(300 << 20).unwrap();
        std::fs::rename(daemon.node.path("huge"), daemon.node.path(path)).unwrap();
    };
    huge(&daemon, "control/target.yaml");
    let words =
        ["target.yaml is too large: 314572800 bytes, and at most 65536 are read", "Next: Find out what"];
    until_reported(&mut daemon, "FileTooLarge", &words).await;
    huge(&daemon, "control/machineconfigs/rendered-worker-b.yaml");
    daemon.put("target.yaml", "config: rendered-worker-b\n");
    until_reported(&mut daemon, "FileTooLarge", &["rendered-worker-b.yaml", "314572800 bytes", "8388608"])
        .await;
    huge(&daemon, "control/policy.yaml");
    daemon.put("machineconfigs/rendered-worker-b.yaml", &motd("rendered-worker-b", "b"));
    until_reported(&mut daemon, "FileTooLarge", &["policy.yaml", "314572800 bytes", "4194304"]).await;
    assert!(peak(&daemon) < before + 50_000, "{} kB, before {before} kB", peak(&daemon));
    daemon.put("policy.yaml", QUIET);
    daemon.until_done("rendered-worker-b").await;
    let long = "x".repeat(60_000);
    daemon.put("target.yaml", &format!("config: {long}\n"));
    until_reported(&mut daemon, "InvalidName", &["target.yaml", "xxx"]).await;
    daemon.put("target.yaml", &format!("{}: 1\n", &long[..30_000]));
    until_reported(&mut daemon, "InvalidDocument", &["target.yaml"]).await;
    assert!(daemon.report().unwrap()["reason"].as_str().unwrap().len() < 2000, "{:?}", daemon.report());
    std::fs::remove_file(daemon.node.path("control/target.yaml")).unwrap();
    let path = daemon.node.path("control/target.yaml");
    rustix::fs::mknodat(rustix::fs::CWD, path, rustix::fs::FileType::Fifo, 0o644.into(), 0).unwrap();
    until_reported(&mut daemon, "UnexpectedKind", &["target.yaml", "a pipe"]).await;
}

#[tokio::test(flavor = "current_thread")]
async fn drift_is_reported_and_its_end_too() {
    let mut daemon = Daemon::start(Node::new());
    daemon.put("policy.yaml", QUIET);
    daemon.put("machineconfigs/rendered-worker-a.json", &motd("rendered-worker-a", "a"));
    daemon.put("target.yaml", "config: rendered-worker-a\n");
    daemon.until_done("rendered-worker-a").await;
    // In one go: a file that is seen while it is empty has another diff.
    daemon.node.put("new-motd", "by hand");
    std::fs::rename(daemon.node.path("new-motd"), daemon.node.path("root/etc/motd")).unwrap();
    daemon.until_fault("ConfigDrift", &["content mismatch for file \"/etc/motd\"", "Next: See"]).await;
    daemon.node.put("root/etc/motd", "a");
    daemon.until_done("rendered-worker-a").await;
    let log = daemon.log();
    assert!(log.contains("warning: Drift: content mismatch for file \"/etc/motd\""), "{log}");
    assert!(log.contains("\n    -a\n") && log.contains("\n    +by hand\n"), "{log}");
    // Log lines that MCD's e2e tests wait for (MCD-185).
    let [started, over] = ["Config Drift Monitor started", "Config Drift Monitor has shut down"];
    assert!(log.contains(started) && !log.contains(over), "{log}");
    assert!(!log.contains("INFO"), "lines for people begin with their message: {log}");
}

fn run_status(node: &Node, more: &[&str]) -> test_host::Ran {
    node.run(&[&["status", "--root", "root", "--os-backend", "none"], more].concat())
}

/// `status` quotes the running agent's report, under its name and with its times; and reports that it died.
#[tokio::test(flavor = "current_thread")]
async fn status_follows_agent_and_reports_its_death() {
    let mut daemon = Daemon::start(Node::new());
    daemon.put("policy.yaml", QUIET);
    daemon.put("machineconfigs/rendered-worker-a.yaml", &motd("rendered-worker-a", "a"));
    daemon.put("target.yaml", "config: rendered-worker-a\n");
    daemon.until_done("rendered-worker-a").await;
    let of_daemon = status(&daemon);
    let report = daemon.report().unwrap();
    assert_eq!(of_daemon["node"], "worker-0", "--node-name");
    assert_eq!((&of_daemon["state"], &of_daemon["since"]), (&json!("Done"), &report["since"]));
    assert_eq!(of_daemon["agent"]["running"], true);
    assert_eq!(of_daemon["agent"]["pid"], daemon.child.id());
    assert_eq!(of_daemon["follows"]["directory"], daemon.node.text("control"));
    assert_eq!(run_status(&daemon.node, &["--exit-code"]).code, 0);
    // A plan without flags uses the sources that the agent follows.
    let plan = daemon.node.run(&["plan", "--root", "root", "--os-backend", "none"]);
    assert!(plan.code == 0 && plan.out.contains("Mode   nothing"), "{}{}", plan.out, plan.err);

    // The fault is quoted from the agent, with the time at which it began.
    daemon.put("target.yaml", "config: rendered-worker-b\n");
    daemon.until_fault("ConfigNotFound", &[]).await;
    let (of_daemon, report) = (status(&daemon), daemon.report().unwrap());
    assert_eq!((&of_daemon["fault"], &of_daemon["since"]), (&report["fault"], &report["since"]));
    assert_eq!(run_status(&daemon.node, &["--exit-code"]).code, 4);
    daemon.put("target.yaml", "config: rendered-worker-a\n");
    daemon.until_done("rendered-worker-a").await;

    // It dies. Its next action is not known any more, but the directory has the target.
    daemon.child.kill().unwrap();
    daemon.child.wait().unwrap();
    let dead = status(&daemon);
    assert_eq!((&dead["state"], &dead["agent"]["running"]), (&json!("Degraded"), &json!(false)));
    assert_eq!(dead["fault"]["reason"], "AgentNotRunning");
    assert_eq!(
        (&dead["node"], &dead["desired"]["config"]),
        (&json!("worker-0"), &json!("rendered-worker-a"))
    );
    daemon.put("target.yaml", "config: rendered-worker-b\n");
    assert_eq!(status(&daemon)["desired"]["config"], "rendered-worker-b");
    let ran = run_status(&daemon.node, &["--exit-code"]);
    assert_eq!(ran.code, 4);
    let line =
        format!("  agent    not running (its process died); it follows {}", daemon.node.text("control"));
    assert!(ran.out.lines().any(|one| one == line), "{}", ran.out);
    assert!(
        ran.out.contains("  next     See `systemctl status machine-config-agent.service`"),
        "{}",
        ran.out
    );
    // A target that is not valid is told without it, too.
    daemon.put("target.yaml", "config: [\n");
    let both = status(&daemon);
    let message = both["duty"]["message"].as_str().unwrap_or_default().to_owned();
    assert!(message.contains("target.yaml is not valid"), "{message}");
    assert_eq!(both["fault"]["reason"], "AgentNotRunning", "it hides that no agent runs");
    let text = run_status(&daemon.node, &[]).out;
    assert_eq!(text.lines().filter(|line| line.starts_with("  why ")).count(), 2, "{text}");
}

/// A stopped agent is no fault; nor is an absent one where configs are applied manually.
#[tokio::test(flavor = "current_thread")]
async fn stopped_agent_is_no_fault() {
    let mut daemon = Daemon::start(Node::new());
    daemon.put("policy.yaml", QUIET);
    daemon.put("machineconfigs/rendered-worker-a.yaml", &motd("rendered-worker-a", "a"));
    daemon.put("target.yaml", "config: rendered-worker-a\n");
    daemon.until_done("rendered-worker-a").await;
    daemon.signal(rustix::process::Signal::TERM);
    assert!(daemon.end(std::time::Duration::from_secs(60)).success());
    let stopped = status(&daemon);
    assert_eq!((&stopped["state"], &stopped["fault"]), (&json!("Done"), &Value::Null));
    assert_eq!((&stopped["agent"]["running"], &stopped["node"]), (&json!(false), &json!("worker-0")));
    // No agent follows the new target, and no output shows it as reached.
    daemon.put("target.yaml", "config: rendered-worker-b\n");
    let behind = status(&daemon);
    assert_eq!(
        (&behind["state"], &behind["desired"]["config"]),
        (&json!("Working"), &json!("rendered-worker-b"))
    );
    assert_eq!(run_status(&daemon.node, &["--exit-code"]).code, 1);
}

/// A user who may not read the agent's state gets its last report, with the missing parts named.
#[tokio::test(flavor = "current_thread")]
async fn status_without_root_names_unreadable_state() {
    use std::os::unix::process::CommandExt as _;
    if !rustix::process::geteuid().is_root() {
        ran::not_run("status_without_root_names_unreadable_state", "root");
        return;
    }
    let mut daemon = Daemon::start(Node::new());
    daemon.put("policy.yaml", QUIET);
    daemon.put("machineconfigs/rendered-worker-a.yaml", &motd("rendered-worker-a", "a"));
    daemon.put("target.yaml", "config: rendered-worker-a\n");
    daemon.until_done("rendered-worker-a").await;
    daemon.node.mode(".", 0o755);
    let words = ["status", "--root", "root", "--os-backend", "none"];
    let anyone = |node: &Node| {
        // The checkout may be in a directory of root's own, so the binary comes as a descriptor would: by a copy.
        let copy = node.path("agent");
        std::fs::copy(test_host::BINARY, &copy).unwrap();
        let mut command = std::process::Command::new(copy);
        let output = command.args(words).current_dir(node.dir.path()).uid(65534).gid(65534).output().unwrap();
        (
            output.status.code(),
            String::from_utf8(output.stdout).unwrap(),
            String::from_utf8(output.stderr).unwrap(),
        )
    };
    let (code, out, err) = anyone(&daemon.node);
    assert_eq!(code, Some(0), "{err}");
    assert!(out.starts_with("Node worker-0 is Done, since "), "{out}");
    assert!(
        out.contains("  unread   ") && out.contains("record.json") && out.contains("run it as root"),
        "{out}"
    );
    // No state is left for it: it reports that, and not that the node is unmanaged.
    std::fs::remove_file(daemon.node.path("root/run/machine-config-agent/report.json")).unwrap();
    let (code, out, err) = anyone(&daemon.node);
    assert_eq!((code, out.as_str()), (Some(4), ""), "{err}");
    assert!(err.contains("Next: Run it as root"), "{err}");
}

/// An update whose process died in the commit is not at work: it is not continued, and the status names the command that does.
#[test]
fn status_beside_killed_commit_names_open_update() {
    let node = Node::new();
    node.put("a.yaml", motd("rendered-worker-a", "a"));
    node.put("policy.yaml", QUIET);
    let to = ["apply", "--to", "a.yaml", "--policy", "policy.yaml", "--yes"];
    let words = [&to[..], &["--root", "root", "--os-backend", "none"]].concat();
    let killed = node.command(&words).env("MCA_FAIL_POINT", "kill:originals-kept").output().unwrap();
    assert_eq!(killed.status.code(), None, "{}", String::from_utf8_lossy(&killed.stderr));
    let ran = run_status(&node, &["--output", "json"]);
    let status: Value = serde_json::from_str(&ran.out).unwrap();
    let message = status["fault"]["message"].as_str().unwrap_or_default();
    assert_eq!((&status["state"], &status["phase"]), (&json!("Degraded"), &json!("Verifying")), "{status}");
    assert!(message.starts_with("no process continues update "), "{status}");
    assert_eq!(run_status(&node, &["--exit-code"]).code, 4);
    // The same command goes on.
    let ran = node.run(&words);
    assert_eq!(ran.code, 0, "{}{}", ran.out, ran.err);
    assert_eq!(run_status(&node, &["--exit-code"]).code, 0);
}

/// BOOT-012: what a bootstrap has rendered is followed without an API: the pool names the config, the journal tells, and nothing
/// is written beside what the machine-config-server serves.
#[tokio::test(flavor = "current_thread")]
async fn bootstrap_rendering_is_followed_by_pool() {
    let mut daemon = Daemon::start_with(Node::new(), &["--reboot-by", "supervisor", "--pool", "master"], &[]);
    let pool = |name: &str| {
        format!(
            "apiVersion: machineconfiguration.openshift.io/v1\nkind: MachineConfigPool\nmetadata: {{name: master}}\n\
             spec: {{paused: false, configuration: {{name: {name}, source: []}}}}\n"
        )
    };
    daemon.until_logged(&["Waiting for ", "/machine-pools/master.yaml, which does not exist"]).await;
    let seen = status(&daemon);
    assert!(
        seen["waiting"].as_str().unwrap().ends_with("/machine-pools/master.yaml, which does not exist"),
        "{seen}"
    );
    daemon.put("policy.yaml", QUIET);
    for name in ["rendered-master-a", "rendered-master-b"] {
        daemon.put(&format!("machine-configs/{name}.yaml"), &motd(name, name));
        daemon.put("machine-pools/master.yaml", &pool(name));
        daemon.until_logged(&[name, "is done"]).await;
        assert_eq!(std::fs::read_to_string(daemon.node.path("root/etc/motd")).unwrap(), name);
    }
    assert!(daemon.report().is_none());
    daemon.put("machine-pools/master.yaml", "kind: MachineConfigPool\n");
    daemon.until_logged(&["machine-pools/master.yaml", "spec.configuration.name is missing"]).await;

    // `status` and `plan` find what it follows, also when it is gone.
    daemon.put("machine-configs/rendered-master-c.yaml", &motd("rendered-master-c", "c"));
    daemon.signal(rustix::process::Signal::KILL);
    daemon.end(Duration::from_secs(60));
    daemon.put("machine-pools/master.yaml", &pool("rendered-master-c"));
    let seen = status(&daemon);
    assert_eq!(seen["desired"]["config"], "rendered-master-c", "{seen}");
    assert_eq!(seen["follows"]["rendered"]["pool"], "master", "{seen}");
    let control = daemon.node.path("control").display().to_string();
    let named = ["--directory", &control, "--pool", "master"];
    for more in [&[][..], &named] {
        let words = [&["plan", "--output", "json", "--root", "root", "--os-backend", "none"], more].concat();
        let ran = daemon.node.run(&words);
        assert_eq!(ran.code, 0, "{}{}", ran.out, ran.err);
        let plan: Value = serde_json::from_str(&ran.out).unwrap();
        assert_eq!(
            (&plan["to"]["config"], plan["steps"].as_array().unwrap().len()),
            (&json!("rendered-master-c"), 1)
        );
    }
    std::fs::remove_file(daemon.node.path("control/machine-pools/master.yaml")).unwrap();
    let ran = daemon.node.run(&["plan", "--root", "root", "--os-backend", "none"]);
    assert_eq!(ran.code, 2, "{}{}", ran.out, ran.err);
    assert!(ran.err.contains("the directory has no machine-pools/master.yaml; "), "{}", ran.err);
}

/// In a user namespace without inotify, until the file `raise` is there.
const NO_INOTIFY: &str = "limit=/proc/sys/user/max_inotify_instances; echo 0 > $limit; \
    (for i in $(seq 1200); do test -e raise && break; sleep 0.1; done; echo 100 > $limit) & exec \"$@\"";

/// inotify's limits at the start: reported, and the directory is read from time to time, until they are raised.
#[tokio::test(flavor = "current_thread")]
async fn start_without_watches_is_reported_and_mended() {
    let is_possible = std::process::Command::new("unshare").args(["-Ur", "true"]).status();
    if !is_possible.is_ok_and(|status| status.success()) {
        ran::not_run("start_without_watches_is_reported_and_mended", "user namespaces");
        return;
    }
    let node = Node::new();
    let by = |agent: std::process::Command| {
        let mut command = std::process::Command::new("unshare");
        command.args(["-Ur", "sh", "-c", NO_INOTIFY, "sh"]).arg(agent.get_program()).args(agent.get_args());
        command.current_dir(agent.get_current_dir().unwrap()).env_clear().env("PATH", "/usr/sbin:/usr/bin");
        command.stdin(std::process::Stdio::null());
        command
    };
    node.put("control/policy.yaml", QUIET);
    node.put("control/machineconfigs/rendered-worker-a.yaml", motd("rendered-worker-a", "a"));
    node.put("control/target.yaml", "config: rendered-worker-a\n");
    let mut daemon = Daemon::start_by(node, &["--reboot-by", "supervisor"], &[], by);
    let unwatched = |report: &Value| {
        report["reason"].as_str().unwrap().starts_with("TooManyWatches: ")
            && ["max_user_watches", "sysctl"]
                .iter()
                .all(|word| report["fault"]["next"].as_str().unwrap().contains(word))
            && report["currentConfig"] == "rendered-worker-a"
    };
    daemon.until("the applied config, and that nothing is watched", unwatched).await;
    daemon.put("machineconfigs/rendered-worker-b.yaml", &motd("rendered-worker-b", "b"));
    daemon.put("target.yaml", "config: rendered-worker-b\n");
    daemon.put("stateroot.yaml", "stage: [");
    daemon.node.put("raise", "");
    daemon.until_done("rendered-worker-b").await;
    let began = std::time::Instant::now();
    daemon.put("machineconfigs/rendered-worker-c.yaml", &motd("rendered-worker-c", "c"));
    daemon.put("target.yaml", "config: rendered-worker-c\n");
    daemon.until_done("rendered-worker-c").await;
    assert!(began.elapsed() < Duration::from_secs(30), "it is watched: {:?}", began.elapsed());
    daemon.until_logged(&["InvalidDocument", "stateroot.yaml"]).await;
}
