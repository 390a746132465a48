//! The archives of a build, each in a Secret of its own. Pure.

use serde_json::{Value, json};

use crate::image::Context;

/// Returns the names of the Secrets with a build's files, each with its file.
pub(super) fn secrets<'a>(
    build: &'a str,
    context: &'a Context,
) -> impl Iterator<Item = (String, &'a String, &'a Vec<u8>)> {
    let secrets = (1_usize..).map(move |number| match number {
        1 => format!("mc-{build}"),
        number => format!("mc{number}-{build}"),
    });
    secrets.zip(&context.files).map(|(secret, (file, bytes))| (secret, file, bytes))
}

/// Returns the volume with the files, of one Secret or several.
pub(super) fn volume(build: &str, context: &Context) -> Value {
    let names: Vec<String> = secrets(build, context).map(|(name, ..)| name).collect();
    if let [name] = &*names {
        return json!({ "name": "files", "secret": { "secretName": name, "defaultMode": 0o400 } });
    }
    let sources: Vec<Value> = names.iter().map(|name| json!({ "secret": { "name": name } })).collect();
    json!({ "name": "files", "projected": { "sources": sources, "defaultMode": 0o400 } })
}
