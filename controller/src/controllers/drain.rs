//! The drain controller: the shell of [`crate::drain`], one task for each node whose agent has a request.
//!
//! Each task reads its Node from the cache, and the pods of that node, which are watched while the drain lasts. Budgets are
//! watched while any drain lasts.

mod budgets;

use std::collections::{BTreeMap, BTreeSet};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{Stream, StreamExt as _, stream};
use k8s_openapi::api::core::v1::Pod as PodObject;
use kube::api::PartialObjectMeta;
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client};
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinHandle, JoinSet};
use tokio::time::{Instant, sleep_until, timeout};
use tracing::{info, warn};

use machine_config_core::model::Timestamp;

use super::cache::{Cache, Journal, Kind, Snapshot};
use super::causes::Causes;
use super::client::{RequestError, uptime};
use super::config_node::{self, Reached};
use super::contested::{Contested, Field};
use super::events::{About, Severity, emit};
use super::evict::{delete, evict};
use super::failure::Failure;
use super::metrics::Metrics;
use super::node_write::write_node;
use super::tries::Tries;
use super::unread;
use super::write::Write;
use crate::drain::pods::{PodSeen, seen};
use crate::drain::{DESIRED, DrainRules, FAILED_AFTER, NodeView, Pod, Pods, Request, SLOW_AFTER, Step};
use crate::drain::{blocked, failed, lasts, leaves_until, next, request, retry};
use crate::retry::is_same;
use crate::rollout::{Answer, Membership, Node, Selectors, undrained_text};
use crate::watches;
use crate::watches::Answers;
use budgets::SharedBudgets;

/// Maximum concurrent drains: a pool's maxUnavailable is less, or its nodes are few.
const MAX_DRAINS: usize = 500;

/// Maximum concurrent uncordons.
const MAX_UNCORDONS: usize = 50;

/// Maximum concurrent evictions per node.
const MAX_EVICTIONS: usize = 8;

/// Time for each part of the list of a node's pods.
const LIST_TIMEOUT: Duration = Duration::from_secs(10);

/// Time for which a drain waits for a report.
const REPORT_TIME: Duration = Duration::from_secs(1);

type PodEvents = Pin<Box<dyn Stream<Item = watcher::Result<Event<PartialObjectMeta<PodObject>>>> + Send>>;

/// A watch of a node's pods.
struct PodWatch {
    events: PodEvents,
    answers: Answers,
}

/// Runs the controller until the task is aborted.
pub(super) async fn run(client: Client, cache: Cache, metrics: Metrics) {
    cache.until(|snapshot| unread::DRAIN.iter().all(|kind| snapshot.knows(*kind))).await;
    info!("The drain controller runs");
    let budgets = SharedBudgets::new();
    let journal = cache.journal();
    let (contested, unreported) = (Contested::default(), Causes::default());
    let mut controller = Controller {
        context: Context { client, cache, metrics, budgets, contested, unreported },
        tasks: JoinSet::new(),
        running: BTreeMap::new(),
        refused: BTreeSet::new(),
        budget_watch: None,
        journal,
        open: BTreeMap::new(),
    };
    let mut changes = controller.context.cache.changes();
    loop {
        changes.mark_unchanged();
        controller.start_tasks().await;
        tokio::select! {
            _ = changes.changed() => {}
            Some(ended) = controller.tasks.join_next() => {
                if let Ok(name) = ended {
                    controller.running.remove(&name);
                }
            }
        }
    }
}

#[derive(Clone)]
struct Context {
    client: Client,
    cache: Cache,
    metrics: Metrics,
    budgets: SharedBudgets,
    /// Writes to nodes, also of requests that are over.
    contested: Contested,
    /// Causes of reports in `MachineConfigNodes` that are not written, as they were logged.
    unreported: Causes,
}

struct Controller {
    context: Context,
    tasks: JoinSet<String>,
    running: BTreeMap<String, Request>,
    /// Unreadable requests that were reported: node and value.
    refused: BTreeSet<(String, String)>,
    budget_watch: Option<AbortHandle>,
    journal: Journal,
    /// The nodes that have a request.
    open: BTreeMap<String, (Arc<Node>, Request)>,
}

