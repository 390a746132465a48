//! Entries by the places that they really have on a host, and those that nobody has to touch.

use std::os::unix::fs::{MetadataExt as _, symlink};

use rustix::fs::IFlags;
use serde_json::{Value, json};

use crate::ran;
use crate::test_host::{BINARY, Node, Ran, STATE, apply, config, files, ignition};

fn storage(list: &str, entry: Value) -> Value {
    let mut storage = json!({});
    storage[list] = json!([entry]);
    ignition(json!({ "storage": storage }))
}

fn file(path: &str) -> Value {
    files(&[(path, "x")])
}

fn directory(path: &str, mode: u32) -> Value {
    storage("directories", json!({"path": path, "mode": mode}))
}

fn link(node: &Node, at: &str, target: &str) {
    let at = node.path(&format!("root{at}"));
    std::fs::create_dir_all(at.parent().unwrap()).unwrap();
    symlink(target, at).unwrap();
}

fn text(ran: &Ran) -> String {
    format!("{}: {}{}", ran.code, ran.out, ran.err)
}

/// Plan and apply refuse the same, nothing is touched, and another target follows.
fn is_refused(node: &Node, spec: &Value, words: &str) {
    node.put("b.json", config("rendered-b", spec));
    let before = node.listing("root");
    let (planned, applied) = (node.plan("b.json"), node.apply("b.json"));
    assert!(planned.code == 3 && planned.out.contains(words), "{spec}: {}", text(&planned));
    assert!(applied.code == 3 && applied.err.contains(words), "{spec}: {}", text(&applied));
    let after = node.listing("root");
    let changed: Vec<_> = before.iter().filter(|(path, line)| after.get(*path) != Some(line)).collect();
    let changed = changed.into_iter().filter(|(path, _)| !path.starts_with(&format!("/{STATE}")));
    assert_eq!(changed.count(), 0, "{spec}");
    node.commit("rendered-empty.json", &files(&[]));
}

