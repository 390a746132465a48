//! The running kernel: its FIPS mode, and the origins of its arguments: earlier configs, which the journal remembers, and
//! the booted image.

use std::env::consts::ARCH;

use tracing::debug;

use super::ObserveError;
use crate::host::Root;
use crate::model::Karg;
use crate::model::ids::FORMER_KARGS;
use crate::model::kargs::{FormerKargs, IMAGE_KARGS_PATH, of_image_file};
use crate::model::observation::ObservedFips;

/// Most files of it that are read.
const MAX_FILES: usize = 100;

const FIPS: &str = "/proc/sys/crypto/fips_enabled";

/// Reads the arguments that configs of this host have set. A file that can't be read counts as none: the next update
/// writes it anew.
pub(super) fn former(root: &Root) -> Result<FormerKargs, ObserveError> {
    let bytes = root.read(FORMER_KARGS).map_err(ObserveError::wrap("the kernel arguments"))?;
    Ok(bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_default())
}

/// Returns what the kernel says of its FIPS mode.
pub(super) fn fips(root: &Root) -> Result<ObservedFips, ObserveError> {
    let text = root.read_text(FIPS).map_err(ObserveError::wrap("the FIPS mode"))?;
    Ok(match text.as_deref().map(str::trim) {
        Some("1") => ObservedFips::On,
        Some("0") => ObservedFips::Off,
        Some(_) | None => ObservedFips::Unknown,
    })
}

/// Reads the arguments that the booted image brings by itself. A file that bootc would not read brings none.
pub(super) fn of_image(root: &Root) -> Result<Vec<Karg>, ObserveError> {
    let failed = || ObserveError::wrap("the kernel arguments of the image");
    let mut kargs = Vec::new();
    for name in root.list(IMAGE_KARGS_PATH).map_err(failed())?.into_iter().take(MAX_FILES) {
        let is_toml = std::path::Path::new(&name).extension().is_some_and(|end| end == "toml");
        if !is_toml {
            continue;
        }
        let text =
            root.read_text(&format!("{IMAGE_KARGS_PATH}/{name}")).map_err(failed())?.unwrap_or_default();
        match of_image_file(&text, ARCH) {
            Ok(found) => kargs.extend(found),
            Err(cause) => debug!("Ignored {IMAGE_KARGS_PATH}/{name}: {cause}"),
        }
    }
    Ok(kargs)
}
