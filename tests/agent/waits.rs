//! Every wait and every fault over time, with the agent's real loop and a clock that only moves while all wait: retries,
//! their times, and the ends of a hold. `update::ending` has the table; `docs/reference.md` has it for people.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::net::UnixDatagram;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::fake_control_plane::FakeControlPlane;
use crate::fake_control_plane::os::{Played, StageResult, image};
use crate::plain_host;
use crate::update_fixtures::UpdateFixture;
use machine_config_agent::agent::{Agent, AgentError, ExitReason, Reboots, RunMode};
use machine_config_agent::host::{BoxFuture, Clock, FailPoints, Host, HostError, Root};
use machine_config_agent::model::{BootId, ConfigName, FaultClass, Target, Timestamp};
use machine_config_agent::report::{FaultTimes, LoopState, NodeReport, NodeState, report};
use machine_config_agent::update::ending::{
    ENDINGS, Ending, LATER, RetryTrigger, SHORTEST_HOLD, SOON, Try, next_try,
};
use machine_config_agent::update::{Fault, Record, Transition};
use rustix::fs::{FileType, Mode};
use tokio::time::timeout;

/// Far longer than any wait for a next try.
const LONG: Duration = Duration::from_secs(24 * 3600);

/// A libostree host whose pulls fail with a fault for as long as it is broken, and how often it was asked.
struct Broken {
    dir: tempfile::TempDir,
    plane: FakeControlPlane,
    mended: Rc<Cell<bool>>,
    tries: Rc<Cell<u32>>,
}

impl Broken {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        plain_host::bare(dir.path());
        let plane = FakeControlPlane::wanting("rendered-b", Some(image("b")));
        Self { dir, plane, mended: Rc::default(), tries: Rc::default() }
    }

    /// A process of the agent.
    fn agent(&self, class: FaultClass, reason: &'static str) -> Agent<FakeControlPlane> {
        let (mended, tries) = (Rc::clone(&self.mended), Rc::clone(&self.tries));
        let pulled = move || {
            tries.set(tries.get() + 1);
            let (object, cause) = (image("b").to_string(), "it is a test".to_owned());
            let failed = HostError::Os { object, cause, class, reason, next: "Wait.".to_owned() };
            let ended = if mended.get() { Ok(()) } else { Err(failed) };
            let ended: BoxFuture<'static, StageResult> = Box::pin(async { ended });
            ended
        };
        let os = Played { pulled: Box::new(pulled), ..Played::running(image("a")) };
        let root = Root::open(self.dir.path()).unwrap();
        self.plane.agent(Host { os: Box::new(os), ..Host::in_directory(root, FailPoints::off()) })
    }

    /// Lets the agent live for some time; `None` when it is still there after it.
    async fn live(
        agent: &mut Agent<FakeControlPlane>,
        time: Duration,
    ) -> Option<Result<ExitReason, AgentError>> {
        timeout(time, Box::pin(agent.run())).await.ok()
    }

    fn mend(&self) {
        self.mended.set(true);
    }
}

fn fault(class: FaultClass, reason: &str) -> Fault {
    Fault { class, reason: reason.to_owned(), message: "m".to_owned(), next: "n".to_owned() }
}

fn endings(desired: &[Ending]) -> impl Iterator<Item = (&'static str, Ending)> {
    ENDINGS.iter().copied().filter(|(_, ending)| desired.contains(ending))
}

/// A fault without an ending would hold a node for good: the words are those of the page that lists every fault, which
/// `tests/cli/docs.rs` compares with the code.
#[test]
fn every_fault_has_ending() {
    let page = std::fs::read_to_string("docs/troubleshoot.md").unwrap();
    let words: BTreeSet<&str> = page.lines().filter_map(|line| line.strip_prefix("### ")).collect();
    assert!(words.len() > 80, "{words:?}");
    let known: BTreeSet<&str> = ENDINGS.iter().map(|(word, _)| *word).collect();
    let without: Vec<_> = words.difference(&known).collect();
    assert!(without.is_empty(), "nothing ends {without:?}: add them to update::ending and docs/reference.md");
    assert!(known.len() == ENDINGS.len() && known.len() > 80, "one is listed twice");
}

