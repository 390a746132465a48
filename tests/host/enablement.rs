//! Links of units made without a running systemd are those that systemd's own `systemctl --root` makes.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use crate::ran;
use machine_config_agent::host::durable::{Attempt, apply_changes};
use machine_config_agent::host::systemd::{LinkVerb, UnitLinks};
use machine_config_agent::host::{FailPoints, Root};
use machine_config_agent::model::UnitName;
use machine_config_agent::model::observation::UnitFileState;

const ETC: &str = "/etc/systemd/system";

/// The unit files of every case: path, and `[Install]` section.
const UNITS: [(&str, &str); 26] = [
    ("/usr/lib/systemd/system/wanted.service", "WantedBy=multi-user.target"),
    ("/usr/lib/systemd/system/several.service", "WantedBy=a.target b.target\nWantedBy=c.target"),
    ("/usr/lib/systemd/system/cleared.service", "WantedBy=a.target\nWantedBy=\nWantedBy=b.target"),
    ("/usr/lib/systemd/system/required.service", "RequiredBy=multi-user.target"),
    ("/usr/lib/systemd/system/named.service", "Alias=nick.service %p-two.service\nWantedBy=a.target"),
    ("/usr/lib/systemd/system/with.service", "WantedBy=a.target\nAlso=with.socket without.service"),
    ("/usr/lib/systemd/system/with.socket", "WantedBy=sockets.target"),
    ("/usr/lib/systemd/system/without.service", ""),
    ("/usr/lib/systemd/system/indirect.service", "Also=with.socket"),
    ("/usr/lib/systemd/system/chain.service", "WantedBy=a.target\nAlso=link.service"),
    ("/usr/lib/systemd/system/link.service", "WantedBy=b.target\nAlso=chain.service"),
    ("/usr/lib/systemd/system/many@.service", "WantedBy=a.target\nDefaultInstance=one"),
    ("/usr/lib/systemd/system/bare@.service", "WantedBy=a.target"),
    ("/usr/lib/systemd/system/by@.service", "WantedBy=%i.target"),
    ("/usr/lib/systemd/system/own@.service", "WantedBy=a.target"),
    ("/usr/lib/systemd/system/own@special.service", "WantedBy=b.target"),
    ("/usr/lib/systemd/system/over.service", "WantedBy=a.target"),
    ("/etc/systemd/system/over.service", "WantedBy=b.target"),
    ("/etc/systemd/system/local.service", "WantedBy=a.target"),
    ("/run/systemd/system/volatile.service", "WantedBy=a.target"),
    ("/usr/lib/systemd/system/volatile.service", "WantedBy=b.target"),
    ("/usr/lib/systemd/system/dropped.service", "WantedBy=a.target"),
    ("/etc/systemd/system/dropped.service.d/10-x.conf", "WantedBy=\nRequiredBy=b.target"),
    ("/usr/lib/systemd/system/site-a.service", "WantedBy=a.target"),
    ("/usr/lib/systemd/system/site-b.service", "WantedBy=a.target"),
    ("/usr/lib/systemd/system/timed.timer", "WantedBy=timers.target"),
];

const PRESETS: [(&str, &str); 5] = [
    ("/usr/lib/systemd/system-preset/90-default.preset", "enable site-*.service\nenable many@.service x y\n"),
    ("/usr/lib/systemd/system-preset/99-default-disable.preset", "disable *\n"),
    ("/etc/systemd/system-preset/10-site.preset", "# a comment\n disable site-b.service\n"),
    ("/usr/lib/systemd/system-preset/50-hidden.preset", "disable site-a.service\n"),
    ("/etc/systemd/system-preset/50-hidden.preset", ""),
];

