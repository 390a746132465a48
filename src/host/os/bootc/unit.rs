//! bootc as a transient unit: it outlives the agent, and is found again by its name.
//!
//! Its output: standard output goes to the journal. Standard error to a file below `/run`, because the last lines are
//! the cause of a failure and belong into the fault; a pipe would end bootc with the agent, and the journal can't be
//! read without another program. The agent puts the lines into the journal when the unit has ended.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::pipe::{PipeFlags, pipe_with};
use tokio::net::unix::pipe::Receiver;
use tokio::time::timeout;

use super::super::OsProgress;
use super::super::error::{OsError, OsErrorKind};
use super::super::rate::Rate;
use super::progress;
use crate::host::command::{Lines, last_words};
use crate::host::lock_holder;
use crate::host::systemd::transient::{self, FIRST_DESCRIPTOR, Found, Program, ProgramResult, Transients};
use crate::host::systemd::{Systemd, known};
use crate::host::{HostError, Proxies, Root};
use crate::model::image::Transport;
use crate::model::{FileMode, ImageRef, UnitName};

/// The program.
const BOOTC: &str = "/usr/bin/bootc";

/// The name that its lines have in the journal.
const LOG_NAME: &str = "machine-config-agent-bootc";

/// Reading takes the lock of the sysroot, and waits for its holder: the status is good to know, no more.
const STATUS_SECONDS: u64 = 30;

/// The longest document of `bootc status` that is understood: it has three deployments, and some KiB.
const MAX_STATUS_BYTES: u64 = 1 << 20;

/// Most bytes of the end of bootc's output that go into the journal.
const MAX_WORDS_BYTES: u64 = 64 << 10;

/// libostree's lock, which bootc takes for all it does.
const LOCK_PATH: &str = "/ostree/lock";

/// Interval of polls of a held lock: the end of a file lock signals nothing.
const LOCK_POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Time limit for reading the last lines of a bootc that has ended.
const LAST_LINES_TIMEOUT: Duration = Duration::from_secs(1);

/// Option to prepare the next root in [`NEXT_ROOT`] if bootc can do without the kernel.
const PREPARE_SOFT_REBOOT: &str = "--soft-reboot=auto";

/// Mount point of the deployment that a soft reboot starts.
const NEXT_ROOT: &str = "/run/nextroot";

/// Runner of bootc.
#[derive(Debug, Clone)]
pub(super) struct Bootc {
    systemd: Systemd,
    root: Root,
    program: String,
    /// Proxies for its pulls; `None` leaves them to systemd's `DefaultEnvironment=`.
    proxies: Option<Proxies>,
    /// Set if the running switch has reported progress: an old systemd passes no pipe, and a unit that was found again
    /// has none.
    reports: Arc<AtomicBool>,
}

/// One run: the unit's name, and the files of its output.
struct Run {
    unit: UnitName,
    stem: &'static str,
}

impl Run {
    fn switch() -> Result<Self, HostError> {
        Self::new("machine-config-agent-bootc")
    }

    fn status() -> Result<Self, HostError> {
        Self::new("machine-config-agent-bootc-status")
    }

    fn rollback() -> Result<Self, HostError> {
        Self::new("machine-config-agent-bootc-rollback")
    }

    fn new(stem: &'static str) -> Result<Self, HostError> {
        Ok(Self { unit: known(&format!("{stem}.service"))?, stem })
    }

    fn file(&self, what: &str) -> String {
        format!("/run/{}.{what}", self.stem)
    }
}

/// End of a run of bootc.
#[derive(Debug)]
pub(super) struct Ran {
    pub(super) ended: ProgramResult,
    /// The end of its standard error.
    pub(super) words: String,
}

impl Bootc {
    pub(super) fn new(systemd: Systemd, root: Root) -> Self {
        Self { systemd, root, program: BOOTC.to_owned(), proxies: None, reports: Arc::default() }
    }

    pub(super) fn at(self, program: &str) -> Self {
        Self { program: program.to_owned(), ..self }
    }

    pub(super) fn through(self, proxies: Proxies) -> Self {
        Self { proxies: Some(proxies), ..self }
    }

    pub(super) fn reports_progress(&self) -> bool {
        self.reports.load(Ordering::Relaxed)
    }

