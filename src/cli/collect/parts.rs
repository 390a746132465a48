//! The parts of the bundle, and their sources.

use std::time::Duration;

use serde::Serialize;
use serde_json::{Value, json};

use super::bundle::{Bundle, Content};
use super::secrets::Secrets;
use crate::cli::history::document;
use crate::cli::host::HostFlags;
use crate::cli::{CliError, desired, last_report, plan, status, verify};
use crate::host::{Host, HostError, Root, command, machine_name};
use crate::journal::history::load;
use crate::journal::state;
use crate::journal::stored::load_record;
use crate::model::ObservedFile;
use crate::model::ids::STATE_DIR;
use crate::model::text::chain;
use crate::model::{NodeSettings, Timestamp};
use crate::observe::observe;
use crate::plan::explain;
use crate::settings::{Environment, file};
use crate::telemetry::log::IDENTIFIER;

/// Time limit of a part: a busy host answers in that time, and a daemon that hangs is not waited for.
const PART_TIMEOUT: Duration = Duration::from_secs(20);

/// Lines of the journal; fewer if they are too long.
const JOURNAL_LINES: [&str; 3] = ["--lines=1000", "--lines=200", "--lines=40"];

/// Logs of the controller's builds on this machine: the older lines first.
const BUILD_LOGS: [&str; 2] = [
    "/var/lib/machine-config-controller/build/build.log.1",
    "/var/lib/machine-config-controller/build/build.log",
];

/// The largest of them; the controller keeps to half of it.
const MAX_BUILD_LOG: u64 = 512 << 10;

/// Fields of a journal line that are collected.
const FIELDS: [&str; 12] = [
    "MESSAGE",
    "MESSAGE_ID",
    "MCA_CONFIG",
    "MCA_DURATION_USEC",
    "MCA_FAULT",
    "MCA_IMAGE",
    "MCA_NEXT",
    "MCA_PHASE",
    "MCA_STEP",
    "MCA_TARGET",
    "MCA_UPDATE",
    "PRIORITY",
];

/// Programs whose versions matter.
const PROGRAMS: [&str; 5] = ["systemctl", "ostree", "rpm-ostree", "bootc", "skopeo"];

/// Keys of os-release(5).
const OS_RELEASE: [&str; 6] =
    ["ID", "VERSION_ID", "PRETTY_NAME", "VARIANT_ID", "OSTREE_VERSION", "IMAGE_VERSION"];

/// Inputs of the command line.
#[derive(Debug)]
pub(super) struct From<'a> {
    /// The host.
    pub(super) host: &'a HostFlags,
    /// Its control plane.
    pub(super) control: &'a desired::Flags,
}

/// Reads all of it. Nothing that fails ends it.
pub(super) async fn collect(
    from: &From<'_>,
    environment: &Environment,
    root: &Root,
    now: Timestamp,
) -> Bundle {
    let node = last_report::SavedReport::load(root).ok().flatten().map(|left| left.report.node);
    let mut bundle = Bundle::new(Secrets::load(root), node.unwrap_or_else(machine_name));
    match from.host.observe() {
        Ok(host) => Box::pin(of_host(&mut bundle, from, environment, &host, now)).await,
        Err(error) => bundle.note("status, plan, verify, deployments", &chain(&error)),
    }
    history(&mut bundle, root);
    bundle.add("record.json", record(root));
    bundle.add("settings.txt", node_settings(root));
    bundle.add("state.txt", listing(root));
    bundle.add("versions.json", Ok(Content::Json(versions(root).await)));
    bundle.add("journal.jsonl", journal(root).await);
    if let Some(log) = build_log(root).transpose() {
        bundle.add("build.log", log.map(Content::Text));
    }
    bundle
}

async fn of_host(
    bundle: &mut Bundle,
    from: &From<'_>,
    environment: &Environment,
    host: &Host,
    now: Timestamp,
) {
    match Box::pin(within(status::collect(host))).await {
        Ok((text, document)) => {
            bundle.add("status.txt", Ok(Content::Text(text)));
            bundle.add("status.json", Ok(Content::Json(document)));
        }
        Err(why) => bundle.note("status", &why),
    }
    let plan = within(plan::to_desired(from.host, from.control, environment)).await;
    bundle.add("plan.json", plan.map(Content::Json));
    let verified = within(verify::current(host)).await;
    bundle.add("verify.json", verified.map(Content::Json));
    let observed = within(async { Ok(observe(host, &[]).await?) }).await;
    let deployments = observed.and_then(|observed| {
        let os = value(&observed.os)?;
        let (backend, because) = (host.os.name(), &host.backend_reason);
        let boot = observed.boot_id.to_string();
        Ok(json!({ "at": now.to_string(), "bootId": boot, "backend": backend, "because": because, "os": os }))
    });
    bundle.add("deployments.json", deployments.map(Content::Json));
}

/// Waits for a part, but not for ever.
async fn within<T>(part: impl Future<Output = Result<T, CliError>>) -> Result<T, String> {
    match tokio::time::timeout(PART_TIMEOUT, part).await {
        Ok(done) => done.map_err(|error| chain(&error)),
        Err(_) => Err(format!("not done within {} s", PART_TIMEOUT.as_secs())),
    }
}

fn value(document: &impl Serialize) -> Result<Value, String> {
    serde_json::to_value(document).map_err(|error| error.to_string())
}

fn history(bundle: &mut Bundle, root: &Root) {
    match load(root) {
        Ok(history) => {
            for error in &history.damaged {
                bundle.note("history.json", &chain(error));
            }
            bundle.add("history.json", value(&document(&history.entries)).map(Content::Json));
        }
        Err(error) => bundle.note("history.json", &chain(&error)),
    }
}

