//! The objects on the bus: the sysroot, and the one OS.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use zbus::message::Header;
use zbus::names::ErrorName;
use zbus::object_server::SignalEmitter;
use zbus::zvariant::{ObjectPath, OwnedValue, Type, Value};
use zbus::{Connection, DBusError, Message, interface};

use crate::backing::{Deployment, Job};
use crate::transaction::Transaction;
use crate::{Daemon, SOCKET};

/// An `a{sv}` in the order in which it was sent: calls are the same when their bytes are.
#[derive(Debug, Type)]
#[zvariant(signature = "a{sv}")]
pub(crate) struct Pairs(Vec<(String, OwnedValue)>);

impl<'de> Deserialize<'de> for Pairs {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = Pairs;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a dictionary")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Pairs, A::Error> {
                let mut pairs = Vec::new();
                while let Some(pair) = map.next_entry()? {
                    pairs.push(pair);
                }
                Ok(Pairs(pairs))
            }
        }
        deserializer.deserialize_map(Reader)
    }
}

impl Pairs {
    fn value(&self, key: &str) -> Option<&OwnedValue> {
        self.0.iter().find(|(name, _)| name == key).map(|(_, value)| value)
    }

    fn text(&self, key: &str) -> Option<String> {
        self.value(key)?.downcast_ref::<&str>().ok().map(str::to_owned)
    }

    fn names(&self, key: &str) -> Vec<String> {
        self.value(key).and_then(|value| Vec::<String>::try_from(value.clone()).ok()).unwrap_or_default()
    }
}

/// An error as `GDBus` maps it.
#[derive(Debug)]
pub(crate) struct Refusal {
    name: &'static str,
    text: String,
}

const FAILED: &str = "org.gtk.GDBus.UnmappedGError.Quark._g_2dio_2derror_2dquark.Code0";
const BUSY: &str = "org.gtk.GDBus.UnmappedGError.Quark._g_2dio_2derror_2dquark.Code26";
const MASKED: &str = "org.freedesktop.systemd1.UnitMasked";
const NO_REPLY: &str = "org.freedesktop.DBus.Error.NoReply";

impl DBusError for Refusal {
    fn create_reply(&self, call: &Header<'_>) -> zbus::Result<Message> {
        Message::error(call, self.name())?.build(&self.text)
    }

    fn name(&self) -> ErrorName<'_> {
        ErrorName::from_static_str_unchecked(self.name)
    }

    fn description(&self) -> Option<&str> {
        Some(&self.text)
    }
}

impl From<zbus::Error> for Refusal {
    fn from(error: zbus::Error) -> Self {
        Self { name: FAILED, text: error.to_string() }
    }
}

fn refuse(name: &'static str, text: impl Into<String>) -> Refusal {
    Refusal { name, text: text.into() }
}

/// The sysroot.
pub(crate) struct Sysroot(pub(crate) Arc<Daemon>);

#[interface(name = "org.projectatomic.rpmostree1.Sysroot")]
impl Sysroot {
    fn register_client(&self, #[zbus(header)] header: Header<'_>, options: Pairs) -> Result<(), Refusal> {
        let mut faults = self.0.faults.lock().unwrap();
        if faults.no_reply > 0 {
            faults.no_reply -= 1;
            return Err(refuse(NO_REPLY, "Message recipient disconnected from message bus without replying"));
        }
        if faults.masked {
            return Err(refuse(MASKED, "Unit rpm-ostreed.service is masked."));
        }
        let (sender, id) = (header.sender().unwrap().to_string(), options.text("id").unwrap_or_default());
        self.0.print("registered", &id);
        self.0.clients.lock().unwrap().insert(sender, id);
        Ok(())
    }

    fn unregister_client(&self, #[zbus(header)] header: Header<'_>, _options: Pairs) {
        self.0.clients.lock().unwrap().remove(&header.sender().unwrap().to_string());
    }

    fn reload(&self) {
        self.0.reloads.fetch_add(1, Ordering::Relaxed);
    }

