//! Finalization of the staged deployment in the last shutdown: libostree's cause of a failure.
//!
//! Asked only on a node that came up in its old deployment: the journal is read by a child process, which a node that is
//! well never starts. libostree leaves its text in `finalize-failure.stamp`; `ostree-boot-complete.service` of the next
//! boot logs it, removes the file and fails.

use std::time::Duration;

use super::root::Root;
use super::{HostError, command};
use crate::model::observation::Finalization;

/// Unit that finalizes a staged deployment when it is stopped: it merges `/etc` and writes the boot entries.
pub const FINALIZER: &str = "ostree-finalize-staged.service";

/// libostree's note of a failed finalization.
const STAMP_PATH: &str = "/boot/ostree/finalize-failure.stamp";
/// The journal of one boot is read from the disk: seconds at most.
const TIMEOUT: Duration = Duration::from_secs(60);
/// More of a text is in the journal.
const MAX_MESSAGE_LENGTH: usize = 400;

/// Places of libostree's messages in the journal: boot and unit. After a soft reboot the shutdown is in the same boot.
const UNITS: [[&str; 2]; 3] = [
    ["--boot=-1", "--unit=ostree-finalize-staged.service"],
    ["--boot=0", "--unit=ostree-finalize-staged.service"],
    ["--boot=0", "--unit=ostree-boot-complete.service"],
];

/// Returns libostree's message, or that it left none, or why it can't be found.
pub async fn outcome(root: &Root) -> Finalization {
    if let Ok(Some(text)) = root.read_text(STAMP_PATH)
        && !text.trim().is_empty()
    {
        return Finalization::Failed { said: short(&text) };
    }
    if !root.is_machine() {
        return Finalization::Untold {
            why: format!("there is no {STAMP_PATH}, and no journal of this host"),
        };
    }
    let mut missing = None;
    for boot_and_unit in UNITS {
        match last_message(boot_and_unit).await {
            Ok(Some(said)) => return Finalization::Failed { said },
            Ok(None) => {}
            Err(error) => missing = Some(error),
        }
    }
    missing.map_or(Finalization::CutShort, |error| Finalization::Untold { why: error.to_string() })
}

async fn last_message([boot, unit]: [&str; 2]) -> Result<Option<String>, HostError> {
    let words = ["--quiet", "--no-pager", "--output=cat", "_UID=0", boot, unit];
    let text = command::output("journalctl", &words, TIMEOUT).await?;
    Ok(text.lines().find(|line| line.starts_with("error:")).map(short))
}

fn short(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(MAX_MESSAGE_LENGTH).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// MCD-046: reports libostree's own text. Here it is in the stamp; the journal's is in `vm-tests/`.
    #[tokio::test(flavor = "current_thread")]
    async fn stamp_is_reported_in_one_line() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::open(dir.path()).unwrap();
        assert!(
            matches!(outcome(&root).await, Finalization::Untold { why } if why.contains("finalize-failure.stamp"))
        );
        std::fs::create_dir_all(dir.path().join("boot/ostree")).unwrap();
        let stamp = dir.path().join(STAMP_PATH.trim_start_matches('/'));
        std::fs::write(&stamp, "error: mkdir(boot/loader.1):\n  No space left on device\n").unwrap();
        let said = "error: mkdir(boot/loader.1): No space left on device".to_owned();
        assert_eq!(outcome(&root).await, Finalization::Failed { said });
        std::fs::write(&stamp, "x".repeat(5000)).unwrap();
        assert_eq!(outcome(&root).await, Finalization::Failed { said: "x".repeat(MAX_MESSAGE_LENGTH) });
    }
}
