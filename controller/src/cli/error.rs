//! Errors of the verbs.

use machine_config_core::model::refusal::{self, Refusal};

use crate::bootstrap::BootstrapError;
use crate::controllers::RunError;
use crate::image::ImageError;
use crate::manifests::ManifestError;
use crate::model::FaultClass;
use crate::plan::{Irreconcilable, Unreachable};
use crate::render::RenderError;

/// The word of an object that is refused, where no field of it says more.
pub(super) const FAILED: &str = "InvalidConfig";

/// Errors of a verb.
#[derive(Debug, thiserror::Error)]
pub(super) enum CliError {
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    #[error(transparent)]
    Run(#[from] RunError),
    #[error(transparent)]
    Render(#[from] RenderError),
    #[error("{}", listed(.0.iter().map(|fault| &fault.message)))]
    Faults(Vec<Refusal>),
    #[error(transparent)]
    Image(#[from] ImageError),
    #[error(transparent)]
    Local(#[from] crate::image::local::LocalError),
    /// The command line, or a file that it names.
    #[error("{0}")]
    Usage(String),
    /// Not done: what was there is as before, or the text says what is open.
    #[error("{0}")]
    Failed(String),
    #[error("the output can't be written: {0}")]
    Output(std::io::Error),
    /// Any other one, after the notes about the objects that were read.
    #[error("{error}")]
    Noted { error: Box<CliError>, notes: Vec<String> },
}

impl CliError {
    /// Adds the notes about the objects that were read: a refusal hides none.
    pub(super) fn noted(self, notes: Vec<String>) -> Self {
        if notes.is_empty() { self } else { Self::Noted { error: Box::new(self), notes } }
    }

    /// Returns the notes.
    pub(super) fn notes(&self) -> &[String] {
        if let Self::Noted { notes, .. } = self { notes } else { &[] }
    }

    /// Returns what was refused, for a program.
    pub(super) fn refusals(&self) -> Vec<Refusal> {
        let plain = |class, reason| vec![Refusal::new(class, reason, self.to_string())];
        match self {
            Self::Manifest(error) => of_manifest(error),
            Self::Render(error) => of_render(error),
            Self::Faults(faults) => faults.clone(),
            Self::Noted { error, .. } => error.refusals(),
            Self::Image(ImageError::Config(error)) => Refusal::of_input(error, self.to_string()),
            Self::Image(_) => plain(FaultClass::Degraded.as_str(), FAILED),
            Self::Usage(_) | Self::Run(RunError::Kubeconfig { .. }) => {
                let text = self.to_string();
                let field = refusal::argument(&text).map(str::to_owned);
                vec![Refusal { field, ..usage(text) }]
            }
            Self::Local(_) | Self::Run(_) | Self::Failed(_) | Self::Output(_) => {
                plain(FaultClass::Degraded.as_str(), "SetupFailed")
            }
        }
    }
}

/// Returns the exit code of these, the highest one: a directory may have faults of several classes.
pub(super) fn exit_code(refusals: &[Refusal]) -> u8 {
    refusals.iter().map(Refusal::exit_code).max().unwrap_or_else(|| FaultClass::Degraded.exit_code())
}

fn listed<T: ToString>(errors: impl ExactSizeIterator<Item = T>) -> String {
    let count = errors.len();
    let lines: Vec<String> = errors.map(|error| error.to_string()).collect();
    match lines.as_slice() {
        [one] => one.clone(),
        many => format!("{count} errors:\n  {}", many.join("\n  ")),
    }
}

fn usage(message: String) -> Refusal {
    Refusal { class: refusal::USAGE, reason: refusal::INVALID_ARGUMENTS, field: None, message, next: None }
}

/// Returns what is wrong with files.
pub(super) fn of_manifest(error: &ManifestError) -> Vec<Refusal> {
    let plain = |reason| Refusal {
        class: FaultClass::Degraded.as_str(),
        reason,
        field: None,
        message: error.to_string(),
        next: None,
    };
    match error {
        ManifestError::Several(errors) => errors.iter().flat_map(of_manifest).collect(),
        ManifestError::Refused { error: model, .. } => Refusal::of_input(model, error.to_string()),
        ManifestError::Unreachable { path, object, refused } => {
            of_reasons(&format!("{}: {object}", path.display()), refused)
        }
        ManifestError::More { .. } => vec![plain(FAILED)],
        // As a file that the agent is given and can't read.
        ManifestError::Unread { .. } | ManifestError::TooMany { .. } => {
            vec![usage(error.to_string())]
        }
        ManifestError::Twice { .. } => {
            vec![Refusal { field: Some("metadata.name".to_owned()), ..plain(FAILED) }]
        }
    }
}

/// Returns what is wrong with a pool or an image.
pub(super) fn of_bootstrap(error: &BootstrapError) -> Vec<Refusal> {
    match error {
        BootstrapError::Render(error) => of_render(error),
        BootstrapError::Left { .. } => vec![Refusal { field: error.field(), ..usage(error.to_string()) }],
        BootstrapError::Seed(_)
        | BootstrapError::Containerfile { .. }
        | BootstrapError::NoPool
        | BootstrapError::Secret { .. }
        | BootstrapError::NoBase { .. } => vec![Refusal {
            field: error.field(),
            ..Refusal::new(FaultClass::Degraded.as_str(), FAILED, error.to_string())
        }],
    }
}

/// Returns what is wrong with a pool.
pub(super) fn of_render(error: &RenderError) -> Vec<Refusal> {
    let (class, field) = match error {
        RenderError::Model(model) => return Refusal::of_input(model, error.to_string()),
        RenderError::Irreconcilable { config, refused } => return of_reasons(config, refused),
        RenderError::NoConfigs { .. } | RenderError::EmptySelector { .. } | RenderError::Selector { .. } => {
            (FaultClass::Degraded, Some("spec.machineConfigSelector"))
        }
        RenderError::Ignition { .. } => (FaultClass::Degraded, Some("spec.config")),
        RenderError::Part { .. } | RenderError::TooLarge { .. } | RenderError::Json(_) => {
            (FaultClass::Degraded, None)
        }
    };
    let field = field.map(str::to_owned);
    vec![Refusal { class: class.as_str(), reason: FAILED, field, message: error.to_string(), next: None }]
}

/// Returns each reason of nodes, in the words of the error of one.
fn of_reasons(config: &str, refused: &Irreconcilable) -> Vec<Refusal> {
    let of = |(reason, refusal): (&Unreachable, Refusal)| {
        let one = Irreconcilable { reasons: vec![reason.clone()], is_of_host: refused.is_of_host };
        let message = RenderError::Irreconcilable { config: config.to_owned(), refused: one }.to_string();
        Refusal { message, ..refusal }
    };
    refused.reasons.iter().zip(refused.refusals()).map(of).collect()
}
