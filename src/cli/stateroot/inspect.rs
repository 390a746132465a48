//! `stateroot inspect`: what a seed image says of itself, and what this host says to it.

use serde::Serialize;
use serde_json::{Map, Value};

use super::super::CliError;
use super::super::output::{Output, print, print_json};
use super::machine::Machine;
use crate::host::{AuthFile, Credentials};
use crate::model::ImageRef;
use crate::observe::host_traits;
use crate::settings::Environment;
use crate::stateroot::{FORMAT, Layout, Refusal, Seed, StaterootName, Version, refusals};

/// Flags of `stateroot inspect`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  machine-config-agent stateroot inspect registry.example/seed@sha256:DIGEST\n\n\
    Exits with 3 when this host can't take the seed."
)]
pub(super) struct Arguments {
    /// The seed image, by digest
    #[arg(value_name = "IMAGE")]
    image: String,
    /// Required version of the seed
    #[arg(long, value_name = "VERSION")]
    version: Option<String>,
    /// Output format
    #[arg(long, short, value_enum, default_value_t = Output::Text)]
    output: Output,
}

/// Shown document.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
struct Shown<'a> {
    schema_version: u32,
    image: &'a ImageRef,
    layout: Layout,
    format_version: u32,
    version: &'a Version,
    stateroot: StaterootName,
    download: u64,
    cluster: &'a Map<String, Value>,
    refusals: Vec<Refusal>,
}

/// Returns the schema of the document.
#[cfg(test)]
pub(in crate::cli) fn schema(generator: schemars::SchemaGenerator) -> schemars::Schema {
    generator.into_root_schema_for::<Shown<'static>>()
}

/// Prints what the image is.
pub(super) async fn run(arguments: &Arguments, environment: &Environment) -> Result<u8, CliError> {
    let image = ImageRef::parse(&arguments.image).map_err(|error| error.in_field("IMAGE", ""))?;
    let version = arguments.version.as_deref().map(Version::new).transpose()?;
    let machine = Machine::open(environment)?;
    let credentials = Credentials::there(&machine.root, AuthFile::Run)?.map(|found| found.json);
    let found = machine.stateroots.inspect(&image, credentials.as_ref()).await?;
    let seed = Seed::from_labels(&found.labels)?;
    let refusals = refusals(&seed, version.as_ref(), &host_traits(&machine.root)?);
    let is_refused = !refusals.is_empty();
    let shown = Shown {
        schema_version: 1,
        image: &image,
        layout: seed.layout,
        format_version: FORMAT,
        version: &seed.version,
        stateroot: StaterootName::from_version(&seed.version),
        download: found.download,
        cluster: &seed.document,
        refusals,
    };
    match arguments.output {
        Output::Json => print_json(&shown)?,
        Output::Text => print(&text(&shown))?,
    }
    Ok(if is_refused { 3 } else { 0 })
}

fn text(shown: &Shown<'_>) -> String {
    let Shown { layout, format_version, version, stateroot, download, refusals, .. } = shown;
    let mut text = format!(
        "Image      {}\nSeed       {}, format version {format_version}\nVersion    {version}\nStateroot  {stateroot}\n\
         Download   {download} bytes\n",
        shown.image,
        layout.as_str()
    );
    for Refusal { field, message } in refusals {
        text += &format!("Refused    {field}: {message}\n");
    }
    text
}
