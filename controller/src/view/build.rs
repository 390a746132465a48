//! Builds of OS images: their states, and the last log lines of their pods.

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;

use super::clean::clean;

/// A build as it was read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ObservedBuild {
    /// Its name.
    pub name: String,
    /// The pool that it is for.
    pub pool: String,
    /// The rendered config of the image.
    pub config: String,
    /// Its condition that is True; `None` without one.
    pub state: Option<&'static str>,
    /// Its start.
    pub began: Option<Timestamp>,
    /// Entry into its state.
    pub since: Option<Timestamp>,
    /// Message of the condition.
    pub message: String,
    /// Last log line of its pod.
    pub last_line: Option<String>,
}

/// State of a build.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
pub enum BuildStep {
    /// All its tries failed.
    Failed,
    /// Its Job was deleted.
    Interrupted,
    /// A pod builds the image.
    Building,
    /// Its Job has no pod yet.
    Prepared,
    /// It has no Job yet.
    Created,
}

impl BuildStep {
    /// Returns its word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Failed => "Failed",
            Self::Interrupted => "Interrupted",
            Self::Building => "Building",
            Self::Prepared => "Prepared",
            Self::Created => "Created",
        }
    }
}

/// A build that has not succeeded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BuildRow {
    /// Its name.
    pub name: String,
    /// Its pool.
    pub pool: String,
    /// Its state.
    pub step: BuildStep,
    /// Since when; of one that runs, when it began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
    /// The cause of a failure, or the last log line of its pod.
    pub detail: String,
}

/// Returns the builds that a person waits for, or has to see to: those that run, and those of a pool's target.
pub(super) fn rows<'a>(builds: &[ObservedBuild], target: impl Fn(&str) -> Option<&'a str>) -> Vec<BuildRow> {
    let one = |build: &ObservedBuild| {
        let step = match build.state {
            Some("Succeeded") => return None,
            Some("Failed") => BuildStep::Failed,
            Some("Interrupted") => BuildStep::Interrupted,
            Some("Building") => BuildStep::Building,
            Some("Prepared") => BuildStep::Prepared,
            Some(_) | None => BuildStep::Created,
        };
        let has_ended = matches!(step, BuildStep::Failed | BuildStep::Interrupted);
        if has_ended && target(&build.pool) != Some(&build.config) {
            return None;
        }
        let since = if has_ended { build.since } else { build.began.or(build.since) };
        let line = build.last_line.as_ref().filter(|_| !has_ended);
        Some(BuildRow {
            name: clean(&build.name),
            pool: clean(&build.pool),
            step,
            since: since.map(|since| since.to_string()),
            detail: clean(line.unwrap_or(&build.message)),
        })
    };
    let mut rows: Vec<BuildRow> = builds.iter().filter_map(one).collect();
    rows.sort_by(|one, other| (one.step, &one.name).cmp(&(other.step, &other.name)));
    rows
}
