//! Scenarios on a real libostree sysroot: image switches, kernel arguments, and files that go with them.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use machine_config_agent::model::ImageRef;
use machine_config_agent::sandbox::{LayerFile, SandboxHost};

use super::config::{Config, policy};
use super::host::{AGENT, Down, Kind, SweepHost};
use super::play::{Ask, Ends, Scenario};
use super::tree::{boot, file, gone};

/// Content in the image of version 2.
const SETTINGS: &str = "mode = production\n";

/// The first image's content of a file that `base` changes.
const MOTD: &str = "Welcome to the sandbox, version 1.\n";

fn base(name: &str) -> Config {
    Config::new(name).file("/etc/motd", 0o644, "a\n")
}

/// Content of the image that never gets healthy: a check, and the shortest time for it.
const CHECK: (&str, &str) = ("etc/machine-config-agent/health.d/10-app", "#!/bin/sh\nexit 7\n");
const SHORT: (&str, &str) = ("etc/machine-config-agent/settings.toml", "[health]\nwithin = '10s'\n");

/// A world with the images `v2`, which carries config `b`, `v3`, which carries none, and `v4`, which is never healthy.
struct Made {
    dir: PathBuf,
    first: ImageRef,
    carrying: ImageRef,
    bare: ImageRef,
    ill: ImageRef,
}

impl Made {
    fn new(home: &Path) -> Result<Self, String> {
        let dir = home.join("world");
        let world = SandboxHost::create(&dir, Path::new(AGENT), &BTreeMap::new(), &|_| {})
            .map_err(|e| e.to_string())?;
        let first = world.image("v1").unwrap();
        let layer =
            |path: &str, text: &str| LayerFile { path: path.to_owned(), mode: 0o644, contents: text.into() };
        let labels = BTreeMap::from([("machineconfig".to_owned(), "b".to_owned())]);
        let carried = [layer("etc/app.conf", SETTINGS), layer("etc/motd", "a\n")];
        let carrying = world.derive(&first, "v2", &carried, &labels).unwrap();
        let bare = world.derive(&first, "v3", &[layer("usr/lib/new", "new\n")], &BTreeMap::new()).unwrap();
        let check = LayerFile { mode: 0o755, ..layer(CHECK.0, CHECK.1) };
        let ill = world.derive(&first, "v4", &[check, layer(SHORT.0, SHORT.1)], &BTreeMap::new()).unwrap();
        fs::write(dir.join("control/policy.json"), policy()).unwrap();
        let config = base("a");
        fs::write(dir.join("control/a.json"), config.text()).unwrap();
        let mut host = SweepHost::boot(Kind::Machine, &dir)?;
        for _ in 0..3 {
            let ran = host.apply("a", None, None)?;
            if ran.code == 0 {
                host.down(Down::Orderly)?;
                return Ok(Self { dir, first, carrying, bare, ill });
            }
            host.reboot(Down::Orderly)?;
        }
        Err("the machine can't be brought to its first config".to_owned())
    }

    fn scenario(&self, name: &'static str, ask: Ask) -> Scenario {
        let dir = self.dir.with_file_name(name.replace(' ', "-"));
        SweepHost::copy(&self.dir, &dir);
        fs::write(dir.join(format!("control/{}.json", ask.config.name)), ask.config.text()).unwrap();
        let (kind, asks, instead, lost) = (Kind::Machine, vec![ask], None, Vec::new());
        Scenario { name, kind, dir, asks, instead, lost, history: 1..=1, twice: 6, stride: 1, spared: 0 }
    }
}

/// An image that does not get healthy, is left for the one before, and is followed by another config.
fn unhealthy(made: &Made) -> Scenario {
    let changes = vec![image(&made.ill), file(CHECK.0, 0o755, CHECK.1), file(SHORT.0, 0o644, SHORT.1)];
    let failing =
        Ask { ends: Ends::Fails, image: Some(made.ill.to_string()), ..Ask::new(base("h"), changes) };
    let corrected = Ask::new(base("i").file("/etc/motd", 0o644, "i\n"), vec![file("etc/motd", 0o644, "i\n")]);
    let scenario = made.scenario("an image that is not healthy", failing);
    fs::write(scenario.dir.join("control/i.json"), corrected.config.text()).unwrap();
    let asks = scenario.asks.into_iter().chain([corrected]).collect();
    // The staging of an image is killed in above; each trial takes its ten seconds, so not every point is played.
    Scenario { asks, history: 2..=2, spared: 1, stride: 4, twice: 3, ..scenario }
}

/// An image that is left again: what it alone has brought stays, brought over by the shutdown, or written in the new boot
/// where the machine went down before that was asked for.
fn left(made: &Made) -> Scenario {
    let app = || file("etc/app.conf", 0o644, SETTINGS);
    let config = |name: &str| base(name).file("/etc/app.conf", 0o644, SETTINGS);
    let entering = Ask {
        image: Some(made.carrying.to_string()),
        ..Ask::new(config("b"), vec![image(&made.carrying), app()])
    };
    let leaving = Ask::new(config("l").os_image(&made.first), vec![app()]);
    let scenario = made.scenario("an image that is left", entering);
    fs::write(scenario.dir.join("control/l.json"), leaving.config.text()).unwrap();
    let asks = scenario.asks.into_iter().chain([leaving]).collect();
    let lost = vec![gone("etc/app.conf"), file("etc/motd", 0o644, MOTD)];
    // Kills on the way in are played above.
    Scenario { asks, lost, history: 2..=3, spared: 2, stride: 2, twice: 5, ..scenario }
}

/// The kernel arguments of the first deployment, and more, sorted.
fn kargs(more: &str) -> (String, Option<super::tree::Entry>) {
    let mut all: Vec<&str> = ["rw", "console=ttyS0"].into_iter().chain(more.split_whitespace()).collect();
    all.sort_unstable();
    boot("kargs", &all.join(" "))
}

fn image(image: &ImageRef) -> (String, Option<super::tree::Entry>) {
    let digest = image.digest().to_string();
    boot("image", digest.trim_start_matches("sha256:"))
}

/// The scenarios, or why no machine can be made here.
pub fn scenarios(home: &Path) -> Result<Vec<Scenario>, String> {
    let made = Made::new(home)?;
    let with = |ask: Ask, image: &ImageRef| Ask { image: Some(image.to_string()), ..ask };
    let switch = Ask::new(
        base("b").file("/etc/app.conf", 0o644, SETTINGS),
        vec![image(&made.carrying), file("etc/app.conf", 0o644, SETTINGS)],
    );
    let both = Ask::new(
        base("b").file("/etc/app.conf", 0o644, SETTINGS).karg("quiet"),
        vec![image(&made.carrying), file("etc/app.conf", 0o644, SETTINGS), kargs("quiet")],
    );
    let arguments = Ask::new(base("k").karg("quiet").karg("nosmt"), vec![kargs("quiet nosmt")]);
    let files = Ask::new(
        base("m").file("/etc/motd", 0o644, "m\n").file("/etc/costly", 0o640, "1\n"),
        vec![image(&made.bare), file("etc/motd", 0o644, "m\n"), file("etc/costly", 0o640, "1\n")],
    );
    Ok(vec![
        made.scenario("kernel arguments", arguments),
        made.scenario("an image that carries the config", with(switch, &made.carrying)),
        Scenario { stride: 3, ..made.scenario("an image and kernel arguments", with(both, &made.carrying)) },
        // Each point of a switch was died at above.
        Scenario { stride: 3, ..made.scenario("an image and files", with(files, &made.bare)) },
        left(&made),
        unhealthy(&made),
    ])
}
