//! Lines of failed steps.

use super::*;
use crate::apply::run_steps::{left_as_it_is, together};
use crate::apply::single_step::SingleStep;
use crate::host::HostError;
use crate::log_lines::Lines;
use crate::model::message;

fn full() -> HostError {
    HostError::io("write", "/etc/motd", std::io::ErrorKind::StorageFull)
}

fn message_of(lines: &Lines, id: &str) -> String {
    let found = lines.take().into_iter().find(|line| line.get("MESSAGE_ID").is_some_and(|one| one == id));
    found.unwrap()["message"].clone()
}

/// The line of a failed step has the cause: of a step, of a batch of many, and of one that stands alone.
#[tokio::test(flavor = "current_thread")]
async fn failed_step_is_logged_with_its_cause() {
    let (lines, old, new) = (Lines::default(), old(), new());
    let _guard = lines.taken();
    for many in [1, 9] {
        let steps = steps(vec![Op::WriteFile { path: path("/etc/motd") }; many]);
        let work = Work::Apply { batch: Batch::Files, steps: &steps };
        let intent = Intent::for_tests(work, &old, &new, originals(0));
        let failed = async { Err(ApplyError::Host { object: "the files".to_owned(), source: full() }) };
        together(&intent, &steps, "", failed).await.unwrap_err();
        let line = message_of(&lines, message::STEP_FAILED);
        assert!(
            line.ends_with("failed to apply the files: can't write /etc/motd: no storage space"),
            "{line}"
        );
        left_as_it_is(&intent, "/etc/motd", &full());
        let line = message_of(&lines, message::NOT_RESTORED);
        assert!(line.ends_with("can't write /etc/motd: no storage space"), "{line}");
    }
    let steps = steps(vec![
        Op::CreateUser { user: UserName::new("one").unwrap() },
        Op::CreateUser { user: UserName::new("two").unwrap() },
    ]);
    let work = Work::Apply { batch: Batch::Accounts, steps: &steps };
    let intent = Intent::for_tests(work, &old, &new, originals(0));
    let failed = async { Err(ApplyError::Host { object: steps[1].to_string(), source: full() }) };
    together(&intent, &steps, "", failed).await.unwrap_err();
    let told: Vec<String> = lines.take().iter().map(|line| line["message"].clone()).collect();
    assert!(
        told.contains(&"Step 1 of 2: create-user one: not done, because create-user two failed".to_owned()),
        "{told:#?}"
    );
    assert_eq!(told.iter().filter(|line| line.contains("no storage space")).count(), 1, "{told:#?}");

    let id = UpdateId::new("update-1").unwrap();
    let step = SingleStep { id: &id, image: None, name: "unpack", target: "/var" };
    step.run(async { Err::<(), _>(full()) }).await.unwrap_err();
    let line = message_of(&lines, message::STEP_FAILED);
    assert_eq!(line, "unpack /var: not done: can't write /etc/motd: no storage space");
}