/// The reference has the code's table.
#[test]
fn reference_has_same_table() {
    let page = std::fs::read_to_string("docs/reference.md").unwrap();
    let section = page.split("## What ends a fault\n").nth(1).unwrap().split("\n## ").next().unwrap();
    let mut listed = BTreeMap::new();
    for paragraph in section.split("\n\n").filter_map(|text| text.trim().strip_prefix("**")) {
        let (ending, rest) = paragraph.split_once("**").unwrap();
        for word in rest.split('`').skip(1).step_by(2) {
            assert!(listed.insert(word.to_owned(), ending.to_owned()).is_none(), "{word} is listed twice");
        }
    }
    let known: BTreeMap<String, String> =
        ENDINGS.iter().map(|(word, ending)| ((*word).to_owned(), format!("{ending:?}"))).collect();
    assert_eq!(listed, known);
}

/// Of what may pass by itself the next try comes by itself, again and again, at a bounded rate, until it is mended.
#[tokio::test(start_paused = true)]
async fn transient_faults_are_retried_until_repaired() {
    for (word, ending) in endings(&[Ending::Soon, Ending::Later]) {
        let broken = Broken::new();
        let class = if ending == Ending::Soon { FaultClass::Retry } else { FaultClass::Degraded };
        let mut agent = broken.agent(class, word);
        let mut run = Box::pin(agent.run());
        // After 1, 2, 4 and 8 s, or a little more.
        assert!(timeout(Duration::from_secs(20), &mut run).await.is_err(), "{word}");
        let tries = broken.tries.get();
        assert!((4..=5).contains(&tries), "{word}: {tries} tries");
        broken.mend();
        let end = timeout(ending.longest().unwrap() * 2, &mut run).await;
        assert_eq!(end.expect(word).unwrap(), ExitReason::Reboot, "{word}");
        assert_eq!(broken.tries.get(), tries + 1, "{word}");
    }
}

/// Trying again costs an idle node little, however long it lasts. OCL-011: so does a registry that refuses credentials.
#[tokio::test(start_paused = true)]
async fn rate_of_tries_has_bound() {
    for (class, word, longest) in [
        (FaultClass::Retry, "DiskFull", SOON),
        (FaultClass::Retry, "ImagePullUnauthorized", SOON),
        (FaultClass::Degraded, "Io", LATER),
    ] {
        let broken = Broken::new();
        let mut agent = broken.agent(class, word);
        assert!(Broken::live(&mut agent, longest * 20).await.is_none(), "{word}");
        let tries = broken.tries.get();
        assert!((16..=31).contains(&tries), "{word}: {tries} tries in {:?}", longest * 20);
    }
}

/// CRA-011: a clock that is set a year on or back between two tries advances none and delays none.
#[tokio::test(start_paused = true)]
async fn clock_jump_does_not_break_retry() {
    const YEAR: u64 = 365 * 24 * 3600 * 1_000_000;
    for jump in [YEAR, 0_u64.wrapping_sub(YEAR)] {
        let broken = Broken::new();
        let hand = Arc::new(AtomicU64::new(56 * YEAR));
        let (tries, mended, set) = (Rc::clone(&broken.tries), Rc::clone(&broken.mended), Arc::clone(&hand));
        let pulled = move || {
            tries.set(tries.get() + 1);
            set.fetch_add(jump, Ordering::Relaxed);
            let (object, cause) = (image("b").to_string(), "it is a test".to_owned());
            let (class, reason, next) = (FaultClass::Retry, "ImagePullFailed", "Wait.".to_owned());
            let failed = HostError::Os { object, cause, class, reason, next };
            let ended = if mended.get() { Ok(()) } else { Err(failed) };
            let ended: BoxFuture<'static, StageResult> = Box::pin(async { ended });
            ended
        };
        let os = Played { pulled: Box::new(pulled), ..Played::running(image("a")) };
        let root = Root::open(broken.dir.path()).unwrap();
        let clock = Clock::moved_by(hand);
        let host = Host { os: Box::new(os), clock, ..Host::in_directory(root, FailPoints::off()) };
        let mut agent = broken.plane.agent(host);
        let mut run = Box::pin(agent.run());
        assert!(timeout(Duration::from_secs(20), &mut run).await.is_err());
        // After 1, 2, 4 and 8 s, or a little more, by the monotonic clock.
        let tries = broken.tries.get();
        assert!((4..=5).contains(&tries), "{tries} tries with jumps of {jump}");
        broken.mend();
        let end = timeout(SOON * 2, &mut run).await;
        assert_eq!(end.expect("a try comes").unwrap(), ExitReason::Reboot);
        assert_eq!(broken.tries.get(), tries + 1);
    }
}

