//! The expected state of a host, by rules of its own, from its installation and the config in force. No earlier config may
//! be seen in it.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown, symlink};
use std::path::Path;

use serde_json::{Value, json};

use super::config::Config;
use super::tree::{Entry, Tree, read};

pub const UNITS: &str = "etc/systemd/system";
pub const HOME: &str = "var/home/core";
/// A directory of another account's program, in which configs write.
pub const RULES: &str = "etc/polkit-1/rules.d";
pub const KEYS: &str = "var/home/core/.ssh/authorized_keys.d/ignition";
const SHADOW: &str = "root:!:1:0:99999:7:::\ncore:*:1:0:99999:7:::\n";

/// Every unit there is.
pub const NAMES: [&str; 9] = [
    "os.service",
    "off.service",
    "static.service",
    "own.service",
    "both.service",
    "ours.service",
    "held.service",
    "with.service",
    "pair.service",
];

/// Units of the image.
const VENDOR: [(&str, &str); 10] = [
    ("os.service", "[Unit]\n[Install]\nWantedBy=multi-user.target\n"),
    ("off.service", "[Unit]\n[Install]\nWantedBy=multi-user.target\n"),
    ("static.service", "[Unit]\n"),
    ("both.service", "[Unit]\n[Install]\nWantedBy=multi-user.target\n"),
    (MASKED, "[Unit]\n[Install]\nWantedBy=multi-user.target\n"),
    ("with.service", "[Unit]\n[Install]\nWantedBy=multi-user.target\nAlso=with.socket\n"),
    ("with.socket", "[Unit]\n[Install]\nWantedBy=sockets.target\n"),
    ("pair.service", "[Unit]\n[Install]\nWantedBy=multi-user.target\nAlso=pair.socket\n"),
    ("pair.socket", "[Unit]\n[Install]\nWantedBy=sockets.target\n"),
    ("other.socket", "[Unit]\n[Install]\nWantedBy=sockets.target\n"),
];

/// Units that only the `Also=` of another unit names.
const COMPANIONS: [&str; 3] = ["with.socket", "pair.socket", "other.socket"];

/// The administrator has masked it: nothing but `mask: false` or contents can enable it.
pub const MASKED: &str = "held.service";

/// Units that the presets enable; `disable *` follows.
const ENABLED: [&str; 6] =
    ["os.service", "static.service", "own.service", "both.service", "pair.service", "other.socket"];

/// Files of the administrator: path, mode, contents. No config has the same: on a host that was never managed
/// that would be taken for the config's own.
const INSTALLED: [(&str, u32, &str); 10] = [
    (
        "etc/passwd",
        0o644,
        "root:x:0:0::/root:/bin/sh\ncore:x:1000:1000::/var/home/core:/bin/sh\npolkitd:x:4711:4711::/:/bin/false\n",
    ),
    ("etc/group", 0o644, "root:x:0:\ncore:x:1000:\npolkitd:x:4711:\n"),
    ("etc/shadow", 0o600, SHADOW),
    ("etc/motd", 0o644, "of the distribution\n"),
    ("etc/many/1/setuid", 0o4755, "by hand\n"),
    ("etc/systemd/system/own.service", 0o640, "[Unit]\nDescription=Own\n[Install]\nWantedBy=a.target\n"),
    ("etc/systemd/system/both.service", 0o644, "[Unit]\nDescription=Own\n[Install]\nWantedBy=a.target\n"),
    ("etc/systemd/system/os.service.d/10-x.conf", 0o644, "[Service]\nNice=5\n"),
    ("etc/systemd/system/own.service.d/20-y.conf", 0o644, "[Install]\nWantedBy=b.target\n# own\n"),
    ("var/home/core/.bashrc", 0o644, "own\n"),
];

/// A unit as a config asks for it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Unit {
    pub contents: Option<&'static str>,
    pub dropins: BTreeMap<&'static str, &'static str>,
    pub enabled: Option<bool>,
    pub mask: Option<bool>,
}

/// Content of a config. Files: mode, whether they are core's, contents.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Wish {
    pub files: BTreeMap<&'static str, (u32, bool, &'static str)>,
    pub units: BTreeMap<&'static str, Unit>,
    pub core: Option<(Vec<&'static str>, Option<&'static str>)>,
}

