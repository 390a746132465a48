//! The size of a rendered config as the API server stores it, against etcd's limit: what etcd refuses, no node could be given.

use std::io;

use serde::Serialize;

use super::error::{LIMIT, RenderError};
use crate::api::MachineConfig;

/// Bytes that the API server adds: owner, uid, times, managed fields, and the request to etcd around the object.
const ADDED: usize = 4096;

/// The most MachineConfigs that an error names.
const MAX_NAMED: usize = 3;

/// Refuses a rendered config that etcd would not take, with the MachineConfigs that have the largest share.
pub(super) fn check(object: &MachineConfig, chosen: &[&MachineConfig]) -> Result<(), RenderError> {
    let size = stored_size(object)? + ADDED;
    if size <= LIMIT {
        return Ok(());
    }
    let name_of = |config: &MachineConfig| config.metadata.name.clone().unwrap_or_default();
    let mut parts = Vec::new();
    for config in chosen {
        parts.push((stored_size(&config.spec)?, name_of(config)));
    }
    parts.sort_by(|(one, name), (other, after)| other.cmp(one).then_with(|| name.cmp(after)));
    let named: Vec<String> =
        parts.iter().take(MAX_NAMED).map(|(size, name)| format!("{name} ({size} bytes)")).collect();
    let largest = named.join(", ");
    Err(RenderError::TooLarge { config: name_of(object), size, largest })
}

/// Returns the bytes of an object as the API server writes it: JSON, in which Go escapes three more characters, and two
/// line separators.
pub fn stored_size(object: &impl Serialize) -> Result<usize, serde_json::Error> {
    let mut counter = Counter(0);
    serde_json::to_writer(&mut counter, object)?;
    Ok(counter.0)
}

struct Counter(usize);

impl io::Write for Counter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // `\u003c` in place of `<`.
        let escaped = bytes.iter().filter(|byte| matches!(byte, b'<' | b'>' | b'&')).count() * 5;
        // `\u2028` in place of three bytes. A string is written in pieces that end before what is escaped, so none is cut.
        let is_separator = |at: &[u8]| matches!(at, [0xe2, 0x80, 0xa8 | 0xa9]);
        let separators = bytes.windows(3).filter(|at| is_separator(at)).count() * 3;
        self.0 += bytes.len() + escaped + separators;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// As `json.NewEncoder` of Go writes it, which the API server stores with.
    #[test]
    fn size_is_that_of_go_json() {
        let go = [
            (json!("plain"), r#""plain""#),
            (json!("<a href=\"b\">&</a>"), r#""\u003ca href=\"b\"\u003e\u0026\u003c/a\u003e""#),
            (json!("\u{2028}\u{2029}\n\t\u{1}"), r#""\u2028\u2029\n\t\u0001""#),
            (json!({"a": [1, true, null, "ä"]}), r#"{"a":[1,true,null,"ä"]}"#),
        ];
        for (value, text) in go {
            assert_eq!(stored_size(&value).unwrap(), text.len(), "{text}");
        }
    }
}
