//! The image switch from a real registry: pulls, credentials, outages, moved tags.
//!
//! The registry is a program that some distributions do not have: there no test of these is run, and each records it.

mod faulty;
mod first_boot;
mod seeded;
mod server;

use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use crate::forward_proxy::{self, ForwardProxy};
use crate::ran;
use crate::sandbox_node::{Played, VerbResult, config, layer};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use faulty::{Fault, Faulty};
use machine_config_agent::model::ImageRef;
use serde_json::{Value, json};
use server::{PASSWORD, Registry, USER};

/// Returns true if there is a registry; otherwise records that the test is not run, for the last lines of `./test`.
fn is_installed(test: &str) -> bool {
    let here = server::is_here();
    if !here {
        ran::not_run(test, "docker-registry");
    }
    here
}

fn ends(ended: &VerbResult, code: i32) {
    assert_eq!(ended.code, code, "{}", ended.text);
}

/// Checks that the output has all the parts.
fn says(ended: &VerbResult, parts: &[&str]) {
    for part in parts {
        assert!(ended.text.contains(part), "no {part} in: {}", ended.text);
    }
}

/// A node that reaches the registry, without TLS.
fn node(registry: &Registry) -> Played {
    let node = Played::new();
    reaches(&node, "test", &format!("location = \"{}\"\ninsecure = true\n", registry.address));
    node
}

/// Configures a registry for the node's tools.
fn reaches(node: &Played, name: &str, text: &str) {
    let drop_ins = node.path("/etc/containers/registries.conf.d");
    std::fs::create_dir_all(&drop_ins).unwrap();
    std::fs::write(drop_ins.join(format!("{name}.conf")), format!("[[registry]]\n{text}")).unwrap();
}

/// Makes an image with one file of its own, and pushes it.
fn pushed(node: &Played, registry: &Registry, tag: &str, as_tag: &str) -> ImageRef {
    let image = node.derive(tag, &[layer(&format!("usr/share/{tag}"), tag)], None);
    registry.push(&node.world.dir().join("images"), tag, &image, as_tag)
}

fn plain() -> String {
    config("rendered-b", &[("/etc/app.conf", "b")], None)
}

/// Neither staged nor booted nor written.
fn untouched(node: &Played) {
    let run = node.booted.as_ref().unwrap().run_dir();
    assert!(!run.join("ostree/staged-deployment").exists());
    assert_eq!((node.boots, node.read("/etc/app.conf")), (1, None));
}

/// A file below the machine's `/var`.
fn in_var(node: &Played, path: &str) -> PathBuf {
    node.world.dir().join("sysroot/ostree/deploy/sandbox/var").join(path)
}

/// OCL-001: the host boots exactly that digest, after one reboot.
#[test]
fn image_is_pulled_booted_and_verified() {
    if !is_installed("image_is_pulled_booted_and_verified") {
        return;
    }
    let registry = Registry::start(false);
    let mut node = node(&registry);
    let image = pushed(&node, &registry, "v2", "v2");
    let ended = node.apply(&plain(), Some(&image), |_| {});
    ends(&ended, 0);
    assert!(!ended.text.contains("link-pull-secret"), "{}", ended.text);
    assert_eq!((node.boots, node.read("/usr/share/v2").unwrap().as_str()), (2, "v2"));
    assert!(node.path("/etc/containers/registries.conf.d/test.conf").exists());
    ends(&node.verb(&["verify", "--os-backend", "ostree"]), 0);
    let current = node.read("/etc/machine-config-daemon/currentimage").unwrap();
    assert_eq!(current.trim(), image.to_string());
}

