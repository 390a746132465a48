//! The text of a unit, as Ignition reads it (`unit.DeserializeOptions` of github.com/coreos/go-systemd).
//!
//! It goes through the text as a lexer with states does. One rule comes from its buffer: a line is too long if the next 2048 bytes
//! have no end of line *and are in the buffer*, which holds 4096 bytes and is filled when a read runs out of it. So the buffer is
//! played here, where a text has such a line at all.

/// systemd's own limit of a line.
const MAX_LINE: usize = 2048;

/// The cause for a line beyond the limit.
const TOO_LONG: &str = "it is longer than 2048 bytes; break it with a backslash";

/// Size of the buffer.
const BUFFER: usize = 4096;

/// Returns why the text can't be read, if it can't.
pub(super) fn unreadable(text: &str) -> Option<String> {
    let mut lexer = Lexer { text, at: 0, buffered: 0, has_long_line: has_long_line(text) };
    let mut state = State::Outside;
    loop {
        match lexer.step(state) {
            Ok(Some(next)) => state = next,
            Ok(None) => return None,
            Err(cause) => {
                let read = text.get(..lexer.at).unwrap_or_default();
                // The end of the line was read, but for one that is too long.
                let before = if cause == TOO_LONG { read } else { read.strip_suffix('\n').unwrap_or(read) };
                return Some(format!("line {}: {cause}", before.matches('\n').count() + 1));
            }
        }
    }
}

fn has_long_line(text: &str) -> bool {
    text.len() >= MAX_LINE && text.split(['\r', '\n']).any(|line| line.len() >= MAX_LINE)
}

/// The part that is read next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Anything before the first section.
    Outside,
    /// The name of a section, after its bracket.
    Section,
    /// The rest of a section's line.
    SectionEnd,
    /// An option, a comment or a section.
    Within,
    /// The name of an option.
    Option,
    /// The value of an option, or one more line of it.
    Value,
    /// A comment, which may be continued.
    Comment {
        /// True before the first section.
        is_outside: bool,
    },
}

struct Lexer<'a> {
    text: &'a str,
    /// Bytes that are read.
    at: usize,
    /// Bytes that are in the buffer or were.
    buffered: usize,
    has_long_line: bool,
}

impl<'a> Lexer<'a> {
    /// Reads one item; `None` at the end of the text.
    fn step(&mut self, state: State) -> Result<Option<State>, &'static str> {
        if self.has_long_line && self.line_is_too_long() {
            return Err(TOO_LONG);
        }
        Ok(Some(match state {
            State::Outside => match self.next_char() {
                None => return Ok(None),
                Some('[') => State::Section,
                Some('#' | ';') => State::Comment { is_outside: true },
                Some(_) => State::Outside,
            },
            State::Section => {
                self.through(b']').ok_or("a section's name has no `]`; close it")?;
                State::SectionEnd
            }
            State::SectionEnd => {
                let rest = self.line();
                if !rest.trim().is_empty() {
                    return Err("something follows the `]` of a section; remove it");
                }
                State::Within
            }
            State::Within => match self.peek() {
                None => return Ok(None),
                Some(next) if next.is_whitespace() => self.skip(State::Within),
                Some('[') => self.skip(State::Section),
                Some('#' | ';') => self.skip(State::Comment { is_outside: false }),
                Some(_) => State::Option,
            },
            State::Option => self.option_name()?,
            State::Value => self.value(),
            State::Comment { is_outside } => {
                let line = self.line();
                if line.strip_suffix(' ').unwrap_or(line).ends_with('\\') {
                    return Ok(Some(state));
                }
                if is_outside { State::Outside } else { State::Within }
            }
        }))
    }

    fn option_name(&mut self) -> Result<State, &'static str> {
        loop {
            match self.next_char() {
                None | Some('\n' | '\r') => {
                    return Err("an option has no `=`; write NAME=VALUE, or # before a comment");
                }
                Some('=') => return Ok(State::Value),
                Some(_) => {}
            }
        }
    }

    fn value(&mut self) -> State {
        let line = self.line();
        if line.ends_with('\\') { State::Value } else { State::Within }
    }

    fn skip(&mut self, next: State) -> State {
        self.next_char();
        next
    }

    fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn line_is_too_long(&self) -> bool {
        let next = self.text.as_bytes().get(self.at..self.buffered).and_then(|next| next.get(..MAX_LINE));
        next.is_some_and(|next| !next.iter().any(|byte| matches!(byte, b'\r' | b'\n')))
    }

    fn fill(&mut self) {
        self.buffered = self.at.saturating_add(BUFFER).min(self.text.len());
    }

    fn peek(&mut self) -> Option<char> {
        let next = self.rest().chars().next()?;
        if self.at + next.len_utf8() > self.buffered {
            self.fill();
        }
        Some(next)
    }

    fn next_char(&mut self) -> Option<char> {
        let next = self.peek()?;
        self.at += next.len_utf8();
        Some(next)
    }

    /// Reads a line, without its end.
    fn line(&mut self) -> &'a str {
        if let Some(line) = self.through(b'\n') {
            return line.strip_suffix('\n').unwrap_or(line);
        }
        let line = self.rest();
        self.at = self.text.len();
        line
    }

    /// Reads through the next of a byte; `None`, and nothing is read, where there is none.
    fn through(&mut self, end: u8) -> Option<&'a str> {
        let rest = self.rest();
        let length = rest.as_bytes().iter().position(|byte| *byte == end)? + 1;
        let target = self.at + length;
        while self.buffered < target {
            if self.buffered.saturating_sub(self.at) >= BUFFER {
                // A full buffer is taken out as a whole.
                self.at = self.buffered;
            }
            self.fill();
        }
        self.at = target;
        rest.get(..length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_systemd_are_read() {
        for text in [
            "",
            "x",
            "[Unit]\nDescription=a\n\n# comment\n; another\n[Service]\nExecStart=/bin/a \\\n  -b\n[Install]\n",
            "garbage [Unit]\r\nA=b\r\n",
            "[Unit\nname]\n=b",
            "[Unit]\nA=b\\",
            "[Unit]\n# a \\ \nno option\n",
            "[\u{e4}]\n\u{a0}\u{e4}=\u{e4}\n",
        ] {
            assert_eq!(unreadable(text), None, "{text:?}");
        }
    }

    #[test]
    fn unreadable_texts_name_line_and_cause() {
        for (text, words) in [
            ("[Unit", "line 1: a section's name"),
            ("[Unit] x\n", "follows"),
            ("[Unit]\nA=b\nno option\n", "line 3: an option has no `=`"),
            ("[Unit]\nA", "an option has no"),
            ("[Unit]\nA\r=b", "an option has no"),
        ] {
            let cause = unreadable(text).unwrap();
            assert!(cause.contains(words), "{text:?}: {cause}");
        }
        let long = format!("[Unit]\nA={}\n", "x".repeat(MAX_LINE));
        assert!(unreadable(&long).unwrap().contains("line 2: it is longer than 2048 bytes"));
        assert_eq!(unreadable(&format!("[Unit]\nA={}\nB=c\n", "x".repeat(MAX_LINE - 3))), None);
    }
}
