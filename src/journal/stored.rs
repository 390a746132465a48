//! The files of the state and their shapes.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tracing::debug;

use super::error::JournalError;
use super::files::{STATE_MODE, state};
use super::place::check_directory;
use super::version;
use crate::host::root::Root;
use crate::model::ids::FORMER_KARGS;
use crate::model::kargs::FormerKargs;
use crate::model::machineconfig::MachineConfig;
use crate::model::os::{KernelType, Layers, LeftOs};
use crate::model::text::chain;
use crate::model::{
    FaultClass, HostSpec, ImageRef, ManagedPath, ModelError, NotApplied, NotAppliedReason, Observation,
    Sha256, Target, Timestamp,
};
use crate::plan::start::Start;
use crate::update::Record;
use crate::update::record::SCHEMA;

/// The version of stored configs.
const CONFIG_SCHEMA: u32 = 1;

/// A MachineConfig with the image that goes with it, as it is kept: the whole object, so that MCD can take over again.
#[derive(Debug, Clone)]
pub struct Stored {
    /// The pair.
    pub target: Target,
    /// Time of its writing.
    pub at: Timestamp,
    machine_config: MachineConfig,
    /// The image that goes with it, as machine-config-daemon has it, where it can't be read.
    unread_image: Option<String>,
    /// Directories and links that came with a take-over and are not as listed on the host; `None` until the host was
    /// looked at for them.
    unapplied: Option<BTreeSet<ManagedPath>>,
    /// Entries that were never applied to this host; `None` if nothing says so.
    never_applied: Option<BTreeSet<String>>,
    /// The host is as the config but for what it runs: the deployment of an update that was undone.
    undone_runs: bool,
    /// The OS that it has then. Earlier agents did not write it down.
    left_os: Option<LeftOs>,
    /// Paths of which an original of the host's is kept. Earlier agents did not write it down.
    originals: BTreeSet<ManagedPath>,
    /// Real paths that links of the host led to, by the directories of its entries. Earlier agents did not write it down.
    led: BTreeMap<ManagedPath, String>,
}

/// Leaves fields of the OS out that are those of an image which can't be read, or of none, and names them.
fn leave_to_image(spec: &mut HostSpec, image: &str) {
    let set = [
        ("spec.osImageURL", spec.os_image_url.is_some()),
        ("spec.kernelType", spec.kernel_type != KernelType::Default),
        ("spec.extensions", !spec.extensions.is_empty()),
    ];
    (spec.os_image_url, spec.kernel_type) = (None, KernelType::Default);
    spec.extensions.clear();
    let message = format!(
        "the image {image:?} may bring it, so it is neither applied nor compared until another target is desired"
    );
    let named = set.into_iter().filter(|(_, is_set)| *is_set);
    let named =
        named.map(|(field, _)| NotApplied::new(field, NotAppliedReason::OpaqueOrigin, message.clone()));
    spec.remarks.extend(named);
}

/// A stored config with its spec.
#[derive(Debug)]
pub struct Decoded {
    pub(super) stored: Stored,
    pub(super) spec: HostSpec,
}

impl Decoded {
    /// Returns the spec.
    pub fn spec(&self) -> &HostSpec {
        &self.spec
    }

    /// Returns the pair.
    pub fn target(&self) -> &Target {
        &self.stored.target
    }

    /// Leaves out what stays unapplied, before the host is looked at.
    pub fn leave_unapplied(&mut self, start: Start, origin: &HostSpec) {
        start.leave_unapplied(origin, &mut self.spec);
    }

    /// Takes over from the origin what was never applied to this host.
    pub fn carry_over(&mut self, start: Start, origin: &mut Rc<HostSpec>, observed: &Observation) {
        start.carry_over(origin, &mut self.spec, observed);
        if !start.forced {
            self.stored.unapplied = Some(self.spec.unapplied.clone());
        }
        self.stored.never_applied.clone_from(&self.spec.never_applied);
    }

    /// Returns the config as it is stored.
    pub fn into_stored(self) -> Stored {
        self.stored
    }
}

