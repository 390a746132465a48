//! The journal on a failing disk: full, rubbish in the way, a sync that failed.

#![expect(clippy::disallowed_methods, reason = "a test looks at the machine from outside")]

use std::cell::Cell;
use std::fs;
use std::path::PathBuf;

use super::files::{STATE_MODE, state};
use super::history::{Entry, MAX_ENTRIES, load, load_with_held};
use super::{AdvanceError, Journal, JournalError, Outcome, Stored};
use crate::host::root::Root;
use crate::host::{FailPoints, fsync};
use crate::model::machineconfig::MachineConfig;
use crate::model::policy::DisruptionPolicy;
use crate::model::{BootId, Facts, HostSpec, ImageRef, Timestamp, UpdateId};
use crate::plan::plan;
use crate::plan::start::Start;
use crate::unlocked;
use crate::update::{Fault, Phase, Record, Transition};

struct StateDir {
    dir: tempfile::TempDir,
    root: Root,
}

/// A config with one file, whose contents are its name.
fn config(name: &str) -> Stored {
    let text = format!(
        r#"{{"apiVersion":"machineconfiguration.openshift.io/v1","kind":"MachineConfig","metadata":{{"name":"{name}"}},
            "spec":{{"config":{{"ignition":{{"version":"3.4.0"}},
            "storage":{{"files":[{{"path":"/etc/motd","contents":{{"source":"data:,{name}"}}}}]}}}}}}}}"#
    );
    Stored::new(MachineConfig::parse(text.as_bytes(), name).unwrap(), None, Timestamp::default())
}

/// The record of an update between two of them.
fn record(id: &str, from: &HostSpec, to: &Stored) -> Record {
    let to = to.spec().unwrap();
    let facts = Facts::assumed(from, &to).unwrap();
    let plan = plan(from, &to, &facts, &DisruptionPolicy::defaults()).unwrap();
    Record::new(UpdateId::new(id).unwrap(), plan, BootId::new("boot-1").unwrap(), None, Timestamp::default())
}

/// Begins that update.
fn begin(journal: &mut Journal, id: &str, from: &HostSpec, to: &Stored) -> Result<(), JournalError> {
    journal.begin(record(id, from, to), to.clone().decode().unwrap())
}

impl StateDir {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::open(dir.path()).unwrap();
        Self { dir, root }
    }

    fn open(&self) -> Journal {
        unlocked::open(
            || Journal::open(self.root.clone(), FailPoints::off()),
            |error| matches!(error, JournalError::Locked { .. }),
        )
    }

    /// A journal in which the first update has begun.
    fn begun(&self) -> Journal {
        let mut journal = self.open();
        let b = config("b");
        let from = journal.origin_spec().unwrap();
        begin(&mut journal, "update-1", &from, &b).unwrap();
        journal
    }

    fn state(&self, name: &str) -> PathBuf {
        self.dir.path().join("var/lib/machine-config-agent").join(name)
    }

    /// Puts an obstacle in the way of every new version of a file, until it is removed: as if the disk were full.
    fn obstacle(&self, name: &str) -> PathBuf {
        let at = self.state(&format!(".{name}.mca-new"));
        fs::create_dir_all(&at).unwrap();
        at
    }

    /// The phase that another process would find.
    fn phase_on_disk(&self) -> Option<Phase> {
        super::stored::load_record(&self.root).unwrap().map(|record| record.phase)
    }
}

fn now() -> Timestamp {
    Timestamp::default()
}

fn phase(journal: &Journal) -> Option<Phase> {
    journal.record().map(|record| record.phase.clone())
}

/// Runs the action of the phase; returns true if the intent was lent.
async fn lent(journal: &mut Journal) -> bool {
    let lent = Cell::new(false);
    let run = async |_: &super::Intent<'_>| {
        lent.set(true);
        Err(())
    };
    let done = journal.advance(now, run).await;
    assert!(matches!(done, Err(AdvanceError::Effect(()) | AdvanceError::Journal(_))));
    lent.get()
}

