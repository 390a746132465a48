//! Rules for the drains of a pool's nodes, read from its `RolloutPolicy`. Without one, those of always hold: no limit, no pod is
//! skipped, no label is set.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::core::{Selector, SelectorExt as _};
use machine_config_core::model::faults::Causes;

use crate::api::{Drain, OnTimeout, RolloutPolicy, Skip, duration};

/// Rules of a drain.
#[derive(Debug, Clone, Default)]
pub struct DrainRules {
    /// Longest drain.
    pub timeout: Option<Duration>,
    /// Action at the timeout.
    pub on_timeout: OnTimeout,
    skip: Option<Selector>,
    /// Pods that are Terminating for longer beyond their grace period are skipped.
    pub skip_terminating: Option<Duration>,
    /// Wait after the label that takes the node out of load balancers; `None`: no label.
    pub load_balancer_wait: Option<Duration>,
}

impl DrainRules {
    /// Reads the rules. An error names the field, the cause and the correction.
    pub fn new(spec: Option<&Drain>) -> Result<Self, String> {
        let mut faults = Causes::default();
        let rules = Self::collect(spec, &mut faults);
        faults.first(rules)
    }

    /// Reads what can be read of the rules, and collects the faults of the others.
    pub(crate) fn collect(spec: Option<&Drain>, faults: &mut Causes) -> Self {
        let Some(spec) = spec else { return Self::default() };
        let timeout = faults.take(optional(spec.timeout.as_deref(), "timeout", true));
        let on_timeout = spec.on_timeout.unwrap_or_default();
        if spec.on_timeout.is_some() && spec.timeout.is_none() {
            let fault =
                "spec.drain.onTimeout: there is no timeout; set spec.drain.timeout, or remove the field";
            faults.add(fault.to_owned());
        }
        let Skip { pod_selector, terminating_longer_than } = spec.skip.clone().unwrap_or_default();
        let skip_terminating =
            faults.take(optional(terminating_longer_than.as_deref(), "skip.terminatingLongerThan", false));
        let wait = |wait: Option<&str>| optional(wait, "excludeFromLoadBalancers.wait", false);
        let exclude = spec.exclude_from_load_balancers.as_ref();
        let load_balancer_wait =
            exclude.map(|exclude| wait(exclude.wait.as_deref()).map(Option::unwrap_or_default)).transpose();
        let load_balancer_wait = faults.take(load_balancer_wait);
        if let (Some(timeout), Some(wait)) = (timeout, load_balancer_wait)
            && wait >= timeout
        {
            let fault = "spec.drain.excludeFromLoadBalancers.wait is not less than spec.drain.timeout, so that each drain would \
                time out before its first eviction; shorten it";
            faults.add(fault.to_owned());
        }
        let skip = faults.take(selector(pod_selector));
        Self { timeout, on_timeout, skip, skip_terminating, load_balancer_wait }
    }

    /// Returns the rules of a pool. A policy that the rollout refuses has none: its pool names the cause.
    pub fn of_pool<'a>(policies: impl Iterator<Item = &'a RolloutPolicy>, pool: &str) -> Self {
        let own: Vec<&RolloutPolicy> = policies.filter(|policy| policy.pool() == pool).collect();
        match &*own {
            [policy] => Self::new(policy.spec.drain.as_ref()).unwrap_or_default(),
            _ => Self::default(),
        }
    }

    /// Returns true if pods with these labels are skipped.
    pub fn skips(&self, labels: &BTreeMap<String, String>) -> bool {
        self.skip.as_ref().is_some_and(|selector| selector.matches(labels))
    }
}

fn optional(text: Option<&str>, field: &str, is_positive: bool) -> Result<Option<Duration>, String> {
    let Some(text) = text else { return Ok(None) };
    let shown: String = text.chars().take(32).collect();
    let read = duration(text).and_then(|read| Duration::try_from(read).ok());
    match read {
        None => Err(format!("spec.drain.{field}: {shown:?} is not a duration; write it as 2h30m")),
        Some(Duration::ZERO) if is_positive => {
            Err(format!("spec.drain.{field}: it is zero; write it as 2h30m, or remove the field"))
        }
        Some(read) => Ok(Some(read)),
    }
}

fn selector(selector: Option<LabelSelector>) -> Result<Option<Selector>, String> {
    let Some(selector) = selector else { return Ok(None) };
    let is_empty = selector.match_labels.as_ref().is_none_or(BTreeMap::is_empty)
        && selector.match_expressions.as_ref().is_none_or(Vec::is_empty);
    if is_empty {
        return Err(
            "spec.drain.skip.podSelector is empty, so no pod would be evicted; name the labels of the pods to skip"
                .to_owned(),
        );
    }
    Selector::try_from(selector)
        .map(Some)
        .map_err(|error| format!("spec.drain.skip.podSelector: {error}; correct it"))
}
