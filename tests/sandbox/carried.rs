//! Images that carry another config than the target, on a real libostree host: the host is as the target says, whatever way it
//! comes there.

use std::os::unix::fs::MetadataExt as _;

use crate::sandbox_node::{Played, VerbResult, layer};
use machine_config_agent::model::ImageRef;
use machine_config_agent::sandbox::{DIRECTORY, LINK, LayerFile};
use serde_json::{Value, json};

const MOTD: &str = "Welcome to the sandbox, version 1.\n";
const SERVICE: &str = "[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n";
const UNIT: &str = "/etc/systemd/system/a.service";
const WANTS: &str = "/etc/systemd/system/multi-user.target.wants";

fn config(name: &str, files: &[(&str, &str)], units: &Value) -> String {
    let mut config: Value = serde_json::from_str(&crate::sandbox_node::config(name, files, None)).unwrap();
    config["spec"]["config"]["systemd"] = json!({ "units": units });
    config.to_string()
}

/// Config A has a file of its own, replaces one of the base, brings a unit, and turns two of the OS.
fn config_a() -> String {
    let units = json!([
        {"name": "a.service", "enabled": true, "contents": SERVICE},
        {"name": "crio.service", "enabled": true},
        {"name": "sshd.service", "enabled": false},
        {"name": "chronyd.service", "mask": true},
    ]);
    let files = [("/etc/app/a.conf", "a"), ("/etc/motd", "a"), ("/etc/both.conf", "1")];
    config("rendered-a", &files, &units)
}

fn config_b() -> String {
    config("rendered-b", &[("/etc/both.conf", "1")], &json!([]))
}

fn link(path: &str, target: &str) -> LayerFile {
    LayerFile { path: path.to_owned(), mode: LINK | 0o777, contents: target.as_bytes().to_vec() }
}

/// What a build makes of the base and config A.
fn layers_a() -> Vec<LayerFile> {
    let wants = |unit: &str| format!("etc/systemd/system/multi-user.target.wants/{unit}");
    vec![
        layer("etc/app/a.conf", "a"),
        layer("etc/motd", "a"),
        layer("etc/both.conf", "1"),
        layer(UNIT.trim_start_matches('/'), SERVICE),
        link(&wants("a.service"), UNIT),
        link(&wants("crio.service"), "/usr/lib/systemd/system/crio.service"),
        link("etc/systemd/system/chronyd.service", "/dev/null"),
        layer("etc/machine-config-daemon/currentconfig", &config_a()),
    ]
}

/// What a build keeps of the base.
fn originals() -> Vec<LayerFile> {
    let at = |path: &str| format!("usr/lib/machine-config-agent/originals/{}.json", path.replace('/', "%2F"));
    let motd =
        json!({"kind": "file", "bytes": base64(MOTD), "mode": 0o644, "uid": 0, "gid": 0, "attributes": []});
    let nothing = json!({"kind": "absent"}).to_string();
    let absent =
        ["/etc/app", "/etc/app/a.conf", "/etc/both.conf", UNIT, "/etc/systemd/system/chronyd.service"];
    let absent = absent.into_iter().map(|path| layer(&at(path), &nothing));
    absent.chain([layer(&at("/etc/motd"), &motd.to_string())]).collect()
}

fn base64(text: &str) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(text)
}

/// A node with a config before both, whose image has a unit enabled that config A disables.
fn node_at_o() -> (Played, ImageRef) {
    let mut node = Played::new();
    let sshd = link(
        &format!("{}/sshd.service", WANTS.trim_start_matches('/')),
        "/usr/lib/systemd/system/sshd.service",
    );
    let base = node.derive("base", &[sshd], None);
    let old = config("rendered-o", &[("/etc/old.conf", "o")], &json!([]));
    ends(&node.apply(&old, Some(&base), |_| {}), 0);
    (node, base)
}

fn image_a(node: &Played) -> ImageRef {
    node.derive("a", &layers_a(), Some("rendered-a"))
}