/// Promise 2 of the design: a change that could not be recorded has not happened, and no effect follows.
#[tokio::test(flavor = "current_thread")]
async fn memory_stays_as_disk_when_record_cannot_be_written() {
    let dir = StateDir::new();
    let mut journal = dir.begun();
    let obstacle = dir.obstacle("record.json");
    let error = journal.step(&Transition::Apply { first: 0 }, now()).unwrap_err();
    assert!(matches!(error, JournalError::Host(_)), "{error}");
    assert_eq!(phase(&journal), Some(Phase::Planned));
    assert!(!lent(&mut journal).await, "an effect without a record");
    let fault = Fault::from_error(crate::model::FaultClass::Retry, "Test", &error, "nothing");
    journal.fail(fault.clone(), Some(&Transition::RollBack), now()).unwrap_err();
    journal.note(|record| record.fault = Some(fault)).unwrap_err();
    assert_eq!(journal.record().and_then(|record| record.fault.clone()), None);
    assert_eq!(phase(&journal), Some(Phase::Planned));
    fs::remove_dir(obstacle).unwrap();
    journal.step(&Transition::Apply { first: 0 }, now()).unwrap();
    assert!(lent(&mut journal).await);
    assert_eq!(phase(&journal), dir.phase_on_disk());
}

/// After a sync that failed it is unknown which record a power cut would leave: it is written again before any effect.
#[tokio::test(flavor = "current_thread")]
async fn record_in_doubt_is_rewritten_before_intent_is_lent() {
    let dir = StateDir::new();
    let mut journal = dir.begun();
    journal.step(&Transition::Apply { first: 0 }, now()).unwrap();
    // The second sync of a write is that of its directory: the new name is there, and may be gone after a power cut.
    fsync::failing::at(2);
    journal.step(&Transition::Verify, now()).unwrap_err();
    assert_eq!(phase(&journal), Some(Phase::Applying { next: 0 }));
    let obstacle = dir.obstacle("record.json");
    assert!(!lent(&mut journal).await, "an effect while nobody knows what is on disk");
    fs::remove_dir(obstacle).unwrap();
    assert!(lent(&mut journal).await);
    assert_eq!(dir.phase_on_disk(), Some(Phase::Applying { next: 0 }));
}

/// A record that could not be begun is not on disk when the next one begins, for any failed write.
#[test]
fn failed_begin_leaves_no_record() {
    let dir = StateDir::new();
    let mut journal = dir.open();
    let (b, c) = (config("b"), config("c"));
    let from = journal.origin_spec().unwrap();
    // Of target.json, its directory, record.json, its directory.
    fsync::failing::at(4);
    begin(&mut journal, "update-1", &from, &b).unwrap_err();
    assert_eq!(phase(&journal), None);
    assert!(dir.phase_on_disk().is_some(), "the name is there, and may be gone after a power cut");
    // The record of b must not meet the target c, should the next write end between the two.
    fsync::failing::at(1);
    begin(&mut journal, "update-2", &from, &c).unwrap_err();
    assert_eq!(phase(&journal), None);
    begin(&mut journal, "update-3", &from, &c).unwrap();
    drop(journal);
    assert_eq!(dir.open().record().map(|record| record.to.clone()), Some(c.target));
}

/// A commit that is cut off anywhere by an error is committed in memory as soon as on the disk, and can be repeated.
#[test]
fn commit_is_repeated_after_any_failed_sync() {
    for sync in 1.. {
        let dir = StateDir::new();
        let mut journal = dir.begun();
        journal.step(&Transition::Apply { first: 0 }, now()).unwrap();
        journal.step(&Transition::Verify, now()).unwrap();
        fsync::failing::at(sync);
        let done = journal.commit(now());
        let over = !fsync::failing::hit();
        let on_disk = Stored::load(&dir.root, "/var/lib/machine-config-agent/current.json").unwrap();
        if done.is_ok() {
            assert!(over, "sync {sync} failed, and the commit says that all is well");
        } else {
            let open = phase(&journal) == Some(Phase::Verifying);
            // The last one removes the update's files, when its record is gone.
            assert!(open || dir.phase_on_disk().is_none(), "sync {sync}");
            assert!(
                on_disk.is_some() || journal.current().is_none(),
                "sync {sync}: only the memory is committed"
            );
            journal.commit(now()).unwrap();
        }
        assert_eq!(phase(&journal), None);
        assert_eq!(journal.current().unwrap().config.as_str(), "b");
        drop(journal);
        let entries = super::history::load(&dir.root).unwrap().entries;
        assert_eq!(entries.len(), 1, "sync {sync}");
        assert_eq!(dir.open().current().unwrap().config.as_str(), "b");
        if over {
            assert!(sync > 6, "{sync}");
            break;
        }
    }
}

