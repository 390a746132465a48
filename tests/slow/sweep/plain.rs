//! Scenarios on a plain root: files, units, accounts, a reboot, a take-over, a failure, a change of mind.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown, symlink};
use std::path::{Path, PathBuf};

use serde_json::json;

use super::config::{Config, policy};
use super::host::{Down, Kind, SweepHost};
use super::play::{Ask, Ends, Scenario};
use super::tree::{Changes, file, gone, link, owned};

const UNIT: &str =
    "[Unit]\nDescription=X\n[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n";
const UNITS: &str = "etc/systemd/system";
const SHADOW: &str = "root:!:1:0:99999:7:::\ncore:*:1:0:99999:7:::\n";
const KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIExample admin@example";
const KEYS: &str = "var/home/core/.ssh/authorized_keys.d/ignition";
const HASH: &str = "$6$salt$hash";

/// A host as it is installed.
fn host(root: &Path) {
    let put = |path: &str, mode: u32, text: &str| {
        let at = root.join(path);
        fs::create_dir_all(at.parent().unwrap()).unwrap();
        fs::write(&at, text).unwrap();
        fs::set_permissions(&at, fs::Permissions::from_mode(mode)).unwrap();
    };
    put("etc/passwd", 0o644, "root:x:0:0::/root:/bin/sh\ncore:x:1000:1000::/var/home/core:/bin/sh\n");
    put("etc/group", 0o644, "root:x:0:\ncore:x:1000:\n");
    put("etc/shadow", 0o600, SHADOW);
    put("etc/motd", 0o644, "of the distribution\n");
    put("proc/cmdline", 0o444, "rw\n");
    put("proc/sys/kernel/random/boot_id", 0o644, "b\n");
    put("usr/lib/systemd/system/os.service", 0o644, UNIT);
    fs::create_dir_all(root.join("var/home/core")).unwrap();
    chown(root.join("var/home/core"), Some(1000), Some(1000)).unwrap();
}

/// Part that every config has.
fn base(name: &str) -> Config {
    Config::new(name)
        .file("/etc/motd", 0o644, "a\n")
        .file("/etc/app.conf", 0o600, "level = 1\n")
        .unit(json!({"name": "a.service", "enabled": true, "contents": UNIT}))
}

struct Made {
    dir: PathBuf,
}

impl Made {
    fn new(home: &Path, name: &str) -> Self {
        let dir = home.join(name.replace(' ', "-"));
        host(&dir.join("root"));
        fs::create_dir(dir.join("control")).unwrap();
        fs::write(dir.join("control/policy.json"), policy()).unwrap();
        Self { dir }
    }

    fn write(&self, config: &Config) {
        fs::write(self.dir.join(format!("control/{}.json", config.name)), config.text()).unwrap();
    }

    /// Applies a config to the host before the scenario begins.
    fn brought(self, config: &Config) -> Self {
        self.write(config);
        let mut host = SweepHost::boot(Kind::Plain, &self.dir).unwrap();
        for _ in 0..3 {
            let ran = host.apply(&config.name, None, None).unwrap();
            if ran.code == 0 {
                return self;
            }
            host.reboot(Down::Orderly).unwrap();
        }
        panic!("{} can't be brought to {}", self.dir.display(), config.name);
    }

    fn scenario(self, name: &'static str, asks: Vec<Ask>) -> Scenario {
        for ask in &asks {
            self.write(&ask.config);
        }
        let (kind, instead, lost) = (Kind::Plain, None, Vec::new());
        let (dir, history) = (self.dir, 1..=1);
        Scenario { name, kind, dir, asks, instead, lost, history, twice: 3, stride: 1, spared: 0 }
    }
}

pub fn scenarios(home: &Path) -> Vec<Scenario> {
    let makers: [fn(&Path) -> Scenario; 10] =
        [one_file, many_files, removal, units, users, reboot, take_over, failure, superseded, unmanaged];
    makers.iter().map(|make| make(home)).collect()
}

