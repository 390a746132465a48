//! The Lease: the leader can't renew it, and who waits for it can't read it. Each way has a Lease of its own.

use http::Method;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::Api;

use crate::cluster::{Identity, MachineConfigBuilder, object_until};
use crate::connections::behind_proxy;
use crate::process::{Cluster, Controller, NAMESPACE};
use crate::proxy::{Failing, Seam};
use crate::refusals::{failures, get, listener, page_until};

/// Ways in which a write of the Lease fails: with the outcome of the metric, none for a conflict.
const WAYS: [(&str, Failing, Option<&str>); 6] = [
    ("lease-never", Failing::NeverAnswers, Some("unanswered")),
    ("lease-late", Failing::AnswersLate, Some("unanswered")),
    ("lease-refused", Failing::Refuses(403, "the role has no right for it"), Some("refused")),
    // The Lease is there as it was: neither is so.
    ("lease-conflict", Failing::Refuses(409, "somebody else wrote"), Some("refused")),
    ("lease-gone", Failing::Refuses(404, "it is gone"), Some("refused")),
    ("lease-else", Failing::AnswersSomethingElse, Some("unanswered")),
];

/// Times by which a request that is not answered is seen well before the leader ends, also on a loaded machine.
const TIMES: [&str; 6] =
    ["--lease-duration", "12", "--lease-renew-deadline", "10", "--lease-retry-period", "1"];

fn start(cluster: &Cluster, name: &str, lease: &str) -> Controller {
    cluster.start(name, &[&["--controllers", "render", "--lease", lease][..], &TIMES].concat())
}

async fn until_lease(
    cluster: &Cluster,
    name: &str,
    what: &str,
    holds: impl Fn(&str, &Lease) -> bool,
) -> Lease {
    let leases: Api<Lease> = Api::namespaced(cluster.client.clone(), NAMESPACE);
    let is_it = |lease: &Lease| {
        let holder = lease.spec.as_ref().and_then(|spec| spec.holder_identity.clone()).unwrap_or_default();
        holds(&holder, lease)
    };
    object_until(&leases, name, &format!("{name}: {what}"), is_it).await
}

/// A write that fails once is made again, and the leader leads on. Where each fails, the leader ends before another replica may take the
/// Lease; that one goes on with the pools, and a write of the old one that arrives late takes it from nobody.
#[tokio::test]
async fn renewals_of_lease_fail() {
    let (mut cluster, proxy) = behind_proxy().await;
    cluster.pool("worker").await;
    let seam = |lease: &str| Seam::new(Method::PUT, &[&format!("/leases/{lease}?")]);
    let mut leaders = Vec::new();
    for (lease, failing, outcome) in WAYS {
        cluster.lease(lease).await;
        let mut leader = start(&cluster, "old", lease);
        let listener = listener(&mut leader).await;
        leader.line("leads").await;
        leaders.push((leader, listener, lease, failing, outcome));
    }
    for (lease, failing, _) in WAYS {
        proxy.fail(seam(lease), failing);
    }
    proxy.all_failed().await;
    let counted = leaders.iter().filter_map(|(_, listener, lease, _, outcome)| {
        let outcome = (*outcome)?;
        let is_counted = move |_, body: &str| failures(body, "Lease", outcome) > 0;
        Some(async move { page_until(*listener, "/metrics", lease, is_counted).await })
    });
    futures_util::future::join_all(counted).await;
    proxy.mend();
    for (lease, ..) in WAYS {
        let renewed = |lease: &Lease| lease.spec.as_ref().unwrap().renew_time.clone();
        let before = renewed(&until_lease(&cluster, lease, "its leader", |_, _| true).await);
        let is_renewed = |holder: &str, lease: &Lease| holder.starts_with("old_") && renewed(lease) > before;
        until_lease(&cluster, lease, "a renewal", is_renewed).await;
    }
    for (lease, failing, _) in WAYS {
        proxy.fail(seam(lease), failing);
    }
    // Who comes next has another way to the API server.
    cluster.kubeconfig = cluster.bench.kubeconfig(&Identity::Admin("controller".to_owned()));
    let mut next = Vec::new();
    for (leader, _, lease, ..) in leaders {
        next.push((start(&cluster, "new", lease), leader, lease));
    }
    for (mut new, old, lease) in next {
        assert_eq!(old.end().await.code(), Some(4), "{lease}");
        let lines = old.lines().join("\n");
        assert!(lines.contains(&format!("Lease {lease} is lost")), "{lines}");
        let listener = listener(&mut new).await;
        until_lease(&cluster, lease, "the next one", |holder, _| holder.starts_with("new_")).await;
        let leads = |_, body: &str| body.contains("machine_config_controller_leading 1");
        page_until(listener, "/metrics", "it leads", leads).await;
        if lease == "lease-late" {
            // The renewal of the old one arrives now, and is a conflict.
            proxy.mend();
            let before =
                until_lease(&cluster, lease, "the next one", |_, _| true).await.metadata.resource_version;
            let is_next = |holder: &str, lease: &Lease| {
                assert!(holder.starts_with("new_"), "{holder}");
                lease.metadata.resource_version != before
            };
            until_lease(&cluster, lease, "a renewal of the next one", is_next).await;
        }
        assert!(new.terminate().await.success());
    }
    let last = start(&cluster, "last", "lease-never");
    cluster.config("worker", MachineConfigBuilder::new("50-a")).await;
    cluster.until_target("worker", "").await;
    assert!(last.terminate().await.success());
}

