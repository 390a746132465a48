//! Entries that only an installation makes: whether this host shows that it did.

use crate::model::fixed::{Evidence, FixedEntry};
use crate::model::{Karg, NotApplied, NotAppliedReason, Observation};

/// Returns why an entry that Ignition makes is not on this host; `None` if it is.
pub(super) fn missing(entry: &FixedEntry, observed: &Observation) -> Option<NotApplied> {
    if observed.storage.contains(&entry.field) {
        return None;
    }
    let found = match &entry.evidence {
        Evidence::MountedAt(path) => format!("no separate file system is mounted at {path}"),
        Evidence::Devices(devices) => format!("there is no {}", devices.join(", ")),
        Evidence::Nothing => "nothing shows that it did".to_owned(),
        Evidence::Kargs { present, absent } => {
            let cause = on_line(present, absent, &observed.kargs)?;
            let next = "set spec.kernelArguments in the MachineConfig";
            let message = format!("Ignition sets it when a host is installed; {cause}; {next}");
            return Some(NotApplied::new(&entry.field, NotAppliedReason::Installation, message));
        }
    };
    let next = "install the host with this config, or remove the entry";
    let message = format!("Ignition makes it when a host is installed; on this host {found}; {next}");
    Some(NotApplied::new(&entry.field, NotAppliedReason::Installation, message))
}

/// Returns what is otherwise on the command line.
fn on_line(present: &[Karg], absent: &[Karg], line: &[Karg]) -> Option<String> {
    let list = |kargs: Vec<&Karg>| kargs.iter().map(|karg| karg.as_str()).collect::<Vec<_>>().join(" ");
    let lacks: Vec<&Karg> = present.iter().filter(|karg| !line.contains(karg)).collect();
    let has: Vec<&Karg> = absent.iter().filter(|karg| line.contains(karg)).collect();
    match (lacks.is_empty(), has.is_empty()) {
        (true, true) => None,
        (false, _) => Some(format!("the kernel's command line lacks {}", list(lacks))),
        (true, false) => Some(format!("the kernel's command line has {}", list(has))),
    }
}
