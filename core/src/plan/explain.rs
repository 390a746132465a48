//! Output of a plan for people and programs: the text of `plan`, its JSON, and a bounded diff of contents.

use std::fmt::Write as _;

use serde::Serialize;

use super::difference::Difference;
use super::reason::Unreachable;
use super::reconcilable::Irreconcilable;
use super::warnings::Warning;
use super::{Drain, Mode, Plan, PostActions, ServiceAction, ServiceVerb, Step, StepReason};
use crate::model::refusal::Refusal;
use crate::model::soft_reboot::Verdict;
use crate::model::text::{counted, is_control};
use crate::model::{NotApplied, Target};

/// The lines and bytes of a diff that a log, an event and a terminal take without losing the rest.
const DIFF_LINES: usize = 40;
const DIFF_BYTES: usize = 4096;

/// A line of a diff is cut here: enough for the difference in a configuration line.
const LINE_CHARS: usize = 200;

/// Returns a mode's word, as in the JSON.
pub(super) fn mode_word(mode: Mode) -> &'static str {
    match mode {
        Mode::Nothing => "nothing",
        Mode::Files => "files",
        Mode::Image => "image",
        Mode::ImageAndFiles => "image-and-files",
        Mode::LeaveImage => "leave-image",
        Mode::Adopt => "adopt",
    }
}

fn mode_sentence(mode: Mode) -> &'static str {
    match mode {
        Mode::Nothing => "no steps; the config is only recorded",
        Mode::Files => "the differences between the configs are applied to the host",
        Mode::Image => "the image carries the config; only entries that no image can carry are written",
        Mode::ImageAndFiles => {
            "the image does not carry the config; the node switches to it, and all differences are written"
        }
        Mode::LeaveImage => "the node leaves image mode; the config's own OS image and files are applied",
        Mode::Adopt => "the desired image runs already; it is recorded, and only differences are written",
    }
}

fn because_sentence(because: StepReason) -> &'static str {
    match because {
        StepReason::Added => "new",
        StepReason::Changed => "changed",
        StepReason::Removed => "no longer in the config",
        StepReason::UnderVar => "under /var, which no image can carry",
        StepReason::LocallyModified => "changed on this host, so the image's version would not come through",
        StepReason::Drifted => "changed on this host, and the config stays",
        StepReason::UnitsChanged => "unit files changed",
        StepReason::Policy => "the disruption policy requires it",
        StepReason::Pull => "credentials for the pull",
        StepReason::InImage => "in image mode the image carries it",
    }
}

/// Returns the plan as an administrator wants to read it.
pub fn text(plan: &Plan) -> String {
    let mut text = String::new();
    let from = plan.from().map_or("what is on the host now".to_owned(), target_text);
    let mut line = |head: &str, tail: &str| {
        // Writing to a String can't fail.
        writeln!(text, "{head:<7}{tail}").unwrap_or_default();
    };
    line("From", &from);
    line("To", &target_text(plan.to()));
    line("Mode", &format!("{}: {}", mode_word(plan.mode()), mode_sentence(plan.mode())));
    if plan.to().image.is_some() {
        line("Layers", "none: the kernel and the extensions of the config come with the image");
    }
    line("Drain", &drain_text(plan));
    match plan.after() {
        PostActions::Nothing => line("After", "nothing: no service is touched, no reboot"),
        PostActions::Reboot { because, uncovered, verdict } => {
            let (kind, when) = kind_text(verdict);
            line("After", &format!("{kind}, because of {}", reboot_text(because, uncovered)));
            if let Some(when) = &when {
                line("", when);
            }
        }
        PostActions::Services { actions } => {
            for (place, action) in actions.iter().enumerate() {
                line(if place == 0 { "After" } else { "" }, &action_text(action));
            }
        }
    }
    for (place, warning) in plan.warnings().iter().enumerate() {
        line(if place == 0 { "Warn" } else { "" }, &format!("{}: {}", warning.field, warning.message));
    }
    text.push_str(&steps_text(plan.steps()));
    text.push_str(&not_applied_text(plan.not_applied()));
    text
}

