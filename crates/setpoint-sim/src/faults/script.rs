//! Faults as lines of text: `on 2nd create deployments.apps default/web: crash before`.

use std::fmt;
use std::time::Duration;

use super::{Act, Effect, Faults, Interference, Match, Refusal, Rule};
use crate::request::Verb;

/// Faults that are written down, a line each. Empty lines and those that begin with `#` say nothing.
///
/// ```
/// use setpoint_sim::Script;
///
/// let script = Script::parse("
///     ## The second Deployment is created, and the controller dies before it hears of it.
///     on 2nd create deployments.apps: crash after commit
///     on every update foos.example.com/status default/web: refuse 409
///     on watch pods: hold after 3 events
/// ").unwrap();
/// assert_eq!(script.len(), 3);
///
/// let error = Script::parse("on create pods: crash").unwrap_err();
/// assert!(error.to_string().starts_with("line 1: there is no fault \"crash\"; there are:"));
/// ```
#[derive(Clone, Debug, Default)]
pub struct Script {
    lines: Vec<Line>,
}

#[derive(Clone, Debug)]
struct Line {
    text: String,
    matching: Match,
    effect: Effect,
    is_always: bool,
}

/// What is wrong with a script.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {why}")]
#[non_exhaustive]
pub struct ScriptError {
    /// The line, from 1.
    pub line: usize,
    /// What is wrong, and what to write instead.
    pub why: String,
}

const FORM: &str = "a line is `on [2nd|every] VERB RESOURCE [NAMESPACE/NAME]: FAULT`";

