//! What the kinds table says about the fields that a patch meets, and what Go says where there are none.

use setpoint_kinds::{Field, FieldType, Type};

use super::go::Problem;

/// The Go type behind a JSON object, as far as patches care.
#[derive(Clone, Copy, Debug)]
pub(super) enum Schema {
    /// A struct of the table.
    Struct(&'static Type),
    /// A Go struct without JSON fields of its own: it encodes itself.
    Opaque(&'static str),
    /// Something that has no fields; the word is Go's.
    Kind(&'static str),
}

/// A field that holds an object.
pub(super) struct ObjectField {
    /// The patch takes the place of what is there.
    pub(super) is_replaced: bool,
    pub(super) schema: Schema,
}

/// A field that holds a list.
pub(super) struct ListField {
    /// Items are merged; otherwise the patch takes the place of what is there.
    pub(super) is_merged: bool,
    /// What tells the items of a merged list apart, if they are objects.
    pub(super) key: Option<&'static str>,
    /// The type of the items.
    pub(super) schema: Schema,
}

impl Schema {
    pub(super) fn of_type(ty: &'static Type) -> Schema {
        Schema::Struct(ty)
    }

    fn of(ty: &FieldType) -> Schema {
        match ty {
            FieldType::Struct(id) => Schema::Struct(id.get()),
            FieldType::Map(_) => Schema::Kind("map"),
            FieldType::List(_) | FieldType::WrappedList(_) | FieldType::Bytes => Schema::Kind("slice"),
            FieldType::RawExtension => Schema::Opaque("RawExtension"),
            FieldType::FieldsV1 => Schema::Opaque("FieldsV1"),
            FieldType::Json => Schema::Opaque("JSON"),
            FieldType::SchemaOrBool => Schema::Opaque("JSONSchemaPropsOrBool"),
            FieldType::SchemaOrArray => Schema::Opaque("JSONSchemaPropsOrArray"),
            FieldType::SchemaOrStrings => Schema::Opaque("JSONSchemaPropsOrStringArray"),
            FieldType::Quantity => Schema::Opaque("Quantity"),
            FieldType::IntOrString => Schema::Opaque("IntOrString"),
            FieldType::Time => Schema::Opaque("Time"),
            FieldType::MicroTime => Schema::Opaque("MicroTime"),
            FieldType::Bool => Schema::Kind("bool"),
            FieldType::Int32 => Schema::Kind("int32"),
            FieldType::Int64 => Schema::Kind("int64"),
            FieldType::Float64 => Schema::Kind("float64"),
            _ => Schema::Kind("string"),
        }
    }

    /// Go's word for the kind of type.
    pub(super) fn kind(self) -> &'static str {
        match self {
            Schema::Struct(_) | Schema::Opaque(_) => "struct",
            Schema::Kind(kind) => kind,
        }
    }

    fn field(self, name: &str) -> Result<&'static Field, Problem> {
        let missing = |go_name: &str| {
            Problem::other(format!(
                "unable to find api field in struct {go_name} for the json field {name:?}"
            ))
        };
        match self {
            Schema::Struct(ty) => ty
                .field(name)
                .or_else(|| ty.fields().iter().find(|field| field.name.eq_ignore_ascii_case(name)))
                .ok_or_else(|| missing(ty.go_name())),
            Schema::Opaque(go_name) => Err(missing(go_name)),
            Schema::Kind(kind) => Err(Problem::other(format!(
                "merging an object in json but data type is not struct, instead is: {kind}"
            ))),
        }
    }

    /// A field that has an object in the original and in the patch.
    pub(super) fn object_field(self, name: &str) -> Result<ObjectField, Problem> {
        let field = self.field(name)?;
        Ok(ObjectField { is_replaced: field.patches_by("replace"), schema: Schema::of(&field.ty) })
    }

    /// A field that has a list in the original or in the patch.
    pub(super) fn list_field(self, name: &str) -> Result<ListField, Problem> {
        let field = self.field(name)?;
        let schema = match &field.ty {
            FieldType::List(item) | FieldType::WrappedList(item) => {
                if matches!(**item, FieldType::List(_) | FieldType::WrappedList(_) | FieldType::Bytes) {
                    return Err(Problem::other("unexpected slice of slice".to_owned()));
                }
                Schema::of(item)
            }
            FieldType::Bytes => Schema::Kind("uint8"),
            other if field.pointer => Schema::of(other),
            _ => {
                let kind = self.kind();
                return Err(Problem::other(format!("expected slice or array type, but got: {kind}")));
            }
        };
        Ok(ListField { is_merged: field.patches_by("merge"), key: field.patch_merge_key, schema })
    }
}
