//! Decision for a soft reboot: user space alone is started again, and the kernel stays
//! (systemd-soft-reboot.service(8)).
//!
//! [`judge`] decides by the node's settings, the number of reboots requested so far, and the facts of the host and of
//! the deployment that boots. Before the deployment exists some of them are open, and the plan names these.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::node_settings::SoftReboot;

/// Requirement of a soft reboot into a deployment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Requirement {
    /// A deployment boots: a reboot without one may be for the kernel.
    Deployment,
    /// systemd 254 or later.
    Systemd,
    /// libostree 2025.3 or later.
    Libostree,
    /// The root is a composefs: libostree prepares no other one.
    Composefs,
    /// The deployment is in the stateroot that runs: `/var` stays mounted.
    Stateroot,
    /// It has the kernel arguments that the kernel runs with.
    Kargs,
    /// It has the kernel and the initramfs that run.
    Kernel,
    /// It has the SELinux policy that is loaded.
    Policy,
}

impl Requirement {
    /// All requirements, in the order of reports.
    pub const ALL: [Self; 8] = [
        Self::Deployment,
        Self::Systemd,
        Self::Libostree,
        Self::Composefs,
        Self::Stateroot,
        Self::Kargs,
        Self::Kernel,
        Self::Policy,
    ];

    /// Returns why there is no soft reboot without it.
    pub fn unmet(self) -> &'static str {
        match self {
            Self::Deployment => "no new deployment boots, and the files may concern the kernel",
            Self::Systemd => "systemd is older than 254, or soft-reboot.target is masked",
            Self::Libostree => "libostree is older than 2025.3",
            Self::Composefs => "the root is not a composefs",
            Self::Stateroot => "the deployment is in another stateroot",
            Self::Kargs => "kernel arguments change",
            Self::Kernel => "the kernel or the initramfs changes",
            Self::Policy => "the SELinux policy changes",
        }
    }

    /// Returns the property that the deployment needs, while that is open.
    fn condition(self) -> &'static str {
        match self {
            Self::Deployment => "a deployment",
            Self::Systemd => "systemd 254",
            Self::Libostree => "libostree 2025.3",
            Self::Composefs => "a composefs root",
            Self::Stateroot => "the running stateroot",
            Self::Kargs => "the same kernel arguments",
            Self::Kernel => "the same kernel and initramfs",
            Self::Policy => "the same SELinux policy",
        }
    }
}

/// Known facts of a soft reboot into one deployment.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct SoftRebootFacts {
    /// Requirements that are met (true) or not; an open one is absent.
    pub known: BTreeMap<Requirement, bool>,
    /// Refusal of the host's own tooling, if any.
    pub refused: Option<String>,
}

impl SoftRebootFacts {
    /// Takes the host's refusal.
    pub fn refused(why: impl Into<String>) -> Self {
        Self { known: BTreeMap::new(), refused: Some(why.into()) }
    }

    /// Takes the host's word that all is met.
    pub fn capable() -> Self {
        Self { known: Requirement::ALL.map(|requirement| (requirement, true)).into(), refused: None }
    }

    /// Adds a known requirement.
    #[must_use]
    pub fn with(mut self, requirement: Requirement, is_met: bool) -> Self {
        self.known.insert(requirement, is_met);
        self
    }
}

/// Kind of the reboot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "reboot", rename_all = "kebab-case")]
pub enum Verdict {
    /// User space only.
    Soft,
    /// User space only, if the new deployment turns out to meet these.
    SoftIf {
        /// Open requirements.
        open: Vec<Requirement>,
    },
    /// The whole machine.
    Whole {
        /// Why, where the node's settings allow soft reboots.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        why: Option<String>,
    },
}

impl Default for Verdict {
    fn default() -> Self {
        Self::Whole { why: None }
    }
}

