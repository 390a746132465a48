//! Secrets of programs that real nodes have, planted on a host: none of them is in a seed of it, in a list or in a log.

#![allow(clippy::print_stdout, reason = "the counts are what a reader looks for")]

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Read as _;
use std::os::unix::fs::chown;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::read::MultiGzDecoder;
use serde_json::{Value, json};

use crate::backend_env::{Lab, Machine};
use crate::seed::{OWN, as_it_was, boot, command, create, host, host_of, put, ran};
use crate::seed_image::gzip;
use crate::stateroot::{Ran, fits_schema, running, unchanged};

/// The beginning of each canary; a number of three digits follows.
const CANARY: &str = "CANARY-";

/// Most bytes that one compressed part is looked into.
const MAX_INFLATED: u64 = 512 << 20;

const TABLE: &str = include_str!("canaries.tsv");

/// One planted secret.
struct Canary {
    /// Where: `host` beside the packages, `package` in a file that the image has too, `config` in a file of the config.
    place: &'static str,
    path: &'static str,
    bytes: Vec<u8>,
}

/// Reads the table: `place form path contents`. In the contents `@` is the canary, `%` its base64, `|` the end of a line, `&` an at sign.
fn canaries() -> Vec<Canary> {
    let lines = TABLE.lines().filter(|line| !line.is_empty() && !line.starts_with("# "));
    let canary = |(number, line): (usize, &'static str)| {
        let [place, form, path, contents] = line.splitn(4, '\t').collect::<Vec<_>>()[..] else {
            panic!("{line}");
        };
        let own = format!("{CANARY}{number:03}-of-host-a-only");
        let text = contents.replace('@', &own).replace('%', &STANDARD.encode(&own)).replace('|', "\n");
        let text = text.replace('&', "@");
        let bytes = match form {
            "text" => text.into_bytes(),
            "gzip" => gzip(text.as_bytes()),
            "base64" => STANDARD.encode(text).into_bytes(),
            "luks" => [b"LUKS\xba\xbe\0\x02".as_slice(), text.as_bytes()].concat(),
            other => panic!("{other}"),
        };
        Canary { place, path, bytes }
    };
    lines.enumerate().map(canary).collect()
}

/// Adds the numbers of the canaries in some bytes: as they are, in what is compressed in them, and in their base64.
fn search(bytes: &[u8], depth: u32, found: &mut BTreeSet<usize>) {
    let needle = CANARY.as_bytes();
    for at in positions(bytes, needle) {
        let digits = bytes.get(at + needle.len()..at + needle.len() + 3);
        found.extend(digits.and_then(|digits| std::str::from_utf8(digits).ok()?.parse::<usize>().ok()));
    }
    if depth == 0 {
        return;
    }
    for at in positions(bytes, &[0x1f, 0x8b, 8]) {
        let mut inflated = Vec::new();
        let read = MultiGzDecoder::new(&bytes[at..]).take(MAX_INFLATED).read_to_end(&mut inflated);
        if read.is_ok() || !inflated.is_empty() {
            search(&inflated, depth - 1, found);
        }
    }
    let is_digit = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/');
    for run in bytes.split(|byte| !is_digit(byte)).filter(|run| run.len() >= 12) {
        let whole = run.get(..run.len() / 4 * 4).unwrap_or_default();
        if let Ok(decoded) = STANDARD.decode(whole)
            && decoded.windows(3).any(|bytes| bytes == b"CAN" || bytes == [0x1f, 0x8b, 8])
        {
            search(&decoded, depth - 1, found);
        }
    }
}

fn positions(bytes: &[u8], needle: &[u8]) -> Vec<usize> {
    let first = needle[0];
    let mut found = Vec::new();
    for (at, byte) in bytes.iter().enumerate() {
        if *byte == first && bytes[at..].starts_with(needle) {
            found.push(at);
        }
    }
    found
}

/// The canaries in the image of a seed: every blob of it. Layers of the base are not of the host.
fn shipped(lab: &Lab) -> BTreeSet<usize> {
    let blobs = host(lab, OWN).join("image/blobs/sha256");
    let mut found = BTreeSet::new();
    let Ok(entries) = fs::read_dir(blobs) else { return found };
    let base = lab.world.dir().join("images/blobs/sha256");
    for entry in entries.map(Result::unwrap).filter(|entry| !base.join(entry.file_name()).exists()) {
        let bytes = fs::read(entry.path()).unwrap();
        if bytes.starts_with(b"{") {
            search(&bytes, 3, &mut found);
            continue;
        }
        // A layer: each member by itself, so that what a member holds is named.
        let mut archive = tar::Archive::new(&bytes[..]);
        for member in archive.entries().unwrap() {
            let mut member = member.unwrap();
            let name = member.path().unwrap().display().to_string();
            let mut contents = Vec::new();
            member.read_to_end(&mut contents).unwrap();
            if !name.ends_with("ostree.tgz") {
                search(&contents, 4, &mut found);
            }
        }
    }
    found
}

