//! Files and standard input that a person gives: what lies beside the one config is named, each unknown field is, and faults of one kind
//! have one exit code in each verb.

use serde_json::{Value, json};

use crate::test_host::{Node, STATE, apply, config, files, ignition};

const HOST: [&str; 4] = ["--root", "root", "--os-backend", "none"];
const JSON: [&str; 2] = ["--output", "json"];

/// Kinds beside a MachineConfig, sorted, and the cause that is told of each.
const BESIDE: [(&str, &str, &str); 4] = [
    ("ImageDigestMirrorSet", "config.openshift.io/v1", "this kind is not handled"),
    ("KubeletConfig", "machineconfiguration.openshift.io/v1", "this kind is not handled"),
    ("MachineConfigPool", "machineconfiguration.openshift.io/v1", "the MachineConfig alone is read"),
    ("PinnedImageSet", "machineconfiguration.openshift.io/v1", "this kind is not handled in files"),
];

fn motd(name: &str) -> String {
    config(name, &files(&[("/etc/motd", name)]))
}

fn object(kind: &str, version: &str, name: &str) -> String {
    json!({"apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": {}}).to_string()
}

/// A MachineConfig among objects of other kinds, as one file with several documents.
fn among_others(name: &str) -> String {
    let others = BESIDE.iter().map(|(kind, version, _)| object(kind, version, "other"));
    let foreign = object("Deployment", "apps/v1", "app");
    others.chain([motd(name), foreign]).collect::<Vec<_>>().join("\n---\n")
}

fn named(json: &str) -> Vec<String> {
    let document: Value = serde_json::from_str(json).unwrap();
    let entries = document["notApplied"].as_array().unwrap().iter();
    let others = entries.filter(|one| one["because"] == "other-kind");
    others.map(|one| format!("{}: {}", one["field"], one["message"]).replace('"', "")).collect()
}

fn is_each_named(text: &[String]) -> bool {
    BESIDE
        .iter()
        .zip(text)
        .all(|((kind, _, cause), one)| one.starts_with(&format!("{kind} other: ")) && one.contains(cause))
        && text.len() == BESIDE.len()
}

