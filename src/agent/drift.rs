//! The drift monitor: an idle host is watched and compared with the committed spec; drift is reported, and repaired if
//! the node's settings say so.
//!
//! The watch only reports that something may have changed; the differences are observed again. A changed file is
//! observed and reported first, beside the last observation of the rest; soon after, all of it is observed, so that the
//! monitor and `verify` can't disagree for long. It is off while an update is under way: nothing is drift then
//! (MCD-184).

use std::time::Duration;

use tracing::{info, warn};

use super::begin::update_id;
use super::errors::log_fault;
use super::fields::update_line;
use super::monitor::{IdleObservation, Last};
use super::{Agent, AgentError, RunMode};
use crate::control::ControlPlane;
use crate::decide::drift::{narrowed, plan_repair};
use crate::decide::inputs::Rest;
use crate::host::accounts::Accounts;
use crate::host::proxy::PROXY_FILE;
use crate::host::watch::{Watch, WatchSet};
use crate::host::{HostError, Root, keys};
use crate::model::ids::UNIT_DIR;
use crate::model::settings::SETTINGS_PATH;
use crate::model::text::chain;
use crate::model::{HostSpec, NotApplied, Observation, ObservedFile, Principal, Sha256, message};
use crate::observe::observe_again;
use crate::plan::differences::{Difference, DifferenceKind, Kind, differences};
use crate::plan::drift::{diff, drift};
use crate::plan::listing::listed;
use crate::plan::{is_gone_with_boot, late, not_applied};
use crate::report::Event;
use crate::update::Record;

/// Files that libostree and its front ends change with every deployment.
const OS_MARKS: [&str; 3] =
    ["/ostree/deploy", "/run/ostree/staged-deployment", "/run/ostree/staged-deployment-locked"];

/// Most differences with a line of their own in the log; `verify` shows all.
const LINES: usize = 20;

impl<C: ControlPlane> Agent<C> {
    /// Compares the idle host with the committed spec.
    pub(super) async fn compare_idle(
        &mut self,
        machine: &Observation,
        last: Option<Last>,
    ) -> Result<Rest, AgentError> {
        let spec = self.journal.current_spec()?;
        if spec.is_unmanaged() {
            return Ok(self.idle(false, None));
        }
        if let Some(booted) = machine.os.booted() {
            self.telemetry.metrics.unsupported_packages(spec.layers().beyond(&booted.local).count());
        }
        let observation = self.observe_idle(&spec, machine, last).await?;
        if let Some(fields) = late::settled(&spec, &observation.observed) {
            self.journal.note_never_applied(fields)?;
        }
        let spec = self.journal.current_spec()?;
        if self.follow_accounts(&spec, &observation.observed)? {
            return Ok(self.idle(true, None));
        }
        self.note_not_applied(not_applied(&spec, &observation.observed));
        let (is_repaired, later) = self.report_drift(&spec, &observation.observed).await?;
        let settle = observation.settle.map(|settle| settle.saturating_sub(self.host.clock.monotonic()));
        self.monitor.last = Some(observation);
        Ok(self.idle(is_repaired, later.into_iter().chain(settle).min()))
    }

    /// Reports what is not applied; the log names each once.
    pub(super) fn note_not_applied(&mut self, found: Vec<NotApplied>) {
        for one in found.iter().filter(|one| !self.health.not_applied.contains(one)) {
            info!("Not applied: {one}");
        }
        self.health.not_applied = found;
    }

    fn idle(&self, is_repaired: bool, again: Option<Duration>) -> Rest {
        Rest { is_as_desired: self.health.drift.is_empty(), is_repaired, again }
    }

    /// Observes the changed paths alone where that is enough, else everything.
    async fn observe_idle(
        &mut self,
        spec: &HostSpec,
        machine: &Observation,
        last: Option<Last>,
    ) -> Result<IdleObservation, AgentError> {
        let now = self.host.clock.monotonic();
        if let Some(Last { observation, changed }) = last
            && let Some((paths, settle)) = narrowed(spec, &changed, observation.settle, now)
        {
            self.begin_observation()?;
            let observed = observe_again(&self.host.root, observation.observed, machine.clone(), &paths)?;
            return Ok(IdleObservation { observed, settle: Some(settle) });
        }
        // A change before the watch began is not reported.
        let again = if self.watch_over(spec)? { self.observe_machine().await? } else { None };
        let machine = again.unwrap_or_else(|| machine.clone());
        self.begin_observation()?;
        Ok(IdleObservation { observed: self.observe_for(spec, machine)?, settle: None })
    }

    /// Notes in the watch that the host is observed. A watch that fails is restarted by the next pass.
    fn begin_observation(&mut self) -> Result<(), AgentError> {
        let Some(watch) = &mut self.monitor.watch else { return Ok(()) };
        watch.begin_observation().inspect_err(|_| self.monitor.watch = None)?;
        Ok(())
    }

