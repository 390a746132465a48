//! Desired state of a node: one validated value.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::ids::is_preset;
use super::os::{KernelType, Layers, LeftOs};
use super::units::UnitSpec;
use super::users::Users;
use super::{
    ConfigName, DirectorySpec, FileSpec, ImageRef, Karg, LinkSpec, ManagedPath, NotApplied, NotAppliedReason,
    PathSpec, Sha256, UnitName,
};

/// The pair of one version of the Node. A half pair does not exist.
///
/// Two are equal if their names, their images and their contents are. Content that is not known is any: a Node names its config,
/// whose name is a digest already, and records of earlier versions have only the name. So equality is not
/// transitive, and no map has a target as its key.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Target {
    /// The rendered MachineConfig.
    pub config: ConfigName,
    /// The OS image of image mode; `None` outside it.
    pub image: Option<ImageRef>,
    /// The digest of the config's content; `None` if only its name is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<Sha256>,
}

impl PartialEq for Target {
    fn eq(&self, other: &Self) -> bool {
        self.is_named_as(other) && !self.is_of_other_content(other)
    }
}

impl Eq for Target {}

impl Target {
    /// Takes the names.
    pub fn new(config: ConfigName, image: Option<ImageRef>) -> Self {
        Self { config, image, content: None }
    }

    /// Returns it with the digest of its config's content.
    #[must_use]
    pub fn with_content(self, content: Option<Sha256>) -> Self {
        Self { content, ..self }
    }

    /// Returns true if the other one has the same name and image, and other content: a file was edited in place.
    pub fn is_renewal_of(&self, other: &Self) -> bool {
        self.is_named_as(other) && self.is_of_other_content(other)
    }

    fn is_named_as(&self, other: &Self) -> bool {
        (&self.config, &self.image) == (&other.config, &other.image)
    }

    fn is_of_other_content(&self, other: &Self) -> bool {
        self.content.zip(other.content).is_some_and(|(one, other)| one != other)
    }
}

/// Sections that are compared but never applied: a change of one is irreconcilable.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FixedSections {
    /// Section name (`storage.disks`, `storage.luks`, ...) to its canonical JSON; empty sections are absent.
    pub sections: BTreeMap<&'static str, String>,
}

/// Bytes of a document. It is no part of what that says: two are always equal.
#[derive(Debug, Clone, Copy, Default)]
pub struct DocumentSize(pub u64);

impl PartialEq for DocumentSize {
    fn eq(&self, _other: &Self) -> bool {
        true
    }
}

impl Eq for DocumentSize {}

/// A MachineConfig and an image, validated: every field is decoded and can be carried out or compared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostSpec {
    /// The rendered MachineConfig's name.
    pub name: ConfigName,
    /// The OS image of image mode (the Node's annotation); `None` outside it.
    pub image: Option<ImageRef>,
    /// The OS image of the MachineConfig; rules outside image mode.
    pub os_image_url: Option<ImageRef>,
    /// Files.
    pub files: BTreeMap<ManagedPath, FileSpec>,
    /// Directories.
    pub directories: BTreeMap<ManagedPath, DirectorySpec>,
    /// Links.
    pub links: BTreeMap<ManagedPath, LinkSpec>,
    /// Those of its directories and links that came with a take-over and are not as listed on the host: they are neither
    /// applied nor compared until their entry changes.
    pub unapplied: BTreeSet<ManagedPath>,
    /// Paths that an earlier config of this host's managed, with its entries, where this value is what is left of it: they may be
    /// replaced. A mask has no entry.
    pub claimed: BTreeMap<ManagedPath, Option<PathSpec>>,
    /// Paths that the host had before a config of ours, of which the agent keeps the original.
    pub originals: BTreeSet<ManagedPath>,
    /// Real paths of directories that links of the host led to as this config was applied, by the directories of its entries.
    pub led: BTreeMap<ManagedPath, String>,
    /// Paths of units and drop-ins whose contents are empty, by their fields: nothing is written there.
    pub unwritten: BTreeMap<ManagedPath, String>,
    /// Units and their drop-ins.
    pub units: BTreeMap<UnitName, UnitSpec>,
    /// Accounts and groups.
    pub users: Users,
    /// Kernel arguments in order, split as the kernel does.
    pub kargs: Vec<Karg>,
    /// The kernel.
    pub kernel_type: KernelType,
    /// Extensions.
    pub extensions: BTreeSet<String>,
    /// The image with the packages of kernels and extensions; it matters only when those are layered.
    pub extensions_image: Option<ImageRef>,
    /// The OS of the host where it is another one than this value's, after an update that was given up.
    pub left: Option<LeftOs>,
    /// FIPS mode.
    pub fips: bool,
    /// Sections that can't change.
    pub fixed: FixedSections,
    /// Fields of the document that are not applied on any host, found where it was read.
    pub remarks: Vec<NotApplied>,
    /// Size of its document.
    pub size: DocumentSize,
    /// Entries of the committed config that were never applied to this host, such as `passwd.users "app"`; `None` if
    /// nothing says so: machine-config-daemon, or an earlier agent, had committed it.
    pub never_applied: Option<BTreeSet<String>>,
}

