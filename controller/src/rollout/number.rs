//! Numbers and shares of a pool.

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

/// Which way a share is rounded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rounding {
    /// To the smaller number.
    Down,
    /// To the larger number.
    Up,
}

/// Returns a number, or a share of `whole`.
pub(super) fn scaled(value: &IntOrString, whole: usize, rounding: Rounding) -> Result<usize, String> {
    let wrong = || format!("{} is neither a number nor a percentage", shown(value));
    match value {
        IntOrString::Int(number) => usize::try_from(*number).map_err(|_| wrong()),
        IntOrString::String(text) => {
            let percent = text.strip_suffix('%').ok_or_else(wrong)?;
            if percent.is_empty() || !percent.bytes().all(|byte| byte.is_ascii_digit()) {
                return Err(wrong());
            }
            let percent: usize = percent.parse().map_err(|_| wrong())?;
            if percent > 100 {
                return Err(format!("{} is more than 100%", shown(value)));
            }
            let hundredths = whole.saturating_mul(percent);
            Ok(if rounding == Rounding::Up { hundredths.div_ceil(100) } else { hundredths / 100 })
        }
    }
}

fn shown(value: &IntOrString) -> String {
    match value {
        IntOrString::Int(number) => number.to_string(),
        IntOrString::String(text) => format!("{:?}", text.chars().take(32).collect::<String>()),
    }
}
