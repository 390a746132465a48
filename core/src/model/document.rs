//! From bytes to documents: the one entry of all Kubernetes documents, of files and of the API.
//!
//! A file is a stream: JSON or YAML, one document or several, each maybe a List that is unfolded. Each document becomes one
//! compact JSON text. JSON is never turned into a tree: it is checked in one pass, then white space is dropped. Only YAML
//! takes the way over a tree. Error causes keep the parser's words and position, and never a value of the document.

use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::value::RawValue;

use super::error::ModelError;
use super::not_applied::{NotApplied, NotAppliedReason};
use super::reading::{self, Fault, Found, Mended};
use super::text::{short, shown};
use super::yaml::{self, redacted};

/// The API server lets 1.5 MiB through (etcd's limit); five times that leaves room for files written manually.
const MAX_DOCUMENT: usize = 8 << 20;

/// The most documents of a file, with those of its Lists.
const MAX_DOCUMENTS: usize = 10_000;

/// Lists in Lists.
const MAX_DEPTH: usize = 4;

/// The most names that an error lists.
const MAX_NAMES: usize = 8;

/// The most other documents of a file that are named.
const MAX_OTHERS: usize = 32;

/// Expected kind of the document. Both fields may be missing: MCD writes `currentconfig` without them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kind {
    /// `kind`.
    pub kind: &'static str,
    /// `apiVersion`.
    pub group_version: &'static str,
}

impl Kind {
    /// A part of a node's configuration, or the whole.
    pub const MACHINE_CONFIG: Self = Self::of_operator("MachineConfig");
    /// A pool of nodes.
    pub const POOL: Self = Self::of_operator("MachineConfigPool");
    /// Build settings of a pool's OS image.
    pub const OS_CONFIG: Self = Self::of_operator("MachineOSConfig");
    /// The operator's settings of the cluster.
    pub const CONTROLLER_CONFIG: Self = Self::of_operator("ControllerConfig");
    /// The disruption policy of the cluster.
    pub const POLICY: Self = Self { kind: "MachineConfiguration", group_version: "operator.openshift.io/v1" };
    /// Images that a pool keeps on its nodes.
    pub const PINNED_SET: Self = Self::of_operator("PinnedImageSet");
    /// Rules of a pool's rollouts.
    pub const ROLLOUT_POLICY: Self =
        Self { kind: "RolloutPolicy", group_version: "machine-config-agent.io/v1alpha1" };

    /// Kinds that are read from files.
    const HANDLED: [Self; 6] = [
        Self::MACHINE_CONFIG,
        Self::POOL,
        Self::OS_CONFIG,
        Self::CONTROLLER_CONFIG,
        Self::POLICY,
        Self::ROLLOUT_POLICY,
    ];

    /// Returns the field in which a document is of another kind, and the cause. It may have neither.
    pub fn difference(self, kind: Option<&str>, api_version: Option<&str>) -> Option<(&'static str, String)> {
        let differs = |found: Option<&str>, name: &'static str, wanted: &str| {
            let found = found.filter(|found| !found.is_empty() && *found != wanted)?;
            let cause =
                format!("its {name} is {:?}; a document with {name} {wanted} is needed", short(found, 100));
            Some((name, cause))
        };
        differs(kind, "kind", self.kind).or_else(|| differs(api_version, "apiVersion", self.group_version))
    }

    const fn of_operator(kind: &'static str) -> Self {
        Self { kind, group_version: "machineconfiguration.openshift.io/v1" }
    }
}

/// Kinds from which the Machine Config Operator makes MachineConfigs, and that are not read here.
const CONFIG_MAKERS: [&str; 6] = [
    "KubeletConfig",
    "ContainerRuntimeConfig",
    "ImageDigestMirrorSet",
    "ImageTagMirrorSet",
    "ImageContentSourcePolicy",
    "ImageContentPolicy",
];

/// Settings of a cluster from which it makes some, too. Other groups have objects of these names.
const CLUSTER_SETTINGS: [&str; 6] =
    ["APIServer", "ClusterImagePolicy", "FeatureGate", "Image", "ImagePolicy", "Node"];

const NO_OBJECT: &str = "it is not a mapping of fields to values; correct it, or remove it";
const NO_KIND: &str =
    "it has no kind, so it is not read; add apiVersion and kind, or move it to another directory";
const BUTANE: &str = "it is a Butane config; run `butane FILE`: with `variant: openshift` it prints a MachineConfig, otherwise put its \
                      output below spec.config of one";
