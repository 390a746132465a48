//! A build that is being deleted: whether its image goes with it.

use std::time::Duration;

use super::SEEDED;
use super::action::Action;
use super::input::{Answers, Build, BuildInput, Deletion};

/// Time for which a registry that does not answer keeps a build. It is that of a process: the clocks of two machines may differ by more.
const REGISTRY_TIMEOUT: Duration = Duration::from_secs(600);

/// Returns what a build that is being deleted waits for, for people.
pub fn waits_for_registry(answers: &Answers) -> Option<String> {
    answers.deletions.iter().find_map(|(name, deletion)| {
        let Deletion::Failed { cause, .. } = deletion else { return None };
        let minutes = REGISTRY_TIMEOUT.as_secs() / 60;
        Some(format!(
            "the image of build {name} can't be deleted: {cause}; it is tried for {minutes} minutes, then the build goes and \
             its image stays in the registry"
        ))
    })
}

/// Returns the next action for builds that are being deleted.
pub(super) fn release(input: &BuildInput<'_>) -> Option<Action> {
    held(input).find_map(|(name, build)| {
        let released = || Some(Action::ReleaseBuild { name: name.clone(), uid: build.uid.clone() });
        let Some(image) = deletable(input, name, build) else { return released() };
        match input.answers.deletions.get(name) {
            None => Some(Action::DeleteImage { build: name.clone(), image: image.to_owned() }),
            // Requested again in a while.
            Some(Deletion::Failed { unanswered, .. }) if *unanswered < REGISTRY_TIMEOUT => None,
            Some(_) => released(),
        }
    })
}

/// Returns true if a registry did not answer, and gets the request again.
pub(super) fn is_retried(input: &BuildInput<'_>) -> bool {
    held(input).any(|(name, _)| matches!(input.answers.deletions.get(name), Some(Deletion::Failed { .. })))
}

fn held<'a>(input: &BuildInput<'a>) -> impl Iterator<Item = (&'a String, &'a Build)> {
    input.builds.iter().filter(|(_, build)| build.is_held())
}

/// Returns the image, if nobody else has it: OCL-026.
fn deletable<'a>(input: &BuildInput<'_>, name: &str, build: &'a Build) -> Option<&'a str> {
    let image = build.image.as_ref().filter(|_| build.reason != SEEDED)?;
    let named = |other: &Option<String>| other.as_ref() == Some(image);
    let is_published = input.os_config.is_some_and(|config| !config.deleting && named(&config.image));
    let is_seed = input.os_config.is_some_and(|config| named(&config.pre_built));
    let is_shared = input.builds.iter().any(|(other, build)| other != name && named(&build.image));
    let is_kept = is_published || is_seed || is_shared || input.used_images.contains(image);
    (!is_kept).then_some(image)
}
