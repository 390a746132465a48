//! Instructions of a Containerfile, as buildah reads them: pure.
//!
//! # Decisions
//!
//! - The reading is that of github.com/openshift/imagebuilder, buildah's parser: which lines belong to an instruction, and what is a
//!   here-document. What it takes is taken here; the rest of an instruction is left to the builder.
//! - No crate: those that exist know here-documents only as the first word of `RUN`.

/// Instructions that builders know.
const KEYWORDS: [&str; 18] = [
    "ADD",
    "ARG",
    "CMD",
    "COPY",
    "ENTRYPOINT",
    "ENV",
    "EXPOSE",
    "FROM",
    "HEALTHCHECK",
    "LABEL",
    "MAINTAINER",
    "ONBUILD",
    "RUN",
    "SHELL",
    "STOPSIGNAL",
    "USER",
    "VOLUME",
    "WORKDIR",
];

/// Instructions that here-documents may follow.
const WITH_HEREDOCS: [&str; 3] = ["ADD", "COPY", "RUN"];

/// A line, from 1, and what is wrong there.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Mistake {
    pub(super) line: usize,
    pub(super) cause: String,
}

/// An instruction.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Instruction {
    /// Its first line, from 1.
    pub(super) line: usize,
    /// In upper case.
    pub(super) keyword: String,
    /// The words that begin with `--`.
    pub(super) flags: String,
    /// Without flags.
    pub(super) arguments: String,
    /// It goes on (`\`), and nothing follows.
    pub(super) unfinished: bool,
}

/// A stage.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Stage<'a> {
    /// The line of its `FROM`.
    pub(super) line: usize,
    pub(super) image: &'a str,
    pub(super) name: Option<&'a str>,
    pub(super) instructions: &'a [Instruction],
}

/// Reads the instructions.
pub(super) fn parse(text: &str) -> Result<Vec<Instruction>, Mistake> {
    let mut lines = (1..).zip(text.trim_start_matches('\u{feff}').lines());
    let mut instructions = Vec::new();
    while let Some((line, first)) = lines.next() {
        let (mut whole, mut goes_on) = continued(without_remark(first.trim_start()));
        if whole.is_empty() && !goes_on {
            continue;
        }
        while goes_on {
            let Some((_, next)) = lines.next() else { break };
            if without_remark(next.trim_start()).is_empty() {
                continue;
            }
            let (more, again) = continued(without_remark(next));
            whole += &more;
            goes_on = again;
        }
        let instruction = instruction(line, &whole, goes_on)?;
        for Heredoc { name, tabs } in heredocs(&instruction, &whole) {
            let is_end =
                |text: &str| text.trim_end_matches('\r').trim_start_matches(|c| tabs && c == '\t') == name;
            if !lines.any(|(_, text)| is_end(text)) {
                let cause = format!("the here-document {name} has no end; end it with a line {name}");
                return Err(Mistake { line, cause });
            }
        }
        instructions.push(instruction);
    }
    Ok(instructions)
}

/// Returns the stages; each begins with a `FROM`.
pub(super) fn stages(instructions: &[Instruction]) -> Vec<Stage<'_>> {
    let is_from = |one: &Instruction| one.keyword == "FROM";
    let starts = instructions.iter().enumerate().filter(|(_, one)| is_from(one));
    let stage = |(at, from): (usize, &'_ Instruction)| {
        let rest = instructions.get(at + 1..).unwrap_or_default();
        let end = rest.iter().position(is_from).unwrap_or(rest.len());
        (from.line, at, rest.get(..end).unwrap_or_default())
    };
    let mut stages = Vec::new();
    for (line, at, own) in starts.map(stage) {
        let mut words = instructions.get(at).map_or("", |from| &from.arguments).split_whitespace();
        let image = words.next().unwrap_or_default();
        stages.push(Stage { line, image, name: words.nth(1), instructions: own });
    }
    stages
}

fn without_remark(line: &str) -> &str {
    if line.starts_with('#') { "" } else { line }
}

/// Returns a line without the `\` at its end, and whether it had one.
fn continued(line: &str) -> (String, bool) {
    match line.trim_end_matches([' ', '\t']).strip_suffix('\\') {
        Some(before) => (before.to_owned(), true),
        None => (line.to_owned(), false),
    }
}

