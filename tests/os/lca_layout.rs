//! A reader of classic seeds that is not the agent's: the steps of lifecycle-agent's `ibu-stateroot-setup` (`internal/prep/prep.go`) in their
//! order, by the programs that it runs. It knows the layout alone.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::backend_env::Lab;
use crate::seed::{OWN, boot, create, host, host_of, put};
use crate::stateroot::run;

fn json(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

/// Unpacks the last layer of the seed that a host has made.
fn mounted(lab: &Lab, to: &Path) {
    let layout = host(lab, OWN).join("image");
    let blob =
        |digest: &Value| layout.join("blobs/sha256").join(&digest.as_str().unwrap()["sha256:".len()..]);
    let manifest = json(&blob(&json(&layout.join("index.json"))["manifests"][0]["digest"]));
    for layer in manifest["layers"].as_array().unwrap() {
        unpack(&blob(&layer["digest"]), to);
    }
}

fn unpack(archive: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    let flags = ["--xattrs", "--xattrs-include=*", "--acls", "-xf"];
    run("tar", &[&flags[..], &[archive.to_str().unwrap(), "-C", to.to_str().unwrap()]].concat());
}

/// Go's `os.Remove`: a file, or an empty directory.
fn remove(path: &Path) {
    let removed = fs::remove_file(path).or_else(|_| fs::remove_dir(path));
    removed.unwrap_or_else(|error| panic!("failed to remove {}: {error}", path.display()));
}

/// What the seed becomes: the repository, the deployment and the stateroot.
struct Setup {
    _dir: tempfile::TempDir,
    repo: String,
    deployment: PathBuf,
    stateroot: PathBuf,
}

fn setup(lab: &Lab, version: &str) -> Setup {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let seed = at("seed");
    mounted(lab, &seed);
    let status = json(&seed.join("rpm-ostree.json"));
    let booted = status["deployments"].as_array().unwrap().iter().find(|one| one["booted"] == true).unwrap();
    let deployment = booted["id"].as_str().unwrap().rsplit('-').next().unwrap();
    let commit = deployment.split('.').next().unwrap();
    assert_eq!(json(&seed.join("manifest.json"))["seed_cluster_ocp_version"], version);

    unpack(&seed.join("ostree.tgz"), &at("workspace"));
    let repo = format!("--repo={}", at("repo").display());
    run("ostree", &[&repo, "init", "--mode=bare"]);
    run("ostree", &[&repo, "pull-local", at("workspace").to_str().unwrap()]);
    let config = json(&seed.join("mco-currentconfig.json"));
    assert!(config["spec"]["kernelArguments"].as_array().unwrap().iter().all(Value::is_string));
    let (made, stateroot) = (at("deployment"), at("stateroot"));
    run("ostree", &[&repo, "checkout", commit, made.to_str().unwrap()]);
    run("cp", &["-a", made.join("usr/etc").to_str().unwrap(), made.join("etc").to_str().unwrap()]);

    let origin = fs::read_to_string(seed.join(format!("ostree-{deployment}.origin"))).unwrap();
    assert!(origin.contains("[origin]"), "{origin}");
    unpack(&seed.join("var.tgz"), &stateroot);
    unpack(&seed.join("etc.tgz"), &made);
    for line in fs::read_to_string(seed.join("etc.deletions")).unwrap().lines() {
        remove(&made.join(line.trim_matches(' ').trim_start_matches('/')));
    }
    fs::read_to_string(seed.join("containers.list")).unwrap();
    Setup { repo, deployment: made, stateroot, _dir: dir }
}

/// LCA-005: lifecycle-agent finds everything where it looks for it, removes each deletion, and gets the layers of the booted image.
#[test]
fn lifecycle_agent_reads_own_seeds() {
    let lab = host_of("A");
    put(&lab, "etc/seed.conf", "of the seed\n");
    put(&lab, "var/lib/app/data", "data of the seed\n");
    // A directory that the image has, with all in it, and a file.
    let image = host(&lab, "usr/etc");
    let is_full = |path: &PathBuf| path.is_dir() && fs::read_dir(path).unwrap().next().is_some();
    let mut names = fs::read_dir(&image).unwrap().map(|entry| entry.unwrap().path());
    let gone = names.find(is_full).expect("the image has a directory in /etc");
    let gone = format!("etc/{}", gone.file_name().unwrap().to_str().unwrap());
    fs::remove_dir_all(host(&lab, &gone)).unwrap();
    fs::remove_file(host(&lab, "etc/motd")).unwrap();
    let on_host = boot(&lab);
    let made = create(&on_host, &["--form", "classic", "--include", "/var/lib/app"]);
    assert_eq!(made.code, 0, "{made:?}");

    let found = setup(&lab, "4.17.2");
    let read = |top: &Path, path: &str| fs::read_to_string(top.join(path)).unwrap();
    assert_eq!(read(&found.deployment, "etc/seed.conf"), "of the seed\n");
    assert_eq!(read(&found.stateroot, "var/lib/app/data"), "data of the seed\n");
    assert!(!found.deployment.join("etc/motd").exists() && !found.deployment.join(&gone).exists(), "{gone}");
    run("ostree", &[&found.repo, "fsck", "--quiet"]);
    let names = |repo: &str, prefix: &str| -> Vec<String> {
        run("ostree", &[repo, "refs", "--list", prefix]).lines().map(str::to_owned).collect()
    };
    let own = format!("--repo={}", lab.world.dir().join("sysroot/ostree/repo").display());
    for prefix in ["ostree/container/blob", "ostree/container/image"] {
        let (mut here, mut there) = (names(&own, prefix), names(&found.repo, prefix));
        here.sort();
        there.sort();
        assert!(!here.is_empty() && here == there, "{prefix}: {here:?}, {there:?}");
    }
}
