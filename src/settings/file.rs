//! The settings file of one node, `/etc/machine-config-agent/settings.toml`: TOML to [`NodeSettings`].
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
//! ```
//!
//! Every key may be absent, the file too: a node without it has the settings of [`NodeSettings::default`]. A key that
//! is not known is an error: one that is misspelt would otherwise have no effect, unnoticed.

use std::collections::BTreeSet;
use std::time::Duration;

use serde::Deserialize;

use crate::host::{HostError, Root};
use crate::model::node_settings::{HealthRules, OsLimits, RollBack, SoftReboot};
use crate::model::text::shown;
use crate::model::{FaultClass, HostSpec, ManagedPath, NodeSettings, UnitName, short};
use crate::plan::Irreconcilable;

/// The largest file that is read: a few names and times, and the paths that are repaired.
const MAX_BYTES: u64 = 256 * 1024;

/// As much of a wrong value is shown.
const MAX_SHOWN_CHARS: usize = 100;

/// Path of the file on a host.
pub const SETTINGS_PATH: &str = "/etc/machine-config-agent/settings.toml";

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

/// A settings file that can't be used.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// It can't be read.
    #[error(transparent)]
    Read(#[from] HostError),
    /// It is no TOML, or has a key or a type that is not known.
    #[error("{file} is not understood: {cause}")]
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

impl FileError {
    /// Returns a bounded word.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Read(_) | Self::Syntax { .. } | Self::Value { .. } => "SettingsInvalid",
        }
    }

    /// Returns the class: the node continues with the settings it has.
    pub fn class(&self) -> FaultClass {
        FaultClass::Degraded
    }

    /// Returns the next step beside a running agent.
    pub fn next(&self) -> String {
        format!("{}; then: systemctl reload machine-config-agent", self.correction())
    }

    /// Returns what corrects the file, without a full stop.
    pub fn correction(&self) -> String {
        match self {
            Self::Read(error) => error.next().trim_end_matches('.').to_owned(),
            Self::Syntax { file, .. } | Self::Value { file, .. } => {
                format!("Correct {file} (keys and values: reference.md), or move {file} away")
            }
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
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
}

#[derive(Debug, Deserialize, Default)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Limits {
    stall: Option<String>,
    total: Option<String>,
    prefetch_bandwidth: Option<String>,
}

#[derive(Debug, Deserialize, Default)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
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

/// Reads the file; a missing one sets nothing. `shown` is its name for people. It decides about written files and
/// reboots of the host, so only root may have written it.
pub fn read(root: &Root, path: &str, shown: &str) -> Result<NodeSettings, FileError> {
    let Some(bytes) = root.read_trusted(path, MAX_BYTES)? else { return Ok(NodeSettings::default()) };
    let text = String::from_utf8(bytes)
        .map_err(|_| FileError::Syntax { file: shown.to_owned(), cause: "it is not UTF-8".to_owned() })?;
    parse(&text, shown)
}

/// Refuses a config whose own settings file this agent could not read: each later run would end with that.
pub fn check_spec(spec: &HostSpec) -> Result<(), Irreconcilable> {
    let file = spec.files.iter().find(|(path, _)| path.as_str() == SETTINGS_PATH);
    let Some((path, file)) = file else { return Ok(()) };
    let bytes = file.contents.bytes();
    let is_too_large = u64::try_from(bytes.len()).is_ok_and(|length| length > MAX_BYTES);
    let too_large = || format!("{SETTINGS_PATH} is larger than {MAX_BYTES} bytes");
    let read = if is_too_large { Err(too_large()) } else { text_of(bytes) };
    let found = read.and_then(|text| parse(text, SETTINGS_PATH).map_err(|error| error.to_string()));
    found.map(drop).map_err(|cause| {
        let field = format!("storage.files {:?} contents", path.as_str());
        Irreconcilable::of_config(
            field,
            format!("{cause}; correct the file's contents (keys and values: reference.md)"),
        )
    })
}

fn text_of(bytes: &[u8]) -> Result<&str, String> {
    std::str::from_utf8(bytes).map_err(|_| format!("{SETTINGS_PATH} is not UTF-8"))
}

/// Reads the text of the file of this name.
pub fn parse(text: &str, file: &str) -> Result<NodeSettings, FileError> {
    let document: Document = toml::from_str(text)
        .map_err(|error| FileError::Syntax { file: file.to_owned(), cause: placed(text, &error) })?;
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
    })
}

/// Reader of a file's values, by their keys.
struct Keys<'a> {
    file: &'a str,
}

