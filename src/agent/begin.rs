//! From a desired target to a record: nothing on the host is touched here but the agent's own state.

use std::time::Duration;

use tokio::time::{Instant, sleep_until};
use tracing::{info, warn};

use super::fields::{image, update_line};
use super::rehearsal::rehearsed;
use super::service::judge;
use super::{Agent, AgentError, RunMode};
use crate::apply::record_memberships;
use crate::control::ControlPlane;
use crate::journal::{Decoded, Stored, mcd, origin};
use crate::model::message;
use crate::model::text;
use crate::model::{Facts, HostSpec, MachineConfig, NotApplied, Observation, Target, Timestamp, UpdateId};
use crate::observe::{ObserveError, facts, managed};
use crate::plan::listing::listed;
use crate::plan::reconcilable::FORCE_FILE;
use crate::plan::start::{BlockingDrift, Start, blocking_drift};
use crate::plan::{Irreconcilable, Plan, explain, not_held};
use crate::report::{Event, report};
use crate::telemetry::metrics::SwitchResult;
use crate::update::Record;
use crate::update::ending::ended_by;

/// Most remarks with a line of their own in the log.
const LINES: usize = 20;

/// Most characters of the fields that a line names.
const SHOWN_FIELDS: usize = 1000;

/// Time between two looks at the control plane while a pass waits for a registry.
const BETWEEN_LOOKS: Duration = Duration::from_secs(1);

impl<C: ControlPlane> Agent<C> {
    /// Imports a node that MCD managed: MCD's current config becomes the agent's.
    pub(super) fn import_mcd_state(&mut self) -> Result<(), AgentError> {
        if self.journal.current().is_some() || self.journal.record().is_some() {
            return Ok(());
        }
        let Some(stored) = mcd::read(&self.host.root)? else { return Ok(()) };
        origin::check_writable(&self.host.root)?;
        let unread: Vec<String> = stored.known_spec().opaque().take(LINES).map(ToString::to_string).collect();
        info!(
            MESSAGE_ID = message::IMPORTED,
            MCA_CONFIG = %stored.target.config,
            MCA_IMAGE = image(&stored.target),
            "Imported the state of machine-config-daemon: {} is committed", stored.target.config
        );
        for remark in unread {
            warn!("Not taken over from machine-config-daemon: {remark}");
        }
        self.journal.adopt(stored, self.host.clock.now())?;
        Ok(())
    }

    /// Finds out which directories and links of a config that was applied without them the host does not have.
    pub(super) fn settle_unapplied(&mut self, machine: &Observation) -> Result<(), AgentError> {
        let host = &self.host;
        self.journal.settle_unapplied(|spec| {
            let unapplied = not_held(spec, &managed(host, machine.clone(), &[spec])?);
            if !unapplied.is_empty() {
                info!(
                    "Directories and links of {} that are not as listed on this host: {}; each is brought in with the \
                     next change of its entry",
                    spec.name,
                    unapplied.len()
                );
            }
            Ok::<_, AgentError>(unapplied)
        })
    }

    /// Logs the record of an earlier start, so that the journal of this boot alone explains the node's state.
    pub(super) fn log_record(&self) {
        let Some(record) = self.journal.record() else { return };
        let (id, config) = (&record.id, &record.to.config);
        let phase = if record.is_undone() { "undone" } else { record.phase.as_str() };
        match &record.fault {
            None => {
                update_line!(
                    info,
                    Some(record),
                    MESSAGE_ID = message::RESUMED,
                    MCA_PHASE = phase,
                    "Resuming update {id} to {config} in phase {phase}"
                );
            }
            Some(fault) => update_line!(
                warn,
                Some(record),
                MESSAGE_ID = message::FAULT,
                MCA_PHASE = phase,
                MCA_FAULT = fault.reason,
                MCA_CAUSE = fault.message,
                MCA_NEXT = fault.next,
                MCA_ENDED_BY = ended_by(fault, Some(record), self.mode.is_service()),
                "Update {id} to {config} failed before this start ({phase}): {fault}"
            ),
        }
    }

