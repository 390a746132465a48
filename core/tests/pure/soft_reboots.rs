//! Soft reboots in a plan, and updates after a soft reboot.

use machine_config_core::model::observation::{EmbeddedConfig, ObservedOs, Staged};
use machine_config_core::model::soft_reboot::{Requirement, SoftRebootFacts};
use machine_config_core::model::{DisruptionPolicy, Facts, ImageRef, Observation, Timestamp};
use machine_config_core::plan::{Plan, explain, plan};
use machine_config_core::update::resume::{REBOOT_TRIES, can_take_back};
use machine_config_core::update::{Decision, Transition};
use serde_json::{Value, json};

use crate::model_host::{ModelHost, image};
use crate::os_layers::spec;
use crate::resume_table::{ask, boot, observation, reboot, record};
use crate::update_fixtures::{NEW, OLD, UpdateFixture};

/// Soft reboots from the steps and the host beforehand; the kernel of another image is known only once it is there.
#[test]
fn plan_shows_soft_reboot() {
    let on = |name: &str, letter, more: Value| {
        let mut sections = json!({"osImageURL": image(letter).to_string()});
        sections.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        spec(name, sections)
    };
    let from = on("rendered-a", 'a', json!({}));
    let host = SoftRebootFacts::default();
    let host = [Requirement::Systemd, Requirement::Libostree, Requirement::Composefs, Requirement::Stateroot]
        .into_iter()
        .fold(host, |host, requirement| host.with(requirement, true));
    let file = json!({"files": [{"path": "/etc/a", "contents": {"source": "data:,a"}}]});
    let old = host.clone().with(Requirement::Libostree, false);
    let open =
        "if the new deployment has the same kernel and initramfs and the same SELinux policy; else reboot";
    let other = on("rendered-b", 'b', json!({}));
    let with_kargs = on("rendered-b", 'b', json!({"kernelArguments": ["nosmt"]}));
    let realtime = on("rendered-b", 'a', json!({"kernelType": "realtime"}));
    for (to, host, kind, words, possible) in [
        (&other, Some(host.clone()), "soft reboot", open, "open"),
        (
            &other,
            Some(host.clone().with(Requirement::Kernel, true).with(Requirement::Policy, true)),
            "soft reboot",
            "",
            "yes",
        ),
        (&other, Some(old), "reboot", "not a soft one: libostree is older than 2025.3", "no"),
        (&with_kargs, Some(host.clone()), "reboot", "not a soft one: kernel arguments change", "no"),
        (
            &realtime,
            Some(host.clone()),
            "reboot",
            "not a soft one: the kernel or the initramfs changes",
            "no",
        ),
        (&on("rendered-b", 'a', file), Some(host), "reboot", "not a soft one: no new deployment boots", "no"),
        (&other, None, "reboot", "", ""),
    ] {
        let model = ModelHost::holding(&from);
        let facts = Facts { soft_reboot: host, ..model.facts(&from, to, EmbeddedConfig::Unknown) };
        let plan = plan(&from, to, &facts, &DisruptionPolicy::defaults()).unwrap();
        let text = explain::text(&plan);
        let line = text.lines().position(|line| line.starts_with("After")).unwrap();
        let lines: Vec<&str> = text.lines().skip(line).take(2).collect();
        assert!(lines[0].starts_with(&format!("After  {kind}, because of ")), "{text}");
        assert!(lines[1].trim_start().starts_with(words), "{text}");
        let json =
            serde_json::to_value(explain::json(Ok(&plan), None, &to.target(), &explain::Beside::default()))
                .unwrap();
        assert_eq!(json["after"]["softReboot"]["possible"].as_str().unwrap_or_default(), possible, "{json}");
        let read: Plan = serde_json::from_value(serde_json::to_value(&plan).unwrap()).unwrap();
        assert_eq!(read, plan);
    }
}

