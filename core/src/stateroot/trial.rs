//! The trial of a system that was activated: it stays when it proves itself, and is left for the one before otherwise.
//!
//! The document is written into the `/var` of the new stateroot before its first boot, so that a boot that nobody requested any
//! more is one of a trial, too. The system that runs there decides with it alone: it does not see the records of the other one.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::model::{BootId, FaultClass, Timestamp};
use crate::update::Fault;
use crate::update::resume::{BOOT_FAILED, HEALTH_CHECK_FAILED};

/// The version of these shapes.
pub const TRIAL_SCHEMA: u32 = 1;

/// The trial, in the agent's own directory of the new stateroot.
pub const TRIAL_FILE: &str = "stateroot-trial.json";

/// The reason of the last return, in the agent's own directory of the stateroot that runs.
pub const RETURN_FILE: &str = "stateroot-return.json";

/// The time limit where none is given: that of lifecycle-agent.
const WITHIN_SECONDS: u64 = 1800;

/// So many boots one trial may take: a system that goes down again and again never comes to the end of its time.
const MAX_TRIAL_BOOTS: u32 = 5;

/// Rules of a trial.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct TrialRules {
    /// Time limit in seconds, from the start of the trial in one boot.
    pub within: u64,
    /// Return automatically from a system that fails.
    pub returns: bool,
}

impl Default for TrialRules {
    fn default() -> Self {
        Self { within: WITHIN_SECONDS, returns: true }
    }
}

/// Phase of a trial.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "name", rename_all = "kebab-case", rename_all_fields = "camelCase")]
pub enum TrialPhase {
    /// The system has not booted yet.
    Armed,
    /// It runs, in this boot and since this time of the clock that nobody sets.
    Running {
        /// The boot.
        boot_id: BootId,
        /// Microseconds.
        since: u64,
    },
    /// It has proved itself.
    Passed,
    /// It failed, and stays.
    Failed {
        /// Cause.
        fault: Fault,
    },
    /// It failed, and is left.
    Returning {
        /// The boot in which that began.
        boot_id: BootId,
        /// Cause.
        fault: Fault,
    },
}

/// A trial.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StaterootTrial {
    /// The version of this shape.
    pub schema: u32,
    /// The deployment on trial.
    pub deployment: String,
    /// The deployment that ran before, in another stateroot.
    pub previous: String,
    /// Its rules.
    pub rules: TrialRules,
    /// Its phase.
    pub phase: TrialPhase,
    /// In how many boots it ran.
    #[serde(default)]
    pub boots: u32,
}

/// A note for the stateroot that boots again about the one that was left.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Return {
    /// The version of this shape.
    pub schema: u32,
    /// The deployment that was left.
    pub deployment: String,
    /// Cause.
    pub fault: Fault,
    /// When.
    pub at: Timestamp,
}

/// Next action of a trial.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TrialAction {
    /// Nothing is on trial here.
    Nothing,
    /// The system is tried in this boot.
    Begin,
    /// The trial goes on, with this much time spent.
    Continue(Duration),
    /// It has failed.
    GiveUp(Fault),
    /// It is left.
    GoBack(Fault),
}

impl StaterootTrial {
    /// Makes the document of a system that has not booted yet.
    pub fn new(deployment: &str, previous: &str, rules: TrialRules) -> Self {
        let (deployment, previous) = (deployment.to_owned(), previous.to_owned());
        Self { schema: TRIAL_SCHEMA, deployment, previous, rules, phase: TrialPhase::Armed, boots: 0 }
    }

    /// Returns it with a trial that begins in this boot.
    #[must_use]
    pub fn begun(mut self, boot_id: BootId, since: u64) -> Self {
        self.phase = TrialPhase::Running { boot_id, since };
        self.boots = self.boots.saturating_add(1);
        self
    }

    /// Returns it after it has failed.
    #[must_use]
    pub fn failed(mut self, boot_id: BootId, fault: Fault) -> Self {
        self.phase = if self.rules.returns {
            TrialPhase::Returning { boot_id, fault }
        } else {
            TrialPhase::Failed { fault }
        };
        self
    }

    /// Returns it after it has passed.
    #[must_use]
    pub fn passed(mut self) -> Self {
        self.phase = TrialPhase::Passed;
        self
    }
}

/// Decides what comes next. `next` is the deployment that boots next, `now` the clock that nobody sets.
pub fn trial_action(
    trial: &StaterootTrial,
    booted: &str,
    next: &str,
    boot_id: &BootId,
    now: u64,
) -> TrialAction {
    if trial.deployment != booted {
        // Another deployment of the stateroot is an update's, with a trial of its own.
        return TrialAction::Nothing;
    }
    match &trial.phase {
        TrialPhase::Passed | TrialPhase::Failed { .. } => TrialAction::Nothing,
        TrialPhase::Running { boot_id: begun, since } if begun == boot_id => {
            TrialAction::Continue(Duration::from_micros(now.saturating_sub(*since)))
        }
        TrialPhase::Running { .. } if trial.boots >= MAX_TRIAL_BOOTS => {
            TrialAction::GiveUp(again_and_again(trial))
        }
        TrialPhase::Armed | TrialPhase::Running { .. } => TrialAction::Begin,
        // A person who booted it once more, to look at it, is left alone.
        TrialPhase::Returning { boot_id: begun, .. } if begun != boot_id && next != booted => {
            TrialAction::Nothing
        }
        TrialPhase::Returning { fault, .. } => TrialAction::GoBack(fault.clone()),
    }
}

