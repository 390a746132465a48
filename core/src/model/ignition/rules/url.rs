//! URLs, as far as Go's `net/url` refuses them, and the schemes that Ignition takes.

use std::borrow::Cow;

/// A URL that Go can parse.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Url<'a> {
    /// In lower case; empty without one.
    pub(super) scheme: Cow<'a, str>,
    /// The part after the scheme, if that is no path.
    opaque: &'a str,
    query: &'a str,
}

impl<'a> Url<'a> {
    /// Returns `None` for what Go refuses.
    pub(super) fn parse(text: &'a str) -> Option<Self> {
        let (url, fragment) = text.split_once('#').unwrap_or((text, ""));
        if url.bytes().any(|byte| byte.is_ascii_control()) || !has_whole_escapes(fragment) {
            return None;
        }
        let (scheme, rest) = split_scheme(url)?;
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let scheme = if scheme.bytes().any(|byte| byte.is_ascii_uppercase()) {
            Cow::Owned(scheme.to_ascii_lowercase())
        } else {
            Cow::Borrowed(scheme)
        };
        if !rest.starts_with('/') && !scheme.is_empty() {
            return Some(Self { scheme, opaque: rest, query });
        }
        let path = match rest.strip_prefix("//") {
            Some(after) if !scheme.is_empty() || !after.starts_with('/') => {
                let end = after.find('/').unwrap_or(after.len());
                let (authority, path) = after.split_at_checked(end)?;
                is_authority(authority).then_some(path)?
            }
            _ => rest,
        };
        let has_colon =
            !path.starts_with('/') && path.split('/').next().is_some_and(|first| first.contains(':'));
        (has_whole_escapes(path) && !has_colon).then_some(Self { scheme, opaque: "", query })
    }

    /// Returns the first value of a key of the query.
    fn query_value(&self, key: &str) -> Option<&'a str> {
        let pairs = self.query.split('&').filter(|pair| !pair.contains(';'));
        let mut values = pairs.map(|pair| pair.split_once('=').unwrap_or((pair, "")));
        values.find(|(name, value)| *name == key && has_whole_escapes(value)).map(|(_, value)| value)
    }
}

/// Splits the scheme off; `None` for one that is empty.
fn split_scheme(url: &str) -> Option<(&str, &str)> {
    let end = url.bytes().position(|byte| !(byte.is_ascii_alphanumeric() || b"+-.".contains(&byte)));
    let begins = url.bytes().next().is_some_and(|byte| byte.is_ascii_alphabetic());
    match end.and_then(|end| url.split_at_checked(end)) {
        Some(("", rest)) if rest.starts_with(':') => None,
        Some((scheme, rest)) if begins => {
            Some(rest.strip_prefix(':').map_or(("", url), |rest| (scheme, rest)))
        }
        _ => Some(("", url)),
    }
}

fn has_whole_escapes(text: &str) -> bool {
    let is_hex = |digit: Option<&u8>| digit.is_some_and(u8::is_ascii_hexdigit);
    text.split('%').skip(1).all(|rest| is_hex(rest.as_bytes().first()) && is_hex(rest.as_bytes().get(1)))
}

fn is_authority(authority: &str) -> bool {
    let (user, host) = authority.rsplit_once('@').unwrap_or(("", authority));
    let in_user = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:~!$&'()*+,;=%@".contains(&byte);
    user.bytes().all(in_user) && has_whole_escapes(user) && is_host(host)
}

fn is_host(host: &str) -> bool {
    let is_port = |port: &str| {
        port.is_empty()
            || port.strip_prefix(':').is_some_and(|port| port.bytes().all(|byte| byte.is_ascii_digit()))
    };
    if let Some(address) = host.strip_prefix('[') {
        return address.rsplit_once(']').is_some_and(|(address, port)| is_port(port) && is_address(address));
    }
    // Go takes one colon since 1.26; before that, the last one began the port.
    let (name, port) = host.split_at_checked(host.find(':').unwrap_or(host.len())).unwrap_or((host, ""));
    let in_name = |c: char| !c.is_ascii() || c.is_ascii_alphanumeric() || "-_.~!$&'()*+,;=[]<>\"".contains(c);
    is_port(port) && escapes_are_not_ascii(name) && name.chars().filter(|c| *c != '%').all(in_name)
}

/// An IPv6 address; a zone may follow its `%25`.
fn is_address(address: &str) -> bool {
    let (address, zone) = address.split_once("%25").unwrap_or((address, ""));
    address.parse::<std::net::Ipv6Addr>().is_ok() && has_whole_escapes(zone)
}

/// In a host, Go takes escapes of bytes that are not ASCII.
fn escapes_are_not_ascii(name: &str) -> bool {
    has_whole_escapes(name)
        && name
            .split('%')
            .skip(1)
            .all(|rest| matches!(rest.bytes().next(), Some(b'8'..=b'9' | b'a'..=b'f' | b'A'..=b'F')))
}

/// Checks the URL of a source; the error is the cause.
pub(super) fn check(text: &str, minor: u32) -> Result<(), String> {
    let url = Url::parse(text).ok_or("it can't be read as a URL; correct it")?;
    let has_version = || url.query_value("versionId") != Some("");
    let without_version = "its versionId is empty; write one or remove it".to_owned();
    match &*url.scheme {
        "http" | "https" | "tftp" | "data" => Ok(()),
        "gs" if minor >= 2 => Ok(()),
        "s3" => {
            if has_version() {
                Ok(())
            } else {
                Err(without_version)
            }
        }
        "arn" if minor >= 4 => match (is_bucket(url.opaque), has_version()) {
            (true, true) => Ok(()),
            (true, false) => Err(without_version),
            (false, _) => {
                Err("it names no object of S3 (arn:PARTITION:s3:::BUCKET/KEY); correct it".to_owned())
            }
        },
        _ => Err(format!("Ignition 3.{minor} can't fetch from URLs of this scheme; write a data URL")),
    }
}

/// Returns true if what follows `arn:` names an object of S3.
fn is_bucket(arn: &str) -> bool {
    let mut sections = arn.splitn(5, ':');
    let (service, resource) = (sections.nth(1), sections.nth(2));
    let slashes = arn.matches('/').count();
    let needed = |resource: &str| if resource.starts_with("accesspoint/") { 2 } else { 1 };
    service == Some("s3") && resource.is_some_and(|resource| slashes >= needed(resource))
}
