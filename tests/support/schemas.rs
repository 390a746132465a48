//! The schemas in `docs/schemas`, one of each document that a verb prints: compared with those of the types, and held against what
//! the verbs print.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    unreachable_pub,
    missing_docs,
    dead_code,
    reason = "shared by tests: it fails by panicking, and each uses its own part of it"
)]

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

/// The directory of a program's schemas.
fn directory(program: &str) -> PathBuf {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let root = if package.join("docs").is_dir() { package } else { package.parent().unwrap() };
    root.join("docs/schemas").join(program)
}

/// Compares the schemas of a program's types with its files; `UPDATE_GOLDENS=1` writes them.
pub fn compare(program: &str, mut schemas: Vec<(&str, Value)>) {
    for (_, schema) in &mut schemas {
        shorten(schema);
    }
    let directory = directory(program);
    if std::env::var_os("UPDATE_GOLDENS").is_some_and(|value| value == "1") {
        std::fs::create_dir_all(&directory).unwrap();
        for (verb, schema) in &schemas {
            let text = serde_json::to_string_pretty(schema).unwrap() + "\n";
            std::fs::write(directory.join(format!("{verb}.json")), text).unwrap();
        }
    }
    let mut files: Vec<String> = std::fs::read_dir(&directory)
        .unwrap_or_else(|e| panic!("{}: {e}", directory.display()))
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    files.sort();
    let mut names: Vec<String> = schemas.iter().map(|(verb, _)| format!("{verb}.json")).collect();
    names.sort();
    assert_eq!(files, names, "of {program}");
    for (verb, schema) in &schemas {
        let update = "`UPDATE_GOLDENS=1 cargo test --workspace --lib schemas` writes it";
        assert_eq!(
            read(program, verb),
            *schema,
            "docs/schemas/{program}/{verb}.json is not that of the type; {update}"
        );
    }
}

/// Leaves the first paragraph of each description: what follows is for who changes the type.
fn shorten(schema: &mut Value) {
    match schema {
        Value::Object(map) => {
            if let Some(Value::String(text)) = map.get_mut("description")
                && let Some(end) = text.find("\n\n")
            {
                text.truncate(end);
            }
            map.values_mut().for_each(shorten);
        }
        Value::Array(all) => all.iter_mut().for_each(shorten),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn read(program: &str, verb: &str) -> Value {
    let path = directory(program).join(format!("{verb}.json"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    serde_json::from_str(&text).unwrap()
}

/// Holds a document against its schema: each key of it is there, too.
pub fn check(program: &str, verb: &str, document: &Value) {
    if let Err(error) = validate(program, verb, document) {
        panic!("{program} {verb}: {error}\n{document:#}");
    }
}

/// Validates a document; keys that the schema does not have are an error.
pub fn validate(program: &str, verb: &str, document: &Value) -> Result<(), String> {
    let mut schema = read(program, verb);
    close(&mut schema);
    let (mut all, mut compiler) = (boon::Schemas::new(), boon::Compiler::new());
    let place = "https://schemas.test/one.json";
    compiler.add_resource(place, schema).map_err(|error| error.to_string())?;
    let index = compiler.compile(place, &mut all).map_err(|error| error.to_string())?;
    all.validate(document, index).map_err(|error| format!("{error:#}"))
}

/// A reader takes keys that are new to it; a test does not.
fn close(schema: &mut Value) {
    match schema {
        Value::Object(map) => {
            map.values_mut().for_each(close);
            if map.get("properties").is_some_and(Value::is_object)
                && !map.contains_key("additionalProperties")
            {
                map.insert("additionalProperties".to_owned(), json!(false));
            }
        }
        Value::Array(all) => all.iter_mut().for_each(close),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
