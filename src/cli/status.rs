//! `status`: what the node is, what it is doing, why, and the next step. Reads the state on disk and what the agent left
//! in `/run`; no API, no lock.

use serde::Serialize;

use super::host::{HostFlags, runtime};
use super::{CliError, Output, print, print_json};
use crate::agent::drift::{watched, with_diffs};
use crate::agent::refused::{REFUSED, Refused};
use crate::host::watch::{Watch, Watched};
use crate::host::{Host, Root, machine_name};
use crate::journal::state;
use crate::journal::stored::{Stored, load_record};
use crate::model::observation::{LocalPackages, OsSeen, Staged};
use crate::model::os::Layers;
use crate::model::{HostSpec, ImageRef, Karg, Target};
use crate::observe::observe;
use crate::plan::differences::Difference;
use crate::plan::drift::drift;
use crate::report::{Health, LinkDown, NodeReport, Progress, State, report};
use crate::update::{Fault, Record};

/// How many diffs of drifted contents are shown: a screen; `verify` shows all.
const DIFFS: usize = 1;

/// Flags of `status`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  machine-config-agent status --watch")]
pub(super) struct Arguments {
    #[command(flatten)]
    host: HostFlags,
    /// Print again at every change
    #[arg(long)]
    watch: bool,
    /// How to print it
    #[arg(long, short, value_enum, default_value_t = Output::Text)]
    output: Output,
}

#[derive(Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    schema_version: u32,
    node: String,
    state: State,
    phase: String,
    current: Option<Target>,
    desired: Option<Target>,
    booted: Option<BootedOs>,
    staged: Option<ImageRef>,
    /// What is staged by somebody else than this agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    staged_by_hand: Option<StagedByHand>,
    /// The deployment that boots next when it is neither: somebody rolled back by hand.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_boot: Option<NextBoot>,
    fault: Option<Fault>,
    /// `None` on a host that was never managed: nothing has begun there.
    since: Option<String>,
    progress: Option<Progress>,
    /// What is waited for: the drain, and what stands in its way.
    waiting: Option<String>,
    /// Why the control plane can't be reached, as the agent saw it last.
    #[serde(skip_serializing_if = "Option::is_none")]
    link_down: Option<LinkDown>,
    /// What differs, for people; programs ask `verify`.
    #[serde(skip)]
    drift: Vec<Difference>,
    /// What the config asks for and the image has to bring, for people.
    #[serde(skip)]
    layers: Option<String>,
}

#[derive(Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct BootedOs {
    image: Option<String>,
    digest: Option<String>,
    backend: &'static str,
    /// Why it is this backend.
    backend_because: String,
    deployment: String,
    /// What was changed on top of the image, and by no config.
    #[serde(skip_serializing_if = "LocalPackages::is_empty")]
    changed_by_hand: LocalPackages,
}

#[derive(Debug, PartialEq, Serialize)]
struct NextBoot {
    image: Option<ImageRef>,
    deployment: String,
}

/// What boots next beside the image's own name.
#[derive(Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct StagedByHand {
    image: Option<ImageRef>,
    deployment: String,
    /// Kernel arguments that the next boot has and this one has not.
    added_kernel_arguments: Vec<Karg>,
    /// Kernel arguments that this boot has and the next one has not.
    removed_kernel_arguments: Vec<Karg>,
}

impl StagedByHand {
    fn new(staged: &Staged, kargs: &[Karg]) -> Self {
        let own = |karg: &&Karg| !karg.is_of_ostree() && !karg.is_of_boot_loader();
        let running: Vec<Karg> = kargs.iter().filter(own).cloned().collect();
        Self {
            image: staged.image.clone(),
            deployment: staged.deployment.clone(),
            added_kernel_arguments: Karg::changed(staged.kargs.clone(), &running, &[]),
            removed_kernel_arguments: Karg::changed(running, &staged.kargs, &[]),
        }
    }

    /// Says in one line what the next boot takes, and how it differs from this one.
    fn line(&self) -> String {
        let image = self.image.as_ref().map_or("no image".to_owned(), ToString::to_string);
        let added = signed('+', &self.added_kernel_arguments);
        let removed = signed('-', &self.removed_kernel_arguments);
        let kargs = if added.len() + removed.len() == 0 { " the same" } else { "" };
        format!(
            "  by hand  staged for the next boot: {} ({image}), kernel arguments{kargs}{removed}{added}",
            self.deployment
        )
    }
}

