//! Enabling, disabling, masking: links in `/etc/systemd/system`, by systemd's own rules, without systemd running.
//!
//! The links are read once, changed in memory, and the differences come out as file changes. Invariant: nothing is
//! written here, so that the originals of exactly the changed files can be saved first.

use std::collections::{BTreeMap, BTreeSet};

use crate::host::HostError;
use crate::host::durable::{Change, DesiredPath};
use crate::host::root::Root;

use crate::model::ids::UNIT_DIR;
use crate::model::install::{Install, is_template, template};
use crate::model::observation::{ObservedUnit, UnitFilePreset, UnitFileState};
use crate::model::rehearsal::Renamed;
use crate::model::units::Mask;
use crate::model::{LinkSpec, ManagedPath, UnitName};

use super::coming::{Coming, Source, Sources};
use super::config_units::ConfigUnits;
use super::link_verbs::Calls;
use super::preset::{Preset, Presets};

/// A link to it masks a unit.
pub const DEV_NULL: &str = "/dev/null";
/// Directories of unit files besides `/etc`, highest priority first.
const VENDOR_DIRS: [&str; 4] = [
    "/run/systemd/system",
    "/usr/local/lib/systemd/system",
    "/usr/lib/systemd/system",
    "/lib/systemd/system",
];
/// Directories of systemd: a file elsewhere is no unit until a link brings it.
const OWN_DIRS: [&str; 5] =
    ["/etc/systemd/", "/run/systemd/", "/usr/local/lib/systemd/", "/usr/lib/systemd/", "/lib/systemd/"];
/// Links from unit to unit end after a few; more are a loop.
const MAX_HOPS: u32 = 8;

/// An entry of `/etc/systemd/system` or of one of its folders of links.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Node {
    /// A unit file, or what else is no link.
    File,
    /// A link, and its text.
    Link(String),
}

/// The file that a unit's name leads to.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Found {
    Masked,
    /// The unit's own name and the path of its file.
    At {
        name: String,
        path: String,
    },
    Nothing,
}

/// The links of a root's units, as they are and as they should become.
#[derive(Debug, Clone)]
pub struct UnitLinks<'a> {
    sources: Sources<'a>,
    pub(super) before: BTreeMap<String, Node>,
    pub(super) now: BTreeMap<String, Node>,
    pub(super) calls: Calls,
    presets: Presets,
    configs: ConfigUnits,
}

impl<'a> UnitLinks<'a> {
    /// Reads the links and the presets of a root.
    pub fn load(root: &'a Root) -> Result<Self, HostError> {
        Self::load_with(root, BTreeMap::new())
    }

    /// Reads the links as they will be with the files of an update, by their paths.
    pub fn load_with(root: &'a Root, coming: BTreeMap<ManagedPath, Coming>) -> Result<Self, HostError> {
        let sources = Sources::new(root, coming);
        let mut before = BTreeMap::new();
        for name in sources.list(UNIT_DIR)? {
            let path = format!("{UNIT_DIR}/{name}");
            let is_folder = [".wants", ".requires", ".upholds"].iter().any(|end| name.ends_with(end));
            if is_folder && sources.is_directory(&path)? {
                for link in sources.list(&path)? {
                    let node = node(sources.entry(&format!("{path}/{link}"))?);
                    before.extend(node.map(|node| (format!("{name}/{link}"), node)));
                }
                continue;
            }
            let entry = sources.entry(&path)?;
            // Directories of drop-ins are no units.
            if entry != Source::Other || is_folder || UnitName::new(&*name).is_ok() {
                before.extend(node(entry).map(|node| (name, node)));
            }
        }
        Ok(Self {
            now: before.clone(),
            before,
            calls: Calls::default(),
            presets: Presets::load(&sources)?,
            configs: ConfigUnits::default(),
            sources,
        })
    }

    /// Sets what the configs of an update say of units.
    #[must_use]
    pub fn of_configs(self, configs: ConfigUnits) -> Self {
        Self { configs, ..self }
    }