impl Controller {
    /// Starts a task for each node that has a request and no task.
    async fn start_tasks(&mut self) {
        self.observe();
        let mut refused = BTreeSet::new();
        for (node, request) in self.open.values().cloned().collect::<Vec<_>>() {
            match request {
                Request::Unknown => refused.insert(self.refuse(&node).await),
                Request::Drain | Request::Uncordon => self.start(node.name.clone(), request),
            };
        }
        self.refused = refused;
        let drains = self.count(Request::Drain);
        self.context.metrics.draining(drains);
        match (&self.budget_watch, drains) {
            (None, 1..) => {
                let watch = self.context.budgets.clone();
                let Context { client, cache, metrics, .. } = self.context.clone();
                let watch = watch.follow(client, cache, metrics);
                self.budget_watch = Some(tokio::spawn(watch).abort_handle());
            }
            (Some(_), 0) => {
                if let Some(watch) = self.budget_watch.take() {
                    watch.abort();
                }
            }
            (Some(_), _) | (None, 0) => {}
        }
    }

    /// Reads the requests of the nodes that changed.
    fn observe(&mut self) {
        let mut snapshot = self.context.cache.lock();
        for name in self.journal.take(&mut snapshot).nodes {
            let node = snapshot.nodes.get(&name);
            let requested = |node: &Node| request(&NodeView::new(&node.annotations, node.unschedulable));
            match node.and_then(|node| Some((Arc::clone(node), requested(node)?))) {
                Some(open) => drop(self.open.insert(name, open)),
                None => drop(self.open.remove(&name)),
            }
        }
    }

    fn count(&self, request: Request) -> usize {
        self.running.values().filter(|running| **running == request).count()
    }

    fn start(&mut self, name: String, request: Request) -> bool {
        let most = if request == Request::Drain { MAX_DRAINS } else { MAX_UNCORDONS };
        if self.running.contains_key(&name) || self.count(request) >= most {
            return false;
        }
        self.running.insert(name.clone(), request);
        self.tasks.spawn(NodeTask::new(self.context.clone(), name).run());
        true
    }

    async fn refuse(&self, node: &Node) -> (String, String) {
        let view = NodeView::new(&node.annotations, node.unschedulable);
        let step = next(&view, &Pods::default(), &DrainRules::default(), jiff::Timestamp::now(), uptime());
        let key = (node.name.clone(), view.desired.unwrap_or_default().to_owned());
        if let (Step::Refuse(why), false) = (step, self.refused.contains(&key)) {
            warn!("node {}: {why}", node.name);
            let about = About::node(&node.name, &node.uid);
            emit(&self.context.client, &about, Severity::Warning, "FailedToDrain", &why).await;
        }
        key
    }
}

impl Drop for Controller {
    fn drop(&mut self) {
        if let Some(watch) = self.budget_watch.take() {
            watch.abort();
        }
    }
}

/// The work for one node, until its agent's request is fulfilled or taken back.
struct NodeTask {
    context: Context,
    name: String,
    pods: Pods,
    events: Option<PodWatch>,
    /// A list that is being read: it counts once it is complete.
    listing: Vec<PodSeen>,
    /// When its next part was asked for; none in a pause after an error.
    asked: Option<Duration>,
    /// Cause of a list that is missing.
    unlisted: Option<Failure>,
    /// The pods were listed, and may not be watched.
    is_unwatched: bool,
    rules: DrainRules,
    /// The drain has taken too long: pods are deleted.
    is_deleting: bool,
    reported: Reported,
    /// Report in the MachineConfigNode that is not answered yet.
    report: Option<JoinHandle<bool>>,
    /// Writes to the node that failed.
    tries: Tries,
    /// Number of times that the API server went back.
    restores: u64,
}

/// Messages that were logged for the drain, each once.
#[derive(Default)]
struct Reported {
    /// The Event was sent; true if it named the blocker.
    slow: Option<bool>,
    failed: bool,
    /// Causes of pods that can't be listed, or not watched.
    unlisted: Option<String>,
    unwatched: Option<String>,
    reached: Option<Reached>,
    labels: Option<Vec<(&'static str, String)>>,
}

impl NodeTask {
    fn new(context: Context, name: String) -> Self {
        Self {
            context,
            name,
            pods: Pods::default(),
            events: None,
            listing: Vec::new(),
            asked: None,
            unlisted: None,
            is_unwatched: false,
            rules: DrainRules::default(),
            is_deleting: false,
            reported: Reported::default(),
            report: None,
            tries: Tries::default(),
            restores: watches::restores(),
        }
    }

