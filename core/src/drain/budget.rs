//! Disruption budgets of one pod, as far as they are known.

/// A budget that selects a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Budget {
    /// Its name; its namespace is the pod's.
    pub name: String,
    /// Its resource version: another one is a change.
    pub version: String,
    /// Evictions that it allows now; `None` while its status is of an older generation.
    pub allowed: Option<u32>,
}

/// The budgets of a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KnownBudgets {
    /// They can't be read, or were not read yet.
    Unknown,
    /// All that select the pod, by name.
    All(Vec<Budget>),
}

impl KnownBudgets {
    /// Returns true if they allow an eviction of the pod: none selects it, or one does and has room. Of a pod with several the
    /// API server evicts none.
    pub(super) fn allow(&self) -> bool {
        match self {
            Self::Unknown => false,
            Self::All(budgets) => match &budgets[..] {
                [] => true,
                [one] => one.allowed.is_some_and(|allowed| allowed > 0),
                [_, ..] => false,
            },
        }
    }
}
