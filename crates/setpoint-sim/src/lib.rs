//! A simulator for tests of controllers: an API server in the process of the test, on virtual time, with faults
//! injected between the server and its clients. A run can be repeated from its seed.
//!
//! ```
//! use k8s_openapi::api::core::v1::ConfigMap;
//! use kube::api::{Api, ObjectMeta, PostParams};
//! use setpoint_sim::{Match, World};
//!
//! World::run(42, async |world| {
//!     let metadata = ObjectMeta { name: Some("a".into()), ..Default::default() };
//!     let map = ConfigMap { metadata, ..Default::default() };
//!
//!     // The response of the controller's first create gets lost on its way back.
//!     world.faults().on(Match::create("configmaps").client("controller")).lose_response();
//!
//!     let maps: Api<ConfigMap> = Api::default_namespaced(world.client_named("controller"));
//!     let error = maps.create(&PostParams::default(), &map).await.unwrap_err();
//!     assert!(matches!(error, kube::Error::Service(_)), "as from a broken connection");
//!
//!     // No fault affects the requests of `direct`: the object was created.
//!     let direct: Api<ConfigMap> = Api::default_namespaced(world.direct());
//!     assert!(direct.get_opt("a").await.unwrap().is_some());
//!
//!     // The test fails if the fault was never injected.
//!     let expected = "lost the response of POST configmaps/default/a after it was committed";
//!     assert_eq!(world.faults().fired()[0].to_string(), expected);
//!     world.faults().assert_all_fired();
//! });
//! ```
//!
//! This injects one fault at one point. [`explore`] injects all of them: it runs a [`Scenario`] without faults,
//! finds every point where a fault can happen, runs the scenario again with each fault, and compares the end states.
//!
//! # The parts
//! - [`explore`]: every fault at every point of a [`Scenario`], with a report of what was found. [`replay`] runs
//!   the scenario with given faults: a report contains the call. [`Explorer`] has more settings.
//! - [`World`]: the server, its clock and seed, and clients. Faults affect the requests of [`World::client_named`], not those of
//!   [`World::direct`].
//! - [`Faults`]: injected by rules or by a seed ([`Swarm`]). For a rule, call [`Faults::on`] with a [`Match`], and then one of
//!   the effects below; this returns a [`Rule`]. [`Faults::heal`] ends all faults. `Faults` is also a [`tower::Layer`], for any
//!   other server. [`Script`] parses faults from a text; `setpoint sim proxy` injects these between a controller in any language
//!   and a real server.
//! - [`Trace`]: the requests, responses and events between clients and server. [`check_determinism`] compares the traces of two
//!   runs.
//!
//! # The faults
//! | fault | what it does |
//! | --- | --- |
//! | [`delay_request`](On::delay_request) | The request reaches the server later. |
//! | [`delay_response`](On::delay_response) | The server processes the request at once, and its response arrives later. |
//! | [`refuse_connection`](On::refuse_connection) | The connection is refused: the client knows that the server did not get the request. |
//! | [`drop_request`](On::drop_request) | The request is lost: the client does not know whether the server got it. |
//! | [`refuse`](On::refuse) | 409, 410, 429 with Retry-After, 500 or 503, instead of the server's response. |
//! | [`answer`](On::answer) | Any response instead of the server's, even an invalid one. |
//! | [`lose_response`](On::lose_response) | The server processes the request; then the connection breaks. |
//! | [`bad_gateway`](On::bad_gateway) | The server processes the request; the client gets 502, as from a proxy. |
//! | [`time_out`](On::time_out) | The server processes the request; the client gets a time-out. |
//! | [`silence`](On::silence) | The server processes the request; the client never gets a response. |
//! | [`cut_after_bytes`](On::cut_after_bytes) | The connection breaks in the middle of a response. |
//! | [`cut_after_events`](On::cut_after_events) | A watch breaks between two events. |
//! | [`cut_inside_event`](On::cut_inside_event) | A watch breaks in the middle of an event. |
//! | [`end_after_events`](On::end_after_events) | A watch ends without an error. |
//! | [`error_after_events`](On::error_after_events) | A watch ends with an ERROR event, such as 410. |
//! | [`insert_after_events`](On::insert_after_events) | Bytes that the server did not send are inserted into a watch. |
//! | [`delay_events`](On::delay_events) | The events of a watch arrive later. |
//! | [`hold`](On::hold) | A watch delivers nothing until it is released: the client's cache is stale. |
//! | [`Effect::StallAfterEvents`] | A watch delivers nothing for a given time; then all events arrive. |
//! | [`Effect::LagAfterEvents`] | Each event of a watch is held back until n later ones exist. |
//! | [`Effect::HideAfterEvents`] | A watch delivers nothing until it is released, and then expires (410): the client never observes the events in between. |
//! | [`Effect::CrashBefore`], [`CrashAfterCommit`](Effect::CrashAfterCommit), [`CrashAfterAnswer`](Effect::CrashAfterAnswer) | The client's process is killed. |
//! | [`Effect::PauseAfterAnswer`] | The client's process is paused. |
//! | [`Effect::LoseLease`] | The client can no longer reach its lease. |
//! | [`Effect::Interfere`] | Another client writes first. |
//! | [`Effect::RestartServer`] | The server restarts after the request. |
//! | [`World::restart_server`] | All open watches and requests are reset; the objects stay. |
//! | [`World::stop_server`] | As above, and no client can connect until the server is started. |
//!
//! No fault drops a single event of a watch that continues: no correct server does that.
//!
//! # Repeatable runs
//! Time and randomness follow the seed if the code under test takes them from tokio's clock and from
//! [`World::env`], iterates over ordered maps, and uses `biased` in `select!`. Tokio schedules tasks in the same order in each
//! run. With [`Env::shuffle`](setpoint_env::Env::shuffle) the order follows a seed: tasks that a [`Seat`] (a controller's
//! simulated process) spawns are sometimes delayed behind others. Tasks that other crates spawn are not shuffled.

// What worlds alone need is not taken apart further.
#![cfg_attr(not(feature = "world"), allow(dead_code))]
// Operators of times panic when they overflow; clippy.toml says which types are meant.
#![cfg_attr(not(test), warn(clippy::arithmetic_side_effects))]

mod connection_error;
#[cfg(feature = "world")]
mod determinism;
#[cfg(feature = "world")]
mod explore;
mod faults;
mod hash;
mod request;
mod trace;
#[cfg(feature = "world")]
mod world;

pub use connection_error::ConnectionError;
#[cfg(feature = "world")]
pub use determinism::{Nondeterminism, check_determinism};
#[cfg(feature = "world")]
pub use explore::{
    Exploration, Explorer, Fault, Finding, ObjectId, Oracle, PointKind, Scenario, Seat, Targets, Tried,
    Unreached, View, Violation, explore, replay,
};
pub use faults::{
    Act, Body, Effect, FaultKind, FaultLayer, FaultService, Faults, Fired, Interference, Match, On, Refusal,
    Rule, Script, ScriptError, Swarm,
};
pub use request::{RequestInfo, Verb};
pub use trace::{Entry, Trace, What};
#[cfg(feature = "world")]
pub use world::{BURST, World};
