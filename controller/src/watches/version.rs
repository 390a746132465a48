//! Order of the versions of an object.

use kube::api::ObjectMeta;

/// Returns true if an object came before another version of it.
pub(crate) fn is_outdated(object: &ObjectMeta, by: &ObjectMeta) -> bool {
    let version = |object: &ObjectMeta| object.resource_version.clone().unwrap_or_default();
    object.uid == by.uid && is_older(&version(object), &version(by))
}

/// Returns true if a version came before another one. The API server's versions are numbers that grow; of others nothing
/// is known.
pub(crate) fn is_older(version: &str, than: &str) -> bool {
    matches!((version.parse::<u64>(), than.parse::<u64>()), (Ok(one), Ok(other)) if one < other)
}