/// A fault that is not retried ends with a start, with another target, and with a person's request.
#[tokio::test(start_paused = true)]
async fn event_request_and_target_faults_are_not_retried() {
    for (word, ending) in endings(&[Ending::Event, Ending::Request, Ending::Target]) {
        let class = if word.contains("econcil") { FaultClass::Unreconcilable } else { FaultClass::Degraded };
        let broken = Broken::new();
        let mut agent = broken.agent(class, word);
        assert!(Broken::live(&mut agent, LONG).await.is_none(), "{word}");
        broken.mend();
        drop(agent);
        let end = Broken::live(&mut broken.agent(class, word), LONG).await;
        if ending == Ending::Target {
            assert!(end.is_none() && broken.tries.get() == 1, "{word}: it needs another target");
        } else {
            assert_eq!(end.expect(word).unwrap(), ExitReason::Reboot, "{word}: the agent was started again");
        }

        for trigger in ["another target", "the same once more"] {
            let broken = Broken::new();
            let mut agent = broken.agent(class, word);
            let act = async {
                tokio::time::sleep(LONG).await;
                assert_eq!(broken.tries.get(), 1, "{word}");
                broken.mend();
                if trigger == "another target" {
                    broken.plane.config("rendered-c", &FakeControlPlane::empty("rendered-c"));
                    let config = ConfigName::new("rendered-c").unwrap();
                    *broken.plane.desired.borrow_mut() = Target::new(config, Some(image("b")));
                } else {
                    broken.plane.rewritten.set(true);
                }
                broken.plane.nudge.notify_one();
            };
            let (end, ()) = tokio::join!(Broken::live(&mut agent, 2 * LONG), act);
            assert_eq!(
                end.unwrap_or_else(|| panic!("{word}: {trigger}")).unwrap(),
                ExitReason::Reboot,
                "{word}: {trigger}"
            );
        }
    }
}

/// A cause on the host itself, and its end: a FIFO, a directory, and something that is not there, at the path.
#[tokio::test(start_paused = true)]
async fn removed_obstacle_triggers_retry() {
    const FILE: &str = r#"{"kind":"MachineConfig","metadata":{"name":"rendered-b"},"spec":{"config":
        {"ignition":{"version":"3.4.0"},"storage":{"files":[{"path":"/etc/way/file","contents":{"source":"data:,b"}}]}}}}"#;
    const POLICY: &str = r#"{"apiVersion":"operator.openshift.io/v1","kind":"MachineConfiguration","metadata":{"name":"cluster"},
        "spec":{"nodeDisruptionPolicy":{"files":[{"path":"/etc","actions":[{"type":"None"}]}]}}}"#;
    type Act = fn(&std::path::Path);
    let fifo: (Act, Act) = (
        |at| {
            std::fs::create_dir(at.join("etc/way")).unwrap();
            let at = at.join("etc/way/file");
            rustix::fs::mknodat(rustix::fs::CWD, at, FileType::Fifo, Mode::RWXU, 0).unwrap();
        },
        |at| std::fs::remove_file(at.join("etc/way/file")).unwrap(),
    );
    let directory: (Act, Act) = (
        |at| std::fs::create_dir_all(at.join("etc/way/file/in")).unwrap(),
        |at| std::fs::remove_dir_all(at.join("etc/way/file")).unwrap(),
    );
    let parent: (Act, Act) = (
        |at| std::fs::write(at.join("etc/way"), "").unwrap(),
        |at| std::fs::remove_file(at.join("etc/way")).unwrap(),
    );
    for (number, (block, clear)) in [fifo, directory, parent].into_iter().enumerate() {
        let dir = tempfile::tempdir().unwrap();
        plain_host::bare(dir.path());
        block(dir.path());
        let plane = FakeControlPlane::wanting("rendered-b", None);
        plane.config("rendered-b", FILE);
        plane.policy(POLICY);
        let root = Root::open(dir.path()).unwrap();
        let mut agent = plane.agent(Host::in_directory(root, FailPoints::off()));
        let act = async {
            // The waits have grown to their longest: the next change is noticed, not waited for.
            tokio::time::sleep(Duration::from_secs(3600)).await;
            let report = plane.reports.borrow().last().unwrap().clone();
            assert_eq!(report.state, NodeState::Unreconcilable, "{number}: {report:#?}");
            clear(dir.path());
            tokio::time::sleep(LATER * 2).await;
            plane.reports.borrow().last().unwrap().clone()
        };
        let report = tokio::select! {
            end = Box::pin(agent.run()) => panic!("it ended: {end:?}"),
            report = act => report,
        };
        assert_eq!((report.state, report.reason.as_str()), (NodeState::Done, ""), "{number}: {report:#?}");
        assert_eq!(std::fs::read_to_string(dir.path().join("etc/way/file")).unwrap(), "b");
    }
}

