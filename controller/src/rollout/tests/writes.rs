//! Writes to nodes that fail.

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::super::*;
use super::world::{condition, decide_after, given, node, nodes, now, pool, write};

const WORDS: &str = "admission webhook \"a.test\" denied the request: no (403)";

/// A controller with its memory of writes.
struct Shell {
    pool: Pool,
    nodes: Vec<Node>,
    writes: NodeWrites,
    uptime: Duration,
}

impl Shell {
    fn new(max_unavailable: i32) -> Self {
        let pool = Pool { max_unavailable: Some(IntOrString::Int(max_unavailable)), ..pool("b") };
        Self { pool, nodes: nodes(3, "a"), writes: NodeWrites::default(), uptime: Duration::ZERO }
    }

    fn decide(&mut self) -> Rollout {
        self.writes.observe(self.uptime);
        decide_after(&self.writes, &Clock::default(), &self.pool, &self.nodes, now())
    }

    /// Decides and writes; writes to `bad` get an answer that is none of success. Returns the nodes that were written to.
    fn step(&mut self, bad: &str, answer: Answer) -> Vec<String> {
        let rollout = self.decide();
        let refused = rollout.patches.iter().filter(|patch| patch.node == bad);
        for patch in refused {
            let node = self.nodes.iter().find(|node| node.name == bad).unwrap();
            self.writes.failed(node, self.pool.target().as_ref(), patch, answer, WORDS);
        }
        let given = given(&rollout).into_iter().map(str::to_owned).collect();
        let mut made = rollout;
        made.patches.retain(|patch| patch.node != bad);
        made.patches.iter().for_each(|patch| self.writes.written(patch));
        write(&made, &mut self.pool, &mut self.nodes);
        given
    }

    fn pass(&mut self, seconds: u64) {
        self.uptime += Duration::from_secs(seconds);
    }

    /// As [`Shell::step`] of a write whose answer takes so long; the others are answered at once.
    fn hang(&mut self, bad: &str, seconds: u64) -> (Vec<String>, Rollout) {
        let rollout = self.decide();
        rollout.patches.iter().filter(|patch| patch.node == bad).for_each(|patch| self.writes.sent(patch));
        self.pass(seconds);
        let meanwhile = self.decide();
        self.writes.answered(bad);
        self.writes.observe(self.uptime);
        let sent = rollout.patches.iter().filter(|patch| patch.node == bad);
        for patch in sent {
            let node = self.nodes.iter().find(|node| node.name == bad).unwrap();
            self.writes.failed(node, self.pool.target().as_ref(), patch, Answer::Missing, WORDS);
        }
        (given(&rollout).into_iter().map(str::to_owned).collect(), meanwhile)
    }
}

/// The condition holds from the second failure until a write is answered: an alert needs it for 15 minutes.
#[test]
fn unanswered_write_is_named_during_its_next_tries() {
    let mut shell = Shell::new(1);
    shell.nodes.truncate(1);
    let mut tries = 0;
    let is_named = |rollout: &Rollout| {
        let is_true = |type_| condition(rollout, type_).0 == "True";
        let is_named =
            condition(rollout, "RolloutProgressing").2.contains("waiting for nodes n00 (not written)");
        assert_eq!(is_named, is_true("RolloutNodesNotWritten"));
        is_named && is_true("Degraded")
    };
    for second in 0..3600 {
        // Another target is no answer, nor is a kubelet that reports.
        let (config, version) = (["b", "c"][usize::from(second % 500 > 250)], (second / 100).to_string());
        shell.pool.configuration.name = Some(config.to_owned());
        shell.nodes[0].resource_version = version;
        if !given(&shell.decide()).is_empty() {
            let (_, meanwhile) = shell.hang("n00", 10);
            assert_eq!(is_named(&meanwhile), tries >= 2, "after {tries} tries");
            tries += 1;
        }
        assert_eq!(is_named(&shell.decide()), tries >= 2, "after {tries} tries");
        shell.pass(1);
    }
    assert!(tries > 10, "{tries}");
    shell.writes.written(&NodePatch::new(&shell.nodes[0]));
    assert_eq!(condition(&shell.decide(), "RolloutNodesNotWritten").0, "False");
}

