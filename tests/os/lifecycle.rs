//! The stages of an image-based upgrade by `stateroot.yaml`, carried out by the daemon on a real sysroot.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus, Stdio};
use std::time::Duration;

use machine_config_agent::host::root::Root;
use machine_config_agent::host::watch::Watch;
use serde_json::{Value, json};

use crate::activation::{TRIAL, is_in, prepared_seed};
use crate::backend_env::{Lab, Machine};
use crate::logind::{Comes, Logind};
use crate::stateroot::{NAME, nothing_left, running, stateroot, unchanged};

/// The directory of the daemon, as seen inside.
const DIRECTORY: &str = "/run/control";
const LONG: Duration = Duration::from_secs(120);

/// A daemon that follows the directory, in one boot.
pub struct Daemon<'b> {
    boot: &'b Machine,
    child: Child,
}

impl<'b> Daemon<'b> {
    /// Starts it; it may die at a fail point.
    pub fn start(boot: &'b Machine, point: Option<&str>) -> Self {
        Self::start_with(boot, point, "supervisor")
    }

    fn start_with(boot: &'b Machine, point: Option<&str>, reboot_by: &str) -> Self {
        let directory = boot.run_dir().join("control");
        fs::create_dir_all(&directory).unwrap();
        let log = fs::File::options().create(true).append(true).open(boot.run_dir().join("log")).unwrap();
        let words = ["daemon", "--directory", DIRECTORY, "--os-backend", "none", "--metrics-listen", "off"];
        let mut command = boot.agent(&[&words[..], &["--reboot-by", reboot_by, "--node-name", "a"]].concat());
        if let Some(point) = point {
            command.env("MCA_FAIL_POINT", point);
        }
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().unwrap();
        Self { boot, child }
    }

    fn directory(&self) -> PathBuf {
        self.boot.run_dir().join("control")
    }

    pub fn put(&self, text: &str) {
        put(self.boot, text);
    }

    fn report(&self) -> Value {
        let text = fs::read(self.directory().join("stateroot-report.json")).unwrap_or_default();
        serde_json::from_slice(&text).unwrap_or_default()
    }

    fn log(&self) -> String {
        fs::read_to_string(self.boot.run_dir().join("log")).unwrap()
    }

    /// Waits for a report.
    fn until(&self, what: &str, is: impl Fn(&Value) -> bool) -> Value {
        self.watched("/control/stateroot-report.json", what, || Some(self.report()).filter(&is))
    }

    /// The number of lines of the log with these words.
    fn logged(&self, words: &str) -> usize {
        self.log().lines().filter(|line| line.contains(words)).count()
    }

    /// Waits until so many lines have these words.
    fn until_logged(&self, what: &str, words: &str, count: usize) {
        self.watched("/log", what, || (self.logged(words) >= count).then_some(()));
    }

    /// Waits for a change of a file that has a value.
    fn watched<T>(&self, path: &str, what: &str, value: impl Fn() -> Option<T>) -> T {
        let root = Root::open(&self.boot.run_dir()).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let mut watch = Watch::new(&root, [path], []).unwrap();
            loop {
                if let Some(value) = value() {
                    return value;
                }
                let waited = tokio::time::timeout(LONG, watch.changed()).await;
                assert!(waited.is_ok(), "{what}: {:#}\n{}", self.report(), self.log());
            }
        })
    }

    /// Waits for a condition: its type, status, reason, and a part of its message.
    pub fn condition(&self, expected: [&str; 4]) -> Value {
        let what = expected.join(" ");
        self.until(&what, |report| last(report, expected))
    }

    /// Waits for the daemon's end by itself.
    fn end(mut self) -> ExitStatus {
        self.child.wait().unwrap()
    }
}

impl Drop for Daemon<'_> {
    fn drop(&mut self) {
        let pid = rustix::process::Pid::from_child(&self.child);
        if self.child.try_wait().unwrap().is_none() {
            rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
            self.child.wait().unwrap();
        }
    }
}

/// Writes the file, whether a daemon follows it or not.
fn put(boot: &Machine, text: &str) {
    let directory = boot.run_dir().join("control");
    fs::create_dir_all(&directory).unwrap();
    fs::write(directory.join("new"), text).unwrap();
    fs::rename(directory.join("new"), directory.join("stateroot.yaml")).unwrap();
}

