//! Obstacles of the planned steps on this host: everything that the execution would refuse and that can be seen before.
//!
//! A path that is right already is not touched, so nothing is in its way. Each reason names the field, the cause and the
//! next step; all are collected.

use std::collections::BTreeMap;

use super::account_obstacles;
use super::field::field;
use super::in_the_way::{in_the_way, own_link, through_link, unknown_owner};
use super::input::PlanInput;
use super::reason::{ReasonKind, Unreachable, unreachable};
use super::{Batch, BatchOp, FileOp, Op, Plan, Step, UserOp, accounts, foreign, homes, places, shared};
use crate::model::observation::UnitFileState;
use crate::model::obstacles::{LARGEST_ORIGINAL, LARGEST_ORIGINAL_OF_USER, LARGEST_ORIGINALS, Obstacle};
use crate::model::os::KernelType;
use crate::model::{ManagedPath, ObservedFile, PathSpec, UnitName};

/// Returns the obstacles of the steps.
pub(super) fn blocked(input: &PlanInput<'_>, steps: &[Step]) -> Vec<Unreachable> {
    let mut reasons = Vec::new();
    for reason in steps.iter().filter_map(|step| of_step(input, &step.op, steps)) {
        // Two steps of one unit have the same obstacle.
        if !reasons.contains(&reason) {
            reasons.push(reason);
        }
    }
    let of_accounts = steps.iter().filter(|step| matches!(step.op.batch(), Batch::Accounts | Batch::Users));
    let of_accounts = of_accounts.flat_map(|step| account_obstacles::blocked(input, step));
    let of_accounts = account_obstacles::databases_blocked(input, steps).into_iter().chain(of_accounts);
    let of_accounts = of_accounts.chain(account_obstacles::dropped_groups(input, steps));
    let of_accounts = of_accounts.chain(homes::refused(input, steps));
    reasons.extend(of_accounts);
    reasons.extend(input.facts.covering.iter().filter_map(|path| foreign::full(input, path)));
    reasons.extend(places::refused(input));
    reasons.extend(led_elsewhere(input, steps));
    reasons.extend(shared::of_keys(input, steps));
    reasons.extend(labels(input, steps));
    reasons.extend(layers(input, steps));
    reasons.extend(originals(input, steps));
    reasons.extend(live(input, steps));
    reasons
}

/// Returns the entries that change or leave while a link of the host leads elsewhere than when they were applied: what the config left
/// there, and the original of it, would be lost, and what is at the new place is no config's.
fn led_elsewhere(input: &PlanInput<'_>, steps: &[Step]) -> Vec<Unreachable> {
    let is_written = |path: &ManagedPath| steps.iter().any(|step| step.op.path().as_ref() == Some(path));
    let led = input.facts.obstacles.led.iter();
    let changed = led.filter(|(path, _)| input.old(path) != input.new_entry(path) || is_written(path));
    let reason = |(path, obstacle): (&ManagedPath, &Obstacle)| {
        let entry = input.old(path).or_else(|| input.new_entry(path));
        let section = entry.map_or("storage.files", PathSpec::section);
        stated(format!("{section} {:?}", path.as_str()), obstacle)
    };
    changed.map(reason).collect()
}

/// Returns the obstacles of the files that are left of an open update, from a batch on: those that its run would fail at.
pub(super) fn ahead(input: &PlanInput<'_>, plan: &Plan, next: usize) -> Vec<Unreachable> {
    let left = plan.batches().into_iter().skip(next).flatten();
    let obstacle = |step: &Step| {
        if let BatchOp::User(UserOp::Password, user) = step.op.in_batch() {
            return accounts::opens_lock(input, user);
        }
        let path = step.op.path().filter(|_| step.op.batch() == Batch::Files)?;
        let leaves = matches!(
            step.op.in_batch(),
            BatchOp::File(FileOp::Remove | FileOp::LeaveDirectory | FileOp::Restore)
        );
        // The run leaves it as well.
        if leaves && input.is_others(&path) {
            return None;
        }
        let makes = matches!(step.op, Op::MakeDirectory { .. } | Op::WriteLink { .. });
        let reason = foreign::in_place(input, &step.op).or_else(|| foreign::behind(input, &step.op));
        let reason = reason.or_else(|| foreign::full(input, &path).filter(|_| leaves));
        if let Some(reason) = reason.or_else(|| makes.then(|| in_the_way(input, &step.op)).flatten()) {
            return Some(reason);
        }
        // A link of the host has been led elsewhere since.
        let led = input.facts.obstacles.led.get(&path).filter(|_| input.old(&path).is_some());
        if let Some(led) = led {
            return Some(stated(field(&step.op), led));
        }
        let obstacle = input.facts.obstacles.paths.get(&path)?;
        is_touched(input, &step.op, &path).then(|| stated(field(&step.op), obstacle))
    };
    left.filter_map(obstacle).collect()
}

