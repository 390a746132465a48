//! The page's table of writes: where the tests refuse each, and see what the page says is told.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Event;
use kube::Client;
use kube::api::{Api, DeleteParams, ListParams};

use crate::build::Builds;
use crate::build_course::CONTAINERFILE;
use crate::build_jobs::{JobController, Plays};
use crate::build_registry::FakeRegistry;
use crate::cluster::{Fault, object_api, own_only, within};
use crate::refusals::failures;
use crate::seams::drain::until_event;

/// The writes that `refusals::each_write_that_is_refused_is_counted_and_made_later` makes whose Events it waits for, with what they say.
const SAID: [(&str, &str); 9] = [
    ("PoolStatus", "The status of MachineConfigPool worker is refused"),
    ("RenderCondition", "condition RenderDegraded of pool worker is refused"),
    ("OsBuild", "creation of MachineOSBuild worker-"),
    ("OsBuildStatus", "status of MachineOSBuild worker-"),
    ("OsConfigAnnotations", "annotation of MachineOSConfig worker"),
    ("OsConfigStatus", "status of MachineOSConfig worker"),
    ("BuildJob", "creation of Job "),
    ("BuildInput", "creation of ConfigMap "),
    ("PolicyStatus", "The status of RolloutPolicy worker is refused"),
];

/// The writes that are refused in other tests, too, which see what is told; those with a star are not made by the test of [`SAID`]: it has no
/// pool that opts in, no image that was built before, no `MachineConfigNode` and no pod to evict, and what it refuses of a pool's status is
/// mostly the node controller's.
const SEEN: [(&str, &[&str]); 18] = [
    (
        "NodeTarget",
        &["refusals::node_that_refuses_writes_stops_nobody", "refusals::refused_node_stops_nobody"],
    ),
    ("NodeDrain", &["refusals::refused_cordon_is_named_on_pool", "drain::requests_of_drains_fail"]),
    ("*Eviction", &["drain::requests_of_drains_fail"]),
    ("*ConfigNodeStatus", &["drain::requests_of_drains_fail"]),
    ("PoolStatus", &["refusals::refused_status_of_pool_is_told_as_event", "policy_conflict::status_fails"]),
    ("PolicyStatus", &["refusals::refused_status_of_policy_stops_rollout_and_is_told_on_pool"]),
    ("RenderedConfig", &["refusals::refused_rendered_config"]),
    ("*RenderedConfigDeletion", &["refused::deletion_refused_with"]),
    ("PoolTarget", &["refusals::refused_target"]),
    ("*SeedConfig", &["refused::prebuilt_image_refused_with"]),
    ("*OptInOsConfig", &["refused::opting_in_refused_with"]),
    ("*OptInBaseImage", &["refused::opting_in_refused_with"]),
    ("*OptInResult", &["refused::opting_in_refused_with"]),
    ("*BuildCondition", &["refused::build_condition_refused_with"]),
    ("*NodePinnedImages", &["refused::pinned_images_refused_with"]),
    ("*PinnedImageCounts", &["refused::pinned_images_refused_with"]),
    ("Event", &["refusals::refused_event_is_counted_and_holds_nothing"]),
    (
        "*Lease",
        &["lease::renewals_of_lease_fail", "lease::leader_that_may_not_renew_says_until_when_it_leads"],
    ),
];

/// A row of the page: the write, and the names in its last cell: of conditions, Events, metrics and pages.
fn rows() -> Vec<(&'static str, Vec<&'static str>)> {
    let page = include_str!("../../../docs/monitoring.md");
    let rows = page.split("## Writes that fail").nth(1).unwrap().split("\n## ").next().unwrap();
    let cells = rows.lines().filter_map(|line| line.strip_prefix("| `")).map(|line| {
        let cells: Vec<&str> = line.trim_end_matches(" |").split(" | ").collect();
        (cells[0].trim_end_matches('`'), cells[2].split('`').skip(1).step_by(2).collect())
    });
    cells.collect()
}

/// The rows of the page that were not refused by these metrics, and are not elsewhere.
pub fn unplayed(metrics: &str) -> Vec<&'static str> {
    let is_elsewhere = |row: &str| SEEN.iter().any(|(write, _)| write.strip_prefix('*') == Some(row));
    let is_unplayed = |row: &&str| failures(metrics, row, "refused") == 0 && !is_elsewhere(row);
    rows().into_iter().map(|(write, _)| write).filter(is_unplayed).collect()
}

