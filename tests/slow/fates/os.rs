//! Fields of the OS, on a throwaway machine with a real libostree sysroot: the boot loader's entry and the origin of the booted deployment
//! say what was applied. One machine gets one config after the other, so each leaves what the next one finds.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Stdio;

use machine_config_agent::model::ImageRef;
use machine_config_agent::sandbox::{AGENT as INSIDE, Booted, CONTROL, LayerFile, SandboxHost};
use serde_json::{Value, json};

use super::draw::one;
use super::refusals;
use crate::sweep;
use crate::sweep::host::{AGENT, REBOOT};
use crate::sweep::play::Chance;

/// Arguments of the machine's first deployment.
const OWN: [&str; 2] = ["rw", "console=ttyS0"];

/// Each entry may hold several arguments, and the same one twice.
const ARGUMENTS: [&str; 6] = ["quiet", "nosmt", "a=1", "a=2", "b=\"x y\"", "c=1 d=2 c=1"];

/// Most boots of one config.
const MOST_BOOTS: usize = 4;

/// The OS of a config, and the file beside it.
#[derive(Debug, Clone, Default)]
struct Drawn {
    arguments: Vec<&'static str>,
    image: Option<ImageRef>,
    extensions: Vec<&'static str>,
    kernel: Option<&'static str>,
    fips: Option<bool>,
    motd: &'static str,
}

impl Drawn {
    fn new(chance: &mut Chance, images: &[ImageRef]) -> Self {
        let arguments = ARGUMENTS.into_iter().filter(|_| chance.draw(3) == 1).collect();
        let extensions = if chance.draw(6) == 1 {
            vec![one(chance, &["usbguard", "sandboxed-containers"])]
        } else {
            vec![]
        };
        Self {
            arguments,
            image: (chance.draw(2) == 1).then(|| one(chance, images)),
            extensions,
            kernel: one(chance, &[None, None, None, None, None, Some("default"), Some(""), Some("realtime")]),
            fips: one(chance, &[None, None, None, None, None, Some(false), Some(false), Some(true)]),
            motd: one(chance, &["one", "two"]),
        }
    }

    fn document(&self, name: &str) -> Value {
        let file = json!({"path": "/etc/motd", "overwrite": true, "contents": {"source": format!("data:,{}", self.motd)}});
        let mut spec = json!({"config": {"ignition": {"version": "3.4.0"}, "storage": {"files": [file]}}});
        let fields = [
            ("kernelArguments", json!(self.arguments)),
            ("osImageURL", self.image.as_ref().map_or(Value::Null, |image| json!(image.to_string()))),
            ("extensions", json!(self.extensions)),
            ("kernelType", json!(self.kernel)),
            ("fips", json!(self.fips)),
        ];
        for (field, value) in fields.into_iter().filter(|(_, value)| !value.is_null() && *value != json!([]))
        {
            spec[field] = value;
        }
        json!({"apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig", "metadata": {"name": name}, "spec": spec})
    }

    /// The fields that libostree alone can't bring.
    fn refused(&self) -> BTreeSet<&'static str> {
        let kernel = self.kernel == Some("realtime");
        let fields = [("spec.extensions", !self.extensions.is_empty()), ("spec.kernelType", kernel)];
        fields.into_iter().filter(|(_, is)| *is).map(|(field, _)| field).collect()
    }
}

/// Facts of a host, read without the agent.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Facts {
    arguments: Vec<String>,
    digest: String,
    deployment: std::path::PathBuf,
    motd: String,
    etc: Vec<(String, Vec<u8>)>,
}

struct Machine {
    host: SandboxHost,
    booted: Option<Booted>,
}

impl Machine {
    fn booted(&self) -> &Booted {
        self.booted.as_ref().unwrap()
    }

    fn reboot(&mut self) {
        self.booted.take().unwrap().shutdown().unwrap();
        self.booted = Some(self.host.boot().unwrap());
    }

