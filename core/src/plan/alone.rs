//! Refusals that the config alone decides: they are the same on every host.
//!
//! # Decisions
//! 1. [`refused_everywhere`] is what no host takes, whatever it has. The plan asks the same functions, of the new config alone.
//! 2. [`refused_at_first`] has besides what each host refuses that does not have the entry yet. A host may have it all the same: Ignition
//!    made it, or another program. Its next update leaves an entry alone that stays, so a pool that has one goes on.
//! 3. A reason that some host could answer otherwise is of that host ([`super::reason::Cause::Host`]), and not in either: an account that may be
//!    there, a named owner, a unit that the OS brings. Root is on each host, with id 0.

use super::blocked;
use super::input::PlanInput;
use super::reason::Unreachable;
use super::reconcilable::{Irreconcilable, force_file};
use super::warnings::Warning;
use super::{Mode, Plan, accounts, contradicted, decide, homes, not_enabled, own_paths, unit_links};
use crate::model::assumed::CORE_ID;
use crate::model::text::escaped;
use crate::model::{DisruptionPolicy, Facts, HostSpec, ModelError, Principal};

/// Returns what no host takes of a config: a pool that has it would be Degraded on each node.
pub fn refused_everywhere(to: &HostSpec) -> Option<Irreconcilable> {
    refused(of_config(to))
}

/// Returns what no host takes that has nothing of the config yet.
pub fn refused_at_first(to: &HostSpec) -> Result<Option<Irreconcilable>, ModelError> {
    let bare = HostSpec::empty(to.name.clone());
    let mut facts = Facts::assumed(&bare, to)?;
    // Nobody but root has the same id everywhere.
    facts.observed.user_ids.retain(|_, id| *id == 0);
    facts.observed.group_ids.retain(|_, id| *id == 0);
    let input = PlanInput::new(&bare, to, &facts, Mode::Files);
    let steps = decide::steps(&input);
    let of_steps =
        blocked::blocked(&input, &steps).into_iter().chain(unit_links::refused(to, &facts.observed));
    let of_steps = of_steps.chain(own_paths::refused(&input)).chain(accounts::refused(&input));
    let mut reasons = of_config(to);
    for reason in of_steps.filter(Unreachable::is_of_config) {
        if !reasons.iter().any(|other| other.field == reason.field) {
            reasons.push(reason);
        }
    }
    Ok(refused(reasons))
}

/// Plans between two files, without a host: as [`super::plan`], with what the links of units decide. Those that the old config has as well are
/// on the host, whatever they are.
pub fn plan_assumed(
    from: &HostSpec,
    to: &HostSpec,
    facts: &Facts,
    policy: &DisruptionPolicy,
) -> Result<Plan, Irreconcilable> {
    let (facts, assumed) = with_owners(to, facts);
    let mut plan = decide::plan(from, to, &facts, policy)?;
    plan.warnings.extend(assumed);
    let old = unit_links::refused(from, &facts.observed);
    let mut reasons = unit_links::refused(to, &facts.observed);
    reasons.retain(|reason| !old.contains(reason));
    refused(reasons).map_or(Ok(plan), Err)
}

/// Adds the owners that the new config names and no config makes: a host may have them. Each is named once.
fn with_owners(to: &HostSpec, facts: &Facts) -> (Facts, Vec<Warning>) {
    let (mut facts, mut assumed) = (facts.clone(), Vec::new());
    let observed = &mut facts.observed;
    for (path, entry) in &to.entries() {
        let (user, group) = entry.owners();
        let is_made = |name: &str| observed.accounts.contains_key(name);
        let makes_group = |name: &str| to.users.makes_group(name, is_made);
        let is_group_made = matches!(group, Some(Principal::Name(name)) if makes_group(name));
        let is_user_made = matches!(user, Some(Principal::Name(name)) if to.users.makes_user(name));
        for (owner, is_made, ids, what) in [
            (user, is_user_made, &mut observed.user_ids, "user"),
            (group, is_group_made, &mut observed.group_ids, "group"),
        ] {
            let Some(Principal::Name(name)) = owner.filter(|_| !is_made) else { continue };
            if ids.contains_key(name) {
                continue;
            }
            ids.insert(name.clone(), CORE_ID);
            let field = format!("{} {:?} {what}", entry.section(), path.as_str());
            let message = format!(
                "the plan assumes that the host has the {what} {name:?}; a node without it refuses the config"
            );
            assumed.push(Warning { field, message: escaped(&message) });
        }
    }
    (facts, assumed)
}