impl HostSpec {
    /// Returns the image that the node should run: the annotation's in image mode, else the MachineConfig's.
    pub fn effective_image(&self) -> Option<&ImageRef> {
        self.image.as_ref().or(self.os_image_url.as_ref())
    }

    /// Returns the kernel and the extensions of the config.
    pub fn layers(&self) -> Layers {
        Layers { kernel: self.kernel_type, extensions: self.extensions.clone() }
    }

    /// Returns the layers on this host's image: nothing in image mode, where the image brings them.
    pub fn host_layers(&self) -> Layers {
        if self.image.is_some() { Layers::default() } else { self.layers() }
    }

    /// Returns the image that is desired on a host where this value is the old config: the new one's, or the image that ran
    /// before an update that was given up.
    pub fn image_after<'a>(&'a self, new: &'a Self) -> Option<&'a ImageRef> {
        let before = self.left.as_ref().and_then(|left| left.before.as_ref());
        new.effective_image().or(before)
    }

    /// Returns the pair that this value stands for.
    pub fn target(&self) -> Target {
        Target::new(self.name.clone(), self.image.clone())
    }

    /// Returns every path that holds contents of this spec: files, unit files and drop-ins, as files.
    ///
    /// A masked unit has no file: its path is a link.
    pub fn written(&self) -> BTreeMap<ManagedPath, FileSpec> {
        let mut paths = self.files.clone();
        for (name, unit) in &self.units {
            for (dropin, contents) in &unit.dropins {
                paths.insert(name.dropin_path(dropin), FileSpec::of_unit(contents.clone()));
            }
            if let (Some(contents), false) = (&unit.contents, unit.mask == super::units::Mask::Masked) {
                paths.insert(name.path(), FileSpec::of_unit(contents.clone()));
            }
        }
        paths
    }

    /// Returns the files with presets of units, and links to them.
    pub fn presets(&self) -> BTreeMap<ManagedPath, PathSpec> {
        self.entries().into_iter().filter(|(path, _)| is_preset(path)).collect()
    }

    /// Returns every path that is this spec's while it is in force: the written ones, and the links by which it masks
    /// units or does not.
    pub fn managed(&self) -> BTreeSet<ManagedPath> {
        let masks = self.units.iter().filter(|(_, unit)| unit.mask != super::units::Mask::Unset);
        self.entries().into_keys().chain(masks.map(|(name, _)| name.path())).collect()
    }

    /// Returns every path that a step can write: the files of [`HostSpec::written`], directories and links. Those that were
    /// never applied are not among them.
    pub fn entries(&self) -> BTreeMap<ManagedPath, PathSpec> {
        let mut entries: BTreeMap<_, _> =
            self.written().into_iter().map(|(path, file)| (path, PathSpec::File(file))).collect();
        entries.extend(self.stored_paths().filter(|(path, _)| !self.unapplied.contains(path)));
        entries
    }

