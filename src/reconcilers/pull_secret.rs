//! The merged pull secret: the cluster's, and that of its own registry.

use super::file::{DesiredFile, ended};
use crate::host::credentials::is_json;
use crate::host::{Credentials, Host, HostError, Root};
use crate::model::image::PULL_SECRETS;
use crate::model::{ClusterTrust, Contents, FileMode};

/// Its file.
pub const PATH: &str = PULL_SECRETS[0];

/// Returns the file as it is to be.
pub(super) fn desired(root: &Root, trust: &ClusterTrust) -> Result<DesiredFile, HostError> {
    // The present file matters only if the cluster has no pull secret.
    let there = match trust.pull_secret {
        Some(_) => None,
        None => root.read(PATH)?.map(Contents::new),
    };
    Ok(decided(trust.pull_secret.as_ref(), there))
}

/// Decides: the cluster's secret; without one a present and usable file, or else one newline as MCD's, which no
/// registry client takes for credentials.
fn decided(given: Option<&Contents>, there: Option<Contents>) -> DesiredFile {
    let bytes = match (given, there.filter(is_json)) {
        (Some(given), _) => ended(given.bytes()),
        (None, Some(there)) => there.bytes().to_vec(),
        (None, None) => vec![b'\n'],
    };
    DesiredFile { path: PATH.to_owned(), bytes, mode: FileMode::PRIVATE }
}

/// Links the OS backend's credentials; returns them.
pub(super) fn link(host: &Host) -> Result<Option<Credentials>, HostError> {
    let Some(place) = host.os.auth_file() else { return Ok(None) };
    let found = Credentials::there(&host.root, place)?;
    found.iter().try_for_each(|found| found.link(&host.root, place, &host.fail_points))?;
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// MCD-241, W-6: the cluster's bytes and a newline, for root alone; silence hides nothing that can be used.
    #[test]
    fn merged_pull_secret_contents() {
        let rows: [(Option<&str>, Option<&str>, &str); 6] = [
            (Some("{}"), None, "{}\n"),
            (Some("{}\n"), Some("{\"old\":1}"), "{}\n"),
            (Some("no json"), Some("{}"), "no json\n"),
            (None, None, "\n"),
            (None, Some("\n"), "\n"),
            (None, Some("{\"old\":1}\n"), "{\"old\":1}\n"),
        ];
        for (given, there, expected) in rows {
            let contents = |text: &str| Contents::new(text.as_bytes());
            let desired = decided(given.map(contents).as_ref(), there.map(contents));
            assert_eq!(std::str::from_utf8(&desired.bytes).unwrap(), expected, "{given:?} {there:?}");
            assert_eq!(desired.mode, FileMode::PRIVATE);
        }
    }
}
