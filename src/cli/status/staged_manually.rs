//! A deployment staged by an administrator.

use serde::Serialize;

use crate::model::observation::Staged;
use crate::model::{ImageRef, Karg};

/// The next boot beside the image's own name.
#[derive(Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub(super) struct StagedManually {
    image: Option<ImageRef>,
    deployment: String,
    /// Kernel arguments that the next boot has and this one lacks.
    added_kernel_arguments: Vec<Karg>,
    /// Kernel arguments that this boot has and the next one lacks.
    removed_kernel_arguments: Vec<Karg>,
}

impl StagedManually {
    pub(super) fn new(staged: &Staged, kargs: &[Karg]) -> Self {
        let own = |karg: &&Karg| !karg.is_of_ostree() && !karg.is_of_boot_loader();
        let running: Vec<Karg> = kargs.iter().filter(own).cloned().collect();
        Self {
            image: staged.image.clone(),
            deployment: staged.deployment.clone(),
            added_kernel_arguments: Karg::changed(staged.kargs.clone(), &running, &[]),
            removed_kernel_arguments: Karg::changed(running, &staged.kargs, &[]),
        }
    }

    /// Returns one line: the next boot's deployment, and its difference from this one.
    pub(super) fn line(&self) -> String {
        let image = self.image.as_ref().map_or("no image".to_owned(), ToString::to_string);
        let added = signed('+', &self.added_kernel_arguments);
        let removed = signed('-', &self.removed_kernel_arguments);
        let kargs = if added.len() + removed.len() == 0 { " the same" } else { "" };
        format!(
            "  manual   staged for the next boot: {} ({image}), kernel arguments{kargs}{removed}{added}",
            self.deployment
        )
    }
}

/// Lists arguments, each behind a blank and a sign.
fn signed(sign: char, list: &[Karg]) -> String {
    list.iter().fold(String::new(), |text, karg| text + " " + &sign.to_string() + karg.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A deployment staged by an administrator is shown as such, with its changes: the image's name alone would say
    /// that the next boot is as this one. Arguments of the boot loader are no change.
    #[test]
    fn staged_arguments_of_administrator_are_shown() {
        let staged =
            Staged { image: None, deployment: "os-abc.1".to_owned(), kargs: Karg::split("rw quiet nosmt") };
        let running =
            Karg::split("BOOT_IMAGE=(hd0,gpt3)/vmlinuz rw quiet debug ostree=/ostree/boot.0/os/x/0");
        let by_hand = StagedManually::new(&staged, &running);
        let line = "  manual   staged for the next boot: os-abc.1 (no image), kernel arguments -debug +nosmt";
        assert_eq!(by_hand.line(), line);
        let json = serde_json::to_value(&by_hand).unwrap();
        assert_eq!(json["addedKernelArguments"], serde_json::json!(["nosmt"]));
        let same = StagedManually::new(&Staged { kargs: Karg::split("rw quiet debug"), ..staged }, &running);
        assert!(same.line().ends_with("kernel arguments the same"), "{}", same.line());
    }
}
