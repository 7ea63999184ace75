//! Servers that this one calls: webhooks and extension API servers. Where they are ([`service`]), whom to trust there
//! ([`trust`]), and connections that are kept and used again ([`client`]).

mod client;
pub(crate) mod service;
mod trust;

pub(crate) use client::{Clients, Peer, Protocol, RequestBody, Where, chain};
pub(crate) use service::{Locations, Unlocated};
pub(crate) use trust::Trusted;
