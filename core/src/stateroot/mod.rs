//! A second, complete system beside the running one: what a seed image says of itself, whether this host may take it, and
//! the way from the image to a new stateroot.
//!
//! Pure: imports `model`, and `update` for what a fault is. Labels, members and facts come in as values.
//!
//! | file | decides |
//! |---|---|
//! | `name` | the name of the stateroot of a version |
//! | `seed` | what the labels of an image say: layout, format, cluster |
//! | `members` | which files a seed needs, and what its small ones say |
//! | `repository` | which files of a seed's repository are taken over |
//! | `checks` | why this host can't take a seed |
//! | `listing` | what stateroots there are |
//! | `kargs` | the kernel arguments of the new deployment |
//! | `job` | the requested work, and its steps |
//! | `work` | the record, and what comes next |
//! | `open_work` | what people see of a record, and their next step |
//! | `trial` | whether a system that was activated stays |
//! | `portable` | which parts of a host a seed has, and why |
//! | `left_out` | which parts of a host are never in a seed |
//! | `secret` | what looks like a key or a token |
//! | `config_of_seed` | the committed config as a seed has it |
//! | `making` | the record of a seed in the making, and its documents |
//! | `generation` | a seed that an object of the cluster describes, and its conditions |
//! | `lifecycle` | the stages of an image-based upgrade: from a desired one to the next action, and their conditions |
//! | `cluster_config` | the Containerfile that adds a cluster's configuration to a seed |

mod checks;
mod cluster_config;
mod config_of_seed;
mod error;
mod generation;
mod job;
mod kargs;
mod left_out;
pub mod lifecycle;
mod listing;
mod making;
mod members;
mod name;
mod open_work;
mod portable;
mod repository;
mod secret;
mod seed;
mod trial;
mod work;

pub use checks::{HostTraits, Refusal, refusals};
pub use cluster_config::{
    CLUSTER_CONFIGURATION, ClusterConfig, ConfigFiles, ConfigProblem, EXTRA_MANIFESTS, IMAGE_BASED_CONFIG,
    INSTALL_CONFIG, containerfile,
};
pub use config_of_seed::{PortableConfig, config_of_seed};
pub use error::SeedError;
pub use generation::{
    DesiredSeed, GENERATION_SCHEMA, GenerationAction, GenerationPhase, SeedDesire, SeedGeneration, SeedOrder,
    USE_BOOTC, is_emptied, next_generation, restored,
};
pub use job::{Job, StaterootStep};
pub use kargs::{CARRIED_OVER, seed_kargs};
pub use left_out::{LEFT_OUT, LeftOutClass, SeedPath, class, leads_to_identity};
pub use listing::{Stateroot, StaterootDeployment};
pub use making::{
    RESTING_SERVICES, SEED_SCHEMA, SeedRecord, SeedStep, SeedTarget, cluster_info, container_images,
    is_without_identity, seed_labels, status_document,
};
pub use members::{
    BootedDeployment, CONTAINERS, DELETIONS, ETC, MANIFEST, Member, ORIGIN, REPOSITORY, SEED_CONFIG, STATUS,
    SeedConfig, VAR, booted_deployment, containers, deletions, manifest_version, member, missing,
    seed_config,
};
pub use name::{StaterootName, Version};
pub use open_work::OpenWork;
pub use portable::{
    Because, COMMITTED_CONFIG, InImage, KNOWN, SeedEntry, SeedPaths, SeedRules, SeenKind, Verdict,
    is_of_accounts, refuse_secrets, without_passwords,
};
pub use repository::{
    MAX_CONFIG_BYTES, MAX_METADATA_BYTES, MAX_OBJECTS, MAX_TREE_DEPTH, MAX_TREE_ENTRIES, ObjectKind,
    RepositoryMember, repository_member,
};
pub use secret::{in_changes, in_contents, in_name};
pub use seed::{
    CLUSTER_INFO_LABEL, ClusterInfo, FORMAT, FORMAT_LABEL, Layout, SEED_DIRECTORY, Seed, USE_BOOTC_LABEL,
};
pub use trial::{
    RETURN_FILE, Return, StaterootTrial, TRIAL_FILE, TRIAL_SCHEMA, TrialAction, TrialPhase, TrialRules,
    deployment_directory, stateroot_of, trial_action, unproven,
};
pub use work::{Findings, STATEROOT_SCHEMA, StaterootAction, StaterootPhase, StaterootRecord, next_action};
