//! The phases of an update and the legal edges between them: one match, nothing else moves a phase.
//!
//! ```text
//! planned      --stage-->       staging
//! planned      --drain-->       draining
//! planned      --apply-->       applying
//! planned      --roll-back-->   rolling-back
//! staging      --drain-->       draining
//! staging      --apply-->       applying
//! staging      --roll-back-->   rolling-back
//! draining     --stage-->       staging
//! draining     --apply-->       applying
//! draining     --roll-back-->   rolling-back
//! applying     --stage-->       staging
//! applying     --batch-done-->  applying
//! applying     --reboot-->      rebooting
//! applying     --verify-->      verifying
//! applying     --roll-back-->   rolling-back
//! rebooting    --stage-->       staging
//! rebooting    --reboot-->      rebooting
//! rebooting    --verify-->      verifying
//! rebooting    --roll-back-->   rolling-back
//! verifying    --fall-back-->   falling-back
//! verifying    --roll-back-->   rolling-back
//! falling-back --reboot-->      falling-back
//! falling-back --verify-->      verifying
//! falling-back --roll-back-->   rolling-back
//! rolling-back --undo-done-->   rolling-back
//! ```
//!
//! `stage` from a later phase is the second try: a power cut drops a staged deployment. `verify` from `falling-back` is
//! the end of its tries: the node stays in its new deployment, with its fault. A commit ends an update from
//! `verifying`, an archive from `rolling-back`, or from `verifying` when the node is to be planned for again; these
//! remove the record, so they are no edges.

use serde::{Deserialize, Serialize};

use crate::model::BootId;

/// Phase of an update.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "name", rename_all = "kebab-case")]
pub enum Phase {
    /// The plan is recorded; nothing was done.
    Planned,
    /// The next deployment is pulled and staged: not disruptive.
    Staging,
    /// The drain was requested.
    Draining,
    /// The batch `next` is being carried out, or is the next to be.
    Applying {
        /// The batch, by its place in the plan.
        next: usize,
    },
    /// The reboot was requested, in the boot with this id.
    Rebooting {
        /// The boot that ends.
        boot_id: BootId,
    },
    /// The host is compared with the spec, and a new deployment has to be healthy.
    Verifying,
    /// The previous deployment is to boot again, requested in the boot with this id.
    FallingBack {
        /// The boot that ends.
        boot_id: BootId,
    },
    /// The undo step `next` is being carried out, or is the next to be; at the end of the list all is undone.
    RollingBack {
        /// The undo step, by its place in the list.
        next: usize,
    },
}

/// A transition of the state machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Transition {
    /// The next deployment is to be staged.
    Stage,
    /// The workload is to leave.
    Drain,
    /// The batches from `first` on are to be carried out.
    Apply {
        /// The first batch that is not staged.
        first: usize,
    },
    /// The current batch is done and on disk.
    BatchDone,
    /// The reboot is to be requested.
    Reboot {
        /// The boot that ends.
        boot_id: BootId,
    },
    /// The host is to be compared with the spec.
    Verify,
    /// The previous deployment is to boot again.
    FallBack {
        /// The boot that ends.
        boot_id: BootId,
    },
    /// The finished steps are to be undone.
    RollBack,
    /// The current undo step is done and on disk.
    UndoDone,
}

/// A transition that does not exist: a broken invariant of the agent, never of its input.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "an update in phase {phase} has no transition {transition}; this is a defect of the agent: please report it"
)]
pub struct IllegalTransition {
    /// The phase's word.
    pub phase: &'static str,
    /// the transition's word.
    pub transition: &'static str,
}

