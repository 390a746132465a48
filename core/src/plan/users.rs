//! The steps of the `core` account. Its home is on no image, so in image mode it is judged by the present state.

use super::differences::{keys_hold, password_holds};
use super::input::PlanInput;
use super::{Mode, Op, Step, StepReason};
use crate::model::observation::ObservedCore;
use crate::model::users::{Core, PasswordHash};

/// Returns the steps. Without an account there is nothing to do (MCD-160); an unchanged section stays (MCD-164).
pub(super) fn steps(input: &PlanInput<'_>) -> Vec<Step> {
    let (old, new) = (input.from.users.core.as_ref(), input.to.users.core.as_ref());
    let because = match (input.mode, old, new) {
        (_, None, None) => return Vec::new(),
        (_, Some(_), None) => StepReason::Removed,
        (_, None, Some(_)) => StepReason::Added,
        (Mode::Nothing | Mode::Files, Some(old), Some(new)) if old == new => return Vec::new(),
        (_, Some(old), Some(new)) => {
            if old == new {
                StepReason::UnderVar
            } else {
                StepReason::Changed
            }
        }
    };
    if input.facts.observed.core == ObservedCore::NoAccount {
        return Vec::new();
    }
    // A config that lists no user any more leaves no key and no password behind.
    let none = Core { keys: Vec::new(), password: PasswordHash::locked() };
    let desired = new.unwrap_or(&none);
    let keys = (!keys_hold(desired, &input.facts.observed.core)).then_some(Op::SetSshKeys);
    let password = (!password_holds(desired, &input.facts.observed.core)).then_some(Op::SetPassword);
    keys.into_iter().chain(password).map(|op| Step { op, because }).collect()
}
