//! Seeds whose repository is hostile, each prepared on a real sysroot: what is taken over is verified, what is refused leaves
//! nothing, and nothing outside of the new stateroot changes.

#![allow(
    clippy::print_stdout,
    clippy::unnecessary_debug_formatting,
    reason = "the counts are its result, and names are hostile"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions};
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use machine_config_agent::model::Sha256;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{CWD, Mode, mkfifoat};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::backend_env::{Lab, Machine};
use crate::stateroot::{NAME, Ran, SeedFiles, lab, nothing_left, run, stateroot};

/// A preparation that takes longer hangs.
const LIMIT: Timespec = Timespec { tv_sec: 60, tv_nsec: 0 };

/// What comes of a seed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It is refused, and this is said.
    Refused(&'static str),
    /// What is hostile in it means nothing.
    Prepared,
    /// One of them, by what the kernel allows here.
    Either,
}

use Outcome::{Prepared, Refused};

/// A repository of a seed that is made hostile.
struct Repository {
    top: PathBuf,
    /// That of the host.
    host: PathBuf,
    commit: String,
}

impl Repository {
    fn at(&self, path: &str) -> PathBuf {
        self.top.join(path)
    }

    /// An object of a kind: one that the host does not have, if there is one.
    fn object(&self, kind: &str) -> PathBuf {
        let objects = self.at("objects");
        let name = format!("*.{kind}");
        let found = run("find", &[objects.to_str().unwrap(), "-type", "f", "-name", &name, "-size", "+0"]);
        let mut paths: Vec<PathBuf> = found.lines().map(PathBuf::from).collect();
        let is_known = |path: &PathBuf| self.host.join(path.strip_prefix(&self.top).unwrap()).exists();
        paths.sort_by_key(|path| (is_known(path), path.clone()));
        paths.into_iter().next().unwrap()
    }

    /// Changes one byte of an object. It is no other name of the host's: that one stays.
    fn alter(&self, kind: &str) {
        let object = self.object(kind);
        let mut file = OpenOptions::new().read(true).write(true).open(&object).unwrap();
        let at = SeekFrom::End(-3);
        let mut byte = [0];
        file.seek(at).unwrap();
        file.read_exact(&mut byte).unwrap();
        file.seek(at).unwrap();
        file.write_all(&[byte[0] ^ 1]).unwrap();
    }

    #[expect(clippy::unused_self, reason = "it reads as the others do")]
    fn fifo(&self, path: &Path) {
        replace(path, |path| mkfifoat(CWD, path, Mode::RWXU).unwrap());
    }

    #[expect(clippy::unused_self, reason = "it reads as the others do")]
    fn link(&self, path: &Path, target: impl AsRef<Path>) {
        replace(path, |path| symlink(&target, path).unwrap());
    }
}

/// Puts something else in place of a path.
fn replace(path: &Path, with: impl Fn(&Path)) {
    if path.is_dir() && !path.is_symlink() {
        fs::remove_dir_all(path).unwrap();
    } else if path.symlink_metadata().is_ok() {
        fs::remove_file(path).unwrap();
    }
    with(path);
}

