//! Endings of faults: one table, from each fault's reason to the agent's reaction and its time.
//!
//! `docs/reference.md` shows the same table to people. `tests/agent/waits.rs` compares the two, holds that no reason is
//! missing and that none is without a way out, and plays each.
//!
//! # Decisions
//! 1. A fault that the agent's surroundings may end is tried again automatically: no person has to know which node
//!    waits for what. A try costs a plan, perhaps a pull; so [`Ending::Later`], for faults that mostly need a person,
//!    comes less often in the end.
//! 2. No retry by itself may disrupt: an update that has rebooted the node ([`has_rebooted`]) is tried again only
//!    on request, and one that has drained the node or touched services no more often than [`Ending::Later`]: the workload
//!    of a held node is back, so the next try drains it again. What refuses a plan costs no drain.
//! 3. A change without end (a host that changes all the time, a program that writes the same target again and again)
//!    causes tries without end: they are made no more often than [`SHORTEST_HOLD`].
//! 4. A restart of the agent may be a boot or a crash. It counts as a retry request unless the fault needs another target or
//!    the update has rebooted the node: so a try costs no reboot.

use std::time::Duration;

use super::phase::Phase;
use super::record::{Fault, Record};
use crate::model::FaultClass;
use crate::plan::Undo;

/// The longest wait for the next try of a passing fault, as MCD's: a person who repaired the cause sees it within a
/// minute.
pub const SOON: Duration = Duration::from_secs(60);

/// The longest wait for the next try of a fault that mostly needs a person.
pub const LATER: Duration = Duration::from_secs(600);

/// A host, or a writer of the target, that never rests has a failed update tried no more often than this.
pub const SHORTEST_HOLD: Duration = Duration::from_secs(10);

/// Ending of a fault, beside another target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Ending {
    /// The next try, by itself: within a minute.
    Soon,
    /// The next try, automatic: within ten minutes; at once when the host changes, or on request.
    Later,
    /// The awaited event.
    Event,
    /// A request for the next try: an automatic one would disrupt.
    Request,
    /// Another target, or its correction. A person who knows better may request a try.
    Target,
    /// A start of the program: it ended, and touched nothing.
    Start,
}

/// Each fault's reason, and its ending.
pub const ENDINGS: &[(&str, Ending)] = {
    use Ending::{Event, Later, Request, Soon, Start, Target};
    &[
        ("AgentDefect", Start),
        ("AgentNotRunning", Start),
        ("AmbiguousImage", Target),
        ("ApiServerUnreachable", Soon),
        ("ApiServerRefused", Soon),
        ("WaitingForObject", Soon),
        ("BootFailed", Target),
        ("BootFull", Soon),
        ("BootcFailed", Soon),
        ("BrokenPlan", Start),
        ("BusCallFailed", Soon),
        ("CertificatesNotWritten", Soon),
        ("CommandFailed", Soon),
        ("ComposefsHost", Later),
        ("ConfigDrift", Event),
        ("ConfigMisnamed", Event),
        ("ConfigNotFound", Event),
        ("CredentialsUnusable", Soon),
        ("DeploymentGone", Target),
        ("DeploymentLocked", Soon),
        ("DeploymentNotFinalized", Target),
        ("DiskFull", Soon),
        ("FailedToDrain", Event),
        ("FailedToReconcile", Target),
        ("FailedToUncordon", Event),
        ("FileTooLarge", Later),
        ("FinalizationNotReady", Soon),
        ("Forbidden", Soon),
        ("UnexpectedImage", Event),
        ("HealthCheckFailed", Target),
        ("HomeDirectory", Later),
        ("HostNotPrepared", Later),
        ("ImageCorrupted", Soon),
        ("ImageDigestMismatch", Later),
        ("ImageNotBootable", Target),
        ("ImageNotFound", Later),
        ("ImagePullFailed", Soon),
        ("ImagePullUnauthorized", Soon),
        ("ImagePushFailed", Start),
        ("ImageWrongArchitecture", Target),
        ("InvalidArguments", Start),
        ("InvalidConfig", Target),
        ("InvalidDocument", Target),
        ("InvalidImage", Target),
        ("InvalidName", Target),
        ("InvalidObject", Later),
        ("InvalidPath", Target),
        ("Io", Later),
        ("JobFailed", Request),
        ("LibostreeFailed", Later),
        ("LocalPackages", Later),
        ("MalformedFile", Later),
        ("NoNamespaces", Start),
        ("NoRepositories", Soon),
        ("VerificationFailed", Later),
        ("NoStateroot", Start),
        ("NotBooted", Later),
        ("NotEmpty", Start),
        ("NotFound", Soon),
        ("NotImageBased", Request),
        ("OsStalled", Soon),
        ("OsTooSlow", Soon),
        ("OsWorkerFailed", Soon),
        ("OsWorkerNotInstalled", Soon),
        ("PackageNotStaged", Later),
        ("PolicyNotReady", Soon),
        ("ProxyFileUnusable", Soon),
        ("ProxyUnusable", Event),
        ("PullSecretNotWritten", Soon),
        ("ReadOnlyFilesystem", Later),
        ("RebootDidNotHappen", Soon),
        ("RegistryNameRefused", Event),
        ("RpmOstreeDaemonLost", Soon),
        ("RpmOstreeFailed", Soon),
        ("RpmOstreeMasked", Soon),
        ("SandboxDamaged", Start),
        ("SeedDamaged", Start),
        ("SeedNotMade", Start),
        ("SeedOvertaken", Start),
        ("SeedRefused", Start),
        ("ServerCaNotRotated", Soon),
        ("SettingsInvalid", Request),
        ("SetupFailed", Start),
        ("StateInvalid", Start),
        ("StateLocked", Start),
        ("StateLost", Start),
        ("StateNewer", Start),
        ("StateNotWritable", Later),
        ("StateUnreadable", Start),
        ("StaterootBlocked", Start),
        ("StaterootInUse", Start),
        ("StoppedShort", Start),
        ("SysrootBusy", Soon),
        ("SysrootFull", Soon),
        ("TimedOut", Soon),
        ("TooManyWatches", Soon),
        ("ToolMissing", Soon),
        ("Unauthorized", Soon),
        ("UnexpectedKind", Later),
        ("UnitNotEnabled", Later),
        ("UnknownAccount", Later),
        ("UnsafeDirectory", Later),
        ("UnsafeFile", Later),
        ("UnsupportedByBackend", Target),
        ("WrongImageStaged", Soon),
    ]
};