/// Other events while a try is waited for do not put it off: it would never come.
#[tokio::test(start_paused = true)]
async fn busy_control_plane_does_not_delay_retry() {
    let broken = Broken::new();
    let mut agent = broken.agent(FaultClass::Retry, "ImagePullFailed");
    let nudges = async {
        for _ in 0..3600 {
            tokio::time::sleep(Duration::from_secs(1)).await;
            broken.plane.nudge.notify_one();
        }
    };
    let (end, ()) = tokio::join!(Broken::live(&mut agent, Duration::from_secs(3600)), nudges);
    assert!(end.is_none());
    let tries = broken.tries.get();
    assert!((45..=70).contains(&tries), "{tries} tries in an hour");
}

/// A target that is replaced and comes back while the first try of it is undone is begun again.
#[test]
fn undone_update_without_fault_is_begun_again() {
    let mut record = undone(&UpdateFixture::with_files(), &[Transition::Apply { first: 0 }]);
    assert_eq!(next_try(&record, RetryTrigger::Time, LONG), Try::Now);
    record.fault = Some(fault(FaultClass::Degraded, "Io"));
    assert_eq!(next_try(&record, RetryTrigger::Time, LONG), Try::Within(LATER));
}

fn undone(made: &UpdateFixture, events: &[Transition]) -> Record {
    let mut record = made.record();
    for event in events.iter().chain([&Transition::RollBack]) {
        record = record.moved(event, Timestamp::default()).unwrap();
    }
    while !record.is_undone() {
        record = record.moved(&Transition::UndoDone, Timestamp::default()).unwrap();
    }
    record
}

/// No try by itself, by a start or by a program that writes the same target again reboots the node once more.
#[test]
fn rebooted_update_is_retried_for_person_only() {
    let made = UpdateFixture::with_image();
    let reboot = Transition::Reboot { boot_id: BootId::new("boot-1").unwrap() };
    let record = undone(&made, &[Transition::Stage, Transition::Apply { first: 1 }, reboot]);
    for (word, _) in ENDINGS {
        for class in [FaultClass::Retry, FaultClass::Degraded] {
            let record = Record { fault: Some(fault(class, word)), ..record.clone() };
            if *word == "RebootDidNotHappen" {
                assert_eq!(next_try(&record, RetryTrigger::Time, LONG), Try::Within(SOON));
                let came_back = Record { interrupted_finalizations: 1, ..record };
                assert_eq!(next_try(&came_back, RetryTrigger::Time, LONG), Try::Never);
                continue;
            }
            for trigger in
                [RetryTrigger::Time, RetryTrigger::Host, RetryTrigger::Start, RetryTrigger::Rewritten]
            {
                assert_eq!(next_try(&record, trigger, LONG), Try::Never, "{word} {trigger:?}");
            }
            assert_eq!(next_try(&record, RetryTrigger::Person, LONG), Try::Now, "{word}");
        }
    }
}