    fn run(&self, words: &[&str]) -> (i32, String, String) {
        let words = [&[INSIDE][..], words].concat();
        let output = self.booted().command(words).stdin(Stdio::null()).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.code().unwrap_or(-1), text(&output.stdout), text(&output.stderr))
    }

    fn apply(&mut self, to: &str) -> (i32, String, String) {
        for _ in 0..MOST_BOOTS {
            let ran = self.run(&["apply", "--yes", "--reboot-by", "supervisor", "--to", to]);
            if ran.0 != REBOOT {
                return ran;
            }
            self.reboot();
        }
        panic!("reboots without end")
    }

    fn facts(&self) -> Facts {
        let root = self.booted().root();
        let words = words(self.booted().kargs());
        let mut arguments: Vec<String> =
            words.into_iter().filter(|word| !word.starts_with("ostree=")).collect();
        arguments.sort_unstable();
        let origin = fs::read_to_string(format!("{}.origin", root.display())).unwrap();
        let digest = origin.lines().find_map(|line| line.split_once("@sha256:")).map_or("", |(_, hex)| hex);
        let mut etc = Vec::new();
        read(&root.join("etc"), &mut etc);
        let motd = fs::read_to_string(root.join("etc/motd")).unwrap();
        Facts { arguments, digest: digest.to_owned(), deployment: root, motd, etc }
    }
}

/// Every file of a directory but the agent's copies for machine-config-daemon.
fn read(directory: &Path, found: &mut Vec<(String, Vec<u8>)>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let stat = fs::symlink_metadata(&path).unwrap();
        if stat.is_dir() && !path.ends_with("etc/machine-config-daemon") {
            read(&path, found);
        } else if stat.is_file() && !path.ends_with(".pwd.lock") {
            found.push((path.display().to_string(), fs::read(&path).unwrap()));
        }
    }
    found.sort();
}

/// Splits a kernel line as the kernel does: blanks in double quotes part nothing.
fn words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut is_quoted) = (Vec::new(), String::new(), false);
    for letter in line.chars() {
        is_quoted ^= letter == '"';
        if letter.is_whitespace() && !is_quoted {
            words.extend(Some(std::mem::take(&mut word)).filter(|word| !word.is_empty()));
        } else {
            word.push(letter);
        }
    }
    words.extend(Some(word).filter(|word| !word.is_empty()));
    words
}

#[derive(Debug, Default)]
struct Counts {
    refused: u32,
    images: u32,
    arguments: u32,
    fips: u32,
}

/// Plans and applies a config, and compares each of its fields with the host.
fn play(machine: &mut Machine, name: &str, drawn: &Drawn, counts: &mut Counts) -> Result<(), String> {
    fs::write(machine.host.control().join(format!("{name}.json")), drawn.document(name).to_string()).unwrap();
    let to = Path::new(CONTROL).join(format!("{name}.json"));
    let to = to.to_str().unwrap();
    let before = machine.facts();
    let (code, out, err) = machine.run(&["plan", "--output", "json", "--to", to]);
    let plan: Value = serde_json::from_str(&out).map_err(|_| format!("no JSON: {code} {out}{err}"))?;
    let refusals = refusals(&plan);
    let fips_on = fs::read_to_string("/proc/sys/crypto/fips_enabled").is_ok_and(|text| text.trim() == "1");
    let ran = machine.apply(to);
    let after = machine.facts();
    let fields: BTreeSet<&str> = refusals.iter().map(|(field, _)| field.as_str()).collect();
    if !refusals.is_empty() {
        counts.refused += 1;
        if ran.0 != code || code != 3 {
            return Err(format!(
                "refused by the plan with {code}, but apply ended with {}: {}",
                ran.0, ran.2
            ));
        }
        if before != after {
            return Err(format!("refused, and the host is not as before: {before:?} {after:?}"));
        }
        let expected = drawn.refused();
        // A running host keeps the mode of its kernel.
        let of_fips = fields.contains("spec.fips") && drawn.fips.unwrap_or_default() != fips_on;
        let others: BTreeSet<&str> = fields.iter().copied().filter(|field| *field != "spec.fips").collect();
        // What no host can get to is said before what is in the way on this one.
        let is_whole = if of_fips { others.is_subset(&expected) } else { others == expected };
        return if is_whole { Ok(()) } else { Err(format!("refused for {fields:?}, not {expected:?}")) };
    }
    if !drawn.refused().is_empty() {
        return Err(format!("not refused: {:?}: apply ended with {}: {}", drawn.refused(), ran.0, ran.2));
    }
    if ran.0 != 0 {
        return Err(format!("planned, but apply ended with {}: {}", ran.0, ran.2));
    }
    let mut arguments: Vec<String> = OWN.map(str::to_owned).to_vec();
    arguments.extend(drawn.arguments.iter().flat_map(|entry| words(entry)));
    arguments.sort_unstable();
    let digest = drawn.image.as_ref().map_or(before.digest.clone(), |image| {
        image.digest().to_string().trim_start_matches("sha256:").to_owned()
    });
    counts.arguments += u32::try_from(drawn.arguments.len()).unwrap();
    counts.images += u32::from(digest != before.digest);
    let expected = (arguments, digest, drawn.motd.to_owned());
    let found = (after.arguments, after.digest, after.motd);
    if found != expected {
        return Err(format!("found {found:?}, not {expected:?}"));
    }
    let named: Vec<&str> =
        plan["notApplied"].as_array().unwrap().iter().map(|one| one["field"].as_str().unwrap()).collect();
    let expected: &[&str] = if drawn.fips == Some(true) && !fips_on { &["spec.fips"] } else { &[] };
    counts.fips += u32::from(!expected.is_empty());
    if named != expected {
        return Err(format!("{named:?} are named as not applied, not {expected:?}"));
    }
    let (code, out, err) = machine.run(&["verify"]);
    if code == 0 { Ok(()) } else { Err(format!("verify finds a difference: {out}{err}")) }
}

