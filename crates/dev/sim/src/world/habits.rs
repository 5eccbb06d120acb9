//! Parameters of a world, drawn once at its beginning.

use crate::rng::Rng;

/// Kind of load.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Load {
    /// A few clients on small limits.
    Plain,
    /// Hundreds wait while everything is paused, then all are granted: more than fit one record.
    Crowd,
    /// Large requests among many small ones, for passes, due requests and the shield.
    Large,
}

/// The habits of one world.
#[derive(Clone, Debug)]
pub(super) struct Habits {
    pub(super) load: Load,
    pub(super) steps: u64,
    pub(super) clients: usize,
    pub(super) tenants: u64,
    pub(super) classes: u64,
    /// Replicas that may lead.
    pub(super) replicas: usize,
    /// The longest pause between two requests of a client.
    pub(super) arrive_ms: u64,
    /// Messages in a thousand that are lost; as many are doubled.
    pub(super) lost_per_mille: u64,
    pub(super) delay_ms: u64,
    pub(super) trouble_ms: u64,
    pub(super) operate_ms: u64,
    /// The longest pause between two commands of people to the cluster.
    pub(super) use_ms: u64,
    /// Average number of stages between two crashes; zero means no crashes.
    pub(super) crash_once_in: u64,
    /// Whether there are pauses of days.
    pub(super) has_days: bool,
    /// Requests in a thousand that are executions.
    pub(super) executions_per_mille: u64,
    pub(super) ttl_ms: [u64; 4],
    pub(super) wait_ms: [u64; 4],
}

impl Habits {
    pub(super) fn draw(rng: &mut Rng) -> Self {
        let load = match rng.below(16) {
            0 => Load::Crowd,
            1 | 2 => Load::Large,
            _ => Load::Plain,
        };
        let is_calm = rng.once_in(6);
        let mut habits = Self {
            load,
            steps: rng.between(1_000, 8_000),
            clients: usize::try_from(rng.between(2, 8)).unwrap_or(2),
            tenants: rng.between(1, 4),
            classes: rng.between(1, 3),
            replicas: if rng.once_in(4) { 2 } else { 1 },
            arrive_ms: rng.one_of([200, 800, 3_000, 10_000]),
            lost_per_mille: if is_calm { 0 } else { rng.one_of([5, 30, 120]) },
            delay_ms: rng.one_of([2, 20, 80, 400, 2_000]),
            trouble_ms: if is_calm {
                0
            } else {
                rng.one_of([2_000, 15_000, 60_000])
            },
            operate_ms: rng.one_of([700, 5_000, 40_000]),
            use_ms: rng.one_of([200, 500, 2_000]),
            crash_once_in: if is_calm {
                0
            } else {
                rng.one_of([60, 300, 2_000])
            },
            has_days: rng.once_in(5),
            executions_per_mille: rng.one_of([0, 200, 400, 900]),
            ttl_ms: [1_000, 2_000, rng.between(1_000, 9_000), 30_000],
            wait_ms: [0, rng.between(1, 3_000), 10_000, 60_000],
        };
        habits.fit_load();
        habits
    }

    fn fit_load(&mut self) {
        match self.load {
            Load::Plain => {}
            Load::Crowd => {
                (self.clients, self.arrive_ms, self.steps) = (8, 20, 5_000);
                self.wait_ms = [600_000; 4];
                self.executions_per_mille /= 16;
            }
            Load::Large => {
                (self.clients, self.arrive_ms, self.steps) = (8, 100, 5_000);
                (self.classes, self.ttl_ms) = (1, [4_000; 4]);
                self.wait_ms = [0, 60_000, 600_000, 600_000];
                self.crash_once_in *= 10;
                self.executions_per_mille /= 10;
            }
        }
    }
}