const BARE_IGNITION: &str =
    "it is an Ignition config without a kind, so it is not read; put it below spec.config of a MachineConfig";

/// Treatment of a document by a reader of any kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Handling {
    /// It is read.
    Read(Kind),
    /// It concerns nodes, or nobody can tell, and it is not read: the cause.
    Named(&'static str),
    /// It is no object, so no reader can take it: the cause.
    Refused(&'static str),
    /// It is of another program.
    Foreign,
}

/// One document of a file.
#[derive(Clone, PartialEq, Eq)]
pub struct Document {
    source: String,
    kind: Option<String>,
    api_version: Option<String>,
    name: Option<String>,
    is_object: bool,
    is_ignition: bool,
    is_butane: bool,
    json: String,
}

/// It may hold secrets.
impl std::fmt::Debug for Document {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Document({}, {} bytes)", self.title(), self.json.len())
    }
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
struct Header {
    #[serde(default)]
    kind: Option<String>,
    #[serde(default)]
    api_version: Option<String>,
    #[serde(default)]
    metadata: Option<Named>,
    #[serde(default)]
    items: Option<IgnoredAny>,
    #[serde(default)]
    ignition: Option<IgnoredAny>,
    #[serde(default)]
    variant: Option<IgnoredAny>,
}

#[derive(Deserialize)]
struct Named {
    #[serde(default)]
    name: Option<String>,
}

#[derive(Deserialize)]
struct List<'a> {
    #[serde(borrow)]
    items: Vec<&'a RawValue>,
}

impl Document {
    /// Returns the kind; empty where it has none.
    pub fn kind(&self) -> &str {
        self.kind.as_deref().unwrap_or_default()
    }

    /// Returns the name; empty where it has none.
    pub fn name(&self) -> &str {
        self.name.as_deref().unwrap_or_default()
    }

    /// Returns the file, and which of its documents it is where there are several.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Returns the compact JSON text.
    pub fn json(&self) -> &str {
        &self.json
    }

    /// Returns the compact JSON text, and nothing else of it.
    pub fn into_json(self) -> String {
        self.json
    }

    /// Returns kind and name.
    pub fn title(&self) -> String {
        let kind = self.kind.as_deref().filter(|kind| !kind.is_empty()).unwrap_or("a document without kind");
        let title = format!("{} {}", shown(kind, 64), shown(self.name(), 64));
        title.trim_end().to_owned()
    }

    /// Returns what it is to a reader of any kind.
    pub fn handling(&self) -> Handling {
        if !self.is_object {
            return Handling::Refused(NO_OBJECT);
        }
        if self.kind().is_empty() && self.is_butane {
            return Handling::Named(BUTANE);
        }
        if self.kind().is_empty() {
            return Handling::Named(if self.is_ignition { BARE_IGNITION } else { NO_KIND });
        }
        if let Some(kind) = Kind::HANDLED.into_iter().find(|handled| handled.kind == self.kind()) {
            return Handling::Read(kind);
        }
        let group = self.api_version.as_deref().unwrap_or_default();
        let is_setting = group.starts_with("config.openshift.io/") && CLUSTER_SETTINGS.contains(&self.kind());
        if is_setting || CONFIG_MAKERS.contains(&self.kind()) {
            let cause = "this kind is not handled: its settings are in none of the rendered configs";
            return Handling::Named(cause);
        }
        let is_ours = ["machineconfiguration.openshift.io/", "machine-config-agent.io/"]
            .iter()
            .any(|ours| group.starts_with(ours));
        if is_ours {
            return Handling::Named("this kind is not handled in files");
        }
        Handling::Foreign
    }

    /// Returns true for a PinnedImageSet of any version, which is checked in files and used in clusters only.
    pub fn is_pinned_set(&self) -> bool {
        let group = self.api_version.as_deref().and_then(|version| version.split('/').next());
        self.kind() == Kind::PINNED_SET.kind && group == Kind::PINNED_SET.group_version.split('/').next()
    }

    /// Returns what to tell of it where it lies beside the one document that is read.
    fn beside(&self, wanted: Kind) -> Option<NotApplied> {
        let cause = match self.handling() {
            Handling::Refused(cause) | Handling::Named(cause) => cause.to_owned(),
            Handling::Read(_) => format!("of this file the {} alone is read", wanted.kind),
            Handling::Foreign => return None,
        };
        let is_titled = self.is_object && !self.kind().is_empty();
        let field = if is_titled { self.title() } else { self.source.clone() };
        Some(NotApplied::new(field, NotAppliedReason::OtherKind, cause))
    }

