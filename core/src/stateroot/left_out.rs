//! The parts of `/etc` and `/var` that a seed leaves out: one list, which `docs/stateroots.md` explains.
//!
//! A pattern is a path below the root. It stands for the path and all below it; `*` is any text within one name, and as the
//! last name it stands for the contents of a directory, which itself stays, with its mode and owner.

use serde::{Deserialize, Serialize};

use super::SeedError;
use crate::model::short;

/// Reason to leave a path out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum LeftOutClass {
    /// It makes a host this host, or lets it prove that it is: each host has its own.
    Identity,
    /// It is the state or a secret of the seed's cluster.
    Cluster,
    /// It is good on this host and for now only.
    Moment,
}

use LeftOutClass::{Cluster, Identity, Moment};

/// The list.
pub const LEFT_OUT: [(LeftOutClass, &str); 78] = [
    (Identity, "etc/hostname"),
    (Identity, "etc/insights-client/machine-id"),
    (Identity, "etc/iscsi/initiatorname.iscsi"),
    (Identity, "etc/krb5.keytab"),
    (Identity, "etc/kubernetes/bootstrap-kubelet.conf"),
    (Identity, "etc/kubernetes/ca.crt"),
    (Identity, "etc/kubernetes/kubeconfig"),
    (Identity, "etc/kubernetes/kubelet-ca.crt"),
    (Identity, "etc/machine-id"),
    (Identity, "etc/mco/internal-registry-pull-secret.json"),
    (Identity, "etc/mco/proxy.env"),
    (Identity, "etc/NetworkManager/system-connections/*"),
    (Identity, "etc/nvme/hostid"),
    (Identity, "etc/nvme/hostnqn"),
    (Identity, "etc/ostree/auth.json"),
    (Identity, "etc/pki/consumer/*"),
    (Identity, "etc/pki/entitlement/*"),
    (Identity, "etc/pki/tls/private/*"),
    (Identity, "etc/ssh/ssh_host_*"),
    (Identity, "var/lib/dbus/machine-id"),
    (Identity, "var/lib/kubelet/config.json"),
    (Identity, "var/lib/kubelet/kubeconfig"),
    (Identity, "var/lib/kubelet/pki/*"),
    (Cluster, "etc/ignition-machine-config-encapsulated.json"),
    (Cluster, "etc/ignition-machine-config-encapsulated.json.bak"),
    (Cluster, "etc/kubernetes/admin.conf"),
    (Cluster, "etc/kubernetes/bootstrap-secrets/*"),
    (Cluster, "etc/kubernetes/controller-manager.conf"),
    (Cluster, "etc/kubernetes/manifests/*"),
    (Cluster, "etc/kubernetes/pki/*"),
    (Cluster, "etc/kubernetes/scheduler.conf"),
    (Cluster, "etc/kubernetes/static-pod-resources/*"),
    (Cluster, "etc/kubernetes/super-admin.conf"),
    (Cluster, "etc/machine-config-agent/stateroot-report.json"),
    (Cluster, "etc/machine-config-agent/stateroot.yaml"),
    // A copy without the contents of the paths of this list stands in for it.
    (Cluster, "etc/machine-config-daemon/currentconfig"),
    (Cluster, "etc/machine-config-daemon/node-annotation.json.bak"),
    (Cluster, "etc/machine-config-daemon/node-annotations.json"),
    (Cluster, "etc/mcs-machine-config-content.json"),
    (Cluster, "etc/mco/machineconfig-revert.json"),
    (Cluster, "var/home/*/.docker/config.json"),
    (Cluster, "var/home/*/.kube/*"),
    (Cluster, "var/home/*/.ssh/id_*"),
    (Cluster, "var/lib/cni/*"),
    (Cluster, "var/lib/etcd/*"),
    (Cluster, "var/lib/ovn-ic/*"),
    (Cluster, "var/roothome/.docker/config.json"),
    (Cluster, "var/roothome/.kube/*"),
    (Cluster, "var/roothome/.ssh/id_*"),
    (Moment, "var/cache/*"),
    (Moment, "var/crash/*"),
    (Moment, "var/home/*/.bash_history"),
    (Moment, "var/lib/chrony/*"),
    (Moment, "var/lib/containerd/*"),
    (Moment, "var/lib/containers/*"),
    (Moment, "var/lib/dhclient/*"),
    (Moment, "var/lib/kubelet/cpu_manager_state"),
    (Moment, "var/lib/kubelet/device-plugins/*"),
    (Moment, "var/lib/kubelet/memory_manager_state"),
    (Moment, "var/lib/kubelet/plugins/*"),
    (Moment, "var/lib/kubelet/plugins_registry/*"),
    (Moment, "var/lib/kubelet/pods/*"),
    (Moment, "var/lib/lca/*"),
    (Moment, "var/lib/logrotate/*"),
    (Moment, "var/lib/machine-config-agent/*"),
    (Moment, "var/lib/NetworkManager/*"),
    (Moment, "var/lib/sss/db/*"),
    (Moment, "var/lib/sss/mc/*"),
    (Moment, "var/lib/sss/secrets/*"),
    (Moment, "var/lib/systemd/coredump/*"),
    (Moment, "var/lib/systemd/credential.secret"),
    (Moment, "var/lib/systemd/pstore/*"),
    (Moment, "var/lib/systemd/random-seed"),
    (Moment, "var/lib/systemd/timers/*"),
    (Moment, "var/log/*"),
    (Moment, "var/roothome/.bash_history"),
    (Moment, "var/spool/cron/lastrun/*"),
    (Moment, "var/tmp/*"),
];