/// Triggers of a retry, by ending, for an update that has not rebooted the node.
#[test]
fn held_update_retry_depends_on_trigger() {
    let record = undone(&UpdateFixture::with_image(), &[Transition::Stage]);
    let triggers = [
        RetryTrigger::Time,
        RetryTrigger::Host,
        RetryTrigger::Start,
        RetryTrigger::Rewritten,
        RetryTrigger::Person,
    ];
    let (never, now) = (Try::Never, Try::Now);
    for (word, expected) in [
        ("DiskFull", [Try::Within(SOON), now, now, now, now]),
        ("Io", [Try::Within(LATER), now, now, now, now]),
        ("VerificationFailed", [Try::Within(LATER), now, now, now, now]),
        ("ConfigDrift", [never, now, now, now, now]),
        ("JobFailed", [never, never, now, now, now]),
        ("ImageNotBootable", [never, never, never, now, now]),
        ("WordOfAnOldAgent", [never, never, now, now, now]),
    ] {
        let record = Record { fault: Some(fault(FaultClass::Degraded, word)), ..record.clone() };
        assert_eq!(triggers.map(|trigger| next_try(&record, trigger, LONG)), expected, "{word}");
    }
    // A host that never rests causes no more tries than that; a start and a person do.
    let record_of = |word| Record { fault: Some(fault(FaultClass::Degraded, word)), ..record.clone() };
    for (trigger, expected) in [
        (RetryTrigger::Host, Try::In(Duration::from_secs(9))),
        (RetryTrigger::Rewritten, Try::In(Duration::from_secs(9))),
        (RetryTrigger::Start, now),
        (RetryTrigger::Person, now),
    ] {
        assert_eq!(next_try(&record_of("Io"), trigger, Duration::from_secs(1)), expected, "{trigger:?}");
        assert_eq!(next_try(&record_of("Io"), trigger, SHORTEST_HOLD), now, "{trigger:?}");
    }
    let shortage = Record { fault: Some(fault(FaultClass::Retry, "Io")), ..record };
    assert_eq!(next_try(&shortage, RetryTrigger::Time, LONG), Try::Within(SOON));
}

/// inotify's limits, or another error that ends a wait: reported, and the host is read from time to time; the process lives.
#[tokio::test(start_paused = true)]
async fn error_during_wait_is_retried() {
    let broken = Broken::new();
    broken.mend();
    broken.plane.deaf.set(true);
    let mut agent = broken.agent(FaultClass::Retry, "ImagePullFailed");
    // The first target is what runs: the node is idle.
    *broken.plane.desired.borrow_mut() =
        Target::new(ConfigName::new("rendered-b").unwrap(), Some(image("a")));
    let act = async {
        tokio::time::sleep(LONG).await;
        let report = broken.plane.reports.borrow().last().unwrap().clone();
        assert!(report.reason.starts_with("TooManyWatches: "), "{report:#?}");
        let reports = broken.plane.reports.borrow().len();
        assert!(reports < 2 * 24 * 60 + 60, "{reports} reports in a day");
        // A change is found without a notification.
        *broken.plane.desired.borrow_mut() =
            Target::new(ConfigName::new("rendered-b").unwrap(), Some(image("b")));
    };
    let (end, ()) = tokio::join!(Broken::live(&mut agent, LONG + SOON * 2), act);
    assert_eq!(end.expect("the change was not found").unwrap(), ExitReason::Reboot);
}

/// Messages to systemd since the last call.
fn notifications(systemd: &UnixDatagram) -> Vec<String> {
    let mut all = Vec::new();
    let mut bytes = [0; 4096];
    while let Ok(count) = systemd.recv(&mut bytes) {
        all.push(String::from_utf8(bytes[..count].to_vec()).unwrap());
    }
    all
}

/// A host that stages without an end, in silence.
struct Staging {
    dir: tempfile::TempDir,
    plane: FakeControlPlane,
    systemd: UnixDatagram,
    abandoned: Rc<Cell<u32>>,
    hand: Arc<AtomicU64>,
}