/// A soft reboot into the old user space has finalized the new deployment all the same: a whole reboot brings it up, nothing is
/// staged again, and the tries are bounded. One that finalized nothing is any other boot into the old deployment.
#[test]
fn soft_reboot_into_old_root_is_followed_by_whole_one() {
    let made = UpdateFixture::with_image();
    let mut rebooting = record(&made, &[Transition::Stage, Transition::Apply { first: 1 }, reboot()]);
    let new = made.to.target();
    let mut back = observation(&made, "boot-1-soft-1", OLD, "origin");
    assert_eq!(ask(&rebooting, &back, &new), Decision::Inquire, "nothing boots next");
    let ObservedOs::Deployments { next, .. } = &mut back.os else { panic!() };
    let image = Some(ImageRef::parse(NEW).unwrap());
    *next = Some(Staged { image, deployment: "new".to_owned(), kargs: Vec::new() });
    for _ in 0..REBOOT_TRIES - 1 {
        assert_eq!(ask(&rebooting, &back, &new), Decision::Reboot);
        assert_eq!(ask(&rebooting, &back, &UpdateFixture::other()), Decision::Reboot, "it ends first");
        rebooting.reboots += 1;
    }
    let Decision::Fault(fault) = ask(&rebooting, &back, &new) else { panic!("no fault") };
    assert_eq!(fault.reason, "RebootDidNotHappen");
    let whole = Observation { boot_id: boot("boot-2"), ..back };
    assert_eq!(ask(&rebooting, &whole, &new), Decision::Inquire, "it was another kernel's boot");
    assert_eq!(ask(&rebooting, &observation(&made, "boot-1-soft-1", NEW, "new"), &new), Decision::Verify);
}

/// libostree takes what was prepared for what runs. Where the old user space came up again, that is not so: nothing is verified
/// there, and a whole reboot follows.
#[test]
fn old_root_is_not_taken_for_new_one() {
    let made = UpdateFixture::with_image();
    let rebooting = record(&made, &[Transition::Stage, Transition::Apply { first: 1 }, reboot()]);
    let claimed = observation(&made, "boot-1-soft-1", NEW, "new");
    let new = made.to.target();
    let right = Observation { os: claimed.os.clone().in_deployment("new".to_owned()), ..claimed.clone() };
    assert_eq!((&right, ask(&rebooting, &right, &new)), (&claimed, Decision::Verify));
    let old = Observation { os: claimed.os.clone().in_deployment("origin".to_owned()), ..claimed };
    assert_eq!(ask(&rebooting, &old, &new), Decision::Reboot);
}

/// A manual soft reboot is a boot like any other: a staged deployment is gone with it, or runs.
#[test]
fn manual_soft_reboot_counts_as_boot() {
    let made = UpdateFixture::with_image();
    let mut all = record(&made, &[Transition::Stage, Transition::Apply { first: 1 }]);
    let new = made.to.target();
    assert_eq!(ask(&all, &observation(&made, "boot-1-soft-1", OLD, "origin"), &new), Decision::Restage);
    while all.under_way().is_some() {
        all = all.moved(&Transition::BatchDone, Timestamp::default()).unwrap();
    }
    assert_eq!(ask(&all, &observation(&made, "boot-1-soft-1", NEW, "new"), &new), Decision::Verify);
}

/// A systemd that does not count soft reboots: the booted deployment says that it happened. One that brought nothing up is
/// requested again, as a whole.
#[test]
fn soft_reboot_shows_in_booted_deployment() {
    let made = UpdateFixture::with_image();
    let rebooting = record(&made, &[Transition::Stage, Transition::Apply { first: 1 }, reboot()]);
    let new = made.to.target();
    let there = observation(&made, "boot-1", NEW, "new");
    assert_eq!(ask(&rebooting, &there, &new), Decision::Verify);
    assert_eq!(ask(&rebooting, &there, &UpdateFixture::other()), Decision::Verify);
    assert!(!can_take_back(&rebooting, &there), "nothing is undone under the new OS");
    assert_eq!(ask(&rebooting, &observation(&made, "boot-1", OLD, "origin"), &new), Decision::Reboot);
}
