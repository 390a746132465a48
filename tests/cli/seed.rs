//! `seed containerfile`, by the real executable.
#![cfg(feature = "backend-ostree")]

use crate::test_host::Node;

const INSTALL: &str = "apiVersion: v1\nmetadata: {name: sno}\nbaseDomain: example.test\n\
    controlPlane: {name: master, replicas: 1}\ncompute: [{name: worker, replicas: 0}]\n\
    pullSecret: '{\"auths\": {\"registry.test\": {\"auth\": \"aHVudGVyMg==\"}}}'\n";
const IMAGE_BASED: &str = "apiVersion: v1beta1\nkind: ImageBasedConfig\nhostname: host-b\n";

fn seed() -> String {
    format!("registry.test/seed@sha256:{}", "0".repeat(64))
}

fn words(seed: &str) -> [&str; 8] {
    let secret = ["--include-secret", "install-config.yaml"];
    ["seed", "containerfile", "--config", "config", "--image", seed, secret[0], secret[1]]
}

fn containerfile(node: &Node) -> (i32, String, String) {
    let ran = node.run(&words(&seed()));
    (ran.code, ran.out, ran.err)
}

/// As the other verbs that only print (`terminal::verbs_that_print_survive_closed_pipe`).
#[test]
fn containerfile_survives_closed_pipe() {
    let node = Node::new();
    node.put("config/install-config.yaml", INSTALL);
    node.put("config/image-based-config.yaml", IMAGE_BASED);
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = node.command(&words(&seed()));
    let ran = command.stdout(writer).stderr(std::process::Stdio::piped()).output().unwrap();
    assert!(ran.status.success() && ran.stderr.is_empty(), "{}", String::from_utf8_lossy(&ran.stderr));
}

#[test]
fn containerfile_is_printed_for_a_good_directory() {
    let node = Node::new();
    node.put("config/install-config.yaml", INSTALL);
    node.put("config/image-based-config.yaml", IMAGE_BASED);
    node.put("config/extra-manifests/a.yaml", "apiVersion: v1\nkind: ConfigMap\n");
    let (code, out, err) = containerfile(&node);
    assert_eq!((code, &*err), (0, ""), "{out}");
    assert!(out.lines().any(|line| line == format!("FROM {}", seed())), "{out}");
    assert!(out.contains("COPY [\"extra-manifests/\"") && !out.contains("aHVudGVyMg"), "{out}");
    // The shell of a build reads its lines as they are.
    let run: Vec<&str> = out.split("\nRUN ").skip(1).collect();
    for run in &run {
        let script = run.split("\n\n").next().unwrap();
        let checked = std::process::Command::new("sh").args(["-n", "-c", script]).output().unwrap();
        assert!(checked.status.success(), "{script}\n{}", String::from_utf8_lossy(&checked.stderr));
    }
    assert_eq!(run.len(), 3, "{out}");
}

#[test]
fn faults_of_the_directory_are_named_before_anything_is_printed() {
    let node = Node::new();
    node.put(
        "config/install-config.yaml",
        INSTALL.replace("replicas: 1", "replicas: 3").replace("auths", "auth"),
    );
    std::fs::create_dir_all(node.path("config/extra-manifests/sub")).unwrap();
    node.put("config/extra-manifests/b.txt", "x");
    let (code, out, err) = containerfile(&node);
    assert_eq!((code, &*out), (3, ""), "{err}");
    for told in [
        "error: install-config.yaml: controlPlane.replicas is not 1\nNext: ",
        "error: install-config.yaml: pullSecret is missing",
        "error: image-based-config.yaml: the directory has no such file\nNext: Write it with `openshift-install",
        "error: extra-manifests/b.txt: it ends with neither",
        "error: extra-manifests/sub: it is not a regular file",
    ] {
        assert!(err.contains(told), "{told}:\n{err}");
    }
    assert!(!err.contains("aHVudGVyMg"), "{err}");
    let ran = node.run(&["seed", "containerfile", "--config", "nowhere", "--image", &seed()]);
    assert!(ran.code == 4 && ran.err.contains("nowhere") && ran.err.contains("Next: "), "{}", ran.err);
    let ran = node.run(&["seed", "containerfile", "--config", "config", "--image", "registry.test/seed:tag"]);
    assert!(ran.code != 0 && ran.out.is_empty() && ran.err.contains("digest"), "{}", ran.err);
}
