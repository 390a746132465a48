//! Images that a pool keeps on its nodes: its PinnedImageSets, and which pools are a node's.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use serde_json::Value;

use super::document::{self, Kind};
use super::error::ModelError;
use super::image::{ImageRef, Transport};

/// A PinnedImageSet, as much of it as is read.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct PinnedSet {
    /// Its name.
    pub name: String,
    /// Its generation.
    pub generation: i64,
    /// Its images, as they are written.
    pub images: Vec<String>,
    /// Cause of a set that can't be read.
    pub unread: Option<String>,
}

/// A MachineConfigPool, as much of it as is read here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PinningPool {
    /// Its name.
    pub name: String,
    /// Selector of its nodes; none without it.
    pub selector: Option<Selector>,
    /// The PinnedImageSets that it names.
    pub sets: Vec<String>,
}

#[derive(Deserialize, Default)]
struct Metadata {
    #[serde(default)]
    name: String,
    #[serde(default)]
    generation: i64,
}

#[derive(Deserialize)]
struct Pool {
    #[serde(default)]
    metadata: Metadata,
    #[serde(default)]
    spec: Option<PoolSpec>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PoolSpec {
    #[serde(default)]
    node_selector: Option<Selector>,
    #[serde(default)]
    pinned_image_sets: Option<Vec<Named>>,
}

#[derive(Deserialize)]
struct Set {
    #[serde(default)]
    metadata: Metadata,
    #[serde(default)]
    spec: Option<SetSpec>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct SetSpec {
    #[serde(default)]
    pinned_images: Option<Vec<Named>>,
}

#[derive(Deserialize)]
struct Named {
    name: String,
}

fn names(named: Option<Vec<Named>>) -> Vec<String> {
    named.into_iter().flatten().map(|one| one.name).collect()
}

impl PinningPool {
    /// Reads an object of the API.
    pub fn of_tree(tree: &Value) -> Result<Self, ModelError> {
        let Pool { metadata, spec } = document::of_tree(tree, Kind::POOL)?.value;
        let PoolSpec { node_selector, pinned_image_sets } = spec.unwrap_or_default();
        Ok(Self { name: metadata.name, selector: node_selector, sets: names(pinned_image_sets) })
    }
}

impl PinnedSet {
    /// Reads an object of the API. One that can't be read is kept with the cause: a pool may name it.
    pub fn of_tree(tree: &Value) -> Self {
        let read = document::of_tree(tree, Kind::PINNED_SET);
        let (Set { metadata, spec }, unread) = match read {
            Ok(found) => (found.value, None),
            Err(error) => (Set { metadata: Metadata::of(tree), spec: None }, Some(error.to_string())),
        };
        let Metadata { name, generation } = metadata;
        Self { name, generation, images: names(spec.unwrap_or_default().pinned_images), unread }
    }
}

impl Metadata {
    /// Reads what can be read of an object that can't be read as a whole.
    fn of(tree: &Value) -> Self {
        let metadata = tree.get("metadata");
        Self {
            name: metadata.and_then(|all| all.get("name")?.as_str()).unwrap_or_default().to_owned(),
            generation: metadata.and_then(|all| all.get("generation")?.as_i64()).unwrap_or_default(),
        }
    }
}

/// A selector of labels.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Selector {
    match_labels: BTreeMap<String, String>,
    match_expressions: Vec<Requirement>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
struct Requirement {
    key: String,
    operator: String,
    values: Vec<String>,
}

impl Requirement {
    /// An operator that is not known selects nothing.
    fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        let value = labels.get(&self.key);
        match self.operator.as_str() {
            "In" => value.is_some_and(|value| self.values.contains(value)),
            "NotIn" => value.is_none_or(|value| !self.values.contains(value)),
            "Exists" => value.is_some(),
            "DoesNotExist" => value.is_none(),
            _ => false,
        }
    }
}

impl Selector {
    /// Returns true if it selects what has these labels. An empty one selects everything.
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.match_labels.iter().all(|(key, value)| labels.get(key) == Some(value))
            && self.match_expressions.iter().all(|requirement| requirement.matches(labels))
    }
}

/// Images to keep on a node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pins {
    /// The sets of its pools, by name.
    pub sets: Vec<PinnedSet>,
    /// Sets that a pool names and that are not there.
    pub missing: Vec<String>,
    /// The node is of the control plane.
    pub is_control_plane: bool,
}

