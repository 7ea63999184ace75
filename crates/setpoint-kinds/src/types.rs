//! Struct types of the Kubernetes API and their fields.

use std::sync::OnceLock;

use serde_json::{Map, Value};

use crate::protobuf::Layout;
use crate::table::table;
use crate::zero;

/// A struct type of the Kubernetes API, such as `core.v1.Pod`.
#[derive(Debug)]
#[non_exhaustive]
pub struct Type {
    /// The short name: package and Go name, such as `core.v1.Pod`.
    pub name: &'static str,
    /// Whether the struct as a whole is `granular` or `atomic` to server-side apply, if it says so.
    pub map_type: Option<MapType>,
    /// OpenAPI's `x-kubernetes-unions` of the type, as JSON.
    pub unions: Option<&'static str>,
    /// Every JSON field, those of embedded structs included, sorted by name.
    pub(crate) fields: Box<[Field]>,
    /// The structs that Go embeds: inline in JSON, messages of their own in protobuf.
    pub(crate) embedded: Box<[Embedded]>,
    /// What each protobuf number of the message means, sorted by number.
    pub(crate) numbers: Box<[(u32, Slot)]>,
    /// Indices of the fields that are encoded even when nobody set them.
    pub(crate) always: Box<[u16]>,
    /// How many fields of its own are required times. Go has a zero for these, which is null in JSON; others have none.
    pub(crate) required_times: usize,
    /// How its messages are put together, once one has been.
    pub(crate) layout: OnceLock<Layout>,
}

/// A struct that Go embeds in another one.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Embedded {
    /// The name of the Go field.
    pub name: &'static str,
    /// The embedded type.
    pub ty: TypeId,
    /// The protobuf field number; 0 when the struct is not in the protobuf form (`TypeMeta`).
    pub number: u32,
}

/// What a protobuf field number stands for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Slot {
    Field(u16),
    Embedded(u16),
}

impl Type {
    /// Every JSON field, those of embedded structs included, sorted by name.
    pub fn fields(&self) -> &[Field] {
        &self.fields
    }

    /// The field with this JSON name. Names are case-sensitive, as in kube-apiserver.
    pub fn field(&self, json_name: &str) -> Option<&Field> {
        let at = self.fields.binary_search_by(|field| field.name.cmp(json_name)).ok()?;
        self.fields.get(at)
    }

    /// The structs that Go embeds in this one.
    pub fn embedded(&self) -> &[Embedded] {
        &self.embedded
    }

    /// The Go name without its package: `Pod`.
    pub fn go_name(&self) -> &'static str {
        self.name.rsplit('.').next().unwrap_or(self.name)
    }

    /// The name that OpenAPI gives the type: `io.k8s.api.core.v1.Pod`.
    ///
    /// ```
    /// let pod = setpoint_kinds::table().type_named("core.v1.Pod").unwrap();
    /// assert_eq!(pod.openapi_name(), "io.k8s.api.core.v1.Pod");
    /// ```
    pub fn openapi_name(&self) -> String {
        let prefix = match self.name.split('.').next() {
            Some("meta") => "io.k8s.apimachinery.pkg.apis",
            Some("apiextensions") => "io.k8s.apiextensions-apiserver.pkg.apis",
            Some("apiregistration") => "io.k8s.kube-aggregator.pkg.apis",
            _ => "io.k8s.api",
        };
        format!("{prefix}.{}", self.name)
    }

    /// What Go encodes for a struct of this type in which nobody set anything.
    ///
    /// ```
    /// let status = setpoint_kinds::table().type_named("apps.v1.ReplicaSetStatus").unwrap();
    /// assert_eq!(status.zero(), serde_json::json!({"replicas": 0}));
    /// ```
    pub fn zero(&self) -> Value {
        let mut map = Map::new();
        zero::fill(self, &mut map);
        Value::Object(map)
    }

    /// The name that Go prints for the type: `v1.Pod`.
    pub(crate) fn go_type(&self) -> &'static str {
        self.name.split_once('.').map_or(self.name, |(_, rest)| rest)
    }

    /// Whether the type is a kind, that is, has `apiVersion` and `kind`.
    pub fn is_kind(&self) -> bool {
        self.embedded.iter().any(|embedded| embedded.name == "TypeMeta")
    }

    pub(crate) fn slot(&self, number: u32) -> Option<Slot> {
        // Most types have no gaps.
        if let Some((found, slot)) = self.numbers.get((number as usize).wrapping_sub(1))
            && *found == number
        {
            return Some(*slot);
        }
        let at = self.numbers.binary_search_by_key(&number, |(number, _)| *number).ok()?;
        Some(self.numbers[at].1)
    }
}

/// A handle on a [`Type`] of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TypeId(pub(crate) u16);

impl TypeId {
    /// The type itself.
    pub fn get(self) -> &'static Type {
        &table().types[usize::from(self.0)]
    }
}

/// One JSON field of a [`Type`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Field {
    /// The JSON name.
    pub name: &'static str,
    /// What the field holds.
    pub ty: FieldType,
    /// The protobuf number; 0 when the field is not in the protobuf form.
    pub number: u32,
    /// Where it stands in the Go struct, whose fields Go writes in this order. Those of embedded structs come first.
    pub position: u16,
    /// Go's `omitempty`: false, 0, "" and empty lists and maps are left out.
    pub omit_empty: bool,
    /// Go's `omitzero`: a zero struct is left out too.
    pub omit_zero: bool,
    /// Whether Go has a pointer here, so that an explicit zero differs from an absent field.
    pub pointer: bool,
    /// Whether OpenAPI lists the field as required.
    pub required: bool,
    /// The default that OpenAPI publishes.
    pub default: FieldDefault,
    /// `patchStrategy`: `merge`, `retainKeys`, `merge,retainKeys`, or empty.
    pub patch_strategy: &'static str,
    /// `patchMergeKey`: the key by which a strategic merge patch matches list items.
    pub patch_merge_key: Option<&'static str>,
    /// `x-kubernetes-list-type`.
    pub list_type: Option<ListType>,
    /// `x-kubernetes-list-map-keys`, separated by commas; see [`Field::list_map_keys`].
    pub(crate) list_map_keys: &'static str,
    /// `x-kubernetes-map-type`.
    pub map_type: Option<MapType>,
    /// The embedded structs that the field comes through, by Go name, separated by dots: `VolumeSource`.
    pub(crate) through: &'static str,
    /// The Go type where it has a name of its own: `v1.PodPhase`.
    pub(crate) go: Option<&'static str>,
}

