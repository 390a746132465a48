//! `man`: the manual pages, one of the program and one of each verb, nested ones as well.

use std::io;
use std::path::PathBuf;

use clap::Command;
use clap_mangen::Man;

use crate::exit::Exit;

/// The section of the pages: commands of an administrator.
const SECTION: &str = "8";

/// Its name.
const MANUAL: &str = "System Administration";

/// The longest line that 80 columns show whole, behind the indentation and with room for a backslash.
const WIDTH: usize = 70;

/// The heads of the examples in a help text.
const EXAMPLES: [&str; 2] = ["Examples:\n", "Example:\n"];

/// Flags of `man`.
#[derive(Debug, clap::Args)]
#[group(skip)]
pub struct Arguments {
    /// Command that the page describes (default: the program)
    #[arg(value_name = "VERB", conflicts_with = "directory")]
    verb: Vec<String>,
    /// Write all pages to this directory
    #[arg(long, value_name = "DIR")]
    directory: Option<PathBuf>,
}

/// Cause of an end without pages.
#[derive(Debug)]
pub enum Error {
    /// There is no such verb; the text names it, and the next step.
    Verb(String),
    /// A page can't be rendered.
    Page(io::Error),
    /// A page can't be written to the directory that was named.
    Directory(io::Error),
}

/// Returns the page that was asked for; writes all of them where a directory was named.
///
/// # Errors
///
/// Without such a verb, and if a page can't be written.
pub fn run(arguments: &Arguments, mut command: Command, exits: &[Exit]) -> Result<Option<String>, Error> {
    // The names of the verbs' pages come with it.
    command.build();
    let program = command.get_name().to_owned();
    if let Some(directory) = &arguments.directory {
        let mut pages = Vec::new();
        all(&command, &command, exits, &mut pages).map_err(Error::Page)?;
        for (name, page) in pages {
            #[expect(
                clippy::disallowed_methods,
                reason = "a directory that the person names, and no host's"
            )]
            std::fs::write(directory.join(name), page).map_err(Error::Directory)?;
        }
        return Ok(None);
    }
    let (mut above, mut verb) = (&command, &command);
    for name in &arguments.verb {
        above = verb;
        verb = verb.find_subcommand(name).ok_or_else(|| {
            let words = arguments.verb.join(" ");
            let listing = verb.get_bin_name().unwrap_or(&program);
            Error::Verb(format!("there is no command {words}; `{listing} --help` lists them"))
        })?;
    }
    page(verb, above, exits).map(|(_, page)| Some(page)).map_err(Error::Page)
}

/// Renders a command and those below it.
fn all(
    command: &Command,
    above: &Command,
    exits: &[Exit],
    pages: &mut Vec<(String, String)>,
) -> io::Result<()> {
    pages.push(page(command, above, exits)?);
    for verb in command.get_subcommands().filter(|verb| !verb.is_hide_set()) {
        all(verb, command, exits, pages)?;
    }
    Ok(())
}

/// Returns the name of a page and its text; `above`: the command that it is a verb of.
fn page(command: &Command, above: &Command, exits: &[Exit]) -> io::Result<(String, String)> {
    let man = Man::new(command.clone()).section(SECTION);
    let program = command.get_bin_name().and_then(|name| name.split(' ').next()).unwrap_or_default();
    let mut text = title(program).into_bytes();
    man.render_name_section(&mut text)?;
    text.extend(synopsis(command).into_bytes());
    man.render_description_section(&mut text)?;
    if command.get_arguments().any(|argument| !argument.is_hide_set()) {
        man.render_options_section(&mut text)?;
    }
    if command.get_subcommands().any(|verb| !verb.is_hide_set()) {
        man.render_subcommands_section(&mut text)?;
    }
    let mut text = String::from_utf8_lossy(&text).into_owned();
    text += ".SH \"EXIT STATUS\"\n";
    let is_program = command.get_name() == above.get_name();
    let verb = command.get_bin_name().and_then(|name| name.split_once(' ')).map(|(_, verb)| verb);
    for (code, meaning) in codes(exits, verb.filter(|_| !is_program)) {
        text += &format!(".TP\n\\fB{code}\\fR\n{}\n", escaped(&meaning));
    }
    let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    if let Some(examples) = EXAMPLES.iter().find_map(|head| help.split_once(head)).map(|(_, lines)| lines) {
        text += ".SH EXAMPLES\n.nf\n";
        let (commands, notes) = examples.split_once("\n\n").unwrap_or((examples, ""));
        for line in commands.lines().flat_map(|line| folded(line.trim_start())) {
            text += &format!("{}\n", escaped(&line));
        }
        text += ".fi\n";
        if !notes.is_empty() {
            text += ".SH NOTES\n";
            for line in notes.lines() {
                text += &format!("{}\n", escaped(line.trim_start()));
            }
        }
    }
    if !is_program {
        let name = above.get_display_name().unwrap_or_else(|| above.get_name());
        text += &format!(".SH \"SEE ALSO\"\n\\fB{}\\fR({SECTION})\n", escaped(name));
    }
    Ok((man.get_filename(), text))
}

