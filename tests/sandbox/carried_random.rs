//! Random pairs of configs on a random base: all ways to a config end in the same host, whichever image is booted with it.
//!
//! The images are built as a build does it, by the agent's own `apply` on the tree of the base.

use std::collections::BTreeMap;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::sandbox_node::Played;
use machine_config_agent::model::ImageRef;
use machine_config_agent::sandbox::{DIRECTORY, LINK, LayerFile};
use serde_json::{Value, json};

const SERVICE: &str = "[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n";
/// What a commit writes.
const OWN: [&str; 2] = ["machine-config-daemon", "machine-config-agent"];

/// A generator of small numbers.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }

    fn text(&mut self) -> String {
        self.below(2).to_string()
    }

    fn config(&mut self, name: &str) -> Value {
        let paths =
            ["/etc/f0", "/etc/f1", "/etc/d/f", "/etc/d/e/f", "/etc/motd", "/etc/base0", "/etc/base/1"];
        let mut files = Vec::new();
        for path in paths {
            if self.below(2) == 0 {
                let (mode, text) = ([0o644, 0o600][usize::try_from(self.below(2)).unwrap()], self.text());
                let source = format!("data:,{text}");
                files.push(json!({"path": path, "mode": mode, "contents": {"source": source}}));
            }
        }
        let mut units = Vec::new();
        for unit in ["own0.service", "own1.service"] {
            if self.below(2) == 0 {
                let text = format!("[Unit]\nDescription={}\n{SERVICE}", self.text());
                units.push(json!({"name": unit, "enabled": self.below(2) == 0, "contents": text}));
            }
        }
        for unit in ["sshd.service", "chronyd.service", "crio.service", "kubelet.service"] {
            match self.below(6) {
                0 => units.push(json!({"name": unit, "enabled": true})),
                1 => units.push(json!({"name": unit, "enabled": false})),
                2 => units.push(json!({"name": unit, "mask": true})),
                3 => {
                    let dropin =
                        json!({"name": "10-a.conf", "contents": format!("[Unit]\n# {}\n", self.text())});
                    units.push(json!({"name": unit, "dropins": [dropin]}));
                }
                _ => {}
            }
        }
        let mut config: Value = serde_json::from_str(&crate::sandbox_node::config(name, &[], None)).unwrap();
        config["spec"]["config"]["passwd"] = json!({ "users": self.users() });
        let taken = |path: &str| files.iter().any(|file| file["path"] == path);
        let mut links = Vec::new();
        for path in ["/etc/l0", "/etc/d/l1", "/etc/base0"] {
            if self.below(3) == 0 && !taken(path) {
                links.push(
                    json!({"path": path, "target": format!("/usr/lib/{}", self.text()), "overwrite": true}),
                );
            }
        }
        let mut directories = Vec::new();
        for path in ["/etc/empty", "/etc/d", "/etc/base"] {
            if self.below(3) == 0 {
                let mode = [0o755, 0o700][usize::try_from(self.below(2)).unwrap()];
                directories.push(json!({"path": path, "mode": mode}));
            }
        }
        config["spec"]["config"]["storage"]["links"] = links.into();
        config["spec"]["config"]["storage"]["directories"] = directories.into();
        config["spec"]["config"]["storage"]["files"] = files.into();
        config["spec"]["config"]["systemd"] = json!({ "units": units });
        config["spec"]["kernelArguments"] = json!([format!("of={name}")]);
        config
    }

    /// Passwords and keys of the accounts of the base; the sandbox has no `useradd`.
    fn users(&mut self) -> Vec<Value> {
        let mut users = Vec::new();
        for name in ["core", "root"] {
            let mut user = json!({ "name": name });
            if self.below(2) == 0 {
                user["passwordHash"] = format!("$6$salt$hash{}", self.text()).into();
            }
            if name == "core" && self.below(2) == 0 {
                user["sshAuthorizedKeys"] = json!([format!("ssh-ed25519 AAAA {}", self.text())]);
            }
            if user.as_object().unwrap().len() > 1 {
                users.push(user);
            }
        }
        users
    }

    /// Files of the base beside those of the sandbox; the units are as their presets say.
    fn base(&mut self) -> Vec<LayerFile> {
        let wants = "etc/systemd/system/multi-user.target.wants";
        let mut layers: Vec<LayerFile> = ["sshd.service", "chronyd.service"]
            .into_iter()
            .map(|unit| LayerFile {
                path: format!("{wants}/{unit}"),
                mode: LINK | 0o777,
                contents: format!("/usr/lib/systemd/system/{unit}").into_bytes(),
            })
            .collect();
        for path in ["etc/base0", "etc/base/1"] {
            if self.below(4) != 0 {
                layers.push(LayerFile {
                    path: path.to_owned(),
                    mode: [0o644, 0o600][usize::try_from(self.below(2)).unwrap()],
                    contents: self.text().into_bytes(),
                });
            }
        }
        layers
    }
}

