//! Checks of an image before and while it is pulled, and the choice of the backend: free space, architecture, layers that
//! were not verified, the causes of failures. On a real sysroot, as `tests/os/contract.rs`.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::backend_env::{Backend, Lab, call, doubles, file, lab, labels, ok, progress, staged};
use machine_config_agent::model::{ImageRef, Sha256};
use machine_config_agent::sandbox::{Booted, IMAGES, LINK, LayerFile, SandboxError, SandboxHost};
use serde_json::Value;

/// Remains of a pull that was cut off before a layer was verified: the layer's name, and the file that records it.
#[test]
fn unverified_layer_is_pulled_again() {
    let lab = lab(Backend::Ostree);
    let Lab { world, v2, .. } = &lab;
    let boot = lab.boot();
    let name = v2.to_string();
    ok(&boot, &["stage", &name]);
    let ostree = world.dir().join("sysroot/ostree");
    assert!(!ostree.join("machine-config-agent-unverified").exists(), "what was verified is not doubted");
    ok(&boot, &["unstage"]);
    let repo = format!("--repo={}", ostree.join("repo").display());
    let refs = |args: &[&str]| {
        let output = std::process::Command::new("ostree").args(["refs", &repo]).args(args).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let all = refs(&[]);
    let of = |prefix: &str| all.lines().filter(|line| line.starts_with(prefix)).collect::<Vec<_>>();
    let digest = v2.digest().to_string();
    let image = of("ostree/container/image/").into_iter().find(|name| name.contains(&digest)).unwrap();
    refs(&["--delete", image]);

    // As it is, the layer needs no pull.
    let answer = call(&boot, &["preflight", &name]);
    assert_eq!(answer["ok"]["download"], 0, "{answer:#}");
    let layers = of("ostree/container/blob/").join("\n") + "\n";
    fs::write(ostree.join("machine-config-agent-unverified"), layers).unwrap();
    let answer = call(&boot, &["stage", &name]);
    assert!(progress(&answer).contains("pulling layer 1 of "), "{answer:#}");
    assert_eq!(answer["ok"]["image"], name);
    assert!(!ostree.join("machine-config-agent-unverified").exists());
}

/// A switch calls the daemon of rpm-ostree next: it starts while the image is read.
#[test]
fn preflight_calls_daemon_meanwhile() {
    let lab = lab(Backend::Ostree);
    let boot = lab.boot();
    doubles(&boot, &["rpm-ostreed"], "rpm-ostreed --bus {address} --sysroot --tell");
    let call =
        ["machine-config-agent", "os-call", "--backend", "rpm-ostree", "preflight", &lab.v2.to_string()];
    let output = boot.command(["bash", "/run/doubles/with"].iter().chain(&call)).output().unwrap();
    let log = String::from_utf8_lossy(&output.stderr);
    assert!(log.contains("registered machine-config-agent"), "{log}");
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(answer["ok"]["carries"]["config"], "rendered-worker-b", "{answer:#}");
}

/// MCD-257: pulls of a control plane's node sync each object; asked twice, the repository's file is written once.
#[test]
fn per_object_fsync_is_set_once() {
    let lab = lab(Backend::Ostree);
    let boot = lab.boot();
    let config = lab.world.dir().join("sysroot/ostree/repo/config");
    assert!(!fs::read_to_string(&config).unwrap().contains("per-object-fsync"));
    ok(&boot, &["per-object-fsync"]);
    let text = fs::read_to_string(&config).unwrap();
    assert!(text.lines().any(|line| line == "per-object-fsync=true"), "{text}");
    let written = fs::metadata(&config).unwrap().modified().unwrap();
    ok(&boot, &["per-object-fsync"]);
    assert_eq!(fs::metadata(&config).unwrap().modified().unwrap(), written);
    assert_eq!(fs::read_to_string(&config).unwrap(), text);
}

/// The programs of the booted image decide the backend. MCD-207: none where no image is booted.
#[test]
fn backend_is_chosen_by_installed_programs() {
    let lab = lab(Backend::Ostree);
    let chosen = |booted: &Booted| {
        let output = booted.command(["machine-config-agent", "os-call", "choose"]).output().unwrap();
        let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
        (answer["ok"][0].as_str().unwrap().to_owned(), answer["ok"][1].as_str().unwrap().to_owned())
    };
    let boot = lab.boot();
    assert_eq!(chosen(&boot).0, "ostree");
    fs::remove_file(boot.run_dir().join("ostree-booted")).unwrap();
    let (name, reason) = chosen(&boot);
    assert!(name == "none" && reason.contains("/run/ostree-booted"), "{reason}");
    fs::write(boot.run_dir().join("ostree-booted"), "").unwrap();

    let service =
        file("usr/share/dbus-1/system-services/org.projectatomic.rpmostree1.service", "[D-BUS Service]\n");
    let v3 = lab.world.derive(&lab.v1, "v3", &[service], &labels("c")).unwrap();
    ok(&boot, &["stage", &v3.to_string()]);
    boot.shutdown();
    let (name, reason) = chosen(&lab.boot());
    assert!(name == "rpm-ostree" && reason.contains("rpm-ostree is installed"), "{name}: {reason}");
}

/// A name below /etc that needs a PAX header (not ASCII, or too long) comes to /usr/etc as any other, through all layers: a later one
/// replaces and removes it. So it does where an older agent has pulled the image already.
#[test]
fn odd_names_below_etc_are_deployed() {
    let lab = lab(Backend::Ostree);
    let Lab { world, v2, .. } = &lab;
    let odd = "etc/pki/ca-trust/source/anchors/Zertifizierungsstelle-Köln.crt";
    let (gone, whiteout) = ("etc/ünd/gone", "etc/ünd/.wh.gone");
    let long = format!("etc/{}/{}", "d".repeat(120), "f".repeat(200));
    let link = LayerFile { path: "etc/lïnk".to_owned(), mode: LINK | 0o777, contents: b"motd".to_vec() };
    let plain = file("etc/pki/ca-trust/source/anchors/plain.crt", "plain\n");
    let first = [file(odd, "one\n"), file(gone, ""), file(&long, "long\n"), link, plain];
    let v3 = world.derive(v2, "v3", &first, &labels("rendered-worker-c")).unwrap();
    let second = [file(odd, "two\n"), file(whiteout, "")];
    let v4 = world.derive(&v3, "v4", &second, &labels("rendered-worker-d")).unwrap();
    let boot = lab.boot();
    let look = |image: &ImageRef| {
        let answer = call(&boot, &["stage", &image.to_string()]);
        assert_eq!(answer["ok"]["image"], image.to_string(), "{answer:#}");
        let deployment = answer["ok"]["deployment"].as_str().unwrap();
        let (stateroot, checkout) = deployment.split_once('-').unwrap();
        world.dir().join("sysroot/ostree/deploy").join(stateroot).join("deploy").join(checkout).join("usr")
    };
    let usr = look(&v3);
    let read = |usr: &Path, path: &str| fs::read_to_string(usr.join(path)).unwrap();
    assert_eq!((read(&usr, odd), read(&usr, &long)), ("one\n".to_owned(), "long\n".to_owned()));
    assert_eq!(read(&usr, "etc/pki/ca-trust/source/anchors/plain.crt"), "plain\n");
    assert!(usr.join(gone).exists());
    assert_eq!(fs::read_link(usr.join("etc/lïnk")).unwrap(), Path::new("motd"));
    let usr = look(&v4);
    assert_eq!(read(&usr, odd), "two\n");
    assert!(!usr.join(gone).exists() && !usr.join(whiteout).exists());
    assert_eq!(read(&usr, "etc/motd"), "version 2\n");
    boot.shutdown();
    let boot = lab.boot();
    let text = boot.command(["cat", &format!("/{odd}")]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&text.stdout), "two\n");
}