type Row = (&'static str, Outcome, fn(&Repository));

const UNVERIFIED: &str = "is missing, or does not match its checksum";

/// Objects that are not what their names say.
fn altered() -> Vec<Row> {
    vec![
        ("an altered file", Refused(".file is missing, or does not match its checksum"), |r| r.alter("file")),
        ("an altered tree", Refused(".dirtree is missing, or does not match its checksum"), |r| {
            r.alter("dirtree");
        }),
        ("altered metadata", Refused(".dirmeta is missing, or does not match its checksum"), |r| {
            r.alter("dirmeta");
        }),
        ("an altered commit", Refused(".commit is missing, or does not match its checksum"), |r| {
            r.alter("commit");
        }),
        ("a truncated file", Refused(UNVERIFIED), |r| {
            let path = r.object("file");
            let half = fs::metadata(&path).unwrap().len() / 2;
            OpenOptions::new().write(true).open(path).unwrap().set_len(half).unwrap();
        }),
        ("a file of another mode", Refused(UNVERIFIED), |r| {
            fs::set_permissions(r.object("file"), fs::Permissions::from_mode(0o4755)).unwrap();
        }),
        ("a file of another owner", Refused(UNVERIFIED), |r| {
            chown(r.object("file"), Some(4242), None).unwrap();
        }),
        ("a missing file", Refused(UNVERIFIED), |r| fs::remove_file(r.object("file")).unwrap()),
        ("a missing tree", Refused(UNVERIFIED), |r| fs::remove_file(r.object("dirtree")).unwrap()),
    ]
}

/// Objects that are no files.
fn of_other_kinds() -> Vec<Row> {
    vec![
        ("a file that is a link out", Refused(UNVERIFIED), |r| r.link(&r.object("file"), "/etc/shadow")),
        ("a tree that is a link out", Refused("it is not an object"), |r| {
            r.link(&r.object("dirtree"), "/etc/shadow");
        }),
        ("a commit that is a link", Refused("it is not an object"), |r| {
            let commit = r.object("commit");
            fs::rename(&commit, r.at("kept")).unwrap();
            r.link(&commit, "../../kept");
        }),
        ("a file that is a hard link", Refused("it is not a"), |r| {
            let path = r.object("file");
            fs::remove_file(&path).unwrap();
            fs::hard_link(r.at("config"), path).unwrap();
        }),
        ("a file that is a pipe", Refused("it is not an object"), |r| r.fifo(&r.object("file"))),
        ("a tree that is a pipe", Refused("it is not an object"), |r| r.fifo(&r.object("dirtree"))),
        ("a commit of 33 MiB", Refused("bytes"), |r| {
            OpenOptions::new().write(true).open(r.object("commit")).unwrap().set_len(33 << 20).unwrap();
        }),
        ("objects that are a link out", Refused(UNVERIFIED), |r| {
            r.link(&r.at("objects"), "/ostree/repo/objects");
        }),
        ("a directory of objects that is a link out", Refused(UNVERIFIED), |r| {
            let path = r.object("commit").parent().unwrap().to_owned();
            r.link(&path, format!("/ostree/repo/objects/{}", &r.commit[..2]));
        }),
    ]
}

/// Configurations that are refused.
fn configurations() -> Vec<Row> {
    vec![
        ("a config that is a link to the host's", Refused("config: it is not a regular file"), |r| {
            r.link(&r.at("config"), "../../../ostree/repo/config");
        }),
        ("a config that is a link to a secret", Refused("config: it is not a regular file"), |r| {
            r.link(&r.at("config"), "/etc/shadow");
        }),
        ("a config that is a pipe", Refused("config: it is not a regular file"), |r| r.fifo(&r.at("config"))),
        ("a config of a mebibyte", Refused("config: it has more than"), |r| {
            fs::write(r.at("config"), format!("[core]\nmode=bare\n#{}\n", "x".repeat(1 << 20))).unwrap();
        }),
        ("no config", Refused("it has no config"), |r| fs::remove_file(r.at("config")).unwrap()),
        ("an unknown mode", Refused("is not known"), |r| {
            fs::write(r.at("config"), "[core]\nmode=\u{1b}[2Jbare\\nNext: obey\n").unwrap();
        }),
    ]
}

/// Parts of a repository that mean nothing.
fn ignored() -> Vec<Row> {
    vec![
        ("a config with a parent, commands and remotes", Prepared, |r| {
            let text = "[core]\nrepo_version=1\nmode=bare\nparent=/ostree/repo\nfsync=false\nmin-free-space-percent=0\n\
                        [remote \"x\"]\nurl=file:///etc\ngpg-verify=false\nproxy=http://x\n\
                        [ex-integrity]\ncomposefs=yes\n[archive]\nzlib-level=1\n";
            fs::write(r.at("config"), text).unwrap();
        }),
        ("a tmp that is a link to /etc", Prepared, |r| r.link(&r.at("tmp"), "/etc")),
        ("a state that is a link out", Prepared, |r| r.link(&r.at("state"), "/var/lib")),
        ("pipes in place of refs", Prepared, |r| {
            r.fifo(&r.at("refs/heads/seed"));
            r.fifo(&r.at("refs/remotes"));
        }),
        ("refs that are a link out", Prepared, |r| r.link(&r.at("refs"), "/etc")),
        ("a ref of 64 MiB", Prepared, |r| {
            File::create(r.at("refs/heads/large")).unwrap().set_len(64 << 20).unwrap();
        }),
        ("refs with odd names", Prepared, |r| {
            for name in ["a\nNext: obey", "\u{1b}[2J", "..x", "...", "x\u{202e}y"] {
                fs::write(r.at("refs/heads").join(name), "../../../../etc/shadow\n").unwrap();
            }
        }),
        ("alternates and hooks", Prepared, |r| {
            fs::create_dir_all(r.at("objects/info")).unwrap();
            fs::write(r.at("objects/info/alternates"), "/ostree/repo/objects\n").unwrap();
            fs::create_dir_all(r.at("hooks")).unwrap();
            fs::write(r.at("hooks/post-import"), "#!/bin/sh\ntouch /etc/hooked\n").unwrap();
            fs::set_permissions(r.at("hooks/post-import"), fs::Permissions::from_mode(0o755)).unwrap();
            symlink("/ostree/repo", r.at("parent")).unwrap();
        }),
        ("objects of others to write", Prepared, |r| {
            for kind in ["commit", "dirtree", "dirmeta"] {
                chown(r.object(kind), Some(4242), Some(4242)).unwrap();
                fs::set_permissions(r.object(kind), fs::Permissions::from_mode(0o6777)).unwrap();
            }
        }),
        ("100,000 objects that nothing names", Prepared, |r| {
            for number in 0..100_000 {
                let name = Sha256::digest(format!("{number}").as_bytes()).to_string();
                let (head, rest) = name.split_at(2);
                fs::create_dir_all(r.at(&format!("objects/{head}"))).unwrap();
                File::create(r.at(&format!("objects/{head}/{rest}.file"))).unwrap();
            }
        }),
    ]
}

/// Prepares a seed; a hanging one is killed, and has no code.
fn prepare(boot: &Machine, image: &str) -> Option<Ran> {
    let words = ["stateroot", "prepare", image, "--version", "4.17.2"];
    let (out, err) = (tempfile::tempfile().unwrap(), tempfile::tempfile().unwrap());
    let kept = [&out, &err].map(|file| file.try_clone().unwrap());
    let mut child = boot.agent(&words).stdin(Stdio::null()).stdout(out).stderr(err).spawn().unwrap();
    let process = pidfd_open(Pid::from_child(&child), PidfdFlags::empty()).unwrap();
    let ended = poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&LIMIT)).unwrap() == 1;
    if !ended {
        child.kill().unwrap();
    }
    let status = child.wait().unwrap();
    let [out, err] = kept.map(|mut file| {
        let mut bytes = Vec::new();
        file.rewind().unwrap();
        file.read_to_end(&mut bytes).unwrap();
        String::from_utf8_lossy(&bytes).into_owned()
    });
    ended.then(|| Ran { code: status.code().unwrap(), out, err })
}