/// The condition is there, whatever its place.
pub fn last(report: &Value, [kind, status, reason, message]: [&str; 4]) -> bool {
    let conditions = report["conditions"].as_array().cloned().unwrap_or_default();
    conditions.iter().any(|one| {
        let is = |key: &str, value: &str| one[key] == value;
        is("type", kind)
            && is("status", status)
            && is("reason", reason)
            && one["message"].as_str().unwrap().contains(message)
    })
}

pub fn stage(stage: &str, image: &str) -> String {
    format!("stage: {stage}\nimage: {image}\nversion: 4.17.2\ntrialSeconds: 5\n")
}

const IDLE: [&str; 4] = ["Idle", "True", "Idle", "Idle"];
pub const PREPARED: [&str; 4] = ["PrepCompleted", "True", "Completed", "Prep stage completed successfully"];
const UPGRADED: [&str; 4] = ["UpgradeCompleted", "True", "Completed", "Upgrade completed"];

fn state_of(lab: &Lab, stateroot: &str) -> PathBuf {
    let var = format!("sysroot/ostree/deploy/{stateroot}/var/lib/machine-config-agent");
    lab.world.dir().join(var).join("stateroot-lifecycle.json")
}

fn valid(report: &Value) -> &Value {
    &report["validNextStages"]
}

/// Starts the daemon, and waits until the seed is prepared.
fn prepared<'a>(boot: &'a Machine, image: &str) -> Daemon<'a> {
    let daemon = Daemon::start(boot, None);
    daemon.put(&stage("Prep", image));
    daemon.condition(PREPARED);
    daemon
}

/// Starts the daemon in the old system after a way back.
fn returned(boot: &Machine) -> Daemon<'_> {
    assert!(is_in(boot, "sandbox"));
    let daemon = Daemon::start(boot, None);
    // The boot closes the record of the reboot; until then the stage waits for it.
    assert_eq!(stateroot(boot, &TRIAL).code, 0);
    daemon
}

/// LCA-010, LCA-011: from idle through preparation, reboot and trial to idle again, and the file of the old system never comes
/// along.
#[test]
fn stages_lead_to_another_stateroot_and_end_idle() {
    let lab = crate::activation::lab();
    let boot = lab.boot();
    let image = prepared_seed(&lab, false);
    let before = running(&lab);
    let daemon = Daemon::start(&boot, None);
    daemon.put("stage: Upgrade\n");
    let refused = ["UpgradeInProgress", "False", "InvalidTransition", "Previous stage not succeeded"];
    assert_eq!(valid(&daemon.condition(refused)), &json!(["Prep"]));
    daemon.put(&stage("Prep", &image));
    assert_eq!(valid(&daemon.condition(PREPARED)), &json!(["Idle", "Upgrade"]));
    unchanged(&lab, &before, "after the preparation");
    daemon.put("stage: [");
    daemon.until("a half-written file", |report| report["fault"]["reason"] == "InvalidDocument");
    assert!(last(&daemon.report(), PREPARED), "the old desire stays");
    daemon.put(&stage("Upgrade", &image));
    assert_eq!(daemon.end().code(), Some(133));
    assert!(state_of(&lab, NAME).exists());
    boot.shutdown();

    let second = lab.boot();
    assert!(is_in(&second, NAME));
    let daemon = Daemon::start(&second, None);
    let report = daemon.condition(["UpgradeInProgress", "True", "InProgress", "In progress"]);
    assert_eq!(valid(&report), &json!(["Rollback"]), "it is on trial, and there is no file");
    // A file of another host ends nothing.
    assert_eq!(stateroot(&second, &TRIAL).code, 0);
    assert_eq!(valid(&daemon.condition(UPGRADED)), &json!(["Idle", "Rollback"]));
    daemon.put("stage: Idle\n");
    daemon.condition(["Idle", "False", "InvalidTransition", "does not name the version"]);
    daemon.put(&stage("Idle", &image));
    let report = daemon.condition(IDLE);
    assert_eq!((valid(&report), report["conditions"].as_array().unwrap().len()), (&json!(["Prep"]), 1));
    let left = stateroot(&second, &["list", "--output", "json"]).json();
    assert_eq!(left["stateroots"].as_array().unwrap().len(), 1, "{left:#}");
}

