//! What is written: the type of an object in each of its versions, and which fields a path cannot write.

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::{Map, Value};
use setpoint_kinds::Type;

use super::field_set::FieldSet;
use super::schema::Schema;
use crate::convert;
use crate::request::ResourceRequest;
use crate::resource::Resource;
use crate::server::Core;
use crate::strategy::subresources::Fields;

/// The kind of object that a request writes, and the path that it takes.
#[derive(Clone, Copy)]
pub(crate) struct Target<'a> {
    pub(crate) api_version: &'a str,
    pub(crate) kind: &'a str,
    pub(crate) subresource: &'a str,
    shape: Shape<'a>,
}

#[derive(Clone, Copy)]
enum Shape<'a> {
    /// The resource itself, or a part of it, of a server.
    Resource(&'a Resource, &'a Core),
    /// A kind that is made from the resource: `Scale`.
    Made(&'static Type),
}

impl<'a> Target<'a> {
    /// What a request for a resource or one of its parts writes.
    pub(crate) fn of(core: &'a Core, request: &'a ResourceRequest) -> Target<'a> {
        let resource = &*request.resource;
        Target {
            api_version: resource.api_version(),
            kind: resource.kind(),
            subresource: request.subresource.as_deref().unwrap_or_default(),
            shape: Shape::Resource(resource, core),
        }
    }

    /// What a request for `/scale` writes.
    pub(crate) fn scale(ty: &'static Type) -> Target<'static> {
        Target { api_version: "autoscaling/v1", kind: "Scale", subresource: "scale", shape: Shape::Made(ty) }
    }

    /// The type in the version that is written.
    pub(crate) fn schema(&self) -> Schema<'a> {
        match self.shape {
            Shape::Resource(resource, _) => Schema::of(resource),
            Shape::Made(ty) => Schema::Struct(ty),
        }
    }

    /// Whether somebody can change the type while there are objects.
    pub(crate) fn is_custom(&self) -> bool {
        matches!(self.shape, Shape::Resource(resource, _) if resource.definition().is_some())
    }

    /// An object in which nothing is set.
    pub(crate) fn empty(&self) -> Value {
        let mut object = match self.shape {
            Shape::Resource(resource, _) => {
                resource.ty().map_or_else(|| Value::Object(Map::new()), Type::zero)
            }
            Shape::Made(ty) => ty.zero(),
        };
        object["apiVersion"] = self.api_version.into();
        object["kind"] = self.kind.into();
        object
    }

    /// Another version of the kind; none if it is not served (any more).
    pub(crate) fn version(&self, api_version: &str) -> Option<Version<'a>> {
        if api_version == self.api_version {
            return Some(Version { target: *self, other: None });
        }
        let Shape::Resource(resource, core) = self.shape else { return None };
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let other = core.resource(group, version, resource.plural())?;
        (other.collection() == resource.collection()).then(|| Version { target: *self, other: Some(other) })
    }

    /// Takes from a set what a write on this path cannot change, and so does not own.
    pub(crate) fn filter(&self, set: FieldSet) -> FieldSet {
        let Shape::Resource(resource, _) = self.shape else { return set };
        match resource.owned_fields(self.subresource) {
            Fields::Only(fields) => set.matching(fields),
            Fields::AllBut(fields) if !fields.is_empty() => {
                set.recursive_difference(&FieldSet::of_fields(fields))
            }
            // Who owns replicas is settled on the Scale.
            Fields::AllBut(_) | Fields::Replicas => set,
        }
    }
}

/// A kind in one of its versions.
#[derive(Clone)]
pub(crate) struct Version<'a> {
    target: Target<'a>,
    /// None: the version that is written.
    other: Option<Arc<Resource>>,
}

impl Version<'_> {
    /// The type in this version.
    pub(crate) fn schema(&self) -> Schema<'_> {
        match &self.other {
            None => self.target.schema(),
            Some(resource) => Schema::of(resource),
        }
    }

    /// An object of the version that is written, in this one.
    pub(crate) fn convert<'v>(&self, object: &'v Value) -> Cow<'v, Value> {
        match (&self.other, self.target.shape) {
            (Some(other), Shape::Resource(resource, _)) => {
                Cow::Owned(convert::to_served(other, convert::to_stored(resource, object.clone())))
            }
            _ => Cow::Borrowed(object),
        }
    }

    /// `group/version`.
    pub(crate) fn api_version(&self) -> &str {
        self.other.as_ref().map_or(self.target.api_version, |resource| resource.api_version())
    }

    /// An object of another version, in this one.
    pub(crate) fn convert_from<'v>(&self, from: &Version<'_>, object: &'v Value) -> Cow<'v, Value> {
        if self.api_version() == from.api_version() {
            return Cow::Borrowed(object);
        }
        Cow::Owned(self.convert(&from.convert_back(object.clone())).into_owned())
    }

    /// An object of this version, in another one.
    pub(crate) fn convert_to(&self, to: &Version<'_>, object: Value) -> Value {
        if self.api_version() == to.api_version() {
            return object;
        }
        to.convert(&self.convert_back(object)).into_owned()
    }

    /// An object of this version, in the one that is written.
    pub(crate) fn convert_back(&self, object: Value) -> Value {
        match (&self.other, self.target.shape) {
            (Some(other), Shape::Resource(resource, _)) => {
                convert::to_served(resource, convert::to_stored(other, object))
            }
            _ => object,
        }
    }
}