impl Wish {
    pub fn config(&self, name: &str) -> Config {
        let mut config = Config::new(name);
        for (path, (mode, of_core, text)) in &self.files {
            let path = format!("/{path}");
            config = if *of_core {
                config.file_of_core(&path, *mode, text)
            } else {
                config.file(&path, *mode, text)
            };
        }
        for (name, unit) in &self.units {
            let dropins: Vec<Value> = unit
                .dropins
                .iter()
                .map(|(name, contents)| json!({"name": name, "contents": contents}))
                .collect();
            config = config.unit(json!({"name": name, "contents": unit.contents, "dropins": dropins,
                "enabled": unit.enabled, "mask": unit.mask}));
        }
        match &self.core {
            Some((keys, hash)) => config.core(keys, *hash),
            None => config,
        }
    }

    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    fn masks(&self, name: &str) -> bool {
        self.units.get(name).is_some_and(|unit| unit.mask == Some(true))
    }
}

/// Only `/etc/costly` needs a reboot.
pub fn policy() -> String {
    let none = json!([{"type": "None"}]);
    let units: Vec<Value> = NAMES.iter().map(|name| json!({"name": name, "actions": none})).collect();
    let files = ["/etc/polkit-1", "/etc/motd", "/etc/many", "/etc/app.conf", "/etc/link", "/var/home"];
    let files: Vec<Value> = files.iter().map(|path| json!({"path": path, "actions": none})).collect();
    json!({
        "apiVersion": "operator.openshift.io/v1",
        "kind": "MachineConfiguration",
        "metadata": {"name": "cluster"},
        "spec": {"nodeDisruptionPolicy": {"files": files, "units": units, "sshkey": {"actions": none}}},
    })
    .to_string()
}

/// Installs a host below a directory.
pub fn install(root: &Path) {
    let put = |path: &str, mode: u32, text: &str| {
        let at = root.join(path);
        fs::create_dir_all(at.parent().unwrap()).unwrap();
        fs::write(&at, text).unwrap();
        fs::set_permissions(&at, fs::Permissions::from_mode(mode)).unwrap();
    };
    for (path, mode, text) in INSTALLED {
        put(path, mode, text);
    }
    for (name, text) in VENDOR {
        put(&format!("usr/lib/systemd/system/{name}"), 0o644, text);
    }
    let presets = format!("enable {}\ndisable *\n", ENABLED.join("\nenable "));
    put("usr/lib/systemd/system-preset/90-all.preset", 0o644, &presets);
    put("proc/cmdline", 0o444, "rw\n");
    put("proc/sys/kernel/random/boot_id", 0o644, "b\n");
    symlink("motd", root.join("etc/link")).unwrap();
    symlink("/dev/null", root.join(UNITS).join(MASKED)).unwrap();
    fs::create_dir_all(root.join(RULES)).unwrap();
    chown(root.join(RULES), Some(4711), Some(4711)).unwrap();
    for path in ["", ".bashrc"] {
        chown(root.join(HOME).join(path), Some(1000), Some(1000)).unwrap();
    }
    for (path, entry) in expected_tree(&found(root), &Wish::default()) {
        let at = root.join(path);
        if let (Entry::Link(name), false) = (entry, at.is_symlink()) {
            fs::create_dir_all(at.parent().unwrap()).unwrap();
            let own = root.join(UNITS).join(&name).exists();
            let from = if own { "/etc/systemd/system" } else { "/usr/lib/systemd/system" };
            symlink(format!("{from}/{name}"), at).unwrap();
        }
    }
}

/// Reads what is on a host.
pub fn found(root: &Path) -> Tree {
    let skip = |path: &str| path == "etc/.pwd.lock" || path == "etc/machine-config-daemon";
    let mut tree = Tree::new();
    read(&root.join("etc"), "etc", &skip, &mut tree);
    read(&root.join("var/home"), "var/home", &skip, &mut tree);
    tree
}

