//! The step of kernel arguments. Order counts (MCD-069): the common beginning of both lists stays, the rest of the old
//! list is deleted and the rest of the new one appended, so that the command line ends in the new order.
//!
//! The old list is what the command line still has of it: somebody may have booted another deployment. What earlier
//! configs left behind on it goes, too.

use super::input::PlanInput;
use super::{Op, Step, StepReason};
use crate::model::Karg;

/// Returns the step; image mode changes nothing about it, because an image's own arguments are another list.
pub(super) fn steps(input: &PlanInput<'_>) -> Option<Step> {
    let observed = &input.facts.observed;
    observed.os.booted()?;
    let (old, new) = (held(&input.from.kargs, &observed.kargs), &input.to.kargs);
    let kept = old.iter().zip(new).take_while(|(old, new)| old == new).count();
    let rest = |list: &[Karg]| list.iter().skip(kept).cloned().collect::<Vec<_>>();
    let (mut delete, append) = (rest(&old), rest(new));
    let left = Karg::changed(observed.kargs.clone(), &delete, &[]);
    let stays = new.get(..kept).unwrap_or_default();
    delete.extend(observed.former_kargs.left_over(&left, stays, &observed.image_kargs));
    let because = match (delete.is_empty(), append.is_empty()) {
        (true, true) => return None,
        (true, false) => StepReason::Added,
        (false, false) => StepReason::Changed,
        (false, true) => StepReason::Removed,
    };
    Some(Step { op: Op::SetKargs { delete, append }, because })
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
        facts.observed.former_kargs.learn(&Karg::split("a b c d"), &Karg::split("rw b b"));
        let line = facts.observed.kargs.clone();
        let input = PlanInput::new(&from, &to, &facts, Mode::Files);
        let line = match steps(&input).map(|step| step.op) {
            Some(Op::SetKargs { delete, append }) => Karg::changed(line, &delete, &append),
            _ => line,
        };
        line.iter().map(Karg::as_str).collect::<Vec<_>>().join(" ")
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
            // What no config ever set is the administrator's.
            ("a", "a", "rw a debug", "", "rw a debug"),
        ] {
            assert_eq!(after(from, to, line, image), expected, "{from:?} -> {to:?} on {line:?}");
        }
    }
}
