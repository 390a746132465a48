//! Obstacles of accounts and groups, seen before a change. Writes nothing.
//!
//! useradd, usermod and groupadd of shadow-utils 4.13 refuse a database that is immutable or beside a lock file that holds no
//! process id, or that of a running process; a lock file of a process that has ended is taken over. A home that is there is
//! left as it is, whatever it is.

use std::collections::BTreeMap;

use rustix::process::Pid;

use super::account_ids::number;
use super::account_layout::{head, is_of};
use super::account_programs::{DATABASES, DEFAULTS, LOGIN_DEFS, default_home, default_of, plain};
use super::accounts::{Accounts, LOCK_PATH, lock_holder};
use super::durable::{Change, DesiredPath, examine, fixed_at};
use super::root::Root;
use super::{HostError, keys};
use crate::model::obstacles::Space;
use crate::model::text::{shell_word, shown};
use crate::model::users::{Account, Users, group_field, groups_field, user_field};
use crate::model::{ObservedFile, Obstacle};

const PASSWD: &str = "/etc/passwd";
const SHADOW: &str = "/etc/shadow";
const GROUP: &str = "/etc/group";
const GSHADOW: &str = "/etc/gshadow";
/// As much of a name is shown.
const MAX_NAME: usize = 64;
/// A block of most file systems.
const BLOCK: u64 = 4096;
/// More of a skeleton is not looked at.
const MOST_COPIED: u64 = 1000;
const MAX_DEPTH: u32 = 8;

/// Returns the databases that can't be written.
pub fn databases(root: &Root) -> Result<BTreeMap<String, Obstacle>, HostError> {
    let mut found = BTreeMap::new();
    for path in DATABASES {
        let change = Change::new(path, 0, DesiredPath::file(&[], 0, 0, 0));
        let obstacle = match examine(root, &change)?.obstacle {
            None => plain(root, path)?.map(|error| (&error).into()),
            obstacle => obstacle,
        };
        found.extend(obstacle.map(|obstacle| (path.to_owned(), obstacle)));
    }
    Ok(found)
}

/// Returns the databases that are links below a root of another machine.
pub fn links(root: &Root) -> Result<BTreeMap<String, Obstacle>, HostError> {
    let mut found = BTreeMap::new();
    for path in DATABASES.into_iter().filter(|_| !root.is_machine()) {
        found.extend(plain(root, path)?.map(|error| (path.to_owned(), (&error).into())));
    }
    Ok(found)
}

/// Returns the databases that are no files: the agent reads all of them to edit one.
pub fn unreadable(root: &Root) -> Result<BTreeMap<String, Obstacle>, HostError> {
    let mut found = BTreeMap::new();
    for path in DATABASES {
        found.extend(no_file(root, path)?.map(|obstacle| (path.to_owned(), obstacle)));
    }
    Ok(found)
}

/// Returns the obstacle of a directory of the databases that gives new files an access list: useradd, usermod and groupadd of
/// shadow-utils 4.13 write each database, and its backup, as a new file that keeps the list.
pub fn inherited_list(root: &Root) -> Result<Option<Obstacle>, HostError> {
    let obstacle = || {
        Obstacle {
        cause: "/etc has a default access list (getfacl /etc), which useradd, usermod and groupadd would pass on to /etc/shadow and \
                the other account databases, so that others could read them"
            .to_owned(),
        next: "Remove it (setfacl -k /etc).".to_owned(),
    }
    };
    Ok(root.has_default_list("/etc")?.then(obstacle))
}

/// Returns the obstacle of a settings file that the programs would not read, or wait for without an end.
pub fn defaults(root: &Root) -> Result<Option<Obstacle>, HostError> {
    for path in [LOGIN_DEFS, DEFAULTS] {
        if let Some(obstacle) = no_file(root, path)? {
            return Ok(Some(obstacle));
        }
    }
    Ok(None)
}

