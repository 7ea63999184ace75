//! What texts inside objects may look like: ports, addresses, keys of config maps. Every check returns the
//! problems in kube-apiserver's words, as those of `metadata::names` do; none means that the text is fine.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::metadata::names::{dns1123_subdomain, is_dns1123_label, is_dns1123_subdomain};

const MAX_SUBDOMAIN: usize = 253;

pub(crate) const NOT_NEGATIVE: &str = "must be greater than or equal to 0";
pub(crate) const PORT_RANGE: &str = "must be between 1 and 65535, inclusive";
pub(crate) const ID_RANGE: &str = "must be between 0 and 2147483647, inclusive";

/// The name of a port of a container, or of a target port.
pub(crate) fn port_name(name: &str) -> Vec<String> {
    let mut problems = Vec::new();
    let mut wrong = |text: &str| problems.push(text.to_owned());
    if name.len() > 15 {
        wrong("must be no more than 15 characters");
    }
    let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    if name.is_empty() || !name.bytes().all(allowed) {
        wrong("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)");
    }
    if !name.bytes().any(|byte| byte.is_ascii_lowercase()) {
        wrong("must contain at least one letter (a-z)");
    }
    if name.contains("--") {
        wrong("must not contain consecutive hyphens");
    }
    if name.starts_with('-') || name.ends_with('-') {
        wrong("must not begin or end with a hyphen");
    }
    problems
}

/// `25%`
pub(crate) fn percent(text: &str) -> Vec<String> {
    if percent_value(text).is_some() {
        return Vec::new();
    }
    vec![
        "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex \
         used for validation is '[0-9]+%')"
            .to_owned(),
    ]
}

/// The number of a percentage.
pub(crate) fn percent_value(text: &str) -> Option<i64> {
    let digits = text.strip_suffix('%')?;
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| digits.parse().unwrap_or(i64::MAX))
}

pub(crate) fn http_header_name(name: &str) -> Vec<String> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    if !name.is_empty() && name.bytes().all(allowed) {
        return Vec::new();
    }
    vec![
        "a valid HTTP header must consist of alphanumeric characters or '-' (e.g. 'X-Header-Name', regex used for \
         validation is '[-A-Za-z0-9]+')"
            .to_owned(),
    ]
}

/// The name of an environment variable: anything that can be printed, but no equals sign.
pub(crate) fn environment_name(name: &str) -> Vec<String> {
    if name.is_empty() {
        return vec!["environment variable name must be non-empty".to_owned()];
    }
    if name.bytes().all(|byte| (b' '..=b'~').contains(&byte) && byte != b'=') {
        return Vec::new();
    }
    vec![
        "a valid environment variable name must consist only of printable ASCII characters other than '='"
            .to_owned(),
    ]
}

/// A key of a config map or of a secret: a file name.
pub(crate) fn config_key(key: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if key.len() > MAX_SUBDOMAIN {
        problems.push(format!("must be no more than {MAX_SUBDOMAIN} characters"));
    }
    if key.is_empty() || !key.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte)) {
        problems.push(
            "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or \
             'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
                .to_owned(),
        );
    }
    match key {
        "." => problems.push("must not be '.'".to_owned()),
        ".." => problems.push("must not be '..'".to_owned()),
        key if key.starts_with("..") => problems.push("must not start with '..'".to_owned()),
        _ => {}
    }
    problems
}

/// A search domain of a resolver: labels may begin with an underscore.
pub(crate) fn search_domain(name: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if name.len() > MAX_SUBDOMAIN {
        problems.push(format!("must be no more than {MAX_SUBDOMAIN} characters"));
    }
    let is_label = |label: &str| {
        let label = label.strip_prefix('_').unwrap_or(label);
        is_dns1123_label(&label.replace('_', "-")) && !label.starts_with('_') && !label.ends_with('_')
    };
    if !name.split('.').all(is_label) {
        problems.push(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '_', '-' or '.', and \
             must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
             '_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?(\\._?[a-z0-9]([-_a-z0-9]*[a-z0-9])?)*')"
                .to_owned(),
        );
    }
    problems
}

/// `*.example.com`
pub(crate) fn wildcard_subdomain(name: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if name.len() > MAX_SUBDOMAIN {
        problems.push(format!("must be no more than {MAX_SUBDOMAIN} characters"));
    }
    if !name.strip_prefix("*.").is_some_and(is_dns1123_subdomain) {
        problems.push(
            "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which must \
             consist of lower case alphanumeric characters, '-' or '.' and end with an alphanumeric character (e.g. \
             '*.example.com', regex used for validation is \
             '\\*\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
                .to_owned(),
        );
    }
    problems
}

