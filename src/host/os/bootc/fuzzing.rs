//! The parsers of bootc's output, as targets of `fuzz/`.

use std::time::Duration;

use super::super::rate::Rate;
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
    let mut rate = Rate::default();
    let at = |line: usize| Duration::from_millis(u64::try_from(line).unwrap_or_default());
    let lines = text.lines().enumerate();
    let _ = lines.filter_map(|(number, line)| progress::parse(line, at(number), &mut rate)).count();
    Vec::new()
}
