//! The pods of a drain, and the state of each.

mod skip;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::answer::{Cause, Outcome, Refusal};
use super::budget::KnownBudgets;
use crate::model::Timestamp;

/// Time after which a pod that should have ended is named: a kubelet reports the end with a delay.
const OVERDUE_AFTER: Duration = Duration::from_secs(30);

/// Most pods and finalizers with their names in a text.
const MAX_NAMED: usize = 5;

/// A pod as it was listed or watched.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PodSeen {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its uid: another pod of the same name is not meant.
    pub uid: String,
    /// Its labels, which budgets select by.
    pub labels: BTreeMap<String, String>,
    /// When it was created, by the clock of the API server.
    pub created: Option<Timestamp>,
    /// A drain leaves it ([`crate::model::pod::stays_on_node`]).
    pub stays: bool,
    /// Set while it is Terminating.
    pub terminating: Option<Terminating>,
}

/// Its deletion.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Terminating {
    /// End of its grace period (`deletionTimestamp`).
    pub due: Timestamp,
    /// Its finalizers.
    pub finalizers: Vec<String>,
}

/// A pod that is to leave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pod {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    created: Option<Timestamp>,
    state: State,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum State {
    /// Its eviction was not requested yet.
    There,
    /// Its eviction was accepted, and the watch is behind.
    Evicted,
    Terminating(Terminating),
    Refused {
        refusal: Refusal,
        /// Time of the next request on the clock of the retries.
        again: Duration,
        /// Its budgets when it was refused.
        budgets: KnownBudgets,
    },
}

/// The pod that a drain waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Blocker {
    /// `namespace/name` of the pod.
    pub pod: String,
    /// Budgets keep it.
    pub is_kept: bool,
    /// `namespace/name` of the budget, of several with commas between; empty where none is the cause.
    pub budget: String,
    /// The whole, for people.
    pub text: String,
}

/// The pods of a drain, by uid.
#[derive(Debug, Default)]
pub struct Pods {
    /// A list was complete: which pods leave is known.
    is_listed: bool,
    /// Creation of the newest pod that leaves, where an earlier process recorded it.
    until: Option<Timestamp>,
    leaving: BTreeMap<String, Pod>,
    /// Pods that came to the cordoned node: `namespace/name` by uid.
    late: BTreeMap<String, String>,
    /// Pods that the drain stopped waiting for, in the same way.
    skipped: BTreeMap<String, String>,
}

impl Pods {
    /// Goes on with a drain of which an earlier process recorded [`Pods::newest`]: what was created later came to the cordoned
    /// node. It counts for the first list.
    pub fn go_on(&mut self, until: Option<Timestamp>) {
        if !self.is_listed {
            self.until = until;
        }
    }

    /// Returns the creation of the newest pod that leaves; `None` where none does.
    pub fn newest(&self) -> Option<Timestamp> {
        self.leaving.values().filter_map(|pod| pod.created).max()
    }

    /// Takes a complete list. The first one says which pods leave; of later ones, pods that are still there keep their state.
    /// Returns true if that changes the next step.
    pub fn list(&mut self, listed: impl IntoIterator<Item = PodSeen>) -> bool {
        let listed: Vec<PodSeen> = listed.into_iter().collect();
        let uids: BTreeSet<&str> = listed.iter().map(|pod| pod.uid.as_str()).collect();
        let before = self.leaving.len();
        self.leaving.retain(|uid, _| uids.contains(uid.as_str()));
        self.late.retain(|uid, _| uids.contains(uid.as_str()));
        self.skipped.retain(|uid, _| uids.contains(uid.as_str()));
        let gone = before != self.leaving.len();
        let mut changed = gone || !self.is_listed;
        for pod in listed {
            changed |= self.put(pod);
        }
        self.is_listed = true;
        changed
    }

    /// Takes a pod as it is now; returns true if that changes the next step.
    pub fn put(&mut self, seen: PodSeen) -> bool {
        let PodSeen { namespace, name, uid, labels, created, stays, terminating } = seen;
        if stays || self.skipped.contains_key(&uid) {
            return false;
        }
        let Some(old) = self.leaving.get(&uid).map(|pod| pod.state.clone()) else {
            if self.is_listed || self.until.zip(created).is_some_and(|(until, created)| created > until) {
                return self.late.insert(uid, format!("{namespace}/{name}")).is_none();
            }
            let state = terminating.map_or(State::There, State::Terminating);
            self.leaving.insert(uid.clone(), Pod { namespace, name, uid, labels, created, state });
            return true;
        };
        let state = terminating.map_or_else(|| old.clone(), State::Terminating);
        let changed = state != old;
        self.leaving.insert(uid.clone(), Pod { namespace, name, uid, labels, created, state });
        changed
    }

