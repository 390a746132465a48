//! Errors of the machine. Every variant names the object; the cause is in `source`; `next` is for people.

use std::io;

use rustix::io::Errno;

use crate::model::FaultClass;
use crate::model::ids::UNIT_DIR;
use crate::model::text::shell_word;
pub(in crate::host) use crate::model::walk::OTHERS_MAY_WRITE;

/// The format of the agent's own files of originals.
pub(crate) const ORIGINALS: &str = "saved originals";
/// The format of the record of accounts, in messages.
pub(crate) const ACCOUNT_RECORDS: &str = "account records";

/// The word for a mount point in the way.
pub(in crate::host) const MOUNT_POINT: &str = "a mount point";

/// The action that fails where a root is no directory.
pub(in crate::host) const OPEN_ROOT: &str = "open the root";
/// The action that fails where a root is no host's.
pub(in crate::host) const FIND_HOST: &str = "find a host in the root";

/// The kind of what leads to a path.
pub(in crate::host) const DIRECTORY: &str = "a directory";

/// The kind of password that an update may set another one over.
pub(in crate::host) const OPEN: &str = "one that an update opens";

/// Actions that change a path.
const CHANGES: [&str; 12] = [
    "change",
    "clear the leftover of",
    "label",
    "lock",
    "make",
    "make the link",
    "move aside",
    "prepare",
    "remove",
    "replace",
    "switch to the new version of",
    "write",
];

/// Databases of accounts: nobody moves them away.
const ACCOUNT_DATABASES: [&str; 4] = ["/etc/passwd", "/etc/group", "/etc/shadow", "/etc/gshadow"];

/// An error at the machine.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// A system call on a path failed.
    #[error("can't {action} {path}")]
    Io {
        /// The failed action, as a verb.
        action: &'static str,
        /// The path below the root.
        path: String,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
    /// A directory that another user may change: a file written there could be swapped.
    #[error("{path} is not touched: its directory {directory} {rule}")]
    UnsafeDirectory {
        /// The path that was requested.
        path: String,
        /// The directory.
        directory: String,
        /// The broken rule.
        rule: Unsafe,
    },
    /// A file that another user may change, or a link that another user could have made: its contents are not used.
    #[error("{path} is not used: it {rule}")]
    UnsafeFile {
        /// The file or the link.
        path: String,
        /// The broken rule.
        rule: Unsafe,
    },
    /// A file with more bytes than any of its purpose has.
    #[error("{path} is too large: {size} bytes, and at most {limit} are read")]
    TooLarge {
        /// The file.
        path: String,
        /// Its size, or the number of bytes read so far.
        size: u64,
        /// The largest size allowed.
        limit: u64,
    },
    /// A path that is not the kind of thing that was expected.
    #[error("{path} is {found}, not {expected}")]
    Kind {
        /// The path.
        path: String,
        /// The expected kind of file.
        expected: &'static str,
        /// The kind of file found.
        found: &'static str,
    },
    /// A directory that links of the host led elsewhere when a config was applied.
    #[error(
        "{directory} led to {before} when the config was applied, and leads to {now} now: {before}/{name} is what the config left there"
    )]
    Led {
        /// The directory, by its name in the config.
        directory: String,
        /// The directory to which it led.
        before: String,
        /// The directory to which it leads.
        now: String,
        /// The name in it.
        name: String,
    },
    /// A directory that links of the host led elsewhere when an update took something away there.
    #[error("{directory} led to {before} when the update took {name} away there, and leads to {now} now")]
    LedAway {
        /// The directory, by its name in the config.
        directory: String,
        /// The directory to which it led.
        before: String,
        /// The directory to which it leads.
        now: String,
        /// The name in it.
        name: String,
    },
    /// A file of the host that can't be understood.
    #[error("{path} can't be read as {format}: {cause}")]
    Malformed {
        /// The path.
        path: String,
        /// The expected format.
        format: &'static str,
        /// The parser's message, without contents.
        cause: String,
    },
    /// An account, or a group, that the host does not have.
    #[error("{kind} {name} is not known on this host")]
    UnknownAccount {
        /// `user` or `group`.
        kind: &'static str,
        /// The name.
        name: String,
    },
    /// A unit that can't be enabled.
    #[error("unit {unit} can't be enabled: {cause}")]
    Unit {
        /// The unit.
        unit: String,
        /// The fault of the name.
        cause: String,
    },
    /// A program that failed.
    #[error("{program} failed: {cause}")]
    Command {
        /// The program.
        program: String,
        /// Its exit and the end of its output.
        cause: String,
    },
    /// A call over D-Bus that failed.
    #[error("{call} over D-Bus failed")]
    Bus {
        /// Interface and method, with the object.
        call: String,
        /// The error of the bus or the service.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A unit that systemd could not bring into the requested state.
    #[error("{action} of {unit} ended with {result:?}")]
    Job {
        /// `reload` or `restart`.
        action: &'static str,
        /// The unit.
        unit: String,
        /// systemd's word for it: `failed`, `timeout`, `dependency`, `canceled`.
        result: String,
    },
    /// A unit that does its work when it is stopped, and that the shutdown would not stop.
    #[error("no reboot: {unit} would not finalize the staged deployment: {cause}")]
    NotStopped {
        /// The unit.
        unit: String,
        /// Its state.
        cause: String,
    },
    /// Something that did not happen in time.
    #[error("{object} did not answer within {seconds} s")]
    Timeout {
        /// The awaited object.
        object: String,
        /// The time limit.
        seconds: u64,
    },
    /// Something that only an image-based host can do.
    #[error("{object} can't be staged: this host is not image-based, or its OS backend is set to none")]
    NoBackend {
        /// The image or change to stage.
        object: String,
    },
    /// The OS backend failed.
    #[error("{object}: {cause}")]
    Os {
        /// The object: an image, a deployment, the sysroot.
        object: String,
        /// Message of the failure.
        cause: String,
        /// Consequence for the node.
        class: FaultClass,
        /// A bounded word for events and metric labels.
        reason: &'static str,
        /// The next step.
        next: String,
    },
}

