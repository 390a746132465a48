//! Updates that are given up at each of their fail points, on a host that boots deployments: what runs after the next boot is where the
//! next update starts.

use serde_json::{Value, json};

use crate::sandbox_node::{Played, config};

/// Name, kernel arguments and files.
type Config = (&'static str, &'static [&'static str], &'static [(&'static str, &'static str)]);

const CONFIGS: [Config; 4] = [
    ("rendered-a", &["mca.a=1"], &[("/etc/mca-x", "a")]),
    ("rendered-b", &["mca.b=1", "mca.b=2"], &[("/etc/mca-x", "b"), ("/etc/mca-y", "b")]),
    ("rendered-c", &["mca.c=1"], &[("/etc/mca-z", "c")]),
    // The same, edited.
    ("rendered-b", &["mca.b=2", "mca.d=1"], &[("/etc/mca-y", "d")]),
];

/// More fail points than an update has.
const MOST_POINTS: usize = 200;

fn document(index: usize) -> String {
    let (name, kargs, files) = CONFIGS[index];
    let mut document: Value = serde_json::from_str(&config(name, files, None)).unwrap();
    document["spec"]["kernelArguments"] = json!(kargs);
    document.to_string()
}

/// The host is as the config, and nothing of the others is left.
fn is_as(node: &mut Played, index: usize, what: &str) {
    let ended = node.apply(&document(index), None, |_| {});
    assert_eq!(ended.code, 0, "{what}: {}", ended.text);
    let (_, kargs, files) = CONFIGS[index];
    let line = node.booted.as_ref().unwrap().kargs();
    let ours: Vec<&str> = line.split(' ').filter(|word| word.starts_with("mca.")).collect();
    assert_eq!(ours, kargs, "{what}: {}", ended.text);
    for path in ["/etc/mca-x", "/etc/mca-y", "/etc/mca-z"] {
        let desired = files.iter().find(|(name, _)| *name == path).map(|(_, text)| (*text).to_owned());
        assert_eq!(node.read(path), desired, "{what}: {path}");
    }
    let verified = node.verb(&["verify", "--os-backend", "ostree"]);
    assert_eq!(verified.code, 0, "{what}: {}", verified.text);
}

/// The update to B is killed at each point, with and without a reboot after it; then the target is the old one, another one, or the
/// same edited.
#[test]
fn next_target_is_reached_from_update_that_was_given_up() {
    let mut node = Played::new();
    is_as(&mut node, 0, "the first config");
    let (mut point, mut booted_early) = (1, 0);
    loop {
        let next = [0, 2, 3][point % 3];
        let reboots = (point / 3) % 4 != 3;
        let what = format!(
            "killed at {point}, {}, then {}",
            if reboots { "rebooted" } else { "running" },
            CONFIGS[next].0
        );
        std::fs::write(node.world.control().join("to.json"), document(1)).unwrap();
        let path = format!("{}/to.json", machine_config_agent::sandbox::CONTROL);
        let words = ["apply", "--yes", "--to", &path, "--reboot-by", "supervisor", "--os-backend", "ostree"];
        let killed = node.verb_at(&words, &format!("kill:{point}"));
        if killed.code == 133 {
            break;
        }
        assert_eq!(killed.code, 137, "{what}: {}", killed.text);
        if reboots {
            node.reboot();
            booted_early += usize::from(node.booted.as_ref().unwrap().kargs().contains("mca.b=1"));
        }
        is_as(&mut node, next, &what);
        is_as(&mut node, 0, &format!("{what}, and back"));
        point += 1;
        assert!(point < MOST_POINTS, "it never ends");
    }
    assert!(point > 15 && booted_early > 3, "{point} points, {booted_early} times its deployment booted");
}
