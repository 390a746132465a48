//! Configs that can't be reached from the present one (docs/contract.md, "Configs that are refused"; RC1 to RC3 and
//! RC13 are refused where a config is read).
//!
//! All reasons are collected: an administrator corrects a config once, not field by field.

use super::Mode;
use super::accounts;
use super::contradicted;
use super::input::PlanInput;
use super::installation::missing;
use super::os;
use super::own_paths;
use super::reason::{Cause, ReasonKind, Unreachable, unreachable};
use crate::model::fixed::FIPS_FIELD;
use crate::model::observation::{ObservedFips, ObservedOs};
use crate::model::policy::{DisruptionPolicy, StorageOverride};
use crate::model::refusal::Refusal;
use crate::model::{Facts, FaultClass, HostSpec, ManagedPath, Observation};

/// The old config can't be turned into the new one on this host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Irreconcilable {
    /// Every reason; never empty.
    pub reasons: Vec<Unreachable>,
    /// True if all that is in the way is on this host, where it can be repaired.
    pub is_of_host: bool,
}

impl std::fmt::Display for Irreconcilable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&named(self.reasons.iter().map(|reason| (reason, &*reason.message))))
    }
}

/// Names the reasons, with these words of each.
fn named<'a>(reasons: impl Iterator<Item = (&'a Unreachable, &'a str)>) -> String {
    let mut text = "the node can't reach its new config".to_owned();
    for (place, (reason, message)) in reasons.enumerate() {
        let before = if place == 0 { ": " } else { "; " };
        text += &format!("{before}{}: {message}", reason.field);
    }
    text
}

impl std::error::Error for Irreconcilable {}

impl Irreconcilable {
    /// Returns the class for the node.
    pub fn class(&self) -> FaultClass {
        FaultClass::Unreconcilable
    }

    /// Returns the word for events and metric labels.
    pub fn reason(&self) -> &'static str {
        if self.is_of_host { "HostNotPrepared" } else { "FailedToReconcile" }
    }

    /// Returns the next step for all reasons; each reason may have its own in its message.
    pub fn next_step(&self) -> String {
        next_step(&self.reasons, self.is_of_host)
    }

    /// Returns the text beside [`Self::next_step`]: without the steps that it repeats.
    pub fn cause(&self) -> String {
        if steps(&self.reasons, self.is_of_host).is_none() {
            return self.to_string();
        }
        named(self.reasons.iter().map(|reason| (reason, cause_of(reason))))
    }

    /// Returns each reason for a program.
    pub fn refusals(&self) -> Vec<Refusal> {
        let (class, reason) = (self.class().as_str(), self.reason());
        let of = |one: &Unreachable| {
            let alone = std::slice::from_ref(one);
            let message = if steps(alone, self.is_of_host).is_some() { cause_of(one) } else { &one.message };
            Refusal {
                field: Some(one.field.clone()),
                next: Some(next_step(alone, self.is_of_host)),
                ..Refusal::new(class, reason, message.to_owned())
            }
        };
        self.reasons.iter().map(of).collect()
    }

    /// Returns what is left without the reasons that a host gives; `None` if nothing is.
    #[must_use]
    pub fn of_configs(mut self) -> Option<Self> {
        self.reasons.retain(|reason| reason.kind.cause() != Cause::Host);
        (!self.reasons.is_empty()).then_some(Self { is_of_host: false, ..self })
    }

    pub(super) fn new(kind: ReasonKind, field: impl Into<String>, message: impl Into<String>) -> Self {
        Self { reasons: vec![unreachable(kind, field, message)], is_of_host: false }
    }
}

/// More steps than these are not repeated behind their causes.
const MAX_STEPS: usize = 3;

/// Returns the steps of the reasons' own, where they are the next step.
fn steps(reasons: &[Unreachable], is_of_host: bool) -> Option<Vec<String>> {
    if !is_of_host
        || reasons.len() > MAX_STEPS
        || reasons.iter().all(is_installed)
        || reasons.iter().all(Unreachable::is_of_config)
    {
        return None;
    }
    reasons.iter().map(of_host).collect()
}

fn is_installed(reason: &Unreachable) -> bool {
    reason.message.ends_with(INSTALL)
}

fn next_step(reasons: &[Unreachable], is_of_host: bool) -> String {
    if let Some(steps) = steps(reasons, is_of_host) {
        return steps.join(" ");
    }
    let general = if reasons.iter().all(is_installed) {
        "Revert these fields in the MachineConfig; only an installation can change them."
    } else if reasons.iter().all(Unreachable::is_of_config) {
        "Correct what is named in the MachineConfig."
    } else if is_of_host {
        "Correct what is named, on this host or in the MachineConfig."
    } else {
        "Correct what is named, in the MachineConfig or on this host; after a change on this host: \
         `systemctl reload machine-config-agent`."
    };
    general.to_owned()
}

/// Returns the step of one reason; `None` if its message has none.
fn of_host(reason: &Unreachable) -> Option<String> {
    let (_, step) = last_part(&reason.message)?;
    Some(format!("For {}: {}.", reason.field, step.trim_end_matches('.')))
}

/// Returns the message of a reason without its step.
fn cause_of(reason: &Unreachable) -> &str {
    last_part(&reason.message).map_or(&*reason.message, |(cause, _)| cause)
}