    /// Removes a pod that is gone; returns true if that changes the next step.
    pub fn remove(&mut self, uid: &str) -> bool {
        self.skipped.remove(uid);
        self.late.remove(uid).is_some() || self.leaving.remove(uid).is_some()
    }

    /// Returns true once a list was complete.
    pub fn is_listed(&self) -> bool {
        self.is_listed
    }

    /// Returns true once a list was complete and no pod of it is left.
    pub fn is_drained(&self) -> bool {
        self.is_listed && self.leaving.is_empty()
    }

    /// Takes the outcome of an eviction. `budgets` are those of the pod as they are known now.
    pub fn answered(&mut self, uid: &str, outcome: Outcome, budgets: KnownBudgets, now: Duration) {
        let Some(pod) = self.leaving.get_mut(uid) else { return };
        match outcome {
            Outcome::Gone => drop(self.leaving.remove(uid)),
            // The watch may have been faster.
            Outcome::Evicted if matches!(pod.state, State::Terminating(_)) => {}
            Outcome::Evicted => pod.state = State::Evicted,
            Outcome::Refused(refusal) => {
                let again = now + refusal.wait;
                pod.state = State::Refused { refusal, again, budgets };
            }
        }
    }

    /// Returns the pods to evict now.
    pub fn to_evict(&self, now: Duration) -> Vec<Pod> {
        let due = |pod: &&Pod| match &pod.state {
            State::There => true,
            State::Evicted | State::Terminating(_) => false,
            State::Refused { again, .. } => *again <= now,
        };
        self.leaving.values().filter(due).cloned().collect()
    }

    /// Returns when the next refused eviction is to be requested again.
    pub fn due(&self) -> Option<Duration> {
        let again = |pod: &Pod| match &pod.state {
            State::Refused { again, .. } => Some(*again),
            State::There | State::Evicted | State::Terminating(_) => None,
        };
        self.leaving.values().filter_map(again).min()
    }

    /// Makes pods due at once whose budgets have changed since they refused, and allow it now. Returns true if there is one.
    pub fn budgets_changed(&mut self, of: impl Fn(&Pod) -> KnownBudgets, now: Duration) -> bool {
        let mut any = false;
        for pod in self.leaving.values_mut() {
            let found = of(pod);
            let State::Refused { refusal, again, budgets } = &mut pod.state else { continue };
            if refusal.cause == Cause::Budget && *again > now && found.allow() && found != *budgets {
                *again = now;
                any = true;
            }
        }
        any
    }

    /// Returns the time at which a pod becomes overdue that is not yet.
    pub fn overdue_at(&self, now: Timestamp) -> Option<Duration> {
        let left = |pod: &Pod| match &pod.state {
            State::Terminating(terminating) => {
                let due = Timestamp::from_micros(terminating.due.micros() + micros(OVERDUE_AFTER));
                (due > now).then(|| due.since(now))
            }
            State::There | State::Evicted | State::Refused { .. } => None,
        };
        self.leaving.values().filter_map(left).min()
    }

    /// Returns what the drain waits for: a pod that may not leave before one that does not end; `None` while all are about to.
    pub fn blocker(&self, of: impl Fn(&Pod) -> KnownBudgets, now: Timestamp) -> Option<Blocker> {
        let refused = |pod: &&Pod| matches!(pod.state, State::Refused { .. });
        let overdue = |pod: &&Pod| match &pod.state {
            State::Terminating(terminating) => now.since(terminating.due) >= OVERDUE_AFTER,
            State::There | State::Evicted | State::Refused { .. } => false,
        };
        let by_name = |pod: &&Pod| (pod.namespace.clone(), pod.name.clone(), pod.uid.clone());
        let all = || self.leaving.values();
        // One that a person has to see to comes before one whose eviction may pass at any moment.
        let first = all().filter(refused).min_by_key(|pod| (pod.is_passing(), by_name(pod)));
        let pod = first.or(all().filter(overdue).min_by_key(by_name))?;
        let others =
            all().filter(|other| refused(other) || overdue(other)).filter(|other| other.uid != pod.uid);
        let (budget, mut text) = pod.blocked(of(pod));
        if let Some(names) = named(others.map(Pod::full_name)) {
            text += &format!(" (also blocking: {names})");
        }
        let is_kept = pod.refusal().is_some_and(|refusal| refusal.cause == Cause::Budget);
        Some(Blocker { pod: pod.full_name(), is_kept, budget, text })
    }