impl HostError {
    /// Creates the error of a system call on a path.
    pub fn io(action: &'static str, path: impl Into<String>, source: impl Into<io::Error>) -> Self {
        Self::Io { action, path: path.into(), source: source.into() }
    }

    /// Returns the class.
    pub fn class(&self) -> FaultClass {
        match self {
            Self::Io { action, source, .. } => match OsErrorKind::from_io(action, source) {
                OsErrorKind::Full | OsErrorKind::Watches | OsErrorKind::Passing => FaultClass::Retry,
                OsErrorKind::ReadOnly | OsErrorKind::Lasting => FaultClass::Degraded,
            },
            Self::Command { .. } | Self::Bus { .. } | Self::NotStopped { .. } | Self::Timeout { .. } => {
                FaultClass::Retry
            }
            Self::UnsafeDirectory { .. }
            | Self::UnsafeFile { .. }
            | Self::TooLarge { .. }
            | Self::Kind { .. }
            | Self::Led { .. }
            | Self::LedAway { .. }
            | Self::Malformed { .. }
            | Self::UnknownAccount { .. }
            | Self::Unit { .. }
            | Self::Job { .. }
            | Self::NoBackend { .. } => FaultClass::Degraded,
            Self::Os { class, .. } => *class,
        }
    }

    /// Returns true if no try reaches the path until somebody changes it.
    pub(in crate::host) fn is_unreachable(&self) -> bool {
        matches!(self, Self::Io { source, .. } if Errno::from_io_error(source).is_some_and(is_unreachable))
    }

    /// Returns true if it is a mount where none may be.
    pub(crate) fn is_mount(&self) -> bool {
        matches!(self, Self::Kind { found, .. } if *found == MOUNT_POINT)
    }