fn told(run: &Ran) -> BTreeSet<usize> {
    let mut found = BTreeSet::new();
    search(run.out.as_bytes(), 3, &mut found);
    search(run.err.as_bytes(), 3, &mut found);
    found
}

/// A host with all of them: in files beside packages, in packages' files, and in files of its config.
fn planted() -> (Lab, Vec<Canary>) {
    let (lab, all) = (host_of("A"), canaries());
    let (mut files, mut units) = (Vec::new(), Vec::new());
    for canary in &all {
        let text = String::from_utf8_lossy(&canary.bytes);
        match canary.place {
            "host" | "password" => {}
            "package" => put(&lab, &format!("usr/{}", canary.path), "# as the package has it\n"),
            "config" if canary.path.starts_with("etc/systemd/system/") => {
                let name = canary.path.rsplit('/').next().unwrap();
                units.push(json!({"name": name, "enabled": true, "contents": text}));
            }
            "config" => {
                let packed = STANDARD.encode(gzip(&canary.bytes));
                files.push(json!({"path": format!("/{}", canary.path), "contents":
                    {"compression": "gzip", "source": format!("data:;base64,{packed}")}}));
            }
            "only-config" => files.push(json!({"path": format!("/{}", canary.path), "contents":
                {"source": format!("data:,{}", text.replace(' ', "%20").replace('\n', "%0A"))}})),
            other => panic!("{other}"),
        }
        if !matches!(canary.place, "only-config" | "password") {
            let path = host(&lab, canary.path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, &canary.bytes).unwrap();
        }
    }
    files.push(json!({"path": "/etc/seed.conf", "contents": {"source": "data:,of%20the%20config%0A"}}));
    put(&lab, "etc/seed.conf", "of the config\n");
    let users: Vec<Value> = all
        .iter()
        .filter(|canary| canary.place == "password")
        .map(|canary| json!({"name": "core", "passwordHash": String::from_utf8_lossy(&canary.bytes)}))
        .collect();
    let config = json!({"apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig",
        "metadata": {"name": "rendered-worker-seed"}, "spec": {"config": {"ignition": {"version": "3.4.0"},
        "passwd": {"users": users}, "storage": {"files": files}, "systemd": {"units": units}}}});
    put(&lab, "etc/machine-config-daemon/currentconfig", &config.to_string());
    (lab, all)
}

/// Says which canaries were found, in the words of the table.
fn named(found: &BTreeSet<usize>, all: &[Canary]) -> Vec<String> {
    found.iter().filter_map(|number| Some(all.get(*number)?.path.to_owned())).collect()
}

fn stay_on_the_host(form: &str) {
    let (lab, all) = planted();
    let machine = boot(&lab);
    let run = create(&machine, &["--form", form]);
    let found = shipped(&lab);
    println!("{form}: {} of {} canaries are in a seed without flags", found.len(), all.len());
    assert!(found.is_empty(), "{form}: {} of {}: {:#?}", found.len(), all.len(), named(&found, &all));
    // What looks like a key in files that would be taken refuses the seed, before anything is stopped.
    assert_eq!(run.code, 3, "{run:?}");
    assert!(told(&run).is_empty(), "{run:?}");
    as_it_was(&lab, &machine, form);
    for flag in ["--exclude PATH", "--include-secret PATH", "seed create --list"] {
        assert!(run.err.contains(flag), "{flag}: {run:?}");
    }
    let in_packages: Vec<String> = all
        .iter()
        .filter(|canary| canary.place == "package")
        .map(|canary| format!("/{}", canary.path))
        .collect();
    let mut flags = vec!["--form", form];
    for path in &in_packages {
        assert!(run.err.contains(&format!("{path}: it looks like ")), "{path}: {run:?}");
        flags.extend(["--exclude", path]);
    }
    let run = create(&machine, &flags);
    assert_eq!(run.code, 0, "{run:?}");
    let found = shipped(&lab);
    println!("{form}: {} of {} canaries are in a seed", found.len(), all.len());
    assert!(found.is_empty(), "{form}: {:#?}", named(&found, &all));
    assert!(told(&run).is_empty(), "{run:?}");
    assert!(all.len() >= 100, "{}", all.len());
}

