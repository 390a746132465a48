//! Parsing of buildah's lines. `tests/image/build` shows that it builds.

use super::failure::{explained, of_build, of_push};
use super::*;

fn output(text: &str) -> Output {
    let mut output = Output::default();
    drop(output.take(text.as_bytes()));
    drop(output.end_line());
    output
}

#[test]
fn lines_come_whole_and_bounded() {
    let mut output = Output::default();
    assert_eq!(output.take(b"STEP 1/2: FROM a"), Vec::<String>::new());
    assert_eq!(
        output.take(b":1\n\n[2/2] STEP 2/2: RUN x\nout\x1b[1mput\r50%\n"),
        ["STEP 1/2: FROM a:1", "[2/2] STEP 2/2: RUN x", "out[1mput", "50%"]
    );
    assert_eq!(output.step(), Some("RUN x"));
    assert_eq!(output.lines(), ["out[1mput", "50%"], "of the last step alone");
    drop(output.take("x".repeat(1 << 20).as_bytes()));
    assert_eq!(output.end_line().map(|line| line.len()), Some(500));
    for number in 0..1000 {
        drop(output.take(format!("{number}\n").as_bytes()));
    }
    assert_eq!((output.lines().len(), output.lines().pop().as_deref()), (20, Some("999")));
}

/// With lines as buildah 1.28 prints them.
#[test]
fn cause_of_failed_build_is_named() {
    let pull = "STEP 1/4: FROM r.example/os:1 AS configs\nTrying to pull r.example/os:1...\nError: creating build container: initializing \
                source docker://r.example/os:1: reading manifest 1 in r.example/os:";
    let image = || "r.example/os:1".to_owned();
    let found = of_build(&output(&format!("{pull} manifest unknown: manifest unknown\n")));
    assert!(matches!(&found, BuildFailure::NoImage { image: named, .. } if *named == image()), "{found:?}");
    let found = of_build(&output(&format!("{pull} unauthorized: authentication required\n")));
    assert!(
        matches!(&found, BuildFailure::PullUnauthorized { image: named, .. } if *named == image()),
        "{found:?}"
    );
    assert!(found.to_string().contains("--authfile"), "{found}");
    let found = of_build(&output(&format!("{pull} dial tcp 192.0.2.1:443: connect: connection refused\n")));
    assert!(matches!(found, BuildFailure::Pull { .. }), "{found:?}");

    let step = "[2/2] STEP 3/5: RUN echo bla; ls /nothing\nbla\nls: /nothing: No such file or directory\nError: building at STEP \"RUN echo bla; \
                ls /nothing\": exit status 1\n";
    let found = of_build(&output(step)).to_string();
    let expected = "RUN echo bla; ls /nothing failed: exit status 1\n  bla\n  ls: /nothing: No such file or directory\nCorrect the Containerfile";
    assert_eq!(found, expected);

    let verify = "[2/2] STEP 4/5: RUN --mount=type=bind,source=a,target=/run/machine-config-build/a,ro [\"/run/machine-config-build/\
                  machine-config-agent\", \"verify\", \"--config\", \"x\"]\n1 difference from rendered-worker-a:\n  file /etc/a.conf: content \
                  differs\nsubprocess exited with status 1\nError: building at STEP \"RUN x\": exit status 1\n";
    let found = of_build(&output(verify));
    let lines =
        ["1 difference from rendered-worker-a:", "  file /etc/a.conf: content differs"].map(str::to_owned);
    assert_eq!(found, BuildFailure::Differs { lines: lines.into() });
    assert!(found.to_string().contains("nothing was pushed"));

    let apply = "STEP 2/5: RUN --mount=x /run/machine-config-build/machine-config-agent apply --to a\nerror: no\nError: building at STEP \
                 \"RUN apply\": exit status 4\n";
    assert!(matches!(of_build(&output(apply)), BuildFailure::Apply { .. }));
    assert!(matches!(of_build(&output("Error: no space left\n")), BuildFailure::Other { .. }));
    assert!(of_build(&output("")).to_string().contains("it said nothing"));
}

