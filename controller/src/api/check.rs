//! Verdicts of an API server on an object: the schemas of [`definitions`] and the rules of [`metadata`], in pure code. As at a creation: the status is left
//! out, unknown fields are ignored, and rules about the object of before do not apply.
//!
//! # Decisions
//!
//! - No engine for patterns and rules (CEL): there are few, each is a function here by its text, and a test fails for one
//!   without.
//! - Values are shown only where a pattern, a list of words or a number refuses them: a Containerfile may hold a secret.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use machine_config_core::model::faults::MAX_FAULTS;
use machine_config_core::model::ids::is_dns_subdomain;
use machine_config_core::model::reference::is_digest;
use machine_config_core::model::short;
use machine_config_core::model::text::escaped;
use serde_json::{Map, Value};

use super::definitions::definitions;
use super::{metadata, operator};

/// The longest value that an error shows.
const MAX_SHOWN: usize = 64;

/// As much of a name is shown: the longest one that the API server takes.
const MAX_NAME: usize = 253;

/// The most errors of one object; the last one says how many more there are.
const MAX_ERRORS: usize = MAX_FAULTS;

/// A kind's schema.
struct Definition {
    group: String,
    kind: String,
    schema: Value,
}

static DEFINITIONS: LazyLock<Vec<Definition>> = LazyLock::new(|| {
    let definition = |one: CustomResourceDefinition| {
        let schema = one.spec.versions.into_iter().next()?.schema?.open_api_v3_schema?;
        let schema = serde_json::to_value(schema).ok()?;
        Some(Definition { group: one.spec.group, kind: one.spec.names.kind, schema })
    };
    definitions().into_iter().filter_map(definition).collect()
});

/// A refusal of an API server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// The field; empty where it is the object.
    pub field: String,
    /// Object, field, cause and next step.
    pub text: String,
}

/// Returns what the API server would refuse; nothing for an object of another kind.
pub fn check(object: &Value) -> Vec<Violation> {
    let Some(mut errors) = errors(object) else { return Vec::new() };
    if let Some((_, last)) = errors.found.last_mut().filter(|_| errors.more > 0) {
        *last += &format!("; and {} more faults", errors.more);
    }
    let title = format!("{} {}", text(object, "/kind"), short(text(object, "/metadata/name"), MAX_NAME));
    errors
        .found
        .into_iter()
        .map(|(field, cause)| {
            let place = if field.is_empty() { String::new() } else { format!("{field}: ") };
            Violation { text: escaped(&format!("{title}: {place}{cause}")), field: escaped(&field) }
        })
        .collect()
}

fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// Returns what is wrong with an object; `None` for one of another kind.
fn errors(object: &Value) -> Option<Errors> {
    let (group, kind) =
        (text(object, "/apiVersion").split('/').next().unwrap_or_default(), text(object, "/kind"));
    let is_it = |one: &&Definition| one.group == group && one.kind == kind;
    let definition = DEFINITIONS.iter().find(is_it)?;
    let mut errors = Errors::default();
    for (field, cause) in metadata::faults(object) {
        errors.add(&field, cause);
    }
    errors.of(&definition.schema, object, "");
    Some(errors)
}

/// The fields that are wrong, and causes.
#[derive(Default)]
struct Errors {
    found: Vec<(String, String)>,
    /// Number of those that are not kept.
    more: usize,
    /// Number of them that leaves nothing for a rule to judge.
    blocking: usize,
}

impl Errors {
    fn add(&mut self, path: &str, cause: impl Into<String>) {
        if self.found.len() < MAX_ERRORS {
            self.found.push((path.trim_start_matches('.').to_owned(), cause.into()));
        } else {
            self.more += 1;
        }
    }

    fn block(&mut self, path: &str, cause: impl Into<String>) {
        self.blocking += 1;
        self.add(path, cause);
    }

