//! Proxies by which this host reaches others, and their sources.
//!
//! The first that names a proxy counts, for all three variables: the agent's own environment, the cluster's
//! `ControllerConfig` (for pulls: the way to the cluster can't come from the cluster), `/etc/mco/proxy.env`.
//! The file is read for each pull and each connection, so that a change needs no restart.

use std::sync::{Arc, Mutex, PoisonError};

use super::{HostError, Root};
use crate::model::text::chain;
use crate::model::{FaultClass, FileMode, NotApplied, NotAppliedReason, ProxySettings};

/// The file that MCO's units take their proxies from.
pub const PROXY_FILE: &str = "/etc/mco/proxy.env";

/// The agent's own for the units that it starts: a secret, so it is in no property of a unit, which everybody may read.
pub(in crate::host) const UNIT_FILE: &str = "/run/machine-config-agent-proxy.env";

/// The longest file that is read: a `NO_PROXY` of a large cluster has some KiB.
const MAX_BYTES: u64 = 64 << 10;

/// Proxies of the environment, the file and the cluster. Clones share the cluster's part.
#[derive(Debug, Clone)]
pub struct Proxies(Arc<Sources>);

#[derive(Debug)]
struct Sources {
    root: Root,
    environment: ProxySettings,
    cluster: Mutex<ProxySettings>,
}

impl Proxies {
    /// Takes the host's root, and the proxies of the process's environment.
    pub fn new(root: Root, environment: ProxySettings) -> Self {
        Self(Arc::new(Sources { root, environment, cluster: Mutex::default() }))
    }

    /// Takes the cluster's proxies.
    pub fn set_cluster(&self, settings: ProxySettings) {
        *self.0.cluster.lock().unwrap_or_else(PoisonError::into_inner) = settings;
    }

    /// Returns the proxies to pull through.
    pub fn for_pulls(&self) -> Result<ProxySettings, HostError> {
        if !self.0.environment.is_empty() {
            return Ok(self.0.environment.clone());
        }
        let cluster = self.0.cluster.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if cluster.is_empty() { self.file() } else { Ok(cluster) }
    }

    /// Returns the proxies to reach the cluster through.
    pub fn for_cluster(&self) -> Result<ProxySettings, HostError> {
        if self.0.environment.is_empty() { self.file() } else { Ok(self.0.environment.clone()) }
    }

    /// Writes the proxies to pull through for units of systemd; returns [`UNIT_FILE`], or `None` where there are none.
    pub(in crate::host) fn unit_file(&self) -> Result<Option<&'static str>, HostError> {
        let settings = self.for_pulls()?;
        if settings.is_empty() {
            self.0.root.remove(UNIT_FILE)?;
            return Ok(None);
        }
        self.0.root.write_if_changed(
            UNIT_FILE,
            settings.to_environment_file().as_bytes(),
            FileMode::PRIVATE,
        )?;
        Ok(Some(UNIT_FILE))
    }

    /// Names the lines of the file that nobody reads, where the file counts.
    pub fn ignored(&self) -> Vec<NotApplied> {
        let is_named = || !self.0.cluster.lock().unwrap_or_else(PoisonError::into_inner).is_empty();
        if !self.0.environment.is_empty() || is_named() {
            return Vec::new();
        }
        // What can't be read is an error of the pull.
        let Ok(Some(bytes)) = self.0.root.read_trusted(PROXY_FILE, MAX_BYTES) else { return Vec::new() };
        let lines = ProxySettings::lines_without_value(&String::from_utf8_lossy(&bytes));
        let named = |line: usize| {
            let message = "it is not NAME=VALUE and has no effect; correct it, or remove it".to_owned();
            NotApplied::new(format!("{PROXY_FILE} line {line}"), NotAppliedReason::UnknownField, message)
        };
        lines.into_iter().map(named).collect()
    }

    fn file(&self) -> Result<ProxySettings, HostError> {
        let read = self.0.root.read_trusted(PROXY_FILE, MAX_BYTES);
        let read = read.map_err(|error| {
            let is_unsafe = matches!(error, HostError::UnsafeFile { .. } | HostError::UnsafeDirectory { .. });
            let next = if is_unsafe { error.next() } else { format!("Correct {PROXY_FILE}.") };
            unusable(chain(&error), &next)
        })?;
        let Some(bytes) = read else { return Ok(ProxySettings::default()) };
        let wrong =
            |cause: String| unusable(format!("{PROXY_FILE}, {cause}"), &format!("Correct {PROXY_FILE}."));
        let text = std::str::from_utf8(&bytes).map_err(|error| {
            let before = bytes.get(..error.valid_up_to()).unwrap_or_default();
            let line = before.split(|byte| *byte == b'\n').count();
            wrong(format!("line {line}: it is not UTF-8"))
        })?;
        ProxySettings::parse_environment_file(text).map_err(|error| wrong(error.to_string()))
    }
}