/// Returns the accounts and groups with several lines in a database, or with one that is not valid, by field: the programs add another
/// line beside that, and usermod and groupmod refuse several.
pub fn unfit_lines(root: &Root, users: &[&Users]) -> Result<BTreeMap<String, Obstacle>, HostError> {
    let (mut found, splits) = (BTreeMap::new(), splits_groups(root)?);
    for database in DATABASES.into_iter().take(4) {
        let bytes = root.read(database)?.unwrap_or_default();
        let lines = |name: &str| -> Vec<&[u8]> {
            let of = |line: &&[u8]| {
                let rest = line.strip_prefix(name.as_bytes());
                rest.is_some_and(|rest| rest.is_empty() || rest.first() == Some(&b':'))
            };
            bytes.split(|byte| *byte == b'\n').filter(of).collect()
        };
        let accounts = users.iter().flat_map(|users| users.accounts.keys());
        let groups = users.iter().flat_map(|users| users.groups.keys());
        let fields = accounts
            .map(|name| (name, user_field(name.as_str())))
            .chain(groups.map(|name| (name, group_field(name.as_str()))));
        for (name, field) in fields {
            let lines = lines(name.as_str());
            let (cause, next) = if is_repeated(database, &lines, splits) {
                (format!("{database} has several lines of {name}"), "Remove all but one")
            } else if lines.iter().any(|line| !is_valid(database, line)) {
                let page = database.trim_start_matches("/etc/");
                let cause = format!("{database} has a line of {name} that is not valid ({page}(5))");
                (cause, "Correct or remove it")
            } else {
                continue;
            };
            let next = format!("{next} (grep '^{name}' {database}; pwck and grpck find others).");
            found.insert(field, Obstacle { cause, next });
        }
    }
    Ok(found)
}

/// Returns the accounts that join a group which stands on several lines, by field: usermod and useradd refuse such a one, but for
/// lines of `/etc/group` that shadow-utils has split itself.
pub fn repeated_groups(
    root: &Root,
    known: &Accounts,
    users: &Users,
) -> Result<BTreeMap<String, Obstacle>, HostError> {
    let (mut found, mut databases) = (BTreeMap::new(), Vec::new());
    for database in [GROUP, GSHADOW] {
        databases.push((database, root.read(database)?.unwrap_or_default()));
    }
    let splits = splits_groups(root)?;
    for (name, account) in users.accounts.iter().filter(|(_, account)| account.should_exist) {
        for group in new_groups(known, name.as_str(), account) {
            let has_several = |(database, bytes): &&(&str, Vec<u8>)| {
                let own = bytes.split(|byte| *byte == b'\n').filter(|line| is_of(line, group));
                is_repeated(database, &own.collect::<Vec<_>>(), splits)
            };
            let Some((database, _)) = databases.iter().find(has_several) else { continue };
            let editor = if *database == GROUP { "vigr" } else { "vigr -s" };
            let cause =
                format!("{database} has several lines of the group {group}, so usermod adds no member");
            let next = format!(
                "Join them in one line with the members of all ({editor}; grep '^{group}:' {database}; grpck finds others)."
            );
            found.entry(groups_field(name.as_str())).or_insert(Obstacle { cause, next });
        }
    }
    Ok(found)
}

/// Returns true if shadow-utils splits large groups over several lines, and joins them again when it changes one.
fn splits_groups(root: &Root) -> Result<bool, HostError> {
    let defaults = match root.read(LOGIN_DEFS) {
        // What is no file is an obstacle of its own.
        Err(HostError::Kind { .. }) => Vec::new(),
        read => read?.unwrap_or_default(),
    };
    let most = number(&String::from_utf8_lossy(&defaults), "MAX_MEMBERS_PER_GROUP");
    Ok(most.is_some_and(|most| most > 0))
}

/// Returns true if a name has several lines that shadow-utils has not split itself.
fn is_repeated(database: &str, lines: &[&[u8]], splits: bool) -> bool {
    let is_split = splits && database == GROUP && lines.windows(2).all(is_same_head);
    lines.len() > 1 && !is_split
}

