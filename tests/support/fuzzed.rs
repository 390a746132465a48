//! What holds for each parser of foreign bytes: under libFuzzer (`fuzz/`), and over the kept corpus in each run of the tests.
#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    unreachable_pub,
    missing_docs,
    dead_code,
    reason = "shared by tests: the lints of a library do not fit"
)]

use std::path::Path;

/// Reads the bytes; the texts of its refusals. What else holds for a parser, it asserts itself.
pub type Target = fn(&[u8]) -> Vec<String>;

/// No refusal floods a log.
const MAX_TEXT: usize = 4000;

/// A seed of the corpus is small: a fuzzer changes each of its bytes.
const MAX_SEED: usize = 4096;

/// Reads one input: the same twice, without a panic, and what is refused is said in a text of some size.
pub fn check(target: Target, bytes: &[u8]) {
    let texts = target(bytes);
    for text in &texts {
        assert!(!text.trim().is_empty(), "a refusal without a word");
        assert!(text.len() < MAX_TEXT, "a refusal of {} bytes: {text:.200}", text.len());
        let control = text.chars().find(|c| c.is_control() && !matches!(c, '\n' | '\t'));
        assert!(control.is_none(), "a refusal with a character of control: {text:?}");
    }
    assert_eq!(target(bytes), texts, "the same bytes read the same");
}

/// Reads each input of a kept corpus: a directory for each target, and no other.
pub fn replay(targets: &[(&str, Target)], corpus: &Path) {
    let names = |path: &Path| -> Vec<String> {
        let entries = path.read_dir().unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    };
    let mut known: Vec<&str> = targets.iter().map(|(name, _)| *name).collect();
    known.sort_unstable();
    assert_eq!(names(corpus), known, "the targets with a corpus");
    let mut failed = Vec::new();
    for (name, target) in targets {
        let directory = corpus.join(name);
        let seeds = names(&directory);
        assert!(!seeds.is_empty(), "{name} has no seed");
        for seed in seeds {
            let bytes = std::fs::read(directory.join(&seed)).unwrap();
            assert!(bytes.len() <= MAX_SEED, "{name}/{seed} has {} bytes", bytes.len());
            let read = std::panic::catch_unwind(|| check(*target, &bytes));
            failed.extend(read.is_err().then(|| format!("{name}/{seed}")));
        }
    }
    assert!(failed.is_empty(), "the panics are above: {failed:?}");
}
