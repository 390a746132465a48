//! A child process that signals its readiness, whose lines are kept, and that ends with the test.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread;

use rustix::process::{Pid, Signal, kill_process};
use tokio::sync::watch;

use super::LIMIT;

/// Handler of a line of a child's output.
pub type OnLine = Box<dyn FnMut(String) + Send>;

/// A running child. Dropping it kills it and waits for its end.
#[derive(Debug)]
pub struct Child {
    name: String,
    pid: u32,
    ended: watch::Receiver<Option<ExitStatus>>,
}

/// Start options of a child.
pub struct Start<'a> {
    pub name: &'a str,
    pub command: Command,
    /// Socket for its readiness, for programs that report it as services do.
    pub notify: Option<&'a Path>,
    pub stdout: Option<OnLine>,
    pub stderr: OnLine,
}

impl Child {
    /// Starts it, and waits for its readiness if it signals one.
    pub fn start(start: Start<'_>) -> Self {
        let Start { name, command, notify, stdout, stderr } = start;
        let mut command = dying_with_us(&command);
        command.stdin(Stdio::null()).stderr(Stdio::piped());
        command.stdout(if stdout.is_some() { Stdio::piped() } else { Stdio::null() });
        let ready = notify.map(|path| {
            command.env("NOTIFY_SOCKET", path);
            UnixDatagram::bind(path).unwrap()
        });
        let mut child = spawn(command);
        let pid = child.id();
        let readers: Vec<_> = [
            stdout.map(|on| lines(child.stdout.take().unwrap(), on)),
            Some(lines(child.stderr.take().unwrap(), stderr)),
        ]
        .into_iter()
        .flatten()
        .collect();
        let (tell, ended) = watch::channel(None);
        let socket = notify.map(Path::to_owned);
        thread::spawn(move || {
            let status = child.wait().unwrap();
            // Its last lines come before the news of its end.
            for reader in readers {
                reader.join().unwrap();
            }
            if let Some(path) = socket {
                // The receiver may be gone. Before all else: the next process may listen at the same path.
                drop(UnixDatagram::unbound().unwrap().send_to(b"ENDED=1", path));
            }
            tell.send_replace(Some(status));
        });
        let started = Self { name: name.to_owned(), pid, ended };
        if let Some(socket) = ready {
            started.until_ready(&socket);
        }
        started
    }

    fn until_ready(&self, socket: &UnixDatagram) {
        socket.set_read_timeout(Some(LIMIT)).unwrap();
        let mut buffer = [0; 4096];
        loop {
            let n = match socket.recv(&mut buffer) {
                Ok(n) => n,
                // A child of another test ended.
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(error) => panic!("{} is not ready: {error}", self.name),
            };
            let text = String::from_utf8_lossy(&buffer[..n]);
            assert!(!text.contains("ENDED=1"), "{} ended at its start; see its lines above", self.name);
            if text.lines().any(|line| line == "READY=1") {
                return;
            }
        }
    }

    /// Its process id.
    pub const fn pid(&self) -> u32 {
        self.pid
    }

    /// Its exit status, once it ended.
    pub fn status(&self) -> Option<ExitStatus> {
        *self.ended.borrow()
    }

    /// Sends a signal, unless it ended.
    pub fn signal(&self, signal: Signal) {
        if self.status().is_none() {
            let pid = Pid::from_raw(self.pid.try_into().unwrap()).unwrap();
            match kill_process(pid, signal) {
                // It may end between the check and the signal.
                Ok(()) | Err(rustix::io::Errno::SRCH) => {}
                Err(error) => panic!("{}: {error}", self.name),
            }
        }
    }

    /// Waits for its end.
    pub async fn end(&self) -> ExitStatus {
        let mut ended = self.ended.clone();
        let seen = super::within(&format!("{} ends", self.name), ended.wait_for(Option::is_some)).await;
        seen.unwrap().unwrap()
    }

    /// Waits for its end outside of async code.
    pub fn end_blocking(&self) -> ExitStatus {
        let ended = self.ended.clone();
        thread::scope(|scope| {
            let waiting = scope.spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
                let mut ended = ended;
                *runtime.block_on(ended.wait_for(Option::is_some)).unwrap()
            });
            waiting.join().unwrap().unwrap()
        })
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
        self.end_blocking();
    }
}

/// The same command, killed by the kernel when the thread that started it is gone: also after a panic, an abort, or the
/// end of a test binary whose statics are never dropped.
fn dying_with_us(command: &Command) -> Command {
    let mut wrapped = Command::new("setpriv");
    wrapped.args(["--pdeathsig", "KILL", "--"]).arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => wrapped.env(name, value),
            None => wrapped.env_remove(name),
        };
    }
    if let Some(dir) = command.get_current_dir() {
        wrapped.current_dir(dir);
    }
    wrapped
}

/// Starts it on the one thread that lives as long as this process: a child dies with the *thread* that started it.
fn spawn(command: Command) -> std::process::Child {
    type Order = (Command, Sender<std::io::Result<std::process::Child>>);
    static STARTER: OnceLock<Mutex<Sender<Order>>> = OnceLock::new();
    let starter = STARTER.get_or_init(|| {
        let (orders, received) = channel::<Order>();
        thread::spawn(move || {
            for (mut command, answer) in received {
                answer.send(command.spawn()).unwrap();
            }
        });
        Mutex::new(orders)
    });
    let program = format!("{command:?}");
    let (answer, child) = channel();
    starter.lock().unwrap().send((command, answer)).unwrap();
    child.recv().unwrap().unwrap_or_else(|error| panic!("{program}: {error}"))
}

fn lines(from: impl Read + Send + 'static, mut on: OnLine) -> thread::JoinHandle<()> {
    thread::spawn(move || {
        let mut from = BufReader::new(from);
        let mut line = vec![];
        while from.read_until(b'\n', &mut line).unwrap_or(0) > 0 {
            on(String::from_utf8_lossy(&line).trim_end().to_owned());
            line.clear();
        }
    })
}

/// Lines that are shown when a test fails, and not before.
pub fn shown_on_failure(name: &str) -> (OnLine, Kept) {
    let kept = Kept { name: name.to_owned(), lines: Arc::default() };
    let lines = Arc::clone(&kept.lines);
    (Box::new(move |line| lines.lock().unwrap().push(line)), kept)
}

/// The lines a child wrote; printed when their owner goes in a panic.
#[derive(Debug)]
pub struct Kept {
    name: String,
    lines: Arc<Mutex<Vec<String>>>,
}

impl Kept {
    pub fn text(&self) -> String {
        self.lines.lock().unwrap().join("\n")
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        if thread::panicking() {
            println!("-- last lines of {}:", self.name);
            let lines = self.lines.lock().unwrap();
            for line in lines.iter().skip(lines.len().saturating_sub(40)) {
                println!("{line}");
            }
        }
    }
}
