//! The step of kernel arguments. Order counts (MCD-069): the common beginning of both lists stays, the rest of the old
//! list is deleted and the rest of the new one appended, so that the command line ends in the new order.
//!
//! The old list is what the command line still has of it: somebody may have booted another deployment. What earlier
//! configs left behind on it goes, too. What the host or its image had by itself stays when a config leaves that listed it
//! as well.

use super::input::PlanInput;
use super::{Op, Step, StepReason};
use crate::model::kargs::{IMAGE_KARGS_PATH, count};
use crate::model::{HostSpec, ImageRef, Karg, NotApplied, NotAppliedReason, Observation};

/// Returns the step; image mode changes nothing about it, because an image's own arguments are another list.
pub(super) fn steps(input: &PlanInput<'_>) -> Option<Step> {
    let observed = &input.facts.observed;
    observed.os.booted()?;
    let (old, new) = (held(&input.from.kargs, &observed.kargs), &input.to.kargs);
    let kept = old.iter().zip(new).take_while(|(old, new)| old == new).count();
    let rest = |list: &[Karg]| list.iter().skip(kept).cloned().collect::<Vec<_>>();
    let append = rest(new);
    let mut delete = deletable(rest(&old), &append, observed);
    let left = Karg::changed(observed.kargs.clone(), &delete, &[]);
    let stays = new.get(..kept).unwrap_or_default();
    delete.extend(observed.former_kargs.left_over(&left, stays, &observed.image_kargs));
    let doubles = doubled(&delete, &append, new, observed);
    delete.extend(doubles);
    let because = match (delete.is_empty(), append.is_empty()) {
        (true, true) => return None,
        (true, false) => StepReason::Added,
        (false, false) => StepReason::Changed,
        (false, true) => StepReason::Removed,
    };
    Some(Step { op: Op::SetKargs { delete, append }, because })
}

/// Returns what of a config's arguments may go: as many instances stay as the host or its image had by itself, unless the
/// new config adds them again.
fn deletable(mut delete: Vec<Karg>, append: &[Karg], observed: &Observation) -> Vec<Karg> {
    let after = Karg::changed(observed.kargs.clone(), &delete, append);
    let mut short: Vec<Karg> = Vec::new();
    for karg in &delete {
        let kept = observed.former_kargs.kept(karg, &observed.image_kargs);
        let missing = kept.min(count(&observed.kargs, karg)).saturating_sub(count(&after, karg));
        if !short.contains(karg) {
            short.extend(std::iter::repeat_n(karg.clone(), missing));
        }
    }
    for karg in short {
        if let Some(at) = delete.iter().position(|one| *one == karg) {
            delete.remove(at);
        }
    }
    delete
}

/// Returns the instances that an appended argument takes the place of: the host's own count for the config's.
fn doubled(delete: &[Karg], append: &[Karg], new: &[Karg], observed: &Observation) -> Vec<Karg> {
    let mut line = Karg::changed(observed.kargs.clone(), delete, &[]);
    let mut doubles = Vec::new();
    for karg in append {
        let wanted = observed.former_kargs.kept(karg, &observed.image_kargs).max(count(new, karg));
        while count(&line, karg) + count(append, karg) > wanted && line.contains(karg) {
            line = Karg::changed(line, std::slice::from_ref(karg), &[]);
            doubles.push(karg.clone());
        }
    }
    doubles
}

/// Names arguments of the booted image that the command line lacks. They are no difference: only bootc sets them, when it
/// deploys an image, and then what an administrator removed stays away; to set them here would take that choice back. Of
/// the host's own the same holds, and those that somebody removed are not even known.
pub(super) fn of_image_missing(spec: &HostSpec, observed: &Observation) -> Option<NotApplied> {
    let runs = observed.os.booted()?.image.as_ref().map(ImageRef::digest);
    if spec.effective_image().is_some_and(|image| Some(image.digest()) != runs) {
        return None;
    }
    let is_missing = |karg: &&Karg| !observed.kargs.contains(karg) && !spec.kargs.contains(karg);
    let lacks: Vec<_> = observed.image_kargs.iter().filter(is_missing).map(Karg::as_str).collect();
    let message = format!(
        "the kernel's command line lacks {}, which the image brings: only bootc sets it, when it deploys the image; add it \
         to spec.kernelArguments of the MachineConfig",
        lacks.join(" ")
    );
    (!lacks.is_empty()).then(|| NotApplied::new(IMAGE_KARGS_PATH, NotAppliedReason::HostLacks, message))
}

