//! The harness, through `kube::Client` as its users see it.

#![allow(missing_docs)] // rustdoc does not read tests

mod determinism;
mod endurance;
mod explore;
mod histories;
mod requests;
mod rest;
mod scripted;
mod seeded;
mod told;
mod watches;
mod world;
