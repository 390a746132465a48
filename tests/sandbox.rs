//! The README's first command plays its whole story, and every check in it holds.
#![cfg(feature = "backend-ostree")]
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_types,
    reason = "a test starts the program and stops at the first surprise"
)]

use std::process::Command;

#[test]
fn the_story_is_told_to_its_end() {
    let output = Command::new(env!("CARGO_BIN_EXE_machine-config-agent")).arg("sandbox").output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    let last = text.lines().rfind(|line| !line.is_empty()).unwrap();
    assert!(last.starts_with("7 scenes, ") && last.contains(" 0 failed"), "{last}");
    assert!(!text.contains("FAIL"), "{text}");
    // Piped, it is plain.
    assert!(!text.contains('\u{1b}'));
}
