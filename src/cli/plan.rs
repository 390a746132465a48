//! `plan`: the plan between two configs. Changes nothing.

use std::io::Write as _;
use std::rc::Rc;

use super::desired::{self, Desired};
use super::host::{HostFlags, runtime};
use super::input::Unknown;
use super::output::{Output, print, print_json};
use super::{CliError, input, settings};
use crate::agent::AgentError;
use crate::agent::rehearsal::rehearsed;
use crate::control::ControlPlane as _;
use crate::control::directory::Directory;
use crate::decide::ahead::Ahead;
use crate::host::{Host, Root};
use crate::journal::origin::{State, check_commit, check_lock, check_writable};
use crate::journal::{OpenUpdate, Originals, Stored};
use crate::model::machineconfig::MachineConfig;
use crate::model::observation::EmbeddedConfig;
use crate::model::os::LeftOs;
use crate::model::policy::DisruptionPolicy;
use crate::model::{
    BootId, ConfigName, Facts, HostSpec, ImageRef, ManagedPath, ObservedFile, Sha256, Target,
};
use crate::observe::{ImageSource, ObserveError, facts_with, observe};
use crate::plan::explain::{self, Beside};
use crate::plan::listing::listed;
use crate::plan::reconcilable::FORCE_FILE;
use crate::plan::start::{Start, blocking_drift};
use crate::plan::{
    Irreconcilable, Plan, blocked_ahead, late, not_held, plan_assumed, refused_after_reboot, unchanged,
    unverified_ahead,
};
use crate::settings::Environment;
use crate::update::resume::plans_again;
use crate::update::{Phase, Record};

/// Flags of `plan`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  machine-config-agent plan --from a.yaml --to b.yaml\n\n\
    With files on both sides the host is assumed to match --from; `--from current` reads the host.")]
pub(super) struct Arguments {
    /// Config to start from: a MachineConfig's file, `-`, or `current`
    #[arg(long, value_name = "FILE|current", default_value = "current")]
    from: String,
    /// Config to reach: a MachineConfig's file, `-`, or `desired`, from the Node or the directory
    #[arg(long, value_name = "FILE|desired", default_value = "desired")]
    to: String,
    /// OS image that goes with --from
    #[arg(long, value_name = "IMAGE")]
    from_image: Option<String>,
    /// OS image that goes with --to
    #[arg(long, value_name = "IMAGE")]
    to_image: Option<String>,
    /// The config that the target image carries (default: read from the image)
    #[arg(long, value_name = "NAME")]
    image_config: Option<String>,
    /// A MachineConfiguration object with the disruption policy
    #[arg(long, value_name = "FILE")]
    policy: Option<String>,
    #[command(flatten)]
    unknown: Unknown,
    #[command(flatten)]
    control: desired::Flags,
    #[command(flatten)]
    host: HostFlags,
    /// Exit with 1 if the plan has steps
    #[arg(long)]
    exit_code: bool,
    /// Output format
    #[arg(long, short, value_enum, default_value_t = Output::Text)]
    output: Output,
}

/// A plan, or the reasons against it, between two targets.
struct Decided {
    from: Option<Target>,
    to: Target,
    outcome: Result<Plan, Irreconcilable>,
    beside: Beside,
    /// The config that the host differs from, where that keeps the update from starting.
    drifted: Option<String>,
}

/// Prints the plan.
pub(super) fn run(arguments: &Arguments, environment: &Environment) -> Result<u8, CliError> {
    input::check_standard_input(&[
        ("--from", Some(&arguments.from)),
        ("--to", Some(&arguments.to)),
        ("--policy", arguments.policy.as_deref()),
    ])?;
    let Decided { from, to, outcome, beside, .. } =
        runtime()?.block_on(Box::pin(decide(arguments, environment)))?;
    match arguments.output {
        Output::Json => print_json(&explain::json(outcome.as_ref(), from.as_ref(), &to, &beside))?,
        Output::Text => match &outcome {
            Ok(plan) => print(&(explain::text(plan) + &beside.text()))?,
            Err(refused) => print(&format!("{refused}\n{}", beside.refused_text()))?,
        },
    }
    let is_unknown = is_unknown(&beside);
    Ok(match outcome {
        _ if is_unknown => 4,
        Err(_) => 3,
        // As `apply` ends, which would not begin.
        Ok(_) if !beside.drift.is_empty() => 4,
        Ok(plan) if arguments.exit_code && !plan.is_empty() => 1,
        Ok(_) => 0,
    })
}

