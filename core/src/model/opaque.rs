//! A config that was applied already, read as far as it can be.
//!
//! The config that machine-config-daemon committed, or an earlier version of this agent, may hold what is refused today. It is
//! where the next update comes from, so it has to be read: what the one strict reading accepts is kept, and each
//! entry that it refuses becomes a remark. The judge of each entry is [`MachineConfig::spec`], so that whatever becomes
//! stricter there becomes opaque here.
//!
//! # Decisions
//! 1. An entry is refused by itself, or together with others (two of one path): then neither is kept, for nobody knows which of
//!    them the host has. So it is with every entry that shares a path or a unit with a refused one.
//! 2. One user that is refused leaves all of them out: the keys of several entries may be one account's.
//! 3. Of another version of Ignition, files, units and users are read with the newest schema: their fields mean the same
//!    since Ignition 2. The other sections are not.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use super::error::ModelError;
use super::ids::UNIT_DIR;
use super::ignition::NEWEST_VERSION;
use super::machineconfig::MachineConfig;
use super::text::short;
use super::{ConfigName, HostSpec, ImageRef, ManagedPath, NotApplied, NotAppliedReason};

/// Added to the cause of each refusal.
const STAYS: &str = "what it made stays on the host: it is neither compared nor removed";

/// Added to that of the version: see decision 3.
fn read_as_newest() -> String {
    format!(
        "its files, units and users are read as those of {NEWEST_VERSION}, so they are compared, and removed with their entries; what other \
         sections of it made stays on the host"
    )
}

impl MachineConfig {
    /// Decodes a config that was applied already. What [`MachineConfig::spec`] refuses of it is a remark, and is left out
    /// of the spec: see [`HostSpec::is_opaque`].
    pub fn known_spec(&self, image: Option<ImageRef>) -> HostSpec {
        match self.spec(image.clone()) {
            Ok(spec) => spec,
            Err(refused) => {
                let mut spec = HostSpec { image, ..read(self, &refused) };
                spec.remarks.extend_from_slice(self.beside());
                spec
            }
        }
    }
}

/// Returns what can be read of a config that is refused with this error.
fn read(config: &MachineConfig, refused: &ModelError) -> HostSpec {
    let whole = || {
        let mut spec = HostSpec::empty(config.name().clone());
        let message = format!("{refused}; {STAYS}");
        spec.remarks.push(NotApplied::new("spec", NotAppliedReason::OpaqueOrigin, message));
        spec
    };
    // One that is nested too deeply to be a tree is no config that could be understood.
    let Ok(document) = serde_json::from_str::<Value>(config.json()) else { return whole() };
    let Some(reader) = Reader::new(config.name(), &document) else { return whole() };
    let mut spec = reader.read().unwrap_or_else(whole);
    if spec.opaque().next().is_none() {
        // No entry is the cause: a section that is none, such as a config that is a text.
        spec.remarks.push(remark("spec", refused));
    }
    spec
}

/// Returns what a field of the document names below the entry, which is that many lists deep.
fn below(field: &str, lists: usize) -> String {
    let rest = field.split(']').skip(lists).collect::<Vec<_>>().join("]");
    rest.strip_prefix('.').map(|rest| format!(" {rest}")).unwrap_or_default()
}

fn remark(part: &str, error: &ModelError) -> NotApplied {
    remark_with(part, error, STAYS)
}

fn remark_with(part: &str, error: &ModelError, stays: &str) -> NotApplied {
    let (field, cause) = match error {
        ModelError::Several { first, .. } => return remark_with(part, first, stays),
        ModelError::Field { field, cause, .. }
        | ModelError::Unreachable { field, cause, .. }
        | ModelError::InDocument { field, cause, .. } => {
            // That of a whole section says less than the entry.
            let section = part.split([' ', '[']).next().unwrap_or(part);
            let field = match field.strip_prefix(section) {
                // It was read alone: its place is that of the part.
                Some(rest) if rest.starts_with('[') && part.ends_with(']') => {
                    format!("{part}{}", rest.split_once(']').map_or("", |(_, below)| below))
                }
                Some(_) => field.clone(),
                None => format!("{part}{}", below(field, if part.contains(" dropins") { 2 } else { 1 })),
            };
            (field, cause.clone())
        }
        ModelError::Image { .. } => (part.to_owned(), error.clone().in_field("", "").to_string()),
        ModelError::Name { .. }
        | ModelError::Variable { .. }
        | ModelError::Path { .. }
        | ModelError::Document { .. }
        | ModelError::UnknownFields { .. }
        | ModelError::Disagree { .. }
        | ModelError::Layers { .. } => (part.to_owned(), error.to_string()),
    };
    NotApplied::new(field, NotAppliedReason::OpaqueOrigin, format!("{cause}; {stays}"))
}

