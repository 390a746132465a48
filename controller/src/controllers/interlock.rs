//! The shell of [`crate::interlock`]: watches of the operator's Leases, and the makers of the pools' targets.

use std::pin::pin;
use std::time::Duration;

use futures_util::{StreamExt as _, future, stream};
use k8s_openapi::api::coordination::v1::Lease as LeaseObject;
use kube::{Api, Client};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use tracing::{info, warn};

use super::cache::{Cache, Kind, Snapshot};
use super::client::uptime;
use super::error::RunError;
use super::failure::Failure;
use crate::api::GENERATED_BY;
use crate::interlock::{ForeignTarget, Interlock, LEASES, Lease, NAMESPACE, TAKE_OVER, Verdict};
use crate::retry::is_same;
use crate::watches::{self, Recovery, Starting};

/// Kinds that are read before a pool's target is judged.
const NEEDED: [Kind; 3] = [Kind::Definitions, Kind::Pools, Kind::Configs];

/// Knowledge of other programs on the pools.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Alone {
    /// Not yet.
    Unknown,
    /// The operator is not at work; the makers of the pools' targets can't be read.
    OperatorIsNot,
    /// There is none.
    Known,
}

/// Watches for other programs for as long as it is polled; returns the one that it finds. No controller works before
/// `alone` is known.
pub(super) async fn other_program(client: Client, cache: Cache, alone: watch::Sender<Alone>) -> RunError {
    let watches = LEASES.map(|name| {
        let api = Api::<LeaseObject>::namespaced(client.clone(), NAMESPACE);
        watches::object(api, name).map(move |news| (name, news)).boxed()
    });
    let mut leases = pin!(stream::select_all(watches));
    let mut seen = Seen::new(&client, cache.clone());
    let (mut interlock, mut changes) = (Interlock::default(), cache.contents());
    let mut is_told = false;
    loop {
        changes.mark_unchanged();
        if let Some(found) = foreign_target(&cache.lock()) {
            return RunError::ForeignTarget(found);
        }
        let until = match interlock.verdict(uptime()) {
            Verdict::AtWork { lease, holder } => return RunError::OperatorAtWork { lease, holder },
            Verdict::Clear => {
                let is_known = NEEDED.iter().all(|kind| cache.lock().knows(*kind));
                let now = if is_known { Alone::Known } else { Alone::OperatorIsNot };
                alone.send_if_modified(|alone| now > *alone && std::mem::replace(alone, now) != now);
                None
            }
            Verdict::Wait(until) => {
                if let Some(until) = until.filter(|_| !std::mem::replace(&mut is_told, true)) {
                    tell_wait(until);
                }
                until
            }
        };
        let due = async {
            match until {
                Some(until) => sleep_until(Instant::now() + until.saturating_sub(uptime())).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            Some((name, news)) = leases.next() => match news {
                Ok(object) => {
                    seen.listed(name);
                    interlock.observe(name, object.as_ref().map(read), uptime());
                }
                Err(error) => seen.failed(name, &Failure::new(&error)),
            },
            () = seen.proven() => {}
            _ = changes.changed() => {}
            () = due => {}
        }
    }
}

/// The watches of the Leases.
struct Seen {
    cache: Cache,
    leases: [SeenLease; LEASES.len()],
}

struct SeenLease {
    name: &'static str,
    recovery: Recovery,
    starting: Starting,
    is_listed: bool,
    /// Cause of a watch that is down.
    down: Option<String>,
}

impl Seen {
    fn new(client: &Client, cache: Cache) -> Self {
        let leases = LEASES.map(|name| {
            let api = Api::<LeaseObject>::namespaced(client.clone(), NAMESPACE);
            let recovery = watches::recovery_of(&api, name);
            SeenLease { name, recovery, starting: Starting::default(), is_listed: true, down: None }
        });
        Self { cache, leases }
    }

    /// Records that a Lease was listed, or has changed. It may not be watched.
    fn listed(&mut self, name: &str) {
        for one in self.leases.iter_mut().filter(|one| one.name == name) {
            (one.is_listed, one.starting) = (true, Starting::default());
            one.down.take_if(|_| !one.recovery.is_failing());
        }
        self.publish();
    }

    /// Waits until a watch that failed is well again. Cancel-safe.
    async fn proven(&mut self) {
        let each = self.leases.iter_mut().map(|one| {
            Box::pin(async move {
                one.recovery.proven().await;
                one.down = None;
            })
        });
        future::select_all(each).await;
        self.publish();
    }

    fn publish(&self) {
        let is_watched = self.leases.iter().all(|one| one.down.is_none());
        let is_listed = self.leases.iter().all(|one| one.is_listed);
        self.cache.change(|snapshot| match (is_listed, is_watched) {
            (_, true) => snapshot.is_read(Kind::OperatorLeases),
            (true, false) => snapshot.set_listed(Kind::OperatorLeases),
            (false, false) => false,
        });
    }

    /// Tells once of a Lease that can't be watched.
    fn failed(&mut self, name: &str, failure: &Failure) {
        for one in self.leases.iter_mut().filter(|one| one.name == name) {
            one.is_listed = false;
            one.recovery.failed();
            let is_starting = one.starting.takes(failure.code);
            let failure = if is_starting { failure.clone().of_start() } else { failure.clone() };
            let cause = &failure.cause;
            let known = one.down.replace(cause.clone());
            let is_news = known.is_none_or(|known| !is_same(&known, cause));
            self.cache.change(|snapshot| snapshot.fails(Kind::OperatorLeases, &failure, uptime()));
            if is_news && failure.is_refusal() {
                warn!(
                    "Lease {NAMESPACE}/{name} can't be watched: {cause}; it is not known whether the Machine Config Operator runs, so a \
                     controller that has not begun to work waits"
                );
            }
        }
    }
}

fn tell_wait(until: Duration) {
    let seconds = until.saturating_sub(uptime()).as_secs();
    info!(
        "A Lease of the Machine Config Operator in {NAMESPACE} has a holder: waiting {seconds} s for a renewal, which would show that the operator runs. If the \
         operator is gone, delete {} to start at once",
        LEASES.map(|name| format!("leases/{name}")).join(" and ")
    );
}

fn read(object: &LeaseObject) -> Lease {
    let spec = object.spec.clone().unwrap_or_default();
    let seconds = spec.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok());
    Lease {
        holder: spec.holder_identity.unwrap_or_default(),
        renewed: spec.renew_time.map(|time| time.0.to_string()).unwrap_or_default(),
        duration: seconds.map(Duration::from_secs),
    }
}

/// Returns the first pool whose target another program rendered.
fn foreign_target(snapshot: &Snapshot) -> Option<ForeignTarget> {
    snapshot.readable_pools().find_map(|pool| {
        let config = pool.spec.configuration.as_ref()?.name.as_deref()?;
        let name = pool.metadata.name.as_deref().unwrap_or_default();
        let is_taken_over = pool.metadata.annotations.as_ref().is_some_and(|all| all.contains_key(TAKE_OVER));
        let rendered = snapshot.rendered.get(config).and_then(|rendered| rendered.made_by.as_deref());
        // One of an installation has no owner yet.
        let config_of =
            snapshot.configs.get(config).and_then(|config| config.object.metadata.annotations.as_ref());
        let version = rendered.or_else(|| config_of?.get(GENERATED_BY).map(String::as_str));
        ForeignTarget::new(name, is_taken_over, config, version)
    })
}
