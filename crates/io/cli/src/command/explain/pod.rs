//! `bursar explain pod/NAME`: the CPU a pod may use, with the arithmetic.

use bursar_client::api::{MarketKind, MarketPod, NodeMarket, instant};
use bursar_client::{Client, Code, nearest};
use bursar_market::explain::{Explanation, explain};
use bursar_units::Instant;
use serde_json::{Value, json};

use super::LABEL;
use crate::command::market::scene::{booking_of, evidence, scene, share};
use crate::command::spine::node::{all_markets, market_of};
use crate::failure::{Failure, Stop, exit};
use crate::grammar::{ExplainArguments, Question};
use crate::layout::{self, Look, Meaning, WIDTH};
use crate::list;
use crate::session::Session;
use crate::time;

/// Width of the word before each line of arithmetic.
const WORD: usize = 8;

/// A pod and the market of its node.
type PodOnNode<'a> = (&'a NodeMarket, &'a MarketPod);

pub(super) async fn run(
    session: &mut Session,
    client: &Client,
    name: &str,
    arguments: &ExplainArguments,
) -> Result<(), Stop> {
    let (question, now) = (arguments.question, session.now());
    let (markets, is_past) = match &arguments.at {
        Some(at) => {
            let at = time::parse(at, now, &session.zone).map_err(Failure::usage)?;
            if now < at {
                let message = "`--at` must be in the past";
                return Err(Failure::usage(message).into());
            }
            (past_markets(client, at).await?, true)
        }
        None => (all_markets(client).await?, false),
    };
    let explained: Vec<(PodOnNode<'_>, Explanation)> = pods_named(&markets, name)
        .into_iter()
        .map(|(market, pod)| {
            let evidence = evidence(market, pod, now);
            let mut explanation = explain(&scene(market), &share(market, pod), Some(&evidence));
            if is_past {
                // The record holds no originals, and nobody opts out of the past.
                explanation.how.retain(|(word, _)| *word != "wrote");
                explanation.out = None;
                let at = session.look().to_the_second(market.at);
                explanation.headline = format!("at {at}: {}", explanation.headline);
                explanation.sooner = None;
            }
            ((market, pod), explanation)
        })
        .collect();
    let value = |((market, pod), one): &(PodOnNode<'_>, Explanation)| value(market, pod, one);
    match explained.as_slice() {
        [] if is_past => {
            let message =
                format!("pod `{name}` took no part at that time: it did not exist or was held");
            Err(Failure::new(exit::REFUSED, message).into())
        }
        [] => Err(unknown(&markets, name).into()),
        [one] => {
            let name = format!("pod/{}", one.0.1.pod);
            session.show(&value(one), &name, |look| text(&one.1, question, look))
        }
        several => {
            let values: Vec<Value> = several.iter().map(value).collect();
            session.show_unnamed(&list::List::of(&values), |look| {
                let texts = several.iter().map(|(_, one)| text(one, question, look));
                texts.collect::<Vec<_>>().join("\n")
            })
        }
    }
}

/// The markets at a past time of all nodes whose record reaches back to it. If there is none, the
/// error of a node with an agent, or else of any node.
async fn past_markets(client: &Client, at: Instant) -> Result<Vec<NodeMarket>, Stop> {
    let (mut markets, mut too_late, mut without) = (Vec::new(), None, None);
    for node in client.nodes().await?.items {
        let name = &node.metadata.name;
        match client.market_at(name, at).await {
            Ok(market) => markets.push(market),
            Err(error) => {
                let code = error.problem().map(|problem| problem.code);
                if code != Some(Code::NotFound) {
                    return Err(error.into());
                }
                match market_of(client, name).await? {
                    Some(_) => too_late = Some(error),
                    None => without = Some(error),
                }
            }
        }
    }
    match too_late.or(without) {
        Some(error) if markets.is_empty() => Err(error.into()),
        _ => Ok(markets),
    }
}

/// The pods with that name, which is the name in `top` or the booking id of an execution; usually
/// one.
fn pods_named<'a>(markets: &'a [NodeMarket], name: &str) -> Vec<PodOnNode<'a>> {
    let has_name = |pod: &MarketPod| {
        let is_execution = pod.kind == MarketKind::Execution;
        pod.pod == name || (is_execution && booking_of(pod) == name)
    };
    let of_node = |market: &'a NodeMarket| {
        let pods = market.pods.iter().filter(move |pod| has_name(pod));
        pods.map(move |pod| (market, pod))
    };
    markets.iter().flat_map(of_node).collect()
}

