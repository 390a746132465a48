//! The parser of rpm-ostree's deployments, as a target of `fuzz/`.

use serde_json::Value as Json;
use zbus::zvariant::{OwnedValue, Value};

use super::deployments::{Deployment, Dictionary, State};
use crate::model::ConfigName;

/// Reads deployments: `rpm-ostree status --json` has the entries of the bus.
pub(crate) fn rpm_ostree_status(bytes: &[u8]) -> Vec<String> {
    let Ok(Json::Array(entries)) = serde_json::from_slice(bytes) else { return Vec::new() };
    let deployments = entries.iter().filter_map(dictionary).map(|one| Deployment::from_dictionary(&one));
    let state = State { deployments: deployments.collect(), ..State::default() };
    let observed = state.observe(ConfigName::new("embedded").ok());
    assert_eq!(observed.is_some(), state.booted().is_some(), "only what is booted is observed");
    assert!(state.rollback().is_none_or(|left| !left.is_booted), "the booted one stays");
    assert!(state.pending().is_none_or(|next| !next.is_booted), "the booted one is not pending");
    Vec::new()
}

fn dictionary(entry: &Json) -> Option<Dictionary> {
    let entries = entry.as_object()?.iter();
    Some(entries.filter_map(|(name, value)| Some((name.clone(), of_bus(value)?))).collect())
}

/// The types of the bus that JSON has.
fn of_bus(value: &Json) -> Option<OwnedValue> {
    match value {
        Json::Bool(flag) => Some((*flag).into()),
        Json::Number(number) => Some(number.as_u64()?.into()),
        Json::String(text) => Value::from(text.as_str()).try_into().ok(),
        Json::Array(values) => {
            let texts: Vec<&str> = values.iter().filter_map(Json::as_str).collect();
            Value::from(texts).try_into().ok()
        }
        Json::Object(_) => Value::from(dictionary(value)?).try_into().ok(),
        Json::Null => None,
    }
}
