//! The same cause in other words: a server's words may have a time, a port or the number of a request, which change with each try.

/// Stands for what changes.
const ANY: char = '#';

/// Returns true if two texts have the same cause.
pub fn is_same(one: &str, other: &str) -> bool {
    one == other || essence(one) == essence(other)
}

/// Returns a text without times, durations, ports, plain numbers and identifiers of requests. Names of objects stay, and so does the status of
/// the answer in parentheses.
pub fn essence(text: &str) -> String {
    let mut essence = String::with_capacity(text.len());
    let (mut before, mut word) = (' ', String::new());
    for character in text.chars().chain(['\n']) {
        if !is_separator(character) {
            word.push(character);
            continue;
        }
        // As of an answer: (403).
        let is_status = before == '(' && character == ')';
        if is_status {
            essence.push_str(&word);
        } else {
            reduce(&word, &mut essence);
        }
        word.clear();
        essence.push(character);
        before = character;
    }
    essence
}

fn is_separator(character: char) -> bool {
    character.is_whitespace() || "()[]{}\"'`,;=</>".contains(character)
}

fn reduce(word: &str, essence: &mut String) {
    let end = word.trim_end_matches([':', '.', '-']);
    let is_any = is_number_or_time(end) || is_duration(end) || is_id(end) || end.starts_with("0x");
    let (kept, port) = end.rsplit_once(':').unwrap_or((end, ""));
    if is_any {
        essence.push(ANY);
    } else if !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit()) {
        essence.push_str(kept);
        essence.push(ANY);
    } else {
        essence.push_str(end);
    }
    essence.push_str(word.get(end.len()..).unwrap_or_default());
}

/// Also an address: it begins with a digit and has no letter but those of a time.
fn is_number_or_time(word: &str) -> bool {
    word.starts_with(|first: char| first.is_ascii_digit())
        && word.chars().all(|one| one.is_ascii_digit() || "-:.+TZ".contains(one))
}

fn is_duration(word: &str) -> bool {
    word.starts_with(|first: char| first.is_ascii_digit())
        && word.chars().all(|one| one.is_ascii_digit() || ".hmsnuµ".contains(one))
}

/// A UUID, or the number of a request or a trace in hexadecimal digits; a digest is longer.
fn is_id(word: &str) -> bool {
    let is_hex = word.bytes().all(|byte| byte.is_ascii_hexdigit());
    let has_digit = word.bytes().any(|byte| byte.is_ascii_digit());
    (is_hex && has_digit && (16..=40).contains(&word.len())) || is_uuid(word)
}

fn is_uuid(word: &str) -> bool {
    let lengths =
        word.split('-').map(|part| part.bytes().all(|byte| byte.is_ascii_hexdigit()).then_some(part.len()));
    lengths.eq([Some(8), Some(4), Some(4), Some(4), Some(12)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_of_a_request_is_no_other_cause() {
        let trace =
            |id: &str| format!("admission webhook \"a.b\" denied the request: trace {id}; try later (403)");
        let first = trace("4bf92f3577b34da6a3ce929d0e0e4736");
        assert!(is_same(&first, &trace("00f067aa0ba902b7")));
        assert!(is_same(&first, &trace("c3f0a4f2-1b7e-4c59-9a52-52a2d5a1a9aa")));
        // Words of hexadecimal letters, and digests.
        assert!(!is_same(&first, &trace("deadbeefdeadbeef")));
        assert!(!is_same(
            &trace(&"1".repeat(64).replacen('1', "a", 1)),
            &trace(&"2".repeat(64).replacen('2', "a", 1))
        ));
    }
}