    /// Refuses another kind or version.
    pub fn check(&self, wanted: Kind) -> Result<(), ModelError> {
        if !self.is_object {
            return Err(self.refuse_whole(NO_OBJECT));
        }
        let differs = wanted.difference(self.kind.as_deref(), self.api_version.as_deref());
        differs.map_or(Ok(()), |(field, cause)| Err(self.refuse(field, &cause)))
    }

    /// Returns true for an object without a kind.
    pub fn is_bare(&self) -> bool {
        self.is_object && self.kind().is_empty()
    }

    /// Refuses a document without a kind: what a person gives is of the kind that it says.
    pub fn check_kind(&self, wanted: Kind) -> Result<(), ModelError> {
        if !self.is_object || !self.kind().is_empty() {
            return self.check(wanted);
        }
        if self.is_butane {
            return Err(self.refuse("variant", BUTANE));
        }
        if self.is_ignition {
            return Err(self.refuse("kind", BARE_IGNITION));
        }
        let Kind { kind, group_version } = wanted;
        Err(self
            .refuse("kind", &format!("it is missing; set `kind: {kind}` and `apiVersion: {group_version}`")))
    }

    /// Reads it as a type, with the fields that the type does not have.
    pub fn read<T: DeserializeOwned>(&self) -> Result<Found<T>, ModelError> {
        reading::from_text(&self.json).map_err(|fault| self.wrong(&fault))
    }

    /// Reads it as a type, as far as it goes.
    pub fn mended<T: DeserializeOwned>(&self) -> Mended<T> {
        reading::mended_text(&self.json)
    }

    /// Makes the error of a field of it.
    pub fn refuse(&self, field: &str, cause: &str) -> ModelError {
        let (document, cause) = (short(&self.source, 300), short(cause, 500));
        ModelError::InDocument { document, field: field.to_owned(), cause }
    }

    /// Makes the error of the whole of it.
    pub fn refuse_whole(&self, cause: &str) -> ModelError {
        refused(&self.source, cause)
    }

    /// Makes the error of a value of another type than its field has.
    pub fn wrong(&self, fault: &Fault) -> ModelError {
        fault.in_document(&self.source)
    }

    fn new(header: Header, json: String, source: &str) -> Self {
        let Header { kind, api_version, metadata, ignition, variant, items: _ } = header;
        let name = metadata.and_then(|metadata| metadata.name);
        let (is_ignition, is_butane) = (ignition.is_some(), variant.is_some() && ignition.is_none());
        let source = source.to_owned();
        Self { source, kind, api_version, name, is_object: true, is_ignition, is_butane, json }
    }
}

/// Reads a file: each of its documents, those of its Lists instead of these. It may have none.
pub fn documents(bytes: &[u8], source: &str) -> Result<Vec<Document>, ModelError> {
    if bytes.len() > MAX_DOCUMENT {
        return Err(refused(source, "it is larger than 8 MiB; the API server stores at most 1.5 MiB"));
    }
    let text = std::str::from_utf8(bytes).map_err(|error| refused(source, &error.to_string()))?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut found = Vec::new();
    if text.trim().is_empty() {
        return Ok(found);
    }
    for (header, json) in compact(text, source)? {
        unfold(header, json, source, 0, &mut found)?;
    }
    if let [_, _, ..] = found.as_slice() {
        for (index, document) in found.iter_mut().enumerate() {
            document.source = format!("{source} document {} ({})", index + 1, document.title());
        }
    }
    Ok(found)
}

/// Reads the one document of this kind that a file has; other kinds may be beside it.
pub fn one(bytes: &[u8], source: &str, wanted: Kind) -> Result<Document, ModelError> {
    one_and_others(bytes, source, wanted).map(|(document, _)| document)
}

