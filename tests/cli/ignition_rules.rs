//! Ignition's rules: our verdict on generated documents equals that of Ignition's own validation, each rule broken once, over all
//! versions. The judges are its newest release as a Go module (`tests/ignition`), and `ignition-validate` of the distribution.
//! What differs is listed with its reason.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use machine_config_agent::model::MachineConfig;
use serde_json::{Value, json};

use crate::ran;

/// What we refuse and Ignition's validation takes: a part of our text, and why.
const OURS: [(&str, &str); 20] = [
    ("nothing is downloaded", "no node downloads the contents of a file"),
    ("appending is not supported", "appending twice is not the same as once"),
    ("which are not fetched", "a config that is elsewhere can't be planned"),
    ("setuid, setgid and sticky", "as the Machine Config Operator"),
    ("masked and enabled", "systemd refuses to enable it"),
    ("user name", "useradd would refuse it"),
    ("group name", "groupadd would refuse it"),
    ("unit name", "systemd would refuse it"),
    ("drop-in name", "systemd would ignore it"),
    ("can't be managed", "proc, sys, the agent's own state, control characters"),
    ("has to be a directory", "Ignition fails on the machine"),
    ("hex digits", "Ignition fails on the machine: its validation counts the digits alone"),
    ("give the path that the link leads to", "before 3.3, Ignition fails on the machine"),
    (".name: it is missing", "what has no name can't be made"),
    ("which Ignition before 2.27 refuses", "hosts of today have an older one"),
    ("its id must be 0 to", "chown(2) would refuse it"),
    ("a crypt(3) hash", "a colon would end the field of /etc/shadow"),
    ("its source is not a data URL (\"\")", "an empty source; no data URL for the Machine Config Operator"),
    ("longer than 4095 bytes", "the kernel takes no longer path"),
    ("can't be unpacked", "Ignition fails on the machine"),
];

/// What Ignition refuses in a newer release than the distribution's: a part of our text.
const NEWER: [&str; 2] = ["has this path; keep one of them", "writes /etc/systemd/system"];

/// A document, and how it was made.
struct Document {
    how: String,
    minor: u64,
    config: Value,
}