/// Creates the error of the file. It is read for each try, so a correction needs no event.
fn unusable(cause: String, next: &str) -> HostError {
    HostError::Os {
        object: "the proxies of this host".to_owned(),
        cause,
        class: FaultClass::Retry,
        reason: "ProxyFileUnusable",
        next: format!("{} The agent rereads it automatically.", next.trim_end()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(https: &str) -> ProxySettings {
        ProxySettings::new(None, Some(https.to_owned()), None).unwrap()
    }

    #[test]
    fn environment_comes_before_cluster_and_file() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::open(directory.path()).unwrap();
        let proxies = Proxies::new(root.clone(), ProxySettings::default());
        assert!(proxies.for_pulls().unwrap().is_empty());
        root.replace(PROXY_FILE, b"HTTPS_PROXY=http://file\n", FileMode::DEFAULT).unwrap();
        assert_eq!(proxies.for_pulls().unwrap(), settings("http://file"));
        let clone = proxies.clone();
        clone.set_cluster(settings("http://cluster"));
        assert_eq!(proxies.for_pulls().unwrap(), settings("http://cluster"));
        assert_eq!(proxies.for_cluster().unwrap(), settings("http://file"));
        let own = Proxies::new(root.clone(), settings("http://own"));
        own.set_cluster(settings("http://cluster"));
        assert_eq!(own.for_pulls().unwrap(), settings("http://own"));
        assert_eq!(own.for_cluster().unwrap(), settings("http://own"));
        let file = own.unit_file().unwrap().unwrap();
        assert_eq!(root.read_text(file).unwrap().as_deref(), Some("HTTPS_PROXY=\"http://own\"\n"));
    }

    #[test]
    fn no_proxy_leaves_no_secret_behind() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::open(directory.path()).unwrap();
        Proxies::new(root.clone(), settings("http://u:p@own")).unit_file().unwrap();
        assert!(root.exists(UNIT_FILE).unwrap());
        let none = Proxies::new(root.clone(), ProxySettings::default());
        assert_eq!(none.unit_file().unwrap(), None);
        assert!(!root.exists(UNIT_FILE).unwrap());
    }

    #[test]
    fn unusable_file_is_named_and_not_quoted() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::open(directory.path()).unwrap();
        let proxies = Proxies::new(root.clone(), ProxySettings::default());
        let long = vec![b'#'; usize::try_from(MAX_BYTES).unwrap() + 1];
        let open = FileMode::new(0o666).unwrap();
        for (bytes, mode, cause, next) in [
            (&b"\nHTTPS_PROXY=http://u:geheim\x07@p\n"[..], FileMode::DEFAULT, "line 2: ", "Correct "),
            (b"#\n\nHTTPS_PROXY=http://u:geheim@\xff\n", FileMode::DEFAULT, "line 3: ", "Correct "),
            (&long, FileMode::DEFAULT, "65537 bytes", "Correct "),
            (b"HTTPS_PROXY=http://u:geheim@p\n", open, "can be written by others", "chmod go-w "),
        ] {
            root.replace(PROXY_FILE, bytes, mode).unwrap();
            let error = proxies.for_pulls().unwrap_err();
            assert_eq!((error.class(), error.reason()), (FaultClass::Retry, "ProxyFileUnusable"));
            let text = format!("{error} {}", error.next());
            assert!(
                text.starts_with(&format!("the proxies of this host: {PROXY_FILE}"))
                    && !text.contains("geheim"),
                "{text}"
            );
            assert!(
                text.contains(cause) && text.contains(next) && text.ends_with("automatically."),
                "{text}"
            );
        }
    }
}
