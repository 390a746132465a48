//! `stateroot activate` and `stateroot roll-back`: another stateroot becomes the one that runs.

use std::io::{IsTerminal as _, Write as _};

use serde::Serialize;

use super::super::CliError;
use super::super::host::{REBOOT_REQUIRED, RebootBy};
use super::super::output::{Output, print, print_json};
use super::machine::{Machine, conclude};
use crate::agent::StaterootEnd;
use crate::host::Rebooting;
use crate::host::os::stateroots::Boots;
use crate::host::root::Root;
use crate::journal::stateroot::{load_record, load_trial};
use crate::settings::Environment;
use crate::stateroot::{
    Job, Stateroot, StaterootName, StaterootRecord, StaterootTrial, TrialPhase, TrialRules,
    deployment_directory, stateroot_of,
};

/// Flags of `stateroot activate`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  machine-config-agent stateroot activate rhcos_4.17.2 --yes\n\n\
    The new system must pass its health trial, as each new deployment; otherwise the machine returns to the stateroot that runs now.")]
pub(super) struct Arguments {
    /// The prepared stateroot
    #[arg(value_name = "STATEROOT")]
    name: String,
    /// Time limit of the health trial, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = TrialRules::default().within, value_parser = clap::value_parser!(u64).range(1..=604_800))]
    within: u64,
    /// Stay in the new system if it fails its health trial; only report the fault
    #[arg(long)]
    no_return: bool,
    #[command(flatten)]
    common: Common,
}

/// Flags of `stateroot roll-back`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  machine-config-agent stateroot roll-back --yes\n\n\
    The previous stateroot boots with its own /etc and /var, as they were left. Nothing is carried over.")]
pub(super) struct BackArguments {
    /// The stateroot to boot [default: the one from which this one was activated]
    #[arg(long, value_name = "STATEROOT")]
    to: Option<String>,
    #[command(flatten)]
    common: Common,
}

/// The flags of both.
#[derive(Debug, clap::Args)]
struct Common {
    /// Do not reboot; the next boot is of the other stateroot
    #[arg(long)]
    no_reboot: bool,
    /// Print the plan, and change nothing
    #[arg(long)]
    plan: bool,
    /// Do not ask before changing what boots
    #[arg(long)]
    yes: bool,
    /// Who reboots
    #[arg(long, value_enum, default_value_t = RebootBy::Logind)]
    reboot_by: RebootBy,
    /// Output format
    #[arg(long, short, value_enum, default_value_t = Output::Text)]
    output: Output,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
struct Shown<'a> {
    schema_version: u32,
    stateroot: &'a StaterootName,
    deployment: &'a str,
    previous: &'a str,
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    trial: Option<&'a TrialRules>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    steps: Vec<PlannedStep<'a>>,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct PlannedStep<'a> {
    op: &'static str,
    target: &'a str,
}

/// Returns the schema of the document.
#[cfg(test)]
pub(in crate::cli) fn schema(generator: schemars::SchemaGenerator) -> schemars::Schema {
    generator.into_root_schema_for::<Shown<'static>>()
}

/// Activates a stateroot, or prints the plan.
pub(super) async fn run(arguments: &Arguments, environment: &Environment) -> Result<u8, CliError> {
    let stateroot = StaterootName::new(&arguments.name)?;
    let machine = Machine::open_for(environment, arguments.common.reboot_by)?;
    let trial = TrialRules { within: arguments.within, returns: !arguments.no_return };
    switch(&machine, &arguments.common, stateroot, Some(trial)).await
}

/// Goes back to the previous stateroot, or prints the plan.
pub(super) async fn roll_back(arguments: &BackArguments, environment: &Environment) -> Result<u8, CliError> {
    let machine = Machine::open_for(environment, arguments.common.reboot_by)?;
    let stateroot = match &arguments.to {
        Some(name) => StaterootName::new(name)?,
        None => way_back(&machine, &machine.stateroots.boots().await?)?,
    };
    switch(&machine, &arguments.common, stateroot, None).await
}

