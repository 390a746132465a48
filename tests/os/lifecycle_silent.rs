//! A stage whose registry goes silent in the middle of a layer.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use machine_config_agent::model::ImageRef;
use rustix::fs::{Mode, mkfifoat};
use serde_json::Value;

use crate::activation::prepared_seed;
use crate::backend_env::Lab;
use crate::lifecycle::{Daemon, PREPARED, stage};
use crate::seed::put;

/// The file of the only layer of an image.
fn layer(lab: &Lab, image: &str) -> PathBuf {
    let blobs = lab.world.dir().join("images/blobs/sha256");
    let digest = ImageRef::parse(image).unwrap().digest().to_string();
    let manifest: Value = serde_json::from_slice(&fs::read(blobs.join(digest)).unwrap()).unwrap();
    blobs.join(manifest["layers"][0]["digest"].as_str().unwrap().strip_prefix("sha256:").unwrap())
}

/// Sends the beginning of a layer, and no more: whoever reads it waits without end.
fn silence(layer: &Path, beginning: &[u8]) -> File {
    mkfifoat(rustix::fs::CWD, layer, Mode::from_raw_mode(0o644)).unwrap();
    let mut pipe = File::options().read(true).write(true).open(layer).unwrap();
    pipe.write_all(beginning).unwrap();
    pipe
}

/// A pull without progress is ended after `[os] stall`; the stage says so, and is tried again.
#[test]
fn silent_registry_is_left_and_tried_again() {
    let lab = crate::activation::lab();
    put(&lab, "etc/machine-config-agent/settings.toml", "[os]\nstall = \"1m\"\n");
    let boot = lab.boot();
    let image = prepared_seed(&lab, false);
    let layer = layer(&lab, &image);
    let aside = layer.with_extension("aside");
    fs::rename(&layer, &aside).unwrap();
    let pipe = silence(&layer, fs::read(&aside).unwrap().get(..1000).unwrap());
    let daemon = Daemon::start(&boot, None);
    daemon.put(&stage("Prep", &image));
    daemon.condition(["PrepInProgress", "True", "InProgress", "made no progress for 60 s"]);
    // The registry answers again.
    fs::rename(&aside, &layer).unwrap();
    drop(pipe);
    daemon.condition(PREPARED);
}
