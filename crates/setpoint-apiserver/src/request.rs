//! A request about a resource, as the handlers get it.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::Value;
use setpoint_env::Env;
use setpoint_kinds::{Type, UnknownField, Verb, conform, protobuf};

use crate::authorize::Attributes;
use crate::body;
use crate::bounds::Bounded;
use crate::contention::Deadline;
use crate::definitions::{self, Custom, Undecodable};
use crate::managed_fields;
use crate::metadata;
use crate::negotiate::{BodyFormat, Representation};
use crate::object;
use crate::options::{FieldValidation, Query, WriteOptions};
use crate::patch::{self, Patched};
use crate::resource::Resource;
use crate::schema::Nulls;
use crate::status::{Result, Status};
use crate::user::User;

/// A request that is authenticated, authorised and routed.
#[derive(Debug)]
pub(crate) struct ResourceRequest {
    pub verb: Verb,
    pub resource: Arc<Resource>,
    pub namespace: Option<String>,
    pub name: Option<String>,
    pub subresource: Option<String>,
    pub query: Query,
    pub representation: Representation,
    pub content_type: Option<String>,
    pub user: Arc<User>,
    pub user_agent: Option<String>,
    pub body: Bytes,
    /// When it came, on the server's clock.
    pub received: Timestamp,
    /// When it gives up.
    pub deadline: Deadline,
    /// When the certificate ends that it came with. A response that goes on ends then, too.
    pub good_until: Option<Timestamp>,
    /// Whether it comes from the program that tells the objects of its kind, and may do what clients may not.
    pub is_own: bool,
    /// What the sender shall read besides the answer.
    pub warnings: Warnings,
}

/// Warnings that come up on the way of a request.
#[derive(Clone, Debug, Default)]
pub(crate) struct Warnings(Arc<Mutex<Vec<String>>>);

/// The kind that a body must have.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Expected<'a> {
    pub api_version: &'a str,
    pub kind: &'a str,
    pub form: Form<'a>,
}