/// A fault that goes into the history alone is not in the record, neither on disk nor in memory, when that fails.
#[test]
fn giving_up_changes_nothing_when_it_fails() {
    let dir = StateDir::new();
    let mut journal = dir.begun();
    let before = journal.record().cloned();
    fsync::failing::at(1);
    journal.archive_faulted(fault("Test"), now()).unwrap_err();
    assert_eq!(journal.record(), before.as_ref());
}

/// The loop breaker counts the last written entries, whatever the clock shows meanwhile.
#[test]
fn wrong_boots_are_counted_in_order_of_writing() {
    let dir = StateDir::new();
    let mut journal = dir.open();
    let b = config("b");
    let from = journal.origin_spec().unwrap();
    begin(&mut journal, "20261120-000000-000000", &from, &b).unwrap();
    journal.commit(now()).unwrap();
    // The battery of the clock is empty: each boot begins ten years back.
    let c = config("c");
    for (number, id) in ["20161120-000000-000001", "20161120-000000-000000"].into_iter().enumerate() {
        assert_eq!(journal.wrong_boots(&c.target).unwrap(), u32::try_from(number).unwrap());
        let from = journal.origin_spec().unwrap();
        begin(&mut journal, id, &from, &c).unwrap();
        journal.archive_faulted(fault("VerificationFailed"), now()).unwrap();
    }
    assert_eq!(journal.wrong_boots(&c.target).unwrap(), 2);
    assert_eq!(journal.wrong_boots(&b.target).unwrap(), 0);
}

/// A past update that can't be read is no reason to touch nothing: it is skipped, and stays for inspection.
#[test]
fn damaged_past_update_stops_no_update() {
    type Damage = fn(&PathBuf);
    let dir = StateDir::new();
    let (b, c) = (config("b"), config("c"));
    let mut journal = dir.begun();
    journal.commit(now()).unwrap();
    let last = dir.state("history/entry-0000000001.json");
    let good = fs::read(&last).unwrap();
    let damage: [(&str, Damage); 3] = [
        ("half", |at| fs::write(at, "{\"id\": \"20261120").unwrap()),
        ("another shape", |at| fs::write(at, "[]").unwrap()),
        ("a directory", |at| {
            fs::remove_file(at).unwrap();
            fs::create_dir(at).unwrap();
        }),
    ];
    for (number, (what, damage)) in damage.into_iter().enumerate() {
        damage(&last);
        let from = journal.origin_spec().unwrap();
        assert_eq!(journal.wrong_boots(&c.target).unwrap(), u32::try_from(number).unwrap(), "{what}");
        begin(&mut journal, &format!("update-{what}").replace(' ', "-"), &from, &c).unwrap();
        journal.archive_faulted(fault("VerificationFailed"), now()).unwrap();
        assert!(last.exists(), "{what}");
    }
    begin(&mut journal, "update-b", &b.spec().unwrap(), &c).unwrap();
    drop(journal);
    let mut journal = dir.open();
    fs::remove_dir(&last).unwrap();
    fs::write(&last, good).unwrap();
    // One that is damaged after it was written is not written over.
    let newest = dir.state("history/entry-0000000004.json");
    fs::write(&newest, "").unwrap();
    journal.commit(now()).unwrap();
    assert_eq!(fs::read(&newest).unwrap(), b"");
    assert!(dir.state("history/entry-0000000005.json").exists());
}

/// A process that died as it kept an original has left a draft of it: the original may be a secret.
#[test]
fn drafts_of_kept_originals_are_removed() {
    let dir = StateDir::new();
    let mut journal = dir.begun();
    let kept = dir.state("preimages/kept");
    let draft = || {
        fs::create_dir_all(&kept).unwrap();
        fs::write(kept.join(".%2Fetc%2Fother.json.mca-new"), "secret").unwrap();
        fs::write(kept.join("%2Fetc%2Fanother.json"), r#"{"kind":"absent"}"#).unwrap();
    };
    let left = || {
        let names =
            fs::read_dir(&kept).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name.ends_with("other.json.mca-new")).count()
    };
    draft();
    journal.commit(now()).unwrap();
    assert_eq!(left(), 0, "at the end of an update");
    draft();
    drop(journal);
    drop(dir.open());
    assert_eq!(left(), 0, "at a start");
    assert!(kept.join("%2Fetc%2Fanother.json").exists());
}

