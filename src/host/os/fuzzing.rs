//! The parsers of what the OS backends print, as targets of `fuzz/`.

#[cfg(feature = "backend-ostree")]
pub(crate) use super::ostree::seed_archive;

pub(crate) use super::bootc::fuzzing::{bootc_progress, bootc_status};
pub(crate) use super::rpmostree::fuzzing::rpm_ostree_status;
