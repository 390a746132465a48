//! A file that a person names on the command line: any that can be read, a pipe or a link as well. Its owner does not matter.

use std::io::{ErrorKind, Read as _};
use std::path::Path;

use rustix::io::Errno;

use crate::model::text::chain;

/// A file that can't be read.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum GivenError {
    /// There is nothing.
    #[error("there is no such file")]
    Missing,
    /// A directory.
    #[error("it is a directory")]
    Directory,
    /// A socket, or a device without a driver.
    #[error("it is a socket or a device")]
    Special,
    /// More bytes than a document of its kind has.
    #[error("it has more than {0} bytes, and at most these are read")]
    TooLarge(u64),
    /// The system's error.
    #[error("{0}")]
    Other(String),
}

impl GivenError {
    /// Returns the next step.
    pub fn next(&self) -> &'static str {
        match self {
            Self::Directory => "Name a file in it.",
            Self::Special => "Name a file, a pipe, or `-` for standard input.",
            Self::TooLarge(_) => "Name a file of this size; larger ones hold other things.",
            Self::Missing | Self::Other(_) => "Check path and permissions (ls -l).",
        }
    }
}

/// Reads it, or standard input by `-`.
pub fn read_given(path: &str, limit: u64) -> Result<Vec<u8>, GivenError> {
    let mut bytes = Vec::new();
    let read = if path == "-" {
        std::io::stdin().take(limit + 1).read_to_end(&mut bytes)
    } else {
        std::fs::File::open(Path::new(path)).and_then(|file| file.take(limit + 1).read_to_end(&mut bytes))
    };
    read.map_err(|error| {
        if error.kind() == ErrorKind::NotFound {
            GivenError::Missing
        } else if error.kind() == ErrorKind::IsADirectory {
            GivenError::Directory
        } else if Errno::from_io_error(&error) == Some(Errno::NXIO) {
            GivenError::Special
        } else {
            GivenError::Other(chain(&error))
        }
    })?;
    let fits = u64::try_from(bytes.len()).is_ok_and(|len| len <= limit);
    if fits { Ok(bytes) } else { Err(GivenError::TooLarge(limit)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_pipes_and_files_are_read_with_limit() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
        std::fs::write(at("file"), "four").unwrap();
        // As in a mounted ConfigMap, and by an absolute path.
        std::os::unix::fs::symlink(at("file"), at("absolute")).unwrap();
        std::os::unix::fs::symlink("file", at("relative")).unwrap();
        for name in ["file", "absolute", "relative"] {
            assert_eq!(read_given(&at(name), 4), Ok(b"four".to_vec()));
            assert!(read_given(&at(name), 3).unwrap_err().to_string().contains("more than 3 bytes"));
        }
        let (reader, mut writer) = std::io::pipe().unwrap();
        std::io::Write::write_all(&mut writer, b"piped").unwrap();
        drop(writer);
        let pipe = format!("/dev/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&reader));
        assert_eq!(read_given(&pipe, 10), Ok(b"piped".to_vec()));
        assert_eq!(read_given(&at("none"), 1), Err(GivenError::Missing));
        let _socket = std::os::unix::net::UnixListener::bind(at("socket")).unwrap();
        assert_eq!(read_given(&at("socket"), 1), Err(GivenError::Special));
        assert_eq!(read_given(&at(""), 1), Err(GivenError::Directory));
    }
}
