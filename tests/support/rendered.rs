//! The manifests: as they are in their files, and as kustomize renders them (`tests/manifests`, Go).
#![allow(dead_code, reason = "each test binary uses its own part of it")]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "test support: it stops at the first surprise, starts programs and reads their files"
)]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use serde_json::Value;

/// Path of the manifests.
pub(crate) fn manifests() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("dist/manifests")
}

/// The documents of a text in YAML.
pub(crate) fn documents(text: &str, of: &str) -> Vec<Value> {
    serde_saphyr::from_multiple(text).unwrap_or_else(|error| panic!("{of}: {error}"))
}

/// The documents of a file in YAML.
pub(crate) fn file(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    documents(&text, &path.display().to_string())
}

/// Rendered objects of a directory of `dist/manifests`, with components on top of it.
pub(crate) fn render(directory: &str, components: &[&str]) -> Vec<Value> {
    let mut command = Command::new(renderer());
    for component in components {
        command.arg("--component").arg(manifests().join("components").join(component));
    }
    let output = command.arg(manifests().join(directory)).output().unwrap();
    assert!(
        output.status.success(),
        "{directory} {components:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    documents(&String::from_utf8(output.stdout).unwrap(), directory)
}

/// Builds the renderer once; Go's cache makes that quick.
fn renderer() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        // Of this process only: another test binary may build at the same time.
        let program =
            PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("render-{}", std::process::id()));
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/manifests");
        let mut go = Command::new("go");
        go.arg("build").arg("-o").arg(&program).arg(".").current_dir(source);
        let output = go.output().unwrap_or_else(|error| panic!("go: {error}; `./setup` installs it"));
        assert!(output.status.success(), "tests/manifests: {}", String::from_utf8_lossy(&output.stderr));
        program
    })
}

/// A text in a document; empty when it is not there.
pub(crate) fn text<'a>(document: &'a Value, pointer: &str) -> &'a str {
    document.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// The documents of a kind.
pub(crate) fn of_kind<'a>(all: &'a [Value], kind: &str) -> Vec<&'a Value> {
    all.iter().filter(|document| text(document, "/kind") == kind).collect()
}

/// The user that the DaemonSet's pods are to the API server: namespace and name.
pub(crate) fn account(all: &[Value]) -> (String, String) {
    let sets = of_kind(all, "DaemonSet");
    assert_eq!(sets.len(), 1, "one DaemonSet");
    let set = sets.first().unwrap();
    let name = text(set, "/spec/template/spec/serviceAccountName");
    (text(set, "/metadata/namespace").to_owned(), name.to_owned())
}
