//! The formats of strings that CustomResourceDefinitions know. Other formats are documentation.

use std::borrow::Cow;
use std::net::Ipv6Addr;
use std::sync::LazyLock;

use regex::Regex;

use super::{Structural, Type};
use crate::kinds::formats::{Cidr, parse_ip_sloppy};

/// The format of a node if it means something for its type, else nothing.
pub(super) fn effective(schema: &Structural) -> &str {
    let format = schema.values.format.as_str();
    if format.is_empty() {
        return "";
    }
    let known = match &schema.type_ {
        _ if schema.int_or_string => false,
        None | Some(Type::String) => is_known(format),
        Some(Type::Integer) => matches!(format, "int32" | "int64"),
        Some(Type::Number) => matches!(format, "float" | "double"),
        Some(_) => false,
    };
    if known { format } else { "" }
}

/// Dashes do not matter: `date-time` is `datetime`.
fn normalized(format: &str) -> Cow<'_, str> {
    if format.contains('-') { format.replace('-', "").into() } else { format.into() }
}

/// Whether it is a format of strings.
pub(crate) fn is_known(format: &str) -> bool {
    checker(&normalized(format)).is_some()
}

/// Whether `text` has the format.
pub(super) fn matches(format: &str, text: &str) -> bool {
    checker(&normalized(format)).is_none_or(|check| check(text))
}

fn checker(format: &str) -> Option<fn(&str) -> bool> {
    Some(match format {
        "bsonobjectid" => |text| text.len() == 24 && text.bytes().all(|byte| byte.is_ascii_hexdigit()),
        "uri" => is_request_uri,
        "email" => is_email,
        "hostname" => is_hostname,
        "ipv4" => |text| text.contains('.') && parse_ip_sloppy(text).is_some(),
        "ipv6" => is_ipv6,
        "cidr" => |text| Cidr::parse_sloppy(text).is_some(),
        "mac" => is_mac,
        "uuid" => |text| is_uuid(text, None),
        "uuid3" => |text| is_uuid(text, Some('3')),
        "uuid4" => |text| is_uuid(text, Some('4')),
        "uuid5" => |text| is_uuid(text, Some('5')),
        "isbn" => |text| is_isbn10(text) || is_isbn13(text),
        "isbn10" => is_isbn10,
        "isbn13" => is_isbn13,
        "creditcard" => is_credit_card,
        "ssn" => |text| text.len() == 11 && SSN.is_match(text),
        "hexcolor" => |text| HEX_COLOR.is_match(text),
        "rgbcolor" => |text| RGB_COLOR.is_match(text),
        "byte" => |text| BASE64.is_match(text),
        "password" => |_| true,
        "date" => is_date,
        "duration" => is_duration,
        "datetime" => is_date_time,
        "k8sshortname" => |text| text.len() <= 63 && SHORT_NAME.is_match(text),
        "k8slongname" => |text| text.len() <= 253 && text.split('.').all(|part| SHORT_NAME.is_match(part)),
        _ => return None,
    })
}

fn expression(source: &str) -> Regex {
    Regex::new(source).expect("a constant expression compiles")
}

