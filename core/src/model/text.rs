//! Text in common forms: a count, a value that is cut, an error with its causes.

use std::error::Error;
use std::fmt::Display;

/// Counts things in words: `1 step`, `2 steps`.
pub fn counted<N: Copy + Display + PartialEq + From<u8>>(count: N, one: &str) -> String {
    let plural = if count == N::from(1) { "" } else { "s" };
    format!("{count} {one}{plural}")
}

/// Cuts a value for an error text, so that a hostile input can't flood a log.
pub fn short(value: &str, limit: usize) -> String {
    let mut cut: String = value.chars().take(limit).collect();
    if cut.len() < value.len() {
        cut.push('…');
    }
    cut
}

/// Cuts a value, and escapes its control characters, for a text in which it stands without quotes: what others have written
/// moves no terminal.
pub fn shown(value: &str, limit: usize) -> String {
    escaped(&short(value, limit))
}

/// Lists things in at most `limit` characters: whole ones, but for a first one that is longer, and how many more there are.
pub fn listed<T: Display>(all: &[T], limit: usize) -> String {
    let mut text = String::new();
    for (place, one) in all.iter().enumerate() {
        let one = one.to_string();
        let left = all.len() - place;
        if text.is_empty() {
            // Room for the count of the others.
            text = short(&one, limit.saturating_sub(32));
        } else if text.chars().count() + one.chars().count() + 32 <= limit {
            text = format!("{text}; {one}");
        } else {
            return format!("{text}; and {left} more");
        }
    }
    text
}

/// Escapes control characters, but for the ends of lines, and those that turn the direction of a text.
pub fn escaped(text: &str) -> String {
    let escape =
        |c: char| if is_control(c) && c != '\n' { c.escape_default().collect() } else { c.to_string() };
    text.chars().map(escape).collect()
}

/// Returns true if a character is not shown but changes how others are: control characters, separators of lines, marks of
/// direction.
pub fn is_control(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

/// Returns the path that two texts begin with; it may have spaces. Where more than a path is the same, nobody knows its end.
fn common_path<'a>(one: &'a str, other: &str) -> Option<&'a str> {
    let mut begins = one.match_indices(' ').filter_map(|(at, _)| one.get(..at));
    let common =
        begins.rfind(|begin| other.strip_prefix(*begin).is_some_and(|rest| rest.starts_with(' ')))?;
    common.rsplit(' ').next().is_some_and(|word| word.contains('/')).then_some(common)
}

/// Returns a path, or another word, as a shell takes it.
pub fn shell_word(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_@%+=:,./-~".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// Joins an error and its causes, outermost first. A cause that its error quotes already is not repeated, nor is the
/// object of a cause that its error ends with, or the path that both begin with.
pub fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let mut message = error.to_string();
        if let Some(rest) = common_path(&text, &message).and_then(|path| message.strip_prefix(path)) {
            message = format!("it{rest}");
        }
        let repeated = message.split_once(": ").filter(|(object, _)| {
            text.strip_suffix(object).is_some_and(|before| before.is_empty() || before.ends_with(' '))
        });
        if !text.ends_with(&message) {
            text = format!("{text}: {}", repeated.map_or(&*message, |(_, rest)| rest));
        }
        cause = error.source();
    }
    without_numbers(&text)
}

/// Takes out the kernel's numbers of errors, which stand beside their names.
fn without_numbers(text: &str) -> String {
    let mut parts = text.split(" (os error ");
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        match part.split_once(')').filter(|(number, _)| number.parse::<i32>().is_ok()) {
            Some((_, rest)) => plain.push_str(rest),
            None => plain.extend([" (os error ", part]),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("{0}")]
    struct Outer(&'static str, #[source] Inner);

    #[derive(Debug, thiserror::Error)]
    #[error("{0}")]
    struct Inner(&'static str);

    #[test]
    fn path_of_cause_is_said_once() {
        for (outer, inner, expected) in [
            ("/a/b is not valid", "/a/b can't be read: x", "/a/b is not valid: it can't be read: x"),
            ("/a/c d/e is not valid", "/a/c d/e can't be read", "/a/c d/e is not valid: it can't be read"),
            ("/a/c d is not valid", "/a/c d can't be read", "/a/c d is not valid: /a/c d can't be read"),
            ("x is not valid", "x can't be read", "x is not valid: x can't be read"),
            ("/a/b is not valid", "/a/bc can't be read", "/a/b is not valid: /a/bc can't be read"),
        ] {
            assert_eq!(chain(&Outer(outer, Inner(inner))), expected);
        }
    }

    /// The name of the kernel's error says it all.
    #[test]
    fn number_of_error_is_not_said() {
        let system = std::io::Error::from_raw_os_error(30).to_string();
        assert!(system.ends_with("(os error 30)"), "{system}");
        for (text, expected) in [
            (&*system, "Read-only file system"),
            ("a (os error 2): b (os error 13), c", "a: b, c"),
            ("a (os error x), b", "a (os error x), b"),
        ] {
            assert_eq!(without_numbers(text), expected);
        }
    }

    #[test]
    fn list_has_whole_entries_and_counts_the_others() {
        assert_eq!(listed::<&str>(&[], 40), "");
        assert_eq!(listed(&["a", "b"], 40), "a; b");
        let all: Vec<String> = (0..100).map(|one| format!("field{one}: äöü")).collect();
        let text = listed(&all, 100);
        assert_eq!(text, "field0: äöü; field1: äöü; field2: äöü; field3: äöü; field4: äöü; and 95 more");
        assert!(listed(&["é".repeat(500), "b".to_owned()], 100).chars().count() <= 100);
    }

    #[test]
    fn words_are_quoted_for_shell() {
        for (text, expected) in
            [("/a/b", "/a/b"), ("/a b", "'/a b'"), ("/a'b", r"'/a'\''b'"), ("", "''"), ("/$(x)", "'/$(x)'")]
        {
            assert_eq!(shell_word(text), expected);
        }
    }
}
