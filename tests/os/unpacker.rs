//! The process that unpacks seeds, looked at from outside while it waits for an archive, and fed by hand.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::{Value, json};

use crate::archive_hostile::Hostile;
use crate::backend_env::WORKER;
use crate::seed_image::gzip;

/// Owners, modes, attributes and devices of files.
const KEPT: [u32; 7] = [0, 1, 3, 4, 27, 31, 33];

struct Unpacker {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Unpacker {
    /// Starts one for a directory, with a score of the agent.
    fn start(directory: &Path) -> Self {
        let start = format!("echo -900 2>/dev/null >/proc/self/oom_score_adj; exec {WORKER} unpack");
        let mut child = Command::new("sh")
            .args(["-c", &start])
            .env_clear()
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (input, output) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        let mut unpacker = Self { child, input, output };
        let request = json!({"directory": directory, "object": "a seed", "reserve": 0,
            "job": {"Etc": {"deletions": ["gone", "harm/passwd"]}}});
        unpacker.stream(request.to_string().as_bytes());
        unpacker
    }

    fn stream(&mut self, bytes: &[u8]) {
        self.input.write_all(&[1]).unwrap();
        for part in bytes.chunks(1000) {
            self.input.write_all(&u32::try_from(part.len()).unwrap().to_be_bytes()).unwrap();
            self.input.write_all(part).unwrap();
        }
        self.input.write_all(&[0; 4]).unwrap();
    }

    fn line(&mut self) -> Value {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"))
    }

    fn proc(&self, file: &str) -> String {
        fs::read_to_string(format!("/proc/{}/{file}", self.child.id())).unwrap()
    }

    fn field(&self, name: &str) -> String {
        let status = self.proc("status");
        let line = status.lines().find_map(|line| line.strip_prefix(&format!("{name}:")));
        line.unwrap().trim().replace('\t', " ")
    }
}

fn archive(entries: &[(&str, tar::EntryType, &str)]) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    for (name, kind, link) in entries {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(*kind);
        header.set_size(0);
        header.set_mode(0o640);
        header.set_uid(7);
        header.set_gid(8);
        header.set_mtime(1);
        if *kind == tar::EntryType::Block {
            header.set_device_major(8).unwrap();
            header.set_device_minor(0).unwrap();
        }
        if !link.is_empty() {
            header.set_link_name(link).unwrap();
        }
        builder.append_data(&mut header, name, &b""[..]).unwrap();
    }
    gzip(&builder.into_inner().unwrap())
}

#[test]
fn unpacker_sees_its_directory_alone() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("gone")).unwrap();
    let mut unpacker = Unpacker::start(dir.path());
    unpacker.stream(&archive(&[("etc/a", tar::EntryType::Regular, "")]));
    assert_eq!(unpacker.line(), json!("Unpacked"));

    // Its root has the directory, and of /proc itself alone. The test's own is another one.
    let root = Path::new("/proc").join(unpacker.child.id().to_string()).join("root");
    let names = |path: &Path| -> BTreeSet<String> {
        fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    };
    assert_eq!(names(&root), BTreeSet::from(["inside", "proc"].map(str::to_owned)));
    assert_eq!(names(&root.join("proc")), BTreeSet::from(["self".to_owned()]));
    assert_eq!(names(&root.join("inside")), names(dir.path()));
    let mounts = unpacker.proc("mounts");
    let mounted: Vec<Vec<&str>> = mounts.lines().map(|line| line.split(' ').collect()).collect();
    let places: Vec<&str> = mounted.iter().map(|fields| fields[1]).collect();
    assert_eq!(places, ["/", "/inside", "/proc/self"], "{mounts}");
    for (fields, expected) in mounted.iter().zip(["ro", "nosuid,nodev,noexec", "proc"]) {
        assert!(fields.join(" ").contains(expected), "{fields:?}");
    }
    for (space, is_own) in [("mnt", true), ("net", true), ("ipc", true), ("user", false)] {
        let of = |pid: &str| fs::read_link(format!("/proc/{pid}/ns/{space}")).unwrap();
        assert_eq!(of(&unpacker.child.id().to_string()) != of("self"), is_own, "{space}");
    }

    // A user whom nobody else has, few capabilities, and no more by a program.
    let user = (1_879_048_192 + unpacker.child.id()).to_string();
    for ids in ["Uid", "Gid"] {
        assert_eq!(unpacker.field(ids), [&*user; 4].join(" "));
    }
    assert_eq!(unpacker.field("Groups"), "");
    let kept = KEPT.iter().fold(0_u64, |bits, bit| bits | 1 << bit);
    for (set, expected) in [("CapEff", kept), ("CapPrm", kept), ("CapInh", 0), ("CapBnd", 0), ("CapAmb", 0)] {
        let found = u64::from_str_radix(&unpacker.field(set), 16).unwrap();
        assert_eq!(found & !expected, 0, "{set} {found:x}");
    }
    assert_eq!((unpacker.field("NoNewPrivs"), unpacker.field("Threads")), ("1".to_owned(), "1".to_owned()));
    assert_eq!(unpacker.proc("oom_score_adj").trim(), "0");
    let limits = unpacker.proc("limits");
    for (name, limit) in [
        ("Max address space", "536870912"),
        ("Max file size", "8589934592"),
        ("Max processes", "0"),
        ("Max core file size", "0"),
    ] {
        let line = limits.lines().find(|line| line.starts_with(name)).unwrap();
        assert_eq!(line[name.len()..].split_whitespace().take(2).collect::<Vec<_>>(), [limit; 2], "{line}");
    }
    // Room for all that a seed takes: half of the limit is free.
    let peak: u64 = unpacker.field("VmPeak").trim_end_matches(" kB").parse().unwrap();
    assert!(peak < 256 << 10, "{peak} KiB");

    // Devices are made, and can't be opened there.
    unpacker
        .stream(&archive(&[("etc/a", tar::EntryType::Regular, ""), ("etc/disk", tar::EntryType::Block, "")]));
    assert_eq!(unpacker.line(), json!("Unpacked"));
    assert!(fs::metadata(dir.path().join("disk")).unwrap().file_type().is_block_device());

    unpacker.input.write_all(&[0]).unwrap();
    assert_eq!(unpacker.line(), json!({"Done": null}));
    assert!(unpacker.child.wait().unwrap().success());
    assert_eq!(names(dir.path()), BTreeSet::from(["a", "disk"].map(str::to_owned)), "what goes is gone");
    let stat = fs::metadata(dir.path().join("a")).unwrap();
    assert_eq!((stat.uid(), stat.gid(), stat.permissions().mode() & 0o7777), (7, 8, 0o640));
}

