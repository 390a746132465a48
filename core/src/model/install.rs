//! The `[Install]` section of a unit file: parsed and expanded as systemctl(1) does.

use super::UnitName;
use super::text::short;

/// `NAME_MAX` of Linux.
const LONGEST_NAME: usize = 255;

/// Types of units that have no other names: systemd ignores their `Alias=`.
const WITHOUT_ALIAS: [&str; 4] = ["mount", "swap", "automount", "slice"];

/// The `[Install]` section of a unit file. The errors are causes, without the unit.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Install {
    wanted_by: Vec<String>,
    required_by: Vec<String>,
    upheld_by: Vec<String>,
    alias: Vec<String>,
    /// Units that are enabled and disabled together with this one.
    also: Vec<String>,
    default_instance: Option<String>,
}

/// A link in `/etc/systemd/system`: its path there, and the name of the unit that it is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstallLink {
    /// The path below `/etc/systemd/system`.
    pub at: String,
}

impl Install {
    /// Adds the settings of a unit file, or of a drop-in of it. An empty assignment clears the list.
    pub fn read(&mut self, text: &str) {
        let mut inside = false;
        for line in logical_lines(text) {
            let line = line.trim();
            if line.starts_with('[') {
                inside = line == "[Install]";
            } else if let (true, Some((key, value))) = (inside, line.split_once('=')) {
                self.assign(key.trim_end(), value.trim());
            }
        }
    }

    fn assign(&mut self, key: &str, value: &str) {
        let list = match key {
            "WantedBy" => &mut self.wanted_by,
            "RequiredBy" => &mut self.required_by,
            "UpheldBy" => &mut self.upheld_by,
            "Alias" => &mut self.alias,
            "Also" => &mut self.also,
            "DefaultInstance" => {
                self.default_instance = (!value.is_empty()).then(|| value.to_owned());
                return;
            }
            _ => return,
        };
        if value.is_empty() {
            list.clear();
        }
        if key == "Also" {
            // The one list without quotes.
            list.extend(value.split_whitespace().map(str::to_owned));
        } else {
            list.extend(words(value));
        }
    }

    /// Returns the links that enabling `unit` makes.
    pub fn links(&self, unit: &str) -> Result<Vec<InstallLink>, String> {
        let mut links = Vec::new();
        let has_aliases = suffix(unit).is_none_or(|suffix| !WITHOUT_ALIAS.contains(&suffix));
        for alias in self.alias.iter().filter(|_| has_aliases) {
            links.extend(alias_link(&expand(alias, unit)?, unit)?.map(|at| InstallLink { at }));
        }
        let groups = [
            ("WantedBy", &self.wanted_by, "wants"),
            ("RequiredBy", &self.required_by, "requires"),
            ("UpheldBy", &self.upheld_by, "upholds"),
        ];
        for (key, targets, folder) in groups {
            for target in targets {
                let target = expand(target, unit)?;
                let name = self.instance_of(unit)?;
                if !is_name(&target) {
                    return Err(format!("{target:?} in its {key}= is not a valid unit name"));
                }
                if is_template(&name) && !target.contains('@') {
                    let cause = "it is a template: name an instance, or give it DefaultInstance=";
                    return Err(cause.to_owned());
                }
                links.push(InstallLink { at: format!("{target}.{folder}/{name}") });
            }
        }
        let is_too_long = |link: &&InstallLink| link.at.split('/').any(|part| part.len() > LONGEST_NAME);
        match links.iter().find(is_too_long) {
            Some(link) => {
                let at = short(&link.at, 100);
                Err(format!("its link {at:?} would have a name of more than {LONGEST_NAME} bytes"))
            }
            None => Ok(links),
        }
    }

    /// Returns the units of its `Also=`.
    pub fn also(&self, unit: &str) -> Result<Vec<String>, String> {
        let name = |text: &String| {
            let name = expand(text, unit)?;
            if is_name(&name) {
                Ok(name)
            } else {
                Err(format!("{name:?} in its Also= is not a valid unit name"))
            }
        };
        self.also.iter().map(name).collect()
    }

    /// Returns the instance that enabling a template stands for.
    pub fn instance_of(&self, unit: &str) -> Result<String, String> {
        let (Some(instance), Some((prefix, suffix))) = (&self.default_instance, unit.split_once("@.")) else {
            return Ok(unit.to_owned());
        };
        let name = format!("{prefix}@{}.{suffix}", expand(instance, unit)?);
        if is_name(&name) {
            return Ok(name);
        }
        Err(format!("DefaultInstance={instance} does not make a valid unit name"))
    }
}

fn is_name(text: &str) -> bool {
    UnitName::new(text).is_ok()
}

/// Returns the path of the link that an alias is; `None` for the unit's own name. Type and instance have to be those of the
/// unit; a template's alias may name an instance.
fn alias_link(alias: &str, unit: &str) -> Result<Option<String>, String> {
    if alias == unit {
        return Ok(None);
    }
    if let Some((folder, name)) = alias.rsplit_once('/') {
        let of = [".wants", ".requires"].iter().find_map(|end| folder.strip_suffix(end));
        if name == unit && of.is_some_and(is_name) {
            return Ok(Some(alias.to_owned()));
        }
    } else if is_name(alias) && suffix(alias) == suffix(unit) {
        match (instance(unit), instance(alias)) {
            (None, None) | (Some(""), Some(_)) => return Ok(Some(alias.to_owned())),
            (Some(own), Some("")) => return Ok(Some(alias.replacen('@', &format!("@{own}"), 1))),
            (Some(own), Some(other)) if own == other => return Ok(Some(alias.to_owned())),
            (Some(_) | None, _) => {}
        }
    }
    Err(format!("Alias={alias} must have the type and instance of {unit}"))
}

