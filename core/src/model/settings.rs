//! The text of the settings file of one node, `/etc/machine-config-agent/settings.toml`: TOML to [`NodeSettings`].
//!
//! ```toml
//! repair = ["/etc/chrony.conf", "/etc/NetworkManager"]
//! soft-reboot = "where-capable"
//! keep-rollback = "24h"
//! [os]
//! stall = "15m"
//! total = "2h"
//! prefetch-bandwidth = "20M"
//! [health]
//! units = ["kubelet.service"]
//! within = "10m"
//! roll-back = "automatic"
//! [seed]
//! include = ["/var/lib/app"]
//! exclude = ["/var/lib/app/cache"]
//! ```
//!
//! Every key may be absent, the file too: a node without it has the settings of [`NodeSettings::default`]. A key that
//! is not known has no effect and is named, as it may be misspelt, or of a newer agent; the others act.

use std::collections::BTreeSet;
use std::time::Duration;

use serde::Deserialize;

use super::node_settings::{HealthRules, OsLimits, RollBack, SeedSettings, SoftReboot};
use super::plain::plain;
use super::text::{escaped, shown};
use super::{ManagedPath, NodeSettings, NotApplied, NotAppliedReason, UnitName, short};

/// The largest file that is read: a few names and times, and the paths that are repaired.
pub const MAX_BYTES: u64 = 256 * 1024;

/// Path of the file on a host.
pub const SETTINGS_PATH: &str = "/etc/machine-config-agent/settings.toml";

/// Most keys without effect that are named.
const MAX_UNKNOWN: usize = 20;

/// As much of a wrong value is shown.
const MAX_SHOWN_CHARS: usize = 100;

/// The longest silence of the work on a deployment. The unit's watchdog ends a silent agent after 30 minutes.
const LONGEST_STALL: Duration = Duration::from_secs(25 * 60);
/// The shortest one: a percent of a large image takes that long on a slow line.
const SHORTEST_STALL: Duration = Duration::from_secs(60);

/// The slowest prefetch, in bytes per second: a gigabyte takes three hours.
const SLOWEST_PREFETCH: u64 = 100_000;

/// The shortest trial of a new deployment: a service needs some seconds to come up.
const SHORTEST_TRIAL: Duration = Duration::from_secs(10);
/// The longest one: by then a person has looked.
const LONGEST_TRIAL: Duration = Duration::from_secs(24 * 3600);

/// A text that can't be used.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// It is no TOML, or a value has another type.
    #[error("{file} is invalid: {cause}")]
    Syntax {
        /// The file.
        file: String,
        /// Line and cause.
        cause: String,
    },
    /// A value breaks its rule.
    #[error("{file}: {key} = {value:?}: {rule}")]
    Value {
        /// The file.
        file: String,
        /// The key.
        key: &'static str,
        /// Its value.
        value: String,
        /// The rule for the value.
        rule: String,
    },
}

