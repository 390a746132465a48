//! `bootstrap` and `validate`: the rendered configs of manifests, before there is a cluster.

use std::path::PathBuf;

use super::build::{BuilderFlags, by_digest_now, run_build};
use super::build_accounts::{Account, Accounts};
use super::build_log::BuildLog;
use super::faults::refuse;
use super::input::Left;
use super::{CliError, Input, VerbOutput};
use crate::bootstrap::{
    Output, Purpose, Unbuilt, bootstrap, credentials, generate, set_image, unbuilt, write,
};
use crate::image::local::Order;
use crate::image::{ApplyBy, Context, Request, compose};
use crate::manifests::Manifests;
use crate::model::NotApplied;

/// Flags of `bootstrap`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  machine-config-controller bootstrap --manifests cluster/ --output /etc/mcs/bootstrap\n  \
    machine-config-controller serve --directory /etc/mcs/bootstrap --tls-cert tls.crt --tls-key tls.key"
)]
pub(super) struct Arguments {
    #[command(flatten)]
    input: Input,
    #[command(flatten)]
    left: Left,
    /// Directory to write; one of an earlier run is replaced as a whole
    #[arg(long, value_name = "DIR")]
    output: PathBuf,
    /// Build and push the images of pools that have none
    #[arg(long)]
    build: bool,
    /// Bring all pools into image mode
    #[arg(long, requires_all = ["build", "push", "push_secret"])]
    image_mode: bool,
    /// Repository of these pools' images
    #[arg(long, value_name = "IMAGE", requires = "image_mode")]
    push: Option<String>,
    /// Name of the cluster's Secret for later pushes
    #[arg(long, value_name = "NAME", requires = "image_mode")]
    push_secret: Option<String>,
    #[command(flatten)]
    builder: BuilderFlags,
}

/// Builds where that is requested, renders and writes.
pub(super) fn run(arguments: &Arguments) -> Result<VerbOutput, CliError> {
    let input = &arguments.input;
    let (mut manifests, unread) = Manifests::collect(&input.manifests, input.unknown.fields())?;
    manifests.left_to_cluster = arguments.left.leave_to_cluster.iter().cloned().collect();
    let release = manifests.release(input.os_image.as_deref());
    let mut built = Vec::new();
    if let (true, Some(push), Some(secret)) = (arguments.image_mode, &arguments.push, &arguments.push_secret)
    {
        generate(&mut manifests, push, secret);
    }
    if arguments.build {
        let unbuilt = refuse(&manifests, &unread, unbuilt(&manifests, &release));
        let unbuilt = unbuilt.map_err(|error| error.noted(manifests.notes.clone()))?;
        built = build(&mut manifests, unbuilt, &arguments.builder)?;
    }
    let output = refuse(&manifests, &unread, bootstrap(&manifests, &release));
    let mut output = output.map_err(|error| error.noted(manifests.notes.clone()))?;
    for name in &built {
        let config = manifests.os_configs.get(name).cloned();
        output.os_configs.extend(config.map(|config| (name.clone(), config)));
    }
    write(&output, &arguments.output).map_err(|error| CliError::Failed(error.to_string()))?;
    Ok(VerbOutput::done(text(&output)).with_notes(manifests.notes))
}

/// A build with all that it needs.
struct Prepared {
    build: Unbuilt,
    context: Context,
    accounts: Accounts,
}

/// Builds the images that are missing; returns whose. All is checked before the first one is built.
fn build(
    manifests: &mut Manifests,
    unbuilt: Vec<Unbuilt>,
    flags: &BuilderFlags,
) -> Result<Vec<String>, CliError> {
    let of_object =
        |name: &str, error: CliError| CliError::Failed(format!("MachineOSConfig {name}: {error}"));
    let mut prepared = Vec::new();
    for build in unbuilt {
        let name = build.os_config.clone();
        prepared.push(prepare(manifests, build, flags).map_err(|error| of_object(&name, error))?);
    }
    let mut log = BuildLog::open(&flags.work_dir)?;
    let mut built = Vec::new();
    for Prepared { build, context, accounts } in prepared {
        log.line(&format!("MachineOSConfig {}: builds {}", build.os_config, build.push));
        let order = Order {
            context: &context,
            push: &build.push,
            authfile: None,
            push_authfile: None,
            secrets: &[],
            mounts: &[],
            timestamp: 0,
        };
        let image = run_build(flags, &accounts, &order, &mut log);
        let (image, _) = image.map_err(|error| of_object(&build.os_config, error))?;
        log.line(&format!("MachineOSConfig {}: built {image}", build.os_config));
        set_image(manifests, &build.os_config, &image);
        built.push(build.os_config);
    }
    Ok(built)
}

fn prepare(manifests: &mut Manifests, build: Unbuilt, flags: &BuilderFlags) -> Result<Prepared, CliError> {
    let accounts = accounts(manifests, &build, flags)?;
    let request = Request {
        rendered: &build.rendered,
        pool: Some(&build.pool),
        base: &build.base,
        containerfile: &build.containerfile,
        apply_by: ApplyBy::Agent,
        trust: None,
    };
    // Refused before a registry is asked.
    compose(&request)?;
    let pinned = by_digest_now(&build.base, flags, &accounts)?;
    let context = compose(&Request { base: pinned.as_deref().unwrap_or(&build.base), ..request })?;
    Ok(Prepared { build, context, accounts })
}

/// Returns the accounts of a build: those of the command line, or else the Secrets that its `MachineOSConfig` names.
fn accounts(manifests: &mut Manifests, build: &Unbuilt, flags: &BuilderFlags) -> Result<Accounts, CliError> {
    let mut accounts = flags.accounts()?;
    let mut of_secret = |purpose: Purpose, name: Option<&String>| {
        let found = credentials(manifests, build, purpose);
        let found = found.map_err(|error| CliError::Failed(error.to_string()))?;
        if let (None, Some(name)) = (&found, name) {
            manifests.notes.push(format!(
                "MachineOSConfig {}: Secret {name} is not among the manifests, so the build has no credentials of it; add it, or \
                 name {} FILE",
                build.os_config,
                purpose.flag()
            ));
        }
        found.as_ref().map(Account::of_secret).transpose()
    };
    if accounts.push.is_none() {
        accounts.push = of_secret(Purpose::Push, Some(&build.push_secret))?;
    }
    if accounts.pull.is_none() {
        accounts.pull = of_secret(Purpose::Pull, build.pull_secret.as_ref())?;
    }
    Ok(accounts)
}

pub(super) fn text(output: &Output) -> String {
    let line = |(name, pool): (&String, &crate::api::MachineConfigPool)| {
        let config = pool.spec.configuration.clone().unwrap_or_default();
        let sources = config.source.unwrap_or_default().len();
        format!("pool {name}: {} of {sources} MachineConfigs\n", config.name.unwrap_or_default())
    };
    let remark = |(pool, remark): &(String, NotApplied)| format!("pool {pool}: not applied: {remark}\n");
    output.pools.iter().map(line).chain(output.remarks.iter().map(remark)).collect()
}
