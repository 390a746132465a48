//! `run`: the controllers, in a cluster.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{CliError, VerbOutput};
use crate::build::JobSettings;
use crate::controllers::{self, Controller, Format, Options, Timing};

/// The largest file of settings.
const MAX_SETTINGS: u64 = 64 << 10;

/// Flags of `run`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  machine-config-controller run --kubeconfig ~/.kube/config --controllers render\n\n\
    Any number of replicas may run: one at a time leads, the others wait."
)]
pub(super) struct Arguments {
    /// Controllers to run
    #[arg(
        long,
        value_name = "NAMES",
        value_delimiter = ',',
        default_value = "render,node,drain,opt-in,build"
    )]
    controllers: Vec<Controller>,
    /// Run one controller although the Machine Config Operator is at work; it takes over that part of the operator
    #[arg(long)]
    beside_mco: bool,
    /// Access to the API server [default: the pod's service account, else $KUBECONFIG]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Namespace of the Lease
    #[arg(long, value_name = "NAME", default_value = "openshift-machine-config-operator")]
    namespace: String,
    /// Name of the Lease; replicas that run other controllers need another one
    #[arg(long, value_name = "NAME", default_value = "machine-config-agent-controller")]
    lease: String,
    /// Time after which another replica takes a Lease that is not renewed
    #[arg(long, value_name = "SECONDS", default_value_t = 137, value_parser = clap::value_parser!(u64).range(1..=3600))]
    lease_duration: u64,
    /// Time that the leader acts after its last renewal; less than the duration [default: 78 % of it]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=3600))]
    lease_renew_deadline: Option<u64>,
    /// Time between renewals of the Lease [default: 24 % of the renew deadline]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=3600))]
    lease_retry_period: Option<u64>,
    /// This replica's name, such as its pod's
    #[arg(long, value_name = "NAME", default_value = "machine-config-controller")]
    name: String,
    /// Node that this replica runs on; it is updated last
    #[arg(long, value_name = "NAME")]
    node_name: Option<String>,
    /// Address of /metrics, /healthz and /readyz
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8798")]
    metrics_listen: SocketAddr,
    /// Settings of builds, as YAML: their images, resources, nodes; without the file nothing is built
    #[arg(long, value_name = "FILE")]
    build_settings: Option<PathBuf>,
    /// For tests: die before this many writes
    #[cfg(debug_assertions)]
    #[arg(long, value_name = "COUNT", hide = true)]
    abort_at_write: Option<u64>,
    /// Log format
    #[arg(long, value_enum, default_value_t = Format::Text)]
    log_format: Format,
}

/// Runs them.
pub(super) fn run(arguments: &Arguments) -> Result<VerbOutput, CliError> {
    if arguments.beside_mco && arguments.controllers.len() != 1 {
        return Err(CliError::Usage(
            "--beside-mco runs one controller; name it with --controllers, such as --controllers opt-in"
                .to_owned(),
        ));
    }
    let options = Options {
        controllers: arguments.controllers.clone(),
        beside_mco: arguments.beside_mco,
        kubeconfig: arguments.kubeconfig.clone(),
        namespace: arguments.namespace.clone(),
        lease: arguments.lease.clone(),
        lease_timing: timing(arguments)?,
        identity: identity(&arguments.name),
        own_node: arguments.node_name.clone().filter(|name| !name.is_empty()),
        metrics_listen: arguments.metrics_listen,
        build: arguments.build_settings.as_deref().map(build_settings).transpose()?.unwrap_or_default(),
        #[cfg(debug_assertions)]
        abort_at_write: arguments.abort_at_write,
        log_format: arguments.log_format,
    };
    controllers::run(&options)?;
    Ok(VerbOutput::done(String::new()))
}

/// Reads the times of the Lease.
fn timing(arguments: &Arguments) -> Result<Timing, CliError> {
    let deadline = arguments.lease_renew_deadline.map(Duration::from_secs);
    let retry = arguments.lease_retry_period.map(Duration::from_secs);
    Timing::new(Duration::from_secs(arguments.lease_duration), deadline, retry)
        .map_err(|error| CliError::Usage(error.to_string()))
}

/// Reads the settings of builds.
#[expect(clippy::disallowed_methods, reason = "a file that a person names")]
fn build_settings(path: &Path) -> Result<JobSettings, CliError> {
    use std::io::Read as _;
    let failed = |cause: String| {
        CliError::Usage(format!("{}: {cause}; correct this file of --build-settings", path.display()))
    };
    let file = match std::fs::File::open(path) {
        Ok(file) => file,
        // Optional in a pod, as its ConfigMap is; where an image is to be built, the pool names the missing setting.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(JobSettings::default()),
        Err(error) => return Err(failed(error.to_string())),
    };
    let mut text = String::new();
    file.take(MAX_SETTINGS).read_to_string(&mut text).map_err(|error| failed(error.to_string()))?;
    serde_saphyr::from_str(&text).map_err(|error| failed(error.to_string()))
}

/// Returns a name that no other process has, also none before a restart.
fn identity(name: &str) -> String {
    use std::hash::{BuildHasher as _, Hasher as _};
    // The standard library's hasher is seeded by the kernel.
    let random = std::collections::hash_map::RandomState::new().build_hasher().finish();
    format!("{name}_{random:016x}")
}
