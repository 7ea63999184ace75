//! Expressions: as a policy's, on any object, and as the rule of a schema. They are refused or evaluated, in time, and always
//! with the same result; brackets around them change nothing.
//!
//! The input is the expression, then a line `---`, then the JSON that it finds in `object.spec.any`.

#![no_main]

use libfuzzer_sys::fuzz_target;
use serde_json::{Value, json};
use setpoint_fuzz::{Api, JSON, Lab, start};

fuzz_target!(|data: &[u8]| start(data, case));

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const POLICIES: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies";
const BINDINGS: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings";
const FOOS: &str = "/apis/example.com/v1/namespaces/default/foos";
const OBJECTS: &str = include_str!("../src/objects.json");

fn case(lab: &Lab, input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    let (expression, data) = text.split_once("\n---\n").unwrap_or((text, "{}"));
    let data: Value = serde_json::from_str(data).unwrap_or_default();
    lab.block_on(async {
        let api = lab.shared();
        if api.get(&format!("{POLICIES}/p")).await.code == 404 {
            prepare(&api).await;
        }
        let alone = outcome(&api, expression, &data).await;
        as_rule(&api, expression).await;
        let Some(alone) = alone else { return };
        assert_eq!(Some(alone), outcome(&api, expression, &data).await, "it is the same the second time");
        // Brackets count, and a comment at the end would take the closing one.
        if let Some(within) = outcome(&api, &format!("({expression}\n)"), &data).await {
            assert_eq!(alone, within, "it is the same within brackets");
        }
    });
}

/// The code of the answer to an object under a policy with this expression, if there can be such a policy.
async fn outcome(api: &Api, expression: &str, data: &Value) -> Option<u16> {
    let policy = policy(expression).to_string();
    let answer = api.call("PUT", &format!("{POLICIES}/p"), JSON, policy).await;
    if !answer.is_ok() {
        assert_eq!(answer.json()["kind"], "Status");
        return None;
    }
    let foo = json!({
        "apiVersion": "example.com/v1", "kind": "Foo",
        "metadata": {"name": "b", "labels": {"x": "y"}},
        "spec": {"replicas": 2, "set": ["a", "b"], "map": [{"name": "a"}], "either": 5, "any": data},
    });
    let answer = api.call("POST", &format!("{FOOS}?dryRun=All"), JSON, foo.to_string()).await;
    assert!(matches!(answer.code, 201 | 400 | 403 | 422), "{}", answer.json());
    Some(answer.code)
}

/// The expression as the rule of a field whose type is known.
async fn as_rule(api: &Api, expression: &str) {
    let mut definition = definition();
    definition["metadata"]["name"] = json!("bars.example.com");
    definition["spec"]["names"] =
        json!({"plural": "bars", "singular": "bar", "kind": "Bar", "listKind": "BarList"});
    let spec = &mut definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
    spec["x-kubernetes-validations"] = json!([{"rule": expression, "messageExpression": expression}]);
    let answer = api.call("POST", &format!("{DEFINITIONS}?dryRun=All"), JSON, definition.to_string()).await;
    assert!(matches!(answer.code, 201 | 400 | 422), "{}", answer.json());
}

async fn prepare(api: &Api) {
    api.call("POST", DEFINITIONS, JSON, definition().to_string()).await.ok();
    api.call("POST", POLICIES, JSON, policy("true").to_string()).await.ok();
    let binding = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": "b"}, "spec": {"policyName": "p", "validationActions": ["Deny"]},
    });
    api.call("POST", BINDINGS, JSON, binding.to_string()).await.ok();
}

fn definition() -> Value {
    let objects: Value = serde_json::from_str(OBJECTS).expect("the objects are JSON");
    objects[0].clone()
}

fn policy(expression: &str) -> Value {
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": "p"},
        "spec": {
            "matchConstraints": {"resourceRules": [{
                "apiGroups": ["example.com"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["foos"],
            }]},
            "variables": [{"name": "any", "expression": "object.spec.any"}],
            "validations": [{"expression": expression}],
        },
    })
}