/// Everything in a tree of configuration, but what a commit writes.
fn tree(at: &Path) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    walk(at, at, &mut found);
    found
}

fn walk(base: &Path, at: &Path, found: &mut BTreeMap<String, String>) {
    for entry in std::fs::read_dir(at).unwrap() {
        let path = entry.unwrap().path();
        let name = path.strip_prefix(base).unwrap().to_str().unwrap().to_owned();
        if OWN.contains(&name.as_str()) || [".updated", ".pwd.lock"].contains(&name.as_str()) {
            continue;
        }
        let meta = path.symlink_metadata().unwrap();
        let owner = format!("{}:{}", meta.uid(), meta.gid());
        let is = if meta.is_symlink() {
            format!("link {}", std::fs::read_link(&path).unwrap().display())
        } else if meta.is_dir() {
            walk(base, &path, found);
            format!("directory {:o}", meta.mode())
        } else {
            format!("file {:o} {:?}", meta.mode(), String::from_utf8_lossy(&std::fs::read(&path).unwrap()))
        };
        found.insert(name, format!("{owner} {is}"));
    }
}

/// Returns the lines of `/etc/shadow`, a locked password as any other: the agent locks that of `core` in its own way.
fn locked_as_one(shadow: &str) -> String {
    let line = |line: &str| {
        let mut fields: Vec<&str> = line.split(':').collect();
        if fields.get(1).is_some_and(|password| password.starts_with(['!', '*'])) {
            fields[1] = "locked";
        }
        fields.join(":") + "\n"
    };
    shadow.lines().map(line).collect()
}

/// Builds an image of a config on the base, and returns its files.
pub fn build(node: &Played, base: &[LayerFile], config: &Value) -> Vec<LayerFile> {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    std::fs::create_dir_all(root.join("usr/lib")).unwrap();
    let copy = |from: PathBuf, to: &str| {
        let ended = Command::new("cp").arg("-a").arg(from).arg(root.join(to)).status().unwrap();
        assert!(ended.success());
    };
    copy(node.path("/usr/etc"), "etc");
    copy(node.path("/usr/lib/systemd"), "usr/lib/systemd");
    for file in base {
        let at = root.join(&file.path);
        std::fs::create_dir_all(at.parent().unwrap()).unwrap();
        if file.mode & LINK == LINK {
            std::os::unix::fs::symlink(std::str::from_utf8(&file.contents).unwrap(), at).unwrap();
        } else {
            std::fs::write(&at, &file.contents).unwrap();
            std::fs::set_permissions(&at, std::fs::Permissions::from_mode(file.mode)).unwrap();
        }
    }
    for path in ["proc/sys/kernel/random", "run", "var/lib"] {
        std::fs::create_dir_all(root.join(path)).unwrap();
    }
    std::fs::write(root.join("proc/sys/kernel/random/boot_id"), "8c1fd0de-9e2a-4d33-8f0e-0a7c0c1b0000\n")
        .unwrap();
    std::fs::write(root.join("proc/cmdline"), "\n").unwrap();
    let before = tree(&root.join("etc"));
    let mut part = config.clone();
    part["spec"].as_object_mut().unwrap().remove("kernelArguments");
    std::fs::write(root.join("to.json"), part.to_string()).unwrap();
    let ended = Command::new(env!("CARGO_BIN_EXE_machine-config-agent"))
        .args(["apply", "--os-backend", "none", "--no-reboot", "--into-image", "--yes", "--root"])
        .arg(root)
        .arg("--to")
        .arg(root.join("to.json"))
        .output()
        .unwrap();
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    for of_host in ["var/lib/machine-config-agent", "etc/machine-config-daemon/currentimage"] {
        assert!(!root.join(of_host).exists(), "{of_host} is left in the image");
    }
    let mut layers = base.to_vec();
    let after = tree(&root.join("etc"));
    for path in after.iter().filter(|(path, is)| before.get(*path) != Some(is)).map(|(path, _)| path) {
        layers.push(layer_of(root, &format!("etc/{path}")));
    }
    for path in before.keys().filter(|path| !after.contains_key(*path)) {
        let path = format!("etc/{path}");
        layers.retain(|file| file.path != path);
    }
    let kept = "usr/lib/machine-config-agent/originals";
    for entry in std::fs::read_dir(root.join(kept)).into_iter().flatten() {
        let name = entry.unwrap().file_name();
        layers.push(layer_of(root, &format!("{kept}/{}", name.to_str().unwrap())));
    }
    layers.push(crate::sandbox_node::layer("etc/machine-config-daemon/currentconfig", &config.to_string()));
    // A path of the base that the config replaces comes once.
    let mut last = BTreeMap::new();
    for file in layers {
        last.insert(file.path.clone(), file);
    }
    last.into_values().collect()
}

