//! `status`: state of the node, progress, fault and the next step. No lock, no API.
//!
//! With a running agent its last report is shown as it is. Without one, the state on disk, the host and the
//! directory that it followed are read here, and the missing agent is reported first.

mod agent;
mod look;
#[cfg(test)]
mod model;
mod shown;
mod staged_manually;
mod text;

use std::path::Path;

use super::CliError;
use super::host::{HostFlags, runtime};
use super::last_report::{self, Follows, SavedReport};
use super::output::{Output, print, print_json};
use super::settings::faults_of_usual;
use super::verify::settle;
use crate::agent::drift::{add_diffs, watched};
use crate::agent::{AgentError, REBOOT_LEFT};
use crate::control::directory::{Directory, pool_file};
use crate::control::{ControlError, ControlPlane as _};
use crate::host::account_records::AccountRecords;
use crate::host::watch::{Watch, WatchSet};
use crate::host::{Host, Root, machine_name};
use crate::journal::history::settled_at;
use crate::journal::origin::{State, check_commit};
use crate::journal::stateroot::{load_record as load_stateroot_work, load_trial};
use crate::journal::stored::{Stored, load_record};
use crate::journal::{lifecycle, seed, state};
use crate::model::observation::ObservedOs;
use crate::model::os::Layers;
use crate::model::text::chain;
use crate::model::{ConfigName, HostSpec, Observation, Target, Timestamp};
use crate::observe::{lost, observe};
use crate::plan::differences::Difference;
use crate::plan::drift::drift;
use crate::plan::{Warning, not_applied, not_restorable};
use crate::report::{DRIFT, HeldUpdate, LoopState, NodeReport, NodeState, Progress, report};
use crate::settings::Environment;
use crate::stateroot::OpenWork;
use crate::update::{Fault, Phase, Record};

use agent::{AgentStatus, Unfinished};
use look::Look;
use shown::{BootedOs, MovedAside, NextBoot, Status};
use staged_manually::StagedManually;

/// Flags of `status`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  machine-config-agent status --watch")]
pub(super) struct Arguments {
    #[command(flatten)]
    host: HostFlags,
    /// Print again at every change
    #[arg(long, conflicts_with = "exit_code")]
    watch: bool,
    /// Exit with 0 only when the node is Done and its agent runs or is not expected to; 1 not yet, 3
    /// Unreconcilable, 4 Degraded
    #[arg(long)]
    exit_code: bool,
    /// Output format
    #[arg(long, short, value_enum, default_value_t = Output::Text)]
    output: Output,
}

/// Prints the status, once or at every change.
pub(super) fn run(arguments: &Arguments, environment: &Environment) -> Result<u8, CliError> {
    let look = Look::of_output(environment);
    let host = arguments.host.observe()?;
    runtime()?.block_on(async {
        if !arguments.watch {
            let status = observe_status(&host).await?;
            show(&status, arguments.output, &host, look)?;
            return Ok(if arguments.exit_code { text::exit_code(&status) } else { 0 });
        }
        let (mut last, mut watch) = (None, None::<Watch>);
        loop {
            let desired = watched_now(&host)?;
            let Some(watch) = watch.as_mut().filter(|watch| *watch.watch_set() == desired) else {
                watch = Some(Watch::from_set(&host.root, desired)?);
                // The paths to watch may have changed before the watch was there.
                continue;
            };
            let status = observe_status(&host).await?;
            if last.as_ref() != Some(&status) {
                show(&status, arguments.output, &host, look)?;
            }
            last = Some(status);
            watch.changed().await?;
        }
    })
}

/// Returns the schema of the document.
#[cfg(test)]
pub(in crate::cli) fn schema(generator: schemars::SchemaGenerator) -> schemars::Schema {
    generator.into_root_schema_for::<Status>()
}

/// Returns the known facts, for people and for programs, without contents of files.
pub(super) async fn collect(host: &Host) -> Result<(String, serde_json::Value), CliError> {
    let status = Status { drift: Vec::new(), ..observe_status(host).await? };
    let document = serde_json::to_value(&status).map_err(|error| CliError::Output(error.into()))?;
    Ok((text::text(&status, None), document))
}

