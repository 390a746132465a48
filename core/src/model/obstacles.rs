//! Obstacles that keep paths of a host from being changed, as far as it can be seen before a change.

use std::collections::BTreeMap;
use std::fmt;

use super::walk::Access;
use super::{ManagedPath, UnitName};

/// The largest original that is kept: the largest file that a distribution has in `/etc` (`hwdb.bin`) is of 13 MB.
pub const LARGEST_ORIGINAL: u64 = 16 * 1024 * 1024;

/// The largest original that is kept of another user than root, who must not have the agent read what he likes.
pub const LARGEST_ORIGINAL_OF_USER: u64 = 1024 * 1024;

/// Most bytes of originals that one batch may replace: they have to be readable again, and are in memory meanwhile.
pub const LARGEST_ORIGINALS: u64 = 32 * 1024 * 1024;

/// An obstacle on the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Obstacle {
    /// The cause, with its object.
    pub cause: String,
    /// The next step.
    pub next: String,
}

impl Obstacle {
    /// An alias at a path is not made: the unit of that name is masked.
    pub fn masked_alias(path: &str, unit: &UnitName) -> Self {
        let masked = path.rsplit('/').next().unwrap_or_default();
        Self {
            cause: format!("{path} would mask {masked} instead of enabling {unit}"),
            next: format!("Give {unit} another Alias=, or do not mask {masked}."),
        }
    }
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.next.trim_end_matches('.').chars();
        let first = rest.next().map(|first| first.to_lowercase().to_string()).unwrap_or_default();
        write!(f, "{}; {first}{}", self.cause, rest.as_str())
    }
}

/// The space of a file system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Space {
    /// A directory on it, for people.
    pub directory: String,
    /// Free bytes that root may use.
    pub bytes: u64,
    /// Free inodes; `None` where they are not counted.
    pub inodes: Option<u64>,
    /// Size of a block: a file takes whole ones.
    pub block: u64,
}

/// Obstacles of a host, and its space. The default has none: a plan between two files is about no host.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Obstacles {
    /// Of managed paths.
    pub paths: BTreeMap<ManagedPath, Obstacle>,
    /// Attributes and names that no restored copy of a managed path has, for people.
    pub not_kept: BTreeMap<ManagedPath, String>,
    /// Of managed paths once the directories above them are as the update leaves them.
    pub closed: BTreeMap<ManagedPath, Obstacle>,
    /// Directories that are there, and that the update opens to others, with the mode and owner that they get.
    pub opened: BTreeMap<ManagedPath, Access>,
    /// Of hard links to another name of a listed file, by the path of the link.
    pub targets: BTreeMap<ManagedPath, Obstacle>,
    /// Real paths of the targets of hard links, by the path of the link.
    pub real_targets: BTreeMap<ManagedPath, String>,
    /// Real paths of entries that links of the host lead to, by the path of the entry.
    pub real_paths: BTreeMap<ManagedPath, String>,
    /// Of entries of the old config that links of the host led elsewhere when it was applied.
    pub led: BTreeMap<ManagedPath, Obstacle>,
    /// Paths of the agent and of the system that links of the host lead to.
    pub places: BTreeMap<&'static str, Place>,
    /// Of each new file: nothing on the host reads their labels from its SELinux policy.
    pub labels: Option<Obstacle>,
    /// Of the links of units.
    pub units: BTreeMap<UnitName, Obstacle>,
    /// Of the keys of accounts.
    pub keys: BTreeMap<String, Obstacle>,
    /// Of keys that leave: they stay, and nothing waits for them.
    pub leaving_keys: BTreeMap<String, Obstacle>,
    /// Of the homes of accounts that are made.
    pub homes: BTreeMap<String, Obstacle>,
    /// Of the databases of accounts, by path.
    pub databases: BTreeMap<String, Obstacle>,
    /// Lock files that useradd, usermod and groupadd do not take over, by database.
    pub locks: BTreeMap<String, Obstacle>,
    /// Databases of accounts that are no files, by path.
    pub unreadable: BTreeMap<String, Obstacle>,
    /// Of databases that are links below a root of another machine: there each program wants all of them plain.
    pub links: BTreeMap<String, Obstacle>,
    /// Backups and new versions that useradd, usermod and groupadd can't write, by database.
    pub backups: BTreeMap<String, Obstacle>,
    /// Settings of these programs that are no files.
    pub defaults: Option<Obstacle>,
    /// The access list that these programs would pass on to the databases.
    pub inherited_list: Option<Obstacle>,
    /// Accounts and groups that no id is left for, or that a name service knows already, by field.
    pub ids: BTreeMap<String, Obstacle>,
    /// Accounts and groups with several lines in a database, or with one that is not valid, by field.
    pub lines: BTreeMap<String, Obstacle>,
    /// Databases that useradd, usermod and groupadd can't read to their end, or can't write anew, by path.
    pub endless: BTreeMap<String, Obstacle>,
    /// Accounts that usermod would change, or add to a group, in a line with a tab, by field: it refuses to write one.
    pub tabs: BTreeMap<String, Obstacle>,
    /// The lock of lckpwdf(3), which every change of an account takes.
    pub password_lock: Option<Obstacle>,
    /// File systems, by their device.
    pub spaces: BTreeMap<u64, Space>,
    /// The device that a managed path is on, or would be.
    pub devices: BTreeMap<ManagedPath, u64>,
    /// The device of the agent's own state.
    pub state: Option<u64>,
    /// The device of the files that machine-config-daemon takes a node back from.
    pub mcd: Option<u64>,
    /// The space of accounts.
    pub accounts: AccountSpace,
    /// Entries in the way of keys, which are moved aside: by account.
    pub in_the_way: BTreeMap<String, InTheWay>,
    /// Of packages of kernels and extensions: the backend that can't layer them.
    pub layers: Option<Obstacle>,
    /// Of packages of kernels and extensions that come in no image of their own: the missing repository.
    pub repositories: Option<Obstacle>,
    /// Of the kernel: processors that have none such.
    pub kernel: Option<Obstacle>,
}

/// The place of a path that links of the host lead to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// Its real path.
    pub real: String,
    /// The links on the way, by their real paths.
    pub links: Vec<String>,
}

/// An entry in the way of an account's keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InTheWay {
    /// Its path.
    pub path: String,
    /// The path that it is moved to, or one like it with a number.
    pub aside: String,
}

/// The space that accounts take of file systems.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AccountSpace {
    /// The devices of their homes, by account.
    pub homes: BTreeMap<String, u64>,
    /// Bytes, in whole blocks, and inodes that useradd copies into a new home.
    pub skeleton: (u64, u64),
    /// The device of the databases, and their bytes together.
    pub databases: Option<(u64, u64)>,
}