fn one_file(home: &Path) -> Scenario {
    let config = base("b").file("/etc/motd", 0o600, "b\n");
    Made::new(home, "file")
        .brought(&base("a"))
        .scenario("a file", vec![Ask::new(config, vec![file("etc/motd", 0o600, "b\n")])])
}

fn many_files(home: &Path) -> Scenario {
    let (mut config, mut changes) = (base("b"), Changes::new());
    for number in 0..12 {
        let (path, text) =
            (format!("etc/many/{}/{number}.conf", number % 3), format!("{number}\n").repeat(99));
        config = config.file(&format!("/{path}"), 0o640, &text);
        changes.push(file(&path, 0o640, &text));
    }
    Made::new(home, "many").brought(&base("a")).scenario("many files", vec![Ask::new(config, changes)])
}

fn removal(home: &Path) -> Scenario {
    let config = base("b").without("/etc/motd").without("/etc/app.conf");
    let changes = vec![file("etc/motd", 0o644, "of the distribution\n"), gone("etc/app.conf")];
    Made::new(home, "removal")
        .brought(&base("a"))
        .scenario("removal and restore", vec![Ask::new(config, changes)])
}

fn units(home: &Path) -> Scenario {
    let config = base("b")
        .unit(json!({"name": "a.service", "enabled": false, "contents": UNIT,
            "dropins": [{"name": "10-x.conf", "contents": "[Service]\nNice=1\n"}]}))
        .unit(json!({"name": "b.service", "enabled": true, "contents": UNIT}))
        .unit(json!({"name": "c.service", "mask": true}));
    let changes = vec![
        file(&format!("{UNITS}/a.service.d/10-x.conf"), 0o644, "[Service]\nNice=1\n"),
        gone(&format!("{UNITS}/multi-user.target.wants/a.service")),
        file(&format!("{UNITS}/b.service"), 0o644, UNIT),
        link(&format!("{UNITS}/multi-user.target.wants/b.service"), "/etc/systemd/system/b.service"),
        link(&format!("{UNITS}/c.service"), "/dev/null"),
    ];
    Made::new(home, "units")
        .brought(&base("a"))
        .scenario("units and drop-ins", vec![Ask::new(config, changes)])
}

fn of_core() -> Changes {
    vec![
        owned(KEYS, 0o600, 1000, &format!("{KEY}\n")),
        file("etc/shadow", 0o600, &SHADOW.replace("core:*", &format!("core:{HASH}"))),
    ]
}

fn users(home: &Path) -> Scenario {
    let config = base("b").core(&[KEY], Some(HASH));
    Made::new(home, "users")
        .brought(&base("a"))
        .scenario("keys and password", vec![Ask::new(config, of_core())])
}

fn reboot(home: &Path) -> Scenario {
    let config = base("b").file("/etc/costly", 0o644, "1\n").core(&[KEY], Some(HASH));
    let changes = [vec![file("etc/costly", 0o644, "1\n")], of_core()].concat();
    Made::new(home, "reboot").brought(&base("a")).scenario("a reboot", vec![Ask::new(config, changes)])
}

fn take_over(home: &Path) -> Scenario {
    let made = Made::new(home, "take-over");
    let root = made.dir.join("root");
    let put = |path: &str, mode: u32, text: &str| {
        fs::create_dir_all(root.join(path).parent().unwrap()).unwrap();
        fs::write(root.join(path), text).unwrap();
        fs::set_permissions(root.join(path), fs::Permissions::from_mode(mode)).unwrap();
    };
    put("etc/motd", 0o644, "a\n");
    put("etc/app.conf", 0o600, "level = 1\n");
    put(&format!("{UNITS}/a.service"), 0o644, UNIT);
    put("etc/machine-config-daemon/currentconfig", 0o600, &base("a").text());
    fs::create_dir(root.join(UNITS).join("multi-user.target.wants")).unwrap();
    symlink("/etc/systemd/system/a.service", root.join(UNITS).join("multi-user.target.wants/a.service"))
        .unwrap();
    let same = Ask::new(base("a"), Vec::new());
    let next = Ask::new(base("b").file("/etc/motd", 0o644, "b\n"), vec![file("etc/motd", 0o644, "b\n")]);
    made.scenario("a take-over from MCD, then a file", vec![same, next])
}

