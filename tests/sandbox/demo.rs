//! The README's first command plays its whole story, and every check in it holds.

use std::fs;
use std::process::Command;

use crate::ran;

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
    let recorded = fs::read_to_string("docs/pictures/sandbox.txt").unwrap();
    assert!(outline(&text).len() > 40);
    assert_eq!(outline(&text), outline(&recorded), "record it again: docs/pictures/make --record");
    // Piped, it is plain.
    assert!(!text.contains('\u{1b}'));
}

/// In a chroot whose root is no mount point the kernel lets nobody take the machine's namespaces: one refusal before
/// anything is built, not a story of failed checks.
#[test]
fn chroot_is_refused_at_start() {
    if !rustix::process::geteuid().is_root() {
        return ran::not_run("chroot_is_refused_at_start", "root");
    }
    let script = "set -e; root=$1; agent=$2
        for name in usr etc; do mkdir \"$root/$name\"; mount --bind \"/$name\" \"$root/$name\"; done
        for name in bin sbin lib lib64; do [ ! -L \"/$name\" ] || cp -P \"/$name\" \"$root/$name\"; done
        mkdir \"$root/proc\" \"$root/dev\" \"$root/tmp\" \"$root/agent\"
        mount -t proc proc \"$root/proc\"; mount --rbind /dev \"$root/dev\"
        mount --bind \"${agent%/*}\" \"$root/agent\"
        exec env TMPDIR=/tmp chroot \"$root\" \"/agent/${agent##*/}\" sandbox";
    let root = tempfile::tempdir().unwrap();
    let output = Command::new("unshare")
        .args(["--mount", "--propagation", "private", "sh", "-c", script, "sh"])
        .arg(root.path())
        .arg(env!("CARGO_BIN_EXE_machine-config-agent"))
        .output()
        .unwrap();
    let (shown, told) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(4), "{shown}{told}");
    assert!(!shown.contains("FAIL") && !shown.contains("   ok "), "{shown}");
    assert!(told.contains("is not a mount point, as in a chroot") && told.contains("mount --bind"), "{told}");
    assert!(!told.contains("run it as root") && told.lines().count() == 1, "{told}");
    assert_eq!(fs::read_dir(root.path().join("tmp")).unwrap().count(), 0, "it leaves nothing");
}
