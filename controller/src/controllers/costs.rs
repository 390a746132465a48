//! Costs of the ways between rendered configs. A config is named by its content, so a way is reckoned once; the contents
//! themselves are megabytes and are not kept.
//!
//! They are read beside the decisions: a read that has no answer delays none of them but the first, by [`FIRST_ANSWER`], and is
//! tried again after growing pauses.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use kube::{Api, Client};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tracing::{info, warn};

use super::causes::Causes;
use super::client::{read, uptime};
use crate::api::MachineConfig;
use crate::cost::{NodeCost, cost};
use crate::model::policy::DisruptionPolicy;
use crate::reading::Lenient;
use crate::render::Rendered;
use crate::retry::Retries;

/// A decision waits so long for the first answer. Without one the plan counts the nodes as unknown.
const FIRST_ANSWER: Duration = Duration::from_secs(2);

/// Configs are megabytes: so many ways are reckoned at once. One that has no answer leaves the other place.
const AT_ONCE: usize = 2;

/// Costs of the ways between the rendered configs that pools and nodes have now.
#[derive(Debug)]
pub(super) struct Costs {
    /// By the config that a node has and the one that it gets; none where that could not be reckoned.
    ways: BTreeMap<(String, String), Option<NodeCost>>,
    policy: Option<DisruptionPolicy>,
    /// When a pool's configs were asked for, while they are being read.
    asked: BTreeMap<String, Duration>,
    reads: JoinSet<Reckoned>,
    places: Arc<Semaphore>,
    /// Configs that could not be read.
    retries: Retries,
    /// Causes that were logged of them: a target that another program sets in turn comes back.
    causes: Causes,
}

/// Wait of a pool's costs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unknown {
    /// All is known.
    Nothing,
    /// The first answer, for so long: nothing is decided before.
    FirstAnswer(Duration),
    /// An answer, or the next try after so long.
    Later(Duration),
}

/// Result of the reads for a pool.
#[derive(Debug)]
struct Reckoned {
    pool: String,
    policy: DisruptionPolicy,
    read: Vec<String>,
    ways: BTreeMap<(String, String), Option<NodeCost>>,
    /// Causes by config.
    failed: BTreeMap<String, String>,
}

impl Default for Costs {
    fn default() -> Self {
        Self {
            ways: BTreeMap::new(),
            policy: None,
            asked: BTreeMap::new(),
            reads: JoinSet::new(),
            places: Arc::new(Semaphore::new(AT_ONCE)),
            retries: Retries::default(),
            causes: Causes::default(),
        }
    }
}

impl Costs {
    /// Forgets what is about other configs, or about another policy.
    pub(super) fn retain(&mut self, configs: &BTreeSet<String>, policy: &DisruptionPolicy) {
        self.ways.retain(|(from, to), _| configs.contains(from) && configs.contains(to));
        self.retries.keep(|name| configs.contains(name));
        if self.policy.as_ref() != Some(policy) {
            self.ways.clear();
            self.policy = Some(policy.clone());
        }
    }

    /// Returns the cost of each way to a pool's target, as far as it is known, and has the others read. A config that can't be
    /// read has none: a cost that is not known keeps nothing back.
    pub(super) fn to(
        &mut self,
        client: &Client,
        pool: &str,
        target: &str,
        from: &[String],
    ) -> (BTreeMap<String, NodeCost>, Unknown) {
        let way = |name: &String| {
            let cost = self.ways.get(&(name.clone(), target.to_owned()))?;
            Some((name.clone(), cost.clone()?))
        };
        let costs = from.iter().filter_map(way).collect();
        let is_known =
            |name: &&String| *name == target || self.ways.contains_key(&((*name).clone(), target.to_owned()));
        let missing: Vec<&String> = from.iter().filter(|name| !is_known(name)).collect();
        let unknown =
            if missing.is_empty() { Unknown::Nothing } else { self.ask(client, pool, target, &missing) };
        (costs, unknown)
    }

