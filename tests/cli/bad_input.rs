//! Reactions to bad input, or a bad host: the exit code, an error that names object, cause and next step, and a host
//! that is unchanged.

use std::io::Write as _;

use crate::ran;
use crate::test_host::{self, Node, STATE, apply, config, files, ignition};
use base64::Engine as _;
use serde_json::{Value, json};

/// Checks a run against the code and the words; the host must be as it was.
fn refused(node: &Node, name: &str, words: &[&str], code: i32, told: &[&str]) {
    let before = node.listing(".");
    let ran = node.run(words);
    assert_eq!(ran.code, code, "{name}: {words:?}\n{}{}", ran.out, ran.err);
    for word in told {
        assert!(ran.err.contains(word), "{name}: {words:?} does not say {word:?}:\n{}", ran.err);
    }
    assert!(!ran.err.contains("panicked"), "{name}: {}", ran.err);
    assert_eq!(node.listing("."), before, "{name}: {words:?} touched something");
}

fn one_file(fields: Value) -> String {
    let mut file = json!({"path": "/etc/motd", "mode": 420, "contents": {"source": "data:,x"}});
    let Value::Object(fields) = fields else { panic!("fields are a mapping") };
    file.as_object_mut().unwrap().extend(fields);
    config("rendered-worker-b", &ignition(json!({"storage": {"files": [file]}})))
}

fn bomb() -> String {
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    gzip.write_all(&vec![0; 17 << 20]).unwrap();
    let text = base64::engine::general_purpose::STANDARD.encode(gzip.finish().unwrap());
    one_file(json!({"contents": {"compression": "gzip", "source": format!("data:;base64,{text}")}}))
}

fn version(version: &str) -> String {
    config("rendered-worker-b", &json!({"config": {"ignition": {"version": version}}}))
}

