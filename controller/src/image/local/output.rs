//! Output of buildah while it builds: the current step, and the last lines of that step. Pure.

use std::collections::VecDeque;

/// The most lines of a step in memory.
const MAX_LINES: usize = 20;

/// The longest line; the rest of one is dropped.
const MAX_LINE: usize = 500;

/// The step that a program is at.
#[derive(Debug, Default)]
pub(super) struct Output {
    step: Option<String>,
    lines: VecDeque<String>,
    partial: Vec<u8>,
}

impl Output {
    /// Takes bytes as they come, and returns the lines that are whole, for people.
    pub(super) fn take(&mut self, bytes: &[u8]) -> Vec<String> {
        let mut whole = Vec::new();
        for byte in bytes {
            match byte {
                b'\n' | b'\r' => whole.extend(self.end_line()),
                byte if self.partial.len() < MAX_LINE => self.partial.push(*byte),
                _ => {}
            }
        }
        whole
    }

    /// Ends the line that has no end.
    pub(super) fn end_line(&mut self) -> Option<String> {
        let line = String::from_utf8_lossy(&std::mem::take(&mut self.partial)).trim_end().to_owned();
        // What would move a terminal's cursor is no text.
        let line: String = line.chars().filter(|c| !c.is_control() || *c == '\t').collect();
        if line.is_empty() {
            return None;
        }
        if let Some(step) = step(&line) {
            self.step = Some(step.to_owned());
            self.lines.clear();
        } else {
            self.lines.push_back(line.clone());
            if self.lines.len() > MAX_LINES {
                self.lines.pop_front();
            }
        }
        Some(line)
    }

    /// Returns the instruction, where one was begun.
    pub(super) fn step(&self) -> Option<&str> {
        self.step.as_deref()
    }

    /// Returns the last lines.
    pub(super) fn lines(&self) -> Vec<String> {
        self.lines.iter().cloned().collect()
    }
}

/// Returns the instruction of `STEP 2/5: RUN true` and of `[1/2] STEP 2/5: RUN true`.
fn step(line: &str) -> Option<&str> {
    let rest = match line.strip_prefix('[') {
        Some(stage) => stage.split_once("] ")?.1,
        None => line,
    };
    let (number, instruction) = rest.strip_prefix("STEP ")?.split_once(": ")?;
    let is_number = number.chars().all(|c| c.is_ascii_digit() || c == '/');
    is_number.then_some(instruction)
}