/// A full history drops the entry written first, not the one with the oldest time. Files of older agents come first.
#[test]
fn full_history_forgets_oldest_written() {
    let dir = StateDir::new();
    let mut journal = dir.open();
    let b = config("b");
    let from = journal.origin_spec().unwrap();
    begin(&mut journal, "20161120-000000-000000", &from, &b).unwrap();
    journal.commit(now()).unwrap();
    let entry = fs::read(dir.state("history/entry-0000000001.json")).unwrap();
    for number in 0..MAX_ENTRIES - 1 {
        let id = format!("20261120-000000-{number:06}");
        let old = String::from_utf8(entry.clone()).unwrap().replace("20161120-000000-000000", &id);
        fs::write(dir.state(&format!("history/{id}.json")), old).unwrap();
    }
    let ids = || load(&dir.root).unwrap().entries.into_iter().map(|entry| entry.id).collect::<Vec<_>>();
    assert_eq!((ids().len(), ids()[MAX_ENTRIES - 1].as_str()), (MAX_ENTRIES, "20161120-000000-000000"));
    let c = config("c");
    begin(&mut journal, "20161120-000000-000009", &from, &c).unwrap();
    journal.commit(now()).unwrap();
    assert_eq!(ids().len(), MAX_ENTRIES);
    assert_eq!(ids()[MAX_ENTRIES - 2..], ["20161120-000000-000000", "20161120-000000-000009"]);
    assert_eq!(ids()[0], "20261120-000000-000001");
}

/// Plays updates that fail: their number, target and reason.
fn failing<'a>(journal: &'a mut Journal, from: &'a HostSpec) -> impl FnMut(usize, &str, &str) + 'a {
    move |number: usize, name: &str, reason: &str| {
        let target = config(name);
        begin(journal, &format!("update-{number:03}"), from, &target).unwrap();
        journal.fail(fault(reason), Some(&Transition::RollBack), now()).unwrap();
        journal.archive(Outcome::RolledBack, now()).unwrap();
    }
}

/// An update that is tried again all day is one entry; another reason, or another target, is another one.
#[test]
fn repeated_failures_are_one_entry() {
    let dir = StateDir::new();
    let mut journal = dir.begun();
    journal.commit(now()).unwrap();
    let from = journal.origin_spec().unwrap();
    let mut fail = failing(&mut journal, &from);
    for number in 0..MAX_ENTRIES * 2 {
        fail(number, "c", "DiskFull");
    }
    fail(500, "c", "Io");
    fail(501, "d", "Io");
    fail(502, "d", "Io");
    let entries = load(&dir.root).unwrap().entries;
    let shown: Vec<_> = entries
        .iter()
        .map(|entry| (entry.to.config.as_str(), entry.outcome.as_str(), entry.attempts, entry.id.as_str()))
        .collect();
    assert_eq!(
        shown,
        [
            ("b", "committed", 1, "update-1"),
            ("c", "rolled-back", 128, "update-127"),
            ("c", "rolled-back", 1, "update-500"),
            ("d", "rolled-back", 2, "update-502"),
        ]
    );
}

