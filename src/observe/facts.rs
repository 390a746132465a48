//! Facts for a plan beyond the two specs.

use std::collections::{BTreeMap, BTreeSet};

use tokio::time::timeout;

use crate::host::os::Preflight;
use crate::host::restore::{self, OriginalLookup};
use crate::host::saved::PathSnapshot;
use crate::host::systemd::UnitLinks;
use crate::host::{Credentials, Host, HostError, Root, saved};
use crate::model::image::Transport;
use crate::model::layers::Architecture;
use crate::model::node_settings::SoftReboot;
use crate::model::observation::{Booted, EmbeddedConfig, ObservedOs, ObservedUnit};
use crate::model::soft_reboot::SoftRebootFacts;
use crate::model::text::chain;
use crate::model::{Facts, HostSpec, ImageRef, ManagedPath, Observation, ObservedFile, UnitName};

use super::obstacles::obstacles;
use super::parents::Parents;
use super::{ObserveError, kernel, machine, managed_with, paths, unit_links, unit_sources, users};
use crate::model::obstacles::Obstacle;

/// Mark of a live system of ostree.
const LIVE: &str = "/run/ostree-live";

/// Source of what the target image carries, where it is not the running one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImageSource {
    /// The image, which the OS backend reads.
    Read,
    /// Nothing is read: it is not known.
    Unread,
}

/// Looks at the host, and queries the OS backend for the target image when it is not the running one.
pub async fn facts(host: &Host, from: &HostSpec, to: &HostSpec) -> Result<Facts, ObserveError> {
    facts_with(host, from, to, ImageSource::Read).await
}

/// Looks at the host, and at the target image as `source` says.
pub async fn facts_with(
    host: &Host,
    from: &HostSpec,
    to: &HostSpec,
    source: ImageSource,
) -> Result<Facts, ObserveError> {
    let root = &host.root;
    let specs = [from, to];
    let machine = machine(host).await?;
    let links = unit_links(host)?;
    let observed = managed_with(host, machine, &specs, &links)?;
    let brought = observed.carried.as_ref().map(|carried| carried.brought.managed()).unwrap_or_default();
    let paths: BTreeSet<ManagedPath> = paths(&specs).union(&brought).cloned().collect();
    let pulls = to.effective_image().is_some_and(|image| image.transport() == Transport::Registry);
    let place = host.os.auth_file().filter(|_| pulls);
    let credentials = place.map_or(Ok(None), |place| Credentials::pick(root, to, place));
    let credentials = credentials.map_err(ObserveError::wrap("the pull secret"))?;
    let carries = carries(host, to, &observed, credentials.as_ref(), source).await?;
    let local = local_changes(root, &paths, &observed)?;
    let parents = Parents::load(root, (from, to), &observed, &brought)?;
    let OriginalPaths { restorable, restored, own_masks, not_files, not_directories } = originals(
        root,
        &observed,
        &from.managed().into_iter().chain(parents.made.clone()).chain(brought).collect(),
    )?;
    let directories = from.directories.keys().chain(&parents.made);
    let covering = directories.filter(|path| not_directories.contains(*path)).cloned().collect();
    let lost = lost(root, from)?;
    let entries = (&from.entries(), &to.entries());
    let after =
        unit_sources::links_after(root, (from, to), entries).map_err(ObserveError::wrap("the units"))?;
    let mut obstacles = obstacles(root, (from, to), &observed, (&restorable, &parents), &after)?;
    (obstacles.layers, obstacles.kernel) = layering_obstacles(host, to);
    obstacles.repositories = repositories_obstacle(host, to)?;
    users::add_known_elsewhere(root, to, &mut obstacles).await?;
    Ok(Facts {
        carries,
        pull_secret: credentials.map(|credentials| credentials.path),
        local,
        under_var: chosen(&paths, "the directories", |path| {
            Ok(root.real_path(path.as_str())?.starts_with("/var/"))
        })?,
        restorable,
        occupied: occupied(root, (from, to), &observed, &parents.made)?.union(&lost).cloned().collect(),
        lost,
        made: parents.made,
        spare: parents.spare,
        holding: parents.holding,
        covering,
        displaced: parents.displaced,
        own_masks,
        not_files,
        restored,
        is_live: root.exists(LIVE).map_err(ObserveError::wrap("the media"))?,
        companions: companions(&links, from, to)?,
        stored_units: unit_sources::stored(&after, from, to).map_err(ObserveError::wrap("the units"))?,
        accounts: users::facts(root, from, to)?,
        fips: kernel::fips(root)?,
        soft_reboot: soft_reboot(host).await,
        obstacles,
        observed,
    })
}

