//! Fields of a config that this host does not get: named in the plan, the status, `verify` and a condition, never dropped in
//! silence.

use std::collections::BTreeMap;

use super::input::PlanInput;
use super::installation::missing;
use super::{Batch, Op, Step, kargs, late, no_effect, not_enabled, os};
use crate::model::fixed::FIPS_FIELD;
use crate::model::observation::ObservedUnit;
use crate::model::users::keys_field;
use crate::model::{Facts, HostSpec, ManagedPath, NotApplied, NotAppliedReason, Observation, UnitName};

/// Returns what is not applied of a spec on the observed host, in the order of the fields.
pub fn not_applied(spec: &HostSpec, observed: &Observation) -> Vec<NotApplied> {
    found(spec, observed, &BTreeMap::new())
}

fn found(
    spec: &HostSpec,
    observed: &Observation,
    units: &BTreeMap<UnitName, ObservedUnit>,
) -> Vec<NotApplied> {
    let storage = spec.fixed.entries().into_iter().filter_map(|entry| missing(&entry, observed));
    let mut found: Vec<NotApplied> = spec.remarks.iter().cloned().chain(storage).collect();
    found.extend(fips(spec, observed));
    found.extend(os::fields_without_os(spec, observed).map(without_os));
    found.extend(extensions_image(spec, observed));
    found.extend(kargs::of_image_missing(spec, observed));
    found.extend(late::accounts(spec, observed));
    found.extend(not_enabled::units(spec, observed, units));
    found.extend(no_effect::fields(spec, observed, units));
    found.sort();
    found.dedup();
    found
}

/// Returns what a plan does not apply if its units are known as it leaves them.
pub(super) fn known(
    (from, to): (&HostSpec, &HostSpec),
    facts: &Facts,
    units: &BTreeMap<UnitName, ObservedUnit>,
) -> Vec<NotApplied> {
    let mut found = found(to, &facts.observed, units);
    drop_leaving((from, to), facts, &mut found);
    found
}

/// A file of the old config is no file of the host: it leaves.
fn drop_leaving((from, to): (&HostSpec, &HostSpec), facts: &Facts, found: &mut Vec<NotApplied>) {
    let managed = from.managed();
    let leaves = |path: &ManagedPath| managed.contains(path) && !facts.restorable.contains(path);
    let fields: Vec<&String> =
        to.unwritten.iter().filter(|(path, _)| leaves(path)).map(|(_, field)| field).collect();
    found.retain(|one| !fields.iter().any(|field| **field == *one.field));
}

/// Returns what a plan does not apply: of units, those that another OS could bring are not known yet.
pub(super) fn planned(input: &PlanInput<'_>, steps: &[Step]) -> Vec<NotApplied> {
    let mut found = found(input.to, &input.facts.observed, &input.facts.stored_units);
    let is_known = |one: &NotApplied| {
        let mut of_os = input.to.units.iter().filter(|(_, unit)| not_enabled::is_of_os(unit));
        !of_os.any(|(name, _)| [not_enabled::field(name), not_enabled::unit_field(name)].contains(&one.field))
    };
    drop_leaving((input.from, input.to), input.facts, &mut found);
    // Keys that this plan removes, or tries to.
    let removes = |field: &String| {
        let of_keys = |step: &Step| matches!(step.op, Op::SetSshKeys { .. } | Op::LockUser { .. });
        let mut stray = input.facts.observed.stray_keys.iter();
        let stays = stray.any(|one| one.unremovable.is_some() && keys_field(&one.user) == *field);
        !stays && steps.iter().any(|step| of_keys(step) && keys_field(&step.op.target()) == *field)
    };
    found.retain(|one| one.because != NotAppliedReason::NotRemoved || !removes(&one.field));
    if steps.iter().any(|step| step.op.batch() == Batch::Os) {
        found.retain(is_known);
    }
    found
}

