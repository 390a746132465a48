//! The drift monitor: every kind of change is found, named and gone when it is undone; what is not drift is not told;
//! what is to be repaired is, within bounds.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::print_stderr,
    reason = "a test: it fails by panicking, and plays the host"
)]

mod drifting;
mod node;

use std::any::Any;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{PermissionsExt as _, chown, symlink};

use drifting::{OTHER_IMAGE, Scene, deployment};
use machine_config_agent::agent::End;
use machine_config_agent::model::ImageRef;
use machine_config_agent::model::observation::LocalPackages;
use machine_config_agent::report::State;
use node::ignition;
use rustix::mount::{UnmountFlags, mount_bind, unmount};
use serde_json::{Value, json};

const APP: &str = "/etc/app.conf";
const APP_TEXT: &str = "mode = safe\nlimit = 3\n";
const INNER: &str = "/etc/deep/down/inner.conf";
const SECRET: &str = "/etc/secret.key";
const UNITS: &str = "/etc/systemd/system";
const UNIT: &str = "/etc/systemd/system/a.service";
const DROPIN: &str = "/etc/systemd/system/a.service.d/10-x.conf";
const KEYS: &str = "/home/core/.ssh/authorized_keys.d/ignition";
const MANAGED_UNITS: [&str; 4] = ["a.service", "off.service", "crio.service", "masked.service"];

fn section(name: &str) -> String {
    format!("[Service]\nExecStart=/bin/{name}\n[Install]\nWantedBy=multi-user.target\n")
}

fn spec() -> Value {
    let file = |path: &str, mode: u32, text: &str| {
        let text = text.replace('\n', "%0A").replace(' ', "%20");
        json!({"path": path, "mode": mode, "contents": {"source": format!("data:,{text}")}})
    };
    let mut spec = ignition(json!({
        "storage": {"files": [file(APP, 0o644, APP_TEXT), file(INNER, 0o644, "inner"),
                              file(SECRET, 0o600, "hunter2"), file("/etc/reboots.conf", 0o644, "r"),
                              file("/etc/drains.conf", 0o644, "d")]},
        "systemd": {"units": [
            {"name": "a.service", "enabled": true, "contents": section("a"),
             "dropins": [{"name": "10-x.conf", "contents": "[Service]\nNice=1\n"}]},
            {"name": "off.service", "enabled": false, "contents": section("off")},
            {"name": "masked.service", "mask": true},
            {"name": "crio.service", "mask": false}]},
        "passwd": {"users": [{"name": "core", "sshAuthorizedKeys": ["ssh-ed25519 AAAA somebody"],
                              "passwordHash": "$6$salt$hunter2"}]},
    }));
    spec["kernelArguments"] = json!(["audit=1"]);
    spec["osImageURL"] = json!(drifting::IMAGE);
    spec
}

async fn scene(repair: &[&str]) -> Scene {
    Scene::with(&spec(), &MANAGED_UNITS, repair).await
}

/// What is kept open meanwhile.
type Kept = Option<Box<dyn Any>>;

struct Mutation {
    name: &'static str,
    make: Box<dyn Fn(&Scene) -> Kept>,
    undo: Box<dyn Fn(&Scene)>,
    /// What the reason says: at least the path, the unit or the argument.
    words: Vec<String>,
}

fn mutation(
    name: &'static str,
    make: impl Fn(&Scene) + 'static,
    undo: impl Fn(&Scene) + 'static,
    words: &[&str],
) -> Mutation {
    let make = Box::new(move |scene: &Scene| {
        make(scene);
        None
    });
    Mutation { name, make, undo: Box::new(undo), words: words.iter().map(|&word| word.to_owned()).collect() }
}

/// A mutation of a file that writing it anew undoes.
fn of_app(name: &'static str, words: &[&str], make: impl Fn(&Scene) + 'static) -> Mutation {
    mutation(name, make, |scene| put_back(scene, APP, APP_TEXT, 0o644), words)
}

