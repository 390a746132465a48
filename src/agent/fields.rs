//! Fields of the lines about an update.

use tracing::field::{DisplayValue, display};

use crate::model::{ConfigName, ImageRef, Target, UpdateId};
use crate::update::Record;

/// Logs a line with the fields of all lines of an update: its ID, its config, and its image if it has one.
macro_rules! update_line {
    ($level:ident, $record:expr, $($line:tt)+) => {{
        let update = $crate::agent::fields::Fields::new($record);
        tracing::$level!(MCA_UPDATE = update.id, MCA_CONFIG = update.config, MCA_IMAGE = update.image, $($line)+)
    }};
}
pub(super) use update_line;

/// The fields of one update; without an update a line has none of them.
#[derive(Default)]
pub(super) struct Fields<'a> {
    pub(super) id: Option<DisplayValue<&'a UpdateId>>,
    pub(super) config: Option<DisplayValue<&'a ConfigName>>,
    pub(super) image: Option<DisplayValue<&'a ImageRef>>,
}

impl<'a> Fields<'a> {
    /// Creates the fields of a record.
    pub(super) fn new(record: Option<&'a Record>) -> Self {
        record.map_or_else(Self::default, |record| Self {
            id: Some(display(&record.id)),
            config: Some(display(&record.to.config)),
            image: image(&record.to),
        })
    }
}

/// Returns `MCA_IMAGE`: only lines of a target with an image have it.
pub(super) fn image(target: &Target) -> Option<DisplayValue<&ImageRef>> {
    target.image.as_ref().map(display)
}
