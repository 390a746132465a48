//! The verbs of `seed`, on a real sysroot, as `tests/os/stateroot.rs`; services are those of a double of systemd.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use machine_config_agent::model::ImageRef;
use machine_config_agent::sandbox::IMAGES;
use serde_json::{Value, json};

use crate::backend_env::{Lab, Machine, doubles};
use crate::registry;
use crate::stateroot::{NAME, Ran, fits_schema, lab, running, stateroot, unchanged};

/// The services, and the states in which the tests leave them.
const SERVICES: [&str; 2] = ["kubelet.service", "crio.service"];

/// What no seed may hold.
pub const SECRET: &str = "SECRET-OF-";

pub const OWN: &str = "var/lib/machine-config-agent/machine-config-agent-seed";

/// The deployment of the running system.
fn deployment(lab: &Lab) -> PathBuf {
    let deploy = lab.world.dir().join("sysroot/ostree/deploy/sandbox/deploy");
    let mut names = fs::read_dir(&deploy).unwrap().map(|entry| entry.unwrap().path());
    names.find(|path| path.is_dir()).unwrap()
}

/// A path below `/etc` or `/var` of the running system, from outside.
pub fn host(lab: &Lab, path: &str) -> PathBuf {
    let stateroot = lab.world.dir().join("sysroot/ostree/deploy/sandbox");
    if path.starts_with("var/") { stateroot.join(path) } else { deployment(lab).join(path) }
}

pub fn put(lab: &Lab, path: &str, text: &str) {
    let path = host(lab, path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

/// The files that make a host this one.
const IDENTITY: [&str; 6] = [
    "etc/machine-id",
    "etc/hostname",
    "etc/ssh/ssh_host_ed25519_key",
    "etc/NetworkManager/system-connections/wired.nmconnection",
    "var/lib/kubelet/pki/kubelet-client-current.pem",
    "var/lib/kubelet/config.json",
];

/// A host with an identity, secrets of its cluster, and a committed config.
pub fn host_of(name: &str) -> Lab {
    let lab = lab();
    for path in IDENTITY {
        put(&lab, path, &format!("{SECRET}{name} {path}\n"));
    }
    for path in
        ["var/lib/etcd/db", "etc/kubernetes/static-pod-resources/key", "var/log/messages", "var/tmp/x"]
    {
        put(&lab, path, &format!("{SECRET}{name} {path}\n"));
    }
    let files = json!([{"path": "/var/lib/kubelet/config.json", "contents": {"source": format!("data:,{SECRET}{name}")}},
        {"path": "/etc/seed.conf"}]);
    let config = json!({"apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig",
        "metadata": {"name": "rendered-worker-seed"}, "spec": {"kernelArguments": ["seed=1"],
        "config": {"ignition": {"version": "3.4.0"}, "storage": {"files": files}}}});
    put(&lab, "etc/machine-config-daemon/currentconfig", &config.to_string());
    // For tests that need a seed that takes long.
    put(&lab, "etc/machine-config-agent/settings.toml", "[seed]\ninclude = ['/var/lib/large']\n");
    lab
}

/// A boot with the services running.
pub fn boot(lab: &Lab) -> Machine {
    let boot = lab.boot();
    fs::create_dir_all(boot.run_dir().join("systemd/system")).unwrap();
    fs::create_dir_all(boot.run_dir().join("units")).unwrap();
    for unit in SERVICES {
        fs::write(boot.run_dir().join("units").join(unit), "active").unwrap();
    }
    doubles(&boot, &["systemd-double"], "systemd-double --bus {address} --units /run/units");
    boot
}

pub fn states(boot: &Machine) -> [String; 2] {
    SERVICES.map(|unit| fs::read_to_string(boot.run_dir().join("units").join(unit)).unwrap())
}

pub fn command(boot: &Machine, args: &[&str]) -> std::process::Command {
    let words = ["bash", "/run/doubles/with", "machine-config-agent", "seed"];
    boot.command(words.iter().chain(args))
}

pub fn ran(mut command: std::process::Command) -> Ran {
    let output = command.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ran { code: output.status.code().unwrap(), out: text(&output.stdout), err: text(&output.stderr) }
}

pub fn create(boot: &Machine, more: &[&str]) -> Ran {
    let args = ["create", "--image", "registry.test/seeds/sno:4.17.2", "--version", "4.17.2", "--yes"];
    let ran = ran(command(boot, &[&args[..], more].concat()));
    fits_schema("seed-create", &ran);
    ran
}

/// Services run, and of a seed in the making nothing is left.
pub fn as_it_was(lab: &Lab, boot: &Machine, when: &str) {
    assert_eq!(states(boot), ["active", "active"], "{when}");
    assert!(!host(lab, OWN).exists(), "{when}");
    assert!(!host(lab, "var/lib/machine-config-agent/seed.json").exists(), "{when}");
}

/// Takes the image of a seed into the images of another host.
fn carried(from: &Lab, to: &Lab) -> ImageRef {
    let (layout, images) = (host(from, OWN).join("image"), to.world.dir().join("images"));
    let read = |path: PathBuf| -> Value { serde_json::from_slice(&fs::read(path).unwrap()).unwrap() };
    let index = read(layout.join("index.json"));
    for entry in fs::read_dir(layout.join("blobs/sha256")).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), images.join("blobs/sha256").join(entry.file_name())).unwrap();
    }
    let mut all = read(images.join("index.json"));
    all["manifests"].as_array_mut().unwrap().push(index["manifests"][0].clone());
    fs::write(images.join("index.json"), all.to_string()).unwrap();
    let digest = index["manifests"][0]["digest"].as_str().unwrap();
    ImageRef::parse(&format!("oci:{IMAGES}@{digest}")).unwrap()
}