/// A document with all that the version knows.
fn valid(minor: u64) -> Value {
    let mut config = json!({
        "ignition": {"version": format!("3.{minor}.0"),
            "security": {"tls": {"certificateAuthorities": [{"source": "data:,ca"}]}}, "timeouts": {"httpTotal": 9}},
        "passwd": {"users": [{"name": "core", "sshAuthorizedKeys": ["ssh-rsa a", "ssh-rsa b"], "groups": ["wheel", "adm"]}, {"name": "other"}],
            "groups": [{"name": "wheel"}, {"name": "adm", "gid": 7}]},
        "storage": {
            "disks": [{"device": "/dev/vda", "wipeTable": true, "partitions": [
                {"label": "a", "number": 1, "startMiB": 1, "sizeMiB": 100, "guid": "", "typeGuid": "01234567-89ab-CDEF-EDCB-A98765432101"},
                {"label": "b", "number": 2, "startMiB": 101, "sizeMiB": 0}, {"number": 0, "label": "c"}, {"number": 9}]},
                {"device": "/dev/vdy", "partitions": [{"number": 9, "shouldExist": false}]}],
            "raid": [{"name": "md0", "level": "raid1", "devices": ["/dev/vdb", "/dev/vdc"], "spares": 1, "options": ["-x", "-x"]}],
            "filesystems": [{"device": "/dev/vda1", "format": "ext4", "path": "/var", "label": "var", "options": ["a", "a"]},
                {"device": "/dev/vda2"}],
            "directories": [{"path": "/etc/dir", "mode": 493, "user": {"id": 1}, "group": {"name": "adm"}}],
            "files": [{"path": "/etc/file", "mode": 420, "overwrite": true, "user": {"name": "core"}, "group": {"id": 0},
                "contents": {"source": "data:,text", "compression": "", "verification": {"hash":
                    "sha512-eaf2c12742cb8c161bcbd84b032b9bb98999a23282542672ca01cc6edd268f7dce9987ad6b2bc79305634f89d90b90102bcd59a57e7135b8e3ceb93c0597117b"}}},
                {"path": "/etc/dir/other"}, {"path": "/etc/zip", "contents": {"source": "data:;base64,H4sIAAAAAAAA/wMAAAAAAAAAAAA=", "compression": "gzip"}}],
            "links": [{"path": "/etc/link", "target": "dir", "hard": false}]},
        "systemd": {"units": [{"name": "a.service", "enabled": true, "contents": "[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=a.target\n",
            "dropins": [{"name": "1.conf", "contents": "[Service]\nUser=a"}, {"name": "2.conf"}]}, {"name": "b@.timer", "mask": true}]},
    });
    let mut add = |since: u64, pointer: &str, value: Value| {
        if minor >= since {
            put(&mut config, pointer, value);
        }
    };
    add(
        1,
        "/ignition/proxy",
        json!({"httpProxy": "http://p", "httpsProxy": "https://p:1", "noProxy": ["a", "b"]}),
    );
    add(1, "/storage/filesystems/0/mountOptions", json!(["a", "a"]));
    add(
        2,
        "/storage/luks",
        json!([{"name": "data", "device": "/dev/vdd", "label": "l", "options": ["a", "a"],
        "keyFile": {"source": "data:,key"}}, {"name": "tang", "device": "/dev/vde", "clevis": {"tpm2": true, "threshold": 1,
        "tang": [{"url": "http://t", "thumbprint": "x"}, {"url": "https://t:7/a", "thumbprint": "y"}]}},
        {"name": "pin", "device": "/dev/vdf", "clevis": {"custom": {"pin": "sss", "config": "{}"}}}]),
    );
    add(3, "/kernelArguments", json!({"shouldExist": ["a", "b"], "shouldNotExist": ["c"]}));
    add(4, "/storage/luks/1/clevis/tang/0/advertisement", json!("{\"a\": 1}"));
    add(4, "/storage/luks/0/openOptions", json!(["a", "b"]));
    add(5, "/storage/luks/3", json!({"name": "cex", "device": "/dev/vdg", "cex": {"enabled": true}}));
    config
}

/// Puts a value at a pointer; one place behind a list's end adds to it. Returns false where there is no such place.
fn put(tree: &mut Value, pointer: &str, value: Value) -> bool {
    let Some((parent, last)) = pointer.rsplit_once('/') else { return false };
    match tree.pointer_mut(parent) {
        Some(Value::Object(fields)) => drop(fields.insert(last.to_owned(), value)),
        Some(Value::Array(items)) => match last.parse::<usize>() {
            Ok(place) if place < items.len() => items[place] = value,
            Ok(place) if place == items.len() => items.push(value),
            _ => return false,
        },
        _ => return false,
    }
    true
}

/// Changes of the valid document, each of one value: those of `tests/ignition/changes.txt` (a pointer, and below it the values), and
/// what is too long for it.
fn changes() -> Vec<(&'static str, Value)> {
    let mut all = Vec::new();
    let mut pointer = "";
    for line in include_str!("../ignition/changes.txt").lines() {
        match line.strip_prefix("  ") {
            Some(value) => all.push((pointer, serde_json::from_str(value).unwrap())),
            None => pointer = line,
        }
    }
    let long = format!("/{}a", "a/".repeat(2048));
    all.extend(["/storage/directories/1", "/storage/files/3"].map(|list| (list, json!({ "path": long }))));
    for text in unit_texts() {
        all.extend(
            ["/systemd/units/1/contents", "/systemd/units/0/dropins/1/contents"].map(|at| (at, json!(text))),
        );
    }
    all
}

