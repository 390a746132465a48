//! `plan`: the plan between two configs. Changes nothing.

use std::rc::Rc;

use super::desired::{self, Desired};
use super::host::{HostFlags, runtime};
use super::input::Unknown;
use super::output::{Output, print, print_json};
use super::{CliError, input};
use crate::control::ControlPlane as _;
use crate::control::directory::Directory;
use crate::host::Root;
use crate::journal::origin;
use crate::model::observation::EmbeddedConfig;
use crate::model::policy::DisruptionPolicy;
use crate::model::{ConfigName, Facts, HostSpec, Target};
use crate::observe::facts;
use crate::plan::explain::{self, Beside};
use crate::plan::reconcilable::FORCE_FILE;
use crate::plan::start::{Start, blocking_drift};
use crate::plan::{Irreconcilable, Plan, not_held, plan};
use crate::settings::{Environment, file};

/// Flags of `plan`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  machine-config-agent plan --from a.yaml --to b.yaml\n\n\
    With files on both sides the host is assumed to match --from; `--from current` reads the host.")]
pub(super) struct Arguments {
    /// Config to start from: a MachineConfig's file, `-`, or `current`
    #[arg(long, value_name = "FILE|current", default_value = "current")]
    from: String,
    /// Config to reach: a MachineConfig's file, `-`, or `desired`, from the Node or the directory
    #[arg(long, value_name = "FILE|desired", default_value = "desired")]
    to: String,
    /// OS image that goes with --from
    #[arg(long, value_name = "IMAGE")]
    from_image: Option<String>,
    /// OS image that goes with --to
    #[arg(long, value_name = "IMAGE")]
    to_image: Option<String>,
    /// The config that the target image carries (default: read from the image)
    #[arg(long, value_name = "NAME")]
    image_config: Option<String>,
    /// A MachineConfiguration object with the disruption policy
    #[arg(long, value_name = "FILE")]
    policy: Option<String>,
    #[command(flatten)]
    unknown: Unknown,
    #[command(flatten)]
    control: desired::Flags,
    #[command(flatten)]
    host: HostFlags,
    /// Exit with 1 when there is something to do
    #[arg(long)]
    exit_code: bool,
    /// Output format
    #[arg(long, short, value_enum, default_value_t = Output::Text)]
    output: Output,
}

/// A plan, or the reasons against it, between two targets.
struct Decided {
    from: Option<Target>,
    to: Target,
    outcome: Result<Plan, Irreconcilable>,
    beside: Beside,
}

/// Prints the plan.
pub(super) fn run(arguments: &Arguments, environment: &Environment) -> Result<u8, CliError> {
    input::check_standard_input(&[
        ("--from", Some(&arguments.from)),
        ("--to", Some(&arguments.to)),
        ("--policy", arguments.policy.as_deref()),
    ])?;
    let Decided { from, to, outcome, beside } =
        runtime()?.block_on(Box::pin(decide(arguments, environment)))?;
    match arguments.output {
        Output::Json => print_json(&explain::json(outcome.as_ref(), from.as_ref(), &to, &beside))?,
        Output::Text => match &outcome {
            Ok(plan) => print(&(explain::text(plan) + &beside.text()))?,
            Err(refused) => print(&refused.to_string())?,
        },
    }
    Ok(match outcome {
        Err(_) => 3,
        Ok(plan) if arguments.exit_code && !(plan.is_empty() && beside.drift.is_empty()) => 1,
        Ok(_) => 0,
    })
}

/// Returns the document of `plan` without other flags than these.
pub(super) async fn to_desired(
    host: &HostFlags,
    control: &desired::Flags,
    environment: &Environment,
) -> Result<serde_json::Value, CliError> {
    let arguments = Arguments {
        from: "current".to_owned(),
        to: "desired".to_owned(),
        from_image: None,
        to_image: None,
        image_config: None,
        policy: None,
        // What the agent follows is its to judge.
        unknown: Unknown { allow_unknown_fields: true },
        control: control.clone(),
        host: host.clone(),
        exit_code: false,
        output: Output::Json,
    };
    let Decided { from, to, outcome, beside } = decide(&arguments, environment).await?;
    let document = explain::json(outcome.as_ref(), from.as_ref(), &to, &beside);
    serde_json::to_value(document).map_err(|error| CliError::Output(error.into()))
}

