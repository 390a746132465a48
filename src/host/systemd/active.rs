//! Waiting for units to be active, by systemd's signals.
//!
//! Nothing is polled: a unit is listened to before it is looked at, and looked at again after each change of it and each
//! job that ended for it. A unit that failed may be started again by systemd: it is only not active yet.

use std::time::Duration;

use zbus::Connection;
use zbus::zvariant::OwnedObjectPath;

use super::LINKS_TIMEOUT;
use super::bus::Systemd;
use super::call::{SERVICE_UNIT, UNIT, bus_error, call, property, subscribe, within};
use super::signals::{ManagerSignal, Signals};
use crate::host::redact::redact;
use crate::host::{HostError, command};
use crate::model::UnitName;

/// Callback of a wait.
type OnWait<'a> = dyn Fn(String) + 'a;

impl Systemd {
    /// Waits until all units are active at the same time, no longer than given; returns the messages of those that
    /// are not, and reports meanwhile which one it waits for. Where no systemd runs there are no units to wait for.
    pub async fn active(
        &self,
        units: &[UnitName],
        limit: Duration,
        on_wait: &OnWait<'_>,
    ) -> Result<Vec<String>, HostError> {
        if units.is_empty() {
            return Ok(Vec::new());
        }
        let Some(bus) = self.connect().await? else { return Ok(Vec::new()) };
        if let Ok(done) = tokio::time::timeout(limit, all_active(&bus, units, on_wait)).await {
            return done.map(|()| Vec::new());
        }
        // Looked at once in any case, also when no time was left at the start.
        let found = within("the states of units".to_owned(), LINKS_TIMEOUT, inactive(&bus, units)).await?;
        Ok(self.with_last_lines(found).await)
    }
}

impl Systemd {
    /// Adds each unit's own last line. Only on the machine, and no longer than a moment: the states are enough.
    async fn with_last_lines(&self, found: Vec<(String, String)>) -> Vec<String> {
        let mut lines = Vec::new();
        for (unit, state) in found {
            let last = if self.is_machine() { last_line(&unit).await } else { None };
            lines.push(describe(&unit, &state, last.as_deref()));
        }
        lines
    }
}

/// The journal of one unit in one boot, from its end: at once.
const JOURNAL: Duration = Duration::from_secs(5);

/// Returns the last line of a unit's own processes in this boot, redacted.
async fn last_line(unit: &str) -> Option<String> {
    let of_unit = format!("_SYSTEMD_UNIT={unit}");
    let words = ["--quiet", "--no-pager", "--output=cat", "--boot=0", "--lines=1", &of_unit];
    let text = command::output("journalctl", &words, JOURNAL).await.ok()?;
    Some(command::last_words(&redact(&text))).filter(|line| !line.is_empty())
}

fn describe(unit: &str, state: &str, last: Option<&str>) -> String {
    match last {
        Some(last) => format!("{unit} is {state}; its last line: {last}"),
        None => format!("{unit} is {state}"),
    }
}

/// One that was active may not be any more when the last one is: all are looked at again then.
async fn all_active(bus: &Connection, units: &[UnitName], on_wait: &OnWait<'_>) -> Result<(), HostError> {
    subscribe(bus).await?;
    loop {
        let mut waited = false;
        for unit in units {
            waited |= comes_up(bus, unit, on_wait).await?;
        }
        if !waited {
            return Ok(());
        }
    }
}

/// Waits until a unit is active; returns true if that took a change.
async fn comes_up(bus: &Connection, unit: &UnitName, on_wait: &OnWait<'_>) -> Result<bool, HostError> {
    let path = loaded(bus, unit).await?;
    let mut signals = Signals::listen(bus, "LoadUnit", Some(&path)).await?;
    let mut waited = false;
    while state(bus, &path).await?.is_some() {
        if !std::mem::replace(&mut waited, true) {
            // Not with its state: one that is started again and again has another one each time.
            on_wait(format!("{unit}, which is not active yet"));
        }
        loop {
            match signals.next().await? {
                ManagerSignal::UnitChanged => break,
                ManagerSignal::JobRemoved(end) if end.unit == unit.as_str() => break,
                ManagerSignal::JobRemoved(_) => {}
            }
        }
    }
    Ok(waited)
}

/// Returns the units that are not active, with their state.
async fn inactive(bus: &Connection, units: &[UnitName]) -> Result<Vec<(String, String)>, HostError> {
    let mut found = Vec::new();
    for unit in units {
        let path = loaded(bus, unit).await?;
        if let Some(state) = state(bus, &path).await? {
            found.push((unit.to_string(), state));
        }
    }
    Ok(found)
}

/// Returns the object of a unit; one that systemd had no reason to know yet is loaded.
pub(super) async fn loaded(bus: &Connection, unit: &UnitName) -> Result<OwnedObjectPath, HostError> {
    let reply = call(bus, "LoadUnit", &(unit.as_str(),)).await?;
    reply.body().deserialize().map_err(|source| bus_error("LoadUnit", source))
}

/// Returns systemd's words for a unit that is not active: its state, and further facts.
async fn state(bus: &Connection, path: &OwnedObjectPath) -> Result<Option<String>, HostError> {
    let state: String = property(bus, path, UNIT, "ActiveState").await?;
    if matches!(state.as_str(), "active" | "reloading") {
        return Ok(None);
    }
    let mut more = Vec::new();
    // Not every kind of unit has all of them.
    for (interface, name) in [(UNIT, "SubState"), (UNIT, "LoadState"), (SERVICE_UNIT, "Result")] {
        let word: String = property(bus, path, interface, name).await.unwrap_or_default();
        if !["", "loaded", "success", "dead", state.as_str()].contains(&word.as_str()) {
            more.push(word);
        }
    }
    Ok(Some(if more.is_empty() { state } else { format!("{state} ({})", more.join(", ")) }))
}

#[cfg(test)]
mod tests {
    use super::describe;

    /// The unit's own last line is more than its state.
    #[test]
    fn unit_is_named_with_its_last_line() {
        assert_eq!(
            describe("kubelet.service", "failed (exit-code)", None),
            "kubelet.service is failed (exit-code)"
        );
        let last = Some("failed to load kubelet config file");
        assert_eq!(
            describe("kubelet.service", "failed", last),
            "kubelet.service is failed; its last line: failed to load kubelet config file"
        );
    }
}
