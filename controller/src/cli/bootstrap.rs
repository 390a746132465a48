//! `bootstrap` and `validate`: what a cluster would make of its manifests, before there is one.

use std::path::PathBuf;

use super::{CliError, Input, Said};
use crate::bootstrap::{Output, bootstrap, write};
use crate::manifests::Manifests;
use crate::render::Release;

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
}

/// Flags of `validate`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  machine-config-controller validate --manifests cluster/\n\n\
    Exit status: 0 valid, 1 not; each error names the object, the field and the next step.")]
pub(super) struct Checked {
    #[command(flatten)]
    input: Input,
}

/// Renders and writes.
pub(super) fn run(arguments: &Arguments) -> Result<Said, CliError> {
    let output = made(&arguments.input)?;
    write(&output, &arguments.output).map_err(|error| CliError::Usage(error.to_string()))?;
    Ok(Said::done(text(&output)))
}

/// Says whether a bootstrap would write.
pub(super) fn validate(arguments: &Checked) -> Result<Said, CliError> {
    Ok(Said::done(text(&made(&arguments.input)?)))
}

fn made(input: &Input) -> Result<Output, CliError> {
    let manifests = Manifests::read(&input.manifests)?;
    let release = Release { os_image: input.os_image.clone(), extensions_image: None };
    bootstrap(&manifests, &release).map_err(|errors| {
        let lines: Vec<String> = errors.iter().map(ToString::to_string).collect();
        match lines.as_slice() {
            [one] => CliError::Usage(one.clone()),
            many => CliError::Usage(format!("{} errors:\n  {}", many.len(), many.join("\n  "))),
        }
    })
}

fn text(output: &Output) -> String {
    let line = |(name, pool): (&String, &crate::api::MachineConfigPool)| {
        let config = pool.spec.configuration.clone().unwrap_or_default();
        let sources = config.source.unwrap_or_default().len();
        format!("pool {name}: {} of {sources} MachineConfigs\n", config.name.unwrap_or_default())
    };
    output.pools.iter().map(line).collect()
}
