//! The seed of a SeedGenerator, made beside the updates: decided by `core/`, made as `seed create` makes it.
//!
//! # Decisions
//! 1. The desire is written down first, and that services are about to rest before they do: the API server is one of them. What
//!    became of it is reported when it is back.
//! 2. An object that is deleted ends its seed at once: the work is dropped, which is as a kill for it, and the host is restored.
//! 3. The host is restored before anything is reported of a seed that was cut short.

use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use tokio::sync::watch::Receiver;
use tracing::{info, warn};

use super::super::{AgentError, SeedEnd};
use super::generation_work::{Obstacle, gather, restore};
use super::host::LifecycleHost;
use super::{wait, watch_awaited};
use crate::control::seed_generation::{GenerationLink, SeedCluster};
use crate::decide::stage::StageRetry;
use crate::host::watch::Watch;
use crate::journal::lifecycle::{GenerationJournal, has_generation};
use crate::model::message;
use crate::stateroot::{
    DesiredSeed, GenerationAction, GenerationPhase, SeedGeneration, SeedOrder, next_generation, restored,
};
use crate::update::Fault;

/// Makes the seeds of a cluster.
#[derive(Debug)]
pub struct GenerationWorker<C> {
    host: Rc<LifecycleHost>,
    link: GenerationLink,
    cluster: C,
    journal: Option<GenerationJournal>,
    watch: Option<Watch>,
    retry: StageRetry,
    /// The last cause of a wait that was logged, after the UID of the object that waited.
    logged: Option<(String, String)>,
}

/// Continuation after a pass.
enum PassEnd {
    Requeue,
    Wait(Option<Duration>),
}

impl<C: SeedCluster> GenerationWorker<C> {
    /// Takes the host, where seeds are desired, and their cluster. Nothing is read yet.
    pub fn new(host: LifecycleHost, link: GenerationLink, cluster: C, node: &str) -> Self {
        let retry = StageRetry::new(&format!("{node}/seed"));
        Self { host: Rc::new(host), link, cluster, journal: None, watch: None, retry, logged: None }
    }

    /// Works without end.
    pub async fn run(mut self) {
        loop {
            let end = match Box::pin(self.pass()).await {
                Ok(end) => end,
                Err(error) => {
                    let Fault { message, next, .. } = error.fault();
                    self.log(&format!("{message}. Next: {next}"));
                    PassEnd::Wait(Some(self.retry.fail()))
                }
            };
            if let PassEnd::Wait(delay) = end {
                wait::wait(&mut self.link.desired, &mut self.watch, delay).await;
            }
        }
    }

    async fn pass(&mut self) -> Result<PassEnd, AgentError> {
        let desired = self.link.desired.borrow_and_update().clone();
        let host = Rc::clone(&self.host);
        if self.journal.is_none() {
            if !matches!(desired, DesiredSeed::Of(_)) && !has_generation(&host.root)? {
                self.link.publish(true, None);
                return Ok(PassEnd::Wait(None));
            }
            self.journal = Some(GenerationJournal::open(host.root.clone(), host.fail_points.clone())?);
        }
        let (next, action) = next_generation(self.state().as_ref(), &desired, &self.now());
        self.record(next)?;
        match action {
            GenerationAction::Nothing => {
                self.watch = None;
                Ok(PassEnd::Wait(None))
            }
            GenerationAction::Restore => self.restore(&desired).await,
            GenerationAction::Make(order) => self.make(&order).await,
        }
    }

    /// Restores the host after a seed that was cut short.
    async fn restore(&mut self, desired: &DesiredSeed) -> Result<PassEnd, AgentError> {
        if !restore(&self.host).await? {
            return Ok(PassEnd::Wait(Some(self.retry.fail())));
        }
        self.retry.succeed();
        let next = self.state().and_then(|state| restored(&state, desired, &self.now()));
        self.record(next)?;
        Ok(PassEnd::Requeue)
    }

