//! The table: each manual change, its undo, and the report meanwhile.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::missing_panics_doc,
    unreachable_pub,
    missing_docs,
    missing_debug_implementations,
    reason = "shared by tests: it fails by panicking, and plays the host"
)]

use std::any::Any;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{PermissionsExt as _, chown, symlink};

use machine_config_agent::model::ImageRef;
use rustix::mount::{UnmountFlags, mount_bind, unmount};
use serde_json::{Value, json};

use super::{IMAGE, OTHER_IMAGE, Scene, deployment};
use crate::ran;
use crate::test_host::ignition;

pub const APP: &str = "/etc/app.conf";
pub const APP_TEXT: &str = "mode = safe\nlimit = 3\n";
pub const INNER: &str = "/etc/deep/down/inner.conf";
pub const SECRET: &str = "/etc/secret.key";
pub const UNITS: &str = "/etc/systemd/system";
pub const UNIT: &str = "/etc/systemd/system/a.service";
pub const DROPIN: &str = "/etc/systemd/system/a.service.d/10-x.conf";
pub const KEYS: &str = "/home/core/.ssh/authorized_keys.d/ignition";
pub const MANAGED_UNITS: [&str; 4] = ["a.service", "off.service", "crio.service", "masked.service"];

pub fn section(name: &str) -> String {
    format!("[Service]\nExecStart=/bin/{name}\n[Install]\nWantedBy=multi-user.target\n")
}

pub fn spec() -> Value {
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
    spec["osImageURL"] = json!(IMAGE);
    spec
}

pub async fn scene(repair: &[&str]) -> Scene {
    Scene::with(&spec(), &MANAGED_UNITS, repair).await
}

/// A handle that is kept open meanwhile.
pub type Kept = Option<Box<dyn Any>>;

pub struct Mutation {
    pub name: &'static str,
    pub make: Box<dyn Fn(&Scene) -> Kept>,
    pub undo: Box<dyn Fn(&Scene)>,
    /// Parts of the reason: at least the path, the unit or the argument.
    pub words: Vec<String>,
}

pub fn mutation(
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

/// A mutation of a file that is undone by writing the file again.
pub fn of_app(name: &'static str, words: &[&str], make: impl Fn(&Scene) + 'static) -> Mutation {
    mutation(name, make, |scene| put_back(scene, APP, APP_TEXT, 0o644), words)
}

/// Makes a path a file of root with these bytes, whatever stands there.
pub fn put_back(scene: &Scene, path: &str, text: &str, mode: u32) {
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

pub fn of_files() -> Vec<Mutation> {
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
            fs::remove_file(scene.at(APP)).unwrap();
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
    ];
    all.extend(of_ways());
    all.push(appended());
    all.extend(mapped());
    all.extend(mounted());
    all
}

/// Mutations that redirect a path; and a secret.
fn of_ways() -> Vec<Mutation> {
    vec![
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
    ]
}

/// The writer keeps the file open.
pub fn appended() -> Mutation {
    let make = Box::new(|scene: &Scene| -> Kept {
        let mut file = fs::OpenOptions::new().append(true).open(scene.at(APP)).unwrap();
        file.write_all(b"more = yes\n").unwrap();
        Some(Box::new(file))
    });
    let undo = Box::new(|scene: &Scene| put_back(scene, APP, APP_TEXT, 0o644));
    Mutation { name: "appended in place", make, undo, words: vec!["\"/etc/app.conf\"".to_owned()] }
}

/// The test that plays them.
const EACH: &str = "each_kind_of_drift_is_found_named_and_gone_when_undone";

/// The crate allows no unsafe code, not in its tests either: another program maps the file.
pub fn mapped() -> Option<Mutation> {
    const WRITE: &str = "import mmap,sys\nwith open(sys.argv[1],'r+b') as f:\n m=mmap.mmap(f.fileno(),0)\nm[0:4]=b'EDOM'\nm.close()\n";
    let python = std::process::Command::new("python3").arg("--version").output();
    if !python.is_ok_and(|output| output.status.success()) {
        ran::not_run(&format!("{EACH}: a write through a mapping"), "python3");
        return None;
    }
    Some(of_app("written through a mapping", &["content mismatch for file \"/etc/app.conf\""], |scene| {
        let status = std::process::Command::new("python3").args(["-c", WRITE]).arg(scene.at(APP)).status();
        assert!(status.unwrap().success());
    }))
}

/// Only root may mount.
pub fn mounted() -> Option<Mutation> {
    let dir = tempfile::tempdir().unwrap();
    for made in ["a", "b"] {
        fs::create_dir(dir.path().join(made)).unwrap();
    }
    if mount_bind(dir.path().join("a"), dir.path().join("b")).is_err() {
        ran::not_run(&format!("{EACH}: a mount over a managed file"), "to mount (CAP_SYS_ADMIN)");
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

/// A mutation of the unit's file or its drop-in.
fn of_unit(
    name: &'static str,
    path: &'static str,
    words: &[&str],
    make: impl Fn(&Scene) + 'static,
) -> Mutation {
    let text = if path == UNIT { section("a") } else { "[Service]\nNice=1\n".to_owned() };
    mutation(name, make, move |scene| put_back(scene, path, &text, 0o644), words)
}

pub fn of_units() -> Vec<Mutation> {
    vec![
        of_unit("unit file", UNIT, &["content mismatch for file", UNIT], |scene| {
            scene.write(UNIT, "[Unit]\n");
        }),
        of_unit("unit file removed", UNIT, &[UNIT, "is missing"], |scene| {
            fs::remove_file(scene.at(UNIT)).unwrap();
        }),
        of_unit("drop-in", DROPIN, &["content mismatch for file", DROPIN], |scene| {
            scene.write(DROPIN, "[Service]\nNice=2\n");
        }),
        of_unit("drop-in removed", DROPIN, &["drop-in", DROPIN, "is missing"], |scene| {
            fs::remove_file(scene.at(DROPIN)).unwrap();
        }),
        of_unit("drop-in emptied", DROPIN, &[DROPIN, "found 0 bytes"], |scene| scene.write(DROPIN, "")),
        of_unit("another drop-in by its name", DROPIN, &[DROPIN, "a symbolic link"], |scene| {
            scene.write("/etc/10-x.conf", "[Service]\nNice=1\n");
            fs::remove_file(scene.at(DROPIN)).unwrap();
            symlink("/etc/10-x.conf", scene.at(DROPIN)).unwrap();
        }),
        of_unit("masked", UNIT, &["unit", UNIT, "a symbolic link", "/dev/null"], |scene| {
            fs::remove_file(scene.at(UNIT)).unwrap();
            symlink("/dev/null", scene.at(UNIT)).unwrap();
        }),
    ]
}

pub fn of_links() -> Vec<Mutation> {
    let wants = "/etc/systemd/system/multi-user.target.wants";
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
            "desired by another",
            want,
            no_want,
            &["unit off.service", "the link /etc/systemd/system/new.target.wants/off.service"],
        ),
    ]
}

pub fn of_users() -> Vec<Mutation> {
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

pub fn of_os() -> Vec<Mutation> {
    let image = |text: &str| Some(ImageRef::parse(text).unwrap());
    vec![
        mutation(
            "another image",
            move |scene| scene.os(|booted, _, _| booted.image = image(OTHER_IMAGE)),
            move |scene| scene.os(|booted, _, _| booted.image = image(IMAGE)),
            &["expected target osImageURL", IMAGE, OTHER_IMAGE],
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
    ]
}