/// What the fields of a body are held against.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Form<'a> {
    /// A Go type.
    Typed(&'static Type),
    /// The schema of a definition.
    Custom(&'a Custom),
}

/// A decoded body.
#[derive(Debug)]
pub(crate) struct Input {
    pub object: Value,
    /// Unknown and duplicate fields, as warnings.
    pub warnings: Vec<String>,
}

impl ResourceRequest {
    /// Adds a warning to the answer.
    pub(crate) fn warn(&self, text: &str) {
        self.warnings.0.lock().push(text.to_owned());
    }

    /// The warnings so far.
    pub(crate) fn take_warnings(&self) -> Vec<String> {
        std::mem::take(&mut self.warnings.0.lock())
    }

    /// The body as JSON, if there is one that can be read; for the audit log.
    pub(crate) fn as_json(&self) -> Option<Value> {
        match self.content_type.as_deref().unwrap_or_default() {
            media if media.starts_with("application/vnd.kubernetes.protobuf") => {
                protobuf::decode(&self.body).ok().map(|decoded| decoded.value)
            }
            media if media.contains("yaml") => body::parse_yaml(&self.body).ok().map(|decoded| decoded.value),
            _ => body::parse_json(&self.body).ok().map(|decoded| decoded.value),
        }
    }

    /// Whether the body may name the version that it depends on. It need not know for sure.
    pub(crate) fn may_name_version(&self) -> bool {
        if self.body.starts_with(protobuf::MAGIC) {
            let version = |object: Value| object.pointer("/metadata/resourceVersion").is_some();
            return self.as_json().is_some_and(version);
        }
        memchr::memmem::find(&self.body, b"resourceVersion").is_some()
    }

    /// How long a response that goes on may last, if its sender has a certificate that ends.
    pub(crate) fn time_left(&self, env: &Env) -> Option<Duration> {
        let end = self.good_until?;
        Some(Duration::try_from(end.duration_since(env.now())).unwrap_or(Duration::ZERO))
    }

    /// The name of the object; every route that needs one has one.
    pub(crate) fn name(&self) -> &str {
        self.name.as_deref().unwrap_or_default()
    }

    /// What the request wants to do, with another verb.
    pub(crate) fn attributes(&self, verb: Verb) -> Attributes {
        Attributes {
            verb: verb.as_str().to_owned(),
            group: self.resource.group().to_owned(),
            resource: self.resource.plural().to_owned(),
            subresource: self.subresource.clone().unwrap_or_default(),
            namespace: self.namespace.clone().unwrap_or_default(),
            name: self.name.clone().unwrap_or_default(),
            path: None,
        }
    }

    /// Whom the fields belong to that this request writes: the manager that it names, or the program that sent it.
    pub(crate) fn manager(&self, options: &WriteOptions) -> String {
        if let Some(manager) = &options.field_manager {
            return manager.clone();
        }
        let agent = self.user_agent.as_deref().unwrap_or_default();
        let mut name = String::new();
        for c in agent.split('/').next().unwrap_or_default().chars().filter(|c| metadata::is_printable(*c)) {
            if name.len() + c.len_utf8() > metadata::MAX_FIELD_MANAGER {
                break;
            }
            name.push(c);
        }
        name
    }

    /// A request for another object that is part of answering this one.
    pub(crate) fn for_object(
        &self,
        resource: &Arc<Resource>,
        namespace: &str,
        name: &str,
    ) -> ResourceRequest {
        ResourceRequest {
            verb: self.verb,
            resource: Arc::clone(resource),
            namespace: resource.is_namespaced().then(|| namespace.to_owned()),
            name: Some(name.to_owned()),
            subresource: None,
            query: self.query.clone(),
            representation: self.representation,
            content_type: None,
            user: Arc::clone(&self.user),
            user_agent: self.user_agent.clone(),
            body: Bytes::new(),
            received: self.received,
            deadline: self.deadline,
            good_until: self.good_until,
            is_own: false,
            warnings: self.warnings.clone(),
        }
    }

    /// The kind of the resource itself.
    pub(crate) fn expected(&self) -> Expected<'_> {
        Expected {
            api_version: self.resource.api_version(),
            kind: self.resource.kind(),
            form: match (self.resource.ty(), self.resource.definition()) {
                (Some(ty), _) => Form::Typed(ty),
                (None, custom) => Form::Custom(custom.expect("what has no type has a definition")),
            },
        }
    }

    /// Reads the body as an object of the expected kind, with the fields that this kind has, in the namespace of the path.
    pub(crate) fn decode(&self, expected: Expected<'_>, validation: FieldValidation) -> Result<Input> {
        let mut input = self.parse(expected.kind)?.finish(expected, validation)?;
        self.set_namespace(&mut input.object)?;
        Ok(input)
    }

    /// The namespace of the path is the object's; a body that names another one is a mistake. An object of the
    /// cluster has none, whatever its body says.
    pub(crate) fn set_namespace(&self, object: &mut Value) -> Result<()> {
        let metadata = object::metadata_mut(object);
        let given = metadata.get("namespace").and_then(Value::as_str).filter(|text| !text.is_empty());
        match (&self.namespace, given) {
            (Some(namespace), Some(given)) if namespace != given => Err(Status::bad_request(
                "the namespace of the provided object does not match the namespace sent on the request",
            )),
            (Some(namespace), _) => {
                metadata.insert("namespace".into(), namespace.as_str().into());
                Ok(())
            }
            (None, _) => {
                metadata.remove("namespace");
                Ok(())
            }
        }
    }

    /// The same for options, which every group-version has under its own name.
    pub(crate) fn decode_options(
        &self,
        expected: Expected<'_>,
        validation: FieldValidation,
    ) -> Result<Value> {
        let mut draft = self.parse(expected.kind)?;
        draft.value.remove("apiVersion");
        Ok(draft.finish(expected, validation)?.object)
    }

    fn parse(&self, kind: &str) -> Result<Draft> {
        match BodyFormat::of(self.content_type.as_deref())? {
            BodyFormat::Json => {
                let draft = Draft::decoded(body::decode_json(&self.body, kind)?)?;
                Ok(Draft { text: Some(self.body.clone()), ..draft })
            }
            BodyFormat::Yaml => Draft::decoded(body::decode_yaml(&self.body, kind)?),
            BodyFormat::Protobuf if self.resource.definition().is_some() => {
                Err(Status::unsupported_media_type(&["application/json", "application/yaml"]))
            }
            BodyFormat::Protobuf => {
                let decoded = protobuf::decode(&self.body)
                    .map_err(|error| body::unrecognized(kind, &error.to_string(), &self.body))?;
                Draft::decoded(body::Decoded { value: decoded.value, duplicates: Vec::new() })
            }
        }
    }
}

/// An object that has not been held against its kind yet.
#[derive(Debug)]
pub(crate) struct Draft {
    value: Bounded,
    /// What decoding found wrong with its fields, in the words of warnings.
    warnings: Vec<String>,
    /// The same in the words of strict validation.
    strict: Vec<String>,
    /// The JSON that it was read from.
    text: Option<Bytes>,
    /// It is what a patch made of a good object: if it is bad, the patch is.
    is_patched: bool,
    /// How a patch is quoted if it is bad; otherwise the object that it makes is.
    quoted: Option<Value>,
    nulls: Nulls,
}

impl From<Patched> for Draft {
    fn from(patched: Patched) -> Draft {
        Draft {
            value: patched.value,
            warnings: patched.strict_errors.clone(),
            strict: patched.strict_errors,
            text: None,
            is_patched: true,
            quoted: patched.quoted,
            nulls: patched.nulls,
        }
    }
}

