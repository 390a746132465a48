//! The target as a Node carries it: annotations of one version of the object, read as one value.

use std::collections::BTreeMap;

use super::error::ModelError;
use super::{ConfigName, ImageRef, Target};

/// The config that the controllers want.
pub const DESIRED_CONFIG: &str = "machineconfiguration.openshift.io/desiredConfig";

/// The image that the controllers want: today's key first, then its aliases.
pub const DESIRED_IMAGE: [&str; 3] = [
    "machineconfiguration.openshift.io/desiredImage",
    "machineconfiguration.openshift.io/desiredOSImage",
    "machineconfiguration.openshift.io/desiredOSimage",
];

/// The image that a controller wants on the node before it is desired.
pub const PREFETCH_IMAGE: &str = "machine-config-agent.io/prefetch-image";

/// Progress of the prefetch, written by the agent.
pub const PREFETCH_STATUS: &str = "machine-config-agent.io/prefetch-status";

/// Another value makes the node ask whether its pools have PinnedImageSets.
pub const PINNED_IMAGE_SETS: &str = "machine-config-agent.io/pinned-image-sets";

/// Cause that the drain waits for, written by the drain controller: a pod, with what holds it.
pub const DRAIN_BLOCKED: &str = "machine-config-agent.io/drain-blocked";

/// Reads the target; `None` when no config is desired yet. Keys that disagree are an error with both values: a wrong
/// guess would reboot the node into the wrong OS.
pub fn target(annotations: &BTreeMap<String, String>) -> Result<Option<Target>, ModelError> {
    let value = |key: &str| annotations.get(key).map(String::as_str).filter(|value| !value.is_empty());
    let mut image: Option<(&str, &str)> = None;
    for key in DESIRED_IMAGE {
        let Some(found) = value(key) else { continue };
        match image {
            Some((first, other)) if !is_same_image(other, found) => {
                return Err(ModelError::Disagree {
                    first: first.to_owned(),
                    value: other.to_owned(),
                    second: key.to_owned(),
                    other: found.to_owned(),
                });
            }
            Some(_) => {}
            None => image = Some((key, found)),
        }
    }
    let parse = |(key, value)| ImageRef::parse(value).map_err(|error| error.in_field(key, ""));
    let image = image.map(parse).transpose()?;
    value(DESIRED_CONFIG).map(|name| Ok(Target::new(ConfigName::new(name)?, image))).transpose()
}

/// A tag beside the digest is no other image; the key that comes first has the text that is reported.
fn is_same_image(one: &str, other: &str) -> bool {
    let same = |one: ImageRef| ImageRef::parse(other).is_ok_and(|other| one.is_same(&other));
    one == other || ImageRef::parse(one).is_ok_and(same)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pairs: &[(&str, &str)]) -> Result<Option<Target>, ModelError> {
        target(&pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect())
    }

    #[test]
    fn pair_is_one_value() {
        let image = format!("reg.test/os@sha256:{}", "a".repeat(64));
        let other = format!("reg.test/os@sha256:{}", "b".repeat(64));
        assert_eq!(read(&[]).unwrap(), None);
        assert_eq!(read(&[(DESIRED_CONFIG, "")]).unwrap(), None);
        for key in DESIRED_IMAGE {
            let found = read(&[(DESIRED_CONFIG, "a"), (key, &image)]).unwrap().unwrap();
            assert_eq!(found.image.unwrap().to_string(), image);
        }
        let same = [(DESIRED_CONFIG, "a"), (DESIRED_IMAGE[0], &*image), (DESIRED_IMAGE[1], &*image)];
        assert!(read(&same).is_ok());
        let error = read(&[(DESIRED_CONFIG, "a"), (DESIRED_IMAGE[0], &image), (DESIRED_IMAGE[2], &other)]);
        let text = error.unwrap_err().to_string();
        assert!(text.contains(&image) && text.contains(&other), "{text}");
        assert!(read(&[(DESIRED_CONFIG, "a"), (DESIRED_IMAGE[0], "reg.test/os:latest")]).is_err());
    }

    /// Upstream's own example has a tag beside the digest.
    #[test]
    fn tag_beside_digest_is_no_other_image() {
        let [tagged, plain, other] = [":4.17@sha256:", "@sha256:", ":4.17@sha256:"]
            .map(|middle| format!("reg.test/os{middle}{}", "a".repeat(64)));
        let other = other.replace("reg.test/os", "reg.test/other");
        let target = |first: &str, second: &str| {
            read(&[
                (DESIRED_CONFIG, "rendered-worker-1"),
                (DESIRED_IMAGE[0], first),
                (DESIRED_IMAGE[1], second),
            ])
        };
        let found = target(&tagged, &plain).unwrap().unwrap();
        assert_eq!(found.image.unwrap().to_string(), tagged, "as it was given");
        assert!(matches!(target(&tagged, &other), Err(ModelError::Disagree { .. })));
    }
}
