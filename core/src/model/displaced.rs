//! Links and mounts in the place of directories.

/// A link or a mount in the place of a directory of a config: the paths below it lead elsewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Displaced {
    /// A symbolic link, where a config lists the directory.
    ListedLink,
    /// A symbolic link, where the agent made the directory for a path.
    MadeLink,
    /// A symbolic link in a directory of another account, which root does not follow.
    LinkOfAccount,
    /// A mount.
    Mount,
}

impl Displaced {
    /// Returns what it is, for people.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ListedLink | Self::MadeLink => {
                "a symbolic link by now, in the place of a directory of the config"
            }
            Self::LinkOfAccount => {
                "a symbolic link in a directory of another account, and root does not follow it"
            }
            Self::Mount => "a mount point by now, in the place of a directory of the config",
        }
    }
}
