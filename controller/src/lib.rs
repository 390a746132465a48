//! The cluster side of machine-config-agent: what the Machine Config Operator's controllers do, for clusters without it.
//!
//! | module | holds | may import |
//! |---|---|---|
//! | [`api`] | the kinds, as the API server stores them | nothing |
//! | [`render`] | merges the MachineConfigs of a pool; pure | `api` |
//! | [`cost`] | what a rendered config costs a pool's nodes, from the agent's own planner; pure | `api render` |
//! | [`rollout`] | which node gets the target next, and what the pool's status says; pure | `api cost drain` |
//! | [`build`] | when an image is built, reused, cancelled and deleted, and its Job; pure | `api image` |
//! | [`opt_in`] | image mode by a pool's label and `ConfigMap`s; pure | `api render rollout` |
//! | [`manifests`] | reads the objects of a directory | `api` |
//! | [`drain`] | the next step of a node whose agent asked for a drain; pure | nothing |
//! | [`lease`] | who of several replicas leads; pure | nothing |
//! | [`image`] | what the build of an OS image is made of, pure; buildah on this machine | `api` |
//! | [`registry`] | whether a registry has an image, and that it deletes one | nothing |
//! | [`controllers`] | watches, the Lease, and the writes: the process in the cluster | all but `cli` |
//! | [`bootstrap`] | what a cluster would make of its manifests, before there is one | `api render manifests seed` |
//! | [`seed`] | the MachineConfig of an image that was built before the cluster; pure | `api` |
//! | [`serve`] | Ignition for new nodes: the machine-config-server | `api` |
//! | [`view`] | what a person sees of pools and rollouts; pure | `api drain rollout` |
//! | [`cli`] | the verbs | all |
//!
//! What a node makes of a config is decided in `machine-config-core`, for the agent and for this crate alike.

pub mod api;
pub mod bootstrap;
pub mod build;
pub mod cli;
pub mod controllers;
pub mod cost;
pub mod drain;
pub mod image;
pub mod lease;
pub mod manifests;
pub mod opt_in;
pub mod registry;
pub mod render;
pub mod rollout;
pub mod seed;
pub mod serve;
pub mod view;

pub use machine_config_core::{model, plan};
