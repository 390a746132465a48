//! systemd's logind: the block inhibitors of a shutdown, whether one is in progress, and the reboot itself.

use std::fmt;
use std::pin::Pin;
use std::time::Duration;

use zbus::export::futures_core::Stream as _;
use zbus::message::Type as Kind;
use zbus::proxy::CacheProperties;
use zbus::{Connection, MatchRule, Message, MessageStream};

use super::{Power, RebootKind, Rebooting, read_boot_id};
use crate::host::root::Root;
use crate::host::systemd::bus;
use crate::host::{BoxFuture, HostError};
use crate::model::BootId;

const SERVICE: &str = "org.freedesktop.login1";
const OBJECT: &str = "/org/freedesktop/login1";
/// logind answers at once; it only starts the reboot.
const ANSWER: Duration = Duration::from_secs(30);
/// Refuses the shutdown if an inhibitor blocks it, root or not: a block that was taken after the check holds, too.
const CHECK_INHIBITORS: u64 = 1;
/// Leave the kernel running.
const SOFT_REBOOT: u64 = 1 << 2;
/// Unread messages in the queue: the inhibitors are read again after any of them.
const QUEUE: usize = 64;

/// An inhibitor: what, who, why, mode, uid and pid.
type Row = (String, String, String, String, u32, u32);

/// The agent's calls of logind (org.freedesktop.login1(5)).
#[zbus::proxy(
    interface = "org.freedesktop.login1.Manager",
    default_service = "org.freedesktop.login1",
    default_path = "/org/freedesktop/login1",
    gen_blocking = false
)]
trait Manager {
    fn list_inhibitors(&self) -> zbus::Result<Vec<Row>>;
    fn reboot(&self, interactive: bool) -> zbus::Result<()>;
    fn reboot_with_flags(&self, flags: u64) -> zbus::Result<()>;
    #[zbus(property)]
    fn preparing_for_shutdown(&self) -> zbus::Result<bool>;
}

/// Its properties are not cached, and nothing is read before it is needed.
async fn manager(bus: &Connection) -> Result<ManagerProxy<'static>, HostError> {
    let made = ManagerProxy::builder(bus).cache_properties(CacheProperties::No).build().await;
    made.map_err(|source| error("connecting to logind", source))
}

/// A machine with systemd's logind.
#[derive(Debug)]
pub struct Logind {
    root: Root,
}

impl Logind {
    /// Takes the root, which holds the boot's id and the system bus.
    pub fn new(root: &Root) -> Self {
        Self { root: root.clone() }
    }
}

impl Power for Logind {
    fn boot_id(&self) -> Result<BootId, HostError> {
        read_boot_id(&self.root)
    }

    fn listen(&self) -> BoxFuture<'_, Result<Option<ShutdownMonitor>, HostError>> {
        Box::pin(async { ShutdownMonitor::listen(bus::system(&self.root).await?).await.map(Some) })
    }

    fn reboot<'a>(&'a self, kind: RebootKind, why: &'a str) -> BoxFuture<'a, Result<Rebooting, HostError>> {
        Box::pin(async move {
            tracing::info!(why, "Requesting a reboot from logind: {why}");
            let bus = bus::system(&self.root).await?;
            match reboot(&bus, kind).await {
                // The bus goes down with the machine, at times before the answer: the result shows in a moment.
                Err(error) if is_cut(&error) => Ok(Rebooting::Requested),
                answer => answer.map(|()| Rebooting::Requested),
            }
        })
    }
}

/// Requests the reboot by the methods of this logind.
pub(super) async fn reboot(bus: &Connection, kind: RebootKind) -> Result<(), HostError> {
    let manager = manager(bus).await?;
    let with_flags = |flags| within("RebootWithFlags", manager.reboot_with_flags(flags));
    if kind == RebootKind::Soft {
        match with_flags(CHECK_INHIBITORS | SOFT_REBOOT).await {
            Err(error) if is_unknown(&error) => {
                tracing::info!(
                    "This systemd has no soft reboot (254 or later has): rebooting the whole machine"
                );
            }
            answer => return answer,
        }
    }
    match with_flags(CHECK_INHIBITORS).await {
        // Not interactive: no one can be asked for a password.
        Err(error) if is_unknown(&error) => within("Reboot", manager.reboot(false)).await,
        answer => answer,
    }
}

/// Returns true if logind is too old for the call or its flags.
fn is_unknown(error: &HostError) -> bool {
    let HostError::Bus { source, .. } = error else { return false };
    let Some(zbus::Error::MethodError(name, ..)) = source.downcast_ref::<zbus::Error>() else { return false };
    matches!(
        name.as_str(),
        "org.freedesktop.DBus.Error.UnknownMethod" | "org.freedesktop.DBus.Error.InvalidArgs"
    )
}