impl Staging {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        plain_host::bare(dir.path());
        let socket = dir.path().join("notify");
        let systemd = UnixDatagram::bind(&socket).unwrap();
        systemd.set_nonblocking(true).unwrap();
        let watchdog = Some((socket, Duration::from_secs(30 * 60)));
        let plane = FakeControlPlane {
            systemd: watchdog,
            ..FakeControlPlane::wanting("rendered-b", Some(image("b")))
        };
        let hand = Arc::new(AtomicU64::new(1_000_000_000_000));
        Self { dir, plane, systemd, abandoned: Rc::default(), hand }
    }

    fn agent(&self, says: Option<&'static str>) -> Agent<FakeControlPlane> {
        let os = Played {
            silent: true,
            says,
            abandoned: Rc::clone(&self.abandoned),
            pulled: Box::new(|| Box::pin(std::future::pending())),
            ..Played::running(image("a"))
        };
        let (root, clock) = (Root::open(self.dir.path()).unwrap(), Clock::moved_by(Arc::clone(&self.hand)));
        self.plane.agent(Host { os: Box::new(os), clock, ..Host::in_directory(root, FailPoints::off()) })
    }

    /// A process lives for some minutes, also by the monotonic clock, and is killed.
    async fn live(&self, minutes: u64) -> Vec<NodeReport> {
        self.plane.reports.borrow_mut().clear();
        let mut agent = self.agent(None);
        assert!(Broken::live(&mut agent, Duration::from_secs(minutes * 60)).await.is_none());
        self.hand.fetch_add(minutes * 60_000_000, Ordering::Relaxed);
        self.plane.reports.borrow().clone()
    }
}

/// bootc under a systemd that passes no pipe reports nothing until its end: the work has limits of its own, so the watchdog
/// is fed meanwhile.
#[tokio::test(start_paused = true)]
async fn silent_switch_is_not_ended_by_watchdog() {
    let staging = Staging::new();
    let mut agent = staging.agent(None);
    let mut fed = Vec::new();
    let counts = async {
        for _ in 0..3 {
            tokio::time::sleep(Duration::from_secs(30 * 60)).await;
            fed.push(
                notifications(&staging.systemd).iter().filter(|line| line.contains("WATCHDOG=1")).count(),
            );
        }
    };
    tokio::select! {
        end = Box::pin(agent.run()) => panic!("it ended: {end:?}"),
        () = counts => {}
    }
    assert!(fed.iter().all(|count| (1..=4).contains(count)), "signs of life in each half an hour: {fed:?}");
}

/// The limit is one of the staging, not of a process: a restart of the agent does not reset it.
#[tokio::test(start_paused = true)]
async fn time_of_staging_counts_over_restarts() {
    let staging = Staging::new();
    let late = |reports: &[NodeReport]| {
        let reason = |report: &NodeReport| report.fault.as_ref().map(|fault| fault.reason.clone());
        reports.iter().filter_map(reason).any(|reason| reason == "OsTooSlow")
    };
    for _ in 0..4 {
        assert!(!late(&staging.live(29).await), "it has two hours");
    }
    assert!(late(&staging.live(5).await), "two hours are over");
    assert_eq!(staging.abandoned.get(), 1);
    // Another try has two hours of its own.
    assert!(!late(&staging.live(29).await));
}

/// MCD-041: another target does not wait for the end of a pull; a change that is none does not end it.
#[tokio::test(start_paused = true)]
async fn another_target_ends_staging() {
    let staging = Staging::new();
    let plane = &staging.plane;
    plane.config("rendered-c", &FakeControlPlane::empty("rendered-c"));
    let mut agent = staging.agent(None);
    let act = async {
        for _ in 0..3 {
            tokio::time::sleep(Duration::from_secs(60)).await;
            plane.nudge.notify_one();
        }
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(plane.reports.borrow().last().unwrap().phase, "Staging");
        assert_eq!(staging.abandoned.get(), 0);
        let config = ConfigName::new("rendered-c").unwrap();
        *plane.desired.borrow_mut() = Target::new(config, Some(image("a")));
        plane.nudge.notify_one();
        tokio::time::sleep(Duration::from_secs(5)).await;
        plane.reports.borrow().last().unwrap().clone()
    };
    let report = tokio::select! {
        end = Box::pin(agent.run()) => panic!("it ended: {end:?}"),
        report = act => report,
    };
    assert_eq!((report.state, report.phase.as_str()), (NodeState::Done, "Idle"), "{report:#?}");
    assert_eq!(report.current_config.unwrap().as_str(), "rendered-c");
    assert_eq!(staging.abandoned.get(), 1, "what was begun is ended");
}

