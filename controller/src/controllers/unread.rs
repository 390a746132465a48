//! Kinds that a controller decides by and can't read: who says so, and when.

use std::time::Duration;

use super::cache::{Kind, Snapshot};
use super::failure::Failure;

/// Kinds that the render controller decides by.
pub(super) const RENDER: [Kind; 9] = [
    Kind::Definitions,
    Kind::Pools,
    Kind::Configs,
    Kind::Nodes,
    Kind::ControllerConfig,
    Kind::Policy,
    Kind::RolloutPolicies,
    Kind::OsConfigs,
    Kind::OsBuilds,
];

/// Kinds that the node controller decides by: those that targets are rendered from, the nodes' own, and the Leases of the Machine Config
/// Operator, which may begin to work at any time.
pub(super) const NODE: [Kind; 10] = [
    Kind::Definitions,
    Kind::Pools,
    Kind::Configs,
    Kind::Nodes,
    Kind::ControllerConfig,
    Kind::Policy,
    Kind::RolloutPolicies,
    Kind::OsConfigs,
    Kind::OsBuilds,
    Kind::OperatorLeases,
];

/// Kinds that the drain controller decides by. A drain by the rules of no policy, or of no pool, could delete what it is to skip.
pub(super) const DRAIN: [Kind; 4] = [Kind::Definitions, Kind::Nodes, Kind::Pools, Kind::RolloutPolicies];

/// Kinds that the controller of pools that opt in decides by.
pub(super) const OPT_IN: [Kind; 9] = [
    Kind::Definitions,
    Kind::Pools,
    Kind::Configs,
    Kind::ControllerConfig,
    Kind::OsConfigs,
    Kind::OsBuilds,
    Kind::BuildSettings,
    Kind::OsImage,
    Kind::Containerfiles,
];

/// Kinds that the build controller decides by.
pub(super) const BUILD: [Kind; 8] = [
    Kind::Definitions,
    Kind::Pools,
    Kind::Configs,
    Kind::Nodes,
    Kind::OsConfigs,
    Kind::OsBuilds,
    Kind::Jobs,
    Kind::Secrets,
];

/// Returns the kinds that can't be read, with the cause where there is one: those that were never read, and those whose watch
/// the API server refuses. One that breaks for a while is read on from where it was.
pub(super) fn unread<'a>(
    snapshot: &'a Snapshot,
    needed: &'a [Kind],
) -> impl Iterator<Item = (Kind, Option<&'a Failure>)> {
    let state = |kind: &Kind| {
        let failure = snapshot.failing.get(kind);
        let is_refused = failure.is_some_and(Failure::is_refusal) && !snapshot.lacks(*kind);
        (!snapshot.knows(*kind) || is_refused).then_some((*kind, failure))
    };
    needed.iter().filter_map(state)
}

/// A watch that has been down for so long makes a replica not ready: longer than an API server takes to come back, and its watches with it.
pub(super) const DOWN_AT_MOST: Duration = Duration::from_secs(30);

/// Returns the texts on kinds whose watch has been down for too long, and that were read before.
pub(super) fn down<'a>(
    snapshot: &'a Snapshot,
    needed: &'a [Kind],
    now: Duration,
) -> impl Iterator<Item = String> + use<'a> {
    needed.iter().filter(|kind| snapshot.synced.contains(kind) && !snapshot.lacks(**kind)).filter_map(
        move |kind| {
            let lasts = snapshot.is_down_for(*kind, now).filter(|lasts| *lasts >= DOWN_AT_MOST)?;
            let cause =
                snapshot.failing.get(kind).map_or("its list is not answered", |failure| &failure.cause);
            Some(format!(
                "{} have not been watched for {} s: {cause}; decisions use what was read before",
                kind.resource(),
                lasts.as_secs()
            ))
        },
    )
}

/// Returns the message for pools while nobody knows whether the Machine Config Operator has begun to work.
pub(super) fn unwatched_operator(snapshot: &Snapshot, now: Duration) -> Option<String> {
    let text = down(snapshot, &[Kind::OperatorLeases], now).next()?;
    Some(format!("no node is given a target: {text}"))
}

