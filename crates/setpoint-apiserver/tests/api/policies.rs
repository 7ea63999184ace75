//! ValidatingAdmissionPolicies, their bindings and parameters.

use serde_json::{Value, json};

use crate::support::{self, Api, MAPS};

const POLICIES: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies";
const BINDINGS: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings";

fn policy(name: &str, spec: Value) -> Value {
    let mut policy = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": name},
        "spec": {"matchConstraints": {"resourceRules": [{
            "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"], "resources": ["configmaps"],
        }]}},
    });
    for (field, value) in spec.as_object().unwrap() {
        policy["spec"][field] = value.clone();
    }
    policy
}

fn binding(name: &str, policy: &str, spec: Value) -> Value {
    let mut binding = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": name}, "spec": {"policyName": policy, "validationActions": ["Deny"]},
    });
    for (field, value) in spec.as_object().unwrap() {
        binding["spec"][field] = value.clone();
    }
    binding
}

fn map(name: &str) -> Value {
    support::map(name, "x")
}

fn labelled(name: &str, label: &str) -> Value {
    let mut map = map(name);
    map["metadata"]["labels"] = json!({ "tier": label });
    map
}

#[tokio::test]
async fn a_policy_is_in_force_only_while_it_is_bound() {
    let api = Api::new();
    let validations = json!({"validations": [{"expression": "has(object.metadata.labels) && 'tier' in object.metadata.labels"}]});
    api.post(POLICIES, &policy("labels", validations)).await.ok();
    api.post(MAPS, &map("before")).await.ok();
    api.post(BINDINGS, &binding("everywhere", "labels", json!({}))).await.ok();
    let refused = api.post(MAPS, &map("a")).await;
    let why = "ValidatingAdmissionPolicy 'labels' with binding 'everywhere' denied request: failed expression: \
               has(object.metadata.labels) && 'tier' in object.metadata.labels";
    assert_eq!(refused.body["details"]["causes"], json!([{ "message": why }]));
    assert_eq!(refused.reason(), "Invalid");
    refused.refused(422, &format!("configmaps \"a\" is forbidden: {why}"));
    api.post(MAPS, &labelled("a", "x")).await.ok();
    api.delete(&format!("{BINDINGS}/everywhere"), &json!({})).await.ok();
    api.post(MAPS, &map("b")).await.ok();
}

#[tokio::test]
async fn messages_reasons_and_variables_are_the_policys_own() {
    let api = Api::new();
    let spec = json!({
        "variables": [
            {"name": "tier", "expression": "object.metadata.?labels.?tier.orValue('none')"},
            {"name": "shout", "expression": "variables.tier.upperAscii()"},
            {"name": "unused", "expression": "1 / 0 == 1"},
        ],
        "validations": [{
            "expression": "variables.shout != 'BAD'", "message": "plain", "reason": "Forbidden",
            "messageExpression": "'tier ' + variables.tier + ' of ' + request.userInfo.username",
        }],
    });
    api.post(POLICIES, &policy("tiers", spec)).await.ok();
    api.post(BINDINGS, &binding("b", "tiers", json!({}))).await.ok();
    api.post(MAPS, &map("fine")).await.ok();
    let refused = api.post(MAPS, &labelled("a", "bad")).await;
    assert_eq!(refused.reason(), "Forbidden");
    let user = refused.message().rsplit(" of ").next().unwrap().to_owned();
    refused.refused(
        403,
        &format!(
            "configmaps \"a\" is forbidden: ValidatingAdmissionPolicy 'tiers' with binding 'b' denied request: tier bad of {user}"
        ),
    );
}