/// All contents below a directory, one text.
fn contents(top: &Path) -> String {
    let mut text = String::new();
    for entry in fs::read_dir(top).unwrap() {
        let entry = entry.unwrap();
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            text += &contents(&entry.path());
        } else if kind.is_file() {
            text += &String::from_utf8_lossy(&fs::read(entry.path()).unwrap());
        }
    }
    text
}

fn brings_up_another_host(form: &str) {
    let (a, b) = (host_of("A"), host_of("B"));
    put(&a, "etc/seed.conf", "of the seed\n");
    fs::remove_file(host(&a, "etc/motd")).unwrap();
    put(&a, "var/lib/app/data", "data of the seed\n");
    fs::hard_link(host(&a, "var/lib/app/data"), host(&a, "var/lib/app/second")).unwrap();
    put(&a, "var/lib/app/own/data", &format!("{SECRET}A\n"));
    let value = rustix::fs::XattrFlags::empty();
    rustix::fs::setxattr(host(&a, "var/lib/app/data"), "user.seed", b"1\n2=\0", value).unwrap();
    let on_a = boot(&a);
    let before = running(&a);
    let paths = ["--include", "/var/lib/app", "--exclude", "/var/lib/app/own"];
    let flags = [&["--form", form, "--output", "json"][..], &paths].concat();
    let run = create(&on_a, &flags);
    assert_eq!(run.code, 0, "{run:?}");
    assert_eq!((&run.json()["form"], &run.json()["version"]), (&json!(form), &json!("4.17.2")));
    assert_eq!(states(&on_a), ["active", "active"]);
    unchanged(&a, &before, "after it");
    // Once more takes its place.
    let again = create(&on_a, &flags);
    assert_eq!(again.code, 0, "{again:?}");
    let image = carried(&a, &b);
    assert_eq!(again.json()["digest"], format!("sha256:{}", image.digest()));

    let on_b = b.boot();
    let before = running(&b);
    let shown = stateroot(&on_b, &["inspect", &image.to_string(), "--output", "json"]).json();
    assert_eq!((&shown["layout"], &shown["refusals"]), (&json!(form), &json!([])), "{shown:#}");
    let run = stateroot(&on_b, &["prepare", &image.to_string(), "--version", "4.17.2", "--output", "json"]);
    assert_eq!(run.code, 0, "{run:?}");
    unchanged(&b, &before, "after it");
    let top = b.world.dir().join("sysroot/ostree/deploy").join(NAME);
    let made = run.json()["deployment"].as_str().unwrap().to_owned();
    let new = top.join("deploy").join(made.strip_prefix(&format!("{NAME}-")).unwrap());
    let at = |path: &str| if path.starts_with("var/") { top.join(path) } else { new.join(path) };
    let read = |path: &str| fs::read_to_string(at(path)).unwrap_or_else(|error| panic!("{path}: {error}"));
    assert_eq!(
        (read("etc/seed.conf"), read("var/lib/app/data")),
        ("of the seed\n".into(), "data of the seed\n".into())
    );
    assert!(!at("etc/motd").exists() && at("usr/etc/motd").exists(), "deleted by the seed");
    let inode = |path: &str| std::os::unix::fs::MetadataExt::ino(&fs::metadata(at(path)).unwrap());
    assert_eq!(inode("var/lib/app/data"), inode("var/lib/app/second"));
    let mut attribute = [0; 16];
    let length = rustix::fs::getxattr(at("var/lib/app/data"), "user.seed", &mut attribute[..]).unwrap();
    assert_eq!(attribute[..length], *b"1\n2=\0");
    for path in IDENTITY {
        assert_eq!(read(path), format!("{SECRET}B {path}\n"));
    }
    for path in
        ["var/lib/etcd/db", "etc/kubernetes/static-pod-resources/key", "var/log/messages", "var/lib/app/own"]
    {
        assert!(!at(path).exists(), "{path}");
    }
    let (etc, var) = (contents(&new.join("etc")), contents(&top.join("var")));
    let of_a = format!("{SECRET}A");
    assert!(!etc.contains(&of_a) && !var.contains(&of_a) && !contents(&new.join("usr")).contains(&of_a));
    assert!(etc.contains("rendered-worker-seed"), "the config came along");
    let listed = stateroot(&on_b, &["list", "--output", "json"]).json();
    let prepared = listed["stateroots"].as_array().unwrap().iter().find(|one| one["name"] == NAME).unwrap();
    let kargs = prepared["deployments"][0]["kernelArguments"].as_array().unwrap().clone();
    assert!(kargs.contains(&json!("seed=1")) && kargs.contains(&json!("ibu=4.17.2")), "{kargs:?}");
}