    /// Returns true if no try makes the change of a path until somebody changes what is there.
    pub(crate) fn is_lasting(&self) -> bool {
        matches!(self, Self::UnsafeDirectory { .. } | Self::Kind { .. } | Self::TooLarge { .. })
            || self.is_unreachable()
    }

    /// Returns true if the owner of a directory can bring it about there: names that come, go and change meanwhile.
    pub fn is_of_names(&self) -> bool {
        use io::ErrorKind as Kind;
        let of_names = |kind| {
            matches!(
                kind,
                Kind::ResourceBusy
                    | Kind::AlreadyExists
                    | Kind::NotFound
                    | Kind::NotADirectory
                    | Kind::IsADirectory
                    | Kind::DirectoryNotEmpty
                    | Kind::PermissionDenied
                    | Kind::CrossesDevices
            )
        };
        self.is_lasting() || matches!(self, Self::Io { source, .. } if of_names(source.kind()))
    }

    /// Returns true if a path, or one on its way, is of another kind than a change can replace.
    pub fn is_of_kind(&self) -> bool {
        use io::ErrorKind as Kind;
        let of_kind = |kind| {
            matches!(
                kind,
                Kind::NotADirectory | Kind::IsADirectory | Kind::DirectoryNotEmpty | Kind::AlreadyExists
            )
        };
        matches!(self, Self::Kind { .. }) || matches!(self, Self::Io { source, .. } if of_kind(source.kind()))
    }

    /// Returns true if the kernel refused it for want of a permission.
    pub fn is_denied(&self) -> bool {
        matches!(self, Self::Io { source, .. } if source.kind() == io::ErrorKind::PermissionDenied)
    }

    /// Returns true if a path can't be written until somebody opens it: on a read-only file system, or by its attributes.
    pub(crate) fn is_closed(&self) -> bool {
        self.is_denied() || self.reason() == "ReadOnlyFilesystem"
    }

    /// Returns true if root may not change a path: so the kernel says it of an attribute of chattr(1).
    fn is_fixed(&self) -> bool {
        let Self::Io { action, source, .. } = self else { return false };
        CHANGES.contains(action)
            && Errno::from_io_error(source) == Some(Errno::PERM)
            && rustix::process::geteuid().is_root()
    }