/// Facts about an update beside its plan.
#[derive(Debug, Default)]
pub struct Beside {
    /// Drift that keeps it from starting.
    pub drift: Vec<Difference>,
    /// Fields of the old config that can't be read: what they brought stays on the host.
    pub left: Vec<NotApplied>,
    /// The update that is open on the host.
    pub open: Option<OpenUpdate>,
    /// Fields that rendering left out of the config already: its plan can't know them.
    pub left_out: Vec<NotApplied>,
}

/// An update that is open while another plan is shown.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct OpenUpdate {
    /// Its id.
    pub id: String,
    /// Its target.
    pub to: Target,
    /// Its phase.
    pub phase: &'static str,
    /// Its fate: a word of `decide::ahead`.
    pub then: &'static str,
    /// Its fault, with the next step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fault: Option<String>,
    /// Paths whose state after the undo is not known beforehand: the plan may differ then.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unknown: Vec<String>,
    /// Accounts and groups that a person has changed since, with the parts that the undo leaves: `account core (password)`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub kept: Vec<String>,
}

impl OpenUpdate {
    fn text(&self) -> String {
        let then = match self.then {
            "goes-on" => "`apply` continues it; these are all its steps",
            "held" => "it failed and waits for you; these are all its steps",
            "undone-first" => "it is undone before this plan",
            "ends-first" => "it finishes before this plan begins",
            "left-as-it-is" => "it failed, and this plan starts from the observed state",
            _ => "it is already undone",
        };
        let fault = self.fault.as_ref().map(|fault| format!("\n       {fault}")).unwrap_or_default();
        let unknown = if self.unknown.is_empty() {
            String::new()
        } else {
            let paths = list(&self.unknown);
            format!(
                "\n       The state of these paths is known only after the undo: {paths}; `apply` undoes the open update \
                 first, then plans again"
            )
        };
        let kept = if self.kept.is_empty() {
            String::new()
        } else {
            format!("\n       The undo keeps what was changed on this host since: {}", list(&self.kept))
        };
        self.line(&format!("{then}{fault}{kept}{unknown}"))
    }

    fn line(&self, then: &str) -> String {
        format!("Open   update {} to {} in phase {}: {then}\n", self.id, self.to.config, self.phase)
    }
}

impl Beside {
    /// Returns what becomes of the open update where the plan is refused: `apply` touches nothing then.
    pub fn refused_text(&self) -> String {
        let Some(open) = &self.open else { return String::new() };
        match open.then {
            "goes-on" | "held" => String::new(),
            "ends-first" => open.line(&format!(
                "it stays as it is; `systemctl reboot`, then `apply` of {} ends it",
                open.to.config
            )),
            _ => open.line("it stays as it is"),
        }
    }

    /// Returns it as an administrator wants to read it, after the plan; nothing where there is nothing.
    pub fn text(&self) -> String {
        let section = |head: &str, lines: Vec<String>| {
            if lines.is_empty() { String::new() } else { format!("{head}\n{}", lines.concat()) }
        };
        let drift = self.drift.iter().map(|one| format!("  {one}\n")).collect();
        let left = self.left.iter().map(|one| format!("  {one}\n")).collect();
        self.open.as_ref().map(OpenUpdate::text).unwrap_or_default()
            + &section("Left as it is, of the old config", left)
            + &section("Drift: the update starts when this is restored", drift)
    }
}

/// Returns the fields that the host does not get, a line each; nothing where there are none.
pub fn not_applied_text(list: &[NotApplied]) -> String {
    if list.is_empty() {
        return String::new();
    }
    let lines = list.iter().map(|one| format!("  {one}\n"));
    format!("Not applied\n{}", lines.collect::<String>())
}

fn target_text(target: &Target) -> String {
    match &target.image {
        Some(image) => format!("{} on {image}", target.config),
        None => target.config.to_string(),
    }
}

fn drain_text(plan: &Plan) -> String {
    match (plan.drain(), plan.after()) {
        (Drain::NotNeeded, _) => "no: the workload stays".to_owned(),
        (Drain::Needed, PostActions::Reboot { .. }) => "yes: the node reboots".to_owned(),
        (Drain::Needed, PostActions::Nothing | PostActions::Services { .. }) => {
            "yes: the disruption policy, or an unsafe change of registries.conf, requires it".to_owned()
        }
    }
}

