//! Outcomes of writes of statuses.

/// Outcome of the write of a status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StatusWrite {
    /// It is there, as it was before or as the definition has it.
    Same,
    /// It was written.
    Written,
    /// Another version of the object is there: the decision was made by an older one.
    Conflict,
    /// The object is gone.
    Gone,
}

impl StatusWrite {
    /// Returns true if a new decision is due at once.
    pub(super) fn is_news(self) -> bool {
        matches!(self, Self::Written | Self::Conflict)
    }

    /// Returns true if the decision of which this was a part has a foundation.
    pub(super) fn is_settled(self) -> bool {
        matches!(self, Self::Same | Self::Written)
    }
}