    /// Checks a value, and what is in it.
    fn of(&mut self, schema: &Value, value: &Value, path: &str) {
        let before = self.blocking;
        match value {
            Value::Null if is_true(schema, "nullable") => {
                if let Some(words) = words(schema).filter(|words| !words.contains(value)) {
                    self.add(
                        path,
                        format!("it is null; write one of {}, or remove the field", listed(words)),
                    );
                }
                return;
            }
            Value::String(text) if takes(schema, "string") => self.of_string(schema, text, path),
            Value::Number(number) if takes_number(schema, number) => self.of_number(schema, number, path),
            Value::Bool(_) if takes(schema, "boolean") => {}
            Value::Array(list) if takes(schema, "array") => self.of_list(schema, list, path),
            Value::Object(fields) if takes(schema, "object") => self.of_object(schema, fields, path),
            Value::Null
            | Value::String(_)
            | Value::Number(_)
            | Value::Bool(_)
            | Value::Array(_)
            | Value::Object(_) => {
                let expected =
                    if is_int_or_string(schema) { "integer or string" } else { word(schema, "type") };
                self.block(
                    path,
                    format!("it is {}, and must be of type {expected}; correct it", type_of(value)),
                );
            }
        }
        if self.blocking == before {
            self.of_rules(schema, value, path);
        }
    }

    fn of_object(&mut self, schema: &Value, fields: &Map<String, Value>, path: &str) {
        let properties = schema.get("properties").and_then(Value::as_object);
        let inner = |name: &str| properties.and_then(|properties| properties.get(name));
        for name in
            schema.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str)
        {
            let is_default = inner(name).is_some_and(|schema| schema.get("default").is_some());
            let is_there = fields
                .get(name)
                .is_some_and(|value| inner(name).is_none_or(|schema| !is_absent(schema, value)));
            if !is_there && !is_default {
                self.block(&format!("{path}.{name}"), "it is required; set it");
            }
        }
        if let Some(least) = number(schema, "minProperties").filter(|least| fields.len() < *least) {
            self.add(
                path,
                format!(
                    "it has {} fields, and must have at least {least}; set one, or remove it",
                    fields.len()
                ),
            );
        }
        for (name, value) in fields {
            // The API server takes the status by itself.
            if path.is_empty() && name == "status" {
                continue;
            }
            let path = format!("{path}.{name}");
            match (inner(name), schema.get("additionalProperties")) {
                (Some(schema), _) if !is_absent(schema, value) => self.of(schema, value, &path),
                (None, Some(schema)) if schema.is_object() => self.of(schema, value, &path),
                (Some(_) | None, _) => {}
            }
        }
    }

    fn of_list(&mut self, schema: &Value, list: &[Value], path: &str) {
        if let Some(most) = number(schema, "maxItems").filter(|most| list.len() > *most) {
            self.block(
                path,
                format!("it has {} items, and must have at most {most}; shorten it", list.len()),
            );
        }
        if let Some(least) = number(schema, "minItems").filter(|least| list.len() < *least) {
            self.add(
                path,
                format!(
                    "it has {} items, and must have at least {least}; add one, or remove the field",
                    list.len()
                ),
            );
        }
        let items = schema.get("items").unwrap_or(&Value::Null);
        let mut seen = BTreeSet::new();
        for (place, item) in list.iter().enumerate() {
            let path = format!("{path}[{place}]");
            self.of(items, item, &path);
            if !key(schema, items, item).is_none_or(|key| seen.insert(key)) {
                self.add(&path, "an item with the same key is before it; keep one of the two");
            }
        }
    }

    fn of_string(&mut self, schema: &Value, text: &str, path: &str) {
        let length = text.chars().count();
        if let Some(most) = number(schema, "maxLength").filter(|most| length > *most) {
            self.block(path, format!("it has {length} characters, and must have at most {most}; shorten it"));
        }
        if let Some(least) = number(schema, "minLength").filter(|least| length < *least) {
            self.add(path, format!("it has {length} characters, and must have at least {least}; write it, or remove the field"));
        }
        let shown = short(text, MAX_SHOWN);
        if let Some(words) = words(schema).filter(|words| !words.iter().any(|word| word == text)) {
            self.add(path, format!("{shown:?} is not one of: {}; write one of them", listed(words)));
        }
        let pattern = schema.get("pattern").and_then(Value::as_str);
        if let Some(next) = pattern.and_then(|pattern| unmatched(pattern, text)) {
            self.add(path, format!("{shown:?} {next}"));
        }
        if word(schema, "format") == "byte" && BASE64_STANDARD.decode(text).is_err() {
            self.add(path, "it is not base64; encode it");
        }
    }

    fn of_number(&mut self, schema: &Value, found: &serde_json::Number, path: &str) {
        let wide = word(schema, "format") == "int32"
            && found.as_i64().is_none_or(|found| i32::try_from(found).is_err());
        let least = schema.get("minimum").and_then(Value::as_f64);
        let most = schema.get("maximum").and_then(Value::as_f64);
        let value = found.as_f64().unwrap_or_default();
        if let Some(least) = least.filter(|least| value < *least) {
            self.add(path, format!("{found} is less than {least}; write a larger number"));
        } else if let Some(most) = most.filter(|most| value > *most) {
            self.add(path, format!("{found} is more than {most}; write a smaller number"));
        } else if wide {
            self.add(path, format!("{found} has more than 32 bits; write a smaller number"));
        }
    }

    fn of_rules(&mut self, schema: &Value, value: &Value, path: &str) {
        let rules = schema.get("x-kubernetes-validations").and_then(Value::as_array);
        for rule in rules.into_iter().flatten() {
            let message = word(rule, "message");
            if !word(rule, "rule").contains("oldSelf") && !holds(message, value).unwrap_or(true) {
                self.add(path, message);
            }
        }
    }
}

