//! `bootstrap --build` with a buildah that keeps what it is asked for: accounts from the manifests' Secrets, and what is left to the cluster.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};

use base64::Engine as _;
use serde_json::json;

const POOL: &str = "{apiVersion: machineconfiguration.openshift.io/v1, kind: MachineConfigPool, metadata: {name: NAME}, spec: \
    {machineConfigSelector: {matchLabels: {machineconfiguration.openshift.io/role: NAME}}}}\n";
const CONFIG: &str = "{apiVersion: machineconfiguration.openshift.io/v1, kind: MachineConfig, metadata: {name: 00-NAME, labels: \
    {machineconfiguration.openshift.io/role: NAME}}, spec: {kernelArguments: [quiet]}}\n";
const OS_CONFIG: &str = "{apiVersion: machineconfiguration.openshift.io/v1, kind: MachineOSConfig, metadata: {name: NAME}, spec: \
    {machineConfigPool: {name: NAME}, imageBuilder: {imageBuilderType: Job}, baseImagePullSecret: {name: pull}, \
    renderedImagePushSecret: {name: push}, renderedImagePushSpec: 'registry.test:5000/os:NAME'}}\n";

/// A directory with manifests of two pools, a buildah, an agent, and what it wrote.
struct Place {
    directory: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        let place = Self { directory: tempfile::tempdir().unwrap() };
        for name in ["master", "worker"] {
            for (kind, text) in [("pool", POOL), ("config", CONFIG), ("os", OS_CONFIG)] {
                place.put(&format!("m/{kind}-{name}.yaml"), &text.replace("NAME", name));
            }
        }
        let buildah = concat!(env!("CARGO_MANIFEST_DIR"), "/src/image/local/recording-buildah");
        place.put("agent", "");
        std::fs::create_dir(place.path("bin")).unwrap();
        symlink(buildah, place.path("bin/buildah")).unwrap();
        place
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.directory.path().join(name)
    }

    fn put(&self, name: &str, text: &str) {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    fn secret(&self, file: &str, name: &str, namespace: &str, user: &str) {
        let auth = base64::engine::general_purpose::STANDARD.encode(config(user));
        let secret = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": name, "namespace": namespace },
            "type": "kubernetes.io/dockerconfigjson", "data": { ".dockerconfigjson": auth } });
        self.put(&format!("m/{file}.yaml"), &secret.to_string());
    }

    /// Returns the exit status, and what it said.
    fn bootstrap(&self, more: &[&str]) -> (Option<i32>, String) {
        let path = |name: &str| self.path(name).display().to_string();
        let base = format!("registry.test:5000/base@sha256:{}", "0".repeat(64));
        let mut command = Command::new(env!("CARGO_BIN_EXE_machine-config-controller"));
        command.args(["bootstrap", "--manifests", &path("m"), "--output", &path("out"), "--os-image", &base]);
        command.args(["--build", "--insecure", "--agent", &path("agent"), "--work-dir", &path("work")]);
        let search = format!("{}:{}", path("bin"), std::env::var("PATH").unwrap());
        let output = command.args(more).env("PATH", search).stdin(Stdio::null()).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        (output.status.code(), text(&output.stdout) + &text(&output.stderr))
    }

    fn validate(&self) -> (Option<i32>, String) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_machine-config-controller"));
        let output = command.args(["validate", "--manifests"]).arg(self.path("m")).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    }

    fn accounts(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.path("work/accounts")).unwrap_or_default();
        drop(std::fs::remove_file(self.path("work/accounts")));
        text.lines().map(str::to_owned).collect()
    }
}

fn config(user: &str) -> String {
    json!({ "auths": { "registry.test:5000": { "username": user, "password": format!("password of {user}") } } }).to_string()
}

/// Returns true if a file below a directory has the text.
fn is_found(text: &str, below: &Path) -> bool {
    std::fs::read_dir(below).unwrap().map(|entry| entry.unwrap().path()).any(|path| {
        if path.is_dir() {
            is_found(text, &path)
        } else {
            std::fs::read(path).unwrap().windows(text.len()).any(|window| window == text.as_bytes())
        }
    })
}

