//! The screen as text.

use jiff::{SignedDuration, Timestamp};
use machine_config_cli::screen::{Screen, short_digests};

use super::{PoolView, View};

/// A text in a table is cut here.
const MAX_CELL: usize = 160;

/// Column of what follows a line, or a row, on a narrow terminal.
const INDENT: usize = 4;

/// Returns the screen as text, without anything that only a terminal understands.
pub fn text(view: &View) -> String {
    text_on(view, Screen::default())
}

/// Returns the screen as text of this form: a table that is wider than the terminal has its long column below each row.
pub fn text_on(view: &View, screen: Screen) -> String {
    let mut page = Page { text: format!("{}\n", view.at), screen };
    let out = &mut page;
    for stale in &view.stale {
        let mark = screen.paint("NOT CURRENT", BAD);
        out.line(&format!("{mark}: {stale}; what was read before is shown"));
    }
    out.end();
    if view.pools.is_empty() {
        out.line("There is no MachineConfigPool; apply one that selects MachineConfigs and nodes");
        return page.text;
    }
    table(out, &POOL_COLUMNS, &view.pools.iter().map(pool_row).collect::<Vec<_>>());
    for pool in view.pools.iter().filter(|pool| pool.state != "Complete" || !pool.problems.is_empty()) {
        out.end();
        details(out, pool);
    }
    if view.nodes_without_pool > 0 {
        out.end();
        out.line(&format!("nodes of no pool, or of two: {}", view.nodes_without_pool));
    }
    let now = view.at.parse::<Timestamp>().ok();
    let lasts = |since: Option<&str>| {
        let since = since.and_then(|since| since.parse::<Timestamp>().ok());
        now.zip(since).map(|(now, since)| age(now.duration_since(since))).unwrap_or_default()
    };
    if !view.builds.is_empty() {
        out.end();
        let row = |build: &super::BuildRow| {
            let step = build.step.as_str().to_owned();
            let lasts = lasts(build.since.as_deref());
            vec![build.name.clone(), build.pool.clone(), step, lasts, cut(&build.detail)]
        };
        table(out, &BUILD_COLUMNS, &view.builds.iter().map(row).collect::<Vec<_>>());
    }
    if !view.nodes.is_empty() {
        out.end();
        let row = |node: &super::NodeRow| {
            let step = node.step.as_str().to_owned();
            let lasts = lasts(node.since.as_deref());
            let pool = if node.pool.is_empty() { "-" } else { &node.pool };
            vec![node.name.clone(), pool.to_owned(), step, lasts, cut(&node.detail)]
        };
        table(out, &NODE_COLUMNS, &view.nodes.iter().map(row).collect::<Vec<_>>());
    }
    if view.more_nodes > 0 {
        out.line(&format!("and {} more nodes that are not done", view.more_nodes));
    }
    page.text
}

/// The text so far, and its form.
struct Page {
    text: String,
    screen: Screen,
}

impl Page {
    /// Adds a line.
    fn line(&mut self, line: &str) {
        for line in self.screen.wrapped(&short_digests(line), INDENT) {
            self.text.push_str(line.trim_end());
            self.end();
        }
    }

