//! The API server goes at each point of a build, and comes back.

use kube::api::ListParams;

use crate::build::Builds;
use crate::build_course::CONTAINERFILE;
use crate::build_jobs::{JobController, Plays};
use crate::cluster::{Fault, Request, own_only};
use crate::pairs::{Pairs, until_image};
use crate::process::NAMESPACE;
use crate::rollout::{Agents, ready_node};

const CRDS: &str = "/apis/machineconfiguration.openshift.io/v1";

/// Before the build is created, before its Job is, before that runs, before its image is published, before the pool is told (the Job goes
/// first) and before the node is: that write is on its way when the server goes, and is lost with it.
#[tokio::test]
async fn build_survives_api_server_outage_at_each_write() {
    if !own_only("build_outage::build_survives_api_server_outage_at_each_write") {
        return;
    }
    let builds = Builds::new().await;
    let _controller = builds.start("a", &[]);
    let mut target = builds.cluster.until_target("worker", "").await;
    ready_node(&builds.cluster.client, "n1", &target).await;
    let pairs = Pairs::start(&builds.cluster.bench).await;
    let _agents = Agents::start(&builds.cluster.bench).await;
    let jobs = JobController::start(&builds.cluster.bench, Plays::Well).await;
    builds.secret().await;
    builds.os_config(CONTAINERFILE).await;
    let (mut last, image) = builds.until_published("").await;
    until_image(&builds.cluster.client, "n1", &image).await;
    let mut expected = vec![(target.clone(), None), (target.clone(), Some(image))];
    let mut started = vec![last.clone()];
    let namespace = format!("/apis/batch/v1/namespaces/{NAMESPACE}");
    let points = [
        ("POST", format!("{CRDS}/machineosbuilds"), "create machineosbuilds"),
        ("POST", format!("{namespace}/jobs"), "create jobs"),
        ("PATCH", format!("{namespace}/jobs"), "patch jobs"),
        ("PATCH", format!("{CRDS}/machineosconfigs/worker/status"), "patch machineosconfigs/status"),
        ("DELETE", format!("{namespace}/jobs"), "delete jobs"),
        ("PATCH", "/api/v1/nodes/n1".to_owned(), "patch nodes"),
    ];
    for (number, (method, path, line)) in points.iter().enumerate() {
        let bench = &builds.cluster.bench;
        let mark = bench.mark().await;
        bench.fault(&Fault::held().method(method).path(path).agent("machine-config-controller"));
        builds.kernel_argument(&format!("round={number}")).await;
        let meant = |request: &Request| request.user == "controller" && request.line().starts_with(line);
        bench.audit().since(mark, line, meant).await;
        if *line == "patch nodes" {
            // The garbage collector of the test would lose what it was about to do.
            jobs.until_gone().await;
        }
        bench.restart();
        builds.served().await;
        let (name, image) = builds.until_published(&last).await;
        until_image(&builds.cluster.client, "n1", &image).await;
        jobs.until_gone().await;
        target = builds.cluster.until_target("worker", &target).await;
        expected.push((target.clone(), Some(image)));
        started.push(name.clone());
        last = name;
        builds.until_condition("False", "BuildSuccess").await;
        assert_eq!(jobs.started(), started, "{line}: each build once");
        let listed = builds.builds().list(&ListParams::default()).await.unwrap();
        assert_eq!(listed.items.len(), started.len(), "{line}");
    }
    assert_eq!(pairs.of("n1").await, expected);
}

/// The API server goes while a build runs, and comes back.
#[tokio::test]
async fn build_survives_api_server_outage() {
    if !own_only("build_outage::build_survives_api_server_outage") {
        return;
    }
    let builds = Builds::new().await;
    let _controller = builds.start("a", &[]);
    let jobs = JobController::start(&builds.cluster.bench, Plays::Running).await;
    builds.secret().await;
    builds.os_config(CONTAINERFILE).await;
    builds.until_condition("False", "Building").await;
    builds.cluster.bench.restart();
    builds.served().await;
    jobs.play(Plays::Well);
    let (published, _) = builds.until_published("").await;
    assert_eq!(jobs.started(), [published]);
    builds.until_condition("False", "BuildSuccess").await;
}