fn is_same_head(lines: &[&[u8]]) -> bool {
    let [one, other] = lines else { return true };
    head(one) == head(other)
}

/// Returns true if shadow-utils reads a line of a database.
fn is_valid(database: &str, line: &[u8]) -> bool {
    let line = String::from_utf8_lossy(line);
    let fields: Vec<&str> = line.split(':').collect();
    let is_id = |at: usize| fields.get(at).is_some_and(|field| field.parse::<u32>().is_ok());
    match database {
        "/etc/passwd" => fields.len() == 7 && is_id(2) && is_id(3),
        "/etc/group" => fields.len() >= 3 && is_id(2),
        "/etc/gshadow" => fields.len() == 4,
        // The shorter forms are those of old systems.
        _ => {
            let is_number = |field: &&str| field.is_empty() || field.parse::<i64>().is_ok();
            [5, 8, 9].contains(&fields.len()) && fields.iter().skip(2).all(is_number)
        }
    }
}

/// Returns the databases that useradd, usermod and groupadd can't read to their end, by path: with a NUL in a line, and `/etc/shadow` with a
/// number that is too long. With a prefix they read that line for ever (glibc's fgetspent(3) fails with ERANGE, as for a buffer that is
/// too small).
pub fn endless(root: &Root) -> Result<BTreeMap<String, Obstacle>, HostError> {
    let mut found = BTreeMap::new();
    for database in DATABASES {
        let bytes = root.read(database)?.unwrap_or_default();
        let page = database.trim_start_matches("/etc/");
        // The last line may lack its end: there they see no NUL.
        let mut lines = bytes.split_inclusive(|byte| *byte == b'\n').filter(|line| line.ends_with(b"\n"));
        let obstacle = if let Some(at) = lines.position(|line| line.contains(&0)) {
            let cause = format!("{database} has a NUL byte in line {}", at.saturating_add(1));
            Obstacle { cause, next: format!("Remove it ({page}(5); grep -naP '\\x00' {database}).") }
        } else if let Some(obstacle) = control_character(database, &bytes) {
            obstacle
        } else if let Some(line) = too_long_number(database, &bytes) {
            let name = shown(line.split(':').next().unwrap_or_default(), MAX_NAME);
            let cause = format!("{database} has a number that is too long, in the line of {name}");
            Obstacle { cause, next: "Correct it (shadow(5); vipw -s).".to_owned() }
        } else {
            continue;
        };
        found.insert(database.to_owned(), obstacle);
    }
    Ok(found)
}

/// Returns the first control character of a database whose lines useradd and usermod write anew: they refuse to write one. A tab is in the
/// way in a line that they change alone ([`tabs`]).
fn control_character(database: &str, bytes: &[u8]) -> Option<Obstacle> {
    let is_written = [PASSWD, GROUP, GSHADOW].contains(&database);
    let mut lines = bytes.split(|byte| *byte == b'\n').enumerate().filter(|_| is_written);
    lines.find_map(|(at, line)| {
        let found = line.iter().find(|byte| byte.is_ascii_control() && **byte != b'\t')?;
        Some(control_obstacle(database, at, *found))
    })
}

/// Returns the accounts that usermod would change, or add to a group, in a line with a tab, by field.
pub fn tabs(root: &Root, known: &Accounts, users: &Users) -> Result<BTreeMap<String, Obstacle>, HostError> {
    let (mut found, mut databases) = (BTreeMap::new(), Vec::new());
    for database in [PASSWD, GROUP, GSHADOW] {
        databases.push((database, root.read(database)?.unwrap_or_default()));
    }
    let in_lines = |is_database: fn(&str) -> bool, name: &str| {
        let mut of = databases.iter().filter(|(database, _)| is_database(database));
        of.find_map(|(database, bytes)| tab_of(database, bytes, name))
    };
    for (name, account) in users.accounts.iter().filter(|(_, account)| account.should_exist) {
        let name = name.as_str();
        let own = in_lines(|database| database == PASSWD, name);
        found.extend(own.map(|obstacle| (user_field(name), obstacle)));
        let mut joined = new_groups(known, name, account);
        let tab = joined.find_map(|group| in_lines(|database| database != PASSWD, group));
        found.extend(tab.map(|obstacle| (groups_field(name), obstacle)));
    }
    Ok(found)
}

