//! State of the host's agent: its lock shows that it runs, and systemd why not.

use serde::Serialize;

use super::super::last_report::SavedReport;
use crate::host::root::Holder;
use crate::host::systemd::ServiceState;
use crate::host::{Host, HostError};
use crate::journal::{JournalError, place};
use crate::model::ids::AGENT_UNIT;
use crate::model::text::chain;
use crate::model::{FaultClass, UnitName};
use crate::telemetry::notify::WAITS_FOR;
use crate::update::Fault;

/// Facts of the agent.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of systemd, or of the lock")]
pub(super) struct AgentStatus {
    /// `None`: unknown.
    pub(super) running: Option<bool>,
    /// Its process, if it is in this namespace.
    pub(super) pid: Option<i32>,
    /// Set if it should run: it is enabled, or it died.
    pub(super) expected: bool,
    /// True while its unit starts it.
    #[serde(skip)]
    pub(super) starts: bool,
    /// True if it was stopped because the machine goes down.
    #[serde(skip)]
    pub(super) goes_down: bool,
    /// True if its unit is masked.
    #[serde(skip)]
    pub(super) is_masked: bool,
    /// Its state, human-readable.
    pub(super) text: String,
    /// Since when it does not run, RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) since: Option<String>,
    /// File of its first target, which it waits for.
    #[serde(skip)]
    pub(super) awaits: Option<String>,
}

/// An update that was left in the middle.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Unfinished {
    /// Its id.
    pub(super) update: String,
    /// Its phase.
    pub(super) phase: String,
}

/// Its lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lock {
    Held(Holder),
    Free,
    /// This user may not look at it.
    Unknown,
}

impl AgentStatus {
    /// Reads the lock and systemd's state.
    pub(super) async fn read(host: &Host, left: Option<&SavedReport>) -> Result<Self, JournalError> {
        let lock = match place::holder(&host.root) {
            Err(JournalError::Host(error)) if error.is_denied() => Lock::Unknown,
            other => other?.map_or(Lock::Free, Lock::Held),
        };
        let Ok(unit) = UnitName::new(AGENT_UNIT) else { return Ok(Self::unknown(String::new())) };
        let service = host.systemd.service(&unit).await;
        Ok(Self::known(lock, service, left))
    }

    fn unknown(text: String) -> Self {
        let (running, pid, since, awaits) = (None, None, None, None);
        let (starts, goes_down, is_masked) = (false, false, false);
        Self { running, pid, expected: false, starts, goes_down, is_masked, text, since, awaits }
    }

    /// Returns true if it works, or was never requested.
    pub(super) fn is_well(&self) -> bool {
        self.running == Some(true) || !self.expected
    }

    fn known(
        lock: Lock,
        service: Result<Option<ServiceState>, HostError>,
        left: Option<&SavedReport>,
    ) -> Self {
        if let Lock::Held(Holder { pid }) = lock {
            let text = pid.map_or("running".to_owned(), |pid| format!("running (pid {pid})"));
            return Self { running: Some(true), pid, expected: true, ..Self::unknown(text) };
        }
        let died = left.is_some_and(|left| !left.stopped);
        match service {
            Ok(Some(service)) if service.load != "not-found" => Self::of_service(lock, &service),
            Ok(_) if lock == Lock::Unknown => {
                Self::unknown("not known (only root can read its lock)".to_owned())
            }
            Ok(_) => {
                let why = match left {
                    Some(SavedReport { stopped: false, .. }) => "its process died",
                    Some(_) => "it was stopped",
                    None => "no unit of systemd starts it",
                };
                Self { running: Some(false), expected: died, ..Self::unknown(format!("not running ({why})")) }
            }
            Err(error) => {
                let text = format!("not running ({})", chain(&error));
                Self { running: (lock == Lock::Free).then_some(false), expected: died, ..Self::unknown(text) }
            }
        }
    }

    fn of_service(lock: Lock, service: &ServiceState) -> Self {
        if lock == Lock::Unknown && matches!(service.active.as_str(), "active" | "reloading") {
            return Self { running: Some(true), expected: true, ..Self::unknown("running".to_owned()) };
        }
        // It holds no lock: it has touched nothing of the host.
        if let (true, Some(file)) = (service.active == "active", service.text.strip_prefix(WAITS_FOR)) {
            let text = format!("waiting for {file}, which does not exist");
            return Self { running: Some(false), awaits: Some(file.to_owned()), ..Self::unknown(text) };
        }
        let failed = service.active == "failed" || is_restarted(service);
        let is_due = service.active == "inactive" && service.queued;
        let starts = is_due || (service.active == "activating" && !failed);
        let expected = failed || starts || service.file == "enabled";
        let goes_down = service.goes_down && !failed;
        let text = match (goes_down, starts) {
            (true, _) => "stopped: the machine goes down".to_owned(),
            (false, true) => "starting".to_owned(),
            (false, false) => format!("not running ({})", service_text(service)),
        };
        let since = service.since.filter(|_| !starts).map(|since| since.to_string());
        let is_masked = service.load == "masked";
        let starts = starts && !goes_down;
        Self { running: Some(false), expected, starts, goes_down, is_masked, since, ..Self::unknown(text) }
    }

