//! Directories and links of a config over the life of a host: what was there before the first config, what an entry no longer
//! sets, and one kind in place of another.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, symlink};
use std::path::{Path, PathBuf};
use std::time::Duration;

use machine_config_agent::model::{ConfigName, Target};
use machine_config_agent::report::{NodeReport, NodeState};

use crate::fake_control_plane::FakeControlPlane;
use crate::plain_host;
use crate::run::{after, agent};

const MINUTE: Duration = Duration::from_secs(60);

/// Nothing below these asks for anything.
const POLICY: &str = r#"{"apiVersion":"operator.openshift.io/v1","kind":"MachineConfiguration","metadata":{"name":"cluster"},
    "spec":{"nodeDisruptionPolicy":{"files":[{"path":"/etc","actions":[{"type":"None"}]},
    {"path":"/var","actions":[{"type":"None"}]}]}}}"#;

fn plane(configs: &[(&str, &str)]) -> FakeControlPlane {
    let plane = FakeControlPlane::wanting(configs[0].0, None);
    plane.policy(POLICY);
    for (name, storage) in configs {
        let text = format!(
            r#"{{"kind":"MachineConfig","metadata":{{"name":"{name}"}},"spec":{{"config":{{"ignition":{{"version":"3.5.0"}},
            "storage":{storage}}}}}}}"#
        );
        plane.config(name, &text);
    }
    plane
}

fn done(report: &NodeReport) {
    assert_eq!((report.state, report.reason.as_str()), (NodeState::Done, ""), "{report:#?}");
}

/// Goes through configs one after the other; `look` sees the host after each.
async fn through(at: &Path, configs: &[(&str, &str)], mut look: impl FnMut(&str)) {
    let plane = plane(configs);
    let mut agent = agent(at, &plane);
    let mut run = Box::pin(agent.run());
    for (name, _) in configs {
        *plane.desired.borrow_mut() = Target::new(ConfigName::new(*name).unwrap(), None);
        plane.nudge.notify_one();
        let report = after(&mut run, &plane, MINUTE).await;
        done(&report);
        assert_eq!(report.current_config.as_ref().map(ConfigName::as_str), Some(*name));
        look(name);
    }
}

/// Mode and owner of a directory.
fn dress(at: &Path, path: &str) -> (u32, u32, u32) {
    let found = fs::symlink_metadata(at.join(path)).unwrap_or_else(|error| panic!("{path}: {error}"));
    assert!(found.is_dir(), "{path}");
    (found.mode() & 0o7777, found.uid(), found.gid())
}

fn directory(at: &Path, path: &str, mode: u32, owner: u32) {
    fs::create_dir_all(at.join(path)).unwrap();
    fs::set_permissions(at.join(path), fs::Permissions::from_mode(mode)).unwrap();
    chown(at.join(path), Some(owner), Some(owner)).unwrap();
}

/// What the first config has in common with the host.
const COMMON: &str = r#"{
    "directories":[{"path":"/etc/pre"},{"path":"/etc/dressed","mode":488,"user":{"id":7}}],
    "files":[{"path":"/etc/equal","mode":420,"contents":{"source":"data:,equal"}}],
    "links":[{"path":"/etc/link","target":"equal"}]}"#;

fn common(at: &Path) {
    directory(at, "etc/pre", 0o711, 5);
    directory(at, "etc/dressed", 0o750, 7);
    fs::write(at.join("etc/equal"), "equal").unwrap();
    fs::set_permissions(at.join("etc/equal"), fs::Permissions::from_mode(0o644)).unwrap();
    symlink("equal", at.join("etc/link")).unwrap();
}

/// The host had it before the first config: it is no config's to remove.
#[tokio::test(start_paused = true)]
async fn paths_of_host_before_first_config_stay_when_entries_leave() {
    for next in ["{}", r#"{"directories":[{"path":"/etc/pre","mode":448}]}"#] {
        let dir = tempfile::tempdir().unwrap();
        let at = dir.path();
        plain_host::bare(at);
        common(at);
        through(at, &[("rendered-a", COMMON), ("rendered-b", next), ("rendered-c", "{}")], |name| {
            let between = name == "rendered-b" && next != "{}";
            assert_eq!(dress(at, "etc/pre"), (if between { 0o700 } else { 0o711 }, 5, 5), "{name}");
            assert_eq!(dress(at, "etc/dressed"), (0o750, 7, 7), "{name}");
            assert_eq!(fs::read_to_string(at.join("etc/equal")).unwrap(), "equal", "{name}");
            assert_eq!(fs::read_link(at.join("etc/link")).unwrap(), Path::new("equal"), "{name}");
        })
        .await;
    }
}

