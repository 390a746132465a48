//! A program for `tests/os/contract.rs`: the calls of an OS backend, one a process.

use std::process::ExitCode;

mod os_call;

fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(1);
    match args.next().as_deref().and_then(|verb| verb.to_str()) {
        Some("os-call") => os_call::main(args),
        _ => ExitCode::from(2),
    }
}
