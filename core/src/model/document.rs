//! From bytes to one compact JSON text: the entry of all Kubernetes documents.
//!
//! JSON is never turned into a tree: it is checked in one pass, then white space is dropped. Only YAML takes the
//! way over a tree. Error causes keep the parser's words and position, and never a value of the document.

use serde::Deserialize;

use super::error::ModelError;
use super::text::short;
use super::yaml::{self, redacted};

/// The API server lets 1.5 MiB through (etcd's limit); five times that leaves room for files written manually.
const MAX_DOCUMENT: usize = 8 << 20;

/// Expected kind of the document. Both fields may be missing: MCD writes `currentconfig` without them.
#[derive(Debug, Clone, Copy)]
pub(super) struct Kind {
    /// `kind`.
    pub(super) kind: &'static str,
    /// `apiVersion`.
    pub(super) group_version: &'static str,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Header {
    #[serde(default)]
    kind: Option<String>,
    #[serde(default)]
    api_version: Option<String>,
}

/// Turns a document into compact JSON and checks that it is of the kind.
pub(super) fn canonical(bytes: &[u8], document: &str, desired: Kind) -> Result<String, ModelError> {
    if bytes.len() > MAX_DOCUMENT {
        return Err(refused(document, "it is larger than 8 MiB; the API server stores at most 1.5 MiB"));
    }
    let text = std::str::from_utf8(bytes).map_err(|error| refused(document, &error.to_string()))?;
    if text.trim().is_empty() {
        return Err(refused(document, "it is empty"));
    }
    let (json, header) = compact(text, document)?;
    let differs = |found: Option<String>, name: &str, desired: &str| {
        let found = found.filter(|found| !found.is_empty() && found != desired)?;
        Some(format!("its {name} is {:?}; a document with {name} {desired} is needed", short(&found, 100)))
    };
    let wrong = differs(header.kind, "kind", desired.kind)
        .or_else(|| differs(header.api_version, "apiVersion", desired.group_version));
    wrong.map_or(Ok(json), |wrong| Err(refused(document, &wrong)))
}

/// Returns the compact text of a document, with its header: one pass checks it and reads the header.
fn compact(text: &str, document: &str) -> Result<(String, Header), ModelError> {
    let read = |json: &str| serde_json::from_str::<Header>(json);
    if text.trim_start().starts_with('{') {
        match read(text) {
            Ok(header) => return Ok((without_space(text), header)),
            Err(error) if error.is_data() => return Err(refused(document, &cause(&error))),
            // A YAML flow mapping begins with a brace as well.
            Err(error) => {
                let json = from_yaml(text).map_err(|_| refused(document, &cause(&error)))?;
                let header = read(&json).map_err(|error| refused(document, &self::cause(&error)))?;
                return Ok((json, header));
            }
        }
    }
    let json = from_yaml(text).map_err(|error| refused(document, &error))?;
    let header = read(&json).map_err(|error| refused(document, &cause(&error)))?;
    Ok((json, header))
}

/// Drops the white space between the tokens of valid JSON.
fn without_space(json: &str) -> String {
    let mut compact = String::with_capacity(json.len());
    let mut rest = json;
    while let Some((between, quoted)) = rest.split_once('"') {
        push_without_space(&mut compact, between);
        let (string, after) = quoted.split_at(end_of_string(quoted));
        compact.push('"');
        compact.push_str(string);
        rest = after;
    }
    push_without_space(&mut compact, rest);
    compact
}

fn push_without_space(compact: &mut String, tokens: &str) {
    compact.extend(tokens.split([' ', '\t', '\n', '\r']));
}

/// Returns where a string ends whose opening quote was just before: behind the first quote that is not escaped.
fn end_of_string(quoted: &str) -> usize {
    let is_escaped = |at: usize| {
        let before = quoted.get(..at).unwrap_or_default();
        (before.len() - before.trim_end_matches('\\').len()) % 2 == 1
    };
    let end = quoted.match_indices('"').map(|(at, _)| at).find(|at| !is_escaped(*at));
    end.map_or(quoted.len(), |at| at + 1)
}

/// Reads YAML with a mapping of fields; returns its JSON.
fn from_yaml(text: &str) -> Result<String, String> {
    let tree = yaml::tree(text)?;
    if !tree.is_object() {
        return Err("it is not a mapping of fields to values".to_owned());
    }
    serde_json::to_string(&tree).map_err(|error| error.to_string())
}

/// Makes the error of a document.
pub(super) fn refused(document: &str, cause: &str) -> ModelError {
    ModelError::Document { document: short(document, 300), cause: short(cause, 500) }
}

/// Returns the JSON parser's message, without the value it is about.
pub(super) fn cause(error: &serde_json::Error) -> String {
    redacted(&error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANY: Kind = Kind { kind: "Any", group_version: "v1" };

    #[test]
    fn empty_document_is_named_as_empty() {
        let error = canonical(b" \n", "target", ANY).unwrap_err().to_string();
        assert_eq!(error, "target can't be read: it is empty");
    }

    #[test]
    fn json_and_yaml_give_same_text() {
        let json = br#" { "a" : [ 1 , "x \" y\\" ] ,"b":{ } } "#;
        assert_eq!(canonical(json, "t", ANY).unwrap(), r#"{"a":[1,"x \" y\\"],"b":{}}"#);
        assert_eq!(
            canonical(b"a: [1, \"x \\\" y\\\\\"]\nb: {}\n", "t", ANY).unwrap(),
            r#"{"a":[1,"x \" y\\"],"b":{}}"#
        );
        assert_eq!(canonical(b"{mode: 0644}", "t", ANY).unwrap(), r#"{"mode":420}"#);
    }

    #[test]
    fn errors_name_position_without_content() {
        let error = canonical(b"{\"a\": \"hunter2\" \"b\"}", "current.json", ANY).unwrap_err().to_string();
        assert!(error.contains("current.json") && error.contains("line 1"), "{error}");
        let error = canonical(b"{\"kind\": [\"hunter2\"]}", "x", ANY).unwrap_err().to_string();
        assert!(!error.contains("hunter2"), "{error}");
        let error = canonical(b"kind: Pod", "x", ANY).unwrap_err().to_string();
        assert!(error.contains("\"Pod\"") && error.contains("Any"), "{error}");
        assert!(canonical(b"just text", "x", ANY).is_err());
        assert!(canonical(b"\xff", "x", ANY).is_err());
    }
}
