//! Surroundings by cluster, rendered config and settings.

use k8s_openapi::ByteString;
use machine_config_core::model::machineconfig::MachineConfig as Document;

use super::*;

const PEM: &str = "-----BEGIN CERTIFICATE-----\n";

fn base64(text: &str) -> String {
    serde_json::to_value(ByteString(text.as_bytes().to_vec())).unwrap().as_str().unwrap().to_owned()
}

fn rendered(files: &[(&str, &str)]) -> HostSpec {
    let file = |(path, text): &(&str, &str)| json!({ "path": path, "contents": { "source": format!("data:;base64,{}", base64(text)) } });
    let files: Vec<Value> = files.iter().map(file).collect();
    let document = json!({
        "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig",
        "metadata": { "name": "rendered-worker-a" },
        "spec": { "config": { "ignition": { "version": "3.4.0" }, "storage": { "files": files } } },
    });
    Document::parse(document.to_string().as_bytes(), "test").unwrap().spec(None).unwrap()
}

fn cluster(spec: Value) -> ControllerConfigSpec {
    serde_json::from_value(spec).unwrap()
}

fn around<'a>(rendered: &'a HostSpec, cluster: Option<&'a ControllerConfigSpec>) -> Around<'a> {
    Around {
        pool: "worker",
        rendered,
        cluster,
        secrets: &|_| false,
        has_repositories: false,
        has_policy: false,
        global: None,
    }
}

#[test]
fn nothing_around_changes_nothing() {
    let rendered = rendered(&[]);
    let found = Surroundings::of(&around(&rendered, None)).unwrap();
    assert_eq!(found.pull_secret, b"{\"auths\":{}}");
    assert_eq!(JobSettings::default().within(&found), JobSettings::default());
}

#[test]
fn cluster_and_config_fill_what_settings_leave_out() {
    let places = "/etc/containers/registries.d/a.yaml";
    let rendered =
        rendered(&[(REGISTRIES, "[[registry]]\n"), (POLICY, "{\"default\":[]}"), (places, "docker: {}\n")]);
    let cluster = cluster(json!({
        "additionalTrustBundle": base64(PEM),
        "imageRegistryBundleData": [{ "file": "r.test..5000", "data": base64("old") }],
        "imageRegistryBundleUserData": [
            { "file": "r.test..5000", "data": base64(PEM) }, { "file": "../x", "data": base64(PEM) },
        ],
        "proxy": { "httpsProxy": "http://p.test:3128", "noProxy": ".test", "httpProxy": "" },
    }));
    let found = Surroundings::of(&around(&rendered, Some(&cluster))).unwrap();
    let made = JobSettings::default().within(&found);
    assert_eq!(made.trust_bundle, PEM);
    assert_eq!(made.registry_authorities, BTreeMap::from([("r.test..5000".to_owned(), PEM.to_owned())]));
    assert_eq!(made.registries_conf, "[[registry]]\n");
    assert_eq!(made.policy_json, "{\"default\":[]}");
    assert_eq!(made.signatures["a.yaml"], "docker: {}\n");
    let proxy: Vec<(&str, &str)> = made.proxy.iter().map(|(name, value)| (&**name, &**value)).collect();
    assert_eq!(proxy, [("HTTPS_PROXY", "http://p.test:3128"), ("NO_PROXY", ".test")]);
    let own = JobSettings {
        trust_bundle: "own".to_owned(),
        registries_conf: "own".to_owned(),
        policy_json: "own".to_owned(),
        proxy: [("HTTP_PROXY".to_owned(), "own".to_owned())].into(),
        ..JobSettings::default()
    };
    let made = own.within(&found);
    let (registry_authorities, signatures) = (BTreeMap::new(), BTreeMap::new());
    assert_eq!(JobSettings { registry_authorities, signatures, ..made }, own, "settings are stronger");
}