    /// Returns the directories and links, applied or not.
    pub fn stored_paths(&self) -> impl Iterator<Item = (ManagedPath, PathSpec)> {
        let directories = self.directories.iter();
        let directories =
            directories.map(|(path, directory)| (path.clone(), PathSpec::Directory(directory.clone())));
        let links = self.links.iter().map(|(path, link)| (path.clone(), PathSpec::Link(link.clone())));
        directories.chain(links)
    }

    /// Returns the paths beside its own entry that bring a unit: files and links of the storage that are its unit file, its
    /// template's or their drop-ins, and what the entry of its template writes.
    pub fn unit_sources(&self, unit: &UnitName) -> Vec<ManagedPath> {
        let template = unit.template();
        let is_of = |path: &&ManagedPath| {
            let Some((_, below)) = path.as_str().split_once("/systemd/system/") else { return false };
            let of = below.split_once('/').map_or(Some(below), |(folder, _)| folder.strip_suffix(".d"));
            let is_template = |of: &str| template.as_ref().is_some_and(|name| name.as_str() == of);
            of.is_some_and(|of| of == unit.as_str() || is_template(of))
        };
        let mut sources: Vec<_> = self.files.keys().chain(self.links.keys()).filter(is_of).cloned().collect();
        if let Some((name, spec)) = template.as_ref().and_then(|name| Some((name, self.units.get(name)?))) {
            let is_file = spec.contents.is_some() || spec.mask == super::units::Mask::Masked;
            sources.extend(is_file.then(|| name.path()));
            sources.extend(spec.dropins.keys().map(|dropin| name.dropin_path(dropin)));
        }
        sources
    }

    /// Returns the links of its storage that enable a unit, or give it another name. Instances of a template are units of their own.
    pub fn unit_links(&self, unit: &UnitName) -> impl Iterator<Item = &ManagedPath> {
        let leads = move |(path, link): &(&ManagedPath, &LinkSpec)| {
            let super::paths::LinkTarget::Soft(text) = &link.target else { return false };
            let Some((_, below)) = path.as_str().split_once("/systemd/system/") else { return false };
            let (folder, name) = below.split_once('/').map_or((None, below), |(one, name)| (Some(one), name));
            let ends = [".wants", ".requires", ".upholds"];
            let is_place = folder.is_none_or(|folder| ends.iter().any(|end| folder.ends_with(end)));
            let is_own = name == unit.as_str();
            let is_instance = UnitName::new(name).is_ok_and(|name| name.template().as_ref() == Some(unit));
            let leads = text.rsplit('/').next() == Some(unit.as_str()) && !is_own && !is_instance;
            is_place && (leads || (is_own && folder.is_some()))
        };
        self.links.iter().filter(leads).map(|(path, _)| path)
    }

    /// Returns the files that its hard links are other names of.
    pub fn hard_targets(&self) -> impl Iterator<Item = (&ManagedPath, &ManagedPath)> {
        self.links.iter().filter_map(|(path, link)| Some((path, link.hard_target()?)))
    }

    /// Sets which directories and links came with a take-over and are not as listed, and names them as not applied.
    pub fn set_unapplied(&mut self, unapplied: BTreeSet<ManagedPath>) {
        let remarks: Vec<NotApplied> = self
            .stored_paths()
            .filter(|(path, _)| unapplied.contains(path))
            .map(|(path, entry)| {
                let field = format!("{} {:?}", entry.section(), path.as_str());
                let message = "it came with a config that was applied without it, and this host is not as listed; \
                               it is brought in with the next change of the entry";
                NotApplied::new(field, NotAppliedReason::HostLacks, message)
            })
            .collect();
        self.remarks.retain(|remark| !Self::is_of_take_over(remark));
        self.remarks.extend(remarks);
        self.unapplied = unapplied;
    }

