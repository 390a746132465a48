//! The Containerfile of `seed containerfile`, built by real buildah onto a bootc seed.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::backend_env::Lab;
use crate::registry::{self, Registry};
use crate::seed::{OWN, boot, create, host, host_of, put};
use crate::stateroot::stateroot;

const BUILDAH: &str = "/usr/bin/buildah";

/// What the lines of the Containerfile run.
const PROGRAMS: [&str; 6] = ["sh", "tar", "gzip", "mkdir", "rm", "chmod"];

const INSTALL: &str = "apiVersion: v1\nmetadata: {name: sno}\nbaseDomain: example.test\n\
    controlPlane: {name: master, replicas: 1}\ncompute: [{name: worker, replicas: 0}]\n\
    pullSecret: '{\"auths\": {\"registry.test\": {\"auth\": \"aHVudGVyMg==\"}}}'\n";
const IMAGE_BASED: &str = "apiVersion: v1beta1\nkind: ImageBasedConfig\nhostname: host-b\n";
const CONFIGURATION: &str = "usr/lib/openshift/cluster-configuration";

fn run(program: &str, args: &[&str]) -> String {
    let output = Command::new(program).args(args).output().unwrap();
    assert!(output.status.success(), "{program} {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// buildah with a storage of its own.
struct Builder {
    dir: tempfile::TempDir,
    registry: Registry,
}

impl Builder {
    fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap(), registry: Registry::start(false) }
    }

    fn at(&self, name: &str) -> String {
        self.dir.path().join(name).to_str().unwrap().to_owned()
    }

    fn buildah(&self, args: &[&str]) -> String {
        let (root, state) = (self.at("storage"), self.at("run"));
        run(BUILDAH, &[&["--root", &root, "--runroot", &state, "--storage-driver", "vfs"], args].concat())
    }

    /// Pushes an image; returns its name by digest.
    fn push(&self, image: &str) -> String {
        let (name, file) = (format!("{}/{image}", self.registry.address), self.at("digest"));
        self.buildah(&[
            "push",
            "--quiet",
            "--tls-verify=false",
            "--digestfile",
            &file,
            image,
            &format!("docker://{name}:1"),
        ]);
        format!("{name}@{}", fs::read_to_string(file).unwrap().trim())
    }

    /// Makes the image that a seed adds its files and labels to: with the programs of a build.
    fn seed(&self, lab: &Lab) -> String {
        let root = PathBuf::from(self.at("root"));
        for name in ["bin", "lib", "lib64"] {
            fs::create_dir_all(root.join("usr").join(name)).unwrap();
            symlink(format!("usr/{name}"), root.join(name)).unwrap();
        }
        for name in PROGRAMS {
            install(&root, &run("sh", &["-c", &format!("command -v {name}")]));
        }
        for directory in ["etc", "tmp", "var"] {
            fs::create_dir_all(root.join(directory)).unwrap();
        }
        fs::write(root.join("etc/motd"), "of the image\n").unwrap();
        let layout = host(lab, OWN).join("image");
        let read = |digest: &Value| fs::read(blob(&layout, digest)).unwrap();
        let json = |bytes: Vec<u8>| -> Value { serde_json::from_slice(&bytes).unwrap() };
        let index = json(fs::read(layout.join("index.json")).unwrap());
        let manifest = json(read(&index["manifests"][0]["digest"]));
        let layer = blob(&layout, &manifest["layers"].as_array().unwrap().last().unwrap()["digest"]);
        run("tar", &["-xf", layer.to_str().unwrap(), "-C", root.to_str().unwrap()]);
        let labels = json(read(&manifest["config"]["digest"]))["config"]["Labels"].clone();
        let labels: Vec<String> = labels
            .as_object()
            .unwrap()
            .iter()
            .map(|(key, value)| format!("{key}={}", value.as_str().unwrap()))
            .collect();
        let container = self.buildah(&["from", "scratch"]);
        self.buildah(&["add", "--quiet", &container, root.to_str().unwrap(), "/"]);
        let labels: Vec<&str> = labels.iter().flat_map(|label| ["--label", label]).collect();
        self.buildah(&[&["config"], &labels[..], &[&container]].concat());
        self.buildah(&["commit", "--quiet", "--rm", &container, "seed"]);
        self.push("seed")
    }

    /// Builds the image with the configuration of a cluster; returns its name and where its files are.
    fn build(&self, seed: &str) -> (String, PathBuf) {
        let config = self.at("config");
        fs::create_dir_all(format!("{config}/extra-manifests")).unwrap();
        let manifest = "apiVersion: v1\nkind: ConfigMap\n";
        for (name, text) in [
            ("install-config.yaml", INSTALL),
            ("image-based-config.yaml", IMAGE_BASED),
            ("extra-manifests/a.yaml", manifest),
        ] {
            fs::write(format!("{config}/{name}"), text).unwrap();
        }
        let agent = env!("CARGO_BIN_EXE_machine-config-agent");
        let text = run(
            agent,
            &[
                "seed",
                "containerfile",
                "--config",
                &config,
                "--image",
                seed,
                "--include-secret",
                "install-config.yaml",
            ],
        );
        let file = self.at("Containerfile");
        fs::write(&file, text).unwrap();
        let how = [
            "build",
            "--quiet",
            "--isolation",
            "chroot",
            "--tls-verify=false",
            "--file",
            &file,
            "--tag",
            "configured",
            &config,
        ];
        self.buildah(&how);
        let container = self.buildah(&["from", "configured"]);
        (self.push("configured"), self.buildah(&["mount", &container]).into())
    }
}

