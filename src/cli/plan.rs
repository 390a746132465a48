//! `plan`: what going from one config to another would do. Touches nothing.

use std::path::PathBuf;

use super::host::{HostFlags, runtime};
use super::last_report::{Follows, Left};
use super::output::{Output, print, print_json};
use super::{CliError, input};
use crate::control::ControlPlane as _;
use crate::control::directory::Directory;
use crate::host::Root;
use crate::journal::state;
use crate::journal::stored::Stored;
use crate::model::observation::EmbeddedConfig;
use crate::model::{ConfigName, Facts, HostSpec, Target};
use crate::observe::facts;
use crate::plan::differences::already_applied;
use crate::plan::{Irreconcilable, Plan, explain, plan};
use crate::settings::Environment;

/// Flags of `plan`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  machine-config-agent plan --from a.yaml --to b.yaml\n\n\
    With files on both sides the host is assumed to be as --from says; with `--from current` it is looked at.")]
pub(super) struct Arguments {
    /// Where it starts: a MachineConfig's file, `-`, or `current`
    #[arg(long, value_name = "FILE|current", default_value = "current")]
    from: String,
    /// Where it leads: a MachineConfig's file, `-`, or `desired`, as the control directory says
    #[arg(long, value_name = "FILE|desired", default_value = "desired")]
    to: String,
    /// OS image that goes with --from
    #[arg(long, value_name = "IMAGE")]
    from_image: Option<String>,
    /// OS image that goes with --to
    #[arg(long, value_name = "IMAGE")]
    to_image: Option<String>,
    /// The config that the target image carries (default: asked of the image)
    #[arg(long, value_name = "NAME")]
    image_config: Option<String>,
    /// A MachineConfiguration object with the disruption policy
    #[arg(long, value_name = "FILE")]
    policy: Option<String>,
    /// The control directory that `desired` and the policy are read from (default: the one that the agent follows)
    #[arg(long, value_name = "DIR")]
    directory: Option<PathBuf>,
    #[command(flatten)]
    host: HostFlags,
    /// Exit with 1 when there is something to do
    #[arg(long)]
    exit_code: bool,
    /// How to print it
    #[arg(long, short, value_enum, default_value_t = Output::Text)]
    output: Output,
}

/// Prints the plan.
pub(super) fn run(arguments: &Arguments, environment: &Environment) -> Result<u8, CliError> {
    let (from, to, outcome) = runtime()?.block_on(decide(arguments, environment))?;
    match arguments.output {
        Output::Json => print_json(&explain::json(outcome.as_ref(), from.as_ref(), &to))?,
        Output::Text => match &outcome {
            Ok(plan) => print(&explain::text(plan))?,
            Err(refused) => print(&refused.to_string())?,
        },
    }
    Ok(match outcome {
        Err(_) => 3,
        Ok(plan) if arguments.exit_code && !plan.is_empty() => 1,
        Ok(_) => 0,
    })
}

type Decided = (Option<Target>, Target, Result<Plan, Irreconcilable>);

async fn decide(arguments: &Arguments, environment: &Environment) -> Result<Decided, CliError> {
    let mut control = directory(arguments)?.as_deref().map(Directory::open).transpose()?;
    let policy = match (&arguments.policy, &mut control) {
        (None, Some(directory)) => directory.policy().await?,
        (path, _) => input::policy(path.as_deref())?,
    };
    let to = desired(arguments, control.as_mut()).await?;
    let (from, mut facts) = if arguments.from == "current" {
        looked_at(arguments, environment, &to).await?
    } else {
        let image = input::image(arguments.from_image.as_deref())?;
        let from = input::machine_config(&arguments.from)?.spec(image)?;
        let facts = Facts::assumed(&from, &to)?;
        (from, facts)
    };
    if let Some(name) = &arguments.image_config {
        facts.carries = EmbeddedConfig::Config(ConfigName::new(name.as_str())?);
    }
    let outcome = plan(&from, &to, &facts, &policy);
    let origin = Some(from.target()).filter(|_| !from.is_unmanaged());
    Ok((origin, to.target(), outcome))
}

/// Returns the directory that is named; where neither it nor a target is, the one that the agent of this host follows.
fn directory(arguments: &Arguments) -> Result<Option<PathBuf>, CliError> {
    if arguments.directory.is_some() || arguments.to != "desired" {
        return Ok(arguments.directory.clone());
    }
    let left = Left::load(&Root::open(&arguments.host.root)?)?;
    Ok(left.and_then(|left| match left.follows {
        Follows::Directory(path) => Some(PathBuf::from(path)),
        Follows::Cluster(_) => None,
    }))
}

async fn desired(arguments: &Arguments, control: Option<&mut Directory>) -> Result<HostSpec, CliError> {
    let image = input::image(arguments.to_image.as_deref())?;
    if arguments.to != "desired" {
        return Ok(input::machine_config(&arguments.to)?.spec(image)?);
    }
    let usage = |text: &str| CliError::Usage(format!("--to desired: {text}"));
    let control = control.ok_or_else(|| usage("no agent of this host follows a directory; name one with --directory DIR, or a file with --to FILE"))?;
    let none = "the directory has no target.yaml; write one, or name a file with --to";
    let target = control.desired().await?.ok_or_else(|| usage(none))?;
    let machine_config = control.machine_config(&target.config).await?;
    Ok(machine_config.spec(image.or(target.image))?)
}

async fn looked_at(
    arguments: &Arguments,
    environment: &Environment,
    to: &HostSpec,
) -> Result<(HostSpec, Facts), CliError> {
    let host = arguments.host.observe_through(environment.proxy.clone())?;
    let origin = match Stored::load(&host.root, &state("current.json"))? {
        Some(stored) => stored.spec()?,
        None => match crate::journal::mcd::read(&host.root)? {
            Some(stored) => stored.spec()?,
            None => HostSpec::empty(ConfigName::new(HostSpec::UNMANAGED)?),
        },
    };
    let facts = facts(&host, &origin, to).await?;
    let from = if origin.is_unmanaged() { already_applied(to, &facts.seen) } else { origin };
    Ok((from, facts))
}
