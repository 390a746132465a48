//! `apply`: the same plan, carried out once from files, without a cluster.

use std::io::{IsTerminal as _, Write as _};

use super::agent_flags::AgentFlags;
use super::host::{REBOOT_REQUIRED, runtime};
use super::input::Unknown;
use super::output::print;
use super::telemetry::telemetry;
use super::{CliError, input, last_report, plan};
use crate::agent::{Agent, ExitReason, ProcessSignals, Reboots, RunMode};
use crate::control::ControlPlane;
use crate::control::oneshot::OneShot;
use crate::decide::ended::{Attempt, RunResult, ended};
use crate::host::{Proxies, Root, machine_name};
use crate::journal::Journal;
use crate::journal::origin::check_commit;
use crate::model::text::counted;
use crate::model::{ConfigName, Target};
use crate::settings::Environment;
use crate::telemetry::LastReport;
use crate::telemetry::log::{self, Format};

/// Flags of `apply`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  machine-config-agent apply --to rendered-worker-b.yaml --no-reboot")]
pub(super) struct Arguments {
    /// A MachineConfig or an Ignition config: its file, its URL, or `-`
    #[arg(long, value_name = "FILE|URL")]
    to: String,
    /// Expected digest, as `sha256:HEX`; an http URL needs one
    #[arg(long, value_name = "DIGEST")]
    digest: Option<String>,
    /// OS image that goes with it
    #[arg(long, value_name = "IMAGE")]
    to_image: Option<String>,
    /// A MachineConfiguration object with the disruption policy
    #[arg(long, value_name = "FILE")]
    policy: Option<String>,
    #[command(flatten)]
    unknown: Unknown,
    #[command(flatten)]
    agent: AgentFlags,
    /// Do not reboot; the next `apply` or `daemon` resumes after the reboot
    #[arg(long)]
    no_reboot: bool,
    /// Do not ask before changing this host
    #[arg(long)]
    yes: bool,
    /// Image builds only: keep the base's originals in the image, then delete the agent's state
    #[arg(long, requires = "no_reboot")]
    into_image: bool,
}

/// Carries the plan out.
pub(super) fn run(arguments: &Arguments, environment: &Environment) -> Result<u8, CliError> {
    let (to, policy) = (arguments.to.as_str(), arguments.policy.as_deref());
    input::check_standard_input(&[("--to", Some(to)), ("--policy", policy)])?;
    if !arguments.yes {
        confirm(arguments)?;
    }
    log::start(if environment.journal { Format::Journal } else { Format::Text });
    let image = input::image("--to-image", arguments.to_image.as_deref())?;
    let machine_config = input::checked_config(to, arguments.digest.as_deref(), arguments.unknown, || {
        let proxies = Proxies::new(Root::open(arguments.agent.root())?, environment.proxy.clone());
        Ok(proxies.for_pulls()?)
    })?;
    let (machine_config, policy) = input::policy(policy, arguments.unknown, machine_config, to)?;
    let control = OneShot::new(machine_config.clone(), image.clone(), policy.clone());
    let target = control.target().clone();
    let reboots = if arguments.no_reboot { Reboots::Left } else { Reboots::Requested };
    runtime()?.block_on(async {
        let fail_points = environment.fail_points.clone();
        let (node_settings, host) = arguments.agent.open(environment)?;
        let journal = Journal::open(host.root.clone(), fail_points.clone())?;
        check_commit(&host.root)?;
        if arguments.into_image {
            check_image_root(&host.root, &journal)?;
        }
        let read = arguments.agent.observe(environment)?;
        Box::pin(plan::check_beside_open(read, (&machine_config, image), policy)).await?;
        last_report::mark_stopped(&host.root);
        let telemetry = telemetry(environment, &host, Vec::new(), LastReport::default());
        let settings = node_settings.loader_of(node_settings.read(&host.root)?);
        let mut agent =
            Agent::new(host, journal, control, telemetry, ProcessSignals::never(), &machine_name())
                .with(RunMode::OneShot, reboots)
                .with_settings(settings);
        let end = Box::pin(agent.run()).await?;
        if let Some(count) = fail_points.counted() {
            print(&format!("fail points: {count}"))?;
        }
        let code = conclude(&agent, end, &target, reboots)?;
        if arguments.into_image && code == 0 {
            agent.journal().leave_image()?;
        }
        Ok(code)
    })
}

