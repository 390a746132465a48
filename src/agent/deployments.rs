//! Changes of the deployments that are no batch of an update: the way back, the boot loader's order, and the removal of the
//! previous deployment. The agent reports what they wait for, and hears meanwhile what it can act on.

use tracing::info;

use super::execute::note_wait;
use super::service::judge;
use super::signals::SignalKind;
use super::{Agent, AgentError};
use crate::control::ControlPlane;
use crate::host::HostError;
use crate::host::os::{OsChange, OsProgress};
use crate::report::report;

/// End of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ChangeEnd {
    /// It is done.
    Done,
    /// It waited for another program, and was left for an event.
    Left(Leaving),
}

/// Event for which a wait is left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Leaving {
    Stop,
    Reload,
    Target,
    Drift,
}

impl<C: ControlPlane> Agent<C> {
    /// Changes the deployments. While it waits for another program, it is left for a stop. Nothing depends on the removal of
    /// the previous deployment: it is left for all that an idle node listens to, too.
    pub(super) async fn change_deployments(&mut self, change: OsChange<'_>) -> Result<ChangeEnd, HostError> {
        let awaited = self.health.awaited.take();
        let ended = self.change_meanwhile(change).await;
        (self.health.awaited, self.health.waiting) = (awaited, None);
        if let Ok(ChangeEnd::Left(_)) = ended {
            info!("Stopped waiting for another program: something changed meanwhile");
        }
        ended
    }

    async fn change_meanwhile(&mut self, change: OsChange<'_>) -> Result<ChangeEnd, HostError> {
        let is_optional = change == OsChange::DropRollback;
        let Self { journal, host, control, health, signals, telemetry, trust, monitor, mode, .. } = self;
        let (sender, mut progress) = tokio::sync::watch::channel(None::<OsProgress>);
        let send_step = |step: OsProgress| drop(sender.send_replace(Some(step)));
        let work = host.change_deployments(change, &send_step);
        tokio::pin!(work);
        let mut followed = is_optional;
        let mut waits = false;
        loop {
            let signal = async {
                if is_optional {
                    return signals.recv().await;
                }
                signals.stopped().await;
                SignalKind::Stop
            };
            tokio::select! {
                // The work is polled until it ends. Only a wait for others is left: nothing of ours is cut short.
                done = &mut work => return done.map(|()| ChangeEnd::Done),
                // Cancel-safe, each: an event that was not returned comes again.
                signal = signal, if waits => {
                    let is_reload = signal == SignalKind::Reload;
                    return Ok(ChangeEnd::Left(if is_reload { Leaving::Reload } else { Leaving::Stop }));
                }
                changed = control.changed(), if waits && followed => {
                    // A control plane that can't be followed now is looked at after the wait.
                    followed = changed.is_ok();
                    let desired = judge(control.desired().await, &mut health.refused, *mode).flatten();
                    if desired.is_some() && desired != health.desired {
                        return Ok(ChangeEnd::Left(Leaving::Target));
                    }
                    let report = report(journal.record(), health);
                    telemetry.progress(&report);
                    // The due report; the change may have been the reason for it.
                    drop(control.publish(&report).await);
                }
                () = monitor.host_changed(), if waits && is_optional => {
                    return Ok(ChangeEnd::Left(Leaving::Drift));
                }
                // It only waits. The work has limits of its own, so waiting for it is a sign of life.
                () = telemetry.notify.idle() => {}
                () = trust.changed() => trust.reconcile_meanwhile(host, health),
                // The last value stays.
                changed = progress.changed() => if changed.is_ok() {
                    let step = progress.borrow_and_update().clone();
                    let what = step.as_ref().and_then(OsProgress::waits_for);
                    waits = what.is_some();
                    // An idle node is done, whatever is awaited here.
                    note_wait(if is_optional { &mut health.awaited } else { &mut health.waiting }, what);
                    let report = report(journal.record(), health);
                    telemetry.progress(&report);
                    // A report that can't be published now is published after the change.
                    drop(control.publish(&report).await);
                }
            }
        }
    }

    /// Reads the settings again if a wait was left for that.
    pub(super) fn reload_after(&mut self, event: Leaving) -> Result<(), AgentError> {
        if event == Leaving::Reload { self.reload() } else { Ok(()) }
    }
}
