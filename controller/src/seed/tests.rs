//! The life of a component, beside objects of a person and of upstream.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::*;

fn digested(digit: char) -> String {
    format!("registry.test/os@sha256:{}", digit.to_string().repeat(64))
}

fn source(image: Option<&str>) -> Source {
    let annotations = image.map(|image| BTreeMap::from([(PRE_BUILT_IMAGE.to_owned(), image.to_owned())]));
    let image = super::image(annotations.as_ref());
    Source { name: "worker".to_owned(), uid: "u".to_owned(), pool: "worker".to_owned(), image }
}

/// Upstream refuses names that are short for another one; the API server refuses a build with one of over 447 characters.
#[test]
fn names_that_upstream_refuses_are_refused() {
    let digest = format!("@sha256:{}", "a".repeat(64));
    let found = |name: &str| source(Some(&format!("{name}{digest}"))).image.unwrap();
    // A name of at most 255 characters and a tag of 128.
    let long = |length: usize| {
        let tag = format!(":{}", "t".repeat(128));
        let rest = length - digest.len() - tag.len() - "registry.test/".len();
        format!("registry.test/{}{tag}", "a".repeat(rest))
    };
    for good in
        ["registry.test/os", "REG.test:5000/a/os:4.17", "REG/os", "localhost/os", "docker.io/library/os"]
    {
        assert_eq!(found(good), Ok(format!("{good}{digest}")));
    }
    for bad in [
        "os",
        "team/os",
        "docker.io/os",
        "index.docker.io/library/os",
        "",
        "-reg.test/os",
        "registry.test/OS",
    ] {
        found(bad).expect_err(bad);
    }
    found(&long(447)).unwrap();
    assert_eq!(found(&long(448)).unwrap_err(), "it has 448 characters, and at most 447 are taken");
}

/// Makes the writes, as the API server would; returns their log lines.
fn settle(sources: &[Source], configs: &mut BTreeMap<String, MachineConfig>) -> Vec<&'static str> {
    let mut done = Vec::new();
    loop {
        // The sources are the same before and after the writes.
        let rendered = with_components("worker", sources, configs);
        let (actions, errors) = actions(sources, configs);
        if let Ok(rendered) = &rendered {
            fn images<'a>(all: impl Iterator<Item = &'a MachineConfig>) -> BTreeSet<String> {
                all.filter_map(|config| config.spec.os_image_url.clone()).collect()
            }
            let mut later = configs.clone();
            for action in &actions {
                execute(action, &mut later);
            }
            assert_eq!(images(rendered.iter().map(|config| &**config)), images(later.values()));
            assert_eq!(rendered.len(), later.len());
        }
        assert_eq!(rendered.is_err(), !errors.is_empty());
        if actions.is_empty() {
            return done;
        }
        done.extend(actions.iter().map(|action| execute(action, configs)));
        assert!(done.len() < 10, "no end: {done:?}");
    }
}

fn execute(action: &Action, configs: &mut BTreeMap<String, MachineConfig>) -> &'static str {
    let name = |config: &MachineConfig| config.metadata.name.clone().unwrap();
    match action {
        Action::Create(config) => {
            assert!(configs.insert(name(config), (**config).clone()).is_none());
            "create"
        }
        Action::Update(config) => {
            assert!(configs.insert(name(config), (**config).clone()).is_some());
            "update"
        }
        Action::Delete(config) => {
            assert!(configs.remove(&name(config)).is_some());
            "delete"
        }
    }
}

fn image_of(configs: &BTreeMap<String, MachineConfig>) -> Option<&str> {
    configs.get("10-prebuiltimage-osimageurl-worker")?.spec.os_image_url.as_deref()
}