/// Moves a phase along a legal edge.
pub fn next(phase: &Phase, transition: &Transition) -> Result<Phase, IllegalTransition> {
    use Phase::{Applying, Draining, FallingBack, Planned, Rebooting, RollingBack, Staging, Verifying};
    match (phase, transition) {
        (Planned | Draining | Applying { .. } | Rebooting { .. }, Transition::Stage) => Ok(Staging),
        (Planned | Staging, Transition::Drain) => Ok(Draining),
        (Planned | Staging | Draining, Transition::Apply { first }) => Ok(Applying { next: *first }),
        (Applying { next }, Transition::BatchDone) => Ok(Applying { next: next + 1 }),
        (Applying { .. } | Rebooting { .. }, Transition::Reboot { boot_id }) => {
            Ok(Rebooting { boot_id: boot_id.clone() })
        }
        (Applying { .. } | Rebooting { .. } | FallingBack { .. }, Transition::Verify) => Ok(Verifying),
        (Verifying, Transition::FallBack { boot_id })
        | (FallingBack { .. }, Transition::Reboot { boot_id }) => {
            Ok(FallingBack { boot_id: boot_id.clone() })
        }
        (
            Planned
            | Staging
            | Draining
            | Applying { .. }
            | Rebooting { .. }
            | Verifying
            | FallingBack { .. },
            Transition::RollBack,
        ) => Ok(RollingBack { next: 0 }),
        (RollingBack { next }, Transition::UndoDone) => Ok(RollingBack { next: next + 1 }),
        (
            Planned
            | Staging
            | Draining
            | Applying { .. }
            | Rebooting { .. }
            | Verifying
            | FallingBack { .. }
            | RollingBack { .. },
            Transition::Stage
            | Transition::Drain
            | Transition::Apply { .. }
            | Transition::BatchDone
            | Transition::Reboot { .. }
            | Transition::Verify
            | Transition::FallBack { .. }
            | Transition::RollBack
            | Transition::UndoDone,
        ) => Err(IllegalTransition { phase: phase.as_str(), transition: transition.as_str() }),
    }
}

impl Phase {
    /// Returns the phase's word, as in the picture.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Planned => "planned",
            Self::Staging => "staging",
            Self::Draining => "draining",
            Self::Applying { .. } => "applying",
            Self::Rebooting { .. } => "rebooting",
            Self::Verifying => "verifying",
            Self::FallingBack { .. } => "falling-back",
            Self::RollingBack { .. } => "rolling-back",
        }
    }

    /// Returns the phase's name, as in the JSON of `status`.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Planned => "Planned",
            Self::Staging => "Staging",
            Self::Draining => "Draining",
            Self::Applying { .. } => "Applying",
            Self::Rebooting { .. } => "Rebooting",
            Self::Verifying => "Verifying",
            Self::FallingBack { .. } => "FallingBack",
            Self::RollingBack { .. } => "RollingBack",
        }
    }
}

impl Transition {
    /// Returns the transition's word, as in the picture.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Stage => "stage",
            Self::Drain => "drain",
            Self::Apply { .. } => "apply",
            Self::BatchDone => "batch-done",
            Self::Reboot { .. } => "reboot",
            Self::Verify => "verify",
            Self::FallBack { .. } => "fall-back",
            Self::RollBack => "roll-back",
            Self::UndoDone => "undo-done",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn phases() -> Vec<Phase> {
        let boot_id = BootId::new("b0").unwrap();
        vec![
            Phase::Planned,
            Phase::Staging,
            Phase::Draining,
            Phase::Applying { next: 1 },
            Phase::Rebooting { boot_id: boot_id.clone() },
            Phase::Verifying,
            Phase::FallingBack { boot_id },
            Phase::RollingBack { next: 1 },
        ]
    }

    fn transitions() -> Vec<Transition> {
        let boot_id = BootId::new("b1").unwrap();
        vec![
            Transition::Stage,
            Transition::Drain,
            Transition::Apply { first: 1 },
            Transition::BatchDone,
            Transition::Reboot { boot_id: boot_id.clone() },
            Transition::Verify,
            Transition::FallBack { boot_id },
            Transition::RollBack,
            Transition::UndoDone,
        ]
    }

    #[test]
    fn picture_shows_every_edge_and_no_other() {
        let mut edges = String::new();
        for phase in phases() {
            for transition in transitions() {
                if let Ok(to) = next(&phase, &transition) {
                    let arrow = format!("--{}-->", transition.as_str());
                    edges += &format!("//! {:<12} {arrow:<16} {}\n", phase.as_str(), to.as_str());
                }
            }
        }
        let source = include_str!("phase.rs");
        let picture: Vec<&str> = source
            .lines()
            .skip_while(|line| *line != "//! ```text")
            .skip(1)
            .take_while(|line| *line != "//! ```")
            .collect();
        assert_eq!(picture, edges.lines().collect::<Vec<_>>());
    }

    #[test]
    fn counters_move_by_one() {
        let moved = next(&Phase::Applying { next: 4 }, &Transition::BatchDone).unwrap();
        assert_eq!(moved, Phase::Applying { next: 5 });
        let undone = next(&Phase::RollingBack { next: 0 }, &Transition::UndoDone).unwrap();
        assert_eq!(undone, Phase::RollingBack { next: 1 });
    }
}
