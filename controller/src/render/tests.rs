//! Rendering: the selected configs, their order, the results, and the refusals.

use serde_json::{Value, json};

use super::*;
use crate::cost::reconcilable;
use crate::model::policy::DisruptionPolicy;

#[expect(clippy::needless_pass_by_value, reason = "as json! makes it")]
fn config(name: &str, role: &str, spec: Value) -> MachineConfig {
    let object = json!({ "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig",
        "metadata": { "name": name, "labels": { ROLE: role } }, "spec": spec });
    serde_json::from_value(object).unwrap()
}

fn generated(mut config: MachineConfig) -> MachineConfig {
    config.metadata.annotations.get_or_insert_default().insert(GENERATED_BY.to_owned(), "1".to_owned());
    config
}

fn pool(name: &str, roles: &[&str]) -> MachineConfigPool {
    let object = json!({ "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfigPool",
        "metadata": { "name": name }, "spec": { "machineConfigSelector": {
            "matchExpressions": [{ "key": ROLE, "operator": "In", "values": roles }] } } });
    serde_json::from_value(object).unwrap()
}

fn file(path: &str, text: &str) -> Value {
    json!({ "config": { "ignition": { "version": "3.2.0" },
        "storage": { "files": [{ "path": path, "contents": { "source": format!("data:,{text}") } }] } } })
}

fn source(rendered: &Rendered, path: &str) -> Option<String> {
    let files = rendered.object.spec.config.as_ref()?.pointer("/storage/files")?.as_array()?;
    let file = files.iter().find(|file| file["path"] == path)?;
    file.pointer("/contents/source")?.as_str().map(str::to_owned)
}

fn image(digit: char) -> String {
    format!("quay.io/a/os@sha256:{}", digit.to_string().repeat(64))
}

#[test]
fn later_name_wins_and_custom_pools_win_over_workers() {
    let configs = [
        config("50-infra", "infra", file("/etc/a", "infra")),
        config("99-worker", "worker", file("/etc/a", "worker")),
        config("00-worker", "worker", file("/etc/b", "first")),
        config("01-worker", "worker", file("/etc/b", "second")),
        config("99-master", "master", file("/etc/c", "master")),
    ];
    let infra = render(&pool("infra", &["worker", "infra"]), &configs, &Release::default()).unwrap();
    assert_eq!(infra.sources, ["00-worker", "01-worker", "99-worker", "50-infra"]);
    assert_eq!(source(&infra, "/etc/a").as_deref(), Some("data:,infra"));
    assert_eq!(source(&infra, "/etc/b").as_deref(), Some("data:,second"));
    assert_eq!(source(&infra, "/etc/c"), None);
    let worker = render(&pool("worker", &["worker"]), &configs, &Release::default()).unwrap();
    assert_eq!(source(&worker, "/etc/a").as_deref(), Some("data:,worker"));
}

/// BOOT-015: the same objects give the same name, in whatever order and form they come.
#[test]
fn name_depends_on_content_alone() {
    let configs = [
        config("00-a", "worker", file("/etc/a", "1")),
        config("01-b", "worker", json!({ "kernelArguments": ["quiet"], "kernelType": "" })),
    ];
    let name = |configs: &[MachineConfig], pool_name| {
        render(&pool(pool_name, &["worker"]), configs, &Release::default()).unwrap().name().to_owned()
    };
    let first = name(&configs, "worker");
    let hash = first.strip_prefix("rendered-worker-").unwrap();
    assert!(hash.len() == 32 && hash.bytes().all(|b| b.is_ascii_hexdigit()), "{first}");
    let [a, b] = configs.clone();
    assert_eq!(name(&[b.clone(), a.clone()], "worker"), first);
    // Empty and absent are the same; the order of the file's fields does not matter.
    let text = r#"{"storage":{"files":[{"contents":{"source":"data:,1"},"path":"/etc/a"}],"links":[]},
        "ignition":{"version":"3.5.0"},"passwd":{}}"#;
    let same = config("00-a", "worker", json!({ "config": serde_json::from_str::<Value>(text).unwrap() }));
    assert_eq!(name(&[same, b.clone()], "worker"), first);
    assert_ne!(name(&[a], "worker"), first);
    assert_eq!(name(&configs, "other"), first.replace("worker", "other"));
}

