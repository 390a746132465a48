//! The trial of a new deployment, and the way back.
//!
//! After an update that brought the node another deployment the host is not only compared with the spec: units have to be
//! active, and the administrator's checks have to end well, within the time of the settings. A deployment that does not
//! prove itself is left for the previous one, which is whole; the update's files are undone there, and the target is
//! held until it changes.
//!
//! # Decisions
//! 1. The time is counted by the monotonic clock, from a start in the record: a restart of the agent continues with
//!    it, another boot begins again. One whole attempt is made even when none is left.
//! 2. Each attempt begins at the units again: an active one may have failed since.
//! 3. A target that changes meanwhile waits, as during the reboot: the node continues from a deployment that is known.
//! 4. A node that is held with the fault continues when its settings are read again: a person does so after a repair
//!    in place.
//! 5. A node whose files are wrong in its own new deployment, for the last time, goes back as well (`resume::recovery_transition`).

use std::collections::BTreeSet;
use std::time::Duration;

use tokio::time::Instant;
use tracing::info;

use super::deployments::ChangeEnd;
use super::fields::update_line;
use super::parts::{Next, Pass};
use super::signals::SignalKind;
use super::{Agent, AgentError};
use crate::control::ControlPlane;
use crate::decide::trial::{Attempts, check_limit};
use crate::host::Host;
use crate::host::health::{self, HealthChecks};
use crate::host::os::OsChange;
use crate::model::node_settings::HealthRules;
use crate::model::text::chain;
use crate::model::{FaultClass, Observation, UnitName, message};
use crate::report::report;
use crate::update::ending::counts_as_fallback;
use crate::update::record::Trial;
use crate::update::resume::{is_unproven, not_fallen_back, unproven};
use crate::update::{Record, Transition};

/// Messages of the failed health checks.
pub(super) type FailedChecks = Vec<String>;

/// Result of the attempts.
enum TrialResult {
    Healthy,
    Failed(FailedChecks),
    Signal(SignalKind),
}

impl<C: ControlPlane> Agent<C> {
    /// Runs the health trial of the new deployment.
    pub(super) async fn run_trial(&mut self, pass: &mut Pass) -> Result<Next, AgentError> {
        let Some(record) = self.journal.record().cloned() else { return Ok(Next::Requeue) };
        let observed = &pass.observed;
        let rules = self.node_settings.health.clone();
        let demands = match HealthChecks::load(&self.host.root, rules.units.as_ref()) {
            Ok(list) if list.is_empty() => {
                pass.answers.trial = Some(Ok(()));
                return Ok(Next::Decide);
            }
            Ok(list) => {
                if !list.ignored.is_empty() {
                    info!("Ignored health checks that are not executable files: {}", list.ignored.join(", "));
                }
                named(&list)
            }
            // Each attempt reads it again.
            Err(error) => chain(&error),
        };
        let spent = self.spent(&record, observed, &rules, &demands)?;
        let ended = self.watch_trial(&rules, rules.within.saturating_sub(spent)).await?;
        if let TrialResult::Signal(signal) = ended {
            if signal == SignalKind::Reload {
                self.reload()?;
            }
            return Ok(Next::Requeue);
        }
        self.journal.note(|record| record.waiting = None)?;
        let config = &record.to.config;
        let TrialResult::Failed(ill) = ended else {
            update_line!(
                info,
                Some(&record),
                MESSAGE_ID = message::TRIAL_PASSED,
                "Health trial of the new deployment of {config} passed: {demands}"
            );
            // A unit or a check may have written to a path of the config.
            let Some(machine) = self.observe_machine().await? else { return Ok(Next::Requeue) };
            pass.answers.differences = Some(self.compare(machine)?);
            pass.answers.trial = Some(Ok(()));
            return Ok(Next::Decide);
        };
        pass.answers.trial = Some(Err(unproven(&record, observed, &ill, &rules)));
        update_line!(
            warn,
            Some(&record),
            MESSAGE_ID = message::TRIAL_FAILED,
            "Health trial of the new deployment of {config} failed"
        );
        Ok(Next::Decide)
    }

    /// Returns the duration of the trial in this boot; a new trial is recorded and reported.
    fn spent(
        &mut self,
        record: &Record,
        observed: &Observation,
        rules: &HealthRules,
        demands: &str,
    ) -> Result<Duration, AgentError> {
        let now = self.host.clock.monotonic_micros();
        if let Some(trial) = record.trial.as_ref().filter(|trial| trial.boot_id == observed.boot_id) {
            return Ok(Duration::from_micros(now.saturating_sub(trial.since)));
        }
        let trial = Trial { boot_id: observed.boot_id.clone(), since: now };
        self.journal.note(|record| record.trial = Some(trial))?;
        let (seconds, config) = (rules.within.as_secs(), &record.to.config);
        update_line!(
            info,
            Some(record),
            MESSAGE_ID = message::TRIAL_STARTED,
            "Health trial of the new deployment of {config} started: {seconds} s for {demands}"
        );
        Ok(Duration::ZERO)
    }