/// The file of a config is in the place of a unit's link, since the host leads the directory of links elsewhere: that is found out
/// after the files were written.
fn failing() -> Ask {
    let unit = UNIT.replace("multi-user.target", "report.target");
    let config = base("f")
        .file("/etc/motd", 0o644, "f\n")
        .file("/etc/many/f", 0o644, "f\n")
        .unit(json!({"name": "b.service", "enabled": true, "contents": UNIT}))
        .file("/etc/many/report/report.service", 0o644, "f\n")
        .unit(json!({"name": "report.service", "enabled": true, "contents": unit}));
    let changes = vec![
        file("etc/motd", 0o644, "f\n"),
        file("etc/many/f", 0o644, "f\n"),
        file(&format!("{UNITS}/b.service"), 0o644, UNIT),
        file("etc/many/report/report.service", 0o644, "f\n"),
        file(&format!("{UNITS}/report.service"), 0o644, &unit),
        link(&format!("{UNITS}/multi-user.target.wants/b.service"), "/etc/systemd/system/b.service"),
    ];
    Ask { ends: Ends::Fails, ..Ask::new(config, changes) }
}

fn failure(home: &Path) -> Scenario {
    let corrected = Ask::new(base("g").file("/etc/motd", 0o644, "g\n"), vec![file("etc/motd", 0o644, "g\n")]);
    let made = Made::new(home, "failure");
    let root = made.dir.join("root");
    fs::create_dir_all(root.join("etc/many/report")).unwrap();
    fs::create_dir_all(root.join(UNITS)).unwrap();
    symlink("/etc/many/report", root.join(UNITS).join("report.target.wants")).unwrap();
    let made = made.brought(&base("a"));
    Scenario {
        history: 2..=2,
        ..made.scenario("a failure, taken back, then corrected", vec![failing(), corrected])
    }
}

fn superseded(home: &Path) -> Scenario {
    let config = base("b")
        .file("/etc/motd", 0o644, "b\n")
        .file("/etc/many/b", 0o644, "b\n")
        .core(&[KEY], None)
        .unit(json!({"name": "b.service", "enabled": true, "contents": UNIT}));
    let changes = vec![
        file("etc/motd", 0o644, "b\n"),
        file("etc/many/b", 0o644, "b\n"),
        owned(KEYS, 0o600, 1000, &format!("{KEY}\n")),
        file(&format!("{UNITS}/b.service"), 0o644, UNIT),
        link(&format!("{UNITS}/multi-user.target.wants/b.service"), "/etc/systemd/system/b.service"),
    ];
    let other = Ask::new(base("c").file("/etc/motd", 0o644, "c\n"), vec![file("etc/motd", 0o644, "c\n")]);
    let made = Made::new(home, "superseded").brought(&base("a"));
    made.write(&other.config);
    let scenario = made.scenario("superseded by another config", vec![Ask::new(config, changes)]);
    Scenario { instead: Some(other), history: 1..=2, ..scenario }
}

fn unmanaged(home: &Path) -> Scenario {
    let changes = vec![
        file("etc/motd", 0o644, "a\n"),
        file("etc/app.conf", 0o600, "level = 1\n"),
        file(&format!("{UNITS}/a.service"), 0o644, UNIT),
        link(&format!("{UNITS}/multi-user.target.wants/a.service"), "/etc/systemd/system/a.service"),
    ];
    Made::new(home, "unmanaged").scenario("a host that was never managed", vec![Ask::new(base("a"), changes)])
}
