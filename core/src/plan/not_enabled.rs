//! Units that a config enables and that have nothing to be enabled by: no unit file on this host, or no `[Install]` section that makes
//! a link.
//!
//! systemctl(1) fails on the first, and says so of the second; Ignition writes a preset that matches nothing. The host is as it
//! would be without the field.

use std::collections::{BTreeMap, BTreeSet};

use crate::model::observation::{ObservedUnit, UnitFileState};
use crate::model::units::{Enablement, Mask, UnitSpec};
use crate::model::{FileSpec, HostSpec, NotApplied, NotAppliedReason, Observation, UnitName};

use super::compare::holds;
use super::reason::{ReasonKind, Unreachable, unreachable};

/// Units as an update leaves them, where that is known.
type KnownUnits = BTreeMap<UnitName, ObservedUnit>;

/// Returns the units of a spec that are enabled in it alone.
pub(super) fn units(spec: &HostSpec, observed: &Observation, known: &KnownUnits) -> Vec<NotApplied> {
    let enabled = spec
        .units
        .iter()
        .filter(|(_, unit)| unit.enablement == Enablement::Enabled && unit.mask != Mask::Masked);
    let named = enabled.filter_map(|(name, unit)| {
        let message = match known.get(name) {
            Some(after) => of_state(unit, after.enabled),
            None => of_host((name, unit), *observed.units.get(name)?, observed),
        };
        message.map(|message| NotApplied::new(field(name), NotAppliedReason::HostLacks, message))
    });
    named.collect()
}

/// Returns true if a unit comes with the OS, or not at all: another OS may have it.
pub(super) fn is_of_os(unit: &UnitSpec) -> bool {
    unit.contents.is_none()
}

/// Names the field.
pub(super) fn field(name: &UnitName) -> String {
    format!("{} enabled", unit_field(name))
}

/// Names the entry.
pub(super) fn unit_field(name: &UnitName) -> String {
    format!("systemd.units {:?}", name.as_str())
}

/// Returns why a unit in this state is not enabled.
fn of_state(unit: &UnitSpec, state: UnitFileState) -> Option<&'static str> {
    match state {
        UnitFileState::NotFound if unit.contents.is_none() => Some(NOT_FOUND),
        UnitFileState::Static => Some(NOTHING),
        UnitFileState::NotFound
        | UnitFileState::Enabled
        | UnitFileState::Partial
        | UnitFileState::Disabled
        | UnitFileState::Masked => None,
    }
}

fn of_host(
    (name, unit): (&UnitName, &UnitSpec),
    found: ObservedUnit,
    observed: &Observation,
) -> Option<&'static str> {
    // What is observed may be an earlier version, which this one replaces.
    if unit.contents.is_some() && !is_written(name, unit, observed) {
        return (!installs(name, unit)).then_some(NOTHING);
    }
    of_state(unit, found.enabled)
}

const NOT_FOUND: &str = "this host has no such unit file, so nothing is enabled; install what brings it, then `systemctl enable` it, or \
                         remove the entry";
const NOTHING: &str = "the unit has no [Install] section that makes a link, so nothing is enabled, and it runs only where another unit \
                       wants it; add one (WantedBy=), or remove `enabled`";

/// Keys of `[Install]` that make links, of the unit or of another one.
const MAKES_LINKS: [&str; 5] = ["WantedBy", "RequiredBy", "UpheldBy", "Alias", "Also"];

fn installs(name: &UnitName, unit: &UnitSpec) -> bool {
    let mut set = BTreeSet::new();
    for contents in unit.contents.iter().chain(unit.dropins.values()) {
        let text = String::from_utf8_lossy(contents.bytes());
        for (key, value) in install_settings(&text) {
            let key = MAKES_LINKS.iter().find(|one| **one == key);
            if value.is_empty() {
                set.retain(|one| Some(one) != key);
            } else if value != name.as_str() {
                set.extend(key);
            }
        }
    }
    !set.is_empty()
}

/// Returns the templates of a config that are enabled and name no instance: no host can link them.
pub(super) fn templates_without_instance(to: &HostSpec) -> Vec<Unreachable> {
    let is_enabled = |unit: &UnitSpec| unit.enablement == Enablement::Enabled && unit.mask != Mask::Masked;
    let is_template = |name: &UnitName| name.as_str().contains("@.");
    let found = to.units.iter().filter(|(name, unit)| {
        is_template(name) && is_enabled(unit) && unit.contents.is_some() && is_wanted_as_template(unit)
    });
    let cause = "it is a template: name an instance, or give it DefaultInstance=";
    found.map(|(name, _)| not_enabled(ReasonKind::TemplateWithoutInstance, name, cause)).collect()
}

/// Refuses a unit whose links can't be made.
pub(super) fn not_enabled(kind: ReasonKind, name: &UnitName, cause: &str) -> Unreachable {
    let message = format!(
        "unit {name} can't be enabled: {cause}; correct the unit (systemctl cat {name}) or its entry in the MachineConfig"
    );
    unreachable(kind, unit_field(name), message)
}

