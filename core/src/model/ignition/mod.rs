//! From an Ignition config to the parts of a [`HostSpec`].
//!
//! Versions 3.0 to 3.6 are read with the 3.6 schema: minors of Ignition 3 only add fields and relax required ones,
//! so the newest schema reads them all, one code path serves all, and two configs of different minors compare.
//! The version is checked first. Invariant of the result: no two entries write one path, no file or link is the
//! parent of another entry, everything is decoded, and no rule of Ignition's own validation is broken ([`rules`]): a new
//! machine could not read what a node takes. What was committed before is read without these rules ([`Reading`]).

mod files;
mod installed;
mod paths;
mod rules;
mod stale;
mod units;
mod users;
mod within;

use std::collections::{BTreeMap, HashMap};
use std::fmt;

use ignition_config::v3_6::{Config, Ignition, Proxy, Security, Storage, Timeouts};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::decode::Decoder;
use super::error::ModelError;
use super::faults::Faults;
use super::kargs::blank_kargs;
use super::reading::{self, Fault, Found, Mended};
use super::spec::FixedSections;
use super::text::short;
use super::units::{Mask, UnitSpec};
use super::{ConfigName, HostSpec, ManagedPath, NotApplied, NotAppliedReason, UnitName};
use rules::Violation;
use within::{Entries, Within};

pub use installed::installed_storage;
pub use stale::drop_stale_digests;

/// Strictness of a reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reading {
    /// A target: what a new machine could not read is refused.
    Target,
    /// A config that an agent committed: an earlier one took what this one refuses, and the node has to be able to leave it.
    Committed,
}

/// The versions that are read; the newest is the one MCO and Butane write next.
const VERSIONS: [&str; 7] = ["3.0.0", "3.1.0", "3.2.0", "3.3.0", "3.4.0", "3.5.0", "3.6.0"];

/// The newest of them.
pub(super) const NEWEST_VERSION: &str = "3.6.0";

/// Returns true if an Ignition config of this version is read.
pub fn is_version(version: &str) -> bool {
    VERSIONS.contains(&version)
}

#[derive(Deserialize)]
struct Versioned {
    #[serde(default)]
    ignition: Option<Header>,
}

#[derive(Deserialize)]
struct Header {
    #[serde(default)]
    version: Option<String>,
}

/// Reads `spec.config` into the spec. An empty object sets nothing.
pub(super) fn read_into(spec: &mut HostSpec, json: &str, reading: Reading, faults: &mut Faults) {
    let name = spec.name.clone();
    let within = Within(&name);
    let Some(mut read) = parse(within, json, faults) else { return };
    let Some(value) = read.value.take() else { return };
    let found = Found { value, unknown: std::mem::take(&mut read.unknown) };
    if read.faults.is_empty() {
        return fill(spec, within, found, reading, faults);
    }
    let mut of_value = Faults::default();
    fill(spec, within, found, reading, &mut of_value);
    let Some(of_value) = of_value.into_error() else { return };
    let of_value = of_value.explained(|text| read.explain(text));
    faults.add_others(of_value, |field| read.is_told(field));
}

/// The same from a tree.
pub(super) fn read_tree_into(spec: &mut HostSpec, tree: &Value, reading: Reading, faults: &mut Faults) {
    match reading::from_tree::<Config>(tree) {
        Ok(found) if VERSIONS.contains(&found.value.ignition.version.as_str()) => {
            let name = spec.name.clone();
            fill(spec, Within(&name), found, reading, faults);
        }
        // An empty one, or an error: it is named as that of a text.
        _ => read_into(spec, &tree.to_string(), reading, faults),
    }
}

