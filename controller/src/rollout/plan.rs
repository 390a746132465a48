//! Cost of the rest of a rollout, for the pool's status. Bounded, whatever the configs are.

use std::collections::{BTreeMap, BTreeSet};

use super::RolloutInput;
use super::census::Tally;
use crate::api::pool::{PoolPlan, ServicePlan};
use crate::cost::NodeCost;

/// Causes of reboots, and services.
const MAX_ENTRIES: usize = 16;

/// Causes of one service.
const MAX_CAUSES: usize = 8;

/// A path or a unit is cut here.
const MAX_CAUSE: usize = 256;

/// Sums the plans of the nodes without the target; `None` when there is none.
pub(super) fn plan(input: &RolloutInput<'_>, census: &Tally<'_>) -> Option<PoolPlan> {
    let target = census.target.as_ref()?.config.clone()?;
    if census.behind.is_empty() {
        return None;
    }
    let mut sum = Sum::default();
    for (config, nodes) in &census.behind {
        sum.add(*nodes, input.costs.get(config));
    }
    Some(sum.plan(target))
}

/// Action and unit.
type Service<'a> = (&'static str, Option<&'a str>);

#[derive(Default)]
struct Sum<'a> {
    nodes: usize,
    drains: usize,
    reboots: usize,
    unknown: usize,
    reboot_because: BTreeSet<&'a str>,
    services: BTreeMap<Service<'a>, (usize, BTreeSet<&'a str>)>,
}

impl<'a> Sum<'a> {
    fn add(&mut self, nodes: usize, cost: Option<&'a NodeCost>) {
        self.nodes += nodes;
        let Some(cost) = cost else {
            self.unknown += nodes;
            return;
        };
        self.drains += if cost.drain { nodes } else { 0 };
        self.reboots += if cost.reboot_because.is_empty() { 0 } else { nodes };
        self.reboot_because.extend(cost.reboot_because.iter().map(|cause| &**cause));
        for (action, unit, because) in &cost.services {
            let (count, causes) = self.services.entry((action, unit.as_deref())).or_default();
            *count += nodes;
            causes.extend(because.iter().map(|cause| &**cause));
        }
    }

    fn plan(self, target: String) -> PoolPlan {
        let services = self.services.into_iter().map(|((action, unit), (nodes, because))| ServicePlan {
            action: action.to_owned(),
            unit: unit.map(cut),
            nodes: number(nodes),
            because: because.into_iter().take(MAX_CAUSES).map(cut).collect(),
        });
        let services: Vec<_> = services.take(MAX_ENTRIES).collect();
        let because: Vec<_> = self.reboot_because.into_iter().take(MAX_ENTRIES).map(cut).collect();
        PoolPlan {
            target,
            nodes: number(self.nodes),
            drains: number(self.drains),
            reboots: number(self.reboots),
            unknown: (self.unknown > 0).then(|| number(self.unknown)),
            reboot_because: (!because.is_empty()).then_some(because),
            services: (!services.is_empty()).then_some(services),
        }
    }
}

fn cut(text: &str) -> String {
    text.chars().take(MAX_CAUSE).collect()
}

fn number(number: usize) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}
