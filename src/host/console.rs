//! The machine's console: the one place where a person sees a host that has no login yet.

use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags};

use super::Root;

const PATH: &str = "/dev/console";

/// An equal line is repeated after this long, for a person who comes later.
const AGAIN: Duration = Duration::from_secs(300);

/// A line is cut here: a serial line is slow.
const MAX_CHARS: usize = 600;

/// The console, and its last line.
#[derive(Debug)]
pub struct Console {
    path: std::path::PathBuf,
    last: Option<(String, Instant)>,
}

impl Console {
    /// Takes the console of a host.
    pub fn new(root: &Root) -> Self {
        Self { path: root.base().join(PATH.trim_start_matches('/')), last: None }
    }

    /// Writes a line; an equal line only after [`AGAIN`]. A console that is absent or does not take the line is not
    /// waited for.
    pub fn write_line(&mut self, words: &str) {
        let recent = |(last, at): &(String, Instant)| last == words && at.elapsed() < AGAIN;
        if self.last.as_ref().is_some_and(recent) {
            return;
        }
        self.last = Some((words.to_owned(), Instant::now()));
        let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::NOCTTY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let Ok(console) = rustix::fs::open(&self.path, flags, Mode::empty()) else { return };
        let printable = |c: char| if c.is_control() { ' ' } else { c };
        let text: String = words.chars().take(MAX_CHARS).map(printable).collect();
        if rustix::io::write(&console, format!("machine-config-agent: {text}\r\n").as_bytes()).is_err() {
            // It was full: the same line is written next time.
            self.last = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_is_written_once_without_control_characters() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::open(directory.path()).unwrap();
        let text = || std::fs::read_to_string(directory.path().join("dev/console")).unwrap();
        // A host without one.
        Console::new(&root).write_line("nobody");
        std::fs::create_dir(directory.path().join("dev")).unwrap();
        std::fs::write(directory.path().join("dev/console"), "").unwrap();
        let mut console = Console::new(&root);
        for words in ["a\x1b[2Jb\nc", "a\x1b[2Jb\nc", "d"] {
            console.write_line(words);
        }
        assert_eq!(text(), "machine-config-agent: a [2Jb c\r\nmachine-config-agent: d\r\n");
    }
}
