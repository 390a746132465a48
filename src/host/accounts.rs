//! Accounts of the host: names to numbers, and the password field of one user.
//!
//! The databases below the root are read as text: no process, no NSS of another root. Invariant: of `/etc/shadow` only
//! the one field changes, under the lock that passwd(1) and useradd(8) take; a password never becomes empty.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{FileType, FlockOperation, Mode, OFlags};
use rustix::process::{Flock, FlockOffsetType, FlockType};

use super::HostError;
use super::durable::{self, Attempt, Change, DesiredPath};
use super::error::OPEN;
use super::failpoint::FailPoints;
use super::root::{LaidPath, Missing, Root};
use crate::model::ObservedFile;
use crate::model::users::PasswordHash;

const SHADOW: &str = "/etc/shadow";
const GSHADOW: &str = "/etc/gshadow";
const LOCK: &str = ".pwd.lock";
/// The path of the lock.
pub(in crate::host) const LOCK_PATH: &str = "/etc/.pwd.lock";
/// The field of `/etc/shadow` with the mark of an account.
pub(in crate::host) const MARK: usize = 8;
/// The field of the password, in all databases.
const PASSWORD: usize = 1;
/// The fields of `/etc/gshadow` with the administrators and the members of a group.
const ADMINISTRATORS: usize = 2;
const MEMBERS: usize = 3;
/// The password of a group that the agent made and that has none: one that no password opens (gshadow(5)). groupadd writes another.
pub(in crate::host) const GROUP_MARK: &str = "!machine-config-agent";
/// Other programs hold the lock for no longer.
const MOMENT: Duration = Duration::from_secs(1);
/// lckpwdf(3) gives up after as long.
const LOCK_WAIT: Duration = Duration::from_secs(15);

/// A user of the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    /// The user id.
    pub uid: u32,
    /// The primary group.
    pub gid: u32,
    /// The home directory.
    pub home: String,
    /// The comment.
    pub gecos: String,
    /// The login shell.
    pub shell: String,
    /// It is in `/etc`, where the host's programs change it; others come with the OS image.
    pub is_local: bool,
}

/// A group of the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    /// The group id.
    pub gid: u32,
    /// Its members, those aside whose primary group it is.
    pub members: BTreeSet<String>,
    /// It is in `/etc`.
    pub is_local: bool,
}

/// The users and groups of a root.
#[derive(Debug, Clone, Default)]
pub struct Accounts {
    users: BTreeMap<String, User>,
    groups: BTreeMap<String, Group>,
}

impl Accounts {
    /// Reads `/etc/passwd` and `/etc/group`, and below `/usr/lib` those that come with an ostree image.
    pub fn load(root: &Root) -> Result<Self, HostError> {
        let mut accounts = Self::default();
        for directory in ["/etc", "/usr/lib"] {
            // The first entry of a name counts, as in nsswitch's `files altfiles`.
            for line in text(root, &format!("{directory}/passwd"))?.lines() {
                if let Some((name, user)) = user_of(line, directory == "/etc") {
                    accounts.users.entry(name).or_insert(user);
                }
            }
            for line in text(root, &format!("{directory}/group"))?.lines() {
                if let Some((name, group)) = group_of(line, directory == "/etc") {
                    accounts.add_group(name, group);
                }
            }
        }
        Ok(accounts)
    }

    /// Adds a group. On several lines of one database it has the members of all, as initgroups(3) finds them.
    fn add_group(&mut self, name: String, group: Group) {
        match self.groups.entry(name) {
            Entry::Vacant(entry) => drop(entry.insert(group)),
            Entry::Occupied(mut entry) => {
                let found = entry.get_mut();
                if (found.gid, found.is_local) == (group.gid, group.is_local) {
                    found.members.extend(group.members);
                }
            }
        }
    }

    /// Returns a user.
    pub fn user(&self, name: &str) -> Option<&User> {
        self.users.get(name)
    }

    /// Returns every user with its name.
    pub fn users(&self) -> impl Iterator<Item = (&String, &User)> {
        self.users.iter()
    }

    /// Returns every group with its name.
    pub fn groups(&self) -> impl Iterator<Item = (&String, &Group)> {
        self.groups.iter()
    }

    /// Returns a group's number.
    pub fn group(&self, name: &str) -> Option<u32> {
        self.groups.get(name).map(|group| group.gid)
    }

