//! The links to units in one tree of configuration files, as they are: of the host, or of an image that does not run.

use std::collections::BTreeMap;

use crate::host::{HostError, Root};
use crate::model::UnitName;

/// The folders of links that start units.
const FOLDERS: [&str; 3] = [".wants", ".requires", ".upholds"];

/// Links by their path below the directory of units.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnitFileLinks {
    links: BTreeMap<String, String>,
}

impl UnitFileLinks {
    /// Reads the links below a directory of configuration files, such as `/etc`.
    pub fn load(root: &Root, configuration: &str) -> Result<Self, HostError> {
        let directory = format!("{configuration}/systemd/system");
        let mut links = BTreeMap::new();
        for name in root.list(&directory)? {
            let path = format!("{directory}/{name}");
            if FOLDERS.iter().any(|end| name.ends_with(end)) {
                for link in root.list(&path)? {
                    let target = target(root, &format!("{path}/{link}"))?;
                    links.extend(target.map(|target| (format!("{name}/{link}"), target)));
                }
            } else {
                links.extend(target(root, &path)?.map(|target| (name, target)));
            }
        }
        Ok(Self { links })
    }

    /// Returns the links to a unit, by their path below the directory of units, without its mask.
    pub fn leading_to(&self, unit: &UnitName) -> BTreeMap<&str, &str> {
        let base = |path: &str| path.rsplit('/').next().unwrap_or(path).to_owned();
        let is = |name: String| name == unit.as_str();
        let leads = |at: &str, target: &str| is(base(target)) || (at.contains('/') && is(base(at)));
        let links = self.links.iter().map(|(at, target)| (at.as_str(), target.as_str()));
        links.filter(|(at, target)| leads(at, target)).collect()
    }
}

fn target(root: &Root, path: &str) -> Result<Option<String>, HostError> {
    use crate::model::ObservedFile::{Absent, Directory, Regular, Special, Symlink, Unreachable};
    Ok(match root.observe(path)? {
        Symlink { target, .. } => Some(target),
        Absent | Regular { .. } | Directory { .. } | Special | Unreachable => None,
    })
}
