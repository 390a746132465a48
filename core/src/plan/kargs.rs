//! The step of kernel arguments. Order counts (MCD-069): the common beginning of both lists stays, the rest of the old
//! list is deleted and the rest of the new one appended, so that the command line ends in the new order.

use super::input::PlanInput;
use super::{Op, Step, StepReason};

/// Returns the step; image mode changes nothing about it, because an image's own arguments are another list.
pub(super) fn steps(input: &PlanInput<'_>) -> Option<Step> {
    let (old, new) = (&input.from.kargs, &input.to.kargs);
    if old == new || input.facts.observed.os.booted().is_none() {
        return None;
    }
    let kept = old.iter().zip(new).take_while(|(old, new)| old == new).count();
    let because = match (old.len() > kept, new.len() > kept) {
        (false, _) => StepReason::Added,
        (true, true) => StepReason::Changed,
        (true, false) => StepReason::Removed,
    };
    let rest = |list: &[crate::model::Karg]| list.iter().skip(kept).cloned().collect();
    Some(Step { op: Op::SetKargs { delete: rest(old), append: rest(new) }, because })
}
