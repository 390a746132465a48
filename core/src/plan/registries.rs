//! Safety of a change of `registries.conf` under running pods (docs/contract.md).
//!
//! Safe is only a change that can't redirect the source of an image in use. Anything that can't be judged
//! (a version that is not there, a text that is no TOML) is unsafe: a drain too many is better than one too few.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::model::{FileSpec, HostSpec, ManagedPath};

/// The file.
pub(super) const PATH: &str = "/etc/containers/registries.conf";

/// Need of a drain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    /// It does not.
    Safe,
    /// It does.
    Unsafe,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "kebab-case")]
struct Registries {
    #[serde(default)]
    unqualified_search_registries: Vec<String>,
    #[serde(default)]
    registry: Vec<Registry>,
}

#[derive(Deserialize, PartialEq)]
#[serde(rename_all = "kebab-case")]
struct Registry {
    #[serde(default)]
    prefix: String,
    #[serde(default)]
    location: String,
    #[serde(default)]
    blocked: bool,
    #[serde(default)]
    insecure: bool,
    #[serde(default)]
    mirror_by_digest_only: bool,
    #[serde(default)]
    mirror: Vec<Mirror>,
}

#[derive(Deserialize, PartialEq)]
#[serde(rename_all = "kebab-case")]
struct Mirror {
    #[serde(default)]
    location: String,
    #[serde(default)]
    pull_from_mirror: String,
}

/// Mirrors that tags can't be resolved through: only images that are named by digest use them.
const DIGEST_ONLY: &str = "digest-only";

/// Judges the change between two specs.
pub(super) fn change(from: &HostSpec, to: &HostSpec) -> Change {
    // A missing file is compared as an empty one (MCD-067).
    let parsed = |spec: &HostSpec| {
        let path = ManagedPath::new(PATH).ok()?;
        spec.files.get(&path).map_or_else(|| Some(Registries::default()), parse)
    };
    match (parsed(from), parsed(to)) {
        (Some(old), Some(new)) if is_safe(&old, &new) => Change::Safe,
        _ => Change::Unsafe,
    }
}

fn parse(file: &FileSpec) -> Option<Registries> {
    toml::from_str(std::str::from_utf8(file.contents.bytes()).ok()?).ok()
}

fn is_safe(old: &Registries, new: &Registries) -> bool {
    let (before, after) = (by_key(old), by_key(new));
    let kept = before.iter().all(|(key, old)| after.get(key).is_some_and(|new| keeps(old, new)));
    let added =
        after.iter().filter(|(key, _)| !before.contains_key(*key)).all(|(_, new)| is_safe_to_add(new));
    new.unqualified_search_registries.starts_with(&old.unqualified_search_registries) && kept && added
}

fn by_key(registries: &Registries) -> BTreeMap<&str, &Registry> {
    let key = |registry: &Registry| registry.prefix.is_empty();
    let entries = registries.registry.iter();
    entries
        .map(|entry| (if key(entry) { entry.location.as_str() } else { entry.prefix.as_str() }, entry))
        .collect()
}

fn keeps(old: &Registry, new: &Registry) -> bool {
    let same = old.prefix == new.prefix
        && old.location == new.location
        && old.blocked == new.blocked
        && old.insecure == new.insecure;
    let find = |list: &[Mirror], desired: &Mirror| {
        list.iter()
            .find(|mirror| mirror.location == desired.location)
            .map(|mirror| mirror.pull_from_mirror.clone())
    };
    let removed = old.mirror.iter().any(|mirror| find(&new.mirror, mirror).is_none());
    let mirrors = new.mirror.iter().all(|mirror| match find(&old.mirror, mirror) {
        Some(pull) => pull == mirror.pull_from_mirror || mirror.pull_from_mirror == DIGEST_ONLY,
        None => mirror.pull_from_mirror == DIGEST_ONLY || new.mirror_by_digest_only,
    });
    // One that did not change is not judged: it may list a mirror twice.
    old == new || (same && !removed && mirrors)
}

fn is_safe_to_add(new: &Registry) -> bool {
    if new.mirror.is_empty() {
        new.mirror_by_digest_only
    } else {
        new.mirror.iter().all(|mirror| mirror.pull_from_mirror == DIGEST_ONLY)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: &str = "unqualified-search-registries = ['a', 'b']\n[[registry]]\nlocation = 'one'\n";

    fn judge(old: &str, new: &str) -> bool {
        is_safe(&toml::from_str(old).unwrap(), &toml::from_str(new).unwrap())
    }

    /// MCD-062, MCD-063, MCD-066: appended entries, and mirrors by digest only.
    #[test]
    fn change_without_effect_on_images_is_safe() {
        for new in [
            BASE.to_owned(),
            BASE.replace("'b']", "'b', 'c']"),
            format!("{BASE}[[registry.mirror]]\nlocation = 'm'\npull-from-mirror = 'digest-only'\n"),
            format!("{BASE}mirror-by-digest-only = true\n[[registry.mirror]]\nlocation = 'm'\n"),
            format!("{BASE}[[registry]]\nlocation = 'two'\nmirror-by-digest-only = true\n"),
            format!(
                "{BASE}[[registry]]\nprefix = 'two'\n[[registry.mirror]]\nlocation = 'm'\npull-from-mirror = 'digest-only'\n"
            ),
        ] {
            assert!(judge(BASE, &new), "{new}");
        }
    }

    /// MCD-064: a registry that did not change is no reason, even one that lists a mirror twice and pulls tags by it.
    #[test]
    fn unchanged_registry_with_duplicate_mirror_is_safe() {
        let mirror = |pull: &str| format!("[[registry.mirror]]\nlocation = 'm'\n{pull}");
        let twice = format!("{BASE}{}{}", mirror("pull-from-mirror = 'digest-only'\n"), mirror(""));
        assert!(judge(&twice, &twice));
        assert!(judge(&twice, &twice.replace("'b']", "'b', 'c']")));
        assert!(!judge(&twice, &twice.replace("'one'", "'one'\nblocked = true")));
    }

    /// MCD-062, MCD-063, MCD-064, MCD-065, MCD-066: order, removals, mirrors by tag, and changed fields.
    #[test]
    fn everything_else_is_not() {
        for new in [
            BASE.replace("'a', 'b'", "'b', 'a'"),
            BASE.replace(", 'b'", ""),
            BASE.replace("'one'", "'two'"),
            format!("{BASE}blocked = true\n"),
            format!("{BASE}insecure = true\n"),
            format!("{BASE}[[registry.mirror]]\nlocation = 'm'\n"),
            format!("{BASE}[[registry]]\nlocation = 'two'\n"),
            format!("{BASE}[[registry]]\nlocation = 'two'\n[[registry.mirror]]\nlocation = 'm'\n"),
        ] {
            assert!(!judge(BASE, &new), "{new}");
        }
        let mirrored =
            format!("{BASE}[[registry.mirror]]\nlocation = 'm'\npull-from-mirror = 'digest-only'\n");
        assert!(!judge(&mirrored, BASE));
        assert!(!judge(&mirrored, &mirrored.replace("digest-only", "all")));
    }
}
