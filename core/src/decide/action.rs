//! Decisions of the agent's loop.

use std::time::Duration;

use super::answer::WorkloadRequest;
use crate::model::ImageRef;
use crate::update::{Fault, Transition};

/// The one thing to do next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Answer the query, then decide again.
    Query(Query),
    /// Look again: an answer has changed the next action.
    Requeue,
    /// Plan the way to the desired target, and write it down.
    Begin,
    /// Note that the update continues in this boot, and decide again.
    Resume,
    /// Move the record along an edge.
    Move(Transition),
    /// Undo an update that is no longer desired.
    Supersede,
    /// Undo the update's files in the deployment that the node has fallen back to.
    TakeBack,
    /// Carry out the batch, or the undo step, that the record stands at; decide again when it fails.
    Execute,
    /// Stage again: the staged deployment is gone with its boot.
    Restage,
    /// Stage again in the same boot: another program has dropped the staged deployment, or put another one in its place.
    RestageDropped,
    /// Write the fault down, and move along the edge that leads out, if there is one.
    Fail(Fault, Option<Transition>),
    /// End the update with its effects in place, and plan from the observation.
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
    /// Record the reboot and request it of the machine.
    Reboot,
    /// Report that the requested reboot came to nothing.
    RebootInVain {
        /// How.
        how: &'static str,
        /// Time of the next request.
        again: Duration,
    },
    /// Give up the previous deployment.
    DropRollback,
    /// Begin to download an image without staging it, beside the waits that follow; `None` drops the prefetched one.
    Prefetch(Option<ImageRef>),
    /// End the download that runs.
    EndPrefetch,
    /// Wait for an event, or until a time has passed.
    Wait(Wait),
    /// End: another program reboots the machine.
    EndForReboot,
}

impl Action {
    /// Returns true if a prefetch may continue beside it: it changes neither the OS nor the record.
    pub(super) fn suits_prefetch(&self) -> bool {
        matches!(
            self,
            Self::Wait(Wait { ends: false, .. })
                | Self::Requeue
                | Self::EndPrefetch
                | Self::Query(Query::Uncordoned | Query::Rest | Query::CountOver)
        )
    }
}

/// A wait for an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wait {
    /// It ends after this time, in any case.
    pub left: Option<Duration>,
    /// Fault or hold shown meanwhile.
    pub meanwhile: Meanwhile,
    /// The wait ends the process instead.
    pub ends: bool,
}

/// Fault or hold that is reported, or recorded, while the agent waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Meanwhile {
    /// Nothing.
    Nothing,
    /// The fault of an answer that is late.
    Late(WorkloadRequest, Fault),
    /// The reboot is left to a person.
    LeftToPerson,
    /// Fault of the undo.
    Undoing(Fault),
}

/// Query that is answered before a decision. A query may have an effect, which is idempotent then.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Query {
    /// Ends the boot loader's count of boots.
    CountOver,
    /// logind's state of a shutdown.
    Shutdown,
    /// The block inhibitors of the shutdown.
    Blocks,
    /// State of the drain; requests it.
    Drained,
    /// State of the uncordon; requests it.
    Uncordoned,
    /// Stages the deployment of the record's first batch, if it is not staged.
    Staged,
    /// Ensures that the shutdown finalizes the staged deployment.
    Armed,
    /// Result of the finalization; the record counts it.
    Finalization,
    /// Differences from the record's new spec.
    Differences,
    /// Ensures that the host is watched for changes of the failed update's objects.
    WatchSet,
    /// Health of the new deployment.
    Trial,
    /// Makes the previous deployment the next boot's.
    FallenBack,
    /// Differences of the idle host; they are reported, and repaired where that is desired.
    Rest,
}
