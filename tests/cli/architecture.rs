//! The tables of the design, checked by a test: imports of each folder, folders of each crate, and the form of every file.
//! Cargo keeps `core/` from importing the agent; clippy (`core/clippy.toml`) keeps it from calling a clock or a file
//! system.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::import_graph::{File, Graph, without_strings};
use crate::table;

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
const CORE_BUILT_WITH: [&str; 12] = [
    "base64",
    "flate2",
    "ignition-config",
    "ipnet",
    "serde",
    "serde_json",
    "serde-saphyr",
    "serde_ignored",
    "sha2",
    "similar",
    "thiserror",
    "toml",
];

/// The sources of the agent and of `core/`. Their folders have different names.
const BASES: [&str; 2] = ["src", "core/src"];

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

/// Calls that make a value of a text or of a tree, or of what the API gives.
const PARSES: [&str; 8] = [
    "serde_json::from_",
    "serde_saphyr::from_",
    "::deserialize(",
    "yaml::strings(",
    "yaml::tree(",
    "type Object = ",
    "request::<",
    "request_events::<",
];

/// Where documents come in, these files parse something themselves, and so often. The kinds of [`READ`] are none of it.
const PARSERS: [(&str, &[(&str, usize)]); 13] = [
    ("settings of a node, with the keys that are not known", &[("core/src/model/settings.rs", 1)]),
    (
        "the one entry: `document`, `reading`, Ignition's sections, YAML",
        &[
            ("core/src/model/reading/mod.rs", 2),
            ("core/src/model/ignition/mod.rs", 1),
            ("core/src/model/yaml.rs", 3),
            ("controller/src/reading/lenient.rs", 2),
        ],
    ),
    (
        "the text of a MachineConfig that the entry has read: digest, name, its readable parts, its digests of contents, its packed form",
        &[
            ("controller/src/controllers/stored_config.rs", 1),
            ("core/src/model/content.rs", 1),
            ("core/src/model/machineconfig.rs", 1),
            ("core/src/model/opaque.rs", 1),
            ("core/src/model/fixed.rs", 1),
            ("core/src/model/ignition/stale.rs", 1),
        ],
    ),
    (
        "credentials and pins of disks, in strings",
        &[
            ("core/src/model/registry_auth.rs", 1),
            ("core/src/model/ignition/rules/luks.rs", 1),
            ("controller/src/registry/credentials.rs", 2),
            ("controller/src/registry/session.rs", 1),
            ("controller/src/registry/secret.rs", 1),
            ("controller/src/bootstrap/credentials.rs", 2),
        ],
    ),
    (
        "members of a seed that are no MachineConfig",
        &[
            ("core/src/stateroot/cluster_config.rs", 2),
            ("core/src/stateroot/making.rs", 2),
            ("core/src/stateroot/members.rs", 2),
            ("core/src/stateroot/seed.rs", 1),
        ],
    ),
    (
        "files of the agent and of the kubelet: target, stage, kubeconfig",
        &[
            ("src/control/directory.rs", 1),
            ("src/control/stage_file.rs", 1),
            ("src/control/kube/bootstrap.rs", 1),
            ("src/control/kube/identity.rs", 1),
        ],
    ),
    (
        "kinds of Kubernetes and OpenShift: Node, Event, ConfigMap, Secret, Status, reviews, ClusterVersion",
        &[
            ("src/control/kube/node_watch.rs", 1),
            ("src/control/kube/node.rs", 1),
            ("src/control/kube/events.rs", 2),
            ("src/control/kube/server_ca.rs", 1),
            ("src/control/kube/request.rs", 1),
            ("src/control/kube/lifecycle/seed_cluster.rs", 3),
            ("controller/src/serve/authorities.rs", 1),
            ("controller/src/serve/kubeconfig.rs", 1),
        ],
    ),
    (
        "the ControllerConfig, by a type that never prints its secrets",
        &[("src/control/kube/controller_config.rs", 1)],
    ),
    (
        "the transport: one type for all kinds, and lists of metadata",
        &[
            ("src/control/kube/reflector.rs", 1),
            ("src/control/kube/pinned/mod.rs", 1),
            ("src/control/kube/lifecycle/mod.rs", 1),
        ],
    ),
    (
        "trees, which the entry reads then",
        &[
            ("src/control/kube/pinned/objects.rs", 1),
            ("controller/src/controllers/config.rs", 1),
            ("controller/src/controllers/untyped.rs", 1),
            ("controller/src/controllers/opt_in.rs", 1),
        ],
    ),
    (
        "the agent's own objects, conditions and annotations",
        &[
            ("src/control/kube/mcn.rs", 1),
            ("src/control/kube/mcn/stored.rs", 2),
            ("src/control/kube/lifecycle/seed_generator.rs", 1),
            ("src/control/kube/lifecycle/singleton.rs", 1),
            ("src/control/kube/lifecycle/upgrade.rs", 2),
            ("controller/src/rollout/node.rs", 1),
            ("controller/src/controllers/config_node.rs", 1),
        ],
    ),
    (
        "objects that the controller makes, and what is left of a policy that can't be read",
        &[
            ("controller/src/build/objects.rs", 1),
            ("controller/src/controllers/build/openshift.rs", 1),
            ("controller/src/controllers/build/write.rs", 1),
            ("controller/src/controllers/cached.rs", 1),
        ],
    ),
    ("settings of builds", &[("controller/src/cli/run.rs", 1)]),
];

