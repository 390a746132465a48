//! `apply`: the same plan, carried out once from files, without a cluster.

use std::io::{IsTerminal as _, Write as _};

use super::host::{HostFlags, RebootBy, runtime};
use super::output::print;
use super::settings::SettingsFlags;
use super::telemetry::telemetry;
use super::{CliError, input, last_report};
use crate::agent::{Agent, End, Reboots, Reread, Stop, Until};
use crate::control::ControlPlane;
use crate::control::oneshot::OneShot;
use crate::host::machine_name;
use crate::journal::Journal;
use crate::model::Target;
use crate::settings::Settings;
use crate::telemetry::LastReport;
use crate::telemetry::log::{self, Format};
use crate::update::Phase;

/// Flags of `apply`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  machine-config-agent apply --to rendered-worker-b.yaml --no-reboot")]
pub(super) struct Arguments {
    /// The MachineConfig's file, or `-`
    #[arg(long, value_name = "FILE")]
    to: String,
    /// OS image that goes with it
    #[arg(long, value_name = "IMAGE")]
    to_image: Option<String>,
    /// A MachineConfiguration object with the disruption policy
    #[arg(long, value_name = "FILE")]
    policy: Option<String>,
    #[command(flatten)]
    host: HostFlags,
    #[command(flatten)]
    tuning: SettingsFlags,
    /// Who reboots
    #[arg(long, value_enum, default_value_t = RebootBy::Logind)]
    reboot_by: RebootBy,
    /// Do not reboot; the next `apply` or `daemon` resumes after the reboot
    #[arg(long)]
    no_reboot: bool,
    /// Do not ask before changing this host
    #[arg(long)]
    yes: bool,
}

/// Carries the plan out.
pub(super) fn run(arguments: &Arguments, settings: &Settings) -> Result<u8, CliError> {
    if !arguments.yes {
        confirm(arguments)?;
    }
    log::start(if settings.journal { Format::Journal } else { Format::Text });
    let image = input::image(arguments.to_image.as_deref())?;
    let machine_config = input::machine_config(&arguments.to)?;
    let target = Target { config: machine_config.name().clone(), image: image.clone() };
    let control = OneShot::new(machine_config, image, input::policy(arguments.policy.as_deref())?);
    let reboots = if arguments.no_reboot { Reboots::Left } else { Reboots::Asked };
    runtime()?.block_on(async {
        let points = settings.points.clone();
        let host = arguments.host.open(arguments.reboot_by, points.clone())?;
        let journal = Journal::open(host.root.clone(), points.clone())?;
        last_report::mark_stopped(&host.root);
        let telemetry = telemetry(settings, &host, Vec::new(), LastReport::default())?;
        let tuning = arguments.tuning.open()?.read(&host.root)?;
        let settings = Reread::new(move || Ok(tuning.clone()));
        let mut agent = Agent::new(host, journal, control, telemetry, Stop::never(), &machine_name())
            .with(Until::Settled, reboots)
            .governed(settings);
        let end = Box::pin(agent.run()).await?;
        if let Some(count) = points.counted() {
            print(&format!("fail points: {count}"))?;
        }
        conclude(&agent, end, &target, arguments.no_reboot)
    })
}

/// Says how it ended.
fn conclude<C: ControlPlane>(
    agent: &Agent<C>,
    end: End,
    target: &Target,
    no_reboot: bool,
) -> Result<u8, CliError> {
    let record = agent.journal().record();
    let back = record.is_some_and(|record| matches!(record.phase, Phase::FallingBack { .. }));
    if end == End::Reboot && no_reboot && back {
        print(
            "not healthy; `systemctl reboot` goes back to the deployment before, the next `apply` undoes the rest",
        )?;
        return Ok(4);
    }
    if end == End::Reboot && no_reboot {
        print(
            "applied; the node has to reboot: `systemctl reboot`, then the same `apply` again verifies it",
        )?;
        return Ok(0);
    }
    if end == End::Reboot {
        return Ok(super::host::REBOOT_WANTED);
    }
    let fault =
        agent.journal().record().and_then(|record| record.fault.as_ref()).or(agent.health().fault.as_ref());
    if let Some(fault) = fault {
        drop(writeln!(std::io::stderr(), "error: {}\nNext: {}", fault.message, fault.next));
        return Ok(fault.class.exit_code());
    }
    if agent.journal().committed() != Some(target) {
        let record = agent.journal().record();
        if let Some(waiting) = record.and_then(|record| record.waiting.as_ref()) {
            drop(writeln!(std::io::stderr(), "error: it waits for {waiting}. The next `apply` goes on"));
        } else if record.is_some_and(|record| matches!(record.phase, Phase::Rebooting { .. })) {
            print("applied; the node is going down, and the next `apply`, or the daemon, verifies it")?;
            return Ok(0);
        }
        return Ok(4);
    }
    if let Some(difference) = agent.health().drift.first() {
        drop(writeln!(std::io::stderr(), "error: the host is not as {} says: {difference}", target.config));
        return Ok(4);
    }
    print(&format!("the host is as {} says", target.config))?;
    Ok(0)
}

/// Asks a person; refuses when there is none.
fn confirm(arguments: &Arguments) -> Result<(), CliError> {
    let refused = || CliError::Usage("not confirmed; pass --yes to skip the prompt".to_owned());
    if !std::io::stdin().is_terminal() || arguments.to == "-" {
        return Err(refused());
    }
    let question = format!("Bring {} to {}? [y/N] ", arguments.host.root.display(), arguments.to);
    let mut out = std::io::stdout().lock();
    out.write_all(question.as_bytes()).and_then(|()| out.flush()).map_err(CliError::Output)?;
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer).map_err(CliError::Output)?;
    if matches!(answer.trim(), "y" | "Y" | "yes") { Ok(()) } else { Err(refused()) }
}