fn show(status: &Status, output: Output, host: &Host, look: Look) -> Result<(), CliError> {
    match output {
        Output::Json => print_json(status),
        Output::Text => print(&look.screen(&text::text(status, Some(host.clock.now())))),
    }
}

/// Names the paths that may change the status: the state on disk, and on an idle host all that can drift.
fn watched_now(host: &Host) -> Result<WatchSet, CliError> {
    let mut desired = match idle_spec(&host.root)? {
        Some(spec) => watched(&spec, &host.root, host.os.name())?,
        None => WatchSet::default(),
    };
    // The end of the agent's process closes its lock.
    let own = ["record.json", "current.json", "stateroot.json", "lock"]
        .map(state)
        .into_iter()
        .chain([last_report::REPORT_PATH.to_owned()]);
    desired.paths.extend(own);
    let left = SavedReport::load_or_name(&host.root, &mut Vec::new())?;
    let target = match left.map(|left| left.follows) {
        Some(Follows::Directory(path)) => Some(format!("{path}/target.yaml")),
        Some(Follows::Rendered { directory, pool }) => Some(format!("{directory}{}", pool_file(&pool))),
        Some(Follows::Cluster(_) | Follows::FirstBoot(_)) | None => None,
    };
    desired.paths.extend(target.filter(|_| host.root.is_machine()));
    Ok(desired)
}

/// Reads the spec of the host; `None` while an update is under way, and where nothing is committed.
fn idle_spec(root: &Root) -> Result<Option<HostSpec>, CliError> {
    if load_record(root)?.is_some() {
        return Ok(None);
    }
    let stored = Stored::load(root, &state("current.json"))?;
    Ok(stored.map(|stored| stored.known_spec()))
}

/// The state on disk.
#[derive(Default)]
struct Disk {
    record: Option<Record>,
    stored: Option<Stored>,
    work: Option<OpenWork>,
    moved: Vec<MovedAside>,
    not_restorable: Vec<Warning>,
}

impl Disk {
    fn read(root: &Root) -> Result<Self, CliError> {
        let State { open, current, .. } = State::load(root)?;
        let record = open.map(|open| open.record);
        let work = load_stateroot_work(root)?.as_ref().map(OpenWork::new);
        load_trial(root)?;
        seed::load_record(root)?;
        lifecycle::check(root)?;
        let moved = AccountRecords::load(root)?.still_moved(root).into_iter();
        let moved = moved.map(|(aside, path)| MovedAside { path, aside }).collect();
        let not_restorable = match &current {
            Some(stored) => {
                let spec = stored.known_spec();
                not_restorable(&spec, &lost(root, &spec)?)
            }
            None => Vec::new(),
        };
        Ok(Self { stored: current, record, work, moved, not_restorable })
    }
}

impl Disk {
    /// Reads what machine-config-daemon committed where nothing else is: the next start takes it over, or ends with the same error.
    fn import(&self, root: &Root) -> Result<Option<Stored>, CliError> {
        check_commit(root)?;
        if self.record.is_some() || self.stored.is_some() {
            return Ok(None);
        }
        Ok(crate::journal::mcd::read(root)?)
    }
}

/// Takes a result, or its default where this user may not read it and something else is known.
fn or_unread<T: Default>(
    result: Result<T, CliError>,
    otherwise: bool,
    unread: &mut Vec<String>,
) -> Result<T, CliError> {
    match result {
        Err(error) if otherwise && error.is_denied() => {
            unread.push(format!("{}; run it as root", chain(&error)));
            Ok(T::default())
        }
        other => other,
    }
}

