//! The steps of units: unit files and drop-ins, then masks and enablement.
//!
//! Links follow the unit: they are made again when their sources change (its file, a mask, the `[Install]` of
//! a drop-in), and else only where the host is not already as desired. The earlier links must not matter: a unit
//! that leaves the config has those of the presets, whatever it had. A unit that the host does not know and the config does not bring is skipped (MCD-151).

use super::differences::{is_masked, strays, unit_state_difference};
use super::input::PlanInput;
use super::{Mode, Op, Step, StepReason, companions};
use crate::model::ids::is_preset;
use crate::model::observation::{ObservedUnit, UnitFilePreset, UnitFileState};
use crate::model::units::{Enablement, Mask, UnitSpec};
use crate::model::{Contents, DropinName, ManagedPath, ObservedFile, UnitName};

/// Assumed state of a unit that was not observed: nothing is known of it.
const UNOBSERVED: ObservedUnit =
    ObservedUnit { enabled: UnitFileState::NotFound, preset: UnitFilePreset::Enable, mask: Mask::Unset };

/// Returns the writes of unit files and drop-ins.
pub(super) fn writes(input: &PlanInput<'_>) -> Vec<Step> {
    let mut steps = Vec::new();
    for (name, spec) in &input.to.units {
        for dropin in spec.dropins.keys() {
            let because = input.write(&name.dropin_path(dropin));
            steps.extend(because.map(|because| Step {
                op: Op::WriteDropin { unit: name.clone(), name: dropin.clone() },
                because,
            }));
        }
        steps.extend(
            writes_file(input, name, spec)
                .map(|because| Step { op: Op::WriteUnit { unit: name.clone() }, because }),
        );
    }
    steps
}

fn writes_file(input: &PlanInput<'_>, name: &UnitName, spec: &UnitSpec) -> Option<StepReason> {
    has_file(spec).then(|| input.write(&name.path())).flatten()
}

fn has_file(spec: &UnitSpec) -> bool {
    spec.contents.is_some() && spec.mask != Mask::Masked
}

/// Returns the removals of unit files and drop-ins.
pub(super) fn removals(input: &PlanInput<'_>) -> Vec<Step> {
    let mut steps = Vec::new();
    for (unit, spec) in &input.from.units {
        let remove_dropin = |name: &DropinName| {
            let op = Op::RemoveDropin { unit: unit.clone(), name: name.clone() };
            removal(input, &unit.dropin_path(name), op)
        };
        steps.extend(spec.dropins.keys().filter_map(remove_dropin));
        let op = Op::RemoveUnit { unit: unit.clone() };
        steps.extend(file_goes(input, unit, spec).and_then(|path| removal(input, &path, op)));
    }
    steps
}

/// Returns the path of a unit of the old config whose file or mask is to go as a file. The original of a mask comes
/// back in the link's place; without an original the link is only removed.
fn file_goes(input: &PlanInput<'_>, unit: &UnitName, old: &UnitSpec) -> Option<ManagedPath> {
    let path = unit.path();
    let ours = has_file(old)
        || match old.mask {
            Mask::Masked => input.restorable(&path) && !stays_as_masked(input, unit),
            Mask::Unmasked => input.has_own_mask(&path) && !unmasks(input, unit),
            Mask::Unset => false,
        };
    (ours && input.take_away(&path).is_some()).then_some(path)
}

fn unmasks(input: &PlanInput<'_>, unit: &UnitName) -> bool {
    input.to.units.get(unit).is_some_and(|new| new.mask == Mask::Unmasked)
}

/// Returns true if the mask of the old config is in the place of another one, which stays.
fn stays_as_masked(input: &PlanInput<'_>, unit: &UnitName) -> bool {
    input.has_own_mask(&unit.path()) && input.facts.observed.units.get(unit).copied().is_some_and(is_masked)
}

/// Removing a unit puts its original back; one that only the image's own config brought is removed as a plain file.
fn removal(input: &PlanInput<'_>, path: &ManagedPath, op: Op) -> Option<Step> {
    let because = input.take_away(path)?;
    let carried = input.facts.restorable.contains(path) && !input.restorable(path);
    let op = if carried { Op::RemoveFile { path: path.clone() } } else { op };
    Some(Step { op, because })
}