/// Returns the arguments of a config that the command line has, in the config's order.
fn held(config: &[Karg], line: &[Karg]) -> Vec<Karg> {
    let mut left = line.to_vec();
    let take = |karg: &&Karg| {
        let at = left.iter().position(|other| other == *karg);
        at.map(|at| left.remove(at)).is_some()
    };
    config.iter().filter(take).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::observation::EmbeddedConfig;
    use crate::model::{ConfigName, Facts, HostSpec};
    use crate::plan::Mode;

    fn spec(kargs: &str) -> HostSpec {
        let mut spec = HostSpec::empty(ConfigName::new("a").unwrap());
        spec.kargs = Karg::split(kargs);
        spec
    }

    /// The line after the step of an update from one config to another, on a host with this line.
    fn after(from: &str, to: &str, line: &str, image: &str) -> String {
        let (from, to) = (spec(from), spec(to));
        let mut facts = Facts::assumed(&from, &to).unwrap();
        facts.carries = EmbeddedConfig::Unknown;
        facts.observed.kargs = Karg::split(line);
        facts.observed.image_kargs = Karg::split(image);
        facts.observed.former_kargs.learn_applied(&Karg::split("a b c d"), &Karg::split("rw b b"));
        facts.observed.former_kargs.learn(&Karg::split("own"), &Karg::split("rw own"));
        let line = facts.observed.kargs.clone();
        let input = PlanInput::new(&from, &to, &facts, Mode::Files);
        let line = match steps(&input).map(|step| step.op) {
            Some(Op::SetKargs { delete, append }) => Karg::changed(line, &delete, &append),
            _ => line,
        };
        line.iter().map(Karg::as_str).collect::<Vec<_>>().join(" ")
    }

    /// An argument of the image that the line lacks is named, as long as this image is the config's.
    #[test]
    fn argument_of_image_that_line_lacks_is_named() {
        let (mut spec, mut observed) = (spec("c"), Observation::as_specified(&spec("")).unwrap());
        observed.image_kargs = Karg::split("a b c");
        observed.kargs = Karg::split("rw b");
        let found = of_image_missing(&spec, &observed).unwrap();
        assert!(found.to_string().contains("lacks a, which the image brings"), "{found}");
        observed.kargs = Karg::split("rw b a");
        assert_eq!(of_image_missing(&spec, &observed), None);
        observed.kargs = Vec::new();
        let image = format!("registry.test/os@sha256:{}", "a".repeat(64));
        spec.image = Some(ImageRef::parse(&image).unwrap());
        assert_eq!(of_image_missing(&spec, &observed), None);
    }

    /// Somebody may have booted a deployment with other arguments: the line ends as the new config wants it, once each.
    #[test]
    fn command_line_ends_as_config_from_whatever_line() {
        for (from, to, line, image, expected) in [
            ("a", "a c", "rw a", "", "rw a c"),
            ("a c", "c a", "rw a c", "", "rw c a"),
            // A deployment of an earlier config runs.
            ("c", "c", "rw a c", "", "rw c"),
            ("c", "c d", "rw a c", "", "rw c d"),
            ("", "a", "rw a", "", "rw a"),
            ("a", "a", "rw", "", "rw a"),
            ("a", "c", "rw", "", "rw c"),
            // Twice is once too often.
            ("a", "a", "rw a a", "", "rw a"),
            ("a", "", "rw a a", "", "rw"),
            // The host had one `b` of its own; the image brings `d`.
            ("b", "", "rw b b", "", "rw b"),
            ("", "", "rw b d", "d", "rw b d"),
            ("d", "d", "rw d d", "d", "rw d d"),
            // The image's own, and the host's own, stay when a config that lists them as well leaves or changes.
            ("d", "", "rw d", "d", "rw d"),
            ("d a", "c", "rw d a", "d", "rw d c"),
            ("own", "", "rw own", "", "rw own"),
            ("own a", "c", "rw own a", "", "rw own c"),
            ("own", "own a", "rw own", "", "rw own a"),
            ("own", "", "rw own own", "", "rw own"),
            ("a own", "c own", "rw own a", "", "rw c own"),
            ("own", "own", "rw own", "", "rw own"),
            // The host's own counts for the config's, also where that comes back.
            ("", "own", "rw own", "", "rw own"),
            ("c a", "c b own", "rw c own a", "", "rw c b own"),
            ("a", "d", "rw a d", "d", "rw d"),
            ("own", "", "rw", "", "rw"),
            // What no config ever set is the administrator's.
            ("a", "a", "rw a debug", "", "rw a debug"),
        ] {
            assert_eq!(after(from, to, line, image), expected, "{from:?} -> {to:?} on {line:?}");
        }
    }

    /// All lists of at most this many of two arguments.
    fn lists(most: usize) -> Vec<Vec<&'static str>> {
        let mut all = vec![Vec::new()];
        for at in 0..(1 << most) - 1 {
            for word in ["a", "b"] {
                let list: Vec<&str> = all[at].iter().copied().chain([word]).collect();
                all.push(list);
            }
        }
        all
    }

    /// Whatever line runs: no difference is left, what is not the configs' stays, and the same config again is no step.
    #[test]
    fn every_small_line_ends_without_difference_and_keeps_own() {
        let join = |words: &[&str]| words.join(" ");
        let mut count_of_lines = 0;
        for (line, image) in lists(3).iter().flat_map(|line| [(line, ""), (line, "a")]) {
            for (own, from, to) in lists(2).iter().flat_map(|own| {
                lists(2)
                    .into_iter()
                    .flat_map(move |from| lists(2).into_iter().map(move |to| (own, from.clone(), to)))
            }) {
                let (from, to) = (spec(&join(&from)), spec(&join(&to)));
                let mut facts = Facts::assumed(&from, &to).unwrap();
                facts.observed.image_kargs = Karg::split(image);
                facts.observed.former_kargs.learn(&Karg::split("a b"), &Karg::split(&join(own)));
                let before = Karg::split(&join(line));
                let planned = |line: &[Karg], from: &HostSpec, facts: &Facts| {
                    let mut facts = facts.clone();
                    facts.observed.kargs = line.to_vec();
                    match steps(&PlanInput::new(from, &to, &facts, Mode::Files)).map(|step| step.op) {
                        Some(Op::SetKargs { delete, append }) => {
                            Karg::changed(line.to_vec(), &delete, &append)
                        }
                        _ => line.to_vec(),
                    }
                };
                let after = planned(&before, &from, &facts);
                let case = format!(
                    "{before:?} -> {after:?}, own {own:?}, image {image:?}: {:?} -> {:?}",
                    from.kargs, to.kargs
                );
                for karg in Karg::split("a b") {
                    let kept = facts.observed.former_kargs.kept(&karg, &facts.observed.image_kargs);
                    assert!(count(&after, &karg) >= kept.min(count(&before, &karg)), "{case}");
                    assert!(count(&after, &karg) >= count(&to.kargs, &karg), "{case}");
                }
                let former = &facts.observed.former_kargs;
                assert_eq!(former.left_over(&after, &to.kargs, &facts.observed.image_kargs), [], "{case}");
                assert_eq!(planned(&after, &to, &facts), after, "{case}");
                count_of_lines += 1;
            }
        }
        assert_eq!(count_of_lines, 15 * 2 * 7 * 7 * 7);
    }
}