/// Ignition made the host by that config: what it has in common is the config's, and goes with it. A host that Ignition
/// installed with another config keeps its directories.
#[tokio::test(start_paused = true)]
async fn paths_that_ignition_made_leave_with_their_entries() {
    for (mark, directories) in
        [("etc/ignition-machine-config-encapsulated.json.bak", false), ("etc/.ignition-result.json", true)]
    {
        let dir = tempfile::tempdir().unwrap();
        let at = dir.path();
        plain_host::bare(at);
        common(at);
        fs::write(at.join(mark), "{}").unwrap();
        through(at, &[("rendered-a", COMMON), ("rendered-b", "{}")], |name| {
            let left = |path: &str| fs::symlink_metadata(at.join(path)).is_ok();
            let is_first = name == "rendered-a";
            assert_eq!((left("etc/equal"), left("etc/link")), (is_first, is_first), "{mark} {name}");
            assert_eq!(left("etc/pre"), is_first || directories, "{mark} {name}");
        })
        .await;
    }
}

/// What a later config found as it wants it is the host's, whatever Ignition made of the first one.
#[tokio::test(start_paused = true)]
async fn paths_that_later_config_found_stay_on_host_of_ignition() {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path();
    plain_host::bare(at);
    common(at);
    fs::write(at.join("etc/ignition-machine-config-encapsulated.json.bak"), "{}").unwrap();
    through(at, &[("rendered-a", "{}"), ("rendered-b", COMMON), ("rendered-c", "{}")], |name| {
        for path in ["etc/equal", "etc/link", "etc/pre"] {
            assert!(fs::symlink_metadata(at.join(path)).is_ok(), "{path} {name}");
        }
    })
    .await;
}

/// The attributes follow from the config, else from the host before it, and not from an earlier config.
#[tokio::test(start_paused = true)]
async fn attributes_that_leave_entry_go_back_to_original_or_default() {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path();
    plain_host::bare(at);
    directory(at, "etc/pre", 0o711, 5);
    directory(at, "etc/later", 0o711, 5);
    let dressed = r#"{"directories":[
        {"path":"/etc/pre","mode":1023,"user":{"id":7},"group":{"id":8}},
        {"path":"/etc/made","mode":1023,"user":{"id":7},"group":{"id":8}},
        {"path":"/etc/later"}],
        "links":[{"path":"/etc/l","target":"x","user":{"id":7},"group":{"id":8}}],
        "files":[{"path":"/etc/f","mode":384,"user":{"id":7},"contents":{"source":"data:,f"}}]}"#;
    let half = r#"{"directories":[
        {"path":"/etc/pre","group":{"id":8}},{"path":"/etc/made","mode":1023},
        {"path":"/etc/later","mode":448,"user":{"id":9}}]}"#;
    let plain = r#"{"directories":[{"path":"/etc/pre"},{"path":"/etc/made"},{"path":"/etc/later"}],
        "links":[{"path":"/etc/l","target":"x"}],"files":[{"path":"/etc/f","contents":{"source":"data:,f"}}]}"#;
    let configs =
        [("rendered-a", dressed), ("rendered-b", half), ("rendered-c", plain), ("rendered-d", "{}")];
    through(at, &configs, |name| {
        let (pre, made, later) = match name {
            "rendered-a" => ((0o1777, 7, 8), Some((0o1777, 7, 8)), (0o711, 5, 5)),
            "rendered-b" => ((0o711, 5, 8), Some((0o1777, 0, 0)), (0o700, 9, 5)),
            "rendered-c" => ((0o711, 5, 5), Some((0o755, 0, 0)), (0o711, 5, 5)),
            _ => ((0o711, 5, 5), None, (0o711, 5, 5)),
        };
        assert_eq!(dress(at, "etc/pre"), pre, "{name}");
        assert_eq!(dress(at, "etc/later"), later, "{name}");
        match made {
            Some(made) => assert_eq!(dress(at, "etc/made"), made, "{name}"),
            None => assert!(!at.join("etc/made").exists(), "{name}"),
        }
        if name == "rendered-c" {
            for path in ["etc/l", "etc/f"] {
                let found = fs::symlink_metadata(at.join(path)).unwrap();
                assert_eq!((found.uid(), found.gid()), (0, 0), "{path}");
            }
            assert_eq!(fs::metadata(at.join("etc/f")).unwrap().mode() & 0o7777, 0o644);
        }
    })
    .await;
}

