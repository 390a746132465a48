//! Which backend works on this host, and why.
//!
//! The choice is made once, when the agent starts: the installed tools belong to the booted image, and another image
//! comes with a reboot.

use crate::host::{HostError, Root};

/// The administrator's choice of a backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestedBackend {
    /// The backend that fits the host.
    Auto,
    /// This one.
    For(Kind),
}

/// The backends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// libostree, by the agent's own worker.
    Ostree,
    /// bootc, run by systemd.
    Bootc,
    /// The daemon of rpm-ostree.
    RpmOstree,
    /// None: OS changes are refused.
    None,
}

/// A backend, and why it is this one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Choice {
    /// The backend.
    pub kind: Kind,
    /// Why, for people: `status` shows it.
    pub because: String,
}

/// Path of bootc.
const BOOTC: &str = "/usr/bin/bootc";

/// libostree's mark of a boot of its own.
const BOOTED: &str = "/run/ostree-booted";

/// File of the rpm-ostree package by which the bus starts its service.
const RPM_OSTREE: &str = "/usr/share/dbus-1/system-services/org.projectatomic.rpmostree1.service";

impl Choice {
    /// Chooses for a host.
    pub fn detect(root: &Root, asked: RequestedBackend) -> Result<Self, HostError> {
        let chosen = |kind, because: &str| Ok(Self { kind, because: because.to_owned() });
        match asked {
            RequestedBackend::For(kind) => chosen(kind, "set by --os-backend"),
            RequestedBackend::Auto if !root.is_machine() => {
                chosen(Kind::None, "the root is a directory, not the running machine")
            }
            RequestedBackend::Auto if !root.exists(BOOTED)? && root.exists(BOOTC)? => chosen(
                Kind::None,
                "bootc is installed, but libostree has not booted the machine (there is no /run/ostree-booted): \
                 a host with bootc's composefs backend is not supported",
            ),
            RequestedBackend::Auto if !root.exists(BOOTED)? => {
                chosen(Kind::None, "the machine was not booted by ostree (there is no /run/ostree-booted)")
            }
            // Before bootc: it knows layered packages, which bootc refuses to work on.
            RequestedBackend::Auto if root.exists(RPM_OSTREE)? => chosen(
                Kind::RpmOstree,
                "rpm-ostree is installed; it keeps packages that are layered on the image",
            ),
            RequestedBackend::Auto if root.exists(BOOTC)? => {
                chosen(Kind::Bootc, "bootc is installed (/usr/bin/bootc), rpm-ostree is not")
            }
            RequestedBackend::Auto => chosen(Kind::Ostree, "neither rpm-ostree nor bootc is installed"),
        }
    }
}