    /// Returns the fault of an agent that should run and does not, of a host with a config that nothing watches any more, or of an open
    /// update that no agent continues.
    pub(super) fn fault(&self, unfinished: Option<&Unfinished>, is_managed: bool) -> Option<Fault> {
        if self.running != Some(false) || self.starts || self.goes_down {
            return None;
        }
        let fault = |message: String, next: String| {
            Some(Fault { class: FaultClass::Degraded, reason: "AgentNotRunning".to_owned(), message, next })
        };
        if let (Some(file), true) = (&self.awaits, is_managed) {
            return fault(
                format!("nothing watches the config of this host: the agent is {}", self.text),
                format!("Write {file} again; if another agent manages this host, disable {AGENT_UNIT}."),
            );
        }
        if self.is_masked && (is_managed || self.expected) {
            return fault(
                format!("nothing watches the config of this host: the agent is {}", self.text),
                format!("`systemctl unmask {AGENT_UNIT}`, then `systemctl start {AGENT_UNIT}`."),
            );
        }
        if self.expected {
            return fault(
                format!("no process follows the target of this node: the agent is {}", self.text),
                format!(
                    "See `systemctl status {AGENT_UNIT}` and `journalctl -u {AGENT_UNIT} -p warning -b`."
                ),
            );
        }
        let Unfinished { update, phase } = unfinished?;
        fault(
            format!(
                "no process continues update {update}, which is in phase {phase}: the agent is {}",
                self.text
            ),
            format!(
                "Repeat the `apply` that began it, or give the agent a target and `systemctl start {AGENT_UNIT}`."
            ),
        )
    }
}

/// Returns true while systemd waits to start it again.
fn is_restarted(service: &ServiceState) -> bool {
    service.sub.starts_with("auto-restart")
}

