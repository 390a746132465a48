//! Output for people: beautiful in a terminal, plain when piped.

use std::io::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::sandbox::Privilege;

/// Result of the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outcome {
    /// Checks that held.
    pub held: usize,
    /// Checks that did not.
    pub failed: usize,
}

/// Style of the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    /// Colours and marks.
    Terminal,
    /// Plain text.
    Plain,
}

/// The printer: it counts the checks.
#[derive(Debug)]
pub(super) struct Show {
    style: Style,
    begun: Instant,
    scene: usize,
    outcome: Outcome,
    failures: Vec<String>,
}

/// Digits shown of a digest, as git and podman do.
const DIGEST: usize = 12;

const BOLD: &str = "1";
const DIM: &str = "2";
const GREEN: &str = "32";
const RED: &str = "1;31";
const CYAN: &str = "36";

impl Show {
    pub(super) fn new(style: Style) -> Self {
        let outcome = Outcome { held: 0, failed: 0 };
        Self { style, begun: Instant::now(), scene: 0, outcome, failures: Vec::new() }
    }

    pub(super) fn opening(&self, dir: &Path, privilege: Privilege) {
        self.line(BOLD, "machine-config-agent: a demo on a throwaway libostree host");
        self.line(DIM, &format!("  in {}, {}", dir.display(), privilege_text(privilege)));
        self.line(DIM, "  real: libostree's sysroot, deployments, staging, finalization and /etc merge; OCI images; skopeo; the agent");
        self.line(DIM, "  played: the reboot. It is a new set of namespaces with the deployment that the boot entries name, an empty");
        self.line(DIM, "  /run and a new boot id. No service manager runs, so reloads and restarts are skipped and logged.");
    }

    pub(super) fn scene(&mut self, title: &str, asked: &str) {
        self.scene += 1;
        self.line("", "");
        self.line(BOLD, &format!("{}. {title}", self.scene));
        self.line("", &format!("   asked     {asked}"));
    }

    /// A block of text under a heading, such as a plan.
    pub(super) fn block(&self, heading: &str, text: &str) {
        for (index, line) in text.trim_end().lines().enumerate() {
            let heading = if index == 0 { heading } else { "" };
            self.line("", &format!("   {heading:<9} {line}"));
        }
    }

    /// One line of the time line.
    pub(super) fn event(&self, at: Duration, text: &str) {
        let first = text.lines().next().unwrap_or_default();
        self.line(CYAN, &format!("   {:>6} ms {first}", at.as_millis()));
    }

    /// One check: the expectation, true if it holds, and the state found.
    pub(super) fn check(&mut self, what: &str, held: bool, found: &str) {
        let (mark, word) = match self.style {
            Style::Terminal => ("✓", "✗"),
            Style::Plain => ("ok  ", "FAIL"),
        };
        if held {
            self.outcome.held += 1;
            self.line(GREEN, &format!("   {mark} {what}"));
        } else {
            self.outcome.failed += 1;
            self.failures.push(format!("scene {}: {what}: found {found}", self.scene));
            self.line(RED, &format!("   {word} {what}: found {found}"));
        }
    }

    pub(super) fn closing(&self) -> Outcome {
        let Outcome { held, failed } = self.outcome;
        self.line("", "");
        let colour = if failed == 0 { GREEN } else { RED };
        let seconds = self.begun.elapsed().as_secs_f64();
        let scenes = self.scene;
        self.line(colour, &format!("{scenes} scenes, {held} checks passed, {failed} failed, {seconds:.1} s"));
        for failure in &self.failures {
            self.line(RED, &format!("  {failure}"));
        }
        self.outcome
    }

    fn line(&self, colour: &str, text: &str) {
        print(self.style, colour, text);
    }
}

/// Prints the progress of a long step.
pub(super) fn progress(style: Style, text: &str) {
    print(style, DIM, &format!("   ... {text}"));
}

/// Cuts digests to a distinguishing part: whole ones push everything else off the line.
fn short(text: &str) -> String {
    let mut parts = text.split("sha256:");
    let mut shown = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let digits = part.bytes().take_while(u8::is_ascii_hexdigit).count();
        let (digest, rest) = part.split_at_checked(digits).unwrap_or((part, ""));
        shown += "sha256:";
        shown += digest.get(..DIGEST).unwrap_or(digest);
        shown += if digest.len() > DIGEST { "…" } else { "" };
        shown += rest;
    }
    shown
}

fn print(style: Style, colour: &str, text: &str) {
    let text = short(text);
    let mut out = std::io::stdout().lock();
    let written = match style {
        Style::Terminal if !colour.is_empty() => writeln!(out, "\x1b[{colour}m{text}\x1b[0m"),
        Style::Terminal | Style::Plain => writeln!(out, "{text}"),
    };
    // A reader that left (`| head`) ends the show, not the checks: the exit code still tells.
    drop(written);
}

/// Returns the privilege of the sandbox, in a word.
fn privilege_text(privilege: Privilege) -> &'static str {
    match privilege {
        Privilege::Root => "as root, in separate mount and PID namespaces",
        Privilege::UserNamespace => "without root, in a user namespace (there `core` has root's id)",
    }
}
