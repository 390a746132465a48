//! The first boot of the small world: the file that Ignition left is the target, nothing is committed, and the kubelet waits for the
//! end.

use super::world::{Content, Rules, World};
use crate::decide::action::Action;
use crate::decide::mode::RunMode;
use crate::model::observation::BootCount;

/// The file that Ignition left.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum File {
    /// It can be used.
    #[default]
    Good,
    /// Its contents can't be used.
    Broken,
    /// A person has removed it.
    Gone,
    /// The process has ended with nothing left to do: it is renamed, and the kubelet starts.
    Renamed,
}

impl File {
    /// The first boot has nothing to follow.
    pub(super) fn is_gone(self) -> bool {
        matches!(self, Self::Gone | Self::Renamed)
    }
}

/// Memory and awaited events of a first boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct FirstBoot {
    /// Contents of the host as this process observed them.
    pub(super) provisioned: Option<Content>,
    /// This process has read the file.
    pub(super) is_read: bool,
    pub(super) file: File,
    /// Misfortunes at the start.
    pub(super) unlucky: u32,
    /// Reboots that the host needs.
    pub(super) needed: u32,
}

impl World {
    /// A host that Ignition has provisioned, with the image that its config wants or with another one.
    pub(super) fn provisioned(unlucky: u32, changes: u32) -> [Self; 2] {
        let other = Self::new(RunMode::FirstBoot, unlucky, changes);
        let right = Self { there: other.desired, ..other.clone() };
        [(other, 1), (right, 0)].map(|(mut world, needed)| {
            world.first_boot = FirstBoot { unlucky, needed, ..FirstBoot::default() };
            world
        })
    }

    pub(super) fn is_first_boot(&self) -> bool {
        self.mode == RunMode::FirstBoot
    }

    /// Returns the desired contents as the agent knows them: of a file the last one that could be read.
    pub(super) fn desired_content(&self) -> Option<Content> {
        let FirstBoot { is_read, file, .. } = self.first_boot;
        (!self.is_first_boot() || (is_read && !file.is_gone())).then_some(self.desired)
    }

    /// Adds the changes that a person may make to the file.
    pub(super) fn file_changes(&self, all: &mut Vec<World>) {
        let mut push = |file, misfortunes| {
            let mut world = World { misfortunes, ..self.clone() }.without_question();
            world.first_boot.file = file;
            all.push(world);
        };
        let left = self.misfortunes.checked_sub(1);
        match (self.first_boot.file, left) {
            (File::Gone | File::Renamed, _) | (File::Good, None) => {}
            (File::Broken, _) => push(File::Good, self.misfortunes),
            (File::Good, Some(left)) => {
                push(File::Broken, left);
                push(File::Gone, left);
            }
        }
    }

    /// The process ends: its unit is done, and the file with it.
    pub(super) fn completed(mut self) -> Self {
        self.first_boot.file = File::Renamed;
        self.without_question()
    }
}

/// Checks the invariants of a first boot.
pub(super) fn holds(world: &World, action: &Action, rules: &Rules) {
    let FirstBoot { provisioned, file, unlucky, needed, .. } = world.first_boot;
    let is_right = provisioned == Some(world.desired) && world.there == world.desired;
    if let Action::Wait(wait) = action
        && wait.ends
        && !file.is_gone()
    {
        assert!(is_right && world.record.is_none(), "no kubelet before: {}", world.key());
        assert!(world.staged.is_none(), "nothing waits for a reboot: {}", world.key());
        // A count that could not be ended is left to the daemon.
        let is_counted = world.boots != BootCount::Off && !world.answers.is_count_over;
        assert!(!is_counted, "no boot is counted any more: {}", world.key());
    }
    if let (Action::Reboot, None) = (action, rules.curse) {
        let spent = unlucky.saturating_sub(world.misfortunes);
        assert!(world.reboots < needed + spent, "at most one reboot: {}", world.key());
    }
    let is_daemons = matches!(action, Action::DropRollback | Action::Prefetch(_));
    assert!(!is_daemons, "{action:?} is the daemon's: {}", world.key());
}

/// All is done, or the file is gone: the process has ended. Or it waits for a correction of the file, or of the host (the rest of
/// the rules says that then).
pub(super) fn is_rest(world: &World, actions: &[String]) -> bool {
    let file = world.first_boot.file;
    assert!(file != File::Gone, "the kubelet waits, and nobody says what for: {actions:#?}");
    let waits = file == File::Good;
    assert!(!waits || world.record.is_some(), "{actions:#?}");
    !waits
}
