//! Amounts of resources as numbers: what is needed to compare them.

/// A quantity in nanos, the finest that Kubernetes keeps. What does not fit is as large as can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Quantity(i128);

impl Quantity {
    pub(crate) const ZERO: Quantity = Quantity(0);
    pub(crate) const ONE: Quantity = Quantity(NANO);

    /// The amount that a canonical text stands for; conforming has made sure that it is one.
    pub(crate) fn parse(text: &str) -> Quantity {
        let digits = text.trim_start_matches(['+', '-']);
        let end = digits.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(digits.len());
        let (number, suffix) = digits.split_at(end);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        let (multiplier, exponent) = scale(suffix);
        let mut value: i128 = 0;
        for digit in whole.bytes().chain(fraction.bytes()) {
            value = value.saturating_mul(10).saturating_add(i128::from(digit - b'0'));
        }
        value = value.saturating_mul(multiplier);
        let exponent =
            exponent.saturating_add(9).saturating_sub(i32::try_from(fraction.len()).unwrap_or(i32::MAX));
        let value = if exponent >= 0 {
            (0..exponent.min(40)).fold(value, |value, _| value.saturating_mul(10))
        } else {
            // What is finer than a nano counts as a whole one.
            (0..exponent.unsigned_abs().min(40)).fold(value, |value, _| (value + 9) / 10)
        };
        Quantity(if text.starts_with('-') { -value } else { value })
    }

    pub(crate) fn is_integer(self) -> bool {
        // Go looks at whole millis, rounded up.
        let millis = self.0.div_euclid(NANO / 1000) + i128::from(self.0.rem_euclid(NANO / 1000) > 0);
        millis % 1000 == 0
    }

    pub(crate) fn is_multiple_of(self, other: Quantity) -> bool {
        other.0 > 0 && self.0 % other.0 == 0
    }

    /// The whole number that is not below it.
    pub(crate) fn whole(self) -> i64 {
        let whole = self.0.div_euclid(NANO) + i128::from(self.0.rem_euclid(NANO) > 0);
        i64::try_from(whole).unwrap_or(i64::MAX)
    }

    pub(crate) fn ratio(self, other: Quantity) -> f64 {
        self.0 as f64 / other.0 as f64
    }

    pub(crate) fn to_f64(self) -> f64 {
        self.0 as f64 / NANO as f64
    }
}

const NANO: i128 = 1_000_000_000;

/// A suffix as a multiplier and a power of ten.
fn scale(suffix: &str) -> (i128, i32) {
    let binary = |power: u32| (1_i128 << (10 * power), 0);
    match suffix {
        "" => (1, 0),
        "n" => (1, -9),
        "u" => (1, -6),
        "m" => (1, -3),
        "k" => (1, 3),
        "M" => (1, 6),
        "G" => (1, 9),
        "T" => (1, 12),
        "P" => (1, 15),
        "E" => (1, 18),
        "Ki" => binary(1),
        "Mi" => binary(2),
        "Gi" => binary(3),
        "Ti" => binary(4),
        "Pi" => binary(5),
        "Ei" => binary(6),
        exponent => (1, exponent.trim_start_matches(['e', 'E']).parse().unwrap_or(0)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_compare_by_their_amount() {
        let ascending =
            ["-1", "0", "1n", "100m", "0.5", "1", "1Ki", "1025", "1e4", "1Mi", "1G", "1Gi", "1E", "1Ei"];
        for pair in ascending.windows(2) {
            assert!(Quantity::parse(pair[0]) < Quantity::parse(pair[1]), "{pair:?}");
        }
        assert_eq!(Quantity::parse("1000m"), Quantity::ONE);
        assert_eq!(Quantity::parse("1.5Gi"), Quantity::parse("1536Mi"));
        assert!(Quantity::parse("2").is_integer() && !Quantity::parse("2500m").is_integer());
        assert!(Quantity::parse("1e2147483646") > Quantity::ONE);
        assert!(Quantity::parse("4Mi").is_multiple_of(Quantity::parse("2Mi")));
    }
}