fn action_text(action: &ServiceAction) -> String {
    let verb = match action.action {
        ServiceVerb::DaemonReload => "daemon-reload",
        ServiceVerb::Reload => "reload",
        ServiceVerb::Restart => "restart",
    };
    let unit = action.unit.as_ref().map(|unit| format!(" {unit}")).unwrap_or_default();
    format!("{verb}{unit}, because of {}", list(&action.because))
}

/// Names the kind of a reboot, and its conditions, or why it is not a soft one.
fn kind_text(verdict: &Verdict) -> (&'static str, Option<String>) {
    match verdict {
        Verdict::Soft => ("soft reboot", None),
        Verdict::SoftIf { .. } => {
            let open = verdict.condition().unwrap_or_default();
            ("soft reboot", Some(format!("if the new deployment has {open}; else reboot")))
        }
        Verdict::Whole { why } => ("reboot", why.as_ref().map(|why| format!("not a soft one: {why}"))),
    }
}

/// Names the reasons of a reboot; those that a policy could spare come last, with why it does not.
fn reboot_text(because: &[String], uncovered: &[String]) -> String {
    let covered: Vec<String> = because.iter().filter(|reason| !uncovered.contains(reason)).cloned().collect();
    let them = if uncovered.len() == 1 { "it" } else { "them" };
    match (covered.is_empty(), uncovered.is_empty()) {
        (_, true) => list(&covered),
        (true, false) => format!("{}: no disruption policy covers {them}", list(uncovered)),
        (false, false) => {
            format!("{}; {}: no disruption policy covers {them}", list(&covered), list(uncovered))
        }
    }
}

/// Names the first reasons; the others are counted.
fn list(reasons: &[String]) -> String {
    const SHOWN: usize = 5;
    let shown: Vec<&str> = reasons.iter().take(SHOWN).map(String::as_str).collect();
    match reasons.len().saturating_sub(SHOWN) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

fn steps_text(steps: &[Step]) -> String {
    if steps.is_empty() {
        return "Steps  none\n".to_owned();
    }
    let targets: Vec<String> = steps.iter().map(|step| step.op.target()).collect();
    // A digest or a long path would push the reasons off the screen: those lines just run over.
    let width =
        targets.iter().map(|target| target.chars().count()).filter(|width| *width <= 48).max().unwrap_or(0);
    let words = steps.iter().map(|step| step.op.as_str().len()).max().unwrap_or(0);
    let digits = steps.len().to_string().len();
    let mut text = "Steps\n".to_owned();
    for (place, (step, target)) in steps.iter().zip(&targets).enumerate() {
        let (word, because) = (step.op.as_str(), because_sentence(step.because));
        writeln!(text, "  {:>digits$}. {word:<words$}  {target:<width$}  {because}", place + 1)
            .unwrap_or_default();
    }
    text
}

#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
struct Document<'a> {
    schema_version: u32,
    from: Option<&'a Target>,
    to: &'a Target,
    mode: Option<Mode>,
    irreconcilable: &'a [Unreachable],
    /// The same reasons as in every refusal.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    refused: Vec<Refusal>,
    not_applied: Vec<&'a NotApplied>,
    steps: Vec<StepLine<'a>>,
    drain: bool,
    after: AfterLine<'a>,
    warnings: &'a [Warning],
    drift: &'a [Difference],
    left: &'a [NotApplied],
    #[serde(skip_serializing_if = "Option::is_none")]
    open_update: Option<&'a OpenUpdate>,
}

#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct StepLine<'a> {
    op: &'a str,
    target: String,
    because: &'a str,
}

#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
struct AfterLine<'a> {
    kind: &'a str,
    actions: &'a [ServiceAction],
    because: &'a [String],
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    uncovered: &'a [String],
    /// Set if the node's settings allow soft reboots.
    #[serde(skip_serializing_if = "Option::is_none")]
    soft_reboot: Option<SoftLine>,
}

#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct SoftLine {
    possible: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    because: Option<String>,
}