async fn observe_status(host: &Host) -> Result<Status, CliError> {
    let mut unread = Vec::new();
    let left = SavedReport::load_or_name(&host.root, &mut unread)?;
    let agent = AgentStatus::read(host, left.as_ref()).await?;
    let disk = or_unread(Disk::read(&host.root), left.is_some(), &mut unread)?;
    let imported = if left.as_ref().is_some_and(|left| is_agents_word(left, &agent, &[])) {
        None
    } else {
        or_unread(disk.import(&host.root), left.is_some(), &mut unread)?
    };
    let mut health = health(host, &disk, left.as_ref(), &mut unread).await?;
    // A start takes the defaults in their place, and other verbs end with it.
    (health.settings, health.unknown_settings) = faults_of_usual(&host.root);
    let stored = disk.stored.as_ref().or(imported.as_ref()).filter(|_| disk.record.is_none());
    let (mut spec, is_settled) = match stored {
        Some(stored) => (Some(stored.known_spec()), stored.is_settled()),
        None => (None, true),
    };
    let specs: Vec<_> = spec.iter().collect();
    let observed = observe(host, &specs).await.map(Some).map_err(CliError::from);
    // What the running agent says of the host counts where another look fails: a program of the OS may be busy, or dead.
    let has_word = left.as_ref().is_some_and(|left| is_agents_word(left, &agent, &unread));
    let (observed, unseen) = match or_unread(observed, left.is_some(), &mut unread) {
        Err(error) if has_word => (None, Some(format!("the host: {}", chain(&error)))),
        observed => (observed?, None),
    };
    if let (Some(spec), Some(observed)) = (&mut spec, &observed) {
        settle(spec, is_settled, observed);
        // What another agent committed is no drift of ours.
        if disk.stored.is_some() {
            health.drift = drift(spec, observed);
            add_diffs(&host.root, spec, observed, &mut health.drift);
        }
        health.not_applied = not_applied(spec, observed);
    }
    let mut reported = reported_now(left.as_ref(), &agent, &unread, &disk, &health);
    name_left_reboot(&mut reported, disk.record.as_ref(), observed.as_ref());
    // Layers of the config are no manual change.
    let layers = disk.stored.map(|stored| stored.known_spec().layers()).unwrap_or_default();
    let idle = disk.record.is_none();
    // Without an update the agent has staged nothing.
    let staged = observed.as_ref().filter(|_| idle);
    let staged =
        staged.and_then(|observed| Some(StagedManually::new(observed.os.staged()?, &observed.kargs)));
    let os = observed.map_or(ObservedOs::NotImageBased, |observed| observed.os);
    let follows = left.map(|left| left.follows);
    let drift = if is_drift(&reported) { health.drift } else { Vec::new() };
    unread.extend(unseen);
    let around = Around {
        agent,
        follows,
        unread,
        drift,
        moved: disk.moved,
        work: disk.work,
        not_restorable: disk.not_restorable,
    };
    Ok(Status { staged_by_hand: staged, ..status(reported, &os, host, &layers, around) })
}

/// Returns the agent's last report, or that of the disk, with what is found now.
fn reported_now(
    left: Option<&SavedReport>,
    agent: &AgentStatus,
    unread: &[String],
    disk: &Disk,
    health: &LoopState,
) -> NodeReport {
    let mut reported = match left.filter(|left| is_agents_word(left, agent, unread)) {
        Some(left) => left.report.clone(),
        None => alone(report(disk.record.as_ref(), health), disk.record.as_ref(), agent),
    };
    list_faults(&mut reported);
    if let Some(settings) = &health.settings {
        insert(&mut reported.faults, settings.clone());
    }
    if agent.running == Some(false) && !agent.expected {
        // Nobody stays who would try it again.
        reported.held =
            HeldUpdate::of_record(disk.record.as_ref(), false).filter(|_| reported.held.is_some());
    }
    reported
}

/// Names the reboot that `apply --no-reboot` left to a person, where no agent does.
fn name_left_reboot(reported: &mut NodeReport, record: Option<&Record>, observed: Option<&Observation>) {
    let Some((record, observed)) = record.zip(observed) else { return };
    let is_left = record.reboot_left.as_ref() == Some(&observed.boot_id);
    if is_left && matches!(record.phase, Phase::Rebooting { .. }) && reported.waiting.is_none() {
        reported.waiting = Some(REBOOT_LEFT.to_owned());
    }
}

