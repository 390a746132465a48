//! The parsers of machine-config-controller.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| machine_config_fuzz::run(machine_config_controller::fuzzing::TARGETS, bytes));
