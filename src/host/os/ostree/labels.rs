//! SELinux labels, the answering half: libostree reads the policy.

use std::ffi::OsString;
use std::io::{BufRead as _, Write as _};
use std::path::Path;
use std::process::ExitCode;

use ostree_ext::gio::{Cancellable, File};
use ostree_ext::ostree::SePolicy;

use super::super::worker::labels::LabelQuery;

/// Runs the worker's verb `labels`; the argument is the root whose policy is read.
pub fn main(mut args: impl Iterator<Item = OsString>) -> ExitCode {
    let Some(root) = args.next() else { return ExitCode::from(2) };
    match serve(Path::new(&root)) {
        Ok(()) => ExitCode::SUCCESS,
        // The agent sees that there is no answer.
        Err(_) => ExitCode::FAILURE,
    }
}

fn serve(root: &Path) -> std::io::Result<()> {
    // A broken policy must not keep the node from being configured: the kernel's default label is used.
    let policy = SePolicy::new(&File::for_path(root), Cancellable::NONE).ok();
    let mut out = std::io::stdout().lock();
    for line in std::io::stdin().lock().lines() {
        let LabelQuery { path, mode } = serde_json::from_str(&line?)?;
        let label = policy.as_ref().and_then(|policy| policy.label(&path, mode, Cancellable::NONE).ok()?);
        writeln!(out, "{}", serde_json::to_string(&label.as_deref())?)?;
        out.flush()?;
    }
    Ok(())
}
