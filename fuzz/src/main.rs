//! Coverage-guided fuzzing of the parsers of foreign bytes: none panics, its errors stay short, and what it has read reads
//! the same again. `FUZZ_TARGET` names the parser.
#![no_main]

use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;
use machine_config_core::model::hosted::hosted_config;
use machine_config_core::model::kubeconfig::with_authority;
use machine_config_core::model::registry_auth::registry_auth;
use machine_config_core::model::{
    ConfigName, DisruptionPolicy, ImageRef, Karg, MachineConfig, ProxySettings, installed_storage, kargs,
};
use machine_config_core::stateroot::{
    booted_deployment, config_of_seed, container_images, containers, deletions, member, seed_config,
};

/// No error floods a log.
const MAX_ERROR: usize = 4000;

type Target = fn(&[u8]);

/// Each parser by its name, which is that of its corpus, too.
const TARGETS: [(&str, Target); 8] = [
    ("machineconfig", machine_config),
    ("policy", policy),
    ("kubeconfig", kubeconfig),
    ("image", image),
    ("installed", installed),
    ("environment", environment),
    ("seed", seed),
    ("kernel-arguments", kernel_arguments),
];

static TARGET: OnceLock<Target> = OnceLock::new();

fuzz_target!(|bytes: &[u8]| {
    let target = TARGET.get_or_init(|| {
        let name = std::env::var("FUZZ_TARGET").unwrap_or_default();
        let found = TARGETS.iter().find(|(known, _)| *known == name).map(|(_, target)| *target);
        found.unwrap_or_else(|| {
            panic!("FUZZ_TARGET is {name:?}; it is one of {:?}", TARGETS.map(|(name, _)| name))
        })
    });
    target(bytes);
});

/// Returns what was read; an error has its bound.
fn bounded<T, E: std::fmt::Display>(result: Result<T, E>) -> Option<T> {
    result.map_err(|error| assert!(error.to_string().len() < MAX_ERROR, "{error}")).ok()
}

fn machine_config(bytes: &[u8]) {
    let Some(config) = bounded(MachineConfig::parse_or_wrap(bytes, "the document")) else { return };
    let spec = bounded(config.spec(None));
    let again = MachineConfig::parse(config.json().as_bytes(), "the document").unwrap();
    assert_eq!(again, config, "its canonical text reads the same");
    assert_eq!(bounded(again.spec(None)), spec);
    drop(bounded(hosted_config(bytes, &ConfigName::new("a").unwrap(), "the payload")));
}

fn policy(bytes: &[u8]) {
    drop(bounded(DisruptionPolicy::parse(bytes, "the document")));
}

fn kubeconfig(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Ok(Some(changed)) = with_authority(text, b"pem") {
        assert!(matches!(with_authority(&changed, b"pem"), Ok(None)), "it is right then");
    }
}

fn image(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let Some(image) = bounded(ImageRef::parse(text)) else { return };
    assert_eq!(ImageRef::parse(&image.to_string()).unwrap(), image);
    drop(registry_auth(bytes, "registry.test/os"));
}

fn installed(bytes: &[u8]) {
    let Some(fixed) = bounded(installed_storage(bytes, "the document")) else { return };
    for entry in fixed.entries() {
        assert!(entry.is_same(&entry) && entry.field.len() < MAX_ERROR);
    }
}

fn environment(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    drop(bounded(ProxySettings::parse_environment_file(text)));
}

fn seed(bytes: &[u8]) {
    drop(booted_deployment(bytes));
    drop(seed_config(bytes));
    drop(bounded(config_of_seed(bytes)));
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    drop(deletions(text));
    drop(containers(text));
    let _ = member(text);
    drop(container_images(text));
}

fn kernel_arguments(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let line = Karg::split(text);
    let joined: Vec<&str> = line.iter().map(Karg::as_str).collect();
    assert_eq!(Karg::split(&joined.join(" ")), line, "words stay words");
    drop(bounded(kargs::of_image_file(text, "x86_64")));
    let mut former = kargs::FormerKargs::default();
    former.learn(&line, &[]);
    let left = former.left_over(&line, &[], &[]);
    assert!(left.len() <= line.len() && former.left_over(&line, &line, &[]).is_empty());
}