/// Makes an image of another one whose config was changed.
fn reconfigured(world: &SandboxHost, image: &ImageRef, change: impl FnOnce(&mut Value)) -> ImageRef {
    let layout = world.dir().join("images");
    let blobs = layout.join("blobs/sha256");
    let read = |digest: &str| -> Value {
        serde_json::from_slice(&fs::read(blobs.join(digest.trim_start_matches("sha256:"))).unwrap()).unwrap()
    };
    let write = |value: &Value| {
        let text = value.to_string();
        let digest = Sha256::digest(text.as_bytes()).to_string();
        fs::write(blobs.join(&digest), &text).unwrap();
        (format!("sha256:{digest}"), text.len())
    };
    let mut manifest = read(&image.digest().to_string());
    let mut config = read(manifest["config"]["digest"].as_str().unwrap());
    change(&mut config);
    let (digest, size) = write(&config);
    (manifest["config"]["digest"], manifest["config"]["size"]) = (digest.into(), size.into());
    let (digest, size) = write(&manifest);
    let mut index: Value = serde_json::from_slice(&fs::read(layout.join("index.json")).unwrap()).unwrap();
    let media = "application/vnd.oci.image.manifest.v1+json";
    let entry = serde_json::json!({"mediaType": media, "digest": digest, "size": size});
    index["manifests"].as_array_mut().unwrap().push(entry);
    fs::write(layout.join("index.json"), index.to_string()).unwrap();
    ImageRef::parse(&format!("oci:{IMAGES}@{digest}")).unwrap()
}