/// Returns the stateroot from which the running one was activated, or the only other one that has run.
fn previous(root: &Root, boots: &Boots, trial: Option<&StaterootTrial>) -> Result<StaterootName, CliError> {
    let running = stateroot_of(&boots.booted);
    if let Some(trial) = trial.filter(|trial| stateroot_of(&trial.deployment) == running) {
        return Ok(StaterootName::new(stateroot_of(&trial.previous))?);
    }
    let is_other = |one: &&Stateroot| one.name != running && !one.deployments.is_empty();
    let (others, new): (Vec<_>, Vec<_>) =
        boots.all.iter().filter(is_other).partition(|one| has_run(root, one));
    let names = |all: &[&Stateroot]| all.iter().map(|one| one.name.as_str()).collect::<Vec<_>>().join(", ");
    let refusal = match (others.as_slice(), new.as_slice()) {
        ([only], _) => return Ok(StaterootName::new(only.name.as_str())?),
        ([], []) => format!("there is no stateroot with a deployment besides {running}"),
        ([], [one]) => format!(
            "{name} has never run, so it is nothing to roll back to; boot it with `machine-config-agent stateroot activate {name}`",
            name = one.name
        ),
        ([], new) => format!(
            "no stateroot besides {running} has run; `stateroot activate` boots one of {}",
            names(new)
        ),
        (many, _) => {
            format!("{running} was not activated from another stateroot; pass --to, one of {}", names(many))
        }
    };
    Err(CliError::Usage(refusal))
}

/// Returns true if a system of a stateroot has run: its first boot writes the machine ID, which no seed brings.
fn has_run(root: &Root, stateroot: &Stateroot) -> bool {
    let directories = stateroot.deployments.iter().filter_map(|one| deployment_directory(&one.id));
    directories.map(|directory| format!("/sysroot{directory}/etc/machine-id")).any(|path| {
        // What can't be read is left to the person.
        root.read(&path).map_or(true, |id| id.is_some_and(|id| id.trim_ascii().len() == 32))
    })
}

/// Returns the stateroot that a way back leads to: a way back goes on, an activation is taken back while it has not rebooted.
fn way_back(machine: &Machine, boots: &Boots) -> Result<StaterootName, CliError> {
    let (running, next) = (stateroot_of(&boots.booted), stateroot_of(&boots.next));
    let trial = load_trial(&machine.root)?;
    let is_previous = |name: &str| trial.as_ref().is_some_and(|trial| stateroot_of(&trial.previous) == name);
    match leaving(machine, running)? {
        Some(Job::Activate { stateroot, trial: None, .. }) => Ok(stateroot),
        None if next == running || is_previous(next) => previous(&machine.root, boots, trial.as_ref()),
        Some(_) | None => Ok(StaterootName::new(running)?),
    }
}

/// Returns the open work by which the stateroot that runs is about to be left.
fn leaving(machine: &Machine, running: &str) -> Result<Option<Job>, CliError> {
    let leaves = |record: &StaterootRecord| {
        let is_other = record.job.stateroot().as_str() != running;
        matches!(record.job, Job::Activate { .. }) && is_other && !record.came_back(machine.boot_id())
    };
    Ok(load_record(&machine.root)?.filter(leaves).map(|record| record.job))
}

/// Returns true if the stateroot that runs is about to be left.
fn is_left(machine: &Machine, boots: &Boots) -> Result<bool, CliError> {
    let running = stateroot_of(&boots.booted);
    Ok(leaving(machine, running)?.is_some() || stateroot_of(&boots.next) != running)
}

