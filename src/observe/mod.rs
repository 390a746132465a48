//! State of the host: of managed objects only, and without changing any of it.
//!
//! Imports `model`, `stateroot` and `host`. No process is started; only the OS backend may call a service.

mod ahead;
mod carried;
mod carried_users;
mod displaced;
mod error;
mod facts;
mod kernel;
mod names;
mod obstacles;
mod parents;
mod replaced;
mod stateroot;
mod storage;
mod strangers;
mod stray_keys;
#[cfg(test)]
mod tests;
mod unit_sources;
mod users;

use std::collections::{BTreeMap, BTreeSet};

use crate::host::account_records::AccountRecords;
use crate::host::accounts::Accounts;
use crate::host::boot_counter::BootCounter;
use crate::host::systemd::UnitLinks;
use crate::host::{Host, Root, next_root};
use crate::model::observation::ObservedOs;
use crate::model::{HostSpec, Karg, ManagedPath, Observation, ObservedFile, Principal, UnitName};

pub use error::ObserveError;
pub use facts::{ImageSource, facts, facts_with, lost};
pub use stateroot::host_traits;
pub use unit_sources::rehearse;

/// Observes the boot, the OS and everything that the specs manage.
pub async fn observe(host: &Host, specs: &[&HostSpec]) -> Result<Observation, ObserveError> {
    let machine = machine(host).await?;
    if specs.is_empty() { Ok(machine) } else { managed(host, machine, specs) }
}

/// Observes the boot and the OS: no account, unit or file is read. The loop does so at every event.
pub async fn machine(host: &Host) -> Result<Observation, ObserveError> {
    let root = &host.root;
    Ok(Observation {
        boot_id: host.boot_id().await.map_err(ObserveError::wrap("the boot"))?,
        boots: BootCounter::observe(root).map_err(ObserveError::wrap("the boot loader's counter"))?,
        os: os(host).await?,
        kargs: kargs(root)?,
        former_kargs: kernel::former(root)?,
        image_kargs: kernel::of_image(root)?,
        storage: BTreeSet::new(),
        files: BTreeMap::new(),
        access_lists: BTreeSet::new(),
        hard_links: BTreeSet::new(),
        units: BTreeMap::new(),
        stray_links: BTreeMap::new(),
        accounts: BTreeMap::new(),
        stray_keys: Vec::new(),
        groups: BTreeMap::new(),
        user_ids: BTreeMap::new(),
        group_ids: BTreeMap::new(),
        carried: None,
    })
}

/// Observes the OS. After a soft reboot its tooling may take the prepared deployment for the running one.
async fn os(host: &Host) -> Result<ObservedOs, ObserveError> {
    let observed = host.os.observe().await.map_err(ObserveError::wrap("the OS"))?;
    if host.systemd.soft_reboots().await == 0 {
        return Ok(observed);
    }
    Ok(match next_root::running(&host.root) {
        Some(running) => observed.in_deployment(running),
        None => observed,
    })
}

/// Observes everything that the specs manage, beside the observation of the machine.
pub fn managed(host: &Host, machine: Observation, specs: &[&HostSpec]) -> Result<Observation, ObserveError> {
    managed_with(host, machine, specs, &unit_links(host)?)
}

fn unit_links(host: &Host) -> Result<UnitLinks<'_>, ObserveError> {
    UnitLinks::load(&host.root).map_err(ObserveError::wrap("the units"))
}

fn managed_with(
    host: &Host,
    machine: Observation,
    specs: &[&HostSpec],
    links: &UnitLinks<'_>,
) -> Result<Observation, ObserveError> {
    let root = &host.root;
    let carried = carried::carried(root, &machine.os, specs, links)?;
    let brought = carried.as_ref().map(|carried| &carried.brought);
    let specs: Vec<&HostSpec> = specs.iter().copied().chain(brought).collect();
    let specs = &specs[..];
    let accounts = Accounts::load(root).map_err(ObserveError::wrap("the accounts"))?;
    let records = AccountRecords::load_current(root).map_err(ObserveError::wrap("the accounts"))?;
    let (user_ids, group_ids) = ids(&accounts, specs);
    let mut paths = paths(specs);
    paths.extend(specs.iter().flat_map(|spec| spec.unwritten.keys().cloned()));
    let files = files(root, &paths)?;
    Ok(Observation {
        storage: storage::found(root, specs)?,
        access_lists: access_lists(root, &files)?,
        files,
        hard_links: hard_links(root, specs)?,
        units: units(links, specs)?,
        stray_links: stray_links(links, specs)?,
        accounts: users::accounts(root, &accounts, &records, specs)?,
        stray_keys: stray_keys::of(root, &accounts, &records, specs)
            .map_err(ObserveError::wrap("the accounts"))?,
        groups: users::groups(root, &accounts, &records, specs)?,
        user_ids,
        group_ids,
        carried,
        ..machine
    })
}