fn ends(ended: &VerbResult, code: i32) {
    assert_eq!(ended.code, code, "{}", ended.text);
}

/// The host has nothing of config A but what config B has, too.
fn is_as_b(node: &Played, motd: Option<&str>, text: &str) {
    assert_eq!(node.read("/etc/app/a.conf"), None, "{text}");
    assert_eq!(node.read("/etc/motd").as_deref(), motd, "{text}");
    assert_eq!(node.read("/etc/both.conf").as_deref(), Some("1"), "{text}");
    assert!(!node.path(UNIT).exists(), "{text}");
    for unit in ["a.service", "crio.service"] {
        assert!(!node.path(&format!("{WANTS}/{unit}")).is_symlink(), "{unit}: {text}");
    }
    assert!(node.path(&format!("{WANTS}/sshd.service")).is_symlink(), "{text}");
    assert!(!node.path("/etc/systemd/system/chronyd.service").is_symlink(), "{text}");
    let verify = node.verb(&["verify", "--os-backend", "ostree"]);
    assert_eq!(verify.code, 0, "{}{text}", verify.text);
}

/// The host never had config A: nothing of it is there after the one reboot.
#[test]
fn image_of_another_config_brings_the_target_alone() {
    let (mut node, _) = node_at_o();
    let (image, before) = (image_a(&node), node.boots);
    let ended = node.apply(&config_b(), Some(&image), |_| {});
    ends(&ended, 0);
    is_as_b(&node, Some(MOTD), &ended.text);
    assert_eq!(node.boots - before, 1, "{}", ended.text);
    let history = node.verb(&["history"]).text;
    assert!(!history.contains("faulted"), "{history}");
}

/// The host has config A by files, and the base's own file has its original: it is back after the one reboot.
#[test]
fn original_survives_the_image_that_replaces_it() {
    let (mut node, base) = node_at_o();
    ends(&node.apply(&config_a(), Some(&base), |_| {}), 0);
    assert_eq!(node.read("/etc/motd").as_deref(), Some("a"));
    let (image, before) = (image_a(&node), node.boots);
    let ended = node.apply(&config_b(), Some(&image), |_| {});
    ends(&ended, 0);
    is_as_b(&node, Some(MOTD), &ended.text);
    assert_eq!(node.boots - before, 1, "{}", ended.text);
}

/// The power fails between the finalization and what follows it: what the image brought is seen, and leaves. What its base has is
/// known of an image that keeps it.
#[test]
fn leftovers_of_the_image_leave_after_the_boot() {
    for is_kept in [true, false] {
        let (mut node, _) = node_at_o();
        let layers = if is_kept { [layers_a(), originals()].concat() } else { layers_a() };
        let (image, before) = (node.derive("a", &layers, Some("rendered-a")), node.boots);
        node.going_down = |node| {
            let list = node.booted.as_ref().unwrap().run_dir().join("machine-config-agent/left-behind.json");
            drop(std::fs::remove_file(list));
        };
        let ended = node.apply(&config_b(), Some(&image), |_| {});
        ends(&ended, 0);
        is_as_b(&node, is_kept.then_some(MOTD), &ended.text);
        assert!(ended.text.contains("brought by rendered-a, the config of the image"), "{}", ended.text);
        assert!(node.boots - before <= 2, "{}", ended.text);
        assert_eq!(
            node.path("/etc/app").exists(),
            !is_kept,
            "the directory was made for a path of the image"
        );
        let warned = ended.text.contains("the image keeps no original of it");
        assert_eq!(warned, !is_kept, "{}", ended.text);
    }
}

