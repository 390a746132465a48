//! A host as pure data, for tests of the planner: what a spec leaves behind, what a plan makes of it, and what the
//! reboot into another image keeps (the three-way merge of `/etc`).
#![allow(dead_code, unreachable_pub, reason = "each test binary uses its own part of it")]

use std::collections::{BTreeMap, BTreeSet};

use machine_config_core::model::image::Transport;
use machine_config_core::model::kargs::FormerKargs;
use machine_config_core::model::observation::{
    AccountFacts, Booted, EmbeddedConfig, Maker, ObservedAccount, ObservedFips, ObservedGroup, ObservedOs,
    ObservedUnit, UnitFilePreset, UnitFileState,
};
use machine_config_core::model::observation::{BootCount, GivenParts, LocalPackages};
use machine_config_core::model::paths::LinkTarget;
use machine_config_core::model::units::{Enablement, Mask};
use machine_config_core::model::users::{Account, PasswordHash, keys_text};
use machine_config_core::model::{
    BootId, Contents, DirectorySpec, Facts, FileMode, FileSpec, HostSpec, ImageRef, Karg, MachineConfig,
    ManagedPath, Observation, ObservedFile, Obstacles, PathSpec, Principal, UnitName, UserName,
};
use machine_config_core::plan::{Op, Plan};
use serde_json::{Map, Value, json};

/// Managed content of an image.
#[derive(Clone, Default)]
pub struct Image {
    pub etc: BTreeMap<ManagedPath, FileSpec>,
    /// Directories and links.
    pub stored: BTreeMap<ManagedPath, PathSpec>,
    pub enabled: BTreeSet<UnitName>,
    pub masked: BTreeSet<UnitName>,
    pub carries: Option<String>,
}

impl Image {
    /// An image that was built for a config.
    pub fn new(spec: &HostSpec) -> Self {
        let written = spec.written();
        let etc = written.into_iter().filter(|(path, _)| path.is_below("/etc")).collect();
        let units = |desired: fn(&HostSpec, &UnitName) -> bool| {
            spec.units.keys().filter(|name| desired(spec, name)).cloned().collect()
        };
        Self {
            etc,
            stored: stored_by(spec).into_iter().filter(|(path, _)| path.is_below("/etc")).collect(),
            enabled: units(is_enabled),
            masked: units(|spec, name| spec.units[name].mask == Mask::Masked),
            carries: Some(spec.name.to_string()),
        }
    }
}

/// The directories and links that a spec leaves on a bare host.
fn stored_by(spec: &HostSpec) -> BTreeMap<ManagedPath, PathSpec> {
    spec.stored_paths().map(|(path, entry)| (path, made(&entry, None))).collect()
}

/// An entry as it is made in the place of another one: what a directory does not set stays.
fn made(entry: &PathSpec, before: Option<&PathSpec>) -> PathSpec {
    let PathSpec::Directory(directory) = entry else { return entry.clone() };
    let root = DirectorySpec {
        mode: Some(FileMode::DIRECTORY),
        user: Some(Principal::Id(0)),
        group: Some(Principal::Id(0)),
        overwrite: false,
    };
    let before = match before {
        Some(PathSpec::Directory(before)) => before.clone(),
        _ => root,
    };
    PathSpec::Directory(DirectorySpec {
        mode: directory.mode.or(before.mode),
        user: directory.user.clone().or(before.user),
        group: directory.group.clone().or(before.group),
        overwrite: false,
    })
}

/// A unit that neither the OS nor the config has can't be enabled; of the OS are all units named so.
fn is_enabled(spec: &HostSpec, name: &UnitName) -> bool {
    let unit = &spec.units[name];
    let known = unit.contents.is_some() || name.as_str().starts_with("os.");
    known && unit.enablement == Enablement::Enabled
}

impl Image {
    fn paths(&self) -> impl Iterator<Item = &ManagedPath> {
        self.etc.keys().chain(self.stored.keys())
    }

    fn entry(&self, path: &ManagedPath) -> Option<PathSpec> {
        self.stored.get(path).cloned().or_else(|| self.etc.get(path).cloned().map(PathSpec::File))
    }
}

