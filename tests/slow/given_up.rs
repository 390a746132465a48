//! Updates that are given up at each of their fail points, on a real libostree sysroot: by a kill, mostly with a clean reboot
//! after it, in which the shutdown finalizes what the update had staged. The next target ends in the host that went straight
//! to it: what runs is where the next update starts.
#![allow(clippy::explicit_write, reason = "past the test runner, which would keep it to itself")]

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use machine_config_agent::sandbox::{LayerFile, SandboxHost};
use serde_json::Value;

use crate::ran;
use crate::sweep;
use crate::sweep::config::{Config, policy};
use crate::sweep::host::{AGENT, Down, KILLED, Kind, REBOOT, SweepHost};
use crate::sweep::tree::{Tree, exactly, read};

/// The targets that follow: the committed one, another one, and the same edited.
const NEXT: [&str; 3] = ["a", "c", "edited"];

/// A target is reached in so many runs.
const RUNS: u32 = 8;

/// The machine has two cores.
const WORKERS: usize = 2;

/// An update from config `a` to `b`.
struct Series {
    name: &'static str,
    /// The host in config `a`, and all configs.
    dir: PathBuf,
    /// The host as it is once it went straight to each of [`NEXT`].
    straight: Vec<Seen>,
    /// Fail points of the first process.
    points: u64,
    /// Only each so many of them are played.
    stride: usize,
}

/// All that a target makes of the host.
struct Seen {
    tree: Tree,
    /// The kernel's command line, in its order.
    line: Vec<String>,
}

#[derive(Debug, Default)]
struct Counts {
    kills: u32,
    runs: u32,
    /// Next targets that were begun in the deployment of the update.
    early: u32,
    /// Plans that were shown before an undo, and made after it.
    planned: u32,
}

fn with_kargs(name: &str, kargs: &[&str]) -> Config {
    kargs.iter().fold(Config::new(name), |config, karg| config.karg(karg))
}

fn looked_at(host: &SweepHost) -> Seen {
    Seen { tree: host.tree(), line: host.line() }
}

/// The plan that was shown before is the one that is made once the update is undone.
fn is_planned(planned: &str, log: &str) -> Result<bool, String> {
    if !log.contains("rolling back, since another target is desired") {
        return Ok(false);
    }
    let (_, made) = log.split_once("is planned:").unwrap_or_default();
    let plan = |text: &str| {
        let lines = text.lines().map(str::trim).skip_while(|line| !line.starts_with("Steps"));
        let is_step =
            |line: &&str| line.split_once(". ").is_some_and(|(number, _)| number.parse::<u32>().is_ok());
        lines.filter(is_step).map(str::to_owned).collect::<Vec<_>>()
    };
    let (planned, made) = (plan(planned), plan(made));
    if planned == made {
        Ok(!made.is_empty())
    } else {
        Err(format!("planned: {planned:#?}, made: {made:#?}"))
    }
}

/// Returns true if the update ended before the target that followed it, whose name may be the same.
fn has_committed_update(host: &SweepHost, next: &str) -> bool {
    let entries = fs::read_dir(host.state().join("history")).unwrap();
    let entries = entries.map(|entry| fs::read(entry.unwrap().path()).unwrap());
    let is_of_update = |entry: &Vec<u8>| {
        let entry: Value = serde_json::from_slice(entry).unwrap();
        entry["outcome"] == "committed" && entry["to"]["config"] == "b"
    };
    entries.filter(is_of_update).count() > usize::from(next == "edited")
}

/// Returns true if all is played.
fn is_whole() -> bool {
    std::env::var_os("SWEEP_WHOLE").is_some()
}

/// Asks until nothing is left to do, playing the reboots. Returns the log of the first run.
fn settle(host: &mut SweepHost, target: &str) -> Result<String, String> {
    let mut first = None;
    for _ in 0..RUNS {
        let ran = host.apply(target, None, None)?;
        let log = first.get_or_insert_with(|| ran.log.clone());
        match ran.code {
            0 => return Ok(std::mem::take(log)),
            REBOOT => host.reboot(Down::Orderly)?,
            code => return Err(format!("{target} ended with {code}: {}{}", ran.out, ran.log)),
        }
    }
    Err(format!("{target} does not settle in {RUNS} runs"))
}

