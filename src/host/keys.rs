//! The directories of an account's SSH keys: its own, closed to others, and not a link to somewhere else.

use super::HostError;
use super::accounts::User;
use super::durable::{Change, DesiredPath, Examined, examine, fixed_at};
use super::root::{Entry, LaidPath, Look, Missing, Root};
use super::saved::PathSnapshot;
use crate::model::obstacles::{InTheWay, Obstacle};
use crate::model::users::KEYS_FILE;
use crate::model::{ManagedPath, ObservedFile};

/// Mode of directories that the agent makes: closed to others (MCD-158).
const PRIVATE: u32 = 0o700;
/// Permissions that sshd refuses (`StrictModes`).
const OTHERS_WRITE: u32 = 0o022;
/// End of the new name of what is moved aside, in the home or in `.ssh`: sshd reads nothing there, and nothing is lost.
pub(super) const ASIDE: &str = "mca-foreign";

/// An entry that was moved aside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Moved {
    /// Its path before.
    pub path: String,
    /// Its path now.
    pub aside: String,
}

/// Makes the directories above a keys file, and repairs their owner and mode.
///
/// A `.ssh` of root is handed over, if the account could look into it before. One that was closed to it, or that belongs to any
/// other user, is moved aside: the account's user may have put it there to get at what is in it, and another's keys must not open
/// this account (MCD-159 removes it). So is what is in place of the keys file, if it can't be saved.
pub fn prepare(root: &Root, home: &str, user: &User) -> Result<Vec<Moved>, HostError> {
    let mut moved = Vec::new();
    if root.observe(home)? == ObservedFile::Absent {
        root.own_dir(home, PRIVATE, user.uid, user.gid)?;
    }
    for (above, name) in directories(home) {
        let directory = format!("{above}/{name}");
        if standing(root, (&above, name), user.uid)? == Standing::InTheWay {
            moved.extend(move_aside(root, &directory, &above, name, user)?);
        }
        root.own_dir(&directory, PRIVATE, user.uid, user.gid)?;
    }
    moved.extend(clear_file(root, home, user)?);
    Ok(moved)
}

/// Clears the way to keys that are to go: whatever the account's owner put there that is not a directory of his, or that can't be
/// saved, is moved aside. His directory that others may write to is closed.
pub fn clear(root: &Root, home: &str, user: &User) -> Result<Vec<Moved>, HostError> {
    for (above, name) in directories(home) {
        let directory = format!("{above}/{name}");
        match standing(root, (&above, name), user.uid)? {
            Standing::Absent => return Ok(Vec::new()),
            Standing::InTheWay => {
                return Ok(move_aside(root, &directory, &above, name, user)?.into_iter().collect());
            }
            Standing::Own { is_open } => {
                if is_open {
                    root.own_dir(&directory, PRIVATE, user.uid, user.gid)?;
                }
            }
        }
    }
    Ok(clear_file(root, home, user)?.into_iter().collect())
}

/// A directory of keys, as it is.
#[derive(PartialEq, Eq)]
enum Standing {
    Absent,
    /// The account may keep it.
    Own {
        is_open: bool,
    },
    /// It is moved aside: a link, a file, or a directory of another account.
    InTheWay,
}

fn standing(root: &Root, (above, name): (&str, &str), uid: u32) -> Result<Standing, HostError> {
    let directory = format!("{above}/{name}");
    if matches!(root.look(&directory)?, Look::Laid(_, LaidPath::Absent)) {
        return Ok(Standing::Absent);
    }
    let Some(parent) = root.walk(above, uid, Missing::Leave, &mut Vec::new())? else {
        return Ok(Standing::Absent);
    };
    Ok(match Entry::of(&parent, name, &directory)? {
        Entry::Absent => Standing::Absent,
        Entry::Directory { stat } if !is_foreign(root, &directory, uid)? => {
            Standing::Own { is_open: stat.st_mode & OTHERS_WRITE != 0 }
        }
        Entry::Directory { .. } | Entry::File { .. } | Entry::Link { .. } | Entry::Other(_) => {
            Standing::InTheWay
        }
    })
}