static SSN: LazyLock<Regex> = LazyLock::new(|| expression("^[0-9]{3}[- ]?[0-9]{2}[- ]?[0-9]{4}$"));
static HEX_COLOR: LazyLock<Regex> = LazyLock::new(|| expression("^#?([0-9a-fA-F]{3}|[0-9a-fA-F]{6})$"));
static RGB_COLOR: LazyLock<Regex> = LazyLock::new(|| {
    let part = r"[\t\n\f\r ]*(0|[1-9][0-9]?|1[0-9][0-9]?|2[0-4][0-9]|25[0-5])[\t\n\f\r ]*";
    expression(&format!(r"^rgb\({part},{part},{part}\)$"))
});
static BASE64: LazyLock<Regex> = LazyLock::new(|| {
    expression("^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{4})$")
});
static SHORT_NAME: LazyLock<Regex> = LazyLock::new(|| expression("^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"));
static CREDIT_CARD: LazyLock<Regex> = LazyLock::new(|| {
    expression(
        "^(?:4[0-9]{12}(?:[0-9]{3})?|5[1-5][0-9]{14}|6(?:011|5[0-9][0-9])[0-9]{12}|3[47][0-9]{13}|\
         3(?:0[0-5]|[68][0-9])[0-9]{11}|(?:2131|1800|35[0-9]{3})[0-9]{11})$",
    )
});
static HOSTNAME: LazyLock<Regex> = LazyLock::new(|| {
    let c = r"a-zA-Z0-9\p{S}\p{L}";
    expression(&format!(
        r"^([{c}]((-?[{c}]{{0,62}})?)|([{c}](([{c}-]{{0,61}}[{c}])?)(\.))+([a-zA-Z\p{{L}}]){{2,63}})$"
    ))
});
static DATE_TIME: LazyLock<Regex> =
    LazyLock::new(|| expression("^([0-9]{2}):([0-9]{2}):([0-9]{2})(.[0-9]+)?(z|([+-][0-9]{2}:[0-9]{2}))$"));
static LOOSE_DURATION: LazyLock<Regex> = LazyLock::new(|| expression(r"([0-9]+)[\t\n\f\r ]*([A-Za-zµ]+)"));
static GO_DURATION: LazyLock<Regex> =
    LazyLock::new(|| expression(r"^[-+]?(0|(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+)$"));

/// What Go's `url.ParseRequestURI` takes: an absolute path, or anything with a scheme.
fn is_request_uri(text: &str) -> bool {
    if text.is_empty() || text.chars().any(|c| c.is_ascii_control()) || !has_sound_escapes(text) {
        return false;
    }
    if text.starts_with('/') || text == "*" {
        return true;
    }
    let Some((scheme, rest)) = text.split_once(':') else { return false };
    let sound = scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c));
    let host = rest.strip_prefix("//").map(|rest| rest.split(['/', '?', '#']).next().unwrap_or_default());
    sound && host.is_none_or(is_authority)
}

fn has_sound_escapes(text: &str) -> bool {
    let path = text.split('?').next().unwrap_or_default().as_bytes();
    let is_escape = |at: usize| {
        path.get(at + 1).is_some_and(u8::is_ascii_hexdigit)
            && path.get(at + 2).is_some_and(u8::is_ascii_hexdigit)
    };
    (0..path.len()).all(|at| path[at] != b'%' || is_escape(at))
}

fn is_authority(authority: &str) -> bool {
    let host = authority.rsplit('@').next().unwrap_or_default();
    let port = match host.rfind(']') {
        Some(end) => &host[end + 1..],
        None => host.find(':').map_or("", |colon| &host[colon..]),
    };
    let sound_port =
        port.is_empty() || (port.starts_with(':') && port[1..].bytes().all(|b| b.is_ascii_digit()));
    sound_port && !host.contains([' ', '<', '>', '"', '\\', '^', '`', '{', '|', '}'])
}

/// What Go's `mail.ParseAddress` takes, without its comments and folded white space.
fn is_email(text: &str) -> bool {
    let text = text.trim();
    let address = match (text.rfind('<'), text.strip_suffix('>')) {
        (Some(open), Some(closed)) => &closed[open + 1..],
        (None, None) => text,
        _ => return false,
    };
    let Some((local, domain)) = address.rsplit_once('@') else { return false };
    let is_atom = |c: char| c.is_alphanumeric() || "!#$%&'*+-/=?^_`{|}~".contains(c) || !c.is_ascii();
    let is_dotted = |part: &str| part.split('.').all(|atom| !atom.is_empty() && atom.chars().all(is_atom));
    let is_quoted = local.len() >= 2 && local.starts_with('"') && local.ends_with('"');
    let is_literal = domain.starts_with('[') && domain.ends_with(']');
    (is_quoted || is_dotted(local)) && (is_literal || is_dotted(domain))
}

