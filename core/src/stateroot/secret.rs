//! Keys and tokens, recognized by a file's name, and by its contents. A cause quotes nothing of the contents.
//!
//! It is the second door. The first one is that a seed has only what is known to be portable (`portable`).

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::io::Read as _;

use base64::Engine as _;

/// Deepest nesting of compressed or encoded contents that is looked into.
const MAX_DEPTH: u32 = 3;

/// Most bytes of one compressed part.
const MAX_INFLATED: u64 = 64 << 20;

/// Bytes of a line that is not UTF-8.
const MAX_OTHER_BYTES: usize = 64 << 10;

/// Shortest text in base64 that is decoded.
const MIN_ENCODED: usize = 12;

/// Texts of so many bytes are in large files by chance: a secret goes on after them, with at least so many characters.
const MAX_CHANCE: usize = 5;
const MIN_REST: usize = 8;

const PRIVATE_KEY: &str = "a private key";
const TOKEN: &str = "a token";
const PASSWORD: &str = "a password";
const CREDENTIALS: &str = "credentials";

/// Endings of the names of files that hold keys.
const ENDINGS: [(&str, &str); 13] = [
    (".jks", "a key store"),
    (".jwk", PRIVATE_KEY),
    (".kdbx", "a key store"),
    (".key", PRIVATE_KEY),
    (".keyring", "a key store"),
    (".keystore", "a key store"),
    (".keytab", "a keytab"),
    (".kubeconfig", "a kubeconfig"),
    (".p12", "a key store"),
    (".pfx", "a key store"),
    (".ppk", PRIVATE_KEY),
    (".psk", "a pre-shared key"),
    ("_history", "the history of a shell"),
];

/// Names of files that hold keys.
const NAMES: [(&str, &str); 21] = [
    (".erlang.cookie", TOKEN),
    (".git-credentials", CREDENTIALS),
    (".htpasswd", PASSWORD),
    (".my.cnf", PASSWORD),
    (".netrc", PASSWORD),
    (".pgpass", PASSWORD),
    (".vault-token", TOKEN),
    ("auth.json", CREDENTIALS),
    ("authkey", PRIVATE_KEY),
    ("chap-secrets", PASSWORD),
    ("credentials", CREDENTIALS),
    ("erlang.cookie", TOKEN),
    ("id_dsa", PRIVATE_KEY),
    ("id_ecdsa", PRIVATE_KEY),
    ("id_ed25519", PRIVATE_KEY),
    ("id_rsa", PRIVATE_KEY),
    ("key4.db", "a key store"),
    ("kubeconfig", "a kubeconfig"),
    ("pap-secrets", PASSWORD),
    ("secrets.tdb", PASSWORD),
    ("smbpasswd", PASSWORD),
];

/// Bytes with which files of keys begin.
const BEGINNINGS: [(&[u8], &str); 3] = [
    (b"LUKS\xba\xbe", "the header of an encrypted disk"),
    (b"\xfe\xed\xfe\xed", "a key store"),
    (b"\x05\x02\x00\x00", "a keytab"),
];

/// Texts that only keys and tokens have.
const TEXTS: [(&str, &str); 27] = [
    ("PRIVATE KEY-----", PRIVATE_KEY),
    ("PRIVATE KEY BLOCK", PRIVATE_KEY),
    ("(private-key", PRIVATE_KEY),
    ("AGE-SECRET-KEY-", PRIVATE_KEY),
    (" TOKEN-----", TOKEN),
    ("client-key-data", "a kubeconfig"),
    ("\"auths\"", CREDENTIALS),
    ("\"identitytoken\"", TOKEN),
    ("AKIA", TOKEN),
    ("ghp_", TOKEN),
    ("gho_", TOKEN),
    ("ghs_", TOKEN),
    ("github_pat_", TOKEN),
    ("glpat-", TOKEN),
    ("xoxb-", TOKEN),
    ("xoxp-", TOKEN),
    ("hvs.", TOKEN),
    ("sk_live_", TOKEN),
    ("sha256~", TOKEN),
    ("$1$", "the hash of a password"),
    ("$2a$", "the hash of a password"),
    ("$2b$", "the hash of a password"),
    ("$2y$", "the hash of a password"),
    ("$5$", "the hash of a password"),
    ("$6$", "the hash of a password"),
    ("$y$", "the hash of a password"),
    ("$apr1$", "the hash of a password"),
];

