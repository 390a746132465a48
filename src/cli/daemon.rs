//! `daemon`: the agent.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::ValueEnum;
use tracing::{info, warn};

use super::CliError;
use super::agent_flags::ContainerFlags;
use super::earlier_installation::drop_not_own;
use super::first_target;
use super::host::{REBOOT_REQUIRED, runtime};
use super::last_report::{self, Follows, SavedReport};
use super::output::Output;
use super::settings::SettingsFile;
use super::stages;
use super::telemetry::{ListenFlags, telemetry};
use crate::agent::{Agent, ExitReason, ProcessSignals, SeedRestorer};
use crate::control::directory::Directory;
use crate::control::encapsulated::{self, ENCAPSULATED};
use crate::control::kube::{Cluster, DrainBy, Identity, Mounted};
use crate::control::{ControlError, ControlPlane};
use crate::host::{Host, Root, machine_name};
use crate::journal::{Journal, hosted};
use crate::model::ConfigName;
use crate::model::message;
use crate::model::text::chain;
use crate::settings::Environment;
use crate::telemetry::kubelet::KubeletProbe;
use crate::telemetry::listen::Reviewer;
use crate::telemetry::log::{self, Format};
use crate::telemetry::metrics::Reading;

/// Flags of `daemon`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  machine-config-agent daemon --kubeconfig /var/lib/kubelet/kubeconfig\n  \
    machine-config-agent daemon --directory /etc/machine-config-agent"
)]
pub(super) struct Arguments {
    /// Kubeconfig to reach the cluster with (several: the first one that exists); default in a pod: its service account
    #[arg(long, value_name = "FILE", conflicts_with = "directory")]
    kubeconfig: Vec<PathBuf>,
    /// Kubeconfig of the host's kubelet, to write the Node if the other account may not; a service account uses its API
    /// server, too
    #[arg(long, value_name = "FILE", conflicts_with = "directory")]
    kubelet_kubeconfig: Option<PathBuf>,
    /// Directory of target.yaml and machineconfigs/; gets report.json
    #[arg(long, value_name = "DIR", conflicts_with = "root_mount")]
    directory: Option<PathBuf>,
    /// Accept unknown fields of the directory's files, and report them
    #[arg(long, requires = "directory")]
    allow_unknown_fields: bool,
    /// Mounted config of a hosted cluster's node (`config`, `hash`)
    #[arg(long, value_name = "DIR", conflicts_with = "directory")]
    desired_configmap: Option<PathBuf>,
    /// Read DIR as bootstrap output, and follow this pool's config
    #[arg(long, value_name = "NAME", requires = "directory", value_parser = |name: &str| ConfigName::new(name))]
    pool: Option<ConfigName>,
    /// Name of this node (default: `NODE_NAME`, then the kubelet's certificate, then the host name)
    #[arg(long, value_name = "NAME")]
    node_name: Option<String>,
    /// Follow ImageBasedUpgrade and SeedGenerator of one node
    #[arg(long, requires = "kubeconfig", conflicts_with_all = ["directory", "root_mount", "desired_configmap"])]
    lifecycle: bool,
    /// Who drains the node: the drain controller or the agent
    #[arg(long, value_enum, default_value_t = DrainFlag::Controller, conflicts_with = "directory")]
    drain: DrainFlag,
    #[command(flatten)]
    container: ContainerFlags,
    #[command(flatten)]
    listen: ListenFlags,
    /// Log format outside of the journal
    #[arg(long, value_enum, default_value_t = Output::Text)]
    log_format: Output,
}

/// The actor of the drain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum DrainFlag {
    /// The cluster's drain controller, asked by an annotation
    Controller,
    /// The agent, by the eviction API
    #[value(name = "self")]
    Agent,
}

/// Source of targets.
enum Source {
    Directory(PathBuf),
    Cluster(Identity),
}