/// Returns the groups that an account is to join.
fn new_groups<'a>(
    known: &'a Accounts,
    name: &'a str,
    account: &'a Account,
) -> impl Iterator<Item = &'a String> {
    let now = known.groups_of(name);
    let primary = known.user(name).and_then(|user| known.group_name(user.gid));
    account.groups.iter().filter(move |group| !now.contains(*group) && primary != Some(group.as_str()))
}

fn tab_of(database: &str, bytes: &[u8], name: &str) -> Option<Obstacle> {
    let mut lines = bytes.split(|byte| *byte == b'\n').enumerate();
    let at = lines.find(|(_, line)| is_of(line, name) && line.contains(&b'\t')).map(|(at, _)| at)?;
    Some(control_obstacle(database, at, b'\t'))
}

fn control_obstacle(database: &str, at: usize, found: u8) -> Obstacle {
    let what = match found {
        b'\r' => "a carriage return".to_owned(),
        b'\t' => "a tab".to_owned(),
        0 => "a NUL byte".to_owned(),
        other => format!("the control character {other:#04x}"),
    };
    let cause = format!("{database} has {what} in line {}", at.saturating_add(1));
    Obstacle { cause, next: format!("Remove it (grep -naP '[[:cntrl:]]' {database}).") }
}

fn too_long_number(database: &str, bytes: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(bytes);
    let is_endless = |line: &&str| line.split(':').skip(2).any(is_too_long);
    text.lines().find(is_endless).filter(|_| database == SHADOW).map(str::to_owned)
}

/// Returns true if strtoul(3) can't hold the number that a field begins with.
fn is_too_long(field: &str) -> bool {
    let field = field.trim_start();
    let digits = field.strip_prefix(['+', '-']).unwrap_or(field);
    let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
    digits.get(..end).is_some_and(|digits| !digits.is_empty() && digits.parse::<u64>().is_err())
}

fn no_file(root: &Root, path: &str) -> Result<Option<Obstacle>, HostError> {
    match root.check_kind(path, "a regular file") {
        // The programs take a link that leads nowhere for a missing file.
        Ok(()) | Err(HostError::Kind { found: "a link that leads nowhere", .. }) => Ok(None),
        Err(error @ HostError::Kind { .. }) => Ok(Some((&error).into())),
        Err(error) => Err(error),
    }
}

/// Returns what keeps the programs from writing the backup or the new version of a database that the host has, by database.
pub fn backups(root: &Root) -> Result<BTreeMap<String, Obstacle>, HostError> {
    let mut found = BTreeMap::new();
    for database in DATABASES {
        if root.observe(database)? == ObservedFile::Absent {
            continue;
        }
        for (end, what) in [("-", "backup"), ("+", "new version")] {
            let path = format!("{database}{end}");
            let change = Change::new(&*path, 0, DesiredPath::file(&[], 0, 0, 0));
            let obstacle = match root.observe(&path)? {
                ObservedFile::Absent => None,
                ObservedFile::Regular { .. } => examine(root, &change)?.obstacle,
                ObservedFile::Symlink { .. }
                | ObservedFile::Directory { .. }
                | ObservedFile::Special
                | ObservedFile::Unreachable => {
                    let cause = format!(
                        "{path}, the {what} of {database} that useradd writes, is not a regular file"
                    );
                    Some(Obstacle {
                        cause,
                        next: format!("Move it away (ls -ld {quoted}).", quoted = shell_word(&path)),
                    })
                }
            };
            found.extend(obstacle.map(|obstacle| (database.to_owned(), obstacle)));
        }
    }
    Ok(found)
}