    /// Returns a bounded word for events and metric labels.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Io { action, source, .. } => match OsErrorKind::from_io(action, source) {
                OsErrorKind::Full => "DiskFull",
                OsErrorKind::Watches => "TooManyWatches",
                OsErrorKind::ReadOnly => "ReadOnlyFilesystem",
                OsErrorKind::Passing | OsErrorKind::Lasting => "Io",
            },
            Self::UnsafeDirectory { .. } => "UnsafeDirectory",
            Self::UnsafeFile { .. } => "UnsafeFile",
            Self::TooLarge { .. } => "FileTooLarge",
            Self::Kind { .. } | Self::Led { .. } | Self::LedAway { .. } => "UnexpectedKind",
            Self::Malformed { .. } => "MalformedFile",
            Self::UnknownAccount { .. } => "UnknownAccount",
            Self::Unit { .. } => "UnitNotEnabled",
            Self::Command { .. } => "CommandFailed",
            Self::Bus { .. } => "BusCallFailed",
            Self::Job { .. } => "JobFailed",
            Self::NotStopped { .. } => "FinalizationNotReady",
            Self::Timeout { .. } => "TimedOut",
            Self::NoBackend { .. } => "NotImageBased",
            Self::Os { reason, .. } => reason,
        }
    }

    /// Returns the next step.
    pub fn next(&self) -> String {
        match self {
            Self::Io { action, path, source } => self.io_next(action, path, source),
            Self::UnsafeDirectory { directory: path, rule, .. } | Self::UnsafeFile { path, rule } => {
                rule.next_step(path)
            }
            Self::Kind { path, expected, found } => kind_next(path, expected, found),
            Self::LedAway { directory, before, now, .. } => led_away_next(directory, before, now),
            Self::Led { directory, before, now, name } => led_next(directory, now, &format!("{before}/{name}")),
            Self::Malformed { path, format: ORIGINALS, .. } => format!(
                "Restore {path} from a backup, or move it away if it is there: the managed path then stays on this host when the \
                 config no longer lists it."
            ),
            Self::Malformed { path, format: ACCOUNT_RECORDS, .. } => format!(
                "Restore {path} from a backup, or move it away: the agent then treats the accounts in it as the host's \
                 own."
            ),
            Self::Malformed { path, .. } => format!("Repair {path} on the node."),
            Self::TooLarge { path, .. } => {
                format!(
                    "Find out what made {path} so large (ls -l {quoted}), and move it away.",
                    quoted = shell_word(path)
                )
            }
            Self::UnknownAccount { kind, name } => {
                format!("Create the {kind} {name} on the host, or name another in the MachineConfig.")
            }
            Self::Unit { unit, .. } => {
                format!("Correct the unit (systemctl cat {unit}) or its entry in the MachineConfig.")
            }
            Self::Command { program, .. } => format!("Run {program} manually on the node to see more."),
            Self::Bus { .. } | Self::Timeout { .. } => {
                "Check why the service or lock holder hangs (systemctl --failed; lslocks; journalctl -b -p err); the agent \
                 retries."
                    .to_owned()
            }
            Self::NotStopped { unit, .. } => {
                format!("See systemctl status {unit} and systemctl cat {unit}; the agent retries.")
            }
            Self::Job { unit, .. } => {
                format!(
                    "See why: systemctl status {unit}; journalctl -b -u {unit}. Then correct the config, or have it tried again \
                     (systemctl reload machine-config-agent, or apply)."
                )
            }
            Self::NoBackend { .. } => {
                "Start the agent with the OS backend of the host, or remove OS changes from the config."
                    .to_owned()
            }
            Self::Os { next, .. } => next.clone(),
        }
    }

    fn io_next(&self, action: &str, path: &str, source: &io::Error) -> String {
        if [OPEN_ROOT, FIND_HOST].contains(&action) {
            return "Name the root directory of a host, with its /proc, with --root.".to_owned();
        }
        let quoted = shell_word(path);
        match OsErrorKind::from_io(action, source) {
            OsErrorKind::Watches => {
                "Find what holds inotify watches (find /proc/*/fd -lname anon_inode:inotify), or raise \
                 fs.inotify.max_user_instances and max_user_watches (sysctl); the agent retries."
                    .to_owned()
            }
            OsErrorKind::Full => {
                format!("Free space on the file system of {path} (df -h {quoted}); the agent retries.")
            }
            OsErrorKind::ReadOnly => format!(
                "Find out why the file system of {path} is read-only (findmnt -O ro; dmesg), then remount it (mount -o remount,rw \
                 and its mount point)."
            ),
            OsErrorKind::Passing | OsErrorKind::Lasting if source.kind() == io::ErrorKind::NotFound => {
                format!("Check that {path} exists (ls -ld {quoted}).")
            }
            OsErrorKind::Passing | OsErrorKind::Lasting
                if Errno::from_io_error(source) == Some(Errno::LOOP) =>
            {
                format!("Move {path} away: it is a link that leads to itself.")
            }
            OsErrorKind::Passing | OsErrorKind::Lasting if self.is_fixed() => {
                let directory = path.rsplit_once('/').map_or("/", |(above, _)| above);
                let directory = shell_word(if directory.is_empty() { "/" } else { directory });
                format!(
                    "See whether it or its directory is immutable or append-only (lsattr -d {quoted} {directory}), find out who made it so, \
                     and remove that (chattr -ia); else check {path} (ls -ldZ {quoted}; dmesg)."
                )
            }
            OsErrorKind::Passing | OsErrorKind::Lasting if self.is_denied() => {
                format!("Run it as root; if it is root, check {path} (ls -ldZ {quoted}; dmesg).")
            }
            OsErrorKind::Passing | OsErrorKind::Lasting => {
                format!("Check {path} on the node (ls -ldZ {quoted}; dmesg); the agent retries.")
            }
        }
    }
}

