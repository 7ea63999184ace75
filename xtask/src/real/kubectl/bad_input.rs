//! Mistakes, and the words that explain them.

use anyhow::{Result, ensure};

use super::{Kubectl, Scenario};

pub(super) const SCENARIOS: &[Scenario] = &[
    Scenario { name: "unknown fields are named", run: unknown_fields },
    Scenario { name: "wrong types are named", run: wrong_types },
    Scenario { name: "a key twice is refused", run: duplicate_keys },
    Scenario { name: "already exists", run: already_exists },
    Scenario { name: "not found", run: not_found },
    Scenario { name: "a missing namespace is named", run: missing_namespace },
    Scenario { name: "invalid names are explained", run: invalid_names },
    Scenario { name: "bad selectors are explained", run: bad_selectors },
    Scenario { name: "bad patches are explained", run: bad_patches },
    Scenario { name: "unknown kinds, and a namespace that differs", run: unknown_kinds },
    Scenario { name: "bad bodies are explained", run: bad_bodies },
];

const DOES_NOT_FIT: &str = "Error from server (BadRequest): error when creating \"STDIN\": ";

fn unknown_fields(k: &Kubectl) -> Result<()> {
    for (object, expected) in [
        (
            r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x","nmae":"y"},"daat":{"a":"b"}}"#,
            r#"ConfigMap in version "v1" cannot be handled as a ConfigMap: strict decoding error: unknown field "daat", unknown field "metadata.nmae""#,
        ),
        (
            r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"x"},"spec":{"containers":[{"name":"c","image":"i","imagee":"x"}],"hostnetwork":true}}"#,
            r#"Pod in version "v1" cannot be handled as a Pod: strict decoding error: unknown field "spec.containers[0].imagee", unknown field "spec.hostnetwork""#,
        ),
    ] {
        k.fails_given("create -f -", object, &format!("{DOES_NOT_FIT}{expected}"))?;
    }
    Ok(())
}

fn wrong_types(k: &Kubectl) -> Result<()> {
    for (object, expected) in [
        (
            r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x"},"data":{"a":1}}"#,
            r#"ConfigMap in version "v1" cannot be handled as a ConfigMap: json: cannot unmarshal number into Go struct field ConfigMap.data of type string"#,
        ),
        (
            r#"{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"x"},"spec":{"replicas":"three"}}"#,
            r#"Deployment in version "v1" cannot be handled as a Deployment: json: cannot unmarshal string into Go struct field DeploymentSpec.spec.replicas of type int32"#,
        ),
        (
            r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"x"},"spec":{"containers":[{"name":"c","ports":[{"containerPort":"80"}]}]}}"#,
            r#"Pod in version "v1" cannot be handled as a Pod: json: cannot unmarshal string into Go struct field ContainerPort.spec.containers.ports.containerPort of type int32"#,
        ),
    ] {
        for line in ["create -f -", "create --validate=false -f -"] {
            k.fails_given(line, object, &format!("{DOES_NOT_FIT}{expected}"))?;
        }
    }
    Ok(())
}

/// kubectl removes duplicates itself, so the body is sent as it is.
fn duplicate_keys(k: &Kubectl) -> Result<()> {
    let object = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x"},"data":{"a":"b","a":"c"}}"#;
    k.fails_given(
        "create --raw '/api/v1/namespaces/{ns}/configmaps?fieldValidation=Strict' -f -",
        object,
        r#"Error from server (BadRequest): ConfigMap in version "v1" cannot be handled as a ConfigMap: strict decoding error: duplicate field "data.a""#,
    )
}

fn already_exists(k: &Kubectl) -> Result<()> {
    k.ok("create cm c")?;
    k.fails("create cm c", "error: failed to create configmap: configmaps \"c\" already exists")?;
    k.fails(
        "create namespace {ns}",
        "Error from server (AlreadyExists): namespaces \"{ns}\" already exists",
    )?;
    let object = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c"}}"#;
    k.fails_given(
        "create --validate=false -f -",
        object,
        "Error from server (AlreadyExists): error when creating \"STDIN\": configmaps \"c\" already exists",
    )?;
    k.ok("create deployment web --image=nginx")?;
    k.fails(
        "create deployment web --image=nginx",
        "error: failed to create deployment: deployments.apps \"web\" already exists",
    )
}

fn not_found(k: &Kubectl) -> Result<()> {
    k.fails("get cm none", "Error from server (NotFound): configmaps \"none\" not found")?;
    k.fails("get deploy none", "Error from server (NotFound): deployments.apps \"none\" not found")?;
    k.fails("get ns none", "Error from server (NotFound): namespaces \"none\" not found")?;
    k.fails(
        "patch cm none --type=merge -p '{}'",
        "Error from server (NotFound): configmaps \"none\" not found",
    )?;
    k.fails("label cm none a=b", "Error from server (NotFound): configmaps \"none\" not found")?;
    k.fails("get nothing", "error: the server doesn't have a resource type \"nothing\"")
}

fn missing_namespace(k: &Kubectl) -> Result<()> {
    k.fails("create cm c -n none", "error: failed to create configmap: namespaces \"none\" not found")?;
    k.fails("run p --image=nginx -n none", "Error from server (NotFound): namespaces \"none\" not found")?;
    // Reading is not writing: nothing is there.
    k.says("get cm -n none -o name", "")?;
    k.fails(
        "get --raw /api/v1/namespaces/none/configmaps/c",
        "Error from server (NotFound): configmaps \"c\" not found",
    )
}