/// The same, with the other documents that concern nodes: they are not read.
pub fn one_and_others(
    bytes: &[u8],
    source: &str,
    wanted: Kind,
) -> Result<(Document, Vec<NotApplied>), ModelError> {
    let mut found = documents(bytes, source)?;
    let mut others = Vec::new();
    if found.len() > 1 {
        let titles: Vec<String> = found.iter().map(Document::title).take(MAX_NAMES).collect();
        let is_of_kind = |document: &Document| document.is_object && document.kind() == wanted.kind;
        // A Butane config is named where another document can be the one.
        let has_one = found.iter().any(is_of_kind);
        let is_one = |document: &Document| {
            let is_bare = document.is_object && document.kind().is_empty();
            is_of_kind(document) || (is_bare && !(has_one && document.is_butane))
        };
        // No reader of any kind can take it: a lost item of a List may have been the one.
        if let Some(scalar) = found.iter().find(|document| !document.is_object) {
            return Err(scalar.refuse_whole(NO_OBJECT));
        }
        let beside = found.iter().filter(|document| !is_one(document));
        others = bounded(beside.filter_map(|document| document.beside(wanted)).collect());
        found.retain(is_one);
        if found.len() != 1 {
            let count = if found.is_empty() { "no" } else { "more than one" };
            let cause = format!("it has {count} {}: {}", wanted.kind, titles.join(", "));
            return Err(refused(source, &format!("{cause}; name a file with one")));
        }
    }
    let document = found.pop().ok_or_else(|| refused(source, "it is empty"))?;
    document.check(wanted)?;
    Ok((document, others))
}

/// Keeps the first ones; the last of these says how many more there are.
fn bounded(mut others: Vec<NotApplied>) -> Vec<NotApplied> {
    let more = others.len().saturating_sub(MAX_OTHERS);
    others.truncate(MAX_OTHERS);
    if let Some(last) = others.last_mut().filter(|_| more > 0) {
        last.message += &format!(", and {more} more objects of the file are not read");
    }
    others
}

/// Reads the header of a document. What is wrong with its metadata is told with the rest of the object.
fn header(json: &str) -> Result<Header, Fault> {
    let mut read = reading::mended_text::<Header>(json);
    let is_of_object = |fault: &Fault| fault.field == "metadata" || fault.field == "metadata.name";
    match read.value.take().filter(|_| read.faults.iter().all(is_of_object)) {
        Some(header) => Ok(header),
        None => reading::from_text::<Header>(json).map(|found| found.value),
    }
}

/// Returns the compact text of each document, with its header; `None` for what is no object.
fn compact(text: &str, source: &str) -> Result<Vec<(Option<Header>, String)>, ModelError> {
    let header = |json: &str| self::header(json).map(Some);
    let wrong = |fault: Fault| fault.in_document(source);
    if text.trim_start().starts_with('{') {
        match header(text) {
            Ok(header) => return Ok(vec![(header, without_space(text))]),
            Err(fault) if fault.is_data() => return Err(wrong(fault)),
            Err(fault) => {
                if let Some(parts) = json_stream(text) {
                    let part = |part: &str| Ok((header(part).map_err(wrong)?, without_space(part)));
                    return parts.into_iter().map(part).collect();
                }
                // A YAML flow mapping begins with a brace as well.
                return of_yaml(text, source).map_err(|error| {
                    if matches!(error, ModelError::Document { .. }) { wrong(fault) } else { error }
                });
            }
        }
    }
    of_yaml(text, source)
}

fn of_yaml(text: &str, source: &str) -> Result<Vec<(Option<Header>, String)>, ModelError> {
    let trees = yaml::trees(text).map_err(|error| refused(source, &error))?;
    let mut found = Vec::new();
    for tree in trees {
        let json = tree.to_string();
        let is_object = tree.is_object();
        drop(tree);
        let header = is_object.then(|| self::header(&json)).transpose();
        found.push((header.map_err(|fault| fault.in_document(source))?, json));
    }
    Ok(found)
}

/// Returns the texts of several JSON documents, one behind the other.
fn json_stream(text: &str) -> Option<Vec<&str>> {
    let stream = serde_json::Deserializer::from_str(text).into_iter::<&RawValue>();
    let parts: Vec<&str> = stream.map(|part| part.ok().map(RawValue::get)).collect::<Option<_>>()?;
    let are_objects = parts.iter().all(|part| part.starts_with('{'));
    (parts.len() > 1 && are_objects).then_some(parts)
}

