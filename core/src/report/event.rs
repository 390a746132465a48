//! Events of the cluster: reasons and types as MCD's (docs/contract.md).

use crate::model::{ConfigName, ImageRef};
use crate::plan::{Batch, Op, Plan, PostActions, ServiceAction, ServiceVerb};
use crate::update::{Fault, Phase, Record};

/// Severity of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Severity {
    /// As it should be.
    Normal,
    /// A person should look.
    Warning,
}

/// One thing that happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The desired config can't be reached.
    FailedToReconcile {
        /// Why.
        cause: String,
    },
    /// An update was not begun, since the host drifted.
    PreflightDrift {
        /// The differences.
        cause: String,
    },
    /// The idle host drifted.
    Drift {
        /// The differences.
        cause: String,
    },
    /// The OS is about to be changed.
    OsUpdateStarted {
        /// The changes.
        changes: String,
    },
    /// The next deployment is staged.
    OsUpdateStaged {
        /// The image, when it changes.
        image: Option<ImageRef>,
    },
    /// The node is to be cordoned.
    Cordon,
    /// The drain was requested.
    Drain,
    /// The drain is skipped.
    DrainSkipped,
    /// The drain took too long; it is still waited for.
    FailedToDrain {
        /// The awaited object.
        cause: String,
    },
    /// The node is drained, and pods are left on it.
    PodsNotEvicted {
        /// Which, and why.
        pods: String,
    },
    /// The node takes workload again.
    Uncordon {
        /// The config that it runs.
        config: ConfigName,
    },
    /// The uncordon took too long; it is still waited for.
    FailedToUncordon {
        /// The awaited object.
        cause: String,
    },
    /// A service was reloaded or restarted in place of a reboot.
    Service {
        /// Which, and how.
        action: ServiceAction,
    },
    /// A service could not be reloaded or restarted.
    FailedService {
        /// The requested action.
        verb: ServiceVerb,
        /// Why.
        cause: String,
    },
    /// Nothing followed the change.
    SkipReboot,
    /// The machine reboots.
    Reboot {
        /// Why.
        why: String,
    },
    /// The staged deployment was not finalized in the last shutdown.
    FailedFinalization {
        /// The observed cause.
        cause: String,
    },
    /// The node is as desired.
    NodeDone {
        /// The node.
        node: String,
        /// The config that it runs.
        config: ConfigName,
    },
}

impl Event {
    /// Returns the event of an update that changes the OS; `None` where its plan does not.
    pub fn for_os_changes(plan: &Plan) -> Option<Self> {
        let os = plan.steps().iter().filter(|step| step.op.batch() == Batch::Os);
        let words: Vec<String> =
            os.map(|step| format!("{} {}", step.op.as_str(), step.op.target())).collect();
        (!words.is_empty()).then(|| Self::OsUpdateStarted { changes: words.join("; ") })
    }

    /// Returns the events of a committed update: the actions in place of a reboot.
    pub fn for_commit(record: &Record) -> Vec<Self> {
        match record.plan.after() {
            PostActions::Nothing if record.is_repair() => Vec::new(),
            PostActions::Nothing => vec![Self::SkipReboot],
            PostActions::Services { actions } => {
                actions.iter().cloned().map(|action| Self::Service { action }).collect()
            }
            PostActions::Reboot { .. } => Vec::new(),
        }
    }

    /// Returns the event of a failed service action, if the update is in that phase.
    pub fn for_failed_service(record: &Record, fault: &Fault) -> Option<Self> {
        let Phase::Applying { next } = record.phase else { return None };
        let step = record.plan.batch(next)?.first()?;
        let is_restart = matches!(step.op, Op::RestartUnit { .. });
        let verb = if is_restart { ServiceVerb::Restart } else { ServiceVerb::Reload };
        let is_service = step.op.batch() == Batch::Services;
        is_service.then(|| Self::FailedService { verb, cause: fault.message.clone() })
    }

