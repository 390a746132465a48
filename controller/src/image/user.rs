//! The user's part of the Containerfile: checked before anything is created.
//!
//! It is appended to stages of our own and followed by our last steps, so more is asked of it than of a Containerfile that
//! stands alone: its last stage has to begin with the config, and it must not reach over its own end. The rest is the builder's to
//! judge.

use super::ImageError;
use super::archive::FILES;
use super::dockerfile::{self, Instruction, Mistake, Stage};
use crate::model::text::shown;

/// The stage that has the config. The user's last stage begins from it.
pub(super) const CONFIGS: &str = "configs";

/// The largest text; a `MachineOSConfig` takes 4,096 characters.
const MAX_BYTES: usize = 64 << 10;

/// The longest cause.
const MAX_CAUSE: usize = 500;

/// Facts of the user's part for our last steps.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Checked {
    /// The account that the last stage ends with, where one is named.
    pub account: Option<String>,
}

/// Checks the text; one without any instruction is no error.
pub fn check(text: &str) -> Result<Checked, ImageError> {
    if text.len() > MAX_BYTES {
        return Err(at(
            1,
            format!("it has {} bytes, and at most {MAX_BYTES} are taken; shorten it", text.len()),
        ));
    }
    if is_blank(text) {
        return Ok(Checked::default());
    }
    check_top(text)?;
    let instructions = dockerfile::parse(text).map_err(|Mistake { line, cause }| at(line, cause))?;
    check_ends(&instructions)?;
    let stages = dockerfile::stages(&instructions);
    check_names(&stages)?;
    check_sources(&instructions)?;
    final_stage(&stages)
}

/// Returns true if there is no instruction.
pub(super) fn is_blank(text: &str) -> bool {
    text.lines().all(|line| line.trim().is_empty() || line.trim_start().starts_with('#'))
}

fn at(line: usize, cause: impl Into<String>) -> ImageError {
    // It quotes words of the file.
    ImageError::Containerfile { line, cause: shown(&cause.into(), MAX_CAUSE) }
}

/// Refuses the directive that counts only at the top of a file: our stages come before it. Others are remarks to buildah.
fn check_top(text: &str) -> Result<(), ImageError> {
    let directive = |line: &str| {
        let (name, value) = line.trim_start().strip_prefix('#')?.split_once('=')?;
        let name = name.trim();
        let is_name = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric());
        is_name.then(|| (name.to_lowercase(), value.trim().to_owned()))
    };
    let directives = (1..).zip(text.lines()).map_while(|(line, text)| Some((line, directive(text)?)));
    for (line, (name, value)) in directives {
        if name == "escape" && value != "\\" {
            let cause = "parser directives have no effect here, because the text is appended to other stages; remove escape, and \
                         continue lines with `\\`";
            return Err(at(line, cause));
        }
    }
    Ok(())
}

/// Refuses an instruction before the first stage, a text without stage, and one whose last instruction would continue in the
/// lines after it.
fn check_ends(instructions: &[Instruction]) -> Result<(), ImageError> {
    match instructions.first() {
        Some(first) if first.keyword == "ARG" => {
            Err(at(first.line, "ARG stands before the first FROM; move it into the stage that uses it"))
        }
        Some(first) if first.keyword != "FROM" => Err(at(
            first.line,
            format!("{} stands before the first FROM; begin with `FROM {CONFIGS} AS final`", first.keyword),
        )),
        Some(_) | None => match instructions.last().filter(|last| last.unfinished) {
            Some(last) => Err(at(
                last.line,
                "the last instruction ends with `\\`, and no line follows; remove the `\\`",
            )),
            None => Ok(()),
        },
    }
}

fn check_names(stages: &[Stage<'_>]) -> Result<(), ImageError> {
    let ours = [CONFIGS, FILES];
    let taken = |name: &str| ours.into_iter().find(|own| name.eq_ignore_ascii_case(own));
    match stages.iter().find_map(|stage| Some((stage, stage.name.and_then(taken)?))) {
        Some((stage, own)) => {
            Err(at(stage.line, format!("a stage named {own} exists already; choose another name")))
        }
        None => Ok(()),
    }
}

/// Refuses a stage by its number, which counts ours too, and the stage that holds what only our own steps are given.
fn check_sources(instructions: &[Instruction]) -> Result<(), ImageError> {
    for instruction in instructions {
        for from in sources(&instruction.flags) {
            if from.eq_ignore_ascii_case(FILES) {
                let cause = format!("from={from} is reserved; take from your own stage");
                return Err(at(instruction.line, cause));
            }
            if !from.is_empty() && from.chars().all(|c| c.is_ascii_digit()) {
                let cause = format!(
                    "from={from} would count hidden stages that precede yours; give your stage a name (FROM image AS name), and \
                     take from that"
                );
                return Err(at(instruction.line, cause));
            }
        }
    }
    Ok(())
}

/// Returns the stages and images that `--from=` and `--mount=...,from=` name.
fn sources(flags: &str) -> impl Iterator<Item = &str> {
    flags.split_whitespace().flat_map(|flag| {
        let named = flag.strip_prefix("--from=").map(unquoted);
        let mount = flag.strip_prefix("--mount=").map_or("", unquoted);
        named.into_iter().chain(mount.split(',').filter_map(|part| part.trim().strip_prefix("from=")))
    })
}

fn unquoted(word: &str) -> &str {
    word.trim_matches(['"', '\''])
}

/// Follows the last stage back to the config.
fn final_stage(stages: &[Stage<'_>]) -> Result<Checked, ImageError> {
    let mut checked = Checked::default();
    let mut index = stages.len().checked_sub(1);
    let last = index.and_then(|last| stages.get(last));
    while let Some(stage) = index.and_then(|index| stages.get(index)) {
        checked.account = checked.account.or_else(|| account(stage));
        if stage.image.eq_ignore_ascii_case(CONFIGS) {
            return Ok(checked);
        }
        let earlier = stages.iter().take(index.unwrap_or_default());
        index =
            earlier.enumerate().filter(|(_, one)| is_named(one, stage.image)).map(|(at, _)| at).next_back();
    }
    let (line, image) = last.map_or((1, ""), |stage| (stage.line, stage.image));
    let cause = format!(
        "the last stage is from {image}, so the image would not have the config; begin it with \
         `FROM {CONFIGS} AS final`, and take what other stages made with `COPY --from`"
    );
    Err(at(line, cause))
}

fn is_named(stage: &Stage<'_>, name: &str) -> bool {
    stage.name.is_some_and(|own| own.eq_ignore_ascii_case(name))
}

fn account(stage: &Stage<'_>) -> Option<String> {
    let named = stage.instructions.iter().rev().find(|instruction| instruction.keyword == "USER");
    named.map(|user| user.arguments.clone())
}
