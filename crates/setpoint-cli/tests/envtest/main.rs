//! `setpoint envtest`, and this program under the names `kube-apiserver` and `etcd`: as Go's envtest starts them.

mod access;
mod assets;
mod environment;
mod flags;
mod life;
mod settings;
mod store;