/// Returns the config that the target image carries.
async fn carries(
    host: &Host,
    to: &HostSpec,
    observed: &Observation,
    credentials: Option<&Credentials>,
    source: ImageSource,
) -> Result<EmbeddedConfig, ObserveError> {
    let Some(booted) = observed.os.booted() else { return Ok(EmbeddedConfig::Unknown) };
    let found = match to.effective_image() {
        Some(desired) if !runs(booted, desired) => match source {
            ImageSource::Unread => EmbeddedConfig::Unknown,
            ImageSource::Read => {
                let result = preflight(host, desired, credentials).await;
                let place = host.os.auth_file().filter(|_| desired.transport() == Transport::Registry);
                let result = result.map_err(|error| Credentials::explain(error, &host.root, to, place));
                result.map_err(ObserveError::image(desired))?.carries
            }
        },
        Some(_) | None => booted.carries.clone(),
    };
    Ok(if to.image.is_some() { found } else { EmbeddedConfig::Unknown })
}

/// Returns the paths that differ from what the booted image brings.
fn local_changes(
    root: &Root,
    paths: &BTreeSet<ManagedPath>,
    observed: &Observation,
) -> Result<BTreeSet<ManagedPath>, ObserveError> {
    match observed.os {
        ObservedOs::NotImageBased => Ok(BTreeSet::new()),
        ObservedOs::Deployments { .. } => chosen(paths, "the local changes", |path| {
            differs_from_image(root, path, observed.files.get(path))
        }),
    }
}

/// Returns why the OS backend can't layer packages, and why no host like this one has the kernel.
fn layering_obstacles(host: &Host, to: &HostSpec) -> (Option<Obstacle>, Option<Obstacle>) {
    let layers = host.os.layering_obstacle().map(|cause| Obstacle {
        cause: cause.to_owned(),
        next: "Install rpm-ostree in the OS image, or build kernel and extensions into the image".to_owned(),
    });
    (layers, to.kernel_type.obstacle(Architecture::HERE))
}

/// Returns why the OS backend finds no packages. Repositories of the new config are written after the OS is staged.
fn repositories_obstacle(host: &Host, to: &HostSpec) -> Result<Option<Obstacle>, ObserveError> {
    if to.host_layers().is_empty() || to.extensions_image.is_some() {
        return Ok(None);
    }
    let cause = host.os.repositories_obstacle().map_err(ObserveError::wrap("the repositories"))?;
    Ok(cause.map(|cause| Obstacle {
        cause: cause.to_owned(),
        next: "Add a repository with the packages, by hand or in an earlier update, or set \
               spec.baseOSExtensionsContainerImage"
            .to_owned(),
    }))
}

/// Reads the host's facts of soft reboots if its settings allow them. A failure is no reason for no plan.
async fn soft_reboot(host: &Host) -> Option<SoftRebootFacts> {
    if host.soft_reboot == SoftReboot::Never {
        return None;
    }
    let found = host.soft_reboot_into(None).await;
    Some(found.map_or_else(|error| SoftRebootFacts::refused(chain(&error)), |found| found.facts))
}

/// Paths that have an original to put back, and those of them that are as it is, and where it is a mask or no regular file.
#[derive(Debug, Default)]
struct OriginalPaths {
    restorable: BTreeSet<ManagedPath>,
    restored: BTreeSet<ManagedPath>,
    own_masks: BTreeSet<ManagedPath>,
    not_files: BTreeSet<ManagedPath>,
    not_directories: BTreeSet<ManagedPath>,
}

fn originals(
    root: &Root,
    observed: &Observation,
    paths: &BTreeSet<ManagedPath>,
) -> Result<OriginalPaths, ObserveError> {
    let mut found = OriginalPaths::default();
    let lookup = OriginalLookup::new(root);
    for path in paths {
        let original = lookup.original(path).map_err(ObserveError::wrap("the originals"))?;
        let Some(original) = original else { continue };
        found.restorable.insert(path.clone());
        if observed.files.get(path) == Some(&original.observed()) {
            found.restored.insert(path.clone());
        }
        if original.is_mask() {
            found.own_masks.insert(path.clone());
        }
        if matches!(original, PathSnapshot::Link { .. } | PathSnapshot::Directory { .. }) {
            found.not_files.insert(path.clone());
        }
        if !matches!(original, PathSnapshot::Directory { .. }) {
            found.not_directories.insert(path.clone());
        }
    }
    Ok(found)
}

