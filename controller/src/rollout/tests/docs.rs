//! `docs/rollouts.md` has each condition and reason that the code sets, and no other.

use std::collections::BTreeSet;

use super::super::accepted::{ACCEPTED, POOL_FOUND, POOL_NOT_FOUND};
use super::super::orphan::{ANNOTATED, POLICY_DELETED, POLICY_FOLLOWED};
use super::super::phase::{HALTED, Mistake, Phase, RESUMED, TOO_MANY_FAILURES};
use super::super::status::{DRAIN_BLOCKED, EVICTION_REFUSED, INVALID, NOT_WRITTEN, PROGRESSING};
use super::super::writes::Unwritten;

const PAGE: &str = include_str!("../../../../docs/rollouts.md");

#[test]
fn page_has_each_condition_and_reason() {
    let progressing = Phase::ALL.iter().map(|phase| (PROGRESSING, phase.as_str()));
    let invalid = Mistake::ALL.iter().map(|mistake| (INVALID, mistake.as_str()));
    let halted = [TOO_MANY_FAILURES, POLICY_DELETED, POLICY_FOLLOWED].map(|reason| (HALTED, reason));
    let others = halted.into_iter().chain([(DRAIN_BLOCKED, EVICTION_REFUSED), (RESUMED, ANNOTATED)]);
    let accepted = [POOL_FOUND, POOL_NOT_FOUND, Mistake::Policy.as_str()].map(|reason| (ACCEPTED, reason));
    let unwritten = Unwritten::ALL.iter().map(|why| (NOT_WRITTEN, why.as_str()));
    let code: BTreeSet<_> =
        progressing.chain(invalid).chain(unwritten).chain(others).chain(accepted).collect();
    let row = |line: &'static str| {
        let mut cells = line.split('|').map(|cell| cell.trim().trim_matches('`')).skip(1);
        let (type_, reason) = (cells.next()?, cells.next()?);
        (type_.starts_with("Rollout") || type_ == ACCEPTED).then_some((type_, reason))
    };
    let page: BTreeSet<_> = PAGE.lines().filter_map(row).collect();
    assert_eq!(page, code);
}

/// The policy of the page is one that the API server and the controller take.
#[test]
fn example_is_valid_policy() {
    let example = PAGE.split("```yaml\n").nth(1).unwrap().split("```").next().unwrap();
    let policy: crate::api::RolloutPolicy = serde_saphyr::from_str(example).unwrap();
    let mut pool = super::world::pool("b");
    pool.policies = vec![super::super::Policy::from_policy(&policy)];
    let rules = super::super::policy::Rules::new(&pool, 100).unwrap().unwrap();
    assert_eq!(rules.waves.iter().map(|wave| wave.until).collect::<Vec<_>>(), [1, 11, 61]);
    assert!(rules.prefetch.is_some() && rules.node_timeout.is_some());
}
