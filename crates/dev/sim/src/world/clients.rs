//! Requests of clients, the answers to them, and reads.

use bursar_booking::{
    Command as BookingCommand, Fence, Refusal as BookingRefusal, Reply, Standing,
};
use bursar_engine::{Answer, Command, Refusal};
use bursar_ledger::intake::{Failure, Outcome};

use super::World;
use super::action::Action;
use super::client::{Deed, Lease, Phase, Sight};
use super::habits::Load;
use crate::violation::Violation;

/// Several times as many as fit one record; more would only take longer.
const CROWD_MAX: usize = 800;

impl World<'_> {
    pub(super) fn arrive(&mut self, client: usize) {
        if self.is_stopping {
            return;
        }
        if self.now_ms < self.quiet_until_ms {
            let later = self.quiet_until_ms + self.rng.below(200);
            self.schedule.plan(later, Action::Arrive(client));
            return;
        }
        let later = self.now_ms + self.rng.between(1, self.habits.arrive_ms);
        self.schedule.plan(later, Action::Arrive(client));
        if self.rng.once_in(10) {
            self.send_nonsense(client);
            return;
        }
        if self.habits.load == Load::Crowd && self.crowd() > CROWD_MAX {
            return;
        }
        let count = match self.habits.load {
            Load::Crowd => self.rng.between(1, 12),
            _ if self.rng.once_in(12) => self.rng.between(2, 5),
            _ => 1,
        };
        let mut asked = Vec::new();
        for _ in 0..count {
            self.lease_count += 1;
            let drawn = Lease::draw(&mut self.rng, &self.habits, self.lease_count, self.now_ms);
            let (Some(mut lease), Some(owner)) = (drawn, self.clients.get_mut(client)) else {
                return;
            };
            if self.rng.once_in(6) {
                // The newest are most likely still stored, or not ended.
                let back = self.rng.place(owner.leases.len().min(8));
                lease.retry(owner.leases.iter().rev().nth(back));
            }
            asked.push((owner.leases.len(), lease.reserve().into()));
            owner.leases.push(lease);
        }
        for (lease, _) in &asked {
            let nap = self.rng.between(200, 4_000);
            self.plan_wake(client, *lease, self.now_ms + nap);
        }
        let (leases, commands) = asked.into_iter().unzip();
        self.send(Some(client), leases, commands);
    }

    /// Number of bookings that are requested or wait, as their clients know.
    fn crowd(&self) -> usize {
        let leases = self.clients.iter().flat_map(|client| &client.leases);
        let is_one = |lease: &&Lease| matches!(lease.phase, Phase::Asking | Phase::Waiting);
        leases.filter(is_one).count()
    }

    fn send_nonsense(&mut self, client: usize) {
        let Some(owner) = self.clients.get(client) else {
            return;
        };
        let lease = self.rng.place(owner.leases.len());
        if let Some(command) = owner
            .leases
            .get(lease)
            .map(|lease| lease.nonsense(&mut self.rng))
        {
            self.send(Some(client), vec![lease], vec![command.into()]);
        }
    }

    pub(super) fn wake(&mut self, client: usize, lease: usize) {
        let Some(owner) = self.clients.get_mut(client) else {
            return;
        };
        let replica = owner.replica;
        let Some(one) = owner.leases.get_mut(lease) else {
            return;
        };
        let nap = match one.wake(&mut self.rng, self.now_ms) {
            Deed::Nothing => return,
            Deed::Look(nap) => {
                self.post(&Action::Look {
                    client,
                    lease,
                    replica,
                });
                nap
            }
            Deed::Send(command, nap) => {
                self.send(Some(client), vec![lease], vec![(*command).into()]);
                nap
            }
        };
        self.plan_wake(client, lease, self.now_ms + nap);
    }

    fn plan_wake(&mut self, client: usize, lease: usize, at_ms: u64) {
        if let Some(one) = self.lease_mut(client, lease) {
            one.wake_at_ms = Some(at_ms);
            self.schedule.plan(at_ms, Action::Wake { client, lease });
        }
    }

    fn lease_mut(&mut self, client: usize, lease: usize) -> Option<&mut Lease> {
        self.clients.get_mut(client)?.leases.get_mut(lease)
    }

    pub(super) fn answer(&mut self, request: u64, result: Result<Vec<Outcome>, Failure>) {
        if request < self.newest_answered {
            self.tally.add("answers out of order", 1);
        }
        self.newest_answered = self.newest_answered.max(request);
        let Some(sent) = self.requests.get(&request) else {
            return;
        };
        let Some(client) = sent.client else { return };
        let outcomes = match result {
            Ok(outcomes) => outcomes,
            Err(Failure::NotLeader | Failure::Unavailable) => {
                self.turn_elsewhere(Some(client));
                return;
            }
            Err(_) => return,
        };
        let decided: Vec<_> = sent
            .leases
            .iter()
            .copied()
            .zip(sent.commands.clone())
            .collect();
        for ((lease, command), outcome) in decided.into_iter().zip(outcomes) {
            self.take_outcome(client, lease, &command, &outcome);
        }
    }

    /// Takes the decision on one command.
    #[expect(
        clippy::match_same_arms,
        reason = "each arm is a rule of the protocol, and their order matters"
    )]
    fn take_outcome(&mut self, client: usize, lease: usize, command: &Command, outcome: &Outcome) {
        let (now_ms, rng) = (self.now_ms, &mut self.rng);
        let Some(one) = self
            .clients
            .get_mut(client)
            .and_then(|owner| owner.leases.get_mut(lease))
        else {
            return;
        };
        if one.phase == Phase::Over {
            return;
        }
        one.record = one.record.max(outcome.record);
        let is_reserve = matches!(
            command,
            Command::Booking(BookingCommand::Reserve(_) | BookingCommand::Submit(_))
        );
        match &outcome.result {
            Ok(Answer::Booking(Reply::Granted(fence))) => {
                one.hold(rng, *fence, now_ms);
                self.plan_wake(client, lease, now_ms);
            }
            Ok(Answer::Booking(Reply::Queued | Reply::Repeated(_)))
                if one.phase == Phase::Asking =>
            {
                one.phase = Phase::Waiting;
            }
            Ok(Answer::Booking(Reply::Ended(_) | Reply::AlreadyEnded(_))) => {
                one.phase = Phase::Over;
            }
            Ok(Answer::Booking(Reply::Stopping(_))) => one.phase = Phase::Watching,
            Ok(Answer::Booking(Reply::Repeated(_))) if one.phase == Phase::Cancelling => {
                one.phase = Phase::Watching;
            }
            Err(Refusal::Booking(BookingRefusal::IsGranted)) => one.phase = Phase::Waiting,
            Err(Refusal::Booking(
                BookingRefusal::IdReused { .. }
                | BookingRefusal::IsQueued
                | BookingRefusal::IsExecution
                | BookingRefusal::NotAnExecution,
            )) => {}
            // A refusal has no effect; the client may try again under the same id.
            Err(_) if is_reserve && one.phase == Phase::Asking && rng.once_in(3) => {}
            Err(_) if is_reserve && one.phase != Phase::Asking => {}
            // A wrong fence that was sent on purpose says nothing about the right one.
            Err(_) if is_other_fence(command, one.fence) => {}
            Err(_) => one.phase = Phase::Over,
            Ok(_) => {}
        }
    }

    pub(super) fn turn_elsewhere(&mut self, client: Option<usize>) {
        let count = self.replicas.len();
        if let Some(owner) = client.and_then(|number| self.clients.get_mut(number)) {
            owner.replica = (owner.replica + 1) % count;
        }
    }

    pub(super) fn look(
        &mut self,
        client: usize,
        lease: usize,
        replica: usize,
    ) -> Result<(), Violation> {
        let process = self
            .replicas
            .get(replica)
            .and_then(|one| one.process.as_ref());
        let known = self
            .clients
            .get(client)
            .and_then(|owner| owner.leases.get(lease));
        let (Some(process), Some(one)) = (process, known) else {
            self.turn_elsewhere(Some(client));
            return Ok(());
        };
        let state = process.ledger.view().read();
        self.checker.check_view(&state)?;
        if state.spine.head <= one.record {
            // Read your writes: the reader waits until the view has the record.
            self.tally.add("reads that waited for their record", 1);
            return Ok(());
        }
        let sight = match state.bookings.standing(&one.request.id) {
            None => Sight::Unknown,
            Some(Standing::Queued { .. }) => Sight::Queued,
            Some(Standing::Granted(granted)) => Sight::Held(granted.fence),
            Some(Standing::Ended(ended)) => Sight::Ended(ended.end()),
        };
        match &sight {
            Sight::Held(fence) => self.checker.check_seen_held(&one.request.id, *fence)?,
            Sight::Ended(end) => self.checker.check_seen_ended(&one.request.id, *end)?,
            Sight::Unknown | Sight::Queued => {}
        }
        let head = state.spine.head;
        drop(state);
        self.post(&Action::Sight {
            client,
            lease,
            sight,
            head,
        });
        Ok(())
    }

    pub(super) fn see(&mut self, client: usize, lease: usize, sight: &Sight, head: u64) {
        let (now_ms, rng) = (self.now_ms, &mut self.rng);
        let Some(one) = self
            .clients
            .get_mut(client)
            .and_then(|owner| owner.leases.get_mut(lease))
        else {
            return;
        };
        one.record = one.record.max(head.saturating_sub(1));
        match sight {
            Sight::Held(fence) if one.phase == Phase::Waiting => {
                one.hold(rng, *fence, now_ms);
                self.plan_wake(client, lease, now_ms);
            }
            Sight::Ended(_) => one.phase = Phase::Over,
            // It was removed, or a stale replica does not know it: read again.
            Sight::Unknown if one.phase == Phase::Waiting => one.phase = Phase::Asking,
            Sight::Queued | Sight::Held(_) | Sight::Unknown => {}
        }
    }
}

fn is_other_fence(command: &Command, fence: Option<Fence>) -> bool {
    match command {
        Command::Booking(
            BookingCommand::Release { fence: sent, .. } | BookingCommand::Renew { fence: sent, .. },
        ) => fence != Some(*sent),
        _ => false,
    }
}
