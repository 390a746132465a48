//! A refusal, for programs: the document that a verb prints where JSON was asked for.

use serde::ser::{Serialize, SerializeStruct as _, Serializer};

use super::{FaultClass, ModelError, NotApplied};

/// The word of a command line that makes no sense; the others are those of fault classes.
pub const USAGE: &str = "usage";

/// The reason of a command line, or of a file that it names.
pub const INVALID_ARGUMENTS: &str = "InvalidArguments";

/// The most refusals of one document.
const MAX_REFUSALS: usize = 64;

/// The exit code of [`USAGE`].
pub const USAGE_CODE: u8 = 2;

/// One thing that was refused. In JSON it has its path, too.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The class of the fault, or [`USAGE`].
    pub class: &'static str,
    /// A bounded word.
    pub reason: &'static str,
    /// The field, where it is about one.
    pub field: Option<String>,
    /// Object and cause.
    pub message: String,
    /// The next step, where the message does not name it.
    pub next: Option<String>,
}

/// The document.
#[derive(Debug, serde::Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Refused<'a> {
    schema_version: u32,
    refused: &'a [Refusal],
}

impl<'a> Refused<'a> {
    /// Creates it.
    pub fn new(refused: &'a [Refusal]) -> Self {
        Self { schema_version: 1, refused }
    }
}

#[cfg(feature = "schema")]
impl schemars::JsonSchema for Refusal {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Refusal".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        let maybe = serde_json::json!({ "type": ["string", "null"] });
        schemars::json_schema!({
            "description": "What was refused, and why.",
            "type": "object",
            "properties": {
                "class": { "enum": [USAGE, "retry", "degraded", "unreconcilable", "fatal"] },
                "reason": { "description": "One of the reasons of the documentation.", "type": "string" },
                "field": maybe,
                "path": maybe,
                "message": { "type": "string" },
                "next": maybe,
            },
            "required": ["class", "reason", "field", "path", "message", "next"],
        })
    }
}

impl Serialize for Refusal {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { class, reason, field, message, next } = self;
        let mut map = serializer.serialize_struct("Refusal", 6)?;
        map.serialize_field("class", class)?;
        map.serialize_field("reason", reason)?;
        map.serialize_field("field", field)?;
        map.serialize_field("path", &self.path())?;
        map.serialize_field("message", message)?;
        map.serialize_field("next", next)?;
        map.end()
    }
}

impl Refusal {
    /// Creates one that is about no field.
    pub fn new(class: &'static str, reason: &'static str, message: String) -> Self {
        Self { class, reason, field: None, message, next: None }
    }

    /// Returns the path of the entry that the field is about: `/etc/a` of `storage.files "/etc/a" mode`.
    pub fn path(&self) -> Option<String> {
        let (_, quoted) = self.field.as_deref()?.split_once('"')?;
        let (mut path, mut is_escaped) = (String::new(), false);
        for c in quoted.chars() {
            match c {
                '"' if !is_escaped => return path.starts_with('/').then_some(path),
                '\\' if !is_escaped => is_escaped = true,
                _ => {
                    path.push(c);
                    is_escaped = false;
                }
            }
        }
        None
    }

    /// Takes an input that is refused: one refusal for each field that it names.
    pub fn of_input(error: &ModelError, message: String) -> Vec<Self> {
        let of = |field: Option<&str>, message| Self {
            class: error.class().as_str(),
            reason: error.reason(),
            field: field.map(str::to_owned),
            message,
            next: Some(NEXT.to_owned()),
        };
        if let ModelError::Several { .. } = error {
            // What is before it is of the caller.
            let before = message.strip_suffix(&error.to_string()).unwrap_or_default();
            let each = |fault: &ModelError| Self::of_input(fault, format!("{before}{fault}"));
            let mut refusals: Vec<Self> = error.faults().flat_map(each).collect();
            if let Some(last) = refusals.last_mut().filter(|_| error.more() > 0) {
                last.message += &format!("; and {} more faults", error.more());
            }
            return refusals;
        }
        let ModelError::UnknownFields { document, fields } = error else {
            return vec![of(error.field(), message)];
        };
        let each = fields.iter().take(MAX_REFUSALS);
        let cause = |unknown: &NotApplied| {
            let fields = vec![unknown.clone()];
            ModelError::UnknownFields { document: document.clone(), fields }.to_string()
        };
        let mut refusals: Vec<Self> = each.map(|unknown| of(Some(&unknown.field), cause(unknown))).collect();
        let more = fields.len().saturating_sub(MAX_REFUSALS);
        if let Some(last) = refusals.last_mut().filter(|_| more > 0) {
            last.message += &format!("; and {more} more fields");
        }
        refusals
    }

