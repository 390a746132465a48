//! A file that a person names on the command line: any that can be read, a pipe or a link as well. Its owner does not matter.

use std::io::{ErrorKind, Read as _};
use std::path::Path;

/// Reads it, or standard input by `-`; the error is the cause.
pub fn read_given(path: &str, limit: u64) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let read = if path == "-" {
        std::io::stdin().take(limit + 1).read_to_end(&mut bytes)
    } else {
        std::fs::File::open(Path::new(path)).and_then(|file| file.take(limit + 1).read_to_end(&mut bytes))
    };
    read.map_err(|error| {
        if error.kind() == ErrorKind::NotFound {
            "there is no such file".to_owned()
        } else if error.kind() == ErrorKind::IsADirectory {
            "it is a directory".to_owned()
        } else {
            error.to_string()
        }
    })?;
    let fits = u64::try_from(bytes.len()).is_ok_and(|len| len <= limit);
    if fits { Ok(bytes) } else { Err(format!("it has more than {limit} bytes, and at most these are read")) }
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
            assert!(read_given(&at(name), 3).unwrap_err().contains("more than 3 bytes"));
        }
        let (reader, mut writer) = std::io::pipe().unwrap();
        std::io::Write::write_all(&mut writer, b"piped").unwrap();
        drop(writer);
        let pipe = format!("/dev/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&reader));
        assert_eq!(read_given(&pipe, 10), Ok(b"piped".to_vec()));
        assert_eq!(read_given(&at("none"), 1), Err("there is no such file".to_owned()));
        assert_eq!(read_given(&at(""), 1), Err("it is a directory".to_owned()));
    }
}
