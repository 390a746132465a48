//! Causes of buildah's failures, from its output. Pure.

use super::output::Output;

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
    #[error("the config can't be brought into the image: {cause}{}", indented(.lines))]
    Apply {
        /// As buildah says it.
        cause: String,
        /// Output of the agent.
        lines: Vec<String>,
    },
    /// The image is not as its config says.
    #[error(
        "the image is not as its config says; nothing was pushed{}\nA step of the Containerfile changed it: leave these paths as they \
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

/// Says why a build failed.
pub(super) fn of_build(output: &Output) -> BuildFailure {
    let (cause, lines) = split(output);
    let Some(step) = output.step() else { return BuildFailure::Other { cause, lines } };
    if let Some(image) = step.strip_prefix("FROM ") {
        let image = image.split_whitespace().next().unwrap_or_default().to_owned();
        return match refusal(&cause) {
            Refusal::Unauthorized => BuildFailure::PullUnauthorized { image, cause },
            Refusal::Unknown => BuildFailure::NoImage { image, cause },
            Refusal::Other => BuildFailure::Pull { image, cause },
        };
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

/// Says why a push failed.
pub(super) fn of_push(output: &Output, image: &str) -> BuildFailure {
    let (cause, image) = (split(output).0, image.to_owned());
    match refusal(&cause) {
        Refusal::Unauthorized => BuildFailure::PushUnauthorized { image, cause },
        Refusal::Unknown | Refusal::Other => BuildFailure::Push { image, cause },
    }
}

/// The last line that begins with `Error: `, and the others.
fn split(output: &Output) -> (String, Vec<String>) {
    let mut lines = output.lines();
    let at = lines.iter().rposition(|line| line.starts_with("Error: "));
    let cause = at.map(|at| lines.remove(at)).or_else(|| lines.pop());
    let cause = cause.unwrap_or_else(|| "it said nothing".to_owned());
    (cause.trim_start_matches("Error: ").to_owned(), lines)
}

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
    let rest = cause.strip_prefix("building at STEP ").and_then(|rest| rest.rsplit_once("\": "));
    rest.map_or(cause, |(_, rest)| rest).to_owned()
}

fn short(step: &str) -> String {
    machine_config_core::model::short(step, 200)
}
