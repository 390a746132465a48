//! A first boot whose registry is away.

use std::fs::Permissions;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
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

/// A proxy's file that can't be used: its line or mode and the next step are in the log and in `status`, no pull goes past it, and
/// its correction is all that it takes.
#[test]
fn first_boot_waits_for_correction_of_proxy_file() {
    const PROXIES: &str = "/etc/mco/proxy.env";
    if !server::is_here() {
        ran::not_run("first_boot_waits_for_correction_of_proxy_file", "docker-registry");
        return;
    }
    let registry = Registry::start(false);
    let mut node = node(&registry);
    let image = pushed(&node, &registry, "v2", "v2");
    node.write(FILE, &config("rendered-a", &[], Some(&image)));
    std::fs::create_dir_all(node.path("/etc/mco")).unwrap();
    node.write(PROXIES, "NO_PROXY=.svc\nHTTPS_PROXY=http://user:geheim\u{7}@proxy.test:3128\n");
    let mut command = node.booted.as_ref().unwrap().command(WORDS);
    let mut child =
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut text = String::new();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
    let mut until = |words: [&str; 3]| {
        let is_said = |line: &String| words.iter().all(|word| line.contains(word));
        assert!(lines.by_ref().inspect(|line| text += line).any(|line| is_said(&line)), "{words:?}: {text}");
    };
    until(["ProxyFileUnusable", PROXIES, "line 2: the value of HTTPS_PROXY"]);
    let status = node.verb(&["status", "--os-backend", "ostree"]).text;
    for part in ["line 2: ", "Correct /etc/mco/proxy.env. The agent rereads it automatically."] {
        assert!(status.contains(part), "{status}");
    }
    std::fs::write(node.path("/etc/mco/next.env"), "").unwrap();
    std::fs::set_permissions(node.path("/etc/mco/next.env"), Permissions::from_mode(0o666)).unwrap();
    std::fs::rename(node.path("/etc/mco/next.env"), node.path(PROXIES)).unwrap();
    until(["ProxyFileUnusable", PROXIES, "can be written by others"]);
    assert_eq!(child.try_wait().unwrap(), None, "it ended: {text}");
    assert!(node.path(FILE).exists());
    std::fs::set_permissions(node.path(PROXIES), Permissions::from_mode(0o600)).unwrap();
    // Read to the end, so that it never waits for its reader.
    text.extend(lines);
    assert_eq!(child.wait().unwrap().code(), Some(133), "{text}");
    assert!(!text.contains("geheim"), "{text}");
    node.reboot();
    let ended = node.verb(&WORDS[1..]);
    assert_eq!((ended.code, node.boots), (0, 2), "{}", ended.text);
    assert_eq!(node.read("/usr/share/v2").as_deref(), Some("v2"));
}
