//! State of a service, in systemd's terms.

use std::time::Duration;

use zbus::Connection;
use zbus::zvariant::{OwnedObjectPath, OwnedValue};

use super::active::loaded;
use super::bus::Systemd;
use super::call::{MANAGER, OBJECT, SERVICE_UNIT, UNIT, property, within};
use crate::host::HostError;
use crate::model::{Timestamp, UnitName};

/// systemd answers such a question within milliseconds; a person waits.
const ANSWER: Duration = Duration::from_secs(3);
/// `waitid(2)`: the process ended by itself.
const EXITED: i32 = 1;

/// A service's state.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ServiceState {
    /// Load state of its unit file: `loaded`, `not-found`, `masked`.
    pub load: String,
    /// `active`, `activating`, `inactive`, `failed` and so on.
    pub active: String,
    /// `running`, `auto-restart`, `dead` and so on.
    pub sub: String,
    /// Result of its last run: `success`, `exit-code`, `signal`, `watchdog` and so on.
    pub result: String,
    /// `enabled`, `disabled` and so on.
    pub file: String,
    /// The exit code of its last process.
    pub exit: Option<i32>,
    /// The signal that ended its last process.
    pub signal: Option<i32>,
    /// Time of its last change of state.
    pub since: Option<Timestamp>,
    /// Set if its conditions were met at its last start.
    pub condition: bool,
    /// Set if a job of it, such as its start at the boot, waits for others.
    pub queued: bool,
    /// Set if the machine goes down: what is stopped then is missed by nobody.
    pub goes_down: bool,
    /// Its own line on its state.
    pub text: String,
}

impl Systemd {
    /// Reads the state of a service from systemd; `None` where no systemd runs for the root. Needs no privilege.
    pub async fn service(&self, unit: &UnitName) -> Result<Option<ServiceState>, HostError> {
        within(format!("systemd (the state of {unit})"), ANSWER, async {
            let Some(bus) = self.connect().await? else { return Ok(None) };
            let path = loaded(&bus, unit).await?;
            let of_unit = async |name| property::<String>(&bus, &path, UNIT, name).await;
            let mut state = ServiceState {
                load: of_unit("LoadState").await.unwrap_or_default(),
                active: of_unit("ActiveState").await?,
                sub: of_unit("SubState").await.unwrap_or_default(),
                // The rest only explains these.
                file: of_unit("UnitFileState").await.unwrap_or_default(),
                result: property(&bus, &path, SERVICE_UNIT, "Result").await.unwrap_or_default(),
                condition: property(&bus, &path, UNIT, "ConditionResult").await.unwrap_or(true),
                text: property(&bus, &path, SERVICE_UNIT, "StatusText").await.unwrap_or_default(),
                queued: is_queued(&bus, &path).await,
                goes_down: goes_down(&bus).await,
                ..ServiceState::default()
            };
            let since: u64 = property(&bus, &path, UNIT, "StateChangeTimestamp").await.unwrap_or_default();
            state.since = (since > 0).then(|| Timestamp::from_micros(since));
            let checked_at: u64 =
                property(&bus, &path, UNIT, "ConditionTimestampMonotonic").await.unwrap_or_default();
            state.condition |= checked_at == 0;
            let code: i32 = property(&bus, &path, SERVICE_UNIT, "ExecMainCode").await.unwrap_or_default();
            let status: i32 = property(&bus, &path, SERVICE_UNIT, "ExecMainStatus").await.unwrap_or_default();
            match code {
                0 => {}
                EXITED => state.exit = Some(status),
                _ => state.signal = Some(status),
            }
            Ok(Some(state))
        })
        .await
    }
}

/// Returns true if systemd stops everything.
async fn goes_down(bus: &Connection) -> bool {
    let Ok(manager) = OwnedObjectPath::try_from(OBJECT) else { return false };
    property::<String>(bus, &manager, MANAGER, "SystemState").await.is_ok_and(|state| state == "stopping")
}

/// Returns true if a job of the unit is not done.
async fn is_queued(bus: &Connection, path: &OwnedObjectPath) -> bool {
    let job = property::<OwnedValue>(bus, path, UNIT, "Job").await;
    let job = job.ok().and_then(|job| <(u32, OwnedObjectPath)>::try_from(job).ok());
    job.is_some_and(|(id, _)| id != 0)
}
