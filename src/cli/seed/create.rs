//! `seed create`: a seed image of this host.

use std::io::{IsTerminal as _, Write as _};
use std::path::Path;

use clap::ValueEnum;
use serde::Serialize;

use super::super::CliError;
use super::super::output::{Output, print, print_json};
use super::super::settings::read_usual;
use super::super::stateroot::machine::Machine;
use super::list;
use super::restore::open_journal;
use crate::agent::{
    SeedEnd, SeedFacts, active_services, make_seed, restore_seed, seed_directory, seed_facts, update_id,
};
use crate::apply::{SeedHost, SeedWork};
use crate::host::clock::Clock;
use crate::host::{OsProgress, Proxies, Systemd, stop_signal};
use crate::journal::seed::SeedJournal;
use crate::model::ids::STATE_DIR;
use crate::model::{FaultClass, UnitName};
use crate::settings::Environment;
use crate::stateroot::{Layout, SEED_SCHEMA, SeedPaths, SeedRecord, SeedStep, SeedTarget, Version};
use crate::telemetry::log::{self, Format};

/// Form of a seed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Form {
    /// An image from scratch with the archives in its root
    Classic,
    /// The layers of the booted image and one more: it boots itself
    Bootc,
}

impl Form {
    fn layout(self) -> Layout {
        match self {
            Self::Classic => Layout::Classic,
            Self::Bootc => Layout::Bootc,
        }
    }
}

/// Flags that change nothing.
#[derive(Debug, clap::Args)]
struct Preview {
    /// List what the seed has and leaves out, and why; change nothing; exits with 3 if it would be refused
    #[arg(long, conflicts_with_all = ["plan", "push"])]
    list: bool,
    /// Print the plan, and change nothing
    #[arg(long)]
    plan: bool,
}

/// Flags of `seed create`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  machine-config-agent seed create --image registry.example/seeds/sno:4.17.2 --version 4.17.2 --push --yes\n\n\
    A seed has changed files of packages, files of the committed config and what --include names; `--list` shows it.\n\
    A seed is refused if a file in it looks like a secret.\n\
    The kubelet and CRI-O are stopped while /etc and /var are archived. Identity and secrets stay on this host.\n\
    After a failure the host is as it was; after a kill, `seed restore` restores it, and so do the\n\
    next `seed create` and the start of the daemon."
)]
pub(super) struct Arguments {
    /// Name of the image, with a tag
    #[arg(long, value_name = "REF", required_unless_present = "list")]
    image: Option<String>,
    /// Version of the seed: its cluster's
    #[arg(long, value_name = "VERSION", required_unless_present = "list")]
    version: Option<String>,
    /// Push the image; otherwise it stays in the directory
    #[arg(long)]
    push: bool,
    /// Form of the seed
    #[arg(long, value_enum, default_value_t = Form::Classic)]
    form: Form,
    /// Directory with room for the archives
    #[arg(long, value_name = "DIR", default_value = STATE_DIR)]
    directory: String,
    /// Path below /etc or /var to take, with everything below it; repeatable
    #[arg(long, value_name = "PATH")]
    include: Vec<String>,
    /// File to take although it looks like a secret; repeatable
    #[arg(long, value_name = "PATH")]
    include_secret: Vec<String>,
    /// Path below /etc or /var to leave out; repeatable
    #[arg(long, value_name = "PATH")]
    exclude: Vec<String>,
    /// Credentials for the push [default: the credentials for pulls]
    #[arg(long, value_name = "FILE")]
    authfile: Option<String>,
    #[command(flatten)]
    preview: Preview,
    /// Do not ask before services are stopped
    #[arg(long)]
    yes: bool,
    /// Output format
    #[arg(long, short, value_enum, default_value_t = Output::Text)]
    output: Output,
}

impl Arguments {
    /// Returns true if it only prints.
    pub(super) fn is_preview(&self) -> bool {
        self.preview.list || self.preview.plan
    }
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
struct Planned<'a> {
    schema_version: u32,
    image: &'a SeedTarget,
    form: Layout,
    version: &'a Version,
    services: Vec<&'a str>,
    steps: Vec<&'static str>,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
struct Made<'a> {
    schema_version: u32,
    image: &'a SeedTarget,
    form: Layout,
    version: &'a Version,
    digest: &'a str,
    /// The directory in OCI layout, unless it was pushed.
    #[serde(skip_serializing_if = "Option::is_none")]
    layout: Option<String>,
}