#[test]
fn classic_seed_has_no_canary() {
    stay_on_the_host("classic");
}

#[test]
fn bootc_seed_has_no_canary() {
    stay_on_the_host("bootc");
}

/// A search that finds nothing shows nothing, unless it finds what is there.
#[test]
fn search_finds_canaries_in_compressed_and_encoded_bytes() {
    let text = format!("{CANARY}007-x");
    let packed = STANDARD.encode(gzip(STANDARD.encode(&text).as_bytes()));
    for bytes in [
        text.as_bytes().to_vec(),
        gzip(text.as_bytes()),
        packed.clone().into_bytes(),
        gzip(packed.as_bytes()),
    ] {
        let mut found = BTreeSet::new();
        search(&bytes, 4, &mut found);
        assert_eq!(found, BTreeSet::from([7]));
    }
}

fn list(machine: &Machine, more: &[&str]) -> Ran {
    let ran = ran(command(machine, &[&["create", "--list"], more].concat()));
    fits_schema("seed-create", &ran);
    ran
}

/// Before anything is made, each path beside packages is listed with its reason, and none of its contents.
#[test]
fn list_names_each_path_and_its_reason() {
    let (lab, all) = planted();
    let machine = boot(&lab);
    let before = running(&lab);
    let run = list(&machine, &["--output", "json"]);
    assert_eq!(run.code, 3, "{run:?}");
    assert!(told(&run).is_empty());
    let listed = run.json();
    let entries = listed["paths"].as_array().unwrap();
    let path = |entry: &Value| entry["path"].as_str().unwrap().to_owned();
    let of = |wanted: &str| -> Option<&Value> {
        let covers = |entry: &&Value| {
            path(entry) == wanted || (path(entry).ends_with('/') && wanted.starts_with(&path(entry)))
        };
        entries.iter().find(covers)
    };
    let mut refused = 0;
    for canary in all.iter().filter(|canary| !matches!(canary.place, "only-config" | "password")) {
        let found =
            of(&format!("/{}", canary.path)).unwrap_or_else(|| panic!("{} is not listed", canary.path));
        // Accounts are taken, without their passwords.
        let is_taken = ["etc/shadow", "etc/gshadow"].contains(&canary.path);
        assert_eq!(found["taken"], is_taken, "{found}");
        let is_refused = found["because"] == "looks-secret";
        assert_eq!(is_refused, canary.place == "package", "{found}");
        refused += usize::from(is_refused);
    }
    assert_eq!(listed["refused"], refused);
    for (path, because) in
        [("/etc/seed.conf", "config"), ("/etc/shadow", "known"), ("/etc/machine-id", "identity")]
    {
        assert_eq!(of(path).unwrap()["because"], because, "{path}");
    }
    let run = list(&machine, &[]);
    assert!(run.code == 3 && told(&run).is_empty());
    for line in [
        "take  /etc/seed.conf  (of the committed config)",
        "leave /etc/sysconfig/app  (refused: it looks like a key)",
        "leave /var/spool/  (not known to be portable)",
        "leave /etc/app/config.env  (looks like a secret; the config brings it",
    ] {
        assert!(run.out.contains(line), "{line}: {}", run.out);
    }
    unchanged(&lab, &before, "after the lists");
    as_it_was(&lab, &machine, "after the lists");
}

/// What an administrator declares is taken, and a key in it only when it is named by its whole path.
#[test]
fn declared_secret_refuses_the_seed_unless_it_is_named() {
    let lab = host_of("A");
    put(&lab, "var/lib/app/data", "data\n");
    put(&lab, "var/lib/app/tls.pem", &format!("-----BEGIN PRIVATE KEY-----\n{CANARY}001\n"));
    put(&lab, "var/lib/app/attribute", "nothing\n");
    let value = format!("password={CANARY}002");
    let attribute = host(&lab, "var/lib/app/attribute");
    rustix::fs::setxattr(attribute, "user.x", value.as_bytes(), rustix::fs::XattrFlags::empty()).unwrap();
    put(&lab, "etc/machine-config-agent/settings.toml", "[seed]\ninclude = ['/var/lib/app']\n");
    let machine = boot(&lab);
    for more in [&[][..], &["--include-secret", "/var/lib/app/*"], &["--include-secret", "/var/lib/app"]] {
        let run = create(&machine, more);
        assert_eq!(run.code, 3, "{run:?}");
        assert!(run.err.contains("/var/lib/app/tls.pem: it looks like a private key"), "{run:?}");
        assert!(run.err.contains("/var/lib/app/attribute: it looks like a password"), "{run:?}");
        as_it_was(&lab, &machine, "refused");
    }
    let named = ["--include-secret", "/var/lib/app/tls.pem", "--exclude", "/var/lib/app/attribute"];
    let run = create(&machine, &named);
    assert_eq!(run.code, 0, "{run:?}");
    assert_eq!(shipped(&lab), BTreeSet::from([1]));
    assert!(
        list(&machine, &named).out.contains("take  /var/lib/app/tls.pem  (named as a secret that is taken)")
    );
    let run = create(&machine, &["--exclude", "/var/lib/app/*.pem", "--exclude", "/var/lib/app/attribute"]);
    assert_eq!((run.code, shipped(&lab)), (0, BTreeSet::new()), "{run:?}");
}

