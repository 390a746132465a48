//! The small world: one pool, three rendered configs of which two have the same image, two ways to build, and a cluster that runs
//! Jobs, collects garbage and has a registry.

use std::collections::{BTreeMap, BTreeSet};

use crate::build::*;

pub(super) const POOL: &str = "worker";

/// The image of an installation.
pub(super) const PRE_BUILT_IMAGE: &str = "registry.test/os@pre-built";

/// Targets: the second has the first one's image.
pub(super) const TARGETS: [(char, char); 3] = [('a', 'x'), ('b', 'x'), ('c', 'y')];

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct World {
    pub(super) os_config: Option<OsConfig>,
    pub(super) pool: Pool,
    /// Index of the target, and number of the Containerfile.
    pub(super) target: usize,
    pub(super) spec: u8,
    pub(super) ready: Ready,
    pub(super) builds: BTreeMap<String, Build>,
    pub(super) jobs: BTreeMap<String, Job>,
    /// Inputs of Jobs, by UID: two belong to each.
    pub(super) inputs: BTreeMap<String, u8>,
    pub(super) answers: Answers,
    pub(super) used: BTreeSet<String>,
    /// Images that the registry has lost or deleted.
    pub(super) lost: BTreeSet<String>,
    pub(super) uids: u32,
    pub(super) misfortunes: u32,
    pub(super) changes: u32,
    /// Jobs that were let run, and how many may be, by build.
    pub(super) starts: BTreeMap<String, u32>,
    pub(super) may_start: BTreeMap<String, u32>,
    /// Rebuilds that were requested, and builds that were deleted for one.
    pub(super) requests: u32,
    pub(super) replaced: u32,
}

impl World {
    pub(super) fn new(pre_built: bool, misfortunes: u32, changes: u32) -> Self {
        let config = OsConfig {
            uid: "config-0".to_owned(),
            generation: 1,
            pre_built: pre_built.then(|| PRE_BUILT_IMAGE.to_owned()),
            ..OsConfig::default()
        };
        Self {
            os_config: Some(config),
            pool: Pool { name: POOL.to_owned(), ..Pool::default() },
            target: 0,
            spec: 1,
            ready: Ready::Yes,
            builds: BTreeMap::new(),
            jobs: BTreeMap::new(),
            inputs: BTreeMap::new(),
            answers: Answers::default(),
            used: BTreeSet::new(),
            lost: BTreeSet::new(),
            uids: 0,
            misfortunes,
            changes,
            starts: BTreeMap::new(),
            may_start: BTreeMap::new(),
            requests: 0,
            replaced: 0,
        }
    }

    pub(super) fn desired(&self) -> DesiredBuild {
        let (config, image) = TARGETS[self.target];
        DesiredBuild {
            name: format!("{POOL}-{}{config}", self.spec),
            inputs: format!("{}{image}", self.spec),
            ready: self.ready.clone(),
        }
    }

    pub(super) fn decide(&self) -> Action {
        let desired = self.desired();
        decide(&BuildInput {
            os_config: self.os_config.as_ref(),
            pool: Some(&self.pool),
            desired: Some(&desired),
            builds: &self.builds,
            jobs: &self.jobs,
            used_images: &self.used,
            answers: &self.answers,
        })
    }

    pub(super) fn uid(&mut self, kind: &str) -> String {
        self.uids += 1;
        format!("{kind}-{}", self.uids)
    }

    pub(super) fn desired_build(&mut self) -> &mut Build {
        let name = self.desired().name;
        self.builds.get_mut(&name).unwrap()
    }

    pub(super) fn desired_job(&mut self) -> &mut Job {
        let name = job_name(&self.desired().name);
        self.jobs.get_mut(&name).unwrap()
    }

    /// As the API server does: it stays until its finalizers are gone.
    pub(super) fn delete_build(&mut self, name: &str) {
        *self.may_start.entry(name.to_owned()).or_insert(1) += 1;
        let build = self.builds.get_mut(name).unwrap();
        build.deleting = true;
    }

    /// Carries an action out. The caller chooses the answer of a query.
    #[expect(clippy::wildcard_enum_match_arm, reason = "what is left is about Jobs")]
    pub(super) fn execute(&mut self, action: Action) {
        match action {
            Action::CreateBuild { pre_built, no_reuse } => {
                let desired = self.desired();
                let uid = self.uid("build");
                let owner = self.os_config.as_ref().unwrap().uid.clone();
                let build = Build {
                    uid,
                    owner,
                    inputs: desired.inputs,
                    pre_built,
                    no_reuse,
                    has_finalizer: true,
                    ..Build::default()
                };
                let old = self.builds.insert(desired.name, build);
                assert!(old.is_none(), "a build is overwritten");
            }
            Action::DeleteBuild { name, uid, reason } => {
                assert_eq!(self.builds[&name].uid, uid);
                self.replaced += u32::from(reason == DeletionReason::Rebuild);
                self.delete_build(&name);
            }
            Action::ReleaseBuild { name, .. } => {
                self.builds.get_mut(&name).unwrap().has_finalizer = false;
            }
            Action::BeginRebuild { replaces } => {
                self.os_config.as_mut().unwrap().replaces = Some(replaces);
            }
            Action::EndRebuild => {
                let config = self.os_config.as_mut().unwrap();
                (config.rebuild, config.replaces) = (false, None);
            }
            Action::WriteStatus(status) => {
                let build = self.desired_build();
                assert!(!build.state.is_final(), "the API server refuses a change of what has ended");
                (build.state, build.image) = (status.state, status.image);
                (build.reason, build.message) = (status.reason, status.message);
            }
            Action::Publish { image, seeded } => {
                let name = self.desired().name;
                let config = self.os_config.as_mut().unwrap();
                (config.image, config.image_of) = (Some(image), Some(name));
                config.observed = config.generation;
                config.seeded |= seeded;
            }
            Action::NameBuild => {
                let name = self.desired().name;
                self.os_config.as_mut().unwrap().current = Some(name);
            }
            Action::SetCondition(condition) => self.pool.condition = Some(condition),
            action => self.execute_job(action),
        }
        // They hold until the next write.
        self.answers = Answers::default();
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "what is left writes nothing")]
    fn execute_job(&mut self, action: Action) {
        match action {
            Action::CreateJob => {
                let (name, uid) = (job_name(&self.desired().name), self.uid("job"));
                let owner = self.desired_build().uid.clone();
                let old = self.jobs.insert(name, Job { uid, owner, suspended: true, ..Job::default() });
                assert!(old.is_none(), "a Job is overwritten");
            }
            Action::RecordJob { uid } => self.desired_build().job_uid = Some(uid),
            Action::StartJob { uid } => {
                self.inputs.insert(uid, 2);
                self.desired_job().suspended = false;
                *self.starts.entry(self.desired().name).or_default() += 1;
            }
            Action::DeleteJob { name, uid, .. } => {
                let job = self.jobs.get_mut(&name).unwrap();
                assert_eq!(job.uid, uid);
                job.deleting = true;
            }
            action => unreachable!("{action:?}"),
        }
    }
}
