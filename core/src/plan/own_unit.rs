//! Entries that keep the agent itself from starting: applied as all others, and warned of, since nothing on the host follows a config
//! after them.

use super::input::PlanInput;
use super::warnings::Warning;
use super::{Op, Step};
use crate::model::ids::AGENT_UNIT;
use crate::model::paths::LinkTarget;
use crate::model::{ManagedPath, PathSpec, UnitName, short};

/// Directories of units (systemd.unit(5)).
const UNIT_DIRS: [&str; 13] = [
    "/etc/systemd/system",
    "/etc/systemd/system.attached",
    "/etc/systemd/system.control",
    "/lib/systemd/system",
    "/run/systemd/generator",
    "/run/systemd/generator.early",
    "/run/systemd/generator.late",
    "/run/systemd/system",
    "/run/systemd/system.attached",
    "/run/systemd/system.control",
    "/run/systemd/transient",
    "/usr/lib/systemd/system",
    "/usr/local/lib/systemd/system",
];

/// Names whose drop-ins are the agent's, too.
const WITH_DROPINS: [&str; 4] = [AGENT_UNIT, "machine-config-.service", "machine-.service", "service"];

/// Drop-ins that come with the agent: one of the same name replaces it.
const OWN_DROPINS: [&str; 1] = ["10-cluster.conf"];

/// Endings of the directories whose links start a unit.
const STARTS: [&str; 3] = [".wants", ".requires", ".upholds"];

/// The agent's programs, and their directory.
const PROGRAMS: [&str; 3] =
    ["/usr/bin/machine-config-agent", "/bin/machine-config-agent", "/usr/libexec/machine-config-agent"];

/// Beginnings of settings that let a service start as it did.
const HARMLESS: &[&str] = &[
    "After",
    "Before",
    "CPU",
    "Description",
    "Documentation",
    "Environment",
    "IO",
    "Limit",
    "Log",
    "ManagedOOM",
    "Memory",
    "Nice",
    "OOM",
    "OnFailure",
    "OnSuccess",
    "PassEnvironment",
    "Restart",
    "Slice",
    "SourcePath",
    "StandardError",
    "StandardOutput",
    "StartLimit",
    "Startup",
    "SuccessExitStatus",
    "Syslog",
    "Tasks",
    "Timeout",
    "UnsetEnvironment",
    "Wants",
];

const MASKED: &str =
    "the agent's own unit is masked: the agent will not start again once it stops; remove the entry";

/// Returns the warnings about steps that change the unit of the agent.
pub(super) fn warnings(input: &PlanInput<'_>, steps: &[Step]) -> Vec<Warning> {
    steps.iter().filter_map(|step| warning(input, &step.op)).collect()
}

fn warning(input: &PlanInput<'_>, op: &Op) -> Option<Warning> {
    let of_unit = |part: &str, message: &str| {
        Some(Warning { field: format!("systemd.units {AGENT_UNIT:?}{part}"), message: message.to_owned() })
    };
    if let Op::MaskUnit { unit } = op
        && is_agent(unit)
    {
        return of_unit(" mask", MASKED);
    }
    if let Op::DisableUnit { unit } = op
        && is_agent(unit)
    {
        let message = "the agent's own unit is disabled: the agent will not start after the next boot; set `enabled: true`";
        return of_unit(" enabled", message);
    }
    let path = op.path()?;
    if let Some(message) = beside_unit(input, op, &path) {
        let section = input.new_entry(&path).filter(|_| input.to.is_listed(&path)).map(PathSpec::section);
        let section = section
            .or_else(|| input.old(&path).filter(|_| input.from.is_listed(&path)).map(PathSpec::section));
        return match section {
            Some(section) => Some(Warning { field: format!("{section} {:?}", path.as_str()), message }),
            None => of_unit(&format!(" dropins {:?}", path.split().1), &message),
        };
    }
    if !is_of_agent(&path) {
        return None;
    }
    let Some(entry) = input.new_entry(&path) else {
        let message = "it is the unit file of the agent, which is removed: the agent will not start after the next boot; keep the entry";
        let is_lost = matches!(op, Op::RemoveUnit { .. } | Op::RemoveFile { .. } | Op::RemoveLink { .. })
            && !input.restorable(&path);
        return if is_lost { of_unit("", message) } else { None };
    };
    let is_mask =
        matches!(entry, PathSpec::Link(link) if link.target == LinkTarget::Soft("/dev/null".to_owned()));
    let message = if is_mask {
        MASKED
    } else {
        "it takes the place of the agent's own unit file: if it does not start the agent, nothing on the host follows a config any more; \
         change single settings by a drop-in"
    };
    let is_listed = input.to.is_listed(&path);
    let field = if is_listed {
        format!("{} {:?}", entry.section(), path.as_str())
    } else {
        format!("systemd.units {AGENT_UNIT:?}")
    };
    Some(Warning { field, message: message.to_owned() })
}

