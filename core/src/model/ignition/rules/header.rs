//! `ignition` and `kernelArguments`: sources of certificates and other configs, proxies.

use ignition_config::v3_6::{Ignition, KernelArguments, Proxy};

use super::found::{Found, filled};
use super::resource::{self, Source};
use super::url::Url;
use crate::model::text::short;

pub(super) fn check(found: &mut Found, ignition: &Ignition, minor: u32) {
    // Lists of other configs are refused as a whole; an empty `replace` is none.
    if let Some(replace) = ignition.config.as_ref().and_then(|config| config.replace.as_ref()) {
        resource::check(found, "ignition.config.replace", replace, Source::Optional, minor);
    }
    if let Some(proxy) = ignition.proxy.as_ref().filter(|_| minor >= 1) {
        check_proxy(found, proxy);
    }
    let tls = ignition.security.as_ref().and_then(|security| security.tls.as_ref());
    let authorities = tls.and_then(|tls| tls.certificate_authorities.as_deref()).unwrap_or_default();
    let list = "ignition.security.tls.certificateAuthorities";
    for (place, authority) in authorities.iter().enumerate() {
        resource::check(found, &format!("{list}[{place}]"), authority, Source::Required, minor);
    }
    let sources = authorities.iter().map(|authority| authority.source.as_deref().unwrap_or_default());
    found.add_repeated(sources, |place, _| format!("{list}[{place}]"));
}

fn check_proxy(found: &mut Found, proxy: &Proxy) {
    for (field, value) in [("httpProxy", &proxy.http_proxy), ("httpsProxy", &proxy.https_proxy)] {
        let Some(value) = value else { continue };
        let is_proxy = Url::parse(value).is_some_and(|url| matches!(&*url.scheme, "http" | "https"));
        if !is_proxy {
            // It may hold a password.
            found.add(
                format!("ignition.proxy.{field}"),
                "it is not an http or https URL; correct or remove it",
            );
        }
    }
    let hosts = proxy.no_proxy.iter().flatten().map(String::as_str);
    found.add_repeated(hosts, |_, host| format!("ignition.proxy.noProxy {:?}", short(host, 100)));
}

/// An argument is there or not, and is listed once.
pub(super) fn check_arguments(found: &mut Found, arguments: &KernelArguments) {
    let all = arguments.should_exist.iter().flatten().chain(arguments.should_not_exist.iter().flatten());
    found.add_repeated(all.map(String::as_str), |_, argument| {
        format!("kernelArguments {:?}", short(argument, 100))
    });
}

/// Returns true if the section names other configs.
pub(in super::super) fn names_configs(ignition: &Ignition) -> Option<&'static str> {
    let config = ignition.config.as_ref()?;
    if config.merge.as_ref().is_some_and(|merge| !merge.is_empty()) {
        return Some("ignition.config.merge");
    }
    filled(config.replace.as_ref()?.source.as_ref()).map(|_| "ignition.config.replace")
}
