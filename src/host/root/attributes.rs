//! Extended attributes and access lists of what the agent writes and saves.

use std::os::fd::AsRawFd as _;

use rustix::fd::{AsFd, BorrowedFd};
use rustix::fs::{IFlags, XattrFlags};
use rustix::io::Errno;

use crate::host::HostError;

/// Extended attributes: name and value.
pub(in crate::host) type AttributeList = Vec<(String, Vec<u8>)>;

/// As many bytes of extended attributes as a file may have.
const LARGEST_ATTRIBUTES: usize = 256 * 1024;

/// The action of an error.
pub(in crate::host) const READ_ATTRIBUTES: &str = "read the extended attributes of";

/// The access list of a file or a directory (acl(5)).
pub(in crate::host) const ACCESS_LIST: &str = "system.posix_acl_access";

/// The access list that what is made in a directory inherits.
const DEFAULT_LIST: &str = "system.posix_acl_default";

/// The signature or digest of the contents of a file (IMA).
pub(in crate::host) const SIGNATURE: &str = "security.ima";

/// Name of the flags of chattr(1) in a list of attributes: no attribute can have it. The value is their bits.
pub(in crate::host) const FLAGS: &str = "flags";

/// The flags of chattr(1) that are kept: `A`, `d` and `S`.
const KEPT_FLAGS: IFlags = IFlags::NOATIME.union(IFlags::NODUMP).union(IFlags::SYNC);

/// Flags that an administrator sets for a file, and that are not kept, by their letters.
const OTHER_FLAGS: [(IFlags, char); 6] = [
    (IFlags::SECURE_REMOVAL, 's'),
    (IFlags::UNRM, 'u'),
    (IFlags::COMPRESSED, 'c'),
    (IFlags::JOURNALING, 'j'),
    (IFlags::NOTAIL, 't'),
    (IFlags::NOCOW, 'C'),
];

/// Attributes that the kernel or the file system makes by itself, which are no loss.
const OF_KERNEL: [&str; 3] = ["security.evm", "trusted.overlay.", "system.posix_acl_"];

fn is_kept(name: &str) -> bool {
    let is_of_person = name.starts_with("user.") || is_trusted(name);
    is_of_person || ["security.selinux", "security.capability", SIGNATURE, ACCESS_LIST].contains(&name)
}

/// Returns true for an attribute that is root's own.
pub(in crate::host) fn is_trusted(name: &str) -> bool {
    name.starts_with("trusted.") && !name.starts_with("trusted.overlay.")
}

/// Returns the extended attributes of a file that the agent keeps: users' own and root's, the SELinux label, capabilities, the signature and
/// the access list; and the flags of chattr(1). The rest (integrity, overlay) belongs to the kernel.
pub(in crate::host) fn attributes(fd: impl AsFd, path: &str) -> Result<AttributeList, HostError> {
    let failed = |errno: Errno| HostError::io(READ_ATTRIBUTES, path, errno);
    let fd = fd.as_fd();
    let (mut found, mut total) = (Vec::new(), 0);
    for name in names(fd).map_err(failed)?.into_iter().filter(|name| is_kept(name)) {
        let mut value = vec![0_u8; rustix::fs::fgetxattr_query(fd, &*name).map_err(failed)?];
        let size = rustix::fs::fgetxattr(fd, &*name, &mut value).map_err(failed)?;
        value.truncate(size);
        total += size;
        if total > LARGEST_ATTRIBUTES {
            let path = format!("the list of extended attributes of {path}");
            let limit = u64::try_from(LARGEST_ATTRIBUTES).unwrap_or(u64::MAX);
            let size = u64::try_from(total).unwrap_or(u64::MAX);
            return Err(HostError::TooLarge { path, size, limit });
        }
        found.push((name, value));
    }
    let flags = flags(fd) & KEPT_FLAGS;
    if !flags.is_empty() {
        found.push((FLAGS.to_owned(), flags.bits().to_le_bytes().to_vec()));
    }
    Ok(found)
}

/// Gives a file the attributes of a list. If they are `exact`, a flag that is not in the list goes: the directory passes flags on.
pub(in crate::host) fn set_attributes(
    fd: impl AsFd,
    list: &[(String, Vec<u8>)],
    exact: bool,
) -> Result<(), Errno> {
    let fd = fd.as_fd();
    let mut flags = None;
    for (name, value) in list {
        if name == FLAGS {
            flags = <[u8; 4]>::try_from(&**value).ok().map(u32::from_le_bytes);
        } else {
            rustix::fs::fsetxattr(fd, name.as_str(), value, XattrFlags::empty())?;
        }
    }
    match flags {
        Some(flags) => set_flags(fd, IFlags::from_bits_retain(flags)),
        None if exact => set_flags(fd, IFlags::empty()),
        None => Ok(()),
    }
}

