//! The writes of a decision. None of them keeps the pool's status from being written.

use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt as _, stream};
use kube::Api;
use tokio::time::{Instant, timeout, timeout_at};
use tracing::{info, warn};

use super::provisioned;
use super::sent::{Purpose, Sent, SentStatus};
use super::statuses::{Written, content};
use super::{Controller, Decision, LONGEST_WAIT};
use crate::api::{MachineConfigPool, MachineConfigPoolStatus};
use crate::controllers::cached::Cached as _;
use crate::controllers::client::{RequestError, limited, send, uptime};
use crate::controllers::contested::Field;
use crate::controllers::events::{About, POOL, Severity, emit};
use crate::controllers::node::NodeObject;
use crate::controllers::node_write::write_body;
use crate::controllers::write::Write;
use crate::rollout::{Answer, HALTED, Node, NodePatch, Pair};

/// So many nodes are written to at once.
const MAX_WRITES: usize = 16;

/// So many writes are under way at most, with those that are not answered in time.
const MAX_UNDER_WAY: usize = 256;

/// Time for which a decision waits for an answer. A node that hangs delays no other one: its write goes on beside the next decisions.
const ANSWER_TIME: Duration = Duration::from_secs(1);

impl Controller {
    /// Writes a decision; returns the time until the next one: none, if something was written or refused.
    pub(super) async fn execute(&mut self, name: &str, decision: Decision) -> Duration {
        let Decision { pool, policy, target, rollout } = decision;
        let mut wait = LONGEST_WAIT;
        let mut is_recorded = true;
        if let (Some(policy), Some(status)) = (policy, &rollout.policy_status) {
            let (until, is_written) = self.bring_policy_status(&policy, status).await;
            (wait, is_recorded) = (wait.min(until), is_written);
            let failure = self.policy_failure(&policy);
            if self.statuses.record(name, failure) {
                wait = Duration::ZERO;
            }
        }
        if is_recorded {
            wait = wait.min(self.write_nodes(&pool, target.as_ref(), &rollout.patches).await);
        }
        wait.min(self.bring_pool_status(&pool, &rollout.status).await)
    }

    /// Writes a pool's status, unless it was refused a moment ago; returns the time until the next decision.
    pub(super) async fn bring_pool_status(
        &mut self,
        pool: &MachineConfigPool,
        status: &MachineConfigPoolStatus,
    ) -> Duration {
        let name = pool.metadata.name.clone().unwrap_or_default();
        let about = About::pool(&name, pool.metadata.uid.as_deref().unwrap_or_default());
        if pool.status.as_ref() == Some(status) || self.statuses.is_under_way(&about) {
            return LONGEST_WAIT;
        }
        if let Some(wait) = self.statuses.wait(&about, status, uptime()) {
            return wait;
        }
        if !is_gate(pool.status.as_ref(), status)
            && let Some(pause) = self.statuses.pause(&name, uptime())
        {
            return pause;
        }
        let (writer, pool, new) = (self.writer(), pool.clone(), status.clone());
        let written = async move {
            let old = pool.status.as_ref();
            writer.write_status::<MachineConfigPool, _>(Write::PoolStatus, &pool, old, &new).await
        };
        self.bring_status(about, &name, content(status), written).await.map_or(LONGEST_WAIT, |(wait, _)| wait)
    }

    /// Writes a status; returns the time until the next decision and whether it is written, or nothing if it is not answered in time: it goes
    /// on beside the next decisions.
    pub(super) async fn bring_status(
        &mut self,
        about: About,
        pool: &str,
        status: String,
        written: impl Future<Output = Result<Written, RequestError>> + Send + 'static,
    ) -> Option<(Duration, bool)> {
        let key = about.key();
        self.statuses.sent(&about);
        let pool = pool.to_owned();
        self.statuses_under_way
            .spawn(async move { SentStatus { about, pool, status, written: written.await } });
        let until = Instant::now() + ANSWER_TIME;
        loop {
            let sent = timeout_at(until, self.statuses_under_way.join_next()).await.ok()??.ok()?;
            let (is_own, is_written) =
                (sent.about.key() == key, matches!(sent.written, Ok(Written::Made | Written::Same)));
            let wait = self.status_answered(sent).await;
            if is_own {
                return Some((wait, is_written));
            }
        }
    }

    /// Records the answer of a write of a status; returns the time until the next decision.
    pub(super) async fn status_answered(&mut self, sent: SentStatus) -> Duration {
        let SentStatus { about, pool, status, written } = sent;
        self.statuses.answered(&about);
        if about.kind == POOL && matches!(written, Ok(Written::Made)) {
            self.statuses.written(&pool, uptime());
        }
        let wait = self.settle(&about, &status, written).await;
        self.due.insert(pool, uptime().saturating_add(wait));
        wait
    }

