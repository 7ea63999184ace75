//! Whether two values are the same, for a price.

use kube_cel::cel::Value;

use super::evaluate::{Evaluator, Failure};
use super::value::in_optional;

impl Evaluator<'_> {
    /// Numbers are equal across types; lists and maps item by item.
    pub(super) fn equal(&mut self, a: &Value, b: &Value) -> Result<bool, Failure> {
        self.pay(1)?;
        match (a, b) {
            (Value::List(a), Value::List(b)) => {
                if a.len() != b.len() {
                    return Ok(false);
                }
                for (a, b) in a.iter().zip(b.iter()) {
                    if !self.equal(a, b)? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            (Value::Map(a), Value::Map(b)) => {
                if a.map.len() != b.map.len() {
                    return Ok(false);
                }
                for (key, value) in a.map.iter() {
                    match b.map.get(key) {
                        Some(other) if self.equal(value, other)? => {}
                        _ => return Ok(false),
                    }
                }
                Ok(true)
            }
            (Value::String(a), Value::String(b)) => {
                self.pay(a.len().min(b.len()) as u64 / 10)?;
                Ok(a == b)
            }
            (Value::Bytes(a), Value::Bytes(b)) => {
                self.pay(a.len().min(b.len()) as u64 / 10)?;
                Ok(a == b)
            }
            (a, b) => match (in_optional(a), in_optional(b)) {
                (Some(Some(a)), Some(Some(b))) => self.equal(a, b),
                (Some(None), Some(None)) => Ok(true),
                (Some(_), _) | (_, Some(_)) => Ok(false),
                (None, None) => Ok(same_scalar(a, b)),
            },
        }
    }
}

/// Types that differ are no error, but not equal.
fn same_scalar(a: &Value, b: &Value) -> bool {
    let is_container = |value: &Value| matches!(value, Value::List(_) | Value::Map(_));
    if is_container(a) || is_container(b) {
        return false;
    }
    match (number(a), number(b)) {
        (Some(_), Some(_)) => a.partial_cmp(b) == Some(std::cmp::Ordering::Equal),
        (None, None) => std::mem::discriminant(a) == std::mem::discriminant(b) && a == b,
        _ => false,
    }
}

fn number(value: &Value) -> Option<()> {
    matches!(value, Value::Int(_) | Value::UInt(_) | Value::Float(_)).then_some(())
}
