//! Paths that do not stay as they are written: in file systems that are made anew at each boot, and paths that systemd or another
//! program of the OS writes itself. They are written all the same.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::compare::found_word;
use super::differences::{Difference, DifferenceKind};
use super::input::PlanInput;
use super::{BatchOp, FileOp, Op, Step, files};
use crate::model::obstacles::Obstacle;
use crate::model::paths::LinkTarget;
use crate::model::{HostSpec, LinkSpec, ManagedPath, ObservedFile, PathSpec};

/// A warning of a plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Warning {
    /// The field, as in the MachineConfig.
    pub field: String,
    /// The cause, and the next step.
    pub message: String,
}

/// Directories that are empty after each boot (file-hierarchy(7)).
const GONE_AT_BOOT: [&str; 4] = ["/run", "/var/run", "/var/lock", "/tmp"];

/// Paths that a program of the OS writes, or that are one machine's own; and cause and next step.
const WRITTEN: [(&str, &str); 10] = [
    ("/etc/.updated", UPDATED),
    (
        "/etc/adjtime",
        "hwclock and systemd-timedated write it; set the clock's mode with `timedatectl set-local-rtc` instead",
    ),
    (
        "/etc/ld.so.cache",
        "ldconfig writes it after an update of /usr (ldconfig.service); list directories in /etc/ld.so.conf.d instead",
    ),
    (
        "/etc/machine-id",
        "it is one machine's own (machine-id(5)), and all nodes of a pool would have it; remove the entry",
    ),
    ("/etc/mtab", "systemd-tmpfiles makes it a link to /proc/self/mounts at each boot; remove the entry"),
    (
        "/etc/resolv.conf",
        "NetworkManager (NetworkManager.conf(5), rc-manager) or systemd-resolved may write it; configure that program instead",
    ),
    ("/var/.updated", UPDATED),
    (
        "/var/lib/dbus/machine-id",
        "it is one machine's own, usually a link to /etc/machine-id; remove the entry",
    ),
    ("/var/lock", "systemd-tmpfiles makes it a link to /run/lock at each boot; remove the entry"),
    ("/var/run", "systemd-tmpfiles makes it a link to /run at each boot; remove the entry"),
];

const UPDATED: &str =
    "systemd writes it after an update of /usr (systemd-update-done.service(8)); remove the entry";

/// Texts of links that are as the programs of the OS make or want them, at paths that they write.
const AS_WRITTEN: [(&str, &[&str]); 5] = [
    ("/etc/mtab", &["/proc/self/mounts", "../proc/self/mounts", "/proc/mounts", "../proc/mounts"]),
    // Any: NetworkManager and systemd-resolved leave a link alone.
    ("/etc/resolv.conf", &[]),
    ("/var/lib/dbus/machine-id", &["/etc/machine-id", "../../../etc/machine-id"]),
    ("/var/lock", &["/run/lock", "../run/lock"]),
    ("/var/run", &["/run", "../run"]),
];

/// Returns the warnings about the steps of a plan.
pub(super) fn warnings(input: &PlanInput<'_>, steps: &[Step]) -> Vec<Warning> {
    let of_step = |step: &Step| {
        let (section, path) = if let Op::WriteFile { path } = &step.op {
            ("storage.files", path)
        } else if let Op::MakeDirectory { path } | Op::OpenDirectory { path } = &step.op {
            ("storage.directories", path)
        } else if let Op::WriteLink { path } = &step.op {
            ("storage.links", path)
        } else {
            return None;
        };
        let message = message(path, input.new_entry(path))?;
        Some(Warning { field: format!("{section} {:?}", path.as_str()), message })
    };
    steps.iter().filter_map(of_step).collect()
}

/// Returns true for a path that the plan warned of, and that a boot took away: an update that needs the boot neither fails nor waits
/// for it. An idle host is reported as it is.
pub fn is_gone_with_boot(difference: &Difference) -> bool {
    let path = difference.path().filter(|_| difference.what == DifferenceKind::Missing);
    path.is_some_and(|path| gone_at_boot(path.as_str()).is_some())
}

/// The cause of a path that can't be restored.
const LOST: &str = "the host had this path before the config, and its original in \
                    /var/lib/machine-config-agent/preimages/kept is missing, so the path stays unchanged";

/// Returns the warnings about paths that leave with the old config and stay on the host.
pub(super) fn lost(input: &PlanInput<'_>) -> Vec<Warning> {
    let (old, new) = (input.from.managed(), input.to.managed());
    let next = "restore preimages/kept from a backup before the update, or remove the path on this host";
    let stays = old.difference(&new).filter(|path| input.is_lost(path));
    stays.map(|path| of_lost(input.from, path, &format!("{LOST}; {next}"))).collect()
}