/// Makes a path a file of root with these bytes, whatever stands there.
fn put_back(scene: &Scene, path: &str, text: &str, mode: u32) {
    let at = scene.at(path);
    if fs::symlink_metadata(&at).is_ok_and(|meta| meta.is_dir()) {
        fs::remove_dir_all(&at).unwrap();
    }
    let draft = scene.at(&format!("{path}.draft"));
    fs::create_dir_all(at.parent().unwrap()).unwrap();
    fs::write(&draft, text).unwrap();
    fs::set_permissions(&draft, fs::Permissions::from_mode(mode)).unwrap();
    fs::rename(draft, at).unwrap();
}

fn of_files() -> Vec<Mutation> {
    let mode = |scene: &Scene, mode| {
        fs::set_permissions(scene.at(APP), fs::Permissions::from_mode(mode)).unwrap();
    };
    let content = "content mismatch for file \"/etc/app.conf\"";
    let other = ["file /etc/app.conf is something else"];
    let mode_words = ["mode mismatch for file: \"/etc/app.conf\"; expected: 0644; received: "];
    let mut all = vec![
        of_app("content", &[content], |scene| scene.write(APP, "mode = unsafe\n")),
        of_app("mode", &[mode_words[0], "0666"], move |scene| mode(scene, 0o666)),
        of_app("setuid", &[mode_words[0], "4644"], move |scene| mode(scene, 0o4644)),
        of_app("owner", &[APP, "another owner", "1:0"], |scene| chown(scene.at(APP), Some(1), None).unwrap()),
        of_app("group", &[APP, "another owner", "0:1"], |scene| chown(scene.at(APP), None, Some(1)).unwrap()),
        of_app("removed", &["file /etc/app.conf is missing"], |scene| {
            fs::remove_file(scene.at(APP)).unwrap()
        }),
        of_app("a directory", &[other[0], "a directory"], |scene| {
            fs::remove_file(scene.at(APP)).unwrap();
            fs::create_dir(scene.at(APP)).unwrap();
        }),
        of_app("a link", &[other[0], "a symbolic link"], |scene| {
            fs::rename(scene.at(APP), scene.at("/etc/elsewhere")).unwrap();
            symlink("elsewhere", scene.at(APP)).unwrap();
        }),
        of_app("a pipe", &[other[0], "a pipe"], |scene| {
            fs::remove_file(scene.at(APP)).unwrap();
            let fifo = rustix::fs::FileType::Fifo;
            rustix::fs::mknodat(rustix::fs::CWD, scene.at(APP), fifo, 0o644.into(), 0).unwrap();
        }),
        of_app("a hard link, written elsewhere", &[content], |scene| {
            fs::hard_link(scene.at(APP), scene.at("/home/core/hard")).unwrap();
            fs::write(scene.at("/home/core/hard"), "by another name\n").unwrap();
            fs::remove_file(scene.at("/home/core/hard")).unwrap();
        }),
        of_app("truncated", &[content, "found 0 bytes"], |scene| {
            fs::OpenOptions::new().write(true).truncate(true).open(scene.at(APP)).unwrap();
        }),
        of_app("renamed over", &[content], |scene| put_back(scene, APP, "another file\n", 0o644)),
        mutation(
            "the directory above renamed away and back",
            |scene| fs::rename(scene.at("/etc/deep"), scene.at("/etc/gone")).unwrap(),
            |scene| fs::rename(scene.at("/etc/gone"), scene.at("/etc/deep")).unwrap(),
            &["file /etc/deep/down/inner.conf is missing"],
        ),
        mutation(
            "a link in the place of a directory",
            |scene| {
                fs::create_dir_all(scene.at("/opt/other")).unwrap();
                scene.write("/opt/other/inner.conf", "outer");
                fs::rename(scene.at("/etc/deep/down"), scene.at("/etc/deep/kept")).unwrap();
                symlink("/opt/other", scene.at("/etc/deep/down")).unwrap();
            },
            |scene| {
                fs::remove_file(scene.at("/etc/deep/down")).unwrap();
                fs::rename(scene.at("/etc/deep/kept"), scene.at("/etc/deep/down")).unwrap();
            },
            &["content mismatch for file \"/etc/deep/down/inner.conf\""],
        ),
        mutation(
            "a secret's content",
            |scene| scene.write(SECRET, "hunter3"),
            |scene| scene.write(SECRET, "hunter2"),
            &["content mismatch for file \"/etc/secret.key\" (expected 7 bytes, found 7 bytes)"],
        ),
    ];
    all.push(appended());
    all.extend(mapped());
    all.extend(mounted());
    all
}

