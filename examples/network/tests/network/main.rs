//! The Network controller and its Neutron client against a scripted Neutron, on virtual time.

mod bad_input;
mod client;
mod drift;
mod explore;
mod lifecycle;
mod scripted;
mod support;
