//! A seed that an object of the cluster describes, lifecycle-agent's SeedGenerator: its making, and the conditions that say so.
//!
//! Conditions, reasons and messages are lifecycle-agent's. [`SeedGeneration`] is written down by the agent before each change: the
//! API server of a cluster of one node rests while its host is archived.
//!
//! # Decisions
//! 1. An object is one seed: one that is made, or has failed, is over until the object is deleted and created again. Services that
//!    rest are the price of a try, so a failure is not tried again by itself.
//! 2. A deleted object ends its seed, and the host is restored.
//! 3. The cluster's pull secret, its objects and the object itself stay: a seed of this agent has neither etcd nor secrets.

use serde::{Deserialize, Serialize};

use super::lifecycle::{ConditionReason, ConditionStatus, ConditionType, Conditions, Stamp};
use super::{Layout, SeedTarget};
use crate::model::short;

/// The version of [`SeedGeneration`].
pub const GENERATION_SCHEMA: u32 = 1;

/// The annotation that makes the seed a bootc one. [`USE`] is its only value.
pub const USE_BOOTC: &str = "unsupported-experimental.lca.openshift.io/use-bootc";
const USE: &str = "Use";

/// lifecycle-agent's messages, byte for byte.
const WAITING: &str = "Waiting for system to stabilize";
const STARTING: &str = "Starting seed generation";
const COMPLETED: &str = "Seed Generation completed";
const FAILED: &str = "Seed generation failed";

/// lifecycle-agent's stand-in for the cluster's pull secret while it makes a seed.
const EMPTIED: &str = r#"{"auths":{"registry.connect.redhat.com":{"username":"empty","password":"empty","auth":"ZW1wdHk6ZW1wdHk=","email":""}}}"#;

/// Returns true if a pull secret is lifecycle-agent's stand-in, which it did not replace by the cluster's again.
pub fn is_emptied(pull_secret: &[u8]) -> bool {
    pull_secret.trim_ascii() == EMPTIED.as_bytes()
}

/// A seed as its object describes it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SeedDesire {
    /// UID of the object: another one is another seed.
    pub uid: String,
    /// Generation of the object.
    pub generation: i64,
    /// The image.
    pub image: String,
    /// Value of the annotation [`USE_BOOTC`].
    #[serde(default)]
    pub use_bootc: Option<String>,
    /// Its status said, when it was first seen, that it is under way.
    #[serde(default)]
    pub is_begun: bool,
}

/// Observed desire.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum DesiredSeed {
    /// The API server has not answered yet.
    #[default]
    Unknown,
    /// There is no object, or its seed is over.
    None,
    /// An object describes one.
    Of(SeedDesire),
}

impl DesiredSeed {
    /// Returns true if an object is known to be gone.
    pub fn is_without(&self, uid: &str) -> bool {
        match self {
            Self::Unknown => false,
            Self::None => true,
            Self::Of(desire) => desire.uid != uid,
        }
    }
}

/// A seed that is to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeedOrder {
    /// The name under which it is pushed.
    pub image: SeedTarget,
    /// Its layout.
    pub layout: Layout,
}

/// Phase of the seed of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum GenerationPhase {
    /// Nothing of the host was changed.
    Waiting,
    /// It is made: services may rest.
    Making,
    /// It is at the registry.
    Completed,
    /// It is not made.
    Failed,
}

/// State of the seed of an object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SeedGeneration {
    /// The version of this shape.
    pub schema: u32,
    /// The seed.
    pub desire: SeedDesire,
    /// Its phase.
    pub phase: GenerationPhase,
    /// Its conditions.
    pub conditions: Conditions,
}

/// Next action on a seed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GenerationAction {
    /// None.
    Nothing,
    /// The seed is made.
    Make(SeedOrder),
    /// The host is restored after a seed that was cut short.
    Restore,
}

impl SeedDesire {
    /// Returns what is to be made; the error is a refusal.
    fn order(&self) -> Result<SeedOrder, String> {
        let layout = match self.use_bootc.as_deref() {
            None => Layout::Classic,
            Some(USE) => Layout::Bootc,
            Some(other) => {
                return Err(format!(
                    "Rejected: the annotation {USE_BOOTC} has the value {:?}; the only valid value is {USE}",
                    short(other, 100)
                ));
            }
        };
        let image = SeedTarget::new(&self.image).map_err(|error| format!("Rejected: {error}"))?;
        if self.is_begun {
            return Err("another agent has begun this seed; delete the object and create it again".to_owned());
        }
        Ok(SeedOrder { image, layout })
    }
}

