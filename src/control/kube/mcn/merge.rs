//! The next write: the report's conditions laid over the stored ones. Pure.
//!
//! Conditions of other writers stay as they are. An update that ends is written as ended first and reset after that, so
//! that a watcher sees each condition reach True before `Updated` does.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::stored::{Pair, Stored, StoredCondition};
use crate::model::{ConfigName, ImageRef};
use crate::report::{CONDITIONS, Condition, ConditionGroup, NOT_YET, NodeReport, Status, not_yet};

/// Placeholder for an unknown name: an empty string is refused.
pub(super) const NOT_SET: &str = "not-yet-set";

/// Layout of the applied conditions in a CRD.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ConditionLayout {
    /// `AppliedFilesAndOS`, and no images.
    Joint,
    /// `AppliedFiles`, `AppliedOSImage`, `ImagePulledFromRegistry`, and `configImage`.
    Split,
}

/// The actor of the cordon, which reports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum Cordons {
    /// The drain controller.
    Controllers,
    /// The agent.
    Own,
}

/// Inputs of a write besides the stored conditions.
pub(super) struct MergeInput<'a> {
    pub(super) report: &'a NodeReport,
    pub(super) form: ConditionLayout,
    pub(super) cordons: Cordons,
    /// RFC 3339 with seconds, in UTC: such times compare as text.
    pub(super) now: String,
}

impl ConditionLayout {
    /// The group of the applied conditions.
    fn applied(self) -> ConditionGroup {
        match self {
            Self::Joint => ConditionGroup::Joint,
            Self::Split => ConditionGroup::Split,
        }
    }

    /// The group that this layout does not have.
    fn other(self) -> ConditionGroup {
        match self {
            Self::Joint => ConditionGroup::Split,
            Self::Split => ConditionGroup::Joint,
        }
    }
}

/// The conditions of these groups.
fn kinds<const N: usize>(groups: [ConditionGroup; N]) -> impl Iterator<Item = &'static str> {
    CONDITIONS.iter().filter(move |(_, group)| groups.contains(group)).map(|(kind, _)| *kind)
}

fn is_in(group: ConditionGroup, kind: &str) -> bool {
    CONDITIONS.contains(&(kind, group))
}

type List = BTreeMap<String, StoredCondition>;

/// Returns the lists of conditions to write, one after the other.
pub(super) fn lists(stored: &Stored, input: &MergeInput<'_>) -> Vec<List> {
    let times = stored.conditions.iter().filter(|held| !held.kind.starts_with("Pinned"));
    let newest = times.map(|held| held.last_transition_time.clone()).max().unwrap_or_default();
    // A clock that was set back does not take the order of events back.
    let at = newest.max(input.now.clone());
    let base = base(stored, input.form, &at);
    let reported = shaped(input);
    if reported.iter().any(|condition| condition.kind == "Updated" && condition.status == Status::True) {
        let ended = ended(&base, input, &at);
        let reset = laid_over(&reset(&ended, input, &at), &reported, &at);
        return vec![ended, reset];
    }
    vec![laid_over(&base, &reported, &at)]
}

/// Returns the stored conditions, completed by missing ones.
fn base(stored: &Stored, form: ConditionLayout, at: &str) -> List {
    // MCD begins with all of them: the writer of one replaces it, and fails when it is missing.
    let kinds = CONDITIONS.iter().filter(|(_, group)| *group != form.other()).map(|(kind, _)| kind);
    let mut list: List = kinds.map(|kind| ((*kind).to_owned(), held(&not_yet(kind), at))).collect();
    let kept = stored.conditions.iter().filter(|held| !is_in(form.other(), &held.kind));
    list.extend(kept.map(|held| (held.kind.clone(), held.clone())));
    list
}

fn held(condition: &Condition, at: &str) -> StoredCondition {
    StoredCondition {
        kind: condition.kind.clone(),
        status: condition.status,
        reason: word(&condition.reason, &condition.kind),
        message: text(&condition.message),
        last_transition_time: at.to_owned(),
        observed_generation: None,
    }
}

/// A reason is a word: the API server refuses all else.
fn word(reason: &str, kind: &str) -> String {
    let fits = reason.len() <= 1024
        && reason.starts_with(|first: char| first.is_ascii_alphabetic())
        && reason.ends_with(|last: char| last.is_ascii_alphanumeric() || last == '_')
        && reason.chars().all(|one| one.is_ascii_alphanumeric() || "_,:".contains(one));
    if fits { reason.to_owned() } else { kind.to_owned() }
}

