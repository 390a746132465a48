//! The control plane as a directory: for a single machine, for tests and for the sandbox.
//!
//! ```text
//! DIR/target.yaml              config: rendered-worker-b        image: registry/os@sha256:... (optional)
//! DIR/machineconfigs/NAME.yaml or .json
//! DIR/policy.yaml              optional MachineConfiguration object
//! DIR/report.json              written by the agent
//! DIR/stateroot.yaml           optional: see `stage_file`
//! ```
//!
//! With the name of a pool it is a bootstrap's output, which the machine-config-server serves from there, too:
//!
//! ```text
//! DIR/machine-pools/POOL.yaml  MachineConfigPool: names the config
//! DIR/machine-configs/NAME.yaml or .json
//! ```
//!
//! Nothing is written there then: the journal holds the host's state.
//!
//! A target is its name and the content of its config: a file that is edited in place is another target.
//!
//! Changes are noticed by inotify, the directory's own renaming and re-creation included. A drain is not requested.
//! Writers replace files atomically.
//!
//! Invariant: a target read here is applied as root, so it is read only if root and the agent's own user
//! alone could have written it: each file, link and directory on the way is checked, and every open one was. A
//! change of owner or mode is an event like any other.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::Path;

use serde::Deserialize;

use super::source_watch::SourceWatch;
use super::{ControlError, ControlPlane};
use crate::host::HostError;
use crate::host::root::Root;
use crate::host::watch::WatchSet;
use crate::model::document::{self, Kind};
use crate::model::machineconfig::{self, MachineConfig};
use crate::model::policy::{self, DisruptionPolicy, of_policy};
use crate::model::pool::PoolConfigs;
use crate::model::reading::{Found, refuse_unknown};
use crate::model::{ConfigName, FileMode, ImageRef, ModelError, NotApplied, Sha256, Target, short, yaml};
use crate::report::NodeReport;
use crate::update::Fault;

/// The stage of an image-based upgrade, below the directory (`stage_file`).
pub(super) const STAGE_FILE: &str = "/stateroot.yaml";

/// Two names and some comments.
const MAX_TARGET_BYTES: u64 = 64 * 1024;

/// The directory.
#[derive(Debug)]
pub struct Directory {
    /// The file system the directory is in: the way to it is watched and checked from there.
    root: Root,
    /// Its absolute path.
    path: String,
    layout: Layout,
    watch: SourceWatch,
    published: Option<Vec<u8>>,
    /// The content of the target's config, until a watched file changes.
    content: Option<(ConfigName, Sha256)>,
    /// The target that was read last, if its config can't be.
    refused: Option<Target>,
    unknown_fields: bool,
}

/// Files below the directory.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Layout {
    /// Written for this agent.
    Own,
    /// Rendered by a bootstrap; the config is that of a pool.
    Rendered {
        /// The pool's file.
        pool: String,
    },
}

/// A policy, and what nobody reads of its file.
type PolicyFile = (Found<DisruptionPolicy>, Vec<NotApplied>);

impl Layout {
    fn target(&self) -> &str {
        match self {
            Self::Own => "/target.yaml",
            Self::Rendered { pool } => pool,
        }
    }

