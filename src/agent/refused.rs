//! What no record tells, left for `status`: why a target was refused before its update began, the target whose
//! MachineConfig is awaited, why the control plane can't be reached, what a step waits for.
//!
//! Invariant: the file is there only while the agent holds what it says. It is in `/run`: a boot looks anew.

use serde::{Deserialize, Serialize};
use tracing::warn;

use super::{Agent, AgentError, Until};
use crate::control::ControlPlane;
use crate::host::{HostError, Root};
use crate::model::{FileMode, Target, Timestamp};
use crate::report::{Health, LinkDown};
use crate::update::Fault;

/// Where it is left.
pub(crate) const REFUSED: &str = "/run/machine-config-agent/refused.json";

/// What is wanted, why it is not begun, and why the control plane can't be reached.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Refused {
    pub(crate) wanted: Option<Target>,
    #[serde(default)]
    pub(crate) fault: Option<Fault>,
    /// Since when.
    #[serde(default)]
    pub(crate) fault_since: Option<Timestamp>,
    #[serde(default)]
    pub(crate) waiting: Option<String>,
    #[serde(default)]
    pub(crate) awaited: Option<String>,
    #[serde(default)]
    pub(crate) link_down: Option<LinkDown>,
}

impl Refused {
    /// Reads what the agent left. What can't be understood is another version's: the next pass replaces it.
    pub(crate) fn load(root: &Root) -> Result<Option<Self>, HostError> {
        Ok(root.read(REFUSED)?.and_then(|bytes| serde_json::from_slice(&bytes).ok()))
    }
}

/// What is in the file, as far as this process knows.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) enum Left {
    /// The agent before may have left something.
    #[default]
    Unknown,
    /// It is not there.
    Nothing,
    /// It says this.
    Refusal(Box<Refused>),
}

impl<C: ControlPlane> Agent<C> {
    /// Leaves what is refused now, and takes away what is not any more.
    pub(super) fn leave_refusal(&mut self) {
        let begun =
            self.journal.record().is_some() || self.health.wanted.as_ref() == self.journal.committed();
        let now = to_leave(&self.health, begun);
        self.left.leave(&self.host.root, self.until, now);
    }

    /// Takes it away: an agent that stops holds nothing.
    pub(super) fn forget_refusal(&mut self) {
        self.left.leave(&self.host.root, self.until, Left::Nothing);
    }
}

/// Returns what no record tells; `begun`: nothing has to begin for the desired target.
pub(super) fn to_leave(health: &Health, begun: bool) -> Left {
    let Health { wanted, fault, fault_since, awaited, link_down, waiting, .. } = health;
    let nothing = fault.is_none() && link_down.is_none() && waiting.is_none();
    if nothing && (begun || wanted.is_none()) {
        return Left::Nothing;
    }
    Left::Refusal(Box::new(Refused {
        wanted: wanted.clone(),
        fault: fault.clone(),
        fault_since: *fault_since,
        waiting: waiting.clone(),
        awaited: awaited.clone(),
        link_down: link_down.clone(),
    }))
}

impl Left {
    /// Writes the file, where it says something else.
    pub(super) fn leave(&mut self, root: &Root, until: Until, now: Self) {
        // Who runs `apply` reads its answer.
        if until == Until::Settled || *self == now {
            return;
        }
        if let Err(error) = now.write(root) {
            let error = AgentError::from(error).fault();
            warn!("what `status` is to show can't be changed: {}", error.message);
        }
        *self = now;
    }

    fn write(&self, root: &Root) -> Result<(), HostError> {
        let Self::Refusal(refused) = self else { return root.remove(REFUSED) };
        let bytes = serde_json::to_vec(refused).map_err(|error| HostError::Malformed {
            path: REFUSED.to_owned(),
            format: "JSON",
            cause: error.to_string(),
        })?;
        root.replace(REFUSED, &bytes, FileMode::DEFAULT)
    }
}
