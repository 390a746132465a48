//! Carrying out: one journaled batch, or one undo step, becomes an effect.
//!
//! Imports `model`, `plan`, `journal` and `host`. [`apply`] is the one runner: it logs and times each step (`run_steps.rs`); the
//! steps themselves never log. Invariants: every step may be repeated and finds its own work done; the originals of a batch
//! were saved before; nothing is decided here.

mod accounts;
mod error;
mod files;
mod foreign;
mod os;
mod run_steps;
mod seed;
mod services;
mod single_step;
mod stateroot;
mod stray_keys;
#[cfg(test)]
mod tests;
mod undo;
mod units;
mod users;

use crate::host::{Host, OsProgress};
use crate::journal::{Intent, Work};
use crate::plan::{Batch, Step};

pub use accounts::record_memberships;
pub use error::ApplyError;
use run_steps::{ApplyContext, run_step, together};
pub use seed::{SeedHost, SeedWork, apply_seed, restore_seed_host};
pub use stateroot::apply_stateroot;
pub use units::link_verbs;

/// Carries out the intent's work. See the module's invariants.
pub async fn apply(
    intent: &Intent<'_>,
    host: &Host,
    progress: &dyn Fn(OsProgress),
) -> Result<(), ApplyError> {
    host.fail_points.hit("begin");
    let done = match intent.work() {
        Work::Apply { batch, steps } => apply_batch(intent, host, batch, steps, progress).await,
        Work::Undo { undo, steps } => undo::apply_batch(intent, host, undo, steps, progress).await,
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
        Batch::Accounts => together(intent, steps, "", accounts::apply_batch(intent, host, steps)).await,
        Batch::Files | Batch::Directories => {
            together(intent, steps, "", async { files::apply_batch(intent, host, steps) }).await
        }
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
