//! Planning: the steps from one spec to another, before anything is changed.
//!
//! Pure: imports `model` only. [`plan`] is the one way to a [`Plan`]; [`check`] has passed on each.
//! A plan leaves no meaningful choice to its execution.
//!
//! | file | decides |
//! |---|---|
//! | `decide` | the order of it all: [`plan`] |
//! | `mode` | the image-mode table: work on files, the image, both or nothing |
//! | `files`, `units`, `users`, `kargs`, `os` | the steps of one noun |
//! | `paths` | the steps of directories and links |
//! | `companions` | the units that the `Also=` of another one names |
//! | `disruption` | the cost of the changes: nothing, services, a drain, a reboot |
//! | `compare` | whether a path is as an entry has it |
//! | `input` | the questions of all nouns: is a path written, is it removed, and why |
//! | `registries` | the need of a drain for a change of `registries.conf` |
//! | `soft` | whether that reboot may leave the kernel running |
//! | `reconcilable` | configs that can't be reached from here |
//! | `reason` | the kinds of reasons against a plan, and their causes |
//! | `alone` | configs that are refused whatever a host is like, and plans without a host |
//! | `unit_links` | links that the units of a config make, against its other entries |
//! | `field` | the fields that steps come from |
//! | `foreign` | what a person put in the place of an entry, or of a directory on its way |
//! | `blocked` | obstacles of the steps on this host, found before the drain |
//! | `accounts` | differences of one account or group, and what keeps it from being applied |
//! | `installation` | entries that only an installation makes, and whether this host has them |
//! | `space` | file systems that lack space for the steps |
//! | `homes` | homes that can't be given to an account |
//! | `own_paths` | entries at paths that the agent writes by itself |
//! | `places` | the same by the real paths of entries, where links of the host lead to them |
//! | `contradicted` | links that are against the units of the same config |
//! | `shared` | directories of the new config that others could change what is in |
//! | `account_obstacles` | what keeps a step of an account or a group from being taken |
//! | `late` | accounts that are not applied to this host yet, and those that follow by themselves |
//! | `carried` | what the config of the booted image left on the host, and the target lacks |
//! | `carried_users` | the part of it that is of accounts and groups |
//! | `left` | the files and units that only an old config has |
//! | `origin` | the origin of a plan if the old config does not tell it |
//! | `differences` | differences between the host and the spec (verify and drift call the same function) |
//! | `drift` | further differences of an idle host, and the part of contents that may be shown |
//! | `repair` | the plan that puts drifted paths right |
//! | `check` | the invariants of a plan |
//! | `not_applied` | the fields that this host does not get |
//! | `warnings` | files that do not stay as they are written |
//! | `own_unit` | entries that keep the agent from starting |
//! | `unremoved` | keys that left a config and could not be removed |
//! | `overwritten` | what people changed of accounts on this host, and steps overwrite |
//! | `rehearsed` | refusals and warnings of a plan whose links were made in memory |
//! | `no_effect` | fields that have no effect on the host |
//! | `not_enabled` | units that the config enables and the host can't |
//! | `explain` | the text people read, and the JSON programs read |

pub mod differences;
pub mod drift;
pub mod explain;
pub mod in_sync;
pub mod late;
pub mod listing;
pub mod not_applied;
pub mod origin;
pub mod reason;
pub mod reconcilable;
pub mod repair;
pub mod step;

mod account_obstacles;
mod accounts;
mod alone;
mod batch;
mod blocked;
mod carried;
mod carried_users;
mod check;
mod companions;
mod compare;
mod contradicted;
mod decide;
mod difference;
mod disruption;
mod field;
mod files;
mod foreign;
mod homes;
mod in_the_way;
mod input;
mod installation;
mod kargs;
mod left;
mod mode;
mod no_effect;
mod not_enabled;
mod os;
mod overwritten;
mod own_paths;
mod own_unit;
mod paths;
mod places;
mod registries;
mod rehearsed;
mod shared;
mod soft;
mod space;
pub mod start;
mod unit_links;
mod units;
mod unremoved;
mod users;
mod warnings;

use serde::{Deserialize, Serialize};

use crate::model::soft_reboot::Verdict;
use crate::model::{NotApplied, Target, UnitName};

pub use alone::{plan_assumed, refused_at_first, refused_everywhere};
pub use batch::{AccountOp, Batch, BatchOp, FileOp, Lifetime, LinkOp, OsOp, ServiceOp, UserOp};
pub use decide::{blocked_ahead, plan, refused_after_reboot, unchanged, unverified_ahead};
pub use differences::{Difference, already_applied, differences};
pub use not_applied::not_applied;
pub use origin::observed_origin;
pub use paths::{keep_unapplied, not_held};
pub use reason::{Cause, ReasonKind, Unreachable};
pub use reconcilable::Irreconcilable;
pub use step::{Op, Step, StepReason};
pub use unremoved::unremoved_keys;
pub use warnings::{Warning, is_gone_with_boot, not_restorable};

