//! The scenes, in order. Each changes the control directory, as an administrator or a controller would.

use std::collections::BTreeMap;
use std::os::unix::fs::{MetadataExt as _, symlink};

use serde_json::Value;

use super::configs::{APP_SETTINGS, APP_UNIT, Config, UNIT, motd, policy};
use super::node::{AgentExit, Node, deployment};
use super::show::Show;
use crate::host::failpoint::FailPoints;
use crate::model::ImageRef;
use crate::sandbox::{CONTROL, LayerFile, SandboxError};

/// Exit code of a process that was killed with SIGKILL, as a shell and the sandbox tell it.
const KILLED: i32 = 137;

type Played = Result<(), SandboxError>;

/// Plays them all.
pub(super) async fn play(node: &mut Node, show: &mut Show) -> Played {
    let base = Config::base();
    take_over(node, show, &base).await?;
    let config = without_reboot(node, show, &base).await?;
    let config = with_reboot(node, show, &config).await?;
    let (config, image) = image_switch(node, show, &config).await?;
    drift(node, show).await?;
    let config = crash(node, show, &config, &image).await?;
    refuse(node, show, &config, &image).await
}

/// Writes the config and, last, the target.
fn ask(node: &Node, config: &Config, image: Option<&ImageRef>) -> Played {
    node.control(&format!("machineconfigs/{}.json", config.name()), &config.text())?;
    let image = image.map(|image| format!("image: {image}\n")).unwrap_or_default();
    node.control("target.yaml", &format!("config: {}\n{image}", config.name()))
}

/// Returns the plan of the agent, as `plan` prints it in the machine.
async fn plan(node: &Node) -> Result<Value, SandboxError> {
    let arguments = ["plan", "--directory", CONTROL, "--os-backend", "ostree", "--output", "json"];
    let (_, text) = node.verb(&arguments).await?;
    Ok(serde_json::from_str(&text).unwrap_or(Value::Null))
}

fn done(name: &str) -> impl Fn(&Value) -> bool + use<> {
    let name = name.to_owned();
    move |report| {
        text(report, "/state") == "Done"
            && text(report, "/currentConfig") == name
            && text(report, "/phase") == "Idle"
    }
}

fn faulted(reason: &'static str) -> impl Fn(&Value) -> bool {
    move |report| text(report, "/state") == "Degraded" && text(report, "/fault/reason") == reason
}

fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// Returns the words and targets of a plan's steps.
fn steps(plan: &Value) -> Vec<String> {
    let step = |step: &Value| format!("{} {}", text(step, "/op"), text(step, "/target"));
    plan.get("steps")
        .and_then(Value::as_array)
        .map(|steps| steps.iter().map(step).collect())
        .unwrap_or_default()
}

fn same(show: &mut Show, node: &Node, path: &str, desired: &str) {
    let found = node.read(path);
    show.check(&format!("{path} matches the config"), found == desired, &format!("{found:?}"));
}

fn inode(node: &Node, path: &str) -> String {
    let found = node.path(path).ok().and_then(|path| std::fs::symlink_metadata(path).ok());
    found.map(|found| format!("{}/{}.{}", found.ino(), found.mtime(), found.mtime_nsec())).unwrap_or_default()
}

