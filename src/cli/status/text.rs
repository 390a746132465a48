//! The status as people read it, and as the exit code that scripts read.

use machine_config_cli::screen::short_digests;

use super::shown::{MovedAside, Status};
use crate::cli::last_report::Follows;
use crate::model::observation::LocalPackages;
use crate::model::text::escaped;
use crate::model::{Target, Timestamp};
use crate::plan::Warning;
use crate::plan::differences::{Difference, DifferenceKind};
use crate::report::{NodeState, PrefetchStatus, Progress};
use crate::update::Fault;

/// Most diffs of drifted contents: a screen; `verify` shows all.
const DIFFS: usize = 1;

/// The margin of a diff, below the line of its object.
const DIFF: &str = "    ";

/// Most drifted objects that are named; `verify` lists all.
const DRIFTED: usize = 5;

/// The images that were named already, and the words for them.
#[derive(Default)]
struct Images(Vec<(String, &'static str)>);

impl Images {
    /// Returns an image, or the line that has it.
    fn shown(&mut self, image: String, line: &'static str) -> String {
        if let Some((_, first)) = self.0.iter().find(|(known, _)| *known == image) {
            return format!("the image of `{first}`");
        }
        self.0.push((image.clone(), line));
        image
    }

    fn target(&mut self, target: Option<&Target>, line: &'static str) -> String {
        match target {
            None => "none yet".to_owned(),
            Some(Target { config, image: None, .. }) => config.to_string(),
            Some(Target { config, image: Some(image), .. }) => {
                format!("{config} with {}", self.shown(image.to_string(), line))
            }
        }
    }
}

/// Returns a duration in its two largest units.
fn lasts(seconds: u64) -> String {
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, _) => format!("{minutes} min {} s", seconds % 60),
        (0, ..) => format!("{hours} h {} min", minutes % 60),
        _ => format!("{days} d {} h", hours % 24),
    }
}

/// Returns the line of the phase, which began when the state did.
fn phase(status: &Status, now: Option<Timestamp>) -> String {
    let since = status.since.as_deref().and_then(Timestamp::read);
    let begun = now.zip(since).filter(|_| status.phase != "Idle" && status.fault.is_none());
    let so_far = begun.map(|(now, since)| format!(", for {}", lasts(now.since(since).as_secs())));
    format!("  phase    {}{}", status.phase, so_far.unwrap_or_default())
}

/// Returns the line of the work before an update, with its duration.
fn doing(status: &Status, doing: &str, now: Option<Timestamp>) -> String {
    let since = status.doing_since.as_deref().and_then(Timestamp::read);
    let lasted = now.zip(since).map(|(now, since)| format!(", for {}", lasts(now.since(since).as_secs())));
    format!("  doing    {doing}{}", lasted.unwrap_or_default())
}

/// Returns the line of the next try.
fn retry(status: &Status, now: Option<Timestamp>) -> Option<String> {
    let at = status.next_try.as_ref()?;
    let left = now.zip(Timestamp::read(at)).map(|(now, at)| at.since(now).as_secs()).unwrap_or_default();
    let left = if left == 0 { String::new() } else { format!(", in {}", lasts(left)) };
    Some(format!("  retry    at {at}{left}"))
}

/// Returns what is wrong: of a drift the objects, without the digests of what they have.
fn why(fault: &Fault, drift: &[Difference]) -> Vec<String> {
    if drift.is_empty() || fault.reason != "ConfigDrift" {
        return vec![format!("  why      {}: {}", fault.reason, fault.message)];
    }
    let mut lines = vec![format!("  why      {}: the host differs from its config", fault.reason)];
    let mut diffs = DIFFS;
    lines.extend(drift.iter().take(DRIFTED).flat_map(|one| {
        let (kind, what, target) = (one.kind.as_str(), one.what.as_str(), escaped(&one.target));
        let values = match one.what {
            DifferenceKind::Content | DifferenceKind::Missing | DifferenceKind::Attributes => String::new(),
            DifferenceKind::Unexpected
            | DifferenceKind::Mode
            | DifferenceKind::Owner
            | DifferenceKind::Enablement
            | DifferenceKind::Mask
            | DifferenceKind::Value => format!(": {} in place of {}", one.found, one.expected),
        };
        let also = one.also.as_ref().map(|also| format!("; {also}")).unwrap_or_default();
        let line = format!("  differs  {kind} {target} {what}{values}{also}");
        let diff = one.diff.as_ref().filter(|_| diffs > 0);
        diffs -= usize::from(diff.is_some());
        let diff = diff.into_iter().flat_map(|diff| diff.lines()).map(|line| format!("{DIFF}{line}"));
        std::iter::once(line).chain(diff).collect::<Vec<_>>()
    }));
    if let Some(more) = drift.len().checked_sub(DRIFTED).filter(|more| *more > 0) {
        lines.push(format!("  differs  {more} more"));
    }
    lines
}

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

/// Returns the text; `now`: durations are told, too.
pub(super) fn text(status: &Status, now: Option<Timestamp>) -> String {
    let mut images = Images::default();
    let changed = if status.content_changed { " (content changed)" } else { "" };
    let mut lines = vec![
        head(status),
        agent(status),
        phase(status, now),
        format!("  current  {}", images.target(status.current.as_ref(), "current")),
        format!("  desired  {}{changed}", images.target(status.desired.as_ref(), "desired")),
    ];
    lines.extend(system(status, &mut images));
    if let Some(progress) = &status.progress {
        let percent = progress.percent.map(|percent| format!(", {percent} %")).unwrap_or_default();
        let Progress { step, of, op, target, .. } = progress;
        lines.push(format!("  step     {step}/{of} {op} {target}{percent}"));
    }
    lines.extend(status.doing.iter().map(|doing| self::doing(status, doing, now)));
    if let Some(waiting) = &status.waiting {
        lines.push(format!("  waits    for {waiting}"));
    }
    lines.extend(status.prefetch.iter().map(prefetch));
    lines.extend(link(status));
    for fault in &status.faults {
        lines.extend(why(fault, &status.drift));
        lines.push(format!("  next     {}", fault.next));
    }
    lines.extend(status.held.iter().map(|held| format!("  held     {held}")));
    lines.extend(retry(status, now));
    if let Some(work) = &status.stateroot_work {
        lines.push(format!("  work     {}", work.line()));
        lines.push(format!("  next     {}", work.next));
    }
    lines.extend(status.not_applied.iter().map(|one| format!("  not applied  {one}")));
    lines.extend(paths(status));
    lines.extend(status.unread.iter().map(|what| format!("  unread   {what}")));
    // A next step is copied, and a diff is the file's.
    for line in lines.iter_mut().filter(|line| !line.starts_with("  next ") && !line.starts_with(DIFF)) {
        *line = short_digests(line);
    }
    lines.join("\n")
}

/// Returns the lines of the deployments.
fn system(status: &Status, images: &mut Images) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(booted) = &status.booted {
        let image = booted.image.clone().map(|image| images.shown(image, "booted"));
        let image = image.unwrap_or_else(|| "not from an image".to_owned());
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
        lines.push(format!("  staged   {}", images.shown(staged.to_string(), "staged")));
    }
    if let Some(next) = &status.next_boot {
        let image = next.image.as_ref().map_or("no image".to_owned(), ToString::to_string);
        lines.push(format!("  manual   the next boot takes {} ({image})", next.deployment));
    }
    lines
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
                && status.faults.is_empty() =>
        {
            0
        }
        NodeState::Done | NodeState::Working => 1,
    }
}
