//! Causes of buildah's failures, from its output. Pure.

use super::super::dockerfile::{Instruction, parse};
use super::output::Output;

/// As much of a cause, and of a line of a step, is in the sentence about a build in a cluster.
const MAX_CAUSE: usize = 300;

/// As much of the output of a build whose cause is not found.
const MAX_TAIL: usize = 1000;

/// Failed action. Each names the object, the cause and the next step.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum BuildFailure {
    /// The base image, or one that the user's part names.
    #[error(
        "{image}: the registry refuses it without (other) credentials: {cause}; name a file with --authfile"
    )]
    PullUnauthorized {
        /// Which.
        image: String,
        /// As buildah says it.
        cause: String,
    },
    /// There is none of that name.
    #[error("{image}: there is no such image: {cause}; correct its name")]
    NoImage {
        /// Which.
        image: String,
        /// As buildah says it.
        cause: String,
    },
    /// It was not reached, or it broke off.
    #[error("{image} can't be pulled: {cause}; try again when the registry answers")]
    Pull {
        /// Which.
        image: String,
        /// As buildah says it.
        cause: String,
    },
    /// A step of the Containerfile.
    #[error("{step} failed: {cause}{}\nCorrect the Containerfile", indented(.lines))]
    Step {
        /// The instruction.
        step: String,
        /// As buildah says it.
        cause: String,
        /// Its last lines.
        lines: Vec<String>,
    },
    /// The step in which the agent brings the config in.
    #[error("the config can't be applied in the image: {cause}{}", indented(.lines))]
    Apply {
        /// As buildah says it.
        cause: String,
        /// Output of the agent.
        lines: Vec<String>,
    },
    /// The image is not as its config says.
    #[error(
        "the image does not match its config; nothing was pushed{}\nA step of the Containerfile changed it: leave these paths as they \
         are, or change the MachineConfig",
        indented(.lines)
    )]
    Differs {
        /// The differences.
        lines: Vec<String>,
    },
    /// The registry refused the push.
    #[error(
        "the push to {image} is refused: {cause}; name a file with --push-authfile, of an account that may write there"
    )]
    PushUnauthorized {
        /// The destination.
        image: String,
        /// As buildah says it.
        cause: String,
    },
    /// The disk of the build is full.
    #[error(
        "no space left for the build (in {step}); free space on the builder's file system, or build a smaller image"
    )]
    NoSpace {
        /// The instruction, or the push.
        step: String,
    },
    /// It was not pushed.
    #[error("{image} can't be pushed: {cause}; try again when the registry answers")]
    Push {
        /// The destination.
        image: String,
        /// As buildah says it.
        cause: String,
    },
    /// Before any step.
    #[error("buildah failed: {cause}{}", indented(.lines))]
    Other {
        /// As buildah says it.
        cause: String,
        /// Its last lines.
        lines: Vec<String>,
    },
}

fn indented(lines: &[String]) -> String {
    lines.iter().flat_map(|line| ["\n  ", line]).collect()
}

impl BuildFailure {
    /// Says it in one sentence for a `MachineOSConfig`, whose Secrets take the place of flags. `containerfile` is the user's part.
    fn in_cluster(&self, containerfile: &str) -> String {
        let bounded = |text: &str| machine_config_core::model::short(text, MAX_CAUSE);
        let with_last = |cause: &str, lines: &[String]| match lines.last() {
            Some(line) => format!("{}: {}", bounded(cause), bounded(line)),
            None => bounded(cause),
        };
        match self {
            Self::PullUnauthorized { image, cause } => format!(
                "the registry denied the pull of {image}: {}; correct the Secret in spec.baseImagePullSecret",
                bounded(cause)
            ),
            Self::PushUnauthorized { image, cause } => format!(
                "the registry denied the push to {image}: {}; use an account with push permission in the Secret of \
                 spec.renderedImagePushSecret",
                bounded(cause)
            ),
            Self::Step { step, cause, lines } => {
                let line =
                    line_of(step, containerfile).map(|line| format!(" (line {line} of the Containerfile)"));
                let line = line.unwrap_or_default();
                format!("{step}{line} failed: {}; correct the Containerfile", with_last(cause, lines))
            }
            Self::Apply { cause, lines } => {
                format!(
                    "applying the MachineConfig in the image failed: {}; correct the MachineConfig, or the Containerfile if it \
                     changed the base",
                    with_last(cause, lines)
                )
            }
            Self::Differs { lines } => format!(
                "the built image differs from its MachineConfig: {}; do not change these paths in the Containerfile, or change \
                 the MachineConfig",
                bounded(&lines.iter().map(|line| line.trim()).collect::<Vec<_>>().join("; "))
            ),
            Self::Other { cause, .. } => {
                format!("buildah failed: {}; see the log of the build's pod", bounded(cause))
            }
            Self::NoImage { .. } | Self::Pull { .. } | Self::NoSpace { .. } | Self::Push { .. } => {
                self.to_string()
            }
        }
    }
}

/// Says in one sentence why a build in a cluster failed, from the last lines of its pod; these themselves where they have no error of
/// buildah. `to` is where it pushes, `containerfile` the user's part.
pub fn explained(tail: &str, to: &str, containerfile: &str) -> String {
    let mut output = Output::default();
    drop(output.take(tail.as_bytes()));
    drop(output.end_line());
    if !output.lines().iter().any(|line| is_error(line)) {
        let skipped = tail.chars().count().saturating_sub(MAX_TAIL);
        return tail.chars().skip(skipped).collect();
    }
    let is_push = split(&output).0.starts_with("pushing image ");
    let failure = if is_push { of_push(&output, to) } else { of_build(&output) };
    failure.in_cluster(containerfile)
}

