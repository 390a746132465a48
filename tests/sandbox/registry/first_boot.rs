//! A first boot whose registry is away.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use super::server::{self, Registry};
use super::{node, pushed};
use crate::ran;
use crate::sandbox_node::config;
use machine_config_agent::sandbox::AGENT;

const FILE: &str = "/etc/ignition-machine-config-encapsulated.json";
const WORDS: [&str; 6] = [AGENT, "firstboot", "--os-backend", "ostree", "--reboot-by", "supervisor"];

/// BOOT-004: it does not end, so no dependent unit starts; each failed try is reported with its cause, and the registry's
/// return is all that it takes.
#[test]
fn first_boot_outlasts_registry_outage() {
    if !server::is_here() {
        ran::not_run("first_boot_outlasts_registry_outage", "docker-registry");
        return;
    }
    let mut registry = Registry::start(false);
    let mut node = node(&registry);
    let image = pushed(&node, &registry, "v2", "v2");
    node.write(FILE, &config("rendered-a", &[], Some(&image)));
    registry.stop();
    let mut command = node.booted.as_ref().unwrap().command(WORDS);
    let mut child =
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut text = String::new();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
    for _ in 0..2 {
        let failed =
            lines.by_ref().inspect(|line| text += line).find(|line| line.contains("ImagePullFailed"));
        assert!(failed.is_some_and(|line| line.contains(&registry.address)), "{text}");
    }
    assert_eq!(child.try_wait().unwrap(), None, "it ended: {text}");
    assert!(node.path(FILE).exists());
    registry.start_again();
    // Read to the end, so that it never waits for its reader.
    text.extend(lines);
    assert_eq!(child.wait().unwrap().code(), Some(133), "{text}");
    node.reboot();
    let ended = node.verb(&WORDS[1..]);
    assert_eq!((ended.code, node.boots), (0, 2), "{}", ended.text);
    assert_eq!(node.read("/usr/share/v2").as_deref(), Some("v2"));
    assert!(!node.path(FILE).exists());
}
