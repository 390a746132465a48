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

/// Parts of a parser's message, and what takes their place, to its end: cause and next step.
const SYNTAX: &[(&str, &str)] = &[
    ("key must be a string", "a field name in double quotes is missing"),
    ("EOF while parsing a list", "it ends in the middle of a list"),
    ("EOF while parsing an object", "it ends in the middle of a mapping"),
    ("EOF while parsing a string", "it ends in the middle of a string"),
    ("EOF while parsing a value", "it ends where a value is needed"),
    ("trailing characters", "there is more text after its end"),
    ("trailing comma", "there is a trailing comma"),
    ("expected value", "a value is missing"),
    ("expected ident", "a value is not one of true, false and null"),
    ("expected `:`", "a colon is missing behind a field name"),
    ("expected `,` or `}`", "a comma or a closing brace is missing"),
    ("expected `,` or `]`", "a comma or a closing bracket is missing"),
    (
        "control character (\\u0000-\\u001F)",
        "a string holds a line break or another control character; write it as \\n",
    ),
    ("invalid number", "a number is not valid; put text in double quotes"),
    ("invalid escape", "a string has an invalid escape after a backslash"),
    ("recursion limit exceeded", "it has too many levels"),
    // TOML
    ("key with no value", "a key has no value; write it as `key = value`"),
    (
        "string values must be quoted",
        "a value is missing, or it is text without quotes; write it as `key = \"text\"`",
    ),
    ("unclosed table", "the closing bracket of a `[table]` is missing"),
    ("unclosed array", "the closing bracket of a list is missing"),
    ("unclosed inline table", "the closing brace of a mapping is missing"),
    (
        "invalid basic string",
        "the closing double quote of a string is missing, or a character in it is not allowed",
    ),
    (
        "invalid literal string",
        "the closing quote of a string is missing, or a character in it is not allowed",
    ),
    ("duplicate key", "a key occurs twice; keep one"),
    ("invalid boolean", "a value is neither true nor false; put text in double quotes"),
    ("unquoted keys cannot be empty", "a key is missing before `=`"),
    ("invalid date", "a date is not valid; put text in double quotes"),
    ("invalid datetime", "a date is not valid; put text in double quotes"),
    ("missing escaped value", "a string has an invalid escape after a backslash; write the backslash twice"),
    ("unexpected leading zero", "a number begins with 0; write it without, or as 0o for octal"),
    // YAML
    ("multiple YAML documents detected", "it holds several YAML documents; keep one"),
    (
        "mapping values are not allowed",
        "a `key: value` is where none can be; check the indentation, and put text with a colon in quotes",
    ),
    (
        "invalid indentation in multiline quoted scalar",
        "the closing quote of a string is missing, or its next line is not indented",
    ),
    (
        "alias references unknown anchor",
        "`*name` refers to an anchor `&name` that does not exist; put text with `*` in quotes",
    ),
    ("unclosed bracket", "a bracket or brace is not closed"),
    (
        "unexpected character",
        "text begins with a character that YAML keeps for itself; put the text in quotes",
    ),
    ("did not find expected '-' indicator", "a list entry does not begin with `- `; check the indentation"),
    (
        "did not find expected key",
        "a line is not `key: value`; check the indentation, and use spaces, not tabs",
    ),
    ("did not find expected ',' or ']'", "a list in brackets has no comma or closing bracket here"),
    ("did not find expected ',' or '}'", "a mapping in braces has no comma or closing brace here"),
    (
        "did not find expected <document start>",
        "there is more text after its end; separate documents by a line `---`",
    ),
    ("found unknown escape character", "a string has an invalid escape after a backslash; use single quotes"),
    (
        "found character that cannot start any token",
        "a tab, or a character that YAML keeps for itself, begins a text; use spaces, or quotes",
    ),
    ("found unexpected end of stream", "it ends in the middle of a string; close the quote"),
    ("could not find expected ':'", "a colon is missing behind a field name; check the indentation"),
    ("invalid u64", "its tag declares a number, and it is not one; remove the tag"),
    ("invalid i64", "its tag declares a number, and it is not one; remove the tag"),
    ("budget breached: Depth", "it has more levels than the 64 that are read; put less into one another"),
    (
        "budget breached: InclusionDepth",
        "it has more levels than the 64 that are read; put less into one another",
    ),
    (
        "budget breached: Nodes",
        "it has more values than the 250000 that are read, `*name` replaced; split it",
    ),
    (
        "budget breached: Events",
        "it has more values than the 250000 that are read, `*name` replaced; split it",
    ),
    (
        "budget breached: Anchors",
        "it has more anchors (`&name`) than the 50000 that are read; write out what they stand for",
    ),
    (
        "budget breached: ",
        "it refers to parts of itself (`*name`) more often, or to larger ones, than is read (1000 times, 64 KiB); write them out",
    ),
    (
        "alias replay",
        "it refers to parts of itself (`*name`) more often than is read (1000 times); write them out",
    ),
    ("recursive references", "a part refers to itself (`*name` in its own `&name`); write it out"),
    ("block sequence entries are not allowed", "a list entry is where none can be; check the indentation"),
];

