//! Pools and policies that have no effect.

use super::*;

#[test]
fn pool_that_is_being_deleted_gives_no_target() {
    let pool = |metadata: serde_json::Value| -> MachineConfigPool {
        serde_json::from_value(json!({ "metadata": metadata, "spec": {} })).unwrap()
    };
    let mut snapshot = Snapshot::default();
    snapshot.pools.insert("a".to_owned(), Ok(pool(json!({ "name": "a" }))));
    let deleted = json!({ "name": "b", "deletionTimestamp": "2026-01-01T00:00:00Z" });
    snapshot.pools.insert("b".to_owned(), Ok(pool(deleted)));
    snapshot.pools.insert("c".to_owned(), Err(UnreadablePool { uid: None, cause: "no object".to_owned() }));
    assert_eq!(living(&snapshot), BTreeSet::from(["a".to_owned()]));
}

#[test]
fn config_that_is_gone_is_not_returned_to() {
    let policy: RolloutPolicy = serde_json::from_value(json!({
        "metadata": { "name": "worker" }, "spec": {},
        "status": { "lastGood": { "config": "rendered-worker-1" }, "wave": 2 },
    }))
    .unwrap();
    let mut snapshot = Snapshot::default();
    let status = known(&policy, &snapshot).status;
    assert_eq!((status.last_good, status.wave), (None, Some(2)));
    let rendered = crate::controllers::cache::RenderedConfig {
        image: None,
        pool: "worker".to_owned(),
        pool_uid: "p".to_owned(),
        is_own: true,
        made_by: None,
        uid: "u".to_owned(),
        version: "1".to_owned(),
        made: None,
        generation: 1,
    };
    snapshot.rendered.insert("rendered-worker-1".to_owned(), rendered);
    assert_eq!(known(&policy, &snapshot).status, policy.status.unwrap());
}

#[test]
fn status_that_later_decisions_read_is_written_at_once() {
    let status = |machines: i32, config: &str, halted: &str| -> MachineConfigPoolStatus {
        let condition = json!({ "type": "RolloutHalted", "status": "False", "reason": halted });
        let value = json!({
            "machineCount": machines, "configuration": { "name": config }, "conditions": [condition],
        });
        serde_json::from_value(value).unwrap()
    };
    let old = status(1, "a", "");
    let is_gate = |new: &MachineConfigPoolStatus| execute::is_gate(Some(&old), new);
    assert!(!is_gate(&status(2, "a", "")), "a count");
    assert!(is_gate(&status(1, "b", "")) && is_gate(&status(1, "a", "PolicyFollowed")));
    let mut statuses = Statuses::default();
    let at = Duration::from_millis;
    assert_eq!(statuses.pause("worker", at(9000)), None);
    statuses.written("worker", at(9000));
    assert_eq!(statuses.pause("worker", at(9400)), Some(at(600)));
    assert_eq!((statuses.pause("worker", at(10_000)), statuses.pause("infra", at(9400))), (None, None));
}
