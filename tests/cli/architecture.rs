//! The tables of the design, checked by a test: imports of each folder, folders of each crate.
//! Cargo keeps `core/` from importing the agent; clippy (`core/clippy.toml`) keeps it from calling a clock or a file
//! system.
//!
//! | file | holds |
//! |---|---|
//! | `form` | the form of every file |
//! | `parsers` | the files that parse a document |
//! | `sources` | the files, as the tests read them |

mod form;
mod parsers;
mod sources;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::import_graph::{File, Graph, without_strings};
use crate::table;
use sources::{Source, after, all_sources, none, sources, sources_of};

/// Imports go one way. A folder that is not listed fails: add it to the table first.
const IMPORTS: [(&str, &[&str]); 20] = [
    ("model", &[]),
    ("plan", &["model"]),
    ("update", &["model", "plan"]),
    ("decide", &["model", "plan", "update"]),
    ("drain", &["model"]),
    ("report", &["model", "plan", "update"]),
    ("stateroot", &["model", "update"]),
    ("host", &["model", "stateroot"]),
    ("settings", &["model", "plan", "stateroot", "host"]),
    ("observe", &["model", "stateroot", "host"]),
    ("journal", &["model", "plan", "update", "stateroot", "host"]),
    ("apply", &["model", "plan", "stateroot", "journal", "host"]),
    // The control plane as a directory is read through the wall.
    ("control", &["model", "decide", "drain", "update", "report", "stateroot", "host"]),
    ("telemetry", &["model", "report"]),
    ("reconcilers", &["model", "host", "control"]),
    ("sandbox", &["model", "plan", "host", "control"]),
    // A verb of the binary for the tests of the OS backends.
    ("os_call", &["model", "host"]),
    ("agent", &ALL),
    ("cli", &ALL),
    // Targets of `fuzz/`: in no build but that one and the tests.
    ("fuzzing", &ALL),
];

const ALL: [&str; 18] = [
    "model",
    "plan",
    "update",
    "decide",
    "drain",
    "report",
    "stateroot",
    "host",
    "settings",
    "observe",
    "journal",
    "apply",
    "control",
    "telemetry",
    "reconcilers",
    "sandbox",
    "agent",
    "cli",
];

/// The same for the cluster side. Its folders have no names of the agent's.
const CONTROLLER_IMPORTS: [(&str, &[&str]); 22] = [
    ("api", &[]),
    ("watches", &[]),
    ("drain", &["api"]),
    ("lease", &[]),
    ("registry", &[]),
    ("retry", &[]),
    ("image", &["api"]),
    ("interlock", &["api"]),
    ("render", &["api"]),
    ("seed", &["api"]),
    ("build", &["api", "image"]),
    ("cost", &["render"]),
    ("rollout", &["api", "cost", "drain", "retry"]),
    ("reading", &["api", "rollout"]),
    ("serve", &["api", "reading", "watches"]),
    ("manifests", &["api", "reading", "render"]),
    ("opt_in", &["api", "build", "render", "rollout"]),
    ("view", &["api", "drain", "rollout"]),
    ("bootstrap", &["api", "build", "image", "manifests", "registry", "render", "seed"]),
    (
        "controllers",
        &[
            "api",
            "build",
            "cost",
            "drain",
            "image",
            "interlock",
            "lease",
            "manifests",
            "opt_in",
            "reading",
            "registry",
            "render",
            "retry",
            "rollout",
            "seed",
            "serve",
            "view",
            "watches",
        ],
    ),
    (
        "cli",
        &[
            "api",
            "bootstrap",
            "build",
            "controllers",
            "cost",
            "image",
            "manifests",
            "reading",
            "registry",
            "render",
            "serve",
            "view",
            "watches",
        ],
    ),
    ("fuzzing", &["api", "image", "reading", "registry", "serve"]),
];

/// Dependencies of `core/`: parsers, serializers, digests. None of them reaches a machine.
const CORE_BUILT_WITH: [&str; 13] = [
    "base64",
    "flate2",
    "ignition-config",
    "ipnet",
    "schemars",
    "serde",
    "serde_json",
    "serde-saphyr",
    "serde_ignored",
    "sha2",
    "similar",
    "thiserror",
    "toml",
];

