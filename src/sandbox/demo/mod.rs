//! The story that the `sandbox` verb plays: seven scenes of the main job, each with its request, the plan, the
//! time line, and checks of the host that are computed from it.
//!
//! Everything goes through the same agent, control directory and state as on a node; nothing here reaches into it.

mod configs;
mod node;
mod scenes;
mod show;

use std::collections::BTreeMap;
use std::path::Path;

use super::{SandboxError, SandboxHost};

pub use show::{Outcome, Style};

/// Plays all scenes in a directory that is new or empty.
pub async fn play(dir: &Path, agent: &Path, style: Style) -> Result<Outcome, SandboxError> {
    let mut show = show::Show::new(style);
    show.opening(dir, SandboxHost::privilege(agent)?);
    let labels = BTreeMap::from([("machineconfig".to_owned(), configs::BASE.to_owned())]);
    let host = SandboxHost::create(dir, agent, &labels, &|text| show::progress(style, text))?;
    let mut node = node::Node::new(host)?;
    scenes::play(&mut node, &mut show).await?;
    node.stop().await?;
    Ok(show.closing())
}
