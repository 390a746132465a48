//! Accounts and groups, by the real useradd, usermod and groupadd: made, changed, left, interrupted at every point, undone.

#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a child process plays the one that dies"
)]

use super::*;
use crate::host::account_obstacles;
use crate::host::account_records::AccountRecords;
use crate::host::accounts::{self, Accounts};
use crate::host::durable::Attempt;
use crate::model::users::Group;

const ROOT: &str = "MCA_TEST_ACCOUNTS_ROOT";
const KILL: &str = "MCA_TEST_ACCOUNTS_KILL";
const KEYS: &str = ".ssh/authorized_keys.d/ignition";

/// A host with an account of its own, which has keys, and shadowed groups.
fn accounts_fixture(at: &Path) {
    fixture(at);
    let write = |path: &str, text: &str| {
        let path = at.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    write(
        "etc/passwd",
        "root:x:0:0::/root:/bin/sh\nguest:x:1100:1100:The guest:/home/guest:/bin/bash\nlast:x:1200:1200::/:/bin/sh\n",
    );
    write("etc/group", "root:x:0:\nguest:x:1100:\nwheel:x:10:last\nsudo:x:27:guest,last\nlast:x:1200:\n");
    write("etc/gshadow", "root:*::\nguest:!::\nwheel:*::last\nsudo:*::guest,last\nlast:!::\n");
    write("usr/lib/group", "docker:x:900:svc\nchrony:x:989:\n");
    write("etc/shadow", "root:!:1::::::\nguest:$6$own:19000:0:99999:7:::\nlast:!:1::::::\n");
    write("etc/subuid", "guest:100000:65536\n");
    write("etc/subgid", "guest:100000:65536\n");
    let home = at.join("var/home/guest");
    let keys = home.join(KEYS);
    fs::create_dir_all(keys.parent().unwrap()).unwrap();
    fs::write(&keys, "ssh-ed25519 OWN guest\n").unwrap();
    for path in [home.clone(), home.join(".ssh"), keys.parent().unwrap().to_owned(), keys] {
        let mode = if path.is_dir() { 0o700 } else { 0o600 };
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        std::os::unix::fs::chown(&path, Some(1100), Some(1100)).unwrap();
    }
}

fn name(text: &str) -> UserName {
    UserName::new(text).unwrap()
}

fn with_accounts() -> HostSpec {
    let mut to = spec("rendered-accounts");
    let key = |text: &str| vec![SshKey::new(format!("ssh-ed25519 {text}")).unwrap()];
    let groups = |list: &[&str]| list.iter().map(|&one| one.to_owned()).collect();
    let app = Account {
        uid: Some(1500),
        gecos: Some("The app, no".to_owned()),
        shell: Some("/bin/sh".to_owned()),
        groups: groups(&["docker", "staff", "wheel"]),
        keys: key("APP"),
        password: PasswordHash::new("$6$app"),
        ..Account::default()
    };
    let guest = Account {
        gecos: Some("Managed".to_owned()),
        shell: Some("/bin/zsh".to_owned()),
        groups: groups(&["docker", "staff", "sudo"]),
        keys: key("GUEST"),
        password: PasswordHash::new("$6$guest"),
        ..Account::default()
    };
    to.users.accounts.extend([(name("app"), app), (name("guest"), guest)]);
    let staff = Group { gid: Some(1600), password: PasswordHash::new("$6$staff"), ..Group::default() };
    to.users.groups.insert(name("staff"), staff);
    to.files.insert(path("/etc/app.conf"), file("of the app\n", 0o640, "app"));
    to
}

fn brought() -> Vec<(Batch, Vec<Step>)> {
    let accounts = steps(vec![
        Op::CreateGroup { group: name("staff") },
        Op::CreateUser { user: name("app") },
        Op::ModifyUser { user: name("guest") },
    ]);
    let files = steps(vec![Op::WriteFile { path: path("/etc/app.conf") }]);
    let users = steps(vec![keys_of("app"), password_of("app"), keys_of("guest"), password_of("guest")]);
    vec![(Batch::Accounts, accounts), (Batch::Files, files), (Batch::Users, users)]
}

fn left() -> Vec<(Batch, Vec<Step>)> {
    let accounts = steps(vec![Op::ModifyUser { user: name("app") }, Op::ModifyUser { user: name("guest") }]);
    let files = steps(vec![Op::RemoveFile { path: path("/etc/app.conf") }]);
    let users = steps(vec![
        Op::LockUser { user: name("app") },
        keys_of("guest"),
        password_of("guest"),
        Op::RemoveGroup { group: name("staff") },
    ]);
    vec![(Batch::Accounts, accounts), (Batch::Files, files), (Batch::Users, users)]
}

/// Applies batches of an update whose originals begin at `first`.
async fn carry(host: &Host, from: &HostSpec, to: &HostSpec, batches: &[(Batch, Vec<Step>)], first: usize) {
    for (index, (batch, steps)) in batches.iter().enumerate() {
        let work = Work::Apply { batch: *batch, steps };
        let intent = Intent::for_tests(work, from, to, originals(first + index));
        apply(&intent, host, &|_| {}).await.unwrap();
    }
}

async fn take_back(
    host: &Host,
    from: &HostSpec,
    to: &HostSpec,
    batches: &[(Batch, Vec<Step>)],
    first: usize,
) {
    for (index, (_, steps)) in batches.iter().enumerate().rev() {
        let undo = Undo::RestoreOriginals { batch: first + index };
        let intent = Intent::for_tests(Work::Undo { undo: &undo, steps }, from, to, originals(first + index));
        apply(&intent, host, &|_| {}).await.unwrap();
    }
}

async fn bring(host: &Host) {
    carry(host, &spec("rendered-old"), &with_accounts(), &brought(), 0).await;
}

async fn undo_bring(host: &Host) {
    take_back(host, &spec("rendered-old"), &with_accounts(), &brought(), 0).await;
}

fn read(at: &Path, path: &str) -> String {
    fs::read_to_string(at.join(path)).unwrap()
}

fn line(at: &Path, path: &str, name: &str) -> String {
    let text = read(at, path);
    text.lines().find(|line| line.starts_with(&format!("{name}:"))).unwrap_or_default().to_owned()
}

/// A line that was gone comes back at the end of its database: their order means nothing.
fn state(at: &Path) -> BTreeMap<PathBuf, Shape> {
    let mut shapes = shapes(at);
    for shape in shapes.values_mut() {
        let mut lines: Vec<&str> = shape.what.lines().collect();
        lines.sort_unstable();
        shape.what = lines.join("\n");
    }
    shapes
}

#[tokio::test(flavor = "current_thread")]
async fn accounts_are_made_changed_and_undone() {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path();
    accounts_fixture(at);
    let before = state(at);
    let host = host(at, FailPoints::off());
    bring(&host).await;
    assert_eq!(line(at, "etc/passwd", "app"), "app:x:1500:1500:The app, no:/home/app:/bin/sh");
    assert_eq!(line(at, "etc/passwd", "guest"), "guest:x:1100:1100:Managed:/home/guest:/bin/zsh");
    assert_eq!(line(at, "etc/group", "staff"), "staff:x:1600:app,guest");
    assert_eq!(line(at, "etc/group", "wheel"), "wheel:x:10:last,app");
    assert_eq!(
        line(at, "etc/group", "docker"),
        "docker:x:900:svc,app,guest",
        "a group of the image is copied"
    );
    assert_eq!(line(at, "etc/group", "chrony"), "", "one that has no member of the config is not");
    assert_eq!(line(at, "etc/group", "sudo"), "sudo:x:27:guest,last", "a membership of the host's stays");
    assert!(line(at, "etc/gshadow", "staff").starts_with("staff:$6$staff:"));
    assert!(line(at, "etc/shadow", "app").starts_with("app:$6$app:"));
    assert!(line(at, "etc/shadow", "guest").starts_with("guest:$6$guest:19000:"));
    for user in ["app", "guest"] {
        let keys = at.join(format!("var/home/{user}/{KEYS}"));
        assert_eq!(fs::read_to_string(&keys).unwrap(), format!("ssh-ed25519 {}\n", user.to_uppercase()));
        assert_eq!(fs::metadata(&keys).unwrap().permissions().mode() & 0o7777, 0o600);
    }
    assert_eq!(fs::metadata(at.join("etc/app.conf")).unwrap().uid(), 1500, "a file of the account made here");
    let records = read(at, "var/lib/machine-config-agent/accounts.json");
    assert!(!records.contains("begun") && records.contains("\"app\""), "{records}");

    let (after, written) = (state(at), traces(at));
    bring(&host).await;
    assert_eq!(traces(at), written, "a second run writes nothing");
    undo_bring(&host).await;
    assert_eq!(state(at), before);
    assert!(!at.join("var/home/app").exists(), "the home goes with the account that was made for it");
    undo_bring(&host).await;
    bring(&host).await;
    assert_eq!(state(at), after);
}

#[tokio::test(flavor = "current_thread")]
async fn what_leaves_config_is_locked_or_as_before() {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path();
    accounts_fixture(at);
    let guest = ["etc/passwd", "etc/group", "etc/gshadow"].map(|path| line(at, path, "guest"));
    let host = host(at, FailPoints::off());
    bring(&host).await;
    let managed = state(at);
    let (from, to) = (with_accounts(), spec("rendered-without"));
    carry(&host, &from, &to, &left(), 10).await;
    assert_eq!(["etc/passwd", "etc/group", "etc/gshadow"].map(|path| line(at, path, "guest")), guest);
    assert_eq!(line(at, "etc/shadow", "guest"), "guest:$6$own:19000:0:99999:7:::");
    assert_eq!(read(at, &format!("var/home/guest/{KEYS}")), "ssh-ed25519 OWN guest\n");
    let shadow = line(at, "etc/shadow", "app");
    assert!(shadow.starts_with("app:*:") && shadow.split(':').nth(7) == Some("1"), "{shadow}");
    assert!(at.join("var/home/app").is_dir() && !at.join(format!("var/home/app/{KEYS}")).exists());
    assert_eq!(
        (line(at, "etc/group", "staff"), line(at, "etc/gshadow", "staff")),
        (String::new(), String::new())
    );
    assert_eq!(line(at, "etc/group", "wheel"), "wheel:x:10:last");
    assert_eq!(line(at, "etc/group", "docker"), "", "the image's own counts again");

    take_back(&host, &from, &to, &left(), 10).await;
    assert_eq!(state(at), managed, "what left comes back");
    carry(&host, &from, &to, &left(), 20).await;
    // Listed again: the account is opened, not made.
    let again = vec![
        (
            Batch::Accounts,
            steps(vec![Op::CreateGroup { group: name("staff") }, Op::ModifyUser { user: name("app") }]),
        ),
        (Batch::Users, steps(vec![keys_of("app"), password_of("app")])),
    ];
    carry(&host, &to, &from, &again, 30).await;
    let shadow = line(at, "etc/shadow", "app");
    assert!(shadow.starts_with("app:$6$app:") && shadow.split(':').nth(7) == Some(""), "{shadow}");
    assert_eq!(line(at, "etc/group", "staff"), "staff:x:1600:app");
}

/// A root in a directory must not lead the host's programs to the machine's own accounts.
#[tokio::test(flavor = "current_thread")]
async fn database_behind_link_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path();
    accounts_fixture(at);
    let elsewhere = tempfile::tempdir().unwrap();
    fs::rename(at.join("etc/group"), elsewhere.path().join("group")).unwrap();
    let own = fs::read_to_string(elsewhere.path().join("group")).unwrap();
    std::os::unix::fs::symlink(elsewhere.path().join("group"), at.join("etc/group")).unwrap();
    let host = host(at, FailPoints::off());
    let (from, to) = (spec("rendered-old"), with_accounts());
    let (batch, steps) = &brought()[0];
    let intent = Intent::for_tests(Work::Apply { batch: *batch, steps }, &from, &to, originals(0));
    let error = apply(&intent, &host, &|_| {}).await.unwrap_err();
    assert_eq!(error.reason(), "UnexpectedKind", "{error}");
    assert_eq!(fs::read_to_string(elsewhere.path().join("group")).unwrap(), own);
}

