//! The parsers of the control directory, as targets of `fuzz/`.

use super::directory::own_target;
use super::stage_file;

/// Reads `target.yaml`.
pub(crate) fn control_target(bytes: &[u8]) -> Vec<String> {
    match own_target(bytes, "target.yaml") {
        Ok(target) => {
            let image = target.image.map_or_else(String::new, |image| format!("image: {image}\n"));
            let written = format!("config: {}\n{image}", target.config);
            assert!(own_target(written.as_bytes(), "target.yaml").is_ok(), "it can be written: {written}");
            Vec::new()
        }
        Err(error) => vec![error.to_string()],
    }
}

/// Reads `stateroot.yaml`.
pub(crate) fn stage(bytes: &[u8]) -> Vec<String> {
    let Ok(text) = std::str::from_utf8(bytes) else { return Vec::new() };
    stage_file::parse(text).err().into_iter().collect()
}
