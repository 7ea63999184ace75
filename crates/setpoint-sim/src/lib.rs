//! A simulator for tests of controllers: an API server in the process of the test, on virtual time, with faults
//! injected between it and its clients. A run can be repeated from its seed.
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
//!     // The world's own hand goes around the faults: the object is there.
//!     let direct: Api<ConfigMap> = Api::default_namespaced(world.direct());
//!     assert!(direct.get_opt("a").await.unwrap().is_some());
//!
//!     // A failure report tells what happened, and a test cannot pass because its fault missed.
//!     let expected = "lost the response of POST configmaps/default/a after it was committed";
//!     assert_eq!(world.faults().fired()[0].to_string(), expected);
//!     world.faults().assert_all_fired();
//! });
//! ```
//!
//! This injects one fault at one point, chosen by hand. [`explore`] tries all of them: it runs a [`Scenario`] without faults,
//! finds every point where a fault can happen, runs the scenario again with each fault, and compares the end states.
//!
//! # The parts
//! - [`explore`]: every fault at every point of a [`Scenario`], with a report of what was found. [`replay`] runs
//!   the scenario with given faults: a report contains the call. [`Explorer`] has more settings.
//! - [`World`]: the server, its time and seed, and clients. The requests of [`World::client_named`] meet the faults, those of
//!   [`World::direct`] do not.
//! - [`Faults`]: by script or by seed ([`Swarm`]). A script calls [`Faults::on`] with a [`Match`], and then one of the effects below;
//!   that gives a [`Rule`]. [`Faults::heal`] ends all faults. `Faults` is a [`tower::Layer`] too, for any other
//!   server, and [`Script`] reads faults from a file: `setpoint sim proxy` puts them between a controller in any language and a real server.
//! - [`Trace`]: what passed between clients and server. [`check_determinism`] compares the traces of two runs.
//!
//! # The faults
//! | fault | what it does |
//! | --- | --- |
//! | [`delay_request`](On::delay_request) | The request reaches the server later. |
//! | [`delay_response`](On::delay_response) | The server acts at once, and its answer arrives later. |
//! | [`refuse_connection`](On::refuse_connection) | The server never sees the request, and the client knows it. |
//! | [`drop_request`](On::drop_request) | The server never sees the request, and the client cannot know it. |
//! | [`refuse`](On::refuse) | 409, 410, 429 with Retry-After, 500 or 503 in the server's place. |
//! | [`answer`](On::answer) | Any answer in the server's place, also one that no server gives. |
//! | [`lose_response`](On::lose_response) | The server acts; then the connection breaks. |
//! | [`bad_gateway`](On::bad_gateway) | The server acts; a proxy answers 502. |
//! | [`time_out`](On::time_out) | The server acts; the client waits and gets a time-out. |
//! | [`silence`](On::silence) | The server acts; the client never hears of it. |
//! | [`cut_after_bytes`](On::cut_after_bytes) | An answer breaks off. |
//! | [`cut_after_events`](On::cut_after_events) | A watch breaks between two events. |
//! | [`cut_inside_event`](On::cut_inside_event) | A watch breaks in the middle of a line. |
//! | [`end_after_events`](On::end_after_events) | A watch ends in good order. |
//! | [`error_after_events`](On::error_after_events) | A watch ends with an ERROR event, such as 410. |
//! | [`insert_after_events`](On::insert_after_events) | Bytes appear in a watch that the server did not send. |
//! | [`delay_events`](On::delay_events) | The events of a watch arrive later. |
//! | [`hold`](On::hold) | A watch is silent until it is released: the client's view is stale. |
//! | [`Effect::StallAfterEvents`] | A watch is silent for a given time; then everything arrives. |
//! | [`Effect::LagAfterEvents`] | Each event of a watch is held back until n later ones exist. |
//! | [`Effect::HideAfterEvents`] | A watch is silent until it is released, and then expires: the client never sees what was in between. |
//! | [`Effect::CrashBefore`], [`CrashAfterCommit`](Effect::CrashAfterCommit), [`CrashAfterAnswer`](Effect::CrashAfterAnswer) | The client's process dies. |
//! | [`Effect::PauseAfterAnswer`] | The client's process stands still. |
//! | [`Effect::LoseLease`] | The client does not reach its lease any more. |
//! | [`Effect::Interfere`] | Somebody else writes first. |
//! | [`Effect::RestartServer`] | The server restarts after the request. |
//! | [`World::restart_server`] | All watches and requests under way are reset; the state stays. |
//! | [`World::stop_server`] | The same, and nobody can connect until the server is started. |
//!
//! No fault loses an event out of the middle of a watch: no legal server does that.
//!
//! # Repeatable runs
//! Time and randomness follow the seed as long as the code under test takes them from tokio's clock and from
//! [`World::env`], iterates over ordered maps, and uses `biased` in `select!`. The order of tasks is tokio's, and is the same in each
//! run. [`Env::shuffle`](setpoint_env::Env::shuffle) makes it follow a seed: then tasks that a [`Seat`] (a controller's
//! simulated process) spawns sometimes wait for others. Tasks that other crates spawn are not shuffled.

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
