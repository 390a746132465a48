//! The writes of a decision. None of them keeps the pool's status from being written.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt as _, stream};
use kube::Api;
use tokio::time::timeout;
use tracing::{info, warn};

use super::provisioned;
use super::sent::{Purpose, Sent, StatusFor};
use super::statuses::{Written, content, halted};
use super::{Controller, Decision, LONGEST_WAIT, about_pool};
use crate::api::{MachineConfigPool, MachineConfigPoolStatus};
use crate::controllers::cached::Cached as _;
use crate::controllers::client::{RequestError, limited, send, uptime};
use crate::controllers::contested::Field;
use crate::controllers::events::{About, POOL, Severity, emit};
use crate::controllers::node::NodeObject;
use crate::controllers::node_write::{answer, write_body};
use crate::controllers::write::Write;
use crate::rollout::{Answer, Node, NodePatch, Pair};

/// Maximum concurrent writes of nodes.
const MAX_WRITES: usize = 16;

/// So many writes are under way at most, with those that are not answered in time.
const MAX_UNDER_WAY: usize = 256;

/// Maximum concurrent writes of statuses.
const MAX_STATUSES: usize = 64;

/// Time for which decisions wait for the answers of nodes. One that hangs delays no other one: its write goes on beside the next decisions.
const ANSWER_TIME: Duration = Duration::from_secs(1);

impl Controller {
    /// Writes a decision; returns the time until the next one: none, if something was written or refused.
    pub(super) async fn execute(&mut self, name: &str, decision: Decision) -> Duration {
        let Decision { pool, policy, target, rollout } = decision;
        let mut wait = LONGEST_WAIT;
        let mut is_recorded = true;
        if let (Some(policy), Some(status)) = (policy, &rollout.policy_status) {
            let (until, is_written) = self.bring_policy_status(&policy, status);
            (wait, is_recorded) = (wait.min(until), is_written);
            let failure = self.policy_failure(&policy);
            if self.statuses.record(name, failure) {
                wait = Duration::ZERO;
            }
        }
        if is_recorded {
            wait = wait.min(self.write_nodes(&pool, target.as_ref(), &rollout.patches).await);
        }
        wait.min(self.bring_pool_status(&pool, &rollout.status))
    }

    /// Writes a pool's status, unless it was refused a moment ago; returns the time until the next decision.
    pub(super) fn bring_pool_status(
        &mut self,
        pool: &MachineConfigPool,
        status: &MachineConfigPoolStatus,
    ) -> Duration {
        let name = pool.metadata.name.clone().unwrap_or_default();
        let about = about_pool(pool);
        let version = pool.metadata.resource_version.clone();
        if pool.status.as_ref() == Some(status)
            || self.statuses.changes_nothing(&about, version.as_deref(), status)
            || self.statuses.is_under_way(&about)
        {
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
        self.send_status(StatusFor { about, pool: name, version, status: content(status) }, written)
    }

    /// Sends a status, whose answer brings the next decision: one that hangs delays no other object. Returns the time until the next decision
    /// without an answer.
    pub(super) fn send_status(
        &mut self,
        sent: StatusFor,
        written: impl Future<Output = Result<Written, RequestError>> + Send + 'static,
    ) -> Duration {
        if self.statuses_under_way.len() >= MAX_STATUSES {
            return ANSWER_TIME;
        }
        self.statuses.sent(&sent.about);
        self.statuses_under_way.spawn(async move { (sent, written.await) });
        LONGEST_WAIT
    }

    /// Records the answer of a write of a status.
    pub(super) async fn status_answered(&mut self, sent: StatusFor, written: Result<Written, RequestError>) {
        self.statuses.answered(&sent.about);
        if sent.about.kind == POOL && matches!(written, Ok(Written::Made)) {
            self.statuses.written(&sent.pool, uptime());
        }
        self.settle(&sent, written).await;
        // Decided again, and told by the pool, where it failed.
        self.due.insert(sent.pool, Duration::ZERO);
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

    /// Makes writes to nodes, and waits for each answer, until one is late: then for none any more before all pools had their turn. Returns true
    /// if there was one.
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
            let limit = if self.is_late { Duration::ZERO } else { ANSWER_TIME };
            let Ok(Some(answered)) = timeout(limit, self.under_way.join_next()).await else {
                self.is_late = true;
                break;
            };
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
        self.note_open_targets();
        let (client, cache) = (self.client.clone(), self.cache.clone());
        self.under_way.spawn(async move {
            let (node, uid, body) = (&patch.node, &patch.uid, patch.body());
            let written = write_body(Write::NodeTarget, &client, &cache, node, uid, &body).await;
            Sent { patch, pool, purpose, written }
        });
    }

    /// Notes the nodes that may still get a target: no other replica leads before their writes are settled.
    fn note_open_targets(&self) {
        let open = self.writes.open_targets().map(str::to_owned).collect();
        self.cache.lock().open_targets = open;
    }

    /// Records the answer of a write to a node.
    pub(super) async fn answered(&mut self, sent: Sent) {
        self.settle_node(sent).await;
        self.note_open_targets();
    }

    async fn settle_node(&mut self, sent: Sent) {
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
                if self.causes.is_over(&patch.node) {
                    info!("node {}: it is written again", patch.node);
                }
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
                    self.unknown.insert(patch.node);
                }
            }
        }
        // Its pool may go on, or names the node.
        let name = pool.metadata.name.unwrap_or_default();
        self.due.insert(name, Duration::ZERO);
    }

    /// Records a write that was not made, or may not have been; returns true if it may.
    fn node_failed(&mut self, patch: &NodePatch, target: Option<&Pair>, error: &RequestError) -> bool {
        let answer = answer(error);
        if self.causes.is_news(&patch.node, &error.to_string()) {
            warn!("node {}: {error}", patch.node);
        }
        let snapshot = self.cache.lock();
        let Some(node) = snapshot.nodes.get(&patch.node) else { return false };
        self.writes.observe(uptime());
        self.writes.failed(node, target, patch, answer, &error.to_string());
        answer != Answer::Refused
    }

    /// Reads the nodes whose writes have no known outcome.
    pub(super) async fn read_unread(&mut self) {
        self.writes.observe(uptime());
        let mut unread = std::mem::take(&mut self.unknown);
        unread.extend(self.writes.unread());
        self.read_nodes(unread).await;
    }

    async fn read_nodes(&mut self, names: BTreeSet<String>) {
        let api = Api::<NodeObject>::all(self.client.clone());
        let one = |name: String| {
            let api = api.clone();
            async move {
                let found = limited(ANSWER_TIME, send(api.get(&name))).await;
                (name, found)
            }
        };
        let is_any = !names.is_empty();
        let mut reads = stream::iter(names).map(one).buffer_unordered(MAX_WRITES);
        while let Some((name, found)) = reads.next().await {
            match found {
                Ok(now) => {
                    self.writes.read(&name);
                    if self.causes.is_over(&read_of(&name)) {
                        info!("node {name} is read again");
                    }
                    self.cache.change(|snapshot| now.put(snapshot));
                }
                // The watch removes it.
                Err(error) if error.code() == 404 => self.writes.read(&name),
                Err(error) => {
                    if self.causes.is_news(&read_of(&name), &error.to_string()) {
                        warn!("node {name} can't be read after a write without an answer: {error}");
                    }
                    self.writes.not_read(&name);
                }
            }
        }
        if is_any {
            self.note_open_targets();
            // A place may be free.
            self.fleet.concern_all();
        }
    }
}

