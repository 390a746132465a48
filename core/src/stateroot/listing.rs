//! List of stateroots.

use serde::{Deserialize, Serialize};

use crate::model::{ImageRef, Karg};

/// A stateroot of this host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Stateroot {
    /// Its name.
    pub name: String,
    /// The running system is in it.
    pub booted: bool,
    /// The next boot is of it.
    pub boots_next: bool,
    /// Its deployments, in the order of the boot menu; none if it was never deployed to.
    pub deployments: Vec<StaterootDeployment>,
}

/// A deployment of a stateroot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct StaterootDeployment {
    /// Its id.
    pub id: String,
    /// The image that it was made from.
    pub image: Option<ImageRef>,
    /// It runs.
    pub booted: bool,
    /// The next boot is of it.
    #[serde(default)]
    pub boots_next: bool,
    /// It is staged.
    pub staged: bool,
    /// Its kernel arguments, without `ostree=`.
    pub kernel_arguments: Vec<Karg>,
}