/// Returns the stateroot of a deployment's id.
pub fn stateroot_of(deployment: &str) -> &str {
    deployment.rsplit_once('-').map_or(deployment, |(stateroot, _)| stateroot)
}

/// Returns the directory of a deployment by its ID, below the root of the disk; none where it names no stateroot.
pub fn deployment_directory(deployment: &str) -> Option<String> {
    let (stateroot, checkout) = deployment.rsplit_once('-')?;
    Some(format!("/ostree/deploy/{stateroot}/deploy/{checkout}"))
}

/// Returns the fault of a system that did not prove itself in time.
pub fn unproven(trial: &StaterootTrial, ill: &[String]) -> Fault {
    let (deployment, seconds) = (&trial.deployment, trial.rules.within);
    let message =
        format!("{deployment}, which was activated, is not healthy within {seconds} s: {}", ill.join("; "));
    fault(HEALTH_CHECK_FAILED, message, trial)
}

fn again_and_again(trial: &StaterootTrial) -> Fault {
    let (deployment, boots) = (&trial.deployment, trial.boots);
    let message =
        format!("{deployment}, which was activated, went down {boots} times before the end of its trial");
    fault(BOOT_FAILED, message, trial)
}

fn fault(reason: &str, message: String, trial: &StaterootTrial) -> Fault {
    let stateroot = stateroot_of(&trial.deployment);
    Fault {
        class: FaultClass::Degraded,
        reason: reason.to_owned(),
        message,
        next: format!(
            "See the journal of that boot, which is in /sysroot/ostree/deploy/{stateroot}/var/log/journal; mend the seed, \
             remove the stateroot and prepare it again."
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: &str = "rhcos-ab.0";
    const NEW: &str = "rhcos_4.17.2-cd.0";

    fn boot(digit: char) -> BootId {
        BootId::new(format!("{digit}f1e2d3c-4b5a-4978-8796-a5b4c3d2e1f0")).unwrap()
    }

    fn trial() -> StaterootTrial {
        StaterootTrial::new(NEW, OLD, TrialRules::default())
    }

    /// LCA-013: the limit is 1,800 s by default; each boot begins again, five in all; then it is left, unless opted out.
    #[test]
    fn trial_ends_in_the_system_that_is_well() {
        let on = |trial: &StaterootTrial, digit| trial_action(trial, NEW, NEW, &boot(digit), 7_000_000);
        assert_eq!(trial().rules, TrialRules { within: 1800, returns: true });
        assert_eq!(on(&trial(), '0'), TrialAction::Begin);
        let mut running = trial().begun(boot('0'), 2_000_000);
        assert_eq!(on(&running, '0'), TrialAction::Continue(Duration::from_secs(5)));
        for digit in ['1', '2', '3', '4'] {
            assert_eq!(on(&running, digit), TrialAction::Begin);
            running = running.begun(boot(digit), 0);
        }
        let TrialAction::GiveUp(fault) = on(&running, '5') else { panic!("{running:?}") };
        assert_eq!(fault.reason, "BootFailed");
        assert!(
            fault.message.contains("5 times") && fault.next.contains("deploy/rhcos_4.17.2/var"),
            "{fault}"
        );
        assert_eq!(on(&running.clone().passed(), '5'), TrialAction::Nothing);
        let back = running.clone().failed(boot('4'), fault.clone());
        assert_eq!(on(&back, '4'), TrialAction::GoBack(fault.clone()));
        // The power failed on the way back.
        assert_eq!(on(&back, '6'), TrialAction::GoBack(fault.clone()));
        // A person has chosen it in the boot menu.
        assert_eq!(trial_action(&back, NEW, OLD, &boot('6'), 0), TrialAction::Nothing);
        running.rules.returns = false;
        let stays = running.failed(boot('4'), fault);
        assert_eq!(on(&stays, '4'), TrialAction::Nothing);
        // An update has come meanwhile.
        assert_eq!(trial_action(&trial(), "rhcos_4.17.2-ef.0", NEW, &boot('0'), 0), TrialAction::Nothing);
    }

    #[test]
    fn document_survives_its_json() {
        let fault = unproven(&trial(), &["a.service is failed".to_owned(), "b".to_owned()]);
        assert!(fault.message.ends_with("within 1800 s: a.service is failed; b"), "{fault}");
        for trial in [trial(), trial().begun(boot('0'), 3), trial().failed(boot('0'), fault)] {
            let json = serde_json::to_string(&trial).unwrap();
            assert_eq!(serde_json::from_str::<StaterootTrial>(&json).unwrap(), trial, "{json}");
        }
    }
}
