//! Directories and links: carried out, killed at every point, undone, left. The host is read with the standard library.

#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a child process plays the one that dies"
)]

use std::os::unix::fs::symlink;

use super::*;
use crate::journal::originals::promote;
use crate::model::machineconfig::MachineConfig;
use crate::model::{DisruptionPolicy, Facts};
use crate::plan::plan;

const ROOT: &str = "MCA_TEST_PATHS_ROOT";
const KILL: &str = "MCA_TEST_PATHS_KILL";

const OLD: &str = r#"
    "directories": [
        {"path": "/etc/app", "mode": 448, "user": {"name": "core"}},
        {"path": "/etc/swap"},
        {"path": "/etc/os.d", "mode": 448},
        {"path": "/etc/in"},
        {"path": "/etc/flat"},
        {"path": "/etc/flat/d", "mode": 448}
    ],
    "files": [
        {"path": "/etc/turn", "mode": 384, "contents": {"source": "data:,turn"}},
        {"path": "/etc/flat/d/x", "contents": {"source": "data:,x"}},
        {"path": "/etc/flat/d/deep/er/y", "contents": {"source": "data:,y"}},
        {"path": "/etc/flat/deep/z", "contents": {"source": "data:,z"}},
        {"path": "/etc/linked", "contents": {"source": "data:,old"}},
        {"path": "/etc/swap/x", "contents": {"source": "data:,x"}},
        {"path": "/etc/in/f", "contents": {"source": "data:,f"}}
    ],
    "links": [
        {"path": "/etc/hard", "target": "/etc/linked", "hard": true},
        {"path": "/etc/gone", "target": "app"},
        {"path": "/etc/back", "target": "app"},
        {"path": "/etc/motd", "target": "/run/motd", "overwrite": true}
    ]"#;

const NEW: &str = r#"
    "directories": [
        {"path": "/etc/app", "mode": 1005},
        {"path": "/etc/back"},
        {"path": "/etc/fresh/deep", "mode": 448, "user": {"id": 1000}, "group": {"id": 1000}},
        {"path": "/etc/fresh"},
        {"path": "/etc/stale", "overwrite": true},
        {"path": "/etc/turn"},
        {"path": "/etc/turn/d", "mode": 448}
    ],
    "files": [
        {"path": "/etc/turn/d/x", "contents": {"source": "data:,x"}},
        {"path": "/etc/turn/deep/er/y", "contents": {"source": "data:,y"}},
        {"path": "/etc/flat", "contents": {"source": "data:,flat"}},
        {"path": "/etc/linked", "contents": {"source": "data:,new"}},
        {"path": "/etc/back/y", "contents": {"source": "data:,y"}},
        {"path": "/etc/in/f", "contents": {"source": "data:,f"}}
    ],
    "links": [
        {"path": "/etc/hard", "target": "/etc/linked", "hard": true},
        {"path": "/etc/other", "target": "/etc/back/y", "hard": true},
        {"path": "/etc/swap", "target": "app"},
        {"path": "/etc/fresh/l", "target": "../nowhere", "user": {"name": "core"}},
        {"path": "/etc/turn/l", "target": "d/x"}
    ]"#;

fn read(name: &str, storage: &str) -> HostSpec {
    let text = format!(
        r#"{{"kind":"MachineConfig","metadata":{{"name":"{name}"}},"spec":{{"config":{{"ignition":{{"version":"3.5.0"}},"storage":{{{storage}}}}}}}}}"#
    );
    MachineConfig::parse(text.as_bytes(), name).unwrap().spec(None).unwrap()
}

fn planned(from: &HostSpec, to: &HostSpec, restorable: &[&str]) -> Vec<Step> {
    let mut facts = Facts::assumed(from, to).unwrap();
    facts.restorable = restorable.iter().map(|one| path(one)).collect();
    plan(from, to, &facts, &DisruptionPolicy::defaults()).unwrap().batch(0).unwrap().to_vec()
}

fn from_to() -> (HostSpec, HostSpec, Vec<Step>) {
    let (from, to) = (read("rendered-old", OLD), read("rendered-new", NEW));
    let steps = planned(&from, &to, &["/etc/os.d", "/etc/motd"]);
    (from, to, steps)
}

async fn carry_out(
    host: &Host,
    (from, to): (&HostSpec, &HostSpec),
    steps: &[Step],
    update: &str,
) -> Result<(), ApplyError> {
    let originals = Originals::new(UpdateId::new(update).unwrap(), 0);
    let work = Work::Apply { batch: Batch::Files, steps };
    apply(&Intent::for_tests(work, from, to, originals), host, &|_| {}).await
}

