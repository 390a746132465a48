//! Interfaces for people and other programs: verbs, exit codes, outputs, the service; and the texts beside the binary:
//! documents, catalog, manifests, the source tree itself.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::needless_pass_by_value,
    clippy::case_sensitive_file_extension_comparisons,
    clippy::disallowed_methods,
    clippy::disallowed_types,
    unreachable_pub,
    missing_docs,
    missing_debug_implementations,
    reason = "tests: they stop at the first surprise, and look at files and processes from outside"
)]

#[path = "../support/access_list.rs"]
mod access_list;
#[path = "../support/corpus.rs"]
mod corpus_samples;
#[path = "../support/documents.rs"]
mod document_samples;
#[path = "../support/plain_host.rs"]
mod plain_host;
#[path = "../support/program.rs"]
mod program;
#[path = "../support/ran.rs"]
mod ran;
#[path = "../support/refused_documents.rs"]
mod refused_samples;
#[path = "../support/rendered.rs"]
mod rendered;
#[path = "../support/schemas.rs"]
mod schema_files;
#[path = "../support/shells.rs"]
mod shells;
#[path = "../support/test_host.rs"]
mod test_host;

mod access_lists;
mod accounts_left;
mod accounts_open;
mod agent_states;
mod architecture;
mod attributes;
mod back;
mod bad_input;
mod catalog;
mod collect;
mod completions;
mod conformance;
mod control_directory;
mod corpus;
mod daemon_process;
mod docs;
mod documents;
mod firstboot;
mod force_file;
mod given;
mod groups_kept;
mod handover;
mod ignition_rules;
mod import_graph;
mod interfaces;
mod links_led;
mod logind;
mod manifests;
mod monitoring;
mod not_applied;
mod old_records;
mod opened;
mod packages;
mod places;
mod plan_accounts;
mod plan_agrees;
mod plan_companions;
mod plan_current;
mod plan_flags;
mod plan_foreign;
mod plan_groups;
mod plan_labels;
mod plan_left;
mod plan_links;
mod plan_names;
mod plan_open;
mod plan_own;
mod plan_take_over;
mod plan_units;
mod plan_waiting;
mod plan_ways;
mod reboot;
mod refused_documents;
mod schemas;
mod seed;
mod server_manifests;
mod service;
mod setup;
mod state_daemon;
mod state_files;
mod table;
mod terminal;
mod texts;
mod unchanged;
mod verdicts;
mod verify_image;
mod versions;
