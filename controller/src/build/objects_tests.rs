//! The Job and its inputs, against a golden.
#![expect(clippy::disallowed_methods, reason = "it compares a golden, and writes it when that is asked for")]

use super::*;

fn settings() -> JobSettings {
    let resources = json!({ "requests": { "cpu": "500m", "memory": "1Gi" }, "limits": { "memory": "4Gi" } });
    let toleration = json!({ "key": "build", "operator": "Exists", "effect": "NoSchedule" });
    JobSettings {
        namespace: "openshift-machine-config-operator".to_owned(),
        builder_image: "registry.test/buildah@sha256:b".to_owned(),
        agent_image: "registry.test/agent@sha256:a".to_owned(),
        resources: serde_json::from_value(resources).unwrap(),
        node_selector: [("build".to_owned(), "yes".to_owned())].into(),
        tolerations: vec![serde_json::from_value(toleration).unwrap()],
        deadline: 7200,
        proxy: [("HTTPS_PROXY".to_owned(), "http://proxy.test:3128".to_owned())].into(),
        insecure_registries: Vec::new(),
        trust_bundle: "-----BEGIN CERTIFICATE-----\n".to_owned(),
        registries_conf: "unqualified-search-registries = []\n".to_owned(),
        policy_json: "{\"default\":[{\"type\":\"insecureAcceptAnything\"}]}\n".to_owned(),
        registry_authorities: [(
            "registry.test..5000".to_owned(),
            "-----BEGIN CERTIFICATE-----\n".to_owned(),
        )]
        .into(),
        signatures: [("a.yaml".to_owned(), "docker: {}\n".to_owned())].into(),
        from_cluster: true,
        mounts: serde_json::from_value(json!([
            { "secret": "etc-pki-entitlement", "path": "/etc/pki/entitlement" },
            { "configMap": "etc-yum-repos-d", "path": "/etc/yum.repos.d" },
        ]))
        .unwrap(),
        apply_by: ApplyBy::Agent,
        seccomp_profile: None,
    }
}

fn context(bytes: usize) -> Context {
    let files = BTreeMap::from([("machineconfig.json".to_owned(), vec![b'x'; bytes])]);
    Context { containerfile: "FROM registry.test/os AS configs\n".to_owned(), files }
}

fn request(context: &Context) -> JobRequest<'_> {
    JobRequest {
        build: "worker-0123456789abcdef0123456789abcdef",
        build_uid: "build-uid",
        os_config: "worker",
        pool: "worker",
        rendered: "rendered-worker-a",
        push_spec: "registry.test/os/worker:worker-0123456789abcdef0123456789abcdef",
        context,
    }
}

/// `UPDATE_GOLDENS=1` writes it.
#[test]
fn objects_of_a_build_are_as_the_golden() {
    let context = context(3);
    let (request, settings) = (request(&context), settings());
    let job = job(&request, &settings).unwrap();
    let inputs = inputs(&request, &settings, InputOwner::Job("job-uid"), b"{}", b"{\"auths\":{}}").unwrap();
    let all = json!({ "job": job, "configMap": inputs.config_map, "secrets": inputs.secrets });
    let text = serde_json::to_string_pretty(&all).unwrap() + "\n";
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/build/goldens/objects.json");
    if std::env::var_os("UPDATE_GOLDENS").is_some_and(|value| value == "1") {
        std::fs::write(path, &text).unwrap();
    }
    assert_eq!(std::fs::read_to_string(path).unwrap(), text);
}