fn layer_of(root: &Path, path: &str) -> LayerFile {
    let at = root.join(path);
    let meta = at.symlink_metadata().unwrap();
    if meta.is_dir() {
        let mode = DIRECTORY | (meta.mode() & 0o7777);
        return LayerFile { path: path.to_owned(), mode, contents: Vec::new() };
    }
    let (mode, contents) = if meta.is_symlink() {
        (LINK | 0o777, std::fs::read_link(&at).unwrap().to_str().unwrap().as_bytes().to_vec())
    } else {
        (meta.mode() & 0o777, std::fs::read(&at).unwrap())
    };
    LayerFile { path: path.to_owned(), mode, contents }
}

/// One case: a base, two configs and their images.
struct Case {
    base: Vec<LayerFile>,
    a: Value,
    b: Value,
    image_a: Vec<LayerFile>,
    image_b: Vec<LayerFile>,
}

/// Targets in their order: a config and the image that goes with it.
type Way<'a> = &'a [(char, char)];

/// The host on which a way begins.
#[derive(Debug, Clone, Copy)]
enum Begin {
    /// It has an older config on the base.
    Older,
    /// The image of this config installed it, and nothing is committed.
    Installed(char),
    /// The same, and a first boot of config B with image A has ended.
    FirstBoot,
}

/// A way to a config: its name, the targets, where it begins, and the host that it ends in.
type NamedWay<'a> = (&'a str, Way<'a>, Begin, &'a Seen);

/// A host as it is compared: its configuration and its kernel arguments.
type Seen = (BTreeMap<String, String>, Vec<String>);

impl Case {
    fn new(random: &mut Random) -> Self {
        let (base, a, b) = (random.base(), random.config("rendered-a"), random.config("rendered-b"));
        let node = Played::new();
        let (image_a, image_b) = (build(&node, &base, &a), build(&node, &base, &b));
        Self { base, a, b, image_a, image_b }
    }

    /// Plays targets one after the other, each a config (`a`, `b`, `o`) with an image (`a`, `b`, `-` for the base).
    fn play(&self, way: Way<'_>, begin: Begin) -> (Seen, usize) {
        let mut node = Played::new();
        let old =
            crate::sandbox_node::config("rendered-o", &[("/etc/old.conf", "o"), ("/etc/f1", "o")], None);
        let base = node.derive("base", &self.base, None);
        let image_a = node.derive("a", &self.image_a, Some("rendered-a"));
        let image_b = node.derive("b", &self.image_b, Some("rendered-b"));
        let first = matches!(begin, Begin::Older).then_some(('o', '-'));
        match begin {
            Begin::Older => {}
            Begin::Installed('b') => install(&mut node, &self.b, &image_b),
            Begin::Installed(_) => install(&mut node, &self.a, &image_a),
            Begin::FirstBoot => {
                install(&mut node, &self.a, &image_a);
                first_boot(&mut node, &self.b, &image_a);
            }
        }
        let mut boots = 0;
        for (config, image) in first.iter().chain(way) {
            let config = match config {
                'a' => self.a.to_string(),
                'b' => self.b.to_string(),
                _ => old.clone(),
            };
            let image = match image {
                'a' => &image_a,
                'b' => &image_b,
                _ => &base,
            };
            let before = node.boots;
            let ended = node.apply(&config, Some(image), |_| {});
            assert_eq!(ended.code, 0, "{way:?} {begin:?}\n{}\n{}\n{}", self.a, self.b, ended.text);
            boots = node.boots - before;
            let verify = node.verb(&["verify", "--os-backend", "ostree"]);
            assert_eq!(verify.code, 0, "{way:?} {begin:?}: {}", verify.text);
        }
        let kargs = node.booted.as_ref().unwrap().kargs().split(' ');
        let mut kargs: Vec<String> =
            kargs.filter(|karg| !karg.starts_with("ostree=")).map(str::to_owned).collect();
        kargs.sort();
        let mut tree = tree(&node.path("/etc"));
        let masked: Vec<String> = tree
            .iter()
            .filter(|(_, is)| is.ends_with("link /dev/null"))
            .filter_map(|(path, _)| Some(format!("/{}", path.strip_prefix("systemd/system/")?)))
            .collect();
        let (shadow, home) =
            (node.read("/etc/shadow").unwrap(), "sysroot/ostree/deploy/sandbox/var/home/core");
        tree.insert("shadow, as one".to_owned(), locked_as_one(&shadow));
        tree.remove("shadow");
        // What a first boot leaves of its config.
        tree.remove("ignition-machine-config-encapsulated.json.bak");
        let keys = node.world.dir().join(home).join(".ssh/authorized_keys.d/ignition");
        tree.insert("keys of core".to_owned(), std::fs::read_to_string(keys).unwrap_or_default());
        // Whether a directory of links without any is there says nothing.
        tree.retain(|path, _| path.strip_suffix(".wants").is_none());
        // Links to a unit that is masked start nothing, and are left.
        tree.retain(|path, _| !(path.contains(".wants/") && masked.iter().any(|unit| path.ends_with(unit))));
        ((tree, kargs), boots)
    }
}

