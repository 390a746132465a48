//! From a `MachineOSConfig` to a digest in a registry with real buildah. `./test all` runs it: it takes half a minute, and programs
//! that a fresh machine does not have.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use k8s_openapi::ByteString;
use kube::ResourceExt;
use kube::api::ListParams;
use serde_json::{Value, json};

use crate::build::{Builds, spec};
use crate::build_jobs::{JobController, Plays};
use crate::build_pods::PodRunner;
use crate::cluster::{MachineConfigBuilder, key};
use crate::ran::not_run;

const NAME: &str = "build_real::containerfile_becomes_image_by_real_buildah";

/// Debian's `docker-registry`.
struct Registry {
    child: Child,
    address: String,
    _directory: tempfile::TempDir,
}

impl Registry {
    fn start() -> Self {
        Self::start_in(tempfile::tempdir().unwrap(), "")
    }

    /// With TLS; returns its certificate, too.
    fn with_tls() -> (Self, String) {
        let directory = tempfile::tempdir().unwrap();
        let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
        let (certificate, key) = (directory.path().join("tls.crt"), directory.path().join("tls.key"));
        std::fs::write(&certificate, made.cert.pem()).unwrap();
        std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
        let tls = format!(", tls: {{certificate: {}, key: {}}}", certificate.display(), key.display());
        (Self::start_in(directory, &tls), made.cert.pem())
    }

    fn start_in(directory: tempfile::TempDir, tls: &str) -> Self {
        let config = directory.path().join("config.yml");
        let text = format!(
            "version: 0.1\nstorage: {{filesystem: {{rootdirectory: {}/storage}}, delete: {{enabled: true}}}}\nhttp: {{addr: '127.0.0.1:0'{tls}}}\n",
            directory.path().display()
        );
        std::fs::write(&config, text).unwrap();
        let mut command = Command::new("docker-registry");
        command.arg("serve").arg(&config).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
        let ready = lines.find(|line| line.contains("listening on ")).unwrap();
        let address =
            ready.split("listening on ").nth(1).unwrap().split([' ', '"', ',']).next().unwrap().to_owned();
        // It would wait for a reader.
        std::thread::spawn(move || lines.for_each(drop));
        Self { child, address, _directory: directory }
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{program} {arguments:?}: {error}");
    String::from_utf8(output.stdout).unwrap()
}

/// The agent, which `cargo build --workspace` puts beside the controller.
fn agent() -> PathBuf {
    let path =
        Path::new(env!("CARGO_BIN_EXE_machine-config-controller")).with_file_name("machine-config-agent");
    assert!(path.exists(), "{}: run `cargo build --workspace --bins`", path.display());
    path
}

/// A root directory with busybox and what the agent's executable needs; the agent's own image has the executable, too.
fn root(lab: &Path, name: &str, programs: &[&str], with_agent: bool) -> PathBuf {
    let root = lab.join(name);
    for directory in ["bin", "dev", "etc", "proc", "run", "sys", "tmp", "usr/bin", "usr/share", "var/lib"] {
        std::fs::create_dir_all(root.join(directory)).unwrap();
    }
    let busybox = run("sh", &["-c", "command -v busybox"]);
    std::fs::copy(busybox.trim(), root.join("bin/busybox")).unwrap();
    for program in programs {
        std::os::unix::fs::symlink("busybox", root.join("bin").join(program)).unwrap();
    }
    for library in
        run("ldd", &[agent().to_str().unwrap()]).split_whitespace().filter(|word| word.starts_with('/'))
    {
        let target = root.join(&library[1..]);
        std::fs::create_dir_all(target.parent().unwrap()).unwrap();
        std::fs::copy(library, target).unwrap();
    }
    std::fs::write(root.join("etc/passwd"), "root:x:0:0:root:/root:/bin/sh\n").unwrap();
    std::fs::write(root.join("etc/group"), "root:x:0:\n").unwrap();
    if with_agent {
        std::fs::copy(agent(), root.join("usr/bin/machine-config-agent")).unwrap();
    }
    root
}

/// Pushes a root as an image; returns it by digest.
fn push(lab: &Path, root: &Path, registry: &str) -> String {
    let at = |name: &str| lab.join(name).to_str().unwrap().to_owned();
    let (storage, runroot, digest) = (at("storage"), at("runroot"), at("digest"));
    let tool = |more: &[&str]| {
        let fixed = ["--root", &storage, "--runroot", &runroot, "--storage-driver", "vfs"];
        run("buildah", &[&fixed, more].concat()).trim().to_owned()
    };
    let container = tool(&["from", "scratch"]);
    tool(&["add", "--quiet", &container, root.to_str().unwrap(), "/"]);
    tool(&["commit", "--quiet", "--rm", &container, "base"]);
    let target = format!("docker://{registry}/base:1");
    tool(&["push", "--quiet", "--tls-verify=false", "--digestfile", &digest, "base", &target]);
    format!("{registry}/base@{}", std::fs::read_to_string(&digest).unwrap().trim())
}

/// A program that is not here.
fn missing() -> Option<&'static str> {
    ["buildah", "skopeo", "docker-registry", "busybox", "unshare"].into_iter().find(|program| {
        let found = Command::new("sh").args(["-c", &format!("command -v {program} >/dev/null")]).status();
        !found.unwrap().success()
    })
}

