//! The links of units, made by the running systemd: one call for each verb, with the whole list.
//!
//! systemd writes them without syncing anything: the caller reads and syncs its changes
//! ([`UnitLinks::settled`]), before it counts as done.

use std::collections::{BTreeMap, BTreeSet};

use super::bus::{ServiceOutcome, Systemd};
use super::call::{call, refusal, within};
use super::link_verbs::{Calls, LinkVerb};
use super::links::{Node, brings};
use super::{LINKS_TIMEOUT, UnitLinks};
use crate::host::HostError;
use crate::host::durable::{Change, DesiredPath};
use crate::host::saved::PathSnapshot;
use crate::model::UnitName;
use crate::model::ids::UNIT_DIR;

/// Work left after systemd did its part.
#[derive(Debug)]
pub struct Settled {
    /// Files that it made, to be synced, and files that it left to be made.
    pub changes: Vec<Change<'static>>,
    /// Paths that it changed without announcing them, as they were.
    pub unforeseen: Vec<(String, PathSnapshot)>,
}

impl Systemd {
    /// Has systemd make links. It reads the unit files as they are now; nothing is reloaded (MCD-156).
    pub async fn make_links(&self, calls: &Calls) -> Result<ServiceOutcome, HostError> {
        let Some(bus) = self.connect().await? else { return Ok(ServiceOutcome::NoSystemd) };
        for (verb, units) in &calls.0 {
            // Not below /run; links that lead elsewhere are replaced.
            let (runtime, force) = (false, true);
            let request = async {
                match verb {
                    LinkVerb::Unmask => call(&bus, "UnmaskUnitFiles", &(units, runtime)).await,
                    LinkVerb::Preset => call(&bus, "PresetUnitFiles", &(units, runtime, force)).await,
                    LinkVerb::Enable => call(&bus, "EnableUnitFiles", &(units, runtime, force)).await,
                    LinkVerb::Disable => call(&bus, "DisableUnitFiles", &(units, runtime)).await,
                    LinkVerb::Mask => call(&bus, "MaskUnitFiles", &(units, runtime, force)).await,
                }
            };
            let done = within(format!("{} of units", verb.as_str()), LINKS_TIMEOUT, request).await;
            if let Err(error) = done {
                let cause = refusal(error)?;
                let unit = units.join(" ");
                if *verb == LinkVerb::Preset {
                    // A unit that can't be preset stays as it is (MCD-150).
                    tracing::warn!(units = unit, "Preset of {unit}: {cause}");
                } else if *verb == LinkVerb::Enable {
                    return Err(HostError::Unit { unit, cause });
                } else {
                    return Err(HostError::Job { action: verb.as_str(), unit, result: cause });
                }
            }
        }
        Ok(ServiceOutcome::Done)
    }
}

impl UnitLinks<'_> {
    /// Computes the effect of one verb on a unit. Nothing is written.
    pub fn make(&mut self, verb: LinkVerb, unit: &UnitName) -> Result<(), HostError> {
        // systemd is called for the units that it knows; the rest of a unit that is gone is only files (MCD-154).
        let known = self.knows(unit)?;
        let ask = match verb {
            LinkVerb::Unmask => {
                let masked = self.is_masked(unit.as_str());
                self.unmask(unit);
                masked
            }
            LinkVerb::Preset => self.preset(unit)? && known,
            LinkVerb::Enable => {
                self.enable(unit)?;
                known
            }
            LinkVerb::Disable => self.disable(unit)? && known,
            LinkVerb::Mask => {
                // systemd refuses to replace a file.
                let file = self.before.get(unit.as_str()) == Some(&Node::File);
                self.mask(unit);
                !file
            }
        };
        if ask {
            self.calls.0.entry(verb).or_default().push(unit.to_string());
        }
        Ok(())
    }

    /// Returns the calls for systemd, if it runs.
    pub fn calls(&self) -> &Calls {
        &self.calls
    }

    /// Compares systemd's links (`after`) with the computed ones. A link of its own making stays as it is, also where
    /// it leads to the same unit file by another directory. `earlier` as in [`UnitLinks::changes`].
    pub fn settled(&self, after: &UnitLinks<'_>, earlier: &[String]) -> Settled {
        let predicted = self.changing(earlier);
        let moved: BTreeSet<&String> = self.before.keys().chain(after.before.keys()).collect();
        let mut unforeseen = BTreeMap::new();
        for at in moved {
            let was = self.before.get(at);
            if !predicted.contains(at) && was != after.before.get(at) {
                unforeseen.insert(at.clone(), was.cloned());
            }
        }
        let was = |at: &String| self.before.get(at);
        let change = |at: &String| {
            let made = after.before.get(at);
            let desired = self.now.get(at);
            // systemd removes a link that brings a unit with the unit's other links.
            let is_lost =
                || made.is_none() && matches!(was(at), Some(Node::Link(target)) if brings(at, target));
            let same = (!predicted.contains(at) && !is_lost()) || equivalent(made, desired);
            let want = match if same { made } else { desired } {
                Some(Node::Link(target)) => DesiredPath::link(target),
                Some(Node::File) => return None,
                None => DesiredPath::Absent,
            };
            Some(Change::new(format!("{UNIT_DIR}/{at}"), 0, want))
        };
        let changes = predicted.iter().chain(unforeseen.keys()).filter_map(change).collect();
        let saved = |node: Option<Node>| match node {
            Some(Node::Link(target)) => Some(PathSnapshot::link(target)),
            None => Some(PathSnapshot::Absent),
            // systemd never removes a unit file.
            Some(Node::File) => None,
        };
        let unforeseen = unforeseen.into_iter();
        let unforeseen = unforeseen.filter_map(|(at, was)| Some((format!("{UNIT_DIR}/{at}"), saved(was)?)));
        Settled { changes, unforeseen: unforeseen.collect() }
    }
}

/// Returns true if two entries mean the same to systemd: links to a unit file of the same name.
fn equivalent(one: Option<&Node>, other: Option<&Node>) -> bool {
    match (one, other) {
        (Some(Node::Link(one)), Some(Node::Link(other))) => {
            one == other || (!is_mask(one) && !is_mask(other) && name(one) == name(other))
        }
        (one, other) => one == other,
    }
}

fn is_mask(target: &str) -> bool {
    target == super::links::DEV_NULL
}

fn name(path: &str) -> &str {
    path.rsplit_once('/').map_or(path, |(_, name)| name)
}