fn unit_texts() -> Vec<String> {
    let mut texts: Vec<String> = [
        "",
        "x",
        "x=y",
        "[Unit",
        "[Unit]",
        "[Unit] ",
        "[Unit]x",
        "[Unit]\r\nA=b\r\n",
        "[Unit]\nA",
        "[Unit]\nA\n",
        "[Unit]\nA=b\\\nc\n",
        "[Unit]\nA=b\\",
        "[Unit]\n A = b",
        "[Unit]\n# a\\\nb\n",
        "[Unit]\n# a\\ \nb\n",
        "[Unit]\n# a\\  \nb\n",
        "; a\\\n[Unit]\nA=b",
        "#[Unit]\nA",
        "[Unit]\n=",
        "[Un\nit]\nA=b",
        "[Unit]\n[Service]",
        "[Unit]\n\n\n\u{a0}A=b",
        "a [Unit]\nA=b",
        "[Unit]\nA=\\\n\\\n\n",
        "[Unit]\nA\r=b",
        "[Unit]\nA=b [\n",
        "\u{feff}[Unit]\nA=b",
    ]
    .map(str::to_owned)
    .to_vec();
    for length in [2040, 2044, 2045, 2046, 2047, 2048, 2049, 4090, 4096, 5000, 9000] {
        texts.push(format!("[Unit]\nA={}\n", "x".repeat(length)));
        texts.push(format!("[Unit]\nA={}", "x".repeat(length)));
        for before in [1000, 2030, 2040, 2050, 3000, 4070, 4085, 4090, 4096] {
            texts.push(format!("[Unit]\n# {}\nA={}\nB=c\n", "y".repeat(before % 1500), "x".repeat(length)));
            texts.push(format!(
                "[Unit]\nB=c\n{}A={}\\\nd\n",
                "B=c\n".repeat(before / 4),
                "\u{e4}".repeat(length / 2)
            ));
        }
    }
    texts
}

/// Numbers that are the same in each run.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % limit
    }
}

/// Each rule broken once in each version, and three changes at a time.
fn documents() -> Vec<Document> {
    let changes = changes();
    let mut documents = Vec::new();
    for minor in 0..=6 {
        documents.push(Document { how: "valid".to_owned(), minor, config: valid(minor) });
        for (place, (pointer, value)) in changes.iter().enumerate() {
            // Texts of units are read alike in each version.
            let is_text = pointer.ends_with("/contents") && value.is_string();
            let mut config = valid(minor);
            if (!is_text || place % 4 == usize::try_from(minor).unwrap())
                && put(&mut config, pointer, value.clone())
            {
                documents.push(Document { how: format!("{pointer} = {value}"), minor, config });
            }
        }
    }
    let mut random = Random(29);
    for round in 0..1500 {
        let minor = u64::try_from(random.below(7)).unwrap();
        let mut config = valid(minor);
        let mut how = format!("round {round}:");
        for _ in 0..3 {
            let (pointer, value) = &changes[random.below(changes.len())];
            if put(&mut config, pointer, value.clone()) {
                how += &format!(" {pointer} = {value}");
            }
        }
        documents.push(Document { how, minor, config });
    }
    documents
}

fn ours(config: &Value) -> Result<(), String> {
    let object = json!({"kind": "MachineConfig", "metadata": {"name": "a"}, "spec": {"config": config}});
    let read = MachineConfig::parse(object.to_string().as_bytes(), "a").and_then(|read| read.spec(None));
    read.map(drop).map_err(|error| error.to_string())
}

/// Builds Ignition's validation; Go's cache makes that quick.
fn judge() -> PathBuf {
    let program = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("ignition-{}", std::process::id()));
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/ignition");
    let mut go = Command::new("go");
    go.arg("build").arg("-o").arg(&program).arg(".").current_dir(source);
    let output = go.output().unwrap_or_else(|error| panic!("go: {error}; `./setup` installs it"));
    assert!(output.status.success(), "tests/ignition: {}", String::from_utf8_lossy(&output.stderr));
    program
}

