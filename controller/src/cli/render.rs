//! `render`: the rendered config of each pool, from files alone.

use super::error::of_render;
use super::{CliError, Input, VerbOutput, yaml};
use crate::api::MachineConfigPool;
use crate::manifests::Manifests;
use crate::render::render_first;

/// Flags of `render`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  machine-config-controller render --manifests cluster/ --pool worker")]
pub(super) struct Arguments {
    #[command(flatten)]
    input: Input,
    /// Only this pool
    #[arg(long, value_name = "NAME")]
    pool: Option<String>,
}

/// Renders them.
pub(super) fn run(arguments: &Arguments) -> Result<VerbOutput, CliError> {
    let manifests = arguments.input.read()?;
    match rendered(arguments, &manifests) {
        Ok(text) => Ok(VerbOutput::done(text).with_notes(manifests.notes)),
        Err(error) => Err(error.noted(manifests.notes)),
    }
}

fn rendered(arguments: &Arguments, manifests: &Manifests) -> Result<String, CliError> {
    let release = manifests.release(arguments.input.os_image.as_deref());
    let configs: Vec<_> = manifests.configs.values().cloned().collect();
    let mut text = String::new();
    let mut faults = Vec::new();
    for pool in pools(manifests, arguments.pool.as_deref())? {
        let rendered = match render_first(pool, &configs, &release) {
            Ok(rendered) => rendered,
            Err(refused) => {
                faults.extend(refused.iter().flat_map(of_render));
                continue;
            }
        };
        text += &yaml(&rendered.object)?;
        for remark in &rendered.remarks {
            text += &format!("# not applied: {remark}\n");
        }
    }
    if faults.is_empty() { Ok(text) } else { Err(CliError::Faults(faults)) }
}

fn pools<'a>(manifests: &'a Manifests, name: Option<&str>) -> Result<Vec<&'a MachineConfigPool>, CliError> {
    match name {
        Some(name) => Ok(vec![pool(manifests, name, "directory")?]),
        None if manifests.pools.is_empty() => {
            Err(CliError::Failed("there is no MachineConfigPool in the directory; add one".to_owned()))
        }
        None => Ok(manifests.pools.values().collect()),
    }
}

/// Returns the pool of this name.
pub(super) fn pool<'a>(
    manifests: &'a Manifests,
    name: &str,
    place: &str,
) -> Result<&'a MachineConfigPool, CliError> {
    manifests.pools.get(name).ok_or_else(|| {
        let known: Vec<&str> = manifests.pools.keys().map(String::as_str).collect();
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        CliError::Usage(format!("there is no MachineConfigPool {name} in the {place}; it has {known}"))
    })
}