/// The report names the transaction of another client that the node waits for.
#[tokio::test(start_paused = true)]
async fn transaction_of_others_is_reported_as_wait() {
    const WHOSE: &str = "the rpm-ostree transaction \"upgrade\" of cockpit";
    let staging = Staging::new();
    let mut agent = staging.agent(Some("waiting for the rpm-ostree transaction \"upgrade\" of cockpit"));
    assert!(Broken::live(&mut agent, Duration::from_secs(60)).await.is_none());
    let report = staging.plane.reports.borrow().last().unwrap().clone();
    assert_eq!((report.state, report.waiting.as_deref()), (NodeState::Working, Some(WHOSE)));
    let status = notifications(&staging.systemd).join("");
    assert!(
        status.contains(&format!("STATUS=Working: Staging for rendered-b; waits for {WHOSE}")),
        "{status}"
    );
    // `status` reads this: it is not in the record.
    assert_eq!(staging.plane.kept.borrow().as_ref().unwrap().waiting.as_deref(), Some(WHOSE));
}

/// MCD-217, OCL-014: after a failure the staged deployment is removed; however often that fails, the original fault is reported first, and once.
#[tokio::test(start_paused = true)]
async fn repeated_undo_failure_reports_original_fault() {
    let dir = tempfile::tempdir().unwrap();
    plain_host::bare(dir.path());
    let failed = |cause: &str| {
        let (object, cause) = ("the sysroot".to_owned(), cause.to_owned());
        HostError::Os {
            object,
            cause,
            class: FaultClass::Retry,
            reason: "SysrootBusy",
            next: "Wait.".to_owned(),
        }
    };
    let left = Cell::new(5);
    let os = Played {
        pulled: Box::new(move || Box::pin(async move { Err(failed("the first cause")) })),
        unstaged: Box::new(move || match left.replace(left.get() - 1) {
            1.. => Err(failed("the second cause")),
            _ => Ok(()),
        }),
        ..Played::running(image("a"))
    };
    let root = Root::open(dir.path()).unwrap();
    let plane = FakeControlPlane::wanting("rendered-b", Some(image("b")));
    let mut agent = plane.agent(Host { os: Box::new(os), ..Host::in_directory(root, FailPoints::off()) });
    assert!(Broken::live(&mut agent, Duration::from_secs(60)).await.is_none());
    let reports = plane.reports.borrow();
    let undoing: Vec<&str> =
        reports.iter().map(|report| report.reason.as_str()).filter(|why| why.contains("second")).collect();
    assert!(undoing.len() >= 4, "{reports:#?}");
    for why in undoing {
        assert!(why.contains("the first cause; undoing it failed too: "), "{why}");
        assert_eq!(why.matches("undoing it failed too").count(), 1, "{why}");
    }
}

