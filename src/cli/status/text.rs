//! The status as people read it, and as the exit code that scripts read.

use super::shown::{MovedAside, Status};
use crate::cli::last_report::Follows;
use crate::model::Target;
use crate::model::observation::LocalPackages;
use crate::plan::Warning;
use crate::report::{NodeState, PrefetchStatus};

/// Most diffs of drifted contents: a screen; `verify` shows all.
const DIFFS: usize = 1;

/// Returns the line of the agent: its state, and its control plane.
fn agent(status: &Status) -> String {
    let since = status.agent.since.as_ref().map(|since| format!(" since {since}")).unwrap_or_default();
    let follows = match &status.follows {
        Some(Follows::FirstBoot(path)) if status.agent.running == Some(true) => {
            format!("; it completes the first boot from {path}")
        }
        Some(Follows::FirstBoot(path)) => format!("; its last work was the first boot from {path}"),
        Some(Follows::Directory(path)) => format!("; it follows {path}"),
        Some(Follows::Rendered { directory, pool }) => format!("; it follows pool {pool} of {directory}"),
        Some(Follows::Cluster(access)) => format!("; it follows the Node object, with {access}"),
        None => String::new(),
    };
    format!("  agent    {}{since}{follows}", status.agent.text)
}

fn head(status: &Status) -> String {
    match &status.since {
        Some(since) => format!("Node {} is {:?}, since {since}", status.node, status.state),
        None if status.fault.is_some() => format!("Node {} is {:?}", status.node, status.state),
        None => format!("Node {} is not managed yet", status.node),
    }
}

/// Returns lines of packages layered, removed or replaced on top of the image.
fn manual_changes(local: &LocalPackages) -> impl Iterator<Item = String> {
    local.listed().map(|(word, names)| format!("  manual   packages {word}: {names}"))
}

/// Returns the state of an image's prefetch.
fn prefetch(prefetch: &PrefetchStatus) -> String {
    let percent = prefetch.percent.map(|percent| format!(", {percent} %")).unwrap_or_default();
    let why = prefetch.fault.as_ref().map(|fault| format!(": {fault}")).unwrap_or_default();
    format!("  prefetch {:?}{percent}: {}{why}", prefetch.state, prefetch.image)
}

/// Returns the line of an entry that was moved aside.
fn moved_aside(one: &MovedAside) -> String {
    format!("  moved    {} was in the way of keys: look at {}, then remove it", one.path, one.aside)
}

/// Returns the lines of paths that can't be restored, and of those that were moved aside.
fn paths(status: &Status) -> impl Iterator<Item = String> {
    let line = |one: &Warning| format!("  not restorable  {}: {}", one.field, one.message);
    status.not_restorable.iter().map(line).chain(status.moved_aside.iter().map(moved_aside))
}

pub(super) fn text(status: &Status) -> String {
    let target = |target: &Option<Target>| match target {
        None => "none yet".to_owned(),
        Some(Target { config, image: None, .. }) => config.to_string(),
        Some(Target { config, image: Some(image), .. }) => format!("{config} with {image}"),
    };
    let changed = if status.content_changed { " (content changed)" } else { "" };
    let mut lines = vec![
        head(status),
        agent(status),
        format!("  phase    {}", status.phase),
        format!("  current  {}", target(&status.current)),
        format!("  desired  {}{changed}", target(&status.desired)),
    ];
    if let Some(booted) = &status.booted {
        let image = booted.image.as_deref().unwrap_or("not from an image");
        lines.push(format!("  booted   {image} ({}, {})", booted.backend, booted.deployment));
        lines.push(format!("  backend  {}: {}", booted.backend, booted.backend_because));
        lines.extend(manual_changes(&booted.changed_by_hand));
    }
    if let Some(layers) = &status.layers {
        lines.push(format!("  layers   none here; the image has them: {layers}"));
    }
    if let Some(by_hand) = &status.staged_by_hand {
        lines.push(by_hand.line());
    } else if let Some(staged) = &status.staged {
        lines.push(format!("  staged   {staged}"));
    }
    if let Some(next) = &status.next_boot {
        let image = next.image.as_ref().map_or("no image".to_owned(), ToString::to_string);
        lines.push(format!("  manual   the next boot takes {} ({image})", next.deployment));
    }
    if let Some(progress) = &status.progress {
        lines.push(format!(
            "  step     {}/{} {} {}",
            progress.step, progress.of, progress.op, progress.target
        ));
    }
    if let Some(waiting) = &status.waiting {
        lines.push(format!("  waits    for {waiting}"));
    }
    lines.extend(status.prefetch.iter().map(prefetch));
    lines.extend(link(status));
    for fault in status.fault.iter().chain(&status.duty) {
        lines.push(format!("  why      {}: {}", fault.reason, fault.message));
        lines.push(format!("  next     {}", fault.next));
    }
    if let Some(work) = &status.stateroot_work {
        lines.push(format!("  work     {}", work.line()));
        lines.push(format!("  next     {}", work.next));
    }
    lines.extend(status.not_applied.iter().map(|one| format!("  not applied  {one}")));
    lines.extend(paths(status));
    lines.extend(status.unread.iter().map(|what| format!("  unread   {what}")));
    for diff in status.drift.iter().filter_map(|difference| difference.diff.as_ref()).take(DIFFS) {
        lines.extend(diff.lines().map(|line| format!("    {line}")));
    }
    lines.join("\n")
}

/// Returns the lines about the control plane: that it is away, or refuses the report.
fn link(status: &Status) -> impl Iterator<Item = String> {
    let down = status.link_down.iter().map(|down| ("link     down", down));
    let refused = status.unpublished.iter().map(|refused| ("report   not published", refused));
    down.chain(refused).flat_map(|(what, cause)| {
        let line = format!("  {what} since {}: {}: {}", cause.since, cause.reason, cause.message);
        [line, format!("  next     {}", cause.next)]
    })
}

/// The codes of the documents; any state but Done with an agent that works is not done.
pub(super) fn exit_code(status: &Status) -> u8 {
    match status.state {
        NodeState::Unreconcilable => 3,
        NodeState::Degraded => 4,
        NodeState::Done
            if status.agent.is_well()
                && status.link_down.is_none()
                && status.unpublished.is_none()
                && status.unread.is_empty()
                && status.duty.is_none() =>
        {
            0
        }
        NodeState::Done | NodeState::Working => 1,
    }
}