/// The writer keeps the file open.
fn appended() -> Mutation {
    let make = Box::new(|scene: &Scene| -> Kept {
        let mut file = fs::OpenOptions::new().append(true).open(scene.at(APP)).unwrap();
        file.write_all(b"more = yes\n").unwrap();
        Some(Box::new(file))
    });
    let undo = Box::new(|scene: &Scene| put_back(scene, APP, APP_TEXT, 0o644));
    Mutation { name: "appended in place", make, undo, words: vec!["\"/etc/app.conf\"".to_owned()] }
}

/// The crate allows no unsafe code, not in its tests either: another program maps the file.
fn mapped() -> Option<Mutation> {
    const WRITE: &str = "import mmap,sys\nwith open(sys.argv[1],'r+b') as f:\n m=mmap.mmap(f.fileno(),0)\nm[0:4]=b'EDOM'\nm.close()\n";
    let python = std::process::Command::new("python3").arg("--version").output();
    if !python.is_ok_and(|output| output.status.success()) {
        eprintln!("python3 is not installed: a write through a mapping is not tested");
        return None;
    }
    Some(of_app("written through a mapping", &["content mismatch for file \"/etc/app.conf\""], |scene| {
        let status = std::process::Command::new("python3").args(["-c", WRITE]).arg(scene.at(APP)).status();
        assert!(status.unwrap().success());
    }))
}

/// Only root may mount.
fn mounted() -> Option<Mutation> {
    let dir = tempfile::tempdir().unwrap();
    for made in ["a", "b"] {
        fs::create_dir(dir.path().join(made)).unwrap();
    }
    if mount_bind(dir.path().join("a"), dir.path().join("b")).is_err() {
        eprintln!("this process may not mount: a mount over a managed file is not tested");
        return None;
    }
    unmount(dir.path().join("b"), UnmountFlags::empty()).unwrap();
    Some(mutation(
        "a mount over the directory",
        |scene| {
            fs::create_dir_all(scene.at("/opt/empty")).unwrap();
            mount_bind(scene.at("/opt/empty"), scene.at("/etc/deep/down")).unwrap();
        },
        |scene| unmount(scene.at("/etc/deep/down"), UnmountFlags::empty()).unwrap(),
        &["file /etc/deep/down/inner.conf is missing"],
    ))
}