#[tokio::test]
async fn updates_and_deletes_see_the_old_object() {
    let api = Api::new();
    let mut spec = policy(
        "keep",
        json!({"validations": [{
            "expression": "request.operation == 'DELETE' ? object == null && oldObject.metadata.name != 'kept' : \
                           oldObject == null || oldObject.data == object.data",
            "message": "is kept as it is",
        }]}),
    );
    spec["spec"]["matchConstraints"]["resourceRules"][0]["operations"] = json!(["*"]);
    api.post(POLICIES, &spec).await.ok();
    api.post(BINDINGS, &binding("b", "keep", json!({}))).await.ok();
    let mut kept = map("kept");
    kept["data"] = json!({"k": "v"});
    let mut stored = api.post(MAPS, &kept).await.ok();
    stored["data"]["k"] = "w".into();
    let refused = api.put(&format!("{MAPS}/kept"), &stored).await;
    assert!(refused.message().ends_with("denied request: is kept as it is"), "{}", refused.body);
    assert_eq!(api.delete(&format!("{MAPS}/kept"), &json!({})).await.code, 422);
    api.post(MAPS, &map("other")).await.ok();
    api.delete(&format!("{MAPS}/other"), &json!({})).await.ok();
}

#[tokio::test]
async fn warnings_do_not_refuse() {
    let api = Api::new();
    api.post(POLICIES, &policy("p", json!({"validations": [{"expression": "false", "message": "no"}]})))
        .await
        .ok();
    api.post(BINDINGS, &binding("b", "p", json!({"validationActions": ["Warn", "Audit"]}))).await.ok();
    let answer = api.post(MAPS, &map("a")).await;
    assert_eq!(
        answer.headers["warning"],
        r#"299 - "Validation failed for ValidatingAdmissionPolicy 'p' with binding 'b': no""#
    );
    answer.ok();
}

#[tokio::test]
async fn errors_refuse_unless_the_policy_says_otherwise() {
    let api = Api::new();
    let broken = json!({"validations": [{"expression": "object.data.gone == 'x'"}]});
    api.post(POLICIES, &policy("p", broken.clone())).await.ok();
    api.post(BINDINGS, &binding("b", "p", json!({}))).await.ok();
    let mut object = map("a");
    object["data"] = json!({"k": "v"});
    let refused = api.post(MAPS, &object).await;
    assert_eq!(
        refused.message(),
        "configmaps \"a\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: expression \
         'object.data.gone == 'x'' resulted in error: no such key: gone"
    );
    let mut ignoring = api.get(&format!("{POLICIES}/p")).await.ok();
    ignoring["spec"]["failurePolicy"] = "Ignore".into();
    api.put(&format!("{POLICIES}/p"), &ignoring).await.ok();
    api.post(MAPS, &object).await.ok();
}

#[tokio::test]
async fn conditions_and_selectors_narrow_a_policy() {
    let api = Api::new();
    let mut spec = policy(
        "p",
        json!({
            "validations": [{"expression": "false", "message": "no"}],
            "matchConditions": [{"name": "named", "expression": "object.metadata.name.startsWith('x')"}],
        }),
    );
    spec["spec"]["matchConstraints"]["objectSelector"] = json!({"matchLabels": {"tier": "a"}});
    api.post(POLICIES, &spec).await.ok();
    let excluding = json!({"matchResources": {"excludeResourceRules": [{
        "apiGroups": [""], "apiVersions": ["*"], "operations": ["*"], "resources": ["*"], "resourceNames": ["x-spared"],
    }]}});
    api.post(BINDINGS, &binding("b", "p", excluding)).await.ok();
    api.post(MAPS, &labelled("y", "a")).await.ok();
    api.post(MAPS, &labelled("x-other", "b")).await.ok();
    api.post(MAPS, &labelled("x-spared", "a")).await.ok();
    assert_eq!(api.post(MAPS, &labelled("x", "a")).await.code, 422);
}