    /// Makes a unit's `[Install]` links, and those of the units in its `Also=`, exactly. A unit that is not there, and
    /// one that has nothing to enable, are no error (MCD-151): the links of their earlier `[Install]` go.
    pub(super) fn enable(&mut self, unit: &UnitName) -> Result<(), HostError> {
        self.enable_all(unit.as_str())
    }

    /// Removes every link of a unit and of the units in its `Also=`, and the aliases that lead to it, but for what the config
    /// enables; returns true if systemd does the same. It would also remove a link that brings a unit file from elsewhere, which nothing
    /// could restore.
    pub(super) fn disable(&mut self, unit: &UnitName) -> Result<bool, HostError> {
        let requested = self.requested()?;
        let own = match self.find(unit.as_str())? {
            Found::At { name, .. } => name,
            Found::Masked | Found::Nothing => unit.to_string(),
        };
        let mut names: BTreeSet<String> = self.together(unit.as_str())?.into_iter().collect();
        let all = names.len();
        names.retain(|name| *name == own || name == unit.as_str() || !requested.contains(name));
        let is_brought = names.iter().any(|name| self.is_brought(name));
        let is_same = names.len() == all && !is_brought;
        Ok(self.remove_links_but_instances(names, &requested) && is_same)
    }

    /// Removes the links of units that are disabled. An instance that the config enables stays, and one that goes by its own presets;
    /// returns true if there is none.
    fn remove_links_but_instances(&mut self, names: BTreeSet<String>, requested: &BTreeSet<String>) -> bool {
        let configs = self.configs.clone();
        let stays = |name: &str| configs.keeps_instance(name) || requested.contains(name);
        self.remove_links(names, &BTreeSet::new(), stays)
    }

    /// Returns the units that the config enables, by name or by its presets, with those in their `Also=`: to disable another unit that
    /// names one leaves it enabled, in whatever order it comes. Those that the config disables are none.
    fn requested(&self) -> Result<BTreeSet<String>, HostError> {
        let ConfigUnits { enabled, disabled, preset, .. } = &self.configs;
        let by_preset = preset.iter().filter(|unit| self.presets.lookup(unit.as_str()) == Preset::Enable);
        let mut requested = BTreeSet::new();
        for unit in enabled.iter().chain(by_preset) {
            match self.together(unit.as_str()) {
                Ok(names) => requested.extend(names),
                Err(HostError::Unit { .. }) => drop(requested.insert(unit.to_string())),
                Err(error) => return Err(error),
            }
        }
        requested.retain(|name| disabled.iter().all(|unit| unit.as_str() != name));
        Ok(requested)
    }