/// Kinds that are read through the one entry alone: in the controller as `Lenient<KIND>`.
const READ: [&str; 7] = [
    "MachineConfig",
    "MachineConfigPool",
    "MachineConfigNode",
    "MachineOSBuild",
    "MachineOSConfig",
    "PinnedImageSet",
    "RolloutPolicy",
];

struct Source {
    base: &'static str,
    /// Relative to its base.
    path: PathBuf,
    text: String,
}

impl std::fmt::Display for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.base, self.path.display())
    }
}

impl Source {
    /// `src/a/b.rs` and `src/a/b/mod.rs` are `["a", "b"]`.
    fn module(&self) -> Vec<String> {
        let path = self.path.with_extension("");
        let mut parts: Vec<String> = path.iter().map(|part| part.to_str().unwrap().to_owned()).collect();
        if parts.last().is_some_and(|last| last == "mod") {
            parts.pop();
        }
        parts
    }

    fn folder(&self) -> String {
        self.module().remove(0)
    }

    /// Tests beside their module: they play the host, so they may touch a directory of their own. The walk through the
    /// states is one, and so are the simulation of rollouts and the targets of `fuzz/`.
    fn is_test(&self) -> bool {
        let of_tests = ["tests", "tests.rs", "walk", "simulation", "fuzzing.rs"];
        self.path.iter().any(|part| of_tests.iter().any(|name| part == *name))
    }

    fn is_root(&self) -> bool {
        let executable = self.path == Path::new("main.rs") || self.path.starts_with("bin");
        executable || self.path == Path::new("lib.rs")
    }

    /// The code: without comments, and without what only tests have.
    fn code(&self) -> String {
        let lines = without_tests(&self.text).into_iter().filter(|line| !line.trim_start().starts_with("//"));
        lines.map(|line| line.split(" // ").next().unwrap()).collect::<Vec<_>>().join("\n")
    }

    /// The top-level modules that the code names.
    fn imports(&self) -> BTreeSet<String> {
        let code = self.code();
        let mut found = BTreeSet::new();
        for rest in after(&code, "crate::") {
            found.extend(names(rest));
        }
        // `super` as often as the module is deep is the crate itself.
        let root = format!("{}::", vec!["super"; self.module().len()].join("::"));
        for rest in after(&code, &root) {
            found.extend(names(rest));
        }
        found.remove(&self.folder());
        found
    }
}

/// Leaves out each item under `#[cfg(test)]`: up to the line that closes it, as rustfmt writes it.
fn without_tests(text: &str) -> Vec<&str> {
    let mut lines = text.lines();
    let mut left = Vec::new();
    while let Some(line) = lines.next() {
        if line.trim() != "#[cfg(test)]" {
            left.push(line);
            continue;
        }
        let indent = &line[..line.len() - line.trim_start().len()];
        let first = lines.find(|line| !line.trim_start().starts_with("#[")).unwrap_or_default();
        let closes = |line: &str| {
            let own = line.strip_prefix(indent).filter(|own| !own.starts_with(' '));
            own.is_some_and(|own| own.starts_with('}') || own.ends_with(';'))
        };
        if !first.ends_with([';', ',', '}']) {
            lines.find(|line| closes(line));
        }
    }
    left
}

