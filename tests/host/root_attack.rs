//! Attempts to lead the agent out of its root: links, `..`, magic links, and directories that are swapped while it
//! works. None of thousands may succeed.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use machine_config_agent::host::accounts::User;
use machine_config_agent::host::durable::{Attempt, Change, DesiredPath, apply_changes};
use machine_config_agent::host::saved::PathSnapshot;
use machine_config_agent::host::{FailPoints, Hands, HostError, Root, keys};
use machine_config_agent::model::{FileMode, ObservedFile};

/// Runs of the agent while directories are swapped under it.
const ROUNDS: usize = 4000;

struct Arena {
    dir: tempfile::TempDir,
    root: Root,
}

impl Arena {
    fn new() -> Self {
        // In memory, where possible: the rounds are not to wait for a disk.
        let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        fs::create_dir_all(dir.path().join("root/etc/a")).unwrap();
        fs::create_dir_all(dir.path().join("outside")).unwrap();
        fs::write(dir.path().join("outside/secret"), "secret").unwrap();
        let root = Root::open(&dir.path().join("root")).unwrap();
        Self { dir, root }
    }

    fn at(&self, path: &str) -> std::path::PathBuf {
        self.dir.path().join(path)
    }

    /// Only the secret is outside, as it was.
    fn nothing_escaped(&self) {
        let names: Vec<_> =
            fs::read_dir(self.at("outside")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, ["secret"]);
        assert_eq!(fs::read_to_string(self.at("outside/secret")).unwrap(), "secret");
    }
}

fn write(root: &Root, path: &str, text: &str) -> Result<(), HostError> {
    let change = Change::new(path, 0, DesiredPath::file(text.as_bytes(), 0o644, 0, 0));
    apply_changes(root, &[change], Attempt::First, &FailPoints::off()).map(|_| ())
}

#[test]
fn links_lead_nowhere_but_into_root() {
    let arena = Arena::new();
    let outside = arena.at("outside");
    symlink(&outside, arena.at("root/etc/absolute")).unwrap();
    symlink("../../outside", arena.at("root/etc/relative")).unwrap();
    symlink("/proc/self/root", arena.at("root/etc/magic")).unwrap();
    symlink("../../../../../../../..", arena.at("root/etc/up")).unwrap();
    symlink("loop", arena.at("root/etc/loop")).unwrap();
    symlink(outside.join("secret"), arena.at("root/etc/file")).unwrap();
    for directory in ["absolute", "relative", "magic", "up", "loop"] {
        let path = format!("/etc/{directory}/secret");
        let seen = arena.root.observe(&path);
        assert!(
            matches!(seen, Ok(ObservedFile::Absent | ObservedFile::Unreachable) | Err(_)),
            "{path}: {seen:?}"
        );
        // Inside the root such a link stands for a directory there: it is made, or refused.
        drop(write(&arena.root, &path, "mine"));
        drop(arena.root.remove(&path));
        drop(arena.root.list(&format!("/etc/{directory}")));
        arena.nothing_escaped();
    }
    assert!(matches!(arena.root.read("/etc/file"), Ok(None)));
    write(&arena.root, "/etc/file", "mine").unwrap();
    write(&arena.root, "/etc/../../../../etc/dots", "mine").unwrap();
    assert!(arena.at("root/etc/dots").exists());
    for path in ["/etc/..", "/..", "/", "", "/etc/."] {
        assert!(write(&arena.root, path, "mine").is_err(), "{path:?}");
    }
    drop(arena.root.remove_tree("/etc/absolute"));
    arena.nothing_escaped();
}

#[test]
fn magic_links_are_not_followed() {
    let root = Root::open(Path::new("/")).unwrap();
    for path in ["/proc/self/root/etc/passwd", "/proc/self/cwd/Cargo.toml", "/proc/self/exe"] {
        assert!(root.read(path).is_err(), "{path}");
    }
}

/// Swaps a directory with a link to the outside, as fast as it can, while the agent works.
#[test]
fn swapped_directories_are_never_escaped_through() {
    let arena = Arena::new();
    let (inside, link) = (arena.at("root/etc/a"), arena.at("root/etc/link"));
    symlink(arena.at("outside"), &link).unwrap();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let swaps = scope.spawn(|| {
            let mut swaps = 0_usize;
            while !stop.load(Ordering::Relaxed) {
                let flags = rustix::fs::RenameFlags::EXCHANGE;
                rustix::fs::renameat_with(rustix::fs::CWD, &inside, rustix::fs::CWD, &link, flags).unwrap();
                swaps += 1;
            }
            swaps
        });
        let (mut done, mut refused) = (0, 0);
        for round in 0..ROUNDS {
            let text = round.to_string();
            let outcome = match round % 4 {
                0 | 1 => write(&arena.root, "/etc/a/secret", &text),
                2 => arena.root.remove("/etc/a/secret"),
                _ => arena.root.replace("/etc/a/deep/er/secret", text.as_bytes(), FileMode::PRIVATE),
            };
            let count = if outcome.is_ok() { &mut done } else { &mut refused };
            *count += 1;
            let read = arena.root.read("/etc/a/secret");
            assert!(!matches!(&read, Ok(Some(bytes)) if bytes == b"secret"), "the outside was read");
            if round % 16 == 3 {
                drop(arena.root.remove_tree("/etc/a/deep"));
            }
        }
        stop.store(true, Ordering::Relaxed);
        let swaps = swaps.join().unwrap();
        assert!(swaps > 100 && done > 100, "{swaps} swaps, {done} done, {refused} refused");
    });
    arena.nothing_escaped();
}