const FILE: &str = r#"{"files":[{"path":"/etc/a","contents":{"source":"data:,a"}}]}"#;
const LINK: &str = r#"{"links":[{"path":"/etc/a","target":"other"}]}"#;
const DIRECTORY: &str = r#"{"directories":[{"path":"/etc/a"},{"path":"/etc/a/d","mode":448}],
    "files":[{"path":"/etc/a/b","contents":{"source":"data:,b"}},
             {"path":"/etc/a/d/c","contents":{"source":"data:,c"}},
             {"path":"/etc/a/deep/er/e","contents":{"source":"data:,e"}}],
    "links":[{"path":"/etc/a/l","target":"b"},{"path":"/etc/a/h","target":"/etc/a/b","hard":true}]}"#;

/// A file, a link and a directory with files in it take each other's place.
#[tokio::test(start_paused = true)]
async fn path_changes_its_kind_with_all_that_is_in_it() {
    for (name, before, then) in [("file", FILE, "{}"), ("link", LINK, FILE)] {
        let dir = tempfile::tempdir().unwrap();
        let at = dir.path();
        plain_host::bare(at);
        fs::create_dir(at.join("etc/other")).unwrap();
        fs::write(at.join("etc/other/b"), "of the host").unwrap();
        let configs =
            [("rendered-a", before), ("rendered-b", DIRECTORY), ("rendered-c", before), ("rendered-d", then)];
        through(at, &configs, |config| {
            match config {
                "rendered-b" => {
                    for (path, text) in [("b", "b"), ("d/c", "c"), ("deep/er/e", "e"), ("l", "b"), ("h", "b")]
                    {
                        let found = fs::read_to_string(at.join("etc/a").join(path)).unwrap();
                        assert_eq!(found, text, "{name} {path}");
                    }
                    assert_eq!(dress(at, "etc/a/d"), (0o700, 0, 0));
                }
                "rendered-d" if then == "{}" => assert!(!at.join("etc/a").exists(), "{name}"),
                "rendered-d" => assert_eq!(fs::read_to_string(at.join("etc/a")).unwrap(), "a"),
                _ => {
                    let found = fs::symlink_metadata(at.join("etc/a")).unwrap();
                    assert_eq!((found.is_file(), found.is_symlink()), (name == "file", name == "link"));
                }
            }
            assert_eq!(fs::read_to_string(at.join("etc/other/b")).unwrap(), "of the host", "{name} {config}");
        })
        .await;
    }
}

/// The link's target is the host's: nothing is written there, and nothing is taken from there.
#[tokio::test(start_paused = true)]
async fn entries_take_place_of_link_that_leaves() {
    let link = r#"{"links":[{"path":"/etc/s","target":"/etc/real"},
        {"path":"/etc/systemd/system/a.service.d","target":"/etc/real"}]}"#;
    let below = r#"{"files":[{"path":"/etc/s/t","contents":{"source":"data:,ours"}},
        {"path":"/etc/systemd/system/a.service.d/t","contents":{"source":"data:,ours"}}]}"#;
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path();
    plain_host::bare(at);
    directory(at, "etc/real", 0o755, 0);
    fs::write(at.join("etc/real/t"), "of the host").unwrap();
    through(at, &[("rendered-a", link), ("rendered-b", below), ("rendered-c", "{}")], |name| {
        for path in ["etc/s", "etc/systemd/system/a.service.d"] {
            match name {
                "rendered-a" => assert_eq!(fs::read_link(at.join(path)).unwrap(), Path::new("/etc/real")),
                "rendered-b" => {
                    assert_eq!(dress(at, path), (0o755, 0, 0));
                    assert_eq!(fs::read_to_string(at.join(path).join("t")).unwrap(), "ours");
                }
                _ => assert!(!at.join(path).join("t").exists()),
            }
        }
        assert_eq!(fs::read_to_string(at.join("etc/real/t")).unwrap(), "of the host", "{name}");
    })
    .await;
}

/// The directory stays for what is in it, and is the host's file or link again at the end.
#[tokio::test(start_paused = true)]
async fn original_below_directory_comes_back_with_last_entry_in_it() {
    let listed = r#"{"directories":[{"path":"/etc/k","overwrite":true}],
        "files":[{"path":"/etc/k/deep/t","contents":{"source":"data:,t"}}]}"#;
    let bare = r#"{"files":[{"path":"/etc/k/t","contents":{"source":"data:,t"}}]}"#;
    for is_link in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let at = dir.path();
        plain_host::bare(at);
        if is_link {
            symlink("real", at.join("etc/k")).unwrap();
        } else {
            fs::write(at.join("etc/k"), "KEEP").unwrap();
        }
        let configs = [
            ("rendered-a", listed),
            ("rendered-b", bare),
            ("rendered-c", "{}"),
            ("rendered-d", listed),
            ("rendered-e", "{}"),
        ];
        through(at, &configs, |name| match name {
            "rendered-a" | "rendered-d" => assert!(at.join("etc/k/deep/t").exists(), "{name}"),
            "rendered-b" => {
                assert!(at.join("etc/k/t").exists() && !at.join("etc/k/deep").exists());
            }
            _ if is_link => assert_eq!(fs::read_link(at.join("etc/k")).unwrap(), Path::new("real"), "{name}"),
            _ => assert_eq!(fs::read_to_string(at.join("etc/k")).unwrap(), "KEEP", "{name}"),
        })
        .await;
    }
}

