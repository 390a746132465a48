//! Data URLs (RFC 2397) as Ignition reads them: a media type, parameters, then percent escapes or base64.
//!
//! The grammar is that of `vincent-petithory/dataurl`, which Ignition and the Machine Config Operator call, and not that of browsers:
//! a URL that only browsers understand would strand a new machine.

use base64::Engine as _;
use base64::alphabet::STANDARD as ALPHABET;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

/// As Go's standard encoding: padded, and the unused bits of the last digit don't matter.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &ALPHABET,
    GeneralPurposeConfig::new()
        .with_decode_allow_trailing_bits(true)
        .with_decode_padding_mode(DecodePaddingMode::RequireCanonical),
);

/// Beginning of a data URL.
const PREFIX: &str = "data:";

/// A data URL whose header is valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DataUrl<'a> {
    is_base64: bool,
    body: &'a str,
}

impl<'a> DataUrl<'a> {
    /// Reads the header; the error is the cause.
    pub(super) fn parse(source: &'a str) -> Result<Self, String> {
        let Some(rest) = source.strip_prefix(PREFIX) else {
            return Err("its data URL is broken: it does not begin with `data:` in lower case".to_owned());
        };
        let broken = |what: &str| format!("its data URL is broken: {what}");
        // A quoted value may hold commas.
        let end = unquoted(rest).find_map(|(at, byte)| (byte == b',').then_some(at));
        let end = end.ok_or_else(|| broken("no comma begins the data"))?;
        let (header, body) = (rest.get(..end).unwrap_or_default(), rest.get(end + 1..).unwrap_or_default());
        let mut parts = split_unquoted(header).into_iter();
        let media = parts.next().unwrap_or_default();
        if !media.is_empty() && !is_media_type(media) {
            return Err(broken("its media type is invalid; write one such as text/plain"));
        }
        let mut is_base64 = false;
        for parameter in parts {
            if is_base64 {
                return Err(broken("`base64` has to be the last word before the comma"));
            }
            is_base64 = parameter == "base64";
            if !is_base64 && !is_parameter(parameter) {
                return Err(broken("a parameter before the comma is not NAME=VALUE"));
            }
        }
        Ok(Self { is_base64, body })
    }

    /// Returns the most bytes that it can hold.
    pub(super) fn most_bytes(self) -> usize {
        if self.is_base64 {
            return self.body.len() / 4 * 3;
        }
        let escapes = self.body.bytes().filter(|byte| *byte == b'%').count();
        self.body.len().saturating_sub(escapes * 2)
    }

    /// Decodes the body; the error is the cause.
    pub(super) fn decode(self) -> Result<Vec<u8>, String> {
        if !self.is_base64 {
            return unescaped(self.body);
        }
        let decoded = BASE64.decode(self.body);
        decoded.map_err(|_| {
            "its data URL is not valid base64, with all of its padding and without escapes".to_owned()
        })
    }
}

/// Returns the bytes outside of quotes, with their places. In quotes, a backslash takes the next byte with it.
fn unquoted(text: &str) -> impl Iterator<Item = (usize, u8)> {
    let (mut is_quoted, mut is_escaped) = (false, false);
    text.bytes().enumerate().filter(move |(_, byte)| {
        let is_plain = !is_quoted;
        if is_escaped {
            is_escaped = false;
        } else {
            is_quoted ^= *byte == b'"';
            is_escaped = is_quoted && *byte == b'\\';
        }
        is_plain
    })
}

/// Splits a header at the semicolons outside of quotes.
fn split_unquoted(header: &str) -> Vec<&str> {
    let (mut parts, mut begin) = (Vec::new(), 0);
    for (at, _) in unquoted(header).filter(|(_, byte)| *byte == b';') {
        parts.push(header.get(begin..at).unwrap_or_default());
        begin = at + 1;
    }
    parts.push(header.get(begin..).unwrap_or_default());
    parts
}

/// As in RFC 2045.
fn is_token(byte: u8) -> bool {
    byte.is_ascii_graphic() && !b"()<>@,;:\\\"/[]?=".contains(&byte)
}

fn is_media_type(media: &str) -> bool {
    const TYPES: [&str; 7] = ["text", "image", "audio", "video", "application", "message", "multipart"];
    let Some((kind, subtype)) = media.split_once('/') else { return false };
    let is_known = TYPES.iter().any(|known| kind.starts_with(known))
        || kind.get(..2).is_some_and(|begin| begin.eq_ignore_ascii_case("x-"));
    is_known && kind.bytes().chain(subtype.bytes()).all(is_token)
}

fn is_parameter(parameter: &str) -> bool {
    let Some((name, value)) = parameter.split_once('=') else { return false };
    let is_name = !name.is_empty() && name.bytes().all(is_token);
    let is_value = match value.strip_prefix('"') {
        Some(rest) => rest.strip_suffix('"').is_some_and(is_go_string),
        None => !value.is_empty() && value.bytes().all(is_token) && unescaped(value).is_ok(),
    };
    is_name && is_value
}

/// Returns true for what strconv.Unquote of Go reads between double quotes, of ASCII.
fn is_go_string(inner: &str) -> bool {
    let mut rest = inner.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        match first {
            b'"' | b'\n' => return false,
            byte if !byte.is_ascii() => return false,
            b'\\' => match go_escape(rest) {
                Some(after) => rest = after,
                None => return false,
            },
            _ => {}
        }
    }
    true
}

