//! The agent as a service of the host: its settings, which SIGHUP has it read again, and the hint at a login.

use std::fmt;

use tracing::{info, warn};

use super::{Agent, AgentError, Until};
use crate::control::ControlPlane;
use crate::model::{FileMode, Tuning, message};
use crate::report::{LinkDown, NodeReport, State};
use crate::update::Fault;
use crate::update::ending::Ask;

/// The hint's file: `pam_motd(8)` shows what is in the directory at each login.
const HINT: &str = "/run/motd.d/90-machine-config-agent.motd";
/// More than this of a reason is for `status`.
const HINT_LIMIT: usize = 300;

/// Reads the settings of this node.
pub struct Reread(Box<dyn Fn() -> Result<Tuning, Fault>>);

impl Reread {
    /// Takes what reads them.
    pub fn new(read: impl Fn() -> Result<Tuning, Fault> + 'static) -> Self {
        Self(Box::new(read))
    }
}

impl Default for Reread {
    fn default() -> Self {
        Self::new(|| Ok(Tuning::default()))
    }
}

impl fmt::Debug for Reread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Reread")
    }
}

impl<C: ControlPlane> Agent<C> {
    /// Sets where the settings come from, and reads them. Settings that can't be used leave what is: a node does its
    /// work without them.
    #[must_use]
    pub fn governed(self, settings: Reread) -> Self {
        let mut agent = Self { settings, ..self };
        agent.read_settings();
        agent
    }

    /// Reads the settings again and tells systemd, which waits for it.
    pub(super) fn reload(&mut self) -> Result<(), AgentError> {
        self.telemetry.notify.reloading(self.host.clock.monotonic_micros());
        if self.read_settings() {
            info!(MESSAGE_ID = message::RELOADED, "the settings were read again: {:?}", self.tuning);
        }
        self.telemetry.notify.reloaded();
        self.retry.ask(Ask::Person);
        self.prove_again()
    }

    fn read_settings(&mut self) -> bool {
        match (self.settings.0)() {
            Ok(tuning) => {
                self.host.limits = tuning.os;
                self.host.soft_reboot = tuning.soft_reboot;
                self.tuning = tuning;
                true
            }
            Err(fault) => {
                warn!(
                    MESSAGE_ID = message::SETTINGS_INVALID,
                    MCA_FAULT = fault.reason,
                    "{}: {}; the settings stay as they are. Next: {}",
                    fault.reason,
                    fault.message,
                    fault.next
                );
                false
            }
        }
    }

    /// Leaves a hint for who logs in to a node that is at fault, and takes it away when it is not.
    pub(super) fn hint(&mut self, report: &NodeReport) {
        let wanted = hint(report);
        // Who runs `apply` reads its answer.
        if self.until == Until::Settled || self.hinted.as_ref() == Some(&wanted) {
            return;
        }
        let root = &self.host.root;
        let done = if wanted.is_empty() {
            root.remove(HINT)
        } else {
            root.replace(HINT, wanted.as_bytes(), FileMode::DEFAULT)
        };
        if let Err(error) = done {
            let error = AgentError::from(error).fault();
            warn!("the hint for logins can't be changed: {}", error.message);
        }
        self.hinted = Some(wanted);
    }
}

/// Returns the hint of a node whose access to the cluster is wrong: an API server that is away is nobody's fault here.
fn link_hint(report: &NodeReport) -> String {
    let wrong = |down: &&LinkDown| down.reason != "ApiServerAway";
    report.link_down.as_ref().filter(wrong).map_or_else(String::new, |down| {
        let why: String = down.message.chars().take(HINT_LIMIT).collect();
        format!(
            "machine-config-agent: this node does not follow its cluster since {}. {why}\nNext: {}\n",
            down.since, down.next
        )
    })
}

/// Returns the hint's text, which is empty for a node that is well.
fn hint(report: &NodeReport) -> String {
    let state = match report.state {
        State::Done | State::Working => return link_hint(report),
        State::Degraded => "Degraded",
        State::Unreconcilable => "Unreconcilable",
    };
    let why: String = report.reason.chars().take(HINT_LIMIT).collect();
    let cut = if why.len() < report.reason.len() { "..." } else { "" };
    format!("machine-config-agent: this node is {state}. {why}{cut}\nSee: machine-config-agent status\n")
}