/// Returns the warnings about what a person put in the place of entries that leave.
pub(super) fn others(input: &PlanInput<'_>) -> Vec<Warning> {
    let old = input.from.entries();
    let stays = old.keys().filter(|path| input.is_others(path));
    let warning = |path: &ManagedPath| {
        if let Some((directory, how)) = input.stays_behind(path) {
            let how = how.as_str();
            let message = format!(
                "{directory} above it is {how}: what is behind it stays, and nothing there is touched"
            );
            return of_lost(input.from, path, &message);
        }
        let found = found_word(input.found(path));
        of_lost(
            input.from,
            path,
            &format!("{found} is in its place by now, which no config brought, and stays"),
        )
    };
    stays.map(warning).collect()
}

/// Returns the warnings about what a replaced path has and no undo brings back.
pub(super) fn not_kept(input: &PlanInput<'_>, steps: &[Step]) -> Vec<Warning> {
    let paths: BTreeSet<ManagedPath> = steps.iter().filter_map(|step| step.op.path()).collect();
    let lost = input.facts.obstacles.not_kept.iter().filter(|(path, _)| paths.contains(*path));
    let warning = |(path, lost): (&ManagedPath, &String)| {
        let spec = if input.to.managed().contains(path) { input.to } else { input.from };
        let is_link = matches!(input.found(path), ObservedFile::Symlink { .. });
        let found = if is_link { "link" } else { "file" };
        let next = "look at it before the update (stat, getfattr -dh -m -, lsattr)";
        of_lost(spec, path, &format!("this update replaces the {found} of this host: {lost}; {next}"))
    };
    lost.map(warning).collect()
}

/// Returns the warnings about directories that leave the config and stay on the host.
pub(super) fn kept(input: &PlanInput<'_>) -> Vec<Warning> {
    let stays = input.from.directories.keys().filter(|path| input.is_kept(path));
    let stays = stays.filter(|path| input.take_away(path).is_some());
    let message =
        "the directory holds what no config brought, and stays; remove it manually if nothing needs it";
    stays.map(|path| of_lost(input.from, path, message)).collect()
}

/// Returns the warnings about keys that leave the config and can't be removed.
pub(super) fn keys_that_stay(input: &PlanInput<'_>, steps: &[Step]) -> Vec<Warning> {
    let has = |user: &str, locks: bool| {
        let is_meant = |op: &Op| {
            if locks { matches!(op, Op::LockUser { .. }) } else { matches!(op, Op::SetSshKeys { .. }) }
        };
        steps.iter().any(|step| is_meant(&step.op) && step.op.target() == user)
    };
    let leaves = |user: &str| has(user, false) || has(user, true);
    let stay = input.facts.obstacles.leaving_keys.iter().filter(|(user, _)| leaves(user));
    let warning = |(user, obstacle): (&String, &Obstacle)| Warning {
        field: format!("passwd.users {user:?} sshAuthorizedKeys"),
        message: if has(user, true) {
            format!("the keys stay, and the account is locked: {obstacle}")
        } else {
            format!("the keys stay and open the account: {obstacle}")
        },
    };
    stay.map(warning).collect()
}

/// Returns the warnings about accounts and groups that leave the config and were renamed or made again.
pub(super) fn strangers(input: &PlanInput<'_>) -> Vec<Warning> {
    let found = input.facts.accounts.strangers.iter();
    found.map(|(field, message)| Warning { field: field.clone(), message: message.clone() }).collect()
}

/// Returns the warnings about databases of accounts that leave with the old config and stay, as nothing else has the accounts.
pub(super) fn databases(input: &PlanInput<'_>) -> Vec<Warning> {
    let new = input.to.managed();
    let stays = |path: &&ManagedPath| {
        !new.contains(*path)
            && files::stays(input, path)
            && !input.is_lost(path)
            && !input.from.unapplied.contains(*path)
            && *input.found(path) != ObservedFile::Absent
    };
    let message = "it is a database of accounts of which no original is known, so the file stays unchanged; edit it on the host \
                   (vipw(8), vigr(8))";
    input.from.files.keys().filter(stays).map(|path| of_lost(input.from, path, message)).collect()
}

/// Returns what can't be restored of a config that the host has: paths whose originals are lost.
pub fn not_restorable(spec: &HostSpec, lost: &BTreeSet<ManagedPath>) -> Vec<Warning> {
    let message = format!("{LOST} when the config no longer lists it; restore preimages/kept from a backup");
    lost.intersection(&spec.managed()).map(|path| of_lost(spec, path, &message)).collect()
}