impl SeedGeneration {
    /// Makes the state of a seed that is desired from now on; one that is refused has failed.
    pub fn new(desire: SeedDesire, now: &str) -> Self {
        let refused = desire.order().err();
        let conditions = Conditions::default();
        let new = Self { schema: GENERATION_SCHEMA, desire, phase: GenerationPhase::Waiting, conditions };
        match refused {
            Some(why) => new.failed(&why, now),
            None => new.progressed(WAITING, now),
        }
    }

    /// Returns the state of a seed that waits for something else.
    #[must_use]
    pub fn waiting(self, why: &str, now: &str) -> Self {
        self.progressed(&format!("{WAITING}: {why}"), now)
    }

    /// Returns the state before the first change of the host.
    #[must_use]
    pub fn begun(self, now: &str) -> Self {
        Self { phase: GenerationPhase::Making, ..self.progressed(STARTING, now) }
    }

    /// Returns the state of a seed that is at the registry.
    #[must_use]
    pub fn completed(mut self, now: &str) -> Self {
        self.phase = GenerationPhase::Completed;
        let reason = ConditionReason::Completed;
        self.set(ConditionType::SeedGenInProgress, ConditionStatus::False, reason, COMPLETED, now);
        self.set(ConditionType::SeedGenCompleted, ConditionStatus::True, reason, COMPLETED, now);
        self
    }

    /// Returns the state of a seed that is not made; the host is as it was.
    #[must_use]
    pub fn failed(mut self, why: &str, now: &str) -> Self {
        self.phase = GenerationPhase::Failed;
        let (status, reason) = (ConditionStatus::False, ConditionReason::Failed);
        self.set(ConditionType::SeedGenCompleted, status, reason, &format!("{FAILED}: {why}"), now);
        self.set(ConditionType::SeedGenInProgress, status, reason, why, now);
        self
    }

    fn progressed(mut self, message: &str, now: &str) -> Self {
        let (status, reason) = (ConditionStatus::True, ConditionReason::InProgress);
        self.set(ConditionType::SeedGenInProgress, status, reason, message, now);
        self
    }

    fn set(
        &mut self,
        kind: ConditionType,
        status: ConditionStatus,
        reason: ConditionReason,
        message: &str,
        now: &str,
    ) {
        let stamp = Stamp { generation: self.desire.generation, now: now.to_owned() };
        self.conditions.set(kind, status, reason, message, &stamp);
    }
}

/// Decides what comes next in a process that makes no seed now. Without a state there is nothing to keep.
pub fn next_generation(
    state: Option<&SeedGeneration>,
    desired: &DesiredSeed,
    now: &str,
) -> (Option<SeedGeneration>, GenerationAction) {
    if let Some(cut) = state.filter(|state| state.phase == GenerationPhase::Making) {
        return (Some(cut.clone()), GenerationAction::Restore);
    }
    let desire = match desired {
        // The last one stays; what it needs of the cluster is not there.
        DesiredSeed::Unknown => return (state.cloned(), GenerationAction::Nothing),
        DesiredSeed::None => return (None, GenerationAction::Nothing),
        DesiredSeed::Of(desire) => desire,
    };
    let known = state.filter(|state| state.desire.uid == desire.uid).cloned();
    let next = known.unwrap_or_else(|| SeedGeneration::new(desire.clone(), now));
    let action = match (next.phase, next.desire.order()) {
        (GenerationPhase::Waiting, Ok(order)) => GenerationAction::Make(order),
        (_, Ok(_) | Err(_)) => GenerationAction::Nothing,
    };
    (Some(next), action)
}