/// Says of each document what the newest Ignition says: `None` for a valid one.
fn newest(documents: &[Document]) -> Vec<Option<String>> {
    let lines: Vec<String> = documents.iter().map(|document| document.config.to_string()).collect();
    let input = lines.join("\n");
    let program = judge();
    let mut child = Command::new(&program).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let writer = std::thread::spawn(move || stdin.write_all(input.as_bytes()));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    std::fs::remove_file(program).unwrap();
    let verdict = |line: &str| {
        let verdict: Value = serde_json::from_str(line).unwrap();
        (verdict["ok"] != json!(true)).then(|| verdict["report"].as_str().unwrap().to_owned())
    };
    String::from_utf8(output.stdout).unwrap().lines().map(verdict).collect()
}

fn difference(document: &Document, ours: &Result<(), String>, theirs: Option<&str>) -> Option<String> {
    let told = || format!("3.{} {}\n  ", document.minor, document.how.chars().take(300).collect::<String>());
    match (ours, theirs) {
        (Ok(()), Some(report)) => Some(format!("{}taken here, refused there: {report}", told())),
        (Err(error), None) if !OURS.iter().any(|(text, _)| error.contains(text)) => {
            Some(format!("{}taken there, refused here: {error}", told()))
        }
        (Ok(()), None) | (Err(_), _) => None,
    }
}

fn report(found: &[String]) {
    assert!(found.is_empty(), "{} differences:\n{}", found.len(), found[..found.len().min(60)].join("\n"));
}

#[test]
fn verdicts_equal_those_of_newest_ignition() {
    let documents = documents();
    let theirs = newest(&documents);
    assert_eq!(documents.len(), theirs.len());
    let refused = theirs.iter().flatten().count();
    assert!(documents.len() >= 3000 && refused >= 1000, "{} documents, {refused} refused", documents.len());
    let ours: Vec<Result<(), String>> = documents.iter().map(|document| ours(&document.config)).collect();
    let all = || documents.iter().zip(&ours).zip(&theirs);
    let found: Vec<String> =
        all().filter_map(|((one, ours), theirs)| difference(one, ours, theirs.as_deref())).collect();
    report(&found);
    let is_used = |text: &str| {
        all().any(|((_, ours), theirs)| {
            theirs.is_none() && ours.as_ref().is_err_and(|error| error.contains(text))
        })
    };
    let unused: Vec<&str> = OURS.iter().map(|(text, _)| *text).filter(|text| !is_used(text)).collect();
    assert!(unused.is_empty(), "no document has this difference: {unused:?}");
    // Each version has what it refuses alone or takes alone.
    let mut count: BTreeMap<u64, usize> = BTreeMap::new();
    for (document, theirs) in documents.iter().zip(&theirs) {
        *count.entry(document.minor).or_default() += usize::from(theirs.is_some());
    }
    assert!(count.len() == 7 && count.values().all(|refused| *refused > 100), "{count:?}");
}

/// The named parts of a field, in either notation: `spec.config.storage.files[0].mode` and `storage.files "/etc/a" mode`.
fn named_parts(field: &str) -> Vec<String> {
    let outside =
        field.trim_start_matches("spec.config.").split('"').step_by(2).collect::<Vec<_>>().join(" ");
    let parts = outside.split(['.', ' ', '[', ']']).filter(|part| !part.is_empty());
    let parts = parts.filter(|part| part.parse::<usize>().is_err());
    parts.map(str::to_owned).collect()
}