/// Returns the document of `plan` without other flags than these.
pub(super) async fn to_desired(
    host: &HostFlags,
    control: &desired::Flags,
    environment: &Environment,
) -> Result<serde_json::Value, CliError> {
    let arguments = Arguments {
        from: "current".to_owned(),
        to: "desired".to_owned(),
        from_image: None,
        to_image: None,
        image_config: None,
        policy: None,
        // What the agent follows is its to judge.
        unknown: Unknown { allow_unknown_fields: true },
        control: control.clone(),
        host: host.clone(),
        exit_code: false,
        output: Output::Json,
    };
    let Decided { from, to, outcome, beside, .. } = Box::pin(decide(&arguments, environment)).await?;
    let document = explain::json(outcome.as_ref(), from.as_ref(), &to, &beside);
    serde_json::to_value(document).map_err(|error| CliError::Output(error.into()))
}

async fn decide(arguments: &Arguments, environment: &Environment) -> Result<Decided, CliError> {
    let Destination { to, target, policy } = destination(arguments, environment).await?;
    if arguments.from == "current" {
        let host = arguments.host.observe_through(environment.proxy.clone())?;
        let state = State::load(&host.root)?;
        let embedded = arguments.image_config.as_deref();
        let look = Look { embedded, source: ImageSource::Read, is_of_run: true };
        return Box::pin(from_current(host, &state, look, to, &target, &policy)).await;
    }
    let image = input::image("--from-image", arguments.from_image.as_deref())?;
    let from = input::machine_config(&arguments.from, arguments.unknown)?.spec(image)?;
    let mut facts = Facts::assumed(&from, &to)?;
    set_embedded_config(arguments.image_config.as_deref(), &mut facts)?;
    let outcome = plan_assumed(&from, &to, &facts, &policy);
    let from = Some(from.target());
    Ok(Decided { from, to: to.target(), outcome, beside: Beside::default(), drifted: None })
}

/// Extent of the look at the host.
#[derive(Debug, Clone, Copy)]
struct Look<'a> {
    /// Name of the config that the target image carries; without one the source tells.
    embedded: Option<&'a str>,
    source: ImageSource,
    /// Set if the plan is for a run: what that could not write of its own is refused.
    is_of_run: bool,
}

/// Returns why this host refuses a config; `None` if a run of `apply` would carry it out. No image is read.
pub(super) async fn refused(
    host: Host,
    state: &State,
    (config, image): (&MachineConfig, Option<ImageRef>),
    policy: DisruptionPolicy,
) -> Result<Option<Irreconcilable>, CliError> {
    let content = Some(config.content());
    let Destination { to, target, policy } = Destination::new(config, image, content, policy)?;
    let look = Look { embedded: None, source: ImageSource::Unread, is_of_run: false };
    Ok(Box::pin(from_current(host, state, look, to, &target, &policy)).await?.outcome.err())
}

/// Refuses a target beside an open update to another one as `plan` does: before that update goes on, is undone or ends.
pub(super) async fn check_beside_open(
    host: Host,
    (config, image): (&MachineConfig, Option<ImageRef>),
    policy: DisruptionPolicy,
) -> Result<(), CliError> {
    let state = State::load(&host.root)?;
    let content = Some(config.content());
    let target = Target::new(config.name().clone(), image.clone()).with_content(content);
    if state.open.as_ref().is_none_or(|open| open.record.to == target) {
        return Ok(());
    }
    check_writable(&host.root)?;
    let Destination { to, target, policy } = Destination::new(config, image, content, policy)?;
    // The run holds the lock already.
    let look = Look { embedded: None, source: ImageSource::Read, is_of_run: false };
    let decided = match Box::pin(from_current(host, &state, look, to, &target, &policy)).await {
        // The open update may be what keeps the image from being seen: it is undone first, and then looked at again.
        Err(CliError::Observe(ObserveError::Image { .. })) => return Ok(()),
        decided => decided?,
    };
    let Decided { outcome, beside, drifted, .. } = decided;
    if is_unknown(&beside) {
        // Known once the open update is undone.
        return Ok(());
    }
    let refused = match (outcome, drifted) {
        (Err(refused), _) => refused.into(),
        (Ok(_), Some(config)) => AgentError::Drifted { config, differences: listed(&beside.drift) }.into(),
        (Ok(_), None) => return Ok(()),
    };
    drop(write!(std::io::stderr(), "{}", beside.refused_text()));
    Err(refused)
}

