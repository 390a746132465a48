//! Preset files: the distribution's and the administrator's wish for a unit that the config does not enable or disable.

use crate::host::HostError;
use crate::model::install::template;

use super::coming::Sources;

/// Highest priority first.
const DIRECTORIES: [&str; 5] = [
    "/etc/systemd/system-preset",
    "/run/systemd/system-preset",
    "/usr/local/lib/systemd/system-preset",
    "/usr/lib/systemd/system-preset",
    "/lib/systemd/system-preset",
];

/// Decision of the presets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Preset {
    /// Enable it; also without a matching rule.
    Enable,
    /// Disable it.
    Disable,
    /// Leave it as it is.
    Ignore,
}

#[derive(Debug, Clone)]
struct Rule {
    pattern: String,
    instances: Vec<String>,
    verdict: Preset,
}

/// The rules of a root, in order.
#[derive(Debug, Clone, Default)]
pub(super) struct Presets(Vec<Rule>);

impl Presets {
    /// Reads the preset files in the order of their names; a file hides those of the same name in later directories.
    pub(super) fn load(sources: &Sources<'_>) -> Result<Self, HostError> {
        let mut files: Vec<(String, &str)> = Vec::new();
        for directory in DIRECTORIES {
            for name in sources.list(directory)? {
                if name.ends_with(".preset") && !files.iter().any(|(observed, _)| *observed == name) {
                    files.push((name, directory));
                }
            }
        }
        files.sort_unstable();
        let mut rules = Vec::new();
        for (name, directory) in files {
            // A link to /dev/null leads to nothing below another root, and to a device on the machine's own.
            match sources.read(&format!("{directory}/{name}")) {
                Ok(bytes) => {
                    let text = String::from_utf8_lossy(&bytes.unwrap_or_default()).into_owned();
                    rules.extend(text.lines().filter_map(rule));
                }
                Err(error) if error.is_of_kind() || error.is_unreachable() => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Self(rules))
    }

    /// Returns the decision of the first rule that matches.
    pub(super) fn lookup(&self, unit: &str) -> Preset {
        let matching = self.0.iter().find(|rule| rule.is_for(unit));
        matching.map_or(Preset::Enable, |rule| rule.verdict)
    }

    /// Returns the units of a preset of this name: the instances that a rule names for a template, else the unit.
    pub(super) fn named(&self, unit: &str) -> Vec<String> {
        let matching = self.0.iter().find(|rule| rule.is_for(unit));
        match (matching, unit.split_once("@.")) {
            (Some(rule), Some((prefix, suffix))) if !rule.instances.is_empty() => {
                rule.instances.iter().map(|instance| format!("{prefix}@{instance}.{suffix}")).collect()
            }
            (Some(_) | None, _) => vec![unit.to_owned()],
        }
    }
}

impl Rule {
    fn is_for(&self, unit: &str) -> bool {
        if self.instances.is_empty() {
            return matches(&self.pattern, unit);
        }
        // The template itself stands for the instances that are named.
        if unit.contains("@.") {
            return self.pattern == unit;
        }
        // `enable a@.service b c` is for the instances a@b.service and a@c.service only.
        let instance =
            unit.split_once('@').and_then(|(_, rest)| rest.rsplit_once('.')).map(|(instance, _)| instance);
        template(unit).is_some_and(|template| matches(&self.pattern, &template))
            && self.instances.iter().any(|one| Some(one.as_str()) == instance)
    }
}

fn rule(line: &str) -> Option<Rule> {
    let line = line.trim();
    if line.starts_with(['#', ';']) {
        return None;
    }
    let mut words = line.split_whitespace();
    let verdict = match words.next()? {
        "enable" => Preset::Enable,
        "disable" => Preset::Disable,
        "ignore" => Preset::Ignore,
        _ => return None,
    };
    let pattern = words.next()?.to_owned();
    Some(Rule { pattern, instances: words.map(str::to_owned).collect(), verdict })
}

/// Matches as fnmatch(3) with `FNM_NOESCAPE`: `*`, `?` and `[...]`.
fn matches(pattern: &str, name: &str) -> bool {
    let mut pattern_rest = pattern.chars();
    let Some(first) = pattern_rest.next() else { return name.is_empty() };
    let mut name_rest = name.chars();
    match first {
        '*' => {
            let tail = pattern_rest.as_str();
            name.char_indices().any(|(at, _)| matches(tail, name.get(at..).unwrap_or_default()))
                || matches(tail, "")
        }
        '?' => name_rest.next().is_some() && matches(pattern_rest.as_str(), name_rest.as_str()),
        '[' => match (bracket(pattern_rest.as_str()), name_rest.next()) {
            (Some((set, tail)), Some(c)) => in_set(set, c) && matches(tail, name_rest.as_str()),
            (Some(_), None) => false,
            // A bracket that is not closed stands for itself.
            (None, c) => c == Some('[') && matches(pattern_rest.as_str(), name_rest.as_str()),
        },
        literal => name_rest.next() == Some(literal) && matches(pattern_rest.as_str(), name_rest.as_str()),
    }
}

/// Splits a bracket's set from the rest; a `]` that comes first belongs to the set.
fn bracket(rest: &str) -> Option<(&str, &str)> {
    let negation = usize::from(rest.starts_with(['!', '^']));
    let close = rest.char_indices().skip(negation + 1).find(|(_, c)| *c == ']')?.0;
    Some((rest.get(..close)?, rest.get(close + 1..)?))
}

fn in_set(set: &str, c: char) -> bool {
    let (set, negated) = match set.strip_prefix(['!', '^']) {
        Some(set) => (set, true),
        None => (set, false),
    };
    let chars: Vec<char> = set.chars().collect();
    let mut rest = chars.as_slice();
    let mut found = false;
    while let [first, tail @ ..] = rest {
        if let ['-', last, after @ ..] = tail {
            found |= (*first..=*last).contains(&c);
            rest = after;
        } else {
            found |= *first == c;
            rest = tail;
        }
    }
    found != negated
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::host::root::Root;

    #[test]
    fn patterns_match_as_fnmatch() {
        for (pattern, name, expected) in [
            ("*", "a.service", true),
            ("*", "", true),
            ("sshd.*", "sshd.service", true),
            ("sshd.*", "xsshd.service", false),
            ("a?c.service", "abc.service", true),
            ("a[bx]c.service", "abc.service", true),
            ("a[!b]c.service", "abc.service", false),
            ("a[a-c]c.service", "abc.service", true),
            ("systemd-*.timer", "systemd-tmpfiles-clean.timer", true),
            ("a[b.service", "a[b.service", true),
            ("a@*.service", "a@b.service", true),
        ] {
            assert_eq!(matches(pattern, name), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn first_match_of_files_in_name_order_wins() {
        let dir = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = dir.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write(
            "usr/lib/systemd/system-preset/90-default.preset",
            "# x\nenable sshd.service\nignore odd.service\n",
        );
        write("usr/lib/systemd/system-preset/99-default-disable.preset", "disable *\n");
        write("usr/lib/systemd/system-preset/80-hidden.preset", "disable sshd.service\n");
        write("etc/systemd/system-preset/80-hidden.preset", "\n");
        write(
            "etc/systemd/system-preset/20-site.preset",
            "disable chronyd.service\nenable getty@.service tty1 tty2\n",
        );
        write("usr/lib/systemd/system-preset/90-default.txt", "disable sshd.service\n");
        let root = Root::open(dir.path()).unwrap();
        let presets = Presets::load(&Sources::new(&root, BTreeMap::new())).unwrap();
        for (unit, expected) in [
            ("sshd.service", Preset::Enable),
            ("odd.service", Preset::Ignore),
            ("chronyd.service", Preset::Disable),
            ("getty@tty2.service", Preset::Enable),
            ("getty@tty3.service", Preset::Disable),
            ("other.service", Preset::Disable),
        ] {
            assert_eq!(presets.lookup(unit), expected, "{unit}");
        }
        assert_eq!(Presets::default().lookup("other.service"), Preset::Enable);
    }
}
