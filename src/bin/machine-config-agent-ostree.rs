//! The second executable: all work with libostree, in processes that the agent starts.
//!
//! It is an implementation detail of `machine-config-agent`, which it is installed with: its arguments are no interface.

use std::io::Write as _;
use std::process::ExitCode;

use machine_config_agent::host::etc_merge;
use machine_config_agent::host::os::ostree::{labels, serve};
use machine_config_agent::host::os::worker::{LABELS_VERB, WORKER_VERB};
use machine_config_agent::sandbox::{MACHINE_VERB, machine};

fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(1);
    match args.next().as_deref().and_then(|verb| verb.to_str()) {
        Some(WORKER_VERB) => serve::main(),
        Some(serve::UNPACK_VERB) => serve::unpack(),
        Some(LABELS_VERB) => labels::main(args),
        Some(etc_merge::BRING_OVER_VERB) => etc_merge::main(),
        Some(MACHINE_VERB) => machine::main(args),
        _ => {
            let written = writeln!(
                std::io::stderr(),
                "error: this program is started by machine-config-agent\nNext: machine-config-agent --help"
            );
            drop(written);
            ExitCode::from(2)
        }
    }
}
