//! Where CRDs come from: files, standard input, a cluster.

use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::Args;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::ListParams;
use setpoint_codegen::Definition;

/// The options that say which CRDs.
#[derive(Args)]
#[group(required = true)]
pub(super) struct Input {
    /// A file or folder of CRDs in YAML or JSON, - for standard input; may be repeated
    #[arg(long = "crd", value_name = "FILE", group = "input")]
    files: Vec<PathBuf>,

    /// Read the CRDs of the cluster in the current kubectl context: all of them, or these (foos.example.com)
    #[arg(long, value_name = "NAME", num_args = 0.., group = "input")]
    cluster: Option<Vec<String>>,
}

impl Input {
    pub(super) fn read(&self) -> anyhow::Result<Vec<Definition>> {
        if let Some(names) = &self.cluster {
            return from_cluster(names);
        }
        let mut definitions = Vec::new();
        for file in &self.files {
            definitions.extend(from_path(file)?);
        }
        Ok(definitions)
    }
}

/// The text of a file or of standard input, and what to call it in messages.
pub(crate) fn read_text(path: &Path) -> anyhow::Result<(String, String)> {
    if path == Path::new("-") {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).context("standard input")?;
        return Ok(("standard input".to_owned(), text));
    }
    let name = path.display().to_string();
    let text = std::fs::read_to_string(path).with_context(|| name.clone())?;
    Ok((name, text))
}

pub(crate) fn from_path(path: &Path) -> anyhow::Result<Vec<Definition>> {
    if !path.is_dir() {
        let (name, text) = read_text(path)?;
        return Ok(Definition::read(&name, &text)?);
    }
    let entries = std::fs::read_dir(path).with_context(|| path.display().to_string())?;
    let mut files = entries.map(|entry| entry.map(|entry| entry.path())).collect::<Result<Vec<_>, _>>()?;
    files.retain(|file| {
        file.extension().is_some_and(|ending| ["yaml", "yml", "json"].iter().any(|e| ending == *e))
    });
    // What kustomize reads is beside CRDs, but is none.
    files.retain(|file| file.file_stem().is_none_or(|name| name != "kustomization"));
    files.sort();
    if files.is_empty() {
        bail!("{}: contains no YAML or JSON file; --crd takes CRDs", path.display());
    }
    let mut definitions = Vec::new();
    for file in files {
        definitions.extend(from_path(&file)?);
    }
    Ok(definitions)
}

fn from_cluster(names: &[String]) -> anyhow::Result<Vec<Definition>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let crds = runtime.block_on(async {
        let client = setpoint::ClientConfig::new().connect().await.context("cannot find the cluster")?;
        let api: Api<CustomResourceDefinition> = Api::all(client);
        if names.is_empty() {
            return Ok(api.list(&ListParams::default()).await.context("cannot list the CRDs")?.items);
        }
        let mut crds = Vec::new();
        for name in names {
            crds.push(api.get(name).await.with_context(|| format!("cannot get the CRD {name}"))?);
        }
        anyhow::Ok(crds)
    })?;
    if crds.is_empty() {
        bail!("the cluster has no CRDs; apply them first, or use --crd FILE");
    }
    let read = |crd: &CustomResourceDefinition| {
        let name = crd.metadata.name.clone().unwrap_or_default();
        let value = serde_json::to_value(crd)?;
        Definition::from_value(&value).map_err(|error| error.in_file(&name).into())
    };
    crds.iter().map(read).collect()
}
