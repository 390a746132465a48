//! Staging: one transaction after the other until the next boot's deployment is the desired one.
//!
//! Invariant: a transaction of ours that failed leaves nothing pending, and the deployments decide about success, not
//! the daemon's message.

use std::collections::BTreeMap;

use zbus::zvariant::Value;

use crate::host::os::error::{OsError, OsErrorKind, SYSROOT};
use crate::host::os::sysroot_cache::Stamp;
use crate::host::os::worker::Worker;
use crate::host::os::{OsProgress, StageRequest};
use crate::host::{HostError, Root};
use crate::model::observation::Staged;
use crate::model::text::chain;
use crate::model::{Karg, ModelError};

use super::daemon::{CallError, Daemon};
use super::deployments::State;
use super::extensions::{self, Source};
use super::messages::next as next_message;
use super::request::{self, Next, OURS, Update};
use super::transaction::{Peer, TransactionResult};

/// Tries of a transaction while others come in between. Each round waits for one of them; this many mean another
/// program that never ends.
const ROUNDS: usize = 16;

type Progress<'a> = dyn Fn(OsProgress) + 'a;

/// The staged deployment.
#[derive(Debug)]
pub(super) struct Brought {
    pub(super) staged: Staged,
    /// The daemon's last state, and the stamp of the sysroot before it was read, if both are known.
    pub(super) look: Option<(Stamp, State)>,
}

/// Runs transactions until the next deployment is as desired. Packages are there for as long as that takes.
pub(super) async fn stage(
    root: &Root,
    worker: &Worker,
    request: &StageRequest,
    progress: &Progress<'_>,
) -> Result<Brought, HostError> {
    let done = converge(root, worker, request, progress).await;
    put_away(root);
    done
}

/// Removes the packages. A failure is logged, and does not stage again.
fn put_away(root: &Root) {
    if let Err(error) = extensions::withdraw(root) {
        tracing::warn!("Failed to remove the packages of extensions: {}", chain(&error));
    }
}

async fn converge(
    root: &Root,
    worker: &Worker,
    request: &StageRequest,
    progress: &Progress<'_>,
) -> Result<Brought, HostError> {
    let daemon = Daemon::open(root).await?;
    let (mut last, mut in_place, mut is_done) = (None, false, false);
    for _ in 0..ROUNDS {
        let stamp = Stamp::read(worker.sysroot());
        let (state, next) = read_state(&daemon, request, std::mem::take(&mut is_done)).await?;
        if next == Next::Nothing {
            let found = last.is_none() && state.pending().is_some_and(|first| first.is_staged);
            if found {
                return Ok(Brought { staged: unlocked(worker, state.next()).await?, look: None });
            }
            return Ok(Brought { staged: state.next(), look: stamp.map(|stamp| (stamp, state)) });
        }
        if last.as_ref() == Some(&next) || after_update(last.as_ref(), &next) {
            return Err(unlike(&daemon, request).await);
        }
        if matches!(next, Next::Update(_)) {
            packages(root, worker, request, progress).await?;
        }
        // Once: a daemon that does not see it does it its own way.
        if !std::mem::replace(&mut in_place, matches!(next, Next::Kargs { .. }))
            && changed_in_place(worker, &state, &next).await
        {
            continue;
        }
        match perform(&daemon, request, &next, progress).await {
            Ok(()) => (last, is_done) = (Some(next), true),
            Err(CallError::Same) if matches!(next, Next::Update(_)) => last = Some(next),
            Err(CallError::Busy) => wait_for_others(&daemon, progress).await?,
            Err(CallError::Work(error)) => return Err(undone(&daemon, error).await),
            Err(refused) => return Err(refused.into_error()),
        }
    }
    Err(CallError::Busy.into_error())
}

/// Reads the state and decides.
///
/// A `Reload` has the daemon read each deployment three times more. It has read them before it reports the end of a
/// transaction, so after one it is asked for another look only where the desired deployment is not there: it was not before
/// either, so an old state can't pass for it.
async fn read_state(
    daemon: &Daemon,
    request: &StageRequest,
    is_done: bool,
) -> Result<(State, Next), HostError> {
    let decided = |state: &State| {
        if state.booted().is_none() {
            let cause = "rpm-ostree shows no booted deployment";
            return Err(OsError::new(OsErrorKind::NotBooted, SYSROOT, cause).into_error());
        }
        request::next(request, state).map_err(|error| refused(&error))
    };
    if is_done {
        let state = daemon.last_state().await?;
        if let Ok(Next::Nothing) = decided(&state) {
            return Ok((state, Next::Nothing));
        }
    }
    let state = daemon.state().await?;
    let next = decided(&state)?;
    Ok((state, next))
}

