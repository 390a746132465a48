//! Results, refusals and files of a bootstrap.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use serde_json::{Value, json};

use super::*;
use crate::api::{MachineOSConfig, PRE_BUILT_IMAGE, ROLE};
use crate::render::render;
use crate::seed::COMPONENT_PREFIX;

const GROUP: &str = "machineconfiguration.openshift.io/v1";

fn image(digit: char) -> String {
    format!("registry.test/os@sha256:{}", digit.to_string().repeat(64))
}

fn pool(name: &str) -> MachineConfigPool {
    let roles = ["worker", name];
    serde_json::from_value(json!({ "apiVersion": GROUP, "kind": "MachineConfigPool", "metadata": { "name": name },
        "spec": { "machineConfigSelector": { "matchExpressions": [{ "key": ROLE, "operator": "In", "values": roles }] } } }))
    .unwrap()
}

#[expect(clippy::needless_pass_by_value, reason = "as json! makes it")]
fn config(name: &str, spec: Value) -> MachineConfig {
    serde_json::from_value(json!({ "apiVersion": GROUP, "kind": "MachineConfig",
        "metadata": { "name": name, "labels": { ROLE: "worker" } }, "spec": spec }))
    .unwrap()
}

fn os_config(name: &str, pool: &str, image: Option<&str>) -> MachineOSConfig {
    let annotations: BTreeMap<&str, &str> = image.iter().map(|image| (PRE_BUILT_IMAGE, *image)).collect();
    serde_json::from_value(json!({ "apiVersion": GROUP, "kind": "MachineOSConfig",
        "metadata": { "name": name, "annotations": annotations },
        "spec": { "machineConfigPool": { "name": pool }, "imageBuilder": { "imageBuilderType": "Job" },
            "renderedImagePushSecret": { "name": "push" }, "renderedImagePushSpec": "registry.test/os:1" } }))
    .unwrap()
}

fn manifests(pools: &[&str], os_configs: Vec<MachineOSConfig>) -> Manifests {
    let file = json!({ "ignition": { "version": "3.2.0" },
        "storage": { "files": [{ "path": "/etc/a", "contents": { "source": "data:,a" } }] } });
    let base = config("00-base", json!({ "config": file, "osImageURL": image('0') }));
    Manifests {
        configs: BTreeMap::from([("00-base".to_owned(), base)]),
        pools: pools.iter().map(|name| ((*name).to_owned(), pool(name))).collect(),
        os_configs: os_configs.into_iter().map(|one| (one.metadata.name.clone().unwrap(), one)).collect(),
        ..Manifests::default()
    }
}

fn errors(manifests: &Manifests) -> Vec<String> {
    bootstrap(manifests, &Release::default()).unwrap_err().iter().map(ToString::to_string).collect()
}

/// SEED-001, SEED-002: all that is wrong at once, each with object, field and next step.
#[test]
fn all_errors_come_together() {
    let sha512 = format!("registry.test/os@sha512:{}", "a".repeat(128));
    let found = errors(&manifests(
        &["worker", "infra", "a", "b", "c", "d", "e"],
        vec![
            os_config("a", "a", None),
            os_config("b", "b", Some("registry.test/os:latest")),
            os_config("c", "c", Some(&sha512)),
            os_config("d", "d", Some("not a reference@sha256:1")),
            os_config("e", "nowhere", Some(&image('1'))),
            os_config("infra", "infra", Some(&image('1'))),
            os_config("infra2", "infra", Some(&image('1'))),
            os_config("x", "worker", Some(&image('1'))),
        ],
    ));
    let field = "metadata.annotations[machineconfiguration.openshift.io/pre-built-image]";
    let rows = [
        [
            "MachineOSConfig a: ",
            field,
            "is missing: name an image by digest there, build one with bootstrap --build, or have the cluster build it later with --leave-to-cluster a",
        ],
        ["MachineOSConfig b: ", field, "registry.test/os:latest"],
        ["MachineOSConfig c: ", field, "its digest is not sha256"],
        ["MachineOSConfig d: ", field, "write REGISTRY/NAME@sha256:"],
        [
            "MachineOSConfig e: ",
            "spec.machineConfigPool.name",
            "there is no MachineConfigPool nowhere; add it",
        ],
        ["MachineOSConfig infra2: ", "spec.machineConfigPool.name", "remove one of them"],
        ["MachineOSConfig x: ", "metadata.name", "name it worker"],
    ];
    assert_eq!(found.len(), rows.len(), "{found:#?}");
    for (error, parts) in found.iter().zip(rows) {
        assert!(parts.iter().all(|part| error.contains(part)), "{parts:?}: {error}");
    }
    // With the pools that can't be rendered.
    let mut broken = manifests(&["worker"], vec![os_config("worker", "worker", None)]);
    broken.configs.insert("50-bad".to_owned(), config("50-bad", json!({ "kernelType": "fast" })));
    broken.pools.insert("empty".to_owned(), MachineConfigPool::default());
    let found = errors(&broken);
    assert!(found.len() == 3 && found[1].contains("machineConfigSelector is empty"), "{found:#?}");
    assert!(found[2].contains("spec.kernelType \"fast\""), "{found:#?}");
    assert!(errors(&manifests(&[], Vec::new()))[0].contains("no MachineConfigPool; add one"));
}

