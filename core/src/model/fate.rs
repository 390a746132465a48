//! The fate of each field of a config: applied, made by an installation, or refused. `docs/fields.md` is made from this table.

/// The fate of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// The agent brings it to the host.
    Applied,
    /// Ignition makes it when a host is installed. A change is refused; on a host that was not installed with it, it is named as
    /// not applied.
    Installation,
    /// The config is refused before anything is touched.
    Refused,
}

/// A row of the table.
#[derive(Debug, Clone, Copy)]
pub struct FieldFate {
    /// The field, as its path in the MachineConfig; one that ends in `.*` stands for all fields below.
    pub field: &'static str,
    /// Its fate.
    pub fate: Fate,
    /// A note for its reader.
    pub note: &'static str,
}

const fn applied(field: &'static str, note: &'static str) -> FieldFate {
    FieldFate { field, fate: Fate::Applied, note }
}

const fn installation(field: &'static str, note: &'static str) -> FieldFate {
    FieldFate { field, fate: Fate::Installation, note }
}

const fn refused(field: &'static str, note: &'static str) -> FieldFate {
    FieldFate { field, fate: Fate::Refused, note }
}

/// Fields of a MachineConfig's spec beside its Ignition config.
pub const OF_SPEC: &[FieldFate] = &[
    applied(
        "spec.baseOSExtensionsContainerImage",
        "source of the packages of `spec.extensions` and `spec.kernelType`; not applied without an OS backend",
    ),
    applied("spec.extensions", "refused without an OS backend, and on libostree and bootc"),
    applied(
        "spec.fips",
        "refused without an OS backend, or if the kernel differs; not applied if the kernel does not show it",
    ),
    applied(
        "spec.kernelArguments",
        "refused on a host without an OS backend; `ostree=`, `BOOT_IMAGE=` and `initrd=` are refused everywhere",
    ),
    applied("spec.kernelType", "refused without an OS backend, and on libostree and bootc"),
    applied("spec.osImageURL", "refused on a host without an OS backend"),
];

/// Fields of the Ignition config, `spec.config`.
pub const OF_IGNITION: &[FieldFate] = &[
    refused("ignition.config.merge", "nothing is fetched: merge the configs into one"),
    refused("ignition.config.replace", "nothing is fetched: use that config itself"),
    installation("ignition.proxy.*", "the agent has separate proxies"),
    installation("ignition.security.*", ""),
    installation("ignition.timeouts.*", ""),
    applied("ignition.version", "3.0.0 to 3.6.0; selects the rules"),
    installation("kernelArguments.*", "compared with the kernel's command line"),
    applied("passwd.groups[].gid", "of a group that exists, a change is refused; unique"),
    applied("passwd.groups[].name", "1 to 32 of a-z 0-9 _ -; a letter or _ first"),
    applied("passwd.groups[].passwordHash", ""),
    applied("passwd.groups[].shouldExist", "with false, the other fields are named as not applied"),
    applied(
        "passwd.groups[].system",
        "when the group is made; named as not applied if the host already has it",
    ),
    applied("passwd.users[].gecos", "an empty one sets nothing"),
    applied("passwd.users[].groups", "added to those that the host gave"),
    applied(
        "passwd.users[].homeDir",
        "a separate home, not the agent's; `/dev/null` means no home; of an existing account no change",
    ),
    applied(
        "passwd.users[].name",
        "1 to 32 of a-z 0-9 _ -; a letter or _ first; `core` alone makes no account",
    ),
    applied(
        "passwd.users[].noCreateHome",
        "when the account is made; named as not applied if the host already has it",
    ),
    applied(
        "passwd.users[].noLogInit",
        "when the account is made; named as not applied if the host already has it",
    ),
    applied(
        "passwd.users[].noUserGroup",
        "when the account is made; named as not applied if the host already has it",
    ),
    applied("passwd.users[].passwordHash", "an empty one locks the password"),
    applied("passwd.users[].primaryGroup", "of an account that exists, a change is refused"),
    applied("passwd.users[].shell", ""),
    applied(
        "passwd.users[].shouldExist",
        "an account of the host is never removed; with false, the other fields are named as not applied",
    ),
    applied("passwd.users[].sshAuthorizedKeys", "several lines are several keys"),
    applied(
        "passwd.users[].system",
        "when the account is made; named as not applied if the host already has it",
    ),
    applied("passwd.users[].uid", "of an account that exists, a change is refused; unique"),
    applied("storage.directories[].group.*", ""),
    applied("storage.directories[].mode", ""),
    applied("storage.directories[].overwrite", "replaces a file or a link; contents of a directory stay"),
    applied("storage.directories[].path", ""),
    applied("storage.directories[].user.*", ""),
    installation("storage.disks[].*", "seen by the labels of partitions"),
    refused("storage.files[].append", "write the whole file"),
    applied("storage.files[].contents.compression", "gzip, or none"),
    refused("storage.files[].contents.httpHeaders", "nothing is fetched"),
    applied("storage.files[].contents.source", "`data:` URLs; others are refused"),
    applied("storage.files[].contents.verification.*", "one that does not match is named as stale"),
    applied("storage.files[].group.*", ""),
    applied("storage.files[].mode", "0 to 0777"),
    applied(
        "storage.files[].overwrite",
        "an existing file is always replaced, and restored later; `false` is named as not applied",
    ),
    applied("storage.files[].path", ""),
    applied("storage.files[].user.*", ""),
    installation("storage.filesystems[].*", "seen by the mount, or by the label"),
    applied("storage.links[].group.*", ""),
    applied("storage.links[].hard", ""),
    applied("storage.links[].overwrite", "without it, a path that no config brought is refused"),
    applied("storage.links[].path", ""),
    applied("storage.links[].target", ""),
    applied("storage.links[].user.*", ""),
    installation("storage.luks[].*", "seen by its name in /dev/mapper"),
    installation("storage.raid[].*", "seen by its name in /dev/md"),
    applied("systemd.units[].contents", "named as not applied if the unit is masked"),
    applied(
        "systemd.units[].dropins[].contents",
        "a drop-in without `contents` is named as not applied; with an empty text none is written",
    ),
    applied("systemd.units[].dropins[].name", ""),
    applied(
        "systemd.units[].enabled",
        "without a unit file or [Install]: not applied; a template needs an instance",
    ),
    applied("systemd.units[].mask", ""),
    applied("systemd.units[].name", ""),
];

impl FieldFate {
    /// Returns true if the row is about a field.
    pub fn covers(&self, field: &str) -> bool {
        match self.field.strip_suffix(".*") {
            Some(above) => {
                field == above || field.strip_prefix(above).is_some_and(|rest| rest.starts_with('.'))
            }
            // The fields of a refused object are refused with it.
            None if self.fate == Fate::Refused => field
                .strip_prefix(self.field)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '['])),
            None => field == self.field,
        }
    }
}

impl Fate {
    /// Returns the word, as in the documents.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Applied => "applied",
            Self::Installation => "installation",
            Self::Refused => "refused",
        }
    }
}