/// The next leader knows nothing of the writes of the one before, and the pool's condition does.
#[test]
fn unwritten_node_stays_named_with_another_leader() {
    let mut shell = Shell::new(1);
    shell.step("n00", Answer::Refused);
    shell.pool.status = shell.decide().status;
    let named = |rollout: &Rollout| condition(rollout, "RolloutNodesNotWritten");
    let before = named(&shell.decide());
    shell.writes = NodeWrites::default();
    // It has not tried the node yet, and others are written.
    assert_eq!(named(&shell.decide()), before);
    shell.step("n00", Answer::Missing);
    shell.pool.status = shell.decide().status;
    assert_eq!(named(&shell.decide()).0, "True");
    // A pool that is paused tries nothing.
    shell.pool.paused = true;
    assert_eq!(named(&shell.decide()).0, "False");
    shell.pool.paused = false;
    shell.pass(600);
    while given(&shell.decide()) != ["n00"] {
        shell.step("", Answer::Refused);
        for node in &mut shell.nodes {
            node.current = node.desired.clone();
        }
        shell.pass(60);
    }
    shell.step("", Answer::Refused);
    assert_eq!(named(&shell.decide()).0, "False");
}

/// A write that the API server may still make keeps the Lease.
#[test]
fn target_is_open_until_its_write_is_settled() {
    let open = |shell: &Shell| shell.writes.open_targets().map(str::to_owned).collect::<Vec<_>>();
    for (answer, is_open) in [(Answer::Refused, false), (Answer::Unsent, false), (Answer::Missing, true)] {
        let mut shell = Shell::new(1);
        let rollout = shell.decide();
        let patch = rollout.patches.iter().find(|patch| patch.node == "n00").unwrap();
        shell.writes.sent(patch);
        assert_eq!(open(&shell), ["n00"]);
        shell.writes.answered("n00");
        assert_eq!(open(&shell), [""; 0]);
        shell.step("n00", answer);
        assert_eq!(!open(&shell).is_empty(), is_open, "{answer:?}");
        // The API server is done with it by now, and the node is read.
        shell.pass(61);
        shell.writes.observe(shell.uptime);
        shell.writes.read("n00");
        assert_eq!(open(&shell), [""; 0]);
    }
}

/// Also of a refusal that comes slowly.
#[test]
fn refused_write_is_named_during_its_next_try() {
    let mut shell = Shell::new(1);
    shell.step("n00", Answer::Refused);
    shell.pass(2);
    let rollout = shell.decide();
    let patch = rollout.patches.iter().find(|patch| patch.node == "n00").unwrap();
    shell.writes.sent(patch);
    assert_eq!(condition(&shell.decide(), "RolloutNodesNotWritten").1, "NodeWriteRefused");
}

#[test]
fn refused_node_takes_no_place_and_is_named() {
    let mut shell = Shell::new(1);
    assert_eq!(shell.step("n00", Answer::Refused), ["n00"]);
    // The next one goes at once, with maxUnavailable 1.
    assert_eq!(shell.step("n00", Answer::Refused), ["n01"]);
    let rollout = shell.decide();
    assert_eq!(given(&rollout), [""; 0]);
    for (type_, reason) in [("RolloutNodesNotWritten", "NodeWriteRefused"), ("Degraded", "NodeWriteRefused")]
    {
        let (status, found, message) = condition(&rollout, type_);
        assert_eq!((&*status, &*found), ("True", reason));
        assert!(message.contains(&format!("node n00 can't be written: {WORDS}")), "{message}");
        assert!(message.contains("they take no place of maxUnavailable"), "{message}");
    }
    assert!(condition(&rollout, "RolloutProgressing").2.contains("n00 (not written)"));
    // It wakes for the next try.
    assert_eq!(rollout.wake, Some(now() + jiff::SignedDuration::from_secs(2)));
}

