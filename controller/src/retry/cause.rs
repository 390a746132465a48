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
    let is_any = is_number_or_time(end) || is_duration(end) || is_uuid(end) || end.starts_with("0x");
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

fn is_uuid(word: &str) -> bool {
    let lengths =
        word.split('-').map(|part| part.bytes().all(|byte| byte.is_ascii_hexdigit()).then_some(part.len()));
    lengths.eq([Some(8), Some(4), Some(4), Some(4), Some(12)])
}