/// Returns the steps of masks and enablement.
pub(super) fn links(input: &PlanInput<'_>) -> Vec<Step> {
    let mut steps = Vec::new();
    for (name, spec) in &input.to.units {
        let Some((because, rewritten)) = touched(input, name, spec) else { continue };
        let observed = observed_unit(input, name);
        let mask = mask(input, name, spec, observed);
        let skipped = is_settled(input, name, spec, rewritten)
            || stays_masked(spec, observed, mask.as_ref())
            || is_carried(input, name, observed, mask.as_ref(), rewritten);
        // Stray links are more than "nothing to do": enabling makes the links exactly.
        let anew = rewritten == Rewritten::Yes || !strays(input.to, name, &input.facts.observed).is_empty();
        // Of a unit that is masked its companions are not disabled; the links of its own mean nothing then.
        let hidden = spec.mask == Mask::Masked && input.facts.companions.contains_key(name);
        let links = if skipped || hidden { None } else { enablement(input, (name, spec), observed, anew) };
        // A mask comes last and goes first: a link to /dev/null has no [Install] section to go by.
        let (first, last) = if spec.mask == Mask::Masked { (links, mask) } else { (mask, links) };
        steps.extend(first.into_iter().chain(last).map(|op| Step { op, because }));
    }
    steps.extend(links_of_dropped(input));
    // They come first: a preset that enables its unit enables the companions again.
    let mut first = companions::let_go(input, |name| is_remade(input, name));
    first.retain(|step| steps.iter().all(|other| other.op != step.op));
    first.append(&mut steps);
    let again = companions::disabled_again(input, &first);
    first.extend(again);
    first
}

/// Returns the steps for the links of units that are no longer managed.
fn links_of_dropped(input: &PlanInput<'_>) -> Vec<Step> {
    let mut steps = Vec::new();
    for (name, spec) in input.from.units.iter().filter(|(name, _)| !input.to.units.contains_key(*name)) {
        // Links of a unit that the OS brings are on the host only: no image takes them away.
        let of_the_os = spec.contents.is_none() && spec.mask != Mask::Masked;
        let because = match input.mode {
            Mode::Image if of_the_os => Some(StepReason::LocallyModified),
            Mode::Image => input.uncarried(&name.path()),
            Mode::Nothing | Mode::Files | Mode::ImageAndFiles | Mode::LeaveImage | Mode::Adopt => {
                Some(StepReason::Removed)
            }
        };
        let Some(because) = because else { continue };
        steps.extend(unlink(input, name, spec).into_iter().map(|op| Step { op, because }));
    }
    steps
}

/// Returns a unit as it is once the files are written: those of storage may bring it.
fn observed_unit(input: &PlanInput<'_>, name: &UnitName) -> ObservedUnit {
    let stored = input.facts.stored_units.get(name);
    stored.or_else(|| input.facts.observed.units.get(name)).copied().unwrap_or(UNOBSERVED)
}

/// Returns why the files of a unit that are in the storage of a config change.
fn stored_moves(input: &PlanInput<'_>, name: &UnitName) -> Option<StepReason> {
    let sources = input.to.unit_sources(name).into_iter().chain(input.from.unit_sources(name));
    let mut moves = sources.map(|path| input.write(&path).or_else(|| input.take_away(&path)));
    moves.find_map(|because| because)
}

/// Change of a unit's links in this plan.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Rewritten {
    Yes,
    No,
}

/// Returns why a unit's links are looked at; `None` when they are not this plan's matter.
fn touched(input: &PlanInput<'_>, name: &UnitName, spec: &UnitSpec) -> Option<(StepReason, Rewritten)> {
    if let Some(because) = rewritten(input, name, spec) {
        return Some((because, Rewritten::Yes));
    }
    let because = match (input.mode, input.from.units.get(name)) {
        (Mode::Image, _) => Some(StepReason::LocallyModified),
        (_, None) => Some(StepReason::Added),
        (Mode::Adopt, Some(_)) => Some(StepReason::Changed),
        (_, Some(old)) if old != spec || is_turned(input, name, spec) || loses_instance(input, name) => {
            Some(StepReason::Changed)
        }
        (_, Some(_)) if has_lost_install(input, name, spec) => Some(StepReason::Drifted),
        (_, Some(_)) if spec.enablement == Enablement::Preset => moved_presets(input),
        (_, Some(_)) => None,
    };
    because.map(|because| (because, Rewritten::No))
}

/// Returns true if an update of the OS left a unit without the `[Install]` section that its links are from: they are no longer asked
/// for, and nothing else would take them away.
fn has_lost_install(input: &PlanInput<'_>, name: &UnitName, spec: &UnitSpec) -> bool {
    let observed = &input.facts.observed;
    let is_static = observed.units.get(name).is_some_and(|found| found.enabled == UnitFileState::Static);
    spec.enablement == Enablement::Enabled && is_static && !strays(input.to, name, observed).is_empty()
}

