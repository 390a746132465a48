//! A pull that fails: tried again by itself, with its cause in the report until then, and counted.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a test: it fails by panicking, and plays the host"
)]

mod desk;
mod plain_host;

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use desk::Desk;
use desk::os::{Ended, Played, image};
use machine_config_agent::agent::End;
use machine_config_agent::host::{FailPoints, Host, HostError, Root};
use machine_config_agent::model::Class;

/// Fails for this cause, and for none after it.
fn once(cause: &'static str) -> impl Fn() -> Ended {
    let left = RefCell::new(Some(cause));
    move || {
        let Some(cause) = left.take() else { return Ok(()) };
        let (object, cause) = (image("b").to_string(), cause.to_owned());
        Err(HostError::Os {
            object,
            cause,
            class: Class::Retry,
            reason: "ImagePullFailed",
            next: "Wait.".to_owned(),
        })
    }
}

/// MCD-190, MCD-206: refused before a plan, then broken off in the pull, then well: the node goes on by itself.
#[tokio::test]
async fn a_pull_that_fails_is_tried_again_with_its_cause_in_the_report() {
    let dir = tempfile::tempdir().unwrap();
    plain_host::bare(dir.path());
    let pull = Rc::new(once("unexpected EOF"));
    let os = Played {
        asked: Box::new(once("StatusCode: 429")),
        pulled: Box::new(move || {
            let pull = Rc::clone(&pull);
            Box::pin(async move { pull() })
        }),
        ..Played::running(image("a"))
    };
    let root = Root::open(dir.path()).unwrap();
    let host = Host { os: Box::new(os), ..Host::in_directory(root, FailPoints::off()) };
    let desk = Desk::wanting("rendered-b", Some(image("b")));
    // The count of failures at the time of each report.
    let counts: Rc<RefCell<Vec<String>>> = Rc::default();
    let (metrics, counted) = (desk.metrics.clone(), Rc::clone(&counts));
    let at_report = Rc::new(move || {
        let text = metrics.text();
        let count = text.lines().find_map(|line| line.strip_prefix("mcd_pivot_errors_total "));
        counted.borrow_mut().push(count.unwrap().to_owned());
    });
    let desk = Desk { at_report, ..desk };
    let mut agent = desk.agent(host);
    let end = tokio::time::timeout(Duration::from_secs(60), Box::pin(agent.run())).await.unwrap();
    assert_eq!(end.unwrap(), End::Reboot);

    let (reports, counts) = (desk.reports.borrow(), counts.borrow());
    for (cause, count) in [("StatusCode: 429", "1"), ("unexpected EOF", "1")] {
        // The last one before the wait for the next try.
        let told = reports.iter().zip(counts.iter()).rfind(|(report, _)| report.reason.contains(cause));
        let (report, counted) = told.unwrap_or_else(|| panic!("{cause}: {reports:#?}"));
        assert!(
            report.reason.contains(&format!("failed to update OS to {}", image("b"))),
            "{}",
            report.reason
        );
        assert_eq!(counted, count, "{cause}");
    }
    assert_eq!(
        counts.last().unwrap(),
        "2",
        "both are counted: an update that was begun is, when it is given up"
    );
}
