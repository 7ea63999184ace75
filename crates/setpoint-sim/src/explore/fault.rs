//! One thing that goes wrong in a run.

use std::fmt::{self, Write};
use std::time::Duration;

use serde_json::Value;

use crate::faults::{Act, Effect, Match, Refusal};

/// One thing that goes wrong in a run. A list of them is a run that can be told again: see [`replay`](crate::replay).
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
#[expect(clippy::large_enum_variant, reason = "nearly all faults are of the large kind, and there are few")]
pub enum Fault {
    /// It happens to a request.
    On(Match, Effect),
    /// When everything has come to rest, somebody does this to the object of this path.
    AtRest(Act, String),
    /// When everything has come to rest, somebody writes this into the object of this path: what was there before.
    Revert(String, Value),
    /// A finalizer of somebody else is on the object of this path from its beginning, until all faults end.
    Finalizer(String),
    /// When everything has come to rest, this client crashes, and finds a server whose cache of this resource is at this
    /// revision. Only lists that ask for any version see it.
    OldCache(String, String, u64),
    /// Tasks run in the order that this seed chooses.
    Order(u64),
    /// The clock of this client runs at so many percent of the others' rate.
    ClockRate(String, u32),
    /// The user takes other steps than the scenario says: those at these places, from 0. It has to end where the run without
    /// faults was after the last of them.
    Steps(Vec<usize>),
}

impl Fault {
    /// As a line of a test. Names that are not of this crate have their paths.
    pub(crate) fn code(&self) -> String {
        match self {
            Fault::On(matching, effect) => format!("Fault::On({}, {})", matching.code(), effect_code(effect)),
            Fault::AtRest(act, path) => format!("Fault::AtRest(Act::{act:?}, {path:?}.into())"),
            Fault::Revert(path, value) => {
                format!("Fault::Revert({path:?}.into(), serde_json::json!({value}))")
            }
            Fault::Finalizer(path) => format!("Fault::Finalizer({path:?}.into())"),
            Fault::Order(seed) => format!("Fault::Order({seed})"),
            Fault::ClockRate(client, percent) => format!("Fault::ClockRate({client:?}.into(), {percent})"),
            Fault::OldCache(client, resource, revision) => {
                format!("Fault::OldCache({client:?}.into(), {resource:?}.into(), {revision})")
            }
            Fault::Steps(steps) => format!("Fault::Steps(vec!{steps:?})"),
        }
    }
}

fn effect_code(effect: &Effect) -> String {
    match effect {
        Effect::Refuse(refusal) => format!("Effect::Refuse({})", refusal_code(*refusal)),
        Effect::ErrorAfterEvents(n, refusal) => {
            format!("Effect::ErrorAfterEvents({n}, {})", refusal_code(*refusal))
        }
        Effect::StallAfterEvents(n, time) => format!("Effect::StallAfterEvents({n}, {})", time_code(*time)),
        Effect::PauseAfterAnswer(time) => format!("Effect::PauseAfterAnswer({})", time_code(*time)),
        Effect::DelayRequest(time) => format!("Effect::DelayRequest({})", time_code(*time)),
        Effect::DelayResponse(time) => format!("Effect::DelayResponse({})", time_code(*time)),
        Effect::DelayEvents(time) => format!("Effect::DelayEvents({})", time_code(*time)),
        Effect::TimeOut(time) => format!("Effect::TimeOut({})", time_code(*time)),
        Effect::Answer { status, content_type, body } => format!(
            "Effect::Answer {{ status: {status}, content_type: {content_type:?}.into(), body: {} }}",
            bytes_code(body)
        ),
        Effect::InsertAfterEvents(n, bytes) => {
            format!("Effect::InsertAfterEvents({n}, {})", bytes_code(bytes))
        }
        Effect::Interfere(interference) => {
            let object = match &interference.object {
                Some(path) => format!("Some({path:?}.into())"),
                None => "None".to_owned(),
            };
            format!(
                "Effect::Interfere(Interference {{ act: Act::{:?}, object: {object} }})",
                interference.act
            )
        }
        // Nothing in them but numbers.
        other => format!("Effect::{other:?}"),
    }
}

