//! Times of watches, and the watch of one object.

use std::fmt::Debug;
use std::hash::{BuildHasher as _, RandomState};

use futures_util::{Stream, StreamExt as _, future};
use kube::runtime::watcher::{self, Config, Event, watcher};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;

/// Duration of one watch: this, and up to as much again, as the agent's. Long, because renewals are most requests of an idle controller;
/// a connection that is lost is noticed by its pings.
const WATCH_SECONDS: u32 = 1800;

/// Returns the settings of a watch. Each has a time of its own, so that they do not begin again together.
pub(super) fn config() -> Config {
    // The keys of a hasher are random.
    let random = RandomState::new().hash_one(0_u8) % u64::from(WATCH_SECONDS);
    Config::default().timeout(WATCH_SECONDS.saturating_add(u32::try_from(random).unwrap_or_default()))
}

/// Follows the object of a name, in the one namespace of an API: `None` where there is none.
pub(super) fn object<K>(
    api: Api<K>,
    name: &str,
) -> impl Stream<Item = watcher::Result<Option<K>>> + Send + use<K>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    // kube's own has the times of kube.
    let events = watcher(api, config().fields(&format!("metadata.name={name}")));
    let seen = events.scan(false, |is_there, event| {
        match &event {
            Ok(Event::Init) => *is_there = false,
            Ok(Event::InitApply(_)) => *is_there = true,
            Ok(Event::Apply(_) | Event::Delete(_) | Event::InitDone) | Err(_) => {}
        }
        future::ready(Some((*is_there, event)))
    });
    seen.filter_map(|(is_there, event)| {
        future::ready(match event {
            Ok(Event::Apply(object) | Event::InitApply(object)) => Some(Ok(Some(object))),
            Ok(Event::Delete(_)) => Some(Ok(None)),
            Ok(Event::InitDone) if !is_there => Some(Ok(None)),
            Ok(Event::Init | Event::InitDone) => None,
            Err(error) => Some(Err(error)),
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn watches_last_for_half_an_hour_to_an_hour_each_its_own() {
        let times: std::collections::BTreeSet<u32> = (0..50).map(|_| config().timeout.unwrap()).collect();
        assert!(times.len() > 10, "{times:?}");
        assert!(times.iter().all(|seconds| (1800..3600).contains(seconds)), "{times:?}");
    }
}
