//! What a decision says.

use std::time::Duration;

use super::answer::WorkloadRequest;
use crate::model::ImageRef;
use crate::update::{Fault, Transition};

/// The one thing to do next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Ask, then decide again with the answer.
    Ask(Question),
    /// Look again: an answer has changed what there is to do.
    LookAgain,
    /// Plan the way to the desired target, and write it down.
    Begin,
    /// Note that the update continues in this boot, and decide again.
    Resume,
    /// Move the record along an edge.
    Move(Transition),
    /// Undo an update that is no longer desired.
    Supersede,
    /// Undo, in the deployment that the node is back in, what the update had written there.
    TakeBack,
    /// Carry out the batch, or the undo step, that the record stands at; decide again when it fails.
    CarryOut,
    /// Stage again: what was staged is gone with its boot.
    Restage,
    /// Write the fault down, and move along the edge that leads out, if there is one.
    Fail(Fault, Option<Transition>),
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
    /// Write down that the reboot is left to a person, move along the edge if there is one, and end.
    LeaveReboot(Option<Transition>),
    /// Write the reboot down and ask the machine for it.
    Reboot,
    /// Tell that the reboot that was requested came to nothing.
    RebootInVain {
        /// How.
        how: &'static str,
        /// When it is requested again.
        again: Duration,
    },
    /// Give up the previous deployment.
    DropRollback,
    /// Begin to download an image without staging it, beside the waits that follow; `None` drops what was downloaded so.
    Prefetch(Option<ImageRef>),
    /// End the download that runs.
    EndPrefetch,
    /// Wait for an event, or until a time has passed.
    Wait(Wait),
    /// End: somebody else reboots.
    EndForReboot,
}

impl Action {
    /// Returns true if a prefetch may continue beside it: it changes neither the OS nor the record.
    pub(super) fn suits_prefetch(&self) -> bool {
        matches!(
            self,
            Self::Wait(Wait { ends: false, .. })
                | Self::LookAgain
                | Self::EndPrefetch
                | Self::Ask(Question::Uncordoned | Question::Rest | Question::CountOver)
        )
    }
}

/// A wait for an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wait {
    /// It ends after this time, whatever happens.
    pub left: Option<Duration>,
    /// What stands meanwhile.
    pub meanwhile: Meanwhile,
    /// Nobody waits: the process ends in its place.
    pub ends: bool,
}

/// What stands, or is written down, while the agent waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Meanwhile {
    /// Nothing.
    Nothing,
    /// The fault of an answer that is late.
    Late(WorkloadRequest, Fault),
    /// The reboot is left to a person.
    LeftToPerson,
    /// What the undoing failed with.
    Undoing(Fault),
}

/// What is asked before something is decided. A question may have an effect, which is idempotent then.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Question {
    /// That the boot loader counts no boots any more; it is seen to.
    CountOver,
    /// What logind says of a shutdown.
    Shutdown,
    /// The block inhibitors of the shutdown.
    Blocks,
    /// Whether the workload has left; it is asked to.
    Drained,
    /// Whether the workload may come back; it is asked to.
    Uncordoned,
    /// Stage what the record's first batch says, if it is not.
    Staged,
    /// That the shutdown finalizes what is staged; it is seen to.
    Armed,
    /// What became of the finalization; the record counts it.
    Finalization,
    /// What differs from the record's new spec.
    Differences,
    /// That the host is watched for what the failed update is about; it is seen to.
    WatchSet,
    /// Whether the new deployment is healthy.
    Trial,
    /// That the previous deployment is the next boot's; it is made so.
    FallenBack,
    /// What differs on the idle host; it is told, and repaired where that is desired.
    Rest,
}