/// A shutdown that is taken back is requested again, and the condition says so; one that does not end the boot leaves the stage
/// listening: it can be aborted.
#[test]
fn reboot_in_vain_is_requested_again_and_desire_is_read() {
    if !rustix::process::geteuid().is_root() {
        crate::ran::not_run("reboot_in_vain_is_requested_again_and_desire_is_read", "root");
        return;
    }
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let lab = crate::activation::lab();
    let boot = lab.boot();
    let image = prepared_seed(&lab, false);
    let root = boot.run_dir().parent().unwrap().to_owned();
    let mut logind =
        runtime.block_on(Logind::start(&root, Vec::new(), vec![Comes::TakenBack, Comes::TakenBack]));
    let daemon = Daemon::start_with(&boot, None, "logind");
    daemon.put(&stage("Prep", &image));
    daemon.condition(PREPARED);
    daemon.put(&stage("Upgrade", &image));
    assert_eq!(runtime.block_on(logind.requested_times(3)).len(), 3);
    let told =
        format!("The requested reboot into the stateroot {NAME} was cancelled: requesting it again in");
    daemon.condition(["UpgradeInProgress", "True", "InProgress", &told]);
    assert_eq!(daemon.logged(&told), 2);
    // The third one has begun, and hangs.
    daemon.put(&stage("Idle", &image));
    daemon.condition(IDLE);
    assert_eq!(logind.requests().len(), 3);
    drop(daemon);
    nothing_left(&lab);
}

/// The way back by a person finds the old system as it was, and its stages go on there.
#[test]
fn rollback_stage_leads_back_and_ends_idle() {
    let lab = crate::activation::lab();
    let boot = lab.boot();
    let image = prepared_seed(&lab, false);
    let before = running(&lab);
    let daemon = prepared(&boot, &image);
    daemon.put(&stage("Upgrade", &image));
    assert_eq!(daemon.end().code(), Some(133));
    boot.shutdown();
    let second = lab.boot();
    assert_eq!(stateroot(&second, &TRIAL).code, 0);
    let daemon = Daemon::start(&second, None);
    daemon.condition(UPGRADED);
    daemon.put("stage: Rollback\n");
    assert_eq!(daemon.end().code(), Some(133));
    second.shutdown();
    let third = lab.boot();
    let daemon = returned(&third);
    let done = ["RollbackCompleted", "True", "Completed", "Rollback completed"];
    assert_eq!(valid(&daemon.condition(done)), &json!(["Idle"]));
    unchanged(&lab, &before, "after the way back");
    daemon.put("stage: Idle\n");
    daemon.condition(IDLE);
    nothing_left(&lab);
}

/// LCA-013: a system that does not prove itself is left, and the stage has failed with its reason.
#[test]
fn return_by_itself_fails_the_stage() {
    let lab = crate::activation::lab();
    let boot = lab.boot();
    let image = prepared_seed(&lab, true);
    let daemon = prepared(&boot, &image);
    daemon.put(&stage("Upgrade", &image));
    assert_eq!(daemon.end().code(), Some(133));
    boot.shutdown();
    let second = lab.boot();
    assert_eq!(stateroot(&second, &TRIAL).code, 133);
    second.power_cut();
    let third = lab.boot();
    let daemon = returned(&third);
    let failed = ["UpgradeInProgress", "False", "Failed", "is not healthy within 5 s"];
    assert_eq!(valid(&daemon.condition(failed)), &json!(["Idle"]));
    daemon.put("stage: Idle\n");
    daemon.condition(IDLE);
    nothing_left(&lab);
}

