//! A scenario, played once straight to count its fail points, then once for each of them.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::config::Config;
use super::host::{Down, KILLED, Kind, REBOOT, Ran, SweepHost};
use super::tree::{Changes, Tree, changed, exactly, one_of};

/// One update settles in at most this many runs: its reboots, each asked for twice, and one to spare.
const RUNS: u32 = 8;
/// Tries of a point. The number of records of a trial depends on systemd's order of reports, so a point near
/// the end is not in each run; one that is in none of these was lost by the agent.
const RUNS_TO_A_POINT: u32 = 4;
/// Start of the error of a run that ended before its point.
const NOT_KILLED: &str = "it was not killed";

/// The machine has two cores.
const WORKERS: usize = 2;
/// A trial that fails takes its ten seconds, and no core.
const WAITERS: usize = 6;

/// A pass over all scenarios takes some minutes; after this it is a hang.
const BOUND: Duration = Duration::from_secs(3600);

/// Which points a pass plays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pass {
    /// Each point; some recoveries are killed, too.
    Each,
    /// The points, and each recovery at a point drawn by chance: the so many-th such pass of a seed.
    Twice { seed: u64, number: usize },
}

/// Chance that can be had again: `SplitMix64`.
#[derive(Debug, Clone)]
pub struct Chance(pub u64);

impl Chance {
    /// Draws from 1 to `most`.
    pub fn draw(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ (mixed >> 31)) % most.max(1) + 1
    }
}

/// Expected result of a config.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ends {
    Done,
    /// It is taken back.
    Fails,
}

/// One config that is asked for, and what it makes of the host as it was at the start.
#[derive(Clone)]
pub struct Ask {
    pub config: Config,
    pub image: Option<String>,
    pub changes: Changes,
    pub ends: Ends,
}

impl Ask {
    pub fn new(config: Config, changes: Changes) -> Self {
        Self { config, image: None, changes, ends: Ends::Done }
    }
}

/// A scenario. Its directory is set up: the configs, the policy and the host as it is before the first ask.
pub struct Scenario {
    pub name: &'static str,
    pub kind: Kind,
    pub dir: std::path::PathBuf,
    pub asks: Vec<Ask>,
    /// The target after the crash instead of the interrupted one.
    pub instead: Option<Ask>,
    /// Files that a machine may lose for one boot, when it goes down by itself: the agent restores them.
    pub lost: Changes,
    /// Number of past updates at the end.
    pub history: RangeInclusive<usize>,
    /// Each so many points, the recovery is killed, too.
    pub twice: usize,
    /// Only each so many points are played.
    pub stride: usize,
    /// Processes at the beginning that are not killed: it would be the same as in another scenario.
    pub spared: usize,
}

/// Start of a process of the straight run.
struct Begin {
    ask: usize,
    copy: std::path::PathBuf,
    points: u64,
}

/// One point to die at.
struct Point<'a> {
    begin: &'a Begin,
    number: u64,
    /// Fail point of the recovery.
    again: Option<u64>,
}

/// Counts of a sweep.
#[derive(Debug, Default, Clone, Copy)]
pub struct Played {
    pub points: u32,
    pub kills: u32,
    pub runs: u32,
}

impl Scenario {
    /// Runs the points of a pass. The first few failures are reported.
    pub fn sweep(&self, pass: Pass) -> Result<Played, String> {
        let begun = Instant::now();
        let scratch = super::scratch();
        let (start, past, begins) = self.straight(scratch.path())?;
        let points = self.points(&begins, pass);
        let (next, played, wrong) =
            (AtomicUsize::new(0), Mutex::new(Played::default()), Mutex::new(Vec::new()));
        let work = || {
            while let Some(point) = points.get(next.fetch_add(1, Ordering::Relaxed)) {
                let dir = scratch
                    .path()
                    .join(format!("at-{}-{}-{:?}", point.begin.points, point.number, point.again));
                let mut done = Err(String::new());
                for _ in 0..RUNS_TO_A_POINT {
                    done = self.die(point, (&start, past), &dir);
                    std::fs::remove_dir_all(&dir).unwrap_or_default();
                    if !matches!(&done, Err(error) if error.starts_with(NOT_KILLED)) {
                        break;
                    }
                }
                let mut played = played.lock().unwrap();
                played.points += 1;
                match done {
                    Ok((runs, kills)) => {
                        played.runs += runs;
                        played.kills += kills;
                    }
                    Err(error) => wrong.lock().unwrap().push(format!(
                        "{}: ask {} killed at {} of {}, the recovery at {:?}:\n  {error}",
                        self.name, point.begin.ask, point.number, point.begin.points, point.again
                    )),
                }
                if begun.elapsed() > BOUND {
                    wrong.lock().unwrap().push(format!(
                        "{}: not done after {} s",
                        self.name,
                        BOUND.as_secs()
                    ));
                }
                if wrong.lock().unwrap().len() >= 3 {
                    return;
                }
            }
        };
        std::thread::scope(|scope| {
            for _ in 0..self.workers() {
                scope.spawn(work);
            }
        });
        let wrong = wrong.into_inner().unwrap();
        if wrong.is_empty() { Ok(played.into_inner().unwrap()) } else { Err(wrong.join("\n")) }
    }

