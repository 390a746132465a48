//! The order of system calls, as strace lists them, and what has to be synced before what.
//!
//! Held is, below one root: the contents of a file are synced before it gets its name; every change of a name is synced
//! before the record moves on; nothing outside of the agent's state changes while a change of the state is not synced.
#![allow(
    clippy::wildcard_enum_match_arm,
    clippy::match_same_arms,
    clippy::too_many_lines,
    reason = "one table of system calls, an arm for each"
)]

use std::collections::{BTreeMap, BTreeSet};

/// Traced calls.
pub const CALLS: &str = "trace=openat,write,pwrite64,writev,ftruncate,fallocate,fchmod,fchmodat,fchown,fchownat,fsetxattr,fremovexattr,\
                         fsync,fdatasync,rename,renameat,renameat2,link,linkat,unlink,unlinkat,rmdir,mkdir,mkdirat,symlink,\
                         symlinkat";

/// The agent's state, below the root.
const STATE: &str = "/var/lib/machine-config-agent";

/// One thing that a call did, by real paths.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Did {
    /// A new file, under a name of the agent's own or a lock's.
    Created(String),
    /// Bytes or metadata of a file or a directory.
    Changed(String),
    /// A name, which is in its directory.
    Named(String),
    /// A name replaces another.
    Moved {
        from: String,
        to: String,
    },
    /// A name is gone.
    Removed(String),
    Synced(String),
}

/// A call, with the lines of its begin and its end.
#[derive(Debug, Clone)]
pub struct Call {
    begun: usize,
    ended: usize,
    /// Number of processes before it that were killed.
    life: usize,
    pub did: Did,
}

/// Reads what strace (`-f -y`) wrote about calls below a root; what failed did nothing. Each log ends with a death, but
/// for the last one.
pub fn calls(logs: &[String], root: &str) -> Vec<Call> {
    let mut all = Vec::new();
    for (life, log) in logs.iter().enumerate() {
        let before = logs[..life].iter().map(|log| log.lines().count()).sum();
        all.extend(calls_of(log, root, life, before));
    }
    all
}

fn calls_of(log: &str, root: &str, life: usize, before: usize) -> Vec<Call> {
    let mut begun: BTreeMap<String, (usize, String)> = BTreeMap::new();
    let mut calls = Vec::new();
    for (number, line) in log.lines().enumerate() {
        let number = before + number;
        let (process, text) = line.split_once(' ').unwrap_or((line, ""));
        let text = text.trim_start();
        if let Some(start) = text.strip_suffix("<unfinished ...>") {
            begun.insert(process.to_owned(), (number, start.trim_end().to_owned()));
            continue;
        }
        let (from, whole) = match text.split_once(" resumed>") {
            Some((_, rest)) if text.starts_with("<... ") => {
                let Some((from, start)) = begun.remove(process) else { continue };
                (from, start + rest)
            }
            _ => (number, text.to_owned()),
        };
        for did in did(&whole) {
            if let Some(did) = below(did, root) {
                calls.push(Call { begun: from, ended: number, life, did });
            }
        }
    }
    calls
}

/// Returns what is in `<>` after descriptors, and what is in quotes, in order.
fn words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find(['<', '"']) {
        let (open, tail) = rest.split_at(at);
        let close = if tail.starts_with('<') { '>' } else { '"' };
        let Some((word, after)) = tail[1..].split_once(close) else { break };
        // A shift or a comparison is no descriptor.
        if close == '"' || open.ends_with(|last: char| last.is_ascii_digit() || last == 'D') {
            words.push(word.to_owned());
        }
        rest = after;
    }
    words
}

fn did(text: &str) -> Vec<Did> {
    let Some((name, rest)) = text.split_once('(') else { return Vec::new() };
    let Some((arguments, result)) = rest.rsplit_once(" = ") else { return Vec::new() };
    if result.starts_with('-') || result.starts_with('?') {
        return Vec::new();
    }
    let words = words(arguments);
    let at = |directory: usize, name: usize| Some(format!("{}/{}", words.get(directory)?, words.get(name)?));
    let done = match name {
        "openat" if arguments.contains("O_CREAT") => at(0, 1).map(Did::Created),
        "write" | "pwrite64" | "writev" | "ftruncate" | "fallocate" | "fchmod" | "fchown" | "fsetxattr"
        | "fremovexattr" => words.first().cloned().map(Did::Changed),
        "fsync" | "fdatasync" => words.first().cloned().map(Did::Synced),
        "mkdirat" => at(0, 1).map(Did::Named),
        "symlinkat" => at(1, 2).map(Did::Named),
        // The owner of a link that was just made.
        "fchownat" => at(0, 1).map(Did::Named),
        "unlinkat" => at(0, 1).map(Did::Removed),
        "renameat" | "renameat2" => at(0, 1).zip(at(2, 3)).map(|(from, to)| Did::Moved { from, to }),
        "openat" => None,
        other => panic!("a call that the agent does not make: {other}: {text}"),
    };
    done.into_iter().collect()
}