async fn decide(arguments: &Arguments, environment: &Environment) -> Result<Decided, CliError> {
    let (mut to, policy) = destination(arguments, environment).await?;
    let target = to.target();
    if arguments.from == "current" {
        let (origin, start, mut facts) = observe(arguments, environment, &mut to).await?;
        set_embedded_config(arguments, &mut facts)?;
        let from = start.from(&origin, &to, &facts.observed);
        let outcome = start.plan(&origin, &from, &to, &facts, &policy);
        let drift = outcome.as_ref().ok().and_then(|plan| blocking_drift(&from, &to, &facts.observed, plan));
        let drift = drift.map(|drift| drift.differences).unwrap_or_default();
        let beside = Beside { drift, left: origin.opaque().cloned().collect() };
        let from = (!origin.is_unmanaged()).then(|| origin.target());
        return Ok(Decided { from, to: target, outcome, beside });
    }
    let image = input::image("--from-image", arguments.from_image.as_deref())?;
    let from = input::machine_config(&arguments.from, arguments.unknown)?.spec(image)?;
    let mut facts = Facts::assumed(&from, &to)?;
    set_embedded_config(arguments, &mut facts)?;
    let outcome = plan(&from, &to, &facts, &policy);
    Ok(Decided { from: Some(from.target()), to: target, outcome, beside: Beside::default() })
}

fn set_embedded_config(arguments: &Arguments, facts: &mut Facts) -> Result<(), CliError> {
    if let Some(name) = &arguments.image_config {
        facts.carries = EmbeddedConfig::Config(ConfigName::new(name.as_str())?);
    }
    Ok(())
}

/// Returns the plan's target, and the policy that goes with it.
async fn destination(
    arguments: &Arguments,
    environment: &Environment,
) -> Result<(HostSpec, DisruptionPolicy), CliError> {
    let image = input::image("--to-image", arguments.to_image.as_deref())?;
    let named = arguments.policy.as_deref();
    let unknown = arguments.unknown;
    if arguments.to != "desired" {
        let config = input::machine_config(&arguments.to, unknown)?;
        let (config, policy) = match (&arguments.control.directory, named) {
            (Some(directory), None) => {
                let directory = Directory::open(directory)?;
                let mut directory = directory.with_unknown_fields(unknown.allow_unknown_fields);
                (config, directory.policy().await?)
            }
            (Some(_) | None, named) => input::policy(named, unknown, config, &arguments.to)?,
        };
        return Ok((config.spec(image)?, policy));
    }
    let source = desired::source(&arguments.control, &Root::open(&arguments.host.root)?, environment)?;
    let Desired { target, machine_config, policy } = source.read(unknown).await?;
    let (machine_config, policy) = match named {
        Some(_) => input::policy(named, unknown, machine_config, "")?,
        None => (machine_config, policy),
    };
    Ok((machine_config.spec(image.or(target.image))?, policy))
}

/// Returns the config that the update comes from, how it starts, and the facts, as the agent would have them.
async fn observe(
    arguments: &Arguments,
    environment: &Environment,
    to: &mut HostSpec,
) -> Result<(Rc<HostSpec>, Start, Facts), CliError> {
    let mut host = arguments.host.observe_through(environment.proxy.clone())?;
    // An invalid file is the daemon's to report.
    if let Ok(node_settings) = file::read(&host.root, file::SETTINGS_PATH, file::SETTINGS_PATH) {
        host.soft_reboot = node_settings.soft_reboot;
    }
    let stored = origin::load(&host.root)?;
    let recovering = stored.as_ref().is_some_and(|(_, recovering)| *recovering);
    let start = Start { recovering, forced: host.root.exists(FORCE_FILE)? };
    let is_settled = stored.as_ref().is_none_or(|(stored, _)| stored.is_settled());
    let origin = match stored {
        Some((stored, _)) => stored.known_spec(),
        None => HostSpec::empty(ConfigName::new(HostSpec::UNMANAGED)?),
    };
    let mut origin = start.origin(Rc::new(origin))?;
    let facts = facts(&host, &origin, to).await?;
    if !is_settled {
        let unapplied = not_held(&origin, &facts.observed);
        Rc::make_mut(&mut origin).set_unapplied(unapplied);
    }
    start.carry_over(&mut origin, to, &facts.observed);
    Ok((origin, start, facts))
}