/// What only root may read.
const SECRET: &str = "of the config, for root alone";

/// One move of the owner of `own`: as fast as he can, as a user.
fn play(arena: &Arena, round: usize) -> bool {
    let own = |name: &str| arena.at("root/etc/own").join(name);
    let exchange = |one: &str, other: &str| {
        let flags = rustix::fs::RenameFlags::EXCHANGE;
        // Another may be there by now.
        rustix::fs::renameat_with(rustix::fs::CWD, own(one), rustix::fs::CWD, own(other), flags)
            .unwrap_or_default();
    };
    match round % 9 {
        0 => exchange("sub", "roots"),
        1 => exchange("sub", "link"),
        2 => drop(symlink(arena.at("outside/secret"), own(".file.mca-new"))),
        3 => drop(fs::rename(own(".file.mca-new"), own("taken"))),
        4 => {
            drop(
                fs::remove_file(own("file")).and_then(|()| symlink(arena.at("outside/secret"), own("file"))),
            );
        }
        5 => drop(fs::hard_link(own("his"), own(".file.mca-new"))),
        6 => drop(fs::remove_file(own("file")).and_then(|()| fs::create_dir(own("file")))),
        7 => drop(fs::remove_dir(own("file"))),
        _ => exchange("file", "his"),
    }
    let found = ["file", ".file.mca-new", "taken", "sub/file", "roots/file"];
    found.iter().any(|name| fs::read_to_string(own(name)).is_ok_and(|text| text.contains(SECRET)))
}

fn works(arena: &Arena, round: usize) -> Result<(), HostError> {
    let change = |path: &str, want| [Change::new(path, 0, want).entering(true)];
    let run = |changes: &[Change<'_>]| {
        apply_changes(&arena.root, changes, Attempt::Again, &FailPoints::off()).map(|_| ())
    };
    let secret = || DesiredPath::file(SECRET.as_bytes(), 0o600, 0, 0);
    match round % 5 {
        0 | 1 => run(&change("/etc/own/file", secret())),
        2 => run(&change("/etc/own/sub/file", secret())),
        3 => run(&change("/etc/own/file", DesiredPath::Absent)),
        _ => {
            let saved = PathSnapshot::read_to_replace(
                &arena.root,
                &Change::new("/etc/own/file", 0, DesiredPath::Absent).entering(true),
                None,
            )?;
            let attributes = saved.attributes();
            run(&change("/etc/own/file", secret()))?;
            run(&[saved.put_back("/etc/own/file", Hands::entering(0), &attributes)])
        }
    }
}

/// The owner of a directory renames, links and swaps in it while the agent writes there, undoes, and looks for drift. Nothing
/// outside of it is written, he reads nothing of root's, and root's own directory in it keeps its mode and owner.
#[test]
fn owner_of_directory_is_not_followed_out_of_it() {
    use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
    let arena = Arena::new();
    fs::set_permissions(arena.dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let own = arena.at("root/etc/own");
    for name in ["", "sub", "roots"] {
        fs::create_dir(own.join(name)).unwrap();
    }
    fs::write(own.join("his"), "his").unwrap();
    symlink(arena.at("outside"), own.join("link")).unwrap();
    for name in ["", "sub", "his"] {
        chown(own.join(name), Some(4711), Some(4711)).unwrap();
    }
    let roots = own.join("roots");
    fs::set_permissions(&roots, fs::Permissions::from_mode(0o700)).unwrap();
    let inode = fs::metadata(&roots).unwrap().ino();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let owner = scope.spawn(|| {
            let (uid, gid) = (rustix::process::Uid::from_raw(4711), rustix::process::Gid::from_raw(4711));
            set_thread_groups(&[]).unwrap();
            set_thread_res_gid(gid, gid, gid).unwrap();
            set_thread_res_uid(uid, uid, uid).unwrap();
            let (mut rounds, mut read) = (0_usize, false);
            while !stop.load(Ordering::Relaxed) {
                read |= play(&arena, rounds);
                rounds += 1;
            }
            (rounds, read)
        });
        let (mut done, mut refused) = (0, 0);
        for round in 0..ROUNDS {
            let count = if works(&arena, round).is_ok() { &mut done } else { &mut refused };
            *count += 1;
            drop(arena.root.observe("/etc/own/file"));
        }
        stop.store(true, Ordering::Relaxed);
        let (rounds, read) = owner.join().unwrap();
        assert!(rounds > 100 && done > 100, "{rounds} rounds, {done} done, {refused} refused");
        assert!(!read, "he read what only root may");
    });
    arena.nothing_escaped();
    let entries = fs::read_dir(&own).unwrap().map(|entry| entry.unwrap().path());
    let kept = entries.filter_map(|path| fs::symlink_metadata(path).ok()).find(|found| found.ino() == inode);
    let kept = kept.expect("root's directory");
    assert_eq!((kept.uid(), kept.mode() & 0o7777), (0, 0o700));
}