/// Returns what is before and behind the last semicolon of a message. Parentheses hold commands, with semicolons of their own.
fn last_part(message: &str) -> Option<(&str, &str)> {
    let mut depth = 0_usize;
    let mut begin = None;
    for (at, c) in message.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            ';' if depth == 0 => begin = Some(at + 1),
            _ => {}
        }
    }
    let (before, behind) = message.split_at_checked(begin?)?;
    let parts = (before.trim_end_matches(';'), behind.trim());
    Some(parts).filter(|(_, step)| !step.is_empty())
}

/// MCD's file that forces an update (RC14): a config that creates it would force each one.
pub const FORCE_FILE: &str = "/run/machine-config-daemon-force";

/// The way to change the part of an installation.
const INSTALL: &str = "reinstall the node";

/// Returns every reason that the two configs, the host and the policy give.
pub(super) fn reasons(input: &PlanInput<'_>, policy: &DisruptionPolicy) -> Vec<Unreachable> {
    let PlanInput { from, to, facts, .. } = input;
    let mut reasons = fixed(from, to, &facts.observed, policy);
    reasons.extend(accounts::refused(input));
    reasons.extend(force_file(to));
    reasons.extend(own_paths::refused(input));
    reasons.extend(contradicted::refused(to));
    reasons.extend(own_paths::settings(to));
    reasons.extend(fips(from, to, facts));
    reasons.extend(image(input));
    let is_named = |field: &str| reasons.iter().any(|one| one.field == field);
    let of_os: Vec<Unreachable> =
        os_fields(to, facts).into_iter().filter(|one| !is_named(&one.field)).collect();
    reasons.extend(of_os);
    reasons
}

pub(super) fn force_file(to: &HostSpec) -> Option<Unreachable> {
    let is_there = to.files.keys().any(|path: &ManagedPath| path.as_str() == FORCE_FILE);
    let message = "a config must not create MCD's force file; remove the entry";
    is_there.then(|| unreachable(ReasonKind::ForceFile, format!("storage.files {FORCE_FILE:?}"), message))
}

/// Sections that only an installation makes. Entries that this host never got can be taken out.
fn fixed(
    from: &HostSpec,
    to: &HostSpec,
    observed: &Observation,
    policy: &DisruptionPolicy,
) -> Vec<Unreachable> {
    let (old, new) = (&from.fixed.sections, &to.fixed.sections);
    let names: std::collections::BTreeSet<_> = old.keys().chain(new.keys()).copied().collect();
    let overridden = |name: &str| {
        let desired = match name {
            "storage.disks" => StorageOverride::Disks,
            "storage.filesystems" => StorageOverride::FileSystems,
            "storage.raid" => StorageOverride::Raid,
            _ => return false,
        };
        policy.overrides.contains(&desired)
    };
    let refused = |name: &&'static str| {
        old.get(name) != new.get(name)
            && !overridden(name)
            && !drops_what_is_not_here(name, from, to, observed)
    };
    let message = format!("it can only be set when a node is installed; revert the change, or {INSTALL}");
    names
        .into_iter()
        .filter(refused)
        .map(|name| unreachable(ReasonKind::Installation, name, message.clone()))
        .collect()
}

/// Returns true if all that changes in a section are entries that leave and were never applied to this host.
fn drops_what_is_not_here(section: &str, from: &HostSpec, to: &HostSpec, observed: &Observation) -> bool {
    let [old, new] = [from, to].map(|spec| spec.fixed.entries_of(section));
    let left = old.iter().filter(|one| !new.iter().any(|other| other.is_same(one)));
    !old.is_empty()
        && new.iter().all(|one| old.iter().any(|other| other.is_same(one)))
        && left.into_iter().all(|one| missing(one, observed).is_some())
}

/// The running kernel decides; if it is unknown, the old config does (RC15, RC16), but for a mode that was never applied.
fn fips(from: &HostSpec, to: &HostSpec, facts: &Facts) -> Option<Unreachable> {
    let on = match facts.fips {
        ObservedFips::On => true,
        ObservedFips::Off => false,
        ObservedFips::Unknown if from.fips && !facts.observed.storage.contains(FIPS_FIELD) => to.fips,
        ObservedFips::Unknown => from.fips,
    };
    let word = |on| if on { "on" } else { "off" };
    (on != to.fips).then(|| {
        let message = format!(
            "refusing to modify FIPS on a running cluster: it is {} on this node and {} in the config; {INSTALL}",
            word(on),
            word(to.fips)
        );
        unreachable(ReasonKind::Fips, FIPS_FIELD, message)
    })
}

/// Fields of the OS on a host that has none that could be changed.
fn os_fields(to: &HostSpec, facts: &Facts) -> Vec<Unreachable> {
    let unapplied = os::fields_without_os(to, &facts.observed);
    unapplied.map(|field| unreachable(ReasonKind::NoOs, field, os::NO_OS)).collect()
}

fn image(input: &PlanInput<'_>) -> Option<Unreachable> {
    match (&input.facts.observed.os, &input.to.image) {
        (ObservedOs::NotImageBased, Some(image)) => {
            let message = "this host does not boot images, so it can't switch to one; clear the desired image of this node";
            Some(unreachable(ReasonKind::NotImageBased, format!("image {image}"), message))
        }
        (ObservedOs::Deployments { .. }, None)
            if input.mode == Mode::LeaveImage && input.to.os_image_url.is_none() =>
        {
            let message =
                "the node leaves image mode and the config names no OS image to go to; set spec.osImageURL";
            Some(unreachable(ReasonKind::NoImage, "spec.osImageURL", message))
        }
        (ObservedOs::NotImageBased | ObservedOs::Deployments { .. }, _) => None,
    }
}
