//! An API server that has just started: it answers 403 until it has read its roles. Only after that a refusal is one.

use std::time::Duration;

use tokio::time::Instant;

/// An API server has read its roles after so long.
const STARTING: Duration = Duration::from_secs(10);

/// The answers to one request that is made again and again.
#[derive(Debug, Default)]
pub(crate) struct Starting {
    /// There was no answer, or none of a server that is well.
    was_away: bool,
    /// The first refusal since.
    refused: Option<Instant>,
}

impl Starting {
    /// Takes the status of an answer, 0 without one; returns true if it may be that of a server that is not ready to answer.
    pub(crate) fn takes(&mut self, code: u16) -> bool {
        match code {
            0 | 429 | 500.. => {
                (self.was_away, self.refused) = (true, None);
                false
            }
            403 if self.was_away => self.refused.get_or_insert_with(Instant::now).elapsed() < STARTING,
            _ => false,
        }
    }

    /// Takes the news, by others, that there was no answer. A refusal since then counts on.
    pub(crate) fn was_away(&mut self) {
        self.was_away = true;
    }

    /// Takes an answer that was none of an error.
    pub(crate) fn answered(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn refusal_counts_at_once_but_after_outage() {
        let mut starting = Starting::default();
        assert!(!starting.takes(403), "nothing says that it was away");
        for away in [0, 429, 503] {
            assert!(!starting.takes(away));
            assert!(starting.takes(403) && !starting.takes(404));
            tokio::time::advance(STARTING / 2).await;
            assert!(starting.takes(403));
            tokio::time::advance(STARTING).await;
            assert!(!starting.takes(403), "for ever is none of a start");
        }
        starting.takes(0);
        starting.answered();
        assert!(!starting.takes(403));
    }
}