/// Returns the text on budgets that the API server refuses, or does not have: they are watched while a drain lasts.
pub(super) fn refused_budgets(snapshot: &Snapshot) -> Option<String> {
    let failure = snapshot.failing.get(&Kind::Budgets)?;
    (failure.is_refusal() || failure.code == 404).then(|| failure_text(Kind::Budgets, Some(failure)))
}

/// Returns the text on reports of nodes on pinned images that the API server refuses: they are watched while a pool names some.
pub(super) fn refused_reports(snapshot: &Snapshot) -> Option<String> {
    refusals(snapshot, &[Kind::ConfigNodes])
}

/// Returns the text on pods that the API server refuses: those of a node are read while it is drained.
pub(super) fn refused_pods(snapshot: &Snapshot) -> Option<String> {
    let failure = snapshot.unread_pods.values().next()?;
    Some(failure_text(Kind::Pods, Some(failure)))
}

/// Returns the text on the Lease that the API server does not let be written: such a replica does not lead.
pub(super) fn refused_lease(snapshot: &Snapshot) -> Option<String> {
    snapshot.unwritten_lease.clone()
}

/// Settings of image mode: the leader reads them.
pub(super) const SETTINGS: [Kind; 3] = [Kind::BuildSettings, Kind::OsImage, Kind::Containerfiles];

/// Returns the text on settings of image mode that the API server refuses.
pub(super) fn refused_settings(snapshot: &Snapshot) -> Option<String> {
    refusals(snapshot, &SETTINGS)
}

/// Returns the text on kinds that the API server refuses.
pub(super) fn refusals(snapshot: &Snapshot, kinds: &[Kind]) -> Option<String> {
    let refused = |kind: &Kind| {
        let failure = snapshot.failing.get(kind).filter(|failure| failure.is_refusal())?;
        (!snapshot.lacks(*kind)).then(|| failure_text(*kind, Some(failure)))
    };
    let texts: Vec<String> = kinds.iter().filter_map(refused).collect();
    (!texts.is_empty()).then(|| texts.join("; "))
}

/// Returns the message for pools on kinds that can't be read.
pub(super) fn message(snapshot: &Snapshot, needed: &[Kind]) -> Option<String> {
    let causes = unread(snapshot, needed).map(|(kind, failure)| failure_text(kind, failure));
    let causes = causes.collect::<Vec<_>>().join("; ");
    (!causes.is_empty()).then(|| format!("no node is given a target: {causes}"))
}

/// Returns the message for pools on kinds that the API server refuses; `None` where it refuses none.
pub(super) fn refused(snapshot: &Snapshot, needed: &[Kind]) -> Option<String> {
    let is_refusal = |(_, failure): &(Kind, Option<&Failure>)| failure.is_some_and(Failure::is_refusal);
    let causes = unread(snapshot, needed).filter(is_refusal);
    let causes: Vec<String> = causes.map(|(kind, failure)| failure_text(kind, failure)).collect();
    (!causes.is_empty()).then(|| format!("no node is given a target: {}", causes.join("; ")))
}

/// Returns the message for pools on kinds that the API server refuses, or has not answered since the start; `None` where there are none.
pub(super) fn held_up(snapshot: &Snapshot, needed: &[Kind], now: Duration) -> Option<String> {
    refused(snapshot, needed).or_else(|| {
        let silent = unread(snapshot, needed).filter(|_| now >= DOWN_AT_MOST);
        let silent = silent.map(|(kind, failure)| match failure {
            Some(_) => failure_text(kind, failure),
            None => format!("{} can't be read: the API server does not answer", kind.named()),
        });
        let silent: Vec<String> = silent.collect();
        (!silent.is_empty()).then(|| format!("no node is given a target: {}", silent.join("; ")))
    })
}

/// Returns the text on a kind that can't be read, with the next step.
pub(super) fn failure_text(kind: Kind, failure: Option<&Failure>) -> String {
    failure_text_of(&kind.named(), failure)
}

