//! The texts on a terminal of 80 columns.

use serde_json::json;

use crate::ran::not_run;
use crate::test_host::{BINARY, Node, config, files};

/// Runs a verb on a terminal of 80 columns; returns what it writes there.
fn on_terminal(node: &Node, words: &str, variables: &[(&str, &str)]) -> Option<String> {
    let line = format!("stty cols 80 rows 24; exec {BINARY} {words}");
    let mut script = std::process::Command::new("script");
    script.args(["-qefc", &line, "/dev/null"]).current_dir(node.dir.path()).env_remove("NO_COLOR");
    let ran = script.env("TERM", "xterm").envs(variables.iter().copied()).output().ok()?;
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stdout));
    Some(String::from_utf8(ran.stdout).unwrap().replace('\r', ""))
}

/// No word is broken, no digest is long, and a drift is its path and what differs.
#[test]
fn status_fits_terminal_of_80_columns() {
    let node = Node::new();
    let path = "/etc/containers/registries.conf.d/99-a-rather-long-name-of-a-file.conf";
    node.commit("rendered-a.json", &files(&[(path, "a"), ("/etc/motd", "a")]));
    node.put(&format!("root{path}"), "other\n");
    let line = "status --root root --os-backend none";
    let Some(plain) = on_terminal(&node, line, &[("NO_COLOR", "1")]) else {
        return not_run("status_fits_terminal_of_80_columns", "script (util-linux)");
    };
    let piped = node.run(&line.split(' ').collect::<Vec<_>>()).out;
    let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(words(&plain), words(&piped), "a word is broken:\n{plain}");
    let own = |line: &&str| !line.trim_start().starts_with('/');
    let long: Vec<&str> = plain.lines().filter(own).filter(|line| line.chars().count() > 80).collect();
    assert!(long.is_empty(), "{long:#?}");
    assert!(piped.contains(&format!("  differs  file {path} has another content\n")), "{piped}");
    assert!(!piped.contains("sha256"), "{piped}");
    assert!(!plain.contains('\x1b'), "{plain}");
    let colored = on_terminal(&node, line, &[]).unwrap();
    assert!(
        colored.contains("\x1b[1;31mDegraded\x1b[0m") && colored.contains("\x1b[1mnext\x1b[0m"),
        "{colored}"
    );
    assert!(!piped.contains('\x1b'), "{piped}");
    let dumb = on_terminal(&node, line, &[("TERM", "dumb")]).unwrap();
    assert_eq!(dumb, plain);
}

/// An image is written once, with a short digest, and a phase says how long it lasts.
#[test]
fn status_writes_image_once_and_duration_of_phase() {
    let node = Node::new();
    node.commit("rendered-a.json", &files(&[("/etc/motd", "a")]));
    let current = "root/var/lib/machine-config-agent/current.json";
    let image = format!("\"image\":\"r.test/os@sha256:{}\"", "a".repeat(64));
    node.put(current, node.read(current).replacen("\"image\":null", &image, 1));
    let status = || node.run(&["status", "--root", "root", "--os-backend", "none"]).out;
    let said = status();
    assert!(said.contains("  current  rendered-a with r.test/os@sha256:aaaaaaaaaaaa\n"), "{said}");
    assert!(said.contains("  desired  rendered-a with the image of `current`\n"), "{said}");
    assert!(!said.contains(&"a".repeat(13)), "{said}");
    let node = Node::new();
    node.put("b.json", config("rendered-b", &files(&[("/usr/x", "b")])));
    let apply = ["apply", "--to", "b.json", "--root", "root", "--os-backend", "none", "--yes", "--no-reboot"];
    assert_eq!(node.run(&apply).code, 0);
    let said = node.run(&["status", "--root", "root", "--os-backend", "none"]).out;
    assert!(said.contains("  phase    Rebooting, for ") && said.contains(" s\n"), "{said}");
}

/// Each verb that only prints ends well when nobody reads it: the pipe is closed before it begins.
#[test]
fn verbs_that_print_survive_closed_pipe() {
    let node = Node::new();
    node.commit("rendered-a.json", &files(&[("/etc/motd", "a")]));
    node.put("b.json", config("rendered-b", &files(&[("/etc/motd", "b")])));
    let of_host = ["--root", "root", "--os-backend", "none"];
    let mut rows: Vec<Vec<&str>> = vec![
        vec!["--help"],
        vec!["status", "--help"],
        vec!["completions", "bash"],
        vec!["man"],
        vec!["history", "--root", "root"],
        vec!["history", "--root", "root", "--output", "json"],
    ];
    for words in [&["plan", "--to", "b.json"][..], &["verify"], &["status"]] {
        rows.push([words, &of_host].concat());
        rows.push([words, &["--output", "json"], &of_host].concat());
    }
    for words in rows {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let ran = node.command(&words).stdout(writer).stderr(std::process::Stdio::piped()).output().unwrap();
        let told = String::from_utf8_lossy(&ran.stderr);
        assert!(ran.status.success() && !told.contains("Broken pipe"), "{words:?}: {:?} {told}", ran.status);
    }
}

/// A pager or `head` that closes the pipe is no error, and a long history is more than a pipe holds.
#[test]
fn head_ends_history_and_status_quietly() {
    let node = Node::new();
    node.commit("rendered-a.json", &files(&[("/etc/motd", "a")]));
    node.put("b.json", config("rendered-b", &files(&[("/etc/motd", "b")])));
    let entry = json!({"id": "1", "from": null, "to": {"config": "rendered-a", "image": null}, "started": "a", "ended": "b",
        "outcome": "faulted", "steps": 1, "reboots": 0, "drained": false, "durations": {},
        "fault": {"class": "degraded", "reason": "A", "message": "m".repeat(4000), "next": "n"}});
    for number in 0..60 {
        node.put(
            &format!("root/var/lib/machine-config-agent/history/entry-{number:010}.json"),
            entry.to_string(),
        );
    }
    for words in
        ["history", "history --output json", "status", "status --output json", "verify --config b.json"]
    {
        let line = format!("set -o pipefail; {BINARY} {words} --root root | head -n 1");
        let ran = std::process::Command::new("bash")
            .args(["-c", &line])
            .current_dir(node.dir.path())
            .output()
            .unwrap();
        let told = String::from_utf8_lossy(&ran.stderr);
        let expected = if words.starts_with("verify") { [Some(0), Some(1)] } else { [Some(0); 2] };
        assert!(expected.contains(&ran.status.code()) && told.is_empty(), "{words}: {:?} {told}", ran.status);
    }
}
