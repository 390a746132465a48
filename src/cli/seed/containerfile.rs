//! `seed containerfile`: the Containerfile that adds the configuration of a cluster to a bootc seed.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::PathBuf;

use super::super::CliError;
use super::super::output::print;
use crate::host::HostError;
use crate::host::Root;
use crate::model::ImageRef;
use crate::stateroot::{
    ConfigFiles, ConfigProblem, EXTRA_MANIFESTS, IMAGE_BASED_CONFIG, INSTALL_CONFIG, containerfile,
};

/// Longest file of a configuration.
const MAX_FILE_BYTES: u64 = 4 << 20;

/// Most manifests of a configuration.
const MAX_MANIFESTS: usize = 1000;

/// Flags of `seed containerfile`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  machine-config-agent seed containerfile --config DIR --image registry.example/seed@sha256:DIGEST \\\n    \
    --include-secret install-config.yaml > Containerfile\n  \
    podman build --file Containerfile DIR\n\n\
    Exits with 3 and names every fault if `openshift-install image-based` would not take the directory,\n\
    or a file holds a secret that is not named."
)]
pub(super) struct Arguments {
    /// Directory with install-config.yaml, image-based-config.yaml and, if there are any, extra-manifests
    #[arg(long, value_name = "DIR")]
    config: PathBuf,
    /// The bootc seed, by digest
    #[arg(long, value_name = "SEED")]
    image: String,
    /// File of the directory to take although it holds a secret; repeatable
    #[arg(long, value_name = "FILE")]
    include_secret: Vec<String>,
}

/// Prints the Containerfile.
pub(super) fn run(arguments: &Arguments) -> Result<u8, CliError> {
    let seed = ImageRef::parse(&arguments.image).map_err(|error| error.in_field("--image", ""))?;
    let mut files = read(&Root::open(&arguments.config)?)?;
    files.named.clone_from(&arguments.include_secret);
    match files.check() {
        Ok(config) => print(&containerfile(&seed, &config)).map(|()| 0),
        Err(problems) => {
            for ConfigProblem { file, cause, next } in problems {
                // A standard error that is gone has no reader.
                drop(writeln!(std::io::stderr(), "error: {file}: {cause}\nNext: {next}"));
            }
            Ok(3)
        }
    }
}

/// The step of a directory with other files than its kind has.
const CORRECT: &str = "Correct it, or name the directory of the configs with --config.";

fn read(directory: &Root) -> Result<ConfigFiles, CliError> {
    let install = text(directory, INSTALL_CONFIG)?;
    let image_based = text(directory, IMAGE_BASED_CONFIG)?;
    let mut manifests = BTreeMap::new();
    let names = directory.list(&format!("/{EXTRA_MANIFESTS}"))?;
    if names.len() > MAX_MANIFESTS {
        let cause = format!("it has {} files, and at most {MAX_MANIFESTS} are read", names.len());
        return Err(CliError::Input { path: EXTRA_MANIFESTS.to_owned(), cause, next: CORRECT });
    }
    for name in names {
        let contents = match text(directory, &format!("{EXTRA_MANIFESTS}/{name}")) {
            Err(CliError::Host(HostError::Kind { .. })) => None,
            other => other?,
        };
        manifests.insert(name, contents);
    }
    Ok(ConfigFiles { install, image_based, manifests, named: Vec::new() })
}

fn text(directory: &Root, name: &str) -> Result<Option<String>, CliError> {
    let bytes = directory.read_at_most(&format!("/{name}"), MAX_FILE_BYTES)?;
    let no_text = |_| CliError::Input {
        path: name.to_owned(),
        cause: "it is not UTF-8 text".to_owned(),
        next: CORRECT,
    };
    bytes.map(|bytes| String::from_utf8(bytes).map_err(no_text)).transpose()
}