    /// Returns a group with its members.
    pub fn group_entry(&self, name: &str) -> Option<&Group> {
        self.groups.get(name)
    }

    /// Returns the name of a user id.
    pub fn user_name(&self, uid: u32) -> Option<&str> {
        self.users.iter().find(|(_, user)| user.uid == uid).map(|(name, _)| name.as_str())
    }

    /// Returns the name of a group id.
    pub fn group_name(&self, gid: u32) -> Option<&str> {
        self.groups.iter().find(|(_, group)| group.gid == gid).map(|(name, _)| name.as_str())
    }

    /// Returns the groups that a user is a member of, its primary one aside.
    pub fn groups_of(&self, user: &str) -> BTreeSet<String> {
        let member = self.groups.iter().filter(|(_, group)| group.members.contains(user));
        member.map(|(name, _)| name.clone()).collect()
    }

    /// Returns true if a group is the primary one of a user.
    pub fn is_primary(&self, gid: u32) -> bool {
        self.users.values().any(|user| user.gid == gid)
    }
}

/// Reads a database. A comment in another encoding than UTF-8 is nobody's fault.
fn text(root: &Root, path: &str) -> Result<String, HostError> {
    Ok(String::from_utf8_lossy(&root.read(path)?.unwrap_or_default()).into_owned())
}

fn group_of(line: &str, is_local: bool) -> Option<(String, Group)> {
    let mut fields = line.split(':');
    let name = fields.next().filter(|name| !name.is_empty())?;
    let gid = fields.nth(1)?.parse().ok()?;
    let members = fields.next().unwrap_or_default().split(',').filter(|member| !member.is_empty());
    Some((name.to_owned(), Group { gid, members: members.map(str::to_owned).collect(), is_local }))
}

fn user_of(line: &str, is_local: bool) -> Option<(String, User)> {
    let mut fields = line.split(':');
    let name = fields.next().filter(|name| !name.is_empty())?;
    let uid = fields.nth(1)?.parse().ok()?;
    let gid = fields.next()?.parse().ok()?;
    let gecos = fields.next()?.to_owned();
    let home = without_empty_parts(fields.next()?);
    let shell = fields.next().unwrap_or_default().to_owned();
    Some((name.to_owned(), User { uid, gid, home, gecos, shell, is_local }))
}

/// Returns the password field of a user; `None` when `/etc/shadow` has no entry.
pub fn password(root: &Root, user: &str) -> Result<Option<PasswordHash>, HostError> {
    let shadow = root.read(SHADOW)?.unwrap_or_default();
    let field = field_of(&shadow, user).and_then(|range| shadow.get(range));
    Ok(field.and_then(|field| PasswordHash::new(String::from_utf8_lossy(field).into_owned())))
}

/// Returns the error of an account that an administrator has locked, and that an update would open.
pub fn locked_by_hand(user: &str) -> HostError {
    let path = format!("the password of the account {user}");
    HostError::Kind { path, expected: OPEN, found: "locked on this host" }
}

/// Sets the password field of a user, durably. A field that is right is not written.
pub fn set_password(
    root: &Root,
    user: &str,
    hash: &PasswordHash,
    run: Attempt,
    fail_points: &FailPoints,
) -> Result<(), HostError> {
    if run == Attempt::First && password(root, user)?.as_ref() == Some(hash) {
        return Ok(());
    }
    let lock = lock(root)?;
    let shadow = root.read(SHADOW)?.unwrap_or_default();
    let missing =
        || HostError::UnknownAccount { kind: "the /etc/shadow entry of user", name: user.to_owned() };
    let bytes = with_password(&shadow, user, hash).ok_or_else(missing)?;
    linked(root, SHADOW)?.map_or(Ok(()), Err)?;
    let (mode, uid, gid) = root.dress_of(SHADOW)?.ok_or_else(missing)?;
    let change = Change::new(SHADOW, uid, DesiredPath::edited(&bytes, mode, uid, gid));
    let done = durable::apply_changes(root, std::slice::from_ref(&change), run, fail_points);
    drop(lock);
    done.map(|_| ())
}

/// Returns why a database that is a link is not written: the mode of a link is everybody's, and a file in its place would have it.
pub(in crate::host) fn linked(root: &Root, path: &str) -> Result<Option<HostError>, HostError> {
    let is_link = matches!(root.observe(path)?, ObservedFile::Symlink { .. });
    let error = || HostError::Kind { path: path.to_owned(), expected: "a file", found: "a link" };
    Ok(is_link.then(error))
}