/// Also where the pool gives no target: the topology, and the mark of the pool that a node left.
#[test]
fn refused_node_of_paused_pool_is_not_tried_at_once() {
    for is_told in [true, false] {
        let mut shell = Shell::new(1);
        shell.pool.paused = true;
        if is_told {
            shell.pool.topology = Topology::Named("SingleReplica".to_owned());
        } else {
            shell.nodes[0].left = Some("infra".to_owned());
        }
        shell.step("n00", Answer::Refused);
        assert_eq!(shell.decide().patches, [], "topology: {is_told}");
        shell.pass(2);
        assert_eq!(shell.decide().patches.len(), 1, "topology: {is_told}");
    }
}

#[test]
fn refused_node_is_tried_again_with_growing_pauses() {
    let mut shell = Shell::new(3);
    shell.step("n00", Answer::Refused);
    let mut tries = Vec::new();
    for second in 1..=700 {
        shell.pass(1);
        if shell.step("n00", Answer::Refused).contains(&"n00".to_owned()) {
            tries.push(second);
        }
    }
    assert_eq!(tries, [2, 6, 14, 30, 62, 126, 254, 510]);
}

#[test]
fn change_of_node_or_target_is_tried_at_once() {
    let change: [fn(&mut Shell); 3] = [
        |shell| shell.nodes[0].labels.extend([("a".to_owned(), "b".to_owned())]),
        |shell| shell.pool.configuration.name = Some("c".to_owned()),
        |shell| shell.nodes[0].uid = "another".to_owned(),
    ];
    for change in change {
        let mut shell = Shell::new(3);
        shell.step("n00", Answer::Refused);
        assert!(!given(&shell.decide()).contains(&"n00"));
        change(&mut shell);
        assert!(given(&shell.decide()).contains(&"n00"));
        assert_eq!(condition(&shell.decide(), "RolloutNodesNotWritten").0, "False");
    }
    // A kubelet that reports changes nothing of it.
    let mut shell = Shell::new(3);
    shell.step("n00", Answer::Refused);
    (shell.nodes[0].resource_version, shell.nodes[0].ready) = ("2".to_owned(), false);
    assert!(!given(&shell.decide()).contains(&"n00"));
}

/// Nobody knows whether the node has the target: it takes the place, until its version shows that it has not, or never will.
#[test]
fn unanswered_write_holds_its_place() {
    let mut shell = Shell::new(1);
    assert_eq!(shell.step("n00", Answer::Missing), ["n00"]);
    assert_eq!(given(&shell.decide()), [""; 0]);
    // One lost answer degrades nothing.
    assert_eq!(condition(&shell.decide(), "RolloutNodesNotWritten").0, "False");
    shell.writes.read("n00");
    assert_eq!(given(&shell.decide()), [""; 0], "the server may still work on it");
    shell.pass(2);
    assert_eq!(shell.step("n00", Answer::Missing), ["n00"], "the same write again");
    let (_, reason, message) = condition(&shell.decide(), "RolloutNodesNotWritten");
    assert_eq!(reason, "NodeWriteUnanswered");
    assert!(message.contains("the node takes a place of maxUnavailable"), "{message}");
    // Another version: the write can't come any more, and was not made.
    let mut changed = Shell { nodes: shell.nodes.clone(), pool: shell.pool.clone(), ..Shell::new(1) };
    changed.writes = shell.writes.clone();
    changed.uptime = shell.uptime;
    changed.nodes[0].resource_version = "2".to_owned();
    assert_eq!(given(&changed.decide()), ["n01"]);
    // Or it is read when the time is over in which a server works on a request.
    shell.writes.read("n00");
    shell.writes.observe(shell.uptime + Duration::from_secs(60));
    let decide =
        |shell: &Shell| decide_after(&shell.writes, &Clock::default(), &shell.pool, &shell.nodes, now());
    assert_eq!(given(&decide(&shell)), ["n00"], "it came since that reading, perhaps: no other one");
    assert_eq!(shell.writes.unread(), ["n00"]);
    shell.writes.read("n00");
    assert_eq!(given(&decide(&shell)), ["n01"]);
    // Without a reading it may be anything.
    let mut unread = Shell::new(1);
    unread.step("n00", Answer::Missing);
    unread.pass(100_000);
    assert_eq!(given(&unread.decide()), ["n00"], "no other one");
    assert_eq!(unread.writes.unread(), ["n00"]);
}

