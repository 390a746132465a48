//! Counts of what happened in the seeds.

/// Counts of what happened in the seeds, so that an idle run does not pass for a good one.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) seeds: u64,
    pub(super) nodes: usize,
    pub(super) decisions: u64,
    pub(super) given: u64,
    pub(super) most: usize,
    pub(super) kills: u64,
    pub(super) conflicts: u64,
    pub(super) jumps: u64,
    pub(super) halts: u64,
    pub(super) soaks: u64,
    pub(super) closed: u64,
    pub(super) prefetches: u64,
    pub(super) returned: u64,
}

impl Counts {
    pub(super) fn add(&mut self, counts: &Self) {
        self.seeds += counts.seeds;
        self.nodes += counts.nodes;
        self.decisions += counts.decisions;
        self.given += counts.given;
        self.most = self.most.max(counts.most);
        self.kills += counts.kills;
        self.conflicts += counts.conflicts;
        self.jumps += counts.jumps;
        self.halts += counts.halts;
        self.soaks += counts.soaks;
        self.closed += counts.closed;
        self.prefetches += counts.prefetches;
        self.returned += counts.returned;
    }
}