/// Refuses a host in the place of an image's root: its state would be deleted.
fn check_image_root(root: &Root, journal: &Journal) -> Result<(), CliError> {
    let is_booted = root.exists("/run/ostree-booted")? || root.exists("/run/systemd/system")?;
    if is_booted || journal.current().is_some() || journal.record().is_some() {
        let next = "use it in a build, on the root of an image, where nothing was applied before";
        return Err(CliError::Usage(format!(
            "--into-image deletes the agent's state, and this is a host with one; {next}"
        )));
    }
    Ok(())
}

/// Prints the result and returns the exit code.
fn conclude<C: ControlPlane>(
    agent: &Agent<C>,
    end: ExitReason,
    target: &Target,
    reboots: Reboots,
) -> Result<u8, CliError> {
    let (journal, health) = (agent.journal(), agent.health());
    let run = Attempt {
        end,
        reboots,
        target,
        record: journal.record(),
        current: journal.current(),
        fault: health.refused.as_ref().or(health.fault.as_ref()),
        drift: &health.drift,
    };
    let failed = |why: &str| drop(writeln!(std::io::stderr(), "error: {why}"));
    // The open update may be one to another config, which ends first.
    let other = run.record.map(|record| &record.to.config).filter(|config| **config != target.config);
    match ended(&run) {
        RunResult::Done => print(&format!("the host matches {}", target.config))?,
        RunResult::RebootLeft => print(&reboot_left(target, other))?,
        RunResult::GoesDown => print(&goes_down(target, other))?,
        RunResult::GoesBack => {
            print(
                "not healthy; `systemctl reboot` boots the previous deployment, the next `apply` undoes the rest",
            )?;
            return Ok(4);
        }
        RunResult::RebootPlayed => return Ok(REBOOT_REQUIRED),
        RunResult::Failed(fault) => {
            failed(&format!("{}: {}\nNext: {}", fault.reason, fault.message, fault.next));
            return Ok(fault.class.exit_code());
        }
        RunResult::Waits(what) => {
            failed(&format!("waiting for {what}. The next `apply` continues"));
            return Ok(4);
        }
        RunResult::Unfinished => {
            failed(&format!("the host does not match {} yet. The next `apply` continues", target.config));
            return Ok(4);
        }
        // The log has named each.
        RunResult::Differs(count) => {
            failed(&format!(
                "the host does not match {}: {}\nNext: See `machine-config-agent verify`; revert the change, or change the \
                 config.",
                target.config,
                counted(count, "difference")
            ));
            return Ok(4);
        }
    }
    Ok(0)
}

fn reboot_left(target: &Target, other: Option<&ConfigName>) -> String {
    match other {
        None => {
            "applied; the node has to reboot: `systemctl reboot`, then the same `apply` again verifies it"
                .to_owned()
        }
        Some(other) => format!(
            "the update to {other} waits for its reboot, and {} is not begun: `systemctl reboot`, then the same `apply` again \
             ends it and goes on to {}",
            target.config, target.config
        ),
    }
}

fn goes_down(target: &Target, other: Option<&ConfigName>) -> String {
    match other {
        None => {
            "applied; the node is going down, and the next `apply`, or the daemon, verifies it".to_owned()
        }
        Some(other) => format!(
            "the node is going down for the update to {other}, and {} is not begun: the same `apply` again ends it and goes on \
             to {}",
            target.config, target.config
        ),
    }
}

/// Prompts a person; refuses without a terminal.
fn confirm(arguments: &Arguments) -> Result<(), CliError> {
    let refused = || CliError::Usage("not confirmed; pass --yes to skip the prompt".to_owned());
    if !std::io::stdin().is_terminal() || arguments.to == "-" {
        return Err(refused());
    }
    let question = format!("Apply {} to {}? [y/N] ", arguments.to, arguments.agent.root().display());
    let mut out = std::io::stdout().lock();
    out.write_all(question.as_bytes()).and_then(|()| out.flush()).map_err(CliError::Output)?;
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer).map_err(CliError::Output)?;
    if matches!(answer.trim(), "y" | "Y" | "yes") { Ok(()) } else { Err(refused()) }
}