impl Pins {
    /// Collects what the pools of a node name.
    pub fn collect(
        labels: &BTreeMap<String, String>,
        pools: &[PinningPool],
        sets: &BTreeMap<String, PinnedSet>,
        is_control_plane: bool,
    ) -> Self {
        let names: BTreeSet<&String> =
            pools_of_node(labels, pools).into_iter().flat_map(|pool| &pool.sets).collect();
        let (there, missing): (Vec<_>, Vec<_>) = names.into_iter().partition(|name| sets.contains_key(*name));
        Self {
            sets: there.into_iter().filter_map(|name| sets.get(name).cloned()).collect(),
            missing: missing.into_iter().cloned().collect(),
            is_control_plane,
        }
    }

    /// Returns true if nothing is to be kept.
    pub fn is_empty(&self) -> bool {
        self.sets.is_empty() && self.missing.is_empty()
    }

    /// Returns the images of all sets, sorted, each once, without the tags that stand beside digests: runtimes list and keep
    /// images by digest.
    pub fn images(&self) -> BTreeSet<String> {
        let canonical =
            |image: &String| ImageRef::parse(image).map_or_else(|_| image.clone(), |image| image.canonical());
        self.sets.iter().flat_map(|set| set.images.iter().map(canonical)).collect()
    }

    /// Returns why the sets can't be kept as they are written.
    pub fn refusal(&self) -> Option<String> {
        if let Some(name) = self.missing.first() {
            return Some(format!(
                "the pool names PinnedImageSet {name}, which does not exist; create it, or remove it from \
                 spec.pinnedImageSets of the pool"
            ));
        }
        if let Some(cause) = self.sets.iter().find_map(|set| set.unread.as_ref()) {
            return Some(format!("{cause}; correct it, or remove it from spec.pinnedImageSets of the pool"));
        }
        self.sets.iter().find_map(|set| {
            let fault = unpinnable(set.images.iter().map(String::as_str)).into_iter().next()?;
            Some(format!("PinnedImageSet {}: {fault}", set.name))
        })
    }
}

/// Returns the images of a set that no node keeps: of each the field, the cause and the next step.
pub fn unpinnable<'a>(images: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    let fault = |(place, image): (usize, &str)| {
        format!(
            "spec.pinnedImages[{place}].name: {image} is not an image by sha256 digest; give it as \
             NAME@sha256:<64 hex digits>"
        )
    };
    images.into_iter().enumerate().filter(|(_, image)| !is_pinnable(image)).map(fault).collect()
}

/// Returns true if an image is named by a registry and a digest.
fn is_pinnable(image: &str) -> bool {
    ImageRef::parse(image).is_ok_and(|image| image.transport() == Transport::Registry)
}

