//! The rpm-ostree backend against a protocol peer: a real bus, a real socket for each transaction, and every way in
//! which they go wrong. What the deployments of a real sysroot make of it is in `os_contract.rs`.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::rc::Rc;

use machine_config_agent::host::os::rpmostree::RpmOstreeBackend;
use machine_config_agent::host::os::worker::Worker;
use machine_config_agent::host::os::{OsBackend as _, OsProgress, StageRequest};
use machine_config_agent::host::{ContainerHandles, HostError, Root};
use machine_config_agent::model::observation::{EmbeddedConfig, ObservedOs};
use machine_config_agent::model::os::{KernelType, Layers};
use machine_config_agent::model::{Contents, FaultClass, ImageRef, Karg};
use serde_json::{Value, json};
use tokio::sync::Notify;
use zbus::Connection;

const NAME: &str = "org.projectatomic.rpmostree1";

/// A bus of its own in a directory that plays the host's root.
struct Bench {
    dir: tempfile::TempDir,
    bus: Child,
    double: Child,
}

impl Drop for Bench {
    fn drop(&mut self) {
        for child in [&mut self.double, &mut self.bus] {
            // It may have ended already.
            drop(child.kill());
            drop(child.wait());
        }
    }
}

/// Starts a program and waits until it prints a line.
fn started(command: &mut Command) -> Child {
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    assert!(!line.is_empty(), "{command:?} ended at once");
    child
}

fn double(root: &Path, deployments: &Value) -> Child {
    let worker = Path::new(env!("CARGO_BIN_EXE_machine-config-agent-ostree"));
    let mut command = Command::new(worker.with_file_name("examples").join("rpm-ostreed"));
    command.arg("--bus").arg(format!("unix:path={}", root.join("run/dbus/system_bus_socket").display()));
    command.arg("--root").arg(root).arg("--deployments").arg(deployments.to_string());
    started(&mut command)
}

impl Bench {
    fn new(deployments: &Value) -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("run/dbus")).unwrap();
        let socket = dir.path().join("run/dbus/system_bus_socket");
        let config = dir.path().join("bus.conf");
        fs::write(&config, format!(
            "<busconfig><listen>unix:path={}</listen><auth>EXTERNAL</auth><policy context='default'>\
             <allow send_destination='*' eavesdrop='true'/><allow eavesdrop='true'/><allow own='*'/></policy></busconfig>",
            socket.display()
        ))
        .unwrap();
        let mut bus = Command::new("dbus-daemon");
        // It complains that it may not raise its limits.
        bus.stderr(Stdio::null());
        let bus = started(
            bus.arg("--nofork").arg("--print-address").arg(format!("--config-file={}", config.display())),
        );
        let double = double(dir.path(), deployments);
        Self { dir, bus, double }
    }

    /// A repository of the administrator's.
    fn repository(&self) {
        fs::create_dir_all(self.dir.path().join("etc/yum.repos.d")).unwrap();
        fs::write(self.dir.path().join("etc/yum.repos.d/own.repo"), "[own]\n").unwrap();
    }

    /// A new daemon, as the bus would start it.
    fn restart(&mut self, deployments: &Value) {
        drop(self.double.kill());
        drop(self.double.wait());
        self.double = double(self.dir.path(), deployments);
    }

    fn backend(&self) -> RpmOstreeBackend {
        RpmOstreeBackend::new(
            &Root::open(self.dir.path()).unwrap(),
            Worker::new(self.dir.path(), ContainerHandles::default()),
        )
    }

    async fn client(&self) -> Connection {
        let address = format!("unix:path={}", self.dir.path().join("run/dbus/system_bus_socket").display());
        zbus::connection::Builder::address(address.as_str()).unwrap().build().await.unwrap()
    }

    async fn control<B>(&self, method: &str, body: &B) -> zbus::Message
    where
        B: serde::Serialize + zbus::zvariant::Type,
    {
        let client = self.client().await;
        client.call_method(Some(NAME), "/double", Some("double.Control"), method, body).await.unwrap()
    }

    async fn faults(&self, faults: Value) {
        self.control("Set", &faults.to_string()).await;
    }

    /// The transactions since the last call.
    async fn log(&self) -> Vec<String> {
        self.control("Log", &()).await.body().deserialize().unwrap()
    }

    /// Returns the number of reloads since the last call.
    async fn reloads(&self) -> u32 {
        self.control("Reloads", &()).await.body().deserialize().unwrap()
    }

    /// Another client of rpm-ostree begins a transaction; it lives on its own when this returns.
    async fn foreign(&self) -> Connection {
        let client = self.client().await;
        let options = HashMap::from([("id", zbus::zvariant::Value::from("cli"))]);
        let sysroot = "/org/projectatomic/rpmostree1/Sysroot";
        let interface = Some("org.projectatomic.rpmostree1.Sysroot");
        client.call_method(Some(NAME), sysroot, interface, "RegisterClient", &options).await.unwrap();
        let modifiers = HashMap::from([("set-refspec", zbus::zvariant::Value::from(reference('9')))]);
        let options =
            HashMap::from([("initiating-command-line", zbus::zvariant::Value::from("rebase elsewhere"))]);
        let os = Some("org.projectatomic.rpmostree1.OS");
        let object = "/org/projectatomic/rpmostree1/os";
        let reply =
            client.call_method(Some(NAME), object, os, "UpdateDeployment", &(modifiers, options)).await;
        let told: String = reply.unwrap().body().deserialize().unwrap();
        assert_eq!(told, "unix:path=/run/rpm-ostree-transaction.sock");
        let address =
            format!("unix:path={}", self.dir.path().join("run/rpm-ostree-transaction.sock").display());
        let peer = zbus::connection::Builder::address(address.as_str()).unwrap().p2p().build().await.unwrap();
        let transaction = Some("org.projectatomic.rpmostree1.Transaction");
        let first = peer.call_method(None::<&str>, "/", transaction, "Start", &()).await.unwrap();
        assert!(first.body().deserialize::<bool>().unwrap());
        peer.close().await.unwrap();
        client
    }
}

