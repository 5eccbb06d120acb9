//! Operators: they change limits and nodes, pause and unpause, and force the end of bookings.

use std::collections::BTreeMap;

use bursar_booking::decide as rules;
use bursar_booking::{Bound, Command as BookingCommand, Limit, Scope};
use bursar_engine::{Change, Command, Node, spine};
use bursar_units::{Millis, ObjectName};

use super::World;
use super::action::Action;
use super::client::{class, tenant};
use super::habits::Load;

const DAY_MS: u64 = 86_400_000;

impl World<'_> {
    /// Sends one command, and plans the next.
    pub(super) fn operate(&mut self) {
        if self.is_stopping {
            return;
        }
        let later = self.now_ms.max(self.quiet_until_ms);
        let later = later + self.rng.between(1, self.habits.operate_ms);
        self.schedule.plan(later, Action::Operate);
        let command = match self.habits.load {
            Load::Crowd => Some(self.pause_or_open()),
            Load::Large => Some(self.keep_small()),
            Load::Plain => self.draw_command(),
        };
        if let Some(command) = command {
            self.send(None, Vec::new(), vec![command]);
        }
    }

    fn draw_command(&mut self) -> Option<Command> {
        match self.rng.below(10) {
            0 | 1 => {
                let live = self.checker.live();
                let id = self.rng.pick(&live)?.clone();
                let reason = "an operator's reason".to_owned();
                Some(BookingCommand::Force { id, reason }.into())
            }
            2 => Some(change([self.draw_change()?, self.draw_change()?])),
            3 | 4 => Some(self.set_default(None)),
            5 => {
                let known = self.checker.known();
                let id = self.rng.pick(&known)?.clone();
                let text = format!("remark {}", self.rng.below(3));
                Some(BookingCommand::Note { id, text }.into())
            }
            _ => Some(change([self.draw_change()?])),
        }
    }

    fn draw_change(&mut self) -> Option<Change> {
        let name = ObjectName::new(&format!("thing-{}", self.rng.below(5))).ok()?;
        Some(match self.rng.below(6) {
            0 => rules::Change::DropLimit { name }.into(),
            1 => spine::Change::DropNode { name }.into(),
            2 => spine::Change::SetNode(Node {
                name,
                cpu_milli: self.rng.between(1_000, 9_000),
                memory_bytes: self.rng.between(1 << 30, 9 << 30),
                gpus: self.rng.below(3),
                labels: BTreeMap::new(),
                unschedulable: self.rng.below(4) == 0,
            })
            .into(),
            _ => rules::Change::SetLimit(self.draw_limit(name)?).into(),
        })
    }

    fn draw_limit(&mut self, name: ObjectName) -> Option<Limit> {
        let class_name = class(self.rng.below(self.habits.classes))?;
        let tenant_name = tenant(self.rng.below(self.habits.tenants))?;
        let class = [None, Some(Scope::Each), Some(Scope::Named(class_name))];
        let tenant = [None, Some(Scope::Each), Some(Scope::Named(tenant_name))];
        let class = self.rng.pick(&class)?.clone();
        let tenant = self.rng.pick(&tenant)?.clone();
        let is_tenants = class.is_none() && tenant.is_some();
        let rng = &mut self.rng;
        Some(Limit {
            slots: rng.once_in(2).then(|| rng.below(8)),
            cpu: rng.once_in(4).then(|| {
                if rng.once_in(2) {
                    Bound::Percent(rng.between(0, 100))
                } else {
                    Bound::Exactly(rng.below(9_000))
                }
            }),
            memory: rng.once_in(6).then(|| Bound::Percent(rng.between(10, 90))),
            gpus: rng.once_in(6).then(|| rng.below(3)),
            queue_max: rng.one_of([0, 3, 12, 10_000]),
            tenant_queue_max: rng.once_in(3).then(|| rng.one_of([0, 1, 2, 1_000])),
            wait_max: Millis::from_ms(
                rng.one_of([0, 5_000, DAY_MS, DAY_MS, DAY_MS, DAY_MS, DAY_MS, DAY_MS]),
            ),
            ttl_max: Millis::from_ms(rng.one_of([2_000, DAY_MS, DAY_MS, DAY_MS, DAY_MS])),
            weight: is_tenants.then(|| rng.one_of([1, 7, 100, 1_000])),
            ..Limit::unbounded(name, class, tenant)
        })
    }

    /// Pauses everything while hundreds arrive, then grants all at once.
    fn pause_or_open(&mut self) -> Command {
        let waiting = self.checker.counts().1;
        let slots = if waiting < 280 { 0 } else { 1_000 };
        self.set_default(Some(slots))
    }

    /// Sets four slots, so that many requests pass one for all four.
    fn keep_small(&mut self) -> Command {
        self.set_default(Some(4))
    }

    fn set_default(&mut self, slots: Option<u64>) -> Command {
        let limit = Limit {
            slots: Some(slots.unwrap_or_else(|| self.rng.below(9))),
            ..Limit::shipped()
        };
        change([rules::Change::SetLimit(limit)])
    }
}

fn change(changes: impl IntoIterator<Item = impl Into<Change>>) -> Command {
    spine::Command::change(changes).into()
}