/// Exit code, name, document, and what has to be said.
type Refused = (i32, &'static str, String, &'static [&'static str]);

/// Documents that are refused whatever the host is like: with 3 what MCD calls unreconcilable.
fn documents() -> Vec<Refused> {
    let units = |units: Value| config("rendered-worker-b", &ignition(json!({"systemd": {"units": units}})));
    let two = json!([{"path": "/etc/a"}, {"path": "/etc/a"}]);
    vec![
        (
            4,
            "broken JSON",
            "{\"kind\": \"MachineConfig\"".to_owned(),
            &["bad.json", "line 1", "Next: Correct"],
        ),
        (4, "broken YAML", "kind: [MachineConfig\nx: 1\n".to_owned(), &["bad.json", "line", "Next: Correct"]),
        (4, "another kind", "kind: Pod\n".to_owned(), &["bad.json", "\"Pod\"", "MachineConfig"]),
        (4, "Ignition 2", version("2.2.0"), &["ignition.version", "\"2.2.0\"", "convert"]),
        (4, "Ignition 4", version("4.0.0"), &["ignition.version", "\"4.0.0\"", "3.0.0 to 3.6.0"]),
        (
            4,
            "compression",
            one_file(json!({"contents": {"compression": "zstd", "source": "data:,x"}})),
            &["/etc/motd", "zstd", "gzip"],
        ),
        (4, "gzip bomb", bomb(), &["/etc/motd", "16 MiB"]),
        (
            4,
            "remote source",
            one_file(json!({"contents": {"source": "https://example.com/x"}})),
            &["/etc/motd", "data URL", "put the contents"],
        ),
        (
            3,
            "dots",
            one_file(json!({"path": "/etc/../root/.ssh/x"})),
            &["/etc/../root/.ssh/x", "choose another path"],
        ),
        (3, "sticky", one_file(json!({"mode": 0o1777})), &["/etc/motd", "mode", "0777"]),
        (
            3,
            "listed twice",
            config("rendered-worker-b", &ignition(json!({"storage": {"files": two}}))),
            &["/etc/a", "twice", "keep one"],
        ),
        (
            4,
            "masked and enabled",
            units(json!([{"name": "a.service", "mask": true, "enabled": true}])),
            &["a.service", "masked and enabled", "drop one"],
        ),
        (
            4,
            "OS image by tag",
            config("rendered-worker-b", &json!({"osImageURL": "registry.test/os:latest"})),
            &["registry.test/os:latest", "NAME@sha256:"],
        ),
    ]
}

/// More of them, one file each.
fn files_refused() -> Vec<Refused> {
    vec![
        (
            4,
            "broken escape",
            one_file(json!({"contents": {"source": "data:,%zz"}})),
            &["/etc/motd", "data URL", "%25"],
        ),
        (
            3,
            "append",
            one_file(json!({"append": [{"source": "data:,x"}]})),
            &["/etc/motd", "append", "write the whole file"],
        ),
        (3, "setuid", one_file(json!({"mode": 0o4755})), &["/etc/motd", "mode", "0777"]),
    ]
}

/// FIL-004, MCD-121: contents that can't be decoded are refused before any change.
#[test]
fn bad_documents_are_named_and_nothing_is_touched() {
    let node = Node::new();
    for (code, name, text, told) in documents().into_iter().chain(files_refused()) {
        node.put("bad.json", text);
        let plan = ["plan", "--to", "bad.json", "--root", "root", "--os-backend", "none"];
        refused(&node, name, &plan, code, told);
        refused(&node, name, &apply("bad.json"), code, told);
    }
}

/// A fault of one class does not hide that of another: in both orders the document is invalid.
#[test]
fn exit_code_of_several_faults_is_highest() {
    let node = Node::new();
    let mode = json!({"path": "/etc/a", "mode": 9999, "contents": {"source": "data:,x"}});
    let bytes = json!({"path": "/etc/b", "contents": {"source": "data:;base64,@"}});
    for entries in [[&mode, &bytes], [&bytes, &mode]] {
        node.put("bad.json", config("rendered-worker-b", &ignition(json!({"storage": {"files": entries}}))));
        let host = ["--root", "root", "--os-backend", "none"];
        for words in [["plan", "--to", "bad.json"], ["verify", "--config", "bad.json"]] {
            refused(&node, "mixed", &[&words[..], &host].concat(), 4, &["/etc/a", "/etc/b"]);
        }
        refused(&node, "mixed", &apply("bad.json"), 4, &["/etc/a", "/etc/b"]);
    }
}

#[test]
fn invalid_command_line_ends_with_2() {
    let node = Node::new();
    node.put("good.json", config("rendered-worker-b", &files(&[("/etc/motd", "x")])));
    let to = |more: &[&'static str]| [&["plan", "--to", "good.json", "--root", "root"], more].concat();
    let rows: [(&str, Vec<&str>, &[&str]); 8] = [
        (
            "image by tag",
            to(&["--to-image", "registry.test/os:latest"]),
            &["registry.test/os:latest", "@sha256:"],
        ),
        ("unknown output", to(&["--output", "xml"]), &["xml", "text", "json"]),
        ("unknown flag", to(&["--frobnicate"]), &["--frobnicate", "--help"]),
        (
            "no file",
            vec!["plan", "--to", "none.json", "--root", "root"],
            &["none.json", "no such file", "Next: "],
        ),
        ("no directory", vec!["plan", "--root", "root"], &["--to desired", "--directory"]),
        ("no config yet", vec!["verify", "--root", "root"], &["nothing is committed", "--config"]),
        ("not confirmed", vec!["apply", "--to", "good.json", "--root", "root"], &["not confirmed", "--yes"]),
        ("no verb", vec!["frobnicate"], &["frobnicate", "--help"]),
    ];
    for (name, words, told) in rows {
        refused(&node, name, &words, 2, told);
    }
}

/// Who asks for JSON gets it for a refusal as well; the exit code stays.
#[test]
fn refusal_is_json_where_json_was_asked_for() {
    let node = Node::new();
    node.put("typo.json", one_file(json!({"mod": 420})));
    node.put("mode.json", one_file(json!({"mode": 644})));
    let rows = [
        ("typo.json", 4, "degraded", "InvalidDocument", json!("spec.config.storage.files[0].mod")),
        ("mode.json", 3, "unreconcilable", "FailedToReconcile", json!("storage.files \"/etc/motd\" mode")),
        ("none.json", 2, "usage", "InvalidArguments", Value::Null),
    ];
    for (file, code, class, reason, field) in rows {
        let ran = node.run(&["plan", "--from", file, "--to", file, "--output", "json"]);
        let document: Value = serde_json::from_str(&ran.out).unwrap();
        let refused = &document["refused"][0];
        assert_eq!(
            (ran.code, &refused["class"], &refused["reason"]),
            (code, &json!(class), &json!(reason)),
            "{document}"
        );
        assert_eq!(refused["field"], field, "{document}");
        let message = refused["message"].as_str().unwrap();
        assert!(message.contains(file) || message.contains("/etc/motd"), "{document}");
        assert!(refused["next"].is_string() && ran.err.contains("error: "), "{document}");
    }
    let allowed = node.run(&["plan", "--from", "typo.json", "--to", "typo.json", "--allow-unknown-fields"]);
    assert_eq!(allowed.code, 0, "{}", allowed.err);
}

/// So does a command line that makes no sense; another form, or a verb that prints no JSON, gets text alone.
#[test]
fn usage_error_is_json_where_json_was_asked_for() {
    let node = Node::new();
    node.put("good.json", config("rendered-worker-b", &files(&[("/etc/motd", "x")])));
    let tag = "registry.test/os:latest";
    let rows: [(&[&str], Value, &str); 9] = [
        (
            &["plan", "--form", "a", "--output", "json"],
            json!("--form"),
            "'--from'; `machine-config-agent plan --help`",
        ),
        (&["plan", "--output=json", "--to"], json!("--to"), "`machine-config-agent plan --help` prints"),
        (&["plna", "-o", "json"], json!("plna"), "'plan'; `machine-config-agent --help`"),
        (&["start", "-o", "json", "x"], Value::Null, ""),
        (&["history", "-ojson", "x"], json!("x"), "`machine-config-agent history --help`"),
        (
            &["stateroot", "prepare", "-o", "json"],
            json!("--version"),
            "`machine-config-agent stateroot prepare --help`",
        ),
        (&["plan", "--output", "xml"], Value::Null, ""),
        (&["apply", "--frobnicate", "--output", "json"], Value::Null, ""),
        (&["plan", "--to", "good.json", "--to-image", tag, "-o", "json"], json!("--to-image"), ""),
    ];
    for (words, field, next) in rows {
        let ran = node.run(words);
        assert_eq!(ran.code, 2, "{words:?}: {}", ran.err);
        assert!(ran.err.contains("error: "), "{words:?}: {}", ran.err);
        if field.is_null() {
            assert_eq!(ran.out, "", "{words:?}");
            continue;
        }
        let document: Value =
            serde_json::from_str(&ran.out).unwrap_or_else(|error| panic!("{words:?}: {error}"));
        let refused = &document["refused"][0];
        assert_eq!((&refused["class"], &refused["reason"]), (&json!("usage"), &json!("InvalidArguments")));
        assert_eq!(refused["field"], field, "{document}");
        let message = refused["message"].as_str().unwrap();
        assert!(!message.is_empty() && !message.contains('\n'), "{document}");
        assert!(refused["next"].as_str().unwrap_or_default().contains(next), "{document}");
    }
}

/// An image by tag is named with the field, the annotation or the argument that has it.
#[test]
fn refused_image_is_named_with_its_field() {
    let node = Node::new();
    let tag = "registry.test/os:latest";
    for (field, name) in [("osImageURL", "os.json"), ("baseOSExtensionsContainerImage", "extensions.json")] {
        let mut object: Value = serde_json::from_str(&config("rendered-worker-b", &files(&[]))).unwrap();
        object["spec"][field] = json!(tag);
        node.put(name, object.to_string());
        let ran = node.run(&["plan", "--from", name, "--to", name, "--output", "json"]);
        let document: Value = serde_json::from_str(&ran.out).unwrap();
        let refused = &document["refused"][0];
        assert_eq!((ran.code, &refused["reason"]), (4, &json!("InvalidImage")), "{document}");
        assert_eq!(refused["field"], format!("spec.{field}"), "{document}");
        let text = format!("spec.{field} in MachineConfig rendered-worker-b: image {tag:?} is refused");
        assert!(refused["message"].as_str().unwrap().contains(&text), "{document}");
    }
    node.put("good.json", config("rendered-worker-b", &files(&[("/etc/motd", "x")])));
    let ran = node.run(&["plan", "--from", "good.json", "--to", "good.json", "--to-image", tag]);
    assert!(ran.err.contains(&format!("--to-image: image {tag:?} is refused")), "{}", ran.err);
}

/// FIL-005: a change of the disks ends with the code of `Unreconcilable`, and the host is as before.
#[test]
fn unsuitable_host_is_unchanged() {
    let image = "registry.test/os@sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
    let node = Node::new();
    node.put("user.json", one_file(json!({"user": {"name": "nobody-here"}})));
    refused(
        &node,
        "owner",
        &apply("user.json"),
        3,
        &["/etc/motd", "nobody-here", "create it first", "Next: "],
    );
    node.put("image.json", config("rendered-worker-b", &files(&[("/etc/motd", "x")])));
    let words = [&apply("image.json")[..], &["--to-image", image]].concat();
    refused(&node, "no backend", &words, 3, &["registry.test/os", "does not boot images", "clear"]);
    let disks = ignition(json!({"storage": {"disks": [{"device": "/dev/vdb", "wipeTable": true}]}}));
    node.commit("rendered-worker-a.json", &files(&[("/etc/motd", "a")]));
    node.put("disks.json", config("rendered-worker-b", &disks));
    refused(&node, "disks", &apply("disks.json"), 3, &["storage.disks", "installed", "reinstall the node"]);
}

#[test]
fn redirected_path_is_not_followed() {
    let node = Node::new();
    node.put("outside/keep", "as it was");
    std::os::unix::fs::symlink(node.path("outside"), node.path("root/etc/evil")).unwrap();
    std::os::unix::fs::symlink("../../outside", node.path("root/etc/climbs")).unwrap();
    let outside = node.listing("outside");
    for name in ["evil", "climbs"] {
        node.put(
            "link.json",
            one_file(json!({"path": format!("/etc/{name}/keep")})).replace("worker-b", name),
        );
        let ran = node.apply("link.json");
        // A link is resolved below the root, as the host itself would.
        assert_eq!(ran.code, 0, "{}", ran.err);
        assert_eq!(node.listing("outside"), outside, "{}", ran.err);
    }
    assert_eq!(std::fs::read(node.path("root/outside/keep")).unwrap(), b"x");
    std::fs::create_dir(node.path("root/etc/open")).unwrap();
    node.mode("root/etc/open", 0o777);
    node.put("open.json", one_file(json!({"path": "/etc/open/motd"})).replace("worker-b", "worker-c"));
    let before = node.listing("root/etc");
    let ran = node.apply("open.json");
    assert_eq!(ran.code, 3, "{}", ran.err);
    for word in ["/etc/open/motd", "/etc/open", "uid 0, mode 0777", "if only its owner, chmod go-w /etc/open"]
    {
        assert!(ran.err.contains(word), "{word}: {}", ran.err);
    }
    assert_eq!(node.listing("root/etc"), before);
}

#[test]
fn unreadable_state_ends_with_5() {
    let rows: [(&str, &str, &[&str]); 4] = [
        (
            "record.json",
            "{\"schema\": 1, \"id\": ",
            &["record.json", "can't be read", "Next: Restore", "start over"],
        ),
        ("record.json", "{\"schema\": 99}", &["record.json", "99", "Next: Install the newer agent"]),
        ("current.json", "hunter2", &["current.json", "can't be read", "Next: Restore"]),
        (
            "current.json",
            "{\"schemaVersion\": 99, \"image\": null, \"at\": 0, \"machineConfig\": {}}",
            &["99"],
        ),
    ];
    for (file, text, told) in rows {
        let node = Node::new();
        node.put("good.json", config("rendered-worker-b", &files(&[("/etc/motd", "x")])));
        node.put(&format!("root/{STATE}/{file}"), text);
        refused(&node, file, &apply("good.json"), 5, told);
        refused(&node, file, &["status", "--root", "root", "--os-backend", "none"], 5, told);
    }
    let node = Node::new();
    node.put("good.json", config("rendered-worker-b", &files(&[("/usr/local/x", "x")])));
    let words = [&apply("good.json")[..11], &["--no-reboot", "--yes"]].concat();
    let ran = node.run(&words);
    assert!(ran.code == 0 && ran.out.contains("has to reboot"), "{}{}", ran.out, ran.err);
    let target = format!("root/{STATE}/target.json");
    let written = node.read(&target);
    for (damage, text) in [
        ("cut", &written[..written.len() / 2]),
        ("emptied", ""),
        ("no JSON", "hunter2"),
        ("no config", "{\"schemaVersion\": 1, \"image\": null, \"at\": 0, \"machineConfig\": {}}"),
    ] {
        node.put(&target, text);
        let told =
            ["/var/lib/machine-config-agent/target.json", "Next: ", "move record.json out of that directory"];
        refused(&node, damage, &words, 5, &told);
        let ran = node.run(&words);
        assert!(!ran.err.contains("hunter2") && ran.err.matches("target.json").count() <= 2, "{}", ran.err);
    }
    std::fs::remove_file(node.path(&target)).unwrap();
    let told = ["target.json", "rendered-worker-b", "Next: Restore"];
    refused(&node, "target.json", &words, 5, &told);
}

/// A file of many zeros takes no space, and would take all memory.
fn put_huge(node: &Node, path: &str) {
    node.put(path, "");
    std::fs::File::options().write(true).open(node.path(path)).unwrap().set_len(32 << 20).unwrap();
}

#[test]
fn huge_input_is_refused_unread() {
    let node = Node::new();
    node.put("good.json", config("rendered-worker-b", &files(&[("/etc/motd", "x")])));
    put_huge(&node, "huge.json");
    let told = ["huge.json", "more than 8388608 bytes", "Next: Name a file"];
    let words = apply("huge.json");
    refused(&node, "config", &words, 2, &told);
    let mut words = apply("good.json").to_vec();
    words[4] = "huge.json";
    refused(&node, "policy", &words, 2, &["huge.json", "more than 4194304 bytes"]);
    put_huge(&node, "root/etc/machine-config-agent/settings.toml");
    let told = ["settings.toml", "33554432 bytes", "262144", "ls -l"];
    refused(&node, "settings", &apply("good.json"), 2, &told);
}

#[test]
fn settings_writable_by_others_are_refused() {
    let node = Node::new();
    node.put("good.json", config("rendered-worker-b", &files(&[("/etc/motd", "x")])));
    node.put("root/etc/machine-config-agent/settings.toml", "");
    node.mode("root/etc/machine-config-agent/settings.toml", 0o664);
    let told = ["/etc/machine-config-agent/settings.toml", "mode 0664", "chmod go-w"];
    refused(&node, "file", &apply("good.json"), 2, &told);
    node.mode("root/etc/machine-config-agent/settings.toml", 0o644);
    node.mode("root/etc/machine-config-agent", 0o777);
    refused(
        &node,
        "directory",
        &apply("good.json"),
        2,
        &["/etc/machine-config-agent", "mode 0777", "chmod go-w"],
    );
    node.mode("root/etc/machine-config-agent", 0o755);
    assert_eq!(node.apply("good.json").code, 0);
}

/// The soft limit that systemd and container runtimes give is 1,024; a new directory takes some descriptors at once.
#[test]
fn batch_of_many_new_directories_fits_below_soft_limit_of_files() {
    let node = Node::new();
    let paths: Vec<String> = (0..600).map(|number| format!("/etc/many/{number}/file")).collect();
    let all: Vec<(&str, &str)> = paths.iter().map(|path| (path.as_str(), "x")).collect();
    node.put("good.json", config("rendered-worker-b", &files(&all)));
    let words = apply("good.json").map(str::to_owned).join(" ");
    let script = format!("ulimit -Sn 1024 && exec '{}' {words}", test_host::BINARY);
    let output = std::process::Command::new("sh").args(["-c", &script]).current_dir(node.dir.path()).output();
    let output = output.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(node.read("root/etc/many/599/file"), "x");
}

#[test]
fn two_agents_do_not_work_on_one_host() {
    let node = Node::new();
    node.put("good.json", config("rendered-worker-b", &files(&[("/etc/motd", "x")])));
    let lock = std::fs::File::open(node.path(&format!("root/{STATE}/lock"))).unwrap();
    lock.lock().unwrap();
    let told = ["another machine-config-agent", "lock", "Next: Wait until it exits"];
    refused(&node, "lock", &apply("good.json"), 4, &told);
    lock.unlock().unwrap();
    assert_eq!(node.apply("good.json").code, 0);
}

/// Runs an apply with a small or read-only file system on /etc/data, in a mount namespace that ends with it.
fn on_mount(options: &str, told: &[&str]) {
    let node = Node::new();
    std::fs::create_dir(node.path("root/etc/data")).unwrap();
    let big = "x".repeat(3 << 20);
    node.put(
        "big.json",
        config("rendered-worker-b", &files(&[("/etc/data/big", &big), ("/etc/motd", "new")])),
    );
    node.put("root/etc/motd", "old");
    // Directory times change when a file is staged and dropped again; names, inodes and contents do not.
    let script = format!(
        "set -e; mount -t tmpfs -o size=1m tmpfs root/etc/data; echo kept >root/etc/data/kept; {options}\n\
         look() {{ find root/etc -printf '%P %i %m\\n' | sort; find root/etc -type f -printf '%P %T@\\n' | sort; \
         find root/etc -type f -exec sha256sum {{}} + | sort; }}\n\
         look >before; set +e; '{}' {}; code=$?; look >after; cmp before after >&2 || exit 99; exit $code",
        test_host::BINARY,
        apply("big.json").join(" ")
    );
    let output = std::process::Command::new("unshare")
        .args(["-m", "sh", "-c", &script])
        .current_dir(node.dir.path())
        .output()
        .unwrap();
    let err = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{err}");
    for word in told {
        assert!(err.contains(word), "{word:?} is missing: {err}");
    }
}

#[test]
fn full_or_read_only_disk_is_named_and_host_is_as_before() {
    let allowed =
        std::process::Command::new("unshare").args(["-m", "mount", "-t", "tmpfs", "x", "/mnt"]).output();
    if !allowed.is_ok_and(|output| output.status.success()) {
        ran::not_run("full_or_read_only_disk_is_named_and_host_is_as_before", "to mount (CAP_SYS_ADMIN)");
        return;
    }
    on_mount("true", &["HostNotPrepared", "KiB free", "free space there (df -h /etc/data)"]);
    on_mount(
        "mount -o remount,ro root/etc/data",
        &["HostNotPrepared", "/etc/data", "Read-only", "find out why"],
    );
}

#[test]
fn secret_is_in_no_output() {
    let secrets =
        ["hunter2-in-a-file", "the-comment-of-a-key", "AAAAC3NzaC1lZDI1NTE5AAAAIkey", "$6$salt$hashed"];
    let spec = |word: &str| {
        ignition(json!({
            "storage": {"files": [{"path": "/etc/secret", "mode": 384,
                "contents": {"source": format!("data:,hunter2-in-a-file-{word}")}}]},
            "passwd": {"users": [{"name": "core", "passwordHash": format!("$6$salt$hashed{word}"),
                "sshAuthorizedKeys": [format!("ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIkey{word} the-comment-of-a-key")]}]},
        }))
    };
    let node = Node::new();
    let mut said = String::new();
    let mut run = |words: &[&str]| {
        let ran = node.run(words);
        said += &format!("{words:?} ended with {}\n{}{}", ran.code, ran.out, ran.err);
        ran.code
    };
    node.put("a.json", config("rendered-worker-a", &spec("1")));
    node.put("b.json", config("rendered-worker-b", &spec("2")));
    node.put("broken.json", config("rendered-worker-c", &spec("3")).replace("data:,", "data:;base64,"));
    node.put("cut.json", config("rendered-worker-c", &spec("3")).replace(']', ""));
    assert_eq!(run(&apply("a.json")), 0, "the secrets are applied");
    for file in ["b.json", "broken.json", "cut.json"] {
        let plan = ["plan", "--to", file, "--root", "root", "--os-backend", "none"];
        run(&plan);
        run(&[&plan[..], &["--output", "json"]].concat());
        run(&["verify", "--config", file, "--root", "root", "--os-backend", "none"]);
    }
    run(&apply("broken.json"));
    node.put("root/etc/secret", "hunter2-in-a-file-changed");
    for verb in ["verify", "status", "history"] {
        for output in ["text", "json"] {
            run(&[verb, "--root", "root", "--output", output]);
        }
    }
    run(&apply("b.json"));
    std::fs::write(node.path(&format!("root/{STATE}/record.json")), "hunter2-in-a-file").unwrap();
    run(&["status", "--root", "root"]);
    for secret in secrets {
        assert!(!said.contains(secret), "{secret} was told:\n{said}");
    }
    assert!(said.contains("/etc/secret") && said.contains("rendered-worker-b"), "{said}");
}
