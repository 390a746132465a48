//! A first boot whose file is corrected under the same name while the agent works on it: the file's contents are the target.

use std::cell::{Cell, RefCell};
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use crate::fake_control_plane::FakeControlPlane;
use crate::fake_control_plane::os::{Played, StageResult, image};
use crate::plain_host;
use machine_config_agent::agent::{ExitReason, Reboots, RunMode};
use machine_config_agent::host::{BoxFuture, FailPoints, Host, Root};
use machine_config_agent::model::ImageRef;

/// Far longer than any of this takes.
const LIMIT: Duration = Duration::from_secs(600);

fn config(image: &ImageRef) -> String {
    format!(
        r#"{{"kind":"MachineConfig","metadata":{{"name":"rendered-a"}},"spec":{{"osImageURL":"{image}",
        "config":{{"ignition":{{"version":"3.4.0"}}}}}}}}"#
    )
}

/// Runs the first boot on a host that runs an image; `pulled` is called at each staging.
async fn first_boot(
    at: &Path,
    plane: &FakeControlPlane,
    booted: &ImageRef,
    pulled: Box<dyn Fn() -> BoxFuture<'static, StageResult>>,
) -> ExitReason {
    let os = Played { pulled, ..Played::running(booted.clone()) };
    let host = Host { os: Box::new(os), ..Host::in_directory(Root::open(at).unwrap(), FailPoints::off()) };
    let mut agent = plane.agent(host).with(RunMode::FirstBoot, Reboots::Requested);
    tokio::time::timeout(LIMIT, Box::pin(agent.run())).await.unwrap().unwrap()
}

fn never() -> Box<dyn Fn() -> BoxFuture<'static, StageResult>> {
    Box::new(|| panic!("nothing is left to stage"))
}

/// The wrong image is pulled slowly, and the file is corrected meanwhile: the pull is left.
#[tokio::test(start_paused = true)]
async fn file_corrected_during_pull_is_applied() {
    let dir = tempfile::tempdir().unwrap();
    plain_host::bare(dir.path());
    let plane = FakeControlPlane::wanting("rendered-a", None);
    plane.tells_content.set(true);
    plane.config("rendered-a", &config(&image("b")));
    let (stagings, corrected) = (Rc::new(Cell::new(0)), plane.clone());
    let count = Rc::clone(&stagings);
    let pulled = move || {
        count.set(count.get() + 1);
        let (first, corrected) = (count.get() == 1, corrected.clone());
        let ended: BoxFuture<'static, StageResult> = Box::pin(async move {
            if first {
                corrected.config("rendered-a", &config(&image("c")));
                corrected.nudge.notify_one();
                std::future::pending::<()>().await;
            }
            Ok(())
        });
        ended
    };
    let end = first_boot(dir.path(), &plane, &image("a"), Box::new(pulled)).await;
    assert_eq!((end, stagings.get()), (ExitReason::Reboot, 2));
    plain_host::boot(dir.path(), 2);
    let end = first_boot(dir.path(), &plane, &image("c"), never()).await;
    assert_eq!(end, ExitReason::Settled);
}

/// The same after the wrong image is staged: the node comes up in it, and does not call it complete.
#[tokio::test(start_paused = true)]
async fn file_corrected_after_staging_is_applied() {
    let dir = tempfile::tempdir().unwrap();
    plain_host::bare(dir.path());
    let plane = FakeControlPlane::wanting("rendered-a", None);
    plane.tells_content.set(true);
    plane.config("rendered-a", &config(&image("b")));
    let stagings = Rc::new(RefCell::new(0));
    let counted = || -> Box<dyn Fn() -> BoxFuture<'static, StageResult>> {
        let count = Rc::clone(&stagings);
        Box::new(move || {
            *count.borrow_mut() += 1;
            Box::pin(async { Ok(()) })
        })
    };
    assert_eq!(first_boot(dir.path(), &plane, &image("a"), counted()).await, ExitReason::Reboot);
    plane.config("rendered-a", &config(&image("c")));
    plain_host::boot(dir.path(), 2);
    assert_eq!(first_boot(dir.path(), &plane, &image("b"), counted()).await, ExitReason::Reboot);
    assert_eq!(*stagings.borrow(), 2);
    plain_host::boot(dir.path(), 3);
    assert_eq!(first_boot(dir.path(), &plane, &image("c"), never()).await, ExitReason::Settled);
}