/// A node that is never answered takes its place for a minute after its first tries, and then goes last.
#[test]
fn unanswered_node_stops_its_pool_for_one_minute_in_all() {
    for (lasts, most) in [(10, 85), (0, 70)] {
        let mut shell = Shell::new(1);
        shell.nodes = nodes(8, "a");
        let (mut tried, mut others) = (Vec::new(), Vec::new());
        while shell.uptime < Duration::from_secs(200) {
            let now = shell.uptime.as_secs();
            shell.writes.observe(shell.uptime);
            shell.writes.unread().iter().for_each(|node| shell.writes.read(node));
            if given(&shell.decide()).contains(&"n00") {
                shell.hang("n00", lasts);
                tried.push(shell.uptime.as_secs());
                shell.writes.read("n00");
            } else if let [node] = &*shell.step("n00", Answer::Missing) {
                others.push(now);
                super::world::finish(&mut shell.nodes, node);
                shell.nodes.sort_by_key(|node| node.name.clone());
            }
            shell.pass(1);
        }
        assert!(others.len() == 7 && others[0] <= most && others[6] <= most + 14, "{tried:?} {others:?}");
        // The last request may be carried out for a minute, and the node has a place meanwhile.
        let before = tried.iter().filter(|at| **at < others[0]).max().unwrap();
        assert!(others[0] >= before + 60, "{tried:?} {others:?}");
        assert!(tried.iter().all(|at| *at < others[0] || *at > others[6]), "{tried:?} {others:?}");
        assert!(tried.len() > 2 && tried.iter().any(|at| *at > others[6]), "{tried:?} {others:?}");
    }
}

/// Without a connection nothing was sent: no place, and a try soon after.
#[test]
fn write_that_was_not_sent_takes_no_place() {
    let mut shell = Shell::new(1);
    shell.step("n00", Answer::Unsent);
    assert_eq!(given(&shell.decide()), ["n01"]);
    shell.nodes.truncate(1);
    let mut tried = Vec::new();
    for second in 1..=60 {
        shell.pass(1);
        tried.extend((!shell.step("n00", Answer::Unsent).is_empty()).then_some(second));
    }
    assert_eq!(tried, [2, 6, 14, 30]);
    assert_eq!(condition(&shell.decide(), "RolloutNodesNotWritten").1, "NodeWriteUnanswered");
}

/// The next try is refused: the one before it may still be carried out.
#[test]
fn refusal_after_unanswered_write_frees_no_place() {
    let mut shell = Shell::new(1);
    shell.step("n00", Answer::Missing);
    shell.pass(2);
    assert_eq!(shell.step("n00", Answer::Refused), ["n00"]);
    assert_eq!(given(&shell.decide()), [""; 0]);
    shell.pass(58);
    shell.writes.observe(shell.uptime);
    shell.writes.read("n00");
    assert_eq!(given(&shell.decide()), ["n00"]);
    assert_eq!(shell.step("n00", Answer::Refused), ["n00"]);
    assert_eq!(given(&shell.decide()), ["n01"]);
}

/// In a pool whose other nodes take long, too, it has its turn.
#[test]
fn unanswered_node_is_tried_after_half_an_hour_at_most() {
    let mut shell = Shell::new(1);
    shell.nodes = nodes(60, "a");
    let mut tried = Vec::new();
    while shell.uptime < Duration::from_secs(3000) {
        shell.writes.observe(shell.uptime);
        shell.writes.unread().iter().for_each(|node| shell.writes.read(node));
        let given = shell.step("n00", Answer::Missing);
        let (now, is_tried) = (shell.uptime.as_secs(), given.contains(&"n00".to_owned()));
        tried.extend(is_tried.then_some(now));
        given
            .iter()
            .filter(|node| *node != "n00")
            .for_each(|node| super::world::finish(&mut shell.nodes, node));
        shell.pass(if now < 10 { 2 } else { 60 });
    }
    assert!(matches!(*tried, [0, 2, 6, later] if (1806..2200).contains(&later)), "{tried:?}");
}

