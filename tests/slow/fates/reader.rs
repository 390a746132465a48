//! Reads a host without the agent: `stat`, the lines of the account databases, and systemd's own `systemctl`.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::entry::Check;

/// One path: kind, mode, owner, contents or target; inode and time of the last change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    pub kind: &'static str,
    pub mode: u32,
    pub owner: (u32, u32),
    pub bytes: Vec<u8>,
    pub written: (u64, i64, i64),
}

pub type Listing = BTreeMap<String, Seen>;

/// Lists a host but for the agent's own state, and what locks and backups of the account programs leave.
pub fn listing(root: &Path) -> Listing {
    let mut seen = Listing::new();
    list(root, "", &mut seen);
    seen
}

fn is_left_out(path: &str) -> bool {
    let own =
        ["/var/lib/machine-config-agent", "/run", "/etc/machine-config-daemon", "/proc", "/etc/.pwd.lock"];
    let is_backup = ["passwd-", "group-", "shadow-", "gshadow-", "subuid-", "subgid-"];
    own.contains(&path) || is_backup.iter().any(|name| path == format!("/etc/{name}"))
}

fn list(root: &Path, below: &str, seen: &mut Listing) {
    for entry in fs::read_dir(root.join(below.trim_start_matches('/'))).unwrap() {
        let entry = entry.unwrap();
        let path = format!("{below}/{}", entry.file_name().to_str().unwrap());
        if is_left_out(&path) {
            continue;
        }
        let stat = fs::symlink_metadata(entry.path()).unwrap();
        let (kind, bytes) = if stat.is_dir() {
            list(root, &path, seen);
            ("directory", vec![])
        } else if stat.is_symlink() {
            ("link", fs::read_link(entry.path()).unwrap().to_str().unwrap().as_bytes().to_vec())
        } else if stat.is_file() {
            ("file", fs::read(entry.path()).unwrap())
        } else {
            ("special", vec![])
        };
        let written = (stat.ino(), stat.mtime(), stat.mtime_nsec());
        seen.insert(
            path,
            Seen { kind, mode: stat.mode() & 0o7777, owner: (stat.uid(), stat.gid()), bytes, written },
        );
    }
}

/// Returns the fields of a line of a database.
pub fn line(root: &Path, database: &str, name: &str) -> Option<Vec<String>> {
    let text = fs::read_to_string(root.join("etc").join(database)).unwrap_or_default();
    let line = text.lines().find(|line| line.split(':').next() == Some(name))?;
    Some(line.split(':').map(str::to_owned).collect())
}

fn id(root: &Path, database: &str, name: &str) -> Option<u32> {
    name.parse().ok().or_else(|| line(root, database, name)?.get(2)?.parse().ok())
}

/// Where a path of the host is: homes may be in `/var`.
fn at(root: &Path, path: &str) -> PathBuf {
    match (path.strip_prefix("/home/"), root.join("home").is_symlink()) {
        (Some(rest), true) => root.join("var/home").join(rest),
        _ => root.join(path.trim_start_matches('/')),
    }
}

fn same<T: PartialEq + std::fmt::Debug>(found: T, desired: T) -> Result<(), String> {
    if found == desired { Ok(()) } else { Err(format!("found {found:?}, not {desired:?}")) }
}

/// Looks at the host for one fact.
pub fn confirm(root: &Path, check: &Check) -> Result<(), String> {
    let stat = |path: &str| fs::symlink_metadata(at(root, path)).map_err(|error| error.to_string());
    let is = |is: bool, why: &str| if is { Ok(()) } else { Err(why.to_owned()) };
    let user = |name: &str| line(root, "passwd", name).ok_or("no such account".to_owned());
    let primary = |name: &str| -> Result<String, String> {
        let gid = user(name)?[3].clone();
        let text = fs::read_to_string(root.join("etc/group")).unwrap();
        let of = text.lines().find(|line| line.split(':').nth(2) == Some(&gid));
        Ok(of.and_then(|line| line.split(':').next()).unwrap_or_default().to_owned())
    };
    match check {
        Check::Text(path, bytes) => {
            is(stat(path)?.is_file(), "no file")?;
            same(fs::read(at(root, path)).unwrap(), bytes.clone())
        }
        Check::Mode(path, mode) => same(format!("{:o}", stat(path)?.mode() & 0o7777), format!("{mode:o}")),
        Check::User(path, name) => same(Some(stat(path)?.uid()), id(root, "passwd", name)),
        Check::Group(path, name) => same(Some(stat(path)?.gid()), id(root, "group", name)),
        Check::Directory(path) => is(stat(path)?.is_dir(), "no directory"),
        Check::Link(path, target) => {
            is(stat(path)?.is_symlink(), "no link")?;
            same(fs::read_link(at(root, path)).unwrap().to_str(), Some(target.as_str()))
        }
        Check::SameFile(one, other) => same(stat(one)?.ino(), stat(other)?.ino()),
        Check::State(unit, state) => same(is_enabled(root, unit).as_str(), state),
        Check::Passwd(name, column, value) => same(&user(name)?[*column], value),
        Check::Shadow(database, name, hash) => {
            // Without `/etc/gshadow` the password of a group is in its own line.
            let is_shadowed = root.join("etc").join(database).exists();
            let database = if is_shadowed { database } else { &"group" };
            let fields = line(root, database, name).ok_or("no line")?;
            // Each mark that no password hashes to locks alike.
            let plain =
                |hash: &str| if hash.starts_with(['*', '!']) { "*".to_owned() } else { hash.to_owned() };
            same(plain(&fields[1]), plain(hash))
        }
        Check::Member(name, group) => {
            let members = line(root, "group", group).ok_or("no such group")?[3].clone();
            is(members.split(',').any(|member| member == name) || primary(name)? == *group, "no member")
        }
        Check::Primary(name, group) => same(&primary(name)?, group),
        Check::OwnGroup(name, is_own) => same(primary(name)? == *name, *is_own),
        Check::Keys(name, keys) => keys_of(root, &user(name)?, keys),
        Check::Home(name) => {
            let user = user(name)?;
            let stat = stat(&user[5])?;
            is(stat.is_dir(), "no directory")?;
            same(stat.uid().to_string(), user[2].clone())
        }
        Check::NoHome(name) => is(stat(&user(name)?[5]).is_err(), "there is a home"),
        Check::Gid(name, gid) => {
            let found = line(root, "group", name).ok_or("no such group")?[2].clone();
            is(*gid == 0 || found == gid.to_string(), &format!("gid {found}"))
        }
        Check::NoUser(name) => {
            let locked = line(root, "shadow", name);
            is(locked.is_none_or(|line| line[1].starts_with(['*', '!']) && line[7] == "1"), "it is open")
        }
        Check::NoGroup(name) => is(line(root, "group", name).is_none(), "it is there"),
    }
}

fn keys_of(root: &Path, user: &[String], keys: &[String]) -> Result<(), String> {
    let path = at(root, &user[5]).join(".ssh/authorized_keys.d/ignition");
    let text = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    same(text.lines().collect::<Vec<_>>(), keys.iter().map(String::as_str).collect())?;
    let stat = fs::symlink_metadata(&path).unwrap();
    same((stat.mode() & 0o7777, stat.uid().to_string()), (0o600, user[2].clone()))
}

/// What systemd's own program says.
pub fn is_enabled(root: &Path, unit: &str) -> String {
    let root = format!("--root={}", root.display());
    let output = Command::new("systemctl").args([&root, "is-enabled", unit]).output().unwrap();
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}