    /// Writes to nodes; returns the time until the next decision: none, if there was something to write.
    async fn write_nodes(
        &mut self,
        pool: &MachineConfigPool,
        target: Option<&Pair>,
        patches: &[NodePatch],
    ) -> Duration {
        let wait = |patch: &NodePatch| {
            let (name, value) = patch.content(target)?;
            self.contested.wait(&field(patch, name), &value)
        };
        let later = patches.iter().filter_map(wait).min().unwrap_or(LONGEST_WAIT);
        let due: Vec<&NodePatch> = patches
            .iter()
            .filter(|patch| wait(patch).is_none() && !self.writes.is_under_way(&patch.node))
            .collect();
        let due: Vec<_> = due
            .into_iter()
            .map(|patch| (patch.clone(), pool.clone(), Purpose::Rollout(target.cloned())))
            .collect();
        if self.write_all(due).await { Duration::ZERO } else { later }
    }

    /// Makes writes to nodes, and waits for a second for each answer; returns true if there was one.
    pub(super) async fn write_all(&mut self, due: Vec<(NodePatch, MachineConfigPool, Purpose)>) -> bool {
        let (mut due, mut open, mut is_idle) = (due.into_iter(), 0_usize, true);
        loop {
            while open < MAX_WRITES && self.under_way.len() < MAX_UNDER_WAY {
                let Some((patch, pool, purpose)) = due.next() else { break };
                self.send(patch, pool, purpose);
                (open, is_idle) = (open.saturating_add(1), false);
            }
            if open == 0 {
                break;
            }
            let Ok(Some(answered)) = timeout(ANSWER_TIME, self.under_way.join_next()).await else { break };
            open = open.saturating_sub(1);
            if let Ok(sent) = answered {
                self.answered(sent).await;
            }
        }
        !is_idle
    }

    /// Sends a write to a node.
    fn send(&mut self, patch: NodePatch, pool: MachineConfigPool, purpose: Purpose) {
        self.writes.sent(&patch);
        let (client, cache) = (self.client.clone(), self.cache.clone());
        self.under_way.spawn(async move {
            let (node, uid, body) = (&patch.node, &patch.uid, patch.body());
            let written = write_body(Write::NodeTarget, &client, &cache, node, uid, &body).await;
            Sent { patch, pool, purpose, written }
        });
    }

    /// Records the answer of a write to a node.
    pub(super) async fn answered(&mut self, sent: Sent) {
        let Sent { patch, pool, purpose, written } = sent;
        self.writes.answered(&patch.node);
        let target = match purpose {
            Purpose::Rollout(target) => target,
            Purpose::Labels(node) => return self.labeled(&node, &patch, &pool, written),
        };
        match written {
            Ok(true) => {
                self.metrics.wrote("node", "written");
                self.writes.observe(uptime());
                self.writes.written(&patch);
                self.emit_event(&pool, &patch).await;
                for name in patch.changed_beside() {
                    self.contested.changed(&field(&patch, name));
                }
                if let Some((name, value)) = patch.content(target.as_ref()) {
                    self.contested.wrote(&self.client, &field(&patch, name), &value).await;
                }
            }
            Ok(false) => self.metrics.wrote("node", "conflict"),
            Err(error) => {
                self.metrics.wrote("node", "failed");
                if self.node_failed(&patch, target.as_ref(), &error) {
                    self.read_nodes(vec![patch.node]).await;
                }
            }
        }
        // Its pool may go on, or names the node.
        let name = pool.metadata.name.unwrap_or_default();
        self.due.insert(name, Duration::ZERO);
    }

    /// Records a write that was not made, or may not have been; returns true if it may.
    fn node_failed(&mut self, patch: &NodePatch, target: Option<&Pair>, error: &RequestError) -> bool {
        let answer = Answer::from_code(error.code());
        warn!("node {}: {error}", patch.node);
        let snapshot = self.cache.lock();
        let Some(node) = snapshot.nodes.get(&patch.node) else { return false };
        self.writes.observe(uptime());
        self.writes.failed(node, target, patch, answer, &error.to_string());
        answer != Answer::Refused
    }

    /// Reads the nodes whose writes have no known outcome.
    pub(super) async fn read_unread(&mut self) {
        self.writes.observe(uptime());
        self.read_nodes(self.writes.unread()).await;
    }

    async fn read_nodes(&mut self, names: Vec<String>) {
        let api = Api::<NodeObject>::all(self.client.clone());
        let one = |name: String| {
            let api = api.clone();
            async move {
                let found = limited(ANSWER_TIME, send(api.get(&name))).await;
                (name, found)
            }
        };
        let mut reads = stream::iter(names).map(one).buffer_unordered(MAX_WRITES);
        while let Some((name, found)) = reads.next().await {
            match found {
                Ok(now) => {
                    self.writes.read(&name);
                    self.cache.change(|snapshot| now.put(snapshot));
                }
                // The watch removes it.
                Err(error) if error.code() == 404 => self.writes.read(&name),
                Err(error) => {
                    warn!("node {name} can't be read after a write without an answer: {error}");
                    self.writes.not_read(&name);
                }
            }
        }
    }
}