#[test]
fn objects_beside_config_are_named_by_each_verb() {
    let node = Node::new();
    node.put("many.yaml", among_others("rendered-a"));
    let list =
        BESIDE.iter().map(|(kind, version, _)| object(kind, version, "other")).chain([motd("rendered-a")]);
    node.put("list.json", format!(r#"{{"kind":"List","items":[{}]}}"#, list.collect::<Vec<_>>().join(",")));
    for file in ["many.yaml", "list.json"] {
        let ran = node.run(&[&["plan", "--to", file], &HOST[..], &JSON].concat());
        assert!(ran.code == 0 && is_each_named(&named(&ran.out)), "{}{}", ran.out, ran.err);
    }
    let text = node.run(&[&["plan", "--to", "many.yaml"], &HOST[..]].concat());
    assert!(
        text.out.contains("Not applied\n  ImageDigestMirrorSet other: this kind is not handled"),
        "{}",
        text.out
    );
    let applied = node.apply("many.yaml");
    assert_eq!(applied.code, 0, "{}", applied.err);
    assert!(applied.err.contains("KubeletConfig other"), "{}", applied.err);
    // The committed config keeps what it was given with.
    for words in [&["verify", "--config", "many.yaml"][..], &["verify"], &["status"]] {
        let ran = node.run(&[words, &HOST, &JSON].concat());
        assert!(ran.code == 0 && is_each_named(&named(&ran.out)), "{words:?}: {}{}", ran.out, ran.err);
    }
    node.put("alone.json", motd("rendered-b"));
    assert_eq!(node.apply("alone.json").code, 0);
    let ran = node.run(&[&["status"], &HOST[..], &JSON].concat());
    assert_eq!(named(&ran.out), [""; 0]);
}

#[test]
fn objects_beside_config_of_control_directory_are_named() {
    let node = Node::new();
    node.put("control/target.yaml", "config: rendered-a\n");
    node.put("control/machineconfigs/rendered-a.yaml", among_others("rendered-a"));
    node.put(
        "control/policy.yaml",
        format!("{}\n---\n{}", crate::test_host::QUIET, object("KubeletConfig", "v1", "policy")),
    );
    let ran = node.run(&[&["plan", "--directory", "control"], &HOST[..], &JSON].concat());
    let (of_policy, others): (Vec<String>, Vec<String>) =
        named(&ran.out).into_iter().partition(|one| one.starts_with("KubeletConfig policy: "));
    assert!(ran.code == 0 && of_policy.len() == 1 && is_each_named(&others), "{}{}", ran.out, ran.err);
}

/// One file may hold both; nothing of it is left then.
#[test]
fn policy_in_file_of_config_is_read_where_it_is_named() {
    let node = Node::new();
    node.put("both.yaml", format!("{}\n---\n{}", motd("rendered-a"), crate::test_host::QUIET));
    let plan = |more: &[&str]| {
        let ran = node.run(&[&["plan", "--to", "both.yaml"], &HOST[..], &JSON, more].concat());
        assert_eq!(ran.code, 0, "{}", ran.err);
        named(&ran.out)
    };
    assert_eq!(plan(&[]), ["MachineConfiguration cluster: of this file the MachineConfig alone is read"]);
    assert_eq!(plan(&["--policy", "both.yaml"]), [""; 0]);
    node.put(
        "policy.yaml",
        format!("{}\n---\n{}", crate::test_host::QUIET, object("KubeletConfig", "v1", "a")),
    );
    node.put("a.json", motd("rendered-a"));
    let ran = node.run(&[&["plan", "--to", "a.json", "--policy", "policy.yaml"], &HOST[..], &JSON].concat());
    assert!(named(&ran.out)[0].starts_with("KubeletConfig a: this kind is not handled"), "{}", ran.out);
    // A field of the policy that is let pass.
    node.put("policy.json", crate::test_host::QUIET.replace("\"sshkey\"", "\"sshkeys\""));
    let words = ["plan", "--to", "a.json", "--policy", "policy.json", "--allow-unknown-fields"];
    let ran = node.run(&[&words[..], &HOST].concat());
    assert!(
        ran.out.contains("MachineConfiguration.spec.nodeDisruptionPolicy.sshkeys: there is no"),
        "{}{}",
        ran.out,
        ran.err
    );
}

/// What a person lets pass is named by the run as by its plan, and applied without it.
#[test]
fn unknown_fields_that_are_let_pass_are_named_by_the_run() {
    let node = Node::new();
    let spec = ignition(json!({"storage": {"files": [{"path": "/etc/a", "mod": 420}]}, "storge": {}}));
    node.put("a.json", config("rendered-a", &spec));
    let refused = node.apply("a.json");
    assert!(refused.code == 4 && refused.err.contains("storge"), "{}: {}", refused.code, refused.err);
    assert!(!node.path("root/etc/a").exists());
    let ran = node.run(&[&apply("a.json")[..], &["--allow-unknown-fields"]].concat());
    let text = ran.out + &ran.err;
    for name in ["spec.config.storge", "spec.config.storage.files[0].mod"] {
        assert!(ran.code == 0 && text.contains(name), "{}: {text}", ran.code);
    }
    assert!(node.path("root/etc/a").exists());
    let status = node.run(&["status", "--root", "root", "--output", "json"]);
    assert_eq!(status.out.matches("unknown-field").count(), 2, "{}{}", status.out, status.err);
}

/// Standard input by each of its names, a pipe of the shell and a link are a file like another, for a plan and for a run.
#[test]
fn standard_input_pipe_and_link_are_applied() {
    for given in
        ["- <a.json", "/dev/stdin <a.json", "/dev/fd/0 <a.json", "- < <(cat a.json)", "<(cat a.json)", "link"]
    {
        let node = Node::new();
        node.put("a.json", motd("rendered-a"));
        std::os::unix::fs::symlink("a.json", node.path("link")).unwrap();
        let shell = |script: &str| {
            let mut bash = std::process::Command::new("bash");
            bash.args(["-c", script, crate::test_host::BINARY]).current_dir(node.dir.path());
            bash.stdin(std::process::Stdio::null())
                .env_clear()
                .env("PATH", "/usr/sbin:/usr/bin")
                .output()
                .unwrap()
        };
        let text = |output: &std::process::Output| String::from_utf8_lossy(&output.stdout).into_owned();
        let host = HOST.join(" ");
        let planned = shell(&format!("\"$0\" plan {host} --to {given}"));
        assert!(planned.status.success() && text(&planned).contains("/etc/motd"), "{given}: {planned:?}");
        let words = apply("GIVEN").join(" ").replace("GIVEN", given);
        // A redirection may stand anywhere among the words.
        let applied = shell(&format!("\"$0\" {words}"));
        assert!(applied.status.success(), "{given}: {applied:?}");
        assert_eq!(node.read("root/etc/motd"), "rendered-a", "{given}");
    }
}

/// Each form in which a file `NAME.json` is given; `NAME` and its forms are put there.
fn forms(node: &Node, name: &str, text: &str) -> Vec<String> {
    let put = |form: &str, text: String| node.put(&format!("{name}{form}"), text);
    let foreign = object("Deployment", "apps/v1", "app");
    put(".json", text.to_owned());
    put("-list", format!(r#"{{"apiVersion":"v1","kind":"List","items":[{text},{foreign}]}}"#));
    put("-trailing", format!("---\n{text}\n---\n"));
    put("-several", format!("{foreign}\n---\n# a comment\n---\n{text}\n---\n"));
    std::os::unix::fs::symlink(format!("{name}.json"), node.path(&format!("{name}-link"))).unwrap();
    let of_file = ["- <NAME.json", "/dev/stdin <NAME.json", "/dev/fd/0 <NAME.json", "- < <(cat NAME.json)"];
    let files =
        ["<(cat NAME.json)", "NAME-link", "NAME-list", "NAME-trailing", "NAME-several", "- <NAME-list"];
    [&of_file[..], &files].concat().iter().map(|form| form.replace("NAME", name)).collect()
}

/// The same for the flags that do not name a target: the answer is that of the plain file.
#[test]
fn forms_of_other_files_have_the_answer_of_the_plain_one() {
    let node = Node::new();
    node.put("b.json", motd("rendered-b"));
    let configs = forms(&node, "a", &motd("rendered-a"));
    let reload = json!([{ "type": "Reload", "reload": { "serviceName": "of-policy.service" } }]);
    let policy = json!({ "apiVersion": "operator.openshift.io/v1", "kind": "MachineConfiguration",
        "metadata": { "name": "cluster" },
        "spec": { "nodeDisruptionPolicy": { "files": [{ "path": "/etc/motd", "actions": reload }] } } });
    let policies = forms(&node, "policy", &policy.to_string());
    let shell = |script: &str| {
        let mut bash = std::process::Command::new("bash");
        bash.args(["-c", script, crate::test_host::BINARY]).current_dir(node.dir.path());
        let output = bash.stdin(std::process::Stdio::null()).env_clear().env("PATH", "/usr/sbin:/usr/bin");
        let output = output.output().unwrap();
        let text = [&output.stdout[..], &output.stderr].concat();
        (output.status.code(), String::from_utf8(text).unwrap())
    };
    let host = HOST.join(" ");
    let rows = [
        (format!("verify {host} --config"), "a.json", &configs, 1, "/etc/motd"),
        (format!("plan {host} --to b.json --from"), "a.json", &configs, 0, "rendered-a"),
        (
            "plan --from a.json --to b.json --policy".to_owned(),
            "policy.json",
            &policies,
            0,
            "of-policy.service",
        ),
    ];
    for (words, plain, forms, code, told) in rows {
        let expected = shell(&format!("\"$0\" {words} {plain}"));
        assert!(expected.0 == Some(code) && expected.1.contains(told), "{words}: {expected:?}");
        for form in forms {
            assert_eq!(shell(&format!("\"$0\" {words} {form}")), expected, "{words} {form}");
        }
    }
}

/// A mode whose decimal digits are octal ones was meant as octal: each program says so, in both notations.
#[test]
fn mode_in_decimal_digits_of_octal_one_is_explained() {
    let node = Node::new();
    for (kind, mode, words) in [
        ("files", 644, "644 is decimal, 01204 in octal: for 0644 write 0644 in YAML, 420 in JSON"),
        ("directories", 755, "755 is decimal, 01363 in octal: for 0755 write 0755 in YAML, 493 in JSON"),
    ] {
        let spec = ignition(json!({ "storage": { kind: [{"path": "/etc/a", "mode": mode}] } }));
        node.put("a.json", config("rendered-a", &spec));
        for words_of_verb in [&["plan", "--to", "a.json"][..], &["apply", "--yes", "--to", "a.json"]] {
            let ran = node.run(&[words_of_verb, &HOST].concat());
            let text = ran.out + &ran.err;
            let field = format!("storage.{kind} \"/etc/a\" mode");
            assert!(ran.code == 3 && text.contains(words) && text.contains(&field), "{}: {text}", ran.code);
        }
    }
}

#[test]
fn standard_input_for_two_documents_is_refused() {
    let node = Node::new();
    node.put("a.json", motd("rendered-a"));
    let rows: [(&[&str], &str); 5] = [
        (&["plan", "--from", "-", "--to", "-"], "--from and --to"),
        (&["plan", "--from", "/dev/stdin", "--to", "-"], "--from and --to"),
        (&["plan", "--to", "-", "--policy", "-"], "--to and --policy"),
        (&["plan", "--from", "-", "--to", "-", "--policy", "/dev/fd/0"], "--from and --to and --policy"),
        (&["apply", "--yes", "--to", "-", "--policy", "-"], "--to and --policy"),
    ];
    for (words, told) in rows {
        let ran = node.run(words);
        assert_eq!(ran.code, 2, "{words:?}: {}{}", ran.out, ran.err);
        let told =
            format!("standard input is named by {told}, and can be read once; give each but one as a file");
        assert!(ran.err.contains(&told), "{words:?}: {}", ran.err);
    }
    let ran = node.run(&["plan", "--from", "-", "--to", "-", "--output", "json"]);
    let document: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(
        (&document["refused"][0]["class"], &document["refused"][0]["field"]),
        (&json!("usage"), &json!("--from"))
    );
}

/// Texts that follow one another are parted: no full stop behind a question mark.
#[test]
fn each_unknown_field_is_refused() {
    let mut spec = files(&[("/etc/motd", "a")]);
    spec["kernelArgs"] = json!(["a"]);
    spec["config"]["storage"]["files"][0]["mod"] = json!(420);
    spec["config"]["storge"] = json!({});
    let node = Node::new();
    node.put("a.json", config("rendered-a", &spec));
    node.put("control/target.yaml", "config: rendered-a\n");
    node.put("control/machineconfigs/rendered-a.json", config("rendered-a", &spec));
    for words in [
        &["plan", "--to", "a.json"][..],
        &["plan", "--directory", "control"],
        &["verify", "--config", "a.json"],
    ] {
        let ran = node.run(&[words, &HOST, &JSON].concat());
        let document: Value = serde_json::from_str(&ran.out).unwrap();
        let refused = document["refused"].as_array().unwrap();
        let mut fields: Vec<&str> = refused.iter().map(|one| one["field"].as_str().unwrap()).collect();
        fields.sort_unstable();
        assert_eq!(
            fields,
            ["spec.config.storage.files[0].mod", "spec.config.storge", "spec.kernelArgs"],
            "{words:?}"
        );
        for one in refused {
            let (field, message) = (one["field"].as_str().unwrap(), one["message"].as_str().unwrap());
            let ending =
                "?). Correct what is misspelled; --allow-unknown-fields lets it pass, named as not applied";
            assert!(message.contains(field) && message.ends_with(ending), "{message}");
        }
        for text in [
            "mod: there is no such field (did you mean mode?)",
            "storge: there is no such field (did you mean storage?)",
        ] {
            assert!(ran.err.contains(text), "{}", ran.err);
        }
        assert!(ran.err.contains("?). Correct what is misspelled"), "{}", ran.err);
        assert!(!ran.err.contains("?.") && !ran.err.contains("?;"), "{}", ran.err);
    }
    let mut spec = files(&[]);
    for at in 0..100 {
        spec["config"][format!("unknown{at}")] = json!(1);
    }
    node.put("many.json", config("rendered-a", &spec));
    let ran = node.run(&[&["plan", "--to", "many.json"], &HOST[..], &JSON].concat());
    let document: Value = serde_json::from_str(&ran.out).unwrap();
    let refused = document["refused"].as_array().unwrap();
    assert!(refused.len() == 32 && ran.err.len() < 2000, "{}: {}", refused.len(), ran.err);
    assert!(
        refused[31]["message"].as_str().unwrap().contains("the document has 68 more of them. Correct"),
        "{}",
        refused[31]
    );
}

/// An entry that no node can have is unreconcilable in each list, and a path that is in the way on this host is, too.
#[test]
fn faults_of_paths_have_one_exit_code() {
    let of = |list: &str, entries: Value| ignition(json!({ "storage": { list: entries } }));
    let entry = |list: &str, path: &str| match list {
        "links" => json!({"path": path, "target": "/etc/motd"}),
        _ => json!({ "path": path }),
    };
    let mut rows = Vec::new();
    for list in ["files", "directories", "links"] {
        for path in ["etc/a", "/etc/../a", "/proc/a", "/etc//a", "/var/lib/machine-config-agent/x"] {
            rows.push(of(list, json!([entry(list, path)])));
        }
        rows.push(of(list, json!([entry(list, "/etc/a"), entry(list, "/etc/a")])));
        // In the way on this host.
        rows.push(of(list, json!([entry(list, "/etc/passwd/a")])));
    }
    rows.push(of("files", json!([{"path": "/etc/a", "mode": 0o1777}])));
    rows.push(of("directories", json!([{"path": "/etc/a", "mode": 0o17777}])));
    rows.push(of("links", json!([{"path": "/etc/a", "target": "etc/../b", "hard": true}])));
    rows.push(of("links", json!([{"path": "/etc/a", "target": "/etc/a", "hard": true}])));
    let two = |one: Value, other: Value| ignition(json!({"storage": {"files": [one], "links": [other]}}));
    rows.push(two(json!({"path": "/etc/a"}), json!({"path": "/etc/a", "target": "b"})));
    rows.push(two(json!({"path": "/etc/a/b"}), json!({"path": "/etc/a", "target": "b"})));
    let mut wrong = Vec::new();
    for spec in rows {
        let node = Node::new();
        node.put("a.json", config("rendered-a", &spec));
        node.put("control/target.yaml", "config: rendered-a\n");
        node.put("control/machineconfigs/rendered-a.json", config("rendered-a", &spec));
        let plan = node.plan("a.json").code;
        let json = node.run(&[&["plan", "--to", "a.json"], &HOST[..], &JSON].concat()).code;
        let directory = node.run(&[&["plan", "--directory", "control"], &HOST[..]].concat()).code;
        let unknown = node.run(&[&apply("a.json")[..], &["--allow-unknown-fields"]].concat());
        let codes = [plan, json, directory, node.apply("a.json").code, unknown.code];
        if codes != [3; 5] {
            wrong.push(format!("{codes:?} {spec}: {}", unknown.err));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A path, the exit status, and what is done to the host.
type Row = (&'static str, i32, &'static dyn Fn(&Node));

/// A host that looks as if nobody managed it, since its state can't be read.
#[test]
fn status_says_what_is_wrong_with_state() {
    const CURRENT: &str = "etc/machine-config-daemon/currentconfig";
    let rows: [Row; 4] = [
        (CURRENT, 4, &|node| node.put(&format!("root/{CURRENT}"), "{")),
        (CURRENT, 4, &|node| node.put(&format!("root/{CURRENT}/child"), "")),
        (STATE, 5, &|node| {
            std::fs::remove_dir_all(node.path(&format!("root/{STATE}"))).unwrap();
            node.put(&format!("root/{STATE}"), "no directory");
        }),
        ("current.json", 5, &|node| node.put(&format!("root/{STATE}/current.json"), "{")),
    ];
    for (path, code, spoil) in rows {
        let node = Node::new();
        spoil(&node);
        node.put("a.json", motd("rendered-a"));
        let before = node.listing("root");
        for words in
            [&["status"][..], &["verify"], &["plan", "--to", "a.json"], &["apply", "--yes", "--to", "a.json"]]
        {
            let ran = node.run(&[words, &HOST].concat());
            assert_eq!(ran.code, code, "{path} {words:?}: {}{}", ran.out, ran.err);
            assert!(
                ran.err.contains(path) && ran.err.contains("Next: "),
                "{path} {words:?}: {}{}",
                ran.out,
                ran.err
            );
        }
        assert_eq!(node.listing("root"), before, "{path}");
    }
}

/// The fields that a run refuses, and the exit code.
fn refused_fields(node: &Node, words: &[&str]) -> (i32, Vec<String>) {
    let ran = node.run(&[words, &HOST, &JSON].concat());
    let document: Value = serde_json::from_str(&ran.out).unwrap_or_else(|_| panic!("{}{}", ran.out, ran.err));
    let refused = document["refused"].as_array().unwrap_or_else(|| panic!("{}{}", ran.out, ran.err));
    (ran.code, refused.iter().map(|one| one["field"].as_str().unwrap_or_default().to_owned()).collect())
}

/// A value of another type, a missing one, a bad name and an unknown field hide no other fault of the object.
#[test]
fn all_faults_of_object_are_told_in_one_run() {
    let node = Node::new();
    let config = json!({
        "ignition": {"version": "3.4.0"},
        "storage": {
            "files": [{"mode": 99999}, {"path": "etc/rel", "mode": "0644"}, {"path": 5, "mod": 1}, {"path": "/etc/ok", "mode": 9999}],
            "links": [{"path": "/etc/l", "target": 5}],
            "disks": [5, {"device": "vda"}],
        },
        "systemd": {"units": [{"enabled": "yes", "name": "bad"}, {"contents": 5, "name": "a.service", "dropins": [{"contents": "x"}]}]},
        "passwd": {"users": [{"name": "x", "homeDir": "rel", "uid": "5"}]},
    });
    let object = json!({"apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig",
        "metadata": {"name": "Bad_Name", "labels": {"x": 5}},
        "spec": {"fips": "yes", "kernelTyp": "x", "kernelType": "fast", "config": config}});
    node.put("a.json", object.to_string());
    let expected = [
        "metadata.labels.x",
        "spec.fips",
        "metadata.name",
        "spec.kernelType \"fast\"",
        "spec.config.storage.files[0].path",
        "spec.config.storage.files[1].mode",
        "spec.config.storage.files[2].path",
        "spec.config.storage.links[0].target",
        "spec.config.storage.disks[0]",
        "spec.config.systemd.units[0].enabled",
        "spec.config.systemd.units[1].contents",
        "spec.config.systemd.units[1].dropins[0].name",
        "spec.config.passwd.users[0].uid",
        "passwd.users \"x\" homeDir",
        "storage.files[0] mode",
        "storage.files \"etc/rel\"",
        "storage.files \"/etc/ok\" mode",
        "systemd.units \"bad\"",
        "storage.disks \"vda\" device",
        "spec.kernelTyp",
        "spec.config.storage.files[2].mod",
    ];
    for words in [&["plan", "--to", "a.json"][..], &["verify", "--config", "a.json"]] {
        let (code, mut found) = refused_fields(&node, words);
        let mut expected = expected.map(str::to_owned).to_vec();
        found.sort();
        expected.sort();
        assert_eq!((code, found), (4, expected), "{words:?}");
    }
    // In a control directory, too.
    node.put("control/target.yaml", "config: rendered-a\n");
    let named = object.to_string().replace("Bad_Name", "rendered-a");
    node.put("control/machineconfigs/rendered-a.yaml", named);
    let found = refused_fields(&node, &["plan", "--directory", "control"]).1;
    assert!(
        expected.iter().all(|field| *field == "metadata.name" || found.iter().any(|one| one == field)),
        "{found:?}"
    );
}

/// A fault of the version, of other configs that are named, and of the whole object: the same.
#[test]
fn faults_of_head_hide_no_others() {
    let node = Node::new();
    let file = json!([{"path": "rel", "mode": "0644"}]);
    let merge = json!({"version": "3.4.0", "config": {"merge": [{"source": "https://a"}]}});
    for (ignition, field) in [
        (merge, "ignition.config.merge"),
        (json!({}), "spec.config.ignition.version"),
        (json!({"version": 3}), "spec.config.ignition.version"),
    ] {
        node.put("a.ign", json!({"ignition": ignition, "storage": {"files": file}}).to_string());
        let (code, found) = refused_fields(&node, &["plan", "--to", "a.ign"]);
        let expected = [field, "spec.config.storage.files[0].mode", "storage.files \"rel\""];
        assert_eq!((code, found), (4, expected.map(str::to_owned).to_vec()), "{ignition}");
    }
    // Nothing is made up of what is missing as a whole, and a field that is there twice is told.
    for (text, fields) in [
        (r#"{"kind": "MachineConfig"}"#, &["metadata", "spec"][..]),
        (r#"{"kind": "MachineConfig", "metadata": 5, "spec": 5}"#, &["metadata", "spec"]),
        (
            r#"{"kind": "MachineConfig", "metadata": {"name": "a"}, "spec": {"fips": true, "fips": "x", "kernelType": 5}}"#,
            &["spec", "spec.kernelType"],
        ),
    ] {
        node.put("b.json", text);
        assert_eq!(refused_fields(&node, &["plan", "--to", "b.json"]).1, fields, "{text}");
    }
}

/// The words are not those of a parser's library: file, line, cause and next step.
#[test]
fn broken_files_are_explained() {
    let node = Node::new();
    for (text, words) in [
        ("kind: MachineConfig\n  a: b\n", "line 2, column 4; check the indentation"),
        ("kind: \"x\n", "the closing quote of a string is missing"),
        ("a: *x\n", "line 1, column 4; put text with `*` in quotes"),
        ("a: b\na: c\n", "the field a occurs twice at line 2, column 1; keep one"),
        ("a: {b\n", "a bracket or brace is not closed at line 1"),
        ("a: @b\n", "line 1, column 4; put the text in quotes"),
        ("- a\nb: c\n", "does not begin with `- ` at line 2"),
        ("a: |\n x\n\ty\n", "use spaces, not tabs"),
        ("{\"a\": 1", "it ends in the middle of a mapping"),
    ] {
        node.put("a.yaml", text);
        let ran = node.run(&[&["plan", "--to", "a.yaml"], &HOST[..]].concat());
        assert!(ran.code == 4 && ran.err.contains(words), "{text}: {}", ran.err);
        assert!(ran.err.contains("a.yaml can't be read") && ran.err.contains("Next: Correct"), "{}", ran.err);
        let library = [
            "scalar",
            "anchor reference",
            "mapping values",
            "while parsing",
            "invalid u64",
            "DuplicateKeyPolicy",
        ];
        assert!(!library.iter().any(|word| ran.err.contains(word)), "{text}: {}", ran.err);
    }
    for (text, words) in [
        ("a = \n", "line 1: a value is missing"),
        ("a = \"x\n", "line 1: the closing double quote of a string is missing"),
        ("a = 1\na = 2\n", "line 2: a key occurs twice"),
        ("a = [1\n", "line 1: the closing bracket of a list is missing"),
        ("a = tru\n", "line 1: a value is neither true nor false"),
    ] {
        node.put("root/etc/machine-config-agent/settings.toml", text);
        let ran = node.run(&[&["status"], &HOST[..]].concat());
        assert!(ran.out.contains(words) && !ran.out.contains("expected"), "{text}: {}", ran.out);
    }
}

/// A Butane config in a stream of documents is named, and the MachineConfig is read.
#[test]
fn butane_document_among_others_is_named() {
    let node = Node::new();
    let butane = "variant: fcos\nversion: 1.5.0\n";
    node.put("a.yaml", format!("{butane}---\n{}\n---\n{butane}", motd("rendered-a")));
    let ran = node.run(&[&["plan", "--to", "a.yaml"], &HOST[..], &JSON].concat());
    let found = named(&ran.out);
    assert!(ran.code == 0 && found.len() == 2, "{}{}", ran.out, ran.err);
    assert!(
        found.iter().all(|one| one.starts_with("a.yaml document") && one.contains("run `butane FILE`")),
        "{found:?}"
    );
}

/// The error names what makes a config of it.
#[test]
fn butane_document_is_named() {
    let node = Node::new();
    node.put(
        "a.bu",
        "variant: fcos\nversion: 1.5.0\nstorage: {files: [{path: /etc/a, contents: {inline: a}}]}\n",
    );
    for verb in ["plan", "apply"] {
        let yes: &[&str] = if verb == "apply" { &["--yes"] } else { &[] };
        let ran =
            node.run(&[&[verb, "--to", "a.bu", "--root", "root", "--os-backend", "none"], yes].concat());
        assert!(ran.code == 4 && ran.err.contains("run `butane FILE`"), "{verb}: {}", ran.err);
    }
}