/// Changes the arguments of the staged deployment, without a second one; returns true if that was done.
///
/// rpm-ostree can't do both in one: `UpdateDeployment` has no modifier for kernel arguments, and `KernelArgs` deploys
/// the staged one again. libostree changes them in place. Where the worker can't, rpm-ostree does it its way.
async fn changed_in_place(worker: &Worker, state: &State, next: &Next) -> bool {
    let Next::Kargs { desired, .. } = next else { return false };
    if !state.deployments.first().is_some_and(|first| first.is_staged) {
        return false;
    }
    match worker.kargs(&state.next_kargs, &Karg::split(desired)).await {
        Ok(_) => true,
        Err(error) => {
            tracing::info!("Kernel arguments go into a separate deployment: {error}");
            false
        }
    }
}

/// Brings the packages that are layered, or fitted to another image.
async fn packages(
    root: &Root,
    worker: &Worker,
    request: &StageRequest,
    progress: &Progress<'_>,
) -> Result<(), HostError> {
    match (&request.layers, &request.extensions_image) {
        (Some(layers), Some(image)) if !layers.is_empty() => {
            let source =
                Source { image, credentials: request.credentials.as_ref(), proxies: worker.proxies()? };
            extensions::provide(root, &source, progress).await
        }
        _ => Ok(()),
    }
}

/// Returns true if an update that ended well is to be undone: it did something else.
fn after_update(last: Option<&Next>, next: &Next) -> bool {
    matches!((last, next), (Some(Next::Update(_) | Next::Kargs { .. }), Next::DropPending | Next::Update(_)))
}

/// Drops any pending deployment.
pub(super) async fn unstage(root: &Root, progress: &Progress<'_>) -> Result<(), HostError> {
    clean(root, "pending-deploy", progress).await
}

/// Drops the deployment that ran before. With one staged the finalization does that.
pub(super) async fn drop_rollback(root: &Root, progress: &Progress<'_>) -> Result<(), HostError> {
    clean(root, "rollback-deploy", progress).await
}

/// Has the other deployment boot next. A second `Rollback` would undo the first, so it is requested only where that
/// deployment does not come first already; and with one staged the daemon refuses it.
pub(super) async fn set_default_deployment(
    root: &Root,
    deployment: &str,
    progress: &Progress<'_>,
) -> Result<(), HostError> {
    let daemon = Daemon::open(root).await?;
    let mut is_requested = false;
    for _ in 0..ROUNDS {
        let state = daemon.state().await?;
        let all = &state.deployments;
        if all.first().is_some_and(|first| first.id == deployment) {
            return Ok(());
        }
        if !all.iter().any(|one| one.id == deployment) {
            return Err(OsError::gone(deployment).into_error());
        }
        let staged = state.pending().is_some_and(|first| first.is_staged);
        if is_requested && !staged {
            let cause = "rpm-ostree reported success, but another deployment boots next";
            return Err(OsError::new(OsErrorKind::WrongStaged, deployment, cause).into_error());
        }
        let done = if staged {
            run_transaction(&daemon, "Cleanup", &(vec!["pending-deploy"],), deployment, progress).await
        } else {
            let none: BTreeMap<&str, Value<'_>> = BTreeMap::new();
            run_transaction(&daemon, "Rollback", &(none,), deployment, progress).await
        };
        match done {
            Ok(()) => is_requested |= !staged,
            Err(CallError::Busy) => wait_for_others(&daemon, progress).await?,
            Err(refused) => return Err(refused.into_error()),
        }
    }
    Err(CallError::Busy.into_error())
}

async fn clean(root: &Root, element: &'static str, progress: &Progress<'_>) -> Result<(), HostError> {
    let daemon = Daemon::open(root).await?;
    for _ in 0..ROUNDS {
        let state = daemon.state().await?;
        let there = match element {
            "rollback-deploy" => state.pending().is_none() && state.rollback().is_some(),
            _ => state.pending().is_some(),
        };
        if !there {
            return Ok(());
        }
        match run_transaction(&daemon, "Cleanup", &(vec![element],), SYSROOT, progress).await {
            Err(CallError::Busy) => wait_for_others(&daemon, progress).await?,
            done => return done.map_err(CallError::into_error),
        }
    }
    Err(CallError::Busy.into_error())
}

