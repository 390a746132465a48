//! Several replicas: one leads.

use rustix::process::Signal;

use crate::cluster::MachineConfigBuilder;
use crate::process::{Cluster, LEASE, SHORT_LEASE};

/// One controller, and a short Lease.
const RENDER: [&str; 4] = ["--controllers", "render", SHORT_LEASE[0], SHORT_LEASE[1]];

#[tokio::test]
async fn one_of_two_replicas_leads_and_other_succeeds_it() {
    let cluster = Cluster::new().await;
    let one = cluster.start("one", &RENDER);
    let first = cluster.until_leader(|_| true).await;
    assert!(first.starts_with("one_"), "{first}");
    let mut two = cluster.start("two", &RENDER);
    two.line("metrics and health on").await;
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
    let leases: kube::Api<k8s_openapi::api::coordination::v1::Lease> =
        kube::Api::namespaced(cluster.client.clone(), crate::process::NAMESPACE);
    leases.delete(LEASE, &kube::api::DeleteParams::default()).await.unwrap();
    assert_eq!(one.end().await.code(), Some(4));
}
