//! The status on a terminal: wrapped between words at its width, with colors where they are wanted.

use machine_config_cli::screen::Screen;

use crate::report::NodeState;
use crate::settings::Environment;

/// Column of the texts, below the labels.
const INDENT: usize = 11;

/// The form of the status for its reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Look(Screen);

impl Look {
    /// Returns the form that standard output wants.
    pub(super) fn of_output(environment: &Environment) -> Self {
        Self(Screen::of_output(environment.plain))
    }

    /// Returns the text in this form.
    pub(super) fn screen(self, text: &str) -> String {
        let lines = text.lines().flat_map(|line| {
            // A diff stays as it is.
            if line.starts_with("    ") { vec![line.to_owned()] } else { self.0.wrapped(line, INDENT) }
        });
        lines.map(|line| self.painted(&line)).collect::<Vec<_>>().join("\n")
    }

    /// Colors the state, and what a person has to look at.
    fn painted(self, line: &str) -> String {
        const STATES: [(NodeState, &str); 4] = [
            (NodeState::Done, "32"),
            (NodeState::Working, "36"),
            (NodeState::Degraded, "1;31"),
            (NodeState::Unreconcilable, "1;31"),
        ];
        let paint = |text: &str, code: &str| self.0.paint(text, code);
        if line.starts_with("Node ") {
            let found = STATES.iter().find_map(|(state, code)| {
                let (before, after) = line.split_once(&format!(" is {state:?}"))?;
                Some(format!("{before} is {}{after}", paint(&format!("{state:?}"), code)))
            });
            return found.unwrap_or_else(|| line.to_owned());
        }
        for (label, code) in [("why", "1;31"), ("next", "1")] {
            if let Some(rest) = line.strip_prefix("  ").and_then(|line| line.strip_prefix(label))
                && rest.starts_with(' ')
            {
                return format!("  {}{rest}", paint(label, code));
            }
        }
        line.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_break_between_words() {
        let text = "Node n is Degraded, since 2026-11-29T13:40:00Z\n  why      A: a word and /a/path/of/many/parts/that/is/long\n    -diff of a file whose line is longer than a line";
        let look = Look(Screen { width: Some(40), colors: false });
        let expected = "Node n is Degraded, since\n           2026-11-29T13:40:00Z\n  why      A: a word and\n           /a/path/of/many/parts/that/is/long\n    -diff of a file whose line is longer than a line";
        assert_eq!(look.screen(text), expected);
        assert_eq!(Look(Screen::default()).screen(text), text);
    }

    #[test]
    fn state_and_fault_have_colors() {
        let look = Look(Screen { width: None, colors: true });
        assert_eq!(look.screen("Node n is Done, since a"), "Node n is \x1b[32mDone\x1b[0m, since a");
        assert_eq!(look.screen("  why      A: b"), "  \x1b[1;31mwhy\x1b[0m      A: b");
        assert_eq!(look.screen("  whys     A"), "  whys     A");
    }
}
