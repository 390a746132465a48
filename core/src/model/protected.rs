//! Paths of the agent and of the system that no entry of a config is in the place of.

use super::ids::{ACCOUNT_DATABASES, ENCAPSULATED, MCD_CONFIG, ROOT_HOME, STATE_DIR, UNIT_DIR};
use super::settings::SETTINGS_PATH;

/// Files that the agent writes: those of machine-config-daemon, which it keeps current, its report, and what is left of a provisioning.
pub const WRITTEN: [&str; 6] = [
    MCD_CONFIG,
    "/etc/machine-config-daemon/currentimage",
    "/etc/mcd-currentconfig.json",
    "/etc/ignition-machine-config-encapsulated.json.bak",
    "/etc/machine-config-daemon/node-annotation.json.bak",
    "/run/machine-config-agent/report.json",
];

/// Files that the agent takes away: those of a provisioning that served, of packages once they are staged, and its hint at a login.
pub const REMOVED: [&str; 5] = [
    ENCAPSULATED,
    "/etc/machine-config-daemon/node-annotations.json",
    "/etc/systemd/system-preset/20-ignition.preset",
    "/etc/yum.repos.d/coreos-extensions.repo",
    "/run/motd.d/90-machine-config-agent.motd",
];

/// Settings of the programs that change them.
pub const READ: [&str; 2] = ["/etc/default/useradd", "/etc/login.defs"];

/// Directories of the system (file-hierarchy(7)).
pub const NO_HOMES: [&str; 30] = [
    "/",
    "/bin",
    "/etc",
    "/home",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/media",
    "/mnt",
    "/opt",
    "/run",
    "/sbin",
    "/srv",
    "/tmp",
    "/usr",
    "/usr/local",
    "/var",
    "/var/cache",
    "/var/home",
    "/var/lib",
    "/var/local",
    "/var/log",
    "/var/mail",
    "/var/opt",
    "/var/roothome",
    "/var/run",
    "/var/spool",
    "/var/srv",
    "/var/tmp",
];

/// Links to their like below `/usr`, on hosts that have merged the two.
pub const MERGED: [&str; 6] = ["/bin", "/lib", "/lib32", "/lib64", "/libx32", "/sbin"];

/// Directories of the system beside those that are no homes.
pub const OF_SYSTEM: [&str; 9] = [
    "/boot",
    "/etc/systemd",
    ROOT_HOME,
    UNIT_DIR,
    "/usr/bin",
    "/usr/lib",
    "/usr/lib64",
    "/usr/sbin",
    "/usr/share",
];

/// Directories whose names decide what runs as root, beside those above the agent's own files.
pub const CLOSED: [&str; 12] = [
    "/boot",
    "/etc",
    "/etc/systemd",
    ROOT_HOME,
    UNIT_DIR,
    "/usr",
    "/usr/bin",
    "/usr/lib",
    "/usr/lib64",
    "/usr/libexec",
    "/usr/sbin",
    "/usr/share",
];

/// Returns the agent's own files and directories.
pub fn own() -> impl Iterator<Item = &'static str> {
    WRITTEN.into_iter().chain([SETTINGS_PATH, STATE_DIR])
}

/// Returns the paths whose places on a host decide about entries. The links to `/usr` have their names there.
pub fn all() -> impl Iterator<Item = &'static str> {
    let of_system = NO_HOMES.into_iter().chain(OF_SYSTEM).chain(CLOSED);
    let of_system = of_system.filter(|path| *path != "/" && !MERGED.contains(path));
    own().chain(REMOVED).chain(ACCOUNT_DATABASES).chain(READ).chain(of_system)
}
