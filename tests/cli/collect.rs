//! `collect`: its content, the files that it never takes, and its report of the rest.

use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::{Value, json};

use crate::test_host::{Node, files, ignition};

/// Content of each planted secret.
const PLANTED: &str = "Hidden4Ever";

/// Registry credentials: base64 of `user:` and a planted password.
const AUTH: &str = "dXNlcjpIaWRkZW40RXZlci1hdXRo";

/// Runs it with programs of the test's own before those of the machine.
fn collect(node: &Node, more: &[&str]) -> Output {
    let mut command = node.command(&[&["collect", "--os-backend", "none"], more].concat());
    let path = format!("{}:/usr/sbin:/usr/bin", node.text("bin"));
    command.env("PATH", path).output().unwrap()
}

/// Plays a `journalctl`.
fn journalctl(node: &Node, script: &str) {
    node.put("bin/journalctl", format!("#!/bin/sh\n{script}\n"));
    node.mode("bin/journalctl", 0o755);
}

/// Unpacks a bundle; returns where its parts are.
fn unpacked(bundle: &Path) -> std::path::PathBuf {
    let to = bundle.with_extension("d");
    std::fs::create_dir(&to).unwrap();
    assert!(Command::new("tar").arg("xzf").arg(bundle).arg("-C").arg(&to).status().unwrap().success());
    let mut entries = std::fs::read_dir(to).unwrap();
    let directory = entries.next().unwrap().unwrap().path();
    assert!(entries.next().is_none(), "everything is below one directory");
    directory
}

fn part(parts: &Path, name: &str) -> Value {
    let text = std::fs::read_to_string(parts.join(name)).unwrap();
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{name}: {error}: {text}"))
}

fn unread(parts: &Path) -> Vec<String> {
    let list = part(parts, "collect.json");
    list["unread"].as_array().unwrap().iter().map(|one| one["part"].as_str().unwrap().to_owned()).collect()
}

/// Plants a secret wherever a host can have one.
fn plant(node: &Node) {
    let unit = format!(
        "[Service]\nEnvironment=HTTPS_PROXY=http://u:{PLANTED}-proxy@proxy.test:3128 API_TOKEN={PLANTED}-env\n"
    );
    let mut spec = ignition(json!({
        "storage": {"files": [
            {"path": "/etc/app/key.conf", "mode": 384, "contents": {"source": format!("data:,key%20{PLANTED}-file%0Aphrase%20{PLANTED}-more")}},
            {"path": "/etc/app/open.conf", "mode": 420, "contents": {"source": format!("data:,password={PLANTED}-open")}},
            {"path": "/etc/motd", "mode": 420, "contents": {"source": "data:,a"}}]},
        "systemd": {"units": [{"name": "crio.service", "contents": unit}]},
        "passwd": {"users": [{"name": "core", "passwordHash": format!("$6$salt${PLANTED}-hash"),
            "sshAuthorizedKeys": ["ssh-ed25519 AAAA"]}]},
    }));
    spec["kernelArguments"] = json!([]);
    node.commit("rendered-worker-a.json", &spec);
    let auths = json!({"auths": {"registry.test": {"auth": AUTH, "password": format!("{PLANTED}-pull")}}})
        .to_string();
    for path in [
        "var/lib/kubelet/config.json",
        "etc/mco/internal-registry-pull-secret.json",
        "run/ostree/auth.json",
        "etc/ostree/auth.json",
        "root/.docker/config.json",
    ] {
        node.put(&format!("root/{path}"), &auths);
    }
    let kubeconfig = format!(
        "users:\n- name: u\n  user:\n    token: {PLANTED}-token\n    client-key-data: {PLANTED}-key-data\n"
    );
    node.put("root/var/lib/kubelet/kubeconfig", &kubeconfig);
    node.put("root/etc/kubernetes/kubeconfig", &kubeconfig);
    let key = format!("-----BEGIN EC PRIVATE KEY-----\n{PLANTED}-pem\n-----END EC PRIVATE KEY-----\n");
    node.put("root/var/lib/kubelet/pki/kubelet-client-current.pem", &key);
    node.put("root/etc/mco/proxy.env", format!("HTTP_PROXY=http://u:{PLANTED}-proxy@proxy.test:3128\n"));
    node.put(
        "root/etc/machine-config-agent/settings.toml",
        format!("# the old one was {PLANTED}-comment\nrepair = [\"/etc/motd\"]\n"),
    );
    node.put(
        "root/etc/machine-config-agent/health.d/10-check",
        format!("#!/bin/sh\ncurl -H 'Authorization: Bearer {PLANTED}-check'\n"),
    );
    node.put("root/proc/cmdline", format!("quiet rd.app.password={PLANTED}-karg\n"));
    // Drifted files have contents of their own; an open update keeps the originals.
    node.put("root/etc/app/open.conf", format!("password={PLANTED}-drift\n"));
    node.put(
        "root/var/lib/machine-config-agent/preimages/u-0.json",
        format!("{{\"x\":\"{PLANTED}-original\"}}"),
    );
    node.put(
        "root/var/lib/machine-config-agent/cache/1_rendered-worker-b.json",
        format!("{{\"x\":\"{PLANTED}-cache\"}}"),
    );
    plant_in_messages(node);
}