impl Verdict {
    /// Returns true if the settings allow no soft reboot.
    pub fn is_plain(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the open requirements, for people.
    pub fn condition(&self) -> Option<String> {
        let Self::SoftIf { open } = self else { return None };
        let open: Vec<&str> = open.iter().map(|requirement| requirement.condition()).collect();
        Some(open.join(" and "))
    }
}

/// Decides which reboot it is. `tries` counts the requests before: only the first one is soft, so that a soft reboot that led
/// nowhere is followed by a whole one.
pub fn judge(wish: SoftReboot, tries: u32, facts: &SoftRebootFacts) -> Verdict {
    if wish == SoftReboot::Never {
        return Verdict::Whole { why: None };
    }
    let whole = |why: &str| Verdict::Whole { why: Some(why.to_owned()) };
    if tries > 0 {
        return whole("an earlier reboot did not bring the deployment up");
    }
    if let Some(words) = &facts.refused {
        return whole(words);
    }
    let met = |requirement: &Requirement| facts.known.get(requirement).copied();
    if let Some(unmet) = Requirement::ALL.into_iter().find(|requirement| met(requirement) == Some(false)) {
        return whole(unmet.unmet());
    }
    let open: Vec<Requirement> =
        Requirement::ALL.into_iter().filter(|requirement| met(requirement).is_none()).collect();
    if open.is_empty() { Verdict::Soft } else { Verdict::SoftIf { open } }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each combination of met, unmet and open requirements.
    fn all() -> Vec<BTreeMap<Requirement, bool>> {
        let mut all = vec![BTreeMap::new()];
        for requirement in Requirement::ALL {
            let with = |known: &BTreeMap<_, _>, is_met| {
                let mut known = known.clone();
                known.insert(requirement, is_met);
                known
            };
            all =
                all.iter().flat_map(|known| [known.clone(), with(known, true), with(known, false)]).collect();
        }
        all
    }

    #[test]
    fn soft_reboot_needs_every_requirement() {
        let combinations = all();
        assert_eq!(combinations.len(), 3_usize.pow(8));
        for known in combinations {
            let facts = SoftRebootFacts { known: known.clone(), refused: None };
            let refused = SoftRebootFacts { refused: Some("no".to_owned()), ..facts.clone() };
            let whole = |why: &str| Verdict::Whole { why: Some(why.to_owned()) };
            let first = Requirement::ALL.into_iter().find(|one| known.get(one) == Some(&false));
            let open: Vec<Requirement> =
                Requirement::ALL.into_iter().filter(|one| !known.contains_key(one)).collect();
            let expected = match (first, open.is_empty()) {
                (Some(unmet), _) => whole(unmet.unmet()),
                (None, true) => Verdict::Soft,
                (None, false) => Verdict::SoftIf { open },
            };
            assert_eq!(judge(SoftReboot::WhereCapable, 0, &facts), expected, "{known:?}");
            assert_eq!(judge(SoftReboot::WhereCapable, 0, &refused), whole("no"));
            for tries in [1, 2, u32::MAX] {
                let verdict = judge(SoftReboot::WhereCapable, tries, &facts);
                assert_eq!(verdict, whole("an earlier reboot did not bring the deployment up"));
            }
            for facts in [&facts, &refused] {
                assert_eq!(judge(SoftReboot::Never, 0, facts), Verdict::Whole { why: None });
            }
        }
        assert_eq!(judge(SoftReboot::WhereCapable, 0, &SoftRebootFacts::capable()), Verdict::Soft);
    }

    #[test]
    fn open_requirements_are_listed() {
        let mut facts = SoftRebootFacts::capable();
        facts.known.remove(&Requirement::Kernel);
        facts.known.remove(&Requirement::Policy);
        let verdict = judge(SoftReboot::WhereCapable, 0, &facts);
        let words = "the same kernel and initramfs and the same SELinux policy";
        assert_eq!(verdict.condition().as_deref(), Some(words));
        assert_eq!(Verdict::Soft.condition(), None);
    }
}
