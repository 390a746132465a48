//! Errors of the OS backends, in common words.

mod kind;
mod next;
mod pull;

use serde::{Deserialize, Serialize};

pub(in crate::host) use kind::OsErrorKind;
#[cfg(feature = "backend-ostree")]
pub(in crate::host::os) use pull::of_skopeo;

use crate::host::HostError;
use crate::model::text::shown;

/// The object of errors that are about no image.
pub(super) const SYSROOT: &str = "the libostree sysroot";

/// The longest cause of a failure.
const MAX_CAUSE_CHARS: usize = 2000;

/// Kinds by the words of skopeo, ostree-ext and libostree, in small letters; the first row that fits counts.
const KNOWN: [(&str, OsErrorKind); 37] = [
    ("no space left", OsErrorKind::NoSpace),
    ("min-free-space", OsErrorKind::NoSpace),
    ("disk quota exceeded", OsErrorKind::NoSpace),
    ("skopeo spawn error", OsErrorKind::MissingTool),
    // Of any backend: they have one next step.
    ("is rejected by policy", OsErrorKind::PullFailed),
    ("source image rejected", OsErrorKind::PullFailed),
    ("x509: ", OsErrorKind::PullFailed),
    ("server gave http response", OsErrorKind::PullFailed),
    ("getting username and password", OsErrorKind::Unauthorized),
    ("unauthorized", OsErrorKind::Unauthorized),
    ("authentication required", OsErrorKind::Unauthorized),
    ("403 (forbidden)", OsErrorKind::Unauthorized),
    ("packages not found", OsErrorKind::NoPackage),
    ("no enabled repositories", OsErrorKind::NoRepositories),
    ("pinging container registry", OsErrorKind::PullFailed),
    ("connection refused", OsErrorKind::PullFailed),
    ("no such host", OsErrorKind::PullFailed),
    ("i/o timeout", OsErrorKind::PullFailed),
    ("system transaction in progress", OsErrorKind::Busy),
    ("transaction in progress", OsErrorKind::Busy),
    ("statuscode: 401", OsErrorKind::Unauthorized),
    ("statuscode: 403", OsErrorKind::Unauthorized),
    ("manifest unknown", OsErrorKind::ImageNotFound),
    ("name unknown", OsErrorKind::ImageNotFound),
    ("statuscode: 404", OsErrorKind::ImageNotFound),
    ("image has architecture", OsErrorKind::WrongArchitecture),
    ("image found in manifest list for architecture", OsErrorKind::WrongArchitecture),
    ("image found in image index for architecture", OsErrorKind::WrongArchitecture),
    ("digest did not match", OsErrorKind::DigestMismatch),
    ("does not match provided manifest digest", OsErrorKind::DigestMismatch),
    ("does not match expected sha256:", OsErrorKind::Corrupted),
    ("corrupted blob", OsErrorKind::Corrupted),
    ("not an ostree encapsulated container", OsErrorKind::NoCommit),
    ("does not have ostree.bootable", OsErrorKind::NotBootable),
    ("multiple kernels found in", OsErrorKind::Kernels),
    ("no kernel found in", OsErrorKind::Kernels),
    ("failed to find kernel in", OsErrorKind::Kernels),
];

/// Failure of a backend's work.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::host) struct OsError {
    /// The object: an image, a deployment, the sysroot.
    pub(in crate::host) object: String,
    /// Message of the failure.
    pub(in crate::host) cause: String,
    /// Its kind.
    pub(in crate::host) trouble: OsErrorKind,
}

impl OsError {
    pub(in crate::host) fn new(
        trouble: OsErrorKind,
        object: impl Into<String>,
        cause: impl Into<String>,
    ) -> Self {
        // The tooling's own words may be of any length, and hold names of others; a report cuts them here, too.
        let cause = shown(&cause.into(), MAX_CAUSE_CHARS);
        Self { object: object.into(), cause, trouble }
    }

    /// Creates the error of a missing deployment that should boot next.
    pub(in crate::host) fn gone(deployment: &str) -> Self {
        Self::new(OsErrorKind::DeploymentGone, deployment, "it is not on this host any more")
    }

    /// Finds the kind of a failure by the words of skopeo, ostree-ext and libostree: none of them gives a code.
    pub(in crate::host) fn from_text(object: &str, text: &str, other: OsErrorKind) -> Self {
        let low = text.to_lowercase();
        let trouble =
            KNOWN.iter().find(|(part, _)| low.contains(part)).map_or(other, |(_, trouble)| *trouble);
        if trouble == OsErrorKind::ImageNotFound {
            return Self::new(trouble, object, format!("the registry has no such image: {text}"));
        }
        Self::new(trouble, object, text)
    }