    async fn run(mut self) -> String {
        let mut changes = self.context.cache.changes();
        let mut budgets = self.context.budgets.changed.subscribe();
        loop {
            changes.mark_unchanged();
            budgets.mark_unchanged();
            if !self.is_certain() {
                drop(changes.changed().await);
                continue;
            }
            let node = self.context.cache.lock().nodes.get(&self.name).cloned();
            let Some(node) = node else { break };
            let view = NodeView::new(&node.annotations, node.unschedulable).with_labels(&node.labels);
            let now = jiff::Timestamp::now();
            let wait = match self.decide(&node, &view, now) {
                Step::Nothing | Step::Refuse(_) => break,
                Step::Cordon(patch) => {
                    self.cordon(&node, &view, &patch).await;
                    continue;
                }
                Step::Acknowledge(patch) => {
                    let drained = request(&view) == Some(Request::Drain);
                    self.reached(&view, if drained { Reached::Cordoned } else { Reached::Uncordoned }).await;
                    if self.write(&node, &patch).await {
                        self.acknowledged(&node, &view, now).await;
                    }
                    continue;
                }
                Step::ListPods if !self.report_unlisted(&node, &view).await => continue,
                Step::ListPods => None,
                Step::Record(patch) => {
                    self.write(&node, &patch).await;
                    continue;
                }
                Step::Delete { .. } if self.begins_to_delete() => continue,
                Step::Evict { pods, again } | Step::Delete { pods, again } => {
                    if !pods.is_empty() {
                        self.remove(pods, lasts(&view, now)).await;
                        continue;
                    }
                    if !self.report(&node, &view, lasts(&view, now)).await {
                        continue;
                    }
                    again
                }
                Step::Fail => {
                    if !self.fail(&node, &view).await {
                        continue;
                    }
                    None
                }
            };
            self.wait(&mut changes, &mut budgets, wait, lasts(&view, now)).await;
        }
        self.end_reports();
        self.name
    }

    /// Returns true if pods are deleted from now on.
    fn begins_to_delete(&mut self) -> bool {
        let begins = !std::mem::replace(&mut self.is_deleting, true);
        if begins {
            warn!("Drain of node {} timed out: deleting the pods that could not be evicted", self.name);
            self.pods.retry_refused();
        }
        begins
    }

    fn end_reports(&self) {
        self.context.metrics.blocked(self.reported.labels.as_ref(), None);
        self.context.metrics.drain_failed(&self.name, false);
        self.tell_pool(None);
        self.tell_unread(None);
    }

    async fn cordon(&mut self, node: &Node, view: &NodeView<'_>, patch: &crate::drain::Patch) {
        // Pods that were listed before the cordon may be incomplete.
        self.forget_pods();
        if self.write(node, patch).await {
            info!("Cordoned node {} for {}", self.name, view.desired.unwrap_or_default());
            self.reached(view, Reached::Cordoned).await;
        }
    }

    /// Returns true if what is known is of one state of the API server. If that went back, pods that were evicted may be there again.
    fn is_certain(&mut self) -> bool {
        let restores = watches::restores();
        if std::mem::replace(&mut self.restores, restores) != restores {
            self.forget_pods();
        }
        !self.context.cache.lock().is_between_states()
    }

    /// Has the pods listed again before the next step.
    fn forget_pods(&mut self) {
        (self.pods, self.events, self.is_deleting) = (Pods::default(), None, false);
        self.unlisted = None;
    }

    /// Decides by the pods, the budgets and the rules as they are now.
    fn decide(&mut self, node: &Node, view: &NodeView<'_>, now: jiff::Timestamp) -> Step {
        self.pods.budgets_changed(|pod| self.context.budgets.lock().of(pod), uptime());
        self.rules = rules(&self.context.cache.lock(), node);
        self.pods.go_on(leaves_until(view));
        let by_label = |pod: &Pod| self.rules.skips(&pod.labels);
        self.pods.skip(by_label, self.rules.skip_terminating, wall_clock());
        next(view, &self.pods, &self.rules, now, uptime())
    }

