//! `man`: the manual pages, one of the program and one of each verb, nested ones as well.

use std::io;
use std::path::PathBuf;

use clap::Command;
use clap_mangen::Man;

/// The section of the pages: commands of an administrator.
const SECTION: &str = "8";

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
pub fn run(arguments: &Arguments, mut command: Command, exit_status: &str) -> Result<Option<String>, Error> {
    // The names of the verbs' pages come with it.
    command.build();
    let program = command.get_name().to_owned();
    if let Some(directory) = &arguments.directory {
        let mut pages = Vec::new();
        all(&command, exit_status, &mut pages).map_err(Error::Page)?;
        for (name, page) in pages {
            #[expect(
                clippy::disallowed_methods,
                reason = "a directory that the person names, and no host's"
            )]
            std::fs::write(directory.join(name), page).map_err(Error::Directory)?;
        }
        return Ok(None);
    }
    let mut verb = &command;
    for name in &arguments.verb {
        verb = verb.find_subcommand(name).ok_or_else(|| {
            let words = arguments.verb.join(" ");
            let above = verb.get_bin_name().unwrap_or(&program);
            Error::Verb(format!("there is no command {words}; `{above} --help` lists them"))
        })?;
    }
    page(verb, exit_status).map(|(_, page)| Some(page)).map_err(Error::Page)
}

fn all(command: &Command, exit_status: &str, pages: &mut Vec<(String, String)>) -> io::Result<()> {
    pages.push(page(command, exit_status)?);
    for verb in command.get_subcommands().filter(|verb| !verb.is_hide_set()) {
        all(verb, exit_status, pages)?;
    }
    Ok(())
}

/// Returns the name of a page and its text.
fn page(command: &Command, exit_status: &str) -> io::Result<(String, String)> {
    let man = Man::new(command.clone()).section(SECTION).source("");
    let mut text = Vec::new();
    man.render_title(&mut text)?;
    man.render_name_section(&mut text)?;
    man.render_synopsis_section(&mut text)?;
    man.render_description_section(&mut text)?;
    if command.get_arguments().any(|argument| !argument.is_hide_set()) {
        man.render_options_section(&mut text)?;
    }
    if command.get_subcommands().any(|verb| !verb.is_hide_set()) {
        man.render_subcommands_section(&mut text)?;
    }
    let mut text = String::from_utf8_lossy(&text).into_owned();
    text += ".SH \"EXIT STATUS\"\n";
    for line in exit_status.lines() {
        let (code, meaning) = line.split_once(' ').unwrap_or((line, ""));
        text += &format!(".TP\n\\fB{code}\\fR\n{}\n", escaped(meaning));
    }
    let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    if let Some(examples) = EXAMPLES.iter().find_map(|head| help.split_once(head)).map(|(_, lines)| lines) {
        text += ".SH EXAMPLES\n.nf\n";
        let (commands, notes) = examples.split_once("\n\n").unwrap_or((examples, ""));
        for line in commands.lines() {
            text += &format!("{}\n", escaped(line.trim_start()));
        }
        text += ".fi\n";
        if !notes.is_empty() {
            text += ".SH NOTES\n";
            for line in notes.lines() {
                text += &format!("{}\n", escaped(line.trim_start()));
            }
        }
    }
    Ok((man.get_filename(), text))
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
    fn lines_are_no_requests_of_roff() {
        assert_eq!(escaped(r".so \x --to a"), r"\&.so \ex \-\-to a");
        assert_eq!(escaped("'a"), "\\&'a");
    }
}
