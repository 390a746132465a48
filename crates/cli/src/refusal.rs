//! A command line that makes no sense, told to a program that asked for JSON.

use std::ffi::OsString;

use clap::Command;
use clap::error::{ContextKind, ContextValue};

use machine_config_core::model::refusal::{Refusal, asks_for_json};

/// Returns what was refused, where the words ask for JSON of a verb that prints it.
#[must_use]
pub fn refusal(error: &clap::Error, command: &Command, words: &[OsString]) -> Option<Refusal> {
    let words: Vec<&str> = words.iter().skip(1).filter_map(|word| word.to_str()).collect();
    let mut path = vec![command.get_name()];
    let mut verb = command;
    for found in words.iter().take_while(|word| **word != "--") {
        let Some(below) = verb.find_subcommand(found) else { continue };
        path.push(below.get_name());
        verb = below;
    }
    // A verb that nobody knows prints nothing else.
    let prints_json = verb.has_subcommands() || verb.get_arguments().any(is_format);
    let help = format!("{} --help", path.join(" "));
    (prints_json && asks_for_json(words))
        .then(|| Refusal::of_command_line(&error.to_string(), argument(error).as_deref(), &help))
}

/// Returns true if an argument is the format of the output, and not where it is written.
fn is_format(argument: &clap::Arg) -> bool {
    let is_json = |value: &clap::builder::PossibleValue| value.get_name() == "json";
    argument.get_id() == "output" && argument.get_possible_values().iter().any(is_json)
}

/// Returns the argument that an error is about, in the form of the help text.
fn argument(error: &clap::Error) -> Option<String> {
    let kinds = [ContextKind::InvalidArg, ContextKind::InvalidSubcommand];
    let found = kinds.into_iter().find_map(|kind| error.get(kind))?;
    if let ContextValue::Strings(all) = found {
        return all.first().cloned();
    }
    if let ContextValue::String(one) = found { Some(one.clone()) } else { None }
}