    /// Reports in the MachineConfigNode, once. A report without an answer goes on beside the drain; the next one waits for it.
    async fn reached(&mut self, view: &NodeView<'_>, reached: Reached) {
        if self.reported.reached == Some(reached) {
            return;
        }
        let config =
            view.desired.and_then(|desired| desired.split_once('-')).map_or("", |(_, config)| config);
        let (client, node, config) = (self.context.client.clone(), self.name.clone(), config.to_owned());
        let causes = self.context.unreported.clone();
        let before = self.report.take();
        let mut report = tokio::spawn(async move {
            if let Some(before) = before {
                drop(before.await);
            }
            config_node::report(&client, &causes, &node, &config, reached).await
        });
        match timeout(REPORT_TIME, &mut report).await {
            Ok(Ok(true)) => self.reported.reached = Some(reached),
            Ok(Ok(false) | Err(_)) => {}
            Err(_) => self.report = Some(report),
        }
    }

    async fn acknowledged(&mut self, node: &Node, view: &NodeView<'_>, now: jiff::Timestamp) {
        info!("Node {}: {} is done", self.name, view.desired.unwrap_or_default());
        if request(view) != Some(Request::Drain) {
            return;
        }
        self.context.metrics.drained(lasts(view, now).as_secs_f64());
        for left in [self.pods.late(), self.pods.skipped()].into_iter().flatten() {
            warn!("node {}: {left}", self.name);
            let about = About::node(&node.name, &node.uid);
            emit(&self.context.client, &about, Severity::Warning, "PodsNotEvicted", &left).await;
        }
    }

    /// Writes; returns true if written. After an error it waits for another version of the Node, which it has where only the answer was
    /// lost, and not for ever: the API server is not flooded with retries.
    async fn write(&mut self, node: &Node, patch: &crate::drain::Patch) -> bool {
        let (client, cache) = (&self.context.client, &self.context.cache);
        let named = |name: &str| {
            Field::new(About::node(&node.name, &node.uid), format!("{name} of Node {}", node.name))
        };
        let desired = node.annotations.get(DESIRED).map(String::as_str).unwrap_or_default();
        let (field, value) = (named(patch.field()), format!("{desired} {}", patch.content()));
        if let Some(wait) = self.context.contested.wait(&field, &value) {
            self.until_changed(node, wait).await;
            return false;
        }
        let written = write_node(Write::NodeDrain, client, cache, node, &patch_body(patch)).await;
        let outcome = written.as_ref().map_or("failed", |done| if *done { "written" } else { "conflict" });
        self.context.metrics.wrote("drain", outcome);
        if let Err(error) = &written {
            let pause = self.failed(node, error).await;
            self.until_changed(node, pause).await;
        } else {
            self.tries.succeeded(&self.name);
            self.tell_pool(None);
        }
        let is_written = matches!(written, Ok(true));
        if is_written {
            for beside in patch.changed_beside() {
                self.context.contested.changed(&named(beside));
            }
            self.context.contested.wrote(&self.context.client, &field, &value).await;
        }
        is_written
    }

    /// Waits for another version of the Node, at most so long.
    async fn until_changed(&mut self, node: &Node, wait: Duration) {
        let is_other = |snapshot: &Snapshot| {
            snapshot.nodes.get(&node.name).is_none_or(|now| now.resource_version != node.resource_version)
        };
        drop(timeout(wait, self.context.cache.until(is_other)).await);
    }

    /// Tells once of a write that failed; returns the pause before the next try.
    async fn failed(&mut self, node: &Node, error: &RequestError) -> Duration {
        let failed = self.tries.failed(&self.name, "", error);
        let (answer, cause) = (Answer::from_code(error.code()), error.to_string());
        let text = undrained_text(&self.name, answer, &cause).replacen("node", "Node", 1);
        if failed.is_logged {
            warn!("{text}");
        }
        if failed.is_told {
            self.tell_pool(Some((answer, cause)));
            let about = About::node(&node.name, &node.uid);
            emit(&self.context.client, &about, Severity::Warning, "DrainNotWritten", &text).await;
        }
        failed.wait
    }

    /// Has the node's pool say that the node is not written to, or that it is.
    fn tell_pool(&self, cause: Option<(Answer, String)>) {
        let is_known = |snapshot: &Snapshot, (answer, cause): &(Answer, String)| {
            let known = snapshot.undrained.get(&self.name);
            known.is_some_and(|(before, known)| before == answer && is_same(known, cause))
        };
        self.context.cache.change(|snapshot| match cause {
            // The same cause keeps its words: they are in the pool's status.
            Some(cause) if is_known(snapshot, &cause) => false,
            Some(cause) => snapshot.undrained.insert(self.name.clone(), cause.clone()) != Some(cause),
            None => snapshot.undrained.remove(&self.name).is_some(),
        });
    }

