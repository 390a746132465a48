//! Changes of a Node's annotations by a report, as a table.

use super::*;
use crate::model::certificates::{ServerCaRotation, TrustSynced};
use crate::model::{ConfigName, FaultClass, ImageRef};
use crate::report::PrefetchState;
use crate::update::Fault;

fn image(digit: &str) -> String {
    format!("reg.test/os@sha256:{}", digit.repeat(64))
}

fn report(state: NodeState) -> NodeReport {
    NodeReport {
        irreconcilable_changes: None,
        not_applied: Vec::new(),
        schema_version: 1,
        node: "worker-0".into(),
        state,
        reason: String::new(),
        current_config: Some(ConfigName::new("b").unwrap()),
        desired_config: Some(ConfigName::new("b").unwrap()),
        current_image: None,
        desired_image: None,
        content_changed: false,
        phase: "Idle".into(),
        update: None,
        fault: None,
        progress: None,
        doing: None,
        link_down: None,
        unpublished: None,
        waiting: None,
        next_try: None,
        trust: None,
        duty: None,
        faults: Vec::new(),
        held: None,
        doing_since: None,
        prefetch: None,
        conditions: Vec::new(),
        since: String::new(),
    }
}

fn faulty(state: NodeState, reason: &str, message: &str) -> NodeReport {
    let fault = Fault {
        class: FaultClass::Degraded,
        reason: reason.into(),
        message: message.into(),
        next: "Look.".into(),
    };
    NodeReport { reason: format!("{reason}: {message}"), fault: Some(fault), ..report(state) }
}

fn node(pairs: &[(&str, &str)]) -> Annotations {
    pairs.iter().map(|(key, value)| (format!("{PREFIX}{key}"), (*value).to_owned())).collect()
}

/// Shows changes in one line: `state=Done currentImage-`.
fn summary(now: &[(&str, &str)], report: &NodeReport) -> String {
    let changes = changes(&node(now), report);
    let words = changes.iter().map(|(key, value)| {
        let key = key.strip_prefix(PREFIX).unwrap();
        value.as_ref().map_or_else(|| format!("{key}-"), |value| format!("{key}={value}"))
    });
    words.collect::<Vec<_>>().join(" ")
}

/// MCD-026, MCD-027: Working when it begins, unless the node has reported a failure; nothing else with it.
#[test]
fn working() {
    let working = report(NodeState::Working);
    assert_eq!(summary(&[("currentConfig", "a"), ("state", "Done")], &working), "state=Working");
    assert_eq!(summary(&[("currentConfig", "a")], &working), "state=Working");
    for state in ["Working", "Degraded", "Unreconcilable"] {
        assert_eq!(summary(&[("currentConfig", "a"), ("state", state)], &working), "", "{state}");
    }
}

/// ANN-004, MCD-031, MCD-032, MCD-035: Done is one change with config, image and an empty reason; and then nothing.
#[test]
fn done() {
    let done = report(NodeState::Done);
    let before = [("currentConfig", "a"), ("state", "Working"), ("reason", "x"), ("desiredConfig", "b")];
    assert_eq!(summary(&before, &done), "currentConfig=b reason= state=Done");
    let after = [("currentConfig", "b"), ("state", "Done"), ("reason", "")];
    assert_eq!(summary(&after, &done), "");
    let mut layered = report(NodeState::Done);
    layered.current_image = Some(ImageRef::parse(&image("a")).unwrap());
    assert_eq!(summary(&after, &layered), format!("currentImage={}", image("a")));
    // Byte by byte as it is desired: the node controller compares texts.
    let tagged = image("a").replace('@', ":4.17@");
    layered.current_image = Some(ImageRef::parse(&tagged).unwrap());
    assert_eq!(summary(&after, &layered), format!("currentImage={tagged}"));
}

/// ANN-005, MCD-032, MCD-033: the image's keys go when image mode ends; a controller's key with a value stays.
#[test]
fn image_mode_ends() {
    let done = report(NodeState::Done);
    let rest = [("currentConfig", "b"), ("state", "Done"), ("reason", "")];
    let with = |extra: (&'static str, &'static str)| [rest.as_slice(), &[extra]].concat();
    assert_eq!(summary(&with(("currentImage", "x")), &done), "currentImage-");
    assert_eq!(summary(&with(("currentImage", "")), &done), "currentImage-");
    assert_eq!(summary(&with(("desiredImage", "")), &done), "desiredImage-");
    assert_eq!(summary(&with(("desiredImage", "x")), &done), "");
    assert_eq!(summary(&with(("desiredImage", "")), &report(NodeState::Working)), "state=Working");
}

