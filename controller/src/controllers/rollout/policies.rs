//! Statuses and Events of policies, also of those that no rollout follows.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::Timestamp;
use tracing::warn;

use super::outcome::StatusWrite;
use super::{Controller, LONGEST_WAIT, RETRY};
use crate::api::pool::Condition;
use crate::api::{RolloutPolicy, RolloutPolicyStatus};
use crate::controllers::cache::Snapshot;
use crate::controllers::client::RequestError;
use crate::controllers::events::{About, Severity, emit};
use crate::rollout::{ACCEPTED, unfollowed};

impl Controller {
    /// Reports the policies that no rollout follows; returns the time until the next try.
    pub(super) async fn refuse_policies(&self) -> Duration {
        let refused = refused(&self.cache.lock());
        let mut wait = LONGEST_WAIT;
        for (policy, status) in refused {
            match self.write_policy_status(&policy, &status).await {
                Ok(written) if written.is_news() => wait = Duration::ZERO,
                Ok(_) => {}
                Err(error) => {
                    warn!("RolloutPolicy {}: {error}", policy.metadata.name.as_deref().unwrap_or_default());
                    self.metrics.wrote("node", "failed");
                    wait = wait.min(RETRY);
                }
            }
        }
        wait
    }

    /// Writes a policy's status, and an Event where the policy is refused for another cause.
    pub(super) async fn write_policy_status(
        &self,
        policy: &RolloutPolicy,
        status: &RolloutPolicyStatus,
    ) -> Result<StatusWrite, RequestError> {
        let written = self.write_status::<RolloutPolicy, _>(policy, policy.status.as_ref(), status).await?;
        let old = policy.status.as_ref().and_then(refusal);
        if let Some(new) = refusal(status).filter(|new| written.is_news() && old != Some(*new)) {
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
