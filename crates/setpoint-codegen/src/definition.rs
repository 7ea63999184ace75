//! A CustomResourceDefinition as it is read from YAML.

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::error::{Error, FieldPath};
use crate::{structural, yaml};

/// The parts of a CustomResourceDefinition that the generators need.
#[derive(Clone, Debug, PartialEq)]
pub struct Definition {
    /// The API group.
    pub group: String,
    /// Its names.
    pub names: Names,
    /// Whether its objects are in namespaces.
    pub is_namespaced: bool,
    /// The annotation that kube-apiserver wants on groups of `k8s.io`.
    pub approval: Option<String>,
    /// All versions, in the order of the file.
    pub versions: Vec<Version>,
}

/// The names of a kind.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Names {
    /// `Foo`
    pub kind: String,
    /// `foos`
    pub plural: String,
    /// `foo`
    #[serde(default)]
    pub singular: String,
    /// For `kubectl get`.
    #[serde(default)]
    pub short_names: Vec<String>,
    /// `all`, for example.
    #[serde(default)]
    pub categories: Vec<String>,
}

/// One version of a kind.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Version {
    /// `v1`
    pub name: String,
    /// Whether clients may use it.
    #[serde(default)]
    pub served: bool,
    /// Whether objects are stored in it.
    #[serde(default)]
    pub storage: bool,
    /// Whether clients are warned.
    #[serde(default)]
    pub deprecated: bool,
    /// What they are told.
    #[serde(default)]
    pub deprecation_warning: Option<String>,
    /// The columns of `kubectl get`, as in the CRD.
    #[serde(default)]
    pub additional_printer_columns: Vec<Value>,
    /// What field selectors may name.
    #[serde(default)]
    pub selectable_fields: Vec<SelectableField>,
    /// `status` and `scale`.
    #[serde(default)]
    pub subresources: Subresources,
    #[serde(skip)]
    schema: Map<String, Value>,
}

/// A field that field selectors may name.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SelectableField {
    /// `.spec.color`
    pub json_path: String,
}

/// The subresources of a version.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct Subresources {
    /// Present if there is one.
    pub status: Option<Map<String, Value>>,
    /// Its paths.
    pub scale: Option<Value>,
}

impl Version {
    /// The schema of a whole object.
    pub fn schema(&self) -> &Map<String, Value> {
        &self.schema
    }
}

impl Definition {
    /// Reads every CustomResourceDefinition in a YAML text, which may have several documents and `List`s. Other
    /// objects are skipped, but a text without a CRD is an error. `file` is for error messages.
    pub fn read(file: &str, text: &str) -> Result<Vec<Definition>, Error> {
        let read = || {
            let mut found = Vec::new();
            let documents = yaml::documents(text)?;
            for (index, document) in documents.iter().enumerate() {
                collect(document, &place(index), &mut found)?;
            }
            if let ([only], true) = (documents.as_slice(), found.is_empty()) {
                return Err(Error::new("", format!("not a CustomResourceDefinition{}", instead(only))));
            }
            if found.is_empty() {
                return Err(Error::new("", "there is no CustomResourceDefinition in it"));
            }
            Ok(found)
        };
        read().map_err(|error| error.in_file(file))
    }

    /// Like [`Definition::read`], each with a YAML text of its own: the original text if it contains nothing else.
    pub fn read_texts(file: &str, text: &str) -> Result<Vec<(Definition, String)>, Error> {
        let definitions = Definition::read(file, text)?;
        let documents = yaml::documents(text).map_err(|error| error.in_file(file))?;
        if let (1, [document]) = (definitions.len(), documents.as_slice())
            && document.get("items").is_none()
        {
            return Ok(definitions.into_iter().map(|one| (one, text.to_owned())).collect());
        }
        let mut raw = Vec::new();
        documents.iter().for_each(|document| pick(document, &mut raw));
        let texts = raw.into_iter().map(yaml::render).collect::<Result<Vec<_>, _>>()?;
        Ok(definitions.into_iter().zip(texts).collect())
    }

    /// Reads a definition that is already parsed.
    pub fn from_value(value: &Value) -> Result<Definition, Error> {
        from_value(value, &FieldPath::default())
    }

    /// `foos.example.com`
    pub fn name(&self) -> String {
        format!("{}.{}", self.names.plural, self.group)
    }
}

/// A file of one document needs no index in its paths.
fn place(index: usize) -> FieldPath {
    if index == 0 { FieldPath::default() } else { FieldPath::root(format!("document {}", index + 1)) }
}

