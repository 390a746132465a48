//! `storage.luks`: devices, and what unlocks them.

use ignition_config::v3_6::{Clevis, Luks, Tang};

use super::found::{Found, broken_path, entry, filled};
use super::resource::{self, Source};
use super::url::Url;
use crate::model::text::short;

pub(super) fn check(found: &mut Found, list: &[Luks], minor: u32) {
    for one in list {
        check_device(found, one, minor);
    }
    found.add_repeated(list.iter().map(|one| one.name.as_str()), |_, name| entry("storage.luks", name));
}

fn check_device(found: &mut Found, luks: &Luks, minor: u32) {
    let field = entry("storage.luks", &luks.name);
    if luks.name.contains('/') {
        found.add(format!("{field} name"), "it holds a `/`; write the name alone, without /dev/mapper");
    }
    if filled(luks.label.as_ref()).is_some_and(|label| label.len() > 47) {
        found.add(format!("{field} label"), "it is longer than 47 bytes; shorten it");
    }
    let device = luks.device.as_deref().unwrap_or_default();
    found.add_some(broken_path(device), || format!("{field} device"));
    if let Some(clevis) = &luks.clevis {
        check_clevis(found, &field, clevis, minor);
    }
    if let Some(key) = &luks.key_file {
        resource::check(found, &format!("{field} keyFile"), key, Source::Optional, minor);
    }
    if minor >= 4 {
        let options = luks.open_options.iter().flatten().map(String::as_str);
        found.add_repeated(options, |_, option| format!("{field} openOptions {:?}", short(option, 100)));
    }
    let has_cex = minor >= 5 && luks.cex.as_ref().is_some_and(|cex| cex.enabled == Some(true));
    if has_cex && luks.clevis.as_ref().is_some_and(unlocks) {
        found.add(format!("{field} cex"), "it can't be used with clevis; keep one of them");
    }
    if has_cex && luks.key_file.as_ref().is_some_and(|key| filled(key.source.as_ref()).is_some()) {
        found.add(format!("{field} cex"), "it can't be used with a key file; keep one of them");
    }
}

fn has_pin(clevis: &Clevis) -> bool {
    clevis.custom.as_ref().is_some_and(|custom| filled(custom.pin.as_ref()).is_some())
}

/// Returns true if the section sets tang, TPM2 or a threshold.
fn sets_other(clevis: &Clevis) -> bool {
    let tang = clevis.tang.as_ref().is_some_and(|tang| !tang.is_empty());
    tang || clevis.tpm2 == Some(true) || clevis.threshold.is_some_and(|threshold| threshold != 0)
}

fn unlocks(clevis: &Clevis) -> bool {
    has_pin(clevis) || sets_other(clevis)
}

fn check_clevis(found: &mut Found, luks: &str, clevis: &Clevis, minor: u32) {
    let field = format!("{luks} clevis");
    // In 3.2 an empty section is one.
    let has_custom = has_pin(clevis) || minor == 2 && clevis.custom.is_some();
    if has_custom && sets_other(clevis) {
        found.add(
            format!("{field}.custom"),
            "it can't be used with tang, tpm2 or a threshold; keep one of them",
        );
    }
    if let Some(custom) = &clevis.custom {
        let (pin, config) = (filled(custom.pin.as_ref()), filled(custom.config.as_ref()));
        let is_set = pin.is_some() || config.is_some() || minor > 2 && custom.needs_network == Some(true);
        let cause = match pin {
            None => Some("it is missing; write one such as tang"),
            Some("tpm2" | "tang" | "sss") => None,
            Some(_) => (minor < 6).then_some("before Ignition 3.6 it is tpm2, tang or sss; correct it"),
        };
        found.add_some(cause.filter(|_| is_set), || format!("{field}.custom pin"));
        if is_set && config.is_none() {
            found.add(format!("{field}.custom config"), "it is missing; write the settings of the pin");
        }
    }
    let servers = clevis.tang.as_deref().unwrap_or_default();
    for (place, tang) in servers.iter().enumerate() {
        check_tang(found, &format!("{field}.tang[{place}]"), tang, minor);
    }
    let urls = servers.iter().map(|tang| tang.url.as_deref().unwrap_or_default());
    found.add_repeated(urls, |place, _| format!("{field}.tang[{place}]"));
}

fn check_tang(found: &mut Found, field: &str, tang: &Tang, minor: u32) {
    let url = Url::parse(tang.url.as_deref().unwrap_or_default());
    if !url.is_some_and(|url| matches!(&*url.scheme, "http" | "https")) {
        found.add(format!("{field} url"), "it is not an http or https URL; write the server's");
    }
    if filled(tang.thumbprint.as_ref()).is_none() {
        found.add(format!("{field} thumbprint"), "it is missing; write the thumbprint of the server's key");
    }
    let advertisement = filled(tang.advertisement.as_ref()).filter(|_| minor >= 4);
    let is_json = |text: &str| serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok();
    if advertisement.is_some_and(|text| !is_json(text)) {
        found.add(format!("{field} advertisement"), "it is not JSON; write what the server advertises");
    }
}
