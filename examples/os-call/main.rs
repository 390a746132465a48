//! A program for `tests/os_contract.rs`: the calls of the libostree backend, one a process, and the hidden verbs they need.

use std::process::ExitCode;

use machine_config_agent::host::os::ostree::{WORKER_VERB, worker};
use machine_config_agent::sandbox::{MACHINE_VERB, machine};

mod os_call;

fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(1);
    match args.next().as_deref().and_then(|verb| verb.to_str()) {
        Some(WORKER_VERB) => worker::main(),
        Some(MACHINE_VERB) => machine::main(args),
        Some("os-call") => os_call::main(args),
        _ => ExitCode::from(2),
    }
}
