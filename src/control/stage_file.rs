//! The desired stage of an image-based upgrade as a file beside `target.yaml`, and its report:
//!
//! ```text
//! DIR/stateroot.yaml          stage: Prep      image: registry/seed@sha256:...     version: 4.17.2
//! DIR/stateroot-report.json   written by the agent
//! ```
//!
//! As for `target.yaml`: only root and the agent's own user may have written it, what can't be read is an error of the report
//! and the last desire stays, and changes are noticed by inotify. What may pass without one is tried again by time. A file that
//! is gone withdraws nothing: after the reboot into another stateroot there is another `/etc`, in which it never was.

use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tracing::{info, warn};

use super::ControlError;
use super::directory::{STAGE_FILE as FILE, first_line, with_ways};
use super::lifecycle::{LifecycleLink, LifecycleReport, LifecycleSource};
use super::link::link;
use super::source_watch::SourceWatch;
use crate::host::HostError;
use crate::host::clock::elapsed;
use crate::host::root::Root;
use crate::host::watch::WatchSet;
use crate::model::backoff::Backoff;
use crate::model::text::chain;
use crate::model::{FileMode, ModelError, message, yaml};
use crate::stateroot::TrialRules;
use crate::stateroot::lifecycle::{Conditions, Desire, SeedRef, Source, Stage};
use crate::update::{Ending, Fault};

/// Some names.
const MAX_BYTES: u64 = 64 * 1024;

/// Longest trial, as that of `stateroot activate`.
const MAX_TRIAL_SECONDS: u64 = 604_800;

const REPORT: &str = "/stateroot-report.json";

/// The file.
#[derive(Debug)]
pub struct StageFile {
    root: Root,
    /// The directory.
    path: String,
    watch: SourceWatch,
    source: LifecycleSource,
    /// The next try to write the report.
    backoff: Backoff,
    /// The next try to read the file.
    reading: Backoff,
    /// Fault of a file that is not used.
    fault: Option<Fault>,
    published: Option<Vec<u8>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Document {
    stage: Stage,
    #[serde(default)]
    image: String,
    #[serde(default)]
    version: String,
    #[serde(default = "yes")]
    return_on_failure: bool,
    #[serde(default)]
    trial_seconds: Option<String>,
    #[serde(default)]
    manual_cleanup_done: bool,
}

fn yes() -> bool {
    true
}

/// The report.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Shown<'a> {
    schema_version: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    desired: Option<ShownDesire<'a>>,
    conditions: Conditions,
    valid_next_stages: &'a [Stage],
    #[serde(skip_serializing_if = "Option::is_none")]
    fault: Option<&'a Fault>,
}

#[derive(Serialize)]
struct ShownDesire<'a> {
    stage: Stage,
    #[serde(flatten)]
    seed: &'a SeedRef,
}

impl StageFile {
    /// Begins to watch the file in a directory, which is there.
    pub fn open(path: &Path, node: &str) -> Result<(Self, LifecycleLink), ControlError> {
        let failed = |source: std::io::Error| {
            HostError::io("open the control directory", path.display().to_string(), source)
        };
        let absolute = std::path::absolute(path).map_err(failed)?;
        let absolute = absolute.to_str().ok_or_else(|| failed(std::io::ErrorKind::InvalidInput.into()))?;
        let path = absolute.trim_end_matches('/').to_owned();
        let root = Root::open(Path::new("/"))?;
        let watch = SourceWatch::new(&root, watched(&root, &path)?);
        let (source, link) = link();
        let backoff = Backoff::for_work(&format!("{node}/stage-file"));
        let reading = backoff.clone();
        Ok((Self { root, path, watch, source, backoff, reading, fault: None, published: None }, link))
    }

    /// Follows the file, and writes the report, without end.
    pub async fn run(mut self) {
        loop {
            self.read();
            let mut delay = self.next_read();
            if let Err(error) = self.write() {
                warn!(
                    MESSAGE_ID = message::NOT_PUBLISHED,
                    MCA_FAULT = error.reason(),
                    "Failed to write {}{REPORT}: {}",
                    self.path,
                    chain(&error)
                );
                let again = self.backoff.next_wait();
                delay = Some(delay.map_or(again, |delay| delay.min(again)));
            }
            if let Err(error) = self.changed(delay).await {
                warn!("Failed to watch {}{FILE}: {}", self.path, chain(&error));
                tokio::time::sleep(self.backoff.next_wait()).await;
            }
        }
    }

