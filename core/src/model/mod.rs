//! The terms of the agent: the desired state of a node and its observed state.
//!
//! Pure: no I/O, no clock, no async, no logging. Imports nothing of the crate. Every type that crosses a module
//! boundary lives here as a newtype or a closed enum; a value that exists is valid.

pub mod annotations;
mod assumed;
pub mod backoff;
pub mod certificates;
pub mod class;
pub mod contents;
pub mod disruption;
pub mod document;
pub mod fate;
pub mod files;
pub mod fixed;
pub mod hosted;
pub mod ids;
pub mod image;
pub mod kargs;
pub mod kubeconfig;
pub mod layers;
pub mod machineconfig;
pub mod message;
pub mod mode;
pub mod node_settings;
pub mod not_applied;
pub mod observation;
pub mod obstacles;
pub mod os;
pub mod paths;
pub mod pinned;
pub mod pod;
pub mod policy;
pub mod pool;
pub mod proxy;
pub mod reading;
pub mod reference;
pub mod refusal;
pub mod registry_auth;
pub mod rehearsal;
pub mod soft_reboot;
pub mod spec;
pub mod text;
pub mod time;
pub mod units;
pub mod users;
pub mod yaml;

mod content;
mod data_url;
mod decode;
mod error;
mod ignition;
mod opaque;

pub use certificates::ClusterTrust;
pub use class::FaultClass;
pub use contents::{Contents, Sha256};
pub use error::ModelError;
pub use files::{FileSpec, Owner, Principal};
pub use ids::{BootId, ConfigName, DropinName, ManagedPath, UnitName, UpdateId, UserName};
pub use ignition::{check_ignition, drop_stale_digests, installed_storage, is_version};
pub use image::ImageRef;
pub use kargs::Karg;
pub use machineconfig::MachineConfig;
pub use mode::FileMode;
pub use node_settings::NodeSettings;
pub use not_applied::{NotApplied, NotAppliedReason};
pub use observation::{Facts, Observation, ObservedFile};
pub use obstacles::{Obstacle, Obstacles};
pub use paths::{DirectorySpec, LinkSpec, PathSpec};
pub use policy::DisruptionPolicy;
pub use proxy::ProxySettings;
pub use reference::Reference;
pub use rehearsal::Rehearsal;
pub use spec::{HostSpec, Target};
pub use text::short;
pub use time::Timestamp;
