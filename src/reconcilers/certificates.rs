//! The certificates that the cluster rotates: the kubelet's CA, the cloud provider's CA, the CAs of registries.
//!
//! Below `/etc/docker/certs.d` the cluster owns `NAME/ca.crt` and nothing else: a stale one goes, its directory only
//! when nothing else is in it, and never a path of a config. Where that directory is missing no registry is trusted
//! by it, and it is not made (MCD-237).

use std::collections::{BTreeMap, BTreeSet};

use tracing::info;

use super::file::{DesiredFile, ended, write};
use crate::host::{HostError, Root};
use crate::model::certificates::RegistryName;
use crate::model::{ClusterTrust, Contents, FileMode, ManagedPath, ObservedFile, message};

/// The kubelet's client CA.
pub const KUBELET_CA: &str = "/etc/kubernetes/kubelet-ca.crt";
/// The CA of the cloud provider's API.
pub const CLOUD_CA: &str = "/etc/kubernetes/static-pod-resources/configmaps/cloud-config/ca-bundle.pem";
/// CAs of registries for container tools: a directory for each.
pub const REGISTRIES: &str = "/etc/docker/certs.d";

/// Progress of the certificates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Followed {
    /// Everything is as the cluster's trust.
    Whole,
    /// Stale files are still there.
    StaleLeft,
}

/// State of the host.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Installed {
    /// Modes of the two files, where they are files.
    modes: BTreeMap<&'static str, FileMode>,
    /// The directories of registries that hold a `ca.crt`; `None` when there is no place for them.
    registries: Option<BTreeSet<String>>,
}

/// Applies the cluster's trust: first all that is new, then the removal of stale files.
pub(super) fn follow(
    root: &Root,
    trust: &ClusterTrust,
    managed: impl FnOnce() -> Option<BTreeSet<ManagedPath>>,
) -> Result<Followed, HostError> {
    let installed = Installed::observe(root)?;
    let mut first_error = None;
    for desired in writes(trust, &installed) {
        if let Err(error) = write(root, &desired) {
            // The others are written all the same.
            first_error.get_or_insert(error);
        }
    }
    if let Some(error) = first_error {
        return Err(error);
    }
    let stale = stale(trust, &installed);
    if stale.is_empty() {
        return Ok(Followed::Whole);
    }
    let Some(managed) = managed() else { return Ok(Followed::StaleLeft) };
    for directory in stale.iter().filter(|directory| !is_managed(directory, &managed)) {
        root.remove(&ca_of(directory))?;
        root.remove_empty_dir(&format!("{REGISTRIES}/{directory}"))?;
        info!(
            MESSAGE_ID = message::TRUST,
            MCA_TARGET = ca_of(directory),
            "Removed {}: the cluster no longer names this registry",
            ca_of(directory)
        );
    }
    Ok(Followed::Whole)
}

impl Installed {
    fn observe(root: &Root) -> Result<Self, HostError> {
        let mut modes = BTreeMap::new();
        for path in [KUBELET_CA, CLOUD_CA] {
            if let ObservedFile::Regular { mode, .. } = root.observe(path)?
                && let Some(mode) = FileMode::new(i64::from(mode & 0o777))
            {
                modes.insert(path, mode);
            }
        }
        let registries = root.exists(REGISTRIES)?.then(|| with_ca(root)).transpose()?;
        Ok(Self { modes, registries })
    }
}

/// Lists the directories with a `ca.crt`. A link, of a directory or of the file, is another program's.
fn with_ca(root: &Root) -> Result<BTreeSet<String>, HostError> {
    let mut found = BTreeSet::new();
    for name in root.list(REGISTRIES)? {
        if matches!(root.observe(&format!("{REGISTRIES}/{name}"))?, ObservedFile::Directory { .. })
            && matches!(root.observe(&ca_of(&name))?, ObservedFile::Regular { .. })
        {
            found.insert(name);
        }
    }
    Ok(found)
}

fn ca_of(directory: &str) -> String {
    format!("{REGISTRIES}/{directory}/ca.crt")
}