/// Returns the lock files that the programs do not take over, by database.
pub fn locks(root: &Root) -> Result<BTreeMap<String, Obstacle>, HostError> {
    let mut found = BTreeMap::new();
    for database in DATABASES {
        let path = format!("{database}.lock");
        let obstacle = match root.observe(&path)? {
            ObservedFile::Absent => None,
            ObservedFile::Regular { .. } => match held(&path, &root.read(&path)?.unwrap_or_default()) {
                // One that is taken over is removed.
                None => fixed_at(root, &path)?,
                held => held,
            },
            ObservedFile::Symlink { .. }
            | ObservedFile::Directory { .. }
            | ObservedFile::Special
            | ObservedFile::Unreachable => {
                let cause = format!("{path}, the lock file of {database}, is not a regular file");
                Some(Obstacle {
                    cause,
                    next: format!("Move it away (ls -ld {quoted}).", quoted = shell_word(&path)),
                })
            }
        };
        found.extend(obstacle.map(|obstacle| (database.to_owned(), obstacle)));
    }
    Ok(found)
}

fn held(path: &str, text: &[u8]) -> Option<Obstacle> {
    let text = text.strip_suffix(b"\0").unwrap_or(text);
    let number: Option<i32> = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
    let Some(pid) = number.and_then(Pid::from_raw) else {
        let cause = format!("the lock file {path} names no process, so useradd and groupadd never remove it");
        return Some(Obstacle {
            cause,
            next: format!("If no vipw, useradd or usermod runs, remove it: rm {path}"),
        });
    };
    let is_gone = rustix::process::test_kill_process(pid) == Err(rustix::io::Errno::SRCH);
    (!is_gone).then(|| Obstacle {
        cause: format!("the lock file {path} belongs to process {}, which is running", pid.as_raw_nonzero()),
        next: format!(
            "Wait until it exits; if ps -p {0} shows a program that changes no accounts: rm {path}",
            pid.as_raw_nonzero()
        ),
    })
}

/// Returns the obstacle of a lock of lckpwdf(3) that another process holds for longer than a moment.
pub fn password_lock(root: &Root) -> Result<Option<Obstacle>, HostError> {
    let holder = match lock_holder(root) {
        Err(error) if error.is_lasting() || error.is_closed() => return Ok(Some((&error).into())),
        holder => holder?,
    };
    let Some(holder) = holder else { return Ok(None) };
    let (holder, look) = match holder {
        0 => ("another process".to_owned(), "lslocks".to_owned()),
        pid => (format!("process {pid}"), format!("ps -p {pid}")),
    };
    let cause = format!("{holder} holds {LOCK_PATH}, the lock of the account databases");
    Ok(Some(Obstacle { cause, next: format!("Wait until it exits, or stop it ({look}).") }))
}

/// Returns the device of the databases with its space, and their bytes together.
pub fn databases_space(root: &Root) -> Result<Option<(u64, Space, u64)>, HostError> {
    let mut bytes = 0_u64;
    for path in DATABASES {
        if let ObservedFile::Regular { len, .. } = root.observe(path)? {
            bytes = bytes.saturating_add(len);
        }
    }
    let change = Change::new("/etc/passwd", 0, DesiredPath::file(&[], 0, 0, 0));
    Ok(examine(root, &change)?.space.map(|(device, space)| (device, space, bytes)))
}

/// Returns the device of a home that is made or gets keys, with its space.
pub fn home_space(root: &Root, home: &str, uid: u32) -> Result<Option<(u64, Space)>, HostError> {
    let home = root.real_path(home.trim_end_matches('/'))?;
    if home.trim_end_matches('/').is_empty() {
        return Ok(None);
    }
    let made = DesiredPath::Directory { mode: None, uid: None, gid: None };
    Ok(examine(root, &Change::new(home, uid, made))?.space)
}

/// Returns the bytes, in whole blocks, and the inodes that useradd copies into a new home. In a root in a directory it copies none.
pub fn skeleton(root: &Root) -> Result<(u64, u64), HostError> {
    if !root.is_machine() {
        return Ok((0, 0));
    }
    skeleton_in(root, &default_of(root, "SKEL=", "/etc/skel")?)
}

