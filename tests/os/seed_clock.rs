//! The clock of a node is set while the seed of a SeedGenerator waits.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use crate::cluster::{Connections, own_only};
use crate::lifecycle_seed::{Scene, refused_credentials, refusing};

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

/// The clock of a daemon.
struct SetClock(PathBuf);

impl SetClock {
    /// Builds it.
    fn new(scene: &Scene) -> Self {
        let directory = scene.boot.run_dir();
        fs::write(directory.join("clock.c"), CLOCK).unwrap();
        let words = ["-shared", "-fPIC", "-o", "clock.so", "clock.c"];
        let built = Command::new("cc").args(words).current_dir(&directory).status().unwrap();
        assert!(built.success());
        Self(directory)
    }

    /// Sets it, so many years from the time that it is.
    fn set(&self, years: i64) {
        fs::write(self.0.join("new"), (years * YEAR).to_string()).unwrap();
        fs::rename(self.0.join("new"), self.0.join("clock")).unwrap();
    }
}

/// A clock that is set by years, forward and back, while a seed waits, ends no wait and fails no seed: what is waited for is
/// looked at again under each time, also where no certificate is valid then. The last time is right, and the seed is made.
#[tokio::test]
async fn set_clock_neither_loses_nor_fails_a_waiting_seed() {
    if !own_only("set_clock_neither_loses_nor_fails_a_waiting_seed") {
        return;
    }
    let scene = Scene::new(&refused_credentials()).await;
    let image = refusing(&scene);
    let clock = SetClock::new(&scene);
    scene.changes_version(Some("at first")).await;
    let mut daemon = scene.start_with(Some(("LD_PRELOAD", "/run/clock.so")));
    scene.create(&image, None).await;
    let waits = async |why: &str| {
        let why = format!("Waiting for system to stabilize: the cluster version is changing: {why}");
        scene.condition(["SeedGenInProgress", "True", "InProgress", &why]).await
    };
    waits("at first").await;
    for years in [20, -40] {
        clock.set(years);
        let why = format!("{years} years");
        scene.changes_version(Some(&why)).await;
        let status = waits(&why).await;
        assert_eq!(status["status"]["conditions"].as_array().unwrap().len(), 1, "{status:#}");
    }
    // Before all certificates.
    clock.set(-55);
    scene.bench.connections(Connections::Dropped);
    daemon.wait_line("not valid yet");
    clock.set(0);
    scene.changes_version(Some("right again")).await;
    waits("right again").await;
    // It is pushed, and the registry refuses it.
    scene.changes_version(None).await;
    scene.failed(&image).await;
    daemon.stop();
}