fn word<'a>(schema: &'a Value, keyword: &str) -> &'a str {
    schema.get(keyword).and_then(Value::as_str).unwrap_or_default()
}

fn words(schema: &Value) -> Option<&Vec<Value>> {
    schema.get("enum").and_then(Value::as_array)
}

fn listed(words: &[Value]) -> String {
    words.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(", ")
}

fn number(schema: &Value, keyword: &str) -> Option<usize> {
    schema.get(keyword).and_then(Value::as_u64).and_then(|number| usize::try_from(number).ok())
}

fn is_true(schema: &Value, keyword: &str) -> bool {
    schema.get(keyword).and_then(Value::as_bool).unwrap_or_default()
}

fn is_int_or_string(schema: &Value) -> bool {
    is_true(schema, "x-kubernetes-int-or-string")
}

/// A null where none is taken is removed before anything is checked.
fn is_absent(schema: &Value, value: &Value) -> bool {
    value.is_null() && !is_true(schema, "nullable")
}

fn takes(schema: &Value, kind: &str) -> bool {
    match word(schema, "type") {
        "" => !is_int_or_string(schema) || kind == "string",
        expected => expected == kind,
    }
}

fn takes_number(schema: &Value, found: &serde_json::Number) -> bool {
    let is_whole =
        found.is_i64() || found.is_u64() || found.as_f64().is_some_and(|found| found.fract() == 0.0);
    (is_whole && (is_int_or_string(schema) || takes(schema, "integer"))) || takes(schema, "number")
}

fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

/// Returns what no other item of a list may have.
fn key(schema: &Value, items: &Value, item: &Value) -> Option<String> {
    match word(schema, "x-kubernetes-list-type") {
        "set" => Some(item.to_string()),
        "map" => {
            let keys = schema.get("x-kubernetes-list-map-keys").and_then(Value::as_array)?;
            let default = |name: &str| items.pointer(&format!("/properties/{name}/default"));
            let of_key = |key: &Value| {
                let name = key.as_str()?;
                Some(item.get(name).or_else(|| default(name))?.to_string())
            };
            keys.iter().map(of_key).collect::<Option<Vec<_>>>().map(|keys| keys.join(" "))
        }
        _ => None,
    }
}

