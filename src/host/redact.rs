//! Output of other programs, without possible secrets: it goes into the record, the report and events.
//!
//! It redacts rather too much: the whole text is in the journal of the host. A secret that no mark shows is not
//! recognized, so a health check must print none.

/// Replacement of a secret.
pub const MASK: &str = "***";

/// Names of values that are secrets: a word ends with one of these before its `=` or `:`.
const NAMES: [&str; 12] = [
    "password",
    "passwd",
    "passphrase",
    "pass",
    "secret",
    "token",
    "apikey",
    "api-key",
    "api_key",
    "auth",
    "authorization",
    "credentials",
];

/// Words before a secret.
const SCHEMES: [&str; 2] = ["bearer", "basic"];

/// Text that only secrets contain: private keys, password hashes of crypt(5), the beginning of a JSON web token.
const MARKS: [&str; 6] = ["PRIVATE KEY", "$y$", "$6$", "$5$", "$2b$", "eyJ"];

/// Masks possible secrets in each line.
pub fn redact(text: &str) -> String {
    let mut within_key = false;
    let mut lines = Vec::new();
    for line in text.lines() {
        let key = line.contains("PRIVATE KEY");
        let redact = if within_key || key { MASK.to_owned() } else { redact_line(line) };
        within_key = if key { line.contains("BEGIN") } else { within_key };
        lines.push(redact);
    }
    lines.join("\n")
}

fn redact_line(line: &str) -> String {
    let mut words = Vec::new();
    // A scheme after the name of a value is followed by the value.
    let mut is_value = false;
    for word in line.split_whitespace() {
        let is_scheme = SCHEMES.contains(&bare(word).as_str());
        let text = if is_value && !is_scheme { MASK.to_owned() } else { redact_word(word) };
        is_value = is_scheme || (!is_value && announces(word));
        words.push(text);
    }
    words.join(" ")
}

/// Returns true if the value of a secret is the next word: `--password x`, `token: x`.
fn announces(word: &str) -> bool {
    let option = word.starts_with("--") && is_name(word);
    option || word.strip_suffix([':', '=']).is_some_and(is_name)
}

fn redact_word(word: &str) -> String {
    if MARKS.iter().any(|mark| word.contains(mark)) {
        return MASK.to_owned();
    }
    if let Some((scheme, rest)) = word.split_once("://")
        && let Some((_, host)) = rest.rsplit_once('@')
    {
        return format!("{scheme}://{MASK}@{host}");
    }
    for (at, mark) in word.match_indices(['=', ':']) {
        let (name, value) = (word.get(..at).unwrap_or_default(), word.get(at + 1..).unwrap_or_default());
        if is_name(name) && !value.is_empty() {
            return format!("{name}{mark}{MASK}");
        }
    }
    word.to_owned()
}

/// Returns true if a value of this name is a secret.
pub fn is_secret_name(name: &str) -> bool {
    is_name(name)
}

fn is_name(word: &str) -> bool {
    let word = bare(word);
    NAMES.iter().any(|name| word.ends_with(name))
}

fn bare(word: &str) -> String {
    word.trim_matches(|c: char| !c.is_alphanumeric()).to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_redacted_and_cause_stays() {
        for (text, expected) in [
            ("the port 443 is closed: connection refused", "the port 443 is closed: connection refused"),
            ("GET https://core:hunter2@one.example/x?y=1 failed", "GET https://***@one.example/x?y=1 failed"),
            ("--password=hunter2 was wrong", "--password=*** was wrong"),
            ("curl --token hunter2 one.example", "curl --token *** one.example"),
            ("DB_PASSWORD=hunter2 psql", "DB_PASSWORD=*** psql"),
            ("Authorization: Bearer hunter2 was refused", "Authorization: Bearer *** was refused"),
            ("{\"auth\":\"aHVudGVyMg==\",\"a\":1}", "{\"auth\":***"),
            ("password: hunter2", "password: ***"),
            ("got eyJhbGciOiJSUzI1NiJ9.e30.x for it", "got *** for it"),
            ("core:$6$salt$hash:19000", "***"),
            (
                "a\n-----BEGIN EC PRIVATE KEY-----\nhunter2\n-----END EC PRIVATE KEY-----\nb",
                "a\n***\n***\n***\nb",
            ),
            ("unit a.service is failed", "unit a.service is failed"),
        ] {
            assert_eq!(redact(text), expected);
        }
    }
}
