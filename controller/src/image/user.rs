//! The user's part of the Containerfile: checked before anything is created.
//!
//! It is appended to stages of our own and followed by our last steps, so more is asked of it than of a Containerfile that
//! stands alone: its last stage has to begin with the config, and it must not reach over its own end.

use parse_dockerfile::{Dockerfile, Instruction, Span, Stage};

use super::ImageError;
use super::archive::FILES;

/// The stage that has the config. The user's last stage begins from it.
pub(super) const CONFIGS: &str = "configs";

/// The largest text; a `MachineOSConfig` takes 4,096 characters.
const MAX_BYTES: usize = 64 << 10;

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
    let parsed = parse_dockerfile::parse(text).map_err(|error| syntax(&error))?;
    let source = Source { text };
    source.check_top(&parsed)?;
    source.check_end()?;
    source.check_stages(&parsed)?;
    source.final_stage(&parsed)
}

/// Returns true if there is no instruction.
pub(super) fn is_blank(text: &str) -> bool {
    text.lines().all(|line| line.trim().is_empty() || line.trim_start().starts_with('#'))
}

fn at(line: usize, cause: impl Into<String>) -> ImageError {
    ImageError::Containerfile { line, cause: cause.into() }
}

fn syntax(error: &parse_dockerfile::Error) -> ImageError {
    // The alternate form is without the place, which is said before.
    let cause = format!("{error:#}");
    let next = if cause.contains("expected at least one FROM") {
        "; begin with `FROM configs AS final`"
    } else {
        "; correct it"
    };
    at(error.line().max(1), format!("{cause}{next}"))
}

struct Source<'a> {
    text: &'a str,
}

impl Source<'_> {
    fn error(&self, span: &Span, cause: impl Into<String>) -> ImageError {
        let before = self.text.get(..span.start).unwrap_or(self.text);
        at(before.matches('\n').count() + 1, cause)
    }

    /// Refuses lines that count only at the top of a file: our stages come before them.
    fn check_top(&self, parsed: &Dockerfile<'_>) -> Result<(), ImageError> {
        let directives = &parsed.parser_directives;
        if directives.escape.is_some() || directives.syntax.is_some() || directives.check.is_some() {
            let cause = "parser directives have no effect here, because the text is appended to other stages; remove it";
            return Err(at(1, cause));
        }
        match parsed.global_args().next() {
            Some(argument) => {
                let cause = "ARG stands before the first FROM; move it into the stage that uses it";
                Err(self.error(&argument.arg.span, cause))
            }
            None => Ok(()),
        }
    }

    /// Refuses a text whose last instruction would continue in the lines after it.
    fn check_end(&self) -> Result<(), ImageError> {
        let is_remark = |line: &str| line.trim().is_empty() || line.trim_start().starts_with('#');
        let last = self.text.lines().zip(1..).filter(|(line, _)| !is_remark(line)).last();
        match last.filter(|(line, _)| line.trim_end().ends_with('\\')) {
            Some((_, line)) => {
                Err(at(line, "the last instruction goes on (`\\`) and nothing follows; end it"))
            }
            None => Ok(()),
        }
    }

    fn check_stages(&self, parsed: &Dockerfile<'_>) -> Result<(), ImageError> {
        for stage in parsed.stages() {
            let named = stage.from.as_.as_ref();
            let ours = [CONFIGS, FILES];
            let taken = |name: &str| ours.into_iter().find(|own| name.eq_ignore_ascii_case(own));
            if let Some((name, own)) = named.and_then(|(_, name)| Some((name, taken(&name.value)?))) {
                let cause = format!("a stage named {own} is there already; choose another name");
                return Err(self.error(&name.span, cause));
            }
        }
        Ok(())
    }

    /// Follows the last stage back to the config.
    fn final_stage(&self, parsed: &Dockerfile<'_>) -> Result<Checked, ImageError> {
        let stages: Vec<Stage<'_, '_>> = parsed.stages().collect();
        let mut checked = Checked::default();
        let mut index = stages.len().checked_sub(1);
        let last = index.and_then(|last| stages.get(last));
        while let Some(stage) = index.and_then(|index| stages.get(index)) {
            checked.account = checked.account.or_else(|| account(stage));
            let image = &*stage.from.image.value;
            if image.eq_ignore_ascii_case(CONFIGS) {
                return Ok(checked);
            }
            let earlier = stages.iter().take(index.unwrap_or_default());
            index =
                earlier.enumerate().filter(|(_, stage)| is_named(stage, image)).map(|(at, _)| at).next_back();
        }
        let span = last.map(|stage| stage.from.from.span.clone()).unwrap_or_default();
        let image = last.map(|stage| stage.from.image.value.to_string()).unwrap_or_default();
        let cause = format!(
            "the last stage is from {image}, so the image would not have the config; begin it with \
             `FROM {CONFIGS} AS final`, and take what other stages made with `COPY --from`"
        );
        Err(self.error(&span, cause))
    }
}

fn is_named(stage: &Stage<'_, '_>, name: &str) -> bool {
    stage.from.as_.as_ref().is_some_and(|(_, own)| own.value.eq_ignore_ascii_case(name))
}

fn account(stage: &Stage<'_, '_>) -> Option<String> {
    let named = stage.instructions.iter().rev().find_map(|instruction| {
        let Instruction::User(user) = instruction else { return None };
        Some(user.arguments.value.trim().to_owned())
    });
    named.filter(|name| !name.is_empty())
}
