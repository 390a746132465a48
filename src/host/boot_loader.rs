//! The boot loader, before another image boots: the loader of that image may have to be newer than that of this
//! one, where Secure Boot checks signatures (MCD-208).
//!
//! It is the booted image's own `bootloader-update.service` (bootupd) that updates it, where the image has one, and the
//! version is the booted image's: it started the present system. The disks with a boot loader are bootupd's
//! to know (MCD-209).

use super::systemd::known;
use super::{Host, HostError, Root};

/// bootupd's unit.
const UNIT: &str = "bootloader-update.service";

/// The firmware's variable of signature checks: four bytes of attributes, then 1 if they are on.
const SECURE_BOOT: &str = "/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c";

/// Updates the boot loader. A failure keeps nothing from its update: the boot loader is then as before.
pub async fn update(host: &Host) {
    match start(host).await {
        Ok(true) => tracing::info!("The boot loader is up to date, by {UNIT}"),
        Ok(false) => {}
        Err(error) => {
            tracing::warn!("The boot loader was not updated: {error}. Next: {}", error.next());
        }
    }
}

async fn start(host: &Host) -> Result<bool, HostError> {
    if !cfg!(any(target_arch = "x86_64", target_arch = "aarch64")) || is_surely_off(&host.root) {
        return Ok(false);
    }
    host.systemd.start_installed(&known(UNIT)?).await
}

/// Returns true if the firmware reports that it checks no signatures. Firmware without the variable may.
fn is_surely_off(root: &Root) -> bool {
    matches!(root.read_at_most(SECURE_BOOT, 64), Ok(Some(bytes)) if bytes.get(4) == Some(&0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::Systemd;
    use crate::host::systemd::tests::double::{Double, Unit};
    use crate::host::systemd::tests::peers;

    /// MCD-208: nothing is requested only where Secure Boot is known to be off.
    #[test]
    fn secure_boot_counts_as_on_unless_firmware_denies_it() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::open(directory.path()).unwrap();
        assert!(!is_surely_off(&root));
        let path = directory.path().join(SECURE_BOOT.trim_start_matches('/'));
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        for (bytes, expected) in [(&b"\x06\0\0\0\0"[..], true), (b"\x06\0\0\0\x01", false), (b"", false)] {
            std::fs::write(&path, bytes).unwrap();
            assert_eq!(is_surely_off(&root), expected, "{bytes:?}");
        }
    }

    /// MCD-208: a unit that the image does not have is requested in vain, and that is ignored.
    #[tokio::test(flavor = "current_thread")]
    async fn only_installed_unit_is_started() {
        let double = Double::new("252");
        let (_server, systemd) = peers(&double).await;
        let name = known(UNIT).unwrap();
        assert!(!systemd.start_installed(&name).await.unwrap());
        assert_eq!(double.state().asked, Vec::<String>::new());
        double.state().units.insert(name.to_string(), Unit::default());
        assert!(systemd.start_installed(&name).await.unwrap());
        assert_eq!(double.state().asked, ["start bootloader-update.service replace"]);
        double.state().jobs.result = "failed";
        assert!(systemd.start_installed(&name).await.is_err());
        assert!(!Systemd::absent().start_installed(&name).await.unwrap());
    }
}
