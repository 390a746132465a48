//! The documents for administrators hold what the code holds: every fault word, every link, every verb.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a test may read files and stop at the first surprise"
)]

mod node;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

fn below(directory: &Path, suffix: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(below(&path, suffix));
        } else if path.to_str().unwrap().ends_with(suffix) {
            found.push(path);
        }
    }
    found
}

fn documents() -> Vec<PathBuf> {
    let mut documents = below(Path::new("docs"), ".md");
    documents.push("README.md".into());
    documents
}

/// What stands in quotes in a text.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('"').skip(1).step_by(2)
}

fn is_word(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_uppercase()) && text.chars().all(|c| c.is_ascii_alphanumeric())
}

/// The words of `fn reason` bodies, and those that a `Fault` is made with.
fn words_of_code() -> BTreeSet<String> {
    let mut words = BTreeSet::new();
    for path in below(Path::new("src"), ".rs") {
        let source = std::fs::read_to_string(&path).unwrap();
        let methods = source.split("fn reason(self)").skip(1).chain(source.split("fn reason(&self)").skip(1));
        for body in methods {
            let body = body.split_once("\n    }\n").unwrap().0;
            words.extend(quoted(body).filter(|word| is_word(word)).map(str::to_owned));
        }
        for rest in source.split(" reason: \"").skip(1) {
            words.extend(rest.split_once('"').map(|(word, _)| word.to_owned()));
        }
    }
    words
}

#[test]
fn every_fault_word_is_explained_and_every_explained_word_exists() {
    let text = std::fs::read_to_string("docs/troubleshoot.md").unwrap();
    let rows: Vec<&str> = text.lines().filter(|line| line.starts_with("| `")).collect();
    let explained: BTreeSet<String> =
        rows.iter().filter_map(|row| Some(row.split('`').nth(1)?.to_owned())).collect();
    let words = words_of_code();
    assert!(words.len() > 40, "the code was not scanned: {words:?}");
    assert_eq!(explained, words);
    assert_eq!(rows.len(), explained.len(), "a word is explained twice");
    for row in rows {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        assert!(cells.len() == 4 && cells.iter().all(|cell| !cell.is_empty()), "{row}");
    }
}

#[test]
fn every_link_leads_somewhere() {
    let mut links = 0;
    for document in documents() {
        let text = std::fs::read_to_string(&document).unwrap();
        for link in text.split("](").skip(1).filter_map(|rest| Some(rest.split_once(')')?.0)) {
            if link.contains("://") {
                continue;
            }
            links += 1;
            let to = document.parent().unwrap().join(link.split('#').next().unwrap());
            assert!(to.is_file(), "{} links to {link}", document.display());
        }
    }
    assert!(links >= 6, "{links} links");
}

#[test]
fn every_verb_in_the_documents_exists() {
    let help = std::process::Command::new(env!("CARGO_BIN_EXE_machine-config-agent"))
        .arg("--help")
        .output()
        .unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    let mut verbs: BTreeSet<&str> =
        help.lines().filter_map(|line| line.strip_prefix("  ")?.split_whitespace().next()).collect();
    verbs.insert("sandbox");
    let mut used = BTreeSet::new();
    for document in documents() {
        for line in std::fs::read_to_string(&document).unwrap().lines() {
            let commands = line.trim_start().split("; ").chain(line.split('`').skip(1).step_by(2));
            for command in commands {
                let Some(rest) = command.trim().strip_prefix("machine-config-agent ") else { continue };
                let verb = rest.split_whitespace().next().unwrap();
                assert!(verbs.contains(verb), "{}: {verb:?} in {line}", document.display());
                used.insert(verb.to_owned());
            }
        }
    }
    assert!(used.len() >= 6, "{used:?}");
}

/// The indented block after the line that begins with a mark.
fn block(text: &str, mark: &str) -> String {
    let rest = text.split_once(&format!("\n{mark}")).unwrap_or_else(|| panic!("{mark} is missing")).1;
    let lines = rest.lines().skip_while(|line| !line.starts_with("    "));
    let block: Vec<&str> = lines.map_while(|line| line.strip_prefix("    ")).collect();
    block.join("\n")
}

#[test]
fn the_example_of_the_control_directory_works() {
    let text = std::fs::read_to_string("docs/install.md").unwrap();
    let node = node::Node::new();
    for file in ["target.yaml", "machineconfigs/rendered-worker-1.yaml", "policy.yaml"] {
        let example = block(&text, &format!("`/etc/machine-config-agent/{file}`"));
        node.put(&format!("control/{file}"), example);
    }
    let host = ["--root", "root", "--os-backend", "none"];
    let before = node.listing(".");
    let plan = ["plan", "--to", "desired", "--directory", "control"];
    let ran = node.run(&[&plan[..], &host].concat());
    assert_eq!(node.listing("."), before, "a plan touches nothing");
    for word in ["restart systemd-sysctl.service", "daemon-reload"] {
        assert!(ran.out.contains(word), "{word}: {}{}", ran.out, ran.err);
    }
    let config = "control/machineconfigs/rendered-worker-1.yaml";
    let ran = node
        .run(&[&["apply", "--to", config, "--yes", "--policy", "control/policy.yaml"], &host[..]].concat());
    assert_eq!(ran.code, 0, "{}", ran.err);
    let written = std::fs::read_to_string(node.path("root/etc/sysctl.d/90-node.conf")).unwrap();
    assert_eq!(written, "vm.swappiness = 10\n");
}
