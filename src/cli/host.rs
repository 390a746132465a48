//! Putting the host's handles together for a verb.

use std::path::PathBuf;

use clap::ValueEnum;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};

use super::CliError;
use crate::host::clock::Clock;
use crate::host::failpoint::FailPoints;
use crate::host::os::choice::{BackendParts, CANDIDATES, Choice, RequestedBackend};
use crate::host::os::stateroots::Stateroots;
use crate::host::os::worker::Worker;
use crate::host::power::{Logind, Power, Supervised, check_host};
use crate::host::root::Root;
use crate::host::systemd::Systemd;
use crate::host::{ContainerHandles, Host, Proxies};
use crate::model::ProxySettings;
use crate::model::node_settings::{OsLimits, SoftReboot};
use crate::settings::Environment;

/// The exit code that makes a supervisor play the reboot (as `systemd-nspawn` does for a guest's).
pub(super) const REBOOT_REQUIRED: u8 = 133;

/// The exit code of a first boot that was stopped before its end.
pub(super) const STOPPED: u8 = 104;

/// Parses `--os-backend`.
fn os_backend() -> impl TypedValueParser<Value = RequestedBackend> {
    let auto = "Detected on a booted ostree host: rpm-ostree, else bootc, else libostree; none elsewhere";
    let auto = PossibleValue::new("auto").help(auto);
    let named = CANDIDATES.iter().map(|candidate| PossibleValue::new(candidate.name).help(candidate.help));
    PossibleValuesParser::new(std::iter::once(auto).chain(named))
        .try_map(|name| RequestedBackend::from_name(&name).ok_or("unknown backend"))
}

/// Source of a reboot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum RebootBy {
    /// systemd-logind
    Logind,
    /// The supervisor: the agent exits with code 133
    Supervisor,
}

impl RebootBy {
    /// Returns what reboots.
    pub(super) fn power(self, root: &Root) -> Box<dyn Power> {
        match self {
            Self::Logind => Box::new(Logind::new(root)),
            Self::Supervisor => Box::new(Supervised::new(root)),
        }
    }
}

/// The flags that name the host, the same in every verb.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct HostFlags {
    /// Root of the host
    #[arg(long, value_name = "DIR", default_value = "/")]
    pub(super) root: PathBuf,
    /// Backend that switches the OS
    #[arg(long, value_parser = os_backend(), default_value = "auto")]
    os_backend: RequestedBackend,
}

impl HostFlags {
    /// Opens the host that this process may have entered.
    pub(super) fn open(
        &self,
        reboot_by: RebootBy,
        environment: &Environment,
        entered: ContainerHandles,
    ) -> Result<Host, CliError> {
        self.assemble(reboot_by, environment.fail_points.clone(), environment.proxy.clone(), entered)
    }

    /// Returns the stateroots of the host, which is not entered.
    pub(super) fn stateroots(&self, proxies: &Proxies) -> Stateroots {
        let worker = Worker::new(&self.root, ContainerHandles::default());
        Stateroots::new(worker.through(proxies.clone()))
    }

    /// Opens a host that is only read.
    pub(super) fn observe(&self) -> Result<Host, CliError> {
        self.observe_through(ProxySettings::default())
    }

    /// Opens a host that is only read; images are read through these proxies.
    pub(super) fn observe_through(&self, proxy: ProxySettings) -> Result<Host, CliError> {
        self.assemble(RebootBy::Supervisor, FailPoints::off(), proxy, ContainerHandles::default())
    }

    fn assemble(
        &self,
        reboot_by: RebootBy,
        fail_points: FailPoints,
        proxy: ProxySettings,
        entered: ContainerHandles,
    ) -> Result<Host, CliError> {
        let root = Root::open(&self.root)?.with_fail_points(&fail_points).with_entered(entered.clone());
        check_host(&root)?;
        let power = reboot_by.power(&root);
        let choice = Choice::detect(&root, self.os_backend)?;
        let systemd = Systemd::detect(&root)?;
        let proxies = Proxies::new(root.clone(), proxy);
        let worker = Worker::new(&self.root, entered).through(proxies.clone());
        let parts = BackendParts { root: &root, systemd: &systemd, worker, proxies: &proxies };
        Ok(Host {
            os: choice.open(parts),
            backend_reason: choice.reason.to_owned(),
            limits: OsLimits::default(),
            per_object_fsync: false,
            soft_reboot: SoftReboot::default(),
            spent: std::time::Duration::ZERO,
            systemd,
            clock: Clock::system(),
            power,
            fail_points,
            proxies,
            root,
        })
    }
}

/// The runtime: one thread, because one task owns the journal.
pub(super) fn runtime() -> Result<tokio::runtime::Runtime, CliError> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|source| CliError::Setup { what: "start the runtime", source })
}
