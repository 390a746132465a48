//! Reading what a flag names: a file, `-` for standard input, or a word for what is on the host.

use std::io::Read as _;
use std::path::Path;

use super::CliError;
use crate::host::root::Root;
use crate::model::ImageRef;
use crate::model::machineconfig::MachineConfig;
use crate::model::policy::DisruptionPolicy;

/// The largest document that is read: a MachineConfig is bounded by etcd at 1.5 MiB, YAML and editing double it.
const LIMIT: u64 = 16 * 1024 * 1024;

/// Reads a MachineConfig.
pub(super) fn machine_config(path: &str) -> Result<MachineConfig, CliError> {
    Ok(MachineConfig::parse(&bytes(path)?, path)?)
}

/// Reads a disruption policy; the default table without a file.
pub(super) fn policy(path: Option<&str>) -> Result<DisruptionPolicy, CliError> {
    path.map_or_else(
        || Ok(DisruptionPolicy::defaults()),
        |path| Ok(DisruptionPolicy::parse(&bytes(path)?, path)?),
    )
}

/// Reads an image reference.
pub(super) fn image(text: Option<&str>) -> Result<Option<ImageRef>, CliError> {
    let parsed = text.filter(|text| !text.is_empty()).map(ImageRef::parse).transpose();
    parsed.map_err(|error| CliError::Usage(error.to_string()))
}

fn bytes(path: &str) -> Result<Vec<u8>, CliError> {
    let unread = |cause: String| CliError::Input { path: path.to_owned(), cause };
    if path == "-" {
        let mut bytes = Vec::new();
        let read = std::io::stdin().take(LIMIT + 1).read_to_end(&mut bytes);
        read.map_err(|error| unread(error.to_string()))?;
        return bounded(bytes).ok_or_else(|| unread(format!("it is larger than {LIMIT} bytes")));
    }
    let file = Path::new(path);
    let directory = file.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let name = file
        .file_name()
        .and_then(|name| name.to_str())
        .ok_or_else(|| unread("it names no file".to_owned()))?;
    let root = Root::open(directory)?;
    let found = root.read(&format!("/{name}"))?.ok_or_else(|| unread("there is no such file".to_owned()))?;
    bounded(found).ok_or_else(|| unread(format!("it is larger than {LIMIT} bytes")))
}

fn bounded(bytes: Vec<u8>) -> Option<Vec<u8>> {
    u64::try_from(bytes.len()).is_ok_and(|len| len <= LIMIT).then_some(bytes)
}