/// Names a field of the very node that is written to.
fn field(patch: &NodePatch, name: String) -> Field {
    Field::new(About::node(&patch.node, &patch.uid), name)
}

/// Returns true if later decisions read what changed: the config that all nodes have, and whose rollout a policy rules.
pub(super) fn is_gate(old: Option<&MachineConfigPoolStatus>, new: &MachineConfigPoolStatus) -> bool {
    let halted = |status: &MachineConfigPoolStatus| {
        status.conditions.iter().flatten().find(|one| one.type_ == HALTED).cloned()
    };
    old.is_none_or(|old| old.configuration != new.configuration || halted(old) != halted(new))
}

impl Controller {
    /// Records what became of a status, and tells of it once; returns the time until the next decision.
    async fn settle(
        &mut self,
        about: &About,
        status: &str,
        written: Result<Written, RequestError>,
    ) -> Duration {
        let (name, key, now) = (about.to_string(), about.key(), uptime());
        let error = match written {
            Ok(Written::Same) => {
                self.statuses.succeeded(&key);
                return LONGEST_WAIT;
            }
            Ok(Written::Conflict) => return Duration::ZERO,
            Ok(Written::Made) => {
                self.statuses.succeeded(&key);
                if self.statuses.repeats.wrote(&key, status, now) {
                    let text = format!(
                        "The status of {name} was written several times in a row: another program writes it, too; find \
                         it in metadata.managedFields and stop it"
                    );
                    warn!("{text}");
                    emit(&self.client, about, Severity::Warning, "StatusContested", &text).await;
                }
                return Duration::ZERO;
            }
            Err(error) => error,
        };
        self.metrics.wrote("node", "failed");
        // What is not refused may pass at any moment.
        if !error.is_refusal() {
            let (wait, is_told) = self.statuses.not_sent(&key, &error.to_string(), now);
            if is_told {
                let text = format!("The status of {name} is not written: {error}");
                warn!("{text}; the controller retries by itself");
                emit(&self.client, about, Severity::Warning, "StatusNotWritten", &text).await;
            }
            return wait;
        }
        let (wait, is_news) = self.statuses.refused.failed(&key, status, &error.to_string(), now);
        if is_news {
            let text = format!("The status of {name} is refused: {error}");
            warn!("{text}");
            emit(&self.client, about, Severity::Warning, "StatusNotWritten", &text).await;
        }
        wait
    }
}

impl Controller {
    /// Labels the nodes that wait for it; returns the time until the next try, if there is one. One that hangs delays no other.
    pub(super) async fn label(&mut self) -> Option<Duration> {
        self.writes.observe(uptime());
        let (due, _) = self.label_writes();
        self.write_all(due).await;
        self.label_writes().1
    }

    /// Returns the writes of labels that are due, and the time until those that are not.
    fn label_writes(&self) -> (Vec<(NodePatch, MachineConfigPool, Purpose)>, Option<Duration>) {
        let snapshot = self.cache.lock();
        let nodes = self.fleet.unlabeled().filter_map(|name| snapshot.nodes.get(name));
        let (mut due, mut again) = (Vec::new(), None::<Duration>);
        for node in nodes.filter(|node| !self.writes.is_under_way(&node.name)) {
            let Some((pool, patch)) = provisioned::waiting(&snapshot, node) else { continue };
            match self.writes.wait(node, None) {
                Some(wait) => again = again.into_iter().chain([wait]).min(),
                None => due.push((patch, pool.clone(), Purpose::Labels(Arc::clone(node)))),
            }
        }
        (due, again)
    }

    /// Records the answer of a write of labels.
    pub(super) fn labeled(
        &mut self,
        node: &Node,
        patch: &NodePatch,
        pool: &MachineConfigPool,
        written: Result<bool, RequestError>,
    ) {
        let (name, pool) = (&patch.node, pool.metadata.name.as_deref().unwrap_or_default());
        self.writes.observe(uptime());
        match written {
            Ok(true) => {
                self.metrics.wrote("node", "written");
                self.writes.written(patch);
                let labels = patch.labels.iter().flatten().map(|(key, value)| format!("{key}={value}"));
                let labels = labels.collect::<Vec<_>>().join(", ");
                info!("Labeled node {name}, which was provisioned for pool {pool}: {labels}");
            }
            Ok(false) => self.metrics.wrote("node", "conflict"),
            Err(error) => {
                self.metrics.wrote("node", "failed");
                let answer = Answer::from_code(error.code());
                let error = error.about(&format!("labeling for pool {pool}"));
                warn!("Failed to label node {name}: {error}; no pool updates it until it has its labels");
                self.writes.failed(node, None, patch, answer, &error.to_string());
            }
        }
        // Its status names the node, or no longer does.
        self.fleet.concern_pool(pool);
    }
}