fn bytes_code(bytes: &[u8]) -> String {
    format!("b\"{}\".as_slice().into()", bytes.escape_ascii())
}

fn refusal_code(refusal: Refusal) -> String {
    match refusal {
        Refusal::TooManyRequests { retry_after } => {
            format!("Refusal::TooManyRequests {{ retry_after: {} }}", time_code(retry_after))
        }
        other => format!("Refusal::{other:?}"),
    }
}

fn time_code(time: Duration) -> String {
    format!("std::time::Duration::from_millis({})", time.as_millis())
}

/// As a failure report tells it.
impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::On(matching, effect) => {
                f.write_str(&words(effect))?;
                f.write_char(' ')?;
                matching.fmt(f)
            }
            Fault::AtRest(Act::Delete, path) => write!(f, "somebody deletes {path} when all is at rest"),
            Fault::AtRest(act, path) => write!(f, "somebody does to {path} when all is at rest: {act:?}"),
            Fault::Revert(path, _) => {
                write!(f, "somebody sets {path} back to what it was, when all is at rest")
            }
            Fault::Finalizer(path) => write!(f, "a foreign finalizer is on {path}"),
            Fault::Order(seed) => write!(f, "tasks run in the order of seed {seed}"),
            Fault::ClockRate(client, percent) => {
                write!(f, "the clock of {client} runs at {percent} % of the others' rate")
            }
            Fault::OldCache(client, resource, revision) => write!(
                f,
                "crash of {client} when all is at rest, and a restart onto a cache of {resource} of revision {revision}"
            ),
            Fault::Steps(steps) => {
                let steps: Vec<_> = steps.iter().map(|at| at.saturating_add(1).to_string()).collect();
                write!(f, "no fault, but the steps of the user in another way: {}", steps.join(", "))
            }
        }
    }
}

