//! Contexts of builds, and refusals before a build.

use std::collections::BTreeMap;
use std::io::Read as _;

use machine_config_core::model::machineconfig::MachineConfig as Document;
use serde_json::json;

use super::*;
use crate::api::MachineConfig;

const BASE: &str =
    "registry.example/os@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

fn rendered(more: &serde_json::Value) -> MachineConfig {
    let mut spec = json!({
        "config": {
            "ignition": { "version": "3.2.0" },
            "storage": {
                "disks": [{ "device": "/dev/sda", "wipeTable": true }],
                "files": [
                    { "path": "/etc/app.conf", "mode": 0o600, "contents": { "source": "data:,pa55word" } },
                    { "path": "/etc/hosts", "mode": 0o644, "contents": { "source": "data:,192.0.2.1%20a" } }
                ]
            },
            "systemd": { "units": [{ "name": "app.service", "enabled": true, "contents": "[Service]\n" }] }
        }
    });
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    serde_json::from_value(json!({
        "apiVersion": "machineconfiguration.openshift.io/v1",
        "kind": "MachineConfig",
        "metadata": { "name": "rendered-worker-a" },
        "spec": spec,
    }))
    .unwrap()
}

fn request<'a>(rendered: &'a MachineConfig, containerfile: &'a str) -> Request<'a> {
    let (pool, apply_by, trust) = (Some("worker"), ApplyBy::Agent, None);
    Request { rendered, pool, base: BASE, containerfile, apply_by, trust }
}

fn composed(request: &Request<'_>) -> Context {
    let context = compose(request).unwrap();
    assert_eq!(context, compose(request).unwrap(), "the same request gives the same bytes");
    let instructions = dockerfile::parse(&context.containerfile).unwrap();
    assert!(dockerfile::stages(&instructions).iter().any(|stage| stage.name == Some("configs")));
    for secret in ["pa55word", "192.0.2.1"] {
        assert!(!context.containerfile.contains(secret), "contents are in files");
        assert!(!format!("{context:?}").contains(secret));
    }
    context
}

/// The files of a build, unpacked.
fn files(context: &Context) -> BTreeMap<String, Vec<u8>> {
    context.files.values().flat_map(|archive| unpacked(archive)).collect()
}

fn unpacked(archive: &[u8]) -> BTreeMap<String, Vec<u8>> {
    let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(archive));
    let unpacked = archive.entries().unwrap().map(|entry| {
        let mut entry = entry.unwrap();
        let header = entry.header();
        let seen = (header.mode().unwrap(), header.uid().unwrap(), header.mtime().unwrap());
        assert_eq!(seen, (0o600, 0, 0));
        let mut bytes = Vec::new();
        entry.read_to_end(&mut bytes).unwrap();
        (entry.path().unwrap().to_str().unwrap().to_owned(), bytes)
    });
    unpacked.collect()
}

