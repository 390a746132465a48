//! The rule for directories that a path leads through: who may change names there decides what root writes.
//!
//! The walk of a write asks it of each directory that it opens; a plan asks it of the directories that will be there.

/// Permission of the group, or of everybody, to write.
pub const OTHERS_MAY_WRITE: u32 = 0o022;

const STICKY: u32 = 0o1000;

/// Accounts, besides root and the agent's own, whose directories a walk may lead through.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Hands {
    /// This user.
    pub trusted: u32,
    /// Any other one as well, from there on alone.
    pub enters: bool,
}

impl Hands {
    /// Trusts a user, and enters directories of any other.
    pub fn entering(trusted: u32) -> Self {
        Self { trusted, enters: true }
    }
}

impl From<u32> for Hands {
    fn from(trusted: u32) -> Self {
        Self { trusted, enters: false }
    }
}

/// The place that a walk has come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Reached {
    /// The account in whose directory it is, if that is neither root nor the agent's user.
    pub account: Option<u32>,
    /// Others may make names there, as in `/tmp`.
    pub is_shared: bool,
}

/// Reason why a walk does not enter a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Closed {
    /// It belongs to an account that is not trusted there.
    Owner,
    /// Others than its owner may write to it.
    Writable,
}

/// Use of a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Use {
    /// Names are changed there, or the way leads on: a sticky one may be shared.
    Way,
    /// Its files are believed: nobody else may make a name.
    Trust,
}

/// Mode and owner of a directory.
pub type Access = (u32, u32);

/// Returns true if others may change names in a directory, or its owner, who could not before: ways through it may be closed then.
pub fn opens((before, was): Access, (after, is): Access) -> bool {
    let is_shared = |mode: u32| mode & OTHERS_MAY_WRITE != 0;
    let is_open = |mode: u32| is_shared(mode) && mode & STICKY == 0;
    let by_mode = (is_open(after) && !is_open(before)) || (is_shared(after) && !is_shared(before));
    by_mode || (is != 0 && is != was)
}

impl Reached {
    /// Enters a directory with permission bits; `owner` is `None` for root and the agent's user.
    pub fn enter(self, mode: u32, owner: Option<u32>, hands: Hands, of: Use) -> Result<Self, Closed> {
        let is_one = |owner| self.account.is_none_or(|account| account == owner);
        let is_trusted = |owner| owner == hands.trusted || (hands.enters && is_one(owner) && !self.is_shared);
        if !owner.is_none_or(is_trusted) {
            return Err(Closed::Owner);
        }
        let is_shared = mode & OTHERS_MAY_WRITE != 0;
        if is_shared && (of == Use::Trust || mode & STICKY == 0) {
            return Err(Closed::Writable);
        }
        Ok(Self { account: self.account.or(owner), is_shared })
    }
}
