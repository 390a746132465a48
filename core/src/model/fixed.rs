//! The parts of a config that only an installation makes, entry by entry, and what shows on a host that it was done.

use serde_json::Value;

use super::Karg;
use super::spec::FixedSections;

/// The field of the FIPS mode, which is switched on when a host is installed.
pub const FIPS_FIELD: &str = "spec.fips";

/// An entry that Ignition makes when a host is installed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FixedEntry {
    /// The field, such as `storage.luks "data"`.
    pub field: String,
    /// Evidence that it was made.
    pub evidence: Evidence,
    /// The section it is of.
    section: &'static str,
    value: Value,
}

/// Evidence on a host that an entry was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Evidence {
    /// A file system of its own is mounted here.
    MountedAt(String),
    /// All these devices are there.
    Devices(Vec<String>),
    /// The command line of the kernel.
    Kargs {
        /// It has these.
        present: Vec<Karg>,
        /// It has none of these.
        absent: Vec<Karg>,
    },
    /// Nothing that can be looked at cheaply.
    Nothing,
}

impl FixedEntry {
    /// Returns true if the other entry asks for the same.
    pub fn is_same(&self, other: &Self) -> bool {
        (self.section, &self.value) == (other.section, &other.value)
    }
}

impl FixedSections {
    /// Returns the entries of disks, arrays, encrypted volumes, file systems and Ignition's kernel arguments.
    pub fn entries(&self) -> Vec<FixedEntry> {
        let read = |(section, text): (&&'static str, &String)| {
            let value: Value = serde_json::from_str(text).unwrap_or_default();
            of_section(section, value)
        };
        self.sections.iter().flat_map(read).collect()
    }

    /// Returns the entries of one section.
    pub fn entries_of(&self, section: &str) -> Vec<FixedEntry> {
        self.entries().into_iter().filter(|entry| entry.section == section).collect()
    }
}

fn of_section(section: &'static str, value: Value) -> Vec<FixedEntry> {
    let evidence: fn(&Value) -> Evidence = match section {
        "storage.disks" => partitions,
        "storage.raid" => |entry| named("/dev/md/", entry),
        "storage.luks" => |entry| named("/dev/mapper/", entry),
        "storage.filesystems" => file_system,
        "kernelArguments" => {
            let evidence = kernel_arguments(&value);
            return vec![FixedEntry { field: section.to_owned(), evidence, section, value }];
        }
        _ => return Vec::new(),
    };
    let Value::Array(list) = value else { return Vec::new() };
    let entry = |value: Value| {
        let name = ["name", "path", "device"].iter().find_map(|key| text(&value, key)).unwrap_or_default();
        let evidence = evidence(&value);
        FixedEntry { field: format!("{section} {:?}", super::short(name, 200)), evidence, section, value }
    };
    list.into_iter().map(entry).collect()
}

fn text<'a>(entry: &'a Value, key: &str) -> Option<&'a str> {
    entry.get(key).and_then(Value::as_str).filter(|text| !text.is_empty())
}

fn named(directory: &str, entry: &Value) -> Evidence {
    text(entry, "name")
        .map_or(Evidence::Nothing, |name| Evidence::Devices(vec![format!("{directory}{name}")]))
}

/// A partition is seen by its label; one without a label shows nothing.
fn partitions(disk: &Value) -> Evidence {
    let list = disk.get("partitions").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let labels = list.iter().map(|partition| text(partition, "label"));
    let devices: Option<Vec<String>> =
        labels.map(|label| Some(format!("/dev/disk/by-partlabel/{}", label?))).collect();
    devices.filter(|devices| !devices.is_empty()).map_or(Evidence::Nothing, Evidence::Devices)
}

/// One without a path is seen by its label.
fn file_system(entry: &Value) -> Evidence {
    if let Some(path) = text(entry, "path").filter(|path| *path != "none") {
        return Evidence::MountedAt(path.to_owned());
    }
    let label = text(entry, "label").map(|label| format!("/dev/disk/by-label/{label}"));
    label.map_or(Evidence::Nothing, |device| Evidence::Devices(vec![device]))
}

fn kernel_arguments(value: &Value) -> Evidence {
    let list = |key: &str| {
        let entries = value.get(key).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        entries.iter().filter_map(Value::as_str).flat_map(Karg::split).collect()
    };
    Evidence::Kargs { present: list("shouldExist"), absent: list("shouldNotExist") }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn sections(list: &[(&'static str, &str)]) -> FixedSections {
        FixedSections { sections: list.iter().map(|(name, text)| (*name, (*text).to_owned())).collect() }
    }

    #[test]
    fn each_entry_has_its_field_and_its_evidence() {
        let fixed = sections(&[
            ("kernelArguments", r#"{"shouldExist":["a=1 b"],"shouldNotExist":["quiet"]}"#),
            ("storage.directories", r#"[{"path":"/etc/a"}]"#),
            (
                "storage.disks",
                r#"[{"device":"/dev/vda","partitions":[{"label":"data"}]},{"device":"/dev/vdb","partitions":[{"number":1}]}]"#,
            ),
            (
                "storage.filesystems",
                r#"[{"device":"/dev/x","path":"/var/lib/a"},{"device":"/dev/y","label":"SWAP","format":"swap"}]"#,
            ),
            ("storage.luks", r#"[{"name":"data"}]"#),
            ("storage.raid", r#"[{"name":"md-a"}]"#),
        ]);
        let devices = |path: &str| Evidence::Devices(vec![path.to_owned()]);
        let found: BTreeMap<String, Evidence> =
            fixed.entries().into_iter().map(|entry| (entry.field, entry.evidence)).collect();
        let kargs = Evidence::Kargs { present: Karg::split("a=1 b"), absent: Karg::split("quiet") };
        assert_eq!(
            found,
            BTreeMap::from([
                ("kernelArguments".to_owned(), kargs),
                (r#"storage.disks "/dev/vda""#.to_owned(), devices("/dev/disk/by-partlabel/data")),
                (r#"storage.disks "/dev/vdb""#.to_owned(), Evidence::Nothing),
                (
                    r#"storage.filesystems "/var/lib/a""#.to_owned(),
                    Evidence::MountedAt("/var/lib/a".to_owned())
                ),
                (r#"storage.filesystems "/dev/y""#.to_owned(), devices("/dev/disk/by-label/SWAP")),
                (r#"storage.luks "data""#.to_owned(), devices("/dev/mapper/data")),
                (r#"storage.raid "md-a""#.to_owned(), devices("/dev/md/md-a")),
            ])
        );
    }

    #[test]
    fn entry_of_another_section_is_not_same() {
        let one = sections(&[("storage.luks", r#"[{"name":"a"}]"#)]).entries();
        let other = sections(&[("storage.raid", r#"[{"name":"a"}]"#)]).entries();
        assert!(one[0].is_same(&one[0]) && !one[0].is_same(&other[0]));
    }
}