/// A machine with three images, the first of which it boots.
fn machine(home: &Path) -> Result<(Machine, Vec<ImageRef>), String> {
    let host = SandboxHost::create(&home.join("world"), Path::new(AGENT), &BTreeMap::new(), &|_| {});
    let host = host.map_err(|error| error.to_string())?;
    let mut images = vec![host.image("v1").unwrap()];
    for tag in ["v2", "v3"] {
        let layer = LayerFile { path: "usr/lib/version".to_owned(), mode: 0o644, contents: tag.into() };
        images.push(host.derive(&images[0], tag, &[layer], &BTreeMap::new()).unwrap());
    }
    let booted = Some(host.boot().map_err(|error| error.to_string())?);
    Ok((Machine { host, booted }, images))
}

/// Kernel arguments, images, extensions, kernels and FIPS: each is applied, refused or named, and the boot loader's entry, the origin and
/// the files confirm it. `OS_CONFIGS` and `MODEL_SEED` set length and seed.
#[test]
fn every_field_of_os_is_applied_refused_or_named() {
    let number =
        |name: &str, default| std::env::var(name).map_or(default, |text| text.parse::<u64>().unwrap());
    let home = sweep::scratch();
    let (mut machine, images) = match machine(home.path()) {
        Ok(made) => made,
        // A place without namespaces, ostree or skopeo; where everything is built, that is a failure.
        Err(why) if std::env::var_os("CI").is_none() => {
            return crate::ran::not_run("every_field_of_os_is_applied_refused_or_named", &why);
        }
        Err(why) => panic!("no real sysroot can be played here: {why}"),
    };
    let mut chance = Chance(number("MODEL_SEED", 1));
    let mut counts = Counts::default();
    let mut course = Vec::new();
    for at in 0..number("OS_CONFIGS", 18) {
        let (mut drawn, name) = (Drawn::new(&mut chance, &images), format!("config-{at}"));
        if at == 0 {
            // A host that no config managed may be asked for a mode that only an installation sets.
            drawn = Drawn { fips: Some(true), extensions: Vec::new(), kernel: None, ..drawn };
        }
        course.push(drawn.document(&name).to_string());
        if let Err(why) = play(&mut machine, &name, &drawn, &mut counts) {
            panic!("{counts:?}: {why}\nthe configs so far:\n{}", course.join("\n"));
        }
    }
    assert!(counts.refused > 0 && counts.images > 0 && counts.arguments > 0 && counts.fips > 0, "{counts:?}");
}
