//! Conversion reviews → objects, one at a time.

use std::sync::Arc;

use kube::core::DynamicObject;
use serde_json::{Value, json};

use super::{Handler, NotAReview};

/// Why an object cannot be converted; whoever asked for it reads this.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ConversionError {
    message: String,
}

impl ConversionError {
    /// An error in these words.
    pub fn new(message: impl Into<String>) -> ConversionError {
        ConversionError { message: message.into() }
    }
}

impl From<serde_json::Error> for ConversionError {
    fn from(error: serde_json::Error) -> ConversionError {
        ConversionError::new(error.to_string())
    }
}

/// A handler that converts.
pub(super) fn converting<Fut>(
    handler: impl Fn(DynamicObject, String) -> Fut + Send + Sync + 'static,
) -> Handler
where
    Fut: Future<Output = Result<DynamicObject, ConversionError>> + Send + 'static,
{
    let handler = Arc::new(handler);
    Arc::new(move |mut review| {
        let handler = Arc::clone(&handler);
        Box::pin(async move {
            let (uid, wanted) = (text(&review, "uid")?, text(&review, "desiredAPIVersion")?);
            let objects = match review["request"]["objects"].take() {
                Value::Array(objects) => objects,
                _ => return Err(refuse("its request has no objects")),
            };
            let mut converted = Vec::with_capacity(objects.len());
            for object in objects {
                match convert(&*handler, object, &wanted).await {
                    Ok(object) => converted.push(object),
                    Err(error) => return Ok(answer(&uid, Vec::new(), Some(&error))),
                }
            }
            Ok(answer(&uid, converted, None))
        })
    })
}

async fn convert<Fut>(
    handler: &impl Fn(DynamicObject, String) -> Fut,
    object: Value,
    wanted: &str,
) -> Result<Value, ConversionError>
where
    Fut: Future<Output = Result<DynamicObject, ConversionError>>,
{
    if object["apiVersion"] == wanted {
        return Ok(object);
    }
    let mut converted = handler(serde_json::from_value(object)?, wanted.to_owned()).await?;
    if let Some(types) = &mut converted.types {
        wanted.clone_into(&mut types.api_version);
    }
    Ok(serde_json::to_value(converted)?)
}

fn refuse(why: &str) -> NotAReview {
    NotAReview(format!("this is not a ConversionReview of apiextensions.k8s.io/v1: {why}"))
}

fn text(review: &Value, field: &str) -> Result<String, NotAReview> {
    if review["kind"] != "ConversionReview" || review["apiVersion"] != "apiextensions.k8s.io/v1" {
        return Err(refuse(&format!("it is {} of {}", review["kind"], review["apiVersion"])));
    }
    let found = review["request"][field].as_str();
    Ok(found.ok_or_else(|| refuse(&format!("its request has no {field}")))?.to_owned())
}

fn answer(uid: &str, converted: Vec<Value>, error: Option<&ConversionError>) -> Value {
    let result = match error {
        None => json!({"status": "Success"}),
        Some(error) => json!({"status": "Failure", "message": error.to_string()}),
    };
    json!({
        "kind": "ConversionReview",
        "apiVersion": "apiextensions.k8s.io/v1",
        "response": {"uid": uid, "result": result, "convertedObjects": converted}
    })
}
