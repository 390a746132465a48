//! The permission to touch the host. Only `Journal::advance` makes one, after the record is on disk, and takes it
//! back when the work ends: an effect without a record does not compile.

use crate::model::{HostSpec, UpdateId};
use crate::plan::{Batch, Step, Undo};

use super::originals::Originals;

/// Work to carry out.
#[derive(Debug, Clone, Copy)]
pub enum Work<'a> {
    /// One batch of the plan.
    Apply {
        /// The batch's kind.
        batch: Batch,
        /// Its steps, never empty.
        steps: &'a [Step],
    },
    /// One undo step.
    Undo {
        /// The batch to undo.
        undo: &'a Undo,
        /// The steps of the batch that it undoes; empty for [`Undo::UnstageOs`].
        steps: &'a [Step],
    },
}

/// Position of the work in its plan, for the lines about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Numbers {
    /// Steps of the plan before it.
    pub before: usize,
    /// Steps of the plan.
    pub of: usize,
}

/// The permission, with everything the work needs.
#[derive(Debug)]
pub struct Intent<'a> {
    work: Work<'a>,
    from: &'a HostSpec,
    to: &'a HostSpec,
    originals: Originals,
    numbers: Numbers,
}

impl<'a> Intent<'a> {
    pub(super) fn new(
        work: Work<'a>,
        from: &'a HostSpec,
        to: &'a HostSpec,
        originals: Originals,
        numbers: Numbers,
    ) -> Self {
        Self { work, from, to, originals, numbers }
    }

    /// Returns where the work is in its plan.
    pub fn numbers(&self) -> Numbers {
        self.numbers
    }

    /// Returns the update that it is a part of.
    pub fn update(&self) -> &UpdateId {
        self.originals.update()
    }

    /// Returns the work to carry out.
    pub fn work(&self) -> Work<'a> {
        self.work
    }

    /// Returns the old spec.
    pub fn from(&self) -> &'a HostSpec {
        self.from
    }

    /// Returns the new spec.
    pub fn to(&self) -> &'a HostSpec {
        self.to
    }

    /// Returns where this batch's originals are saved.
    pub fn originals(&self) -> &Originals {
        &self.originals
    }

    /// Makes one for the tests of `apply`: outside of tests only the journal can.
    #[cfg(test)]
    pub(crate) fn for_tests(
        work: Work<'a>,
        from: &'a HostSpec,
        to: &'a HostSpec,
        originals: Originals,
    ) -> Self {
        let (Work::Apply { steps, .. } | Work::Undo { steps, .. }) = work;
        Self::new(work, from, to, originals, Numbers { before: 0, of: steps.len() })
    }
}
