//! Texts of verbs: each names the object, its cause and the next step, and each of them once.

use serde_json::json;

use crate::test_host::{Node, apply, config, files, ignition};

/// Counts a text in what a verb writes.
fn count(text: &str, part: &str) -> usize {
    text.matches(part).count()
}

#[test]
fn refused_apply_names_cause_and_step_once() {
    let node = Node::new();
    node.put("root/etc/one.conf/x", "");
    node.put("root/etc/two.conf/x", "");
    let entries = json!([{"path": "/etc/one.conf"}, {"path": "/etc/two.conf"}]);
    node.put("b.json", config("rendered-b", &ignition(json!({"storage": {"files": entries}}))));
    let ran = node.apply("b.json");
    assert_eq!(ran.code, 3, "{}", ran.err);
    // One for each path.
    for part in ["a directory is there, which no config made", "move it away"] {
        assert_eq!(count(&ran.err, part), 2, "{part}: {}", ran.err);
    }
    assert_eq!(count(&ran.err, "the node can't reach its new config"), 1, "{}", ran.err);
    assert!(ran.err.contains("error: HostNotPrepared: the node can't"), "{}", ran.err);
    let next = "\nNext: For storage.files \"/etc/one.conf\": move it away, or choose another path. For storage.files";
    assert!(ran.err.contains(next), "{}", ran.err);
    // For a program likewise.
    let words =
        ["plan", "--to", "b.json", "--policy", "policy.json", "--root", "root", "--os-backend", "none"];
    let plan = node.run(&[&words[..], &["--output", "json"]].concat());
    let document: serde_json::Value = serde_json::from_str(&plan.out).unwrap();
    let refused = &document["refused"][0];
    assert_eq!(refused["message"], "a directory is there, which no config made", "{}", plan.out);
    let step = "For storage.files \"/etc/one.conf\": move it away, or choose another path.";
    assert_eq!(refused["next"], step, "{}", plan.out);
}

/// A control directory is named by its path, and its fault once.
#[test]
fn control_directory_of_others_is_told_once() {
    let node = Node::new();
    node.put("control/target.yaml", "config: rendered-b\n");
    node.mode("control", 0o777);
    let at = node.text("control");
    let words = ["plan", "--directory", "control", "--root", "root", "--os-backend", "none"];
    let ran = node.run(&words);
    let begin =
        format!("error: {at}/policy.yaml is not touched: its directory {at} can be written by others");
    assert!(ran.err.starts_with(&begin), "{}", ran.err);
    assert!(ran.err.contains("\nNext: Check what it holds, then: chmod go-w "), "{}", ran.err);
}

/// A directory that is none, or not there, is the fault of the flag, not of a MachineConfig.
#[test]
fn control_directory_that_is_none_is_named() {
    let node = Node::new();
    node.put("b.yaml", "");
    for (name, cause) in [("b.yaml", "it is not a directory"), ("nonesuch", "there is no such directory")] {
        let at = node.text(name);
        let on_root = ["--root", "root", "--os-backend", "none"];
        let told = format!("{name} can't be used as the control directory: {cause}");
        let next = "Name the directory that has target.yaml and machineconfigs/.";
        let verbs: [&[&str]; 2] = [&["plan"], &["daemon"]];
        for verb in verbs {
            let ran = node.run(&[verb, &["--directory", name], &on_root].concat());
            assert!(ran.err.contains(&told) && ran.err.contains(next), "{verb:?} {at}: {}", ran.err);
            assert!(!ran.err.contains("MachineConfig") && !ran.err.contains("entity"), "{}", ran.err);
        }
    }
}

