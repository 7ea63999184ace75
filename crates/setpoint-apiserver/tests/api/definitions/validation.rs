//! Definitions that are refused, and why.

use serde_json::{Value, json};

use super::{DEFINITIONS, definition, with_foos};
use crate::support::Api;

/// What is said about a definition after a change of it.
async fn problems(change: impl FnOnce(&mut Value)) -> Vec<String> {
    let api = Api::new();
    let mut wanted = definition();
    change(&mut wanted);
    let refused = api.post(DEFINITIONS, &wanted).await;
    assert_eq!(refused.code, 422, "{}", refused.body);
    let causes = refused.body["details"]["causes"].as_array().unwrap();
    let text = |cause: &Value| {
        format!("{}: {}", cause["field"].as_str().unwrap(), cause["message"].as_str().unwrap())
    };
    causes.iter().map(text).collect()
}

#[tokio::test(start_paused = true)]
async fn the_name_is_made_of_plural_and_group() {
    assert_eq!(
        problems(|wanted| wanted["metadata"]["name"] = "foo.example.com".into()).await,
        [r#"metadata.name: Invalid value: "foo.example.com": must be spec.names.plural+"."+spec.group"#]
    );
}

#[tokio::test(start_paused = true)]
async fn exactly_one_version_is_stored() {
    let found = problems(|wanted| wanted["spec"]["versions"][0]["storage"] = false.into()).await;
    assert!(
        found.iter().any(|text| text.starts_with("spec.versions: Invalid value: ")
            && text.ends_with("must have exactly one version marked as storage version")),
        "{found:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn columns_scale_paths_and_selectable_fields_are_checked() {
    let found = problems(|wanted| {
        let version = &mut wanted["spec"]["versions"][0];
        version["additionalPrinterColumns"] = json!([{"name": "X", "type": "text", "jsonPath": "spec.x"}]);
        version["subresources"]["scale"]["specReplicasPath"] = ".status.replicas".into();
        version["selectableFields"] = json!([{"jsonPath": ".spec"}, {"jsonPath": ".spec.none"}]);
    })
    .await;
    assert_eq!(
        found,
        [
            "spec.subresources.scale.specReplicasPath: Invalid value: \".status.replicas\": should be a \
             json path under .spec",
            "spec.additionalPrinterColumns[0].type: Invalid value: \"text\": must be one of \
             boolean,date,integer,number,string",
            "spec.additionalPrinterColumns[0].JSONPath: Invalid value: \"spec.x\": must be a simple json \
             path starting with .",
            "spec.selectableFields[0].jsonPath: Invalid value: \".spec\": must point to a field of type \
             string, boolean or integer. Enum string fields and strings with formats are allowed.",
            "spec.selectableFields[1].jsonPath: Invalid value: \".spec.none\": is an invalid path: does \
             not refer to a valid field",
        ]
    );
}

/// What is the same in all versions is reported once, where kube-apiserver has it inside.
#[tokio::test(start_paused = true)]
async fn problems_are_where_kube_apiserver_has_them() {
    let bad = json!({"openAPIV3Schema": {"type": "object", "properties": {"a": {}}}});
    let found = problems(|wanted| wanted["spec"]["versions"][0]["schema"] = bad.clone()).await;
    let what =
        "openAPIV3Schema.properties[a].type: Required value: must not be empty for specified object fields";
    assert_eq!(found, [format!("spec.validation.{what}")]);
    let found = problems(|wanted| {
        let mut other = wanted["spec"]["versions"][0].clone();
        other["name"] = "v0".into();
        other["storage"] = false.into();
        other["schema"] = bad;
        wanted["spec"]["versions"].as_array_mut().unwrap().push(other);
    })
    .await;
    assert_eq!(found, [format!("spec.versions[1].schema.{what}")]);
}

#[tokio::test(start_paused = true)]
async fn groups_of_kubernetes_need_an_approval() {
    let found = problems(|wanted| {
        wanted["spec"]["group"] = "sample.k8s.io".into();
        wanted["metadata"]["name"] = "foos.sample.k8s.io".into();
    })
    .await;
    assert_eq!(
        found,
        [
            "metadata.annotations[api-approved.kubernetes.io]: Required value: protected groups must have approval \
          annotation \"api-approved.kubernetes.io\", see https://github.com/kubernetes/enhancements/pull/1111"
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn what_decides_about_storage_cannot_change() {
    let api = with_foos().await;
    let path = format!("{DEFINITIONS}/foos.samplecontroller.example.com");
    let refused = api.merge(&path, &json!({"spec": {"scope": "Cluster", "names": {"kind": "Goo"}}})).await;
    assert_eq!(refused.code, 422);
    assert!(
        refused.message().contains("spec.scope: Invalid value: \"Cluster\": field is immutable"),
        "{}",
        refused.message()
    );
    assert!(refused.message().contains("spec.names.kind: Invalid value: \"Goo\": field is immutable"));
    let version = json!([{"name": "v2", "served": true, "storage": true,
        "schema": {"openAPIV3Schema": {"type": "object"}}}]);
    let refused = api.merge(&path, &json!({"spec": {"versions": version}})).await;
    assert!(
        refused.message().contains(
            "status.storedVersions[0]: Invalid value: \"v1alpha1\": missing from spec.versions; v1alpha1 was \
             previously a storage version"
        ),
        "{}",
        refused.message()
    );
}
