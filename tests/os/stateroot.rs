//! The verbs of `stateroot`, on a real sysroot, as `tests/os/contract.rs`.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use machine_config_agent::model::{ImageRef, Sha256};
use machine_config_agent::sandbox::LayerFile;

use serde_json::Value;

use crate::backend_env::{Backend, Lab, Machine, WORKER, file, lab_of};
use crate::schema_files;
use crate::seed_image::{CLUSTER, FORMAT, INFO, USE_BOOTC, gzip, seed_image, seed_labels};

/// How a run of the agent ended.
#[derive(Debug)]
pub struct Ran {
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl Ran {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

/// A lab whose agent is the product's.
pub fn lab() -> Lab {
    let agent = |_: &Path| PathBuf::from(env!("CARGO_BIN_EXE_machine-config-agent"));
    assert_eq!(Path::new(WORKER).parent(), agent(Path::new("")).parent(), "they are beside each other");
    let lab = lab_of(Backend::Ostree, &agent);
    // The agent and skopeo, which makes a directory for itself, have run on the host before.
    for path in ["machine-config-agent", "containers/cache"] {
        let var = lab.world.dir().join("sysroot/ostree/deploy/sandbox/var/lib");
        fs::create_dir_all(var.join(path)).unwrap();
    }
    lab
}

pub fn stateroot(machine: &Machine, args: &[&str]) -> Ran {
    let output = machine.agent(&[&["stateroot"], args].concat()).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let ran =
        Ran { code: output.status.code().unwrap(), out: text(&output.stdout), err: text(&output.stderr) };
    if args.contains(&"json") {
        fits_schema(&format!("stateroot-{}", args[0]), &ran);
    }
    ran
}

/// Holds what a verb printed against the schema of its document (docs/schemas).
pub fn fits_schema(verb: &str, ran: &Ran) {
    // A verb that was cut short has printed nothing.
    let Ok(document) = serde_json::from_str::<Value>(&ran.out) else { return };
    let verb = if document.get("refused").is_some_and(Value::is_array) { "refused" } else { verb };
    schema_files::check("agent", verb, &document);
}

#[test]
fn list_shows_the_booted_stateroot() {
    let lab = lab();
    let boot = lab.boot();
    let shown = stateroot(&boot, &["list", "--output", "json"]).json();
    let stateroots = shown["stateroots"].as_array().unwrap();
    assert_eq!(stateroots.len(), 1, "{shown:#}");
    assert_eq!(stateroots[0]["name"], "sandbox");
    assert_eq!(
        (&stateroots[0]["booted"], &stateroots[0]["bootsNext"]),
        (&Value::Bool(true), &Value::Bool(true))
    );
    assert_eq!(stateroots[0]["deployments"][0]["image"], lab.v1.to_string());
    assert!(stateroot(&boot, &["list"]).out.starts_with("sandbox  (booted, boots next)\n  sandbox-"));
}

/// LCA-001: the labels are read without a layer: its blob is not there. LCA-002: another format is refused before any change.
/// LCA-003: so is another version. LCA-016: the third label makes a bootc seed.
#[test]
fn inspect_reads_labels_without_layers() {
    let lab = lab();
    let images = lab.world.dir().join("images");
    let before: Vec<_> = blobs(&images);
    let members = BTreeMap::from([("etc.tgz".to_owned(), b"x".to_vec())]);
    let mut bootc = seed_labels();
    bootc.insert(USE_BOOTC.to_owned(), "true".to_owned());
    let other = BTreeMap::from([(FORMAT.to_owned(), "3".to_owned()), (CLUSTER.to_owned(), INFO.to_owned())]);
    let [seed, bootc, other] =
        [seed_labels(), bootc, other].map(|labels| seed_image(&images, &members, &labels));
    // The layer is the one blob that is no JSON.
    for name in blobs(&images).into_iter().filter(|name| !before.contains(name)) {
        let path = images.join("blobs/sha256").join(name);
        if !fs::read(&path).unwrap().starts_with(b"{") {
            fs::remove_file(path).unwrap();
        }
    }
    let boot = lab.boot();
    let seed = seed.to_string();
    let ran = stateroot(&boot, &["inspect", &seed, "--output", "json"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    let shown = ran.json();
    let expected =
        [("layout", "classic"), ("version", "4.17.2"), ("stateroot", "rhcos_4.17.2"), ("image", &*seed)];
    for (key, value) in expected {
        assert_eq!(shown[key], value, "{shown:#}");
    }
    assert_eq!(shown["cluster"]["cluster_name"], "seed");
    assert!(
        shown["download"].as_u64().unwrap() > 0 && shown["refusals"] == serde_json::json!([]),
        "{shown:#}"
    );
    let ran = stateroot(&boot, &["inspect", &bootc.to_string(), "--output", "json"]);
    assert_eq!(ran.json()["layout"], "bootc", "{ran:?}");

    let ran = stateroot(&boot, &["inspect", &seed, "--version", "4.17.3"]);
    assert!(
        ran.code == 3 && ran.out.contains("Refused    version: the seed is of version 4.17.2"),
        "{ran:?}"
    );
    let ran = stateroot(&boot, &["inspect", &other.to_string()]);
    assert!(ran.code == 3 && ran.err.contains("format version 3; this agent reads version 4"), "{ran:?}");
    let ran = stateroot(&boot, &["inspect", &lab.v2.to_string()]);
    assert!(ran.code == 3 && ran.err.contains("is not a seed image"), "{ran:?}");
    assert!(ran.err.contains("\nNext: "), "{ran:?}");
}

fn blobs(images: &Path) -> Vec<String> {
    let entries = fs::read_dir(images.join("blobs/sha256")).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

/// What every path below a directory is: kind, mode, owner, time, attributes and contents.
fn snapshot(top: &Path, left_out: &[&str]) -> BTreeMap<String, String> {
    fn walk(top: &Path, at: &Path, left_out: &[&str], found: &mut BTreeMap<String, String>) {
        let name = at.strip_prefix(top).unwrap().to_str().unwrap().to_owned();
        if left_out.contains(&&*name) {
            return;
        }
        let stat = fs::symlink_metadata(at).unwrap();
        let mut names = vec![0; 4096];
        let length = rustix::fs::llistxattr(at, &mut names[..]).unwrap_or_default();
        let mut attributes: Vec<String> = names[..length]
            .split(|byte| *byte == 0)
            .filter(|name| !name.is_empty())
            .map(|name| {
                let mut value = vec![0; 65536];
                let length = rustix::fs::lgetxattr(at, name, &mut value[..]).unwrap_or_default();
                format!("{}={:?}", String::from_utf8_lossy(name), &value[..length])
            })
            .collect();
        attributes.sort();
        let contents = if stat.is_file() {
            Sha256::digest(&fs::read(at).unwrap()).to_string()
        } else if stat.is_symlink() {
            fs::read_link(at).unwrap().display().to_string()
        } else {
            String::new()
        };
        let (user, group) = (stat.uid(), stat.gid());
        let time = (stat.mtime(), stat.mtime_nsec());
        found.insert(name, format!("{:o} {user} {group} {time:?} {attributes:?} {contents}", stat.mode()));
        if stat.is_dir() {
            for entry in fs::read_dir(at).unwrap() {
                walk(top, &entry.unwrap().path(), left_out, found);
            }
        }
    }
    let mut found = BTreeMap::new();
    walk(top, top, left_out, &mut found);
    found
}

/// Compares what belongs to the running system with what it was.
pub fn unchanged(lab: &Lab, before: &[BTreeMap<String, String>], when: &str) {
    let now = running(lab);
    assert_eq!(now.len(), before.len(), "{when}: kernels came or went");
    for (before, now) in before.iter().zip(&now) {
        let changed: Vec<_> = before
            .keys()
            .chain(now.keys())
            .filter(|path| before.get(*path) != now.get(*path))
            .map(|path| format!("{path}: {:?} -> {:?}", before.get(path), now.get(path)))
            .collect();
        assert!(changed.is_empty(), "{when}:\n{}", changed.join("\n"));
    }
}

/// What of a world belongs to the running system: its stateroot without the agent's own state, its kernels and its boot
/// entry, but for the numbers and titles that libostree gives entries anew.
pub fn running(lab: &Lab) -> Vec<BTreeMap<String, String>> {
    let sysroot = lab.world.dir().join("sysroot");
    let own = ["var/lib/machine-config-agent"];
    let mut all = vec![snapshot(&sysroot.join("ostree/deploy/sandbox"), &own)];
    for entry in fs::read_dir(sysroot.join("boot/ostree")).unwrap() {
        let entry = entry.unwrap();
        if entry.file_name().to_str().unwrap().starts_with("sandbox-") {
            all.push(snapshot(&entry.path(), &[]));
        }
    }
    let entries = fs::read_dir(sysroot.join("boot/loader/entries")).unwrap();
    let mut texts: Vec<(u64, String)> = entries
        .map(|entry| {
            let text = fs::read_to_string(entry.unwrap().path()).unwrap();
            let version = text.lines().find_map(|line| line.strip_prefix("version ")).unwrap();
            let version = version.trim().parse().unwrap();
            let line = |line: &str| {
                line.split(' ').filter(|word| !word.starts_with("ostree=")).collect::<Vec<_>>().join(" ")
            };
            let lines = text
                .lines()
                .filter(|line| !line.starts_with("version ") && !line.starts_with("title "))
                .map(line);
            (version, lines.collect::<Vec<_>>().join("\n"))
        })
        .collect();
    texts.sort();
    all.push(BTreeMap::from([("default entry".to_owned(), texts.pop().unwrap().1)]));
    all
}

pub fn run(program: &str, args: &[&str]) -> String {
    let output = Command::new(program).args(args).output().unwrap();
    assert!(output.status.success(), "{program} {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// A seed as lifecycle-agent makes one, with GNU tar: the system of v1 with one file more.
pub struct SeedFiles {
    dir: tempfile::TempDir,
    pub commit: String,
}

impl SeedFiles {
    /// The seed's system is that of the running host, when it is to share its commit.
    pub fn new(lab: &Lab, shared: bool) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
        let sysroot = lab.world.dir().join("sysroot/ostree/repo").to_str().unwrap().to_owned();
        let deployments = fs::read_dir(lab.world.dir().join("sysroot/ostree/deploy/sandbox/deploy")).unwrap();
        let mut names = deployments.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let base = names.find_map(|name| name.strip_suffix(".0").map(str::to_owned)).unwrap();
        run("ostree", &[&format!("--repo={}", at("repo")), "init", "--mode=bare"]);
        run("ostree", &[&format!("--repo={}", at("repo")), "pull-local", &sysroot, &base]);
        fs::create_dir_all(dir.path().join("more/usr/share")).unwrap();
        fs::write(dir.path().join("more/usr/share/seed"), "from the seed\n").unwrap();
        let commit = if shared {
            base
        } else {
            let (tree, more) = (format!("--tree=ref={base}"), format!("--tree=dir={}", at("more")));
            let metadata = "--add-metadata-string=version=seed";
            let repo = format!("--repo={}", at("repo"));
            run(
                "ostree",
                &[
                    &repo,
                    "commit",
                    "-b",
                    "seed",
                    "--bootable",
                    &tree,
                    &more,
                    metadata,
                    "--canonical-permissions",
                ],
            )
        };
        Self { dir, commit }
    }

    /// A path below its directory, in which `repo` is.
    pub fn at(&self, path: &str) -> PathBuf {
        self.dir.path().join(path)
    }

    pub fn put(&self, path: &str, text: &str) -> PathBuf {
        let path = self.dir.path().join("trees").join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        path
    }

    pub fn tar(&self, directory: &str, what: &str) -> Vec<u8> {
        let archive = self.dir.path().join("archive.tgz");
        let directory = self.dir.path().join(directory);
        let (archive_text, directory) = (archive.to_str().unwrap(), directory.to_str().unwrap());
        run(
            "tar",
            &["--xattrs", "--xattrs-include=*", "--acls", "-czf", archive_text, "-C", directory, what],
        );
        fs::read(archive).unwrap()
    }

    /// All files of the seed.
    pub fn members(&self) -> BTreeMap<String, Vec<u8>> {
        let config = r#"{"metadata":{"name":"rendered-seed"},"spec":{"kernelArguments":["a=\"b c\"","d=$HOME e=`id`"],"fips":true}}"#;
        let status = format!(
            r#"{{"deployments":[{{"booted":true,"id":"rhcos-{}.0","checksum":"{}"}}]}}"#,
            self.commit, self.commit
        );
        // A second call makes all of it again.
        drop(fs::remove_dir_all(self.dir.path().join("trees")));
        let labelled = self.put("etc/seed.d/label", "label\n");
        // The value has the bytes that a parser of lines would stop at.
        for (name, value) in
            [("user.seed", &b"1\n2=\0"[..]), ("security.selinux", b"system_u:object_r:etc_t:s0\0")]
        {
            rustix::fs::setxattr(&labelled, name, value, rustix::fs::XattrFlags::empty()).unwrap();
        }
        let acl = [
            2, 0, 0, 0, 1, 0, 6, 0, 255, 255, 255, 255, 2, 0, 4, 0, 77, 0, 0, 0, 4, 0, 4, 0, 255, 255, 255,
            255, 16, 0, 4, 0, 255, 255, 255, 255, 32, 0, 0, 0, 255, 255, 255, 255,
        ];
        rustix::fs::setxattr(&labelled, "system.posix_acl_access", &acl, rustix::fs::XattrFlags::empty())
            .unwrap();
        self.put("etc/hostname", "seed\n");
        let data = self.put("var/lib/seed/data", "data of the seed\n");
        std::os::unix::fs::chown(&data, Some(4242), Some(4243)).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", data.with_file_name("link")).unwrap();
        fs::hard_link(&data, data.with_file_name("second")).unwrap();
        let text = |text: &str| text.as_bytes().to_vec();
        BTreeMap::from(
            [
                ("etc.tgz", self.tar("trees", "etc")),
                ("var.tgz", self.tar("trees", "var")),
                ("ostree.tgz", self.tar("repo", ".")),
                ("etc.deletions", text("/etc/motd\n/etc/not-there\n")),
                ("rpm-ostree.json", text(&status)),
                ("mco-currentconfig.json", text(config)),
                ("ostree-rhcos-seed.0.origin", text("[origin]\nrefspec=seed\n")),
                ("containers.list", text("registry.test/b@sha256:2\nregistry.test/a@sha256:1\n")),
                ("manifest.json", text("{}")),
            ]
            .map(|(name, bytes)| (name.to_owned(), bytes)),
        )
    }

    pub fn image(&self, lab: &Lab, members: &BTreeMap<String, Vec<u8>>) -> String {
        assert!(self.dir.path().exists());
        seed_image(&lab.world.dir().join("images"), members, &seed_labels()).to_string()
    }
}

pub const NAME: &str = "rhcos_4.17.2";

/// Nothing of a stateroot is there: neither a directory, nor what was fetched, nor a record.
pub fn nothing_left(lab: &Lab) {
    let sysroot = lab.world.dir().join("sysroot");
    let names = |path: &str| -> Vec<String> {
        let entries = fs::read_dir(sysroot.join(path)).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    };
    assert_eq!(names("ostree/deploy"), ["sandbox"]);
    for path in ["ostree", "boot/ostree"] {
        let left: Vec<_> =
            names(path).into_iter().filter(|name| name.contains("seed") || name.starts_with(NAME)).collect();
        assert_eq!(left, [""; 0], "{path}");
    }
    let state = sysroot.join("ostree/deploy/sandbox/var/lib/machine-config-agent");
    assert!(
        !state.join("stateroot.json").exists() && !state.join(format!("stateroots/{NAME}.json")).exists()
    );
    run("ostree", &["fsck", &format!("--repo={}", sysroot.join("ostree/repo").display())]);
}

/// LCA-005: running stateroot, default entry and kernels stay bit-identical. LCA-006: added and changed files of `/etc` with labels,
/// attributes and ACLs, deleted ones absent. LCA-007: `/var` in the new stateroot only. LCA-008: kernel arguments survive as
/// they are. LCA-017: the world has no bootc that could install anything.
#[test]
fn prepare_makes_second_system_beside_the_running_one() {
    let lab = lab();
    let seed = SeedFiles::new(&lab, false);
    let image = seed.image(&lab, &seed.members());
    let boot = lab.boot();
    let before = running(&lab);
    let planned =
        stateroot(&boot, &["prepare", &image, "--version", "4.17.2", "--plan", "--output", "json"]).json();
    assert_eq!(planned["steps"][0]["op"], "fetch-seed", "{planned:#}");
    assert_eq!(planned["steps"][1], serde_json::json!({"op": "deploy-stateroot", "target": NAME}));
    nothing_left(&lab);
    let ran = stateroot(&boot, &["prepare", &image, "--version", "4.17.2", "--output", "json"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    let made = ran.json();
    assert_eq!(
        made["containers"],
        serde_json::json!(["registry.test/a@sha256:1", "registry.test/b@sha256:2"])
    );
    unchanged(&lab, &before, "after it");

    let sysroot = lab.world.dir().join("sysroot");
    let new = sysroot.join(format!("ostree/deploy/{NAME}/deploy/{}.0", seed.commit));
    assert_eq!(made["deployment"], format!("{NAME}-{}.0", seed.commit));
    assert_eq!(fs::read_to_string(new.join("usr/share/seed")).unwrap(), "from the seed\n");
    assert_eq!(fs::read_to_string(new.join("etc/hostname")).unwrap(), "seed\n");
    assert!(!new.join("etc/motd").exists() && new.join("usr/etc/motd").exists(), "deleted by the seed");
    assert!(new.join("etc/passwd").exists(), "the image's own");
    let trees = seed.dir.path().join("trees");
    assert_eq!(snapshot(&new.join("etc/seed.d"), &[]), snapshot(&trees.join("etc/seed.d"), &[]));
    let var = sysroot.join(format!("ostree/deploy/{NAME}/var"));
    assert_eq!(snapshot(&var.join("lib/seed"), &[]), snapshot(&trees.join("var/lib/seed"), &[]));
    let inode = |name: &str| fs::metadata(var.join("lib/seed").join(name)).unwrap().ino();
    assert_eq!(inode("data"), inode("second"));
    assert!(var.join("tmp").exists(), "what a stateroot has anyway");

    let listed = stateroot(&boot, &["list", "--output", "json"]).json();
    let prepared = listed["stateroots"].as_array().unwrap().iter().find(|one| one["name"] == NAME).unwrap();
    assert_eq!((&prepared["booted"], &prepared["bootsNext"]), (&Value::Bool(false), &Value::Bool(false)));
    // The host's own `rw` and console come first.
    let expected = serde_json::json!([
        "rw",
        "console=ttyS0",
        "fips=1",
        "boot=LABEL=boot",
        "a=\"b c\"",
        "d=$HOME",
        "e=`id`",
        "ibu=4.17.2"
    ]);
    assert_eq!(prepared["deployments"][0]["kernelArguments"], expected);
    // Once more finds it done; another image of the version does not replace it.
    let again = stateroot(&boot, &["prepare", &image, "--version", "4.17.2", "--output", "json"]);
    assert_eq!(again.json(), made, "{again:?}");
    let other = seed.image(&lab, &seed.members().into_iter().chain([("x".to_owned(), vec![1])]).collect());
    let ran = stateroot(&boot, &["prepare", &other, "--version", "4.17.2"]);
    assert!(ran.code == 4 && ran.err.contains("exists already"), "{ran:?}");
    // The next boot is the old system's.
    boot.shutdown();
    let second = lab.boot();
    unchanged(&lab, &before, "after it");
    assert_eq!(stateroot(&second, &["list"]).code, 0);
}

/// The header of an entry without contents.
fn empty_entry(kind: tar::EntryType) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(kind);
    header.set_size(0);
    header.set_mode(0o644);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header
}

fn name_that_leads_out() -> Vec<u8> {
    let mut tar = tar::Builder::new(Vec::new());
    let mut header = empty_entry(tar::EntryType::Regular);
    header.as_mut_bytes()[..12].copy_from_slice(b"var/../../ev");
    header.set_cksum();
    tar.append(&header, &[][..]).unwrap();
    gzip(&tar.into_inner().unwrap())
}

/// What comes after the line end would look like a next step.
fn name_that_moves_terminal() -> Vec<u8> {
    let mut tar = tar::Builder::new(Vec::new());
    let mut header = empty_entry(tar::EntryType::Regular);
    let name = b"var/../\x1b[2J\nNext: ob\x07ey";
    header.as_mut_bytes()[..name.len()].copy_from_slice(name);
    header.set_cksum();
    tar.append(&header, &[][..]).unwrap();
    gzip(&tar.into_inner().unwrap())
}

fn name_through_link() -> Vec<u8> {
    let mut tar = tar::Builder::new(Vec::new());
    tar.append_link(&mut empty_entry(tar::EntryType::Symlink), "var/out", "/").unwrap();
    tar.append_link(&mut empty_entry(tar::EntryType::Link), "var/second", "var/out/etc/passwd").unwrap();
    gzip(&tar.into_inner().unwrap())
}

/// LCA-019, LCA-003: what is missing, damaged, or of another version is refused before there is a stateroot, and nothing stays.
#[test]
fn bad_seeds_are_refused_before_the_stateroot_exists() {
    let lab = lab();
    let seed = SeedFiles::new(&lab, false);
    let good = seed.members();
    let boot = lab.boot();
    let before = running(&lab);
    let changed = |name: &str, bytes: Vec<u8>| {
        let mut members = good.clone();
        members.insert(name.to_owned(), bytes);
        members
    };
    let without = |name: &str| {
        let mut members = good.clone();
        members.remove(name).unwrap();
        members
    };
    let half = |name: &str| good[name][..good[name].len() / 2].to_vec();
    let flipped = |name: &str| {
        let mut bytes = good[name].clone();
        let last = bytes.len() - 6;
        bytes[last] ^= 1;
        bytes
    };
    let status = good["rpm-ostree.json"].clone();
    let status = String::from_utf8(status).unwrap().replace(&seed.commit, &"0".repeat(64));
    let cases = [
        ("etc.tgz missing", without("etc.tgz")),
        ("ostree-*.origin missing", without("ostree-rhcos-seed.0.origin")),
        ("ostree.tgz, rpm-ostree.json missing", {
            let mut members = without("ostree.tgz");
            members.remove("rpm-ostree.json");
            members
        }),
        ("etc.tgz", changed("etc.tgz", half("etc.tgz"))),
        ("var.tgz", changed("var.tgz", flipped("var.tgz"))),
        ("ostree.tgz", changed("ostree.tgz", half("ostree.tgz"))),
        ("var.tgz", changed("var.tgz", b"rubbish".to_vec())),
        ("leads out of var", changed("var.tgz", name_that_leads_out())),
        ("var.tgz: second", changed("var.tgz", name_through_link())),
        ("leads out of var", changed("var.tgz", name_that_moves_terminal())),
        ("etc.deletions", changed("etc.deletions", b"/usr/bin/sh\n".to_vec())),
        ("manifest.json of the seed can't be read: it is of version 4.17.3", {
            changed("manifest.json", br#"{"seed_cluster_ocp_version":"4.17.3"}"#.to_vec())
        }),
        ("mco-currentconfig.json", changed("mco-currentconfig.json", b"{".to_vec())),
        ("ostree.tgz", changed("rpm-ostree.json", status.into_bytes())),
    ];
    for (told, members) in cases {
        let ran = stateroot(&boot, &["prepare", &seed.image(&lab, &members), "--version", "4.17.2"]);
        assert!(matches!(ran.code, 3 | 4) && ran.err.contains(told), "{told}: {ran:?}");
        assert!(ran.err.contains("Next: ") && !ran.err.contains("\nNext: ob"), "{ran:?}");
        assert!(!ran.err.chars().any(|c| c.is_control() && c != '\n'), "{ran:?}");
        nothing_left(&lab);
    }
    let image = seed.image(&lab, &good);
    let ran = stateroot(&boot, &["prepare", &image, "--version", "4.17.3"]);
    assert!(ran.code == 3 && ran.err.contains("the seed is of version 4.17.2, not 4.17.3"), "{ran:?}");
    nothing_left(&lab);
    unchanged(&lab, &before, "after it");
}

/// LCA-012: killed at every point where it could stop, the old system is as it was, and the same command brings it to its end.
#[test]
fn prepare_and_remove_recover_from_kill_at_every_fail_point() {
    let lab = lab();
    let seed = SeedFiles::new(&lab, false);
    let image = seed.image(&lab, &seed.members());
    let boot = lab.boot();
    let before = running(&lab);
    let prepare = ["stateroot", "prepare", &image, "--version", "4.17.2"];
    let remove = ["stateroot", "remove", NAME, "--yes"];
    let with = |args: &[&str], point: &str| boot.agent(args).env("MCA_FAIL_POINT", point).output().unwrap();
    let counted = |args: &[&str]| -> u32 {
        let output = with(args, "count");
        let text = String::from_utf8(output.stdout).unwrap();
        let count = text
            .lines()
            .find_map(|line| line.strip_prefix("fail points: "))
            .unwrap_or_else(|| panic!("{text}"));
        count.parse().unwrap()
    };
    let points = counted(&prepare);
    let mut removals = counted(&remove);
    nothing_left(&lab);
    assert!(points > 5 && removals > 3, "{points} {removals}");
    for point in 1..=points {
        let killed = with(&prepare, &format!("kill:{point}"));
        assert_eq!(killed.status.code(), Some(128 + 9), "{point}: {killed:?}");
        unchanged(&lab, &before, &format!("killed at {point}"));
        if point % 2 == 0 {
            // Something else is asked for: what was cut short is undone.
            let ran = stateroot(&boot, &["remove", NAME, "--yes"]);
            assert!(ran.code == 0 || ran.err.contains("there is no stateroot"), "{point}: {ran:?}");
        } else {
            let ran = stateroot(&boot, &prepare[1..]);
            assert_eq!(ran.code, 0, "{point}: {ran:?}");
            if removals > 0 {
                let killed = with(&remove, &format!("kill:{removals}"));
                assert_eq!(killed.status.code(), Some(128 + 9), "{removals}: {killed:?}");
                removals -= 1;
            }
            let ran = stateroot(&boot, &remove[1..]);
            assert!(ran.code == 0 || ran.err.contains("there is no stateroot"), "{point}: {ran:?}");
        }
        nothing_left(&lab);
        unchanged(&lab, &before, &format!("after {point}"));
    }
}

/// A system with layered packages comes with their base, without which rpm-ostree shows no deployment of the host; a seed that lacks it is
/// refused. The base stays until the stateroot goes.
#[test]
fn base_of_layered_packages_comes_along() {
    let lab = lab();
    let mut seed = SeedFiles::new(&lab, false);
    let (base, own) = (seed.commit.clone(), format!("--repo={}", seed.at("repo").display()));
    let (tree, parent) = (format!("--tree=ref={base}"), format!("--parent={base}"));
    let layered = "--add-metadata=rpmostree.clientlayer=true";
    seed.commit = run("ostree", &[&own, "commit", "-b", "layered", "--bootable", &tree, &parent, layered]);
    let image = seed.image(&lab, &seed.members());
    let boot = lab.boot();
    let prepare = |image: &str| stateroot(&boot, &["prepare", image, "--version", "4.17.2"]);
    let host = format!("--repo={}", lab.world.dir().join("sysroot/ostree/repo").display());
    let kept = || run("ostree", &[&host, "refs", "--list", "rpmostree/base"]);
    let done = prepare(&image);
    assert_eq!(done.code, 0, "{done:?}");
    run("ostree", &[&host, "prune", "--refs-only"]);
    run("ostree", &[&host, "ls", "-R", &base]);
    assert_eq!(kept(), format!("rpmostree/base/{NAME}"));
    let removed = stateroot(&boot, &["remove", NAME, "--yes"]);
    assert_eq!((removed.code, kept()), (0, String::new()), "{removed:?}");

    let object = seed.at("repo/objects").join(&base[..2]).join(format!("{}.commit", &base[2..]));
    fs::remove_file(object).unwrap();
    let refused = prepare(&seed.image(&lab, &seed.members()));
    assert!(refused.code == 3 && refused.err.contains("the base of its packages"), "{refused:?}");
    nothing_left(&lab);
}

/// LCA-014: removal takes deployment, directory, kernels and refs; the booted stateroot is protected. LCA-018: a commit that both
/// systems share stays whole for the old one. What is staged stays staged.
#[test]
fn remove_takes_all_that_is_its_own_and_nothing_else() {
    let lab = lab();
    let seed = SeedFiles::new(&lab, true);
    let image = seed.image(&lab, &seed.members());
    let boot = lab.boot();
    let ran = stateroot(&boot, &["remove", "sandbox", "--yes"]);
    assert!(ran.code == 4 && ran.err.contains("the running system is in it"), "{ran:?}");
    let ran = stateroot(&boot, &["remove", NAME, "--yes"]);
    assert!(ran.code == 4 && ran.err.contains("there is no stateroot"), "{ran:?}");
    assert_eq!(stateroot(&boot, &["remove", "../x", "--yes"]).code, 3);
    // An update of the running system waits for its reboot.
    let config = r#"{"apiVersion":"machineconfiguration.openshift.io/v1","kind":"MachineConfig",
        "metadata":{"name":"staged"},"spec":{"config":{"ignition":{"version":"3.4.0"}},"kernelArguments":["staged=1"]}}"#;
    fs::write(boot.run_dir().join("staged.json"), config).unwrap();
    let apply = ["apply", "--to", "/run/staged.json", "--no-reboot", "--yes", "--os-backend", "ostree"];
    let output = boot.agent(&apply).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let staged = || fs::read(boot.run_dir().join("ostree/staged-deployment")).unwrap();
    let (before, kept) = (running(&lab), staged());
    let ran = stateroot(&boot, &["prepare", &image, "--version", "4.17.2"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(ran.out.contains("registry.test/a@sha256:1"), "{ran:?}");
    unchanged(&lab, &before, "after the preparation");
    assert!(staged() == kept, "what is staged stays staged");
    let unasked = stateroot(&boot, &["remove", NAME]);
    assert!(unasked.code == 2 && unasked.err.contains("--yes"), "{unasked:?}");
    let ran = stateroot(&boot, &["remove", NAME, "--yes"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    nothing_left(&lab);
    unchanged(&lab, &before, "after the removal");
    assert!(staged() == kept, "what is staged stays staged");
    boot.shutdown();
    let second = lab.boot();
    assert!(second.kargs().contains("staged=1"), "{}", second.kargs());
}

/// Makes a bootc seed, and one without the directory of the seed.
fn bootc_seeds(lab: &Lab) -> (ImageRef, ImageRef) {
    let seed = SeedFiles::new(lab, true);
    let mut labels = seed_labels();
    labels.insert(USE_BOOTC.to_owned(), "true".to_owned());
    let needed =
        ["etc.tgz", "var.tgz", "etc.deletions", "mco-currentconfig.json", "containers.list", "manifest.json"];
    let members = seed.members().into_iter().filter(|(name, _)| needed.contains(&name.as_str()));
    let layer: Vec<LayerFile> = members
        .map(|(name, contents)| LayerFile {
            path: format!("usr/lib/openshift/seed/{name}"),
            mode: 0o600,
            contents,
        })
        .collect();
    let empty = lab.world.derive(&lab.v1, "empty", &[file("etc/motd", "x\n")], &labels).unwrap();
    (lab.world.derive(&lab.v1, "seed", &layer, &labels).unwrap(), empty)
}

/// Returns whether the repository has a ref of an image.
fn has_image(lab: &Lab, image: &ImageRef) -> bool {
    let repo = format!("--repo={}", lab.world.dir().join("sysroot/ostree/repo").display());
    run("ostree", &["refs", &repo]).contains(&image.digest().to_string())
}

/// LCA-012, LCA-014: the image of a seed goes with its stateroot, also when its preparation was refused or cut short, or its removal
/// was cut after its deployment was gone.
#[test]
fn image_of_a_bootc_seed_goes_after_a_cut() {
    let lab = lab();
    let (image, empty) = bootc_seeds(&lab);
    let boot = lab.boot();
    let prepare = ["prepare", &image.to_string(), "--version", "4.17.2"];
    let remove = ["remove", NAME, "--yes"];
    assert_eq!(stateroot(&boot, &["prepare", &empty.to_string(), "--version", "4.17.2"]).code, 3);
    assert!(!has_image(&lab, &empty), "of a seed that was refused");
    // Killed at one point after the other, until it is fetched.
    let fetched = (1..50).find(|point| {
        let mut killed = boot.agent(&[&["stateroot"][..], &prepare].concat());
        let output = killed.env("MCA_FAIL_POINT", format!("kill:{point}")).output().unwrap();
        assert_eq!(output.status.code(), Some(128 + 9), "{point}: {output:?}");
        has_image(&lab, &image)
    });
    assert!(fetched.is_some());
    let ran = stateroot(&boot, &remove);
    assert!(ran.code == 0 || ran.err.contains("there is no stateroot"), "{ran:?}");
    nothing_left(&lab);
    assert!(!has_image(&lab, &image), "of a preparation that was undone");
    assert_eq!(stateroot(&boot, &prepare).code, 0);
    let sysroot = format!("--sysroot={}", lab.world.dir().join("sysroot").display());
    run("ostree", &["admin", "undeploy", &sysroot, "1"]);
    assert!(has_image(&lab, &image), "as a power cut leaves it");
    let ran = stateroot(&boot, &remove);
    assert_eq!(ran.code, 0, "{ran:?}");
    nothing_left(&lab);
    assert!(!has_image(&lab, &image), "of a stateroot without deployments");
}

/// LCA-016: a bootc seed is itself the system; one without the directory of the seed is refused.
#[test]
fn bootc_seed_is_deployed_from_its_own_commit() {
    let lab = lab();
    let (image, empty) = bootc_seeds(&lab);
    let boot = lab.boot();
    let before = running(&lab);
    let ran = stateroot(&boot, &["prepare", &empty.to_string(), "--version", "4.17.2"]);
    assert!(ran.code == 3 && ran.err.contains("no /usr/lib/openshift/seed"), "{ran:?}");
    nothing_left(&lab);
    let ran =
        stateroot(&boot, &["prepare", &image.to_string(), "--version", "4.17.2", "--keep-karg", "nothing"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    let listed = stateroot(&boot, &["list", "--output", "json"]).json();
    let prepared = listed["stateroots"].as_array().unwrap().iter().find(|one| one["name"] == NAME).unwrap();
    assert_eq!(prepared["deployments"][0]["image"], image.to_string());
    let ran = stateroot(&boot, &["remove", NAME, "--yes"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    nothing_left(&lab);
    unchanged(&lab, &before, "after it");
    assert!(!has_image(&lab, &image));
}