/// Returns true if links of storage, as they come and go, leave a unit otherwise than its entry has it.
fn is_turned(input: &PlanInput<'_>, name: &UnitName, spec: &UnitSpec) -> bool {
    let stored = input.facts.stored_units.get(name).copied();
    let is_as_desired = |state| unit_state_difference(name, spec, state).is_none();
    let before = input.facts.observed.units.get(name).copied();
    stored.is_some_and(|after| !is_as_desired(after)) && before.is_some_and(is_as_desired)
}

/// Returns true if the entry of an instance of a template leaves: the template's decides about it.
fn loses_instance(input: &PlanInput<'_>, name: &UnitName) -> bool {
    let mut left = input.from.units.keys().filter(|other| !input.to.units.contains_key(*other));
    left.any(|other| other.template().is_some_and(|template| template == *name))
}

/// Returns why the sources of a unit's links change: its file is written or goes, or an `[Install]` section does.
fn rewritten(input: &PlanInput<'_>, name: &UnitName, spec: &UnitSpec) -> Option<StepReason> {
    let old = input.from.units.get(name);
    let gone = || input.take_away(&file_goes(input, name, old?)?);
    let dropins = || install_moves(input, name, &[old, Some(spec)]);
    let stored = || stored_moves(input, name);
    let because = writes_file(input, name, spec).or_else(gone).or_else(dropins).or_else(stored)?;
    // The unit itself stays.
    Some(if because == StepReason::Removed { StepReason::Changed } else { because })
}

/// Returns why the `[Install]` sections of a unit's drop-ins may change: those of the configs, or of their originals.
fn install_moves(input: &PlanInput<'_>, name: &UnitName, specs: &[Option<&UnitSpec>]) -> Option<StepReason> {
    let installs = |contents: &Contents| contents.bytes().windows(9).any(|part| part == b"[Install]");
    let moves = |dropin: &DropinName| {
        let path = name.dropin_path(dropin);
        let says = specs.iter().flatten().any(|spec| spec.dropins.get(dropin).is_some_and(installs));
        let old = input.from.units.get(name).is_some_and(|old| old.dropins.contains_key(dropin));
        let found =
            input.facts.observed.files.get(&path).is_some_and(|observed| *observed != ObservedFile::Absent);
        let replaces = if old { input.restorable(&path) } else { found };
        input.write(&path).or_else(|| input.take_away(&path)).filter(|_| says || replaces)
    };
    specs.iter().flatten().flat_map(|spec| spec.dropins.keys()).find_map(moves)
}

/// Presets are used when a unit comes or changes, not again and again. An image brings those of its own; links that the
/// old config had turned here its merge keeps.
fn is_settled(input: &PlanInput<'_>, name: &UnitName, spec: &UnitSpec, rewritten: Rewritten) -> bool {
    let old = input.from.units.get(name);
    let same = match input.mode {
        Mode::Image => old.is_none_or(|old| old.enablement == Enablement::Preset),
        Mode::Nothing | Mode::Files | Mode::ImageAndFiles | Mode::LeaveImage | Mode::Adopt => {
            old == Some(spec)
        }
    };
    let has_new_presets = moved_presets(input).is_some() && input.facts.stored_units.contains_key(name);
    spec.enablement == Enablement::Preset && same && rewritten == Rewritten::No && !has_new_presets
}

/// Returns why presets in storage change.
fn moved_presets(input: &PlanInput<'_>) -> Option<StepReason> {
    let listed = input.from.entries().into_keys().chain(input.to.entries().into_keys());
    let mut moves =
        listed.filter(is_preset).filter_map(|path| input.write(&path).or_else(|| input.take_away(&path)));
    moves.next().map(|because| if because == StepReason::Removed { StepReason::Changed } else { because })
}

/// The host's own mask is kept; to enable such a unit is refused later, so that step is not left out here.
fn stays_masked(spec: &UnitSpec, observed: ObservedUnit, mask: Option<&Op>) -> bool {
    let stays = observed.enabled == UnitFileState::Masked && mask.is_none() && spec.contents.is_none();
    stays && spec.enablement != Enablement::Enabled
}

/// An image brings the links of units that this host does not know yet. Those of a known unit are judged by the present
/// links: the merge of /etc keeps the changes made here.
fn is_carried(
    input: &PlanInput<'_>,
    name: &UnitName,
    observed: ObservedUnit,
    mask: Option<&Op>,
    rewritten: Rewritten,
) -> bool {
    let here =
        observed.enabled.is_installable() || mask.is_some() || input.facts.local.contains(&name.path());
    input.mode == Mode::Image && rewritten == Rewritten::No && !here
}