/// Directories that the agent made for paths go with them, and give way to what a later config lists.
#[tokio::test(start_paused = true)]
async fn directories_made_for_paths_leave_with_them() {
    let below = r#"{"files":[{"path":"/etc/a/d/t","contents":{"source":"data:,t"}},
        {"path":"/var/w/x/t","contents":{"source":"data:,t"}},{"path":"/etc/via/v/t","contents":{"source":"data:,t"}}],
        "links":[{"path":"/etc/host/new/l","target":"x"}]}"#;
    for other in [FILE, LINK] {
        let dir = tempfile::tempdir().unwrap();
        let at = dir.path();
        plain_host::bare(at);
        directory(at, "etc/host", 0o755, 0);
        symlink("missing", at.join("etc/via")).unwrap();
        let configs =
            [("rendered-a", below), ("rendered-b", other), ("rendered-c", below), ("rendered-d", "{}")];
        through(at, &configs, |name| {
            let is_below = matches!(name, "rendered-a" | "rendered-c");
            assert_eq!(at.join("etc/a/d/t").exists(), is_below, "{name}");
            for path in ["var/w", "etc/host/new", "etc/missing"] {
                assert_eq!(at.join(path).exists(), is_below, "{path} {name}");
            }
            let found = fs::symlink_metadata(at.join("etc/a"));
            assert_eq!(found.is_ok(), name != "rendered-d", "{name}");
            assert_eq!(found.is_ok_and(|found| !found.is_dir()), name == "rendered-b", "{name}");
            assert_eq!(dress(at, "etc/host"), (0o755, 0, 0));
            assert_eq!(fs::read_link(at.join("etc/via")).unwrap(), Path::new("missing"), "{name}");
        })
        .await;
    }
}

/// Nothing of others goes, and nothing fails.
#[tokio::test(start_paused = true)]
async fn directory_made_for_path_stays_with_what_others_put_into_it() {
    let below = r#"{"files":[{"path":"/etc/a/d/t","contents":{"source":"data:,t"}}]}"#;
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path();
    plain_host::bare(at);
    let configs = [("rendered-a", below), ("rendered-b", "{}"), ("rendered-c", below), ("rendered-d", "{}")];
    through(at, &configs, |name| {
        if name == "rendered-a" {
            fs::write(at.join("etc/a/own"), "of an administrator").unwrap();
        }
        assert_eq!(fs::read_to_string(at.join("etc/a/own")).unwrap(), "of an administrator", "{name}");
        assert_eq!(at.join("etc/a/d").exists(), matches!(name, "rendered-a" | "rendered-c"), "{name}");
        if name == "rendered-c" {
            fs::remove_file(at.join("etc/a/own")).unwrap();
            fs::write(at.join("etc/a/own"), "of an administrator").unwrap();
        }
    })
    .await;
}

type Act = fn(&Path);