    /// Reports the differences, and begins the repair of those to be repaired. Returns true if a repair was begun, and
    /// the delay of a report that is held back.
    async fn report_drift(
        &mut self,
        spec: &HostSpec,
        observed: &Observation,
    ) -> Result<(bool, Option<Duration>), AgentError> {
        // An `apply` answers for its config; other changes of the host are a daemon's news.
        let mut found =
            if self.mode.is_service() { drift(spec, observed) } else { differences(spec, observed) };
        if !self.mode.is_service() {
            // The plan warned of it.
            for gone in found.extract_if(.., |difference| is_gone_with_boot(difference)) {
                warn!(MCA_TARGET = gone.target, "Gone with the boot, and not written again: {gone}");
            }
        }
        let is_repaired = self.repair(spec, observed, &mut found).await?;
        let now = self.host.clock.monotonic();
        add_diffs(&self.host.root, spec, observed, &mut found);
        if found == self.health.drift {
            return Ok((is_repaired, None));
        }
        let later = self.monitor.memory.held_back(&self.health.drift, &found, now).filter(|_| !is_repaired);
        if later.is_none() {
            self.report_drift_change(&found).await;
            self.monitor.memory.reported(now);
            self.health.drift = found;
        }
        Ok((is_repaired, later))
    }

    async fn report_drift_change(&mut self, drift: &[Difference]) {
        for difference in drift.iter().take(LINES) {
            let lines = difference.diff.iter().flat_map(|diff| diff.lines());
            let diff = lines.fold(String::new(), |shown, line| shown + "\n    " + line);
            warn!(MESSAGE_ID = message::DRIFT, MCA_TARGET = difference.target, "Drift: {difference}{diff}");
        }
        if drift.is_empty() {
            info!(MESSAGE_ID = message::DRIFT_GONE, "The host matches its config again");
            return;
        }
        // Contents stay on the node: more people read events than files of nodes.
        self.control.emit(&Event::Drift { cause: listed(drift) }).await;
    }

    /// Watches everything of a spec that can drift, before the host is looked at for it. Returns true if the watch is new.
    pub(super) fn watch_over(&mut self, spec: &HostSpec) -> Result<bool, AgentError> {
        if !self.mode.is_service() {
            return Ok(false);
        }
        let desired = watched(spec, &self.host.root, self.host.os.name())?;
        if self.monitor.watch.as_ref().map(Watch::watch_set) == Some(&desired) {
            return Ok(false);
        }
        match Watch::from_set(&self.host.root, desired) {
            Ok(watch) => {
                if self.monitor.watch.is_none() {
                    info!("Config Drift Monitor started, watching against {}", spec.name);
                }
                self.monitor.watch = Some(watch.prompt());
                self.health.unwatched = None;
                Ok(true)
            }
            Err(error) => {
                // The host is looked at from time to time instead (`wait`), and updates go on.
                self.monitor.watch = None;
                let fault = AgentError::from(error).fault();
                if self.health.unwatched.as_ref() != Some(&fault) {
                    log_fault(&fault, None, self.mode);
                }
                self.health.unwatched = Some(fault);
                Ok(false)
            }
        }
    }

    /// Ends the watch: changes from now on are the update's work.
    pub(super) fn unwatch(&mut self) {
        self.health.unwatched = None;
        if self.monitor.watch.take().is_some() {
            info!("Config Drift Monitor has shut down");
        }
    }

    /// Begins to repair the differences that are to be repaired and can be; notes why the rest is left. Returns true if
    /// it did.
    async fn repair(
        &mut self,
        spec: &HostSpec,
        observed: &Observation,
        found: &mut [Difference],
    ) -> Result<bool, AgentError> {
        let now = self.host.clock.monotonic();
        if !self.mode.is_service() {
            return Ok(false);
        }
        let mut selected = self.monitor.memory.select(found, &self.node_settings, now);
        if selected.is_empty() {
            return Ok(false);
        }
        let policy = match self.control.policy().await {
            Ok(policy) => policy,
            // The drift is reported all the same; a change of the control plane makes the policy readable.
            Err(error) => {
                for (_, difference) in &mut selected {
                    difference.unrepaired = Some(format!("the policy can't be read: {}", chain(&error)));
                }
                return Ok(false);
            }
        };
        let Some(plan) = plan_repair(spec, observed, &mut selected, &policy) else { return Ok(false) };
        let booted = observed.os.booted().map(|os| os.deployment.clone());
        let begun = self.host.clock.now();
        let record = Record::new(update_id(begun)?, plan, observed.boot_id.clone(), booted, begun);
        for (path, difference) in selected.iter().filter(|(_, difference)| difference.unrepaired.is_none()) {
            update_line!(
                info,
                Some(&record),
                MESSAGE_ID = message::REPAIR,
                MCA_TARGET = difference.target,
                "Repairing: {difference}"
            );
            self.monitor.memory.repaired(path.clone(), now);
        }
        self.unwatch();
        self.journal.begin_repair(record)?;
        Ok(true)
    }