fn mask(input: &PlanInput<'_>, name: &UnitName, spec: &UnitSpec, observed: ObservedUnit) -> Option<Op> {
    let unit = name.clone();
    let old = input.from.units.get(name);
    let was = old.map_or(Mask::Unset, |old| old.mask);
    // An administrator's mask is back as soon as the file goes that was written over it.
    let own = input.has_own_mask(&name.path());
    let back = own && old.is_some_and(has_file);
    if input.mode == Mode::Image && !input.facts.local.contains(&name.path()) {
        return None;
    }
    match spec.mask {
        Mask::Masked => (!is_masked(observed)).then_some(Op::MaskUnit { unit }),
        // Written contents replace the link by themselves.
        Mask::Unset | Mask::Unmasked if spec.contents.is_some() => None,
        Mask::Unset => {
            let is_ours = was == Mask::Masked && !own && !input.is_lost(&name.path());
            (is_ours && is_masked(observed)).then_some(Op::UnmaskUnit { unit })
        }
        Mask::Unmasked => (is_masked(observed) || back).then_some(Op::UnmaskUnit { unit }),
    }
}

fn enablement(
    input: &PlanInput<'_>,
    (name, spec): (&UnitName, &UnitSpec),
    observed: ObservedUnit,
    anew: bool,
) -> Option<Op> {
    use UnitFileState::{Enabled, Masked, NotFound, Static};
    let unit = name.clone();
    if spec.mask == Mask::Masked {
        let linked = spec.enablement == Enablement::Disabled && observed.enabled.has_links();
        return linked.then_some(Op::DisableUnit { unit });
    }
    if spec.contents.is_none() && observed.enabled == NotFound {
        // What brought it leaves, and its links go.
        let before = input.facts.observed.units.get(name);
        let is_left = before.is_some_and(|before| before.enabled.is_installable());
        return is_left.then_some(Op::DisableUnit { unit });
    }
    match spec.enablement {
        Enablement::Enabled => {
            (anew || !matches!(observed.enabled, Enabled | Static)).then_some(Op::EnableUnit { unit })
        }
        // Links of a unit that is new here may be there already, left by another one of its name.
        Enablement::Disabled => (anew || observed.enabled.has_links() || observed.enabled == Masked)
            .then_some(Op::DisableUnit { unit }),
        Enablement::Preset => {
            let other = observed.is_against_preset() || observed.enabled == Masked;
            (anew || other).then_some(Op::PresetUnit { unit })
        }
    }
}

/// Returns true if the sources of a unit's links change, or go.
fn is_remade(input: &PlanInput<'_>, name: &UnitName) -> bool {
    match (input.from.units.get(name), input.to.units.get(name)) {
        (_, Some(new)) => rewritten(input, name, new).is_some(),
        (Some(old), None) if old.mask == Mask::Masked => !stays_as_masked(input, name),
        (Some(old), None) => {
            old.contents.is_some()
                || install_moves(input, name, &[Some(old)]).is_some()
                || stored_moves(input, name).is_some()
        }
        (None, None) => false,
    }
}

/// Returns the links of a unit that is no longer managed: the presets decide again, about the unit of this name of the
/// OS or the administrator; of a unit that is gone all links go.
fn unlink(input: &PlanInput<'_>, name: &UnitName, spec: &UnitSpec) -> Vec<Op> {
    let unit = || name.clone();
    let observed = input.facts.observed.units.get(name).copied().unwrap_or(UNOBSERVED);
    let preset = Op::PresetUnit { unit: unit() };
    if spec.mask == Mask::Masked && (stays_as_masked(input, name) || input.is_lost(&name.path())) {
        return Vec::new();
    }
    if spec.mask == Mask::Masked && !input.restorable(&name.path()) {
        return vec![Op::UnmaskUnit { unit: unit() }, preset];
    }
    if is_remade(input, name) {
        return vec![preset];
    }
    let is_moved = input.facts.stored_units.contains_key(name);
    if *spec == UnitSpec::empty() && !is_moved {
        // It set nothing, and nothing of it is left.
        return Vec::new();
    }
    // Presets may leave with it.
    let preset_after = input.facts.stored_units.get(name).map_or(observed.preset, |after| after.preset);
    let after = ObservedUnit { preset: preset_after, ..observed };
    if after.is_against_preset() { vec![preset] } else { Vec::new() }
}