fn collect(document: &Value, path: &FieldPath, found: &mut Vec<Definition>) -> Result<(), Error> {
    let kind = document.get("kind").and_then(Value::as_str).unwrap_or_default();
    let items = document.get("items").and_then(Value::as_array);
    match (kind, items) {
        ("CustomResourceDefinitionList" | "List", Some(items)) => items
            .iter()
            .enumerate()
            .try_for_each(|(index, item)| collect(item, &path.field("items").key(index), found)),
        ("CustomResourceDefinition", _) => {
            found.push(from_value(document, path)?);
            Ok(())
        }
        _ => Ok(()),
    }
}

/// The CRDs of a document as they are, in the order of [`collect`].
fn pick<'a>(document: &'a Value, found: &mut Vec<&'a Value>) {
    match (document.get("kind").and_then(Value::as_str), document.get("items").and_then(Value::as_array)) {
        (Some("CustomResourceDefinitionList" | "List"), Some(items)) => {
            items.iter().for_each(|item| pick(item, found));
        }
        (Some("CustomResourceDefinition"), _) => found.push(document),
        _ => {}
    }
}

/// What a document is instead of a CRD.
fn instead(document: &Value) -> String {
    match document.get("kind").and_then(Value::as_str) {
        Some(kind) => format!(", but a {kind}"),
        None => ": it has no kind".to_owned(),
    }
}

fn from_value(document: &Value, path: &FieldPath) -> Result<Definition, Error> {
    const V1: &str = "apiextensions.k8s.io/v1";
    let version = document.get("apiVersion").and_then(Value::as_str).unwrap_or_default();
    if version != V1 {
        let problem = format!("is {version:?}, but only {V1} can be read; convert it first");
        return Err(Error::new(path.field("apiVersion"), problem));
    }
    let path = path.field("spec");
    let spec = document.get("spec").ok_or_else(|| Error::new(&path, "is missing"))?;
    let mut names: Names = part(spec, &path, "names")?;
    if names.singular.is_empty() {
        names.singular = names.kind.to_ascii_lowercase();
    }
    let group: String = part(spec, &path, "group")?;
    let scope: String = part(spec, &path, "scope")?;
    let is_namespaced = match scope.as_str() {
        "Namespaced" => true,
        "Cluster" => false,
        other => {
            let problem = format!("is {other:?}; it must be Namespaced or Cluster");
            return Err(Error::new(path.field("scope"), problem));
        }
    };
    check_label(&path.field("group"), &group, '.')?;
    check_label(&path.field("names").field("kind"), &names.kind.to_ascii_lowercase(), '-')?;
    check_label(&path.field("names").field("plural"), &names.plural, '-')?;
    let approval =
        document.pointer("/metadata/annotations/api-approved.kubernetes.io").and_then(Value::as_str);
    let versions = versions(spec, &path)?;
    Ok(Definition { group, names, is_namespaced, approval: approval.map(str::to_owned), versions })
}

fn versions(spec: &Value, path: &FieldPath) -> Result<Vec<Version>, Error> {
    let raw: Vec<Value> = part(spec, path, "versions")?;
    let path = path.field("versions");
    if raw.is_empty() {
        return Err(Error::new(&path, "is empty"));
    }
    let mut versions: Vec<Version> = Vec::new();
    for (index, raw) in raw.iter().enumerate() {
        let path = path.key(index);
        let mut version: Version =
            serde_json::from_value(raw.clone()).map_err(|error| Error::new(&path, error))?;
        check_label(&path.field("name"), &version.name, '-')?;
        if versions.iter().any(|earlier| earlier.name == version.name) {
            return Err(Error::new(path.field("name"), format!("there are two versions {:?}", version.name)));
        }
        let path = path.field("schema").field("openAPIV3Schema");
        let schema = raw.pointer("/schema/openAPIV3Schema").ok_or_else(|| Error::new(&path, "is missing"))?;
        version.schema = structural::object(schema, &path)?.clone();
        structural::check_root(version.schema(), &path)?;
        versions.push(version);
    }
    Ok(versions)
}

fn part<T: for<'de> Deserialize<'de>>(spec: &Value, path: &FieldPath, name: &str) -> Result<T, Error> {
    let path = path.field(name);
    let value = spec.get(name).ok_or_else(|| Error::new(&path, "is missing"))?;
    T::deserialize(value).map_err(|error| Error::new(&path, error))
}

/// Names end up in Rust code, so they must be what kube-apiserver allows too.
fn check_label(path: &FieldPath, text: &str, separator: char) -> Result<(), Error> {
    let is_inside = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == separator || c == '-';
    let is_end = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    if !text.is_empty() && text.chars().all(is_inside) && text.starts_with(is_end) && text.ends_with(is_end) {
        return Ok(());
    }
    Err(Error::new(path, format!("{text:?} is not a valid name: use letters, digits and {separator:?}")))
}
