//! Plays systemd: `org.freedesktop.systemd1` on a real connection, with the faults that a real one shows rarely.
//!
//! Jobs end as a test sets. Links are made by systemd's own `systemctl --root`. Transient units really run their
//! command, with the files and the descriptors that they are given.
#![allow(
    dead_code,
    clippy::disallowed_types,
    clippy::needless_pass_by_value,
    clippy::unused_self,
    reason = "it runs programs as systemd does, and its methods have the shape of the interface"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use zbus::Connection;
use zbus::zvariant::{OwnedObjectPath, OwnedValue, Value};

mod unit;

pub(crate) use unit::Unit;
use unit::{ServiceView, UnitView};

pub(crate) const OBJECT: &str = "/org/freedesktop/systemd1";
pub(crate) const MANAGER: &str = "org.freedesktop.systemd1.Manager";

/// Results and times of the jobs of `RestartUnit` and `ReloadUnit`.
#[derive(Debug, Clone)]
pub(crate) struct Jobs {
    /// systemd's word.
    pub(crate) result: &'static str,
    /// True if the end is signaled before the reply that names the job.
    pub(crate) before_reply: bool,
    /// Duration of the job.
    pub(crate) takes: Duration,
    /// State of the unit afterwards: its `ActiveState`, its `Result`, and the delay until then.
    pub(crate) then: (&'static str, &'static str, Duration),
    /// True if systemd leaves the bus instead of ending the job.
    pub(crate) leaves: bool,
    /// True if systemd never answers the call.
    pub(crate) mute: bool,
}

impl Default for Jobs {
    fn default() -> Self {
        let then = ("active", "success", Duration::ZERO);
        Self { result: "done", before_reply: true, takes: Duration::ZERO, then, leaves: false, mute: false }
    }
}

/// Behavior, and recorded calls.
#[derive(Debug, Default)]
pub(crate) struct State {
    /// Results of jobs.
    pub(crate) jobs: Jobs,
    /// The version that it reports.
    pub(crate) version: String,
    /// Number of restarts of user space; an old systemd does not count.
    pub(crate) soft_reboots: Option<u32>,
    /// The root in which links are made.
    pub(crate) root: Option<PathBuf>,
    /// A link that it makes beyond what was asked for.
    pub(crate) extra: Option<String>,
    /// Error that it returns instead of making links.
    pub(crate) refuses: Option<String>,
    /// The calls that change something, with their arguments.
    pub(crate) asked: Vec<String>,
    pub(crate) units: BTreeMap<String, Unit>,
    /// The directory in which the states of units outlive this process.
    kept: Option<PathBuf>,
    clients: BTreeSet<String>,
    next_job: u32,
}

/// The double; its state is shared with the test.
#[derive(Debug, Clone)]
pub(crate) struct Double(pub(crate) Arc<Mutex<State>>);

/// An error of systemd.
#[derive(Debug, zbus::DBusError)]
#[zbus(prefix = "org.freedesktop.systemd1")]
pub(crate) enum Refusal {
    #[zbus(error)]
    ZBus(zbus::Error),
    UnitExists(String),
    NoSuchUnit(String),
    UnitMasked(String),
    AlreadySubscribed(String),
}

/// The number and the object of a job.
type Job = (u32, OwnedObjectPath);
type Changes = Vec<(String, String, String)>;
type Properties = Vec<(String, OwnedValue)>;

impl Double {
    pub(crate) fn new(version: &str) -> Self {
        Self(Arc::new(Mutex::new(State { version: version.to_owned(), ..State::default() })))
    }

