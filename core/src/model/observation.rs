//! Observed state of the host, managed objects only.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::carried::Carried;
use super::contents::Sha256;
use super::kargs::FormerKargs;
use super::obstacles::{Obstacle, Obstacles};
use super::soft_reboot::SoftRebootFacts;
use super::units::Mask;
use super::users::{PasswordHash, SshKey};
use super::{BootId, ConfigName, Displaced, FileMode, ImageRef, Karg, ManagedPath, UnitName};

/// The observed state of a path, not following a link at its end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ObservedFile {
    /// Nothing is there.
    Absent,
    /// A regular file.
    Regular {
        /// Digest of the bytes.
        sha256: Sha256,
        /// Number of bytes.
        len: u64,
        /// Permission bits, setuid, setgid and sticky included.
        mode: u32,
        /// Owner.
        uid: u32,
        /// Group.
        gid: u32,
    },
    /// A symbolic link.
    Symlink {
        /// Text of the link.
        target: String,
        /// Owner.
        uid: u32,
        /// Group.
        gid: u32,
    },
    /// A directory.
    Directory {
        /// Permission bits, setuid, setgid and sticky included.
        mode: u32,
        /// Owner.
        uid: u32,
        /// Group.
        gid: u32,
    },
    /// A device, a socket or a pipe.
    Special,
    /// A path that root can't follow: links in a circle, say, below the home of a user.
    Unreachable,
}

/// Unit file state by its links in `/etc`, as `systemctl is-enabled` reports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum UnitFileState {
    /// Its `[Install]` links are all there.
    Enabled,
    /// Some of its `[Install]` links are there, and others are not. systemd starts it by those.
    Partial,
    /// None of its links is there.
    Disabled,
    /// It has no `[Install]` section: nothing can be enabled.
    Static,
    /// It is a link to `/dev/null`.
    Masked,
    /// No unit file is known.
    NotFound,
}

/// The observed state of a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObservedUnit {
    /// Enablement.
    pub enabled: UnitFileState,
    /// Enablement by the host's presets.
    pub preset: UnitFilePreset,
    /// Mask of the unit in `/etc`.
    pub mask: Mask,
}

impl ObservedUnit {
    /// Returns true if the presets would enable or disable the unit.
    pub fn is_against_preset(self) -> bool {
        match (self.enabled, self.preset) {
            (UnitFileState::Enabled | UnitFileState::Partial, UnitFilePreset::Disable)
            | (UnitFileState::Disabled | UnitFileState::Partial, UnitFilePreset::Enable) => true,
            (
                UnitFileState::Enabled
                | UnitFileState::Disabled
                | UnitFileState::Partial
                | UnitFileState::Static
                | UnitFileState::Masked
                | UnitFileState::NotFound,
                _,
            ) => false,
        }
    }
}

impl UnitFileState {
    /// Returns true if all or some links of the unit are there.
    pub fn has_links(self) -> bool {
        match self {
            Self::Enabled | Self::Partial => true,
            Self::Disabled | Self::Static | Self::Masked | Self::NotFound => false,
        }
    }

    /// Returns true if the unit can be enabled, or is.
    pub fn is_installable(self) -> bool {
        match self {
            Self::Enabled | Self::Partial | Self::Disabled => true,
            Self::Static | Self::Masked | Self::NotFound => false,
        }
    }
}

/// The preset of a unit by the preset files of the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum UnitFilePreset {
    /// Enable it (also without a matching rule).
    Enable,
    /// Disable it.
    Disable,
    /// Leave it as it is. So is only a unit with some of its links; of another one, this is the preset of its state.
    Ignore,
}

/// The OS that runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Booted {
    /// The image the deployment was made from; `None` when it did not come from an image.
    pub image: Option<ImageRef>,
    /// The deployment's id: stateroot, checksum and serial.
    pub deployment: String,
    /// The config that the image carries (its label, else the config embedded in it).
    pub carries: EmbeddedConfig,
    /// Changes by rpm-ostree on top of the image.
    #[serde(default)]
    pub local: LocalPackages,
}

