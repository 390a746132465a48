//! A policy, read and checked for a pool of a size.

use jiff::SignedDuration;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use machine_config_core::model::faults::Causes;

use super::Pool;
use super::number::{Rounding, scaled};
use super::windows::Windows;
use crate::api::rollout_policy::{OnFailure, Wave};
use crate::api::{RolloutPolicySpec, duration};
use crate::drain::DrainRules;

/// Nodes that prefetch at a time, by default.
const PREFETCH_CONCURRENCY: IntOrString = IntOrString::Int(10);

/// Time that a prefetching node is waited for, by default.
const PREFETCH_TIMEOUT: SignedDuration = SignedDuration::from_hours(1);

/// The most waves, so that the status stays small.
const MAX_WAVES: usize = 16;

/// A policy in numbers of nodes.
#[derive(Debug)]
pub(super) struct Rules {
    /// Ends of the waves: nodes that were given the target, and the time that they are watched. The remaining nodes come
    /// after the last one.
    pub(super) waves: Vec<WaveRule>,
    /// Nodes that may fail.
    pub(super) allowed_failures: usize,
    /// Action on failed nodes.
    pub(super) on_failure: OnFailure,
    /// A node that takes longer has failed.
    pub(super) node_timeout: Option<SignedDuration>,
    /// Prefetching: how many at a time, and how long each is waited for.
    pub(super) prefetch: Option<(usize, SignedDuration)>,
    /// When nodes may be given a target.
    pub(super) windows: Windows,
}

/// One wave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct WaveRule {
    /// Nodes that have been given the target when it ends, with those of the waves before.
    pub(super) until: usize,
    /// Time that it is watched then.
    pub(super) soak: SignedDuration,
}

impl Rules {
    /// Reads the policy of a pool; `None` where it has none. An error names the field, the cause and the correction.
    pub(super) fn new(pool: &Pool, machines: usize) -> Result<Option<Self>, String> {
        if let Some(message) = &pool.unreadable_policy {
            return Err(message.clone());
        }
        match &*pool.policies {
            [] => Ok(None),
            [policy] => {
                let rules = Self::read(&policy.spec, machines);
                rules.map(Some).map_err(|cause| format!("RolloutPolicy {}: {cause}", policy.name))
            }
            [one, other, ..] => Err(two_policies(&one.name, &other.name, &pool.name)),
        }
    }

    fn read(spec: &RolloutPolicySpec, machines: usize) -> Result<Self, String> {
        let mut faults = Causes::default();
        let rules = Self::collect(spec, machines, &mut faults);
        faults.first(rules)
    }

    fn collect(spec: &RolloutPolicySpec, machines: usize, faults: &mut Causes) -> Self {
        let field = |name: &'static str| {
            move |cause: String| format!("spec.{name}: {cause}; write a number, or a percentage such as 25%")
        };
        let allowed_failures = spec
            .allowed_failures
            .as_ref()
            .map_or(Ok(0), |value| scaled(value, machines, Rounding::Down).map_err(field("allowedFailures")));
        let allowed_failures = faults.take(allowed_failures);
        let prefetch = spec.prefetch.as_ref().map(|prefetch| {
            let value = prefetch.concurrency.as_ref().unwrap_or(&PREFETCH_CONCURRENCY);
            let at_once = scaled(value, machines, Rounding::Up).map_err(field("prefetch.concurrency"));
            let timeout = prefetch
                .timeout
                .as_deref()
                .map_or(Ok(PREFETCH_TIMEOUT), |text| positive(text, "prefetch.timeout"));
            (faults.take(at_once).max(1), faults.take(timeout))
        });
        let node_timeout = spec.node_timeout.as_deref().map(|text| positive(text, "nodeTimeout"));
        let node_timeout = faults.take(node_timeout.transpose());
        DrainRules::collect(spec.drain.as_ref(), faults);
        Self {
            waves: waves(spec.canary.as_ref(), spec.waves.as_deref().unwrap_or_default(), machines, faults),
            allowed_failures,
            on_failure: spec.on_failure.unwrap_or_default(),
            node_timeout,
            prefetch,
            windows: Windows::collect(spec.windows.as_deref(), faults),
        }
    }
}

/// Returns why no rollout could follow a policy: of each fault the field, the cause and the correction.
pub fn check_policy(spec: &RolloutPolicySpec) -> Vec<String> {
    let mut faults = Causes::default();
    Rules::collect(spec, 1, &mut faults);
    faults.into_list()
}

/// Returns why neither of two policies is followed.
pub(super) fn two_policies(one: &str, other: &str, pool: &str) -> String {
    format!(
        "RolloutPolicy {one} and RolloutPolicy {other} are both for pool {pool}; delete one of them, or correct its poolRef"
    )
}

fn waves(canary: Option<&Wave>, waves: &[Wave], machines: usize, faults: &mut Causes) -> Vec<WaveRule> {
    if waves.len() > MAX_WAVES {
        faults.add(format!("spec.waves has {} waves; write at most {MAX_WAVES}", waves.len()));
        return Vec::new();
    }
    let named = canary.map(|wave| ("canary".to_owned(), wave)).into_iter();
    let others = waves.iter().enumerate().map(|(place, wave)| (format!("waves[{place}]"), wave));
    let mut until: usize = 0;
    let mut rules = Vec::new();
    for (name, wave) in named.chain(others) {
        let nodes = scaled(&wave.nodes, machines, Rounding::Up).map_err(|cause| {
            format!("spec.{name}.nodes: {cause}; write a number, or a percentage such as 25%")
        });
        until = until.saturating_add(faults.take(nodes).max(1));
        let soak = wave.soak.as_deref().map_or(Ok(SignedDuration::ZERO), |text| read_duration(text, &name));
        rules.push(WaveRule { until, soak: faults.take(soak) });
    }
    rules
}

fn read_duration(text: &str, name: &str) -> Result<SignedDuration, String> {
    duration(text).ok_or_else(|| {
        let shown: String = text.chars().take(32).collect();
        format!("spec.{name}: {shown:?} is not a duration; write it as 2h30m")
    })
}

fn positive(text: &str, name: &str) -> Result<SignedDuration, String> {
    match read_duration(text, name)? {
        SignedDuration::ZERO => {
            Err(format!("spec.{name}: it is zero; write it as 2h30m, or remove the field"))
        }
        duration => Ok(duration),
    }
}