/// LCA-006, LCA-007: `/etc` and `/var` of host A come up on host B, with B's identity and none of A's.
#[test]
fn classic_seed_brings_up_another_host() {
    brings_up_another_host("classic");
}

/// LCA-016: a bootc seed is the booted image and one layer more.
#[test]
fn bootc_seed_brings_up_another_host() {
    brings_up_another_host("bootc");
}

/// Killed at any point, services run again and nothing is left, after `restore` or another `create`.
#[test]
fn create_recovers_from_kill() {
    let lab = host_of("A");
    let boot = boot(&lab);
    let args = ["create", "--image", "registry.test/s:1", "--version", "1", "--yes"];
    let with = |point: &str| {
        let mut command = command(&boot, &args);
        command.env("MCA_FAIL_POINT", point);
        ran(command)
    };
    let counted = with("count");
    let line = counted.out.lines().find_map(|line| line.strip_prefix("fail points: "));
    let points: usize = line.unwrap_or_else(|| panic!("{counted:?}")).parse().unwrap();
    assert!(points > 10, "{points}");
    let own = host(&lab, OWN);
    fs::remove_dir_all(&own).unwrap();
    let before = running(&lab);
    let mut stopped = 0;
    // The points of one write follow each other: some of them are those of all.
    for point in (1..=points).step_by((points / 8).max(1)) {
        let killed = with(&format!("kill:{point}"));
        assert_eq!(killed.code, 128 + 9, "{point}: {killed:?}");
        if !host(&lab, "var/lib/machine-config-agent/seed.json").exists() && own.exists() {
            // It was complete already.
            assert!(own.join("image/index.json").exists(), "{point}");
            fs::remove_dir_all(&own).unwrap();
        }
        stopped += usize::from(states(&boot).contains(&"inactive".to_owned()));
        if point % 2 == 0 {
            let run = create(&boot, &[]);
            assert_eq!(run.code, 0, "{point}: {run:?}");
            fs::remove_dir_all(&own).unwrap();
        } else {
            let run = ran(command(&boot, &["restore"]));
            assert_eq!(run.code, 0, "{point}: {run:?}");
        }
        as_it_was(&lab, &boot, &format!("after {point}"));
        unchanged(&lab, &before, &format!("after {point}"));
    }
    assert!(stopped > 0, "no kill found a stopped service");
}