fn instruction(line: usize, whole: &str, unfinished: bool) -> Result<Instruction, Mistake> {
    let wrong = |cause: String| Mistake { line, cause };
    let whole = whole.trim();
    let (word, rest) = whole.split_once(char::is_whitespace).unwrap_or((whole, ""));
    let keyword = word.to_uppercase();
    if !KEYWORDS.contains(&keyword.as_str()) {
        return Err(wrong(format!("unknown instruction '{word}'; correct it")));
    }
    let arguments = without_flags(rest);
    let flags = rest.strip_suffix(arguments).unwrap_or_default().trim().to_owned();
    let arguments = arguments.trim();
    let count = arguments.split_whitespace().count();
    match keyword.as_str() {
        "CMD" | "ENTRYPOINT" | "RUN" => {}
        _ if arguments.is_empty() => {
            return Err(wrong(format!("{keyword} needs an argument; write one")));
        }
        "ADD" | "COPY" if list(arguments).map_or(count, |list| list.len()) < 2 => {
            return Err(wrong(format!(
                "{keyword} needs at least two arguments; write the source and the destination"
            )));
        }
        "FROM" => {
            let middle = arguments.split_whitespace().nth(1);
            if count != 1 && !(count == 3 && middle.is_some_and(|word| word.eq_ignore_ascii_case("as"))) {
                return Err(wrong("FROM takes an image, or an image, AS and a name; correct it".to_owned()));
            }
        }
        _ => {}
    }
    Ok(Instruction { line, keyword, flags, arguments: arguments.to_owned(), unfinished })
}

/// Skips words that begin with `--`.
fn without_flags(mut rest: &str) -> &str {
    loop {
        rest = rest.trim_start();
        if !rest.starts_with("--") {
            return rest;
        }
        let (mut quote, mut escaped) = (None, false);
        let end = rest.find(|c: char| {
            if escaped {
                escaped = false;
                return false;
            }
            escaped = c == '\\';
            match quote {
                Some(open) if c == open => quote = None,
                Some(_) => {}
                None if matches!(c, '\'' | '"') => quote = Some(c),
                None => return c.is_whitespace(),
            }
            false
        });
        rest = end.and_then(|end| rest.get(end..)).unwrap_or_default();
    }
}

/// Reads the form of a JSON list; what follows the list is ignored.
fn list(arguments: &str) -> Option<Vec<String>> {
    let mut values = serde_json::Deserializer::from_str(arguments).into_iter::<Vec<String>>();
    arguments.starts_with('[').then(|| values.next())?.and_then(Result::ok)
}

/// A here-document of an instruction.
#[derive(Debug, PartialEq, Eq)]
struct Heredoc {
    name: String,
    /// Tabs before its end are ignored (`<<-`).
    tabs: bool,
}

/// Returns the here-documents in their order. A line that no shell could read has none.
fn heredocs(instruction: &Instruction, whole: &str) -> Vec<Heredoc> {
    let (keyword, arguments) = match instruction.keyword.as_str() {
        "ONBUILD" => {
            let inner = &*instruction.arguments;
            let (word, rest) = inner.split_once(char::is_whitespace).unwrap_or((inner, ""));
            (word.to_uppercase(), without_flags(rest).trim())
        }
        keyword => (keyword.to_owned(), &*instruction.arguments),
    };
    if !WITH_HEREDOCS.contains(&keyword.as_str()) || list(arguments).is_some() {
        return Vec::new();
    }
    let words = Words::default().read(whole).unwrap_or_default();
    words.iter().filter_map(|word| heredoc(word)).collect()
}

/// Reads a word `[FD]<<[-]NAME`.
fn heredoc(word: &str) -> Option<Heredoc> {
    let rest = word.trim_start_matches(|c: char| c.is_ascii_digit()).strip_prefix("<<")?;
    let (rest, tabs) = rest.strip_prefix('-').map_or((rest, false), |rest| (rest, true));
    let rest = rest.trim_start();
    if rest.contains('<') {
        return None;
    }
    let name = unquoted(rest);
    (!name.is_empty()).then_some(Heredoc { name, tabs })
}

/// Removes quotes and the `\` before another character.
fn unquoted(word: &str) -> String {
    let (mut name, mut quote, mut escaped) = (String::new(), None, false);
    for c in word.chars() {
        match quote {
            _ if escaped => {
                escaped = false;
                name.push(c);
            }
            Some(open) if c == open => quote = None,
            Some('\'') => name.push(c),
            _ if c == '\\' => escaped = true,
            None if matches!(c, '\'' | '"') => quote = Some(c),
            None | Some(_) => name.push(c),
        }
    }
    name
}

/// The words of a line as a shell separates them, with their quotes.
#[derive(Default)]
struct Words {
    words: Vec<String>,
    word: String,
}

