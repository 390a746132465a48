//! Shared by the command lines of the agent and of the controller: both refuse alike, both print the completions and the manual pages of
//! their parsers, and their texts have one form on a terminal.

mod bash;
pub mod completions;
pub mod exit;
pub mod man;
mod refusal;
pub mod screen;

use clap::ArgMatches;

pub use refusal::refusal;

/// Returns true if the verb prints JSON: then it does so for what it refuses as well.
#[must_use]
pub fn wants_json(matches: &ArgMatches) -> bool {
    if let Some((_, verb)) = matches.subcommand() {
        return wants_json(verb);
    }
    let mut words = matches.try_get_raw("output").ok().flatten();
    words.as_mut().and_then(Iterator::next).is_some_and(|word| word == "json")
}
