//! A fetched seed becomes a stateroot with one deployment, which does not boot by itself.
//!
//! The order is what makes it safe: the system is checked out, `/var` and `/etc` are put in place, and the list of
//! deployments is written last, by libostree, which syncs the file system before. Until then nothing but the name of a
//! directory says that there is a stateroot, so what was cut short is removed and made again.

use std::fs;
use std::io;
use std::path::Path;

use ostree_ext::gio::Cancellable;
use ostree_ext::glib::KeyFile;
use ostree_ext::ostree::{Deployment, Sysroot, SysrootDeployTreeOpts, SysrootWriteDeploymentsOpts};

use super::super::super::error::{OsError, OsErrorKind};
use super::super::super::worker::protocol::{DeployRequest, FetchedSeed, SeedRequest};
use super::super::failed::failed;
use super::super::sysroot::{self, Access, Locked};
use super::super::{space, stage};
use super::failure::unpack_failed;
use super::fetch;
use super::files::{self, REPOSITORY_TREE, VAR_TREE};
use super::identity;
use super::unpacking::{Job, Unpacking};
use super::{owned, repository, tree};
use crate::model::Karg;
use crate::stateroot::{Layout, seed_kargs};

/// Makes the stateroot and its deployment, unless both are there; returns the deployment's id.
pub(super) async fn deploy(
    sysroot: Sysroot,
    path: &Path,
    request: &DeployRequest,
    progress: &dyn Fn(String, Option<u8>),
) -> Result<String, OsError> {
    let SeedRequest { name: stateroot, image, .. } = &request.seed;
    let locked = sysroot::lock(sysroot, path, progress).await?;
    let booted = sysroot::booted(&locked)?;
    owned::refuse_booted(&locked, stateroot)?;
    let host = sysroot::kargs(&booted);
    let is_of_it = |d: &Deployment| d.osname() == stateroot.as_str();
    if let Some(there) = locked.deployments().into_iter().find(is_of_it) {
        let deployment = there_already(&there, request)?;
        return drop_seed(path, request).map(|()| deployment);
    }
    let next = locked.deployments().first().map(sysroot::id);
    let seed = fetch::fetch(&locked, path, &request.seed, progress).await?;
    let kargs = seed_kargs(&host, &request.carried, &seed.kargs, seed.fips, &request.version);
    let directory = fetch::directory(path, stateroot);
    let origin = match request.seed.layout {
        Layout::Classic => files::origin(&directory)?,
        Layout::Bootc => stage::new_origin(image),
    };
    if request.seed.layout == Layout::Classic {
        progress("importing the system".to_owned(), None);
        repository::import(&locked.repo(), &directory.join(REPOSITORY_TREE), &seed.commit, stateroot)?;
    }
    space::before_staging(&locked, path, image, &seed.commit)?;
    owned::remove_unlisted(&locked, path, stateroot)?;
    progress("deploying the system".to_owned(), None);
    let new = NewStateroot { path, request, seed: &seed, origin, kargs };
    let made = new.make(&locked, &directory, progress).await;
    if made.is_err() {
        // It makes room for the next try; what stays is removed by that.
        owned::remove_unlisted(&locked, path, stateroot).unwrap_or_default();
        repository::forget_base(&locked.repo(), stateroot).unwrap_or_default();
    }
    let deployment = made?;
    new.verify(next.as_deref(), &deployment)?;
    drop_seed(path, request).map(|()| deployment)
}

/// Removes what was fetched: all that is needed of it is in its place.
fn drop_seed(path: &Path, request: &DeployRequest) -> Result<(), OsError> {
    let SeedRequest { name, image, .. } = &request.seed;
    tree::remove_path(&fetch::directory(path, name))
        .map_err(|error| unpack_failed(&image.to_string(), &error))
}

/// Returns the deployment that is there, when an earlier try has made it.
fn there_already(there: &Deployment, request: &DeployRequest) -> Result<String, OsError> {
    let mark = format!("ibu={}", request.version);
    if !there.is_staged() && sysroot::kargs(there).iter().any(|karg| karg.as_str() == mark) {
        return Ok(sysroot::id(there));
    }
    let cause = "it has another deployment already; remove the stateroot first";
    Err(OsError::new(OsErrorKind::StaterootInUse, request.seed.name.to_string(), cause))
}

struct NewStateroot<'a> {
    path: &'a Path,
    request: &'a DeployRequest,
    seed: &'a FetchedSeed,
    origin: KeyFile,
    kargs: Vec<Karg>,
}