/// Returns an earlier observation of everything with the new parts: the machine, and the files at these paths.
pub fn observe_again(
    root: &Root,
    earlier: Observation,
    machine: Observation,
    paths: &BTreeSet<ManagedPath>,
) -> Result<Observation, ObserveError> {
    let Observation { boot_id, boots, os, kargs, former_kargs, image_kargs, .. } = machine;
    let mut observed = Observation { boot_id, boots, os, kargs, former_kargs, image_kargs, ..earlier };
    let files = files(root, paths)?;
    observed.access_lists.retain(|path| !files.contains_key(path));
    observed.access_lists.extend(access_lists(root, &files)?);
    observed.files.extend(files);
    Ok(observed)
}

/// Returns every path that one of the specs manages or lists, and the files of hard links.
fn paths(specs: &[&HostSpec]) -> BTreeSet<ManagedPath> {
    let mut paths = BTreeSet::new();
    for spec in specs {
        paths.extend(spec.managed());
        paths.extend(spec.stored());
        paths.extend(spec.hard_targets().map(|(_, target)| target.clone()));
    }
    paths
}

/// Returns the hard links of the specs that are one file with their target.
fn hard_links(
    root: &Root,
    specs: &[&HostSpec],
) -> Result<BTreeSet<(ManagedPath, ManagedPath)>, ObserveError> {
    let mut found = BTreeSet::new();
    for (path, target) in specs.iter().flat_map(|spec| spec.hard_targets()) {
        let is_one = root.is_hard_link(path.as_str(), target.as_str());
        if is_one.map_err(ObserveError::wrap("the links"))? {
            found.insert((path.clone(), target.clone()));
        }
    }
    Ok(found)
}

fn files(
    root: &Root,
    paths: &BTreeSet<ManagedPath>,
) -> Result<BTreeMap<ManagedPath, ObservedFile>, ObserveError> {
    let observed = |path: &ManagedPath| {
        let observed = root.observe(path.as_str()).map_err(ObserveError::wrap("the files"))?;
        Ok((path.clone(), observed))
    };
    paths.iter().map(observed).collect()
}

/// Returns the files whose access list may let others in. With no permission of the group, the mask gives nothing.
fn access_lists(
    root: &Root,
    files: &BTreeMap<ManagedPath, ObservedFile>,
) -> Result<BTreeSet<ManagedPath>, ObserveError> {
    let mut found = BTreeSet::new();
    for (path, file) in files {
        let has_list = matches!(file, ObservedFile::Regular { mode, .. } if mode & 0o070 != 0)
            && root.has_access_list(path.as_str()).map_err(ObserveError::wrap("the files"))?;
        if has_list {
            found.insert(path.clone());
        }
    }
    Ok(found)
}

fn units(
    links: &UnitLinks<'_>,
    specs: &[&HostSpec],
) -> Result<BTreeMap<UnitName, crate::model::observation::ObservedUnit>, ObserveError> {
    let names: BTreeSet<&UnitName> = specs.iter().flat_map(|spec| spec.units.keys()).collect();
    let observed = |name: &UnitName| {
        let observed = links.observe(name).map_err(ObserveError::wrap("the units"))?;
        Ok((name.clone(), observed))
    };
    names.into_iter().map(observed).collect()
}

fn stray_links(
    links: &UnitLinks<'_>,
    specs: &[&HostSpec],
) -> Result<BTreeMap<UnitName, Vec<ManagedPath>>, ObserveError> {
    let mut stray = BTreeMap::new();
    for name in specs.iter().flat_map(|spec| spec.units.keys()) {
        let mut found = links.stray(name).map_err(ObserveError::wrap("the units"))?;
        // A config may list such a link.
        found.retain(|link| !specs.iter().any(|spec| spec.links.contains_key(link)));
        if !found.is_empty() {
            stray.insert(name.clone(), found);
        }
    }
    Ok(stray)
}

fn kargs(root: &Root) -> Result<Vec<Karg>, ObserveError> {
    let line = root.read_text("/proc/cmdline").map_err(ObserveError::wrap("the kernel arguments"))?;
    Ok(Karg::split(&line.unwrap_or_default()))
}

/// Returns the numbers of all names that own files in the specs.
fn ids(accounts: &Accounts, specs: &[&HostSpec]) -> (BTreeMap<String, u32>, BTreeMap<String, u32>) {
    let (mut users, mut groups) = (BTreeMap::new(), BTreeMap::new());
    let named = |owners: (Option<&Principal>, Option<&Principal>),
                 users: &mut BTreeMap<_, _>,
                 groups: &mut BTreeMap<_, _>| {
        if let Some(Principal::Name(name)) = owners.0 {
            users.extend(accounts.user(name).map(|user| (name.clone(), user.uid)));
        }
        if let Some(Principal::Name(name)) = owners.1 {
            groups.extend(accounts.group(name).map(|gid| (name.clone(), gid)));
        }
    };
    for file in specs.iter().flat_map(|spec| spec.files.values()) {
        named((Some(&file.owner.user), Some(&file.owner.group)), &mut users, &mut groups);
    }
    for (_, entry) in specs.iter().flat_map(|spec| spec.stored_paths()) {
        named(entry.owners(), &mut users, &mut groups);
    }
    (users, groups)
}
