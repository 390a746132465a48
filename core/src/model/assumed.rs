//! A host that is taken to be exactly as a spec: for plans between two files, without a host.

use std::collections::{BTreeMap, BTreeSet};

use super::fixed::FIPS_FIELD;
use super::ids::{ROOT, ROOT_HOME};
use super::image::{PULL_SECRETS, Transport};
use super::kargs::FormerKargs;
use super::observation::{
    AccountFacts, BootCount, Booted, EmbeddedConfig, GivenParts, LocalPackages, Maker, ObservedAccount,
    ObservedFips, ObservedGroup, ObservedOs, ObservedUnit, UnitFilePreset, UnitFileState,
};
use super::paths::LinkTarget;
use super::units::{Enablement, Mask, UnitSpec};
use super::users::{Account, CORE, PasswordHash, keys_path};
use super::{
    BootId, Contents, Facts, FileMode, FileSpec, HostSpec, ManagedPath, ModelError, Observation,
    ObservedFile, Obstacles, Principal, Sha256,
};

/// The account's user and group id on such a host, as installers give it.
pub(crate) const CORE_ID: u32 = 1000;

impl Facts {
    /// Assumes a host that is as `from`, and an image that carries no config.
    pub fn assumed(from: &HostSpec, to: &HostSpec) -> Result<Self, ModelError> {
        let mut observed = Observation::as_specified(from)?;
        for path in to.managed() {
            observed.files.entry(path).or_insert(ObservedFile::Absent);
        }
        // A file that neither config brings is of the OS.
        for (_, target) in to.hard_targets() {
            observed.files.entry(target.clone()).or_insert_with(file_of_os);
        }
        for (name, unit) in &to.units {
            let before = from.units.get(name);
            if before != Some(unit) {
                observed.units.insert(name.clone(), unit_at_worst(before, unit));
            }
        }
        let fips = if from.fips { ObservedFips::On } else { ObservedFips::Off };
        Ok(Self {
            observed,
            carries: EmbeddedConfig::Unknown,
            pull_secret: pull_secret(from, to),
            local: BTreeSet::new(),
            under_var: under_var(from).into_iter().chain(under_var(to)).collect(),
            restorable: BTreeSet::new(),
            lost: BTreeSet::new(),
            occupied: BTreeSet::new(),
            made: BTreeSet::new(),
            spare: BTreeSet::new(),
            holding: BTreeSet::new(),
            covering: BTreeSet::new(),
            displaced: BTreeMap::new(),
            own_masks: BTreeSet::new(),
            not_files: BTreeSet::new(),
            restored: BTreeSet::new(),
            is_live: false,
            soft_reboot: None,
            obstacles: Obstacles::default(),
            companions: BTreeMap::new(),
            stored_units: BTreeMap::new(),
            accounts: with_root(),
            fips,
        })
    }
}

fn pull_secret(from: &HostSpec, to: &HostSpec) -> Option<ManagedPath> {
    to.effective_image().filter(|image| image.transport() == Transport::Registry)?;
    let there = |path: &ManagedPath| to.files.contains_key(path) || from.files.contains_key(path);
    PULL_SECRETS.into_iter().filter_map(|path| ManagedPath::new(path).ok()).find(there)
}

impl Observation {
    /// Returns the observation of a host that is exactly as the spec.
    pub fn as_specified(spec: &HostSpec) -> Result<Self, ModelError> {
        let image = spec.effective_image().cloned();
        let booted = Booted {
            image,
            deployment: "assumed".to_owned(),
            carries: EmbeddedConfig::Unknown,
            local: LocalPackages::default(),
        };
        Ok(Self {
            boots: BootCount::Off,
            boot_id: BootId::new("assumed")?,
            os: ObservedOs::Deployments { booted, staged: None, next: None },
            kargs: spec.kargs.clone(),
            former_kargs: FormerKargs::default(),
            image_kargs: Vec::new(),
            storage: installed(spec),
            files: observed_files(spec),
            access_lists: BTreeSet::new(),
            hard_links: spec.hard_targets().map(|(path, target)| (path.clone(), target.clone())).collect(),
            units: spec.units.iter().map(|(name, unit)| (name.clone(), observed_unit(unit))).collect(),
            stray_links: BTreeMap::new(),
            accounts: observed_accounts(spec)?,
            stray_keys: Vec::new(),
            groups: observed_groups(spec),
            user_ids: BTreeMap::from([(ROOT.to_owned(), 0), (CORE.to_owned(), CORE_ID)]),
            group_ids: BTreeMap::from([(ROOT.to_owned(), 0), (CORE.to_owned(), CORE_ID)]),
            carried: None,
        })
    }
}