impl NewStateroot<'_> {
    /// Makes all of it; the deployment is listed last.
    async fn make(
        &self,
        locked: &Locked,
        directory: &Path,
        progress: &dyn Fn(String, Option<u8>),
    ) -> Result<String, OsError> {
        let (name, object) = (self.request.seed.name.as_str(), self.request.seed.image.to_string());
        let unpacked = |done: io::Result<()>| done.map_err(|error| unpack_failed(&object, &error));
        locked.init_osname(name, Cancellable::NONE).map_err(failed)?;
        unpacked(put_var(directory, &self.path.join("ostree/deploy").join(name)))?;
        let words: Vec<&str> = self.kargs.iter().map(Karg::as_str).collect();
        let options = SysrootDeployTreeOpts {
            override_kernel_argv: Some(words.as_slice()),
            ..SysrootDeployTreeOpts::default()
        };
        // No deployment to merge with: another stateroot's /etc stays there.
        let (commit, origin, none) = (&self.seed.commit, Some(&self.origin), Cancellable::NONE);
        let deployed =
            locked.deploy_tree_with_options(Some(name), commit, origin, None, Some(&options), none);
        let deployment = deployed.map_err(failed)?;
        let etc = self.path.join(locked.deployment_dirpath(&deployment).as_str()).join("etc");
        put_etc(directory, &etc, space::reserve(locked, self.path)?, &object, progress).await?;
        if identity::is_missing(directory).map_err(failed)? {
            self.keep_identity(locked, &etc)?;
        }
        let mut all = locked.deployments();
        all.push(deployment.clone());
        let options = SysrootWriteDeploymentsOpts { do_postclean: false };
        locked.write_deployments_with_options(&all, &options, Cancellable::NONE).map_err(failed)?;
        Ok(sysroot::id(&deployment))
    }

    /// Takes names, keys and certificates over from the running system.
    fn keep_identity(&self, locked: &Locked, etc: &Path) -> Result<(), OsError> {
        let object = self.request.seed.image.to_string();
        let booted = sysroot::booted(locked)?;
        let running = self.path.join(locked.deployment_dirpath(&booted).as_str()).join("etc");
        let deploy = self.path.join("ostree/deploy");
        let own_var = deploy.join(booted.osname().as_str()).join("var");
        let var = deploy.join(self.request.seed.name.as_str()).join("var");
        identity::keep("etc", &running, etc)
            .and_then(|()| identity::keep("var", &own_var, &var))
            .map_err(|error| unpack_failed(&object, &error))
    }

    /// Reads the sysroot again: the new deployment is the last one, and what booted next does so still.
    fn verify(&self, next: Option<&str>, id: &str) -> Result<(), OsError> {
        let all = sysroot::load(self.path, Access::Read)?.deployments();
        let last = all.last().is_some_and(|d| sysroot::id(d) == id && sysroot::kargs(d) == self.kargs);
        if last && all.first().map(sysroot::id).as_deref() == next {
            return Ok(());
        }
        Err(failed("libostree reported success, but the deployment differs from the request"))
    }
}

/// Puts the seed's `/var` in place of the new stateroot's; what only that one has stays.
fn put_var(directory: &Path, stateroot: &Path) -> io::Result<()> {
    let (own, seeds) = (stateroot.join("var"), directory.join(VAR_TREE));
    fetch::use_up(directory)?;
    for entry in fs::read_dir(&own)? {
        let name = entry?.file_name();
        if seeds.join(&name).symlink_metadata().is_err() {
            fs::rename(own.join(&name), seeds.join(&name))?;
        }
    }
    tree::remove_path(&own)?;
    fs::rename(seeds, own)
}

/// Unpacks the seed's `/etc` over that of the deployment, and deletes there what the seed's host had deleted.
async fn put_etc(
    directory: &Path,
    etc: &Path,
    reserve: u64,
    object: &str,
    progress: &dyn Fn(String, Option<u8>),
) -> Result<(), OsError> {
    let failed = |error: io::Error| unpack_failed(object, &error);
    let mut archive = files::open_etc(directory).map_err(failed)?;
    let deletions = files::deleted(directory)?;
    let mut unpacking = Unpacking::start(etc, object, reserve, Job::Etc { deletions }, progress).await?;
    unpacking.begin(None).await;
    unpacking.send_all(&mut archive).await.map_err(failed)?;
    unpacking.end().await?;
    unpacking.finish().await.map(drop)
}