#[test]
fn entitlements_are_mounted_where_settings_have_nothing_at_their_path() {
    let rendered = rendered(&[]);
    let mounted = |settings: &JobSettings, secrets: &dyn Fn(&str) -> bool| -> Vec<(String, String)> {
        let around = Around { secrets, has_repositories: true, ..around(&rendered, None) };
        let made = settings.within(&Surroundings::of(&around).unwrap());
        let name = |object: &MountObject| match object {
            MountObject::Secret(name) | MountObject::ConfigMap(name) => name.clone(),
        };
        made.mounts.iter().map(|mount| (name(&mount.object), mount.path.clone())).collect()
    };
    let pair = |name: &str, path: &str| (name.to_owned(), path.to_owned());
    let repositories = pair("etc-yum-repos-d", "/etc/yum.repos.d");
    assert_eq!(mounted(&JobSettings::default(), &|_| false), std::slice::from_ref(&repositories));
    let all = mounted(&JobSettings::default(), &|_| true);
    let of_pool = pair("etc-pki-entitlement-worker", "/etc/pki/entitlement");
    assert_eq!(all, [of_pool, pair("etc-pki-rpm-gpg", "/etc/pki/rpm-gpg"), repositories.clone()]);
    let all = mounted(&JobSettings::default(), &|name| name == "etc-pki-entitlement");
    assert_eq!(all, [pair("etc-pki-entitlement", "/etc/pki/entitlement"), repositories]);
    let own: Mount = serde_json::from_value(json!({ "secret": "mine", "path": "/etc/yum.repos.d" })).unwrap();
    let settings = JobSettings { mounts: vec![own], ..JobSettings::default() };
    assert_eq!(mounted(&settings, &|_| false), [pair("mine", "/etc/yum.repos.d")]);
}

#[test]
fn pull_secrets_of_nodes_registry_and_cluster_are_one() {
    let auths = |pairs: &[(&str, &str)]| {
        let auths: Map<String, Value> =
            pairs.iter().map(|(host, auth)| ((*host).to_owned(), json!({ "auth": auth }))).collect();
        json!({ "auths": auths }).to_string()
    };
    let rendered = rendered(&[(PULL_SECRET, &auths(&[("a.test", "node"), ("b.test", "node")]))]);
    let cluster = cluster(json!({ "internalRegistryPullSecret": base64(&auths(&[("b.test", "internal")])) }));
    let global = auths(&[("c.test", "global")]);
    let whole = Around { global: Some(global.as_bytes()), ..around(&rendered, Some(&cluster)) };
    let found = Surroundings::of(&whole).unwrap();
    let read: Value = serde_json::from_slice(&found.pull_secret).unwrap();
    assert_eq!(
        read,
        serde_json::from_str::<Value>(&auths(&[
            ("a.test", "node"),
            ("b.test", "internal"),
            ("c.test", "global")
        ]))
        .unwrap()
    );
    assert!(!format!("{found:?}").contains("internal"), "a secret");
    let rubbish = Around { global: Some(b"no json"), ..around(&rendered, None) };
    let read: Value = serde_json::from_slice(&Surroundings::of(&rubbish).unwrap().pull_secret).unwrap();
    assert_eq!(read["auths"]["a.test"]["auth"], "node");
}

#[test]
fn unreadable_field_is_named() {
    let rendered = rendered(&[]);
    let wrong = cluster(json!({ "additionalTrustBundle": "%" }));
    let error = Surroundings::of(&around(&rendered, Some(&wrong))).unwrap_err();
    assert_eq!(
        error,
        "ControllerConfig machine-config-controller: spec.additionalTrustBundle is not base64; correct it"
    );
}

/// Nodes take a bundle with a comment in Latin-1; a policy with the path of a key would refuse every image in the pod.
#[test]
fn odd_bundle_is_taken_and_path_of_key_is_named() {
    let odd = ByteString([&b"# Z\xfcrich\n"[..], PEM.as_bytes()].concat());
    let odd = serde_json::to_value(odd).unwrap();
    let found = cluster(json!({ "additionalTrustBundle": odd }));
    let bare = rendered(&[]);
    let made = JobSettings::default().within(&Surroundings::of(&around(&bare, Some(&found))).unwrap());
    assert!(made.trust_bundle.ends_with(PEM), "{}", made.trust_bundle);
    let by_path = rendered(&[(POLICY, r#"{"default":[{"type":"signedBy","keyPath":"/etc/pki/a"}]}"#)]);
    let error = Surroundings::of(&around(&by_path, None)).unwrap_err();
    assert!(error.contains("keyData") && error.contains("policyJson"), "{error}");
    assert!(Surroundings::of(&Around { has_policy: true, ..around(&by_path, None) }).is_ok());
}
