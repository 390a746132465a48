//! Parsers of foreign bytes, by name: targets of `fuzz/`, and of the test that reads its kept corpus. Each returns the texts of its
//! refusals; `tests/support/fuzzed.rs` says what holds for all. A private parser has its target in its own folder.
//!
//! With the feature `fuzzing` alone: no part of the interface.

use crate::control::fuzzing::{control_target, stage};
use crate::control::kube::fuzzing::{certificate, kubeconfig, node};
use crate::host::os::fuzzing::{bootc_progress, bootc_status, rpm_ostree_status};
use crate::journal::fuzzing::state_files;
use crate::settings::file;

/// Reads bytes; the texts of its refusals.
pub type Target = fn(&[u8]) -> Vec<String>;

/// The parsers.
pub const TARGETS: &[(&str, Target)] = &[
    ("bootc-progress", bootc_progress),
    ("bootc-status", bootc_status),
    ("certificate", certificate),
    ("control-target", control_target),
    ("kubelet-kubeconfig", kubeconfig),
    ("node", node),
    ("rpm-ostree-status", rpm_ostree_status),
    #[cfg(feature = "backend-ostree")]
    ("seed-archive", crate::host::os::fuzzing::seed_archive),
    ("settings", settings),
    ("stage", stage),
    ("state", state_files),
];

fn settings(bytes: &[u8]) -> Vec<String> {
    let Ok(text) = std::str::from_utf8(bytes) else { return Vec::new() };
    match file::parse(text, "settings.toml") {
        Ok(_) => Vec::new(),
        Err(error) => {
            assert!(!error.next().is_empty() && error.reason() == "SettingsInvalid", "the next step");
            vec![error.to_string()]
        }
    }
}

#[cfg(test)]
#[path = "../tests/support/fuzzed.rs"]
mod fuzzed;

#[cfg(all(test, feature = "backend-ostree"))]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn kept_corpus_is_read_without_harm() {
        fuzzed::replay(TARGETS, &Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus/agent"));
    }
}