/// Attributes for which it lacks the capability are handed out, of what is there in the end.
#[test]
fn unpacker_hands_privileged_attributes_out() {
    let dir = tempfile::tempdir().unwrap();
    let mut unpacker = Unpacker::start(dir.path());
    let attribute: [(&str, &[u8]); 1] = [("SCHILY.xattr.trusted.x", b"y")];
    let made =
        Hostile::new().records(&attribute).file("etc/file").records(&attribute).link("etc/link", "file");
    let made = made.records(&attribute).file("etc/again").file("etc/again");
    let made = made.records(&attribute).file("etc/below/file").link("etc/below", "/etc");
    unpacker.stream(&made.packed());
    for path in ["file", "link"] {
        let expected = json!({"Refused": {"path": path.as_bytes(), "name": b"trusted.x", "value": b"y"}});
        assert_eq!(unpacker.line(), expected);
    }
    assert_eq!(unpacker.line(), json!("Unpacked"));
    // A directory that no entry stands for has the owner of the one above.
    unpacker.stream(&Hostile::new().file("etc/new/file").packed());
    assert_eq!(unpacker.line(), json!("Unpacked"));
    assert_eq!(fs::metadata(dir.path().join("new")).unwrap().uid(), fs::metadata(dir.path()).unwrap().uid());
}

/// No deletion leads out: one goes through a link.
#[test]
fn unpacker_deletes_through_no_link() {
    let dir = tempfile::tempdir().unwrap();
    let kept = tempfile::tempdir().unwrap();
    fs::write(kept.path().join("passwd"), "kept").unwrap();
    let inside = dir.path().join("harm");
    std::os::unix::fs::symlink(kept.path(), &inside).unwrap();
    let mut unpacker = Unpacker::start(dir.path());
    unpacker.input.write_all(&[0]).unwrap();
    assert_eq!(unpacker.line(), json!({"Done": null}));
    assert!(inside.is_symlink() && kept.path().join("passwd").exists());
}

/// Whoever sent a part of an archive and is gone leaves no process.
#[test]
fn unpacker_ends_with_its_input() {
    let dir = tempfile::tempdir().unwrap();
    let mut unpacker = Unpacker::start(dir.path());
    unpacker.input.write_all(&[1, 0, 0, 0, 9, 0x1f, 0x8b]).unwrap();
    drop(unpacker.input);
    let mut rest = String::new();
    unpacker.output.read_to_string(&mut rest).unwrap();
    assert!(rest.contains("Failed"), "{rest}");
    unpacker.child.wait().unwrap();
}
