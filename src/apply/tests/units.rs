//! Links that a running systemd makes: its requests, their order, and the effect of their undo. It is played by
//! a double on a real connection, which has systemd's own `systemctl --root` make them.
#![expect(clippy::disallowed_types, reason = "it asks whether systemctl is installed")]

use super::*;
use crate::host::systemd::tests::double::Double;
use crate::host::systemd::tests::peers;
use crate::model::FaultClass;

/// The host of a test; `None` where it can't be run.
async fn with_systemd(test: &str, at: &Path) -> Option<(Host, Double, impl Sized)> {
    let there = std::process::Command::new("systemctl").arg("--version").output();
    if !there.is_ok_and(|output| output.status.success()) {
        crate::ran::not_run(test, "systemctl (package systemd)");
        return None;
    }
    fixture(at);
    let double = Double::new("252");
    double.state().root = Some(at.to_owned());
    let (server, systemd) = peers(&double).await;
    Some((Host { systemd, ..host(at, FailPoints::off()) }, double, server))
}

/// MCD-149, MCD-156: one call for each verb with all units, and no daemon-reload.
#[tokio::test(flavor = "current_thread")]
async fn one_systemd_call_for_each_verb() {
    let dir = tempfile::tempdir().unwrap();
    let Some((host, double, _server)) = with_systemd("one_systemd_call_for_each_verb", dir.path()).await
    else {
        return;
    };
    fs::write(dir.path().join("etc/systemd/system/foo.service"), "[Install]\nWantedBy=a.target\n").unwrap();
    fs::write(dir.path().join("etc/systemd/system/bar.service"), "[Install]\nWantedBy=a.target\n").unwrap();
    let all = steps(vec![
        Op::MaskUnit { unit: unit("crio.service") },
        Op::EnableUnit { unit: unit("foo.service") },
        Op::DisableUnit { unit: unit("chronyd.service") },
        Op::EnableUnit { unit: unit("bar.service") },
        Op::EnableUnit { unit: unit("nowhere.service") },
        Op::PresetUnit { unit: unit("chronyd.service") },
    ]);
    let before = shapes(dir.path());
    apply_batch(&host, 7, Batch::Links, &all).await.unwrap();
    let expected = [
        "preset chronyd.service",
        "enable foo.service bar.service",
        "disable chronyd.service",
        "mask crio.service",
    ];
    assert_eq!(double.state().asked, expected);
    let now = shapes(dir.path());
    let what = |path: &str| now.get(Path::new(path)).map(|shape| shape.what.clone());
    let wants = "etc/systemd/system/a.target.wants";
    assert_eq!(what(&format!("{wants}/foo.service")).as_deref(), Some("-> /etc/systemd/system/foo.service"));
    assert_eq!(what("etc/systemd/system/crio.service").as_deref(), Some("-> /dev/null"));
    assert_eq!(what("etc/systemd/system/multi-user.target.wants/chronyd.service"), None);

    // As after a crash: the same again, then all of it back.
    apply_batch(&host, 7, Batch::Links, &all).await.unwrap();
    assert_eq!(shapes(dir.path()), now);
    undo(&host, &all).await;
    assert_eq!(shapes(dir.path()), before);
}

async fn undo(host: &Host, steps: &[Step]) {
    let (old, mut new) = (old(), new());
    for step in steps {
        if let Op::MaskUnit { unit } = &step.op {
            new.units.entry(unit.clone()).or_insert_with(UnitSpec::empty).mask = Mask::Masked;
        }
    }
    let undo = Undo::RestoreOriginals { batch: 7 };
    let intent = Intent::for_tests(Work::Undo { undo: &undo, steps }, &old, &new, originals(7));
    apply(&intent, host, &|_| {}).await.unwrap();
}