/// An image that can't boot here is refused before a layer is pulled, with both architectures.
#[test]
fn unbootable_image_is_not_pulled() {
    let lab = lab(Backend::Ostree);
    let Lab { world, v2, .. } = &lab;
    let boot = lab.boot();
    let foreign = reconfigured(world, v2, |config| config["architecture"] = "s390x".into());
    let plain = reconfigured(world, v2, |config| {
        let labels = config.pointer_mut("/config/Labels").and_then(Value::as_object_mut).unwrap();
        labels.retain(|name, _| !["ostree.bootable", "containers.bootc"].contains(&name.as_str()));
    });
    for (image, reason, part) in [
        (foreign, "ImageWrongArchitecture", "Image has architecture s390x; expected "),
        (plain, "ImageNotBootable", "does not have ostree.bootable"),
    ] {
        for verb in ["preflight", "stage"] {
            let answer = call(&boot, &[verb, &image.to_string()]);
            assert_eq!(
                (&answer["reason"], &answer["class"]),
                (&reason.into(), &"degraded".into()),
                "{answer:#}"
            );
            let text = answer["error"].as_str().unwrap();
            assert!(text.contains(part) && text.contains(&image.to_string()), "{text}");
        }
        assert_eq!(staged(&boot), Value::Null);
    }
    let found = ok(&boot, &["preflight", &v2.to_string()]);
    assert_eq!(found["carries"]["config"], "rendered-worker-b");
    let missing = found["download"].as_u64().unwrap();
    assert!(missing > 0, "{found}");
    ok(&boot, &["stage", &v2.to_string()]);
    assert_eq!(ok(&boot, &["preflight", &v2.to_string()])["download"], 0, "what is here is not pulled");
}

/// A bootable image of plain layers is for tooling that can deploy it; its content is known before.
#[test]
fn image_without_commit_needs_capable_backend() {
    for backend in [Backend::Ostree, Backend::RpmOstree, Backend::Bootc] {
        let lab = lab(backend);
        let boot = lab.boot();
        let image = reconfigured(&lab.world, &lab.v2, |config| {
            let labels = config.pointer_mut("/config/Labels").and_then(Value::as_object_mut).unwrap();
            labels.remove("ostree.final-diffid").unwrap();
        });
        let answer = call(&boot, &["preflight", &image.to_string()]);
        if backend == Backend::Ostree {
            assert_eq!(answer["reason"], "ImageNotBootable", "{answer:#}");
            assert!(answer["next"].as_str().unwrap().contains("bootc"), "{answer:#}");
        } else {
            assert_eq!(answer["ok"]["carries"]["config"], "rendered-worker-b", "{answer:#}");
            assert!(answer["ok"]["download"].as_u64() > Some(0), "{answer:#}");
        }
    }
}

/// Calls with a `/boot` of a size of its own, to which the files of the old one are copied.
fn with_boot_of(booted: &Booted, size: &str, args: &[&str]) -> Value {
    with_boot_after(booted, size, "true", args)
}

/// The same after a command has used `/boot`.
fn with_boot_after(booted: &Booted, size: &str, command: &str, args: &[&str]) -> Value {
    let script = format!(
        "mkdir /tmp/boot && cp -a /boot/. /tmp/boot && /run/host/usr/bin/mount -t tmpfs -o size={size} none /boot \
         && cp -a /tmp/boot/. /boot && {command} && exec {} os-call --backend ostree \"$@\"",
        machine_config_agent::sandbox::AGENT
    );
    let output = booted.command(["sh", "-c", &script, "sh"].iter().chain(args)).output().unwrap();
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|e| panic!("{args:?}: {e}: {}", String::from_utf8_lossy(&output.stderr)))
}

