//! `bootstrap` and `validate`: the rendered configs of manifests, before there is a cluster.

use std::path::PathBuf;

use super::build::{BuilderFlags, run_build};
use super::build_log::BuildLog;
use super::faults::refuse;
use super::{CliError, Input, VerbOutput};
use crate::bootstrap::{Output, Unbuilt, bootstrap, generate, set_image, unbuilt, write};
use crate::image::local::Order;
use crate::image::{ApplyBy, Request, compose};
use crate::manifests::Manifests;
use crate::model::NotApplied;

/// Flags of `bootstrap`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  machine-config-controller bootstrap --manifests cluster/ --output /etc/mcs/bootstrap\n  \
    machine-config-controller serve --directory /etc/mcs/bootstrap --tls-cert tls.crt --tls-key tls.key"
)]
pub(super) struct Arguments {
    #[command(flatten)]
    input: Input,
    /// Directory to write; one of an earlier run is replaced as a whole
    #[arg(long, value_name = "DIR")]
    output: PathBuf,
    /// Build and push the images of pools that have none
    #[arg(long)]
    build: bool,
    /// Bring all pools into image mode
    #[arg(long, requires_all = ["build", "push", "push_secret"])]
    image_mode: bool,
    /// Repository of these pools' images
    #[arg(long, value_name = "IMAGE", requires = "image_mode")]
    push: Option<String>,
    /// Name of the cluster's Secret for later pushes
    #[arg(long, value_name = "NAME", requires = "image_mode")]
    push_secret: Option<String>,
    #[command(flatten)]
    builder: BuilderFlags,
}

/// Builds where that is requested, renders and writes.
pub(super) fn run(arguments: &Arguments) -> Result<VerbOutput, CliError> {
    let input = &arguments.input;
    let (mut manifests, unread) = Manifests::collect(&input.manifests, input.unknown.fields())?;
    let release = manifests.release(input.os_image.as_deref());
    let mut built = Vec::new();
    if let (true, Some(push), Some(secret)) = (arguments.image_mode, &arguments.push, &arguments.push_secret)
    {
        generate(&mut manifests, push, secret);
    }
    if arguments.build {
        let unbuilt = refuse(&manifests, &unread, unbuilt(&manifests, &release));
        let unbuilt = unbuilt.map_err(|error| error.noted(manifests.notes.clone()))?;
        built = build(&mut manifests, unbuilt, &arguments.builder)?;
    }
    let output = refuse(&manifests, &unread, bootstrap(&manifests, &release));
    let mut output = output.map_err(|error| error.noted(manifests.notes.clone()))?;
    for name in &built {
        let config = manifests.os_configs.get(name).cloned();
        output.os_configs.extend(config.map(|config| (name.clone(), config)));
    }
    write(&output, &arguments.output).map_err(|error| CliError::Failed(error.to_string()))?;
    Ok(VerbOutput::done(text(&output)).with_notes(manifests.notes))
}

/// Builds the images that are missing; returns whose. All is checked before the first one is built.
fn build(
    manifests: &mut Manifests,
    unbuilt: Vec<Unbuilt>,
    flags: &BuilderFlags,
) -> Result<Vec<String>, CliError> {
    let mut prepared = Vec::new();
    for one in unbuilt {
        let request = Request {
            rendered: &one.rendered,
            pool: Some(&one.pool),
            base: &one.base,
            containerfile: &one.containerfile,
            apply_by: ApplyBy::Agent,
            trust: None,
        };
        let context = compose(&request)
            .map_err(|error| CliError::Failed(format!("MachineOSConfig {}: {error}", one.os_config)))?;
        prepared.push((one, context));
    }
    let mut log = BuildLog::open(&flags.work_dir)?;
    let mut built = Vec::new();
    for (one, context) in prepared {
        log.line(&format!("MachineOSConfig {}: builds {}", one.os_config, one.push));
        let order = Order {
            context: &context,
            push: &one.push,
            authfile: None,
            push_authfile: None,
            secrets: &[],
            mounts: &[],
            timestamp: 0,
        };
        let (image, _) = run_build(flags, &order, &mut log)?;
        log.line(&format!("MachineOSConfig {}: built {image}", one.os_config));
        set_image(manifests, &one.os_config, &image);
        built.push(one.os_config);
    }
    Ok(built)
}

pub(super) fn text(output: &Output) -> String {
    let line = |(name, pool): (&String, &crate::api::MachineConfigPool)| {
        let config = pool.spec.configuration.clone().unwrap_or_default();
        let sources = config.source.unwrap_or_default().len();
        format!("pool {name}: {} of {sources} MachineConfigs\n", config.name.unwrap_or_default())
    };
    let remark = |(pool, remark): &(String, NotApplied)| format!("pool {pool}: not applied: {remark}\n");
    output.pools.iter().map(line).chain(output.remarks.iter().map(remark)).collect()
}