    /// Returns the time until the file is read again without a change; `None` if nothing passes by itself.
    fn next_read(&mut self) -> Option<Duration> {
        let faults = self.fault.iter().chain(self.watch.fault());
        let longest = faults.filter_map(|fault| Ending::from_fault(fault).longest()).min();
        if longest.is_none() {
            self.reading.reset();
        }
        longest.map(|longest| self.reading.next_wait_up_to(longest))
    }

    /// Waits for a change of the file or of the report.
    async fn changed(&mut self, delay: Option<Duration>) -> Result<(), HostError> {
        tokio::select! {
            // Each only waits: what came is read again.
            () = self.watch.changed() => {}
            () = self.source.reported() => {}
            () = elapsed(delay) => {}
        }
        self.watch.watch_over(watched(&self.root, &self.path)?);
        // Another directory may stand there.
        if !self.root.exists(&format!("{}{REPORT}", self.path))? {
            self.published = None;
        }
        Ok(())
    }

    /// Reads the file; one that can't be used leaves the last desire.
    fn read(&mut self) {
        let read = self.desire();
        let fault = match read {
            Ok(desire) => {
                if let Some(desire) = desire {
                    self.source.put(desire);
                }
                None
            }
            Err(error) => Some(Fault::from_error(error.class(), error.reason(), &error, &error.next())),
        };
        if self.fault != fault {
            if let Some(Fault { reason, message: text, next, .. }) = &fault {
                warn!(
                    MESSAGE_ID = message::STAGE_FAILED,
                    MCA_FAULT = reason,
                    "{reason}: {text}. Next: {next}"
                );
            } else {
                info!("{}{FILE} is used again", self.path);
            }
            self.fault = fault;
        }
    }

    fn desire(&mut self) -> Result<Option<Desire>, ControlError> {
        self.watch.begin_observation();
        let document = format!("{}{FILE}", self.path);
        let Some(bytes) = self.root.read_trusted(&document, MAX_BYTES)? else { return Ok(None) };
        parse(&String::from_utf8_lossy(&bytes)).map(Some).map_err(|cause| {
            let source = ModelError::Document { document: document.clone(), cause };
            ControlError::Invalid { document, source }
        })
    }

    /// Writes the report; the same again costs nothing. Without a file or a stage there is none.
    fn write(&mut self) -> Result<(), HostError> {
        let report = self.source.report.borrow_and_update().last.clone();
        if report.is_none() && self.fault.is_none() && self.published.is_none() {
            return Ok(());
        }
        let path = format!("{}{REPORT}", self.path);
        let bytes = json(report.as_deref(), self.fault.as_ref().or(self.watch.fault()))
            .map_err(|error| HostError::Malformed { path, format: "JSON", cause: error.to_string() })?;
        if self.published.as_ref() == Some(&bytes) {
            return Ok(());
        }
        let missing =
            || HostError::io("open the control directory", &*self.path, std::io::ErrorKind::NotFound);
        let directory = self.root.trusted_directory(&self.path)?.ok_or_else(missing)?;
        directory.replace(REPORT, &bytes, FileMode::DEFAULT)?;
        self.published = Some(bytes);
        self.backoff.reset();
        Ok(())
    }
}

fn json(report: Option<&LifecycleReport>, fault: Option<&Fault>) -> Result<Vec<u8>, serde_json::Error> {
    let desire = report.map(|report| &report.state.desire);
    serde_json::to_vec_pretty(&Shown {
        schema_version: 1,
        desired: desire.map(|desire| ShownDesire { stage: desire.stage, seed: &desire.seed }),
        conditions: report.map(|report| report.state.conditions.clone()).unwrap_or_default(),
        valid_next_stages: report.map_or(&[], |report| &report.valid),
        fault: fault.or_else(|| report.and_then(|report| report.fault.as_ref())),
    })
}