#[tokio::test]
async fn parameters_come_from_the_objects_that_a_binding_names() {
    let api = Api::new();
    let mut spec = policy(
        "limits",
        json!({
            "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
            "validations": [{"expression": "params == null || size(object.metadata.name) <= int(params.data.most)",
                "messageExpression": "'at most ' + params.data.most"}],
        }),
    );
    spec["spec"]["matchConstraints"]["resourceRules"][0]["resources"] = json!(["secrets"]);
    api.post(POLICIES, &spec).await.ok();
    let params = |action: &str| json!({"paramRef": {"name": "limit", "parameterNotFoundAction": action}});
    api.post(BINDINGS, &binding("b", "limits", params("Deny"))).await.ok();
    let secret = |name: &str| json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}});
    const SECRETS: &str = "/api/v1/namespaces/default/secrets";
    let missing = api.post(SECRETS, &secret("a")).await;
    assert!(
        missing.message().ends_with(
            "denied request: failed to configure binding: no params found for policy binding with `Deny` \
             parameterNotFoundAction"
        ),
        "{}",
        missing.body
    );
    let mut limit = map("limit");
    limit["data"] = json!({"most": "3"});
    api.post(MAPS, &limit).await.ok();
    api.post(SECRETS, &secret("abc")).await.ok();
    let refused = api.post(SECRETS, &secret("abcd")).await;
    assert!(refused.message().ends_with("denied request: at most 3"), "{}", refused.body);
}

#[tokio::test]
async fn policies_that_cannot_work_are_refused() {
    let api = Api::new();
    let cases = [
        (
            json!({"validations": []}),
            "spec.validations: Required value: validations or auditAnnotations must contain at least one item",
        ),
        (
            json!({"validations": [{"expression": "object.x ="}]}),
            "spec.validations[0].expression: Invalid value: \"object.x =\": compilation failed: ERROR: <input>:1:",
        ),
        (
            json!({"validations": [{"expression": "objekt.x == 1"}]}),
            "spec.validations[0].expression: Invalid value: \"objekt.x == 1\": compilation failed: ERROR: <input>:1:1: \
             undeclared reference to 'objekt' (in container '')\n | objekt.x == 1\n | ^",
        ),
        (json!({"validations": [{"expression": "params.x == 1"}]}), "undeclared reference to 'params'"),
        (
            json!({"validations": [{"expression": "true", "reason": "Odd"}]}),
            "spec.validations[0].reason: Unsupported value: \"Odd\": supported values: \"Forbidden\", \"Invalid\", \
             \"RequestEntityTooLarge\"",
        ),
        (
            json!({"validations": [{"expression": "true"}], "matchConditions": [{"name": "", "expression": "true"}]}),
            "spec.matchConditions[0].name: Required value",
        ),
        (
            json!({"validations": [{"expression": "true"}], "variables": [{"name": "1x", "expression": "1"}]}),
            "spec.variables[0].name: Invalid value: \"1x\": must be a valid CEL identifier",
        ),
    ];
    for (spec, expected) in cases {
        let answer = api.post(POLICIES, &policy("p", spec)).await;
        assert_eq!(answer.code, 422, "{}", answer.body);
        assert!(answer.message().contains(expected), "{expected}\n{}", answer.message());
    }
    let both = api.post(BINDINGS, &binding("b", "p", json!({"validationActions": ["Deny", "Warn"]}))).await;
    assert!(both.message().contains("must not contain both Deny and Warn"), "{}", both.body);
}

#[tokio::test]
async fn whoever_makes_a_mutating_policy_is_told_that_it_does_nothing() {
    let api = Api::new();
    let policies = "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicies";
    let policy = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingAdmissionPolicy", "metadata": {"name": "m"},
        "spec": {
            "matchConstraints": {"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"],
                "resources": ["configmaps"]}]},
            "reinvocationPolicy": "Never",
            "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": "[]"}}],
        },
    });
    let answer = api.post(policies, &policy).await;
    let warning = "299 - \"mutating admission policies are stored, but this server does not act on them\"";
    assert_eq!((answer.code, &answer.headers["warning"]), (201, &http::HeaderValue::from_static(warning)));
}