/// The host.
#[derive(Clone)]
pub struct ModelHost {
    pub files: BTreeMap<ManagedPath, FileSpec>,
    /// Directories and links; a directory that only holds something is not among them.
    pub stored: BTreeMap<ManagedPath, PathSpec>,
    pub enabled: BTreeSet<UnitName>,
    pub masked: BTreeSet<UnitName>,
    /// Units of the OS.
    pub vendor: BTreeSet<UnitName>,
    pub kargs: Vec<Karg>,
    pub booted: Option<ImageRef>,
    pub image: Image,
    /// Accounts of the host.
    pub accounts: BTreeMap<String, ObservedAccount>,
    /// Groups of the host, beside those of the accounts.
    pub groups: BTreeMap<String, ObservedGroup>,
    /// Packages that are layered on the image.
    pub packages: BTreeSet<String>,
    staged: Option<ImageRef>,
    next_packages: BTreeSet<String>,
    next_kargs: Vec<Karg>,
}

impl ModelHost {
    /// A host on which nothing is managed yet.
    pub fn bare(booted: Option<ImageRef>, image: Image) -> Self {
        Self {
            files: image.etc.clone(),
            stored: image.stored.clone(),
            enabled: image.enabled.clone(),
            masked: image.masked.clone(),
            vendor: BTreeSet::new(),
            kargs: vec![],
            booted,
            image,
            accounts: BTreeMap::from([("core".to_owned(), account("core", 1000, Maker::Host))]),
            groups: BTreeMap::new(),
            packages: BTreeSet::new(),
            staged: None,
            next_packages: BTreeSet::new(),
            next_kargs: vec![],
        }
    }

    /// A host that holds a spec.
    pub fn holding(spec: &HostSpec) -> Self {
        let image = spec.image.as_ref().map_or_else(Image::default, |_| Image::new(spec));
        let mut world = Self::bare(spec.effective_image().cloned(), image);
        world.files.extend(spec.written());
        world.stored.extend(stored_by(spec));
        world.kargs.clone_from(&spec.kargs);
        if spec.image.is_none() {
            world.packages = spec.layers().packages().unwrap_or_default();
        }
        for (name, unit) in &spec.units {
            if is_enabled(spec, name) {
                world.enabled.insert(name.clone());
            }
            if unit.mask == Mask::Masked {
                world.masked.insert(name.clone());
            }
            if unit.contents.is_none() {
                world.vendor.insert(name.clone());
            }
        }
        for (name, group) in spec.users.groups.iter().filter(|(_, group)| group.should_exist) {
            world.groups.insert(name.to_string(), made_group(group));
        }
        for (name, account) in spec.users.accounts.iter().filter(|(_, account)| account.should_exist) {
            if account.is_made(name) && !world.accounts.contains_key(name.as_str()) {
                world.create_user(name, account);
            }
            world.modify_user(name, None, Some(account));
            world.set_keys(name, Some(account));
            world.set_password(name, account.password.clone());
        }
        world
    }

    fn create_user(&mut self, name: &UserName, account: &Account) {
        let id = account.uid.unwrap_or(2000);
        let mut made = self::account(name.as_str(), id, Maker::Agent);
        if let Some(home) = &account.home {
            made.home.clone_from(home);
        }
        made.primary_group = Some(account.primary_group.clone().unwrap_or_else(|| name.to_string()));
        self.accounts.insert(name.to_string(), made);
        self.modify_user(name, None, Some(account));
    }