fn of_units() -> Vec<Mutation> {
    let wants = "/etc/systemd/system/multi-user.target.wants";
    let of = |name, path: &'static str, text: String, words: &[&str], make: Box<dyn Fn(&Scene)>| {
        mutation(name, make, move |scene| put_back(scene, path, &text, 0o644), words)
    };
    let dropin = || "[Service]\nNice=1\n".to_owned();
    let link = |at: String, to: &'static str| {
        let gone = at.clone();
        let make = move |scene: &Scene| {
            let at = scene.at(&at);
            fs::create_dir_all(at.parent().unwrap()).unwrap();
            symlink(to, at).unwrap();
        };
        (make, move |scene: &Scene| fs::remove_file(scene.at(&gone)).unwrap())
    };
    let (enable, disable) = link(format!("{wants}/off.service"), "../off.service");
    let (enable_a, disable_a) = link(format!("{wants}/a.service"), UNIT);
    let (alias, no_alias) = link(format!("{UNITS}/extra.service"), "a.service");
    let (want, no_want) = link(format!("{UNITS}/new.target.wants/off.service"), "../off.service");
    let (mask, unmask) = link(format!("{UNITS}/masked.service"), "/dev/null");
    vec![
        of(
            "unit file",
            UNIT,
            section("a"),
            &["content mismatch for file", UNIT],
            Box::new(|scene| scene.write(UNIT, "[Unit]\n")),
        ),
        of(
            "unit file removed",
            UNIT,
            section("a"),
            &[UNIT, "is missing"],
            Box::new(|scene| fs::remove_file(scene.at(UNIT)).unwrap()),
        ),
        of(
            "drop-in",
            DROPIN,
            dropin(),
            &["content mismatch for file", DROPIN],
            Box::new(|scene| scene.write(DROPIN, "[Service]\nNice=2\n")),
        ),
        of(
            "drop-in removed",
            DROPIN,
            dropin(),
            &["drop-in", DROPIN, "is missing"],
            Box::new(|scene| fs::remove_file(scene.at(DROPIN)).unwrap()),
        ),
        of(
            "drop-in emptied",
            DROPIN,
            dropin(),
            &[DROPIN, "found 0 bytes"],
            Box::new(|scene| scene.write(DROPIN, "")),
        ),
        of(
            "another drop-in by its name",
            DROPIN,
            dropin(),
            &[DROPIN, "a symbolic link"],
            Box::new(|scene| {
                scene.write("/etc/10-x.conf", "[Service]\nNice=1\n");
                fs::remove_file(scene.at(DROPIN)).unwrap();
                symlink("/etc/10-x.conf", scene.at(DROPIN)).unwrap();
            }),
        ),
        of(
            "masked",
            UNIT,
            section("a"),
            &["unit", UNIT, "a symbolic link", "/dev/null"],
            Box::new(|scene| {
                fs::remove_file(scene.at(UNIT)).unwrap();
                symlink("/dev/null", scene.at(UNIT)).unwrap();
            }),
        ),
        mutation(
            "enabled by link",
            enable,
            disable,
            &["unit off.service is enabled otherwise", "found enabled"],
        ),
        mutation(
            "disabled by link",
            disable_a,
            enable_a,
            &["unit a.service is enabled otherwise", "found disabled"],
        ),
        mutation("unmasked", unmask, mask, &["unit masked.service is masked otherwise"]),
        mutation(
            "masked though it must not be",
            |scene| symlink("/dev/null", scene.at("/etc/systemd/system/crio.service")).unwrap(),
            |scene| fs::remove_file(scene.at("/etc/systemd/system/crio.service")).unwrap(),
            &["unit crio.service is masked otherwise"],
        ),
        mutation(
            "extra alias",
            alias,
            no_alias,
            &["unit a.service", "the link /etc/systemd/system/extra.service"],
        ),
        mutation(
            "wanted by another",
            want,
            no_want,
            &["unit off.service", "the link /etc/systemd/system/new.target.wants/off.service"],
        ),
    ]
}

fn of_users() -> Vec<Mutation> {
    const LINE: &str = "ssh-ed25519 AAAA somebody\n";
    let hash = |scene: &Scene, from: &str, to: &str| {
        let text = scene.text("/etc/shadow").replace(from, to);
        fs::write(scene.at("/etc/shadow-"), text).unwrap();
        fs::rename(scene.at("/etc/shadow-"), scene.at("/etc/shadow")).unwrap();
    };
    let own = |scene: &Scene, user: u32| {
        chown(scene.at("/home/core/.ssh/authorized_keys.d"), Some(user), None).unwrap();
    };
    let keys = move |scene: &Scene| {
        put_back(scene, KEYS, LINE, 0o600);
        chown(scene.at(KEYS), Some(1000), Some(1000)).unwrap();
    };
    vec![
        mutation("keys", |scene| scene.write(KEYS, "ssh-ed25519 BBBB another\n"), keys, &["user core", KEYS]),
        mutation(
            "keys removed",
            |scene| fs::remove_file(scene.at(KEYS)).unwrap(),
            keys,
            &["user core", KEYS],
        ),
        mutation(
            "password",
            move |scene| hash(scene, "$6$salt$hunter2", "$6$salt$hunter3"),
            move |scene| hash(scene, "$6$salt$hunter3", "$6$salt$hunter2"),
            &["user core has another value", "/etc/shadow"],
        ),
        mutation(
            "directory of keys",
            move |scene| own(scene, 1001),
            move |scene| own(scene, 1000),
            &["user core", "/home/core/.ssh/authorized_keys.d that is not the account's own"],
        ),
    ]
}

