//! The configs that a MachineConfigPool names.

use serde::Deserialize;

use super::document::Document;
use super::error::ModelError;

/// Names of a pool's configs; empty where there is none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PoolConfigs {
    /// The target of its nodes.
    pub target: String,
    /// The config that all of its nodes have.
    pub rolled_out: String,
}

#[derive(Deserialize)]
struct Pool {
    #[serde(default)]
    spec: Option<Part>,
    #[serde(default)]
    status: Option<Part>,
}

#[derive(Deserialize)]
struct Part {
    #[serde(default)]
    configuration: Option<Configuration>,
}

#[derive(Deserialize)]
struct Configuration {
    #[serde(default)]
    name: String,
}

impl PoolConfigs {
    /// Reads a pool.
    pub fn of_document(document: &Document) -> Result<Self, ModelError> {
        let Pool { spec, status } = document.read()?.value;
        let name = |part: Option<Part>| part?.configuration.map(|configuration| configuration.name);
        Ok(Self { target: name(spec).unwrap_or_default(), rolled_out: name(status).unwrap_or_default() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::document::{Kind, one};

    #[test]
    fn configs_of_pool_are_read_and_faults_named() {
        let read = |text: &str| {
            one(text.as_bytes(), "p", Kind::POOL).and_then(|pool| PoolConfigs::of_document(&pool))
        };
        let pool = read("spec: {configuration: {name: a}}\nstatus: {configuration: {name: b}}").unwrap();
        assert_eq!((&*pool.target, &*pool.rolled_out), ("a", "b"));
        assert_eq!(read("spec: null").unwrap(), PoolConfigs::default());
        assert_eq!(
            read("spec: {configuration: {name: 5}}").unwrap_err().field(),
            Some("spec.configuration.name")
        );
        assert_eq!(read("kind: MachineConfig").unwrap_err().field(), Some("kind"));
    }
}
