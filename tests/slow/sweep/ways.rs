//! Ways over units that once left something behind: name, and the configs one after the other.

use super::model::{MASKED, Unit, Wish};
use super::random::{CONTENTS, DROPINS};

/// Ways over units that once left something behind.
pub fn units() -> Vec<(&'static str, Vec<Wish>)> {
    let wish = |name: &'static str, unit: Unit| Wish { units: [(name, unit)].into(), ..Wish::default() };
    let masked = || Unit { mask: Some(true), ..Unit::default() };
    let unmasked = || Unit { mask: Some(false), ..Unit::default() };
    let turned = |on| Unit { enabled: Some(on), ..Unit::default() };
    let of = |contents, enabled| Unit { contents: Some(contents), enabled, ..Unit::default() };
    let dropin = |text| Unit { dropins: [("20-y.conf", text)].into(), ..Unit::default() };
    let [install, other, bare, ..] = CONTENTS;
    let none = Wish::default;
    vec![
        ("own-masked", vec![wish("own.service", masked()), none()]),
        ("own-masked-then-named", vec![wish("own.service", masked()), wish("own.service", turned(true))]),
        ("held-masked", vec![none(), wish(MASKED, masked()), none()]),
        ("held-masked-then-named", vec![none(), wish(MASKED, masked()), wish(MASKED, turned(false)), none()]),
        ("held-contents", vec![wish(MASKED, of(install, Some(true))), wish(MASKED, turned(false))]),
        (
            "held-contents-unmasked",
            vec![wish(MASKED, of(install, Some(true))), wish(MASKED, unmasked()), none()],
        ),
        ("held-unmasked", vec![wish(MASKED, unmasked()), none()]),
        ("held-unmasked-masked", vec![wish(MASKED, unmasked()), wish(MASKED, masked()), none()]),
        ("held-masked-unmasked", vec![none(), wish(MASKED, masked()), wish(MASKED, unmasked()), none()]),
        (
            "own-unmasked-contents",
            vec![wish("own.service", unmasked()), wish("own.service", of(bare, None)), none()],
        ),
        ("own-unmasked-masked", vec![wish("own.service", unmasked()), wish("own.service", masked()), none()]),
        (
            "mask-contents",
            vec![wish("ours.service", masked()), wish("ours.service", of(install, None)), none()],
        ),
        ("disabled-masked", vec![wish("os.service", turned(false)), wish("os.service", masked()), none()]),
        ("enabled-masked", vec![wish("off.service", turned(true)), wish("off.service", masked()), none()]),
        (
            "without-install",
            vec![wish("ours.service", of(install, Some(true))), wish("ours.service", of(bare, Some(true)))],
        ),
        ("contents-over-vendor", vec![wish("os.service", of(other, Some(false))), none()]),
        ("contents-go", vec![wish("os.service", of(other, Some(true))), wish("os.service", turned(true))]),
        (
            "contents-of-nothing-go",
            vec![wish("ours.service", of(other, Some(true))), wish("ours.service", turned(true))],
        ),
        ("own-install-hidden", vec![wish("own.service", dropin(DROPINS[0])), none()]),
        (
            "install-comes",
            vec![wish("os.service", dropin(DROPINS[1])), wish("os.service", dropin(DROPINS[0]))],
        ),
    ]
}

/// Ways over units with an `Also=` that once left something of the other unit.
pub fn companions() -> Vec<(&'static str, Vec<Wish>)> {
    let wish = |name: &'static str, unit: Unit| Wish { units: [(name, unit)].into(), ..Wish::default() };
    let masked = || Unit { mask: Some(true), ..Unit::default() };
    let masked_off = || Unit { enabled: Some(false), ..masked() };
    let turned = |on| Unit { enabled: Some(on), ..Unit::default() };
    let of = |contents, enabled| Unit { contents: Some(contents), enabled, ..Unit::default() };
    let [install, .., also] = CONTENTS;
    let none = Wish::default;
    vec![
        ("also-enabled", vec![wish("with.service", turned(true)), none()]),
        ("also-enabled-masked", vec![wish("with.service", turned(true)), wish("with.service", masked())]),
        (
            "also-masked-disabled",
            vec![wish("with.service", turned(true)), wish("with.service", masked_off())],
        ),
        ("also-contents-enabled", vec![wish("ours.service", of(also, Some(true))), none()]),
        ("also-disabled", vec![wish("ours.service", of(also, Some(false))), none()]),
        (
            "also-leaves-contents",
            vec![wish("ours.service", of(also, Some(false))), wish("ours.service", of(install, Some(false)))],
        ),
    ]
}