    /// Converts it to an error of the host.
    pub(in crate::host) fn into_error(self) -> HostError {
        let Self { object, cause, trouble } = self;
        let of_pull = (trouble == OsErrorKind::PullFailed).then(|| pull::next(&cause));
        let next = next::about(of_pull.as_deref().unwrap_or(trouble.next()), &object);
        HostError::Os { object, cause, class: trouble.class(), reason: trouble.reason(), next }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Texts of skopeo 1.9 and 1.18, of ostree-ext 0.15, libostree 2022 and rpm-ostree 2024; of each row one.
    const SAID: [(&str, OsErrorKind); 37] = [
        (
            "writing blob: storing blob to file \"/var/tmp/storage1\": write /var/tmp/storage1: no space left on device",
            OsErrorKind::NoSpace,
        ),
        (
            "Importing: Unencapsulating base: min-free-space-percent '3%' would be exceeded, at least 12.5 MB requested",
            OsErrorKind::NoSpace,
        ),
        ("writing blob: write /var/tmp/storage1: disk quota exceeded", OsErrorKind::NoSpace),
        ("skopeo spawn error: No such file or directory (os error 2)", OsErrorKind::MissingTool),
        ("Running image docker://r.test/os@sha256:1 is rejected by policy.", OsErrorKind::PullFailed),
        ("Source image rejected: A signature was required, but no signature exists", OsErrorKind::PullFailed),
        (
            "Get \"https://r.test/v2/\": x509: certificate signed by unknown authority",
            OsErrorKind::PullFailed,
        ),
        (
            "Get \"https://r.test/v2/\": http: server gave HTTP response to HTTPS client",
            OsErrorKind::PullFailed,
        ),
        (
            "getting username and password: 1 error occurred: reading JSON file \"auth.json\": unexpected end of JSON input",
            OsErrorKind::Unauthorized,
        ),
        (
            "reading manifest sha256:1 in r.test/os: unauthorized: access to the requested resource is not authorized",
            OsErrorKind::Unauthorized,
        ),
        ("reading manifest sha256:1 in r.test/os: authentication required", OsErrorKind::Unauthorized),
        (
            "requesting bearer token: invalid status code from registry 403 (Forbidden)",
            OsErrorKind::Unauthorized,
        ),
        ("error: Packages not found: kernel-rt-core", OsErrorKind::NoPackage),
        ("error: No enabled repositories", OsErrorKind::NoRepositories),
        (
            "pinging container registry r.test: Get \"https://r.test/v2/\": context deadline exceeded",
            OsErrorKind::PullFailed,
        ),
        (
            "fetching blob: Get \"https://r.test/v2/os/blobs/sha256:1\": dial tcp 192.0.2.1:443: connect: connection refused",
            OsErrorKind::PullFailed,
        ),
        ("fetching blob: dial tcp: lookup r.test on 192.0.2.53:53: no such host", OsErrorKind::PullFailed),
        ("fetching blob: read tcp 192.0.2.2:50000->192.0.2.1:443: i/o timeout", OsErrorKind::PullFailed),
        ("error: System transaction in progress", OsErrorKind::Busy),
        ("error: Transaction in progress: (null)", OsErrorKind::Busy),
        (
            "fetching target platform image selected from image index: StatusCode: 401, \"\"",
            OsErrorKind::Unauthorized,
        ),
        ("reading manifest sha256:1 in r.test/os: StatusCode: 403, \"\"", OsErrorKind::Unauthorized),
        ("reading manifest sha256:1 in r.test/os: manifest unknown", OsErrorKind::ImageNotFound),
        (
            "reading manifest sha256:1 in r.test/os: name unknown: repository name not known to registry",
            OsErrorKind::ImageNotFound,
        ),
        ("reading manifest sha256:1 in r.test/os: StatusCode: 404, \"\"", OsErrorKind::ImageNotFound),
        ("Image has architecture arm64; this machine is amd64", OsErrorKind::WrongArchitecture),
        (
            "choosing image instance: no image found in manifest list for architecture amd64, variant \"\", OS linux",
            OsErrorKind::WrongArchitecture,
        ),
        (
            "choosing image instance: no image found in image index for architecture amd64, variant \"\", OS linux",
            OsErrorKind::WrongArchitecture,
        ),
        ("manifest digest did not match: expected sha256:1, got sha256:2", OsErrorKind::DigestMismatch),
        ("manifest does not match provided manifest digest sha256:1", OsErrorKind::DigestMismatch),
        ("config digest sha256:2 does not match expected sha256:1", OsErrorKind::Corrupted),
        ("corrupted blob, expecting sha256:1, got sha256:2", OsErrorKind::Corrupted),
        ("Target is not an ostree encapsulated container", OsErrorKind::NoCommit),
        ("Image does not have ostree.bootable or containers.bootc label", OsErrorKind::NotBootable),
        ("Multiple kernels found in: usr/lib/modules", OsErrorKind::Kernels),
        ("No kernel found in usr/lib/modules", OsErrorKind::Kernels),
        ("Failed to find kernel in /usr/lib/modules, /usr/lib/ostree-boot or /boot", OsErrorKind::Kernels),
    ];

    /// A row that another one hides is never met.
    #[test]
    fn each_row_is_met_by_text_of_its_program() {
        let mut left: Vec<&str> = KNOWN.iter().map(|(words, _)| *words).collect();
        for (text, expected) in SAID {
            let error = OsError::from_text("image", text, OsErrorKind::Worker);
            assert_eq!(error.trouble, expected, "{text}");
            let low = text.to_lowercase();
            let met = KNOWN.iter().find(|(words, _)| low.contains(words));
            left.retain(|words| met.is_none_or(|(met, _)| met != words));
        }
        assert_eq!(left, Vec::<&str>::new());
        let other = OsError::from_text("image", "something new", OsErrorKind::Worker);
        assert_eq!(other.trouble, OsErrorKind::Worker);
    }
}
