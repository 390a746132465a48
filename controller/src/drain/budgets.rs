//! Disruption budgets: which of them keep a pod. Pure.

use std::collections::BTreeMap;

use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::core::{Selector, SelectorExt as _};
use machine_config_core::drain::{Budget, KnownBudgets, Pod};

#[derive(Debug, Clone)]
struct Cached {
    version: String,
    selector: Option<Selector>,
    allowed: Option<u32>,
}

/// Budgets of the cluster by namespace and name; not known before they were listed.
#[derive(Debug, Clone, Default)]
pub struct Budgets {
    listed: Option<List>,
    /// A list that is being read.
    listing: List,
}

type List = BTreeMap<(String, String), Cached>;

impl Budgets {
    /// A list begins. Until it is complete, the last one holds.
    pub fn begin_list(&mut self) {
        self.listing.clear();
    }

    /// Takes a budget of the list that has begun.
    pub fn list(&mut self, budget: PodDisruptionBudget) {
        let (key, cached) = read(budget);
        self.listing.insert(key, cached);
    }

    /// The list is complete.
    pub fn end_list(&mut self) {
        self.listed = Some(std::mem::take(&mut self.listing));
    }

    /// Puts a budget in.
    pub fn put(&mut self, budget: PodDisruptionBudget) {
        let (key, cached) = read(budget);
        if let Some(listed) = &mut self.listed {
            listed.insert(key, cached);
        }
    }

    /// Removes one.
    pub fn remove(&mut self, namespace: &str, name: &str) {
        if let Some(listed) = &mut self.listed {
            listed.remove(&(namespace.to_owned(), name.to_owned()));
        }
    }

    /// Returns the budgets that select a pod.
    pub fn of(&self, pod: &Pod) -> KnownBudgets {
        let Some(listed) = &self.listed else { return KnownBudgets::Unknown };
        let first = (pod.namespace.clone(), String::new());
        let same = listed.range(first..).take_while(|((namespace, _), _)| *namespace == pod.namespace);
        let selects =
            |budget: &Cached| budget.selector.as_ref().is_some_and(|selector| selector.matches(&pod.labels));
        let selecting = same.filter(|(_, budget)| selects(budget));
        let budget = |(key, budget): (&(String, String), &Cached)| Budget {
            name: key.1.clone(),
            version: budget.version.clone(),
            allowed: budget.allowed,
        };
        KnownBudgets::All(selecting.map(budget).collect())
    }
}

fn read(budget: PodDisruptionBudget) -> ((String, String), Cached) {
    let generation = budget.metadata.generation.unwrap_or_default();
    let key = (budget.metadata.namespace.unwrap_or_default(), budget.metadata.name.unwrap_or_default());
    let selector = budget.spec.and_then(|spec| spec.selector);
    // A status of an older generation says nothing of this one.
    let status = budget.status.filter(|status| status.observed_generation.unwrap_or_default() >= generation);
    let cached = Cached {
        version: budget.metadata.resource_version.unwrap_or_default(),
        // One without a selector selects nothing, an empty one all pods of its namespace (policy/v1).
        selector: selector.and_then(|selector| Selector::try_from(selector).ok()),
        allowed: status
            .map(|status| u32::try_from(status.disruptions_allowed.unwrap_or_default()).unwrap_or_default()),
    };
    (key, cached)
}
