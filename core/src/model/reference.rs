//! References of images: `[DOMAIN/]PATH[:TAG][@DIGEST]`, in the grammar of the distribution project, which registries
//! and container tools share (<https://pkg.go.dev/github.com/distribution/reference>).
//!
//! One difference: a digest is sha256. Nothing here normalizes: `os` stays `os`, although it means `docker.io/library/os`.

/// The longest path, with the `library/` that Docker Hub's own images get.
const MAX_PATH: usize = 255;

/// The longest tag.
const MAX_TAG: usize = 128;

/// The longest reference. The grammar has no limit for a domain.
const MAX_REFERENCE: usize = 4096;

/// Namespace of Docker Hub's own images.
const LIBRARY: &str = "library/";

/// A reference that follows the grammar.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reference<'a> {
    name: &'a str,
    domain: Option<&'a str>,
    path: &'a str,
    tag: Option<&'a str>,
    hex: Option<&'a str>,
}

impl<'a> Reference<'a> {
    /// Reads a reference; the error is the rule that it breaks.
    pub fn parse(text: &'a str) -> Result<Self, &'static str> {
        if text.len() > MAX_REFERENCE {
            return Err("it is longer than 4096 bytes");
        }
        let (named, hex) = match text.split_once('@') {
            Some((named, digest)) => (named, Some(hex(digest)?)),
            None => (text, None),
        };
        let (domain, rest) = split_domain(named);
        let (path, tag) = match rest.split_once(':') {
            Some((path, tag)) => (path, Some(tag)),
            None => (rest, None),
        };
        let name = named.get(..named.len() - (rest.len() - path.len())).unwrap_or(named);
        if is_sha256_hex(text) {
            return Err("its name is 64 hex digits, which tools take for an image ID");
        }
        let (domain, path) = match domain {
            Some(domain) if is_domain(domain) => (Some(domain), path),
            // A first part with `_` and a dot is no domain, yet a component of a path.
            Some(_) if is_path(name) => (None, name),
            Some(_) => return Err("its registry is not HOST[:PORT]"),
            None => (None, path),
        };
        check_path(domain, path)?;
        if tag.is_some_and(|tag| !is_tag(tag)) {
            return Err("its tag is not 1 to 128 letters, digits, `_`, `.` and `-`");
        }
        Ok(Self { name, domain, path, tag, hex })
    }

    /// Returns the name: all before tag and digest.
    pub fn name(&self) -> &'a str {
        self.name
    }

    /// Returns the registry with its port; `None` where the name has none, which is Docker Hub by convention.
    pub fn domain(&self) -> Option<&'a str> {
        self.domain
    }

    /// Returns the reference as tools take it: containers/image refuses a tag beside a digest.
    pub fn canonical(&self) -> String {
        match (self.hex, self.tag) {
            (Some(hex), _) => format!("{}@sha256:{hex}", self.name),
            (None, Some(tag)) => format!("{}:{tag}", self.name),
            (None, None) => self.name.to_owned(),
        }
    }

    /// Returns the repository in the registry.
    pub fn path(&self) -> &'a str {
        self.path
    }

    /// Returns the tag.
    pub fn tag(&self) -> Option<&'a str> {
        self.tag
    }

    /// Returns the 64 hex digits of the digest.
    pub fn hex(&self) -> Option<&'a str> {
        self.hex
    }
}

/// Returns true for `sha256:` and 64 lower-case hex digits.
pub fn is_digest(text: &str) -> bool {
    hex(text).is_ok()
}

fn hex(digest: &str) -> Result<&str, &'static str> {
    let hex = digest.strip_prefix("sha256:").ok_or("its digest is not sha256")?;
    if is_sha256_hex(hex) { Ok(hex) } else { Err("its digest is not 64 lower-case hex digits") }
}

fn is_sha256_hex(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}

/// A first part is a domain if it cannot be the first part of a path: by a dot, a port, a capital, or this one name.
fn split_domain(named: &str) -> (Option<&str>, &str) {
    let Some((first, rest)) = named.split_once('/') else { return (None, named) };
    let is_domain = first.contains(['.', ':'])
        || first == "localhost"
        || first.chars().any(char::is_uppercase)
        || first.is_empty();
    if is_domain { (Some(first), rest) } else { (None, named) }
}