    /// Plans the way to the desired target and writes it down.
    pub(super) async fn begin(&mut self) -> Result<(), AgentError> {
        if self.journal.record().is_some() {
            // The record holds a node that came up wrong; another target is desired now.
            self.journal.archive(crate::journal::Outcome::Faulted, self.host.clock.now())?;
        }
        let Some(target) = self.health.desired.clone() else { return Ok(()) };
        // Found before anything is touched: an update that can't be committed is not begun.
        origin::check_commit(&self.host.root)?;
        origin::check_writable(&self.host.root)?;
        let (machine_config, policy) = self.control.config_and_policy(&target.config).await?;
        // The control plane's input is not the agent's own state: an error in it waits for a correction.
        let desired = stored(machine_config, target, self.host.clock.now());
        // What an earlier agent committed may be forced anew.
        let is_current = self.journal.current() == Some(&desired.target);
        let mut to = if is_current { desired.decode() } else { desired.decode_target() }?;
        let target = to.target().clone();
        let policy = policy?;
        let forced = self.is_forced()?;
        let start = Start { recovering: self.journal.is_recovering()?, forced };
        let mut origin = start.origin(self.journal.origin_spec()?)?;
        to.leave_unapplied(start, &origin);
        let Some(facts) = self.facts_for(&origin, to.spec()).await? else { return Ok(()) };
        to.carry_over(start, &mut origin, &facts.observed);
        if forced {
            info!(
                "Forced by {FORCE_FILE}: writing every difference without comparing the host with its current config"
            );
        }
        let from = start.from(&origin, to.spec(), &facts.observed);
        let planned = start.plan(&origin, &from, to.spec(), &facts, &policy);
        let planned = rehearsed(&self.host, (&from, to.spec()), &facts, planned).await?;
        let plan = self.planned(planned, &from, &to, &facts)?;
        self.health.drift.clear();
        self.journal.remember_kargs(&origin, to.spec(), &facts.observed)?;
        record_memberships(&self.host, &origin, to.spec(), start)?;
        if plan.is_empty() {
            if self.mode == RunMode::FirstBoot {
                // A plan without steps is not logged, and a first boot ends without a look at the host at rest.
                self.note_not_applied(plan.not_applied().to_vec());
                self.provisioned = Some(target);
                return Ok(());
            }
            log_warnings(&plan);
            self.note_not_applied(plan.not_applied().to_vec());
            return self.take_over(&origin, to);
        }
        let mut record = new_record(plan, &facts.observed, self.host.clock.now())?;
        record.tell_contents(self.journal.current(), &target);
        record.forced = forced || self.journal.current() == Some(&target);
        record.provisioning = self.mode == RunMode::FirstBoot;
        record.attempts = self.journal.wrong_boots(&target)?;
        log_planned(&record, &target);
        log_left(&origin);
        let os_changes = Event::for_os_changes(&record.plan);
        drop((origin, from, facts));
        self.unwatch();
        self.journal.begin(record, to)?;
        self.answered();
        if let Some(event) = os_changes {
            self.control.emit(&event).await;
        }
        Ok(())
    }

    /// Looks at the host, and at the image, for a plan; `None` once a signal stops the process, or another target is desired.
    async fn facts_for(&mut self, origin: &HostSpec, to: &HostSpec) -> Result<Option<Facts>, AgentError> {
        if let Some(image) = to.effective_image() {
            self.publish_work(format!("inspects image {image} for {}", to.name)).await;
        }
        let Some(found) = self.facts_meanwhile(origin, to).await else { return Ok(None) };
        let mut facts = found.inspect_err(|error| {
            if matches!(error, ObserveError::Image { .. }) {
                self.telemetry.metrics.switched(SwitchResult::Failed);
            }
        })?;
        if self.mode == RunMode::FirstBoot {
            // Its config says nothing of files.
            facts.observed.carried = None;
        }
        Ok(Some(facts))
    }

    async fn facts_meanwhile(
        &mut self,
        origin: &HostSpec,
        to: &HostSpec,
    ) -> Option<Result<Facts, ObserveError>> {
        let Self { host, signals, control, health, tried_with, is_behind, mode, .. } = self;
        let found = facts(host, origin, to);
        tokio::pin!(found);
        // Only the registry takes long.
        let mut followed = to.effective_image().is_some();
        let mut paused_until = None;
        loop {
            // A refused eviction of an update that was given up is a change at each call, once it is due.
            let pause = paused_until.unwrap_or_else(Instant::now);
            tokio::select! {
                found = &mut found => return Some(found),
                () = signals.stopped() => return None,
                () = sleep_until(pause), if paused_until.is_some() => paused_until = None,
                // Cancel-safe: an event that was not returned comes again.
                changed = control.changed(), if followed && paused_until.is_none() => {
                    // One that can't be followed now is looked at after this pass.
                    followed = changed.is_ok();
                    paused_until = Some(Instant::now() + BETWEEN_LOOKS);
                    *is_behind = true;
                    let desired = judge(control.desired().await, &mut health.refused, *mode).flatten();
                    if health.refused.is_some() || (desired.is_some() && desired != health.desired) {
                        info!(MCA_CONFIG = %to.name, "Left the preparation for {}: the target changed", to.name);
                        return None;
                    }
                    // The due report; the change may have been the reason for it.
                    let mut shown = health.clone();
                    shown.fault = shown.fault.or_else(|| tried_with.clone());
                    drop(control.publish(&report(None, &shown)).await);
                }
            }
        }
    }

