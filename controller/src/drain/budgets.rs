//! Disruption budgets: which of them keep a pod. Pure.

use std::collections::BTreeMap;

use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::core::{Selector, SelectorExt as _};

/// Cached fields of a budget.
#[derive(Debug, Clone)]
pub struct Budget {
    /// Its version: another one is news.
    pub version: String,
    selector: Option<Selector>,
    /// Pods that may be evicted now.
    pub allowed: i32,
}

/// Budgets by namespace and name.
#[derive(Debug, Clone, Default)]
pub struct Budgets(BTreeMap<(String, String), Budget>);

impl Budgets {
    /// Puts a budget in.
    pub fn put(&mut self, budget: PodDisruptionBudget) {
        let key = (budget.metadata.namespace.unwrap_or_default(), budget.metadata.name.unwrap_or_default());
        let selector = budget.spec.and_then(|spec| spec.selector);
        let read = Budget {
            version: budget.metadata.resource_version.unwrap_or_default(),
            // One without a selector selects nothing, an empty one all pods of its namespace (policy/v1).
            selector: selector.and_then(|selector| Selector::try_from(selector).ok()),
            allowed: budget.status.and_then(|status| status.disruptions_allowed).unwrap_or(0),
        };
        self.0.insert(key, read);
    }

    /// Removes one.
    pub fn remove(&mut self, namespace: &str, name: &str) {
        self.0.remove(&(namespace.to_owned(), name.to_owned()));
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Returns the budgets that select a pod: their names, and the evictions that they allow.
    pub fn of<'a>(
        &'a self,
        namespace: &'a str,
        labels: &'a BTreeMap<String, String>,
    ) -> impl Iterator<Item = (&'a str, &'a Budget)> {
        let first = (namespace.to_owned(), String::new());
        let same = self.0.range(first..).take_while(move |((other, _), _)| other == namespace);
        let selects =
            move |budget: &Budget| budget.selector.as_ref().is_some_and(|selector| selector.matches(labels));
        same.filter(move |(_, budget)| selects(budget)).map(|((_, name), budget)| (name.as_str(), budget))
    }
}
