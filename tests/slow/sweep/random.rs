//! Random configs, one after the other on hosts in directories: leaving and coming back, killed on the way, and beside an
//! attacker. After each one the host has to match the model, whatever came before.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use super::attacker::{Attacker, CORE, POLKITD};
use super::host::{Down, FAILED, KILLED, Kind, REBOOT, REFUSED, Ran, SweepHost};
use super::model::{
    HOME, KEYS, MASKED, NAMES, RULES, Unit, Wish, expected_tree, found, install, is_link_of, masked, plain,
    policy,
};
use super::play::Chance;
use super::tree::{Tree, exactly, one_of};

/// So many configs on one host, then a fresh one.
const CONFIGS_OF_A_HOST: usize = 50;

/// One config is there after so many runs, however often it is killed and rebooted.
const RUNS: u32 = 16;

pub(super) const CONTENTS: [&str; 6] = [
    "[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n",
    "[Service]\nExecStart=/bin/false\n[Install]\nWantedBy=a.target\n",
    "[Service]\nExecStart=/bin/true\n",
    "[Install]\nWantedBy=a.target\nWantedBy=c.target\n",
    "[Install]\nWantedBy=multi-user.target\nAlias=alias.service\n",
    "[Install]\nWantedBy=multi-user.target\nAlso=other.socket\n",
];
pub(super) const DROPINS: [&str; 3] =
    ["[Service]\nNice=1\n", "[Install]\nWantedBy=b.target\n", "[Service]\nNice=2\n"];
const FILES: [(&str, bool); 9] = [
    (RULE, false),
    ("etc/motd", false),
    ("etc/app.conf", false),
    ("etc/many/1/a", false),
    ("etc/many/1/setuid", false),
    ("etc/many/2/b", false),
    ("etc/link", false),
    ("etc/costly", false),
    (PROFILE, true),
];
const TEXTS: [&str; 3] = ["one\n", "two\n", ""];
const MODES: [u32; 3] = [0o644, 0o600, 0o755];
/// File of an administrator that has the next config written whatever drifted.
const FORCE: &str = "root/run/machine-config-daemon-force";
const RULE: &str = "etc/polkit-1/rules.d/50-x.rules";
const PROFILE: &str = "var/home/core/.profile";
const SETS_OF_KEYS: [&[&str]; 3] =
    [&["ssh-ed25519 AAAA one"], &["ssh-ed25519 BBBB two", "ssh-rsa CC three"], &[]];

/// Counts of a run.
#[derive(Debug, Default, Clone, Copy)]
pub struct Counts {
    pub configs: usize,
    pub kills: u32,
    pub reboots: u32,
    pub superseded: u32,
    pub runs: u32,
    pub attacked: usize,
    pub moves: u64,
    pub forced: u32,
}

impl std::ops::AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.configs += other.configs;
        self.kills += other.kills;
        self.reboots += other.reboots;
        self.superseded += other.superseded;
        self.runs += other.runs;
        self.attacked += other.attacked;
        self.moves += other.moves;
        self.forced += other.forced;
    }
}

fn index(chance: &mut Chance, of: usize) -> usize {
    usize::try_from(chance.draw(u64::try_from(of).unwrap())).unwrap() - 1
}

fn one<T: Copy>(chance: &mut Chance, of: &[T]) -> T {
    of[index(chance, of.len())]
}

fn unit(chance: &mut Chance) -> Unit {
    let mask = one(chance, &[None, None, None, Some(true), Some(true), Some(false)]);
    let enabled = one(chance, &[None, Some(true), Some(true), Some(false)]);
    let mut unit = Unit {
        contents: one(chance, &[true, false]).then(|| one(chance, &CONTENTS)),
        enabled: enabled.filter(|enabled| !(*enabled && mask == Some(true))),
        mask,
        ..Unit::default()
    };
    for name in ["10-x.conf", "20-y.conf"] {
        if chance.draw(4) == 1 {
            unit.dropins.insert(name, one(chance, &DROPINS));
        }
    }
    unit
}