/// Not a test of its own: the child of the next one.
#[tokio::test(flavor = "current_thread")]
#[ignore = "a child process of `accounts_recover_from_kill_at_every_fail_point`"]
async fn accounts_child() {
    let (root, kill) = (std::env::var(ROOT).unwrap(), std::env::var(KILL).unwrap());
    bring(&host(Path::new(&root), FailPoints::parse(&kill).unwrap())).await;
}

#[tokio::test(flavor = "current_thread")]
async fn accounts_recover_from_kill_at_every_fail_point() {
    let straight = tempfile::tempdir().unwrap();
    accounts_fixture(straight.path());
    let before = state(straight.path());
    let counted = host(straight.path(), FailPoints::parse("count").unwrap());
    bring(&counted).await;
    let (after, count) = (state(straight.path()), counted.fail_points.count());
    assert!(count > 20, "{count}");
    for number in 1..=count {
        let dir = tempfile::tempdir().unwrap();
        accounts_fixture(dir.path());
        let child = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "apply::tests::accounts::accounts_child", "--ignored", "--quiet"])
            .envs([(ROOT, dir.path().to_str().unwrap()), (KILL, &format!("kill:{number}"))])
            .output()
            .unwrap();
        assert!(!child.status.success(), "point {number} was not reached");
        let again = host(dir.path(), FailPoints::off());
        if number % 2 == 0 {
            bring(&again).await;
            assert_eq!(state(dir.path()), after, "carried out again after point {number}");
        }
        undo_bring(&again).await;
        assert_eq!(state(dir.path()), before, "taken back after point {number}");
        assert!(!dir.path().join("var/home/app").exists(), "a home stays after point {number}");
    }
}