fn soft_line(verdict: &Verdict) -> Option<SoftLine> {
    match verdict {
        Verdict::Soft => Some(SoftLine { possible: "yes", because: None }),
        Verdict::SoftIf { .. } => Some(SoftLine { possible: "open", because: verdict.condition() }),
        Verdict::Whole { why } => why.clone().map(|why| SoftLine { possible: "no", because: Some(why) }),
    }
}

/// Returns the schema of [`json`].
#[cfg(feature = "schema")]
pub fn schema(generator: schemars::SchemaGenerator) -> schemars::Schema {
    generator.into_root_schema_for::<Document<'static>>()
}

/// Returns the plan, or why there is none, as `plan --output json` prints it (tests/goldens/plan.json).
pub fn json<'a>(
    outcome: Result<&'a Plan, &'a Irreconcilable>,
    from: Option<&'a Target>,
    to: &'a Target,
    Beside { drift, left, open, left_out }: &'a Beside,
) -> impl Serialize + use<'a> {
    let nothing =
        AfterLine { kind: "nothing", actions: &[], because: &[], uncovered: &[], soft_reboot: None };
    let (mode, irreconcilable, steps, drain, after) = match outcome {
        Err(refused) => (None, refused.reasons.as_slice(), [].as_slice(), false, nothing),
        Ok(plan) => {
            let after = match plan.after() {
                PostActions::Nothing => nothing,
                PostActions::Services { actions } => {
                    AfterLine { kind: "services", actions, because: &[], uncovered: &[], soft_reboot: None }
                }
                PostActions::Reboot { because, uncovered, verdict } => {
                    let soft_reboot = soft_line(verdict);
                    AfterLine { kind: "reboot", actions: &[], because, uncovered, soft_reboot }
                }
            };
            (Some(plan.mode()), [].as_slice(), plan.steps(), plan.drain() == Drain::Needed, after)
        }
    };
    let line = |step: &'a Step| StepLine {
        op: step.op.as_str(),
        target: step.op.target(),
        because: step.because.as_str(),
    };
    let warnings = outcome.map_or([].as_slice(), Plan::warnings);
    let steps = steps.iter().map(line).collect();
    let not_applied = outcome.map_or([].as_slice(), Plan::not_applied).iter().chain(left_out).collect();
    Document {
        schema_version: 1,
        from,
        to,
        mode,
        irreconcilable,
        refused: outcome.err().map(Irreconcilable::refusals).unwrap_or_default(),
        not_applied,
        steps,
        drain,
        after,
        warnings,
        drift,
        left,
        open_update: open.as_ref(),
    }
}

/// Returns the difference of two contents: a unified diff, bounded. Of secrets and binaries only the lengths.
pub fn text_diff(expected: &[u8], found: &[u8], secret: bool) -> String {
    let lengths =
        || format!("{} expected, {} found", counted(expected.len(), "byte"), counted(found.len(), "byte"));
    if secret {
        return format!("secret, not shown: {}", lengths());
    }
    let text = |bytes| std::str::from_utf8(bytes).ok().filter(|text: &&str| !text.contains('\0'));
    let (Some(expected_text), Some(found_text)) = (text(expected), text(found)) else {
        return format!("binary: {}", lengths());
    };
    // Megabytes are not compared line by line: no person reads that, and it would take the node's time.
    if expected.len().max(found.len()) > 64 * DIFF_BYTES {
        return format!("large: {}", lengths());
    }
    let diff = similar::TextDiff::from_lines(expected_text, found_text);
    bounded(&diff.unified_diff().context_radius(2).header("expected", "found").to_string())
}

fn bounded(diff: &str) -> String {
    let mut shown = String::new();
    let lines = diff.lines().count();
    for (place, line) in diff.lines().enumerate() {
        let cut: String = line
            .chars()
            .map(|c| if is_control(c) && c != '\t' { '\u{fffd}' } else { c })
            .take(LINE_CHARS)
            .collect();
        let ellipsis = if cut.chars().count() < line.chars().count() { "…" } else { "" };
        if place >= DIFF_LINES || shown.len() + cut.len() + 80 > DIFF_BYTES {
            writeln!(shown, "… {} more lines", lines - place).unwrap_or_default();
            break;
        }
        writeln!(shown, "{cut}{ellipsis}").unwrap_or_default();
    }
    shown
}