/// Plants secrets in what other programs said: a fault in the history, lines of the journal.
fn plant_in_messages(node: &Node) {
    let said = format!(
        "pull of https://u:{PLANTED}-url@registry.test/x failed with {AUTH}, key {PLANTED}-file, Bearer {PLANTED}-bearer"
    );
    let fault = json!({"class": "degraded", "reason": "PullFailed", "message": said, "next": "Wait."});
    let entry = json!({"id": "20260101-000000-000001", "from": null, "to": {"config": "rendered-worker-b", "image": null},
        "started": "2026-01-01T00:00:00Z", "ended": "2026-01-01T00:00:01Z", "outcome": "rolled-back", "steps": 1, "reboots": 0,
        "drained": false, "durations": {}, "fault": fault});
    node.put("root/var/lib/machine-config-agent/history/entry-0000000099.json", entry.to_string());
    let line = |message: &str| {
        json!({"MESSAGE": message, "MESSAGE_ID": "x", "PRIORITY": "4", "MCA_TARGET": "/etc/motd", "_CMDLINE": format!("x --token={PLANTED}-argv"),
            "__REALTIME_TIMESTAMP": "1767225600000000"})
    };
    let lines = [
        line(&format!("Drift: file /etc/app/open.conf differs\n-a\n+{PLANTED}-diff")),
        line(&said),
        line(&format!("unit app failed: {{\"token\":\"{PLANTED}-json\"}} $6$salt${PLANTED}-hash")),
    ];
    node.put("lines", lines.map(|line| format!("{line}\n")).concat());
    let builds = "root/var/lib/machine-config-controller/build";
    node.put(&format!("{builds}/build.log.1"), "STEP 1/2: FROM registry.test/os:1 AS configs\n");
    node.put(
        &format!("{builds}/build.log"),
        format!(
            "STEP 2/2: RUN curl -H 'Authorization: Bearer {PLANTED}-build' x\nexit status 1, {PLANTED}-file\n"
        ),
    );
}

/// OBS-007: the bundle describes the host, and nothing in it is a secret of the host.
#[test]
fn bundle_holds_state_and_no_secret() {
    let node = Node::new();
    plant(&node);
    journalctl(&node, &format!("cat {}", node.text("lines")));
    let before = node.listing("root");
    let output = collect(&node, &["--root", "root", "--file", "case.tar.gz"]);
    let err = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(0), &b"case.tar.gz\n"[..]), "{err}");
    assert_eq!(node.listing("root"), before, "it only reads");
    let bundle = node.path("case.tar.gz");
    assert_eq!(std::fs::metadata(&bundle).unwrap().permissions().mode() & 0o777, 0o600);
    let parts = unpacked(&bundle);
    assert_eq!(part(&parts, "status.json")["current"]["config"], "rendered-worker-a");
    assert_eq!(part(&parts, "history.json")["updates"].as_array().unwrap().len(), 2);
    let differences = part(&parts, "verify.json");
    let drifted = differences["differences"]
        .as_array()
        .unwrap()
        .iter()
        .any(|one| one["target"] == "/etc/app/open.conf");
    assert!(drifted, "{differences}");
    let journal = std::fs::read_to_string(parts.join("journal.jsonl")).unwrap();
    assert_eq!(journal.lines().count(), 3);
    assert!(
        journal.contains("Drift: file /etc/app/open.conf differs") && journal.contains("2026-01-01T00:00:00"),
        "{journal}"
    );
    assert!(part(&parts, "versions.json")["agent"].as_str().unwrap().starts_with(env!("CARGO_PKG_VERSION")));
    assert!(std::fs::read_to_string(parts.join("settings.txt")).unwrap().contains("/etc/motd"));
    let log = std::fs::read_to_string(parts.join("build.log")).unwrap();
    assert!(log.starts_with("STEP 1/2: FROM registry.test/os:1") && log.contains("exit status 1"), "{log}");
    // The host follows no control plane; nothing else is missing.
    assert_eq!(unread(&parts), ["plan.json"], "{err}");
    assert!(err.starts_with("warning: plan.json: "), "{err}");
    for entry in std::fs::read_dir(&parts).unwrap().map(Result::unwrap) {
        let text = String::from_utf8(std::fs::read(entry.path()).unwrap()).unwrap();
        for secret in [PLANTED, AUTH, "aWRkZW40RXZlc"] {
            let found = text.lines().find(|line| line.contains(secret));
            assert_eq!(found, None, "{secret} in {:?}", entry.file_name());
        }
    }
}

