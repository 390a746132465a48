//! The kinds of reasons for which a plan is refused, each with its cause. A new one has a row in the test of all entries
//! (`controller/src/reading/tests`), or is of a host.

use crate::model::text::escaped;

/// One reason.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Unreachable {
    /// The field, as in the MachineConfig; `plan` for a broken invariant of the planner itself.
    pub field: String,
    /// Cause and next step.
    pub message: String,
    /// Its kind.
    #[serde(skip)]
    pub kind: ReasonKind,
}

/// Creates a reason.
pub(super) fn unreachable(
    kind: ReasonKind,
    field: impl Into<String>,
    message: impl Into<String>,
) -> Unreachable {
    Unreachable { field: escaped(&field.into()), message: escaped(&message.into()), kind }
}

impl Unreachable {
    /// Returns true if the config alone is refused.
    pub(super) fn is_of_config(&self) -> bool {
        matches!(self.kind.cause(), Cause::Config | Cause::Entry)
    }
}

/// Cause of a reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// The config alone: no host takes it.
    Config,
    /// The config alone, on a host that does not have the entry yet.
    Entry,
    /// The way from the old config to the new one.
    Update,
    /// This host.
    Host,
}

/// Makes the enum, the list of all, and the cause of each.
macro_rules! kinds {
    ($($(#[$text:meta])* $name:ident: $cause:ident,)*) => {
        /// Kind of a reason.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum ReasonKind {
            $($(#[$text])* $name,)*
        }

        impl ReasonKind {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// Returns the cause.
            pub fn cause(self) -> Cause {
                match self {
                    $(Self::$name => Cause::$cause,)*
                }
            }
        }
    };
}

kinds! {
    /// MCD's file that forces an update.
    ForceFile: Config,
    /// An entry in the place of a file that the agent or a program for accounts writes.
    OwnPath: Config,
    /// An entry in the place of a database that passwd of the same config changes.
    ChangedDatabase: Config,
    /// A directory or a link in the place of a database of accounts.
    DatabaseInPlace: Config,
    /// Something else in the place of a directory of the system.
    SystemDirectory: Config,
    /// A home in the agent's own directories.
    ReservedHome: Config,
    /// A link of storage that is against the entry of its unit.
    ContradictedLink: Config,
    /// A group that has to be there and must not exist.
    ContradictedGroup: Config,
    /// An owner whose account must not exist.
    ContradictedUser: Config,
    /// Settings of the agent that it can't read.
    Settings: Config,
    /// A template that is enabled without an instance.
    TemplateWithoutInstance: Config,
    /// An account or a group that is against root, which each host has.
    Root: Entry,
    /// A home that is a directory of the system.
    SystemHome: Entry,
    /// A home that leads through a file or a link of the config.
    HomeThroughEntry: Entry,
    /// A home at which no keys can be.
    UnfitHome: Entry,
    /// An entry in the place of the keys of an account of the config.
    KeysInPlace: Entry,
    /// A home that is, or is in, another account's.
    SharedHome: Entry,
    /// A directory that others may write to, with an entry in it.
    OpenDirectory: Entry,
    /// A directory of another account, with an entry in it.
    ForeignDirectory: Entry,
    /// A link of storage that enabling a unit of the config removes.
    EnabledLink: Entry,
    /// An `[Install]` section that can't be enabled.
    InvalidInstall: Entry,
    /// An entry in the place of a link that a unit makes.
    LinkInPlace: Entry,
    /// A unit that another one's links make otherwise than its entry has it.
    ContradictedUnit: Entry,
    /// Sections that only an installation makes.
    Installation: Update,
    /// FIPS mode.
    Fips: Update,
    /// Image mode is left, to no image.
    NoImage: Update,
    /// A file or a link of the old config above a path.
    OldEntry: Update,
    /// A group that leaves with the old config, and is needed.
    DroppedGroup: Update,
    /// Attributes that an account or a group has from its making.
    FixedAttribute: Update,
    /// A broken invariant of the planner.
    Planner: Update,
    /// Fields of the OS where there is none.
    NoOs: Host,
    /// An image on a host that boots none.
    NotImageBased: Host,
    /// An account or a group that the agent did not make.
    NotMade: Host,
    /// An entry in the place of an account's keys, where the host has its home.
    KeysFile: Host,
    /// An owner whom the host lacks.
    UnknownOwner: Host,
    /// An entry of the host, which no config brought, in the place of one.
    InTheWay: Host,
    /// A hard link without a file.
    DeadHardLink: Host,
    /// A link of storage that a unit of the host would lose.
    HostLink: Host,
    /// An obstacle that was seen on the host.
    Obstacle: Host,
    /// A unit that is masked.
    Masked: Host,
    /// An original that is too large to be kept.
    Original: Host,
    /// A live system.
    LiveMedia: Host,
    /// A program that the host lacks.
    NoProgram: Host,
    /// An id that another account or group has.
    TakenId: Host,
    /// An account or a group of the OS image.
    OfImage: Host,
    /// No place for a password.
    NoShadow: Host,
    /// A group that the host lacks.
    MissingGroup: Host,
    /// A home by the host's default, or of an account of the host.
    HostHome: Host,
    /// A directory as the host has it.
    HostDirectory: Host,
    /// A link of a unit, with the links of the host.
    UnitLinks: Host,
    /// Space.
    Space: Host,
}
