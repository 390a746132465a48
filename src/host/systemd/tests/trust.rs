//! The trust store, which is built by its unit, or by its program.

use super::*;
use crate::program::make_program;

/// The variable with the expected beginning of the child's error.
const TRUST: &str = "MCA_TEST_TRUST";

/// MCD-107: a unit that fails is made up for by the program itself, whose failure is describe; of another unit it is not
/// begun. In a process of its own: the program is found by the path.
#[test]
fn trust_store_is_built_without_its_unit() {
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("update-ca-trust");
    let child = |expected: &str| {
        let mut child = std::process::Command::new(std::env::current_exe().unwrap());
        child.args(["--exact", "host::systemd::tests::trust::child", "--ignored", "--test-threads=1"]);
        let child = child.env("PATH", dir.path()).env(TRUST, expected).output().unwrap();
        assert!(child.status.success(), "{}", String::from_utf8_lossy(&child.stdout));
        std::fs::read_to_string(dir.path().join("ran")).unwrap_or_default()
    };
    let script = |end: &str| {
        let text = format!("#!/bin/sh\necho \"ran $#\" >> {}/ran\n{end}\n", dir.path().display());
        make_program(&program, &text);
    };
    assert_eq!(child("update-ca-trust failed: it can't be started"), "");
    script("exit 0");
    assert_eq!(child(""), "ran 0\n");
    script("echo broken >&2; exit 3");
    assert_eq!(child("update-ca-trust failed: exit status: 3: broken"), "ran 0\nran 0\n");
}

#[tokio::test(flavor = "current_thread")]
#[ignore = "a child of `trust_store_is_built_without_its_unit`"]
async fn child() {
    let expected = std::env::var(TRUST).unwrap();
    let double = Double::new("252");
    double.state().jobs.result = "failed";
    let (_server, systemd) = peers(&double).await;
    let error = systemd.restart(&unit("crio.service")).await.unwrap_err();
    assert_eq!(error.to_string(), "restart of crio.service ended with \"failed\"");
    match systemd.restart(&unit("coreos-update-ca-trust.service")).await {
        Ok(outcome) => assert!(expected.is_empty() && outcome == ServiceOutcome::Done, "{expected}"),
        Err(error) => assert!(!expected.is_empty() && error.to_string().starts_with(&expected), "{error}"),
    }
    assert_eq!(double.state().asked[1], "restart coreos-update-ca-trust.service replace");
}
