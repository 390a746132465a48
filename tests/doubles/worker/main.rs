//! A double of the worker: it speaks the protocol, answers of a host without deployments, and fails as it is told.
//!
//! Beside its executable: `plays-VERB`, a word for each start, of which the first is taken; `starts-VERB`, to which each start adds its
//! process id; `started`, a pipe that it opens to say that it has come so far.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a double: it ends at the first surprise"
)]

use std::fs::{self, OpenOptions};
use std::io::{Read as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Answer to an observation.
const ANSWER: &str = r#"{"done":{"seen":"not-image-based"}}"#;

fn main() {
    // As the worker: it ends with its agent.
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL)).unwrap();
    let verb = std::env::args().nth(1).unwrap();
    let executable = std::env::current_exe().unwrap();
    let directory = executable.parent().unwrap();
    let play = next(&directory.join(format!("plays-{verb}")));
    let mut starts =
        OpenOptions::new().append(true).create(true).open(directory.join(format!("starts-{verb}"))).unwrap();
    writeln!(starts, "{}", std::process::id()).unwrap();
    if !play.is_empty() && directory.join("started").exists() {
        drop(OpenOptions::new().write(true).open(directory.join("started")).unwrap());
    }
    if play != "deaf" && verb != "labels" {
        std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
    }
    match play.as_str() {
        "silent" | "deaf" => forever(),
        "half" => {
            print!("{}", ANSWER.get(..10).unwrap());
            std::io::stdout().flush().unwrap();
            forever();
        }
        "chatter" => loop {
            println!(r#"{{"progress":{{"text":"still at it","percent":null}}}}"#);
            std::thread::sleep(Duration::from_millis(100));
        },
        // Its output ends, it does not.
        "closed" => panic!("{}", Command::new("sh").args(["-c", "exec >&-; exec sleep 1000"]).exec()),
        "dies" => {
            println!(r#"{{"progress":{{"text":"on the way","percent":null}}}}"#);
            eprintln!("the double dies here");
            std::process::abort();
        }
        "late" => std::thread::sleep(Duration::from_secs(3)),
        // A child has its pipe of messages.
        "held" => {
            drop(
                Command::new("sleep").arg("100").stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap(),
            );
        }
        other => assert!(other.is_empty(), "{other}"),
    }
    if verb == "labels" {
        // No file has a label.
        std::io::stdin().lines().for_each(|_| println!("null"));
    } else {
        println!("{ANSWER}");
    }
}

/// Takes the first word.
fn next(plays: &Path) -> String {
    let text = fs::read_to_string(plays).unwrap_or_default();
    let Some((first, rest)) = text.split_once('\n') else { return String::new() };
    fs::write(plays, rest).unwrap();
    first.to_owned()
}

fn forever() -> ! {
    loop {
        std::thread::park();
    }
}