/// useradd was killed between two of its files: half an account is there, and the record says that it was begun.
#[tokio::test(flavor = "current_thread")]
async fn half_account_is_made_again() {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path();
    accounts_fixture(at);
    let straight = tempfile::tempdir().unwrap();
    accounts_fixture(straight.path());
    bring(&host(straight.path(), FailPoints::off())).await;
    let before = state(at);
    let half = |at: &Path| {
        let mut passwd = read(at, "etc/passwd");
        passwd.push_str("app:x:1500:1500:The app, no:/home/app:/bin/sh\n");
        fs::write(at.join("etc/passwd"), passwd).unwrap();
        let records =
            r#"{"schemaVersion":1,"users":{"app":{"maker":"begun"}},"groups":{"staff":{"maker":"agent"}}}"#;
        fs::write(at.join("var/lib/machine-config-agent/accounts.json"), records).unwrap();
    };
    let child = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "apply::tests::accounts::accounts_child", "--ignored", "--quiet"])
        .envs([(ROOT, at.to_str().unwrap()), (KILL, "kill:2")])
        .output()
        .unwrap();
    assert!(!child.status.success());
    half(at);
    let again = host(at, FailPoints::off());
    bring(&again).await;
    assert_eq!(state(at), state(straight.path()));
    undo_bring(&again).await;
    assert_eq!(state(at), before);
}

