//! Leftovers of the booted image's own config on a host that is to have another one.
//!
//! # Decisions
//! 1. It counts as a part of the old config: the plan takes it away or puts the base's own back, under the disruption policy, as
//!    it does with what leaves a config. So all ways to a config end in the same state.
//! 2. It is a difference of the host. An update that came up with it does not commit, and plans again.
//! 3. A change that somebody made on the host is none of it: only what is as the image has it counts.
//! 4. An encapsulated config of a first boot says nothing of files: its observation has none of this.

use std::collections::BTreeMap;
use std::rc::Rc;

use super::carried_users;
use super::difference::{Difference, DifferenceKind, Kind, difference};
use super::files::is_preserved;
use super::left::add_left;
use crate::model::carried::Carried;
use crate::model::units::{Enablement, Mask, UnitSpec};
use crate::model::{HostSpec, ManagedPath, Observation, UnitName};

const EXPECTED: &str = "as without the config of the image";

/// Returns the part that a spec does not have.
fn beyond(spec: &HostSpec, observed: &Observation) -> Option<HostSpec> {
    let Carried { brought, .. } = observed.carried.as_deref()?;
    let (managed, stored) = (spec.managed(), spec.stored());
    let is_left =
        |path: &ManagedPath| !managed.contains(path) && !stored.contains(path) && !is_preserved(path);
    let files = kept(&brought.files, is_left);
    let (links, directories) = (kept(&brought.links, is_left), kept(&brought.directories, is_left));
    let mut units = BTreeMap::new();
    for (name, unit) in &brought.units {
        let of_spec = spec.units.get(name);
        // The config decides about its links.
        let is_free = of_spec
            .is_none_or(|of_spec| of_spec.enablement == Enablement::Preset && of_spec.mask != Mask::Masked);
        let dropins = unit.dropins.iter().filter(|(dropin, _)| is_left(&name.dropin_path(dropin)));
        let left = UnitSpec {
            contents: unit.contents.clone().filter(|_| is_left(&name.path())),
            dropins: dropins.map(|(dropin, contents)| (dropin.clone(), contents.clone())).collect(),
            enablement: if is_free { unit.enablement } else { Enablement::Preset },
            mask: if is_left(&name.path()) { unit.mask } else { Mask::Unset },
        };
        if left != UnitSpec::empty() {
            units.insert(name.clone(), left);
        }
    }
    let users = carried_users::beyond(&spec.users, &brought.users, observed);
    let left = HostSpec { files, directories, links, units, users, ..HostSpec::empty(brought.name.clone()) };
    (left != HostSpec::empty(brought.name.clone())).then_some(left)
}

fn kept<T: Clone>(
    entries: &BTreeMap<ManagedPath, T>,
    is_left: impl Fn(&ManagedPath) -> bool,
) -> BTreeMap<ManagedPath, T> {
    let left = entries.iter().filter(|(path, _)| is_left(path));
    left.map(|(path, entry)| (path.clone(), entry.clone())).collect()
}

/// Returns the differences of a host on which an image's own config left something.
pub(super) fn differences(spec: &HostSpec, observed: &Observation) -> Vec<Difference> {
    let Some(left) = beyond(spec, observed) else { return Vec::new() };
    let found = format!("brought by {}, the config of the image", left.name);
    let at = |kind, path: &ManagedPath| difference(kind, path, DifferenceKind::Unexpected, &EXPECTED, &found);
    let mut all: Vec<Difference> = left.files.keys().map(|path| at(Kind::File, path)).collect();
    all.extend(left.links.keys().map(|path| at(Kind::Link, path)));
    all.extend(left.directories.keys().map(|path| at(Kind::Directory, path)));
    for (name, unit) in &left.units {
        all.extend(unit.dropins.keys().map(|dropin| at(Kind::Dropin, &name.dropin_path(dropin))));
        all.extend(unit.contents.as_ref().map(|_| at(Kind::Unit, &name.path())));
        all.extend(state(name, unit));
    }
    all.extend(carried_users::differences(spec, &left.users, observed, &EXPECTED, &found));
    all
}

/// Returns the difference of a unit that only the image's config masks, enables or disables.
fn state(name: &UnitName, unit: &UnitSpec) -> Option<Difference> {
    let (what, found) = match (unit.mask, unit.enablement) {
        (Mask::Masked, _) => (DifferenceKind::Mask, "masked by the config of the image"),
        // Its links go with its file.
        (Mask::Unset | Mask::Unmasked, _) if unit.contents.is_some() => return None,
        (Mask::Unset | Mask::Unmasked, Enablement::Enabled) => {
            (DifferenceKind::Enablement, "enabled by the config of the image")
        }
        (Mask::Unset | Mask::Unmasked, Enablement::Disabled) => {
            (DifferenceKind::Enablement, "disabled by the config of the image")
        }
        (Mask::Unset | Mask::Unmasked, Enablement::Preset) => return None,
    };
    Some(difference(Kind::Unit, name, what, &"as its preset says", &found))
}

