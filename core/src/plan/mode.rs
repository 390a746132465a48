//! The image-mode table (docs/contract.md, "Image mode"), as one pure function.
//!
//! A switch of the image is decided by the *booted* deployment, never by a record: a record may
//! be lost, the digest of the running deployment can't lie.

use super::Mode;
use crate::model::observation::{EmbeddedConfig, ObservedOs};
use crate::model::{Facts, HostSpec, ImageRef};

/// The desired image compared with the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Image {
    /// None is desired and none was.
    Absent,
    /// None is desired any more.
    Left,
    /// It is booted and recorded.
    Recorded,
    /// It is booted; the record has none or another.
    Unrecorded,
    /// Another one is booted.
    Another,
}

/// Match of the desired image with the desired config.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Built {
    /// It carries this config.
    ForThis,
    /// It carries another one, or none that is known.
    NotForThis,
}

/// Difference between the host and the config's content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Content {
    /// Nothing.
    Same,
    /// Something.
    Differs,
}

/// Decides the mode.
pub(super) fn decide(image: Image, built: Built, content: Content) -> Mode {
    match (image, built, content) {
        (Image::Absent | Image::Recorded, _, Content::Same) => Mode::Nothing,
        (Image::Absent | Image::Recorded, _, Content::Differs) => Mode::Files,
        (Image::Left, _, _) => Mode::LeaveImage,
        (Image::Unrecorded, _, _) => Mode::Adopt,
        (Image::Another, Built::ForThis, _) => Mode::Image,
        (Image::Another, Built::NotForThis, _) => Mode::ImageAndFiles,
    }
}

/// Reads the image's column of the table.
pub(super) fn image(from: &HostSpec, to: &HostSpec, os: &ObservedOs) -> Image {
    let booted = os.booted().and_then(|booted| booted.image.as_ref()).map(ImageRef::digest);
    let digest = |spec: &HostSpec| spec.image.as_ref().map(ImageRef::digest);
    match (digest(from), digest(to)) {
        (None, None) => Image::Absent,
        (Some(_), None) => Image::Left,
        (recorded, desired @ Some(_)) if desired == booted => {
            if recorded == desired {
                Image::Recorded
            } else {
                Image::Unrecorded
            }
        }
        (_, Some(_)) => Image::Another,
    }
}

/// Reads the "built for this config" column.
pub(super) fn built(to: &HostSpec, facts: &Facts) -> Built {
    match &facts.carries {
        EmbeddedConfig::Config(name) if *name == to.name => Built::ForThis,
        EmbeddedConfig::Config(_) | EmbeddedConfig::Unknown => Built::NotForThis,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use {Built::*, Content::*, Image::*};

    #[test]
    fn without_images_files_are_brought() {
        assert_eq!(decide(Absent, NotForThis, Differs), Mode::Files);
    }

    #[test]
    fn without_images_and_changes_nothing_is_done() {
        assert_eq!(decide(Absent, NotForThis, Same), Mode::Nothing);
    }

    #[test]
    fn no_more_image_leaves_image_mode() {
        for (built, content) in
            [(ForThis, Same), (NotForThis, Same), (ForThis, Differs), (NotForThis, Differs)]
        {
            assert_eq!(decide(Left, built, content), Mode::LeaveImage);
        }
    }

    #[test]
    fn new_image_with_config_needs_no_files() {
        assert_eq!(decide(Another, ForThis, Differs), Mode::Image);
        assert_eq!(decide(Another, ForThis, Same), Mode::Image);
    }

    #[test]
    fn new_image_without_config_needs_files() {
        assert_eq!(decide(Another, NotForThis, Differs), Mode::ImageAndFiles);
        assert_eq!(decide(Another, NotForThis, Same), Mode::ImageAndFiles);
    }

    #[test]
    fn same_image_with_new_config_needs_files_only() {
        assert_eq!(decide(Recorded, NotForThis, Differs), Mode::Files);
        assert_eq!(decide(Recorded, ForThis, Differs), Mode::Files);
    }

    #[test]
    fn same_image_and_config_need_nothing() {
        assert_eq!(decide(Recorded, ForThis, Same), Mode::Nothing);
        assert_eq!(decide(Recorded, NotForThis, Same), Mode::Nothing);
    }

    #[test]
    fn booted_image_is_adopted() {
        for (built, content) in
            [(ForThis, Same), (NotForThis, Same), (ForThis, Differs), (NotForThis, Differs)]
        {
            assert_eq!(decide(Unrecorded, built, content), Mode::Adopt);
        }
    }
}
