//! Order of the versions of an object.

/// Returns true if a version came before another one. The API server's versions are numbers that grow; of others nothing
/// is known.
pub(super) fn is_older(version: &str, than: &str) -> bool {
    matches!((version.parse::<u64>(), than.parse::<u64>()), (Ok(one), Ok(other)) if one < other)
}
