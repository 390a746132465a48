//! Plays bootc: its command line, its JSON, its progress lines and its lock, on a real sysroot.
//!
//! Images are deployed by the agent's own worker. `/run/bootc-double/fault` holds what goes wrong: `fail TEXT` (an error
//! after the pull), `silent` (a good end, and nothing staged), `hang` (it writes `begun` beside the fault and waits for
//! ever, with the sysroot's lock not held), `hold` (the same after its first words, but the bytes of the pipe `go` beside it
//! let it go on). `/run/bootc-double/alpha` makes `status` speak `v1alpha1`;
//! `/run/bootc-double/soft` says that what is staged can be taken by a soft reboot.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::disallowed_methods,
    clippy::indexing_slicing,
    clippy::disallowed_types,
    reason = "a program of the tests"
)]

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::FileTypeExt as _;
use std::path::Path;
use std::process::ExitCode;

use machine_config_agent::host::ContainerHandles;
use machine_config_agent::host::os::ostree::OstreeBackend;
use machine_config_agent::host::os::worker::Worker;
use machine_config_agent::host::os::{OsBackend as _, OsProgress, StageRequest};
use machine_config_agent::model::observation::{Booted, ObservedOs, Staged};
use machine_config_agent::model::{ImageRef, Karg};
use serde_json::{Value, json};

const KNOBS: &str = "/run/bootc-double";
/// Arguments of an image, as `kargs = ["a=b"]`.
const KARGS_D: &str = "/usr/lib/bootc/kargs.d/10-double.toml";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let done = runtime.block_on(async {
        match args.as_slice() {
            ["switch", rest @ ..] => switch(rest).await,
            ["status", "--json"] => status().await,
            ["rollback"] => rollback().await,
            other => Err(format!("unrecognized subcommand {other:?}")),
        }
    });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn knob(name: &str) -> Option<String> {
    std::fs::read_to_string(format!("{KNOBS}/{name}")).ok()
}

fn backend() -> OstreeBackend {
    OstreeBackend::new(Worker::new(Path::new("/"), ContainerHandles::default()))
}

async fn observe() -> Result<(Booted, Option<Staged>), String> {
    match backend().observe().await.map_err(|error| error.to_string())? {
        ObservedOs::Deployments { booted, staged, .. } => Ok((booted, staged)),
        ObservedOs::NotImageBased => Err("not an image".to_owned()),
    }
}

/// The options of `switch` that the agent may use; another one is refused as by the real one.
struct Switch {
    transport: String,
    progress: Option<File>,
    soft: bool,
    target: String,
}

fn parse(args: &[&str]) -> Result<Switch, String> {
    let mut parsed =
        Switch { transport: "registry".to_owned(), progress: None, soft: false, target: String::new() };
    let mut rest = args.iter();
    while let Some(word) = rest.next() {
        match *word {
            "--quiet" => {}
            "--soft-reboot=auto" if knob("alpha").is_none() => parsed.soft = true,
            "--transport" => (*rest.next().ok_or("a value is required")?).clone_into(&mut parsed.transport),
            "--progress-fd" => {
                let fd: u32 =
                    rest.next().and_then(|fd| fd.parse().ok()).filter(|fd| *fd >= 3).ok_or("invalid fd")?;
                let pipe = OpenOptions::new().write(true).open(format!("/proc/self/fd/{fd}"));
                let pipe = pipe.map_err(|e| format!("progress fd {fd}: {e}"))?;
                if !pipe.metadata().unwrap().file_type().is_fifo() {
                    return Err("progress fd is no pipe".to_owned());
                }
                parsed.progress = Some(pipe);
            }
            option if option.starts_with('-') => return Err(format!("unexpected argument '{option}' found")),
            target if parsed.target.is_empty() => target.clone_into(&mut parsed.target),
            other => return Err(format!("unexpected argument '{other}' found")),
        }
    }
    if parsed.target.is_empty() { Err("TARGET is required".to_owned()) } else { Ok(parsed) }
}

