//! Work that goes on beside each other, by object: a request for one that hangs keeps no other. What is done for one stays in order.
//!
//! One piece of each object is under way at most, and so many in all. Of many that hang each time, none keeps another from its turn: the one that
//! has waited longest is begun first.

use std::collections::{BTreeMap, BTreeSet};

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

/// Objects that are due, and those under way. `T` is the outcome of a piece of work.
pub(super) struct Work<K, T> {
    max: usize,
    due: BTreeMap<K, Instant>,
    /// When each was begun last.
    begun: BTreeMap<K, Instant>,
    under_way: BTreeSet<K>,
    tasks: JoinSet<(K, T)>,
}

impl<K: Ord + Clone + Send + 'static, T: Send + 'static> Work<K, T> {
    /// So many are under way at most.
    pub(super) fn new(max: usize) -> Self {
        Self {
            max,
            due: BTreeMap::new(),
            begun: BTreeMap::new(),
            under_way: BTreeSet::new(),
            tasks: JoinSet::new(),
        }
    }

    /// Has these objects be due now, and no others: something changed. Returns those that were worked on before and are none of them.
    pub(super) fn replace(&mut self, keys: impl IntoIterator<Item = K>) -> Vec<K> {
        let now = Instant::now();
        self.due = keys.into_iter().map(|key| (key, now)).collect();
        let (known, gone): (BTreeMap<_, _>, BTreeMap<_, _>) =
            std::mem::take(&mut self.begun).into_iter().partition(|(key, _)| self.due.contains_key(key));
        self.begun = known;
        gone.into_keys().collect()
    }

    /// Has an object be due at a time at the latest.
    pub(super) fn add(&mut self, key: K, at: Instant) {
        let due = self.due.entry(key).or_insert(at);
        *due = at.min(*due);
    }

    pub(super) fn is_under_way(&self, key: &K) -> bool {
        self.under_way.contains(key)
    }

    /// Begins what is due, as far as it may be.
    pub(super) fn begin<F>(&mut self, mut work: impl FnMut(&K) -> F)
    where
        F: Future<Output = T> + Send + 'static,
    {
        for key in self.ready(Instant::now()) {
            self.due.remove(&key);
            self.under_way.insert(key.clone());
            self.begun.insert(key.clone(), Instant::now());
            let work = Box::pin(work(&key));
            self.tasks.spawn(async move { (key, work.await) });
        }
    }

    /// Returns the objects whose turn it is.
    fn ready(&self, now: Instant) -> Vec<K> {
        let due = self.due.iter().filter(|(_, due)| **due <= now).map(|(key, _)| key);
        let mut ready: Vec<&K> = due.filter(|key| !self.under_way.contains(*key)).collect();
        ready.sort_by_key(|key| self.begun.get(*key).copied());
        let free = self.max.saturating_sub(self.under_way.len());
        ready.into_iter().take(free).cloned().collect()
    }

    /// Waits until one has ended, and returns it, or until one is to be begun. Cancel-safe.
    pub(super) async fn next(&mut self) -> Option<(K, T)> {
        let is_full = self.under_way.len() >= self.max;
        let waiting = self.due.iter().filter(|(key, _)| !is_full && !self.under_way.contains(*key));
        let due = waiting.map(|(_, due)| *due).min();
        let timer = async {
            match due {
                Some(due) => sleep_until(due).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            Some(ended) = self.tasks.join_next(), if !self.tasks.is_empty() => Some(self.ended(ended.ok()?)),
            () = timer => None,
        }
    }

    /// As [`Work::next`], while nothing may be begun.
    pub(super) async fn next_ended(&mut self) -> Option<(K, T)> {
        match self.tasks.join_next().await {
            Some(ended) => Some(self.ended(ended.ok()?)),
            None => std::future::pending().await,
        }
    }

    /// A panic ends the process, and nobody cancels a task.
    fn ended(&mut self, (key, outcome): (K, T)) -> (K, T) {
        self.under_way.remove(&key);
        (key, outcome)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn object_that_has_waited_longest_is_next_and_none_is_worked_on_twice() {
        let mut work = Work::<&str, ()>::new(2);
        let mut begun = Vec::new();
        assert!(work.replace(["a", "b", "c"]).is_empty());
        let begin = |work: &mut Work<&'static str, ()>, begun: &mut Vec<&str>| {
            work.begin(|key| {
                begun.push(*key);
                tokio::time::sleep(Duration::from_secs(if *key == "b" { 100 } else { 10 }))
            });
        };
        begin(&mut work, &mut begun);
        begin(&mut work, &mut begun);
        assert_eq!(begun, ["a", "b"]);
        let (ended, ()) = work.next().await.unwrap();
        work.add(ended, Instant::now());
        work.add("b", Instant::now());
        begin(&mut work, &mut begun);
        // Not the one that has just had its turn, and not the one that hangs.
        assert_eq!(begun, ["a", "b", "c"]);
        assert_eq!(work.next().await, Some(("c", ())));
        begin(&mut work, &mut begun);
        assert_eq!((begun.len(), begun[3]), (4, "a"));
        assert_eq!(work.replace(["b"]), ["a", "c"]);
        assert!(work.is_under_way(&"b"));
    }
}