/// Returns `/etc/shadow` with another password of a user; `None` if he has no line there.
fn with_password(shadow: &[u8], user: &str, hash: &PasswordHash) -> Option<Vec<u8>> {
    let range = field_of(shadow, user)?;
    let (before, after) = (shadow.get(..range.start), shadow.get(range.end..));
    Some([before.unwrap_or_default(), hash.as_str().as_bytes(), after.unwrap_or_default()].concat())
}

/// Returns `/etc/shadow` as it will be with another password of a user.
pub fn laid_password(
    root: &Root,
    user: &str,
    hash: &PasswordHash,
) -> Result<Option<(String, LaidPath)>, HostError> {
    let (shadow, dress) = (root.read(SHADOW)?.unwrap_or_default(), root.dress_of(SHADOW)?);
    let bytes = with_password(&shadow, user, hash).zip(dress);
    Ok(bytes.map(|(bytes, (mode, uid, gid))| (SHADOW.to_owned(), LaidPath::File { bytes, mode, uid, gid })))
}

/// Finds the second field of a user's line.
fn field_of(shadow: &[u8], user: &str) -> Option<std::ops::Range<usize>> {
    let mut start = 0;
    for line in shadow.split_inclusive(|byte| *byte == b'\n') {
        let name_end = line.iter().position(|byte| *byte == b':');
        if let Some(name_end) = name_end.filter(|end| line.get(..*end) == Some(user.as_bytes())) {
            let field = line.get(name_end + 1..)?;
            let length = field.iter().position(|byte| *byte == b':')?;
            return Some(start + name_end + 1..start + name_end + 1 + length);
        }
        start += line.len();
    }
    None
}

/// Returns a path without empty parts and `.`: `//home/./a` is `/home/a` to every program.
fn without_empty_parts(path: &str) -> String {
    let parts: Vec<&str> = path.split('/').filter(|part| !["", "."].contains(part)).collect();
    let is_absolute = path.starts_with('/');
    if parts.is_empty() {
        return if is_absolute { "/".to_owned() } else { path.to_owned() };
    }
    let (first, last) = (if is_absolute { "/" } else { "" }, if path.ends_with('/') { "/" } else { "" });
    format!("{first}{}{last}", parts.join("/"))
}

/// The marks of the accounts and groups of a root.
///
/// That of an account is the ninth and last field of its line in `/etc/shadow`, which no program uses and all keep (shadow(5),
/// "reserved"; the day of the expiry is the eighth). Only pwunconv(8) drops it, of all accounts. That of a group is its password field in
/// `/etc/gshadow`, which groupadd writes otherwise.
#[derive(Debug)]
pub struct Marks {
    users: BTreeMap<String, Option<u32>>,
    groups: BTreeMap<String, Vec<u8>>,
}

impl Marks {
    /// Reads them.
    pub fn load(root: &Root) -> Result<Self, HostError> {
        let (shadow, gshadow) = (or_none(root.read(SHADOW))?, or_none(root.read(GSHADOW))?);
        let (mut users, mut groups) = (BTreeMap::new(), BTreeMap::new());
        for (name, field) in marked(&shadow, MARK) {
            users
                .entry(name)
                .or_insert_with(|| std::str::from_utf8(field).ok().and_then(|text| text.parse().ok()));
        }
        for (name, field) in marked(&gshadow, PASSWORD) {
            groups.entry(name).or_insert_with(|| field.to_vec());
        }
        Ok(Self { users, groups })
    }

    /// Returns the mark of an account; `None` when it has no line, `Some(None)` when the field holds no number.
    pub fn user(&self, name: &str) -> Option<Option<u32>> {
        self.users.get(name).copied()
    }

    /// Returns the mark of a group; `None` when it has no line.
    pub fn group(&self, name: &str) -> Option<&[u8]> {
        self.groups.get(name).map(Vec::as_slice)
    }

    /// Returns true if one account alone has a mark.
    pub(in crate::host) fn is_alone(&self, uid: u32) -> bool {
        self.users.values().filter(|mark| **mark == Some(uid)).count() == 1
    }

    /// Returns the account that has a mark.
    pub fn marked_user(&self, uid: u32) -> Option<&String> {
        self.users.iter().find(|(_, mark)| **mark == Some(uid)).map(|(name, _)| name)
    }
}

