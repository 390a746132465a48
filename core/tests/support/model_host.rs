//! A host as pure data, for tests of the planner: what a spec leaves behind, what a plan makes of it, and what the
//! reboot into another image keeps (the three-way merge of `/etc`).
#![allow(dead_code, unreachable_pub, reason = "each test binary uses its own part of it")]

use std::collections::{BTreeMap, BTreeSet};

use machine_config_core::model::image::Transport;
use machine_config_core::model::observation::{BootCount, LocalPackages};
use machine_config_core::model::observation::{
    Booted, EmbeddedConfig, ObservedCore, ObservedFips, ObservedOs, ObservedUnit, UnitFilePreset,
    UnitFileState,
};
use machine_config_core::model::units::{Enablement, Mask};
use machine_config_core::model::users::{Core, PasswordHash};
use machine_config_core::model::{
    BootId, Contents, Facts, FileSpec, HostSpec, ImageRef, Karg, MachineConfig, ManagedPath, Observation,
    ObservedFile, Principal, UnitName,
};
use machine_config_core::plan::{Op, Plan};
use serde_json::{Map, Value, json};

/// Managed content of an image.
#[derive(Clone, Default)]
pub struct Image {
    pub etc: BTreeMap<ManagedPath, FileSpec>,
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
            enabled: units(is_enabled),
            masked: units(|spec, name| spec.units[name].mask == Mask::Masked),
            carries: Some(spec.name.to_string()),
        }
    }
}

/// A unit that neither the OS nor the config has can't be enabled; of the OS are all units named so.
fn is_enabled(spec: &HostSpec, name: &UnitName) -> bool {
    let unit = &spec.units[name];
    let known = unit.contents.is_some() || name.as_str().starts_with("os.");
    known && unit.enablement == Enablement::Enabled
}

