//! Every behaviour that the cluster relies on has a test that names it, or an entry in the page of differences.
//!
//! An id is one behaviour of machine-config-daemon (MCD, ANN, DRN, MCN, OBS, OST, OCL) or one promise of the agent (CRA, FIL).
//! A test names an id in its doc comment, a scenario of the planner in its head; a difference names it in `docs/differences-from-mcd.md`.
//! A test that can't be run here says so (`tests/support/ran.rs`) and does not count; what is "not there yet" is listed as missing.

use crate::ran;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::path::{Path, PathBuf};

/// The ids of one family, from the first to the last.
const FAMILIES: [(&str, u32, u32); 12] = [
    ("MCD", 1, 258),
    ("ANN", 1, 12),
    ("DRN", 1, 6),
    ("MCN", 1, 7),
    ("OBS", 1, 7),
    ("OST", 1, 12),
    ("CRA", 1, 12),
    ("FIL", 1, 14),
    ("OCL", 1, 30),
    // First boot.
    ("BOOT", 1, 18),
    ("SEED", 1, 15),
    // Stateroots and seed images.
    ("LCA", 1, 20),
];

fn ids() -> BTreeSet<String> {
    let family = |(name, first, last): (&str, u32, u32)| {
        (first..=last).map(move |number| format!("{name}-{number:03}")).collect::<Vec<_>>()
    };
    FAMILIES.into_iter().flat_map(family).collect()
}

/// The ids that stand in a text.
fn named(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '-'));
    let is_id = |word: &&str| {
        word.split_once('-').is_some_and(|(family, number)| {
            FAMILIES.iter().any(|(name, ..)| *name == family)
                && number.len() == 3
                && number.chars().all(|c| c.is_ascii_digit())
        })
    };
    words.filter(is_id).map(str::to_owned).collect()
}

fn sources(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// The test functions that name ids: their doc comments right above `#[test]` or `#[tokio::test...]`, and their names. One
/// that is ignored counts for nothing.
fn test_comments(text: &str) -> Vec<(String, String)> {
    let (mut block, mut found, mut is_test) = (String::new(), Vec::new(), false);
    for line in text.lines().map(str::trim_start) {
        if let Some(comment) = line.strip_prefix("///") {
            block.push_str(comment);
            block.push('\n');
        } else if line.starts_with("#[test]") || line.starts_with("#[tokio::test") {
            is_test = true;
        } else if line.starts_with("#[ignore") {
            block.clear();
        } else if !line.starts_with("#[") {
            let name = line.split("fn ").nth(1).and_then(|rest| rest.split(['(', '<']).next());
            if let Some(name) = name.filter(|_| is_test) {
                found.push((name.to_owned(), std::mem::take(&mut block)));
            }
            is_test = false;
            block.clear();
        }
    }
    found
}

/// The names of the test functions, by the ids that they name.
fn tested() -> BTreeMap<String, BTreeSet<String>> {
    let mut files = Vec::new();
    sources(Path::new("tests"), &mut files);
    sources(Path::new("src"), &mut files);
    sources(Path::new("core"), &mut files);
    sources(Path::new("controller/src"), &mut files);
    sources(Path::new("controller/tests"), &mut files);
    let mut tested: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for file in files {
        for (name, comment) in test_comments(&std::fs::read_to_string(&file).unwrap()) {
            for id in named(&comment) {
                tested.entry(id).or_default().insert(name.clone());
            }
        }
    }
    for (id, scenarios) in of_scenarios() {
        tested.entry(id).or_default().extend(scenarios);
    }
    tested
}

/// The ids that the heads of the planner's scenarios name, with the test that plays them all.
fn of_scenarios() -> BTreeMap<String, BTreeSet<String>> {
    let mut ids = BTreeSet::new();
    for entry in std::fs::read_dir("core/tests/scenarios").unwrap() {
        let text = std::fs::read_to_string(entry.unwrap().path()).unwrap();
        ids.extend(named(text.split_once("\n== ").unwrap().0));
    }
    let test = || BTreeSet::from(["scenarios_give_their_goldens".to_owned()]);
    ids.into_iter().map(|id| (id, test())).collect()
}

/// The ids of the page: the differences, and what is not there yet.
fn page() -> (BTreeSet<String>, BTreeSet<String>) {
    let page = std::fs::read_to_string("docs/differences-from-mcd.md").unwrap();
    let (differs, missing) = page.split_once("\n## Not there yet").unwrap();
    (named(differs), named(missing))
}

#[test]
fn every_id_is_tested_or_is_difference() {
    let (tested, (differs, missing)) = (tested(), page());
    let known = |id: &String| tested.contains_key(id) || differs.contains(id) || missing.contains(id);
    let left: Vec<String> = ids().into_iter().filter(|id| !known(id)).collect();
    assert!(
        left.is_empty(),
        "neither a test nor a difference names: {}. A doc comment of a test names what it shows; what the agent does \
         otherwise has a row in docs/differences-from-mcd.md",
        left.join(" ")
    );
    let known = ids();
    let stray: Vec<&String> = tested.keys().filter(|id| !known.contains(*id)).collect();
    assert!(stray.is_empty(), "tests name ids that are in no family: {stray:?}. FAMILIES lists them");
    // An id that is missing is no difference.
    let both: Vec<&String> =
        missing.iter().filter(|id| tested.contains_key(*id) || differs.contains(*id)).collect();
    assert!(both.is_empty(), "not there yet, and there: {both:?}");
}

/// Names of the tests that passed, as `./test` takes them from their lines.
const RAN: &str = "target/tests-ran";

/// An id counts when a test that names it has run and passed: `./test` asks after all tests, with their lines and what they
/// wrote down. A test in a file that no module names has no line. What needs a real kube-apiserver is listed; in `./test all`
/// it runs, and has to.
#[test]
#[ignore = "after all other tests, by ./test"]
fn every_id_is_tested_in_this_run() {
    let not_run = std::fs::read_to_string(ran::NOT_RUN).unwrap_or_default();
    let not_run: BTreeMap<&str, &str> = not_run
        .lines()
        .filter_map(|line| line.split_once('\t'))
        .map(|(test, needs)| (test.rsplit("::").next().unwrap(), needs))
        .collect();
    let (tested, (differs, missing)) = (tested(), page());
    let any = |id: &String, holds: &dyn Fn(&String) -> bool| {
        tested.get(id).is_some_and(|tests| tests.iter().any(holds))
    };
    let passed = std::fs::read_to_string(RAN).unwrap();
    let passed: BTreeSet<&str> = passed.lines().collect();
    let ran = |test: &String| passed.contains(test.as_str()) && !not_run.contains_key(test.as_str());
    let elsewhere =
        |test: &String| not_run.get(test.as_str()).is_some_and(|needs| needs.contains("real kube-apiserver"));
    let open: Vec<String> = ids().into_iter().filter(|id| !any(id, &ran) && !differs.contains(id)).collect();
    let (missing, open): (Vec<String>, Vec<String>) = open.into_iter().partition(|id| missing.contains(id));
    let (later, left): (Vec<String>, Vec<String>) = open.into_iter().partition(|id| any(id, &elsewhere));
    let text = format!(
        "missing, as docs/differences-from-mcd.md says: {}\nshown by ./test all alone: {}\n",
        missing.join(" "),
        later.join(" ")
    );
    std::io::stderr().write_all(text.as_bytes()).unwrap();
    assert!(left.is_empty(), "no test that names them ran: {}", left.join(" "));
}

/// The lines of a function of a file, from its name to its end.
fn body<'a>(text: &'a str, name: &str) -> &'a str {
    let rest = text.split(&format!("fn {name}(")).nth(1).unwrap();
    let before = text.split(&format!("fn {name}(")).next().unwrap().rsplit('\n').next().unwrap();
    let indent = before.len() - before.trim_start().len();
    rest.split(&format!("\n{}}}\n", " ".repeat(indent))).next().unwrap()
}

