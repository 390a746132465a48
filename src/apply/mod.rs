//! Carrying out: one journaled batch, or one undo step, becomes an effect.
//!
//! Imports `model`, `plan`, `journal` and `host`. [`apply`] is the one runner: it logs and times each step; the steps
//! themselves never log. Invariants: every step may be repeated and finds its own work done; the originals of a batch
//! were saved before; nothing is decided here.

mod error;
mod files;
mod os;
mod seed;
mod services;
mod single_step;
mod stateroot;
#[cfg(test)]
mod tests;
mod undo;
mod units;
mod users;

use std::time::Instant;

use crate::host::{Host, OsProgress};
use crate::journal::{Intent, Numbers, Work};
use crate::model::message;
use crate::model::text::counted;
use crate::plan::{Batch, Step};

pub use error::ApplyError;
pub use seed::{SeedHost, SeedWork, apply_seed, restore_seed_host};
pub use stateroot::apply_stateroot;

/// Carries out the intent's work. See the module's invariants.
pub async fn apply(
    intent: &Intent<'_>,
    host: &Host,
    progress: &dyn Fn(OsProgress),
) -> Result<(), ApplyError> {
    host.fail_points.hit("begin");
    let done = match intent.work() {
        Work::Apply { batch, steps } => apply_batch(intent, host, batch, steps, progress).await,
        Work::Undo { undo, steps } => undo::apply_batch(intent, host, undo, steps).await,
    };
    host.fail_points.hit("end");
    done
}

async fn apply_batch(
    intent: &Intent<'_>,
    host: &Host,
    batch: Batch,
    steps: &[Step],
    progress: &dyn Fn(OsProgress),
) -> Result<(), ApplyError> {
    match batch {
        Batch::Os => together(intent, steps, "", os::apply_batch(host, intent.to(), steps, progress)).await,
        Batch::Files => together(intent, steps, "", async { files::apply_batch(intent, host, steps) }).await,
        Batch::Users => together(intent, steps, "", async { users::apply_batch(intent, host, steps) }).await,
        Batch::Links => together(intent, steps, "", units::apply_batch(intent, host, steps)).await,
        Batch::Services => {
            for (index, step) in steps.iter().enumerate() {
                let place = ApplyContext::new(intent, index, steps);
                // A service may take minutes to restart: each begun is a sign of progress.
                progress(OsProgress { text: step.op.target(), percent: None });
                run_step(step, place, services::apply_batch(host, step)).await?;
                host.fail_points.hit("service");
            }
            Ok(())
        }
    }
}

/// A batch of more steps than this is one line at its start and one at its end for people; its steps are there for
/// readers at debug level. Eight: as many as a screen still shows beside the plan.
const MAX_STEPS_LOGGED: usize = 8;

/// Position of a step in its plan, and its reporting.
#[derive(Debug, Clone, Copy)]
struct ApplyContext<'a> {
    intent: &'a Intent<'a>,
    number: usize,
    of: usize,
    each: bool,
}

impl<'a> ApplyContext<'a> {
    fn new(intent: &'a Intent<'a>, index: usize, steps: &[Step]) -> Self {
        let Numbers { before, of } = intent.numbers();
        Self { intent, number: before + index + 1, of, each: steps.len() <= MAX_STEPS_LOGGED }
    }
}

/// Logs a line with the fields of all lines of an update.
macro_rules! line {
    ($level:ident, $intent:expr, $($line:tt)+) => {
        tracing::$level!(
            MCA_UPDATE = %$intent.update(),
            MCA_CONFIG = %$intent.to().name,
            MCA_IMAGE = $intent.to().image.as_ref().map(tracing::field::display),
            $($line)+
        )
    };
}

/// Logs a line for people, or at debug level.
macro_rules! logged {
    ($place:expr, $($line:tt)+) => {
        if $place.each { line!(info, $place.intent, $($line)+) } else { line!(debug, $place.intent, $($line)+) }
    };
}

/// Runs steps that are carried out side by side, and logs them.
async fn together(
    intent: &Intent<'_>,
    steps: &[Step],
    prefix: &str,
    work: impl Future<Output = Result<(), ApplyError>>,
) -> Result<(), ApplyError> {
    let places =
        || steps.iter().enumerate().map(|(index, step)| (step, ApplyContext::new(intent, index, steps)));
    for (step, place) in places() {
        started(step, place, prefix);
    }
    let many = steps.len() > MAX_STEPS_LOGGED;
    if many {
        batch_started(intent, steps, prefix);
    }
    let since = Instant::now();
    let done = work.await;
    for (step, place) in places() {
        ended(step, place, prefix, since, done.as_ref().err());
    }
    if many {
        batch_ended(intent, steps, prefix, since, done.as_ref().err());
    }
    done
}