fn skeleton_in(root: &Root, skeleton: &str) -> Result<(u64, u64), HostError> {
    let (mut bytes, mut inodes) = (0_u64, 0_u64);
    let mut left = vec![(skeleton.trim_end_matches('/').to_owned(), 0)];
    while let Some((directory, depth)) = left.pop() {
        for name in root.list(&directory)? {
            if inodes == MOST_COPIED {
                return Ok((bytes, inodes));
            }
            inodes += 1;
            let path = format!("{directory}/{name}");
            match root.observe(&path)? {
                ObservedFile::Regular { len, .. } => {
                    bytes = bytes.saturating_add(len.div_ceil(BLOCK).saturating_mul(BLOCK));
                }
                ObservedFile::Directory { .. } => {
                    bytes = bytes.saturating_add(BLOCK);
                    left.extend((depth < MAX_DEPTH).then_some((path, depth + 1)));
                }
                ObservedFile::Absent
                | ObservedFile::Symlink { .. }
                | ObservedFile::Special
                | ObservedFile::Unreachable => {}
            }
        }
    }
    Ok((bytes, inodes))
}

/// Returns what keeps the home of an account that is made from being its own. One that is there stays as it is: it has to be
/// root's, or that of the account's uid.
pub fn home(
    root: &Root,
    accounts: &Accounts,
    name: &str,
    account: &Account,
) -> Result<Option<Obstacle>, HostError> {
    if !account.makes_home() && account.keys.is_empty() {
        return Ok(None);
    }
    let home = default_home(root, name, account)?;
    let home = root.real_path(home.trim_end_matches('/'))?;
    if home.trim_end_matches('/').is_empty() {
        return Ok(None);
    }
    let kind = |found| {
        Some((&HostError::Kind { path: home.clone(), expected: "a directory or nothing", found }).into())
    };
    Ok(match root.observe(&home)? {
        ObservedFile::Absent => {
            let owner = account.uid.unwrap_or_default();
            if let Some(obstacle) = in_home_of_another(root, accounts, &home, owner)? {
                return Ok(Some(obstacle));
            }
            let made = DesiredPath::Directory { mode: None, uid: None, gid: None };
            examine(root, &Change::new(&*home, owner, made))?.obstacle
        }
        ObservedFile::Directory { uid: 0, .. } if is_of_system(&home) => Some(Obstacle {
            cause: format!("its home {home} is a directory of the system, which belongs to root"),
            next: format!("Choose a separate directory, such as /home/{name}."),
        }),
        ObservedFile::Directory { uid, .. } if uid == 0 || account.uid == Some(uid) => {
            if account.keys.is_empty() { None } else { keys::examined(root, &home, uid)?.obstacle }
        }
        ObservedFile::Directory { uid, .. } => Some(of_another(accounts, &home, uid)),
        ObservedFile::Regular { .. } => kind("a file"),
        ObservedFile::Symlink { .. } => kind("a link"),
        ObservedFile::Special | ObservedFile::Unreachable => kind("of another kind"),
    })
}

/// Returns the obstacle of a home that would be made in a directory of another account.
fn in_home_of_another(
    root: &Root,
    accounts: &Accounts,
    home: &str,
    owner: u32,
) -> Result<Option<Obstacle>, HostError> {
    let mut path = home;
    while let Some((above, _)) = path.rsplit_once('/').filter(|(above, _)| !above.is_empty()) {
        match root.observe(above)? {
            ObservedFile::Directory { uid, .. } if uid != 0 && uid != owner => {
                let of = accounts.user_name(uid).map_or_else(|| format!("uid {uid}"), str::to_owned);
                let cause = format!("its home {home} would be in {above}, which belongs to {of}");
                let next = "Choose a homeDir that is in no directory of another account.".to_owned();
                return Ok(Some(Obstacle { cause, next }));
            }
            ObservedFile::Absent => path = above,
            ObservedFile::Regular { .. }
            | ObservedFile::Symlink { .. }
            | ObservedFile::Directory { .. }
            | ObservedFile::Special
            | ObservedFile::Unreachable => return Ok(None),
        }
    }
    Ok(None)
}