/// An answer of 5xx comes when the server has done with it: one reading tells.
#[test]
fn failed_write_is_settled_by_reading() {
    [Answer::Failed, Answer::Unreadable].into_iter().for_each(settled_by_reading);
}

fn settled_by_reading(answer: Answer) {
    let mut shell = Shell::new(1);
    shell.step("n00", answer);
    assert_eq!(given(&shell.decide()), [""; 0]);
    shell.pass(2);
    shell.decide();
    assert_eq!(shell.writes.unread(), ["n00"]);
    shell.writes.not_read("n00");
    assert_eq!(shell.writes.unread(), [""; 0]);
    shell.writes.read("n00");
    assert_eq!(given(&shell.decide()), ["n01"]);
    shell.pass(9);
    shell.decide();
    assert_eq!(shell.writes.unread(), [""; 0]);
}

/// A canary whose fate is not known is the canary.
#[test]
fn unanswered_canary_keeps_its_wave() {
    let mut shell = Shell::new(3);
    let spec =
        serde_json::from_value(serde_json::json!({ "canary": { "nodes": 1, "soak": "10m" } })).unwrap();
    shell.pool.policies = vec![Policy { name: "worker".to_owned(), spec, ..Policy::default() }];
    shell.pool.status = shell.decide().status;
    let first = shell.step("n00", Answer::Missing);
    let all: Vec<_> = (0..3).flat_map(|_| shell.step("n00", Answer::Missing)).collect();
    assert_eq!((first.as_slice(), all.as_slice()), (&["n00".to_owned()][..], &[][..]));
    assert_eq!(condition(&shell.decide(), "RolloutProgressing").1, "Updating");
}

/// Another program gives the node its old target after each of ours.
#[test]
fn target_that_is_set_back_is_given_again_with_growing_pauses() {
    let mut shell = Shell::new(3);
    shell.nodes = vec![node("n00", "a")];
    let mut given = Vec::new();
    for second in 0..300 {
        if !shell.step("", Answer::Refused).is_empty() {
            given.push(second);
            let is_named = condition(&shell.decide(), "RolloutNodesNotWritten").0 == "True";
            assert!(!is_named, "it has the target");
            shell.nodes[0].desired = Pair::new("a", None);
            shell.nodes[0].resource_version = second.to_string();
            shell.nodes[0].labels.insert("changed".to_owned(), second.to_string());
        }
        if given.len() >= 3 {
            let (_, reason, message) = condition(&shell.decide(), "RolloutNodesNotWritten");
            assert_eq!(reason, "NodeTargetSetBack");
            assert!(message.contains("node n00: another program sets its target back"), "{message}");
        }
        shell.pass(1);
    }
    assert_eq!(given, [0, 1, 2, 4, 8, 16, 32, 64, 128, 256]);
    // Our own change of mind is none of another's.
    shell.pool.configuration.name = Some("c".to_owned());
    assert_eq!(super::world::given(&shell.decide()), ["n00"]);
}

/// Its pools, or the MachineConfigs of its pool, want another target each second.
#[test]
fn former_target_is_given_twice_and_then_rarely() {
    let mut shell = Shell::new(1);
    shell.nodes.truncate(1);
    let mut given = Vec::new();
    for second in 0..600 {
        shell.pool.configuration.name = Some(["b", "a"][usize::from(second % 2 == 1)].to_owned());
        if !shell.step("", Answer::Refused).is_empty() {
            given.push(second);
            super::world::finish(&mut shell.nodes, "n00");
        }
        shell.pass(1);
    }
    assert_eq!(given, [0, 1, 2, 3, 34, 95, 216, 457]);
    shell.pool.configuration.name = Some("b".to_owned());
    let rollout = shell.decide();
    let (status, reason, message) = condition(&rollout, "RolloutNodesNotWritten");
    assert_eq!((&*status, &*reason), ("True", "NodeTargetAlternates"));
    assert!(message.starts_with("node n00: it was given several targets in turn; "), "{message}");
    // One that is new is given at once.
    shell.pool.configuration.name = Some("c".to_owned());
    assert_eq!(shell.step("", Answer::Refused), ["n00"]);
}

