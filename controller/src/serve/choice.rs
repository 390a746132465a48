//! Config and image of a new node of a pool.

use crate::api::{MachineConfigPool, MachineOSBuild, MachineOSConfig};

/// Objects that name a pool's images.
pub(super) struct Images<'a> {
    /// Build settings.
    pub(super) configs: &'a [&'a MachineOSConfig],
    /// The builds.
    pub(super) builds: &'a [&'a MachineOSBuild],
}

/// Returns the name of the config: the target once one node has it, before that the one that all nodes have. A broken target
/// is given to no new node so, and a repaired one does not wait for the last node. A pool without nodes has only the target.
pub(super) fn config(pool: &MachineConfigPool) -> Option<&str> {
    let target = pool.spec.configuration.as_ref();
    let status = pool.status.as_ref();
    let rolled_out = status.and_then(|status| status.configuration.as_ref());
    let order = if has_updated(pool) { [target, rolled_out] } else { [rolled_out, target] };
    order.into_iter().flatten().filter_map(|config| config.name.as_deref()).find(|name| !name.is_empty())
}

/// Returns the image that carries the config: built, in use on a node, and in a registry that a node can reach before it is
/// part of the cluster.
pub(super) fn image<'a>(pool: &MachineConfigPool, config: &str, images: &Images<'a>) -> Option<&'a str> {
    let pool_name = pool.metadata.name.as_deref()?;
    let of_pool = images.configs.iter().find(|os| os.spec.machine_config_pool.name == pool_name)?;
    let current = of_pool.status.as_ref().and_then(|status| status.current_image_pull_spec.as_deref());
    let name = of_pool.metadata.name.as_deref().unwrap_or_default();
    let build = images
        .builds
        .iter()
        .find(|build| build.spec.machine_os_config.name == name && build.spec.machine_config.name == config);
    let image = build?.image()?;
    (has_updated(pool) && current.is_some_and(|current| !current.is_empty()) && !is_inside(image))
        .then_some(image)
}

fn has_updated(pool: &MachineConfigPool) -> bool {
    pool.status.as_ref().and_then(|status| status.updated_machine_count).is_some_and(|count| count > 0)
}

/// Returns true if only the cluster's own names lead to the registry.
fn is_inside(image: &str) -> bool {
    let host = image.split(['/', ':']).next().unwrap_or_default();
    let domain = host.rsplit('.').next().unwrap_or_default();
    domain == "svc" || host.ends_with(".cluster.local")
}

#[cfg(test)]
mod tests {
    use serde::de::DeserializeOwned;
    use serde_json::{Value, json};

    use super::*;

    fn object<T: DeserializeOwned>(kind: &str, name: &str, spec: &Value, status: &Value) -> T {
        serde_json::from_value(json!({ "apiVersion": "machineconfiguration.openshift.io/v1", "kind": kind,
            "metadata": { "name": name }, "spec": spec, "status": status }))
        .unwrap()
    }

    fn pool(target: &str, rolled_out: &str, updated: i32) -> MachineConfigPool {
        let status = json!({ "configuration": { "name": rolled_out }, "updatedMachineCount": updated });
        object("MachineConfigPool", "worker", &json!({ "configuration": { "name": target } }), &status)
    }

    #[test]
    fn target_is_served_once_node_has_it() {
        for (pool, expected) in [
            (pool("new", "old", 1), Some("new")),
            (pool("new", "old", 0), Some("old")),
            (pool("new", "", 0), Some("new")),
            (pool("", "old", 1), Some("old")),
            (pool("", "", 1), None),
            (MachineConfigPool::default(), None),
        ] {
            assert_eq!(config(&pool), expected, "{pool:?}");
        }
    }

    #[test]
    fn image_is_served_if_built_used_and_reachable() {
        let digest = format!("@sha256:{}", "a".repeat(64));
        let outside = format!("registry.test/os{digest}");
        let inside = format!("image-registry.openshift-image-registry.svc:5000/a/os{digest}");
        let reference = json!({ "imageBuilder": { "imageBuilderType": "Job" }, "machineConfigPool": { "name": "worker" },
            "renderedImagePushSecret": { "name": "push" }, "renderedImagePushSpec": "registry.test/os:1" });
        let image_of = |pool: &MachineConfigPool, image: &str, current: &str, succeeded: &str| {
            let os =
                object("MachineOSConfig", "worker", &reference, &json!({ "currentImagePullSpec": current }));
            let spec = json!({ "machineConfig": { "name": "new" }, "machineOSConfig": { "name": "worker" },
                "renderedImagePushSpec": "registry.test/os:1" });
            let status = json!({ "digestedImagePushSpec": image, "conditions": [
                { "type": "Succeeded", "status": succeeded, "reason": "A", "message": "", "lastTransitionTime": "" }] });
            let build = object("MachineOSBuild", "worker-1", &spec, &status);
            let images = Images { configs: &[&os], builds: &[&build] };
            super::image(pool, config(pool).unwrap(), &images).map(str::to_owned)
        };
        assert_eq!(image_of(&pool("new", "old", 1), &outside, &outside, "True"), Some(outside.clone()));
        assert_eq!(image_of(&pool("new", "old", 0), &outside, &outside, "True"), None, "no node has it");
        assert_eq!(image_of(&pool("other", "old", 1), &outside, &outside, "True"), None, "another config's");
        assert_eq!(image_of(&pool("new", "old", 1), &outside, &outside, "False"), None, "not built");
        assert_eq!(image_of(&pool("new", "old", 1), &outside, "", "True"), None, "not taken over");
        assert_eq!(image_of(&pool("new", "old", 1), &inside, &inside, "True"), None, "not within reach");
        let none = Images { configs: &[], builds: &[] };
        assert_eq!(super::image(&pool("new", "old", 1), "new", &none), None, "not layered");
    }
}