/// Returns the names of kinds, for people.
pub(super) fn names<'a>(kinds: impl IntoIterator<Item = &'a Kind>) -> String {
    let kinds: Vec<&Kind> = kinds.into_iter().collect();
    if let [one] = *kinds {
        return one.named();
    }
    let mut names: Vec<String> = Vec::new();
    for kind in kinds {
        let named = kind.named();
        let name = named.split_once('.').map_or(&*named, |(plural, _)| plural).to_owned();
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names.join(", ")
}

/// Returns the text on kinds of one cause.
pub(super) fn failure_text_of(resource: &str, failure: Option<&Failure>) -> String {
    match failure {
        None => format!("{resource} are not read yet"),
        Some(failure) if failure.code == 401 => format!(
            "{resource} can't be read: {}; the API server does not accept the controller's credentials: renew the token or the kubeconfig",
            failure.cause
        ),
        Some(failure) if failure.code == 403 => format!(
            "{resource} can't be read: {}; grant the controller's account the verbs list and watch of them",
            failure.cause
        ),
        Some(Failure { code: 429, cause, retry_after }) => {
            let seconds = retry_after.map_or(1, |named| named.as_secs());
            format!(
                "{resource} can't be read yet: {cause}; the API server is busy or has just started; the controller retries after the {seconds} s \
                 that it named"
            )
        }
        Some(failure) => format!("{resource} can't be read: {}", failure.cause),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refused_kind_is_unread_and_broken_watch_is_not() {
        let mut snapshot = Snapshot::default();
        snapshot.synced.extend(NODE);
        // One that nothing defines is not read, and not missed.
        snapshot.definitions.insert(Kind::RolloutPolicies.definition().unwrap().to_owned(), String::new());
        assert_eq!(message(&snapshot, &NODE), None);
        let failure = |code| Failure::with_code(code, "no".to_owned());
        snapshot.failing.insert(Kind::RolloutPolicies, failure(0));
        assert_eq!(message(&snapshot, &NODE), None);
        snapshot.failing.insert(Kind::RolloutPolicies, failure(403));
        let text = message(&snapshot, &NODE).unwrap();
        assert!(text.contains("rolloutpolicies.machine-config-agent.io can't be read: no; grant"), "{text}");
        // Who is not known lacks no role.
        let text = failure_text(Kind::RolloutPolicies, Some(&failure(401)));
        assert!(text.contains("credentials") && !text.contains("grant"), "{text}");
        snapshot.failing.clear();
        snapshot.synced.remove(&Kind::Policy);
        snapshot.definitions.insert(Kind::Policy.definition().unwrap().to_owned(), String::new());
        let text = message(&snapshot, &NODE).unwrap();
        assert!(text.contains("machineconfigurations.operator.openshift.io are not read yet"), "{text}");
    }

    #[test]
    fn watch_that_is_down_for_long_is_named() {
        let mut snapshot = Snapshot::default();
        snapshot.synced.extend(NODE);
        let at = Duration::from_secs;
        let down =
            |snapshot: &Snapshot, now: u64| down(snapshot, &[Kind::Nodes], at(now)).collect::<Vec<_>>();
        snapshot.fails(Kind::Nodes, &Failure::with_code(410, "too old".to_owned()), at(5));
        assert!(snapshot.failing.is_empty(), "it starts over");
        snapshot.fails(Kind::Nodes, &Failure::with_code(0, "no answer".to_owned()), at(10));
        assert!(down(&snapshot, 34).is_empty());
        let text = "nodes have not been watched for 35 s: no answer; decisions use what was read before";
        assert_eq!(down(&snapshot, 40), [text]);
        snapshot.recovers(Kind::Nodes);
        assert!(down(&snapshot, 40).is_empty());
    }

    #[test]
    fn busy_server_is_named_with_its_time() {
        let busy = Failure::with_code(429, "too many requests".to_owned());
        let text = failure_text(Kind::Nodes, Some(&busy.with_retry_after(Some(Duration::from_secs(7)))));
        assert!(text.contains("too many requests; the API server is busy") && text.contains("7 s"), "{text}");
    }
}