fn of_step(input: &PlanInput<'_>, op: &Op, steps: &[Step]) -> Option<Unreachable> {
    let found = &input.facts.obstacles;
    let said = |obstacle: Option<&Obstacle>| obstacle.map(|obstacle| stated(field(op), obstacle));
    match op.in_batch() {
        BatchOp::File(_) => {
            let path = op.path()?;
            if let Some(reason) = foreign::in_place(input, op).or_else(|| foreign::behind(input, op)) {
                return Some(reason);
            }
            if matches!(op.in_batch(), BatchOp::File(FileOp::Write | FileOp::Directory | FileOp::Link))
                && let Some(message) = through_link(input, &path, steps)
            {
                return Some(unreachable(ReasonKind::OldEntry, field(op), message));
            }
            if let Op::WriteFile { path }
            | Op::MakeDirectory { path }
            | Op::OpenDirectory { path }
            | Op::WriteLink { path } = op
                && let Some(reason) = unknown_owner(input, path).or_else(|| in_the_way(input, op))
            {
                // What no host takes goes before what this one lacks.
                let of_config = shared::refused(input, op, path).filter(Unreachable::is_of_config);
                return of_config.or(Some(reason));
            }
            if !is_touched(input, op, &path) {
                return None;
            }
            let keys =
                || matches!(op, Op::OpenDirectory { .. }).then(|| shared::keeps_keys(input, &path)).flatten();
            let refused = shared::refused(input, op, &path).or_else(keys);
            let refused = refused.or_else(|| said(found.paths.get(&path)));
            refused.or_else(|| said(closed(op, &path, &found.closed)))
        }
        BatchOp::User(..) if matches!(op, Op::SetSshKeys { .. }) => said(found.keys.get(&op.target())),
        BatchOp::User(UserOp::Password, user) => accounts::opens_lock(input, user),
        BatchOp::Link(_, unit) => {
            let masked = if matches!(op, Op::EnableUnit { .. }) { masked(input, unit, steps) } else { None };
            let turned = matches!(op, Op::EnableUnit { .. } | Op::DisableUnit { .. });
            let masked = masked.or_else(|| if turned { own_link(input, unit) } else { None });
            let masked = masked.or_else(|| foreign::in_place(input, op));
            masked.or_else(|| said(found.units.get(unit)))
        }
        // Accounts by `account_obstacles`.
        BatchOp::User(..) | BatchOp::Account(..) | BatchOp::Os(_) | BatchOp::Service(_) => None,
    }
}

/// Returns why a path is out of reach once its directories are as the update leaves them; of a directory, also why one in it is,
/// which goes later or stays.
fn closed<'a>(
    op: &Op,
    path: &ManagedPath,
    closed: &'a BTreeMap<ManagedPath, Obstacle>,
) -> Option<&'a Obstacle> {
    let is_directory = matches!(
        op.in_batch(),
        BatchOp::File(FileOp::Directory | FileOp::LeaveDirectory | FileOp::OpenDirectory)
    );
    let mut below = closed.iter().filter(|(other, _)| is_directory && other.is_below(path.as_str()));
    closed.get(path).or_else(|| below.next().map(|(_, obstacle)| obstacle))
}

/// Each update writes new files, were they of the agent's own state alone, and they get labels of the host's policy.
fn labels(input: &PlanInput<'_>, steps: &[Step]) -> Option<Unreachable> {
    let obstacle = input.facts.obstacles.labels.as_ref()?;
    steps.first().map(|step| stated(field(&step.op), obstacle))
}