/// Returns the text after each mention of a path that begins here and not in the middle of another one.
fn after<'a>(code: &'a str, path: &str) -> Vec<&'a str> {
    let begins =
        |at: usize| !code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == ':' || c == '$');
    code.match_indices(path).filter(|(at, _)| begins(*at)).map(|(at, _)| &code[at + path.len()..]).collect()
}

/// The first names of a path or of a braced list of paths.
fn names(rest: &str) -> Vec<String> {
    let name = |text: &str| -> String {
        text.trim_start().chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()
    };
    let Some(list) = rest.strip_prefix('{') else { return vec![name(rest)] };
    let (mut depth, mut names) = (0, vec![name(list)]);
    for (at, c) in list.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => names.push(name(&list[at + 1..])),
            _ => {}
        }
    }
    names.retain(|name| !name.is_empty());
    names
}

fn walk(directory: &Path, base: &'static str, found: &mut Vec<Source>) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            walk(&path, base, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = std::fs::read_to_string(&path).unwrap();
            found.push(Source { base, path: path.strip_prefix(base).unwrap().to_owned(), text });
        }
    }
}

fn sources() -> Vec<Source> {
    sources_of(&BASES)
}

/// The sources of all three crates.
fn all_sources() -> Vec<Source> {
    sources_of(&[BASES[0], BASES[1], "controller/src"])
}