/// Returns true if a field is the broken one, a part of it, or what holds it; and the entry of a list is told by its place or its name.
fn is_broken_field(field: &str, cause: &str, pointer: &str, config: &Value) -> bool {
    let found = named_parts(field);
    let parts: Vec<&str> = pointer.split('/').skip(1).collect();
    let broken: Vec<&str> = parts.iter().filter(|part| part.parse::<usize>().is_err()).copied().collect();
    let depth = found.len().min(broken.len());
    // An argument may be in both lists.
    if found == ["kernelArguments"] && broken[0] == found[0] {
        return config.pointer(pointer).is_some_and(|value| field.contains(&value.to_string()));
    }
    // Of two parts that exclude each other one is the field, and the other one is told.
    let is_told =
        |part: &&str| cause.contains(*part) || (**part == *"keyFile" && cause.contains("a key file"));
    let is_excluded = depth == 3 && found[..2] == broken[..2] && broken.last().is_some_and(is_told);
    if depth < 2.min(broken.len()) || (found[..depth] != broken[..depth] && !is_excluded) {
        return false;
    }
    let Some(place) = parts.get(2).filter(|place| place.parse::<usize>().is_ok()) else { return true };
    let entry = config.pointer(&format!("/{}", parts[..3].join("/"))).unwrap();
    // A long one is cut.
    let start = |name: &str| format!("\"{}", name.chars().take(60).collect::<String>());
    let names = ["name", "path", "device"].map(|key| entry[key].as_str().map(start));
    field.contains(&format!("[{place}]")) || names.iter().flatten().any(|name| field.contains(name))
}

/// A refusal that names another field sends a person to the wrong place.
#[test]
fn refusals_name_the_broken_field() {
    let (mut wrong, mut count) = (Vec::new(), 0);
    for document in documents().into_iter().filter(|one| one.how.starts_with('/')) {
        let pointer = document.how.split(" = ").next().unwrap();
        let object =
            json!({"kind": "MachineConfig", "metadata": {"name": "a"}, "spec": {"config": document.config}});
        let read = MachineConfig::parse(object.to_string().as_bytes(), "a").and_then(|read| read.spec(None));
        let Err(error) = read else { continue };
        count += 1;
        let fields: Vec<&str> = error.faults().filter_map(|fault| fault.field()).collect();
        // Of two entries of one path either is the field, and the other one is told.
        let pairs = error.to_string();
        let told =
            pairs.split(": ").nth(1).and_then(|cause| cause.split_once(" writes ")).map(|(other, _)| other);
        let fields: Vec<&str> = fields.into_iter().chain(told).collect();
        if !fields.iter().any(|field| is_broken_field(field, &pairs, pointer, &document.config)) {
            let how: String = document.how.chars().take(200).collect();
            wrong.push(format!("3.{} {how}\n  {fields:?}: {error}", document.minor));
        }
    }
    assert!(count > 1000, "{count}");
    report(&wrong);
}

/// The distribution's program, for the versions that it knows.
#[test]
fn verdicts_equal_those_of_ignition_validate() {
    if Command::new("ignition-validate").arg("--version").output().is_err() {
        ran::not_run("verdicts_equal_those_of_ignition_validate", "the package ignition");
        return;
    }
    // Each change once, in one version after the other, and some of several.
    let mut by_change: BTreeMap<String, Vec<Document>> = BTreeMap::new();
    for document in documents().into_iter().filter(|one| one.minor <= 3) {
        by_change.entry(document.how.clone()).or_default().push(document);
    }
    let (several, single): (Vec<_>, Vec<_>) =
        by_change.into_iter().partition(|(how, _)| how.starts_with("round"));
    let of_change = |(place, (_, mut versions)): (usize, (String, Vec<Document>))| {
        let version = place % versions.len();
        versions.swap_remove(version)
    };
    let chosen: Vec<Document> =
        single.into_iter().chain(several.into_iter().take(200)).enumerate().map(of_change).collect();
    assert!(chosen.len() >= 800, "{}", chosen.len());
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("config.ign");
    let mut found = Vec::new();
    for document in &chosen {
        std::fs::write(&file, document.config.to_string()).unwrap();
        let output = Command::new("ignition-validate").arg(&file).output().unwrap();
        let text =
            String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        let theirs = (!output.status.success()).then_some(text);
        let ours = ours(&document.config);
        let is_newer = ours.as_ref().is_err_and(|error| NEWER.iter().any(|text| error.contains(text)));
        found.extend(difference(document, &ours, theirs.as_deref()).filter(|_| !is_newer));
    }
    report(&found);
}