/// Checks a config by the rules of Ignition alone, without decoding its files. An empty object sets nothing.
pub fn check_ignition(name: &ConfigName, config: &Map<String, Value>) -> Result<(), ModelError> {
    let within = Within(name);
    let mut faults = Faults::default();
    let config = match Config::deserialize(config) {
        Ok(config) if VERSIONS.contains(&config.ignition.version.as_str()) => Some(config),
        // As above.
        Ok(_) | Err(_) => {
            let text = serde_json::to_string(config).unwrap_or_default();
            parse(within, &text, &mut faults).and_then(|read| read.value)
        }
    };
    let broken = config.map(|config| rules::check(&config, minor(&config.ignition.version)));
    add_broken(&mut faults, within, broken.unwrap_or_default());
    faults.into_result(())
}

/// Reads the sections. The rules are looked at first, since reading takes the config apart; an error of the readers comes first all
/// the same: they know what MCD says of it.
fn fill(
    spec: &mut HostSpec,
    within: Within<'_>,
    found: Found<Config>,
    reading: Reading,
    faults: &mut Faults,
) {
    let Found { value: config, mut unknown } = found;
    unknown.extend(reading::newer(&config));
    spec.remarks.extend(reading::all_below("spec.config", unknown));
    let broken = match reading {
        Reading::Target => rules::check(&config, minor(&config.ignition.version)),
        Reading::Committed => Vec::new(),
    };
    if let (Some(field), Reading::Target) = (rules::names_configs(&config.ignition), reading) {
        faults.add(within.error(field, "it names other configs, which are not fetched; merge them into one"));
    }
    name_ignition(spec, &config.ignition);
    read_sections(spec, within, config, faults);
    add_broken(faults, within, broken);
}

/// The minor of a version that is read.
fn minor(version: &str) -> u32 {
    version.split('.').nth(1).and_then(|minor| minor.parse().ok()).unwrap_or_default()
}

/// Names what Ignition itself uses when it installs a host.
fn name_ignition(spec: &mut HostSpec, ignition: &Ignition) {
    let sections = [
        ("ignition.proxy", ignition.proxy.as_ref().is_some_and(|proxy| *proxy != Proxy::default())),
        (
            "ignition.security",
            ignition.security.as_ref().is_some_and(|security| *security != Security::default()),
        ),
        (
            "ignition.timeouts",
            ignition.timeouts.as_ref().is_some_and(|timeouts| *timeouts != Timeouts::default()),
        ),
    ];
    let message = "Ignition uses it when a host is installed; it changes nothing on this one";
    let set = sections.into_iter().filter(|(_, is_set)| *is_set);
    spec.remarks
        .extend(set.map(|(field, _)| NotApplied::new(field, NotAppliedReason::Installation, message)));
}

/// Adds the violations that no reader has named: of a part of its field it knows more.
fn add_broken(faults: &mut Faults, within: Within<'_>, broken: Vec<Violation>) {
    // Which of them the readers have counted alone, nobody knows.
    if faults.is_full() {
        return;
    }
    let known: Vec<String> =
        faults.kept().iter().filter_map(|fault| fault.field()).map(str::to_owned).collect();
    let is_known = |field: &str| {
        known.iter().any(|known| {
            // A value of another type is named by its place in the document.
            let known = known.strip_prefix("spec.config.").unwrap_or(known);
            field.strip_prefix(known).is_some_and(|rest| rest.is_empty() || known.ends_with(" contents"))
        })
    };
    for Violation { field, cause } in broken {
        if !is_known(&field) {
            faults.add(within.error(field, cause));
        }
    }
}

fn read_sections(spec: &mut HostSpec, within: Within<'_>, config: Config, faults: &mut Faults) {
    let mut decoder = Decoder::default();
    let storage = config.storage.unwrap_or_default();
    fixed_storage(&mut spec.fixed, &storage);
    fix(&mut spec.fixed, "kernelArguments", config.kernel_arguments.as_ref());
    for list in config.kernel_arguments.iter().flat_map(|one| [&one.should_exist, &one.should_not_exist]) {
        spec.remarks.extend(blank_kargs("kernelArguments", list.as_deref().unwrap_or_default()));
    }
    let passwd = config.passwd.unwrap_or_default();
    let mut entries = Entries { within, faults, remarks: &mut spec.remarks };
    let users = passwd.users.unwrap_or_default();
    spec.users = users::read(&mut entries, users, passwd.groups.unwrap_or_default());
    spec.files = files::read(&mut entries, storage.files.unwrap_or_default(), &mut decoder);
    let version = &config.ignition.version;
    spec.directories = paths::directories(&mut entries, version, storage.directories.unwrap_or_default());
    spec.links = paths::links(&mut entries, storage.links.unwrap_or_default());
    let units = config.systemd.and_then(|systemd| systemd.units).unwrap_or_default();
    (spec.units, spec.unwritten) = units::read(&mut entries, units);
    one_writer(within, spec, faults);
}