/// Returns the paths of a config that was applied whose kept original is gone.
pub fn lost(root: &Root, from: &HostSpec) -> Result<BTreeSet<ManagedPath>, ObserveError> {
    let paths: BTreeSet<ManagedPath> = from.originals.clone();
    chosen(&paths, "the originals", |path| Ok(saved::load_original(root, path)?.is_none()))
}

/// Returns the directories of the old config, and those made for it, that can't give way to a file or a link of the new one: they
/// were there before, or hold what the old config did not bring.
fn occupied(
    root: &Root,
    (from, to): (&HostSpec, &HostSpec),
    observed: &Observation,
    made: &BTreeSet<ManagedPath>,
) -> Result<BTreeSet<ManagedPath>, ObserveError> {
    let failed = || ObserveError::wrap("the directories");
    let (replaced, new) = (from.replaced(observed), to.managed());
    let ours = from.managed().union(made).filter(|path| !replaced.contains(*path)).cloned().collect();
    let mut occupied = BTreeSet::new();
    for path in from.directories.keys().chain(made) {
        if to.directories.contains_key(path) || !new.contains(path) {
            continue;
        }
        let kept = saved::load_original(root, path).map_err(failed())?;
        let before = match kept {
            // The directory of an image that carried the old config is the config's.
            None if from.image.is_none() => saved::of_image(root, path).map_err(failed())?,
            None => saved::PathSnapshot::Absent,
            Some(kept) => kept,
        };
        let is_old = matches!(before, saved::PathSnapshot::Directory { .. });
        if is_old || !is_emptied(root, path, &ours).map_err(failed())? {
            occupied.insert(path.clone());
        }
    }
    Ok(occupied)
}

/// Returns true if nothing is left of a directory when the old config's paths in it go: each has no original that would come
/// back, and each directory between is as the agent makes them.
fn is_emptied(root: &Root, directory: &ManagedPath, ours: &BTreeSet<ManagedPath>) -> Result<bool, HostError> {
    for name in root.list(directory.as_str())? {
        let Ok(path) = ManagedPath::new(format!("{directory}/{name}")) else { return Ok(false) };
        let found = root.observe(path.as_str())?;
        let is_directory = matches!(found, ObservedFile::Directory { .. });
        let is_ours = if ours.contains(&path) {
            restore::original(root, &path)?.is_none()
        } else {
            found == ObservedFile::MADE_DIRECTORY && ours.iter().any(|own| own.is_below(path.as_str()))
        };
        if !is_ours || (is_directory && !is_emptied(root, &path, ours)?) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Looks at the units that are enabled and disabled together with those of the configs.
fn companions(
    links: &UnitLinks<'_>,
    from: &HostSpec,
    to: &HostSpec,
) -> Result<BTreeMap<UnitName, BTreeMap<UnitName, ObservedUnit>>, ObserveError> {
    let mut found = BTreeMap::new();
    for name in from.units.keys().chain(to.units.keys()) {
        let companions = links.companions(name).map_err(ObserveError::wrap("the units"))?;
        if !companions.is_empty() {
            found.insert(name.clone(), companions);
        }
    }
    Ok(found)
}

fn runs(booted: &Booted, desired: &ImageRef) -> bool {
    booted.image.as_ref().is_some_and(|one| one.digest() == desired.digest())
}

/// Reads the image's properties, so that a missing or unbootable one is reported before anything is changed.
async fn preflight(
    host: &Host,
    image: &ImageRef,
    credentials: Option<&Credentials>,
) -> Result<Preflight, HostError> {
    let limit = host.limits.stall;
    let preflight = host.os.preflight(image, credentials.map(|credentials| &credentials.json));
    timeout(limit, preflight).await.unwrap_or_else(|_| {
        Err(HostError::Timeout { object: format!("the source of {image}"), seconds: limit.as_secs() })
    })
}

fn chosen(
    paths: &BTreeSet<ManagedPath>,
    object: &'static str,
    is: impl Fn(&ManagedPath) -> Result<bool, HostError>,
) -> Result<BTreeSet<ManagedPath>, ObserveError> {
    let mut chosen = BTreeSet::new();
    for path in paths {
        if is(path).map_err(ObserveError::wrap(object))? {
            chosen.insert(path.clone());
        }
    }
    Ok(chosen)
}

/// Returns true if the live version differs from the booted image's own: the ostree merge keeps it then.
fn differs_from_image(
    root: &Root,
    path: &ManagedPath,
    live: Option<&ObservedFile>,
) -> Result<bool, HostError> {
    let Some(below) = path.as_str().strip_prefix("/etc/") else { return Ok(false) };
    let own = root.observe(&format!("/usr/etc/{below}"))?;
    Ok(live != Some(&own))
}