/// OST-008: a kernel that does not fit into a real, small `/boot` is refused, with needed and free bytes: before the
/// pull by an estimate where the image's base is not here, and before the staging, thus before a drain, for certain.
#[test]
fn kernel_too_large_for_boot_is_refused() {
    let lab = lab(Backend::Ostree);
    let Lab { world, v1, v2, .. } = &lab;
    let kernel = LayerFile {
        path: "usr/lib/modules/6.0.0-sandbox/vmlinuz".to_owned(),
        mode: 0o644,
        contents: vec![b'k'; 4 << 20],
    };
    let v3 = world.derive(v1, "v3", &[kernel], &labels("rendered-worker-c")).unwrap().to_string();
    let boot = lab.boot();
    // The base is here: the kernel most likely, too. What is known only after the pull is not guessed.
    assert_eq!(
        with_boot_of(&boot, "3m", &["preflight", &v3])["ok"]["carries"]["config"],
        "rendered-worker-c"
    );
    for verb in ["stage", "preflight", "stage"] {
        let answer = with_boot_of(&boot, "3m", &[verb, &v3]);
        assert_eq!(
            (&answer["reason"], &answer["class"]),
            (&"BootFull".into(), &"retry".into()),
            "{answer:#}"
        );
        let text = answer["error"].as_str().unwrap();
        assert!(text.contains("5.0 MiB are needed in /boot") && text.contains("2.9 MiB are free"), "{text}");
        assert_eq!(staged(&boot), Value::Null);
    }
    // With the kernel that is booted only a boot entry is written, but in the shutdown, where nothing can be told.
    let fill = "{ cat /dev/zero >/boot/fill 2>/dev/null || true; }";
    let answer = with_boot_after(&boot, "1m", fill, &["stage", &v2.to_string()]);
    assert_eq!(answer["reason"], "BootFull", "{answer:#}");
    let text = answer["error"].as_str().unwrap();
    assert!(text.contains("are needed in /boot for its boot entry"), "{text}");
    assert_eq!(staged(&boot), Value::Null);
    let answer = with_boot_of(&boot, "200k", &["stage", &v2.to_string()]);
    assert_eq!(answer["ok"]["image"], v2.to_string(), "{answer:#}");
    assert_eq!(with_boot_of(&boot, "8m", &["stage", &v3])["ok"]["image"], v3);

    // Another base: the estimate is the booted kernel's size, which is small here.
    let other = tempfile::tempdir().unwrap();
    SandboxHost::create(other.path(), &lab.agent, &labels("rendered-worker-z"), &|_| {}).unwrap();
    let (from, to) = (other.path().join("images"), world.dir().join("images"));
    for blob in fs::read_dir(from.join("blobs/sha256")).unwrap() {
        let blob = blob.unwrap();
        fs::copy(blob.path(), to.join("blobs/sha256").join(blob.file_name())).unwrap();
    }
    fs::copy(from.join("index.json"), to.join("index.json")).unwrap();
    let foreign = SandboxHost::open(other.path(), &lab.agent).unwrap().image("v1").unwrap().to_string();
    let answer = with_boot_of(&boot, "100k", &["preflight", &foreign]);
    assert_eq!(answer["reason"], "BootFull", "{answer:#}");
    assert!(answer["error"].as_str().unwrap().contains("about 1.0 MiB are needed in /boot"), "{answer:#}");
    assert!(with_boot_of(&boot, "2m", &["preflight", &foreign])["ok"]["download"].as_u64() > Some(0));
}

