//! The own Lease as a witness of the API server's history ([`crate::watches`]): after a restore of etcd it is an older one than was written,
//! whatever the versions are by then.

use std::pin::Pin;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use tokio::time::sleep;

use super::client::{RequestError, limited, send};
use crate::watches::Starting;

/// Pause between two reads of the Lease while the API server does not answer.
const RETRY: Duration = Duration::from_secs(1);

/// The writes without an answer that are kept: far more than a leader sends before it ends.
const MAX_SENT: usize = 64;

/// The own writes of a Lease that the API server may have, by their time of renewal: in microseconds, it is that of no other write.
#[derive(Debug, Default)]
pub(super) struct Witness {
    /// The last one that was answered.
    last: Option<i64>,
    /// The version that it made.
    version: Option<u64>,
    /// Those that were sent since.
    sent: Vec<i64>,
    /// Number of writes that were answered.
    answers: u64,
}

impl Witness {
    /// Records a write before it is sent.
    pub(super) fn sent(&mut self, lease: &Lease) {
        if self.sent.len() < MAX_SENT {
            self.sent.extend(renewed(lease));
        }
    }

    /// Records the answer of a write; returns the version of the one before.
    pub(super) fn answered(&mut self, lease: &Lease) -> Option<u64> {
        let before = self.version;
        self.take(lease);
        self.answers = self.answers.wrapping_add(1);
        before
    }

    /// Takes a Lease of an earlier state as the last one.
    pub(super) fn take(&mut self, lease: &Lease) {
        let version = lease.metadata.resource_version.as_deref();
        (self.last, self.version) = (renewed(lease), version.and_then(|version| version.parse().ok()));
        self.sent.clear();
    }

    /// Returns true if a Lease is as it was written last.
    pub(super) fn knows(&self, lease: &Lease) -> bool {
        let renewed = renewed(lease);
        renewed.is_some_and(|renewed| self.last == Some(renewed) || self.sent.contains(&renewed))
    }

    /// Returns the version of the last write that was answered.
    pub(super) const fn version(&self) -> Option<u64> {
        self.version
    }

    /// Number of writes that were answered.
    pub(super) const fn answers(&self) -> u64 {
        self.answers
    }
}

fn renewed(lease: &Lease) -> Option<i64> {
    Some(lease.spec.as_ref()?.renew_time.as_ref()?.0.as_microsecond())
}

/// The answer to a read of the Lease, and whether the API server had not answered before.
type Answer = (bool, Result<Option<Lease>, RequestError>);

/// A read of the Lease that is under way, until the API server answers.
pub(super) struct Check {
    /// The breaks of watches before it.
    pub(super) breaks: u64,
    /// The answers of own writes before it.
    pub(super) answers: u64,
    read: Pin<Box<dyn Future<Output = Answer> + Send>>,
}

impl Check {
    pub(super) fn new(api: Api<Lease>, name: &str, limit: Duration, breaks: u64, answers: u64) -> Self {
        Self { breaks, answers, read: Box::pin(read(api, name.to_owned(), limit)) }
    }

    /// Waits for the answer, if there is a read. Cancel-safe.
    pub(super) async fn answer(check: &mut Option<Self>) -> Answer {
        match check {
            Some(check) => check.read.as_mut().await,
            None => std::future::pending().await,
        }
    }
}

async fn read(api: Api<Lease>, name: String, limit: Duration) -> Answer {
    let (mut was_away, mut starting) = (false, Starting::default());
    loop {
        let answer = limited(limit, send(api.get_opt(&name))).await;
        let code = answer.as_ref().err().map_or(200, RequestError::code);
        if !starting.takes(code) && code != 429 && matches!(code, 200..500) {
            return (was_away, answer);
        }
        was_away = true;
        sleep(RETRY).await;
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::coordination::v1::LeaseSpec;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
    use k8s_openapi::jiff::Timestamp;
    use kube::api::ObjectMeta;

    use super::*;

    fn lease(version: &str, renewed: i64) -> Lease {
        let time = MicroTime(Timestamp::from_microsecond(renewed).unwrap());
        let spec = LeaseSpec { renew_time: Some(time), ..LeaseSpec::default() };
        let metadata = ObjectMeta { resource_version: Some(version.to_owned()), ..ObjectMeta::default() };
        Lease { metadata, spec: Some(spec) }
    }

    #[test]
    fn lease_is_known_by_last_write_and_those_without_answer() {
        let mut witness = Witness::default();
        assert!(!witness.knows(&lease("1", 1)) && !witness.knows(&Lease::default()));
        witness.sent(&lease("1", 10));
        assert_eq!(witness.answered(&lease("2", 10)), None);
        // A person's annotation gives it another version.
        assert!(witness.knows(&lease("3", 10)));
        witness.sent(&lease("2", 20));
        assert!(witness.knows(&lease("2", 10)) && witness.knows(&lease("3", 20)));
        assert_eq!((witness.answered(&lease("3", 20)), witness.version()), (Some(2), Some(3)));
        // A restore brings an own one back, too.
        assert!(!witness.knows(&lease("2", 10)));
        witness.take(&lease("2", 10));
        assert!(witness.knows(&lease("2", 10)));
    }
}
