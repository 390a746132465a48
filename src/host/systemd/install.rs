//! The `[Install]` section of a unit file: parsed and expanded as systemctl(1) does.

use crate::host::HostError;

/// The `[Install]` section of a unit file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Install {
    wanted_by: Vec<String>,
    required_by: Vec<String>,
    upheld_by: Vec<String>,
    alias: Vec<String>,
    /// Units that are enabled and disabled together with this one.
    pub(super) also: Vec<String>,
    default_instance: Option<String>,
}

/// A link in `/etc/systemd/system`: its path there, and the name of the unit that it is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct InstallLink {
    /// The path below `/etc/systemd/system`.
    pub(super) at: String,
}

impl Install {
    /// Adds the settings of a unit file, or of a drop-in of it. An empty assignment clears the list.
    pub(super) fn read(&mut self, text: &str) {
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
        list.extend(value.split_whitespace().map(|word| word.trim_matches(['"', '\'']).to_owned()));
    }

    /// Returns the links that enabling `unit` makes.
    pub(super) fn links(&self, unit: &str) -> Result<Vec<InstallLink>, HostError> {
        let error = |cause: String| HostError::Unit { unit: unit.to_owned(), cause };
        let mut links = Vec::new();
        for alias in &self.alias {
            let alias = expand(alias, unit)?;
            if suffix(&alias) != suffix(unit) || alias.contains('/') {
                return Err(error(format!("Alias={alias} is not of the same type")));
            }
            links.push(InstallLink { at: alias });
        }
        let groups =
            [(&self.wanted_by, "wants"), (&self.required_by, "requires"), (&self.upheld_by, "upholds")];
        for (targets, folder) in groups {
            for target in targets {
                let target = expand(target, unit)?;
                let name = self.instance_of(unit);
                if target.contains('/') || suffix(&target).is_none() {
                    return Err(error(format!("{target:?} is no unit that can want it")));
                }
                if is_template(&name) && !is_template(&target) {
                    return Err(error(
                        "it is a template: name an instance, or give it DefaultInstance=".to_owned(),
                    ));
                }
                links.push(InstallLink { at: format!("{target}.{folder}/{name}") });
            }
        }
        Ok(links)
    }

    /// Returns the instance that enabling a template stands for.
    fn instance_of(&self, unit: &str) -> String {
        match (&self.default_instance, unit.split_once("@.")) {
            (Some(instance), Some((prefix, suffix))) => format!("{prefix}@{instance}.{suffix}"),
            _ => unit.to_owned(),
        }
    }
}

/// Returns the template of an instance: `a@.service` of `a@b.service`.
pub(super) fn template(unit: &str) -> Option<String> {
    let (prefix, rest) = unit.split_once('@')?;
    let (instance, suffix) = rest.rsplit_once('.')?;
    (!instance.is_empty()).then(|| format!("{prefix}@.{suffix}"))
}

fn is_template(unit: &str) -> bool {
    unit.contains("@.")
}

fn suffix(unit: &str) -> Option<&str> {
    unit.rsplit_once('.').map(|(_, suffix)| suffix)
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
fn expand(text: &str, unit: &str) -> Result<String, HostError> {
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
                let cause = format!("the specifier %{specifier} in its [Install] section is not supported");
                return Err(HostError::Unit { unit: unit.to_owned(), cause });
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
    fn failed_enablement_names_unit() {
        for (unit, text) in [
            ("a@.service", "[Install]\nWantedBy=multi-user.target\n"),
            ("a.service", "[Install]\nAlias=b.socket\n"),
            ("a.service", "[Install]\nWantedBy=../../x.target\n"),
            ("a.service", "[Install]\nWantedBy=%H.target\n"),
        ] {
            let mut install = Install::default();
            install.read(text);
            let error = install.links(unit).unwrap_err();
            assert!(error.to_string().contains(unit), "{error}");
        }
    }
}
