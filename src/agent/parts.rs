//! The agent of one node: its parts, and its memory. Each file beside this one carries out some of the
//! decisions; none of them knows the loop.

use tokio::sync::watch::{Receiver, channel};

use crate::control::ControlPlane;
use crate::decide::inputs::{Answers, Memory};
use crate::decide::mode::{Reboots, RunMode};
use crate::host::{Host, next_root};
use crate::journal::Journal;
use crate::model::{HostSpec, NodeSettings, Observation, Target, Timestamp};
use crate::observe::{machine, managed};
use crate::report::{FaultTimes, LoopState, NodeReport, NodeState};
use crate::telemetry::Telemetry;
use crate::update::Fault;

use super::download::Prefetching;
use super::error::AgentError;
use super::installed::Installed;
use super::monitor::{Last, Monitor};
use super::pinned::Pinning;
use super::settings_loader::SettingsLoader;
use super::shutdown_listener::ShutdownListener;
use super::signals::ProcessSignals;
use super::trust::TrustTask;

/// The agent of one node.
#[derive(Debug)]
pub struct Agent<C> {
    pub(super) host: Host,
    pub(super) journal: Journal,
    pub(super) control: C,
    pub(super) telemetry: Telemetry,
    pub(super) monitor: Monitor,
    pub(super) signals: ProcessSignals,
    pub(super) mode: RunMode,
    pub(super) reboots: Reboots,
    pub(super) health: LoopState,
    pub(super) node_settings: NodeSettings,
    pub(super) settings: SettingsLoader,
    pub(super) hinted: Option<String>,
    pub(super) memory: Memory,
    pub(super) prefetching: Prefetching,
    pub(super) installed: Installed,
    pub(super) trust: TrustTask,
    pub(super) pinning: Pinning,
    pub(super) shutdown_listener: ShutdownListener,
    /// Target that was published last, and why it was refused.
    pub(super) told: Option<(Option<Target>, Option<Fault>)>,
    /// Fault of the last pass for the same target.
    pub(super) tried_with: Option<Fault>,
    /// The control plane changed after this pass had read it.
    pub(super) is_behind: bool,
    pub(super) emitted_late: bool,
    pub(super) emitted_fault: Option<String>,
    /// Logged cause of the last failed read of the control plane.
    pub(super) logged_away: Option<String>,
    pub(super) fault_times: FaultTimes,
    /// Target that a first boot has applied.
    pub(super) provisioned: Option<Target>,
    /// Fault of the host after a seed that was cut short.
    pub(super) unrestored: Receiver<Option<Fault>>,
}

/// State of one pass of the loop.
#[derive(Debug)]
pub(super) struct Pass {
    /// The machine as it was seen at the start of the pass.
    pub(super) observed: Observation,
    /// An update is due although its target is committed.
    pub(super) is_forced: bool,
    /// Observation of the last pass, if a change in the watch is the reason for this one.
    pub(super) last: Option<Last>,
    /// Answers since then.
    pub(super) answers: Answers,
}

/// Continuation after an action.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    /// Another decision, with the answers there are.
    Decide,
    /// Another pass.
    Requeue,
}

impl<C: ControlPlane> Agent<C> {
    /// Puts the parts together. Nothing is read yet.
    pub fn new(
        host: Host,
        journal: Journal,
        mut control: C,
        telemetry: Telemetry,
        signals: ProcessSignals,
        node: &str,
    ) -> Self {
        // A start is no new state.
        let since = journal.settled_at().unwrap_or_else(|| host.clock.now());
        let health = LoopState { node: node.to_owned(), since, ..LoopState::default() };
        Self {
            journal,
            trust: TrustTask::new(control.trust(), node),
            pinning: Pinning::new(control.take_pins(), &host, node),
            host,
            control,
            telemetry,
            monitor: Monitor::default(),
            signals,
            mode: RunMode::Daemon,
            reboots: Reboots::Requested,
            health,
            node_settings: NodeSettings::default(),
            settings: SettingsLoader::default(),
            hinted: None,
            memory: Memory::new(RunMode::Daemon, node),
            prefetching: Prefetching::default(),
            installed: Installed::default(),
            shutdown_listener: ShutdownListener::default(),
            told: None,
            tried_with: None,
            is_behind: false,
            emitted_late: false,
            emitted_fault: None,
            logged_away: None,
            fault_times: FaultTimes::default(),
            provisioned: None,
            unrestored: channel(None).1,
        }
    }

    /// Sets the run mode of the loop and the policy of reboots.
    #[must_use]
    pub fn with(self, mode: RunMode, reboots: Reboots) -> Self {
        let memory = Memory::new(mode, &self.health.node);
        Self { mode, reboots, memory, ..self }
    }

    /// Takes the fault of a host that is not restored after a seed that was cut short.
    #[must_use]
    pub fn with_unrestored(self, unrestored: Receiver<Option<Fault>>) -> Self {
        Self { unrestored, ..self }
    }

    /// Takes the last report of the process before it: that it was done is older than this process, and may be younger than the commit.
    #[must_use]
    pub fn continuing(mut self, last: &NodeReport) -> Self {
        let current = self.journal.current().map(|target| &target.config);
        let is_same =
            last.state == NodeState::Done && current.is_some() && current == last.current_config.as_ref();
        if let Some(since) = Timestamp::read(&last.since).filter(|_| is_same) {
            self.health.since = self.health.since.max(since);
        }
        self
    }

    /// Returns the state beside the record; `apply` shows it to its caller.
    pub fn health(&self) -> &LoopState {
        &self.health
    }

    /// Returns the journal.
    pub fn journal(&self) -> &Journal {
        &self.journal
    }

    /// Returns the observation of the machine that every phase needs; `None` once a signal stops the process.
    pub(super) async fn observe_machine(&mut self) -> Result<Option<Observation>, AgentError> {
        next_root::complete(&self.host.root, &self.host.systemd).await?;
        let Self { host, signals, .. } = self;
        tokio::select! {
            observed = machine(host) => Ok(Some(observed?)),
            () = signals.stopped() => Ok(None),
        }
    }

    /// Returns the observation of the host for a spec, beside that of the machine.
    pub(super) fn observe_for(
        &self,
        spec: &HostSpec,
        machine: Observation,
    ) -> Result<Observation, AgentError> {
        let observed = managed(&self.host, machine, &[spec])?;
        let carried = observed.carried.clone().filter(|_| self.mode != RunMode::FirstBoot);
        Ok(Observation { carried, ..observed })
    }
}