fn image(digit: char) -> ImageRef {
    ImageRef::parse(&format!("r.test/os@sha256:{}", digit.to_string().repeat(64))).unwrap()
}

fn reference(digit: char) -> String {
    format!("ostree-unverified-registry:{}", image(digit))
}

fn deployment(digit: char) -> Value {
    json!({
        "checksum": digit.to_string().repeat(64), "reference": reference(digit),
        "digest": format!("sha256:{}", image(digit).digest()), "kargs": "rw quiet ostree=/ostree/boot.0/sandbox/x/0",
    })
}

/// A deployment with more keys.
fn with(digit: char, more: Value) -> Value {
    let mut one = deployment(digit);
    let Value::Object(more) = more else { panic!("keys") };
    one.as_object_mut().unwrap().extend(more);
    one
}

fn booted(digit: char) -> Value {
    with(digit, json!({"booted": true, "label": "rendered-worker-a"}))
}

fn wants(digit: char) -> StageRequest {
    StageRequest { image: Some(image(digit)), ..StageRequest::default() }
}

async fn stage(backend: &RpmOstreeBackend, request: &StageRequest) -> Result<Vec<String>, HostError> {
    let told = RefCell::new(Vec::new());
    let staged = backend.stage(request, &|step: OsProgress| told.borrow_mut().push(step.text)).await?;
    if let Some(desired) = &request.image {
        assert_eq!(staged.image.map(|image| image.digest()), Some(desired.digest()));
    }
    Ok(told.take())
}

async fn staged(backend: &RpmOstreeBackend) -> Option<ImageRef> {
    backend.observe().await.unwrap().staged().and_then(|staged| staged.image.clone())
}

