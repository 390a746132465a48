//! Errors of an input, found before anything is changed.
//!
//! Every variant names the object; `Display` shows the cause and the next step, and never holds a content.

use super::{FaultClass, NotApplied};

/// An input that is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ModelError {
    /// A name that breaks its rule.
    #[error("{what} {value:?} is not valid: {rule}")]
    Name {
        /// The kind of name.
        what: &'static str,
        /// The value as given, at most 100 characters.
        value: String,
        /// The rule it breaks.
        rule: &'static str,
    },
    /// A line of a file of environment variables.
    #[error("line {line}: the value of {name} {rule}")]
    Variable {
        /// The number of the line, from 1.
        line: usize,
        /// The variable; its value may be a secret.
        name: String,
        /// The rule it breaks.
        rule: &'static str,
    },
    /// A path that can't be managed.
    #[error("path {path:?} can't be managed: {rule}")]
    Path {
        /// The path as given, at most 200 characters.
        path: String,
        /// The rule it breaks.
        rule: &'static str,
    },
    /// An image that is not named by digest.
    #[error("{}image {image:?} is refused: {rule}; give it as NAME@sha256:<64 hex digits>", prefix(.field, .object))]
    Image {
        /// The field, argument or annotation that names it; empty where the caller says it.
        field: String,
        /// The object with the field; empty where the caller says it.
        object: String,
        /// The reference as given, at most 200 characters.
        image: String,
        /// The rule it breaks.
        rule: &'static str,
    },
    /// A document that is no MachineConfig.
    #[error("{document} can't be read: {cause}")]
    Document {
        /// The document, for instance `MachineConfig rendered-worker-a`.
        document: String,
        /// The parser's message, with its position.
        cause: String,
    },
    /// A field of a document that is not what it has to be.
    #[error("{document} can't be read: {field}: {cause}")]
    InDocument {
        /// The document.
        document: String,
        /// The field.
        field: String,
        /// The parser's message, with its position.
        cause: String,
    },
    /// Fields that nobody knows, in a document that a person gives.
    #[error(
        "{document} can't be read: {}. Correct what is misspelled; --allow-unknown-fields lets it pass, named as not applied",
        listed(.fields)
    )]
    UnknownFields {
        /// The document.
        document: String,
        /// The fields: at least one.
        fields: Vec<NotApplied>,
    },
    /// Two annotations that should be equal.
    #[error("{first} is {value:?}, but its alias {second} is {other:?}; remove one of the two")]
    Disagree {
        /// The key read first.
        first: String,
        /// Its value.
        value: String,
        /// The other key.
        second: String,
        /// Its value.
        other: String,
    },
    /// A kernel or an extension that no package stands for.
    #[error("{cause}; correct spec.kernelType or spec.extensions of the MachineConfig")]
    Layers {
        /// The fault of the layers.
        cause: String,
    },
    /// An entry of the Ignition config that no node can get to: MCD refuses it as unreconcilable (RC1 to RC3, RC13).
    #[error("{field} in MachineConfig {config}: {cause}")]
    Unreachable {
        /// The config.
        config: String,
        /// The field.
        field: String,
        /// Cause and next step.
        cause: String,
    },
    /// An entry of the Ignition config that can't be applied.
    #[error("{field} in MachineConfig {config}: {cause}")]
    Field {
        /// The config.
        config: String,
        /// The field, for instance `storage.files "/etc/motd" contents`.
        field: String,
        /// Cause and next step.
        cause: String,
    },
    /// Several of one document.
    #[error("{first}{}", also(.others, *.more))]
    Several {
        /// The one that is named where one is wanted.
        first: Box<ModelError>,
        /// The others.
        others: Vec<ModelError>,
        /// As many more were found.
        more: usize,
    },
}

/// The most faults that one text names after the first.
const MAX_NAMED: usize = 20;

/// Names the faults after the first.
fn also(others: &[ModelError], more: usize) -> String {
    let named = others.iter().take(MAX_NAMED).map(|other| format!("; also {}", other.without_object()));
    let more = others.len().saturating_sub(MAX_NAMED) + more;
    let more = (more > 0).then(|| format!("; and {more} more"));
    named.chain(more).collect()
}

/// Returns the place of an image, as an entry of a config is named.
fn prefix(field: &str, object: &str) -> String {
    match (field, object) {
        ("", _) => String::new(),
        (field, "") => format!("{field}: "),
        (field, object) => format!("{field} in {object}: "),
    }
}

/// The most fields that one text names.
const MAX_LISTED: usize = 8;

/// Lists fields, each with its cause.
fn listed(fields: &[NotApplied]) -> String {
    let mut list: Vec<String> = fields.iter().take(MAX_LISTED).map(ToString::to_string).collect();
    let more = fields.len().saturating_sub(MAX_LISTED);
    if more > 0 {
        list.push(format!("and {more} more"));
    }
    list.join("; ")
}

impl ModelError {
    /// Names the field that an image was read from, and its object where the caller does not name it.
    #[must_use]
    pub fn in_field(self, of: &str, its_object: &str) -> Self {
        match self {
            Self::Image { image, rule, .. } => {
                Self::Image { field: of.to_owned(), object: its_object.to_owned(), image, rule }
            }
            Self::Several { first, others, more } => {
                Self::Several { first: Box::new(first.in_field(of, its_object)), others, more }
            }
            other @ (Self::Name { .. }
            | Self::Variable { .. }
            | Self::Path { .. }
            | Self::Document { .. }
            | Self::InDocument { .. }
            | Self::UnknownFields { .. }
            | Self::Disagree { .. }
            | Self::Layers { .. }
            | Self::Unreachable { .. }
            | Self::Field { .. }) => other,
        }
    }