fn change(chance: &mut Chance, wish: &mut Wish) {
    match chance.draw(10) {
        1 | 2 => {
            let (path, of_core) = one(chance, &FILES);
            wish.files.insert(path, (one(chance, &MODES), of_core, one(chance, &TEXTS)));
        }
        3 => drop(wish.files.remove(one(chance, &FILES).0)),
        4 => {
            let hash = one(chance, &[None, Some("$6$a$b")]);
            let keys = one(chance, &SETS_OF_KEYS).to_vec();
            wish.core = Some((keys, hash)).filter(|(keys, hash)| !keys.is_empty() || hash.is_some());
        }
        5 | 6 => drop(wish.units.remove(one(chance, &NAMES))),
        _ => drop(wish.units.insert(one(chance, &NAMES), unit(chance))),
    }
    // A name that two units share is a config that can't be enabled, or one in which two say what becomes of a third.
    for key in ["Alias=", "Also="] {
        let shared = |unit: &Unit| unit.contents.is_some_and(|text| text.contains(key));
        let first = wish.units.iter().find(|(_, unit)| shared(unit)).map(|(name, _)| *name);
        wish.units.retain(|name, unit| !shared(unit) || Some(*name) == first);
    }
    // So is one that enables what the administrator has masked.
    if let Some(unit) = wish.units.get_mut(MASKED)
        && unit.mask.is_none()
        && unit.contents.is_none()
    {
        unit.enabled = unit.enabled.filter(|enabled| !enabled);
    }
}

/// True if the agent is killed on the way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kills {
    Some,
    None,
}

/// A host, what it has, and what it had.
struct Player {
    dir: PathBuf,
    host: SweepHost,
    chance: Chance,
    installed: Tree,
    has: Wish,
    had: Vec<Wish>,
    number: usize,
    /// True if a path that an attacker removed may still be missing.
    robbed: bool,
    counts: Counts,
}

impl Player {
    fn new(dir: PathBuf, chance: Chance) -> Result<Self, String> {
        install(&dir.join("root"));
        fs::create_dir_all(dir.join("control")).unwrap();
        fs::create_dir_all(dir.join("outside")).unwrap();
        fs::write(dir.join("outside/secret"), "secret").unwrap();
        fs::write(dir.join("control/policy.json"), policy()).unwrap();
        for open in [&dir, &dir.join("outside")] {
            fs::set_permissions(open, fs::Permissions::from_mode(0o755)).unwrap();
        }
        let host = SweepHost::boot(Kind::Plain, &dir)?;
        // Links are the model's part.
        let mut installed = found(&dir.join("root"));
        let wants = plain(installed.clone(), &[]);
        exactly(&wants, &plain(expected_tree(&installed, &Wish::default()), &[]))?;
        installed.retain(|path, _| !path.contains(".wants/"));
        let (has, had, number, counts) = (Wish::default(), vec![Wish::default()], 0, Counts::default());
        Ok(Self { dir, host, chance, installed, has, had, number, robbed: false, counts })
    }

    /// Another config: one of before, an empty one, or the last one with some changes.
    fn next(&mut self) -> Wish {
        let mut wish = match self.chance.draw(10) {
            1 | 2 => self.had[index(&mut self.chance, self.had.len())].clone(),
            3 => Wish::default(),
            _ => self.has.clone(),
        };
        if !wish.is_empty() || self.chance.draw(2) == 1 {
            for _ in 0..self.chance.draw(5) {
                change(&mut self.chance, &mut wish);
            }
        }
        if self.had.len() == 1 && wish.units.get(MASKED).is_some_and(|unit| unit.mask == Some(true)) {
            // On a host that was never managed a mask is taken for the config's own.
            wish.units.remove(MASKED);
        }
        wish
    }

    fn write(&mut self, wish: &Wish) -> String {
        self.number += 1;
        self.counts.configs += 1;
        let name = format!("config-{}", self.number);
        fs::write(self.dir.join(format!("control/{name}.json")), wish.config(&name).text()).unwrap();
        name
    }

    /// Applies a config to the host, killed on the way every other time or never.
    fn play(&mut self, mut wish: Wish, kills: Kills) -> Result<(), String> {
        let mut name = self.write(&wish);
        for run in 0.. {
            let point = (kills == Kills::Some).then(|| self.fail_point()).flatten();
            let ran = self.host.apply(&name, None, point.as_deref())?;
            match ran.code {
                0 => break,
                REBOOT => {
                    self.counts.reboots += 1;
                    self.host.reboot(Down::Orderly)?;
                }
                KILLED => {
                    self.counts.kills += 1;
                    if self.chance.draw(4) == 1 {
                        self.host.reboot(Down::PowerCut)?;
                    }
                    if self.chance.draw(6) == 1 {
                        self.counts.superseded += 1;
                        wish = self.next();
                        name = self.write(&wish);
                    }
                }
                FAILED if self.is_held_by_robbery(&wish, &ran) => {
                    self.counts.forced += 1;
                    self.force();
                }
                _ => return Err(self.wrong(&wish, &ran, "failed")),
            }
            if run > RUNS {
                return Err(self.wrong(&wish, &ran, "does not come to an end"));
            }
        }
        self.arrived(wish, kills)
    }

