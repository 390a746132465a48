//! The parser of a seed's archives, as a target of `fuzz/`.

use super::acl::{self, Ids};
use super::archive::read_entries;

struct Nobody;

impl Ids for Nobody {
    fn user(&self, _: &str) -> Option<u32> {
        None
    }

    fn group(&self, _: &str) -> Option<u32> {
        None
    }
}

/// Reads an archive, and the text of an ACL.
pub(crate) fn seed_archive(bytes: &[u8]) -> Vec<String> {
    if let Some(attribute) = std::str::from_utf8(bytes).ok().and_then(|text| acl::attribute(text, &Nobody)) {
        assert!(acl::text(&attribute).is_some(), "what is written reads");
    }
    let read = read_entries(bytes, Some("etc"), u64::MAX, &Nobody, |entry, contents| {
        assert!(entry.path.is_relative(), "it stays inside");
        let mut first = [0; 64];
        contents.read(&mut first).map(drop)
    });
    read.err().map(|error| error.to_string()).into_iter().collect()
}