/// The manifests' Secrets are the accounts of the build, unless a flag names others; no disk has them.
#[test]
fn secrets_of_manifests_serve_builds() {
    let place = Place::new();
    place.secret("pull", "pull", "a", "puller");
    place.secret("push", "push", "a", "pusher");
    let (code, said) = place.bootstrap(&[]);
    assert_eq!(code, Some(0), "{said}");
    let expected = [format!("bud: {}", config("puller")), format!("push: {}", config("pusher"))];
    assert_eq!(place.accounts(), [expected.clone(), expected].concat());
    for password in ["password of puller", "password of pusher"] {
        assert!(!said.contains(password) && !is_found(password, &place.path("work")), "{said}");
    }

    place.put("auth.json", &config("flag"));
    let flag = place.path("auth.json").display().to_string();
    let (code, said) = place.bootstrap(&["--authfile", &flag, "--leave-to-cluster", "worker"]);
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(place.accounts(), ["bud", "push"].map(|call| format!("{call}: {}", config("flag"))));
}

/// A Secret that is not there is named, and one that can't be used is refused before anything is built.
#[test]
fn secrets_that_cannot_be_used_are_named() {
    let place = Place::new();
    let (code, said) = place.bootstrap(&["--leave-to-cluster", "worker"]);
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(place.accounts(), Vec::<String>::new());
    for (name, flag) in [("pull", "--authfile"), ("push", "--push-authfile")] {
        let line = format!(
            "MachineOSConfig master: Secret {name} is not among the manifests, so the build has no credentials of it; add it, or name \
             {flag} FILE"
        );
        assert!(said.contains(&line), "{said}");
    }

    std::fs::remove_dir_all(place.path("work")).unwrap();
    place.secret("pull", "pull", "a", "puller");
    place.secret("push-a", "push", "a", "pusher");
    place.secret("push-b", "push", "b", "other");
    let (code, said) = place.bootstrap(&[]);
    let refused = "MachineOSConfig master: spec.renderedImagePushSecret.name: Secret push: the manifests have several of that name with \
                   different contents; keep one, or name --push-authfile FILE";
    assert!(code == Some(4) && said.contains(refused), "{said}");
    place.secret("push-b", "push", "b", "pusher");
    assert_eq!(place.bootstrap(&[]).0, Some(0), "copies in several namespaces are one");
    std::fs::remove_dir_all(place.path("work")).unwrap();
    std::fs::remove_file(place.path("m/push-b.yaml")).unwrap();
    for wrong in [
        "data: {.dockerconfigjson: bm8=}",
        "data: {password: bm8=}",
        "stringData: {.dockerconfigjson: '{'}",
        "data: 5",
    ] {
        place.put(
            "m/push-a.yaml",
            &format!("{{apiVersion: v1, kind: Secret, metadata: {{name: push}}, {wrong}}}\n"),
        );
        let (code, said) = place.bootstrap(&[]);
        let refused = "Secret push: it holds no credentials of a registry; write it as `kubectl create secret docker-registry` does";
        assert!(code == Some(4) && said.contains(refused), "{wrong}: {said}");
        // The cluster would come to a stop at it as well.
        let (code, said) = place.validate();
        assert!(code == Some(4) && said.contains(refused), "{wrong}: {said}");
        assert!(!said.contains("--push-authfile"), "a flag that validate does not have: {said}");
    }
    assert!(!place.path("work").exists(), "nothing was begun");
}

/// A pool whose image the cluster builds begins without one.
#[test]
fn image_is_left_to_cluster() {
    let place = Place::new();
    let (code, said) = place.bootstrap(&["--leave-to-cluster", "worker"]);
    assert_eq!(code, Some(0), "{said}");
    let written = |name: &str| std::fs::read_to_string(place.path("out").join(name)).unwrap();
    assert!(written("machine-os-configs/master.yaml").contains("registry.test:5000/os@sha256:"));
    assert!(!place.path("out/machine-os-configs/worker.yaml").exists());
    assert!(!written("machine-pools/worker.yaml").contains("10-prebuiltimage-osimageurl-worker"));
    let (code, said) = place.bootstrap(&["--leave-to-cluster", "wroker"]);
    let refused = "--leave-to-cluster wroker: the manifests have no MachineOSConfig wroker; name one of: master, worker";
    assert!(code == Some(2) && said.contains(refused), "{said}");
}

/// The build that fails is named, and nothing is written.
#[test]
fn failed_build_is_named() {
    let place = Place::new();
    place.put("work/push-fails", "");
    let (code, said) = place.bootstrap(&[]);
    assert!(
        code == Some(4) && said.contains("machine-config-controller: MachineOSConfig master: "),
        "{said}"
    );
    assert!(!place.path("out").exists());
}
