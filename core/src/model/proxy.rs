//! The proxies of a cluster or a host, and what is reached without them: `HTTP_PROXY`, `HTTPS_PROXY`, `NO_PROXY`, by the
//! rules of Go's `httpproxy`, which everything else on a node follows.
//!
//! A proxy's URL may hold a password: `Debug` shows none, and no error quotes one.

use std::fmt;
use std::net::IpAddr;

use ipnet::IpNet;

use super::error::ModelError;

/// The names of the variables.
const NAMES: [&str; 3] = ["HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"];

/// Proxies, as one source names them.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct ProxySettings {
    http: Option<String>,
    https: Option<String>,
    no_proxy: Option<String>,
}

impl ProxySettings {
    /// Takes the proxies for `http` and `https` and the exceptions from them. An empty text is none.
    pub fn new(
        http: Option<String>,
        https: Option<String>,
        no_proxy: Option<String>,
    ) -> Result<Self, ModelError> {
        let known = |name: &'static str, value: Option<String>| {
            let value = value.map(|value| value.trim().to_owned()).filter(|value| !value.is_empty());
            if value.as_ref().is_some_and(|value| value.chars().any(char::is_control)) {
                let rule = "its value must not hold control characters";
                return Err(ModelError::Name { what: "proxy variable", value: name.to_owned(), rule });
            }
            Ok(value)
        };
        let [http_name, https_name, no_name] = NAMES;
        Ok(Self {
            http: known(http_name, http)?,
            https: known(https_name, https)?,
            no_proxy: known(no_name, no_proxy)?,
        })
    }

    /// Takes variables: of each the upper-case name, else the lower-case one.
    pub fn from_variables(value: impl Fn(&str) -> Option<String>) -> Result<Self, ModelError> {
        let value = |name: &str| {
            let set = |name: &str| value(name).filter(|value| !value.trim().is_empty());
            set(name).or_else(|| set(&name.to_lowercase()))
        };
        let [http, https, no_proxy] = NAMES;
        Self::new(value(http), value(https), value(no_proxy))
    }

    /// Reads a file of `NAME=VALUE` lines, as `EnvironmentFile=` of systemd does. Other variables are ignored.
    pub fn parse_environment_file(text: &str) -> Result<Self, ModelError> {
        let lines = text.lines().map(str::trim).zip(1..).filter(|(line, _)| !line.starts_with(['#', ';']));
        let mut pairs: Vec<(&str, String)> = Vec::new();
        for (text, line) in lines {
            let Some((name, value)) = text.split_once('=') else { continue };
            let (name, value) = (name.trim(), unquoted(value.trim()));
            if NAMES.contains(&&*name.to_uppercase()) && value.chars().any(char::is_control) {
                let rule = "must not hold control characters";
                return Err(ModelError::Variable { line, name: name.to_owned(), rule });
            }
            pairs.push((name, value));
        }
        // The last one counts.
        let find = |name: &str| pairs.iter().rev().find(|(key, _)| *key == name);
        Self::from_variables(|name| find(name).map(|(_, value)| value.clone()))
    }

    /// Returns the numbers of the lines of such a file that name no value. The rest of a continued line is none of them.
    pub fn lines_without_value(text: &str) -> Vec<usize> {
        let mut is_continued = false;
        let mut numbers = Vec::new();
        for (line, number) in text.lines().map(str::trim).zip(1..) {
            let is_rest = std::mem::replace(&mut is_continued, line.ends_with('\\'));
            let is_text = !line.is_empty() && !line.starts_with(['#', ';']);
            if is_text && !is_rest && !line.contains('=') {
                numbers.push(number);
            }
        }
        numbers
    }

    /// Returns true if no proxy is named: the exceptions mean nothing then.
    pub fn is_empty(&self) -> bool {
        self.http.is_none() && self.https.is_none()
    }

    /// Returns the variables for a program.
    pub fn variables(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let values = [&self.http, &self.https, &self.no_proxy];
        NAMES.into_iter().zip(values).filter_map(|(name, value)| Some((name, value.as_deref()?)))
    }

    /// Returns them as the text of an `EnvironmentFile=` of systemd.
    pub fn to_environment_file(&self) -> String {
        let mut text = String::new();
        for (name, value) in self.variables() {
            text.push_str(name);
            text.push_str("=\"");
            for c in value.chars() {
                if matches!(c, '"' | '\\' | '$' | '`') {
                    text.push('\\');
                }
                text.push(c);
            }
            text.push_str("\"\n");
        }
        text
    }

    /// Returns the proxy to an HTTPS server; `None` if it is reached without one.
    pub fn for_https(&self, host: &str, port: u16) -> Option<&str> {
        self.for_server("https", host, port)
    }

    /// Returns the proxy to a server of `http` or `https`; `None` if it is reached without one.
    pub fn for_server(&self, scheme: &str, host: &str, port: u16) -> Option<&str> {
        let proxy = match scheme {
            "http" => self.http.as_deref()?,
            _ => self.https.as_deref()?,
        };
        (!bypasses(self.no_proxy.as_deref().unwrap_or_default(), host, port)).then_some(proxy)
    }
}

