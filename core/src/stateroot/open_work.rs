//! Open work on a stateroot, as people see it.

use serde::Serialize;

use super::{Job, StaterootName, StaterootPhase, StaterootRecord, StaterootStep};

/// Work that has not ended: it is under way, or was interrupted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct OpenWork {
    /// The verb.
    pub work: &'static str,
    /// The stateroot.
    pub stateroot: StaterootName,
    /// The step under way, or the next one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<&'static str>,
    /// The time of its beginning.
    pub since: String,
    /// The next step of a person.
    pub next: String,
}

impl OpenWork {
    /// Describes the work of a record.
    pub fn new(record: &StaterootRecord) -> Self {
        Self {
            work: verb(&record.job),
            stateroot: record.job.stateroot().clone(),
            step: record.step().map(StaterootStep::as_str),
            since: record.started.to_string(),
            next: next(record),
        }
    }

    /// Returns it as one line.
    pub fn line(&self) -> String {
        let Self { work, stateroot, since, .. } = self;
        let step = self.step.map_or_else(String::new, |step| format!(", step {step}"));
        format!("{work} {stateroot} since {since}{step}")
    }
}

fn verb(job: &Job) -> &'static str {
    match job {
        Job::Prepare { .. } => "prepare",
        Job::Remove { .. } => "remove",
        Job::Activate { trial: Some(_), .. } => "activate",
        Job::Activate { trial: None, .. } => "roll-back",
    }
}

fn next(record: &StaterootRecord) -> String {
    let name = record.job.stateroot();
    let has_switched = matches!(record.phase, StaterootPhase::Applying { .. })
        && matches!(record.step(), None | Some(StaterootStep::RequestReboot));
    let removal = format!("`machine-config-agent stateroot remove {name} --yes`");
    let (again, undone) = match &record.job {
        Job::Activate { trial: Some(_), .. } if has_switched => {
            let back = "`machine-config-agent stateroot roll-back --yes`";
            return format!("Reboot the machine, or run {back} before.");
        }
        Job::Activate { trial: None, .. } if has_switched => return "Reboot the machine.".to_owned(),
        Job::Prepare { image, version, .. } => {
            let prepare = format!("`machine-config-agent stateroot prepare {image} --version {version}`");
            (prepare, Some(removal))
        }
        Job::Remove { .. } => (removal, None),
        Job::Activate { trial: Some(_), .. } => {
            (format!("`machine-config-agent stateroot activate {name} --yes`"), Some(removal))
        }
        Job::Activate { trial: None, .. } => {
            (format!("`machine-config-agent stateroot roll-back --to {name} --yes`"), None)
        }
    };
    let undone = undone.map_or_else(String::new, |undone| format!(", or undo it by {undone}"));
    format!("Wait for the process or stage that works on it; if there is none, run {again} again{undone}.")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{BootId, ImageRef, Timestamp, UpdateId};
    use crate::stateroot::{Findings, Layout, TrialRules, Version};

    fn record(job: Job) -> StaterootRecord {
        let id = UpdateId::new("20261124t090000z-00aa").unwrap();
        let boot = BootId::new("0f1e2d3c-4b5a-4978-8796-a5b4c3d2e1f0").unwrap();
        StaterootRecord::new(id, job, boot, Timestamp::from_micros(0))
    }

    fn activation(trial: Option<TrialRules>) -> Job {
        let (deployment, previous) = ("rhcos_1-0123.0".to_owned(), "rhcos-0123.0".to_owned());
        Job::Activate {
            stateroot: StaterootName::new("rhcos_1").unwrap(),
            deployment,
            previous,
            trial,
            reboot: true,
        }
    }

    #[test]
    fn open_work_names_the_way_on_and_the_way_back() {
        let open = OpenWork::new(&record(activation(Some(TrialRules::default()))));
        assert_eq!(open.line(), "activate rhcos_1 since 1970-01-01T00:00:00Z, step arm-trial");
        let expected = "if there is none, run `machine-config-agent stateroot activate rhcos_1 --yes` again, or undo it by \
            `machine-config-agent stateroot remove rhcos_1 --yes`.";
        assert!(open.next.ends_with(expected), "{}", open.next);
        let back = OpenWork::new(&record(activation(None)));
        assert!(
            back.next.ends_with("run `machine-config-agent stateroot roll-back --to rhcos_1 --yes` again.")
        );
        let stateroot = StaterootName::new("rhcos_1").unwrap();
        let removal = OpenWork::new(&record(Job::Remove { stateroot: stateroot.clone() }));
        assert!(removal.next.ends_with("stateroot remove rhcos_1 --yes` again."), "{}", removal.next);
        let digest = "a".repeat(64);
        let image = ImageRef::parse(&format!("registry.test/seed@sha256:{digest}")).unwrap();
        let version = Version::new("1").unwrap();
        let job = Job::Prepare { stateroot, image, layout: Layout::Classic, version, carried: Vec::new() };
        let preparation = OpenWork::new(&record(job));
        let command =
            format!("stateroot prepare registry.test/seed@sha256:{digest} --version 1` again, or undo it by");
        assert!(preparation.next.contains(&command), "{}", preparation.next);
    }

    #[test]
    fn switch_that_is_made_wants_a_reboot() {
        let mut activated = record(activation(Some(TrialRules::default())));
        for _ in 0..2 {
            activated = activated.stepped(Findings::default());
        }
        let open = OpenWork::new(&activated);
        assert_eq!(open.step, Some("request-reboot"));
        assert!(open.next.starts_with("Reboot the machine, or run `"), "{}", open.next);
        let undone = OpenWork::new(&activated.rolled_back(None));
        assert!(undone.next.starts_with("Wait for"), "{}", undone.next);
    }
}
