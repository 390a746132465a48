//! The schemas of the documents that the verbs print, made from their types: `docs/schemas/controller` has them.
//! `UPDATE_GOLDENS=1` writes them.

use machine_config_core::model::refusal::Refused;
use schemars::generate::SchemaSettings;
use schemars::{Schema, SchemaGenerator};

use super::build::Built;
use super::validate::Validated;
use crate::plan::explain;
use crate::view::View;

#[path = "../../../tests/support/schemas.rs"]
mod goldens;

fn generator() -> SchemaGenerator {
    SchemaSettings::draft2020_12().for_serialize().into_generator()
}

fn of_verbs() -> [(&'static str, Schema); 5] {
    [
        ("build", generator().into_root_schema_for::<Built<'static>>()),
        ("plan", explain::schema(generator())),
        ("refused", generator().into_root_schema_for::<Refused<'static>>()),
        ("status", generator().into_root_schema_for::<View>()),
        ("validate", generator().into_root_schema_for::<Validated<'static>>()),
    ]
}

#[test]
fn schemas_of_documents_are_those_of_types() {
    let all = of_verbs().map(|(verb, schema)| (verb, schema.to_value()));
    goldens::compare("controller", all.into());
}
