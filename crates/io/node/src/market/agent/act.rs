//! Writes limits: originals are stored first, and each value is read back before the next step (M5,
//! M10).

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Instant;

use bursar_market::act::Write;
use bursar_market::cgroup::Quota;

use super::members::Member;
use super::worker::{Worker, micros, wall_ms};
use crate::market::Resize;
use crate::market::files::is_shortage;
use crate::market::record::Event;

impl Worker {
    /// Writes these limits in order, or none if the originals cannot be stored.
    pub(super) fn act(&mut self, writes: &[Write], began: Instant) {
        if writes.is_empty() {
            return;
        }
        let originals: BTreeMap<String, Quota> = self
            .node
            .standings()
            .map(|standing| (standing.id, standing.original))
            .collect();
        let (mut planned, mut is_any_foreign) = (Vec::new(), false);
        for write in writes {
            let (Some(member), Some(original)) =
                (self.members.get(&write.id), originals.get(&write.id))
            else {
                continue;
            };
            // An unclaimed member is listed as unmanaged already.
            if !member.is_claimed() {
                continue;
            }
            let limit = member.files.limit();
            let (group, identity) = (member.target.group.clone(), limit.identity());
            let present = match limit.quota() {
                Ok(present) => present,
                Err(error) if is_shortage(&error) => {
                    self.report_shortage(&write.id, error);
                    continue;
                }
                Err(_) => {
                    self.node.observe(&write.id, None);
                    continue;
                }
            };
            // Somebody may have changed it since the clearing; that must not be overwritten.
            if self.is_foreign(&write.id, present) {
                is_any_foreign = true;
                continue;
            }
            let Some(next) = self.node.begin(write) else {
                continue;
            };
            if !self.originals.kept().contains_key(&write.id) {
                self.events.push(Event::Taken {
                    pod: write.id.clone(),
                    milli: original.milli_ceil(),
                });
            }
            self.originals
                .intend(&write.id, (&group, identity), *original, (present, next));
            planned.push((write.id.clone(), present, next));
        }
        if planned.is_empty() && !is_any_foreign {
            return;
        }
        if let Err(error) = self.originals.store() {
            self.report_failure(&error);
            return;
        }
        for (id, present, next) in planned {
            self.write(&id, present, next, began);
        }
    }

    fn publish_resize(&self, id: &str, present: Quota, quota: Quota) {
        let Some(clearing) = self.node.last() else {
            return;
        };
        let share = clearing.cleared.share(id);
        let resize = Resize {
            at_ms: wall_ms(),
            node: self.options.node.clone(),
            pod: id.to_owned(),
            from_milli: present.milli_ceil(),
            to_milli: quota.milli_ceil(),
            need_milli: share.map_or(0, |share| share.need_milli),
            label: clearing.label,
        };
        let _no_reader = self.resizes.send(Arc::new(resize));
    }

    fn write(&mut self, id: &str, present: Quota, next: Quota, began: Instant) {
        let Some(Member { files, .. }) = self.members.get(id) else {
            return;
        };
        let written = files.limit().set_quota(next);
        let read_back = files.limit().quota().ok();
        let now_us = micros(began);
        let taken = written.and_then(|()| match read_back {
            Some(quota) if quota == next => Ok(quota),
            _ => Err(io::Error::other("the kernel did not take the value")),
        });
        match taken {
            Ok(quota) => {
                self.node.wrote(id, quota, now_us);
                self.writes += 1;
                self.publish_resize(id, present, quota);
                self.events.push(Event::Wrote {
                    pod: id.to_owned(),
                    from_milli: present.milli_ceil(),
                    to_milli: quota.milli_ceil(),
                });
            }
            // Nothing was written, and the cause is not this limit.
            Err(error) if is_shortage(&error) && read_back.is_none_or(|quota| quota == present) => {
                self.report_shortage(id, error);
            }
            Err(error) => {
                self.node.refused(id, read_back, now_us);
                self.events.push(Event::Refused {
                    pod: id.to_owned(),
                    reason: error.to_string(),
                });
            }
        }
    }
}
