//! The README's first command plays its whole story, and every check in it holds.

use std::process::Command;

/// The part that is the same in each run: the scenes, the commands, and the checks.
fn outline(text: &str) -> Vec<&str> {
    let scene = |line: &str| line.starts_with(|c: char| c.is_ascii_digit()) && !line.contains(" scenes, ");
    text.lines()
        .filter(|line| scene(line) || ["   ok ", "   asked "].iter().any(|head| line.starts_with(head)))
        .collect()
}

/// The run that README and docs/pictures/sandbox.txt show is what the sandbox does today.
#[test]
fn demo_passes_and_matches_recorded_run() {
    let output = Command::new(env!("CARGO_BIN_EXE_machine-config-agent")).arg("sandbox").output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    let last = text.lines().rfind(|line| !line.is_empty()).unwrap();
    assert!(last.starts_with("7 scenes, ") && last.contains(" 0 failed"), "{last}");
    assert!(!text.contains("FAIL"), "{text}");
    let recorded = std::fs::read_to_string("docs/pictures/sandbox.txt").unwrap();
    assert!(outline(&text).len() > 40);
    assert_eq!(outline(&text), outline(&recorded), "record it again: docs/pictures/make --record");
    // Piped, it is plain.
    assert!(!text.contains('\u{1b}'));
}