    /// Returns true if a unit that the config enables names a unit in its `Also=`.
    fn is_named_by_enabled(&self, unit: &UnitName) -> Result<bool, HostError> {
        for other in self.configs.enabled.iter().filter(|other| *other != unit) {
            match self.together(other.as_str()) {
                Ok(names) if names.iter().any(|name| name == unit.as_str()) => return Ok(true),
                Ok(_) | Err(HostError::Unit { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(false)
    }

    /// Applies the presets; returns true if systemd does the same. A unit that can't be enabled stays as it is
    /// (MCD-150).
    pub(super) fn preset(&mut self, unit: &UnitName) -> Result<bool, HostError> {
        let found = self.find(unit.as_str())?;
        let own = BTreeSet::from([unit.to_string()]);
        match (self.presets.lookup(unit.as_str()), found) {
            (_, Found::Masked) if self.configs.left.contains(unit) => {
                self.preset_below_mask(unit).map(|()| false)
            }
            // Another unit has the name again, which the config did not turn.
            (_, Found::At { name, .. }) if name != unit.as_str() && self.configs.replaced.contains(unit) => {
                self.remove_links(own, &self.names_of(&name), |_| false);
                Ok(false)
            }
            // systemd skips another name of a unit: its link is the unit's own.
            (_, Found::At { name, .. }) if name != unit.as_str() => Ok(false),
            (_, Found::Masked) | (Preset::Ignore, _) => Ok(false),
            (_, Found::Nothing) => self.disable(unit),
            // The config enables it, by another unit.
            (Preset::Disable, Found::At { .. }) if self.is_named_by_enabled(unit)? => {
                match self.enable_all(unit.as_str()) {
                    Err(HostError::Unit { .. }) => {}
                    done => done?,
                }
                Ok(false)
            }
            (Preset::Disable, Found::At { .. }) => {
                // Not those of its `Also=`: each has a preset of its own.
                let requested = self.requested()?;
                Ok(self.remove_links_but_instances(own, &requested) && !self.is_brought(unit.as_str()))
            }
            (Preset::Enable, Found::At { .. }) => {
                for name in self.presets.named(unit.as_str()) {
                    match self.enable_all(&name) {
                        Err(HostError::Unit { .. }) => return Ok(false),
                        done => done?,
                    }
                }
                Ok(true)
            }
        }
    }

    /// The host has masked a unit again that leaves: its presets decide about the unit below the mask, and of no unit all links go.
    fn preset_below_mask(&mut self, unit: &UnitName) -> Result<(), HostError> {
        let mask = self.now.remove(unit.as_str());
        let done = match self.find(unit.as_str()) {
            Ok(Found::Masked) => {
                self.remove_links(BTreeSet::from([unit.to_string()]), &BTreeSet::new(), |_| false);
                Ok(())
            }
            Ok(Found::At { .. } | Found::Nothing) => self.preset(unit).map(|_| ()),
            Err(error) => Err(error),
        };
        self.now.extend(mask.map(|mask| (unit.to_string(), mask)));
        done
    }

    /// Returns the links that are other names of a unit.
    fn names_of(&self, unit: &str) -> BTreeSet<String> {
        let is_name = |(at, node): &(&String, &Node)| matches!(node, Node::Link(target) if !at.contains('/') && base(target) == unit);
        self.now.iter().filter(is_name).map(|(at, _)| at.clone()).collect()
    }

    /// Returns true if a link brings the file of a unit from outside of systemd's directories, as `systemctl link` makes it.
    fn is_brought(&self, unit: &str) -> bool {
        matches!(self.now.get(unit), Some(Node::Link(target)) if brings(unit, target))
    }

    /// Returns true if there is a unit file, or a mask, of this name.
    pub(super) fn knows(&self, unit: &UnitName) -> Result<bool, HostError> {
        Ok(self.find(unit.as_str())? != Found::Nothing)
    }

    /// Links a unit to `/dev/null`, in place of a file too (MCD-146).
    pub(super) fn mask(&mut self, unit: &UnitName) {
        self.now.insert(unit.to_string(), Node::Link(DEV_NULL.to_owned()));
    }

    /// Removes such a link; a unit file stays.
    pub(super) fn unmask(&mut self, unit: &UnitName) {
        if self.is_masked(unit.as_str()) {
            self.now.remove(unit.as_str());
        }
    }

    /// Returns the links to write and to remove, one change for each path; and, as it should be, each path that an
    /// earlier run has changed: its directories may still have to be synced.
    pub fn changes(&self, earlier: &[String]) -> Vec<Change<'static>> {
        let change = |at: String| {
            let want = match self.now.get(&at) {
                Some(Node::Link(target)) => DesiredPath::link(target),
                Some(Node::File) => return None,
                None => DesiredPath::Absent,
            };
            Some(Change::new(format!("{UNIT_DIR}/{at}"), 0, want))
        };
        self.changing(earlier).into_iter().filter_map(change).collect()
    }

    /// Returns the directories of links that lose their last one. systemd removes them, too.
    /// `earlier` as in [`UnitLinks::changes`].
    pub fn emptied(&self, earlier: &[String]) -> Result<BTreeSet<ManagedPath>, HostError> {
        let folder = |at: &String| at.split_once('/').map(|(folder, _)| folder.to_owned());
        let changed = self.changing(earlier);
        let before: BTreeSet<_> = self.before.keys().chain(&changed).filter_map(folder).collect();
        let now: BTreeSet<_> = self.now.keys().filter_map(folder).collect();
        let mut emptied = BTreeSet::new();
        for folder in before.difference(&now) {
            let Ok(path) = ManagedPath::new(format!("{UNIT_DIR}/{folder}")) else { continue };
            // A link to a directory stays.
            if self.sources.entry(path.as_str())? == Source::Other {
                emptied.insert(path);
            }
        }
        Ok(emptied)
    }

    /// Returns the paths below the directory of links that [`UnitLinks::changes`] is about.
    pub(super) fn changing(&self, earlier: &[String]) -> BTreeSet<String> {
        let below = earlier
            .iter()
            .filter_map(|path| path.strip_prefix(UNIT_DIR)?.strip_prefix('/').map(str::to_owned));
        let differs = |at: &&String| self.before.get(*at) != self.now.get(*at);
        below.chain(self.before.keys().chain(self.now.keys()).filter(differs).cloned()).collect()
    }

    /// Observes a unit. Enabled is one whose `[Install]` links are all there, and partly enabled one with some of them.
    pub fn observe(&self, unit: &UnitName) -> Result<ObservedUnit, HostError> {
        let found = self.find(unit.as_str())?;
        let is_other_name = matches!(&found, Found::At { name, .. } if name != unit.as_str());
        let enabled = match found {
            Found::Masked => UnitFileState::Masked,
            Found::Nothing => UnitFileState::NotFound,
            Found::At { name, path } => self.enabled(&name, &path)?,
        };
        let preset = match (self.presets.lookup(unit.as_str()), enabled) {
            _ if is_other_name => UnitFilePreset::Ignore,
            (Preset::Enable, _) | (Preset::Ignore, UnitFileState::Enabled) => UnitFilePreset::Enable,
            (Preset::Ignore, UnitFileState::Partial) => UnitFilePreset::Ignore,
            (Preset::Disable | Preset::Ignore, _) => UnitFilePreset::Disable,
        };
        let mask = if self.is_masked(unit.as_str()) { Mask::Masked } else { Mask::Unmasked };
        Ok(ObservedUnit { enabled, preset, mask })
    }

    /// Returns the links to a unit beyond its `[Install]` section; of a template also those of its instances.
    pub fn stray(&self, unit: &UnitName) -> Result<Vec<ManagedPath>, HostError> {
        let Found::At { name, path } = self.find(unit.as_str())? else { return Ok(Vec::new()) };
        let install_links = self.install(&name, &path)?.links(&name).unwrap_or_default();
        let leads = |at: &str, target: &str| match at.rsplit_once('/') {
            Some((_, own)) => own == name || base(target) == name,
            None => at != name && at != unit.as_str() && base(target) == name,
        };
        let stray = |(at, node): (&String, &Node)| match node {
            Node::Link(target)
                if target != DEV_NULL
                    && !brings(at, target)
                    && leads(at, target)
                    && install_links.iter().all(|link| link.at != *at) =>
            {
                ManagedPath::new(format!("{UNIT_DIR}/{at}")).ok()
            }
            Node::Link(_) | Node::File => None,
        };
        Ok(self.now.iter().filter_map(stray).collect())
    }

    /// Returns the unit whose other name, a link, hides the unit file of this name.
    pub fn hidden_by(&self, unit: &UnitName) -> Result<Option<UnitName>, HostError> {
        let Some(Node::Link(target)) = self.now.get(unit.as_str()) else { return Ok(None) };
        let other = UnitName::new(base(target)).ok().filter(|other| other != unit);
        let Some(other) = other.filter(|_| !brings(unit.as_str(), target)) else { return Ok(None) };
        for directory in VENDOR_DIRS {
            if matches!(self.sources.entry(&format!("{directory}/{unit}"))?, Source::File) {
                return Ok(Some(other));
            }
        }
        Ok(None)
    }

    /// Returns those of a unit's `[Install]` links that lead to another one, and to which.
    pub fn taken(&self, unit: &UnitName) -> Result<Vec<(String, String)>, HostError> {
        let Found::At { name, path } = self.find(unit.as_str())? else { return Ok(Vec::new()) };
        let links = self.install(&name, &path)?.links(&name).unwrap_or_default();
        let other = |at: String| match self.now.get(&at) {
            Some(Node::Link(target)) if !self.leads_to(&at, &path) => {
                let other = if target == DEV_NULL { target } else { base(target) };
                Some((at, other.to_owned()))
            }
            Some(Node::Link(_) | Node::File) | None => None,
        };
        Ok(links.into_iter().filter_map(|link| other(link.at)).collect())
    }

    /// Returns the links that decide whether a unit is enabled, as they are made or missing: those of its `[Install]` section.
    pub fn decisive(&self, unit: &UnitName) -> Result<Vec<ManagedPath>, HostError> {
        let Found::At { name, path } = self.find(unit.as_str())? else { return Ok(Vec::new()) };
        let links = self.install(&name, &path)?.links(&name).unwrap_or_default();
        Ok(links.iter().filter_map(|link| below(&link.at)).collect())
    }

    /// Returns the links of a config that the changes take away, or lead elsewhere.
    pub fn lost(&self, listed: &BTreeMap<ManagedPath, LinkSpec>) -> BTreeSet<ManagedPath> {
        let changed = self.changing(&[]);
        let lost = changed.iter().filter_map(|at| below(at)).filter(|path| listed.contains_key(path));
        lost.collect()
    }

    /// Returns the names of units that the changes give to another unit.
    pub fn renamed(&self) -> Vec<Renamed> {
        let renamed = self.before.iter().filter_map(|(at, before)| {
            let (Node::Link(was), Some(Node::Link(is))) = (before, self.now.get(at)) else { return None };
            let name =
                |target: &str| if target == DEV_NULL { target.to_owned() } else { base(target).to_owned() };
            let is_name = !at.contains('/') && is != DEV_NULL && name(was) != name(is);
            let link = below(at).filter(|_| is_name)?;
            Some(Renamed { link, from: name(was), to: name(is) })
        });
        renamed.collect()
    }

    /// Returns the links to a unit, to its aliases and to the units in its `Also=`; its mask is one.
    pub fn leading_to(&self, unit: &UnitName) -> Result<Vec<ManagedPath>, HostError> {
        let names = self.together(unit.as_str())?;
        let is = |name: &str| names.iter().any(|one| one == name);
        let leads = |(at, node): (&String, &Node)| match node {
            Node::Link(target) if is(base(at)) || is(base(target)) => {
                ManagedPath::new(format!("{UNIT_DIR}/{at}")).ok()
            }
            Node::Link(_) | Node::File => None,
        };
        Ok(self.before.iter().filter_map(leads).collect())
    }

    /// Returns the units that a unit's `Also=` names, directly or not.
    pub fn companions(&self, unit: &UnitName) -> Result<BTreeMap<UnitName, ObservedUnit>, HostError> {
        let mut companions = BTreeMap::new();
        let own = self.find(unit.as_str())?;
        for other in self.together(unit.as_str())? {
            let Ok(name) = UnitName::new(other) else { continue };
            // Another name of its own is none.
            if name != *unit && self.find(name.as_str())? != own {
                companions.insert(name.clone(), self.observe(&name)?);
            }
        }
        Ok(companions)
    }

    /// Returns true if the presets enable a unit: systemd makes those links after it has taken others away.
    pub(crate) fn is_preset(&self, unit: &UnitName) -> bool {
        self.presets.lookup(unit.as_str()) == Preset::Enable
    }

    fn enabled(&self, name: &str, path: &str) -> Result<UnitFileState, HostError> {
        let install = self.install(name, path)?;
        // A unit that can't be enabled counts as disabled; enabling it returns the error.
        let Ok(links) = install.links(name) else { return Ok(UnitFileState::Disabled) };
        if !links.is_empty() {
            return Ok(state(&links.iter().map(|link| self.leads_to(&link.at, path)).collect::<Vec<_>>()));
        }
        // A unit that only names others is as enabled as they are; systemctl calls it indirect.
        let mut all = Vec::new();
        let others = match self.together(name) {
            Err(HostError::Unit { .. }) => Vec::new(),
            others => others?,
        };
        for also in others.into_iter().filter(|also| also != name) {
            if let Found::At { name, path } = self.find(&also)? {
                let links = self.install(&name, &path)?.links(&name).unwrap_or_default();
                all.extend(links.into_iter().map(|link| self.leads_to(&link.at, &path)));
            }
        }
        Ok(state(&all))
    }

    fn enable_all(&mut self, unit: &str) -> Result<(), HostError> {
        // Everything is looked up before anything is changed: an error leaves the links as they were.
        let mut enabled_links = BTreeMap::new();
        let mut enabled = BTreeSet::new();
        for name in self.together(unit)? {
            match self.find(&name)? {
                Found::Masked if name == unit => {
                    let cause = "it is masked".to_owned();
                    return Err(HostError::Unit { unit: name, cause });
                }
                Found::Nothing if name == unit => drop(enabled.insert(name)),
                Found::Masked | Found::Nothing => {}
                Found::At { name: own, path } => {
                    let links =
                        self.install(&own, &path)?.links(&own).map_err(|cause| not_enabled(&own, cause))?;
                    if !links.is_empty() || name == unit && own == unit {
                        enabled.insert(own);
                        enabled_links.extend(links.into_iter().map(|link| (link.at, path.clone())));
                    }
                }
            }
        }
        if let Some(cause) = enabled_links.keys().find_map(|at| self.in_the_way(at)) {
            return Err(HostError::Unit { unit: unit.to_owned(), cause });
        }
        // A link that brings one of these stays.
        let kept = enabled_links.keys().chain(&enabled).cloned().collect();
        let instances = enabled_links.keys().map(|at| base(at)).filter(|name| template(name).is_some());
        enabled.extend(instances.map(str::to_owned).collect::<Vec<_>>());
        // Other instances of a template are units of their own.
        let former = self.configs.former_instances.clone();
        self.remove_links(enabled, &kept, |name| !former.contains(name));
        for (at, path) in enabled_links {
            if !self.leads_to(&at, &path) {
                self.now.insert(at, Node::Link(path));
            }
        }
        Ok(())
    }

    /// Returns what keeps a link from being made: systemd replaces other links alone.
    fn in_the_way(&self, at: &str) -> Option<String> {
        let taken =
            |at: &str, what: &str| format!("{UNIT_DIR}/{at} exists and is not a {what}; move it away");
        match at.split_once('/') {
            Some((folder, _)) if self.now.contains_key(folder) => Some(taken(folder, "directory")),
            Some(_) | None => (self.now.get(at) == Some(&Node::File)).then(|| taken(at, "link")),
        }
    }

    /// Removes links by their own name or by the name of their target, but for `kept`, those that bring a unit file, and those of the
    /// instances of a template that stay by their name; returns true if none of these stays. A removed alias is a name of the unit too.
    fn remove_links(
        &mut self,
        mut names: BTreeSet<String>,
        kept: &BTreeSet<String>,
        stays: impl Fn(&str) -> bool,
    ) -> bool {
        let mut is_none_left = true;
        loop {
            let mut of_these = |at: &String, node: &Node| match node {
                Node::File => false,
                Node::Link(target) if target == DEV_NULL || kept.contains(at) => false,
                Node::Link(target) if brings(at, target) => false,
                Node::Link(_) if names.contains(base(at)) => true,
                Node::Link(target) if !names.contains(base(target)) => false,
                Node::Link(target) => {
                    let is_instance = is_template(base(target)) && template(base(at)).is_some();
                    let is_left = is_instance && stays(base(at));
                    is_none_left &= !is_left;
                    !is_left
                }
            };
            let gone: Vec<String> =
                self.now.iter().filter(|(at, node)| of_these(at, node)).map(|(at, _)| at.clone()).collect();
            if gone.is_empty() {
                return is_none_left;
            }
            for at in gone {
                self.now.remove(&at);
                names.insert(base(&at).to_owned());
            }
        }
    }

    /// Returns a unit and all that its `Also=` names, directly or not.
    fn together(&self, unit: &str) -> Result<Vec<String>, HostError> {
        let mut names = vec![unit.to_owned()];
        let mut at = 0;
        while let Some(name) = names.get(at).cloned() {
            at += 1;
            if let Found::At { name, path } = self.find(&name)? {
                let also = self.install(&name, &path)?.also(&name);
                let also = also.map_err(|cause| not_enabled(&name, cause))?;
                for other in also.into_iter().chain([name]) {
                    if !names.contains(&other) {
                        names.push(other);
                    }
                }
            }
        }
        Ok(names)
    }

    /// Returns true if a link is there and leads to this unit file, also by another of its directories.
    fn leads_to(&self, at: &str, path: &str) -> bool {
        match self.now.get(at) {
            Some(Node::Link(target)) => target == path || (base(target) == base(path) && target != DEV_NULL),
            Some(Node::File) | None => false,
        }
    }

    pub(super) fn is_masked(&self, unit: &str) -> bool {
        matches!(self.now.get(unit), Some(Node::Link(target)) if target == DEV_NULL)
    }

    fn find(&self, unit: &str) -> Result<Found, HostError> {
        let mut name = unit.to_owned();
        for _ in 0..MAX_HOPS {
            match self.look_up(&name)? {
                (Found::At { path, .. }, Some(alias)) if alias == name => {
                    return Ok(Found::At { name, path });
                }
                (Found::At { .. }, Some(alias)) => name = alias,
                (found, _) => return Ok(found),
            }
        }
        Err(HostError::Unit { unit: unit.to_owned(), cause: "its links lead in a circle".to_owned() })
    }

    /// Looks a name up, and its template's; the second value is the name that a link gives it.
    fn look_up(&self, name: &str) -> Result<(Found, Option<String>), HostError> {
        for unit in [Some(name.to_owned()), template(name)].into_iter().flatten() {
            let own = match self.now.get(&unit) {
                Some(Node::Link(target)) => Some((UNIT_DIR, Source::Link(target.clone()))),
                Some(Node::File) => Some((UNIT_DIR, self.sources.entry(&format!("{UNIT_DIR}/{unit}"))?)),
                None => None,
            };
            let vendor = VENDOR_DIRS
                .iter()
                .map(|dir| Ok::<_, HostError>((*dir, self.sources.entry(&format!("{dir}/{unit}"))?)));
            for place in own.map(Ok).into_iter().chain(vendor) {
                let (directory, entry) = place?;
                match entry {
                    Source::Absent | Source::Other => {}
                    // systemd takes an empty unit file for a mask.
                    Source::Empty => return Ok((Found::Masked, None)),
                    Source::Link(target) if target == DEV_NULL => return Ok((Found::Masked, None)),
                    Source::File => {
                        let found = Found::At { name: name.to_owned(), path: format!("{directory}/{unit}") };
                        return Ok((found, Some(name.to_owned())));
                    }
                    Source::Link(target) => return Ok(linked(name, &unit, directory, &target)),
                }
            }
        }
        Ok((Found::Nothing, None))
    }

    fn install(&self, name: &str, path: &str) -> Result<Install, HostError> {
        let mut install = Install::default();
        install.read(&self.read_or_skip(path)?);
        // Drop-ins in the order of their names, across directories; /etc hides the vendor's.
        let mut dropins = BTreeMap::new();
        for unit in [template(name), Some(name.to_owned())].into_iter().flatten() {
            for directory in VENDOR_DIRS.iter().rev().copied().chain([UNIT_DIR]) {
                let folder = format!("{directory}/{unit}.d");
                for dropin in
                    self.sources.list(&folder)?.into_iter().filter(|name| ending(name) == Some("conf"))
                {
                    dropins.insert(dropin.clone(), format!("{folder}/{dropin}"));
                }
            }
        }
        for dropin in dropins.values() {
            install.read(&self.read_or_skip(dropin)?);
        }
        Ok(install)
    }

    /// Reads a unit file or a drop-in. systemd loads neither a directory nor a socket, nor what a link in a circle leads to; a link to
    /// /dev/null takes a vendor's drop-in away.
    fn read_or_skip(&self, path: &str) -> Result<String, HostError> {
        match self.sources.read(path) {
            Ok(bytes) => Ok(String::from_utf8_lossy(&bytes.unwrap_or_default()).into_owned()),
            Err(error) if error.is_of_kind() || error.is_unreachable() => Ok(String::new()),
            Err(error) => Err(error),
        }
    }
}

/// Returns the state of a unit by which of its `[Install]` links are there.
fn state(links: &[bool]) -> UnitFileState {
    match links.iter().filter(|is_there| **is_there).count() {
        _ if links.is_empty() => UnitFileState::Static,
        0 => UnitFileState::Disabled,
        all if all == links.len() => UnitFileState::Enabled,
        _ => UnitFileState::Partial,
    }
}

fn not_enabled(unit: &str, cause: String) -> HostError {
    HostError::Unit { unit: unit.to_owned(), cause }
}

fn node(entry: Source) -> Option<Node> {
    match entry {
        Source::Absent => None,
        Source::Link(target) => Some(Node::Link(target)),
        Source::File | Source::Empty | Source::Other => Some(Node::File),
    }
}

/// Returns the meaning of a link in a unit directory: another name for a unit, or a unit file from elsewhere.
fn linked(name: &str, unit: &str, directory: &str, target: &str) -> (Found, Option<String>) {
    let path = if target.starts_with('/') { target.to_owned() } else { format!("{directory}/{target}") };
    // A link to a file elsewhere is the unit, whatever the file's name is.
    let points_to = if is_elsewhere(target) { unit } else { base(target) };
    // The alias of a template keeps the instance.
    let instance = name.split_once('@').filter(|_| unit != name);
    let alias = match (instance, points_to.split_once("@.")) {
        (Some((_, rest)), Some((prefix, _))) => format!("{prefix}@{rest}"),
        (Some(_), None) | (None, _) => points_to.to_owned(),
    };
    (Found::At { name: name.to_owned(), path }, Some(alias))
}

/// Returns true if a link among the units brings a unit file from elsewhere, under whatever name it has there.
pub(super) fn brings(at: &str, target: &str) -> bool {
    !at.contains('/') && target != DEV_NULL && (base(target) == at || is_elsewhere(target))
}

/// Returns true for an absolute path outside of systemd's directories.
fn is_elsewhere(path: &str) -> bool {
    let is_own = OWN_DIRS.iter().any(|directory| path.starts_with(directory));
    path.starts_with('/') && !path.contains("/../") && !is_own
}

fn below(at: &str) -> Option<ManagedPath> {
    ManagedPath::new(format!("{UNIT_DIR}/{at}")).ok()
}

fn ending(name: &str) -> Option<&str> {
    name.rsplit_once('.').map(|(_, end)| end)
}

fn base(path: &str) -> &str {
    path.rsplit_once('/').map_or(path, |(_, name)| name)
}