const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or \
     '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
     '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must \
     start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is \
     '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";

fn invalid_names(k: &Kubectl) -> Result<()> {
    k.fails(
        "create cm BAD_name",
        &format!(
            "error: failed to create configmap: ConfigMap \"BAD_name\" is invalid: metadata.name: Invalid value: \
             \"BAD_name\": {SUBDOMAIN}"
        ),
    )?;
    k.fails(
        "create namespace Bad_NS",
        &format!("The Namespace \"Bad_NS\" is invalid: metadata.name: Invalid value: \"Bad_NS\": {LABEL}"),
    )?;
    let long = "a".repeat(254);
    k.fails(
        &format!("create cm {long}"),
        &format!(
            "error: failed to create configmap: ConfigMap \"{long}\" is invalid: metadata.name: Invalid value: \
             \"{long}\": must be no more than 253 characters"
        ),
    )?;
    k.fails_given(
        "create --validate=false -f -",
        r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{}}"#,
        "The ConfigMap \"\" is invalid: metadata.name: Required value: name or generateName is required",
    )
}

fn bad_selectors(k: &Kubectl) -> Result<()> {
    k.fails(
        "get cm --field-selector nope=one",
        "Error from server (BadRequest): Unable to find \"/v1, Resource=configmaps\" that match label selector \"\", \
         field selector \"nope=one\": \"nope\" is not a known field selector: only \"metadata.name\", \
         \"metadata.namespace\"",
    )?;
    k.fails(
        "get cm -l 'a b'",
        "Error from server (BadRequest): Unable to find \"/v1, Resource=configmaps\" that match label selector \"a \
         b\", field selector \"\": unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt",
    )?;
    k.fails(
        "get --raw '/api/v1/namespaces/{ns}/pods?limit=many'",
        "Error from server (BadRequest): strconv.ParseInt: parsing \"many\": invalid syntax",
    )?;
    k.fails(
        "get --raw '/api/v1/namespaces/{ns}/pods?resourceVersionMatch=Exact'",
        "The ListOptions \"\" is invalid: resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden unless \
         resourceVersion is provided",
    )
}

fn bad_patches(k: &Kubectl) -> Result<()> {
    k.ok("create cm c --from-literal=k=v")?;
    k.fails(
        r#"patch cm c --type=merge -p '{"data":'"#,
        "Error from server (BadRequest): invalid JSON patch",
    )?;
    let finished = k.run(r#"patch cm c --type=merge -p '{"data":{"k":1}}'"#, None)?;
    // The object in the middle holds uids and times.
    let (start, end) = (
        "The request is invalid: patch: Invalid value: \"{",
        "}\": json: cannot unmarshal number into Go struct field ConfigMap.data of type string",
    );
    let said = finished.stderr.trim_end();
    ensure!(!finished.status.success() && said.starts_with(start) && said.ends_with(end), "said: {said}");
    k.says("get cm c -o jsonpath='{.data.k}'", "v")
}

fn unknown_kinds(k: &Kubectl) -> Result<()> {
    k.fails_given(
        "create --validate=false -f -",
        r#"{"apiVersion":"v1","kind":"Nope","metadata":{"name":"q"}}"#,
        "error: resource mapping not found for name: \"q\" namespace: \"\" from \"STDIN\": no matches for kind \
         \"Nope\" in version \"v1\"\nensure CRDs are installed first",
    )?;
    let elsewhere = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"q","namespace":"other"}}"#;
    k.fails_given(
        "create --raw /api/v1/namespaces/{ns}/configmaps -f -",
        elsewhere,
        "Error from server (BadRequest): the namespace of the provided object does not match the namespace sent on \
         the request",
    )
}

/// Go's own words in the tail of these are not ours to repeat.
fn bad_bodies(k: &Kubectl) -> Result<()> {
    let path = "create --raw /api/v1/namespaces/{ns}/configmaps -f -";
    let unrecognized = "Error from server (BadRequest): the object provided is unrecognized (must be of type ConfigMap): \
                        couldn't get version/kind; json parse error: ";
    for (body, expected) in [
        (r#"{"apiVersion":"#, unrecognized),
        ("[]", unrecognized),
        ("", unrecognized),
        (
            r#"{"apiVersion":"v1","kind":"Secret","metadata":{"name":"s"}}"#,
            r#"Error from server (BadRequest): Secret in version "v1" cannot be handled as a ConfigMap: "#,
        ),
        (
            r#"{"apiVersion":"apps/v1","kind":"ConfigMap","metadata":{"name":"s"}}"#,
            r#"Error from server (BadRequest): ConfigMap in version "v1" cannot be handled as a ConfigMap: no kind "ConfigMap" is registered for version "apps/v1""#,
        ),
        (
            r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"s"},"data":[]}"#,
            r#"Error from server (BadRequest): ConfigMap in version "v1" cannot be handled as a ConfigMap: json: cannot unmarshal array into Go struct field ConfigMap.data of type map[string]string"#,
        ),
    ] {
        k.complains_given(path, body, expected)?;
    }
    // The path says what a body without kind is.
    let anonymous = r#"{"metadata":{"name":"anonymous"}}"#;
    k.succeed(path, Some(anonymous))?;
    k.says("get cm anonymous -o name", "configmap/anonymous")?;
    let big = format!(r#"{{"metadata":{{"name":"big"}},"data":{{"a":"{}"}}}}"#, "x".repeat(3 << 20));
    k.fails_given(
        path,
        &big,
        "Error from server (RequestEntityTooLarge): Request entity too large: limit is 3145728",
    )
}