/// Runs the agent until it is stopped.
pub(super) fn run(arguments: &Arguments, environment: &Environment) -> Result<u8, CliError> {
    log::start(match arguments.log_format {
        Output::Json => Format::Json,
        Output::Text if environment.journal => Format::Journal,
        Output::Text => Format::Text,
    });
    runtime()?.block_on(async {
        let mut stop = ProcessSignals::register()
            .map_err(|source| CliError::Setup { what: "register signals", source })?;
        let (source, node) = named(source(arguments, environment)?, arguments, environment);
        // Opened before: the certificate of the listener is a file of the container.
        let own = Root::open(Path::new("/"))?;
        let mounted = arguments.desired_configmap.as_deref().map(Mounted::open).transpose()?;
        let (node_settings, host) = arguments.container.open(environment)?;
        if let (Some(path), None) = (&arguments.directory, &arguments.pool)
            && !first_target::wait(path, &host.root, environment, &mut stop).await?
        {
            return Ok(0);
        }
        let setting = Setting { arguments, environment, node_settings: &node_settings, node: &node, own: &own, kubelet: None };
        match source {
            Source::Directory(path) => {
                let control = Directory::of_pool(&path, arguments.pool.as_ref())?;
                let control = control.with_unknown_fields(arguments.allow_unknown_fields);
                let container = &arguments.container;
                let stages = match &arguments.pool {
                    Some(_) => None,
                    None => Some(stages::of_directory(&path, container, &host, &node_settings, &node)?),
                };
                let follow = Box::pin(setting.follow(host, control, stop, Vec::new(), None));
                Box::pin(stages::beside(follow, stages)).await
            }
            Source::Cluster(identity) => {
                let known = identity.clone();
                let renamed = known.renamed();
                let mut cluster = connected(identity, arguments, &host, &node)?;
                if let Some(mounted) = mounted {
                    cluster = cluster.with_mounted(mounted);
                }
                let kubelet = Arc::new(KubeletProbe::default());
                let mut readings = super::telemetry::of_link(&cluster.traffic());
                readings.push(super::telemetry::of_kubelet(&kubelet));
                let setting = Setting { kubelet: Some(&kubelet), ..setting };
                let authorizer = Box::new(super::telemetry::ClusterAuthorizer(cluster.reviews()));
                let stages =
                    arguments.lifecycle.then(|| stages::of_cluster(&cluster, &arguments.container, &host, &node_settings, &node));
                let guard = stages::SeedGuard::new(&host, &node);
                let follow = Box::pin(setting.follow(host, cluster, stop, readings, Some(authorizer)));
                let follow = Box::pin(stages::beside(follow, stages));
                let work = async {
                    tokio::select! {
                        ended = follow => ended,
                        // An update under way continues from its record, as after a kill.
                        name = renamed => {
                            info!(MESSAGE_ID = message::STOPPED, "The access names node {name}; restarting for it");
                            Ok(0)
                        }
                    }
                };
                Box::pin(guard.around(work)).await
            }
        }
    })
}

/// Returns the cluster as the arguments reach it.
fn connected(
    identity: Identity,
    arguments: &Arguments,
    host: &Host,
    node: &str,
) -> Result<Cluster, ControlError> {
    let drain_by = match arguments.drain {
        DrainFlag::Controller => DrainBy::Controller,
        DrainFlag::Agent => DrainBy::Agent,
    };
    let identity = identity.through(host.proxies.clone());
    let Some(path) = &arguments.kubelet_kubeconfig else {
        return Cluster::start(identity, node, host.root.clone(), drain_by);
    };
    let kubelet = Identity::host_kubeconfig(&host.root, path).assuming(node).through(host.proxies.clone());
    let identity = identity.at_server_of(kubelet.clone());
    Ok(Cluster::start(identity, node, host.root.clone(), drain_by)?.writing_as(kubelet))
}

/// Settings of the process.
#[derive(Clone, Copy)]
struct Setting<'a> {
    arguments: &'a Arguments,
    environment: &'a Environment,
    node_settings: &'a SettingsFile,
    node: &'a str,
    /// The file system that the process was started in.
    own: &'a Root,
    /// The kubelet, on a node of a cluster.
    kubelet: Option<&'a Arc<KubeletProbe>>,
}

