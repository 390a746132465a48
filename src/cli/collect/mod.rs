//! `collect`: this host's facts for a support case, in one file without secrets. It changes nothing else.
//!
//! Each part is read by itself: parts that this user may not read, damaged ones and late ones are named
//! in the bundle and on standard error, and the others are there. No contents of managed files are taken; those that
//! have come into a message all the same are redacted twice, by value (`secrets`) and by look (`host::redact`).

mod bundle;
mod parts;
mod secrets;

use std::io::Write as _;
use std::path::{Path, PathBuf};

use super::host::{HostFlags, runtime};
use super::output::print;
use super::{CliError, desired};
use crate::host::power::check_disk;
use crate::host::{Clock, Root};
use crate::model::FileMode;
use crate::settings::Environment;

/// Flags of `collect`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  machine-config-agent collect\n\n\
    Passwords, tokens, private keys and contents of files are left out. Review it before sharing.")]
pub(super) struct Arguments {
    /// File to write, `-` for standard output [default: machine-config-agent-NODE-TIME.tar.gz]
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    #[command(flatten)]
    control: desired::Flags,
    #[command(flatten)]
    host: HostFlags,
}

/// Collects, writes the bundle, and names unreadable parts.
pub(super) fn run(arguments: &Arguments, environment: &Environment) -> Result<u8, CliError> {
    let root = Root::open(&arguments.host.root)?;
    check_disk(&root)?;
    let now = Clock::system().now();
    let from = parts::From { host: &arguments.host, control: &arguments.control };
    let bundle = runtime()?.block_on(Box::pin(parts::collect(&from, environment, &root, now)));
    let unread: Vec<String> = bundle.unread().map(|(part, why)| format!("warning: {part}: {why}")).collect();
    let digits = now.to_string().chars().filter(char::is_ascii_alphanumeric).take(15).collect::<String>();
    let stem = format!("machine-config-agent-{}-{digits}", file_name(bundle.node()));
    let bytes = bundle.pack(&stem, now)?;
    match &arguments.file {
        Some(path) if path == Path::new("-") => {
            std::io::stdout().lock().write_all(&bytes).map_err(CliError::Output)?;
        }
        path => {
            let path = path.clone().unwrap_or_else(|| PathBuf::from(format!("{stem}.tar.gz")));
            write(&path, &bytes)?;
            print(&path.display().to_string())?;
        }
    }
    for line in unread {
        drop(writeln!(std::io::stderr(), "{line}"));
    }
    Ok(0)
}

/// Writes the file, for its owner alone.
fn write(path: &Path, bytes: &[u8]) -> Result<(), CliError> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let name = path.file_name().and_then(|name| name.to_str());
    let name = name.ok_or_else(|| CliError::Usage(format!("--file {}: it names no file", path.display())))?;
    Ok(Root::open(directory)?.replace(&format!("/{name}"), bytes, FileMode::PRIVATE)?)
}

/// A node's name as a part of a file's name.
fn file_name(node: &str) -> String {
    let fits = |c: char| if c.is_ascii_alphanumeric() || ".-".contains(c) { c } else { '-' };
    node.chars().map(fits).take(64).collect()
}
