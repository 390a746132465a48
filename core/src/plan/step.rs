//! The steps of a plan: data, never closures. They can be printed, compared, journaled, repeated and undone.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::model::{DropinName, ImageRef, Karg, ManagedPath, UnitName, UserName};

/// The reason of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StepReason {
    /// It is only in the new config.
    Added,
    /// The configs differ in it.
    Changed,
    /// It is only in the old config.
    Removed,
    /// No image brings it to this host: its real path is under `/var`.
    UnderVar,
    /// The ostree merge would keep the local version in `/etc`.
    LocallyModified,
    /// The unit files changed: systemd has to read them again.
    UnitsChanged,
    /// The disruption policy needs it.
    Policy,
    /// The image needs it before it is pulled.
    Pull,
    /// In image mode the image brings it.
    InImage,
    /// The entry stays, and the user of the account changed it on this host.
    Drifted,
}

/// One change of the host. Every step is idempotent; its doc describes a second run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "kebab-case")]
pub enum Op {
    /// Hands registry credentials to the OS pull, as the target config brings them or else as the host has them, and
    /// links them for the host's own tools. A second run finds the link right.
    LinkPullSecret {
        /// The secret's file.
        path: ManagedPath,
    },
    /// Pulls an image and stages its deployment. A second run finds the staged digest right.
    StageOs {
        /// The image.
        image: ImageRef,
    },
    /// Changes kernel arguments, in the same deployment as `StageOs`. A second run finds them right.
    SetKargs {
        /// Arguments to remove, one instance each.
        delete: Vec<Karg>,
        /// Arguments to add at the end, in order.
        append: Vec<Karg>,
    },
    /// Layers and removes extension packages. A second run finds the request right.
    InstallExtensions {
        /// Names of the desired extensions.
        extensions: Vec<String>,
    },
    /// Switches the kernel. A second run finds it right.
    SwitchKernel {
        /// The desired kernel.
        kernel: crate::model::os::KernelType,
    },
    /// Writes a file of the new config. A second run finds bytes, mode and owner right and writes nothing.
    WriteFile {
        /// The path.
        path: ManagedPath,
    },
    /// Removes a file that is no longer managed. A second run finds nothing there.
    RemoveFile {
        /// The path.
        path: ManagedPath,
    },
    /// Restores the original that a no longer managed file had replaced. A second run finds it there.
    RestoreFile {
        /// The path.
        path: ManagedPath,
    },
    /// Makes a directory, or gives an existing one its mode and owner. A second run finds it right.
    MakeDirectory {
        /// The path.
        path: ManagedPath,
    },
    /// Removes a directory that is no longer managed, if nothing is in it. A second run finds nothing there.
    RemoveDirectory {
        /// The path.
        path: ManagedPath,
    },
    /// Gives a directory that is no longer managed its earlier mode and owner, or restores what it had replaced. A second
    /// run finds it so.
    RestoreDirectory {
        /// The path.
        path: ManagedPath,
    },
    /// Gives a directory a mode or an owner that lets others change what is in it, after all else: what leaves has gone from it by
    /// then. A second run finds it so.
    OpenDirectory {
        /// The path.
        path: ManagedPath,
    },
    /// Writes a link. A second run finds its target and owner right.
    WriteLink {
        /// The path.
        path: ManagedPath,
    },
    /// Removes a link that is no longer managed. A second run finds nothing there.
    RemoveLink {
        /// The path.
        path: ManagedPath,
    },
    /// Restores what a no longer managed link had replaced. A second run finds it there.
    RestoreLink {
        /// The path.
        path: ManagedPath,
    },
    /// Writes a unit file. As `WriteFile`.
    WriteUnit {
        /// The unit.
        unit: UnitName,
    },
    /// Removes or restores a unit file that is no longer managed. As `RemoveFile`.
    RemoveUnit {
        /// The unit.
        unit: UnitName,
    },
    /// Writes a drop-in. As `WriteFile`.
    WriteDropin {
        /// The unit.
        unit: UnitName,
        /// The drop-in.
        name: DropinName,
    },
    /// Removes or restores a drop-in. As `RemoveFile`.
    RemoveDropin {
        /// The unit.
        unit: UnitName,
        /// The drop-in.
        name: DropinName,
    },
    /// Makes a group. A second run makes it again from what was there before.
    CreateGroup {
        /// The group.
        group: UserName,
    },
    /// Sets the password of a group. A second run finds it right.
    ModifyGroup {
        /// The group.
        group: UserName,
    },
    /// Removes a group that the agent made. A second run finds none.
    RemoveGroup {
        /// The group.
        group: UserName,
    },
    /// Makes an account. A second run makes it again from what was there before.
    CreateUser {
        /// The account.
        user: UserName,
    },
    /// Sets comment, shell and groups of an account, and ends its expiry. A second run finds them right.
    ModifyUser {
        /// The account.
        user: UserName,
    },
    /// Locks an account that the agent made: no password, no keys, and it has expired. A second run finds it so.
    LockUser {
        /// The account.
        user: UserName,
    },
    /// Writes or removes the keys file of an account. As `WriteFile`.
    SetSshKeys {
        /// The account.
        #[serde(default = "UserName::core", skip_serializing_if = "UserName::is_core")]
        user: UserName,
    },
    /// Sets the password field of an account. A second run finds it right.
    SetPassword {
        /// The account.
        #[serde(default = "UserName::core", skip_serializing_if = "UserName::is_core")]
        user: UserName,
    },
    /// Links a unit to `/dev/null`. A second run finds the link.
    MaskUnit {
        /// The unit.
        unit: UnitName,
    },
    /// Removes such a link. A second run finds none.
    UnmaskUnit {
        /// The unit.
        unit: UnitName,
    },
    /// Makes a unit's `[Install]` links exactly. A second run finds them.
    EnableUnit {
        /// The unit.
        unit: UnitName,
    },
    /// Removes every link of a unit. A second run finds none.
    DisableUnit {
        /// The unit.
        unit: UnitName,
    },
    /// Enables or disables a unit by the host's presets. A second run finds it so.
    PresetUnit {
        /// The unit.
        unit: UnitName,
    },
    /// Has systemd read its unit files again. A second run does it again, harmlessly.
    DaemonReload,
    /// Reloads a unit. A second run does it again.
    ReloadUnit {
        /// The unit.
        unit: UnitName,
    },
    /// Restarts a unit. A second run does it again.
    RestartUnit {
        /// The unit.
        unit: UnitName,
    },
}