    fn force(&self) {
        fs::create_dir_all(self.dir.join("root/run")).unwrap();
        fs::write(self.dir.join(FORCE), "").unwrap();
    }

    /// Every other time a point to die at.
    fn fail_point(&mut self) -> Option<String> {
        (self.chance.draw(2) == 1).then(|| format!("kill:{}", self.chance.draw(60)))
    }

    /// Returns true if the config is refused for what an attacker took away, and keeps some of it: what it lets go must not
    /// hold it.
    fn is_held_by_robbery(&self, wish: &Wish, ran: &Ran) -> bool {
        let keeps = wish.core.is_some() || [PROFILE, RULE].iter().any(|path| wish.files.contains_key(path));
        self.robbed && keeps && ran.log.contains("no update starts") && !self.dir.join(FORCE).exists()
    }

    /// Asks for a config beside an attacker, killed on the way or not: what he does not own is as in the old or the new config
    /// after it. When he is gone, the next config arrives.
    fn play_attacked(&mut self) -> Result<(), String> {
        let wish = self.next();
        let name = self.write(&wish);
        self.counts.attacked += 1;
        let (root, seed) = (self.dir.join("root"), self.chance.draw(u64::MAX));
        let users = [(CORE, seed), (POLKITD, !seed)];
        let attackers =
            users.map(|(user, seed)| Attacker::start(&root, user, &self.dir.join("outside"), seed));
        let mut wrong = None;
        let mut last = Ran { code: 0, out: String::new(), log: String::new() };
        for _ in 0..3 {
            let point = self.fail_point();
            match self.host.apply_bounded(&name, point.as_deref()) {
                Ok(ran) => last = ran,
                Err(why) => wrong = Some(why),
            }
            match last.code {
                // What he put in the way is seen by the plan, or by the write.
                0 | FAILED | REFUSED => {}
                REBOOT => {
                    self.counts.reboots += 1;
                    self.host.reboot(Down::Orderly)?;
                }
                KILLED if point.is_some() => self.counts.kills += 1,
                _ => {
                    wrong =
                        wrong.or_else(|| Some(self.wrong(&wish, &last, "ended badly beside an attacker")));
                }
            }
        }
        self.counts.moves += attackers.map(Attacker::end).iter().sum::<u64>();
        // Reading what they left would wait at their pipes.
        let left = [HOME, RULES].map(|path| fs::read_dir(root.join(path)).unwrap());
        for entry in left.into_iter().flatten() {
            let path = entry.unwrap().path();
            fs::remove_dir_all(&path).or_else(|_| fs::remove_file(&path)).unwrap();
        }
        if let Some(wrong) = wrong {
            return Err(wrong);
        }
        let ran = last;
        let wishes = [&self.has, &wish];
        let of_root = |tree: Tree| {
            let mut tree = plain(tree, &wishes);
            tree.retain(|path, _| !is_of_user(path));
            tree
        };
        let [old, new] = wishes.map(|wish| of_root(expected_tree(&self.installed, wish)));
        let now = of_root(found(&root));
        let ended = whole_or_on_the_way(ran.code, now, old, new);
        ended.map_err(|wrong| self.wrong(&wish, &ran, &wrong))?;
        let secret = fs::read_to_string(self.dir.join("outside/secret")).unwrap();
        let outside = fs::read_dir(self.dir.join("outside")).unwrap().count();
        if secret != "secret" || outside != 1 {
            return Err(self.wrong(&wish, &ran, "something outside of the host was touched"));
        }
        self.installed.retain(|path, _| !is_of_user(path));
        self.robbed = true;
        Ok(())
    }

    fn arrived(&mut self, wish: Wish, kills: Kills) -> Result<(), String> {
        let mut expected = plain(expected_tree(&self.installed, &wish), &[&wish]);
        let mut found = plain(found(&self.dir.join("root")), &[&wish]);
        if self.counts.attacked > 0 {
            // Files that he left there are his own.
            let his = |path: &str| is_of_user(path) && path != KEYS;
            let files = &wish.files;
            expected.retain(|path, _| !his(path) || files.contains_key(path.as_str()));
            found.retain(|path, _| !his(path) || files.contains_key(path.as_str()));
        }
        let none = Ran { code: 0, out: String::new(), log: String::new() };
        exactly(&found, &expected).map_err(|wrong| self.wrong(&wish, &none, &wrong))?;
        if kills == Kills::None || self.chance.draw(4) == 1 {
            let ran = self.host.verify()?;
            if ran.code != 0 {
                return Err(self.wrong(&wish, &ran, "verify finds something"));
            }
        }
        let kept = self.host.state().join("preimages/kept");
        let kept: Vec<_> = fs::read_dir(kept).into_iter().flatten().flatten().map(|one| one.path()).collect();
        if wish.is_empty() && !kept.is_empty() {
            return Err(self.wrong(&wish, &none, &format!("originals of nothing: {kept:?}")));
        }
        self.had.push(wish.clone());
        self.has = wish;
        self.robbed = false;
        Ok(())
    }