/// OST-001: image and arguments are one transaction each, and the client has its own id. MCD-188: by reference and
/// digest. MCD-192: the line is replaced as a whole.
#[tokio::test(flavor = "current_thread")]
async fn update_is_two_transactions() {
    let bench = Bench::new(&json!([booted('1')]));
    let backend = bench.backend();
    let request = StageRequest {
        delete_kargs: Karg::split("quiet"),
        append_kargs: Karg::split("a=1 b=\"x y\" a=1"),
        ..wants('2')
    };
    let told = stage(&backend, &request).await.unwrap();
    assert!(
        told.iter().any(|text| text.starts_with("Pulling manifest: machine-config-agent: r.test/os@")),
        "{told:?}"
    );
    assert_eq!(bench.log().await, ["UpdateDeployment", "KernelArgs"]);
    let ObservedOs::Deployments { booted, staged: Some(staged), next: None } =
        backend.observe().await.unwrap()
    else {
        panic!()
    };
    assert_eq!(booted.image, Some(image('1')));
    assert!(matches!(booted.carries, EmbeddedConfig::Config(name) if name.as_str() == "rendered-worker-a"));
    assert_eq!(staged.image, Some(image('2')));
    assert_eq!(staged.kargs, Karg::split("rw a=1 b=\"x y\" a=1"));
    // CRA-003: all of it is there; the daemon is not asked for anything more.
    stage(&backend, &request).await.unwrap();
    assert_eq!(bench.log().await, Vec::<String>::new());
}

/// The daemon reads all deployments at each observation: before the transaction, and once after it.
#[tokio::test(flavor = "current_thread")]
async fn switch_reads_deployments_once_after_its_transaction() {
    let bench = Bench::new(&json!([booted('1')]));
    fs::create_dir_all(bench.dir.path().join("ostree/deploy")).unwrap();
    let backend = bench.backend();
    assert_eq!(staged(&backend).await, None);
    assert_eq!(bench.reloads().await, 1);
    stage(&backend, &wants('2')).await.unwrap();
    assert_eq!(staged(&backend).await, Some(image('2')));
    backend.ensure_finalizable().await.unwrap();
    // The daemon has looked before it reported the end.
    assert_eq!(bench.reloads().await, 1);
    // Another program stages: that is looked at.
    stage(&bench.backend(), &wants('3')).await.unwrap();
    assert_eq!(staged(&backend).await, Some(image('3')));
}

/// A daemon that does not start keeps no image's properties from being read.
#[tokio::test(flavor = "current_thread")]
async fn preflight_does_not_wait_for_daemon() {
    let bench = Bench::new(&json!([booted('1')]));
    bench.faults(json!({"masked": true})).await;
    let error = bench.backend().preflight(&image('2'), None).await.unwrap_err();
    assert!(!error.to_string().contains("masked"), "{error}");
}

/// CRA-003: the agent ended between the image and its arguments: the image is not pulled again.
#[tokio::test(flavor = "current_thread")]
async fn update_continues_where_it_was() {
    let bench = Bench::new(&json!([with('2', json!({"staged": true})), booted('1')]));
    let request = StageRequest { append_kargs: Karg::split("a=1"), ..wants('2') };
    stage(&bench.backend(), &request).await.unwrap();
    assert_eq!(bench.log().await, ["KernelArgs"]);
}

/// MCD-191: the booted image is not asked for, also when a mirror's name is given (OST-009).
#[tokio::test(flavor = "current_thread")]
async fn booted_image_is_not_staged() {
    let bench = Bench::new(&json!([booted('1')]));
    let mirror = image('1').to_string().replace("r.test", "mirror.test");
    let request = StageRequest { image: Some(ImageRef::parse(&mirror).unwrap()), ..StageRequest::default() };
    stage(&bench.backend(), &request).await.unwrap();
    assert_eq!(bench.log().await, Vec::<String>::new());
}

/// OST-007, MCD-187: a pending deployment of an earlier attempt is dropped first.
#[tokio::test(flavor = "current_thread")]
async fn other_pending_deployments_are_dropped_first() {
    let bench = Bench::new(&json!([with('3', json!({"staged": true})), booted('1')]));
    stage(&bench.backend(), &wants('2')).await.unwrap();
    assert_eq!(bench.log().await, ["Cleanup", "UpdateDeployment"]);
    bench.backend().unstage(&|_| {}).await.unwrap();
    bench.backend().unstage(&|_| {}).await.unwrap();
    assert_eq!(bench.log().await, ["Cleanup"], "once: nothing is left to drop");
    assert_eq!(staged(&bench.backend()).await, None);
}

