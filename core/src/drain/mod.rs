//! Drain of a node: which pods leave it, when an eviction is requested again, and what the drain waits for. The agent's own
//! drain and the drain controller's are shells of it.
//!
//! # Decisions
//!
//! - The first list of pods after the node was cordoned says which ones leave. Pods that arrive later tolerate the cordon, and
//!   their owner would put each evicted one back: they are named, neither evicted nor waited for, as by `kubectl drain`.
//! - A shell records on the Node when the newest pod was created that leaves: a process that goes on tells the others by it. Both
//!   times are the API server's, so that no clock of a node or controller counts.
//! - A refused eviction is requested again at the time that the API server gives, else after a wait; earlier only when the
//!   budgets of the pod have changed since and allow it. A budget that is not known is not a free one.
//! - A pod that a rule skips is neither evicted nor waited for, like one that arrived later.
//! - A pod that is Terminating beyond its grace period is named with what holds it, as one that a budget keeps.

mod answer;
mod budget;
mod pods;
#[cfg(test)]
mod tests;

pub use answer::{Answer, Cause, Outcome, Refusal};
pub use budget::{Budget, KnownBudgets};
pub use pods::{Blocker, Pod, PodSeen, Pods, Terminating};