    /// Begins to set the keys and the passwords of accounts that have appeared. Returns true if it did.
    fn follow_accounts(&mut self, spec: &HostSpec, observed: &Observation) -> Result<bool, AgentError> {
        let now = self.host.clock.monotonic();
        if self.mode == RunMode::FirstBoot || self.monitor.memory.are_accounts_left(now) {
            return Ok(false);
        }
        let Some(plan) = late::follow(spec, observed) else { return Ok(false) };
        let names: std::collections::BTreeSet<String> =
            plan.steps().iter().map(|step| step.op.target()).collect();
        let target = names.into_iter().collect::<Vec<_>>().join(" ");
        let booted = observed.os.booted().map(|os| os.deployment.clone());
        let begun = self.host.clock.now();
        let record = Record::new(update_id(begun)?, plan, observed.boot_id.clone(), booted, begun);
        update_line!(
            info,
            Some(&record),
            MESSAGE_ID = message::REPAIR,
            MCA_TARGET = target,
            "Repairing the keys and the password of {target}: accounts of {}",
            spec.name
        );
        self.unwatch();
        self.journal.begin_late(record, late::after_appearance(spec, observed))?;
        Ok(true)
    }

    /// Ends a repair that failed and was undone: its paths are left as they are, and reported.
    pub(super) fn leave_drift(&mut self, observed: &Observation) -> Result<(), AgentError> {
        let now = self.host.clock.monotonic();
        if let Some(record) = self.journal.record() {
            self.monitor.memory.repair_failed(record, now);
        }
        self.archive(observed)
    }
}

/// Names everything that can drift: the spec's paths, the links of its units, the sources of its accounts and owners,
/// the files that the OS changes with its deployments, and the inputs of the agent that no source watches.
pub(crate) fn watched(spec: &HostSpec, root: &Root, backend: &str) -> Result<WatchSet, HostError> {
    let mut watched = WatchSet::default();
    watched.paths.extend(spec.entries().into_keys().map(String::from));
    watched.paths.extend(spec.hard_targets().map(|(_, target)| target.to_string()));
    if !spec.units.is_empty() {
        watched.trees.insert(UNIT_DIR.to_owned());
    }
    let named = |principal: &Principal| matches!(principal, Principal::Name(_));
    let has_accounts = !spec.users.accounts.is_empty();
    let owners = spec.entries().values().any(|entry| {
        let (user, group) = entry.owners();
        user.is_some_and(named) || group.is_some_and(named)
    });
    if owners || has_accounts || !spec.users.groups.is_empty() {
        watched.paths.extend(["/etc/passwd", "/etc/group"].map(str::to_owned));
    }
    if has_accounts {
        watched.paths.insert("/etc/shadow".to_owned());
        let accounts = Accounts::load(root)?;
        let users = spec.users.accounts.keys().filter_map(|name| accounts.user(name.as_str()));
        watched.paths.extend(users.flat_map(keys::paths));
    }
    if spec.users.groups.values().any(|group| group.password.is_some()) {
        watched.paths.insert("/etc/gshadow".to_owned());
    }
    watched.paths.extend([PROXY_FILE, SETTINGS_PATH].map(str::to_owned));
    if backend != "none" {
        watched.paths.extend(OS_MARKS.map(str::to_owned));
    }
    Ok(watched)
}

/// Adds the shown part of the contents that differ. Only observed bytes are shown: a file put there
/// meanwhile, a link to a secret say, is not.
pub(crate) fn add_diffs(root: &Root, spec: &HostSpec, observed: &Observation, found: &mut [Difference]) {
    if found.is_empty() {
        return;
    }
    let written = spec.written();
    let contents = |difference: &&mut Difference| {
        difference.what == DifferenceKind::Content && difference.kind != Kind::User
    };
    for difference in found.iter_mut().filter(contents).take(LINES) {
        let Some(path) = difference.path() else { continue };
        let (Some(desired), Some(there)) = (written.get(&path), observed.files.get(&path)) else { continue };
        let ObservedFile::Regular { sha256, len, .. } = there else { continue };
        if *len > LARGEST {
            continue;
        }
        // A directory in its place can't be read; the next pass reports it. What a user has led the path to is not shown.
        let Ok(Some(bytes)) = root.read_shown(path.as_str(), LARGEST) else { continue };
        if Sha256::digest(&bytes) == *sha256 {
            difference.diff = Some(diff(path.as_str(), desired, there, &bytes));
        }
    }
}

/// Larger files are not read again to be shown: no person reads that.
const LARGEST: u64 = 256 * 1024;
