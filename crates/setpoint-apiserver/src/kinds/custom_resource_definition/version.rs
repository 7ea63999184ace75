//! What is wrong with one version of a definition.

use serde_json::Value;

use super::super::at::{At, items};
use crate::schema::{Structural, Type};

const COLUMN_TYPES: [&str; 5] = ["boolean", "date", "integer", "number", "string"];
const COLUMN_FORMATS: [&str; 9] =
    ["byte", "date", "date-time", "double", "float", "int32", "int64", "name", "password"];
const MOST_SELECTABLE_FIELDS: usize = 8;

/// What all versions have in common: kube-apiserver reports problems of these once, for the whole `spec`.
pub(super) struct Shared {
    subresources: bool,
    columns: bool,
    selectable: bool,
}

impl Shared {
    pub(super) fn of(versions: &[Value]) -> Shared {
        let same = |field: &str| versions.windows(2).all(|pair| pair[0][field] == pair[1][field]);
        Shared {
            subresources: same("subresources"),
            columns: same("additionalPrinterColumns"),
            selectable: same("selectableFields"),
        }
    }
}

pub(super) fn validate(version: &At, shared: &Shared) {
    deprecation(version);
    if !shared.subresources {
        scale(&version.field("subresources"));
    }
    if !shared.columns {
        version.field("additionalPrinterColumns").items().for_each(|column| self::column(&column));
    }
    if !shared.selectable {
        selectable(&version.field("selectableFields"), version.value());
    }
}

/// What is the same in all versions, the first of which is `first`.
pub(super) fn validate_shared(spec: &At, first: &Value, shared: &Shared) {
    if shared.subresources {
        scale(&spec.alias_of("subresources", &first["subresources"]));
    }
    if shared.columns {
        let columns = spec.alias_of("additionalPrinterColumns", &first["additionalPrinterColumns"]);
        columns.items().for_each(|column| self::column(&column));
    }
    if shared.selectable {
        selectable(&spec.alias_of("selectableFields", &first["selectableFields"]), first);
    }
}

fn deprecation(version: &At) {
    let warning = version.field("deprecationWarning");
    if !warning.exists() {
        return;
    }
    let text = warning.text();
    if !version.field("deprecated").is_true() {
        warning.invalid_text("can only be set for deprecated versions");
        return;
    }
    if text.len() > 256 {
        warning.invalid_text("must be <= 256 characters long");
    }
    if text.is_empty() {
        warning.invalid_text("must not be an empty string");
    }
    if let Some((at, _)) = text.char_indices().find(|(_, c)| c.is_control()) {
        warning.invalid_text(format!(
            "must only contain printable UTF-8 characters; non-printable character found at index {at}"
        ));
    }
}

fn scale(subresources: &At) {
    let scale = subresources.field("scale");
    if !scale.exists() {
        return;
    }
    let path = |field: &str, roots: &[&str], wrong: &str| {
        let at = scale.field(field);
        let text = at.text();
        if text.is_empty() {
            if field != "labelSelectorPath" {
                at.required("");
            }
        } else if !text.starts_with('.') {
            at.invalid_text("must be a simple json path starting with .");
        } else if !roots.iter().any(|root| text.starts_with(root)) {
            at.invalid_text(wrong);
        }
    };
    path("specReplicasPath", &[".spec."], "should be a json path under .spec");
    path("statusReplicasPath", &[".status."], "should be a json path under .status");
    path("labelSelectorPath", &[".spec.", ".status."], "should be a json path under either .spec or .status");
}

fn column(column: &At) {
    if column.field("name").text().is_empty() {
        column.field("name").required("");
    }
    let must_be = format!("must be one of {}", COLUMN_TYPES.join(","));
    let kind = column.field("type");
    match kind.text() {
        "" => kind.required(must_be),
        text if !COLUMN_TYPES.contains(&text) => kind.invalid_text(must_be),
        _ => {}
    }
    let format = column.field("format");
    if !format.text().is_empty() && !COLUMN_FORMATS.contains(&format.text()) {
        format.invalid_text(format!("must be one of {}", COLUMN_FORMATS.join(",")));
    }
    let path = column.alias_of("JSONPath", &column.value()["jsonPath"]);
    match path.text() {
        "" => path.required(""),
        text if !text.starts_with('.') => path.invalid_text("must be a simple json path starting with ."),
        _ => {}
    }
}

fn selectable(fields: &At, version: &Value) {
    if items(fields.value()).is_empty() {
        return;
    }
    let Ok(schema) = Structural::parse(&version["schema"]["openAPIV3Schema"]) else { return };
    let mut known: Vec<&str> = Vec::new();
    for field in fields.items() {
        let path = field.field("jsonPath");
        if path.text().is_empty() {
            path.required("");
            continue;
        }
        let found = match find(&schema, path.text()) {
            Ok(found) => found,
            Err(why) => {
                path.invalid_text(format!("is an invalid path: {why}"));
                continue;
            }
        };
        if path.text().starts_with(".metadata") {
            path.invalid_text("must not point to fields in metadata");
        }
        if !matches!(found.type_, Some(Type::String | Type::Boolean | Type::Integer)) {
            path.invalid_text(
                "must point to a field of type string, boolean or integer. Enum string fields and strings with formats \
                 are allowed.",
            );
        }
        if known.contains(&path.text()) {
            path.duplicate();
        }
        known.push(path.text());
    }
    known.dedup();
    if known.len() > MOST_SELECTABLE_FIELDS {
        fields.too_many(MOST_SELECTABLE_FIELDS);
    }
}

/// The schema that a path of fields leads to.
fn find<'s>(schema: &'s Structural, path: &str) -> Result<&'s Structural, String> {
    let Some(fields) = path.strip_prefix('.') else {
        return Err(format!("expected [ or . but got: {path}"));
    };
    fields.split('.').try_fold(schema, |schema, name| {
        schema.properties.get(name).ok_or_else(|| "does not refer to a valid field".to_owned())
    })
}