    /// Changes fields and causes.
    #[must_use]
    pub(super) fn explained(self, explain: impl Fn(&str) -> String) -> Self {
        let explain: &dyn Fn(&str) -> String = &explain;
        match self {
            Self::InDocument { document, field, cause } => {
                Self::InDocument { document, field: explain(&field), cause: explain(&cause) }
            }
            Self::Unreachable { config, field, cause } => {
                Self::Unreachable { config, field: explain(&field), cause: explain(&cause) }
            }
            Self::Field { config, field, cause } => {
                Self::Field { config, field: explain(&field), cause: explain(&cause) }
            }
            Self::Several { first, others, more } => Self::Several {
                first: Box::new(first.explained(explain)),
                others: others.into_iter().map(|other| other.explained(explain)).collect(),
                more,
            },
            other @ (Self::Name { .. }
            | Self::Variable { .. }
            | Self::Path { .. }
            | Self::Image { .. }
            | Self::Document { .. }
            | Self::UnknownFields { .. }
            | Self::Disagree { .. }
            | Self::Layers { .. }) => other,
        }
    }

    /// Names the document instead of the config, which has no name.
    #[must_use]
    pub(super) fn of_document(self, document: &str) -> Self {
        match self {
            Self::InDocument { field, cause, .. }
            | Self::Unreachable { field, cause, .. }
            | Self::Field { field, cause, .. } => {
                Self::InDocument { document: document.to_owned(), field, cause }
            }
            Self::Image { field, image, rule, .. } => {
                Self::Image { field, object: document.to_owned(), image, rule }
            }
            Self::Several { first, others, more } => Self::Several {
                first: Box::new(first.of_document(document)),
                others: others.into_iter().map(|other| other.of_document(document)).collect(),
                more,
            },
            other @ (Self::Name { .. }
            | Self::Variable { .. }
            | Self::Path { .. }
            | Self::Document { .. }
            | Self::UnknownFields { .. }
            | Self::Disagree { .. }
            | Self::Layers { .. }) => other,
        }
    }

    /// Returns the class for the node: the input has to change.
    pub fn class(&self) -> FaultClass {
        match self {
            Self::Several { .. } => self.worst().class(),
            Self::Unreachable { .. } => FaultClass::Unreconcilable,
            Self::Name { .. }
            | Self::Path { .. }
            | Self::Image { .. }
            | Self::Document { .. }
            | Self::InDocument { .. }
            | Self::UnknownFields { .. }
            | Self::Variable { .. }
            | Self::Disagree { .. }
            | Self::Layers { .. }
            | Self::Field { .. } => FaultClass::Degraded,
        }
    }

    /// Returns a bounded word.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Several { .. } => self.worst().reason(),
            Self::Name { .. } => "InvalidName",
            Self::Path { .. } => "InvalidPath",
            Self::Image { .. } => "InvalidImage",
            Self::Document { .. }
            | Self::InDocument { .. }
            | Self::UnknownFields { .. }
            | Self::Variable { .. } => "InvalidDocument",
            Self::Disagree { .. } => "AmbiguousImage",
            Self::Field { .. } | Self::Layers { .. } => "InvalidConfig",
            // As of every reason why a config can't be reached.
            Self::Unreachable { .. } => "FailedToReconcile",
        }
    }

    /// Returns the field that it is about, where it names one.
    pub fn field(&self) -> Option<&str> {
        match self {
            Self::Several { first, .. } => first.field(),
            Self::InDocument { field, .. } | Self::Unreachable { field, .. } | Self::Field { field, .. } => {
                Some(field)
            }
            Self::UnknownFields { fields, .. } => fields.first().map(|unknown| &*unknown.field),
            Self::Name { what, .. } => Some(what),
            Self::Variable { name, .. } => Some(name),
            Self::Disagree { first, .. } => Some(first),
            Self::Image { field, .. } => Some(&**field).filter(|field| !field.is_empty()),
            Self::Path { .. } | Self::Document { .. } | Self::Layers { .. } => None,
        }
    }

    /// Returns the faults that it names, one by one.
    pub fn faults(&self) -> impl Iterator<Item = &Self> {
        let (first, others) = if let Self::Several { first, others, .. } = self {
            (&**first, others.as_slice())
        } else {
            (self, [].as_slice())
        };
        std::iter::once(first).chain(others)
    }

    /// Returns the first of those faults with the highest exit code: a document that is not valid is corrected before anything else.
    fn worst(&self) -> &Self {
        let Self::Several { first, others, .. } = self else { return self };
        let code = |fault: &Self| fault.class().exit_code();
        let worse = |worst, fault| if code(fault) > code(worst) { fault } else { worst };
        others.iter().fold(&**first, worse)
    }

    /// Returns how many faults were found beside those.
    pub fn more(&self) -> usize {
        if let Self::Several { more, .. } = self { *more } else { 0 }
    }

    /// Returns field and cause, without the name of the object.
    pub fn without_object(&self) -> String {
        match self {
            Self::InDocument { field, cause, .. }
            | Self::Field { field, cause, .. }
            | Self::Unreachable { field, cause, .. } => format!("{field}: {cause}"),
            Self::Image { field, .. } => self.clone().in_field(field, "").to_string(),
            Self::Document { cause, .. } => cause.clone(),
            Self::Several { first, others, more } => first.without_object() + &also(others, *more),
            Self::UnknownFields { document, .. } => {
                let text = self.to_string();
                text.strip_prefix(&format!("{document} can't be read: ")).unwrap_or(&text).to_owned()
            }
            Self::Name { .. }
            | Self::Variable { .. }
            | Self::Path { .. }
            | Self::Disagree { .. }
            | Self::Layers { .. } => self.to_string(),
        }
    }
}