/// Drift shows path and all that differs, with what is found below its own line.
#[test]
fn drift_shows_each_attribute_and_its_object() {
    let node = Node::new();
    node.commit("rendered-a.json", &files(&[("/etc/app.conf", "a"), ("/etc/other.conf", "o")]));
    node.put("root/etc/app.conf", "secret22");
    node.mode("root/etc/app.conf", 0o600);
    let on_root = ["--root", "root", "--os-backend", "none"];
    let status = node.run(&[&["status"][..], &on_root].concat());
    let told = "  differs  file /etc/app.conf has another content; mode 0600 in place of 0644\n    secret, not shown: 1 byte expected, 8 \
                bytes found\n";
    assert!(status.out.contains(told), "{}", status.out);
    assert!(status.out.trim_end().lines().last().unwrap().starts_with("  next "), "{}", status.out);
    let verify = node.run(&[&["verify"][..], &on_root].concat());
    assert!(verify.out.contains("); mode 0600 in place of 0644\n"), "{}", verify.out);
    let verify = node.run(&[&["verify", "--output", "json"][..], &on_root].concat());
    let document: serde_json::Value = serde_json::from_str(&verify.out).unwrap();
    assert_eq!(document["differences"][0]["also"], "mode 0600 in place of 0644", "{}", verify.out);
    // `apply` of what is committed names it once, and what to do.
    let ran = node.run(&apply("rendered-a.json"));
    assert_eq!(ran.code, 4, "{}", ran.err);
    assert_eq!(count(&ran.err, "content mismatch for file"), 1, "{}", ran.err);
    assert!(
        ran.err.contains("error: the host does not match rendered-a: 1 difference\nNext: "),
        "{}",
        ran.err
    );
    assert!(ran.err.contains("\n    secret, not shown: "), "{}", ran.err);
}

/// What an address has against it is said once, without names of Rust, with a step that fits.
#[test]
fn address_that_is_not_read_is_told_with_its_step() {
    let node = Node::new();
    let plain = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = plain.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for mut client in plain.incoming().flatten() {
            drop(std::io::Write::write_all(
                &mut client,
                b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n",
            ));
        }
    });
    let at = format!("https://127.0.0.1:{port}/c.yaml");
    let ran = node.apply(&at);
    let told = format!(
        "error: {at} can't be read: it does not answer with TLS: its port serves another protocol, such as plain HTTP\n\
         Next: Correct the port of the address, or the proxy before it.\n"
    );
    assert_eq!((ran.code, ran.err), (2, told));
    let ran = node.apply("https://nonesuch.invalid/c.yaml");
    assert_eq!(count(&ran.err, "lookup"), 1, "{}", ran.err);
    assert!(ran.err.contains("\nNext: Check the address, the server"), "{}", ran.err);
    // Its account and its query are secrets.
    let ran = node.plan(&format!("{}?token=s3cret", at.replace("://", "://me:pa55@")));
    let told = format!(
        "error: {at} can't be read: only `apply --to` takes an address\nNext: Download the document (curl --output FILE URL), then \
         name the file.\n"
    );
    assert_eq!((ran.code, ran.err), (2, told));
}

/// A file that is not the expected one, or none, has a step of its own.
#[test]
fn input_that_is_not_read_is_told_with_its_step() {
    let node = Node::new();
    node.put("c.json", config("rendered-c", &files(&[])));
    let _socket = std::os::unix::net::UnixListener::bind(node.path("socket")).unwrap();
    let digest = format!("sha256:{}", "0".repeat(64));
    let ran = node.run(&[&apply("c.json")[..], &["--digest", &digest]].concat());
    assert!(
        ran.err.contains("\nNext: Compare the file with its source, or pass its own digest"),
        "{}",
        ran.err
    );
    for (name, cause, next) in [
        ("none", "there is no such file", "Check path and permissions"),
        ("root", "it is a directory", "Name a file in it"),
        ("socket", "it is a socket or a device", "Name a file, a pipe"),
    ] {
        let told = format!("error: {name} can't be read: {cause}\nNext: {next}");
        let ran = node.apply(name);
        assert!(ran.err.starts_with(&told), "{}", ran.err);
    }
}

/// A reboot that `apply` left to a person is what the host waits for, also without a daemon.
#[test]
fn left_reboot_is_named_without_daemon() {
    let node = Node::new();
    node.put("b.json", config("rendered-b", &files(&[("/etc/app.conf", "b")])));
    let on_root = ["--root", "root", "--os-backend", "none"];
    let ran = node.run(&[&["apply", "--to", "b.json", "--no-reboot", "--yes"][..], &on_root].concat());
    assert_eq!(ran.code, 0, "{}", ran.err);
    let status = node.run(&[&["status"][..], &on_root].concat());
    let told = "  waits    for a manual reboot: `apply --no-reboot` left it to you (systemctl reboot)\n";
    assert!(status.out.contains(told), "{}", status.out);
    node.put("root/proc/sys/kernel/random/boot_id", "0f1e2d3c-4b5a-4978-8796-a5b4c3d2e1f1\n");
    let status = node.run(&[&["status"][..], &on_root].concat());
    assert!(!status.out.contains("manual reboot"), "{}", status.out);
}