/// A message is not empty, and at most 32768 characters.
fn text(message: &str) -> String {
    if message.is_empty() { "-".to_owned() } else { message.chars().take(32_768).collect() }
}

fn laid_over(base: &List, reported: &[Condition], at: &str) -> List {
    let mut list = base.clone();
    for condition in reported {
        let mut new = held(condition, at);
        if let Some(old) = list.get(&condition.kind)
            && old.status == new.status
        {
            new.last_transition_time.clone_from(&old.last_transition_time);
        }
        list.insert(condition.kind.clone(), new);
    }
    list
}

/// The report's conditions in the form of the CRD.
fn shaped(input: &MergeInput<'_>) -> Vec<Condition> {
    let mut reported = input.report.conditions.clone();
    if input.form == ConditionLayout::Joint {
        let parts: Vec<Condition> =
            reported.extract_if(.., |condition| is_in(ConditionGroup::Split, &condition.kind)).collect();
        let applied = |status| {
            let mut parts = parts.iter().filter(|part| part.kind != "ImagePulledFromRegistry");
            parts.find(|part| part.status == status)
        };
        // A part that the plan does not have stays False: one part alone may make the whole True.
        let part = applied(Status::Unknown).or(applied(Status::True)).or(applied(Status::False));
        reported.extend(part.map(joined));
        for condition in reported.iter_mut().filter(|condition| condition.kind == "UpdateExecuted") {
            if is_in(ConditionGroup::Split, &condition.reason) {
                "AppliedFilesAndOS".clone_into(&mut condition.reason);
            }
        }
    }
    if input.cordons == Cordons::Own {
        let drained =
            |condition: &&Condition| condition.kind == "Drained" && condition.status != Status::False;
        let cordoned = reported.iter().find(drained).map(|drained| Condition {
            kind: "Cordoned".to_owned(),
            status: Status::True,
            reason: "UpdateExecutedCordoned".to_owned(),
            message: drained.message.clone(),
        });
        reported.extend(cordoned);
    }
    reported
}

fn joined(part: &Condition) -> Condition {
    let kind = "AppliedFilesAndOS";
    if part.status == Status::False {
        return not_yet(kind);
    }
    let reason = format!("UpdateExecuted{kind}");
    Condition { kind: kind.to_owned(), status: part.status, reason, message: part.message.clone() }
}

/// Returns the conditions that a committed update has passed, however few of them were written meanwhile.
fn ended(base: &List, input: &MergeInput<'_>, at: &str) -> List {
    let status = |kind: &str| base.get(kind).map(|held| held.status);
    if status("UpdatePrepared") != Some(Status::True) {
        return base.clone();
    }
    let parents = ["UpdateExecuted", "UpdatePostActionComplete", "UpdateComplete", "Resumed"];
    let under_way = |kind: &&str| parents.contains(kind) || status(kind) == Some(Status::Unknown);
    let kinds = kinds([ConditionGroup::Update, input.form.applied()]).filter(under_way);
    let left = kinds.filter(|kind| status(kind) != Some(Status::True));
    let mut reported: Vec<Condition> = left.map(|kind| passed(kind, base, input)).collect();
    if input.cordons == Cordons::Own && status("Cordoned") == Some(Status::True) {
        reported.push(passed("Uncordoned", base, input));
    }
    laid_over(base, &reported, at)
}

fn passed(kind: &str, base: &List, input: &MergeInput<'_>) -> Condition {
    let before = base.get(kind).map(|held| held.reason.clone()).filter(|reason| reason != NOT_YET);
    let reason = match (kind, input.form) {
        ("UpdateComplete", _) => "Uncordoned",
        ("Uncordoned", _) => "UpdateCompleteUncordoned",
        ("UpdateExecuted", ConditionLayout::Joint) => "AppliedFilesAndOS",
        ("UpdateExecuted", ConditionLayout::Split) => "AppliedFiles",
        (other, _) => other,
    };
    Condition {
        kind: kind.to_owned(),
        status: Status::True,
        reason: before.unwrap_or_else(|| reason.to_owned()),
        message: format!("update to {}: done", target(input.report)),
    }
}