/// An entry of the document, which is kept or refused as a whole.
struct Part {
    /// The field, as remarks name it.
    field: String,
    /// The objects on the way to it, below `spec`.
    way: Vec<String>,
    /// Set if it is one of a list, which the last name of the way is.
    is_element: bool,
    /// For a drop-in: the unit's place in the list of parts.
    unit: Option<usize>,
    value: Value,
}

impl Part {
    fn is_in(&self, section: &[&str]) -> bool {
        self.way.iter().zip(section).all(|(one, other)| one == other) && self.way.len() >= section.len()
    }

    /// Returns the paths that the entry is about, and the unit.
    fn claims(&self, parts: &[Self]) -> Vec<String> {
        let text = |value: &Value, key: &str| value.get(key).and_then(Value::as_str).map(str::to_owned);
        let name = text(&self.value, "name");
        if let Some(unit) = self.unit.and_then(|unit| parts.get(unit)) {
            let (unit, name) = (text(&unit.value, "name").unwrap_or_default(), name.unwrap_or_default());
            return vec![format!("{UNIT_DIR}/{unit}.d/{name}")];
        }
        if self.is_in(&["config", "systemd", "units"]) {
            return name.map(|name| format!("{UNIT_DIR}/{name}")).into_iter().collect();
        }
        let path = text(&self.value, "path").filter(|_| self.is_in(&["config", "storage"]));
        let path = path.map(|path| ManagedPath::new(path.as_str()).map_or(path, String::from));
        path.into_iter().collect()
    }
}

struct Reader<'a> {
    name: &'a ConfigName,
    /// Set if the document has an Ignition config.
    has_config: bool,
    /// The error of its version, if it is none that is read.
    version: Option<ModelError>,
    parts: Vec<Part>,
    refused: BTreeMap<usize, NotApplied>,
}

impl<'a> Reader<'a> {
    /// Takes the document apart; `None` if not even its frame can be read.
    fn new(name: &'a ConfigName, document: &Value) -> Option<Self> {
        let spec = document.get("spec").and_then(Value::as_object)?;
        let config = spec.get("config").and_then(Value::as_object).filter(|config| !config.is_empty());
        let parts = taken_apart(spec);
        let has_config = config.is_some();
        let mut reader = Self { name, has_config, version: None, parts, refused: BTreeMap::new() };
        reader.read_kept(&BTreeSet::new()).ok()?;
        if let Some(config) = config {
            let version = config.get("ignition").and_then(|ignition| ignition.get("version"));
            let alone = json!({ "spec": { "config": { "ignition": { "version": version } } } });
            reader.version = reader.read_document(alone).err();
        }
        Some(reader)
    }

    fn read(mut self) -> Option<HostSpec> {
        let mut kept = self.readable_alone();
        let candidates: Vec<usize> = kept.iter().copied().collect();
        kept.clear();
        self.add(&mut kept, &candidates);
        self.leave_out_related(&mut kept);
        let mut spec = self.read_kept(&kept).ok()?;
        let version = self.version.iter();
        let version =
            version.map(|error| remark_with("spec.config.ignition.version", error, &read_as_newest()));
        spec.remarks.extend(version);
        spec.remarks.extend(std::mem::take(&mut self.refused).into_values());
        Some(spec)
    }

    /// Returns the parts that are accepted each by itself; the others are refused.
    fn readable_alone(&mut self) -> BTreeSet<usize> {
        let mut kept = BTreeSet::new();
        for index in 0..self.parts.len() {
            let Some(part) = self.parts.get(index) else { continue };
            if part.unit.is_some_and(|unit| !kept.contains(&unit)) {
                continue;
            }
            let other = self.version.as_ref().filter(|_| !means_the_same_since_2(part));
            let alone = part.unit.into_iter().chain([index]).collect();
            let read = other.cloned().map_or_else(|| self.read_kept(&alone), Err);
            match read {
                Ok(_) => drop(kept.insert(index)),
                Err(error) => self.refuse(index, &error),
            }
        }
        kept
    }