fn of_os() -> Vec<Mutation> {
    let image = |text: &str| Some(ImageRef::parse(text).unwrap());
    let by_hand = LocalPackages { requested: ["strace".to_owned()].into(), ..LocalPackages::default() };
    vec![
        mutation(
            "another image",
            move |scene| scene.os(|booted, _, _| booted.image = image(OTHER_IMAGE)),
            move |scene| scene.os(|booted, _, _| booted.image = image(drifting::IMAGE)),
            &["expected target osImageURL", drifting::IMAGE, OTHER_IMAGE],
        ),
        mutation(
            "staged by somebody else",
            |scene| {
                scene.os(|_, staged, _| *staged = Some(deployment("os-2.0", OTHER_IMAGE)));
                scene.write("/run/ostree/staged-deployment", "");
            },
            |scene| {
                scene.os(|_, staged, _| *staged = None);
                fs::remove_file(scene.at("/run/ostree/staged-deployment")).unwrap();
            },
            &["image of the next boot", "the staged deployment os-2.0", OTHER_IMAGE],
        ),
        mutation(
            "rolled back by hand",
            |scene| scene.os(|_, _, next| *next = Some(deployment("os-0.0", OTHER_IMAGE))),
            |scene| scene.os(|_, _, next| *next = None),
            &["image of the next boot", "the deployment os-0.0", OTHER_IMAGE],
        ),
        mutation(
            "packages",
            move |scene| scene.os(|booted, _, _| booted.local = by_hand.clone()),
            |scene| scene.os(|booted, _, _| booted.local = LocalPackages::default()),
            &["image packages", "layered strace"],
        ),
    ]
}

/// FIL-007, FIL-008, MCD-166, MCD-168, MCD-169, MCD-178, MCD-179, MCD-180, MCD-182, CRA-010: each change by hand is
/// found, named with its path, and gone when it is undone, without a restart.
#[tokio::test(flavor = "current_thread")]
async fn each_kind_of_drift_is_found_named_and_gone_when_undone() {
    let mut scene = scene(&[]).await;
    let all: Vec<Mutation> =
        of_files().into_iter().chain(of_units()).chain(of_users()).chain(of_os()).collect();
    assert!(all.len() >= 34, "{}", all.len());
    scene
        .live(async |scene| {
            scene.until_done("rendered-a").await;
            for Mutation { name, make, undo, words } in all {
                let kept = make(scene);
                let words: Vec<&str> = words.iter().map(String::as_str).collect();
                let report = scene.until_drift(name, &words).await;
                assert!(!report.reason.contains("hunter"), "{name}: {}", report.reason);
                let events = scene.told();
                assert!(
                    events.iter().any(|(reason, _)| *reason == "ConfigDriftDetected"),
                    "{name}: {events:?}"
                );
                assert!(!events.iter().any(|(_, text)| text.contains("hunter")), "{name}: {events:?}");
                drop(kept);
                undo(scene);
                scene.until_done("rendered-a").await;
                scene.told();
            }
        })
        .await;
}

/// MCD-167: an argument that the kernel was not booted with is told; additional ones are not.
#[tokio::test(flavor = "current_thread")]
async fn a_missing_kernel_argument_is_found_at_the_next_start() {
    let mut scene = scene(&[]).await;
    scene.node.put("root/proc/cmdline", "quiet more=2\n");
    scene.reboot(2);
    let words = ["missing expected kernel arguments: [audit=1]"];
    scene.live(async |scene| scene.until_drift("kernel arguments", &words).await).await;
    scene.node.put("root/proc/cmdline", "quiet audit=1 more=2\n");
    scene.reboot(3);
    scene.live(async |scene| scene.until_done("rendered-a").await).await;
}

