//! The boot loader of the small world: its menu, and the boots that it counts.

use super::world::World;
use crate::model::observation::{BootCount, Finalization};

/// So many boots of a new deployment are tried, as the agent's `BootCounter` has it.
const TRIES: u32 = 3;

/// A deployment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Deployment {
    pub(super) image: char,
    pub(super) number: u32,
    /// Its boots come to an end.
    pub(super) comes_up: bool,
}

impl World {
    fn running(&self) -> Deployment {
        Deployment { image: self.there.image, number: self.deployment, comes_up: true }
    }

    fn run(&mut self, other: Deployment) {
        self.before = Some(self.running());
        (self.there.image, self.deployment) = (other.image, other.number);
    }

    /// The machine goes down and comes up: in the staged deployment if that was finalized.
    pub(super) fn boot(self, ended: Option<Finalization>) -> Self {
        self.boot_with(ended, true)
    }

    /// The staged deployment is finalized, and does not come up.
    pub(super) fn boot_into_broken(self) -> Self {
        self.boot_with(None, false)
    }

    /// A soft reboot starts the old user space again; the staged deployment is finalized all the same.
    pub(super) fn boot_softly_in_vain(mut self) -> Self {
        self.finalize(true);
        self.soft += 1;
        self.start();
        self
    }

    fn boot_with(mut self, ended: Option<Finalization>, comes_up: bool) -> Self {
        if ended.is_none() {
            self.finalize(comes_up);
        }
        self.staged = None;
        self.load();
        self.finalization = ended;
        (self.boot, self.soft) = (self.boot + 1, 0);
        self.start();
        self
    }

    fn finalize(&mut self, comes_up: bool) {
        if let Some(image) = self.staged.take() {
            self.newest += 1;
            self.first = Some(Deployment { image, number: self.newest, comes_up });
            self.before = None;
        }
    }

    /// Boots the first deployment of the menu, or the second once the first was tried as often as is counted.
    fn load(&mut self) {
        let is_broken = self.first.is_some_and(|first| !first.comes_up);
        self.boots = match self.boots {
            BootCount::Off => BootCount::Off,
            BootCount::Left(left) if left > 0 && !is_broken => BootCount::Left(left - 1),
            BootCount::Left(_) | BootCount::FellBack => BootCount::FellBack,
        };
        if self.boots == BootCount::FellBack {
            // The deployment that ran is the second, if another one is the first.
            if let (None, Some(before)) = (self.first, self.before) {
                self.first = Some(self.running());
                self.run(before);
            }
            return;
        }
        assert!(!is_broken, "the machine does not come up: {}", self.key());
        if let Some(first) = self.first.take() {
            // A person may have rebooted before the agent did.
            self.has_written |= self.is_cordoned;
            self.run(first);
        }
    }

    /// The agent has the boots from the next one on counted.
    pub(super) fn arm_count(&mut self) {
        self.boots = BootCount::Left(TRIES);
    }

    /// The agent makes the deployment that runs the first of the menu, and ends the count.
    pub(super) fn stay(&mut self) {
        (self.first, self.boots) = (None, BootCount::Off);
    }
}
