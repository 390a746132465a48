//! systemd's signals: the end of a job, a change of one unit; and that systemd itself is gone.
//!
//! Invariant: signals between the first call and the reply are kept, and a systemd that leaves the bus ends every
//! wait with an error that names this.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};

use zbus::export::futures_core::Stream;
use zbus::zvariant::{ObjectPath, OwnedObjectPath};
use zbus::{Connection, MatchRule, Message, MessageStream};

use super::call::{MANAGER, SERVICE, bus_error};
use crate::host::HostError;

/// Signals that wait while the reply is on its way: more than the jobs of a whole boot.
const QUEUE: usize = 1024;

/// Interface of the unit's property changes.
const PROPERTIES: &str = "org.freedesktop.DBus.Properties";

/// A signal of the manager.
#[derive(Debug)]
pub(super) enum ManagerSignal {
    /// A job ended.
    JobRemoved(JobResult),
    /// The unit that was listened to has changed.
    UnitChanged,
}

/// A job that ended.
#[derive(Debug)]
pub(super) struct JobResult {
    /// The job.
    pub(super) job: OwnedObjectPath,
    /// Its unit.
    pub(super) unit: String,
    /// systemd's word for how.
    pub(super) result: String,
}

/// Signals of interest.
#[derive(Debug)]
pub(super) struct Signals {
    method: &'static str,
    jobs: MessageStream,
    changes: Option<MessageStream>,
    owner: MessageStream,
}

impl Signals {
    /// Listens to the ends of jobs, and to the changes of a unit where one is named. `method` is for errors.
    pub(super) async fn listen(
        bus: &Connection,
        method: &'static str,
        unit: Option<&ObjectPath<'_>>,
    ) -> Result<Self, HostError> {
        let opened = async {
            let signal = || MatchRule::builder().msg_type(zbus::message::Type::Signal);
            let jobs = signal().sender(SERVICE)?.interface(MANAGER)?.member("JobRemoved")?.build();
            let left = signal().interface("org.freedesktop.DBus")?.member("NameOwnerChanged")?;
            let owner = left.sender("org.freedesktop.DBus")?.arg(0, SERVICE)?.build();
            let changes = match unit {
                Some(path) => {
                    let rule =
                        signal().sender(SERVICE)?.interface(PROPERTIES)?.member("PropertiesChanged")?;
                    let rule = rule.path(path.to_owned())?.build();
                    Some(MessageStream::for_match_rule(rule, bus, Some(QUEUE)).await?)
                }
                None => None,
            };
            Ok(Self {
                method,
                jobs: MessageStream::for_match_rule(jobs, bus, Some(QUEUE)).await?,
                changes,
                owner: MessageStream::for_match_rule(owner, bus, None).await?,
            })
        };
        opened.await.map_err(|source| bus_error(method, source))
    }

    /// Returns the next signal. Cancel-safe: a message is taken from its queue only when it is returned.
    pub(super) async fn next(&mut self) -> Result<ManagerSignal, HostError> {
        let method = self.method;
        let failed = |source: zbus::Error| bus_error(method, source);
        poll_fn(|context| self.poll(context)).await.map_err(failed)
    }

    /// Waits for the end of a job; other signals are ignored.
    pub(super) async fn end_of(
        &mut self,
        job: &OwnedObjectPath,
        early: Vec<ManagerSignal>,
    ) -> Result<JobResult, HostError> {
        let mut early = early.into_iter();
        loop {
            let signal = match early.next() {
                Some(signal) => signal,
                None => self.next().await?,
            };
            match signal {
                ManagerSignal::JobRemoved(end) if end.job == *job => return Ok(end),
                ManagerSignal::JobRemoved(_) | ManagerSignal::UnitChanged => {}
            }
        }
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<zbus::Result<ManagerSignal>> {
        if let Poll::Ready(message) = Pin::new(&mut self.jobs).poll_next(context) {
            return Poll::Ready(present(message).and_then(|message| ended(&message)));
        }
        if let Some(changes) = &mut self.changes
            && let Poll::Ready(message) = Pin::new(changes).poll_next(context)
        {
            return Poll::Ready(present(message).map(|_| ManagerSignal::UnitChanged));
        }
        while let Poll::Ready(message) = Pin::new(&mut self.owner).poll_next(context) {
            match present(message).and_then(|message| left(&message)) {
                Ok(true) => return Poll::Ready(Err(gone())),
                Ok(false) => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        Poll::Pending
    }
}

fn present(message: Option<zbus::Result<Message>>) -> zbus::Result<Message> {
    let closed = || zbus::Error::Failure("the bus closed the connection".to_owned());
    message.ok_or_else(closed).and_then(|message| message)
}

fn ended(message: &Message) -> zbus::Result<ManagerSignal> {
    let (_, job, unit, result): (u32, OwnedObjectPath, String, String) = message.body().deserialize()?;
    Ok(ManagerSignal::JobRemoved(JobResult { job, unit, result }))
}

/// Returns true if systemd has left the bus; a name without a previous owner, or with a new one, does not count.
fn left(message: &Message) -> zbus::Result<bool> {
    let (_, old, _): (String, String, String) = message.body().deserialize()?;
    Ok(!old.is_empty())
}

fn gone() -> zbus::Error {
    zbus::Error::Failure(format!("{SERVICE} left the bus before it signaled the end of its job"))
}