/// An image boots by its one kernel: none or several are a fault of the image, which no further try mends.
#[test]
fn image_without_exactly_one_kernel_is_not_bootable() {
    let lab = lab(Backend::Ostree);
    let Lab { world, v1, .. } = &lab;
    let boot = lab.boot();
    let file = |path: &str, contents: &[u8]| LayerFile {
        path: path.to_owned(),
        mode: 0o644,
        contents: contents.to_vec(),
    };
    let second = file("usr/lib/modules/7.0.0-sandbox/vmlinuz", b"k");
    let none = file("usr/lib/modules/6.0.0-sandbox/.wh.vmlinuz", b"");
    for (name, layer, words) in [
        ("two", second, "it has 2 kernels below /usr/lib/modules: 6.0.0-sandbox, 7.0.0-sandbox"),
        ("none", none, "it has no kernel below /usr/lib/modules"),
    ] {
        let image = world.derive(v1, name, &[layer], &labels("rendered-worker-c")).unwrap().to_string();
        let answer = call(&boot, &["stage", &image]);
        assert_eq!(
            (&answer["reason"], &answer["class"]),
            (&"ImageNotBootable".into(), &"degraded".into()),
            "{answer:#}"
        );
        assert!(answer["error"].as_str().unwrap().contains(words), "{answer:#}");
        assert!(answer["next"].as_str().unwrap().contains("exactly one kernel"), "{answer:#}");
        assert_eq!(staged(&boot), Value::Null);
    }
}

/// Space that libostree has to keep free is not counted as free: the pull would end in the middle.
#[test]
fn image_too_large_for_repository_is_not_pulled() {
    let lab = lab(Backend::Ostree);
    let Lab { world, v2, .. } = &lab;
    let boot = lab.boot();
    let config = world.dir().join("sysroot/ostree/repo/config");
    let text = fs::read_to_string(&config).unwrap();
    fs::write(&config, text.replace("[core]\n", "[core]\nmin-free-space-size=1000TB\n")).unwrap();
    for verb in ["preflight", "stage"] {
        let answer = call(&boot, &[verb, &v2.to_string()]);
        assert_eq!(
            (&answer["reason"], &answer["class"]),
            (&"SysrootFull".into(), &"retry".into()),
            "{answer:#}"
        );
        let text = answer["error"].as_str().unwrap();
        assert!(text.contains(" KiB are needed in /sysroot, 0 bytes are free"), "{text}");
        assert!(!progress(&answer).contains("pulling"), "{answer:#}");
    }
    fs::write(&config, text).unwrap();
    ok(&boot, &["stage", &v2.to_string()]);
}

/// OST-006: bootc's exit status and its last output are in the fault; nothing is left, and it is tried again.
#[test]
fn bootc_failure_is_reported() {
    let lab = lab(Backend::Bootc);
    let v2 = lab.v2.to_string();
    let boot = lab.boot();
    let fault = boot.run_dir().join("bootc-double/fault");
    fs::create_dir_all(fault.parent().unwrap()).unwrap();
    let cases = [
        ("fail Creating importer: unauthorized", "ImagePullUnauthorized", "ended with exit code 1"),
        ("fail something new", "BootcFailed", "warning: about to fail; error: something new"),
        ("silent", "ImageDigestMismatch", "what is staged is nothing"),
    ];
    for (text, reason, part) in cases {
        fs::write(&fault, text).unwrap();
        let answer = call(&boot, &["stage", &v2]);
        assert_eq!(answer["reason"], reason, "{answer:#}");
        let error = answer["error"].as_str().unwrap();
        assert!(error.contains(part) && error.contains(&v2), "{error}");
        assert_eq!(staged(&boot), Value::Null);
    }
    fs::remove_file(&fault).unwrap();
    let alpha = fault.with_file_name("alpha");
    fs::write(&alpha, "").unwrap();
    let staged = ok(&boot, &["stage", &v2]);
    let soft = || ok(&boot, &["soft-reboot", staged["deployment"].as_str().unwrap()]);
    let refused = || soft()["facts"]["refused"].as_str().unwrap_or_default().to_owned();
    assert!(refused().contains("does not know soft reboots"));
    fs::remove_file(&alpha).unwrap();
    assert!(refused().contains("needs a full reboot"));
    fs::write(fault.with_file_name("soft"), "").unwrap();
    let found = soft();
    assert!(found["facts"]["known"].as_object().unwrap().values().all(|met| met == true), "{found:#}");
    // Staged without: the host's own program prepares it.
    assert_eq!((&found["index"], &found["is_prepared"]), (&0.into(), &false.into()), "{found:#}");
    fs::create_dir_all(boot.run_dir().join("nextroot/usr")).unwrap();
    assert_eq!(soft()["is_prepared"], true);
}