/// Returns true if the last report counts: its agent works, or nothing better may be read.
fn is_agents_word(left: &SavedReport, agent: &AgentStatus, unread: &[String]) -> bool {
    (agent.running == Some(true) && !left.stopped) || !unread.is_empty()
}

fn is_drift(report: &NodeReport) -> bool {
    report.faults.iter().any(|fault| fault.reason == DRIFT)
}

/// Collects the facts without the agent.
async fn health(
    host: &Host,
    disk: &Disk,
    left: Option<&SavedReport>,
    unread: &mut Vec<String>,
) -> Result<LoopState, CliError> {
    let read = match left.map(|left| &left.follows) {
        Some(Follows::Directory(path)) => or_unread(target(path, None).await, true, unread)?,
        Some(Follows::Rendered { directory, pool }) => {
            or_unread(target(directory, Some(pool)).await, true, unread)?
        }
        Some(Follows::Cluster(_) | Follows::FirstBoot(_)) | None => ReadTarget::default(),
    };
    let ReadTarget { mut desired, refused, refused_target, policy, awaited } = read;
    let reported = left.and_then(|left| {
        let NodeReport { desired_config, desired_image, .. } = &left.report;
        Some(Target::new(desired_config.clone()?, desired_image.clone()))
    });
    // Contents are compared where the source tells them.
    let is_told = desired.as_ref().is_some_and(|desired| desired.content.is_some());
    let current = disk.stored.clone().map(|stored| if is_told { stored.identified() } else { stored });
    let current = current.map(|stored| stored.target);
    let since = settled_at(&host.root, disk.stored.as_ref().map(|stored| stored.at)).unwrap_or_default();
    let since = since.max(left.and_then(|left| done_since(&left.report, current.as_ref())));
    if awaited.is_none() {
        desired = desired.or(reported).or_else(|| disk.record.as_ref().map(|record| record.to.clone()));
        desired = desired.or_else(|| current.clone());
    }
    Ok(LoopState {
        node: left.map_or_else(machine_name, |left| left.report.node.clone()),
        desired,
        awaited,
        since: since.unwrap_or_default(),
        current,
        refused,
        refused_target,
        policy,
        proxies: host.proxies.for_pulls().err().map(|error| AgentError::from(error).fault()),
        unknown_proxies: host.proxies.ignored(),
        progress: disk.record.as_ref().and_then(progress),
        ..LoopState::default()
    })
}

/// A target as it is given now.
#[derive(Default)]
struct ReadTarget {
    desired: Option<Target>,
    /// Set if it is not valid.
    refused: Option<Fault>,
    /// The target as it is named, if its config is not valid.
    refused_target: Option<Target>,
    /// Set if the policy is not valid.
    policy: Option<Fault>,
    /// The file of the target, if it is not there.
    awaited: Option<String>,
}

/// Reads the target of a directory.
async fn target(directory: &str, pool: Option<&ConfigName>) -> Result<ReadTarget, CliError> {
    let fault = |error: ControlError| Some(AgentError::from(error).fault());
    let mut directory = match Directory::of_pool(Path::new(directory), pool) {
        Ok(directory) => directory,
        Err(ControlError::Host(error)) if error.is_denied() => return Err(error.into()),
        Err(error) => return Ok(ReadTarget { refused: fault(error), ..ReadTarget::default() }),
    };
    let policy = directory.check_policy().err().filter(|error| !is_denied(error)).and_then(fault);
    match directory.desired().await {
        Ok(desired) => {
            let awaited = directory.awaited_target().filter(|_| desired.is_none());
            Ok(ReadTarget { desired, policy, awaited, ..ReadTarget::default() })
        }
        Err(ControlError::Host(error)) if error.is_denied() => Err(error.into()),
        Err(error) => {
            let refused_target = directory.refused_target();
            Ok(ReadTarget { refused: fault(error), refused_target, policy, ..ReadTarget::default() })
        }
    }
}