/// The update that is open.
#[derive(Debug)]
pub struct OpenUpdate {
    /// Its record.
    pub record: Record,
    /// The config that it leads to, as far as it can be read.
    pub to: Rc<HostSpec>,
    /// The cause for which this version of the agent can't read that: another one began it.
    pub unreadable: Option<ModelError>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Written<'a> {
    schema_version: u32,
    image: Option<&'a ImageRef>,
    #[serde(skip_serializing_if = "Option::is_none")]
    unread_image: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<Sha256>,
    at: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    unapplied: Option<&'a BTreeSet<ManagedPath>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    never_applied: Option<&'a BTreeSet<String>>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    undone_runs: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    left_os: Option<&'a LeftOs>,
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    originals: &'a BTreeSet<ManagedPath>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    led: &'a BTreeMap<ManagedPath, String>,
    /// Objects beside it in its file, which were not read.
    #[serde(skip_serializing_if = "<[NotApplied]>::is_empty")]
    beside: &'a [NotApplied],
    machine_config: &'a RawValue,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Read<'a> {
    #[serde(rename = "schemaVersion")]
    _schema_version: u64,
    image: Option<String>,
    #[serde(default)]
    unread_image: Option<String>,
    #[serde(default)]
    content: Option<Sha256>,
    at: Timestamp,
    /// Agents that left directories and links to the installation did not write it.
    #[serde(default)]
    unapplied: Option<BTreeSet<ManagedPath>>,
    #[serde(default)]
    never_applied: Option<BTreeSet<String>>,
    #[serde(default)]
    undone_runs: bool,
    #[serde(default)]
    left_os: Option<LeftOs>,
    #[serde(default)]
    originals: BTreeSet<ManagedPath>,
    #[serde(default)]
    led: BTreeMap<ManagedPath, String>,
    #[serde(default)]
    beside: Vec<NotApplied>,
    #[serde(borrow)]
    machine_config: &'a RawValue,
}

impl Stored {
    /// Takes a config and an image.
    pub fn new(machine_config: MachineConfig, image: Option<ImageRef>, at: Timestamp) -> Self {
        let target = Target::new(machine_config.name().clone(), image);
        let (unapplied, never_applied) = (Some(BTreeSet::new()), Some(BTreeSet::new()));
        let (originals, led) = (BTreeSet::new(), BTreeMap::new());
        let (unread_image, undone_runs, left_os) = (None, false, None);
        Self {
            target,
            at,
            machine_config,
            unread_image,
            unapplied,
            never_applied,
            undone_runs,
            left_os,
            originals,
            led,
        }
    }

    /// Notes the paths of which an original of the host's is kept, and where they are.
    #[must_use]
    pub(super) fn with_originals(
        self,
        originals: BTreeSet<ManagedPath>,
        led: BTreeMap<ManagedPath, String>,
    ) -> Self {
        Self { originals, led, ..self }
    }

    /// Sets the entries that were never applied to this host; `None` if nothing is known of them.
    #[must_use]
    pub fn with_never_applied(self, never_applied: Option<BTreeSet<String>>) -> Self {
        Self { never_applied, ..self }
    }

    /// Notes that the deployment of an update which was undone runs: the layers that it wanted, and the image that ran before. Of
    /// several updates in a row that ended so, the first one tells the image.
    pub(super) fn with_undone_deployment(self, layers: Layers, before: Option<ImageRef>) -> Self {
        let left_os = Some(LeftOs::after(self.left_os, layers, before));
        Self { undone_runs: true, left_os, ..self }
    }

    /// Returns true if the deployment of an update that was undone runs.
    pub(super) fn runs_undone_deployment(&self) -> bool {
        self.undone_runs
    }

    /// Returns true if, kept as what an update left, it makes an update due although `current` is the target.
    pub fn is_left_beside(&self, current: Option<&Target>) -> bool {
        is_left_beside(&self.target, self.undone_runs, current)
    }

    /// Takes a config that was applied without its directories, links and other accounts than `core`.
    #[must_use]
    pub fn imported(self) -> Self {
        Self { unapplied: None, never_applied: None, ..self }
    }

    /// Returns true if the host was looked at for its directories and links.
    pub fn is_settled(&self) -> bool {
        self.unapplied.is_some()
    }

    /// Sets the directories and links that are not as listed.
    pub(super) fn settled(self, unapplied: BTreeSet<ManagedPath>) -> Self {
        Self { unapplied: Some(unapplied), ..self }
    }

    /// Takes a config that was applied already, with its image, which is kept as it is where it is none that is read.
    pub(super) fn applied(machine_config: MachineConfig, image: Option<String>, at: Timestamp) -> Self {
        let image = image.filter(|image| !image.is_empty());
        let read = image.as_deref().map(ImageRef::parse);
        let (image, unread_image) = match read {
            Some(Err(_)) => (None, image),
            Some(Ok(read)) => (Some(read), None),
            None => (None, None),
        };
        Self { unread_image, ..Self::new(machine_config, image, at) }
    }

