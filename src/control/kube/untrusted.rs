//! Causes of TLS that fails with the API server, in words for a person: those of the library name its own types.

use std::time::Duration;

use rustls::CertificateError;
use rustls::pki_types::UnixTime;

use crate::model::Timestamp;

/// A cause: its beginning, what to do about it of the API server, and what of a web server.
struct Cause {
    begin: &'static str,
    of_api: &'static str,
    of_web: &'static str,
}

const CAUSES: [Cause; 9] = [
    Cause {
        begin: EXPIRED,
        of_api: "Renew the API server's certificate, or correct the node's clock (`timedatectl`); the agent connects automatically.",
        of_web: "Renew the server's certificate, or correct the node's clock (`timedatectl`).",
    },
    Cause {
        begin: NOT_YET_VALID,
        of_api: "Correct the node's clock (`timedatectl`), or replace the API server's certificate; the agent connects automatically.",
        of_web: "Correct the node's clock (`timedatectl`), or replace the server's certificate.",
    },
    Cause {
        begin: OTHER_CA,
        of_api: "Put the API server's CA into the kubeconfig (certificate-authority), or correct its server; the agent connects automatically.",
        of_web: "Put the server's CA into the host's trust store (update-ca-trust, update-ca-certificates), or download the file.",
    },
    Cause {
        begin: OTHER_NAME,
        of_api: "Name the API server in the kubeconfig as its certificate does (server, or tls-server-name); the agent connects automatically.",
        of_web: "Name the server as its certificate does, or give the certificate this name as subject alternative name.",
    },
    Cause {
        begin: VERSION_1,
        of_api: "Reissue the API server's certificate as version 3, with its names as subject alternative names; the agent connects automatically.",
        of_web: "Reissue the server's certificate as version 3, with its names as subject alternative names.",
    },
    Cause {
        begin: UNUSABLE,
        of_api: "Check the node's clock (`timedatectl`), and the CA and the server in the kubeconfig; the agent connects automatically.",
        of_web: "Check the node's clock (`timedatectl`), and the server's certificate (openssl s_client -connect HOST:PORT).",
    },
    Cause {
        begin: NO_TLS,
        of_api: "Correct the server and its port in the kubeconfig, or the proxy before it; the agent connects automatically.",
        of_web: "Correct the port of the address, or the proxy before it.",
    },
    Cause {
        begin: NO_HTTP2,
        of_api: "Name the API server itself in the kubeconfig (server), without a proxy that ends TLS before it; the agent connects automatically.",
        of_web: "Correct the port of the address, or the proxy before it.",
    },
    Cause {
        begin: REFUSED_TLS,
        of_api: "Check the TLS versions and ciphers of the API server, or of the proxy before it; the agent connects automatically.",
        of_web: "Check the TLS versions and ciphers of the server, or of the proxy before it.",
    },
];

const EXPIRED: &str = "its certificate expired";
const NOT_YET_VALID: &str = "its certificate is not valid yet";
const OTHER_CA: &str = "its certificate is of another CA";
const OTHER_NAME: &str = "its certificate is of another name";
const VERSION_1: &str = "its certificate is of X.509 version 1";
const UNUSABLE: &str = "its certificate is refused";
const NO_TLS: &str = "it does not answer with TLS";
const REFUSED_TLS: &str = "it was reached, and TLS with it fails";
/// The cause of a server that was reached, and has no HTTP/2.
pub(super) const NO_HTTP2: &str = "it does not speak HTTP/2";

/// The end of [`OTHER_CA`], for the API server and for a web server.
const CAS: [&str; 2] = [" than the kubeconfig's", " than those that this host trusts"];

/// Returns the next step, if the cause is one of these.
pub(super) fn next(cause: &str) -> Option<&'static str> {
    row(cause).map(|row| row.of_api)
}

/// Returns the next step of a web server's.
pub(in crate::control) fn next_of_web(cause: &str) -> Option<&'static str> {
    row(cause).map(|row| row.of_web)
}