    #[zbus(property)]
    fn booted(&self) -> ObjectPath<'static> {
        ObjectPath::from_static_str_unchecked("/org/projectatomic/rpmostree1/os")
    }

    #[zbus(property)]
    fn active_transaction(&self) -> (String, String, String) {
        let active = self.0.active.lock().unwrap();
        active
            .as_ref()
            .map(|one| (one.method.clone(), one.sender.clone(), "/".to_owned()))
            .unwrap_or_default()
    }

    #[zbus(property)]
    fn active_transaction_path(&self) -> String {
        self.0.active.lock().unwrap().as_ref().map(|_| address()).unwrap_or_default()
    }

    #[zbus(property)]
    async fn deployments(&self) -> Vec<HashMap<String, OwnedValue>> {
        self.0.backing.list().await.iter().map(dictionary).collect()
    }
}

/// Properties of one deployment. Lockedness is not among them: the real one does not see it either.
fn dictionary(one: &Deployment) -> HashMap<String, OwnedValue> {
    let mut meta: HashMap<String, Value<'_>> = HashMap::new();
    if !one.label.is_empty() {
        let config = format!(r#"{{"config":{{"Labels":{{"machineconfig":"{}"}}}}}}"#, one.label);
        meta.insert("ostree.container.image-config".to_owned(), config.into());
    }
    let list =
        |names: &std::collections::BTreeSet<String>| Value::from(names.iter().cloned().collect::<Vec<_>>());
    let mut pairs: Vec<(&str, Value<'_>)> = vec![
        ("id", one.id().into()),
        ("osname", one.osname().into()),
        ("serial", one.serial.into()),
        ("checksum", one.checksum.clone().into()),
        ("booted", one.booted.into()),
        ("staged", one.staged.into()),
        ("pinned", false.into()),
        ("unlocked", "none".into()),
        ("timestamp", 1_700_000_000_u64.into()),
        ("base-commit-meta", meta.into()),
        ("requested-packages", list(&one.packages)),
        ("requested-local-packages", list(&one.local_packages)),
        ("requested-base-removals", list(&one.removals)),
    ];
    if !one.reference.is_empty() {
        pairs.push(("container-image-reference", one.reference.clone().into()));
        pairs.push(("container-image-reference-digest", one.digest.clone().into()));
    }
    pairs.into_iter().map(|(key, value)| (key.to_owned(), value.try_to_owned().unwrap())).collect()
}

fn address() -> String {
    format!("unix:path=/{SOCKET}")
}

/// The OS.
pub(crate) struct Os(pub(crate) Arc<Daemon>);

#[interface(name = "org.projectatomic.rpmostree1.OS")]
impl Os {
    async fn update_deployment(
        &self,
        #[zbus(header)] header: Header<'_>,
        modifiers: Pairs,
        options: Pairs,
    ) -> Result<String, Refusal> {
        let arguments = format!("{modifiers:?} {options:?}");
        let refspec = modifiers.text("set-refspec");
        let pending = self.0.backing.list().await.first().map(|one| one.reference.clone());
        if refspec.is_some() && refspec == pending && self.0.active.lock().unwrap().is_none() {
            return Err(refuse(
                FAILED,
                format!("Old and new refs are equal: {}", refspec.unwrap_or_default()),
            ));
        }
        let job = Job::Update {
            refspec,
            install: modifiers.names("install-packages"),
            uninstall: modifiers.names("uninstall-packages"),
            remove: modifiers.names("override-remove-packages"),
            reset: modifiers.names("override-reset-packages"),
        };
        let title = options.text("initiating-command-line").unwrap_or_else(|| "update".to_owned());
        self.transaction("UpdateDeployment", arguments, &header, title, job).await
    }

    async fn kernel_args(
        &self,
        #[zbus(header)] header: Header<'_>,
        existing: &str,
        append: Vec<String>,
        replace: Vec<String>,
        delete: Vec<String>,
        options: Pairs,
    ) -> Result<String, Refusal> {
        let arguments = format!("{existing} {append:?} {replace:?} {delete:?} {options:?}");
        let current = self.0.backing.list().await.first().map(|one| one.kargs.clone()).unwrap_or_default();
        let Some(line) = options.text("final-kernel-args").filter(|_| existing == current) else {
            return Err(refuse(
                FAILED,
                format!("the double takes final-kernel-args for the line {current:?} only"),
            ));
        };
        let title = options.text("initiating-command-line").unwrap_or_else(|| "kargs".to_owned());
        self.transaction("KernelArgs", arguments, &header, title, Job::Kargs(line)).await
    }

    async fn cleanup(
        &self,
        #[zbus(header)] header: Header<'_>,
        elements: Vec<String>,
    ) -> Result<String, Refusal> {
        let has = |name: &str| elements.iter().any(|one| one == name);
        let job = Job::Cleanup { pending: has("pending-deploy"), rollback: has("rollback-deploy") };
        let title = format!("cleanup {}", elements.join(" "));
        self.transaction("Cleanup", format!("{elements:?}"), &header, title, job).await
    }

    async fn rollback(&self, #[zbus(header)] header: Header<'_>, options: Pairs) -> Result<String, Refusal> {
        let title = "rollback".to_owned();
        self.transaction("Rollback", format!("{options:?}"), &header, title, Job::Rollback).await
    }

    async fn get_deployment_boot_config(&self, _index: &str, pending: bool) -> HashMap<String, OwnedValue> {
        let all = self.0.backing.list().await;
        let found = all.iter().find(|one| pending || one.booted).unwrap();
        let options = Value::from(found.kargs.clone()).try_to_owned().unwrap();
        let staged = Value::from(found.staged).try_to_owned().unwrap();
        HashMap::from([("options".to_owned(), options), ("staged".to_owned(), staged)])
    }
}

impl Os {
    async fn transaction(
        &self,
        method: &str,
        arguments: String,
        header: &Header<'_>,
        title: String,
        job: Job,
    ) -> Result<String, Refusal> {
        let active = self.0.active.lock().unwrap().clone();
        if let Some(active) = active {
            if active.method == method && active.arguments == arguments {
                self.0.joined.notify_one();
                self.0.print("joined", method);
                return Ok(address());
            }
            let text = format!(
                "Transaction in progress: {}\n You can cancel the current transaction with `rpm-ostree cancel`",
                active.title
            );
            return Err(refuse(BUSY, text));
        }
        if self.0.faults.lock().unwrap().sysroot_busy {
            return Err(refuse(BUSY, "System transaction in progress"));
        }
        let sender = header.sender().unwrap().to_string();
        Transaction::make(&self.0, method, arguments, sender, title, job);
        changed(&self.0).await;
        Ok(address())
    }
}

/// Ends a transaction: everybody has hung up.
pub(crate) async fn over(daemon: &Arc<Daemon>, transaction: &Arc<Transaction>) {
    {
        let mut active = daemon.active.lock().unwrap();
        if !active.as_ref().is_some_and(|one| Arc::ptr_eq(one, transaction)) {
            return;
        }
        *active = None;
    }
    changed(daemon).await;
}

async fn changed(daemon: &Arc<Daemon>) {
    let connection = daemon.connection.get().unwrap();
    let path = "/org/projectatomic/rpmostree1/Sysroot";
    let emitter = SignalEmitter::new(connection, path).unwrap();
    let sysroot = Sysroot(Arc::clone(daemon));
    drop(sysroot.active_transaction_changed(&emitter).await);
    drop(sysroot.active_transaction_path_changed(&emitter).await);
}

/// Forgets clients that leave the bus, and drops what they did not start.
pub(crate) async fn watch_clients(daemon: Arc<Daemon>, connection: Connection) {
    let rule = zbus::MatchRule::builder()
        .msg_type(zbus::message::Type::Signal)
        .sender("org.freedesktop.DBus")
        .and_then(|rule| rule.member("NameOwnerChanged"))
        .unwrap()
        .build();
    let mut changes = zbus::MessageStream::for_match_rule(rule, &connection, Some(64)).await.unwrap();
    loop {
        let next = std::future::poll_fn(|context| {
            zbus::export::futures_core::Stream::poll_next(std::pin::Pin::new(&mut changes), context)
        });
        let next = match daemon.idle_exit {
            // As in the real one the time starts again when a client leaves the bus.
            Some(after) => match tokio::time::timeout(after, next).await {
                Ok(next) => next,
                Err(_) if daemon.is_idle() => return,
                Err(_) => continue,
            },
            None => next.await,
        };
        // The bus is gone: so is the daemon.
        let Some(Ok(message)) = next else { return };
        let Ok((name, _, new)) = message.body().deserialize::<(String, String, String)>() else { continue };
        if !new.is_empty() {
            continue;
        }
        daemon.clients.lock().unwrap().remove(&name);
        let active = daemon.active.lock().unwrap().clone();
        if let Some(active) = active
            && active.sender == name
            && !active.started.load(Ordering::SeqCst)
        {
            over(&daemon, &active).await;
        }
    }
}
