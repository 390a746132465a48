//! Files that others renew: read when they are needed, with a bound.

use std::io::Read as _;
use std::path::Path;

/// Reads a file of at most so many bytes. The error names the file.
#[expect(
    clippy::disallowed_methods,
    reason = "files that a person names; the controller has no host below it"
)]
pub(super) fn read(path: &Path, most: u64) -> Result<Vec<u8>, String> {
    let failed = |cause: String| format!("{}: {cause}", path.display());
    let file = std::fs::File::open(path).map_err(|error| failed(error.to_string()))?;
    let mut bytes = Vec::new();
    file.take(most + 1).read_to_end(&mut bytes).map_err(|error| failed(error.to_string()))?;
    if u64::try_from(bytes.len()).is_ok_and(|len| len > most) {
        return Err(failed(format!("it is larger than {most} bytes")));
    }
    Ok(bytes)
}

/// Reads a text.
pub(super) fn text(path: &Path, most: u64) -> Result<String, String> {
    String::from_utf8(read(path, most)?).map_err(|_| format!("{}: it is not text", path.display()))
}