    /// Takes the units of a directory, one file each with its state, and keeps their changes there.
    pub(crate) fn keep_units(&self, directory: &str) {
        let mut state = self.state();
        for entry in std::fs::read_dir(directory).unwrap() {
            let entry = entry.unwrap();
            let active = std::fs::read_to_string(entry.path()).unwrap();
            let unit = Unit { active, ..Unit::default() };
            state.units.insert(entry.file_name().into_string().unwrap(), unit);
        }
        state.kept = Some(PathBuf::from(directory));
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    fn job(&self) -> Job {
        let mut state = self.state();
        state.next_job += 1;
        let number = state.next_job;
        (number, OwnedObjectPath::try_from(format!("{OBJECT}/job/{number}")).unwrap())
    }

    /// Serves the object of a unit; its properties are read from the state.
    async fn serve_unit(&self, bus: &Connection, name: &str) -> OwnedObjectPath {
        let path = unit_path(name);
        let (unit, service) = (UnitView::new(self, name), ServiceView::new(self, name));
        let (one, other) =
            (bus.object_server().at(&path, unit).await, bus.object_server().at(&path, service).await);
        one.and(other).map(drop).unwrap();
        path
    }

    /// Links below `/etc`, instead of others, are all that the agent requests.
    fn links(&self, verb: &str, units: &[String], runtime: bool, force: bool) -> Result<Changes, Refusal> {
        assert!(!runtime && force, "{verb}");
        self.systemctl(verb, units)
    }

    /// Runs `systemctl --root` and returns its refusal, if there is one.
    fn systemctl(&self, verb: &str, units: &[String]) -> Result<Changes, Refusal> {
        let mut state = self.state();
        state.asked.push(format!("{verb} {}", units.join(" ")));
        if let Some(words) = &state.refuses {
            return Err(Refusal::UnitMasked(words.clone()));
        }
        let Some(root) = &state.root else { return Ok(Vec::new()) };
        let mut systemctl = std::process::Command::new("systemctl");
        systemctl.arg(format!("--root={}", root.display())).args(["--force", verb]).args(units);
        let output = systemctl.output().unwrap();
        if let Some(extra) = &state.extra {
            let at = root.join("etc/systemd/system").join(extra);
            std::fs::create_dir_all(at.parent().unwrap()).unwrap();
            std::os::unix::fs::symlink("/usr/lib/systemd/system/crio.service", at).unwrap();
        }
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        if output.status.success() { Ok(Vec::new()) } else { Err(Refusal::UnitMasked(said)) }
    }

    async fn end(self, bus: Connection, job: Job, unit: String, result: String) {
        let body = (job.0, job.1, unit, result);
        // The test may be over.
        drop(bus.emit_signal(None::<()>, OBJECT, MANAGER, "JobRemoved", &body).await);
    }

    /// Ends the job that stops a unit; one that failed stays until it is reset.
    async fn forget(&self, bus: &Connection, job: Job, name: String) {
        if self.state().kept.is_some() {
            self.change(bus, &name, |unit| "inactive".clone_into(&mut unit.active)).await;
            return self.clone().end(bus.clone(), job, name, "done".to_owned()).await;
        }
        let failed = |unit: &Unit| unit.active == "failed";
        if !self.state().units.get(&name).is_some_and(failed) {
            self.state().units.remove(&name);
        }
        self.clone().end(bus.clone(), job, name, "done".to_owned()).await;
    }

    /// Changes a unit, and signals it.
    pub(crate) async fn change(&self, bus: &Connection, name: &str, change: impl FnOnce(&mut Unit)) {
        change(self.state().units.entry(name.to_owned()).or_default());
        let state = self.state().units.get(name).map(|unit| unit.active.clone()).unwrap_or_default();
        if let Some(kept) = &self.state().kept {
            std::fs::write(kept.join(name), &state).unwrap();
        }
        let changed = BTreeMap::from([("ActiveState", Value::from(state))]);
        let body = ("org.freedesktop.systemd1.Unit", changed, Vec::<String>::new());
        let properties = "org.freedesktop.DBus.Properties";
        drop(bus.emit_signal(None::<()>, unit_path(name), properties, "PropertiesChanged", &body).await);
    }

    /// Plays one job of a unit that is there.
    async fn play(&self, bus: &Connection, unit: String) -> OwnedObjectPath {
        let jobs = self.state().jobs.clone();
        if jobs.mute {
            std::future::pending::<()>().await;
        }
        let job = self.job();
        let path = job.1.clone();
        self.serve_unit(bus, &unit).await;
        self.change(bus, &unit, |unit| "active".clone_into(&mut unit.active)).await;
        if jobs.leaves {
            bus.release_name("org.freedesktop.systemd1").await.unwrap();
            return path;
        }
        // Other jobs end first, more than the usual 64 that a queue holds.
        for _ in 0..100 {
            let other = self.job();
            self.clone().end(bus.clone(), other, "other.service".to_owned(), "failed".to_owned()).await;
        }
        let (double, bus) = (self.clone(), bus.clone());
        let ending = async move {
            if !jobs.takes.is_zero() {
                tokio::time::sleep(jobs.takes).await;
            }
            let (active, result, after) = jobs.then;
            let change =
                |unit: &mut Unit| (unit.active, unit.result) = (active.to_owned(), result.to_owned());
            if after.is_zero() {
                double.change(&bus, &unit, change).await;
            }
            double.clone().end(bus.clone(), job, unit.clone(), jobs.result.to_owned()).await;
            if !after.is_zero() {
                tokio::time::sleep(after).await;
                double.change(&bus, &unit, change).await;
            }
        };
        if jobs.before_reply && jobs.takes.is_zero() && after_is_zero(&self.state().jobs) {
            ending.await;
        } else {
            tokio::spawn(ending);
        }
        path
    }
}

fn after_is_zero(jobs: &Jobs) -> bool {
    jobs.then.2.is_zero()
}

/// The object of a unit; systemd escapes the name in the same manner.
fn unit_path(name: &str) -> OwnedObjectPath {
    let escape =
        |c: char| if c.is_ascii_alphanumeric() { c.to_string() } else { format!("_{:02x}", u32::from(c)) };
    OwnedObjectPath::try_from(format!("{OBJECT}/unit/{}", name.chars().map(escape).collect::<String>()))
        .unwrap()
}

#[zbus::interface(name = "org.freedesktop.systemd1.Manager")]
impl Double {
    #[zbus(property)]
    fn version(&self) -> String {
        self.state().version.clone()
    }

