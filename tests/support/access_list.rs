//! Access lists of files (acl(5)), as the kernel takes them.

use std::path::Path;

use rustix::fs::XattrFlags;

const ACCESS: &str = "system.posix_acl_access";
const DEFAULT: &str = "system.posix_acl_default";

/// Returns a list by which user 1000 may read and enter.
fn list() -> Vec<u8> {
    const ANY: u32 = u32::MAX;
    let entries: [(u16, u16, u32); 5] =
        [(0x01, 6, ANY), (0x02, 5, 1000), (0x04, 0, ANY), (0x10, 5, ANY), (0x20, 0, ANY)];
    let mut list = 2_u32.to_le_bytes().to_vec();
    for (tag, bits, id) in entries {
        list.extend(tag.to_le_bytes());
        list.extend(bits.to_le_bytes());
        list.extend(id.to_le_bytes());
    }
    list
}

/// Has whatever is made in a directory inherit the list.
pub fn pass_on(directory: &Path) {
    rustix::fs::setxattr(directory, DEFAULT, &list(), XattrFlags::empty()).unwrap();
}

/// Gives a file the list: `setfacl -m u:1000:rx`.
pub fn give(file: &Path) {
    rustix::fs::setxattr(file, ACCESS, &list(), XattrFlags::empty()).unwrap();
}

/// Returns the names of the lists that a path has.
pub fn lists(path: &Path) -> Vec<&'static str> {
    let has = |name: &&str| rustix::fs::lgetxattr(path, *name, &mut [0_u8; 256][..]).is_ok();
    [ACCESS, DEFAULT].into_iter().filter(has).collect()
}
