//! A clear error, or correct code.

use setpoint_codegen::{Definition, Types};

/// A CRD with this schema at `spec`.
fn crd(schema: &str) -> String {
    format!(
        "apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {{name: foos.example.com}}
spec:
  group: example.com
  names: {{kind: Foo, plural: foos}}
  scope: Cluster
  versions:
  - name: v1
    served: true
    storage: true
    schema: {{openAPIV3Schema: {{type: object, properties: {{spec: {schema}}}}}}}
"
    )
}

fn error(yaml: &str) -> String {
    let render = |definitions: Vec<Definition>| Types::new().render(&definitions);
    let error = Definition::read("foo.yaml", yaml).and_then(render).err();
    error.map(|error| error.to_string()).unwrap_or_default()
}

#[test]
fn an_error_says_the_file_the_path_and_what_is_wrong() {
    let at = "foo.yaml: spec.versions[0].schema.openAPIV3Schema.properties[spec]";
    let cases = [
        ("{}", ".type: is missing: the schema is not structural"),
        (
            "{type: string, $ref: '#/x'}",
            ".$ref: a CRD cannot refer to other schemas, nor to itself: write it out",
        ),
        ("{type: array}", ".items: is missing: the schema is not structural"),
        ("{type: text}", ".type: \"text\" is not a type"),
        ("{type: object, properties: {a: 1}}", ".properties[a]: must be a schema, that is an object"),
        (
            "{type: object, properties: {a: {type: string}}, additionalProperties: true}",
            ": has both properties and additionalProperties; it can have one of them",
        ),
        (
            "{type: object, anyOf: [{type: object}]}",
            ".anyOf[0].type: cannot be there: the schema is not structural",
        ),
        ("{type: object, patternProperties: {}}", ".patternProperties: cannot be in the schema of a CRD"),
    ];
    for (schema, problem) in cases {
        assert_eq!(error(&crd(schema)), format!("{at}{problem}"));
    }
}

#[test]
fn a_default_of_another_type_is_refused() {
    let at = "spec.versions[0].schema.openAPIV3Schema.properties[spec].properties[a].default";
    let schema = |property: &str| crd(&format!("{{type: object, properties: {{a: {property}}}}}"));
    let number = error(&schema("{type: integer, default: x}"));
    assert_eq!(number, format!("{at}: \"x\" is not a value of the type integer"));
    let one_of = error(&schema("{type: string, enum: [a, b], default: c}"));
    assert_eq!(one_of, format!("{at}: \"c\" is not one of the values of the enum"));
    let too_large = error(&schema("{type: integer, format: int32, default: 4294967296}"));
    assert_eq!(too_large, format!("{at}: 4294967296 is not a value of the type integer"));
}

#[test]
fn what_is_no_crd_is_refused() {
    assert_eq!(error(""), "foo.yaml: there is no CustomResourceDefinition in it");
    assert_eq!(error("a: 1"), "foo.yaml: not a CustomResourceDefinition: it has no kind");
    assert_eq!(error("kind: Pod"), "foo.yaml: not a CustomResourceDefinition, but a Pod");
    assert!(error("a: [").starts_with("foo.yaml: not YAML: "), "{}", error("a: ["));
    let old = crd("{type: object}").replace("io/v1\n", "io/v1beta1\n");
    assert_eq!(
        error(&old),
        "foo.yaml: apiVersion: is \"apiextensions.k8s.io/v1beta1\", but only apiextensions.k8s.io/v1 can be read; \
         convert it first"
    );
    let odd = crd("{type: object}").replace("plural: foos", "plural: 'fo\"os'");
    assert!(error(&odd).starts_with("foo.yaml: spec.names.plural: \"fo\\\"os\" is not a valid name"));
}

#[test]
fn other_objects_beside_a_crd_are_passed_over() -> anyhow::Result<()> {
    let bundle = format!("{}---\nkind: Pod\n---\n", crd("{type: object}"));
    assert_eq!(Definition::read("bundle.yaml", &bundle)?.len(), 1);
    assert_eq!(
        error("kind: Pod\n---\nkind: Service\n"),
        "foo.yaml: there is no CustomResourceDefinition in it"
    );
    Ok(())
}

#[test]
fn a_version_that_is_not_there_is_refused() -> anyhow::Result<()> {
    let definitions = Definition::read("foo.yaml", &crd("{type: object}"))?;
    let error = Types::new().version("v2").render(&definitions).map_err(|error| error.to_string());
    assert_eq!(error, Err("spec.versions: there is no version \"v2\"".to_owned()));
    Ok(())
}

#[test]
fn twenty_thousand_lines_are_read_at_once() -> anyhow::Result<()> {
    let mut schema = String::from("{type: object, properties: {\n");
    for index in 0..10_000 {
        schema.push_str(&format!(
            "field{index}: {{type: object, properties: {{a{index}: {{\n type: string}}}}}},\n"
        ));
    }
    schema.push_str("}}");
    let yaml = crd(&schema);
    assert!(yaml.lines().count() > 20_000);
    let code = Types::new().render(&Definition::read("big.yaml", &yaml)?)?;
    assert_eq!(code.matches("pub struct ").count(), 10_001);
    Ok(())
}