impl Script {
    /// What can stand in a script, for people.
    pub const HELP: &str = "\
on [2nd|every] VERB RESOURCE [NAMESPACE/NAME]: FAULT

Without a number the fault affects the first request that it can affect; with `every`, each of them.
  VERB      create, update, patch, delete, deletecollection, get, list, watch; write, read, any
  RESOURCE  as kubectl spells it: pods, deployments.apps, pods/status, pods/* (with its subresources), * (all)
  NAME      default/web; default/* for a namespace; web for a cluster-scoped object

FAULT for any request
  refuse 409, 410, 429, 500 or 503   an error instead of the server's response; the server never gets the request
  lose request, refuse connection    the server never gets the request
  lose answer                        the server processes the request; then the connection breaks
  bad gateway, never answer          the server processes the request; the response is 502, or none
  delay 2s, delay answer 2s          the request or the response arrives later
  time out 5s                        the server processes the request; the connection breaks after this time
  touch, delete, recreate            another client updates the object first, deletes it, or recreates it
  create                             another client creates the same object first
  restart server                     every connection breaks after the response
FAULT for a watch
  cut after 3 events                 the connection breaks
  end after 3 events                 the watch ends without an error
  expire after 3 events              410: the client has to list again
  hold after 3 events                no events until all faults end: the cache of this kind is stale
  hold 5s after 3 events             no events for this time
  hide after 3 events                no events until all faults end, then 410: the events in between are never delivered
  lag 2 events after 3 events        each event is delivered after two later ones exist
  delay events 2s                    each event is delivered later
FAULT for the program that the proxy runs
  crash before                       kill -9; the server never gets the request
  crash after commit                 kill -9 after the server has processed the request, before the response
  crash after answer                 kill -9 after the response, before the next request
  pause 20s                          SIGSTOP after the response, SIGCONT later
  lose lease                         requests for leases no longer reach the server";

    /// Reads a script.
    pub fn parse(text: &str) -> Result<Script, ScriptError> {
        let lines = text.lines().map(str::trim).zip(1..);
        let said = lines.filter(|(line, _)| !line.is_empty() && !line.starts_with('#'));
        let lines = said.map(|(text, line)| parse(text).map_err(|why| ScriptError { line, why }));
        Ok(Script { lines: lines.collect::<Result<_, _>>()? })
    }

    /// How many faults there are.
    pub fn len(&self) -> usize {
        self.lines.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// Those of another script after those of this one.
    #[must_use]
    pub fn and(mut self, other: Script) -> Script {
        self.lines.extend(other.lines);
        self
    }

    /// Makes these faults happen from now on. Each rule comes with its line.
    pub fn inject(&self, faults: &Faults) -> Vec<(String, Rule)> {
        let inject = |line: &Line| {
            let rule = faults.on(line.matching.clone()).inject(line.effect.clone());
            (line.text.clone(), if line.is_always { rule.always() } else { rule })
        };
        self.lines.iter().map(inject).collect()
    }
}

/// The lines as they were written.
impl fmt::Display for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.lines.iter().try_for_each(|line| writeln!(f, "{}", line.text))
    }
}

fn parse(text: &str) -> Result<Line, String> {
    let (on, effect) = text.rsplit_once(':').ok_or_else(|| format!("there is no `:`; {FORM}"))?;
    let words: Vec<&str> = on.split_whitespace().collect();
    let ["on", words @ ..] = words.as_slice() else {
        return Err(format!("it does not begin with `on`; {FORM}"));
    };
    let (is_always, nth, words) = match words {
        ["every", rest @ ..] => (true, None, rest),
        [word, rest @ ..] if word.starts_with(|c: char| c.is_ascii_digit()) => {
            let n = ordinal(word).ok_or_else(|| format!("{word:?} is no number such as 2nd; {FORM}"))?;
            (false, Some(n), rest)
        }
        rest => (false, None, rest),
    };
    let matching = matching(words)?;
    let effect = effect_of(effect.trim())?;
    let is_of_watch = is_of_watch(&effect);
    if is_of_watch && !matching.can_be_watch() {
        return Err("only a watch has events: `on watch RESOURCE: …`".to_owned());
    }
    let matching = nth.into_iter().fold(matching, Match::nth);
    Ok(Line { text: text.to_owned(), matching, effect, is_always })
}

fn ordinal(word: &str) -> Option<u64> {
    let digits = word.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let is_known = ["", "st", "nd", "rd", "th"].contains(&&word[digits.len()..]);
    digits.parse().ok().filter(|n| is_known && *n > 0)
}

fn matching(words: &[&str]) -> Result<Match, String> {
    let [verb, rest @ ..] = words else { return Err(format!("there is no verb; {FORM}")) };
    let matching = match *verb {
        "any" => Match::any(),
        "write" => Match::writes(),
        "read" => Match::any().verb(Verb::Get).verb(Verb::List).verb(Verb::Watch),
        verb => Match::any().verb(verb_of(verb).ok_or_else(|| {
            format!("there is no verb {verb:?}; there are create, update, patch, delete, deletecollection, get, list, watch, write, read, any")
        })?),
    };
    let (resource, object) = match rest {
        [] => (None, None),
        [resource] => (Some(*resource), None),
        [resource, object] => (Some(*resource), Some(*object)),
        _ => return Err(format!("there are too many words; {FORM}")),
    };
    let matching = match resource.filter(|resource| *resource != "*") {
        Some(resource) => matching.resource(resource),
        None => matching,
    };
    Ok(match object.map(|object| object.split_once('/').unwrap_or(("", object))) {
        None => matching,
        Some(("", name)) => matching.name(name),
        Some((namespace, "*")) => matching.namespace(namespace),
        Some((namespace, name)) => matching.namespace(namespace).name(name),
    })
}

fn verb_of(word: &str) -> Option<Verb> {
    let verbs = [
        Verb::Get,
        Verb::List,
        Verb::Watch,
        Verb::Create,
        Verb::Update,
        Verb::Patch,
        Verb::Delete,
        Verb::DeleteCollection,
    ];
    verbs.into_iter().find(|verb| verb.to_string() == word)
}

fn effect_of(text: &str) -> Result<Effect, String> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let interfere = |act| Effect::Interfere(Interference { act, object: None });
    Ok(match words.as_slice() {
        ["crash", "before"] => Effect::CrashBefore,
        ["crash", "after", "commit"] => Effect::CrashAfterCommit,
        ["crash", "after", "answer"] => Effect::CrashAfterAnswer,
        ["pause", time] => Effect::PauseAfterAnswer(duration(time)?),
        ["lose", "lease"] => Effect::LoseLease,
        ["lose", "request"] => Effect::DropRequest,
        ["lose", "answer"] => Effect::LoseResponse,
        ["refuse", "connection"] => Effect::RefuseConnection,
        ["refuse", code] => Effect::Refuse(refusal(code)?),
        ["bad", "gateway"] => Effect::BadGateway,
        ["never", "answer"] => Effect::Silence,
        ["time", "out", time] => Effect::TimeOut(duration(time)?),
        ["delay", "answer", time] => Effect::DelayResponse(duration(time)?),
        ["delay", "events", time] => Effect::DelayEvents(duration(time)?),
        ["delay", time] => Effect::DelayRequest(duration(time)?),
        ["restart", "server"] => Effect::RestartServer,
        ["touch"] => interfere(Act::Touch),
        ["delete"] => interfere(Act::Delete),
        ["recreate"] => interfere(Act::Recreate),
        ["create"] => interfere(Act::Create),
        ["cut", rest @ ..] => Effect::CutAfterEvents(after(rest)?),
        ["end", rest @ ..] => Effect::EndAfterEvents(after(rest)?),
        ["expire", rest @ ..] => Effect::ErrorAfterEvents(after(rest)?, Refusal::Expired),
        ["hide", rest @ ..] => Effect::HideAfterEvents(after(rest)?),
        ["hold"] => Effect::HoldAfterEvents(0),
        ["hold", "after", ..] => Effect::HoldAfterEvents(after(&words[1..])?),
        ["hold", time, rest @ ..] => Effect::StallAfterEvents(after(rest)?, duration(time)?),
        ["lag", k, "event" | "events", rest @ ..] => Effect::LagAfterEvents(after(rest)?, number(k)?),
        _ => return Err(format!("there is no fault {text:?}; there are:\n{}", Script::HELP)),
    })
}

fn is_of_watch(effect: &Effect) -> bool {
    matches!(
        effect,
        Effect::CutAfterEvents(_)
            | Effect::EndAfterEvents(_)
            | Effect::ErrorAfterEvents(..)
            | Effect::HideAfterEvents(_)
            | Effect::HoldAfterEvents(_)
            | Effect::StallAfterEvents(..)
            | Effect::LagAfterEvents(..)
            | Effect::DelayEvents(_)
    )
}

/// `after 3 events`; nothing is at once.
fn after(words: &[&str]) -> Result<u64, String> {
    match words {
        [] => Ok(0),
        ["after", n, "event" | "events"] => number(n),
        other => Err(format!("{:?} is not `after 3 events`", other.join(" "))),
    }
}

fn number(word: &str) -> Result<u64, String> {
    word.parse().map_err(|_| format!("{word:?} is no number"))
}

fn refusal(code: &str) -> Result<Refusal, String> {
    Ok(match code {
        "409" => Refusal::Conflict,
        "410" => Refusal::Expired,
        "429" => Refusal::TooManyRequests { retry_after: Duration::from_secs(1) },
        "500" => Refusal::InternalError,
        "503" => Refusal::ServiceUnavailable,
        other => return Err(format!("there is no refusal {other:?}; there are 409, 410, 429, 500, 503")),
    })
}

/// `500ms`, `2s`, `1m`.
fn duration(word: &str) -> Result<Duration, String> {
    let digits = word.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match &word[digits.len()..] {
        "ms" => 0.001,
        "s" => 1.0,
        "m" => 60.0,
        _ => f64::NAN,
    };
    let seconds = digits.parse::<f64>().unwrap_or(f64::NAN) * unit;
    Duration::try_from_secs_f64(seconds).map_err(|_| format!("{word:?} is no time such as 500ms, 2s or 1m"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::RequestInfo;

    fn one(text: &str) -> Line {
        Script::parse(text).unwrap().lines.remove(0)
    }

    fn why(text: &str) -> String {
        Script::parse(text).unwrap_err().to_string()
    }

    #[test]
    fn a_line_selects_requests_as_kubectl_spells_them() {
        let line = one("on 2nd update foos.example.com/status default/web: refuse 409");
        let path = "/apis/example.com/v1/namespaces/default/foos/web/status";
        let put = RequestInfo::parse(&http::Method::PUT, &path.parse().unwrap(), b"");
        assert!(line.matching.selects("controller", &put));
        assert!(!line.matching.wants_nth(1) && line.matching.wants_nth(2));
        let path = "/apis/example.com/v1/namespaces/other/foos/web/status";
        let put = RequestInfo::parse(&http::Method::PUT, &path.parse().unwrap(), b"");
        assert!(!line.matching.selects("controller", &put));
        assert!(one("on every write * other/*: lose answer").matching.selects("controller", &put));
        assert!(one("on any: lose answer").matching.selects("controller", &put));
    }

    #[test]
    fn every_fault_of_the_help_can_be_written() {
        for (text, effect) in [
            ("refuse 429", Effect::Refuse(Refusal::TooManyRequests { retry_after: Duration::from_secs(1) })),
            ("lose request", Effect::DropRequest),
            ("refuse connection", Effect::RefuseConnection),
            ("lose answer", Effect::LoseResponse),
            ("bad gateway", Effect::BadGateway),
            ("never answer", Effect::Silence),
            ("delay 500ms", Effect::DelayRequest(Duration::from_millis(500))),
            ("delay answer 2s", Effect::DelayResponse(Duration::from_secs(2))),
            ("time out 1m", Effect::TimeOut(Duration::from_secs(60))),
            ("touch", Effect::Interfere(Interference { act: Act::Touch, object: None })),
            ("delete", Effect::Interfere(Interference { act: Act::Delete, object: None })),
            ("recreate", Effect::Interfere(Interference { act: Act::Recreate, object: None })),
            ("create", Effect::Interfere(Interference { act: Act::Create, object: None })),
            ("restart server", Effect::RestartServer),
            ("cut after 1 event", Effect::CutAfterEvents(1)),
            ("end after 3 events", Effect::EndAfterEvents(3)),
            ("expire after 3 events", Effect::ErrorAfterEvents(3, Refusal::Expired)),
            ("hold", Effect::HoldAfterEvents(0)),
            ("hold after 3 events", Effect::HoldAfterEvents(3)),
            ("hold 5s after 3 events", Effect::StallAfterEvents(3, Duration::from_secs(5))),
            ("hide after 3 events", Effect::HideAfterEvents(3)),
            ("lag 2 events after 3 events", Effect::LagAfterEvents(3, 2)),
            ("delay events 2s", Effect::DelayEvents(Duration::from_secs(2))),
            ("crash before", Effect::CrashBefore),
            ("crash after commit", Effect::CrashAfterCommit),
            ("crash after answer", Effect::CrashAfterAnswer),
            ("pause 20s", Effect::PauseAfterAnswer(Duration::from_secs(20))),
            ("lose lease", Effect::LoseLease),
        ] {
            assert_eq!(one(&format!("on watch pods: {text}")).effect, effect, "{text}");
        }
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line_and_what_to_write() {
        assert_eq!(
            why("\n# a\ncreate pods: lose answer"),
            format!("line 3: it does not begin with `on`; {FORM}")
        );
        assert!(why("on create pods lose answer").contains("there is no `:`"));
        assert!(why("on made pods: lose answer").contains("there is no verb \"made\"; there are create"));
        assert!(why("on create pods: explode").contains("crash after commit"));
        assert!(why("on create pods: cut after 2 events").contains("on watch RESOURCE"));
        assert!(why("on watch pods: cut after two events").contains("\"two\" is no number"));
        assert!(why("on 2th5 create pods: lose answer").contains("no number such as 2nd"));
        assert!(why("on create pods: delay 5").contains("500ms, 2s or 1m"));
        assert!(why("on create pods: refuse 404").contains("409, 410, 429"));
        assert!(why("on create pods a b: touch").contains("too many words"));
    }
}