/// BOOT-010: a proxy is the only way to the registry, for the preflight and the pull, and no line shows its password. Also
/// one that is reached by TLS.
#[test]
fn proxy_is_only_way_to_registry() {
    if !is_installed("proxy_is_only_way_to_registry") {
        return;
    }
    let servers = std::net::Ipv4Addr::LOCALHOST;
    for (proxy, is_tls) in [(ForwardProxy::start(servers), false), (ForwardProxy::start_tls(servers), true)] {
        let registry = Registry::start(false);
        let mut node = node(&registry);
        let image = pushed(&node, &registry, "v2", "v2");
        let name = registry.address.replace("127.0.0.1", "registry.mca.test");
        reaches(&node, "named", &format!("location = \"{name}\"\ninsecure = true\n"));
        let image = ImageRef::parse(&image.to_string().replace(&registry.address, &name)).unwrap();
        let lost = node.apply(&plain(), Some(&image), |_| {});
        ends(&lost, 4);
        untouched(&node);

        if is_tls {
            let trusted = node.path("/etc/ssl/certs/ca-certificates.crt");
            std::fs::create_dir_all(trusted.parent().unwrap()).unwrap();
            std::fs::write(trusted, proxy.certificate()).unwrap();
        }
        let file = node.path("/etc/mco/proxy.env");
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        let url = proxy.url();
        std::fs::write(file, format!("HTTP_PROXY={url}\nHTTPS_PROXY='{url}'\nNO_PROXY=.svc\n")).unwrap();
        let ended = node.apply(&plain(), Some(&image), |_| {});
        ends(&ended, 0);
        assert_eq!((node.boots, node.read("/usr/share/v2").unwrap().as_str()), (2, "v2"));
        let asked = proxy.requests();
        assert!(asked.iter().any(|line| line.contains(&name)), "{asked:?}");
        for text in [lost.text, ended.text] {
            assert!(!text.contains(forward_proxy::PASSWORD), "{text}");
        }
    }
}

fn secret(registry: &Registry) -> (String, String) {
    let auth = BASE64.encode(format!("{USER}:{PASSWORD}"));
    (json!({"auths": {registry.address.clone(): {"auth": auth}}}).to_string(), auth)
}

/// The plain config, with the cluster's pull secret as well.
fn with_secret(secret: &str) -> String {
    let mut config: Value = serde_json::from_str(&plain()).unwrap();
    let source = format!("data:;base64,{}", BASE64.encode(secret));
    let file = json!({"path": "/var/lib/kubelet/config.json", "mode": 0o600, "contents": {"source": source}});
    let files = config.pointer_mut("/spec/config/storage/files").unwrap();
    files.as_array_mut().unwrap().push(file);
    config.to_string()
}

/// Neither the password nor its encoded form is shown.
fn keeps_the_secret(ended: &VerbResult, auth: &str) {
    assert!(!ended.text.contains(PASSWORD) && !ended.text.contains(auth), "{}", ended.text);
}

/// OCL-011: the reason names authentication, and the file of the credentials, if any. OCL-003: credentials that were replaced are
/// those of the next try.
#[test]
fn secret_of_new_config_pulls_its_image() {
    if !is_installed("secret_of_new_config_pulls_its_image") {
        return;
    }
    let registry = Registry::start(true);
    let mut node = node(&registry);
    let image = pushed(&node, &registry, "v2", "v2");
    let refused = node.apply(&plain(), Some(&image), |_| {});
    ends(&refused, 4);
    says(&refused, &["ImagePullUnauthorized", "authentication required", "Next:", "the agent retries"]);
    says(&refused, &["asked without credentials: none are in /etc/mco/internal-registry-pull-secret.json, "]);
    untouched(&node);

    let (json, auth) = secret(&registry);
    let wrong = json.replace(&auth, &BASE64.encode("sandbox:wrong"));
    let refused = node.apply(&with_secret(&wrong), Some(&image), |_| {});
    ends(&refused, 4);
    says(&refused, &["ImagePullUnauthorized", "the agent retries"]);
    says(
        &refused,
        &[
            "asked with the credentials in /var/lib/kubelet/config.json)",
            "(skopeo inspect --authfile /var/lib/kubelet/config.json docker://",
        ],
    );
    keeps_the_secret(&refused, &BASE64.encode("sandbox:wrong"));
    untouched(&node);
    // An administrator's own file comes first.
    let own = node.booted.as_ref().unwrap().run_dir().join("ostree/auth.json");
    std::fs::create_dir_all(own.parent().unwrap()).unwrap();
    std::fs::write(&own, &wrong).unwrap();
    let refused = node.apply(&with_secret(&json), Some(&image), |_| {});
    ends(&refused, 4);
    says(&refused, &["asked with the credentials in /run/ostree/auth.json)"]);
    std::fs::remove_file(&own).unwrap();

    let ended = node.apply(&with_secret(&json), Some(&image), |_| {});
    ends(&ended, 0);
    says(&ended, &["link-pull-secret /var/lib/kubelet/config.json"]);
    keeps_the_secret(&ended, &auth);
    keeps_the_secret(&node.verb(&["status", "--os-backend", "ostree"]), &auth);
    assert_eq!((node.boots, node.read("/usr/share/v2").unwrap().as_str()), (2, "v2"));
    let file = in_var(&node, "lib/kubelet/config.json");
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(std::fs::read_to_string(&file).unwrap(), json);

    // Now the host has it as well.
    let image = pushed(&node, &registry, "v3", "v3");
    ends(&node.apply(&with_secret(&json), Some(&image), |_| {}), 0);
    assert_eq!((node.boots, node.read("/usr/share/v3").unwrap().as_str()), (3, "v3"));
}

