//! Leader election: several replicas in one process, on virtual time, against the in-process API server.

mod faults;
mod fence;
mod replica;
mod rounds;
mod terms;