/// OST-002: a transaction of another client is waited for and named; then the agent goes on.
#[tokio::test(flavor = "current_thread")]
async fn other_transactions_are_awaited() {
    let bench = Bench::new(&json!([booted('1')]));
    bench.faults(json!({"hold": true})).await;
    let _client = bench.foreign().await;
    bench.faults(json!({})).await;
    let (told, waits) = (RefCell::new(Vec::new()), Notify::new());
    let progress = |step: OsProgress| {
        if step.text.starts_with("waiting for the rpm-ostree transaction") {
            waits.notify_one();
        }
        told.borrow_mut().push(step.text);
    };
    let (backend, request) = (bench.backend(), wants('2'));
    let release = async {
        waits.notified().await;
        bench.control("Release", &()).await;
    };
    let (done, ()) = tokio::join!(backend.stage(&request, &progress), release);
    assert_eq!(done.unwrap().image, Some(image('2')));
    let told = told.take();
    assert!(told[0].contains("\"rebase elsewhere\" of client(id:cli "), "{told:?}");
    assert_eq!(told.iter().filter(|text| text.starts_with("waiting")).count(), 1, "{told:?}");
    assert_eq!(bench.log().await, ["UpdateDeployment", "Cleanup", "UpdateDeployment"]);
}

/// OST-003: the daemon dies in the middle, or its name leaves the bus: reported at once, and another attempt succeeds.
#[tokio::test(flavor = "current_thread")]
async fn rpm_ostreed_exit_fails_stage() {
    for fault in ["die", "drop-name", "die-after"] {
        let deployments = json!([booted('1')]);
        let mut bench = Bench::new(&deployments);
        bench.faults(json!({fault: true, "hold": fault == "drop-name"})).await;
        let backend = bench.backend();
        let error = stage(&backend, &wants('2')).await.unwrap_err();
        assert_eq!(
            (error.reason(), error.class()),
            ("RpmOstreeDaemonLost", FaultClass::Retry),
            "{fault}: {error}"
        );
        assert!(error.to_string().contains("in the middle of UpdateDeployment"), "{error}");
        bench.restart(&deployments);
        stage(&backend, &wants('2')).await.unwrap();
    }
}

/// OST-004: another image than the desired one is staged: an error, and it is dropped.
#[tokio::test(flavor = "current_thread")]
async fn staged_digest_is_checked() {
    let bench = Bench::new(&json!([booted('1')]));
    bench.faults(json!({"wrong": reference('5')})).await;
    let error = stage(&bench.backend(), &wants('2')).await.unwrap_err();
    assert_eq!((error.reason(), error.class()), ("WrongImageStaged", FaultClass::Retry), "{error}");
    assert!(error.to_string().contains(&image('5').to_string()), "{error}");
    assert_eq!(staged(&bench.backend()).await, None);
    assert_eq!(bench.log().await, ["UpdateDeployment", "Cleanup"]);
}

/// OST-005: the daemon's message is in the error, sorted by kind. MCD-190: by class it is tried again.
#[tokio::test(flavor = "current_thread")]
async fn failure_keeps_daemons_message() {
    let bench = Bench::new(&json!([booted('1')]));
    for (text, reason, class) in [
        (
            "reading manifest v1 in r.test/os: authentication required",
            "ImagePullUnauthorized",
            FaultClass::Retry,
        ),
        (
            "pinging container registry r.test: dial tcp: connection refused",
            "ImagePullFailed",
            FaultClass::Retry,
        ),
        ("reading manifest: manifest unknown", "ImageNotFound", FaultClass::Degraded),
        ("Importing: No space left on device", "DiskFull", FaultClass::Retry),
        ("Packages not found: cowsay", "PackageNotStaged", FaultClass::Degraded),
        ("something odd", "RpmOstreeFailed", FaultClass::Retry),
    ] {
        bench.faults(json!({"fail": text})).await;
        let error = stage(&bench.backend(), &wants('2')).await.unwrap_err();
        assert_eq!((error.reason(), error.class()), (reason, class), "{error}");
        assert!(error.to_string().contains(text), "{error}");
        assert!(error.to_string().contains(&image('2').to_string()), "{error}");
        let missing = reason == "ImageNotFound";
        assert_eq!(error.to_string().contains("the registry has no such image: "), missing, "{error}");
        // The command works as it is written.
        let command = format!("skopeo inspect docker://{}", image('2'));
        let of_registry = missing || reason.starts_with("ImagePull");
        assert_eq!(error.next().contains(&command), of_registry, "{}", error.next());
    }
}

