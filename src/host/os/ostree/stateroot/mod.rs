//! Stateroots, the answering half.
//!
//! Invariant: nothing of the booted stateroot is touched: neither its files, nor its deployments. What boots next is changed by
//! `activate` alone.

mod acl;
mod activate;
mod archive;
mod deploy;
mod failure;
mod fetch;
mod files;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzzing;
mod identity;
mod inspect;
mod list;
mod make;
mod owned;
mod repository;
mod tree;
mod unpack;
mod unpacking;

use std::path::Path;

use ostree_ext::ostree::Sysroot;

use super::super::error::OsError;
use super::super::worker::protocol::{StaterootCommand, StaterootReply};
use super::sysroot::{self, Access};

/// The verb that unpacks, in a process of its own, and what runs it.
pub(super) use unpacking::VERB as UNPACK_VERB;
pub(super) use unpacking::process::main as unpack;

/// Returns what a piece of work does to the sysroot.
pub(super) fn access(command: &StaterootCommand) -> Access {
    match command {
        StaterootCommand::List
        | StaterootCommand::Inspect { .. }
        | StaterootCommand::FetchBase { .. }
        | StaterootCommand::ListFiles { .. }
        | StaterootCommand::Archive(_)
        | StaterootCommand::Assemble(_) => Access::Read,
        StaterootCommand::Fetch(_)
        | StaterootCommand::Deploy(_)
        | StaterootCommand::Remove { .. }
        | StaterootCommand::Arm { .. }
        | StaterootCommand::SetDefault { .. }
        | StaterootCommand::Restore { .. }
        | StaterootCommand::RecordReturn { .. }
        | StaterootCommand::HandOver { .. } => Access::Write,
    }
}

/// Does one piece of work.
pub(super) async fn perform(
    sysroot: Sysroot,
    path: &Path,
    command: StaterootCommand,
    progress: &dyn Fn(String, Option<u8>),
) -> Result<StaterootReply, OsError> {
    match command {
        StaterootCommand::List => list::list(&sysroot, path).map(StaterootReply::Listed),
        StaterootCommand::Inspect { image, credentials } => {
            inspect::labels(&image, credentials.as_ref()).await
        }
        StaterootCommand::FetchBase { image, credentials, directory } => {
            make::fetch_base(&directory, &image, credentials.as_ref(), progress)
                .await
                .map(|()| StaterootReply::Nothing)
        }
        StaterootCommand::ListFiles { rules, refusals_only } => {
            make::list(path, &rules, refusals_only).map(StaterootReply::Files)
        }
        StaterootCommand::Archive(request) => {
            make::archive(path, &request, progress).map(|()| StaterootReply::Nothing)
        }
        StaterootCommand::Assemble(request) => {
            make::assemble(&sysroot, path, &request, progress).map(StaterootReply::Assembled)
        }
        StaterootCommand::Fetch(request) => {
            activate::refuse_separate_var(&sysroot, path)?;
            fetch::fetch(&sysroot, path, &request, progress).await.map(StaterootReply::Fetched)
        }
        StaterootCommand::Deploy(request) => {
            deploy::deploy(sysroot, path, &request, progress).await.map(StaterootReply::Deployed)
        }
        StaterootCommand::Remove { name, image } => {
            owned::remove(sysroot, path, &name, image.as_ref(), progress)
                .await
                .map(|()| StaterootReply::Nothing)
        }
        StaterootCommand::Arm { .. }
        | StaterootCommand::SetDefault { .. }
        | StaterootCommand::Restore { .. }
        | StaterootCommand::RecordReturn { .. }
        | StaterootCommand::HandOver { .. } => {
            let locked = sysroot::lock(sysroot, path, progress).await?;
            activate::perform(&locked, path, command).map(|()| StaterootReply::Nothing)
        }
    }
}
