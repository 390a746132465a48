//! A unit of the double: its state, and the command that it really runs.

use std::fs::OpenOptions;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::process::{ExitStatus, Stdio};

use zbus::zvariant::{OwnedValue, Structure, Value};

use super::{Double, Job};

/// The properties of a unit.
#[derive(Debug, Clone, Default)]
pub(crate) struct Unit {
    pub(crate) active: String,
    pub(crate) sub: String,
    pub(crate) result: String,
    pub(crate) code: i32,
    pub(crate) status: i32,
    pub(crate) command: Vec<String>,
    pub(crate) pid: Option<u32>,
    /// The job that ends with its process, once it is to stop.
    pub(super) stop: Option<Job>,
}

/// The process of a transient unit.
#[derive(Debug)]
pub(super) struct Running {
    child: tokio::process::Child,
    // Held until the process has opened it.
    _pipe: Option<OwnedFd>,
}

impl Running {
    pub(super) async fn wait(mut self) -> ExitStatus {
        self.child.wait().await.unwrap()
    }
}

impl Unit {
    /// Starts the command of a transient unit.
    pub(super) fn start(properties: &[(String, OwnedValue)]) -> (Self, Running) {
        let value = |name: &str| properties.iter().find(|(key, _)| key == name).map(|(_, value)| value);
        let text = |name: &str| value(name).map(|value| String::try_from(value.clone()).unwrap());
        assert_eq!(text("Type").as_deref(), Some("simple"));
        let commands =
            Vec::<(String, Vec<String>, bool)>::try_from(value("ExecStart").unwrap().clone()).unwrap();
        let (path, argv, _) = commands.into_iter().next().unwrap();
        assert_eq!(Some(&path), argv.first());
        let append = |name: &str| {
            text(name)
                .map_or_else(Stdio::null, |path| OpenOptions::new().append(true).open(path).unwrap().into())
        };
        let pipe = value("ExtraFileDescriptors").map(descriptor);
        let mut command = if let Some(pipe) = &pipe {
            // A passed descriptor arrives as number 3.
            let script =
                format!("exec \"$@\" 3>/proc/{}/fd/{}", std::process::id(), pipe.as_fd().as_raw_fd());
            let mut command = tokio::process::Command::new("sh");
            command.args(["-c", &script, "sh"]).args(&argv);
            command
        } else {
            let mut command = tokio::process::Command::new(&path);
            command.args(argv.get(1..).unwrap_or_default());
            command
        };
        let files =
            value("EnvironmentFiles").map(|list| Vec::<(String, bool)>::try_from(list.clone()).unwrap());
        for (path, _) in files.unwrap_or_default() {
            let text = std::fs::read_to_string(path).unwrap();
            let pairs = text.lines().filter_map(|line| line.split_once('='));
            command.envs(pairs.map(|(name, value)| (name, value.trim_matches('"'))));
        }
        command.stdin(Stdio::null()).stdout(append("StandardOutputFileToAppend"));
        let child = command.stderr(append("StandardErrorFileToAppend")).spawn().unwrap();
        let (active, sub) = ("active".to_owned(), "running".to_owned());
        let unit = Self { active, sub, pid: child.id(), command: argv, ..Self::default() };
        (unit, Running { child, _pipe: pipe })
    }

    /// Takes over how its process ended. Of a service, as `Type=simple` is one, SIGTERM is a good end.
    pub(super) fn end(&mut self, status: ExitStatus) {
        use std::os::unix::process::ExitStatusExt as _;
        let (active, sub, result, code) = match (status.success(), status.signal()) {
            (true, _) => ("active", "exited", "success", 1),
            (false, None) => ("failed", "failed", "exit-code", 1),
            (false, Some(15)) => ("active", "exited", "success", 2),
            (false, Some(_)) => ("failed", "failed", "signal", 2),
        };
        (self.active, self.sub, self.result) = (active.to_owned(), sub.to_owned(), result.to_owned());
        (self.pid, self.code) = (None, code);
        self.status = status.code().or(status.signal()).unwrap();
    }
}

fn descriptor(value: &OwnedValue) -> OwnedFd {
    let list = <Vec<Structure<'_>>>::try_from(value.try_clone().unwrap()).unwrap();
    let Some(Value::Fd(fd)) = list.first().and_then(|one| one.fields().first()) else { panic!("{list:?}") };
    fd.as_fd().try_clone_to_owned().unwrap()
}

/// The interface of every unit.
#[derive(Debug)]
pub(super) struct UnitView {
    double: Double,
    name: String,
}

/// The interface of services.
#[derive(Debug)]
pub(super) struct ServiceView {
    double: Double,
    name: String,
}

impl UnitView {
    pub(super) fn new(double: &Double, name: &str) -> Self {
        Self { double: double.clone(), name: name.to_owned() }
    }
}

impl ServiceView {
    pub(super) fn new(double: &Double, name: &str) -> Self {
        Self { double: double.clone(), name: name.to_owned() }
    }

    fn unit(&self) -> Unit {
        self.double.state().units.get(&self.name).cloned().unwrap_or_default()
    }
}

type Command = (String, Vec<String>, bool, u64, u64, u64, u64, u32, i32, i32);

#[zbus::interface(name = "org.freedesktop.systemd1.Unit")]
impl UnitView {
    #[zbus(property)]
    fn load_state(&self) -> String {
        let known = self.double.state().units.contains_key(&self.name);
        if known { "loaded" } else { "not-found" }.to_owned()
    }

    #[zbus(property)]
    fn active_state(&self) -> String {
        self.double.state().units.get(&self.name).map(|unit| unit.active.clone()).unwrap_or_default()
    }

    #[zbus(property)]
    fn sub_state(&self) -> String {
        self.double.state().units.get(&self.name).map(|unit| unit.sub.clone()).unwrap_or_default()
    }
}

#[zbus::interface(name = "org.freedesktop.systemd1.Service")]
impl ServiceView {
    #[zbus(property, name = "Type")]
    fn kind(&self) -> String {
        "simple".to_owned()
    }

    #[zbus(property)]
    fn result(&self) -> String {
        self.unit().result
    }

    #[zbus(property)]
    fn exec_main_code(&self) -> i32 {
        self.unit().code
    }

    #[zbus(property)]
    fn exec_main_status(&self) -> i32 {
        self.unit().status
    }

    #[zbus(property)]
    fn exec_start(&self) -> Vec<Command> {
        let command = self.unit().command;
        let path = command.first().cloned().unwrap_or_default();
        vec![(path, command, false, 0, 0, 0, 0, 0, 0, 0)]
    }
}