/// What the agent took away, as the image had brought it, is there again with an image that brings its own; what somebody took
/// away stays away.
#[test]
fn next_image_brings_what_the_agent_had_taken_away() {
    let mut node = Played::new();
    let image = node.derive("a", &[layers_a(), originals()].concat(), Some("rendered-a"));
    ends(&node.apply(&config_b(), Some(&image), |_| {}), 0);
    is_as_b(&node, Some(MOTD), "");
    std::fs::remove_file(node.path("/etc/hostname")).unwrap();
    let base = [
        layer("etc/app/a.conf", "base"),
        layer("etc/motd", "version 2"),
        layer("etc/hostname", "version 2"),
        link(
            &format!("{}/crio.service", WANTS.trim_start_matches('/')),
            "/usr/lib/systemd/system/crio.service",
        ),
    ];
    let next = node.derive("c", &base, None);
    let before = node.boots;
    let ended = node.apply(&config_b(), Some(&next), |_| {});
    ends(&ended, 0);
    assert_eq!(node.boots - before, 1, "{}", ended.text);
    assert_eq!(node.read("/etc/app/a.conf").as_deref(), Some("base"), "{}", ended.text);
    assert_eq!(node.read("/etc/motd").as_deref(), Some("version 2"), "{}", ended.text);
    assert!(node.path(&format!("{WANTS}/crio.service")).is_symlink(), "{}", ended.text);
    assert_eq!(node.read("/etc/hostname"), None, "somebody had removed it");
}

/// The next config has a path that the agent took away, and its image brings it.
#[test]
fn next_config_has_what_was_taken_away() {
    let mut node = Played::new();
    let image = node.derive("a", &[layers_a(), originals()].concat(), Some("rendered-a"));
    ends(&node.apply(&config_b(), Some(&image), |_| {}), 0);
    let files = [("/etc/app/a.conf", "c"), ("/etc/motd", "c")];
    let desired =
        config("rendered-c", &files, &json!([{"name": "a.service", "enabled": true, "contents": SERVICE}]));
    let layers = [
        layer("etc/app/a.conf", "c"),
        layer("etc/motd", "c"),
        layer(UNIT.trim_start_matches('/'), SERVICE),
        link(&format!("{}/a.service", WANTS.trim_start_matches('/')), UNIT),
        layer("etc/machine-config-daemon/currentconfig", &desired),
    ];
    let next = node.derive("c", &layers, Some("rendered-c"));
    let before = node.boots;
    let ended = node.apply(&desired, Some(&next), |_| {});
    ends(&ended, 0);
    assert_eq!(node.boots - before, 1, "{}", ended.text);
    for (path, text) in files {
        assert_eq!(node.read(path).as_deref(), Some(text), "{}", ended.text);
    }
    assert!(node.path(&format!("{WANTS}/a.service")).is_symlink(), "{}", ended.text);
    let verify = node.verb(&["verify", "--os-backend", "ostree"]);
    assert_eq!(verify.code, 0, "{}", verify.text);
}

/// A node that a machine image of config A installed: nothing was committed on it.
fn new_node(layers: &[LayerFile]) -> (Played, ImageRef) {
    let mut node = Played::new();
    let image = node.derive("a", layers, Some("rendered-a"));
    ends(&node.apply(&config_a(), Some(&image), |_| {}), 0);
    node.as_installed();
    (node, image)
}

/// A new node has the config of its image from nobody: the target is reached in one update.
#[test]
fn new_node_goes_from_its_image_to_the_target() {
    let (mut node, image) = new_node(&[layers_a(), originals()].concat());
    let verify = node.verb(&["verify", "--os-backend", "ostree"]);
    assert!(verify.code != 0 && verify.text.contains("nothing is committed"), "{}", verify.text);
    let before = node.boots;
    let ended = node.apply(&config_b(), Some(&image), |_| {});
    ends(&ended, 0);
    is_as_b(&node, Some(MOTD), &ended.text);
    assert!(!ended.text.contains("Imported"), "{}", ended.text);
    assert!(node.boots - before <= 1, "{}", ended.text);
    let history = node.verb(&["history"]).text;
    assert_eq!(history.matches("rendered-b").count(), 1, "{history}");
    // The version of the image is no original.
    let desired = config("rendered-c", &[("/etc/app/a.conf", "c"), ("/etc/motd", "c")], &json!([]));
    ends(&node.apply(&desired, Some(&image), |_| {}), 0);
    ends(&node.apply(&config_b(), Some(&image), |_| {}), 0);
    is_as_b(&node, Some(MOTD), "");
}

