//! The validity of a certificate of the node's own files: of an answer 401 it tells whether the certificate is the cause.

use crate::model::Timestamp;

/// Tags of DER.
const SEQUENCE: u8 = 0x30;
const VERSION: u8 = 0xa0;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;

/// Begin and end of a certificate's validity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Validity {
    begin: Timestamp,
    end: Timestamp,
}

impl Validity {
    /// Reads it from a certificate (RFC 5280, 4.1). `None` if it is none, or has another form.
    pub(super) fn of_certificate(der: &[u8]) -> Option<Self> {
        let (certificate, _) = value(der, SEQUENCE)?;
        let (mut rest, _) = value(certificate, SEQUENCE)?;
        if let Some((_, after)) = value(rest, VERSION) {
            rest = after;
        }
        // Serial number, algorithm, issuer.
        for _ in 0..3 {
            rest = any(rest)?.2;
        }
        let (validity, _) = value(rest, SEQUENCE)?;
        let (tag, begin, rest) = any(validity)?;
        let begin = time(tag, begin)?;
        let (tag, end, _) = any(rest)?;
        Some(Self { begin, end: time(tag, end)? })
    }

    /// Tells it at a time, for a person.
    pub(super) fn told(self, now: Timestamp) -> String {
        let Self { begin, end } = self;
        if now > end {
            // Without the time of the clock: each try would report another fault.
            format!("expired at {end} by the node's clock")
        } else if now < begin {
            format!("is not valid before {begin} by the node's clock")
        } else {
            format!("is valid until {end}")
        }
    }
}

/// Reads one element: its tag, its value, and what comes after it.
fn any(der: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (tag, rest) = der.split_first()?;
    let (first, rest) = rest.split_first()?;
    let (length, rest) = match first {
        0..=0x7f => (usize::from(*first), rest),
        // No certificate of the node has more than two bytes of length.
        0x81 | 0x82 => {
            let (bytes, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
            (bytes.iter().fold(0, |length, byte| length << 8 | usize::from(*byte)), rest)
        }
        _ => return None,
    };
    let (value, rest) = rest.split_at_checked(length)?;
    Some((*tag, value, rest))
}

/// Reads an element of this tag: its value, and what comes after it.
fn value(der: &[u8], expected: u8) -> Option<(&[u8], &[u8])> {
    let (tag, value, rest) = any(der)?;
    (tag == expected).then_some((value, rest))
}

/// Reads a time: `YYMMDDHHMMSSZ` of 1950 to 2049, or `YYYYMMDDHHMMSSZ`.
fn time(tag: u8, value: &[u8]) -> Option<Timestamp> {
    let text = std::str::from_utf8(value).ok()?;
    let century = match (tag, text.get(..2)?.parse::<u8>().ok()?) {
        (UTC_TIME, 0..50) => "20",
        (UTC_TIME, _) => "19",
        (GENERALIZED_TIME, _) => "",
        _ => return None,
    };
    let text = format!("{century}{text}");
    let part = |from: usize, to: usize| text.get(from..to);
    let (year, month, day) = (part(0, 4)?, part(4, 6)?, part(6, 8)?);
    let (hour, minute, second) = (part(8, 10)?, part(10, 12)?, part(12, 14)?);
    Timestamp::read(&format!("{year}-{month}-{day}T{hour}:{minute}:{second}Z"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn certificate(begin: (i32, u8, u8), end: (i32, u8, u8)) -> Vec<u8> {
        let mut params = rcgen::CertificateParams::default();
        params.not_before = rcgen::date_time_ymd(begin.0, begin.1, begin.2);
        params.not_after = rcgen::date_time_ymd(end.0, end.1, end.2);
        let key = rcgen::KeyPair::generate().unwrap();
        params.self_signed(&key).unwrap().der().to_vec()
    }

    #[test]
    fn validity_is_read_and_told() {
        let at = |text: &str| Timestamp::read(text).unwrap();
        let now = at("2026-11-30T04:00:00Z");
        for (begin, end, told) in [
            ((2020, 1, 2), (2026, 11, 29), "expired at 2026-11-29T00:00:00Z by the node's clock"),
            ((2020, 1, 2), (2061, 3, 4), "is valid until 2061-03-04T00:00:00Z"),
            ((2027, 1, 2), (2061, 3, 4), "is not valid before 2027-01-02T00:00:00Z by the node's clock"),
        ] {
            let der = certificate(begin, end);
            assert_eq!(Validity::of_certificate(&der).unwrap().told(now), told);
            // Any part of it is none.
            for length in 0..der.len() {
                let cut = der.get(..length).unwrap();
                assert_eq!(Validity::of_certificate(cut), None);
            }
        }
        assert_eq!(Validity::of_certificate(b"0\x03a"), None);
    }
}