/// SEED-003: the name, the label and the annotation; SEED-004: a person's later name wins.
#[test]
fn image_of_pool_becomes_its_config() {
    let mut input = manifests(&["worker", "infra"], vec![os_config("infra", "infra", Some(&image('1')))]);
    let (components, refused) = component_configs(&input);
    assert_eq!(refused, []);
    let expected = json!({ "apiVersion": GROUP, "kind": "MachineConfig",
        "metadata": { "name": "10-prebuiltimage-osimageurl-infra", "labels": { ROLE: "infra" },
            "annotations": { PRE_BUILT_IMAGE: image('1') } }, "spec": { "osImageURL": image('1') } });
    assert_eq!(components.iter().map(|one| json!(one)).collect::<Vec<_>>(), [expected]);
    let os_image = |input: &Manifests, pool: &str| {
        let output = bootstrap(input, &Release::default()).unwrap();
        let name = output.pools[pool].spec.configuration.clone().unwrap().name.unwrap();
        output.configs[&name].spec.os_image_url.clone().unwrap()
    };
    assert_eq!((os_image(&input, "infra"), os_image(&input, "worker")), (image('1'), image('0')));
    let mut later = config("50-own", json!({ "osImageURL": image('2') }));
    later.metadata.labels.as_mut().unwrap().insert(ROLE.to_owned(), "infra".to_owned());
    input.configs.insert("50-own".to_owned(), later);
    assert_eq!(os_image(&input, "infra"), image('2'));
    // One that a cluster took over needs no image any more.
    let mut seeded = os_config("infra", "infra", None);
    let status = json!({ "conditions": [{ "type": "Seeded", "status": "True" }] });
    seeded.status = serde_json::from_value(status).unwrap();
    bootstrap(&manifests(&["infra"], vec![seeded]), &Release::default()).unwrap();
}

#[test]
fn image_without_selected_component_is_refused() {
    let mut input = manifests(&["infra"], vec![os_config("infra", "infra", Some(&image('1')))]);
    let selector = json!({ "matchLabels": { ROLE: "worker" } });
    input.pools.get_mut("infra").unwrap().spec.machine_config_selector =
        serde_json::from_value(selector).unwrap();
    let found = errors(&input);
    assert!(
        found.len() == 1 && found[0].contains("does not select MachineConfig 10-prebuiltimage"),
        "{found:#?}"
    );
    // A config of that name with another image.
    let name = format!("{COMPONENT_PREFIX}infra");
    let mut input = manifests(&["infra"], vec![os_config("infra", "infra", Some(&image('1')))]);
    input.configs.insert(name.clone(), config(&name, json!({ "osImageURL": image('2') })));
    let found = errors(&input);
    assert!(found[0].contains("spec.osImageURL is not the image of MachineOSConfig infra"), "{found:#?}");
    input.configs.insert(name.clone(), config(&name, json!({ "osImageURL": image('1') })));
    bootstrap(&input, &Release::default()).unwrap();
}

