//! The double of systemd as a program: `systemd-double --bus ADDRESS` says a line when it is there, and serves until it
//! is ended.
#![allow(
    missing_docs,
    dead_code,
    unreachable_pub,
    missing_debug_implementations,
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::unused_self,
    clippy::needless_pass_by_value,
    reason = "a program of the tests"
)]

#[path = "mod.rs"]
mod double;

use double::Double;

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let (address, units) = match args.as_slice() {
        [_, _, address] => (address, None),
        [_, _, address, _, units] => (address, Some(units)),
        _ => panic!("systemd-double --bus ADDRESS [--units DIR]"),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let builder = zbus::connection::Builder::address(address.as_str()).unwrap();
        let double = Double::new("257");
        if let Some(units) = units {
            double.keep_units(units);
        }
        let builder = builder.serve_at(double::OBJECT, double).unwrap();
        let bus = builder.name("org.freedesktop.systemd1").unwrap().build().await.unwrap();
        // A host with systemd has a journal: libostree's messages are read, and dropped.
        std::fs::create_dir_all("/run/systemd/journal").unwrap();
        drop(std::fs::remove_file("/run/systemd/journal/socket"));
        let journal = tokio::net::UnixDatagram::bind("/run/systemd/journal/socket").unwrap();
        println!("ready");
        let mut entry = vec![0; 1 << 20];
        while journal.recv(&mut entry).await.is_ok() {}
        drop(bus);
    });
}