/// MCD-176, MCD-186: drift that is there at the start is told, measured and watched; without drift the metric is 0.
#[tokio::test(flavor = "current_thread")]
async fn a_host_that_drifted_before_the_start_is_told() {
    let mut scene = scene(&[]).await;
    let drift = |scene: &Scene| {
        let text = scene.metrics.text();
        let line = text.lines().find(|line| line.starts_with("mcd_config_drift ")).unwrap().to_owned();
        line.split(' ').nth(1).unwrap() != "0"
    };
    assert!(!drift(&scene));
    scene.write(APP, "changed while no agent ran\n");
    scene
        .live(async |scene| {
            scene.until_drift("drift at the start", &["\"/etc/app.conf\""]).await;
            assert_eq!(scene.told()[0].0, "ConfigDriftDetected");
            assert!(drift(scene));
            scene.write(APP, APP_TEXT);
            scene.until_done("rendered-a").await;
            assert!(!drift(scene));
        })
        .await;
}

/// MCD-177: an update that would build on drift is not begun, and nothing on disk changes.
#[tokio::test(flavor = "current_thread")]
async fn no_update_begins_on_drift() {
    let mut scene = scene(&[]).await;
    let mut next = spec();
    next["config"]["storage"]["files"][1]["contents"]["source"] = json!("data:,other");
    scene.config("rendered-b", &next);
    scene.write(APP, "changed\n");
    scene
        .live(async |scene| {
            scene.until_drift("drift", &["\"/etc/app.conf\""]).await;
            scene.told();
            scene.want("rendered-b");
            scene.until_drift("a refusal", &["no update is begun", "\"/etc/app.conf\""]).await;
            assert_eq!(scene.told()[0].0, "PreflightConfigDriftCheckFailed");
            assert_eq!(scene.text(INNER), "inner");
            scene.write(APP, APP_TEXT);
            scene.until_done("rendered-b").await;
            assert_eq!(scene.text(INNER), "other");
        })
        .await;
}

/// MCD-181: what is not managed is nobody's business, however much of it there is, also in a watched directory.
#[tokio::test(flavor = "current_thread")]
async fn unmanaged_files_cause_nothing() {
    let mut scene = scene(&[]).await;
    scene
        .live(async |scene| {
            scene.until_done("rendered-a").await;
            let looks = scene.looks();
            for round in 0..2_500 {
                let at = scene.at(&format!("/etc/deep/down/other-{}", round % 7));
                fs::write(&at, round.to_string()).unwrap();
                fs::set_permissions(&at, fs::Permissions::from_mode(0o600)).unwrap();
                fs::rename(&at, scene.at("/etc/deep/down/another")).unwrap();
                fs::remove_file(scene.at("/etc/deep/down/another")).unwrap();
            }
            scene.write(INNER, "drifted");
            scene.until_drift("drift among events of others", &[INNER]).await;
            // Ten thousand events more than fill the kernel's queue: then everything is looked at once.
            assert!(scene.looks() - looks <= 3, "{} looks", scene.looks() - looks);
            scene.write(INNER, "inner");
            scene.until_done("rendered-a").await;
            assert_eq!(scene.told().len(), 1);
        })
        .await;
}

/// A program that writes a managed file again and again is told, but not each time.
#[tokio::test(flavor = "current_thread")]
async fn a_flood_is_told_within_bounds() {
    let mut scene = scene(&[]).await;
    scene
        .live(async |scene| {
            scene.until_done("rendered-a").await;
            for round in 0..40 {
                scene.write(APP, &format!("round {round}\n"));
                scene.until_drift("drift", &["\"/etc/app.conf\""]).await;
                let at = scene.at(APP);
                for more in 0..50 {
                    fs::write(&at, format!("round {round} {more}\n")).unwrap();
                    tokio::task::yield_now().await;
                }
            }
            assert_eq!(scene.told().len(), 1, "only details differed");
            scene.write(APP, APP_TEXT);
            scene.until_done("rendered-a").await;
        })
        .await;
}