/// Lists arguments, each behind a blank and a sign.
fn signed(sign: char, list: &[Karg]) -> String {
    list.iter().fold(String::new(), |text, karg| text + " " + &sign.to_string() + karg.as_str())
}

/// Prints the status, once or at every change.
pub(super) fn run(arguments: &Arguments) -> Result<u8, CliError> {
    let host = arguments.host.observe()?;
    runtime()?.block_on(async {
        if !arguments.watch {
            return show(&look(&host).await?, arguments.output).map(|()| 0);
        }
        let (mut last, mut watch) = (None, None::<Watch>);
        loop {
            let wanted = watched_now(&host)?;
            let Some(watch) = watch.as_mut().filter(|watch| *watch.wanted() == wanted) else {
                watch = Some(Watch::of(&host.root, wanted)?);
                // What is to be watched may have become something else before the watch was there.
                continue;
            };
            let status = look(&host).await?;
            if last.as_ref() != Some(&status) {
                show(&status, arguments.output)?;
            }
            last = Some(status);
            watch.changed().await?;
        }
    })
}

fn show(status: &Status, output: Output) -> Result<(), CliError> {
    match output {
        Output::Json => print_json(status),
        Output::Text => print(&text(status)),
    }
}

/// Names what may change the status: the state on disk, and on an idle host all that can drift.
fn watched_now(host: &Host) -> Result<Watched, CliError> {
    let mut wanted = match idle_spec(&host.root)? {
        Some(spec) => watched(&spec, &host.root, host.os.name())?,
        None => Watched::default(),
    };
    wanted.paths.extend([state("record.json"), state("current.json"), REFUSED.to_owned()]);
    Ok(wanted)
}

/// Reads what the host has to be like; `None` while an update is under way, and where nothing is committed.
fn idle_spec(root: &Root) -> Result<Option<HostSpec>, CliError> {
    if load_record(root)?.is_some() {
        return Ok(None);
    }
    let stored = Stored::load(root, &state("current.json"))?;
    Ok(stored.map(|stored| stored.spec()).transpose()?)
}

async fn look(host: &Host) -> Result<Status, CliError> {
    let record = load_record(&host.root)?;
    let stored = Stored::load(&host.root, &state("current.json"))?;
    let committed = stored.as_ref().map(|stored| stored.target.clone());
    let mut health = Health {
        node: machine_name(),
        wanted: record.as_ref().map(|record| record.to.clone()).or_else(|| committed.clone()),
        since: stored.as_ref().map(|stored| stored.at).unwrap_or_default(),
        committed,
        ..Health::default()
    };
    let spec = match &stored {
        Some(stored) if record.is_none() => Some(stored.spec()?),
        Some(_) | None => None,
    };
    let specs: Vec<_> = spec.iter().collect();
    let seen = observe(host, &specs).await?;
    if let Some(spec) = &spec {
        health.drift = drift(spec, &seen);
        with_diffs(&host.root, spec, &seen, &mut health.drift);
    }
    health.progress = record.as_ref().and_then(progress);
    if let Some(refused) = Refused::load(&host.root)? {
        health.wanted = refused.wanted.or(health.wanted);
        health.fault = refused.fault;
        health.awaited = refused.awaited;
        health.link_down = refused.link_down;
    }
    // What a config asks for is no change by hand; one that can't be read any more asks for nothing.
    let layers = stored.and_then(|stored| Some(stored.spec().ok()?.layers())).unwrap_or_default();
    let mut status = status(report(record.as_ref(), &health), health, &seen.os, host, &layers);
    if record.is_none() {
        // Without an update the agent has staged nothing.
        status.staged_by_hand = seen.os.staged().map(|staged| StagedByHand::new(staged, &seen.kargs));
    }
    Ok(status)
}

fn status(report: NodeReport, health: Health, os: &OsSeen, host: &Host, layers: &Layers) -> Status {
    let in_image = health.committed.as_ref().is_some_and(|target| target.image.is_some());
    Status {
        staged_by_hand: None,
        layers: (in_image && !layers.is_empty()).then(|| layers.to_string()),
        schema_version: 1,
        node: report.node,
        state: report.state,
        phase: report.phase,
        since: (report.update.is_some() || health.committed.is_some()).then_some(report.since),
        current: health.committed,
        desired: health.wanted,
        booted: os.booted().map(|booted| BootedOs {
            image: booted.image.as_ref().map(ToString::to_string),
            digest: booted.image.as_ref().map(|image| format!("sha256:{}", image.digest())),
            backend: host.os.name(),
            backend_because: host.os_because.clone(),
            deployment: booted.deployment.clone(),
            changed_by_hand: layers.beyond(&booted.local),
        }),
        next_boot: next_boot(os),
        staged: os.staged().and_then(|staged| staged.image.clone()),
        fault: report.fault,
        progress: report.progress,
        waiting: report.waiting,
        link_down: report.link_down,
        drift: health.drift,
    }
}

