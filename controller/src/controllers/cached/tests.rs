//! Changes that wake the controllers, from a watch or from the answer to an own write.

use serde_json::{Value, json};

use super::super::cache::Changed;
use super::*;

fn config(version: &str, kargs: &[&str]) -> Lenient<MachineConfig> {
    let metadata = json!({ "name": "50-a", "uid": "1", "resourceVersion": version });
    read(json!({ "metadata": metadata, "spec": { "kernelArguments": kargs } }))
}

fn rendered(generation: i64) -> Lenient<MachineConfig> {
    let owner = json!({
        "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfigPool", "name": "worker",
        "uid": "2", "controller": true,
    });
    let metadata =
        json!({ "name": "rendered-worker-1", "generation": generation, "ownerReferences": [owner] });
    read(json!({ "metadata": metadata, "spec": {} }))
}

fn read(object: Value) -> Lenient<MachineConfig> {
    serde_json::from_value(object).unwrap()
}

/// Returns two flags: the object changed, and sources of rendered configs changed.
fn inputs_changed(snapshot: &mut Snapshot, change: impl FnOnce(&mut Snapshot) -> bool) -> (bool, bool) {
    let before = snapshot.inputs;
    (change(snapshot), snapshot.inputs != before)
}

/// The watch may report an object's end after the answer to the own deletion: the pools are rendered again all the same.
#[test]
fn own_writes_are_inputs_like_those_of_others() {
    let mut snapshot = Snapshot::default();
    let news = (true, true);
    assert_eq!(inputs_changed(&mut snapshot, |snapshot| config("2", &["a"]).put(snapshot)), news);
    assert_eq!(inputs_changed(&mut snapshot, |snapshot| config("3", &["b"]).put(snapshot)), news);
    assert_eq!(
        inputs_changed(&mut snapshot, |snapshot| Lenient::<MachineConfig>::remove(snapshot, "50-a")),
        news
    );
    assert_eq!(
        inputs_changed(&mut snapshot, |snapshot| Lenient::<MachineConfig>::remove(snapshot, "50-a")),
        (false, false)
    );
}

#[test]
fn objects_never_return_to_older_version() {
    let mut snapshot = Snapshot::default();
    config("10", &["b"]).put(&mut snapshot);
    assert_eq!(inputs_changed(&mut snapshot, |snapshot| config("9", &["a"]).put(snapshot)), (false, false));
    assert_eq!(snapshot.configs["50-a"].object.spec.kernel_arguments, Some(vec!["b".to_owned()]));
}

#[test]
fn edited_or_deleted_rendered_config_is_input() {
    let mut snapshot = Snapshot::default();
    assert_eq!(inputs_changed(&mut snapshot, |snapshot| rendered(1).put(snapshot)), (true, false));
    assert_eq!(inputs_changed(&mut snapshot, |snapshot| rendered(2).put(snapshot)), (true, true));
    assert_eq!(
        inputs_changed(&mut snapshot, |snapshot| Lenient::<MachineConfig>::remove(
            snapshot,
            "rendered-worker-1"
        )),
        (true, true)
    );
}

/// Membership in pools is computed again for a selector and a deletion; a node that changes is named.
#[test]
fn selectors_change_membership_and_nodes_are_named() {
    let cache = Cache::new();
    let (journal, contents) = (cache.journal(), cache.contents());
    let node = |version: &str, label: &str, state: &str| -> NodeObject {
        let annotations = json!({ "machineconfiguration.openshift.io/state": state });
        let metadata = json!({ "name": "n", "uid": "1", "resourceVersion": version, "labels": { label: "" },
            "annotations": annotations });
        serde_json::from_value(json!({ "metadata": metadata })).unwrap()
    };
    let pool = |generation: i64, label: &str, machines: i64| -> Lenient<MachineConfigPool> {
        let metadata = json!({ "name": "p", "uid": "2", "generation": generation });
        let spec = json!({ "nodeSelector": { "matchLabels": { label: "" } } });
        let object = json!({ "metadata": metadata, "spec": spec, "status": { "machineCount": machines } });
        serde_json::from_value(object).unwrap()
    };
    // Names of nodes and pools that changed, whether something else did, membership, and more than reports of nodes.
    let changed = |change: &dyn Fn(&mut Snapshot) -> bool| {
        let (membership, before) = (cache.lock().membership, *contents.borrow());
        cache.change(change);
        let mut snapshot = cache.lock();
        let Changed { nodes, pools, others } = journal.take(&mut snapshot);
        let moved = snapshot.membership != membership;
        (nodes.len(), pools.len(), others, moved, *contents.borrow() != before)
    };
    let _ = changed(&|_| false);
    let (added, reported) = ((1, 0, false, false, true), (1, 0, false, false, false));
    assert_eq!(changed(&|snapshot| node("1", "a", "Done").put(snapshot)), added);
    assert_eq!(changed(&|snapshot| node("2", "a", "Working").put(snapshot)), reported);
    assert_eq!(changed(&|snapshot| node("3", "b", "Working").put(snapshot)), added);
    assert_eq!(
        changed(&|snapshot| node("4", "b", "Working").put(snapshot)),
        reported,
        "its version is needed"
    );
    assert_eq!(changed(&|snapshot| node("2", "a", "Working").put(snapshot)), (0, 0, false, false, false));
    let (moved, respecified) = ((0, 1, false, true, true), (0, 1, false, false, true));
    assert_eq!(changed(&|snapshot| pool(1, "a", 0).put(snapshot)), moved);
    assert_eq!(changed(&|snapshot| pool(1, "a", 1).put(snapshot)), respecified);
    assert_eq!(changed(&|snapshot| pool(2, "b", 1).put(snapshot)), moved);
    assert_eq!(changed(&|snapshot| config("1", &["a"]).put(snapshot)), (0, 0, true, false, true));
    assert_eq!(changed(&|snapshot| NodeObject::remove(snapshot, "n")), added);
    assert_eq!(changed(&|snapshot| NodeObject::remove(snapshot, "n")), (0, 0, false, false, false));
    assert_eq!(changed(&|snapshot| Lenient::<MachineConfigPool>::remove(snapshot, "p")), moved);
}

