//! The parsers' messages in plain English: serde names types of Rust, and the YAML parser the options of its library.

/// Kinds of values, as serde names them, and as people do.
const KINDS: [(&str, &str); 15] = [
    ("a map", "a mapping"),
    ("map", "a mapping"),
    ("a sequence", "a list"),
    ("sequence", "a list"),
    ("a boolean", "true or false"),
    ("a bool", "true or false"),
    ("null", "null"),
    ("unit", "null"),
    ("unit value", "null"),
    ("option", "a value"),
    ("Option value", "a value"),
    ("newtype struct", "a value"),
    ("enum", "a value"),
    ("a borrowed string", "a string"),
    ("a character", "one character"),
];

/// Whole numbers.
const INTEGERS: [&str; 10] = ["i8", "i16", "i32", "i64", "isize", "u8", "u16", "u32", "u64", "usize"];

/// Begins of a parser's message, and what takes their place.
const SYNTAX: [(&str, &str); 12] = [
    ("key must be a string", "a field name in double quotes is missing"),
    ("EOF while parsing a list", "it ends in the middle of a list"),
    ("EOF while parsing an object", "it ends in the middle of a mapping"),
    ("EOF while parsing a string", "it ends in the middle of a string"),
    ("EOF while parsing a value", "it ends where a value is needed"),
    ("trailing characters", "there is more text after its end"),
    ("trailing comma", "there is a trailing comma"),
    ("expected value", "a value is missing"),
    ("expected ident", "a value is not one of true, false and null"),
    ("invalid escape", "a string has an invalid escape after a backslash"),
    ("recursion limit exceeded", "it has too many levels"),
    ("key with no value, expected `=`", "a key has no value; write it as `key = value`"),
];

/// Returns a message of a parser for people: its field is said beside it.
pub fn plain(message: &str) -> String {
    let message = message.replace(", set DuplicateKeyPolicy in Options if acceptable", "");
    let (message, place) = match message.rfind(" at line ") {
        Some(at) => message.split_at(at),
        None => (message.as_str(), ""),
    };
    format!("{}{place}", of_type(message).unwrap_or_else(|| of_syntax(message)))
}

fn of_syntax(message: &str) -> String {
    let known = SYNTAX.iter().find_map(|(begin, plain)| Some((message.strip_prefix(begin)?, plain)));
    known.map_or_else(|| message.to_owned(), |(rest, plain)| format!("{plain}{rest}"))
}

/// Returns a message about a value that is not of the type of its field, and one about the names of fields.
fn of_type(message: &str) -> Option<String> {
    // What is before it is of this program.
    let found = [
        "invalid type: ",
        "invalid value: ",
        "invalid length ",
        "unknown variant ",
        "unknown field ",
        "duplicate field ",
        "missing field ",
    ]
    .into_iter()
    .filter_map(|begin| Some((message.find(begin)?, begin)))
    .min()?;
    let (at, begin) = found;
    let (before, rest) = (message.get(..at)?, message.get(at + begin.len()..)?);
    let (value, expected) = match rest.rsplit_once(", expected ") {
        Some((value, expected)) => (value, Some(expected)),
        None => (rest, None),
    };
    let text = match begin.trim_end_matches([' ', ':']) {
        "invalid type" | "invalid value" => {
            format!("it is {}, and must be {}", shown(value), desired(expected?))
        }
        "invalid length" => format!("it has {value} entries, and must be {}", desired(expected?)),
        "unknown variant" => format!("it is {value}, and must be {}", expected.unwrap_or("another")),
        "unknown field" => {
            let fields =
                expected.map(|fields| format!("; its fields are {}", fields.trim_start_matches("one of ")));
            format!("it has no field {value}{}", fields.unwrap_or_default())
        }
        "duplicate field" => format!("the field {value} is there twice"),
        _ => format!("the field {value} is missing"),
    };
    Some(format!("{before}{text}"))
}

/// Returns a value that was found.
fn shown(value: &str) -> String {
    let number = ["integer ", "floating point "].into_iter().find_map(|begin| value.strip_prefix(begin));
    if let Some(number) = number {
        return format!("the number {}", number.trim_matches('`'));
    }
    if let Some(value) = value.strip_prefix("boolean ") {
        return value.trim_matches('`').to_owned();
    }
    if value.starts_with("string ") {
        return "a string".to_owned();
    }
    kind(value)
}

/// Returns what is needed.
fn desired(expected: &str) -> String {
    if INTEGERS.contains(&expected) {
        let sign = if expected.starts_with('u') { " of 0 or more" } else { "" };
        return format!("a whole number{sign}");
    }
    if matches!(expected, "f32" | "f64") {
        return "a number".to_owned();
    }
    if expected.starts_with("struct ") || expected == "internally tagged enum" {
        return "a mapping of fields to values".to_owned();
    }
    kind(expected)
}

fn kind(text: &str) -> String {
    let known = KINDS.iter().find(|(serde, _)| *serde == text);
    known.map_or_else(|| text.to_owned(), |(_, plain)| (*plain).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_libraries_are_replaced() {
        for (message, expected) in [
            (
                "invalid type: integer `5`, expected struct PlainIgnition",
                "it is the number 5, and must be a mapping of fields to values",
            ),
            (
                "it is no Ignition config: invalid type: string \"…\", expected a sequence",
                "it is no Ignition config: it is a string, and must be a list",
            ),
            (
                "invalid type: floating point `1.5`, expected i64",
                "it is the number 1.5, and must be a whole number",
            ),
            (
                "invalid value: integer `-1`, expected u32",
                "it is the number -1, and must be a whole number of 0 or more",
            ),
            (
                "invalid type: null, expected a boolean at line 3 column 4",
                "it is null, and must be true or false at line 3 column 4",
            ),
            ("invalid type: map, expected a string", "it is a mapping, and must be a string"),
            (
                "unknown variant `always`, expected `never` or `where-capable`",
                "it is `always`, and must be `never` or `where-capable`",
            ),
            ("unknown field `x`, expected one of `a`, `b`", "it has no field `x`; its fields are `a`, `b`"),
            ("unknown field `x`", "it has no field `x`"),
            ("duplicate field `a`", "the field `a` is there twice"),
            ("missing field `a`", "the field `a` is missing"),
            (
                "EOF while parsing an object at line 1 column 23",
                "it ends in the middle of a mapping at line 1 column 23",
            ),
            (
                "duplicate mapping key: a, set DuplicateKeyPolicy in Options if acceptable at line 2, column 1",
                "duplicate mapping key: a at line 2, column 1",
            ),
            ("key with no value, expected `=`", "a key has no value; write it as `key = value`"),
            ("found a tab at line 1, column 7", "found a tab at line 1, column 7"),
            ("", ""),
        ] {
            assert_eq!(plain(message), expected);
        }
    }
}