/// Returns the warning about a path that is not the unit file of the agent, and decides whether it starts.
fn beside_unit(input: &PlanInput<'_>, op: &Op, path: &ManagedPath) -> Option<String> {
    let entry = input.new_entry(path);
    let (directory, name) = path.as_str().rsplit_once('/')?;
    if PROGRAMS.iter().any(|program| path.is_below(program)) {
        let message = "it is in the place of the agent's program: if it is not an agent, nothing on the host follows a config any more; \
                       update the agent's package or image instead";
        return entry.map(|_| message.to_owned());
    }
    let (units, folder) = directory.rsplit_once('/')?;
    if !UNIT_DIRS.contains(&units) {
        return None;
    }
    if name == AGENT_UNIT && STARTS.iter().any(|end| folder.ends_with(end)) {
        return of_start(input, op, path);
    }
    let owner = folder.strip_suffix(".d").filter(|owner| WITH_DROPINS.contains(owner))?;
    name.strip_suffix(".conf")?;
    let what = match entry? {
        PathSpec::File(_) if OWN_DROPINS.contains(&name) && owner == AGENT_UNIT => {
            "it replaces the drop-in that comes with the agent".to_owned()
        }
        PathSpec::File(file) => {
            let setting = decisive(&String::from_utf8_lossy(file.contents.bytes()))?;
            format!("it sets {setting} of the agent's own unit")
        }
        PathSpec::Directory(_) | PathSpec::Link(_) => {
            "it decides about settings of the agent's own unit, or hides a drop-in of it".to_owned()
        }
    };
    Some(format!(
        "{what}: if the agent does not start with it, nothing on the host follows a config any more; try it on one host \
         (`systemctl restart {AGENT_UNIT}`)"
    ))
}

/// Returns the warning about the link that starts the agent at boot.
fn of_start(input: &PlanInput<'_>, op: &Op, path: &ManagedPath) -> Option<String> {
    let does = match input.new_entry(path) {
        Some(PathSpec::Link(link)) => match &link.target {
            LinkTarget::Soft(text) if text.rsplit('/').next() == Some(AGENT_UNIT) => return None,
            LinkTarget::Soft(_) | LinkTarget::Hard(_) => "leads elsewhere",
        },
        Some(PathSpec::File(_) | PathSpec::Directory(_)) => "is not a link",
        None if matches!(op, Op::RemoveLink { .. }) && !input.restorable(path) => "is removed",
        None => return None,
    };
    Some(format!(
        "it is the link that starts the agent at boot, which {does}: the agent may not start after the next boot; enable \
         {AGENT_UNIT} in systemd.units instead"
    ))
}

/// Returns a setting of a drop-in that decides whether a service starts, and as what.
fn decisive(text: &str) -> Option<String> {
    let mut section = "";
    for line in text.lines().map(str::trim) {
        if line.starts_with('[') {
            section = line;
            continue;
        }
        let Some((key, value)) = line.split_once('=').filter(|_| !line.starts_with(['#', ';'])) else {
            continue;
        };
        let (key, value) = (key.trim_end(), value.trim_start());
        let is_harmless = match section {
            "[Install]" => !value.is_empty(),
            "[Unit]" | "[Service]" => HARMLESS.iter().any(|begin| key.starts_with(begin)),
            _ => true,
        };
        if !is_harmless {
            return Some(format!("{}=", short(key, 40)));
        }
    }
    None
}

fn is_agent(unit: &UnitName) -> bool {
    unit.as_str() == AGENT_UNIT
}

fn is_of_agent(path: &ManagedPath) -> bool {
    let (directory, name) = path.as_str().rsplit_once('/').unwrap_or_default();
    name == AGENT_UNIT && UNIT_DIRS.contains(&directory)
}
