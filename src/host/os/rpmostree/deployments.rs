//! rpm-ostree's dictionaries of deployments, read into the agent's types.
//!
//! Parsed leniently: keys that are absent or of another type count as unknown, and further ones are ignored.

use std::collections::{BTreeSet, HashMap};

use zbus::zvariant::{OwnedValue, Value};

use crate::model::observation::{Booted, EmbeddedConfig, LocalPackages, ObservedOs, Staged};
use crate::model::{ConfigName, ImageRef, Karg, Sha256};

/// A deployment as the bus has it.
pub(super) type Dictionary = HashMap<String, OwnedValue>;

/// The label of an image's config that names the MachineConfig it carries.
const CONFIG_LABEL: &str = "machineconfig";

/// The keys of a deployment's dictionary that matter here.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Deployment {
    /// Stateroot, checksum and serial.
    pub(super) id: String,
    /// The commit of the image itself, below the layers.
    pub(super) base: String,
    pub(super) is_booted: bool,
    pub(super) is_staged: bool,
    pub(super) is_pinned: bool,
    /// The image that the origin names.
    pub(super) image: Option<ImageRef>,
    /// The digest of the manifest that was pulled: one of a list's, where the image is named by a list.
    pub(super) manifest: Option<Sha256>,
    pub(super) local: LocalPackages,
    /// The config that the image's label names.
    pub(super) label: Option<ConfigName>,
}

/// All of them, in the order of the boot menu, and the command lines that matter.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct State {
    /// The deployments; the first is the next boot's.
    pub(super) deployments: Vec<Deployment>,
    /// The arguments of the booted one, without `ostree=`.
    pub(super) booted_kargs: Vec<Karg>,
    /// The arguments of the one that boots next.
    pub(super) next_kargs: Vec<Karg>,
    /// The line of the one that boots next, as it stands.
    pub(super) next_line: String,
}

impl Deployment {
    /// Reads one dictionary.
    pub(super) fn from_dictionary(dictionary: &Dictionary) -> Self {
        let text = |key: &str| dictionary.get(key).and_then(text);
        let flag = |key: &str| dictionary.get(key).is_some_and(|value| matches!(**value, Value::Bool(true)));
        let manifest = text("container-image-reference-digest").as_deref().and_then(digest);
        let names =
            |keys: &[&str]| keys.iter().filter_map(|key| dictionary.get(*key)).flat_map(names).collect();
        Self {
            id: text("id").unwrap_or_default(),
            base: text("base-checksum").or_else(|| text("checksum")).unwrap_or_default(),
            is_booted: flag("booted"),
            is_staged: flag("staged"),
            is_pinned: flag("pinned"),
            image: text("container-image-reference")
                .and_then(|reference| named(&reference, manifest))
                .or_else(|| dictionary.get("custom-origin").and_then(pivoted)),
            manifest,
            local: LocalPackages {
                requested: names(&["requested-packages", "requested-local-packages"]),
                removed: names(&["requested-base-removals"]),
                replaced: names(&["requested-base-local-replacements"]),
            },
            label: dictionary.get("base-commit-meta").and_then(label),
        }
    }

    /// Returns true if it was made from an image, under any name (OST-009).
    pub(super) fn is_of(&self, expected: &ImageRef) -> bool {
        self.manifest == Some(expected.digest())
            || self.image.as_ref().is_some_and(|image| image.digest() == expected.digest())
    }
}

impl State {
    pub(super) fn booted(&self) -> Option<&Deployment> {
        self.deployments.iter().find(|deployment| deployment.is_booted)
    }

    /// Returns the next boot's deployment, when it is another one than the booted.
    pub(super) fn pending(&self) -> Option<&Deployment> {
        self.deployments.first().filter(|first| !first.is_booted)
    }

    /// Returns the deployment that ran before the booted one, when it may go.
    pub(super) fn rollback(&self) -> Option<&Deployment> {
        let after = self.deployments.iter().skip_while(|deployment| !deployment.is_booted).skip(1);
        after.into_iter().find(|deployment| !deployment.is_pinned && !deployment.is_booted)
    }

    /// Describes the next boot's deployment.
    pub(super) fn next(&self) -> Staged {
        let first = self.deployments.first();
        Staged {
            image: first.and_then(|first| first.image.clone()),
            deployment: first.map(|first| first.id.clone()).unwrap_or_default(),
            kargs: self.next_kargs.clone(),
        }
    }