/// Makes what a user can make in a home: files without an end, trees without a bottom, pipes, and names without number.
fn fill_home(home: &Path, names: usize) {
    fs::create_dir_all(home).unwrap();
    File::create(home.join("endless")).unwrap().set_len(8 << 40).unwrap();
    File::create(home.join("holes")).unwrap().set_len(2 << 30).unwrap();
    let made = Command::new("mkfifo").arg(home.join("pipe")).status().unwrap();
    assert!(made.success());
    for at in 0..names {
        File::create(home.join(format!("name-{at}"))).unwrap();
    }
    let mut deep = rustix::fs::open(home, rustix::fs::OFlags::DIRECTORY, rustix::fs::Mode::empty()).unwrap();
    for _ in 0..300 {
        rustix::fs::mkdirat(&deep, "deep", rustix::fs::Mode::RWXU).unwrap();
        deep = rustix::fs::openat(&deep, "deep", rustix::fs::OFlags::DIRECTORY, rustix::fs::Mode::empty())
            .unwrap();
    }
    for name in ["endless", "holes", "pipe"] {
        chown(home.join(name), Some(1000), Some(1000)).unwrap();
    }
}

/// A home is not read, and what is declared has limits whose error names the path.
#[test]
fn unprivileged_user_neither_prolongs_nor_blocks_a_seed() {
    let names = 100_000;
    let lab = host_of("A");
    fill_home(&host(&lab, "var/home/eve"), names);
    let config = json!({"apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig",
        "metadata": {"name": "rendered-worker-seed"}, "spec": {"config": {"ignition": {"version": "3.4.0"},
        "passwd": {"users": [{"name": "eve", "sshAuthorizedKeys": ["ssh-ed25519 AAAA"]}]}}}});
    put(&lab, "etc/machine-config-daemon/currentconfig", &config.to_string());
    let machine = boot(&lab);
    let begin = Instant::now();
    let run = create(&machine, &[]);
    assert_eq!(run.code, 0, "{run:?}");
    let with_home = begin.elapsed();
    fs::remove_dir_all(host(&lab, OWN)).unwrap();
    let run = list(&machine, &["--output", "json"]).json();
    let of_eve = |entry: &&Value| entry["path"].as_str().unwrap().starts_with("/var/home/eve");
    let lines = run["paths"].as_array().unwrap().iter().filter(of_eve).count();
    println!("{names} names of a user: {with_home:?} for a seed, {lines} lines");
    assert!((1000..1010).contains(&lines), "{lines}");
    // Declared, each of them is named.
    let mut flags = vec!["--include", "/var/home/eve", "--exclude", "/var/home/eve/name-*"];
    let run = create(&machine, &[&flags[..], &["--exclude", "/var/home/eve/deep"]].concat());
    assert_eq!(run.code, 3, "{run:?}");
    assert!(run.err.contains("/var/home/eve/endless: it has 8796093022208 bytes"), "{run:?}");
    assert!(run.err.contains("/var/home/eve/holes: it is sparse"), "{run:?}");
    as_it_was(&lab, &machine, "sparse");
    flags.extend(["--exclude", "/var/home/eve/endless", "--exclude", "/var/home/eve/holes"]);
    let run = create(&machine, &flags);
    assert!(run.code == 4 && run.err.contains("home/eve/deep/deep/"), "{run:?}");
    as_it_was(&lab, &machine, "deep");
    flags.extend(["--exclude", "/var/home/eve/deep"]);
    let run = create(&machine, &flags);
    assert_eq!(run.code, 0, "{run:?}");
}