/// The config of the image is the target: its kernel arguments are set.
#[test]
fn new_node_gets_the_kernel_arguments_of_its_image() {
    let (mut node, image) = new_node(&layers_a());
    let mut desired: Value = serde_json::from_str(&config_a()).unwrap();
    desired["spec"]["kernelArguments"] = json!(["nosmt"]);
    let desired = desired.to_string();
    std::fs::write(node.path("/usr/etc/machine-config-daemon/currentconfig"), &desired).unwrap_or_default();
    let before = node.boots;
    let ended = node.apply(&desired, Some(&image), |_| {});
    ends(&ended, 0);
    assert_eq!(node.boots - before, 1, "{}", ended.text);
    assert!(node.booted.as_ref().unwrap().kargs().contains("nosmt"));
    assert_eq!(node.read("/etc/motd").as_deref(), Some("a"));
}

const HASH: &str = "$6$salt$ofconfiga";
const KEY: &str = "ssh-ed25519 AAAA of-a";
const HOME: &str = "sysroot/ostree/deploy/sandbox/var/home/core";
const KEYS_FILE: &str = ".ssh/authorized_keys.d/ignition";

/// Config A with a password and keys of `core`, a password of `root`, and an account and a group of its own.
fn config_a_with_accounts() -> String {
    let mut config: Value = serde_json::from_str(&config_a()).unwrap();
    config["spec"]["config"]["passwd"] = json!({
        "users": [
            {"name": "core", "passwordHash": HASH, "sshAuthorizedKeys": [KEY]},
            {"name": "root", "passwordHash": HASH},
            {"name": "app", "uid": 1234, "passwordHash": HASH},
        ],
        "groups": [{"name": "ops", "gid": 1300}],
    });
    config.to_string()
}

/// What a build of that config makes of the accounts of the base, and what it keeps of them.
fn accounts_of_a(node: &Played) -> Vec<LayerFile> {
    let of_base = |path: &str| node.read(&format!("/usr/etc/{path}")).unwrap_or_default();
    let private = |path: &str, text: &str| LayerFile { mode: 0o600, ..layer(path, text) };
    let shadow = of_base("shadow").replace("core:!:", &format!("core:{HASH}:"));
    let shadow = shadow.replace("root:!locked:", &format!("root:{HASH}:"));
    let kept = json!({
        "schemaVersion": 1,
        "users": {
            "app": {"maker": "agent", "uid": 1234},
            "root": {"maker": "host", "gecos": "root", "shell": "/bin/bash", "groups": [],
                "password": base64("!locked"), "keys": {"kind": "absent"}},
        },
        "groups": {"ops": {"maker": "agent", "gid": 1300}},
    });
    vec![
        layer("etc/passwd", &(of_base("passwd") + "app:x:1234:1234::/var/home/app:/bin/bash\n")),
        private("etc/shadow", &(shadow + &format!("app:{HASH}:19000:0:99999:7:::1234\n"))),
        layer("etc/group", &(of_base("group") + "app:x:1234:\nops:x:1300:\n")),
        private("usr/lib/machine-config-agent/originals/accounts.json", &kept.to_string()),
        layer("etc/machine-config-daemon/currentconfig", &config_a_with_accounts()),
    ]
}

/// Nothing of config A lets anyone in.
fn accounts_are_as_b(node: &Played, has_app: bool, text: &str) {
    let shadow = node.read("/etc/shadow").unwrap();
    assert!(!shadow.contains(HASH), "{shadow}{text}");
    assert!(shadow.contains("root:!locked:"), "{shadow}{text}");
    assert!(!keys_of_core(node).unwrap_or_default().contains(KEY), "{text}");
    let app = shadow.lines().find(|line| line.starts_with("app:"));
    assert_eq!(app.is_some(), has_app, "{shadow}{text}");
    assert!(app.is_none_or(|line| line.starts_with("app:*:") && line.ends_with(":1:1234")), "{shadow}{text}");
    assert!(!node.read("/etc/group").unwrap_or_default().contains("ops:"), "{text}");
    let verify = node.verb(&["verify", "--os-backend", "ostree"]);
    assert_eq!(verify.code, 0, "{}{text}", verify.text);
}

