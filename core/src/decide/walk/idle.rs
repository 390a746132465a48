//! The idle node of the small world: drift, repairs, and the previous deployment.

use std::time::Duration;

use super::moves::Outcome;
use super::world::{Curse, Rules, World, name, spec};
use crate::decide::drift::plan_repair;
use crate::decide::inputs::Rest;
use crate::decide::retention::Retention;
use crate::model::{ManagedPath, Timestamp, UpdateId};
use crate::plan::differences::differences;
use crate::plan::drift::drift;
use crate::update::Record;

/// Retention of the previous deployment on a healthy node.
pub(super) const KEEP_ROLLBACK: Duration = Duration::from_secs(60);

pub(super) fn repaired() -> ManagedPath {
    ManagedPath::new("/etc/motd").unwrap()
}

impl World {
    /// Compares the idle node with the current target, and begins to repair it where that is desired and can be done.
    pub(super) fn run_idle(&mut self, rules: &Rules) {
        let (committed, observed) = (spec(self.current), self.observe());
        let is_service = rules.mode.is_service();
        let mut found =
            if is_service { drift(&committed, &observed) } else { differences(&committed, &observed) };
        let is_as_desired = found.is_empty();
        let mut selected = Vec::new();
        if is_service {
            selected = self.drift.select(&mut found, &rules.node_settings, self.now);
        }
        let mut is_repaired = false;
        if let Some(plan) = plan_repair(&committed, &observed, &mut selected, &rules.policy) {
            let (id, origin) = (UpdateId::new("1").unwrap(), Some(name(self.deployment)));
            self.record = Some(Record::new(id, plan, self.boot_id(), origin, Timestamp::default()));
            self.drift.repaired(repaired(), self.now);
            // Two repairs at one time count as one.
            self.now += Duration::from_secs(1);
            is_repaired = true;
        }
        self.answers.rest = Some(Rest { is_as_desired, is_repaired, again: None });
    }

    /// Something changes a file of the idle node.
    pub(super) fn drifts(mut self) -> Self {
        self.there.files = 'x';
        self.without_question()
    }

    /// A repair failed and is undone: its path stays as it is.
    pub(super) fn leave_drift(&mut self) {
        self.drift.repair_failed(&self.record.take().unwrap(), self.now);
    }
}

/// A repair is done; something may write there again.
pub(super) fn repair_done(good: World, bad: Option<World>) -> Vec<Outcome> {
    let again = bad.map(|bad| World { misfortunes: bad.misfortunes, ..good.clone().drifts() });
    std::iter::once((None, good)).chain(again.map(|again| (Some(Curse::Drifts), again))).collect()
}

/// The deployment before is given up, or can't be for now.
pub(super) fn drop_rollback(mut good: World, bad: Option<World>) -> Vec<Outcome> {
    (good.before, good.memory.kept) = (None, Retention::Given);
    let bad = bad.map(|mut bad| {
        bad.memory.kept.fail(bad.now);
        (None, bad)
    });
    std::iter::once((None, good)).chain(bad).map(|(why, world)| (why, world.without_question())).collect()
}
