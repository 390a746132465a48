//! Decisions of the crate, from text to plan, record and report: tables, scenarios, properties.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    clippy::needless_pass_by_value,
    reason = "tests: they stop at the first surprise, and read scenarios and sources"
)]

#[path = "../support/model_host.rs"]
mod model_host;
#[path = "../support/update_fixtures.rs"]
mod update_fixtures;

mod accounts;
mod completeness;
mod fields;
mod fixpoints;
mod ignition_rules;
mod os_layers;
mod parsers;
mod reading;
mod report_model;
mod report_table;
mod resume_table;
mod scenarios;
mod soft_reboots;
mod staged_gone;
mod verifying;