/// Reason why a path is unsafe: another user may change it, or could have made it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unsafe {
    /// Another user owns it.
    Owner {
        /// The owner.
        uid: u32,
        /// The permission bits.
        mode: u32,
    },
    /// Its group, or everybody, may write to it.
    Writable {
        /// The owner.
        uid: u32,
        /// The permission bits.
        mode: u32,
    },
    /// A link in a place where another user could have made it.
    Link {
        /// The owner.
        uid: u32,
    },
    /// In the way of a config's path: another user than the one in whose directory it is owns it, or anybody could have made it.
    Account {
        /// The owner.
        uid: u32,
        /// The permission bits.
        mode: u32,
    },
    /// In the way of a config's path: its group, or everybody, may write to it.
    Shared {
        /// The owner.
        uid: u32,
        /// The permission bits.
        mode: u32,
    },
    /// In the way of a config's path: a link in a directory of another account.
    LinkOfAccount {
        /// The account.
        uid: u32,
    },
    /// A link whose text is not UTF-8, so that it has no exact name.
    LinkText,
}

/// The last advice about a path that can't be reached.
pub const ANOTHER_PATH: &str = "name another path in the MachineConfig";

impl Unsafe {
    /// Returns the rule as it is stated of a path of a config: its directory may be a program's own, which a change of its owner
    /// would break.
    pub(in crate::host) fn of_program(self) -> Self {
        match self {
            Self::Owner { uid, mode } => Self::Account { uid, mode },
            Self::Writable { uid, mode } => Self::Shared { uid, mode },
            Self::Link { uid } => Self::LinkOfAccount { uid },
            Self::Account { .. } | Self::Shared { .. } | Self::LinkOfAccount { .. } | Self::LinkText => self,
        }
    }

    /// Returns the next step.
    fn next_step(self, path: &str) -> String {
        let quoted = shell_word(path);
        let is_of_unit = path.strip_prefix(UNIT_DIR).is_some_and(|below| below.starts_with('/'));
        match self {
            // It may be a program's own.
            Self::Owner { .. } if is_of_unit => format!(
                "See whose it is (ls -ld {quoted}): root runs what is written there, so no other account may own it; move it away, or \
                 remove the drop-in from the MachineConfig."
            ),
            Self::Owner { mode, .. } if mode & OTHERS_MAY_WRITE != 0 => {
                format!("Check what it holds, then: chown root:root {quoted}; chmod go-w {quoted}")
            }
            Self::Owner { .. } => {
                format!("Check what it holds, then: chown root:root {quoted}")
            }
            Self::Writable { .. } => {
                format!("Check what it holds, then: chmod go-w {quoted}")
            }
            Self::Account { .. } => format!(
                "Check the owners of its parent directories (namei -l {quoted}): below root's directories one account may own \
                 directories (for keys: the account that has them), and none below a world-writable directory; or {ANOTHER_PATH}."
            ),
            Self::Shared { .. } => format!(
                "Check which accounts must write there (ls -ld {quoted}): if only its owner, chmod go-w {quoted}; else {ANOTHER_PATH}."
            ),
            Self::LinkOfAccount { .. } => {
                format!("Name the path that {path} leads to in the MachineConfig (ls -l {quoted}).")
            }
            Self::Link { .. } | Self::LinkText => {
                format!("Replace the link {path} by one that root made (ls -l {quoted}).")
            }
        }
    }
}

impl std::fmt::Display for Unsafe {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Owner { uid, mode } | Self::Account { uid, mode } => {
                write!(f, "belongs to another user (uid {uid}, mode {mode:04o})")
            }
            Self::Writable { uid, mode } | Self::Shared { uid, mode } => {
                write!(f, "can be written by others (uid {uid}, mode {mode:04o})")
            }
            Self::Link { uid } | Self::LinkOfAccount { uid } => {
                write!(f, "is a link that another user could have made (uid {uid})")
            }
            Self::LinkText => f.write_str("is a link that is not UTF-8"),
        }
    }
}