pub(super) fn parse(text: &str) -> Result<Desire, String> {
    if text.trim().is_empty() {
        return Err("it is empty".to_owned());
    }
    let read: Document = yaml::strings(text).map_err(|error| first_line(&error))?;
    if read.stage == Stage::Prep && (read.image.is_empty() || read.version.is_empty()) {
        return Err("stage Prep needs an image and a version".to_owned());
    }
    let mut trial = TrialRules { returns: read.return_on_failure, ..TrialRules::default() };
    if let Some(seconds) = read.trial_seconds {
        let within = seconds.parse().ok().filter(|within| (1..=MAX_TRIAL_SECONDS).contains(within));
        trial.within =
            within.ok_or_else(|| format!("trialSeconds is not a number from 1 to {MAX_TRIAL_SECONDS}"))?;
    }
    Ok(Desire {
        stage: read.stage,
        seed: SeedRef { image: read.image, version: read.version },
        trial,
        keeps_incomplete: !read.return_on_failure,
        is_cleaned_up: read.manual_cleanup_done,
        source: Source::File,
        ..Desire::default()
    })
}

fn watched(root: &Root, directory: &str) -> Result<WatchSet, HostError> {
    Ok(WatchSet { paths: with_ways(root, &format!("{directory}{FILE}"))?, ..WatchSet::default() })
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "tests: they make the host's files")]
mod tests {
    use super::*;

    #[test]
    fn file_is_read_or_refused() {
        let desire = parse("stage: Prep\nimage: r.test/seed@sha256:0\nversion: 4.17\n").unwrap();
        assert_eq!((desire.stage, &*desire.seed.version), (Stage::Prep, "4.17"));
        assert_eq!((desire.source, &desire.trial), (Source::File, &TrialRules::default()));
        let desire = parse("stage: Upgrade\nreturnOnFailure: false\ntrialSeconds: 60\n").unwrap();
        assert_eq!(desire.trial, TrialRules { within: 60, returns: false });
        let refused = [
            (" \n", "empty"),
            ("stage: prep", "must be one of `Idle`"),
            ("stage: Prep", "needs an image"),
            ("stage: Idle\nstages: x", "no field `stages`"),
            ("stage: Upgrade\ntrialSeconds: 0", "trialSeconds"),
            ("stage: [", ""),
            ("image: x", "stage"),
        ];
        for (text, words) in refused {
            let error = parse(text).unwrap_err();
            assert!(error.contains(words), "{text:?}: {error}");
        }
    }

    /// A file that is half-written or too large is an error of the report; the last desire stays.
    #[tokio::test(flavor = "current_thread")]
    async fn bad_file_leaves_the_last_desire() {
        let dir = tempfile::tempdir().unwrap();
        let put = |text: &str| std::fs::write(dir.path().join("stateroot.yaml"), text).unwrap();
        let (mut file, link) = StageFile::open(dir.path(), "a").unwrap();
        file.read();
        file.write().unwrap();
        assert!(link.desired.borrow().is_none() && !dir.path().join("stateroot-report.json").exists());
        put("stage: Idle\n");
        file.read();
        assert_eq!(link.desired.borrow().as_ref().unwrap().stage, Stage::Idle);
        put("stage: Pr");
        file.read();
        file.write().unwrap();
        let report = std::fs::read_to_string(dir.path().join("stateroot-report.json")).unwrap();
        assert!(report.contains("InvalidDocument") && report.contains("stateroot.yaml"), "{report}");
        assert_eq!(link.desired.borrow().as_ref().unwrap().stage, Stage::Idle);
        put(&"#".repeat(70_000));
        file.read();
        assert_eq!(file.fault.as_ref().unwrap().reason, "FileTooLarge");
        put("stage: Idle\n");
        file.read();
        assert!(file.fault.is_none());
    }

    /// A fault that may pass without a change of the file is tried again by time; of one that needs another file nothing is read.
    #[tokio::test(flavor = "current_thread", start_paused = true)]
    async fn passing_fault_is_tried_again_by_time() {
        for (text, is_tried) in [("#".repeat(70_000), true), ("stage: Pr".to_owned(), false)] {
            let dir = tempfile::tempdir().unwrap();
            std::fs::write(dir.path().join("stateroot.yaml"), &text).unwrap();
            let (file, _link) = StageFile::open(dir.path(), "a").unwrap();
            let report = dir.path().join("stateroot-report.json");
            let look = async {
                tokio::time::sleep(Duration::from_secs(1)).await;
                // It is not watched: whoever looks again writes it again.
                std::fs::remove_file(&report).unwrap();
                tokio::time::sleep(Duration::from_secs(3600)).await;
            };
            tokio::select! {
                () = file.run() => {}
                () = look => {}
            }
            assert_eq!(report.exists(), is_tried, "{}", text.len());
        }
    }
}