/// Keys of `[Install]` whose links are to the unit itself.
const WANTED: [&str; 3] = ["WantedBy", "RequiredBy", "UpheldBy"];

/// Returns true if a plain unit would have a link to the template itself. One that names an instance, or takes a list back, is for
/// the plan to judge.
fn is_wanted_as_template(unit: &UnitSpec) -> bool {
    let mut is_wanted = false;
    for contents in unit.contents.iter().chain(unit.dropins.values()) {
        let text = String::from_utf8_lossy(contents.bytes());
        for (key, value) in install_settings(&text) {
            let is_list = WANTED.contains(&key);
            if key == "DefaultInstance" || (is_list && value.is_empty()) {
                return false;
            }
            is_wanted |= is_list && value.split_whitespace().any(|target| !target.contains(['@', '%']));
        }
    }
    is_wanted
}

/// Returns the settings of the `[Install]` sections of a text.
fn install_settings(text: &str) -> Vec<(&str, &str)> {
    let (mut inside, mut settings) = (false, Vec::new());
    for line in text.lines().map(str::trim) {
        if line.starts_with('[') {
            inside = line == "[Install]";
        } else if let (true, Some((key, value))) = (inside, line.split_once('=')) {
            settings.push((key.trim_end(), value.trim()));
        }
    }
    settings
}

/// Returns true if the host has the unit as the config has it.
fn is_written(name: &UnitName, unit: &UnitSpec, observed: &Observation) -> bool {
    let file = unit.contents.iter().map(|contents| (name.path(), contents));
    let dropins = unit.dropins.iter().map(|(dropin, contents)| (name.dropin_path(dropin), contents));
    file.chain(dropins).all(|(path, contents)| {
        let desired = FileSpec::of_unit(contents.clone());
        holds(&path, &desired, observed)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::ObservedFile;
    use crate::model::machineconfig::MachineConfig;
    use crate::model::observation::UnitFilePreset;

    fn spec(unit: &str) -> HostSpec {
        let text = format!(
            r#"{{"kind":"MachineConfig","metadata":{{"name":"rendered-a"}},"spec":{{"config":{{"ignition":{{"version":"3.4.0"}},
            "systemd":{{"units":[{unit}]}}}}}}}}"#
        );
        MachineConfig::parse(text.as_bytes(), "rendered-a").unwrap().spec(None).unwrap()
    }

    fn named(unit: &str, state: UnitFileState, is_written: bool) -> Vec<String> {
        let spec = spec(unit);
        let mut observed = Observation::as_specified(&spec).unwrap();
        let found = ObservedUnit { enabled: state, preset: UnitFilePreset::Enable, mask: Mask::Unset };
        observed.units.insert(UnitName::new("a.service").unwrap(), found);
        if !is_written {
            observed.files.values_mut().for_each(|file| *file = ObservedFile::Absent);
        }
        units(&spec, &observed, &KnownUnits::new()).into_iter().map(|one| one.to_string()).collect()
    }

    const PLAIN: &str = r#"{"name":"a.service","enabled":true}"#;
    const BARE: &str = r#"{"name":"a.service","enabled":true,"contents":"[Service]\nExecStart=/bin/a\n"}"#;
    const WHOLE: &str = r#"{"name":"a.service","enabled":true,"contents":"[Install]\nWantedBy=a.target\n"}"#;
    const DROPIN: &str = r#"{"name":"a.service","enabled":true,"contents":"[Service]\nExecStart=/bin/a\n",
        "dropins":[{"name":"i.conf","contents":"[Install]\nWantedBy=a.target\n"}]}"#;

    #[test]
    fn unit_without_anything_to_enable_is_named() {
        use UnitFileState::{Disabled, Enabled, Masked, NotFound, Static};
        for (unit, state, is_written, word) in [
            (PLAIN, NotFound, true, "no such unit file"),
            (PLAIN, Static, true, "no [Install] section"),
            (PLAIN, Enabled, true, ""),
            (PLAIN, Disabled, true, ""),
            (PLAIN, Masked, true, ""),
            (BARE, Static, true, "no [Install] section"),
            (BARE, NotFound, false, "no [Install] section"),
            // It was there, with another text.
            (BARE, Enabled, false, "no [Install] section"),
            // A drop-in of the host brings the section.
            (BARE, Enabled, true, ""),
            (WHOLE, NotFound, false, ""),
            (WHOLE, Static, false, ""),
            (WHOLE, Enabled, true, ""),
            (DROPIN, NotFound, false, ""),
            (DROPIN, Enabled, true, ""),
        ] {
            let found = named(unit, state, is_written);
            assert_eq!(found.len(), usize::from(!word.is_empty()), "{unit} {state:?}: {found:?}");
            assert!(
                found.iter().all(
                    |one| one.starts_with(r#"systemd.units "a.service" enabled: "#) && one.contains(word)
                )
            );
        }
        for other in ["false", "null"] {
            assert_eq!(named(&PLAIN.replace("true", other), NotFound, true), Vec::<String>::new());
        }
    }
}