/// Changes by rpm-ostree on top of an image, on this host.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LocalPackages {
    /// Packages that were requested.
    pub requested: BTreeSet<String>,
    /// Packages of the image that were taken out.
    pub removed: BTreeSet<String>,
    /// Packages of the image that were replaced by others.
    pub replaced: BTreeSet<String>,
}

impl LocalPackages {
    /// Returns the package's name in an entry of rpm-ostree: one that was installed from a file is `SHA256:NEVRA`.
    pub fn name_in(entry: &str) -> &str {
        match entry.split_once(':') {
            Some((digest, name)) if Sha256::parse(digest).is_ok() => name,
            Some(_) | None => entry,
        }
    }

    /// Returns true if the deployment is the image and nothing else.
    pub fn is_empty(&self) -> bool {
        self.requested.is_empty() && self.removed.is_empty() && self.replaced.is_empty()
    }

    /// Counts the packages.
    pub fn count(&self) -> usize {
        self.requested.len() + self.removed.len() + self.replaced.len()
    }

    /// Lists the changes, by a word and the packages; absent changes are left out.
    pub fn listed(&self) -> impl Iterator<Item = (&'static str, String)> {
        let lists = [("layered", &self.requested), ("removed", &self.removed), ("replaced", &self.replaced)];
        let lists = lists.into_iter().filter(|(_, names)| !names.is_empty());
        lists.map(|(word, names)| (word, names.iter().map(String::as_str).collect::<Vec<_>>().join(" ")))
    }
}

/// The OS that the next boot will run, when it is another one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Staged {
    /// The image of the staged deployment.
    pub image: Option<ImageRef>,
    /// The deployment's id.
    pub deployment: String,
    /// Its kernel arguments, all of them.
    pub kargs: Vec<Karg>,
}

/// The OS side of an observation: the reason for there being none is a value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[expect(clippy::large_enum_variant, reason = "there is one per observation: a box would save nothing")]
pub enum ObservedOs {
    /// The host is not image-based, or `--os-backend none`: OS steps are skipped (MCD-207).
    NotImageBased,
    /// The host boots deployments.
    Deployments {
        /// The running deployment.
        booted: Booted,
        /// The staged deployment of the next boot.
        staged: Option<Staged>,
        /// The deployment that the next boot takes when it is neither: after a manual rollback.
        next: Option<Staged>,
    },
}

impl ObservedOs {
    /// Returns the running OS, when the host is image-based.
    pub fn booted(&self) -> Option<&Booted> {
        match self {
            Self::NotImageBased => None,
            Self::Deployments { booted, .. } => Some(booted),
        }
    }

    /// Returns the staged OS.
    pub fn staged(&self) -> Option<&Staged> {
        match self {
            Self::NotImageBased => None,
            Self::Deployments { staged, .. } => staged.as_ref(),
        }
    }

    /// Corrects which deployment runs: the one that was taken for it boots next.
    #[must_use]
    pub fn in_deployment(self, running: String) -> Self {
        match self {
            Self::Deployments { booted, staged, .. } if booted.deployment != running => {
                let Booted { image, deployment, .. } = booted;
                let booted = Booted {
                    image: None,
                    deployment: running,
                    carries: EmbeddedConfig::Unknown,
                    local: LocalPackages::default(),
                };
                Self::Deployments {
                    booted,
                    staged,
                    next: Some(Staged { image, deployment, kargs: Vec::new() }),
                }
            }
            right @ (Self::NotImageBased | Self::Deployments { .. }) => right,
        }
    }

    /// Returns the deployment that the next boot takes, when it neither runs nor is staged.
    pub fn next(&self) -> Option<&Staged> {
        match self {
            Self::NotImageBased => None,
            Self::Deployments { next, .. } => next.as_ref(),
        }
    }
}

