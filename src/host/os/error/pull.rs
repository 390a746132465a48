//! Causes of pulls that fail, by the words of skopeo, which gives no code, and the next step for each.
//!
//! A registry that answers with a bad certificate is reached: each row names what is wrong instead.

use super::next::PULL_FAILED;

/// Stands for the registry or mirror that skopeo speaks of.
const REGISTRY: &str = "REGISTRY";

/// A cause, by words of which each has to be in the text.
struct Cause {
    words: &'static [&'static str],
    next: &'static str,
}

impl Cause {
    fn fits(&self, text: &str) -> bool {
        self.words.iter().all(|words| text.contains(words))
    }
}

/// The first row that fits is the cause.
const CAUSES: [Cause; 27] = [
    Cause { words: &["rejected by policy"], next: REJECTED },
    Cause { words: &["Source image rejected"], next: REJECTED },
    Cause { words: &["x509:", "not yet valid", " is after "], next: EXPIRED },
    Cause { words: &["x509:", "not yet valid", " is before "], next: NOT_YET_VALID },
    Cause { words: &["x509:", "signed by unknown authority"], next: UNTRUSTED },
    Cause { words: &["x509:", "certificate is valid for"], next: WRONG_NAME },
    Cause { words: &["x509:", "is not valid for any names"], next: WRONG_NAME },
    Cause { words: &["x509:", "legacy Common Name"], next: WRONG_NAME },
    Cause { words: &["x509:", "doesn't contain any IP SANs"], next: WRONG_NAME },
    Cause { words: &["server gave HTTP response to HTTPS client"], next: NO_TLS },
    Cause { words: &["first record does not look like a TLS handshake"], next: NO_TLS },
    Cause { words: &["remote error: tls:"], next: CLIENT_REFUSED },
    Cause { words: &["proxyconnect tcp"], next: PROXY },
    Cause { words: &["no such host"], next: NO_NAME },
    Cause { words: &["dial tcp: lookup "], next: NO_NAME },
    Cause { words: &["toomanyrequests"], next: TOO_MANY },
    Cause { words: &["status: 429"], next: TOO_MANY },
    Cause { words: &["StatusCode: 429"], next: TOO_MANY },
    Cause { words: &["parsing HTTP 429 response"], next: TOO_MANY },
    Cause { words: &["unexpected HTTP status: 5"], next: FAILS },
    Cause { words: &["StatusCode: 5"], next: FAILS },
    Cause { words: &["status code from registry 429"], next: TOO_MANY },
    Cause { words: &["status code from registry 5"], next: FAILS },
    Cause { words: &["parsing HTTP 5", " response"], next: FAILS },
    Cause { words: &["EOF"], next: BROKEN },
    Cause { words: &["connection reset by peer"], next: BROKEN },
    // Any other word about a certificate.
    Cause { words: &["x509:"], next: CERTIFICATE },
];

const REJECTED: &str = "Allow the image in /etc/containers/policy.json, sign it as policy.json requires, or set another image; the agent retries. rpm-ostree asks the policy before a pull only: an image that the host has already is deployed.";
const EXPIRED: &str = "Renew the certificate of REGISTRY, or correct this host's clock if the time in the message is wrong (timedatectl); the agent retries.";
const NOT_YET_VALID: &str = "Correct this host's clock if the time in the message is wrong (timedatectl), or replace the certificate of REGISTRY; the agent retries.";
const UNTRUSTED: &str = "Put the CA of REGISTRY into /etc/containers/certs.d/REGISTRY/ca.crt, or, in a cluster, into its registries' CAs (INSPECT); the agent retries.";
const WRONG_NAME: &str = "Name the registry as its certificate does, or give REGISTRY a certificate with this name as a subject alternative name; the agent retries.";
const NO_TLS: &str = "Set up TLS on REGISTRY, or mark it as insecure in a file of /etc/containers/registries.conf.d (location = \"REGISTRY\", insecure = true); the agent retries.";
const CLIENT_REFUSED: &str = "Give REGISTRY a client certificate that it accepts, in /etc/containers/certs.d/REGISTRY (client.cert, client.key); the agent retries.";
const PROXY: &str = "Check the agent's proxy (systemctl show --property=Environment machine-config-agent; /etc/machine-config-agent/settings.toml); the agent retries.";
const NO_NAME: &str =
    "Check the name of the registry and this host's DNS (getent hosts HOST); the agent retries.";
