//! `firstboot`: completes a first boot before the kubelet starts.
//!
//! The encapsulated config is one target, and the loop is the daemon's: it plans, records, stages and reboots once, and it
//! waits for missing objects as long as that takes. The file goes when the host has been seen to be as it says, in the
//! new boot, so a power cut at any point leads back here. The recorded target then is no committed config: Ignition
//! wrote the other part of it, which the daemon compares with the host before it takes it over.

use std::future::pending;
use std::time::Duration;

use tokio::time::timeout;
use tracing::{info, warn};

use super::CliError;
use super::agent_flags::ContainerFlags;
use super::earlier_installation::drop_not_own;
use super::host::{REBOOT_REQUIRED, STOPPED, runtime};
use super::last_report::{self, Follows};
use super::output::print;
use super::telemetry::telemetry;
use crate::agent::{Agent, ExitReason, ProcessSignals, Reboots, RunMode, SettingsLoader, log_fault};
use crate::control::encapsulated::{ENCAPSULATED, Encapsulated, retire};
use crate::decide::first_boot::FirstBootRetry;
use crate::host::console::Console;
use crate::host::root::Root;
use crate::host::watch::Watch;
use crate::host::{Host, machine_name, nics};
use crate::journal::{Journal, JournalError, mcd, state};
use crate::model::message;
use crate::settings::Environment;
use crate::telemetry::Telemetry;
use crate::telemetry::log::{self, Format};
use crate::telemetry::notify::Notify;
use crate::update::Fault;

/// Longest silence of a first boot that is well, as of the daemon; `TimeoutStartSec=` of its unit is the same.
const SILENCE: Duration = Duration::from_secs(30 * 60);

/// Flags of `firstboot`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  machine-config-agent firstboot\n\n\
    Exits with 0 when done, with 104 if it was stopped before.")]
pub(super) struct Arguments {
    /// The MachineConfig that Ignition left; without it nothing is done
    #[arg(long, value_name = "FILE", default_value = ENCAPSULATED)]
    machineconfig_file: String,
    /// Only pin the names of network interfaces (nmstatectl persist-nic-names), before another OS may rename them
    #[arg(long)]
    persist_nics: bool,
    #[command(flatten)]
    container: ContainerFlags,
}

/// Completes the first boot.
pub(super) fn run(arguments: &Arguments, environment: &Environment) -> Result<u8, CliError> {
    log::start(if environment.journal { Format::Journal } else { Format::Text });
    runtime()?.block_on(async {
        let (node_settings, host) = arguments.container.open(environment)?;
        let mut notify = Notify::starting(environment.notify.clone(), SILENCE);
        if arguments.persist_nics {
            notify.during(persist_nics(&host)).await;
            return Ok(0);
        }
        let path = &arguments.machineconfig_file;
        let Some(mut journal) = notify.during(Box::pin(open(&host, path, environment))).await? else {
            print(&format!("nothing to do: there is no {path}"))?;
            return Ok(0);
        };
        if path == ENCAPSULATED {
            drop_not_own(&mut journal)?;
        }
        if is_managed(&host, &journal)? {
            return leave_to_daemon(&host, path);
        }
        let loader = node_settings.settings_loader(&host.root);
        Box::pin(complete(host, journal, path, environment, loader)).await
    })
}

/// Pins the names of network interfaces, however many tries it takes: a host whose names are not pinned may be lost with
/// another OS, and the first boot after this waits.
async fn persist_nics(host: &Host) {
    let mut retry = FirstBootRetry::new(&machine_name());
    let mut console = Console::new(&host.root);
    while let Err(error) = nics::persist(&host.root).await {
        let fault = Fault::from_error(error.class(), error.reason(), &error, &error.next());
        log_fault(&fault, None, RunMode::FirstBoot);
        console.write_line(&fault.to_string());
        tokio::time::sleep(retry.fail()).await;
    }
}

