//! Time limits of drain and uncordon requests. A late answer is a fault, and the agent keeps waiting for it.

use std::time::Duration;

use crate::model::FaultClass;
use crate::update::Fault;

/// Progress of the drain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DrainStatus {
    /// The node is empty, and takes nothing new.
    Yes,
    /// A single machine is not drained.
    NotRequested,
    /// It is requested; the answer comes as a change.
    Waiting {
        /// The awaited object, and the cause of the delay if known.
        why: String,
    },
}

/// Progress of the uncordon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UncordonStatus {
    /// The node is schedulable, and no request was needed.
    Yes,
    /// The node is schedulable since a request.
    Again,
    /// It is requested; the answer comes as a change.
    Waiting {
        /// The awaited object.
        why: String,
    },
}

/// A request to the control plane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkloadRequest {
    /// Cordon and drain the node.
    Drain,
    /// Uncordon the node.
    Uncordon,
}

/// State of an unanswered wait.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unanswered {
    /// It is late after this time.
    Pending(Duration),
    /// It took too long. Only the answer ends it.
    Late(Fault),
}

impl WorkloadRequest {
    /// Returns the time limit before the node reports it, as MCD's (MCD-051, MCD-056): a workload with a long grace
    /// period and a tight disruption budget needs most of an hour to leave; for its return nothing has to move.
    pub fn timeout(self) -> Duration {
        match self {
            Self::Drain => Duration::from_secs(3600),
            Self::Uncordon => Duration::from_secs(600),
        }
    }

    /// Returns the fault's reason.
    fn reason(self) -> &'static str {
        match self {
            Self::Drain => "FailedToDrain",
            Self::Uncordon => "FailedToUncordon",
        }
    }

    /// Returns the state of a wait that began at `since`. `why` names the awaited object.
    pub fn unanswered(self, since: Duration, now: Duration, why: &str) -> Unanswered {
        let timeout = self.timeout();
        let waited = now.saturating_sub(since);
        if waited < timeout {
            return Unanswered::Pending(timeout.saturating_sub(waited));
        }
        Unanswered::Late(Fault {
            class: FaultClass::Degraded,
            reason: self.reason().to_owned(),
            message: format!("not answered for {} minutes: {why}", timeout.as_secs() / 60),
            next: "Check what delays the controller or the pod; the update continues with the answer."
                .to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answer_stays_late_after_timeout() {
        for (answer, minutes, word) in [
            (WorkloadRequest::Drain, 60, "FailedToDrain"),
            (WorkloadRequest::Uncordon, 10, "FailedToUncordon"),
        ] {
            let since = Duration::from_secs(5);
            let at = |passed: Duration| answer.unanswered(since, since + passed, "a pod");
            let timeout = Duration::from_secs(minutes * 60);
            let second = Duration::from_secs(1);
            assert_eq!(at(Duration::ZERO), Unanswered::Pending(timeout));
            assert_eq!(at(timeout.saturating_sub(second)), Unanswered::Pending(second));
            for passed in [timeout, timeout * 100] {
                let Unanswered::Late(fault) = at(passed) else { panic!("{answer:?} is not late") };
                assert_eq!(fault.reason, word);
                assert_eq!(fault.message, format!("not answered for {minutes} minutes: a pod"));
            }
        }
    }
}
