//! Names. Each is checked once, at its entry; inside the crate it is valid.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::error::ModelError;
use super::text::short;

/// The account that comes with the OS.
pub const CORE: &str = "core";

/// The account, and the group, with the id 0: each host has them.
pub const ROOT: &str = "root";

/// Home of root.
pub const ROOT_HOME: &str = "/root";

/// The unit of the agent.
pub const AGENT_UNIT: &str = "machine-config-agent.service";

/// Directory of unit files and drop-ins.
pub const UNIT_DIR: &str = "/etc/systemd/system";

macro_rules! name {
    ($(#[$doc:meta])* $type:ident, $what:literal, $rule:literal, $check:expr) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
        #[serde(try_from = "String", into = "String")]
        pub struct $type(String);

        impl $type {
            /// Checks the rule and makes the name.
            pub fn new(value: impl Into<String>) -> Result<Self, ModelError> {
                let value = value.into();
                let valid: fn(&str) -> bool = $check;
                if valid(&value) {
                    Ok(Self(value))
                } else {
                    Err(ModelError::Name { what: $what, value: short(&value, 100), rule: $rule })
                }
            }

            /// Returns the name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl TryFrom<String> for $type {
            type Error = ModelError;
            fn try_from(value: String) -> Result<Self, ModelError> {
                Self::new(value)
            }
        }

        impl From<$type> for String {
            fn from(name: $type) -> String {
                name.0
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

name!(
    /// The name of a rendered MachineConfig.
    ConfigName,
    "config name",
    "it must be a DNS-1123 subdomain of at most 253 characters",
    is_dns_subdomain
);
name!(
    /// The name of a systemd unit, with its suffix.
    UnitName,
    "unit name",
    "it must be at most 255 of the characters A-Z a-z 0-9 : . _ \\ @ - and end in a unit suffix such as .service",
    is_unit
);
name!(
    /// The file name of a unit's drop-in.
    DropinName,
    "drop-in name",
    "it must be a plain file name that ends in .conf",
    |value| is_file_name(value) && value.strip_suffix(".conf").is_some_and(|stem| !stem.is_empty())
);
name!(
    /// The name of an account.
    UserName,
    "user name",
    "it must be 1 to 32 of the characters a-z 0-9 _ - and begin with a letter or _",
    is_user
);
name!(
    /// The id of one boot: the kernel's, and the number of soft reboots under that kernel.
    BootId,
    "boot id",
    "it must be 1 to 64 of the characters a-z 0-9 -",
    |value| !value.is_empty()
        && value.len() <= 64
        && value.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
);
name!(
    /// The short id of one update: it names the record's archive and its saved originals.
    UpdateId,
    "update id",
    "it must be 1 to 64 of the characters a-z 0-9 -",
    |value| !value.is_empty()
        && value.len() <= 64
        && value.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
);

impl UserName {
    /// Returns the account that comes with the OS.
    pub fn core() -> Self {
        Self(CORE.to_owned())
    }

    /// Returns true if it is the account that comes with the OS.
    pub fn is_core(&self) -> bool {
        self.as_str() == CORE
    }

    /// Returns true if it is root.
    pub fn is_root(&self) -> bool {
        self.as_str() == ROOT
    }
}

/// Separator between the kernel's boot id and the number of soft reboots.
const SOFT: &str = "-soft-";

impl BootId {
    /// Takes the kernel's id, and the number of soft reboots that followed. A soft reboot keeps the kernel's id, but
    /// every comparison of boots takes it for another boot.
    pub fn after_soft_reboots(kernel: Self, count: u32) -> Result<Self, ModelError> {
        if count == 0 { Ok(kernel) } else { Self::new(format!("{kernel}{SOFT}{count}")) }
    }

    /// Returns true if the same kernel still runs in another boot: only soft reboots lie between them.
    pub fn is_soft_from(&self, other: &Self) -> bool {
        self != other && self.kernel() == other.kernel()
    }

    fn kernel(&self) -> &str {
        self.as_str().split_once(SOFT).map_or(self.as_str(), |(kernel, _)| kernel)
    }
}

impl UnitName {
    /// Returns the path of the unit file in `/etc`.
    pub fn path(&self) -> ManagedPath {
        ManagedPath(format!("{UNIT_DIR}/{self}"))
    }

    /// Returns the path of one of its drop-ins in `/etc`.
    pub fn dropin_path(&self, name: &DropinName) -> ManagedPath {
        ManagedPath(format!("{UNIT_DIR}/{self}.d/{name}"))
    }

    /// Returns the template that an instance is of: `a@.service` of `a@b.service`.
    pub fn template(&self) -> Option<Self> {
        let (prefix, rest) = self.0.split_once('@')?;
        let (instance, suffix) = rest.rsplit_once('.')?;
        (!instance.is_empty()).then(|| Self(format!("{prefix}@.{suffix}")))
    }
}

/// Returns true for a lowercase RFC 1123 subdomain, as the API server takes for most names.
pub fn is_dns_subdomain(value: &str) -> bool {
    let label = |part: &str| {
        let edge = |b: Option<u8>| b.is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
        edge(part.bytes().next())
            && edge(part.bytes().last())
            && part.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
    };
    value.len() <= 253 && value.split('.').all(label)
}

fn is_unit(value: &str) -> bool {
    const SUFFIXES: [&str; 12] = [
        "service",
        "socket",
        "device",
        "mount",
        "automount",
        "swap",
        "target",
        "path",
        "timer",
        "snapshot",
        "slice",
        "scope",
    ];
    let allowed = |b: u8| b.is_ascii_alphanumeric() || b":._\\@-".contains(&b);
    value.len() <= 255
        && value.bytes().all(allowed)
        && value.rsplit_once('.').is_some_and(|(stem, suffix)| !stem.is_empty() && SUFFIXES.contains(&suffix))
}

fn is_file_name(value: &str) -> bool {
    !value.is_empty()
        && value.len() <= 255
        && value != "."
        && value != ".."
        && !value.contains('/')
        && !value.chars().any(char::is_control)
}

fn is_user(value: &str) -> bool {
    let first = value.bytes().next().is_some_and(|b| b.is_ascii_lowercase() || b == b'_');
    first
        && value.len() <= 32
        && value.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_' || b == b'-')
}

/// An absolute, normalised path that the agent may own: no `..`, no symlink trick, not the agent's own state.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ManagedPath(String);

/// Returns true for the path of a file with presets of units (systemd.preset(5)).
pub fn is_preset(path: &ManagedPath) -> bool {
    let (directory, name) = path.split();
    name.ends_with(".preset") && directory.ends_with("systemd/system-preset")
}

impl ManagedPath {
    /// Checks a path of a MachineConfig.
    pub fn new(path: impl Into<String>) -> Result<Self, ModelError> {
        let path = path.into();
        match broken_rule(&path) {
            None => Ok(Self(path)),
            Some(rule) => Err(ModelError::Path { path: short(&path, 200), rule }),
        }
    }

    /// Returns the path as text, with the leading `/`.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the path without the leading `/`, for use below a root.
    pub fn relative(&self) -> &str {
        self.0.trim_start_matches('/')
    }

    /// Returns the directory of the path, relative to the root, and the file name.
    pub fn split(&self) -> (&str, &str) {
        self.relative().rsplit_once('/').unwrap_or((".", self.relative()))
    }

    /// Returns true if the path is the directory or below it, component by component.
    pub fn is_below(&self, directory: &str) -> bool {
        is_at_or_below(&self.0, directory.trim_end_matches('/'))
    }
}

/// Returns true if a path is the directory or below it, component by component.
pub fn is_at_or_below(path: &str, directory: &str) -> bool {
    path == directory || is_below(path, directory)
}

/// Returns true if a path is in a directory, and not that itself.
pub fn is_below(path: &str, directory: &str) -> bool {
    path.strip_prefix(directory).is_some_and(|rest| rest.starts_with('/'))
}

impl TryFrom<String> for ManagedPath {
    type Error = ModelError;
    fn try_from(path: String) -> Result<Self, ModelError> {
        Self::new(path)
    }
}

impl From<ManagedPath> for String {
    fn from(path: ManagedPath) -> String {
        path.0
    }
}

impl fmt::Display for ManagedPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Suffix of a new version that waits beside its place, hidden: `.NAME.mca-new`.
pub const DRAFT_SUFFIX: &str = ".mca-new";

/// Databases of accounts and groups: without the first four no account is known, not even root.
pub const ACCOUNT_DATABASES: [&str; 6] =
    ["/etc/passwd", "/etc/group", "/etc/shadow", "/etc/gshadow", "/etc/subuid", "/etc/subgid"];

/// The first of them: without these no account is known.
pub const LOGIN_DATABASES: [&str; 4] = ["/etc/passwd", "/etc/group", "/etc/shadow", "/etc/gshadow"];

/// The agent's own state, below the root.
pub const STATE_DIR: &str = "/var/lib/machine-config-agent";

/// The config that machine-config-daemon committed last, and that the agent keeps current.
pub const MCD_CONFIG: &str = "/etc/machine-config-daemon/currentconfig";

/// Directory in an image that was built for a config, of what its base has at the paths of the config.
pub const IMAGE_ORIGINALS: &str = "/usr/lib/machine-config-agent/originals";

/// The MachineConfig that Ignition leaves for the first boot.
pub const ENCAPSULATED: &str = "/etc/ignition-machine-config-encapsulated.json";

/// The file of the kernel arguments that configs have set.
pub const FORMER_KARGS: &str = "/var/lib/machine-config-agent/kargs.json";

fn broken_rule(path: &str) -> Option<&'static str> {
    let Some(relative) = path.strip_prefix('/') else {
        return Some("it must be absolute");
    };
    if path.len() > 4095 {
        return Some("it is longer than 4095 bytes");
    }
    if path.chars().any(char::is_control) {
        return Some("it holds a control character");
    }
    for component in relative.split('/') {
        match component {
            "" => return Some("it must be a file's path, without `//` and without a trailing `/`"),
            "." | ".." => return Some("it must not hold `.` or `..`"),
            _ if component.len() > 255 => return Some("a component is longer than 255 bytes"),
            _ => {}
        }
    }
    let own = |dir: &str| path == dir || path.strip_prefix(dir).is_some_and(|rest| rest.starts_with('/'));
    if own(STATE_DIR) {
        return Some("it belongs to the agent's own state");
    }
    if ["/proc", "/sys", "/dev", "/sysroot", "/ostree"].into_iter().any(own) {
        return Some(
            "it is not part of the host's configuration (proc, sys, dev, sysroot and ostree are the system's)",
        );
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn soft_reboot_is_another_boot_of_same_kernel() {
        let kernel = BootId::new("4f6b0d9c-5d3a-4f2e-8f4e-0b8a6c3d2e1f").unwrap();
        let after = |count| BootId::after_soft_reboots(kernel.clone(), count).unwrap();
        assert_eq!(after(0), kernel);
        assert_eq!(after(2).as_str(), "4f6b0d9c-5d3a-4f2e-8f4e-0b8a6c3d2e1f-soft-2");
        assert!(after(u32::MAX).is_soft_from(&kernel) && after(1).is_soft_from(&after(2)));
        assert!(!after(1).is_soft_from(&after(1)));
        assert!(!BootId::new("other-soft-1").unwrap().is_soft_from(&kernel));
    }

    #[test]
    fn managed_paths_are_normalised_or_refused() {
        for good in ["/etc/motd", "/a", "/etc/a b", "/var/lib/machine-config-agents/x", "/etc/..x"] {
            assert_eq!(ManagedPath::new(good).unwrap().as_str(), good);
        }
        for bad in [
            "",
            "/",
            "etc/motd",
            "/etc/",
            "/etc//motd",
            "/etc/../motd",
            "/etc/./motd",
            "/etc/a\nb",
            "/var/lib/machine-config-agent",
            "/var/lib/machine-config-agent/record.json",
            "/proc/1/mem",
        ] {
            assert!(ManagedPath::new(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn below_goes_by_component() {
        let path = ManagedPath::new("/etc/containers/registries.d/a.yaml").unwrap();
        assert!(path.is_below("/etc/containers/registries.d"));
        assert!(path.is_below("/etc/containers"));
        assert!(!path.is_below("/etc/contain"));
    }

    #[test]
    fn names_follow_their_rules() {
        assert!(ConfigName::new("rendered-worker-0a1b").is_ok());
        assert!(ConfigName::new("Rendered").is_err());
        assert!(ConfigName::new("a..b").is_err());
        assert!(UnitName::new("getty@tty1.service").is_ok());
        assert!(UnitName::new("dev-disk-by\\x2duuid.swap").is_ok());
        assert!(UnitName::new("../x.service").is_err());
        assert!(UnitName::new(".service").is_err());
        assert!(DropinName::new("10-a.conf").is_ok());
        assert!(DropinName::new("../10-a.conf").is_err());
        assert!(UserName::new("core").is_ok());
        assert!(UserName::new("root:x").is_err());
    }

    #[test]
    fn splits_into_directory_and_name() {
        assert_eq!(ManagedPath::new("/etc/a/b").unwrap().split(), ("etc/a", "b"));
        assert_eq!(ManagedPath::new("/b").unwrap().split(), (".", "b"));
    }
}