/// Another program deletes what was just made, and the answer to the write is the last to come.
#[test]
fn answer_does_not_bring_back_what_has_ended() {
    let mut snapshot = Snapshot::default();
    config("1", &["a"]).put_watched(&mut snapshot);
    snapshot.note_gone(config("2", &["a"]).meta());
    Lenient::<MachineConfig>::remove(&mut snapshot, "50-a");
    assert!(!config("1", &["a"]).put(&mut snapshot) && snapshot.configs.is_empty());
    // An API server that went back to before the end has it again.
    assert!(config("1", &["a"]).put_watched(&mut snapshot) && snapshot.configs.contains_key("50-a"));
}

/// A list is the server's state, also where it has gone back; what was written since the list was asked for stays.
#[test]
fn list_replaces_newer_versions_but_those_written_meanwhile() {
    let node = |name: &str, version: &str| -> NodeObject {
        serde_json::from_value(
            json!({ "metadata": { "name": name, "uid": name, "resourceVersion": version } }),
        )
        .unwrap()
    };
    let mut snapshot = Snapshot::default();
    for name in ["old", "written"] {
        node(name, "100").put(&mut snapshot);
    }
    let version = |snapshot: &Snapshot, name: &str| snapshot.nodes[name].resource_version.clone();
    node("old", "50").put(&mut snapshot);
    assert_eq!(version(&snapshot, "old"), "100", "a watch is behind");
    snapshot.begin_list(Kind::Nodes, 0);
    node("written", "101").put(&mut snapshot);
    for name in ["old", "written"] {
        let listed = node(name, "50");
        snapshot.insert_listed(Kind::Nodes, name, |snapshot| listed.insert(snapshot));
    }
    assert_eq!(
        (version(&snapshot, "old"), version(&snapshot, "written")),
        ("50".to_owned(), "101".to_owned())
    );
    assert_eq!(snapshot.end_list(Kind::Nodes).into_iter().collect::<Vec<_>>(), ["written"]);
    node("old", "40").put(&mut snapshot);
    assert_eq!(version(&snapshot, "old"), "50");
}

/// The news of a restore may come to the cache after a kind has been listed again: that list stays, nothing would read another one.
#[test]
fn kind_that_was_listed_since_restore_stays_so() {
    let mut snapshot = Snapshot::default();
    for kind in [Kind::Nodes, Kind::Pools] {
        snapshot.begin_list(kind, 0);
        snapshot.set_listed(kind);
    }
    // One has been listed, and the list of the other one has begun.
    for kind in [Kind::Nodes, Kind::Pools] {
        snapshot.begin_list(kind, 1);
    }
    snapshot.set_listed(Kind::Nodes);
    assert!(snapshot.unlist(1));
    assert_eq!((snapshot.knows(Kind::Nodes), snapshot.knows(Kind::Pools)), (true, false));
    snapshot.set_listed(Kind::Pools);
    assert!(!snapshot.is_between_states() && !snapshot.unlist(1));
}

/// An object was deleted and made again with the same name, and the watch brought that before the answer to the deletion.
#[test]
fn object_that_was_made_again_outlives_answer_to_older_deletion() {
    let made = |uid: &str| {
        let mut config = config("2", &["a"]);
        config.metadata.uid = Some(uid.to_owned());
        config.object.as_mut().unwrap().metadata.uid = Some(uid.to_owned());
        config
    };
    let mut snapshot = Snapshot::default();
    made("new").put(&mut snapshot);
    let mut gone = |uid: Option<&str>| Lenient::<MachineConfig>::remove_gone(&mut snapshot, "50-a", uid);
    assert_eq!(
        [gone(Some("old")), gone(None), gone(Some("new")), gone(Some("new"))],
        [false, false, true, false]
    );
    let mut kept = rendered(1);
    kept.metadata.uid = Some("new".to_owned());
    kept.put(&mut snapshot);
    let mut gone = |uid| Lenient::<MachineConfig>::remove_gone(&mut snapshot, "rendered-worker-1", Some(uid));
    assert_eq!([gone("old"), gone("new")], [false, true]);
}

/// A pool that can't be read is deleted, and the answer to a request says so before the watch does: it is gone from the cache.
#[test]
fn unreadable_pool_is_removed_once_it_is_gone() {
    let pool = |uid: &str| -> Lenient<MachineConfigPool> {
        let object = json!({ "metadata": { "name": "p", "uid": uid }, "spec": { "paused": "no" } });
        serde_json::from_value(object).unwrap()
    };
    let mut snapshot = Snapshot::default();
    pool("new").put(&mut snapshot);
    assert!(snapshot.pools["p"].is_err(), "it can be read");
    let mut gone = |uid| Lenient::<MachineConfigPool>::remove_gone(&mut snapshot, "p", Some(uid));
    assert_eq!([gone("old"), gone("new"), gone("new")], [false, true, false]);
}