/// Unforeseen changes by systemd are undone too; missing ones are made.
#[tokio::test(flavor = "current_thread")]
async fn unexpected_links_of_systemd_are_rolled_back() {
    let dir = tempfile::tempdir().unwrap();
    let Some((host, double, _server)) =
        with_systemd("unexpected_links_of_systemd_are_rolled_back", dir.path()).await
    else {
        return;
    };
    double.state().extra = Some("new-rule.target.wants/crio.service".to_owned());
    let before = shapes(dir.path());
    let enable = steps(vec![Op::EnableUnit { unit: unit("crio.service") }]);
    apply_batch(&host, 7, Batch::Links, &enable).await.unwrap();
    let extra = dir.path().join("etc/systemd/system/new-rule.target.wants/crio.service");
    assert!(extra.is_symlink(), "systemd knows better");
    undo(&host, &enable).await;
    assert_eq!(shapes(dir.path()), before);

    double.state().root = None;
    apply_batch(&host, 7, Batch::Links, &enable).await.unwrap();
    assert!(dir.path().join("etc/systemd/system/multi-user.target.wants/crio.service").is_symlink());
}

/// MCD-153: an enabling that systemd refuses fails the update, in its words; MCD-150: a preset that fails does not.
#[tokio::test(flavor = "current_thread")]
async fn refusal_of_systemd_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    let Some((host, double, _server)) = with_systemd("refusal_of_systemd_is_reported", dir.path()).await
    else {
        return;
    };
    double.state().refuses = Some("Unit file crio.service is odd.".to_owned());
    let enable = steps(vec![Op::EnableUnit { unit: unit("crio.service") }]);
    let error = apply_batch(&host, 7, Batch::Links, &enable).await.unwrap_err();
    let cause = std::error::Error::source(&error).unwrap().to_string();
    assert_eq!(cause, "unit crio.service can't be enabled: Unit file crio.service is odd.");
    assert_eq!(error.class(), FaultClass::Degraded);
    let preset = steps(vec![Op::PresetUnit { unit: unit("chronyd.service") }]);
    apply_batch(&host, 8, Batch::Links, &preset).await.unwrap();
}

/// MCD-146: a mask replaces a file, which systemd itself refuses to do; an undo restores it.
#[tokio::test(flavor = "current_thread")]
async fn mask_replaces_unit_file() {
    let dir = tempfile::tempdir().unwrap();
    let Some((host, double, _server)) = with_systemd("mask_replaces_unit_file", dir.path()).await else {
        return;
    };
    fs::write(dir.path().join("etc/systemd/system/foo.service"), "[Install]\n").unwrap();
    let before = shapes(dir.path());
    let mask = steps(vec![Op::MaskUnit { unit: unit("foo.service") }]);
    apply_batch(&host, 7, Batch::Links, &mask).await.unwrap();
    assert_eq!(double.state().asked, Vec::<String>::new());
    let path = dir.path().join("etc/systemd/system/foo.service");
    assert_eq!(fs::read_link(path).unwrap(), Path::new("/dev/null"));
    undo(&host, &mask).await;
    assert_eq!(shapes(dir.path()), before);
}

/// MCD-144, MCD-155: unit files and drop-ins are 0644 below `/etc/systemd/system`, whatever the host's umask; a drop-in
/// that is no longer requested goes.
#[tokio::test(flavor = "current_thread")]
async fn unit_files_have_one_mode_and_dropins_go() {
    let dir = tempfile::tempdir().unwrap();
    fixture(dir.path());
    let host = host(dir.path(), FailPoints::off());
    let name = || DropinName::new("10-x.conf").unwrap();
    let write = steps(vec![
        Op::WriteUnit { unit: unit("kubelet.service") },
        Op::WriteDropin { unit: unit("kubelet.service"), name: name() },
    ]);
    apply_batch(&host, 3, Batch::Files, &write).await.unwrap();
    let dropin = dir.path().join("etc/systemd/system/kubelet.service.d/10-x.conf");
    for path in [&dropin, &dir.path().join("etc/systemd/system/kubelet.service")] {
        assert_eq!(fs::metadata(path).unwrap().mode() & 0o7777, 0o644, "{}", path.display());
    }
    let remove = steps(vec![Op::RemoveDropin { unit: unit("kubelet.service"), name: name() }]);
    apply_batch(&host, 4, Batch::Files, &remove).await.unwrap();
    assert!(!dropin.exists());
}