#[test]
fn merged_secret_of_host_pulls_it() {
    if !is_installed("merged_secret_of_host_pulls_it") {
        return;
    }
    let registry = Registry::start(true);
    let mut node = node(&registry);
    let image = pushed(&node, &registry, "v2", "v2");
    let merged = node.path("/etc/mco/internal-registry-pull-secret.json");
    std::fs::create_dir_all(merged.parent().unwrap()).unwrap();
    // MCD writes this before it has the secret.
    std::fs::write(&merged, "\n").unwrap();
    ends(&node.apply(&plain(), Some(&image), |_| {}), 4);
    let (json, auth) = secret(&registry);
    std::fs::write(&merged, json + "\n").unwrap();
    let ended = node.apply(&plain(), Some(&image), |_| {});
    ends(&ended, 0);
    says(&ended, &["link-pull-secret /etc/mco/internal-registry-pull-secret.json"]);
    keeps_the_secret(&ended, &auth);
    assert_eq!(node.boots, 2);
}

/// OCL-010: a registry that is away is tried again, with the cause meanwhile.
#[test]
fn lost_registry_is_retried() {
    if !is_installed("lost_registry_is_retried") {
        return;
    }
    let mut registry = Registry::start(false);
    let mut node = node(&registry);
    let image = pushed(&node, &registry, "v2", "v2");
    registry.stop();
    let ended = node.apply(&plain(), Some(&image), |_| {});
    ends(&ended, 4);
    says(&ended, &["ImagePullFailed", "connection refused", "the agent retries"]);
    untouched(&node);
    registry.start_again();
    ends(&node.apply(&plain(), Some(&image), |_| {}), 0);
    assert_eq!(node.boots, 2);
}

/// OCL-012: a digest that the registry does not have is named, nothing is touched, and another target is all that it takes.
#[test]
fn digest_wins_over_tag() {
    if !is_installed("digest_wins_over_tag") {
        return;
    }
    let registry = Registry::start(false);
    let mut node = node(&registry);
    let second = pushed(&node, &registry, "v2", "latest");
    let third = pushed(&node, &registry, "v3", "latest");
    assert_ne!(second, third);
    let nowhere = ImageRef::parse(&format!("{}@sha256:{}", second.name(), "0".repeat(64))).unwrap();
    let ended = node.apply(&plain(), Some(&nowhere), |_| {});
    ends(&ended, 4);
    says(&ended, &["ImageNotFound", "manifest unknown", &nowhere.to_string(), "Push the image"]);
    untouched(&node);
    ends(&node.apply(&plain(), Some(&second), |_| {}), 0);
    assert_eq!((node.read("/usr/share/v2").as_deref(), node.read("/usr/share/v3")), (Some("v2"), None));
}

#[test]
fn present_layers_are_not_pulled_again() {
    if !is_installed("present_layers_are_not_pulled_again") {
        return;
    }
    let registry = Registry::start(false);
    let mut node = node(&registry);
    let image = pushed(&node, &registry, "v2", "v2");
    let stage = |node: &Played| {
        std::fs::write(node.world.control().join("to.json"), plain()).unwrap();
        let to = format!("{}/to.json", machine_config_agent::sandbox::CONTROL);
        let image = image.to_string();
        let ended = node.verb(&[
            "apply",
            "--yes",
            "--no-reboot",
            "--to",
            &to,
            "--to-image",
            &image,
            "--os-backend",
            "ostree",
        ]);
        ends(&ended, 0);
        let run = node.booted.as_ref().unwrap().run_dir();
        assert!(run.join("ostree/staged-deployment").exists(), "{}", ended.text);
    };
    stage(&node);
    assert!(registry.blobs_fetched() > 0);
    // The power goes: the staged deployment is lost.
    node.booted.take().unwrap().power_cut().unwrap();
    node.booted = Some(node.world.boot().unwrap());
    assert_eq!(node.read("/usr/share/v2"), None);
    stage(&node);
    assert_eq!(registry.blobs_fetched(), 0);
}