    #[zbus(property)]
    fn soft_reboots_count(&self) -> zbus::fdo::Result<u32> {
        let count = self.state().soft_reboots;
        count.ok_or_else(|| zbus::fdo::Error::UnknownProperty("SoftRebootsCount".to_owned()))
    }

    fn subscribe(&self, #[zbus(header)] header: zbus::message::Header<'_>) -> Result<(), Refusal> {
        // Of a connection that speaks to one test alone there is no name.
        let client = header.sender().map(ToString::to_string).unwrap_or_default();
        let first = self.state().clients.insert(client);
        if first {
            Ok(())
        } else {
            Err(Refusal::AlreadySubscribed("Client is already subscribed.".to_owned()))
        }
    }

    fn reload(&self) {
        self.state().asked.push("reload".to_owned());
    }

    async fn restart_unit(
        &self,
        unit: String,
        mode: String,
        #[zbus(connection)] bus: &Connection,
    ) -> Result<OwnedObjectPath, Refusal> {
        self.state().asked.push(format!("restart {unit} {mode}"));
        if unit.starts_with("no-such") {
            return Err(Refusal::NoSuchUnit(format!("Unit {unit} not found.")));
        }
        Ok(self.play(bus, unit).await)
    }

    async fn start_unit(
        &self,
        unit: String,
        mode: String,
        #[zbus(connection)] bus: &Connection,
    ) -> Result<OwnedObjectPath, Refusal> {
        self.state().asked.push(format!("start {unit} {mode}"));
        if !self.state().units.contains_key(&unit) {
            return Err(Refusal::NoSuchUnit(format!("Unit {unit} not found.")));
        }
        let refused = |kept: &PathBuf| kept.join(format!("{unit}.refused")).exists();
        if self.state().kept.as_ref().is_some_and(refused) {
            return Err(Refusal::UnitMasked(format!("Unit {unit} is masked.")));
        }
        Ok(self.play(bus, unit).await)
    }

    async fn reload_unit(
        &self,
        unit: String,
        mode: String,
        #[zbus(connection)] bus: &Connection,
    ) -> Result<OwnedObjectPath, Refusal> {
        self.state().asked.push(format!("reload {unit} {mode}"));
        Ok(self.play(bus, unit).await)
    }

