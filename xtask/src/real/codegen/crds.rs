//! The CRDs of others, each in a file of its own.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::Value;

use super::Tools;
use super::sources::SOURCES;
use crate::real::report::Report;

pub(super) struct Crd {
    pub(super) name: String,
    pub(super) kind: String,
    pub(super) versions: Vec<String>,
    pub(super) lines: usize,
    /// As JSON.
    pub(super) file: PathBuf,
}

/// Puts every CRD that can be had into a file: `0.json`, `1.json`, ….
pub(super) fn fetch(report: &mut Report, tools: &Tools<'_>, folder: &Path) -> Result<Vec<Crd>> {
    let mut crds = Vec::new();
    for source in SOURCES {
        let files = match source.fetch(tools.cache) {
            Ok(files) => files,
            Err(error) => {
                report.skip(source.module, &format!("{error:#}"));
                continue;
            }
        };
        for file in files {
            let text = std::fs::read_to_string(&file)?;
            let parts = text.split("\n---");
            for part in parts.filter(|part| part.contains("kind: CustomResourceDefinition")) {
                let document: Value =
                    serde_saphyr::from_str(part).with_context(|| file.display().to_string())?;
                let kind = document["spec"]["names"]["kind"].as_str().unwrap_or_default();
                if document["kind"] != "CustomResourceDefinition" || !source.wants(kind) {
                    continue;
                }
                let file = folder.join(format!("{}.json", crds.len()));
                std::fs::write(&file, serde_json::to_string(&document)?)?;
                let versions = document["spec"]["versions"].as_array().into_iter().flatten();
                crds.push(Crd {
                    name: document["metadata"]["name"].as_str().context("no name")?.to_owned(),
                    kind: kind.to_owned(),
                    versions: versions.filter_map(|one| one["name"].as_str().map(str::to_owned)).collect(),
                    lines: part.lines().count(),
                    file,
                });
            }
        }
    }
    Ok(crds)
}