fn is_denied(error: &ControlError) -> bool {
    matches!(error, ControlError::Host(error) if error.is_denied())
}

/// Returns since when an agent's last report calls this config done.
fn done_since(last: &NodeReport, current: Option<&Target>) -> Option<Timestamp> {
    let is_same = current.is_some_and(|current| last.current_config.as_ref() == Some(&current.config));
    Timestamp::read(&last.since).filter(|_| is_same && last.state == NodeState::Done)
}

/// Lists the faults of a report of an earlier agent, which has no list.
fn list_faults(report: &mut NodeReport) {
    if report.faults.is_empty() {
        let duty = report.duty.iter().filter(|duty| report.fault.as_ref() != Some(*duty));
        report.faults = report.fault.iter().chain(duty).cloned().collect();
    }
}

/// Puts a fault among others, before those of its class, and returns its place: what was found now is newer than what was reported.
fn insert(faults: &mut Vec<Fault>, fault: Fault) -> usize {
    if let Some(at) = faults.iter().position(|other| *other == fault) {
        return at;
    }
    let at = faults.iter().position(|other| other.class <= fault.class).unwrap_or(faults.len());
    faults.insert(at, fault);
    at
}

/// A node whose agent should work and does not is not well, whatever it was before. The worse of both faults comes first, and of two
/// alike the agent's: without it nothing sees that the other one has ended.
fn alone(report: NodeReport, record: Option<&Record>, agent: &AgentStatus) -> NodeReport {
    // A node whose reboot was requested waits for its boot, not for a process.
    let goes_down = record.is_some_and(|record| matches!(record.phase, Phase::Rebooting { .. }));
    // One that failed is not continued by a process.
    let unfinished = report.update.clone().filter(|_| !goes_down && report.fault.is_none());
    let unfinished = unfinished.map(|update| Unfinished { update, phase: report.phase.clone() });
    let Some(missing) = agent.fault(unfinished.as_ref(), report.current_config.is_some()) else {
        // It has not looked at the host yet, or does no more.
        let waits = match (agent.starts, agent.goes_down) {
            (true, _) => Some("the start of the agent"),
            (false, true) => Some("the shutdown of this machine"),
            (false, false) => None,
        };
        let waiting = waits.filter(|_| report.state == NodeState::Done).map(str::to_owned);
        return match waiting {
            Some(_) => NodeReport { state: NodeState::Working, waiting, ..report },
            None => report,
        };
    };
    let mut faults = report.faults.clone();
    if insert(&mut faults, missing.clone()) > 0 {
        return NodeReport { faults, ..report };
    }
    let since = agent.since.clone().unwrap_or_else(|| Timestamp::default().to_string());
    let (state, reason) = (NodeState::Degraded, missing.to_string());
    NodeReport { state, reason, fault: Some(missing), faults, since, ..report }
}

/// Facts beside the report.
struct Around {
    agent: AgentStatus,
    follows: Option<Follows>,
    unread: Vec<String>,
    drift: Vec<Difference>,
    moved: Vec<MovedAside>,
    work: Option<OpenWork>,
    not_restorable: Vec<Warning>,
}

