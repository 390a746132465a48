//! `plan`: the cost of a new or changed MachineConfig, before it is applied: to a directory of manifests, or to a cluster.

use std::path::PathBuf;
use std::process::ExitCode;

use super::input::{Unknown, clean, read_all};
use super::{CliError, VerbOutput};
use crate::api::MachineConfigPool;
use crate::controllers::live_manifests;
use crate::cost::cost;
use crate::manifests::Manifests;
use crate::model::NotApplied;
use crate::model::policy::DisruptionPolicy;
use crate::plan::{Plan, explain};
use crate::render::{RenderError, Rendered, render};

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
    let mut manifests = match &arguments.manifests {
        Some(directory) => read_all(directory, arguments.unknown)?,
        None => clean(live_manifests(arguments.kubeconfig.as_deref())?)?,
    };
    let release = manifests.release(arguments.os_image.as_deref());
    let rendered = |manifests: &Manifests| {
        let configs: Vec<_> = manifests.configs.values().cloned().collect();
        Ok::<_, CliError>(render(pool(manifests, arguments)?, &configs, &release)?)
    };
    let from = rendered(&manifests)?;
    manifests.replace_by_file(&arguments.file, arguments.unknown.fields())?;
    let to = rendered(&manifests)?;
    let policy = manifests.policy.clone().unwrap_or_else(DisruptionPolicy::defaults);
    let outcome = cost(&from, &to, &policy)?;
    let left_out = left_out(&to, outcome.as_ref().ok());
    let text = match (arguments.output, &outcome) {
        (Output::Json, outcome) => {
            let target = to.host_spec()?.target();
            let origin = from.host_spec()?.target();
            let beside = explain::Beside { left_out, ..explain::Beside::default() };
            let json = explain::json(outcome.as_ref(), Some(&origin), &target, &beside);
            serde_json::to_string_pretty(&json).map_err(RenderError::from)? + "\n"
        }
        (Output::Text, Ok(_)) if from.name() == to.name() => {
            let kept =
                format!("the nodes of pool {} keep {}: it stays as it is\n", arguments.pool, from.name());
            kept + &explain::not_applied_text(&to.remarks)
        }
        (Output::Text, Ok(plan)) => {
            let head = format!("a node of pool {} that has {}:\n", arguments.pool, from.name());
            head + &explain::text(plan) + &explain::not_applied_text(&left_out)
        }
        (Output::Text, Err(refused)) => {
            format!("a node of pool {} would refuse it: {refused}\n", arguments.pool)
        }
    };
    let code = if outcome.is_err() { ExitCode::from(REFUSED) } else { ExitCode::SUCCESS };
    Ok(VerbOutput { text, code, notes: manifests.notes })
}

/// Returns what the rendering left out: the plan of a node has the rest.
fn left_out(to: &Rendered, plan: Option<&Plan>) -> Vec<NotApplied> {
    let told = plan.map(Plan::not_applied).unwrap_or_default();
    to.remarks.iter().filter(|remark| !told.contains(remark)).cloned().collect()
}

/// Returns the pool.
fn pool<'a>(manifests: &'a Manifests, arguments: &Arguments) -> Result<&'a MachineConfigPool, CliError> {
    let place = if arguments.manifests.is_some() { "directory" } else { "cluster" };
    super::render::pool(manifests, &arguments.pool, place)
}