    /// Converts it to an observation. `embedded` is the config in the booted tree, for images without the label.
    pub(super) fn observe(&self, embedded: Option<ConfigName>) -> Option<ObservedOs> {
        let booted = self.booted()?;
        let carries =
            booted.label.clone().or(embedded).map_or(EmbeddedConfig::Unknown, EmbeddedConfig::Config);
        let pending =
            |staged: bool| self.pending().filter(|first| first.is_staged == staged).map(|_| self.next());
        Some(ObservedOs::Deployments {
            booted: Booted {
                image: booted.image.clone(),
                deployment: booted.id.clone(),
                carries,
                local: booted.local.clone(),
            },
            staged: pending(true),
            next: pending(false),
        })
    }
}

/// Splits a command line, leaving out libostree's own arguments.
pub(super) fn kargs(line: &str) -> Vec<Karg> {
    Karg::split(line).into_iter().filter(|karg| !karg.is_of_ostree()).collect()
}

/// Reads the text of a value.
pub(super) fn text(value: &OwnedValue) -> Option<String> {
    value.downcast_ref::<&str>().ok().map(str::to_owned)
}

fn names(value: &OwnedValue) -> BTreeSet<String> {
    let entries = Vec::<String>::try_from(value.clone()).unwrap_or_default();
    entries.iter().map(|entry| LocalPackages::name_in(entry).to_owned()).collect()
}

/// Reads the image of an origin that MCD's `pivot` wrote, before rpm-ostree pulled images itself: URL and description.
fn pivoted(origin: &OwnedValue) -> Option<ImageRef> {
    let words = match <(String, String)>::try_from(origin.clone()) {
        Ok((url, _)) => url,
        Err(_) => Vec::<String>::try_from(origin.clone()).ok()?.into_iter().next()?,
    };
    ImageRef::parse(words.strip_prefix("pivot://")?).ok()
}

fn digest(text: &str) -> Option<Sha256> {
    Sha256::parse(text.strip_prefix("sha256:")?).ok()
}

/// Finds the label in the metadata of the image's commit.
fn label(metadata: &OwnedValue) -> Option<ConfigName> {
    let metadata = HashMap::<String, OwnedValue>::try_from(metadata.clone()).ok()?;
    let config = text(metadata.get("ostree.container.image-config")?)?;
    let config: serde_json::Value = serde_json::from_str(&config).ok()?;
    let name = config.pointer("/config/Labels")?.get(CONFIG_LABEL)?.as_str()?;
    ConfigName::new(name).ok()
}

/// Reads a container reference in any of the spellings of an origin.
fn named(reference: &str, manifest: Option<Sha256>) -> Option<ImageRef> {
    let (scheme, rest) = reference.split_once(':')?;
    let name = match scheme {
        "ostree-unverified-registry" => rest.to_owned(),
        "ostree-remote-registry" => rest.split_once(':')?.1.to_owned(),
        "ostree-unverified-image" | "ostree-image-signed" => transported(rest)?,
        "ostree-remote-image" => transported(rest.split_once(':')?.1)?,
        _ => return None,
    };
    if let Ok(image) = ImageRef::parse(&name) {
        return Some(image);
    }
    // By tag: the manifest identifies it.
    let name = name.split_once('@').map_or(name.as_str(), |(name, _)| name);
    let (prefix, bare) = name.strip_prefix("oci:").map_or(("", name), |bare| ("oci:", bare));
    let bare = match bare.rsplit_once(':') {
        Some((bare, tag)) if !tag.contains('/') => bare,
        Some(_) | None => bare,
    };
    ImageRef::parse(&format!("{prefix}{bare}@sha256:{}", manifest?)).ok()
}

