//! CRDs of well-known projects, out of their published Go modules. Fetched once into the cache, never committed.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::succeed;

/// Some files of a module.
pub(super) struct Source {
    pub(super) module: &'static str,
    version: &'static str,
    files: &'static [&'static str],
    /// Which of the kinds in them; none for all.
    kinds: &'static [&'static str],
}

const fn source(module: &'static str, version: &'static str, files: &'static [&'static str]) -> Source {
    Source { module, version, files, kinds: &[] }
}

pub(super) const CERTIFICATES: Source = source(
    "github.com/cert-manager/cert-manager",
    "v1.21.2",
    &["deploy/crds/cert-manager.io_certificates.yaml"],
);

pub(super) const SOURCES: &[Source] = &[
    CERTIFICATES,
    source(
        "github.com/cert-manager/cert-manager",
        "v1.21.2",
        &["deploy/crds/cert-manager.io_clusterissuers.yaml"],
    ),
    source(
        "github.com/prometheus-operator/prometheus-operator",
        "v0.85.0",
        &[
            "example/prometheus-operator-crd/monitoring.coreos.com_prometheuses.yaml",
            "example/prometheus-operator-crd/monitoring.coreos.com_scrapeconfigs.yaml",
        ],
    ),
    source(
        "sigs.k8s.io/cluster-api",
        "v1.14.2",
        &[
            "core/config/crd/bases/cluster.x-k8s.io_clusterclasses.yaml",
            "controlplane/kubeadm/config/crd/bases/controlplane.cluster.x-k8s.io_kubeadmcontrolplanes.yaml",
        ],
    ),
    source(
        "sigs.k8s.io/gateway-api",
        // Later ones want a newer Go than this one to be fetched.
        "v1.4.1",
        &[
            "config/crd/standard/gateway.networking.k8s.io_httproutes.yaml",
            "config/crd/standard/gateway.networking.k8s.io_gateways.yaml",
        ],
    ),
    source("github.com/argoproj/argo-cd/v3", "v3.5.6", &["manifests/crds/applicationset-crd.yaml"]),
    source("github.com/argoproj/argo-rollouts", "v1.10.1", &["manifests/crds/rollout-crd.yaml"]),
    source(
        "github.com/external-secrets/external-secrets",
        "v1.3.2",
        &["config/crds/bases/external-secrets.io_secretstores.yaml"],
    ),
    source("github.com/kedacore/keda/v2", "v2.21.0", &["config/crd/bases/keda.sh_scaledjobs.yaml"]),
    source("github.com/vmware-tanzu/velero", "v1.18.3", &["config/crd/v1/bases/velero.io_schedules.yaml"]),
    Source {
        module: "istio.io/istio",
        version: "v0.0.0-20260827124520-eed52ebb66ad",
        files: &["manifests/charts/base/files/crd-all.gen.yaml"],
        kinds: &["VirtualService", "DestinationRule", "AuthorizationPolicy"],
    },
];

impl Source {
    pub(super) fn wants(&self, kind: &str) -> bool {
        self.kinds.is_empty() || self.kinds.contains(&kind)
    }

    /// The files, fetched if they are not in the cache. An error is a reason to skip what needs them.
    pub(super) fn fetch(&self, cache: &Path) -> Result<Vec<PathBuf>> {
        let folder = cache.join("crds").join(format!("{}@{}", self.module.replace('/', "+"), self.version));
        let path = |file: &str| folder.join(file.replace('/', "+"));
        if self.files.iter().any(|file| !path(file).exists()) {
            let module = self.download()?;
            std::fs::create_dir_all(&folder)?;
            for file in self.files {
                std::fs::copy(module.join(file), path(file))
                    .with_context(|| format!("{} {} has no {file}", self.module, self.version))?;
                make_writable(&path(file))?;
            }
        }
        Ok(self.files.iter().map(|file| path(file)).collect())
    }

    fn download(&self) -> Result<PathBuf> {
        let mut go = Command::new("go");
        go.args(["mod", "download", "-json", &format!("{}@{}", self.module, self.version)]);
        go.current_dir(std::env::temp_dir());
        let said = succeed(go, Duration::from_secs(300)).context("the module cannot be fetched")?;
        let said: Value = serde_json::from_str(&said)?;
        let folder = said["Dir"].as_str().map(PathBuf::from).context("go says no folder")?;
        ensure!(folder.is_dir(), "{} is not there", folder.display());
        Ok(folder)
    }
}

/// What comes out of Go's module cache is read-only, and could not be replaced.
fn make_writable(path: &Path) -> Result<()> {
    let text = std::fs::read(path)?;
    std::fs::remove_file(path)?;
    Ok(std::fs::write(path, text)?)
}