/// A registry's answer for an image that it does not have.
const UNKNOWN: &str = r#"{"errors": [{"code": "MANIFEST_UNKNOWN", "message": "manifest unknown"}]}"#;

/// OCL-010: the words of each fault, and what they begin with (MCD-190); the update succeeds once the registry answers again. Nothing is staged by any of them, and the record of a
/// pull that was begun keeps the cause.
#[test]
fn each_fault_of_registry_has_its_reason() {
    if !is_installed("each_fault_of_registry_has_its_reason") {
        return;
    }
    let answer = |on: &str, status, body| Fault::Answer { on: on.to_owned(), status, body };
    let registry = Registry::start(false);
    let mut node = node(&registry);
    let way = Faulty::before(&registry.address);
    reaches(&node, "faulty", &format!("location = \"{}\"\ninsecure = true\n", way.address));
    let there = pushed(&node, &registry, "v2", "v2");
    let image = ImageRef::parse(&there.to_string().replace(&registry.address, &way.address)).unwrap();
    let manifest = node.world.dir().join("images/blobs/sha256").join(image.digest().to_string());
    let manifest: Value = serde_json::from_slice(&std::fs::read(manifest).unwrap()).unwrap();
    let digest = |pointer: &str| manifest.pointer(pointer).and_then(Value::as_str).unwrap().to_owned();
    let (config, layer) = (digest("/config/digest"), digest("/layers/1/digest"));
    let manifests = "/manifests/";
    let mut wrong = Vec::new();
    // A registry that answers is reached: what to look at is something else.
    let reached = |status: &str| match status {
        "429" => "set up a mirror",
        "503" | "500" => "it was reached, and answers with its own error",
        "eof" => "it was reached, and the connection broke",
        _ => "",
    };
    for (fault, word, part, tried_again) in [
        (answer(manifests, "429 Too Many Requests", ""), "ImagePullFailed", "429", true),
        (answer(manifests, "503 Service Unavailable", ""), "ImagePullFailed", "503", true),
        (answer(manifests, "500 Internal Server Error", ""), "ImagePullFailed", "500", true),
        (answer(manifests, "401 Unauthorized", ""), "ImagePullUnauthorized", "unauthorized", true),
        (answer(manifests, "403 Forbidden", ""), "ImagePullUnauthorized", "403", true),
        (answer(manifests, "404 Not Found", UNKNOWN), "ImageNotFound", "manifest unknown", false),
        (answer(manifests, "404 Not Found", ""), "ImageNotFound", "404", false),
        (Fault::Alter { on: manifests.to_owned() }, "ImageDigestMismatch", "digest", false),
        (Fault::Alter { on: config }, "ImageCorrupted", "does not match expected", true),
        (answer(&layer, "503 Service Unavailable", ""), "ImagePullFailed", "503", true),
        (Fault::Cut { on: layer.clone() }, "ImagePullFailed", "eof", true),
        (Fault::Alter { on: layer }, "ImageCorrupted", "corrupted blob", true),
    ] {
        way.set(Some(fault.clone()));
        let ended = node.apply(&plain(), Some(&image), |_| {});
        ends(&ended, 4);
        let (low, began) = (ended.text.to_lowercase(), format!("failed to update OS to {image}"));
        let said = low.contains(part)
            && ended.text.contains(word)
            && ended.text.contains(&began)
            && ended.text.contains(reached(part))
            && !ended.text.contains("that the node reaches");
        if !said || ended.text.contains("the agent retries") != tried_again {
            wrong.push(format!("{fault:?}: {}", ended.text));
        }
        untouched(&node);
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    // Until the next try the cause is there for everybody.
    says(&node.verb(&["status", "--os-backend", "ostree"]), &["ImageCorrupted", "corrupted blob"]);
    way.set(None);
    // Nothing of a layer that was wrong is taken for the right one.
    ends(&node.apply(&plain(), Some(&image), |_| {}), 0);
    assert_eq!((node.boots, node.read("/usr/share/v2").unwrap().as_str()), (2, "v2"));
}

#[test]
fn image_of_this_architecture_is_picked_from_list() {
    if !is_installed("image_of_this_architecture_is_picked_from_list") {
        return;
    }
    let registry = Registry::start(false);
    let mut node = node(&registry);
    let (second, third) = (pushed(&node, &registry, "v2", "v2"), pushed(&node, &registry, "v3", "v3"));
    let ours = if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" };
    let foreign = registry.list(&[(&third, "s390x")]);
    let ended = node.apply(&plain(), Some(&foreign), |_| {});
    ends(&ended, 4);
    says(&ended, &["ImageWrongArchitecture", ours, &foreign.to_string()]);
    untouched(&node);
    let both = registry.list(&[(&third, "s390x"), (&second, ours)]);
    ends(&node.apply(&plain(), Some(&both), |_| {}), 0);
    assert_eq!((node.boots, node.read("/usr/share/v2").as_deref()), (2, Some("v2")));
    ends(&node.verb(&["verify", "--os-backend", "ostree"]), 0);
}

/// Returns true if skopeo holds what it hands on against `policy.json`: since 1.13.
fn minds_the_policy() -> bool {
    let output = std::process::Command::new("skopeo").arg("--version").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let version: Vec<u32> = text.split(['.', ' ']).filter_map(|word| word.parse().ok()).collect();
    version[..2] >= [1, 13][..]
}

/// OCL-028: the host's `policy.json` decides whether a pull may be.
#[test]
fn hosts_signature_policy_decides() {
    if !is_installed("hosts_signature_policy_decides") {
        return;
    }
    if !minds_the_policy() {
        ran::not_run("hosts_signature_policy_decides", "skopeo 1.13");
        return;
    }
    let registry = Registry::start(false);
    let mut node = node(&registry);
    let image = pushed(&node, &registry, "v2", "v2");
    let policy = node.path("/etc/containers/policy.json");
    std::fs::write(&policy, json!({"default": [{"type": "reject"}]}).to_string()).unwrap();
    let ended = node.apply(&plain(), Some(&image), |_| {});
    ends(&ended, 4);
    says(&ended, &["rejected by policy", &image.to_string()]);
    untouched(&node);
    let accepted = json!({registry.address.clone(): [{"type": "insecureAcceptAnything"}]});
    let policies = json!({"default": [{"type": "reject"}], "transports": {"docker": accepted}});
    std::fs::write(&policy, policies.to_string()).unwrap();
    ends(&node.apply(&plain(), Some(&image), |_| {}), 0);
    assert_eq!((node.boots, node.read("/usr/share/v2").as_deref()), (2, Some("v2")));
}

/// OST-009 against a registry that is gone: a mirror is asked in its place, and the name of the mirror is not pulled
/// again where the digest runs. OCL-028: mirrors of `registries.conf` are honoured.
#[test]
fn same_digest_under_mirror_is_same_image() {
    if !is_installed("same_digest_under_mirror_is_same_image") {
        return;
    }
    let registry = Registry::start(false);
    let mut node = node(&registry);
    let there = pushed(&node, &registry, "v2", "v2");
    let away = ImageRef::parse(&there.to_string().replace(&registry.address, "registry.invalid")).unwrap();
    let mirror = format!(
        "location = \"registry.invalid\"\n[[registry.mirror]]\nlocation = \"{}\"\ninsecure = true\n",
        registry.address
    );
    reaches(&node, "mirror", &mirror);
    ends(&node.apply(&plain(), Some(&away), |_| {}), 0);
    assert_eq!((node.boots, node.read("/usr/share/v2").as_deref()), (2, Some("v2")));
    registry.blobs_fetched();
    let other = config("rendered-c", &[("/etc/app.conf", "c")], None);
    let ended = node.apply(&other, Some(&there), |_| {});
    ends(&ended, 0);
    assert!(!ended.text.contains("stage-os"), "{}", ended.text);
    assert_eq!(registry.blobs_fetched(), 0);
}
