//! `build`: an OS image that carries a rendered config, made on this machine.

use std::path::{Path, PathBuf};
use std::time::Duration;

use schemars::JsonSchema;
use serde::Serialize;

use super::build_accounts::{Account, Accounts};
use super::build_log::BuildLog;
use super::build_registry::{by_digest, check_push};
use super::input::Unknown;
use super::{CliError, VerbOutput};
use crate::api::MachineConfig;
use crate::image::local::{Local, Order};
use crate::image::{AGENT, ApplyBy, Request, compose};
use crate::manifests::Manifests;
use crate::render::{RenderError, check_rendered};

/// The largest file that a person names.
const MAX_FILE: u64 = 1 << 20;

/// Flags of `build`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  machine-config-controller render --manifests cluster/ --pool worker >rendered.yaml\n  \
    machine-config-controller build --config rendered.yaml --pool worker --push registry.example/os:worker\n\n\
    Needs buildah. Prints the image by digest."
)]
pub(super) struct Arguments {
    /// The rendered MachineConfig, or `-`
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    #[command(flatten)]
    unknown: Unknown,
    /// Base image (default: the config's osImageURL)
    #[arg(long, value_name = "IMAGE")]
    base: Option<String>,
    /// Your Containerfile; the last stage begins with FROM configs
    #[arg(long, value_name = "FILE")]
    containerfile: Option<PathBuf>,
    /// Image to push, with a tag
    #[arg(long, value_name = "IMAGE", required_unless_present = "print")]
    push: Option<String>,
    /// Pool, for the image's label
    #[arg(long, value_name = "NAME")]
    pool: Option<String>,
    #[command(flatten)]
    builder: BuilderFlags,
    /// Program that applies the config in the image
    #[arg(long, value_enum, default_value_t = By::Agent)]
    apply: By,
    /// Additional trusted certificates of the image, PEM
    #[arg(long, value_name = "FILE")]
    trust_bundle: Option<PathBuf>,
    /// Secret for RUN --mount=type=secret, not in the image: id=NAME,src=FILE
    #[arg(long, value_name = "SECRET")]
    secret: Vec<String>,
    /// Directory that RUN sees, not in the image: entitlements, repositories
    #[arg(long, value_name = "SOURCE:TARGET")]
    mount: Vec<String>,
    /// Time of the image and its files, in seconds since 1970
    #[arg(long, value_name = "SECONDS", default_value_t = 0)]
    timestamp: u32,
    /// Print the Containerfile, and build nothing
    #[arg(long)]
    print: bool,
    /// Output format of the result
    #[arg(long, short, value_enum, default_value_t = Output::Text)]
    output: Output,
}

/// Flags of local builds.
#[derive(Debug, clap::Args)]
pub(super) struct BuilderFlags {
    /// Credentials of registries
    #[arg(long, value_name = "FILE")]
    authfile: Option<PathBuf>,
    /// Other credentials for the push
    #[arg(long, value_name = "FILE")]
    push_authfile: Option<PathBuf>,
    /// The agent that the steps run (default: beside this program)
    #[arg(long, value_name = "FILE")]
    agent: Option<PathBuf>,
    /// Working directory and cache
    #[arg(long, value_name = "DIR", default_value = "/var/lib/machine-config-controller/build")]
    pub(super) work_dir: PathBuf,
    /// Storage driver of buildah (default: its choice)
    #[arg(long, value_name = "NAME")]
    storage_driver: Option<String>,
    /// Allow registries without TLS
    #[arg(long)]
    insecure: bool,
    /// Timeout, minutes
    #[arg(long, value_name = "MINUTES", default_value_t = 120, value_parser = clap::value_parser!(u64).range(1..=1440))]
    timeout: u64,
}

impl BuilderFlags {
    /// Returns the accounts that a person names; one that is named alone pulls and pushes.
    pub(super) fn accounts(&self) -> Result<Accounts, CliError> {
        let read = |path: &PathBuf| Ok::<_, CliError>(Account::of_file(path, text(path)?));
        Ok(Accounts {
            pull: self.authfile.as_ref().map(read).transpose()?,
            push: self.push_authfile.as_ref().or(self.authfile.as_ref()).map(read).transpose()?,
        })
    }
}

/// Program that applies the config to the image.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum By {
    /// The agent's own apply, as on a node
    Agent,
    /// The base image's Ignition
    Ignition,
}

/// Output format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Output {
    /// Human-readable
    Text,
    /// Machine-readable
    Json,
}

/// A pushed image.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Built<'a> {
    schema_version: u32,
    /// The config that it carries.
    config: Option<&'a str>,
    /// The image that it was made of, by digest.
    base: &'a str,
    image: &'a str,
    digest: &'a str,
}

