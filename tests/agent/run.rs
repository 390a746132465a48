//! An agent over a directory, and how far it has come.

use std::fmt::Debug;
use std::path::Path;
use std::time::Duration;

use machine_config_agent::agent::Agent;
use machine_config_agent::host::{FailPoints, Host, Root};
use machine_config_agent::report::NodeReport;

use crate::fake_control_plane::FakeControlPlane;

pub fn agent(at: &Path, plane: &FakeControlPlane) -> Agent<FakeControlPlane> {
    plane.agent(Host::in_directory(Root::open(at).unwrap(), FailPoints::off()))
}

/// Lets the agent go on for some time; returns its last report. It is one run: a start tries what is held, too.
pub async fn after(
    run: &mut (impl Future<Output: Debug> + Unpin),
    plane: &FakeControlPlane,
    time: Duration,
) -> NodeReport {
    let end = tokio::time::timeout(time, run).await;
    assert!(end.is_err(), "it ended: {end:?}");
    plane.reports.borrow().last().unwrap().clone()
}
