//! Resource quantities in the form that Go gives them.
//!
//! A quantity that Go considers canonical keeps its text (`+1`, `05` and `12.345` included); any
//! other one is written anew: the largest suffix that needs no fraction. Some corners look odd, such
//! as 10^24, which has no suffix and becomes `1`; they are Go's, and the vectors in the tests pin them.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};

/// Why a text is no quantity. The messages are those that clients know.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum QuantityError {
    /// Characters in places where none may be.
    #[error("quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'")]
    Format,
    /// The suffix is unknown.
    #[error("unable to parse quantity's suffix")]
    Suffix,
}

/// How a quantity is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Format {
    #[default]
    Decimal,
    Exponent,
    Binary,
}

const DECIMAL_SUFFIXES: [(i32, &str); 10] =
    [(-9, "n"), (-6, "u"), (-3, "m"), (0, ""), (3, "k"), (6, "M"), (9, "G"), (12, "T"), (15, "P"), (18, "E")];
const BINARY_SUFFIXES: [&str; 6] = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];

/// The canonical text of a quantity; `None` when `text` is canonical already.
///
/// ```
/// use setpoint_kinds::canonical_quantity;
/// assert_eq!(canonical_quantity("1024Mi").unwrap().as_deref(), Some("1Gi"));
/// assert_eq!(canonical_quantity("500m").unwrap(), None);
/// assert!(canonical_quantity("lots").is_err());
/// ```
pub fn canonical_quantity(text: &str) -> Result<Option<String>, QuantityError> {
    if text == "0" {
        return Ok(None);
    }
    let parts = Parts::scan(text)?;
    let (format, exponent) = suffix(parts.suffix)?;
    if parts.keeps_text(format, exponent) {
        return Ok(None);
    }
    let canonical = Amount::new(&parts, format, exponent).canonical();
    Ok((canonical != text).then_some(canonical))
}

/// What a quantity amounts to, in nanos, the finest that Kubernetes keeps. What does not fit is as large as can be.
///
/// ```
/// use setpoint_kinds::quantity_nanos;
/// assert_eq!(quantity_nanos("500m"), Ok(500_000_000));
/// assert_eq!(quantity_nanos("1Ki"), Ok(1_024_000_000_000));
/// assert_eq!(quantity_nanos("-1.5"), quantity_nanos("-1500m"));
/// assert!(quantity_nanos("lots").is_err());
/// ```
pub fn quantity_nanos(text: &str) -> Result<i128, QuantityError> {
    let parts = Parts::scan(text)?;
    let (format, exponent) = suffix(parts.suffix)?;
    let amount = Amount::new(&parts, format, exponent);
    let digits = amount.digits.iter().map(|digit| i128::from(*digit));
    let number = digits.fold(0i128, |number, digit| number.saturating_mul(10).saturating_add(digit));
    // Rounding has made sure that nothing is finer than a nano.
    let power = (9 - amount.scale).clamp(0, 40);
    let nanos = (0..power).fold(number, |number, _| number.saturating_mul(10));
    Ok(if amount.negative { -nanos } else { nanos })
}

const NANO: i128 = 1_000_000_000;

/// An amount of a resource: what it comes to, and how it is written. Quantities compare by their amounts. Sums that do
/// not fit are as large as can be.
///
/// ```
/// use setpoint_kinds::Quantity;
///
/// let sum = Quantity::parse("512Mi").unwrap().saturating_add(Quantity::parse("1536Mi").unwrap());
/// assert_eq!(sum.to_string(), "2Gi");
/// assert!(Quantity::parse("1500m").unwrap() == Quantity::parse("1.5").unwrap());
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Quantity {
    nanos: i128,
    format: Format,
}

impl Quantity {
    /// Nothing.
    pub const ZERO: Quantity = Quantity::whole_number(0);
    /// One.
    pub const ONE: Quantity = Quantity::whole_number(1);

    /// Reads a quantity.
    pub fn parse(text: &str) -> Result<Quantity, QuantityError> {
        let nanos = quantity_nanos(text)?;
        let (format, _) = suffix(Parts::scan(text)?.suffix)?;
        Ok(Quantity { nanos, format })
    }

    /// The amount that a text stands for in an object that conforms to its kind; nothing if it is no quantity.
    pub fn of(text: &str) -> Quantity {
        Quantity::parse(text).unwrap_or_default()
    }

    /// A number of things.
    pub const fn whole_number(number: i64) -> Quantity {
        Quantity { nanos: number as i128 * NANO, format: Format::Decimal }
    }

    /// A number of thousandths.
    pub const fn from_millis(millis: i64) -> Quantity {
        Quantity { nanos: millis as i128 * (NANO / 1000), format: Format::Decimal }
    }