/// `example.com/some/path`: the wrong part, and what is wrong with it. Empty is the caller's problem.
pub(crate) fn domain_prefixed_path(text: &str) -> Vec<(&str, String)> {
    let Some((host, path)) = text.split_once('/').filter(|(host, path)| !host.is_empty() && !path.is_empty())
    else {
        return vec![(text, "must be a domain-prefixed path (such as \"acme.io/foo\")".to_owned())];
    };
    let mut problems: Vec<_> = dns1123_subdomain(host).into_iter().map(|problem| (host, problem)).collect();
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"/-._~%!$&'()*+,;=:".contains(&byte);
    if !path.bytes().all(allowed) {
        let problem = "Invalid path (regex used for validation is '[A-Za-z0-9/\\-._~%!$&'()*+,;=:]+')";
        problems.push((path, problem.to_owned()));
    }
    problems
}

/// An address as old versions of Go took it: an IPv4 address may have leading zeros.
pub(crate) fn parse_ip_sloppy(text: &str) -> Option<IpAddr> {
    if text.contains(':') {
        // No zones.
        return text.parse::<Ipv6Addr>().ok().map(IpAddr::V6);
    }
    let mut octets = [0; 4];
    let mut parts = text.split('.');
    for octet in &mut octets {
        let part = parts
            .next()
            .filter(|part| (1..=3).contains(&part.len()) || part.trim_start_matches('0').len() <= 3)?;
        if part.is_empty() || !part.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        *octet = part.parse().ok()?;
    }
    parts.next().is_none().then(|| IpAddr::V4(Ipv4Addr::from(octets)))
}

/// An address in a field that is older than the strict rules; new values must obey them anyway.
pub(crate) fn ip(text: &str) -> Vec<String> {
    let Some(sloppy) = parse_ip_sloppy(text) else {
        return vec!["must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)".to_owned()];
    };
    match (text.parse::<IpAddr>(), sloppy) {
        (Err(_), _) => vec!["must not have leading 0s".to_owned()],
        (Ok(IpAddr::V6(address)), _) if address.to_ipv4_mapped().is_some() => {
            vec!["must not be an IPv4-mapped IPv6 address".to_owned()]
        }
        _ => Vec::new(),
    }
}

/// An address in a newer field: canonical, too.
pub(crate) fn canonical_ip(text: &str) -> Vec<String> {
    let problems = ip(text);
    match text.parse::<IpAddr>() {
        Ok(address) if problems.is_empty() && address.to_string() != text => {
            vec![format!("must be in canonical form ({:?})", address.to_string())]
        }
        _ => problems,
    }
}

/// A network: its address and the length of its prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cidr {
    pub(crate) address: IpAddr,
    pub(crate) prefix: u8,
}

impl Cidr {
    pub(crate) fn parse_sloppy(text: &str) -> Option<Cidr> {
        let (address, prefix) = text.split_once('/')?;
        let address = parse_ip_sloppy(address)?;
        if prefix.is_empty() || !prefix.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        let prefix: u8 = prefix.parse().ok()?;
        (prefix <= Cidr::bits(address)).then_some(Cidr { address, prefix })
    }

    fn bits(address: IpAddr) -> u8 {
        if address.is_ipv4() { 32 } else { 128 }
    }

    fn masked(self, address: IpAddr) -> u128 {
        let (bits, value) = match address {
            IpAddr::V4(address) => (32, u128::from(u32::from(address))),
            IpAddr::V6(address) => (128, u128::from(address)),
        };
        let host = bits - u32::from(self.prefix);
        if host >= 128 { 0 } else { value >> host << host }
    }

    pub(crate) fn contains(self, address: IpAddr) -> bool {
        self.address.is_ipv4() == address.is_ipv4() && self.masked(self.address) == self.masked(address)
    }

    /// Whether it is counted among the networks of IPv4: an address of IPv4 in the clothes of IPv6 is.
    pub(crate) fn is_ipv4(self) -> bool {
        self.address.to_canonical().is_ipv4()
    }

    fn is_network(self) -> bool {
        let value = match self.address {
            IpAddr::V4(address) => u128::from(u32::from(address)),
            IpAddr::V6(address) => u128::from(address),
        };
        self.masked(self.address) == value
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix)
    }
}

