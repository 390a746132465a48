//! The databases of accounts of the booted image, and whether the host still has a line as the image brings it.

use super::HostError;
use super::account_layout::line_of;
use super::root::Root;
use crate::model::users::PasswordHash;

/// Fields before the one of a password.
const PASSWORD: usize = 1;

/// The lines of the image and of the host.
#[derive(Debug)]
pub struct ImageLines {
    passwd: Both,
    shadow: Both,
    group: Both,
    gshadow: Both,
}

/// A database of the image, and the same of the host.
#[derive(Debug)]
struct Both {
    image: Vec<u8>,
    host: Vec<u8>,
}

impl ImageLines {
    /// Reads both; a host that boots no images has no lines of one.
    pub fn load(root: &Root) -> Result<Self, HostError> {
        let both = |name: &str| -> Result<Both, HostError> {
            Ok(Both {
                image: root.read(&format!("/usr/etc/{name}"))?.unwrap_or_default(),
                host: root.read(&format!("/etc/{name}"))?.unwrap_or_default(),
            })
        };
        Ok(Self {
            passwd: both("passwd")?,
            shadow: both("shadow")?,
            group: both("group")?,
            gshadow: both("gshadow")?,
        })
    }

    /// Returns true if the host has a user as the image brings it, with its password.
    pub fn has_user(&self, name: &str) -> bool {
        self.passwd.is_same(name) && self.shadow.is_same(name) && self.shadow.of_image(name).is_some()
    }

    /// Returns true if the host has a group as the image brings it, its members aside.
    pub fn has_group(&self, name: &str) -> bool {
        let without_members = |line: Option<&[u8]>| -> Option<Vec<u8>> {
            let end = line?.iter().rposition(|byte| *byte == b':')?;
            line?.get(..end).map(<[u8]>::to_vec)
        };
        let of_image = without_members(self.group.of_image(name));
        of_image.is_some()
            && of_image == without_members(line_of(&self.group.host, name))
            && without_members(self.gshadow.of_image(name))
                == without_members(line_of(&self.gshadow.host, name))
    }

    /// Returns the password field of a user in the image.
    pub fn password(&self, name: &str) -> Option<PasswordHash> {
        let field = self.shadow.of_image(name)?.split(|byte| *byte == b':').nth(PASSWORD)?;
        PasswordHash::new(String::from_utf8_lossy(field).into_owned())
    }
}

impl Both {
    fn of_image(&self, name: &str) -> Option<&[u8]> {
        line_of(&self.image, name)
    }

    fn is_same(&self, name: &str) -> bool {
        self.of_image(name) == line_of(&self.host, name)
    }
}