    fn modify_user(&mut self, name: &UserName, old: Option<&Account>, new: Option<&Account>) {
        let Some(found) = self.accounts.get_mut(name.as_str()) else { return };
        let (nothing, found_before) = (Account::default(), account(name.as_str(), found.uid, found.maker));
        let (old, new) = (old.unwrap_or(&nothing), new.unwrap_or(&nothing));
        found.groups.retain(|group| !old.groups.contains(group));
        found.groups.extend(new.groups.iter().cloned());
        // What a person has set since stays.
        let let_go = |new: &Option<String>, old: &Option<String>, found_now: &String, before: String| {
            let is_given = old.as_ref() == Some(found_now) || found.is_expired;
            new.clone().unwrap_or(if is_given { before } else { found_now.clone() })
        };
        let gecos = let_go(&new.gecos, &old.gecos, &found.gecos, found_before.gecos);
        let shell = let_go(&new.shell, &old.shell, &found.shell, found_before.shell);
        found.has_original = found.maker != Maker::Agent;
        (found.gecos, found.shell, found.is_expired) = (gecos, shell, false);
    }

    fn set_keys(&mut self, name: &UserName, account: Option<&Account>) {
        let Some(found) = self.accounts.get_mut(name.as_str()) else { return };
        let keys = account.and_then(|account| account.desired_keys(name)).map(keys_text);
        found.keys = keys.map_or(ObservedFile::Absent, |text| ObservedFile::Regular {
            len: u64::try_from(text.len()).unwrap(),
            sha256: Contents::new(text.into_bytes()).sha256(),
            mode: 0o600,
            uid: found.uid,
            gid: found.gid,
        });
    }

    fn set_password(&mut self, name: &UserName, password: Option<PasswordHash>) {
        if let Some(found) = self.accounts.get_mut(name.as_str()) {
            found.password = Some(password.unwrap_or_else(PasswordHash::locked));
        }
    }

    fn observe_file(&self, path: &ManagedPath, ids: &BTreeMap<String, u32>) -> ObservedFile {
        if self.masked.iter().any(|unit| unit.path() == *path) {
            return ObservedFile::Symlink { target: "/dev/null".to_owned(), uid: 0, gid: 0 };
        }
        let id = |principal: &Principal| match principal {
            Principal::Id(id) => *id,
            Principal::Name(name) => ids.get(name).copied().unwrap_or(u32::MAX),
        };
        let regular = |file: &FileSpec| ObservedFile::Regular {
            sha256: file.contents.sha256(),
            len: u64::try_from(file.contents.len()).unwrap(),
            mode: file.mode.bits(),
            uid: id(&file.owner.user),
            gid: id(&file.owner.group),
        };
        match self.stored.get(path) {
            Some(PathSpec::Directory(directory)) => ObservedFile::Directory {
                mode: directory.mode.unwrap().bits(),
                uid: id(directory.user.as_ref().unwrap()),
                gid: id(directory.group.as_ref().unwrap()),
            },
            Some(PathSpec::Link(link)) => match &link.target {
                LinkTarget::Soft(target) => ObservedFile::Symlink {
                    target: target.clone(),
                    uid: id(&link.owner.user),
                    gid: id(&link.owner.group),
                },
                LinkTarget::Hard(target) => self.observe_file(target, ids),
            },
            Some(PathSpec::File(_)) => unreachable!("files are kept apart"),
            None if self.holds_below(path) => ObservedFile::Directory { mode: 0o755, uid: 0, gid: 0 },
            None => self.files.get(path).map_or(ObservedFile::Absent, regular),
        }
    }

    fn paths(&self) -> impl Iterator<Item = &ManagedPath> {
        self.files.keys().chain(self.stored.keys())
    }

    fn holds_below(&self, path: &ManagedPath) -> bool {
        self.below(path).next().is_some()
    }

    fn below<'a>(&'a self, path: &'a ManagedPath) -> impl Iterator<Item = &'a ManagedPath> {
        let all = self.files.keys().chain(self.stored.keys());
        all.filter(move |other| *other != path && other.is_below(path.as_str()))
    }

    /// Returns the directories and links, without a directory that the files in it make just so.
    pub fn made(&self) -> BTreeMap<ManagedPath, PathSpec> {
        let plain = made(&PathSpec::Directory(DirectorySpec::default()), None);
        let is_made = |path: &ManagedPath, entry: &PathSpec| *entry != plain || !self.holds_below(path);
        self.stored
            .iter()
            .filter(|(path, entry)| is_made(path, entry))
            .map(|(p, e)| (p.clone(), e.clone()))
            .collect()
    }