fn write(root: &Path, path: &str, text: &str) {
    let path = root.join(path.trim_start_matches('/'));
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

fn host() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for (path, install) in UNITS {
        let install = if install.is_empty() { String::new() } else { format!("[Install]\n{install}\n") };
        let body = if path.contains(".service.d/") { "" } else { "[Unit]\nDescription=x\n" };
        write(dir.path(), path, &format!("{body}{install}"));
    }
    for (path, text) in PRESETS {
        write(dir.path(), path, text);
    }
    // A unit file from elsewhere, a mask, and a name of another unit.
    write(dir.path(), "/opt/linked.service", "[Install]\nWantedBy=a.target\n");
    let link = |target: &str, at: &str| {
        std::os::unix::fs::symlink(target, dir.path().join(at.trim_start_matches('/'))).unwrap();
    };
    link("/opt/linked.service", "/etc/systemd/system/linked.service");
    link("/dev/null", "/etc/systemd/system/masked.service");
    link("/usr/lib/systemd/system/wanted.service", "/etc/systemd/system/other-name.service");
    dir
}

/// The links of a root: path, and the name of what it leads to.
fn links(root: &Path) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut folders = vec![root.join(ETC.trim_start_matches('/'))];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).into_iter().flatten() {
            let path = entry.unwrap().path();
            match std::fs::read_link(&path) {
                Ok(target) => {
                    // By which of its directories a unit file is named makes no difference to systemd.
                    let name = target.file_name().unwrap().to_string_lossy().into_owned();
                    found.insert(path.strip_prefix(root).unwrap().display().to_string(), name);
                }
                Err(_) if path.is_dir() => folders.push(path),
                Err(_) => {}
            }
        }
    }
    found
}

/// The agent's verb as arguments of systemctl. Links of before go first (MCD-148); `reenable` of systemd 252 looks
/// neither at instances nor at drop-ins. A linked unit is gone when it is disabled, so `enable` comes alone.
fn words(verb: LinkVerb, unit: &str) -> &'static [&'static str] {
    match verb {
        LinkVerb::Unmask => &["unmask"],
        LinkVerb::Preset => &["preset"],
        LinkVerb::Enable if unit == "linked.service" => &["enable"],
        LinkVerb::Enable => &["disable", "enable"],
        LinkVerb::Disable => &["disable"],
        LinkVerb::Mask => &["mask"],
    }
}

fn ours(root: &Path, steps: &[(LinkVerb, &str)]) -> bool {
    let root = Root::open(root).unwrap();
    steps.iter().all(|(verb, unit)| {
        let mut links = UnitLinks::load(&root).unwrap();
        let done = links.make(*verb, &UnitName::new(*unit).unwrap());
        apply_changes(&root, &links.changes(&[]), Attempt::First, &FailPoints::off()).unwrap();
        done.is_ok()
    })
}

fn systemctl(root: &Path, words: &[&str]) -> std::process::Output {
    Command::new("systemctl").arg(format!("--root={}", root.display())).args(words).output().unwrap()
}

fn is_available() -> bool {
    let is_available =
        Command::new("systemctl").arg("--version").output().is_ok_and(|output| output.status.success());
    if !is_available {
        ran::not_run(std::thread::current().name().unwrap_or_default(), "systemctl (package systemd)");
    }
    is_available
}