/// Waits for the Event of each of [`SAID`] that the page names.
pub async fn until_all_are_told(client: &Client, code: u16) {
    let events: Api<Event> = Api::namespaced(client.clone(), "default");
    let words = format!("the test says so ({code})");
    let rows = rows();
    for (write, says) in SAID {
        let (_, names) = rows.iter().find(|(row, _)| *row == write).unwrap();
        let is_told = |event: &Event| {
            let text = event.message.as_deref().unwrap_or_default();
            names.contains(&event.reason.as_deref().unwrap_or_default())
                && text.contains(says)
                && text.contains(&words)
        };
        within(&format!("the Event of {write}: {names:?}: {says}"), async {
            while !events.list(&ListParams::default()).await.unwrap().items.iter().any(is_told) {
                tokio::task::yield_now().await;
            }
        })
        .await;
    }
}

/// Each row that says more than the log is seen by a test, and all that it names is looked for there.
#[test]
fn all_that_page_names_is_looked_for() {
    let sources = [
        ("drain", include_str!("seams/drain.rs")),
        ("lease", include_str!("seams/lease.rs")),
        ("refused", include_str!("seams/refused.rs")),
        ("refusals", include_str!("refusals.rs")),
        ("policy_conflict", include_str!("policy_conflict.rs")),
    ];
    let body = |test: &str| {
        let (module, function) = test.split_once("::").unwrap();
        let source = sources.iter().find(|(name, _)| *name == module).unwrap().1;
        let body = source.split_once(&format!("async fn {function}(")).unwrap().1;
        body.split("\n}\n").next().unwrap()
    };
    let mut open = BTreeSet::new();
    for (write, names) in rows() {
        let seen = SEEN.iter().find(|(row, _)| row.trim_start_matches('*') == write);
        let text: String = seen.iter().flat_map(|(_, tests)| tests.iter().map(|test| body(test))).collect();
        let is_said = SAID.iter().any(|(row, _)| *row == write);
        if seen.is_some_and(|(row, _)| row.starts_with('*')) {
            assert!(text.contains(&format!("\"{write}\"")), "the failures of {write} are not counted");
        }
        // Where an Event is waited for by its name on the page, the rest is looked for as well.
        let events = ["ConfigReconcileFailed", "StatusNotWritten", "RenderDegraded"];
        open.extend(
            names
                .into_iter()
                .filter(|name| !(text.contains(name) || is_said && events.contains(name)))
                .map(|name| (write, name)),
        );
    }
    assert_eq!(open, BTreeSet::new(), "nothing looks for these");
}

/// The `MachineOSConfig` is gone, and its build can't be released: an Event of the build says so.
#[tokio::test]
async fn failure_after_config_is_gone_is_told_of_its_build() {
    if !own_only("told::failure_after_config_is_gone_is_told_of_its_build") {
        return;
    }
    let registry = FakeRegistry::start().await;
    let builds = Builds::pushing_to(&registry.host).await;
    let _controller = builds.start("a", &[]);
    let jobs = JobController::start(&builds.cluster.bench, Plays::Well).await;
    builds.secret().await;
    builds.os_config(CONTAINERFILE).await;
    let (build, _) = builds.until_published("").await;
    jobs.until_gone().await;
    let path = "/apis/machineconfiguration.openshift.io/v1/machineosbuilds/";
    builds
        .cluster
        .bench
        .fault(&Fault::status(403).method("PATCH").path(path).agent("machine-config-controller"));
    let configs = object_api(&builds.cluster.client, "machineosconfigs");
    configs.delete("worker", &DeleteParams::default()).await.unwrap();
    let text = format!("release of MachineOSBuild {build} is refused: the test says so (403)");
    until_event(&builds.cluster.client, "ConfigReconcileFailed", &build, &text).await;
    builds.cluster.bench.clear_faults();
    within("the build is gone", async {
        while !builds.builds().list(&ListParams::default()).await.unwrap().items.is_empty() {
            tokio::task::yield_now().await;
        }
    })
    .await;
}
