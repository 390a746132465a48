//! Changes that wake the controllers, from a watch or from the answer to an own write.

use serde_json::{Value, json};

use super::*;

fn config(version: &str, kargs: &[&str]) -> Lenient<MachineConfig> {
    let metadata = json!({ "name": "50-a", "uid": "1", "resourceVersion": version });
    read(json!({ "metadata": metadata, "spec": { "kernelArguments": kargs } }))
}

fn rendered(generation: i64) -> Lenient<MachineConfig> {
    let owner = json!({ "apiVersion": "v1", "kind": "MachineConfigPool", "name": "worker", "uid": "2" });
    let metadata =
        json!({ "name": "rendered-worker-1", "generation": generation, "ownerReferences": [owner] });
    read(json!({ "metadata": metadata, "spec": {} }))
}

fn read(object: Value) -> Lenient<MachineConfig> {
    serde_json::from_value(object).unwrap()
}

/// Returns two flags: the object changed, and sources of rendered configs changed.
fn inputs_changed(seen: &mut Seen, change: impl FnOnce(&mut Seen) -> bool) -> (bool, bool) {
    let before = seen.inputs;
    (change(seen), seen.inputs != before)
}

/// The watch may report an object's end after the answer to the own deletion: the pools are rendered again all the same.
#[test]
fn own_writes_are_inputs_like_those_of_others() {
    let mut seen = Seen::default();
    let news = (true, true);
    assert_eq!(inputs_changed(&mut seen, |seen| config("2", &["a"]).put(seen)), news);
    assert_eq!(inputs_changed(&mut seen, |seen| config("3", &["b"]).put(seen)), news);
    assert_eq!(inputs_changed(&mut seen, |seen| Lenient::<MachineConfig>::remove(seen, "50-a")), news);
    assert_eq!(
        inputs_changed(&mut seen, |seen| Lenient::<MachineConfig>::remove(seen, "50-a")),
        (false, false)
    );
}

#[test]
fn objects_never_return_to_older_version() {
    let mut seen = Seen::default();
    config("10", &["b"]).put(&mut seen);
    assert_eq!(inputs_changed(&mut seen, |seen| config("9", &["a"]).put(seen)), (false, false));
    assert_eq!(seen.configs["50-a"].spec.kernel_arguments, Some(vec!["b".to_owned()]));
}

#[test]
fn edited_or_deleted_rendered_config_is_input() {
    let mut seen = Seen::default();
    assert_eq!(inputs_changed(&mut seen, |seen| rendered(1).put(seen)), (true, false));
    assert_eq!(inputs_changed(&mut seen, |seen| rendered(2).put(seen)), (true, true));
    assert_eq!(
        inputs_changed(&mut seen, |seen| Lenient::<MachineConfig>::remove(seen, "rendered-worker-1")),
        (true, true)
    );
}

/// Membership in pools is computed again for a label, a selector and a deletion, and not for the reports of nodes.
#[test]
fn labels_and_selectors_change_membership() {
    let node = |version: &str, label: &str, state: &str| -> NodeObject {
        let annotations = json!({ "machineconfiguration.openshift.io/state": state });
        let metadata = json!({ "name": "n", "uid": "1", "resourceVersion": version, "labels": { label: "" },
            "annotations": annotations });
        serde_json::from_value(json!({ "metadata": metadata })).unwrap()
    };
    let pool = |generation: i64, paused: bool, machines: i64| -> Lenient<MachineConfigPool> {
        let metadata = json!({ "name": "p", "uid": "2", "generation": generation });
        let object = json!({ "metadata": metadata, "spec": { "paused": paused }, "status": { "machineCount": machines } });
        serde_json::from_value(object).unwrap()
    };
    let mut seen = Seen::default();
    let mut changed = |change: &dyn Fn(&mut Seen) -> bool| {
        let before = seen.membership;
        (change(&mut seen), seen.membership != before)
    };
    let (news, moved) = ((true, false), (true, true));
    assert_eq!(changed(&|seen| node("1", "a", "Done").put(seen)), moved);
    assert_eq!(changed(&|seen| node("2", "a", "Working").put(seen)), news);
    assert_eq!(changed(&|seen| node("3", "b", "Working").put(seen)), moved);
    assert_eq!(changed(&|seen| node("2", "a", "Working").put(seen)), (false, false));
    assert_eq!(changed(&|seen| pool(1, false, 0).put(seen)), moved);
    assert_eq!(changed(&|seen| pool(1, false, 1).put(seen)), news);
    assert_eq!(changed(&|seen| pool(2, true, 1).put(seen)), moved);
    assert_eq!(changed(&|seen| NodeObject::remove(seen, "n")), moved);
    assert_eq!(changed(&|seen| NodeObject::remove(seen, "n")), (false, false));
    assert_eq!(changed(&|seen| Lenient::<MachineConfigPool>::remove(seen, "p")), moved);
}
