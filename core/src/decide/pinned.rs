//! Pinned images of a node: space, number of pulls, configuration of the container runtime, and status in the
//! MachineConfigNode.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::model::backoff::Backoff;
use crate::model::pinned::Pins;

/// Bytes on disk for each byte of compressed layers, at most: as MCD counts.
const UNPACKED: u64 = 2;

/// So much stays free at most, as MCD leaves it.
const MAX_RESERVE: u64 = 16 << 30;

/// This part of a file system stays free: beyond it the kubelet removes images that nobody pinned.
const RESERVED_PERCENT: u64 = 15;

/// Reads of a new label, at most, until the CRI shows it: containerd learns of it by an event of its own.
pub const MAX_LABEL_READS: usize = 50;

/// Time between two of these reads.
pub const LABEL_READ_INTERVAL: Duration = Duration::from_millis(100);

/// Retries of the work on pinned images.
#[derive(Debug, Clone)]
pub struct PinRetry {
    backoff: Backoff,
    failed: Option<String>,
}

impl PinRetry {
    /// Creates it; nothing has failed yet.
    pub fn new(node: &str) -> Self {
        Self { backoff: Backoff::for_work(&format!("{node}/pins")), failed: None }
    }

    /// Takes a success.
    pub fn succeed(&mut self) {
        self.backoff.reset();
        self.failed = None;
    }

    /// Takes a failure: returns the wait for the next try, and true for a cause other than the last one's.
    pub fn fail(&mut self, cause: &str) -> (Duration, bool) {
        let is_news = self.failed.as_deref() != Some(cause);
        self.failed = Some(cause.to_owned());
        (self.backoff.next_wait(), is_news)
    }
}

/// The file system of the container runtime's images.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ImageSpace {
    /// Its bytes.
    pub total: u64,
    /// Those that are free.
    pub free: u64,
}

/// Checks that images fit whose compressed layers have so many bytes (MCD-244).
pub fn check_space(space: ImageSpace, layers: u64) -> Result<(), String> {
    let reserve = (space.total / 100 * RESERVED_PERCENT).min(MAX_RESERVE);
    let needed = layers.saturating_mul(UNPACKED).saturating_add(reserve);
    if needed < space.free {
        return Ok(());
    }
    let mib = |bytes: u64| bytes >> 20;
    Err(format!(
        "the missing images need {} MiB and {} MiB have to stay free, but only {} MiB are",
        mib(layers.saturating_mul(UNPACKED)),
        mib(reserve),
        mib(space.free)
    ))
}

/// Returns how many images are pulled at once (MCD-246): the control plane's disks are etcd's.
pub fn pulls_at_once(pins: &Pins) -> usize {
    if pins.is_control_plane { 1 } else { 5 }
}

/// Returns CRI-O's drop-in; `None` means that there is to be none (MCD-245).
pub fn crio_drop_in(images: &BTreeSet<String>) -> Option<String> {
    if images.is_empty() {
        return None;
    }
    let images: Vec<String> = images.iter().map(|image| format!("{image:?}")).collect();
    Some(format!("[crio]\n  [crio.image]\n    pinned_images = [{}]\n", images.join(", ")))
}

/// Progress of the sets of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PinProgress {
    /// They are being prefetched.
    Prefetching,
    /// All images are there and pinned.
    Pinned,
    /// It failed, and is tried again.
    Failed(String),
}

/// One condition of the MachineConfigNode.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PinCondition {
    /// Its type.
    pub kind: &'static str,
    /// Its status; `None` leaves it as it is.
    pub holds: Option<bool>,
    /// Its reason.
    pub reason: &'static str,
    /// Its text.
    pub message: &'static str,
}

impl PinProgress {
    /// Returns the conditions, in MCD's words. What failed stays degraded until it succeeds.
    pub fn conditions(&self) -> [PinCondition; 2] {
        let (progressing, degraded) = ("PinnedImageSetsProgressing", "PinnedImageSetsDegraded");
        let condition = |kind, holds, reason, message| PinCondition { kind, holds, reason, message };
        let expected = "AsExpected";
        match self {
            Self::Prefetching => [
                condition(progressing, Some(true), "ImagePrefetch", "node is prefetching images"),
                condition(degraded, None, expected, ""),
            ],
            Self::Pinned => [
                condition(progressing, Some(false), expected, "All pinned image sets complete"),
                condition(degraded, Some(false), expected, "All is good"),
            ],
            Self::Failed(_) => [
                condition(progressing, Some(true), "ImagePrefetch", "node is prefetching images"),
                condition(
                    degraded,
                    Some(true),
                    "PrefetchFailed",
                    "One or more PinnedImageSet is experiencing an error. See PinnedImageSet list for more details",
                ),
            ],
        }
    }
}

/// Status of one set in the MachineConfigNode.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetStatus {
    /// Its name.
    pub name: String,
    /// The generation that is desired.
    pub desired: i64,
    /// The generation that is there; `None` before the first.
    pub current: Option<i64>,
    /// The generation that failed last, and why.
    pub failed: Option<(i64, String)>,
}