/// Packages on a host whose backend layers none, or finds none. Another image drops those of the old one by itself.
fn layers(input: &PlanInput<'_>, steps: &[Step]) -> Vec<Unreachable> {
    let has = |is: fn(&Op) -> bool| steps.iter().any(|step| is(&step.op));
    let is_of_image = has(|op| matches!(op, Op::StageOs { .. }));
    let is_changed = has(|op| matches!(op, Op::InstallExtensions { .. } | Op::SwitchKernel { .. }));
    let wants = !input.to.host_layers().is_empty();
    let found = &input.facts.obstacles;
    if let Some(obstacle) = &found.layers {
        let is_concerned = if is_of_image { wants } else { is_changed };
        return if is_concerned { of_packages(input, steps, obstacle) } else { Vec::new() };
    }
    let is_switched = has(|op| matches!(op, Op::StageOs { .. } | Op::SwitchKernel { .. }));
    let kernel = found.kernel.as_ref().filter(|_| is_switched && input.to.image.is_none());
    if let Some(obstacle) = kernel {
        return vec![stated("spec.kernelType".to_owned(), obstacle)];
    }
    // Those of an earlier config that stay are composed again, too.
    let is_composed = wants && (is_of_image || is_changed) && input.to.extensions_image.is_none();
    let repositories = found.repositories.iter().filter(|_| is_composed);
    repositories.flat_map(|obstacle| of_packages(input, steps, obstacle)).collect()
}

/// Names the fields of packages that have an obstacle.
fn of_packages(input: &PlanInput<'_>, steps: &[Step], obstacle: &Obstacle) -> Vec<Unreachable> {
    let has = |is: fn(&Op) -> bool| steps.iter().any(|step| is(&step.op));
    let extensions = !input.to.extensions.is_empty() || has(|op| matches!(op, Op::InstallExtensions { .. }));
    let kernel =
        input.to.kernel_type != KernelType::Default || has(|op| matches!(op, Op::SwitchKernel { .. }));
    let fields = [("spec.extensions", extensions), ("spec.kernelType", kernel)];
    fields.into_iter().filter(|(_, is)| *is).map(|(field, _)| stated(field.to_owned(), obstacle)).collect()
}

fn stated(field: String, obstacle: &Obstacle) -> Unreachable {
    unreachable(ReasonKind::Obstacle, field, obstacle.to_string())
}

/// Returns true if a step changes its path: one that is as desired is left alone.
pub(super) fn is_touched(input: &PlanInput<'_>, op: &Op, path: &ManagedPath) -> bool {
    match op.in_batch() {
        BatchOp::File(FileOp::Write | FileOp::Directory | FileOp::Link) => {
            !input.is_in_place(path) || input.drops_attributes(path)
        }
        BatchOp::File(FileOp::Remove | FileOp::LeaveDirectory | FileOp::Restore) => {
            let is_there =
                || input.facts.observed.files.get(path).is_none_or(|found| *found != ObservedFile::Absent);
            if input.restorable(path) { !input.facts.restored.contains(path) } else { is_there() }
        }
        BatchOp::File(FileOp::OpenDirectory)
        | BatchOp::Os(_)
        | BatchOp::Account(..)
        | BatchOp::User(..)
        | BatchOp::Link(..)
        | BatchOp::Service(_) => true,
    }
}

fn masked(input: &PlanInput<'_>, unit: &UnitName, steps: &[Step]) -> Option<Unreachable> {
    let spec = input.to.units.get(unit)?;
    let found = input.facts.stored_units.get(unit).or_else(|| input.facts.observed.units.get(unit))?;
    let observed = found.enabled == UnitFileState::Masked;
    let planned = |op: &Op| steps.iter().any(|step| step.op == *op);
    // A file's restored original may be an administrator's mask.
    let removed = planned(&Op::RemoveUnit { unit: unit.clone() });
    let masked = if removed { input.has_own_mask(&unit.path()) } else { observed };
    let unmasked = planned(&Op::UnmaskUnit { unit: unit.clone() });
    let stays = masked && !unmasked && spec.contents.is_none();
    let message = "it is masked on this host, so it can't be enabled; unmask it, or set `mask: false`";
    stays.then(|| unreachable(ReasonKind::Masked, format!("systemd.units {:?}", unit.as_str()), message))
}