    /// Returns what is there; a hard link is a file of its own to whoever keeps it.
    fn entry(&self, path: &ManagedPath) -> Option<PathSpec> {
        self.stored.get(path).cloned().or_else(|| self.files.get(path).cloned().map(PathSpec::File))
    }

    /// Puts something in the place of what is there. Hard links to it keep the old file.
    fn put(&mut self, path: &ManagedPath, entry: Option<PathSpec>) {
        let links =
            |linked: &PathSpec| matches!(linked, PathSpec::Link(link) if link.hard_target() == Some(path));
        let left: Vec<ManagedPath> =
            self.stored.iter().filter(|(_, linked)| links(linked)).map(|(other, _)| other.clone()).collect();
        for other in left {
            self.stored.remove(&other);
            self.files.extend(self.files.get(path).cloned().map(|file| (other, file)));
        }
        self.files.remove(path);
        self.stored.remove(path);
        match entry {
            None => {}
            Some(PathSpec::File(file)) => drop(self.files.insert(path.clone(), file)),
            Some(other) => drop(self.stored.insert(path.clone(), other)),
        }
    }

    fn observe_unit(&self, name: &UnitName) -> ObservedUnit {
        let known = self.vendor.contains(name) || self.files.contains_key(&name.path());
        let masked = self.masked.contains(name);
        let enabled = match (masked, known, self.enabled.contains(name)) {
            (true, _, _) => UnitFileState::Masked,
            (false, false, _) => UnitFileState::NotFound,
            (false, true, true) => UnitFileState::Enabled,
            (false, true, false) => UnitFileState::Disabled,
        };
        ObservedUnit {
            enabled,
            preset: UnitFilePreset::Disable,
            mask: if masked { Mask::Masked } else { Mask::Unset },
        }
    }

    /// Returns the observation for these specs, as `observe` would.
    pub fn observe(&self, specs: &[&HostSpec]) -> Observation {
        let ids: BTreeMap<String, u32> =
            self.accounts.iter().map(|(name, account)| (name.clone(), account.uid)).collect();
        let groups = self.groups.iter().map(|(name, group)| (name.clone(), group.gid));
        let group_ids = ids.iter().map(|(name, id)| (name.clone(), *id)).chain(groups).collect();
        let mut files = BTreeMap::new();
        let mut units = BTreeMap::new();
        for spec in specs {
            let paths = spec.written().into_keys().chain(spec.stored());
            let paths = paths.chain(spec.hard_targets().map(|(_, target)| target.clone()));
            for path in paths.chain(spec.units.keys().map(UnitName::path)) {
                files.insert(path.clone(), self.observe_file(&path, &ids));
            }
            units.extend(spec.units.keys().map(|name| (name.clone(), self.observe_unit(name))));
        }
        let carries = self
            .image
            .carries
            .clone()
            .map_or(EmbeddedConfig::Unknown, |name| EmbeddedConfig::Config(name.try_into().unwrap()));
        let booted = Booted {
            image: self.booted.clone(),
            deployment: "os-0.0".to_owned(),
            carries,
            local: LocalPackages { requested: self.packages.clone(), ..LocalPackages::default() },
        };
        Observation {
            boot_id: BootId::new("b0").unwrap(),
            boots: BootCount::Off,
            os: ObservedOs::Deployments { booted, staged: None, next: None },
            kargs: self.kargs.clone(),
            files,
            access_lists: BTreeSet::new(),
            hard_links: self
                .stored
                .iter()
                .filter_map(|(path, entry)| match entry {
                    PathSpec::Link(link) => Some((path.clone(), link.hard_target()?.clone())),
                    PathSpec::File(_) | PathSpec::Directory(_) => None,
                })
                .collect(),
            units,
            former_kargs: FormerKargs::default(),
            image_kargs: Vec::new(),
            storage: BTreeSet::new(),
            stray_links: BTreeMap::new(),
            accounts: self.accounts.clone(),
            stray_keys: Vec::new(),
            groups: self.groups.clone(),
            user_ids: ids,
            group_ids,
            carried: None,
        }
    }

