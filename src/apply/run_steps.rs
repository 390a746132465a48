//! Runs steps, logs and times them.

use std::time::Instant;

use super::error::ApplyError;
use crate::host::keys::Moved;
use crate::journal::{Intent, Numbers};
use crate::model::text::{chain, counted};
use crate::model::{UserName, message};
use crate::plan::{Batch, Step};

/// A batch of more steps than this is one line at its start and one at its end for people; its steps are there for
/// readers at debug level. Eight: as many as a screen still shows beside the plan.
const MAX_STEPS_LOGGED: usize = 8;

/// Position of a step in its plan, and its reporting.
#[derive(Debug, Clone, Copy)]
pub(super) struct ApplyContext<'a> {
    intent: &'a Intent<'a>,
    number: usize,
    of: usize,
    each: bool,
}

impl<'a> ApplyContext<'a> {
    pub(super) fn new(intent: &'a Intent<'a>, index: usize, steps: &[Step]) -> Self {
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
pub(super) async fn together(
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
    let failed = done.as_ref().err().and_then(|error| steps.iter().find(|step| error.is_of(step)));
    for (step, place) in places() {
        match failed {
            Some(failed) if failed != step => held_up(step, place, prefix, failed),
            Some(_) | None => ended(step, place, prefix, since, done.as_ref().err()),
        }
    }
    if many {
        batch_ended(intent, steps, prefix, since, done.as_ref().err());
    }
    done
}

/// Runs one step and logs it.
pub(super) async fn run_step(
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
            "Step {number} of {of}: {prefix}{step}: not done: {}",
            chain(error)
        ),
    }
}

/// Logs a step of a batch in which another one failed: they are taken back together.
fn held_up(step: &Step, place: ApplyContext<'_>, prefix: &str, failed: &Step) {
    let ApplyContext { number, of, .. } = place;
    let (op, on) = (step.op.as_str(), step.op.target());
    logged!(
        place,
        MCA_STEP = op,
        MCA_TARGET = on,
        step = number,
        of,
        "Step {number} of {of}: {prefix}{step}: not done, because {failed} failed"
    );
}

/// Logs a path that is not restored: it is in directories that another user can change.
pub(super) fn left_as_it_is(intent: &Intent<'_>, path: &str, obstacle: &crate::host::HostError) {
    line!(
        warn,
        intent,
        MESSAGE_ID = message::NOT_RESTORED,
        MCA_TARGET = path,
        MCA_FAULT = obstacle.reason(),
        "{path} is left as it is: {}",
        chain(obstacle)
    );
}

/// Logs what the owner of an account had in the way of its keys.
pub(super) fn moved_aside(intent: &Intent<'_>, moved: &Moved) {
    line!(
        warn,
        intent,
        MESSAGE_ID = message::NOT_RESTORED,
        MCA_TARGET = moved.path,
        MCA_FAULT = "UnexpectedKind",
        "{} can't be saved, and is moved aside to {}",
        moved.path,
        moved.aside
    );
}

/// Logs a file that is not the update's, in the place of what a roll-back restores.
pub(super) fn changed_meanwhile(intent: &Intent<'_>, path: &str, aside: &str) {
    line!(
        warn,
        intent,
        MESSAGE_ID = message::NOT_RESTORED,
        MCA_TARGET = path,
        MCA_FAULT = "NotSaved",
        "{path} was created or changed during the update, and is moved aside to {aside}"
    );
}

/// Logs what a person has changed of an account since the update: a roll-back leaves it.
pub(super) fn account_stays(intent: &Intent<'_>, name: &str, parts: &str) {
    line!(
        warn,
        intent,
        MESSAGE_ID = message::NOT_RESTORED,
        MCA_TARGET = name,
        MCA_FAULT = "NotSaved",
        "The {name} was changed on this host since the update ({parts}): that stays"
    );
}

/// Logs keys of the old config that a roll-back can't bring back.
pub(super) fn keys_not_restored(intent: &Intent<'_>, user: &UserName, path: &str) {
    line!(
        warn,
        intent,
        MESSAGE_ID = message::NOT_RESTORED,
        MCA_TARGET = path,
        MCA_FAULT = "NotSaved",
        "{path} is not restored: the owner of the account {user} kept it from being saved"
    );
}

/// Logs a directory that left the config and stays, because something is in it.
pub(super) fn directory_stays(intent: &Intent<'_>, path: &str) {
    line!(
        warn,
        intent,
        MESSAGE_ID = message::DIRECTORY_STAYS,
        MCA_TARGET = path,
        "{path} stays: it left the config, and holds what no config brought"
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
            "{prefix}{batch}: {on} not done: {}",
            chain(error)
        ),
    }
}

fn batch_word(steps: &[Step]) -> &'static str {
    match steps.first().map(|step| step.op.batch()) {
        Some(Batch::Os) => "OS",
        Some(Batch::Files) => "files",
        Some(Batch::Accounts) => "accounts",
        Some(Batch::Users) => "users",
        Some(Batch::Links) => "unit links",
        Some(Batch::Directories) => "directories",
        Some(Batch::Services) => "services",
        None => "nothing",
    }
}

pub(super) fn micros(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_micros()).unwrap_or(u64::MAX)
}