    /// Returns it with the digest of its content, which is part of its identity from then on.
    #[must_use]
    pub fn identified(self) -> Self {
        let content = self.target.content.unwrap_or_else(|| self.machine_config.content());
        Self { target: self.target.with_content(Some(content)), ..self }
    }

    /// Returns the text of its image, as machine-config-daemon writes it.
    pub(super) fn image_text(&self) -> String {
        let image = self.target.image.as_ref().map(ToString::to_string);
        image.or_else(|| self.unread_image.clone()).unwrap_or_default()
    }

    /// Returns what can be read of it as a config that was applied: the rest is a remark.
    pub fn known_spec(&self) -> HostSpec {
        debug!("Decoded {}", self.target.config);
        let spec = self.machine_config.known_spec(self.target.image.clone());
        let mut spec = self.without_unapplied(spec);
        spec.left.clone_from(&self.left_os);
        if let Some(image) = &self.unread_image {
            let message = format!(
                "{image:?} is not an image by digest; the OS is not compared until another target is desired"
            );
            spec.remarks.push(NotApplied::new("image", NotAppliedReason::OpaqueOrigin, message));
            leave_to_image(&mut spec, image);
        }
        spec
    }

    /// Returns the spec, as the agent that wrote it took it.
    pub fn spec(&self) -> Result<HostSpec, ModelError> {
        debug!("Decoded {}", self.target.config);
        let spec = self.machine_config.committed_spec(self.target.image.clone())?;
        Ok(self.without_unapplied(spec))
    }

    /// Marks what is not as listed on the host.
    fn without_unapplied(&self, mut spec: HostSpec) -> HostSpec {
        let unapplied = self.unapplied.clone().unwrap_or_else(|| spec.stored());
        spec.set_unapplied(unapplied);
        spec.never_applied.clone_from(&self.never_applied);
        spec.originals.clone_from(&self.originals);
        spec.led.clone_from(&self.led);
        spec
    }

    /// Decodes it; the spec and its source can't be mixed up from then on.
    pub fn decode(self) -> Result<Decoded, ModelError> {
        Ok(Decoded { spec: self.spec()?, stored: self })
    }

    /// Decodes a target: it keeps the rules of Ignition, as one that was applied already need not.
    pub fn decode_target(self) -> Result<Decoded, ModelError> {
        debug!("Decoded {}", self.target.config);
        let spec = self.machine_config.spec(self.target.image.clone())?;
        Ok(Decoded { spec: self.without_unapplied(spec), stored: self })
    }

    /// Returns the MachineConfig.
    pub fn machine_config(&self) -> &MachineConfig {
        &self.machine_config
    }

    /// Returns the same with the time of its commit.
    pub(super) fn committed(self, at: Timestamp) -> Self {
        Self { at, undone_runs: false, left_os: None, ..self }
    }

    /// Reads a file; `None` when there is none.
    pub fn load(root: &Root, path: &str) -> Result<Option<Self>, JournalError> {
        let what = "a stored config";
        let Some(bytes) = read_state(root, path, what)? else { return Ok(None) };
        let unreadable = |cause: String| JournalError::Unreadable { path: path.to_owned(), what, cause };
        version::check(path, CONFIG_SCHEMA, &bytes)?;
        let read: Read<'_> =
            serde_json::from_slice(&bytes).map_err(|error| version::not_understood(path, what, &error))?;
        let document = read.machine_config.get().as_bytes();
        let parsed = MachineConfig::parse_applied(document, path);
        // It names the document itself.
        if let Err(ModelError::Document { cause, .. }) = parsed {
            return Err(unreadable(cause));
        }
        if let Err(ModelError::InDocument { field, cause, .. }) = parsed {
            return Err(unreadable(format!("{field}: {cause}")));
        }
        let machine_config = parsed.map_err(|error| unreadable(error.to_string()))?.with_beside(read.beside);
        let mut stored = Self::applied(machine_config, read.image.or(read.unread_image), read.at);
        stored.target.content = read.content;
        stored.unapplied = read.unapplied;
        stored.never_applied = read.never_applied;
        stored.undone_runs = read.undone_runs;
        stored.left_os = read.left_os;
        stored.originals = read.originals;
        stored.led = read.led;
        Ok(Some(stored))
    }

