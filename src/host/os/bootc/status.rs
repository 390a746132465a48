//! Parser of `bootc status --json`, by the version of its document. Pure.
//!
//! Read leniently: older versions leave keys out, newer ones add some. An absent key is unknown.

use serde::Deserialize;

use crate::model::text::shown;

/// As much of a word of the document is shown.
const MAX_SHOWN: usize = 100;

/// The versions of the document that are understood: they differ in keys that only the later one has.
const KNOWN: [&str; 2] = ["org.containers.bootc/v1", "org.containers.bootc/v1alpha1"];

/// The host as bootc reports it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct BootcHost {
    /// The running deployment; `None` on a machine that was not booted from an image.
    pub(super) booted: Option<Entry>,
    /// The staged deployment of the next boot.
    pub(super) staged: Option<Entry>,
}

/// A deployment.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Entry {
    /// The digest of its image's manifest, as `sha256:...`.
    pub(super) digest: Option<String>,
    /// The store that keeps it.
    pub(super) store: Store,
    /// Set if rpm-ostree changed something on top of the image: bootc then shows no image.
    pub(super) incompatible: bool,
    /// Set if a soft reboot can start it; `None` from a bootc without the key.
    pub(super) soft_reboot: Option<bool>,
}

/// The store of a deployment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Store {
    /// In a libostree repository.
    Ostree,
    /// In bootc's own composefs repository: libostree knows nothing of it.
    Composefs,
    /// The key is absent.
    #[default]
    Unknown,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Document {
    api_version: String,
    kind: String,
    status: Option<Status>,
}

#[derive(Deserialize)]
struct Status {
    booted: Option<RawEntry>,
    staged: Option<RawEntry>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawEntry {
    image: Option<RawImage>,
    incompatible: Option<bool>,
    soft_reboot_capable: Option<bool>,
    ostree: Option<serde::de::IgnoredAny>,
    composefs: Option<serde::de::IgnoredAny>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawImage {
    image_digest: Option<String>,
}

impl BootcHost {
    /// Reads the document. The error names the cause, for people.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let document: Document = serde_json::from_str(text).map_err(|e| {
            format!("bootc status is not a host document: {:?}, line {}", e.classify(), e.line())
        })?;
        if document.kind != "BootcHost" || !KNOWN.contains(&document.api_version.as_str()) {
            return Err(format!(
                "bootc status is a {} of {}; this agent knows BootcHost of {}",
                shown(&document.kind, MAX_SHOWN),
                shown(&document.api_version, MAX_SHOWN),
                KNOWN.join(" and ")
            ));
        }
        let Some(status) = document.status else { return Ok(Self::default()) };
        Ok(Self { booted: status.booted.map(Entry::from), staged: status.staged.map(Entry::from) })
    }
}

impl From<RawEntry> for Entry {
    fn from(raw: RawEntry) -> Self {
        let store = match (raw.composefs, raw.ostree) {
            (Some(_), None) => Store::Composefs,
            (None | Some(_), Some(_)) => Store::Ostree,
            (None, None) => Store::Unknown,
        };
        Self {
            digest: raw.image.and_then(|image| image.image_digest),
            store,
            incompatible: raw.incompatible.unwrap_or_default(),
            soft_reboot: raw.soft_reboot_capable,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(extra: &str) -> String {
        format!(
            r#"{{"image":{{"image":{{"image":"reg.test/os:9","transport":"registry"}},"imageDigest":"sha256:aa"}},
                "pinned":false,{extra}}}"#
        )
    }

    fn host(version: &str, booted: &str, staged: &str) -> String {
        format!(
            r#"{{"apiVersion":"org.containers.bootc/{version}","kind":"BootcHost","metadata":{{"name":"host"}},
                "spec":{{"bootOrder":"default","image":null}},
                "status":{{"booted":{booted},"staged":{staged},"rollback":null,"type":"bootcHost","new":[1]}}}}"#
        )
    }

    const OSTREE: &str = r#""ostree":{"stateroot":"default","checksum":"26","deploySerial":0}"#;

    /// OST-006: bootc's document is read by its version, and leniently.
    #[test]
    fn documents_are_read_by_their_version() {
        let known = Some("sha256:aa".to_owned());
        let plain = Entry { digest: known.clone(), store: Store::Ostree, ..Entry::default() };
        let v1 = format!(
            r#"{OSTREE},"composefs":null,"incompatible":false,"softRebootCapable":true,"usrOverlay":null"#
        );
        let layered = format!(r#"{{"image":null,"incompatible":true,"softRebootCapable":false,{OSTREE}}}"#);
        let composefs = r#""ostree":null,"composefs":{"verity":"ff","bootType":"bls"},"incompatible":false"#;
        let cases = [
            ("v1", entry(&v1), "null".to_owned(), Entry { soft_reboot: Some(true), ..plain.clone() }, None),
            ("v1alpha1", entry(OSTREE), entry(OSTREE), plain.clone(), Some(plain.clone())),
            (
                "v1",
                layered,
                "null".to_owned(),
                Entry { store: Store::Ostree, incompatible: true, soft_reboot: Some(false), digest: None },
                None,
            ),
            (
                "v1",
                entry(composefs),
                "null".to_owned(),
                Entry { digest: known, store: Store::Composefs, ..Entry::default() },
                None,
            ),
        ];
        for (version, booted, staged, wants_booted, wants_staged) in cases {
            let text = host(version, &booted, &staged);
            let expected = BootcHost { booted: Some(wants_booted), staged: wants_staged };
            assert_eq!(BootcHost::parse(&text), Ok(expected), "{text}");
        }
        assert_eq!(
            BootcHost::parse(&host("v1", "null", "null")),
            Ok(BootcHost::default()),
            "not booted by it"
        );
    }

    #[test]
    fn unreadable_status_names_cause() {
        for (text, part) in [
            (host("v2", "null", "null"), "org.containers.bootc/v2"),
            ("{\"apiVersion\":\"org.containers.bootc/v1\",\"kind\":\"Pod\"}".to_owned(), "is a Pod"),
            ("error: no".to_owned(), "not a host document"),
            (String::new(), "not a host document"),
            (host("v1", "3", "null"), "not a host document"),
        ] {
            let error = BootcHost::parse(&text).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
    }
}
