//! `stateroot trial`: what a boot has to do with stateroots. Its unit runs it.

use super::super::CliError;
use super::super::agent_flags::AgentFlags;
use super::super::host::REBOOT_REQUIRED;
use super::super::output::print;
use super::machine::Machine;
use crate::agent::{BootEnd, BootWorker};
use crate::host::machine_name;
use crate::settings::Environment;
use crate::telemetry::log::{self, Format};
use crate::telemetry::notify::Notify;

/// Flags of `stateroot trial`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  machine-config-agent stateroot trial\n\n\
    machine-config-agent-stateroot.service runs it in each boot. Without an activation it does nothing.")]
pub(super) struct Arguments {
    #[command(flatten)]
    agent: AgentFlags,
}

/// Tries the system, or closes the record of one that boots again.
pub(super) async fn run(arguments: &Arguments, environment: &Environment) -> Result<u8, CliError> {
    log::start(if environment.journal { Format::Journal } else { Format::Text });
    let (settings, host) = arguments.agent.open(environment)?;
    // Settings that can't be read are no reason to stay in a system that is not well.
    let rules = settings.read(&host.root).map(|settings| settings.health).unwrap_or_default();
    let machine = Machine::open(environment)?;
    let worker =
        BootWorker { host: &host, stateroots: &machine.stateroots, rules: &rules, node: &machine_name() };
    // Each wait has a limit: a sign of life says that this process still comes to them.
    let mut notify = Notify::new(environment.notify.clone(), environment.watchdog);
    let end = notify.during(Box::pin(worker.settle())).await?;
    if let Some(count) = environment.fail_points.counted() {
        print(&format!("fail points: {count}"))?;
    }
    Ok(match end {
        BootEnd::GoesDown => REBOOT_REQUIRED,
        BootEnd::Stays => 0,
    })
}