/// The functions of a file that record a test as not run: by themselves, or by one that does.
fn recorders(text: &str) -> Vec<String> {
    let mut known = ["not_run(", "own_only(", "real_only("].map(str::to_owned).to_vec();
    for name in text.split("fn ").skip(1).filter_map(|rest| rest.split(['(', '<']).next()) {
        let plain = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        if plain && text.contains(&format!("fn {name}(")) && body(text, name).contains("ran::not_run(") {
            known.push(format!("{name}("));
        }
    }
    known
}

/// The tests of a file that end early without a word.
fn silent(text: &str) -> Vec<String> {
    let recorders = recorders(text);
    let ends = |body: &str| body.contains("return;") || body.contains("else { return }");
    let is_silent = |name: &String| {
        let body = body(text, name);
        ends(body) && !recorders.iter().any(|call| body.contains(call.as_str()))
    };
    test_comments(text).into_iter().map(|(name, _)| name).filter(is_silent).collect()
}

/// A test that ends early has to record that it was not run: it would count as passed.
#[test]
fn no_test_ends_early_in_silence() {
    let mut files = Vec::new();
    sources(Path::new("tests"), &mut files);
    sources(Path::new("src"), &mut files);
    sources(Path::new("core"), &mut files);
    sources(Path::new("controller/src"), &mut files);
    sources(Path::new("controller/tests"), &mut files);
    let mut found = Vec::new();
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        found.extend(silent(&text).into_iter().map(|name| format!("{}: {name}", file.display())));
    }
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn scan_finds_early_returns() {
    let text = "fn there(test: &str) -> bool {\n    ran::not_run(test, \"x\");\n    false\n}\n\n#[test]\n\
                fn a() {\n    if !there(\"a\") {\n        return;\n    }\n}\n\nmod tests {\n    #[test]\n    \
                fn b() {\n        let Some(_) = x() else { return };\n    }\n}\n\n#[test]\n\
                fn c() {\n    x();\n}\n";
    assert_eq!(silent(text), ["b"]);
}

#[test]
fn scan_finds_known_cases() {
    let text = "/// ANN-001: a target.\n#[test]\nfn a() {}\n/// ANN-002\nfn helper() {}\n/// MCN-003, DRN-004.\n#[tokio::test]\n\
                async fn b() {}\n/// ANN-005\n#[test]\n#[ignore = \"never\"]\nfn c() {}\n";
    let found: Vec<(String, Vec<String>)> = test_comments(text)
        .into_iter()
        .map(|(name, comment)| (name, named(&comment).into_iter().collect()))
        .collect();
    let is = |name: &str, ids: &[&str]| {
        (name.to_owned(), ids.iter().map(|id| (*id).to_owned()).collect::<Vec<_>>())
    };
    assert_eq!(found, [is("a", &["ANN-001"]), is("b", &["DRN-004", "MCN-003"]), is("c", &[])]);
    assert_eq!(ids().len(), 258 + 12 + 6 + 7 + 7 + 12 + 12 + 14 + 30 + 18 + 15 + 20);
}