#[test]
fn cause_of_failed_push_is_named() {
    let line = "Getting image source signatures\nError: pushing image \"localhost/t\" to \"docker://r.example/os:1\": ";
    let found = of_push(
        &output(&format!("{line}trying to reuse blob: unauthorized: authentication required\n")),
        "r.example/os:1",
    );
    assert!(found.to_string().contains("--push-authfile"), "{found}");
    let found = of_push(
        &output(&format!("{line}received unexpected HTTP status: 500 Internal Server Error\n")),
        "r.example/os:1",
    );
    assert!(matches!(found, BuildFailure::Push { .. }), "{found}");
}

fn local(buildah: &str, work: &Path) -> Local {
    Local {
        buildah: buildah.into(),
        agent: "/bin/true".into(),
        work: work.join("work"),
        storage_driver: None,
        tls_verify: true,
        timeout: Duration::from_secs(60),
    }
}

fn build(builder: &Local) -> Result<String, LocalError> {
    let context =
        Context { containerfile: "FROM configs\n".to_owned(), files: std::collections::BTreeMap::new() };
    let order = Order {
        context: &context,
        push: "r.example/os:1",
        authfile: None,
        push_authfile: None,
        secrets: &[],
        mounts: &[],
        timestamp: 0,
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(builder.build(&order, &mut |_| {}))
}

#[test]
fn missing_buildah_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let error = build(&local("/nothing/buildah", directory.path())).unwrap_err();
    assert!(matches!(error, LocalError::NoBuildah { .. }), "{error}");
    assert!(error.to_string().contains("install the package buildah"), "{error}");
}

#[test]
fn second_build_in_same_directory_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let builder = local("true", directory.path());
    let held = Work::open(&builder.work).unwrap();
    let error = build(&builder).unwrap_err();
    assert!(matches!(error, LocalError::Busy { .. }), "{error}");
    let of_started_process = held.lock.try_clone().unwrap();
    drop(held);
    // It does nothing, so there is no digest: all before that was done.
    let error = build(&builder).unwrap_err();
    assert!(matches!(error, LocalError::File { .. }), "{error}");
    assert!(!builder.work.join("context").exists(), "nothing of the build is left");
    drop(of_started_process);
}

#[test]
fn build_that_does_not_end_is_given_up() {
    let directory = tempfile::tempdir().unwrap();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/src/image/local/endless-buildah");
    let mut builder = local(script, directory.path());
    builder.timeout = Duration::from_millis(300);
    let error = build(&builder).unwrap_err();
    assert!(
        matches!(&error, LocalError::Timeout { step } if step.contains("buildah") || step == "RUN long"),
        "{error}"
    );
}

/// buildah is called for what has to be done, and a killed build's rest is removed before the next.
#[test]
#[expect(clippy::disallowed_methods, reason = "it reads the arguments of a program")]
fn clean_up_is_one_call_unless_build_was_killed() {
    let directory = tempfile::tempdir().unwrap();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/src/image/local/recording-buildah");
    let builder = local(script, directory.path());
    let calls = || {
        let path = builder.work.join("calls");
        let calls = std::fs::read_to_string(&path).unwrap();
        std::fs::remove_file(path).unwrap();
        calls
    };
    let digest = format!("sha256:{}", "a".repeat(64));
    assert_eq!(build(&builder).unwrap(), digest);
    assert_eq!(calls(), "bud\npush\nrmi --force localhost/machine-config-build\n");

    std::fs::create_dir(builder.work.join("context")).unwrap();
    assert_eq!(build(&builder).unwrap(), digest);
    let all = "rm --all\nrmi --force localhost/machine-config-build\nrmi --prune --force\n";
    assert_eq!(calls(), format!("{all}bud\npush\nrmi --force localhost/machine-config-build\n"));

    // One that fails leaves nothing, either.
    std::fs::write(builder.work.join("push-fails"), "").unwrap();
    build(&builder).unwrap_err();
    assert_eq!(calls(), format!("bud\npush\n{all}"));
    assert!(!builder.work.join("context").exists());
}