/// The config that an image carries.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EmbeddedConfig {
    /// This one, by its `machineconfig` label or the config embedded in it.
    Config(ConfigName),
    /// None that the agent could find: files are written.
    Unknown,
}

/// An account as found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObservedAccount {
    /// The path of the keys file; `None` of an account that has no home (`/dev/null`).
    pub keys_path: Option<ManagedPath>,
    /// The keys file.
    pub keys: ObservedFile,
    /// The account's user id.
    pub uid: u32,
    /// The account's group id.
    pub gid: u32,
    /// The password field of `/etc/shadow`; `None` when there is no entry.
    pub password: Option<PasswordHash>,
    /// The first directory between home and keys file that is not the account's own, or that others may write:
    /// sshd takes no key from there.
    pub foreign: Option<ManagedPath>,
    /// The comment.
    pub gecos: String,
    /// The home directory.
    pub home: String,
    /// Other names of that directory that configs give it: image-based hosts have `/home` in `/var`.
    pub home_names: BTreeSet<String>,
    /// The login shell.
    pub shell: String,
    /// The name of the primary group; `None` when no group has its id.
    pub primary_group: Option<String>,
    /// The groups that it is a member of.
    pub groups: BTreeSet<String>,
    /// The maker of the account.
    pub maker: Maker,
    /// It has expired, as the agent has its own accounts expire that no config lists any more.
    pub is_expired: bool,
    /// The agent keeps what the host's own account was before a config changed it.
    pub has_original: bool,
    /// Parts that it has as a config gave them last, by the agent's record.
    pub given: GivenParts,
    /// Keys of the specs that are in the keys file.
    pub given_keys: BTreeSet<SshKey>,
    /// Keys that left a config, could not be removed, and still are in the keys file.
    pub unremoved_keys: BTreeSet<SshKey>,
    /// The obstacle that still keeps them from being removed.
    pub unremovable: Option<Obstacle>,
}

/// The parts of an account that are still as the agent set them, whichever config that was for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct GivenParts {
    /// The comment.
    pub gecos: bool,
    /// The login shell.
    pub shell: bool,
    /// The password field.
    pub password: bool,
}

/// Keys of configs in a home that an account had before, or of an account that was removed: they open whoever gets the home.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StrayKeys {
    /// The account that they were for.
    pub user: String,
    /// The path of the file.
    pub path: String,
    /// The number of such keys.
    pub count: usize,
    /// The obstacle that keeps them from being removed.
    pub unremovable: Option<Obstacle>,
}

/// The maker of an account or a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Maker {
    /// The host: an administrator, a package, the installation.
    Host,
    /// The OS image, in `/usr/lib`: the host's programs can't change it.
    Image,
    /// This agent.
    Agent,
}

/// A group as found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObservedGroup {
    /// Its id.
    pub gid: u32,
    /// Its password; `None` when it has none.
    pub password: Option<PasswordHash>,
    /// The maker of the group.
    pub maker: Maker,
    /// Its members, and its administrators (`gpasswd -A`).
    pub people: BTreeSet<String>,
    /// It is the primary group of an account.
    pub is_primary: bool,
}

/// Facts of the host's accounts that decide whether an entry can be applied.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AccountFacts {
    /// Programs that the host lacks, of those that change accounts.
    pub missing_programs: BTreeSet<String>,
    /// Groups of accounts that the host lacks.
    pub missing_groups: BTreeSet<String>,
    /// The accounts that have the user ids of the config.
    pub uid_owners: BTreeMap<u32, String>,
    /// The groups that have the group ids of the config.
    pub gid_owners: BTreeMap<u32, String>,
    /// The homes of the accounts of the config, as they are or will be, where they really are.
    pub homes: BTreeMap<String, String>,
    /// The host has no `/etc/shadow`: an account that is made has no line for its password there.
    pub lacks_shadow: bool,
    /// Other accounts of the host that have one of these homes, by the account of the config.
    pub home_owners: BTreeMap<String, String>,
    /// Accounts and groups that leave the config and are not what the agent made any more, by field: what became of them, and what to
    /// do.
    pub strangers: BTreeMap<String, String>,
}

