//! Rendered configs that nobody uses, and the proof that they are ours to delete.

use std::collections::{BTreeMap, BTreeSet};

use super::cache::{RenderedConfig, Snapshot};
use crate::render::surplus;

/// Unused rendered configs that are kept, by pool.
const KEEP: usize = 10;

/// Returns unused rendered configs that are too many: name, uid, version.
pub(super) fn unused(snapshot: &Snapshot) -> Vec<(String, String, String)> {
    let mut used: BTreeSet<&str> = BTreeSet::new();
    for pool in snapshot.readable_pools() {
        let status = pool.status.as_ref().and_then(|status| status.configuration.as_ref());
        let both = [pool.spec.configuration.as_ref(), status].into_iter().flatten();
        used.extend(both.filter_map(|config| config.name.as_deref()));
    }
    used.extend(snapshot.os_builds.values().map(|build| build.config.as_str()));
    // Also of one that can't be read: it is corrected later.
    let policies = snapshot.policies.values();
    for policy in policies.map(|policy| policy.as_ref().unwrap_or_else(|unreadable| &unreadable.policy)) {
        // Targets that a pool may return to.
        let status = policy.status.as_ref();
        let targets =
            status.map(|status| [&status.target, &status.last_good]).into_iter().flatten().flatten();
        used.extend(targets.map(|target| target.config.as_str()));
    }
    for node in snapshot.nodes.values() {
        used.extend(node.annotations.values().map(String::as_str));
    }
    let mut by_pool: BTreeMap<&str, Vec<(&str, Option<k8s_openapi::jiff::Timestamp>)>> = BTreeMap::new();
    for (name, rendered) in &snapshot.rendered {
        if !used.contains(name.as_str()) && is_ours(rendered, snapshot) {
            by_pool.entry(&rendered.pool).or_default().push((name, rendered.made));
        }
    }
    let names = by_pool.values().flat_map(|unused| surplus(unused, KEEP));
    let all = names.filter_map(|name| {
        let rendered = snapshot.rendered.get(name)?;
        Some((name.to_owned(), rendered.uid.clone(), rendered.version.clone()))
    });
    all.collect()
}

/// Returns true if this program rendered it for a pool that is there and can be read: one that can't may use it, and what an earlier
/// pool of the name owned goes with that pool.
fn is_ours(rendered: &RenderedConfig, snapshot: &Snapshot) -> bool {
    let Some(Ok(pool)) = snapshot.pools.get(&rendered.pool) else { return false };
    rendered.is_own && pool.metadata.uid.as_ref() == Some(&rendered.pool_uid)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::cache::UnreadablePool;
    use super::super::cached::Cached as _;
    use super::*;
    use crate::api::{GENERATED_BY, MachineConfig, MachineConfigPool, RolloutPolicy};
    use crate::reading::Lenient;

    fn name(number: usize) -> String {
        format!("rendered-worker-{number:032x}")
    }

    /// A pool with many unused configs; each as one of the arguments changes it.
    fn snapshot(pool_uid: &str, change: impl Fn(&mut Value)) -> Snapshot {
        let mut snapshot = Snapshot::default();
        let pool = json!({ "metadata": { "name": "worker", "uid": pool_uid }, "spec": {} });
        snapshot
            .pools
            .insert("worker".to_owned(), Ok(serde_json::from_value::<MachineConfigPool>(pool).unwrap()));
        for number in 0..KEEP + 3 {
            let mut object = json!({
                "metadata": {
                    "name": name(number), "uid": format!("{number}"), "resourceVersion": "5",
                    "annotations": { GENERATED_BY: env!("CARGO_PKG_VERSION") },
                    "creationTimestamp": format!("2026-01-01T00:00:{number:02}Z"),
                    "ownerReferences": [{
                        "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfigPool",
                        "name": "worker", "uid": "u", "controller": true,
                    }],
                },
                "spec": {},
            });
            change(&mut object);
            let config: Lenient<MachineConfig> = serde_json::from_value(object).unwrap();
            config.put(&mut snapshot);
        }
        snapshot
    }

    #[test]
    fn oldest_unused_configs_go_with_uid_and_version() {
        let found = unused(&snapshot("u", |_| ()));
        let expected: Vec<_> = (0..3).map(|n| (name(n), n.to_string(), "5".to_owned())).collect();
        assert_eq!(found.len(), 3);
        assert!(expected.iter().all(|one| found.contains(one)), "{found:?}");
    }

    /// Its nodes return there once it can be read again.
    #[test]
    fn last_good_config_of_unreadable_policy_is_kept() {
        let mut snapshot = snapshot("u", |_| ());
        let policy: Lenient<RolloutPolicy> = serde_json::from_value(json!({
            "metadata": { "name": "worker" }, "spec": { "onFailure": "Explode" },
            "status": { "lastGood": { "config": name(0) }, "target": { "config": name(1) }, "wave": "two" },
        }))
        .unwrap();
        policy.put(&mut snapshot);
        assert!(snapshot.policies["worker"].is_err());
        let found: Vec<String> = unused(&snapshot).into_iter().map(|(name, ..)| name).collect();
        assert_eq!(found, [name(2)]);
    }

    #[test]
    fn nothing_is_deleted_without_proof() {
        let owner = |field: &'static str, value: Value| {
            move |object: &mut Value| object["metadata"]["ownerReferences"][0][field] = value.clone()
        };
        assert!(unused(&snapshot("u", owner("controller", json!(false)))).is_empty(), "it does not control");
        assert!(unused(&snapshot("u", owner("uid", json!("other")))).is_empty(), "another pool's");
        assert!(unused(&snapshot("other", |_| ())).is_empty(), "the pool was made again");
        let foreign =
            |object: &mut Value| object["metadata"]["annotations"][GENERATED_BY] = json!("7ff337a4ffac8e");
        assert!(unused(&snapshot("u", foreign)).is_empty(), "another program's");
        let named = |object: &mut Value| {
            let name = object["metadata"]["name"].as_str().unwrap().replace("rendered-worker", "50-mine");
            object["metadata"]["name"] = json!(name);
        };
        assert!(unused(&snapshot("u", named)).is_empty(), "a person's name");
        let mut gone = snapshot("u", |_| ());
        gone.pools.clear();
        assert!(unused(&gone).is_empty(), "its pool is gone");
        let mut unreadable = snapshot("u", |_| ());
        unreadable
            .pools
            .insert("worker".to_owned(), Err(UnreadablePool { uid: None, cause: "no object".to_owned() }));
        assert!(unused(&unreadable).is_empty(), "its pool can't be read");
    }
}