/// Storage that an installation with a spec makes.
fn installed(spec: &HostSpec) -> BTreeSet<String> {
    let storage = spec.fixed.entries().into_iter().map(|entry| entry.field);
    storage.chain(spec.fips.then(|| FIPS_FIELD.to_owned())).collect()
}

fn observed_files(spec: &HostSpec) -> BTreeMap<ManagedPath, ObservedFile> {
    let mut observed: BTreeMap<_, _> =
        spec.written().into_iter().map(|(path, file)| (path, observed_file(&file))).collect();
    for (path, directory) in &spec.directories {
        let id = |principal: &Option<Principal>| principal.as_ref().map_or(0, id);
        let mode = directory.mode.unwrap_or(FileMode::DIRECTORY).bits();
        let (uid, gid) = (id(&directory.user), id(&directory.group));
        observed.insert(path.clone(), ObservedFile::Directory { mode, uid, gid });
    }
    for (path, target) in spec.hard_targets() {
        let file = observed.entry(target.clone()).or_insert_with(file_of_os).clone();
        observed.insert(path.clone(), file);
    }
    for (path, link) in &spec.links {
        if let LinkTarget::Soft(target) = &link.target {
            let (uid, gid) = (id(&link.owner.user), id(&link.owner.group));
            let target = target.clone();
            observed.insert(path.clone(), ObservedFile::Symlink { target, uid, gid });
        }
    }
    // A path that is managed and not written is the link of a mask, or the place of one that must not be.
    for (name, unit) in spec.units.iter().filter(|(_, unit)| unit.mask != Mask::Unset) {
        let mask = || ObservedFile::Symlink { target: "/dev/null".to_owned(), uid: 0, gid: 0 };
        let link = if unit.mask == Mask::Masked { mask() } else { ObservedFile::Absent };
        observed.entry(name.path()).or_insert(link);
    }
    observed
}

fn file_of_os() -> ObservedFile {
    observed_file(&FileSpec::of_unit(Contents::new(Vec::new())))
}

fn observed_file(file: &FileSpec) -> ObservedFile {
    ObservedFile::Regular {
        sha256: file.contents.sha256(),
        len: u64::try_from(file.contents.len()).unwrap_or(u64::MAX),
        mode: file.mode.bits(),
        uid: id(&file.owner.user),
        gid: id(&file.owner.group),
    }
}

fn id(principal: &Principal) -> u32 {
    match principal {
        Principal::Id(id) => *id,
        Principal::Name(name) if name == ROOT => 0,
        Principal::Name(_) => CORE_ID,
    }
}

fn observed_unit(unit: &UnitSpec) -> ObservedUnit {
    let enabled = match (unit.mask, unit.enablement) {
        (Mask::Masked, _) => UnitFileState::Masked,
        (Mask::Unset | Mask::Unmasked, Enablement::Enabled) => UnitFileState::Enabled,
        (Mask::Unset | Mask::Unmasked, Enablement::Disabled | Enablement::Preset) => UnitFileState::Disabled,
    };
    let mask = if unit.mask == Mask::Masked { Mask::Masked } else { Mask::Unmasked };
    // The presets are not known: the links that the config had turned are taken to turn back.
    let preset = if unit.enablement == Enablement::Disabled {
        UnitFilePreset::Enable
    } else {
        UnitFilePreset::Disable
    };
    ObservedUnit { enabled, preset, mask }
}

/// A unit that is new or changed, as it costs most to bring it to `to`: settings that the old config leaves open may be
/// otherwise on the host, and a plan that promises too little is worse than one that promises too much.
fn unit_at_worst(from: Option<&UnitSpec>, to: &UnitSpec) -> ObservedUnit {
    let silent = from.is_none_or(|from| from.contents.is_none() && from.mask == Mask::Unset);
    if silent && to.mask == Mask::Unmasked && to.contents.is_none() {
        return ObservedUnit {
            enabled: UnitFileState::Masked,
            preset: UnitFilePreset::Disable,
            mask: Mask::Masked,
        };
    }
    let known = from.filter(|from| from.mask == Mask::Masked || from.enablement != Enablement::Preset);
    if let Some(from) = known {
        return observed_unit(from);
    }
    let enabled = match to.enablement {
        Enablement::Disabled => UnitFileState::Enabled,
        Enablement::Enabled | Enablement::Preset => UnitFileState::Disabled,
    };
    // Contents that come bring their unit with them.
    let comes = from.is_none() && to.contents.is_some();
    let enabled = if comes { UnitFileState::NotFound } else { enabled };
    ObservedUnit { enabled, preset: UnitFilePreset::Enable, mask: Mask::Unmasked }
}