fn of_config(to: &HostSpec) -> Vec<Unreachable> {
    let of_paths = own_paths::refused_everywhere(to).into_iter();
    let of_homes = homes::refused_everywhere(to).into_iter();
    let of_units = contradicted::refused(to).into_iter().chain(not_enabled::templates_without_instance(to));
    let of_paths = of_paths.chain(own_paths::settings(to));
    force_file(to).into_iter().chain(of_paths).chain(of_homes).chain(of_units).collect()
}

fn refused(reasons: Vec<Unreachable>) -> Option<Irreconcilable> {
    (!reasons.is_empty()).then_some(Irreconcilable { reasons, is_of_host: false })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::machineconfig::MachineConfig;

    fn spec(name: &str, part: &str, beside: &str) -> HostSpec {
        let text = format!(
            r#"{{"kind":"MachineConfig","metadata":{{"name":"{name}"}},"spec":{{"config":{{"ignition":{{"version":"3.4.0"}}{part}}}{beside}}}}}"#
        );
        MachineConfig::parse(text.as_bytes(), name).unwrap().spec(None).unwrap()
    }

    /// Some host takes each of these: it has the account, the group, the unit, the disk, or the directory as it has to be.
    #[test]
    fn what_some_host_takes_is_not_refused() {
        let unit = r#"{"name":"x.service","enabled":true}"#;
        for part in [
            r#""storage":{"files":[{"path":"/etc/a","user":{"name":"chrony"},"group":{"name":"chrony"}}]}"#,
            r#""storage":{"directories":[{"path":"/srv/a","user":{"name":"app"}}],"files":[{"path":"/srv/a/b"}]}"#,
            r#""storage":{"directories":[{"path":"/srv/a","user":{"name":"core"}},{"path":"/srv/a/b","user":{"id":7}}],"files":[{"path":"/srv/a/b/c"}]}"#,
            r#""storage":{"directories":[{"path":"/srv/a","user":{"id":7}}],"files":[{"path":"/srv/a/b","user":{"name":"app"}}]}"#,
            r#""storage":{"directories":[{"path":"/srv/a","mode":1023}],"files":[{"path":"/srv/a/b"}]}"#,
            r#""storage":{"disks":[{"device":"/dev/vda","wipeTable":true}]}"#,
            r#""storage":{"links":[{"path":"/etc/a","target":"/etc/hosts","hard":true}]}"#,
            r#""storage":{"directories":[{"path":"/home/core","mode":511}]},"passwd":{"users":[{"name":"core","sshAuthorizedKeys":["ssh-rsa a"]}]}"#,
            r#""passwd":{"users":[{"name":"core","uid":5,"homeDir":"/","groups":["wheel"]}]}"#,
            r#""passwd":{"users":[{"name":"app","groups":["ops"],"primaryGroup":"dev"}]}"#,
            r#""passwd":{"users":[{"name":"app"},{"name":"bpp","groups":["app"]}],"groups":[{"name":"app","shouldExist":false}]}"#,
            r#""passwd":{"users":[{"name":"nobody","homeDir":"/","noCreateHome":true}]}"#,
            r#""passwd":{"groups":[{"name":"ops","shouldExist":false}]}"#,
            &format!(
                r#""storage":{{"links":[{{"path":"/etc/systemd/system/a.target.wants/x.service","target":"../x.service"}}]}},"systemd":{{"units":[{unit}]}}"#
            ),
            &format!(r#""systemd":{{"units":[{unit},{{"name":"y.service","enabled":false}}]}}"#),
            r#""systemd":{"units":[{"name":"x.service","contents":"[Install]\nAlias=y.service\n"},{"name":"y.service","enabled":false}]}"#,
            r#""systemd":{"units":[{"name":"x.service","enabled":true,"contents":"[Install]\nAlias=y.service\nWantedBy=a.target\n"},{"name":"y.service","enabled":true}]}"#,
        ] {
            let spec = spec("a", &format!(",{part}"), r#","fips":true,"kernelArguments":["quiet"]"#);
            assert_eq!(refused_at_first(&spec).unwrap(), None, "{part}");
            assert_eq!(refused_everywhere(&spec), None, "{part}");
        }
    }

    /// The account is made with the usual home and an id of its own; a mode is refused whoever the owner is.
    #[test]
    fn what_no_host_takes_at_first_is_refused() {
        let keys = r#""sshAuthorizedKeys":["ssh-rsa a"]"#;
        for part in [
            r#""storage":{"files":[{"path":"/home/app"}]},"passwd":{"users":[{"name":"app"}]}"#.to_owned(),
            r#""passwd":{"users":[{"name":"app","homeDir":"/home/bpp"},{"name":"bpp"}]}"#.to_owned(),
            format!(
                r#""storage":{{"directories":[{{"path":"/opt/e","user":{{"id":4242}}}}]}},"passwd":{{"users":[{{"name":"app","homeDir":"/opt/e/app",{keys}}}]}}"#
            ),
            r#""storage":{"directories":[{"path":"/etc/s","mode":511,"user":{"name":"ops"},"group":{"name":"ops"}}],
                "files":[{"path":"/etc/s/f","user":{"name":"ops"},"group":{"name":"ops"}}]}"#
                .to_owned(),
        ] {
            let spec = spec("a", &format!(",{part}"), "");
            let refused = refused_at_first(&spec).unwrap();
            assert!(refused.is_some(), "{part}");
            assert_eq!(refused_everywhere(&spec), None, "{part}");
        }
    }

    /// All that is wrong is named, each field once.
    #[test]
    fn every_field_is_named_once() {
        let part = r#","passwd":{"users":[{"name":"app","homeDir":"/etc"}]},"storage":{"directories":[{"path":"/etc/shadow"},
            {"path":"/srv/a","mode":511},{"path":"/srv/a/b"},{"path":"/srv/a/c"}]}"#;
        let refused = refused_at_first(&spec("a", part, "")).unwrap().unwrap();
        let fields: Vec<&str> = refused.reasons.iter().map(|reason| reason.field.as_str()).collect();
        let expected = [
            r#"storage.directories "/etc/shadow""#,
            r#"storage.directories "/srv/a" mode"#,
            r#"passwd.users "app" homeDir"#,
        ];
        assert_eq!(fields, expected);
        assert!(!refused.is_of_host && refused.reason() == "FailedToReconcile");
    }

    /// A host that has such an entry keeps it: its next config is not refused for what stays.
    #[test]
    fn entry_that_stays_is_not_refused_between_files() {
        for part in [
            r#""storage":{"directories":[{"path":"/srv/a","mode":511}],"files":[{"path":"/srv/a/b"}]}"#,
            r#""passwd":{"users":[{"name":"app","homeDir":"/","sshAuthorizedKeys":["ssh-rsa a"]}]}"#,
            r#""systemd":{"units":[{"name":"x.service","enabled":true,"contents":"[Install]\nAlias=y.service\n"},{"name":"y.service","enabled":false}]}"#,
        ] {
            let from = spec("a", &format!(",{part}"), "");
            let to = spec("b", &format!(",{part}"), r#","kernelArguments":["quiet"]"#);
            assert!(refused_at_first(&to).unwrap().is_some(), "{part}");
            let facts = Facts::assumed(&from, &to).unwrap();
            let planned = plan_assumed(&from, &to, &facts, &DisruptionPolicy::defaults());
            assert!(planned.is_ok(), "{part}: {planned:?}");
        }
    }
}