/// Begins again: a reached condition becomes one of the past. The cordon's conditions count on it, too.
fn reset(ended: &List, input: &MergeInput<'_>, at: &str) -> List {
    let mut list = ended.clone();
    let prefix = format!("Action during update to {}: ", target(input.report));
    for kind in kinds([ConditionGroup::Update, input.form.applied(), ConditionGroup::Cordon]) {
        let Some(held) = list.get_mut(kind) else { continue };
        if held.status != Status::False {
            held.status = Status::False;
            held.message = text(&format!("{prefix}{}", held.message));
            at.clone_into(&mut held.last_transition_time);
        }
    }
    list
}

fn target(report: &NodeReport) -> String {
    report.desired_config.as_ref().map_or_else(|| NOT_SET.to_owned(), ToString::to_string)
}

/// Returns the status to apply, or `None` when it is what is stored.
pub(super) fn status(stored: &Stored, list: &List, input: &MergeInput<'_>) -> Option<Value> {
    let configs = configs(list, input.report);
    let images = match input.form {
        ConditionLayout::Joint => Pair::default(),
        ConditionLayout::Split => Pair {
            desired: image(input.report.desired_image.as_ref()),
            current: image(input.report.current_image.as_ref()),
        },
    };
    let kept = |kind: &str| stored.conditions.iter().find(|held| held.kind == kind);
    let foreign = |held: &StoredCondition| {
        let same = kept(&held.kind).is_some_and(|kept| is_same(kept, held));
        same && !stored.owned.contains(&held.kind) && !written(&held.kind, input)
    };
    let sent: Vec<&StoredCondition> = list.values().filter(|held| !foreign(held)).collect();
    let reported = sent.iter().all(|held| kept(&held.kind).is_some_and(|kept| is_same(kept, held)));
    let gone = kinds([input.form.other()]).any(|kind| stored.owned.contains(kind));
    let observed = stored.observed.max(stored.generation.saturating_add(1));
    if reported
        && !gone
        && observed == stored.observed
        && configs == stored.configs
        && images == stored.images
    {
        return None;
    }
    let mut status = stored.carried.clone();
    status.insert("conditions".to_owned(), json!(sent));
    status.insert("observedGeneration".to_owned(), json!(observed));
    status.insert("configVersion".to_owned(), object(&configs, ["desired", "current"]));
    if images != Pair::default() {
        status.insert("configImage".to_owned(), object(&images, ["desiredImage", "currentImage"]));
    }
    Some(Value::Object(status))
}

/// Returns the new `irreconcilableChanges`: the list, or null for a node that is as its config. `None` if that is
/// stored already, or unknown.
pub(super) fn changes(stored: &Stored, report: &NodeReport) -> Option<Value> {
    let changes = report.irreconcilable_changes.as_ref()?;
    let next = if changes.is_empty() { Value::Null } else { json!(changes) };
    (next != stored.changes).then_some(next)
}

/// Returns true if a condition is the agent's alone.
fn written(kind: &str, input: &MergeInput<'_>) -> bool {
    let groups = [ConditionGroup::Update, input.form.applied(), ConditionGroup::Node];
    groups.into_iter().any(|group| is_in(group, kind))
}

fn is_same(one: &StoredCondition, other: &StoredCondition) -> bool {
    (one.status, &one.reason, &one.message) == (other.status, &other.reason, &other.message)
}

fn object(pair: &Pair, names: [&str; 2]) -> Value {
    let values = [&pair.desired, &pair.current];
    names
        .iter()
        .zip(values)
        .filter_map(|(name, value)| Some(((*name).to_owned(), json!(value.as_ref()?))))
        .collect()
}

/// The desired config shows once the update to it is prepared (MCD-250).
fn configs(list: &List, report: &NodeReport) -> Pair {
    let prepared = list.get("UpdatePrepared").is_some_and(|held| held.status == Status::True);
    let desired = report.desired_config.as_ref().filter(|_| prepared || is_reached(report));
    Pair {
        desired: Some(desired.map_or_else(|| NOT_SET.to_owned(), |config| name(config.as_str()))),
        current: report
            .current_config
            .as_ref()
            .map(|config| name(config.as_str()))
            .filter(|name| name != NOT_SET),
    }
}

fn is_reached(report: &NodeReport) -> bool {
    report.desired_config == report.current_config && report.desired_image == report.current_image
}

