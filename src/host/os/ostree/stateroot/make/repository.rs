//! The repository of a classic seed: the objects of one commit, and the directories without which it is none.

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::path::Path;

use ostree_ext::gio::Cancellable;
use ostree_ext::ostree::{ObjectType, Repo, RepoMode};

use super::super::super::super::error::{OsError, OsErrorKind, SYSROOT};
use super::super::super::failed::failed;
use super::super::archive::{Entry, Kind};
use super::pack::{Packer, file_entry};
use super::walk::{At, Choice, Contents, Visitor, walk};

/// The directories of a repository.
const DIRECTORIES: [&str; 8] =
    ["extensions", "objects", "refs", "refs/heads", "refs/mirrors", "refs/remotes", "state", "tmp"];

/// Returns the files of a commit below `objects`. lifecycle-agent pulls all refs, so there is one.
pub(super) fn objects(repo: &Repo, commit: &str) -> Result<BTreeSet<String>, OsError> {
    if repo.mode() != RepoMode::Bare {
        let cause = "its repository is not of the mode bare, as that of a booted system is";
        return Err(OsError::new(OsErrorKind::Libostree, SYSROOT, cause));
    }
    let all = repo.traverse_commit(commit, 0, Cancellable::NONE).map_err(failed)?;
    let mut found = BTreeSet::new();
    for object in all {
        let checksum = object.checksum();
        let ending = match object.object_type() {
            ObjectType::File => "file",
            ObjectType::DirTree => "dirtree",
            ObjectType::DirMeta => "dirmeta",
            ObjectType::Commit => "commit",
            ObjectType::TombstoneCommit
            | ObjectType::CommitMeta
            | ObjectType::PayloadLink
            | ObjectType::FileXattrs
            | ObjectType::FileXattrsLink
            | _ => continue,
        };
        let (head, rest) = checksum.split_at_checked(2).unwrap_or_default();
        found.insert(format!("{head}/{rest}.{ending}"));
    }
    Ok(found)
}

/// Archives a repository of these objects.
pub(super) fn archive(
    repository: &Path,
    commit: &str,
    objects: &BTreeSet<String>,
    to: &mut dyn Write,
) -> io::Result<()> {
    let mut packer = Packer::new(to);
    for path in DIRECTORIES {
        packer.put(&Entry { kind: Kind::Directory, ..file_entry(path, 0o755) }, 0, &mut io::empty())?;
    }
    let files = [
        ("config", "[core]\nrepo_version=1\nmode=bare\n".to_owned()),
        ("refs/heads/seed", format!("{commit}\n")),
    ];
    for (path, text) in files {
        let size = u64::try_from(text.len()).unwrap_or_default();
        packer.put(&file_entry(path, 0o644), size, &mut text.as_bytes())?;
    }
    let mut chosen = Chosen { objects, packer: &mut packer, taken: 0 };
    walk(&repository.join("objects"), &mut chosen)?;
    if chosen.taken < objects.len() {
        let missing = objects.len() - chosen.taken;
        return Err(io::Error::other(format!(
            "{missing} objects of the commit {commit} are not in the repository"
        )));
    }
    packer.finish().map(drop)
}

struct Chosen<'a, W> {
    objects: &'a BTreeSet<String>,
    packer: &'a mut Packer<W>,
    taken: usize,
}

impl<W: Write> Visitor for Chosen<'_, W> {
    fn choose(&mut self, at: &At<'_>) -> io::Result<Choice> {
        if at.path.parent().is_some_and(|above| above.as_os_str().is_empty()) {
            return Ok(Choice::Take);
        }
        let is_chosen = at.path.to_str().is_some_and(|path| self.objects.contains(path));
        Ok(if is_chosen { Choice::Take } else { Choice::Skip })
    }

    fn take(&mut self, mut entry: Entry, contents: &mut Contents<'_>) -> io::Result<()> {
        if entry.kind != Kind::Directory {
            self.taken += 1;
        }
        entry.path = Path::new("objects").join(entry.path);
        self.packer.put(&entry, contents.size, contents.bytes)
    }
}
