//! Tables of the operator's rules.

mod accepted;
mod defaults;
mod docs;
mod fleet;
mod nodes;
mod policy;
mod world;
mod writes;