/// Returns what follows an escape of Go, after its backslash.
fn go_escape(rest: &[u8]) -> Option<&[u8]> {
    let (kind, after) = rest.split_first()?;
    let number = |digits: &[u8], radix| u32::from_str_radix(std::str::from_utf8(digits).ok()?, radix).ok();
    let is_digits = |digits: &[u8], radix| digits.iter().all(|digit| char::from(*digit).is_digit(radix));
    let (len, digits, radix) = match kind {
        b'a' | b'b' | b'f' | b'n' | b'r' | b't' | b'v' | b'\\' | b'"' => return Some(after),
        b'x' => (2, after, 16),
        b'u' => (4, after, 16),
        b'U' => (8, after, 16),
        b'0'..=b'7' => (3, rest, 8),
        _ => return None,
    };
    let (digits, after) = digits.split_at_checked(len)?;
    let value = number(digits, radix).filter(|_| is_digits(digits, radix))?;
    let is_valid = match len {
        2 => true,
        3 => value <= 0xff,
        _ => char::from_u32(value).is_some(),
    };
    is_valid.then_some(after)
}

/// Characters that Ignition takes in a body that is not base64: those that are visible, but for `"#<>[\\]^{|}` and the backtick.
fn is_plain(byte: u8) -> bool {
    matches!(byte, b'!' | b'$'..=b';' | b'=' | b'?'..=b'Z' | b'_' | b'a'..=b'z' | b'~')
}

fn unescaped(body: &str) -> Result<Vec<u8>, String> {
    if let Some(odd) = body.chars().find(|c| !u8::try_from(*c).is_ok_and(is_plain)) {
        return Err(refused(odd));
    }
    let mut parts = body.split('%');
    let mut bytes = Vec::with_capacity(body.len());
    bytes.extend_from_slice(parts.next().unwrap_or_default().as_bytes());
    for part in parts {
        let escape = part.as_bytes().split_at_checked(2).and_then(|(digits, rest)| {
            let hex = |digit: &u8| char::from(*digit).to_digit(16);
            let [high, low] = digits else { return None };
            Some((u8::try_from(hex(high)? * 16 + hex(low)?).ok()?, rest))
        });
        let (byte, rest) =
            escape.ok_or("its data URL holds a `%` that two hex digits do not follow; write it as %25")?;
        bytes.push(byte);
        bytes.extend_from_slice(rest);
    }
    Ok(bytes)
}

fn refused(odd: char) -> String {
    match odd {
        '#' => "its data URL holds a bare `#`, where a URL ends; write it as %23".to_owned(),
        ' ' => "its data URL holds a space; write it as %20, or the contents in base64".to_owned(),
        odd if odd.is_control() => "its data URL holds a control character; write it as %XX".to_owned(),
        odd if odd.is_ascii() => {
            format!("its data URL holds a bare `{odd}`; write it as %{:02X}, or the contents in base64", u32::from(odd))
        }
        _ => "its data URL holds a character that is not ASCII; write its bytes as %XX, or the contents in base64".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(source: &str) -> Result<Vec<u8>, String> {
        let url = DataUrl::parse(source)?;
        let bytes = url.decode()?;
        assert!(bytes.len() <= url.most_bytes(), "{source}: {} of {}", bytes.len(), url.most_bytes());
        Ok(bytes)
    }

    #[test]
    fn forms_of_ignition_are_read() {
        for source in [
            "data:,a%20b%0A",
            "data:;base64,YSBiCg==",
            "data:text/plain;charset=utf-8;base64,YSBiCg==",
            "data:text/plain;charset=\"a,b;c\",a%20b%0a",
            "data:x-own/any,a%20b%0a",
            "data:text/plain;a=\"b\\\"c\",a%20b%0a",
            "data:text/plain;a=\"\\\\\";b=\"\\x41\\101\\u00e4\\n,;\",a%20b%0a",
        ] {
            assert_eq!(decoded(source).as_deref(), Ok(&b"a b\n"[..]), "{source}");
        }
        assert_eq!(decoded("data:,").as_deref(), Ok(&b""[..]));
        assert_eq!(
            decoded("data:;base64,YQ==").as_deref(),
            decoded("data:;base64,YR==").as_deref(),
            "unused bits"
        );
    }

    #[test]
    fn plain_characters_are_those_of_ignition() {
        let refused = "<>#\"{}|\\^[]`";
        for byte in 0..=u8::MAX {
            let is_refused = !byte.is_ascii_graphic() || refused.as_bytes().contains(&byte);
            assert_eq!(is_plain(byte), !is_refused, "{byte:#x}");
        }
    }

    #[test]
    fn what_only_browsers_read_is_refused() {
        for source in [
            "DATA:,a",
            "data:a",
            "data:",
            "data:a,b",
            "data:a/b,c",
            "data:/b,c",
            "data:;base64 ,YQ==",
            "data:;base64,YQ",
            "data:;base64,YQ=",
            "data:;base64,Y%51==",
            "data:;base64,Y Q==",
            "data:;base64;a=b,YQ==",
            "data:;a=,b",
            "data:;=a,b",
            "data:;a=\"b,c",
            "data:;a=\"b\\\",c",
            "data:;a=\"b\\c\",c",
            "data:;a=\"\\x4\",c",
            "data:;a=\"\\'\",c",
            "data:;a=\"\\777\",c",
            "data:;a=\"\\ud800\",c",
            "data:,a b",
            "data:,a[1]",
            "data:,\u{e4}",
            "data:;base64,YQ==YQ==",
            "data:;a=%z,b",
            "data:,%4",
            "data:,%+1",
        ] {
            assert!(decoded(source).is_err(), "{source}");
        }
    }
}