/// Reads a config as far as it goes; `None` for an empty one, and for one of a version whose fields nobody knows here.
fn parse(within: Within<'_>, json: &str, faults: &mut Faults) -> Option<Mended<Config>> {
    if json.trim() == "{}" {
        return None;
    }
    let is_supported = |version: &str| VERSIONS.contains(&version);
    let mut read = reading::mended_text::<Config>(json);
    if let (Some(config), true) = (&read.value, read.faults.is_empty())
        && is_supported(&config.ignition.version)
    {
        return Some(read);
    }
    // One pass more, so that an error of the version is reported first.
    let versioned = reading::mended_text::<Versioned>(json).value;
    let version = versioned.and_then(|read| read.ignition).and_then(|ignition| ignition.version);
    // The one of the version says more.
    let is_of_version = |fault: &Fault| ["ignition", VERSION].contains(&&*fault.field);
    read.faults.retain(|fault| !(is_of_version(fault) && fault.is_missing()));
    let is_told = read.faults.iter().any(|fault| is_of_version(fault) || fault.field.is_empty());
    if !version.as_deref().is_some_and(is_supported) && !is_told {
        let found = version.as_ref().map_or("missing".to_owned(), |found| format!("{:?}", short(found, 40)));
        let cause =
            format!("it is {found}; supported versions are 3.0.0 to 3.6.0, convert the config to one");
        faults.add(within.error(format!("spec.config.{VERSION}"), cause));
        if version.is_some() {
            return None;
        }
    }
    for fault in &read.faults {
        let field = reading::below("spec.config", &fault.field);
        let whole = if fault.field.is_empty() { "it is not an Ignition config: " } else { "" };
        faults.add(within.unread(field, format!("{whole}{}", fault.cause())));
    }
    // Without a version the newest fields count.
    if let Some(config) = read.value.as_mut().filter(|config| !is_supported(&config.ignition.version)) {
        NEWEST_VERSION.clone_into(&mut config.ignition.version);
    }
    Some(read)
}

/// The field that says of which version a config is.
const VERSION: &str = "ignition.version";

fn fixed_storage(fixed: &mut FixedSections, storage: &Storage) {
    fn filled<T>(list: Option<&Vec<T>>) -> Option<&Vec<T>> {
        list.filter(|list| !list.is_empty())
    }
    fix(fixed, "storage.disks", filled(storage.disks.as_ref()));
    fix(fixed, "storage.filesystems", filled(storage.filesystems.as_ref()));
    fix(fixed, "storage.raid", filled(storage.raid.as_ref()));
    fix(fixed, "storage.luks", filled(storage.luks.as_ref()));
}

/// Keeps a section for comparison, without nulls and empty parts: leaving a field out or writing null is the same.
fn fix<T: Serialize>(fixed: &mut FixedSections, name: &'static str, section: Option<&T>) {
    let tree = serde_json::to_value(section).ok().and_then(without_nulls);
    if let Some(tree) = tree {
        fixed.sections.insert(name, tree.to_string());
    }
}

fn without_nulls(tree: Value) -> Option<Value> {
    match tree {
        Value::Null => None,
        Value::Array(list) => {
            let list: Vec<_> = list.into_iter().filter_map(without_nulls).collect();
            (!list.is_empty()).then_some(Value::Array(list))
        }
        Value::Object(map) => {
            let map: serde_json::Map<_, _> =
                map.into_iter().filter_map(|(key, value)| Some((key, without_nulls(value)?))).collect();
            (!map.is_empty()).then_some(Value::Object(map))
        }
        Value::Bool(_) | Value::Number(_) | Value::String(_) => Some(tree),
    }
}

