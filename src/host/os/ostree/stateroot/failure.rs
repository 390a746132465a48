//! Meaning of an error of reading or writing.

use std::io;

use super::super::super::error::{OsError, OsErrorKind};

/// Tells a seed that is not right from a disk that is not.
pub(super) fn unpack_failed(object: &str, error: &io::Error) -> OsError {
    let is = |kinds: &[io::ErrorKind]| kinds.contains(&error.kind());
    if is(&[
        io::ErrorKind::InvalidData,
        io::ErrorKind::InvalidInput,
        io::ErrorKind::UnexpectedEof,
        io::ErrorKind::FileTooLarge,
    ]) {
        return OsError::new(OsErrorKind::SeedDamaged, object, error.to_string());
    }
    if is(&[io::ErrorKind::StorageFull, io::ErrorKind::QuotaExceeded]) {
        return OsError::new(OsErrorKind::NoSpace, object, error.to_string());
    }
    OsError::from_text(object, &error.to_string(), OsErrorKind::Libostree)
}