/// A host link, the place that it leads to, the config, and words of the refusal.
type Case = (&'static str, &'static str, Value, &'static str);

fn of_host_links() -> Vec<Case> {
    const OWN: &str = "it belongs to the agent's own state";
    const SYSTEM: &str = "it is not part of the host's configuration";
    let hard = json!({"path": "/etc/hard", "target": "/etc/lnk/current.json", "hard": true});
    vec![
        ("/etc/lnk", "/var/lib", directory("/etc/lnk/machine-config-agent", 0o777), OWN),
        ("/etc/lnk", "/var/lib", file("/etc/lnk/machine-config-agent/current.json"), OWN),
        ("/etc/lnk", "/var/lib/machine-config-agent", file("/etc/lnk/new/x"), OWN),
        ("/etc/lnk", "/var", directory("/etc/lnk/lib", 0o777), "no write permission for group and others"),
        (
            "/etc/lnk",
            "/etc/machine-config-daemon",
            file("/etc/lnk/currentconfig"),
            "the agent writes this file",
        ),
        ("/etc/lnk", "/etc", directory("/etc/lnk/machine-config-daemon", 0o777), "no write permission"),
        ("/var/run", "/run", file("/var/run/machine-config-agent/report.json"), "the agent writes this file"),
        (
            "/root",
            "var/roothome",
            directory("/var/roothome", 0o777),
            "it is /root: /root is a directory of the system",
        ),
        ("/etc/lnk", "/usr", directory("/etc/lnk/bin", 0o777), "/usr/bin is a directory of the system"),
        ("/etc/lnk", "/dev/shm", file("/etc/lnk/x"), SYSTEM),
        ("/etc/lnk", "/proc/sys", file("/etc/lnk/x"), SYSTEM),
        ("/etc/lnk", "../sys", storage("links", json!({"path": "/etc/lnk/x", "target": "y"})), SYSTEM),
        ("/etc/lnk", "/", file("/etc/lnk/dev/x"), SYSTEM),
        (
            "/etc/lnk",
            "/var/lib/machine-config-agent",
            storage("links", hard),
            "the agent replaces /etc/lnk/current.json",
        ),
    ]
}

/// A link of the host on the way to an entry, or to what the agent and the system need.
#[test]
fn entries_are_judged_by_where_links_of_host_lead() {
    for (at, target, spec, words) in of_host_links() {
        let node = Node::new();
        for place in ["root/usr/bin", "root/dev/shm", "root/proc/sys", "root/sys", "root/var/roothome"] {
            std::fs::create_dir_all(node.path(place)).unwrap();
        }
        link(&node, at, target);
        is_refused(&node, &spec, words);
    }
    // The way to the state leads through links: what is on it is the agent's, too.
    let led = || {
        let node = Node::new();
        std::fs::create_dir_all(node.path("root/data")).unwrap();
        std::fs::rename(node.path("root/var"), node.path("root/data/var")).unwrap();
        link(&node, "/var", "mnt/var");
        link(&node, "/mnt/var", "/data/var");
        node
    };
    is_refused(&led(), &directory("/data", 0o777), "no write permission for group and others on /data");
    is_refused(&led(), &directory("/mnt", 0o777), "no write permission for group and others on /mnt");
    is_refused(&led(), &file("/data/var/lib/machine-config-agent/x"), "the agent's own state");
    let other = json!({"path": "/mnt/var", "target": "/srv", "overwrite": true});
    is_refused(&led(), &storage("links", other), "to which this link leads");
    let node = led();
    node.put("a.json", config("rendered-a", &directory("/data/other", 0o777)));
    assert_eq!(node.plan("a.json").code, 0);
}

/// What only looks like that: a link that the config itself replaces, and plain names beside.
#[test]
fn entries_beside_protected_places_are_taken() {
    let node = Node::new();
    link(&node, "/etc/lnk", "/var/lib");
    link(&node, "/etc/run", "/run");
    let taken = json!({"storage": {
        "directories": [{"path": "/etc/lnk", "overwrite": true}, {"path": "/etc/lnk/machine-config-agent", "mode": 0o777}],
        "files": [{"path": "/etc/run/app", "contents": {"source": "data:,x"}}]}});
    node.commit("rendered-a.json", &ignition(taken));
    assert!(
        !node.path("root/var/lib/machine-config-agent").symlink_metadata().unwrap().mode() & 0o022 == 0o022
    );
    node.commit("rendered-b.json", &file("/etc/lnk/other"));
    node.commit("rendered-c.json", &files(&[]));
}

/// Somebody led the way of an entry to the agent's own files since: these stay when the entry leaves.
#[test]
fn files_of_agent_stay_where_entry_leaves_that_leads_to_them_since() {
    let node = Node::new();
    node.commit("rendered-a.json", &file("/etc/lnk/currentconfig"));
    std::fs::rename(node.path("root/etc/lnk"), node.path("root/etc/away")).unwrap();
    link(&node, "/etc/lnk", "/etc/machine-config-daemon");
    node.commit("rendered-b.json", &files(&[]));
    assert!(node.read("root/etc/machine-config-daemon/currentconfig").contains("rendered-b"));
}

/// A host with a directory that others can write to, and in it what a config lists.
fn open_host() -> Node {
    let node = Node::new();
    node.put("root/etc/e1/e2", "x");
    node.mode("root/etc/e1/e2", 0o644);
    std::fs::create_dir(node.path("root/etc/e1/d")).unwrap();
    link(&node, "/etc/e1/l", "e2");
    node
}

fn in_open(also: &[Value]) -> Value {
    let directories = [&[json!({"path": "/etc/e1/d"})], also].concat();
    ignition(json!({"storage": {
        "directories": directories, "links": [{"path": "/etc/e1/l", "target": "e2"}],
        "files": [{"path": "/etc/e1/e2", "mode": 0o644, "contents": {"source": "data:,x"}}]}}))
}

fn is_left(node: &Node, name: &str, spec: &Value) {
    node.put("next.json", config(name, spec));
    let planned = node.plan("next.json");
    assert_eq!(planned.code, 0, "{name}: {}", text(&planned));
    let applied = node.apply("next.json");
    assert_eq!(applied.code, 0, "{name}: {}", text(&applied));
    for path in ["e2", "d", "l"] {
        assert!(node.path(&format!("root/etc/e1/{path}")).symlink_metadata().is_ok(), "{name}: {path}");
    }
}

/// Entries that the host has as they are listed need no write, so nothing is in the way of them.
#[test]
fn entries_that_match_in_open_directory_come_and_leave() {
    // The earlier config opened it.
    let node = open_host();
    node.commit("rendered-a.json", &directory("/etc/e1", 0o777));
    is_left(&node, "rendered-b", &in_open(&[json!({"path": "/etc/e1", "mode": 0o777})]));
    is_left(&node, "rendered-c", &files(&[]));
    let node = open_host();
    node.commit("rendered-a.json", &directory("/etc/e1", 0o777));
    is_left(&node, "rendered-b", &in_open(&[]));
    is_left(&node, "rendered-c", &files(&[]));
    // The host's own.
    let node = open_host();
    node.mode("root/etc/e1", 0o777);
    is_left(&node, "rendered-a", &in_open(&[]));
    node.put("other.json", config("rendered-b", &files(&[("/etc/e1/e2", "other")])));
    let (planned, applied) = (node.plan("other.json"), node.apply("other.json"));
    assert_eq!((planned.code, applied.code), (3, 3), "{}{}", text(&planned), text(&applied));
    is_left(&node, "rendered-c", &file("/etc/a"));
    // Closed in the same update.
    let node = open_host();
    node.mode("root/etc/e1", 0o777);
    is_left(&node, "rendered-a", &in_open(&[json!({"path": "/etc/e1", "mode": 0o755})]));
    is_left(&node, "rendered-b", &files(&[]));
}

/// What is closed and changed in one config needs two updates, and is told so.
#[test]
fn directory_that_is_closed_is_filled_by_next_update() {
    let node = Node::new();
    node.commit("rendered-a.json", &directory("/etc/e1", 0o777));
    let both = json!({"directories": [{"path": "/etc/e1", "mode": 0o755}],
        "files": [{"path": "/etc/e1/new", "contents": {"source": "data:,x"}}]});
    let both = ignition(json!({ "storage": both }));
    node.put("b.json", config("rendered-b", &both));
    let (planned, applied) = (node.plan("b.json"), node.apply("b.json"));
    let words = "close /etc/e1 in a separate update first";
    assert!(planned.code == 3 && planned.out.contains(words), "{}", text(&planned));
    assert!(applied.code == 3 && applied.err.contains(words), "{}", text(&applied));
    node.commit("rendered-c.json", &directory("/etc/e1", 0o755));
    node.commit("rendered-b.json", &both);
}

/// Returns the commands of an advice, run by a shell in the root.
fn follow(node: &Node, advice: &str) {
    let commands = advice.replace(" /etc/", " root/etc/");
    let ran = std::process::Command::new("sh").args(["-ec", &commands]).current_dir(node.dir.path()).status();
    assert!(ran.unwrap().success(), "{commands}");
}

/// Somebody opened a directory that the config lists, by its mode or with setfacl(1): an update of its own would change nothing there, so
/// the advice makes it again as the config has it.
#[test]
fn listed_directory_that_somebody_opened_is_made_again_by_the_advice() {
    let has_setfacl = std::process::Command::new("setfacl").arg("--version").output().is_ok();
    for (mode, open) in [
        (0o755, "chmod 0775 root/etc/e1"),
        (0o755, "setfacl -m u:1500:rwx root/etc/e1"),
        (0o700, "setfacl -m u:1500:rwx root/etc/e1"),
        (0o750, "chmod 0777 root/etc/e1; setfacl -m u:1500:rwx root/etc/e1"),
        (0o711, "chown 1500 root/etc/e1; setfacl -m g:1500:rwx root/etc/e1"),
    ] {
        if open.contains("setfacl") && !has_setfacl {
            ran::not_run("listed_directory_that_somebody_opened_is_made_again_by_the_advice", "setfacl");
            continue;
        }
        let of = |text: &str| {
            ignition(
                json!({"storage": {"directories": [{"path": "/etc/e1", "mode": mode, "user": {"id": 0}}],
                "files": [{"path": "/etc/e1/f", "mode": 0o644, "contents": {"source": format!("data:,{text}")}}]}}),
            )
        };
        let node = Node::new();
        node.commit("rendered-a.json", &of("x"));
        follow(&node, &open.replace("root/etc/", "/etc/"));
        node.put("b.json", config("rendered-b", &of("y")));
        let (planned, applied) = (node.plan("b.json"), node.apply("b.json"));
        let both = format!("{open}: {}{}", text(&planned), text(&applied));
        assert_eq!((planned.code, applied.code), (3, 3), "{both}");
        let (_, advice) = planned
            .out
            .split_once("make it again as the config has it: ")
            .unwrap_or_else(|| panic!("{both}"));
        follow(&node, advice.lines().next().unwrap());
        let (planned, applied) = (node.plan("b.json"), node.apply("b.json"));
        let both = format!("{open} {advice}: {}{}", text(&planned), text(&applied));
        assert_eq!((planned.code, applied.code), (0, 0), "{both}");
        let verified = node.run(&["verify", "--root", "root", "--os-backend", "none"]);
        assert_eq!(verified.code, 0, "{both}{}", verified.out);
    }
}

/// A path that is immutable, until the end.
pub struct Flagged(std::path::PathBuf);

impl Flagged {
    pub fn new(path: std::path::PathBuf) -> Option<Self> {
        set(&path, IFlags::IMMUTABLE).ok()?;
        Some(Self(path))
    }
}

impl Drop for Flagged {
    fn drop(&mut self) {
        let _is_reset = set(&self.0, IFlags::empty());
    }
}

fn set(path: &std::path::Path, flags: IFlags) -> rustix::io::Result<()> {
    let file = std::fs::File::open(path).map_err(|_| rustix::io::Errno::NOENT)?;
    rustix::fs::ioctl_setflags(&file, flags)
}

#[test]
fn entries_that_match_and_are_immutable_come_and_leave() {
    for path in ["e2", "d", ""] {
        let node = open_host();
        let Some(_flagged) = Flagged::new(node.path(&format!("root/etc/e1/{path}"))) else {
            ran::not_run("entries_that_match_and_are_immutable_come_and_leave", "chattr +i");
            return;
        };
        is_left(&node, "rendered-a", &in_open(&[json!({"path": "/etc/e1"})]));
        is_left(&node, "rendered-b", &files(&[]));
    }
}

/// A person's directory in the place of what an interrupted update made, or was to make: it is put aside as a file is.
#[test]
fn directory_put_in_place_of_undone_entry_is_moved_aside() {
    let file = json!({"storage": {"files": [
        {"path": "/etc/b", "overwrite": true, "contents": {"source": "data:,new"}}, {"path": "/etc/c", "contents": {"source": "data:,new"}}]}});
    let soft = json!({"storage": {"links": [{"path": "/etc/b", "target": "c", "overwrite": true}], "files": [
        {"path": "/etc/c", "contents": {"source": "data:,new"}}]}});
    for (spec, had) in [(&file, true), (&file, false), (&soft, true), (&soft, false)] {
        for point in ["kill:originals-saved", "kill:ran"] {
            let node = Node::new();
            if had {
                node.put("root/etc/b", "the host's");
            }
            node.commit("rendered-a.json", &files(&[]));
            node.put("b.json", config("rendered-b", &ignition(spec.clone())));
            let killed = node.command(&apply("b.json")).env("MCA_FAIL_POINT", point).output().unwrap();
            assert!(!killed.status.success());
            drop(std::fs::remove_file(node.path("root/etc/b")));
            node.put("root/etc/b/theirs", "a person's");
            node.put("empty.json", config("rendered-empty", &files(&[])));
            let (planned, applied) = (node.plan("empty.json"), node.apply("empty.json"));
            let both = format!("{spec} {had} {point}: {}{}", text(&planned), text(&applied));
            assert_eq!((planned.code, applied.code), (0, 0), "{both}");
            assert_eq!(node.read("root/etc/b.mca-foreign/theirs"), "a person's", "{both}");
            assert_eq!(node.path("root/etc/b").exists(), had, "{both}");
            assert!(!had || node.read("root/etc/b") == "the host's", "{both}");
        }
    }
}

/// Runs lines of a shell with a small file system for the directory of the state. Returns the exit codes that they noted.
fn with_small_state(size: u64, bytes: usize, lines: &str) -> (String, String) {
    let node = Node::new();
    node.put("b.json", config("rendered-b", &files(&[("/etc/big", &"x".repeat(bytes))])));
    node.put("empty.json", config("rendered-empty", &files(&[])));
    let script = format!(
        "mount -t tmpfs -o size={size}k,mode=755 tmpfs root/var && mkdir -p root/{STATE} && chmod 700 root/{STATE} || exit 1\n\
         agent() {{ '{BINARY}' \"$@\" --policy policy.json --root root --os-backend none; echo \"$?\" >>codes; }}\n\
         apply() {{ agent apply --to \"$1\" --reboot-by supervisor --yes; }}\n{lines}\nls root/etc/big >>codes 2>/dev/null; true"
    );
    let mut unshare = std::process::Command::new("unshare");
    let ran = unshare.args(["-m", "sh", "-c", &script]).current_dir(node.dir.path()).output().unwrap();
    let err = String::from_utf8_lossy(&ran.stderr).into_owned();
    (node.read("codes").split_whitespace().collect::<Vec<_>>().join(" "), err)
}

fn may_mount(test: &str) -> bool {
    let tried =
        std::process::Command::new("unshare").args(["-m", "mount", "-t", "tmpfs", "x", "/mnt"]).output();
    let may = tried.is_ok_and(|output| output.status.success());
    if !may {
        ran::not_run(test, "to mount (CAP_SYS_ADMIN)");
    }
    may
}

/// The config is in the state twice when it is committed.
#[test]
fn space_of_state_is_examined_before() {
    if !may_mount("space_of_state_is_examined_before") {
        return;
    }
    for (size, kib, expected) in [
        (160, 40, "0 0 0"),
        (160, 80, "3 3 0"),
        (160, 120, "3 3 0"),
        (200, 100, "3 3 0"),
        (240, 120, "3 3 0"),
        (300, 160, "3 3 0"),
        (400, 160, "0 0 0"),
        (400, 200, "3 3 0"),
    ] {
        let lines = "agent plan --to b.json; apply b.json; apply empty.json";
        let (codes, err) = with_small_state(size, kib << 10, lines);
        assert_eq!(codes, expected, "{size} KiB, a file of {kib} KiB: {err}");
    }
}

/// Somebody took the space since: the update is undone, and holds no other target.
#[test]
fn update_whose_commit_finds_no_space_is_undone() {
    if !may_mount("update_whose_commit_finds_no_space_is_undone") {
        return;
    }
    let lines = "MCA_FAIL_POINT=kill:ran apply b.json; test -e root/etc/big && echo there >>codes\n\
        free=$(df --output=avail -k root/var | tail -n 1)\n\
        head -c $(( (free - 64) * 1024 )) /dev/zero >root/var/fill\n\
        apply b.json; ls root/etc/big >>codes; agent plan --to b.json; apply empty.json; apply b.json\n\
        rm root/var/fill; apply b.json";
    let (codes, err) = with_small_state(700, 200 << 10, lines);
    // Tried again at once, it is refused before anything is touched.
    assert_eq!(codes, "137 there 3 3 0 3 0 root/etc/big", "{err}");
    assert!(err.contains("rolling-back") && err.contains("No space left on device"), "{err}");
}
