//! The process dies at every fail point, one after the other. Carried out again, the host is as if nothing had happened;
//! undone, it is as before.

#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a child process plays the one that dies"
)]

use super::*;

const ROOT: &str = "MCA_TEST_ROOT";
const KILL: &str = "MCA_TEST_KILL";

/// Not a test of its own: the child of the next one.
#[tokio::test(flavor = "current_thread")]
#[ignore = "a child process of `recovers_from_kill_at_every_fail_point`"]
async fn child() {
    let (root, kill) = (std::env::var(ROOT).unwrap(), std::env::var(KILL).unwrap());
    let host = host(Path::new(&root), FailPoints::parse(&kill).unwrap());
    apply_all(&host).await;
}

/// Runs the child; returns true if it was killed.
fn killed(root: &Path, kill: &str) -> bool {
    let child = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "apply::tests::crash::child", "--ignored", "--quiet"])
        .envs([(ROOT, root.to_str().unwrap()), (KILL, kill)])
        .output()
        .unwrap();
    !child.status.success()
}

#[tokio::test(flavor = "current_thread")]
async fn recovers_from_kill_at_every_fail_point() {
    let straight = tempfile::tempdir().unwrap();
    fixture(straight.path());
    let before = shapes(straight.path());
    let host_straight = host(straight.path(), FailPoints::parse("count").unwrap());
    apply_all(&host_straight).await;
    let (after, count) = (shapes(straight.path()), host_straight.fail_points.count());
    assert!(count > 20, "{count}");
    for number in 1..=count {
        let dir = tempfile::tempdir().unwrap();
        fixture(dir.path());
        assert!(killed(dir.path(), &format!("kill:{number}")), "point {number} was not reached");
        let again = host(dir.path(), FailPoints::off());
        if number % 2 == 0 {
            apply_all(&again).await;
            assert_eq!(shapes(dir.path()), after, "carried out again after point {number}");
        }
        undo_all(&again).await;
        assert_eq!(shapes(dir.path()), before, "taken back after point {number}");
        apply_all(&again).await;
        assert_eq!(shapes(dir.path()), after, "carried out after all, point {number}");
    }
    let dir = tempfile::tempdir().unwrap();
    fixture(dir.path());
    assert!(!killed(dir.path(), &format!("kill:{}", count + 1)));
}