impl Words {
    /// Reads a line; `None` where a quote or a `${` has no end.
    fn read(mut self, line: &str) -> Option<Vec<String>> {
        let mut rest = line;
        while let Some(c) = rest.chars().next() {
            let length = match c {
                '\'' => rest.get(1..)?.find('\'')? + 2,
                '"' => double_quoted(rest)?,
                '\\' => 1 + rest.chars().nth(1).map_or(0, char::len_utf8),
                '$' => substitution(rest)?,
                // A here-document's name may stand apart.
                '<' if rest.starts_with("<<") => rest.len() - rest.get(2..)?.trim_start().len(),
                c if c.is_whitespace() => {
                    self.end();
                    rest = rest.get(c.len_utf8()..)?;
                    continue;
                }
                c => c.len_utf8(),
            };
            self.word += rest.get(..length)?;
            rest = rest.get(length..)?;
        }
        self.end();
        Some(self.words)
    }

    fn end(&mut self) {
        if !self.word.is_empty() {
            self.words.push(std::mem::take(&mut self.word));
        }
    }
}

/// Returns the length of what is in double quotes.
fn double_quoted(text: &str) -> Option<usize> {
    let mut at = 1;
    loop {
        let rest = text.get(at..)?;
        at += match rest.chars().next()? {
            '"' => return Some(at + 1),
            '\\' => {
                1 + rest.chars().nth(1).filter(|c| matches!(c, '"' | '$' | '\\')).map_or(0, char::len_utf8)
            }
            '$' => substitution(rest)?,
            c => c.len_utf8(),
        };
    }
}