#[test]
fn arguments_follow_one_another_and_last_image_of_person_wins() {
    let configs = [
        generated(config(
            "00-worker",
            "worker",
            json!({ "osImageURL": image('0'), "kernelArguments": ["a"] }),
        )),
        config(
            "10-worker",
            "worker",
            json!({ "osImageURL": image('1'), "fips": true, "kernelType": "realtime" }),
        ),
        config(
            "20-worker",
            "worker",
            json!({ "osImageURL": "", "kernelArguments": ["b", "a"], "extensions": ["usbguard"] }),
        ),
        generated(config(
            "97-worker",
            "worker",
            json!({ "osImageURL": image('2'), "kernelType": "default" }),
        )),
    ];
    let release = Release { os_image: Some(image('0')), extensions_image: Some(image('9')) };
    let rendered = render(&pool("worker", &["worker"]), &configs, &release).unwrap();
    let spec = &rendered.object.spec;
    assert_eq!(spec.os_image_url, Some(image('1')));
    assert_eq!(spec.kernel_arguments.as_deref(), Some(&["a".to_owned(), "b".to_owned(), "a".to_owned()][..]));
    assert_eq!((spec.fips, spec.kernel_type.as_deref()), (Some(true), Some("realtime")));
    assert_eq!(spec.extensions_image, Some(image('9')));
    let annotations = rendered.object.metadata.annotations.clone().unwrap();
    assert_eq!(annotations.get(IMAGE_OVERRIDDEN).map(String::as_str), Some("true"));
    let own = render(&pool("worker", &["worker"]), &configs[..1], &release).unwrap();
    assert_eq!(own.object.spec.os_image_url, Some(image('0')));
    assert!(!own.object.metadata.annotations.unwrap().contains_key(IMAGE_OVERRIDDEN));
}

#[test]
fn agent_reads_rendered_config() {
    let configs = [
        config("00-a", "worker", file("/etc/a", "1")),
        config(
            "01-b",
            "worker",
            json!({ "config": { "ignition": { "version": "3.4.0" }, "systemd": { "units": [
            { "name": "a.service", "enabled": true, "contents": "[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n" }] } } }),
        ),
    ];
    let rendered = render(&pool("worker", &["worker"]), &configs, &Release::default()).unwrap();
    let spec = rendered.host_spec().unwrap();
    assert_eq!((spec.files.len(), spec.units.len()), (1, 1));
    assert_eq!(spec.name.to_string(), rendered.name());
    let file = &rendered.object.spec.config.as_ref().unwrap()["storage"]["files"][0];
    assert_eq!(file["overwrite"], json!(true), "Ignition would keep the image's own file");
}

#[test]
fn refusals_name_object_cause_and_next_step() {
    let one = |spec| vec![config("00-a", "worker", file("/etc/a", "1")), config("50-bad", "worker", spec)];
    let ignition = |version: &str| json!({ "config": { "ignition": { "version": version } } });
    let rows = [
        (pool("infra", &["infra"]), one(json!({})), ["pool infra", "selects no MachineConfig", "label one"]),
        (
            MachineConfigPool::default(),
            one(json!({})),
            ["pool ", "machineConfigSelector is empty", "name the labels"],
        ),
        (
            pool("worker", &["worker"]),
            one(ignition("2.2.0")),
            ["MachineConfig 50-bad", "\"2.2.0\"", "convert it"],
        ),
        (
            pool("worker", &["worker"]),
            one(ignition("3.7.0")),
            ["MachineConfig 50-bad", "\"3.7.0\"", "write one of 3.0.0 to 3.6.0"],
        ),
        (
            pool("worker", &["worker"]),
            one(
                json!({ "config": { "ignition": { "version": "3.6.0" }, "storage": { "luks": [{ "name": "d", "device": "/dev/vda",
                "clevis": { "custom": { "pin": "own", "config": "{}" } } }] } } }),
            ),
            ["50-bad", "clevis", "before Ignition 3.6"],
        ),
        (
            pool("worker", &["worker"]),
            one(json!({ "config": { "storage": {} } })),
            ["50-bad", "version is missing", "write 3.5.0"],
        ),
        (
            pool("worker", &["worker"]),
            one(json!({ "config": "x" })),
            ["50-bad", "spec.config: it is not an object", "write an Ignition config"],
        ),
        (
            pool("worker", &["worker"]),
            one(json!({ "osImageURL": "quay.io/a/os:latest" })),
            [
                "50-bad",
                "\"quay.io/a/os:latest\" is refused: it is not named by digest",
                "give it as NAME@sha256:",
            ],
        ),
        (
            pool("worker", &["worker"]),
            one(json!({ "extensions": ["Bad Name"] })),
            ["50-bad", "spec.extensions", "correct it"],
        ),
    ];
    for (pool, configs, parts) in rows {
        let error = render(&pool, &configs, &Release::default()).unwrap_err().to_string();
        assert!(parts.iter().all(|part| error.contains(part)), "{parts:?}: {error}");
    }
}

