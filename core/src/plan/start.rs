//! Start of an update, for the agent and for `plan`: what both configs take over from the host's past, where the plan
//! starts, and the drift that keeps the update from starting.

use std::rc::Rc;

use super::carried;
use super::differences::{Difference, differences};
use super::drift::unresolved;
use super::late;
use super::origin::observed_origin;
use super::paths::keep_unapplied;
use super::reconcilable::FORCE_FILE;
use super::warnings::is_gone_with_boot;
use super::{Irreconcilable, Plan, decide};
use crate::model::policy::DisruptionPolicy;
use crate::model::{ConfigName, Contents, Facts, FileSpec, HostSpec, ManagedPath, ModelError, Observation};

/// Kind of the start of an update.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Start {
    /// An update before it ended wrong, and its effects stayed.
    pub recovering: bool,
    /// An administrator forces it.
    pub forced: bool,
}

/// Drift that keeps an update from starting.
#[derive(Debug)]
pub struct BlockingDrift<'a> {
    /// The config that the host differs from.
    pub config: &'a ConfigName,
    /// The differences.
    pub differences: Vec<Difference>,
}

impl Start {
    /// Returns the old config. The file that forces an update is a file of it: its removal is a step like any other, is
    /// planned, recorded and undone, and costs a drain and a reboot.
    pub fn origin(self, mut origin: Rc<HostSpec>) -> Result<Rc<HostSpec>, ModelError> {
        if self.forced {
            let file = FileSpec::of_unit(Contents::new(Vec::new()));
            Rc::make_mut(&mut origin).files.insert(ManagedPath::new(FORCE_FILE)?, file);
        }
        Ok(origin)
    }

    /// Leaves out of the new config what stays unapplied, before the host is looked at.
    pub fn leave_unapplied(self, origin: &HostSpec, to: &mut HostSpec) {
        if !self.forced {
            to.leave_unapplied(origin);
        }
    }

    /// Takes over from the old config what was never applied to this host.
    pub fn carry_over(self, origin: &mut Rc<HostSpec>, to: &mut HostSpec, observed: &Observation) {
        if !self.forced {
            keep_unapplied(to, origin, observed);
        }
        if let Some(fields) = late::settled(origin, observed) {
            Rc::make_mut(origin).never_applied = Some(fields);
        }
        to.never_applied = Some(late::never_applied(origin, to, observed));
    }

    /// Returns where the plan starts: at the old config, or at what is observed where the host may not be as it; with what the
    /// image's own config left there.
    pub fn from(self, origin: &Rc<HostSpec>, to: &HostSpec, observed: &Observation) -> Rc<HostSpec> {
        let trusted = !(origin.is_unmanaged() || origin.is_opaque() || self.recovering || self.forced);
        let from = if trusted { Rc::clone(origin) } else { Rc::new(observed_origin(origin, to, observed)) };
        carried::with_left(from, to, observed)
    }

    /// Plans.
    pub fn plan(
        self,
        origin: &Rc<HostSpec>,
        from: &HostSpec,
        to: &HostSpec,
        facts: &Facts,
        policy: &DisruptionPolicy,
    ) -> Result<Plan, Irreconcilable> {
        if self.forced {
            // A change that only an installation can make is refused all the same.
            decide::plan(origin, to, facts, policy)?;
        }
        decide::plan(from, to, facts, policy)
    }
}

/// Returns the drift that an update must not build on: what it leaves as it is and the new config wants otherwise, and, where
/// the plan has no step, all in which the host differs from the config that would be recorded.
pub fn blocking_drift<'a>(
    from: &'a HostSpec,
    to: &'a HostSpec,
    observed: &Observation,
    plan: &Plan,
) -> Option<BlockingDrift<'a>> {
    let found = |spec: &'a HostSpec, differences: Vec<Difference>| {
        (!differences.is_empty()).then_some(BlockingDrift { config: &spec.name, differences })
    };
    let built_on = || found(from, unresolved(from, to, observed, plan));
    let recorded = || {
        let mut differences = if plan.is_empty() { differences(to, observed) } else { Vec::new() };
        differences.retain(|difference| !is_gone_with_boot(difference));
        found(to, differences)
    };
    if from.is_unmanaged() { recorded() } else { built_on().or_else(recorded) }
}