/// Name, first config, obstacle, second config, words of the refusal.
const REFUSED: [(&str, &str, Act, &str, &str); 9] = [
    (
        "a foreign file deep in the directory",
        DIRECTORY,
        |at| fs::write(at.join("etc/a/d/foreign"), "mine").unwrap(),
        FILE,
        "holds what no config brought",
    ),
    (
        "a foreign directory in the directory",
        DIRECTORY,
        |at| fs::create_dir(at.join("etc/a/deep/foreign")).unwrap(),
        FILE,
        "holds what no config brought",
    ),
    (
        "a foreign file in place of the directory",
        "{}",
        |at| fs::write(at.join("etc/a"), "mine").unwrap(),
        DIRECTORY,
        "which no config brought",
    ),
    (
        "a file in a directory that its group may write to",
        "{}",
        |_| {},
        r#"{"directories":[{"path":"/etc/a","mode":509,"group":{"id":7}}],"files":[{"path":"/etc/a/b"}]}"#,
        "mode 0775",
    ),
    (
        "a directory that its group may write to from now on",
        r#"{"directories":[{"path":"/etc/a"}],"files":[{"path":"/etc/a/b"}]}"#,
        |_| {},
        r#"{"directories":[{"path":"/etc/a","mode":509}],"files":[{"path":"/etc/a/b"}]}"#,
        "mode 0775",
    ),
    (
        "a third account between",
        "{}",
        |_| {},
        r#"{"directories":[{"path":"/etc/a","user":{"id":7}},{"path":"/etc/a/d","user":{"id":8}}],
            "files":[{"path":"/etc/a/d/b"}]}"#,
        "/etc/a/d",
    ),
    (
        "a foreign file in a directory that was made for a path",
        r#"{"files":[{"path":"/etc/a/b"}]}"#,
        |at| fs::write(at.join("etc/a/foreign"), "mine").unwrap(),
        FILE,
        "holds what no config brought",
    ),
    (
        "a path of the old config behind a link of the host",
        r#"{"files":[{"path":"/etc/via/b"}]}"#,
        |_| {},
        r#"{"directories":[{"path":"/etc/via","overwrite":true}],"files":[{"path":"/etc/via/b"}]}"#,
        "/etc/via/b of the old config is where this link leads",
    ),
    (
        "a link in the place of a directory that another entry needs by another name",
        "{}",
        |_| {},
        r#"{"files":[{"path":"/etc/real/d/t"}],"links":[{"path":"/etc/via/d","target":"x"}]}"#,
        "it is below /etc/via/d",
    ),
];

/// Nothing is touched, and no workload leaves.
#[tokio::test(start_paused = true)]
async fn obstacle_of_directory_is_refused_by_plan() {
    for (name, first, block, second, words) in REFUSED {
        let dir = tempfile::tempdir().unwrap();
        let at = dir.path();
        plain_host::bare(at);
        directory(at, "etc/real", 0o755, 0);
        symlink("real", at.join("etc/via")).unwrap();
        let plane = plane(&[("rendered-a", first), ("rendered-b", second)]);
        let mut agent = agent(at, &plane);
        let mut run = Box::pin(agent.run());
        done(&after(&mut run, &plane, MINUTE).await);
        block(at);
        *plane.desired.borrow_mut() = Target::new(ConfigName::new("rendered-b").unwrap(), None);
        plane.nudge.notify_one();
        let report = after(&mut run, &plane, MINUTE).await;
        let fault = report.fault.as_ref().unwrap_or_else(|| panic!("{name}: {report:#?}"));
        assert_eq!(
            (report.state, fault.reason.as_str()),
            (NodeState::Unreconcilable, "HostNotPrepared"),
            "{name}: {fault}"
        );
        assert!(fault.message.contains(words), "{name}: {fault}");
        assert!(!plane.requests.borrow().contains(&"drain"), "{name}");
        assert!(!fault.next.contains("chown root"), "{name}: {}", fault.next);
    }
}

/// A mount that ends with the test, however that ends.
struct Mounted(PathBuf);

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ended = rustix::mount::unmount(&self.0, rustix::mount::UnmountFlags::DETACH);
    }
}

/// Mounted by the installation, and listed beside it: Ignition sets what the entry says on the root of the file system.
#[tokio::test(start_paused = true)]
async fn directory_that_is_mount_point_gets_its_attributes() {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path();
    plain_host::bare(at);
    directory(at, "var/data", 0o755, 0);
    directory(at, "var/data/in", 0o755, 0);
    directory(at, "srv/disk", 0o711, 5);
    if rustix::mount::mount_bind(at.join("srv/disk"), at.join("var/data")).is_err() {
        crate::ran::not_run("directory_that_is_mount_point_gets_its_attributes", "to mount (CAP_SYS_ADMIN)");
        return;
    }
    let mounted = Mounted(at.join("var/data"));
    let configs = [
        ("rendered-0", "{}"),
        (
            "rendered-a",
            r#"{"directories":[{"path":"/var/data","mode":448,"user":{"id":7}}],
                "files":[{"path":"/var/data/f","contents":{"source":"data:,f"}}]}"#,
        ),
        ("rendered-b", "{}"),
    ];
    through(at, &configs, |name| {
        let is_listed = name == "rendered-a";
        assert_eq!(dress(at, "var/data"), if is_listed { (0o700, 7, 5) } else { (0o711, 5, 5) }, "{name}");
        assert_eq!(at.join("srv/disk/f").exists(), is_listed, "{name}");
    })
    .await;
    drop(mounted);
    assert_eq!(dress(at, "var/data"), (0o755, 0, 0), "what the mount is over");
}
