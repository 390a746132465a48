//! The binary: parse, start the log, run the verb, turn the outcome into the exit code.

use std::process::ExitCode;

fn main() -> ExitCode {
    machine_config_agent::cli::main()
}