/// A node with a config before both, and an image of config A with its accounts.
fn node_with_accounts_of_a() -> (Played, ImageRef) {
    let (node, _) = node_at_o();
    let layers = [layers_a(), originals(), accounts_of_a(&node)].concat();
    let image = node.derive("a", &layers, Some("rendered-a"));
    (node, image)
}

/// The databases of the host were as its image has them, so the merge takes those of config A.
#[test]
fn accounts_of_the_image_leave_with_the_switch() {
    let (mut node, image) = node_with_accounts_of_a();
    let ended = node.apply(&config_b(), Some(&image), |_| {});
    ends(&ended, 0);
    accounts_are_as_b(&node, true, &ended.text);
    is_as_b(&node, Some(MOTD), &ended.text);
}

fn keys_of_core(node: &Played) -> Option<String> {
    std::fs::read_to_string(node.world.dir().join(HOME).join(KEYS_FILE)).ok()
}

/// Writes a keys file of `core`, as an installation or an administrator does.
fn write_keys(node: &Played, keys: &str) {
    let home = node.world.dir().join(HOME);
    let path = home.join(KEYS_FILE);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(&path, keys).unwrap();
    let owner = std::fs::metadata(&home).unwrap();
    for made in [&path, path.parent().unwrap(), path.parent().unwrap().parent().unwrap()] {
        std::os::unix::fs::chown(made, Some(owner.uid()), Some(owner.gid())).unwrap();
    }
}

/// A machine image of config A brings its accounts, and its keys below `/var`.
#[test]
fn accounts_of_the_image_leave_a_new_node() {
    let node = Played::new();
    let accounts = accounts_of_a(&node);
    drop(node);
    let (mut node, image) = new_node(&[layers_a(), originals(), accounts].concat());
    for file in ["passwd", "shadow", "group"] {
        std::fs::copy(node.path(&format!("/usr/etc/{file}")), node.path(&format!("/etc/{file}"))).unwrap();
    }
    write_keys(&node, &format!("{KEY}\n"));
    let ended = node.apply(&config_b(), Some(&image), |_| {});
    ends(&ended, 0);
    accounts_are_as_b(&node, true, &ended.text);
}

/// The image brings a password of `core`, and no keys: those of the host are its own.
#[test]
fn keys_of_the_host_stay_with_the_password_of_the_image() {
    let (mut node, image) = node_with_accounts_of_a();
    write_keys(&node, "ssh-ed25519 AAAA of-the-host\n");
    let ended = node.apply(&config_b(), Some(&image), |_| {});
    ends(&ended, 0);
    assert_eq!(keys_of_core(&node).as_deref(), Some("ssh-ed25519 AAAA of-the-host\n"), "{}", ended.text);
    accounts_are_as_b(&node, true, &ended.text);
}

/// What an administrator has set himself is none of the image's.
#[test]
fn password_of_the_host_stays_with_the_image() {
    let (mut node, image) = node_with_accounts_of_a();
    let own = node.read("/etc/shadow").unwrap().replace("core:!:", "core:$6$of$host:");
    std::fs::write(node.path("/etc/shadow"), own).unwrap();
    write_keys(&node, "ssh-ed25519 AAAA of-the-host\n");
    let ended = node.apply(&config_b(), Some(&image), |_| {});
    ends(&ended, 0);
    assert!(node.read("/etc/shadow").unwrap().contains("core:$6$of$host:"), "{}", ended.text);
    assert_eq!(keys_of_core(&node).as_deref(), Some("ssh-ed25519 AAAA of-the-host\n"), "{}", ended.text);
    accounts_are_as_b(&node, false, &ended.text);
}