    /// Evicts pods, or deletes them.
    async fn remove(&mut self, pods: Vec<Pod>, lasts: Duration) {
        let (client, retry, is_deleting) = (&self.context.client, retry(lasts), self.is_deleting);
        let mut answers = stream::iter(pods)
            .map(|pod| async move {
                let state =
                    if is_deleting { delete(client, &pod).await } else { evict(client, &pod, retry).await };
                (pod, state)
            })
            .buffer_unordered(MAX_EVICTIONS);
        while let Some((pod, (outcome, state))) = answers.next().await {
            self.context.metrics.evicted(outcome);
            if matches!(outcome, "evicted" | "deleted") {
                info!("Node {}: {outcome} pod {}/{}", self.name, pod.namespace, pod.name);
            }
            let budgets = self.context.budgets.lock().of(&pod);
            self.pods.answered(&pod.uid, state, budgets, uptime());
        }
    }

    /// Reports the drain's blocker: on the Node, as Events, as metrics. False if the Node was written to or is to be.
    async fn report(&mut self, node: &Node, view: &NodeView<'_>, lasts: Duration) -> bool {
        let found = self.pods.blocker(|pod| self.context.budgets.lock().of(pod), wall_clock());
        self.measure(found.as_ref().map(|found| (&*found.pod, &*found.budget)));
        let is_known = found.is_some();
        let unread = self.unread_budgets().filter(|_| found.as_ref().is_some_and(|found| found.is_kept));
        let why = found.map(|found| [found.text].into_iter().chain(unread).collect::<Vec<_>>().join("; "));
        if let Some(patch) = blocked(view, why.as_deref()) {
            if let Some(why) = &why {
                warn!("node {}: the drain waits: {why}", self.name);
            }
            self.write(node, &patch).await;
            return false;
        }
        let about = About::node(&node.name, &node.uid);
        let why = why.unwrap_or_else(|| "its pods are leaving".to_owned());
        // Once more, as soon as it is known what holds them.
        if lasts >= SLOW_AFTER && self.reported.slow.is_none_or(|was_known| is_known && !was_known) {
            self.reported.slow = Some(is_known);
            let text = format!("Drain lasts for more than {} minutes: {why}", SLOW_AFTER.as_secs() / 60);
            emit(&self.context.client, &about, Severity::Warning, "DrainThresholdExceeded", &text).await;
        }
        if lasts >= FAILED_AFTER && !std::mem::replace(&mut self.reported.failed, true) {
            self.context.metrics.drain_failed(&self.name, true);
            let text = format!("Drain is still running after {} minutes: {why}", FAILED_AFTER.as_secs() / 60);
            emit(&self.context.client, &about, Severity::Warning, "DrainFailed", &text).await;
        }
        true
    }

    /// Returns the text on budgets that can't be read.
    fn unread_budgets(&self) -> Option<String> {
        let snapshot = self.context.cache.lock();
        let failure = snapshot.failing.get(&Kind::Budgets)?;
        Some(unread::failure_text(Kind::Budgets, Some(failure)))
    }

    /// Reports that the pods can't be listed, on the Node. False if the Node was written to or is to be.
    async fn report_unlisted(&mut self, node: &Node, view: &NodeView<'_>) -> bool {
        let Some(failure) = &self.unlisted else { return true };
        let cause = match failure.code {
            403 => {
                format!("{}; grant the controller's account the verbs list and watch of pods", failure.cause)
            }
            _ => failure.cause.clone(),
        };
        let why = format!("its pods can't be listed: {cause}");
        if self.reported.unlisted.as_ref() != Some(&cause) {
            warn!(
                "Could not list the pods of node {}: {cause}; its drain waits until they are listed",
                self.name
            );
            self.reported.unlisted = Some(cause);
        }
        self.measure(Some(("", "")));
        let Some(patch) = blocked(view, Some(&why)) else { return true };
        self.write(node, &patch).await;
        false
    }