/// Ends of the names of settings, without `_`, `-` and `.`, whose value is one.
const KEYS: [&str; 26] = [
    "accesskey",
    "accountkey",
    "apikey",
    "authkey",
    "authpass",
    "authtok",
    "bindpw",
    "clientkeydata",
    "communityname",
    "connectionstring",
    "credential",
    "credentials",
    "encryptionkey",
    "keyfilecontents",
    "licensekey",
    "pass",
    "passphrase",
    "passwd",
    "password",
    "privatekey",
    "psk",
    "pwd",
    "secret",
    "secretkey",
    "token",
    "sharedkey",
];

/// Words after which a line has one, with nothing but a space between.
const WORDS: [&str; 17] = [
    "auth_pass",
    "authentication-key",
    "basic",
    "bearer",
    "bindpw",
    "createuser",
    "http_passwd",
    "insecure-password",
    "masterauth",
    "passphrase",
    "passwd",
    "password",
    "psk",
    "requirepass",
    "rocommunity",
    "rwcommunity",
    "secret",
];

/// Values that are none: switches, words of PAM and of the name service, and the words of a sentence.
const HARMLESS: [&str; 48] = [
    "a",
    "all",
    "an",
    "and",
    "any",
    "are",
    "as",
    "ask",
    "authentication",
    "by",
    "compat",
    "default",
    "false",
    "file",
    "files",
    "for",
    "from",
    "has",
    "if",
    "in",
    "include",
    "is",
    "must",
    "never",
    "no",
    "none",
    "not",
    "null",
    "of",
    "off",
    "on",
    "optional",
    "or",
    "prompt",
    "required",
    "requisite",
    "sss",
    "substack",
    "sufficient",
    "systemd",
    "that",
    "the",
    "to",
    "true",
    "was",
    "will",
    "with",
    "yes",
];

/// Returns what a file is by its name; the path is one below the root.
pub fn in_name(path: &str) -> Option<&'static str> {
    let name = path.rsplit('/').next().unwrap_or_default();
    let named = NAMES.into_iter().find(|(known, _)| *known == name);
    let ended = || ENDINGS.into_iter().find(|(ending, _)| name.ends_with(ending));
    named.or_else(ended).map(|(_, cause)| cause)
}

/// Returns what contents look like, if it is a key or a token.
pub fn in_contents(bytes: &[u8]) -> Option<&'static str> {
    look(bytes, &BTreeSet::new(), MAX_DEPTH)
}

/// The same of a file that the image has, too: lines that are the image's are no secret of the host.
pub fn in_changes(bytes: &[u8], image: &[u8]) -> Option<&'static str> {
    let known = image.split(|byte| *byte == b'\n').collect();
    look(bytes, &known, MAX_DEPTH)
}

/// Returns what the source of a file looks like: a URL of data, or one with a password.
pub(super) fn in_source(source: &str) -> Option<&'static str> {
    let body = source.split_once(',').filter(|_| source.starts_with("data:")).map_or("", |(_, body)| body);
    in_contents(source.as_bytes()).or_else(|| in_contents(&percent_decoded(body)))
}

/// Returns true if a setting of this name has a secret as its value.
pub(super) fn is_secret_key(name: &str) -> bool {
    let is_mark = |c: char| matches!(c, '_' | '-' | '.');
    let key: String = name.chars().filter(|c| !is_mark(*c)).collect::<String>().to_ascii_lowercase();
    KEYS.into_iter().any(|known| key.ends_with(known))
}

fn percent_decoded(text: &str) -> Vec<u8> {
    let mut parts = text.split('%');
    let mut decoded = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        let hex = part.get(..2).and_then(|hex| u8::from_str_radix(hex, 16).ok());
        match hex {
            Some(byte) => {
                decoded.push(byte);
                decoded.extend(part.get(2..).unwrap_or_default().as_bytes());
            }
            None => decoded.extend([b"%", part.as_bytes()].concat()),
        }
    }
    decoded
}

