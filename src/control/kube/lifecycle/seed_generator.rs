//! The SeedGenerator `seedimage`. It is neither made nor deleted: its deletion ends its seed. Its status is a picture of the agent's
//! own state.

use serde::Deserialize;
use serde_json::{Value, json};

use super::super::client::ApiClient;
use super::super::error::KubeError;
use super::follower::{ObjectApi, Subject};
use super::singleton::{LcaObject, ObservedObject, Singleton};
use crate::control::seed_generation::GenerationSource;
use crate::stateroot::{DesiredSeed, SeedDesire, SeedGeneration, USE_BOOTC};

/// The object, and the agent's seed of it.
pub(super) struct SeedGenerator {
    objects: ObjectApi,
    source: GenerationSource,
}

impl SeedGenerator {
    /// Takes the client and the seed.
    pub(super) fn new(api: &ApiClient, source: GenerationSource) -> Self {
        Self { objects: ObjectApi::new(api, Self::WHAT), source }
    }
}

impl Subject for SeedGenerator {
    const WHAT: Singleton = Singleton {
        kind: "SeedGenerator",
        path: "/apis/lca.openshift.io/v1/seedgenerators",
        name: "seedimage",
        shown: "SeedGenerator seedimage",
    };

    async fn bring(&mut self, observed: &ObservedObject) -> Result<(), KubeError> {
        let reports = self.source.report.borrow_and_update().clone();
        // Whether there is a state decides whose seed the object is.
        if !reports.is_read {
            return Ok(());
        }
        let object = match observed {
            ObservedObject::Unknown => return Ok(()),
            ObservedObject::There(object) if object.metadata.deletion_timestamp.is_none() => object,
            ObservedObject::Absent | ObservedObject::There(_) => {
                self.source.put(DesiredSeed::None);
                return Ok(());
            }
        };
        let last = reports.last.as_deref().filter(|last| last.desire.uid == object.metadata.uid);
        // Another agent has ended it.
        if last.is_none() && is_over(&object.status) {
            self.source.put(DesiredSeed::None);
            return Ok(());
        }
        self.source.put(DesiredSeed::Of(desire(object)));
        match last {
            Some(last) => self.objects.write_status(object, &status(last)).await,
            None => Ok(()),
        }
    }

    async fn reported(&mut self) {
        self.source.reported().await;
    }
}

/// A condition of the status, whoever wrote it.
#[derive(Deserialize, Default)]
#[serde(default)]
struct Stored {
    #[serde(rename = "type")]
    kind: String,
    status: String,
    reason: String,
}

fn stored(status: &Value) -> Vec<Stored> {
    let conditions = status.get("conditions").cloned().unwrap_or_default();
    // Ignore conditions that are not a list.
    serde_json::from_value(conditions).unwrap_or_default()
}

/// Returns true if a status says that its seed is made or has failed, as lifecycle-agent reads it.
fn is_over(status: &Value) -> bool {
    let is_failed = |one: &Stored| one.kind.starts_with("SeedGen") && one.reason == "Failed";
    let is_completed = |one: &Stored| one.kind == "SeedGenCompleted" && one.status == "True";
    stored(status).iter().any(|one| is_failed(one) || is_completed(one))
}

/// Reads the object.
fn desire(object: &LcaObject) -> SeedDesire {
    let is_begun = |one: &Stored| one.kind == "SeedGenInProgress" && one.status == "True";
    SeedDesire {
        uid: object.metadata.uid.clone(),
        generation: object.metadata.generation,
        image: object.spec.get("seedImage").and_then(Value::as_str).unwrap_or_default().to_owned(),
        use_bootc: object.annotation(USE_BOOTC).map(str::to_owned),
        is_begun: stored(&object.status).iter().any(is_begun),
    }
}

fn status(last: &SeedGeneration) -> Value {
    json!({ "observedGeneration": last.desire.generation, "conditions": last.conditions })
}

#[cfg(test)]
mod tests {
    use super::super::singleton::object;
    use super::*;

    #[test]
    fn object_is_read_as_a_desire() {
        let read = desire(&object(json!({
            "metadata": {"uid": "u", "generation": 2, "resourceVersion": "9", "annotations": {USE_BOOTC: "use"}},
            "spec": {"seedImage": "registry.test/seed:1", "recertImage": "registry.test/recert:1"},
        })));
        let expected = SeedDesire {
            uid: "u".to_owned(),
            generation: 2,
            image: "registry.test/seed:1".to_owned(),
            use_bootc: Some("use".to_owned()),
            is_begun: false,
        };
        assert_eq!(read, expected);
        let empty = desire(&object(json!({"metadata": {"uid": "u"}})));
        assert_eq!((empty.image.as_str(), empty.use_bootc), ("", None));
    }

    #[test]
    fn status_of_others_is_read() {
        let one = |kind: &str, status: &str, reason: &str| {
            let condition = json!({"type": kind, "status": status, "reason": reason, "message": ""});
            json!({"conditions": [condition]})
        };
        for over in [
            one("SeedGenCompleted", "True", "Completed"),
            one("SeedGenCompleted", "False", "Failed"),
            one("SeedGenInProgress", "False", "Failed"),
        ] {
            assert!(is_over(&over), "{over}");
        }
        let begun = one("SeedGenInProgress", "True", "InProgress");
        assert!(!is_over(&begun) && desire(&object(json!({"metadata": {}, "status": begun}))).is_begun);
        for none in [Value::Null, json!({"conditions": "x"}), one("Other", "True", "Completed")] {
            assert!(!is_over(&none), "{none}");
        }
    }
}