/// The open update: its plan has paths, no contents.
fn record(root: &Root) -> Result<Content, String> {
    let Some(record) = load_record(root).map_err(|error| chain(&error))? else {
        return Ok(Content::Json(Value::Null));
    };
    let plan = value(&explain::json(
        Ok(&record.plan),
        record.from.as_ref(),
        &record.to,
        &explain::Beside::default(),
    ))?;
    Ok(Content::Json(json!({
        "id": record.id.to_string(),
        "phase": record.phase.as_str(),
        "started": record.started.to_string(),
        "since": record.since.to_string(),
        "reboots": record.reboots,
        "attempts": record.attempts,
        "drained": record.drained,
        "forced": record.forced,
        "waiting": record.waiting,
        "fault": value(&record.fault)?,
        "origin": record.origin,
        "durations": value(&record.durations)?,
        "plan": plan,
    })))
}

/// The settings as they are understood: a comment may say anything.
fn node_settings(root: &Root) -> Result<Content, String> {
    let settings: NodeSettings =
        file::read(root, file::SETTINGS_PATH, file::SETTINGS_PATH).map_err(|error| chain(&error))?;
    let checks = root.list("/etc/machine-config-agent/health.d").unwrap_or_default();
    Ok(Content::Text(format!("{settings:#?}\nhealth.d: {}\n", checks.join(" "))))
}

/// Names, modes and sizes of the agent's state.
fn listing(root: &Root) -> Result<Content, String> {
    let mut text = String::new();
    for directory in ["", "history", "preimages", "cache"] {
        let path = format!("{STATE_DIR}/{directory}");
        for name in root.list(path.trim_end_matches('/')).map_err(|error| chain(&error))? {
            let path = state(format!("{directory}/{name}").trim_start_matches('/'));
            let observed = root.observe(&path).map_err(|error| chain(&error))?;
            text += &match observed {
                ObservedFile::Regular { mode, len, .. } => format!("{mode:o} {len} {path}\n"),
                ObservedFile::Absent
                | ObservedFile::Symlink { .. }
                | ObservedFile::Directory { .. }
                | ObservedFile::Special
                | ObservedFile::Unreachable => format!("- - {path}\n"),
            };
        }
    }
    Ok(Content::Text(text))
}

/// Returns the output of `machine-config-controller build` and `bootstrap --build`, if they ran here.
fn build_log(root: &Root) -> Result<Option<String>, String> {
    let mut text = None;
    for path in BUILD_LOGS {
        let read: Result<_, HostError> = root.read_at_most(path, MAX_BUILD_LOG);
        if let Some(bytes) = read.map_err(|error| chain(&error))? {
            text.get_or_insert_with(String::new).push_str(&String::from_utf8_lossy(&bytes));
        }
    }
    Ok(text)
}

async fn versions(root: &Root) -> Value {
    let kernel = root.read_text("/proc/sys/kernel/osrelease").ok().flatten();
    let release = ["/etc/os-release", "/usr/lib/os-release"]
        .iter()
        .find_map(|path| root.read_text(path).ok().flatten());
    let release = release.unwrap_or_default();
    let known =
        release.lines().filter_map(|line| line.split_once('=')).filter(|(key, _)| OS_RELEASE.contains(key));
    let os: serde_json::Map<String, Value> =
        known.map(|(key, value)| (key.to_owned(), Value::from(value.trim_matches('"')))).collect();
    let mut programs = serde_json::Map::new();
    // Those of another root would be run here.
    for program in PROGRAMS.iter().filter(|_| root.is_machine()) {
        let output = command::output(program, &["--version"], PART_TIMEOUT).await;
        let version = output
            .map_or_else(|error| chain(&error), |text| text.lines().next().unwrap_or_default().to_owned());
        programs.insert((*program).to_owned(), Value::from(version));
    }
    json!({ "agent": env!("MCA_VERSION"), "kernel": kernel.map(|text| text.trim().to_owned()), "os": os, "programs": programs })
}

/// The agent's last lines, one object each. Of a text the first line: a plan and a drifted file's difference follow it.
async fn journal(root: &Root) -> Result<Content, String> {
    let base = root.base().display().to_string();
    let mut words = vec!["--quiet", "--no-pager", "--output=json", "--identifier", IDENTIFIER];
    if !root.is_machine() {
        words.extend(["--root", &base]);
    }
    let fields = format!("--output-fields={}", FIELDS.join(","));
    words.push(&fields);
    let mut why = String::new();
    for lines in JOURNAL_LINES {
        match command::output("journalctl", &[&words[..], &[lines]].concat(), PART_TIMEOUT).await {
            Ok(text) => return Ok(Content::Lines(text.lines().filter_map(journal_line).collect())),
            Err(error) => why = chain(&error),
        }
    }
    Err(why)
}

fn journal_line(line: &str) -> Option<Value> {
    let Ok(Value::Object(mut entry)) = serde_json::from_str(line) else { return None };
    let micros = entry.get("__REALTIME_TIMESTAMP").and_then(Value::as_str).and_then(|text| text.parse().ok());
    let time = micros.map(|micros| Value::from(Timestamp::from_micros(micros).to_string()));
    entry.retain(|key, _| FIELDS.contains(&key.as_str()));
    for value in entry.values_mut() {
        let first = value.as_str().and_then(|text| text.lines().next()).map(str::to_owned);
        *value = Value::from(first);
    }
    entry.insert("time".to_owned(), time.unwrap_or_default());
    Some(Value::Object(entry))
}