/// A network in a field that is older than the strict rules.
pub(crate) fn cidr(text: &str) -> Vec<String> {
    let Some(sloppy) = Cidr::parse_sloppy(text) else {
        return vec!["must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)".to_owned()];
    };
    let (address, prefix) = text.split_once('/').unwrap_or_default();
    let leading_zero = prefix.len() > 1 && prefix.starts_with('0');
    match address.parse::<IpAddr>() {
        Err(_) => vec!["must not have leading 0s in IP or prefix length".to_owned()],
        Ok(_) if leading_zero => vec!["must not have leading 0s in IP or prefix length".to_owned()],
        Ok(IpAddr::V6(address)) if address.to_ipv4_mapped().is_some() => {
            vec!["must not have an IPv4-mapped IPv6 address".to_owned()]
        }
        Ok(_) if !sloppy.is_network() => vec!["must not have bits set beyond the prefix length".to_owned()],
        Ok(_) => Vec::new(),
    }
}

/// A network in a newer field: canonical, too.
pub(crate) fn canonical_cidr(text: &str) -> Vec<String> {
    let problems = cidr(text);
    match Cidr::parse_sloppy(text) {
        Some(network) if problems.is_empty() && network.to_string() != text => {
            vec![format!("must be in canonical form ({:?})", network.to_string())]
        }
        _ => problems,
    }
}

/// An address that packets can be sent to from elsewhere.
pub(crate) fn endpoint_ip(text: &str) -> Vec<String> {
    let Some(address) = parse_ip_sloppy(text) else { return vec!["must be a valid IP address".to_owned()] };
    let mut problems = Vec::new();
    if address.is_unspecified() {
        problems.push(format!("may not be unspecified ({text})"));
    }
    if address.is_loopback() {
        problems.push("may not be in the loopback range (127.0.0.0/8, ::1/128)".to_owned());
    }
    let (link_local, link_local_multicast) = match address {
        IpAddr::V4(address) => (address.is_link_local(), address.octets()[..3] == [224, 0, 0]),
        IpAddr::V6(address) => (address.is_unicast_link_local(), address.segments()[0] & 0xff0f == 0xff02),
    };
    if link_local {
        problems.push("may not be in the link-local range (169.254.0.0/16, fe80::/10)".to_owned());
    }
    if link_local_multicast {
        problems.push("may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)".to_owned());
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(problems: Vec<String>, expect: &[&str]) {
        assert_eq!(problems, expect);
    }

    #[test]
    fn addresses_are_taken_as_go_takes_them() {
        check(ip("10.0.0.1"), &[]);
        check(ip("2001:db8::1"), &[]);
        check(ip("010.0.0.1"), &["must not have leading 0s"]);
        check(ip("::ffff:1.2.3.4"), &["must not be an IPv4-mapped IPv6 address"]);
        check(ip("10.0.0"), &["must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"]);
        check(canonical_ip("2001:DB8::1"), &["must be in canonical form (\"2001:db8::1\")"]);
        check(cidr("10.0.0.0/8"), &[]);
        check(cidr("10.0.0.1/8"), &["must not have bits set beyond the prefix length"]);
        check(cidr("10.0.0.0/33"), &["must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"]);
        check(cidr("0.0.0.0/0"), &[]);
        check(cidr("::/0"), &[]);
        check(canonical_cidr("2001:db8::/64"), &[]);
        check(canonical_cidr("2001:DB8::/64"), &["must be in canonical form (\"2001:db8::/64\")"]);
        check(canonical_cidr("2001:DB8::1/64"), &["must not have bits set beyond the prefix length"]);
        check(endpoint_ip("127.0.0.1"), &["may not be in the loopback range (127.0.0.0/8, ::1/128)"]);
        let wide = Cidr::parse_sloppy("10.0.0.0/8").unwrap();
        assert!(wide.contains("10.9.0.1".parse().unwrap()) && !wide.contains("11.0.0.1".parse().unwrap()));
    }

    #[test]
    fn names_of_ports() {
        check(port_name("http"), &[]);
        check(port_name("80"), &["must contain at least one letter (a-z)"]);
        check(
            port_name("a--b-"),
            &["must not contain consecutive hyphens", "must not begin or end with a hyphen"],
        );
        check(
            port_name("HTTP"),
            &[
                "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)",
                "must contain at least one letter (a-z)",
            ],
        );
        check(port_name("abcdefghijklmnop"), &["must be no more than 15 characters"]);
    }

    #[test]
    fn search_domains_may_have_underscores() {
        check(search_domain("_tcp.example.com"), &[]);
        check(search_domain("a_b.c"), &[]);
        assert_eq!(search_domain("a_").len(), 1);
        assert_eq!(search_domain("").len(), 1);
    }
}