/// Returns a message of a parser for people: its field is said beside it.
pub fn plain(message: &str) -> String {
    // The line of the cause is enough: not where its anchor is, and where that is used.
    let message = message.split_once(" (defined at ").map_or(message, |(message, _)| message);
    let (message, place) = match message.rfind(" at line ") {
        Some(at) => message.split_at(at),
        None => (message, ""),
    };
    // What follows it is for programmers.
    let place = place.split_once("; ").map_or(place, |(place, _)| place);
    if let Some(text) = of_type(message) {
        return format!("{text}{place}");
    }
    // The place is that of the cause.
    let text = of_syntax(message);
    match text.split_once("; ") {
        Some((cause, next)) => format!("{cause}{place}; {next}"),
        None => format!("{text}{place}"),
    }
}

fn of_syntax(message: &str) -> String {
    if let Some(name) = message.strip_prefix("duplicate mapping key: ") {
        let name = name.split(", set ").next().unwrap_or_default();
        return format!("the field {name} occurs twice; keep one");
    }
    let known = SYNTAX.iter().find(|(part, _)| message.contains(part));
    known.map_or_else(|| message.to_owned(), |(_, plain)| (*plain).to_owned())
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
        "duplicate field" => format!("the field {value} occurs twice"),
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
                "it is not an Ignition config: invalid type: string \"…\", expected a sequence",
                "it is not an Ignition config: it is a string, and must be a list",
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
            ("duplicate field `a`", "the field `a` occurs twice"),
            (
                "multiple YAML documents detected at line 3, column 1; use from_str_multiple or from_str_multiple_with_options",
                "it holds several YAML documents at line 3, column 1; keep one",
            ),
            ("missing field `a`", "the field `a` is missing"),
            (
                "EOF while parsing an object at line 1 column 23",
                "it ends in the middle of a mapping at line 1 column 23",
            ),
            (
                "duplicate mapping key: a, set DuplicateKeyPolicy in Options if acceptable at line 2, column 1",
                "the field a occurs twice at line 2, column 1; keep one",
            ),
            ("key with no value, expected `=`", "a key has no value; write it as `key = value`"),
            (
                "while parsing a block mapping, did not find expected key at line 3, column 2",
                "a line is not `key: value` at line 3, column 2; check the indentation, and use spaces, not tabs",
            ),
            (
                "string values must be quoted, expected literal string",
                "a value is missing, or it is text without quotes; write it as `key = \"text\"`",
            ),
            ("found a tab at line 1, column 7", "found a tab at line 1, column 7"),
            ("", ""),
        ] {
            assert_eq!(plain(message), expected);
        }
    }
}
