//! Reading of a flag's argument: a file, `-` for standard input, or a word for the host's own.

use std::io::Read as _;
use std::path::Path;

use super::CliError;
use super::host::runtime;
use crate::control::download::{download, is_url};
use crate::host::HostError;
use crate::host::root::Root;
use crate::model::machineconfig::{self, MachineConfig};
use crate::model::policy::{self, DisruptionPolicy};
use crate::model::{ImageRef, ProxySettings, Sha256};

/// Reads a MachineConfig, or an Ignition config.
pub(super) fn machine_config(path: &str) -> Result<MachineConfig, CliError> {
    Ok(MachineConfig::parse_or_wrap(&bytes(path, machineconfig::MAX_BYTES)?, path)?)
}

/// Reads a MachineConfig, or an Ignition config, from a file or a web server; it has to be of the digest.
pub(super) fn checked_config(
    from: &str,
    digest: Option<&str>,
    proxies: impl FnOnce() -> Result<ProxySettings, CliError>,
) -> Result<MachineConfig, CliError> {
    let expected = digest.map(|digest| {
        let hex = digest.strip_prefix("sha256:").and_then(|hex| Sha256::parse(hex).ok());
        hex.ok_or_else(|| CliError::Usage(format!("--digest {digest:?}: give sha256: and 64 hex digits")))
    });
    let expected = expected.transpose()?;
    if from.starts_with("http://") && expected.is_none() {
        let cause = "without TLS its sender is unknown; pass --digest sha256:HEX, or name it by https";
        return Err(CliError::Usage(format!("--to with http: {cause}")));
    }
    let limit = machineconfig::MAX_BYTES;
    let (bytes, shown) = if is_url(from) {
        let bytes = runtime()?.block_on(download(from, &proxies()?, limit));
        let shown = from.split('?').next().unwrap_or_default().rsplit('@').next().unwrap_or_default();
        (bytes.map_err(|error| CliError::Input { path: error.url, cause: error.cause })?, shown)
    } else {
        (bytes(from, limit)?, from)
    };
    if let Some(expected) = expected {
        let found = Sha256::digest(&bytes);
        if found != expected {
            let cause = format!("its digest is sha256:{found}, expected sha256:{expected}");
            return Err(CliError::Input { path: shown.to_owned(), cause });
        }
    }
    Ok(MachineConfig::parse_or_wrap(&bytes, shown)?)
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

/// Reads a file named by a person: its owner does not matter.
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