    /// Adds those that can be read together; of the others, neither of a pair is kept.
    fn add(&mut self, kept: &mut BTreeSet<usize>, candidates: &[usize]) {
        let all = kept.iter().chain(candidates).copied().collect();
        let Err(error) = self.read_kept(&all) else {
            *kept = all;
            return;
        };
        if let [one] = candidates {
            self.refuse_with_partners(kept, *one, error);
            return;
        }
        let (first, second) = candidates.split_at(candidates.len() / 2);
        if !first.is_empty() {
            self.add(kept, first);
            self.add(kept, second);
        }
    }

    /// Refuses a part, and those that it can't be read together with.
    fn refuse_with_partners(&mut self, kept: &mut BTreeSet<usize>, one: usize, mut error: ModelError) {
        self.refuse(one, &error);
        loop {
            let others: Vec<usize> = kept.iter().copied().collect();
            let is_refused = |count: &usize| {
                let some = others.iter().take(*count).copied().chain([one]).collect();
                self.read_kept(&some).is_err()
            };
            // The smallest number of the others that it is refused with.
            let (mut low, mut high) = (0, others.len());
            while low + 1 < high {
                let middle = low + (high - low) / 2;
                if is_refused(&middle) { high = middle } else { low = middle }
            }
            let Some(partner) = high.checked_sub(1).and_then(|last| others.get(last).copied()) else {
                return;
            };
            kept.remove(&partner);
            self.refuse(partner, &error);
            match self.read_kept(&kept.iter().copied().chain([one]).collect()) {
                Ok(_) => return,
                Err(next) => error = next,
            }
        }
    }

    /// Leaves out what shares a path, a unit or an account with a refused part.
    fn leave_out_related(&mut self, kept: &mut BTreeSet<usize>) {
        let part = |index: &usize| self.parts.get(*index);
        let left_out = |index: &usize| !kept.contains(index);
        let out: BTreeSet<String> = (0..self.parts.len())
            .filter(left_out)
            .filter_map(|index| part(&index))
            .flat_map(|part| part.claims(&self.parts))
            .collect();
        let is_user = |part: &Part| part.is_in(&["config", "passwd", "users"]);
        let users_out = (0..self.parts.len()).filter(left_out).filter_map(|index| part(&index)).any(is_user);
        let related: Vec<usize> = kept
            .iter()
            .filter(|index| {
                part(index).is_some_and(|part| {
                    (users_out && is_user(part))
                        || part.claims(&self.parts).iter().any(|claim| out.contains(claim))
                })
            })
            .copied()
            .collect();
        kept.retain(|index| !related.contains(index));
        let is_alone = |index: &usize| {
            self.parts.get(*index).and_then(|part| part.unit).is_some_and(|unit| !kept.contains(&unit))
        };
        let alone: Vec<usize> = kept.iter().filter(|index| is_alone(index)).copied().collect();
        for index in related.into_iter().chain(alone) {
            kept.remove(&index);
            let field = self.parts.get(index).map(|part| part.field.clone()).unwrap_or_default();
            let message = format!("another entry about the same can't be read; {STAYS}");
            let remark = NotApplied::new(field, NotAppliedReason::OpaqueOrigin, message);
            self.refused.entry(index).or_insert(remark);
        }
    }

    fn refuse(&mut self, index: usize, error: &ModelError) {
        let field = self.parts.get(index).map(|part| part.field.as_str()).unwrap_or_default();
        self.refused.entry(index).or_insert_with(|| remark(field, error));
    }

    fn read_kept(&self, kept: &BTreeSet<usize>) -> Result<HostSpec, ModelError> {
        let mut spec = Map::new();
        if self.has_config {
            spec.insert("config".to_owned(), json!({ "ignition": { "version": NEWEST_VERSION } }));
        }
        let parts = kept.iter().filter_map(|index| self.parts.get(*index));
        // Without its unit, a drop-in would become another unit's.
        for part in parts.filter(|part| part.unit.is_none_or(|unit| kept.contains(&unit))) {
            put(&mut spec, part);
        }
        self.read_document(json!({ "spec": spec }))
    }