impl Draft {
    /// What a body says.
    fn decoded(decoded: body::Decoded) -> Result<Draft> {
        let warnings = decoded.duplicates.iter().map(ToString::to_string).collect();
        let strict = decoded.strict_errors();
        let value = Bounded::new(decoded.value)?;
        let nulls = Nulls::Dropped;
        Ok(Draft { warnings, strict, value, text: None, is_patched: false, quoted: None, nulls })
    }

    /// Brings the object into the shape of its kind.
    pub(crate) fn finish(self, expected: Expected<'_>, validation: FieldValidation) -> Result<Input> {
        let quotes = self.is_patched;
        self.finish_or(expected, validation, quotes)
    }

    /// The same without a copy of the object, which a patched one needs for nothing but the words of an error. None is an
    /// error that [`Draft::finish`] has the words for.
    pub(crate) fn finish_good(self, expected: Expected<'_>, validation: FieldValidation) -> Option<Input> {
        self.finish_or(expected, validation, false).ok()
    }

    /// An error quotes what the object was before, if it is asked to.
    fn finish_or(self, expected: Expected<'_>, validation: FieldValidation, quotes: bool) -> Result<Input> {
        if let Some(why) = body::no_object(&self.value) {
            let quoted = self.quoted.map_or_else(|| self.value.to_string(), |patch| patch::go_text(&patch));
            return Err(Status::bad_patch(&quoted, why));
        }
        let ty = match expected.form {
            Form::Typed(ty) => ty,
            Form::Custom(custom) => return self.finish_custom(expected, custom, validation),
        };
        let allowance = self.value.allowance();
        let mut object = self.value.into_value();
        // A strategic patch cannot say what it makes.
        if self.quoted.is_none()
            && let Err(wrong) = check_kind(&object, expected, ty)
        {
            return Err(if self.is_patched {
                Status::bad_patch(&object.to_string(), wrong.message)
            } else {
                wrong
            });
        }
        object["apiVersion"] = expected.api_version.into();
        object["kind"] = expected.kind.into();
        let version = expected.api_version.rsplit('/').next().unwrap_or_default();
        let kind = expected.kind;
        let refuse = |why: &dyn std::fmt::Display| {
            Status::bad_request(format!("{kind} in version {version:?} cannot be handled as a {kind}: {why}"))
        };
        let mut unknown: Vec<UnknownField> = Vec::new();
        let reset = managed_fields::note_reset(&object);
        let before = quotes.then(|| object.clone());
        conform(ty, &mut object, &mut unknown).map_err(|error| match (&before, &self.quoted) {
            (Some(before), Some(patch)) => {
                let why = patch::conversion_error(ty, before, &error.to_string());
                Status::bad_patch(&patch::go_text(patch), why)
            }
            (Some(before), None) => Status::bad_patch(&before.to_string(), error.to_string()),
            (None, _) => refuse(&error),
        })?;
        if reset.is_some() {
            managed_fields::set(&mut object, reset);
        }
        let found = match self.text {
            // Go's decoder tells of the fields as they come.
            Some(text) if unknown.len() + self.strict.len() > 1 && validation != FieldValidation::Ignore => {
                let all = body::strict_errors(&text, unknown.into_iter().map(|field| field.path));
                Found { warnings: all.clone(), strict: all, unknown: Vec::new() }
            }
            _ => {
                let mut unknown: Vec<String> = unknown.iter().map(ToString::to_string).collect();
                if self.quoted.is_some() {
                    // What a strategic patch makes is a map, whose unknown fields are sorted.
                    unknown.sort_unstable();
                }
                Found { warnings: self.warnings, strict: self.strict, unknown }
            }
        };
        let warnings = found.judge(validation).map_err(|why| match (&before, &self.quoted) {
            (_, Some(patch)) => Status::bad_patch(&patch::go_text(patch), why),
            (Some(before), None) => Status::bad_patch(&before.to_string(), why),
            (None, None) => refuse(&why),
        })?;
        // A short text can stand for many fields with defaults.
        allowance.check(&object)?;
        Ok(Input { object, warnings })
    }