fn next_boot(os: &OsSeen) -> Option<NextBoot> {
    match os {
        OsSeen::NotImageBased => None,
        OsSeen::Deployments { next, .. } => next
            .as_ref()
            .map(|next| NextBoot { image: next.image.clone(), deployment: next.deployment.clone() }),
    }
}

fn progress(record: &Record) -> Option<Progress> {
    let (before, step) = record.under_way()?;
    let (op, target) = (step.op.word().to_owned(), step.op.target());
    Some(Progress { step: before + 1, of: record.plan.steps().len(), op, target, percent: None })
}

fn head(status: &Status) -> String {
    match &status.since {
        Some(since) => format!("Node {} is {:?}, since {since}", status.node, status.state),
        None => format!("Node {} is not managed yet", status.node),
    }
}

/// What was layered, removed or replaced on top of the image.
fn by_hand(local: &LocalPackages) -> impl Iterator<Item = String> {
    local.listed().map(|(word, names)| format!("  by hand  packages {word}: {names}"))
}

fn text(status: &Status) -> String {
    let target = |target: &Option<Target>| match target {
        None => "none yet".to_owned(),
        Some(Target { config, image: None }) => config.to_string(),
        Some(Target { config, image: Some(image) }) => format!("{config} with {image}"),
    };
    let mut lines = vec![
        head(status),
        format!("  phase    {}", status.phase),
        format!("  current  {}", target(&status.current)),
        format!("  desired  {}", target(&status.desired)),
    ];
    if let Some(booted) = &status.booted {
        let image = booted.image.as_deref().unwrap_or("not from an image");
        lines.push(format!("  booted   {image} ({}, {})", booted.backend, booted.deployment));
        lines.push(format!("  backend  {}: {}", booted.backend, booted.backend_because));
        lines.extend(by_hand(&booted.changed_by_hand));
    }
    if let Some(layers) = &status.layers {
        lines.push(format!("  layers   none here; the image brings them: {layers}"));
    }
    if let Some(by_hand) = &status.staged_by_hand {
        lines.push(by_hand.line());
    } else if let Some(staged) = &status.staged {
        lines.push(format!("  staged   {staged}"));
    }
    if let Some(next) = &status.next_boot {
        let image = next.image.as_ref().map_or("no image".to_owned(), ToString::to_string);
        lines.push(format!("  by hand  the next boot takes {} ({image})", next.deployment));
    }
    if let Some(progress) = &status.progress {
        lines.push(format!(
            "  step     {}/{} {} {}",
            progress.step, progress.of, progress.op, progress.target
        ));
    }
    if let Some(waiting) = &status.waiting {
        lines.push(format!("  waits    for {waiting}"));
    }
    if let Some(down) = &status.link_down {
        lines.push(format!("  link     down since {}: {}: {}", down.since, down.reason, down.message));
        lines.push(format!("  next     {}", down.next));
    }
    if let Some(fault) = &status.fault {
        lines.push(format!("  why      {}: {}", fault.reason, fault.message));
        lines.push(format!("  next     {}", fault.next));
    }
    for diff in status.drift.iter().filter_map(|difference| difference.diff.as_ref()).take(DIFFS) {
        lines.extend(diff.lines().map(|line| format!("    {line}")));
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::FailPoints;
    use crate::model::Timestamp;
    use crate::model::machineconfig::MachineConfig;
    use crate::model::observation::{Booted, Carries};

    fn host_at(dir: &std::path::Path) -> Host {
        let os_because = "it is a test".to_owned();
        Host { os_because, ..Host::in_directory(Root::open(dir).unwrap(), FailPoints::off()) }
    }

    /// What drifts on an idle host is a change of the status, and nothing else would tell it.
    #[test]
    fn what_can_drift_is_watched() {
        let dir = tempfile::tempdir().unwrap();
        let host = host_at(dir.path());
        let of_state: Watched = watched_now(&host).unwrap();
        assert_eq!(of_state.paths, [state("record.json"), state("current.json"), REFUSED.to_owned()].into());
        let file = r#"{"path": "/etc/app.conf", "contents": {"source": "data:,a"}}"#;
        let config = format!(
            r#"{{"apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig", "metadata": {{"name": "a"}},
                "spec": {{"config": {{"ignition": {{"version": "3.5.0"}}, "storage": {{"files": [{file}]}}}}}}}}"#
        );
        let config = MachineConfig::parse(config.as_bytes(), "a test").unwrap();
        Stored::new(config, None, Timestamp::default()).save(&host.root, &state("current.json")).unwrap();
        assert!(watched_now(&host).unwrap().paths.contains("/etc/app.conf"));
    }

    /// A host that somebody changed by hand is named so, in both forms: other packages, and another next boot.
    #[test]
    fn changes_by_hand_are_told() {
        let dir = tempfile::tempdir().unwrap();
        let host = host_at(dir.path());
        let requested = ["usbguard", "vim"].map(str::to_owned).into();
        let os = OsSeen::Deployments {
            booted: Booted {
                image: None,
                deployment: "os-abc.0".to_owned(),
                carries: Carries::Unknown,
                local: LocalPackages { requested, ..LocalPackages::default() },
            },
            staged: None,
            next: Some(Staged { image: None, deployment: "os-old.0".to_owned(), kargs: Vec::new() }),
        };
        let extensions = ["usbguard".to_owned()].into();
        let layers = Layers { extensions, ..Layers::default() };
        let health = Health::default();
        let status = status(report(None, &health), health, &os, &host, &layers);
        let text = text(&status);
        for line in [
            "  backend  none: it is a test",
            "  by hand  packages layered: vim",
            "  by hand  the next boot takes os-old.0 (no image)",
        ] {
            assert!(text.lines().any(|one| one == line), "{text}");
        }
        let json = serde_json::to_value(&status).unwrap();
        assert_eq!(json.get("stagedByHand"), None);
        assert_eq!(json["booted"]["backendBecause"], "it is a test");
        assert_eq!(json["booted"]["changedByHand"]["requested"], serde_json::json!(["vim"]));
        assert_eq!(json["nextBoot"]["deployment"], "os-old.0");
    }

    /// What an administrator has staged is shown as such, with what it changes: the image's name alone would say that
    /// the next boot is as this one. What the boot loader adds is no change.
    #[test]
    fn staged_arguments_of_an_administrator_are_shown() {
        let staged =
            Staged { image: None, deployment: "os-abc.1".to_owned(), kargs: Karg::split("rw quiet nosmt") };
        let running =
            Karg::split("BOOT_IMAGE=(hd0,gpt3)/vmlinuz rw quiet debug ostree=/ostree/boot.0/os/x/0");
        let by_hand = StagedByHand::new(&staged, &running);
        let line = "  by hand  staged for the next boot: os-abc.1 (no image), kernel arguments -debug +nosmt";
        assert_eq!(by_hand.line(), line);
        let json = serde_json::to_value(&by_hand).unwrap();
        assert_eq!(json["addedKernelArguments"], serde_json::json!(["nosmt"]));
        let same = StagedByHand::new(&Staged { kargs: Karg::split("rw quiet debug"), ..staged }, &running);
        assert!(same.line().ends_with("kernel arguments the same"), "{}", same.line());
    }

    /// MCD-204: in image mode what the config asks for comes with the image, and `status` says so.
    #[test]
    fn the_image_brings_kernel_and_extensions_in_image_mode() {
        let dir = tempfile::tempdir().unwrap();
        let host = host_at(dir.path());
        let image = ImageRef::parse(&format!("r.test/os@sha256:{}", "a".repeat(64))).unwrap();
        let layers = Layers { extensions: ["usbguard".to_owned()].into(), ..Layers::default() };
        let shown = |image: Option<ImageRef>| {
            let config = crate::model::ConfigName::new("rendered-a").unwrap();
            let health = Health { committed: Some(Target { config, image }), ..Health::default() };
            text(&status(report(None, &health), health, &OsSeen::NotImageBased, &host, &layers))
        };
        let line = "  layers   none here; the image brings them: kernel default, extensions usbguard";
        assert!(shown(Some(image)).lines().any(|one| one == line));
        assert!(!shown(None).contains("layers"));
    }
}
