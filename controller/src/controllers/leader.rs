//! The shell of the election ([`crate::lease`]): a watch of the Lease, and the writes to it.

use std::collections::BTreeMap;
use std::pin::{Pin, pin};
use std::time::Duration;

use futures_util::StreamExt as _;
use k8s_openapi::api::coordination::v1::{Lease as LeaseObject, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use tracing::{info, warn};

use super::cache::{Cache, Kind};
use super::causes::Causes;
use super::client::{Fence, RequestError, limited, send, uptime};
use super::error::RunError;
use super::failure::Failure;
use super::unread::failure_text;
use super::witness::{Check, Witness};
use super::write::{Write, refused, write_within};
use crate::lease::{Election, Lease, Next, Timing};
use crate::retry::is_same;
use crate::watches;
use crate::watches::Starting;

/// Name of the Lease and of its candidate.
#[derive(Debug, Clone)]
pub(super) struct Candidacy {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) me: String,
    pub(super) timing: Timing,
    /// It renders, as each of its replicas: one that led has left a rendered config.
    pub(super) renders: bool,
}

/// Kinds that show whether a replica led before.
const NEEDED: [Kind; 3] = [Kind::Definitions, Kind::Pools, Kind::Configs];

/// A write that was sent: it is waited for, whatever happens meanwhile.
type Sent = Pin<Box<dyn Future<Output = Result<LeaseObject, RequestError>> + Send>>;

/// Most tries to release: each further one is due to another writer, such as the own renewal of a moment ago.
const MAX_RELEASES: usize = 3;

/// A part in the election.
pub(super) struct Leader {
    api: Api<LeaseObject>,
    candidacy: Candidacy,
    election: Election,
    fence: Fence,
    leading: watch::Sender<bool>,
    /// The object as it is now; fields of others stay.
    object: Option<LeaseObject>,
    /// The write under way.
    in_flight: Option<InFlight>,
    /// The own writes that the API server may have.
    witness: Witness,
    /// A read of the Lease after a watch broke.
    check: Option<Check>,
    /// Breaks of watches for which it was read.
    checked: u64,
    cache: Cache,
    starting: Starting,
    /// Breaks of watches that are known: a server that refuses since then may just have started.
    known_breaks: u64,
    /// The cause that the Lease is not written, as it was logged.
    unwritten: Option<String>,
    /// The cause that the Lease is not read, as it was logged.
    unread: Causes,
}

/// A write that is not answered yet.
struct InFlight {
    /// When it was sent.
    at: Duration,
    /// It creates the Lease.
    creates: bool,
    /// Breaks of watches before it.
    breaks: u64,
    sent: Sent,
}

impl Leader {
    pub(super) fn new(
        client: Client,
        candidacy: Candidacy,
        fence: Fence,
        cache: Cache,
    ) -> (Self, watch::Receiver<bool>) {
        let (leading, receiver) = watch::channel(false);
        let api = Api::namespaced(client, &candidacy.namespace);
        let election = Election::new(candidacy.me.clone(), candidacy.timing);
        let leader = Self {
            api,
            candidacy,
            election,
            fence,
            leading,
            object: None,
            in_flight: None,
            witness: Witness::default(),
            check: None,
            checked: 0,
            cache,
            starting: Starting::default(),
            known_breaks: watches::breaks(),
            unwritten: None,
            unread: Causes::default(),
        };
        (leader, receiver)
    }