/// An account of this fixture that the agent made.
async fn made(at: &Path, account: Account) -> (Host, HostSpec) {
    accounts_fixture(at);
    let host = host(at, FailPoints::off());
    let mut to = spec("rendered-made");
    to.users.accounts.insert(name("app"), account);
    let create = vec![(Batch::Accounts, steps(vec![Op::CreateUser { user: name("app") }]))];
    carry(&host, &spec("rendered-old"), &to, &create, 0).await;
    (host, to)
}

fn is_of_agent(host: &Host) -> bool {
    AccountRecords::load_current(&host.root).unwrap().is_made("app")
}

fn run(program: &str, at: &Path, arguments: &[&str]) {
    let output =
        std::process::Command::new(program).args(["--prefix"]).arg(at).args(arguments).output().unwrap();
    assert!(output.status.success(), "{program} {arguments:?}: {output:?}");
}

/// The same name, the same id, the same home, on the same day: it is another account all the same.
#[tokio::test(flavor = "current_thread")]
async fn account_made_again_by_administrator_is_hosts() {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path();
    let (host, _) = made(at, Account::default()).await;
    let uid = Accounts::load(&host.root).unwrap().user("app").unwrap().uid.to_string();
    assert!(is_of_agent(&host));
    for change in [&["--comment=Other"][..], &["--shell=/bin/zsh"], &["--lock"], &["--expiredate=2030-01-01"]]
    {
        run("usermod", at, &[change, &["app"]].concat());
        assert!(is_of_agent(&host), "a change of the account is none of its identity: {change:?}");
    }
    accounts::set_password(
        &host.root,
        "app",
        &PasswordHash::new("$6$other").unwrap(),
        Attempt::First,
        &FailPoints::off(),
    )
    .unwrap();
    assert!(is_of_agent(&host));
    run("userdel", at, &["app"]);
    assert!(is_of_agent(&host), "nobody has made it again");
    run("useradd", at, &["--uid", &uid, "app"]);
    assert!(!is_of_agent(&host));
    run("userdel", at, &["app"]);
    run("useradd", at, &["--uid", "1777", "app"]);
    assert!(!is_of_agent(&host));
}