/// Opens the journal as soon as its lock is free; `None` when there is nothing to do, or not any more.
async fn open(host: &Host, path: &str, environment: &Environment) -> Result<Option<Journal>, CliError> {
    let mut retry = FirstBootRetry::new(&machine_name());
    loop {
        if !host.root.exists(path)? {
            return Ok(None);
        }
        match Journal::open(host.root.clone(), environment.fail_points.clone()) {
            Err(JournalError::Locked { .. }) => {}
            opened => return Ok(opened.map(Some)?),
        }
        // The holder of the lock applies this host's config, and puts the file away.
        warn!(MESSAGE_ID = message::WAITING, "Waiting for another agent, which works on this host");
        let end = lock_released(&host.root, path);
        // What can't be watched is tried again all the same.
        let _late = timeout(retry.fail(), end).await;
    }
}

/// Waits until nobody holds the journal's lock, or the file is gone. Its holder closes the lock with its end, however it ends.
async fn lock_released(root: &Root, path: &str) {
    let lock = state("lock");
    let Ok(mut watch) = Watch::new(root, [&*lock, path], []) else { return pending().await };
    let is_held = || root.lock_holder(&lock).is_ok_and(|holder| holder.is_some());
    if !is_held() {
        // It was released just now, or is of a file system that shows no holder.
        return pending().await;
    }
    while is_held() && root.exists(path).unwrap_or(true) {
        if watch.changed().await.is_err() {
            return pending().await;
        }
    }
}

/// Returns true if this host has come further than its first boot. The config that came with its image is none of its own.
fn is_managed(host: &Host, journal: &Journal) -> Result<bool, CliError> {
    Ok(journal.current().is_some() || (journal.record().is_none() && mcd::is_committed(&host.root)?))
}

/// Leaves a host to its daemon: its config is more than an encapsulated one.
fn leave_to_daemon(host: &Host, path: &str) -> Result<u8, CliError> {
    if path != ENCAPSULATED {
        return Err(CliError::Usage(format!(
            "{path}: this host has a committed config, so this is not a first boot; nothing was touched, use `apply`"
        )));
    }
    retire(&host.root, path)?;
    info!(
        MESSAGE_ID = message::FIRST_BOOT,
        "This host has a committed config: renamed {path}, which was left over"
    );
    print(&format!("nothing to do: this host has a committed config, and {path} was renamed"))?;
    Ok(0)
}

/// Runs the loop to its end.
async fn complete(
    host: Host,
    journal: Journal,
    path: &str,
    environment: &Environment,
    loader: SettingsLoader,
) -> Result<u8, CliError> {
    let root = host.root.clone();
    last_report::mark_stopped(&root);
    let control = Encapsulated::open(&root, path)?;
    let last = last_report::writer(&root, &Follows::FirstBoot(path.to_owned()));
    let telemetry = Telemetry {
        notify: Notify::starting(environment.notify.clone(), SILENCE),
        ..telemetry(environment, &host, Vec::new(), last)
    };
    let stop =
        ProcessSignals::register().map_err(|source| CliError::Setup { what: "register signals", source })?;
    let mut agent = Agent::new(host, journal, control, telemetry, stop, &machine_name())
        .with(RunMode::FirstBoot, Reboots::Requested)
        .with_settings(loader);
    let end = Box::pin(agent.run()).await?;
    if let Some(count) = environment.fail_points.counted() {
        print(&format!("fail points: {count}"))?;
    }
    match end {
        ExitReason::Reboot => Ok(REBOOT_REQUIRED),
        ExitReason::Stopped => Ok(STOPPED),
        ExitReason::Settled => {
            // The lock is still held.
            if !root.exists(path)? {
                info!(
                    MESSAGE_ID = message::FIRST_BOOT,
                    "The first boot ended: a person or program removed {path}"
                );
                print(&format!("nothing to do any more: {path} was removed"))?;
                return Ok(0);
            }
            retire(&root, path)?;
            last_report::mark_stopped(&root);
            info!(MESSAGE_ID = message::FIRST_BOOT, "The first boot is complete: renamed {path}");
            Console::new(&root).write_line("the first boot is complete");
            print(&format!("the first boot is complete, and {path} was renamed"))?;
            Ok(0)
        }
    }
}