/// As by the Machine Config Operator: also where another MachineConfig of the pool would hide it.
#[test]
fn part_that_a_machine_could_not_read_is_refused_by_name() {
    let ignition = |more: Value| {
        let mut config = json!({ "ignition": { "version": "3.2.0" } });
        config.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({ "config": config })
    };
    let merge =
        json!({ "ignition": { "version": "3.2.0", "config": { "merge": [{ "source": "http://a.test" }] } } });
    for (bad, words) in [
        (json!({ "kernelType": "fast" }), ["spec.kernelType \"fast\"", "correct it"]),
        (json!({ "extensions": ["cowsay"] }), ["spec.extensions \"cowsay\"", "there are ipsec"]),
        (ignition(merge), ["ignition.config.merge", "merge them into one"]),
        (
            ignition(json!({ "storage": { "raid": [{ "name": "md0" }] } })),
            ["storage.raid \"md0\" level", "raid1"],
        ),
        (
            ignition(json!({ "storage": { "files": [{ "path": "/etc/a", "mode": 4096 }] } })),
            ["storage.files \"/etc/a\" mode", "07777"],
        ),
    ] {
        let good = json!({ "kernelType": "realtime", "config": { "ignition": { "version": "3.5.0" },
            "storage": { "files": [{ "path": "/etc/a", "mode": 384 }] } } });
        let configs = [config("50-bad", "worker", bad), config("99-good", "worker", good)];
        let error =
            render(&pool("worker", &["worker"]), &configs, &Release::default()).unwrap_err().to_string();
        assert!(
            error.contains("MachineConfig 50-bad") && words.iter().all(|word| error.contains(word)),
            "{error}"
        );
    }
    let configs = [
        config("50-a", "worker", json!({ "extensions": ["kernel-devel"] })),
        config("60-b", "worker", json!({ "kernelType": "realtime" })),
    ];
    let error = render(&pool("worker", &["worker"]), &configs, &Release::default()).unwrap_err().to_string();
    assert!(error.contains("\"kernel-devel\"") && error.contains("spec.kernelType is realtime"), "{error}");
}

#[test]
fn stale_digest_is_dropped_and_named() {
    let mut stale = file("/etc/a", "new");
    stale["config"]["storage"]["files"][0]["contents"]["verification"] =
        json!({ "hash": format!("sha256-{}", "0".repeat(64)) });
    let rendered =
        render(&pool("worker", &["worker"]), &[config("50-a", "worker", stale)], &Release::default())
            .unwrap();
    let clean = render(
        &pool("worker", &["worker"]),
        &[config("50-a", "worker", file("/etc/a", "new"))],
        &Release::default(),
    )
    .unwrap();
    assert_eq!(rendered.object, clean.object);
    let fields: Vec<&str> = rendered.remarks.iter().map(|remark| remark.field.as_str()).collect();
    assert_eq!(fields, ["storage.files \"/etc/a\" contents.verification.hash"]);
    assert!(clean.remarks.is_empty());
}

/// Ignition overwrites a file of the image only with a source.
#[test]
fn file_without_contents_gets_empty_source() {
    let files = json!([{ "path": "/etc/a" }, { "path": "/etc/b", "overwrite": false }]);
    let spec = json!({ "config": { "ignition": { "version": "3.2.0" }, "storage": { "files": files } } });
    let rendered =
        render(&pool("worker", &["worker"]), &[config("50-a", "worker", spec)], &Release::default()).unwrap();
    let files = &rendered.object.spec.config.as_ref().unwrap()["storage"]["files"];
    assert_eq!(files[0], json!({ "path": "/etc/a", "overwrite": true, "contents": { "source": "data:," } }));
    assert_eq!(files[1], json!({ "path": "/etc/b", "overwrite": false }));
}