fn service_text(service: &ServiceState) -> String {
    let mut words =
        vec![if is_restarted(service) { "restarting" } else { service.active.as_str() }.to_owned()];
    if !["", "success", "exit-code", "signal"].contains(&service.result.as_str()) {
        words.push(service.result.clone());
    }
    if !service.condition {
        words.push("a condition of its unit is not met".to_owned());
    }
    if service.active != "inactive" || service.result != "success" {
        words.extend(service.exit.map(|code| format!("exit {code}")));
        let killed = if service.result == "signal" { "killed by signal" } else { "signal" };
        words.extend(service.signal.map(|signal| format!("{killed} {signal}")));
    }
    if service.file == "disabled" || service.load == "masked" {
        words.push(if service.load == "masked" { "masked" } else { "disabled" }.to_owned());
    }
    words.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service(active: &str, result: &str, file: &str) -> ServiceState {
        let word = |word: &str| word.to_owned();
        let (load, sub) = (word("loaded"), word("dead"));
        let (active, result, file) = (word(active), word(result), word(file));
        ServiceState { load, active, sub, result, file, condition: true, ..ServiceState::default() }
    }

    fn status_of(service: ServiceState) -> AgentStatus {
        AgentStatus::known(Lock::Free, Ok(Some(service)), None)
    }

    /// A dead agent is named with systemd's facts of its end.
    #[test]
    fn dead_agent_is_fault_with_its_exit() {
        let dead = status_of(ServiceState { exit: Some(104), ..service("failed", "exit-code", "enabled") });
        assert_eq!(dead.text, "not running (failed, exit 104)");
        assert_eq!(dead.fault(None, false).unwrap().reason, "AgentNotRunning");
        let killed = status_of(ServiceState { signal: Some(9), ..service("failed", "watchdog", "disabled") });
        assert_eq!(killed.text, "not running (failed, watchdog, signal 9, disabled)");
        assert!(killed.fault(None, false).is_some());
        let again =
            ServiceState { sub: "auto-restart".to_owned(), ..service("activating", "exit-code", "enabled") };
        assert_eq!(
            status_of(ServiceState { exit: Some(102), ..again }).text,
            "not running (restarting, exit 102)"
        );
    }

    /// Issue 33: at each boot a poller read Degraded, and Done where the unit is masked.
    #[test]
    fn starting_masked_and_killed_agents_are_named() {
        let boots = ServiceState { queued: true, ..service("inactive", "success", "enabled") };
        let starts = ServiceState { sub: "start".to_owned(), ..service("activating", "success", "enabled") };
        for starting in [boots, starts] {
            let starting = status_of(starting);
            assert_eq!((starting.text.as_str(), starting.fault(None, true)), ("starting", None));
            assert!(!starting.is_well(), "it is not there yet");
        }
        for queued in [false, true] {
            let sub = "auto-restart-queued".to_owned();
            let again = ServiceState { sub, queued, ..service("activating", "signal", "enabled") };
            let again = status_of(ServiceState { signal: Some(9), ..again });
            assert_eq!(again.text, "not running (restarting, killed by signal 9)");
            assert!(again.fault(None, true).is_some());
        }
        let down = ServiceState { goes_down: true, ..service("inactive", "success", "enabled") };
        let down = status_of(down);
        assert_eq!((down.text.as_str(), down.fault(None, true)), ("stopped: the machine goes down", None));
        assert!(!down.is_well(), "nothing follows the target");
        let masked = ServiceState { load: "masked".to_owned(), ..service("inactive", "success", "masked") };
        let masked = status_of(masked);
        assert_eq!(masked.text, "not running (inactive, masked)");
        assert_eq!(masked.fault(None, false), None, "a host that was never managed");
        let fault = masked.fault(None, true).unwrap();
        assert!(fault.next.starts_with("`systemctl unmask "), "{}", fault.next);
    }

    /// A disabled agent is not missed; an enabled one is.
    #[test]
    fn only_expected_agent_is_missed() {
        let disabled = status_of(service("inactive", "success", "disabled"));
        assert_eq!(disabled.fault(None, false), None);
        let unfinished = Unfinished { update: "u1".to_owned(), phase: "Verifying".to_owned() };
        let fault = disabled.fault(Some(&unfinished), false).unwrap();
        assert!(fault.message.contains("update u1, which is in phase Verifying"), "{}", fault.message);
        let skipped = ServiceState { condition: false, ..service("inactive", "success", "enabled") };
        let skipped = status_of(skipped);
        assert_eq!(skipped.text, "not running (inactive, a condition of its unit is not met)");
        assert!(skipped.fault(None, false).is_some());
        let absent = ServiceState { load: "not-found".to_owned(), ..ServiceState::default() };
        assert_eq!(status_of(absent).text, "not running (no unit of systemd starts it)");
        assert_eq!(AgentStatus::known(Lock::Free, Ok(None), None).fault(None, false), None);
    }

    /// Nobody misses an agent that waits for its first target; an update that was left in the middle is named.
    #[test]
    fn agent_without_target_waits() {
        let text = "Waits for /etc/machine-config-agent/target.yaml".to_owned();
        let waits = status_of(ServiceState { text, ..service("active", "success", "enabled") });
        assert_eq!(waits.text, "waiting for /etc/machine-config-agent/target.yaml, which does not exist");
        assert_eq!((waits.fault(None, false), waits.is_well()), (None, true));
        let unfinished = Unfinished { update: "u1".to_owned(), phase: "Verifying".to_owned() };
        assert!(
            waits
                .fault(Some(&unfinished), false)
                .unwrap()
                .message
                .contains("target.yaml, which does not exist")
        );
        let managed = waits.fault(None, true).unwrap();
        assert!(
            managed.next.starts_with("Write /etc/machine-config-agent/target.yaml again"),
            "{}",
            managed.next
        );
    }

    /// Its lock counts, whatever systemd knows: in a pod it is no unit of the host.
    #[test]
    fn held_lock_is_running_agent() {
        let inactive = service("inactive", "success", "enabled");
        let unfinished = Unfinished { update: "u1".to_owned(), phase: "Applying".to_owned() };
        let observed = AgentStatus::known(Lock::Held(Holder { pid: Some(7) }), Ok(Some(inactive)), None);
        assert_eq!(
            (observed.running, observed.text.as_str(), observed.fault(Some(&unfinished), false)),
            (Some(true), "running (pid 7)", None)
        );
        let unprivileged =
            AgentStatus::known(Lock::Unknown, Ok(Some(service("active", "success", "enabled"))), None);
        assert_eq!(unprivileged.running, Some(true));
        assert_eq!(AgentStatus::known(Lock::Unknown, Ok(None), None).running, None);
    }
}