/// Ends the transaction of an earlier call, and drops its pending deployment. Transactions of others continue.
pub(super) async fn abandon(root: &Root) -> Result<(), HostError> {
    let daemon = Daemon::open(root).await?;
    if let Some((address, _)) = daemon.active().await? {
        let mut peer = daemon.follow(&address).await?;
        let (title, _) = peer.title().await?;
        if !title.starts_with(OURS) {
            peer.close().await;
            put_away(root);
            return Ok(());
        }
        let mut owners = daemon.owners().await?;
        peer.cancel().await?;
        // One that has ended meanwhile reports its end again when it is joined.
        let ended = peer.run(&mut owners, &|_| {}).await;
        peer.close().await;
        ended?;
    }
    drop(daemon);
    put_away(root);
    unstage(root, &|_| {}).await
}

/// A locked deployment would not survive the reboot: if another program locked the desired one, the worker stages it
/// again. rpm-ostree can't do that: it does not see the lock, and unlocks only by rebooting.
async fn unlocked(worker: &Worker, staged: Staged) -> Result<Staged, HostError> {
    match worker.ensure_finalizable().await {
        Err(error) if error.reason() == OsErrorKind::Locked.reason() => worker.kargs(&[], &[]).await,
        // Finalization that can't be checked now is checked again before the reboot.
        Ok(()) | Err(_) => Ok(staged),
    }
}

/// Carries one transaction out.
async fn perform(
    daemon: &Daemon,
    request: &StageRequest,
    next: &Next,
    progress: &Progress<'_>,
) -> Result<(), CallError> {
    let object = request.image.as_ref().map_or_else(|| SYSROOT.to_owned(), ToString::to_string);
    match next {
        Next::Nothing => Ok(()),
        Next::DropPending => {
            run_transaction(daemon, "Cleanup", &(vec!["pending-deploy"],), &object, progress).await
        }
        Next::Update(update) => {
            let body = (modifiers(update), options(update));
            run_transaction(daemon, "UpdateDeployment", &body, &object, progress).await
        }
        Next::Kargs { existing, desired } => {
            let none: Vec<&str> = Vec::new();
            let title = format!("{OURS}kernel arguments");
            let options = BTreeMap::from([
                ("final-kernel-args", Value::from(desired.as_str())),
                ("initiating-command-line", Value::from(title)),
            ]);
            let body = (existing.as_str(), &none, &none, &none, options);
            run_transaction(daemon, "KernelArgs", &body, &object, progress).await
        }
    }
}

/// Packages to change. In order, here and below: the daemon joins only calls that are equal byte by byte.
fn modifiers(update: &Update) -> BTreeMap<&'static str, Value<'_>> {
    let layers = &update.layers;
    let sets = [
        ("install-packages", &layers.install),
        ("uninstall-packages", &layers.uninstall),
        ("override-remove-packages", &layers.remove),
        ("override-reset-packages", &layers.reset),
    ];
    let refspec = update.refspec.as_deref().map(|refspec| ("set-refspec", Value::from(refspec)));
    let sets = sets.into_iter().filter(|(_, names)| !names.is_empty());
    let lists =
        sets.map(|(key, names)| (key, Value::from(names.iter().map(String::as_str).collect::<Vec<_>>())));
    refspec.into_iter().chain(lists).collect()
}

/// Options of the transaction.
fn options(update: &Update) -> BTreeMap<&'static str, Value<'_>> {
    let mut options = BTreeMap::from([
        ("initiating-command-line", Value::from(update.title.as_str())),
        ("idempotent-layering", Value::from(true)),
        // Packages that the image has already are requested all the same: the next image may not have them.
        ("allow-inactive", Value::from(true)),
    ]);
    if update.refspec.is_none() {
        options.insert("no-pull-base", Value::from(true));
    }
    options
}