fn row(cause: &str) -> Option<&'static Cause> {
    CAUSES.iter().find(|row| cause.starts_with(row.begin))
}

/// Returns true if the server was reached, and its certificate is not taken.
pub(super) fn is_certificate(cause: &str) -> bool {
    row(cause).is_some_and(|row| ![NO_TLS, NO_HTTP2, REFUSED_TLS].contains(&row.begin))
}

/// Returns true if the server was reached, and does not speak as an API server does.
pub(super) fn is_other_protocol(cause: &str) -> bool {
    row(cause).is_some() && !is_certificate(cause)
}

/// Says what TLS with a web server found: an error, or one below it.
pub(in crate::control) fn of_web(error: &(dyn std::error::Error + 'static)) -> Option<String> {
    let mut next = Some(error);
    while let Some(error) = next {
        let io = error.downcast_ref::<std::io::Error>();
        let held: Option<&(dyn std::error::Error + 'static)> = match io.and_then(std::io::Error::get_ref) {
            Some(held) => Some(held),
            None => None,
        };
        if let Some(tls) = error.downcast_ref().or_else(|| held.and_then(|held| held.downcast_ref())) {
            return Some(of_tls(tls).replace(CAS[0], CAS[1]));
        }
        next = held.or_else(|| error.source());
    }
    None
}

/// Says why no TLS connection came about.
pub(super) fn of_connection(error: &std::io::Error) -> String {
    let tls = error.get_ref().and_then(|source| source.downcast_ref::<rustls::Error>());
    tls.map_or_else(|| error.to_string(), of_tls)
}

/// Says what TLS found.
pub(super) fn of_tls(error: &rustls::Error) -> String {
    if let rustls::Error::InvalidCertificate(refused) = error {
        return of_certificate(refused);
    }
    if let rustls::Error::InvalidMessage(_) = error {
        return format!("{NO_TLS}: its port serves another protocol, such as plain HTTP");
    }
    format!("{REFUSED_TLS}: {error}")
}

/// Says why a certificate of the node's own files can't be used.
pub(super) fn of_file(certificate: &str, error: &rustls::Error) -> String {
    let told = of_tls(error);
    match told.strip_prefix("its certificate ") {
        Some(rest) => format!("{certificate} {rest}"),
        None => format!("{certificate}: {error}"),
    }
}

fn of_certificate(refused: &CertificateError) -> String {
    if let CertificateError::ExpiredContext { time, not_after } = refused {
        return format!("{EXPIRED} at {}, and the node's clock shows {}", at(*not_after), at(*time));
    }
    if let CertificateError::NotValidYetContext { time, not_before } = refused {
        return format!(
            "{NOT_YET_VALID}: it begins at {}, and the node's clock shows {}",
            at(*not_before),
            at(*time)
        );
    }
    if let CertificateError::NotValidForNameContext { expected, presented } = refused {
        let names: Vec<&str> = presented.iter().map(|name| name.split('"').nth(1).unwrap_or(name)).collect();
        let names = if names.is_empty() { "it has none".to_owned() } else { names.join(", ") };
        return format!("{OTHER_NAME} than {}: {names}", expected.to_str());
    }
    if let CertificateError::Other(other) = refused
        && other.to_string().contains("UnsupportedCertVersion")
    {
        return format!("{VERSION_1}, which names no host");
    }
    let plain = [
        (CertificateError::Expired, EXPIRED),
        (CertificateError::NotValidYet, NOT_YET_VALID),
        (CertificateError::NotValidForName, OTHER_NAME),
    ];
    // A CA of the kubeconfig's name with another key ends in a bad signature.
    if matches!(refused, CertificateError::UnknownIssuer | CertificateError::BadSignature) {
        return format!("{OTHER_CA}{}", CAS[0]);
    }
    let known = plain.iter().find(|(error, _)| error == refused);
    known.map_or_else(|| format!("{UNUSABLE}: {refused}"), |(_, told)| (*told).to_owned())
}

fn at(time: UnixTime) -> Timestamp {
    let micros = Duration::from_secs(time.as_secs()).as_micros();
    Timestamp::from_micros(u64::try_from(micros).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rustls::pki_types::ServerName;
    use rustls::{InvalidMessage, OtherError};

    use super::*;

    fn unix(seconds: u64) -> UnixTime {
        UnixTime::since_unix_epoch(Duration::from_secs(seconds))
    }

    #[derive(Debug, thiserror::Error)]
    #[error("UnsupportedCertVersion")]
    struct Version;

    /// Each cause has a text without names of Rust, and a step of its own.
    #[test]
    fn each_cause_is_said_with_its_next_step() {
        let (now, earlier, later) = (unix(1_795_600_000), unix(1_600_000_000), unix(1_900_000_000));
        let expected = ServerName::try_from("api.test").unwrap();
        let presented = vec!["DnsName(\"other.test\")".to_owned()];
        let rows = [
            (
                CertificateError::ExpiredContext { time: now, not_after: earlier },
                "expired at 2020-09-13T12:26:40Z",
                "Renew",
            ),
            (
                CertificateError::NotValidYetContext { time: now, not_before: later },
                "begins at 2030-03-17T17:46:40Z, and the node's clock shows 2026-11-25T09:46:40Z",
                "Correct the node's clock",
            ),
            (CertificateError::UnknownIssuer, "of another CA than", "certificate-authority"),
            (CertificateError::BadSignature, "of another CA than", "certificate-authority"),
            (
                CertificateError::NotValidForNameContext { expected, presented },
                "of another name than api.test: other.test",
                "tls-server-name",
            ),
            (
                CertificateError::Other(OtherError(Arc::new(Version))),
                "X.509 version 1",
                "subject alternative names",
            ),
            (CertificateError::Revoked, "is refused", "timedatectl"),
        ];
        for (refused, text, step) in rows {
            let error = std::io::Error::other(rustls::Error::InvalidCertificate(refused));
            let told = of_connection(&error);
            assert!(told.contains(text), "{told}");
            assert!(!told.contains('(') && !told.contains("Error"), "{told}");
            assert!(is_certificate(&told), "{told}");
            assert!(next(&told).unwrap().contains(step), "{told}: {:?}", next(&told));
        }
    }

    /// A web server's have steps without a kubeconfig; the error may be below others.
    #[test]
    fn cause_of_web_server_is_said() {
        let issuer = rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer);
        let told = of_web(&std::io::Error::other(std::io::Error::other(issuer))).unwrap();
        assert_eq!(told, "its certificate is of another CA than those that this host trusts");
        assert!(next_of_web(&told).unwrap().contains("trust store"));
        for row in CAUSES {
            assert!(!row.of_web.contains("kubeconfig") && !row.of_web.contains("agent"), "{}", row.of_web);
        }
        assert_eq!(of_web(&std::io::Error::other("refused")), None);
    }

    /// Whatever TLS and HTTP/2 find, the server was reached.
    #[test]
    fn server_of_another_protocol_was_reached() {
        let alert = rustls::Error::AlertReceived(rustls::AlertDescription::HandshakeFailure);
        for told in [of_tls(&alert), NO_HTTP2.to_owned()] {
            assert!(is_other_protocol(&told) && !next(&told).unwrap().contains("reaches"), "{told}");
        }
    }

    #[test]
    fn certificate_of_a_file_is_named() {
        let error = rustls::Error::InvalidCertificate(CertificateError::Other(OtherError(Arc::new(Version))));
        let told = of_file("its certificate-authority", &error);
        assert_eq!(told, "its certificate-authority is of X.509 version 1, which names no host");
    }

    #[test]
    fn server_without_tls_is_told() {
        let error = rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType);
        let told = of_connection(&std::io::Error::other(error));
        assert!(told.contains("plain HTTP") && !is_certificate(&told), "{told}");
        assert!(next(&told).unwrap().contains("port"));
        assert_eq!(next("connection refused"), None);
    }
}