impl fmt::Debug for ProxySettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.variables().map(|(name, _)| name).collect();
        write!(f, "ProxySettings({})", names.join(" "))
    }
}

/// Takes off the quotes of a value, and the backslashes in double quotes.
fn unquoted(value: &str) -> String {
    if let Some(inner) = value.strip_prefix('\'').and_then(|value| value.strip_suffix('\'')) {
        return inner.to_owned();
    }
    let Some(inner) = value.strip_prefix('"').and_then(|value| value.strip_suffix('"')) else {
        return value.to_owned();
    };
    let (mut plain, mut escaped) = (String::new(), false);
    for c in inner.chars() {
        if c == '\\' && !escaped {
            escaped = true;
            continue;
        }
        plain.push(c);
        escaped = false;
    }
    plain
}

/// Returns true if a server is reached without a proxy: this machine always, others by an entry of `NO_PROXY`.
fn bypasses(no_proxy: &str, host: &str, port: u16) -> bool {
    let host = host.trim_start_matches('[').trim_end_matches(']').to_lowercase();
    let address: Option<IpAddr> = host.parse().ok();
    let is_loopback = address.is_some_and(|address| address.to_canonical().is_loopback());
    if host == "localhost" || is_loopback {
        return true;
    }
    let entries = no_proxy.split(',').map(|entry| entry.trim().to_lowercase());
    entries.filter(|entry| !entry.is_empty()).any(|entry| matches_entry(&entry, &host, address, port))
}

fn matches_entry(entry: &str, host: &str, address: Option<IpAddr>, port: u16) -> bool {
    if entry == "*" {
        return true;
    }
    if let Ok(network) = entry.parse::<IpNet>() {
        return address.is_some_and(|address| network.contains(&address.to_canonical()));
    }
    let (name, listed_port) = with_port(entry);
    if listed_port.is_some_and(|listed| listed != port.to_string()) {
        return false;
    }
    if let Ok(listed) = name.parse::<IpAddr>() {
        return address.is_some_and(|address| address.to_canonical() == listed.to_canonical());
    }
    // `.a.test` and `*.a.test` are the names below it, `a.test` is also that name itself.
    let (itself, below) = match name.strip_prefix("*.").or_else(|| name.strip_prefix('.')) {
        Some(below) => (false, below),
        None => (true, name),
    };
    let is_below = host.strip_suffix(below).is_some_and(|rest| rest.ends_with('.'));
    !below.is_empty() && (is_below || (itself && host == below))
}