async fn take_over(node: &mut Node, show: &mut Show, base: &Config) -> Played {
    show.scene(
        "Take-over",
        "the node was managed by machine-config-daemon and is handed to the agent as it is",
    );
    // Files of MCD: those of the config, the enabled unit, and its own state.
    node.write("/etc/motd", &motd("a"))?;
    node.write("/etc/chrony.conf", "pool time.example iburst\n")?;
    node.write("/etc/systemd/system/greet.service", UNIT)?;
    let wants = node.path("/etc/systemd/system/multi-user.target.wants")?;
    std::fs::create_dir_all(&wants).map_err(|error| SandboxError::io("make", &wants, error))?;
    let link = wants.join("greet.service");
    symlink("/etc/systemd/system/greet.service", &link)
        .map_err(|error| SandboxError::io("link", &link, error))?;
    node.write("/etc/machine-config-daemon/currentconfig", &base.text())?;
    node.write("/etc/machine-config-daemon/currentimage", "")?;
    node.control("policy.yaml", &policy())?;
    ask(node, base, None)?;
    let managed = ["/etc/motd", "/etc/chrony.conf", "/etc/systemd/system/greet.service"];
    let before: Vec<String> = managed.iter().map(|path| inode(node, path)).collect();
    let (_, text) = node.verb(&["plan", "--directory", CONTROL, "--os-backend", "ostree"]).await?;
    show.block("plan", &text);
    node.start(None)?;
    node.until(show, done(base.name())).await?;
    let after: Vec<String> = managed.iter().map(|path| inode(node, path)).collect();
    show.check("no managed file was written", before == after, &format!("{before:?}, then {after:?}"));
    show.check("no reboot", node.boots() == 1, &node.boots().to_string());
    let (code, output) = node.verb(&["verify", "--os-backend", "ostree"]).await?;
    show.check("verify finds no difference", code == 0, &output);
    Ok(())
}

async fn without_reboot(node: &mut Node, show: &mut Show, base: &Config) -> Result<Config, SandboxError> {
    show.scene(
        "A file change without reboot",
        "a new message of the day and an SSH key; the policy requires no action for either",
    );
    let mut config = base.next("rendered-worker-b");
    config.set("/etc/motd", 0o644, &motd("b"));
    config.keys(&["ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIExample admin@example"]);
    let boots = node.boots();
    let untouched = inode(node, "/etc/chrony.conf");
    ask(node, &config, None)?;
    node.until(show, done(config.name())).await?;
    same(show, node, "/etc/motd", &motd("b"));
    let keys = node.read("/var/home/core/.ssh/authorized_keys.d/ignition");
    show.check("core has the key", keys.ends_with("admin@example\n"), &keys);
    let same_inode = inode(node, "/etc/chrony.conf") == untouched;
    show.check("a file that did not change was not written", same_inode, "another inode or time");
    show.check("no reboot", node.boots() == boots, &node.boots().to_string());
    Ok(config)
}

async fn with_reboot(node: &mut Node, show: &mut Show, base: &Config) -> Result<Config, SandboxError> {
    show.scene("A file change with reboot", "a sysctl file that no policy covers, and a kernel argument");
    let mut config = base.next("rendered-worker-c");
    config.set("/etc/sysctl.d/90-net.conf", 0o644, "net.core.somaxconn = 4096\n");
    config.karg("mitigations=auto");
    let (boots, boot) = (node.boots(), node.booted()?.id().clone());
    let old = deployment(node.booted()?);
    ask(node, &config, None)?;
    node.until(show, done(config.name())).await?;
    same(show, node, "/etc/sysctl.d/90-net.conf", "net.core.somaxconn = 4096\n");
    same(show, node, "/etc/motd", &motd("b"));
    let kargs = node.booted()?.kargs().to_owned();
    show.check(
        "the boot entry has the argument",
        kargs.split(' ').any(|karg| karg == "mitigations=auto"),
        &kargs,
    );
    show.check("one reboot", node.boots() == boots + 1, &format!("{} boots", node.boots()));
    show.check("another boot id", *node.booted()?.id() != boot, boot.as_str());
    show.check("the same image", deployment(node.booted()?) == old, &deployment(node.booted()?));
    Ok(config)
}

