//! `stateroot activate`, `roll-back` and what a boot does with them, on a real sysroot, as `tests/os/stateroot.rs`.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::backend_env::{Lab, Machine};
use crate::logind::{Comes, Logind};
use crate::stateroot::{NAME, Ran, SeedFiles, nothing_left, running, stateroot, unchanged};

const REBOOT: i32 = 133;
const UNIT: &str = "etc/systemd/system/machine-config-agent-stateroot.service";
const LINK: &str = "etc/systemd/system/multi-user.target.wants/machine-config-agent-stateroot.service";
const CHECK: &str = "etc/machine-config-agent/health.d/10-app";
const ACTIVATE: [&str; 5] = ["activate", NAME, "--yes", "--reboot-by", "supervisor"];
const BACK: [&str; 4] = ["roll-back", "--yes", "--reboot-by", "supervisor"];
pub const TRIAL: [&str; 3] = ["trial", "--reboot-by", "supervisor"];

/// A host whose system takes over after a return.
pub fn lab() -> Lab {
    let lab = crate::stateroot::lab();
    let old = old_system(&lab);
    fs::create_dir_all(old.join(LINK).parent().unwrap()).unwrap();
    fs::write(old.join(UNIT), "[Unit]\n").unwrap();
    std::os::unix::fs::symlink(Path::new("/").join(UNIT), old.join(LINK)).unwrap();
    lab
}

/// The directory of the old system's only deployment.
fn old_system(lab: &Lab) -> PathBuf {
    let deployments = fs::read_dir(lab.world.dir().join("sysroot/ostree/deploy/sandbox/deploy")).unwrap();
    let mut paths = deployments.map(|entry| entry.unwrap().path());
    paths.find(|path| path.is_dir()).unwrap()
}

/// A seed with what proves it; `ill` has a health check that can't run.
pub fn prepared_seed(lab: &Lab, ill: bool) -> String {
    seed_and_commit(lab, ill).0
}

