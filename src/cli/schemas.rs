//! The schemas of the documents that the verbs print, made from their types: `docs/schemas/agent` has them.
//! `UPDATE_GOLDENS=1` writes them. tests/cli/schemas.rs holds what the verbs print against them.

use schemars::generate::SchemaSettings;
use schemars::{Schema, SchemaGenerator};

use crate::model::refusal::Refused;
use crate::plan::explain;

#[path = "../../tests/support/schemas.rs"]
mod goldens;

fn generator() -> SchemaGenerator {
    SchemaSettings::draft2020_12().for_serialize().into_generator()
}

fn of_verbs() -> Vec<(&'static str, Schema)> {
    let mut all = vec![
        ("history", super::history::schema(generator())),
        ("plan", explain::schema(generator())),
        ("refused", generator().into_root_schema_for::<Refused<'static>>()),
        ("status", super::status::schema(generator())),
        ("verify", super::verify::schema(generator())),
    ];
    #[cfg(feature = "backend-ostree")]
    all.extend([
        ("seed-create", super::seed::schema(generator())),
        ("stateroot-activate", super::stateroot::schemas::activate(generator())),
        ("stateroot-inspect", super::stateroot::schemas::inspect(generator())),
        ("stateroot-list", super::stateroot::schemas::list(generator())),
        ("stateroot-prepare", super::stateroot::schemas::prepare(generator())),
        ("stateroot-roll-back", super::stateroot::schemas::activate(generator())),
    ]);
    all
}

#[test]
fn schemas_of_documents_are_those_of_types() {
    let all = of_verbs().into_iter().map(|(verb, schema)| (verb, schema.to_value()));
    goldens::compare("agent", all.collect());
}