/// Returns the members of a group, and its administrators.
pub fn people_of_group(root: &Root, found: &Group, group: &str) -> Result<BTreeSet<String>, HostError> {
    let gshadow = or_none(root.read(GSHADOW))?;
    let mut people = found.members.clone();
    for place in [ADMINISTRATORS, MEMBERS] {
        for (_, field) in marked(&gshadow, place).filter(|(name, _)| name == group) {
            let names = String::from_utf8_lossy(field);
            people.extend(names.split(',').filter(|name| !name.is_empty()).map(str::to_owned));
        }
    }
    Ok(people)
}

/// Takes a database that is no file, or that this user may not read, for one without marks: it is an obstacle of the steps that need it.
fn or_none(read: Result<Option<Vec<u8>>, HostError>) -> Result<Vec<u8>, HostError> {
    match read {
        Err(HostError::Kind { .. }) => Ok(Vec::new()),
        Err(error) if error.is_denied() => Ok(Vec::new()),
        read => Ok(read?.unwrap_or_default()),
    }
}

/// Returns a field of each line of a database, by name.
fn marked(bytes: &[u8], place: usize) -> impl Iterator<Item = (String, &[u8])> {
    bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).map(move |line| {
        let mut fields = line.split(|byte| *byte == b':');
        let name = String::from_utf8_lossy(fields.next().unwrap_or_default()).into_owned();
        (name, line.split(|byte| *byte == b':').nth(place).unwrap_or_default())
    })
}

/// Returns the mark of an account that the agent made ([`Marks::user`]).
pub fn mark(root: &Root, user: &str) -> Result<Option<Option<u32>>, HostError> {
    Ok(Marks::load(root)?.user(user))
}

/// Returns the mark of a group that the agent made ([`Marks::group`]).
pub fn group_mark(root: &Root, group: &str) -> Result<Option<Vec<u8>>, HostError> {
    Ok(Marks::load(root)?.group(group).map(<[u8]>::to_vec))
}

/// Takes the lock of lckpwdf(3). It goes with the returned descriptor.
pub(crate) fn lock(root: &Root) -> Result<OwnedFd, HostError> {
    let failed = |errno: rustix::io::Errno| HostError::io("lock", LOCK_PATH, errno);
    let Some(etc) = root.walk("/etc", 0, Missing::Make, &mut Vec::new())? else {
        return Err(failed(rustix::io::Errno::NOENT));
    };
    let fd = open_lock(&etc, OFlags::CREATE)?.ok_or_else(|| failed(rustix::io::Errno::NOENT))?;
    wait(fd, LOCK_WAIT)
}

/// Opens the lock file; `None` if there is none. Something else in its place is no lock, and a pipe is not waited for.
fn open_lock(etc: impl AsFd, more: OFlags) -> Result<Option<OwnedFd>, HostError> {
    let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK | more;
    let kind = |found| HostError::Kind { path: LOCK_PATH.to_owned(), expected: "a regular file", found };
    let failed = |errno: rustix::io::Errno| HostError::io("lock", LOCK_PATH, errno);
    let fd = match rustix::fs::openat(etc, LOCK, flags, Mode::RUSR | Mode::WUSR) {
        Err(rustix::io::Errno::NOENT) => return Ok(None),
        Err(rustix::io::Errno::ISDIR) => return Err(kind("a directory")),
        Err(rustix::io::Errno::LOOP) => return Err(kind("a symbolic link")),
        Err(rustix::io::Errno::NXIO) => return Err(kind("a pipe or a socket")),
        opened => opened.map_err(failed)?,
    };
    let stat = rustix::fs::fstat(&fd).map_err(failed)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(kind("a special file"));
    }
    Ok(Some(fd))
}

/// Returns the process that holds the lock of lckpwdf(3) for longer than a moment. Makes no lock file.
pub(in crate::host) fn lock_holder(root: &Root) -> Result<Option<i32>, HostError> {
    let failed = |errno: rustix::io::Errno| HostError::io("inspect", LOCK_PATH, errno);
    let Ok((etc, true)) = root.walk_existing("/etc", 0) else { return Ok(None) };
    let Some(fd) = open_lock(&etc, OFlags::empty())? else { return Ok(None) };
    let whole = Flock {
        start: 0,
        length: 0,
        pid: None,
        typ: FlockType::WriteLock,
        offset_type: FlockOffsetType::Set,
    };
    let Some(held) = rustix::process::fcntl_getlk(&fd, &whole).map_err(failed)? else { return Ok(None) };
    match wait(fd, MOMENT) {
        Ok(_) => Ok(None),
        Err(HostError::Timeout { .. }) => Ok(Some(held.pid.map_or(0, |pid| pid.as_raw_nonzero().get()))),
        Err(error) => Err(error),
    }
}

