//! Download of an image ahead of its update, and its tries. It is the last thing an idle node does.

use std::time::Duration;

use crate::model::ImageRef;

/// The wait after the first failure; each failure doubles it.
const FIRST_WAIT: Duration = Duration::from_secs(60);
/// The longest wait. Nothing depends on a prefetch: the update pulls missing layers.
const LONGEST_WAIT: Duration = Duration::from_secs(3600);

/// Time limit of a download: a slow one has a day, and the downloaded part stays for the next try.
pub const DOWNLOAD_TIMEOUT: Duration = Duration::from_secs(24 * 3600);

/// Progress of the prefetch, as far as this process knows; `None` as an image means that no prefetched image is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Prefetch {
    /// This was done.
    Settled(Option<ImageRef>),
    /// This runs.
    Running {
        /// The image.
        image: Option<ImageRef>,
        /// Failures so far.
        failures: u32,
    },
    /// This is tried again, at a time since the boot.
    Again {
        /// The image.
        image: Option<ImageRef>,
        /// Failures so far.
        failures: u32,
        /// When.
        at: Duration,
    },
}

impl Default for Prefetch {
    /// A process that begins keeps nothing that it would have to drop; the next staging drops unused images.
    fn default() -> Self {
        Self::Settled(None)
    }
}

/// Due action.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Due {
    /// Nothing.
    Nothing,
    /// Nothing before this time has passed.
    In(Duration),
    /// The prefetch begins.
    Now,
    /// The prefetch that runs ends: another one is requested.
    End,
}

impl Prefetch {
    /// Compares the requested image with the state.
    pub fn due(&self, requested: Option<&ImageRef>, now: Duration) -> Due {
        match self {
            Self::Settled(image) if is_same(image.as_ref(), requested) => Due::Nothing,
            Self::Running { image, .. } if is_same(image.as_ref(), requested) => Due::Nothing,
            Self::Running { .. } => Due::End,
            Self::Again { image, at, .. } if is_same(image.as_ref(), requested) && now < *at => {
                Due::In(at.saturating_sub(now))
            }
            Self::Settled(_) | Self::Again { .. } => Due::Now,
        }
    }

    /// Returns true if one runs.
    pub fn is_running(&self) -> bool {
        matches!(self, Self::Running { .. })
    }

    /// Notes that it begins.
    pub fn begin(&mut self, image: Option<ImageRef>) {
        let before = match self {
            Self::Again { image: tried, failures, .. } if is_same(tried.as_ref(), image.as_ref()) => {
                *failures
            }
            Self::Settled(_) | Self::Running { .. } | Self::Again { .. } => 0,
        };
        *self = Self::Running { image, failures: before };
    }

    /// Notes the success of the running download.
    pub fn succeed(&mut self) {
        if let Self::Running { image, .. } = self {
            *self = Self::Settled(image.take());
        }
    }

    /// Notes the failure of the running download; returns the wait before the next try.
    pub fn fail(&mut self, now: Duration) -> Duration {
        let Self::Running { image, failures } = self else { return Duration::ZERO };
        let factor = 1_u32.checked_shl(*failures).unwrap_or(u32::MAX);
        let left = FIRST_WAIT.saturating_mul(factor).min(LONGEST_WAIT);
        *self = Self::Again { image: image.take(), failures: failures.saturating_add(1), at: now + left };
        left
    }

    /// Notes that the running download was ended, or that an update may have dropped the image: looked at again when
    /// the node is idle.
    pub fn interrupt(&mut self) {
        let (image, failures) = match self {
            Self::Running { image, failures } => (image.take(), *failures),
            Self::Settled(image @ Some(_)) => (image.take(), 0),
            Self::Settled(None) | Self::Again { .. } => return,
        };
        *self = Self::Again { image, failures, at: Duration::ZERO };
    }
}

/// Another tag is no other image.
fn is_same(one: Option<&ImageRef>, other: Option<&ImageRef>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => one.is_same(other),
        (None, None) => true,
        (Some(_), None) | (None, Some(_)) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    fn image(digit: &str) -> ImageRef {
        ImageRef::parse(&format!("registry.test/os@sha256:{}", digit.repeat(64))).unwrap()
    }

    #[test]
    fn requested_image_is_prefetched_once_and_dropped_when_withdrawn() {
        let (mut prefetch, one) = (Prefetch::default(), image("1"));
        assert_eq!(prefetch.due(None, MINUTE), Due::Nothing);
        assert_eq!(prefetch.due(Some(&one), MINUTE), Due::Now);
        prefetch.begin(Some(one.clone()));
        assert_eq!(prefetch.due(Some(&one), MINUTE), Due::Nothing);
        assert_eq!(prefetch.due(None, MINUTE), Due::End);
        prefetch.succeed();
        assert_eq!(prefetch.due(Some(&one), MINUTE), Due::Nothing);
        assert_eq!(prefetch.due(None, MINUTE), Due::Now);
        prefetch.begin(None);
        prefetch.succeed();
        assert_eq!(prefetch, Prefetch::default());
    }

    #[test]
    fn failures_double_wait_up_to_hour_and_another_image_does_not_wait() {
        let (mut prefetch, one) = (Prefetch::default(), image("1"));
        let mut waits = Vec::new();
        for _ in 0..40 {
            prefetch.begin(Some(one.clone()));
            waits.push(prefetch.fail(MINUTE).as_secs());
        }
        assert_eq!(waits[..8], [60, 120, 240, 480, 960, 1920, 3600, 3600]);
        assert_eq!(waits.last(), Some(&3600));
        assert_eq!(prefetch.due(Some(&one), MINUTE), Due::In(LONGEST_WAIT));
        assert_eq!(prefetch.due(Some(&one), MINUTE + LONGEST_WAIT), Due::Now);
        assert_eq!(prefetch.due(Some(&image("2")), MINUTE), Due::Now);
        assert_eq!(prefetch.due(None, MINUTE), Due::Now);
        prefetch.begin(Some(image("2")));
        assert_eq!(prefetch.fail(MINUTE), FIRST_WAIT);
    }

    #[test]
    fn interrupted_prefetch_begins_again_without_wait() {
        let (mut prefetch, one) = (Prefetch::default(), image("1"));
        prefetch.interrupt();
        assert_eq!(prefetch, Prefetch::default());
        prefetch.begin(Some(one.clone()));
        prefetch.interrupt();
        assert_eq!(prefetch.due(Some(&one), Duration::ZERO), Due::Now);
        // An update may have dropped the image.
        prefetch.begin(Some(one.clone()));
        prefetch.succeed();
        prefetch.interrupt();
        assert_eq!(prefetch.due(Some(&one), Duration::ZERO), Due::Now);
        assert_eq!(prefetch.due(None, Duration::ZERO), Due::Now);
    }
}
