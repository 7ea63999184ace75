//! Server-side apply: the body is what its manager wants of an object, in YAML or JSON.

use serde_json::Value;

use super::malformed;
use crate::body;
use crate::bounds::Bounded;
use crate::options::FieldValidation;
use crate::status::{Result, Status};

/// Reads what is applied, and what there is to warn of.
pub(crate) fn decode(patch: &[u8], validation: FieldValidation) -> Result<(Value, Vec<String>)> {
    let decoded = body::parse_yaml(patch).map_err(|bad| bad.status(malformed))?;
    if !decoded.value.is_object() {
        let found = body::go_type(&decoded.value);
        return Err(malformed(&format!(
            "error unmarshaling JSON: while decoding JSON: json: cannot unmarshal {found} into Go value of type \
             map[string]interface {{}}"
        )));
    }
    let problems = decoded.strict_errors();
    let applied = Bounded::new(decoded.value)?.into_value();
    match validation {
        FieldValidation::Strict if !problems.is_empty() => {
            Err(Status::bad_request(format!("error strict decoding patch: {}", problems.join(", "))))
        }
        FieldValidation::Warn => Ok((applied, problems)),
        _ => Ok((applied, Vec::new())),
    }
}