impl Series {
    fn new(
        world: &Path,
        name: &'static str,
        configs: &[(&str, Config)],
        stride: usize,
    ) -> Result<Self, String> {
        let dir = world.with_file_name(name.replace([' ', ','], "-"));
        SweepHost::copy(world, &dir);
        for (stem, config) in configs {
            fs::write(dir.join(format!("control/{stem}.json")), config.text()).unwrap();
        }
        let on_copy = |of: &str, play: &dyn Fn(&mut SweepHost) -> Result<(), String>| {
            let copy = dir.with_extension(of);
            SweepHost::copy(&dir, &copy);
            let mut host = SweepHost::boot(Kind::Machine, &copy)?;
            play(&mut host)?;
            let seen = looked_at(&host);
            host.down(Down::Orderly)?;
            fs::remove_dir_all(&copy).unwrap_or_default();
            Ok::<_, String>(seen)
        };
        let mut host = SweepHost::boot(Kind::Machine, &dir)?;
        settle(&mut host, "a")?;
        host.down(Down::Orderly)?;
        let straight = NEXT.iter().map(|next| on_copy(next, &|host| settle(host, next).map(drop)));
        let straight = straight.collect::<Result<Vec<_>, _>>()?;
        let points = AtomicU64::new(0);
        on_copy("count", &|host| {
            let ran = host.apply("b", None, Some("count"))?;
            let count = ran.out.lines().find_map(|line| line.strip_prefix("fail points: ")?.parse().ok());
            points.store(count.ok_or_else(|| format!("{}{}", ran.out, ran.log))?, Ordering::Relaxed);
            Ok(())
        })?;
        Ok(Self { name, dir, straight, points: points.into_inner(), stride })
    }

    /// Plays each point; the first few failures are reported.
    fn play(&self) -> Result<Counts, String> {
        let (next, counts, wrong) =
            (AtomicU64::new(1), Mutex::new(Counts::default()), Mutex::new(Vec::new()));
        let work = || {
            loop {
                let point = next.fetch_add(u64::try_from(self.stride).unwrap(), Ordering::Relaxed);
                if point > self.points || wrong.lock().unwrap().len() >= 3 {
                    return;
                }
                let ways = if is_whole() || point % 8 == 1 { &[true, false][..] } else { &[true] };
                for is_rebooted in ways.iter().copied() {
                    if let Err(error) = self.give_up(point, is_rebooted, &counts) {
                        let how = if is_rebooted { "rebooted" } else { "running" };
                        wrong
                            .lock()
                            .unwrap()
                            .push(format!("{}: killed at {point}, {how}, {error}", self.name));
                    }
                }
            }
        };
        std::thread::scope(|scope| {
            for _ in 0..WORKERS {
                scope.spawn(work);
            }
        });
        let wrong = wrong.into_inner().unwrap();
        if wrong.is_empty() { Ok(counts.into_inner().unwrap()) } else { Err(wrong.join("\n")) }
    }

    /// Kills the update at a point, and goes on to a next target: one after the other of [`NEXT`], point by point.
    fn give_up(&self, point: u64, is_rebooted: bool, counts: &Mutex<Counts>) -> Result<(), String> {
        let at = self.dir.with_extension(format!("{point}-{is_rebooted}"));
        SweepHost::copy(&self.dir, &at);
        let mut host = SweepHost::boot(Kind::Machine, &at)?;
        let before = host.line();
        let ran = host.apply("b", None, Some(&format!("kill:{point}")))?;
        if ran.code != KILLED {
            return Err(format!("it was not killed: {}{}", ran.out, ran.log));
        }
        counts.lock().unwrap().kills += 1;
        let mut running = Some(host);
        if let Some(mut host) = running.take_if(|_| is_rebooted) {
            host.down(Down::Orderly)?;
        }
        let first = usize::try_from(point).unwrap() / self.stride;
        for index in (first..).take(if is_whole() && is_rebooted { NEXT.len() } else { 1 }) {
            let copy = at.with_extension(format!("{point}-then-{index}"));
            let host = if let Some(host) = running.take() {
                host
            } else {
                SweepHost::copy(&at, &copy);
                SweepHost::boot(Kind::Machine, &copy)?
            };
            let is_early = host.line() != before;
            counts.lock().unwrap().early += u32::from(is_early);
            let again = if is_early && point.is_multiple_of(4) { 20 + point * 7 % 32 } else { 0 };
            self.goes_on(host, index % NEXT.len(), again, counts)?;
            fs::remove_dir_all(&copy).unwrap_or_default();
        }
        fs::remove_dir_all(&at).unwrap_or_default();
        Ok(())
    }

    /// Goes on to a target, which is given up for another one at its `again`-th point in turn, unless that is none.
    fn goes_on(
        &self,
        mut host: SweepHost,
        index: usize,
        again: u64,
        counts: &Mutex<Counts>,
    ) -> Result<(), String> {
        let mut index = index;
        let what = || format!("then {}", NEXT[index]);
        let mut way = what();
        if again > 0 {
            let ran = host.apply(NEXT[index], None, Some(&format!("kill:{again}")))?;
            host.reboot(Down::Orderly)?;
            counts.lock().unwrap().kills += u32::from(ran.code == KILLED);
            index = (index + 1) % NEXT.len();
            way = format!("{way} killed at {again}, then {}", NEXT[index]);
        }
        let done = self.arrives(&mut host, index, counts);
        counts.lock().unwrap().runs += host.runs;
        done.map_err(|error| format!("{way}: {error}"))?;
        host.down(Down::PowerCut)
    }

