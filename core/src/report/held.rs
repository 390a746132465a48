//! An update that failed and is held: what came of it, and what tries it again.

use serde::{Deserialize, Serialize};

use crate::model::ConfigName;
use crate::update::Record;
use crate::update::ending::ended_by;
use crate::update::resume::held;

/// An update that failed and is not being worked on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct HeldUpdate {
    /// Its id.
    pub update: String,
    /// Its config.
    pub config: ConfigName,
    /// True if it was rolled back; else the node is as it came up.
    pub is_rolled_back: bool,
    /// The end of the fault: an automatic retry, a request, or another target.
    pub ended_by: String,
}

impl HeldUpdate {
    /// Returns the held update of a record; `is_lasting`: the agent stays, and tries again itself.
    pub fn of_record(record: Option<&Record>, is_lasting: bool) -> Option<Self> {
        let record = record?;
        let fault = record.fault.as_ref()?;
        let is_rolled_back = record.is_undone();
        (is_rolled_back || held(record)).then(|| Self {
            update: record.id.to_string(),
            config: record.to.config.clone(),
            is_rolled_back,
            ended_by: ended_by(fault, Some(record), is_lasting).to_owned(),
        })
    }
}

impl std::fmt::Display for HeldUpdate {
    /// Writes it for people, in one line.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { update, config, is_rolled_back, ended_by } = self;
        let state = if *is_rolled_back { "rolled back and held" } else { "held as the node came up" };
        write!(f, "update {update} to {config} is {state}; it ends with {ended_by}")
    }
}
