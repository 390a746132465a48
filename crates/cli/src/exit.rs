//! Exit codes: what they mean in both programs, for the manual pages (docs/reference.md, "Exit status").

/// A row of the table.
#[derive(Debug, Clone, Copy)]
pub struct Exit {
    /// The code, or several.
    pub code: &'static str,
    /// Its meaning.
    pub meaning: &'static str,
    /// The verbs that end with it; none: all of them.
    pub verbs: &'static [&'static str],
}

impl Exit {
    /// Success.
    pub const DONE: Self = Self::of_all("0", "success, or no difference");
    /// The command line is at fault.
    pub const USAGE: Self =
        Self::of_all("2", "invalid command line, not confirmed, or a named file or directory cannot be read");
    /// The config is.
    pub const REFUSED: Self =
        Self::of_all("3", "refused: this node, or no node, can reach the config or take the seed");
    /// Anything else.
    pub const FAILED: Self = Self::of_all(
        "4",
        "failed, or a document is invalid: the node is as before, or the message names what is open",
    );

    /// A code of all verbs of a program.
    #[must_use]
    pub const fn of_all(code: &'static str, meaning: &'static str) -> Self {
        Self { code, meaning, verbs: &[] }
    }
}
