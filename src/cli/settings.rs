//! The settings file of the node, as a flag.

use std::cell::Cell;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use super::CliError;
use crate::agent::{ReadSettings, SettingsLoader};
use crate::host::Root;
use crate::host::os::in_time::LimitsSource;
use crate::model::node_settings::OsLimits;
use crate::model::{NodeSettings, NotApplied};
use crate::settings::file::{self, FileError, SETTINGS_PATH};
use crate::update::Fault;

/// Place of this node's settings.
#[derive(Debug, clap::Args)]
pub(super) struct SettingsFlags {
    /// Settings of this node [default: /etc/machine-config-agent/settings.toml below the root, which may be absent]
    #[arg(long, value_name = "FILE")]
    settings: Option<PathBuf>,
}

/// Reads the usual settings for a verb without an agent, and names on stderr what has no effect.
pub(super) fn read_usual(root: &Root) -> Result<NodeSettings, FileError> {
    let settings = file::read(root, SETTINGS_PATH, SETTINGS_PATH)?;
    for one in file::unknown(&settings, SETTINGS_PATH) {
        drop(writeln!(std::io::stderr(), "warning: Not applied: {one}"));
    }
    Ok(settings)
}

/// Returns the fault of the usual settings that no start can use, and what of them has no effect. Nothing for a user who may not
/// read them.
pub(super) fn faults_of_usual(root: &Root) -> (Option<Fault>, Vec<NotApplied>) {
    match file::read(root, SETTINGS_PATH, SETTINGS_PATH) {
        Ok(settings) => (None, file::unknown(&settings, SETTINGS_PATH)),
        Err(FileError::Read(error)) if error.is_denied() => (None, Vec::new()),
        Err(error) => (Some(fault(&error)), Vec::new()),
    }
}

fn told(settings: NodeSettings, file: &str) -> ReadSettings {
    ReadSettings { unknown: file::unknown(&settings, file), settings }
}

fn fault(error: &FileError) -> Fault {
    Fault::from_error(error.class(), error.reason(), error, &error.next())
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
        let unread = |cause: &str| CliError::Input {
            path: shown.clone(),
            cause: cause.to_owned(),
            next: "Check path and permissions (ls -l).",
        };
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
        let (read, file) = (self.reader(root), self.shown());
        SettingsLoader::new(move || {
            read().map(|settings| told(settings, &file)).map_err(|error| fault(&error))
        })
    }

    /// Returns the loader of what was read.
    pub(super) fn loader_of(&self, settings: NodeSettings) -> SettingsLoader {
        let file = self.shown();
        SettingsLoader::new(move || Ok(told(settings.clone(), &file)))
    }

    fn shown(&self) -> String {
        self.0.as_ref().map_or_else(|| SETTINGS_PATH.to_owned(), |named| named.shown.clone())
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
