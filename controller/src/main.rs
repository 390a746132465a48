//! The program: see [`machine_config_controller::cli`].

use std::process::ExitCode;

fn main() -> ExitCode {
    machine_config_controller::cli::main()
}
