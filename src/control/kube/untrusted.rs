//! Causes of TLS that fails with the API server, in words for a person: those of the library name its own types.

use std::time::Duration;

use rustls::CertificateError;
use rustls::pki_types::UnixTime;

use crate::model::Timestamp;

/// The beginning of each cause, and its next step.
const CAUSES: [(&str, &str); 7] = [
    (
        EXPIRED,
        "Renew the API server's certificate, or correct the node's clock (`timedatectl`); the agent connects automatically.",
    ),
    (
        NOT_YET_VALID,
        "Correct the node's clock (`timedatectl`), or replace the API server's certificate; the agent connects automatically.",
    ),
    (
        OTHER_CA,
        "Put the API server's CA into the kubeconfig (certificate-authority), or correct its server; the agent connects automatically.",
    ),
    (
        OTHER_NAME,
        "Name the API server in the kubeconfig as its certificate does (server, or tls-server-name); the agent connects automatically.",
    ),
    (
        VERSION_1,
        "Reissue the API server's certificate as version 3, with its names as subject alternative names; the agent connects automatically.",
    ),
    (
        UNUSABLE,
        "Check the node's clock (`timedatectl`), and the CA and the server in the kubeconfig; the agent connects automatically.",
    ),
    (
        NO_TLS,
        "Correct the server and its port in the kubeconfig, or the proxy before it; the agent connects automatically.",
    ),
];

const EXPIRED: &str = "its certificate expired";
const NOT_YET_VALID: &str = "its certificate is not valid yet";
const OTHER_CA: &str = "its certificate is of another CA than the kubeconfig's";
const OTHER_NAME: &str = "its certificate is of another name";
const VERSION_1: &str = "its certificate is of X.509 version 1";
const UNUSABLE: &str = "its certificate is refused";
const NO_TLS: &str = "it does not answer with TLS";

/// Returns the next step, if the cause is one of these.
pub(super) fn next(cause: &str) -> Option<&'static str> {
    CAUSES.iter().find(|(begin, _)| cause.starts_with(begin)).map(|(_, next)| *next)
}

/// Returns true if the server was reached, and its certificate is not taken.
pub(super) fn is_certificate(cause: &str) -> bool {
    next(cause).is_some() && !cause.starts_with(NO_TLS)
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
    error.to_string()
}

/// Says why a certificate of the node's own files can't be used.
pub(super) fn of_file(certificate: &str, error: &rustls::Error) -> String {
    let told = of_tls(error);
    match told.strip_prefix("its certificate ") {
        Some(rest) => format!("{certificate} {rest}"),
        None => format!("{certificate}: {told}"),
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
    // A CA of the kubeconfig's name with another key ends in a bad signature.
    let plain = [
        (CertificateError::Expired, EXPIRED),
        (CertificateError::NotValidYet, NOT_YET_VALID),
        (CertificateError::NotValidForName, OTHER_NAME),
        (CertificateError::UnknownIssuer, OTHER_CA),
        (CertificateError::BadSignature, OTHER_CA),
    ];
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
