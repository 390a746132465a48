//! Errors of a write that a plan sees before: after a drain, and before anything was written, none of them may come up. A test that
//! changes the host after the plan says so itself.
#![allow(dead_code, unreachable_pub, reason = "each test binary uses its own part of it")]

/// A case of the column "seen before" in the table of `src/observe/obstacles.rs`; `tests/agent/obstacles.rs` compares the two.
pub struct SeenBefore {
    /// The variant of `HostError`.
    pub error: &'static str,
    pub case: &'static str,
    pub reason: &'static str,
    /// Words of which its message has one, where other cases have the same reason.
    pub words: &'static [&'static str],
}

const fn case(
    error: &'static str,
    case: &'static str,
    reason: &'static str,
    words: &'static [&'static str],
) -> SeenBefore {
    SeenBefore { error, case, reason, words }
}

pub const SEEN_BEFORE: [SeenBefore; 12] = [
    case("Io", "read-only", "ReadOnlyFilesystem", &[]),
    case("Io", "no space", "DiskFull", &[]),
    case("Io", "immutable", "Io", &["Operation not permitted"]),
    case("Io", "a name that is too long", "Io", &["File name too long"]),
    case("UnsafeDirectory", "each", "UnsafeDirectory", &[]),
    case("Kind", "each", "UnexpectedKind", &[]),
    case("TooLarge", "each", "FileTooLarge", &[]),
    case("UnknownAccount", "each", "UnknownAccount", &[]),
    case("Unit", "each", "UnitNotEnabled", &[]),
    case(
        "Malformed",
        "of accounts",
        "MalformedFile",
        &["/etc/passwd", "/etc/group", "/etc/shadow", "/etc/gshadow"],
    ),
    case("Timeout", "another program holds `/etc/.pwd.lock`", "TimedOut", &["/etc/.pwd.lock"]),
    case("Command", "of useradd, usermod and groupadd", "CommandFailed", &["useradd", "usermod", "groupadd"]),
];

/// Returns true for the fault of one of them.
pub fn is_seen_before(reason: &str, message: &str) -> bool {
    let has_words =
        |case: &SeenBefore| case.words.is_empty() || case.words.iter().any(|word| message.contains(word));
    SEEN_BEFORE.iter().any(|case| case.reason == reason && has_words(case))
}
