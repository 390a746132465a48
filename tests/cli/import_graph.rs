//! Which file imports which, read from the sources: `use` declarations and paths in the code.
//!
//! A name that one file re-exports counts for the file that defines it, so a folder's `mod.rs` may gather names. What a
//! file only declares (`mod name;`) or re-exports (`pub use`) is no import of it.

use std::collections::{BTreeMap, BTreeSet};

/// The path of a module, its crate first.
pub(crate) type Module = Vec<String>;

/// One file as a module, with its code: no comments, no tests.
#[derive(Debug)]
pub(crate) struct File {
    /// The file's name, for errors.
    pub(crate) name: String,
    /// Its module.
    pub(crate) module: Module,
    /// Its code.
    pub(crate) code: String,
}

/// A path as it is written, and the name under which it is known.
type Import = (Vec<String>, String);

/// The files and what each of them names.
#[derive(Debug)]
pub(crate) struct Graph {
    files: BTreeMap<Module, File>,
    /// Meaning of the names in a file.
    names: BTreeMap<Module, BTreeMap<String, Vec<String>>>,
}

impl Graph {
    /// Reads the declarations.
    pub(crate) fn new(files: Vec<File>) -> Self {
        let mut names = BTreeMap::new();
        for file in &files {
            let uses = declarations(&file.code).into_iter().flat_map(|(_, tree)| expand(&tree, &[]));
            let known: BTreeMap<_, _> = uses.map(|(path, name)| (name, path)).collect();
            names.insert(file.module.clone(), known);
        }
        Self { files: files.into_iter().map(|file| (file.module.clone(), file)).collect(), names }
    }

    /// Returns what a file takes from which other files.
    fn imports(&self, file: &File) -> BTreeMap<Module, BTreeSet<String>> {
        let mut paths = Vec::new();
        let mut rest = file.code.clone();
        for (is_public, tree) in declarations(&file.code) {
            rest = rest.replacen(&tree, "", 1);
            if !is_public {
                paths.extend(expand(&tree, &[]).into_iter().map(|(path, _)| path));
            }
        }
        paths.extend(paths_in(&rest));
        let mut imports: BTreeMap<Module, BTreeSet<String>> = BTreeMap::new();
        for path in paths {
            // A module alone is a name for what is then taken from it.
            if let Some((module, true)) = self.resolve(&file.module, &path, 0)
                && module != file.module
                && self.files.contains_key(&module)
            {
                imports.entry(module).or_default().insert(path.join("::"));
            }
        }
        imports
    }

    /// Returns the file that a path leads to, and whether it names something in it; `None` for other crates.
    fn resolve(&self, from: &Module, path: &[String], depth: usize) -> Option<(Module, bool)> {
        let (first, rest) = path.split_first().filter(|_| depth < 20)?;
        let mut at = match first.as_str() {
            "crate" => from[..1].to_vec(),
            "machine_config_core" => vec!["core".to_owned()],
            "self" => from.clone(),
            "super" => from[..from.len() - 1].to_vec(),
            name if self.files.contains_key(&[&from[..], &[name.to_owned()]].concat()) => {
                [&from[..], &[name.to_owned()]].concat()
            }
            name => {
                let known = self.names.get(from)?.get(name).filter(|known| known[0] != *name)?;
                return self.resolve(from, &[known, rest].concat(), depth + 1);
            }
        };
        for (index, part) in rest.iter().enumerate() {
            let below = [&at[..], std::slice::from_ref(part)].concat();
            if part == "super" {
                at.pop();
            } else if self.files.contains_key(&below) {
                at = below;
            } else if let Some(known) = self.names.get(&at).and_then(|names| names.get(part)) {
                let path = [known, &rest[index + 1..]].concat();
                return self.resolve(&at, &path, depth + 1).or(Some((at, true)));
            } else {
                return Some((at, true));
            }
        }
        Some((at, false))
    }

    /// Returns the circles: for each, the names that its files import from each other.
    pub(crate) fn circles(&self) -> Vec<String> {
        let imports: BTreeMap<&Module, _> =
            self.files.iter().map(|(module, file)| (module, self.imports(file))).collect();
        let reached: BTreeMap<&Module, BTreeSet<&Module>> =
            imports.keys().map(|from| (*from, reachable(from, &imports))).collect();
        let mut seen = BTreeSet::new();
        let mut circles = Vec::new();
        for (from, reach) in &reached {
            let circle: BTreeSet<&Module> =
                reach.iter().copied().filter(|to| reached[to].contains(from)).collect();
            if circle.is_empty() || !seen.insert(circle.clone()) {
                continue;
            }
            let mut text = format!("a circle of {} files:", circle.len());
            for from in &circle {
                for (to, names) in imports[from].iter().filter(|(to, _)| circle.contains(to)) {
                    let names: Vec<&str> = names.iter().map(String::as_str).collect();
                    let (from, to) = (&self.files[*from].name, &self.files[to].name);
                    text.push_str(&format!("\n  {from} imports {to}: {}", names.join(", ")));
                }
            }
            circles.push(text);
        }
        circles
    }
}