    fn get_unit(&self, name: String) -> Result<OwnedObjectPath, Refusal> {
        let state = self.state();
        let known = state.units.contains_key(&name).then(|| unit_path(&name));
        known.ok_or_else(|| Refusal::NoSuchUnit(format!("Unit {name} not loaded.")))
    }

    async fn load_unit(&self, name: String, #[zbus(connection)] bus: &Connection) -> OwnedObjectPath {
        self.serve_unit(bus, &name).await
    }

    async fn start_transient_unit(
        &self,
        name: String,
        mode: String,
        properties: Properties,
        aux: Vec<(String, Properties)>,
        #[zbus(connection)] bus: &Connection,
    ) -> Result<OwnedObjectPath, Refusal> {
        assert!(mode == "fail" && aux.is_empty());
        if self.state().units.contains_key(&name) {
            return Err(Refusal::UnitExists(format!(
                "Unit {name} was already loaded or has a fragment file."
            )));
        }
        // Its object comes first: as with systemd, no client sees a unit without its properties.
        self.serve_unit(bus, &name).await;
        let (unit, child) = Unit::start(&properties);
        self.state().asked.push(format!("start {name}"));
        self.state().units.insert(name.clone(), unit);
        let (double, bus, job) = (self.clone(), bus.clone(), self.job());
        let path = job.1.clone();
        // It counts as started before its command has done anything.
        self.clone().end(bus.clone(), job, name.clone(), "done".to_owned()).await;
        tokio::spawn(async move {
            let ended = child.wait().await;
            double.change(&bus, &name, |unit: &mut Unit| unit.end(ended)).await;
            let stop = double.state().units.get_mut(&name).and_then(|unit| unit.stop.take());
            if let Some(job) = stop {
                double.forget(&bus, job, name).await;
            }
        });
        Ok(path)
    }

    async fn stop_unit(
        &self,
        name: String,
        mode: String,
        #[zbus(connection)] bus: &Connection,
    ) -> Result<OwnedObjectPath, Refusal> {
        assert_eq!(mode, "replace");
        self.state().asked.push(format!("stop {name}"));
        let job = self.job();
        let path = job.1.clone();
        let pid = match self.state().units.get_mut(&name) {
            None => return Err(Refusal::NoSuchUnit(format!("Unit {name} not loaded."))),
            Some(unit) => {
                // The job ends with the process; no other one of that name starts before.
                unit.stop = unit.pid.is_some().then(|| job.clone());
                unit.pid
            }
        };
        match pid {
            None => self.forget(bus, job, name).await,
            Some(pid) => {
                let killed = std::process::Command::new("kill").arg(pid.to_string()).status();
                assert!(killed.is_ok());
            }
        }
        Ok(path)
    }

    fn reset_failed_unit(&self, name: String) -> Result<(), Refusal> {
        let gone = self.state().units.remove(&name);
        gone.map(drop).ok_or_else(|| Refusal::NoSuchUnit(format!("Unit {name} not loaded.")))
    }

    fn enable_unit_files(
        &self,
        files: Vec<String>,
        runtime: bool,
        force: bool,
    ) -> Result<(bool, Changes), Refusal> {
        Ok((true, self.links("enable", &files, runtime, force)?))
    }

    fn disable_unit_files(&self, files: Vec<String>, runtime: bool) -> Result<Changes, Refusal> {
        self.links("disable", &files, runtime, true)
    }

    fn preset_unit_files(
        &self,
        files: Vec<String>,
        runtime: bool,
        force: bool,
    ) -> Result<(bool, Changes), Refusal> {
        Ok((true, self.links("preset", &files, runtime, force)?))
    }

    fn mask_unit_files(&self, files: Vec<String>, runtime: bool, force: bool) -> Result<Changes, Refusal> {
        self.links("mask", &files, runtime, force)
    }

    fn unmask_unit_files(&self, files: Vec<String>, runtime: bool) -> Result<Changes, Refusal> {
        self.links("unmask", &files, runtime, true)
    }
}