    /// Names a pod that is about to leave; `None` where there is none.
    pub fn leaving(&self) -> Option<String> {
        self.leaving.values().map(Pod::full_name).min().map(|name| format!("pod {name} is leaving"))
    }

    /// Returns true if no pod was asked to leave, or leaves: nothing is known of what would hold it.
    pub fn is_untried(&self) -> bool {
        self.leaving.values().all(|pod| matches!(pod.state, State::There))
    }

    /// Names the pods that came to the cordoned node and stay; `None` where there is none.
    pub fn late(&self) -> Option<String> {
        named(self.late.values().cloned()).map(|names| {
            format!("pods {names} came to the cordoned node and are not evicted: they tolerate its taint")
        })
    }
}

fn named(pods: impl Iterator<Item = String>) -> Option<String> {
    let mut names: Vec<String> = pods.collect();
    names.sort_unstable();
    let more = names.len().saturating_sub(MAX_NAMED);
    names.truncate(MAX_NAMED);
    let more = if more == 0 { String::new() } else { format!(" and {more} more") };
    (!names.is_empty()).then(|| format!("{}{more}", names.join(", ")))
}

impl Pod {
    fn full_name(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    /// Returns its budgets by name, and why it does not leave.
    fn blocked(&self, budgets: KnownBudgets) -> (String, String) {
        let full = self.full_name();
        match &self.state {
            State::There | State::Evicted => (String::new(), format!("pod {full} is leaving")),
            State::Terminating(terminating) => (String::new(), terminating.text(&full)),
            State::Refused { refusal, .. } if refusal.cause == Cause::Budget => {
                self.kept(budgets, &refusal.message)
            }
            State::Refused { refusal, .. } => (String::new(), stays(&full, refusal)),
        }
    }

    fn refusal(&self) -> Option<&Refusal> {
        match &self.state {
            State::Refused { refusal, .. } => Some(refusal),
            State::There | State::Evicted | State::Terminating(_) => None,
        }
    }

    fn is_passing(&self) -> bool {
        self.refusal().is_some_and(|refusal| refusal.cause.is_passing())
    }

    fn kept(&self, budgets: KnownBudgets, message: &str) -> (String, String) {
        let full = self.full_name();
        let budgets = match budgets {
            KnownBudgets::Unknown => Vec::new(),
            KnownBudgets::All(budgets) => budgets,
        };
        let names: Vec<String> =
            budgets.iter().map(|budget| format!("{}/{}", self.namespace, budget.name)).collect();
        let text = match &names[..] {
            [] => format!("pod {full} is kept by its PodDisruptionBudget: {message}"),
            [one] => format!("pod {full} is kept by PodDisruptionBudget {one}: {message}"),
            several => format!(
                "pod {full} is kept by {} PodDisruptionBudgets, {}, and the API server refuses to evict it; delete all but one",
                several.len(),
                several.join(" and ")
            ),
        };
        (names.join(","), text)
    }
}

/// Returns why a pod stays, whatever its budgets say.
fn stays(pod: &str, refusal: &Refusal) -> String {
    let Refusal { cause, is_deletion, message, .. } = refusal;
    let (done, what) = if *is_deletion { ("deleted", "deletion") } else { ("evicted", "eviction") };
    let of_server = match cause {
        Cause::Budget | Cause::Refused => return format!("pod {pod} can't be {done}: {message}"),
        Cause::Busy => "the API server is busy: ",
        Cause::Failed => "the API server failed: ",
        Cause::Unanswered => "",
    };
    format!("pod {pod} is not {done} yet: {of_server}{message}; its {what} is requested again")
}

impl Terminating {
    fn text(&self, pod: &str) -> String {
        if self.finalizers.is_empty() {
            return format!(
                "pod {pod} should have ended at {}, and its kubelet has not reported that; check the kubelet and the container \
                 runtime of the node",
                self.due
            );
        }
        let mut names: Vec<&str> = self.finalizers.iter().map(String::as_str).take(MAX_NAMED).collect();
        names.sort_unstable();
        format!(
            "pod {pod} should have ended at {}, and is held by finalizers: {}; check their controllers",
            self.due,
            names.join(", ")
        )
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