/// MCD-146, MCD-147, MCD-149, MCD-150, MCD-152: enabling, disabling, presets and masks make the links that systemd makes.
#[test]
fn links_are_those_of_systemctl() {
    use LinkVerb::{Disable, Enable, Mask, Preset, Unmask};
    if !is_available() {
        return;
    }
    let units = [
        "wanted.service",
        "several.service",
        "cleared.service",
        "required.service",
        "named.service",
        "with.service",
        "without.service",
        "indirect.service",
        "chain.service",
        "many@.service",
        "many@two.service",
        "by@zone.service",
        "own@special.service",
        "own@other.service",
        "over.service",
        "local.service",
        "volatile.service",
        "dropped.service",
        "linked.service",
        "timed.timer",
        "site-a.service",
    ];
    let mut cases: Vec<Vec<(LinkVerb, &str)>> = Vec::new();
    for unit in units {
        cases.push(vec![(Enable, unit)]);
        cases.push(vec![(Enable, unit), (Enable, unit)]);
        cases.push(vec![(Mask, unit)].into_iter().filter(|_| !unit.starts_with(['o', 'l'])).collect());
        cases.push(vec![(Preset, unit)]);
        cases.push(vec![(Enable, unit), (Preset, unit)]);
        cases.push(vec![(Enable, unit), (Disable, unit)]);
    }
    cases.extend([
        vec![(Preset, "site-b.service"), (Preset, "site-a.service")],
        vec![(Preset, "many@x.service"), (Preset, "many@z.service")],
        vec![(Unmask, "masked.service")],
        vec![(Unmask, "wanted.service")],
        vec![(Mask, "timed.timer"), (Unmask, "timed.timer"), (Enable, "timed.timer")],
        vec![(Enable, "with.service"), (Enable, "indirect.service"), (Disable, "indirect.service")],
        vec![(Enable, "many@one.service"), (Enable, "many@two.service"), (Disable, "many@two.service")],
    ]);
    for steps in &cases {
        let (own, other) = (host(), host());
        assert!(ours(own.path(), steps), "{steps:?}");
        for (unit, word) in
            steps.iter().flat_map(|(verb, unit)| words(*verb, unit).iter().map(move |word| (unit, word)))
        {
            let output = systemctl(other.path(), &[word, unit]);
            assert!(output.status.success(), "{steps:?}: {}", String::from_utf8_lossy(&output.stderr));
        }
        let mut expected = links(other.path());
        // systemd removes the link that brings a unit with the unit's other links: nothing could restore it, so the agent keeps it.
        expected.insert("etc/systemd/system/linked.service".to_owned(), "linked.service".to_owned());
        assert_eq!(links(own.path()), expected, "{steps:?}");
    }
    assert!(cases.len() > 100, "{}", cases.len());
}