/// The newest fault is reported first, with its time.
#[test]
fn newest_fault_is_reported_and_since_when() {
    let at = |seconds: u64| Timestamp::from_micros(seconds * 1_000_000);
    let mut record = undone(&UpdateFixture::with_image(), &[Transition::Stage]);
    record.blame(fault(FaultClass::Degraded, "Io"), at(100));
    record.blame(fault(FaultClass::Degraded, "Io"), at(900));
    let shown = |record: &Record, health: &LoopState| {
        let report = report(Some(record), health);
        (report.fault.unwrap().reason, report.since)
    };
    let (io, invalid) = (("Io".to_owned(), at(100).to_string()), "InvalidDocument");
    assert_eq!(shown(&record, &LoopState::default()), io);
    // The clock was set back between the two faults, then ahead again.
    let (mut times, mut health) = (FaultTimes::default(), LoopState::default());
    times.date(Some(&record), &mut health, at(900));
    health.fault = Some(fault(FaultClass::Degraded, invalid));
    for now in [50, 60] {
        times.date(Some(&record), &mut health, at(now));
        assert_eq!(shown(&record, &health), (invalid.to_owned(), at(50).to_string()));
    }
    record.blame(fault(FaultClass::Degraded, "DiskFull"), at(40));
    times.date(Some(&record), &mut health, at(70));
    assert_eq!(shown(&record, &health), ("DiskFull".to_owned(), at(40).to_string()));
    // The fault of the input was found after this start, that of the record before it.
    let mut times = FaultTimes::default();
    times.date(Some(&record), &mut health, at(30));
    assert_eq!(shown(&record, &health), (invalid.to_owned(), at(30).to_string()));
}

/// A fault has the time at which it was noticed, not that of the commit or of the phase.
#[tokio::test(start_paused = true)]
async fn degraded_since_is_time_of_fault() {
    let staging = Staging::new();
    *staging.plane.desired.borrow_mut() =
        Target::new(ConfigName::new("rendered-b").unwrap(), Some(image("a")));
    let mut agent = staging.agent(None);
    let act = async {
        tokio::time::sleep(Duration::from_secs(60)).await;
        let done = staging.plane.reports.borrow().last().unwrap().clone();
        assert_eq!(done.state, NodeState::Done);
        let later = staging.hand.fetch_add(3_600_000_000, Ordering::Relaxed) + 3_600_000_000;
        staging.plane.config("rendered-c", "{");
        staging.plane.desired.borrow_mut().config = ConfigName::new("rendered-c").unwrap();
        for _ in 0..2 {
            staging.plane.nudge.notify_one();
            tokio::time::sleep(Duration::from_secs(60)).await;
            let report = staging.plane.reports.borrow().last().unwrap().clone();
            assert_eq!(
                (report.state, report.since),
                (NodeState::Degraded, Timestamp::from_micros(later).to_string())
            );
            staging.hand.fetch_add(60_000_000, Ordering::Relaxed);
        }
    };
    tokio::select! {
        end = Box::pin(agent.run()) => panic!("it ended: {end:?}"),
        () = act => {}
    }
}

/// A reboot that `apply --no-reboot` left to a person is a person's, also for the daemon that is started after it.
#[tokio::test(start_paused = true)]
async fn reboot_deferred_to_person_is_not_requested() {
    let broken = Broken::new();
    broken.mend();
    let mut apply = broken.agent(FaultClass::Retry, "Io").with(RunMode::OneShot, Reboots::Left);
    assert_eq!(Broken::live(&mut apply, LONG).await.unwrap().unwrap(), ExitReason::Reboot);
    drop(apply);
    for _ in 0..2 {
        assert!(
            Broken::live(&mut broken.agent(FaultClass::Retry, "Io"), LONG).await.is_none(),
            "it rebooted"
        );
        let report = broken.plane.reports.borrow().last().unwrap().clone();
        assert_eq!((report.state, report.phase.as_str()), (NodeState::Working, "Rebooting"));
        assert!(report.waiting.unwrap().contains("apply --no-reboot"));
    }
    // Another apply without the flag requests the reboot.
    let mut apply = broken.agent(FaultClass::Retry, "Io").with(RunMode::OneShot, Reboots::Requested);
    assert_eq!(Broken::live(&mut apply, LONG).await.unwrap().unwrap(), ExitReason::Reboot);
    drop(apply);
    // An administrator rebooted: the daemon goes on.
    plain_host::boot(broken.dir.path(), 2);
    let root = Root::open(broken.dir.path()).unwrap();
    let os = Played::running(image("b"));
    let host = Host { os: Box::new(os), ..Host::in_directory(root, FailPoints::off()) };
    assert!(Broken::live(&mut broken.plane.agent(host), LONG).await.is_none());
    let report = broken.plane.reports.borrow().last().unwrap().clone();
    assert_eq!((report.state, report.waiting), (NodeState::Done, None), "{:?}", report.fault);
}
