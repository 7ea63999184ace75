//! Bounds of numbers.

use serde_json::Number;

use super::outcome::{Failure, Outcome};
use super::{Path, is_only};
use crate::schema::{Structural, Type};

/// Minimum, maximum, multiples, and whether the number fits its format.
pub(super) fn validate(schema: &Structural, format: &str, number: &Number, path: Path<'_>) -> Outcome {
    let mut outcome = Outcome::default();
    let range = Range::of(schema, format);
    let value = Numeric::of(number);
    if let Some(problem) = range.problem(value, "Checked", path) {
        outcome.fail(problem);
    }
    let values = &schema.values;
    if let Some(factor) = values.multiple_of {
        let problem = range.problem(Numeric::Float(factor), "MultipleOf", path);
        let compared = Compared::new(value, factor, problem.is_none());
        problem.into_iter().for_each(|problem| outcome.fail(problem));
        check_multiple(compared, number, path).into_iter().for_each(|failure| outcome.fail(failure));
    }
    if let Some(least) = values.minimum {
        let problem = range.problem(Numeric::Float(least), "Minimum boundary", path);
        let compared = Compared::new(value, least, problem.is_none());
        problem.into_iter().for_each(|problem| outcome.fail(problem));
        let words = if values.exclusive_minimum { "greater than" } else { "greater than or equal to" };
        if compared.is_less() || (values.exclusive_minimum && compared.is_equal()) {
            outcome.fail(Failure::number(path, number, format!("should be {words} {}", compared.bound())));
        }
    }
    if let Some(most) = values.maximum {
        let problem = range.problem(Numeric::Float(most), "Maximum boundary", path);
        let compared = Compared::new(value, most, problem.is_none());
        problem.into_iter().for_each(|problem| outcome.fail(problem));
        let words = if values.exclusive_maximum { "less than" } else { "less than or equal to" };
        if compared.is_greater() || (values.exclusive_maximum && compared.is_equal()) {
            outcome.fail(Failure::number(path, number, format!("should be {words} {}", compared.bound())));
        }
    }
    outcome.passed += 1;
    outcome
}

#[derive(Clone, Copy, Debug)]
enum Numeric {
    Integer(i64),
    Float(f64),
}

impl Numeric {
    fn of(number: &Number) -> Numeric {
        match number.as_i64() {
            Some(integer) => Numeric::Integer(integer),
            None => Numeric::Float(number.as_f64().unwrap_or(f64::NAN)),
        }
    }

    fn as_f64(self) -> f64 {
        match self {
            Numeric::Integer(integer) => integer as f64,
            Numeric::Float(float) => float,
        }
    }
}

/// A value next to a bound, both integers if the value is one and the bound is as wide as its type.
enum Compared {
    Integers(i64, i64),
    Floats(f64, f64),
}

impl Compared {
    fn new(value: Numeric, bound: f64, bound_fits: bool) -> Compared {
        match value {
            Numeric::Integer(value) if bound_fits => Compared::Integers(value, bound as i64),
            value => Compared::Floats(value.as_f64(), bound),
        }
    }

    fn is_less(&self) -> bool {
        match self {
            Compared::Integers(value, bound) => value < bound,
            Compared::Floats(value, bound) => value < bound,
        }
    }

    fn is_greater(&self) -> bool {
        match self {
            Compared::Integers(value, bound) => value > bound,
            Compared::Floats(value, bound) => value > bound,
        }
    }

    fn is_equal(&self) -> bool {
        match self {
            Compared::Integers(value, bound) => value == bound,
            Compared::Floats(value, bound) => value == bound,
        }
    }

    fn bound(&self) -> String {
        match self {
            Compared::Integers(_, bound) => bound.to_string(),
            Compared::Floats(_, bound) => go_float(*bound),
        }
    }
}