/// A missing image is generated where requested, built from the pool without it, and recorded as built before.
#[test]
fn missing_image_is_built_and_then_seeded() {
    let mut input = manifests(&["worker", "infra"], vec![os_config("infra", "infra", None)]);
    assert_eq!(generate(&mut input, "registry.test/os", "push"), ["worker"]);
    assert!(generate(&mut input, "registry.test/os", "push").is_empty(), "twice is once");
    let found = unbuilt(&input, &Release::default()).unwrap();
    assert_eq!(found.iter().map(|one| one.os_config.as_str()).collect::<Vec<_>>(), ["infra", "worker"]);
    for one in &found {
        assert_eq!(one.base, image('0'));
        let name = one.rendered.metadata.name.clone().unwrap();
        assert_eq!(one.push, format!("registry.test/os:{name}"));
        set_image(&mut input, &one.os_config, &image('7'));
    }
    assert!(unbuilt(&input, &Release::default()).unwrap().is_empty());
    let output = bootstrap(&input, &Release::default()).unwrap();
    assert!(output.configs.values().all(|config| config.spec.os_image_url == Some(image('7'))));
    let mut baseless = manifests(&["infra"], vec![os_config("infra", "infra", None)]);
    baseless.configs.get_mut("00-base").unwrap().spec.os_image_url = None;
    let errors = unbuilt(&baseless, &Release::default()).unwrap_err();
    assert!(
        errors[0].to_string().contains("pool infra: no MachineConfig of it has an osImageURL"),
        "{errors:?}"
    );
}

/// BOOT-015: the cluster renders the same name from the objects that the API server has of these manifests.
#[test]
fn cluster_renders_same_name() {
    let input = manifests(&["worker", "infra"], vec![os_config("infra", "infra", Some(&image('1')))]);
    let output = bootstrap(&input, &Release::default()).unwrap();
    let (components, _) = component_configs(&input);
    let mut stored: Vec<MachineConfig> = input
        .configs
        .values()
        .chain(&components)
        .enumerate()
        .map(|(at, config)| {
            let mut object = json!(config);
            object["metadata"]["uid"] = json!(format!("uid-{at}"));
            object["metadata"]["resourceVersion"] = json!(at.to_string());
            object["metadata"]["creationTimestamp"] = json!("2026-01-01T00:00:00Z");
            object["metadata"]["managedFields"] = json!([{ "manager": "kubectl", "operation": "Update" }]);
            serde_json::from_value(object).unwrap()
        })
        .collect();
    // Configs that the bootstrap rendered are stored, too, and are no sources.
    stored.extend(output.configs.values().cloned());
    stored.reverse();
    for (name, pool) in &input.pools {
        let rendered = render(pool, &stored, &Release::default()).unwrap();
        let named = output.pools[name].spec.configuration.clone().unwrap();
        assert_eq!(named.name.as_deref(), Some(rendered.name()));
        assert_eq!(json!(output.configs[rendered.name()]), json!(rendered.object));
        let sources: Vec<String> = named.source.unwrap().into_iter().filter_map(|one| one.name).collect();
        assert_eq!(sources, rendered.sources);
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "a test: it looks at what was written, and leaves what others left"
)]
mod disk {
    use std::fs;

    use super::*;

    fn made(image_digit: char) -> Output {
        let os_configs = vec![os_config("infra", "infra", Some(&image(image_digit)))];
        bootstrap(&manifests(&["worker", "infra"], os_configs), &Release::default()).unwrap()
    }