/// MCD-187: a failure after the image was staged leaves nothing pending.
#[tokio::test(flavor = "current_thread")]
async fn failed_step_drops_staged_deployment() {
    let bench = Bench::new(&json!([booted('1')]));
    bench.faults(json!({"fail": "no", "fail-only": "KernelArgs"})).await;
    let request = StageRequest { append_kargs: Karg::split("a=1"), ..wants('2') };
    stage(&bench.backend(), &request).await.unwrap_err();
    assert_eq!(bench.log().await, ["UpdateDeployment", "KernelArgs", "Cleanup"]);
    assert_eq!(staged(&bench.backend()).await, None);
}

/// OST-011: an operation that is not desired any more is cancelled, and nothing is left pending.
#[tokio::test(flavor = "current_thread")]
async fn abandoned_work_is_cancelled() {
    let bench = Bench::new(&json!([booted('1')]));
    bench.faults(json!({"hold": true})).await;
    begun(&bench).await;
    bench.backend().abandon().await.unwrap();
    bench.backend().abandon().await.unwrap();
    assert_eq!(staged(&bench.backend()).await, None);
    assert_eq!(bench.log().await, ["UpdateDeployment"]);
    bench.faults(json!({})).await;
    stage(&bench.backend(), &wants('2')).await.unwrap();
    // Too late to be cancelled: dropped.
    bench.backend().abandon().await.unwrap();
    assert_eq!(staged(&bench.backend()).await, None);
}

/// Begins to stage, and forgets it in the middle.
async fn begun(bench: &Bench) {
    let begun = Rc::new(Notify::new());
    let (backend, request) = (bench.backend(), wants('2'));
    let progress = |step: OsProgress| {
        if step.text.starts_with("Pulling manifest") {
            begun.notify_one();
        }
    };
    tokio::select! {
        // Dropped in the middle, which is what is tested.
        done = backend.stage(&request, &progress) => panic!("{done:?}"),
        () = begun.notified() => {}
    }
}

/// OST-011: transactions of others are none of the agent's business.
#[tokio::test(flavor = "current_thread")]
async fn abandoning_leaves_others_alone() {
    let bench = Bench::new(&json!([booted('1')]));
    bench.faults(json!({"hold": true})).await;
    let _client = bench.foreign().await;
    bench.backend().abandon().await.unwrap();
    let waits = Notify::new();
    let (backend, request) = (bench.backend(), wants('9'));
    let progress = |step: OsProgress| {
        if step.text.starts_with("waiting") {
            waits.notify_one();
        }
    };
    let release = async {
        waits.notified().await;
        bench.control("Release", &()).await;
    };
    let (done, ()) = tokio::join!(backend.stage(&request, &progress), release);
    assert_eq!(done.unwrap().image, Some(image('9')));
    assert_eq!(bench.log().await, ["UpdateDeployment"], "what the other one staged is what is desired");
}

/// OST-001, CRA-003: an agent that ends in the middle stops nothing, and the next one joins.
#[tokio::test(flavor = "current_thread")]
async fn next_agent_joins() {
    let bench = Bench::new(&json!([booted('1')]));
    bench.faults(json!({"hold": true})).await;
    begun(&bench).await;
    let (backend, request) = (bench.backend(), wants('2'));
    // The same call, byte by byte, joins; any other one would have to wait.
    let progress = |step: OsProgress| assert!(!step.text.starts_with("waiting"), "{}", step.text);
    let release = async {
        bench.control("Joined", &()).await;
        bench.control("Release", &()).await;
    };
    let (done, ()) = tokio::join!(backend.stage(&request, &progress), release);
    assert_eq!(done.unwrap().image, Some(image('2')));
    assert_eq!(bench.log().await, ["UpdateDeployment"]);
}