fn status(report: NodeReport, os: &ObservedOs, host: &Host, layers: &Layers, around: Around) -> Status {
    let pair = |config: Option<_>, image| config.map(|config| Target::new(config, image));
    let in_image = report.current_image.is_some();
    let faults = report.faults;
    let began = report.update.is_some() || report.current_config.is_some() || report.fault.is_some();
    Status {
        staged_by_hand: None,
        layers: (in_image && !layers.is_empty()).then(|| layers.to_string()),
        schema_version: 1,
        node: report.node,
        state: report.state,
        phase: report.phase,
        // Nothing of this host has a time yet.
        since: began.then_some(report.since).filter(|since| *since != Timestamp::default().to_string()),
        current: pair(report.current_config, report.current_image),
        desired: pair(report.desired_config, report.desired_image),
        content_changed: report.content_changed,
        booted: os.booted().map(|booted| BootedOs {
            image: booted.image.as_ref().map(ToString::to_string),
            digest: booted.image.as_ref().map(|image| format!("sha256:{}", image.digest())),
            backend: host.os.name(),
            backend_because: host.backend_reason.clone(),
            deployment: booted.deployment.clone(),
            changed_by_hand: layers.beyond(&booted.local),
        }),
        next_boot: next_boot(os),
        staged: os.staged().and_then(|staged| staged.image.clone()),
        duty: faults.iter().find(|fault| report.fault.as_ref() != Some(*fault)).cloned(),
        fault: report.fault,
        faults,
        held: report.held,
        progress: report.progress,
        doing: report.doing,
        doing_since: report.doing_since,
        waiting: report.waiting,
        next_try: report.next_try,
        prefetch: report.prefetch,
        link_down: report.link_down,
        unpublished: report.unpublished,
        agent: around.agent,
        follows: around.follows,
        stateroot_work: around.work,
        not_applied: report.not_applied,
        not_restorable: around.not_restorable,
        moved_aside: around.moved,
        unread: around.unread,
        drift: around.drift,
    }
}

fn next_boot(os: &ObservedOs) -> Option<NextBoot> {
    match os {
        ObservedOs::NotImageBased => None,
        ObservedOs::Deployments { next, .. } => next
            .as_ref()
            .map(|next| NextBoot { image: next.image.clone(), deployment: next.deployment.clone() }),
    }
}

