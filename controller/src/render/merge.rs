//! Merges Ignition configs (spec 3): the later one wins, field by field.
//!
//! The rules are Ignition's own (`config/merge` of github.com/coreos/ignition): objects are merged by field; the items of
//! a list by their key (a file by its path, a unit by its name); a few lists are appended. One rule is ours: contents
//! with a source replace the contents before as a whole. Ignition keeps the compression and the digest of the old ones
//! beside the new source, and the file can't be written then.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value};

/// Lists that are appended, whatever they hold.
const APPENDED: [&str; 3] = ["append", "mountOptions", "options"];

/// Lists that share their items: a path is a file, a directory or a link, never two of them.
const SHARED: [&[&str]; 2] = [&["directories", "files", "links"], &["shouldExist", "shouldNotExist"]];

/// Key of the items of a list of objects.
const KEYS: [(&str, &str); 15] = [
    ("certificateAuthorities", "source"),
    ("directories", "path"),
    ("disks", "device"),
    ("dropins", "name"),
    ("files", "path"),
    ("filesystems", "device"),
    ("groups", "name"),
    ("httpHeaders", "name"),
    ("links", "path"),
    ("luks", "name"),
    ("merge", "source"),
    ("raid", "name"),
    ("tang", "url"),
    ("units", "name"),
    ("users", "name"),
];

/// Merges configs; the later one wins.
pub fn merged(configs: &[&Map<String, Value>]) -> Map<String, Value> {
    let repeated = Repeated::new(configs);
    configs
        .iter()
        .fold(Map::new(), |all, config| merged_objects(all, (*config).clone(), Level::Config(&repeated)))
}

/// The keys of long lists that several configs have. A list is searched for these alone: with each config it is longer, and most of
/// its items are in one config only.
struct Repeated<'a>([HashSet<Cow<'a, str>>; LONG.len()]);

/// Lists that are long: section and name.
const LONG: [(&str, &str); 2] = [("storage", "files"), ("systemd", "units")];

impl<'a> Repeated<'a> {
    fn new(configs: &[&'a Map<String, Value>]) -> Self {
        Self(LONG.map(|(section, list)| {
            let key = Key::of(list);
            let lists = configs.iter().filter_map(|config| config.get(section)?.get(list)?.as_array());
            let mut once = HashSet::new();
            lists.flatten().map(|item| key.read(item)).filter(|item| !once.insert(item.clone())).collect()
        }))
    }

    /// Returns the repeated keys of a long list.
    fn of(&self, section: &str, list: &str) -> Option<&HashSet<Cow<'a, str>>> {
        let mut lists = LONG.iter().zip(&self.0);
        lists.find(|(long, _)| **long == (section, list)).map(|(_, repeated)| repeated)
    }
}

/// The object that is merged.
#[derive(Clone, Copy)]
enum Level<'a> {
    /// A whole config.
    Config(&'a Repeated<'a>),
    /// One of its sections.
    Section(&'a Repeated<'a>, &'a str),
    /// Anything within.
    Inner,
}

impl<'a> Level<'a> {
    fn within(self, field: &'a str) -> Self {
        match self {
            Self::Config(repeated) => Self::Section(repeated, field),
            Self::Section(..) | Self::Inner => Self::Inner,
        }
    }

    /// Returns true if the list before may have an item of the new one.
    fn is_shared(self, list: &str, new: &[Value]) -> bool {
        let Self::Section(repeated, section) = self else { return true };
        let key = Key::of(list);
        repeated
            .of(section, list)
            .is_none_or(|repeated| new.iter().any(|item| repeated.contains(&key.read(item))))
    }
}

/// Merges two objects; the second one wins.
fn merged_objects(
    mut first: Map<String, Value>,
    second: Map<String, Value>,
    level: Level<'_>,
) -> Map<String, Value> {
    take_over(&mut first, &second);
    for (name, new) in second {
        let value = match (first.remove(&name), new) {
            (Some(old), Value::Null) => old,
            (Some(Value::Object(_)), Value::Object(new)) if replaces(&name, &new) => Value::Object(new),
            (Some(Value::Object(old)), Value::Object(new)) => {
                Value::Object(merged_objects(old, new, level.within(&name)))
            }
            (Some(Value::Array(old)), Value::Array(new)) => Value::Array(merged_list(&name, old, new, level)),
            (_, new) => new,
        };
        first.insert(name, value);
    }
    first
}

/// Returns true if the contents of a file are others, and not only described otherwise.
fn replaces(name: &str, new: &Map<String, Value>) -> bool {
    name == "contents" && new.get("source").is_some_and(|source| !source.is_null())
}