/// Two reasons in turn are two entries, and push none out; the one that failed last is the last. A target between is
/// another story.
#[test]
fn alternating_failures_are_one_entry_per_reason() {
    let dir = StateDir::new();
    let mut journal = dir.begun();
    journal.commit(now()).unwrap();
    let from = journal.origin_spec().unwrap();
    let mut fail = failing(&mut journal, &from);
    let shown = || -> Vec<_> {
        let entries = load(&dir.root).unwrap().entries;
        let reason =
            |entry: &Entry| entry.fault.as_ref().map(|fault| fault.reason.clone()).unwrap_or_default();
        entries.iter().map(|entry| (entry.id.clone(), reason(entry), entry.attempts)).collect()
    };
    let row = |id: &str, reason: &str, attempts| (id.to_owned(), reason.to_owned(), attempts);
    for number in (0..MAX_ENTRIES * 2).step_by(2) {
        fail(number, "c", "ImagePullFailed");
        fail(number + 1, "c", "OsStalled");
    }
    let first = row("update-1", "", 1);
    let both = [row("update-126", "ImagePullFailed", 64), row("update-127", "OsStalled", 64)];
    assert_eq!(shown(), [vec![first.clone()], both.to_vec()].concat());
    fail(500, "d", "ImagePullFailed");
    fail(501, "c", "OsStalled");
    fail(502, "c", "ImagePullFailed");
    let mut names = dir.root.list(&state("history")).unwrap();
    names.sort();
    let older = state(&format!("history/{}", names[names.len() - 2]));
    let bytes = dir.root.read(&older).unwrap().unwrap();
    fail(503, "c", "OsStalled");
    let after = [
        row("update-500", "ImagePullFailed", 1),
        row("update-502", "ImagePullFailed", 1),
        row("update-503", "OsStalled", 2),
    ];
    let all = [vec![first], both.to_vec(), after.to_vec()].concat();
    assert_eq!(shown(), all);
    // The end of the last write was cut off: it is repeated, and counts nothing twice.
    dir.root.replace(&older, &bytes, STATE_MODE).unwrap();
    assert_eq!(shown().len(), all.len() + 1);
    load(&dir.root).unwrap().entries.pop().unwrap().save(&dir.root).unwrap();
    assert_eq!(shown(), all);
}

/// A failed and held update has ended for people, although its record is open.
#[test]
fn held_update_is_in_history() {
    let dir = StateDir::new();
    let mut journal = dir.begun();
    assert_eq!(load_with_held(&dir.root).unwrap().entries.len(), 0, "under way");
    journal.fail(fault("Io"), Some(&Transition::RollBack), now()).unwrap();
    let entries = load_with_held(&dir.root).unwrap().entries;
    assert_eq!(entries.len(), 1);
    assert_eq!((entries[0].held, entries[0].outcome), (true, Outcome::RolledBack));
    assert_eq!(entries[0].fault.as_ref().unwrap().reason, "Io");
    journal.archive(Outcome::RolledBack, now()).unwrap();
    let entries = load_with_held(&dir.root).unwrap().entries;
    assert_eq!((entries.len(), entries[0].held), (1, false));
}

fn fault(reason: &str) -> Fault {
    Fault::from_error(crate::model::FaultClass::Degraded, reason, &fmt_error(), "nothing")
}

fn fmt_error() -> std::fmt::Error {
    std::fmt::Error
}