/// A field that the type does not know would be lost without a word.
#[test]
fn every_field_of_the_pod_is_known() {
    let context = context(1);
    let (request, settings) = (request(&context), settings());
    let made = serde_json::to_value(job(&request, &settings).unwrap()).unwrap();
    assert_eq!(made["spec"]["template"]["spec"], pod(&request, &settings));
    assert_eq!(made["spec"]["suspend"], true);
    assert_eq!(made["spec"]["template"]["spec"]["automountServiceAccountToken"], false);
    // Each volume is one of the inputs, or of the pod.
    let inputs = inputs(&request, &settings, InputOwner::Job("job-uid"), b"{}", b"{}").unwrap();
    let names = inputs.secrets.iter().map(|secret| &secret.metadata).chain([&inputs.config_map.metadata]);
    let text = made.to_string();
    for metadata in names {
        let name = metadata.name.clone().unwrap();
        assert!(text.contains(&format!("\"{name}\"")), "{name}");
        assert_eq!(metadata.owner_references.as_ref().unwrap()[0].uid, "job-uid");
    }
}

/// Without a profile the Pod Security Standard `baseline` admits the pod, and the kubelet's default applies.
#[test]
fn seccomp_profile_is_that_of_settings() {
    let context = context(1);
    let profile = |settings: &JobSettings| {
        let made = serde_json::to_value(job(&request(&context), settings).unwrap()).unwrap();
        made["spec"]["template"]["spec"]["containers"][0]["securityContext"]["seccompProfile"].clone()
    };
    assert_eq!(profile(&settings()), Value::Null);
    let own: JobSettings = serde_json::from_value(
        json!({ "seccompProfile": { "type": "Localhost", "localhostProfile": "b.json" } }),
    )
    .unwrap();
    assert_eq!(profile(&own), json!({ "type": "Localhost", "localhostProfile": "b.json" }));
}

/// Each archive has a Secret of its own, and the builder has all of them in one directory.
#[test]
fn archives_are_secrets_of_one_volume() {
    let files = ["a", "b"].map(|name| (name.to_owned(), vec![b'x'; MAX_ARCHIVE]));
    let context = Context { files: files.into(), ..context(1) };
    let (request, settings) = (request(&context), settings());
    let inputs = inputs(&request, &settings, InputOwner::Job("job-uid"), b"{}", b"{}").unwrap();
    let names: Vec<&str> =
        inputs.secrets.iter().map(|secret| secret.metadata.name.as_deref().unwrap()).collect();
    let build = request.build;
    let expected = ["mc", "mc2", "base", "final"].map(|prefix| format!("{prefix}-{build}"));
    assert_eq!(names, expected);
    let made = serde_json::to_value(job(&request, &settings).unwrap()).unwrap();
    let pod_spec = &made["spec"]["template"]["spec"];
    assert_eq!(*pod_spec, pod(&request, &settings), "no field is lost");
    let volumes = pod_spec["volumes"].as_array().unwrap();
    let volume = volumes.iter().find(|volume| volume["name"] == "files").unwrap();
    let sources = json!([{ "secret": { "name": names[0] } }, { "secret": { "name": names[1] } }]);
    assert_eq!(volume["projected"], json!({ "sources": sources, "defaultMode": 0o400 }));
    let openshift = crate::build::openshift_build(&request, &settings);
    let of_build = openshift["spec"]["source"]["secrets"].as_array().unwrap();
    let of_build: Vec<&Value> = of_build.iter().map(|one| &one["secret"]["name"]).collect();
    assert_eq!(of_build, [names[0], names[1]]);
}

#[test]
fn texts_too_large_for_a_config_map_are_refused_before_the_job() {
    let context = context(1);
    let large = JobSettings { trust_bundle: "x".repeat(1 << 20), ..settings() };
    let error = job(&request(&context), &large).unwrap_err().to_string();
    assert!(error.contains("trustBundle") && error.contains("bytes"), "{error}");
}

#[test]
fn config_too_large_for_a_secret_is_refused() {
    let context = context(MAX_ARCHIVE + 1);
    let error = inputs(&request(&context), &settings(), InputOwner::Job("job-uid"), b"{}", b"{}")
        .unwrap_err()
        .to_string();
    assert!(error.contains("rendered-worker-a") && error.contains("1048577"), "{error}");
}
