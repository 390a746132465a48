//! The version of Ignition's config that a new node gets: the one in its Accept header.
//!
//! Ignition 2 sends `application/vnd.coreos.ignition+json;version=3.3.0, */*;q=0.1`, Ignition 0 the versions 2 and 1. A
//! client that names no version (curl) gets the newest.

use std::fmt;

use machine_config_core::model::text::escaped;

/// The newest version that is served: that of a rendered config.
pub const NEWEST: Version = Version(5);

/// A version of Ignition's config: 3 and this minor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(pub u32);

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "3.{}.0", self.0)
    }
}

/// The node reads no version that is served.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("Ignition config {requested} is not served, only 3.0.0 to {NEWEST}; {next}")]
pub struct NotServed {
    /// The version that it prefers.
    requested: String,
    /// The image that helps.
    next: &'static str,
}

impl NotServed {
    fn new(version: &str) -> Self {
        let major: Option<u32> = version.split('.').next().and_then(|major| major.parse().ok());
        let next = match major {
            Some(4..) => "boot an image whose Ignition still reads config version 3",
            Some(_) | None => "boot an image with Ignition 2 (config version 3)",
        };
        Self { requested: escaped(&version.chars().take(20).collect::<String>()), next }
    }
}

/// Returns the version to serve. Of several the client's first choice that is served wins; a newer minor gets the newest.
pub(super) fn version(header: Option<&str>) -> Result<Version, NotServed> {
    let mut requested: Vec<(f32, &str)> =
        header.unwrap_or_default().split(',').filter_map(ignition).collect();
    // Stable: of equal weight the first one.
    requested.sort_by(|(one, _), (other, _)| other.total_cmp(one));
    match requested.iter().find_map(|(_, version)| served(version)) {
        Some(version) => Ok(version),
        None => match requested.first() {
            Some((_, version)) => Err(NotServed::new(version)),
            None => Ok(NEWEST),
        },
    }
}

/// Returns the weight and the version of an entry that is about Ignition and names a version.
fn ignition(entry: &str) -> Option<(f32, &str)> {
    let mut parts = entry.split(';').map(str::trim);
    let (_, kind) = parts.next()?.split_once('/')?;
    if !kind.eq_ignore_ascii_case("vnd.coreos.ignition+json") {
        return None;
    }
    let (mut weight, mut version) = (1.0, None);
    for (name, value) in parts.filter_map(|part| part.split_once('=')) {
        match name.trim() {
            "version" => version = version.or(Some(value.trim().trim_matches('"'))),
            "q" => weight = value.trim().parse::<f32>().ok().filter(|q| q.is_finite()).unwrap_or(1.0),
            _ => {}
        }
    }
    version.map(|version| (weight, version))
}

/// Returns the version for a client that reads this one. Before its release a minor is none.
fn served(version: &str) -> Option<Version> {
    let (release, is_early) =
        version.split_once('-').map_or((version, false), |(release, _)| (release, true));
    let numbers: Vec<u32> = release.split('.').map(|number| number.parse().ok()).collect::<Option<_>>()?;
    let [3, minor, _] = numbers.as_slice() else { return None };
    let minor = if is_early { minor.checked_sub(1)? } else { *minor };
    Some(Version(minor).min(NEWEST))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// BOOT-014: the version for each client.
    #[test]
    fn version_follows_accept_header() {
        let of = |minor| Ok(Version(minor));
        let refused = |requested: &str| Err(NotServed::new(requested));
        let rows = [
            (None, of(5)),
            (Some(""), of(5)),
            (Some("*/*"), of(5)),
            (Some("application/json;version=2.2.0"), of(5)),
            (Some("application/vnd.coreos.ignition+json, */*;q=0.1"), of(5)),
            (Some("application/vnd.coreos.ignition+json;version=3.3.0, */*;q=0.1"), of(3)),
            (Some("application/vnd.coreos.ignition+json; version=3.0.0"), of(0)),
            (Some("application/vnd.coreos.ignition+json;version=3.9.0"), of(5)),
            (Some("application/vnd.coreos.ignition+json;version=3.4.0-experimental"), of(3)),
            (
                Some(
                    "application/vnd.coreos.ignition+json;version=3.1.0;q=0.2, application/vnd.coreos.ignition+json;version=3.4.0",
                ),
                of(4),
            ),
            (
                Some(
                    "application/vnd.coreos.ignition+json;version=2.4.0, application/vnd.coreos.ignition+json;version=3.2.0;q=0.5",
                ),
                of(2),
            ),
            (
                Some(
                    "application/vnd.coreos.ignition+json; version=2.4.0, application/vnd.coreos.ignition+json; version=1; q=0.5, */*; q=0.1",
                ),
                refused("2.4.0"),
            ),
            (Some("application/vnd.coreos.ignition+json;version=4.0.0"), refused("4.0.0")),
            (Some("application/vnd.coreos.ignition+json;version=3.x"), refused("3.x")),
            (
                Some("application/vnd.coreos.ignition+json;version=3.0.0-experimental"),
                refused("3.0.0-experimental"),
            ),
            (Some("application/vnd.coreos.ignition+json;version=3.2.0;q=nan"), of(2)),
            (Some(";;;,,,/=,version"), of(5)),
        ];
        for (header, expected) in rows {
            assert_eq!(version(header), expected, "{header:?}");
        }
        for (requested, next) in [("2.2.0", "with Ignition 2"), ("4.0.0", "still reads config version 3")] {
            let header = format!("application/vnd.coreos.ignition+json;version={requested}");
            let message = version(Some(&header)).unwrap_err().to_string();
            assert!(
                message.contains(&format!("{requested} is not served")) && message.contains(next),
                "{message}"
            );
        }
    }
}
