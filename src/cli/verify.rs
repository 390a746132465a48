//! `verify`: the differences between a config and the host.

use std::collections::BTreeSet;

use serde::Serialize;

use super::host::{HostFlags, runtime};
use super::input::Unknown;
use super::output::{Output, print, print_json};
use super::plan::refused;
use super::{CliError, input, settings, verify_image};
use crate::agent::drift::add_diffs;
use crate::host::{Host, Root};
use crate::journal::origin::{State, check_commit};
use crate::model::machineconfig::MachineConfig;
use crate::model::policy::DisruptionPolicy;
use crate::model::refusal::Refusal;
use crate::model::text::counted;
use crate::model::{HostSpec, ImageRef, NotApplied, NotAppliedReason, Observation};
use crate::observe::{lost, observe};
use crate::plan::differences::{Difference, differences};
use crate::plan::drift::{drift, stray_links};
use crate::plan::explain::not_applied_text;
use crate::plan::{
    Irreconcilable, Unreachable, Warning, not_applied, not_held, not_restorable, unremoved_keys,
};

/// The word for the current config.
const CURRENT: &str = "current";
/// The word for the config of the open update.
const TARGET: &str = "target";

/// Flags of `verify`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  machine-config-agent verify\n  machine-config-agent verify --config target\n\n\
    Exit status 1: the host differs from the config."
)]
pub(super) struct Arguments {
    /// The config: a MachineConfig's file, `-`, `current`, or `target` of the update that is open or held
    #[arg(long, value_name = "FILE|current|target", default_value = "current")]
    config: String,
    /// OS image that goes with the file
    #[arg(long, value_name = "IMAGE")]
    image: Option<String>,
    /// A MachineConfiguration object with the disruption policy that goes with the file
    #[arg(long, value_name = "FILE")]
    policy: Option<String>,
    #[command(flatten)]
    unknown: Unknown,
    #[command(flatten)]
    host: HostFlags,
    /// For image builds: also compare the embedded config with this rendered config
    #[arg(long, value_name = "FILE")]
    embedded: Option<String>,
    /// For image builds: also check the originals of `apply --into-image` (needs --embedded)
    #[arg(long, requires = "embedded")]
    originals: bool,
    /// Output format
    #[arg(long, short, value_enum, default_value_t = Output::Text)]
    output: Output,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
struct Verified<'a> {
    schema_version: u32,
    config: &'a str,
    differences: &'a [Difference],
    not_applied: &'a [NotApplied],
    /// Reasons for which this host refuses the file, as `plan` has them.
    #[serde(skip_serializing_if = "<[Unreachable]>::is_empty")]
    irreconcilable: &'a [Unreachable],
    /// The same as in every refusal.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    refused: Vec<Refusal>,
    /// Paths that can't be restored when the config leaves.
    #[serde(skip_serializing_if = "<[Warning]>::is_empty")]
    not_restorable: &'a [Warning],
}

/// Returns the schema of the document.
#[cfg(test)]
pub(in crate::cli) fn schema(generator: schemars::SchemaGenerator) -> schemars::Schema {
    generator.into_root_schema_for::<Verified<'static>>()
}

/// Outcome of a comparison, beside the differences.
#[derive(Default)]
struct Named {
    not_applied: Vec<NotApplied>,
    not_restorable: Vec<Warning>,
    refused: Option<Irreconcilable>,
}

/// Compares and prints.
pub(super) fn run(arguments: &Arguments) -> Result<u8, CliError> {
    let host = arguments.host.observe()?;
    let state = State::load(&host.root)?;
    check_commit(&host.root)?;
    settings::read_usual(&host.root)?;
    let Compared { mut spec, file, is_settled } = spec(arguments, &state, &host.root)?;
    let runtime = runtime()?;
    let observed = runtime.block_on(observe(&host, &[&spec]))?;
    settle(&mut spec, is_settled, &observed);
    let mut found = compared(&arguments.config, &state, &spec, &observed);
    found.extend(unremoved_keys(&spec, &observed));
    if let Some(embedded) = &arguments.embedded {
        found.extend(verify_image::embedded(&host.root, embedded)?);
        if arguments.originals {
            found.extend(verify_image::originals(&host.root, &spec)?);
        }
    }
    // An image is no host on the way from its embedded config to the part of it that was applied.
    let refused = match file.filter(|_| arguments.embedded.is_none()) {
        Some((config, image, policy)) => {
            let host = arguments.host.observe()?;
            runtime.block_on(Box::pin(refused(host, &state, (&config, image), policy)))?
        }
        None => None,
    };
    let is_current = arguments.config == CURRENT;
    let not_restorable =
        if is_current { not_restorable(&spec, &lost(&host.root, &spec)?) } else { Vec::new() };
    let mut not_applied = beside_differences(&spec, &observed);
    // What is refused is told once.
    let reasons = refused.iter().flat_map(|refused: &Irreconcilable| &refused.reasons);
    let fields: BTreeSet<&str> = reasons.map(|reason| reason.field.as_str()).collect();
    not_applied.retain(|one| !fields.contains(one.field.as_str()));
    let named = Named { not_applied, not_restorable, refused };
    match arguments.output {
        Output::Json => {
            print_json(&verified(&spec, &found, &named))?;
        }
        Output::Text => {
            add_diffs(&host.root, &spec, &observed, &mut found);
            print(&format!("{}{}", text(&spec, &found, &named), listed(&named)))?;
        }
    }
    Ok(match named.refused {
        Some(refused) => refused.class().exit_code(),
        None => u8::from(!found.is_empty()),
    })
}

