//! What a decision says.

use std::time::Duration;

use super::answer::Answer;
use crate::update::{Event, Fault};

/// The one thing to do next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Ask, then decide again with the answer.
    Ask(Question),
    /// Plan the way to the wanted target, and write it down.
    Begin,
    /// Note that the update goes on in this boot, and decide again.
    Resume,
    /// Move the record along an edge.
    Move(Event),
    /// Carry out the batch, or the undo step, that the record stands at.
    CarryOut,
    /// Stage once more: what was staged is gone with its boot.
    Restage,
    /// Write the fault down, and move along the edge that leads out, if there is one.
    Fail(Fault, Option<Event>),
    /// End the update with its effects in place, and plan from what is seen.
    Replan(Fault),
    /// Make the new spec the committed one.
    Commit,
    /// End an update that is undone.
    Archive,
    /// End a repair that failed; its paths stay as they are.
    LeaveDrift,
    /// Forget the fault of a node that came up wrong: it is right now.
    Forgive,
    /// Write down that the reboot is left to a person.
    LeaveReboot,
    /// Write the reboot down and ask the machine for it.
    Reboot,
    /// Tell that the reboot that was asked for came to nothing.
    RebootInVain(&'static str),
    /// Give the deployment before the booted one up.
    DropRollback,
    /// Wait for an event, or until a time has passed.
    Wait {
        /// The time.
        left: Option<Duration>,
        /// The fault that stands meanwhile: an answer is late.
        late: Option<(Answer, Fault)>,
    },
    /// End: the reboot is somebody else's.
    EndForReboot,
}

/// What is asked before something is decided. A question may have an effect, which is idempotent then.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Question {
    /// What logind says of a shutdown.
    Shutdown,
    /// Who blocks the shutdown.
    Blocks,
    /// Whether the workload has left; it is asked to.
    Drained,
    /// Whether the workload may come back; it is asked to.
    Released,
    /// Stage what the record's first batch says, if it is not.
    Staged,
    /// That the shutdown finalises what is staged; it is seen to.
    Armed,
    /// What became of the finalisation; the record counts it.
    Finalisation,
    /// What differs from the record's new spec.
    Differences,
    /// Whether the new deployment is healthy.
    Trial,
    /// That the deployment before is the next boot's; it is made so.
    FallenBack,
    /// What differs on the idle host; it is told, and repaired where that is wanted.
    Rest,
}
