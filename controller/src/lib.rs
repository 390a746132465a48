//! The cluster side of machine-config-agent: the Machine Config Operator's controllers, for clusters without it.
//!
//! | module | holds | may import |
//! |---|---|---|
//! | [`api`] | the kinds, as the API server stores them | nothing |
//! | [`render`] | merges the MachineConfigs of a pool; pure | `api` |
//! | [`cost`] | cost of a rendered config for a pool's nodes, from the agent's own planner; pure | `render` |
//! | [`rollout`] | the next nodes to get the target, and the pool's status; pure | `api cost drain retry` |
//! | [`build`] | builds, reuses, cancels and deletes of images, and their Jobs; pure | `api image` |
//! | [`opt_in`] | image mode by a pool's label and `ConfigMap`s; pure | `api build render rollout` |
//! | [`retry`] | pauses between tries of what is refused; pure | nothing |
//! | [`reading`] | reads the kinds, of files and of the cluster, through `core` | `api rollout` |
//! | [`manifests`] | reads the objects of a directory | `api reading render` |
//! | [`drain`] | the next step of a node whose agent requested a drain; pure | nothing |
//! | [`lease`] | leader election among replicas; pure | nothing |
//! | [`interlock`] | whether the Machine Config Operator is at work in this cluster; pure | `api` |
//! | [`image`] | the build context of an OS image, pure; buildah on this machine | `api` |
//! | [`registry`] | queries a registry for images, and deletes them | nothing |
//! | [`controllers`] | watches, the Lease, and the writes: the process in the cluster | all but `cli` |
//! | [`bootstrap`] | pools and rendered configs of manifests, before there is a cluster | `api build image manifests render seed` |
//! | [`seed`] | the MachineConfig of an image that was built before the cluster; pure | `api` |
//! | [`serve`] | Ignition for new nodes: the machine-config-server | `api reading watches` |
//! | `watches` | watches that notice a restore of etcd | nothing |
//! | [`view`] | pools and rollouts on one screen; pure | `api drain rollout` |
//! | [`cli`] | the verbs | all |
//!
//! Plans of nodes are computed in `machine-config-core`, for the agent and for this crate alike.

pub mod api;
pub mod bootstrap;
pub mod build;
pub mod cli;
pub mod controllers;
pub mod cost;
#[cfg(test)]
#[path = "../../tests/support/documents.rs"]
mod documents;
pub mod drain;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
pub mod image;
pub mod interlock;
pub mod lease;
pub mod manifests;
pub mod opt_in;
#[cfg(test)]
#[path = "../../tests/support/ran.rs"]
mod ran;
pub mod reading;
pub mod registry;
pub mod render;
pub mod retry;
pub mod rollout;
pub mod seed;
pub mod serve;
pub mod view;
mod watches;

pub use machine_config_core::{model, plan};