async fn switch(
    machine: &Machine,
    common: &Common,
    stateroot: StaterootName,
    trial: Option<TrialRules>,
) -> Result<u8, CliError> {
    let boots = machine.stateroots.boots().await?;
    let is_running = stateroot_of(&boots.booted) == stateroot.as_str();
    if is_running && !is_left(machine, &boots)? {
        return running(machine, common.output, &stateroot, &boots);
    }
    let job = if is_running {
        // What was activated, and has not booted yet, is not to boot.
        let (deployment, previous) = (boots.booted, boots.next);
        Job::Activate { stateroot, deployment, previous, trial: None, reboot: false }
    } else {
        let deployment = machine.stateroots.deployment(&stateroot).await?;
        Job::Activate { stateroot, deployment, previous: boots.booted, trial, reboot: !common.no_reboot }
    };
    if common.plan {
        shown(common.output, &job, "planned")?;
        return Ok(0);
    }
    machine.ensure_no_update()?;
    if !common.yes {
        confirm(&job)?;
    }
    let mut journal = machine.journal()?;
    let end = machine.execute(&mut journal, &job).await?;
    if let StaterootEnd::GoesDown(how) = end {
        shown(common.output, &job, "rebooting")?;
        return Ok(if how == Rebooting::Exit { REBOOT_REQUIRED } else { 0 });
    }
    match conclude(end) {
        Ok(_) => shown(common.output, &job, "boots-next").map(|()| 0),
        Err(code) => Ok(code),
    }
}

/// Says how far the stateroot that runs already is.
fn running(
    machine: &Machine,
    output: Output,
    stateroot: &StaterootName,
    boots: &Boots,
) -> Result<u8, CliError> {
    let trial = load_trial(&machine.root)?.filter(|trial| trial.deployment == boots.booted);
    let state = match trial.as_ref().map(|trial| &trial.phase) {
        None | Some(TrialPhase::Passed) => "active",
        Some(TrialPhase::Armed | TrialPhase::Running { .. }) => "on-trial",
        Some(TrialPhase::Failed { .. }) => "failed",
        Some(TrialPhase::Returning { .. }) => "returning",
    };
    match output {
        Output::Json => {
            let previous = trial.as_ref().map_or("", |trial| &trial.previous);
            let rules = trial.as_ref().map(|trial| &trial.rules);
            let (deployment, steps) = (boots.booted.as_str(), Vec::new());
            print_json(&Shown {
                schema_version: 1,
                stateroot,
                deployment,
                previous,
                state,
                trial: rules,
                steps,
            })?;
        }
        Output::Text => print(&format!("{stateroot} runs already ({state})"))?,
    }
    Ok(0)
}

fn shown(output: Output, job: &Job, state: &'static str) -> Result<(), CliError> {
    let Job::Activate { stateroot, deployment, previous, trial, .. } = job else { return Ok(()) };
    let steps = job.steps().iter().map(|step| PlannedStep { op: step.as_str(), target: deployment });
    let steps: Vec<PlannedStep<'_>> = if state == "planned" { steps.collect() } else { Vec::new() };
    if output == Output::Json {
        let trial = trial.as_ref();
        return print_json(&Shown {
            schema_version: 1,
            stateroot,
            deployment,
            previous,
            state,
            trial,
            steps,
        });
    }
    let proves = trial.as_ref().map_or_else(String::new, |rules| {
        let otherwise = if rules.returns { format!("{previous} boots again") } else { "it stays".to_owned() };
        format!("\nIt has {} s to pass its health trial; otherwise {otherwise}", rules.within)
    });
    print(&match state {
        "planned" => {
            let lines: Vec<String> =
                steps.iter().map(|step| format!("{} {}", step.op, step.target)).collect();
            format!("{}{proves}", lines.join("\n"))
        }
        "rebooting" => format!("The node is going down into {stateroot}{proves}"),
        _ => format!("{stateroot} boots next: `systemctl reboot`{proves}"),
    })
}

/// Asks a person; refuses when there is none.
fn confirm(job: &Job) -> Result<(), CliError> {
    let refused = || CliError::Usage("not confirmed; pass --yes to skip the prompt".to_owned());
    if !std::io::stdin().is_terminal() {
        return Err(refused());
    }
    let mut out = std::io::stdout().lock();
    let question = format!("Boot {} next? [y/N] ", job.stateroot());
    out.write_all(question.as_bytes()).and_then(|()| out.flush()).map_err(CliError::Output)?;
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer).map_err(CliError::Output)?;
    if matches!(answer.trim(), "y" | "Y" | "yes") { Ok(()) } else { Err(refused()) }
}
