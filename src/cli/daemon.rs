//! `daemon`: the agent.

use std::path::PathBuf;

use super::host::{HostFlags, RebootBy, runtime};
use super::{CliError, Output};
use crate::agent::{Agent, End, Stop};
use crate::control::directory::Directory;
use crate::host::machine_name;
use crate::journal::Journal;
use crate::settings::Settings;
use crate::telemetry::log::{self, Format};
use crate::telemetry::notify::Notify;

/// Flags of `daemon`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  machine-config-agent daemon --directory /etc/machine-config-agent")]
pub(super) struct Arguments {
    /// Directory that holds target.yaml and machineconfigs/, and gets report.json
    #[arg(long, value_name = "DIR")]
    directory: PathBuf,
    /// Name of this node (default: the host name)
    #[arg(long, value_name = "NAME")]
    node_name: Option<String>,
    #[command(flatten)]
    host: HostFlags,
    /// Who reboots: logind, or a supervisor that plays it when the agent exits
    #[arg(long, value_enum, default_value_t = RebootBy::Logind)]
    reboot_by: RebootBy,
    /// Log format outside of the journal
    #[arg(long, value_enum, default_value_t = Output::Text)]
    log_format: Output,
}

/// Runs the agent until it is stopped.
pub(super) fn run(arguments: &Arguments, settings: &Settings) -> Result<u8, CliError> {
    log::start(match arguments.log_format {
        Output::Json => Format::Json,
        Output::Text if settings.journal => Format::Journal,
        Output::Text => Format::Text,
    });
    runtime()?.block_on(async {
        let points = settings.points.clone();
        let host = arguments.host.open(arguments.reboot_by, points.clone())?;
        let node = arguments.node_name.clone().unwrap_or_else(machine_name);
        let journal = Journal::open(host.root.clone(), points)?;
        let control = Directory::open(&arguments.directory)?;
        let stop = Stop::signals().map_err(|source| CliError::Setup { what: "register signals", source })?;
        let mut agent = Agent::new(host, journal, control, Notify::new(settings.notify.clone()), stop, &node);
        match agent.run().await? {
            End::Stopped | End::Settled => Ok(0),
            End::Reboot => Ok(super::host::REBOOT_WANTED),
        }
    })
}