/// The strongest trigger of a retry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum RetryTrigger {
    /// None but time.
    #[default]
    Time,
    /// A path or unit of the target has changed on the host.
    Host,
    /// The agent starts.
    Start,
    /// The target, or what it names, was written again, or given to another `apply`.
    Rewritten,
    /// A person: SIGHUP.
    Person,
}

/// When an update that failed and is undone is tried again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Try {
    /// At once.
    Now,
    /// After this wait, or a shorter one that was given before.
    In(Duration),
    /// After a wait that grows up to this.
    Within(Duration),
    /// Not by itself.
    Never,
}

impl Ending {
    /// Returns the ending of a fault. One of an older agent may have a reason that is not known any more.
    pub fn from_fault(fault: &Fault) -> Self {
        let known = ENDINGS.iter().find(|(word, _)| *word == fault.reason).map(|(_, ending)| *ending);
        match (fault.class, known) {
            // Of the errors of one word, those that pass by themselves have their own class.
            (FaultClass::Retry, _) => Self::Soon,
            (FaultClass::Degraded | FaultClass::Unreconcilable | FaultClass::Fatal, Some(ending)) => ending,
            (FaultClass::Degraded, None) => Self::Request,
            (FaultClass::Unreconcilable, None) => Self::Target,
            (FaultClass::Fatal, None) => Self::Start,
        }
    }

    /// Returns the ending of the fault, for people.
    fn as_str(self) -> &'static str {
        match self {
            Self::Soon => "an automatic retry, within 1 min of the repair",
            Self::Later => {
                "an automatic retry, within 10 min of the repair, or at once with `systemctl reload machine-config-agent`"
            }
            Self::Event => "the awaited event; the agent notices it",
            Self::Request => {
                "another target or `systemctl reload machine-config-agent`; no automatic retry, it would disrupt the node"
            }
            Self::Target => "another target, or a corrected one",
            Self::Start => "the next start of the program",
        }
    }

    /// Returns the longest wait for the next try by itself; `None` where there is none.
    pub fn longest(self) -> Option<Duration> {
        match self {
            Self::Soon => Some(SOON),
            Self::Later => Some(LATER),
            Self::Event | Self::Request | Self::Target | Self::Start => None,
        }
    }
}

