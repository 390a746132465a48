//! Coverage-guided fuzzing of the parsers of foreign bytes. `FUZZ_TARGET` names the parser; what has to hold is in
//! `tests/support/fuzzed.rs`.

#[path = "../../tests/support/fuzzed.rs"]
mod fuzzed;

use std::sync::OnceLock;

use fuzzed::Target;

/// Gives the input to the parser.
pub fn run(targets: &[(&'static str, Target)], bytes: &[u8]) {
    static TARGET: OnceLock<Target> = OnceLock::new();
    let target = TARGET.get_or_init(|| {
        let name = std::env::var("FUZZ_TARGET").unwrap_or_default();
        let found = targets.iter().find(|(known, _)| *known == name).map(|(_, target)| *target);
        let names = || targets.iter().map(|(name, _)| *name).collect::<Vec<_>>();
        found.unwrap_or_else(|| panic!("FUZZ_TARGET is {name:?}; it is one of {:?}", names()))
    });
    fuzzed::check(*target, bytes);
}
