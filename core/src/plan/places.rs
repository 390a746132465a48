//! Entries by their real paths: a directory on the way to an entry, or to what is protected, may be a link of the host. The rules
//! of [`super::own_paths`] are asked for each name that the entry has there.

use super::input::PlanInput;
use super::own_paths::{Rules, above_agent, judge, keys, rules};
use super::reason::{ReasonKind, Unreachable, unreachable};
use crate::model::ids::is_below;
use crate::model::protected::own;
use crate::model::{ManagedPath, ModelError, PathSpec};

/// `/tmp` of a deployment without a directory of that name.
const OSTREE_TMP: &str = "/sysroot/tmp";

/// Returns the entries of the new config that are refused where they really are.
pub(super) fn refused(input: &PlanInput<'_>) -> Vec<Unreachable> {
    let (found, keys) = (&input.facts.obstacles, keys(input));
    let rules = &rules(input, &keys);
    if found.real_paths.is_empty() && found.places.is_empty() {
        return Vec::new();
    }
    let reason = |path: &ManagedPath| {
        let entry = input.new_entry(path)?;
        by_other_names(input, (path, entry), rules).or_else(|| on_the_way(input, path, entry))
    };
    input.paths().filter_map(reason).collect()
}

/// Returns the reason of an entry for a rule that it breaks by another name.
fn stated(
    input: &PlanInput<'_>,
    (path, entry): (&ManagedPath, &PathSpec),
    (name, message): (&str, &str),
) -> Unreachable {
    let section = if input.to.is_listed(path) { entry.section() } else { "systemd.units" };
    let field = format!("{section} {:?}", path.as_str());
    unreachable(ReasonKind::Obstacle, field, format!("on this host it is {name}: {message}"))
}

fn by_other_names(
    input: &PlanInput<'_>,
    (path, entry): (&ManagedPath, &PathSpec),
    rules: &Rules<'_>,
) -> Option<Unreachable> {
    input.other_names(path).iter().find_map(|name| match ManagedPath::new(name.as_str()) {
        Ok(other) => {
            judge(&other, entry, rules).map(|reason| stated(input, (path, entry), (name, &reason.message)))
        }
        Err(_) if path.is_below("/tmp") && is_below(name, OSTREE_TMP) => None,
        Err(ModelError::Path { rule, .. }) => {
            Some(stated(input, (path, entry), (name, &format!("{rule}; choose another path"))))
        }
        Err(_) => None,
    })
}

/// Refuses what is above a file of the agent where that really is, or in the place of a link that leads there.
fn on_the_way(input: &PlanInput<'_>, path: &ManagedPath, entry: &PathSpec) -> Option<Unreachable> {
    let found = &input.facts.obstacles;
    let name = found.real_paths.get(path).map_or(path.as_str(), String::as_str);
    own().find_map(|file| {
        let place = found.places.get(file)?;
        if place.links.iter().any(|link| link == name) && !input.is_in_place(path) {
            let message = format!("the agent uses {file}, to which this link leads; remove the entry");
            return Some(stated(input, (path, entry), (name, &message)));
        }
        let is_above = is_below(&place.real, name) || place.links.iter().any(|link| is_below(link, name));
        let message = is_above.then(|| above_agent(file, path, entry)).flatten()?;
        Some(stated(input, (path, entry), (name, &message)))
    })
}
