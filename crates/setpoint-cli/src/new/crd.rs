//! The CRD that a project is made for.

use std::path::Path;

use anyhow::{Context, bail};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, PostParams};
use kube::{Api, Client};
use setpoint_apiserver::ApiServer;
use setpoint_codegen::{Definition, Project};

use crate::r#gen::read_text;
use crate::yaml;

/// What was found in a file.
pub(super) struct Found {
    pub(super) definition: Definition,
    /// That CRD alone, in YAML.
    pub(super) text: String,
    /// Whether a server takes the sample for an object.
    pub(super) has_sample: bool,
}

/// The CRD of a kind, or the only one that is there.
fn read_one(file: &Path, kind: Option<&str>) -> anyhow::Result<(Definition, String)> {
    let (name, text) = read_text(file)?;
    let mut found = Definition::read_texts(&name, &text)?;
    let kinds: Vec<String> = found.iter().map(|(one, _)| one.names.kind.clone()).collect();
    if let Some(kind) = kind {
        found.retain(|(one, _)| one.names.kind == kind);
    }
    match (found.pop(), found.is_empty()) {
        (Some(only), true) => Ok(only),
        (None, _) => {
            bail!(
                "{name}: has no kind {:?}; choose one with --kind: {}",
                kind.unwrap_or_default(),
                kinds.join(", ")
            )
        }
        (Some(_), false) => bail!("{name}: has several kinds; choose one with --kind: {}", kinds.join(", ")),
    }
}

/// Reads the CRD of a kind, or the only one that is there, and tries whether it is one.
pub(super) fn read(file: &Path, kind: Option<&str>, version: Option<&str>) -> anyhow::Result<Found> {
    let (definition, text) = read_one(file, kind)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let has_sample = runtime.block_on(accepts(&definition, &text, version))?;
    Ok(Found { definition, text, has_sample })
}

/// Whether a server of ours takes the sample of the kind for an object.
async fn accepts(definition: &Definition, text: &str, version: Option<&str>) -> anyhow::Result<bool> {
    let sample = Project::sample(definition, version)?;
    let crd: CustomResourceDefinition = yaml::read(text)?;
    let client: Client = ApiServer::builder().build().client();
    let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
    crds.create(&PostParams::default(), &crd).await.context("the CRD is not valid")?;
    let object: DynamicObject = serde_json::from_value(sample)?;
    let types = object.types.clone().unwrap_or_default();
    let (group, version) = types.api_version.split_once('/').unwrap_or_default();
    let kind = GroupVersionKind::gvk(group, version, &types.kind);
    let resource = ApiResource::from_gvk_with_plural(&kind, &definition.names.plural);
    let objects: Api<DynamicObject> = match definition.is_namespaced {
        true => Api::default_namespaced_with(client, &resource),
        false => Api::all_with(client, &resource),
    };
    match objects.create(&PostParams::default(), &object).await {
        Ok(_) => Ok(true),
        Err(kube::Error::Api(_)) => Ok(false),
        Err(error) => Err(error.into()),
    }
}