/// Records of earlier agents know no id.
#[tokio::test(flavor = "current_thread")]
async fn account_of_earlier_record_is_agents() {
    let dir = tempfile::tempdir().unwrap();
    let (host, _) = made(dir.path(), Account::default()).await;
    let earlier =
        r#"{"schemaVersion":1,"users":{"app":{"maker":"agent"}},"groups":{"sudo":{"maker":"agent"}}}"#;
    fs::write(dir.path().join("var/lib/machine-config-agent/accounts.json"), earlier).unwrap();
    assert!(is_of_agent(&host));
    let records = AccountRecords::load_current(&host.root).unwrap();
    assert!(records.is_group_made("sudo"));
    let other = earlier.replace(r#"{"sudo":{"maker":"agent"}}"#, r#"{"sudo":{"maker":"agent","gid":1}}"#);
    fs::write(dir.path().join("var/lib/machine-config-agent/accounts.json"), other).unwrap();
    assert!(
        !AccountRecords::load_current(&host.root).unwrap().is_group_made("sudo"),
        "another id: made again"
    );
}

/// Whatever an entry had before, or that it was locked meanwhile: the account is as one that is made from the entry now.
#[tokio::test(flavor = "current_thread")]
async fn attributes_follow_from_entry_alone() {
    let straight = tempfile::tempdir().unwrap();
    let (_, plain) = made(straight.path(), Account { uid: Some(1500), ..Account::default() }).await;
    let expected = line(straight.path(), "etc/passwd", "app");
    let full = Account {
        uid: Some(1500),
        gecos: Some("The app".to_owned()),
        shell: Some("/bin/zsh".to_owned()),
        ..Account::default()
    };
    let modify = || vec![(Batch::Accounts, steps(vec![Op::ModifyUser { user: name("app") }]))];
    let lock = vec![(Batch::Users, steps(vec![Op::LockUser { user: name("app") }]))];
    for is_locked in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let (host, from) = made(dir.path(), full.clone()).await;
        assert_ne!(line(dir.path(), "etc/passwd", "app"), expected);
        if is_locked {
            carry(&host, &from, &spec("rendered-none"), &lock, 1).await;
            carry(&host, &spec("rendered-none"), &plain, &modify(), 2).await;
        } else {
            carry(&host, &from, &plain, &modify(), 1).await;
        }
        assert_eq!(line(dir.path(), "etc/passwd", "app"), expected, "locked: {is_locked}");
    }
}

/// Not a test of its own: it holds the lock of the accounts until its standard input ends.
#[test]
#[ignore = "a child process of `held_lock_of_accounts_is_seen`"]
fn lock_child() {
    let root = Root::open(Path::new(&std::env::var(ROOT).unwrap())).unwrap();
    let lock = accounts::lock(&root).unwrap();
    fs::write(std::env::var(KILL).unwrap(), "").unwrap();
    std::io::copy(&mut std::io::stdin(), &mut std::io::sink()).unwrap();
    drop(lock);
}

#[test]
fn held_lock_of_accounts_is_seen() {
    let dir = tempfile::tempdir().unwrap();
    accounts_fixture(dir.path());
    let root = Root::open(dir.path()).unwrap();
    let seen = || account_obstacles::password_lock(&root).unwrap();
    assert_eq!(seen(), None);
    assert!(!dir.path().join("etc/.pwd.lock").exists(), "a look makes no lock file");
    let mut child = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "apply::tests::accounts::lock_child", "--ignored", "--quiet"])
        .envs([(ROOT, dir.path().join("")), (KILL, dir.path().join("held"))])
        .stdin(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    while !dir.path().join("held").exists() {
        assert!(child.try_wait().unwrap().is_none(), "it ended");
        std::thread::yield_now();
    }
    let told = seen().unwrap();
    assert!(told.cause.contains(&format!("process {}", child.id())), "{told:?}");
    drop(child.stdin.take());
    child.wait().unwrap();
    assert_eq!(seen(), None);
}

/// Deed of the owner of an account in his home.
type Deed = fn(&Path, u32);

fn replaced_by_link(path: &Path, uid: u32) {
    std::os::unix::fs::symlink("/tmp", gone(path)).unwrap();
    std::os::unix::fs::lchown(path, Some(uid), Some(uid)).unwrap();
}

fn replaced_by_file(path: &Path, uid: u32) {
    fs::write(gone(path), "").unwrap();
    std::os::unix::fs::chown(path, Some(uid), Some(uid)).unwrap();
}

fn replaced_by_pipe(path: &Path, uid: u32) {
    rustix::fs::mknodat(
        rustix::fs::CWD,
        gone(path),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o600),
        0,
    )
    .unwrap();
    std::os::unix::fs::chown(path, Some(uid), Some(uid)).unwrap();
}

/// Removes what is at a path.
fn gone(path: &Path) -> &Path {
    if path.is_dir() {
        fs::remove_dir_all(path).unwrap();
    } else {
        fs::remove_file(path).unwrap();
    }
    path
}

fn opened(path: &Path) {
    fs::set_permissions(path, fs::Permissions::from_mode(0o777)).unwrap();
}

