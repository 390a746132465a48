//! Count of soft reboots: restarts of user space under the running kernel.

use super::double::Double;
use super::peers;
use crate::host::Systemd;

/// A soft reboot is counted once per process, which does not outlive one; a systemd that counts none has none.
#[tokio::test(flavor = "current_thread")]
async fn soft_reboot_capability_is_queried_once() {
    for (count, expected) in [(Some(0), 0), (Some(3), 3), (None, 0)] {
        let double = Double::new("257");
        double.state().soft_reboots = count;
        let (_server, systemd) = peers(&double).await;
        assert_eq!(systemd.soft_reboots().await, expected, "{count:?}");
        double.state().soft_reboots = Some(7);
        assert_eq!(systemd.clone().soft_reboots().await, expected, "{count:?}");
    }
    assert_eq!(Systemd::absent().soft_reboots().await, 0);
    // A failed request is repeated.
    let double = Double::new("257");
    let (server, systemd) = peers(&double).await;
    drop(server);
    assert_eq!(systemd.soft_reboots().await, 0);
    assert_eq!(systemd.soft_reboots.get(), None);
}