const FAILS: &str = "Check the log of REGISTRY, or of the mirror or proxy before it: it was reached, and answers with its own error; the agent retries.";
const BROKEN: &str = "Check REGISTRY, and the proxy or load balancer before it: it was reached, and the connection broke; the agent retries.";
const CERTIFICATE: &str = "Replace the certificate of REGISTRY, which the message is about (openssl s_client -showcerts -connect REGISTRY); the agent retries.";
const TOO_MANY: &str = "Wait, pull with credentials of an account, or set up a mirror; the agent retries.";

/// Returns the next step for a pull that failed. Registry and its host stand in it, if the text names them.
pub(super) fn next(cause: &str) -> String {
    let text = CAUSES.iter().find(|row| row.fits(cause)).map_or(PULL_FAILED, |row| row.next);
    match registry(cause) {
        Some(registry) => {
            let host = registry.rsplit_once(':').map_or(registry, |(host, _)| host);
            text.replace("HOST", host).replace(REGISTRY, registry)
        }
        None => text.replace("certs.d/REGISTRY", "certs.d/HOST:PORT").replace(REGISTRY, "the registry"),
    }
}

/// Finds the registry that was asked: a mirror's name is not the image's.
fn registry(cause: &str) -> Option<&str> {
    let (_, rest) = cause.split_once("pinging container registry ")?;
    let (name, _) = rest.split_once(": ")?;
    (!name.is_empty() && !name.contains(char::is_whitespace)).then_some(name)
}