    /// The same, written with `Ki`, `Mi` and so on where that needs no fraction.
    #[must_use]
    pub const fn in_binary(self) -> Quantity {
        Quantity { format: Format::Binary, ..self }
    }

    /// The amount in nanos.
    pub const fn nanos(self) -> i128 {
        self.nanos
    }

    /// The thousandths, rounded up as Go does.
    pub fn millis(self) -> i64 {
        rounded_up(self.nanos, NANO / 1000)
    }

    /// The smallest whole number that is not below it.
    pub fn whole(self) -> i64 {
        rounded_up(self.nanos, NANO)
    }

    /// Whether it is a whole number. Go looks at thousandths, rounded up.
    pub fn is_integer(self) -> bool {
        self.millis() % 1000 == 0
    }

    /// The same, raised to a whole number.
    #[must_use]
    pub fn round_up(self) -> Quantity {
        let rest = self.nanos.rem_euclid(NANO);
        let up = if rest == 0 { 0 } else { NANO - rest };
        Quantity { nanos: self.nanos.saturating_add(up), ..self }
    }

    /// The sum, written as the first one is, unless that is zero. It stops at the ends of the range.
    #[must_use]
    pub fn saturating_add(self, other: Quantity) -> Quantity {
        let format = if self.is_zero() { other.format } else { self.format };
        Quantity { nanos: self.nanos.saturating_add(other.nanos), format }
    }

    /// The difference, written in the same way.
    #[must_use]
    pub fn saturating_sub(self, other: Quantity) -> Quantity {
        let format = if self.is_zero() { other.format } else { self.format };
        Quantity { nanos: self.nanos.saturating_sub(other.nanos), format }
    }

    /// Whether it is so many times another one.
    pub fn is_multiple_of(self, other: Quantity) -> bool {
        other.nanos > 0 && self.nanos % other.nanos == 0
    }

    /// Whether it is nothing.
    pub fn is_zero(self) -> bool {
        self.nanos == 0
    }

    /// How many times another one it is.
    pub fn ratio(self, other: Quantity) -> f64 {
        self.nanos as f64 / other.nanos as f64
    }

    /// The amount as a number.
    pub fn to_f64(self) -> f64 {
        self.nanos as f64 / NANO as f64
    }
}

fn rounded_up(nanos: i128, unit: i128) -> i64 {
    let units = nanos.div_euclid(unit) + i128::from(nanos.rem_euclid(unit) > 0);
    i64::try_from(units).unwrap_or(if units < 0 { i64::MIN } else { i64::MAX })
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Quantity) -> bool {
        self.nanos == other.nanos
    }
}

impl Eq for Quantity {}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Quantity) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Quantity) -> Ordering {
        self.nanos.cmp(&other.nanos)
    }
}

impl Hash for Quantity {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.nanos.hash(state);
    }
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = self.nanos.unsigned_abs().to_string();
        let mut amount = Amount {
            negative: self.nanos < 0,
            digits: digits.bytes().map(|byte| byte - b'0').collect(),
            scale: 9,
            format: self.format,
        };
        amount.strip_leading_zeros();
        f.write_str(&amount.canonical())
    }
}

/// The pieces of a quantity's text.
struct Parts<'a> {
    negative: bool,
    /// The integer digits without leading zeros, but at least `0`.
    whole: &'a str,
    fraction: &'a str,
    suffix: &'a str,
}

impl<'a> Parts<'a> {
    fn scan(text: &'a str) -> Result<Self, QuantityError> {
        if text.is_empty() {
            return Err(QuantityError::Format);
        }
        let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
        let (whole, rest) = split_digits(unsigned.trim_start_matches('0'));
        let (fraction, suffix) = match rest.strip_prefix('.') {
            Some(rest) => split_digits(rest),
            None => ("", rest),
        };
        let letters = suffix.trim_start_matches(|letter| "eEinumkKMGTP".contains(letter));
        let power = letters.strip_prefix(['+', '-']).unwrap_or(letters);
        if !power.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(QuantityError::Format);
        }
        let whole = if whole.is_empty() { "0" } else { whole };
        Ok(Self { negative: text.starts_with('-'), whole, fraction, suffix })
    }

    /// Whether Go keeps the text instead of writing the number anew.
    fn keeps_text(&self, format: Format, exponent: i32) -> bool {
        let digits = self.whole.len() + self.fraction.len();
        match format {
            Format::Binary => {
                // Numbers with more bits than this take a path without the shortcut.
                let precision = 14 - self.whole.len() as i64 - i64::from(exponent) * 3 / 10;
                let value: u64 = self.whole.parse().unwrap_or(0);
                self.fraction.is_empty() && precision >= 0 && !value.is_multiple_of(8)
            }
            Format::Decimal | Format::Exponent => {
                let scale = i64::from(exponent) - self.fraction.len() as i64;
                let last = if self.fraction.is_empty() { self.whole } else { self.fraction };
                let thousands = match last.len() {
                    0..3 => {
                        let joined = format!("{}{}", self.whole, self.fraction);
                        joined.ends_with("000")
                    }
                    _ => last.ends_with("000"),
                };
                digits <= 18 && scale >= -9 && scale % 3 == 0 && !thousands && !self.whole.starts_with('0')
            }
        }
    }
}

