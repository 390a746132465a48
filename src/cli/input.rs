//! Reading of a flag's argument: a file, `-` for standard input, or a word for the host's own.

use super::CliError;
use super::host::runtime;
use crate::control::download::{download, is_url, without_secrets};
use crate::host::given::read_given;
use crate::model::document::Kind;
use crate::model::machineconfig::{self, MachineConfig};
use crate::model::policy::{self, DisruptionPolicy, of_policy};
use crate::model::reading::refuse_unknown;
use crate::model::{ImageRef, NotApplied, ProxySettings, Sha256};

/// The names of standard input.
const STANDARD_INPUT: [&str; 4] = ["-", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"];

/// Treatment of fields that nobody knows.
#[derive(Debug, Clone, Copy, Default, clap::Args)]
pub(super) struct Unknown {
    /// Accept unknown fields: report them, and do not apply them
    #[arg(long)]
    pub(super) allow_unknown_fields: bool,
}

impl Unknown {
    /// Reads a file that a person gives; unknown fields of it are refused, where they are not let pass.
    fn read(self, bytes: &[u8], document: &str) -> Result<MachineConfig, CliError> {
        let read = if self.allow_unknown_fields {
            MachineConfig::parse_or_wrap(bytes, document)
        } else {
            MachineConfig::parse_or_wrap_strictly(bytes, document)
        };
        Ok(read?)
    }
}

/// Reads a MachineConfig, or an Ignition config.
pub(super) fn machine_config(path: &str, unknown: Unknown) -> Result<MachineConfig, CliError> {
    unknown.read(&bytes(path, machineconfig::MAX_BYTES)?, path)
}

/// Reads a MachineConfig, or an Ignition config, from a file or a web server; it has to be of the digest.
pub(super) fn checked_config(
    from: &str,
    digest: Option<&str>,
    unknown: Unknown,
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
        let shown = without_secrets(from);
        (
            bytes.map_err(|error| CliError::Input {
                path: error.url,
                cause: error.cause,
                next: error.next,
            })?,
            shown,
        )
    } else {
        (bytes(from, limit)?, from.to_owned())
    };
    if let Some(expected) = expected {
        let found = Sha256::digest(&bytes);
        if found != expected {
            let cause = format!("its digest is sha256:{found}, expected sha256:{expected}");
            let next = "Compare the file with its source, or pass its own digest (sha256sum) with --digest.";
            return Err(CliError::Input { path: shown, cause, next });
        }
    }
    unknown.read(&bytes, &shown)
}

/// Reads a disruption policy; the default table without a file. What is not read of the file is named with the config, whose file may be
/// the same.
pub(super) fn policy(
    path: Option<&str>,
    unknown: Unknown,
    config: MachineConfig,
    of_config: &str,
) -> Result<(MachineConfig, DisruptionPolicy), CliError> {
    let Some(path) = path else { return Ok((config, DisruptionPolicy::defaults())) };
    let (found, others) = DisruptionPolicy::of_file(&bytes(path, policy::MAX_BYTES)?, path)?;
    if !unknown.allow_unknown_fields {
        refuse_unknown(&found.unknown, path)?;
    }
    let mut beside = config.beside().to_vec();
    if path == of_config {
        beside.retain(|other| !is_policy(other));
    } else {
        beside.extend(others);
    }
    beside.extend(of_policy(found.unknown));
    Ok((config.with_beside(beside), found.value))
}

/// Returns true if another document is a disruption policy.
fn is_policy(other: &NotApplied) -> bool {
    other.field.split(' ').next() == Some(Kind::POLICY.kind)
}

/// Refuses standard input that several arguments name: it has one document, and its first reader would leave the others none.
pub(super) fn check_standard_input(arguments: &[(&'static str, Option<&str>)]) -> Result<(), CliError> {
    let is_standard_input = |path: &str| STANDARD_INPUT.contains(&path);
    let named = arguments.iter().filter(|(_, path)| path.is_some_and(is_standard_input));
    let named: Vec<&str> = named.map(|(name, _)| *name).collect();
    let [first, _, ..] = named.as_slice() else { return Ok(()) };
    let all = named.join(" and ");
    let cause = format!("{first}: standard input is named by {all}, and can be read once");
    Err(CliError::Usage(format!("{cause}; give each but one as a file")))
}

/// Reads the image reference of an argument.
pub(super) fn image(argument: &str, text: Option<&str>) -> Result<Option<ImageRef>, CliError> {
    let parsed = text.filter(|text| !text.is_empty()).map(ImageRef::parse).transpose();
    parsed.map_err(|error| CliError::Usage(error.in_field(argument, "").to_string()))
}

/// Reads the named file, or standard input for `-`.
pub(super) fn bytes(path: &str, limit: u64) -> Result<Vec<u8>, CliError> {
    if is_url(path) {
        let cause = "only `apply --to` takes an address".to_owned();
        let next = "Download the document (curl --output FILE URL), then name the file.";
        return Err(CliError::Input { path: without_secrets(path), cause, next });
    }
    read_given(path, limit).map_err(|error| CliError::Input {
        path: path.to_owned(),
        cause: error.to_string(),
        next: error.next(),
    })
}
