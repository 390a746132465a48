//! Several replicas: one leads.

use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use rustix::process::Signal;

use crate::cluster::{Fault, MachineConfigBuilder, Request, own_only};
use crate::process::{Cluster, LEASE, NAMESPACE, SHORT_LEASE};

/// One controller, and a short Lease.
const RENDER: [&str; 4] = ["--controllers", "render", SHORT_LEASE[0], SHORT_LEASE[1]];

#[tokio::test]
async fn one_of_two_replicas_leads_and_other_succeeds_it() {
    let cluster = Cluster::new().await;
    let one = cluster.start("one", &RENDER);
    let first = cluster.until_leader(|_| true).await;
    assert!(first.starts_with("one_"), "{first}");
    let mut two = cluster.start("two", &RENDER);
    two.line("Serving metrics and health on").await;
    // Stopped by a signal, it hands over.
    assert!(one.terminate().await.success());
    assert!(one.lines().iter().any(|line| line.contains("Released Lease")), "{:?}", one.lines());
    let second = cluster.until_leader(|name| name.starts_with("two_")).await;
    // Killed, it is waited for.
    let three = cluster.start("three", &RENDER);
    two.kill().await;
    let third = cluster.until_leader(|name| name.starts_with("three_")).await;
    assert_ne!(second, third);
    cluster.pool("worker").await;
    cluster.config("worker", MachineConfigBuilder::new("50-a")).await;
    cluster.until_target("worker", "").await;
    assert!(three.terminate().await.success());
}

/// A leader that stood still for longer than its Lease lasts does nothing more: it ends.
#[tokio::test]
async fn suspended_leader_ends() {
    let cluster = Cluster::new().await;
    let mut one = cluster.start("one", &RENDER);
    one.line("leads").await;
    let _two = cluster.start("two", &RENDER);
    one.signal(Signal::STOP);
    cluster.until_leader(|name| name.starts_with("two_")).await;
    one.signal(Signal::CONT);
    assert_eq!(one.end().await.code(), Some(4));
    let said = one.lines().join("\n");
    assert!(said.contains(&format!("Lease {LEASE} is lost")), "{said}");
}

/// An administrator deletes the Lease, or writes another name into it.
#[tokio::test]
async fn leader_ends_after_loss_of_lease() {
    let cluster = Cluster::new().await;
    let mut one = cluster.start("one", &RENDER);
    one.line("leads").await;
    let leases = leases(&cluster);
    leases.delete(LEASE, &kube::api::DeleteParams::default()).await.unwrap();
    assert_eq!(one.end().await.code(), Some(4));
}

/// The first start of an installation: nobody holds a Lease, and no replica can have one that was deleted.
#[tokio::test]
async fn first_controller_of_cluster_leads_at_once() {
    let cluster = Cluster::new().await;
    cluster.pool("worker").await;
    cluster.config("worker", MachineConfigBuilder::new("50-a")).await;
    let new = ["--controllers", "render", "--lease", "new", "--lease-duration", "3600"];
    let first = cluster.start("first", &new);
    cluster.until_target("worker", "").await;
    assert!(first.terminate().await.success());
    // One that was deleted may still be held: pools have rendered configs.
    leases(&cluster).delete("new", &kube::api::DeleteParams::default()).await.unwrap();
    let mut second = cluster.start("second", &new);
    second.line("Lease new was missing").await;
    second.line("that it rendered show").await;
    assert!(!second.lines().iter().any(|line| line.contains("leads")), "{:?}", second.lines());
    assert!(second.terminate().await.success());
}

/// A namespace that is not there is named, with what to do; once it is there the controller leads.
#[tokio::test]
async fn missing_namespace_of_lease_is_named() {
    if !own_only("leader::missing_namespace_of_lease_is_named") {
        return;
    }
    let cluster = Cluster::new().await;
    cluster.pool("worker").await;
    cluster.config("worker", MachineConfigBuilder::new("50-a")).await;
    // The tests' server takes objects of any namespace.
    let leases = "/apis/coordination.k8s.io/v1/namespaces/";
    cluster.bench.fault(&Fault::status(404).method("POST").path(leases).agent("machine-config-controller"));
    let mut controller =
        cluster.start("a", &["--controllers", "render", "--lease", "late", "--lease-duration", "6"]);
    let line = controller.line("can't be created").await;
    let next = format!("create the namespace {NAMESPACE}, or name another one with --namespace");
    assert!(line.contains(&next) && line.contains("the test says so"), "{line}");
    cluster.bench.clear_faults();
    cluster.until_target("worker", "").await;
}

fn leases(cluster: &Cluster) -> Api<Lease> {
    Api::namespaced(cluster.client.clone(), NAMESPACE)
}

/// A write of the Lease that arrives after SIGTERM would hold it for a process that is gone.
#[tokio::test]
async fn signal_during_write_of_lease_releases_it() {
    if !own_only("leader::signal_during_write_of_lease_releases_it") {
        return;
    }
    let cluster = Cluster::new().await;
    let path = format!("/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/{LEASE}");
    let is_open =
        |request: &Request| request.resource == "leases" && request.verb == "update" && !request.over;
    for during_first_write in [true, false] {
        let name = format!("first-{during_first_write}");
        let hold = || cluster.bench.fault(&Fault::held().method("PUT").path(&path).count(1));
        if during_first_write {
            hold();
        }
        let mark = cluster.bench.mark().await;
        let mut controller = cluster.start(&name, &RENDER);
        if !during_first_write {
            controller.line("leads").await;
            hold();
        }
        cluster.bench.audit().since(mark, "the write of the Lease", is_open).await;
        controller.signal(Signal::TERM);
        controller.line("Stopped by a signal").await;
        cluster.bench.clear_faults();
        assert!(controller.end().await.success());
        let spec = leases(&cluster).get(LEASE).await.unwrap().spec.unwrap();
        assert_eq!(spec.holder_identity, None, "{:?}", controller.lines());
    }
}

/// Times that can't work are refused before anything else.
#[test]
fn times_that_cannot_work_are_refused() {
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_machine-config-controller"));
    command.args(["run", "--kubeconfig", "/none", "--lease-duration", "60", "--lease-renew-deadline", "60"]);
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("--lease-renew-deadline 60 is not less than --lease-duration 60"), "{said}");
}