fn of_lost(spec: &HostSpec, path: &ManagedPath, message: &str) -> Warning {
    let entries = spec.entries();
    let section = entries.get(path).filter(|_| spec.is_listed(path)).map(PathSpec::section);
    let field = format!("{} {:?}", section.unwrap_or("systemd.units"), path.as_str());
    Warning { field, message: message.to_owned() }
}

/// Returns the warnings about paths of the image's own config that leave: nobody knows what the base of the image has there.
pub(super) fn unknown_base(input: &PlanInput<'_>, steps: &[Step]) -> Vec<Warning> {
    let Some(carried) = input.facts.observed.carried.as_deref() else { return Vec::new() };
    let leaves = |step: &&Step| matches!(step.op.in_batch(), BatchOp::File(FileOp::Remove | FileOp::Restore));
    let leaving = steps.iter().filter(leaves).filter_map(|step| step.op.path());
    leaving
        .filter(|path| carried.unknown.contains(path) && !input.facts.restorable.contains(path))
        .map(|path| {
            let message = format!(
                "only {}, the config in the booted image, has this path, and the image keeps no original of it, so the path is \
                 removed; if the base needs it, build an image for the target's config",
                carried.brought.name
            );
            let section = if input.from.is_listed(&path) { "storage.files" } else { "systemd.units" };
            Warning { field: format!("{section} {:?}", path.as_str()), message }
        })
        .collect()
}

/// Returns the directory above a path that is empty after each boot.
pub(super) fn gone_at_boot(path: &str) -> Option<&'static str> {
    let is_above =
        |directory: &&&str| path.strip_prefix(**directory).is_some_and(|rest| rest.starts_with('/'));
    GONE_AT_BOOT.iter().find(is_above).copied()
}

fn message(path: &ManagedPath, entry: Option<&PathSpec>) -> Option<String> {
    let written = WRITTEN.iter().find(|(written, _)| *written == path.as_str());
    let written = written.filter(|_| !is_as_written(path, entry));
    gone_message(path).or_else(|| written.map(|(_, message)| (*message).to_owned()))
}

fn is_as_written(path: &ManagedPath, entry: Option<&PathSpec>) -> bool {
    let Some(PathSpec::Link(LinkSpec { target: LinkTarget::Soft(text), .. })) = entry else { return false };
    let known = AS_WRITTEN.iter().find(|(written, _)| *written == path.as_str());
    known.is_some_and(|(_, texts)| texts.is_empty() || texts.contains(&text.as_str()))
}