    fn workers(&self) -> usize {
        let is_tried = self.kind == Kind::Machine && self.asks.iter().any(|ask| ask.ends == Ends::Fails);
        if is_tried { WAITERS } else { WORKERS }
    }

    fn points<'a>(&self, begins: &'a [Begin], pass: Pass) -> Vec<Point<'a>> {
        let mut points = Vec::new();
        if let Pass::Twice { seed, number } = pass {
            let mut chance = Chance(seed.wrapping_add(u64::try_from(number).unwrap() << 32));
            // A machine takes ten times as long as a directory; each pass plays others of its points.
            let stride = if self.kind == Kind::Machine { 8 * self.stride } else { self.stride };
            let first = u64::try_from(number % stride).unwrap() + 1;
            for begin in begins.iter().skip(self.spared) {
                for number in (first..=begin.points).step_by(stride) {
                    points.push(Point { begin, number, again: Some(chance.draw(begin.points)) });
                }
            }
            return points;
        }
        for begin in begins.iter().skip(self.spared) {
            for number in (1..=begin.points).step_by(self.stride) {
                points.push(Point { begin, number, again: None });
                if number % u64::try_from(self.twice).unwrap() == 0 {
                    // Spread over the recovery, without a pattern.
                    points.push(Point { begin, number, again: Some(number * 7 % begin.points + 1) });
                }
            }
        }
        points
    }

    /// Plays the scenario without a crash; keeps a copy of the host before each process and counts its points.
    fn straight(&self, scratch: &Path) -> Result<(Tree, usize, Vec<Begin>), String> {
        // The scenario's own directory stays as it is, for the next pass.
        let dir = scratch.join("straight");
        SweepHost::copy(&self.dir, &dir);
        let mut host = SweepHost::boot(self.kind, &dir)?;
        let (start, before) = (host.tree(), history(&host).len());
        let mut begins = Vec::new();
        for (index, ask) in self.asks.iter().enumerate() {
            for run in 0.. {
                if run == RUNS {
                    return Err(format!(
                        "{}: {} does not settle without a crash",
                        self.name, ask.config.name
                    ));
                }
                host.down(Down::Orderly)?;
                let copy = scratch.join(format!("begin-{}", begins.len()));
                SweepHost::copy(&dir, &copy);
                host.reboot(Down::Orderly)?;
                let ran = host.apply(&ask.config.name, ask.image.as_deref(), Some("count"))?;
                let count = ran.out.lines().find_map(|line| line.strip_prefix("fail points: ")?.parse().ok());
                let points = count.ok_or_else(|| describe(self.name, &ran))?;
                begins.push(Begin { ask: index, copy, points });
                if ran.code == REBOOT {
                    host.reboot(Down::Orderly)?;
                    continue;
                }
                settled(ask, &ran)?;
                break;
            }
            exactly(&host.tree(), &Self::after(&start, ask))
                .map_err(|wrong| format!("{}, straight:\n  {wrong}", self.name))?;
        }
        if self.instead.is_none() {
            self.clean(&mut host, before).map_err(|wrong| format!("{}, straight: {wrong}", self.name))?;
        }
        host.down(Down::Orderly)?;
        Ok((start, before, begins))
    }

    /// The host once an ask has settled.
    fn after(start: &Tree, ask: &Ask) -> Tree {
        if ask.ends == Ends::Done { changed(start, &ask.changes) } else { start.clone() }
    }

    /// Dies at a point, checks, and goes on to the end of the scenario.
    fn die(
        &self,
        point: &Point<'_>,
        (start, past): (&Tree, usize),
        dir: &Path,
    ) -> Result<(u32, u32), String> {
        let mut kills = 1;
        SweepHost::copy(&point.begin.copy, dir);
        let mut host = SweepHost::boot(self.kind, dir)?;
        let base =
            point.begin.ask.checked_sub(1).map_or(start.clone(), |last| Self::after(start, &self.asks[last]));
        let ask = &self.asks[point.begin.ask];
        let attempt = changed(start, &ask.changes);
        let lost = changed(&attempt, &self.lost);
        let half = |host: &SweepHost| {
            one_of(&host.tree(), &[&base, &attempt, &lost]).map_err(|wrong| format!("half done: {wrong}"))
        };
        let ran =
            host.apply(&ask.config.name, ask.image.as_deref(), Some(&format!("kill:{}", point.number)))?;
        if ran.code != KILLED {
            return Err(format!("{NOT_KILLED}: {}", describe(self.name, &ran)));
        }
        half(&host)?;
        let mut down = [None, Some(Down::PowerCut), Some(Down::Orderly)]
            .into_iter()
            .cycle()
            .skip(usize::try_from(point.number).unwrap() % 3);
        let mut fall = |host: &mut SweepHost| down.next().flatten().map_or(Ok(()), |how| host.reboot(how));
        fall(&mut host)?;
        let goes_on = self.instead.as_ref().unwrap_or(ask);
        if let Some(number) = point.again {
            let ran =
                host.apply(&goes_on.config.name, goes_on.image.as_deref(), Some(&format!("kill:{number}")))?;
            kills += u32::from(ran.code == KILLED);
            match ran.code {
                KILLED if self.instead.is_none() => half(&host)?,
                KILLED => {}
                REBOOT => host.reboot(Down::Orderly)?,
                _ => settled(goes_on, &ran)?,
            }
            fall(&mut host)?;
        }
        let rest = if self.instead.is_some() { &[][..] } else { &self.asks[point.begin.ask + 1..] };
        for ask in std::iter::once(goes_on).chain(rest) {
            settle(&mut host, ask)?;
            exactly(&host.tree(), &Self::after(start, ask))
                .map_err(|wrong| format!("settled wrong: {wrong}"))?;
        }
        self.clean(&mut host, past)?;
        host.down(Down::PowerCut)?;
        Ok((host.runs, kills))
    }

    /// Nothing is left behind: neither of the update nor beside the files.
    fn clean(&self, host: &mut SweepHost, before: usize) -> Result<(), String> {
        let last = self.instead.as_ref().or(self.asks.last()).unwrap();
        let ran = host.verify()?;
        if ran.code != 0 {
            return Err(format!("verify: {}", describe(self.name, &ran)));
        }
        let (mut state, mut of_mcd) = (Tree::new(), Tree::new());
        super::tree::read(&host.state(), "", &|_| false, &mut state);
        super::tree::read(&host.of_mcd(), "", &|_| false, &mut of_mcd);
        let known = |path: &str| {
            matches!(path, "/lock" | "/current.json" | "/kargs.json" | "/machine.json" | "/accounts.json")
                || path.starts_with("/history/")
                || path.starts_with("/preimages/kept/")
        };
        let left = state.keys().filter(|path| !known(path) || path.ends_with(".mca-new"));
        let left: Vec<_> = left.chain(of_mcd.keys().filter(|path| path.ends_with(".mca-new"))).collect();
        if !left.is_empty() {
            return Err(format!("left behind: {left:?}"));
        }
        if std::fs::read_dir(host.state().join("preimages")).is_ok_and(|dir| dir.count() > 1) {
            return Err("originals of an update are left behind".to_owned());
        }
        for stored in [host.state().join("current.json"), host.of_mcd().join("currentconfig")] {
            let text = std::fs::read_to_string(&stored).unwrap_or_default();
            if !text.contains(&format!("\"{}\"", last.config.name)) {
                return Err(format!("{} is not {}: {text}", stored.display(), last.config.name));
            }
        }
        let entries = history(host);
        let committed = entries.values().last().is_none_or(|entry| {
            entry["outcome"] == "committed" && entry["to"]["config"] == last.config.name.as_str()
        });
        let count = entries.len() - before;
        if !self.history.contains(&count) || (count > 0 && !committed) {
            return Err(format!("the history has {count} new entries, not {:?}: {entries:?}", self.history));
        }
        Ok(())
    }
}

