//! Batches: which operations are carried out together, and what each is to its batch.

use super::step::Op;
use crate::model::{ImageRef, Karg, UnitName, UserName};

/// Lifetime of an effect: the resume table needs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lifetime {
    /// It is on disk.
    Persistent,
    /// It is gone with the boot: a staged deployment lives in `/run`, a restarted service in memory.
    Runtime,
}

/// Steps of the same kind that follow each other are carried out together, recorded once:
/// contents staged side by side and synced in parallel, one deployment instead of two, one reload instead of five.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Batch {
    /// Everything that goes into the next deployment.
    Os,
    /// Accounts and groups that files may belong to.
    Accounts,
    /// Everything that is a file.
    Files,
    /// Keys and passwords of accounts, and what leaves the config.
    Users,
    /// Links of units.
    Links,
    /// Directories in which others may change names from then on.
    Directories,
    /// Requests to the running systemd.
    Services,
}

/// An operation as the batch sees it that carries it out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BatchOp<'a> {
    /// Of the next deployment.
    Os(OsOp<'a>),
    /// Of the path that the operation has.
    File(FileOp),
    /// Of an account or a group, before the files.
    Account(AccountOp, &'a UserName),
    /// Of an account or a group, after the files.
    User(UserOp, &'a UserName),
    /// Of the links of a unit.
    Link(LinkOp, &'a UnitName),
    /// A request to the running systemd.
    Service(ServiceOp<'a>),
}

/// A part of the next deployment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OsOp<'a> {
    /// Credentials for the pull.
    PullSecret,
    /// The image.
    Image(&'a ImageRef),
    /// Kernel arguments.
    Kargs {
        /// Arguments to remove.
        delete: &'a [Karg],
        /// Arguments to add.
        append: &'a [Karg],
    },
    /// Kernel and packages, as the config has them.
    Layers,
}

/// A change of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileOp {
    /// It gets the contents of the new config.
    Write,
    /// It goes.
    Remove,
    /// It gets its original again, or goes where there was none.
    Restore,
    /// It becomes a directory, or gets the mode and the owner of the new config.
    Directory,
    /// It becomes a link of the new config.
    Link,
    /// A directory goes, or gets its original again.
    LeaveDirectory,
    /// A directory gets the mode and the owner of the new config, or its original again, after all else.
    OpenDirectory,
}

/// A change of an account or a group, which files may belong to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccountOp {
    /// A group is made.
    CreateGroup,
    /// The password of a group is set.
    ModifyGroup,
    /// An account is made.
    CreateUser,
    /// Comment, shell and groups of an account are set.
    ModifyUser,
}

/// A change of an account or a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UserOp {
    /// Keys of an account.
    SshKeys,
    /// Password of an account.
    Password,
    /// An account is locked.
    Lock,
    /// A group is removed.
    RemoveGroup,
}

/// A change of the links of a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkOp {
    /// Linked to `/dev/null`.
    Mask,
    /// Not any more.
    Unmask,
    /// Its `[Install]` links are made.
    Enable,
    /// All its links are removed.
    Disable,
    /// One of both, by the host's presets.
    Preset,
}

/// A request to the running systemd.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServiceOp<'a> {
    /// Unit files are read again.
    DaemonReload,
    /// A unit is reloaded.
    Reload(&'a UnitName),
    /// A unit is restarted.
    Restart(&'a UnitName),
}

impl Op {
    /// Returns the lifetime of the effect.
    pub fn lasts(&self) -> Lifetime {
        match self.batch() {
            Batch::Os | Batch::Services => Lifetime::Runtime,
            Batch::Accounts | Batch::Files | Batch::Users | Batch::Links | Batch::Directories => {
                Lifetime::Persistent
            }
        }
    }

    /// Returns the batch it is carried out in; plans are ordered by it.
    pub fn batch(&self) -> Batch {
        match self.in_batch() {
            BatchOp::Os(_) => Batch::Os,
            BatchOp::File(FileOp::OpenDirectory) => Batch::Directories,
            BatchOp::File(_) => Batch::Files,
            BatchOp::Account(..) => Batch::Accounts,
            BatchOp::User(..) => Batch::Users,
            BatchOp::Link(..) => Batch::Links,
            BatchOp::Service(_) => Batch::Services,
        }
    }

    /// Returns what its batch does for it. The only list of operations by batch.
    pub fn in_batch(&self) -> BatchOp<'_> {
        match self {
            Self::LinkPullSecret { .. } => BatchOp::Os(OsOp::PullSecret),
            Self::StageOs { image } => BatchOp::Os(OsOp::Image(image)),
            Self::SetKargs { delete, append } => BatchOp::Os(OsOp::Kargs { delete, append }),
            Self::InstallExtensions { .. } | Self::SwitchKernel { .. } => BatchOp::Os(OsOp::Layers),
            Self::WriteFile { .. } | Self::WriteUnit { .. } | Self::WriteDropin { .. } => {
                BatchOp::File(FileOp::Write)
            }
            Self::MakeDirectory { .. } => BatchOp::File(FileOp::Directory),
            Self::WriteLink { .. } => BatchOp::File(FileOp::Link),
            Self::RemoveFile { .. } | Self::RemoveLink { .. } => BatchOp::File(FileOp::Remove),
            Self::RestoreFile { .. }
            | Self::RestoreLink { .. }
            | Self::RemoveUnit { .. }
            | Self::RemoveDropin { .. } => BatchOp::File(FileOp::Restore),
            Self::RemoveDirectory { .. } | Self::RestoreDirectory { .. } => {
                BatchOp::File(FileOp::LeaveDirectory)
            }
            Self::OpenDirectory { .. } => BatchOp::File(FileOp::OpenDirectory),
            Self::CreateGroup { group } => BatchOp::Account(AccountOp::CreateGroup, group),
            Self::ModifyGroup { group } => BatchOp::Account(AccountOp::ModifyGroup, group),
            Self::CreateUser { user } => BatchOp::Account(AccountOp::CreateUser, user),
            Self::ModifyUser { user } => BatchOp::Account(AccountOp::ModifyUser, user),
            Self::SetSshKeys { user } => BatchOp::User(UserOp::SshKeys, user),
            Self::SetPassword { user } => BatchOp::User(UserOp::Password, user),
            Self::LockUser { user } => BatchOp::User(UserOp::Lock, user),
            Self::RemoveGroup { group } => BatchOp::User(UserOp::RemoveGroup, group),
            Self::MaskUnit { unit } => BatchOp::Link(LinkOp::Mask, unit),
            Self::UnmaskUnit { unit } => BatchOp::Link(LinkOp::Unmask, unit),
            Self::EnableUnit { unit } => BatchOp::Link(LinkOp::Enable, unit),
            Self::DisableUnit { unit } => BatchOp::Link(LinkOp::Disable, unit),
            Self::PresetUnit { unit } => BatchOp::Link(LinkOp::Preset, unit),
            Self::DaemonReload => BatchOp::Service(ServiceOp::DaemonReload),
            Self::ReloadUnit { unit } => BatchOp::Service(ServiceOp::Reload(unit)),
            Self::RestartUnit { unit } => BatchOp::Service(ServiceOp::Restart(unit)),
        }
    }
}
