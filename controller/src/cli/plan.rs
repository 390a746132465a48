//! `plan`: the cost of a new or changed MachineConfig, before it is applied: to a directory of manifests, or to a cluster.

use std::path::PathBuf;
use std::process::ExitCode;

use super::input::{Unknown, clean};
use super::{CliError, VerbOutput};
use crate::api::{MachineConfig, MachineConfigPool};
use crate::controllers::live_manifests;
use crate::cost::cost;
use crate::manifests::{ManifestError, Manifests};
use crate::model::NotApplied;
use crate::model::policy::DisruptionPolicy;
use crate::plan::{Plan, explain};
use crate::render::{Release, RenderError, Rendered, render, render_empty};

/// The exit status for a change that nodes refuse, as of the agent's `plan`.
const REFUSED: u8 = 3;

/// Flags of `plan`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  machine-config-controller plan --manifests cluster/ --pool worker -f new.yaml\n  \
    machine-config-controller plan --kubeconfig ~/.kube/config --pool worker -f new.yaml\n\n\
    Without --manifests, plan reads the objects of the cluster, and writes nothing there. The user needs list of pools and\n\
    MachineConfigs, and get of ControllerConfigs and MachineConfigurations. The disruption policy is the\n\
    MachineConfiguration object, else the default one."
)]
pub(super) struct Arguments {
    /// Directory with MachineConfigs, pools, the ControllerConfig and the disruption policy
    #[arg(long, value_name = "DIR", conflicts_with = "kubeconfig")]
    manifests: Option<PathBuf>,
    /// Access to the API server [default: $KUBECONFIG, else the pod's service account]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// OS image of pools whose MachineConfigs name none, in place of the ControllerConfig's
    #[arg(long, value_name = "IMAGE")]
    os_image: Option<String>,
    #[command(flatten)]
    unknown: Unknown,
    /// The pool
    #[arg(long, value_name = "NAME")]
    pool: String,
    /// File with the new or changed objects, or `-`
    #[arg(long, short, value_name = "FILE")]
    file: PathBuf,
    /// Output format
    #[arg(long, short, value_enum, default_value_t = Output::Text)]
    output: Output,
}

/// Output format.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
pub(super) enum Output {
    /// Human-readable
    Text,
    /// Machine-readable
    Json,
}

/// Shows the disruption of the pool's nodes.
pub(super) fn run(arguments: &Arguments) -> Result<VerbOutput, CliError> {
    let (manifests, errors) = match &arguments.manifests {
        Some(directory) => Manifests::collect(directory, arguments.unknown.fields())?,
        None => live_manifests(arguments.kubeconfig.as_deref())?,
    };
    if errors.iter().any(ManifestError::is_ambiguous) || manifests.lacks_part_of(&arguments.pool) {
        return clean((manifests, errors)).and_then(|manifests| planned(arguments, manifests));
    }
    let output = planned(arguments, manifests)?;
    Ok(VerbOutput { error: ManifestError::all(errors).map(CliError::from), ..output })
}

fn planned(arguments: &Arguments, mut manifests: Manifests) -> Result<VerbOutput, CliError> {
    let release = |manifests: &Manifests| manifests.release(arguments.os_image.as_deref());
    let before = Before {
        pool: manifests.pools.get(&arguments.pool).cloned(),
        configs: manifests.configs.values().cloned().collect(),
        release: release(&manifests),
    };
    manifests.replace_by_file(&arguments.file, arguments.unknown.fields())?;
    let pool = pool(&manifests, arguments)?;
    let from = before.rendered(pool)?;
    let to = render(pool, manifests.configs.values(), &release(&manifests))?;
    let (text, is_refused) = shown(arguments, from, &to, &manifests)?;
    let code = if is_refused { ExitCode::from(REFUSED) } else { ExitCode::SUCCESS };
    Ok(VerbOutput { code, ..VerbOutput::done(text).with_notes(manifests.notes) })
}

/// Pool, MachineConfigs and images without the objects of the file.
struct Before {
    pool: Option<MachineConfigPool>,
    configs: Vec<MachineConfig>,
    release: Release,
}

/// The config of the nodes before the change.
struct Origin {
    rendered: Rendered,
    /// The pool selected no MachineConfig.
    is_empty: bool,
}

impl Before {
    /// Renders the config that the nodes have: a new pool's have what it selects of the MachineConfigs that are there. A pool without any
    /// has nodes without a config.
    fn rendered(&self, new: &MachineConfigPool) -> Result<Origin, RenderError> {
        let pool = self.pool.as_ref().unwrap_or(new);
        match render(pool, &self.configs, &self.release) {
            Err(RenderError::NoConfigs { .. }) => {
                Ok(Origin { rendered: render_empty(pool, &self.release)?, is_empty: true })
            }
            rendered => Ok(Origin { rendered: rendered?, is_empty: false }),
        }
    }
}

/// Returns the plan as text or JSON, and whether nodes would refuse the change.
fn shown(
    arguments: &Arguments,
    Origin { rendered: from, is_empty }: Origin,
    to: &Rendered,
    manifests: &Manifests,
) -> Result<(String, bool), CliError> {
    let policy = manifests.policy.clone().unwrap_or_else(DisruptionPolicy::defaults);
    let planned = cost(&from, to, &policy)?;
    let outcome = if is_empty { planned.map(Plan::without_origin) } else { planned };
    let left_out = left_out(to, outcome.as_ref().ok());
    let pool = &arguments.pool;
    let text = match (arguments.output, &outcome) {
        (Output::Json, outcome) => {
            let target = to.host_spec()?.target();
            let origin = (!is_empty).then(|| from.host_spec()).transpose()?.map(|spec| spec.target());
            let beside = explain::Beside { left_out, ..explain::Beside::default() };
            let json = explain::json(outcome.as_ref(), origin.as_ref(), &target, &beside);
            serde_json::to_string_pretty(&json).map_err(RenderError::from)? + "\n"
        }
        (Output::Text, Ok(_)) if !is_empty && from.name() == to.name() => {
            let kept = format!("the nodes of pool {pool} keep {}: it stays as it is\n", from.name());
            kept + &explain::not_applied_text(&to.remarks)
        }
        (Output::Text, Ok(plan)) => {
            let has = if is_empty { "no config yet" } else { from.name() };
            let head = format!("a node of pool {pool} that has {has}:\n");
            head + &explain::text(plan) + &explain::not_applied_text(&left_out)
        }
        (Output::Text, Err(refused)) => format!("a node of pool {pool} would refuse it: {refused}\n"),
    };
    Ok((text, outcome.is_err()))
}

/// Returns what the rendering left out: the plan of a node has the rest.
fn left_out(to: &Rendered, plan: Option<&Plan>) -> Vec<NotApplied> {
    let told = plan.map(Plan::not_applied).unwrap_or_default();
    to.remarks.iter().filter(|remark| !told.contains(remark)).cloned().collect()
}

/// Returns the pool.
fn pool<'a>(manifests: &'a Manifests, arguments: &Arguments) -> Result<&'a MachineConfigPool, CliError> {
    let place = if arguments.manifests.is_some() { "directory or the file" } else { "cluster or the file" };
    super::render::pool(manifests, &arguments.pool, place)
}