fn look(bytes: &[u8], known: &BTreeSet<&[u8]>, depth: u32) -> Option<&'static str> {
    if let Some((_, cause)) = BEGINNINGS.into_iter().find(|(begin, _)| bytes.starts_with(begin)) {
        return Some(cause);
    }
    if bytes.starts_with(&[0x1f, 0x8b]) {
        return look_into(bytes, known, depth);
    }
    let is_text = !bytes.contains(&0);
    bytes.split(|byte| *byte == b'\n').filter(|line| !known.contains(line)).find_map(|line| {
        let of_line = || if is_text { in_line(&as_text(line)) } else { None };
        of_text(line).or_else(of_line).or_else(|| encoded(line, known, depth))
    })
}

/// Returns a line as text; of one in another encoding so much that no copy is large.
fn as_text(line: &[u8]) -> Cow<'_, str> {
    std::str::from_utf8(line)
        .map_or_else(|_| String::from_utf8_lossy(line.get(..MAX_OTHER_BYTES).unwrap_or(line)), Cow::Borrowed)
}

/// Looks for the texts of keys and tokens, in one pass and without a copy.
fn of_text(line: &[u8]) -> Option<&'static str> {
    (0..line.len()).find_map(|at| {
        let rest = line.get(at..)?;
        // Most bytes begin none.
        if !matches!(
            rest.first()?,
            b'P' | b'(' | b'A' | b' ' | b'c' | b'"' | b'g' | b'x' | b'h' | b's' | b'$'
        ) {
            return None;
        }
        TEXTS.into_iter().find(|(text, _)| begins_with(rest, text)).map(|(_, cause)| cause)
    })
}

/// Returns true if bytes begin with a text, and a short one is not there by chance.
fn begins_with(bytes: &[u8], text: &str) -> bool {
    let is_of_secret = |byte: &u8| byte.is_ascii_alphanumeric() || b"./$_-+=,@~".contains(byte);
    bytes.strip_prefix(text.as_bytes()).is_some_and(|rest| {
        text.len() > MAX_CHANCE || rest.get(..MIN_REST).is_some_and(|rest| rest.iter().all(is_of_secret))
    })
}

/// Looks into what is compressed by gzip. What is too large to be looked into, or is nested too deep, could be anything.
fn look_into(bytes: &[u8], known: &BTreeSet<&[u8]>, depth: u32) -> Option<&'static str> {
    const UNREAD: &str = "compressed contents that are too large to be looked into";
    let Some(depth) = depth.checked_sub(1) else { return Some(UNREAD) };
    let mut inflated = Vec::new();
    let read = flate2::read::MultiGzDecoder::new(bytes).take(MAX_INFLATED + 1).read_to_end(&mut inflated);
    if u64::try_from(inflated.len()).is_ok_and(|length| length > MAX_INFLATED) {
        return Some(UNREAD);
    }
    // What is damaged ends early: the rest is no file of anybody.
    drop(read);
    look(&inflated, known, depth)
}

/// Looks into the parts of a line that are text in base64.
fn encoded(line: &[u8], known: &BTreeSet<&[u8]>, depth: u32) -> Option<&'static str> {
    let depth = depth.checked_sub(1)?;
    let is_digit = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/');
    let runs = line.split(|byte| !is_digit(byte)).filter(|run| run.len() >= MIN_ENCODED);
    runs.filter_map(|run| {
        // One digit more than a byte needs is cut off.
        let length = if run.len() % 4 == 1 { run.len() - 1 } else { run.len() };
        let decoded = lenient().decode(run.get(..length)?).ok()?;
        let is_readable = decoded.starts_with(&[0x1f, 0x8b]) || std::str::from_utf8(&decoded).is_ok();
        is_readable.then_some(decoded)
    })
    .find_map(|decoded| look(&decoded, known, depth))
}

fn lenient() -> base64::engine::GeneralPurpose {
    use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
    let config = GeneralPurposeConfig::new()
        .with_decode_allow_trailing_bits(true)
        .with_decode_padding_mode(DecodePaddingMode::Indifferent);
    GeneralPurpose::new(&base64::alphabet::STANDARD, config)
}

