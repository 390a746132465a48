//! Content of the packages, as Cargo.toml lists it; `tests/packages/run` shows that they install.

use std::collections::BTreeSet;
use std::path::Path;

use toml::{Table, Value};

/// Source, destination without its first slash, and mode of each file of a package.
fn assets(kind: &str) -> Vec<(String, String, String)> {
    let manifest: Table = std::fs::read_to_string("Cargo.toml").unwrap().parse().unwrap();
    let list = manifest["package"]["metadata"][kind]["assets"].as_array().unwrap().clone();
    let text = |value: &Value| value.as_str().unwrap().trim_start_matches('/').to_owned();
    let asset = |asset: &Value| {
        if let Value::Array(words) = asset {
            (text(&words[0]), text(&words[1]), text(&words[2]))
        } else {
            (text(&asset["source"]), text(&asset["dest"]), text(&asset["mode"]))
        }
    };
    list.iter().map(asset).collect()
}

/// Both packages hold the same, but for what each distribution has its own place for; what is no product of `./package` is
/// in the repository.
#[test]
fn both_packages_hold_same_files() {
    let common = |kind: &str| -> BTreeSet<_> {
        let own = |destination: &str| destination.contains("/zsh/") || destination.contains("/doc/");
        assets(kind).into_iter().filter(|(_, to, _)| !own(to)).collect()
    };
    assert_eq!(common("deb"), common("generate-rpm"));
    for (source, ..) in assets("generate-rpm") {
        let is_documents = ["docs/*.md", "docs/schemas/agent/*"].contains(&source.as_str());
        let known = source.starts_with("target/package/") || is_documents || Path::new(&source).is_file();
        assert!(known, "{source} is not there");
    }
}

/// Every unit of the repository is in both packages, and their scripts enable and disable it.
#[test]
fn packages_hold_every_unit() {
    let units =
        std::fs::read_dir("systemd").unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let units: Vec<String> = units.filter(|name| name.ends_with(".service")).collect();
    assert_eq!(units.len(), 3, "{units:?}");
    let scripts = ["debian/postinst", "debian/prerm", "debian/postrm", "rpm/post", "rpm/preun"];
    for unit in &units {
        let source = format!("systemd/{unit}");
        for kind in ["deb", "generate-rpm"] {
            assert!(assets(kind).iter().any(|(from, ..)| *from == source), "{kind}: {unit} is missing");
        }
        for script in scripts {
            let text = std::fs::read_to_string(format!("dist/{script}")).unwrap();
            assert!(text.contains(unit.as_str()), "dist/{script} does not name {unit}");
        }
    }
}

/// systemd reads units, presets and catalogs there; the unit and the agent expect the executables there.
#[test]
fn packages_install_files_at_documented_paths() {
    let install = std::fs::read_to_string("docs/install.md").unwrap();
    for (source, to, mode) in assets("deb") {
        let name = Path::new(&source).file_name().unwrap().to_str().unwrap().to_owned();
        let is_program = source.starts_with("target/package/bin/");
        assert_eq!(mode, if is_program { "755" } else { "644" }, "{source}");
        if is_program || to.starts_with("usr/lib/systemd/") {
            assert!(
                install.contains(&format!("{name} /{to}")),
                "docs/install.md does not copy {name} to /{to}"
            );
        }
    }
}
