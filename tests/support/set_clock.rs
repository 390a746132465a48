//! A wall clock of some processes alone: tests set it without setting the machine's.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    unreachable_pub,
    missing_docs,
    missing_debug_implementations,
    reason = "shared by tests: the lints of a library do not fit"
)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The clock of one process: the machine's is not of one test. It reads how many seconds it is wrong by.
const CLOCK: &str = r#"
#define _GNU_SOURCE
#include <stdio.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
int clock_gettime(clockid_t id, struct timespec *time) {
    long result = syscall(SYS_clock_gettime, id, time), wrong = 0;
    FILE *file = id == CLOCK_REALTIME ? fopen("/run/clock", "re") : NULL;
    if (file) {
        if (fscanf(file, "%ld", &wrong) == 1)
            time->tv_sec += wrong;
        fclose(file);
    }
    return (int)result;
}
"#;

const YEAR: i64 = 31_557_600;

/// The variable that gives a process in the machine this clock.
pub const PRELOADED: (&str, &str) = ("LD_PRELOAD", "/run/clock.so");

/// The clock of the processes of a machine.
pub struct SetClock(PathBuf);

impl SetClock {
    /// Builds it in the directory that is the machine's `/run`. It is right until it is set.
    pub fn new(run: &Path) -> Self {
        let directory = run.to_owned();
        fs::write(directory.join("clock.c"), CLOCK).unwrap();
        let words = ["-shared", "-fPIC", "-o", "clock.so", "clock.c"];
        let built = Command::new("cc").args(words).current_dir(&directory).status().unwrap();
        assert!(built.success());
        Self(directory)
    }

    /// Sets it, so many years from the time that it is.
    pub fn set(&self, years: i64) {
        fs::write(self.0.join("new"), (years * YEAR).to_string()).unwrap();
        fs::rename(self.0.join("new"), self.0.join("clock")).unwrap();
    }
}