/// Takes the transport off the name; those that are neither a registry nor a directory have no name here.
fn transported(name: &str) -> Option<String> {
    let registry = name.strip_prefix("docker://").or_else(|| name.strip_prefix("registry:"));
    registry.map(str::to_owned).or_else(|| name.starts_with("oci:").then(|| name.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value<'a>(value: impl Into<Value<'a>>) -> OwnedValue {
        value.into().try_to_owned().unwrap()
    }

    fn texts(pairs: &[(&str, &str)]) -> Dictionary {
        pairs.iter().map(|(key, text)| ((*key).to_owned(), value(*text))).collect()
    }

    const HEX: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

    #[test]
    fn every_spelling_of_reference_names_image() {
        let digest = Sha256::parse(HEX).unwrap();
        for (reference, expected) in [
            (format!("ostree-unverified-registry:r.test/os@sha256:{HEX}"), "r.test/os"),
            (format!("ostree-unverified-image:docker://r.test/os@sha256:{HEX}"), "r.test/os"),
            (format!("ostree-unverified-image:registry:r.test/os@sha256:{HEX}"), "r.test/os"),
            ("ostree-image-signed:docker://r.test:5000/os:latest".to_owned(), "r.test:5000/os"),
            ("ostree-remote-registry:fedora:r.test/os".to_owned(), "r.test/os"),
            ("ostree-remote-image:fedora:docker://r.test/os:9".to_owned(), "r.test/os"),
            ("ostree-unverified-image:oci:/srv/images:v1".to_owned(), "oci:/srv/images"),
        ] {
            let image = named(&reference, Some(digest)).unwrap();
            assert_eq!(image.to_string(), format!("{expected}@sha256:{HEX}"), "{reference}");
        }
        for other in
            ["ostree-unverified-image:containers-storage:x", "fedora:os", "x", "ostree-image-signed:dir:/x"]
        {
            assert_eq!(named(other, Some(digest)), None, "{other}");
        }
        assert_eq!(named("ostree-unverified-registry:r.test/os:latest", None), None);
    }

    /// OST-009: a mirror's name for the same manifest is the same image.
    #[test]
    fn images_are_compared_by_digest() {
        let reference = format!("ostree-unverified-registry:mirror.test/copy/os@sha256:{HEX}");
        let found = Deployment::from_dictionary(&texts(&[("container-image-reference", &reference)]));
        assert!(found.is_of(&ImageRef::parse(&format!("r.test/os@sha256:{HEX}")).unwrap()));
        assert!(!found.is_of(&ImageRef::parse(&format!("r.test/os@sha256:{}", "0".repeat(64))).unwrap()));
        // Named by a list: the manifest's own digest counts too.
        let list = format!("ostree-unverified-registry:r.test/os@sha256:{}", "1".repeat(64));
        let own = format!("sha256:{HEX}");
        let found = Deployment::from_dictionary(&texts(&[
            ("container-image-reference", &list),
            ("container-image-reference-digest", &own),
        ]));
        assert!(found.is_of(&ImageRef::parse(&format!("r.test/os@sha256:{HEX}")).unwrap()));
        assert!(found.is_of(&ImageRef::parse(&format!("r.test/os@sha256:{}", "1".repeat(64))).unwrap()));
    }

    /// MCD-019: the origin of an old `pivot` names the image, unless rpm-ostree's own reference does.
    #[test]
    fn pivot_origin_names_image() {
        let name = format!("r.test/os@sha256:{HEX}");
        let pivot = (format!("pivot://{name}"), "Managed by machine-config-operator".to_owned());
        let mut found = Dictionary::new();
        found.insert("custom-origin".to_owned(), value(pivot.clone()));
        assert_eq!(Deployment::from_dictionary(&found).image.unwrap().to_string(), name);
        found.insert("custom-origin".to_owned(), value(vec![pivot.0, pivot.1]));
        assert_eq!(Deployment::from_dictionary(&found).image.unwrap().to_string(), name);
        let other = format!("r.test/other@sha256:{HEX}");
        let reference = format!("ostree-unverified-registry:{other}");
        found.insert("container-image-reference".to_owned(), value(reference));
        assert_eq!(Deployment::from_dictionary(&found).image.unwrap().to_string(), other);
        for odd in [value("pivot://x"), value(7), value(("pivot://no-digest".to_owned(), String::new()))] {
            found = Dictionary::from([("custom-origin".to_owned(), odd)]);
            assert_eq!(Deployment::from_dictionary(&found).image, None);
        }
    }

    #[test]
    fn odd_dictionaries_are_read_as_far_as_they_go() {
        assert_eq!(Deployment::from_dictionary(&Dictionary::new()), Deployment::default());
        let mut odd = texts(&[("booted", "yes"), ("requested-packages", "vim"), ("base-commit-meta", "{}")]);
        odd.insert("id".to_owned(), value(7));
        assert_eq!(Deployment::from_dictionary(&odd), Deployment::default());
    }

    #[test]
    fn label_and_packages_are_found() {
        let config = r#"{"config":{"Labels":{"machineconfig":"rendered-worker-a"}}}"#;
        let metadata = HashMap::from([("ostree.container.image-config", Value::from(config))]);
        let mut found = texts(&[("id", "os-abc.0")]);
        found.insert("base-commit-meta".to_owned(), value(metadata));
        found.insert("booted".to_owned(), value(true));
        found.insert("requested-packages".to_owned(), value(vec!["vim", "usbguard"]));
        found.insert("requested-base-removals".to_owned(), value(vec!["nano"]));
        let state = State { deployments: vec![Deployment::from_dictionary(&found)], ..State::default() };
        let Some(ObservedOs::Deployments { booted, staged: None, next: None }) = state.observe(None) else {
            panic!()
        };
        assert_eq!(booted.carries, EmbeddedConfig::Config(ConfigName::new("rendered-worker-a").unwrap()));
        assert_eq!(booted.local.requested.iter().collect::<Vec<_>>(), ["usbguard", "vim"]);
        assert_eq!(booted.local.removed.iter().collect::<Vec<_>>(), ["nano"]);
    }
}