fn blob(layout: &Path, digest: &Value) -> PathBuf {
    layout.join("blobs").join(digest.as_str().unwrap().replace(':', "/"))
}

/// Puts a program of this machine into a root, with its libraries.
fn install(root: &Path, program: &str) {
    let libraries = run("ldd", &[program]);
    let paths = libraries.split_whitespace().filter(|word| word.starts_with('/'));
    for path in paths.chain([program]) {
        let to = root.join(path.trim_start_matches('/'));
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        fs::copy(path, to).unwrap();
    }
}

/// The seed's `/etc` and `/var` and the cluster's configuration are in the image: also the files over which a builder mounts its own.
#[test]
fn configured_seed_is_built_and_accepted() {
    let test = "configured_seed_is_built_and_accepted";
    for (is_here, program) in
        [(registry::is_here(), "docker-registry"), (Path::new(BUILDAH).exists(), "buildah")]
    {
        if !is_here {
            return crate::ran::not_run(test, program);
        }
    }
    let lab = host_of("A");
    for (path, text) in [
        ("etc/hosts", "192.0.2.1 seed\n"),
        ("etc/seed.conf", "of the seed\n"),
        ("var/lib/app/data", "data\n"),
    ] {
        put(&lab, path, text);
    }
    fs::remove_file(host(&lab, "etc/motd")).unwrap();
    let on_a = boot(&lab);
    let made = create(&on_a, &["--form", "bootc", "--include", "/etc/hosts", "--include", "/var/lib/app"]);
    assert_eq!(made.code, 0, "{made:?}");
    let builder = Builder::new();
    let (image, root) = builder.build(&builder.seed(&lab));

    let read =
        |path: &str| fs::read_to_string(root.join(path)).unwrap_or_else(|error| panic!("{path}: {error}"));
    for (path, text) in [
        ("etc/hostname", "host-b\n"),
        ("etc/hosts", "192.0.2.1 seed\n"),
        ("etc/seed.conf", "of the seed\n"),
        ("var/lib/app/data", "data\n"),
        (&format!("{CONFIGURATION}/install-config.yaml"), INSTALL),
        (&format!("{CONFIGURATION}/extra-manifests/a.yaml"), "apiVersion: v1\nkind: ConfigMap\n"),
    ] {
        assert_eq!(read(path), text, "{path}");
    }
    assert!(!root.join("etc/motd").exists(), "deleted by the seed");
    let mode = |path: &str| fs::metadata(root.join(path)).unwrap().permissions().mode() & 0o7777;
    assert_eq!((mode(CONFIGURATION), mode(&format!("{CONFIGURATION}/install-config.yaml"))), (0o700, 0o600));

    let trusted = format!("[[registry]]\nlocation = \"{}\"\ninsecure = true\n", builder.registry.address);
    put(&lab, "etc/containers/registries.conf", &trusted);
    let shown = stateroot(&on_a, &["inspect", &image, "--output", "json"]);
    assert_eq!(shown.code, 0, "{shown:?}");
    let shown = shown.json();
    assert_eq!(
        (&shown["layout"], &shown["refusals"]),
        (&Value::from("bootc"), &Value::Array(Vec::new())),
        "{shown:#}"
    );
}
