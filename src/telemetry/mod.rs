//! What people and programs see of the agent while it works: log lines, and systemd's status line.
//!
//! Imports `model` and `report`. Nothing here decides anything, and a lost log line never stops an update.

pub mod log;
pub mod notify;