fn seed_and_commit(lab: &Lab, ill: bool) -> (String, String) {
    let seed = SeedFiles::new(lab, false);
    seed.members();
    seed.put(UNIT, "[Unit]\n");
    if ill {
        let check = seed.put(CHECK, "no program\n");
        fs::set_permissions(check, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let etc = seed.tar("trees", "etc");
    let members: BTreeMap<_, _> = seed.members().into_iter().chain([("etc.tgz".to_owned(), etc)]).collect();
    (seed.image(lab, &members), seed.commit.clone())
}

/// Prepares it; returns its deployment.
fn prepared(lab: &Lab, boot: &Machine, ill: bool) -> String {
    let (image, commit) = seed_and_commit(lab, ill);
    let ran = stateroot(boot, &["prepare", &image, "--version", "4.17.2"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    format!("{NAME}-{commit}.0")
}

/// The files of the old system alone: what boots next is another question.
fn files(lab: &Lab) -> Vec<BTreeMap<String, String>> {
    let mut all = running(lab);
    all.pop();
    all
}

pub fn is_in(boot: &Machine, name: &str) -> bool {
    boot.root().to_str().unwrap().contains(&format!("ostree/deploy/{name}/deploy/"))
}

fn old_state(lab: &Lab, name: &str) -> PathBuf {
    lab.world.dir().join("sysroot/ostree/deploy/sandbox/var/lib/machine-config-agent").join(name)
}

fn trial(lab: &Lab) -> Value {
    let path = format!("sysroot/ostree/deploy/{NAME}/var/lib/machine-config-agent/stateroot-trial.json");
    serde_json::from_slice(&fs::read(lab.world.dir().join(path)).unwrap()).unwrap()
}

/// Exchanges the versions of the two boot entries, by which a boot loader chooses.
fn swap_entries(lab: &Lab) {
    let entries = fs::read_dir(lab.world.dir().join("sysroot/boot/loader/entries")).unwrap();
    let paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    assert_eq!(paths.len(), 2);
    for path in paths {
        let text = fs::read_to_string(&path).unwrap();
        let other = |line: &str| match line {
            "version 1" => "version 2\n".to_owned(),
            "version 2" => "version 1\n".to_owned(),
            line => format!("{line}\n"),
        };
        fs::write(&path, text.lines().map(other).collect::<String>()).unwrap();
    }
}

fn expect(ran: &Ran, code: i32) {
    assert_eq!(ran.code, code, "{ran:?}");
}

/// LCA-010: activation changes the default entry and reboots into the new stateroot. LCA-011: the way back finds the old one
/// bit-identical.
#[test]
fn activation_leads_into_the_stateroot_and_back() {
    let lab = lab();
    let boot = lab.boot();
    let before = running(&lab);
    let deployment = prepared(&lab, &boot, false);
    let planned = stateroot(&boot, &["activate", NAME, "--plan", "--output", "json"]).json();
    let ops: Vec<&str> =
        planned["steps"].as_array().unwrap().iter().map(|step| step["op"].as_str().unwrap()).collect();
    assert_eq!(ops, ["arm-trial", "set-default", "request-reboot"], "{planned:#}");
    assert_eq!(planned["trial"], json!({"within": 1800, "returns": true}));
    let unasked = stateroot(&boot, &["activate", NAME]);
    assert!(unasked.code == 2 && unasked.err.contains("--yes"), "{unasked:?}");
    unchanged(&lab, &before, "before it is confirmed");
    let ran = stateroot(&boot, &[&ACTIVATE[..], &["--output", "json"]].concat());
    expect(&ran, REBOOT);
    assert_eq!((&ran.json()["state"], &ran.json()["deployment"]), (&json!("rebooting"), &json!(deployment)));
    let old = files(&lab);
    assert_eq!(old, before[..before.len() - 1]);
    boot.shutdown();

    let second = lab.boot();
    assert!(is_in(&second, NAME));
    assert_eq!(stateroot(&second, &["activate", NAME, "--output", "json"]).json()["state"], "on-trial");
    expect(&stateroot(&second, &TRIAL), 0);
    assert_eq!(trial(&lab)["phase"]["name"], "passed");
    let shown = stateroot(&second, &["activate", NAME, "--output", "json"]);
    assert!(shown.code == 0 && shown.json()["state"] == "active", "{shown:?}");
    let ran = stateroot(&second, &["remove", "sandbox", "--yes"]);
    expect(&ran, 0);
}

/// The way back by a person, which leaves the old system as it was.
#[test]
fn roll_back_finds_the_old_system_as_it_was() {
    let lab = lab();
    let boot = lab.boot();
    let before = running(&lab);
    prepared(&lab, &boot, false);
    // Before the reboot it is a change of mind.
    expect(&stateroot(&boot, &ACTIVATE), REBOOT);
    let undone = stateroot(&boot, &BACK);
    expect(&undone, 0);
    unchanged(&lab, &before, "after a change of mind");
    let left = stateroot(&boot, &["activate", NAME, "--yes", "--no-reboot"]);
    assert!(left.code == 0 && left.out.contains("systemctl reboot"), "{left:?}");
    expect(&stateroot(&boot, &BACK), 0);
    unchanged(&lab, &before, "after another one");
    expect(&stateroot(&boot, &ACTIVATE), REBOOT);
    boot.shutdown();
    let second = lab.boot();
    expect(&stateroot(&second, &TRIAL), 0);
    expect(&stateroot(&second, &BACK), REBOOT);
    second.shutdown();
    let third = lab.boot();
    assert!(is_in(&third, "sandbox") && old_state(&lab, "stateroot.json").exists());
    unchanged(&lab, &before, "after the way back");
    expect(&stateroot(&third, &TRIAL), 0);
    assert!(
        !old_state(&lab, "stateroot.json").exists() && !old_state(&lab, "stateroot-return.json").exists()
    );
    unchanged(&lab, &before, "after the boot's own work");
    expect(&stateroot(&third, &["remove", NAME, "--yes"]), 0);
    nothing_left(&lab);
}

/// A way back leads to a system that has run: one that has not would boot without a trial, as after a power cut early in its activation.
#[test]
fn stateroot_that_never_ran_is_no_way_back() {
    let lab = lab();
    let boot = lab.boot();
    let deployment = prepared(&lab, &boot, false);
    let deployment = deployment.strip_prefix(&format!("{NAME}-")).unwrap();
    let id = format!("sysroot/ostree/deploy/{NAME}/deploy/{deployment}/etc/machine-id");
    fs::write(lab.world.dir().join(id), "uninitialized\n").unwrap();
    let before = running(&lab);
    let refused = stateroot(&boot, &BACK);
    assert!(refused.code == 2 && refused.err.contains(&format!("stateroot activate {NAME}")), "{refused:?}");
    unchanged(&lab, &before, "after a refusal");
    expect(&stateroot(&boot, &[&BACK[..], &["--to", NAME]].concat()), REBOOT);
}

/// LCA-013: a system that does not prove itself in time is left by itself, unless opted out.
#[test]
fn failed_trial_returns_to_the_old_stateroot() {
    let lab = lab();
    let boot = lab.boot();
    let before = running(&lab);
    prepared(&lab, &boot, true);
    expect(&stateroot(&boot, &[&ACTIVATE[..], &["--within", "1"]].concat()), REBOOT);
    boot.power_cut();
    let second = lab.boot();
    assert!(is_in(&second, NAME));
    expect(&stateroot(&second, &TRIAL), REBOOT);
    second.power_cut();
    let third = lab.boot();
    assert!(is_in(&third, "sandbox"));
    expect(&stateroot(&third, &TRIAL), 0);
    unchanged(&lab, &before, "after the return");
    let told = stateroot(&third, &["list", "--output", "json"]).json();
    assert_eq!(told["returned"]["fault"]["reason"], "HealthCheckFailed", "{told:#}");
    assert!(told["returned"]["fault"]["message"].as_str().unwrap().contains("10-app"), "{told:#}");

    expect(&stateroot(&third, &[&ACTIVATE[..], &["--within", "1", "--no-return"]].concat()), REBOOT);
    third.shutdown();
    let fourth = lab.boot();
    expect(&stateroot(&fourth, &TRIAL), 0);
    assert_eq!(stateroot(&fourth, &["activate", NAME, "--output", "json"]).json()["state"], "failed");
    expect(&stateroot(&fourth, &BACK), REBOOT);
}

/// A way back whose shutdown is taken back is requested again: nobody else does.
#[test]
fn reboot_in_vain_of_the_way_back_is_requested_again() {
    if !rustix::process::geteuid().is_root() {
        crate::ran::not_run("reboot_in_vain_of_the_way_back_is_requested_again", "root");
        return;
    }
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let lab = lab();
    let boot = lab.boot();
    prepared(&lab, &boot, true);
    expect(&stateroot(&boot, &[&ACTIVATE[..], &["--within", "1"]].concat()), REBOOT);
    boot.power_cut();
    let second = lab.boot();
    let root = second.run_dir().parent().unwrap().to_owned();
    let mut logind = runtime.block_on(Logind::start(&root, Vec::new(), vec![Comes::TakenBack]));
    let mut child = second.agent(&["stateroot", "trial", "--reboot-by", "logind"]).spawn().unwrap();
    runtime.block_on(logind.requested_times(2));
    assert!(child.try_wait().unwrap().is_none(), "it waits for the end of the boot");
    child.kill().unwrap();
    child.wait().unwrap();
    drop(logind);
    second.power_cut();
    assert!(is_in(&lab.boot(), "sandbox"));
}

/// The boot loader boots the old system, since the new one does not come up.
#[test]
fn boot_of_the_old_system_ends_an_activation() {
    let lab = lab();
    let boot = lab.boot();
    let before = running(&lab);
    prepared(&lab, &boot, false);
    expect(&stateroot(&boot, &ACTIVATE), REBOOT);
    boot.power_cut();
    // As a boot loader that counts: the second entry of its menu.
    swap_entries(&lab);
    let back = lab.boot();
    swap_entries(&lab);
    assert!(is_in(&back, "sandbox"));
    expect(&stateroot(&back, &TRIAL), 0);
    unchanged(&lab, &before, "after the boot loader went back");
    let told = stateroot(&back, &["list", "--output", "json"]).json();
    assert_eq!(told["returned"]["fault"]["reason"], "BootFailed", "{told:#}");
}

/// What a power cut left open is told with the way on and the way back, and is told no more when it is undone.
#[test]
fn activation_cut_short_is_told_with_its_next_step() {
    let lab = lab();
    let boot = lab.boot();
    prepared(&lab, &boot, false);
    let open = |boot: &Machine| stateroot(boot, &["list", "--output", "json"]).json().get("open").cloned();
    assert_eq!(open(&boot), None);
    let mut activation = boot.agent(&[&["stateroot"], &ACTIVATE[..]].concat());
    let killed = activation.env("MCA_FAIL_POINT", "kill:stateroot-ran").status().unwrap();
    assert_eq!(killed.code(), Some(128 + 9));
    boot.power_cut();
    let second = lab.boot();
    expect(&stateroot(&second, &TRIAL), 0);
    let told = open(&second).unwrap();
    assert_eq!((&told["work"], &told["step"]), (&json!("activate"), &json!("arm-trial")), "{told:#}");
    let next = told["next"].as_str().unwrap();
    for command in [format!("stateroot activate {NAME} --yes"), format!("stateroot remove {NAME} --yes")] {
        assert!(next.contains(&command), "{next}");
    }
    let status = second.agent(&["status", "--os-backend", "none"]).output().unwrap();
    let text = String::from_utf8(status.stdout).unwrap();
    assert!(text.contains(&format!("work     activate {NAME}")) && text.contains(next), "{text}");
    expect(&stateroot(&second, &["remove", NAME, "--yes"]), 0);
    assert_eq!(open(&second), None);
}

#[test]
fn activation_is_refused_where_it_would_not_hold() {
    let lab = lab();
    let boot = lab.boot();
    let seed = SeedFiles::new(&lab, false);
    let refused = |ran: &Ran, words: &str| {
        assert!(ran.code == 4 && ran.err.contains(words) && ran.err.contains("Next: "), "{words}: {ran:?}");
    };
    refused(&stateroot(&boot, &ACTIVATE), "there is no stateroot");
    let image = seed.image(&lab, &seed.members());
    // A file system of its own at /var.
    let prepare = format!(
        "mount --bind /tmp /var && exec machine-config-agent stateroot prepare {image} --version 4.17.2"
    );
    let output = boot
        .command(["/run/host/usr/bin/bash", "-c", &format!("PATH=/run/host/usr/bin:$PATH; {prepare}")])
        .output()
        .unwrap();
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.code() == Some(4) && err.contains("/var: it is a separate file system"),
        "{output:?}"
    );
    nothing_left(&lab);
    // Nothing would prove it.
    expect(&stateroot(&boot, &["prepare", &image, "--version", "4.17.2"]), 0);
    let before = running(&lab);
    refused(&stateroot(&boot, &ACTIVATE), "has no machine-config-agent-stateroot.service");
    unchanged(&lab, &before, "after a refusal");
    assert!(!old_state(&lab, "stateroot.json").exists());
    expect(&stateroot(&boot, &["remove", NAME, "--yes"]), 0);
    prepared(&lab, &boot, false);
    // Nothing would take over after a return.
    let link = old_system(&lab).join(LINK);
    let target = fs::read_link(&link).unwrap();
    fs::remove_file(&link).unwrap();
    refused(&stateroot(&boot, &ACTIVATE), "does not start machine-config-agent-stateroot.service");
    assert!(!old_state(&lab, "stateroot.json").exists());
    std::os::unix::fs::symlink(target, &link).unwrap();
    let config = r#"{"apiVersion":"machineconfiguration.openshift.io/v1","kind":"MachineConfig",
        "metadata":{"name":"staged"},"spec":{"config":{"ignition":{"version":"3.4.0"}},"kernelArguments":["staged=1"]}}"#;
    fs::write(boot.run_dir().join("staged.json"), config).unwrap();
    let apply = ["apply", "--to", "/run/staged.json", "--no-reboot", "--yes", "--os-backend", "ostree"];
    assert!(boot.agent(&apply).output().unwrap().status.success());
    let under_way = stateroot(&boot, &ACTIVATE);
    assert!(under_way.code == 2 && under_way.err.contains("is under way"), "{under_way:?}");
    // What somebody else has staged is seen, too.
    fs::remove_file(old_state(&lab, "record.json")).unwrap();
    refused(&stateroot(&boot, &ACTIVATE), "is staged, and would boot instead");
    assert!(boot.run_dir().join("ostree/staged-deployment").exists(), "it stays staged");
}

/// LCA-012, LCA-013: killed, or without power, wherever it could stop, the next boot is of a system that is whole, and the same
/// command brings it to its end.
#[test]
fn activation_recovers_from_kill_at_every_fail_point() {
    let lab = lab();
    let mut boot = lab.boot();
    let before = running(&lab);
    prepared(&lab, &boot, false);
    let mut points = 0;
    for (there, start, end, back) in
        [(&ACTIVATE[..], "sandbox", NAME, &BACK[..]), (&BACK, NAME, "sandbox", &ACTIVATE)]
    {
        for point in 1.. {
            let is_killed = killed(&boot, there, point);
            assert_eq!(files(&lab), before[..before.len() - 1], "{there:?} killed at {point}");
            if is_killed && point % 2 == 1 {
                // The same again comes to its end, and is taken back before the reboot.
                expect(&stateroot(&boot, there), REBOOT);
                expect(&stateroot(&boot, &["activate", start, "--yes"]), 0);
                continue;
            }
            if is_killed {
                boot.power_cut();
                boot = lab.boot();
            }
            if !is_in(&boot, end) {
                if is_killed {
                    expect(&stateroot(&boot, there), REBOOT);
                }
                boot.shutdown();
                boot = lab.boot();
            }
            assert!(is_in(&boot, end), "{there:?} killed at {point}");
            // So is what the boot does itself.
            killed(&boot, &TRIAL, point);
            expect(&stateroot(&boot, &TRIAL), 0);
            if !is_killed {
                points += point;
                break;
            }
            expect(&stateroot(&boot, back), REBOOT);
            boot.shutdown();
            boot = lab.boot();
            expect(&stateroot(&boot, &TRIAL), 0);
        }
    }
    unchanged(&lab, &before, "at the end");
    assert!(points > 10, "{points}");
}

/// LCA-013: so does the return from a system that is not well.
#[test]
fn return_recovers_from_kill_at_every_fail_point() {
    let lab = lab();
    let mut boot = lab.boot();
    let before = running(&lab);
    prepared(&lab, &boot, true);
    for point in 1.. {
        expect(&stateroot(&boot, &[&ACTIVATE[..], &["--within", "1"]].concat()), REBOOT);
        boot.shutdown();
        boot = lab.boot();
        let is_killed = killed(&boot, &TRIAL, point);
        if is_killed && point % 2 == 0 {
            boot.power_cut();
            boot = lab.boot();
        }
        if is_killed && is_in(&boot, NAME) {
            expect(&stateroot(&boot, &TRIAL), REBOOT);
        }
        if is_in(&boot, NAME) {
            boot.power_cut();
            boot = lab.boot();
        }
        assert!(is_in(&boot, "sandbox"), "killed at {point}");
        expect(&stateroot(&boot, &TRIAL), 0);
        unchanged(&lab, &before, &format!("killed at {point}"));
        let told = stateroot(&boot, &["list", "--output", "json"]).json();
        assert_eq!(told["returned"]["fault"]["reason"], "HealthCheckFailed", "{point}: {told:#}");
        if !is_killed {
            assert!(point > 4, "{point}");
            break;
        }
    }
}

/// Runs a verb that dies at a point; returns false when it came to its end before.
fn killed(boot: &Machine, args: &[&str], point: u32) -> bool {
    let mut run = boot.agent(&[&["stateroot"], args].concat());
    let output = run.env("MCA_FAIL_POINT", format!("kill:{point}")).output().unwrap();
    let code = output.status.code().unwrap();
    assert!([0, REBOOT, 128 + 9].contains(&code), "{args:?}: {output:?}");
    code == 128 + 9
}