impl SettingsError {
    /// Returns the file.
    pub fn file(&self) -> &str {
        match self {
            Self::Syntax { file, .. } | Self::Value { file, .. } => file,
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Document {
    #[serde(default)]
    repair: Vec<String>,
    #[serde(default)]
    soft_reboot: Wish,
    keep_rollback: Option<String>,
    #[serde(default)]
    os: Limits,
    #[serde(default)]
    health: Health,
    #[serde(default)]
    seed: Seed,
}

#[derive(Debug, Deserialize, Default)]
#[serde(rename_all = "kebab-case")]
struct Seed {
    #[serde(default)]
    include: Vec<String>,
    #[serde(default)]
    exclude: Vec<String>,
}

#[derive(Debug, Deserialize, Default)]
#[serde(rename_all = "kebab-case")]
struct Limits {
    stall: Option<String>,
    total: Option<String>,
    prefetch_bandwidth: Option<String>,
}

#[derive(Debug, Deserialize, Default)]
#[serde(rename_all = "kebab-case")]
struct Health {
    units: Option<Vec<String>>,
    within: Option<String>,
    #[serde(default)]
    roll_back: Back,
}

#[derive(Debug, Deserialize, Default)]
#[serde(rename_all = "kebab-case")]
enum Back {
    #[default]
    Automatic,
    Never,
}

#[derive(Debug, Deserialize, Default)]
#[serde(rename_all = "kebab-case")]
enum Wish {
    #[default]
    Never,
    WhereCapable,
}

/// Returns the remark about a key that no setting has. The field names the file, too.
pub fn unknown_key(field: &str) -> NotApplied {
    let message = "this agent has no such setting: correct or remove it (keys: reference.md)";
    NotApplied::new(field, NotAppliedReason::UnknownField, message)
}

/// Reads the bytes of the file of this name.
pub fn read(bytes: &[u8], file: &str) -> Result<NodeSettings, SettingsError> {
    let syntax = |cause: String| SettingsError::Syntax { file: file.to_owned(), cause };
    if u64::try_from(bytes.len()).is_ok_and(|length| length > MAX_BYTES) {
        return Err(syntax(format!("it is larger than {MAX_BYTES} bytes")));
    }
    let text = std::str::from_utf8(bytes).map_err(|_| syntax("it is not UTF-8".to_owned()))?;
    parse(text, file)
}

/// Reads the text of the file of this name.
pub fn parse(text: &str, file: &str) -> Result<NodeSettings, SettingsError> {
    let mut unknown = BTreeSet::new();
    let syntax = |error| SettingsError::Syntax { file: file.to_owned(), cause: placed(text, &error) };
    let tables = toml::Deserializer::parse(text).map_err(syntax)?;
    let document: Document = serde_ignored::deserialize(tables, |path| {
        if unknown.len() < MAX_UNKNOWN {
            unknown.insert(short(&escaped(&path.to_string()), MAX_SHOWN_CHARS));
        }
    })
    .map_err(syntax)?;
    let keys = Keys { file };
    let path = |path: &String| {
        ManagedPath::new(path.as_str()).map_err(|error| keys.wrong("repair", path, &error.to_string()))
    };
    Ok(NodeSettings {
        repair: document.repair.iter().map(path).collect::<Result<BTreeSet<_>, _>>()?,
        soft_reboot: match document.soft_reboot {
            Wish::Never => SoftReboot::Never,
            Wish::WhereCapable => SoftReboot::WhereCapable,
        },
        os: keys.limits(&document.os)?,
        prefetch_bandwidth: keys.bandwidth(document.os.prefetch_bandwidth.as_ref())?,
        keep_rollback: keys.duration("keep-rollback", document.keep_rollback.as_ref())?,
        health: keys.health(&document.health)?,
        seed: keys.seed(document.seed)?,
        unknown,
    })
}

/// Reader of a file's values, by their keys.
struct Keys<'a> {
    file: &'a str,
}

impl Keys<'_> {
    fn wrong(&self, key: &'static str, value: &str, rule: &str) -> SettingsError {
        let value = short(value, MAX_SHOWN_CHARS);
        SettingsError::Value { file: self.file.to_owned(), key, value, rule: rule.to_owned() }
    }

    fn duration(&self, key: &'static str, text: Option<&String>) -> Result<Option<Duration>, SettingsError> {
        let Some(text) = text else { return Ok(None) };
        let rule = "must be a duration, such as \"15m\" or \"1h30m\"";
        span(text).map(Some).ok_or_else(|| self.wrong(key, text, rule))
    }

    fn limits(&self, os: &Limits) -> Result<OsLimits, SettingsError> {
        let OsLimits { stall, total } = OsLimits::default();
        let limits = OsLimits {
            stall: self.duration("os.stall", os.stall.as_ref())?.unwrap_or(stall),
            total: self.duration("os.total", os.total.as_ref())?.unwrap_or(total),
        };
        if !(SHORTEST_STALL..=LONGEST_STALL).contains(&limits.stall) {
            let rule = "must be between 1m and 25m, which is less than the watchdog of the service";
            return Err(self.wrong("os.stall", os.stall.as_deref().unwrap_or_default(), rule));
        }
        if limits.total < limits.stall {
            let total = os.total.as_deref().unwrap_or_default();
            return Err(self.wrong("os.total", total, "must not be less than os.stall"));
        }
        Ok(limits)
    }

    fn bandwidth(&self, text: Option<&String>) -> Result<Option<u64>, SettingsError> {
        let Some(text) = text else { return Ok(None) };
        let rule = "must be bytes per second, such as \"20M\", and at least 100K";
        let found = rate(text).filter(|rate| *rate >= SLOWEST_PREFETCH);
        found.map(Some).ok_or_else(|| self.wrong("os.prefetch-bandwidth", text, rule))
    }

    fn seed(&self, seed: Seed) -> Result<SeedSettings, SettingsError> {
        for (key, paths) in [("seed.include", &seed.include), ("seed.exclude", &seed.exclude)] {
            if let Some(path) = paths.iter().find(|path| !SeedSettings::is_path(path)) {
                return Err(self.wrong(
                    key,
                    path,
                    "must be a path below /etc or /var, without \".\" and \"..\"",
                ));
            }
        }
        Ok(SeedSettings { include: seed.include, exclude: seed.exclude })
    }

    fn health(&self, health: &Health) -> Result<HealthRules, SettingsError> {
        let unit = |name: &String| {
            UnitName::new(name).map_err(|error| self.wrong("health.units", name, &error.to_string()))
        };
        let units = health.units.as_ref().map(|names| names.iter().map(unit).collect::<Result<_, _>>());
        let within = self.duration("health.within", health.within.as_ref())?;
        let within = within.unwrap_or(HealthRules::default().within);
        if !(SHORTEST_TRIAL..=LONGEST_TRIAL).contains(&within) {
            let text = health.within.as_deref().unwrap_or_default();
            return Err(self.wrong("health.within", text, "must be between 10s and 24h"));
        }
        let roll_back = match health.roll_back {
            Back::Automatic => RollBack::Automatic,
            Back::Never => RollBack::Never,
        };
        Ok(HealthRules { units: units.transpose()?, within, roll_back })
    }
}

/// Returns position and cause of an error in the text, in one line.
fn placed(text: &str, error: &toml::de::Error) -> String {
    let cause = plain(error.message().lines().next().unwrap_or_default());
    let cause = shown(&cause, 2 * MAX_SHOWN_CHARS);
    let before = error.span().and_then(|span| text.get(..span.start));
    match before {
        Some(before) => format!("line {}: {cause}", before.matches('\n').count() + 1),
        None => cause,
    }
}

/// Reads bytes per second, with systemd's suffixes of thousands: `500K`, `20M`, `1G`.
fn rate(text: &str) -> Option<u64> {
    let suffixes = [('K', 1000), ('M', 1_000_000), ('G', 1_000_000_000)];
    let (suffix, factor) = suffixes.into_iter().find(|(suffix, _)| text.ends_with(*suffix))?;
    let digits = text.strip_suffix(suffix)?;
    let number = digits.chars().all(|digit| digit.is_ascii_digit()).then(|| digits.parse::<u64>().ok())??;
    number.checked_mul(factor)
}

/// Reads a span of time: `90s`, `15m`, `1h30m`, `2d`.
fn span(text: &str) -> Option<Duration> {
    let mut rest = text;
    let mut seconds = 0_u64;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit())?;
        let (number, unit) = rest.split_at_checked(digits)?;
        let factor = match unit.chars().next()? {
            's' => 1,
            'm' => 60,
            'h' => 3600,
            'd' => 86_400,
            _ => return None,
        };
        seconds = seconds.checked_add(number.parse::<u64>().ok()?.checked_mul(factor)?)?;
        rest = unit.get(1..)?;
    }
    (!text.is_empty()).then(|| Duration::from_secs(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FULL: &str = "repair = ['/etc/chrony.conf', '/etc/NetworkManager']\nsoft-reboot = 'where-capable'\n\
        keep-rollback = '1d12h'\n[os]\nstall = '90s'\ntotal = '3h'\nprefetch-bandwidth = '20M'\n\
        [health]\nunits = ['kubelet.service', 'crio.service']\nwithin = '90s'\nroll-back = 'never'\n\
        [seed]\ninclude = ['/var/lib/app']\nexclude = ['/var/lib/app/cache']\n";

    #[test]
    fn every_key_is_read_and_optional() {
        let node_settings = parse(FULL, "f").unwrap();
        let paths: Vec<&str> = node_settings.repair.iter().map(ManagedPath::as_str).collect();
        assert_eq!(paths, ["/etc/NetworkManager", "/etc/chrony.conf"]);
        assert_eq!(node_settings.soft_reboot, SoftReboot::WhereCapable);
        assert_eq!(node_settings.keep_rollback, Some(Duration::from_secs(36 * 3600)));
        assert_eq!(node_settings.os.stall, Duration::from_secs(90));
        assert_eq!(node_settings.os.total, Duration::from_secs(3 * 3600));
        assert_eq!(node_settings.prefetch_bandwidth, Some(20_000_000));
        let units: Vec<&str> = node_settings.health.units.iter().flatten().map(UnitName::as_str).collect();
        assert_eq!(units, ["crio.service", "kubelet.service"]);
        assert_eq!(node_settings.health.within, Duration::from_secs(90));
        assert_eq!(node_settings.health.roll_back, RollBack::Never);
        assert_eq!(
            (&*node_settings.seed.include, &*node_settings.seed.exclude),
            (&["/var/lib/app".to_owned()][..], &["/var/lib/app/cache".to_owned()][..])
        );
        let none = parse("[health]\nunits = []\n", "f").unwrap().health;
        assert_eq!(none, HealthRules { units: Some(BTreeSet::new()), ..HealthRules::default() });
        for empty in [
            "",
            "# nothing\n",
            "[os]\n",
            "[health]\nroll-back = 'automatic'\n",
            "repair = []\n",
            "soft-reboot = 'never'\n",
        ] {
            assert_eq!(parse(empty, "f").unwrap(), NodeSettings::default(), "{empty}");
        }
    }

    /// Unknown keys have no effect; the rest acts.
    #[test]
    fn unknown_keys_are_named_and_others_act() {
        let long = "x".repeat(200_000);
        let text = format!(
            "repairs = []\nkeep-rollback = '24h'\n{long} = 1\n[os]\nspeed = 1\nstall = '90s'\n[later]\na = 1\n\
             [health]\nroll_back = 'never'\n"
        );
        let found = parse(&text, "f").unwrap();
        assert_eq!(found.keep_rollback, Some(Duration::from_secs(24 * 3600)));
        assert_eq!(found.os.stall, Duration::from_secs(90));
        let unknown: Vec<&str> = found.unknown.iter().map(String::as_str).collect();
        assert_eq!(unknown[..4], ["health.roll_back", "later", "os.speed", "repairs"]);
        assert!(unknown.len() == 5 && unknown[4].len() < 200, "{unknown:?}");
        let many = (0..1000).map(|at| format!("a{at} = 1")).collect::<Vec<_>>().join("\n");
        assert_eq!(parse(&many, "f").unwrap().unknown.len(), MAX_UNKNOWN);
    }

    #[test]
    fn error_names_file_key_and_rule() {
        let rows = [
            ("repair = ['etc/x']", "/f: repair = \"etc/x\": "),
            ("\nsoft-reboot = 'always'", "/f is invalid: line 2: it is `always`, and must be"),
            ("keep-rollback = 'soon'", "/f: keep-rollback = \"soon\": must be a duration"),
            ("keep-rollback = ''", "/f: keep-rollback = \"\": "),
            ("[os]\nprefetch-bandwidth = '20'", "/f: os.prefetch-bandwidth = \"20\": must be bytes"),
            ("[os]\nprefetch-bandwidth = '99K'", "/f: os.prefetch-bandwidth = \"99K\": "),
            ("[os]\nprefetch-bandwidth = '-1M'", "/f: os.prefetch-bandwidth = \"-1M\": "),
            ("keep-rollback = '15'", "/f: keep-rollback = \"15\": "),
            ("keep-rollback = 15", "/f is invalid: line 1: it is the number 15, and must be a string"),
            ("keep-rollback = '999999999999999999999d'", "/f: keep-rollback"),
            ("[os]\nstall = '26m'", "/f: os.stall = \"26m\": must be between 1m and 25m"),
            ("[os]\nstall = '59s'", "/f: os.stall = \"59s\": "),
            ("[os]\ntotal = '5m'", "/f: os.total = \"5m\": must not be less than os.stall"),
            ("[health]\nunits = ['kubelet']", "/f: health.units = \"kubelet\": "),
            ("[health]\nwithin = '9s'", "/f: health.within = \"9s\": must be between 10s and 24h"),
            ("[health]\nwithin = '25h'", "/f: health.within = \"25h\": "),
            ("[health]\nroll-back = 'maybe'", "/f is invalid: line 2: it is `maybe`, and must be"),
            ("repair = [", "/f is invalid: line 1: "),
            ("[seed]\ninclude = ['/usr/x']", "/f: seed.include = \"/usr/x\": must be a path below"),
            ("[seed]\nexclude = ['x']", "/f: seed.exclude = \"x\": must be a path below"),
        ];
        for long in [
            format!("keep-rollback = '{}'", "x".repeat(200_000)),
            format!("soft-reboot = '{}'", "x".repeat(200_000)),
            format!("repair = ['{}']", "x".repeat(200_000)),
            format!("[health]\nunits = ['{}']", "x".repeat(200_000)),
        ] {
            let message = parse(&long, "/f").unwrap_err().to_string();
            assert!(
                message.len() < 600 && message.contains("xxx"),
                "{} bytes: {message:.700}",
                message.len()
            );
        }
        for (text, expected) in rows {
            let error = parse(text, "/f").unwrap_err();
            assert!(error.to_string().starts_with(expected), "{text}: {error}");
        }
    }
}
