//! Durations as a policy has them.

use jiff::SignedDuration;

/// Reads `2h30m`: hours, minutes and seconds in this order. As in the kind's pattern; at most 30 days.
pub(crate) fn duration(text: &str) -> Option<SignedDuration> {
    const LONGEST: i64 = 30 * 24 * 3600;
    let mut rest = text;
    let mut seconds: i64 = 0;
    for (unit, factor) in [('h', 3600), ('m', 60), ('s', 1)] {
        if let Some((number, after)) = rest.split_once(unit) {
            if number.is_empty() || number.len() > 5 || !number.bytes().all(|byte| byte.is_ascii_digit()) {
                return None;
            }
            seconds = seconds.checked_add(number.parse::<i64>().ok()?.checked_mul(factor)?)?;
            rest = after;
        }
    }
    let is_whole = rest.is_empty() && !text.is_empty();
    (is_whole && seconds <= LONGEST).then(|| SignedDuration::from_secs(seconds))
}
