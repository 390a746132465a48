//! YAML, read to a tree. The typed values are made from the tree: the parser is in the executable once, and not again for
//! each type.

use serde::de::DeserializeOwned;
use serde_json::Value;

use super::plain::plain;
use super::text::escaped;

/// References to other parts of a text.
const MAX_ALIASES: usize = 1000;

/// Bytes that may be referred to.
const MAX_ANCHORED: usize = 64 << 10;

/// Reads one document as Kubernetes does: `mode: 0644` is octal (YAML 1.1). The message quotes nothing of the text, which
/// may be a secret.
pub fn tree(text: &str) -> Result<Value, String> {
    serde_saphyr::from_str_with_options(text, options()).map_err(|error| redacted(&error.to_string()))
}

/// Reads each document of a stream so. Empty ones are left out.
pub fn trees(text: &str) -> Result<Vec<Value>, String> {
    let trees: Result<Vec<Value>, _> = serde_saphyr::from_multiple_with_options(text, options());
    let trees = trees.map_err(|error| redacted(&error.to_string()))?;
    Ok(trees.into_iter().filter(|tree| !tree.is_null()).collect())
}

/// A text of some bytes that names parts of itself again and again becomes no tree of gigabytes.
fn options() -> serde_saphyr::Options {
    serde_saphyr::options! {
        legacy_octal_numbers: true,
        with_snippet: false,
        // The limits are named in messages (`plain`).
        budget: serde_saphyr::budget! {
            max_aliases: MAX_ALIASES,
            max_recorded_anchor_bytes: MAX_ANCHORED,
            max_depth: 64,
            max_nodes: 250_000,
            max_anchors: 50_000,
        },
    }
}

/// Reads one document whose fields are strings and switches: a name or token of digits alone is a string, too.
pub fn strings<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    serde_json::from_value(without_numbers(tree(text)?)).map_err(|error| redacted(&error.to_string()))
}

fn without_numbers(tree: Value) -> Value {
    match tree {
        Value::Number(number) => Value::String(number.to_string()),
        Value::Array(values) => values.into_iter().map(without_numbers).collect(),
        Value::Object(fields) => {
            fields.into_iter().map(|(name, value)| (name, without_numbers(value))).collect()
        }
        Value::Null | Value::Bool(_) | Value::String(_) => tree,
    }
}

/// Cuts out text in double quotes: parsers quote the value they stumbled over, and it may be a secret. Names stay, in one line, in words for
/// people.
pub fn redacted(message: &str) -> String {
    let message = &escaped(message);
    let cut = match (message.find('"'), message.rfind('"')) {
        (Some(first), Some(last)) if first < last => {
            let (head, tail) = (message.get(..first), message.get(last + 1..));
            format!("{}\"…\"{}", head.unwrap_or_default(), tail.unwrap_or_default())
        }
        _ => message.to_owned(),
    };
    plain(&cut)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_strings_where_strings_are_expected() {
        #[derive(Debug, serde::Deserialize, PartialEq)]
        struct Named {
            name: String,
            is_set: bool,
        }
        let read = strings::<Named>("{name: 12345, is_set: true}");
        assert_eq!(read, Ok(Named { name: "12345".to_owned(), is_set: true }));
        assert_eq!(tree("mode: 0644"), Ok(serde_json::json!({"mode": 0o644})));
    }

    /// Each limit is named with its line and a way out, and not in words of the parser's library.
    #[test]
    fn limits_are_named() {
        let ten = |name: char| vec![format!("*{name}"); 10].join(",");
        let bomb: Vec<String> = ('b'..='i')
            .zip('a'..)
            .map(|(name, before)| format!("{name}: &{name} [{}]", ten(before)))
            .collect();
        let anchors: Vec<String> = (0..60_000).map(|n| format!("k{n}: &a{n} 1")).collect();
        let large = format!("a: &a {}\nb: [{}]\n", "x".repeat(200_000), vec!["*a"; 900].join(","));
        for (text, words) in [
            (format!("a: &a [x]\n{}\n", bomb.join("\n")), "it has more values than the 250000 that are read"),
            (
                format!("a: {}1{}\n", "{b: ".repeat(100), "}".repeat(100)),
                "more levels than the 64 that are read",
            ),
            (format!("a: &a x\nb: [{}]\n", vec!["*a"; 2000].join(",")), "(1000 times, 64 KiB)"),
            ("a: &a [*a]\n".to_owned(), "a part refers to itself"),
            (large, "(1000 times, 64 KiB)"),
            (anchors.join("\n"), "more anchors (`&name`) than the 50000"),
        ] {
            let error = tree(&text).unwrap_err();
            // What is too much as a whole has no place.
            let has_place = error.contains(" at line ") || text.len() > 200_000;
            assert!(error.contains(words) && has_place, "{words}: {error}");
            assert!(error.contains("; ") && !error.contains("budget") && !error.contains('{'), "{error}");
        }
    }

    #[test]
    fn messages_quote_no_values() {
        let error = strings::<Vec<bool>>("[\"hunter2\"]").unwrap_err();
        assert!(!error.contains("hunter2"), "{error}");
    }
}