/// Returns true if the plan may be another one once the open update is undone.
fn is_unknown(beside: &Beside) -> bool {
    beside.open.as_ref().is_some_and(|open| !open.unknown.is_empty())
}

/// Plans from what is on this host, as a run of `apply` would.
async fn from_current(
    mut host: Host,
    state: &State,
    look: Look<'_>,
    to: HostSpec,
    target: &Target,
    policy: &DisruptionPolicy,
) -> Result<Decided, CliError> {
    check_commit(&host.root)?;
    host.soft_reboot = settings::read_usual(&host.root)?.soft_reboot;
    let forced = host.root.exists(FORCE_FILE)?;
    let ahead = ahead(&host, state, target, forced).await?;
    check_own(&host.root, look, ahead)?;
    let (Ahead::GoesOn | Ahead::Held, Some(open)) = (ahead, &state.open) else {
        return planned(host, state, look, to, policy, (ahead, forced)).await;
    };
    let beside = Beside { open: Some(described(&open.record, ahead)), ..Beside::default() };
    let (from, target) = (open.record.from.clone(), to.target());
    let outcome = if ahead == Ahead::GoesOn {
        goes_on(host, state, open, to, policy, (look, forced)).await?
    } else {
        Ok(open.record.plan.clone())
    };
    Ok(Decided { from, to: target, outcome, beside, drifted: None })
}

/// Plans on the host as it is, or as the open update will have left it.
async fn planned(
    mut host: Host,
    state: &State,
    look: Look<'_>,
    mut to: HostSpec,
    policy: &DisruptionPolicy,
    (ahead, forced): (Ahead, bool),
) -> Result<Decided, CliError> {
    let mut open = state.open.as_ref().map(|open| described(&open.record, ahead));
    let (mut start, mut origin) = origin(state.committed(&host.root)?, state, ahead, forced)?;
    match ahead {
        Ahead::UndoneFirst => {
            let (root, kept) = state.after_undo(&host.root)?;
            host.root = root;
            if let Some(open) = &mut open {
                open.kept = kept;
            }
        }
        Ahead::EndsFirst | Ahead::LeftAsItIs => host.root = state.after_end(&host.root)?,
        Ahead::Committed | Ahead::Nothing | Ahead::GoesOn | Ahead::Held => {}
    }
    origin.settle(&host).await?;
    start.leave_unapplied(&origin.spec, &mut to);
    let mut facts = facts_with(&host, &origin.spec, &to, look.source).await?;
    set_embedded_config(look.embedded, &mut facts)?;
    if let Some(open) = &state.open
        && ahead.starts_from_observation(&open.record, &facts.observed)
    {
        start.recovering = true;
        origin.runs_deployment_of(open);
    }
    start.carry_over(&mut origin.spec, &mut to, &facts.observed);
    let origin = origin.spec;
    let (from, outcome) = if ahead == Ahead::Committed {
        let due = late::follow(&origin, &facts.observed);
        if look.is_of_run && due.is_some() {
            check_writable(&host.root)?;
        }
        (Rc::clone(&origin), Ok(due.unwrap_or_else(|| unchanged(&to, &facts))))
    } else {
        let from = start.from(&origin, &to, &facts.observed);
        let outcome = start.plan(&origin, &from, &to, &facts, policy);
        let outcome = rehearsed(&host, (&from, &to), &facts, outcome).await?;
        (from, outcome)
    };
    if let Some(open) = &mut open {
        open.unknown = host.root.unknown();
    }
    let drift = outcome.as_ref().ok().and_then(|plan| blocking_drift(&from, &to, &facts.observed, plan));
    let drifted = drift.as_ref().map(|drift| drift.config.to_string());
    let drift = drift.map(|drift| drift.differences).unwrap_or_default();
    let beside = Beside { drift, left: origin.opaque().cloned().collect(), open, left_out: Vec::new() };
    let from = (!origin.is_unmanaged()).then(|| origin.target());
    Ok(Decided { from, to: to.target(), outcome, beside, drifted })
}

/// Refuses what a run could not write of its own, before anything else.
fn check_own(root: &Root, look: Look<'_>, ahead: Ahead) -> Result<(), CliError> {
    if look.is_of_run {
        check_lock(root)?;
        if !matches!(ahead, Ahead::Committed | Ahead::Held) {
            check_writable(root)?;
        }
    }
    Ok(())
}