/// Adds a document, or the documents of a List.
fn unfold(
    header: Option<Header>,
    json: String,
    source: &str,
    depth: usize,
    found: &mut Vec<Document>,
) -> Result<(), ModelError> {
    if found.len() >= MAX_DOCUMENTS || depth > MAX_DEPTH {
        let cause = format!("it has more than {MAX_DOCUMENTS} documents, or Lists in Lists; split it");
        return Err(refused(source, &cause));
    }
    let Some(header) = header else {
        let header = Header::default();
        found.push(Document { is_object: false, ..Document::new(header, json, source) });
        return Ok(());
    };
    let item_kind = header.kind.as_deref().and_then(|kind| kind.strip_suffix("List")).map(str::to_owned);
    let Some(item_kind) = item_kind.filter(|_| is_list(&header)) else {
        found.push(Document::new(header, json, source));
        return Ok(());
    };
    check_list(&header, &item_kind, source)?;
    if header.items.is_none() {
        return Ok(());
    }
    let list: List<'_> = reading::from_text(&json).map_err(|fault| fault.in_document(source))?.value;
    for item in list.items {
        let item_header = if item.get().starts_with('{') {
            let mut read = self::header(item.get()).map_err(|fault| fault.in_document(source))?;
            // The API server leaves both out of the items of a typed list.
            if !item_kind.is_empty() {
                read.kind.get_or_insert_with(|| item_kind.clone());
                read.api_version = read.api_version.or_else(|| header.api_version.clone());
            }
            Some(read)
        } else {
            None
        };
        unfold(item_header, without_space(item.get()), source, depth + 1, found)?;
    }
    Ok(())
}

/// Refuses a list of another version: its items are read by that of the list.
fn check_list(header: &Header, item_kind: &str, source: &str) -> Result<(), ModelError> {
    let handled = Kind::HANDLED.iter().find(|kind| kind.kind == item_kind).map(|kind| kind.group_version);
    let wanted = if item_kind.is_empty() { Some("v1") } else { handled };
    let found = header.api_version.as_deref().filter(|version| !version.is_empty());
    let (Some(found), Some(wanted)) = (found, wanted) else { return Ok(()) };
    if found == wanted {
        return Ok(());
    }
    let cause =
        format!("its apiVersion is {:?}; a {item_kind}List has apiVersion {wanted}", short(found, 100));
    Err(ModelError::InDocument { document: short(source, 300), field: "apiVersion".to_owned(), cause })
}

