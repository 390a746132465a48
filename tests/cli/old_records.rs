//! Records outlive the agent that wrote them: one of version 1 is read and its update ends; one of a newer version, and
//! one that can't be read, is refused with exit code 5, and nothing is touched.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const RECORD: &str = include_str!("../fixtures/records/v1.json");
/// As an agent wrote it before the reasons of faults were renamed.
const RENAMED_REASON: &str = include_str!("../fixtures/records/v1.renamed-reason.json");
const CONFIG: &str = include_str!("../fixtures/records/v1.config.json");

/// A host in the boot after the one in which the record's update asked for its reboot.
fn host(record: &str) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let target =
        format!(r#"{{"schemaVersion":1,"image":null,"at":1795213461751616,"machineConfig":{CONFIG}}}"#);
    let files = [
        ("etc/passwd", "root:x:0:0::/root:/bin/sh\n"),
        ("etc/group", "root:x:0:\n"),
        ("etc/costly", "1"),
        ("etc/motd", "b"),
        ("proc/cmdline", "rw\n"),
        ("proc/sys/kernel/random/boot_id", "00000000-0000-4000-8000-000000000002\n"),
        ("var/lib/machine-config-agent/record.json", record),
        ("var/lib/machine-config-agent/target.json", &target),
        ("config.json", CONFIG),
    ];
    for (path, text) in files {
        let at = dir.path().join(path);
        fs::create_dir_all(at.parent().unwrap()).unwrap();
        fs::write(&at, text).unwrap();
    }
    let mode = |path: &str, bits| {
        use std::os::unix::fs::PermissionsExt as _;
        fs::set_permissions(dir.path().join(path), fs::Permissions::from_mode(bits)).unwrap();
    };
    mode("etc/costly", 0o600);
    mode("etc/motd", 0o644);
    dir
}

fn apply(root: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_machine-config-agent"))
        .args(["apply", "--yes", "--reboot-by", "supervisor", "--root"])
        .arg(root)
        .arg("--to")
        .arg(root.join("config.json"))
        .output()
        .unwrap()
}

/// Every file but the lock.
fn files(at: &Path, found: &mut BTreeMap<PathBuf, Vec<u8>>) {
    for entry in fs::read_dir(at).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(&path, found);
        } else if !path.ends_with("lock") {
            let bytes = fs::read(&path).unwrap();
            found.insert(path, bytes);
        }
    }
}

#[test]
fn record_of_version_1_is_read_and_its_update_ends() {
    let host = host(RECORD);
    let output = apply(host.path());
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let state = host.path().join("var/lib/machine-config-agent");
    assert!(!state.join("record.json").exists());
    let entry = fs::read_to_string(state.join("history/entry-0000000001.json")).unwrap();
    assert!(entry.contains(r#""id":"20261120-222421-752417""#), "{entry}");
    assert!(entry.contains(r#""outcome":"committed""#), "{entry}");
}

#[test]
fn fault_of_old_record_has_its_renamed_reason() {
    let host = host(RENAMED_REASON);
    let output = Command::new(env!("CARGO_BIN_EXE_machine-config-agent"))
        .args(["status", "--output", "json", "--root"])
        .arg(host.path())
        .output()
        .unwrap();
    let status: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(status["fault"]["reason"], "VerificationFailed", "{status:#}");
    assert_eq!(status["fault"]["message"], "file /etc/motd differs", "{status:#}");
}

/// A node that is held as it came up is compared with the config of the update, not with the one before.
#[test]
fn verify_compares_with_target_of_open_update() {
    let host = host(RENAMED_REASON);
    let verify = |root: &Path| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_machine-config-agent"));
        command.args(["verify", "--config", "target", "--os-backend", "none", "--root"]).arg(root);
        command.output().unwrap()
    };
    let output = verify(host.path());
    assert!(String::from_utf8_lossy(&output.stdout).contains("the host matches "), "{output:?}");
    fs::write(host.path().join("etc/motd"), "of another program").unwrap();
    let output = verify(host.path());
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.code() == Some(1) && text.contains("file \"/etc/motd\""), "{output:?}");

    fs::remove_file(host.path().join("var/lib/machine-config-agent/record.json")).unwrap();
    let output = verify(host.path());
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("no update is open or held"), "{output:?}");
}

#[test]
fn newer_and_unreadable_records_are_refused_and_nothing_is_touched() {
    for record in [RECORD.replace("\"schema\":1", "\"schema\":3"), "{\"schema\":1,".to_owned(), String::new()]
    {
        let host = host(&record);
        let (mut before, mut after) = (BTreeMap::new(), BTreeMap::new());
        files(host.path(), &mut before);
        let output = apply(host.path());
        files(host.path(), &mut after);
        assert_eq!(output.status.code(), Some(5), "{output:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains("nothing was touched"), "{output:?}");
        assert_eq!(before, after);
    }
}
