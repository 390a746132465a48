//! The control plane as a directory: for a single machine, for tests and for the sandbox.
//!
//! ```text
//! DIR/target.yaml              config: rendered-worker-b        image: registry/os@sha256:... (optional)
//! DIR/machineconfigs/NAME.yaml or .json
//! DIR/policy.yaml              optional MachineConfiguration object
//! DIR/report.json              written by the agent
//! ```
//!
//! Changes are noticed by inotify. A drain is not asked for. Writers replace files atomically.

use serde::Deserialize;

use super::{ControlError, ControlPlane, Drained, Released};
use crate::host::HostError;
use crate::host::root::Root;
use crate::host::watch::Watch;
use crate::model::machineconfig::MachineConfig;
use crate::model::policy::DisruptionPolicy;
use crate::model::{ConfigName, FileMode, ImageRef, ModelError, Target};
use crate::report::{NodeReport, Occurrence};

/// The directory.
#[derive(Debug)]
pub struct Directory {
    root: Root,
    watch: Watch,
    published: Option<Vec<u8>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TargetFile {
    config: String,
    #[serde(default)]
    image: Option<String>,
}

impl Directory {
    /// Opens a directory and begins to watch it. `machineconfigs` may come later.
    pub fn open(path: &std::path::Path) -> Result<Self, ControlError> {
        let root = Root::open(path)?;
        let watch = Watch::new(&root, ["/target.yaml", "/policy.yaml"], ["/machineconfigs"])?;
        Ok(Self { root, watch, published: None })
    }

    fn document(&self, path: &str) -> String {
        format!("{}{path}", self.root.base().display())
    }

    fn invalid(&self, path: &str) -> impl Fn(ModelError) -> ControlError + use<> {
        let document = self.document(path);
        move |source| ControlError::Invalid { document: document.clone(), source }
    }

    fn read_target(&self) -> Result<Option<Target>, ControlError> {
        let path = "/target.yaml";
        let Some(bytes) = self.root.read(path)? else { return Ok(None) };
        let document = self.document(path);
        let invalid = self.invalid(path);
        let text = String::from_utf8_lossy(&bytes);
        let refused = |cause| invalid(ModelError::Document { document, cause });
        if text.trim().is_empty() {
            return Err(refused("it is empty".to_owned()));
        }
        let file: TargetFile =
            serde_saphyr::from_str(&text).map_err(|error| refused(first_line(&error.to_string())))?;
        let config = ConfigName::new(file.config).map_err(&invalid)?;
        let image = file.image.filter(|image| !image.is_empty());
        let image = image.map(|image| ImageRef::parse(&image)).transpose().map_err(&invalid)?;
        Ok(Some(Target { config, image }))
    }

    fn read_config(&self, name: &ConfigName) -> Result<MachineConfig, ControlError> {
        for suffix in ["yaml", "json"] {
            let path = format!("/machineconfigs/{name}.{suffix}");
            let Some(bytes) = self.root.read(&path)? else { continue };
            let document = self.document(&path);
            let config = MachineConfig::parse(&bytes, &document).map_err(self.invalid(&path))?;
            if config.name() != name {
                let found = config.name().clone();
                return Err(ControlError::Misnamed { document, config: name.clone(), found });
            }
            return Ok(config);
        }
        Err(ControlError::Missing { config: name.clone(), place: self.document("/machineconfigs") })
    }

    fn read_policy(&self) -> Result<DisruptionPolicy, ControlError> {
        let path = "/policy.yaml";
        match self.root.read(path)? {
            None => Ok(DisruptionPolicy::defaults()),
            Some(bytes) => DisruptionPolicy::parse(&bytes, &self.document(path)).map_err(self.invalid(path)),
        }
    }

    fn write_report(&mut self, report: &NodeReport) -> Result<(), ControlError> {
        let bytes = serde_json::to_vec_pretty(report).map_err(|error| HostError::Malformed {
            path: self.document("/report.json"),
            format: "JSON",
            cause: error.to_string(),
        })?;
        if self.published.as_ref() != Some(&bytes) {
            self.root.replace("/report.json", &bytes, FileMode::DEFAULT)?;
            self.published = Some(bytes);
        }
        Ok(())
    }
}

impl ControlPlane for Directory {
    async fn changed(&mut self) -> Result<(), ControlError> {
        Ok(self.watch.changed().await.map(drop)?)
    }

    async fn wanted(&mut self) -> Result<Option<Target>, ControlError> {
        self.read_target()
    }

    async fn machine_config(&mut self, name: &ConfigName) -> Result<MachineConfig, ControlError> {
        self.read_config(name)
    }

    async fn policy(&mut self) -> Result<DisruptionPolicy, ControlError> {
        self.read_policy()
    }

    fn drains(&self) -> bool {
        false
    }

    async fn drain(&mut self, _target: &Target) -> Result<Drained, ControlError> {
        Ok(Drained::NotAsked)
    }

    async fn release(&mut self, _committed: &Target) -> Result<Released, ControlError> {
        Ok(Released::Yes)
    }

    async fn tell(&mut self, _occurrence: &Occurrence) {}

    async fn publish(&mut self, report: &NodeReport) -> Result<(), ControlError> {
        self.write_report(report)
    }
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().to_owned()
}
