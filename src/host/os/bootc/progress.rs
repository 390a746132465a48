//! The lines of `bootc --progress-fd`. Pure.
//!
//! The protocol is experimental: unknown lines are left out, and nothing depends on it.

use std::time::Duration;

use serde::Deserialize;

use crate::host::os::OsProgress;
use crate::host::os::rate::Rate;

const MIB: u64 = 1024 * 1024;

#[derive(Deserialize)]
#[serde(tag = "type")]
enum Line {
    #[serde(rename_all = "camelCase")]
    ProgressBytes {
        task: String,
        #[serde(default)]
        bytes: u64,
        #[serde(default)]
        bytes_total: u64,
        #[serde(default)]
        steps: u64,
        #[serde(default)]
        steps_total: u64,
    },
    #[serde(rename_all = "camelCase")]
    ProgressSteps {
        task: String,
        #[serde(default)]
        description: String,
        #[serde(default)]
        steps: u64,
        #[serde(default)]
        steps_total: u64,
        #[serde(default)]
        subtasks: Vec<Subtask>,
    },
    #[serde(other)]
    Other,
}

#[derive(Deserialize)]
struct Subtask {
    #[serde(default)]
    description: String,
    #[serde(default)]
    completed: bool,
}

/// Reads a line, told at this time since the start; `None` for a line without progress.
pub(super) fn parse(line: &str, at: Duration, rate: &mut Rate) -> Option<OsProgress> {
    match serde_json::from_str(line).ok()? {
        Line::ProgressBytes { task, bytes, bytes_total, steps, steps_total } => {
            let of =
                if bytes_total == 0 { String::new() } else { format!(" of {}", bytes_total.div_ceil(MIB)) };
            let layers =
                if steps_total == 0 { String::new() } else { format!(", layer {steps} of {steps_total}") };
            let rate = rate.at(at, bytes).map(|rate| format!(", {rate}")).unwrap_or_default();
            let text = format!("{task}: {}{of} MiB{layers}{rate}", bytes / MIB);
            Some(OsProgress::new(&text, percent(bytes, bytes_total)))
        }
        Line::ProgressSteps { task, description, steps, steps_total, subtasks } => {
            let doing = subtasks.into_iter().find(|part| !part.completed && !part.description.is_empty());
            let what = doing.map_or(description, |part| part.description);
            let text = if what.is_empty() { task } else { format!("{task}: {what}") };
            Some(OsProgress::new(&text, percent(steps, steps_total)))
        }
        Line::Other => None,
    }
}

fn percent(part: u64, whole: u64) -> Option<u8> {
    let percent = u128::from(part).checked_mul(100)?.checked_div(u128::from(whole))?;
    u8::try_from(percent.min(100)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_become_progress() {
        let cases = [
            (r#"{"type":"Start","version":"0.1.0"}"#, None),
            (
                r#"{"type":"ProgressBytes","task":"pulling","description":"Pulling Image","id":"sha256:a","bytesCached":0,
                    "bytes":52428800,"bytesTotal":104857600,"stepsCached":1,"steps":2,"stepsTotal":60,"subtasks":[]}"#,
                Some(("pulling: 50 of 100 MiB, layer 2 of 60", Some(50))),
            ),
            (r#"{"type":"ProgressBytes","task":"pulling"}"#, Some(("pulling: 0 MiB", None))),
            (
                r#"{"type":"ProgressBytes","task":"pulling","bytes":18446744073709551615,"bytesTotal":1}"#,
                Some(("pulling: 17592186044415 of 1 MiB", Some(100))),
            ),
            (
                r#"{"type":"ProgressSteps","task":"staging","description":"Deploying","steps":1,"stepsTotal":3,
                    "subtasks":[{"subtask":"merging","description":"Merging Image","completed":true},
                                {"subtask":"deploying","description":"Deploying Image","completed":false}]}"#,
                Some(("staging: Deploying Image", Some(33))),
            ),
            (r#"{"type":"ProgressSteps","task":"importing"}"#, Some(("importing", None))),
            (r#"{"type":"ProgressWatts","watts":3}"#, None),
            ("", None),
            ("no JSON", None),
        ];
        for (line, expected) in cases {
            let expected = expected.map(|(text, percent)| OsProgress { text: text.to_owned(), percent });
            assert_eq!(parse(line, Duration::ZERO, &mut Rate::default()), expected, "{line}");
        }
    }
}