fn wait(fd: OwnedFd, limit: Duration) -> Result<OwnedFd, HostError> {
    let failed = |errno: rustix::io::Errno| HostError::io("lock", LOCK_PATH, errno);
    let (send, receive) = mpsc::channel();
    // fcntl(2) waits without a limit: it waits in a thread of its own. Should we give up, the thread's lock goes with
    // its descriptor when it is granted at last.
    let wait = move || {
        let locked = rustix::fs::fcntl_lock(&fd, FlockOperation::LockExclusive).map(|()| fd);
        drop(send.send(locked));
    };
    let spawned = thread::Builder::new().name("lckpwdf".to_owned()).spawn(wait);
    spawned.map_err(|source| HostError::io("lock", LOCK_PATH, source))?;
    match receive.recv_timeout(limit) {
        Ok(locked) => locked.map_err(failed),
        Err(_) => Err(HostError::Timeout {
            object: format!("the holder of the lock {LOCK_PATH}"),
            seconds: limit.as_secs(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root_with(files: &[(&str, &str)]) -> (tempfile::TempDir, Root) {
        let dir = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = dir.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let root = Root::open(dir.path()).unwrap();
        (dir, root)
    }

    #[test]
    fn names_come_from_both_databases_and_etc_wins() {
        let (_dir, root) = root_with(&[
            (
                "etc/passwd",
                "root:x:0:0:root:/root:/bin/bash\ncore:x:1000:1001::/var/home/core:/bin/bash\nbroken\n",
            ),
            ("usr/lib/passwd", "core:x:5:5::/x:/y\nchrony:x:992:989::/var/lib/chrony:/sbin/nologin\n"),
            ("etc/group", "wheel:x:10:ann\nadm:x:4:\nwheel:x:10:core\nwheel:x:11:eve\n"),
            ("usr/lib/group", "chrony:x:989:\nwheel:x:10:cid\n"),
        ]);
        let accounts = Accounts::load(&root).unwrap();
        let core = accounts.user("core").unwrap();
        assert_eq!((core.uid, core.gid, core.home.as_str()), (1000, 1001, "/var/home/core"));
        assert_eq!((core.shell.as_str(), core.is_local), ("/bin/bash", true));
        assert_eq!(accounts.user("chrony").unwrap().uid, 992);
        assert_eq!(accounts.group("chrony"), Some(989));
        let members = &accounts.group_entry("wheel").unwrap().members;
        assert_eq!(members.iter().collect::<Vec<_>>(), ["ann", "core"], "of both lines with its number");
        assert_eq!(accounts.user("broken"), None);
    }

    #[test]
    fn homes_are_known_by_their_plain_names() {
        for (path, plain) in [
            ("//home/./core/", "/home/core/"),
            ("/home/core/.", "/home/core"),
            ("/./", "/"),
            ("/.hidden/..", "/.hidden/.."),
            ("", ""),
            (".", "."),
            ("home//a", "home/a"),
        ] {
            assert_eq!(without_empty_parts(path), plain, "{path}");
        }
    }

    /// MCD-162: the same hash again changes nothing.
    #[test]
    fn only_password_field_changes() {
        let (dir, root) = root_with(&[("etc/shadow", "root:!:1:0\ncore:*:19000:0:99999:7:::\ncorey:x:2\n")]);
        let hash = PasswordHash::new("$6$salt$hash").unwrap();
        for _ in 0..2 {
            set_password(&root, "core", &hash, Attempt::First, &FailPoints::off()).unwrap();
            let text = std::fs::read_to_string(dir.path().join("etc/shadow")).unwrap();
            assert_eq!(text, "root:!:1:0\ncore:$6$salt$hash:19000:0:99999:7:::\ncorey:x:2\n");
        }
        assert_eq!(password(&root, "core").unwrap(), Some(hash.clone()));
        assert_eq!(password(&root, "nobody").unwrap(), None);
        let error = set_password(&root, "nobody", &hash, Attempt::First, &FailPoints::off()).unwrap_err();
        assert!(!error.to_string().contains("$6$"), "{error}");
    }
}
