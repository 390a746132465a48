//! Names the commit in `--version`: `MCA_VERSION` for the sources.
//!
//! From `MCA_COMMIT`, else from git, else from what `cargo package` wrote down; without any of them the version stands
//! alone. git is asked in release builds only: a debug build would compile the whole crate anew after each commit.
//!
//! The relocations of a release are packed: as a plain table they are 0.8 MiB of the idle agent's memory. glibc reads
//! packed ones since 2.36; a release is built on the oldest system that it is for.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the rules of the agent: this runs where it is built"
)]

use std::path::Path;
use std::process::Command;

/// So much of a commit names it.
const SHORT: usize = 12;

/// What the executables are made of, for git.
const SOURCES: [&str; 6] = ["src", "core/src", "core/Cargo.toml", "build.rs", "Cargo.toml", "Cargo.lock"];

fn main() -> Result<(), String> {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=MCA_COMMIT");
    let version = std::env::var("CARGO_PKG_VERSION").map_err(|error| error.to_string())?;
    let named = match commit()? {
        Some(commit) => format!("{version} ({commit})"),
        None => version,
    };
    println!("cargo::rustc-env=MCA_VERSION={named}");
    if is_release() && packs_relocations() {
        println!("cargo::rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
    }
    Ok(())
}

fn is_release() -> bool {
    std::env::var("PROFILE").is_ok_and(|profile| profile == "release")
}

/// Says whether the C library here reads packed relocations.
fn packs_relocations() -> bool {
    let is_native = std::env::var_os("HOST") == std::env::var_os("TARGET");
    let Ok(output) = Command::new("getconf").arg("GNU_LIBC_VERSION").output() else { return false };
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let version = text.trim().strip_prefix("glibc ").and_then(|version| version.split_once('.'));
    let Some((Ok(major), Ok(minor))) = version.map(|(major, minor)| (major.parse(), minor.parse())) else {
        return false;
    };
    is_native && (major, minor) >= (2_u32, 36_u32)
}

fn commit() -> Result<Option<String>, String> {
    if let Ok(given) = std::env::var("MCA_COMMIT")
        && !given.is_empty()
    {
        let (hash, is_dirty) =
            given.strip_suffix("-dirty").map_or((given.as_str(), false), |hash| (hash, true));
        return match short(hash) {
            Some(hash) => Ok(Some(marked(&hash, is_dirty))),
            None => {
                Err(format!("MCA_COMMIT={given} is no commit; set it to `git rev-parse HEAD`, or not at all"))
            }
        };
    }
    if is_release() {
        return Ok(of_git().or_else(packaged));
    }
    Ok(None)
}

/// Asks git, where this is the root of its own repository and not a folder of another one.
fn of_git() -> Option<String> {
    let top = git(&["rev-parse", "--show-toplevel"])?;
    let here = std::env::current_dir().ok()?.canonicalize().ok()?;
    if Path::new(&top).canonicalize().ok()? != here {
        return None;
    }
    // The log of HEAD grows with each commit and each checkout. A file that is not there would be a reason each time.
    let head = ["logs/HEAD", "HEAD"].map(|file| git(&["rev-parse", "--git-path", file]));
    for path in head.into_iter().flatten().chain(SOURCES.map(str::to_owned)) {
        if Path::new(&path).exists() {
            println!("cargo::rerun-if-changed={path}");
        }
    }
    let hash = short(&git(&["rev-parse", "HEAD"])?)?;
    let changed = git(&[&["status", "--porcelain", "--untracked-files=no", "--"], &SOURCES[..]].concat())?;
    Some(marked(&hash, !changed.is_empty()))
}

/// Reads what `cargo package` leaves beside the sources.
fn packaged() -> Option<String> {
    let text = std::fs::read_to_string(".cargo_vcs_info.json").ok()?;
    let hash = text.split("\"sha1\"").nth(1)?.split('"').nth(1)?;
    short(hash)
}

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}

fn short(hash: &str) -> Option<String> {
    let is_hash = (7..=64).contains(&hash.len()) && hash.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_hash.then(|| hash.chars().take(SHORT).collect::<String>().to_lowercase())
}

fn marked(hash: &str, is_dirty: bool) -> String {
    format!("{hash}{}", if is_dirty { "-dirty" } else { "" })
}