fn below(did: Did, root: &str) -> Option<Did> {
    let strip = |path: String| {
        let below = path.strip_prefix(root)?;
        (below.is_empty() || below.starts_with('/'))
            .then(|| if below.is_empty() { "/".to_owned() } else { below.to_owned() })
    };
    Some(match did {
        Did::Created(path) => Did::Created(strip(path)?),
        Did::Changed(path) => Did::Changed(strip(path)?),
        Did::Named(path) => Did::Named(strip(path)?),
        Did::Removed(path) => Did::Removed(strip(path)?),
        Did::Synced(path) => Did::Synced(strip(path)?),
        Did::Moved { from, to } => Did::Moved { from: strip(from)?, to: strip(to)? },
    })
}

fn parent(path: &str) -> String {
    match path.rsplit_once('/') {
        Some(("", _)) | None => "/".to_owned(),
        Some((directory, _)) => directory.to_owned(),
    }
}

/// A temporary name: the next run clears it. So are locks.
fn is_temporary(path: &str) -> bool {
    path.ends_with(".mca-new") || path.ends_with("/lock") || path.ends_with("/.pwd.lock")
}

/// The directories of the originals of single updates, and the one they are in.
fn is_originals(path: &str) -> bool {
    path.starts_with(&format!("{STATE}/preimages")) && !path.ends_with("/kept")
}

fn is_state(path: &str) -> bool {
    path.starts_with(STATE)
}

/// Goes through the calls; returns what was not synced when it had to be.
pub fn faults(calls: &[Call]) -> Vec<String> {
    let mut faults = Vec::new();
    // Unsynced changes, with the call that made them: paths of files and of directories.
    let mut dirty: BTreeMap<String, (usize, usize)> = BTreeMap::new();
    for call in calls {
        let moves_on = match &call.did {
            Did::Moved { to, .. } => {
                is_state(to) && (to.ends_with("/record.json") || to.ends_with("/current.json"))
            }
            Did::Removed(path) => path.ends_with("/record.json") && is_state(path),
            _ => false,
        };
        let touched = match &call.did {
            Did::Moved { to: path, .. } | Did::Named(path) | Did::Removed(path) if !is_temporary(path) => {
                Some(path)
            }
            _ => None,
        };
        let is_over = matches!(call.did, Did::Removed(_));
        let open = |(path, (_, life)): &(&String, &(usize, usize))| match touched {
            // The version that is about to be named is looked at below.
            Some(_) if is_temporary(path) => false,
            // Changes of a dead process have to be synced before its update is over: till then the record names them.
            Some(_) if moves_on && *life == call.life => true,
            // Unused originals are removed next.
            Some(_) if moves_on => is_over && !is_originals(path),
            Some(touched) => is_state(path) && !is_state(touched),
            None => false,
        };
        for (path, _) in dirty.iter().filter(open) {
            faults.push(format!("{path} is not synced before {:?}", call.did));
        }
        match &call.did {
            Did::Changed(path) | Did::Created(path) => {
                dirty.insert(path.clone(), (call.ended, call.life));
            }
            Did::Named(path) if is_temporary(path) => {}
            Did::Named(path) => {
                dirty.insert(parent(path), (call.ended, call.life));
            }
            Did::Moved { from, to } => {
                if let Some(at) = dirty.remove(from) {
                    faults.push(format!("{from} gets its name before it is synced"));
                    dirty.insert(to.clone(), at);
                }
                dirty.insert(parent(from), (call.ended, call.life));
                dirty.insert(parent(to), (call.ended, call.life));
            }
            Did::Removed(path) => {
                dirty.remove(path);
                if !is_temporary(path) {
                    dirty.insert(parent(path), (call.ended, call.life));
                }
            }
            Did::Synced(path) => {
                if dirty.get(path).is_some_and(|(changed, _)| *changed < call.begun) {
                    dirty.remove(path);
                }
            }
        }
    }
    faults.extend(
        dirty
            .keys()
            .filter(|path| !is_temporary(path))
            .map(|path| format!("{path} is not synced at the end")),
    );
    faults
}

/// Takes out each sync that mattered, with those of the same path that would stand in for it; returns the syncs whose
/// absence went unnoticed, and the number of those taken out.
pub fn unnoticed(calls: &[Call]) -> (Vec<Did>, usize) {
    let mut unnoticed = Vec::new();
    let mut taken = 0;
    for (index, call) in calls.iter().enumerate() {
        let Did::Synced(path) = &call.did else { continue };
        let concerns = |other: &&Call| match &other.did {
            Did::Changed(one) | Did::Created(one) => one == path,
            Did::Named(one) | Did::Removed(one) => !is_temporary(one) && parent(one) == *path,
            Did::Moved { from, to } => parent(from) == *path || parent(to) == *path,
            Did::Synced(one) => one == path,
        };
        let before = calls[..index].iter().rev().find(concerns);
        let Some(before) = before.filter(|before| !matches!(before.did, Did::Synced(_))) else { continue };
        let stand_ins = calls[index..].iter().enumerate().filter(|(_, other)| concerns(other));
        let stand_ins: BTreeSet<usize> = stand_ins
            .take_while(|(_, other)| matches!(other.did, Did::Synced(_)))
            .map(|(offset, _)| index + offset)
            .collect();
        let without: Vec<Call> = calls
            .iter()
            .enumerate()
            .filter(|(at, _)| !stand_ins.contains(at))
            .map(|(_, call)| call.clone())
            .collect();
        taken += 1;
        if faults(&without).is_empty() {
            unnoticed.push(before.did.clone());
        }
    }
    (unnoticed, taken)
}