impl Keys<'_> {
    fn wrong(&self, key: &'static str, value: &str, rule: &str) -> FileError {
        let value = short(value, MAX_SHOWN_CHARS);
        FileError::Value { file: self.file.to_owned(), key, value, rule: rule.to_owned() }
    }

    fn duration(&self, key: &'static str, text: Option<&String>) -> Result<Option<Duration>, FileError> {
        let Some(text) = text else { return Ok(None) };
        let rule = "it is a number with s, m, h or d, such as \"15m\" or \"1h30m\"";
        span(text).map(Some).ok_or_else(|| self.wrong(key, text, rule))
    }

    fn limits(&self, os: &Limits) -> Result<OsLimits, FileError> {
        let OsLimits { stall, total } = OsLimits::default();
        let limits = OsLimits {
            stall: self.duration("os.stall", os.stall.as_ref())?.unwrap_or(stall),
            total: self.duration("os.total", os.total.as_ref())?.unwrap_or(total),
        };
        if !(SHORTEST_STALL..=LONGEST_STALL).contains(&limits.stall) {
            let rule = "it is between 1m and 25m, which is less than the watchdog of the service";
            return Err(self.wrong("os.stall", os.stall.as_deref().unwrap_or_default(), rule));
        }
        if limits.total < limits.stall {
            let total = os.total.as_deref().unwrap_or_default();
            return Err(self.wrong("os.total", total, "it is not less than os.stall"));
        }
        Ok(limits)
    }

    fn bandwidth(&self, text: Option<&String>) -> Result<Option<u64>, FileError> {
        let Some(text) = text else { return Ok(None) };
        let rule = "it is a number of bytes per second with K, M or G, such as \"20M\", and at least 100K";
        let found = rate(text).filter(|rate| *rate >= SLOWEST_PREFETCH);
        found.map(Some).ok_or_else(|| self.wrong("os.prefetch-bandwidth", text, rule))
    }

    fn health(&self, health: &Health) -> Result<HealthRules, FileError> {
        let unit = |name: &String| {
            UnitName::new(name).map_err(|error| self.wrong("health.units", name, &error.to_string()))
        };
        let units = health.units.as_ref().map(|names| names.iter().map(unit).collect::<Result<_, _>>());
        let within = self.duration("health.within", health.within.as_ref())?;
        let within = within.unwrap_or(HealthRules::default().within);
        if !(SHORTEST_TRIAL..=LONGEST_TRIAL).contains(&within) {
            let text = health.within.as_deref().unwrap_or_default();
            return Err(self.wrong("health.within", text, "it is between 10s and 24h"));
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
    let cause = shown(error.message().lines().next().unwrap_or_default(), 2 * MAX_SHOWN_CHARS);
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
        [health]\nunits = ['kubelet.service', 'crio.service']\nwithin = '90s'\nroll-back = 'never'\n";

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

    #[test]
    fn error_names_file_key_and_rule() {
        let rows = [
            ("repair = ['etc/x']", "/f: repair = \"etc/x\": "),
            ("\nsoft-reboot = 'always'", "/f is not understood: line 2: unknown variant `always`"),
            ("keep-rollback = 'soon'", "/f: keep-rollback = \"soon\": it is a number with s, m, h or d"),
            ("keep-rollback = ''", "/f: keep-rollback = \"\": "),
            (
                "[os]\nprefetch-bandwidth = '20'",
                "/f: os.prefetch-bandwidth = \"20\": it is a number of bytes",
            ),
            ("[os]\nprefetch-bandwidth = '99K'", "/f: os.prefetch-bandwidth = \"99K\": "),
            ("[os]\nprefetch-bandwidth = '-1M'", "/f: os.prefetch-bandwidth = \"-1M\": "),
            ("keep-rollback = '15'", "/f: keep-rollback = \"15\": "),
            ("keep-rollback = 15", "/f is not understood: line 1: invalid type: integer"),
            ("keep-rollback = '999999999999999999999d'", "/f: keep-rollback"),
            ("[os]\nstall = '26m'", "/f: os.stall = \"26m\": it is between 1m and 25m"),
            ("[os]\nstall = '59s'", "/f: os.stall = \"59s\": "),
            ("[os]\ntotal = '5m'", "/f: os.total = \"5m\": it is not less than os.stall"),
            ("\n[os]\nspeed = 1", "/f is not understood: line 3: unknown field `speed`"),
            ("[health]\nunits = ['kubelet']", "/f: health.units = \"kubelet\": "),
            ("[health]\nwithin = '9s'", "/f: health.within = \"9s\": it is between 10s and 24h"),
            ("[health]\nwithin = '25h'", "/f: health.within = \"25h\": "),
            ("[health]\nroll-back = 'maybe'", "/f is not understood: line 2: unknown variant `maybe`"),
            ("repairs = []", "/f is not understood: line 1: unknown field `repairs`"),
            ("repair = [", "/f is not understood: line 1: "),
        ];
        for long in [
            format!("keep-rollback = '{}'", "x".repeat(200_000)),
            format!("soft-reboot = '{}'", "x".repeat(200_000)),
            format!("repair = ['{}']", "x".repeat(200_000)),
            format!("[health]\nunits = ['{}']", "x".repeat(200_000)),
            format!("{} = 1", "x".repeat(200_000)),
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
            assert!(error.next().contains("reload machine-config-agent"));
        }
    }
}
