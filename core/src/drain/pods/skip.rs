//! Pods that the drain stops waiting for, and the end of waiting for budgets.

use std::time::Duration;

use super::{Pod, Pods, State, micros, named};
use crate::model::Timestamp;

impl Pods {
    /// Skips pods for the rest of the drain: those that a rule selects, and those that have been Terminating for longer than
    /// a time beyond their grace period. They are neither evicted nor waited for.
    pub fn skip(
        &mut self,
        selects: impl Fn(&Pod) -> bool,
        terminating_for: Option<Duration>,
        now: Timestamp,
    ) {
        let is_stuck = |pod: &Pod| match (&pod.state, terminating_for) {
            (State::Terminating(terminating), Some(longest)) => now.since(terminating.due) >= longest,
            _ => false,
        };
        for (uid, pod) in std::mem::take(&mut self.leaving) {
            if selects(&pod) || is_stuck(&pod) {
                self.skipped.insert(uid, pod.full_name());
            } else {
                self.leaving.insert(uid, pod);
            }
        }
    }

    /// Returns the time until a Terminating pod is skipped that is not yet.
    pub fn skipped_at(&self, terminating_for: Duration, now: Timestamp) -> Option<Duration> {
        let left = |pod: &Pod| match &pod.state {
            State::Terminating(terminating) => {
                let due =
                    Timestamp::from_micros(terminating.due.micros().saturating_add(micros(terminating_for)));
                (due > now).then(|| due.since(now))
            }
            State::There | State::Evicted | State::Refused { .. } => None,
        };
        self.leaving.values().filter_map(left).min()
    }

    /// Makes each refused pod due again: from now on they are deleted, and budgets are not asked.
    pub fn retry_refused(&mut self) {
        for pod in self.leaving.values_mut() {
            if matches!(pod.state, State::Refused { .. }) {
                pod.state = State::There;
            }
        }
    }

    /// Names the pods that were skipped; `None` where there is none.
    pub fn skipped(&self) -> Option<String> {
        named(self.skipped.values().cloned())
            .map(|names| format!("pods {names} were skipped, and are still on the node"))
    }
}