async fn take_back(host: &Host, (from, to): (&HostSpec, &HostSpec), steps: &[Step], update: &str) {
    let originals = Originals::new(UpdateId::new(update).unwrap(), 0);
    let undo = Undo::RestoreOriginals { batch: 0 };
    let work = Work::Undo { undo: &undo, steps };
    apply(&Intent::for_tests(work, from, to, originals), host, &|_| {}).await.unwrap();
}

/// A host with the old config committed.
async fn prepare(at: &Path) {
    fixture(at);
    fs::create_dir(at.join("etc/os.d")).unwrap();
    fs::write(at.join("etc/os.d/keep"), "the distribution's\n").unwrap();
    let host = host(at, FailPoints::off());
    let (bare, old) = (spec(HostSpec::UNMANAGED), read("rendered-old", OLD));
    let steps = planned(&bare, &old, &[]);
    carry_out(&host, (&bare, &old), &steps, "update-0").await.unwrap();
    promote(&host.root, Some(&UpdateId::new("update-0").unwrap()), &bare, &old).unwrap();
}

/// Everything below `/etc`, directories included.
fn tree(at: &Path) -> BTreeMap<String, String> {
    let (mut found, mut folders) = (BTreeMap::new(), vec![at.join("etc")]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let stat = fs::symlink_metadata(&path).unwrap();
            let owner = format!("{:o} {}:{}", stat.mode() & 0o7777, stat.uid(), stat.gid());
            let what = if stat.is_dir() {
                folders.push(path.clone());
                format!("directory {owner}")
            } else if stat.is_symlink() {
                format!("link {} {}:{}", fs::read_link(&path).unwrap().display(), stat.uid(), stat.gid())
            } else {
                format!(
                    "file {owner} x{} {}",
                    stat.nlink(),
                    String::from_utf8_lossy(&fs::read(&path).unwrap())
                )
            };
            found.insert(format!("/{}", path.strip_prefix(at).unwrap().display()), what);
        }
    }
    found.remove("/etc/.pwd.lock");
    found
}

#[tokio::test(flavor = "current_thread")]
async fn directories_and_links_are_as_config_lists_them() {
    let dir = tempfile::tempdir().unwrap();
    prepare(dir.path()).await;
    let tree_old = tree(dir.path());
    for (path, what) in [
        ("/etc/app", "directory 700 1000:0"),
        ("/etc/os.d", "directory 700 0:0"),
        ("/etc/os.d/keep", "file 644 0:0 x1 the distribution's\n"),
        ("/etc/motd", "link /run/motd 0:0"),
        ("/etc/hard", "file 644 0:0 x2 old"),
        ("/etc/linked", "file 644 0:0 x2 old"),
    ] {
        assert_eq!(tree_old[path], what, "{path}");
    }
    let host = host(dir.path(), FailPoints::off());
    let (from, to, steps) = from_to();
    carry_out(&host, (&from, &to), &steps, "update-1").await.unwrap();
    let found = tree(dir.path());
    for (path, what) in [
        // Its owner left the entry.
        ("/etc/app", "directory 1755 0:0"),
        ("/etc/turn", "directory 755 0:0"),
        ("/etc/turn/d", "directory 700 0:0"),
        ("/etc/turn/d/x", "file 644 0:0 x1 x"),
        ("/etc/turn/deep/er/y", "file 644 0:0 x1 y"),
        ("/etc/turn/l", "link d/x 0:0"),
        ("/etc/flat", "file 644 0:0 x1 flat"),
        ("/etc/back", "directory 755 0:0"),
        ("/etc/back/y", "file 644 0:0 x2 y"),
        ("/etc/other", "file 644 0:0 x2 y"),
        ("/etc/fresh", "directory 755 0:0"),
        ("/etc/fresh/deep", "directory 700 1000:1000"),
        ("/etc/fresh/l", "link ../nowhere 1000:0"),
        ("/etc/stale", "directory 755 0:0"),
        ("/etc/swap", "link app 0:0"),
        ("/etc/hard", "file 644 0:0 x2 new"),
        ("/etc/linked", "file 644 0:0 x2 new"),
        // What left is as it was before, or gone.
        ("/etc/os.d", "directory 755 0:0"),
        ("/etc/os.d/keep", "file 644 0:0 x1 the distribution's\n"),
        ("/etc/motd", "file 644 0:0 x1 the distribution's\n"),
        // It left as an entry, and is still needed.
        ("/etc/in", "directory 755 0:0"),
        ("/etc/in/f", "file 644 0:0 x1 f"),
    ] {
        assert_eq!(found[path], what, "{path}");
    }
    assert!(!found.contains_key("/etc/gone") && !found.contains_key("/etc/swap/x"), "{found:?}");
    assert_eq!(
        fs::metadata(dir.path().join("etc/hard")).unwrap().ino(),
        fs::metadata(dir.path().join("etc/linked")).unwrap().ino()
    );
    // A second run writes nothing.
    let before = traces(dir.path());
    carry_out(&host, (&from, &to), &steps, "update-1").await.unwrap();
    assert_eq!(traces(dir.path()), before);
    take_back(&host, (&from, &to), &steps, "update-1").await;
    assert_eq!(tree(dir.path()), tree_old);
    assert_eq!(
        fs::metadata(dir.path().join("etc/hard")).unwrap().ino(),
        fs::metadata(dir.path().join("etc/linked")).unwrap().ino()
    );
}

