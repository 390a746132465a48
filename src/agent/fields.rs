//! Fields of the lines about an update.

use tracing::field::{DisplayValue, display};

use crate::model::{ImageRef, Target};

/// Returns `MCA_IMAGE`: only lines of a target with an image have it.
pub(super) fn image(target: &Target) -> Option<DisplayValue<&ImageRef>> {
    target.image.as_ref().map(display)
}