/// A config that an earlier controller rendered is a point to go from.
#[test]
fn rendered_config_is_read_without_rules() {
    let object = config(
        "rendered-worker-1",
        "worker",
        json!({ "kernelType": "fast", "config": { "ignition": { "version": "3.5.0" },
        "storage": { "raid": [{ "name": "md0" }] } } }),
    );
    let rendered = Rendered { object, sources: Vec::new(), remarks: Vec::new() };
    assert_eq!(rendered.host_spec().unwrap().fixed.sections.len(), 1);
}

#[test]
fn irreconcilable_change_is_refused_before_rollout() {
    let pool = pool("worker", &["worker"]);
    let rendered = |fips: bool| {
        let configs = [config(
            "00-a",
            "worker",
            json!({ "fips": fips, "config": { "ignition": { "version": "3.5.0" } } }),
        )];
        render(&pool, &configs, &Release::default()).unwrap()
    };
    let policy = DisruptionPolicy::defaults();
    let refused = reconcilable(&rendered(false), &rendered(true), &policy).unwrap_err().to_string();
    assert!(
        refused.contains("is refused, and no node gets it") && refused.to_lowercase().contains("fips"),
        "{refused}"
    );
    reconcilable(&rendered(true), &rendered(true), &policy).unwrap();
    // An owner whom no config makes may be on each host.
    let owned = |name: &str| {
        let file = json!({ "path": "/etc/a", "user": { "name": name } });
        let config_of = json!({ "ignition": { "version": "3.5.0" }, "storage": { "files": [file] } });
        render(&pool, &[config("00-a", "worker", json!({ "config": config_of }))], &Release::default())
            .unwrap()
    };
    reconcilable(&rendered(false), &owned("chrony"), &policy).unwrap();
}

#[test]
fn unused_configs_are_kept_up_to_number() {
    let unused = [("a", 3), ("b", 1), ("c", 2), ("d", 2)];
    assert_eq!(surplus(&unused, 2), ["d", "b"]);
    assert!(surplus(&unused, 9).is_empty());
    assert_eq!(surplus(&unused, 0), ["a", "c", "d", "b"]);
}

#[test]
fn rendered_config_is_no_source() {
    let mut old = config("rendered-worker-1", "worker", file("/etc/old", "1"));
    let owner = json!([{ "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfigPool", "name": "worker", "uid": "1",
        "controller": true }]);
    old.metadata.owner_references = serde_json::from_value(owner).unwrap();
    let configs = [old, config("00-a", "worker", file("/etc/a", "1"))];
    let rendered = render(&pool("worker", &["worker"]), &configs, &Release::default()).unwrap();
    assert_eq!(rendered.sources, ["00-a"]);
}

/// Any tool adds an owner, so that an object goes with its pool.
#[test]
fn config_with_pool_as_owner_is_source() {
    let owner = |controller: Option<bool>| {
        let owner = json!([{ "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfigPool",
            "name": "worker", "uid": "1", "controller": controller }]);
        serde_json::from_value(owner).unwrap()
    };
    for controller in [None, Some(false), Some(true)] {
        let mut own = config("50-mine", "worker", file("/etc/a", "1"));
        own.metadata.owner_references = owner(controller);
        let rendered = render(&pool("worker", &["worker"]), &[own], &Release::default()).unwrap();
        assert_eq!(rendered.sources, ["50-mine"]);
    }
}

/// A name depends on the content alone: the text that it is the digest of has all fields in order, at each level.
#[test]
fn name_is_digest_of_ordered_fields() {
    let contents = json!({ "source": "data:,a", "compression": "" });
    let files = json!([{ "path": "/etc/a", "overwrite": true, "mode": 420, "contents": contents }]);
    let spec = json!({ "osImageURL": image('1'), "kernelType": "default", "kernelArguments": ["b", "a"], "fips": true,
        "extensions": ["usbguard"], "baseOSExtensionsContainerImage": image('2'),
        "config": { "storage": { "files": files }, "ignition": { "version": "3.4.0" } } });
    let configs = [config("00-a", "worker", spec)];
    let rendered = render(&pool("worker", &["worker"]), &configs, &Release::default()).unwrap();
    // A tree keeps the fields of each object in order.
    let tree = serde_json::to_value(&rendered.object.spec).unwrap();
    let digest = Sha256::digest(&serde_json::to_vec(&tree).unwrap()).to_string();
    assert_eq!(rendered.name(), format!("rendered-worker-{}", &digest[..32]));
}