/// Returns the ending of a fault, in words; `update`: the update that has failed with it; `is_lasting`: the agent
/// stays, and tries again itself. After `apply` no one does.
pub fn ended_by(fault: &Fault, update: Option<&Record>, is_lasting: bool) -> &'static str {
    let ending = match update {
        // The node came up so: it is compared again whenever something changes.
        Some(record) if record.phase == Phase::Verifying && fault.reason == "VerificationFailed" => {
            Ending::Event
        }
        Some(_) | None => Ending::from_fault(fault),
    };
    let tried_by_itself = ending.longest().is_some();
    if tried_by_itself && update.is_some_and(|record| has_rebooted_by(record, Some(fault))) {
        return "another target or `systemctl reload machine-config-agent`; no automatic retry, it would reboot again";
    }
    match ending {
        Ending::Soon | Ending::Later | Ending::Event | Ending::Request if !is_lasting => {
            "another run of `apply`, or the start of the daemon, once the cause is repaired; no automatic retry"
        }
        Ending::Soon if update.is_some_and(has_disturbed) => Ending::Later.as_str(),
        Ending::Soon | Ending::Later | Ending::Event | Ending::Request | Ending::Target | Ending::Start => {
            ending.as_str()
        }
    }
}

/// Decides when an update that failed and is undone is tried again, after it was held for some time.
pub fn next_try(record: &Record, trigger: RetryTrigger, held: Duration) -> Try {
    // Its target was replaced and has come back.
    let Some(fault) = &record.fault else { return Try::Now };
    let ending = Ending::from_fault(fault);
    let (rebooted, disturbed) = (has_rebooted(record), has_disturbed(record));
    let is_triggered = match trigger {
        RetryTrigger::Time => false,
        RetryTrigger::Host => is_retried_on_change(record),
        RetryTrigger::Start => !rebooted && ending != Ending::Target,
        RetryTrigger::Rewritten => !rebooted,
        RetryTrigger::Person => true,
    };
    let rest = match trigger {
        RetryTrigger::Host | RetryTrigger::Rewritten => SHORTEST_HOLD.saturating_sub(held),
        RetryTrigger::Time | RetryTrigger::Start | RetryTrigger::Person => Duration::ZERO,
    };
    match ending.longest() {
        _ if is_triggered && rest.is_zero() => Try::Now,
        _ if is_triggered => Try::In(rest),
        Some(_) if rebooted => Try::Never,
        Some(_) if disturbed => Try::Within(LATER),
        Some(longest) => Try::Within(longest),
        None => Try::Never,
    }
}

/// Returns true if a change of the host has a held update tried again: the host is watched for it.
pub fn is_retried_on_change(record: &Record) -> bool {
    let ends = |fault| matches!(Ending::from_fault(fault), Ending::Soon | Ending::Later | Ending::Event);
    let disturbed = has_rebooted(record) || has_disturbed(record);
    record.fault.as_ref().is_none_or(|fault| ends(fault) && !disturbed)
}

/// Returns true if the update has rebooted the node, into whichever deployment.
pub fn has_rebooted(record: &Record) -> bool {
    has_rebooted_by(record, record.fault.as_ref())
}

fn has_rebooted_by(record: &Record, fault: Option<&Fault>) -> bool {
    let not_yet = fault.is_some_and(|fault| fault.reason == "RebootDidNotHappen");
    record.reboots > 0 && !(not_yet && record.failed_finalizations + record.interrupted_finalizations == 0)
}

/// Returns true if a failure to make the previous deployment the next boot's is one of the tries. One that only waited for
/// another program is none: it may pass with that program, however long that takes.
pub fn counts_as_fallback(reason: &str) -> bool {
    reason != "SysrootBusy"
}

/// Returns true if the update has cost the workload something: a drain, or a service that was touched.
fn has_disturbed(record: &Record) -> bool {
    record.drained || record.undo.iter().any(|undo| matches!(undo, Undo::RepeatServices { .. }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(reason: &str) -> Fault {
        let text = |text: &str| text.to_owned();
        Fault { class: FaultClass::Degraded, reason: text(reason), message: text("m"), next: text("n") }
    }

    #[test]
    fn faults_of_apply_promise_no_retry() {
        for (reason, _) in ENDINGS.iter().filter(|(_, ending)| ending.longest().is_some()) {
            let fault = fault(reason);
            assert!(ended_by(&fault, None, true).starts_with("an automatic retry, "), "{reason}");
            let words = ended_by(&fault, None, false);
            assert!(words.contains("`apply`") && words.ends_with("no automatic retry"), "{reason}: {words}");
        }
        assert_eq!(ended_by(&fault("InvalidConfig"), None, false), Ending::Target.as_str());
    }
}