/// Returns true if the connection ended after the call was sent.
fn is_cut(error: &HostError) -> bool {
    let HostError::Bus { source, .. } = error else { return false };
    matches!(source.downcast_ref::<zbus::Error>(), Some(zbus::Error::InputOutput(_)))
}

/// A logind block inhibitor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inhibitor {
    who: String,
    why: String,
    uid: u32,
    pid: u32,
}

impl fmt::Display for Inhibitor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (pid {}, uid {}): {}", self.who, self.pid, self.uid, self.why)
    }
}

/// logind's signals about shutdowns, from its creation on: a change after a look is not missed.
pub struct ShutdownMonitor {
    manager: ManagerProxy<'static>,
    signals: MessageStream,
    owners: MessageStream,
    begun: bool,
}

impl fmt::Debug for ShutdownMonitor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Shutdowns")
    }
}

impl ShutdownMonitor {
    pub(super) async fn listen(bus: Connection) -> Result<Self, HostError> {
        let failed = |source| error("listening to logind", source);
        let signals = MatchRule::builder().msg_type(Kind::Signal).path(OBJECT).map_err(failed)?.build();
        // A logind that was restarted has sent no changes meanwhile.
        let owner = MatchRule::builder()
            .msg_type(Kind::Signal)
            .interface("org.freedesktop.DBus")
            .and_then(|rule| rule.member("NameOwnerChanged"))
            .and_then(|rule| rule.add_arg(SERVICE))
            .map_err(failed)?
            .build();
        let signals = MessageStream::for_match_rule(signals, &bus, Some(QUEUE)).await.map_err(failed)?;
        let owners = MessageStream::for_match_rule(owner, &bus, Some(QUEUE)).await.map_err(failed)?;
        Ok(Self { manager: manager(&bus).await?, signals, owners, begun: false })
    }

    /// Returns the block inhibitors of the shutdown. Delay inhibitors are logind's business.
    pub async fn block_inhibitors(&self) -> Result<Vec<Inhibitor>, HostError> {
        let rows = within("ListInhibitors", self.manager.list_inhibitors()).await?;
        let blocks =
            |what: &str, mode: &str| mode == "block" && what.split(':').any(|word| word == "shutdown");
        Ok(rows
            .into_iter()
            .filter(|(what, _, _, mode, ..)| blocks(what, mode))
            .map(|(_, who, why, _, uid, pid)| Inhibitor { who, why, uid, pid })
            .collect())
    }

    /// Returns true if a shutdown was begun and not canceled.
    pub async fn preparing(&self) -> Result<bool, HostError> {
        within("PreparingForShutdown", self.manager.preparing_for_shutdown()).await
    }

    /// Returns true if logind has signaled that a shutdown begins; it may have been canceled since.
    pub fn was_begun(&self) -> bool {
        self.begun
    }

    /// Waits until another look may see something else. Cancel-safe: an unread signal stays in its queue.
    pub async fn changed(&mut self) -> Result<(), HostError> {
        loop {
            let message = tokio::select! {
                // Cancel-safe, both: a message is taken from its queue only when it is returned.
                message = next(&mut self.signals) => message,
                message = next(&mut self.owners) => message,
            }
            .map_err(|source| error("listening to logind", source))?;
            let header = message.header();
            let member = header.member().map_or("", |member| member.as_str());
            if member == "PrepareForShutdown" {
                self.begun |= message.body().deserialize::<bool>().unwrap_or_default();
                return Ok(());
            }
            if matches!(member, "PropertiesChanged" | "NameOwnerChanged") {
                return Ok(());
            }
        }
    }
}

async fn next(stream: &mut MessageStream) -> zbus::Result<Message> {
    let message = std::future::poll_fn(|context| Pin::new(&mut *stream).poll_next(context)).await;
    message.unwrap_or_else(|| Err(zbus::Error::Failure("the bus closed the connection".to_owned())))
}

/// Bounds a call in time, and names it in its error.
async fn within<T>(call: &str, answer: impl Future<Output = zbus::Result<T>>) -> Result<T, HostError> {
    let name = || format!("login1: {call}");
    match tokio::time::timeout(ANSWER, answer).await {
        Ok(answer) => answer.map_err(|source| error(&name(), source)),
        Err(_) => Err(HostError::Timeout { object: name(), seconds: ANSWER.as_secs() }),
    }
}

fn error(call: &str, source: zbus::Error) -> HostError {
    HostError::Bus { call: call.to_owned(), source: Box::new(source) }
}
