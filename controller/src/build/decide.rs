//! The next action for one pool's images.

use super::action::{Action, DeletionReason, Query, Waiting};
use super::condition::condition;
use super::input::{
    Build, BuildInput, DesiredBuild, Job, OsConfig, Outcome, PushAccess, Ready, Registry, State, Status,
};
use super::job::progress;
use super::name::job_name;
use super::release::{is_retried, release};
use super::{NO_BUILD, SEEDED};

/// Something to do, or what is waited for.
type Course = Result<Action, Waiting>;

/// Returns the next action.
pub fn decide(input: &BuildInput<'_>) -> Action {
    if let Some(action) = release(input) {
        return action;
    }
    let waiting = match course(input) {
        Ok(action) => return action,
        Err(waiting) => waiting,
    };
    let has = input.pool.and_then(|pool| pool.condition.as_ref());
    match condition(input, &waiting) {
        Some(condition) if has != Some(&condition) => Action::SetCondition(condition),
        Some(_) | None => {
            let asks_again = matches!(waiting, Waiting::Registry(_) | Waiting::Push(_));
            Action::Wait { retry: asks_again || is_retried(input) }
        }
    }
}

/// The desired build, with what it belongs to.
struct Case<'a> {
    input: &'a BuildInput<'a>,
    config: &'a OsConfig,
    desired: &'a DesiredBuild,
    build: &'a Build,
}

fn course(input: &BuildInput<'_>) -> Course {
    let config = input.os_config.filter(|config| !config.deleting).ok_or(Waiting::Rest)?;
    if let Some(why) = &config.unreadable {
        // Also of a build that is there: it may be of another spec.
        return Err(Waiting::Missing(why.clone()));
    }
    let desired = input.desired.ok_or(Waiting::Target)?;
    if let Some(action) = cancel(input, config, desired) {
        return Ok(action);
    }
    let found = input.builds.get(&desired.name);
    // A request for a rebuild is no proof that the build of that name is ours.
    if found.is_some_and(|build| !build.owner.is_empty() && build.owner != config.uid) {
        return Err(Waiting::Removal);
    }
    if let Some(course) = rebuild(input, config, desired, found) {
        return course;
    }
    let Some(build) = found else { return create(input, config, desired) };
    if build.deleting {
        return Err(Waiting::Removal);
    }
    let case = Case { input, config, desired, build };
    match build.state {
        State::Succeeded => case.publish(),
        State::Failed | State::Interrupted => Err(Waiting::Rest),
        State::Initial | State::Prepared | State::Building => case.go_on(),
    }
}

/// One build of a `MachineOSConfig` runs at a time.
fn cancel(input: &BuildInput<'_>, config: &OsConfig, desired: &DesiredBuild) -> Option<Action> {
    let mut others = input.builds.iter().filter(|(name, _)| **name != desired.name);
    // One that this MachineOSConfig does not control is not ours to delete.
    let is_running = |build: &Build| !build.state.is_final() && !build.deleting && build.owner == config.uid;
    let (name, build) = others.find(|(_, build)| is_running(build))?;
    Some(Action::DeleteBuild {
        name: name.clone(),
        uid: build.uid.clone(),
        reason: DeletionReason::Superseded,
    })
}

/// A request is noted with the build that it replaces, that build is deleted, and the request ends when there is another one. A
/// pool that is degraded, or whose image can't be built, keeps what it has until it can be built anew.
fn rebuild(
    input: &BuildInput<'_>,
    config: &OsConfig,
    desired: &DesiredBuild,
    found: Option<&Build>,
) -> Option<Course> {
    let is_degraded = input.pool.is_some_and(|pool| pool.degraded.is_some());
    let is_kept = is_degraded || matches!(desired.ready, Ready::Invalid(_));
    let Some(replaces) = &config.replaces else {
        let replaces = found.map_or(NO_BUILD, |build| build.uid.as_str()).to_owned();
        return (config.rebuild && !is_kept).then_some(Ok(Action::BeginRebuild { replaces }));
    };
    let build = found?;
    if build.uid != *replaces {
        return Some(Ok(Action::EndRebuild));
    }
    if build.deleting {
        return Some(Err(Waiting::Removal));
    }
    let (name, uid) = (desired.name.clone(), build.uid.clone());
    if build.owner != config.uid {
        return Some(Err(Waiting::Missing(format!(
            "MachineOSBuild {name} is to be built again, and no MachineOSConfig controls it; delete it"
        ))));
    }
    (!is_kept).then_some(Ok(Action::DeleteBuild { name, uid, reason: DeletionReason::Rebuild }))
}