fn sources_of(bases: &[&'static str]) -> Vec<Source> {
    let mut found = Vec::new();
    for base in bases {
        let before = found.len();
        walk(Path::new(base), base, &mut found);
        assert!(found.len() > before + 20, "{base}: {} sources", found.len() - before);
    }
    found
}

fn none(wrong: &[String]) {
    assert!(wrong.is_empty(), "\n{}\n", wrong.join("\n"));
}

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

/// A document has one answer wherever it comes in (docs/reference.md, "Documents").
#[test]
fn documents_are_parsed_in_one_place() {
    let folders = ["src/control/", "core/src/model/", "core/src/stateroot/", "controller/src/"];
    let allowed = |file: &str| {
        let rows = PARSERS.iter().flat_map(|(_, rows)| rows.iter());
        rows.filter(|(name, _)| *name == file).map(|(_, count)| count).sum::<usize>()
    };
    let mut wrong = Vec::new();
    for source in all_sources().iter().filter(|source| !source.is_test()) {
        let file = source.to_string();
        // Texts of tests look like the end of an item.
        let text = source.text.split("\n#[cfg(test)]\nmod tests {").next().unwrap().to_owned();
        let code = Source { base: source.base, path: source.path.clone(), text }.code();
        if file.ends_with("_tests.rs") || !folders.iter().any(|folder| file.starts_with(folder)) {
            continue;
        }
        let found = PARSES.iter().map(|call| code.matches(call).count()).sum::<usize>();
        if found != allowed(&file) {
            let next = "read it by core's model::document or model::reading, the controller's reading; or say in PARSERS what it is";
            wrong.push(format!("{file} parses {found} times, and not {}: {next}", allowed(&file)));
        }
        for kind in READ {
            for typed in [format!("Api<{kind}>"), format!("Api::<{kind}>"), format!("from_value::<{kind}>")] {
                if code.contains(&typed) {
                    wrong.push(format!("{file} has {typed}: read it as Lenient<{kind}>"));
                }
            }
        }
    }
    none(&wrong);
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

/// At most eight of the agent and `core/`, one for each kind. Each links everything: one more is half a minute of each run of
/// `./test`. A new test is a module of one of these.
const TEST_BINARIES: [&str; 8] = ["agent", "cli", "cluster", "host", "os", "pure", "sandbox", "slow"];

/// The ninth is the cluster side's: its tests start the controller, whose path cargo gives only to the tests of its own
/// package.
const CONTROLLER_TEST_BINARIES: [&str; 1] = ["controllers"];

#[test]
fn test_binaries_are_eight_and_one_of_controllers() {
    let output = std::process::Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--offline", "--format-version", "1"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let list = |value: &serde_json::Value, field: &str| value[field].as_array().unwrap().clone();
    let targets = list(&metadata, "packages").into_iter().flat_map(|package| list(&package, "targets"));
    let tests = targets.filter(|target| target["kind"][0] == "test");
    let names: Vec<String> = tests.map(|target| target["name"].as_str().unwrap().to_owned()).collect();
    let update = "Make it a module of one of these: `mod NAME;` in its main.rs.";
    let listed = TEST_BINARIES.iter().chain(&CONTROLLER_TEST_BINARIES).map(|name| (*name).to_owned());
    table::compare("TEST_BINARIES", listed, "Cargo", names, update);
}

/// The negative control of the power cuts takes out what goes through this one door.
#[test]
fn fsync_has_one_door() {
    let calls = |source: &Source| {
        let code = source.code();
        ["rustix::fs::fsync", "rustix::fs::fdatasync", "sync_all", "sync_data"]
            .into_iter()
            .any(|word| code.contains(word))
    };
    let callers: Vec<_> = sources().into_iter().filter(|source| !source.is_test() && calls(source)).collect();
    let names: Vec<_> = callers.iter().map(Source::to_string).collect();
    assert_eq!(names, ["src/host/fsync.rs"]);
}

#[test]
fn every_file_is_short_introduced_and_well_named() {
    let mut wrong = Vec::new();
    for source in all_sources() {
        let lines = source.text.lines().count();
        if lines > 800 {
            wrong.push(format!("{source} has {lines} lines; split it at a seam (800)"));
        }
        if !source.text.starts_with("//!") {
            wrong.push(format!("{source} does not say what it is for (//!)"));
        }
        let vague = ["util", "utils", "helper", "helpers", "manager", "common", "misc"];
        if source.module().iter().any(|part| vague.contains(&part.as_str())) {
            wrong.push(format!("{source} has a name that says nothing"));
        }
    }
    none(&wrong);
}

/// Words that begin a clause as a noun: "What went wrong" is "Cause".
const CLAUSES: [&str; 7] = ["What ", "Who ", "Whom ", "Whether ", "Where ", "Why ", "How "];

/// Doc comments that begin with such a clause, at most. The number only falls.
const MAX_CLAUSES: usize = 3;

/// The doc comments of a file that begin with a clause as a noun. Those without a full stop are help texts of flags.
fn clauses(text: &str) -> Vec<String> {
    let doc = |line: &str| {
        let line = line.trim_start();
        let mark = ["//!", "///"].into_iter().find(|mark| line.starts_with(mark))?;
        Some((mark, line[mark.len()..].trim().to_owned()))
    };
    let lines: Vec<_> = text.lines().map(doc).collect();
    let blocks = lines.chunk_by(|a, b| a.as_ref().map(|a| a.0) == b.as_ref().map(|b| b.0));
    let blocks = blocks.filter_map(|block| Some((&block.first()?.as_ref()?.1, &block.last()?.as_ref()?.1)));
    let begins = |first: &str| CLAUSES.iter().any(|word| first.starts_with(word));
    blocks
        .filter(|(first, last)| begins(first) && last.ends_with(['.', ':']))
        .map(|(first, _)| first.clone())
        .collect()
}

#[test]
fn doc_comments_begin_with_nouns_and_verbs() {
    let source = "//! What it is.\n\n/// How it\n/// ends.\na: A,\n/// How to print it\nb: B,\n/// Its end.\nfn f() {}";
    assert_eq!(clauses(source), ["What it is.", "How it"]);
    let found = all_sources().into_iter().flat_map(|source| {
        let clauses = clauses(&source.text).into_iter();
        clauses.map(move |comment| format!("{source}: {comment}"))
    });
    let found: Vec<String> = found.collect();
    assert!(found.len() <= MAX_CLAUSES, "{} clauses as nouns:\n{}", found.len(), found.join("\n"));
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