/// Asks until nothing is left to do, playing the reboots.
fn settle(host: &mut SweepHost, ask: &Ask) -> Result<(), String> {
    for _ in 0..RUNS {
        let ran = host.apply(&ask.config.name, ask.image.as_deref(), None)?;
        if ran.code != REBOOT {
            return settled(ask, &ran);
        }
        host.reboot(Down::Orderly)?;
    }
    Err(format!("{} does not settle in {RUNS} runs", ask.config.name))
}

fn settled(ask: &Ask, ran: &Ran) -> Result<(), String> {
    let right = if ask.ends == Ends::Done { ran.code == 0 } else { matches!(ran.code, 1..=6) };
    if right { Ok(()) } else { Err(describe(&ask.config.name, ran)) }
}

fn describe(what: &str, ran: &Ran) -> String {
    let log: Vec<&str> = ran.log.lines().rev().take(12).collect();
    format!(
        "{what} ended with {}: {}\n    {}",
        ran.code,
        ran.out.trim(),
        log.into_iter().rev().collect::<Vec<_>>().join("\n    ")
    )
}

fn history(host: &SweepHost) -> BTreeMap<String, Value> {
    let Ok(dir) = std::fs::read_dir(host.state().join("history")) else { return BTreeMap::new() };
    let entry = |entry: std::io::Result<std::fs::DirEntry>| {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        let value = serde_json::from_slice(&std::fs::read(entry.path()).unwrap()).unwrap_or(Value::Null);
        (name, value)
    };
    dir.map(entry).filter(|(name, _)| !name.ends_with(".mca-new")).collect()
}
