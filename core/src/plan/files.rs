//! The steps of files: written first, taken away after (MCD-140).

use super::sides::Sides;
use super::{Op, Step};
use crate::model::{ManagedPath, ObservedFile};

/// Files that stay on the host when their config goes (MCD-137): others keep them up to date.
const KEPT: [&str; 3] = [
    "/etc/pki/ca-trust/source/anchors/openshift-config-user-ca-bundle.crt",
    KUBELET_CA,
    "/etc/kubernetes/static-pod-resources/configmaps/cloud-config/ca-bundle.pem",
];

/// A directory whose files stay as well.
const KEPT_DIR: &str = "/etc/docker/certs.d";

/// The certificates are rotated by the cluster: the config's copy is only for a first boot (MCD-129).
const KUBELET_CA: &str = "/etc/kubernetes/kubelet-ca.crt";

/// Returns the writes.
pub(super) fn writes(sides: &Sides<'_>) -> Vec<Step> {
    let paths = sides.to.files.keys().filter(|path| {
        let there = sides.facts.seen.files.get(*path).is_some_and(|seen| *seen != ObservedFile::Absent);
        path.as_str() != KUBELET_CA || !there
    });
    let write = |path: &ManagedPath| {
        Some(Step { op: Op::WriteFile { path: path.clone() }, because: sides.write(path)? })
    };
    paths.filter_map(write).collect()
}

/// Returns the removals.
pub(super) fn removals(sides: &Sides<'_>) -> Vec<Step> {
    let kept = |path: &ManagedPath| KEPT.contains(&path.as_str()) || path.is_below(KEPT_DIR);
    let remove = |path: &ManagedPath| {
        let because = sides.take_away(path)?;
        let path = path.clone();
        let op = if sides.restorable(&path) { Op::RestoreFile { path } } else { Op::RemoveFile { path } };
        Some(Step { op, because })
    };
    sides.from.files.keys().filter(|path| !kept(path)).filter_map(remove).collect()
}