/// Returns the spec to apply, or `None` when it is what is stored.
pub(super) fn spec(
    stored: &Stored,
    labels: &BTreeMap<String, String>,
    input: &MergeInput<'_>,
) -> Option<Value> {
    let report = input.report;
    let prepared =
        |condition: &Condition| condition.kind == "UpdatePrepared" && condition.status == Status::True;
    let known = is_reached(report) || report.conditions.iter().any(prepared);
    let desired = report.desired_config.as_ref().filter(|_| known).map(|config| name(config.as_str()));
    let desired = desired.unwrap_or_else(|| stored.desired.clone());
    let desired_image = match input.form {
        ConditionLayout::Joint => None,
        ConditionLayout::Split if known => image(report.desired_image.as_ref()),
        ConditionLayout::Split => stored.image.clone(),
    };
    let pool = pool(labels, report.desired_config.as_ref().map(ConfigName::as_str), &stored.pool);
    let same = desired == stored.desired && desired_image == stored.image && pool == stored.pool;
    (!same).then(|| spec_of(&report.node, &pool, &desired, desired_image.as_deref()))
}

/// The spec of an object that is to be created.
pub(super) fn first_spec(labels: &BTreeMap<String, String>, report: &NodeReport) -> Value {
    let config = report.desired_config.as_ref().map(ConfigName::as_str);
    let desired = config.map_or_else(|| NOT_SET.to_owned(), name);
    spec_of(&report.node, &pool(labels, config, ""), &desired, None)
}

fn spec_of(node: &str, pool: &str, desired: &str, image: Option<&str>) -> Value {
    let mut spec = json!({
        "node": { "name": node },
        "pool": { "name": pool },
        "configVersion": { "desired": desired },
    });
    if let (Some(image), Some(spec)) = (image, spec.as_object_mut()) {
        spec.insert("configImage".to_owned(), json!({ "desiredImage": image }));
    }
    spec
}

/// A name that the API server takes, or the placeholder.
pub(super) fn name(text: &str) -> String {
    let fits = |one: char| one.is_ascii_lowercase() || one.is_ascii_digit();
    let label = |label: &str| {
        label.starts_with(fits) && label.ends_with(fits) && label.chars().all(|one| fits(one) || one == '-')
    };
    if text.len() <= 253 && text.split('.').all(label) { text.to_owned() } else { NOT_SET.to_owned() }
}

/// An image that the API server takes: by digest, of a host with a dot, and with at most one namespace. Another one is
/// left out, so that the rest is written.
fn image(image: Option<&ImageRef>) -> Option<String> {
    let text = image?.canonical();
    let (place, digest) = text.split_once('@')?;
    let hex = digest.strip_prefix("sha256:")?;
    let (host, path) = place.split_once('/')?;
    let (host, port) = host.split_once(':').unwrap_or((host, "00"));
    let (space, last) = path.split_once('/').unwrap_or(("", path));
    let word =
        |text: &str, more: &str| text.chars().all(|one| one.is_ascii_alphanumeric() || more.contains(one));
    let fits = hex.len() == 64
        && hex.chars().all(|one| one.is_ascii_digit() || ('a'..='f').contains(&one))
        && host.contains('.')
        && host.split('.').all(|label| !label.is_empty() && word(label, "-"))
        && (2..=5).contains(&port.len())
        && port.chars().all(|one| one.is_ascii_digit())
        && space.len() <= 61
        && word(space, "-_")
        && word(last, "-_.")
        && text.len() <= 447;
    fits.then_some(text)
}

/// Returns the pool that a rendered config is for.
pub(in super::super) fn rendered_pool(config: &str) -> Option<&str> {
    let (pool, digest) = config.strip_prefix("rendered-")?.rsplit_once('-')?;
    let is_digest = digest.len() == 32 && digest.chars().all(|one| one.is_ascii_hexdigit());
    is_digest.then_some(pool)
}

/// The pool of a node. A config that a controller rendered names it; else the node's roles do: the control plane before
/// a role of one's own before `worker`. Where these don't say it, what is stored stays.
pub(super) fn pool(labels: &BTreeMap<String, String>, config: Option<&str>, stored: &str) -> String {
    if let Some(pool) = config.and_then(rendered_pool) {
        return name(pool);
    }
    let roles: Vec<&str> =
        labels.keys().filter_map(|key| key.strip_prefix("node-role.kubernetes.io/")).collect();
    let own = roles.iter().copied().filter(|role| !["master", "worker", "control-plane"].contains(role));
    let own: Vec<&str> = own.filter(|role| name(role) == *role).collect();
    match own.as_slice() {
        _ if roles.contains(&"master") => "master".to_owned(),
        [own] => (*own).to_owned(),
        [] if roles.contains(&"worker") => "worker".to_owned(),
        [_, ..] | [] => name(stored),
    }
}