    /// Switches to an image and returns when bootc has ended; it continues when the future is dropped. One that the agent
    /// had started before for the same image is waited for; one for another image is ended.
    pub(super) async fn switch(
        &self,
        image: &ImageRef,
        next_root: NextRoot,
        progress: &(dyn Fn(OsProgress) + '_),
    ) -> Result<Ran, HostError> {
        let (units, run) = (self.units(image.to_string()).await?, Run::switch()?);
        self.reports.store(false, Ordering::Relaxed);
        let command = switch_command(&self.program, image, next_root);
        let same = |found: &Found| is_same(&found.command, &command);
        match units.find(&run.unit).await? {
            Some(found) if found.running && same(&found) => {
                progress(OsProgress {
                    text: "waiting for the bootc that was started before".to_owned(),
                    percent: None,
                });
                let ended = units.wait(&run.unit).await?;
                return self.over(&units, &run, ended).await;
            }
            Some(found) => {
                tracing::warn!(unit = %run.unit, "Ending what an earlier start left running: {}", found.command.join(" "));
                drop(self.over_with(&units, &run, found.running).await?);
            }
            None => {}
        }
        self.await_sysroot(progress).await;
        let started = self.start(&units, &run, &command, &image.to_string(), progress).await;
        let ended = started.map_err(|error| refused(image, error))?;
        self.over(&units, &run, ended).await
    }

    /// Waits while another program holds the sysroot, and names it: bootc waits for it, too, without a word that can be
    /// relied on. The caller's limits end the wait.
    async fn await_sysroot(&self, progress: &(dyn Fn(OsProgress) + '_)) {
        let mut logged = None;
        while let Some(holder) = lock_holder::find(&self.outside(LOCK_PATH)) {
            if logged.as_ref() != Some(&holder) {
                let text = format!("waiting for {holder}, which holds the sysroot");
                progress(OsProgress { text, percent: None });
                logged = Some(holder);
            }
            tokio::time::sleep(LOCK_POLL_INTERVAL).await;
        }
        if logged.is_some() {
            progress(OsProgress { text: "the sysroot is free".to_owned(), percent: None });
        }
    }

    /// Waits as a switch does, where none of an earlier start runs, which holds the sysroot itself.
    pub(super) async fn await_others(&self, progress: &(dyn Fn(OsProgress) + '_)) -> Result<(), HostError> {
        let (units, run) = (self.units(self.program.clone()).await?, Run::switch()?);
        match units.find(&run.unit).await? {
            Some(found) if found.running => {}
            Some(_) | None => self.await_sysroot(progress).await,
        }
        Ok(())
    }

    /// Swaps the next boot's deployment with the previous one. A run that the agent had started before is waited for.
    pub(super) async fn rollback(
        &self,
        deployment: &str,
        progress: &(dyn Fn(OsProgress) + '_),
    ) -> Result<Ran, HostError> {
        let (units, run) = (self.units(deployment.to_owned()).await?, Run::rollback()?);
        if units.find(&run.unit).await?.is_some() {
            let text = "waiting for the bootc that was started before".to_owned();
            progress(OsProgress { text, percent: None });
            let ended = units.wait(&run.unit).await?;
            return self.over(&units, &run, ended).await;
        }
        self.await_sysroot(progress).await;
        progress(OsProgress { text: "running bootc rollback".to_owned(), percent: None });
        self.root.replace(&run.file("stderr"), b"", FileMode::PRIVATE)?;
        let command: Vec<String> = [self.program.as_str(), "rollback"].map(str::to_owned).into();
        let description = format!("Go back to {deployment} (for machine-config-agent)");
        let ended = units.run(self.program(&run, &command, &description, &[])).await?;
        self.over(&units, &run, ended).await
    }

    /// Returns the output of `bootc status`.
    pub(super) async fn status(&self) -> Result<Result<String, Ran>, HostError> {
        let (units, run) = (self.units(self.program.clone()).await?, Run::status()?);
        // One of an earlier start is no use: its result is old.
        units.stop(&run.unit).await?;
        let command: Vec<String> = [self.program.as_str(), "status", "--json"].map(str::to_owned).into();
        let output = run.file("stdout");
        for file in [&output, &run.file("stderr")] {
            self.root.replace(file, b"", FileMode::PRIVATE)?;
        }
        let program = Program {
            output: Some(self.outside(&output)),
            seconds: Some(STATUS_SECONDS),
            ..self.program(&run, &command, "Read the OS images (for machine-config-agent)", &[])
        };
        let ended = units.run(program).await?;
        let text = self.root.read_tail(&output, MAX_STATUS_BYTES)?.unwrap_or_default();
        self.root.remove(&output)?;
        let ran = self.over(&units, &run, ended).await?;
        Ok(if ran.ended.is_success() { Ok(String::from_utf8_lossy(&text).into_owned()) } else { Err(ran) })
    }

    /// Removes a switch's preparation of a soft reboot into a deployment that is dropped: `systemctl reboot` takes
    /// that way by itself if it is there. The mount is the host's, so systemd undoes it.
    pub(super) async fn drop_next_root(&self) -> Result<(), HostError> {
        if !self.root.exists(&format!("{NEXT_ROOT}/usr"))? {
            return Ok(());
        }
        let (units, run) =
            (self.units(NEXT_ROOT.to_owned()).await?, Run::new("machine-config-agent-next-root")?);
        units.stop(&run.unit).await?;
        self.root.replace(&run.file("stderr"), b"", FileMode::PRIVATE)?;
        let command: Vec<String> = ["/usr/bin/umount", "--recursive", NEXT_ROOT].map(str::to_owned).into();
        let description = "Give up a prepared soft reboot (for machine-config-agent)";
        let ended = units.run(self.program(&run, &command, description, &[])).await?;
        self.over(&units, &run, ended).await.map(drop)
    }

    /// Ends a switch or a rollback that is still running.
    pub(super) async fn stop(&self) -> Result<(), HostError> {
        let Some(units) = self.systemd.transients().await? else { return Ok(()) };
        let switch = units.stop(&Run::switch()?.unit).await;
        let rollback = units.stop(&Run::rollback()?.unit).await;
        switch.and(rollback)
    }

    async fn units(&self, object: String) -> Result<Transients, HostError> {
        let none = || {
            let cause = "bootc is run by systemd, and no systemd runs here";
            OsError::new(OsErrorKind::NotBooted, object, cause).into_error()
        };
        self.systemd.transients().await?.ok_or_else(none)
    }

    async fn start(
        &self,
        units: &Transients,
        run: &Run,
        command: &[String],
        image: &str,
        progress: &(dyn Fn(OsProgress) + '_),
    ) -> Result<ProgramResult, HostError> {
        self.root.replace(&run.file("stderr"), b"", FileMode::PRIVATE)?;
        let environment = self.proxies.as_ref().map(Proxies::unit_file).transpose()?.flatten();
        let environment = environment.map(|file| self.outside(file));
        let description = format!("Switch the OS to {image} (for machine-config-agent)");
        let fields = [format!("MCA_TARGET={image}")];
        if !units.takes_descriptors().await? {
            let program = self.program(run, command, &description, &fields);
            return units.run(Program { environment, ..program }).await;
        }
        let failed = |error: std::io::Error| HostError::io("make", "a pipe for the progress of bootc", error);
        let (reader, writer) = pipe_with(PipeFlags::CLOEXEC).map_err(|errno| failed(errno.into()))?;
        let mut command = command.to_vec();
        // Behind the verb: the image stays the last word.
        command.splice(2..2, ["--progress-fd".to_owned(), FIRST_DESCRIPTOR.to_string()]);
        let program =
            Program { pipe: Some(writer), environment, ..self.program(run, &command, &description, &fields) };
        let reader = Receiver::from_owned_fd(reader).map_err(failed)?;
        let mut lines = Lines::new(reader);
        let (began, mut rate) = (Instant::now(), Rate::default());
        let mut report = |line: &str| self.report_line(line, began.elapsed(), &mut rate, progress);
        let mut ended = std::pin::pin!(units.run(program));
        loop {
            tokio::select! {
                // Not cancelled: the same future is polled until it ends.
                ended = &mut ended => {
                    // Its last lines may arrive after its end. A program that it started may keep the pipe open.
                    let rest = async {
                        while let Ok(Some(line)) = lines.next().await {
                            report(&line);
                        }
                    };
                    drop(timeout(LAST_LINES_TIMEOUT, rest).await);
                    return ended;
                }
                // Cancel-safe: the read part of a line is kept in `lines`.
                line = lines.next() => match line {
                    Ok(Some(line)) => report(&line),
                    // bootc has closed it; systemd reports its end.
                    Ok(None) | Err(_) => return ended.await,
                },
            }
        }
    }

    fn report_line(&self, line: &str, at: Duration, rate: &mut Rate, progress: &(dyn Fn(OsProgress) + '_)) {
        if let Some(step) = progress::parse(line, at, rate) {
            self.reports.store(true, Ordering::Relaxed);
            progress(step);
        }
    }

    fn program<'a>(
        &self,
        run: &'a Run,
        command: &'a [String],
        description: &'a str,
        fields: &'a [String],
    ) -> Program<'a> {
        Program {
            unit: &run.unit,
            description,
            command,
            log_name: LOG_NAME,
            log_fields: fields,
            output: None,
            errors: self.outside(&run.file("stderr")),
            environment: None,
            pipe: None,
            seconds: None,
        }
    }

    /// Returns a path below the root as systemd sees it.
    fn outside(&self, path: &str) -> PathBuf {
        self.root.base().join(path.trim_start_matches('/'))
    }

    /// Waits for the end of an earlier start's unit, after ending it.
    async fn over_with(
        &self,
        units: &Transients,
        run: &Run,
        running: bool,
    ) -> Result<Option<Ran>, HostError> {
        if running {
            units.stop(&run.unit).await?;
            return Ok(None);
        }
        let ended = units.wait(&run.unit).await?;
        self.over(units, run, ended).await.map(Some)
    }

    /// Puts its words into the journal, and forgets the unit.
    async fn over(&self, units: &Transients, run: &Run, ended: ProgramResult) -> Result<Ran, HostError> {
        let path = run.file("stderr");
        let bytes = self.root.read_tail(&path, MAX_WORDS_BYTES)?.unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let lines = text.lines().map(str::trim_end).filter(|line| !line.is_empty());
        for line in lines {
            tracing::info!(unit = %run.unit, "bootc: {line}");
        }
        if !ended.is_success() {
            tracing::warn!(unit = %run.unit, "{}: {ended}", run.unit);
        }
        units.stop(&run.unit).await?;
        self.root.remove(&path)?;
        Ok(Ran { ended, words: last_words(&text) })
    }
}

/// Preparation of a soft reboot by a switch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NextRoot {
    /// If the deployment allows it.
    Prepared,
    /// Not requested, unknown to this bootc, or the deployment is changed after the switch.
    Left,
}

/// The command line. Its proxies are those of [`Proxies`], else of systemd's `DefaultEnvironment=`, as for every service.
fn switch_command(bootc: &str, image: &ImageRef, next_root: NextRoot) -> Vec<String> {
    let named = image.canonical();
    let (transport, target) = match image.transport() {
        Transport::Registry => ("registry", named.as_str()),
        Transport::OciDirectory => ("oci", named.strip_prefix("oci:").unwrap_or(&named)),
    };
    let soft = (next_root == NextRoot::Prepared).then_some(PREPARE_SOFT_REBOOT);
    let words = [bootc, "switch"].into_iter().chain(soft);
    words.chain(["--quiet", "--transport", transport, target]).map(str::to_owned).collect()
}

/// Returns true if two command lines are the same but for the flag of the progress.
fn is_same(found: &[String], expected: &[String]) -> bool {
    let mut rest = found.to_vec();
    if rest.get(2).is_some_and(|word| word == "--progress-fd") {
        rest.drain(2..4);
    }
    rest == expected
}

fn refused(image: &ImageRef, error: HostError) -> HostError {
    if transient::exists_already(&error) {
        let cause = "another program has just started bootc under the same name";
        return OsError::new(OsErrorKind::Busy, image.to_string(), cause).into_error();
    }
    match transient::refused(error) {
        Ok(words) => {
            let cause = format!("systemd did not start bootc: {words}");
            OsError::new(OsErrorKind::Bootc, image.to_string(), cause).into_error()
        }
        Err(error) => error,
    }
}