/// The daemon leaves the bus when it is idle: greeted once more, it is there; one that never answers is an error.
#[tokio::test(flavor = "current_thread")]
async fn exited_daemon_is_started_again() {
    let bench = Bench::new(&json!([booted('1')]));
    bench.faults(json!({"no-reply": 1})).await;
    stage(&bench.backend(), &wants('2')).await.unwrap();
    bench.faults(json!({"no-reply": 9})).await;
    let error = bench.backend().observe().await.unwrap_err();
    assert_eq!((error.reason(), error.class()), ("RpmOstreeDaemonLost", FaultClass::Retry), "{error}");
    // It can't be started on this bus.
    let client = bench.client().await;
    client.call_method(Some(NAME), "/double", Some("double.Control"), "Leave", &()).await.unwrap();
    let error = bench.backend().observe().await.unwrap_err();
    assert_eq!(error.reason(), "RpmOstreeDaemonLost", "{error}");
}

/// bootc or ostree holds the sysroot: the daemon answers with that error.
#[tokio::test(flavor = "current_thread")]
async fn locked_sysroot_is_retried() {
    let bench = Bench::new(&json!([booted('1')]));
    bench.faults(json!({"sysroot-busy": true})).await;
    let error = stage(&bench.backend(), &wants('2')).await.unwrap_err();
    assert_eq!((error.reason(), error.class()), ("SysrootBusy", FaultClass::Retry), "{error}");
}

#[tokio::test(flavor = "current_thread")]
async fn talkative_transaction_is_heard_to_its_end() {
    let bench = Bench::new(&json!([booted('1')]));
    bench.faults(json!({"chatter": 2000})).await;
    let told = stage(&bench.backend(), &wants('2')).await.unwrap();
    assert_eq!(told.iter().filter(|text| text.starts_with("remark")).count(), 2000);
}

fn layers(kernel: KernelType, extensions: &[&str]) -> Layers {
    Layers { kernel, extensions: extensions.iter().map(|name| (*name).to_owned()).collect() }
}

/// MCD-195, MCD-199: image, kernel and extensions are one transaction. MCD-198: back to the image's kernel is a reset.
#[tokio::test(flavor = "current_thread")]
async fn kernel_and_extensions_come_with_image() {
    let bench = Bench::new(&json!([booted('1')]));
    bench.repository();
    let layered = StageRequest { layers: Some(layers(KernelType::Realtime, &["usbguard"])), ..wants('2') };
    stage(&bench.backend(), &layered).await.unwrap();
    assert_eq!(bench.log().await, ["UpdateDeployment"]);
    stage(&bench.backend(), &layered).await.unwrap();
    assert_eq!(bench.log().await, Vec::<String>::new(), "it is all there");

    let switched = json!({
        "booted": true, "packages": ["kernel-rt-core", "kernel-rt-modules", "kernel-rt-modules-extra", "vim"],
        "removals": ["kernel", "kernel-core", "kernel-modules", "kernel-modules-core", "kernel-modules-extra"],
    });
    let bench = Bench::new(&json!([with('1', switched)]));
    bench.repository();
    let back = StageRequest { layers: Some(layers(KernelType::Default, &[])), ..StageRequest::default() };
    stage(&bench.backend(), &back).await.unwrap();
    assert_eq!(bench.log().await, ["UpdateDeployment"]);
    let ObservedOs::Deployments { booted, .. } = bench.backend().observe().await.unwrap() else { panic!() };
    assert!(booted.local.requested.contains("vim") && booted.local.removed.contains("kernel"));
}

/// An image of packages, as a directory of the host.
fn packages(root: &Path) -> ImageRef {
    let (tree, blobs) = (root.join("tree"), root.join("srv/packages/blobs/sha256"));
    let repodata = tree.join("usr/share/rpm-ostree/extensions/repodata");
    fs::create_dir_all(&repodata).unwrap();
    fs::create_dir_all(&blobs).unwrap();
    fs::write(repodata.join("repomd.xml"), "<repomd/>").unwrap();
    let layer = root.join("layer");
    let made = Command::new("tar").arg("-cf").arg(&layer).arg("-C").arg(&tree).arg("usr").status().unwrap();
    assert!(made.success());
    let put = |bytes: Vec<u8>| {
        let digest = Contents::new(bytes.clone()).sha256();
        fs::write(blobs.join(digest.to_string()), bytes).unwrap();
        digest
    };
    let layer = put(fs::read(layer).unwrap());
    let manifest = put(json!({"layers": [{"digest": format!("sha256:{layer}")}]}).to_string().into_bytes());
    ImageRef::parse(&format!("oci:/srv/packages@sha256:{manifest}")).unwrap()
}

