//! Tables of the operator's rules.

mod defaults;
mod world;
