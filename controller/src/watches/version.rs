//! Order of the versions of an object.

use kube::api::ObjectMeta;

/// Returns true if an object came before another version of it, or before another one of its name that was made later: a watch that begins
/// again where it ended brings both.
pub(crate) fn is_outdated(object: &ObjectMeta, by: &ObjectMeta) -> bool {
    let version = |object: &ObjectMeta| object.resource_version.clone().unwrap_or_default();
    is_older(&version(object), &version(by))
}

/// Returns true if a version of a kind came before another one. The API server's versions are numbers that grow; of others nothing
/// is known.
pub(crate) fn is_older(version: &str, than: &str) -> bool {
    matches!((version.parse::<u64>(), than.parse::<u64>()), (Ok(one), Ok(other)) if one < other)
}
