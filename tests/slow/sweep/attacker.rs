//! A user of the node who does what a user may, as fast as he can: moves, links, pipes and sizes in a directory of his own.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat, open};
use rustix::process::{Gid, Uid};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};

use super::model::{HOME, RULES};
use super::play::Chance;

/// Paths in the home of core that the agent writes.
const OF_HOME: [&str; 5] =
    [".ssh", ".ssh/authorized_keys.d", ".ssh/authorized_keys.d/ignition", ".profile", ".config"];

/// Paths in the directory of polkitd that the agent writes, and some beside.
const OF_RULES: [&str; 5] = [RULE, "50-x.rules.mca-new", "sub", "sub/50-x.rules", "other"];

/// The file of the config in the directory of polkitd.
pub const RULE: &str = "50-x.rules";

/// An account, and its directory below the root.
#[derive(Debug, Clone, Copy)]
pub struct User {
    id: u32,
    directory: &'static str,
    places: [&'static str; 5],
}

pub const CORE: User = User { id: 1000, directory: HOME, places: OF_HOME };
pub const POLKITD: User = User { id: 4711, directory: RULES, places: OF_RULES };

/// More than the agent may take.
const HUGE: u64 = 6 << 30;

pub struct Attacker {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<u64>,
}

impl Attacker {
    /// Has a user attack from his directory; `outside` is one that is no business of the agent.
    pub fn start(root: &Path, user: User, outside: &Path, seed: u64) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (ends, root, home) = (stop.clone(), root.to_owned(), root.join(user.directory));
        let outside = outside.to_owned();
        let thread = std::thread::spawn(move || {
            // Of this thread only: the kernel keeps them for each.
            let (uid, gid) = (Uid::from_raw(user.id), Gid::from_raw(user.id));
            set_thread_groups(&[]).unwrap();
            set_thread_res_gid(gid, gid, gid).unwrap();
            set_thread_res_uid(uid, uid, uid).unwrap();
            assert!(fs::write(root.join("etc/motd"), "mine").is_err(), "the attacker is privileged");
            let mut chance = Chance(seed);
            let mut moves = 0;
            while !ends.load(Ordering::Relaxed) {
                moves += u64::from(step(&home, user.places, &outside, &mut chance));
                std::thread::yield_now();
            }
            moves
        });
        Self { stop, thread }
    }

    /// Stops him; returns how many of his moves succeeded.
    pub fn end(self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }
}

fn step(home: &Path, places: [&str; 5], outside: &Path, chance: &mut Chance) -> bool {
    let mut place = || home.join(places[usize::try_from(chance.draw(5)).unwrap() - 1]);
    let (at, other) = (place(), place());
    let aside = home.join(format!(".aside-{}", chance.draw(4)));
    match chance.draw(14) {
        1 | 2 => fs::rename(&at, &aside).is_ok(),
        3 | 4 => fs::rename(&aside, &at).is_ok(),
        5 | 6 => {
            let targets: [PathBuf; 9] = [
                "/etc".into(),
                "../../../etc".into(),
                outside.to_owned(),
                outside.join("secret"),
                "/proc/self/root/etc".into(),
                at.clone(),
                "/etc/shadow".into(),
                // Below the agent's root, too, no one can follow these.
                at.file_name().unwrap().into(),
                "x".repeat(300).into(),
            ];
            symlink(&targets[usize::try_from(chance.draw(9)).unwrap() - 1], &at).is_ok()
        }
        7 => mknodat(CWD, &at, FileType::Fifo, Mode::from_raw_mode(0o644), 0).is_ok(),
        8 => write(&at, "").is_ok_and(|file| file.set_len(HUGE).is_ok()),
        9 => fs::create_dir(&at).is_ok(),
        10 => fs::hard_link(&other, &at).is_ok(),
        11 => fs::remove_file(&at).is_ok(),
        12 => fs::remove_dir_all(&at).is_ok(),
        13 => fs::set_permissions(&at, fs::Permissions::from_mode(0o777)).is_ok(),
        _ => write(&at, "an own text\n").is_ok(),
    }
}

/// Writes a file, and does not wait for a reader where it is a pipe.
fn write(at: &Path, text: &str) -> std::io::Result<fs::File> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::NONBLOCK;
    let mut file = fs::File::from(open(at, flags, Mode::from_raw_mode(0o644))?);
    file.write_all(text.as_bytes())?;
    Ok(file)
}
