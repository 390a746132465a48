//! Elections: of one process, and of several under random delays.

use super::*;

const TIMING: Timing = Timing {
    duration: Duration::from_secs(15),
    renew_deadline: Duration::from_secs(10),
    retry_period: Duration::from_secs(4),
};

const fn at(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn lease(version: u64, holder: &str) -> Lease {
    let holder = Some(holder.to_owned()).filter(|holder| !holder.is_empty());
    Lease { version: version.to_string(), holder, transitions: 0, duration: TIMING.duration }
}

fn candidate(name: &str) -> Election {
    Election::new(name.to_owned(), TIMING)
}

#[test]
fn waits_whole_duration_for_unchanged_version() {
    let mut b = candidate("b");
    assert_eq!(b.next(at(0)), Next::Wait(None));
    b.observe(Some(lease(1, "a")), at(1));
    assert_eq!(b.next(at(15)), Next::Wait(Some(at(16))));
    b.observe(Some(lease(2, "a")), at(10));
    assert_eq!(b.next(at(20)), Next::Wait(Some(at(25))));
    // The same version again is no news.
    b.observe(Some(lease(2, "a")), at(20));
    assert_eq!(b.next(at(25)), Next::Write("2".to_owned()));
    // The server answers that it is not the newest.
    b.failed(at(25));
    assert_eq!(b.next(at(25)), Next::Wait(Some(at(26))));
    b.observe(Some(lease(3, "a")), at(25));
    assert_eq!(b.next(at(26)), Next::Wait(Some(at(40))));
    assert_eq!(b.leads(at(26)), None);
}

/// No replica can be started with a longer duration than an hour: who writes more is a stranger.
#[test]
fn duration_that_no_replica_has_is_not_waited_for() {
    let of_stranger = |seconds| Lease { duration: at(seconds), ..lease(1, "stranger") };
    for (seconds, until) in [(3600, 3601), (3601, 3601), (2_147_483_647, 3601), (0, 16)] {
        let mut b = candidate("b");
        b.observe(Some(of_stranger(seconds)), at(1));
        assert_eq!(b.next(at(2)), Next::Wait(Some(at(until))), "{seconds}");
    }
}

#[test]
fn released_lease_is_taken_at_once() {
    let mut b = candidate("b");
    b.observe(Some(lease(1, "")), at(1));
    assert_eq!(b.next(at(1)), Next::Write("1".to_owned()));
    b.written(lease(2, "b"), at(1), at(2));
    assert_eq!(b.leads(at(2)), Some(at(11)));
    assert_eq!((b.held(), b.next(at(2))), (Some("2"), Next::Wait(Some(at(5)))));
    assert_eq!(b.next(at(5)), Next::Write("2".to_owned()));
}

#[test]
fn leader_without_renewal_ends_before_others_may_take() {
    let mut a = candidate("a");
    a.observe(Some(lease(1, "")), at(0));
    a.written(lease(2, "a"), at(0), at(0));
    for second in 4..10 {
        assert_eq!(a.next(at(second)), Next::Write("2".to_owned()));
        a.failed(at(second));
    }
    assert_eq!((a.next(at(10)), a.leads(at(10))), (Next::End, None));
}

#[test]
fn leader_ends_when_another_name_or_none_is_in_lease() {
    for other in [Some(lease(3, "b")), Some(lease(3, "")), None] {
        let mut a = candidate("a");
        a.observe(Some(lease(1, "")), at(0));
        a.written(lease(2, "a"), at(0), at(0));
        a.observe(other, at(1));
        assert_eq!((a.next(at(1)), a.leads(at(1)), a.held()), (Next::End, None, None));
        // It does not come back.
        a.written(lease(4, "a"), at(1), at(1));
        assert_eq!(a.leads(at(1)), None);
    }
}

/// A person's annotation gives the Lease another version.
#[test]
fn leader_renews_from_version_of_others() {
    let mut a = candidate("a");
    a.observe(Some(lease(1, "")), at(0));
    a.written(lease(2, "a"), at(0), at(0));
    a.observe(Some(lease(3, "a")), at(1));
    assert_eq!(a.next(at(4)), Next::Write("3".to_owned()));
}

/// The last holder of a deleted Lease may not have noticed.
#[test]
fn created_lease_is_held_for_renew_deadline_before_its_holder_acts() {
    let mut b = candidate("b");
    b.observe(None, at(0));
    assert_eq!(b.next(at(0)), Next::Create);
    b.written(lease(1, "b"), at(0), at(0));
    assert_eq!(b.leads(at(1)), None);
    let mut now = at(0);
    while now < at(10) {
        match b.next(now) {
            Next::Write(version) => b.written(lease(version.parse::<u64>().unwrap() + 1, "b"), now, now),
            Next::Wait(Some(until)) => now = until,
            Next::Create | Next::Wait(None) | Next::End => panic!("{now:?}"),
        }
    }
    assert_eq!((now, b.leads(now).is_some()), (at(10), true));
}

/// A cluster that gets its first controller has no last holder. One that was deleted before the eyes of a candidate had one.
#[test]
fn created_lease_is_led_by_at_once_where_nobody_led_before() {
    let mut b = candidate("b");
    b.observe(None, at(0));
    assert!(!b.awaits_evidence(at(0)), "it holds nothing");
    b.written(lease(1, "b"), at(0), at(1));
    assert!(b.awaits_evidence(at(1)) && b.leads(at(1)).is_none());
    b.first_ever(at(2));
    assert_eq!((b.leads(at(2)), b.awaits_evidence(at(2))), (Some(at(10)), false));
    // Its own renewals are seen by its watch.
    b.observe(Some(lease(1, "b")), at(3));
    b.written(lease(2, "b"), at(4), at(5));
    assert_eq!(b.leads(at(5)), Some(at(14)));

    let mut c = candidate("c");
    c.observe(Some(lease(1, "a")), at(0));
    c.observe(None, at(1));
    c.written(lease(2, "c"), at(1), at(2));
    c.first_ever(at(2));
    assert_eq!((c.awaits_evidence(at(2)), c.leads(at(2)), c.leads(at(11)).is_some()), (false, None, false));
}

/// etcd came back from a backup: the standby waits for the version that it finds now, also where that one names nobody, since the
/// leader of the lost history may still act.
#[test]
fn standby_takes_lease_of_restored_etcd_after_duration() {
    let higher_versions = Lease { transitions: 2, ..lease(2000, "a") };
    for restored in [lease(900, "a"), lease(900, ""), higher_versions] {
        let mut b = candidate("b");
        b.observe(Some(Lease { transitions: 3, ..lease(1000, "a") }), at(0));
        assert!(b.observe(Some(restored.clone()), at(10)));
        assert_eq!(b.next(at(15)), Next::Wait(Some(at(25))), "{restored:?}");
        assert_eq!(b.next(at(25)), Next::Write(restored.version.clone()));
        // Another replica of the new history was faster, and releases it: that is news like any other.
        b.observe(Some(Lease { transitions: 4, ..lease(2001, "c") }), at(25));
        b.observe(Some(Lease { transitions: 5, ..lease(2002, "") }), at(26));
        assert_eq!(b.next(at(26)), Next::Write("2002".to_owned()));
    }
    // The same number may come again in the new history.
    let mut b = candidate("b");
    b.observe(Some(lease(1000, "a")), at(0));
    b.observe(Some(Lease { transitions: 1, ..lease(1000, "c") }), at(14));
    assert_eq!(b.next(at(15)), Next::Wait(Some(at(29))));
}

/// The watch of a leader may be behind its renewals; what the server answers after a conflict is not.
#[test]
fn leader_goes_on_after_restore_of_etcd_that_names_it() {
    let leader = || {
        let mut a = candidate("a");
        a.observe(Some(lease(1000, "")), at(0));
        a.written(lease(1001, "a"), at(0), at(0));
        assert!(!a.observe(Some(lease(900, "a")), at(1)));
        assert!(!a.observe(Some(lease(900, "")), at(1)));
        assert_eq!(a.next(at(4)), Next::Write("1001".to_owned()));
        a.failed(at(4));
        a
    };
    let mut a = leader();
    a.read(Some(lease(900, "a")), at(4));
    assert_eq!((a.next(at(5)), a.leads(at(5))), (Next::Write("900".to_owned()), Some(at(10))));
    for other in [Some(lease(900, "b")), Some(lease(900, "")), None] {
        let mut a = leader();
        a.read(other, at(4));
        assert_eq!((a.next(at(4)), a.leads(at(4))), (Next::End, None));
    }
}

struct Random(u64);
impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }
}