async fn image_switch(
    node: &mut Node,
    show: &mut Show,
    base: &Config,
) -> Result<(Config, ImageRef), SandboxError> {
    show.scene("An image switch that skips files and units", "image v2 carries rendered-worker-d: settings and a unit in /etc; the config also has a file in /var, and the agent had changed /etc/chrony.conf here");
    let mut config = base.next("rendered-worker-d");
    config.set("/etc/app/settings.conf", 0o644, APP_SETTINGS);
    config.set("/etc/chrony.conf", 0o644, "pool time.example iburst maxsources 4\n");
    config.set("/var/lib/app/seed", 0o600, "42\n");
    config.unit("app.service", None, APP_UNIT);
    let layer = |path: &str, contents: &str| LayerFile {
        path: path.to_owned(),
        mode: 0o644,
        contents: contents.as_bytes().to_vec(),
    };
    let files = [
        layer("etc/app/settings.conf", APP_SETTINGS),
        layer("etc/chrony.conf", "pool time.example iburst maxsources 4\n"),
        layer("etc/systemd/system/app.service", APP_UNIT),
        layer(
            "usr/lib/os-release",
            "NAME=Sandbox\nID=sandbox\nVERSION_ID=2\nPRETTY_NAME=\"Sandbox 2 (libostree)\"\n",
        ),
        layer("etc/machine-config-daemon/currentconfig", &config.text()),
    ];
    let labels = BTreeMap::from([("machineconfig".to_owned(), config.name().to_owned())]);
    let first = node.host().image("v1")?;
    let image = node.host().derive(&first, "v2", &files, &labels)?;
    let boots = node.boots();
    node.stop().await?;
    ask(node, &config, Some(&image))?;
    let plan = plan(node).await?;
    let steps = steps(&plan);
    let named = |part: &str| steps.iter().any(|step| step.contains(part));
    let listed = format!("{steps:?}");
    show.check("the mode is image", text(&plan, "/mode") == "image", text(&plan, "/mode"));
    show.check("the plan stages the image", named("stage-os oci:"), &listed);
    let skipped = !named("/etc/app/settings.conf") && !named("app.service");
    show.check("the plan writes no file and no unit that the image carries", skipped, &listed);
    let local = named("write-file /var/lib/app/seed") && named("write-file /etc/chrony.conf");
    show.check("it writes what no image can carry: /var, and what was changed locally", local, &listed);
    node.start(None)?;
    node.until(show, done(config.name())).await?;
    same(show, node, "/etc/app/settings.conf", APP_SETTINGS);
    same(show, node, "/etc/systemd/system/app.service", APP_UNIT);
    same(show, node, "/etc/chrony.conf", "pool time.example iburst maxsources 4\n");
    same(show, node, "/var/lib/app/seed", "42\n");
    let release = node.read("/usr/lib/os-release");
    show.check("the new OS runs", release.contains("VERSION_ID=2"), &release);
    let current = node.report();
    let desired = image.to_string();
    show.check(
        "the report names the image by digest",
        text(&current, "/currentImage") == desired,
        text(&current, "/currentImage"),
    );
    let kargs = node.booted()?.kargs().to_owned();
    show.check("the kernel argument stayed", kargs.contains("mitigations=auto"), &kargs);
    show.check("one reboot", node.boots() == boots + 1, &format!("{} boots", node.boots()));
    Ok((config, image))
}

async fn drift(node: &mut Node, show: &mut Show) -> Played {
    show.scene("Drift", "somebody edits a managed file on the node");
    let edited = APP_SETTINGS.replace("workers = 4", "workers = 64");
    show.block("plan", "none: drift is reported, not repaired, and no update starts on top of it");
    node.write("/etc/app/settings.conf", &edited)?;
    node.until(show, faulted("ConfigDrift")).await?;
    let reason = node.report();
    let reason = text(&reason, "/reason");
    show.check("the reason names the file", reason.contains("/etc/app/settings.conf"), reason);
    let (code, output) = node.verb(&["verify", "--os-backend", "ostree"]).await?;
    show.block("verify", &output);
    let diff = output.contains("-workers = 4") && output.contains("+workers = 64");
    show.check("verify shows the line and exits with 1", code == 1 && diff, &output);
    same(show, node, "/etc/app/settings.conf", &edited);
    node.write("/etc/app/settings.conf", APP_SETTINGS)?;
    node.until(show, done("rendered-worker-d")).await?;
    show.check("restored manually, the node is Done automatically", true, "");
    Ok(())
}

/// Twelve files of one config, so that a kill can fall between two of them.
fn parts(config: &mut Config, version: &str) {
    for part in 0..12 {
        config.set(&format!("/etc/app/part-{part:02}.conf"), 0o644, &format!("version = {version}\n"));
    }
}