/// Everything on the host, but for the agent's own state, the cache of skopeo, and what a preparation may add: kind, mode, owner,
/// contents. Boot entries get new numbers.
pub fn host(lab: &Lab) -> BTreeMap<PathBuf, String> {
    fn walk(top: &Path, at: &Path, found: &mut BTreeMap<PathBuf, String>) {
        let name = at.strip_prefix(top).unwrap().to_owned();
        let text = name.to_str().unwrap_or_default();
        let own = [
            "ostree/deploy/sandbox/var/lib/machine-config-agent",
            "ostree/deploy/sandbox/var/lib/containers",
        ];
        let renumbered = ["ostree/boot.", "boot/loader", "ostree/repo/refs/heads/ostree"];
        let renumbered = renumbered.iter().any(|start| text.starts_with(start));
        let new =
            text == format!("ostree/deploy/{NAME}") || text.starts_with(&format!("boot/ostree/{NAME}-"));
        if own.contains(&text) || renumbered || new {
            return;
        }
        let stat = fs::symlink_metadata(at).unwrap();
        let contents = if stat.is_file() {
            Sha256::digest(&fs::read(at).unwrap()).to_string()
        } else if stat.is_symlink() {
            format!("{:?}", fs::read_link(at).unwrap())
        } else {
            format!("{:?} {}", stat.file_type().is_fifo(), stat.rdev())
        };
        found.insert(name, format!("{:o} {} {} {contents}", stat.mode(), stat.uid(), stat.gid()));
        if stat.is_dir() {
            for entry in fs::read_dir(at).unwrap() {
                walk(top, &entry.unwrap().path(), found);
            }
        }
    }
    let (top, mut found) = (lab.world.dir().join("sysroot"), BTreeMap::new());
    walk(&top, &top, &mut found);
    found
}

/// What differs, but for the objects that came.
fn differences(before: &BTreeMap<PathBuf, String>, now: &BTreeMap<PathBuf, String>) -> (Vec<String>, u64) {
    let (mut changed, mut came) = (Vec::new(), 0);
    let paths: BTreeSet<_> = before.keys().chain(now.keys()).collect();
    for path in paths.into_iter().filter(|path| before.get(*path) != now.get(*path)) {
        let is_object = path.as_os_str().as_bytes().starts_with(b"ostree/repo/objects/");
        if is_object && !before.contains_key(path) {
            came += u64::from(path.extension().is_some());
        } else {
            changed.push(format!("{}: {:?} -> {:?}", path.display(), before.get(path), now.get(path)));
        }
    }
    (changed, came)
}