/// Damaged state and a journal that is not there are named; the other parts are taken all the same.
#[test]
fn damaged_part_is_named_and_others_are_taken() {
    let node = Node::new();
    node.commit("rendered-worker-a.json", &files(&[("/etc/motd", "a")]));
    node.put("root/var/lib/machine-config-agent/record.json", "rubbish");
    node.put("root/var/lib/machine-config-agent/history/entry-0000000007.json", "rubbish");
    journalctl(&node, "echo the journal is broken >&2; exit 1");
    let output = collect(&node, &["--root", "root", "--file", "case.tar.gz"]);
    let err = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(0), "{err}");
    let parts = unpacked(&node.path("case.tar.gz"));
    let unread = unread(&parts);
    for name in ["status", "record.json", "history.json", "journal.jsonl"] {
        assert!(unread.iter().any(|one| one == name), "{name}: {unread:?}");
    }
    assert!(err.contains("journal.jsonl: ") && err.contains("the journal is broken"), "{err}");
    assert_eq!(part(&parts, "history.json")["updates"].as_array().unwrap().len(), 1);
    assert!(std::fs::read_to_string(parts.join("state.txt")).unwrap().contains("record.json"));
    assert!(parts.join("deployments.json").exists() && parts.join("versions.json").exists());
    assert!(!parts.join("build.log").exists(), "nothing was built there");
}

/// A flood of lines makes no large bundle, and of what is too long the newest is taken.
#[test]
fn bundle_is_bounded() {
    let node = Node::new();
    // Each line has 100 kB.
    let line = r#"printf '{"MESSAGE":"%0100000d","PRIORITY":"6"}\n' 7"#;
    let count = "for word; do case $word in --lines=*) count=${word#--lines=};; esac; done";
    journalctl(&node, &format!("{count}\nwhile [ $count -gt 0 ]; do {line}; count=$((count-1)); done"));
    let output = collect(&node, &["--root", "root", "--file", "-"]);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.stdout.len() < 1 << 20, "{}", output.stdout.len());
    node.put("case.tar.gz", &output.stdout);
    let parts = unpacked(&node.path("case.tar.gz"));
    // Nothing is committed on this host: that is nothing that could not be read.
    assert_eq!(unread(&parts), ["plan.json", "journal.jsonl"]);
    assert_eq!(part(&parts, "verify.json"), Value::Null);
}

/// A user other than root gets the files that he may read, and an error for the rest.
#[test]
fn user_without_rights_gets_rest() {
    let node = Node::new();
    node.commit("rendered-worker-a.json", &files(&[("/etc/motd", "a")]));
    journalctl(&node, "exit 0");
    node.mode("", 0o755);
    let file = node.path("case.tar.gz");
    let mut command = node.command(&["collect", "--os-backend", "none", "--root", "root", "--file", "-"]);
    let path = format!("{}:/usr/sbin:/usr/bin", node.text("bin"));
    let output = command.env("PATH", path).uid(65534).gid(65534).output().unwrap();
    let err = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{err}");
    std::fs::write(&file, &output.stdout).unwrap();
    let parts = unpacked(&file);
    assert!(unread(&parts).iter().any(|one| one == "record.json"), "{err}");
    assert!(err.to_lowercase().contains("permission denied"), "{err}");
    assert!(parts.join("versions.json").exists());
}

/// A file that can't be written is named; nothing is left.
#[test]
fn unwritable_file_is_named() {
    let node = Node::new();
    journalctl(&node, "exit 0");
    let output = collect(&node, &["--root", "root", "--file", "none/case.tar.gz"]);
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(4) && err.contains("none") && err.contains("Next: "), "{err}");
}