fn create(input: &BuildInput<'_>, config: &OsConfig, desired: &DesiredBuild) -> Course {
    let pre_built = config.awaits_seeding();
    let no_reuse = config.replaces.is_some();
    let takes_image = pre_built || (!no_reuse && source(input, config, desired).is_some());
    if takes_image {
        return Ok(Action::CreateBuild { pre_built, no_reuse });
    }
    // Refused before any object is there.
    if let Ready::Invalid(why) = &desired.ready {
        return Err(Waiting::Invalid(why.clone()));
    }
    match input.pool.and_then(|pool| pool.degraded.clone()) {
        Some(degraded) => Err(Waiting::PoolDegraded(degraded)),
        None => Ok(Action::CreateBuild { pre_built, no_reuse }),
    }
}

/// Returns a build whose image the desired one can have: the current one rather than another.
fn source<'a>(
    input: &'a BuildInput<'_>,
    config: &OsConfig,
    desired: &DesiredBuild,
) -> Option<(&'a Build, &'a str)> {
    let has_it = |(name, build): &(&String, &Build)| {
        **name != desired.name
            && build.state == State::Succeeded
            && !build.deleting
            && !build.inputs.is_empty()
            && build.inputs == desired.inputs
            && build.owner == config.uid
    };
    let is_current = |name: &String| config.current.as_ref() == Some(name);
    let mut all: Vec<(&String, &Build)> = input.builds.iter().filter(has_it).collect();
    all.sort_by_key(|(name, _)| !is_current(name));
    all.into_iter().find_map(|(_, build)| Some((build, build.image.as_deref()?)))
}