/// Returns skopeo's text without what it says twice, and without the number that its credentials have as an open file.
#[cfg(any(feature = "backend-ostree", test))]
pub(in crate::host::os) fn of_skopeo(text: &str) -> String {
    const OPEN_FILE: &str = "/proc/self/fd/";
    let mut parts: Vec<&str> = text.split(": ").collect();
    parts.dedup();
    let mut plain = parts.join(": ");
    while let Some(start) = plain.find(OPEN_FILE) {
        let digits = plain.get(start + OPEN_FILE.len()..).unwrap_or_default();
        let end = start + OPEN_FILE.len() + digits.chars().take_while(char::is_ascii_digit).count();
        plain.replace_range(start..end, "auth.json");
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Texts of skopeo 1.9, 1.18, and rpm-ostree 2024; of each row one at least.
    const SAID: [(&str, &str); 28] = [
        ("Running image docker://r.test/os@sha256:1 is rejected by policy.", "policy.json"),
        ("Source image rejected: A signature was required, but no signature exists", "policy.json"),
        (
            "pinging container registry r.test:5000: Get \"https://r.test:5000/v2/\": x509: certificate has expired or is not yet valid: current time 2026-11-29T06:42:54Z is after 2021-01-01T00:00:00Z",
            "Renew the certificate of r.test:5000, or correct this host's clock if the time in the message is wrong (timedatectl)",
        ),
        (
            "pinging container registry r.test: Get \"https://r.test/v2/\": tls: failed to verify certificate: x509: certificate has expired or is not yet valid: current time 2026-11-29T06:42:54Z is before 2040-01-01T00:00:00Z",
            "Correct this host's clock if the time in the message is wrong (timedatectl)",
        ),
        (
            "pinging container registry m.test:5000: Get \"https://m.test:5000/v2/\": x509: certificate signed by unknown authority",
            "/etc/containers/certs.d/m.test:5000/ca.crt",
        ),
        (
            "pinging container registry r.test: Get \"https://r.test/v2/\": x509: certificate is valid for other.test, not r.test",
            "give r.test a certificate with this name",
        ),
        (
            "pinging container registry r.test: Get \"https://r.test/v2/\": x509: certificate is not valid for any names, but wanted to match r.test",
            "subject alternative name",
        ),
        (
            "pinging container registry r.test: Get \"https://r.test/v2/\": x509: certificate relies on legacy Common Name field, use SANs instead",
            "subject alternative name",
        ),
        (
            "pinging container registry 192.0.2.1:7005: Get \"https://192.0.2.1:7005/v2/\": x509: cannot validate certificate for 192.0.2.1 because it doesn't contain any IP SANs",
            "subject alternative name",
        ),
        (
            "pinging container registry r.test:5000: Get \"https://r.test:5000/v2/\": http: server gave HTTP response to HTTPS client",
            "Set up TLS on r.test:5000, or mark it as insecure",
        ),
        (
            "pinging container registry r.test:5000: Get \"https://r.test:5000/v2/\": tls: first record does not look like a TLS handshake",
            "Set up TLS on r.test:5000, or mark it as insecure",
        ),
        (
            "pinging container registry r.test: Get \"https://r.test/v2/\": dial tcp: lookup r.test on 192.0.2.53:53: dial udp 192.0.2.53:53: connect: network is unreachable",
            "(getent hosts r.test)",
        ),
        (
            "pinging container registry r.test: Get \"https://r.test/v2/\": remote error: tls: certificate required",
            "/etc/containers/certs.d/r.test (client.cert, client.key)",
        ),
        (
            "pinging container registry r.test: Get \"https://r.test/v2/\": proxyconnect tcp: dial tcp 127.0.0.1:7099: connect: connection refused",
            "Check the agent's proxy",
        ),
        (
            "pinging container registry r.test:5000: Get \"https://r.test:5000/v2/\": dial tcp: lookup r.test on 192.0.2.53:53: no such host",
            "(getent hosts r.test)",
        ),
        (
            "reading manifest sha256:1 in r.test/os: toomanyrequests: You have reached your pull rate limit",
            "set up a mirror",
        ),
        ("fetching blob: received unexpected HTTP status: 429 Too Many Requests", "set up a mirror"),
        ("reading manifest sha256:1 in r.test/os: StatusCode: 429, \"\"", "set up a mirror"),
        (
            "reading manifest sha256:1 in r.test/os: error parsing HTTP 429 response body: unexpected end of JSON input: \"\"",
            "set up a mirror",
        ),
        (
            "reading manifest sha256:1 in r.test/os: received unexpected HTTP status: 503 Service Unavailable",
            "was reached",
        ),
        ("reading manifest sha256:1 in r.test/os: StatusCode: 502, <html>", "was reached"),
        (
            "reading manifest sha256:1 in r.test/os: error parsing HTTP 500 response body: invalid character '<'",
            "was reached",
        ),
        ("Error fetching blob: invalid status code from registry 429 (Too Many Requests)", "set up a mirror"),
        ("Error fetching blob: invalid status code from registry 503 (Service Unavailable)", "was reached"),
        ("fetching blob: unexpected EOF", "the connection broke"),
        (
            "reading blob: read tcp 192.0.2.2:50000->192.0.2.1:443: read: connection reset by peer",
            "the connection broke",
        ),
        (
            "pinging container registry r.test:5000: Get \"https://r.test:5000/v2/\": x509: certificate is not authorized to sign other certificates",
            "openssl s_client -showcerts -connect r.test:5000",
        ),
        (
            "pinging container registry r.test: Get \"https://r.test/v2/\": dial tcp 192.0.2.1:443: connect: connection refused",
            "reaches the registry",
        ),
    ];

    /// A registry that is reached is not what has to be looked at.
    #[test]
    fn next_step_follows_cause() {
        for (cause, words) in SAID {
            let next = next(cause);
            assert!(next.contains(words), "{cause}: {next}");
            assert!(!next.contains("REGISTRY") && !next.contains("HOST"), "{next}");
            assert_eq!(words == "reaches the registry", next.contains("reaches the registry"), "{next}");
        }
    }

    #[test]
    fn misspelled_registry_is_told_to_be_looked_up() {
        let cause =
            "pinging container registry r.tset: dial tcp: lookup r.tset on 192.0.2.53:53: no such host";
        let next = next(cause);
        assert!(next.contains("getent hosts r.tset"), "{next}");
    }

    #[test]
    fn each_row_is_said_and_none_hides_another() {
        let mut left: Vec<&[&str]> = CAUSES.iter().map(|row| row.words).collect();
        for (cause, _) in SAID {
            let met = CAUSES.iter().find(|row| row.fits(cause));
            left.retain(|words| met.is_none_or(|met| met.words != *words));
        }
        assert_eq!(left, Vec::<&[&str]>::new());
    }

    #[test]
    fn step_without_a_registry_is_a_sentence() {
        let next = next("x509: certificate signed by unknown authority");
        assert!(
            next.starts_with("Put the CA of the registry into /etc/containers/certs.d/HOST:PORT/ca.crt"),
            "{next}"
        );
    }

    /// skopeo's credentials are an open file without a name; what uses them says where they are from.
    #[test]
    fn text_says_all_once_and_no_number_of_a_file() {
        let text = "failed to invoke method OpenImage: failed to invoke method OpenImage: getting username and password: 1 error occurred:\n\t* reading JSON file \"/proc/self/fd/100\": unmarshaling JSON at \"/proc/self/fd/100\": unexpected end of JSON input";
        assert_eq!(
            of_skopeo(text),
            "failed to invoke method OpenImage: getting username and password: 1 error occurred:\n\t* reading JSON file \"auth.json\": unmarshaling JSON at \"auth.json\": unexpected end of JSON input"
        );
    }
}