/// The boot loader's count for this agent: its remaining tries of a new deployment before it boots the previous one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum BootCount {
    /// Nothing is counted, or the boot loader has no counter.
    #[default]
    Off,
    /// So many boots are left.
    Left(u32),
    /// The boot loader gave the new deployment up and booted the previous one.
    FellBack,
}

/// Result of the finalization of a staged deployment, on a node that came up in its old one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Finalization {
    /// libostree could not: its own words.
    Failed {
        /// libostree's message.
        said: String,
    },
    /// It left no error: the machine went down before it had ended, as in a power cut.
    CutShort,
    /// Its message can't be found.
    Untold {
        /// Why.
        why: String,
    },
}

impl fmt::Display for Finalization {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed { said } => f.write_str(said),
            Self::CutShort => {
                f.write_str("ostree-finalize-staged.service left no error: the machine went down without it")
            }
            Self::Untold { why } => f.write_str(why),
        }
    }
}

/// Observation of the host at one instant. Covers exactly the requested paths and units.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Observation {
    /// The boot.
    pub boot_id: BootId,
    /// The boot loader's count.
    pub boots: BootCount,
    /// The OS.
    pub os: ObservedOs,
    /// The running kernel's command line.
    pub kargs: Vec<Karg>,
    /// Arguments that configs of this host have set.
    pub former_kargs: FormerKargs,
    /// Arguments that the booted image brings by itself.
    pub image_kargs: Vec<Karg>,
    /// Entries of the specs' storage, by their field, that are on this host.
    pub storage: BTreeSet<String>,
    /// Files, unit files and drop-ins, by path.
    pub files: BTreeMap<ManagedPath, ObservedFile>,
    /// Files with an access list, which may let others in than the mode says.
    pub access_lists: BTreeSet<ManagedPath>,
    /// Hard links of the specs and their targets, where both are one file.
    pub hard_links: BTreeSet<(ManagedPath, ManagedPath)>,
    /// Units.
    pub units: BTreeMap<UnitName, ObservedUnit>,
    /// Links that lead to a unit beyond its `[Install]` section; a unit without is absent.
    pub stray_links: BTreeMap<UnitName, Vec<ManagedPath>>,
    /// The accounts of the config that the host has, and `core`.
    pub accounts: BTreeMap<String, ObservedAccount>,
    /// Keys of configs in files of which the agent knows and that are no account's keys file any more.
    pub stray_keys: Vec<StrayKeys>,
    /// The groups of the config that the host has.
    pub groups: BTreeMap<String, ObservedGroup>,
    /// User names of the config and their ids on the host; a name that is missing has no account.
    pub user_ids: BTreeMap<String, u32>,
    /// Group names of the config and their ids on the host.
    pub group_ids: BTreeMap<String, u32>,
    /// The part that the booted image's own config brought and a spec of the observation lacks; `None` if no config is
    /// embedded in the image.
    pub carried: Option<Arc<Carried>>,
}

