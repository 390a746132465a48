//! The screen as text.

use jiff::{SignedDuration, Timestamp};

use super::{PoolView, View};

/// A text in a table is cut here.
const MAX_CELL: usize = 160;

/// Returns the screen as text, without anything that only a terminal understands.
pub fn text(view: &View) -> String {
    let mut out = format!("{}\n", view.at);
    for stale in &view.stale {
        line(&mut out, &format!("NOT CURRENT: {stale}; what was read before is shown"));
    }
    out.push('\n');
    if view.pools.is_empty() {
        line(&mut out, "There is no MachineConfigPool; apply one that selects MachineConfigs and nodes");
        return out;
    }
    table(&mut out, &POOL_COLUMNS, &view.pools.iter().map(pool_row).collect::<Vec<_>>());
    for pool in view.pools.iter().filter(|pool| pool.state != "Complete" || !pool.problems.is_empty()) {
        out.push('\n');
        details(&mut out, pool);
    }
    if view.nodes_without_pool > 0 {
        line(&mut out, &format!("\nnodes of no pool, or of two: {}", view.nodes_without_pool));
    }
    let now = view.at.parse::<Timestamp>().ok();
    let lasts = |since: Option<&str>| {
        let since = since.and_then(|since| since.parse::<Timestamp>().ok());
        now.zip(since).map(|(now, since)| age(now.duration_since(since))).unwrap_or_default()
    };
    if !view.builds.is_empty() {
        out.push('\n');
        let row = |build: &super::BuildRow| {
            let step = build.step.as_str().to_owned();
            let lasts = lasts(build.since.as_deref());
            vec![build.name.clone(), build.pool.clone(), step, lasts, cut(&build.detail)]
        };
        table(&mut out, &BUILD_COLUMNS, &view.builds.iter().map(row).collect::<Vec<_>>());
    }
    if !view.nodes.is_empty() {
        out.push('\n');
        let row = |node: &super::NodeRow| {
            let step = node.step.as_str().to_owned();
            let lasts = lasts(node.since.as_deref());
            let pool = if node.pool.is_empty() { "-" } else { &node.pool };
            vec![node.name.clone(), pool.to_owned(), step, lasts, cut(&node.detail)]
        };
        table(&mut out, &NODE_COLUMNS, &view.nodes.iter().map(row).collect::<Vec<_>>());
    }
    if view.more_nodes > 0 {
        line(&mut out, &format!("and {} more nodes that are not done", view.more_nodes));
    }
    out
}

const POOL_COLUMNS: [&str; 9] =
    ["POOL", "TARGET", "NODES", "UPDATED", "AT WORK", "WAITING", "DEGRADED", "OUT", "STATE"];
const BUILD_COLUMNS: [&str; 5] = ["BUILD", "POOL", "STEP", "FOR", "DETAIL"];
const NODE_COLUMNS: [&str; 5] = ["NODE", "POOL", "STEP", "FOR", "DETAIL"];

fn pool_row(pool: &PoolView) -> Vec<String> {
    let counts = [pool.nodes, pool.updated, pool.at_work, pool.waiting, pool.degraded, pool.out_of_service];
    let mut row = vec![pool.name.clone(), pool.target.clone()];
    row.extend(counts.iter().map(ToString::to_string));
    row.push(pool.state.clone());
    row
}

fn details(out: &mut String, pool: &PoolView) {
    line(out, &format!("{}: {}", pool.name, pool.message));
    if pool.paused && pool.state != "Paused" {
        line(out, "  paused: set spec.paused to false to go on");
    }
    for problem in &pool.problems {
        line(out, &format!("  {problem}"));
    }
    // The message of a halted pool has the cause already.
    if let Some(halted) = pool.halted.as_ref().filter(|_| pool.state != "Halted") {
        line(out, &format!("  halted at {}: node {}: {}", halted.at, halted.node, halted.cause));
    }
    if let Some(wave) = &pool.wave {
        let watched = wave.watched_seconds.map(SignedDuration::from_secs);
        let watched = watched.map(|watched| format!(", watched for {}", age(watched))).unwrap_or_default();
        line(out, &format!("  wave {} of {}{watched}", wave.number, wave.of));
    }
    if let Some(next) = &pool.next_window {
        line(out, &format!("  next window: {next}"));
    }
    if pool.prefetching > 0 {
        line(out, &format!("  nodes that download the image ahead: {}", pool.prefetching));
    }
    if pool.drains_blocked > 0 {
        line(out, &format!("  blocked drains: {}", pool.drains_blocked));
    }
    if let Some(rest) = &pool.estimate {
        let seconds =
            |seconds: u64| age(SignedDuration::from_secs(i64::try_from(seconds).unwrap_or(i64::MAX)));
        let text = format!(
            "  about {} more: {} nodes are left, {} at a time; the {} measured took {}, at most {}; waits of waves and \
             windows not counted",
            seconds(rest.seconds),
            rest.left,
            rest.at_once,
            rest.measured,
            seconds(rest.median_seconds),
            seconds(rest.longest_seconds)
        );
        line(out, &text);
    }
}

fn line(out: &mut String, text: &str) {
    out.push_str(text.trim_end());
    out.push('\n');
}

fn cut(text: &str) -> String {
    if text.chars().count() <= MAX_CELL {
        return text.to_owned();
    }
    text.chars().take(MAX_CELL - 3).chain("...".chars()).collect()
}

/// Returns a duration in its two largest units.
fn age(lasts: SignedDuration) -> String {
    let seconds = lasts.as_secs().max(0);
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86400);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds}s"),
        (0, 0, _) => format!("{minutes}m"),
        (0, ..) => format!("{hours}h {}m", minutes % 60),
        _ => format!("{days}d {}h", hours % 24),
    }
}

/// Numbers stand to the right.
fn table(out: &mut String, columns: &[&str], rows: &[Vec<String>]) {
    let width = |index: usize, title: &str| {
        let cells = rows.iter().filter_map(|row| row.get(index));
        cells.map(|cell| cell.chars().count()).chain([title.len()]).max().unwrap_or_default()
    };
    let widths: Vec<usize> = columns.iter().enumerate().map(|(index, title)| width(index, title)).collect();
    let header = columns.iter().map(|title| (*title).to_owned()).collect();
    for row in std::iter::once(&header).chain(rows) {
        let mut text = String::new();
        for ((cell, width), title) in row.iter().zip(&widths).zip(columns) {
            let is_number = ["NODES", "UPDATED", "AT WORK", "WAITING", "DEGRADED", "OUT"].contains(title);
            text += &if is_number { format!("{cell:>width$}  ") } else { format!("{cell:<width$}  ") };
        }
        line(out, &text);
    }
}