/// Returns what is moved aside before the keys are set, or go; `None` as well if that can't be seen. Writes nothing.
pub fn in_the_way(root: &Root, user: &User) -> Result<Option<InTheWay>, HostError> {
    let home = user.home.trim_end_matches('/');
    let found = |path: String, directory: &str, name: &str| {
        Some(InTheWay { path, aside: format!("{directory}/{name}.{ASIDE}") })
    };
    for (above, name) in directories(home) {
        match standing(root, (&above, name), user.uid) {
            Err(error) if error.is_of_names() => return Ok(None),
            other => match other? {
                Standing::Absent => return Ok(None),
                Standing::InTheWay => return Ok(found(format!("{above}/{name}"), &above, name)),
                Standing::Own { .. } => {}
            },
        }
    }
    let path = format!("{home}/{KEYS_FILE}");
    let change = Change::new(&*path, user.uid, DesiredPath::Absent);
    match PathSnapshot::read_to_replace(root, &change, None) {
        Ok(_) => Ok(None),
        Err(error) if error.is_of_names() => Ok(found(path, &format!("{home}/.ssh"), "ignition")),
        Err(error) => Err(error),
    }
}

/// Moves aside what is in place of the keys file, if it can't be saved: it is of another kind, or too large.
fn clear_file(root: &Root, home: &str, user: &User) -> Result<Option<Moved>, HostError> {
    let path = format!("{home}/{KEYS_FILE}");
    let change = Change::new(&*path, user.uid, DesiredPath::Absent);
    match PathSnapshot::read_to_replace(root, &change, None) {
        Ok(_) => Ok(None),
        // Not within its directory: programs that read all files there would read it.
        Err(error) if error.is_of_names() => {
            move_aside(root, &path, &format!("{home}/.ssh"), "ignition", user)
        }
        Err(error) => Err(error),
    }
}

