//! Reading what a flag names: a file, `-` for standard input, or a word for what is on the host.

use std::io::Read as _;
use std::path::Path;

use super::CliError;
use crate::host::HostError;
use crate::host::root::Root;
use crate::model::ImageRef;
use crate::model::machineconfig::{self, MachineConfig};
use crate::model::policy::{self, DisruptionPolicy};

/// Reads a MachineConfig.
pub(super) fn machine_config(path: &str) -> Result<MachineConfig, CliError> {
    Ok(MachineConfig::parse(&bytes(path, machineconfig::MAX_BYTES)?, path)?)
}

/// Reads a disruption policy; the default table without a file.
pub(super) fn policy(path: Option<&str>) -> Result<DisruptionPolicy, CliError> {
    path.map_or_else(
        || Ok(DisruptionPolicy::defaults()),
        |path| Ok(DisruptionPolicy::parse(&bytes(path, policy::MAX_BYTES)?, path)?),
    )
}

/// Reads an image reference.
pub(super) fn image(text: Option<&str>) -> Result<Option<ImageRef>, CliError> {
    let parsed = text.filter(|text| !text.is_empty()).map(ImageRef::parse).transpose();
    parsed.map_err(|error| CliError::Usage(error.to_string()))
}

/// Reads what a person names: whose file it is does not matter.
fn bytes(path: &str, limit: u64) -> Result<Vec<u8>, CliError> {
    let unread = |cause: String| CliError::Input { path: path.to_owned(), cause };
    if path == "-" {
        let mut bytes = Vec::new();
        let read = std::io::stdin().take(limit + 1).read_to_end(&mut bytes);
        read.map_err(|error| unread(error.to_string()))?;
        let fits = u64::try_from(bytes.len()).is_ok_and(|len| len <= limit);
        return fits.then_some(bytes).ok_or_else(|| unread(format!("it is larger than {limit} bytes")));
    }
    let file = Path::new(path);
    let directory = file.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let name = file
        .file_name()
        .and_then(|name| name.to_str())
        .ok_or_else(|| unread("it names no file".to_owned()))?;
    let root = Root::open(directory)?;
    let found = root.read_at_most(&format!("/{name}"), limit);
    if let Err(HostError::TooLarge { size, limit, .. }) = found {
        return Err(unread(format!("it has {size} bytes, and at most {limit} are read")));
    }
    found?.ok_or_else(|| unread("there is no such file".to_owned()))
}