    /// Reports that the drain failed: on the Node, as an Event, as a metric. False if the Node was written to or is to be.
    async fn fail(&mut self, node: &Node, view: &NodeView<'_>) -> bool {
        let found = self.pods.blocker(|pod| self.context.budgets.lock().of(pod), wall_clock());
        if self.pods.is_untried() && view.failure().is_some() {
            // Nothing is evicted any more, so a new leader learns no cause: that on the Node stays.
            self.measure(Some(("", "")));
            self.reported.failed = true;
            self.context.metrics.drain_failed(&self.name, true);
            return true;
        }
        self.measure(found.as_ref().map(|found| (&*found.pod, &*found.budget)));
        let why = found.map(|found| found.text).or_else(|| self.pods.leaving()).unwrap_or_default();
        let limit =
            jiff::SignedDuration::try_from(self.rules.timeout.unwrap_or_default()).unwrap_or_default();
        let text = format!("the drain took longer than {limit:#}: {why}");
        if let Some(patch) = failed(view, &text) {
            warn!("node {}: {text}", self.name);
            self.write(node, &patch).await;
            return false;
        }
        if !std::mem::replace(&mut self.reported.failed, true) {
            self.context.metrics.drain_failed(&self.name, true);
            let text = format!("Drain failed after {limit:#}: {why}");
            let about = About::node(&node.name, &node.uid);
            emit(&self.context.client, &about, Severity::Warning, "DrainFailed", &text).await;
        }
        true
    }

    /// Has the metric name the pod and the budget that the drain waits for; none of them where the pods are not known.
    fn measure(&mut self, found: Option<(&str, &str)>) {
        let labels = found.map(|(pod, budget)| {
            vec![("node", self.name.clone()), ("pod", pod.to_owned()), ("budget", budget.to_owned())]
        });
        if labels != self.reported.labels {
            self.context.metrics.blocked(self.reported.labels.as_ref(), labels.as_ref());
            self.reported.labels = labels;
        }
    }

    /// Waits for the next change: the Node, its pods, a budget, or a time.
    async fn wait(
        &mut self,
        changes: &mut watch::Receiver<u64>,
        budgets: &mut watch::Receiver<u64>,
        again: Option<Duration>,
        lasts: Duration,
    ) {
        let thresholds = [SLOW_AFTER, FAILED_AFTER].into_iter().chain(self.rules.timeout);
        let thresholds = thresholds.filter(|threshold| *threshold > lasts);
        let threshold = thresholds.min().map(|threshold| uptime() + threshold.saturating_sub(lasts));
        let overdue = self.pods.overdue_at(wall_clock()).map(|left| uptime() + left);
        let longest = self.rules.skip_terminating;
        let skipped = longest.and_then(|longest| self.pods.skipped_at(longest, wall_clock()));
        let skipped = skipped.map(|left| uptime() + left);
        if self.events.is_none() {
            (self.asked, self.listing) = (Some(uptime()), Vec::new());
        }
        let silent = self.silent_at();
        let due = again.into_iter().chain(threshold).chain(overdue).chain(skipped).chain(silent).min();
        let timer = async {
            match due {
                Some(due) => sleep_until(Instant::now() + due.saturating_sub(uptime())).await,
                None => std::future::pending().await,
            }
        };
        let mut timer = std::pin::pin!(timer);
        loop {
            let PodWatch { events, answers } =
                self.events.get_or_insert_with(|| watch_pods(&self.context.client, &self.name));
            tokio::select! {
                event = events.next() => match event {
                    Some(Ok(event)) => if self.see(event) { return },
                    Some(Err(error)) => if self.not_read(Failure::new(&error)) { return },
                    None => { self.events = None; return }
                },
                // A watch without a change has no event.
                _ = answers.next(), if self.is_unwatched => self.is_watched(),
                _ = changes.changed() => return,
                _ = budgets.changed() => return,
                () = &mut timer => {
                    if self.silent_at().is_some_and(|silent| silent <= uptime()) {
                        // It is asked for again: an answer that is so late may never come.
                        self.events = None;
                        let cause = format!("no answer within {} s", LIST_TIMEOUT.as_secs());
                        self.unlisted = Some(Failure::with_code(0, cause));
                    }
                    return;
                }
            }
        }
    }

    /// Returns when the list of pods that is being read has taken too long.
    fn silent_at(&self) -> Option<Duration> {
        self.asked.filter(|_| !self.pods.is_listed()).map(|asked| asked + LIST_TIMEOUT)
    }

