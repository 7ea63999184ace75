//! Schemas of definitions: what is refused, and what their rules decide.

use serde_json::json;

use super::{DEFINITIONS, FOOS, definition, foo};
use crate::support::Api;

#[tokio::test]
async fn schemas_that_cannot_work_are_refused() {
    let api = Api::new();
    let mut definition = definition();
    let schema = "/spec/versions/0/schema/openAPIV3Schema/properties/spec";
    *definition.pointer_mut(schema).unwrap() = json!({
        "type": "object", "properties": {"a": {}},
    });
    api.post(DEFINITIONS, &definition).await.refused(
        422,
        "CustomResourceDefinition.apiextensions.k8s.io \"foos.samplecontroller.example.com\" is invalid: \
         spec.validation.openAPIV3Schema.properties[spec].properties[a].type: Required value: must not be empty \
         for specified object fields",
    );
}

#[tokio::test]
async fn rules_of_the_schema_decide_about_writes() {
    let api = Api::new();
    let mut definition = definition();
    definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["x-kubernetes-validations"] = json!([
        {"rule": "self.replicas < 5 || self.deploymentName == 'big'", "message": "too many replicas"},
        {"rule": "self.replicas >= oldSelf.replicas", "messageExpression": "'not below ' + string(oldSelf.replicas)"},
    ]);
    api.post(DEFINITIONS, &definition).await.ok();
    let mut object = foo("a");
    object["spec"]["replicas"] = 6.into();
    api.post(FOOS, &object).await.refused(
        422,
        "Foo.samplecontroller.example.com \"a\" is invalid: spec: Invalid value: too many replicas",
    );
    let mut stored = api.post(FOOS, &foo("a")).await.ok();
    stored["spec"]["replicas"] = 1.into();
    api.put(&format!("{FOOS}/a"), &stored)
        .await
        .refused(422, "Foo.samplecontroller.example.com \"a\" is invalid: spec: Invalid value: not below 2");
    stored["spec"]["replicas"] = 3.into();
    api.put(&format!("{FOOS}/a"), &stored).await.ok();
}