fn gone_message(path: &ManagedPath) -> Option<String> {
    let directory = gone_at_boot(path.as_str())?;
    Some(format!(
        "{directory} may be empty after a boot, and the missing path is drift then; create it at each boot, by a file of \
         /etc/tmpfiles.d or by a unit"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::machineconfig::MachineConfig;
    use crate::model::policy::DisruptionPolicy;
    use crate::model::{ConfigName, Facts};
    use crate::plan::plan;

    fn spec(sections: &str) -> HostSpec {
        let text = format!(
            r#"{{"kind":"MachineConfig","metadata":{{"name":"a"}},"spec":{{"config":{{"ignition":{{"version":"3.5.0"}},{sections}}}}}}}"#
        );
        MachineConfig::parse(text.as_bytes(), "a").unwrap().spec(None).unwrap()
    }

    fn warned(from: &HostSpec, to: &HostSpec) -> Vec<Warning> {
        let facts = Facts::assumed(from, to).unwrap();
        plan(from, to, &facts, &DisruptionPolicy::defaults()).unwrap().warnings().to_vec()
    }

    fn empty() -> HostSpec {
        HostSpec::empty(ConfigName::new("e").unwrap())
    }

    #[test]
    fn paths_that_do_not_stay_are_warned_of() {
        let kinds = [("files", ""), ("directories", ""), ("links", r#","target":"../x""#)];
        for (section, more) in kinds {
            let of = |path: &str| spec(&format!(r#""storage":{{"{section}":[{{"path":"{path}"{more}}}]}}"#));
            let written =
                ["/etc/mtab", "/etc/machine-id", "/etc/adjtime", "/etc/ld.so.cache", "/var/.updated"];
            for path in
                written.into_iter().chain(["/run/a", "/var/run/a/b", "/var/lock/a", "/var/lock", "/tmp/a"])
            {
                let [warning] = &warned(&empty(), &of(path))[..] else { panic!("{section} {path}") };
                assert_eq!(warning.field, format!("storage.{section} {path:?}"));
                assert!(warning.message.contains("; "), "{}", warning.message);
            }
            for path in ["/etc/a", "/runner/a", "/var/tmp/a", "/etc/hostname", "/etc/mtab.d/a"] {
                assert_eq!(warned(&empty(), &of(path)), [], "{section} {path}");
            }
            assert_eq!(warned(&of("/run/a"), &empty()), [], "{section}");
        }
        for (path, target) in [("/etc/mtab", "../proc/self/mounts"), ("/etc/resolv.conf", "/run/x")] {
            let link = format!(r#""storage":{{"links":[{{"path":"{path}","target":"{target}"}}]}}"#);
            assert_eq!(warned(&empty(), &spec(&link)), [], "{path}");
        }
    }

    #[test]
    fn entries_that_keep_agent_from_starting_are_warned_of() {
        let unit = |more: &str| {
            format!(r#""systemd":{{"units":[{{"name":"machine-config-agent.service"{more}}}]}}"#)
        };
        let at = "/etc/systemd/system/machine-config-agent.service";
        let contents = unit(r#","contents":"[Service]\nExecStart=/bin/true\n""#);
        for (sections, words) in [
            (unit(r#","mask":true"#), "is masked"),
            (unit(r#","enabled":false"#), "is disabled"),
            (contents.clone(), "if it does not start the agent"),
            (format!(r#""storage":{{"links":[{{"path":"{at}","target":"/dev/null"}}]}}"#), "is masked"),
            (format!(r#""storage":{{"files":[{{"path":"{at}"}}]}}"#), "takes the place"),
        ] {
            let [warning] = &warned(&empty(), &spec(&sections))[..] else { panic!("{sections}") };
            assert!(warning.message.contains(words), "{sections}: {}", warning.message);
        }
        let [warning] = &warned(&spec(&contents), &empty())[..] else { panic!("it leaves") };
        assert!(warning.message.contains("which is removed"), "{}", warning.message);
        let dropin = unit(r#","dropins":[{"name":"a.conf","contents":"[Service]\n"}]"#);
        assert_eq!(warned(&empty(), &spec(&dropin)), []);
    }

    #[test]
    fn entries_beside_unit_that_keep_agent_from_starting_are_warned_of() {
        let dropin = |name: &str, text: &str| {
            format!(
                r#""systemd":{{"units":[{{"name":"machine-config-agent.service","dropins":[{{"name":"{name}","contents":"{text}"}}]}}]}}"#
            )
        };
        let file = |path: &str, text: &str| {
            format!(r#""storage":{{"files":[{{"path":"{path}","contents":{{"source":"data:,{text}"}}}}]}}"#)
        };
        let link = |path: &str, target: &str| {
            format!(r#""storage":{{"links":[{{"path":"{path}","target":"{target}"}}]}}"#)
        };
        let starts = "/etc/systemd/system/multi-user.target.wants/machine-config-agent.service";
        for (sections, words) in [
            (dropin("a.conf", "[Service]\\nExecStart=\\n"), "sets ExecStart="),
            (dropin("a.conf", "[Unit]\\nConditionPathExists=/x\\n"), "sets ConditionPathExists="),
            (dropin("a.conf", "[Install]\\nWantedBy=\\n"), "sets WantedBy="),
            (dropin("10-cluster.conf", "[Unit]\\n"), "replaces the drop-in"),
            (file("/etc/systemd/system/service.d/a.conf", "%5BService%5D%0AUser=x%0A"), "sets User="),
            (
                link("/etc/systemd/system/machine-config-agent.service.d/a.conf", "/dev/null"),
                "hides a drop-in",
            ),
            (link(starts, "/dev/null"), "which leads elsewhere"),
            (file(starts, "a"), "which is not a link"),
            (file("/etc/systemd/system.control/machine-config-agent.service", "a"), "takes the place"),
            (link("/run/systemd/transient/machine-config-agent.service", "/dev/null"), "is masked"),
            (file("/usr/bin/machine-config-agent", "a"), "in the place of the agent's program"),
            (file("/usr/libexec/machine-config-agent/worker", "a"), "in the place of the agent's program"),
        ] {
            let warnings = warned(&empty(), &spec(&sections));
            assert!(warnings.iter().any(|one| one.message.contains(words)), "{sections}: {warnings:?}");
        }
        for sections in [
            dropin(
                "a.conf",
                "# ExecStart=\\n[Service]\\nEnvironment=A=b\\nMemoryMax=1G\\n[Install]\\nWantedBy=a.target\\n",
            ),
            file("/etc/systemd/system/other.service.d/a.conf", "%5BService%5D%0AUser=x%0A"),
            link(starts, "/usr/lib/systemd/system/machine-config-agent.service"),
            link("/etc/systemd/system/a.wants/other.service", "/dev/null"),
        ] {
            assert_eq!(warned(&empty(), &spec(&sections)), [], "{sections}");
        }
        let [warning] = &warned(&spec(&link(starts, "../machine-config-agent.service")), &empty())[..] else {
            panic!("it leaves")
        };
        assert!(warning.message.contains("which is removed"), "{}", warning.message);
    }
}
