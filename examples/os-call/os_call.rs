//! The hidden verb `os-call`: one call of an OS backend, for `tests/os/contract.rs`.
//!
//! `os-call choose` prints the backend of `auto`.
//! `os-call --backend ostree|rpm-ostree|bootc VERB`, where `VERB` is `seen [TIMES]`, `carries IMAGE`, `preflight IMAGE`,
//! `stage IMAGE|- [soft] [-KARG|+KARG]...`, `unstage`, `abandon`, `ensure_finalizable`, `soft-reboot`,
//! `fall-back DEPLOYMENT` or `drop-rollback`. The answer is one JSON object on standard output,
//! `{"ok": ..., "progress": [...]}` or `{"error": ..., "reason": ..., "class": ..., "next": ...}`.

use std::cell::RefCell;
use std::ffi::OsString;
use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;

use machine_config_agent::host::os::bootc::BootcBackend;
use machine_config_agent::host::os::choice::{Choice, RequestedBackend};
use machine_config_agent::host::os::ostree::OstreeBackend;
use machine_config_agent::host::os::rpmostree::RpmOstreeBackend;
use machine_config_agent::host::os::worker::Worker;
use machine_config_agent::host::os::{OsBackend, OsProgress, PrefetchRequest, StageRequest};
use machine_config_agent::host::{ContainerHandles, HostError, Root, Systemd};
use machine_config_agent::model::{ImageRef, Karg};
use serde_json::{Value, json};

/// Runs the verb.
pub(crate) fn main(args: impl Iterator<Item = OsString>) -> ExitCode {
    let args: Vec<String> = args.filter_map(|arg| arg.into_string().ok()).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else {
        return ExitCode::FAILURE;
    };
    let answer = runtime.block_on(call(&args));
    let shown = writeln!(std::io::stdout(), "{answer}");
    if shown.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

async fn call(args: &[&str]) -> Value {
    let worker = Worker::new(Path::new("/"), ContainerHandles::default());
    let (backend, args): (Box<dyn OsBackend>, &[&str]) = match args {
        ["--backend", "ostree", rest @ ..] => (Box::new(OstreeBackend::new(worker)), rest),
        ["--backend", "rpm-ostree", rest @ ..] => match Root::open(Path::new("/")) {
            Ok(root) => (Box::new(RpmOstreeBackend::new(&root, worker)), rest),
            Err(error) => return failed(&error),
        },
        ["choose"] => {
            let choice =
                Root::open(Path::new("/")).and_then(|root| Choice::detect(&root, RequestedBackend::Auto));
            return match choice {
                Ok(choice) => json!({"ok": [choice.name(), choice.reason]}),
                Err(error) => failed(&error),
            };
        }
        ["--backend", "bootc", rest @ ..] => match bootc(worker) {
            Ok(backend) => (Box::new(backend), rest),
            Err(error) => return failed(&error),
        },
        _ => return json!({"error": "usage"}),
    };
    let told = RefCell::new(Vec::new());
    let progress = |step: OsProgress| told.borrow_mut().push(json!([step.text, step.percent]));
    let result = match args {
        ["seen", times @ ..] => {
            let times: usize = times.first().and_then(|times| times.parse().ok()).unwrap_or_default();
            let mut seen = backend.observe().await;
            for _ in 1..times {
                seen = backend.observe().await;
            }
            seen.map(|seen| json!(seen))
        }
        ["carries", image] => match ImageRef::parse(image) {
            Ok(image) => backend.preflight(&image, None).await.map(|found| json!(found.carries)),
            Err(error) => return json!({"error": error.to_string(), "reason": "Refused"}),
        },
        ["preflight", image] => match ImageRef::parse(image) {
            Ok(image) => backend.preflight(&image, None).await.map(|found| json!(found)),
            Err(error) => return json!({"error": error.to_string(), "reason": "Refused"}),
        },
        ["stage", image, kargs @ ..] => match request(image, kargs) {
            Ok(request) => backend.stage(&request, &progress).await.map(|staged| json!(staged)),
            Err(error) => return json!({"error": error.to_string(), "reason": "Refused"}),
        },
        ["prefetch", image] => return prefetch(backend.as_ref(), image).await,
        ["unstage"] => backend.unstage(&progress).await.map(|()| Value::Null),
        ["abandon"] => backend.abandon().await.map(|()| Value::Null),
        ["fall-back", id] => backend.set_default_deployment(id, &progress).await.map(|()| Value::Null),
        ["drop-rollback"] => backend.drop_rollback(&progress).await.map(|()| Value::Null),
        ["soft-reboot", into @ ..] => soft_reboot(backend.as_ref(), into).await,
        ["per-object-fsync"] => backend.ensure_per_object_fsync().await.map(|()| Value::Null),
        ["finalize"] => backend.ensure_finalizable().await.map(|()| Value::Null),
        _ => return json!({"error": "usage"}),
    };
    match result {
        Ok(value) => json!({"ok": value, "progress": told.take()}),
        Err(error) => failed(&error),
    }
}

async fn soft_reboot(backend: &dyn OsBackend, into: &[&str]) -> Result<Value, HostError> {
    backend.soft_reboot(into.first().copied()).await.map(|found| json!(found))
}

/// The stand-in, where a test has put one, else the real program.
fn bootc(worker: Worker) -> Result<BootcBackend, HostError> {
    let root = Root::open(Path::new("/"))?;
    let backend = BootcBackend::new(worker, Systemd::detect(&root)?, root.clone());
    let double = "/run/doubles/bootc";
    Ok(if root.exists(double)? { backend.at(double) } else { backend })
}

async fn prefetch(backend: &dyn OsBackend, image: &str) -> Value {
    let image = if image == "-" { Ok(None) } else { ImageRef::parse(image).map(Some) };
    let request = match image {
        Ok(image) => PrefetchRequest { image, ..PrefetchRequest::default() },
        Err(error) => return json!({"error": error.to_string(), "reason": "Refused"}),
    };
    let (sender, _progress) = tokio::sync::watch::channel(None);
    match backend.prefetch(request, sender).await {
        Ok(done) => json!({"ok": done.free}),
        Err(error) => failed(&error),
    }
}

fn request(image: &str, kargs: &[&str]) -> Result<StageRequest, machine_config_agent::model::ModelError> {
    let image = if image == "-" { None } else { Some(ImageRef::parse(image)?) };
    let some =
        |sign: char| kargs.iter().filter_map(move |k| k.strip_prefix(sign)).flat_map(Karg::split).collect();
    Ok(StageRequest {
        image,
        credentials: None,
        delete_kargs: some('-'),
        append_kargs: some('+'),
        soft_reboot: kargs.contains(&"soft"),
        ..StageRequest::default()
    })
}

fn failed(error: &HostError) -> Value {
    let source = std::error::Error::source(error).map(|source| format!(": {source}")).unwrap_or_default();
    json!({"error": format!("{error}{source}"), "reason": error.reason(), "class": error.class().as_str(), "next": error.next()})
}