/// Decides the files. A kubelet without any CA refuses all clients, so an unset CA changes nothing.
fn writes(trust: &ClusterTrust, installed: &Installed) -> Vec<DesiredFile> {
    let kept_mode = |path: &'static str| installed.modes.get(path).copied().unwrap_or(FileMode::DEFAULT);
    let file = |path: &'static str, bytes: &[u8]| DesiredFile {
        path: path.to_owned(),
        bytes: ended(bytes),
        mode: kept_mode(path),
    };
    let mut writes: Vec<DesiredFile> =
        trust.kubelet_ca.iter().map(|contents| file(KUBELET_CA, contents.bytes())).collect();
    let cloud = trust.cloud_ca.as_ref().map(Contents::bytes).unwrap_or_default();
    writes.push(file(CLOUD_CA, cloud));
    if installed.registries.is_some() {
        writes.extend(trust.registries.bundles.iter().map(|(name, contents)| DesiredFile {
            path: ca_of(name.as_str()),
            bytes: contents.bytes().to_vec(),
            mode: FileMode::DEFAULT,
        }));
    }
    writes
}

/// Decides which registries' directories have a `ca.crt` that the cluster does not name.
fn stale(trust: &ClusterTrust, installed: &Installed) -> Vec<String> {
    let named: BTreeSet<&str> = trust.registries.bundles.keys().map(RegistryName::as_str).collect();
    let found = installed.registries.iter().flatten();
    found.filter(|directory| !named.contains(directory.as_str())).cloned().collect()
}