    fn missing_groups(&self, specs: &[&HostSpec]) -> BTreeSet<String> {
        let accounts = specs.iter().flat_map(|spec| spec.users.accounts.values());
        let named = accounts.flat_map(|account| account.groups.iter().chain(&account.primary_group));
        let known = |name: &&String| {
            ["wheel", "sudo"].contains(&name.as_str())
                || self.groups.contains_key(*name)
                || self.accounts.contains_key(*name)
        };
        named.filter(|name| !known(name)).cloned().collect()
    }

    /// Returns the facts, as `facts` would.
    pub fn facts(&self, from: &HostSpec, to: &HostSpec, carries: EmbeddedConfig) -> Facts {
        let observed = self.observe(&[from, to]);
        let paths: BTreeSet<ManagedPath> = observed.files.keys().cloned().collect();
        let masked_in_image = |path: &ManagedPath| self.image.masked.iter().any(|unit| unit.path() == *path);
        let local = |path: &&ManagedPath| {
            let masked = self.masked.iter().any(|unit| unit.path() == **path);
            path.is_below("/etc")
                && (self.entry(path) != self.image.entry(path) || masked != masked_in_image(path))
        };
        let secret = ManagedPath::new("/var/lib/kubelet/config.json").unwrap();
        let needed = to.effective_image().is_some_and(|image| image.transport() == Transport::Registry);
        let there = to.files.contains_key(&secret) || self.files.contains_key(&secret);
        Facts {
            carries,
            pull_secret: (needed && there).then_some(secret),
            local: paths.iter().filter(local).cloned().collect(),
            under_var: paths.iter().filter(|path| path.is_below("/var")).cloned().collect(),
            restorable: paths.iter().filter(|path| self.image.entry(path).is_some()).cloned().collect(),
            lost: BTreeSet::new(),
            occupied: self.occupied(from),
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
            accounts: AccountFacts {
                missing_groups: self.missing_groups(&[from, to]),
                ..AccountFacts::default()
            },
            companions: BTreeMap::new(),
            stored_units: BTreeMap::new(),
            fips: ObservedFips::Off,
            observed,
        }
    }

    fn occupied(&self, from: &HostSpec) -> BTreeSet<ManagedPath> {
        let ours = from.managed();
        let of_image = |path: &&ManagedPath| from.image.is_none() && self.image.stored.contains_key(*path);
        let holds_other = |path: &&ManagedPath| self.below(path).any(|other| !ours.contains(other));
        from.directories.keys().filter(|path| of_image(path) || holds_other(path)).cloned().collect()
    }