fn split_digits(text: &str) -> (&str, &str) {
    let end = text.bytes().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len());
    text.split_at(end)
}

fn suffix(text: &str) -> Result<(Format, i32), QuantityError> {
    if let Some((exponent, _)) = DECIMAL_SUFFIXES.iter().find(|(_, suffix)| *suffix == text) {
        return Ok((Format::Decimal, *exponent));
    }
    if let Some(at) = BINARY_SUFFIXES.iter().position(|suffix| *suffix == text) {
        return Ok((Format::Binary, (at as i32 + 1) * 10));
    }
    let power = text.strip_prefix(['e', 'E']).ok_or(QuantityError::Suffix)?;
    let power: i64 = power.parse().map_err(|_| QuantityError::Suffix)?;
    // Go keeps the low 32 bits.
    Ok((Format::Exponent, power as i32))
}

/// A decimal number: `digits` × 10^-`scale`.
struct Amount {
    negative: bool,
    /// Most significant first, each 0 to 9, no leading zeros; empty for zero.
    digits: Vec<u8>,
    scale: i64,
    format: Format,
}

impl Amount {
    fn new(parts: &Parts<'_>, format: Format, exponent: i32) -> Self {
        let digits = parts.whole.bytes().chain(parts.fraction.bytes()).map(|byte| byte - b'0').collect();
        let scale = parts.fraction.len() as i64;
        let mut amount = Self { negative: parts.negative, digits, scale, format };
        if format == Format::Binary {
            (0..exponent).for_each(|_| double(&mut amount.digits));
        } else {
            amount.scale -= i64::from(exponent);
        }
        amount.strip_leading_zeros();
        amount.round_up_to_nano();
        if format == Format::Binary {
            amount.cap();
        }
        amount
    }

    fn strip_leading_zeros(&mut self) {
        let zeros = self.digits.iter().take_while(|digit| **digit == 0).count();
        self.digits.drain(..zeros);
    }

    /// Nothing finer than a nano is kept, and nothing is rounded down to zero.
    fn round_up_to_nano(&mut self) {
        if self.scale <= 9 || self.digits.is_empty() {
            return;
        }
        let drop = (self.scale - 9).min(self.digits.len() as i64) as usize;
        let dropped = self.digits.split_off(self.digits.len() - drop);
        self.scale = 9;
        if dropped.iter().any(|digit| *digit != 0) {
            increment(&mut self.digits);
        }
    }

    /// Binary quantities end at the largest 64-bit integer.
    fn cap(&mut self) {
        const MAX: &str = "9223372036854775807";
        if self.cmp_integer(MAX) == Ordering::Greater {
            self.digits = MAX.bytes().map(|byte| byte - b'0').collect();
            self.scale = 0;
        }
    }

    /// Compares the magnitude with a positive integer without leading zeros.
    fn cmp_integer(&self, integer: &str) -> Ordering {
        let whole = self.digits.len() as i64 - self.scale;
        whole.cmp(&(integer.len() as i64)).then_with(|| {
            let mine = self.digits.iter().copied().chain(std::iter::repeat(0));
            let theirs = integer.bytes().map(|byte| byte - b'0');
            let order = mine.take(integer.len()).cmp(theirs);
            let fraction = self.digits.iter().skip(integer.len()).any(|digit| *digit != 0);
            order.then(if fraction { Ordering::Greater } else { Ordering::Equal })
        })
    }

    fn canonical(mut self) -> String {
        if self.digits.is_empty() {
            return "0".to_owned();
        }
        let zeros = self.digits.iter().rev().take_while(|digit| **digit == 0).count();
        self.digits.truncate(self.digits.len() - zeros);
        self.scale -= zeros as i64;
        if self.format == Format::Binary {
            if self.scale <= 0 && self.cmp_integer("1024") != Ordering::Less {
                return self.binary();
            }
            self.format = Format::Decimal;
        }
        let exponent = -self.scale;
        let padding = exponent.rem_euclid(3);
        self.digits.extend((0..padding).map(|_| 0));
        let exponent = exponent - padding;
        let suffix = match self.format {
            Format::Exponent if exponent != 0 => format!("e{exponent}"),
            Format::Exponent => String::new(),
            _ => DECIMAL_SUFFIXES
                .iter()
                .find(|(power, _)| i64::from(*power) == exponent)
                .map_or(String::new(), |(_, suffix)| (*suffix).to_owned()),
        };
        self.text(&suffix)
    }

