//! A build that is being deleted: whether its image goes with it.

use jiff::SignedDuration;

use super::SEEDED;
use super::action::Action;
use super::seen::{Build, Deletion, Seen};

/// Time for which a registry that does not answer keeps a build.
const REGISTRY_TIMEOUT: SignedDuration = SignedDuration::from_mins(10);

/// Returns the next action for builds that are being deleted.
pub(super) fn release(seen: &Seen<'_>) -> Option<Action> {
    let mut held = seen.builds.iter().filter(|(_, build)| build.has_finalizer);
    held.find_map(|(name, build)| {
        let since = build.deleting?;
        let released = || Some(Action::ReleaseBuild { name: name.clone(), uid: build.uid.clone() });
        let Some(image) = deletable(seen, name, build) else { return released() };
        match seen.answers.deletions.get(name) {
            None => Some(Action::DeleteImage { build: name.clone(), image: image.to_owned() }),
            // Asked again in a while.
            Some(Deletion::Failed(_)) if seen.now.duration_since(since) < REGISTRY_TIMEOUT => None,
            Some(_) => released(),
        }
    })
}

/// Returns true if a registry did not answer, and is to be asked again.
pub(super) fn is_retried(seen: &Seen<'_>) -> bool {
    let mut held = seen.builds.iter().filter(|(_, build)| build.has_finalizer && build.deleting.is_some());
    held.any(|(name, _)| matches!(seen.answers.deletions.get(name), Some(Deletion::Failed(_))))
}

/// Returns the image, if nobody else has it: OCL-026.
fn deletable<'a>(seen: &Seen<'_>, name: &str, build: &'a Build) -> Option<&'a str> {
    let image = build.image.as_ref().filter(|_| build.reason != SEEDED)?;
    let named = |other: &Option<String>| other.as_ref() == Some(image);
    let is_published = seen.os_config.is_some_and(|config| !config.deleting && named(&config.image));
    let is_seed = seen.os_config.is_some_and(|config| named(&config.pre_built));
    let is_shared = seen.builds.iter().any(|(other, build)| other != name && named(&build.image));
    let is_kept = is_published || is_seed || is_shared || seen.used_images.contains(image);
    (!is_kept).then_some(image)
}