/// Returns true for a directory in the trees of configuration, programs and run-time files: what is there is not to be an account's.
fn is_of_system(home: &str) -> bool {
    let is_in = |tree: &str| home.strip_prefix(tree).is_some_and(|rest| rest.starts_with('/'));
    ["/etc", "/usr", "/run"].iter().any(|tree| is_in(tree)) && !is_in("/usr/local")
}

fn of_another(accounts: &Accounts, home: &str, uid: u32) -> Obstacle {
    match accounts.user_name(uid) {
        Some(owner) => Obstacle {
            cause: format!("its home {home} exists and belongs to {owner}"),
            next: "Choose another homeDir, or move the directory away.".to_owned(),
        },
        None => Obstacle {
            cause: format!("its home {home} exists and belongs to uid {uid}, which no account has"),
            next: format!("Set uid: {uid} if the directory is the account's, or move it away."),
        },
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    fn host(at: &Path) -> Root {
        fs::create_dir_all(at.join("etc")).unwrap();
        fs::create_dir_all(at.join("home")).unwrap();
        fs::write(
            at.join("etc/passwd"),
            "root:x:0:0::/root:/bin/sh\nguest:x:1100:1100::/home/guest:/bin/sh\n",
        )
        .unwrap();
        Root::open(at).unwrap()
    }

    /// useradd of this machine decides: what it takes over is no obstacle, and what it refuses is one.
    #[tokio::test(flavor = "current_thread")]
    async fn lock_files_are_judged_as_by_useradd() {
        let own = std::process::id().to_string();
        for (text, refused) in [("", true), ("abc", true), ("4194303", false), (&*own, true), ("1\n", true)] {
            let dir = tempfile::tempdir().unwrap();
            let root = host(dir.path());
            for file in ["group", "shadow", "gshadow"] {
                fs::write(dir.path().join("etc").join(file), "").unwrap();
            }
            fs::write(dir.path().join("etc/shadow.lock"), text).unwrap();
            let found = locks(&root).unwrap();
            assert_eq!(found.contains_key("/etc/shadow"), refused, "{text:?}: {found:?}");
            let account = Account { no_create_home: true, ..Account::default() };
            let made = crate::host::account_programs::create_user(&root, "app", &account).await;
            assert_eq!(made.is_err(), refused, "{text:?}: {made:?}");
        }
        let dir = tempfile::tempdir().unwrap();
        let root = host(dir.path());
        fs::create_dir(dir.path().join("etc/passwd.lock")).unwrap();
        assert!(locks(&root).unwrap()["/etc/passwd"].cause.contains("not a regular file"));
    }

    /// useradd of this machine decides: a line that it does not read gets a second one beside it, which usermod refuses.
    #[tokio::test(flavor = "current_thread")]
    async fn lines_are_judged_as_by_useradd() {
        let mut users = Users::default();
        users.accounts.insert(crate::model::UserName::new("app").unwrap(), Account::default());
        for (database, line, is_refused) in [
            ("passwd", "app:x:1007", true),
            ("passwd", "app", true),
            ("passwd", "app:x:1007:1007::/home/app", true),
            ("passwd", "application:x:1007", false),
            ("shadow", "app:*", true),
            ("shadow", "app:*:x:0:99999:7:::", true),
            ("shadow", "app:*:19000:0:99999", false),
            ("shadow", "app:*:19000:0:99999:7:::", false),
            ("shadow", "app:*:19000:0:99999:7::::", true),
            ("group", "app:x:none:", true),
            ("gshadow", "app:!", true),
        ] {
            let dir = tempfile::tempdir().unwrap();
            let root = host(dir.path());
            for file in ["group", "shadow", "gshadow"] {
                fs::write(dir.path().join("etc").join(file), "").unwrap();
            }
            let at = dir.path().join("etc").join(database);
            let text = fs::read_to_string(&at).unwrap();
            fs::write(&at, format!("{text}{line}\n")).unwrap();
            assert_eq!(!unfit_lines(&root, &[&users]).unwrap().is_empty(), is_refused, "{database}: {line}");
            let account = Account { no_create_home: true, ..Account::default() };
            let made = crate::host::account_programs::create_user(&root, "app", &account).await;
            let text = fs::read_to_string(&at).unwrap();
            let lines = text.lines().filter(|line| line.split(':').next() == Some("app")).count();
            assert_eq!(made.is_err() || lines > 1, is_refused, "{database}: {line}: {made:?}: {text}");
        }
    }

    #[test]
    fn numbers_that_useradd_never_ends_at_are_found() {
        for (line, is_found) in [
            ("app:*:18446744073709551615:0:99999:7:::", false),
            ("app:*:18446744073709551616:0:99999:7:::", true),
            ("app:*:19000:0:99999:7:::-99999999999999999999999", true),
            ("app:*:a99999999999999999999999::::::", false),
            ("99999999999999999999999:99999999999999999999999:1::::::", false),
        ] {
            let dir = tempfile::tempdir().unwrap();
            let root = host(dir.path());
            fs::write(dir.path().join("etc/shadow"), format!("root:*:1::::::\n{line}\n")).unwrap();
            let found = endless(&root).unwrap();
            assert_eq!(!found.is_empty(), is_found, "{line}: {found:?}");
        }
    }

    #[test]
    fn skeleton_is_counted_in_blocks() {
        let dir = tempfile::tempdir().unwrap();
        let root = host(dir.path());
        assert_eq!(skeleton(&root).unwrap(), (0, 0), "with a prefix nothing is copied");
        assert_eq!(skeleton_in(&root, "/etc/skel").unwrap(), (0, 0));
        fs::create_dir_all(dir.path().join("etc/skel/.config")).unwrap();
        fs::write(dir.path().join("etc/skel/.bashrc"), "x").unwrap();
        fs::write(dir.path().join("etc/skel/.config/large"), vec![b'x'; 5000]).unwrap();
        assert_eq!(skeleton_in(&root, "/etc/skel/").unwrap(), (4 * 4096, 3));
    }

    #[test]
    fn home_of_new_account_is_its_own() {
        let dir = tempfile::tempdir().unwrap();
        let root = host(dir.path());
        let at = |name: &str| dir.path().join("home").join(name);
        for (name, owner) in [("of-root", 0), ("of-guest", 1100), ("of-nobody", 4711), ("own", 1500)] {
            fs::create_dir(at(name)).unwrap();
            std::os::unix::fs::chown(at(name), Some(owner), Some(owner)).unwrap();
        }
        fs::write(at("file"), "").unwrap();
        std::os::unix::fs::symlink("/etc", at("link")).unwrap();
        let accounts = Accounts::load(&root).unwrap();
        let seen = |name: &str, account: Account| home(&root, &accounts, name, &account).unwrap();
        for name in ["of-root", "own", "new"] {
            assert_eq!(seen(name, Account { uid: Some(1500), ..Account::default() }), None, "{name}");
        }
        let deep = Account { home: Some("/srv/a/b/app".to_owned()), ..Account::default() };
        assert_eq!(seen("app", deep), None, "its parents are made");
        let below = Account { home: Some("/home/file/app".to_owned()), ..Account::default() };
        assert!(seen("app", below).unwrap().cause.contains("not a directory"));
        for (name, cause) in [
            ("of-guest", "belongs to guest"),
            ("of-nobody", "belongs to uid 4711, which no account has"),
            ("own", "belongs to uid 1500"),
            ("file", "is a file"),
            ("link", "is a link"),
        ] {
            let told = seen(name, Account::default()).unwrap();
            assert!(told.cause.contains(cause) && told.cause.contains(name), "{name}: {told:?}");
            let unused = Account { no_create_home: true, ..Account::default() };
            assert_eq!(seen(name, unused), None, "{name}: nobody uses it");
        }
    }
}
