//! The checks of the bench, by what they look at.

mod core_kinds;
mod custom;
mod drains;
mod evictions;
mod faults;
mod identities;
mod watches;
