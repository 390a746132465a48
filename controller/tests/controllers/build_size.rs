//! Configs over and near 1 MiB: what a Secret and an API server hold.

use std::fmt::Write as _;
use std::io::Read as _;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{Api, ListParams};
use sha2::{Digest as _, Sha256};

use crate::build::Builds;
use crate::build_course::CONTAINERFILE;
use crate::build_jobs::{JobController, Plays};
use crate::process::{Controller, NAMESPACE};

const MEBIBYTE: usize = 1024 * 1024;

/// Bytes that nothing compresses, the same in each run.
fn noise(bytes: usize) -> Vec<u8> {
    (0..bytes.div_ceil(32)).flat_map(|number| Sha256::digest(number.to_le_bytes())).collect()
}

/// Lines as a config file has them.
fn lines(bytes: usize) -> String {
    let mut text = String::new();
    for (number, noise) in noise(bytes).chunks(4).enumerate() {
        writeln!(text, "setting-{number} = {noise:?}").unwrap();
        if text.len() >= bytes {
            break;
        }
    }
    text
}

/// A build of a config whose Job runs.
struct Building {
    builds: Builds,
    _controller: Controller,
    jobs: JobController,
    build: String,
}

impl Building {
    async fn of(contents: impl AsRef<[u8]>) -> Self {
        let builds = Builds::new().await;
        builds.config(contents).await;
        let controller = builds.start("a", &[]);
        let jobs = JobController::start(&builds.cluster.bench, Plays::Running).await;
        builds.secret().await;
        builds.os_config(CONTAINERFILE).await;
        builds.until_condition("False", "Building").await;
        let build = builds.only_build().await;
        Self { builds, _controller: controller, jobs, build }
    }
}

/// A config of more than 1 MiB is compressed into a Secret of less.
#[tokio::test]
async fn config_over_one_mebibyte_is_built() {
    let Building { builds, _controller, jobs, build } = Building::of(lines(850 * 1024)).await;
    let secrets: Api<Secret> = Api::namespaced(builds.cluster.client.clone(), NAMESPACE);
    let data = secrets.get(&format!("mc-{build}")).await.unwrap().data.unwrap();
    assert_eq!(data.keys().collect::<Vec<_>>(), ["config.tar.gz"]);
    let compressed = &data["config.tar.gz"].0;
    assert!(compressed.len() < MEBIBYTE, "{}", compressed.len());
    let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(compressed.as_slice()));
    let mut config = Vec::new();
    for entry in archive.entries().unwrap() {
        let mut entry = entry.unwrap();
        if entry.path().unwrap().to_str() == Some("machineconfig.json") {
            entry.read_to_end(&mut config).unwrap();
        }
    }
    assert!(config.len() > MEBIBYTE, "{}", config.len());
    let config: serde_json::Value = serde_json::from_slice(&config).unwrap();
    assert_eq!(config["spec"]["config"]["storage"]["files"][0]["path"], "/etc/a.conf");
    jobs.play(Plays::Well);
    let (published, _) = builds.until_published("").await;
    assert_eq!(published, build);
}

/// A config whose files are compressed already is in two Secrets: a build has it twice.
#[tokio::test]
async fn config_of_compressed_files_is_built_from_several_secrets() {
    let Building { builds, _controller, jobs, build } = Building::of(noise(800 * 1024)).await;
    let secrets: Api<Secret> = Api::namespaced(builds.cluster.client.clone(), NAMESPACE);
    let maps: Api<ConfigMap> = Api::namespaced(builds.cluster.client.clone(), NAMESPACE);
    let text = maps.get(&format!("containerfile-{build}")).await.unwrap().data.unwrap();
    for (name, file) in [("mc", "config-0.tar.gz"), ("mc2", "config-1.tar.gz")] {
        let data = secrets.get(&format!("{name}-{build}")).await.unwrap().data.unwrap();
        assert_eq!(data.keys().collect::<Vec<_>>(), [file]);
        assert!(data[file].0.len() > MEBIBYTE / 2 && data[file].0.len() < MEBIBYTE);
        assert!(text["Containerfile"].contains(&format!("ADD {file} /")), "{}", text["Containerfile"]);
    }
    jobs.play(Plays::Well);
    let (published, _) = builds.until_published("").await;
    assert_eq!(published, build);
    jobs.until_gone().await;
}

/// A config that is too large even when compressed is refused before any object is there; a smaller one is built.
#[tokio::test]
async fn config_too_large_when_compressed_is_refused() {
    let builds = Builds::new().await;
    builds.config(noise(1060 * 1024)).await;
    let _controller = builds.start("a", &[]);
    let target = builds.cluster.until_target("worker", "").await;
    let jobs = JobController::start(&builds.cluster.bench, Plays::Well).await;
    builds.secret().await;
    builds.os_config(CONTAINERFILE).await;
    let refused = builds.until_condition("True", "BuildFailed").await;
    let message = refused["message"].as_str().unwrap();
    for part in [target.as_str(), "compressed", "a Secret at most 1048576", "make its files smaller"] {
        assert!(message.contains(part), "{part}: {message}");
    }
    assert!(builds.builds().list(&ListParams::default()).await.unwrap().items.is_empty());
    assert_eq!(jobs.objects().await, Vec::<String>::new());
    builds.config("small").await;
    let (published, _) = builds.until_published("").await;
    assert_eq!(jobs.started(), [published]);
}
