//! No output of the planner goes without a scenario: the words are read from the source, so that a new step,
//! mode, action or undo fails here until a scenario plans it.

use std::path::Path;

const STEP: &str = include_str!("../../src/plan/step.rs");
const PLAN: &str = include_str!("../../src/plan/mod.rs");
const EXPLAIN: &str = include_str!("../../src/plan/explain.rs");
const ACTION: &str = include_str!("../../src/model/disruption.rs");

fn scenarios() -> String {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scenarios");
    let texts =
        std::fs::read_dir(directory).unwrap().map(|entry| std::fs::read_to_string(entry.unwrap().path()));
    texts.map(Result::unwrap).collect()
}

/// The part of a source from a line to the end of its item.
fn item<'a>(source: &'a str, start: &str, end: &str) -> &'a str {
    let (_, rest) = source.split_once(start).unwrap_or_else(|| panic!("{start} is gone"));
    rest.split_once(end).unwrap().0
}

/// Texts of a match's arms: `=> "..."`.
fn words(part: &str) -> Vec<&str> {
    let words: Vec<&str> = part
        .lines()
        .filter_map(|line| {
            line.trim().split_once("=> \"").map(|(_, word)| word.trim_end_matches(',').trim_end_matches('"'))
        })
        .collect();
    assert!(words.len() > 2, "{part}");
    words
}

/// The variants of an enum.
fn variants<'a>(source: &'a str, name: &str) -> Vec<&'a str> {
    let part = item(source, &format!("pub enum {name} {{\n"), "\n}");
    let four = part
        .lines()
        .filter(|line| line.starts_with("    ") && line.chars().nth(4).is_some_and(char::is_uppercase));
    let variants: Vec<&str> =
        four.map(|line| line.trim().split([' ', '(', '{', ',']).next().unwrap()).collect();
    assert!(variants.len() > 1, "{part}");
    variants
}

fn kebab(name: &str) -> String {
    let parts =
        name.chars().map(|c| if c.is_uppercase() { format!("-{}", c.to_lowercase()) } else { c.to_string() });
    parts.collect::<String>().trim_start_matches('-').to_owned()
}

fn missing<'a>(desired: impl IntoIterator<Item = &'a str>, shape: impl Fn(&str) -> String) -> Vec<String> {
    let all = scenarios();
    desired.into_iter().map(shape).filter(|desired| !all.contains(desired.as_str())).collect()
}

#[test]
fn every_step_has_scenario() {
    let ops = words(item(STEP, "Returns the name of the step", "\n    }\n"));
    assert_eq!(missing(ops, |word| format!(". {word} ")), Vec::<String>::new());
}

#[test]
fn every_reason_has_scenario() {
    let because = words(item(EXPLAIN, "fn because_sentence", "\n}\n"));
    assert_eq!(missing(because, |word| format!("  {word}\n")), Vec::<String>::new());
}

#[test]
fn every_mode_has_scenario() {
    let modes = words(item(EXPLAIN, "fn mode_word", "\n}\n"));
    assert_eq!(missing(modes, |word| format!("Mode   {word}: ")), Vec::<String>::new());
}

#[test]
fn every_action_has_scenario() {
    assert_eq!(missing(variants(ACTION, "Action"), |name| format!("{{type: {name}")), Vec::<String>::new());
}

#[test]
fn every_service_verb_and_undo_has_scenario() {
    let verbs = variants(PLAN, "ServiceVerb");
    assert_eq!(missing(verbs, |name| format!("  {}", kebab(name))), Vec::<String>::new());
    // UnstageOs is printed as unstage-os.
    assert_eq!(
        missing(variants(PLAN, "Undo"), |name| format!("Undo   {}", kebab(name))),
        Vec::<String>::new()
    );
}

#[test]
fn every_unchangeable_section_has_scenario() {
    let source = include_str!("../../src/model/ignition/mod.rs");
    let sections: Vec<&str> =
        source.split("fixed, \"").skip(1).map(|rest| rest.split('"').next().unwrap()).collect();
    assert!(sections.len() >= 5, "{sections:?}");
    assert_eq!(missing(sections, |name| format!("Refused  {name}\n")), Vec::<String>::new());
}
