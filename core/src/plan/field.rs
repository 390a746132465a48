//! Fields of a MachineConfig, by the steps that come from them.

use super::Op;

/// Returns the field of a step in the MachineConfig.
pub(super) fn field(op: &Op) -> String {
    match op {
        Op::WriteFile { path } | Op::RemoveFile { path } | Op::RestoreFile { path } => {
            format!("storage.files {:?}", path.as_str())
        }
        Op::MakeDirectory { path }
        | Op::RemoveDirectory { path }
        | Op::RestoreDirectory { path }
        | Op::OpenDirectory { path } => format!("storage.directories {:?}", path.as_str()),
        Op::WriteLink { path } | Op::RemoveLink { path } | Op::RestoreLink { path } => {
            format!("storage.links {:?}", path.as_str())
        }
        Op::WriteDropin { unit, name } | Op::RemoveDropin { unit, name } => {
            format!("systemd.units {:?} dropins {:?}", unit.as_str(), name.as_str())
        }
        Op::WriteUnit { unit }
        | Op::RemoveUnit { unit }
        | Op::MaskUnit { unit }
        | Op::UnmaskUnit { unit }
        | Op::EnableUnit { unit }
        | Op::DisableUnit { unit }
        | Op::PresetUnit { unit } => format!("systemd.units {:?}", unit.as_str()),
        Op::SetSshKeys { .. } => format!("passwd.users {:?} sshAuthorizedKeys", op.target()),
        Op::SetPassword { .. } => format!("passwd.users {:?} passwordHash", op.target()),
        Op::CreateUser { .. } | Op::ModifyUser { .. } | Op::LockUser { .. } => {
            format!("passwd.users {:?}", op.target())
        }
        Op::CreateGroup { .. } | Op::ModifyGroup { .. } | Op::RemoveGroup { .. } => {
            format!("passwd.groups {:?}", op.target())
        }
        // The secret is for the pull of that image.
        Op::LinkPullSecret { .. } | Op::StageOs { .. } => "spec.osImageURL".to_owned(),
        Op::SetKargs { .. } => "spec.kernelArguments".to_owned(),
        Op::InstallExtensions { .. } => "spec.extensions".to_owned(),
        Op::SwitchKernel { .. } => "spec.kernelType".to_owned(),
        Op::DaemonReload | Op::ReloadUnit { .. } | Op::RestartUnit { .. } => {
            format!("{} {}", op.as_str(), op.target())
        }
    }
}