    /// The host ends as the one that went straight to the target, in its own words, too.
    fn arrives(&self, host: &mut SweepHost, index: usize, counts: &Mutex<Counts>) -> Result<(), String> {
        let straight = &self.straight[index];
        let planned = host.plan(NEXT[index])?.out;
        let log = settle(host, NEXT[index])?;
        counts.lock().unwrap().planned += u32::from(is_planned(&planned, &log)?);
        let found = looked_at(host);
        if found.line != straight.line {
            return Err(format!("the kernel line is {:?}, not {:?}", found.line, straight.line));
        }
        let (mut found, mut expected) = (found.tree, straight.tree.clone());
        if has_committed_update(host, NEXT[index]) {
            // Its last batch was done, so the reboot was the update's own; no config after it names an image.
            found.remove("image");
            expected.remove("image");
        }
        exactly(&found, &expected)?;
        let again = host.apply(NEXT[index], None, None)?;
        let verified = host.verify()?;
        if again.code != 0 || verified.code != 0 {
            let texts = [again.out, again.log, verified.out, verified.log].concat();
            return Err(format!(
                "another run ended with {}, verify with {}: {texts}",
                again.code, verified.code
            ));
        }
        let mut state = Tree::new();
        read(&host.state(), "", &|_| false, &mut state);
        let is_open =
            |path: &&String| ["/record.json", "/target.json", "/from.json"].contains(&path.as_str());
        let left: Vec<_> = state.keys().filter(is_open).collect();
        if left.is_empty() { Ok(()) } else { Err(format!("left behind: {left:?}")) }
    }
}

/// Arguments and files that come, go, stay and change their order; and an image that only the update names.
fn all(home: &Path) -> Result<Vec<Series>, String> {
    let dir = home.join("world");
    let world = SandboxHost::create(&dir, Path::new(AGENT), &BTreeMap::new(), &|_| {})
        .map_err(|error| error.to_string())?;
    let layer = LayerFile { path: "usr/lib/new".to_owned(), mode: 0o644, contents: b"new\n".to_vec() };
    let image = world.derive(&world.image("v1").unwrap(), "v3", &[layer], &BTreeMap::new()).unwrap();
    fs::write(dir.join("control/policy.json"), policy()).unwrap();
    let file = |config: Config, path: &str, text: &str| config.file(path, 0o644, text);
    let a = file(with_kargs("a", &["keep=1", "drop=1", "x=1", "y=1", "rw"]), "/etc/motd", "a\n");
    let a = file(a, "/etc/costly", "a\n");
    let b = file(with_kargs("b", &["keep=1", "b=1", "b=2", "y=1", "x=1"]), "/etc/motd", "b\n");
    let b = file(b, "/etc/app.conf", "b\n");
    let c = file(with_kargs("c", &["keep=1", "x=1", "y=1", "c=1"]), "/etc/motd", "c\n");
    let edited = file(with_kargs("b", &["b=2", "d=1", "keep=1"]), "/etc/app.conf", "d\n");
    let configs = [("a", a), ("b", b), ("c", c), ("edited", edited)];
    let mut of_image = configs.clone();
    of_image[1].1 = of_image[1].1.clone().os_image(&image);
    // Each point was died at in the first one.
    let stride = if is_whole() { 1 } else { 4 };
    Ok(vec![
        Series::new(&dir, "kernel arguments, given up", &configs, 1)?,
        Series::new(&dir, "an image and kernel arguments, given up", &of_image, stride)?,
    ])
}

/// The update to B is killed at each point; then the target is the committed one, another one, or the same edited.
///
/// `SWEEP=word` plays only the series with that word in their name, and `SWEEP_WHOLE=1` each point with each next target.
#[test]
fn next_target_is_reached_as_if_update_had_not_been() {
    let home = sweep::scratch();
    let only = std::env::var("SWEEP").unwrap_or_default();
    let series = match all(home.path()) {
        Ok(series) => series,
        // A place without namespaces, ostree or skopeo; where everything is built, that is a failure.
        Err(why) if std::env::var_os("CI").is_none() => {
            ran::not_run(
                "next_target_is_reached_as_if_update_had_not_been",
                &format!("a real sysroot: {why}"),
            );
            return;
        }
        Err(why) => panic!("no real sysroot can be played here: {why}"),
    };
    let mut wrong = Vec::new();
    for one in series.iter().filter(|one| one.name.contains(&only)) {
        let since = Instant::now();
        let counts = one.play().unwrap_or_else(|error| {
            wrong.push(error);
            Counts::default()
        });
        writeln!(
            std::io::stderr(),
            "{:<58} {:>5} points {:>5} kills {:>6} runs {:>6.1} s, {} begun in its deployment",
            one.name,
            one.points,
            counts.kills,
            counts.runs,
            since.elapsed().as_secs_f64(),
            counts.early
        )
        .unwrap();
        let enough = one.points > 15 && counts.early > 5 && counts.planned > 5;
        if wrong.is_empty() && !enough {
            wrong.push(format!("{}: {} points, {counts:?}", one.name, one.points));
        }
    }
    assert!(wrong.is_empty(), "\n{}\n", wrong.join("\n"));
}
