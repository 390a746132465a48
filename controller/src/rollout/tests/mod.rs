//! Tables of the operator's rules.

mod accepted;
mod defaults;
mod docs;
mod policy;
mod world;
mod writes;
