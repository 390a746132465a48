//! Every parser takes any input: it never panics, and its errors name their document and stay short.

use machine_config_core::model::{
    ConfigName, DisruptionPolicy, DropinName, ImageRef, Karg, MachineConfig, ManagedPath, ModelError,
    UnitName,
};
use machine_config_core::plan::explain;
use proptest::prelude::*;
use serde_json::{Value, json};

/// No error floods a log.
const LIMIT: usize = 1500;

fn bounded<T>(result: Result<T, ModelError>) -> Option<T> {
    result.map_err(|error| assert!(error.to_string().len() < LIMIT, "{error}")).ok()
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        ".{0,40}".prop_map(Value::from),
        Just(json!("data:;base64,QQ==")),
        Just(json!("/etc/a")),
        Just(json!("a.service")),
        Just(json!("3.5.0")),
        Just(json!("core")),
    ];
    let keys = prop::sample::select(vec![
        "metadata",
        "name",
        "spec",
        "config",
        "ignition",
        "version",
        "storage",
        "files",
        "path",
        "contents",
        "source",
        "compression",
        "mode",
        "user",
        "group",
        "id",
        "systemd",
        "units",
        "enabled",
        "mask",
        "dropins",
        "passwd",
        "users",
        "sshAuthorizedKeys",
        "passwordHash",
        "kernelArguments",
        "extensions",
        "fips",
        "osImageURL",
        "append",
        "verification",
        "hash",
        "status",
        "nodeDisruptionPolicy",
        "actions",
        "type",
    ]);
    leaf.prop_recursive(6, 64, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::vec((keys.clone(), inner), 0..6).prop_map(|pairs| Value::Object(
                pairs.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
            )),
        ]
    })
}

fn parsed(bytes: &[u8]) {
    if let Some(config) = bounded(MachineConfig::parse(bytes, "the document")) {
        let text = config.json().to_owned();
        let again = MachineConfig::parse(text.as_bytes(), "again").unwrap();
        assert_eq!(again.json(), text, "the canonical text is its own canonical text");
        bounded(config.spec(None));
    }
    bounded(DisruptionPolicy::parse(bytes, "the policy"));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn parsers_never_panic_on_any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        parsed(&bytes);
    }

    #[test]
    fn any_text(text in "[ -~\\n]{0,300}") {
        parsed(text.as_bytes());
    }

    #[test]
    fn parsers_never_panic_on_any_json(tree in any_json()) {
        parsed(tree.to_string().as_bytes());
        let document = json!({"metadata": {"name": "a"}, "spec": {"config": {
            "ignition": {"version": "3.4.0"}, "storage": tree, "systemd": tree, "passwd": tree}}});
        parsed(document.to_string().as_bytes());
        let policy = json!({"spec": {"nodeDisruptionPolicy": tree}});
        parsed(policy.to_string().as_bytes());
    }

    #[test]
    fn any_source(source in "(data:)?(;base64)?,?.{0,60}", gzip in any::<bool>(), hash in prop::option::of(".{0,20}")) {
        let compression = gzip.then_some("gzip");
        let file = json!({"path": "/etc/a", "contents": {
            "source": source, "compression": compression, "verification": {"hash": hash}}});
        let config = json!({"ignition": {"version": "3.0.0"}, "storage": {"files": [file]}});
        parsed(json!({"metadata": {"name": "a"}, "spec": {"config": config}}).to_string().as_bytes());
    }

    #[test]
    fn any_name(text in "\\PC{0,400}") {
        bounded(ConfigName::new(text.clone()));
        bounded(UnitName::new(text.clone()));
        bounded(DropinName::new(text.clone()));
        bounded(ManagedPath::new(text.clone()));
        bounded(ManagedPath::new(format!("/{text}")));
        bounded(ImageRef::parse(&text));
        bounded(ImageRef::parse(&format!("{text}@sha256:{}", "a".repeat(64))));
    }

    #[test]
    fn any_arguments(line in "[a-c =\"\\t]{0,60}") {
        for word in Karg::split(&line) {
            prop_assert!(!word.as_str().is_empty());
            prop_assert_eq!(Karg::split(word.as_str()).len(), 1);
        }
    }

    #[test]
    fn any_diff_is_bounded(one in prop::collection::vec(any::<u8>(), 0..9000), many in "([a-z]{0,300}\n){0,90}") {
        for (expected, found) in [(one.as_slice(), many.as_bytes()), (b"".as_slice(), many.as_bytes())] {
            for secret in [true, false] {
                let diff = explain::text_diff(expected, found, secret);
                prop_assert!(diff.len() <= 4096 && diff.lines().count() <= 41, "{}", diff.len());
            }
        }
        prop_assert!(!explain::text_diff(b"hunter2", b"hunter3", true).contains("hunter"));
    }
}