/// MCD-203: rpm-ostree finds the packages while it works; after success and after failure they are gone.
#[tokio::test(flavor = "current_thread")]
async fn packages_stay_while_needed() {
    let bench = Bench::new(&json!([booted('1')]));
    let repository = bench.dir.path().join("etc/yum.repos.d/coreos-extensions.repo");
    let extensions_image = Some(packages(bench.dir.path()));
    let layers = Some(layers(KernelType::Default, &["usbguard"]));
    let request = StageRequest { layers, extensions_image, ..wants('2') };
    for (faults, works) in [(json!({"fail": "no"}), false), (json!({}), true)] {
        bench.faults(faults).await;
        let there = RefCell::new(Vec::new());
        let look = |step: OsProgress| {
            if step.text.starts_with("Pulling manifest") {
                there.borrow_mut().push(repository.exists());
            }
        };
        assert_eq!(bench.backend().stage(&request, &look).await.is_ok(), works);
        assert_eq!(*there.borrow(), [true]);
        assert!(!repository.exists());
    }
}

/// MCD-201: a package that was asked for is not in the staged deployment: an error, and it is dropped.
#[tokio::test(flavor = "current_thread")]
async fn missing_packages_are_noticed() {
    let bench = Bench::new(&json!([booted('1')]));
    bench.faults(json!({"forget-packages": true})).await;
    let request = StageRequest { layers: Some(layers(KernelType::Default, &["usbguard"])), ..wants('2') };
    let error = stage(&bench.backend(), &request).await.unwrap_err();
    assert_eq!(error.reason(), "PackageNotStaged", "{error}");
    assert!(error.to_string().contains("missing from the staged deployment: usbguard"), "{error}");
    assert_eq!(bench.log().await, ["UpdateDeployment", "Cleanup"]);
    assert_eq!(staged(&bench.backend()).await, None);
}

/// Into image mode: a request that stays would need a repository, or break the next change of arguments. With an image
/// that holds the package, and with one that does not.
#[tokio::test(flavor = "current_thread")]
async fn image_mode_drops_requests_of_extensions() {
    for held in [&["usbguard"][..], &[]] {
        let extended = with('1', json!({"booted": true, "packages": ["usbguard"]}));
        let bench = Bench::new(&json!([extended]));
        bench.faults(json!({"images": {reference('2'): held}})).await;
        let into = StageRequest { layers: Some(layers(KernelType::Default, &[])), ..wants('2') };
        stage(&bench.backend(), &into).await.unwrap();
        assert_eq!(bench.log().await, ["UpdateDeployment"], "the image and the packages in one");
        let more = StageRequest { append_kargs: Karg::split("a=1"), ..into };
        stage(&bench.backend(), &more).await.unwrap();
    }
}

/// The real daemon's reaction to a request that stays, as seen on 2026.2: a double without it shows nothing.
#[tokio::test(flavor = "current_thread")]
async fn remaining_requests_fail_as_in_rpm_ostree() {
    let extended = with('1', json!({"booted": true, "packages": ["usbguard"]}));
    let bench = Bench::new(&json!([extended]));
    let error = stage(&bench.backend(), &wants('2')).await.unwrap_err();
    assert_eq!((error.reason(), error.class()), ("NoRepositories", FaultClass::Retry), "{error}");
    assert!(error.to_string().contains("No enabled repositories"), "{error}");
    assert!(error.next().contains("rpm-ostree uninstall"), "{}", error.next());
    bench.faults(json!({"images": {reference('2'): ["usbguard"]}})).await;
    let request = StageRequest { append_kargs: Karg::split("a=1"), ..wants('2') };
    let error = stage(&bench.backend(), &request).await.unwrap_err();
    assert!(error.to_string().contains("No packages in transaction"), "{error}");
}

