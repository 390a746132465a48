//! The parts of `/etc` and `/var` that a seed leaves out: one list, which `docs/stateroots.md` explains.
//!
//! A pattern is a path below the root. It stands for the path and all below it; `*` is any text within one name, and as the
//! last name it stands for the contents of a directory, which itself stays, with its mode and owner.

use serde::{Deserialize, Serialize};

use super::SeedError;
use crate::model::node_settings::SeedSettings;
use crate::model::short;

/// Reason to leave a path out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum LeftOutClass {
    /// It makes a host this host, or lets it prove that it is: each host has its own.
    Identity,
    /// It is the state or a secret of the seed's cluster.
    Cluster,
    /// It is valid only on this host and at this time.
    Moment,
}

use LeftOutClass::{Cluster, Identity, Moment};

/// The list.
pub const LEFT_OUT: [(LeftOutClass, &str); 97] = [
    (Identity, "etc/chrony.keys"),
    (Identity, "etc/credstore.encrypted/*"),
    (Identity, "etc/credstore/*"),
    (Identity, "etc/cryptsetup-keys.d/*"),
    (Identity, "etc/crypttab"),
    (Identity, "etc/hostname"),
    (Identity, "etc/insights-client/machine-id"),
    (Identity, "etc/ipsec.d/*"),
    (Identity, "etc/ipsec.secrets"),
    (Identity, "etc/iscsi/initiatorname.iscsi"),
    (Identity, "etc/krb5.keytab"),
    (Identity, "etc/kubernetes/bootstrap-kubelet.conf"),
    (Identity, "etc/kubernetes/ca.crt"),
    (Identity, "etc/kubernetes/kubeconfig"),
    (Identity, "etc/kubernetes/kubelet-ca.crt"),
    (Identity, "etc/lvm/devices/*"),
    (Identity, "etc/machine-id"),
    (Identity, "etc/mco/internal-registry-pull-secret.json"),
    (Identity, "etc/mco/proxy.env"),
    (Identity, "etc/multipath/bindings"),
    (Identity, "etc/multipath/wwids"),
    (Identity, "etc/NetworkManager/system-connections/*"),
    (Identity, "etc/nvme/hostid"),
    (Identity, "etc/nvme/hostnqn"),
    (Identity, "etc/openvswitch/conf.db"),
    (Identity, "etc/openvswitch/system-id.conf"),
    (Identity, "etc/ostree/auth.json"),
    (Identity, "etc/pki/consumer/*"),
    (Identity, "etc/pki/entitlement/*"),
    (Identity, "etc/pki/tls/private/*"),
    (Identity, "etc/ssh/ssh_host_*"),
    (Identity, "etc/swanctl/private/*"),
    (Identity, "etc/wireguard/*"),
    (Identity, "var/db/tang/*"),
    (Identity, "var/lib/dbus/machine-id"),
    (Identity, "var/lib/kubelet/config.json"),
    (Identity, "var/lib/kubelet/kubeconfig"),
    (Identity, "var/lib/kubelet/pki/*"),
    (Identity, "var/lib/samba/private/*"),
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
    (Moment, "etc/gshadow-"),
    (Moment, "etc/security/opasswd"),
    (Moment, "etc/shadow-"),
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

/// A path, or a pattern of paths, that a person names: as one that a seed has, or has not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SeedPath(String);

impl SeedPath {
    /// Reads a pattern: a path below `/etc` or `/var`.
    pub fn new(text: &str) -> Result<Self, SeedError> {
        if SeedSettings::is_path(text) {
            return Ok(Self(text.trim_matches('/').to_owned()));
        }
        Err(SeedError::Pattern { path: short(text, 200) })
    }

    /// Returns the path without its first slash.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for SeedPath {
    type Error = SeedError;
    fn try_from(text: String) -> Result<Self, SeedError> {
        Self::new(&text)
    }
}

impl From<SeedPath> for String {
    fn from(exclusion: SeedPath) -> Self {
        format!("/{}", exclusion.0)
    }
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

/// Returns a path of a config below the root, with the links of an image-based host resolved.
pub(super) fn real_path(path: &str) -> String {
    const LINKS: [(&str, &str); 6] = [
        ("home", "var/home"),
        ("mnt", "var/mnt"),
        ("opt", "var/opt"),
        ("root", "var/roothome"),
        ("srv", "var/srv"),
        ("usr/local", "var/usrlocal"),
    ];
    let path = path.trim_start_matches('/');
    let below = |(from, to): (&str, &str)| {
        let rest = path.strip_prefix(from)?;
        (rest.is_empty() || rest.starts_with('/')).then(|| format!("{to}{rest}"))
    };
    LINKS.into_iter().find_map(below).unwrap_or_else(|| path.to_owned())
}

/// Returns true if a pattern stands for a path or for a directory above it.
pub(super) fn covers(pattern: &str, path: &str) -> bool {
    let mut names = path.split('/');
    pattern.split('/').all(|pattern| names.next().is_some_and(|name| matches(pattern, name)))
}

/// Compares a name with a pattern of at most one `*`.
pub(super) fn matches(pattern: &str, name: &str) -> bool {
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
            assert!(SeedPath::new(bad).is_err(), "{bad:?}");
        }
        let own = SeedPath::new("/var/lib/own-*/").unwrap();
        assert!(covers(own.as_str(), "var/lib/own-data/file") && !covers(own.as_str(), "var/lib/own"));
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

    #[test]
    fn paths_of_a_config_are_those_of_the_host() {
        for (path, expected) in [
            ("/root/.kube/config", "var/roothome/.kube/config"),
            ("/usr/local/bin/a", "var/usrlocal/bin/a"),
            ("/opt", "var/opt"),
            ("/optional/a", "optional/a"),
            ("/etc/a", "etc/a"),
        ] {
            assert_eq!(real_path(path), expected);
        }
    }
}
