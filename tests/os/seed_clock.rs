//! The clock of a node is set while the seed of a SeedGenerator waits.

use crate::cluster::{Connections, own_only};
use crate::lifecycle_seed::{Scene, refused_credentials, refusing};
use crate::set_clock::{PRELOADED, SetClock};

/// A clock that is set by years, forward and back, while a seed waits, ends no wait and fails no seed: what is waited for is
/// looked at again under each time, also where no certificate is valid then. The last time is right, and the seed is made.
#[tokio::test]
async fn set_clock_neither_loses_nor_fails_a_waiting_seed() {
    if !own_only("set_clock_neither_loses_nor_fails_a_waiting_seed") {
        return;
    }
    let scene = Scene::new(&refused_credentials()).await;
    let image = refusing(&scene);
    let clock = SetClock::new(&scene.boot.run_dir());
    scene.changes_version(Some("at first")).await;
    let mut daemon = scene.start_with(Some(PRELOADED));
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