fn parts_of(node: &Node, version: &str) -> usize {
    let desired = format!("version = {version}\n");
    (0..12).filter(|part| node.read(&format!("/etc/app/part-{part:02}.conf")) == desired).count()
}

async fn crash(
    node: &mut Node,
    show: &mut Show,
    base: &Config,
    image: &ImageRef,
) -> Result<Config, SandboxError> {
    show.scene(
        "A crash in the middle",
        "twelve files change; the agent gets SIGKILL after it renamed the first of them",
    );
    let mut config = base.next("rendered-worker-e");
    parts(&mut config, "e");
    node.stop().await?;
    ask(node, &config, Some(image))?;
    if FailPoints::ARE_BUILT {
        die_between(node, show, &config).await?;
    } else {
        show.block("not killed", "this build has no fail points; `./sandbox` builds one that has");
    }
    node.start(None)?;
    node.until(show, done(config.name())).await?;
    let new = parts_of(node, "e");
    show.check("started again, it went on: all twelve are new", new == 12, &format!("{new} of 12"));
    let left = leftovers(node);
    show.check("no temporary file is left", left.is_empty(), &left.join(" "));
    Ok(config)
}

/// Has the agent die after the first of the files.
async fn die_between(node: &mut Node, show: &mut Show, config: &Config) -> Played {
    node.start(Some("kill:renamed"))?;
    let ended = node.until(show, done(config.name())).await?;
    show.check("the agent was killed", ended == AgentExit::Died(KILLED), &format!("{ended:?}"));
    let new = parts_of(node, "e");
    show.check(
        "the host is half-way: some files are new, not all",
        (1..12).contains(&new),
        &format!("{new} of 12"),
    );
    let (_, output) = node.verb(&["status", "--os-backend", "ostree"]).await?;
    show.block("status", &output);
    show.check("status shows that it was applying", output.contains("Applying"), &output);
    Ok(())
}

fn leftovers(node: &Node) -> Vec<String> {
    let Ok(app) = node.path("/etc/app") else { return Vec::new() };
    let names = std::fs::read_dir(app).map(|entries| {
        entries.filter_map(Result::ok).map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
    });
    let names: Vec<String> = names.unwrap_or_default();
    names.into_iter().filter(|name| name.starts_with('.')).collect()
}

async fn refuse(node: &mut Node, show: &mut Show, base: &Config, image: &ImageRef) -> Played {
    show.scene(
        "A bad config is refused before anything is touched, a corrected one recovers the node",
        "the files change, and a template unit is enabled without an instance: systemd can't do that",
    );
    let mut bad = base.next("rendered-worker-f");
    parts(&mut bad, "f");
    bad.unit("report@.service", Some(true), APP_UNIT);
    ask(node, &bad, Some(image))?;
    node.until(show, |report| {
        text(report, "/state") == "Unreconcilable"
            && text(report, "/desiredConfig") == "rendered-worker-f"
            && text(report, "/phase") == "Idle"
            && !text(report, "/fault/reason").is_empty()
    })
    .await?;
    let report = node.report();
    show.block("reason", text(&report, "/reason"));
    show.check("no file was written", parts_of(node, "e") == 12, &format!("{} of 12", parts_of(node, "e")));
    let unit = node.path("/etc/systemd/system/report@.service")?.exists();
    show.check("no unit file was written", !unit, "it is there");
    show.check(
        "the committed config is the old one",
        text(&report, "/currentConfig") == base.name(),
        text(&report, "/currentConfig"),
    );
    let mut good = base.next("rendered-worker-g");
    parts(&mut good, "g");
    ask(node, &good, Some(image))?;
    node.until(show, done(good.name())).await?;
    show.check(
        "the corrected config is there",
        parts_of(node, "g") == 12,
        &format!("{} of 12", parts_of(node, "g")),
    );
    let (code, output) = node.verb(&["verify", "--os-backend", "ostree"]).await?;
    show.check("verify finds no difference", code == 0, &output);
    let (_, output) = node.verb(&["history"]).await?;
    show.block("history", &output);
    let is_complete = output.matches("committed").count() >= 4;
    show.check("history shows all updates", is_complete, &output);
    Ok(())
}
