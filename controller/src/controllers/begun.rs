//! Writes that were begun and that the fence has not seen: one that it sees without is of none of [`super::write::Write`], whatever method
//! sends it. They are counted, since kube's client hands requests to a task of its own, where nothing of the caller is left. In no release.

#[cfg(debug_assertions)]
use std::sync::atomic::{AtomicI64, Ordering};

/// A count of them.
#[cfg(debug_assertions)]
#[derive(Debug, Default)]
pub(super) struct Begun(AtomicI64);

/// Those of this process.
#[cfg(debug_assertions)]
pub(super) static BEGUN: Begun = Begun(AtomicI64::new(0));

#[cfg(debug_assertions)]
impl Begun {
    fn begin(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// Takes the one that leaves the process; returns false if none was begun.
    pub(super) fn take(&self) -> bool {
        self.0.fetch_sub(1, Ordering::Relaxed) > 0
    }
}

/// Notes that a write begins: no earlier than at the first poll, which sends it.
pub(super) fn begin() {
    #[cfg(debug_assertions)]
    BEGUN.begin();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(debug_assertions)]
    #[test]
    fn write_that_nobody_began_is_met() {
        let begun = Begun::default();
        begun.begin();
        begun.begin();
        // The second of three is none of ours: the third one is met.
        assert_eq!([begun.take(), begun.take(), begun.take()], [true, true, false]);
    }
}
