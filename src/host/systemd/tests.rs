//! Links against what `systemctl --root` makes; jobs against a peer that plays systemd.

use std::collections::BTreeMap;
use std::path::Path;

use zbus::Connection;
use zbus::zvariant::OwnedObjectPath;

use super::*;
use crate::host::durable::{Run, carry_out};
use crate::host::failpoint::FailPoints;
use crate::host::root::Root;
use crate::model::UnitName;
use crate::model::observation::{EnabledSeen, PresetSeen};
use crate::model::units::Mask;

fn unit(name: &str) -> UnitName {
    UnitName::new(name).unwrap()
}

fn write(dir: &Path, path: &str, text: &str) {
    let path = dir.join(path);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

/// The links below `/etc/systemd/system`, path to target.
fn links(dir: &Path) -> BTreeMap<String, String> {
    let base = dir.join("etc/systemd/system");
    let mut found = BTreeMap::new();
    let mut folders = vec![base.clone()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).into_iter().flatten() {
            let path = entry.unwrap().path();
            let at = path.strip_prefix(&base).unwrap().display().to_string();
            match std::fs::read_link(&path) {
                Ok(target) => drop(found.insert(at, target.display().to_string())),
                Err(_) if path.is_dir() => folders.push(path),
                Err(_) => {}
            }
        }
    }
    found
}