/// A masked daemon has not ended: it is named, with what unmasks it.
#[tokio::test(flavor = "current_thread")]
async fn masked_daemon_is_named() {
    let bench = Bench::new(&json!([booted('1')]));
    bench.faults(json!({"masked": true})).await;
    let error = stage(&bench.backend(), &wants('2')).await.unwrap_err();
    assert_eq!((error.reason(), error.class()), ("RpmOstreeMasked", FaultClass::Retry), "{error}");
    assert!(error.to_string().contains("rpm-ostreed.service is masked"), "{error}");
    assert!(error.next().contains("systemctl unmask rpm-ostreed.service"), "{}", error.next());
}

/// OST-012: the old deployment goes when it is asked to, and only where there is one.
#[tokio::test(flavor = "current_thread")]
async fn rollback_is_kept_until_it_is_dropped() {
    let bench = Bench::new(&json!([booted('2'), deployment('1')]));
    stage(&bench.backend(), &wants('3')).await.unwrap();
    assert_eq!(bench.log().await, ["UpdateDeployment"], "staging keeps it");
    bench.backend().drop_rollback(&|_| {}).await.unwrap();
    assert_eq!(bench.log().await, Vec::<String>::new(), "the finalization will");
    bench.backend().unstage(&|_| {}).await.unwrap();
    bench.log().await;
    bench.backend().drop_rollback(&|_| {}).await.unwrap();
    bench.backend().drop_rollback(&|_| {}).await.unwrap();
    assert_eq!(bench.log().await, ["Cleanup"]);
}

/// Manual changes of a host are observed: packages, and another deployment for the next boot.
#[tokio::test(flavor = "current_thread")]
async fn manual_changes_are_observed() {
    let local = format!("{}:cowsay-3.0-1.noarch", "c".repeat(64));
    let changed = with(
        '2',
        json!({"booted": true, "packages": ["vim"], "local-packages": [local], "removals": ["nano"]}),
    );
    let bench = Bench::new(&json!([deployment('1'), changed]));
    let ObservedOs::Deployments { booted, staged: None, next: Some(next) } =
        bench.backend().observe().await.unwrap()
    else {
        panic!()
    };
    assert_eq!(next.image, Some(image('1')));
    assert_eq!(booted.local.requested.iter().collect::<Vec<_>>(), ["cowsay-3.0-1.noarch", "vim"]);
    assert!(booted.local.removed.contains("nano"));
}

/// The changes beside a staging wait for the transaction of another client, too: each names it, then goes on.
#[tokio::test(flavor = "current_thread")]
async fn other_transactions_are_awaited_by_each_change() {
    for (change, deployments, asked) in [
        ("unstage", json!([with('3', json!({"staged": true})), booted('1')]), "Cleanup"),
        ("drop_rollback", json!([booted('2'), deployment('1')]), "Cleanup"),
        ("set_default", json!([booted('2'), deployment('1')]), "Rollback"),
    ] {
        let bench = Bench::new(&deployments);
        // It ends with nothing done.
        bench.faults(json!({"hold": true, "fail": "canceled"})).await;
        let _client = bench.foreign().await;
        bench.faults(json!({})).await;
        let (told, waits) = (RefCell::new(Vec::new()), Notify::new());
        let progress = |step: OsProgress| {
            if let Some(what) = step.waits_for() {
                told.borrow_mut().push(what.to_owned());
                waits.notify_one();
            }
        };
        let backend = bench.backend();
        let ObservedOs::Deployments { booted, .. } = backend.observe().await.unwrap() else {
            panic!("{change}")
        };
        let first = booted.deployment.replace('2', "1");
        let release = async {
            waits.notified().await;
            bench.control("Release", &()).await;
        };
        let work = match change {
            "unstage" => backend.unstage(&progress),
            "drop_rollback" => backend.drop_rollback(&progress),
            _ => backend.set_default_deployment(&first, &progress),
        };
        let (done, ()) = tokio::join!(work, release);
        done.unwrap_or_else(|error| panic!("{change}: {error}"));
        let told = told.take();
        assert!(told.len() == 1 && told[0].contains("\"rebase elsewhere\" of client(id:cli "), "{told:?}");
        assert_eq!(bench.log().await, ["UpdateDeployment", asked], "{change}");
    }
}