/// Splits `HOST:PORT` and `[ADDRESS]:PORT`.
fn with_port(entry: &str) -> (&str, Option<&str>) {
    if let Some((address, rest)) = entry.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        return (address, rest.strip_prefix(':'));
    }
    match entry.split_once(':') {
        // More colons are an address of IPv6.
        Some((host, port)) if !port.contains(':') => (host, Some(port)),
        Some(_) | None => (entry, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(https: &str, no_proxy: &str) -> ProxySettings {
        ProxySettings::new(None, Some(https.to_owned()), Some(no_proxy.to_owned())).unwrap()
    }

    /// The rules of Go's `httpproxy.Config`, row by row.
    #[test]
    fn no_proxy_follows_rules_of_go() {
        let rows = [
            ("", "localhost", 443, true),
            ("", "127.0.0.1", 443, true),
            ("", "::1", 443, true),
            ("", "::ffff:127.0.0.1", 443, true),
            ("", "a.test", 443, false),
            ("*", "a.test", 443, true),
            ("b.test, *", "a.test", 443, true),
            ("a.test", "a.test", 443, true),
            ("a.test", "A.Test", 443, true),
            ("A.TEST", "a.test", 443, true),
            ("a.test", "b.a.test", 443, true),
            ("a.test", "ba.test", 443, false),
            (".a.test", "a.test", 443, false),
            (".a.test", "b.a.test", 443, true),
            ("*.a.test", "b.a.test", 443, true),
            ("*.a.test", "a.test", 443, false),
            ("a.test:6443", "a.test", 6443, true),
            ("a.test:6443", "a.test", 443, false),
            ("10.0.0.0/8", "10.1.2.3", 443, true),
            ("10.0.0.0/8", "11.1.2.3", 443, false),
            ("10.0.0.0/8", "a.test", 443, false),
            ("10.0.0.1", "10.0.0.1", 443, true),
            ("10.0.0.1:6443", "10.0.0.1", 443, false),
            ("10.0.0.1:6443", "10.0.0.1", 6443, true),
            ("fd00::/8", "[fd00::1]", 443, true),
            ("[fd00::1]:443", "fd00::1", 443, true),
            ("[fd00::1]:443", "fd00::1", 6443, false),
            ("fd00::1", "fd00::1", 6443, true),
            (" , ,, x.test ,a.test", "a.test", 443, true),
            (".", "a.test", 443, false),
            (":443", "a.test", 443, false),
            ("*.", "a.test", 443, false),
        ];
        for (no_proxy, host, port, bypassed) in rows {
            let found = settings("http://proxy.test:3128", no_proxy);
            assert_eq!(found.for_https(host, port).is_none(), bypassed, "{no_proxy:?} {host}:{port}");
        }
        let http = ProxySettings::new(Some("http://p".to_owned()), None, None).unwrap();
        assert!(!http.is_empty() && http.for_https("a.test", 443).is_none());
    }

    #[test]
    fn variables_are_read_by_both_names() {
        let read = |pairs: &'static [(&'static str, &'static str)]| {
            let value =
                |name: &str| pairs.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned());
            ProxySettings::from_variables(value).unwrap()
        };
        assert!(read(&[("NO_PROXY", "x")]).is_empty());
        let both = read(&[("HTTPS_PROXY", "upper"), ("https_proxy", "lower")]);
        assert_eq!(both.for_https("a.test", 443), Some("upper"));
        let lower = read(&[("HTTPS_PROXY", " "), ("https_proxy", "lower")]);
        assert_eq!(lower.for_https("a.test", 443), Some("lower"));
    }

    /// The written file is parsed to equal settings, whatever the password holds; `Debug` does not show it.
    #[test]
    fn environment_file_round_trips_and_shows_nothing() {
        let secret = r#"http://user:ge"h\ei$m`@proxy.test:3128"#;
        let found = settings(secret, "a.test,10.0.0.0/8");
        let text = found.to_environment_file();
        assert_eq!(ProxySettings::parse_environment_file(&text).unwrap(), found);
        assert_eq!(format!("{found:?}"), "ProxySettings(HTTPS_PROXY NO_PROXY)");
        let file = "# a\n; b\nexport\nHTTPS_PROXY = 'http://one'\nOTHER=x\nHTTPS_PROXY=http://two\n no_proxy=\"b.test\" \n";
        let read = ProxySettings::parse_environment_file(file).unwrap();
        assert_eq!(
            read.variables().collect::<Vec<_>>(),
            [("HTTPS_PROXY", "http://two"), ("NO_PROXY", "b.test")]
        );
        let bad =
            ProxySettings::parse_environment_file("# a\nhttps_proxy=http://u:geheim\x07@p\n").unwrap_err();
        assert_eq!(bad.to_string(), "line 2: the value of https_proxy must not hold control characters");
        let error = ProxySettings::new(None, Some("http://u:geheim@p\nX=1".to_owned()), None).unwrap_err();
        assert!(
            error.to_string().contains("HTTPS_PROXY") && !error.to_string().contains("geheim"),
            "{error}"
        );
    }
}