/// Mode of the update, by the pair of images and configs (docs/contract.md, "Image mode").
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// Nothing differs.
    Nothing,
    /// Files, units, users, arguments, and the OS when the MachineConfig's `osImageURL` changed.
    Files,
    /// The image carries the config: only files that an image can't carry are written.
    Image,
    /// A new image that does not carry the config: the node switches to it, and all differences are written.
    ImageAndFiles,
    /// The node leaves image mode.
    LeaveImage,
    /// The desired image is the booted one: it is recorded, without drain and without reboot.
    Adopt,
}

/// Drain before the update.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Drain {
    /// The node is drained before the first disruptive step.
    Needed,
    /// It is not.
    NotNeeded,
}

/// Action on a running service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum ServiceVerb {
    /// systemd reads its unit files again.
    DaemonReload,
    /// The unit is reloaded.
    Reload,
    /// The unit is restarted.
    Restart,
}

/// One action of a plan that does not reboot. Unique and in order: daemon-reload, CA trust, reloads, restarts (W-27).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ServiceAction {
    /// The action.
    pub action: ServiceVerb,
    /// The unit; `None` for daemon-reload.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub unit: Option<UnitName>,
    /// The paths and units whose change needs it.
    pub because: Vec<String>,
}

/// Actions after the steps. "Reboot and also restart crio" can't be expressed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum PostActions {
    /// Nothing.
    Nothing,
    /// These services; never empty.
    Services {
        /// The actions in order.
        actions: Vec<ServiceAction>,
    },
    /// A reboot.
    Reboot {
        /// Causes: `osImageURL`, `kernelArguments`, a path or a unit.
        because: Vec<String>,
        /// The paths and units among them that no disruption policy covers.
        #[serde(skip_serializing_if = "Vec::is_empty", default)]
        uncovered: Vec<String>,
        /// Verdict on a soft reboot, as far as it is known beforehand.
        #[serde(skip_serializing_if = "Verdict::is_plain", default)]
        verdict: Verdict,
    },
}

/// Undo of one batch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "undo", rename_all = "kebab-case")]
pub enum Undo {
    /// The staged deployment is dropped.
    UnstageOs,
    /// The originals that were saved before the batch are restored.
    #[serde(rename = "put-back")]
    RestoreOriginals {
        /// The batch, by its place in the plan.
        batch: usize,
    },
    /// The services of the plan are reloaded and restarted again, now with the old files (W-25).
    RepeatServices {
        /// The batch, by its place in the plan.
        batch: usize,
    },
}

/// The whole decision. Only [`plan`] makes one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    from: Option<Target>,
    to: Target,
    mode: Mode,
    steps: Vec<Step>,
    drain: Drain,
    after: PostActions,
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    not_applied: Vec<NotApplied>,
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    warnings: Vec<Warning>,
}

impl Plan {
    /// Returns the origin of the host; `None` when it was never managed.
    pub fn from(&self) -> Option<&Target> {
        self.from.as_ref()
    }

    /// Returns the plan for a host that was never managed.
    #[must_use]
    pub fn without_origin(self) -> Self {
        Self { from: None, ..self }
    }

    /// Returns the target.
    pub fn to(&self) -> &Target {
        &self.to
    }

    /// Returns the mode.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Returns the steps in order.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// Returns whether the workload leaves first.
    pub fn drain(&self) -> Drain {
        self.drain
    }

    /// Returns the actions after the steps.
    pub fn after(&self) -> &PostActions {
        &self.after
    }

    /// Returns the fields of the new config that this host does not get.
    pub fn not_applied(&self) -> &[NotApplied] {
        &self.not_applied
    }

    /// Returns the warnings: what does not stay as it is written, and what people changed that the steps overwrite.
    pub fn warnings(&self) -> &[Warning] {
        &self.warnings
    }

    /// Returns true if there is nothing to do but to record the new target.
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// Returns the steps batch by batch, as they are carried out.
    pub fn batches(&self) -> Vec<&[Step]> {
        self.steps.chunk_by(|one, next| one.op.batch() == next.op.batch()).collect()
    }

    /// Returns one batch.
    pub fn batch(&self, index: usize) -> Option<&[Step]> {
        self.batches().get(index).copied()
    }

    /// Returns the undo of the batches up to and with `reached`, last first.
    ///
    /// Services are requested again at the end, when the old files are back: they have to read those (W-25).
    pub fn undo(&self, reached: usize) -> Vec<Undo> {
        let batches = self.batches();
        let kinds = batches.iter().filter_map(|steps| steps.first()).map(|step| step.op.batch());
        let mut reached: Vec<(usize, Batch)> = kinds.enumerate().take(reached.saturating_add(1)).collect();
        reached.reverse();
        let (services, others): (Vec<_>, Vec<_>) =
            reached.into_iter().partition(|(_, kind)| *kind == Batch::Services);
        let undo = |(batch, kind)| match kind {
            Batch::Os => Undo::UnstageOs,
            Batch::Accounts | Batch::Files | Batch::Users | Batch::Links | Batch::Directories => {
                Undo::RestoreOriginals { batch }
            }
            Batch::Services => Undo::RepeatServices { batch },
        };
        others.into_iter().chain(services).map(undo).collect()
    }
}