/// Meaning of an I/O error: a full disk, a shortage of memory or of files, and an interrupted call pass by themselves.
#[derive(Debug, Clone, Copy)]
enum OsErrorKind {
    Full,
    Watches,
    ReadOnly,
    Passing,
    Lasting,
}

impl OsErrorKind {
    fn from_io(action: &str, source: &io::Error) -> Self {
        use io::ErrorKind as Kind;
        let kind = source.kind();
        // inotify(7) reports "no space left" and "too many files" for its own limits, not for a disk's.
        let is = |limit: Errno| source.raw_os_error() == Some(limit.raw_os_error());
        let files = is(Errno::MFILE) || is(Errno::NFILE);
        if action == "watch" && (files || is(Errno::NOSPC)) {
            Self::Watches
        } else if files {
            Self::Passing
        } else if matches!(kind, Kind::StorageFull | Kind::QuotaExceeded) {
            Self::Full
        } else if kind == Kind::ReadOnlyFilesystem {
            Self::ReadOnly
        } else if matches!(
            kind,
            Kind::OutOfMemory | Kind::Interrupted | Kind::WouldBlock | Kind::ResourceBusy
        ) {
            Self::Passing
        } else {
            Self::Lasting
        }
    }
}

/// Returns true if root can't follow the path, however often it tries, until somebody changes it: links in a circle, a name
/// that is too long, a file system that has gone, or one of a user that refuses root.
pub(in crate::host) fn is_unreachable(errno: Errno) -> bool {
    match errno {
        Errno::LOOP | Errno::NAMETOOLONG | Errno::NOTCONN | Errno::STALE => true,
        Errno::ACCESS => rustix::process::geteuid().is_root(),
        _ => false,
    }
}

/// Returns the next step where a directory leads elsewhere, and something is left where it led.
fn led_next(directory: &str, now: &str, left: &str) -> String {
    let before = left.rsplit_once('/').map_or(left, |(before, _)| before);
    let (quoted, left, new) = (shell_word(directory), shell_word(left), shell_word(now));
    format!(
        "Let {directory} lead to {before} again (namei -l {quoted}), or, if the new place is meant, move what was left to it \
         (mkdir -p {new}, mv --no-clobber {left} {new}/; if a file of that name is there, decide which of both stays, and move the other \
         away)."
    )
}

/// Returns the next step where a directory leads elsewhere, and nothing of the path is left.
fn led_away_next(directory: &str, before: &str, now: &str) -> String {
    let quoted = shell_word(directory);
    format!(
        "Let {directory} lead to {before} again (namei -l {quoted}), or, if the new place is meant, move what the config has \
         there from {before} to {now}, and remove {before} if it is empty."
    )
}