/// Names that only these folders use.
const ONLY_IN: [(&str, &[&str]); 24] = [
    // Neither the loop nor a verb has retries of its own: `decide` owns them, and the control plane those of its requests.
    ("Backoff::", &["model", "decide", "control"]),
    ("rustix::", &["host", "sandbox"]),
    ("ostree::", &["host"]),
    ("ostree_ext::", &["host"]),
    ("zbus::", &["host"]),
    ("k8s_openapi::", &["control"]),
    ("kube::", &["control"]),
    ("secrecy::", &["control"]),
    ("http::", &["control", "host", "telemetry"]),
    ("hyper::", &["control", "host", "telemetry"]),
    ("hyper_util::", &["control", "host", "telemetry"]),
    ("reqwest::", &["control"]),
    ("rustls::", &["control"]),
    ("rustls_native_certs::", &["control"]),
    ("tokio_rustls::", &["control", "telemetry"]),
    ("tower::", &["control"]),
    ("tower_http::", &["control"]),
    ("clap::", &["cli"]),
    ("clap_complete::", &["cli"]),
    ("clap_mangen::", &["cli"]),
    ("tar::", &["cli", "host"]),
    ("std::fs", &["host", "sandbox"]),
    ("process::Command", &["host", "sandbox"]),
    ("env::var", &["settings"]),
];

/// Returns the imports that a table does not allow.
fn wrong_imports(sources: &[Source], table: &[(&str, &[&str])]) -> Vec<String> {
    let mut wrong = Vec::new();
    for source in sources.iter().filter(|source| !source.is_root() && !source.is_test()) {
        let folder = source.folder();
        let Some((_, allowed)) = table.iter().find(|(name, _)| *name == folder) else {
            wrong.push(format!("{source}: the folder {folder} has no place in the table"));
            continue;
        };
        let imports = source.imports();
        let is_folder = |import: &&String| table.iter().any(|(name, _)| *name == **import);
        for import in imports.iter().filter(is_folder).filter(|import| !allowed.contains(&import.as_str())) {
            wrong.push(format!("{source} imports {import}; {folder} may import {allowed:?}"));
        }
    }
    wrong
}

#[test]
fn imports_go_one_way() {
    none(&wrong_imports(&sources(), &IMPORTS));
    none(&wrong_imports(&sources_of(&["controller/src"]), &CONTROLLER_IMPORTS));
}

/// The page lists the folders with what they import, as the tables do; "all" stands for most of them.
#[test]
fn architecture_page_has_same_imports() {
    let page = std::fs::read_to_string("docs/architecture.md").unwrap();
    let quoted = |cell: &str| -> BTreeSet<String> {
        let parts = cell.split('`').skip(1).step_by(2);
        parts.flat_map(str::split_whitespace).map(str::to_owned).collect()
    };
    for (base, table) in [("src/", &IMPORTS[..]), ("controller/src/", &CONTROLLER_IMPORTS[..])] {
        for (folder, imports) in table.iter().filter(|(folder, _)| *folder != "os_call") {
            let paths = [base.to_owned(), format!("core/{base}")]
                .map(|base| [format!("| `{base}{folder}/`"), format!("| `{base}{folder}.rs`")]);
            let row =
                page.lines().find(|line| paths.as_flattened().iter().any(|path| line.starts_with(path)));
            let cell = row.unwrap_or_else(|| panic!("docs/architecture.md has no row for {folder}"));
            let cell = cell.trim_end_matches([' ', '|']).rsplit('|').next().unwrap();
            let expected: BTreeSet<String> = imports.iter().map(|import| (*import).to_owned()).collect();
            assert!(cell.contains("all") || quoted(cell) == expected, "{folder}: {cell} is not {imports:?}");
        }
    }
}

#[test]
fn crates_stay_in_their_folders() {
    let mut wrong = Vec::new();
    for source in sources().iter().filter(|source| !source.is_root() && !source.is_test()) {
        for (word, folders) in
            ONLY_IN.iter().filter(|(_, folders)| !folders.contains(&source.folder().as_str()))
        {
            if !after(&source.code(), word).is_empty() {
                wrong.push(format!("{source} says {word}, which belongs to {folders:?}"));
            }
        }
    }
    none(&wrong);
}

#[test]
fn core_has_no_dependency_with_machine_access() {
    let manifest = std::fs::read_to_string("core/Cargo.toml").unwrap();
    let sections = manifest.split("\n[").skip(1);
    let mut named = Vec::new();
    // Dependencies of its tests are in no product.
    let named_so = |section: &&str| {
        let name = section.split(']').next().unwrap();
        name.contains("dependencies") && name != "dev-dependencies"
    };
    for section in sections.filter(named_so) {
        assert!(section.starts_with("dependencies]"), "core/Cargo.toml: [{section}");
        let lines = section.lines().skip(1).filter(|line| !line.is_empty() && !line.starts_with('#'));
        named.extend(lines.map(|line| line.split([' ', '.', '=']).next().unwrap().to_owned()));
    }
    let built_with = CORE_BUILT_WITH.map(str::to_owned);
    let update = "A crate that reaches a machine has no place in core/; another one gets its row.";
    table::compare("CORE_BUILT_WITH", built_with, "core/Cargo.toml", named, update);
}