const DIRECTORY: &str = ".ssh/authorized_keys.d";
const DEEDS: [(&str, Deed); 13] = [
    ("link .ssh", |home, uid| replaced_by_link(&home.join(".ssh"), uid)),
    ("file .ssh", |home, uid| replaced_by_file(&home.join(".ssh"), uid)),
    ("pipe .ssh", |home, uid| replaced_by_pipe(&home.join(".ssh"), uid)),
    ("open .ssh", |home, _| opened(&home.join(".ssh"))),
    ("link directory", |home, uid| replaced_by_link(&home.join(DIRECTORY), uid)),
    ("file directory", |home, uid| replaced_by_file(&home.join(DIRECTORY), uid)),
    ("foreign directory", |home, _| {
        std::os::unix::fs::chown(home.join(DIRECTORY), Some(4711), None).unwrap();
    }),
    ("link", |home, uid| replaced_by_link(&home.join(KEYS), uid)),
    ("pipe", |home, uid| replaced_by_pipe(&home.join(KEYS), uid)),
    ("directory", |home, _| fs::create_dir_all(gone(&home.join(KEYS)).join("deep")).unwrap()),
    ("large", |home, _| fs::write(home.join(KEYS), vec![b'#'; 1 << 21]).unwrap()),
    ("sparse", |home, _| fs::File::create(home.join(KEYS)).unwrap().set_len(1 << 33).unwrap()),
    ("open home", |home, _| opened(home)),
];

/// The account's keys file as sshd would read it.
fn keys_read(at: &Path, user: &str) -> Option<String> {
    let path = at.join(format!("var/home/{user}/{KEYS}"));
    path.symlink_metadata().ok().map(|_| fs::read_to_string(path).unwrap())
}

/// Locked, without its groups; or as the host had it, its own password and keys.
#[tokio::test(flavor = "current_thread")]
async fn owner_of_home_does_not_keep_account_from_leaving() {
    for (deed, change) in DEEDS {
        let dir = tempfile::tempdir().unwrap();
        let at = dir.path();
        accounts_fixture(at);
        let host = host(at, FailPoints::off());
        bring(&host).await;
        change(&at.join("var/home/app"), 1500);
        change(&at.join("var/home/guest"), 1100);
        let databases = || ["passwd", "shadow", "group", "gshadow"].map(|name| lines_of(at, name));
        let managed = databases();
        let (from, to) = (with_accounts(), spec("rendered-without"));
        carry(&host, &from, &to, &left(), 10).await;
        let shadow = line(at, "etc/shadow", "app");
        assert!(shadow.starts_with("app:*:") && shadow.split(':').nth(7) == Some("1"), "{deed}: {shadow}");
        assert_eq!(line(at, "etc/group", "wheel"), "wheel:x:10:last", "{deed}");
        assert_eq!(line(at, "etc/shadow", "guest"), "guest:$6$own:19000:0:99999:7:::", "{deed}");
        if deed != "open home" {
            assert_eq!(keys_read(at, "app"), None, "{deed}");
            assert_eq!(keys_read(at, "guest").as_deref(), Some("ssh-ed25519 OWN guest\n"), "{deed}");
        }
        take_back(&host, &from, &to, &left(), 10).await;
        assert_eq!(databases(), managed, "{deed}: taken back");
        carry(&host, &from, &to, &left(), 20).await;
        assert!(line(at, "etc/shadow", "app").starts_with("app:*:"), "{deed}: again");
    }
}

fn lines_of(at: &Path, database: &str) -> Vec<String> {
    let mut lines: Vec<String> = read(at, &format!("etc/{database}")).lines().map(str::to_owned).collect();
    lines.sort_unstable();
    lines
}

/// Whatever is at the place of the keys file goes aside, and stays there.
#[tokio::test(flavor = "current_thread")]
async fn keys_replace_what_can_not_be_saved() {
    for (deed, change) in DEEDS {
        if !["pipe", "directory", "large", "sparse"].contains(&deed) {
            continue;
        }
        let dir = tempfile::tempdir().unwrap();
        let at = dir.path();
        accounts_fixture(at);
        // The host's own account is not in the record yet.
        change(&at.join("var/home/guest"), 1100);
        let host = host(at, FailPoints::off());
        bring(&host).await;
        assert_eq!(keys_read(at, "guest").as_deref(), Some("ssh-ed25519 GUEST\n"), "{deed}");
        assert!(at.join("var/home/guest/.ssh/ignition.mca-foreign").exists(), "{deed}");
        undo_bring(&host).await;
        assert_eq!(keys_read(at, "guest"), None, "{deed}");
    }
}

/// A group or a comment is none of the keys' business.
#[tokio::test(flavor = "current_thread")]
async fn owner_of_home_does_not_keep_account_from_being_changed() {
    for (deed, change) in DEEDS {
        let dir = tempfile::tempdir().unwrap();
        let at = dir.path();
        accounts_fixture(at);
        change(&at.join("var/home/guest"), 1100);
        let host = host(at, FailPoints::off());
        let mut to = spec("rendered-accounts");
        let account = Account { gecos: Some("Managed".to_owned()), ..Account::default() };
        to.users.accounts.insert(name("guest"), account);
        let changed = vec![(Batch::Accounts, steps(vec![Op::ModifyUser { user: name("guest") }]))];
        carry(&host, &spec("rendered-old"), &to, &changed, 0).await;
        assert!(line(at, "etc/passwd", "guest").contains(":Managed:"), "{deed}");
    }
}