/// The status of a step is the step's, also where it is the one by which `setpriv` says that there is no program.
#[test]
#[expect(clippy::disallowed_methods, reason = "it writes a program")]
fn status_127_of_step_is_no_missing_buildah() {
    use std::os::unix::fs::PermissionsExt as _;
    let directory = tempfile::tempdir().unwrap();
    let script = directory.path().join("buildah");
    let text = "#!/bin/sh\necho 'STEP 2/3: RUN frobnicate'\necho '/bin/sh: 1: frobnicate: not found'\n\
        echo 'Error: building at STEP \"RUN frobnicate\": exit status 127'\nexit 127\n";
    std::fs::write(&script, text).unwrap();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    let error = build(&local(script.to_str().unwrap(), directory.path())).unwrap_err();
    let LocalError::Failed(failure) = error else { panic!("{error}") };
    assert!(matches!(&*failure, BuildFailure::Step { step, .. } if step == "RUN frobnicate"), "{failure}");
}

/// The last lines of a pod, as kubelet cuts them, become one sentence with the object, the cause and the next step.
#[test]
fn failure_in_cluster_is_one_sentence() {
    let part =
        "FROM configs AS final\n# tools\nRUN dnf install -y \\\n    strace\nRUN [ -e /a ] && echo \"b\"\n";
    let of = |tail: &str| explained(tail, "r.test/os:b-1", part);
    let noise = "Complete!\n".repeat(200);
    for (tail, expected) in [
        (
            // Cut off within the output of the step.
            format!("{noise}no match for strace\nError: building at STEP \"RUN dnf install -y     strace\": while running runtime: exit status 1"),
            "RUN dnf install -y     strace (line 3 of the Containerfile) failed: while running runtime: exit status 1: no match for strace; correct the Containerfile",
        ),
        (
            "STEP 8/9: RUN [ -e /a ] && echo \"b\"\nError: building at STEP \"RUN [ -e /a ] && echo \"b\"\": exit status 1".to_owned(),
            "RUN [ -e /a ] && echo \"b\" (line 5 of the Containerfile) failed: exit status 1; correct the Containerfile",
        ),
        (
            "Error: creating build container: initializing source docker://r.test/base:1: reading manifest 1 in r.test/base: manifest unknown".to_owned(),
            "r.test/base:1: there is no such image: creating build container: initializing source docker://r.test/base:1: reading manifest 1 in r.test/base: manifest unknown; correct its name",
        ),
        (
            "STEP 1/9: FROM r.test/base:1 AS configs\nError: initializing source: unauthorized: authentication required".to_owned(),
            "the registry denied the pull of r.test/base:1: initializing source: unauthorized: authentication required; correct the Secret in spec.baseImagePullSecret",
        ),
        (
            "STEP 9/9: LABEL a=b\nCOMMIT r.test/os:b-1\nGetting image source signatures\nError: pushing image \"r.test/os:b-1\" to \"docker://r.test/os:b-1\": unauthorized: access denied".to_owned(),
            "the registry denied the push to r.test/os:b-1: pushing image \"r.test/os:b-1\" to \"docker://r.test/os:b-1\": unauthorized: access denied; use an account with push permission in the Secret of spec.renderedImagePushSecret",
        ),
        (
            "STEP 3/9: RUN make\ncp: error writing 'a': No space left on device\nError: building at STEP \"RUN make\": exit status 1".to_owned(),
            "no space left for the build (in RUN make); free space on the builder's file system, or build a smaller image",
        ),
        (
            "STEP 9: RUN false\nerror: build error: error building at STEP \"RUN false\": exit status 1".to_owned(),
            "RUN false failed: exit status 1; correct the Containerfile",
        ),
        // Nothing of buildah: as it is.
        ("OOMKilled".to_owned(), "OOMKilled"),
    ] {
        assert_eq!(of(&tail), expected);
    }
    assert_eq!(of(&"x".repeat(5000)).len(), 1000);
}
