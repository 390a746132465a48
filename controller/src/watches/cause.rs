//! Causes of broken connections, for people.

/// Returns a cause without the page that TLS's library names for those who program with it.
pub(crate) fn of_reader(cause: &str) -> &str {
    cause.split_once(": https://docs.rs/").map_or(cause, |(cause, _)| cause)
}