/// A user puts root's closed directory in the place of his `.ssh`, as fast as he can, while the agent prepares it for his keys.
/// It is not given to him.
#[test]
fn directory_of_root_in_place_of_ssh_is_not_given_away() {
    use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
    let arena = Arena::new();
    fs::set_permissions(arena.dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let home = arena.at("root/home/u");
    for name in ["", "roots", ".ssh"] {
        fs::create_dir_all(home.join(name)).unwrap();
        chown(home.join(name), Some(4711), Some(4711)).unwrap();
    }
    let roots = home.join("roots");
    chown(&roots, Some(0), Some(0)).unwrap();
    fs::write(roots.join("secret"), SECRET).unwrap();
    fs::set_permissions(&roots, fs::Permissions::from_mode(0o700)).unwrap();
    let inode = fs::metadata(&roots).unwrap().ino();
    let user = User {
        uid: 4711,
        gid: 4711,
        home: "/home/u".to_owned(),
        gecos: String::new(),
        shell: String::new(),
        is_local: true,
    };
    let (stop, prepared) = (AtomicBool::new(false), AtomicBool::new(false));
    thread::scope(|scope| {
        let owner = scope.spawn(|| {
            let (uid, gid) = (rustix::process::Uid::from_raw(4711), rustix::process::Gid::from_raw(4711));
            set_thread_groups(&[]).unwrap();
            set_thread_res_gid(gid, gid, gid).unwrap();
            set_thread_res_uid(uid, uid, uid).unwrap();
            let (mut swaps, mut read) = (0_usize, false);
            while !stop.load(Ordering::Relaxed) {
                let flags = rustix::fs::RenameFlags::EXCHANGE;
                let swapped = rustix::fs::renameat_with(
                    rustix::fs::CWD,
                    home.join(".ssh"),
                    rustix::fs::CWD,
                    home.join("roots"),
                    flags,
                );
                swaps += usize::from(swapped.is_ok());
                // What was moved aside comes back.
                drop(fs::rename(home.join(".ssh.mca-foreign"), home.join("roots")));
                read |= ["roots", ".ssh", ".ssh.mca-foreign"]
                    .iter()
                    .any(|name| fs::read_to_string(home.join(name).join("secret")).is_ok());
            }
            (swaps, read)
        });
        for _ in 0..ROUNDS {
            prepared.fetch_or(keys::prepare(&arena.root, "/home/u", &user).is_ok(), Ordering::Relaxed);
        }
        stop.store(true, Ordering::Relaxed);
        let (swaps, read) = owner.join().unwrap();
        assert!(swaps > 10 && prepared.load(Ordering::Relaxed), "{swaps} swaps");
        assert!(!read, "he read what only root may");
    });
    let entries = fs::read_dir(&home).unwrap().map(|entry| entry.unwrap().path());
    let kept = entries.filter_map(|path| fs::symlink_metadata(path).ok()).find(|found| found.ino() == inode);
    let kept = kept.expect("root's directory");
    assert_eq!((kept.uid(), kept.mode() & 0o7777), (0, 0o700));
}

/// Content is shown of a file that its directory's owner did not lead the path to.
#[test]
fn content_that_owner_of_directory_leads_to_is_not_shown() {
    use std::os::unix::fs::{PermissionsExt as _, chown};
    let arena = Arena::new();
    let (own, closed) = (arena.at("root/etc/own"), arena.at("root/etc/closed"));
    for name in [&own, &closed, &own.join("sub")] {
        fs::create_dir(name).unwrap();
    }
    fs::write(closed.join("secret"), SECRET).unwrap();
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o700)).unwrap();
    fs::write(own.join("sub/plain"), "his").unwrap();
    symlink("../closed", own.join("link")).unwrap();
    symlink("../closed/secret", own.join("end")).unwrap();
    fs::hard_link(closed.join("secret"), own.join("hard")).unwrap();
    symlink("own", arena.at("root/etc/roots")).unwrap();
    for name in ["", "sub", "sub/plain"] {
        chown(own.join(name), Some(4711), Some(4711)).unwrap();
    }
    let shown = |path: &str| arena.root.read_shown(path, 1024).ok().flatten();
    for path in ["/etc/own/link/secret", "/etc/own/end", "/etc/own/hard", "/etc/own/none", "/etc/own/sub"] {
        assert_eq!(shown(path), None, "{path}");
    }
    // A link of root's is followed.
    for path in ["/etc/own/sub/plain", "/etc/roots/sub/plain"] {
        assert_eq!(shown(path).as_deref(), Some(b"his".as_slice()), "{path}");
    }
    assert_eq!(shown("/etc/closed/secret").as_deref(), Some(SECRET.as_bytes()), "of root alone");
}
