//! The names of network interfaces, before another OS may give them others: a host with static addresses would be lost.
//!
//! nmstate does it. On a host of Enterprise Linux 9 it keeps the names; on 10 it removes files that are not needed any
//! more, which may fail, since there may be nothing (MCD-234). Other hosts are left alone.

use std::time::Duration;

use tracing::{info, warn};

use super::{HostError, Root, command};
use crate::model::text::chain;

const NMSTATECTL: &str = "/usr/bin/nmstatectl";
/// Kernel arguments that pin names, written by nmstatectl if it needs any.
const KARGS: &str = "/run/machine-config-agent/nic-kargs";
const TIMEOUT: Duration = Duration::from_secs(120);

/// Action for the NIC names of an OS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pinning {
    Persist,
    CleanUp,
    Nothing,
}

impl Pinning {
    fn new(os_release: &str) -> Self {
        let value = |key: &str| {
            let found = os_release.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
            found.unwrap_or_default().trim().trim_matches(['"', '\'']).to_owned()
        };
        let (id, version) = (value("ID"), value("VERSION_ID"));
        let el = |major: &str| {
            // RHCOS counts its own versions, and names those of RHEL beside them.
            let of = |version: &str| version == major || version.starts_with(&format!("{major}."));
            let is_rhcos = id == "rhcos" && of(&value("RHEL_VERSION"));
            is_rhcos || (matches!(id.as_str(), "rhel" | "centos" | "scos" | "rhcos") && of(&version))
        };
        match (el("9"), el("10")) {
            (true, _) => Self::Persist,
            (_, true) => Self::CleanUp,
            (false, false) => Self::Nothing,
        }
    }
}

/// Pins the names, or removes the pins.
pub async fn persist(root: &Root) -> Result<(), HostError> {
    let text = ["/etc/os-release", "/usr/lib/os-release"].iter().find_map(|path| root.read(path).transpose());
    let text = text.transpose()?.unwrap_or_default();
    let pinning = Pinning::new(&String::from_utf8_lossy(&text));
    if pinning == Pinning::Nothing {
        info!("The names of network interfaces stay as they are: this OS pins none");
        return Ok(());
    }
    root.replace(KARGS, b"", crate::model::FileMode::DEFAULT)?;
    let outside = |path: &str| format!("{}/{}", root.base().display(), path.trim_start_matches('/'));
    let (base, kargs, program) = (root.base().display().to_string(), outside(KARGS), outside(NMSTATECTL));
    let mut arguments = vec!["persist-nic-names", "--root", &base, "--kargs-out", &kargs];
    if pinning == Pinning::CleanUp {
        arguments.push("--cleanup");
    }
    match command::run(&program, &arguments, TIMEOUT).await {
        Err(error) if pinning == Pinning::CleanUp => {
            info!("Nothing pinned the names of network interfaces: {}", chain(&error));
            return Ok(());
        }
        ran => ran?,
    }
    let kargs = root.read_text(KARGS)?.unwrap_or_default();
    if !kargs.trim().is_empty() {
        warn!(
            "nmstate requests the kernel arguments {:?} to pin names of network interfaces; give them in a MachineConfig",
            kargs.trim()
        );
    }
    info!("The names of network interfaces are pinned");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A host whose nmstatectl records its arguments, and ends with a code.
    fn host(os_release: &str, code: u8) -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        for path in ["etc", "usr/bin", "run"] {
            std::fs::create_dir_all(directory.path().join(path)).unwrap();
        }
        std::fs::write(directory.path().join("etc/os-release"), os_release).unwrap();
        let program = directory.path().join("usr/bin/nmstatectl");
        let called = directory.path().join("called");
        crate::program::make_program(
            &program,
            &format!("#!/bin/sh\necho \"$*\" > {}\nexit {code}\n", called.display()),
        );
        directory
    }

    async fn called(os_release: &str, code: u8) -> (bool, Option<String>) {
        let directory = host(os_release, code);
        let done = persist(&Root::open(directory.path()).unwrap()).await.is_ok();
        let words = std::fs::read_to_string(directory.path().join("called")).ok();
        let base = directory.path().display().to_string();
        (done, words.map(|words| words.trim().replace(&base, "")))
    }

    /// MCD-234: Enterprise Linux 9 keeps the names and fails with nmstate; 10 cleans up whatever that ends with; others
    /// are left alone.
    #[tokio::test(flavor = "current_thread")]
    async fn names_are_pinned_by_version_of_os() {
        let persist = "persist-nic-names --root  --kargs-out /run/machine-config-agent/nic-kargs".to_owned();
        let clean_up = format!("{persist} --cleanup");
        for nine in ["ID=rhel\nVERSION_ID=\"9.4\"\n", "ID=\"rhcos\"\nVERSION_ID=\"4.19\"\nRHEL_VERSION=9.6\n"]
        {
            assert_eq!(called(nine, 0).await, (true, Some(persist.clone())), "{nine}");
            assert_eq!(called(nine, 1).await, (false, Some(persist.clone())), "{nine}");
        }
        let ten = "ID=centos\nVERSION_ID=10\n";
        assert_eq!(called(ten, 0).await, (true, Some(clean_up.clone())));
        assert_eq!(called(ten, 1).await, (true, Some(clean_up)));
        for other in ["ID=debian\nVERSION_ID=12\n", "ID=fedora\nVERSION_ID=9\n", ""] {
            assert_eq!(called(other, 1).await, (true, None), "{other}");
        }
    }
}