    /// Returns the event's reason.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::FailedToReconcile { .. } => "FailedToReconcile",
            Self::PreflightDrift { .. } => "PreflightConfigDriftCheckFailed",
            Self::Drift { .. } => "ConfigDriftDetected",
            Self::OsUpdateStarted { .. } => "OSUpdateStarted",
            Self::OsUpdateStaged { .. } => "OSUpdateStaged",
            Self::Cordon => "Cordon",
            Self::Drain | Self::DrainSkipped => "Drain",
            Self::FailedToDrain { .. } => "FailedToDrain",
            Self::PodsNotEvicted { .. } => "PodsNotEvicted",
            Self::Uncordon { .. } => "Uncordon",
            Self::FailedToUncordon { .. } => "FailedToUncordon",
            Self::Service { action } => match action.action {
                ServiceVerb::Restart => "ServiceRestart",
                ServiceVerb::Reload | ServiceVerb::DaemonReload => "ServiceReload",
            },
            Self::FailedService { verb: ServiceVerb::Restart, .. } => "FailedServiceRestart",
            Self::FailedService { verb: ServiceVerb::Reload | ServiceVerb::DaemonReload, .. } => {
                "FailedServiceReload"
            }
            Self::SkipReboot => "SkipReboot",
            Self::Reboot { .. } => "Reboot",
            Self::FailedFinalization { .. } => "FailedFinalization",
            Self::NodeDone { .. } => "NodeDone",
        }
    }

    /// Returns the severity.
    pub fn severity(&self) -> Severity {
        match self {
            Self::FailedToReconcile { .. }
            | Self::PreflightDrift { .. }
            | Self::Drift { .. }
            | Self::FailedToDrain { .. }
            | Self::PodsNotEvicted { .. }
            | Self::FailedToUncordon { .. }
            | Self::FailedService { .. }
            | Self::FailedFinalization { .. } => Severity::Warning,
            Self::OsUpdateStarted { .. }
            | Self::OsUpdateStaged { .. }
            | Self::Cordon
            | Self::Drain
            | Self::DrainSkipped
            | Self::Uncordon { .. }
            | Self::Service { .. }
            | Self::SkipReboot
            | Self::Reboot { .. }
            | Self::NodeDone { .. } => Severity::Normal,
        }
    }

    /// Returns the text.
    pub fn message(&self) -> String {
        match self {
            Self::FailedToReconcile { cause }
            | Self::PreflightDrift { cause }
            | Self::Drift { cause }
            | Self::FailedToDrain { cause }
            | Self::FailedToUncordon { cause }
            | Self::FailedFinalization { cause } => cause.clone(),
            Self::OsUpdateStarted { changes } => changes.clone(),
            Self::PodsNotEvicted { pods } => pods.clone(),
            Self::OsUpdateStaged { image: Some(image) } => format!("Changes to OS staged: {image}"),
            Self::OsUpdateStaged { image: None } => "Changes to OS staged".to_owned(),
            Self::Cordon => "Cordoned node to apply update".to_owned(),
            Self::Drain => "Draining node to update config.".to_owned(),
            Self::DrainSkipped => "Drain not required, skipping".to_owned(),
            Self::Uncordon { config } => {
                format!("Update completed for config {config} and node has been uncordoned")
            }
            Self::Service { action } => {
                let done = match action.action {
                    ServiceVerb::Restart => "restarted",
                    ServiceVerb::Reload | ServiceVerb::DaemonReload => "reloaded",
                };
                let service = action.unit.as_ref().map_or("daemon-reload", |unit| unit.as_str());
                format!("Config changes do not require reboot. Service {service} was {done}.")
            }
            Self::FailedService { cause, .. } => {
                format!("Config changes do not require reboot, but a service failed. Error: {cause}")
            }
            Self::SkipReboot => "Config changes do not require reboot.".to_owned(),
            Self::Reboot { why } => why.clone(),
            Self::NodeDone { node, config } => format!("Setting node {node}, currentConfig {config} to Done"),
        }
    }
}