/// Not a test of its own: the child of the next one.
#[tokio::test(flavor = "current_thread")]
#[ignore = "a child process of `paths_recover_from_kill_at_every_fail_point`"]
async fn paths_child() {
    let (root, kill) = (std::env::var(ROOT).unwrap(), std::env::var(KILL).unwrap());
    let host = host(Path::new(&root), FailPoints::parse(&kill).unwrap());
    let (from, to, steps) = from_to();
    carry_out(&host, (&from, &to), &steps, "update-1").await.unwrap();
}

/// Runs the child; returns true if it was killed.
fn killed(root: &Path, kill: &str) -> bool {
    let child = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "apply::tests::paths::paths_child", "--ignored", "--quiet"])
        .envs([(ROOT, root.to_str().unwrap()), (KILL, kill)])
        .output()
        .unwrap();
    !child.status.success()
}

#[tokio::test(flavor = "current_thread")]
async fn paths_recover_from_kill_at_every_fail_point() {
    let straight = tempfile::tempdir().unwrap();
    prepare(straight.path()).await;
    let before = tree(straight.path());
    let counted = host(straight.path(), FailPoints::parse("count").unwrap());
    let (from, to, steps) = from_to();
    carry_out(&counted, (&from, &to), &steps, "update-1").await.unwrap();
    let (after, count) = (tree(straight.path()), counted.fail_points.count());
    assert!(count > 20, "{count}");
    for number in 1..=count {
        let dir = tempfile::tempdir().unwrap();
        prepare(dir.path()).await;
        assert!(killed(dir.path(), &format!("kill:{number}")), "point {number} was not reached");
        let again = host(dir.path(), FailPoints::off());
        if number % 2 == 0 {
            carry_out(&again, (&from, &to), &steps, "update-1").await.unwrap();
            assert_eq!(tree(dir.path()), after, "carried out again after point {number}");
        }
        take_back(&again, (&from, &to), &steps, "update-1").await;
        assert_eq!(tree(dir.path()), before, "taken back after point {number}");
        carry_out(&again, (&from, &to), &steps, "update-1").await.unwrap();
        assert_eq!(tree(dir.path()), after, "carried out after all, point {number}");
    }
}

/// Entries of no config stay, and hold neither the update nor its undo.
#[tokio::test(flavor = "current_thread")]
async fn directory_with_foreign_content_stays() {
    let dir = tempfile::tempdir().unwrap();
    prepare(dir.path()).await;
    let host = host(dir.path(), FailPoints::off());
    let (from, to) = (read("rendered-old", OLD), read("rendered-new", ""));
    fs::write(dir.path().join("etc/app/foreign"), "mine\n").unwrap();
    let steps = planned(&from, &to, &["/etc/os.d", "/etc/motd"]);
    carry_out(&host, (&from, &to), &steps, "update-1").await.unwrap();
    let found = tree(dir.path());
    assert_eq!(found["/etc/app/foreign"], "file 644 0:0 x1 mine\n");
    assert!(!found.contains_key("/etc/swap") && !found.contains_key("/etc/in"), "{found:?}");
    assert_eq!(found["/etc/os.d/keep"], "file 644 0:0 x1 the distribution's\n");
    assert_eq!(found["/etc/motd"], "file 644 0:0 x1 the distribution's\n");

    let (from, to, steps) = from_to();
    let second = tempfile::tempdir().unwrap();
    prepare(second.path()).await;
    let host = super::host(second.path(), FailPoints::off());
    carry_out(&host, (&from, &to), &steps, "update-1").await.unwrap();
    fs::write(second.path().join("etc/stale/foreign"), "mine\n").unwrap();
    fs::write(second.path().join("etc/fresh/foreign"), "mine\n").unwrap();
    take_back(&host, (&from, &to), &steps, "update-1").await;
    let found = tree(second.path());
    assert_eq!(found["/etc/stale.mca-foreign/foreign"], "file 644 0:0 x1 mine\n");
    assert!(!found["/etc/stale"].starts_with("directory"), "the host's own is back: {found:?}");
    assert_eq!(found["/etc/fresh/foreign"], "file 644 0:0 x1 mine\n");
    assert_eq!(found["/etc/hard"], "file 644 0:0 x2 old", "the rest is back");
}