    /// Commits a target that needs no step.
    fn take_over(&mut self, origin: &HostSpec, to: Decoded) -> Result<(), AgentError> {
        let desired = to.spec().clone();
        let stored = self.journal.keep_originals(origin, &desired, to.into_stored())?;
        self.adopt(stored)?;
        Ok(self.journal.drop_originals(origin, &desired)?)
    }

    /// Refuses to begin. When what the host lacks is repaired, or its drift, the next pass begins after all.
    fn planned(
        &mut self,
        planned: Result<Plan, Irreconcilable>,
        from: &HostSpec,
        to: &Decoded,
        facts: &Facts,
    ) -> Result<Plan, AgentError> {
        let plan = match planned {
            Err(refused) if refused.is_of_host => {
                self.watch_over(to.spec())?;
                return Err(refused.into());
            }
            planned => planned?,
        };
        if !from.is_unmanaged() {
            self.watch_over(from)?;
        }
        match blocking_drift(from, to.spec(), &facts.observed, &plan) {
            None => Ok(plan),
            Some(BlockingDrift { config, differences }) => {
                let config = config.to_string();
                Err(AgentError::Drifted { config, differences: listed(&differences) })
            }
        }
    }

    /// Returns true if an administrator forces the update, as with MCD: a file in `/run`, which the reboot takes away.
    pub(super) fn is_forced(&self) -> Result<bool, AgentError> {
        Ok(self.host.root.exists(FORCE_FILE)?)
    }

    fn adopt(&mut self, stored: Stored) -> Result<(), AgentError> {
        let now = self.host.clock.now();
        info!(
            MESSAGE_ID = message::ADOPTED,
            MCA_CONFIG = %stored.target.config,
            MCA_IMAGE = image(&stored.target),
            "{}", adopted(&stored.target, &self.health.not_applied)
        );
        self.journal.adopt(stored, now)?;
        self.health.since = now;
        self.memory.backoff.reset();
        Ok(())
    }
}

/// Returns the line of a target that needed no step. A host that does not get all of it is not in sync.
fn adopted(target: &Target, not_applied: &[NotApplied]) -> String {
    let config = &target.config;
    if not_applied.is_empty() {
        return format!("Host is in sync with {config}; nothing to do");
    }
    let fields: Vec<_> = not_applied.iter().map(|one| one.field.as_str()).collect();
    let named = text::listed(&fields, SHOWN_FIELDS);
    format!("{config} needs no step, but this host does not get all of it. Not applied: {named}")
}

/// Begins the record of a plan, with the OS that runs.
fn new_record(plan: Plan, observed: &Observation, now: Timestamp) -> Result<Record, AgentError> {
    let booted = observed.os.booted();
    let deployment = booted.map(|os| os.deployment.clone());
    let mut record = Record::new(update_id(now)?, plan, observed.boot_id.clone(), deployment, now);
    record.origin_image = booted.and_then(|os| os.image.clone());
    Ok(record)
}

/// Logs the warnings of a plan without steps, which is not logged itself.
fn log_warnings(plan: &Plan) {
    for warning in plan.warnings() {
        warn!("{}: {}", warning.field, warning.message);
    }
}

fn log_planned(record: &Record, target: &Target) {
    update_line!(
        info,
        Some(record),
        MESSAGE_ID = message::PHASE,
        MCA_PHASE = "planned",
        "Update {} to {} is planned:\n{}",
        record.id,
        target.config,
        explain::text(&record.plan).trim_end()
    );
}

/// Takes the config as it was read now: where the source tells contents, it may have changed since.
fn stored(machine_config: MachineConfig, target: Target, now: Timestamp) -> Stored {
    let is_told = target.content.is_some();
    let stored = Stored::new(machine_config, target.image, now);
    if is_told { stored.identified() } else { stored }
}

/// Logs what the update leaves on the host, as nobody knows what it was.
fn log_left(origin: &HostSpec) {
    for remark in origin.opaque().take(LINES) {
        info!("Left as it is, of {}: {remark}", origin.name);
    }
}

/// An id that sorts by time: `20261120-204405-123456`.
pub fn update_id(now: Timestamp) -> Result<UpdateId, AgentError> {
    let text = now.to_string();
    let digits: String = text.chars().filter(char::is_ascii_digit).collect();
    let (date, time) = digits.split_at_checked(8).unwrap_or((&digits, ""));
    let id = UpdateId::new(format!("{date}-{time}-{:06}", now.micros() % 1_000_000));
    Ok(id.map_err(crate::journal::JournalError::from)?)
}