/// The image has the pool's label, and its digest is that of the build's tag.
fn is_pushed(image: &str, registry: &str, build: &str) {
    assert!(image.starts_with(&format!("{registry}/os/worker@sha256:")), "{image}");
    let inspect = |image: &str, more: &[&str]| {
        run("skopeo", &[&["inspect", "--tls-verify=false"], more, &[&format!("docker://{image}")]].concat())
    };
    let labels: Value = serde_json::from_str(&inspect(image, &[])).unwrap();
    assert_eq!(labels["Labels"]["machineconfigpool"], "worker", "{labels}");
    let tagged = inspect(&format!("{registry}/os/worker:{build}"), &["--format={{.Digest}}"]);
    assert!(image.ends_with(tagged.trim()), "{tagged}");
}

/// The Job's own script, run by buildah with the Job's own volumes and variables, makes an image that carries its config; a step that
/// fails is on the pool with buildah's words, four tries later; the corrected one is built.
#[tokio::test]
#[ignore = "half a minute of real buildah: ./test all"]
async fn containerfile_becomes_image_by_real_buildah() {
    if let Some(program) = missing() {
        return not_run(NAME, program);
    }
    let lab = tempfile::tempdir().unwrap();
    let registry = Registry::start();
    let base = push(
        lab.path(),
        &root(lab.path(), "base", &["sh", "rm", "cat", "echo", "false"], false),
        &registry.address,
    );
    let image = root(lab.path(), "agent", &["cp"], true);
    let conf = format!(
        "registriesConf: |\n  [[registry]]\n  location = \"{}\"\n  insecure = true\n",
        registry.address
    );
    let builds = Builds::with_settings(&registry.address, &conf).await;
    let config = MachineConfigBuilder::new("99-base").os_image_url(&base).file("/etc/app.d/a", 0o644, "a");
    builds.cluster.config("worker", config.link("/etc/app.conf", "app.d/a")).await;
    let _controller = builds.start("a", &[]);
    let jobs = JobController::start(&builds.cluster.bench, Plays::Running).await;
    let pods = lab.path().join("pods");
    let _runner = PodRunner::start(&builds.cluster.bench, &pods, &[("registry.test/agent:1", &image)]).await;
    builds.secret().await;
    builds.os_config("FROM configs AS final\nRUN echo user >/usr/share/user && cat /etc/app.conf").await;
    let (first, image) = builds.until_published("").await;
    is_pushed(&image, &registry.address, &first);
    jobs.until_gone().await;
    // A step that fails.
    let text = |text: &str| json!({ "spec": spec(text, &builds.repository) });
    builds.patch_os_config(text("FROM configs AS final\nRUN echo its cause && false")).await;
    let failed = builds.until_condition("True", "BuildFailed").await;
    let message = failed["message"].as_str().unwrap();
    assert!(message.contains("its cause") && message.contains("exit status 1"), "{message}");
    assert_eq!(
        jobs.objects().await.iter().filter(|name| name.starts_with("build-")).count(),
        1 + 4,
        "Job and pods stay"
    );
    builds.patch_os_config(text("FROM configs AS final\nRUN echo corrected >/usr/share/user")).await;
    let (second, other) = builds.until_published(&first).await;
    assert_ne!(other, image);
    let label = ListParams::default().labels(&format!("{}={second}", key("machine-os-build")));
    let listed = builds.builds().list(&label).await.unwrap();
    assert_eq!(listed.items.iter().map(ResourceExt::name_any).collect::<Vec<_>>(), [second]);
}