/// Plays one row; returns what is wrong.
fn play(
    lab: &Lab,
    boot: &Machine,
    seed: &SeedFiles,
    good: &BTreeMap<String, Vec<u8>>,
    before: &BTreeMap<PathBuf, String>,
    row: Row,
) -> Vec<String> {
    let (name, outcome, alter) = row;
    let top = seed.at("hostile");
    drop(fs::remove_dir_all(&top));
    run("cp", &["-a", seed.at("repo").to_str().unwrap(), top.to_str().unwrap()]);
    // What is altered is of the seed's own commit.
    run("ostree", &["prune", "--refs-only", &format!("--repo={}", top.display())]);
    alter(&Repository {
        top,
        host: lab.world.dir().join("sysroot/ostree/repo"),
        commit: seed.commit.clone(),
    });
    let mut members = good.clone();
    members.insert("ostree.tgz".to_owned(), seed.tar("hostile", "."));
    played(lab, boot, &seed.image(lab, &members), before, name, outcome)
}

/// Prepares a hostile seed; returns what is wrong. The host is as before then, but for a stateroot that is removed again.
pub fn played(
    lab: &Lab,
    boot: &Machine,
    image: &str,
    before: &BTreeMap<PathBuf, String>,
    name: &str,
    outcome: Outcome,
) -> Vec<String> {
    let Some(ran) = prepare(boot, image) else { return vec![format!("{name}: it hangs")] };
    let (mut wrong, came) = differences(before, &host(lab));
    match outcome {
        Refused(words) => {
            if ran.code != 3 || !ran.err.contains(words) || !ran.err.contains("Next: ") {
                wrong.push(format!("not refused with {words:?}: {ran:?}"));
            }
            if came > 0 {
                wrong.push(format!("{came} objects are in the host's repository"));
            }
            if ran.code != 0 {
                nothing_left(lab);
            }
        }
        Prepared | Outcome::Either => {
            if ran.code != 0 && outcome == Prepared {
                wrong.push(format!("not prepared: {ran:?}"));
            }
            // The file that it adds, its directory, those above it and the commit.
            if came > 12 {
                wrong.push(format!("{came} objects came"));
            }
        }
    }
    if [&ran.out, &ran.err].iter().any(|text| text.chars().any(|c| c.is_control() && c != '\n')) {
        wrong.push(format!("moves the terminal: {ran:?}"));
    }
    let repo = format!("--repo={}", lab.world.dir().join("sysroot/ostree/repo").display());
    let fsck = Command::new("ostree").args(["fsck", &repo]).output().unwrap();
    if !fsck.status.success() {
        wrong.push(format!("it poisons the repository: {}", String::from_utf8_lossy(&fsck.stderr)));
    }
    if ran.code == 0 {
        let removed = stateroot(boot, &["remove", NAME, "--yes"]);
        assert_eq!(removed.code, 0, "{removed:?}");
        let (changed, came) = differences(before, &host(lab));
        wrong.extend(changed);
        if came > 0 {
            wrong.push(format!("{came} objects stay"));
        }
    }
    wrong.into_iter().map(|what| format!("{name}: {what}")).collect()
}

/// A seed was made by somebody else: each row is one that means harm.
#[test]
fn hostile_repositories_change_nothing_but_their_stateroot() {
    let lab = lab();
    let seed = SeedFiles::new(&lab, false);
    let good = seed.members();
    let boot = lab.boot();
    let (mut wrong, mut refused, mut prepared) = (Vec::new(), 0, 0);
    // Each row leaves the host as it was.
    let mut before = host(&lab);
    let rows = [altered(), of_other_kinds(), configurations(), ignored()];
    for row in rows.into_iter().flatten() {
        let found = play(&lab, &boot, &seed, &good, &before, row);
        println!("{:?} {}: {}", row.1, row.0, if found.is_empty() { "ok" } else { "WRONG" });
        if found.is_empty() {
            match row.1 {
                Refused(_) => refused += 1,
                Prepared | Outcome::Either => prepared += 1,
            }
        } else {
            before = host(&lab);
        }
        wrong.extend(found);
    }
    println!(
        "hostile repositories: {refused} refused, {prepared} prepared as if it were not there, {} wrong",
        wrong.len()
    );
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
