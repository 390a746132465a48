//! The table of backends: names, detection and construction. A new backend is one row here and a folder beside it.
//!
//! The choice is made once, when the agent starts: the installed tools belong to the booted image, and another image
//! comes with a reboot.

use crate::host::systemd::Systemd;
use crate::host::{HostError, Proxies, Root};

use super::bootc::BootcBackend;
use super::ostree::OstreeBackend;
use super::rpmostree::RpmOstreeBackend;
use super::worker::Worker;
use super::{NotImageBased, OsBackend};

/// Handles that backends are made of.
#[derive(Debug)]
pub struct BackendParts<'a> {
    /// The host's root.
    pub root: &'a Root,
    /// The host's systemd.
    pub systemd: &'a Systemd,
    /// Client of the libostree worker.
    pub worker: Worker,
    /// Proxies of pulls.
    pub proxies: &'a Proxies,
}

/// A row of the table.
#[derive(Debug)]
pub struct Candidate {
    /// Name of the backend, as a value of `--os-backend`.
    pub name: &'static str,
    /// Help text of that value.
    pub help: &'static str,
    /// Returns the reason to select it on a host that no row above fits.
    fits: fn(&Root) -> Result<Option<&'static str>, HostError>,
    open: fn(BackendParts<'_>) -> Box<dyn OsBackend>,
}

/// The backends, in the order of detection. rpm-ostree comes before bootc: it knows layered packages, which bootc refuses
/// to work on.
pub static CANDIDATES: [Candidate; 4] = [
    Candidate {
        name: "none",
        help: "Nothing: OS changes are refused",
        fits: not_image_based,
        open: |_| Box::new(NotImageBased),
    },
    Candidate {
        name: "rpm-ostree",
        help: "The daemon of rpm-ostree, over D-Bus",
        fits: |root| {
            let reason = "rpm-ostree is installed; it keeps packages that are layered on the image";
            Ok(root.exists(RPM_OSTREE)?.then_some(reason))
        },
        open: |parts| {
            let backend = RpmOstreeBackend::new(parts.root, parts.worker);
            Box::new(backend.through(parts.proxies.clone(), parts.systemd.clone()))
        },
    },
    Candidate {
        name: "bootc",
        help: "bootc, run by systemd",
        fits: |root| {
            let reason = "bootc is installed (/usr/bin/bootc), rpm-ostree is not";
            Ok(root.exists(BOOTC)?.then_some(reason))
        },
        open: |parts| {
            let backend = BootcBackend::new(parts.worker, parts.systemd.clone(), parts.root.clone());
            Box::new(backend.through(parts.proxies.clone()))
        },
    },
    Candidate {
        name: "ostree",
        help: "libostree",
        fits: |_| Ok(Some("neither rpm-ostree nor bootc is installed")),
        open: |parts| Box::new(OstreeBackend::new(parts.worker)),
    },
];

/// The administrator's choice of a backend.
#[derive(Debug, Clone, Copy)]
pub enum RequestedBackend {
    /// The backend that fits the host.
    Auto,
    /// This one.
    For(&'static Candidate),
}

/// A backend, and the reason why it was selected.
#[derive(Debug)]
pub struct Choice {
    candidate: &'static Candidate,
    /// The reason, for people: `status` shows it.
    pub reason: &'static str,
}

/// Path of bootc.
const BOOTC: &str = "/usr/bin/bootc";

/// libostree's mark of a boot of its own.
const BOOTED: &str = "/run/ostree-booted";

/// File of the rpm-ostree package by which the bus starts its service.
const RPM_OSTREE: &str = "/usr/share/dbus-1/system-services/org.projectatomic.rpmostree1.service";

impl RequestedBackend {
    /// Returns the choice of a name; `None` for an unknown one.
    pub fn from_name(name: &str) -> Option<Self> {
        if name == "auto" {
            return Some(Self::Auto);
        }
        CANDIDATES.iter().find(|candidate| candidate.name == name).map(Self::For)
    }
}

impl Choice {
    /// Chooses for a host.
    pub fn detect(root: &Root, requested: RequestedBackend) -> Result<Self, HostError> {
        if let RequestedBackend::For(candidate) = requested {
            let reason = "set by --os-backend";
            return Ok(Self { candidate, reason });
        }
        for candidate in &CANDIDATES {
            if let Some(reason) = (candidate.fits)(root)? {
                return Ok(Self { candidate, reason });
            }
        }
        Err(HostError::NoBackend { object: "OS".to_owned() })
    }

    /// Returns the backend's name.
    pub fn name(&self) -> &'static str {
        self.candidate.name
    }

    /// Makes the backend.
    pub fn open(&self, parts: BackendParts<'_>) -> Box<dyn OsBackend> {
        (self.candidate.open)(parts)
    }
}

fn not_image_based(root: &Root) -> Result<Option<&'static str>, HostError> {
    if !root.is_machine() {
        return Ok(Some("the root is a directory, not the running machine"));
    }
    if root.exists(BOOTED)? {
        return Ok(None);
    }
    Ok(Some(if root.exists(BOOTC)? {
        "bootc is installed, but libostree has not booted the machine (there is no /run/ostree-booted): a host with \
         bootc's composefs backend is not supported"
    } else {
        "the machine was not booted by ostree (there is no /run/ostree-booted)"
    }))
}