/// With `UPDATE_GOLDENS=1` the files are written.
#[track_caller]
#[expect(clippy::disallowed_methods, reason = "files of the repository")]
fn golden(name: &str, found: &str) {
    let path = format!("{}/src/image/goldens/{name}.containerfile", env!("CARGO_MANIFEST_DIR"));
    if std::env::var_os("UPDATE_GOLDENS").is_some() {
        std::fs::write(&path, found).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap();
    assert_eq!(found, expected, "{path}");
}

#[test]
fn containerfile_brings_config_then_user_part_then_verify() {
    let rendered = rendered(&json!({}));
    golden("no-user-part", &composed(&request(&rendered, "")).containerfile);
    let user = "FROM quay.io/builder:1 AS tool\nRUN make\n\nFROM configs AS final\nCOPY --from=tool /tool /usr/bin/\nUSER 1000\nRUN true";
    golden("user-part", &composed(&request(&rendered, user)).containerfile);
    let trusted = Request { trust: Some(b"PEM"), apply_by: ApplyBy::Ignition, ..request(&rendered, "") };
    let context = composed(&trusted);
    golden("ignition-and-trust", &context.containerfile);
    let files = files(&context);
    assert_eq!(files["additional-trust-bundle.crt"], b"PEM");
    let ignition: serde_json::Value = serde_json::from_slice(&files["ignition.json"]).unwrap();
    let mut whole = rendered.spec.config.clone().unwrap();
    whole["storage"]["files"].as_array_mut().unwrap().remove(1);
    assert_eq!(ignition, whole, "Ignition gets the whole, but for the builder's own /etc/hosts");
}

/// Certificates of the config are in the trust store before the user's steps, which may pull with them.
#[test]
fn trust_store_is_rebuilt_before_steps_of_user() {
    let mut rendered = rendered(&json!({}));
    let user = "FROM configs AS final\nRUN dnf install x";
    assert!(!composed(&request(&rendered, user)).containerfile.contains("update-ca-trust"));
    let files = &mut rendered.spec.config.as_mut().unwrap()["storage"]["files"];
    files[0]["path"] = "/etc/pki/ca-trust/source/anchors/lab.crt".into();
    let text = composed(&request(&rendered, user)).containerfile;
    let at = |part: &str| text.find(part).unwrap_or_else(|| panic!("{part}: {text}"));
    assert!(
        at("apply --to") < at("then update-ca-trust") && at("then update-ca-trust") < at("dnf install x")
    );
}

/// Incompressible contents are in the build twice: in the image, and for `apply`.
#[test]
fn large_config_is_archive_for_each_file() {
    let mut number = 0x2545_f491_4f6c_dd1d_u64;
    let noise = std::iter::repeat_with(|| {
        number ^= number << 13;
        number ^= number >> 7;
        number ^= number << 17;
        char::from(b'a' + u8::try_from(number >> 60).unwrap())
    });
    let source = format!("data:,{}", noise.take(1_300_000).collect::<String>());
    let mut rendered = rendered(&json!({}));
    rendered.spec.config.as_mut().unwrap()["storage"]["files"][0]["contents"]["source"] = source.into();
    let context = composed(&request(&rendered, ""));
    let names: Vec<&String> = context.files.keys().collect();
    assert_eq!(names, ["config-0.tar.gz", "config-1.tar.gz", "config-2.tar.gz"]);
    for name in names {
        assert!(context.containerfile.contains(&format!("\nADD {name} /\n")), "{name}");
        assert!(context.files[name].len() <= MAX_ARCHIVE, "{name}");
    }
    let unpacked = files(&context);
    assert_eq!(unpacked.keys().collect::<Vec<_>>(), ["applied.json", "hosts", "machineconfig.json"]);
}

#[test]
fn extensions_and_kernel_are_steps_of_the_build() {
    let more = json!({
        "extensions": ["usbguard", "kerberos"], "kernelType": "realtime",
        "baseOSExtensionsContainerImage": format!("registry.example/extensions@sha256:{}", "5".repeat(64)),
    });
    golden("extensions-and-kernel", &composed(&request(&rendered(&more), "")).containerfile);
    let unknown = rendered(&json!({ "extensions": ["cowsay"] }));
    let error = compose(&request(&unknown, "")).unwrap_err().to_string();
    assert!(error.contains("cowsay") && error.contains("usbguard"), "{error}");
}

#[test]
fn image_keeps_whole_config_and_apply_gets_what_an_image_can_carry() {
    let context = composed(&request(&rendered(&json!({ "kernelArguments": ["quiet"], "fips": true })), ""));
    let files = files(&context);
    let names: Vec<&str> = files.keys().map(String::as_str).collect();
    assert_eq!(names, ["applied.json", "hosts", "machineconfig.json"]);
    let whole: MachineConfig = serde_json::from_slice(&files["machineconfig.json"]).unwrap();
    assert_eq!(whole.spec.kernel_arguments.unwrap(), ["quiet"]);
    let applied: serde_json::Value = serde_json::from_slice(&files["applied.json"]).unwrap();
    let storage = &applied["spec"]["config"]["storage"];
    assert_eq!(storage.as_object().unwrap().keys().collect::<Vec<_>>(), ["files"], "no disks in a build");
    assert_eq!(storage["files"].as_array().unwrap().len(), 1, "a builder has its own /etc/hosts");
    assert_eq!(applied["spec"].as_object().unwrap().keys().collect::<Vec<_>>(), ["config"]);
    assert_eq!(files["hosts"], b"192.0.2.1 a");
}

/// Entries of each kind that a node applies are in the image, too: the config that it names has them.
#[test]
fn apply_gets_each_entry_that_an_image_can_carry() {
    let config = json!({
        "ignition": { "version": "3.4.0" },
        "passwd": {
            "groups": [{ "name": "app", "gid": 1200 }],
            "users": [{ "name": "app", "uid": 1200, "primaryGroup": "app" }],
        },
        "storage": {
            "directories": [{ "path": "/etc/app.d", "mode": 0o750 }],
            "files": [{ "path": "/etc/app.d/a", "contents": { "source": "data:,a" } }],
            "links": [{ "path": "/etc/app.conf", "target": "app.d/a" }],
            "luks": [{ "name": "data", "device": "/dev/sdb" }],
        },
        "systemd": { "units": [{ "name": "app.service", "mask": true }] },
    });
    let files = files(&composed(&request(&rendered(&json!({ "config": config })), "")));
    let spec = |name: &str| {
        let document = Document::parse(&files[name], name).unwrap();
        document.spec(None).unwrap()
    };
    let (whole, applied) = (spec("machineconfig.json"), spec("applied.json"));
    assert_eq!(applied.files, whole.files);
    assert_eq!(applied.directories, whole.directories);
    assert_eq!(applied.links, whole.links);
    assert_eq!(applied.users, whole.users);
    assert_eq!(applied.units, whole.units);
    assert!(applied.directories.len() + applied.links.len() + applied.files.len() == 3);
    assert!(!String::from_utf8_lossy(&files["applied.json"]).contains("luks"));
}

#[test]
fn invalid_user_part_is_refused_with_its_line() {
    let rendered = rendered(&json!({}));
    let refused = [
        ("RUN true", 1, "begin with `FROM configs AS final`"),
        ("FROM configs AS final\nRUN true\nRUNN false", 3, "unknown instruction 'RUNN'"),
        ("FROM configs AS final\n\nCOPY a", 3, "at least two arguments"),
        ("FROM configs AS final\nRUN true \\\n", 2, "no line follows"),
        ("FROM configs AS final\nRUN true \\\n# a remark\n\n", 2, "no line follows"),
        ("FROM configs AS final\nRUN <<EOF \\\n  cat\nx\nEOF\nRUN a \\", 6, "no line follows"),
        ("FROM configs AS final\nRUN <<EOF\ntrue", 2, "here-document"),
        ("FROM configs AS final\nRUN cat <<A >/a; cat <<B >/b\nB\nA\n", 2, "here-document B"),
        ("FROM configs AS a\nFROM quay.io/os:1 AS b\nRUN true", 2, "would not have the config"),
        ("FROM quay.io/os:1 AS a\nFROM a", 2, "would not have the config"),
        ("FROM configs AS a\nFROM quay.io/os AS Configs\nFROM configs", 2, "choose another name"),
        ("FROM quay.io/os AS Machine-Config-Files\nFROM configs", 1, "choose another name"),
        ("ARG V=1\nFROM configs", 1, "move it into the stage"),
        (
            "FROM x AS a\nFROM configs\nCOPY --chmod=0600 --from=0 /a /b",
            3,
            "from=0 would count hidden stages",
        ),
        ("FROM configs\ncopy --from=Machine-Config-Files /a /b", 2, "take from your own stage"),
        ("FROM configs\nADD --from=\"1\" /a /b", 2, "from=1"),
        ("FROM configs\nRUN --mount=type=bind,from=0,target=/x \\\n  true", 2, "from=0"),
        ("# escape=`\nFROM configs", 1, "parser directives"),
    ];
    for (text, line, part) in refused {
        let error = compose(&request(&rendered, text)).expect_err(text);
        let shown = error.to_string();
        let ImageError::Containerfile { line: found, cause } = error else { panic!("{text:?}: {shown}") };
        assert!(cause.contains(part), "{text:?}: {cause}");
        assert_eq!(found, line, "{text:?}: {cause}");
        assert!(shown.contains(&format!("line {line}")), "{shown}");
    }
}

#[test]
fn last_stage_may_begin_with_config_over_other_stages() {
    let accounts = [
        ("FROM configs AS final\nRUN true", None),
        ("from CONFIGS\nuser app\nrun true", Some("app")),
        ("FROM configs AS a\nUSER 7\nFROM quay.io/x AS b\nUSER 8\nFROM A AS c\nRUN true", Some("7")),
        ("FROM configs AS a\nUSER 7\nFROM a\nUSER 9", Some("9")),
        ("# only a remark\n\n", None),
        (
            "FROM x:1 AS a1\nFROM configs\nCOPY --from=a1 0 /0\nCOPY --from=quay.io/x:1 a b\nRUN echo --from=0",
            None,
        ),
        ("FROM configs AS final\nRUN a \\\n  # a remark\n  b\n", None),
        (
            "FROM configs AS final\nRUN cat <<EOF >/x\nUSER 5\nFROM evil\nEOF\nRUN bash -e <<-'EOT'\n\ttrue \\\n\tEOT",
            None,
        ),
        ("FROM configs AS final\nCOPY <<A <<B /d/\nUSER 5\nA\n\nB\nUSER 6", Some("6")),
        ("# syntax=docker/dockerfile:1\nFROM configs\nRUN <<EOF\ntrue\nEOF", None),
    ];
    for (text, account) in accounts {
        let found = super::user::check(text).unwrap_or_else(|error| panic!("{text:?}: {error}"));
        assert_eq!(found.account.as_deref(), account, "{text:?}");
    }
}

#[test]
fn nothing_reaches_containerfile_as_more_than_one_word() {
    let good = rendered(&json!({}));
    let bad =
        rendered(&json!({ "baseOSExtensionsContainerImage": "a\nRUN evil", "extensions": ["usbguard"] }));
    assert!(compose(&request(&bad, "")).is_err(), "not by digest");
    let refused = [
        Request { base: "os:1 AS configs\nRUN evil", ..request(&good, "") },
        Request { base: "", ..request(&good, "") },
        Request { base: "--platform=x", ..request(&good, "") },
        Request { pool: Some("a\" b=\"c"), ..request(&good, "") },
    ];
    for request in refused {
        let error = compose(&request).expect_err(&format!("{request:?}"));
        assert!(matches!(error, ImageError::Field { .. }), "{error}");
    }
}