/// Returns the bytes of an account's keys file, none of one that is not there; `None` if they can't be read safely.
pub fn read(root: &Root, user: &User) -> Result<Option<Vec<u8>>, HostError> {
    let change = Change::new(path(user), user.uid, DesiredPath::Absent);
    match PathSnapshot::read_to_replace(root, &change, None) {
        Ok(PathSnapshot::File { bytes, .. }) => Ok(Some(bytes.as_slice().to_vec())),
        Ok(_) => Ok(Some(Vec::new())),
        Err(error) if error.is_of_names() => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns the keys file in a home that is no account's any more, and the user id that may change it; an error of its names if it can't
/// be read safely. The home may be another account's by now.
pub fn read_left(root: &Root, home: &str, uid: u32) -> Result<(PathSnapshot, u32), HostError> {
    let read = |uid: u32| {
        let change = Change::new(path_in(home), uid, DesiredPath::Absent);
        PathSnapshot::read_to_replace(root, &change, None).map(|found| (found, uid))
    };
    let owner = root.dress_of(home).ok().flatten().map(|(_, owner, _)| owner).filter(|owner| *owner != uid);
    match (read(uid), owner) {
        (Err(error), Some(owner)) if error.is_of_names() => read(owner).map_err(|_| error),
        (found, _) => found,
    }
}

/// Returns the obstacle of a change of such a file.
pub fn left_obstacle(root: &Root, home: &str, uid: u32) -> Result<Option<Obstacle>, HostError> {
    let change = Change::new(path_in(home), uid, DesiredPath::Absent);
    Ok(examine(root, &change)?.obstacle)
}

/// Returns a home without the links that lead to it.
pub fn real_home(root: &Root, home: &str) -> Result<String, HostError> {
    root.real_path(&format!("{}/.", home.trim_end_matches('/')))
}

/// Returns the path of an account's keys file.
pub fn path(user: &User) -> String {
    path_in(&user.home)
}

/// Returns the path of the keys file in a home.
pub fn path_in(home: &str) -> String {
    format!("{}/{KEYS_FILE}", home.trim_end_matches('/'))
}

/// Returns what keeps the keys of an account from being removed.
pub fn unremovable(root: &Root, user: &User) -> Option<Obstacle> {
    examined(root, &user.home, user.uid)
        .map_or_else(|error| Some(Obstacle::from(&error)), |found| found.obstacle)
}

fn move_aside(
    root: &Root,
    path: &str,
    directory: &str,
    name: &str,
    user: &User,
) -> Result<Option<Moved>, HostError> {
    let aside = root.move_aside(path, directory, &format!("{name}.{ASIDE}"), user.uid)?;
    Ok(aside.map(|aside| Moved { path: path.to_owned(), aside }))
}

/// The first directory of keys in a home.
const SSH: &str = ".ssh";

/// Returns the directories of keys below a home, each with the one above it.
fn directories(home: &str) -> [(String, &'static str); 2] {
    [(home.to_owned(), SSH), (format!("{home}/.ssh"), "authorized_keys.d")]
}

/// Returns true if what is at the place of one of the directories is moved aside.
fn is_foreign(root: &Root, directory: &str, uid: u32) -> Result<bool, HostError> {
    let owner = root.dress_of(directory)?.map(|(_, owner, _)| owner);
    let is_of_other = owner.is_some_and(|owner| owner != uid && owner != 0);
    Ok(is_of_other || !root.may_own_dir(directory, uid)?)
}

/// Returns what would refuse the keys of a user id in a home, and the space there. Writes nothing. What is in the way below the home
/// is moved aside.
pub fn examined(root: &Root, home: &str, uid: u32) -> Result<Examined, HostError> {
    let home = home.trim_end_matches('/');
    let new = DesiredPath::file(&[], PRIVATE, uid, uid);
    let mut examined = examine(root, &Change::new(first_write(root, home, uid)?, uid, new))?;
    if examined.obstacle.is_none() {
        examined.obstacle = fixed(root, home, uid)?;
    }
    Ok(examined)
}

/// Returns a name in the first directory that is written: those above one that is right already stay as they are.
fn first_write(root: &Root, home: &str, uid: u32) -> Result<String, HostError> {
    let new = |path: &str| format!("{path}.mca-new");
    for (above, name) in directories(home) {
        let path = format!("{above}/{name}");
        match standing(root, (&above, name), uid) {
            Ok(Standing::Own { .. }) if is_dressed(root, &path, uid)? => {}
            Err(error) if !error.is_lasting() && !error.is_of_names() => return Err(error),
            Ok(Standing::Absent | Standing::InTheWay | Standing::Own { .. }) | Err(_) => {
                return Ok(new(&path));
            }
        }
    }
    Ok(new(&format!("{home}/{KEYS_FILE}")))
}

/// Returns true for a directory with the mode and the owner that it gets.
fn is_dressed(root: &Root, path: &str, uid: u32) -> Result<bool, HostError> {
    Ok(root.dress_of(path)?.is_some_and(|(mode, owner, _)| (mode, owner) == (PRIVATE, uid)))
}

/// Returns the attribute of chattr(1) that keeps the directories and the file of the keys as they are.
fn fixed(root: &Root, home: &str, uid: u32) -> Result<Option<Obstacle>, HostError> {
    let mut is_changed = false;
    for (above, name) in directories(home).into_iter().rev() {
        let path = format!("{above}/{name}");
        let is_right = match standing(root, (&above, name), uid) {
            Err(error) if error.is_of_names() => return Ok(None),
            other => match other? {
                Standing::Absent => {
                    is_changed = true;
                    continue;
                }
                Standing::InTheWay => false,
                Standing::Own { .. } => is_dressed(root, &path, uid)?,
            },
        };
        let is_last = name != SSH;
        if (is_changed || is_last || !is_right)
            && let Some(obstacle) = fixed_at(root, &path)?
        {
            return Ok(Some(obstacle));
        }
        is_changed = !is_right;
    }
    fixed_at(root, &format!("{home}/{KEYS_FILE}"))
}

/// Returns the first directory between home and keys file that is not the account's own, or that others may write.
pub fn foreign(root: &Root, user: &User) -> Result<Option<ManagedPath>, HostError> {
    let mut at = user.home.trim_end_matches('/').to_owned();
    let Some((directories, _)) = KEYS_FILE.rsplit_once('/') else { return Ok(None) };
    for name in directories.split('/') {
        at = format!("{at}/{name}");
        let is_foreign = match root.dress_of(&at) {
            Err(error) if error.is_unreachable() => true,
            other => other?.is_some_and(|(mode, owner, _)| owner != user.uid || mode & OTHERS_WRITE != 0),
        };
        if is_foreign {
            return Ok(ManagedPath::new(at).ok());
        }
    }
    Ok(None)
}

/// Returns the directory of the keys file in a home.
pub fn directory(home: &str) -> String {
    let file = KEYS_FILE.rsplit_once('/').map_or("", |(directory, _)| directory);
    format!("{}/{file}", home.trim_end_matches('/'))
}

/// Returns the directories and the file of an account's keys.
pub fn paths(user: &User) -> Vec<String> {
    paths_in(&user.home)
}

fn paths_in(home: &str) -> Vec<String> {
    let mut at = home.trim_end_matches('/').to_owned();
    let below = |name: &str| {
        at = format!("{at}/{name}");
        at.clone()
    };
    KEYS_FILE.split('/').map(below).collect()
}