    /// Takes an error of the pods' watch; returns true if it changes the next step.
    fn not_read(&mut self, failure: Failure) -> bool {
        self.asked = None;
        if failure.is_refusal() {
            self.tell_unread(Some(failure.clone()));
        }
        if !self.pods.is_listed() {
            let is_news = self.unlisted.as_ref() != Some(&failure);
            self.unlisted = Some(failure);
            return is_news;
        }
        self.is_unwatched = true;
        if let Some(watch) = &mut self.events {
            watch.answers.failed();
        }
        // Log neither each try nor each node if more is down.
        let is_told = failure.is_refusal() || self.context.cache.lock().failing.is_empty();
        if is_told && self.reported.unwatched.as_ref() != Some(&failure.cause) {
            let (node, cause) = (&self.name, &failure.cause);
            warn!(
                "Watch of the pods of node {node} failed: {cause}; the controller lists them again and again"
            );
            self.reported.unwatched = Some(failure.cause);
        }
        false
    }

    /// Reports that the pods are watched.
    fn is_watched(&mut self) {
        self.is_unwatched = false;
        self.reported.unwatched = None;
        self.tell_unread(None);
    }

    /// Has `/readyz` say that the API server does not let the pods be read, or that it does.
    fn tell_unread(&self, failure: Option<Failure>) {
        self.context.cache.change(|snapshot| {
            match failure {
                Some(failure) => drop(snapshot.unread_pods.insert(self.name.clone(), failure)),
                None => drop(snapshot.unread_pods.remove(&self.name)),
            }
            // Nothing is decided by it.
            false
        });
    }

    /// Takes an event of the pods' watch; returns true if it changes the next step.
    fn see(&mut self, event: Event<PartialObjectMeta<PodObject>>) -> bool {
        self.asked = Some(uptime());
        match event {
            Event::Init => {
                self.listing.clear();
                // Its answer is waited for from now on.
                !self.pods.is_listed()
            }
            Event::InitApply(pod) => {
                self.listing.push(seen(pod.metadata));
                false
            }
            Event::InitDone => {
                self.unlisted = None;
                if self.reported.unlisted.take().is_some() {
                    info!("Listed the pods of node {}; its drain continues", self.name);
                }
                if !self.is_unwatched {
                    self.tell_unread(None);
                }
                self.pods.list(std::mem::take(&mut self.listing))
            }
            Event::Apply(pod) => self.pods.put(seen(pod.metadata)),
            Event::Delete(pod) => self.pods.remove(&pod.metadata.uid.unwrap_or_default()),
        }
    }
}

/// Returns the rules for the drain of a node: those of its pool's policy.
fn rules(snapshot: &Snapshot, node: &Node) -> DrainRules {
    let policies = || snapshot.policies.values().filter_map(|policy| policy.as_ref().ok());
    if policies().all(|policy| policy.spec.drain.is_none()) {
        return DrainRules::default();
    }
    match Selectors::new(snapshot.readable_pools()).membership(node) {
        Membership::Pool(pool) => DrainRules::of_pool(policies(), pool),
        Membership::None | Membership::Conflict(_) => DrainRules::default(),
    }
}

/// The time, for the end of grace periods.
fn wall_clock() -> Timestamp {
    Timestamp::from_micros(u64::try_from(jiff::Timestamp::now().as_microsecond()).unwrap_or_default())
}

fn watch_pods(client: &Client, node: &str) -> PodWatch {
    let running = format!("spec.nodeName={node},status.phase!=Succeeded,status.phase!=Failed");
    let api = Api::<PartialObjectMeta<PodObject>>::all(client.clone());
    let config = watches::config().fields(&running);
    let answers = Answers::of(api.resource_url(), &config);
    PodWatch { events: Box::pin(watches::paced(api, config)), answers }
}

fn patch_body(patch: &crate::drain::Patch) -> serde_json::Value {
    let mut body = serde_json::json!({ "metadata": { "annotations": patch.annotations } });
    if !patch.labels.is_empty()
        && let Some(metadata) = body.get_mut("metadata").and_then(serde_json::Value::as_object_mut)
    {
        metadata.insert("labels".to_owned(), serde_json::json!(patch.labels));
    }
    if let (Some(unschedulable), Some(body)) = (patch.unschedulable, body.as_object_mut()) {
        let value = if unschedulable { serde_json::json!(true) } else { serde_json::Value::Null };
        body.insert("spec".to_owned(), serde_json::json!({ "unschedulable": value }));
    }
    body
}
