//! Makers of objects. A delete needs the proof that this program did: an owner that *controls* it, with its UID, and a name that
//! this program gives. An owner that does not control is anybody's to add.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::core::ObjectMeta;

use super::GENERATED_BY;

const GROUP: &str = "machineconfiguration.openshift.io/";

/// Prefix of the names of rendered configs.
const RENDERED_PREFIX: &str = "rendered-";

/// Digits of a digest in such a name.
const DIGITS: usize = 32;

/// Returns the owner that controls an object, if it is of a kind of this API.
pub fn controller_of<'a>(metadata: &'a ObjectMeta, kind: &str) -> Option<&'a OwnerReference> {
    let mut owners = metadata.owner_references.iter().flatten();
    owners.find(|owner| {
        owner.controller == Some(true) && owner.kind == kind && owner.api_version.starts_with(GROUP)
    })
}

/// Returns the pool that a MachineConfig was rendered for, by whichever program. It is no source of another one.
pub fn rendered_for(metadata: &ObjectMeta) -> Option<&OwnerReference> {
    let name = metadata.name.as_deref().unwrap_or_default();
    controller_of(metadata, "MachineConfigPool").filter(|_| name.starts_with(RENDERED_PREFIX))
}

/// Returns true if this program rendered a MachineConfig for the pool that controls it.
pub fn is_rendered_here(metadata: &ObjectMeta) -> bool {
    let name = metadata.name.as_deref().unwrap_or_default();
    let digest = rendered_for(metadata).and_then(|pool| {
        name.strip_prefix(RENDERED_PREFIX)?.strip_prefix(pool.name.as_str())?.strip_prefix('-')
    });
    let is_digit = |digit: u8| matches!(digit, b'0'..=b'9' | b'a'..=b'f');
    let has_name = digest.is_some_and(|digest| digest.len() == DIGITS && digest.bytes().all(is_digit));
    let version = metadata.annotations.as_ref().and_then(|annotations| annotations.get(GENERATED_BY));
    has_name && version.is_some_and(|version| is_own_version(version))
}

/// Returns true if a version is one of this program: numbers with dots. The Machine Config Operator writes the commit that it was
/// built of.
pub fn is_own_version(version: &str) -> bool {
    let (release, _) = version.split_once(['-', '+']).unwrap_or((version, ""));
    let numbers: Vec<&str> = release.split('.').collect();
    numbers.len() == 3 && numbers.iter().all(|number| number.parse::<u32>().is_ok())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn metadata(name: &str, version: &str, owner: &Value) -> ObjectMeta {
        serde_json::from_value(json!({
            "name": name, "annotations": { GENERATED_BY: version }, "ownerReferences": [owner],
        }))
        .unwrap()
    }

    fn owner(controller: Option<bool>) -> Value {
        json!({
            "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfigPool", "name": "worker",
            "uid": "u", "controller": controller,
        })
    }

    #[test]
    fn only_controller_of_rendered_name_proves_rendering() {
        let name = format!("rendered-worker-{}", "a1".repeat(16));
        let own = env!("CARGO_PKG_VERSION");
        assert!(is_rendered_here(&metadata(&name, own, &owner(Some(true)))));
        assert!(!is_rendered_here(&metadata(&name, own, &owner(None))), "it does not control");
        assert!(!is_rendered_here(&metadata(&name, own, &owner(Some(false)))), "it does not control");
        assert!(!is_rendered_here(&metadata("50-mine", own, &owner(Some(true)))), "another name");
        assert!(!is_rendered_here(&metadata("rendered-worker-mine", own, &owner(Some(true)))), "no digest");
        assert!(!is_rendered_here(&metadata(&name.replace("worker", "infra"), own, &owner(Some(true)))));
        let commit = "7ff337a4ffac8e7562692181178ede61e4b2eec5";
        assert!(!is_rendered_here(&metadata(&name, commit, &owner(Some(true)))), "the operator's");
        assert!(rendered_for(&metadata(&name, commit, &owner(Some(true)))).is_some());
        let other = json!({ "apiVersion": "v1", "kind": "MachineConfigPool", "name": "worker", "uid": "u", "controller": true });
        assert!(rendered_for(&metadata(&name, own, &other)).is_none(), "another API");
    }

    #[test]
    fn versions_of_operator_are_foreign() {
        for own in [env!("CARGO_PKG_VERSION"), "0.1.0", "1.20.3-rc.1", "2.0.0+build"] {
            assert!(is_own_version(own), "{own}");
        }
        for other in
            ["", "7ff337a4ffac8e7562692181178ede61e4b2eec5", "was-not-built-properly", "v4.19.0", "1.2"]
        {
            assert!(!is_own_version(other), "{other}");
        }
    }
}
