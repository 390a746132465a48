//! The pods of a drain, and the state of each. Pure.

use std::collections::BTreeMap;
use std::time::Duration;

use kube::core::ObjectMeta;
use machine_config_core::model::pod::stays_on_node;

use super::budgets::Budgets;

fn stays(pod: &ObjectMeta) -> bool {
    let owners = pod.owner_references.iter().flatten().filter(|owner| owner.controller == Some(true));
    stays_on_node(pod.annotations.as_ref(), owners.map(|owner| owner.kind.as_str()))
}

/// Eviction state of a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EvictionState {
    /// Its eviction was not requested yet.
    There,
    /// It is on its way.
    Leaving,
    /// It may not leave.
    Refused {
        /// A budget, or several of them, refused it.
        budget: bool,
        /// The API server's message.
        message: String,
        /// Time of the next request, if nothing changes before.
        again: Duration,
    },
}

/// A pod that is to leave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pod {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its uid: another pod of the same name is not meant.
    pub uid: String,
    /// Its labels, which budgets select by.
    pub labels: BTreeMap<String, String>,
    /// Its eviction state.
    pub state: EvictionState,
}

/// Pod and budget that a drain waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Blocked {
    /// `namespace/name` of the pod.
    pub pod: String,
    /// `namespace/name` of the budget, of several with commas between; empty where none is the cause.
    pub budget: String,
    /// The whole, for people.
    pub text: String,
}

/// The pods that are to leave, by uid.
#[derive(Debug, Default)]
pub struct Pods(BTreeMap<String, Pod>);

impl Pods {
    /// Returns true if none is left.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Takes a pod as it is now; returns true if that changes the next step.
    pub fn put(&mut self, metadata: ObjectMeta) -> bool {
        if stays(&metadata) {
            return false;
        }
        let leaving = metadata.deletion_timestamp.is_some();
        let uid = metadata.uid.unwrap_or_default();
        let old = self.0.get(&uid).map(|pod| pod.state.clone());
        let state = match &old {
            _ if leaving => EvictionState::Leaving,
            // The eviction was answered, and the watch is behind.
            Some(known) => known.clone(),
            None => EvictionState::There,
        };
        let news = old.as_ref() != Some(&state);
        let pod = Pod {
            namespace: metadata.namespace.unwrap_or_default(),
            name: metadata.name.unwrap_or_default(),
            uid: uid.clone(),
            labels: metadata.labels.unwrap_or_default(),
            state,
        };
        self.0.insert(uid, pod);
        news
    }

    /// Removes a pod that is gone; returns true if it was one that is to leave.
    pub fn remove(&mut self, uid: &str) -> bool {
        self.0.remove(uid).is_some()
    }

    /// Keeps the pods of a new list only.
    pub fn retain(&mut self, listed: &std::collections::BTreeSet<String>) {
        self.0.retain(|uid, _| listed.contains(uid));
    }

    /// Takes the answer to an eviction: the pod's state, `None` if it is gone.
    pub fn answered(&mut self, uid: &str, state: Option<EvictionState>) {
        match (self.0.get_mut(uid), state) {
            (Some(pod), Some(state)) => pod.state = state,
            (Some(_), None) => drop(self.0.remove(uid)),
            (None, _) => {}
        }
    }

    /// Returns the pods to evict now.
    pub fn to_evict(&self, now: Duration) -> Vec<Pod> {
        let due = |pod: &&Pod| match &pod.state {
            EvictionState::There => true,
            EvictionState::Leaving => false,
            EvictionState::Refused { again, .. } => *again <= now,
        };
        self.0.values().filter(due).cloned().collect()
    }

    /// Returns when the next refused eviction is to be requested again.
    pub fn due(&self) -> Option<Duration> {
        let again = |pod: &Pod| match &pod.state {
            EvictionState::Refused { again, .. } => Some(*again),
            EvictionState::There | EvictionState::Leaving => None,
        };
        self.0.values().filter_map(again).min()
    }

    /// Makes refused pods due at once whose budgets allow a disruption now; returns true if there is one.
    pub fn budgets_changed(&mut self, budgets: &Budgets) -> bool {
        let mut any = false;
        for pod in self.0.values_mut() {
            let EvictionState::Refused { budget: true, again, .. } = &mut pod.state else { continue };
            let mut selecting = budgets.of(&pod.namespace, &pod.labels);
            let first = selecting.next();
            let free = first.is_none_or(|(_, budget)| budget.allowed > 0) && selecting.next().is_none();
            if free && *again > Duration::ZERO {
                *again = Duration::ZERO;
                any = true;
            }
        }
        any
    }

    /// Returns the drain's blocker: a pod that may not leave before one that is about to.
    pub fn blocked(&self, budgets: &Budgets) -> Option<Blocked> {
        let refused = |pod: &&Pod| matches!(pod.state, EvictionState::Refused { .. });
        let name = |pod: &&Pod| (pod.namespace.clone(), pod.name.clone(), pod.uid.clone());
        let pod = self.0.values().filter(refused).min_by_key(name)?;
        let EvictionState::Refused { budget, message, .. } = &pod.state else { return None };
        let full = format!("{}/{}", pod.namespace, pod.name);
        if !budget {
            let text = format!("pod {full} can't be evicted: {message}");
            return Some(Blocked { pod: full, budget: String::new(), text });
        }
        let names =
            budgets.of(&pod.namespace, &pod.labels).map(|(name, _)| format!("{}/{name}", pod.namespace));
        let names: Vec<String> = names.collect();
        let text = match &names[..] {
            [] => format!("pod {full} is kept by its PodDisruptionBudget: {message}"),
            [one] => format!("pod {full} is kept by PodDisruptionBudget {one}: {message}"),
            several => format!(
                "pod {full} is kept by {} PodDisruptionBudgets, {}, and the API server evicts no such pod; leave it one",
                several.len(),
                several.join(" and ")
            ),
        };
        Some(Blocked { pod: full, budget: names.join(","), text })
    }
}
