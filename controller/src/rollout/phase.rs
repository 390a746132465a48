//! Phases of a rollout, and mistakes of a person that stop it.

/// Phase of a pool's rollout. The reason of its condition `RolloutProgressing`, and the phase of its policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// All nodes have the target.
    Complete,
    /// Nodes are given the target.
    Updating,
    /// Nodes download its image.
    Prefetching,
    /// A wave is watched.
    Soaking,
    /// No window is open.
    Closed,
    /// A person paused the pool.
    Paused,
    /// Too many nodes failed.
    Halted,
    /// The pool or its policy is invalid.
    Invalid,
    /// The pool has no rendered config yet.
    NotRendered,
    /// The image of the target is not built yet.
    Building,
    /// No node belongs to the pool.
    NoNodes,
    /// A kind that the decision needs can't be read.
    Unread,
    /// The state of the rollout can't be written.
    Unrecorded,
    /// Another program sets the target back.
    Contested,
    /// The pool is being deleted.
    Deleting,
}

/// Condition: the rollout does not go on before somebody decides.
pub(crate) const HALTED: &str = "RolloutHalted";
/// Condition: a halt was ended by an annotation of the pool, which counts once.
pub(crate) const RESUMED: &str = "RolloutResumed";
/// Reason of [`HALTED`]: too many nodes failed.
pub(super) const TOO_MANY_FAILURES: &str = "TooManyFailures";

impl Phase {
    /// All of them: the documentation is compared with it.
    #[cfg(test)]
    pub(super) const ALL: [Self; 15] = [
        Self::Complete,
        Self::Updating,
        Self::Prefetching,
        Self::Soaking,
        Self::Closed,
        Self::Paused,
        Self::Halted,
        Self::Invalid,
        Self::NotRendered,
        Self::Building,
        Self::NoNodes,
        Self::Unread,
        Self::Unrecorded,
        Self::Contested,
        Self::Deleting,
    ];

    /// Returns its word.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Complete => "Complete",
            Self::Updating => "Updating",
            Self::Prefetching => "Prefetching",
            Self::Soaking => "Soaking",
            Self::Closed => "Closed",
            Self::Paused => "Paused",
            Self::Halted => "Halted",
            Self::Invalid => "Invalid",
            Self::NotRendered => "NotRendered",
            Self::Building => "Building",
            Self::NoNodes => "NoNodes",
            Self::Unread => "Unread",
            Self::Unrecorded => "Unrecorded",
            Self::Contested => "Contested",
            Self::Deleting => "Deleting",
        }
    }

    /// Returns true if the pool is Degraded in it.
    pub(super) fn is_fault(self) -> bool {
        matches!(self, Self::Unread | Self::Unrecorded | Self::Contested)
    }

    /// Returns true if the rollout goes on by itself.
    pub(super) fn is_progressing(self) -> bool {
        matches!(self, Self::Updating | Self::Prefetching | Self::Soaking | Self::Building)
    }
}

/// Invalid input of a person. The reason of `RolloutInvalid`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mistake {
    /// The node selector.
    NodeSelector,
    /// A node belongs to two custom pools.
    NodeInTwoPools,
    /// The number.
    MaxUnavailable,
    /// The target's image is not named by digest.
    Image,
    /// The policy.
    Policy,
}

impl Mistake {
    /// All of them: the documentation is compared with it.
    #[cfg(test)]
    pub(super) const ALL: [Self; 5] =
        [Self::NodeSelector, Self::NodeInTwoPools, Self::MaxUnavailable, Self::Image, Self::Policy];

    /// Returns its word.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::NodeSelector => "NodeSelectorInvalid",
            Self::NodeInTwoPools => "NodeInTwoPools",
            Self::MaxUnavailable => "MaxUnavailableInvalid",
            Self::Image => "ImageInvalid",
            Self::Policy => "PolicyInvalid",
        }
    }

    /// Returns true if no node of the pool gets another target.
    pub(super) fn is_fatal(self) -> bool {
        self != Self::NodeInTwoPools
    }
}