/// Returns the pools of a node as the machine-config-controller does: the control plane's alone where it is one, else a
/// pool of its own beside `worker`.
pub fn pools_of_node<'a>(
    labels: &BTreeMap<String, String>,
    pools: &'a [PinningPool],
) -> Vec<&'a PinningPool> {
    let selects =
        |pool: &&PinningPool| pool.selector.as_ref().is_some_and(|selector| selector.matches(labels));
    let own: Vec<&PinningPool> = pools.iter().filter(selects).collect();
    match own.iter().find(|pool| pool.name == "master") {
        Some(master) => vec![*master],
        None => own,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(roles: &[&str]) -> BTreeMap<String, String> {
        roles.iter().map(|role| (format!("node-role.kubernetes.io/{role}"), String::new())).collect()
    }

    fn pool(name: &str, sets: &[&str]) -> PinningPool {
        let selector = serde_json::from_value(serde_json::json!({
            "matchLabels": { format!("node-role.kubernetes.io/{name}"): "" },
            "matchExpressions": [{ "key": "windows", "operator": "DoesNotExist" }],
        }));
        let sets = sets.iter().map(|set| (*set).to_owned()).collect();
        PinningPool { name: name.to_owned(), selector: Some(selector.unwrap()), sets }
    }

    fn set(name: &str, images: &[&str]) -> (String, PinnedSet) {
        let images = images.iter().map(|image| (*image).to_owned()).collect();
        (name.to_owned(), PinnedSet { name: name.to_owned(), generation: 3, images, unread: None })
    }

    #[test]
    fn pools_of_node_are_those_of_its_roles() {
        let pools = [pool("master", &["m"]), pool("worker", &["w"]), pool("infra", &["i"])];
        let names = |roles: &[&str]| {
            let own = pools_of_node(&labels(roles), &pools);
            own.into_iter().map(|pool| pool.name.as_str()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(names(&["worker"]), "worker");
        assert_eq!(names(&["worker", "infra"]), "worker infra");
        assert_eq!(names(&["worker", "master"]), "master");
        assert_eq!(names(&[]), "");
        let mut windows = labels(&["worker"]);
        windows.insert("windows".to_owned(), String::new());
        assert!(pools_of_node(&windows, &pools).is_empty());
        let unselected = PinningPool { selector: None, ..pool("worker", &[]) };
        assert!(pools_of_node(&labels(&["worker"]), &[unselected]).is_empty());
    }

    #[test]
    fn expressions_select_as_kubernetes_says() {
        let has = BTreeMap::from([("a".to_owned(), "1".to_owned())]);
        for (operator, values, selects) in [
            ("In", vec!["1", "2"], true),
            ("In", vec!["2"], false),
            ("NotIn", vec!["1"], false),
            ("NotIn", vec!["2"], true),
            ("Exists", vec![], true),
            ("DoesNotExist", vec![], false),
            ("Gt", vec!["0"], false),
        ] {
            let text = serde_json::json!({ "matchExpressions": [{ "key": "a", "operator": operator, "values": values }] });
            let selector: Selector = serde_json::from_value(text).unwrap();
            assert_eq!(selector.matches(&has), selects, "{operator} {values:?}");
        }
    }

    /// MCD-243: each image once, in order, whichever sets name it; a set that is missing and a tag are named.
    #[test]
    fn sets_of_all_pools_are_collected() {
        let digest = |letter: &str| format!("r.example/{letter}@sha256:{}", letter.repeat(64));
        let (a, b) = (digest("a"), digest("b"));
        let sets =
            BTreeMap::from([set("w", &[&b, &a]), set("i", &[&b]), set("other", &["r.example/c:latest"])]);
        let pools = [pool("worker", &["w"]), pool("infra", &["i"])];
        let pins = Pins::collect(&labels(&["worker", "infra"]), &pools, &sets, false);
        assert_eq!(pins.images().into_iter().collect::<Vec<_>>(), [&*a, &*b]);
        // Runtimes list and keep images by digest.
        let tagged = BTreeMap::from([set("w", &[&b.replace('@', ":1@"), &a])]);
        let tagged = Pins::collect(&labels(&["worker"]), &[pool("worker", &["w"])], &tagged, false);
        assert_eq!((tagged.images(), tagged.refusal()), (pins.images(), None));
        assert_eq!((pins.sets.len(), pins.refusal()), (2, None));
        let pins = Pins::collect(&labels(&["worker"]), &[pool("worker", &["gone"])], &sets, false);
        assert!(!pins.is_empty() && pins.refusal().unwrap().contains("PinnedImageSet gone"));
        let pins = Pins::collect(&labels(&["worker"]), &[pool("worker", &["other"])], &sets, false);
        assert!(pins.refusal().unwrap().contains(
            "PinnedImageSet other: spec.pinnedImages[0].name: r.example/c:latest is not an image by sha256 digest; give it as \
             NAME@sha256:<64 hex digits>"
        ));
        assert!(Pins::collect(&labels(&["infra"]), &[pool("worker", &["w"])], &sets, false).is_empty());
    }

    /// A mistyped set is named; others are read.
    #[test]
    fn set_that_cannot_be_read_is_refused_by_name() {
        let tree = serde_json::json!({ "metadata": { "name": "w", "generation": 2 }, "spec": { "pinnedImages": [{ "name": 5 }] } });
        let set = PinnedSet::of_tree(&tree);
        assert_eq!((&*set.name, set.generation, set.images.len()), ("w", 2, 0));
        let pins = Pins { sets: vec![set], ..Pins::default() };
        let refusal = pins.refusal().unwrap();
        assert!(
            refusal.starts_with("PinnedImageSet w can't be read: spec.pinnedImages[0].name: "),
            "{refusal}"
        );
        let other = serde_json::json!({ "apiVersion": "machineconfiguration.openshift.io/v1beta1", "metadata": { "name": "w" } });
        assert!(PinnedSet::of_tree(&other).unread.unwrap().contains("apiVersion"));
        assert!(PinningPool::of_tree(&other).unwrap_err().to_string().contains("apiVersion"));
    }
}
