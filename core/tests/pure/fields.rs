//! Each field of a config has a fate, and the page lists them all.

use std::cell::RefCell;
use std::collections::BTreeSet;

use serde::Deserialize;
use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde::forward_to_deserialize_any;

use machine_config_core::model::fate::{FieldFate, OF_IGNITION, OF_SPEC};
use machine_config_core::model::machineconfig::MachineConfig;
use machine_config_core::model::observation::{ObservedOs, ObservedUnit, UnitFilePreset, UnitFileState};
use machine_config_core::model::units::Mask;
use machine_config_core::model::{HostSpec, Observation, UnitName};
use machine_config_core::plan::not_applied;

/// A deserializer that gives each type what it asks for, and notes the fields of its structs.
#[derive(Clone)]
struct Walker<'a> {
    path: String,
    found: &'a RefCell<BTreeSet<String>>,
}

type Failed = de::value::Error;

impl<'de> Deserializer<'de> for Walker<'_> {
    type Error = Failed;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failed> {
        visitor.visit_unit()
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failed> {
        visitor.visit_bool(true)
    }

    fn deserialize_i64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failed> {
        visitor.visit_i64(1)
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failed> {
        visitor.visit_str("x")
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failed> {
        visitor.visit_some(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failed> {
        let inner = Walker { path: format!("{}[]", self.path), ..self };
        visitor.visit_seq(Once(Some(inner)))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Failed> {
        visitor.visit_map(Fields { names: fields.iter(), walker: self, next: None })
    }

    forward_to_deserialize_any! {
        i8 i16 i32 u8 u16 u32 u64 f32 f64 char str bytes byte_buf unit unit_struct newtype_struct tuple
        tuple_struct map enum identifier ignored_any
    }
}

struct Once<'a>(Option<Walker<'a>>);

impl<'de> SeqAccess<'de> for Once<'_> {
    type Error = Failed;
    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Failed> {
        self.0.take().map(|walker| seed.deserialize(walker)).transpose()
    }
}

struct Fields<'a> {
    names: std::slice::Iter<'static, &'static str>,
    walker: Walker<'a>,
    next: Option<Walker<'a>>,
}

impl<'de> MapAccess<'de> for Fields<'_> {
    type Error = Failed;
    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Failed> {
        let Some(field) = self.names.next() else { return Ok(None) };
        let parent = &self.walker.path;
        let path = if parent.is_empty() { (*field).to_owned() } else { format!("{parent}.{field}") };
        self.walker.found.borrow_mut().insert(path.clone());
        self.next = Some(Walker { path, found: self.walker.found });
        seed.deserialize(de::value::StrDeserializer::<Failed>::new(field)).map(Some)
    }
    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Failed> {
        seed.deserialize(self.next.take().unwrap())
    }
}

fn fields_of<T: for<'de> Deserialize<'de>>() -> BTreeSet<String> {
    let found = RefCell::new(BTreeSet::new());
    T::deserialize(Walker { path: String::new(), found: &found }).unwrap_or_else(|error| panic!("{error}"));
    found.into_inner()
}

/// The fields of all minors of Ignition 3 that are read.
fn fields_of_ignition() -> BTreeSet<String> {
    let mut all = fields_of::<ignition_config::v3_0::Config>();
    all.extend(fields_of::<ignition_config::v3_1::Config>());
    all.extend(fields_of::<ignition_config::v3_2::Config>());
    all.extend(fields_of::<ignition_config::v3_3::Config>());
    all.extend(fields_of::<ignition_config::v3_4::Config>());
    all.extend(fields_of::<ignition_config::v3_5::Config>());
    all.extend(fields_of::<ignition_config::v3_6::Config>());
    all
}

/// A version that the library learns has to be in the list above.
#[test]
fn no_later_ignition_is_known_than_the_listed_ones() {
    let parse = |version: &str| {
        ignition_config::Config::parse_str(&format!("{{\"ignition\": {{\"version\": \"{version}\"}}}}"))
    };
    assert!(parse("3.6.0").is_ok());
    for version in ["3.7.0", "3.8.0", "4.0.0"] {
        assert!(parse(version).is_err(), "{version} is read: add it to `fields_of_ignition`");
    }
}

/// Returns true if a field has fields of its own.
fn is_parent(field: &str, all: &BTreeSet<String>) -> bool {
    let below = |other: &String| other.strip_prefix(field).is_some_and(|rest| rest.starts_with(['.', '[']));
    all.iter().any(below)
}

/// A field that a new version of the schema brings fails here until somebody has decided what becomes of it.
#[test]
fn every_field_of_ignition_has_one_fate() {
    let all = fields_of_ignition();
    assert!(all.len() > 150, "{}", all.len());
    for field in all.iter().filter(|field| !is_parent(field, &all)) {
        let rows: Vec<_> = OF_IGNITION.iter().filter(|row| row.covers(field)).map(|row| row.field).collect();
        assert_eq!(rows.len(), 1, "{field}: {rows:?}");
    }
    for row in OF_IGNITION {
        assert!(all.iter().any(|field| row.covers(field)), "{}: no version has it", row.field);
    }
}

/// Rows of the table; a row that stands for several fields names them.
fn rows(table: &[FieldFate], all: &BTreeSet<String>) -> String {
    let row = |row: &FieldFate| format!("| `{}` | {} | {} |\n", row.field, row.fate.as_str(), row.note);
    let covered = |one: &&FieldFate| all.is_empty() || all.iter().any(|field| one.covers(field));
    table.iter().filter(covered).map(row).collect()
}

/// A field as plans and errors name it is a row of the table: an entry by its path or name, and what is below it after a space.
#[test]
fn named_fields_are_those_of_the_table() {
    let text = r#"{"kind":"MachineConfig","metadata":{"name":"a"},"spec":{"fips":true,"kernelArguments":["a"],"kernelType":"realtime",
        "extensions":["usbguard"],"config":{"ignition":{"version":"3.4.0","proxy":{"httpProxy":"http://a"},"timeouts":{"httpTotal":9},
        "security":{"tls":{"certificateAuthorities":[{"source":"data:,ca"}]}}},"kernelArguments":{"shouldExist":["x"]},
        "passwd":{"users":[{"name":"core","sshAuthorizedKeys":["ssh-rsa a"]}]},
        "storage":{"disks":[{"device":"/dev/vda","wipeTable":true}],"filesystems":[{"device":"/dev/vdb","format":"xfs","path":"/a"}],
        "raid":[{"name":"r","level":"raid1","devices":["/dev/vdc","/dev/vdd"]}],"luks":[{"name":"l","device":"/dev/vde","clevis":{"tpm2":true}}]},
        "systemd":{"units":[{"name":"a.service","enabled":true}]}}}}"#;
    let spec = MachineConfig::parse(text.as_bytes(), "a").unwrap().spec(None).unwrap();
    let bare = HostSpec::empty(spec.name.clone());
    let mut observed = Observation::as_specified(&bare).unwrap();
    observed.accounts.clear();
    observed.os = ObservedOs::NotImageBased;
    let unit =
        ObservedUnit { enabled: UnitFileState::NotFound, preset: UnitFilePreset::Enable, mask: Mask::Unset };
    observed.units.insert(UnitName::new("a.service").unwrap(), unit);
    let named = not_applied(&spec, &observed);
    assert!(named.len() >= 13, "{named:?}");
    for one in named {
        let mut field = String::new();
        for word in one.field.split(' ') {
            match word.starts_with('"') {
                true => field += "[]",
                false if field.is_empty() => field += word,
                false => field += &format!(".{word}"),
            }
        }
        let is_it = |row: &FieldFate| {
            let row = row.field.strip_suffix(".*").unwrap_or(row.field);
            row == field || row.strip_prefix(&*field).is_some_and(|rest| rest.starts_with('.'))
        };
        assert!(OF_IGNITION.iter().chain(OF_SPEC).any(is_it), "{}", one.field);
    }
}

#[test]
fn page_lists_each_field_with_its_fate() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/fields.md");
    let text = std::fs::read_to_string(page).unwrap();
    let head = "| field | fate | note |\n|---|---|---|\n";
    let tables = [rows(OF_SPEC, &BTreeSet::new()), rows(OF_IGNITION, &fields_of_ignition())];
    let (mut made, mut rest) = (String::new(), text.as_str());
    for table in tables {
        let (before, after) = rest.split_once(head).unwrap();
        made += &format!("{before}{head}{table}");
        let old: usize =
            after.split_inclusive('\n').take_while(|line| line.starts_with('|')).map(str::len).sum();
        rest = &after[old..];
    }
    made += rest;
    if std::env::var_os("UPDATE_GOLDENS").is_some() {
        std::fs::write(page, &made).unwrap();
    }
    assert_eq!(text, made, "UPDATE_GOLDENS=1 cargo test -p machine-config-core --test pure fields");
}
