//! The settings file of the node, as a flag.

use std::cell::Cell;
use std::path::{Path, PathBuf};

use super::CliError;
use crate::agent::SettingsLoader;
use crate::host::Root;
use crate::host::os::in_time::LimitsSource;
use crate::model::NodeSettings;
use crate::model::node_settings::OsLimits;
use crate::settings::file::{self, FileError, SETTINGS_PATH};
use crate::update::Fault;

/// Place of this node's settings.
#[derive(Debug, clap::Args)]
pub(super) struct SettingsFlags {
    /// Settings of this node [default: /etc/machine-config-agent/settings.toml below the root, which may be absent]
    #[arg(long, value_name = "FILE")]
    settings: Option<PathBuf>,
}

/// The settings' file, found.
#[derive(Debug)]
pub(super) struct SettingsFile(Option<Named>);

#[derive(Debug, Clone)]
struct Named {
    root: Root,
    path: String,
    shown: String,
}

impl SettingsFlags {
    /// Finds the named file. To be called before a host is entered, where it would be another file.
    pub(super) fn open(&self) -> Result<SettingsFile, CliError> {
        let Some(named) = &self.settings else { return Ok(SettingsFile(None)) };
        let shown = named.display().to_string();
        let unread = |cause: &str| CliError::Input { path: shown.clone(), cause: cause.to_owned() };
        let above = named.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let name = named.file_name().and_then(|name| name.to_str());
        let path = format!("/{}", name.ok_or_else(|| unread("it names no file"))?);
        let root = Root::open(above)?;
        if !root.exists(&path)? {
            return Err(unread("there is no such file"));
        }
        Ok(SettingsFile(Some(Named { root, path, shown })))
    }
}

impl SettingsFile {
    /// Takes the usual one.
    #[cfg(feature = "backend-ostree")]
    pub(super) fn usual() -> Self {
        Self(None)
    }

    /// Reads them for a person who waits.
    pub(super) fn read(&self, root: &Root) -> Result<NodeSettings, CliError> {
        Ok(self.reader(root)()?)
    }

    /// Returns the loader, for an agent that reads them again on request.
    pub(super) fn settings_loader(&self, root: &Root) -> SettingsLoader {
        let read = self.reader(root);
        SettingsLoader::new(move || {
            read().map_err(|error| Fault::from_error(error.class(), error.reason(), &error, &error.next()))
        })
    }

    /// Returns the limits of pulls beside the updates. While the file can't be used they are the last ones that could.
    pub(super) fn limits(&self, root: &Root) -> LimitsSource {
        let (read, last) = (self.reader(root), Cell::new(OsLimits::default()));
        LimitsSource::new(move || {
            if let Ok(node_settings) = read() {
                last.set(node_settings.os);
            }
            last.get()
        })
    }

    fn reader(&self, root: &Root) -> impl Fn() -> Result<NodeSettings, FileError> + use<> {
        let usual =
            || Named { root: root.clone(), path: SETTINGS_PATH.to_owned(), shown: SETTINGS_PATH.to_owned() };
        let Named { root, path, shown } = self.0.clone().unwrap_or_else(usual);
        move || file::read(&root, &path, &shown)
    }
}
