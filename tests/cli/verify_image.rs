//! `verify` at the end of an image's build: what the build put into the image is still there, whatever the steps after it did.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;

use serde_json::json;

use crate::test_host::{Node, Ran, config, ignition};

const EMBEDDED: &str = "root/etc/machine-config-daemon/currentconfig";
const ORIGINALS: &str = "root/usr/lib/machine-config-agent/originals";

/// A step of a Containerfile, on the embedded config.
type Step<'a> = &'a dyn Fn(&Path);

/// Puts the embedded config in place, as the build does.
fn embed(node: &Node, text: &str) {
    let path = node.path(EMBEDDED);
    drop(fs::remove_file(&path));
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
}

#[test]
fn what_a_build_put_into_its_image_is_compared() {
    let node = Node::new();
    let text = config(
        "rendered-b",
        &ignition(json!({"storage": {"files": [{"path": "/etc/app", "contents": {"source": "data:,a"}},
        {"path": "/etc/app2", "contents": {"source": "data:,a"}}]}})),
    );
    node.put("b.json", &text);
    let on_root = ["--root", "root", "--os-backend", "none"];
    let into = ["apply", "--to", "b.json", "--no-reboot", "--into-image", "--yes"];
    let applied = node.run(&[&into[..], &on_root].concat());
    assert_eq!(applied.code, 0, "{}{}", applied.out, applied.err);
    let verify = |more: &[&str]| {
        let flags = ["verify", "--config", "b.json", "--embedded", "b.json"];
        node.run(&[&flags[..], more, &on_root].concat())
    };
    embed(&node, &text);
    // A builder lays a file of its own over one of the config: the step that applies the config left it out.
    let whole_config = config(
        "rendered-b",
        &ignition(json!({"storage": {"files": [
        {"path": "/etc/app", "contents": {"source": "data:,a"}}, {"path": "/etc/app.d"}]}})),
    );
    node.put("whole.json", &whole_config);
    node.put("root/etc/app.d/of-builder", "");
    embed(&node, &whole_config);
    let flags = ["verify", "--config", "b.json", "--embedded", "whole.json"];
    let bound = node.run(&[&flags[..], &on_root].concat());
    assert_eq!(bound.code, 0, "{}{}", bound.out, bound.err);
    embed(&node, &text);
    let whole = verify(&["--originals"]);
    assert_eq!(whole.code, 0, "{}{}", whole.out, whole.err);

    let steps: [(&str, Step<'_>); 5] = [
        ("nothing", &|path| fs::remove_file(path).unwrap()),
        ("nothing", &|path| fs::remove_dir_all(path.parent().unwrap()).unwrap()),
        ("another content", &|path| fs::write(path, config("rendered-other", &json!({}))).unwrap()),
        ("another mode or owner", &|path| {
            fs::set_permissions(path, fs::Permissions::from_mode(0o644)).unwrap();
        }),
        ("not a regular file", &|path| {
            fs::rename(path, path.with_extension("other")).unwrap();
            symlink("currentconfig.other", path).unwrap();
        }),
    ];
    for (words, step) in steps {
        step(&node.path(EMBEDDED));
        let found = verify(&[]);
        assert_eq!(found.code, 1, "{words}: {}{}", found.out, found.err);
        assert!(found.out.contains("/etc/machine-config-daemon/currentconfig"), "{}{}", found.out, found.err);
        assert!(found.out.contains(words), "{words}: {}", found.out);
        embed(&node, &text);
    }
    single_originals_are_compared(&node, &|| verify(&["--originals"]));
    fs::remove_dir_all(node.path(ORIGINALS)).unwrap();
    let found = verify(&["--originals"]);
    assert!(
        found.code == 1 && found.out.contains("/usr/lib/machine-config-agent/originals"),
        "{}{}",
        found.out,
        found.err
    );
    assert_eq!(verify(&[]).code, 0, "an image of Ignition has none");
}

/// A build that changes accounts keeps what they were.
fn record_of_accounts_is_compared(node: &Node, verify: &dyn Fn() -> Ran) {
    let record = node.path(ORIGINALS).join("accounts.json");
    let write = |text: &str, mode| {
        fs::write(&record, text).unwrap();
        fs::set_permissions(&record, fs::Permissions::from_mode(mode)).unwrap();
        verify()
    };
    let whole = r#"{"schemaVersion":1,"users":{"app":{"maker":"agent","uid":1234}}}"#;
    let found = write(whole, 0o600);
    assert_eq!(found.code, 0, "{}{}", found.out, found.err);
    for (text, mode, words) in [(whole, 0o644, "another mode or owner"), ("{", 0o600, "a damaged document")] {
        let found = write(text, mode);
        assert!(
            found.code == 1 && found.out.contains("accounts.json"),
            "{words}: {}{}",
            found.out,
            found.err
        );
        assert!(found.out.contains(words), "{words}: {}", found.out);
    }
}

/// One that is missing, damaged, or of another path is named.
fn single_originals_are_compared(node: &Node, verify: &dyn Fn() -> Ran) {
    let original = node.path(ORIGINALS).join("%2Fetc%2Fapp.json");
    let other = node.path(ORIGINALS).join("%2Fetc%2Fother.json");
    let kept = fs::read(&original).unwrap();
    let steps: [(&str, &str, Step<'_>); 5] = [
        ("app.json", "nothing", &|path| fs::remove_file(path).unwrap()),
        ("app.json", "a damaged document", &|path| fs::write(path, "{").unwrap()),
        ("app.json", "another mode or owner", &|path| {
            fs::set_permissions(path, fs::Permissions::from_mode(0o666)).unwrap();
        }),
        ("app.json", "not a regular file", &|path| {
            fs::remove_file(path).unwrap();
            symlink("/etc/passwd", path).unwrap();
        }),
        ("other.json", "an original of a path that is not in the config", &|_| {
            fs::write(&other, &kept).unwrap();
        }),
    ];
    for (name, words, step) in steps {
        step(&original);
        let found = verify();
        assert!(found.code == 1 && found.out.contains(name), "{words}: {}{}", found.out, found.err);
        assert!(found.out.contains(words), "{words}: {}", found.out);
        drop(fs::remove_file(&original));
        drop(fs::remove_file(&other));
        fs::write(&original, &kept).unwrap();
        fs::set_permissions(&original, fs::Permissions::from_mode(0o600)).unwrap();
        let whole = verify();
        assert_eq!(whole.code, 0, "{}{}", whole.out, whole.err);
    }
    record_of_accounts_is_compared(node, verify);
}