/// SEED-003, SEED-009: it is created, updated and deleted with the annotation, and goes with the `MachineOSConfig`.
#[test]
fn component_lives_as_long_as_annotation() {
    let mut configs = BTreeMap::new();
    assert_eq!(settle(&[source(Some(&digested('1')))], &mut configs), ["create"]);
    assert_eq!(image_of(&configs), Some(digested('1').as_str()));
    assert!(settle(&[source(Some(&digested('1')))], &mut configs).is_empty(), "twice is once");
    assert_eq!(settle(&[source(Some(&digested('2')))], &mut configs), ["update"]);
    assert_eq!(image_of(&configs), Some(digested('2').as_str()));
    assert_eq!(settle(&[source(None)], &mut configs), ["delete"]);
    settle(&[source(Some(&digested('1')))], &mut configs);
    assert_eq!(settle(&[], &mut configs), ["delete"]);
}

/// SEED-008: upstream removes the annotation and freezes the component. Without its `MachineOSConfig` nothing proves whose it is: it stays.
/// One whose annotation came back is ruled by it from then on, as is one of the bootstrap.
#[test]
fn component_of_upstream_stays_until_annotation_rules_it() {
    let theirs = component("worker", &digested('1'));
    let mut configs = BTreeMap::from([(theirs.metadata.name.clone().unwrap(), theirs)]);
    assert!(settle(&[source(None)], &mut configs).is_empty());
    assert!(settle(&[], &mut configs).is_empty());
    assert_eq!(unruled(&[], &configs).count(), 1);
    assert_eq!(unruled(&[source(None)], &configs).count(), 0);
    assert_eq!(settle(&[source(Some(&digested('1')))], &mut configs), ["update"]);
    assert!(settle(&[source(Some(&digested('1')))], &mut configs).is_empty(), "twice is once");
    assert_eq!(unruled(&[], &configs).count(), 0);
    assert_eq!(settle(&[], &mut configs), ["delete"]);
}

/// A person's that is no component of upstream is nobody's concern.
#[test]
fn component_with_more_than_image_is_not_told() {
    let change = |change: &dyn Fn(&mut MachineConfig)| {
        let mut own = component("infra", &digested('1'));
        change(&mut own);
        let configs = BTreeMap::from([(own.metadata.name.clone().unwrap(), own)]);
        assert_eq!(actions(&[], &configs).0, []);
        unruled(&[], &configs).count()
    };
    assert_eq!(change(&|_| ()), 1, "as upstream makes it");
    assert_eq!(change(&|own| own.spec.config = Some(json!({ "ignition": { "version": "3.5.0" } }))), 1);
    assert_eq!(change(&|own| own.spec.kernel_arguments = Some(vec!["debug".to_owned()])), 0);
    assert_eq!(change(&|own| own.spec.config = Some(json!({ "storage": {} }))), 0);
    assert_eq!(change(&|own| own.spec.os_image_url = Some(digested('2'))), 0);
}

/// A person copied the component of `worker` for `infra`: neither the end of the one's `MachineOSConfig` nor that of any other takes it, and
/// it is rendered.
#[test]
fn copy_of_person_is_kept_and_rendered() {
    let mut made = BTreeMap::new();
    settle(&[source(Some(&digested('1')))], &mut made);
    let mut copy = made.values().next().unwrap().clone();
    copy.metadata.name = Some("10-prebuiltimage-osimageurl-infra".to_owned());
    let copied = BTreeMap::from([(copy.metadata.name.clone().unwrap(), copy.clone())]);
    let of_infra =
        |image: Option<&str>| Source { name: "infra".to_owned(), pool: "infra".to_owned(), ..source(image) };
    for sources in [vec![], vec![source(None)], vec![source(Some(&digested('1')))], vec![of_infra(None)]] {
        let deleted = |action: &Action| matches!(action, Action::Delete(_));
        assert!(!actions(&sources, &copied).0.iter().any(deleted), "{sources:?}");
        let rendered = with_components("infra", &sources, &copied).unwrap();
        assert_eq!(rendered.len(), 1, "{sources:?}");
    }
    let error = actions(&[of_infra(Some(&digested('2')))], &copied).1[0].to_string();
    assert!(error.contains("rename it"), "{error}");
    // Of a time without the pool in it: its maker rules another pool.
    copy.metadata.annotations.as_mut().unwrap().remove(MADE_FOR);
    let copied = BTreeMap::from([(copy.metadata.name.clone().unwrap(), copy)]);
    assert!(!actions(&[source(None)], &copied).0.iter().any(|one| matches!(one, Action::Delete(_))));
    // The name of the maker alone is anybody's to write; with its UID it is proof, also once it is gone.
    let other = Source { name: "other".to_owned(), uid: "v".to_owned(), ..source(None) };
    assert_eq!(actions(std::slice::from_ref(&other), &made).0.len(), 1);
    for config in made.values_mut() {
        config.metadata.annotations.as_mut().unwrap().remove(MADE_FOR);
    }
    assert_eq!(actions(&[other], &made).0, []);
}

