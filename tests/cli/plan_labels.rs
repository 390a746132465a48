//! New files get labels of the host's SELinux policy, which the worker program reads: where that is missing, `plan` says so.

use crate::test_host::{BINARY, Node, apply, config, files};

/// Runs the agent from a directory without its worker program.
fn alone(node: &Node, words: &[&str]) -> (i32, String) {
    let program = node.path("bin/machine-config-agent");
    if !program.exists() {
        std::fs::create_dir(node.path("bin")).unwrap();
        std::fs::copy(BINARY, &program).unwrap();
    }
    let mut command = std::process::Command::new(program);
    command.args(words).current_dir(node.dir.path()).env_clear().env("PATH", "/usr/sbin:/usr/bin");
    let output = command.output().unwrap();
    let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    (output.status.code().unwrap(), text)
}

fn plan(node: &Node, to: &str) -> (i32, String) {
    let host = ["--policy", "policy.json", "--root", "root", "--os-backend", "none"];
    alone(node, &[&["plan", "--to", to], &host[..]].concat())
}

#[test]
fn new_file_without_reader_of_policy_is_refused_before() {
    const SELINUX: &str = "/etc/selinux/config";
    let node = Node::new();
    let put = |name: &str, list: &[(&str, &str)]| {
        node.put(name, config(name.trim_end_matches(".json"), &files(list)));
    };
    put("rendered-a.json", &[(SELINUX, "SELINUX=permissive%0A"), ("/etc/new/a", "a")]);
    put("rendered-b.json", &[(SELINUX, "SELINUX=permissive%0A"), ("/etc/new/a", "b")]);
    put(
        "rendered-c.json",
        &[(SELINUX, "SELINUX=permissive%0A"), ("/etc/new/a", "b"), ("/etc/new/deep/c", "c")],
    );
    // A configuration file alone is no policy.
    for name in ["rendered-a.json", "rendered-b.json", "rendered-c.json"] {
        let (planned, applied) = (plan(&node, name), alone(&node, &apply(name)));
        assert_eq!((planned.0, applied.0), (0, 0), "{name}: {}{}", planned.1, applied.1);
    }
    node.put("root/etc/selinux/targeted/contexts/files/file_contexts", "/.* system_u:object_r:etc_t:s0\n");
    put("rendered-d.json", &[(SELINUX, "SELINUX=permissive%0A"), ("/etc/new/a", "d"), ("/etc/other", "d")]);
    for _ in 0..2 {
        let (planned, applied) = (plan(&node, "rendered-d.json"), alone(&node, &apply("rendered-d.json")));
        for (code, text) in [planned, applied] {
            let words = ["SELinux policy", "machine-config-agent-ostree"];
            assert!(code == 3 && words.iter().all(|word| text.contains(word)), "{code} {text}");
        }
    }
    // Without the policy there is nothing to read.
    std::fs::remove_dir_all(node.path("root/etc/selinux/targeted")).unwrap();
    let (planned, applied) = (plan(&node, "rendered-d.json"), alone(&node, &apply("rendered-d.json")));
    assert_eq!((planned.0, applied.0), (0, 0), "{}{}", planned.1, applied.1);
}
