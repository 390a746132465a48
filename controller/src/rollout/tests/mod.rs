//! Tables of the operator's rules.

mod accepted;
mod defaults;
mod docs;
mod fleet;
mod halts;
mod nodes;
mod policy;
mod world;
mod writes;