/// A path that a person leaves out beside the list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Exclusion(String);

impl Exclusion {
    /// Reads a pattern: a path below `/etc` or `/var`.
    pub fn new(text: &str) -> Result<Self, SeedError> {
        let path = text.trim_matches('/');
        let names = path.split('/').all(|name| !matches!(name, "" | "." | "..") && !name.contains('\0'));
        let is_below = path.starts_with("etc/") || path.starts_with("var/");
        if text.starts_with('/') && names && is_below {
            return Ok(Self(path.to_owned()));
        }
        Err(SeedError::Exclusion { path: short(text, 200) })
    }

    /// Returns the path without its first slash.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for Exclusion {
    type Error = SeedError;
    fn try_from(text: String) -> Result<Self, SeedError> {
        Self::new(&text)
    }
}

impl From<Exclusion> for String {
    fn from(exclusion: Exclusion) -> Self {
        format!("/{}", exclusion.0)
    }
}

/// Returns true if a seed has no such path; it is one below the root, without its first slash.
pub fn is_left_out(path: &str, exclusions: &[Exclusion]) -> bool {
    class(path).is_some() || exclusions.iter().any(|exclusion| covers(&exclusion.0, path))
}

/// Returns why a path is on the list.
pub fn class(path: &str) -> Option<LeftOutClass> {
    LEFT_OUT.into_iter().find(|(_, pattern)| covers(pattern, path)).map(|(class, _)| class)
}

/// Returns true if a part of a host's identity may be below a path.
pub fn leads_to_identity(path: &str) -> bool {
    let leads = |pattern: &str| {
        let mut names = pattern.split('/');
        path.split('/').all(|name| names.next().is_some_and(|pattern| matches(pattern, name)))
            && names.next().is_some()
    };
    LEFT_OUT.into_iter().any(|(class, pattern)| class == Identity && leads(pattern))
}

/// Returns true if a pattern stands for a path or for a directory above it.
fn covers(pattern: &str, path: &str) -> bool {
    let mut names = path.split('/');
    pattern.split('/').all(|pattern| names.next().is_some_and(|name| matches(pattern, name)))
}

/// Compares a name with a pattern of at most one `*`.
fn matches(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == name,
        Some((head, tail)) => {
            name.len() >= head.len() + tail.len() && name.starts_with(head) && name.ends_with(tail)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_cover_paths_and_all_below() {
        for (path, expected) in [
            ("etc/machine-id", Some(Identity)),
            ("etc/machine-id2", None),
            ("etc/ssh/ssh_host_rsa_key.pub", Some(Identity)),
            ("etc/ssh/sshd_config", None),
            ("etc/kubernetes/pki", None),
            ("etc/kubernetes/pki/etcd/ca.key", Some(Cluster)),
            ("var/lib/kubelet/pki", None),
            ("var/lib/kubelet/pki/kubelet-client-current.pem", Some(Identity)),
            ("var/lib/kubelet/config.json", Some(Identity)),
            ("var/lib/kubelet/config.yaml", None),
            ("var/home/core/.ssh/id_ed25519", Some(Cluster)),
            ("var/home/core/.ssh/authorized_keys.d/ignition", None),
            ("var/log", None),
            ("var/log/journal/x/system.journal", Some(Moment)),
            ("var/lib/machine-config-agent/current.json", Some(Moment)),
            ("var", None),
        ] {
            assert_eq!(class(path), expected, "{path}");
        }
    }

    #[test]
    fn directories_above_identity_are_known() {
        for (path, expected) in [
            ("etc", true),
            ("etc/ssh", true),
            ("var/lib/kubelet/pki", true),
            ("etc/hostname", false),
            ("var/log", false),
            ("var/lib/etcd", false),
        ] {
            assert_eq!(leads_to_identity(path), expected, "{path}");
        }
    }

    #[test]
    fn exclusions_are_paths_below_etc_or_var() {
        for bad in ["", "/", "/etc", "etc/x", "/usr/x", "/etc/../x", "/var//x", "/var/./x", "/etc/a\0"] {
            assert!(Exclusion::new(bad).is_err(), "{bad:?}");
        }
        let own = [Exclusion::new("/var/lib/own-*/").unwrap()];
        assert!(is_left_out("var/lib/own-data/file", &own) && !is_left_out("var/lib/own", &own));
        assert!(is_left_out("etc/hostname", &[]));
    }

    #[test]
    fn each_pattern_is_there_once_and_has_one_star_a_name() {
        let mut patterns: Vec<&str> = LEFT_OUT.iter().map(|(_, pattern)| *pattern).collect();
        patterns.sort_unstable();
        patterns.dedup();
        assert_eq!(patterns.len(), LEFT_OUT.len());
        for pattern in patterns {
            assert!(pattern.starts_with("etc/") || pattern.starts_with("var/"), "{pattern}");
            assert!(pattern.split('/').all(|name| name.matches('*').count() < 2), "{pattern}");
        }
    }
}