    fn is_of_take_over(remark: &NotApplied) -> bool {
        remark.because == NotAppliedReason::HostLacks
            && (remark.field.starts_with("storage.directories ")
                || remark.field.starts_with("storage.links "))
    }

    /// Returns the paths of all directories and links, applied or not.
    pub fn stored(&self) -> BTreeSet<ManagedPath> {
        self.directories.keys().chain(self.links.keys()).cloned().collect()
    }

    /// Returns true if a path is of the config's storage, not of a unit.
    pub fn is_listed(&self, path: &ManagedPath) -> bool {
        self.files.contains_key(path) || self.directories.contains_key(path) || self.links.contains_key(path)
    }

    /// The name of the origin of a host that was never managed; no rendered config is called so.
    pub const UNMANAGED: &str = "unmanaged";

    /// Returns true if this is the origin of a host that was never managed.
    pub fn is_unmanaged(&self) -> bool {
        self.name.as_str() == Self::UNMANAGED
    }

    /// Returns true if a part of the config could not be read: it was applied by an agent that could.
    pub fn is_opaque(&self) -> bool {
        self.opaque().next().is_some()
    }

    /// Returns true if an entry of this section could not be read.
    pub fn is_opaque_in(&self, section: &str) -> bool {
        self.opaque().any(|remark| remark.field == "spec" || remark.field.starts_with(section))
    }

    /// Returns the remarks about what could not be read.
    pub fn opaque(&self) -> impl Iterator<Item = &NotApplied> {
        self.remarks.iter().filter(|remark| remark.because == NotAppliedReason::OpaqueOrigin)
    }

    /// Returns a spec that sets nothing.
    pub fn empty(name: ConfigName) -> Self {
        Self {
            name,
            image: None,
            os_image_url: None,
            files: BTreeMap::new(),
            directories: BTreeMap::new(),
            links: BTreeMap::new(),
            unapplied: BTreeSet::new(),
            claimed: BTreeMap::new(),
            originals: BTreeSet::new(),
            led: BTreeMap::new(),
            unwritten: BTreeMap::new(),
            units: BTreeMap::new(),
            users: Users::default(),
            kargs: Vec::new(),
            kernel_type: KernelType::Default,
            extensions: BTreeSet::new(),
            extensions_image: None,
            left: None,
            fips: false,
            fixed: FixedSections::default(),
            remarks: Vec::new(),
            size: DocumentSize::default(),
            never_applied: Some(BTreeSet::new()),
        }
    }

    /// Returns true if it is noted that an entry was never applied to this host.
    pub fn is_never_applied(&self, field: &str) -> bool {
        self.never_applied.as_ref().is_some_and(|fields| fields.contains(field))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(name: &str, content: Option<&str>) -> Target {
        let content = content.map(|text| Sha256::digest(text.as_bytes()));
        Target::new(ConfigName::new(name).unwrap(), None).with_content(content)
    }

    /// A Node and the records of earlier versions have the name only.
    #[test]
    fn target_is_its_name_and_its_content_where_both_are_known() {
        let (a, edited, named) = (target("a", Some("1")), target("a", Some("2")), target("a", None));
        assert!(a != edited && edited.is_renewal_of(&a));
        assert!(a == named && named == edited && !named.is_renewal_of(&a));
        assert!(target("b", Some("1")) != a && !target("b", Some("2")).is_renewal_of(&a));
        let written = serde_json::to_string(&a).unwrap();
        assert_eq!(serde_json::from_str::<Target>(&written).unwrap().content, a.content);
        let old: Target = serde_json::from_str(r#"{"config":"a","image":null}"#).unwrap();
        assert!(old == a && old == edited && old.content.is_none());
        assert_eq!(serde_json::to_string(&old).unwrap(), r#"{"config":"a","image":null}"#);
    }
}
