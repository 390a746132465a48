//! `systemd.units`: texts of units and drop-ins that can be read. Names are the reader's.

use ignition_config::v3_6::Unit;

use super::found::{Found, entry, filled};
use super::unit_text::unreadable;
use crate::model::text::short;

pub(super) fn check(found: &mut Found, units: &[Unit]) {
    for unit in units {
        let field = || entry("systemd.units", &unit.name);
        let cause = filled(unit.contents.as_ref()).and_then(unreadable);
        found.add_some(cause, || format!("{} contents", field()));
        for dropin in unit.dropins.iter().flatten() {
            let cause = filled(dropin.contents.as_ref()).and_then(unreadable);
            found.add_some(cause, || format!("{} dropins {:?} contents", field(), short(&dropin.name, 100)));
        }
    }
}
