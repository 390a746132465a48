//! Results on the pool: one of four conditions, and the newest image.

use jiff::Timestamp;

use super::{NEWEST_IMAGE, is_enabled};
use crate::api::MachineConfigPool;
use crate::api::pool::Condition;
use crate::rollout::{BuildState, Layering};

/// The conditions. One is True while the pool is opted in.
const CONDITIONS: [&str; 4] = ["BuildPending", "Building", "BuildSuccess", "BuildFailed"];

/// Writes to a pool.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Results {
    /// All its conditions, where they change.
    pub conditions: Option<Vec<Condition>>,
    /// Its newest image, where that changes; `Some(None)` removes it.
    pub image: Option<Option<String>>,
}

/// Returns true if a pool has something that opting out removes.
pub fn has_results(pool: &MachineConfigPool) -> bool {
    let mut conditions = pool.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let annotations = pool.metadata.annotations.as_ref();
    annotations.is_some_and(|annotations| annotations.contains_key(NEWEST_IMAGE))
        || conditions.any(|one| CONDITIONS.contains(&&*one.type_))
}

/// Returns what of a pool has to be written: by its build, or by why it has none. A pool that has opted out loses what is left.
pub fn results(
    pool: &MachineConfigPool,
    layering: &Layering,
    refused: Option<&str>,
    now: Timestamp,
) -> Results {
    let old = pool.status.as_ref().and_then(|status| status.conditions.clone()).unwrap_or_default();
    let annotations = pool.metadata.annotations.as_ref();
    let known = annotations.and_then(|annotations| annotations.get(NEWEST_IMAGE)).cloned();
    if !is_enabled(pool) {
        let left: Vec<Condition> =
            old.iter().filter(|one| !CONDITIONS.contains(&&*one.type_)).cloned().collect();
        return Results { conditions: (left.len() != old.len()).then_some(left), image: known.map(|_| None) };
    }
    let (kind, message) = state(layering, refused, &old);
    let time = now.round(jiff::Unit::Second).unwrap_or(now).to_string();
    let mut new = old.clone();
    for name in CONDITIONS {
        let (status, message) =
            if name == kind { ("True", message.clone()) } else { ("False", String::new()) };
        set(&mut new, name, status, message, &time);
    }
    let image = match layering {
        Layering::Build { state: BuildState::Built(image), .. } if known.as_ref() != Some(image) => {
            Some(Some(image.clone()))
        }
        // The one before is the newest until then.
        Layering::Build { .. } | Layering::None | Layering::Waiting { .. } => None,
    };
    Results { conditions: (new != old).then_some(new), image }
}

/// The condition that is True, and its message.
fn state(layering: &Layering, refused: Option<&str>, old: &[Condition]) -> (&'static str, String) {
    if let Some(refused) = refused {
        return ("BuildPending", format!("The image can't be built: {refused}"));
    }
    let degraded = old.iter().find(|one| one.type_ == "ImageBuildDegraded" && one.status == "True");
    let is_refused = degraded.is_some_and(|one| one.reason.as_deref() == Some("BuildFailed"));
    let why = degraded.and_then(|one| one.message.clone()).filter(|message| !message.is_empty());
    let Layering::Build { machine_os_build: build, state } = layering else {
        // What a build lacks is known to who would start it.
        let kind = if is_refused && why.is_some() { "BuildFailed" } else { "BuildPending" };
        return (kind, why.unwrap_or_else(|| "The image is queued".to_owned()));
    };
    match state {
        BuildState::Initial | BuildState::Prepared => {
            ("BuildPending", why.unwrap_or_else(|| format!("Build {build} waits for its pod")))
        }
        BuildState::Building => ("Building", format!("Build {build} is running")),
        BuildState::Unpublished | BuildState::Built(_) => {
            ("BuildSuccess", format!("Build {build} has succeeded"))
        }
        BuildState::Failed | BuildState::Interrupted => {
            ("BuildFailed", why.unwrap_or_else(|| format!("Build {build} has failed; its status shows why")))
        }
    }
}

/// Sets a condition. Its time is that of the last change between True and False.
fn set(all: &mut Vec<Condition>, name: &str, status: &str, message: String, now: &str) {
    let old = all.iter_mut().find(|one| one.type_ == name);
    let since =
        old.as_ref().filter(|old| old.status == status).and_then(|old| old.last_transition_time.clone());
    let new = Condition {
        type_: name.to_owned(),
        status: status.to_owned(),
        last_transition_time: Some(since.unwrap_or_else(|| now.to_owned())),
        reason: Some(name.to_owned()),
        message: Some(message),
    };
    match old {
        Some(old) => *old = new,
        None => all.push(new),
    }
}
