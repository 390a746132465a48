//! A program for `vm-tests`: from a commit to an OS image in OCI layout, and from that to the first deployment of a disk.
//!
//! `os-image export REPO COMMIT LAYOUT TAG` prints the image's digest; `os-image install SYSROOT STATEROOT LAYOUT TAG NAME
//! [KARG]...` deploys it under the name that it has in a registry; `os-image default SYSROOT DEPLOYMENT` makes a deployment
//! that is there the one that boots.
#![expect(clippy::disallowed_types, reason = "no part of the agent: it tells ostree-ext how to start skopeo")]

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, ExitCode};

use ostree_ext::container::deploy::{DeployOpts, deploy};
use ostree_ext::container::store::ImageProxyConfig;
use ostree_ext::container::{
    Config, ExportOpts, ImageReference, OstreeImageReference, SignatureSource, Transport, encapsulate,
};
use ostree_ext::gio::{Cancellable, File};
use ostree_ext::ostree::{Deployment, Repo, Sysroot};

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else {
        return ExitCode::FAILURE;
    };
    let result = runtime.block_on(async {
        match args.as_slice() {
            ["export", repo, commit, layout, tag] => export(repo, commit, layout, tag).await,
            ["install", sysroot, stateroot, layout, tag, name, kargs @ ..] => {
                install(sysroot, stateroot, layout_image(layout, tag), name, kargs).await
            }
            ["default", sysroot, deployment] => make_default(sysroot, deployment),
            _ => Err("usage: see the head of examples/os-image/main.rs".into()),
        }
    });
    let (told, code) = match result {
        Ok(answer) => (writeln!(std::io::stdout(), "{answer}"), ExitCode::SUCCESS),
        Err(error) => (writeln!(std::io::stderr(), "error: {error}"), ExitCode::FAILURE),
    };
    if told.is_ok() { code } else { ExitCode::FAILURE }
}

type Answer = Result<String, Box<dyn std::error::Error>>;

fn layout_image(layout: &str, tag: &str) -> ImageReference {
    ImageReference { transport: Transport::OciDir, name: format!("{layout}:{tag}") }
}

async fn export(repo: &str, commit: &str, layout: &str, tag: &str) -> Answer {
    let repo = Repo::new_for_path(Path::new(repo));
    repo.open(Cancellable::NONE)?;
    let labels = [("containers.bootc".to_owned(), "1".to_owned())].into();
    let config = Config { labels: Some(labels), cmd: None };
    let mut options = ExportOpts::default();
    // Time, not size: the image goes to a registry on the same machine.
    options.skip_compression = true;
    let target = layout_image(layout, tag);
    let digest = encapsulate(&repo, commit, &config, Some(options), &target).await;
    Ok(digest.map_err(|e| format!("{e:#}"))?.to_string())
}

async fn install(
    sysroot: &str,
    stateroot: &str,
    imgref: ImageReference,
    name: &str,
    kargs: &[&str],
) -> Answer {
    let sysroot = Sysroot::new(Some(&File::for_path(sysroot)));
    sysroot.load(Cancellable::NONE)?;
    let unverified =
        |imgref| OstreeImageReference { sigverify: SignatureSource::ContainerPolicyAllowInsecure, imgref };
    let target = unverified(ImageReference { transport: Transport::Registry, name: name.to_owned() });
    let mut skopeo = Command::new("skopeo");
    // The image was made a moment ago; the policy of the machine around is not asked.
    skopeo.arg("--insecure-policy");
    let mut options = DeployOpts::default();
    options.kargs = Some(kargs);
    options.target_imgref = Some(&target);
    options.proxy_cfg = Some(ImageProxyConfig { skopeo_cmd: Some(skopeo), ..ImageProxyConfig::default() });
    let state = deploy(&sysroot, stateroot, &unverified(imgref), Some(options)).await;
    Ok(state.map_err(|e| format!("{e:#}"))?.merge_commit.clone())
}

fn make_default(sysroot: &str, desired: &str) -> Answer {
    let sysroot = Sysroot::new(Some(&File::for_path(sysroot)));
    sysroot.load(Cancellable::NONE)?;
    let name = |one: &Deployment| format!("{}-{}.{}", one.osname(), one.csum(), one.deployserial());
    let (mut order, others): (Vec<_>, Vec<_>) =
        sysroot.deployments().into_iter().partition(|one| name(one) == desired);
    if order.is_empty() {
        return Err(format!("there is no deployment {desired}").into());
    }
    order.extend(others);
    sysroot.write_deployments(&order, Cancellable::NONE)?;
    Ok(desired.to_owned())
}