/// A file as a part of the import graph.
fn file(source: &Source) -> File {
    let name = match source.base {
        "src" => "agent",
        "core/src" => "core",
        _ => "controller",
    };
    let own = source.module().into_iter().filter(|part| part != "lib");
    let module = std::iter::once(name.to_owned()).chain(own).collect();
    File { name: source.to_string(), module, code: without_strings(&source.code()) }
}

#[test]
fn no_files_import_each_other_in_circle() {
    let is_executable = |source: &Source| source.is_root() && source.path != Path::new("lib.rs");
    let sources = all_sources().into_iter().filter(|source| !source.is_test() && !is_executable(source));
    let files: Vec<File> = sources.map(|source| file(&source)).collect();
    assert!(files.len() > 300, "{} files", files.len());
    none(&Graph::new(files).circles());
}

#[test]
fn import_circles_are_found() {
    let circles = |files: &[(&'static str, &str, &str)]| {
        let sources = files.iter().map(|(base, path, text)| Source {
            base,
            path: PathBuf::from(path),
            text: (*text).to_owned(),
        });
        Graph::new(sources.map(|source| file(&source)).collect()).circles()
    };
    let one = ("src", "a/one.rs", "use super::two::{self, Two};\nfn f() { two::g(\"crate::a::one::x\") }\n");
    let two = ("src", "a/two.rs", "// use super::one::One;\npub struct Two;\n");
    let folder = ("src", "a/mod.rs", "mod one;\nmod two;\npub use one::One;\npub(crate) use two::Two;\n");
    assert_eq!(circles(&[one, two, folder]), [""; 0]);
    // By a declaration, by a path, through the folder that re-exports it, through a name of another file, and below it.
    for text in [
        "use super::one::One;\n",
        "fn f() { crate::a::one::g(); }\n",
        "use super::One;\n",
        "use super::one;\nfn f() { one::g(); }\n",
        "#[cfg(x)]\nuse crate::{\n    b::C,\n    a::{one::One, three},\n};\n",
    ] {
        let found = circles(&[one, ("src", "a/two.rs", text), folder]);
        assert_eq!(found.len(), 1, "{text}: {found:?}");
        assert!(found[0].contains("src/a/two.rs imports src/a/one.rs: "), "{found:?}");
    }
    let through = [
        ("core/src", "lib.rs", "pub mod m;\n"),
        ("core/src", "m/mod.rs", "mod x;\nmod y;\nuse x::X;\nfn f(_: X) {}\n"),
        ("core/src", "m/x.rs", "use super::y::Y;\n"),
        ("core/src", "m/y.rs", "use crate::m::f;\n"),
    ];
    assert!(circles(&through)[0].starts_with("a circle of 3 files:"), "{:?}", circles(&through));
}

#[test]
fn scan_finds_known_cases() {
    let source =
        |path: &str, text: &str| Source { base: "src", path: PathBuf::from(path), text: text.to_owned() };
    let imports = |path, text| source(path, text).imports().into_iter().collect::<Vec<_>>().join(" ");
    assert_eq!(imports("plan/a.rs", "use crate::host::root;\n// crate::agent::x\n"), "host");
    assert_eq!(imports("plan/a.rs", "use crate::{model::{A, B}, host};"), "host model");
    assert_eq!(imports("plan/a.rs", "use super::super::host::Root; use super::b;"), "host");
    assert_eq!(imports("plan/mod.rs", "fn f() { super::agent::run(); }"), "agent");
    assert_eq!(imports("plan/a.rs", "use super::b;\n#[cfg(test)]\nmod tests { use crate::agent; }"), "");
    // What only tests have ends where it is closed, whatever stands before it and after it.
    for tests in [
        "#[cfg(test)]\n#[expect(x)]\npub mod tests {\n    use crate::agent;\n\n    fn f() {}\n}\n",
        "#[cfg(test)]\nuse crate::{\n    agent,\n};\n",
        "impl A {\n    #[cfg(test)]\n    fn f() {\n        crate::agent::run();\n    }\n}\n",
        "struct A {\n    #[cfg(test)]\n    a: crate::agent::A,\n}\n",
    ] {
        let text = format!("{tests}use crate::host::root;\n");
        let found = source("plan/a.rs", &text).imports().into_iter().collect::<Vec<_>>();
        assert_eq!(found, ["host"], "{tests}");
    }
    assert!(after("std::fs::read", "std::fs").len() == 1 && after("xstd::fs", "std::fs").is_empty());
}