fn is_domain(text: &str) -> bool {
    let (host, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((host, port)) => {
            let is_ipv6 = !host.is_empty() && host.bytes().all(|b| b.is_ascii_hexdigit() || b == b':');
            (is_ipv6, port.strip_prefix(':').or(if port.is_empty() { None } else { Some("") }))
        }
        None => match text.split_once(':') {
            Some((host, port)) => (is_host(host), Some(port)),
            None => (is_host(text), None),
        },
    };
    host && port.is_none_or(|port| !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit()))
}

fn is_host(host: &str) -> bool {
    host.split('.').all(|label| {
        let plain = |b: u8| b.is_ascii_alphanumeric() || b == b'-';
        !label.is_empty() && label.bytes().all(plain) && !label.starts_with('-') && !label.ends_with('-')
    })
}

fn check_path(domain: Option<&str>, path: &str) -> Result<(), &'static str> {
    if path.chars().any(char::is_uppercase) {
        return Err("its repository is not in lower case");
    }
    if !is_path(path) {
        return Err("its name is not [REGISTRY[:PORT]/]REPOSITORY");
    }
    let is_hub = domain.is_none_or(|domain| domain == "docker.io" || domain == "index.docker.io");
    let more = if is_hub && !path.contains('/') { LIBRARY.len() } else { 0 };
    if path.len() + more > MAX_PATH {
        return Err("its repository is longer than 255 characters");
    }
    Ok(())
}

fn is_path(path: &str) -> bool {
    path.split('/').all(is_component)
}

/// Lower-case letters and digits, between them one `.`, one or two `_`, or any number of `-`.
fn is_component(part: &str) -> bool {
    let is_word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let separators = part.split(is_word).filter(|run| !run.is_empty());
    part.starts_with(is_word)
        && part.ends_with(is_word)
        && separators.into_iter().all(|run| matches!(run, "." | "_" | "__") || run.bytes().all(|b| b == b'-'))
}

fn is_tag(tag: &str) -> bool {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    tag.len() <= MAX_TAG && tag.starts_with(is_word) && tag.chars().all(|c| is_word(c) || ".-".contains(c))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEX: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

    /// Writes out `{HEX}` and `{c*N}`.
    fn expand(text: &str) -> String {
        let text = text.replace("{HEX}", HEX);
        let mut parts = text.split('{');
        let mut expanded = parts.next().unwrap().to_owned();
        for part in parts {
            let (repeat, rest) = part.split_once('}').unwrap();
            let (letter, times) = repeat.split_once('*').unwrap();
            expanded += &letter.repeat(times.parse().unwrap());
            expanded += rest;
        }
        expanded
    }

    /// The verdicts are of `ParseNormalizedNamed` of github.com/distribution/reference v0.6.0, which was run once over the
    /// second column: verdict, reference, tag, algorithm of the digest.
    #[test]
    fn grammar_is_that_of_distribution() {
        let mut counts = (0, 0);
        for row in include_str!("references.tsv").lines() {
            let [verdict, text, tag, digest] = row.split('\t').collect::<Vec<_>>()[..] else {
                panic!("{row:?}")
            };
            let text = expand(text);
            let found = Reference::parse(&text);
            if verdict == "no" || !["-", "sha256"].contains(&digest) {
                counts.1 += 1;
                found.expect_err(&text);
                continue;
            }
            counts.0 += 1;
            let found = found.unwrap_or_else(|rule| panic!("{text}: {rule}"));
            assert_eq!(found.tag().unwrap_or("-"), tag, "{text}");
            assert_eq!(found.hex(), (digest == "sha256").then_some(HEX), "{text}");
            let tag = found.tag().map(|tag| format!(":{tag}")).unwrap_or_default();
            let digest = found.hex().map(|hex| format!("@sha256:{hex}")).unwrap_or_default();
            assert_eq!(format!("{}{tag}{digest}", found.name()), text, "no part is lost");
            let domain = found.domain().map(|domain| format!("{domain}/")).unwrap_or_default();
            assert_eq!(format!("{domain}{}", found.path()), found.name(), "{text}");
        }
        assert!(counts.0 >= 60 && counts.1 >= 60, "{counts:?}");
    }
}
