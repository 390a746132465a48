//! The agent as a service of the host: its settings, which SIGHUP has it read again, its report, and the hint at a login.

use tracing::{info, warn};

use super::errors::log_fault;
use super::fields::image;
use super::settings_loader::ReadSettings;
use super::{Agent, AgentError, RunMode, SettingsLoader};
use crate::control::{ControlError, ControlPlane};
use crate::model::{FileMode, Target, message};
use crate::report::{LinkDown, NodeReport, NodeState, report};
use crate::update::Fault;
use crate::update::ending::RetryTrigger;

/// The hint's file: `pam_motd(8)` shows the files of the directory at each login.
const HINT: &str = "/run/motd.d/90-machine-config-agent.motd";
/// More than this of a reason is for `status`.
const MAX_HINT_LENGTH: usize = 300;

impl<C: ControlPlane> Agent<C> {
    /// Sets the source of the settings, and reads them. Unusable settings leave the present ones: a node does its
    /// work without them.
    #[must_use]
    pub fn with_settings(self, settings: SettingsLoader) -> Self {
        let mut agent = Self { settings, ..self };
        let read = agent.settings.read();
        agent.take_settings(read);
        agent
    }

    /// Reads the settings again and notifies systemd, which waits for it.
    pub(super) fn reload(&mut self) -> Result<(), AgentError> {
        // Who asks for it is answered anew.
        self.health.settings = None;
        self.telemetry.notify.reloading(self.host.clock.monotonic_micros());
        let read = self.settings.read();
        if self.take_settings(read) {
            info!(MESSAGE_ID = message::RELOADED, "Reloaded the settings: {:?}", self.node_settings);
        }
        self.telemetry.notify.reloaded();
        self.memory.retry.request(RetryTrigger::Person);
        self.restart_trial()
    }

    /// Returns whether they changed what is in force. What is wrong with the file is reported until it is right.
    fn take_settings(&mut self, read: Result<ReadSettings, Fault>) -> bool {
        match read {
            Ok(ReadSettings { settings, unknown }) => {
                for one in &unknown {
                    info!("Not applied: {one}");
                }
                self.host.limits = settings.os;
                self.host.soft_reboot = settings.soft_reboot;
                self.node_settings = settings;
                self.health.unknown_settings = unknown;
                self.health.settings = None;
                true
            }
            Err(fault) => {
                if self.health.settings.as_ref() != Some(&fault) {
                    warn!(
                        MESSAGE_ID = message::SETTINGS_INVALID,
                        MCA_FAULT = fault.reason,
                        "{}: {}; the settings stay as they are. Next: {}",
                        fault.reason,
                        fault.message,
                        fault.next
                    );
                }
                self.health.settings = Some(fault);
                false
            }
        }
    }

    /// Reads the target. When it can't be read, the old one stays and the report has the cause.
    pub(super) async fn read_desired(&mut self) {
        self.tried_with = self.health.fault.take();
        let awaited = self.health.awaited.take();
        let judged = judge(self.control.desired().await, &mut self.health.refused, self.mode);
        self.health.refused_target = self.control.refused_target();
        self.judge_other_inputs();
        if let Some(desired) = judged {
            if desired != self.health.desired {
                if let Some(target) = &desired {
                    log_target(target, self.health.desired.as_ref());
                }
                // A start that finds its target reached is no new state.
                if desired.as_ref() != self.journal.current() {
                    self.health.since = self.host.clock.now();
                }
                self.tried_with = None;
                self.memory.backoff.reset();
            }
            if desired.is_none() {
                self.health.awaited = self.control.awaited_target();
            }
            if let Some(what) = self.health.awaited.as_ref().filter(|_| self.health.awaited != awaited) {
                info!(MESSAGE_ID = message::WAITING, "Waiting for {what}");
            }
            // An equal one may tell its content for the first time.
            self.health.desired = desired;
        }
        let unwatched = self.control.unwatched();
        if let Some(fault) = unwatched.as_ref().filter(|_| self.health.unwatched_source != unwatched) {
            log_fault(fault, None, self.mode);
        }
        self.health.unwatched_source = unwatched;
    }

    /// Judges the inputs beside the target: a person learns at once that one of them is wrong, and not at the next update.
    fn judge_other_inputs(&mut self) {
        // What is right takes effect at a reload, but for a file that was wrong: nothing else would end its fault.
        let read = self.settings.read();
        if self.health.settings.is_some() || read.is_err() {
            self.take_settings(read);
        }
        let policy = self.control.check_policy().err().map(|error| AgentError::from(error).fault());
        let proxies = self.host.proxies.for_pulls().err().map(|error| AgentError::from(error).fault());
        for (now, before) in [(&policy, &self.health.policy), (&proxies, &self.health.proxies)] {
            if let Some(fault) = now.as_ref().filter(|_| now != before) {
                log_fault(fault, None, self.mode);
            }
        }
        (self.health.policy, self.health.proxies) = (policy, proxies);
        let ignored = self.host.proxies.ignored();
        for one in ignored.iter().filter(|one| !self.health.unknown_proxies.contains(one)) {
            info!("Not applied: {one}");
        }
        self.health.unknown_proxies = ignored;
    }

    /// Publishes a target that is another one, or refused, since the last pass: this one may take minutes.
    pub(super) async fn tell_target(&mut self) {
        let now = (self.health.desired.clone(), self.health.refused.clone());
        let before = self.told.replace(now.clone());
        if before.as_ref() == Some(&now) {
            return;
        }
        let (Some(desired), None) = now else {
            if self.health.refused.is_some() {
                self.publish().await;
            }
            return;
        };
        let config = &desired.config;
        let doing = match self.journal.record() {
            Some(record) if record.to == desired => None,
            None if self.health.current.as_ref() == Some(&desired) => {
                // Of an earlier process, which was told.
                before.map(|_| format!("compares the host with {config}"))
            }
            Some(_) | None => Some(format!("prepares the update to {config}")),
        };
        if let Some(doing) = doing {
            self.publish_work(doing).await;
        }
    }

