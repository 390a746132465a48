//! The controller as a process against a real API server: what it writes, in which order, and what becomes of that when it, or
//! the server, ends at any moment.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    clippy::disallowed_types,
    unreachable_pub,
    missing_docs,
    missing_debug_implementations,
    reason = "tests: they stop at the first surprise, and look at the controller from outside"
)]

#[path = "../../../tests/support/cluster/mod.rs"]
mod cluster;
#[path = "../../../tests/support/corpus.rs"]
mod corpus_samples;
#[path = "../../../tests/support/documents.rs"]
mod document_samples;
#[path = "../../../tests/support/plain_host.rs"]
mod plain_host;
#[path = "../../../tests/support/ran.rs"]
mod ran;
#[path = "../../../tests/support/refused_documents.rs"]
mod refused_samples;
#[path = "../../../tests/support/schemas.rs"]
mod schema_files;
#[path = "../../../tests/support/shells.rs"]
mod shells;

mod bad_input;
mod bootstrap;
mod broken;
mod build;
mod build_apart;
mod build_course;
mod build_jobs;
mod build_openshift;
mod build_outage;
mod build_pods;
mod build_real;
mod build_registry;
mod build_size;
mod completions;
mod connections;
mod contested;
mod corpus;
mod definitions;
mod documents;
mod drain;
mod drain_rules;
mod halts;
mod hanging;
mod install;
mod interlock;
mod leader;
mod lost_answers;
mod nodes;
mod opt_in;
mod outages;
mod pairs;
mod permissions;
mod pinned;
mod plan;
mod policy_conflict;
mod process;
mod proxy;
mod refusals;
mod refused_documents;
mod render;
mod restored;
mod rights;
mod rivals;
mod rollout;
mod rollout_edges;
mod seams;
mod seed;
mod silent;
mod status;
mod told;
mod unknown_fields;
mod verbs;