/// An abort, another seed, and a seed that is refused: nothing is left of what was begun.
#[test]
fn abort_and_refusal_leave_nothing() {
    let lab = crate::activation::lab();
    let boot = lab.boot();
    let image = prepared_seed(&lab, false);
    let before = running(&lab);
    let hook = boot.root().join("etc/machine-config-agent/lifecycle.d/after-prepare/10-no");
    let daemon = Daemon::start(&boot, None);
    daemon.put(&stage("Prep", &image).replace("4.17.2", "4.17.3"));
    let refused = ["PrepInProgress", "False", "Failed", "the seed is of version 4.17.2"];
    assert_eq!(valid(&daemon.condition(refused)), &json!(["Idle"]));
    daemon.put(&stage("Prep", "registry.test/seed:latest"));
    daemon.condition(["PrepInProgress", "False", "Failed", "registry.test/seed:latest"]);
    daemon.put(&stage("Idle", &image));
    daemon.condition(IDLE);
    nothing_left(&lab);
    // Prepared, then not wanted.
    daemon.put(&stage("Prep", &image));
    daemon.condition(PREPARED);
    daemon.put("stage: Idle\n");
    daemon.condition(IDLE);
    nothing_left(&lab);
    unchanged(&lab, &before, "after an abort");
    // A program of the administrator fails the stage with its last line.
    fs::create_dir_all(hook.parent().unwrap()).unwrap();
    fs::write(&hook, "no program\n").unwrap();
    fs::set_permissions(&hook, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    daemon.put(&stage("Prep", &image));
    daemon.condition(["PrepInProgress", "False", "Failed", "hook after-prepare/10-no failed: "]);
    daemon.put("stage: Idle\n");
    daemon.condition(IDLE);
    nothing_left(&lab);
}

/// Killed wherever it could stop, another process goes on from what was written down.
#[test]
fn stages_go_on_after_a_kill() {
    let lab = crate::activation::lab();
    let mut boot = lab.boot();
    let image = prepared_seed(&lab, false);
    for (name, wanted) in [
        ("lifecycle-recorded", "Prep"),
        ("stateroot-recorded", "Prep"),
        ("stateroot-ran", "Prep"),
        ("stateroot-closing", "Prep"),
        ("lifecycle-handed-over", "Upgrade"),
        ("stateroot-attempted", "Upgrade"),
    ] {
        put(&boot, "stage: Idle\n");
        let daemon = Daemon::start(&boot, None);
        daemon.condition(IDLE);
        if wanted == "Upgrade" {
            daemon.put(&stage("Prep", &image));
            daemon.condition(PREPARED);
        }
        drop(daemon);
        let daemon = Daemon::start(&boot, Some(&format!("kill:{name}")));
        daemon.put(&stage(wanted, &image));
        assert_eq!(daemon.end().code(), Some(128 + 9), "{name}");
        let daemon = Daemon::start(&boot, None);
        if wanted == "Prep" {
            daemon.condition(PREPARED);
            continue;
        }
        assert_eq!(daemon.end().code(), Some(133), "{name}");
        if name == "lifecycle-handed-over" {
            // Before the reboot it can be aborted.
            continue;
        }
        boot.shutdown();
        boot = lab.boot();
        assert!(is_in(&boot, NAME), "{name}");
    }
}

/// A program of the new system that fails: the machine returns by itself, and the stage has failed with the program's name.
#[test]
fn failed_hook_after_the_activation_returns() {
    let lab = crate::activation::lab();
    let boot = lab.boot();
    let image = prepared_seed(&lab, false);
    let before = running(&lab);
    let daemon = prepared(&boot, &image);
    let deployments = lab.world.dir().join("sysroot/ostree/deploy").join(NAME).join("deploy");
    let mut found = fs::read_dir(deployments).unwrap().map(|entry| entry.unwrap().path());
    let hook = found.find(|path| path.is_dir()).unwrap();
    let hook = hook.join("etc/machine-config-agent/lifecycle.d/after-activate/10-no");
    fs::create_dir_all(hook.parent().unwrap()).unwrap();
    fs::write(&hook, "no program\n").unwrap();
    fs::set_permissions(&hook, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    daemon.put(&stage("Upgrade", &image));
    assert_eq!(daemon.end().code(), Some(133));
    boot.shutdown();
    let second = lab.boot();
    assert!(is_in(&second, NAME));
    assert_eq!(stateroot(&second, &TRIAL).code, 0, "the trial itself is passed");
    let daemon = Daemon::start(&second, None);
    assert_eq!(daemon.end().code(), Some(133));
    second.shutdown();
    let third = lab.boot();
    let daemon = returned(&third);
    let failed = ["UpgradeInProgress", "False", "Failed", "hook after-activate/10-no failed: "];
    assert_eq!(valid(&daemon.condition(failed)), &json!(["Idle"]));
    unchanged(&lab, &before, "after the return");
    daemon.put("stage: Idle\n");
    daemon.condition(IDLE);
    nothing_left(&lab);
}

/// A power cut after the hand-over, before the new system is the next to boot: the boot is of the old one, which goes on.
#[test]
fn power_cut_before_the_default_goes_on() {
    for point in ["lifecycle-handed-over", "stateroot-recorded", "stateroot-ran"] {
        let lab = crate::activation::lab();
        let boot = lab.boot();
        let image = prepared_seed(&lab, false);
        let daemon = prepared(&boot, &image);
        drop(daemon);
        let daemon = Daemon::start(&boot, Some(&format!("kill:{point}")));
        daemon.put(&stage("Upgrade", &image));
        assert_eq!(daemon.end().code(), Some(128 + 9), "{point}");
        boot.power_cut();
        let second = lab.boot();
        assert!(is_in(&second, "sandbox"), "{point}");
        assert_eq!(stateroot(&second, &TRIAL).code, 0, "{point}");
        let daemon = Daemon::start(&second, None);
        assert_eq!(daemon.end().code(), Some(133), "{point}");
        second.shutdown();
        let third = lab.boot();
        assert!(is_in(&third, NAME), "{point}");
        assert_eq!(stateroot(&third, &TRIAL).code, 0, "{point}");
        Daemon::start(&third, None).condition(UPGRADED);
    }
}

/// A stage that an unprivileged user could have written is not carried out: owner or writer of the file or of its directory. The
/// time of the file means nothing: a clock that was set is no reason not to read it.
#[test]
fn stage_of_an_unprivileged_user_is_not_carried_out() {
    use std::os::unix::fs::{PermissionsExt as _, chown};
    let lab = crate::activation::lab();
    let boot = lab.boot();
    let mut daemon = Daemon::start(&boot, None);
    daemon.put("stage: Idle\n");
    daemon.condition(IDLE);
    let (directory, file) = (daemon.directory(), daemon.directory().join("stateroot.yaml"));
    let mode = |path: &Path, mode: u32| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    let owner = |path: &Path, uid: u32| chown(path, Some(uid), None).unwrap();
    let (of_file, of_directory) = ("stateroot.yaml is not used", "stateroot.yaml is not touched");
    let cases: [(&str, &Path, Option<u32>); 6] = [
        (of_file, &file, None),
        (of_file, &file, Some(0o646)),
        (of_file, &file, Some(0o664)),
        (of_directory, &directory, None),
        (of_directory, &directory, Some(0o777)),
        (of_directory, &directory, Some(0o775)),
    ];
    for (refusal, path, bad) in cases {
        let good = fs::metadata(path).unwrap().permissions().mode();
        let what = format!("{} {bad:?}", path.display());
        let refused = daemon.logged(refusal);
        bad.map_or_else(|| owner(path, 1000), |bad| mode(path, bad));
        daemon.until_logged(&what, refusal, refused + 1);
        // As that user could. Another process reads it anew; with such a directory none would start.
        fs::write(&file, "stage: Upgrade\n").unwrap();
        if refusal == of_file {
            drop(daemon);
            daemon = Daemon::start(&boot, None);
            daemon.until_logged(&what, refusal, refused + 2);
        }
        fs::write(&file, "stage: Idle\n").unwrap();
        let used = daemon.logged("is used again");
        owner(path, 0);
        mode(path, good);
        daemon.until_logged(&what, "is used again", used + 1);
        let report = daemon.until(&what, |report| report["fault"].is_null() && last(report, IDLE));
        assert_eq!(report["desired"]["stage"], "Idle", "{what}");
        // It would have been refused, because nothing is prepared.
        assert_eq!(report["conditions"].as_array().unwrap().len(), 1, "{what}: {report:#}");
    }
    let day = Duration::from_secs(86_400);
    let (past, future) = (std::time::UNIX_EPOCH + day, std::time::SystemTime::now() + day * 36_500);
    for (stage, time) in [("Upgrade", past), ("Idle", future)] {
        let new = directory.join("new");
        fs::write(&new, format!("stage: {stage}\n")).unwrap();
        fs::File::options().write(true).open(&new).unwrap().set_modified(time).unwrap();
        fs::rename(&new, &file).unwrap();
        daemon.until(stage, |report| report["desired"]["stage"] == stage);
    }
}