/// Builds it.
pub(super) fn run(arguments: &Arguments) -> Result<VerbOutput, CliError> {
    let (rendered, notes) = rendered(&arguments.config, arguments.unknown)?;
    check_rendered(&rendered)?;
    let base =
        arguments.base.as_deref().or(rendered.spec.os_image_url.as_deref()).filter(|base| !base.is_empty());
    let base =
        base.ok_or_else(|| CliError::Usage("the config has no osImageURL; name --base IMAGE".to_owned()))?;
    let accounts = arguments.builder.accounts()?;
    let pinned = if arguments.print { None } else { by_digest_now(base, &arguments.builder, &accounts)? };
    let base = pinned.as_deref().unwrap_or(base);
    let containerfile = arguments.containerfile.as_deref().map(text).transpose()?.unwrap_or_default();
    let trust = arguments.trust_bundle.as_deref().map(text).transpose()?;
    let request = Request {
        rendered: &rendered,
        pool: arguments.pool.as_deref(),
        base,
        containerfile: &containerfile,
        apply_by: match arguments.apply {
            By::Agent => ApplyBy::Agent,
            By::Ignition => ApplyBy::Ignition,
        },
        trust: trust.as_deref().map(str::as_bytes),
    };
    let context = compose(&request)?;
    let Some(push) = arguments.push.as_deref().filter(|_| !arguments.print) else {
        return Ok(VerbOutput::done(context.containerfile).with_notes(notes));
    };
    let order = Order {
        context: &context,
        push,
        authfile: None,
        push_authfile: None,
        secrets: &arguments.secret,
        mounts: &arguments.mount,
        timestamp: arguments.timestamp,
    };
    let mut log = BuildLog::open(&arguments.builder.work_dir)?;
    log.line(&format!("{}: builds {push}", rendered.metadata.name.as_deref().unwrap_or_default()));
    let (image, digest) = run_build(&arguments.builder, &accounts, &order, &mut log)?;
    Ok(VerbOutput::done(match arguments.output {
        Output::Text => format!("{image}\n"),
        Output::Json => {
            let config = rendered.metadata.name.as_deref();
            let built = Built { schema_version: 1, config, base, image: &image, digest: &digest };
            serde_json::to_string(&built).map_err(RenderError::from)? + "\n"
        }
    })
    .with_notes(notes))
}

/// Builds and pushes an image; returns it by digest, and the digest. Each line is on standard error, and in the log.
pub(super) fn run_build(
    flags: &BuilderFlags,
    accounts: &Accounts,
    order: &Order<'_>,
    log: &mut BuildLog,
) -> Result<(String, String), CliError> {
    let repository = repository(order.push)?;
    let order = Order {
        authfile: accounts.pull.as_ref().map(Account::path),
        push_authfile: accounts.push.as_ref().map(Account::path),
        ..order.clone()
    };
    let builder = builder(flags)?;
    let runtime = runtime()?;
    if let Some(account) = &accounts.push {
        let checked = runtime.block_on(check_push(order.push, account, flags.insecure));
        checked.inspect_err(|error| log.line(&error.to_string()))?;
    }
    let built = runtime.block_on(builder.build(&order, &mut |line| {
        use std::io::Write as _;
        log.line(line);
        // A closed standard error does not stop the build.
        drop(writeln!(std::io::stderr(), "{line}"));
    }));
    let digest = built.inspect_err(|error| log.line(&error.to_string()))?;
    Ok((format!("{repository}@{digest}"), digest))
}

/// Asks for the digest of a base by tag.
pub(super) fn by_digest_now(
    base: &str,
    flags: &BuilderFlags,
    accounts: &Accounts,
) -> Result<Option<String>, CliError> {
    Ok(runtime()?.block_on(by_digest(base, accounts.pull.as_ref(), flags.insecure)))
}

fn runtime() -> Result<tokio::runtime::Runtime, CliError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|error| CliError::Failed(error.to_string()))
}

fn builder(flags: &BuilderFlags) -> Result<Local, CliError> {
    let beside = || {
        let own = std::env::current_exe()
            .map_err(|error| CliError::Usage(format!("--agent is needed: {error}")))?;
        Ok::<_, CliError>(own.with_file_name(AGENT))
    };
    Ok(Local {
        buildah: "buildah".into(),
        agent: flags.agent.clone().map_or_else(beside, Ok)?,
        work: flags.work_dir.clone(),
        storage_driver: flags.storage_driver.clone(),
        tls_verify: !flags.insecure,
        timeout: Duration::from_secs(flags.timeout.saturating_mul(60)),
    })
}

/// The one MachineConfig of the file.
fn rendered(path: &Path, unknown: Unknown) -> Result<(MachineConfig, Vec<String>), CliError> {
    let mut manifests = Manifests::default();
    manifests.replace_by_file(path, unknown.fields())?;
    let notes = std::mem::take(&mut manifests.notes);
    let mut configs = manifests.configs.into_values();
    match (configs.next(), configs.next()) {
        (Some(config), None) => Ok((config, notes)),
        (None, _) => Err(CliError::Usage(format!("{}: it has no MachineConfig", path.display()))),
        (Some(_), Some(_)) => {
            let cause = "it has more than one MachineConfig; `render --pool NAME` prints one";
            Err(CliError::Usage(format!("{}: {cause}", path.display())))
        }
    }
}

/// `registry/name:tag` without its tag.
fn repository(push: &str) -> Result<&str, CliError> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-:/".contains(c);
    let named = push
        .rsplit_once(':')
        .filter(|(_, tag)| !tag.contains('/'))
        .map_or(push, |(repository, _)| repository);
    if named.contains('/') && !named.contains("//") && push.chars().all(is_plain) {
        return Ok(named);
    }
    Err(CliError::Usage(format!("--push {push:?}: give it as registry/name:tag")))
}

#[expect(clippy::disallowed_methods, reason = "a file that a person names")]
fn text(path: &Path) -> Result<String, CliError> {
    use std::io::Read as _;
    let failed = |cause: String| CliError::Usage(format!("{}: {cause}", path.display()));
    let file = std::fs::File::open(path).map_err(|error| failed(error.to_string()))?;
    let mut text = String::new();
    file.take(MAX_FILE + 1).read_to_string(&mut text).map_err(|error| failed(error.to_string()))?;
    if u64::try_from(text.len()).is_ok_and(|len| len > MAX_FILE) {
        return Err(failed(format!("it is larger than {MAX_FILE} bytes")));
    }
    Ok(text)
}
