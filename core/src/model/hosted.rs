//! The config of a hosted cluster's node, as its control plane mounts it into the pod of an update: the Ignition config of new
//! nodes, in which one file is the `MachineConfig`.

use std::io::Read as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::read::MultiGzDecoder;

use super::{ConfigName, MachineConfig, ManagedPath, ModelError, document};

/// Path of the `MachineConfig` that was served to a node.
pub const SERVED: &str = "/etc/mcs-machine-config-content.json";

/// Limit of the unpacked size, above that of a document.
const MAX_BYTES: u64 = 9 << 20;

/// The first bytes of a gzip file.
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// Reads the `MachineConfig` of a payload, packed or not, and gives it the name by which the Node knows it: the payload's
/// hash. `document` is its source in errors.
pub fn hosted_config(payload: &[u8], name: &ConfigName, document: &str) -> Result<MachineConfig, ModelError> {
    let served = MachineConfig::parse_or_wrap(&unpacked(payload, document)?, document)?;
    let spec = served.spec(None)?;
    let file = spec.files.get(&ManagedPath::new(SERVED)?);
    let file = file.ok_or_else(|| {
        document::refused(document, &format!("it has no file {SERVED}, which holds the MachineConfig"))
    })?;
    MachineConfig::parse(file.contents.bytes(), &format!("{SERVED} in {document}"))?.named(name)
}

/// Unpacks base64, gzip, and base64 around gzip: a control plane may use each.
fn unpacked(payload: &[u8], document: &str) -> Result<Vec<u8>, ModelError> {
    let text = payload.trim_ascii();
    if text.starts_with(b"{") {
        return Ok(text.to_vec());
    }
    let packed = if payload.starts_with(&GZIP) {
        payload.to_vec()
    } else {
        let wrong = |_| {
            document::refused(
                document,
                "it is neither JSON nor gzip nor base64; mount the served Ignition config",
            )
        };
        STANDARD.decode(text).map_err(wrong)?
    };
    if !packed.starts_with(&GZIP) {
        return Ok(packed);
    }
    let mut plain = Vec::new();
    let read = MultiGzDecoder::new(packed.as_slice()).take(MAX_BYTES).read_to_end(&mut plain);
    read.map_err(|error| document::refused(document, &format!("it can't be unpacked: {error}")))?;
    Ok(plain)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    const NAME: &str = "0a1b2c3d";

    fn served() -> String {
        let config = r#"{"metadata":{"name":"rendered-pool-1"},"spec":{"kernelArguments":["a=1"],
            "config":{"ignition":{"version":"3.2.0"}}}}"#;
        let source = format!("data:;base64,{}", STANDARD.encode(config));
        serde_json::json!({ "ignition": { "version": "3.2.0" }, "storage": { "files": [
            { "path": SERVED, "contents": { "source": source } },
            { "path": "/etc/other", "contents": { "source": "data:,x" } },
        ] } })
        .to_string()
    }

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    /// MCD-255, W-57: packed or not, it is the same config, by the name of its hash.
    #[test]
    fn payload_is_read_as_it_is_packed() {
        let (name, plain) = (ConfigName::new(NAME).unwrap(), served());
        let packed = gzip(plain.as_bytes());
        let encoded = STANDARD.encode(&packed) + "\n";
        let unpacked = STANDARD.encode(&plain);
        for payload in [plain.as_bytes(), &packed, encoded.as_bytes(), unpacked.as_bytes()] {
            let config = hosted_config(payload, &name, "the mounted config").unwrap();
            assert_eq!(config.name(), &name);
            assert_eq!(config.spec(None).unwrap().kargs.len(), 1);
        }
    }

    #[test]
    fn payload_that_is_no_config_is_refused() {
        let name = ConfigName::new(NAME).unwrap();
        let cut = gzip(served().as_bytes());
        let none = r#"{"ignition":{"version":"3.2.0"}}"#;
        for (payload, why) in [
            (&b"!"[..], "neither JSON nor gzip nor base64"),
            (&cut[..cut.len() / 2], "can't be unpacked"),
            (none.as_bytes(), "it has no file /etc/mcs-machine-config-content.json"),
            (&gzip(&vec![b' '; 20 << 20]), "larger than 8 MiB"),
        ] {
            let error = hosted_config(payload, &name, "the mounted config").unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
    }
}
