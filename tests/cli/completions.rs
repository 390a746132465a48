//! What shells offer after the words of a line.

use crate::shells::{completed, parses};
use crate::test_host::Node;

/// Rows: a line up to the cursor, and all that bash offers there, or `+` and some of it.
const LINES: &[(&str, &str)] = &[
    ("col", "collect"),
    ("", "+ daemon plan verify status man"),
    ("--ver", "--version"),
    ("verify --o", "--os-backend --originals --output"),
    ("verify ", "+ --config --root -o"),
    ("verify --output ", "text json"),
    ("verify --output j", "json"),
    ("verify --output=", "text json"),
    ("verify --output=j", "json"),
    ("verify -o ", "text json"),
    ("verify --os-backend r", "rpm-ostree"),
    ("verify --config ", "b.json dir current target"),
    ("verify --config t", "target"),
    ("verify --config dir/", "dir/c.json"),
    ("verify --config=dir/c", "dir/c.json"),
    ("verify --root ", "dir"),
    ("plan --from c", "current"),
    ("plan --to d", "dir desired"),
    ("plan --to-image registry.example/os@sha256:00 --exit", "--exit-code"),
    ("plan --to-image registry.example/os@sha256:00", ""),
    ("plan --from-image status --o", "--os-backend --output"),
    ("start --dr", "--drain"),
    ("daemon --drain ", "controller self"),
    ("daemon --node-name ", ""),
    ("status --w", "--watch"),
    ("history --output ", "text json"),
    ("collect --file b", "b.json"),
    ("completions ", "bash elvish fish powershell zsh"),
    ("completions z", "zsh"),
    ("man --dir", "--directory"),
    ("man ver", "verify"),
];

/// Rows of nested verbs, which are there with the libostree backend.
const NESTED: &[(&str, &str)] = &[
    ("stateroot ", "list inspect prepare activate roll-back trial remove"),
    ("stateroot r", "roll-back remove"),
    ("stateroot roll-back --", "--to --no-reboot --plan --yes --reboot-by --output --help"),
    ("stateroot roll-back --to ", "rhcos_4.17 rhcos_4.18"),
    ("stateroot activate ", "rhcos_4.17 rhcos_4.18"),
    ("stateroot activate rhcos_4.18 --w", "--within"),
    ("stateroot remove --yes rhcos_4.17", "rhcos_4.17"),
    ("stateroot prepare --keep-karg ", "root rw ip"),
    ("stateroot prepare --keep-karg i", "ip"),
    ("seed create --form ", "classic bootc"),
    ("seed create --include d", "dir"),
    ("seed containerfile --config d", "dir"),
    ("man stateroot a", "activate"),
    ("man stateroot list ", ""),
];

#[test]
fn bash_completes_verbs_flags_values_and_names_of_host() {
    let node = Node::new();
    for name in ["here/b.json", "here/dir/c.json", "deploy/rhcos_4.17/a", "deploy/rhcos_4.18/a"] {
        node.put(name, "");
    }
    node.put("cmdline", "root=UUID=1 rw ip=dhcp\n");
    let script = node.run(&["completions", "bash"]).out;
    let script = script.replace("/ostree/deploy", node.path("deploy").to_str().unwrap());
    let script = script.replace("/proc/cmdline", node.path("cmdline").to_str().unwrap());
    let nested = if cfg!(feature = "backend-ostree") { NESTED } else { &[] };
    for (line, expected) in LINES.iter().chain(nested) {
        let found = completed(&script, &node.path("here"), &format!("machine-config-agent {line}"));
        let (some, expected) = expected.strip_prefix("+ ").map_or((false, *expected), |words| (true, words));
        let expected: Vec<&str> = expected.split_whitespace().collect();
        if some {
            assert!(expected.iter().all(|word| found.iter().any(|one| one == word)), "{line}: {found:?}");
        } else {
            assert_eq!(found, expected, "{line}");
        }
    }
}

#[test]
fn other_shells_read_their_completions() {
    let node = Node::new();
    for shell in ["bash", "zsh", "fish"] {
        parses(shell, &node.run(&["completions", shell]).out, "completions of the agent");
    }
}