    fn binary(self) -> String {
        let zeros = usize::try_from(-self.scale).unwrap_or(0);
        let mut value = self
            .digits
            .iter()
            .copied()
            .chain(std::iter::repeat_n(0, zeros))
            .fold(0_u64, |value, digit| value.saturating_mul(10).saturating_add(u64::from(digit)));
        let mut suffix = "";
        for larger in BINARY_SUFFIXES {
            if !value.is_multiple_of(1024) {
                break;
            }
            value /= 1024;
            suffix = larger;
        }
        format!("{}{value}{suffix}", if self.negative { "-" } else { "" })
    }

    fn text(&self, suffix: &str) -> String {
        let sign = self.negative.then_some('-');
        let digits = self.digits.iter().map(|digit| char::from(b'0' + digit));
        sign.into_iter().chain(digits).chain(suffix.chars()).collect()
    }
}

fn double(digits: &mut Vec<u8>) {
    let mut carry = 0;
    for digit in digits.iter_mut().rev() {
        let doubled = *digit * 2 + carry;
        *digit = doubled % 10;
        carry = doubled / 10;
    }
    if carry > 0 {
        digits.insert(0, carry);
    }
}

fn increment(digits: &mut Vec<u8>) {
    for digit in digits.iter_mut().rev() {
        if *digit < 9 {
            *digit += 1;
            return;
        }
        *digit = 0;
    }
    digits.insert(0, 1);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_quantity_reads_as_go_writes_it() {
        for line in include_str!("../tests/data/quantities.txt").lines() {
            let (input, expected) = line.split_once('\t').expect("two columns");
            let found = match canonical_quantity(input.trim()) {
                Ok(canonical) => canonical.unwrap_or_else(|| input.trim().to_owned()),
                Err(error) => format!("!{error}"),
            };
            assert_eq!(found, expected, "of {input}");
        }
    }

    #[test]
    fn quantities_compare_by_their_amount() {
        let parse = |text: &str| Quantity::parse(text).unwrap();
        let ascending =
            ["-1", "0", "1n", "100m", "0.5", "1", "1Ki", "1025", "1e4", "1Mi", "1G", "1Gi", "1E", "1Ei"];
        for pair in ascending.windows(2) {
            assert!(parse(pair[0]) < parse(pair[1]), "{pair:?}");
        }
        assert_eq!(parse("1000m"), Quantity::ONE);
        assert_eq!(parse("1.5Gi"), parse("1536Mi"));
        assert!(parse("2").is_integer() && !parse("2500m").is_integer());
        assert!(parse("1e2147483646") > Quantity::ONE);
        assert!(parse("4Mi").is_multiple_of(parse("2Mi")));
        assert_eq!((parse("1n").millis(), parse("1001m").whole(), parse("-1500m").whole()), (1, 2, -1));
        assert_eq!(parse("1001m").round_up(), parse("2"));
    }

    #[test]
    fn sums_are_written_as_go_writes_them() {
        let parse = |text: &str| Quantity::parse(text).unwrap();
        for (a, b, sum) in [
            ("500m", "500m", "1"),
            ("1Gi", "512Mi", "1536Mi"),
            ("0", "2Gi", "2Gi"),
            ("1Gi", "1k", "1073742824"),
            ("1k", "1Ki", "2024"),
            ("1e3", "500m", "1000500e-3"),
            ("1Gi", "-1Gi", "0"),
            ("100m", "-200m", "-100m"),
        ] {
            assert_eq!(parse(a).saturating_add(parse(b)).to_string(), sum, "{a} + {b}");
        }
        assert_eq!(parse("2Gi").saturating_sub(parse("512Mi")).to_string(), "1536Mi");
        assert_eq!(Quantity::from_millis(2_097_152_000).in_binary().to_string(), "2Mi");
        assert_eq!(Quantity::from_millis(1500).in_binary().to_string(), "1500m");
    }

    #[test]
    fn a_huge_exponent_costs_nothing() {
        assert_eq!(canonical_quantity("1e2147483646").unwrap(), None);
        assert_eq!(canonical_quantity("5e-2147483647").unwrap().as_deref(), Some("1e-9"));
    }

    proptest::proptest! {
        #[test]
        fn the_canonical_form_is_canonical(text in "[+-]?[0-9]{1,25}(\\.[0-9]{0,25})?(m|k|Ki|Gi|Ei|e[0-9]|)") {
            let once = canonical_quantity(&text).unwrap().unwrap_or(text);
            let twice = canonical_quantity(&once).unwrap();
            proptest::prop_assert!(twice.is_none() || twice.as_deref() == Some(&once), "{once} {twice:?}");
        }
    }
}