/// A kind that can't be read may forbid the next step; the pool says so.
#[test]
fn nothing_is_given_while_policies_are_unread_or_unrecorded() {
    let message = "rolloutpolicies can't be read: forbidden";
    let unread = Pool { unread: Some(message.to_owned()), ..pool("b") };
    let unrecorded = Pool { unrecorded: Some(message.to_owned()), ..pool("b") };
    for (pool, reason) in [(unread, "Unread"), (unrecorded, "Unrecorded")] {
        let rollout = super::world::decide(&pool, &nodes(2, "a"));
        assert!(rollout.patches.is_empty());
        let (status, found, text) = condition(&rollout, "RolloutProgressing");
        assert_eq!((&*status, &*found, &*text), ("False", reason, message));
        let (status, found, text) = condition(&rollout, "Degraded");
        assert_eq!((&*status, &*found, &*text), ("True", reason, message));
    }
}

/// A node that refuses the labels of its pool is of none: its pool names it, and gives its own nodes the target all the same.
#[test]
fn node_without_labels_of_its_pool_is_named_and_counts_for_nothing() {
    let mut shell = Shell::new(1);
    let new = Node { first_pivot: Some("a".to_owned()), ..node("new", "a") };
    let patch = NodePatch::new(&new);
    shell.writes.failed(&new, None, &patch, Answer::Refused, WORDS);
    assert_eq!(shell.writes.wait(&new, None), Some(Duration::from_secs(2)));
    shell.pool.unlabeled = vec![new.clone()];
    let rollout = shell.decide();
    let (status, reason, message) = condition(&rollout, "RolloutNodesNotWritten");
    assert_eq!((&*status, &*reason), ("True", "NodeWriteRefused"));
    assert!(message.contains(&format!("node new can't be written: {WORDS}")), "{message}");
    assert_eq!((given(&rollout), rollout.status.machine_count), (vec!["n00"], Some(3)));
    shell.pass(2);
    shell.writes.observe(shell.uptime);
    assert_eq!(shell.writes.wait(&new, None), None);
    shell.writes.written(&patch);
    assert!(shell.writes.is_well());
}

/// A write of a drain without an answer was not refused, and nobody has to mend what does not answer for a moment.
#[test]
fn drain_without_answer_is_not_called_refused() {
    let undrained =
        |node: &str, answer| Undrained { node: node.to_owned(), answer, cause: "its cause".to_owned() };
    let told = |undrained: Vec<Undrained>| {
        let pool = Pool { undrained, ..pool("b") };
        condition(&super::world::decide(&pool, &nodes(2, "a")), "RolloutNodesNotWritten")
    };
    let (_, reason, message) = told(vec![undrained("n00", Answer::Missing)]);
    assert_eq!(reason, "NodeWriteUnanswered");
    let words = "node n00: the API server did not answer its cordon, its uncordon or the answer to its agent's request: its cause; the \
        drain sends it again within 30 s; the node takes a place of maxUnavailable";
    assert_eq!(message, words);
    let refused =
        "node n01 can't be cordoned or uncordoned, or its agent's request can't be answered: its cause";
    for answer in [Answer::Refused, Answer::Failed] {
        let (_, reason, message) = told(vec![undrained("n00", Answer::Missing), undrained("n01", answer)]);
        assert_eq!(reason, "NodeWriteRefused");
        assert!(message.contains(refused) && message.ends_with("after 5 minutes at most"), "{message}");
    }
}