/// Runs one step and logs it.
async fn run_step(
    step: &Step,
    place: ApplyContext<'_>,
    work: impl Future<Output = Result<(), ApplyError>>,
) -> Result<(), ApplyError> {
    started(step, place, "");
    let since = Instant::now();
    let done = work.await;
    ended(step, place, "", since, done.as_ref().err());
    done
}

fn started(step: &Step, place: ApplyContext<'_>, prefix: &str) {
    let ApplyContext { number, of, .. } = place;
    let (op, on) = (step.op.as_str(), step.op.target());
    logged!(
        place,
        MESSAGE_ID = message::STEP_STARTED,
        MCA_STEP = op,
        MCA_TARGET = on,
        step = number,
        of,
        "Step {number} of {of}: {prefix}{step}"
    );
}

fn ended(step: &Step, place: ApplyContext<'_>, prefix: &str, since: Instant, error: Option<&ApplyError>) {
    let ApplyContext { number, of, each, .. } = place;
    let (op, on) = (step.op.as_str(), step.op.target());
    let micros = micros(since);
    match error {
        None => logged!(
            place,
            MESSAGE_ID = message::STEP_DONE,
            MCA_STEP = op,
            MCA_TARGET = on,
            MCA_DURATION_USEC = micros,
            step = number,
            of,
            "Step {number} of {of}: {prefix}{step}: done in {} ms",
            micros / 1000
        ),
        // A fault of a batch of many is logged once, with the batch.
        Some(_) if !each => {
            line!(
                debug,
                place.intent,
                MCA_STEP = op,
                MCA_TARGET = on,
                "Step {number} of {of}: {prefix}{step}: not done"
            );
        }
        Some(error) => line!(
            error,
            place.intent,
            MESSAGE_ID = message::STEP_FAILED,
            MCA_STEP = op,
            MCA_TARGET = on,
            MCA_DURATION_USEC = micros,
            MCA_FAULT = error.reason(),
            step = number,
            of,
            "Step {number} of {of}: {prefix}{step}: not done: {error}"
        ),
    }
}

/// Logs a path that is not restored: it is in directories that another user can change.
fn left_as_it_is(intent: &Intent<'_>, path: &str, obstacle: &crate::host::HostError) {
    line!(
        warn,
        intent,
        MESSAGE_ID = message::NOT_RESTORED,
        MCA_TARGET = path,
        MCA_FAULT = obstacle.reason(),
        "{path} is left as it is: {obstacle}"
    );
}

fn batch_started(intent: &Intent<'_>, steps: &[Step], prefix: &str) {
    let (batch, on) = (batch_word(steps), counted(steps.len(), "step"));
    line!(
        info,
        intent,
        MESSAGE_ID = message::STEP_STARTED,
        MCA_STEP = batch,
        MCA_TARGET = on,
        "{prefix}{batch}: {on} begun"
    );
}

fn batch_ended(
    intent: &Intent<'_>,
    steps: &[Step],
    prefix: &str,
    since: Instant,
    error: Option<&ApplyError>,
) {
    let (batch, on, micros) = (batch_word(steps), counted(steps.len(), "step"), micros(since));
    match error {
        None => line!(
            info,
            intent,
            MESSAGE_ID = message::STEP_DONE,
            MCA_STEP = batch,
            MCA_TARGET = on,
            MCA_DURATION_USEC = micros,
            "{prefix}{batch}: {on} done in {} ms",
            micros / 1000
        ),
        Some(error) => line!(
            error,
            intent,
            MESSAGE_ID = message::STEP_FAILED,
            MCA_STEP = batch,
            MCA_TARGET = on,
            MCA_DURATION_USEC = micros,
            MCA_FAULT = error.reason(),
            "{prefix}{batch}: {on} not done: {error}"
        ),
    }
}

fn batch_word(steps: &[Step]) -> &'static str {
    match steps.first().map(|step| step.op.batch()) {
        Some(Batch::Os) => "OS",
        Some(Batch::Files) => "files",
        Some(Batch::Users) => "users",
        Some(Batch::Links) => "unit links",
        Some(Batch::Services) => "services",
        None => "nothing",
    }
}

fn micros(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_micros()).unwrap_or(u64::MAX)
}
