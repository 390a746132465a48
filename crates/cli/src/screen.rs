//! A text for the reader of standard output: wrapped between words at the width of a terminal, with colors where they are wanted, and
//! with short digests.

use std::io::IsTerminal as _;

/// The narrowest terminal that is wrapped for.
const NARROWEST: usize = 40;

/// Digits of a digest that are shown; the JSON has all.
const DIGITS: usize = 12;

/// The form of a text for its reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Screen {
    /// Columns; `None` on a pipe, whose lines have no end.
    pub width: Option<usize>,
    /// True on a terminal whose user wants colors.
    pub colors: bool,
}

impl Screen {
    /// Returns the form that standard output wants; a plain one has no colors.
    #[must_use]
    pub fn of_output(plain: bool) -> Self {
        let out = std::io::stdout();
        if !out.is_terminal() {
            return Self::default();
        }
        // 0 where the terminal does not tell its size.
        let columns = rustix::termios::tcgetwinsize(&out).map_or(0, |size| usize::from(size.ws_col));
        Self { width: Some(columns).filter(|columns| *columns >= NARROWEST), colors: !plain }
    }

    /// Colors a text by a code of ECMA-48, where colors are wanted.
    #[must_use]
    pub fn paint(self, text: &str, code: &str) -> String {
        if self.colors { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }

    /// Breaks a line between its words; what follows the first line is indented. A word that is longer than a line stays whole: a path
    /// is copied.
    #[must_use]
    pub fn wrapped(self, line: &str, indent: usize) -> Vec<String> {
        let Some(width) = self.width else { return vec![line.to_owned()] };
        let length = |text: &str| text.chars().count();
        let mut lines = Vec::new();
        let mut begun = String::new();
        for word in line.split_inclusive(' ') {
            let is_begun = !begun.trim().is_empty() && length(&begun) > indent;
            if is_begun && length(&begun) + length(word.trim_end()) > width {
                lines.push(std::mem::replace(&mut begun, " ".repeat(indent)).trim_end().to_owned());
            }
            begun += word;
        }
        lines.push(begun.trim_end().to_owned());
        lines
    }
}

/// Cuts digests and checksums.
#[must_use]
pub fn short_digests(line: &str) -> String {
    let is_digest = |word: &str| word.len() >= 40 && word.chars().all(|c| c.is_ascii_hexdigit());
    let mut text = String::new();
    for part in line.split_inclusive(|c: char| !c.is_ascii_alphanumeric()) {
        let word = part.trim_end_matches(|c: char| !c.is_ascii_alphanumeric());
        match part.strip_prefix(word) {
            Some(rest) if is_digest(word) => text.extend(word.chars().take(DIGITS).chain(rest.chars())),
            Some(_) | None => text += part,
        }
    }
    text
}