    /// Has configs read, unless they are being read or it is too early for another try.
    fn ask(&mut self, client: &Client, pool: &str, target: &str, from: &[&String]) -> Unknown {
        let now = uptime();
        // One that could not be read before is not waited for again.
        let is_first = from
            .iter()
            .map(|name| name.as_str())
            .chain([target])
            .all(|name| self.retries.cause(name).is_none());
        if let Some(since) = self.asked.get(pool) {
            return waits_for_answer(*since, is_first, now);
        }
        let wait = |name: &str| self.retries.wait(name, "", now);
        let due: Vec<String> =
            from.iter().filter(|name| wait(name).is_none()).map(|name| (*name).clone()).collect();
        if due.is_empty() || wait(target).is_some() {
            let next = wait(target).or_else(|| from.iter().filter_map(|name| wait(name)).min());
            return Unknown::Later(next.unwrap_or_default());
        }
        let policy = self.policy.clone().unwrap_or_else(DisruptionPolicy::defaults);
        let (client, places) = (client.clone(), Arc::clone(&self.places));
        let (pool, to) = (pool.to_owned(), target.to_owned());
        self.asked.insert(pool.clone(), now);
        self.reads.spawn(async move {
            // The semaphore is never closed.
            let _place = places.acquire().await;
            reckoned(&client, pool, &to, due, policy).await
        });
        waits_for_answer(now, is_first, now)
    }

    /// Waits for an answer; returns the pool that it is for. Cancel-safe.
    pub(super) async fn answered(&mut self) -> String {
        loop {
            match self.reads.join_next().await {
                Some(Ok(reckoned)) => return self.take(reckoned),
                // One that was ended with the process.
                Some(Err(_)) => {}
                None => return std::future::pending().await,
            }
        }
    }

    fn take(&mut self, reckoned: Reckoned) -> String {
        let Reckoned { pool, policy, read, ways, failed } = reckoned;
        self.asked.remove(&pool);
        for name in &read {
            self.retries.succeeded(name);
            if self.causes.is_over(name) {
                info!("MachineConfig {name} is read again");
            }
        }
        // Those of another policy are reckoned anew.
        if self.policy.as_ref() == Some(&policy) {
            self.ways.extend(ways);
        }
        for (name, cause) in failed {
            self.retries.failed(&name, "", &cause, uptime());
            if self.causes.is_news(&name, &cause) {
                warn!(
                    "MachineConfig {name} of pool {pool} can't be read: {cause}; the plan of the pool counts its nodes as \
                     unknown until it can"
                );
            }
        }
        pool
    }
}

/// Returns what a decision waits for while configs are being read since a point in time.
fn waits_for_answer(since: Duration, is_first: bool, now: Duration) -> Unknown {
    let left = since.saturating_add(FIRST_ANSWER).saturating_sub(now);
    if is_first && !left.is_zero() { Unknown::FirstAnswer(left) } else { Unknown::Later(Duration::MAX) }
}

/// Reads the configs of a pool, at most two at a time.
async fn reckoned(
    client: &Client,
    pool: String,
    target: &str,
    from: Vec<String>,
    policy: DisruptionPolicy,
) -> Reckoned {
    let (read, ways, failed) = (Vec::new(), BTreeMap::new(), BTreeMap::new());
    let mut reckoned = Reckoned { pool, policy, read, ways, failed };
    let Some(to) = reckoned.content(client, target).await else { return reckoned };
    for name in from {
        let Some(from) = reckoned.content(client, &name).await else { continue };
        let plan = cost(&from, &to, &reckoned.policy).ok().and_then(Result::ok);
        reckoned.ways.insert((name, target.to_owned()), plan.as_ref().map(NodeCost::new));
    }
    reckoned
}

impl Reckoned {
    async fn content(&mut self, client: &Client, name: &str) -> Option<Rendered> {
        match read(Api::<Lenient<MachineConfig>>::all(client.clone()).get(name)).await {
            Ok(object) => {
                self.read.push(name.to_owned());
                Some(Rendered { object, sources: Vec::new(), remarks: Vec::new() })
            }
            Err(error) => {
                self.failed.insert(name.to_owned(), error.to_string());
                None
            }
        }
    }
}
