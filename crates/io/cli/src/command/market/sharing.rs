//! The market agent in this process: start, announcement, and restore at the end.

use std::sync::Arc;

use bursar_engine::words;
use bursar_node::market::{Acts, Agent, Mode, Options, View, Why};
use bursar_units::causes::chain;
use serde_json::{Value, json};

use crate::failure::{Failure, Stop};
use crate::session::Session;

/// Most unmanaged pods that are named.
const NAMED_MAX: usize = 3;

/// The agent of this machine, or the reason why there is none.
pub(in crate::command) struct Sharing {
    agent: Result<Arc<Agent>, String>,
    /// `bursar up` or `bursar agent`, for hints.
    command: &'static str,
}

impl Sharing {
    pub(in crate::command) fn off(command: &'static str) -> Self {
        let reason = format!("off (`{command} --market observe` observes and changes nothing)");
        Self {
            agent: Err(reason),
            command,
        }
    }

    /// Starts an agent. If it only observes, its failure does not end the command.
    pub(in crate::command) fn start(command: &'static str, options: Options) -> Result<Self, Stop> {
        let mode = options.mode;
        let agent = match Agent::start(options) {
            Ok(agent) => Ok(Arc::new(agent)),
            Err(error) if mode == Mode::Act => {
                let message = format!("the market cannot act: {}", chain(&error));
                return Err(Failure::unavailable(message).into());
            }
            Err(error) => Err(format!("off: {}", chain(&error))),
        };
        Ok(Self { agent, command })
    }

    pub(in crate::command) fn agent(&self) -> Option<&Arc<Agent>> {
        self.agent.as_ref().ok()
    }

    /// `observing 14 cgroups, changing none (…)`.
    pub(in crate::command) fn words(&self) -> String {
        let view = match &self.agent {
            Ok(agent) => agent.view(),
            Err(reason) => return reason.clone(),
        };
        let observing = format!(
            "observing {}, changing none",
            words::count(cgroup_count(&view), "cgroup")
        );
        let unmanaged = unmanaged_text(&view.unmanaged);
        match &view.acts {
            Acts::Told => format!("{observing} (`{} --market act` lets it act)", self.command),
            Acts::Cannot(reason) => format!("{observing}: {reason}{unmanaged}"),
            Acts::Yes => {
                let managed = u64::try_from(view.standings.len()).unwrap_or(u64::MAX);
                format!("acting on {}{unmanaged}", words::count(managed, "cgroup"))
            }
        }
    }

    pub(in crate::command) fn json(&self) -> Value {
        let view = match &self.agent {
            Ok(agent) => agent.view(),
            Err(reason) => return json!({"mode": "off", "reason": reason}),
        };
        let (mode, reason) = match &view.acts {
            Acts::Yes => ("act", None),
            Acts::Told => ("observe", None),
            Acts::Cannot(reason) => ("observe", Some(reason)),
        };
        json!({
            "mode": mode,
            "reason": reason,
            "node": view.node,
            "observed": view.observed.len(),
            "managed": view.standings.len(),
            "notManaged": view.unmanaged.len(),
        })
    }

    /// Puts the users' limits back and ends the agent.
    pub(in crate::command) async fn end(&self, session: &mut Session) {
        let Ok(agent) = &self.agent else {
            return;
        };
        let agent = Arc::clone(agent);
        match tokio::task::spawn_blocking(move || agent.stop()).await {
            Ok(Ok(report)) => {
                for (pod, reason) in &report.failed {
                    session.aside(&format!(
                        "warning: the CPU limit of {pod} was not put back: {reason}\n"
                    ));
                }
                let count = u64::try_from(report.restored.len()).unwrap_or(u64::MAX);
                if 0 < count {
                    let limits = words::count(count, "CPU limit");
                    session.aside(&format!("{limits} put back\n"));
                }
            }
            Ok(Err(error)) => session.aside(&format!("warning: {}\n", chain(&error))),
            Err(error) => session.aside(&format!("warning: the market did not stop: {error}\n")),
        }
    }
}

/// `; not managed: db (there is no such cgroup), and 3 others`.
fn unmanaged_text(unmanaged: &[(String, Why)]) -> String {
    let named = unmanaged.iter().take(NAMED_MAX);
    let named: Vec<String> = named
        .map(|(name, why)| format!("{name} ({})", why.sentence()))
        .collect();
    if named.is_empty() {
        return String::new();
    }
    let rest = u64::try_from(unmanaged.len() - named.len()).unwrap_or(u64::MAX);
    let rest = match rest {
        0 => String::new(),
        rest => format!(", and {}", words::count(rest, "other")),
    };
    format!("; not managed: {}{rest}", named.join(", "))
}

fn cgroup_count(view: &View) -> u64 {
    u64::try_from(view.observed.len() + view.standings.len()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use bursar_node::market::Why;

    use super::unmanaged_text;

    #[test]
    fn the_first_unmanaged_cgroups_are_named_with_their_reasons() {
        let all = ["a", "b", "c", "d"].map(|name| (name.to_owned(), Why::Missing));
        assert_eq!(unmanaged_text(&[]), "");
        assert_eq!(
            unmanaged_text(all.get(..1).unwrap_or_default()),
            "; not managed: a (there is no such cgroup)"
        );
        let text = unmanaged_text(&all);
        assert!(
            text.ends_with("c (there is no such cgroup), and 1 other"),
            "{text}"
        );
    }
}