/// Looks at one line of text: settings with `=` or `:`, and words before a value.
fn in_line(line: &str) -> Option<&'static str> {
    if has_password_in_url(line) {
        return Some("a URL with a password");
    }
    if is_web_token(line) {
        return Some(TOKEN);
    }
    let separators = line.char_indices().filter(|(_, c)| matches!(c, '=' | ':' | '>'));
    for (at, separator) in separators {
        let (before, after) = (line.get(..at).unwrap_or_default(), line.get(at + 1..).unwrap_or_default());
        let key = last_name(before);
        // The name service has a database of this name.
        let is_database = separator == ':' && key.eq_ignore_ascii_case("passwd");
        if !is_database && is_secret_key(key) && is_value(after) {
            return Some(cause_of(key));
        }
    }
    of_words(line)
}

/// Returns the cause for a setting.
fn cause_of(key: &str) -> &'static str {
    let key = key.to_ascii_lowercase();
    match () {
        () if key.contains("token") => TOKEN,
        () if key.contains("key") || key.contains("psk") => "a key",
        () => PASSWORD,
    }
}

/// Returns the name before a separator, without quotes and spaces.
fn last_name(text: &str) -> &str {
    let text = text.trim_end_matches([' ', '\t', '"', '\'', ']']);
    let is_of_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    let begin =
        text.char_indices().rev().take_while(|(_, c)| is_of_name(*c)).last().map_or(text.len(), |(at, _)| at);
    text.get(begin..).unwrap_or_default()
}

/// Returns true if a setting has a value, and not a path, a variable or a switch.
fn is_value(after: &str) -> bool {
    let trimmed = after.trim_start_matches([' ', '\t', '"', '\'', '=', '>', '[']);
    let is_end = |c: char| c.is_whitespace() || matches!(c, '"' | '\'' | ',' | ';' | '}' | ']' | '<');
    let value = trimmed.split(is_end).next().unwrap_or_default();
    let is_pointer =
        ["/", "$", "%", "{", "(", "*", "!", "file:", "env:", "#"].iter().any(|mark| value.starts_with(mark));
    value.len() > 2 && !is_pointer && !HARMLESS.contains(&&*value.to_ascii_lowercase())
}

/// Looks for a word and its value, such as `machine a login b password c`. A comment is a sentence.
fn of_words(line: &str) -> Option<&'static str> {
    let line = line.trim_start();
    if line.starts_with(['#', ';']) || line.starts_with("//") {
        return None;
    }
    let mut words = line.split_whitespace().peekable();
    while let Some(word) = words.next() {
        let word = word.trim_matches(['"', '\'', '-', ':']).to_ascii_lowercase();
        let is_named = WORDS.contains(&&*word) && words.peek().is_some_and(|value| is_value(value));
        // Names and passwords of the pages of haproxy.
        let is_pair = word == "auth" && words.peek().is_some_and(|value| value.contains(':'));
        if is_named || is_pair {
            return Some(PASSWORD);
        }
    }
    None
}

/// Returns true if a URL has a user and a password: `://USER:PASSWORD@`.
fn has_password_in_url(line: &str) -> bool {
    line.split("://").skip(1).any(|rest| {
        let authority = rest.split(|c: char| c.is_whitespace() || matches!(c, '/' | '"' | '\'')).next();
        let user = authority.unwrap_or_default().rsplit_once('@').map(|(user, _)| user);
        user.and_then(|user| user.split_once(':'))
            .is_some_and(|(_, password)| !password.is_empty() && !password.starts_with('$'))
    })
}

