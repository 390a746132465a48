//! logind's words against a peer that plays logind; the finalization against one that plays systemd.

use std::sync::{Arc, Mutex};

use zbus::Connection;
use zbus::zvariant::{OwnedObjectPath, OwnedValue};

use super::RebootKind;
use super::logind::reboot;
use crate::host::systemd::{ServiceOutcome, ShutdownHook};
use crate::host::{HostError, Systemd};
use crate::model::{FaultClass, UnitName};

/// Methods of a logind.
#[derive(Clone, Copy)]
enum Age {
    /// No flags at all.
    Before246,
    /// No soft reboot.
    Before254,
    New,
}

struct Logind {
    age: Age,
    asked: Arc<Mutex<Vec<String>>>,
}

#[zbus::interface(name = "org.freedesktop.login1.Manager")]
impl Logind {
    fn reboot_with_flags(&self, flags: u64) -> zbus::fdo::Result<()> {
        match (self.age, flags & 4) {
            (Age::Before246, _) => return Err(zbus::fdo::Error::UnknownMethod("no such method".to_owned())),
            (Age::Before254, 4) => return Err(zbus::fdo::Error::InvalidArgs("flags".to_owned())),
            (Age::Before254 | Age::New, _) => {}
        }
        self.asked.lock().unwrap().push(format!("flags {flags}"));
        Ok(())
    }

    fn reboot(&self, interactive: bool) {
        self.asked.lock().unwrap().push(format!("interactive {interactive}"));
    }
}

async fn peer<I: zbus::object_server::Interface>(path: &str, object: I) -> (Connection, Connection) {
    let (ours, theirs) = tokio::net::UnixStream::pair().unwrap();
    let server = zbus::connection::Builder::unix_stream(theirs).server(zbus::Guid::generate()).unwrap().p2p();
    let server = server.serve_at(path, object).unwrap();
    let client = zbus::connection::Builder::unix_stream(ours).p2p();
    let (server, client) = tokio::join!(server.build(), client.build());
    (server.unwrap(), client.unwrap())
}

/// A soft reboot where logind knows it, else a whole one; a block by root is refused by every logind that can.
#[tokio::test(flavor = "current_thread")]
async fn reboot_request_fits_version_of_logind() {
    for (age, kind, asked) in [
        (Age::New, RebootKind::Whole, "flags 1"),
        (Age::New, RebootKind::Soft, "flags 5"),
        (Age::Before254, RebootKind::Whole, "flags 1"),
        (Age::Before254, RebootKind::Soft, "flags 1"),
        (Age::Before246, RebootKind::Whole, "interactive false"),
        (Age::Before246, RebootKind::Soft, "interactive false"),
    ] {
        let requested = Arc::default();
        let logind = Logind { age, asked: Arc::clone(&requested) };
        let (_server, bus) = peer("/org/freedesktop/login1", logind).await;
        reboot(&bus, kind).await.unwrap();
        assert_eq!(*requested.lock().unwrap(), [asked]);
    }
}

const UNIT: &str = "/org/freedesktop/systemd1/unit/ostree_2dfinalize_2dstaged_2eservice";

/// A unit, and its state after a start.
#[derive(Clone)]
struct Finalizer {
    state: Arc<Mutex<&'static str>>,
    started: &'static str,
    conflicts: &'static str,
}

#[zbus::interface(name = "org.freedesktop.systemd1.Unit")]
impl Finalizer {
    #[zbus(property)]
    fn active_state(&self) -> String {
        (*self.state.lock().unwrap()).to_owned()
    }

    #[zbus(property)]
    fn conflicts(&self) -> Vec<String> {
        vec!["other.service".to_owned(), self.conflicts.to_owned()]
    }
}

struct Manager(Finalizer);

#[zbus::interface(name = "org.freedesktop.systemd1.Manager")]
impl Manager {
    #[expect(clippy::unused_self, reason = "the interface's shape")]
    fn subscribe(&self) {}

    #[expect(clippy::unused_self, reason = "the interface's shape")]
    fn load_unit(&self, name: &str) -> OwnedObjectPath {
        assert_eq!(name, "ostree-finalize-staged.service");
        UNIT.try_into().unwrap()
    }

    async fn start_unit(
        &self,
        name: &str,
        mode: &str,
        #[zbus(connection)] bus: &Connection,
    ) -> OwnedObjectPath {
        assert_eq!(mode, "replace");
        *self.0.state.lock().unwrap() = self.0.started;
        let job = OwnedObjectPath::try_from("/org/freedesktop/systemd1/job/7").unwrap();
        let manager = ("/org/freedesktop/systemd1", "org.freedesktop.systemd1.Manager");
        let ended = (7_u32, job.clone(), name, "done");
        bus.emit_signal(None::<()>, manager.0, manager.1, "JobRemoved", &ended).await.unwrap();
        job
    }
}