fn is_managed(directory: &str, managed: &BTreeSet<ManagedPath>) -> bool {
    managed.iter().any(|path| path.is_below(&format!("{REGISTRIES}/{directory}")))
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a test plays the host")]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;
    use crate::model::ProxySettings;
    use crate::model::certificates::{Registries, ServerCaRotation};

    fn contents(text: &str) -> Contents {
        Contents::new(text.as_bytes())
    }

    fn trust(kubelet: Option<&str>, cloud: Option<&str>, registries: &[(&str, &str)]) -> ClusterTrust {
        let mut all = Registries::default();
        for (file, data) in registries {
            all.add(file, contents(data));
        }
        ClusterTrust {
            version: "1".to_owned(),
            rotation: ServerCaRotation::Off,
            server_ca: None,
            kubelet_ca: kubelet.map(contents),
            cloud_ca: cloud.map(contents),
            registries: all,
            pull_secret: None,
            proxy: Ok(ProxySettings::default()),
        }
    }

    fn installed(modes: &[(&'static str, u32)], registries: Option<&[&str]>) -> Installed {
        let mode = |bits: u32| FileMode::new(i64::from(bits)).unwrap();
        Installed {
            modes: modes.iter().map(|(path, bits)| (*path, mode(*bits))).collect(),
            registries: registries.map(|names| names.iter().map(|name| (*name).to_owned()).collect()),
        }
    }

    /// MCD-236, MCD-237, W-15: files to write and to remove, by the cluster's trust and the present files.
    #[test]
    fn certificates_are_written_and_stale_ones_removed() {
        let shown = |trust: &ClusterTrust, installed: &Installed| {
            let written = writes(trust, installed).into_iter().map(|one| {
                let name =
                    one.path.trim_start_matches("/etc/").replace("kubernetes/static-pod-resources/", "");
                format!("{name}={:?} {}", String::from_utf8(one.bytes).unwrap(), one.mode)
            });
            let stale = stale(trust, installed).into_iter().map(|name| format!("-{name}"));
            written.chain(stale).collect::<Vec<_>>()
        };
        let cloud = "configmaps/cloud-config/ca-bundle.pem";
        // A newline at the end, the mode that is there; an empty cloud CA is a file with a newline.
        assert_eq!(
            shown(&trust(Some("k"), Some("c\n"), &[]), &installed(&[(KUBELET_CA, 0o600)], None)),
            ["kubernetes/kubelet-ca.crt=\"k\\n\" 0600".to_owned(), format!("{cloud}=\"c\\n\" 0644")]
        );
        // A kubelet's CA is not emptied; without the base directory there are no registries.
        assert_eq!(
            shown(&trust(None, None, &[("reg.test", "r")]), &installed(&[(CLOUD_CA, 0o640)], None)),
            [format!("{cloud}=\"\\n\" 0640")]
        );
        // Directories with ports stay; bytes are the bundle's own.
        assert_eq!(
            shown(
                &trust(None, None, &[("reg.test..5000", "r"), ("b.test", "")]),
                &installed(&[], Some(&["reg.test:5000", "old.test", "old.test:1"]))
            ),
            [
                &*format!("{cloud}=\"\\n\" 0644"),
                "docker/certs.d/b.test/ca.crt=\"\" 0644",
                "docker/certs.d/reg.test:5000/ca.crt=\"r\" 0644",
                "-old.test",
                "-old.test:1",
            ]
        );
    }

    struct TestHost {
        dir: tempfile::TempDir,
        root: Root,
    }

    impl TestHost {
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            std::fs::create_dir_all(dir.path().join("etc/docker/certs.d")).unwrap();
            let root = Root::open(dir.path()).unwrap();
            Self { dir, root }
        }

        fn put(&self, path: &str, text: &str) {
            self.root.replace(path, text.as_bytes(), FileMode::DEFAULT).unwrap();
        }

        fn registries(&self) -> Vec<String> {
            let mut found = Vec::new();
            for name in self.root.list(REGISTRIES).unwrap() {
                let files = self.root.list(&format!("{REGISTRIES}/{name}")).unwrap();
                found.push(format!("{name}: {}", files.join(" ")));
            }
            found
        }
    }

    /// W-15, MCD-137: only the cluster's own file goes, and never a path of a config.
    #[test]
    fn foreign_files_stay() {
        let host = TestHost::new();
        for file in ["old.test/ca.crt", "client.test/ca.crt", "client.test/client.key", "config.test/ca.crt"]
        {
            host.put(&format!("{REGISTRIES}/{file}"), "x");
        }
        host.put(&format!("{REGISTRIES}/only.test/other.crt"), "x");
        host.put("/etc/elsewhere/ca.crt", "x");
        symlink("/etc/elsewhere", host.dir.path().join("etc/docker/certs.d/link.test")).unwrap();
        let managed = || {
            let path = ManagedPath::new(format!("{REGISTRIES}/config.test/ca.crt").as_str()).unwrap();
            Some(BTreeSet::from([path]))
        };
        let trust = trust(Some("k"), None, &[("new.test..5000", "n")]);
        assert_eq!(follow(&host.root, &trust, || None).unwrap(), Followed::StaleLeft);
        assert!(host.registries().contains(&"old.test: ca.crt".to_owned()), "{:?}", host.registries());
        assert_eq!(follow(&host.root, &trust, managed).unwrap(), Followed::Whole);
        assert_eq!(
            host.registries(),
            [
                "client.test: client.key",
                "config.test: ca.crt",
                "link.test: ca.crt",
                "new.test:5000: ca.crt",
                "only.test: other.crt",
            ]
        );
        assert_eq!(host.root.read(KUBELET_CA).unwrap().unwrap(), b"k\n");
    }

    /// MCD-235: a file that is right is not written again.
    #[test]
    fn second_apply_touches_nothing() {
        use std::os::unix::fs::MetadataExt as _;
        let host = TestHost::new();
        let trust = trust(Some("k"), Some("c"), &[("reg.test", "r")]);
        let inodes = || {
            let paths = [KUBELET_CA, CLOUD_CA, &ca_of("reg.test")]
                .map(|path| path.trim_start_matches('/').to_owned());
            paths.map(|path| std::fs::metadata(host.dir.path().join(path)).unwrap().ino())
        };
        follow(&host.root, &trust, || None).unwrap();
        let before = inodes();
        let managed = || panic!("nothing is to be removed");
        assert_eq!(follow(&host.root, &trust, managed).unwrap(), Followed::Whole);
        assert_eq!(inodes(), before);
    }

    /// An error of one file affects no other; nothing is removed then.
    #[test]
    fn failed_file_blocks_no_other() {
        let host = TestHost::new();
        host.put(&format!("{REGISTRIES}/old.test/ca.crt"), "x");
        let open = host.dir.path().join("etc/docker/certs.d/a.test");
        std::fs::create_dir(&open).unwrap();
        std::fs::set_permissions(&open, std::fs::Permissions::from_mode(0o777)).unwrap();
        let trust = trust(Some("k"), None, &[("a.test", "a"), ("b.test", "b")]);
        let error = follow(&host.root, &trust, || Some(BTreeSet::new())).unwrap_err();
        assert_eq!(error.reason(), "UnsafeDirectory");
        assert_eq!(host.registries(), ["a.test: ", "b.test: ca.crt", "old.test: ca.crt"]);
        assert_eq!(host.root.read(KUBELET_CA).unwrap().unwrap(), b"k\n");
    }
}