/// Names the read of a node in the log's memory of causes.
fn read_of(node: &str) -> String {
    format!("read of {node}")
}

/// Names a field of the very node that is written to.
fn field(patch: &NodePatch, name: String) -> Field {
    Field::new(About::node(&patch.node, &patch.uid), name)
}

/// Returns true if later decisions read what changed: the config that all nodes have, and whose rollout a policy rules.
pub(super) fn is_gate(old: Option<&MachineConfigPoolStatus>, new: &MachineConfigPoolStatus) -> bool {
    old.is_none_or(|old| old.configuration != new.configuration || halted(old) != halted(new))
}

impl Controller {
    /// Records what became of a status, and tells of it once.
    async fn settle(&mut self, sent: &StatusFor, written: Result<Written, RequestError>) {
        let StatusFor { about, version, status, .. } = sent;
        let key = about.key();
        let error = match written {
            Ok(Written::Same) => return self.statuses.changed_nothing(&key, version.clone(), status),
            Ok(Written::Conflict) => return,
            Ok(Written::Made) => {
                self.statuses.succeeded(&key);
                if self.statuses.repeats.wrote(&key, status, uptime()) {
                    let text = format!(
                        "The status of {about} was written several times in a row: another program writes it, too; find \
                         it in metadata.managedFields and stop it"
                    );
                    warn!("{text}");
                    emit(&self.client, about, Severity::Warning, "StatusContested", &text).await;
                }
                return;
            }
            Err(error) => error,
        };
        self.metrics.wrote("node", "failed");
        if !self.statuses.failed(&key, status, &error).is_told || about.is_gone(&self.cache.lock()) {
            return;
        }
        // What is not refused may pass at any moment.
        let (what, next) = if error.is_refusal() {
            ("is refused", "")
        } else {
            ("is not written", "; the controller retries automatically")
        };
        let text = format!("The status of {about} {what}: {error}");
        warn!("{text}{next}");
        emit(&self.client, about, Severity::Warning, "StatusNotWritten", &text).await;
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
                // Its end is the line below.
                self.causes.is_over(name);
                let labels = patch.labels.iter().flatten().map(|(key, value)| format!("{key}={value}"));
                let labels = labels.collect::<Vec<_>>().join(", ");
                info!("Labeled node {name}, which was provisioned for pool {pool}: {labels}");
            }
            Ok(false) => self.metrics.wrote("node", "conflict"),
            Err(error) => {
                self.metrics.wrote("node", "failed");
                let answer = answer(&error);
                let error = error.about(&format!("labeling for pool {pool}"));
                if self.causes.is_news(name, &error.to_string()) {
                    warn!("Failed to label node {name}: {error}; no pool updates it until it has its labels");
                }
                self.writes.failed(node, None, patch, answer, &error.to_string());
            }
        }
        // Its status names the node, or no longer does.
        self.fleet.concern_pool(pool);
    }
}