/// Who can't read the Lease does not lead, and is ready to: it reads the pools. It leads once it can read it.
#[tokio::test]
async fn lists_of_lease_fail() {
    let (cluster, proxy) = behind_proxy().await;
    let mut waiting = Vec::new();
    for (lease, failing, _) in WAYS {
        cluster.lease(lease).await;
        let selector = format!("metadata.name%3D{lease}&");
        proxy.fail(Seam::new(Method::GET, &["/leases?", &selector]).without("watch="), failing);
        let mut controller = start(&cluster, "a", lease);
        let listener = listener(&mut controller).await;
        waiting.push((controller, listener, lease, failing));
    }
    proxy.all_failed().await;
    for (controller, listener, lease, failing) in &mut waiting {
        // It could not lead.
        let is_named = |code, text: &str| code == 503 && text.contains("leases.coordination.k8s.io");
        page_until(*listener, "/readyz", "the Lease is named", is_named).await;
        assert!(get(*listener, "/metrics").1.contains("machine_config_controller_leading 0"), "{lease}");
        match failing {
            Failing::NeverAnswers | Failing::AnswersLate => {}
            Failing::Refuses(403 | 409, _) => {
                controller.line(&format!("Lease {lease} can't be watched")).await;
            }
            Failing::Refuses(..)
            | Failing::AnswersSomethingElse
            | Failing::AnswersWithOlderNews
            | Failing::EndsAtOnce => {
                controller.line("leases.coordination.k8s.io can't be read: ").await;
            }
        }
        let held = until_lease(&cluster, lease, "as it was", |_, _| true).await;
        assert_eq!(held.spec.unwrap().holder_identity, None, "{lease}");
    }
    proxy.mend();
    for (_controller, listener, lease, _) in &waiting {
        until_lease(&cluster, lease, "a leader", |holder, _| holder.starts_with("a_")).await;
        let leads = |_, body: &str| body.contains("machine_config_controller_leading 1");
        page_until(*listener, "/metrics", "it leads", leads).await;
    }
}

/// The watch of a standby brings nothing: it does not see that the leader released the Lease, takes what it knows for current once
/// that has run out, is refused as a conflict, reads the Lease and takes it.
#[tokio::test]
async fn watch_of_lease_brings_nothing() {
    let (mut cluster, proxy) = behind_proxy().await;
    let lease = "lease-old";
    cluster.lease(lease).await;
    let behind = cluster.kubeconfig.clone();
    cluster.kubeconfig = cluster.bench.kubeconfig(&Identity::Admin("controller".to_owned()));
    let mut first = start(&cluster, "first", lease);
    first.line("leads").await;
    cluster.kubeconfig = behind;
    proxy.fail(Seam::new(Method::GET, &["/leases?", "watch="]), Failing::AnswersWithOlderNews);
    let _second = start(&cluster, "second", lease);
    proxy.failed(1).await;
    assert!(first.terminate().await.success());
    until_lease(&cluster, lease, "the standby", |holder, _| holder.starts_with("second_")).await;
}

/// A leader that may not renew its Lease leads on until its last renewal has run out: it says so, is not ready, and names the cause when it ends.
#[tokio::test]
async fn leader_that_may_not_renew_says_until_when_it_leads() {
    let (cluster, proxy) = behind_proxy().await;
    cluster.pool("worker").await;
    cluster.config("worker", MachineConfigBuilder::new("50-a")).await;
    let lease = "lease-norenewal";
    cluster.lease(lease).await;
    let mut leader = start(&cluster, "old", lease);
    let listener = listener(&mut leader).await;
    let first = cluster.until_target("worker", "").await;
    let words = "the role has no right for it";
    proxy.fail(Seam::new(Method::PUT, &[&format!("/leases/{lease}?")]), Failing::Refuses(403, words));
    let line = leader.line("can't be renewed").await;
    for part in [words, "this replica leads for", "and then ends", "the verbs create and update of leases"] {
        assert!(line.contains(part), "{part}: {line}");
    }
    let named = |code, text: &str| code == 503 && text.contains("can't be renewed") && text.contains(words);
    page_until(listener, "/readyz", "the Lease is named", named).await;
    // It leads, as it says.
    cluster.config("worker", MachineConfigBuilder::new("60-b").karg("quiet")).await;
    cluster.until_target("worker", &first).await;
    assert_eq!(leader.end().await.code(), Some(4));
    let lines = leader.lines().join("\n");
    assert!(!lines.contains("writes nothing") && !lines.contains("another replica leads"), "{lines}");
    let end = format!("Lease {lease} is lost: it was not renewed in time: ");
    assert!(lines.contains(&end) && lines.rsplit(&end).next().unwrap().contains(words), "{lines}");
}