    fn end(&mut self) {
        self.text.push('\n');
    }
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

fn details(out: &mut Page, pool: &PoolView) {
    out.line(&format!("{}: {}", pool.name, pool.message));
    if pool.paused && pool.state != "Paused" {
        out.line("  paused: set spec.paused to false to go on");
    }
    for problem in &pool.problems {
        out.line(&format!("  {problem}"));
    }
    // The message of a halted pool has the cause already.
    if let Some(halted) = pool.halted.as_ref().filter(|_| pool.state != "Halted") {
        out.line(&format!("  halted at {}: node {}: {}", halted.at, halted.node, halted.cause));
    }
    if let Some(wave) = &pool.wave {
        let watched = wave.watched_seconds.map(SignedDuration::from_secs);
        let watched = watched.map(|watched| format!(", watched for {}", age(watched))).unwrap_or_default();
        out.line(&format!("  wave {} of {}{watched}", wave.number, wave.of));
    }
    if let Some(next) = &pool.next_window {
        out.line(&format!("  next window: {next}"));
    }
    if pool.prefetching > 0 {
        out.line(&format!("  nodes that download the image ahead: {}", pool.prefetching));
    }
    if pool.drains_blocked > 0 {
        out.line(&format!("  blocked drains: {}", pool.drains_blocked));
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
        out.line(&text);
    }
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

/// Columns of numbers, which stand to the right.
const NUMBERS: [&str; 6] = ["NODES", "UPDATED", "AT WORK", "WAITING", "DEGRADED", "OUT"];

/// The column that a narrow terminal has below each row.
const LONG: [&str; 2] = ["TARGET", "DETAIL"];

/// Colors: what a person has to see to, what goes on, and what is done.
const BAD: &str = "1;31";
const BUSY: &str = "36";
const GOOD: &str = "32";

/// Returns the color of a word of a pool's state, or of a step.
fn color(title: &str, word: &str) -> Option<&'static str> {
    if !["STATE", "STEP"].contains(&title) {
        return None;
    }
    Some(match word {
        "Complete" => GOOD,
        "Degraded" | "Failed" | "Halted" | "Interrupted" | "Unreadable" | "Unreconcilable"
        | "DrainBlocked" => BAD,
        _ => BUSY,
    })
}

/// The form of a table on a terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd)]
enum Fit {
    Whole,
    /// The long column stands below each row.
    Below,
    /// Nor do the others have a common width.
    Ragged,
}

impl Fit {
    fn of(screen: Screen, columns: &[&str], widths: &[usize]) -> Self {
        let Some(width) = screen.width else { return Self::Whole };
        let sum = |is_in: &dyn Fn(&str) -> bool| {
            let those = columns.iter().zip(widths).filter(|(title, _)| is_in(title));
            those.map(|(_, width)| width + 2).sum::<usize>().saturating_sub(2)
        };
        if sum(&|_| true) <= width {
            Self::Whole
        } else if sum(&|title| !LONG.contains(&title)) <= width {
            Self::Below
        } else {
            Self::Ragged
        }
    }
}

/// Writes a table.
fn table(out: &mut Page, columns: &[&str], rows: &[Vec<String>]) {
    let rows: Vec<Vec<String>> =
        rows.iter().map(|row| row.iter().map(|cell| short_digests(cell)).collect()).collect();
    let width = |index: usize, title: &str| {
        let cells = rows.iter().filter_map(|row| row.get(index));
        cells.map(|cell| cell.chars().count()).chain([title.len()]).max().unwrap_or_default()
    };
    let widths: Vec<usize> = columns.iter().enumerate().map(|(index, title)| width(index, title)).collect();
    let fit = Fit::of(out.screen, columns, &widths);
    let header: Vec<String> = columns.iter().map(|title| (*title).to_owned()).collect();
    for (at, row) in std::iter::once(&header).chain(&rows).enumerate() {
        let mut text = String::new();
        let mut below = None;
        for ((cell, width), title) in row.iter().zip(&widths).zip(columns) {
            if fit > Fit::Whole && LONG.contains(title) {
                below = Some(cell).filter(|cell| at > 0 && !cell.is_empty());
                continue;
            }
            let padding = if fit == Fit::Ragged { 0 } else { width.saturating_sub(cell.chars().count()) };
            let padding = " ".repeat(padding);
            let color = color(title, cell).filter(|_| at > 0 && fit != Fit::Ragged);
            let cell = color.map_or_else(|| cell.clone(), |color| out.screen.paint(cell, color));
            text += &if NUMBERS.contains(title) {
                format!("{padding}{cell}  ")
            } else {
                format!("{cell}{padding}  ")
            };
        }
        if fit == Fit::Ragged {
            out.line(text.trim_end());
        } else {
            out.text.push_str(text.trim_end());
            out.end();
        }
        if let Some(cell) = below {
            out.line(&format!("{}{cell}", " ".repeat(INDENT)));
        }
    }
}