fn set_flags(fd: BorrowedFd<'_>, flags: IFlags) -> Result<(), Errno> {
    let found = match rustix::fs::ioctl_getflags(fd) {
        // Many file systems have none.
        Err(_) if flags.is_empty() => return Ok(()),
        found => found?,
    };
    let new = found.difference(KEPT_FLAGS) | (flags & KEPT_FLAGS);
    if new == found { Ok(()) } else { rustix::fs::ioctl_setflags(fd, new) }
}

/// Returns the flags of chattr(1).
fn flags(fd: BorrowedFd<'_>) -> IFlags {
    rustix::fs::ioctl_getflags(fd).unwrap_or(IFlags::empty())
}

fn names(fd: BorrowedFd<'_>) -> Result<Vec<String>, Errno> {
    let size = match rustix::fs::flistxattr_query(fd) {
        Err(Errno::NOTSUP) | Ok(0) => return Ok(Vec::new()),
        other => other?,
    };
    let mut list = vec![0_u8; size];
    let size = rustix::fs::flistxattr(fd, &mut list)?;
    list.truncate(size);
    Ok(texts(&list))
}

fn texts(list: &[u8]) -> Vec<String> {
    let names = list.split(|byte| *byte == 0).filter_map(|name| std::str::from_utf8(name).ok());
    names.filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

/// Returns what a file has that no copy of it gets: attributes, and flags of chattr(1) that its directory does not pass on.
pub(in crate::host) fn not_kept(fd: impl AsFd, directory: impl AsFd) -> Result<Vec<String>, Errno> {
    let (fd, directory) = (fd.as_fd(), directory.as_fd());
    let is_lost = |name: &String| !is_kept(name) && !OF_KERNEL.iter().any(|own| name.starts_with(own));
    let lost = names(fd)?.into_iter().filter(is_lost).map(|name| format!("the attribute {name}"));
    let flags = flags(fd).difference(flags(directory));
    let others = OTHER_FLAGS.iter().filter(|(flag, _)| flags.contains(*flag));
    Ok(lost.chain(others.map(|(_, letter)| format!("the flag {letter} of chattr"))).collect())
}

/// As [`not_kept`], of a symbolic link. Its label is the policy's.
pub(in crate::host) fn not_kept_of_link(directory: impl AsFd, name: &str) -> Result<Vec<String>, Errno> {
    // There is no call that takes a descriptor of a link: the kernel's name of the directory stands for it.
    let path = format!("/proc/self/fd/{}/{name}", directory.as_fd().as_raw_fd());
    let size = match rustix::fs::llistxattr_query(&path) {
        Err(Errno::NOTSUP) | Ok(0) => return Ok(Vec::new()),
        other => other?,
    };
    let mut list = vec![0_u8; size];
    let size = rustix::fs::llistxattr(&path, &mut list)?;
    list.truncate(size);
    let is_lost =
        |name: &String| name != "security.selinux" && !OF_KERNEL.iter().any(|own| name.starts_with(own));
    Ok(texts(&list).into_iter().filter(is_lost).map(|name| format!("the attribute {name}")).collect())
}

/// Returns true if a file has an access list: what it grants is not all in the mode.
pub(in crate::host) fn has_access_list(fd: impl AsFd) -> Result<bool, Errno> {
    has(fd.as_fd(), ACCESS_LIST)
}

/// An access list of the owner, the group and others alone: it says no more than a mode.
const PLAIN_LIST: usize = 4 + 3 * 8;

/// Returns true if files that other programs make in a directory inherit an access list that lets others in.
pub(in crate::host) fn has_default_list(fd: impl AsFd) -> Result<bool, Errno> {
    match rustix::fs::fgetxattr_query(fd, DEFAULT_LIST) {
        Ok(length) => Ok(length > PLAIN_LIST),
        Err(Errno::NODATA | Errno::NOTSUP) => Ok(false),
        Err(errno) => Err(errno),
    }
}

/// Takes from a new file the access list that it inherited. It goes before the mode is set: with one, a mode is only its mask.
pub(in crate::host) fn drop_access_list(fd: impl AsFd) -> Result<(), Errno> {
    drop_if_there(fd.as_fd(), ACCESS_LIST)
}

/// As [`drop_access_list`], of a new directory: what is made in it inherits nothing either.
pub(in crate::host) fn drop_access_lists(fd: impl AsFd) -> Result<(), Errno> {
    let fd = fd.as_fd();
    drop_if_there(fd, DEFAULT_LIST)?;
    drop_if_there(fd, ACCESS_LIST)
}

fn drop_if_there(fd: BorrowedFd<'_>, name: &str) -> Result<(), Errno> {
    if !has(fd, name)? {
        return Ok(());
    }
    match rustix::fs::fremovexattr(fd, name) {
        Err(Errno::NODATA) => Ok(()),
        removed => removed,
    }
}

fn has(fd: BorrowedFd<'_>, name: &str) -> Result<bool, Errno> {
    match rustix::fs::fgetxattr_query(fd, name) {
        Ok(_) => Ok(true),
        Err(Errno::NODATA | Errno::NOTSUP) => Ok(false),
        Err(errno) => Err(errno),
    }
}
