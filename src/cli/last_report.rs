//! The last report of this host's agent, left in `/run` for `status`: the node's name, the target of its control
//! plane, the progress of the work.
//!
//! Only the daemon writes it. Whoever takes the journal's lock first marks it as another process's: one without the
//! mark is of the process that holds the lock, or of one that died. It holds no contents, so every user may read it.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use tracing::warn;

use crate::host::{FailPoints, HostError, Root};
use crate::model::text::chain;
use crate::model::{ConfigName, FileMode};
use crate::report::NodeReport;
use crate::telemetry::LastReport;

/// Path of the report.
pub(super) const REPORT_PATH: &str = "/run/machine-config-agent/report.json";

/// Source of an agent's targets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub(super) enum Follows {
    /// A directory.
    Directory(String),
    /// Rendering of a bootstrap for a pool.
    Rendered {
        /// The directory.
        directory: String,
        /// The pool.
        pool: ConfigName,
    },
    /// A cluster, reached with this.
    Cluster(String),
    /// The file that Ignition left for the first boot.
    FirstBoot(String),
}

/// Contents of the file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SavedReport {
    /// Source of its targets.
    pub(super) follows: Follows,
    /// Set if it is of an agent that ended as requested, or before the one that holds the lock.
    #[serde(default)]
    pub(super) stopped: bool,
    /// The report.
    pub(super) report: NodeReport,
}

impl SavedReport {
    /// Reads the file; names what is in its place where that is no file. The agent writes its next report there.
    pub(super) fn load_or_name(root: &Root, unread: &mut Vec<String>) -> Result<Option<Self>, HostError> {
        match Self::load(root) {
            Err(error @ HostError::Kind { .. }) => {
                unread.push(format!("{}; move it away: the agent writes a new report", chain(&error)));
                Ok(None)
            }
            other => other,
        }
    }

    /// Reads the file. An unknown document is another version's, which replaces it.
    pub(super) fn load(root: &Root) -> Result<Option<Self>, HostError> {
        Ok(root.read(REPORT_PATH)?.and_then(|bytes| serde_json::from_slice(&bytes).ok()))
    }
}

/// Returns the writer of an agent's reports.
pub(super) fn writer(root: &Root, follows: &Follows) -> LastReport {
    let (root, follows) = (quiet(root), follows.clone());
    let mut last = None::<SavedReport>;
    let mut failed = false;
    LastReport::new(move |report| {
        let left = SavedReport { follows: follows.clone(), stopped: false, report: report.clone() };
        if last.as_ref() != Some(&left) {
            let done = write(&root, &left);
            // Each report would fail the same way.
            if !std::mem::replace(&mut failed, done.is_err()) {
                log_failure(done);
            }
            last = Some(left);
        }
    })
}

/// Marks the file as another process's: at the start, with the lock held, and at an end that was requested. It is
/// replaced rather than removed, since only a new file needs a label.
pub(super) fn mark_stopped(root: &Root) {
    let root = quiet(root);
    log_failure(match SavedReport::load(&root) {
        Ok(Some(left)) if !left.stopped => write(&root, &SavedReport { stopped: true, ..left }),
        Ok(_) => Ok(()),
        Err(error) => Err(error),
    });
}

/// A crash test counts the writes of an update, not these.
fn quiet(root: &Root) -> Root {
    root.clone().with_fail_points(&FailPoints::off())
}

fn write(root: &Root, left: &SavedReport) -> Result<(), HostError> {
    let bytes = serde_json::to_vec(left).map_err(|error| HostError::Malformed {
        path: REPORT_PATH.to_owned(),
        format: "JSON",
        cause: error.to_string(),
    })?;
    root.replace(REPORT_PATH, &bytes, FileMode::DEFAULT)
}

fn log_failure(done: Result<(), HostError>) {
    if let Err(error) = done {
        warn!("The report for `status` was not updated: {}. Next: {}", chain(&error), error.next());
    }
}

/// Names the directory so that another process finds it.
pub(super) fn directory(path: &Path, pool: Option<&ConfigName>) -> Follows {
    let directory = absolute(path);
    match pool {
        Some(pool) => Follows::Rendered { directory, pool: pool.clone() },
        None => Follows::Directory(directory),
    }
}

/// Stands between kubeconfigs of which the first that is there is used.
const OR: &str = " or ";

/// Names the kubeconfigs so that another process finds them.
pub(super) fn of_kubeconfigs(paths: &[PathBuf]) -> Follows {
    Follows::Cluster(paths.iter().map(|path| absolute(path)).collect::<Vec<_>>().join(OR))
}

/// Returns the kubeconfigs that were named so.
pub(super) fn kubeconfigs(access: &str) -> Vec<PathBuf> {
    access.split(OR).map(PathBuf::from).collect()
}

fn absolute(path: &Path) -> String {
    std::path::absolute(path).as_deref().unwrap_or(path).display().to_string()
}
