//! `seed restore`: the host is restored after a seed that was cut short.

use super::super::CliError;
use super::super::output::print;
use crate::agent::restore_seed;
use crate::apply::SeedHost;
use crate::host::{Root, Systemd};
use crate::journal::seed::SeedJournal;
use crate::settings::Environment;
use crate::telemetry::log::{self, Format};

/// Flags of `seed restore`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  machine-config-agent seed restore\n\n\
    Does nothing if no seed was interrupted. The next `seed create` and the start of the daemon do the same.")]
pub(super) struct Arguments {}

/// Restores the host.
pub(super) async fn run(_: &Arguments, environment: &Environment) -> Result<u8, CliError> {
    let root = Root::open(std::path::Path::new("/"))?.with_fail_points(&environment.fail_points);
    let systemd = Systemd::detect(&root)?;
    let mut journal = open_journal(&root, environment)?;
    log::start(Format::Text);
    let was_open = restore_seed(&mut journal, &SeedHost { root: &root, systemd: &systemd }).await?;
    print(if was_open { "The host is restored" } else { "No seed was interrupted" })?;
    Ok(0)
}

/// Opens the journal; one that another process holds is an error.
pub(super) fn open_journal(root: &Root, environment: &Environment) -> Result<SeedJournal, CliError> {
    let journal = SeedJournal::open(root.clone(), environment.fail_points.clone())?;
    Ok(journal.ok_or_else(SeedJournal::held)?)
}
