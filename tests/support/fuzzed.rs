//! What holds for each parser of foreign bytes: under libFuzzer (`fuzz/`), and over the kept corpus in each run of the tests.
#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::indexing_slicing,
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

/// Reads each input of a kept corpus: a directory for each target, and no other. With `FUZZ_MUTATED=2000` it also reads so many changed
/// inputs for each target, drawn by chance alone: a short look where libFuzzer is not built.
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
    let mutated = std::env::var("FUZZ_MUTATED").map_or(0, |count| count.parse::<usize>().unwrap());
    let mut failed = Vec::new();
    for (name, target) in targets {
        let mut kept = Vec::new();
        let directory = corpus.join(name);
        let seeds = names(&directory);
        assert!(!seeds.is_empty(), "{name} has no seed");
        for seed in seeds {
            let bytes = std::fs::read(directory.join(&seed)).unwrap();
            assert!(bytes.len() <= MAX_SEED, "{name}/{seed} has {} bytes", bytes.len());
            let read = std::panic::catch_unwind(|| check(*target, &bytes));
            failed.extend(read.is_err().then(|| format!("{name}/{seed}")));
            kept.push(bytes);
        }
        let mut chance = Chance(0);
        for _ in 0..mutated {
            let bytes = chance.mutate(&kept);
            if std::panic::catch_unwind(|| check(*target, &bytes)).is_err() {
                failed.push(format!("{name}: {}", bytes.escape_ascii()));
                break;
            }
        }
    }
    assert!(failed.is_empty(), "the panics are above: {failed:?}");
}

/// Pieces that parsers treat apart.
const PIECES: [&[u8]; 12] =
    [b"{", b"}", b"[", b"\"", b"\\", b"\n", b"\0", b"\xff", b": ", b"-1", b"99999999999999999999", b"null"];

/// Chance that can be had again: `SplitMix64`.
struct Chance(u64);

impl Chance {
    /// Draws from 0 to below `end`; 0 where that is 0.
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        let end = u64::try_from(end).unwrap().max(1);
        usize::try_from((mixed ^ (mixed >> 31)) % end).unwrap()
    }

    /// Returns a part of an input.
    fn part(&mut self, of: &[u8]) -> Vec<u8> {
        let from = self.below(of.len() + 1);
        let to = from + self.below(of.len() - from + 1);
        of[from..to].to_vec()
    }

    /// Returns one of the inputs with some changes.
    fn mutate(&mut self, kept: &[Vec<u8>]) -> Vec<u8> {
        let mut bytes = kept[self.below(kept.len())].clone();
        for _ in 0..=self.below(6) {
            let at = self.below(bytes.len() + 1);
            let end = at + self.below(bytes.len() - at + 1);
            let new = match self.below(6) {
                0 => Vec::new(),
                1 => PIECES[self.below(PIECES.len())].to_vec(),
                2 => vec![u8::try_from(self.below(256)).unwrap()],
                3 => self.part(&bytes.clone()),
                _ => {
                    let other = kept[self.below(kept.len())].clone();
                    self.part(&other)
                }
            };
            let end = if self.below(2) == 0 { at } else { end.min(at + 8).min(bytes.len()) };
            bytes.splice(at..end, new);
            bytes.truncate(4 * MAX_SEED);
        }
        bytes
    }
}