/// MCD-184: what an update itself changes is never drift.
#[tokio::test(flavor = "current_thread")]
async fn an_update_is_no_drift() {
    let mut scene = scene(&[]).await;
    let mut next = spec();
    for file in next["config"]["storage"]["files"].as_array_mut().unwrap().iter_mut().take(2) {
        file["contents"]["source"] = json!("data:,other");
    }
    next["config"]["systemd"]["units"][0]["enabled"] = json!(false);
    scene.config("rendered-b", &next);
    scene
        .live(async |scene| {
            for _ in 0..5 {
                for name in ["rendered-b", "rendered-a"] {
                    scene.want(name);
                    scene.until_done(name).await;
                }
            }
            let told = scene.told();
            assert!(
                told.iter().any(|(reason, _)| *reason == "SkipReboot" || *reason == "ServiceReload"),
                "{told:?}"
            );
            assert!(!told.iter().any(|(reason, _)| reason.contains("Drift")), "{told:?}");
        })
        .await;
}

/// FIL-014: a diff is told of what everybody may read, and only of that.
#[tokio::test(flavor = "current_thread")]
async fn diffs_are_bounded_and_masked() {
    let mut scene = scene(&[]).await;
    scene
        .live(async |scene| {
            scene.until_done("rendered-a").await;
            scene.write(APP, "mode = unsafe\nlimit = 3\n");
            scene.until_drift("drift", &["\"/etc/app.conf\""]).await;
            let told = scene.told();
            let text = &told[0].1;
            assert!(text.contains("-mode = safe") && text.contains("+mode = unsafe"), "{text}");
            assert!(text.contains(" limit = 3"), "{text}");
            put_back(scene, APP, APP_TEXT, 0o644);
            scene.until_done("rendered-a").await;
            // What was put there is not ours to show: closed to others, or a key that ended up in the open.
            for (text, mode) in [
                ("token = hunter4\n", 0o600),
                ("-----BEGIN PRIVATE KEY-----\nhunter4\n", 0o644),
                ("core:$6$salt$hunter4:19000\n", 0o644),
                ("{\"auths\": {\"r\": {\"auth\": \"hunter4\"}}}", 0o644),
            ] {
                put_back(scene, APP, text, mode);
                scene.until_drift("drift", &["\"/etc/app.conf\""]).await;
                let told = scene.told();
                let shown: String = told.iter().map(|(_, text)| text.as_str()).collect();
                assert!(shown.contains("secret: 22 bytes expected"), "{shown}");
                assert!(!shown.contains("hunter"), "{shown}");
                put_back(scene, APP, APP_TEXT, 0o644);
                scene.until_done("rendered-a").await;
                scene.told();
            }
        })
        .await;
}

