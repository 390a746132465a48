//! Entries of a config, field by field: the value, and what an independent reader must find of it.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

/// What a reader of the host must find. Accounts are names or ids, as the config writes them.
#[derive(Debug, Clone)]
pub enum Check {
    Text(String, Vec<u8>),
    Mode(String, u32),
    User(String, String),
    Group(String, String),
    Directory(String),
    /// A link and its target.
    Link(String, String),
    /// Two names of one file.
    SameFile(String, String),
    /// What `systemctl is-enabled` says of a unit.
    State(String, &'static str),
    /// A column of `/etc/passwd`.
    Passwd(String, usize, String),
    /// The first line of an account's or group's password.
    Shadow(&'static str, String, String),
    Member(String, String),
    Primary(String, String),
    Keys(String, Vec<String>),
    Home(String),
    NoHome(String),
    Gid(String, u32),
    /// No such account, or one that nobody can log in to.
    NoUser(String),
    NoGroup(String),
    OwnGroup(String, bool),
}

impl Check {
    /// Returns the account about which it has a meaning only when it is made.
    pub fn when_made(&self) -> Option<&str> {
        match self {
            Self::Home(name) | Self::NoHome(name) | Self::OwnGroup(name, _) => Some(name),
            _ => None,
        }
    }
}

/// Fate of a leaf field.
#[derive(Debug, Clone)]
pub enum Fate {
    Applied(Check),
    /// It says how another field is applied, or asks for what is there anyway.
    Way,
    /// Named by this field, as long as one of these paths is missing; without paths in any case.
    Named(String, Vec<String>),
    Refused,
}

/// One entry of a list, or some keys of an object.
#[derive(Debug, Clone)]
pub struct Entry {
    /// Path of the list or the object below `spec`.
    pub section: &'static str,
    pub value: Value,
    /// By the leaf's path in the entry; one that ends with a dot stands for all below it.
    pub fates: Vec<(String, Fate)>,
    /// What follows from fields that are left out.
    pub implied: Vec<Check>,
}

impl Entry {
    pub fn new(section: &'static str) -> Self {
        Self { section, value: json!({}), fates: Vec::new(), implied: Vec::new() }
    }

    pub fn set(&mut self, leaf: &str, value: Value, fate: Fate) {
        let mut at = &mut self.value;
        let names: Vec<&str> = leaf.trim_end_matches('.').split('.').collect();
        let (last, above) = names.split_last().unwrap();
        for name in above {
            at = at.as_object_mut().unwrap().entry(*name).or_insert_with(|| json!({}));
        }
        at.as_object_mut().unwrap().insert((*last).to_owned(), value);
        self.fates.push((leaf.to_owned(), fate));
    }

    /// Names the fate of a leaf of a list that was set as a whole.
    pub fn also(&mut self, leaf: &str, fate: Fate) {
        self.fates.push((leaf.to_owned(), fate));
    }

    /// The name by which the entry is known in its list.
    pub fn name(&self) -> &str {
        ["path", "name", "device"].iter().find_map(|key| self.value[*key].as_str()).unwrap_or_default()
    }

    /// Every leaf has one fate, and each fate its leaf.
    pub fn is_whole(&self) -> Result<(), String> {
        let mut found = BTreeSet::new();
        leaves(&self.value, "", &mut found);
        for leaf in &found {
            let fates = self.fates.iter().filter(|(name, _)| {
                name == leaf || (name.ends_with('.') && leaf.starts_with(name.trim_end_matches('.')))
            });
            if fates.count() != 1 {
                return Err(format!("{} {leaf} has not one fate", self.section));
            }
        }
        Ok(())
    }
}

/// Lists the leaves below a value, each as a path of keys.
pub fn leaves(value: &Value, at: &str, found: &mut BTreeSet<String>) {
    let below = |name: &str| if at.is_empty() { name.to_owned() } else { format!("{at}.{name}") };
    match value {
        Value::Object(map) => map.iter().for_each(|(name, value)| leaves(value, &below(name), found)),
        Value::Array(list) if list.iter().any(Value::is_object) => {
            list.iter()
                .enumerate()
                .for_each(|(index, value)| leaves(value, &below(&index.to_string()), found));
        }
        _ => drop(found.insert(at.to_owned())),
    }
}

/// The MachineConfig of some entries.
pub fn document(name: &str, entries: &[Entry]) -> String {
    let mut spec = json!({"config": {"ignition": {"version": "3.5.0"}}});
    for entry in entries {
        let mut at = &mut spec;
        let names: Vec<&str> = entry.section.split('.').filter(|name| !name.is_empty()).collect();
        let is_list = names.len() == 3;
        for (index, name) in names.iter().enumerate() {
            let empty = if is_list && index == 2 { json!([]) } else { json!({}) };
            at = at.as_object_mut().unwrap().entry(*name).or_insert(empty);
        }
        if is_list {
            at.as_array_mut().unwrap().push(entry.value.clone());
        } else {
            merge(at.as_object_mut().unwrap(), entry.value.as_object().unwrap());
        }
    }
    let document = json!({"apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig",
        "metadata": {"name": name}, "spec": spec});
    serde_json::to_string_pretty(&document).unwrap()
}

fn merge(into: &mut Map<String, Value>, from: &Map<String, Value>) {
    for (name, value) in from {
        match (into.get_mut(name), value) {
            (Some(Value::Object(into)), Value::Object(from)) => merge(into, from),
            _ => drop(into.insert(name.clone(), value.clone())),
        }
    }
}