/// Requests a transaction and follows it to its end.
async fn run_transaction<B>(
    daemon: &Daemon,
    method: &'static str,
    body: &B,
    object: &str,
    progress: &Progress<'_>,
) -> Result<(), CallError>
where
    B: serde::Serialize + zbus::zvariant::Type,
{
    let mut owners = daemon.owners().await.map_err(CallError::Failed)?;
    let address = daemon.transaction(method, body).await?;
    let mut peer = daemon.follow(&address).await.map_err(CallError::Failed)?;
    let ended = peer.run(&mut owners, progress).await;
    peer.close().await;
    let failure = match ended.map_err(CallError::Failed)? {
        TransactionResult::Done => return Ok(()),
        TransactionResult::Failed(text) if text.contains("Old and new refs are equal") => {
            return Err(CallError::Same);
        }
        TransactionResult::Failed(text) => OsError::from_text(object, &text, OsErrorKind::RpmOstree),
        TransactionResult::Lost(how) => {
            let cause = format!("the daemon of rpm-ostree ended in the middle of {method}: {how}");
            return Err(CallError::Gone(OsError::new(OsErrorKind::DaemonLost, object, cause).into_error()));
        }
    };
    Err(CallError::Work(failure.into_error()))
}

/// Waits until no transaction runs, and reports whose. It is only read: to start one is its owner's business, and
/// the daemon counts it as running as long as it has a listener.
async fn wait_for_others(daemon: &Daemon, progress: &Progress<'_>) -> Result<(), HostError> {
    let mut changes = daemon.changes().await?;
    let mut owners = daemon.owners().await?;
    let mut logged = None;
    while let Some((address, method)) = daemon.active().await? {
        if logged.as_ref() != Some(&address) {
            let whose = match daemon.follow(&address).await {
                Ok(peer) => named(peer, &method).await,
                // It ended just now, or its socket is not there yet.
                Err(_) => method,
            };
            progress(OsProgress {
                text: format!("waiting for the rpm-ostree transaction {whose}"),
                percent: None,
            });
            logged = Some(address);
        }
        let ended = tokio::select! {
            // Cancel-safe: a message is taken from the queue only when it is returned.
            change = next_message(&mut changes) => change.is_none(),
            // Cancel-safe, as above.
            owner = next_message(&mut owners) => owner.is_none(),
        };
        if ended {
            let cause = "the bus closed the connection";
            return Err(OsError::new(OsErrorKind::DaemonLost, SYSROOT, cause).into_error());
        }
    }
    Ok(())
}

async fn named(peer: Peer, method: &str) -> String {
    let title = peer.title().await;
    peer.close().await;
    match title {
        Ok((title, client)) if !client.is_empty() => format!("{title:?} of {client}"),
        Ok((title, _)) => format!("{title:?}"),
        Err(_) => method.to_owned(),
    }
}

/// Drops the pending deployment of a failed transaction (MCD-187).
async fn undone(daemon: &Daemon, error: HostError) -> HostError {
    let pending = match daemon.state().await {
        Ok(state) => state.pending().is_some(),
        Err(_) => false,
    };
    if pending {
        let cleaned = run_transaction(daemon, "Cleanup", &(vec!["pending-deploy"],), SYSROOT, &|_| {}).await;
        if let Err(refused) = cleaned {
            tracing::warn!("Failed to drop the pending deployment: {}", refused.into_error());
        }
    }
    error
}

/// Drops a staged deployment that is not the requested one, and returns the error that names it (OST-004, MCD-201).
async fn unlike(daemon: &Daemon, request: &StageRequest) -> HostError {
    let error = match daemon.state().await {
        Err(error) => error,
        Ok(state) => {
            let object = request.image.as_ref().map_or_else(|| SYSROOT.to_owned(), ToString::to_string);
            let first = state.pending().or(state.booted());
            let lacks =
                first.map(|first| request::missing(request, first).unwrap_or_default()).unwrap_or_default();
            let wrong_image =
                request.image.as_ref().is_some_and(|image| first.is_none_or(|one| !one.is_of(image)));
            let found = state.next();
            let failure = if wrong_image || lacks.is_empty() {
                let found = found.image.map_or(found.deployment, |image| image.to_string());
                let cause = format!("rpm-ostree reported success, but {found} is what boots next");
                OsError::new(OsErrorKind::WrongStaged, object, cause)
            } else {
                let names: Vec<String> = lacks.into_iter().collect();
                let cause = format!("packages are missing from the staged deployment: {}", names.join(" "));
                OsError::new(OsErrorKind::NoPackage, object, cause)
            };
            failure.into_error()
        }
    };
    undone(daemon, error).await
}

fn refused(error: &ModelError) -> HostError {
    OsError::new(OsErrorKind::WrongLayers, "the next deployment", error.to_string()).into_error()
}