    /// The same for a custom resource: its metadata have the shape of everybody's, its definition's schema drops what
    /// it does not know and fills in what is missing.
    fn finish_custom(
        self,
        expected: Expected<'_>,
        custom: &Custom,
        validation: FieldValidation,
    ) -> Result<Input> {
        let allowance = self.value.allowance();
        let mut object = self.value.into_value();
        if let Err(wrong) = check_custom_kind(&object, expected) {
            return Err(if self.is_patched {
                Status::bad_patch(&object.to_string(), wrong.message)
            } else {
                wrong
            });
        }
        let (version, kind) = (&custom.version, expected.kind);
        let refuse = |why: &dyn std::fmt::Display| {
            Status::bad_request(format!("{kind} in version {version:?} cannot be handled as a {kind}: {why}"))
        };
        let reset = managed_fields::note_reset(&object);
        let before = self.is_patched.then(|| object.to_string());
        let mut unknown: Vec<UnknownField> = Vec::new();
        let metadata_type =
            setpoint_kinds::table().type_named("meta.v1.ObjectMeta").expect("the table has it");
        let metadata = &mut object["metadata"];
        if metadata.is_null() {
            *metadata = Value::Object(serde_json::Map::new());
        }
        conform(metadata_type, metadata, &mut unknown).map_err(|error| match &before {
            Some(before) => Status::bad_patch(before, error.to_string()),
            None => refuse(&error),
        })?;
        if reset.is_some() {
            managed_fields::set(&mut object, reset);
        }
        let dropped = custom.decode(&mut object, self.nulls).map_err(|error| match (error, &before) {
            (Undecodable::Exceeded(exceeded), _) => exceeded.into(),
            (Undecodable::Embedded(error), Some(before)) => Status::bad_patch(before, error.to_string()),
            (Undecodable::Embedded(error), None) => refuse(&error),
        })?;
        let unknown = unknown.iter().map(|field| format!("metadata.{}", field.path)).chain(dropped);
        let unknown = unknown.map(|path| format!("unknown field {path:?}")).collect();
        let found = Found { warnings: self.warnings, strict: self.strict, unknown };
        let warnings = found.judge(validation).map_err(|why| match &before {
            Some(before) => Status::bad_patch(before, why),
            None => refuse(&why),
        })?;
        // A short text can stand for many fields with defaults.
        allowance.check(&object)?;
        Ok(Input { object, warnings })
    }
}

/// What decoding found wrong with the fields of an object.
struct Found {
    warnings: Vec<String>,
    strict: Vec<String>,
    unknown: Vec<String>,
}

impl Found {
    /// The warnings that the client gets, or why the object is refused.
    fn judge(self, validation: FieldValidation) -> Result<Vec<String>, String> {
        let unknown = self.unknown.into_iter();
        match validation {
            FieldValidation::Ignore => Ok(Vec::new()),
            FieldValidation::Warn => Ok(self.warnings.into_iter().chain(unknown).collect()),
            FieldValidation::Strict => {
                let problems: Vec<String> = self.strict.into_iter().chain(unknown).collect();
                match problems.is_empty() {
                    true => Ok(Vec::new()),
                    false => Err(format!("strict decoding error: {}", problems.join(", "))),
                }
            }
        }
    }
}

/// A custom resource must say what it is. Another kind is found by validation, another version here.
fn check_custom_kind(object: &Value, expected: Expected<'_>) -> Result<()> {
    let read = |field: &str| object.get(field).and_then(Value::as_str).unwrap_or_default();
    let missing = |what: &str| Status::bad_request(format!("Object '{what}' is missing in '{object}'"));
    if read("kind").is_empty() {
        return Err(missing("Kind"));
    }
    match read("apiVersion") {
        "" => Err(missing("apiVersion")),
        version if version != expected.api_version => Err(Status::bad_request(format!(
            "the API version in the data ({version}) does not match the expected API version ({})",
            expected.api_version
        ))),
        _ => Ok(()),
    }
}

/// The object says what it is, or says nothing and is taken for what is expected.
fn check_kind(object: &Value, expected: Expected<'_>, ty: &Type) -> Result<()> {
    let read = |field: &str| object.get(field).and_then(Value::as_str).filter(|text| !text.is_empty());
    let (version, kind) = (read("apiVersion"), read("kind"));
    if version == Some(definitions::OLD_VERSION) {
        return Err(Status::bad_request(definitions::OLD_VERSION_HELP));
    }
    if let (Some(version), Some(kind)) = (version, kind) {
        let (group, short) = version.split_once('/').unwrap_or(("", version));
        if setpoint_kinds::table().type_of_kind(group, short, kind).is_none() {
            return Err(Status::bad_request(format!(
                "{kind} in version {short:?} cannot be handled as a {}: no kind {kind:?} is registered for \
                 version {version:?}",
                expected.kind
            )));
        }
    }
    if let Some(kind) = kind.filter(|kind| *kind != expected.kind) {
        let short = version.unwrap_or(expected.api_version).rsplit('/').next().unwrap_or_default();
        return Err(Status::bad_request(format!(
            "{kind} in version {short:?} cannot be handled as a {}: converting ({short}.{kind}) to \
             ({}): unknown conversion",
            expected.kind, ty.name
        )));
    }
    if let Some(version) = version.filter(|version| *version != expected.api_version) {
        return Err(Status::bad_request(format!(
            "the API version in the data ({version}) does not match the expected API version ({})",
            expected.api_version
        )));
    }
    Ok(())
}
