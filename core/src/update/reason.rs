//! Reasons of faults, as earlier agents wrote them to disk.

use serde::{Deserialize, Deserializer};

/// By the old name: the name of today.
const RENAMED: [(&str, &str); 6] = [
    ("ApiServerAway", "ApiServerUnreachable"),
    ("Awaited", "WaitingForObject"),
    ("DeploymentNotFinalised", "DeploymentNotFinalized"),
    ("FinalisationNotArmed", "FinalizationNotReady"),
    ("ForeignImage", "UnexpectedImage"),
    ("NotAsPlanned", "VerificationFailed"),
];

/// Reads a reason. The ending of a fault is found by its reason, so a renamed one is read by the name of today.
pub(super) fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let reason = String::deserialize(deserializer)?;
    let renamed = RENAMED.iter().find(|(old, _)| *old == reason);
    Ok(renamed.map_or(reason, |(_, new)| (*new).to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::update::ending::ENDINGS;
    use crate::update::{Ending, Fault};

    #[test]
    fn reasons_of_earlier_agents_are_read_by_their_new_names() {
        let known = |reason: &str| ENDINGS.iter().any(|(name, _)| *name == reason);
        for (old, new) in RENAMED {
            assert!(known(new) && !known(old), "{old} {new}");
            let text = format!(r#"{{"class":"degraded","reason":"{old}","message":"m","next":"n"}}"#);
            let fault: Fault = serde_json::from_str(&text).unwrap();
            assert_eq!(fault.reason, new);
        }
        let text = r#"{"class":"degraded","reason":"NotAsPlanned","message":"m","next":"n"}"#;
        let fault: Fault = serde_json::from_str(text).unwrap();
        assert_eq!(Ending::from_fault(&fault), Ending::Later);
    }
}