/// Returns the line of an instruction in the user's part; its text may be cut off.
fn line_of(step: &str, containerfile: &str) -> Option<usize> {
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let step = words(step.trim_end_matches('\u{2026}'));
    let is_it = |one: &&Instruction| words(&format!("{} {}", one.keyword, one.arguments)).starts_with(&step);
    parse(containerfile).ok()?.iter().find(is_it).map(|one| one.line)
}

/// Says why a build failed.
pub(super) fn of_build(output: &Output) -> BuildFailure {
    let (cause, lines) = split(output);
    // The lines of a pod may begin within the output of a step, which its error names.
    let named = || cause.split_once(AT_STEP)?.1.rsplit_once("\": ").map(|(step, _)| step);
    let Some(step) = output.step().or_else(named) else { return before_steps(cause, lines) };
    if is_full(&cause, &lines) {
        return BuildFailure::NoSpace { step: short(step) };
    }
    if let Some(image) = step.strip_prefix("FROM ") {
        let image = image.split_whitespace().next().unwrap_or_default().to_owned();
        return of_pull(image, cause);
    }
    let is_own = |verb: &str| step.contains(super::super::compose::MOUNT) && step.contains(verb);
    if is_own("\"verify\"") {
        // Without the frame of the container.
        let lines = lines.into_iter().filter(|line| !line.starts_with("subprocess exited")).collect();
        return BuildFailure::Differs { lines };
    }
    if is_own(" apply ") || is_own("ignition-apply") {
        return BuildFailure::Apply { cause: without_step(&cause), lines };
    }
    BuildFailure::Step { step: short(step), cause: without_step(&cause), lines }
}

/// A pull may fail before its step is shown.
fn before_steps(cause: String, lines: Vec<String>) -> BuildFailure {
    if is_full(&cause, &lines) {
        return BuildFailure::NoSpace { step: "the pull of the base".to_owned() };
    }
    let image = cause.split_once("source docker://").and_then(|(_, rest)| rest.split_once(": "));
    match image.map(|(image, _)| image.to_owned()) {
        Some(image) => of_pull(image, cause),
        None => BuildFailure::Other { cause, lines },
    }
}

fn of_pull(image: String, cause: String) -> BuildFailure {
    match refusal(&cause) {
        Refusal::Unauthorized => BuildFailure::PullUnauthorized { image, cause },
        Refusal::Unknown => BuildFailure::NoImage { image, cause },
        Refusal::Other => BuildFailure::Pull { image, cause },
    }
}

fn is_full(cause: &str, lines: &[String]) -> bool {
    let says = |line: &str| line.to_ascii_lowercase().contains("no space left on device");
    says(cause) || lines.iter().any(|line| says(line))
}

/// Says why a push failed.
pub(super) fn of_push(output: &Output, image: &str) -> BuildFailure {
    let (cause, image) = (split(output).0, image.to_owned());
    if is_full(&cause, &[]) {
        return BuildFailure::NoSpace { step: format!("the push to {image}") };
    }
    match refusal(&cause) {
        Refusal::Unauthorized => BuildFailure::PushUnauthorized { image, cause },
        Refusal::Unknown | Refusal::Other => BuildFailure::Push { image, cause },
    }
}

/// The last line that begins with `Error: `, and the others.
fn split(output: &Output) -> (String, Vec<String>) {
    let mut lines = output.lines();
    let at = lines.iter().rposition(|line| is_error(line));
    let cause = at.map(|at| lines.remove(at)).or_else(|| lines.pop());
    let cause = cause.unwrap_or_else(|| "it said nothing".to_owned());
    let cause = ERRORS.iter().find_map(|word| cause.strip_prefix(word)).unwrap_or(&cause);
    (cause.to_owned(), lines)
}

/// Beginning of the line in which buildah says why it ends, and of that of OpenShift's builder.
const ERRORS: [&str; 2] = ["Error: ", "error: "];

fn is_error(line: &str) -> bool {
    ERRORS.iter().any(|word| line.starts_with(word))
}

/// Words of a cause before its step.
const AT_STEP: &str = "building at STEP \"";

enum Refusal {
    Unauthorized,
    Unknown,
    Other,
}

fn refusal(cause: &str) -> Refusal {
    let says = |words: &[&str]| words.iter().any(|word| cause.contains(word));
    if says(&[
        "unauthorized",
        "authentication required",
        "access to the requested resource is not authorized",
        "denied",
        " 401",
        " 403",
    ]) {
        Refusal::Unauthorized
    } else if says(&["manifest unknown", "name unknown", "not found", "no such file", " 404"]) {
        Refusal::Unknown
    } else {
        Refusal::Other
    }
}

/// `building at STEP "RUN ...": exit status 1`: the step is said before.
fn without_step(cause: &str) -> String {
    let rest = cause.split_once(AT_STEP).and_then(|(_, rest)| rest.rsplit_once("\": "));
    rest.map_or(cause, |(_, rest)| rest).to_owned()
}

fn short(step: &str) -> String {
    machine_config_core::model::short(step, 200)
}
