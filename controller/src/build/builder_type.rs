//! Type of a build's builder. Pure.
//!
//! # Decisions
//!
//! - The definitions of `MachineOSConfig` allow the type `Job` alone, so the annotation [`IMAGE_BUILDER`] chooses another one: a cluster
//!   keeps its own definitions.
//! - A build keeps its type: one that began as a Job ends as a Job. Another type applies to the next build.

use super::OPENSHIFT_BUILD;

/// Annotation of a `MachineOSConfig`, and of each build with another type than `Job`: the type of the builder.
pub const IMAGE_BUILDER: &str = "machine-config-agent.io/image-builder";

/// Type of a builder.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum BuilderType {
    /// A Kubernetes Job.
    #[default]
    Job,
    /// A Build of `build.openshift.io`.
    OpenShiftBuild,
    /// A type without a builder.
    Unknown(String),
}

impl BuilderType {
    /// Reads the annotation [`IMAGE_BUILDER`], or where it is missing, `imageBuilderType` of the spec.
    pub fn new(annotation: Option<&str>, spec: &str) -> Self {
        match annotation.unwrap_or(spec) {
            "" | "Job" => Self::Job,
            OPENSHIFT_BUILD => Self::OpenShiftBuild,
            other => Self::Unknown(other.to_owned()),
        }
    }

    /// Returns the type as the annotation has it.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Job => "Job",
            Self::OpenShiftBuild => OPENSHIFT_BUILD,
            Self::Unknown(other) => other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn annotation_overrides_spec() {
        let unknown = BuilderType::Unknown("kaniko".to_owned());
        let table = [
            (None, "", BuilderType::Job),
            (None, "Job", BuilderType::Job),
            (None, "OpenShiftBuild", BuilderType::OpenShiftBuild),
            (Some("OpenShiftBuild"), "Job", BuilderType::OpenShiftBuild),
            (Some("Job"), "OpenShiftBuild", BuilderType::Job),
            (Some("kaniko"), "Job", unknown),
        ];
        for (annotation, spec, expected) in table {
            let found = BuilderType::new(annotation, spec);
            assert_eq!(found, expected, "{annotation:?} {spec}");
            assert_eq!(BuilderType::new(Some(found.as_str()), ""), found);
        }
    }
}