/// The ids that each host has given away.
fn with_root() -> AccountFacts {
    let of_root = BTreeMap::from([(0, ROOT.to_owned())]);
    AccountFacts { uid_owners: of_root.clone(), gid_owners: of_root, ..AccountFacts::default() }
}

/// The accounts of a config are those that the agent has made, all but `core` and root, which the OS has.
fn observed_accounts(spec: &HostSpec) -> Result<BTreeMap<String, ObservedAccount>, ModelError> {
    let nothing = Account::default();
    let listed = spec.users.accounts.iter().map(|(name, account)| (name.as_str(), account));
    let of_os = [CORE, ROOT].into_iter().map(|name| (name, &nothing));
    // No config takes root away.
    let is_left = |name: &str, one: &Account| name == ROOT && !one.should_exist;
    let of_os = of_os.filter(|(name, _)| spec.users.account(name).is_none_or(|one| is_left(name, one)));
    let exists = listed.filter(|(_, account)| account.should_exist).chain(of_os);
    exists.map(|(name, account)| Ok((name.to_owned(), observed_account(name, account)?))).collect()
}

fn observed_account(name: &str, account: &Account) -> Result<ObservedAccount, ModelError> {
    let (is_core, is_root) = (name == CORE, name == ROOT);
    let id = account.uid.unwrap_or(if is_root { 0 } else { CORE_ID });
    let usual = || if is_root { ROOT_HOME.to_owned() } else { format!("/home/{name}") };
    let home = account.home.clone().unwrap_or_else(usual);
    let sets = !account.keys.is_empty() || (is_core && account.password.is_some());
    let keys = if sets {
        let text = account.keys_text();
        ObservedFile::Regular {
            sha256: Sha256::digest(text.as_bytes()),
            len: u64::try_from(text.len()).unwrap_or(u64::MAX),
            mode: 0o600,
            uid: id,
            gid: id,
        }
    } else {
        ObservedFile::Absent
    };
    Ok(ObservedAccount {
        keys_path: keys_path(&home)?,
        keys,
        uid: id,
        gid: id,
        password: Some(account.password.clone().unwrap_or_else(PasswordHash::locked)),
        foreign: None,
        gecos: account.gecos.clone().unwrap_or_default(),
        shell: account.shell.clone().unwrap_or_else(|| "/bin/bash".to_owned()),
        primary_group: Some(account.primary_group.clone().unwrap_or_else(|| name.to_owned())),
        groups: account.groups.clone(),
        maker: if is_core || is_root { Maker::Host } else { Maker::Agent },
        is_expired: false,
        has_original: true,
        given: GivenParts::default(),
        given_keys: BTreeSet::new(),
        unremoved_keys: BTreeSet::new(),
        unremovable: None,
        // Where both are one directory, which some hosts have.
        home_names: other_name(&home).into_iter().collect(),
        home,
    })
}

/// Returns the name of a home on image-based hosts by that on others, and back.
fn other_name(home: &str) -> Option<String> {
    let home = home.trim_end_matches('/');
    match home.strip_prefix("/var") {
        Some(rest) if rest.starts_with("/home/") => Some(rest.to_owned()),
        Some(_) | None => home.starts_with("/home/").then(|| format!("/var{home}")),
    }
}

fn observed_groups(spec: &HostSpec) -> BTreeMap<String, ObservedGroup> {
    let observed = |name: &str, gid: Option<u32>, password: Option<PasswordHash>| {
        let is_root = name == ROOT;
        let gid = gid.unwrap_or(if is_root { 0 } else { CORE_ID });
        let maker = if is_root { Maker::Host } else { Maker::Agent };
        (
            name.to_owned(),
            ObservedGroup { gid, password, maker, people: BTreeSet::new(), is_primary: is_root },
        )
    };
    let exists = spec.users.groups.iter().filter(|(_, group)| group.should_exist);
    let exists = exists.map(|(name, group)| observed(name.as_str(), group.gid, group.password.clone()));
    std::iter::once(observed(ROOT, None, None)).chain(exists).collect()
}

/// Directories of an image-based host that are links into `/var` or are `/var` itself.
fn under_var(spec: &HostSpec) -> BTreeSet<ManagedPath> {
    const STATE_DIRECTORIES: [&str; 7] = ["/var", "/home", "/root", "/opt", "/srv", "/mnt", "/usr/local"];
    spec.entries()
        .into_keys()
        .filter(|path| STATE_DIRECTORIES.iter().any(|place| path.is_below(place)))
        .collect()
}