fn check_multiple(compared: Compared, number: &Number, path: Path<'_>) -> Option<Failure> {
    let (positive, multiple) = match compared {
        Compared::Integers(value, factor) => (factor > 0, factor > 0 && value % factor == 0),
        Compared::Floats(value, factor) => {
            let times = if factor < 1.0 { 1.0 / factor * value } else { value / factor };
            (factor > 0.0, is_whole(times))
        }
    };
    let factor = compared.bound();
    if !positive {
        let message = format!("factor MultipleOf declared for {path} must be positive: {factor}");
        return Some(Failure::nowhere(message));
    }
    (!multiple).then(|| Failure::number(path, number, format!("should be a multiple of {factor}")))
}

/// What fits the type and format of a schema.
enum Range {
    Int32,
    Int64 { format: &'static str },
    Float32,
    Any,
}

impl Range {
    fn of(schema: &Structural, format: &str) -> Range {
        if is_only(schema, &Type::Integer) {
            return match format {
                "int32" => Range::Int32,
                "int64" => Range::Int64 { format: "int64" },
                _ => Range::Int64 { format: "" },
            };
        }
        if is_only(schema, &Type::Number) && format == "float" { Range::Float32 } else { Range::Any }
    }

    fn problem(&self, value: Numeric, what: &str, path: Path<'_>) -> Option<Failure> {
        let integer = match value {
            Numeric::Integer(integer) => Some(integer),
            // 2^63 itself is the first that does not fit.
            Numeric::Float(float)
                if float.fract() == 0.0 && (-(2f64.powi(63))..2f64.powi(63)).contains(&float) =>
            {
                Some(float as i64)
            }
            Numeric::Float(_) => None,
        };
        let (fits, type_, format) = match self {
            Range::Int32 => (integer.is_some_and(|i| i32::try_from(i).is_ok()), "integer", "int32"),
            Range::Int64 { format } => (integer.is_some(), "integer", *format),
            Range::Float32 => ((value.as_f64() as f32).is_finite(), "number", "float"),
            Range::Any => (true, "", ""),
        };
        if fits {
            return None;
        }
        let format =
            if format.is_empty() { "(default format)".to_owned() } else { format!("with format {format}") };
        Some(Failure::nowhere(format!("{what} value must be of type {type_} {format} in {path}")))
    }
}

/// Whether a float stands for an integer that JSON can carry exactly, give or take rounding.
pub(super) fn is_whole(float: f64) -> bool {
    const MOST: f64 = ((1u64 << 53) - 1) as f64;
    if !float.is_finite() || float.abs() > MOST {
        return false;
    }
    let whole = float.trunc();
    if float == whole {
        return true;
    }
    if float < 0.0 || whole == 0.0 {
        return false;
    }
    (float - whole).abs() / (float.abs() + whole.abs()) < 1e-9
}

/// A float as Go's `%v` writes it.
pub(super) fn go_float(float: f64) -> String {
    if float == 0.0 {
        return "0".to_owned();
    }
    let exponent = float.abs().log10().floor();
    if (-4.0..21.0).contains(&exponent) {
        return float.to_string();
    }
    let text = format!("{float:e}");
    let Some((digits, exponent)) = text.split_once('e') else { return text };
    let (sign, exponent) = match exponent.strip_prefix('-') {
        Some(exponent) => ('-', exponent),
        None => ('+', exponent),
    };
    format!("{digits}e{sign}{exponent:0>2}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_print_as_in_go() {
        let cases = [
            (1.0, "1"),
            (1.5, "1.5"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
            (1e20, "100000000000000000000"),
            (1e21, "1e+21"),
        ];
        for (float, text) in cases {
            assert_eq!(go_float(float), text);
        }
    }

    #[test]
    fn rounding_does_not_keep_a_number_from_being_whole() {
        assert!(is_whole(3.0) && is_whole(2.000_000_000_1) && is_whole(-7.0));
        assert!(!is_whole(3.1) && !is_whole(1e300) && !is_whole(0.5) && !is_whole(-1.5));
    }
}