/// Returns the length of `$` and, in braces, of the substitution; of a name without braces nothing matters here.
fn substitution(text: &str) -> Option<usize> {
    let Some(inner) = text.strip_prefix("${") else { return Some(1) };
    let name = inner.len() - inner.trim_start_matches(|c: char| c.is_ascii_alphanumeric() || c == '_').len();
    let after = inner.get(name..)?;
    match after.chars().next()? {
        '}' if name > 0 => return Some(2 + name + 1),
        ':' if name == 0 => return None,
        ':' | '+' | '-' | '?' | '#' | '%' | '/' => {}
        _ => return None,
    }
    let mut at = 2 + name + 1;
    loop {
        let rest = text.get(at..)?;
        at += match rest.chars().next()? {
            '}' => return Some(at + 1),
            '\'' => rest.get(1..)?.find('\'')? + 2,
            '"' => double_quoted(rest)?,
            '\\' => 1 + rest.chars().nth(1).map_or(0, char::len_utf8),
            '$' => substitution(rest)?,
            c => c.len_utf8(),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first column is the verdict of buildah's parser (github.com/openshift/imagebuilder v1.2.22: `ParseDockerfile`,
    /// `NewStages`, and each instruction with an executor that does nothing), which was run once over the texts: `late` where
    /// the builder refuses what is left to it here.
    #[test]
    fn verdicts_are_those_of_buildah() {
        let mut counts = (0, 0);
        for row in include_str!("containerfiles.tsv").lines() {
            let (verdict, text) = row.split_once('\t').unwrap();
            let text: String = serde_json::from_str(text).unwrap();
            let found = parse(&text);
            if verdict == "no" {
                counts.1 += 1;
                found.expect_err(&text);
            } else {
                counts.0 += 1;
                found.unwrap_or_else(|mistake| panic!("{text}: {mistake:?}"));
            }
        }
        assert!(counts.0 >= 60 && counts.1 >= 20, "{counts:?}");
    }

    /// Says of each text what buildah's parser says (`tests/heredocs`); an empty text for one that it takes. The arguments of an
    /// instruction are left to the builder.
    #[expect(clippy::disallowed_types, reason = "a test: it builds and runs the judge")]
    fn judged(texts: &[String]) -> Vec<String> {
        use std::process::{Command, Stdio};
        let directory = tempfile::tempdir().unwrap();
        let program = directory.path().join("heredocs");
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/heredocs");
        let mut go = Command::new("go");
        go.arg("build").arg("-o").arg(&program).arg(".").current_dir(source);
        let output = go.output().unwrap_or_else(|error| panic!("go: {error}; `./setup` installs it"));
        assert!(output.status.success(), "tests/heredocs: {}", String::from_utf8_lossy(&output.stderr));
        let lines: Vec<String> = texts.iter().map(|text| serde_json::to_string(text).unwrap()).collect();
        let input = lines.join("\n");
        let mut child = Command::new(&program).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let writer = std::thread::spawn(move || std::io::Write::write_all(&mut stdin, input.as_bytes()));
        let output = child.wait_with_output().unwrap();
        writer.join().unwrap().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let verdicts: Vec<String> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(verdicts.len(), texts.len());
        verdicts
    }

    /// Texts around here-documents: an instruction, the word that begins one, what follows on the line, and the lines below.
    fn heredoc_shapes() -> Vec<String> {
        const BEGINS: [&str; 18] = [
            "<<EOF",
            "<<-EOF",
            "<<'EOF'",
            "<<-\"EOF\"",
            "3<<EOF",
            "0<<-EOF",
            "<< EOF",
            "<<- EOF",
            "<<<EOF",
            "<<E\\OF",
            "<<'E F'",
            "<<E\"O\"F",
            "<<$x",
            "<<EOF;",
            "\"<<EOF\"",
            "'<<EOF'",
            "$((1<<2))",
            "${A:-<<EOF}",
        ];
        const RESTS: [&str; 7] =
            ["", " >/x", ">/x", " && cat <<-B >/y", " | tee /x", " \\\n  >/x", " # no remark <<C"];
        const BODIES: [&str; 12] = [
            "USER x\nEOF\n",
            "USER x\n\tEOF\n",
            "USER x\n EOF\n",
            "USER x\nEOF",
            "USER x\nEOF \nEOF\n",
            "USER x\nEOF\n\tB\n",
            "\tB\nEOF\n",
            "USER x\r\nEOF\r\n",
            "\\\nEOF\n",
            "# EOF\nEOF\nUSER x\n",
            "USER x\nE F\n",
            "USER x\n",
        ];
        let mut texts = Vec::new();
        for (instruction, end) in [
            ("RUN cat ", ""),
            ("RUN ", " true"),
            ("COPY ", " /d/"),
            ("ADD --chmod=0644 ", " /d/"),
            ("ONBUILD RUN cat ", ""),
            ("CMD cat ", ""),
        ] {
            for (begin, (rest, body)) in BEGINS.iter().flat_map(|begin| {
                RESTS.iter().flat_map(move |rest| BODIES.iter().map(move |body| (begin, (rest, body))))
            }) {
                texts.push(format!("FROM configs AS final\n{instruction}{begin}{end}{rest}\n{body}"));
            }
        }
        texts
    }

    /// Here-documents begin and end where buildah's own parser says.
    #[test]
    fn heredocs_end_as_in_parser_of_buildah() {
        // What else is wrong with a text is none of it.
        let rows = include_str!("containerfiles.tsv").lines().filter(|row| !row.starts_with("no"));
        let rows = rows.map(|row| serde_json::from_str(row.split_once('\t').unwrap().1).unwrap());
        let rows: Vec<String> = rows.filter(|text: &String| text.contains("<<")).collect();
        let texts = [rows, heredoc_shapes()].concat();
        let (mut wrong, mut taken) = (Vec::new(), 0);
        for (text, verdict) in texts.iter().zip(judged(&texts)) {
            let found = parse(text);
            taken += usize::from(verdict.is_empty());
            if found.is_err() == verdict.is_empty() {
                wrong.push(format!("{text:?}: {found:?}, and buildah: {verdict:?}"));
            }
        }
        assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), texts.len(), wrong.join("\n"));
        assert!(taken > 1000 && texts.len() - taken > 1000, "{taken} of {}", texts.len());
    }

    #[test]
    fn contents_of_heredocs_are_no_instructions() {
        let text = "FROM a AS b\nRUN cat <<A >/x && cat 3<<-'B C' >/y\nUSER evil\nA\nFROM evil\n\t\tB C\nCOPY <<\"E\" <<F /d/\n\\\nE\nF\nUSER 7";
        let found = parse(text).unwrap();
        let seen: Vec<_> = found.iter().map(|one| (one.line, one.keyword.as_str())).collect();
        assert_eq!(seen, [(1, "FROM"), (2, "RUN"), (7, "COPY"), (11, "USER")]);
        let stages = stages(&found);
        assert_eq!((stages.len(), stages[0].image, stages[0].name), (1, "a", Some("b")));
    }

    #[test]
    fn heredoc_is_word_of_its_own() {
        let names = |line: &str| {
            let whole = format!("RUN {line}");
            let instruction = instruction(1, &whole, false).unwrap();
            let found = heredocs(&instruction, &whole);
            found
                .into_iter()
                .map(|one| format!("{}{}", if one.tabs { "-" } else { "" }, one.name))
                .collect::<Vec<_>>()
        };
        assert_eq!(names("cat <<EOF >/x"), ["EOF"]);
        assert_eq!(names("bash -e <<-'EOT'"), ["-EOT"]);
        assert_eq!(names("<<A cat && <<B cat"), ["A", "B"]);
        assert_eq!(names("cat << EOF"), ["EOF"]);
        assert_eq!(names("cat <<\"A\\\"B\""), ["A\"B"]);
        for none in [
            "echo $((1<<2))",
            "cat <<<EOF",
            "echo '<<EOF'",
            "a<<EOF",
            "echo it's <<EOF",
            "cat <<''",
            "[\"a\", \"<<EOF\"]",
        ] {
            assert!(names(none).is_empty(), "{none}");
        }
    }
}