fn is_hostname(text: &str) -> bool {
    HOSTNAME.is_match(text) && text.len() <= 255 && text.split('.').all(|part| part.len() <= 63)
}

/// Zones are not part of an address here.
fn is_ipv6(text: &str) -> bool {
    text.contains(':') && text.parse::<Ipv6Addr>().is_ok()
}

fn is_mac(text: &str) -> bool {
    let groups = |separator, width: usize, counts: [usize; 3]| {
        let parts: Vec<&str> = text.split(separator).collect();
        let sound = |part: &&str| part.len() == width && part.bytes().all(|byte| byte.is_ascii_hexdigit());
        counts.contains(&parts.len()) && parts.iter().all(sound)
    };
    groups(':', 2, [6, 8, 20]) || groups('-', 2, [6, 8, 20]) || groups('.', 4, [3, 4, 10])
}

/// Each dash may be left out.
fn is_uuid(text: &str, version: Option<char>) -> bool {
    static UUID: LazyLock<Regex> = LazyLock::new(|| {
        expression(
            "^(?i)[0-9a-f]{8}-?[0-9a-f]{4}-?([0-9a-f])[0-9a-f]{3}-?([0-9a-f])[0-9a-f]{3}-?[0-9a-f]{12}$",
        )
    });
    let Some(parts) = UUID.captures(text) else { return false };
    let variant = matches!(parts[2].to_ascii_lowercase().as_str(), "8" | "9" | "a" | "b");
    match version {
        None => true,
        Some('3') => &parts[1] == "3",
        Some(version) => parts[1].starts_with(version) && variant,
    }
}

/// Without spaces and dashes.
fn compact(text: &str) -> Vec<u8> {
    text.bytes().filter(|byte| !b" \t\n\x0c\r-".contains(byte)).collect()
}

fn is_isbn10(text: &str) -> bool {
    let bytes = compact(text);
    if bytes.len() != 10 || !bytes[..9].iter().all(u8::is_ascii_digit) {
        return false;
    }
    let last = match bytes[9] {
        b'X' => 10,
        digit if digit.is_ascii_digit() => u32::from(digit - b'0'),
        _ => return false,
    };
    let sum: u32 = (1..).zip(&bytes[..9]).map(|(factor, digit)| factor * u32::from(digit - b'0')).sum();
    (sum + 10 * last).is_multiple_of(11)
}

fn is_isbn13(text: &str) -> bool {
    let bytes = compact(text);
    if bytes.len() != 13 || !bytes.iter().all(u8::is_ascii_digit) {
        return false;
    }
    let factors = [1, 3].into_iter().cycle();
    let sum: u32 = factors.zip(&bytes).map(|(factor, digit)| factor * u32::from(digit - b'0')).sum();
    sum.is_multiple_of(10)
}

/// The numbers of the known issuers, with their checksum.
fn is_credit_card(text: &str) -> bool {
    let digits: String = text.chars().filter(char::is_ascii_digit).collect();
    let luhn = |(index, digit): (usize, u8)| {
        let digit = u32::from(digit - b'0');
        if index % 2 == 0 { digit } else { digit * 2 / 10 + digit * 2 % 10 }
    };
    CREDIT_CARD.is_match(&digits)
        && digits.bytes().rev().enumerate().map(luhn).sum::<u32>().is_multiple_of(10)
}

fn is_date(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.len() == 10 && bytes[4] == b'-' && bytes[7] == b'-' && text.parse::<jiff::civil::Date>().is_ok()
}

fn is_date_time(text: &str) -> bool {
    let lower = text.to_lowercase();
    let mut parts = lower.split('t');
    let (Some(date), Some(time)) = (parts.next(), parts.next()) else { return false };
    let in_range = |time: regex::Captures<'_>| &time[1] <= "23" && &time[2] <= "59" && &time[3] <= "59";
    is_date(date) && DATE_TIME.captures(time).is_some_and(in_range)
}