/// Returns what to write in place of a text that does not match a pattern; `None` where it does.
fn unmatched(pattern: &str, text: &str) -> Option<&'static str> {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let (matches, next) = match pattern {
        "^((100|[0-9]{1,2})%|[0-9]+)$" => {
            let is_percent = |percent: &str| digits(percent) && (percent.len() <= 2 || percent == "100");
            let matches = digits(text) || text.strip_suffix('%').is_some_and(is_percent);
            (matches, "is neither a number nor a percentage up to 100%; write it as 3 or 10%")
        }
        "^([0-9]{1,5}h)?([0-9]{1,5}m)?([0-9]{1,5}s)?$" => {
            (text.is_empty() || seconds(text).is_some(), "is not a duration; write it as 2h30m")
        }
        "^([01][0-9]|2[0-3]):[0-5][0-9]$" => {
            let is_time = |(hours, minutes): (&str, &str)| {
                let is_number = |text: &str, most: u8| {
                    digits(text) && text.len() == 2 && text.parse::<u8>().is_ok_and(|number| number <= most)
                };
                is_number(hours, 23) && is_number(minutes, 59)
            };
            (text.split_once(':').is_some_and(is_time), "is not a time; write it as 22:00")
        }
        operator::SET_NAME => {
            let edge = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
            let is_label = |label: &str| {
                let bytes = label.as_bytes();
                label.len() <= 63 && edge(bytes.first()) && edge(bytes.last()) && is_word(label, "-")
            };
            (text.split('.').all(is_label), "is not a name; write the set's name")
        }
        operator::STATE => {
            let matches = matches!(text, "Managed" | "Unmanaged" | "Force" | "Removed");
            (matches, "is not a state; write Managed, or remove the field")
        }
        operator::RELEASE => (is_numbers(text), "is not a version; write it as 4.20.1"),
        operator::OS_VERSION => {
            let is_build = |(version, build): (&str, &str)| {
                let date = version.rsplit('.').next().unwrap_or_default();
                is_numbers(version) && matches!(date.len(), 8 | 12) && digits(build)
            };
            (text.split_once('-').is_some_and(is_build), "is not a version; write it as 9.6.20250523-0")
        }
        // Of statuses, which are not checked.
        _ => return None,
    };
    (!matches).then_some(next)
}

/// Returns true for `4.20.1`.
fn is_numbers(text: &str) -> bool {
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    text.split('.').count() == 3 && text.split('.').all(is_number)
}

/// Reads `2h30m`: hours, minutes and seconds in this order.
fn seconds(text: &str) -> Option<u64> {
    let (mut rest, mut sum) = (text, 0_u64);
    for (unit, factor) in [('h', 3600), ('m', 60), ('s', 1)] {
        if let Some((number, after)) = rest.split_once(unit) {
            let is_number =
                (1..=5).contains(&number.len()) && number.bytes().all(|byte| byte.is_ascii_digit());
            sum = sum.checked_add(number.parse::<u64>().ok().filter(|_| is_number)?.checked_mul(factor)?)?;
            rest = after;
        }
    }
    (rest.is_empty() && !text.is_empty()).then_some(sum)
}

