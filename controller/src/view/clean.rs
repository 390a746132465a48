//! Texts of nodes and controllers, as a terminal may print them.

/// The longest text that is quoted.
const MAX_TEXT: usize = 1000;

/// Returns a text that a terminal only prints: one line, without characters that change its direction.
pub(super) fn clean(text: &str) -> String {
    let plain = |one: char| match one {
        '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => ' ',
        one if one.is_control() => ' ',
        one => one,
    };
    text.chars().take(MAX_TEXT).map(plain).collect()
}