/// Keys that the agent could not give back are named.
#[tokio::test(flavor = "current_thread")]
async fn keys_that_are_out_of_reach_are_named() {
    let lines = crate::log_lines::Lines::default();
    let _guard = lines.taken();
    for (deed, change) in DEEDS {
        let dir = tempfile::tempdir().unwrap();
        let at = dir.path();
        accounts_fixture(at);
        let host = host(at, FailPoints::off());
        bring(&host).await;
        change(&at.join("var/home/app"), 1500);
        lines.take();
        let named = |id: &str| {
            let found =
                lines.take().into_iter().filter(|line| line.get("MESSAGE_ID").is_some_and(|one| one == id));
            found.map(|line| line["message"].clone()).collect::<Vec<_>>().join("\n")
        };
        let (from, to) = (with_accounts(), spec("rendered-without"));
        carry(&host, &from, &to, &left(), 10).await;
        let told = named(crate::model::message::NOT_RESTORED);
        // Neither is in the way of a removal.
        let is_removed = ["link", "open .ssh"].contains(&deed);
        assert_eq!(!is_removed, told.contains("/home/app"), "{deed}: {told}");
        take_back(&host, &from, &to, &left(), 10).await;
        let told = named(crate::model::message::NOT_RESTORED);
        // In the open home the keys are as they were.
        let is_back = is_removed || deed == "open home";
        assert_eq!(!is_back, told.contains("/home/app"), "{deed}: {told}");
    }
}

/// The programs that change an account or a group keep the marks; those that make one write others.
#[tokio::test(flavor = "current_thread")]
async fn marks_outlive_programs_of_host() {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path();
    accounts_fixture(at);
    let host = host(at, FailPoints::off());
    bring(&host).await;
    let records = || AccountRecords::load_current(&host.root).unwrap();
    let chroot = |program: &str, arguments: &[&str]| {
        let mut command = std::process::Command::new(program);
        let output = command.arg("--root").arg(at).args(arguments).output().unwrap();
        assert!(output.status.success(), "{program} {arguments:?}: {output:?}");
    };
    for (program, arguments) in [
        ("chage", &["--maxdays=90", "--warndays=3", "app"][..]),
        // The day of the expiry is another field.
        ("chage", &["--expiredate=2030-01-01", "app"]),
        ("passwd", &["--lock", "app"]),
        ("pwck", &["--sort"]),
        ("gpasswd", &["--add", "app", "guest"]),
        ("groupmod", &["--new-name=staff2", "staff"]),
        ("groupmod", &["--new-name=staff", "staff2"]),
        ("grpck", &["--sort"]),
        ("grpunconv", &[]),
        ("grpconv", &[]),
    ] {
        chroot(program, arguments);
        assert!(records().is_made("app") && records().is_group_made("staff"), "{program} {arguments:?}");
    }
    chroot("pwunconv", &[]);
    chroot("pwconv", &[]);
    assert!(!records().is_made("app") && records().is_group_made("staff"));
}

/// The same name and the same gid, with or without a password of the config: it is another group.
#[tokio::test(flavor = "current_thread")]
async fn group_made_again_by_administrator_is_hosts() {
    for password in [None, PasswordHash::new("$6$staff")] {
        let dir = tempfile::tempdir().unwrap();
        let at = dir.path();
        accounts_fixture(at);
        let host = host(at, FailPoints::off());
        let (from, mut to) = (spec("rendered-old"), spec("rendered-made"));
        let group = Group { gid: Some(1600), password: password.clone(), ..Group::default() };
        to.users.groups.insert(name("staff"), group);
        let create = vec![(Batch::Accounts, steps(vec![Op::CreateGroup { group: name("staff") }]))];
        carry(&host, &from, &to, &create, 0).await;
        let is_made = || AccountRecords::load_current(&host.root).unwrap().is_group_made("staff");
        assert!(is_made());
        let modify = vec![(Batch::Accounts, steps(vec![Op::ModifyGroup { group: name("staff") }]))];
        let mut other = to.clone();
        for (first, hash) in [(1, PasswordHash::new("$6$other")), (2, None)] {
            other.users.groups.get_mut(&name("staff")).unwrap().password = hash;
            carry(&host, &to, &other, &modify, first).await;
            assert!(is_made());
        }
        run("groupdel", at, &["staff"]);
        assert!(is_made(), "nobody has made it again");
        run("groupadd", at, &["--gid=1600", "staff"]);
        assert!(!is_made());
    }
}