    async fn make(&mut self, order: &SeedOrder) -> Result<PassEnd, AgentError> {
        let Some(state) = self.state() else { return Ok(PassEnd::Requeue) };
        // Watched first, then read.
        if self.watch.is_none() {
            self.watch = Some(watch_awaited(&self.host.root)?);
        }
        let (host, uid) = (Rc::clone(&self.host), state.desire.uid.clone());
        let gathered = gather(&host, &self.cluster, order);
        let Some(gathered) = unless_gone(&self.link.desired, &uid, Box::pin(gathered)).await else {
            return Ok(PassEnd::Requeue);
        };
        let seed = match gathered {
            Ok(seed) => seed,
            Err(Obstacle::Final(why)) => {
                self.record(Some(state.failed(&why, &self.now())))?;
                return Ok(PassEnd::Requeue);
            }
            Err(Obstacle::Passing(why)) => {
                self.log(&why);
                self.record(Some(state.waiting(&why, &self.now())))?;
                return Ok(PassEnd::Wait(Some(self.retry.fail())));
            }
        };
        self.retry.succeed();
        self.watch = None;
        self.record(Some(state.clone().begun(&self.now())))?;
        info!(MESSAGE_ID = message::STAGE, "Making the seed {} of SeedGenerator seedimage", order.image);
        let made = unless_gone(&self.link.desired, &uid, Box::pin(seed.make(&host))).await;
        let Some(made) = made else {
            info!("SeedGenerator seedimage was deleted: canceled its seed");
            return Ok(PassEnd::Requeue);
        };
        self.conclude(state, order, made?)
    }

    /// Writes down how a seed ended; the host is as it was.
    fn conclude(
        &mut self,
        state: SeedGeneration,
        order: &SeedOrder,
        end: SeedEnd,
    ) -> Result<PassEnd, AgentError> {
        let now = self.now();
        let next = match end {
            SeedEnd::Made(digest) => {
                let pushed = order.image.with_digest(&digest);
                info!(MESSAGE_ID = message::STAGE, "Pushed the seed {pushed} of SeedGenerator seedimage");
                state.completed(&now)
            }
            SeedEnd::Failed(Fault { message, next, .. }) => {
                state.failed(&format!("{message}. Next: {next}"), &now)
            }
        };
        self.record(Some(next))?;
        Ok(PassEnd::Requeue)
    }

    fn state(&self) -> Option<SeedGeneration> {
        self.journal.as_ref().and_then(|journal| journal.current()).cloned()
    }

    fn now(&self) -> String {
        self.host.clock.now().to_string()
    }

    /// Writes the state down, and reports it.
    fn record(&mut self, state: Option<SeedGeneration>) -> Result<(), AgentError> {
        let Some(journal) = &mut self.journal else { return Ok(()) };
        let is_failed = |state: &SeedGeneration| state.phase == GenerationPhase::Failed;
        if let Some(failed) = state.as_ref().filter(|state| is_failed(state))
            && !journal.current().is_some_and(|known| known == failed)
            && let Some(last) = failed.conditions.as_slice().last()
        {
            warn!(MESSAGE_ID = message::STAGE_FAILED, "SeedGenerator seedimage failed: {}", last.message);
        }
        match state.clone() {
            Some(state) => journal.record(state)?,
            None => journal.clear()?,
        }
        self.link.publish(true, state);
        Ok(())
    }

    /// Logs the cause of a wait once for each object.
    fn log(&mut self, why: &str) {
        let uid = self.state().map(|state| state.desire.uid).unwrap_or_default();
        let cause = (uid, why.to_owned());
        if self.logged.as_ref() != Some(&cause) {
            warn!(MESSAGE_ID = message::STAGE_FAILED, "SeedGenerator seedimage waits: {why}");
            self.logged = Some(cause);
        }
    }
}

/// Works until the end, or until the object is gone.
async fn unless_gone<T>(
    desired: &Receiver<DesiredSeed>,
    uid: &str,
    work: impl Future<Output = T>,
) -> Option<T> {
    let mut desired = desired.clone();
    let mut work = pin!(work);
    tokio::select! {
        ended = &mut work => Some(ended),
        gone = desired.wait_for(|desired| desired.is_without(uid)) => match gone {
            Ok(_) => None,
            // Nobody desires anything any more.
            Err(_) => Some(work.await),
        },
    }
}
