//! The machine that the verbs work on.

use std::io::Write as _;
use std::path::Path;

use super::super::CliError;
use super::super::host::RebootBy;
use super::super::output::print;
use super::super::settings::SettingsFile;
use crate::agent::{StaterootEnd, StaterootWorker};
use crate::host::clock::Clock;
use crate::host::os::stateroots::Stateroots;
use crate::host::os::worker::Worker;
use crate::host::power::Power;
use crate::host::{ContainerHandles, FailPoints, OsProgress, Proxies, Root};
use crate::journal::stateroot::StaterootJournal;
use crate::journal::stored::load_record;
use crate::model::BootId;
use crate::settings::Environment;
use crate::stateroot::{Findings, Job};
use crate::telemetry::log::{self, Format};

/// The running machine.
pub(in crate::cli) struct Machine {
    /// Its files.
    pub(in crate::cli) root: Root,
    /// Its stateroots.
    pub(in crate::cli) stateroots: Stateroots,
    fail_points: FailPoints,
    power: Box<dyn Power>,
    boot_id: BootId,
}

impl Machine {
    /// Opens it. Nothing is changed by that.
    pub(in crate::cli) fn open(environment: &Environment) -> Result<Self, CliError> {
        Self::open_for(environment, RebootBy::Logind)
    }

    /// Opens it for work that may reboot it.
    pub(in crate::cli) fn open_for(environment: &Environment, reboot_by: RebootBy) -> Result<Self, CliError> {
        let fail_points = environment.fail_points.clone();
        let root = Root::open(Path::new("/"))?.with_fail_points(&fail_points);
        let proxies = Proxies::new(root.clone(), environment.proxy.clone());
        let worker = Worker::new(root.base(), ContainerHandles::default()).through(proxies);
        let power = reboot_by.power(&root);
        let boot_id = power.boot_id()?;
        let stateroots = Stateroots::new(worker).within(SettingsFile::usual().limits(&root));
        Ok(Self { root, stateroots, fail_points, power, boot_id })
    }

    /// Returns the boot.
    pub(in crate::cli) fn boot_id(&self) -> &BootId {
        &self.boot_id
    }

    /// Refuses while an update of the running system is under way: its reboot would be that into the other stateroot.
    pub(in crate::cli) fn ensure_no_update(&self) -> Result<(), CliError> {
        match load_record(&self.root)? {
            None => Ok(()),
            Some(record) => Err(CliError::Usage(format!(
                "the update {} to {} is under way; wait for its end (machine-config-agent status)",
                record.id, record.to.config
            ))),
        }
    }

    /// Opens the journal of its stateroots.
    pub(in crate::cli) fn journal(&self) -> Result<StaterootJournal, CliError> {
        Ok(StaterootJournal::open(self.root.clone(), self.fail_points.clone())?)
    }

    /// Executes the job, and logs its progress.
    pub(in crate::cli) async fn execute(
        &self,
        journal: &mut StaterootJournal,
        job: &Job,
    ) -> Result<StaterootEnd, CliError> {
        log::start(Format::Text);
        let worker = StaterootWorker {
            root: &self.root,
            stateroots: &self.stateroots,
            clock: &Clock::system(),
            power: &*self.power,
            boot_id: self.boot_id.clone(),
        };
        let log_progress = |step: OsProgress| tracing::debug!("{step}");
        let end = Box::pin(worker.execute(journal, job, &log_progress)).await?;
        if let Some(count) = self.fail_points.counted() {
            print(&format!("fail points: {count}"))?;
        }
        Ok(end)
    }
}

/// Returns the findings; prints a failure and returns its exit code.
pub(in crate::cli) fn conclude(end: StaterootEnd) -> Result<Findings, u8> {
    let (fault, open) = match end {
        StaterootEnd::Done(found) => return Ok(found),
        StaterootEnd::GoesDown(_) => return Ok(Findings::default()),
        StaterootEnd::Undone(fault) => (fault, ""),
        StaterootEnd::Open(fault) => (fault, " Repeat the command to go on, or remove the stateroot."),
    };
    drop(writeln!(std::io::stderr(), "error: {}\nNext: {}{open}", fault.message, fault.next));
    Err(fault.class.exit_code())
}