/// A kind of ours never ends so.
fn is_list(header: &Header) -> bool {
    header.items.is_some() || header.kind.as_deref() == Some("List")
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

/// Reads an object of the API as the type of its kind; lists give objects without kind and version.
pub fn of_tree<T: DeserializeOwned>(tree: &serde_json::Value, kind: Kind) -> Result<Found<T>, ModelError> {
    let text = |pointer: &str| tree.pointer(pointer).and_then(serde_json::Value::as_str);
    let source = format!("{} {}", kind.kind, shown(text("/metadata/name").unwrap_or_default(), 300));
    if let Some((field, cause)) = kind.difference(text("/kind"), text("/apiVersion")) {
        return Err(ModelError::InDocument { document: source, field: field.to_owned(), cause });
    }
    reading::from_tree(tree).map_err(|fault| fault.in_document(&source))
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

    fn canonical(bytes: &[u8], source: &str, wanted: Kind) -> Result<String, ModelError> {
        one(bytes, source, wanted).map(Document::into_json)
    }

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

    fn titles(text: &str) -> Vec<String> {
        documents(text.as_bytes(), "f").unwrap().iter().map(Document::title).collect()
    }

    #[test]
    fn lists_and_streams_are_unfolded() {
        let yaml = "---\n# a comment\n---\nkind: List\napiVersion: v1\nitems:\n- {kind: A, metadata: {name: a}}\n- kind: List\n  \
            items: [{kind: B}]\n---\nkind: C\n---\n";
        assert_eq!(titles(yaml), ["A a", "B", "C"]);
        assert_eq!(titles(r#"{"kind":"A"}{"kind":"B"} "#), ["A", "B"]);
        assert_eq!(titles("{\"kind\":\"A\"}\n---\n{\"kind\":\"B\"}\n"), ["A", "B"]);
        assert_eq!(
            titles(r#"{"kind":"AList","items":[{"metadata":{"name":"a"}}, {"kind": "B"}, 5]}"#)[..2],
            ["A a", "B"]
        );
        assert_eq!(titles("\u{feff}kind: A\n...\n"), ["A"]);
        for empty in [
            "# only this\n",
            "---\n---\n",
            "{kind: List, items: []}",
            r#"{"kind":"List","items":null}"#,
            "null",
        ] {
            assert_eq!(documents(empty.as_bytes(), "f"), Ok(Vec::new()), "{empty}");
            let error = one(empty.as_bytes(), "f", ANY).unwrap_err().to_string();
            assert_eq!(error, "f can't be read: it is empty", "{empty}");
        }
        let nested = format!("{}{{kind: A}}{}", "{kind: List, items: [".repeat(8), "]}".repeat(8));
        assert!(documents(nested.as_bytes(), "f").is_err());
    }

    #[test]
    fn one_document_is_taken_and_several_are_named() {
        let text = "kind: Pod\n---\nkind: Any\nmetadata: {name: a}\n";
        assert_eq!(one(text.as_bytes(), "f", ANY).unwrap().name(), "a");
        let several = format!("{text}---\nkind: Any\nmetadata: {{name: b}}\n");
        let error = one(several.as_bytes(), "f", ANY).unwrap_err().to_string();
        assert!(
            error.contains("more than one Any") && error.contains("Any a") && error.contains("Any b"),
            "{error}"
        );
        let error = one(b"kind: Pod\n---\nkind: Job\n", "f", ANY).unwrap_err().to_string();
        assert!(error.contains("no Any") && error.contains("Pod, Job"), "{error}");
        let error = one(b"[]", "f", ANY).unwrap_err().to_string();
        assert!(error.contains("not a mapping"), "{error}");
    }

    #[test]
    fn other_documents_that_concern_nodes_are_named() {
        let others = |text: &str| {
            let (_, others) = one_and_others(text.as_bytes(), "f", Kind::MACHINE_CONFIG).unwrap();
            others.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        let config = "kind: MachineConfig\nmetadata: {name: a}\n";
        let beside = "{kind: KubeletConfig, metadata: {name: max-pods}}\n---\n{kind: Deployment, metadata: {name: app}}\n\
            ---\n{kind: MachineConfigPool, metadata: {name: worker}}\n";
        assert_eq!(others(config), [""; 0]);
        assert_eq!(
            others(&format!("{config}---\n{beside}")),
            [
                "KubeletConfig max-pods: this kind is not handled: its settings are in none of the rendered configs",
                "MachineConfigPool worker: of this file the MachineConfig alone is read",
            ]
        );
        let error =
            one_and_others(format!("{config}---\n[1]\n").as_bytes(), "f", Kind::MACHINE_CONFIG).unwrap_err();
        assert!(error.to_string().contains("document 2 (a document without kind)"), "{error}");
        let flood = format!("{config}{}", "---\n{kind: KubeletConfig, metadata: {name: b}}\n".repeat(100));
        let flood = others(&flood);
        assert!(flood.len() == 32 && flood[31].contains("and 68 more objects"), "{flood:?}");
    }

    #[test]
    fn kinds_that_make_configs_are_named() {
        let handling = |text: &str| documents(text.as_bytes(), "f").unwrap().remove(0).handling();
        assert!(matches!(handling("kind: MachineConfig"), Handling::Read(Kind::MACHINE_CONFIG)));
        for kind in CONFIG_MAKERS {
            let Handling::Named(cause) = handling(&format!("{{kind: {kind}, metadata: {{name: a}}}}")) else {
                panic!("{kind}")
            };
            assert!(cause.contains("not handled"), "{cause}");
        }
        let own = handling("{kind: MachineConfigNode, apiVersion: machineconfiguration.openshift.io/v1}");
        assert!(matches!(own, Handling::Named(_)));
        assert_eq!(handling("{kind: Deployment, apiVersion: apps/v1}"), Handling::Foreign);
        for kind in CLUSTER_SETTINGS {
            let setting = handling(&format!("{{kind: {kind}, apiVersion: config.openshift.io/v1}}"));
            assert!(matches!(setting, Handling::Named(_)), "{kind}");
        }
        assert_eq!(handling("{kind: Node, apiVersion: v1}"), Handling::Foreign);
    }

    #[test]
    fn duplicate_keys_bombs_and_deep_documents_are_refused() {
        let deep = format!("{}1{}", "[".repeat(5000), "]".repeat(5000));
        let scalar = format!("a: &a {}\n", "x".repeat(1 << 20)) + "b: [" + &"*a, ".repeat(5000) + "*a]\n";
        let lists = (1..30).fold("a0: &a0 [x, x]\n".to_owned(), |text, level| {
            let below = level - 1;
            text + &format!("a{level}: &a{level} [*a{below}, *a{below}, *a{below}, *a{below}]\n")
        });
        for bad in [
            "a: 1\na: 2\n",
            "{\"kind\": \"A\", \"kind\": \"B\"}",
            &deep,
            &format!("a: {deep}"),
            &scalar,
            &lists,
        ] {
            let error = documents(bad.as_bytes(), "f").unwrap_err().to_string();
            assert!(error.len() < 1000, "{error}");
        }
    }
}