/// A machine image by Ignition has the links and the directories of config A, too, and keeps no originals.
#[test]
fn links_and_directories_of_the_image_leave_a_new_node() {
    let mut config: Value = serde_json::from_str(&config_a()).unwrap();
    config["spec"]["config"]["storage"]["links"] = json!([
        {"path": "/etc/app/link", "target": "/usr/lib/os-release"},
        {"path": "/etc/kept", "target": "/usr/lib/of-b"},
    ]);
    config["spec"]["config"]["storage"]["directories"] =
        json!([{"path": "/etc/empty", "mode": 0o755}, {"path": "/etc/full", "mode": 0o755}]);
    let of_links = [
        link("etc/app/link", "/usr/lib/os-release"),
        link("etc/kept", "/usr/lib/of-b"),
        LayerFile { path: "etc/empty".to_owned(), mode: DIRECTORY | 0o755, contents: Vec::new() },
        LayerFile { path: "etc/full".to_owned(), mode: DIRECTORY | 0o755, contents: Vec::new() },
        layer("etc/full/of-base", "1"),
        layer("etc/machine-config-daemon/currentconfig", &config.to_string()),
    ];
    let (mut node, image) = new_node(&[layers_a(), of_links.to_vec()].concat());
    for (path, target) in [("/etc/app/link", "/usr/lib/os-release"), ("/etc/kept", "/usr/lib/of-b")] {
        drop(std::fs::remove_file(node.path(path)));
        std::fs::create_dir_all(node.path(path).parent().unwrap()).unwrap();
        std::os::unix::fs::symlink(target, node.path(path)).unwrap();
    }
    drop(std::fs::create_dir(node.path("/etc/empty")));
    let mut desired: Value = serde_json::from_str(&config_b()).unwrap();
    desired["spec"]["config"]["storage"]["links"] = json!([{"path": "/etc/kept", "target": "/usr/lib/of-b"}]);
    let ended = node.apply(&desired.to_string(), Some(&image), |_| {});
    ends(&ended, 0);
    assert!(!node.path("/etc/app/link").is_symlink(), "{}", ended.text);
    assert!(node.path("/etc/kept").is_symlink(), "{}", ended.text);
    assert!(!node.path("/etc/empty").exists(), "{}", ended.text);
    assert_eq!(node.read("/etc/full/of-base").as_deref(), Some("1"), "{}", ended.text);
    is_as_b(&node, None, &ended.text);
}

/// A directory that config A shut, and that has files of B in it, becomes one that is made for them, as on a node without A.
#[test]
fn directory_of_the_image_opens_to_files_of_the_target() {
    use std::os::unix::fs::PermissionsExt as _;
    let mut config: Value = serde_json::from_str(&config_a()).unwrap();
    config["spec"]["config"]["storage"]["directories"] = json!([{"path": "/etc/shut", "mode": 0o700}]);
    let of_directory = [
        LayerFile { path: "etc/shut".to_owned(), mode: DIRECTORY | 0o700, contents: Vec::new() },
        layer("etc/shut/of-base", "1"),
        layer("etc/machine-config-daemon/currentconfig", &config.to_string()),
    ];
    let (mut node, image) = new_node(&[layers_a(), of_directory.to_vec()].concat());
    let shut = node.path("/etc/shut");
    std::fs::create_dir_all(&shut).unwrap();
    std::fs::set_permissions(&shut, std::fs::Permissions::from_mode(0o700)).unwrap();
    std::fs::write(shut.join("of-base"), "1").unwrap();
    let mut desired: Value = serde_json::from_str(&config_b()).unwrap();
    let files = desired["spec"]["config"]["storage"]["files"].as_array_mut().unwrap();
    files.push(json!({"path": "/etc/shut/of-b", "contents": {"source": "data:,2"}}));
    let ended = node.apply(&desired.to_string(), Some(&image), |_| {});
    ends(&ended, 0);
    let mode = std::fs::metadata(&shut).unwrap().permissions().mode() & 0o7777;
    assert_eq!(mode, 0o755, "{}", ended.text);
    assert_eq!(node.read("/etc/shut/of-b").as_deref(), Some("2"), "{}", ended.text);
}
