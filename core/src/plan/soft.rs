//! Kind of the reboot at a plan's end: soft, as far as the steps and the host allow it before the deployment exists.

use super::input::PlanInput;
use super::{Op, Step, StepReason};
use crate::model::node_settings::SoftReboot;
use crate::model::soft_reboot::{Requirement, SoftRebootFacts, Verdict, judge};
use crate::plan::batch::Batch;

/// Judges the reboot of a plan with these steps.
pub(super) fn verdict(input: &PlanInput<'_>, steps: &[Step]) -> Verdict {
    let Some(host) = &input.facts.soft_reboot else { return Verdict::default() };
    judge(SoftReboot::WhereCapable, 0, &known(host.clone(), steps))
}

/// Adds what the steps say: another image, or other packages, may bring the kernel, the initramfs and the policy that run.
fn known(host: SoftRebootFacts, steps: &[Step]) -> SoftRebootFacts {
    let has = |wanted: fn(&Step) -> bool| steps.iter().any(wanted);
    let mut facts = host
        .with(Requirement::Deployment, has(|step| step.op.batch() == Batch::Os))
        .with(Requirement::Kargs, !has(|step| matches!(step.op, Op::SetKargs { .. })));
    if has(|step| matches!(step.op, Op::SwitchKernel { .. }) && step.because != StepReason::InImage) {
        facts = facts.with(Requirement::Kernel, false);
    }
    facts
}
