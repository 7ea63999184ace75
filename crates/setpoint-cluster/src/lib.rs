//! The built-in controllers of Kubernetes and simulated nodes, so that objects come alive with no kubelet.
//!
//! Every controller here is written with `setpoint`'s public API, one file a controller.
