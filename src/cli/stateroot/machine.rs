//! The machine that the verbs work on.

use std::io::Write as _;
use std::path::Path;

use super::super::CliError;
use super::super::output::print;
use crate::agent::{StaterootEnd, StaterootWorker};
use crate::host::clock::Clock;
use crate::host::os::stateroots::Stateroots;
use crate::host::os::worker::Worker;
use crate::host::power::{Power as _, Supervised};
use crate::host::{ContainerHandles, FailPoints, OsProgress, Proxies, Root};
use crate::journal::stateroot::StaterootJournal;
use crate::settings::Environment;
use crate::stateroot::{Findings, Job};
use crate::telemetry::log::{self, Format};

/// The running machine.
pub(super) struct Machine {
    /// Its files.
    pub(super) root: Root,
    /// Its stateroots.
    pub(super) stateroots: Stateroots,
    fail_points: FailPoints,
}

impl Machine {
    /// Opens it. Nothing is changed by that.
    pub(super) fn open(environment: &Environment) -> Result<Self, CliError> {
        let fail_points = environment.fail_points.clone();
        let root = Root::open(Path::new("/"))?.with_fail_points(&fail_points);
        let proxies = Proxies::new(root.clone(), environment.proxy.clone());
        let worker = Worker::new(root.base(), ContainerHandles::default()).through(proxies);
        Ok(Self { root, stateroots: Stateroots::new(worker), fail_points })
    }

    /// Opens the journal of its stateroots.
    pub(super) fn journal(&self) -> Result<StaterootJournal, CliError> {
        Ok(StaterootJournal::open(self.root.clone(), self.fail_points.clone())?)
    }

    /// Carries out what is asked for, and tells how far it is.
    pub(super) async fn carry_out(
        &self,
        journal: &mut StaterootJournal,
        job: &Job,
    ) -> Result<StaterootEnd, CliError> {
        log::start(Format::Text);
        let worker = StaterootWorker {
            root: &self.root,
            stateroots: &self.stateroots,
            clock: &Clock::system(),
            boot_id: Supervised::new(&self.root).boot_id()?,
        };
        let told = |step: OsProgress| tracing::debug!("{step}");
        let end = Box::pin(worker.carry_out(journal, job, &told)).await?;
        if let Some(count) = self.fail_points.counted() {
            print(&format!("fail points: {count}"))?;
        }
        Ok(end)
    }
}

/// Returns what was found out, or the exit code of what failed, which is told.
pub(super) fn conclude(end: StaterootEnd) -> Result<Findings, u8> {
    let (fault, open) = match end {
        StaterootEnd::Done(found) => return Ok(found),
        StaterootEnd::Undone(fault) => (fault, ""),
        StaterootEnd::Open(fault) => (fault, " Repeat the command to go on, or remove the stateroot."),
    };
    drop(writeln!(std::io::stderr(), "error: {}\nNext: {}{open}", fault.message, fault.next));
    Err(fault.class.exit_code())
}