/// A step with its reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// Operation of the step.
    #[serde(flatten)]
    pub op: Op,
    /// Why.
    pub because: StepReason,
}

impl Op {
    /// Returns the name of the step, as in the JSON of `plan`.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::LinkPullSecret { .. } => "link-pull-secret",
            Self::StageOs { .. } => "stage-os",
            Self::SetKargs { .. } => "set-kargs",
            Self::InstallExtensions { .. } => "install-extensions",
            Self::SwitchKernel { .. } => "switch-kernel",
            Self::WriteFile { .. } => "write-file",
            Self::RemoveFile { .. } => "remove-file",
            Self::RestoreFile { .. } => "restore-file",
            Self::MakeDirectory { .. } => "make-directory",
            Self::RemoveDirectory { .. } => "remove-directory",
            Self::RestoreDirectory { .. } => "restore-directory",
            Self::OpenDirectory { .. } => "open-directory",
            Self::WriteLink { .. } => "write-link",
            Self::RemoveLink { .. } => "remove-link",
            Self::RestoreLink { .. } => "restore-link",
            Self::WriteUnit { .. } => "write-unit",
            Self::RemoveUnit { .. } => "remove-unit",
            Self::WriteDropin { .. } => "write-dropin",
            Self::RemoveDropin { .. } => "remove-dropin",
            Self::CreateGroup { .. } => "create-group",
            Self::ModifyGroup { .. } => "modify-group",
            Self::RemoveGroup { .. } => "remove-group",
            Self::CreateUser { .. } => "create-user",
            Self::ModifyUser { .. } => "modify-user",
            Self::LockUser { .. } => "lock-user",
            Self::SetSshKeys { .. } => "set-ssh-keys",
            Self::SetPassword { .. } => "set-password",
            Self::MaskUnit { .. } => "mask-unit",
            Self::UnmaskUnit { .. } => "unmask-unit",
            Self::EnableUnit { .. } => "enable-unit",
            Self::DisableUnit { .. } => "disable-unit",
            Self::PresetUnit { .. } => "preset-unit",
            Self::DaemonReload => "daemon-reload",
            Self::ReloadUnit { .. } => "reload-unit",
            Self::RestartUnit { .. } => "restart-unit",
        }
    }

    /// Returns the path, unit, image or arguments it is about.
    pub fn target(&self) -> String {
        match self {
            Self::LinkPullSecret { path }
            | Self::WriteFile { path }
            | Self::RemoveFile { path }
            | Self::RestoreFile { path }
            | Self::MakeDirectory { path }
            | Self::RemoveDirectory { path }
            | Self::RestoreDirectory { path }
            | Self::OpenDirectory { path }
            | Self::WriteLink { path }
            | Self::RemoveLink { path }
            | Self::RestoreLink { path } => path.to_string(),
            Self::StageOs { image } => image.to_string(),
            Self::SetKargs { delete, append } => {
                let minus = delete.iter().map(|karg| format!("-{karg}"));
                let plus = append.iter().map(|karg| format!("+{karg}"));
                minus.chain(plus).collect::<Vec<_>>().join(" ")
            }
            Self::InstallExtensions { extensions } if extensions.is_empty() => "none".to_owned(),
            Self::InstallExtensions { extensions } => extensions.join(" "),
            Self::SwitchKernel { kernel } => kernel.as_str().to_owned(),
            Self::WriteDropin { unit, name } | Self::RemoveDropin { unit, name } => {
                unit.dropin_path(name).to_string()
            }
            Self::CreateGroup { group: name }
            | Self::ModifyGroup { group: name }
            | Self::RemoveGroup { group: name }
            | Self::CreateUser { user: name }
            | Self::ModifyUser { user: name }
            | Self::LockUser { user: name }
            | Self::SetSshKeys { user: name }
            | Self::SetPassword { user: name } => name.to_string(),
            Self::DaemonReload => "systemd".to_owned(),
            Self::WriteUnit { unit }
            | Self::RemoveUnit { unit }
            | Self::MaskUnit { unit }
            | Self::UnmaskUnit { unit }
            | Self::EnableUnit { unit }
            | Self::DisableUnit { unit }
            | Self::PresetUnit { unit }
            | Self::ReloadUnit { unit }
            | Self::RestartUnit { unit } => unit.to_string(),
        }
    }

    /// Returns the path that the step writes, removes or links, when it has one.
    pub fn path(&self) -> Option<ManagedPath> {
        match self {
            Self::WriteFile { path }
            | Self::RemoveFile { path }
            | Self::RestoreFile { path }
            | Self::MakeDirectory { path }
            | Self::RemoveDirectory { path }
            | Self::RestoreDirectory { path }
            | Self::OpenDirectory { path }
            | Self::WriteLink { path }
            | Self::RemoveLink { path }
            | Self::RestoreLink { path } => Some(path.clone()),
            Self::WriteUnit { unit }
            | Self::RemoveUnit { unit }
            | Self::MaskUnit { unit }
            | Self::UnmaskUnit { unit } => Some(unit.path()),
            Self::WriteDropin { unit, name } | Self::RemoveDropin { unit, name } => {
                Some(unit.dropin_path(name))
            }
            Self::LinkPullSecret { .. }
            | Self::StageOs { .. }
            | Self::SetKargs { .. }
            | Self::InstallExtensions { .. }
            | Self::SwitchKernel { .. }
            | Self::CreateGroup { .. }
            | Self::ModifyGroup { .. }
            | Self::RemoveGroup { .. }
            | Self::CreateUser { .. }
            | Self::ModifyUser { .. }
            | Self::LockUser { .. }
            | Self::SetSshKeys { .. }
            | Self::SetPassword { .. }
            | Self::EnableUnit { .. }
            | Self::DisableUnit { .. }
            | Self::PresetUnit { .. }
            | Self::DaemonReload
            | Self::ReloadUnit { .. }
            | Self::RestartUnit { .. } => None,
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.op.as_str(), self.op.target())
    }
}

impl StepReason {
    /// Returns the reason's word, as in the JSON of `plan`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Added => "added",
            Self::Changed => "changed",
            Self::Removed => "removed",
            Self::UnderVar => "under-var",
            Self::Drifted => "drifted",
            Self::LocallyModified => "locally-modified",
            Self::UnitsChanged => "units-changed",
            Self::Policy => "policy",
            Self::Pull => "pull",
            Self::InImage => "in-image",
        }
    }
}