/// MCD-028, MCD-029, MCD-030, ANN-007: state and reason together, the reason cut by characters.
#[test]
fn failing() {
    let now = [("currentConfig", "a"), ("state", "Working")];
    let degraded = faulty(NodeState::Degraded, "Full", "no space");
    assert_eq!(summary(&now, &degraded), "reason=Full: no space state=Degraded");
    let unreconcilable = faulty(NodeState::Unreconcilable, "FailedToReconcile", "x");
    assert_eq!(summary(&now, &unreconcilable), "reason=FailedToReconcile: x state=Unreconcilable");
    let long = faulty(NodeState::Degraded, "Long", &"é".repeat(3000));
    let reason = changes(&node(&now), &long).get(REASON).cloned().flatten().unwrap();
    assert_eq!(reason.chars().count(), 2000);
    // From Degraded straight to Done.
    let failed = [("currentConfig", "a"), ("state", "Degraded"), ("reason", "x")];
    assert_eq!(summary(&failed, &report(NodeState::Done)), "currentConfig=b reason= state=Done");
}

/// MCD-042, MCD-043, W-10: `Rebooting` while the record is in that phase, and empty afterwards.
#[test]
fn rebooting() {
    let now = [("currentConfig", "a"), ("state", "Working")];
    let rebooting = NodeReport { phase: "Rebooting".into(), ..report(NodeState::Working) };
    assert_eq!(summary(&now, &rebooting), "post-config-action=Rebooting");
    let asked = [now.as_slice(), &[("post-config-action", "Rebooting")]].concat();
    assert_eq!(summary(&asked, &rebooting), "");
    assert_eq!(summary(&asked, &report(NodeState::Working)), "post-config-action=");
    assert_eq!(summary(&now, &report(NodeState::Working)), "");
}

/// MCD-045, OST-010: the failure is reported, then emptied; never created empty.
#[test]
fn finalization() {
    let now = [("currentConfig", "a"), ("state", "Working")];
    let failed = faulty(NodeState::Degraded, "DeploymentNotFinalized", "old deployment");
    assert!(summary(&now, &failed).contains("ostree-finalize-staged-failure=old deployment"));
    let reported_once = [now.as_slice(), &[("ostree-finalize-staged-failure", "x")]].concat();
    assert_eq!(summary(&reported_once, &report(NodeState::Working)), "ostree-finalize-staged-failure=");
    let emptied = [now.as_slice(), &[("ostree-finalize-staged-failure", "")]].concat();
    assert_eq!(summary(&emptied, &report(NodeState::Working)), "");
}

/// MCD-235, MCD-238: the version that is on the host; a rotation that is on is reported when the node has the new CA.
#[test]
fn synced_trust_is_reported() {
    let now = [("currentConfig", "b"), ("state", "Done"), ("reason", "")];
    let synced = |version: &str, rotation| {
        let trust = TrustSynced { version: version.into(), rotation };
        NodeReport { trust: Some(trust), ..report(NodeState::Done) }
    };
    let seven = synced("7", ServerCaRotation::Off);
    let version = "lastSyncedControllerConfigResourceVersion";
    assert_eq!(summary(&now, &seven), format!("lastObservedServerCAAnnotation=false {version}=7"));
    let after = [now.as_slice(), &[(version, "7"), ("lastObservedServerCAAnnotation", "false")]].concat();
    assert_eq!(summary(&after, &seven), "");
    assert_eq!(summary(&after, &report(NodeState::Done)), "");
    assert_eq!(summary(&after, &synced("8", ServerCaRotation::On)), format!("{version}=8"));
    let brought = summary(&after, &synced("8", ServerCaRotation::Brought));
    assert_eq!(brought, format!("lastObservedServerCAAnnotation=true {version}=8"));
}

/// W-21: the target's end is reported in spite of a duty's fault, and of no other.
#[test]
fn trust_fault_does_not_hide_done() {
    let now = [("currentConfig", "a"), ("state", "Working")];
    let degraded = faulty(NodeState::Degraded, "Full", "no space");
    let of_duty = NodeReport { duty: degraded.fault.clone(), ..degraded.clone() };
    assert_eq!(summary(&now, &of_duty), "currentConfig=b reason=Full: no space state=Degraded");
    assert_eq!(summary(&now, &degraded), "reason=Full: no space state=Degraded");
    let undone = [
        NodeReport { desired_config: None, ..of_duty.clone() },
        NodeReport { update: Some("u".into()), ..of_duty.clone() },
        NodeReport { waiting: Some("the uncordon".into()), ..of_duty.clone() },
        NodeReport { fault: faulty(NodeState::Degraded, "Other", "x").fault, ..of_duty },
    ];
    for report in undone {
        assert!(!summary(&now, &report).contains("currentConfig"), "{report:?}");
    }
}