    /// Takes a command line that its parser refuses: the parser's text, the argument in the form of the help text, and the
    /// command that prints that.
    pub fn of_command_line(text: &str, argument: Option<&str>, help: &str) -> Self {
        let (cause, rest) = text.split_once("\n\n").unwrap_or((text, ""));
        let words: Vec<&str> = cause.strip_prefix("error: ").unwrap_or(cause).split_whitespace().collect();
        let tip = rest.lines().find_map(|line| line.trim_start().strip_prefix("tip: "));
        let tip = tip.map(|tip| format!("{tip}; ")).unwrap_or_default();
        Self {
            class: USAGE,
            reason: INVALID_ARGUMENTS,
            field: argument.and_then(|argument| argument.split([' ', '=']).next()).map(str::to_owned),
            message: words.join(" "),
            next: Some(format!("{tip}`{help}` prints the arguments")),
        }
    }

    /// Returns the exit code of a verb that ends with it.
    pub fn exit_code(&self) -> u8 {
        let classes =
            [FaultClass::Retry, FaultClass::Degraded, FaultClass::Unreconcilable, FaultClass::Fatal];
        let class = classes.into_iter().find(|class| class.as_str() == self.class);
        class.map_or(USAGE_CODE, FaultClass::exit_code)
    }
}

/// Returns the argument that a text about a command line begins with.
pub fn argument(text: &str) -> Option<&str> {
    let first = text.split([' ', ':']).next()?;
    (first.starts_with("--") && first.len() > 2).then_some(first)
}

/// Returns true if the words of a command line ask for JSON: for those that make no sense as a whole.
pub fn asks_for_json<'a>(words: impl IntoIterator<Item = &'a str>) -> bool {
    let mut words = words.into_iter().take_while(|word| *word != "--").peekable();
    while let Some(word) = words.next() {
        let value = match word.strip_prefix("--") {
            Some(long) => long.strip_prefix("output"),
            // `-o json`, `-ojson`, `-wo=json`
            None => word.strip_prefix('-').and_then(|short| Some(short.split_once('o')?.1)),
        };
        let Some(value) = value else { continue };
        let value = value.strip_prefix('=').unwrap_or(value);
        if value == "json" || (value.is_empty() && words.peek() == Some(&"json")) {
            return true;
        }
    }
    false
}

/// The next step after an input that is refused.
pub const NEXT: &str = "Correct the document and run it again; nothing was touched.";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_that_ask_for_json_are_known_in_each_form() {
        let asks = |line: &str| asks_for_json(line.split(' '));
        for line in [
            "a plan --output json",
            "a plan --output=json --to x",
            "a -o json",
            "a -ojson",
            "a -o=json",
            "a -wo json",
        ] {
            assert!(asks(line), "{line}");
        }
        for line in [
            "a",
            "a plan --output text",
            "a --output",
            "a -o",
            "a json",
            "a -- --output json",
            "a --outputs=json",
            "a -x json",
        ] {
            assert!(!asks(line), "{line}");
        }
    }

    #[test]
    fn command_line_is_one_line_with_argument_and_next_step() {
        let text = "error: the following required arguments were not provided:\n  --to <FILE>\n\n  tip: say it\n\nUsage: a plan\n";
        let refusal = Refusal::of_command_line(text, Some("--to <FILE>"), "a plan --help");
        assert_eq!(refusal.message, "the following required arguments were not provided: --to <FILE>");
        assert_eq!(refusal.field.as_deref(), Some("--to"));
        assert_eq!(refusal.next.as_deref(), Some("say it; `a plan --help` prints the arguments"));
        assert_eq!((refusal.class, refusal.exit_code()), (USAGE, 2));
    }

    #[test]
    fn path_is_that_of_entry() {
        let path = |field: &str| {
            Refusal { field: Some(field.to_owned()), ..Refusal::new("", "", String::new()) }.path()
        };
        assert_eq!(path(r#"storage.files "/etc/a" mode"#).as_deref(), Some("/etc/a"));
        assert_eq!(path(r#"storage.links "/etc/\"a\\b""#).as_deref(), Some("/etc/\"a\\b"));
        for none in
            ["spec.fips", r#"systemd.units "a.service""#, r#"storage.files ""#, "storage.files[0].mode"]
        {
            assert_eq!(path(none), None, "{none}");
        }
    }

    #[test]
    fn exit_code_is_that_of_class() {
        let code = |class| Refusal::of_command_line("", None, "").with_class(class).exit_code();
        assert_eq!(["retry", "degraded", "unreconcilable", "fatal", USAGE].map(code), [4, 4, 3, 5, 2]);
    }

    impl Refusal {
        fn with_class(self, class: &'static str) -> Self {
            Self { class, ..self }
        }
    }
}