/// MCD-153, MCD-151: what can't be enabled is refused by both; a unit that is not there is left alone, which systemd
/// refuses: the machine-config-daemon never asks it for one.
#[test]
fn units_refused_by_systemctl_are_refused() {
    if !is_available() {
        return;
    }
    for (unit, refused) in [("masked.service", true), ("bare@.service", true), ("nowhere.service", false)] {
        let (own, other) = (host(), host());
        let before = links(own.path());
        let asked = [(LinkVerb::Enable, unit)];
        assert_eq!(ours(own.path(), &asked), !refused, "{unit}");
        let output = systemctl(other.path(), &["enable", unit]);
        assert!(!output.status.success(), "{unit}: {}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(links(own.path()), before, "{unit}");
    }
}

/// MCD-148, MCD-154: links of an earlier `[Install]` section go, as when a unit is disabled before it is enabled; those of
/// a unit whose file is gone too.
#[test]
fn old_links_go() {
    if !is_available() {
        return;
    }
    let (own, other) = (host(), host());
    let enable = [(LinkVerb::Enable, "local.service")];
    let path = format!("{ETC}/local.service");
    for root in [own.path(), other.path()] {
        assert!(ours(root, &enable));
        write(root, &path, "[Install]\nWantedBy=c.target\n");
    }
    assert!(ours(own.path(), &enable));
    assert!(systemctl(other.path(), &["disable", "local.service"]).status.success());
    assert!(systemctl(other.path(), &["enable", "local.service"]).status.success());
    assert_eq!(links(own.path()), links(other.path()));
    for root in [own.path(), other.path()] {
        std::fs::remove_file(root.join(path.trim_start_matches('/'))).unwrap();
    }
    assert!(ours(own.path(), &[(LinkVerb::Preset, "local.service")]));
    systemctl(other.path(), &["disable", "local.service"]);
    assert_eq!(links(own.path()), links(other.path()));
}

/// Observed states of units are those of `systemctl is-enabled`.
#[test]
fn states_are_those_of_systemctl() {
    if !is_available() {
        return;
    }
    let dir = host();
    let enabled = ["wanted.service", "named.service", "with.service", "many@two.service", "over.service"];
    for unit in enabled {
        assert!(ours(dir.path(), &[(LinkVerb::Enable, unit)]), "{unit}");
    }
    let root = Root::open(dir.path()).unwrap();
    let seen = UnitLinks::load(&root).unwrap();
    let others = [
        "required.service",
        "local.service",
        "without.service",
        "masked.service",
        "nowhere.service",
        "timed.timer",
    ];
    for unit in enabled.into_iter().chain(others) {
        let output = systemctl(dir.path(), &["is-enabled", unit]);
        let expected = match String::from_utf8_lossy(&output.stdout).trim() {
            "enabled" => UnitFileState::Enabled,
            "disabled" => UnitFileState::Disabled,
            "static" => UnitFileState::Static,
            "masked" => UnitFileState::Masked,
            _ => UnitFileState::NotFound,
        };
        assert_eq!(seen.observe(&UnitName::new(unit).unwrap()).unwrap().enabled, expected, "{unit}");
    }
}

/// The agent computes links itself, beside asking systemd where it runs, because `systemctl` shows its links only by making
/// it, syncs nothing, and refuses a list for one unit that is not there.
#[test]
fn systemctl_answers_only_by_writing() {
    if !is_available() {
        return;
    }
    let (dry, refused) = (host(), host());
    let before = links(dry.path());
    assert!(systemctl(dry.path(), &["--dry-run", "enable", "wanted.service"]).status.success());
    assert_ne!(links(dry.path()), before, "systemctl has learned a dry run: docs/architecture.md");
    assert!(!systemctl(refused.path(), &["enable", "nowhere.service", "wanted.service"]).status.success());
    assert_eq!(links(refused.path()), before);
}

/// Forms of an `[Install]` section: the unit, the section, and what the host has beside it, by path and text; a text that begins with
/// `->` is a link's.
type Form = (&'static str, &'static str, &'static [(&'static str, &'static str)]);

const FORMS: [Form; 60] = [
    ("a.service", "WantedBy=../x", &[]),
    ("a.service", "WantedBy=x", &[]),
    ("a.service", "WantedBy=x.foo", &[]),
    ("a.service", "WantedBy=%Z.target", &[]),
    ("a.service", "WantedBy=%", &[]),
    ("a.service", "WantedBy=%%.target", &[]),
    ("a.service", "WantedBy=\"x.target y.target\"", &[]),
    ("a.service", "WantedBy=\"x.target\" 'y.target'", &[]),
    ("a.service", "WantedBy=\"x.target", &[]),
    ("a.service", "WantedBy=x@.target", &[]),
    ("a.service", "WantedBy=x@y.target", &[]),
    ("a.service", "WantedBy=x.slice", &[]),
    ("a.service", "WantedBy=\u{e4}.target", &[]),
    ("a.service", "WantedBy=x.target ../y", &[]),
    ("a.service", "RequiredBy=../x", &[]),
    ("a.service", "DefaultInstance=q\nWantedBy=x.target", &[]),
    ("a.service", "Foo=x", &[]),
    ("a.service", "Alias=y.socket", &[]),
    ("a.service", "Alias=y.service y.socket", &[]),
    ("a.service", "Alias=y", &[]),
    ("a.service", "Alias=/x.service", &[]),
    ("a.service", "Alias=../x.service", &[]),
    ("a.service", "Alias=y@.service", &[]),
    ("a.service", "Alias=y@i.service", &[]),
    ("a.service", "Alias=a.service", &[]),
    ("a.service", "Alias='q.service'", &[]),
    ("a.service", "Alias=x.target.wants/a.service", &[]),
    ("a.service", "Alias=x.target.wants/b.service", &[]),
    ("a.service", "Alias=multi/a.service", &[]),
    ("a.service", "Alias=b.service", &[("/etc/systemd/system/b.service", "[Service]\n")]),
    ("a.service", "Alias=b.service", &[("/usr/lib/systemd/system/b.service", "[Service]\n")]),
    ("a.service", "Alias=b.service", &[("/etc/systemd/system/b.service/x", "")]),
    ("a.mount", "Alias=b.mount", &[]),
    ("a.automount", "Alias=b.automount", &[]),
    ("a.swap", "Alias=b.swap", &[]),
    ("a.slice", "Alias=b.slice", &[]),
    ("a.socket", "Alias=b.socket", &[]),
    ("a.target", "Alias=b.target", &[]),
    ("z@.service", "WantedBy=x.target", &[]),
    ("z@.service", "WantedBy=x@.target", &[]),
    ("z@.service", "WantedBy=x@y.target", &[]),
    ("z@.service", "WantedBy=x.target\nDefaultInstance=i", &[]),
    ("z@.service", "WantedBy=x.target\nDefaultInstance=%p", &[]),
    ("z@.service", "WantedBy=x.target\nDefaultInstance=i/j", &[]),
    ("z@.service", "Alias=y@.service", &[]),
    ("z@.service", "Alias=y.service", &[]),
    ("z@.service", "Alias=y.service\nDefaultInstance=i", &[]),
    ("z@.service", "Alias=y@i.service", &[]),
    ("z@q.service", "Alias=y@q.service", &[]),
    ("z@q.service", "Alias=y@.service", &[]),
    ("z@q.service", "Alias=y@r.service", &[]),
    ("z@q.service", "Alias=y.service", &[]),
    ("a.service", "Also=../x", &[]),
    ("a.service", "Also=%p.socket", &[("/etc/systemd/system/a.socket", "[Install]\nWantedBy=s.target\n")]),
    ("a.service", "Also=x@.service", &[("/etc/systemd/system/x@.service", "[Install]\nWantedBy=q.target\n")]),
    ("a.service", "Also=b.service", &[("/etc/systemd/system/b.service", "[Install]\nWantedBy=../q\n")]),
    ("a.service", "WantedBy=x.target", &[("/etc/systemd/system/x.target.wants", "")]),
    ("a.service", "WantedBy=x.target", &[("/etc/systemd/system/x.target.wants/a.service", "")]),
    ("a.service", "WantedBy=x.target", &[("/etc/systemd/system/x.target.wants/a.service/x", "")]),
    ("a.service", "WantedBy=x.target", &[("/etc/systemd/system/x.target.wants/a.service", "->/foo")]),
];

/// What systemctl refuses of an `[Install]` section is refused by its reader, and so by the plan; what it takes makes the same links.
#[test]
fn install_sections_are_taken_as_systemctl_takes_them() {
    if !is_available() {
        return;
    }
    let (mut wrong, mut refused) = (Vec::new(), 0);
    for (unit, install, beside) in FORMS {
        let made = || {
            let dir = tempfile::tempdir().unwrap();
            write(
                dir.path(),
                &format!("{ETC}/{unit}"),
                &format!("[Unit]\nDescription=x\n[Install]\n{install}\n"),
            );
            for (path, text) in beside {
                match text.strip_prefix("->") {
                    Some(target) => {
                        let at = dir.path().join(path.trim_start_matches('/'));
                        std::fs::create_dir_all(at.parent().unwrap()).unwrap();
                        std::os::unix::fs::symlink(target, at).unwrap();
                    }
                    None => write(dir.path(), path, text),
                }
            }
            dir
        };
        let (own, other) = (made(), made());
        let is_taken = ours(own.path(), &[(LinkVerb::Enable, unit)]);
        let output = systemctl(other.path(), &["enable", unit]);
        let case = format!("{unit} {install:?} {beside:?}");
        if is_taken != output.status.success() {
            wrong.push(format!("{case}: {}", String::from_utf8_lossy(&output.stderr)));
        } else if is_taken && links(own.path()) != links(other.path()) {
            wrong.push(format!("{case}: {:?} {:?}", links(own.path()), links(other.path())));
        }
        refused += usize::from(!is_taken);
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(refused > 20, "{refused}");
}