/// Returns all modules that a module leads to; itself only by way of others.
fn reachable<'a>(
    from: &Module,
    imports: &'a BTreeMap<&Module, BTreeMap<Module, BTreeSet<String>>>,
) -> BTreeSet<&'a Module> {
    let (mut found, mut left) = (BTreeSet::new(), vec![from]);
    while let Some(module) = left.pop() {
        for to in imports.get(module).into_iter().flat_map(BTreeMap::keys) {
            if found.insert(to) {
                left.push(to);
            }
        }
    }
    found
}

/// Returns the `use` declarations, each with whether it is a re-export, as rustfmt lays them out.
fn declarations(code: &str) -> Vec<(bool, String)> {
    let mut found = Vec::new();
    let mut at = 0;
    for line in code.split_inclusive('\n') {
        let text = line.trim_start();
        let indent = line.len() - text.len();
        let keyword = match text.strip_prefix("pub") {
            Some(rest) => rest.find("use ").filter(|end| rest[..*end].trim().len() < 30).map(|end| end + 3),
            None => text.starts_with("use ").then_some(0),
        };
        let visibility = keyword.map(|end| text[..end].trim());
        let is_use = visibility.is_some_and(|word| {
            word.is_empty() || word == "pub" || (word.starts_with("pub(") && word.ends_with(')'))
        });
        if let Some(end) = keyword.filter(|_| is_use) {
            let tree = code[at + indent + end + "use ".len()..].split(';').next().unwrap();
            found.push((end > 0, tree.to_owned()));
        }
        at += line.len();
    }
    found
}

/// Takes a tree of imports apart: each path, and the name it gets.
fn expand(tree: &str, before: &[String]) -> Vec<Import> {
    let tree = tree.trim();
    if let Some((head, list)) = tree.split_once('{') {
        let parts = head.split("::").map(str::trim).filter(|part| !part.is_empty()).map(str::to_owned);
        let before: Vec<String> = before.iter().cloned().chain(parts).collect();
        let list = list.strip_suffix('}').unwrap();
        return split_list(list).into_iter().flat_map(|part| expand(part, &before)).collect();
    }
    let (path, name) = tree.split_once(" as ").unwrap_or((tree, ""));
    let parts = path.split("::").map(|part| part.trim().to_owned());
    let mut path: Vec<String> = before.iter().cloned().chain(parts).collect();
    if path.last().is_some_and(|last| last == "self") && path.len() > 1 {
        path.pop();
    }
    let name = if name.is_empty() { path.last().unwrap().clone() } else { name.trim().to_owned() };
    vec![(path, name)]
}

/// Splits at the commas that are in no inner list.
fn split_list(list: &str) -> Vec<&str> {
    let (mut depth, mut start, mut parts) = (0, 0, Vec::new());
    for (at, c) in list.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(&list[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&list[start..]);
    parts.into_iter().filter(|part| !part.trim().is_empty()).collect()
}

/// Returns the paths of at least two names in code.
fn paths_in(code: &str) -> Vec<Vec<String>> {
    let is_part = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
    let words = code.split(|c: char| !is_part(c)).map(|word| word.trim_matches(':'));
    words
        .filter(|word| word.contains("::"))
        .map(|word| word.split("::").map(str::to_owned).collect())
        .collect()
}

/// Empties the strings of code: they may hold texts that look like a path.
pub(crate) fn without_strings(code: &str) -> String {
    let (mut text, mut in_string, mut chars) = (String::new(), false, code.chars().peekable());
    while let Some(c) = chars.next() {
        match c {
            '\\' if in_string => drop(chars.next()),
            '\'' if !in_string => {
                text.push(c);
                // The character '"', and not a lifetime.
                if chars.peek() == Some(&'"') {
                    chars.next();
                }
            }
            '"' => {
                in_string = !in_string;
                text.push(c);
            }
            _ if in_string => {}
            _ => text.push(c),
        }
    }
    text
}
