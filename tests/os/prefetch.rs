//! An image is pulled ahead of its update, on a real sysroot, as `tests/os/contract.rs`.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::backend_env::{Backend, Lab, call, file, lab, labels, ok, progress, staged};

/// The later switch pulls nothing: its source is away. Nothing is staged before.
#[test]
fn prefetched_image_is_staged_without_its_source() {
    let lab = lab(Backend::Ostree);
    let Lab { world, v2, .. } = &lab;
    let boot = lab.boot();
    let name = v2.to_string();
    let free = ok(&boot, &["prefetch", &name]);
    assert!(free.as_u64().unwrap() > 0, "{free}");
    assert_eq!(staged(&boot), serde_json::Value::Null);
    assert!(!world.dir().join("sysroot/ostree/machine-config-agent-unverified").exists());
    let images = world.dir().join("images/index.json");
    fs::rename(&images, images.with_extension("away")).unwrap();
    // Once more, as after a restart of the agent.
    ok(&boot, &["prefetch", &name]);
    let answer = call(&boot, &["stage", &name]);
    assert_eq!(answer["ok"]["image"], name, "{answer:#}");
    assert!(!progress(&answer).contains("pulling"), "{answer:#}");
    // A staged deployment stays, whatever is prefetched or withdrawn.
    ok(&boot, &["prefetch", "-"]);
    assert_eq!(staged(&boot)["image"], name);
}

/// One prefetched image is kept at a time, and none when it is withdrawn; the booted one stays.
#[test]
fn prefetched_image_is_dropped_for_another_and_when_withdrawn() {
    let lab = lab(Backend::Ostree);
    let Lab { world, v1, v2, .. } = &lab;
    let boot = lab.boot();
    let v3 = world.derive(v1, "v3", &[file("etc/motd", "version 3\n")], &labels("c")).unwrap();
    let repo = format!("--repo={}", world.dir().join("sysroot/ostree/repo").display());
    let kept = || {
        let output = Command::new("ostree").args(["refs", &repo]).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let refs = String::from_utf8(output.stdout).unwrap();
        let has = |image: &machine_config_agent::model::ImageRef| {
            let digest = image.digest().to_string();
            refs.lines().any(|line| line.starts_with("ostree/container/image/") && line.contains(&digest))
        };
        [has(v1), has(v2), has(&v3)]
    };
    ok(&boot, &["prefetch", &v2.to_string()]);
    assert_eq!(kept(), [true, true, false]);
    ok(&boot, &["prefetch", &v3.to_string()]);
    assert_eq!(kept(), [true, false, true]);
    ok(&boot, &["prefetch", "-"]);
    assert_eq!(kept(), [true, false, false]);
    ok(&boot, &["seen"]);
}

/// The others report that; the update downloads the image.
#[test]
fn other_backends_refuse_prefetch() {
    for backend in [Backend::RpmOstree, Backend::Bootc] {
        let lab = lab(backend);
        let boot = lab.boot();
        let answer = call(&boot, &["prefetch", &lab.v2.to_string()]);
        assert_eq!(answer["reason"], "UnsupportedByBackend", "{answer:#}");
        assert!(answer["next"].as_str().unwrap().contains("prefetch-image"), "{answer:#}");
        ok(&boot, &["prefetch", "-"]);
    }
}

/// Killed after each further object, with all that it started, it goes on with what is there: the host sees the same, nothing is
/// staged, and what comes of it in the end is whole.
#[test]
fn killed_prefetch_resumes_with_present_layers() {
    let lab = lab(Backend::Ostree);
    let Lab { world, v1, v2, .. } = &lab;
    let boot = lab.boot();
    let files: Vec<_> = (0..60).map(|n| file(&format!("usr/share/part-{n}"), &format!("{n}\n"))).collect();
    let image = world.derive(v1, "parts", &files, &labels("c")).unwrap();
    let before = ok(&boot, &["seen"]);
    let objects = world.dir().join("sysroot/ostree/repo/objects");
    let mut kills = 0;
    let mut more = 0;
    loop {
        let least = count(&objects) + more;
        let mut call = boot.os_call(&["prefetch", &image.to_string()]);
        let mut child = call.stdout(Stdio::null()).spawn().unwrap();
        let ended = loop {
            if let Some(status) = child.try_wait().unwrap() {
                break Some(status);
            }
            if count(&objects) >= least {
                break None;
            }
        };
        if let Some(status) = ended {
            assert!(status.success());
            break;
        }
        child.kill().unwrap();
        child.wait().unwrap();
        kills += 1;
        more += 1;
        assert_eq!(ok(&boot, &["seen"]), before);
    }
    assert!(kills >= 3, "{kills}");
    // Beside another image that is not desired any more.
    ok(&boot, &["prefetch", &v2.to_string()]);
    ok(&boot, &["prefetch", &image.to_string()]);
    let repo = format!("--repo={}", world.dir().join("sysroot/ostree/repo").display());
    let output = Command::new("ostree").args(["fsck", "--quiet", &repo]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let images = world.dir().join("images/index.json");
    fs::rename(&images, images.with_extension("away")).unwrap();
    assert_eq!(call(&boot, &["stage", &image.to_string()])["ok"]["image"], image.to_string());
}

/// Returns how many objects are in a repository's directory of them.
fn count(objects: &Path) -> usize {
    let entries = |path: &Path| fs::read_dir(path).map(|all| all.filter_map(Result::ok).collect::<Vec<_>>());
    let folders = entries(objects).unwrap_or_default();
    folders.iter().map(|folder| entries(&folder.path()).map_or(0, |all| all.len())).sum()
}