/// Returns the next step for a path of another kind than is needed.
fn kind_next(path: &str, expected: &str, found: &str) -> String {
    match (expected, found) {
        (_, MOUNT_POINT) => {
            let quoted = shell_word(path);
            format!("Unmount {path} (umount {quoted}; findmnt {quoted} shows it).")
        }
        (DIRECTORY, _) => {
            format!("Move {path} away: what is below it in a MachineConfig needs a directory there.")
        }
        (OPEN, _) => {
            "Unlock it (usermod --unlock), or set passwordHash to \"\" in the MachineConfig.".to_owned()
        }
        _ if ACCOUNT_DATABASES.contains(&path) => {
            format!("Replace {path} by a regular file with its content.")
        }
        _ => format!("Move {path} away."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::update::{Ending, Fault};

    /// The owner of a directory on the way may be a program or a person: root does not take it.
    #[test]
    fn no_step_takes_directory_from_account() {
        use crate::host::{Hands, root::Missing};
        let dir = tempfile::tempdir().unwrap();
        let root = crate::host::Root::open(dir.path()).unwrap();
        std::fs::create_dir_all(dir.path().join("home/other/core")).unwrap();
        for (name, owner) in [("home/other", 4711), ("home/other/core", 1000)] {
            std::os::unix::fs::chown(dir.path().join(name), Some(owner), Some(owner)).unwrap();
        }
        for hands in [Hands::entering(0), Hands::entering(1000), Hands::from(1000)] {
            let walked = root.walk("/home/other/core", hands, Missing::Leave, &mut Vec::new());
            let Err(error) = walked else {
                assert_eq!(hands, Hands::entering(1000), "the file's own account");
                continue;
            };
            assert_eq!(error.reason(), "UnsafeDirectory", "{error}");
            assert!(error.next().contains("namei") && !error.next().contains("chown"), "{}", error.next());
        }
    }

    /// Root runs what lies there: nobody else may own it, and it may be a program's all the same.
    #[test]
    fn no_step_takes_directory_of_drop_ins_from_account() {
        use crate::host::root::Missing;
        let dir = tempfile::tempdir().unwrap();
        let root = crate::host::Root::open(dir.path()).unwrap();
        let directory = "/etc/systemd/system/a.service.d";
        let at = dir.path().join(directory.trim_start_matches('/'));
        std::fs::create_dir_all(&at).unwrap();
        std::os::unix::fs::chown(&at, Some(4711), Some(4711)).unwrap();
        let walked = root.walk(directory, crate::host::Hands::from(0), Missing::Leave, &mut Vec::new());
        let Err(error) = walked else { panic!("it is walked") };
        let next = error.next();
        assert_eq!(error.reason(), "UnsafeDirectory", "{error}");
        assert!(next.contains("ls -ld /etc/systemd/system/a.service.d") && !next.contains("chown"), "{next}");
    }

    /// The way out of what is refused to root is that of its cause.
    #[test]
    fn denied_change_names_attributes() {
        let next = |action, errno: Errno| HostError::io(action, "/etc/a", errno).next();
        let is_root = rustix::process::geteuid().is_root();
        assert_eq!(next("write", Errno::PERM).contains("lsattr -d /etc/a /etc)"), is_root);
        for (action, errno) in [("enter", Errno::PERM), ("write", Errno::ACCESS)] {
            assert!(
                next(action, errno).contains("ls -ldZ") && !next(action, errno).contains("lsattr"),
                "{action}"
            );
        }
    }

    /// Item 5: whatever the kernel says once, the next try comes by itself.
    #[test]
    fn each_errno_is_retried_by_time() {
        for (action, errno, reason, ending) in [
            ("write", Errno::NOSPC, "DiskFull", Ending::Soon),
            ("write", Errno::DQUOT, "DiskFull", Ending::Soon),
            ("open", Errno::MFILE, "Io", Ending::Soon),
            ("open", Errno::NFILE, "Io", Ending::Soon),
            ("read", Errno::NOMEM, "Io", Ending::Soon),
            ("read", Errno::INTR, "Io", Ending::Soon),
            ("rename", Errno::BUSY, "Io", Ending::Soon),
            ("watch", Errno::NOSPC, "TooManyWatches", Ending::Soon),
            ("watch", Errno::MFILE, "TooManyWatches", Ending::Soon),
            ("read", Errno::IO, "Io", Ending::Later),
            ("open", Errno::ACCESS, "Io", Ending::Later),
            // `chattr +i`
            ("rename", Errno::PERM, "Io", Ending::Later),
            ("write", Errno::ROFS, "ReadOnlyFilesystem", Ending::Later),
        ] {
            let error = HostError::io(action, "/etc/a", errno);
            let fault = Fault::from_error(error.class(), error.reason(), &error, &error.next());
            assert_eq!((error.reason(), Ending::from_fault(&fault)), (reason, ending), "{action}: {errno}");
            assert!(fault.message.contains("/etc/a") && !fault.next.is_empty(), "{fault}");
        }
    }
}