/// Answers every request with one status.
pub fn refusing_registry(status: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    // It ends with the test's process.
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { continue };
            let mut request = [0; 8192];
            if stream.read(&mut request).is_ok() {
                let answer = format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
                drop(stream.write_all(answer.as_bytes()));
            }
        }
    });
    address
}

/// A seed that is pushed is at the registry under the digest that was told, and nothing of it stays here.
#[test]
fn pushed_seed_is_at_the_registry() {
    if !registry::is_here() {
        crate::ran::not_run("pushed_seed_is_at_the_registry", "docker-registry");
        return;
    }
    let server = registry::Registry::start(true);
    let lab = host_of("A");
    let boot = boot(&lab);
    let auth = base64::engine::general_purpose::STANDARD.encode(format!(
        "{}:{}",
        registry::USER,
        registry::PASSWORD
    ));
    let auth = json!({"auths": {(&*server.address): {"auth": auth}}}).to_string();
    // The pull secret of the node serves both.
    put(&lab, "var/lib/kubelet/config.json", &auth);
    let trusted = format!("[[registry]]\nlocation = \"{}\"\ninsecure = true\n", server.address);
    put(&lab, "etc/containers/registries.conf", &trusted);
    for form in ["classic", "bootc"] {
        let image = format!("{}/seeds/{form}:1", server.address);
        let args =
            ["create", "--image", &image, "--version", "1", "--yes", "--form", form, "--output", "json"];
        let run = ran(command(&boot, &[&args[..], &["--push"]].concat()));
        assert_eq!(run.code, 0, "{run:?}");
        as_it_was(&lab, &boot, form);
        let pushed = format!("{}/seeds/{form}@{}", server.address, run.json()["digest"].as_str().unwrap());
        let shown = stateroot(&boot, &["inspect", &pushed, "--output", "json"]);
        assert_eq!(shown.json()["layout"], form, "{shown:?}");
    }
}

/// A registry that refuses the image, with credentials that no message shows.
#[test]
fn refused_push_leaves_the_host_as_it_was() {
    let lab = host_of("A");
    let boot = boot(&lab);
    put(
        &lab,
        "etc/push.json",
        &json!({"auths": {"127.0.0.1": {"auth": "aHVudGVyMjpodW50ZXIy"}}}).to_string(),
    );
    for status in ["401 Unauthorized", "500 Internal Server Error"] {
        let address = refusing_registry(status);
        let trusted = format!("[[registry]]\nlocation = \"{address}\"\ninsecure = true\n");
        put(&lab, "etc/containers/registries.conf", &trusted);
        let image = format!("{address}/seed:1");
        let args = [
            "create",
            "--image",
            &image,
            "--version",
            "1",
            "--yes",
            "--push",
            "--authfile",
            "/etc/push.json",
        ];
        let run = ran(command(&boot, &args));
        assert_eq!(run.code, 4, "{status}: {run:?}");
        assert!(
            run.err.contains(&image) && run.err.contains("Next: ") && !run.err.contains("aHVudGVyMjpodW50"),
            "{run:?}"
        );
        assert!(run.err.contains(&status[..3]) || run.err.to_lowercase().contains("unauthorized"), "{run:?}");
        as_it_was(&lab, &boot, status);
    }
}

