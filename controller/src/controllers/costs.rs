//! Costs of the ways between rendered configs. A config is named by its content, so a way is reckoned once; the contents
//! themselves are megabytes and are not kept.

use std::collections::{BTreeMap, BTreeSet};

use kube::{Api, Client};

use super::client::read;
use crate::api::MachineConfig;
use crate::cost::{NodeCost, cost};
use crate::model::policy::DisruptionPolicy;
use crate::reading::Lenient;
use crate::render::Rendered;

/// Costs and images of the rendered configs that pools and nodes have now.
#[derive(Debug, Default)]
pub(super) struct Costs {
    images: BTreeMap<String, Option<String>>,
    /// By the config that a node has and the one that it gets; none where that could not be reckoned.
    ways: BTreeMap<(String, String), Option<NodeCost>>,
    policy: Option<DisruptionPolicy>,
}

impl Costs {
    /// Forgets what is about other configs, or about another policy.
    pub(super) fn retain(&mut self, configs: &BTreeSet<String>, policy: &DisruptionPolicy) {
        self.images.retain(|name, _| configs.contains(name));
        self.ways.retain(|(from, to), _| configs.contains(from) && configs.contains(to));
        if self.policy.as_ref() != Some(policy) {
            self.ways.clear();
            self.policy = Some(policy.clone());
        }
    }

    /// Returns the OS image of a config, where it has one and was read.
    pub(super) fn image(&self, config: &str) -> Option<&String> {
        self.images.get(config)?.as_ref()
    }

    /// Returns the cost of each way to a target; reads the configs of those that are not known. A config that can't be read
    /// has none: a cost that is not known keeps nothing back. True if one could not be read.
    pub(super) async fn to(
        &mut self,
        client: &Client,
        target: &str,
        from: &[String],
    ) -> (BTreeMap<String, NodeCost>, bool) {
        let is_known = |costs: &Self, name: &String| {
            name == target || costs.ways.contains_key(&(name.clone(), target.to_owned()))
        };
        let unknown: Vec<&String> = from.iter().filter(|name| !is_known(self, name)).collect();
        if !(unknown.is_empty() && self.images.contains_key(target)) {
            self.reckon(client, target, &unknown).await;
        }
        let way = |name: &String| {
            let cost = self.ways.get(&(name.clone(), target.to_owned()))?;
            Some((name.clone(), cost.clone()?))
        };
        let is_incomplete =
            !self.images.contains_key(target) || from.iter().any(|name| !is_known(self, name));
        (from.iter().filter_map(way).collect(), is_incomplete)
    }

    async fn reckon(&mut self, client: &Client, target: &str, from: &[&String]) {
        let Some(to) = self.content(client, target).await else { return };
        for name in from {
            let Some(from) = self.content(client, name).await else { continue };
            let policy = self.policy.clone().unwrap_or_else(DisruptionPolicy::defaults);
            let plan = cost(&from, &to, &policy).ok().and_then(Result::ok);
            self.ways.insert(((*name).clone(), target.to_owned()), plan.as_ref().map(NodeCost::new));
        }
    }

    async fn content(&mut self, client: &Client, name: &str) -> Option<Rendered> {
        let object = read(Api::<Lenient<MachineConfig>>::all(client.clone()).get(name)).await.ok()?;
        let image = object.spec.os_image_url.clone().filter(|image| !image.is_empty());
        self.images.insert(name.to_owned(), image);
        Some(Rendered { object, sources: Vec::new(), remarks: Vec::new() })
    }
}