/// Returns the plan of the open update, or what has come in the way since it was begun: of its files, and of the plan that is made anew
/// once it is up and not as planned.
async fn goes_on(
    host: Host,
    state: &State,
    open: &OpenUpdate,
    to: HostSpec,
    policy: &DisruptionPolicy,
    (look, forced): (Look<'_>, bool),
) -> Result<Result<Plan, Irreconcilable>, CliError> {
    let is_up = is_up(&open.record, &host.boot_id().await?);
    let plan = match left(&host, state, open, to.clone(), (look.source, forced, is_up)).await? {
        Ok(plan) if plans_again(&open.record) && plan != open.record.plan => plan,
        other => return Ok(other),
    };
    let again = planned(host, state, look, to, policy, (Ahead::LeftAsItIs, forced)).await?;
    Ok(match again.outcome {
        Ok(_) => Ok(plan),
        Err(refused) if is_up => Err(refused),
        Err(refused) => Ok(refused_after_reboot(plan, &refused)),
    })
}

/// Returns true if an update is up after its reboot.
fn is_up(record: &Record, boot: &BootId) -> bool {
    match &record.phase {
        Phase::Rebooting { boot_id } => boot_id != boot,
        Phase::Verifying => true,
        Phase::Planned
        | Phase::Staging
        | Phase::Draining
        | Phase::Applying { .. }
        | Phase::RollingBack { .. }
        | Phase::FallingBack { .. } => false,
    }
}

/// Returns the plan of the open update, or what has come in the way of what is left of it.
async fn left(
    host: &Host,
    state: &State,
    open: &OpenUpdate,
    mut to: HostSpec,
    (source, forced, is_up): (ImageSource, bool, bool),
) -> Result<Result<Plan, Irreconcilable>, CliError> {
    let plan = open.record.plan.clone();
    let next = open.record.next_batch();
    let (start, mut origin) = origin(state.committed(&host.root)?, state, Ahead::GoesOn, forced)?;
    origin.settle(host).await?;
    start.leave_unapplied(&origin.spec, &mut to);
    let mut facts = facts_with(host, &origin.spec, &to, source).await?;
    // A directory that the batch has made already, in the place of a file or a link, is not in its way.
    let batch = next.unwrap_or_else(|| plan.batches().len());
    let made = Originals::new(open.record.id.clone(), batch).directories(&host.root)?;
    let is_made = |path: &ManagedPath| {
        let found = facts.observed.files.get(path);
        made.contains(path) && matches!(found, Some(ObservedFile::Directory { .. }))
    };
    facts.obstacles.paths.retain(|path, _| !is_made(path));
    start.carry_over(&mut origin.spec, &mut to, &facts.observed);
    let from = start.from(&origin.spec, &to, &facts.observed);
    let plans_again = plans_again(&open.record);
    // What is planned again in this boot is looked at from its first batch on.
    let batch = if plans_again && is_up { 0 } else { batch };
    let blocked = blocked_ahead(&from, &to, &facts, &plan, batch);
    Ok(blocked.and_then(|()| unverified_ahead(&to, &facts.observed, plan, next, plans_again)))
}

/// Decides what comes before the plan.
async fn ahead(host: &Host, state: &State, target: &Target, forced: bool) -> Result<Ahead, CliError> {
    // Contents are compared where the source tells them.
    let is_told = target.content.is_some();
    let identified = |stored: Stored| if is_told { stored.identified() } else { stored };
    let Some(OpenUpdate { record, to, unreadable }) = &state.open else {
        let committed = state.committed(&host.root)?.map(|stored| identified(stored).target);
        let has_left = state.left.as_ref().is_some_and(|left| left.is_left_beside(committed.as_ref()));
        return Ok(Ahead::of_idle(committed.as_ref(), target, forced || has_left));
    };
    let committed = state.current.clone().map(|stored| identified(stored).target);
    let observed = observe(host, &[to]).await?;
    let ahead = Ahead::of_open(record, committed.as_ref(), &observed, target, forced);
    let is_given_up = unreadable.is_some() && ahead == Ahead::GoesOn && record.fault.is_none();
    Ok(if is_given_up { Ahead::UndoneFirst } else { ahead })
}

/// The config that the update comes from.
struct Origin {
    spec: Rc<HostSpec>,
    /// Set if the host was looked at for directories and links that came with it and nobody applied.
    is_settled: bool,
}

impl Origin {
    /// Notes that the host runs the deployment of an update that is undone, as the journal does at its end.
    fn runs_deployment_of(&mut self, open: &OpenUpdate) {
        let left = &mut Rc::make_mut(&mut self.spec).left;
        *left = Some(LeftOs::after(left.take(), open.to.host_layers(), open.record.origin_image.clone()));
    }

    /// Finds out what of it was never applied to this host, as a start does: before anything else is looked at.
    async fn settle(&mut self, host: &Host) -> Result<(), CliError> {
        if !self.is_settled {
            let observed = observe(host, &[&self.spec]).await?;
            let unapplied = not_held(&self.spec, &observed);
            Rc::make_mut(&mut self.spec).set_unapplied(unapplied);
            self.is_settled = true;
        }
        Ok(())
    }
}

/// Returns how the update starts, and where.
fn origin(
    committed: Option<Stored>,
    state: &State,
    ahead: Ahead,
    forced: bool,
) -> Result<(Start, Origin), CliError> {
    let of_open = matches!(ahead, Ahead::EndsFirst | Ahead::LeftAsItIs);
    let recovering = ahead == Ahead::LeftAsItIs || (!of_open && state.left.is_some());
    let start = Start { recovering, forced };
    let stored = state.left.clone().or(committed);
    let is_settled = of_open || stored.as_ref().is_none_or(Stored::is_settled);
    let spec = match (&state.open, stored) {
        (Some(open), _) if of_open => Rc::clone(&open.to),
        (_, Some(stored)) => Rc::new(stored.known_spec()),
        (_, None) => Rc::new(HostSpec::empty(ConfigName::new(HostSpec::UNMANAGED)?)),
    };
    Ok((start, Origin { spec: start.origin(spec)?, is_settled }))
}

/// Describes the open update.
fn described(record: &Record, ahead: Ahead) -> explain::OpenUpdate {
    explain::OpenUpdate {
        id: record.id.to_string(),
        to: record.to.clone(),
        phase: record.phase.name(),
        then: ahead.as_str(),
        fault: record.fault.as_ref().map(ToString::to_string),
        unknown: Vec::new(),
        kept: Vec::new(),
    }
}

fn set_embedded_config(name: Option<&str>, facts: &mut Facts) -> Result<(), CliError> {
    if let Some(name) = name {
        facts.carries = EmbeddedConfig::Config(ConfigName::new(name)?);
    }
    Ok(())
}

/// The desired config with its identity, and the policy that goes with it.
struct Destination {
    to: HostSpec,
    target: Target,
    policy: DisruptionPolicy,
}

impl Destination {
    fn new(
        config: &MachineConfig,
        image: Option<ImageRef>,
        content: Option<Sha256>,
        policy: DisruptionPolicy,
    ) -> Result<Self, CliError> {
        let target = Target::new(config.name().clone(), image.clone()).with_content(content);
        Ok(Self { to: config.spec(image)?, target, policy })
    }
}

/// Returns the plan's target, and the policy that goes with it.
async fn destination(arguments: &Arguments, environment: &Environment) -> Result<Destination, CliError> {
    let image = input::image("--to-image", arguments.to_image.as_deref())?;
    let named = arguments.policy.as_deref();
    let unknown = arguments.unknown;
    if arguments.to != "desired" {
        let config = input::machine_config(&arguments.to, unknown)?;
        let (config, policy) = match (&arguments.control.directory, named) {
            (Some(directory), None) => {
                let directory = Directory::open(directory)?;
                let mut directory = directory.with_unknown_fields(unknown.allow_unknown_fields);
                (config, directory.policy().await?)
            }
            (Some(_) | None, named) => input::policy(named, unknown, config, &arguments.to)?,
        };
        let content = Some(config.content());
        return Destination::new(&config, image, content, policy);
    }
    let source = desired::source(&arguments.control, &Root::open(&arguments.host.root)?, environment)?;
    let Desired { target, machine_config, policy } = source.read(unknown).await?;
    let (machine_config, policy) = match named {
        Some(_) => input::policy(named, unknown, machine_config, "")?,
        None => (machine_config, policy),
    };
    Destination::new(&machine_config, image.or(target.image), target.content, policy)
}
