//! The steps of files: written first, taken away after (MCD-140).

use super::input::PlanInput;
use super::{Op, Step};
use crate::model::ids::ACCOUNT_DATABASES;
use crate::model::{ManagedPath, ObservedFile};

/// Files that stay on the host when their config goes (MCD-137): others keep them up to date.
const PRESERVED: [&str; 3] = [
    "/etc/pki/ca-trust/source/anchors/openshift-config-user-ca-bundle.crt",
    KUBELET_CA,
    "/etc/kubernetes/static-pod-resources/configmaps/cloud-config/ca-bundle.pem",
];

/// A directory whose files stay as well.
const PRESERVED_DIRECTORY: &str = "/etc/docker/certs.d";

/// The certificates are rotated by the cluster: the config's copy is only for a first boot (MCD-129).
const KUBELET_CA: &str = "/etc/kubernetes/kubelet-ca.crt";

/// Returns the writes.
pub(super) fn writes(input: &PlanInput<'_>) -> Vec<Step> {
    let paths = input.to.files.keys().filter(|path| {
        let there =
            input.facts.observed.files.get(*path).is_some_and(|observed| *observed != ObservedFile::Absent);
        path.as_str() != KUBELET_CA || !there
    });
    let write = |path: &ManagedPath| {
        Some(Step { op: Op::WriteFile { path: path.clone() }, because: input.write(path)? })
    };
    paths.filter_map(write).collect()
}

/// Returns the removals, but for the files in whose place the new config has entries.
pub(super) fn removals(input: &PlanInput<'_>) -> Vec<Step> {
    input
        .from
        .files
        .keys()
        .filter(|path| !input.makes_way(path))
        .filter_map(|path| removal(input, path))
        .collect()
}

/// Returns true if a file stays when its config goes.
pub(super) fn is_preserved(path: &ManagedPath) -> bool {
    PRESERVED.contains(&path.as_str()) || path.is_below(PRESERVED_DIRECTORY)
}

/// Returns the step that takes a file away, or restores its original.
pub(super) fn removal(input: &PlanInput<'_>, path: &ManagedPath) -> Option<Step> {
    if is_preserved(path) {
        return None;
    }
    if stays(input, path) {
        return None;
    }
    let because = input.take_away(path)?;
    let path = path.clone();
    let op = if input.restorable(&path) { Op::RestoreFile { path } } else { Op::RemoveFile { path } };
    Some(Step { op, because })
}

/// Returns true for a database of accounts that has no original: without it no account is known.
pub(super) fn stays(input: &PlanInput<'_>, path: &ManagedPath) -> bool {
    ACCOUNT_DATABASES.contains(&path.as_str()) && !input.restorable(path)
}
