//! The steps of the `core` account. Its home is on no image, so in image mode it is judged by what is there.

use super::differences::{keys_hold, password_holds};
use super::sides::Sides;
use super::{Because, Mode, Op, Step};
use crate::model::observation::ObservedCore;
use crate::model::users::{Core, PasswordHash};

/// Returns the steps. Without an account there is nothing to do (MCD-160); an unchanged section stays (MCD-164).
pub(super) fn steps(sides: &Sides<'_>) -> Vec<Step> {
    let (old, new) = (sides.from.users.core.as_ref(), sides.to.users.core.as_ref());
    let because = match (sides.mode, old, new) {
        (_, None, None) => return Vec::new(),
        (_, Some(_), None) => Because::Removed,
        (_, None, Some(_)) => Because::Added,
        (Mode::Nothing | Mode::Files, Some(old), Some(new)) if old == new => return Vec::new(),
        (_, Some(old), Some(new)) => {
            if old == new {
                Because::UnderVar
            } else {
                Because::Changed
            }
        }
    };
    if sides.facts.seen.core == ObservedCore::NoAccount {
        return Vec::new();
    }
    // A config that lists no user any more leaves no key and no password behind.
    let none = Core { keys: Vec::new(), password: PasswordHash::locked() };
    let wanted = new.unwrap_or(&none);
    let keys = (!keys_hold(wanted, &sides.facts.seen.core)).then_some(Op::SetSshKeys);
    let password = (!password_holds(wanted, &sides.facts.seen.core)).then_some(Op::SetPassword);
    keys.into_iter().chain(password).map(|op| Step { op, because }).collect()
}