/// Returns the codes of a verb with their meanings: its own before the one of all verbs. Those of the program are all of them.
fn codes(exits: &[Exit], verb: Option<&str>) -> Vec<(&'static str, String)> {
    let mut codes: Vec<(&'static str, Vec<&Exit>)> = Vec::new();
    let is_of = |exit: &&Exit| verb.is_none_or(|verb| exit.verbs.is_empty() || exit.verbs.contains(&verb));
    for exit in exits.iter().filter(is_of) {
        match codes.last_mut().filter(|(code, _)| *code == exit.code) {
            Some((_, same)) => same.push(exit),
            None => codes.push((exit.code, vec![exit])),
        }
    }
    let meaning = |of: Vec<&Exit>| {
        let is_replaced = |exit: &Exit| verb.is_some() && exit.verbs.is_empty() && of.len() > 1;
        let meanings: Vec<&str> =
            of.iter().filter(|exit| !is_replaced(exit)).map(|exit| exit.meaning).collect();
        meanings.join("; ")
    };
    codes.into_iter().map(|(code, of)| (code, meaning(of))).collect()
}

/// Returns the title of a page: the program's, since the name of a nested verb does not fit twice into the head of 80 columns.
fn title(program: &str) -> String {
    format!(".TH {} {SECTION} \"\" \"\" \"{MANUAL}\"\n", escaped(&program.to_uppercase()))
}

/// Returns the synopsis as the program's own help has it: values, and what is required.
fn synopsis(command: &Command) -> String {
    let usage = command.clone().render_usage().to_string();
    let lines = usage.strip_prefix("Usage:").unwrap_or(&usage).lines().map(str::trim);
    let lines = lines.filter(|line| !line.is_empty()).flat_map(folded).map(|line| escaped(&line) + "\n");
    format!(".SH SYNOPSIS\n.nf\n{}.fi\n", lines.collect::<String>())
}

/// Breaks a command line before its flags and its redirection, as a shell takes it.
fn folded(line: &str) -> Vec<String> {
    let is_begin = |word: &str| word.starts_with(['-', '>', '|', '[', '<']);
    let mut parts: Vec<String> = Vec::new();
    for word in line.split_inclusive(' ') {
        match parts.last_mut().filter(|_| !is_begin(word)) {
            Some(part) => part.push_str(word),
            None => parts.push(word.to_owned()),
        }
    }
    let mut lines = vec![String::new()];
    for part in parts {
        let last = lines.last().cloned().unwrap_or_default();
        if !last.trim().is_empty() && last.len() + part.trim_end().len() > WIDTH {
            lines.pop();
            lines.push(last + "\\");
            lines.push("    ".to_owned());
        }
        if let Some(line) = lines.last_mut() {
            line.push_str(&part);
        }
    }
    lines
}

/// Returns a line of text as roff reads it: a hyphen of a command is a minus, and no line is a request.
fn escaped(line: &str) -> String {
    let line = line.replace('\\', "\\e").replace('-', "\\-");
    if line.starts_with(['.', '\'']) { format!("\\&{line}") } else { line }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_commands_go_on_in_the_next_line() {
        let line = "machine-config-agent seed create --image registry.example/seeds/sno:4.17.2 --version 4.17.2 --push";
        let expected = [
            "machine-config-agent seed create \\",
            "    --image registry.example/seeds/sno:4.17.2 --version 4.17.2 --push",
        ];
        assert_eq!(folded(line), expected);
        assert_eq!(folded("machine-config-agent status"), ["machine-config-agent status"]);
    }

    #[test]
    fn lines_are_no_requests_of_roff() {
        assert_eq!(escaped(r".so \x --to a"), r"\&.so \ex \-\-to a");
        assert_eq!(escaped("'a"), "\\&'a");
    }
}