    fn wrong(&self, wish: &Wish, ran: &Ran, why: &str) -> String {
        let log: Vec<&str> = ran.log.lines().rev().take(12).collect();
        let log: String = log.into_iter().rev().flat_map(|line| ["  ", line, "\n"]).collect();
        format!(
            "config {} {why}\n  from {:?}\n  to   {wish:?}\n  exit code {}\n{}{log}",
            self.number, self.has, ran.code, ran.out
        )
    }
}

/// Returns true for what is below a directory of a user.
fn is_of_user(path: &str) -> bool {
    path.starts_with("var/home/") || path.starts_with(RULES)
}

/// All of an update that ended, or nothing of it: a half would be right path by path.
fn whole_or_on_the_way(code: i32, now: Tree, old: Tree, new: Tree) -> Result<(), String> {
    match code {
        0 => exactly(&now, &new),
        FAILED => exactly(&now, &old).or_else(|wrong| exactly(&now, &new).map_err(|_| wrong)),
        _ => {
            // In between, a unit may have lost its mask and have its links still, which meant nothing.
            let units: Vec<_> = [&now, &old, &new].into_iter().flat_map(masked).collect();
            let without = |mut tree: Tree| {
                tree.retain(|path, entry| !is_link_of(path, entry, |unit| units.contains(&unit)));
                tree
            };
            let [now, old, new] = [now, old, new].map(without);
            one_of(&now, &[&old, &new])
        }
    }
}

/// Plays so many configs, on one host after the other. A user attacks each so many-th host; 0 is none.
pub fn play(home: &Path, seed: u64, configs: usize, attacked: u64) -> (Counts, Option<String>) {
    let mut counts = Counts::default();
    for host in 0.. {
        let dir = home.join(format!("{seed}-{host}"));
        fs::create_dir_all(&dir).unwrap();
        let chance = Chance(seed.wrapping_mul(1_000_003).wrapping_add(host));
        let mut player = Player::new(dir.clone(), chance).unwrap();
        let mut played = || {
            while player.counts.configs < CONFIGS_OF_A_HOST {
                if attacked > 0 && host % attacked == attacked - 1 && player.chance.draw(3) == 1 {
                    player.play_attacked()?;
                }
                let wish = player.next();
                player.play(wish, Kills::Some)?;
            }
            Ok(())
        };
        let played: Result<(), String> = played();
        player.counts.runs = player.host.runs;
        counts += player.counts;
        if let Err(why) = played {
            return (counts, Some(format!("seed {seed}, host {host}: {why}")));
        }
        fs::remove_dir_all(&dir).unwrap();
        if counts.configs >= configs {
            break;
        }
    }
    (counts, None)
}

/// Plays one way over some configs on a host of its own; each is compared and verified. An administrator who forces each
/// config arrives at the same.
pub fn along(home: &Path, name: &str, ways: &[Wish], is_forced: bool) -> Result<(), String> {
    let name = if is_forced { format!("{name}-forced") } else { name.to_owned() };
    let mut player = Player::new(home.join(&name), Chance(1))?;
    for wish in ways {
        if is_forced {
            player.force();
        }
        player.play(wish.clone(), Kills::None).map_err(|why| format!("{name}: {why}"))?;
    }
    Ok(())
}

/// Plays a way whose config at `index` is killed at one of the first fail points, and superseded by the next.
pub fn killed(home: &Path, name: &str, ways: &[Wish], index: usize, points: u32) -> Result<(), String> {
    for point in 1..=points {
        let mut player = Player::new(home.join(format!("{name}-{point}")), Chance(1))?;
        for (at, wish) in ways.iter().enumerate() {
            if at == index {
                let config = player.write(wish);
                player.host.apply(&config, None, Some(&format!("kill:{point}")))?;
            } else {
                let played = player.play(wish.clone(), Kills::None);
                played.map_err(|why| format!("{name}, killed at {point}: {why}"))?;
            }
        }
    }
    Ok(())
}