/// Removes from each list the items that the second config has in another list of the same kind.
fn take_over(first: &mut Map<String, Value>, second: &Map<String, Value>) {
    for lists in SHARED {
        for name in lists {
            let others = lists.iter().filter(|other| *other != name);
            let elsewhere: HashSet<Cow<'_, str>> = others
                .filter_map(|other| Some((Key::of(other), second.get(*other)?.as_array()?)))
                .flat_map(|(key, items)| items.iter().map(move |item| key.read(item)))
                .collect();
            if elsewhere.is_empty() {
                continue;
            }
            if let Some(Value::Array(items)) = first.get_mut(*name) {
                let key = Key::of(name);
                items.retain(|item| !elsewhere.contains(&key.read(item)));
            }
        }
    }
}

/// Merges two lists. The first one grows with each config that is merged, so it is gone through once, in place.
fn merged_list(name: &str, mut old: Vec<Value>, new: Vec<Value>, level: Level<'_>) -> Vec<Value> {
    if APPENDED.contains(&name) || !level.is_shared(name, &new) {
        old.extend(new);
        return old;
    }
    let is_known = merge_known(name, &mut old, &new);
    old.extend(new.into_iter().zip(is_known).filter(|(_, is_known)| !is_known).map(|(item, _)| item));
    old
}

/// Merges the new items that the old list has; says of each whether it is one.
fn merge_known(name: &str, old: &mut Vec<Value>, new: &[Value]) -> Vec<bool> {
    let key = Key::of(name);
    let by_key: HashMap<Cow<'_, str>, &Value> = new.iter().map(|item| (key.read(item), item)).collect();
    let mut known: HashSet<&str> = HashSet::new();
    old.retain_mut(|item| {
        let Some((found, new)) = by_key.get_key_value(&*key.read(item)) else { return true };
        known.insert(found);
        match (new, item) {
            // A header without a value takes the one before away.
            (new, _) if name == "httpHeaders" && new.get("value").is_none_or(Value::is_null) => return false,
            (Value::Object(new), Value::Object(old)) => {
                *old = merged_objects(std::mem::take(old), new.clone(), Level::Inner);
            }
            (new, old) => *old = (*new).clone(),
        }
        true
    });
    new.iter().map(|item| known.contains(&*key.read(item))).collect()
}

/// Key of the items of a list.
#[derive(Clone, Copy)]
enum Key {
    /// By a field.
    Field(&'static str),
    /// Partitions: by their number, else by their label.
    Number,
    /// By themselves.
    Whole,
}

impl Key {
    fn of(list: &str) -> Self {
        let field = KEYS.iter().find(|(name, _)| *name == list).map(|(_, field)| Self::Field(field));
        field.unwrap_or(if list == "partitions" { Self::Number } else { Self::Whole })
    }

    /// Returns the key of an item; empty for one without a name.
    fn read(self, item: &Value) -> Cow<'_, str> {
        let whole = match self {
            Self::Field(field) => item.get(field).unwrap_or(item),
            Self::Whole => item,
            Self::Number => return number_or_label(item).unwrap_or_default().into(),
        };
        whole.as_str().unwrap_or_default().into()
    }
}

fn number_or_label(partition: &Value) -> Option<String> {
    let number = partition.get("number").and_then(Value::as_u64).filter(|number| *number != 0);
    let label = || partition.get("label").and_then(Value::as_str).map(|label| format!("label:{label}"));
    number.map(|number| format!("number:{number}")).or_else(label)
}