    /// Carries a plan out, without the reboot.
    pub fn apply(&mut self, plan: &Plan, from: &HostSpec, to: &HostSpec) {
        self.unstage();
        for step in plan.steps() {
            match &step.op {
                Op::StageOs { image } => self.staged = Some(image.clone()),
                Op::SetKargs { delete, append } => {
                    for karg in delete {
                        let place = self.next_kargs.iter().position(|held| held == karg);
                        place.map(|place| self.next_kargs.remove(place));
                    }
                    self.next_kargs.extend(append.iter().cloned());
                }
                Op::WriteFile { .. }
                | Op::WriteUnit { .. }
                | Op::WriteDropin { .. }
                | Op::RemoveFile { .. }
                | Op::RestoreFile { .. }
                | Op::RemoveLink { .. }
                | Op::RestoreLink { .. }
                | Op::RemoveUnit { .. }
                | Op::RemoveDropin { .. }
                | Op::MakeDirectory { .. }
                | Op::WriteLink { .. }
                | Op::RemoveDirectory { .. }
                | Op::RestoreDirectory { .. }
                | Op::OpenDirectory { .. } => self.apply_path(&step.op, to),
                Op::CreateGroup { .. }
                | Op::ModifyGroup { .. }
                | Op::RemoveGroup { .. }
                | Op::CreateUser { .. }
                | Op::ModifyUser { .. }
                | Op::LockUser { .. }
                | Op::SetSshKeys { .. }
                | Op::SetPassword { .. } => self.apply_account(&step.op, from, to),
                Op::MaskUnit { unit } => {
                    self.files.remove(&unit.path());
                    self.masked.insert(unit.clone());
                }
                Op::UnmaskUnit { unit } => {
                    self.masked.remove(unit);
                }
                Op::EnableUnit { unit } => {
                    self.enabled.insert(unit.clone());
                }
                Op::DisableUnit { unit } | Op::PresetUnit { unit } => {
                    self.enabled.remove(unit);
                }
                Op::InstallExtensions { .. } | Op::SwitchKernel { .. } => {
                    self.next_packages = to.host_layers().packages().unwrap_or_default();
                }
                Op::LinkPullSecret { .. }
                | Op::DaemonReload
                | Op::ReloadUnit { .. }
                | Op::RestartUnit { .. } => {}
            }
        }
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "the caller lists the operations")]
    fn apply_path(&mut self, op: &Op, to: &HostSpec) {
        let (new, entries) = (to.written(), to.entries());
        match op {
            Op::WriteFile { .. } | Op::WriteUnit { .. } | Op::WriteDropin { .. } => {
                let path = op.path().unwrap();
                self.masked.retain(|unit| unit.path() != path);
                self.put(&path, Some(PathSpec::File(new[&path].clone())));
            }
            Op::RemoveFile { .. }
            | Op::RestoreFile { .. }
            | Op::RemoveLink { .. }
            | Op::RestoreLink { .. }
            | Op::RemoveUnit { .. }
            | Op::RemoveDropin { .. } => {
                let path = op.path().unwrap();
                self.masked.retain(|unit| unit.path() != path);
                let restores = !matches!(op, Op::RemoveFile { .. } | Op::RemoveLink { .. });
                let original = self.image.entry(&path).filter(|_| restores);
                self.put(&path, original);
            }
            Op::MakeDirectory { path } | Op::WriteLink { path } => {
                let before = self.entry(path);
                let holds = before.is_none() && self.holds_below(path);
                assert!(!holds || matches!(entries[path], PathSpec::Directory(_)), "{path} is in use");
                self.put(path, Some(made(&entries[path], before.as_ref())));
            }
            Op::OpenDirectory { path } if entries.contains_key(path) => {
                let before = self.entry(path);
                self.put(path, Some(made(&entries[path], before.as_ref())));
            }
            Op::RemoveDirectory { path } | Op::RestoreDirectory { path } | Op::OpenDirectory { path } => {
                let restores = !matches!(op, Op::RemoveDirectory { .. });
                let original = self.image.entry(path).filter(|_| restores);
                let needed = to.entries().keys().any(|other| other.is_below(path.as_str()));
                if original.is_some() || needed || !self.holds_below(path) {
                    self.put(path, original);
                }
            }
            other => panic!("{other:?} is of no path"),
        }
    }

    fn unstage(&mut self) {
        self.next_kargs.clone_from(&self.kargs);
        self.next_packages.clone_from(&self.packages);
        self.staged = None;
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "the caller lists the operations")]
    fn apply_account(&mut self, op: &Op, from: &HostSpec, to: &HostSpec) {
        match op {
            Op::CreateGroup { group } | Op::ModifyGroup { group } => {
                self.groups.insert(group.to_string(), made_group(&to.users.groups[group]));
            }
            Op::RemoveGroup { group } => drop(self.groups.remove(group.as_str())),
            Op::CreateUser { user } => self.create_user(user, &to.users.accounts[user]),
            Op::ModifyUser { user } => {
                self.modify_user(user, from.users.accounts.get(user), to.users.accounts.get(user));
            }
            Op::LockUser { user } => {
                self.set_keys(user, None);
                self.set_password(user, None);
                if let Some(account) = self.accounts.get_mut(user.as_str()) {
                    account.is_expired = true;
                }
            }
            Op::SetSshKeys { user } => self.set_keys(user, to.users.accounts.get(user)),
            Op::SetPassword { user } => {
                let new = to.users.accounts.get(user).and_then(|account| account.password.clone());
                self.set_password(user, new);
            }
            other => panic!("{other:?} is of no account"),
        }
    }

    /// Reboots: arguments take effect, and a staged image comes with its `/etc` merged.
    pub fn reboot(&mut self, next: &Image) {
        self.kargs.clone_from(&self.next_kargs);
        self.packages.clone_from(&self.next_packages);
        let Some(staged) = self.staged.take() else { return };
        self.booted = Some(staged);
        let old = std::mem::replace(&mut self.image, next.clone());
        let paths: BTreeSet<ManagedPath> =
            self.paths().chain(old.paths()).chain(next.paths()).cloned().collect();
        for path in paths.into_iter().filter(|path| path.is_below("/etc")) {
            let live = self.entry(&path);
            if live == old.entry(&path) && live != next.entry(&path) {
                self.put(&path, next.entry(&path));
            }
        }
        merge(&mut self.enabled, &old.enabled, &next.enabled);
        merge(&mut self.masked, &old.masked, &next.masked);
        // A link at the path of a unit file hides it.
        self.files.retain(|path, _| !self.masked.iter().any(|unit| unit.path() == *path));
    }
}