/// Returns the schema of the document.
#[cfg(test)]
pub(in crate::cli) fn schema(generator: schemars::SchemaGenerator) -> schemars::Schema {
    #[expect(dead_code, reason = "its schema alone is used")]
    #[derive(schemars::JsonSchema)]
    #[schemars(untagged)]
    enum Document<'a> {
        /// Of a seed that was made.
        Made(Made<'a>),
        /// With `--plan`.
        Planned(Planned<'a>),
        /// With `--list`.
        Listed(list::Listed<'a>),
    }
    generator.into_root_schema_for::<Document<'static>>()
}

/// Makes a seed, or prints the plan.
pub(super) async fn run(arguments: &Arguments, environment: &Environment) -> Result<u8, CliError> {
    let machine = Machine::open(environment)?;
    let declared = read_usual(&machine.root)?.seed;
    let included = [&*arguments.include, &declared.include].concat();
    let excluded = [&*arguments.exclude, &declared.exclude].concat();
    let paths = SeedPaths::new(&included, &arguments.include_secret, &excluded)?;
    if arguments.preview.list {
        return list::run(&machine, paths, arguments.output).await;
    }
    let image = SeedTarget::new(arguments.image.as_deref().unwrap_or_default())?;
    let version = Version::new(arguments.version.as_deref().unwrap_or_default())?;
    if !Path::new(&arguments.directory).is_absolute() {
        let cause = format!("--directory {}: give an absolute path", arguments.directory);
        return Err(CliError::Usage(cause));
    }
    let directory = seed_directory(&machine.root, &arguments.directory)?;
    let systemd = Systemd::detect(&machine.root)?;
    let host = SeedHost { root: &machine.root, systemd: &systemd };
    let journal = if arguments.preview.plan { None } else { Some(open_journal(&machine.root, environment)?) };
    if let Some(mut journal) = journal {
        machine.ensure_no_update()?;
        if !arguments.yes {
            confirm()?;
        }
        log::start(Format::Text);
        // What an earlier one has stopped is to be stopped by this one, too.
        restore_seed(&mut journal, &host).await?;
        let layout = arguments.form.layout();
        let facts = seed_facts(&machine.root, &machine.stateroots, &systemd, layout, &version, paths).await?;
        let names = Names { image, version, directory };
        return make(arguments, environment, &machine, &host, facts, names, journal).await;
    }
    let services = active_services(&systemd).await?;
    print_plan(arguments, &image, &version, &services)?;
    Ok(0)
}

/// Names of a seed.
struct Names {
    image: SeedTarget,
    version: Version,
    directory: String,
}

async fn make(
    arguments: &Arguments,
    environment: &Environment,
    machine: &Machine,
    host: &SeedHost<'_>,
    facts: SeedFacts,
    Names { image, version, directory }: Names,
    mut journal: SeedJournal,
) -> Result<u8, CliError> {
    let layout = arguments.form.layout();
    let now = Clock::system().now();
    let record = SeedRecord {
        schema: SEED_SCHEMA,
        id: update_id(now)?,
        image: image.clone(),
        layout,
        directory: directory.clone(),
        stopped: facts.services,
        step: None,
        boot_id: machine.boot_id().clone(),
        started: now,
    };
    let proxies = Proxies::new(machine.root.clone(), environment.proxy.clone());
    let work = SeedWork {
        stateroots: &machine.stateroots,
        proxies: &proxies,
        base: facts.base,
        seed: facts.seed,
        auth_file: arguments.authfile.clone(),
    };
    let steps = SeedStep::all(layout, arguments.push);
    let log_progress = |step: OsProgress| tracing::debug!("{step}");
    let stopped = stop_signal().map_err(|source| CliError::Setup { what: "register signals", source })?;
    let end = tokio::select! {
        end = Box::pin(make_seed(&mut journal, record, &steps, host, &work, &log_progress)) => Some(end?),
        () = stopped => None,
    };
    let Some(end) = end else {
        restore_seed(&mut journal, host).await?;
        return Ok(print_failure(
            "stopped by a signal; the host is as it was",
            "Run the command again.",
            FaultClass::Retry,
        ));
    };
    if let Some(count) = environment.fail_points.counted() {
        print(&format!("fail points: {count}"))?;
    }
    match end {
        SeedEnd::Made(digest) => {
            let layout = (!arguments.push).then(|| Path::new(&directory).join("image").display().to_string());
            print_made(arguments, &image, &version, &digest, layout)?;
            Ok(0)
        }
        SeedEnd::Failed(fault) => Ok(print_failure(&fault.message, &fault.next, fault.class)),
    }
}

/// Prints what failed; returns the exit code.
fn print_failure(message: &str, next: &str, class: FaultClass) -> u8 {
    // A standard error that is gone has no reader.
    drop(writeln!(std::io::stderr(), "error: {message}\nNext: {next}"));
    class.exit_code()
}

fn print_plan(
    arguments: &Arguments,
    image: &SeedTarget,
    version: &Version,
    services: &[UnitName],
) -> Result<(), CliError> {
    let form = arguments.form.layout();
    let services: Vec<&str> = services.iter().map(UnitName::as_str).collect();
    let steps: Vec<&str> = SeedStep::all(form, arguments.push).into_iter().map(SeedStep::as_str).collect();
    if arguments.output == Output::Json {
        return print_json(&Planned { schema_version: 1, image, form, version, services, steps });
    }
    let rest = if services.is_empty() {
        "No service is stopped".to_owned()
    } else {
        format!("Stopped meanwhile: {}", services.join(", "))
    };
    print(&format!("{}\n{rest}", steps.join("\n")))
}

fn print_made(
    arguments: &Arguments,
    image: &SeedTarget,
    version: &Version,
    digest: &str,
    layout: Option<String>,
) -> Result<(), CliError> {
    let form = arguments.form.layout();
    if arguments.output == Output::Json {
        return print_json(&Made { schema_version: 1, image, form, version, digest, layout });
    }
    match layout {
        None => print(&format!("Pushed {}", image.with_digest(digest))),
        Some(layout) => print(&format!(
            "Made {digest} in {layout}\nPush it: skopeo copy --preserve-digests oci:{layout}:seed docker://{image}"
        )),
    }
}

/// Asks a person; refuses when there is none.
fn confirm() -> Result<(), CliError> {
    let refused = || CliError::Usage("not confirmed; pass --yes to skip the prompt".to_owned());
    if !std::io::stdin().is_terminal() {
        return Err(refused());
    }
    let mut out = std::io::stdout().lock();
    let question = "Stop kubelet and CRI-O with all containers while /etc and /var are archived? [y/N] ";
    out.write_all(question.as_bytes()).and_then(|()| out.flush()).map_err(CliError::Output)?;
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer).map_err(CliError::Output)?;
    if matches!(answer.trim(), "y" | "Y" | "yes") { Ok(()) } else { Err(refused()) }
}