/// The longest error that the MachineConfigNode takes.
const MAX_ERROR_LENGTH: usize = 32_768;

/// Returns the status of each set, from what was said before: generations do not fall.
pub fn set_statuses(before: &[SetStatus], pins: &Pins, progress: &PinProgress) -> Vec<SetStatus> {
    let status = |set: &crate::model::pinned::PinnedSet| {
        let before = before.iter().find(|status| status.name == set.name);
        let held = before.and_then(|status| status.current).filter(|current| *current <= set.generation);
        let failed = before.and_then(|status| status.failed.clone());
        let (current, failed) = match progress {
            PinProgress::Prefetching => (held, failed),
            PinProgress::Pinned => (Some(set.generation), None),
            PinProgress::Failed(why) => {
                (held, Some((set.generation, why.chars().take(MAX_ERROR_LENGTH).collect())))
            }
        };
        SetStatus { name: set.name.clone(), desired: set.generation, current, failed }
    };
    pins.sets.iter().map(status).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::pinned::PinnedSet;

    const GIB: u64 = 1 << 30;

    /// MCD-244: twice the layers, and a reserve.
    #[test]
    fn images_fit_beside_reserve() {
        let space = |total: u64, free: u64| ImageSpace { total: total * GIB, free: free * GIB };
        check_space(space(1000, 100), 41 * GIB).unwrap();
        let why = check_space(space(1000, 100), 42 * GIB).unwrap_err();
        assert!(
            why.contains("need 86016 MiB and 16384 MiB have to stay free, but only 102400 MiB are"),
            "{why}"
        );
        check_space(space(20, 10), 3 * GIB).unwrap();
        check_space(space(20, 10), 4 * GIB).unwrap_err();
        check_space(space(20, 2), 0).unwrap_err();
        check_space(space(20, 10), u64::MAX).unwrap_err();
    }

    #[test]
    fn waits_grow_until_success_and_cause_is_news_once() {
        let mut retry = PinRetry::new("a");
        let (first, is_news) = retry.fail("no space");
        assert!(is_news && first >= Duration::from_secs(1), "{first:?}");
        let (second, is_news) = retry.fail("no space");
        assert!(!is_news && second > first, "{second:?}");
        assert!(retry.fail("no runtime").1);
        retry.succeed();
        assert_eq!(retry.fail("no runtime"), (first, true));
    }

    /// MCD-246.
    #[test]
    fn control_plane_pulls_one_at_once() {
        assert_eq!(pulls_at_once(&Pins::default()), 5);
        assert_eq!(pulls_at_once(&Pins { is_control_plane: true, ..Pins::default() }), 1);
    }

    /// MCD-243, MCD-245: CRI-O's words; none without images.
    #[test]
    fn drop_in_lists_images_in_order() {
        let images = ["r/b@sha256:2", "r/a@sha256:1"].map(str::to_owned);
        let text = crio_drop_in(&BTreeSet::from(images)).unwrap();
        let read: toml::Table = toml::from_str(&text).unwrap();
        let pinned = read["crio"]["image"]["pinned_images"].as_array().unwrap();
        assert_eq!(
            pinned.iter().map(|one| one.as_str().unwrap()).collect::<Vec<_>>(),
            ["r/a@sha256:1", "r/b@sha256:2"]
        );
        assert_eq!(crio_drop_in(&BTreeSet::new()), None);
    }

    /// MCD-244: a failure is told until it succeeds, and generations do not fall.
    #[test]
    fn status_follows_progress() {
        let set =
            |generation| PinnedSet { name: "s".to_owned(), generation, images: Vec::new(), unread: None };
        let pins = |generation| Pins { sets: vec![set(generation)], ..Pins::default() };
        let first = set_statuses(&[], &pins(1), &PinProgress::Prefetching);
        assert_eq!((first[0].desired, first[0].current, &first[0].failed), (1, None, &None));
        let there = set_statuses(&first, &pins(1), &PinProgress::Pinned);
        assert_eq!(there[0].current, Some(1));
        let failed = set_statuses(&there, &pins(2), &PinProgress::Failed("no space".to_owned()));
        assert_eq!(
            (failed[0].current, failed[0].failed.clone()),
            (Some(1), Some((2, "no space".to_owned())))
        );
        let again = set_statuses(&failed, &pins(2), &PinProgress::Prefetching);
        assert_eq!(again[0].failed, failed[0].failed);
        assert_eq!(PinProgress::Prefetching.conditions()[1].holds, None);
        let done = set_statuses(&again, &pins(2), &PinProgress::Pinned);
        assert_eq!((done[0].current, done[0].failed.clone()), (Some(2), None));
        // A set that was made anew counts from one.
        let anew = set_statuses(&done, &pins(1), &PinProgress::Prefetching);
        assert_eq!(anew[0].current, None);
        assert_eq!(PinProgress::Failed(String::new()).conditions()[1].reason, "PrefetchFailed");
    }
}