/// Drift is put right where the settings say so, through the journal; elsewhere it is only told.
#[tokio::test(flavor = "current_thread")]
async fn what_is_to_be_repaired_is_repaired() {
    let mut scene = scene(&["/etc/deep", "/etc/systemd/system"]).await;
    scene
        .live(async |scene| {
            scene.until_done("rendered-a").await;
            let changes: [(&str, &dyn Fn(&Scene)); 6] = [
                ("content", &|scene| scene.write(INNER, "drifted")),
                ("removed", &|scene| fs::remove_dir_all(scene.at("/etc/deep")).unwrap()),
                ("owner", &|scene| chown(scene.at(INNER), Some(1), None).unwrap()),
                ("unit and its link", &|scene| {
                    scene.write(UNIT, "[Unit]\n");
                    fs::remove_file(scene.at("/etc/systemd/system/multi-user.target.wants/a.service"))
                        .unwrap();
                }),
                ("alias", &|scene| {
                    symlink("off.service", scene.at("/etc/systemd/system/x.service")).unwrap()
                }),
                ("unmasked", &|scene| {
                    fs::remove_file(scene.at("/etc/systemd/system/masked.service")).unwrap()
                }),
            ];
            for (name, change) in changes {
                scene.pass_time(1);
                let updates = fs::read_dir(scene.at(&format!("{}/history", node::STATE))).unwrap().count();
                change(scene);
                scene.until(name, |report| report.update.is_some() && report.state == State::Working).await;
                scene.until_done("rendered-a").await;
                let now = fs::read_dir(scene.at(&format!("{}/history", node::STATE))).unwrap().count();
                assert_eq!(now, updates + 1, "{name}: a repair is an update in the history");
            }
            assert_eq!(scene.text(INNER), "inner");
            assert_eq!(scene.text(UNIT), section("a"));
            let told = scene.told();
            assert!(
                told.iter().filter(|(reason, _)| *reason == "ConfigDriftDetected").count() >= 6,
                "{told:?}"
            );
            scene.write(APP, "not to be repaired\n");
            scene.until_drift("drift elsewhere", &["\"/etc/app.conf\""]).await;
            // Drift elsewhere does not keep a path from being repaired.
            scene.pass_time(3601);
            scene.write(INNER, "drifted");
            scene.until("a repair", |report| report.update.is_some()).await;
            scene.until_drift("what is left", &["\"/etc/app.conf\""]).await;
            assert_eq!(scene.text(INNER), "inner");
        })
        .await;
}

/// A repair reboots and drains nothing, and one that does not last is given up.
#[tokio::test(flavor = "current_thread")]
async fn a_repair_has_bounds() {
    let mut scene = scene(&["/etc"]).await;
    scene
        .live(async |scene| {
            scene.until_done("rendered-a").await;
            for (path, old, word) in [
                ("/etc/reboots.conf", "r", "not repaired: the disruption policy asks for a reboot"),
                ("/etc/drains.conf", "d", "not repaired: the disruption policy asks for a drain"),
            ] {
                scene.write(path, "x");
                scene.until_drift(path, &[path, word]).await;
                scene.write(path, old);
                scene.until_done("rendered-a").await;
            }
            for _ in 0..3 {
                scene.pass_time(1);
                scene.write(APP, "again\n");
                scene.until("a repair", |report| report.update.is_some()).await;
                scene.until_done("rendered-a").await;
            }
            scene.pass_time(1);
            scene.write(APP, "again\n");
            scene
                .until_drift("a repair too many", &["\"/etc/app.conf\"", "repaired 3 times within an hour"])
                .await;
            assert_eq!(scene.text(APP), "again\n");
            // An hour later it is tried again, when something happens.
            scene.pass_time(3601);
            scene.write(APP, "and again\n");
            scene.until("a repair", |report| report.update.is_some()).await;
            scene.until_done("rendered-a").await;
            // What can't be repaired is told with the cause, and left.
            scene.pass_time(3601);
            fs::remove_file(scene.at(APP)).unwrap();
            fs::create_dir(scene.at(APP)).unwrap();
            scene.write("/etc/app.conf/x", "");
            scene
                .until_drift("a failed repair", &["file /etc/app.conf", "not repaired: the repair failed"])
                .await;
            fs::remove_dir_all(scene.at(APP)).unwrap();
            put_back(scene, APP, APP_TEXT, 0o644);
            scene.until_done("rendered-a").await;
        })
        .await;
}

/// A reboot that an update needs is no repair's business.
#[tokio::test(flavor = "current_thread")]
async fn an_update_with_a_reboot_still_ends_in_one() {
    let mut scene = scene(&["/etc"]).await;
    let mut next = spec();
    next["config"]["storage"]["files"][3]["contents"]["source"] = json!("data:,other");
    scene.config("rendered-b", &next);
    scene.want("rendered-b");
    assert_eq!(scene.end().await, End::Reboot);
    scene.reboot(2);
    scene.live(async |scene| scene.until_done("rendered-b").await).await;
}