async fn switch(args: &[&str]) -> Result<(), String> {
    let Switch { transport, progress, soft, target } = parse(args)?;
    let prefix = if transport == "oci" { "oci:" } else { "" };
    let image = ImageRef::parse(&format!("{prefix}{target}")).map_err(|error| error.to_string())?;
    let (booted, staged) = observe().await?;
    let current = staged.as_ref().map_or(booted.image.as_ref(), |staged| staged.image.as_ref());
    // Layered packages hide the image: nothing is compared then, and they are dropped.
    if current == Some(&image) && booted.local.is_empty() {
        println!("Image specification is unchanged.");
        return Ok(());
    }
    let fault = knob("fault").unwrap_or_default();
    if fault.starts_with("hang") {
        std::fs::write(format!("{KNOBS}/begun"), "").unwrap();
        std::future::pending::<()>().await;
    }
    let progress = Progress(progress);
    progress.say(&json!({"type": "Start", "version": "0.1.0"}));
    if fault.starts_with("hold") {
        std::fs::write(format!("{KNOBS}/begun"), "").unwrap();
        drop(std::fs::read(format!("{KNOBS}/go")).unwrap());
        progress.say(&json!({"type": "Start", "version": "0.1.0"}));
    }
    // The merge deployment is the staged one, else the booted one: its arguments are the base.
    let from = staged.map_or_else(|| cmdline(false), |staged| staged.kargs);
    let request = StageRequest {
        image: Some(image),
        delete_kargs: cmdline(false),
        append_kargs: [from, brought()].concat(),
        ..StageRequest::default()
    };
    if fault.starts_with("silent") {
        return Ok(());
    }
    if let Some(text) = fault.strip_prefix("fail ") {
        eprintln!("warning: about to fail");
        return Err(text.trim().to_owned());
    }
    backend().stage(&request, &|step| progress.report(&step)).await.map_err(|error| error.to_string())?;
    if soft && knob("soft").is_some() {
        // The real one mounts it, which would end here with this process.
        std::fs::create_dir_all("/run/nextroot/usr").unwrap();
    }
    println!("Queued for next boot: {target}");
    Ok(())
}

/// The arguments of the boot, without libostree's own.
fn cmdline(with_ostree: bool) -> Vec<Karg> {
    let line = std::fs::read_to_string("/proc/cmdline").unwrap();
    Karg::split(line.trim()).into_iter().filter(|karg| with_ostree || !karg.is_of_ostree()).collect()
}

fn brought() -> Vec<Karg> {
    let text = std::fs::read_to_string(KARGS_D).unwrap_or_default();
    text.split('"').skip(1).step_by(2).flat_map(Karg::split).collect()
}

struct Progress(Option<File>);

impl Progress {
    fn say(&self, line: &Value) {
        // An error ends the progress, not the work.
        if let Some(mut file) = self.0.as_ref() {
            drop(writeln!(file, "{line}"));
        }
    }

    fn report(&self, step: &OsProgress) {
        let steps = step.percent.unwrap_or_default();
        self.say(&json!({
            "type": "ProgressSteps", "task": "staging", "description": step.text, "id": "deploying",
            "stepsCached": 0, "steps": steps, "stepsTotal": 100, "subtasks": []
        }));
    }
}

/// Swaps the first two; a second time swaps them back.
async fn rollback() -> Result<(), String> {
    let ObservedOs::Deployments { booted, next, .. } =
        backend().observe().await.map_err(|error| error.to_string())?
    else {
        return Err("not an image".to_owned());
    };
    let status = std::process::Command::new("ostree").args(["admin", "status"]).output().unwrap();
    let status = String::from_utf8(status.stdout).unwrap();
    let other = status.lines().find(|line| line.contains("(rollback)"));
    let first = match (next, other) {
        (Some(_), _) => booted.deployment,
        (None, Some(line)) => line.split_whitespace().take(2).collect::<Vec<_>>().join("-"),
        (None, None) => return Err("No rollback available".to_owned()),
    };
    backend().set_default_deployment(&first, &|_| {}).await.map_err(|error| error.to_string())?;
    println!("Next boot: rollback deployment");
    Ok(())
}

async fn status() -> Result<(), String> {
    let (booted, staged) = observe().await?;
    let incompatible = !booted.local.is_empty();
    let booted = entry(booted.image.as_ref(), &booted.deployment, incompatible);
    let staged = staged.map(|staged| entry(staged.image.as_ref(), &staged.deployment, false));
    let version = if knob("alpha").is_some() { "v1alpha1" } else { "v1" };
    let document = json!({
        "apiVersion": format!("org.containers.bootc/{version}"), "kind": "BootcHost", "metadata": {"name": "host"},
        "spec": {"bootOrder": "default", "image": null},
        "status": {"staged": staged, "booted": booted, "rollback": null, "rollbackQueued": false, "type": "bootcHost"},
    });
    println!("{document}");
    Ok(())
}

fn entry(image: Option<&ImageRef>, deployment: &str, incompatible: bool) -> Value {
    let image = image.filter(|_| !incompatible).map(|image| {
        let (transport, name) = match image.to_string().strip_prefix("oci:") {
            Some(name) => ("oci", name.to_owned()),
            None => ("registry", image.to_string()),
        };
        let digest = format!("sha256:{}", image.digest());
        json!({"image": {"image": name, "transport": transport}, "imageDigest": digest, "version": null})
    });
    let (stateroot, rest) = deployment.rsplit_once('-').unwrap();
    let (checksum, serial) = rest.rsplit_once('.').unwrap();
    let mut entry = json!({
        "image": image, "incompatible": incompatible, "pinned": false, "cachedUpdate": null,
        "ostree": {"stateroot": stateroot, "checksum": checksum, "deploySerial": serial.parse::<u32>().unwrap()},
    });
    if knob("alpha").is_none() {
        entry["softRebootCapable"] = json!(knob("soft").is_some());
        entry["composefs"] = Value::Null;
    }
    entry
}