    /// Publishes the work of a pass before its end. The fault of the last try stays until this one is over.
    pub(super) async fn publish_work(&mut self, doing: String) {
        self.health.doing = Some(doing);
        self.health.doing_since = Some(self.host.clock.now());
        self.health.next_try = None;
        let is_retry = self.health.fault.is_none();
        if is_retry {
            self.health.fault.clone_from(&self.tried_with);
        }
        self.publish().await;
        if is_retry {
            self.health.fault = None;
        }
    }

    /// Publishes the recorded state. A control plane that is away does not stop the work.
    pub(super) async fn publish(&mut self) {
        self.health.link_down = self.control.link_down();
        self.health.unread = self.control.unread();
        self.health.unrestored.clone_from(&self.unrestored.borrow());
        self.fault_times.date(self.journal.record(), &mut self.health, self.host.clock.now());
        let report = report(self.journal.record(), &self.health);
        // Before `status` shows the same.
        self.hint(&report);
        self.telemetry.report(&report, self.host.clock.now());
        match self.control.publish(&report).await {
            Ok(()) => self.note_publication(None),
            Err(error) if error.is_away() => {}
            Err(error) => {
                let fault = AgentError::from(error).fault();
                warn!(
                    MESSAGE_ID = message::NOT_PUBLISHED,
                    MCA_FAULT = fault.reason,
                    "Failed to publish the report: {}",
                    fault.message
                );
                self.note_publication(Some(fault));
            }
        }
    }

    /// Records whether the control plane took the report. `status` and the hint at a login tell that it does not.
    fn note_publication(&mut self, refused: Option<Fault>) {
        let before = self.health.unpublished.take();
        let now = self.host.clock.now();
        self.health.unpublished = refused.map(|fault| LinkDown {
            since: before.as_ref().map_or_else(|| now.to_string(), |before| before.since.clone()),
            reason: fault.reason,
            message: fault.message,
            next: fault.next,
        });
        if self.health.unpublished != before {
            let report = report(self.journal.record(), &self.health);
            self.hint(&report);
            self.telemetry.report(&report, now);
        }
    }

    /// Leaves a hint for logins to a node that is at fault, and removes it when it is not.
    fn hint(&mut self, report: &NodeReport) {
        let desired = hint(report);
        // The caller of `apply` reads its output.
        if !self.mode.is_service() || self.hinted.as_ref() == Some(&desired) {
            return;
        }
        let root = &self.host.root;
        let done = if desired.is_empty() {
            root.remove(HINT)
        } else {
            root.replace(HINT, desired.as_bytes(), FileMode::DEFAULT)
        };
        if let Err(error) = done {
            let error = AgentError::from(error).fault();
            warn!("Failed to change the hint for logins: {}", error.message);
        }
        self.hinted = Some(desired);
    }
}

/// Judges a target as it was read, and logs once why it is refused; `None`: the last valid one stays.
#[expect(clippy::option_option, reason = "that nothing is desired is valid, too")]
pub(super) fn judge(
    read: Result<Option<Target>, ControlError>,
    refused: &mut Option<Fault>,
    mode: RunMode,
) -> Option<Option<Target>> {
    match read {
        Ok(desired) => {
            *refused = None;
            Some(desired)
        }
        Err(error) if error.is_away() => None,
        Err(error) => {
            let fault = AgentError::from(error).fault();
            if refused.as_ref() != Some(&fault) {
                log_fault(&fault, None, mode);
            }
            *refused = Some(fault);
            None
        }
    }
}

fn log_target(target: &Target, before: Option<&Target>) {
    let with = target.image.as_ref().map(|image| format!(" with image {image}")).unwrap_or_default();
    let is_renewed = before.is_some_and(|before| target.is_renewal_of(before));
    let renewed = if is_renewed { ", whose content changed" } else { "" };
    info!(MESSAGE_ID = message::TARGET, MCA_CONFIG = %target.config, MCA_IMAGE = image(target),
        "Target changed, desired: {}{with}{renewed}", target.config);
}

/// Returns the hint of a node whose access to the cluster is wrong, or its rights: the node has no part in an API server that is away.
fn link_hint(report: &NodeReport) -> String {
    let wrong = |down: &&LinkDown| down.reason != "ApiServerUnreachable";
    let down =
        report.link_down.as_ref().filter(wrong).map(|down| ("this node does not follow its cluster", down));
    let refused = report.unpublished.as_ref().map(|refused| ("this node's report is not published", refused));
    down.or(refused).map_or_else(String::new, |(what, cause)| {
        let why: String = cause.message.chars().take(MAX_HINT_LENGTH).collect();
        format!("machine-config-agent: {what} since {}. {why}\nNext: {}\n", cause.since, cause.next)
    })
}

/// Returns the hint's text, which is empty for a node that is well.
fn hint(report: &NodeReport) -> String {
    let state = match report.state {
        NodeState::Done | NodeState::Working => return link_hint(report),
        NodeState::Degraded => "Degraded",
        NodeState::Unreconcilable => "Unreconcilable",
    };
    let why: String = report.reason.chars().take(MAX_HINT_LENGTH).collect();
    let cut = if why.len() < report.reason.len() { "..." } else { "" };
    format!("machine-config-agent: this node is {state}. {why}{cut}\nSee: machine-config-agent status\n")
}
