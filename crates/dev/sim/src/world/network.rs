//! The network: messages are lost, doubled, delayed and overtake one another, both ways.

use std::sync::{Arc, PoisonError};

use bursar_booking::{Command as BookingCommand, Submission as Execution};
use bursar_engine::{Command, spine};
use bursar_ledger::intake::{Failure, Outcome, Submission};
use bursar_ledger::writer::SELF;
use bursar_units::Label;

use super::action::Action;
use super::{Sent, World};
use crate::violation::Violation;

impl World<'_> {
    /// Sends a message, which may be lost, doubled or delayed.
    pub(super) fn post(&mut self, action: &Action) {
        if !self.is_stopping && self.rng.per_mille(self.habits.lost_per_mille) {
            let is_answer = matches!(action, Action::Answer { .. } | Action::Sight { .. });
            let word = if is_answer {
                "answers lost"
            } else {
                "messages lost"
            };
            self.tally.add(word, 1);
            self.trace.note("lost");
            return;
        }
        let copies = if self.rng.per_mille(self.habits.lost_per_mille) {
            self.tally.add("messages doubled", 1);
            2
        } else {
            1
        };
        for _ in 0..copies {
            let delay = self.rng.below(self.habits.delay_ms + 1);
            // A few take much longer than all others.
            let delay = if self.rng.once_in(200) {
                delay * 50
            } else {
                delay
            };
            self.schedule.plan(self.now_ms + delay, action.clone());
        }
    }

    pub(super) fn send(
        &mut self,
        client: Option<usize>,
        leases: Vec<usize>,
        commands: Vec<Command>,
    ) {
        let owner = client.and_then(|number| self.clients.get(number));
        let replica = owner.map_or(0, |client| client.replica);
        let by = match owner {
            Some(client) => client.name.clone(),
            None => match Label::new("operator") {
                Ok(name) => name,
                Err(_) => return,
            },
        };
        let sent = Sent {
            client,
            by,
            leases,
            commands,
        };
        self.send_to(replica, sent);
    }

    /// Sends a command of the server itself.
    pub(super) fn send_result(&mut self, replica: usize, commands: Vec<Command>) {
        let Ok(by) = Label::new(SELF) else { return };
        let sent = Sent {
            client: None,
            by,
            leases: Vec::new(),
            commands,
        };
        self.send_to(replica, sent);
    }

    fn send_to(&mut self, replica: usize, sent: Sent) {
        self.request_count += 1;
        let request = self.request_count;
        self.trace.note(&words_of(request, &sent.commands));
        self.tally.add(
            "batches of several operations",
            u64::from(sent.commands.len() > 1),
        );
        self.requests.insert(request, sent);
        self.post(&Action::Deliver { request, replica });
    }

    pub(super) fn deliver(&mut self, request: u64, replica: usize) {
        if request < self.newest_delivered {
            self.tally.add("messages out of order", 1);
        }
        self.newest_delivered = self.newest_delivered.max(request);
        let Some(sent) = self.requests.get(&request) else {
            return;
        };
        let Some(process) = self.process(replica) else {
            // The replica is down; after a timeout the client tries the other one.
            self.trace.note("nobody listens");
            let client = sent.client;
            self.turn_elsewhere(client);
            return;
        };
        let outbox = Arc::clone(&process.outbox);
        process.ledger.push(Submission {
            by: sent.by.clone(),
            commands: sent.commands.clone(),
            reply: Box::new(move |result| {
                let mut outbox = outbox.lock().unwrap_or_else(PoisonError::into_inner);
                outbox.push((request, result));
            }),
        });
        let delay = self.rng.below(3);
        self.plan_build(replica, self.now_ms + delay);
    }

    /// Sends at most `most` answers of a process.
    pub(super) fn let_answers_out(&mut self, replica: usize, most: usize) -> Result<(), Violation> {
        let Some(process) = self.process(replica) else {
            return Ok(());
        };
        let leader = (process.epoch == self.epoch).then(|| process.ledger.now());
        let mut outbox = process
            .outbox
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let leaving: Vec<_> = outbox.drain(..).take(most).collect();
        drop(outbox);
        for (request, result) in leaving {
            if let Some(sent) = self.requests.get(&request) {
                self.checker
                    .check_answers(&sent.commands, &result, leader, self.now_ms)?;
            }
            self.tally_answer(&result);
            self.post(&Action::Answer { request, result });
        }
        Ok(())
    }

    fn tally_answer(&mut self, result: &Result<Vec<Outcome>, Failure>) {
        let word = match result {
            Ok(_) => "answer: outcomes",
            Err(Failure::OutcomeUnknown) => "answer: outcome unknown",
            Err(Failure::NotLeader) => "answer: not leader",
            Err(Failure::Unavailable) => "answer: unavailable",
            Err(Failure::DiskLow) => "answer: disk low",
            Err(_) => "answer: other failure",
        };
        self.tally.add(word, 1);
    }
}

fn words_of(request: u64, commands: &[Command]) -> String {
    let of_booking = |command: &BookingCommand| match command {
        BookingCommand::Reserve(asked)
        | BookingCommand::Submit(Execution { booking: asked, .. }) => {
            format!("reserve {} {:?}", asked.id, asked.slots)
        }
        BookingCommand::Release { id, fence, .. } => format!("release {id} {}", fence.0),
        BookingCommand::Renew { id, fence, .. } => format!("renew {id} {}", fence.0),
        BookingCommand::Cancel { id } => format!("cancel {id}"),
        BookingCommand::Force { id, .. } => format!("force {id}"),
        other => format!("{other:?}"),
    };
    let word = |command: &Command| match command {
        Command::Booking(command) => of_booking(command),
        Command::Spine(spine::Command::Change { changes, .. }) => format!("change {changes:?}"),
        Command::Spine(other) => format!("{other:?}"),
        Command::Market(other) => format!("{other:?}"),
        Command::Cluster(other) => format!("{other:?}"),
    };
    let words: Vec<_> = commands.iter().map(word).collect();
    format!("request {request}: {}", words.join(", "))
}