/// The effect, so that the request can follow.
fn words(effect: &Effect) -> String {
    match effect {
        Effect::CrashBefore => "crash before".to_owned(),
        Effect::CrashAfterCommit => "crash after the commit and before the answer of".to_owned(),
        Effect::CrashAfterAnswer => "crash after the answer to".to_owned(),
        Effect::PauseAfterAnswer(time) => format!("pause of {time:?} after the answer to"),
        Effect::LoseResponse => "answer lost of".to_owned(),
        Effect::Refuse(refusal) => format!("{refusal} in answer to"),
        Effect::RestartServer => "restart of the server after".to_owned(),
        Effect::Interfere(interference) => {
            let object = interference.object.as_deref().unwrap_or("the object");
            match interference.act {
                Act::Touch => format!("somebody writes to {object} just before"),
                Act::Delete => format!("somebody deletes {object} just before"),
                Act::Recreate => format!("somebody deletes {object} and creates it again just before"),
                Act::Create => format!("somebody creates {object} just before"),
            }
        }
        Effect::CutAfterEvents(n) => format!("cut after event {n} of"),
        Effect::ErrorAfterEvents(n, refusal) => format!("{refusal} after event {n} of"),
        Effect::StallAfterEvents(n, time) => format!("silence of {time:?} after event {n} of"),
        Effect::HoldAfterEvents(n) => format!("silence until all faults end after event {n} of"),
        Effect::LagAfterEvents(n, k) => format!("lag of {k} events after event {n} of"),
        Effect::LoseLease => "no lease is reached after the answer to".to_owned(),
        Effect::HideAfterEvents(n) => {
            format!("silence until all faults end, then expiry, after event {n} of")
        }
        other => format!("{other:?} to"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::explore::Finding;
    use crate::explore::report::code;
    use crate::faults::Interference;
    use crate::request::Verb;

    const PATH: &str = "/api/v1/namespaces/default/secrets/a";

    /// A fault of each form that a report gives to paste, or that somebody may replay.
    fn every_form() -> Vec<Fault> {
        let second = Duration::from_secs(1);
        let busy = Refusal::TooManyRequests { retry_after: second };
        let effects = [
            Effect::DelayRequest(second),
            Effect::DelayResponse(second),
            Effect::RefuseConnection,
            Effect::DropRequest,
            Effect::Refuse(busy),
            Effect::Refuse(Refusal::Conflict),
            Effect::Answer { status: 200, content_type: "text/plain".to_owned(), body: "a \"b\"\n".into() },
            Effect::LoseResponse,
            Effect::BadGateway,
            Effect::TimeOut(second),
            Effect::Silence,
            Effect::CutAfterBytes(1),
            Effect::CutAfterEvents(1),
            Effect::CutInsideEvent(1),
            Effect::EndAfterEvents(1),
            Effect::ErrorAfterEvents(1, Refusal::Expired),
            Effect::InsertAfterEvents(1, "{}\n".into()),
            Effect::DelayEvents(second),
            Effect::HoldAfterEvents(1),
            Effect::StallAfterEvents(1, second),
            Effect::LagAfterEvents(1, 2),
            Effect::HideAfterEvents(1),
            Effect::CrashBefore,
            Effect::CrashAfterCommit,
            Effect::CrashAfterAnswer,
            Effect::PauseAfterAnswer(second),
            Effect::LoseLease,
            Effect::RestartServer,
            Effect::Interfere(Interference { act: Act::Touch, object: None }),
            Effect::Interfere(Interference { act: Act::Recreate, object: Some(PATH.to_owned()) }),
        ];
        let on = Match::any().verb(Verb::Create).resource("deployments.apps/status").client("a");
        let mut faults: Vec<_> = effects.into_iter().map(|effect| Fault::On(on.clone(), effect)).collect();
        let call = Match::any().verb(Verb::NonResource).client("a").http("POST", "/v2.0/subnets").nth(2);
        faults.push(Fault::On(call, Effect::LoseResponse));
        faults.extend([
            Fault::AtRest(Act::Delete, PATH.to_owned()),
            Fault::Revert(PATH.to_owned(), json!({"data": {"a": null, "b": [1, -1.5, true, "c"]}})),
            Fault::Finalizer(PATH.to_owned()),
            Fault::OldCache("a".to_owned(), "secrets".to_owned(), 7),
            Fault::Order(7),
            Fault::ClockRate("a".to_owned(), 80),
            Fault::Steps(vec![0, 1, 0]),
        ]);
        faults
    }

    fn found(faults: Vec<Fault>) -> Finding {
        Finding::new(&faults, Vec::new(), 1)
    }

    /// What is pasted is compiled here, with nothing imported but what it imports itself.
    mod pasted {
        mod setpoint_sim {
            pub(super) use crate::*;

            /// They are of no run: that they compile is enough.
            pub(super) fn replay<const N: usize>(_: impl Fn(&World) -> Scenario, faults: [Fault; N]) {
                assert_ne!(faults.len(), 0);
            }
        }

        fn scenario(_: &crate::World) -> crate::Scenario {
            crate::Scenario::new()
        }

        include!("pasted/every_form.rs");
        include!("pasted/one.rs");
    }

    #[test]
    fn what_is_pasted_compiles_and_imports_no_more_than_it_needs() {
        let every_form = code("every::form", "a::scenario", &found(every_form()));
        assert_eq!(every_form, include_str!("pasted/every_form.rs"), "{every_form}");
        let one = code("one", "a::scenario", &found(vec![Fault::Order(7)]));
        assert_eq!(one, include_str!("pasted/one.rs"), "{one}");
    }

    #[test]
    fn a_scenario_without_a_name_is_asked_for() {
        let text = code("a test", "a::b::{{closure}}", &found(vec![Fault::Order(7)]));
        assert!(text.contains("// Make a function"), "{text}");
        assert!(text.contains("replay(scenario, ["), "{text}");
        let text = code("a test", "a::of_two", &found(vec![Fault::Order(7)]));
        assert!(text.contains("replay(of_two, ["), "{text}");
    }
}