/// An administrator's change of before a config set it comes back, not the state of before an earlier config.
#[tokio::test(flavor = "current_thread")]
async fn original_is_of_time_when_config_first_sets_it() {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path();
    accounts_fixture(at);
    let host = host(at, FailPoints::off());
    let with = |config: &str, account: Account| {
        let mut spec = spec(config);
        spec.users.accounts.insert(name("guest"), account);
        spec
    };
    let key = || vec![SshKey::new("ssh-ed25519 GUEST").unwrap()];
    let keys = with("rendered-a", Account { keys: key(), ..Account::default() });
    let all = with(
        "rendered-b",
        Account {
            keys: key(),
            password: PasswordHash::new("$6$config"),
            gecos: Some("Config".to_owned()),
            shell: Some("/bin/zsh".to_owned()),
            groups: std::collections::BTreeSet::from(["wheel".to_owned()]),
            ..Account::default()
        },
    );
    let users = |ops: Vec<Op>| vec![(Batch::Users, steps(ops))];
    carry(&host, &spec("rendered-old"), &keys, &users(vec![keys_of("guest")]), 0).await;
    run(
        "usermod",
        at,
        &[
            "--password=$6$by-hand",
            "--comment=By hand",
            "--shell=/bin/dash",
            "--append",
            "--groups=wheel",
            "guest",
        ],
    );
    let by_hand = ["etc/passwd", "etc/shadow"].map(|path| line(at, path, "guest"));
    let modify = vec![(Batch::Accounts, steps(vec![Op::ModifyUser { user: name("guest") }]))];
    let both = [modify.clone(), users(vec![password_of("guest")])].concat();
    carry(&host, &keys, &all, &both, 1).await;
    assert!(line(at, "etc/shadow", "guest").starts_with("guest:$6$config:"));
    carry(&host, &keys, &all, &both, 1).await;
    let back = [modify, users(vec![keys_of("guest"), password_of("guest")])].concat();
    carry(&host, &all, &spec("rendered-c"), &back, 5).await;
    assert_eq!(["etc/passwd", "etc/shadow"].map(|path| line(at, path, "guest")), by_hand);
    assert_eq!(line(at, "etc/group", "wheel"), "wheel:x:10:last,guest", "the administrator's membership");
    assert_eq!(read(at, &format!("var/home/guest/{KEYS}")), "ssh-ed25519 OWN guest\n");
}

/// The owner puts something in the way again and again, or takes the names himself: their number has an end, and the keys go.
#[tokio::test(flavor = "current_thread")]
async fn names_of_what_is_moved_aside_are_bounded() {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path();
    accounts_fixture(at);
    let host = host(at, FailPoints::off());
    bring(&host).await;
    let home = at.join("var/home/guest");
    let user = Accounts::load(&host.root).unwrap().user("guest").unwrap().clone();
    let asides = || {
        let names =
            fs::read_dir(&home).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name.contains("mca-foreign")).collect::<std::collections::BTreeSet<_>>()
    };
    for round in 0..30 {
        let way = home.join(".ssh");
        match round % 3 {
            0 => replaced_by_link(&way, 1100),
            1 => replaced_by_file(&way, 1100),
            _ => {
                fs::create_dir_all(gone(&way).join("of/another")).unwrap();
                std::os::unix::fs::chown(&way, Some(4711), Some(4711)).unwrap();
            }
        }
        crate::host::keys::prepare(&host.root, "/var/home/guest", &user).unwrap();
        assert!(way.join("authorized_keys.d").is_dir());
    }
    assert!(asides().len() > 8, "what another account owns is not removed: {:?}", asides());
    for name in asides() {
        gone(&home.join(name));
    }
    for round in 0..30 {
        let way = home.join(".ssh");
        if round % 2 == 0 {
            replaced_by_link(&way, 1100);
        } else {
            replaced_by_file(&way, 1100);
        }
        crate::host::keys::prepare(&host.root, "/var/home/guest", &user).unwrap();
    }
    assert_eq!(asides().len(), 8, "{:?}", asides());
    for name in asides() {
        fs::create_dir_all(gone(&home.join(&name)).join("own")).unwrap();
        for path in [home.join(&name), home.join(&name).join("own")] {
            std::os::unix::fs::chown(path, Some(1100), Some(1100)).unwrap();
        }
    }
    replaced_by_link(&home.join(".ssh"), 1100);
    crate::host::keys::clear(&host.root, "/var/home/guest", &user).unwrap();
    assert!(!home.join(".ssh").exists() && asides().len() == 8, "{:?}", asides());
}
