//! The source files of the three crates, without comments and tests: the text that the tables are checked against.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// The sources of the agent and of `core/`. Their folders have different names.
const BASES: [&str; 2] = ["src", "core/src"];

pub(super) struct Source {
    pub(super) base: &'static str,
    /// Relative to its base.
    pub(super) path: PathBuf,
    pub(super) text: String,
}

impl std::fmt::Display for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.base, self.path.display())
    }
}

impl Source {
    /// `src/a/b.rs` and `src/a/b/mod.rs` are `["a", "b"]`.
    pub(super) fn module(&self) -> Vec<String> {
        let path = self.path.with_extension("");
        let mut parts: Vec<String> = path.iter().map(|part| part.to_str().unwrap().to_owned()).collect();
        if parts.last().is_some_and(|last| last == "mod") {
            parts.pop();
        }
        parts
    }

    pub(super) fn folder(&self) -> String {
        self.module().remove(0)
    }

    /// Tests beside their module: they play the host, so they may touch a directory of their own. The walk through the
    /// states is one, and so are the simulation of rollouts and the targets of `fuzz/`.
    pub(super) fn is_test(&self) -> bool {
        let of_tests = ["tests", "tests.rs", "walk", "simulation", "fuzzing.rs"];
        self.path.iter().any(|part| of_tests.iter().any(|name| part == *name))
    }

    pub(super) fn is_root(&self) -> bool {
        let executable = self.path == Path::new("main.rs") || self.path.starts_with("bin");
        executable || self.path == Path::new("lib.rs")
    }

    /// The code: without comments, and without what only tests have.
    pub(super) fn code(&self) -> String {
        let lines = without_tests(&self.text).into_iter().filter(|line| !line.trim_start().starts_with("//"));
        lines.map(|line| line.split(" // ").next().unwrap()).collect::<Vec<_>>().join("\n")
    }

    /// The top-level modules that the code names.
    pub(super) fn imports(&self) -> BTreeSet<String> {
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
pub(super) fn after<'a>(code: &'a str, path: &str) -> Vec<&'a str> {
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

pub(super) fn sources() -> Vec<Source> {
    sources_of(&BASES)
}

/// The sources of all three crates.
pub(super) fn all_sources() -> Vec<Source> {
    sources_of(&[BASES[0], BASES[1], "controller/src"])
}

pub(super) fn sources_of(bases: &[&'static str]) -> Vec<Source> {
    let mut found = Vec::new();
    for base in bases {
        let before = found.len();
        walk(Path::new(base), base, &mut found);
        assert!(found.len() > before + 20, "{base}: {} sources", found.len() - before);
    }
    found
}

pub(super) fn none(wrong: &[String]) {
    assert!(wrong.is_empty(), "\n{}\n", wrong.join("\n"));
}
