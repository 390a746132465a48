//! The files of a seed's repository: objects by well-formed names. Everything else in it (configuration, refs, hooks, locks,
//! temporary files, a parent) is of another host, and means nothing here.

/// The most objects of a repository: a system has about a hundred thousand.
pub const MAX_OBJECTS: u64 = 1 << 20;

/// The most entries of a system that is checked out: a tree may be named any number of times, in trees that are, too.
pub const MAX_TREE_ENTRIES: u64 = 1 << 22;

/// The deepest directory of a system.
pub const MAX_TREE_DEPTH: usize = 128;

/// The longest `config`.
pub const MAX_CONFIG_BYTES: u64 = 64 << 10;

/// The largest object that describes others: libostree reads it into memory.
pub const MAX_METADATA_BYTES: u64 = 32 << 20;

/// Kind of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ObjectKind {
    /// A commit, a directory or the metadata of one.
    Metadata,
    /// A file or a symbolic link.
    File,
}

/// Treatment of a file of a repository.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RepositoryMember {
    /// The configuration, of which the mode counts alone.
    Config,
    /// An object.
    Object(ObjectKind),
    /// Any other: it is left.
    Other,
}

/// Returns how the file at a path of a repository is treated.
pub fn repository_member(path: &[u8]) -> RepositoryMember {
    if path == b"config" {
        return RepositoryMember::Config;
    }
    object_kind(path).map_or(RepositoryMember::Other, RepositoryMember::Object)
}

/// Reads `objects/XX/CHECKSUM.KIND`.
fn object_kind(path: &[u8]) -> Option<ObjectKind> {
    let (head, name) = path.strip_prefix(b"objects/")?.split_at_checked(2)?;
    let name = name.strip_prefix(b"/")?;
    let (rest, ending) = name.split_at_checked(62)?;
    let is_hex = |text: &[u8]| text.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    if !is_hex(head) || !is_hex(rest) {
        return None;
    }
    match ending {
        b".commit" | b".dirtree" | b".dirmeta" => Some(ObjectKind::Metadata),
        b".file" | b".filez" => Some(ObjectKind::File),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_known_by_well_formed_names_alone() {
        let rest = "ab".repeat(31);
        let at = |path: String| repository_member(path.as_bytes());
        for (ending, kind) in [
            ("commit", ObjectKind::Metadata),
            ("dirtree", ObjectKind::Metadata),
            ("dirmeta", ObjectKind::Metadata),
            ("file", ObjectKind::File),
            ("filez", ObjectKind::File),
        ] {
            assert_eq!(at(format!("objects/0f/{rest}.{ending}")), RepositoryMember::Object(kind));
        }
        assert_eq!(repository_member(b"config"), RepositoryMember::Config);
        for other in [
            format!("objects/0F/{rest}.file"),
            format!("objects/0f/{rest}.commitmeta"),
            format!("objects/0f/{rest}.payload-link"),
            format!("objects/0f/{rest}.file/x"),
            format!("objects/0f/{rest}"),
            format!("objects/0f/{}.file", "ab".repeat(30)),
            format!("objects/0f/../{}.file", "ab".repeat(29)),
            format!("objects/0f0/{rest}.file"),
            format!("x/objects/0f/{rest}.file"),
            "objects/ü".to_owned(),
            "refs/heads/main".to_owned(),
            "tmp".to_owned(),
            "config/x".to_owned(),
            String::new(),
        ] {
            assert_eq!(at(other.clone()), RepositoryMember::Other, "{other}");
        }
    }
}