/// The changed paths of the batch of files, and the size of what each replaces, if that has to be kept: the old config's own
/// content is written again from there.
pub(super) fn replaced<'a>(
    input: &'a PlanInput<'_>,
    steps: &'a [Step],
) -> impl Iterator<Item = (&'a Step, ManagedPath, u64, u32)> {
    let files = steps.iter().filter(|step| step.op.batch() == Batch::Files);
    files.filter_map(|step| {
        let path = step.op.path()?;
        let touched = is_touched(input, &step.op, &path) && !input.is_own(&path);
        let ObservedFile::Regular { len, uid, .. } = input.facts.observed.files.get(&path)? else {
            return None;
        };
        touched.then_some((step, path, *len, *uid))
    })
}

/// An original that can't be kept can't be restored.
fn originals(input: &PlanInput<'_>, steps: &[Step]) -> Vec<Unreachable> {
    let mut reasons = Vec::new();
    let (mut sum, mut largest) = (0_u64, None);
    for (step, path, len, uid) in replaced(input, steps) {
        let limit = if uid == 0 { LARGEST_ORIGINAL } else { LARGEST_ORIGINAL_OF_USER };
        if len > limit {
            let message = format!(
                "{path} on this host has {len} bytes, and an original of at most {limit} can be kept for an undo; move it away"
            );
            reasons.push(unreachable(ReasonKind::Original, field(&step.op), message));
            continue;
        }
        sum += len;
        if largest.as_ref().is_none_or(|(most, _)| *most < len) {
            largest = Some((len, path));
        }
    }
    if let Some((_, path)) = largest.filter(|_| sum > LARGEST_ORIGINALS) {
        let message = format!(
            "the files on this host that it replaces have {sum} bytes, and originals of at most {LARGEST_ORIGINALS} can be kept \
             for one update; move the large ones away ({path} is the largest), or change them in several updates"
        );
        reasons.push(unreachable(ReasonKind::Original, "storage.files", message));
    }
    reasons
}