/// The host that was installed so, with a config.
pub fn expected_tree(installed: &Tree, wish: &Wish) -> Tree {
    let mut tree = installed.clone();
    let file = |text: &str, mode: u32, owner: u32| Entry::File { bytes: text.into(), mode, owner };
    for (path, (mode, of_core, text)) in &wish.files {
        tree.insert((*path).to_owned(), file(text, *mode, if *of_core { 1000 } else { 0 }));
    }
    for (name, unit) in &wish.units {
        for (dropin, text) in &unit.dropins {
            tree.insert(format!("{UNITS}/{name}.d/{dropin}"), file(text, 0o644, 0));
        }
        let at = format!("{UNITS}/{name}");
        if unit.mask == Some(true) {
            tree.insert(at, Entry::Link("/dev/null".to_owned()));
        } else if let Some(text) = unit.contents {
            tree.insert(at, file(text, 0o644, 0));
        } else if unit.mask == Some(false) && tree.get(&at) == Some(&Entry::Link("/dev/null".to_owned())) {
            tree.remove(&at);
        }
    }
    let mut companions = COMPANIONS.map(|name| (name, ENABLED.contains(&name)));
    for name in NAMES.into_iter().filter(|name| !wish.masks(name)) {
        let asked = wish.units.get(name).and_then(|unit| unit.enabled);
        let enabled = asked.unwrap_or(ENABLED.contains(&name));
        let also = installs(&tree, name, "Also");
        for (_, on) in companions.iter_mut().filter(|(other, _)| also.iter().any(|also| also == other)) {
            *on = if asked.is_none() && !enabled { *on } else { enabled };
        }
        if enabled {
            link(&mut tree, name);
        }
    }
    for (name, _) in companions.into_iter().filter(|(_, on)| *on) {
        link(&mut tree, name);
    }
    if let Some((keys, hash)) = &wish.core {
        let text = keys.iter().flat_map(|key| [*key, "\n"]).collect::<String>();
        tree.insert(KEYS.to_owned(), file(&text, 0o600, 1000));
        let shadow = SHADOW.replace("core:*", &format!("core:{}", hash.unwrap_or("*")));
        tree.insert("etc/shadow".to_owned(), file(&shadow, 0o600, 0));
    }
    tree
}

/// Makes the links that a unit's `[Install]` asks for.
fn link(tree: &mut Tree, name: &str) {
    let desired = installs(tree, name, "WantedBy").into_iter().map(|target| format!("{target}.wants/{name}"));
    for link in desired.chain(installs(tree, name, "Alias")) {
        tree.insert(format!("{UNITS}/{link}"), Entry::Link(name.to_owned()));
    }
}

/// Returns a key's values in a unit's `[Install]`, as the unit and its drop-ins are in the tree.
fn installs(tree: &Tree, name: &str, key: &str) -> Vec<String> {
    let text = |entry: &Entry| match entry {
        Entry::File { bytes, .. } => String::from_utf8(bytes.clone()).unwrap(),
        Entry::Link(_) | Entry::Boot(_) => String::new(),
    };
    let vendor = || VENDOR.iter().find(|(unit, _)| *unit == name).map(|(_, text)| (*text).to_owned());
    let Some(unit) = tree.get(&format!("{UNITS}/{name}")).map(text).or_else(vendor) else { return vec![] };
    let folder = format!("{UNITS}/{name}.d/");
    let dropins = tree.iter().filter(|(path, _)| path.starts_with(&folder)).map(|(_, entry)| text(entry));
    let mut values = Vec::new();
    for text in std::iter::once(unit).chain(dropins) {
        let lines =
            text.lines().skip_while(|line| *line != "[Install]").filter_map(|line| line.split_once('='));
        values.extend(lines.filter(|(word, _)| *word == key).map(|(_, value)| value.to_owned()));
    }
    values
}

/// A tree in which equal hosts are equal: by which of its directories a link names a unit means nothing to systemd, nor do
/// the links of a unit that is masked; no keys are no file; a locked password is locked, whatever its mark.
pub fn plain(mut tree: Tree, masked_in: &[&Wish]) -> Tree {
    for (path, entry) in &mut tree {
        if let Entry::Link(target) = entry
            && path.starts_with(UNITS)
            && target != "/dev/null"
        {
            *target = base(target).to_owned();
        }
        if let Entry::File { bytes, .. } = entry
            && path == "etc/shadow"
        {
            let text = String::from_utf8(bytes.clone()).unwrap();
            *bytes = text.replace("core:!:", "core:*:").replace("core:!!:", "core:*:").into_bytes();
        }
    }
    let own = masked(&tree);
    let is_masked = |name: &str| own.contains(&name) || masked_in.iter().any(|wish| wish.masks(name));
    tree.retain(|path, entry| match entry {
        Entry::Link(_) => !is_link_of(path, entry, is_masked),
        Entry::File { bytes, .. } => path != KEYS || !bytes.is_empty(),
        Entry::Boot(_) => true,
    });
    tree
}

/// Units that a link masks.
pub fn masked(tree: &Tree) -> Vec<&'static str> {
    let mask = Entry::Link("/dev/null".to_owned());
    NAMES.into_iter().filter(|name| tree.get(&format!("{UNITS}/{name}")) == Some(&mask)).collect()
}

/// True for a link, but a mask, by which one of these units is named.
pub fn is_link_of(path: &str, entry: &Entry, is_one: impl Fn(&str) -> bool) -> bool {
    matches!(entry, Entry::Link(target) if target != "/dev/null" && (is_one(base(path)) || is_one(target)))
}

fn base(path: &str) -> &str {
    path.rsplit_once('/').map_or(path, |(_, name)| name)
}
