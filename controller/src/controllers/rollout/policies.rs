//! Statuses and Events of policies, also of those that no rollout follows.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::Timestamp;
use tracing::warn;

use super::sent::StatusFor;
use super::statuses::{Written, content};
use super::{Controller, LONGEST_WAIT, StatusWriter};
use crate::api::pool::Condition;
use crate::api::{RolloutPolicy, RolloutPolicyStatus};
use crate::controllers::cache::Snapshot;
use crate::controllers::client::{RequestError, uptime};
use crate::controllers::events::{About, Severity, emit};
use crate::controllers::write::Write;
use crate::rollout::{ACCEPTED, unfollowed};

impl Controller {
    /// Reports the policies that no rollout follows; returns the time until the next try.
    pub(super) fn refuse_policies(&mut self) -> Duration {
        let refused = refused(&self.cache.lock());
        let mut wait = LONGEST_WAIT;
        for (policy, status) in refused {
            wait = wait.min(self.bring_policy_status(&policy, &status).0);
        }
        wait
    }

    /// Writes a policy's status, unless it was refused a moment ago; returns the time until the next decision, and
    /// true if the API server has it: its answer brings the next decision.
    pub(super) fn bring_policy_status(
        &mut self,
        policy: &RolloutPolicy,
        status: &RolloutPolicyStatus,
    ) -> (Duration, bool) {
        let name = policy.metadata.name.clone().unwrap_or_default();
        let about = About::rollout_policy(&name, policy.metadata.uid.as_deref().unwrap_or_default());
        let version = policy.metadata.resource_version.clone();
        if policy.status.as_ref() == Some(status)
            || self.statuses.changes_nothing(&about, version.as_deref(), status)
        {
            return (LONGEST_WAIT, true);
        }
        if self.statuses.is_under_way(&about) {
            return (LONGEST_WAIT, false);
        }
        if let Some(wait) = self.statuses.wait(&about, status, uptime()) {
            return (wait, false);
        }
        let (writer, policy, new) = (self.writer(), policy.clone(), status.clone());
        let pool = policy.pool().to_owned();
        let written = async move { writer.write_policy_status(&policy, &new).await };
        (self.send_status(StatusFor { about, pool, version, status: content(status) }, written), false)
    }

    /// Returns the message for the pool of a policy whose status is not written.
    pub(super) fn policy_failure(&self, policy: &RolloutPolicy) -> Option<String> {
        let name = policy.metadata.name.clone().unwrap_or_default();
        let about = About::rollout_policy(&name, policy.metadata.uid.as_deref().unwrap_or_default());
        let cause = self.statuses.failure(&about)?;
        Some(format!(
            "RolloutPolicy {name}: its status can't be written, so no step of the rollout is recorded: {cause}"
        ))
    }
}

impl StatusWriter {
    /// Writes a policy's status, and an Event where the policy is refused for another cause.
    async fn write_policy_status(
        &self,
        policy: &RolloutPolicy,
        status: &RolloutPolicyStatus,
    ) -> Result<Written, RequestError> {
        let old = policy.status.as_ref();
        let written = self.write_status::<RolloutPolicy, _>(Write::PolicyStatus, policy, old, status).await?;
        let old = policy.status.as_ref().and_then(refusal);
        if let Some(new) = refusal(status).filter(|new| written == Written::Made && old != Some(*new)) {
            let (reason, message) = new;
            warn!("{message}");
            let name = policy.metadata.name.as_deref().unwrap_or_default();
            let about = About::rollout_policy(name, policy.metadata.uid.as_deref().unwrap_or_default());
            emit(&self.client, &about, Severity::Warning, reason, message).await;
        }
        Ok(written)
    }
}

/// Returns reason and message of a policy that is not accepted.
fn refusal(status: &RolloutPolicyStatus) -> Option<(&str, &str)> {
    let is_refusal = |one: &&Condition| one.type_ == ACCEPTED && one.status == "False";
    let condition = status.conditions.iter().flatten().find(is_refusal)?;
    Some((condition.reason.as_deref()?, condition.message.as_deref()?))
}

/// Returns the policies that no rollout follows. A pool that can't be read is there.
fn refused(snapshot: &Snapshot) -> Vec<(RolloutPolicy, RolloutPolicyStatus)> {
    let pools: BTreeSet<&str> = snapshot.pools.keys().map(String::as_str).collect();
    let policies: Vec<&RolloutPolicy> =
        snapshot.policies.values().filter_map(|policy| policy.as_ref().ok()).collect();
    let unreadable = snapshot.policies.values().filter_map(|policy| policy.as_ref().err());
    let unreadable: Vec<(&RolloutPolicy, &str)> =
        unreadable.map(|policy| (&policy.policy, &*policy.cause)).collect();
    let found = unfollowed(&policies, &unreadable, &pools, Timestamp::now());
    found.into_iter().map(|(policy, status)| (policy.clone(), status)).collect()
}