/// Facts of the host and the target image beyond the specs: everything `plan` needs to leave no choice open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    /// Observation of the paths and units of both specs.
    pub observed: Observation,
    /// The config that the *target* image carries.
    pub carries: EmbeddedConfig,
    /// The file of the registry credentials for the image, which the target config may be about to bring.
    pub pull_secret: Option<ManagedPath>,
    /// Managed paths whose live version differs from the booted image's own (`/usr/etc`), absence included:
    /// the ostree merge keeps these, so an image can't bring them.
    pub local: BTreeSet<ManagedPath>,
    /// Managed paths whose real path is under `/var`: no image brings them to an existing host.
    pub under_var: BTreeSet<ManagedPath>,
    /// Paths that have a version to put back when they are no longer managed: a saved original, MCD's `.mcdorig`,
    /// or the image's own in `/usr/etc`.
    pub restorable: BTreeSet<ManagedPath>,
    /// Those of the restorable paths that are so already: nothing is written when they leave.
    pub restored: BTreeSet<ManagedPath>,
    /// Paths of the old config whose kept original is gone: nobody knows what the host had there.
    pub lost: BTreeSet<ManagedPath>,
    /// Directories that can't give way although the old config lists them, or has something in them: they were there before it, or
    /// hold what it did not bring.
    pub occupied: BTreeSet<ManagedPath>,
    /// Directories that the agent made for paths of the old config, which does not list them.
    pub made: BTreeSet<ManagedPath>,
    /// Those of the made directories that the new config has nothing in, and does not list.
    pub spare: BTreeSet<ManagedPath>,
    /// Directories of the old config, or made for it, that leave and hold what stays, so they stay as well.
    pub holding: BTreeSet<ManagedPath>,
    /// Directories of the old config, or made for it, in whose place the host had a file or a link before.
    pub covering: BTreeSet<ManagedPath>,
    /// Directories of the old config, or made for it, in whose place a link or a mount is: the paths below them lead elsewhere.
    pub displaced: BTreeMap<ManagedPath, Displaced>,
    /// Those of the restorable paths whose version to put back masks a unit: an administrator, or the image, had masked it before.
    pub own_masks: BTreeSet<ManagedPath>,
    /// Those of the restorable paths whose version to put back is no regular file: a hard link to it would have nothing to lead to.
    pub not_files: BTreeSet<ManagedPath>,
    /// The units that the `Also=` of a unit names, directly or not, as the host has both now. A unit without is absent.
    pub companions: BTreeMap<UnitName, BTreeMap<UnitName, ObservedUnit>>,
    /// The units of the new config whose files come or go with the storage of a config, as they are once that is written.
    pub stored_units: BTreeMap<UnitName, ObservedUnit>,
    /// Facts that decide whether accounts and groups can be applied.
    pub accounts: AccountFacts,
    /// FIPS mode of the kernel.
    pub fips: ObservedFips,
    /// Set if the host runs from live media: a deployment staged there is gone with the boot.
    pub is_live: bool,
    /// The host's facts of soft reboots; `None` if its settings allow none.
    pub soft_reboot: Option<SoftRebootFacts>,
    /// Obstacles of paths and units.
    pub obstacles: Obstacles,
}

/// The kernel's FIPS state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ObservedFips {
    /// On.
    On,
    /// Off.
    Off,
    /// The kernel does not report it: the check is skipped (MCD-090).
    Unknown,
}

impl ObservedFile {
    /// A directory as it is made for what is in it.
    pub const MADE_DIRECTORY: Self = Self::Directory { mode: 0o755, uid: 0, gid: 0 };

    /// Returns mode and owner of a directory.
    pub fn directory(&self) -> Option<(u32, u32)> {
        match self {
            Self::Directory { mode, uid, .. } => Some((*mode, *uid)),
            Self::Absent
            | Self::Regular { .. }
            | Self::Symlink { .. }
            | Self::Special
            | Self::Unreachable => None,
        }
    }

    /// Returns true for what takes the place of a directory.
    pub fn is_other_than_directory(&self) -> bool {
        matches!(self, Self::Regular { .. } | Self::Symlink { .. } | Self::Special)
    }

    /// Returns true if both are regular files of the same bytes.
    pub fn has_content_of(&self, other: &Self) -> bool {
        matches!((self, other), (Self::Regular { sha256: one, .. }, Self::Regular { sha256: two, .. }) if one == two)
    }

    /// Returns true if the path is a regular file with exactly these bits.
    pub fn has_mode(&self, desired: FileMode) -> bool {
        match self {
            Self::Regular { mode, .. } => *mode == desired.bits(),
            Self::Absent
            | Self::Symlink { .. }
            | Self::Directory { .. }
            | Self::Special
            | Self::Unreachable => false,
        }
    }
}
