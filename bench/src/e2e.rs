//! From the change of a source until its child is seen, by a controller in a process of its own.
//!
//! A source is a ConfigMap that says when it was changed; its child is a Secret that it owns, with the same data
//! and when the reconcile was called. So whoever watches the children knows both times. The controllers of kube-rs
//! (`bench/kube-rs`) and controller-runtime (`bench/peers/go/controller`) do the same. A bare watch
//! (`bare.rs`) does it without any machinery: the least that the server makes everybody wait.

pub(crate) mod bare;
pub(crate) mod child;
pub(crate) mod controller;
pub(crate) mod load;

use std::path::Path;

use kube::Config;
use kube::config::{KubeConfigOptions, Kubeconfig};

/// What a source says before it is changed.
const UNCHANGED: &str = "0";

/// Whatever is said in a kubeconfig.
pub(crate) async fn config(kubeconfig: &Path) -> anyhow::Result<Config> {
    let file = Kubeconfig::read_from(kubeconfig)?;
    Ok(Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?)
}