/// Refuses two entries that write one path, and a file or a link in the place of a directory that another entry needs.
fn one_writer(within: Within<'_>, spec: &HostSpec, faults: &mut Faults) {
    let of_units: Vec<(ManagedPath, &UnitName)> =
        spec.units.iter().flat_map(|(name, unit)| paths(name, unit)).collect();
    let mut writers: HashMap<&str, Writer<'_>> =
        spec.files.keys().map(|path| (path.as_str(), Writer::File(path.as_str()))).collect();
    let directories = spec.directories.keys().map(|path| (path.as_str(), Writer::Directory(path.as_str())));
    let links = spec.links.keys().map(|path| (path.as_str(), Writer::Link(path.as_str())));
    let units = of_units.iter().map(|(path, name)| (path.as_str(), Writer::Unit(name.as_str())));
    for (path, writer) in directories.chain(links).chain(units) {
        if let Some(other) = writers.insert(path, writer) {
            let cause = format!("{other} writes {path} too; keep one of them");
            faults.add(within.unreachable(writer.to_string(), cause));
        }
    }
    // By their order: of several errors the same one is reported first each time.
    let stored = spec.files.keys().chain(spec.directories.keys()).chain(spec.links.keys());
    let ordered = stored.chain(of_units.iter().map(|(path, _)| path));
    let blocked = ordered.filter_map(|path| Some((path.as_str(), above(path.as_str(), &writers)?)));
    let blocked: BTreeMap<&str, (&str, Writer<'_>)> = blocked.collect();
    for (path, (parent, other)) in blocked {
        let field = writers.get(path).map(ToString::to_string).unwrap_or_default();
        let cause =
            format!("{other} writes {parent}, which has to be a directory for {path}; move one of them");
        faults.add(within.unreachable(field, cause));
    }
    dead_ends(within, spec, faults);
}

/// Refuses hard links that can't lead to a file.
fn dead_ends(within: Within<'_>, spec: &HostSpec, faults: &mut Faults) {
    for path in spec.links.keys() {
        if let Some(cause) = paths::dead_end(path, &spec.links, &spec.directories) {
            faults.add(within.unreachable(format!("storage.links {:?} target", path.as_str()), cause));
        }
    }
}

/// Entry that writes a path.
#[derive(Clone, Copy)]
enum Writer<'a> {
    File(&'a str),
    Directory(&'a str),
    Link(&'a str),
    Unit(&'a str),
}

impl fmt::Display for Writer<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "storage.files {path:?}"),
            Self::Directory(path) => write!(f, "storage.directories {path:?}"),
            Self::Link(path) => write!(f, "storage.links {path:?}"),
            Self::Unit(name) => write!(f, "systemd.units {name:?}"),
        }
    }
}

/// Returns the paths that a unit writes.
fn paths<'a>(name: &'a UnitName, unit: &'a UnitSpec) -> impl Iterator<Item = (ManagedPath, &'a UnitName)> {
    let own = (unit.contents.is_some() || unit.mask == Mask::Masked).then(|| name.path());
    own.into_iter()
        .chain(unit.dropins.keys().map(|dropin| name.dropin_path(dropin)))
        .map(move |path| (path, name))
}

/// Returns the first path above a path that another entry makes something else of than a directory.
fn above<'a>(path: &'a str, writers: &HashMap<&str, Writer<'a>>) -> Option<(&'a str, Writer<'a>)> {
    let mut above = path;
    while let Some((parent, _)) = above.rsplit_once('/').filter(|(parent, _)| !parent.is_empty()) {
        above = parent;
        match writers.get(parent) {
            None | Some(Writer::Directory(_)) => {}
            Some(other @ (Writer::File(_) | Writer::Link(_) | Writer::Unit(_))) => {
                return Some((parent, *other));
            }
        }
    }
    None
}