    /// Makes attempts until one succeeds or the time is over, and reports its waits meanwhile.
    async fn watch_trial(&mut self, rules: &HealthRules, left: Duration) -> Result<TrialResult, AgentError> {
        let Self { host, journal, control, health, signals, telemetry, trust, .. } = self;
        let (sender, mut waits) = tokio::sync::watch::channel(None::<String>);
        let on_wait = |what: String| {
            sender.send_if_modified(|sent| sent.replace(what.clone()).as_ref() != Some(&what));
        };
        let retry = Attempts::new(&health.node);
        let work = attempts(host, rules.units.as_ref(), Instant::now() + left, retry, &on_wait);
        tokio::pin!(work);
        loop {
            tokio::select! {
                // The same future is polled until it ends, or left for a signal: a check that runs then is begun again.
                ended = &mut work => return Ok(ended.map_or_else(TrialResult::Failed, |()| TrialResult::Healthy)),
                // Cancel-safe: an unread signal stays in its pipe.
                signal = signals.recv() => return Ok(TrialResult::Signal(signal)),
                // Cancel-safe: a change that was not returned comes again.
                () = trust.changed() => trust.reconcile_meanwhile(host, health),
                // Cancel-safe: it only waits. The trial has an end of its own, so waiting for it is a sign of life.
                () = telemetry.notify.idle() => {}
                // Cancel-safe: the last value stays.
                changed = waits.changed() => if changed.is_ok() {
                    let waiting = waits.borrow_and_update().clone();
                    journal.note(|record| record.waiting = waiting)?;
                    let report = report(journal.record(), health);
                    telemetry.progress(&report);
                    // A report that can't be published now is published after the trial.
                    drop(control.publish(&report).await);
                }
            }
        }
    }

    /// Makes the previous deployment the next boot's. A passing error is tried a few times, counted in the record.
    pub(super) async fn fall_back(&mut self, pass: &mut Pass) -> Result<Next, AgentError> {
        let Some(record) = self.journal.record().cloned() else { return Ok(Next::Requeue) };
        let Some(origin) = &record.origin else { return Ok(Next::Requeue) };
        match self.change_deployments(OsChange::SetDefault(origin)).await {
            Ok(ChangeEnd::Left(_)) => return Ok(Next::Requeue),
            Ok(ChangeEnd::Done) => {
                self.host.fail_points.hit("fallen-back");
                self.end_count();
                pass.answers.has_fallen_back = true;
            }
            Err(error) if error.class() == FaultClass::Retry => {
                update_line!(
                    warn,
                    Some(&record),
                    MESSAGE_ID = message::FALL_BACK_FAILED,
                    MCA_FAULT = error.reason(),
                    "Failed to make {origin} the default deployment: {}",
                    chain(&error)
                );
                self.journal.note(|record| {
                    record.fallbacks += u32::from(counts_as_fallback(error.reason()));
                    record.waiting = Some(format!("another try of falling back: {}", chain(&error)));
                })?;
                self.memory.later(self.host.clock.monotonic());
                return Ok(Next::Requeue);
            }
            Err(error) => pass.answers.failed = Some(not_fallen_back(&record, &chain(&error))),
        }
        Ok(Next::Decide)
    }

    /// Undoes the update's files in the deployment that the node has fallen back to.
    pub(super) fn undo_after_fallback(&mut self) -> Result<(), AgentError> {
        info!("Node booted its previous deployment; undoing the update there");
        self.step(&Transition::RollBack)
    }

    /// Restarts the trial of a deployment that is held for its health, at a person's request.
    pub(super) fn restart_trial(&mut self) -> Result<(), AgentError> {
        if !self.journal.record().is_some_and(is_unproven) {
            return Ok(());
        }
        self.journal.note(|record| {
            record.fault = None;
            record.trial = None;
            record.fallbacks = 0;
        })?;
        Ok(())
    }
}

/// Makes attempts until one succeeds, or no time is left after one.
pub(super) async fn attempts(
    host: &Host,
    units: Option<&BTreeSet<UnitName>>,
    deadline: Instant,
    mut retry: Attempts,
    on_wait: &dyn Fn(String),
) -> Result<(), FailedChecks> {
    let mut first = true;
    loop {
        // Later, the last failure is reported until the next attempt has ended.
        let begun = |check: String| {
            if first {
                on_wait(check);
            }
        };
        let Err(ill) = attempt(host, units, deadline, on_wait, &begun).await else { return Ok(()) };
        first = false;
        let left = deadline.saturating_duration_since(Instant::now());
        let Some(wait) = retry.next_wait(left) else { return Err(ill) };
        on_wait(ill.join("; "));
        tokio::time::sleep(wait).await;
        if Instant::now() >= deadline {
            return Err(ill);
        }
    }
}

/// Makes one attempt: the units first, then the checks, up to the first that fails.
async fn attempt(
    host: &Host,
    units: Option<&BTreeSet<UnitName>>,
    deadline: Instant,
    on_wait: &dyn Fn(String),
    begun: &dyn Fn(String),
) -> Result<(), FailedChecks> {
    let left = || deadline.saturating_duration_since(Instant::now());
    let broken = |what: &str, error: &dyn std::error::Error| vec![format!("{what}: {}", chain(error))];
    let list = HealthChecks::load(&host.root, units).map_err(|error| broken("the health checks", &error))?;
    let down = host.systemd.active(&list.units, left(), on_wait).await;
    let down = down.map_err(|error| broken("the states of units", &error))?;
    if !down.is_empty() {
        return Err(down);
    }
    for name in &list.checks {
        let what = format!("health check {name}");
        begun(what.clone());
        match health::run(&host.root, &host.systemd, name, check_limit(left())).await {
            Ok(None) => {}
            Ok(Some(how)) => return Err(vec![format!("{what}: {how}")]),
            Err(error) => return Err(broken(&what, &error)),
        }
    }
    Ok(())
}

/// Lists the health checks.
fn named(list: &HealthChecks) -> String {
    let units = list.units.iter().map(ToString::to_string);
    units.chain(list.checks.iter().map(|name| format!("health check {name}"))).collect::<Vec<_>>().join(", ")
}
