//! The picture of a build's states in `docs/builds.md`, drawn from the edges of the walk.
#![expect(
    clippy::disallowed_methods,
    reason = "it compares a document, and writes it when that is asked for"
)]

use std::collections::{BTreeMap, BTreeSet};

use super::world::World;
use crate::build::{Action, DeletionReason, State};

/// An arrow: from, to, and by what.
pub(super) type Edge = (&'static str, &'static str, &'static str);

const DOCUMENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/builds.md");

/// Returns the state of the desired build.
pub(super) fn state(world: &World) -> &'static str {
    let Some(build) = world.builds.get(&world.desired().name) else { return "None" };
    if build.deleting {
        return "Deleting";
    }
    build.state.condition().unwrap_or("Created")
}

/// Returns what the controller does, where that may lead to another state.
#[expect(clippy::wildcard_enum_match_arm, reason = "what is left leads to no other state")]
pub(super) fn name(action: &Action) -> &'static str {
    match action {
        Action::CreateBuild { .. } => "create",
        Action::DeleteBuild { reason: DeletionReason::Rebuild, .. } => "rebuild",
        Action::DeleteBuild { reason: DeletionReason::Superseded, .. } => "cancel",
        Action::WriteStatus(status) if status.state == State::Succeeded => match status.reason.as_str() {
            "Ready" => "Job complete, or image reused",
            _ => "seed",
        },
        Action::WriteStatus(status) if status.state == State::Failed => "Job failed, or invalid",
        Action::WriteStatus(status) if status.state == State::Interrupted => "Job deleted",
        Action::WriteStatus(_) => "Job runs",
        _ => "step",
    }
}

fn drawn(edges: &BTreeSet<Edge>) -> String {
    let mut arrows: BTreeMap<(&str, &str), Vec<&str>> = BTreeMap::new();
    for (from, to, by) in edges.iter().filter(|(from, to, _)| from != to) {
        arrows.entry((from, to)).or_default().push(by);
    }
    let lines = arrows.iter().map(|((from, to), by)| format!("    {from} --> {to}: {}\n", by.join(", ")));
    format!("```mermaid\nstateDiagram-v2\n    [*] --> None\n{}```\n", lines.collect::<String>())
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
        "the picture in docs/builds.md is not the one of the walk. \
         `UPDATE_GOLDENS=1 cargo test -p machine-config-controller --lib build::walk` writes it:\n{picture}"
    );
}
