//! Label and field selectors, as the query parameters of list, watch and deletecollection carry them.

mod field;
mod label;

pub(crate) use field::{FieldLabels, FieldSelector};
pub(crate) use label::LabelSelector;