/// Installs a machine image of a config: nothing is committed on it.
pub fn install(node: &mut Played, config: &Value, image: &ImageRef) {
    let mut installed = config.clone();
    installed["spec"].as_object_mut().unwrap().remove("kernelArguments");
    let ended = node.apply(&installed.to_string(), Some(image), |_| {});
    assert_eq!(ended.code, 0, "{}", ended.text);
    node.as_installed();
}

/// Plays the first boot of a config that Ignition leaves, with an image.
fn first_boot(node: &mut Played, config: &Value, image: &ImageRef) {
    let mut encapsulated: Value =
        serde_json::from_str(&crate::sandbox_node::config("rendered-b", &[], Some(image))).unwrap();
    encapsulated["spec"]["kernelArguments"] = config["spec"]["kernelArguments"].clone();
    node.write("/etc/ignition-machine-config-encapsulated.json", &encapsulated.to_string());
    let ended = crate::firstboot::complete(node);
    assert_eq!(ended.code, 0, "{}", ended.text);
}

#[track_caller]
fn same(case: &Case, words: &str, found: &Seen, expected: &Seen) {
    let differs: Vec<_> = expected
        .0
        .keys()
        .chain(found.0.keys())
        .filter(|path| expected.0.get(*path) != found.0.get(*path))
        .map(|path| format!("{path}: {:?}, expected {:?}", found.0.get(path), expected.0.get(path)))
        .collect();
    assert!(differs.is_empty(), "{words}: {differs:#?}\nA {}\nB {}\nbase {:?}", case.a, case.b, case.base);
    assert_eq!(found.1, expected.1, "{words}");
}

/// Each way to config B ends as its own image, and the way back as config A's.
#[test]
#[expect(clippy::print_stdout, reason = "the seed, and what was played")]
fn every_way_to_a_config_ends_in_the_same_host() {
    let rounds = std::env::var("MCA_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(1);
    let seed = std::env::var("MCA_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(|| u64::from(std::process::id()) * 7919 + 1);
    println!("MCA_SEED={seed}");
    let (mut random, mut updates, mut boots) = (Random(seed | 1), 0, 0);
    for _ in 0..rounds {
        let case = Case::new(&mut random);
        let (as_b, _) = case.play(&[('b', 'b')], Begin::Older);
        let (as_a, _) = case.play(&[('a', 'a')], Begin::Older);
        let (older, new) = (Begin::Older, Begin::Installed('a'));
        let ways: [NamedWay<'_>; 7] = [
            ("config A, then B by files", &[('a', 'a'), ('b', 'a')], older, &as_b),
            ("an older config, then B with A's image", &[('b', 'a')], older, &as_b),
            ("config A by files, then B with A's image", &[('a', '-'), ('b', 'a')], older, &as_b),
            ("a new node of A's image, then B", &[('b', 'a')], new, &as_b),
            ("a new node of B's own image", &[('b', 'b')], Begin::Installed('b'), &as_b),
            ("a first boot of B into A's image", &[('b', 'a')], Begin::FirstBoot, &as_b),
            ("B with A's image, B's, then back to A", &[('b', 'a'), ('b', 'b'), ('a', 'a')], older, &as_a),
        ];
        for (words, way, begin, expected) in ways {
            let (found, last) = case.play(way, begin);
            same(&case, words, &found, expected);
            updates += way.len();
            boots += last;
        }
    }
    println!("{rounds} cases, {updates} updates, {boots} reboots of the last ones, every host as expected");
}