/// A config that was applied without its directories and links, by MCD or an earlier agent: what the host lacks of them is
/// neither compared nor written, until the entry changes.
#[test]
fn paths_that_came_with_take_over_wait_for_their_next_change() {
    use crate::model::observation::BootCount;
    use crate::model::{ManagedPath, Observation, ObservedFile};
    use crate::plan::{differences, not_held};

    let storage = |mode: u32| {
        format!(
            r#""directories":[{{"path":"/etc/d","mode":{mode}}},{{"path":"/etc/held"}}],"links":[{{"path":"/etc/l","target":"x"}}]"#
        )
    };
    let stored = |name: &str, mode: u32| {
        let text = format!(
            r#"{{"kind":"MachineConfig","metadata":{{"name":"{name}"}},"spec":{{"config":{{"ignition":{{"version":"3.4.0"}},"storage":{{{}}}}}}}}}"#,
            storage(mode)
        );
        Stored::new(MachineConfig::parse(text.as_bytes(), name).unwrap(), None, Timestamp::default())
    };
    let state = StateDir::new();
    let mut journal = state.open();
    journal.adopt(stored("a", 0o700).imported(), now()).unwrap();
    // Before anybody looked, nothing counts.
    assert_eq!(journal.current_spec().unwrap().unapplied.len(), 3);
    let observe = |spec: &HostSpec| {
        let mut observed = Facts::assumed(&HostSpec::empty(spec.name.clone()), spec).unwrap().observed;
        assert_eq!(observed.boots, BootCount::Off);
        let held = ObservedFile::Directory { mode: 0o755, uid: 0, gid: 0 };
        observed.files.insert(ManagedPath::new("/etc/held").unwrap(), held);
        observed
    };
    let settle = |journal: &mut Journal| {
        journal.settle_unapplied(|spec| Ok::<_, JournalError>(not_held(spec, &observe(spec)))).unwrap();
    };
    settle(&mut journal);
    drop(journal);
    let mut journal = state.open();
    journal.settle_unapplied(|_| -> Result<_, JournalError> { panic!("it is settled") }).unwrap();
    let mut spec = journal.current_spec().unwrap();
    let names =
        |spec: &HostSpec| spec.unapplied.iter().map(|path| path.as_str().to_owned()).collect::<Vec<_>>();
    assert_eq!(names(&spec), ["/etc/d", "/etc/l"]);
    let fields: Vec<&str> = spec.remarks.iter().map(|remark| remark.field.as_str()).collect();
    assert_eq!(fields, [r#"storage.directories "/etc/d""#, r#"storage.links "/etc/l""#]);
    let observed: Observation = observe(&spec);
    assert_eq!(differences(&spec, &observed), vec![]);

    // The directory changes and is brought in; the link waits on.
    let mut to = stored("b", 0o711).decode().unwrap();
    to.carry_over(Start::default(), &mut spec, &observed);
    assert_eq!(names(to.spec()), ["/etc/l"]);
    let facts = Facts { observed, ..Facts::assumed(&spec, to.spec()).unwrap() };
    let steps = |from: &HostSpec, to: &HostSpec| {
        let plan = plan(from, to, &facts, &DisruptionPolicy::defaults()).unwrap();
        plan.steps().iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(steps(&spec, to.spec()), ["make-directory /etc/d"]);
    // Also where nobody marked the target, as `plan` from a file.
    assert_eq!(steps(&spec, &stored("b", 0o711).spec().unwrap()), ["make-directory /etc/d"]);
    // What was never applied is not removed.
    assert_eq!(steps(&spec, &HostSpec::empty(spec.name.clone())), ["remove-directory /etc/held"]);
}

/// An update that was undone while its own deployment runs makes another one due, also beside a note that an adoption left: with
/// what it wanted of the OS, and the image that ran before the first of several.
#[test]
fn undone_deployment_is_noted_beside_earlier_note() {
    let dir = StateDir::new();
    let mut journal = dir.open();
    journal.adopt(config("a"), now()).unwrap();
    // Cut off before the removal of its note.
    fs::copy(dir.state("current.json"), dir.state("from.json")).unwrap();
    journal.release_decoded();
    assert!(journal.is_recovering().unwrap() && !journal.has_left_effects().unwrap());
    let image = |digit: &str| ImageRef::parse(&format!("r.test/os@sha256:{}", digit.repeat(64))).unwrap();
    for (name, runs) in [("b", "1"), ("c", "2")] {
        let from = journal.origin_spec().unwrap();
        begin(&mut journal, &format!("update-{name}"), &from, &config(name)).unwrap();
        journal.note(|record| record.origin_image = Some(image(runs))).unwrap();
        journal.step(&Transition::RollBack, now()).unwrap();
        journal.archive_booted(Outcome::Superseded, now()).unwrap();
        assert!(journal.has_left_effects().unwrap(), "{name}");
        let origin = journal.origin_spec().unwrap();
        assert_eq!(origin.name.as_str(), "a");
        assert_eq!(origin.left.as_ref().and_then(|left| left.before.clone()), Some(image("1")));
    }
    journal.adopt(config("a"), now()).unwrap();
    assert!(!journal.is_recovering().unwrap());
    assert_eq!(journal.origin_spec().unwrap().left, None);
}

/// `status` and `plan` take no lock: an agent beside them begins and ends updates between two of their reads.
#[test]
fn readers_see_one_state_beside_an_agent() {
    let state = StateDir::new();
    drop(state.begun());
    let is_over = std::sync::atomic::AtomicBool::new(false);
    let over = std::sync::atomic::Ordering::SeqCst;
    let (mut loaded, mut wrong) = (0, Vec::new());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut journal = state.open();
            for round in 0..100 {
                if journal.record().is_none() {
                    let from = journal.origin_spec().unwrap();
                    begin(&mut journal, &format!("update-{round}"), &from, &config("b")).unwrap();
                }
                journal.archive_faulted(fault("VerificationFailed"), now()).unwrap();
            }
            is_over.store(true, over);
        });
        while !is_over.load(over) {
            loaded += 1;
            wrong.extend(super::origin::State::load(&state.root).err().map(|error| error.to_string()));
        }
    });
    assert!(loaded > 10 && wrong.is_empty(), "{} of {loaded}: {:?}", wrong.len(), wrong.first());
}