/// The base image comes from the mirror of the rendered config, over TLS that the cluster's authority of that registry proves, and the
/// image is pushed there; the build settings know nothing of it.
#[tokio::test]
#[ignore = "half a minute of real buildah: ./test all"]
async fn build_pulls_as_nodes_do() {
    if let Some(program) = missing() {
        return not_run("build_real::build_pulls_as_nodes_do", program);
    }
    let lab = tempfile::tempdir().unwrap();
    let (registry, authority) = Registry::with_tls();
    let base = root(lab.path(), "base", &["sh", "rm", "cat"], false);
    let base = push(lab.path(), &base, &registry.address);
    let image = root(lab.path(), "agent", &["cp"], true);
    let (_, digest) = base.split_once('@').unwrap();
    let builds = Builds::pushing_to(&registry.address).await;
    let mirror = format!(
        "[[registry]]\nlocation = \"mirrored.test\"\n[[registry.mirror]]\nlocation = \"{}\"\n",
        registry.address
    );
    let config = MachineConfigBuilder::new("99-base").os_image_url(&format!("mirrored.test/base@{digest}"));
    let config = config.file("/etc/containers/registries.conf", 0o644, mirror);
    builds.cluster.config("worker", config).await;
    let authority = serde_json::to_value(ByteString(authority.into_bytes())).unwrap();
    let bundle = json!([{ "file": registry.address.replace(':', ".."), "data": authority }]);
    builds.controller_config(&json!({ "imageRegistryBundleUserData": bundle })).await;
    let _controller = builds.start("a", &[]);
    let _jobs = JobController::start(&builds.cluster.bench, Plays::Running).await;
    let pods = lab.path().join("pods");
    let _runner = PodRunner::start(&builds.cluster.bench, &pods, &[("registry.test/agent:1", &image)]).await;
    builds.secret().await;
    builds.os_config("FROM configs AS final\nRUN true").await;
    let (first, image) = builds.until_published("").await;
    is_pushed(&image, &registry.address, &first);
}

/// The parts of a message by which buildah has taken a text, and misses what these tests do not have: a shell, files, images.
const TAKEN: [&str; 4] = [
    "exit status ",
    "no such file or directory",
    "no stage or image found with that name",
    "image not known",
];

/// Builds a Containerfile; returns whether it was built, and the last line that buildah prints.
fn build(lab: &Path, text: &str) -> (bool, String) {
    let context = lab.join("context");
    std::fs::create_dir_all(&context).unwrap();
    let file = lab.join("Containerfile");
    std::fs::write(&file, text).unwrap();
    std::fs::write(lab.join("policy.json"), r#"{"default": [{"type": "insecureAcceptAnything"}]}"#).unwrap();
    let mut command = Command::new("buildah");
    command.arg("--root").arg(lab.join("root")).arg("--runroot").arg(lab.join("runroot"));
    command.args(["--storage-driver", "vfs", "build", "--isolation", "chroot", "--pull-never", "--no-cache"]);
    command.arg("--signature-policy").arg(lab.join("policy.json")).arg("-f").arg(&file).arg(&context);
    let output = command.stdin(Stdio::null()).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.success(), error.trim_end().lines().last().unwrap_or_default().to_owned())
}

/// The verdicts of `containerfiles.tsv`, which our check of a Containerfile gives as well, by the builder that is installed. Rows with
/// here-documents need one that knows them (buildah 1.33); an older one takes their lines for instructions.
#[test]
#[ignore = "a build for each row: ./test all"]
fn containerfiles_have_verdicts_of_real_buildah() {
    let name = "build_real::containerfiles_have_verdicts_of_real_buildah";
    if Command::new("buildah").arg("--version").output().is_err() {
        return not_run(name, "buildah");
    }
    let lab = tempfile::tempdir().unwrap();
    let (knows_heredocs, _) = build(lab.path(), "FROM scratch\nCOPY <<EOF /x\na\nEOF\n");
    let (mut wrong, mut checked) = (Vec::new(), 0);
    for row in include_str!("../../src/image/containerfiles.tsv").lines() {
        let (verdict, text) = row.split_once('\t').unwrap();
        let text: String = serde_json::from_str(text).unwrap();
        if text.contains("<<") && !knows_heredocs {
            continue;
        }
        checked += 1;
        let (mark, text) = text.strip_prefix('\u{feff}').map_or(("", &*text), |text| ("\u{feff}", text));
        let whole = format!("{mark}FROM scratch AS configs\nLABEL a=1\n{text}");
        // `late`: left to the builder, which refuses it.
        let (is_built, last) = build(lab.path(), &whole);
        let is_taken = is_built || TAKEN.iter().any(|part| last.contains(part));
        // A step fails before the line that is wrong: nothing follows for this row.
        let is_open = verdict == "no" && text.contains("<<- EOF") && last.contains("exit status ");
        if !is_open && is_taken != (verdict == "yes") {
            wrong.push(format!("{verdict}: {text:?}: {last}"));
        }
    }
    assert!(wrong.is_empty(), "{} of {checked}:\n{}", wrong.len(), wrong.join("\n"));
    assert!(checked >= 40, "{checked}");
    if !knows_heredocs {
        not_run(&format!("{name} (here-documents)"), "buildah 1.33");
    }
}
