//! The picture of an update's states in `docs/architecture.md`, drawn from the walk's states.
#![expect(
    clippy::disallowed_methods,
    reason = "it compares a document, and writes it when that is asked for"
)]

use std::collections::{BTreeMap, BTreeSet};

use super::world::World;
use crate::decide::action::{Action, Query};
use crate::update::resume::held;

/// An arrow: from, to, and its action.
pub(super) type Edge = (&'static str, &'static str, &'static str);

const DOCUMENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/architecture.md");

/// Returns where an update stands, for people.
pub(super) fn state(world: &World) -> &'static str {
    let Some(record) = &world.record else { return "Idle" };
    if record.is_undone() {
        return "Undone";
    }
    if held(record) {
        return "Held";
    }
    record.phase.name()
}

/// Returns the agent's action, if it may lead to another state.
pub(super) fn name(action: &Action) -> &'static str {
    match action {
        Action::Query(Query::Rest) => "repair",
        Action::Query(_) | Action::Requeue | Action::Wait(_) | Action::Resume => "look",
        Action::Begin => "begin",
        Action::Move(event) => event.as_str(),
        Action::Supersede => "supersede",
        Action::TakeBack => "take back",
        Action::Execute => "execute",
        Action::Restage | Action::RestageDropped => "restage",
        Action::Fail(..) => "fail",
        Action::Replan(_) => "replan",
        Action::Commit => "commit",
        Action::Archive | Action::LeaveDrift => "archive",
        Action::Forgive => "forgive",
        Action::LeaveReboot(_) | Action::Reboot => "reboot",
        Action::RebootInVain { .. } | Action::EndForReboot => "wait for the reboot",
        Action::DropRollback => "give the old deployment up",
        Action::Prefetch(_) => "prefetch",
        Action::EndPrefetch => "end the prefetch",
    }
}

fn drawn(edges: &BTreeSet<Edge>) -> String {
    let mut arrows: BTreeMap<(&str, &str), Vec<&str>> = BTreeMap::new();
    for (from, to, by) in edges.iter().filter(|(from, to, _)| from != to) {
        arrows.entry((from, to)).or_default().push(by);
    }
    let lines = arrows.iter().map(|((from, to), by)| format!("    {from} --> {to}: {}\n", by.join(", ")));
    format!("```mermaid\nstateDiagram-v2\n    [*] --> Idle\n{}```\n", lines.collect::<String>())
}

/// Compares the picture with the one in the document.
pub(super) fn compare(edges: &BTreeSet<Edge>) {
    let picture = drawn(edges);
    let text = std::fs::read_to_string(DOCUMENT).unwrap();
    let (before, rest) = text.split_once("```mermaid\n").expect("a picture");
    let (old, after) = rest.split_once("```\n").expect("its end");
    if format!("```mermaid\n{old}```\n") == picture {
        return;
    }
    if std::env::var_os("UPDATE_GOLDENS").is_some_and(|value| value == "1") {
        std::fs::write(DOCUMENT, format!("{before}{picture}{after}")).unwrap();
        return;
    }
    panic!(
        "the picture in docs/architecture.md is not the one of the walk. \
         `UPDATE_GOLDENS=1 cargo test -p machine-config-core picture` writes it:\n{picture}"
    );
}