impl Field {
    /// `x-kubernetes-list-map-keys`: the keys that make an item of a list unique.
    pub fn list_map_keys(&self) -> impl Iterator<Item = &'static str> + use<> {
        self.list_map_keys.split(',').filter(|key| !key.is_empty())
    }

    /// Whether `patchStrategy` names this strategy.
    pub fn patches_by(&self, strategy: &str) -> bool {
        self.patch_strategy.split(',').any(|found| found == strategy)
    }

    /// Whether the field is a time that must not be null.
    pub(crate) fn is_required_time(&self) -> bool {
        self.required && matches!(self.ty, FieldType::Time | FieldType::MicroTime)
    }

    /// Whether the field is in the JSON even when nobody set it.
    pub(crate) fn always(&self) -> bool {
        if self.omit_zero {
            return false;
        }
        // `omitempty` never leaves out a struct.
        !self.omit_empty || !self.pointer && self.ty.is_go_struct()
    }
}

/// The default of a field in the published OpenAPI documents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldDefault {
    /// None is published.
    None,
    /// The zero value of the field's type: `{}`, `""`, `0` or `false`.
    Zero,
    /// This JSON text.
    Json(&'static str),
}

/// What a field, a list item or a map value holds.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FieldType {
    /// A string, or a Go type made of one.
    String,
    /// A boolean.
    Bool,
    /// A 32-bit integer.
    Int32,
    /// A 64-bit integer.
    Int64,
    /// A floating-point number.
    Float64,
    /// Bytes, base64 in JSON.
    Bytes,
    /// A resource quantity, such as `500m` or `1Gi`.
    Quantity,
    /// An integer or a string.
    IntOrString,
    /// A time in whole seconds.
    Time,
    /// A time in microseconds.
    MicroTime,
    /// Any object (`runtime.RawExtension`).
    RawExtension,
    /// The field set of a managed-fields entry.
    FieldsV1,
    /// Any JSON value (`apiextensions.v1.JSON`).
    Json,
    /// A JSON schema or a boolean.
    SchemaOrBool,
    /// A JSON schema or a list of them.
    SchemaOrArray,
    /// A JSON schema or a list of strings.
    SchemaOrStrings,
    /// A struct of the table.
    Struct(TypeId),
    /// A list.
    List(Box<FieldType>),
    /// A list that protobuf wraps in a message of its own, as `authentication.v1.ExtraValue`.
    WrappedList(Box<FieldType>),
    /// A map with string keys.
    Map(Box<FieldType>),
}

impl FieldType {
    /// The struct type of the field itself, of its list items or of its map values.
    pub fn struct_type(&self) -> Option<&'static Type> {
        match self {
            Self::Struct(id) => Some(id.get()),
            Self::List(item) | Self::WrappedList(item) | Self::Map(item) => item.struct_type(),
            _ => None,
        }
    }

    /// Whether Go has a struct here, which `omitempty` never leaves out.
    pub(crate) fn is_go_struct(&self) -> bool {
        !matches!(
            self,
            Self::String
                | Self::Bool
                | Self::Int32
                | Self::Int64
                | Self::Float64
                | Self::Bytes
                | Self::List(_)
                | Self::WrappedList(_)
                | Self::Map(_)
        )
    }

    pub(crate) fn go_type(&self) -> String {
        match self {
            Self::String => "string".into(),
            Self::Bool => "bool".into(),
            Self::Int32 => "int32".into(),
            Self::Int64 => "int64".into(),
            Self::Float64 => "float64".into(),
            Self::Bytes => "[]uint8".into(),
            Self::Quantity => "resource.Quantity".into(),
            Self::IntOrString => "intstr.IntOrString".into(),
            Self::Time => "v1.Time".into(),
            Self::MicroTime => "v1.MicroTime".into(),
            Self::RawExtension => "runtime.RawExtension".into(),
            Self::FieldsV1 => "v1.FieldsV1".into(),
            Self::Json => "v1.JSON".into(),
            Self::SchemaOrBool => "v1.JSONSchemaPropsOrBool".into(),
            Self::SchemaOrArray => "v1.JSONSchemaPropsOrArray".into(),
            Self::SchemaOrStrings => "v1.JSONSchemaPropsOrStringArray".into(),
            Self::Struct(id) => id.get().go_type().into(),
            Self::List(item) | Self::WrappedList(item) => format!("[]{}", item.go_type()),
            Self::Map(item) => format!("map[string]{}", item.go_type()),
        }
    }
}

/// `x-kubernetes-list-type`: how server-side apply merges a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListType {
    /// Replaced as a whole.
    Atomic,
    /// A set of scalars.
    Set,
    /// Items identified by the list-map keys.
    Map,
}

/// `x-kubernetes-map-type`: how server-side apply merges a map or struct.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapType {
    /// Replaced as a whole.
    Atomic,
    /// Merged key by key.
    Granular,
}
