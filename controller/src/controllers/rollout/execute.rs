//! The writes of a decision. None of them keeps the pool's status from being written.

use std::time::Duration;

use futures_util::{StreamExt as _, stream};
use kube::Api;
use serde::Serialize;
use tracing::warn;

use super::statuses::{Written, content};
use super::{Controller, Decision, LONGEST_WAIT, RETRY};
use crate::api::{MachineConfigPool, MachineConfigPoolStatus};
use crate::controllers::cached::Cached as _;
use crate::controllers::client::{RequestError, send, uptime};
use crate::controllers::events::{About, Severity, emit};
use crate::controllers::node::NodeObject;
use crate::controllers::node_write::write_body;
use crate::controllers::write::Write;
use crate::rollout::{Answer, HALTED, NodePatch, Pair};

/// So many nodes are written to at once.
const MAX_WRITES: usize = 16;

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
        if is_recorded && self.write_nodes(&pool, target.as_ref(), &rollout.patches).await {
            wait = Duration::ZERO;
        }
        wait.min(self.bring_pool_status(&pool, &rollout.status).await)
    }

    /// Writes a pool's status, unless it was refused a moment ago; returns the time until the next decision.
    async fn bring_pool_status(
        &mut self,
        pool: &MachineConfigPool,
        status: &MachineConfigPoolStatus,
    ) -> Duration {
        let name = pool.metadata.name.clone().unwrap_or_default();
        let about = About::pool(&name, pool.metadata.uid.as_deref().unwrap_or_default());
        if pool.status.as_ref() == Some(status) {
            return LONGEST_WAIT;
        }
        if let Some(wait) = self.statuses.wait(&about, status, uptime()) {
            return wait;
        }
        let old = pool.status.as_ref();
        if !is_gate(old, status)
            && let Some(pause) = self.statuses.pause(&name, uptime())
        {
            return pause;
        }
        let written = self.write_status::<MachineConfigPool, _>(Write::PoolStatus, pool, old, status).await;
        if matches!(written, Ok(Written::Made)) {
            self.statuses.written(&name, uptime());
        }
        self.settle(&about, status, written).await
    }

    /// Writes to nodes; returns true if there was something to write.
    async fn write_nodes(
        &mut self,
        pool: &MachineConfigPool,
        target: Option<&Pair>,
        patches: &[NodePatch],
    ) -> bool {
        let one = |patch: &NodePatch| {
            let (patch, client, cache) = (patch.clone(), self.client.clone(), self.cache.clone());
            async move {
                let (node, uid, body) = (&patch.node, &patch.uid, patch.body());
                let written = write_body(Write::NodeTarget, &client, &cache, node, uid, &body).await;
                (patch, written)
            }
        };
        // Collected first: borrows across a wait are harder to read than this.
        let writes: Vec<_> = patches.iter().map(one).collect();
        let mut writes = stream::iter(writes).buffer_unordered(MAX_WRITES);
        let mut unknown = Vec::new();
        while let Some((patch, written)) = writes.next().await {
            match written {
                Ok(true) => {
                    self.metrics.wrote("node", "written");
                    self.writes.observe(uptime());
                    self.writes.written(&patch);
                    self.emit_event(pool, &patch).await;
                }
                Ok(false) => self.metrics.wrote("node", "conflict"),
                Err(error) => {
                    self.metrics.wrote("node", "failed");
                    if self.node_failed(&patch, target, &error) {
                        unknown.push(patch.node);
                    }
                }
            }
        }
        self.read_nodes(unknown).await;
        !patches.is_empty()
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
                let found = send(api.get(&name)).await;
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

/// Returns true if later decisions read what changed: the config that all nodes have, and whose rollout a policy rules.
pub(super) fn is_gate(old: Option<&MachineConfigPoolStatus>, new: &MachineConfigPoolStatus) -> bool {
    let halted = |status: &MachineConfigPoolStatus| {
        status.conditions.iter().flatten().find(|one| one.type_ == HALTED).cloned()
    };
    old.is_none_or(|old| old.configuration != new.configuration || halted(old) != halted(new))
}

impl Controller {
    /// Records what became of a status, and tells of it once; returns the time until the next decision.
    pub(super) async fn settle<S: Serialize>(
        &mut self,
        about: &About,
        status: &S,
        written: Result<Written, RequestError>,
    ) -> Duration {
        let (name, status, now) = (about.to_string(), content(status), uptime());
        let error = match written {
            Ok(Written::Same) => {
                self.statuses.succeeded(&name);
                return LONGEST_WAIT;
            }
            Ok(Written::Conflict) => return Duration::ZERO,
            Ok(Written::Made) => {
                self.statuses.succeeded(&name);
                if self.statuses.repeats.wrote(&name, &status, now) {
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
            warn!("{name}: its status is not written: {error}");
            self.statuses.unsent.insert(name, error.to_string());
            return RETRY;
        }
        let (wait, is_news) = self.statuses.refused.failed(&name, &status, &error.to_string(), now);
        if is_news {
            let text = format!("The status of {name} is refused: {error}");
            warn!("{text}");
            emit(&self.client, about, Severity::Warning, "StatusNotWritten", &text).await;
        }
        wait
    }
}