    /// Returns the files with their modes.
    fn files(directory: &Path) -> Vec<(String, u32)> {
        let mut found = Vec::new();
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let mode = fs::metadata(&path).unwrap().permissions().mode() & 0o777;
            if path.is_dir() {
                assert_eq!(mode, 0o700);
                found.extend(files(&path));
            } else {
                found.push((path.file_name().unwrap().to_str().unwrap().to_owned(), mode));
            }
        }
        found.sort();
        found
    }

    fn expected(output: &Output) -> Vec<(String, u32)> {
        let names = output.pools.keys().chain(output.configs.keys());
        let mut files: Vec<_> = names.map(|name| (format!("{name}.yaml"), 0o600)).collect();
        files.sort();
        files
    }

    /// BOOT-015: the images of the `ControllerConfig` are the cluster's release, and `--os-image` names another one. The object is
    /// handed on with all its fields.
    #[test]
    fn controller_config_gives_release_and_is_kept() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("cluster.yaml");
        let controller_config = json!({ "apiVersion": GROUP, "kind": "ControllerConfig",
            "metadata": { "name": "machine-config-controller" },
            "spec": { "baseOSContainerImage": image('5'), "osImageURL": image('4'), "dns": { "not read": [1] },
                "baseOSExtensionsContainerImage": image('6'), "internalRegistryPullSecret": "Z2VoZWlt" } });
        fs::write(&path, controller_config.to_string()).unwrap();
        let mut input = manifests(&["worker"], Vec::new());
        input.configs.get_mut("00-base").unwrap().spec.os_image_url = None;
        input.replace_by_file(&path, crate::manifests::UnknownFields::Refused).unwrap();
        assert!(!format!("{input:?}").contains("Z2VoZWlt"), "secrets are not shown");
        let images = |os_image| {
            let output = bootstrap(&input, &input.release(os_image)).unwrap();
            let spec = output.configs.values().next().unwrap().spec.clone();
            (spec.os_image_url.unwrap(), spec.extensions_image.unwrap())
        };
        assert_eq!(images(None), (image('5'), image('6')));
        assert_eq!(images(Some(image('7').as_str())), (image('7'), image('6')));
        let release = Release { os_image: Some(image('5')), extensions_image: Some(image('6')) };
        let configs: Vec<MachineConfig> = input.configs.values().cloned().collect();
        let rendered = render(&input.pools["worker"], &configs, &release).unwrap();
        let output = bootstrap(&input, &input.release(None)).unwrap();
        assert_eq!(output.configs.keys().collect::<Vec<_>>(), [rendered.name()]);
        let directory = place.path().join("out");
        write(&output, &directory).unwrap();
        let written =
            Manifests::read(&directory.join("controller-config")).unwrap().controller_config.unwrap();
        assert_eq!(written.0, controller_config);
        // Another run replaces it with the directory.
        write(&made('1'), &directory).unwrap();
        assert!(!directory.join("controller-config").exists());
    }

    #[test]
    fn controller_config_of_other_name_is_refused() {
        let place = tempfile::tempdir().unwrap();
        let object = |name: &str| json!({ "apiVersion": GROUP, "kind": "ControllerConfig", "metadata": { "name": name }, "spec": {} });
        fs::write(place.path().join("a.yaml"), object("cluster").to_string()).unwrap();
        let refused = Manifests::read(place.path()).unwrap_err().to_string();
        assert!(
            refused.ends_with("ControllerConfig cluster is not read; name it machine-config-controller"),
            "{refused}"
        );
        for file in ["a.yaml", "b.yaml"] {
            fs::write(place.path().join(file), object("machine-config-controller").to_string()).unwrap();
        }
        let refused = Manifests::read(place.path()).unwrap_err().to_string();
        assert!(refused.contains("ControllerConfig machine-config-controller exists already"), "{refused}");
    }

    #[test]
    fn directory_appears_and_is_replaced_as_whole() {
        let place = tempfile::tempdir().unwrap();
        let directory = place.path().join("out");
        let (first, second) = (made('1'), made('2'));
        assert_ne!(expected(&first), expected(&second));
        // A run that was killed has left this.
        fs::create_dir_all(place.path().join(".out.new/machine-pools")).unwrap();
        fs::write(place.path().join(".out.new/machine-pools/half"), "x").unwrap();
        for output in [&first, &first, &second] {
            write(output, &directory).unwrap();
            assert_eq!(files(&directory), expected(output));
            assert_eq!(fs::read_dir(place.path()).unwrap().count(), 1, "nothing beside it");
        }
        // By a link, and into an empty directory.
        std::os::unix::fs::symlink(&directory, place.path().join("link")).unwrap();
        write(&first, &place.path().join("link")).unwrap();
        assert_eq!(files(&directory), expected(&first));
        assert!(place.path().join("link").is_symlink());
        let empty = place.path().join("empty");
        fs::create_dir(&empty).unwrap();
        write(&first, &empty).unwrap();
        assert_eq!(files(&empty), expected(&first));
        let text = fs::read_to_string(directory.join("machine-pools/infra.yaml")).unwrap();
        assert!(text.contains("kind: MachineConfigPool") && text.contains("name: rendered-infra-"), "{text}");
    }

    #[test]
    fn foreign_directory_is_unchanged() {
        let place = tempfile::tempdir().unwrap();
        fs::write(place.path().join("notes"), "mine").unwrap();
        let error = write(&made('1'), place.path()).unwrap_err().to_string();
        assert!(
            error.contains("notes was not written by bootstrap") && error.contains("--output"),
            "{error}"
        );
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 1);
        let error = write(&made('1'), &place.path().join("notes")).unwrap_err().to_string();
        assert!(error.contains("notes: ") && error.contains("nothing is changed"), "{error}");
        let error = write(&made('1'), &place.path().join("none/out")).unwrap_err().to_string();
        assert!(error.contains("can't create") && error.contains("nothing is changed"), "{error}");
        assert!(write(&made('1'), Path::new("/")).is_err());
    }
}