fn carry(root: &Root, change: impl FnOnce(&mut UnitLinks<'_>)) -> usize {
    let mut units = UnitLinks::load(root).unwrap();
    change(&mut units);
    carry_out(root, &units.changes(&[]), Run::First, &FailPoints::off()).unwrap().changed
}

fn host() -> (tempfile::TempDir, Root) {
    let dir = tempfile::tempdir().unwrap();
    let vendor = "usr/lib/systemd/system";
    write(dir.path(), &format!("{vendor}/crio.service"), "[Install]\nWantedBy=multi-user.target\n");
    write(
        dir.path(),
        &format!("{vendor}/getty@.service"),
        "[Install]\nWantedBy=getty.target\nDefaultInstance=tty1\n",
    );
    write(
        dir.path(),
        &format!("{vendor}/sshd.service"),
        "[Install]\nWantedBy=multi-user.target\nAlias=ssh.service\n",
    );
    write(dir.path(), &format!("{vendor}/pod.socket"), "[Install]\nWantedBy=sockets.target\n");
    write(dir.path(), &format!("{vendor}/pod.service"), "[Install]\nAlso=pod.socket\n");
    write(dir.path(), &format!("{vendor}/plain.service"), "[Service]\nExecStart=/bin/true\n");
    write(dir.path(), "usr/lib/systemd/system-preset/99-disable.preset", "enable crio.service\ndisable *\n");
    let root = Root::open(dir.path()).unwrap();
    (dir, root)
}

#[test]
fn enabling_makes_the_install_links_and_disabling_removes_them() {
    const VENDOR: &str = "/usr/lib/systemd/system";
    let cases: [(&str, &[(&str, &str)]); 5] = [
        ("crio.service", &[("multi-user.target.wants/crio.service", "crio.service")]),
        ("getty@.service", &[("getty.target.wants/getty@tty1.service", "getty@.service")]),
        ("getty@tty5.service", &[("getty.target.wants/getty@tty5.service", "getty@.service")]),
        (
            "sshd.service",
            &[("multi-user.target.wants/sshd.service", "sshd.service"), ("ssh.service", "sshd.service")],
        ),
        ("pod.service", &[("sockets.target.wants/pod.socket", "pod.socket")]),
    ];
    for (name, expected) in cases {
        let (dir, root) = host();
        let name = unit(name);
        assert_eq!(
            UnitLinks::load(&root).unwrap().seen(&name).unwrap().enabled,
            EnabledSeen::Disabled,
            "{name}"
        );
        carry(&root, |units| units.enable(&name).unwrap());
        let expected = expected.iter().map(|(at, to)| ((*at).to_owned(), format!("{VENDOR}/{to}"))).collect();
        assert_eq!(links(dir.path()), expected, "{name}");
        if name.as_str() != "getty@.service" {
            assert_eq!(
                UnitLinks::load(&root).unwrap().seen(&name).unwrap().enabled,
                EnabledSeen::Enabled,
                "{name}"
            );
        }
        assert_eq!(
            carry(&root, |units| units.enable(&name).unwrap()),
            0,
            "{name}: a second run writes nothing"
        );
        carry(&root, |units| units.disable(&name).unwrap());
        assert_eq!(links(dir.path()), BTreeMap::new(), "{name}");
        assert_eq!(carry(&root, |units| units.disable(&name).unwrap()), 0);
    }
}

#[test]
fn new_install_links_replace_the_old_ones() {
    let (dir, root) = host();
    carry(&root, |units| units.enable(&unit("crio.service")).unwrap());
    write(dir.path(), "etc/systemd/system/crio.service", "[Install]\nWantedBy=kubelet.service\n");
    assert_eq!(
        UnitLinks::load(&root).unwrap().seen(&unit("crio.service")).unwrap().enabled,
        EnabledSeen::Disabled
    );
    carry(&root, |units| units.enable(&unit("crio.service")).unwrap());
    let expected = BTreeMap::from(
        [("kubelet.service.wants/crio.service", "/etc/systemd/system/crio.service")]
            .map(|(a, b)| (a.to_owned(), b.to_owned())),
    );
    assert_eq!(links(dir.path()), expected);
    write(
        dir.path(),
        "etc/systemd/system/crio.service.d/10-x.conf",
        "[Install]\nWantedBy=\nRequiredBy=a.target\n",
    );
    carry(&root, |units| units.enable(&unit("crio.service")).unwrap());
    assert_eq!(links(dir.path()).keys().collect::<Vec<_>>(), ["a.target.requires/crio.service"]);
}

#[test]
fn masks_hide_a_unit_and_come_off() {
    let (dir, root) = host();
    let crio = unit("crio.service");
    carry(&root, |units| units.mask(&crio));
    assert_eq!(links(dir.path()), BTreeMap::from([("crio.service".to_owned(), "/dev/null".to_owned())]));
    let mut units = UnitLinks::load(&root).unwrap();
    let seen = units.seen(&crio).unwrap();
    assert_eq!((seen.enabled, seen.mask), (EnabledSeen::Masked, Mask::Masked));
    assert!(units.enable(&crio).unwrap_err().to_string().contains("it is masked"));
    carry(&root, |units| {
        units.disable(&crio).unwrap();
        units.unmask(&crio);
        units.enable(&crio).unwrap();
    });
    assert_eq!(links(dir.path()).keys().collect::<Vec<_>>(), ["multi-user.target.wants/crio.service"]);
}

#[test]
fn presets_decide_and_unknown_units_are_left_alone() {
    let (dir, root) = host();
    let mut units = UnitLinks::load(&root).unwrap();
    let seen = |units: &UnitLinks<'_>, name: &str| units.seen(&unit(name)).unwrap();
    assert_eq!(seen(&units, "crio.service").preset, PresetSeen::Enable);
    assert_eq!(seen(&units, "sshd.service").preset, PresetSeen::Disable);
    assert_eq!(seen(&units, "plain.service").enabled, EnabledSeen::Static);
    assert_eq!(seen(&units, "no-such.service").enabled, EnabledSeen::NotFound);
    units.enable(&unit("no-such.service")).unwrap();
    units.enable(&unit("plain.service")).unwrap();
    assert!(units.changes(&[]).is_empty());
    carry(&root, |units| {
        units.enable(&unit("sshd.service")).unwrap();
        units.preset(&unit("crio.service")).unwrap();
        units.preset(&unit("sshd.service")).unwrap();
    });
    assert_eq!(links(dir.path()).keys().collect::<Vec<_>>(), ["multi-user.target.wants/crio.service"]);
    // The unit file is gone (MCD-154): its links go with it.
    std::fs::remove_file(dir.path().join("usr/lib/systemd/system/crio.service")).unwrap();
    carry(&root, |units| units.preset(&unit("crio.service")).unwrap());
    assert_eq!(links(dir.path()), BTreeMap::new());
}

/// Plays systemd: what it was asked, and how each job ends. The end is told before the reply.
struct Manager {
    result: &'static str,
}

#[zbus::interface(name = "org.freedesktop.systemd1.Manager")]
impl Manager {
    #[expect(clippy::unused_self, reason = "the interface's shape")]
    fn subscribe(&self) {}

    #[expect(clippy::unused_self, reason = "the interface's shape")]
    fn reload(&self) {}

    async fn restart_unit(
        &self,
        unit: String,
        mode: String,
        #[zbus(connection)] bus: &Connection,
    ) -> OwnedObjectPath {
        assert_eq!(mode, "replace");
        let job = |number: u32| {
            OwnedObjectPath::try_from(format!("/org/freedesktop/systemd1/job/{number}")).unwrap()
        };
        // Another job ends first; the queue holds more than the usual 64.
        for number in 0..100 {
            let other = (number, job(number), "other.service", "failed");
            emit(bus, &other).await;
        }
        emit(bus, &(200_u32, job(200), unit.as_str(), self.result)).await;
        job(200)
    }
}

async fn emit(bus: &Connection, body: &(u32, OwnedObjectPath, &str, &str)) {
    bus.emit_signal(
        None::<()>,
        "/org/freedesktop/systemd1",
        "org.freedesktop.systemd1.Manager",
        "JobRemoved",
        body,
    )
    .await
    .unwrap();
}

async fn peers(result: &'static str) -> (Connection, Systemd) {
    let (ours, theirs) = tokio::net::UnixStream::pair().unwrap();
    let guid = zbus::Guid::generate();
    let server = zbus::connection::Builder::unix_stream(theirs)
        .server(guid)
        .unwrap()
        .p2p()
        .serve_at("/org/freedesktop/systemd1", Manager { result })
        .unwrap();
    let client = zbus::connection::Builder::unix_stream(ours).p2p();
    let (server, client) = tokio::join!(server.build(), client.build());
    (server.unwrap(), Systemd::given(client.unwrap()))
}

#[tokio::test(flavor = "current_thread")]
async fn a_job_that_ends_before_the_reply_is_not_missed() {
    for (result, good) in [("done", true), ("skipped", true), ("failed", false), ("timeout", false)] {
        let (_server, systemd) = peers(result).await;
        assert_eq!(systemd.daemon_reload().await.unwrap(), ServiceOutcome::Done);
        match systemd.restart(&unit("crio.service")).await {
            Ok(outcome) => assert!(good && outcome == ServiceOutcome::Done, "{result}"),
            Err(error) => {
                assert!(!good);
                assert_eq!(error.to_string(), format!("restart of crio.service ended with {result:?}"));
            }
        }
    }
}

#[tokio::test(flavor = "current_thread")]
async fn without_systemd_nothing_is_asked() {
    let (_dir, root) = host();
    let systemd = Systemd::of(&root).unwrap();
    assert_eq!(systemd.restart(&unit("crio.service")).await.unwrap(), ServiceOutcome::NoSystemd);
    assert_eq!(systemd.daemon_reload().await.unwrap(), ServiceOutcome::NoSystemd);
}