/// Failure of an unknown name: the cgroup is only observed or not managed, or the name is wrong.
fn unknown(markets: &[NodeMarket], name: &str) -> Failure {
    let refused = |message: String| Failure::new(exit::REFUSED, message);
    let act = "`bursar up --market act` lets it act on executions and declared cgroups";
    for market in markets {
        let mut groups = market.observed.iter();
        let bare = name.trim_start_matches('/');
        if let Some(group) = groups.find(|group| group.pod.trim_start_matches('/') == bare) {
            let message = format!("{} on {} is observed, not managed", group.pod, market.node);
            return refused(message).hint(act);
        }
        for without in &market.unmanaged {
            let is_it = |pod: &String| pod == name || pod.strip_prefix("e-") == Some(name);
            if without.pods.iter().any(is_it) {
                let place = &market.node;
                let message = format!("pod `{name}` on {place} is not managed: {}", without.words);
                return refused(message);
            }
        }
    }
    let pods = markets.iter().flat_map(|market| &market.pods);
    let names = pods.flat_map(|pod| [pod.pod.as_str(), booking_of(pod)]);
    let failure = match nearest(name, names) {
        Some(near) => refused(format!("no pod `{name}`, did you mean `{near}`?")),
        None => refused(format!("no pod `{name}` on any node")),
    };
    if markets.is_empty() {
        return failure.hint("no agent reports here: `bursar up --market observe` starts one");
    }
    failure.hint("`bursar top --once` lists the pods")
}

/// The numbers and the texts, for programs.
fn value(market: &NodeMarket, pod: &MarketPod, explanation: &Explanation) -> Value {
    let how = explanation.how.iter();
    json!({
        "object": {"kind": "Pod", "name": pod.pod},
        "node": market.node,
        "at": instant::format(market.at),
        "headline": explanation.headline,
        "why": explanation.why,
        "how": how.map(|(word, text)| json!({"word": word, "text": text})).collect::<Vec<_>>(),
        "changes": explanation.sooner.iter().collect::<Vec<_>>(),
        "out": explanation.out,
        "pod": pod,
    })
}

