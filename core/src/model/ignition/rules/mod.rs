//! The rules of Ignition's own validation (`config/v3_x/types` of github.com/coreos/ignition): what they refuse would strand a new
//! machine, so it is refused before a node or a machine gets it.
//!
//! One pass over the config, which is borrowed; all violations are found, in the order of the schema. `minor` is that of the spec
//! version: rules came and went with it, and a field that the version does not know is ignored, as Ignition ignores it.
//!
//! Left to the readers beside this folder, which are stricter than Ignition: names and paths of units and drop-ins, the contents of
//! files, entries of the same path or name that these have. A few rules go further, because Ignition would fail on the machine: a
//! node below a file, a link without a target in old versions, a path of over 4095 bytes, a partition without a number
//! beside one that is to go (before 2.27), a digest that is not hexadecimal.

mod disks;
mod found;
mod header;
mod luks;
mod nodes;
mod passwd;
mod resource;
mod unit_text;
mod units;
mod url;

use ignition_config::v3_6::Config;

use found::Found;

pub(super) use found::Violation;
pub(super) use header::names_configs;

/// Returns every rule that the config breaks.
pub(super) fn check(config: &Config, minor: u32) -> Vec<Violation> {
    let mut found = Found::default();
    header::check(&mut found, &config.ignition, minor);
    if let Some(arguments) = config.kernel_arguments.as_ref().filter(|_| minor >= 3) {
        header::check_arguments(&mut found, arguments);
    }
    if let Some(passwd) = &config.passwd {
        passwd::check(&mut found, passwd);
    }
    let units = config.systemd.as_ref().and_then(|systemd| systemd.units.as_deref()).unwrap_or_default();
    if let Some(storage) = &config.storage {
        nodes::check(&mut found, storage, units, minor);
        disks::check(&mut found, storage, minor);
        let luks = storage.luks.as_deref().filter(|_| minor >= 2).unwrap_or_default();
        luks::check(&mut found, luks, minor);
    }
    units::check(&mut found, units);
    found.0
}