/// MCD-023: a Node without annotations gets the current config, with the state of the report.
#[test]
fn created_again() {
    let mut working = report(NodeState::Working);
    working.current_image = Some(ImageRef::parse(&image("a")).unwrap());
    let expected = format!("currentConfig=b currentImage={} state=Working", image("a"));
    assert_eq!(summary(&[], &working), expected);
    assert_eq!(
        summary(&[("currentConfig", "")], &report(NodeState::Done)),
        "currentConfig=b reason= state=Done"
    );
    let nothing = NodeReport { current_config: None, ..report(NodeState::Working) };
    assert_eq!(summary(&[], &nothing), "state=Working");
}

/// MCD-034, ANN-008, ANN-011: no other key is in any change, for any Node and report.
#[test]
fn other_keys_are_unchanged() {
    let others = [
        ("desiredConfig", "z"),
        ("desiredImage", "x"),
        ("lastAppliedDrain", "drain-b"),
        ("desiredDrain", "drain-b"),
        ("controlPlaneTopology", "HighlyAvailable"),
        ("lastSyncedControllerConfigResourceVersion", "7"),
        ("post-config-action", "Rebooting"),
        ("ostree-finalize-staged-failure", "x"),
    ];
    let ours = [
        CURRENT_CONFIG,
        CURRENT_IMAGE,
        STATE,
        REASON,
        POST_CONFIG_ACTION,
        FINALIZE_FAILURE,
        DESIRED_IMAGE[0],
    ];
    for state in [NodeState::Done, NodeState::Working, NodeState::Degraded, NodeState::Unreconcilable] {
        let changed = changes(&node(&others), &faulty(state, "DeploymentNotFinalized", "x"));
        assert!(changed.keys().all(|key| ours.contains(&key.as_str())), "{changed:?}");
        assert!(!changed.contains_key(DESIRED_IMAGE[0]), "{changed:?}");
    }
}

/// MCD-022: every key of the provisioning's file that the Node does not have so, no foreign one, and no `Done` of a host
/// that was not observed yet.
#[test]
fn provisioned() {
    let mut file = node(&[("currentConfig", "a"), ("desiredConfig", "a"), ("state", "Done")]);
    file.insert("node.alpha/ttl".into(), "0".into());
    let changed = initial(&node(&[]), &file);
    let keys: Vec<&str> = changed.keys().map(|key| key.strip_prefix(PREFIX).unwrap()).collect();
    assert_eq!(keys, ["currentConfig", "desiredConfig"]);
}

/// BOOT-008: a node that was provisioned with an image of its own is in image mode from its first annotations on.
#[test]
fn provisioned_image_keys_are_taken() {
    let file =
        node(&[("currentConfig", "a"), ("currentImage", "i"), ("desiredConfig", "a"), ("desiredImage", "i")]);
    let wanted = file.iter().map(|(key, value)| (key.clone(), Some(value.clone()))).collect();
    assert_eq!(initial(&node(&[]), &file), wanted);
}

/// The percentage is the node's own: no write for each percent.
#[test]
fn prefetch_status_is_written_without_its_percentage_and_removed() {
    let status = PrefetchStatus::new("reg.test/os@sha256:a", PrefetchState::Downloading);
    let at = |percent| PrefetchStatus { percent, ..status.clone() };
    let prefetching = |percent| NodeReport { prefetch: Some(at(percent)), ..report(NodeState::Done) };
    let first = changes(&Annotations::new(), &prefetching(Some(1)));
    let written = first.get(PREFETCH_STATUS).unwrap().clone().unwrap();
    assert_eq!(written, r#"{"image":"reg.test/os@sha256:a","state":"Downloading"}"#);
    let now = Annotations::from([(PREFETCH_STATUS.to_owned(), written)]);
    assert!(!changes(&now, &prefetching(Some(2))).contains_key(PREFETCH_STATUS));
    assert_eq!(changes(&now, &report(NodeState::Done)).get(PREFETCH_STATUS), Some(&None));
}