    /// Writes a file, durably.
    pub fn save(&self, root: &Root, path: &str) -> Result<(), JournalError> {
        let unwritable = |error: serde_json::Error| JournalError::Unreadable {
            path: path.to_owned(),
            what: "JSON",
            cause: error.to_string(),
        };
        let machine_config: &RawValue =
            serde_json::from_str(self.machine_config.json()).map_err(unwritable)?;
        let image = self.target.image.as_ref();
        let written = Written {
            schema_version: CONFIG_SCHEMA,
            image,
            unread_image: self.unread_image.as_deref(),
            content: self.target.content,
            at: self.at,
            unapplied: self.unapplied.as_ref(),
            never_applied: self.never_applied.as_ref(),
            undone_runs: self.undone_runs,
            left_os: self.left_os.as_ref(),
            originals: &self.originals,
            led: &self.led,
            beside: self.machine_config.beside(),
            machine_config,
        };
        // The text and its frame: a buffer that grows by doubling would take twice a large config.
        let mut bytes = Vec::with_capacity(self.machine_config.json().len() + 1024);
        serde_json::to_writer(&mut bytes, &written).map_err(unwritable)?;
        Ok(root.replace(path, &bytes, STATE_MODE)?)
    }
}

/// Returns true if what an update left makes another one due: it is not the current target, adopted meanwhile.
pub(super) fn is_left_beside(left: &Target, undone_runs: bool, current: Option<&Target>) -> bool {
    undone_runs || Some(left) != current
}

/// Reads a file of the state. What is in its place and no file of ours is damage of the file, not of the disk.
pub(super) fn read_state(
    root: &Root,
    path: &str,
    what: &'static str,
) -> Result<Option<Vec<u8>>, JournalError> {
    let read = root.read(path).map_err(|error| {
        if error.class() != FaultClass::Degraded || error.is_denied() {
            return error.into();
        }
        // It names the file itself, before its own cause.
        let cause = std::error::Error::source(&error).map_or_else(|| error.to_string(), chain);
        JournalError::Unreadable { path: path.to_owned(), what, cause }
    })?;
    if read.is_none() {
        check_directory(root)?;
    }
    Ok(read)
}

/// Reads the record, of this version or an older one.
pub fn load_record(root: &Root) -> Result<Option<Record>, JournalError> {
    let path = state("record.json");
    let what = "an update's record";
    let Some(bytes) = read_state(root, &path, what)? else { return Ok(None) };
    version::parse(&path, what, SCHEMA, &bytes).map(Some)
}

/// Reads the kernel arguments that configs of this host have set.
pub(super) fn load_kargs(root: &Root) -> Result<Option<FormerKargs>, JournalError> {
    let what = "kernel arguments of earlier configs";
    let Some(bytes) = read_state(root, FORMER_KARGS, what)? else { return Ok(None) };
    // It has no version yet.
    version::check(FORMER_KARGS, CONFIG_SCHEMA, &bytes)?;
    serde_json::from_slice(&bytes)
        .map(Some)
        .map_err(|error| version::not_understood(FORMER_KARGS, what, &error))
}

/// Reads the config that an open update leads to.
pub(super) fn reopen(root: &Root, record: Record) -> Result<OpenUpdate, JournalError> {
    let path = state("target.json");
    let target = Stored::load(root, &path)?
        .filter(|stored| stored.target == record.to)
        .ok_or_else(|| JournalError::Lost { path, config: record.to.config.clone() })?;
    // A repair is of the committed config, whatever can be read of it.
    let (to, unreadable) = match target.spec() {
        Ok(to) => (to, None),
        Err(error) => (target.known_spec(), Some(error).filter(|_| !record.is_repair())),
    };
    Ok(OpenUpdate { to: Rc::new(to), unreadable, record })
}

/// Writes the record, durably.
pub(super) fn save_record(root: &Root, record: &Record) -> Result<(), JournalError> {
    let path = state("record.json");
    Ok(root.replace(&path, &json(&path, record)?, STATE_MODE)?)
}

/// Writes the record as a new file, also when the same bytes are there.
pub(super) fn rewrite_record(root: &Root, record: &Record) -> Result<(), JournalError> {
    let path = state("record.json");
    Ok(root.rewrite(&path, &json(&path, record)?, STATE_MODE)?)
}

fn json(path: &str, record: &Record) -> Result<Vec<u8>, JournalError> {
    record.to_json().map_err(|error| JournalError::Unreadable {
        path: path.to_owned(),
        what: "JSON",
        cause: error.to_string(),
    })
}
