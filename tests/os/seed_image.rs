//! Seed images as lifecycle-agent lays them out, made from files, in the OCI layout of a world.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::path::Path;

use flate2::Compression;
use flate2::write::GzEncoder;
use machine_config_agent::model::{ImageRef, Sha256};
use machine_config_agent::sandbox::IMAGES;
use serde_json::{Value, json};

pub const FORMAT: &str = "com.openshift.lifecycle-agent.seed_format_version";
pub const CLUSTER: &str = "com.openshift.lifecycle-agent.seed_cluster_info";
pub const USE_BOOTC: &str = "com.openshift.lifecycle-agent.seed_use_bootc";

pub const INFO: &str =
    r#"{"seed_cluster_ocp_version":"4.17.2","cluster_name":"seed","has_proxy":false,"has_fips":false}"#;

/// The labels of a good seed.
pub fn seed_labels() -> BTreeMap<String, String> {
    BTreeMap::from([(FORMAT.to_owned(), "4".to_owned()), (CLUSTER.to_owned(), INFO.to_owned())])
}

pub fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// One layer of regular files.
fn layer(members: &BTreeMap<String, Vec<u8>>) -> Vec<u8> {
    let mut tar = tar::Builder::new(Vec::new());
    for (name, bytes) in members {
        let mut header = tar::Header::new_gnu();
        header.set_size(u64::try_from(bytes.len()).unwrap());
        header.set_mode(0o600);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(0);
        tar.append_data(&mut header, name, &bytes[..]).unwrap();
    }
    gzip(&tar.into_inner().unwrap())
}

/// Puts an image from scratch with these files in its root into a layout.
pub fn seed_image(
    layout: &Path,
    members: &BTreeMap<String, Vec<u8>>,
    labels: &BTreeMap<String, String>,
) -> ImageRef {
    let put = |bytes: &[u8]| {
        let digest = Sha256::digest(bytes);
        fs::write(layout.join("blobs/sha256").join(digest.to_string()), bytes).unwrap();
        digest
    };
    let described = |kind: &str, digest: Sha256, size: usize| json!({"mediaType": format!("application/vnd.oci.image.{kind}"), "digest": format!("sha256:{digest}"), "size": size});
    let layer = layer(members);
    let layer = described("layer.v1.tar+gzip", put(&layer), layer.len());
    let config = json!({"architecture": "amd64", "os": "linux", "config": {"Labels": labels},
        "rootfs": {"type": "layers", "diff_ids": ["sha256:0000000000000000000000000000000000000000000000000000000000000000"]}})
    .to_string();
    let config = described("config.v1+json", put(config.as_bytes()), config.len());
    let manifest = json!({"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": config, "layers": [layer]})
    .to_string();
    let digest = put(manifest.as_bytes());
    let entry = described("manifest.v1+json", digest, manifest.len());
    let index = layout.join("index.json");
    let mut all: Value = serde_json::from_slice(&fs::read(&index).unwrap()).unwrap();
    all["manifests"].as_array_mut().unwrap().push(entry);
    fs::write(&index, all.to_string()).unwrap();
    ImageRef::parse(&format!("oci:{IMAGES}@sha256:{digest}")).unwrap()
}