/// bootc prepares a soft reboot only on request, and only of its own staged deployment: other arguments are another
/// deployment. An older bootc is not asked.
#[test]
fn bootc_prepares_desired_soft_reboot() {
    let lab = lab(Backend::Bootc);
    let v2 = lab.v2.to_string();
    let boot = lab.boot();
    let soft = boot.run_dir().join("bootc-double/soft");
    fs::create_dir_all(soft.parent().unwrap()).unwrap();
    fs::write(&soft, "").unwrap();
    let alpha = soft.with_file_name("alpha");
    let next_root = boot.run_dir().join("nextroot");
    for (words, old, expected) in [
        (&["stage", &v2][..], false, false),
        (&["stage", &v2, "soft", "+quiet"], false, false),
        (&["stage", &v2, "soft"], true, false),
        (&["stage", &v2, "soft"], false, true),
    ] {
        if old {
            fs::write(&alpha, "").unwrap();
        }
        assert_eq!(ok(&boot, words)["image"], v2);
        assert_eq!(next_root.join("usr").exists(), expected, "{words:?}, an old one: {old}");
        drop(fs::remove_file(&alpha));
        drop(fs::remove_dir_all(&next_root));
        ok(&boot, &["unstage"]);
    }
}

/// libostree's facts of a deployment, from the host alone before it is staged; a foreign one is an error.
#[test]
fn soft_reboot_needs_are_read_from_deployments() {
    let lab = lab(Backend::Ostree);
    let v2 = lab.v2.to_string();
    let boot = lab.boot();
    let known = |found: &Value| found["facts"]["known"].clone();
    let host = ok(&boot, &["soft-reboot"]);
    assert_eq!(known(&host)["stateroot"], true, "{host:#}");
    assert_eq!((&known(&host)["kernel"], &known(&host)["kargs"]), (&Value::Null, &Value::Null), "{host:#}");
    let staged = ok(&boot, &["stage", &v2]);
    let same = ok(&boot, &["soft-reboot", staged["deployment"].as_str().unwrap()]);
    assert_eq!((&known(&same)["kernel"], &known(&same)["kargs"]), (&true.into(), &true.into()), "{same:#}");
    assert_eq!((&same["index"], &same["is_prepared"]), (&0.into(), &false.into()), "{same:#}");
    let other = ok(&boot, &["stage", &v2, "+nosmt"]);
    let other = ok(&boot, &["soft-reboot", other["deployment"].as_str().unwrap()]);
    assert_eq!(
        (&known(&other)["kernel"], &known(&other)["kargs"]),
        (&true.into(), &false.into()),
        "{other:#}"
    );
    let gone = call(&boot, &["soft-reboot", "other-0123.0"]);
    assert!(gone["error"].as_str().is_some_and(|error| error.contains("other-0123.0")), "{gone:#}");
}

#[test]
fn errors_name_cause_and_next_step() {
    let lab = lab(Backend::Ostree);
    let Lab { world, v1, .. } = &lab;
    let boot = lab.boot();
    let plain = world.derive(v1, "plain", &[], &BTreeMap::new()).unwrap();
    let script = format!(
        "rm -f /tmp/bin/skopeo; mkdir -p /tmp/bin; PATH=/tmp/bin exec {} os-call --backend ostree stage {plain}",
        machine_config_agent::sandbox::AGENT
    );
    let output = boot.command(["sh", "-c", &script]).output().unwrap();
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(answer["reason"], "ToolMissing", "{answer:#}");
    assert!(answer["next"].as_str().unwrap().contains("package skopeo"), "{answer:#}");

    // Another program holds the sysroot, and signals its release.
    let hold = "exec 9>>/sysroot/ostree/lock 2>/dev/null || exit 3";
    assert_eq!(
        boot.command(["sh", "-c", hold]).output().unwrap().status.code(),
        Some(2),
        "/sysroot is read-only"
    );

    // The machine around is not booted by libostree from this root.
    let output = std::process::Command::new(&lab.agent)
        .args(["os-call", "--backend", "ostree", "seen"])
        .output()
        .unwrap();
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    if !Path::new("/run/ostree-booted").exists() {
        assert_eq!(answer["reason"], "NotBooted", "{answer:#}");
    }
    assert!(matches!(
        SandboxHost::create(world.dir(), &lab.agent, &labels("a"), &|_| {}),
        Err(SandboxError::NotEmpty(_))
    ));
}