/// CRA-007, MCD-212: a reboot is requested only when the unit that finalizes the staged deployment is active and is
/// stopped by the shutdown; one that is not active is started.
#[tokio::test(flavor = "current_thread")]
async fn finalization_is_ordered_before_shutdown_or_there_is_no_reboot() {
    for (state, started, conflicts, cause) in [
        ("active", "failed", "final.target", None),
        ("inactive", "active", "final.target", None),
        ("inactive", "active", "shutdown.target", None),
        ("inactive", "inactive", "final.target", Some("it is inactive, although it was started")),
        ("failed", "failed", "final.target", Some("it is failed, although it was started")),
        (
            "active",
            "active",
            "sleep.target",
            Some("it conflicts neither with shutdown.target nor with final.target"),
        ),
    ] {
        let unit = Finalizer { state: Arc::new(Mutex::new(state)), started, conflicts };
        let (server, bus) = peer("/org/freedesktop/systemd1", Manager(unit.clone())).await;
        server.object_server().at(UNIT, unit).await.unwrap();
        let name = UnitName::new("ostree-finalize-staged.service").unwrap();
        match (Systemd::given(bus).stopped_by_shutdown(&name).await, cause) {
            (Ok(outcome), None) => assert_eq!(outcome, ServiceOutcome::Done),
            (Err(error @ HostError::NotStopped { .. }), Some(cause)) => {
                assert!(error.to_string().starts_with("no reboot: ostree-finalize-staged.service would not"));
                assert!(error.to_string().ends_with(cause), "{error}");
                assert_eq!((error.class(), error.reason()), (FaultClass::Retry, "FinalizationNotReady"));
            }
            (outcome, cause) => panic!("{state}, {started}: {outcome:?}, not {cause:?}"),
        }
    }
}

/// Requests to a systemd that starts transient units; the second one of a name is refused.
#[derive(Clone, Default)]
struct Started(Arc<Mutex<Vec<(String, String)>>>);

#[zbus::interface(name = "org.freedesktop.systemd1.Manager")]
impl Started {
    #[expect(clippy::unused_self, reason = "the interface's shape")]
    fn subscribe(&self) {}

    async fn start_transient_unit(
        &self,
        name: &str,
        mode: &str,
        properties: Vec<(String, OwnedValue)>,
        aux: Vec<(String, Vec<(String, OwnedValue)>)>,
        #[zbus(connection)] bus: &Connection,
    ) -> Result<OwnedObjectPath, Refused> {
        assert!(mode == "fail" && aux.is_empty());
        if !self.0.lock().unwrap().is_empty() {
            return Err(Refused::UnitExists(format!("Unit {name} was already loaded.")));
        }
        let words = |(key, value): (String, OwnedValue)| (key, value.to_string());
        self.0.lock().unwrap().extend(properties.into_iter().map(words));
        let job = OwnedObjectPath::try_from("/org/freedesktop/systemd1/job/7").unwrap();
        let manager = ("/org/freedesktop/systemd1", "org.freedesktop.systemd1.Manager");
        bus.emit_signal(None::<()>, manager.0, manager.1, "JobRemoved", &(7_u32, job.clone(), name, "done"))
            .await
            .unwrap();
        Ok(job)
    }
}

#[derive(Debug, zbus::DBusError)]
#[zbus(prefix = "org.freedesktop.systemd1")]
enum Refused {
    UnitExists(String),
}

/// OCL-018: the program runs once the finalization has ended, and the shutdown waits for it. The whole of it:
/// `vm-tests/tests/leave_image_mode.py`.
#[tokio::test(flavor = "current_thread")]
async fn program_of_shutdown_runs_after_finalization() {
    let started = Started::default();
    let (_server, bus) = peer("/org/freedesktop/systemd1", started.clone()).await;
    let name = |name: &str| UnitName::new(name).unwrap();
    let command = ["/usr/bin/x".to_owned(), "y".to_owned()];
    let last = ShutdownHook {
        unit: &name("last.service"),
        description: "last",
        command: &command,
        log_name: "z",
        after: &name("ostree-finalize-staged.service"),
        mounts: &["/sysroot"],
    };
    let systemd = Systemd::given(bus);
    // It is requested at each try of the reboot.
    for _ in 0..2 {
        assert_eq!(systemd.at_shutdown(&last).await.unwrap(), ServiceOutcome::Done);
    }
    let asked: std::collections::BTreeMap<_, _> = started.0.lock().unwrap().clone().into_iter().collect();
    // Started before it, so stopped after it; and in time.
    for (key, value) in [
        ("Before", r#"["ostree-finalize-staged.service", "final.target"]"#),
        ("Conflicts", r#"["final.target"]"#),
        ("DefaultDependencies", "false"),
        ("RemainAfterExit", "true"),
        ("RequiresMountsFor", r#"["/sysroot"]"#),
        ("ExecStop", r#"[("/usr/bin/x", ["/usr/bin/x", "y"], false)]"#),
    ] {
        assert_eq!(asked.get(key).map(String::as_str), Some(value), "{key}");
    }
    assert!(!asked.contains_key("ExecStart"), "nothing runs before");
}