/// The host.
#[derive(Clone)]
pub struct ModelHost {
    pub files: BTreeMap<ManagedPath, FileSpec>,
    pub enabled: BTreeSet<UnitName>,
    pub masked: BTreeSet<UnitName>,
    /// Units of the OS.
    pub vendor: BTreeSet<UnitName>,
    pub kargs: Vec<Karg>,
    pub booted: Option<ImageRef>,
    pub image: Image,
    pub keys: Option<String>,
    pub password: PasswordHash,
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
            enabled: image.enabled.clone(),
            masked: image.masked.clone(),
            vendor: BTreeSet::new(),
            kargs: vec![],
            booted,
            image,
            keys: None,
            password: PasswordHash::locked(),
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
        if let Some(core) = &spec.users.core {
            world.keys = Some(core.keys_text());
            world.password = core.password.clone();
        }
        world
    }

    fn observe_file(&self, path: &ManagedPath, ids: &BTreeMap<String, u32>) -> ObservedFile {
        if self.masked.iter().any(|unit| unit.path() == *path) {
            return ObservedFile::Symlink { target: "/dev/null".to_owned() };
        }
        let id = |principal: &Principal| match principal {
            Principal::Id(id) => *id,
            Principal::Name(name) => ids.get(name).copied().unwrap_or(u32::MAX),
        };
        self.files.get(path).map_or(ObservedFile::Absent, |file| ObservedFile::Regular {
            sha256: file.contents.sha256(),
            len: u64::try_from(file.contents.len()).unwrap(),
            mode: file.mode.bits(),
            uid: id(&file.owner.user),
            gid: id(&file.owner.group),
        })
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
        let ids = BTreeMap::from([("core".to_owned(), 1000)]);
        let mut files = BTreeMap::new();
        let mut units = BTreeMap::new();
        for spec in specs {
            let paths = spec.files.keys().cloned();
            for path in paths.chain(spec.written().into_keys()).chain(spec.units.keys().map(UnitName::path)) {
                files.insert(path.clone(), self.observe_file(&path, &ids));
            }
            units.extend(spec.units.keys().map(|name| (name.clone(), self.observe_unit(name))));
        }
        let keys_path = ManagedPath::new("/home/core/.ssh/authorized_keys.d/ignition").unwrap();
        let keys = self.keys.as_ref().map_or(ObservedFile::Absent, |text| ObservedFile::Regular {
            sha256: Contents::new(text.clone().into_bytes()).sha256(),
            len: u64::try_from(text.len()).unwrap(),
            mode: 0o600,
            uid: 1000,
            gid: 1000,
        });
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
            units,
            former_kargs: Default::default(),
            image_kargs: Vec::new(),
            storage: Default::default(),
            stray_links: BTreeMap::new(),
            core: ObservedCore::Account {
                keys_path,
                keys,
                uid: 1000,
                gid: 1000,
                password: Some(self.password.clone()),
                foreign: None,
            },
            user_ids: ids.clone(),
            group_ids: ids,
        }
    }

    /// Returns the facts, as `facts` would.
    pub fn facts(&self, from: &HostSpec, to: &HostSpec, carries: EmbeddedConfig) -> Facts {
        let observed = self.observe(&[from, to]);
        let paths: BTreeSet<ManagedPath> = observed.files.keys().cloned().collect();
        let masked_in_image = |path: &ManagedPath| self.image.masked.iter().any(|unit| unit.path() == *path);
        let local = |path: &&ManagedPath| {
            let masked = self.masked.iter().any(|unit| unit.path() == **path);
            path.is_below("/etc")
                && (self.files.get(*path) != self.image.etc.get(*path) || masked != masked_in_image(path))
        };
        let secret = ManagedPath::new("/var/lib/kubelet/config.json").unwrap();
        let needed = to.effective_image().is_some_and(|image| image.transport() == Transport::Registry);
        let there = to.files.contains_key(&secret) || self.files.contains_key(&secret);
        Facts {
            carries,
            pull_secret: (needed && there).then_some(secret),
            local: paths.iter().filter(local).cloned().collect(),
            under_var: paths.iter().filter(|path| path.is_below("/var")).cloned().collect(),
            restorable: paths.iter().filter(|path| self.image.etc.contains_key(*path)).cloned().collect(),
            own_masks: BTreeSet::new(),
            is_live: false,
            soft_reboot: None,
            companions: BTreeMap::new(),
            fips: ObservedFips::Off,
            observed,
        }
    }

    /// Carries a plan out, without the reboot.
    pub fn apply(&mut self, plan: &Plan, to: &HostSpec) {
        self.next_kargs.clone_from(&self.kargs);
        self.next_packages.clone_from(&self.packages);
        self.staged = None;
        let new = to.written();
        let none = Core { keys: vec![], password: PasswordHash::locked() };
        let core = to.users.core.as_ref().unwrap_or(&none);
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
                Op::WriteFile { .. } | Op::WriteUnit { .. } | Op::WriteDropin { .. } => {
                    let path = step.op.path().unwrap();
                    self.masked.retain(|unit| unit.path() != path);
                    self.files.insert(path.clone(), new[&path].clone());
                }
                Op::RemoveFile { .. }
                | Op::RestoreFile { .. }
                | Op::RemoveUnit { .. }
                | Op::RemoveDropin { .. } => {
                    let path = step.op.path().unwrap();
                    self.masked.retain(|unit| unit.path() != path);
                    self.files.remove(&path);
                    let restores = !matches!(step.op, Op::RemoveFile { .. });
                    if let (true, Some(original)) = (restores, self.image.etc.get(&path)) {
                        self.files.insert(path, original.clone());
                    }
                }
                Op::SetSshKeys => self.keys = Some(core.keys_text()),
                Op::SetPassword => self.password = core.password.clone(),
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

    /// Reboots: arguments take effect, and a staged image comes with its `/etc` merged.
    pub fn reboot(&mut self, next: &Image) {
        self.kargs.clone_from(&self.next_kargs);
        self.packages.clone_from(&self.next_packages);
        let Some(staged) = self.staged.take() else { return };
        self.booted = Some(staged);
        let old = std::mem::replace(&mut self.image, next.clone());
        let paths: BTreeSet<ManagedPath> =
            self.files.keys().chain(old.etc.keys()).chain(next.etc.keys()).cloned().collect();
        for path in paths.into_iter().filter(|path| path.is_below("/etc")) {
            if self.files.get(&path) == old.etc.get(&path) {
                self.files.remove(&path);
                self.files.extend(next.etc.get(&path).map(|file| (path, file.clone())));
            }
        }
        merge(&mut self.enabled, &old.enabled, &next.enabled);
        merge(&mut self.masked, &old.masked, &next.masked);
        // A link at the path of a unit file hides it.
        self.files.retain(|path, _| !self.masked.iter().any(|unit| unit.path() == *path));
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