/// Returns the document of `verify` without flags; null where nothing is committed.
pub(super) async fn current(host: &Host) -> Result<serde_json::Value, CliError> {
    let state = State::load(&host.root)?;
    let Some((mut spec, is_settled)) = committed(&state, &host.root)? else {
        return Ok(serde_json::Value::Null);
    };
    let observed = observe(host, &[&spec]).await?;
    settle(&mut spec, is_settled, &observed);
    let mut found = compared(CURRENT, &state, &spec, &observed);
    found.extend(unremoved_keys(&spec, &observed));
    let not_restorable = not_restorable(&spec, &lost(&host.root, &spec)?);
    let named = Named { not_applied: beside_differences(&spec, &observed), not_restorable, refused: None };
    serde_json::to_value(verified(&spec, &found, &named)).map_err(|error| CliError::Output(error.into()))
}

/// Returns the fields that the host does not get, without those that are differences here.
fn beside_differences(spec: &HostSpec, observed: &Observation) -> Vec<NotApplied> {
    let mut found = not_applied(spec, observed);
    found.retain(|one| one.because != NotAppliedReason::NotRemoved);
    found
}

fn verified<'a>(spec: &'a HostSpec, found: &'a [Difference], named: &'a Named) -> Verified<'a> {
    Verified {
        schema_version: 1,
        config: spec.name.as_str(),
        differences: found,
        not_applied: &named.not_applied,
        irreconcilable: named.refused.as_ref().map_or([].as_slice(), |refused| &refused.reasons),
        refused: named.refused.as_ref().map(Irreconcilable::refusals).unwrap_or_default(),
        not_restorable: &named.not_restorable,
    }
}

/// Names the fields that the host does not get, and the paths that can't be restored.
fn listed(named: &Named) -> String {
    let mut text = not_applied_text(&named.not_applied);
    if !named.not_restorable.is_empty() {
        text += "\nNot restorable\n";
        for one in &named.not_restorable {
            text += &format!("  {}: {}\n", one.field, one.message);
        }
    }
    if text.is_empty() { text } else { format!("\n{}", text.trim_end()) }
}

fn compared(config: &str, state: &State, spec: &HostSpec, observed: &Observation) -> Vec<Difference> {
    // While an update is under way, the staged deployment is its own.
    if state.open.is_some() || config == TARGET {
        return differences(spec, observed);
    }
    if config == CURRENT {
        return drift(spec, observed);
    }
    // The deployment of the next boot may be that of the file.
    let mut found = differences(spec, observed);
    found.extend(stray_links(spec, observed));
    found
}

/// A config to compare with; that of a file is planned for, too.
struct Compared {
    spec: HostSpec,
    file: Option<(MachineConfig, Option<ImageRef>, DisruptionPolicy)>,
    /// Set unless it was taken over and no start has looked at its directories and links yet.
    is_settled: bool,
}

fn spec(arguments: &Arguments, state: &State, root: &Root) -> Result<Compared, CliError> {
    let none = |what: &str| CliError::Usage(format!("{what}; name a file with --config"));
    if arguments.policy.is_some() && [CURRENT, TARGET].contains(&arguments.config.as_str()) {
        return Err(none("--policy goes with a file"));
    }
    let (spec, is_settled) = match arguments.config.as_str() {
        CURRENT => committed(state, root)?.ok_or_else(|| none("nothing is committed on this host yet"))?,
        TARGET => {
            let open = state.open.as_ref().map(|open| HostSpec::clone(&open.to));
            (open.ok_or_else(|| none("no update is open or held on this host"))?, true)
        }
        file => {
            let policy = arguments.policy.as_deref();
            input::check_standard_input(&[("--config", Some(file)), ("--policy", policy)])?;
            let image = input::image("--image", arguments.image.as_deref())?;
            let config = input::machine_config(file, arguments.unknown)?;
            let (config, policy) = input::policy(policy, arguments.unknown, config, file)?;
            let spec = config.spec(image.clone())?;
            return Ok(Compared { spec, file: Some((config, image, policy)), is_settled: true });
        }
    };
    Ok(Compared { spec, file: None, is_settled })
}

/// Finds out what of a config that was taken over is not applied to this host, as the next start does.
pub(super) fn settle(spec: &mut HostSpec, is_settled: bool, observed: &Observation) {
    if !is_settled {
        spec.set_unapplied(not_held(spec, observed));
    }
}

/// Returns the agent's current config, else MCD's; and whether a start has looked at its directories and links.
fn committed(state: &State, root: &Root) -> Result<Option<(HostSpec, bool)>, CliError> {
    let stored = match &state.current {
        Some(stored) => Some(stored.clone()),
        None => crate::journal::mcd::read(root)?,
    };
    Ok(stored.map(|stored| (stored.known_spec(), stored.is_settled())))
}

/// The differences, one a line, each followed by a bounded diff of its content.
fn text(spec: &HostSpec, found: &[Difference], named: &Named) -> String {
    let refused = named.refused.as_ref().map(|refused| format!("{refused}\n"));
    if found.is_empty() {
        return match refused {
            Some(refused) => format!("{refused}nothing else differs from {}", spec.name),
            None => format!("the host matches {}", spec.name),
        };
    }
    let refused = refused.unwrap_or_default();
    let mut text = format!("{refused}{} from {}:\n", counted(found.len(), "difference"), spec.name);
    for difference in found {
        text += &format!("  {difference}\n");
        for line in difference.diff.iter().flat_map(|diff| diff.lines()) {
            text += &format!("    {line}\n");
        }
    }
    text
}