/// etcd takes 1,572,864 bytes of a request, and Go writes `<`, `>` and `&` in six bytes each.
#[test]
fn config_that_etcd_would_refuse_is_refused_with_size_limit_and_largest_parts() {
    let sized = |a: usize, b: usize| {
        let configs = [
            config("50-small", "worker", file("/etc/small", "1")),
            config("51-large", "worker", file("/etc/large", &"x".repeat(a))),
            config("52-ampersands", "worker", file("/etc/ampersands", &"&".repeat(b))),
        ];
        render(&pool("worker", &["worker"]), &configs, &Release::default())
    };
    let fits = sized(1_000_000, 90_000).unwrap();
    let stored = size::stored_size(&fits.object).unwrap();
    assert!(stored > 1_540_000 && stored < 1_541_500, "{stored}");
    let error = sized(1_000_000, 96_000).unwrap_err();
    let RenderError::TooLarge { size, .. } = &error else { panic!("{error}") };
    assert!(*size > 1_572_864 && *size < 1_585_000, "{size}");
    let text = error.to_string();
    for part in [
        "rendered-worker-",
        &size.to_string(),
        "at most 1572864 (1.5 MiB)",
        "51-large (1000",
        "52-ampersands (576",
        "50-small (",
        "compress their files",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(text.find("51-large") < text.find("52-ampersands"), "the largest one is first: {text}");
    // Each part may be stored alone; a merge is what is too large.
    assert!(sized(1_000_000, 0).is_ok() && sized(0, 96_000).is_ok());
}

/// A config that each node of the pool would refuse never becomes a target; the MachineConfig that has the entry is named.
#[test]
fn what_every_node_refuses_is_not_rendered() {
    let users = json!({ "config": { "ignition": { "version": "3.2.0" },
        "passwd": { "users": [{ "name": "operator" }] } } });
    let refusal = |configs: &[MachineConfig]| {
        let refused = render(&pool("worker", &["worker"]), configs, &Release::default()).unwrap_err();
        assert!(matches!(refused, RenderError::Irreconcilable { .. }), "{refused}");
        refused.to_string()
    };
    let good = || config("00-a", "worker", file("/etc/a", "1"));
    for path in ["/etc/machine-config-daemon/currentconfig", "/run/machine-config-daemon-force"] {
        let text = refusal(&[good(), config("50-own", "worker", file(path, ""))]);
        assert!(text.contains("MachineConfig 50-own is refused") && text.contains(path), "{text}");
        assert!(text.contains("remove the entry"), "{text}");
    }
    let with = |section: &str, value: Value| json!({ "config": { "ignition": { "version": "3.2.0" }, section: value } });
    let user = |more: Value| {
        let mut user = json!({ "name": "app", "homeDir": "/var/lib/machine-config-agent/app" });
        user.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        with("passwd", json!({ "users": [user] }))
    };
    let unit = |name: &str, install: &str| {
        let contents = format!("[Service]\nExecStart=/bin/true\n[Install]\n{install}");
        with("systemd", json!({ "units": [{ "name": name, "enabled": true, "contents": contents }] }))
    };
    let wanted = "WantedBy=multi-user.target\n";
    for (spec, field) in [
        (user(json!({})), "passwd.users \"app\" homeDir"),
        (user(json!({ "noCreateHome": true, "sshAuthorizedKeys": ["ssh-ed25519 AAAA"] })), "homeDir"),
        (unit("x@.service", wanted), "systemd.units \"x@.service\""),
    ] {
        let text = refusal(&[good(), config("50-own", "worker", spec)]);
        assert!(text.contains("MachineConfig 50-own is refused") && text.contains(field), "{text}");
    }
    for spec in [
        user(json!({ "noCreateHome": true })),
        unit("x@a.service", wanted),
        unit("x@.service", &format!("{wanted}DefaultInstance=a\n")),
        unit("x@.service", "WantedBy=y@.service\n"),
        unit("x@.service", "# WantedBy=multi-user.target\n"),
    ] {
        let configs = [good(), config("50-own", "worker", spec)];
        assert!(render(&pool("worker", &["worker"]), &configs, &Release::default()).is_ok());
    }
    // Each of the two alone is taken.
    let both = [config("50-a", "worker", file("/etc/passwd", "x")), config("60-b", "worker", users)];
    for one in &both {
        assert!(render(&pool("worker", &["worker"]), [one], &Release::default()).is_ok());
    }
    let text = refusal(&both);
    assert!(text.contains("MachineConfig rendered-worker-") && text.contains("\"/etc/passwd\""), "{text}");
}