/// The originals are saved before anything is touched: a directory in the way, or a target that is none, changes nothing.
#[tokio::test(flavor = "current_thread")]
async fn obstacle_is_found_before_directories_are_made() {
    let at = |found: &str, dir: &Path| match found {
        "directory" => fs::create_dir(dir.join("etc/l")).unwrap(),
        _ => symlink("/dev/null", dir.join("etc/t")).unwrap(),
    };
    for (found, storage) in [
        ("directory", r#""directories":[{"path":"/etc/d"}],"links":[{"path":"/etc/l","target":"x"}]"#),
        ("link", r#""links":[{"path":"/etc/h","target":"/etc/t","hard":true}]"#),
    ] {
        let dir = tempfile::tempdir().unwrap();
        fixture(dir.path());
        at(found, dir.path());
        let before = tree(dir.path());
        let host = host(dir.path(), FailPoints::off());
        let (from, to) = (spec("rendered-old"), read("rendered-new", storage));
        let steps = planned(&from, &to, &[]);
        let error = carry_out(&host, (&from, &to), &steps, "update-1").await.unwrap_err();
        assert_eq!(error.reason(), "UnexpectedKind", "{error}");
        take_back(&host, (&from, &to), &steps, "update-1").await;
        assert_eq!(tree(dir.path()), before, "{found}");
    }
}

/// Between two files of a directory that another account owns.
#[tokio::test(flavor = "current_thread")]
async fn hard_link_in_directory_of_other_account_is_made_and_undone() {
    let dir = tempfile::tempdir().unwrap();
    fixture(dir.path());
    let own = dir.path().join("etc/own");
    fs::create_dir(&own).unwrap();
    std::os::unix::fs::chown(&own, Some(4711), Some(4711)).unwrap();
    let before = tree(dir.path());
    let host = host(dir.path(), FailPoints::off());
    let storage = r#"
        "files": [{"path": "/etc/own/file", "contents": {"source": "data:,a"}}],
        "links": [{"path": "/etc/own/hard", "target": "/etc/own/file", "hard": true}]"#;
    let (from, to) = (spec(HostSpec::UNMANAGED), read("rendered-new", storage));
    let steps = planned(&from, &to, &[]);
    carry_out(&host, (&from, &to), &steps, "update-1").await.unwrap();
    let inode = |name: &str| fs::metadata(own.join(name)).unwrap().ino();
    assert_eq!(inode("hard"), inode("file"));
    take_back(&host, (&from, &to), &steps, "update-1").await;
    assert_eq!(tree(dir.path()), before);
}

const LEFT_LINK: &str = r#"
    "files": [{"path": "/etc/target", "contents": {"source": "data:,t"}}],
    "links": [
        {"path": "/etc/a-hard", "target": "/etc/target", "hard": true},
        {"path": "/etc/z-hard", "target": "/etc/target", "hard": true},
        {"path": "/etc/s", "target": "/etc/real"}
    ]"#;

const BELOW_LINK: &str = r#"
    "directories": [{"path": "/etc/s/d", "mode": 448}],
    "files": [
        {"path": "/etc/s/t", "contents": {"source": "data:,ours"}},
        {"path": "/etc/s/deep/er/u", "contents": {"source": "data:,u"}}
    ],
    "links": [{"path": "/etc/s/l", "target": "t"}, {"path": "/etc/s/h", "target": "/etc/s/t", "hard": true}]"#;

/// A host with hard links of a file of the config, and a link to a directory of the host.
async fn with_links(at: &Path) -> (Host, HostSpec) {
    fixture(at);
    fs::create_dir(at.join("etc/real")).unwrap();
    fs::write(at.join("etc/real/t"), "of the host").unwrap();
    let host = host(at, FailPoints::off());
    let (bare, old) = (spec(HostSpec::UNMANAGED), read("rendered-old", LEFT_LINK));
    let steps = planned(&bare, &old, &[]);
    carry_out(&host, (&bare, &old), &steps, "update-0").await.unwrap();
    promote(&host.root, Some(&UpdateId::new("update-0").unwrap()), &bare, &old).unwrap();
    (host, old)
}

/// The files that hard links lead to are put back before them.
#[tokio::test(flavor = "current_thread")]
async fn hard_links_that_left_with_their_file_are_put_back() {
    let dir = tempfile::tempdir().unwrap();
    let (host, old) = with_links(dir.path()).await;
    let (before, to) = (tree(dir.path()), read("rendered-new", ""));
    let steps = planned(&old, &to, &[]);
    carry_out(&host, (&old, &to), &steps, "update-1").await.unwrap();
    assert!(!dir.path().join("etc/z-hard").exists());
    take_back(&host, (&old, &to), &steps, "update-1").await;
    assert_eq!(tree(dir.path()), before);
    let other = read(
        "rendered-other",
        r#""files": [{"path": "/etc/a-hard/x"}], "directories": [{"path": "/etc/a-hard"}]"#,
    );
    let steps = planned(&old, &other, &[]);
    carry_out(&host, (&old, &other), &steps, "update-2").await.unwrap();
    take_back(&host, (&old, &other), &steps, "update-2").await;
    assert_eq!(tree(dir.path()), before, "a directory was in the place of a hard link");
}

/// Nothing is read or written at the end of the link: that is the host's.
#[tokio::test(flavor = "current_thread")]
async fn entries_below_link_that_leaves_are_in_directory_of_their_own() {
    let dir = tempfile::tempdir().unwrap();
    let (host, old) = with_links(dir.path()).await;
    let before = tree(dir.path());
    let to = read("rendered-new", BELOW_LINK);
    let steps = planned(&old, &to, &[]);
    carry_out(&host, (&old, &to), &steps, "update-1").await.unwrap();
    let found = tree(dir.path());
    for (path, what) in [
        ("/etc/real/t", "file 644 0:0 x1 of the host"),
        ("/etc/s", "directory 755 0:0"),
        ("/etc/s/t", "file 644 0:0 x2 ours"),
        ("/etc/s/h", "file 644 0:0 x2 ours"),
        ("/etc/s/deep/er/u", "file 644 0:0 x1 u"),
        ("/etc/s/d", "directory 700 0:0"),
        ("/etc/s/l", "link t 0:0"),
    ] {
        assert_eq!(found.get(path).map(String::as_str), Some(what), "{path}");
    }
    assert_eq!(found.keys().filter(|path| path.starts_with("/etc/real/")).count(), 1, "{found:?}");
    carry_out(&host, (&old, &to), &steps, "update-1").await.unwrap();
    assert_eq!(tree(dir.path()), found, "a second run");
    take_back(&host, (&old, &to), &steps, "update-1").await;
    assert_eq!(tree(dir.path()), before);
    take_back(&host, (&old, &to), &steps, "update-1").await;
    assert_eq!(tree(dir.path()), before, "a second undo");
}

/// Originals of an older agent, which wrote through the link: the undo goes the way back, and ends.
#[tokio::test(flavor = "current_thread")]
async fn originals_behind_link_go_back_through_it() {
    let dir = tempfile::tempdir().unwrap();
    let (host, old) = with_links(dir.path()).await;
    let before = tree(dir.path());
    let saved = dir.path().join("var/lib/machine-config-agent/preimages/update-1");
    fs::create_dir_all(&saved).unwrap();
    fs::write(
        saved.join("0.json"),
        r#"{"schema":1,"paths":[
            {"path":"/etc/s","trusted":0,"saved":{"kind":"link","target":"/etc/real"}},
            {"path":"/etc/s/t","trusted":0,
             "saved":{"kind":"file","bytes":"b2YgdGhlIGhvc3Q=","mode":420,"uid":0,"gid":0,"attributes":[]}}
        ],"password":null}"#,
    )
    .unwrap();
    fs::write(dir.path().join("etc/real/t"), "ours").unwrap();
    fs::remove_file(dir.path().join("etc/s")).unwrap();
    let to = read("rendered-new", BELOW_LINK);
    take_back(&host, (&old, &to), &[], "update-1").await;
    assert_eq!(tree(dir.path()), before);
}