/// Returns true if a rule holds, by its message; `None` for an unknown one.
fn holds(message: &str, value: &Value) -> Option<bool> {
    let text = value.as_str().unwrap_or_default();
    let at = |pointer: &str| value.pointer(pointer).filter(|value| !value.is_null());
    let name_is = |pointer: &str| at("/metadata/name") == at(pointer);
    let not_zero = |value: Option<&Value>| {
        value.is_none_or(|value| value.as_i64().map_or(value != "0%", |number| number >= 1))
    };
    let length = |pointer: &str| at(pointer).and_then(Value::as_str).and_then(seconds);
    if let Some((field, key, word)) = operator::read_only_with(message) {
        let is_it = value.get(key).and_then(Value::as_str) == Some(word);
        return Some(value.get(field).is_some() == is_it);
    }
    Some(match message {
        "the name must be a lowercase RFC 1123 subdomain" => is_dns_subdomain(text),
        "the image must end with @sha256:<64 hexadecimal digits>" => {
            matches!(text.split('@').collect::<Vec<_>>()[..], [_, digest] if is_digest(digest))
        }
        "the image must be HOST[:PORT]/NAME:TAG or SERVICE.NAMESPACE.svc:PORT/REPOSITORY/NAME:TAG" => {
            is_pushed_outside(text) || is_pushed_inside(text)
        }
        "the name must equal the node's name" => name_is("/spec/node/name"),
        "the name must equal the pool's name: a pool has one MachineOSConfig" => {
            name_is("/spec/machineConfigPool/name")
        }
        "the name must be cluster: there is one" => {
            at("/metadata/name").is_some_and(|name| name == "cluster")
        }
        "the unit must be named as systemd names it, as NAME.service" => is_unit(text),
        "the path must be absolute, without `.`, `..` and a trailing `/`" => {
            text.starts_with('/') && !text.split('/').skip(1).any(|part| matches!(part, "" | "." | ".."))
        }
        "the mode must be All or None for controlplanemachinesets" => {
            let is_of_control_plane = word(value, "resource") == "controlplanemachinesets";
            let mode = at("/selection/mode").and_then(Value::as_str);
            !is_of_control_plane || matches!(mode, Some("All" | "None"))
        }
        "None and Reboot must stand alone" => {
            let actions = value.as_array().map_or(&[][..], |actions| actions);
            let stands_alone = |action: &Value| matches!(word(action, "type"), "None" | "Reboot");
            actions.len() < 2 || !actions.iter().any(stands_alone)
        }
        "nodes must be at least 1, or 1%" => not_zero(at("/nodes")),
        "concurrency must be at least 1, or 1%" => not_zero(at("/concurrency")),
        "soak must be at most 720h" => length("/soak").is_none_or(|soak| soak <= 720 * 3600),
        "length must be 1m to 168h" => {
            length("/length").is_none_or(|length| (60..=168 * 3600).contains(&length))
        }
        _ => return None,
    })
}

fn is_unit(text: &str) -> bool {
    const TYPES: [&str; 11] = [
        "service",
        "socket",
        "device",
        "mount",
        "automount",
        "swap",
        "target",
        "path",
        "timer",
        "slice",
        "scope",
    ];
    text.rsplit_once('.').is_some_and(|(name, kind)| TYPES.contains(&kind) && is_word(name, ":._@\\-"))
}

fn is_word(text: &str, more: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || more.contains(c))
}

fn is_pushed_outside(text: &str) -> bool {
    let Some((host, rest)) = text.split_once('/') else { return false };
    let (host, port) = host.split_once(':').map_or((host, None), |(host, port)| (host, Some(port)));
    let is_port =
        |port: &str| (2..=5).contains(&port.len()) && port.bytes().all(|byte| byte.is_ascii_digit());
    let Some((path, tag)) = rest.rsplit_once(':') else { return false };
    let (above, name) = path.rsplit_once('/').map_or((None, path), |(above, name)| (Some(above), name));
    host.contains('.')
        && host.split('.').all(|label| is_word(label, "-"))
        && port.is_none_or(is_port)
        && above.is_none_or(|above| above.split('/').all(|part| part.len() <= 61 && is_word(part, "-_")))
        && is_word(name, "-_.")
        && is_word(tag, "._-")
}

fn is_pushed_inside(text: &str) -> bool {
    let parts: Vec<&str> = text.split('/').collect();
    let [service, repository, image] = parts[..] else { return false };
    let is_service = |(host, port): (&str, &str)| {
        let labels: Vec<&str> = host.split('.').collect();
        let is_host =
            matches!(labels[..], [name, namespace, "svc"] if !name.is_empty() && !namespace.is_empty());
        is_host && !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit())
    };
    let is_image = image.split_once(':').is_some_and(|(name, tag)| !name.is_empty() && !tag.is_empty());
    service.rsplit_once(':').is_some_and(is_service) && !repository.is_empty() && is_image
}

#[cfg(test)]
#[path = "check_tests.rs"]
mod tests;
