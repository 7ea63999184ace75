//! A controller for something outside the cluster: each [`Network`] becomes a network and a subnet in
//! OpenStack Neutron.
//!
//! | file | what it is |
//! | --- | --- |
//! | `network.rs` | the custom resource |
//! | `cidr.rs` | address ranges, compared as Neutron stores them |
//! | `marker.rs` | how we know our own networks again |
//! | `neutron.rs` | a small typed client of Neutron's API |
//! | `diff.rs` | desired against actual |
//! | `apply.rs` | what is done about the difference |
//! | `reconcile.rs` | the controller: finalizer, conditions, events |
//! | `sweep.rs` | finds networks whose Network is gone |

mod apply;
mod cidr;
mod diff;
mod marker;
mod network;
pub mod neutron;
mod reconcile;
mod sweep;

pub use cidr::{Cidr, InvalidCidr};
pub use network::{Network, NetworkSpec, NetworkStatus, crd};
pub use reconcile::{FINALIZER, READY, Settings, controller};