/// FIPS mode is switched on when a host is installed. A kernel that says that it is off refuses the config; one that says
/// nothing is not in it.
fn fips(spec: &HostSpec, observed: &Observation) -> Option<NotApplied> {
    let message = "FIPS mode is set at installation; the kernel of this host does not report it as on \
                   (/proc/sys/crypto/fips_enabled); install the host with this config, or remove the field";
    // Without an OS it is named as the other fields of the OS are.
    let is_missing = spec.fips && observed.os.booted().is_some() && !observed.storage.contains(FIPS_FIELD);
    is_missing.then(|| NotApplied::new(FIPS_FIELD, NotAppliedReason::Installation, message))
}

/// Each rendered config has it, so it alone refuses none.
fn extensions_image(spec: &HostSpec, observed: &Observation) -> Option<NotApplied> {
    let is_unused = spec.extensions_image.is_some() && observed.os.booted().is_none();
    is_unused.then(|| without_os("spec.baseOSExtensionsContainerImage"))
}

/// A new config with such a field is refused; one that is compared, or was imported, is named.
fn without_os(field: &'static str) -> NotApplied {
    NotApplied::new(field, NotAppliedReason::HostLacks, os::NO_OS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{ConfigName, Karg};

    fn spec(fixed: &[(&'static str, &str)]) -> HostSpec {
        let mut spec = HostSpec::empty(ConfigName::new("a").unwrap());
        spec.fixed.sections = fixed.iter().map(|(name, text)| (*name, (*text).to_owned())).collect();
        spec
    }

    /// Storage of an installation is on the host, or named; remarks of the reader are named on each host.
    #[test]
    fn missing_storage_is_named_with_what_was_looked_for() {
        let mut spec = spec(&[("storage.luks", r#"[{"name":"data"},{"name":"logs"}]"#)]);
        let mut observed = Observation::as_specified(&spec).unwrap();
        assert_eq!(not_applied(&spec, &observed), []);
        observed.storage.remove(r#"storage.luks "logs""#);
        let unknown =
            NotApplied::new("spec.kernelargs", NotAppliedReason::UnknownField, "no reader knows it");
        spec.remarks = vec![unknown.clone(), unknown.clone()];
        let found = not_applied(&spec, &observed);
        assert_eq!(found.len(), 2, "{found:?}");
        assert_eq!(found[0], unknown);
        assert_eq!(found[1].because, NotAppliedReason::Installation);
        assert!(found[1].to_string().starts_with(r#"storage.luks "logs": "#), "{}", found[1]);
        assert!(found[1].message.contains("/dev/mapper/logs"), "{}", found[1]);
    }

    #[test]
    fn fips_that_kernel_does_not_report_is_named() {
        let mut spec = spec(&[]);
        spec.fips = true;
        let mut observed = Observation::as_specified(&spec).unwrap();
        assert_eq!(not_applied(&spec, &observed), []);
        observed.storage.clear();
        let found = not_applied(&spec, &observed);
        assert_eq!((found.len(), found[0].field.as_str()), (1, "spec.fips"), "{found:?}");
        spec.fips = false;
        assert_eq!(not_applied(&spec, &observed), []);
    }

    #[test]
    fn kernel_arguments_of_ignition_are_compared_with_command_line() {
        let spec = spec(&[("kernelArguments", r#"{"shouldExist":["a b"],"shouldNotExist":["quiet"]}"#)]);
        let mut observed = Observation::as_specified(&spec).unwrap();
        observed.storage.clear();
        for (line, word) in
            [("a b", ""), ("b", "lacks a;"), ("a b quiet", "has quiet;"), ("quiet", "lacks a b;")]
        {
            observed.kargs = Karg::split(line);
            let found = not_applied(&spec, &observed);
            assert_eq!(found.is_empty(), word.is_empty(), "{line}: {found:?}");
            assert!(found.iter().all(|one| one.message.contains(word)), "{line}: {found:?}");
        }
    }
}