/// Go's durations, or Scala's anywhere in the text: `1h30m`, `3 days`.
fn is_duration(text: &str) -> bool {
    const UNITS: [(&[&str], &str); 8] = [
        (&["ns"], "nano"),
        (&["us", "µs"], "micro"),
        (&["ms"], "milli"),
        (&["s"], "sec"),
        (&["m"], "min"),
        (&["h", "hr"], "hour"),
        (&["d"], "day"),
        (&["w", "wk"], "week"),
    ];
    if GO_DURATION.is_match(text) {
        return true;
    }
    let mut found = false;
    for part in LOOSE_DURATION.captures_iter(text) {
        if part[1].parse::<i64>().is_err() {
            return false;
        }
        let unit = part[2].to_lowercase();
        found |= UNITS.iter().any(|(short, long)| short.contains(&unit.as_str()) || unit.starts_with(long));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_take_what_kube_apiserver_takes() {
        let cases = [
            ("uri", "http://foobar.com?foo=bar", true),
            ("uri", "/abs/test/dir", true),
            ("uri", "./rel", false),
            ("uri", "foobar.com", false),
            ("uri", "mailto:a@b.c", true),
            ("uri", "http://a:b", false),
            ("email", "Joe <joe@example.com>", true),
            ("email", "joe", false),
            ("hostname", "somewhere.com", true),
            ("hostname", "-a.com", false),
            ("hostname", "a", true),
            ("ipv4", "010.0.0.1", true),
            ("ipv4", "::1", false),
            ("ipv6", "::1", true),
            ("ipv6", "1.2.3.4", false),
            ("cidr", "10.0.0.0/8", true),
            ("cidr", "10.0.0.0", false),
            ("mac", "3D:F2:C9:A6:B3:4F", true),
            ("mac", "3D-F2-C9-A6-B3:4F", false),
            ("mac", "0123.4567.89ab", true),
            ("uuid", "a8098c1a-f86e-11da-bd1a-00112444be1e", true),
            ("uuid", "a8098c1af86e11dabd1a00112444be1e", true),
            ("uuid4", "a8098c1a-f86e-11da-bd1a-00112444be1e", false),
            ("uuid4", "025b0d74-00a2-4048-bf57-227c5111bb34", true),
            ("isbn", "978-3-8362-2119-1", true),
            ("isbn10", "3 401 01319 X", true),
            ("isbn10", "3423214121", false),
            ("isbn13", "978 3 8362 2119 0", false),
            ("creditcard", "4220-8554-2622-2389", true),
            ("creditcard", "4220855426213389", false),
            ("ssn", "191-60-2869", true),
            ("ssn", "00-90-8787", false),
            ("hexcolor", "#f00", true),
            ("hexcolor", "#ff", false),
            ("rgbcolor", "rgb(0,  31, 255)", true),
            ("rgbcolor", "rgb(1,349,275)", false),
            ("byte", "U3VzcGVuZGlzc2UgbGVjdHVzIGxlbw==", true),
            ("byte", "12345", false),
            ("password", "", true),
            ("date", "2024-02-29", true),
            ("date", "2023-02-29", false),
            ("date", "20240229", false),
            ("date-time", "2014-12-15T19:30:20.000Z", true),
            ("datetime", "2014-12-15 19:30:20", false),
            ("datetime", "2014-12-15T24:30:20Z", false),
            ("duration", "1h30m", true),
            ("duration", "3 days", true),
            ("duration", "1.5h", true),
            ("duration", "soon", false),
            ("bsonobjectid", "507f1f77bcf86cd799439011", true),
            ("k8s-short-name", "a-b", true),
            ("k8s-short-name", "a.b", false),
            ("k8s-long-name", "a.b", true),
            ("unheard-of", "anything", true),
        ];
        for (format, text, expected) in cases {
            assert_eq!(matches(format, text), expected, "{format} {text}");
        }
    }
}