/// A live system has no disk that a deployment could be written to.
fn live(input: &PlanInput<'_>, steps: &[Step]) -> Option<Unreachable> {
    let step = steps.iter().find(|step| input.facts.is_live && step.op.batch() == Batch::Os)?;
    let message = "this host runs from live media (/run/ostree-live), where no OS can be staged; install it to a disk first";
    Some(unreachable(ReasonKind::LiveMedia, field(&step.op), message))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::machineconfig::MachineConfig;
    use crate::model::obstacles::Space;
    use crate::model::policy::DisruptionPolicy;
    use crate::model::{Facts, HostSpec};
    use crate::plan::{Irreconcilable, Plan, plan};

    const DEVICE: u64 = 7;
    const PATH: &str = "/etc/app.conf";

    fn spec(name: &str, text: &str, mode: &str) -> HostSpec {
        let text = format!(
            r#"{{"kind":"MachineConfig","metadata":{{"name":"{name}"}},"spec":{{"config":{{"ignition":{{"version":"3.4.0"}},
            "storage":{{"files":[{{"path":"{PATH}","mode":{mode},"contents":{{"source":"data:,{text}"}}}}]}}}}}}}}"#
        );
        MachineConfig::parse(text.as_bytes(), name).unwrap().spec(None).unwrap()
    }

    fn path() -> ManagedPath {
        ManagedPath::new(PATH).unwrap()
    }

    fn obstacle() -> Obstacle {
        Obstacle { cause: "it is in the way".to_owned(), next: "Move it away.".to_owned() }
    }

    fn planned(
        from: &HostSpec,
        to: &HostSpec,
        change: impl FnOnce(&mut Facts),
    ) -> Result<Plan, Irreconcilable> {
        let mut facts = Facts::assumed(from, to).unwrap();
        change(&mut facts);
        plan(from, to, &facts, &DisruptionPolicy::defaults())
    }

    fn refused(from: &HostSpec, to: &HostSpec, change: impl FnOnce(&mut Facts)) -> String {
        let refused = planned(from, to, change).unwrap_err();
        assert!(refused.is_of_host && refused.reason() == "HostNotPrepared", "{refused}");
        refused.to_string()
    }

    #[test]
    fn obstacle_of_changed_path_refuses_plan() {
        let (from, to) = (spec("rendered-a", "a", "420"), spec("rendered-b", "b", "420"));
        let said = refused(&from, &to, |facts| drop(facts.obstacles.paths.insert(path(), obstacle())));
        assert!(said.contains(r#"storage.files "/etc/app.conf": it is in the way; move it away"#), "{said}");
        let empty = HostSpec::empty(crate::model::ConfigName::new("rendered-c").unwrap());
        let said = refused(&from, &empty, |facts| drop(facts.obstacles.paths.insert(path(), obstacle())));
        assert!(said.contains("it is in the way"), "{said}");
    }

    #[test]
    fn obstacle_of_path_that_is_right_is_ignored() {
        let (from, to) = (spec("rendered-a", "a", "420"), spec("rendered-b", "b", "420"));
        let in_place = |facts: &mut Facts| {
            facts.observed.files = Facts::assumed(&to, &to).unwrap().observed.files;
            facts.obstacles.paths.insert(path(), obstacle());
        };
        assert!(planned(&from, &to, in_place).is_ok());
        let empty = HostSpec::empty(crate::model::ConfigName::new("rendered-c").unwrap());
        let gone = |facts: &mut Facts| {
            facts.observed.files.insert(path(), ObservedFile::Absent);
            facts.obstacles.paths.insert(path(), obstacle());
        };
        assert!(planned(&from, &empty, gone).is_ok());
    }

    fn found(len: u64, uid: u32) -> ObservedFile {
        let sha256 = crate::model::Sha256::digest(b"something else");
        ObservedFile::Regular { sha256, len, mode: 0o644, uid, gid: uid }
    }

    #[test]
    fn original_beyond_limit_refuses_plan_but_own_content_needs_none() {
        let (from, to) = (spec("rendered-a", "a", "420"), spec("rendered-b", "b", "420"));
        for (len, uid, is_refused) in [
            (LARGEST_ORIGINAL, 0, false),
            (LARGEST_ORIGINAL + 1, 0, true),
            (LARGEST_ORIGINAL_OF_USER, 1000, false),
            (LARGEST_ORIGINAL_OF_USER + 1, 1000, true),
        ] {
            let outcome =
                planned(&from, &to, |facts| drop(facts.observed.files.insert(path(), found(len, uid))));
            assert_eq!(outcome.is_err(), is_refused, "{len} {uid}");
        }
        let large = "x".repeat(usize::try_from(LARGEST_ORIGINAL).unwrap() + 1);
        let mut own = spec("rendered-a", "a", "420");
        own.files.get_mut(&path()).unwrap().contents = crate::model::Contents::new(large.into_bytes());
        assert!(planned(&own, &to, |_| ()).is_ok(), "what the config wrote can be left");
    }

    #[test]
    fn packages_without_source_refuse_plan() {
        let image = |digit: char| format!("r.test/os@sha256:{}", digit.to_string().repeat(64));
        let config = |name: &str, more: &str| {
            let text = format!(
                r#"{{"kind":"MachineConfig","metadata":{{"name":"{name}"}},"spec":{{"osImageURL":"{}"{more}}}}}"#,
                image('1')
            );
            MachineConfig::parse(text.as_bytes(), name).unwrap().spec(None).unwrap()
        };
        let none = |facts: &mut Facts| facts.obstacles.repositories = Some(obstacle());
        let plain = config("rendered-a", "");
        let extended = config("rendered-b", r#","extensions":["usbguard"]"#);
        let said = refused(&plain, &extended, none);
        assert!(said.contains("spec.extensions: it is in the way"), "{said}");
        let said = refused(&plain, &config("rendered-c", r#","kernelType":"realtime""#), none);
        assert!(said.contains("spec.kernelType: it is in the way"), "{said}");
        assert!(planned(&extended, &plain, none).is_ok(), "nothing is composed");
        assert!(planned(&extended, &extended, none).is_ok(), "nothing changes");
        let packages =
            format!(r#","extensions":["usbguard"],"baseOSExtensionsContainerImage":"{}""#, image('2'));
        assert!(planned(&plain, &config("rendered-d", &packages), none).is_ok(), "an image brings them");
    }

    #[test]
    fn missing_space_refuses_plan() {
        let (from, to) = (spec("rendered-a", "a", "420"), spec("rendered-b", "b", "420"));
        let with = |bytes: u64, inodes: Option<u64>| {
            move |facts: &mut Facts| {
                let space = Space { directory: "/etc".to_owned(), bytes, inodes, block: 4096 };
                facts.obstacles.spaces.insert(DEVICE, space);
                facts.obstacles.devices.insert(path(), DEVICE);
                facts.obstacles.state = Some(DEVICE);
            }
        };
        // The file; the config twice, in the open update and as the committed one; three records.
        assert!(planned(&from, &to, with(6 * 4096, Some(100))).is_ok());
        let said = refused(&from, &to, with(4096, None));
        assert!(said.contains("needs 24 KiB on the file system of /etc, which has 4 KiB free"), "{said}");
        let said = refused(&from, &to, with(1 << 30, Some(1)));
        assert!(said.contains("inodes"), "{said}");
        assert!(planned(&to, &to, with(0, Some(0))).is_ok(), "nothing is written");
    }

    #[test]
    fn missing_space_for_directories_and_links_refuses_plan() {
        let storage = |storage: &str| {
            let text = format!(
                r#"{{"kind":"MachineConfig","metadata":{{"name":"rendered-a"}},"spec":{{"config":{{"ignition":{{"version":"3.4.0"}},
                "storage":{storage}}}}}}}"#
            );
            MachineConfig::parse(text.as_bytes(), "rendered-a").unwrap().spec(None).unwrap()
        };
        let empty = HostSpec::empty(crate::model::ConfigName::new("rendered-c").unwrap());
        for (text, is_block) in [
            (r#"{"directories":[{"path":"/etc/app.conf"}]}"#, true),
            (r#"{"links":[{"path":"/etc/app.conf","target":"x"}]}"#, false),
        ] {
            let to = storage(text);
            let with = |bytes: u64, inodes: u64| {
                move |facts: &mut Facts| {
                    let inodes = Some(inodes);
                    let space = Space { directory: "/etc".to_owned(), bytes, inodes, block: 4096 };
                    facts.obstacles.spaces.insert(DEVICE, space);
                    facts.obstacles.devices.insert(path(), DEVICE);
                }
            };
            assert!(planned(&empty, &to, with(4096, 100)).is_ok(), "{text}");
            assert!(refused(&empty, &to, with(4096, 1)).contains("inodes"), "{text}");
            assert_eq!(planned(&empty, &to, with(0, 100)).is_err(), is_block, "{text}");
            assert!(planned(&to, &to, with(0, 0)).is_ok(), "nothing is made");
        }
    }

    #[test]
    fn obstacles_of_accounts_and_links_refuse_plan() {
        let text = |name: &str, key: &str, enabled: bool| {
            let text = format!(
                r#"{{"kind":"MachineConfig","metadata":{{"name":"{name}"}},"spec":{{"config":{{"ignition":{{"version":"3.4.0"}},
                "passwd":{{"users":[{{"name":"core","sshAuthorizedKeys":["{key}"],"passwordHash":"{key}"}}]}},
                "systemd":{{"units":[{{"name":"a.service","enabled":{enabled}}}]}}}}}}}}"#
            );
            MachineConfig::parse(text.as_bytes(), name).unwrap().spec(None).unwrap()
        };
        let (from, to) = (text("rendered-a", "a", false), text("rendered-b", "b", true));
        let unit = || UnitName::new("a.service").unwrap();
        let said = refused(&from, &to, |facts| {
            facts.obstacles.keys.insert("core".to_owned(), obstacle());
            facts.obstacles.databases.insert("/etc/shadow".to_owned(), obstacle());
            facts.obstacles.units.insert(unit(), obstacle());
        });
        for field in ["sshAuthorizedKeys", "passwordHash", r#"systemd.units "a.service""#] {
            assert!(said.contains(&format!("{field}: it is in the way")), "{said}");
        }
        let same = planned(&to, &to, |facts| {
            facts.obstacles.keys.insert("core".to_owned(), obstacle());
        });
        assert!(same.is_ok(), "nothing is written");
    }
}