fn text(explanation: &Explanation, question: Option<Question>, look: &Look) -> String {
    let is_asked = |one: Question| question.is_none_or(|question| question == one);
    let label = |label: &str| format!("{label:<LABEL$}");
    let mut parts: Vec<(String, &str)> = Vec::new();
    let why = explanation.why.iter().filter(|_| is_asked(Question::Why));
    parts.extend(why.map(|why| (label("WHY"), why.as_str())));
    if is_asked(Question::How) {
        let labels = std::iter::once("HOW").chain(std::iter::repeat(""));
        let lines = labels.zip(&explanation.how);
        parts.extend(lines.map(|(first, (word, text))| {
            let label = label(first);
            (format!("{label}{word:<WORD$}"), text.as_str())
        }));
    }
    let sooner = explanation
        .sooner
        .iter()
        .filter(|_| is_asked(Question::When));
    parts.extend(sooner.map(|sooner| (label("SOONER"), sooner.as_str())));
    let out = explanation.out.iter().filter(|_| question.is_none());
    parts.extend(out.map(|out| (label("OUT"), out.as_str())));
    let headline = layout::fold(&explanation.headline, WIDTH).join("\n  ");
    let mut text = look.paint(Meaning::Subject, &headline) + "\n";
    if !parts.is_empty() {
        text.push('\n');
    }
    text.extend(
        parts
            .iter()
            .map(|(label, text)| layout::labelled(label, text)),
    );
    text
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test may panic")]

    use bursar_client::api::{MarketKind, NodeMarket};
    use bursar_market::explain::explain;
    use bursar_units::Instant;

    use super::{evidence, pods_named, scene, share, text, unknown};
    use crate::grammar::Question;
    use crate::layout::Look;

    fn market() -> NodeMarket {
        serde_json::from_str(include_str!("../../../tests/scenarios/market/w-17.json")).unwrap()
    }

    fn explained(question: Option<Question>) -> String {
        let market = market();
        let mut pods = market.pods.iter();
        let pod = pods.find(|pod| pod.pod == "shop/api-7c9f").unwrap();
        let explanation = explain(
            &scene(&market),
            &share(&market, pod),
            Some(&evidence(&market, pod, market.at)),
        );
        let look = Look {
            now: Instant::from_ms(0),
            zone: jiff::tz::TimeZone::UTC,
            utf8: true,
            color: false,
        };
        text(&explanation, question, &look)
    }

    #[test]
    fn a_congested_pod_is_explained_with_its_arithmetic() {
        let expected = "\
shop/api-7c9f may use 580m of CPU on w-17 and asks for 1000m: the node is congested

WHY     3 pods ask for 2600m, 1500m can be shared: each keeps its minimum, the rest goes by size
HOW     wrote   request 100m, limit 1000m (kept, and put back if you opt out)
        asks    1000m: it used 580m in the last second and was held back in every period
        size    700m: the most it used in a second of the last 10 minutes; all sizes are 1750m
        gets    100m + 1200m × 700/1750 = 580m, in steps of 10m
        price   1.92 = 2300m asked above the minimums / 1200m; 0 when nothing had to be forgotten
SOONER  it gets 1000m when the others ask for 1100m less, or on a node with that much room
OUT     label it `bursar.dev/market: \"off\"`: its own limit is back at the next clearing
";
        assert_eq!(explained(None), expected);
    }

    #[test]
    fn one_question_has_one_answer() {
        let why = explained(Some(Question::Why));
        assert!(
            why.contains("\nWHY     3 pods") && !why.contains("SOONER"),
            "{why}"
        );
        let how = explained(Some(Question::How));
        assert!(
            how.contains("\nHOW     wrote") && !how.contains("WHY") && !how.contains("OUT"),
            "{how}"
        );
        let when = explained(Some(Question::When));
        assert!(
            when.contains("\nSOONER  it gets") && !when.contains("WHY"),
            "{when}"
        );
    }

    #[test]
    fn an_execution_is_found_by_its_booking_and_an_ambiguous_name_finds_both() {
        let mut market = market();
        let mut names = ["job", "e-job", "e-other"].into_iter();
        for pod in &mut market.pods {
            pod.pod = names.next().unwrap().to_owned();
            pod.kind = MarketKind::Execution;
        }
        market.pods.first_mut().unwrap().kind = MarketKind::Declared;
        let markets = [market];
        let names = |name: &str| {
            let found = pods_named(&markets, name).into_iter();
            found.map(|(_, pod)| pod.pod.as_str()).collect::<Vec<_>>()
        };
        assert_eq!(names("other"), ["e-other"]);
        assert_eq!(names("e-other"), ["e-other"]);
        assert_eq!(names("job"), ["job", "e-job"]);
        assert_eq!(names("e-job"), ["e-job"]);
        assert_eq!(
            unknown(&markets, "othre").message,
            "no pod `othre`, did you mean `other`?"
        );
    }

    #[test]
    fn an_unmanaged_pod_has_a_reason_and_an_unknown_name_a_suggestion() {
        let message = |name: &str| unknown(&[market()], name).message;
        assert_eq!(
            message("shop/api-7c9"),
            "no pod `shop/api-7c9`, did you mean `shop/api-7c9f`?"
        );
        assert_eq!(message("x"), "no pod `x` on any node");
        let mut market = market();
        if let Some(without) = market.unmanaged.first_mut() {
            without.pods.push("dns".to_owned());
        }
        assert_eq!(
            unknown(&[market], "dns").message,
            "pod `dns` on w-17 is not managed: its namespace is excluded"
        );
    }
}
