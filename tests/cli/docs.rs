//! The pages for administrators, compared with the code: every fault reason, every link, every verb.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use machine_config_core::report::CONDITIONS;

use crate::{table, test_host};

fn below(directory: &Path, suffix: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(below(&path, suffix));
        } else if path.to_str().unwrap().ends_with(suffix) {
            found.push(path);
        }
    }
    found
}

/// The sources of both crates.
fn sources() -> Vec<PathBuf> {
    ["src", "core/src"].iter().flat_map(|base| below(Path::new(base), ".rs")).collect()
}

fn documents() -> Vec<PathBuf> {
    let mut documents = below(Path::new("docs"), ".md");
    documents.extend(["README.md", "CONTRIBUTING.md", "CHANGELOG.md"].map(PathBuf::from));
    documents
}

/// Returns the quoted parts of a text.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('"').skip(1).step_by(2)
}

/// Who reads a text of the agent is at a node or a cluster, not in a checkout.
#[test]
fn no_text_names_file_of_checkout() {
    let mut wrong = Vec::new();
    let sources = ["src", "core/src", "controller/src"];
    for path in sources.iter().flat_map(|source| below(Path::new(source), ".rs")) {
        // Tests read the pages.
        if ["tests", "walk"].iter().any(|word| path.to_str().unwrap().contains(word)) {
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        let product = text.lines().take_while(|line| !line.starts_with("#[cfg(test)]"));
        let lines = product.filter(|line| !line.trim_start().starts_with("//"));
        let names = lines.filter(|line| line.contains("dist/") || line.contains("docs/"));
        wrong.extend(names.map(|line| format!("{}: {}", path.display(), line.trim())));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn is_word(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_uppercase()) && text.chars().all(|c| c.is_ascii_alphanumeric())
}

/// The words of `fn reason` bodies, and those that a `Fault` is made with.
fn words_of_code() -> BTreeSet<String> {
    let mut words = BTreeSet::new();
    // The reasons of events and conditions are no faults: the reference has them.
    let reported = ["report/event.rs", "report/conditions.rs", "mcn/merge.rs"];
    let faults = |path: &PathBuf| !reported.iter().any(|file| path.ends_with(file));
    for path in sources().into_iter().filter(faults) {
        let source = std::fs::read_to_string(&path).unwrap();
        // `fn row` has the reason beside class and next step.
        let heads = ["fn reason(self)", "fn reason(&self)", "fn row(self) -> (FaultClass"];
        for body in heads.iter().flat_map(|head| source.split(*head).skip(1)) {
            let body = body.split_once("\n    }\n").unwrap().0;
            words.extend(quoted(body).filter(|word| is_word(word)).map(str::to_owned));
        }
        for rest in source.split(" reason: \"").skip(1) {
            words.extend(rest.split_once('"').map(|(word, _)| word.to_owned()));
        }
    }
    words
}

/// Each reason has a section with its class, its cause and a fix.
#[test]
fn every_fault_reason_is_documented_once() {
    let page = std::fs::read_to_string("docs/troubleshoot.md").unwrap();
    let section = page.split("\n## Reasons\n").nth(1).unwrap().split("\n## ").next().unwrap();
    let entries: Vec<&str> = section.split("\n### ").skip(1).collect();
    let documented: BTreeSet<String> =
        entries.iter().filter_map(|entry| Some(entry.lines().next()?.to_owned())).collect();
    let words = words_of_code();
    assert!(words.len() > 40, "the code was not scanned: {words:?}");
    let count = documented.len();
    let update = "Each is a heading `### Reason` with its class, its cause and a fix.";
    table::compare("docs/troubleshoot.md, section Reasons,", documented, "the code", words, update);
    assert_eq!(entries.len(), count, "a reason is documented twice");
    for entry in entries {
        let paragraphs: Vec<&str> = entry.trim().split("\n\n").collect();
        let [_, cause, fix] = paragraphs[..] else { panic!("not three paragraphs: {entry}") };
        let class = cause.split('`').nth(1).unwrap();
        assert!(["retry", "degraded", "unreconcilable", "fatal"].contains(&class), "{entry}");
        assert!(cause.starts_with("Class `") && fix.starts_with("Fix: "), "{entry}");
    }
}

/// The page lists every path that a seed leaves out, and no other.
#[test]
fn page_lists_paths_that_seeds_leave_out() {
    let page = std::fs::read_to_string("docs/stateroots.md").unwrap();
    let section =
        page.split("\n### What a seed leaves out\n").nth(1).unwrap().split("\n### ").next().unwrap();
    let listed = section.lines().filter_map(|line| line.strip_prefix("    /")).map(str::to_owned);
    let left_out = machine_config_agent::stateroot::LEFT_OUT.map(|(_, pattern)| pattern.to_owned());
    let update = "Each is an indented line with the path.";
    table::compare(
        "docs/stateroots.md, section What a seed leaves out,",
        listed,
        "core/src/stateroot/left_out.rs",
        left_out,
        update,
    );
}

/// A cell is read at a glance: longer text stands below its table.
#[test]
fn table_cells_are_short() {
    for document in documents() {
        let text = std::fs::read_to_string(&document).unwrap();
        for cell in text.lines().filter(|line| line.starts_with('|')).flat_map(|line| line.split('|')) {
            let words = cell.split_whitespace().count();
            assert!(words <= 20, "{}: {words} words in a cell: {cell}", document.display());
        }
    }
}

/// The places where a test may be: `a::b::c` is `c` of `b.rs` in `a`, of `a/b/mod.rs`, or of `a.rs` with a module in it.
fn test_exists(name: &str) -> bool {
    let parts: Vec<&str> = name.split("::").collect();
    let (function, modules) = parts.split_last().unwrap();
    let bases = ["controller/tests/controllers", "controller/src", "core/src", "src", "tests"];
    let files = bases.iter().flat_map(|base| {
        (1..=modules.len()).flat_map(move |used| {
            let path = format!("{base}/{}", modules[..used].join("/"));
            [format!("{path}.rs"), format!("{path}/mod.rs")]
        })
    });
    let is_there = |source: String| {
        let tests = ["#[test]", "#[tokio::test"].iter().flat_map(|mark| source.split(*mark).skip(1));
        let names = tests.filter_map(|rest| Some(rest.split_once("fn ")?.1.split_once('(')?.0));
        names.into_iter().any(|name| name == *function)
    };
    files.filter_map(|file| std::fs::read_to_string(file).ok()).any(is_there)
}

/// The cells of `tests/SEAMS.md`, compared with the tests: each has a test that exists or a reason, and each test of `seams::` is in one.
#[test]
fn seams_name_tests_that_exist() {
    let page = std::fs::read_to_string("tests/SEAMS.md").unwrap();
    let rows = page.lines().filter(|line| line.starts_with('|') && !line.starts_with("|---"));
    let rows: Vec<Vec<&str>> =
        rows.map(|row| row.trim_matches('|').split('|').map(str::trim).collect()).collect();
    let (heads, rows): (Vec<_>, Vec<_>) = rows.into_iter().partition(|row| row[0] == "counterpart");
    let ways = ["never answers", "answers late", "answers with older news", "refuses one of many"];
    let ways = [&["counterpart"][..], &ways, &["answers something else", "comes back"]].concat();
    assert!(!heads.is_empty() && heads.iter().all(|head| *head == ways), "{heads:?}");
    let mut named = BTreeSet::new();
    let mut played = 0;
    for row in &rows {
        assert_eq!(row.len(), ways.len(), "{row:?}");
        for cell in row {
            let words = cell.split_whitespace().count();
            assert!((1..=24).contains(&words), "{words} words in a cell: {row:?}");
        }
        for cell in &row[1..] {
            let tests = cell.split('`').skip(1).step_by(2).filter(|text| text.contains("::"));
            let tests: Vec<&str> = tests.collect();
            for test in &tests {
                assert!(test_exists(test), "{test} is no test: {row:?}");
            }
            played += usize::from(tests.iter().any(|test| test.starts_with("seams::")));
            named.extend(tests.into_iter().map(str::to_owned));
        }
    }
    assert!(played >= 60, "{played} cells name a test that plays them through the proxy");
    let folder = Path::new("controller/tests/controllers");
    let mut all = BTreeSet::new();
    for path in below(folder, ".rs") {
        let module =
            path.strip_prefix(folder).unwrap().with_extension("").display().to_string().replace('/', "::");
        if module.split("::").next() == Some("seams") {
            let source = std::fs::read_to_string(&path).unwrap();
            let tests = source.split("#[tokio::test]\nasync fn ").skip(1);
            all.extend(tests.map(|rest| format!("{module}::{}", rest.split_once('(').unwrap().0)));
        }
    }
    let unnamed: Vec<&String> = all.difference(&named).collect();
    assert!(all.len() > 20 && unnamed.is_empty(), "tests/SEAMS.md does not name {unnamed:?}");
}

/// The variants of an enum of the controller, by its source.
fn variants(path: &str, head: &str) -> BTreeSet<String> {
    let source = std::fs::read_to_string(path).unwrap();
    let body = source.split_once(&format!("{head} {{\n")).unwrap().1.split("\n}\n").next().unwrap();
    let lines = body.lines().map(str::trim).filter(|line| !line.starts_with("//"));
    let names = lines.map(|line| line.trim_end_matches(','));
    names.filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

/// `tests/SEAMS.md` has a row for each write of the controller, and for each kind that it lists and watches.
#[test]
fn seams_have_a_row_for_each_write_and_kind() {
    let page = std::fs::read_to_string("tests/SEAMS.md").unwrap();
    let sections = ["Reads of the API server", "Drains", "Writes to the API server", "Lease"];
    let texts = page.split("\n## ").filter(|text| sections.contains(&text.lines().next().unwrap()));
    let cells = texts.flat_map(str::lines).filter_map(|line| line.strip_prefix('|')?.split('|').next());
    let rows = cells.flat_map(|cell| cell.split('`').skip(1).step_by(2)).map(str::to_owned);
    let (writes, kinds) = ("controller/src/controllers/write.rs", "controller/src/controllers/cache.rs");
    let mut all = variants(writes, "enum Write");
    all.extend(variants(kinds, "enum Kind"));
    assert!(all.len() > 40, "{all:?}");
    let update = "Name it in the first cell of its row.";
    table::compare("tests/SEAMS.md", rows, &format!("{writes} with {kinds}"), all, update);
}

/// Programs, files and people that the agent meets on its host. Their rows may have others beside them.
const MET_ON_HOST: [&str; 15] = [
    "libostree worker",
    "process that unpacks a seed",
    "registry of OS images",
    "rpm-ostree's daemon",
    "bootc",
    "systemd",
    "logind",
    "container runtime",
    "lock of the sysroot",
    "lock of the agent",
    "files that a person gives: target, config, policy, settings",
    "files of access: kubeconfig, certificates, `proxy.env`",
    "files of machine-config-daemon",
    "clock",
    "administrator's hand",
];

#[test]
fn seams_have_a_row_for_each_counterpart_on_host() {
    let page = std::fs::read_to_string("tests/SEAMS.md").unwrap();
    let section = page.split("\n## ").find(|text| text.starts_with("Agent: host\n")).unwrap();
    let rows: BTreeSet<&str> =
        section.lines().filter_map(|line| line.strip_prefix("| ")?.split(" | ").next()).collect();
    let missing: Vec<_> = MET_ON_HOST.iter().filter(|name| !rows.contains(*name)).collect();
    assert!(missing.is_empty(), "{missing:?} of {rows:?}");
}

/// Pictures are drawn from data: see docs/pictures/make.
#[test]
fn pictures_match_their_data() {
    let output = std::process::Command::new("docs/pictures/make").arg("--check").output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{out}{err}");
}

/// The README's table has the figures of the page.
#[test]
fn readme_has_figures_of_page() {
    let (readme, page) =
        ["README.md", "docs/figures.md"].map(|page| std::fs::read_to_string(page).unwrap()).into();
    for (start, agent, daemon) in [("| target to `Done`", 3, 4), ("| RSS, connected and idle", 3, 4)] {
        let row = page.lines().find(|line| line.starts_with(start)).unwrap();
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let daemon = cells[daemon].split(" (").next().unwrap();
        assert!(readme.contains(&format!("| {} | {daemon} |", cells[agent])), "{row}");
    }
}

/// The totals that README and reliability page name are those of the data.
#[test]
fn power_cut_totals_match_data() {
    let data = std::fs::read_to_string("docs/power-cuts.csv").unwrap();
    let (mut cuts, mut wrong) = ([0_u32; 6], 0_u32);
    for line in data.lines().skip(1) {
        let cells: Vec<&str> = line.split(',').collect();
        let series: usize = cells[0].parse().unwrap();
        cuts[series - 1] += cells[5].parse::<u32>().unwrap();
        wrong += cells[11..14].iter().map(|cell| cell.parse::<u32>().unwrap()).sum::<u32>();
    }
    assert_eq!((cuts, wrong), ([1527, 300, 98, 103, 308, 36], 0));
    for page in ["README.md", "docs/reliability.md"] {
        assert!(std::fs::read_to_string(page).unwrap().contains("1,527"), "{page}");
    }
}

/// The reference lists the code's conditions, reasons of events and names of metrics.
#[test]
fn reference_names_every_condition_event_and_metric() {
    let page = std::fs::read_to_string("docs/reference.md").unwrap();
    let listed: BTreeSet<&str> = page.split('`').skip(1).step_by(2).collect();
    let source = std::fs::read_to_string("core/src/report/event.rs").unwrap();
    let reasons = source.split("fn reason(").nth(1).unwrap().split_once("\n    }\n").unwrap().0;
    let mut desired: Vec<String> = quoted(reasons).map(str::to_owned).collect();
    assert!(desired.len() > 15, "{desired:?}");
    let mut metrics = 0;
    for file in ["src/telemetry/metrics.rs", "src/cli/telemetry.rs"] {
        let source = std::fs::read_to_string(file).unwrap();
        let code = source.split("#[cfg(test)]").next().unwrap();
        for name in quoted(code).filter(|word| {
            ["mcd_", "machine_config_agent_", "process_"].iter().any(|prefix| word.starts_with(prefix))
        }) {
            let listed_so = [name.to_owned(), format!("{name}_total")];
            let found = listed_so.iter().find(|name| listed.contains(name.as_str()));
            desired.push(found.cloned().unwrap_or_else(|| name.to_owned()));
            metrics += 1;
        }
    }
    assert!(metrics > 14, "{metrics}");
    desired.extend(CONDITIONS.iter().map(|(kind, _)| (*kind).to_owned()));
    let missing: Vec<&String> = desired.iter().filter(|name| !listed.contains(name.as_str())).collect();
    assert!(missing.is_empty(), "docs/reference.md does not name {missing:?}");
}

/// The words of a `cargo test` command that select tests.
fn test_filters(command: &str) -> Vec<&str> {
    let command = command.split(['\n', '`', '|', ';', '&', ')', '#', '\'']).next().unwrap();
    let mut words = command.split_whitespace();
    let mut filters = Vec::new();
    while let Some(word) = words.next() {
        if ["--test", "-p", "--package", "--features", "--bench"].contains(&word) {
            words.next();
        } else if word.starts_with(|c: char| c.is_ascii_lowercase()) {
            filters.push(word.trim_end_matches(['.', ',', '"']));
        }
    }
    filters
}

/// A filter that selects nothing would pass: each one is part of a test's name, or of its module's.
#[test]
fn every_test_filter_in_texts_selects_tests() {
    assert_eq!(
        test_filters("-p core decide::walk -- a:: --nocapture # all\nb"),
        ["decide::walk", "a::"],
        "the scan"
    );
    let bases = ["src", "core", "controller", "tests", "benches", "examples"];
    let sources: Vec<PathBuf> = bases.iter().flat_map(|base| below(Path::new(base), ".rs")).collect();
    let mut texts = documents();
    texts.extend(["test", "vm-tests/README.md"].map(PathBuf::from));
    let mut names = String::new();
    for path in &sources {
        let source = std::fs::read_to_string(path).unwrap();
        for rest in ["fn ", "mod "].iter().flat_map(|word| source.split(word).skip(1)) {
            names.extend(rest.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').chain(['\n']));
        }
    }
    let mut found = 0;
    for path in texts.iter().chain(&sources).filter(|path| !path.ends_with("cli/docs.rs")) {
        let text = std::fs::read_to_string(path).unwrap().replace("\\\n", " ");
        for command in text.split("cargo test ").skip(1).chain(text.split("run_tests ").skip(1)) {
            for filter in test_filters(command) {
                let is_there = filter.split("::").all(|part| names.contains(part));
                assert!(is_there, "{}: `{filter}` selects no test", path.display());
                found += 1;
            }
        }
    }
    assert!(found > 25, "{found}");
}

/// The anchor of a heading, as GitHub makes it.
fn anchor_of(line: &str) -> String {
    let Some(title) = line.starts_with('#').then(|| line.trim_start_matches('#').trim()) else {
        return String::new();
    };
    let kept = title.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c.to_ascii_lowercase() }).collect()
}

#[test]
fn every_link_leads_somewhere() {
    let mut links = 0;
    for document in documents() {
        let text = std::fs::read_to_string(&document).unwrap();
        for link in text.split("](").skip(1).filter_map(|rest| Some(rest.split_once(')')?.0)) {
            if link.contains("://") {
                continue;
            }
            links += 1;
            let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
            let to = if file.is_empty() { document.clone() } else { document.parent().unwrap().join(file) };
            assert!(to.is_file(), "{} links to {link}", document.display());
            let text = std::fs::read_to_string(&to).unwrap_or_default();
            let found = anchor.is_empty() || text.lines().any(|line| anchor_of(line) == anchor);
            assert!(found, "{} links to {link}, which has no such heading", document.display());
        }
    }
    assert!(links >= 6, "{links} links");
}

/// The page is for people who change the code: the files that it names have to exist, and it names each crate.
#[test]
fn architecture_page_names_existing_files_and_every_dependency() {
    let page = std::fs::read_to_string("docs/architecture.md").unwrap();
    let quoted: BTreeSet<&str> = page.split('`').skip(1).step_by(2).collect();
    let paths: Vec<&&str> = quoted.iter().filter(|text| text.contains('/')).collect();
    assert!(paths.len() > 30, "{paths:?}");
    let missing: Vec<_> = paths.into_iter().filter(|path| !Path::new(path).exists()).collect();
    assert!(missing.is_empty(), "docs/architecture.md names {missing:?}, which do not exist");
    for manifest in ["Cargo.toml", "core/Cargo.toml", "controller/Cargo.toml"] {
        let text = std::fs::read_to_string(manifest).unwrap();
        let section = text.split("\n[dependencies]\n").nth(1).unwrap().split("\n[").next().unwrap();
        let named = section.lines().filter(|line| line.starts_with(|c: char| c.is_ascii_lowercase()));
        for name in named.map(|line| line.split([' ', '.', '=']).next().unwrap()) {
            assert!(
                quoted.contains(name),
                "docs/architecture.md does not say what {name} of {manifest} is for"
            );
        }
    }
}

/// The commands of our own binary in a text: after a prompt, a path, a quote or at the beginning of a line.
fn own_commands(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for line in text.lines() {
        for (at, _) in line.match_indices("machine-config-agent ") {
            let before = line[..at].trim_end_matches(|c: char| c.is_ascii_lowercase() || c == '/');
            let starts = before.trim_start().is_empty()
                || before.ends_with(['`', '"', '='])
                || ["; ", "&& ", "then ", "$ ", "Next: "].iter().any(|head| before.ends_with(head));
            if !starts {
                continue;
            }
            let rest = &line[at + "machine-config-agent ".len()..];
            let end = ["`", "#", ";", "\\n", "|", " &&", "\""].iter().filter_map(|end| rest.find(end)).min();
            found.push(rest[..end.unwrap_or(rest.len())].trim().to_owned());
        }
    }
    found
}

#[test]
fn commands_are_found_in_texts() {
    let text = "Next: machine-config-agent status\n  machine-config-agent plan --to b   # why\n see `machine-config-agent verify`; \
                then\nExecStart=/usr/bin/machine-config-agent daemon --directory /x\n systemctl restart machine-config-agent now\n";
    assert_eq!(own_commands(text), ["status", "plan --to b", "verify", "daemon --directory /x"]);
}

/// A command in a text has to work: the verb, its flags, and those it can't do without.
#[test]
fn every_command_in_texts_is_understood() {
    let mut texts: Vec<PathBuf> = documents();
    texts.push("dist/machine-config-agent.catalog".into());
    texts.extend(sources());
    texts.extend(below(Path::new("systemd"), ".service"));
    texts.extend(below(Path::new("systemd"), ".conf"));
    texts.extend(below(Path::new("dist"), ".md"));
    let help = |words: &[&str]| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_machine-config-agent"));
        let output = command.args(words).arg("--help").output().unwrap();
        output.status.success().then(|| String::from_utf8(output.stdout).unwrap())
    };
    let mut seen = BTreeSet::new();
    for path in texts {
        let text = std::fs::read_to_string(&path).unwrap();
        // The tests at the end of a source try what does not work, too.
        let text = text.split("#[cfg(test)]").next().unwrap();
        for command in own_commands(text) {
            let mut words = command.split_whitespace();
            let Some(verb) = words.next().filter(|verb| verb.chars().all(|c| c.is_ascii_lowercase())) else {
                continue;
            };
            if ["sandbox", "seed", "stateroot"].contains(&verb) && !cfg!(feature = "backend-ostree") {
                continue;
            }
            let told = format!("{}: machine-config-agent {command}", path.display());
            let mut all = vec![verb];
            let is_folder = |help: &str| help.contains("\nCommands:\n");
            let own = help(&all).unwrap_or_else(|| panic!("no such verb: {told}"));
            // A verb of verbs may also be named alone.
            all.extend(command.split_whitespace().nth(1).filter(|_| is_folder(&own)));
            let help = help(&all).unwrap_or_else(|| panic!("no such verb: {told}"));
            let usage = help.lines().find(|line| line.starts_with("Usage: ")).unwrap();
            let flags: Vec<&str> = words
                .filter(|word| word.starts_with('-'))
                .map(|word| word.split('=').next().unwrap())
                .collect();
            for flag in &flags {
                let known = |line: &str| line.split([' ', ',']).any(|word| word == *flag);
                assert!(*flag == "-" || help.lines().any(known), "no such flag {flag}: {told}");
            }
            let required = usage.split_whitespace().filter(|word| word.starts_with("--"));
            for flag in required {
                assert!(flags.contains(&flag), "it needs {flag}: {told}");
            }
            seen.insert(verb.to_owned());
        }
    }
    assert!(seen.len() >= 6, "{seen:?}");
}

/// The indented block after the line that begins with a mark.
fn block(text: &str, mark: &str) -> String {
    let rest = text.split_once(&format!("\n{mark}")).unwrap_or_else(|| panic!("{mark} is missing")).1;
    let lines = rest.lines().skip_while(|line| !line.starts_with("    "));
    let block: Vec<&str> = lines.map_while(|line| line.strip_prefix("    ")).collect();
    block.join("\n")
}

/// FIL-013: a plan touches nothing.
#[test]
fn example_of_control_directory_works() {
    let text = std::fs::read_to_string("docs/install.md").unwrap();
    let node = test_host::Node::new();
    for file in ["target.yaml", "machineconfigs/rendered-worker-1.yaml", "policy.yaml"] {
        let example = block(&text, &format!("`/etc/machine-config-agent/{file}`"));
        node.put(&format!("control/{file}"), example);
    }
    let host = ["--root", "root", "--os-backend", "none"];
    let before = node.listing(".");
    let plan = ["plan", "--to", "desired", "--directory", "control"];
    let ran = node.run(&[&plan[..], &host].concat());
    assert_eq!(node.listing("."), before, "a plan touches nothing");
    for word in ["restart systemd-sysctl.service", "daemon-reload"] {
        assert!(ran.out.contains(word), "{word}: {}{}", ran.out, ran.err);
    }
    let config = "control/machineconfigs/rendered-worker-1.yaml";
    let ran = node
        .run(&[&["apply", "--to", config, "--yes", "--policy", "control/policy.yaml"], &host[..]].concat());
    assert_eq!(ran.code, 0, "{}", ran.err);
    let written = std::fs::read_to_string(node.path("root/etc/sysctl.d/90-node.conf")).unwrap();
    assert_eq!(written, "vm.swappiness = 10\n");
}