/// An account as a host has it, without keys and password.
pub fn account(name: &str, id: u32, maker: Maker) -> ObservedAccount {
    ObservedAccount {
        keys_path: ManagedPath::new(format!("/home/{name}/.ssh/authorized_keys.d/ignition")).ok(),
        keys: ObservedFile::Absent,
        uid: id,
        gid: id,
        password: Some(PasswordHash::locked()),
        foreign: None,
        gecos: String::new(),
        home: format!("/home/{name}"),
        home_names: BTreeSet::new(),
        shell: "/bin/bash".to_owned(),
        primary_group: Some(name.to_owned()),
        groups: BTreeSet::new(),
        maker,
        is_expired: false,
        has_original: false,
        given: GivenParts::default(),
        given_keys: BTreeSet::new(),
        unremoved_keys: BTreeSet::new(),
        unremovable: None,
    }
}

fn made_group(group: &machine_config_core::model::users::Group) -> ObservedGroup {
    ObservedGroup {
        gid: group.gid.unwrap_or(3000),
        password: group.password.clone(),
        maker: Maker::Agent,
        people: BTreeSet::new(),
        is_primary: false,
    }
}

fn merge(live: &mut BTreeSet<UnitName>, old: &BTreeSet<UnitName>, next: &BTreeSet<UnitName>) {
    let all: BTreeSet<UnitName> = live.iter().chain(old).chain(next).cloned().collect();
    for unit in all {
        if live.contains(&unit) == old.contains(&unit) {
            if next.contains(&unit) {
                live.insert(unit)
            } else {
                live.remove(&unit)
            };
        }
    }
}

/// An image by one letter.
pub fn image(letter: char) -> ImageRef {
    ImageRef::parse(&format!("os@sha256:{}", letter.to_string().repeat(64))).unwrap()
}

/// Makes a MachineConfig of short sections: `files`, `units`, `users` go where Ignition has them.
pub fn config(name: &str, sections: Value) -> MachineConfig {
    let mut spec = Map::new();
    let mut ignition = json!({"ignition": {"version": "3.5.0"}});
    let Value::Object(sections) = sections else { panic!("sections are a mapping") };
    for (key, value) in sections {
        match key.as_str() {
            "files" | "disks" | "filesystems" | "raid" | "luks" | "directories" | "links" => {
                ignition["storage"][&key] = value;
            }
            "units" => ignition["systemd"]["units"] = value,
            "users" | "groups" => ignition["passwd"][&key] = value,
            "ignitionKernelArguments" => ignition["kernelArguments"] = value,
            _ => {
                spec.insert(key, value);
            }
        }
    }
    spec.insert("config".to_owned(), ignition);
    let document = json!({"metadata": {"name": name}, "spec": spec});
    MachineConfig::parse(document.to_string().as_bytes(), name).unwrap()
}