/// Drops empty values: nulls, and lists and objects without content. Equal meaning becomes equal text. Returns false if nothing is
/// left.
pub fn tidy(value: &mut Value) -> bool {
    match value {
        Value::Null => false,
        Value::Object(fields) => {
            fields.retain(|_, value| tidy(value));
            !fields.is_empty()
        }
        Value::Array(items) => {
            items.retain_mut(tidy);
            !items.is_empty()
        }
        Value::Bool(_) | Value::Number(_) | Value::String(_) => true,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn both(first: Value, second: Value) -> Value {
        let (Value::Object(first), Value::Object(second)) = (first, second) else { panic!("objects") };
        let found = merged(&[&first, &second]);
        assert_eq!(found, merged_objects(first, second, Level::Inner), "whatever is known of repeated keys");
        Value::Object(found)
    }

    fn tidied(mut value: Value) -> Option<Value> {
        tidy(&mut value).then_some(value)
    }

    /// Each line: its case; then the first config, the second, and both.
    const ROWS: &str = r#"
a file by its path, field by field
{"files": [{"path": "/a", "mode": 420, "contents": {"source": "data:,a"}}, {"path": "/b"}]}
{"files": [{"path": "/c"}, {"path": "/a", "mode": 384}]}
{"files": [{"path": "/a", "mode": 384, "contents": {"source": "data:,a"}}, {"path": "/b"}, {"path": "/c"}]}
new contents leave the compression and the digest of the old ones
{"files": [{"path": "/a", "contents": {"source": "data:,x", "compression": "gzip", "verification": {"hash": "sha256-0"}}}]}
{"files": [{"path": "/a", "contents": {"source": "data:,a"}}]}
{"files": [{"path": "/a", "contents": {"source": "data:,a"}}]}
another mode leaves the compression of contents that stay
{"files": [{"path": "/a", "contents": {"source": "data:,x", "compression": "gzip"}}]}
{"files": [{"path": "/a", "mode": 384}]}
{"files": [{"path": "/a", "mode": 384, "contents": {"source": "data:,x", "compression": "gzip"}}]}
what is appended to a file is appended
{"files": [{"path": "/a", "append": [{"source": "data:,a"}]}]}
{"files": [{"path": "/a", "append": [{"source": "data:,a"}]}]}
{"files": [{"path": "/a", "append": [{"source": "data:,a"}, {"source": "data:,a"}]}]}
a path becomes a link
{"files": [{"path": "/a"}, {"path": "/b"}]}
{"links": [{"path": "/a", "target": "b"}]}
{"files": [{"path": "/b"}], "links": [{"path": "/a", "target": "b"}]}
a unit by its name, a drop-in by its own
{"units": [{"name": "a.service", "enabled": true, "dropins": [{"name": "1.conf", "contents": "x"}]}]}
{"units": [{"name": "a.service", "enabled": false, "dropins": [{"name": "2.conf"}, {"name": "1.conf", "contents": "y"}]}]}
{"units": [{"name": "a.service", "enabled": false, "dropins": [{"name": "1.conf", "contents": "y"}, {"name": "2.conf"}]}]}
keys of a user once
{"users": [{"name": "core", "sshAuthorizedKeys": ["a", "b"]}]}
{"users": [{"name": "core", "sshAuthorizedKeys": ["c", "a"]}]}
{"users": [{"name": "core", "sshAuthorizedKeys": ["a", "b", "c"]}]}
a kernel argument is there or not
{"shouldExist": ["a", "b"]}
{"shouldNotExist": ["a"]}
{"shouldExist": ["b"], "shouldNotExist": ["a"]}
a header without a value goes
{"httpHeaders": [{"name": "a", "value": "1"}, {"name": "b", "value": "2"}]}
{"httpHeaders": [{"name": "a"}]}
{"httpHeaders": [{"name": "b", "value": "2"}]}
null says nothing
{"a": 1, "b": {"c": 2}}
{"a": null, "b": null}
{"a": 1, "b": {"c": 2}}
"#;

    #[test]
    fn later_config_wins_field_by_field() {
        let lines: Vec<&str> = ROWS.trim().lines().collect();
        for row in lines.chunks(4) {
            let [first, second, expected] = [1, 2, 3].map(|line| serde_json::from_str(row[line]).unwrap());
            assert_eq!(both(first, second), expected, "{}", row[0]);
        }
    }

    /// Each line: two configs, and the result of Ignition's own code (`tests/ignition-merge/make`).
    #[test]
    fn merges_as_ignition_does() {
        let lines = include_str!("../../tests/ignition-merge/pairs.jsonl");
        for line in lines.lines() {
            let [first, second, expected] = serde_json::from_str::<[Value; 3]>(line).unwrap();
            assert_eq!(tidied(both(first, second)), tidied(expected), "{line}");
        }
        assert!(lines.lines().count() > 50);
    }

    /// A path that is in the first and the last config, and one that is in one alone: as if two were merged at a time.
    #[test]
    fn many_configs_merge_as_pairs_do() {
        let config = |files: &[&str], unit: &str| {
            let files: Vec<Value> =
                files.iter().map(|path| json!({ "path": path, "mode": files.len() })).collect();
            let value = json!({ "storage": { "files": files }, "systemd": { "units": [{ "name": unit }] } });
            let Value::Object(config) = value else { panic!("an object") };
            config
        };
        let all = [
            config(&["/a", "/b"], "a"),
            config(&["/c"], "b"),
            config(&[], "a"),
            config(&["/d", "/a", "/e"], "c"),
        ];
        let whole = merged(&all.each_ref());
        let pairs =
            all.iter().fold(Map::new(), |first, second| merged_objects(first, second.clone(), Level::Inner));
        assert_eq!(whole, pairs);
        let paths: Vec<&Value> =
            whole["storage"]["files"].as_array().unwrap().iter().map(|file| &file["path"]).collect();
        assert_eq!(paths, ["/a", "/b", "/c", "/d", "/e"]);
        assert_eq!(whole["storage"]["files"][0]["mode"], 3);
    }

    #[test]
    fn empty_and_absent_are_same() {
        let tidy = tidied(json!({"a": null, "b": [], "c": {"d": {}}, "e": [{"f": ""}], "g": false}));
        assert_eq!(tidy, Some(json!({"e": [{"f": ""}], "g": false})));
        assert_eq!(tidied(json!({"a": []})), None);
    }
}
