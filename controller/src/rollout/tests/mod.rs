//! Tables of the operator's rules.

mod defaults;
mod docs;
mod policy;
mod world;