/// Adds to the origin of a plan what the image's own config left, and the target does not have.
pub(super) fn with_left(from: Rc<HostSpec>, to: &HostSpec, observed: &Observation) -> Rc<HostSpec> {
    let Some(carried) = observed.carried.as_deref() else { return from };
    let (brought, known) = (carried.brought.managed(), from.managed());
    let left = beyond(to, observed);
    if left.is_none() && brought.is_subset(&known) {
        return from;
    }
    let mut from = HostSpec::clone(&from);
    if let Some(mut left) = left {
        // The plan knows an entry of the origin better.
        left.files.retain(|path, _| !known.contains(path));
        for (name, held) in &from.units {
            if let Some(unit) = left.units.get_mut(name) {
                *unit = completed(held, unit);
            }
        }
        left.links.retain(|path, _| !known.contains(path));
        left.directories.retain(|path, _| !known.contains(path));
        from.links.extend(std::mem::take(&mut left.links));
        from.directories.extend(std::mem::take(&mut left.directories));
        carried_users::add(&mut from.users, &left.users);
        add_left(&mut from, &left, to);
    }
    for path in brought {
        from.claimed.entry(path).or_insert(None);
    }
    Rc::new(from)
}

/// Returns a unit of the origin with what only the image's config has of it.
fn completed(held: &UnitSpec, left: &UnitSpec) -> UnitSpec {
    let mut both = held.clone();
    let dropins = left.dropins.iter().filter(|(name, _)| !held.dropins.contains_key(*name));
    both.dropins.extend(dropins.map(|(name, contents)| (name.clone(), contents.clone())));
    both.contents = held.contents.clone().or_else(|| left.contents.clone());
    if held.enablement == Enablement::Preset {
        both.enablement = left.enablement;
    }
    if held.mask == Mask::Unset {
        both.mask = left.mask;
    }
    both
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Arc;

    use super::*;
    use crate::model::observation::{Maker, ObservedAccount, ObservedGroup};
    use crate::model::users::{Account, Group, PasswordHash};
    use crate::model::{Contents, DropinName, FileSpec, MachineConfig, ObservedFile, UserName};
    use crate::plan::start::Start;
    use crate::plan::{Op, plan};

    fn spec(name: &str, config: &str) -> HostSpec {
        let text = format!(
            r#"{{"apiVersion":"machineconfiguration.openshift.io/v1","kind":"MachineConfig","metadata":{{"name":"{name}"}},
            "spec":{{"config":{{"ignition":{{"version":"3.5.0"}}{config}}}}}}}"#
        );
        MachineConfig::parse(text.as_bytes(), "test").unwrap().spec(None).unwrap()
    }

    fn file(path: &str) -> (ManagedPath, FileSpec) {
        (ManagedPath::new(path).unwrap(), FileSpec::of_unit(Contents::new(b"a".to_vec())))
    }

    fn unit(contents: bool, enablement: Enablement, mask: Mask) -> UnitSpec {
        let contents = contents.then(|| Contents::new(b"[Service]\n".to_vec()));
        UnitSpec { contents, dropins: BTreeMap::new(), enablement, mask }
    }

    fn brought() -> HostSpec {
        let name = |text| UnitName::new(text).unwrap();
        let mut dropped = unit(false, Enablement::Preset, Mask::Unset);
        dropped.dropins.insert(DropinName::new("10-a.conf").unwrap(), Contents::new(b"a".to_vec()));
        HostSpec {
            files: BTreeMap::from([file("/etc/a"), file("/etc/both"), file("/etc/docker/certs.d/x/ca.crt")]),
            units: BTreeMap::from([
                (name("own.service"), unit(true, Enablement::Enabled, Mask::Unset)),
                (name("vendor.service"), unit(false, Enablement::Enabled, Mask::Unset)),
                (name("noisy.service"), unit(false, Enablement::Preset, Mask::Masked)),
                (name("kept.service"), unit(false, Enablement::Enabled, Mask::Unset)),
                (name("crio.service"), dropped),
            ]),
            ..HostSpec::empty(crate::model::ConfigName::new("rendered-a").unwrap())
        }
    }

    fn observed(spec: &HostSpec) -> Observation {
        let carried = Carried { brought: brought(), unknown: BTreeSet::new() };
        Observation { carried: Some(Arc::new(carried)), ..Observation::as_specified(spec).unwrap() }
    }

    fn target() -> HostSpec {
        spec(
            "rendered-b",
            r#","storage":{"files":[{"path":"/etc/both","contents":{"source":"data:,a"}}]},
            "systemd":{"units":[{"name":"kept.service","enabled":true}]}"#,
        )
    }

    #[test]
    fn leftovers_of_the_image_are_differences() {
        let to = target();
        let found = differences(&to, &observed(&to));
        let targets: Vec<_> = found.iter().map(|one| (one.target.as_str(), one.what)).collect();
        let unexpected = DifferenceKind::Unexpected;
        let expected = [
            ("/etc/a", unexpected),
            ("/etc/systemd/system/crio.service.d/10-a.conf", unexpected),
            ("noisy.service", DifferenceKind::Mask),
            ("/etc/systemd/system/own.service", unexpected),
            ("vendor.service", DifferenceKind::Enablement),
        ];
        assert_eq!(targets, expected);
        assert!(found.iter().all(|one| one.found.contains("the config of the image")));
    }

    fn account(maker: Maker) -> ObservedAccount {
        ObservedAccount {
            keys_path: None,
            keys: ObservedFile::Absent,
            uid: 1234,
            gid: 1234,
            password: PasswordHash::new("$6$a$b"),
            foreign: None,
            gecos: String::new(),
            home: "/home/a".to_owned(),
            home_names: BTreeSet::new(),
            shell: "/bin/sh".to_owned(),
            primary_group: None,
            groups: BTreeSet::new(),
            maker,
            has_original: false,
            given: crate::model::observation::GivenParts::default(),
            given_keys: BTreeSet::new(),
            unremoved_keys: BTreeSet::new(),
            unremovable: None,
            is_expired: false,
        }
    }

    /// The accounts of the image leave whatever is known of the origin, and are no difference any more then.
    #[test]
    fn accounts_of_the_image_leave_with_the_next_plan() {
        let to = target();
        let entry = Account { password: PasswordHash::new("$6$a$b"), ..Account::default() };
        let mut observed = observed(&to);
        let mut carried = Carried::clone(observed.carried.as_ref().unwrap());
        for (name, maker) in [("core", Maker::Host), ("own", Maker::Agent), ("base", Maker::Host)] {
            carried.brought.users.accounts.insert(UserName::new(name).unwrap(), entry.clone());
            observed.accounts.insert(name.to_owned(), account(maker));
        }
        let ops = UserName::new("ops").unwrap();
        carried.brought.users.groups.insert(ops.clone(), Group::default());
        let group = ObservedGroup {
            gid: 7,
            password: None,
            maker: Maker::Agent,
            people: std::collections::BTreeSet::new(),
            is_primary: false,
        };
        observed.groups.insert("ops".to_owned(), group);
        observed.carried = Some(Arc::new(carried));
        let found = differences(&to, &observed);
        for name in ["core", "own", "base", "ops"] {
            assert!(found.iter().any(|one| one.target == name), "{name}: {found:?}");
        }
        for never_applied in [None, Some(BTreeSet::new())] {
            let origin = Rc::new(HostSpec { never_applied, ..to.clone() });
            let from = Start::default().from(&origin, &to, &observed);
            let mut facts = crate::model::Facts::assumed(&from, &to).unwrap();
            facts.observed = Observation { units: facts.observed.units.clone(), ..observed.clone() };
            facts.observed.units.extend(Observation::as_specified(&from).unwrap().units);
            let plan = plan(&from, &to, &facts, &crate::model::DisruptionPolicy::none()).unwrap();
            let steps: Vec<String> = plan.steps().iter().map(ToString::to_string).collect();
            for step in ["set-password core", "lock-user own", "set-password base", "remove-group ops"] {
                assert!(steps.iter().any(|one| one == step), "{step}: {steps:?}");
            }
            // No key of `core` is the image's.
            assert!(!steps.iter().any(|one| one.starts_with("set-ssh-keys")), "{steps:?}");
        }
    }

    #[test]
    fn leftovers_of_the_image_leave_with_the_next_plan() {
        let to = target();
        let observed = observed(&to);
        let origin = Rc::new(to.clone());
        for start in [Start::default(), Start { recovering: true, ..Start::default() }] {
            let from = start.from(&origin, &to, &observed);
            let mut facts = crate::model::Facts::assumed(&from, &to).unwrap();
            facts.observed = Observation { units: facts.observed.units.clone(), ..observed.clone() };
            facts.observed.units.extend(Observation::as_specified(&from).unwrap().units);
            let plan = plan(&from, &to, &facts, &crate::model::DisruptionPolicy::none()).unwrap();
            for difference in differences(&to, &observed) {
                assert!(plan.mends(&difference), "{difference}: {:?}", plan.steps());
            }
            let removes = |path: &str| {
                let path = ManagedPath::new(path).unwrap();
                plan.steps().iter().any(|step| step.op == Op::RemoveFile { path: path.clone() })
            };
            assert!(removes("/etc/a") && !removes("/etc/both"), "{:?}", plan.steps());
        }
    }
}
