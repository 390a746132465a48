//! The hand-shake with the drain controller: a request in one annotation, its answer in another
//! (docs/contract.md, "Drain protocol").
//!
//! Pure: it derives the next action from the Node alone, and remembers nothing. The controller answers a request by
//! repeating it, and never answers one that it has answered last.

use super::annotations::{APPLIED_DRAIN, Annotations, DESIRED_DRAIN};
use crate::model::ConfigName;

/// Next action of the drain protocol.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum DrainAction {
    /// The controller answered. For a drain: if the node is still cordoned.
    Answered,
    /// No request was made.
    NotRequested,
    /// Make this request.
    Request(String),
    /// Wait for the answer.
    Wait,
}

/// Returns the next action of a drain.
pub(super) fn drain(now: &Annotations, config: &ConfigName) -> DrainAction {
    let want = format!("drain-{config}");
    let (requested, answered) = both(now);
    if answered == Some(want.as_str()) {
        // An answer that is there already is taken (MCD-049). But while another request is on its way, an equal request
        // to the last answer would stay without an answer.
        return if requested.is_none() || requested == answered {
            DrainAction::Answered
        } else {
            DrainAction::Wait
        };
    }
    if requested == Some(want.as_str()) { DrainAction::Wait } else { DrainAction::Request(want) }
}

/// Returns the request that makes another drain answerable, after the node was uncordoned meanwhile (W-8).
pub(super) fn again(config: &ConfigName) -> String {
    format!("uncordon-{config}")
}

/// Returns the next action of an uncordon. A node that was not drained requests no uncordon: an administrator's
/// cordon stays.
pub(super) fn uncordon(now: &Annotations, config: &ConfigName) -> DrainAction {
    let (requested, answered) = both(now);
    let Some(requested) = requested else { return DrainAction::NotRequested };
    let want = format!("uncordon-{config}");
    if requested.starts_with("uncordon-") {
        return match answered {
            Some(answered) if answered == requested => DrainAction::Answered,
            // Any uncordon will do: the controller reads the verb only.
            Some(_) | None => DrainAction::Wait,
        };
    }
    // A request equal to the last answer would stay without an answer, and the node cordoned.
    let known = answered == Some(want.as_str());
    DrainAction::Request(if known { format!("{want}-again") } else { want })
}

fn both(now: &Annotations) -> (Option<&str>, Option<&str>) {
    let value = |key: &str| now.get(key).map(String::as_str).filter(|value| !value.is_empty());
    (value(DESIRED_DRAIN), value(APPLIED_DRAIN))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(requested: &str, answered: &str) -> Annotations {
        let pairs = [(DESIRED_DRAIN, requested), (APPLIED_DRAIN, answered)];
        let given = pairs.into_iter().filter(|(_, value)| *value != "-");
        given.map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
    }

    fn request(value: &str) -> DrainAction {
        DrainAction::Request(value.to_owned())
    }

    /// MCD-048, MCD-049, MCD-050, MCD-058, W-8: every pair of request and answer.
    #[test]
    fn table_of_drain() {
        let config = ConfigName::new("b").unwrap();
        let table = [
            ("-", "-", request("drain-b")),
            ("", "", request("drain-b")),
            ("uncordon-a", "uncordon-a", request("drain-b")),
            ("drain-b", "uncordon-a", DrainAction::Wait),
            ("drain-b", "-", DrainAction::Wait),
            ("drain-b", "drain-b", DrainAction::Answered),
            ("-", "drain-b", DrainAction::Answered),
            // The old target's request: its answer is not ours.
            ("drain-a", "drain-a", request("drain-b")),
            ("drain-a", "uncordon-a", request("drain-b")),
            ("drain-b", "drain-a", DrainAction::Wait),
            // Requested again after a manual uncordon.
            ("uncordon-b", "drain-b", DrainAction::Wait),
            ("uncordon-b", "uncordon-b", request("drain-b")),
            ("drain-b", "uncordon-b", DrainAction::Wait),
            // The old target's request after the new one's answer: first its answer.
            ("drain-a", "drain-b", DrainAction::Wait),
        ];
        for (requested, answered, desired) in table {
            assert_eq!(drain(&node(requested, answered), &config), desired, "{requested} {answered}");
        }
        assert_eq!(again(&config), "uncordon-b");
    }

    /// MCD-055, MCD-056, MCD-057: every pair of request and answer.
    #[test]
    fn table_of_release() {
        let config = ConfigName::new("b").unwrap();
        let table = [
            ("-", "-", DrainAction::NotRequested),
            ("", "drain-b", DrainAction::NotRequested),
            ("drain-b", "drain-b", request("uncordon-b")),
            ("drain-b", "uncordon-a", request("uncordon-b")),
            ("uncordon-b", "drain-b", DrainAction::Wait),
            ("uncordon-b", "-", DrainAction::Wait),
            ("uncordon-a", "uncordon-a", DrainAction::Answered),
            ("uncordon-b", "uncordon-b", DrainAction::Answered),
            // A drain that was withdrawn before its answer: the last uncordon is not answered twice.
            ("drain-c", "uncordon-b", request("uncordon-b-again")),
            ("uncordon-b-again", "uncordon-b", DrainAction::Wait),
            ("uncordon-b-again", "uncordon-b-again", DrainAction::Answered),
            ("drain-c", "uncordon-b-again", request("uncordon-b")),
        ];
        for (requested, answered, desired) in table {
            assert_eq!(uncordon(&node(requested, answered), &config), desired, "{requested} {answered}");
        }
    }
}