    fn configs(&self) -> &'static str {
        match self {
            Self::Own => "/machineconfigs",
            Self::Rendered { .. } => "/machine-configs",
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TargetFile {
    config: String,
    #[serde(default)]
    image: Option<String>,
}

/// Reads `target.yaml`.
pub(super) fn own_target(bytes: &[u8], document: &str) -> Result<Target, ModelError> {
    let text = String::from_utf8_lossy(bytes);
    let refused = |cause| ModelError::Document { document: document.to_owned(), cause };
    let file: TargetFile = yaml::strings(&text).map_err(|error| refused(first_line(&error)))?;
    let config = ConfigName::new(file.config)?;
    let image = file.image.filter(|image| !image.is_empty());
    let image = image.map(|image| ImageRef::parse(&image)).transpose();
    Ok(Target::new(config, image.map_err(|error| error.in_field("image", ""))?))
}

impl Directory {
    /// Opens a directory and begins to watch it. `machineconfigs` may come later.
    pub fn open(path: &Path) -> Result<Self, ControlError> {
        Self::laid_out(path, Layout::Own)
    }

    /// Opens a bootstrap's output for the nodes of a pool, or the agent's own directory where none is named.
    pub fn of_pool(path: &Path, pool: Option<&ConfigName>) -> Result<Self, ControlError> {
        let Some(pool) = pool else { return Self::open(path) };
        Self::laid_out(path, Layout::Rendered { pool: pool_file(pool) })
    }

    fn laid_out(path: &Path, layout: Layout) -> Result<Self, ControlError> {
        let shown = path.display().to_string();
        let failed = |source: std::io::Error| HostError::io("open the control directory", &*shown, source);
        let unusable = |cause: &'static str| ControlError::NoDirectory { path: shown.clone(), cause };
        let absolute = std::path::absolute(path).map_err(failed)?;
        let absolute = absolute.to_str().ok_or_else(|| failed(ErrorKind::InvalidInput.into()))?;
        let path = absolute.trim_end_matches('/').to_owned();
        let root = Root::open(Path::new("/"))?;
        // A name that is mistyped would be waited for.
        if let Err(HostError::Io { source, .. }) = Root::open(Path::new(absolute)) {
            if source.kind() == ErrorKind::NotFound {
                return Err(unusable("there is no such directory"));
            }
            if source.kind() == ErrorKind::NotADirectory {
                return Err(unusable("it is not a directory"));
            }
        }
        let watch = SourceWatch::new(&root, watched(&root, &path, &layout)?);
        Ok(Self {
            root,
            path,
            layout,
            watch,
            published: None,
            content: None,
            refused: None,
            unknown_fields: false,
        })
    }

    /// Lets fields pass that nobody knows, or refuses them.
    #[must_use]
    pub fn with_unknown_fields(self, unknown_fields: bool) -> Self {
        Self { unknown_fields, ..self }
    }

    /// Returns the path of the target's file.
    pub fn target_file(&self) -> String {
        self.document(self.layout.target())
    }

    /// Returns true if the file of a target is there, or that of a stage of an image-based upgrade, whatever they hold.
    pub fn has_request(&mut self) -> Result<bool, ControlError> {
        let stage = self.document(STAGE_FILE);
        let mut desired = watched(&self.root, &self.path, &self.layout)?;
        desired.paths.insert(stage.clone());
        self.watch.watch_over(desired);
        self.watch.begin_observation();
        Ok(self.root.exists(&self.target_file())? || self.root.exists(&stage)?)
    }

    /// Waits for a change of what [`Directory::has_request`] looks at. Cancel-safe as the watch is.
    pub async fn request_changed(&mut self) {
        self.watch.changed().await;
    }

    fn document(&self, path: &str) -> String {
        format!("{}{path}", self.path)
    }

    fn missing(&self) -> HostError {
        HostError::io("open the control directory", &*self.path, ErrorKind::NotFound)
    }

    fn read(&self, path: &str, limit: u64) -> Result<Option<Vec<u8>>, HostError> {
        let path = self.document(path);
        if let Some(bytes) = self.root.read_trusted(&path, limit)? {
            return Ok(Some(bytes));
        }
        // A directory that is moved away is no target that was withdrawn.
        if self.root.exists(&self.path)? { Ok(None) } else { Err(self.missing()) }
    }

    fn invalid(&self, path: &str) -> impl Fn(ModelError) -> ControlError + use<> {
        let document = self.document(path);
        move |source| ControlError::Invalid { document: document.clone(), source }
    }

    fn read_target(&self) -> Result<Option<Target>, ControlError> {
        let path = self.layout.target();
        let Some(bytes) = self.read(path, MAX_TARGET_BYTES)? else { return Ok(None) };
        let document = self.document(path);
        let invalid = self.invalid(path);
        let text = String::from_utf8_lossy(&bytes);
        let refused = |cause| invalid(ModelError::Document { document: document.clone(), cause });
        if text.trim().is_empty() {
            return Err(refused("it is empty".to_owned()));
        }
        if let Layout::Rendered { .. } = self.layout {
            let pool = document::one(&bytes, &document, Kind::POOL).map_err(&invalid)?;
            let PoolConfigs { target, rolled_out } = PoolConfigs::of_document(&pool).map_err(&invalid)?;
            let name = [target, rolled_out].into_iter().find(|name| !name.is_empty());
            let name = name.ok_or_else(|| refused("spec.configuration.name is missing".to_owned()))?;
            return Ok(Some(Target::new(ConfigName::new(name).map_err(&invalid)?, None)));
        }
        own_target(&bytes, &document).map(Some).map_err(&invalid)
    }

    fn read_config(&self, name: &ConfigName) -> Result<MachineConfig, ControlError> {
        let config = self.parse_config(name, self.given())?;
        // A policy that is not valid is an error of its own.
        let policy = self.read_policy().ok().flatten();
        let of_policy = policy.map(|(found, others)| others.into_iter().chain(of_policy(found.unknown)));
        let beside = config.beside().iter().cloned().chain(of_policy.into_iter().flatten()).collect();
        Ok(config.with_beside(beside))
    }

    /// Returns the reading of configs: unknown fields are refused where a person gives them.
    fn given(&self) -> fn(&[u8], &str) -> Result<MachineConfig, ModelError> {
        let is_strict = !self.unknown_fields && self.layout == Layout::Own;
        if is_strict { MachineConfig::parse_given_strictly } else { MachineConfig::parse_given }
    }

    /// Reads a config below the directory.
    fn parse_config(
        &self,
        name: &ConfigName,
        parse: fn(&[u8], &str) -> Result<MachineConfig, ModelError>,
    ) -> Result<MachineConfig, ControlError> {
        let configs = self.layout.configs();
        let mut found = None;
        for suffix in ["yaml", "json"] {
            let path = format!("{configs}/{name}.{suffix}");
            let Some(bytes) = self.read(&path, machineconfig::MAX_BYTES)? else { continue };
            if let Some((first, _)) = found.replace((path.clone(), bytes)) {
                let (document, second) = (self.document(&first), self.document(&path));
                return Err(ControlError::Twice { document, second, config: name.clone() });
            }
        }
        if let Some((path, bytes)) = found {
            let document = self.document(&path);
            let config = parse(&bytes, &document).map_err(self.invalid(&path))?;
            if config.name() != name {
                let found = config.name().clone();
                return Err(ControlError::Misnamed { document, config: name.clone(), found });
            }
            return Ok(config);
        }
        Err(ControlError::Missing { config: name.clone(), place: self.document(configs) })
    }

    /// Returns the digest of a config's content; `None` where its file is not there.
    ///
    /// A writer may remove it and put another one there. The committed config is not taken back meanwhile, and an update to
    /// one that is not there is refused where it is planned.
    fn content(&mut self, name: &ConfigName) -> Result<Option<Sha256>, ControlError> {
        let is_watched = self.watch.fault().is_none();
        if let Some((known, content)) = self.content.as_ref().filter(|_| is_watched)
            && known == name
        {
            return Ok(Some(*content));
        }
        // Whatever its fields are.
        match self.parse_config(name, MachineConfig::parse_given) {
            Ok(config) => {
                let content = config.content();
                self.content = Some((name.clone(), content));
                Ok(Some(content))
            }
            Err(ControlError::Missing { .. }) => Ok(None),
            // With all its faults.
            Err(error) => Err(self.parse_config(name, self.given()).err().unwrap_or(error)),
        }
    }

    /// Reads the policy's file, with what nobody reads of it.
    fn read_policy(&self) -> Result<Option<PolicyFile>, ControlError> {
        let path = "/policy.yaml";
        let Some(bytes) = self.read(path, policy::MAX_BYTES)? else { return Ok(None) };
        let read = DisruptionPolicy::of_file(&bytes, &self.document(path)).map_err(self.invalid(path))?;
        if !self.unknown_fields {
            refuse_unknown(&read.0.unknown, &self.document(path)).map_err(self.invalid(path))?;
        }
        Ok(Some(read))
    }

    fn write_report(&mut self, report: &NodeReport) -> Result<(), ControlError> {
        if self.layout != Layout::Own {
            return Ok(());
        }
        let bytes = serde_json::to_vec_pretty(report).map_err(|error| HostError::Malformed {
            path: self.document("/report.json"),
            format: "JSON",
            cause: error.to_string(),
        })?;
        if self.published.as_ref() == Some(&bytes) {
            return Ok(());
        }
        // A missing directory is not created: the program that moved it away is about to put another one there.
        let directory = self.root.trusted_directory(&self.path)?.ok_or_else(|| self.missing())?;
        directory.replace("/report.json", &bytes, FileMode::DEFAULT)?;
        self.published = Some(bytes);
        Ok(())
    }
}

impl ControlPlane for Directory {
    async fn changed(&mut self) -> Result<(), ControlError> {
        self.watch.changed().await;
        self.content = None;
        self.watch.watch_over(watched(&self.root, &self.path, &self.layout)?);
        // Another directory may stand there, without the report.
        if !self.root.exists(&self.document("/report.json"))? {
            self.published = None;
        }
        Ok(())
    }

    fn rewritten(&self) -> bool {
        // Every watched file is a request.
        true
    }

    async fn desired(&mut self) -> Result<Option<Target>, ControlError> {
        if self.watch.fault().is_some() {
            self.watch.watch_over(watched(&self.root, &self.path, &self.layout)?);
        }
        self.watch.begin_observation();
        self.refused = None;
        let Some(target) = self.read_target()? else { return Ok(None) };
        match self.content(&target.config) {
            Ok(content) => Ok(Some(target.with_content(content))),
            Err(error) => {
                self.refused = Some(target);
                Err(error)
            }
        }
    }

    fn awaited_target(&self) -> Option<String> {
        // A stage of an image-based upgrade needs no target.
        let has_stage = || self.root.exists(&self.document(STAGE_FILE)).unwrap_or_default();
        let is_awaited = self.layout != Layout::Own || !has_stage();
        is_awaited.then(|| format!("{}, which does not exist", self.target_file()))
    }

    fn refused_target(&self) -> Option<Target> {
        self.refused.clone()
    }

    fn check_policy(&mut self) -> Result<(), ControlError> {
        if self.layout == Layout::Own { self.read_policy().map(drop) } else { Ok(()) }
    }

    fn unwatched(&self) -> Option<Fault> {
        self.watch.fault().cloned()
    }

    async fn machine_config(&mut self, name: &ConfigName) -> Result<MachineConfig, ControlError> {
        self.read_config(name)
    }

    async fn policy(&mut self) -> Result<DisruptionPolicy, ControlError> {
        let read = self.read_policy()?;
        Ok(read.map_or_else(DisruptionPolicy::defaults, |(found, _)| found.value))
    }

    async fn publish(&mut self, report: &NodeReport) -> Result<(), ControlError> {
        self.write_report(report)
    }
}

/// Returns the watched paths: the files, and owner and mode of every directory on the way, by the name that was given
/// and by the real one.
fn watched(root: &Root, directory: &str, layout: &Layout) -> Result<WatchSet, HostError> {
    let configs = format!("{directory}{}", layout.configs());
    let target = format!("{directory}{}", layout.target());
    let mut paths = BTreeSet::from([format!("{directory}/policy.yaml")]);
    paths.extend(ways(&configs));
    paths.extend(with_ways(root, &target)?);
    Ok(WatchSet { paths, directories: BTreeSet::from([configs]), trees: BTreeSet::new() })
}

/// Returns the path of a pool's file below a bootstrap's output.
pub fn pool_file(pool: &ConfigName) -> String {
    format!("/machine-pools/{pool}.yaml")
}

/// Returns a file and every directory on the way to it, by the name that was given and by the real one.
pub(super) fn with_ways(root: &Root, file: &str) -> Result<BTreeSet<String>, HostError> {
    let real = root.real_path(file)?;
    let parent = |path: &str| path.rsplit_once('/').map_or("", |(parent, _)| parent).to_owned();
    let mut paths = BTreeSet::from([file.to_owned()]);
    paths.extend(ways(&parent(file)));
    paths.extend(ways(&parent(&real)));
    Ok(paths)
}

/// Returns a directory and those on the way to it.
fn ways(directory: &str) -> BTreeSet<String> {
    let parts = directory.match_indices('/').skip(1).filter_map(|(end, _)| directory.get(..end));
    parts.chain([directory]).filter(|part| !part.is_empty()).map(str::to_owned).collect()
}

/// Returns the first line of a parser's message.
pub(super) fn first_line(text: &str) -> String {
    short(text.lines().next().unwrap_or_default(), 200)
}