impl Case<'_> {
    fn job(&self) -> Option<(String, &Job)> {
        let name = job_name(&self.desired.name);
        self.input.jobs.get(&name).map(|job| (name, job))
    }

    /// Publishes a build that ended well, then clears up.
    fn publish(&self) -> Course {
        let Some(image) = &self.build.image else { return Err(Waiting::Rest) };
        let config = self.config;
        let is_published = config.image.as_ref() == Some(image)
            && config.image_of.as_ref() == Some(&self.desired.name)
            && config.observed >= config.generation
            && (config.seeded || !self.build.pre_built);
        if !is_published {
            return Ok(Action::Publish { image: image.clone(), seeded: self.build.pre_built });
        }
        if config.current.as_ref() != Some(&self.desired.name) {
            return Ok(Action::NameBuild);
        }
        // A Job of another build of this name is not the leftover of this one.
        let own = self.job().filter(|(_, job)| job.owner == self.build.uid && !job.deleting);
        let left = own.map(|(_, job)| deletion(&self.desired.name, job)).or_else(|| self.left_behind());
        left.ok_or(Waiting::Rest)
    }

    /// Deletes the Job of an earlier build that failed: it was left for a person to look at until a later build succeeded.
    fn left_behind(&self) -> Option<Action> {
        let is_over =
            |build: &Build| build.state.is_final() && !build.deleting && build.owner == self.config.uid;
        let mut over = self.input.builds.iter().filter(|(_, build)| is_over(build));
        over.find_map(|(name, build)| {
            let job = self.input.jobs.get(&job_name(name))?;
            (job.owner == build.uid && !job.deleting).then(|| deletion(name, job))
        })
    }

    /// Brings a build that has not ended one step on.
    fn go_on(&self) -> Course {
        if self.build.pre_built {
            return Ok(self.seed());
        }
        match (&self.build.job_uid, self.job()) {
            (None, None) => self.begin(),
            (None, Some((_, job))) if job.owner == self.build.uid && !job.deleting => {
                Ok(Action::RecordJob { uid: job.uid.clone() })
            }
            (Some(uid), Some((_, job))) if job.uid == *uid => self.follow(job),
            (Some(uid), job) => Ok(self.lost(uid, job.map(|(_, job)| job))),
            // Of a build of the same name that is gone.
            (None, Some((_, job))) if job.deleting => Err(Waiting::Removal),
            // No build ever owned it: a person's, which is in the way.
            (None, Some((name, job))) if job.owner.is_empty() => Err(Waiting::Missing(format!(
                "{name} is in the way of a build, and no MachineOSBuild controls it; delete it"
            ))),
            (None, Some((_, job))) => Ok(deletion(&self.desired.name, job)),
        }
    }

    /// A build of an image that is there: SEED-005.
    fn seed(&self) -> Action {
        let Some(image) = self.config.pre_built.clone() else {
            let field = super::PRE_BUILT;
            let message = format!("the MachineOSConfig has no annotation {field} any more");
            return status(State::Failed, "Failed", message, None);
        };
        status(State::Succeeded, SEEDED, "Image was built before".to_owned(), Some(image))
    }

    /// Takes an image that is there, or creates the Job.
    fn begin(&self) -> Course {
        let source = source(self.input, self.config, self.desired).filter(|_| !self.build.no_reuse);
        if let Some((build, image)) = source {
            match self.input.answers.registry.get(image) {
                None => return Ok(Action::Query(Query::Image(image.to_owned()))),
                Some(Registry::There) => {
                    let (reason, message) = (build.reason.as_str(), build.message.clone());
                    return Ok(status(State::Succeeded, reason, message, Some(image.to_owned())));
                }
                Some(Registry::Unknown(why)) => return Err(Waiting::Registry(why.clone())),
                Some(Registry::Missing) => {}
            }
        }
        if let Some(degraded) = self.input.pool.and_then(|pool| pool.degraded.clone()) {
            return Err(Waiting::PoolDegraded(degraded));
        }
        match &self.desired.ready {
            Ready::Yes => match self.input.answers.pushes.get(&self.desired.name) {
                None => Ok(Action::Query(Query::Push)),
                Some(PushAccess::NotRefused) => Ok(Action::CreateJob),
                Some(PushAccess::Refused(why)) => Err(Waiting::Push(why.clone())),
            },
            Ready::Missing(what) => Err(Waiting::Missing(what.clone())),
            // The image that it was to have is gone from the registry. OCL-023.
            Ready::Invalid(why) => Ok(status(State::Failed, "Failed", why.clone(), None)),
        }
    }

    /// The Job that speaks for the build is not the one that is there.
    fn lost(&self, uid: &str, other: Option<&Job>) -> Action {
        if other.is_none() && !self.input.answers.absent_jobs.contains(uid) {
            let name = job_name(&self.desired.name);
            return Action::Query(Query::Job { name, uid: uid.to_owned() });
        }
        status(State::Interrupted, "Interrupted", "its Job was deleted".to_owned(), None)
    }

    fn follow(&self, job: &Job) -> Course {
        // One that somebody suspended later is left alone.
        if job.suspended && !job.deleting && self.build.state == State::Initial {
            return match &self.desired.ready {
                Ready::Yes => Ok(Action::StartJob { uid: job.uid.clone() }),
                Ready::Missing(what) => Err(Waiting::Missing(what.clone())),
                Ready::Invalid(why) => Ok(status(State::Failed, "Failed", why.clone(), None)),
            };
        }
        let state = progress(job);
        let written = self.build.state;
        match state {
            State::Succeeded | State::Failed => {
                let Some(outcome) = self.input.answers.outcomes.get(&job.uid) else {
                    return Ok(Action::Query(Query::Pods(job.uid.clone())));
                };
                Ok(self.ended(job, state, outcome))
            }
            State::Interrupted => {
                Ok(status(state, "Interrupted", "its Job is being deleted".to_owned(), None))
            }
            State::Prepared if written == State::Initial => {
                Ok(status(state, "Prepared", "Build Prepared and Pending".to_owned(), None))
            }
            State::Building if written != State::Building => {
                Ok(status(state, "Building", "Image Build In Progress".to_owned(), None))
            }
            State::Initial | State::Prepared | State::Building => Err(Waiting::Job),
        }
    }

    fn ended(&self, job: &Job, state: State, outcome: &Outcome) -> Action {
        if state == State::Succeeded {
            if let Some(image) = &outcome.image {
                return status(state, "Ready", "Build Ready".to_owned(), Some(image.clone()));
            }
            let job = job_name(&self.desired.name);
            let message = format!("Job {job} ended well, but its pod left no digest: check the pod's log");
            return status(State::Failed, "Failed", message, None);
        }
        let message = outcome.failure.clone().or_else(|| job.failure.clone());
        let message = message.filter(|message| !message.is_empty());
        status(state, "Failed", message.unwrap_or_else(|| "Build Failed".to_owned()), None)
    }
}

fn deletion(build: &str, job: &Job) -> Action {
    Action::DeleteJob { build: build.to_owned(), name: job_name(build), uid: job.uid.clone() }
}

fn status(state: State, reason: &str, message: String, image: Option<String>) -> Action {
    Action::WriteStatus(Status { state, reason: reason.to_owned(), message, image })
}