    /// Takes part until this process does not lead any more, or may not. Cancel-safe: [`Leader::release`] waits for a write that
    /// was sent.
    pub(super) async fn run(&mut self) {
        let mut changes = pin!(watches::object(self.api.clone(), &self.candidacy.name));
        let mut recovery = watches::recovery_of(&self.api, &self.candidacy.name);
        let mut evidence = pin!(nobody_led(self.cache.clone()));
        let mut history = watches::history();
        loop {
            let now = uptime();
            history.mark_unchanged();
            self.begin_check();
            let wait = match self.election.next(now) {
                Next::Create => {
                    self.write(None).await;
                    continue;
                }
                Next::Write(version) => {
                    self.write(Some(version)).await;
                    continue;
                }
                Next::End => return,
                Next::Wait(until) => until,
            };
            let due = async {
                match wait {
                    Some(until) => sleep_until(Instant::now() + until.saturating_sub(now)).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                news = changes.next() => match news {
                    Some(Ok(object)) => {
                        self.starting.answered();
                        self.read(recovery.is_failing());
                        self.observe(object);
                    }
                    Some(Err(error)) => {
                        recovery.failed();
                        self.unread(&Failure::new(&error));
                    }
                    None => return,
                },
                () = recovery.proven() => self.read(false),
                _ = history.changed() => {}
                (is_back, lease) = Check::answer(&mut self.check) => self.checked(is_back, lease),
                () = &mut evidence, if self.candidacy.renders && self.election.awaits_evidence(now) => self.election.first_ever(uptime()),
                () = due => {}
            }
            self.publish();
        }
    }

    /// Returns true if an answer may be that of a server that has just started. Another watch may have noticed that it was away.
    fn is_of_start(&mut self, code: u16) -> bool {
        let breaks = watches::breaks();
        if std::mem::replace(&mut self.known_breaks, breaks) != breaks {
            self.starting.was_away();
        }
        self.starting.takes(code)
    }

    /// Records that the Lease was read; its watch may be failing.
    fn read(&self, is_failing: bool) {
        self.cache.change(|snapshot| {
            if is_failing { snapshot.set_listed(Kind::Lease) } else { snapshot.is_read(Kind::Lease) }
        });
    }

    /// Tells once of a Lease that may not be read.
    fn unread(&mut self, failure: &Failure) {
        let failure =
            &if self.is_of_start(failure.code) { failure.clone().of_start() } else { failure.clone() };
        let known = self.cache.lock().failing.get(&Kind::Lease).cloned();
        let is_news = known.is_none_or(|known| !known.is_same(failure));
        if is_news {
            if failure.is_refusal() {
                let (name, text) = (&self.candidacy.name, failure_text(Kind::Lease, Some(failure)));
                warn!("Lease {name} can't be watched, so this replica may not lead: {text}");
            }
            self.cache.change(|snapshot| snapshot.fails(Kind::Lease, failure, uptime()));
        }
    }

    fn publish(&self) {
        let until = self.election.leads(uptime());
        if until.is_some() && !*self.leading.borrow() {
            // What broke while another one led was not judged.
            watches::judge(watches::breaks(), None);
        }
        self.fence.open_until(until);
        let changed = self.leading.send_if_modified(|leading| {
            let changed = *leading != until.is_some();
            *leading = until.is_some();
            changed
        });
        if changed && until.is_some() {
            info!("{} holds Lease {}", self.candidacy.me, self.candidacy.name);
        }
    }

    /// Tells once of a Lease that can't be written: in the log, and by `/readyz` where the API server refuses it. Such a replica does not lead,
    /// or not for long.
    fn not_written(&mut self, error: &RequestError, creates: bool) {
        let is_starting = self.is_of_start(error.code());
        let is_leader = self.election.held().is_some();
        let Candidacy { namespace, name, .. } = &self.candidacy;
        let next = match error.code() {
            404 if creates => {
                format!("create the namespace {namespace}, or name another one with --namespace")
            }
            403 => format!(
                "grant the controller's account the verbs create and update of leases.coordination.k8s.io in namespace {namespace}"
            ),
            _ => "check what refuses it, such as a webhook or a quota".to_owned(),
        };
        let what = match (creates, is_leader) {
            (true, _) => "created",
            (false, true) => "renewed",
            (false, false) => "written",
        };
        let is_refusal = error.is_refusal() && !is_starting;
        let text = if is_refusal && is_leader {
            let seconds = self.candidacy.timing.renew_deadline.as_secs();
            format!(
                "Lease {namespace}/{name} can't be renewed: {error}; {next}; this replica leads for {seconds} s after its last renewal, and then \
                 ends"
            )
        } else if is_refusal {
            format!(
                "Lease {namespace}/{name} can't be {what}, so this replica can't lead and writes nothing: {error}; {next}"
            )
        } else {
            format!("Lease {namespace}/{name} can't be {what}: {error}")
        };
        // Do not log each try.
        if !self.unwritten.as_ref().is_some_and(|known| is_same(known, &text)) {
            warn!("{text}");
            self.unwritten = Some(text.clone());
        }
        if is_refusal {
            self.tell_unwritten(Some(text));
        }
    }

    /// Forgets it: the Lease was written, or another replica did.
    fn written(&mut self) {
        self.starting.answered();
        if self.unwritten.take().is_some() {
            self.tell_unwritten(None);
        }
    }

    /// Returns why this process does not lead any more.
    pub(super) fn lost(&self) -> RunError {
        let name = &self.candidacy.name;
        match &self.unwritten {
            Some(cause) if self.election.held().is_some() => {
                RunError::LeaseNotRenewed { lease: name.clone(), cause: cause.clone() }
            }
            Some(_) | None => RunError::LeaseLost(name.clone()),
        }
    }

    fn tell_unwritten(&self, text: Option<String>) {
        self.cache.change(|snapshot| {
            snapshot.unwritten_lease = text;
            // Nothing is decided by it.
            false
        });
    }

    fn observe(&mut self, object: Option<LeaseObject>) {
        // The next try shows whether this one may, too.
        if self.unwritten.is_some() && self.is_of_other(object.as_ref()) {
            self.written();
        }
        if self.election.observe(object.as_ref().map(read), uptime()) {
            self.object = object;
        }
    }

    async fn write(&mut self, version: Option<String>) {
        if version.is_none() {
            let wait = self.candidacy.timing.renew_deadline.as_secs();
            info!(
                "Lease {} was missing: creating it; if a replica led here before, the first write waits {wait} s, because that \
                 replica may not have noticed the deletion",
                self.candidacy.name
            );
        }
        let (creates, breaks) = (version.is_none(), watches::breaks());
        let object = self.object(version, Some(&self.candidacy.me));
        self.witness.sent(&object);
        let sent = self.send(object);
        self.in_flight = Some(InFlight { at: uptime(), creates, breaks, sent });
        self.settle().await;
        self.publish();
    }

    /// Waits for the answer of the write under way. Cancel-safe.
    async fn settle(&mut self) {
        let Some(InFlight { at, creates, breaks, sent }) = &mut self.in_flight else { return };
        let (at, creates, breaks, written) = (*at, *creates, *breaks, sent.await);
        self.in_flight = None;
        match written {
            Ok(object) => {
                self.written();
                let is_renewal = self.election.held().is_some();
                self.election.written(read(&object), at, uptime());
                // It was written onto the one before.
                let proven = self.witness.answered(&object);
                if is_renewal && watches::unjudged().is_some() {
                    watches::judge(breaks, proven);
                }
                self.object = Some(object);
            }
            Err(error) => {
                self.election.failed(uptime());
                if error.is_conflict() && !(creates && error.code() == 404) {
                    // Another process was faster, or etcd came back from a backup and the watch is of no use.
                    let known = self.object.as_ref().map(|object| object.metadata.resource_version.clone());
                    if !self.look().await
                        || known != self.object.as_ref().map(|one| one.metadata.resource_version.clone())
                    {
                        return;
                    }
                    // Nothing else is there: somebody refuses with such a code.
                    refused(Write::Lease);
                    self.not_written(&error.into_refusal(), creates);
                    return;
                }
                // Without its namespace nothing was faster.
                let error = if error.code() == 404 { error.into_refusal() } else { error };
                self.not_written(&error, creates);
            }
        }
    }

    /// Reads the Lease; returns false if it can't be read.
    async fn look(&mut self) -> bool {
        let limit = self.candidacy.timing.request_timeout();
        match limited(limit, send(self.api.get_opt(&self.candidacy.name))).await {
            Ok(object) => {
                self.unread.is_over(&self.candidacy.name);
                self.take(object);
                true
            }
            Err(error) => {
                self.tell_unread(&error, "");
                false
            }
        }
    }

    /// Logs once that the Lease is not read, and what is done then.
    fn tell_unread(&self, error: &RequestError, then: &str) {
        if self.unread.is_news(&self.candidacy.name, &error.to_string()) {
            warn!("Lease {} can't be read: {error}{then}", self.candidacy.name);
        }
    }

    /// Takes the answer to a read. A Lease that this process holds and did not write so last is of an earlier state.
    fn take(&mut self, object: Option<LeaseObject>) {
        let was_held = self.election.held().is_some();
        self.election.read(object.as_ref().map(read), uptime());
        self.object = object;
        let is_known = self.object.as_ref().is_some_and(|object| self.witness.knows(object));
        if was_held && self.election.held().is_some() && !is_known {
            self.object.iter().for_each(|object| self.witness.take(object));
            warn!(
                "The API server went back to an earlier state, as after a restore of etcd: Lease {} is not as this leader wrote it last; \
                 reading all objects again",
                self.candidacy.name
            );
            watches::restored();
        }
    }

    /// Reads the Lease once more if watches broke since the last time.
    fn begin_check(&mut self) {
        let breaks = watches::breaks();
        if self.check.is_none() && breaks != self.checked {
            let limit = self.candidacy.timing.request_timeout();
            self.check = Some(Check::new(
                self.api.clone(),
                &self.candidacy.name,
                limit,
                breaks,
                self.witness.answers(),
            ));
        }
    }

    /// Judges the API server's history by the Lease as it was read.
    fn checked(&mut self, is_back: bool, lease: Result<Option<LeaseObject>, RequestError>) {
        let Some(check) = self.check.take() else { return };
        if is_back {
            watches::returned();
        }
        let is_known = matches!(&lease, Ok(Some(lease)) if self.witness.knows(lease));
        if !is_known && check.answers != self.witness.answers() && self.election.held().is_some() {
            // A renewal was made beside the read.
            return;
        }
        self.checked = check.breaks;
        // Another one judges what its own watches bring; this one does as soon as it leads.
        if self.election.held().is_none() {
            return;
        }
        if lease.is_ok() {
            self.unread.is_over(&self.candidacy.name);
        }
        match lease {
            Ok(_) if is_known => watches::judge(check.breaks, self.witness.version()),
            Ok(lease) => {
                self.take(lease);
                watches::judge(check.breaks, None);
            }
            Err(error) => {
                self.tell_unread(&error, "; reading what broke again");
                watches::judge(check.breaks, None);
            }
        }
    }

    /// Returns a write that creates the Lease, or replaces the version that it names.
    fn send(&self, object: LeaseObject) -> Sent {
        let is_new = object.metadata.resource_version.is_none();
        let api = self.api.clone();
        let (name, limit) = (self.candidacy.name.clone(), self.candidacy.timing.request_timeout());
        Box::pin(async move {
            let parameters = PostParams::default();
            if is_new {
                write_within(Write::Lease, limit, api.create(&parameters, &object)).await
            } else {
                write_within(Write::Lease, limit, api.replace(&name, &parameters, &object)).await
            }
        })
    }

    fn object(&self, version: Option<String>, holder: Option<&str>) -> LeaseObject {
        let now = MicroTime(Timestamp::now());
        let old = self.object.clone().unwrap_or_default();
        let before = old.spec.unwrap_or_default();
        let same = before.holder_identity.as_deref() == holder;
        let transitions = before.lease_transitions.unwrap_or(0);
        let seconds = i32::try_from(self.candidacy.timing.duration.as_secs()).unwrap_or(15);
        let spec = LeaseSpec {
            holder_identity: holder.map(str::to_owned),
            lease_duration_seconds: Some(seconds),
            acquire_time: if same { before.acquire_time } else { Some(now.clone()) },
            renew_time: Some(now),
            lease_transitions: Some(if same { transitions } else { transitions.saturating_add(1) }),
            ..before
        };
        let labels =
            BTreeMap::from([("app.kubernetes.io/name".to_owned(), "machine-config-controller".to_owned())]);
        let metadata = ObjectMeta {
            name: Some(self.candidacy.name.clone()),
            namespace: Some(self.candidacy.namespace.clone()),
            labels: Some(old.metadata.labels.unwrap_or(labels)),
            annotations: old.metadata.annotations,
            resource_version: version,
            ..ObjectMeta::default()
        };
        LeaseObject { metadata, spec: Some(spec) }
    }

    /// Lets the next one lead at once. Nothing is written after this: a write that was sent has its answer first, since it may
    /// arrive after the release and hold the Lease for nobody.
    pub(super) async fn release(&mut self) {
        self.fence.open_until(None);
        let is_unsure = self.in_flight.is_some();
        self.settle().await;
        if is_unsure && self.election.held().is_none() {
            self.look().await;
        }
        if self.own_version().is_some() && self.keeps_for_targets() {
            return;
        }
        for _ in 0..MAX_RELEASES {
            let Some(version) = self.own_version() else { return };
            match self.send(self.object(Some(version), None)).await {
                Ok(_) => {
                    info!("Released Lease {}", self.candidacy.name);
                    return;
                }
                Err(error) => {
                    warn!("Failed to release Lease {}: {error}", self.candidacy.name);
                    // A renewal whose answer was lost has given it another version.
                    if !self.look().await {
                        break;
                    }
                }
            }
        }
        warn!("Lease {} was not released: the next replica takes over when it expires", self.candidacy.name);
    }

    /// Tells of nodes that the API server may still give a target; returns true if there are any. The next leader does not know of them, and
    /// would give their places away. With its default duration the Lease lasts longer than the API server works on a request.
    fn keeps_for_targets(&self) -> bool {
        let open = self.cache.lock().open_targets.clone();
        let Some(first) = open.first() else { return false };
        let others = match open.len() {
            1 => String::new(),
            count => format!(" and {} more", count - 1),
        };
        warn!(
            "Lease {} is not released: the API server has not answered the write of a target to node {first}{others}, and may still make it; \
             the next replica takes over when the Lease expires",
            self.candidacy.name
        );
        true
    }

    /// Returns true if another process has written the Lease since it was read last.
    fn is_of_other(&self, object: Option<&LeaseObject>) -> bool {
        let holder = |lease: &LeaseObject| lease.spec.as_ref().and_then(|spec| spec.holder_identity.clone());
        let version = |lease: &LeaseObject| lease.metadata.resource_version.clone();
        let holder = object.and_then(holder).filter(|holder| !holder.is_empty());
        holder.is_some_and(|holder| holder != self.candidacy.me)
            && object.and_then(version) != self.object.as_ref().and_then(version)
    }

    /// Returns the version of the Lease, if it names this process.
    fn own_version(&self) -> Option<String> {
        let object = self.object.as_ref()?;
        let is_mine = object.spec.as_ref()?.holder_identity.as_ref() == Some(&self.candidacy.me);
        object.metadata.resource_version.clone().filter(|_| is_mine)
    }
}

/// Resolves once it is known that no replica led here before: each one that does names rendered configs to the pools first.
async fn nobody_led(cache: Cache) {
    cache.until(|snapshot| NEEDED.iter().all(|kind| snapshot.knows(*kind))).await;
    let has_led = cache.lock().rendered.values().any(|rendered| rendered.is_own);
    if has_led {
        info!(
            "Waiting before the first write until --lease-renew-deadline has passed: a replica led here before, as the \
             MachineConfigs that it rendered show"
        );
        std::future::pending::<()>().await;
    }
}

fn read(object: &LeaseObject) -> Lease {
    let spec = object.spec.clone().unwrap_or_default();
    let seconds = spec.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok()).unwrap_or(0);
    Lease {
        version: object.metadata.resource_version.clone().unwrap_or_default(),
        holder: spec.holder_identity.filter(|holder| !holder.is_empty()),
        transitions: spec.lease_transitions.unwrap_or(0),
        duration: Duration::from_secs(seconds),
    }
}
