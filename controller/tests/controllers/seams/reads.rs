//! Reads of builds and of drains: they fail for one object of two.

use http::Method;

use super::drain::until_event;
use super::registry::{other_config, other_pool, until_other};
use crate::build::Builds;
use crate::build_course::CONTAINERFILE;
use crate::build_jobs::{JobController, Plays};
use crate::build_registry::FakeRegistry;
use crate::connections::put_before;
use crate::proxy::{Failing, Proxy, Seam};

/// The reads of a build by name, or by its label.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Read {
    Secret,
    Pods,
    Job,
    Build,
    Config,
}

impl Read {
    const ALL: [Self; 5] = [Self::Secret, Self::Pods, Self::Job, Self::Build, Self::Config];

    fn fail(self, proxy: &Proxy, failing: Failing) {
        let parts: &[&str] = match self {
            Self::Secret => &["/secrets/push"],
            Self::Pods => &["/pods?", "worker-"],
            Self::Job => &["/jobs/build-worker-"],
            Self::Build => &["/machineosbuilds/worker-"],
            Self::Config => &["/machineosconfigs/worker"],
        };
        if self == Self::Config {
            // It is read after a write that failed.
            let build = Seam::new(Method::POST, &["/machineosbuilds?"]).with_body("\"worker-");
            proxy.fail(build, Failing::Refuses(403, "not now"));
        }
        proxy.fail(Seam::new(Method::GET, parts), failing);
    }

    /// How an error begins.
    fn words(self) -> &'static str {
        match self {
            Self::Secret => "reading of Secret openshift-machine-config-operator/push",
            Self::Pods => "list of the pods of build worker-",
            Self::Job => "reading of Job build-worker-",
            Self::Build => "reading of MachineOSBuild worker-",
            Self::Config => "reading of MachineOSConfig worker",
        }
    }
}

/// Each read of one build is refused: an Event of its `MachineOSConfig` names the object, the other pool has its image meanwhile, it is asked
/// for again after a pause, and the build goes on where it was.
#[tokio::test]
async fn reads_of_builds_fail() {
    let registry = FakeRegistry::start().await;
    let mut builds = Builds::pushing_to(&registry.host).await;
    let proxy = put_before(&mut builds.cluster).await;
    builds.secret().await;
    builds.secret_named("other").await;
    other_pool(&builds, &registry.host, "other").await;
    let _controller = builds.start("a", &[]);
    let jobs = JobController::start(&builds.cluster.bench, Plays::Well).await;
    builds.os_config(CONTAINERFILE).await;
    let (mut last, _) = builds.until_published("").await;
    let mut other = until_other(&builds, "").await;
    let client = &builds.cluster.client;
    for read in Read::ALL {
        jobs.until_gone().await;
        read.fail(&proxy, Failing::Refuses(403, "no right"));
        let contents = format!("{read:?}");
        builds.kernel_argument(&contents).await;
        other_config(&builds, &contents).await;
        other = until_other(&builds, &other).await;
        proxy.failed(1).await;
        until_event(client, "ConfigReconcileFailed", "worker", read.words()).await;
        // Not at once again, and again: a pause of 5 s.
        let asked = proxy.mend();
        assert!(asked.iter().all(|asked| *asked <= 4), "{read:?}: {asked:?}");
        (last, _) = builds.until_published(&last).await;
    }
    jobs.until_gone().await;
    let mut started = jobs.started();
    started.sort_unstable();
    let all = started.len();
    started.dedup();
    assert_eq!(started.len(), all, "each build has one Job: {started:?}");
}