/// Returns true if a line has a JSON web token, or an encrypted one: parts in base64 of which the first is a JSON object.
fn is_web_token(line: &str) -> bool {
    let is_end = |c: char| !(c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.'));
    line.split(is_end).any(|word| word.starts_with("eyJ") && word.matches('.').count() >= 2)
}

#[cfg(test)]
mod tests {
    use base64::engine::general_purpose::STANDARD;

    use super::*;

    #[test]
    fn keys_and_tokens_are_found() {
        for text in [
            "-----BEGIN EC PRIVATE KEY-----\nAAAA",
            "a: 1\n  password: hunter2\n",
            "export DB_PASSWORD=hunter2",
            "{\"aadClientSecret\":\"hunter2\"}",
            "PrivateKey = AAAAAAAAAAAAAAAAAAAAAAAA=",
            "machine a login b password hunter2",
            "  stats auth admin:hunter2",
            "rocommunity hunter2",
            "https://user:hunter2@proxy:3128",
            "core:$6$salt$hash:1::::::",
            "{\"auths\": {}}",
            "Authorization: Bearer eyJhbGciOi.eyJzdWIi.c2ln",
            "# password = hunter2",
            "//nas/a /mnt cifs username=a,password=hunter2 0 0",
            "<UserPassword>hunter2</UserPassword>",
        ] {
            assert!(in_contents(text.as_bytes()).is_some(), "{text}");
            let encoded = STANDARD.encode(text);
            assert!(in_contents(encoded.as_bytes()).is_some(), "in base64: {text}");
            let source =
                format!("data:,{}", text.replace(' ', "%20").replace('\n', "%0A").replace('=', "%3D"));
            assert!(in_source(&source).is_some(), "{source}");
        }
        assert!(in_contents(b"LUKS\xba\xbe\0\x02").is_some());
    }

    #[test]
    fn configuration_is_no_secret() {
        for text in [
            "PasswordAuthentication no\nPermitEmptyPasswords no\n",
            "passwd:     files sss systemd\nshadow: files\n",
            "password    sufficient    pam_unix.so sha512 shadow\npassword    required      pam_deny.so\n",
            "# The password of the user is in another file\n",
            "server 192.0.2.1 iburst\nkeyfile /etc/chrony.keys\n",
            "tokenFile: /var/run/token\nrotateCertificates: true\n",
            "-----BEGIN CERTIFICATE-----\nMIIBszCCAVmgAwIBAgIU\n-----END CERTIFICATE-----\n",
            "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ core@host\n",
            "root:x:0:0:root:/root:/bin/bash\n",
            "imagePullSecrets: []\npassword: \"\"\npasswordFile: /a\n",
            "https://registry.test:5000/a@sha256:0000000000",
            "pid_file = /run/a.pid\nmax_tokens_per_second=5\n",
        ] {
            assert_eq!(in_contents(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn lines_of_the_image_are_not_of_the_host() {
        let image = b"# password = example\nport = 1\n";
        assert_eq!(in_changes(b"# password = example\nport = 2\n", image), None);
        assert!(in_changes(b"# password = example\npassword = hunter2\n", image).is_some());
    }

    #[test]
    fn each_text_is_found() {
        for (text, cause) in TEXTS {
            assert_eq!(in_contents(format!("\0x{text}salt$hash\x01").as_bytes()), Some(cause), "{text}");
        }
    }

    /// A large file of any bytes has each text of three or four somewhere.
    #[test]
    fn short_text_in_data_is_no_secret() {
        for (text, _) in TEXTS.into_iter().filter(|(text, _)| text.len() <= MAX_CHANCE) {
            for rest in [&b"\0\0\0\0\0\0\0\0"[..], b"abcdefg\xff", b"a", b""] {
                let bytes = [b"\0\xfe", text.as_bytes(), rest].concat();
                assert_eq!(in_contents(&bytes), None, "{text}{rest:?}");
            }
        }
    }

    #[test]
    fn names_say_what_files_hold() {
        for (path, expected) in [
            ("etc/app/tls.key", true),
            ("var/roothome/.netrc", true),
            ("var/home/core/.bash_history", true),
            ("etc/app/keys.conf", false),
            ("etc/app/key", false),
        ] {
            assert_eq!(in_name(path).is_some(), expected, "{path}");
        }
    }

    #[test]
    fn compressed_bomb_is_not_looked_into_for_ever() {
        use std::io::Write as _;
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        let zeros = vec![0; 1 << 20];
        for _ in 0..66 {
            encoder.write_all(&zeros).unwrap();
        }
        assert!(in_contents(&encoder.finish().unwrap()).unwrap().contains("too large"));
    }
}
