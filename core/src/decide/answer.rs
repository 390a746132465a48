//! How long an answer of the control plane may take. A late one is a fault, and is waited for all the same.

use std::time::Duration;

use crate::model::FaultClass;
use crate::update::Fault;

/// Whether the workload has left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Drained {
    /// The node is empty, and takes nothing new.
    Yes,
    /// There is nobody to ask: a single machine is not drained.
    NotAsked,
    /// It was asked for; the answer comes as a change.
    Waiting {
        /// What is waited for, and what stands in the way where that is known.
        why: String,
    },
}

/// Whether the node takes workload again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Released {
    /// It does, or it never stopped.
    Yes,
    /// It does, since somebody was asked for it.
    Again,
    /// It was asked for; the answer comes as a change.
    Waiting {
        /// What is waited for.
        why: String,
    },
}

/// What is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// The workload has left.
    Drain,
    /// The workload may come back.
    Release,
}

/// How an unanswered wait stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unanswered {
    /// It is late after this time.
    Patient(Duration),
    /// It took too long. Only the answer ends it.
    Late(Fault),
}

impl Answer {
    /// Returns how long it may take before the node says so, as MCD's (MCD-051, MCD-056): a workload with a long grace
    /// period and a tight disruption budget needs most of an hour to leave; for its return nothing has to move.
    pub fn patience(self) -> Duration {
        match self {
            Self::Drain => Duration::from_secs(3600),
            Self::Release => Duration::from_secs(600),
        }
    }

    /// Returns the fault's word.
    fn reason(self) -> &'static str {
        match self {
            Self::Drain => "FailedToDrain",
            Self::Release => "FailedToUncordon",
        }
    }

    /// Says how a wait stands that began at `since`. `why` names what stands in the way.
    pub fn unanswered(self, since: Duration, now: Duration, why: &str) -> Unanswered {
        let patience = self.patience();
        let waited = now.saturating_sub(since);
        if waited < patience {
            return Unanswered::Patient(patience.saturating_sub(waited));
        }
        Unanswered::Late(Fault {
            class: FaultClass::Degraded,
            reason: self.reason().to_owned(),
            message: format!("not answered for {} minutes: {why}", patience.as_secs() / 60),
            next: "See what keeps the controller or the pod; the node goes on by itself once it is answered."
                .to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_late_after_its_patience_and_stays_so() {
        for (answer, minutes, word) in
            [(Answer::Drain, 60, "FailedToDrain"), (Answer::Release, 10, "FailedToUncordon")]
        {
            let since = Duration::from_secs(5);
            let at = |passed: Duration| answer.unanswered(since, since + passed, "a pod");
            let patience = Duration::from_secs(minutes * 60);
            let second = Duration::from_secs(1);
            assert_eq!(at(Duration::ZERO), Unanswered::Patient(patience));
            assert_eq!(at(patience.saturating_sub(second)), Unanswered::Patient(second));
            for passed in [patience, patience * 100] {
                let Unanswered::Late(fault) = at(passed) else { panic!("{answer:?} is not late") };
                assert_eq!(fault.reason, word);
                assert_eq!(fault.message, format!("not answered for {minutes} minutes: a pod"));
            }
        }
    }
}
