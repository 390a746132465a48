//! Interfaces for people and programs: `--help`, every JSON and the exit codes, as goldens in `tests/goldens/`.
//! `UPDATE_GOLDENS=1 cargo test --test cli interfaces` writes them; a review reads the difference.

use std::collections::BTreeSet;
use std::path::Path;

use crate::test_host::{Node, QUIET, Ran, apply, config, files, ignition};
use machine_config_agent::plan::explain::text_diff;
use serde_json::{Value, json};

/// Lines of a terminal that a help may take.
const SCREEN: usize = 40;

/// Instruction for a golden that differs.
const UPDATE: &str =
    "If this is meant, write them and read `git diff`: UPDATE_GOLDENS=1 cargo test --test cli interfaces";

fn golden(name: &str, got: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/goldens").join(name);
    if std::env::var_os("UPDATE_GOLDENS").is_some_and(|value| value == "1") {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, got).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    let lines = text_diff(kept.as_bytes(), got.as_bytes(), false);
    assert!(got == kept, "tests/goldens/{name} (-) is not what is printed (+):\n{lines}\n{UPDATE}");
}

/// Replaces what is another in each run: ids, times, durations, the node's name.
fn redacted(value: &mut Value) {
    match value {
        Value::Array(list) => list.iter_mut().for_each(redacted),
        Value::Object(map) => {
            for (key, value) in map {
                match key.as_str() {
                    "since" | "started" | "ended" | "id" | "update" | "node" | "directory"
                        if !value.is_null() =>
                    {
                        *value = Value::from(format!("<{key}>"));
                    }
                    "durations" => *value = json!({}),
                    _ => redacted(value),
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn json_golden(name: &str, text: &str) {
    let mut value: Value = serde_json::from_str(text).unwrap();
    redacted(&mut value);
    golden(name, &format!("{}\n", serde_json::to_string_pretty(&value).unwrap()));
}

fn verb(node: &Node, words: &[&str]) -> Ran {
    node.run(&[words, &["--root", "root", "--os-backend", "none"]].concat())
}

/// A config that uses every kind of thing, so that every key of the JSON shows.
fn rich(word: &str) -> Value {
    let mut spec = ignition(json!({
        "storage": {"files": [
            {"path": "/etc/motd", "mode": 420, "contents": {"source": format!("data:,{word}")}},
            {"path": format!("/etc/only-{word}"), "mode": 384, "contents": {"source": "data:,secret"}}]},
        "systemd": {"units": [{"name": "crio.service", "enabled": word == "b",
            "dropins": [{"name": "10-x.conf", "contents": format!("[Service]\nNice={}\n", word.len())}]}]},
        "passwd": {"users": [{"name": "core", "sshAuthorizedKeys": [format!("ssh-ed25519 AAAA{word}")]}]},
    }));
    spec["kernelArguments"] = json!([]);
    spec
}

#[test]
fn each_help_is_golden_and_fits_on_screen() {
    let node = Node::new();
    let mut verbs =
        vec!["daemon", "plan", "apply", "verify", "status", "history", "collect", "completions", "man"];
    if cfg!(feature = "backend-ostree") {
        verbs.extend([
            "sandbox",
            "stateroot",
            "stateroot list",
            "stateroot inspect",
            "stateroot prepare",
            "stateroot activate",
            "stateroot roll-back",
            "stateroot trial",
            "stateroot remove",
            "seed",
            "seed containerfile",
            "seed create",
            "seed restore",
        ]);
        // Without libostree the list of verbs is another.
        golden("help.txt", &node.run(&["--help"]).out);
    }
    for name in verbs {
        let words: Vec<&str> = name.split(' ').collect();
        let ran = node.run(&[&words[..], &["--help"]].concat());
        assert_eq!(ran.code, 0, "{}", ran.err);
        assert!(
            ran.out.lines().count() <= SCREEN,
            "the help of {name} takes more than a screen:\n{}",
            ran.out
        );
        let shown = ["Example:", "Examples:"].map(|head| format!("{head}\n  machine-config-agent "));
        assert!(shown.iter().any(|example| ran.out.contains(example)), "{name} shows no example");
        assert_eq!(ran.out, node.run(&[&words[..], &["-h"]].concat()).out);
        golden(&format!("help-{}.txt", words.join("-")), &ran.out);
    }
}

/// Adds the pages of the verbs that the help of a verb lists.
fn pages_below(node: &Node, words: &mut Vec<String>, pages: &mut BTreeSet<String>) {
    let mut asked: Vec<&str> = words.iter().map(String::as_str).collect();
    asked.push("--help");
    let help = node.run(&asked).out;
    let verbs =
        help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    for verb in verbs.filter_map(|line| line.split_whitespace().next()) {
        words.push(verb.to_owned());
        pages.insert(format!("machine-config-agent-{}.8", words.join("-")));
        pages_below(node, words, pages);
        words.pop();
    }
}

/// A reader that closes the pipe, as `head` does, is no error of a verb that shows something; one that would change something fails.
#[test]
fn closed_pipe_is_no_error_of_what_only_shows() {
    let node = Node::new();
    node.commit("rendered-a.json", &files(&[("/etc/app.conf", "a")]));
    node.put("b.json", config("rendered-b", &files(&[("/etc/app.conf", "b")])));
    let host = ["--root", "root"];
    let shows = [
        "plan --from current --to b.json --os-backend none",
        "verify --config b.json --os-backend none",
        "status",
        "history --output json",
    ];
    for line in shows {
        let words: Vec<&str> = line.split(' ').chain(host).collect();
        assert_eq!(closed(&node, &words), (Some(0), String::new()), "{words:?}");
    }
    for words in [&["man"][..], &["completions", "bash"]] {
        assert_eq!(closed(&node, words), (Some(0), String::new()), "{words:?}");
    }
    let (code, told) = closed(&node, &apply("b.json"));
    assert!(
        code == Some(4) && !told.is_empty() || code == Some(0) && node.read("root/etc/app.conf") == "b",
        "{code:?}: {told}"
    );
}

/// Runs a verb whose output nobody reads; returns its code and what it says.
fn closed(node: &Node, words: &[&str]) -> (Option<i32>, String) {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let ran = node.command(words).stdout(writer).stderr(std::process::Stdio::piped()).output().unwrap();
    (ran.status.code(), String::from_utf8_lossy(&ran.stderr).into_owned())
}

/// Each shell's script and each page are made from the parser, so they can't lack a verb; they have to be what shell and
/// man(1) understand.
#[test]
fn completions_and_pages_know_every_verb() {
    let node = Node::new();
    for (shell, verb) in [("bash", " collect "), ("zsh", "'collect:"), ("fish", "-a \"collect\"")] {
        let ran = node.run(&["completions", shell]);
        assert!(ran.code == 0 && ran.out.contains(verb), "{shell}: {}", ran.out);
    }
    std::fs::create_dir(node.path("man")).unwrap();
    assert_eq!(node.run(&["man", "--directory", "man"]).code, 0);
    let mut expected = BTreeSet::from(["machine-config-agent.8".to_owned()]);
    pages_below(&node, &mut Vec::new(), &mut expected);
    let pages: BTreeSet<String> = std::fs::read_dir(node.path("man"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert_eq!(pages, expected);
    // None refers to a page that is not there.
    for page in &pages {
        let text = node.read(&format!("man/{page}")).replace("\\-", "-");
        let text = text.replace("\\fB", "").replace("\\fR", "");
        let referred = text.split_whitespace().filter_map(|word| word.strip_suffix("(8)"));
        let missing: Vec<_> = referred.filter(|name| !pages.contains(&format!("{name}.8"))).collect();
        assert_eq!(missing, [""; 0], "{page}");
        assert!(text.contains(".SH \"EXIT STATUS\"") && !text.contains(".SH EXTRA"), "{page}");
    }
    if cfg!(feature = "backend-ostree") {
        let page = node.run(&["man", "stateroot", "list"]).out;
        assert_eq!(page.trim_end(), node.read("man/machine-config-agent-stateroot-list.8").trim_end());
    }
    let page = node.run(&["man", "plan"]).out;
    assert_eq!(page.trim_end(), node.read("man/machine-config-agent-plan.8").trim_end());
    assert!(page.contains(".TH MACHINE\\-CONFIG\\-AGENT 8 ") && page.contains("\\-\\-kubeconfig"), "{page}");
    let ran = node.run(&["man", "none"]);
    assert!(ran.code == 2 && ran.err.contains("there is no command none"), "{}", ran.err);
    let ran = node.run(&["man", "--directory", "none"]);
    assert!(ran.code == 4 && ran.err.contains("--directory"), "{}", ran.err);
}

/// A page lists the codes that its verb ends with, as the help and the reference have them, and leads to the page above it.
#[test]
fn pages_list_codes_of_their_verbs() {
    let node = Node::new();
    let codes = |page: &str| -> Vec<String> {
        let (_, section) = page.split_once(".SH \"EXIT STATUS\"").unwrap();
        let rows = section.lines().filter_map(|line| line.strip_prefix("\\fB")?.strip_suffix("\\fR"));
        rows.map(str::to_owned).collect()
    };
    let page = |words: &[&str]| node.run(&[&["man"], words].concat()).out;
    let all = codes(&page(&[]));
    assert_eq!(all, ["0", "1", "2", "3", "4", "5", "102-105", "133"]);
    let reference = std::fs::read_to_string("docs/reference.md").unwrap();
    let (_, table) = reference.split_once("## Exit status").unwrap();
    let (table, _) = table.split_once("\n\n`status --exit-code`").unwrap();
    let rows: Vec<String> =
        table.lines().skip(4).map(|row| row[2..].split_once(" |").unwrap().0.to_owned()).collect();
    assert_eq!(rows.iter().map(|row| row.replace(" to ", "-")).collect::<Vec<_>>(), all);
    let help = node.run(&["--help"]).out;
    for code in
        ["0 done", "1 differences", "2 usage", "3 config refused", "4 failed", "5 the agent's own state"]
    {
        assert!(help.contains(code), "{code}: {help}");
    }
    assert_eq!(codes(&page(&["history"])), ["0", "2", "3", "4", "5"]);
    assert_eq!(codes(&page(&["verify"])), ["0", "1", "2", "3", "4", "5"]);
    for verb in ["daemon", "apply", "firstboot", "plan", "status", "collect"] {
        let page = page(&[verb]);
        let reboots = page.contains("\\-\\-reboot\\-by\\fR \\fI");
        assert_eq!(codes(&page).contains(&"133".to_owned()), reboots, "{verb}");
        assert!(page.ends_with(".SH \"SEE ALSO\"\n\\fBmachine\\-config\\-agent\\fR(8)\n"), "{page}");
    }
}

/// The commit is named where it is known: a debug build knows it from `MCA_COMMIT` alone (build.rs).
#[test]
fn version_is_package_version() {
    let ran = Node::new().run(&["--version"]);
    let version =
        ran.out.trim_end().strip_prefix(concat!("machine-config-agent ", env!("CARGO_PKG_VERSION")));
    let commit = version.unwrap_or_else(|| panic!("{}", ran.out));
    assert!(commit.is_empty() || (commit.starts_with(" (") && commit.ends_with(')')), "{commit}");
}

#[test]
fn plan_verify_status_and_history_keep_their_shape() {
    let node = Node::new();
    json_golden("status-new.json", &verb(&node, &["status", "--output", "json"]).out);
    node.commit("rendered-worker-a.json", &files(&[("/etc/motd", "a")]));
    node.commit("rendered-worker-b.json", &files(&[("/etc/motd", "b")]));
    node.put("rich.json", config("rendered-worker-c", &rich("b")));
    let plan = ["plan", "--to", "rich.json", "--output", "json"];
    let ran = verb(&node, &plan);
    assert_eq!(ran.code, 0);
    json_golden("plan.json", &ran.out);
    assert_eq!(verb(&node, &[&plan[..], &["--exit-code"]].concat()).code, 1);
    let quiet = [&plan[..], &["--policy", "policy.json"]].concat();
    json_golden("plan-services.json", &verb(&node, &quiet).out);
    let same = ["plan", "--to", "rendered-worker-b.json", "--exit-code"];
    assert_eq!(verb(&node, &same).code, 0);
    let mut disks = files(&[("/etc/motd", "b")]);
    disks["config"]["storage"]["disks"] = json!([{"device": "/dev/vdb"}]);
    node.put("disks.json", config("rendered-worker-d", &disks));
    let ran = verb(&node, &["plan", "--to", "disks.json", "--output", "json"]);
    assert_eq!(ran.code, 3);
    json_golden("plan-irreconcilable.json", &ran.out);

    let ran = verb(&node, &["verify", "--output", "json"]);
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    json_golden("verify-same.json", &ran.out);
    let ran = verb(&node, &["verify", "--config", "rich.json", "--output", "json"]);
    assert_eq!(ran.code, 1);
    json_golden("verify.json", &ran.out);
    json_golden("status.json", &verb(&node, &["status", "--output", "json"]).out);
    node.put("root/etc/motd", "drifted");
    json_golden("status-drift.json", &verb(&node, &["status", "--output", "json"]).out);
    json_golden("history.json", &node.run(&["history", "--root", "root", "--output", "json"]).out);
}

#[test]
fn texts_are_as_people_read_them() {
    let node = Node::new();
    let said = verb(&node, &["status"]).out;
    assert!(said.contains("is not managed yet") && !said.contains("1970"), "{said}");
    node.commit("rendered-worker-a.json", &files(&[("/etc/motd", "a")]));
    let said = node.run(&["history", "--root", "root"]).out;
    assert!(said.contains("(1 step, 0 reboots, "), "{said}");
    node.put("root/etc/motd", "drifted");
    let said = verb(&node, &["verify"]).out;
    assert!(said.starts_with("1 difference from rendered-worker-a:\n"), "{said}");
    let many: Vec<String> = (0..20).map(|number| format!("/etc/many/{number}")).collect();
    let many: Vec<(&str, &str)> = many.iter().map(|path| (path.as_str(), "x")).collect();
    node.put("root/etc/motd", "a");
    node.put("many.json", config("rendered-worker-m", &files(&many)));
    let said = node.run(&apply("many.json")).err;
    assert!(said.contains("files: 21 steps begun\n") && said.contains("files: 21 steps done in "), "{said}");
    assert!(!said.contains("Step 1 of 21") && !said.contains("INFO"), "{said}");
}

#[test]
fn report_keeps_its_shape() {
    let node = Node::new();
    node.put("control/policy.yaml", QUIET);
    node.put(
        "control/machineconfigs/rendered-worker-a.yaml",
        config("rendered-worker-a", &files(&[("/usr/x", "a")])),
    );
    node.put("control/target.yaml", "config: rendered-worker-a\n");
    let daemon = ["daemon", "--directory", "control", "--node-name", "n", "--reboot-by", "supervisor"];
    // It needs a reboot, which the supervisor plays: the agent ends, the report is that of the last phase.
    let ran = verb(&node, &daemon);
    assert_eq!(ran.code, 133, "{}", ran.err);
    json_golden("report.json", &std::fs::read_to_string(node.path("control/report.json")).unwrap());
    json_golden("status-rebooting.json", &verb(&node, &["status", "--output", "json"]).out);
}
