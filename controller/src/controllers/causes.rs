//! Causes of failures in the log: each is one line, however often it comes back, and so is its end.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::retry::is_same;

/// So many are known at most: objects that are gone are forgotten then.
const MAX_KNOWN: usize = 4096;

/// Causes that were logged last, by what failed. Clones share them.
#[derive(Debug, Clone, Default)]
pub(super) struct Causes(Arc<Mutex<BTreeMap<String, String>>>);

impl Causes {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records a failure; returns true if it is to be logged.
    pub(super) fn is_news(&self, what: &str, cause: &str) -> bool {
        let mut known = self.lock();
        if known.get(what).is_some_and(|last| is_same(last, cause)) {
            return false;
        }
        if known.len() >= MAX_KNOWN {
            known.clear();
        }
        known.insert(what.to_owned(), cause.to_owned());
        true
    }

    /// Forgets what succeeded; returns true if that is to be logged.
    pub(super) fn is_over(&self, what: &str) -> bool {
        self.lock().remove(what).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cause_and_its_end_are_one_line_each() {
        let causes = Causes::default();
        assert!(!causes.is_over("node a"));
        assert!(causes.is_news("node a", "reset after 3 s") && !causes.is_news("node a", "reset after 5 s"));
        assert!(causes.is_news("node b", "reset after 3 s") && causes.is_news("node a", "refused (403)"));
        assert!(
            causes.is_over("node a")
                && !causes.is_over("node a")
                && causes.is_news("node a", "refused (403)")
        );
    }
}