impl Setting<'_> {
    /// Runs the loop.
    async fn follow(
        self,
        host: Host,
        control: impl ControlPlane,
        stop: ProcessSignals,
        readings: Vec<Reading>,
        reviewer: Option<Box<dyn Reviewer>>,
    ) -> Result<u8, CliError> {
        let mut journal = Journal::open(host.root.clone(), self.environment.fail_points.clone())?;
        if host.root.exists(ENCAPSULATED)? {
            drop_not_own(&mut journal)?;
        }
        if self.arguments.desired_configmap.is_some() {
            hosted::import_node(&mut journal, host.clock.now())?;
        }
        let settings_loader = self.node_settings.settings_loader(&host.root);
        // Nobody but this process reads it for its time, so an unreadable one is no news here.
        let before = SavedReport::load(&host.root).ok().flatten();
        last_report::mark_stopped(&host.root);
        clear_leftovers(&host.root);
        let restorer = SeedRestorer::new(&host, self.node);
        let is_restored = restorer.restore().await;
        let last = last_report::writer(&host.root, &follows(self.arguments));
        let mut telemetry = telemetry(self.environment, &host, readings, last);
        if let Some(kubelet) = self.kubelet {
            telemetry.metrics = telemetry.metrics.with_kubelet(Arc::clone(kubelet));
        }
        self.arguments.listen.serve(&telemetry, reviewer, self.own.clone()).await?;
        let root = host.root.clone();
        let mut agent =
            Agent::new(host, journal, control, telemetry, stop, self.node).with_settings(settings_loader);
        agent = agent.with_unrestored(restorer.unrestored());
        if let Some(before) = before {
            agent = agent.continuing(&before.report);
        }
        let end = tokio::select! {
            end = agent.run() => end?,
            // It does not end by itself.
            () = restorer.run(is_restored) => std::future::pending().await,
        };
        last_report::mark_stopped(&root);
        match end {
            ExitReason::Stopped | ExitReason::Settled => Ok(0),
            ExitReason::Reboot => Ok(REBOOT_REQUIRED),
        }
    }
}

/// Removes the provisioning's files: a node with its daemon has come further.
fn clear_leftovers(root: &Root) {
    match encapsulated::clear_leftovers(root) {
        Ok(false) => {}
        Ok(true) => warn!(
            MESSAGE_ID = message::FIRST_BOOT,
            "The first boot was not completed before the daemon started: renamed {ENCAPSULATED}"
        ),
        Err(error) => {
            warn!(
                "Failed to remove the files of the provisioning: {}. Next: {}",
                chain(&error),
                error.next()
            );
        }
    }
}

/// Names where the targets come from, for people.
fn follows(arguments: &Arguments) -> Follows {
    match (&arguments.directory, arguments.kubeconfig.as_slice()) {
        (Some(path), _) => last_report::directory(path, arguments.pool.as_ref()),
        (None, []) => Follows::Cluster("the pod's service account".to_owned()),
        (None, paths) => last_report::of_kubeconfigs(paths),
    }
}

fn source(arguments: &Arguments, environment: &Environment) -> Result<Source, CliError> {
    if let Some(path) = &arguments.directory {
        return Ok(Source::Directory(path.clone()));
    }
    if !arguments.kubeconfig.is_empty() {
        return Ok(Source::Cluster(Identity::kubeconfig(&arguments.kubeconfig).map_err(ControlError::from)?));
    }
    service_account(environment)?.map(Source::Cluster).ok_or_else(|| {
        CliError::Usage("name --kubeconfig FILE or --directory DIR: no service account was found".to_owned())
    })
}

/// Returns the service account of this pod, if it is one.
pub(super) fn service_account(environment: &Environment) -> Result<Option<Identity>, CliError> {
    let Some((host, port)) = &environment.kubernetes else { return Ok(None) };
    Ok(Identity::service_account(host, port).map_err(ControlError::from)?)
}

/// Returns the node's name beside the source. An access that can't be read yet is reported and tried again by the
/// agent, and work on this host does not wait for it: the machine's name serves until then.
fn named(source: Source, arguments: &Arguments, environment: &Environment) -> (Source, String) {
    let given = arguments.node_name.clone().or_else(|| environment.node_name.clone());
    match (given, source) {
        (Some(name), Source::Directory(path)) => (Source::Directory(path), name),
        (Some(name), Source::Cluster(identity)) => (Source::Cluster(identity.given(&name)), name),
        (None, Source::Directory(path)) => (Source::Directory(path), machine_name()),
        (None, Source::Cluster(identity)) => {
            let known = identity.node_name();
            let unreadable = known.is_err();
            let name = known.ok().flatten().unwrap_or_else(machine_name);
            let identity = if unreadable { identity.assuming(&name) } else { identity };
            (Source::Cluster(identity), name)
        }
    }
}