/// Random delays of requests, answers and watches, and candidates that stop: no process ever acts while another one may.
#[test]
fn never_two_leaders() {
    let (mut terms, mut takes) = (0, 0);
    for seed in 0..300 {
        let mut random = Random(seed);
        let mut all = [candidate("a"), candidate("b"), candidate("c")];
        let mut server: Option<(u64, String)> = None;
        let mut version = 0;
        let mut leader: Option<usize> = None;
        let mut pending: Vec<(Duration, usize, Option<Lease>)> = Vec::new();
        for tick in 0..2000_u64 {
            let now = Duration::from_millis(tick * 100);
            if random.below(700) == 0 {
                server = None; // The administrator's hand.
            }
            for (index, one) in all.iter_mut().enumerate() {
                let stalled = (tick / 200 + u64::try_from(index).unwrap()) % 4 == seed % 4;
                if !stalled && random.below(5) == 0 {
                    let lease = server.as_ref().map(|(version, holder)| lease(*version, holder));
                    pending.push((now + Duration::from_millis(random.below(3000)), index, lease));
                }
                let write = match one.next(now) {
                    Next::Create if server.is_none() => true,
                    Next::Write(of) => server.as_ref().is_some_and(|(version, _)| version.to_string() == of),
                    Next::Create => false,
                    Next::Wait(_) => continue,
                    Next::End => {
                        *one = candidate(&format!("{index}-{tick}"));
                        continue;
                    }
                };
                if !write || (stalled && random.below(2) == 0) {
                    one.failed(now);
                    continue;
                }
                version += 1;
                takes += 1;
                server = Some((version, one.me.clone()));
                one.written(lease(version, &one.me.clone()), now, now);
            }
            pending.retain(|(when, index, lease)| {
                let due = *when <= now;
                if due {
                    all[*index].observe(lease.clone(), now);
                }
                !due
            });
            let leaders: Vec<usize> = (0..3).filter(|index| all[*index].leads(now).is_some()).collect();
            assert!(leaders.len() < 2, "seed {seed}, tick {tick}: {leaders:?}");
            if let [one] = leaders[..]
                && leader != Some(one)
            {
                (leader, terms) = (Some(one), terms + 1);
            }
        }
    }
    assert!(terms > 300 && takes > 3000, "{terms} terms, {takes} writes");
}