fn progress(record: &Record) -> Option<Progress> {
    let (before, step) = record.under_way()?;
    let (op, target) = (step.op.as_str().to_owned(), step.op.target());
    Some(Progress { step: before + 1, of: record.plan.steps().len(), op, target, percent: None })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::FailPoints;
    use crate::model::FaultClass;
    use crate::model::ImageRef;
    use crate::model::Timestamp;
    use crate::model::machineconfig::MachineConfig;
    use crate::model::observation::LocalPackages;
    use crate::model::observation::{Booted, EmbeddedConfig, Staged};

    pub(super) fn alone_here() -> Around {
        let agent = AgentStatus {
            running: None,
            pid: None,
            starts: false,
            goes_down: false,
            is_masked: false,
            expected: false,
            since: None,
            text: "gone".to_owned(),
            awaits: None,
        };
        Around {
            agent,
            follows: None,
            unread: Vec::new(),
            not_restorable: Vec::new(),
            drift: Vec::new(),
            moved: Vec::new(),
            work: None,
        }
    }

    pub(super) fn host_at(dir: &std::path::Path) -> Host {
        let backend_reason = "it is a test".to_owned();
        Host { backend_reason, ..Host::in_directory(Root::open(dir).unwrap(), FailPoints::off()) }
    }

    /// A drift on an idle host is a change of the status, and nothing else would report it.
    #[test]
    fn drift_paths_are_watched() {
        let dir = tempfile::tempdir().unwrap();
        let host = host_at(dir.path());
        let of_state: WatchSet = watched_now(&host).unwrap();
        let own = [
            state("record.json"),
            state("current.json"),
            state("stateroot.json"),
            state("lock"),
            last_report::REPORT_PATH.to_owned(),
        ];
        assert_eq!(of_state.paths, own.into());
        let file = r#"{"path": "/etc/app.conf", "contents": {"source": "data:,a"}}"#;
        let config = format!(
            r#"{{"apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig", "metadata": {{"name": "a"}},
                "spec": {{"config": {{"ignition": {{"version": "3.5.0"}}, "storage": {{"files": [{file}]}}}}}}}}"#
        );
        let config = MachineConfig::parse(config.as_bytes(), "a test").unwrap();
        Stored::new(config, None, Timestamp::default()).save(&host.root, &state("current.json")).unwrap();
        assert!(watched_now(&host).unwrap().paths.contains("/etc/app.conf"));
    }

    /// A manually changed host is named so, in both forms: other packages, and another next boot.
    #[test]
    fn changes_manually_are_reported() {
        let dir = tempfile::tempdir().unwrap();
        let host = host_at(dir.path());
        let requested = ["usbguard", "vim"].map(str::to_owned).into();
        let os = ObservedOs::Deployments {
            booted: Booted {
                image: None,
                deployment: "os-abc.0".to_owned(),
                carries: EmbeddedConfig::Unknown,
                local: LocalPackages { requested, ..LocalPackages::default() },
            },
            staged: None,
            next: Some(Staged { image: None, deployment: "os-old.0".to_owned(), kargs: Vec::new() }),
        };
        let extensions = ["usbguard".to_owned()].into();
        let layers = Layers { extensions, ..Layers::default() };
        let health = LoopState::default();
        let status = status(report(None, &health), &os, &host, &layers, alone_here());
        let text = text::text(&status, None);
        for line in [
            "  backend  none: it is a test",
            "  manual   packages layered: vim",
            "  manual   the next boot takes os-old.0 (no image)",
        ] {
            assert!(text.lines().any(|one| one == line), "{text}");
        }
        let json = serde_json::to_value(&status).unwrap();
        assert_eq!(json.get("stagedByHand"), None);
        assert_eq!(json["booted"]["backendBecause"], "it is a test");
        assert_eq!(json["booted"]["changedByHand"]["requested"], serde_json::json!(["vim"]));
        assert_eq!(json["nextBoot"]["deployment"], "os-old.0");
    }

    /// Issue 33: a dead agent and an invalid target are both told, the worse one first.
    #[test]
    fn dead_agent_is_told_beside_fault_of_target() {
        let agent = AgentStatus { running: Some(false), expected: true, ..alone_here().agent };
        let fault = |class, reason: &str| {
            let text = |text: &str| text.to_owned();
            Fault { class, reason: text(reason), message: text("m"), next: text("n") }
        };
        for (class, reason, expected) in [
            (FaultClass::Retry, "WaitingForObject", ["AgentNotRunning", "WaitingForObject"]),
            (FaultClass::Degraded, "InvalidImage", ["AgentNotRunning", "InvalidImage"]),
            (FaultClass::Unreconcilable, "FailedToReconcile", ["FailedToReconcile", "AgentNotRunning"]),
        ] {
            let health = LoopState { refused: Some(fault(class, reason)), ..LoopState::default() };
            let told = alone(report(None, &health), None, &agent);
            let names: Vec<&str> = told.faults.iter().map(|one| one.reason.as_str()).collect();
            assert_eq!(names, expected);
            assert_eq!(told.fault.as_ref(), told.faults.first());
            assert!(told.reason.starts_with(expected[0]), "{}", told.reason);
            let is_worse = class == FaultClass::Unreconcilable;
            let state = if is_worse { NodeState::Unreconcilable } else { NodeState::Degraded };
            assert_eq!(told.state, state);
        }
    }

    /// MCD-204: in image mode the config's packages come with the image, and `status` shows that.
    #[test]
    fn image_brings_kernel_and_extensions_in_image_mode() {
        let dir = tempfile::tempdir().unwrap();
        let host = host_at(dir.path());
        let image = ImageRef::parse(&format!("r.test/os@sha256:{}", "a".repeat(64))).unwrap();
        let layers = Layers { extensions: ["usbguard".to_owned()].into(), ..Layers::default() };
        let shown = |image: Option<ImageRef>| {
            let config = crate::model::ConfigName::new("rendered-a").unwrap();
            let health = LoopState { current: Some(Target::new(config, image)), ..LoopState::default() };
            let status =
                status(report(None, &health), &ObservedOs::NotImageBased, &host, &layers, alone_here());
            text::text(&status, None)
        };
        let line = "  layers   none here; the image has them: kernel default, extensions usbguard";
        assert!(shown(Some(image)).lines().any(|one| one == line));
        assert!(!shown(None).contains("layers"));
    }
}
