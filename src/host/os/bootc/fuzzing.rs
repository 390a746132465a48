//! The parsers of bootc's output, as targets of `fuzz/`.

use super::progress;
use super::status::BootcHost;

/// Reads `bootc status --json`.
pub(crate) fn bootc_status(bytes: &[u8]) -> Vec<String> {
    let Ok(text) = std::str::from_utf8(bytes) else { return Vec::new() };
    BootcHost::parse(text).err().into_iter().collect()
}

/// Reads lines of `--progress-fd`.
pub(crate) fn bootc_progress(bytes: &[u8]) -> Vec<String> {
    let Ok(text) = std::str::from_utf8(bytes) else { return Vec::new() };
    let _ = text.lines().filter_map(progress::parse).count();
    Vec::new()
}