#[test]
fn config_of_person_is_unchanged() {
    let mut own = component("worker", &digested('1'));
    own.metadata.annotations = None;
    let mut configs = BTreeMap::from([(own.metadata.name.clone().unwrap(), own)]);
    assert!(settle(&[], &mut configs).is_empty());
    assert!(settle(&[source(None)], &mut configs).is_empty());
    let error = actions(&[source(Some(&digested('1')))], &configs).1[0].to_string();
    assert!(
        error.contains("MachineConfig 10-prebuiltimage-osimageurl-worker") && error.contains("rename"),
        "{error}"
    );
}

#[test]
fn invalid_image_changes_nothing() {
    let mut configs = BTreeMap::new();
    settle(&[source(Some(&digested('1')))], &mut configs);
    for bad in ["registry.test/os:1", "oci:/var/os@sha256:1", "registry.test/os@sha512:1"] {
        let sources = [source(Some(bad))];
        let (actions, errors) = actions(&sources, &configs);
        assert_eq!(actions, []);
        let error = errors[0].to_string();
        assert!(
            error.contains("MachineOSConfig worker: metadata.annotations") && error.contains("skopeo"),
            "{error}"
        );
        assert_eq!(with_components("worker", &sources, &configs).unwrap_err().to_string(), error);
        // Another pool's mistake is not this one's.
        assert!(with_components("infra", &sources, &configs).is_ok());
    }
}

/// Either mark counts, whichever program wrote it.
#[test]
fn either_mark_counts_as_seeded() {
    #[expect(clippy::needless_pass_by_value, reason = "as json! makes it")]
    fn config(annotations: Value, conditions: Value) -> MachineOSConfig {
        serde_json::from_value(json!({
            "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineOSConfig",
            "metadata": { "name": "worker", "annotations": annotations },
            "spec": { "machineConfigPool": { "name": "worker" }, "imageBuilder": { "imageBuilderType": "Job" },
                "renderedImagePushSecret": { "name": "push" }, "renderedImagePushSpec": "registry.test/os:1" },
            "status": { "conditions": conditions },
        }))
        .unwrap()
    }
    assert!(!is_seeded(&config(json!({}), json!([]))));
    assert!(is_seeded(&config(json!({ CURRENT_BUILD: "worker-1" }), json!([]))));
    assert!(is_seeded(&config(json!({}), json!([{ "type": "Seeded", "status": "True" }]))));
    assert!(!is_seeded(&config(
        json!({ CURRENT_BUILD: "" }),
        json!([{ "type": "Seeded", "status": "False" }])
    )));
}

#[test]
fn pool_without_component_in_selection_is_refused() {
    let sources = [source(Some(&digested('1')))];
    let name = format!("{COMPONENT_PREFIX}worker");
    assert!(selected("worker", &sources, &["00-base".to_owned(), name]).is_ok());
    let error = selected("worker", &sources, &["00-base".to_owned()]).unwrap_err().to_string();
    assert!(
        error.contains("does not select MachineConfig 10-prebuilt") && error.contains("role=worker"),
        "{error}"
    );
    assert!(selected("infra", &sources, &[]).is_ok() && selected("worker", &[source(None)], &[]).is_ok());
}