/// Returns the state after the host was restored from a seed that was cut short; `None` where its object is gone.
pub fn restored(state: &SeedGeneration, desired: &DesiredSeed, now: &str) -> Option<SeedGeneration> {
    let why = "it was interrupted; the host is restored: delete the object and create it again";
    (!desired.is_without(&state.desire.uid)).then(|| state.clone().failed(why, now))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: &str = "2026-11-24T09:00:00Z";

    fn desire() -> SeedDesire {
        SeedDesire {
            uid: "a".to_owned(),
            generation: 1,
            image: "registry.test/seeds/sno:4.17.2".to_owned(),
            ..SeedDesire::default()
        }
    }

    fn bootc(value: &str) -> SeedDesire {
        SeedDesire { use_bootc: Some(value.to_owned()), ..desire() }
    }

    fn lines(state: &SeedGeneration) -> Vec<String> {
        let line = |one: &super::super::lifecycle::Condition| {
            format!("{:?} {:?} {:?} {}", one.kind, one.status, one.reason, one.message)
        };
        state.conditions.as_slice().iter().map(line).collect()
    }

    fn next(
        state: Option<&SeedGeneration>,
        desire: &SeedDesire,
    ) -> (Option<SeedGeneration>, GenerationAction) {
        next_generation(state, &DesiredSeed::Of(desire.clone()), NOW)
    }

    /// LCA-020: conditions, reasons and messages of lifecycle-agent, from the object to the seed at the registry.
    #[test]
    fn seed_passes_its_phases_in_words_of_lifecycle_agent() {
        let (state, action) = next(None, &desire());
        let image = SeedTarget::new(&desire().image).unwrap();
        assert_eq!(action, GenerationAction::Make(SeedOrder { image, layout: Layout::Classic }));
        let state = state.unwrap();
        assert_eq!(lines(&state), ["SeedGenInProgress True InProgress Waiting for system to stabilize"]);
        let waits = state.waiting("the update x is under way", NOW);
        assert_eq!(
            lines(&waits),
            ["SeedGenInProgress True InProgress Waiting for system to stabilize: the update x is under way"]
        );
        assert!(matches!(next(Some(&waits), &desire()).1, GenerationAction::Make(_)));
        let made = waits.begun(NOW).completed(NOW);
        let completed = [
            "SeedGenInProgress False Completed Seed Generation completed",
            "SeedGenCompleted True Completed Seed Generation completed",
        ];
        assert_eq!(lines(&made), completed);
        assert_eq!(next(Some(&made), &desire()), (Some(made.clone()), GenerationAction::Nothing));
        // A different object is a different seed; without an object there is no seed.
        let other = SeedDesire { uid: "b".to_owned(), ..desire() };
        assert!(matches!(next(Some(&made), &other), (Some(_), GenerationAction::Make(_))));
        assert_eq!(next_generation(Some(&made), &DesiredSeed::None, NOW), (None, GenerationAction::Nothing));
    }

    /// LCA-015: the annotation makes a bootc seed, and each other value is an error.
    #[test]
    fn annotation_has_one_value() {
        let (_, action) = next(None, &bootc("Use"));
        assert!(matches!(action, GenerationAction::Make(SeedOrder { layout: Layout::Bootc, .. })));
        for value in ["", "use", "true", "Use ", "DontUse"] {
            let (state, action) = next(None, &bootc(value));
            assert_eq!(action, GenerationAction::Nothing, "{value:?}");
            let lines = lines(&state.unwrap());
            assert!(
                lines[0].starts_with("SeedGenCompleted False Failed Seed generation failed: Rejected: "),
                "{lines:?}"
            );
            assert!(
                lines[1].starts_with("SeedGenInProgress False Failed Rejected: ")
                    && lines[1].ends_with("is Use"),
                "{lines:?}"
            );
        }
    }

    #[test]
    fn refused_objects_have_failed() {
        let image = |image: &str| SeedDesire { image: image.to_owned(), ..desire() };
        for refused in [image(""), image("docker://r.test/a"), SeedDesire { is_begun: true, ..desire() }] {
            let (state, action) = next(None, &refused);
            assert_eq!((state.unwrap().phase, action), (GenerationPhase::Failed, GenerationAction::Nothing));
        }
    }

    /// A seed that was under way in another process has failed once the host is restored; it is gone with its object.
    #[test]
    fn cut_seed_restores_the_host_first() {
        let cut = SeedGeneration::new(desire(), NOW).begun(NOW);
        let other = DesiredSeed::Of(SeedDesire { uid: "b".to_owned(), ..desire() });
        let all = [DesiredSeed::Unknown, DesiredSeed::None, DesiredSeed::Of(desire()), other.clone()];
        for desired in &all {
            let (state, action) = next_generation(Some(&cut), desired, NOW);
            assert_eq!((state.as_ref(), action), (Some(&cut), GenerationAction::Restore), "{desired:?}");
        }
        assert_eq!([&all[1], &all[3]].map(|gone| restored(&cut, gone, NOW)), [None, None]);
        let failed = restored(&cut, &DesiredSeed::Unknown, NOW).unwrap();
        assert_eq!(failed.phase, GenerationPhase::Failed);
        assert!(lines(&failed)[1].contains("Failed it was interrupted"), "{failed:?}");
        assert_eq!(next_generation(Some(&failed), &DesiredSeed::Unknown, NOW).1, GenerationAction::Nothing);
    }

    /// LCA-020: a pull secret that was not restored is seen.
    #[test]
    fn emptied_pull_secret_is_known() {
        assert!(is_emptied(format!("{EMPTIED}\n").as_bytes()));
        assert!(!is_emptied(b"{\"auths\": {}}") && !is_emptied(b""));
    }

    #[test]
    fn state_survives_its_json() {
        let state = SeedGeneration::new(bootc("Use"), NOW).begun(NOW);
        let json = serde_json::to_string(&state).unwrap();
        assert_eq!(serde_json::from_str::<SeedGeneration>(&json).unwrap(), state, "{json}");
    }
}
