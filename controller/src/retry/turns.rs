//! Values that follow something that goes back and forth, such as a MachineConfig that two programs edit in turn. A value comes back twice at
//! once; then it has to be the wanted one for 30 s, 1, 2, 4 ... 30 minutes first. Pure.

use std::collections::BTreeMap;
use std::time::Duration;

/// A value that another program set back counts as kept after so long.
pub const KEPT: Duration = Duration::from_secs(30);

/// So often a former value is taken again at once: a person takes a change back, and makes it again.
pub const MAX_TURNS: u32 = 2;

/// Former values that are known.
pub const FORMER: usize = 4;

/// The longest time for which a former value has to be the wanted one.
const LONGEST_TURN: Duration = Duration::from_secs(1800);

/// A value that held for so long begins anew.
pub const REMEMBERED: Duration = Duration::from_secs(2 * 3600);

/// Returns the time before a former value is taken again, after so many turns; none for the first ones.
pub fn turn(turns: u32) -> Option<Duration> {
    let factor = 1_u32.checked_shl(turns.checked_sub(MAX_TURNS)?).unwrap_or(u32::MAX);
    Some(KEPT.saturating_mul(factor).min(LONGEST_TURN))
}

/// Values by field.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Turns(BTreeMap<String, Turned>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Turned {
    /// The value that was taken last, and when.
    value: String,
    at: Duration,
    former: Vec<String>,
    turns: u32,
    /// The value that is wanted, and since when.
    wanted: String,
    since: Duration,
    /// A value was not taken, and none has been wanted for long enough since.
    is_held: bool,
}

/// Judgement of a value that is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// It is taken.
    Taken,
    /// It is the last one, and others are wanted in turn; it counts as settled after so long.
    Unsettled(Duration),
    /// It is taken after so long, if it is still wanted then.
    Held(Duration),
}

impl Turns {
    /// Judges the value that a field is to have now.
    pub fn wants(&mut self, field: &str, value: &str, now: Duration) -> Turn {
        self.0.retain(|name, turned| name == field || now.saturating_sub(turned.at) < REMEMBERED);
        let turned = self.0.entry(field.to_owned()).or_insert_with(|| Turned::new(value, now));
        if turned.wanted != value {
            value.clone_into(&mut turned.wanted);
            turned.since = now;
        }
        turned.judge(value, now)
    }
}

impl Turned {
    fn new(value: &str, now: Duration) -> Self {
        Self {
            value: value.to_owned(),
            at: now,
            former: Vec::new(),
            turns: 0,
            wanted: value.to_owned(),
            since: now,
            is_held: false,
        }
    }

    fn judge(&mut self, value: &str, now: Duration) -> Turn {
        let left = turn(self.turns).and_then(|turn| self.since.saturating_add(turn).checked_sub(now));
        let left = left.filter(|left| !left.is_zero());
        if self.value == value {
            self.is_held &= left.is_some();
            return left.filter(|_| self.is_held).map_or(Turn::Taken, Turn::Unsettled);
        }
        let is_recent = now.saturating_sub(self.at) < REMEMBERED;
        let is_turn = is_recent && self.former.iter().any(|former| former == value);
        if let Some(left) = left.filter(|_| is_turn) {
            self.is_held = true;
            return Turn::Held(left);
        }
        let turns = if is_recent { self.turns.saturating_add(u32::from(is_turn)) } else { 0 };
        let mut former = std::mem::take(&mut self.former);
        former.retain(|former| former != value && *former != self.value);
        former.push(std::mem::take(&mut self.value));
        former.drain(..former.len().saturating_sub(FORMER));
        let (wanted, since) = (std::mem::take(&mut self.wanted), self.since);
        *self = Self { former, turns, wanted, since, ..Self::new(value, now) };
        Turn::Taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn value_that_comes_back_again_and_again_has_to_be_wanted_for_longer() {
        assert_eq!(
            [1, 2, 3, 4, 40].map(|turns| turn(turns).map(|turn| turn.as_secs())),
            [None, Some(30), Some(60), Some(120), Some(1800)]
        );
        let mut turns = Turns::default();
        // Another value each second, from two of them, for ten minutes.
        let mut taken = Vec::new();
        let mut last = "";
        for second in 0..600 {
            let value = ["a", "b"][usize::from(second % 2 == 1)];
            if turns.wants("pool", value, at(second)) == Turn::Taken && value != last {
                taken.push(second);
                last = value;
            }
        }
        assert_eq!(taken, [0, 1, 2, 3]);
        assert_eq!(turns.wants("pool", "b", at(600)), Turn::Unsettled(at(29)));
        // It stays.
        assert_eq!(turns.wants("pool", "a", at(601)), Turn::Held(at(30)));
        assert_eq!(turns.wants("pool", "a", at(630)), Turn::Held(at(1)));
        assert_eq!(turns.wants("pool", "a", at(631)), Turn::Taken);
        assert_eq!(turns.wants("pool", "b", at(632)), Turn::Held(at(60)));
        // One that is new is taken at once, and what held for long begins anew.
        assert_eq!(turns.wants("pool", "c", at(633)), Turn::Taken);
        assert_eq!(turns.wants("other", "b", at(633)), Turn::Taken);
        assert_eq!(turns.wants("pool", "a", at(634) + REMEMBERED), Turn::Taken);
        assert_eq!(turns.wants("pool", "c", at(635) + REMEMBERED), Turn::Taken);
    }

    #[test]
    fn value_that_was_wanted_for_moment_is_told_until_last_one_is_settled() {
        let mut turns = Turns::default();
        for (second, value) in [(0, "a"), (1, "b"), (2, "a"), (3, "b")] {
            assert_eq!(turns.wants("pool", value, at(second)), Turn::Taken);
        }
        assert_eq!(turns.wants("pool", "b", at(4)), Turn::Taken, "nothing was held");
        assert_eq!(turns.wants("pool", "a", at(5)), Turn::Held(at(30)));
        assert_eq!(turns.wants("pool", "b", at(6)), Turn::Unsettled(at(30)));
        assert_eq!(turns.wants("pool", "b", at(36)), Turn::Taken);
    }
}