/// The agent of the node carries out another config while the services rest: a seed of both would be of neither.
#[test]
fn update_while_the_host_is_archived_ends_the_seed() {
    let lab = host_of("A");
    put(&lab, "etc/seed.conf", "");
    let current: Value =
        serde_json::from_slice(&fs::read(host(&lab, "etc/machine-config-daemon/currentconfig")).unwrap())
            .unwrap();
    // The pull secret needs no reboot, so its update ends at once; a file does, so its update stays open.
    for (name, index) in [("secret", 0), ("file", 1)] {
        let mut other = current.clone();
        other["metadata"]["name"] = json!(format!("rendered-worker-{name}"));
        // The verb below has no OS backend.
        other["spec"]["kernelArguments"] = json!([]);
        other["spec"]["config"]["storage"]["files"][index]["contents"] = json!({"source": "data:,other"});
        put(&lab, &format!("etc/{name}.json"), &other.to_string());
    }
    // It is run between the record of the services and the archives.
    let client = deployment(&lab).join("usr/bin/crictl");
    let script = |update: &str| {
        let text =
            format!("#!/bin/bash\ncase $1 in ps) {update};; images) echo '{{\"images\": []}}';; esac\n");
        fs::write(&client, text).unwrap();
        fs::set_permissions(&client, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    };
    script("true");
    let boot = boot(&lab);
    let run = create(&boot, &[]);
    assert_eq!(run.code, 0, "{run:?}");
    fs::remove_dir_all(host(&lab, OWN)).unwrap();
    for name in ["secret", "file"] {
        let apply = format!("apply --to /etc/{name}.json --yes --no-reboot --os-backend none");
        script(&format!("machine-config-agent {apply} >&2"));
        let run = create(&boot, &[]);
        assert!(run.code == 4 && run.err.contains("an update changed this host"), "{name}: {run:?}");
        as_it_was(&lab, &boot, name);
        assert_eq!(host(&lab, "var/lib/machine-config-agent/record.json").exists(), name == "file");
    }
}

#[test]
fn seed_that_can_not_be_made_changes_nothing() {
    let lab = host_of("A");
    let boot = boot(&lab);
    let refused = |run: &Ran, code: i32, told: &str| {
        assert!(run.code == code && run.err.contains(told), "{told}: {run:?}");
        as_it_was(&lab, &boot, told);
    };
    let unasked = ["create", "--image", "registry.test/s:1", "--version", "1"];
    refused(&ran(command(&boot, &unasked)), 2, "--yes");
    refused(&create(&boot, &["--exclude", "/usr/x"]), 3, "is not a path below /etc or /var");
    refused(&create(&boot, &["--directory", "x"]), 2, "absolute path");
    // A disk that is full in the middle.
    let full = "mkdir -p /run/small && /run/host/usr/bin/mount -t tmpfs -o size=16k tmpfs /run/small && bash /run/doubles/with \
        machine-config-agent seed create --image registry.test/s:1 --version 1 --yes --directory /run/small";
    refused(&ran(boot.command(["bash", "-c", full])), 4, "Next: ");
    // A file that no reader takes: it takes no room.
    let large = fs::File::create(host(&lab, "var/lib/vast")).unwrap();
    large.set_len(9 << 30).unwrap();
    refused(&create(&boot, &["--include", "/var/lib/vast"]), 3, "var/lib/vast");
    refused(&create(&boot, &["--include", "/etc/machine-id"]), 3, "/etc/machine-id is never in a seed");
    let run = create(&boot, &[]);
    assert_eq!(run.code, 0, "{run:?}");
    fs::remove_dir_all(host(&lab, OWN)).unwrap();
    // The config of the host.
    let config = "etc/machine-config-daemon/currentconfig";
    put(&lab, config, "{\"spec\": SECRET-OF-A");
    let run = create(&boot, &[]);
    refused(&run, 4, "currentconfig can't be read");
    assert!(!run.err.contains(SECRET), "{run:?}");
    fs::remove_file(host(&lab, config)).unwrap();
    refused(&create(&boot, &[]), 4, "no config is committed");
}
