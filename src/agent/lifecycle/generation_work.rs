//! The seed of an object on this host: what stands in its way, what it is made of, and its making.

use super::super::{AgentError, SeedEnd, make_seed, restore_seed, seed_directory, seed_facts, update_id};
use super::host::LifecycleHost;
use crate::apply::{SeedHost, SeedWork};
use crate::control::seed_generation::{NoInputs, SeedCluster};
use crate::host::os::stateroots::SeedToMake;
use crate::host::{HostError, OsProgress, Root};
use crate::journal::seed::{SeedJournal, load_record};
use crate::journal::stateroot::load_record as load_stateroot;
use crate::journal::stored;
use crate::model::ids::STATE_DIR;
use crate::model::image::PULL_SECRETS;
use crate::model::text::chain;
use crate::model::{Contents, FaultClass, FileMode, ImageRef};
use crate::stateroot::{SEED_SCHEMA, SeedOrder, SeedPaths, SeedRecord, SeedStep, Version, is_emptied};
use crate::update::Fault;

/// The credentials of the push, while a seed is made: not in `/etc` or `/var`, and gone with the boot.
const AUTH_FILE: &str = "/run/machine-config-agent-seed-auth.json";

/// Obstacle in the way of a seed.
#[derive(Debug)]
pub(super) enum Obstacle {
    /// It is not made.
    Final(String),
    /// It may pass by itself.
    Passing(String),
}

/// A seed that can be made: its journal is open.
pub(super) struct SeedOfObject {
    journal: SeedJournal,
    record: SeedRecord,
    base: Option<ImageRef>,
    seed: SeedToMake,
    credentials: Contents,
}

impl<E: Into<AgentError>> From<E> for Obstacle {
    fn from(error: E) -> Self {
        Self::of_fault(error.into().fault())
    }
}

impl Obstacle {
    fn of_fault(fault: Fault) -> Self {
        let Fault { class, message, next, .. } = fault;
        let why = format!("{message}. Next: {next}");
        if class == FaultClass::Retry { Self::Passing(why) } else { Self::Final(why) }
    }

    fn of_inputs(none: NoInputs) -> Self {
        match none {
            NoInputs::Missing(why) => Self::Final(why),
            NoInputs::Waits(why) => Self::Passing(why),
            NoInputs::Retry(error) => error.into(),
        }
    }
}

/// Gathers all that a seed is made of. Nothing of the host is changed, but for what an earlier seed has left.
pub(super) async fn gather(
    host: &LifecycleHost,
    cluster: &impl SeedCluster,
    order: &SeedOrder,
) -> Result<SeedOfObject, Obstacle> {
    refuse(host)?;
    wait_for_others(&host.root)?;
    let inputs = cluster.inputs().await.map_err(Obstacle::of_inputs)?;
    let version = Version::new(&inputs.version)?;
    let busy = || Obstacle::Passing("another process makes a seed".to_owned());
    let mut journal = SeedJournal::open(host.root.clone(), host.fail_points.clone())?.ok_or_else(busy)?;
    restore_seed(&mut journal, &SeedHost { root: &host.root, systemd: &host.systemd }).await?;
    let (root, systemd) = (&host.root, &host.systemd);
    let declared = host.settings.read().map_err(Obstacle::of_fault)?.settings.seed;
    let paths = SeedPaths::new(&declared.include, &[], &declared.exclude)?;
    let facts = seed_facts(root, &host.stateroots, systemd, order.layout, &version, paths).await?;
    let now = host.clock.now();
    let record = SeedRecord {
        schema: SEED_SCHEMA,
        id: update_id(now)?,
        image: order.image.clone(),
        layout: order.layout,
        directory: seed_directory(root, STATE_DIR)?,
        stopped: facts.services,
        step: None,
        boot_id: host.power.boot_id()?,
        started: now,
    };
    let (base, seed, credentials) = (facts.base, facts.seed, inputs.credentials);
    Ok(SeedOfObject { journal, record, base, seed, credentials })
}

/// Refuses a host that can't be archived.
fn refuse(host: &LifecycleHost) -> Result<(), Obstacle> {
    if !host.root.is_machine() || !host.systemd.is_running() {
        let why = "Rejected: the agent does not run on the host itself, so it can't stop services; run it as a unit of the host";
        return Err(Obstacle::Final(why.to_owned()));
    }
    let [_, pull_secret] = PULL_SECRETS;
    let secret = host.root.read(pull_secret)?;
    if secret.is_some_and(|secret| is_emptied(&secret)) {
        let why = "Rejected due to invalid cluster pull-secret (previously sanitized without proper restore)";
        return Err(Obstacle::Final(why.to_owned()));
    }
    Ok(())
}

/// Waits for the end of work that changes the host, or boots another one.
fn wait_for_others(root: &Root) -> Result<(), Obstacle> {
    if let Some(record) = stored::load_record(root)? {
        let (id, config) = (record.id, record.to.config);
        return Err(Obstacle::Passing(format!("the update {id} to {config} is under way")));
    }
    if let Some(record) = load_stateroot(root)? {
        let stateroot = record.job.stateroot();
        return Err(Obstacle::Passing(format!("work on the stateroot {stateroot} is under way")));
    }
    Ok(())
}

impl SeedOfObject {
    /// Makes and pushes it; the host is restored whatever happens. Dropped, it is as after a kill.
    pub(super) async fn make(self, host: &LifecycleHost) -> Result<SeedEnd, AgentError> {
        let Self { mut journal, record, base, seed, credentials } = self;
        let auth_file = AuthFile::write(&host.root, &credentials)?;
        let work = SeedWork {
            stateroots: &host.stateroots,
            proxies: &host.proxies,
            base,
            seed,
            auth_file: Some(AUTH_FILE.to_owned()),
        };
        let steps = SeedStep::all(record.layout, true);
        let seed_host = SeedHost { root: &host.root, systemd: &host.systemd };
        let log_progress = |step: OsProgress| tracing::debug!("{step}");
        let end = Box::pin(make_seed(&mut journal, record, &steps, &seed_host, &work, &log_progress)).await;
        drop(auth_file);
        end
    }
}

/// The file of the credentials. Dropped, it is removed.
struct AuthFile<'a>(&'a Root);

impl<'a> AuthFile<'a> {
    fn write(root: &'a Root, credentials: &Contents) -> Result<Self, HostError> {
        let file = Self(root);
        root.replace(AUTH_FILE, credentials.bytes(), FileMode::PRIVATE)?;
        Ok(file)
    }
}

impl Drop for AuthFile<'_> {
    fn drop(&mut self) {
        remove_auth_file(self.0);
    }
}

fn remove_auth_file(root: &Root) {
    if let Err(error) = root.remove(AUTH_FILE) {
        tracing::warn!(
            "Failed to remove {AUTH_FILE}: {}. Next: remove it, it holds credentials",
            chain(&error)
        );
    }
}

/// Restores the host after a seed that was cut short. Returns false while another process makes a seed.
pub(super) async fn restore(host: &LifecycleHost) -> Result<bool, AgentError> {
    remove_auth_file(&host.root);
    if load_record(&host.root)?.is_none() {
        return Ok(true);
    }
    let Some(mut journal) = SeedJournal::open(host.root.clone(), host.fail_points.clone())? else {
        return Ok(false);
    };
    restore_seed(&mut journal, &SeedHost { root: &host.root, systemd: &host.systemd }).await?;
    Ok(true)
}