/// Returns the instance of a unit's name: nothing of a template, `None` of a plain one.
fn instance(unit: &str) -> Option<&str> {
    let (_, rest) = unit.split_once('@')?;
    rest.rsplit_once('.').map(|(instance, _)| instance)
}

/// Returns the template of an instance: `a@.service` of `a@b.service`.
pub fn template(unit: &str) -> Option<String> {
    let (prefix, rest) = unit.split_once('@')?;
    let (instance, suffix) = rest.rsplit_once('.')?;
    (!instance.is_empty()).then(|| format!("{prefix}@.{suffix}"))
}

/// Returns true for the name of a template.
pub fn is_template(unit: &str) -> bool {
    unit.contains("@.")
}

fn suffix(unit: &str) -> Option<&str> {
    unit.rsplit_once('.').map(|(_, suffix)| suffix)
}

/// Splits a value into words, as systemd does: in quotes blanks are of the word. A quote without its end makes systemd ignore the
/// value.
fn words(value: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    for c in value.chars() {
        match (quote, c) {
            (None, '"' | '\'') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (Some(open), _) if open == c => quote = None,
            (None, _) if c.is_whitespace() => words.extend(word.take()),
            (Some(_) | None, _) => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    if quote.is_some() { Vec::new() } else { words }
}

/// Joins lines that end in a backslash and drops comments, also those in between.
fn logical_lines(text: &str) -> Vec<String> {
    let mut lines = Vec::new();
    let mut pending = String::new();
    for line in text.lines() {
        if line.trim_start().starts_with(['#', ';']) {
            continue;
        }
        if let Some(start) = line.strip_suffix('\\') {
            pending += start;
            pending.push(' ');
        } else {
            pending += line;
            lines.push(std::mem::take(&mut pending));
        }
    }
    lines.push(pending);
    lines
}

/// Replaces the specifiers that depend on the unit's name alone. Others depend on the running host: they are refused,
/// because the agent also enables units below other roots.
fn expand(text: &str, unit: &str) -> Result<String, String> {
    let stem = unit.rsplit_once('.').map_or(unit, |(stem, _)| stem);
    let (prefix, instance) = stem.split_once('@').unwrap_or((stem, ""));
    let mut expanded = String::new();
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        if c != '%' {
            expanded.push(c);
            continue;
        }
        match rest.next() {
            Some('%') => expanded.push('%'),
            Some('n') => expanded += unit,
            Some('N') => expanded += stem,
            Some('p') => expanded += prefix,
            Some('i') => expanded += instance,
            Some('j') => expanded += prefix.rsplit_once('-').map_or(prefix, |(_, last)| last),
            other => {
                let specifier = other.map(String::from).unwrap_or_default();
                return Err(format!("the specifier %{specifier} in its [Install] section is not supported"));
            }
        }
    }
    Ok(expanded)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn links(unit: &str, text: &str) -> Vec<String> {
        let mut install = Install::default();
        install.read(text);
        install.links(unit).unwrap().into_iter().map(|link| link.at).collect()
    }

    #[test]
    fn links_as_systemctl_makes_them() {
        let cases: [(&str, &str, &[&str]); 7] = [
            (
                "a.service",
                "[Unit]\nWantedBy=no.target\n[Install]\nWantedBy=multi-user.target\n",
                &["multi-user.target.wants/a.service"],
            ),
            (
                "a.service",
                "[Install]\nWantedBy=x.target \\\n# comment\n y.target\nRequiredBy=z.target\n",
                &["x.target.wants/a.service", "y.target.wants/a.service", "z.target.requires/a.service"],
            ),
            (
                "a.service",
                "[Install]\nWantedBy=x.target\nWantedBy=\nWantedBy=y.target\n",
                &["y.target.wants/a.service"],
            ),
            (
                "a.service",
                "[Install]\nAlias=b.service %p-c.service\nUpheldBy=u.service\n",
                &["b.service", "a-c.service", "u.service.upholds/a.service"],
            ),
            (
                "getty@tty1.service",
                "[Install]\nWantedBy=getty.target\nDefaultInstance=tty9\n",
                &["getty.target.wants/getty@tty1.service"],
            ),
            (
                "getty@.service",
                "[Install]\nWantedBy=getty.target\nDefaultInstance=tty1\n",
                &["getty.target.wants/getty@tty1.service"],
            ),
            ("x@a.service", "[Install]\nWantedBy=%i.target\n", &["a.target.wants/x@a.service"]),
        ];
        for (unit, text, expected) in cases {
            assert_eq!(links(unit, text), expected, "{unit}: {text}");
        }
    }

    #[test]
    fn section_that_cannot_be_enabled_is_refused() {
        for (unit, text, word) in [
            ("a@.service", "[Install]\nWantedBy=multi-user.target\n", "a template"),
            ("a.service", "[Install]\nAlias=b.socket\n", "a.service"),
            ("a.service", "[Install]\nWantedBy=x.foo\n", "x.foo"),
            ("a.service", "[Install]\nWantedBy=../../x.target\n", "../../x.target"),
            ("a.service", "[Install]\nWantedBy=%H.target\n", "%H"),
        ] {
            let mut install = Install::default();
            install.read(text);
            let error = install.links(unit).unwrap_err();
            assert!(error.contains(word), "{error}");
        }
    }
}