    fn read_document(&self, mut document: Value) -> Result<HostSpec, ModelError> {
        if let Some(object) = document.as_object_mut() {
            object.insert("metadata".to_owned(), json!({ "name": self.name }));
        }
        MachineConfig::of_parts(self.name.clone(), document.to_string()).spec(None)
    }
}

/// Returns true for the sections whose entries have the same fields in each version of Ignition.
fn means_the_same_since_2(part: &Part) -> bool {
    let sections: [&[&str]; 3] =
        [&["config", "storage", "files"], &["config", "systemd", "units"], &["config", "passwd", "users"]];
    part.way.first().is_none_or(|first| first != "config")
        || sections.iter().any(|section| part.is_in(section))
}

/// Puts a part where it was.
fn put(spec: &mut Map<String, Value>, part: &Part) {
    let (mut at, mut way) = (spec, part.way.iter());
    let Some(last) = way.next_back() else { return };
    for name in way {
        let next = at.entry(name).or_insert_with(|| json!({}));
        let Some(next) = next.as_object_mut() else { return };
        at = next;
    }
    if !part.is_element {
        at.insert(last.clone(), part.value.clone());
        return;
    }
    let list = at.entry(last).or_insert_with(|| json!([]));
    let Some(list) = list.as_array_mut() else { return };
    if part.unit.is_none() {
        list.push(part.value.clone());
        return;
    }
    // A drop-in follows its unit.
    let unit = list.last_mut().and_then(Value::as_object_mut);
    let dropins = unit.map(|unit| unit.entry("dropins").or_insert_with(|| json!([])));
    if let Some(dropins) = dropins.and_then(Value::as_array_mut) {
        dropins.push(part.value.clone());
    }
}

/// Takes a spec apart. Nulls set nothing.
fn taken_apart(spec: &Map<String, Value>) -> Vec<Part> {
    let mut parts = Vec::new();
    for (key, value) in spec.iter().filter(|(key, _)| *key != "config") {
        entries(&mut parts, &[key], &format!("spec.{key}"), value);
    }
    let config = match spec.get("config") {
        Some(Value::Object(config)) => config,
        Some(Value::Null) | None => return parts,
        Some(other) => {
            entries(&mut parts, &["config"], "spec.config", other);
            return parts;
        }
    };
    for (section, value) in config {
        let Value::Object(fields) = value else {
            entries(&mut parts, &["config", section], section, value);
            continue;
        };
        let is_version = |key: &str| section == "ignition" && key == "version";
        for (key, value) in fields.iter().filter(|(key, _)| !is_version(key)) {
            let way = ["config", section, key];
            entries(&mut parts, &way, &format!("{section}.{key}"), value);
        }
    }
    parts
}

/// Adds a field's value, or each entry of its list.
fn entries(parts: &mut Vec<Part>, way: &[&str], field: &str, value: &Value) {
    let way: Vec<String> = way.iter().map(|&name| name.to_owned()).collect();
    let list = match value {
        Value::Null => return,
        Value::Array(list) => list,
        Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_) => {
            let (field, value) = (field.to_owned(), value.clone());
            parts.push(Part { field, way, is_element: false, unit: None, value });
            return;
        }
    };
    for (place, value) in list.iter().enumerate() {
        let field = format!("{field}{}", entry_name(place, value));
        let mut value = value.clone();
        let dropins = value.as_object_mut().filter(|_| way.ends_with(&["units".to_owned()]));
        let dropins = dropins.and_then(|unit| match unit.get("dropins") {
            Some(Value::Array(_)) => unit.remove("dropins"),
            Some(_) | None => None,
        });
        let unit = parts.len();
        parts.push(Part { field: field.clone(), way: way.clone(), is_element: true, unit: None, value });
        for (place, value) in dropins.as_ref().and_then(Value::as_array).into_iter().flatten().enumerate() {
            let field = format!("{field} dropins{}", entry_name(place, value));
            let value = value.clone();
            parts.push(Part { field, way: way.clone(), is_element: true, unit: Some(unit), value });
        }
    }
}

/// Returns how an entry of a list is named: by its path or its name, else by its place.
fn entry_name(place: usize, value: &Value) -> String {
    let named = ["path", "name", "device"].iter().find_map(|key| value.get(key).and_then(Value::as_str));
    named.map_or_else(|| format!("[{place}]"), |name| format!(" {:?}", short(name, 200)))
}

#[cfg(test)]
mod tests;
