//! The ranges that the addresses of services are taken from.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// Where the addresses of services come from: one range, or one of each family. The first range is that of services that
/// do not say which family they want.
///
/// ```
/// use setpoint_apiserver::ServiceIpRanges;
///
/// let ranges: ServiceIpRanges = "10.0.0.0/24,fd00::/112".parse()?;
/// assert_eq!(ranges.to_string(), "10.0.0.0/24,fd00::/112");
/// assert!("10.0.0.0/24,10.1.0.0/24".parse::<ServiceIpRanges>().is_err());
/// # Ok::<(), setpoint_apiserver::ServiceIpRangesError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceIpRanges {
    first: Range,
    second: Option<Range>,
}

/// Ranges that services cannot have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ServiceIpRangesError(String);

/// A range of one family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Range {
    base: u128,
    prefix: u32,
    is_v6: bool,
}

/// The fewest addresses that make sense, and how many bits of a range are used.
const FEWEST: u128 = 8;
const MOST_BITS: u32 = 64;

impl Default for ServiceIpRanges {
    /// What kubeadm sets up.
    fn default() -> ServiceIpRanges {
        let base = u32::from(Ipv4Addr::new(10, 96, 0, 0)).into();
        ServiceIpRanges { first: Range { base, prefix: 12, is_v6: false }, second: None }
    }
}

impl FromStr for ServiceIpRanges {
    type Err = ServiceIpRangesError;

    fn from_str(text: &str) -> Result<ServiceIpRanges, ServiceIpRangesError> {
        let wrong = |why: &str| Err(ServiceIpRangesError(why.to_owned()));
        let ranges: Result<Vec<Range>, _> = text.split(',').map(|part| Range::parse(part.trim())).collect();
        match ranges?[..] {
            [first] => Ok(ServiceIpRanges { first, second: None }),
            [first, second] if first.is_v6 == second.is_v6 => {
                wrong("the two service IP ranges must be of different IP families")
            }
            [first, second] => Ok(ServiceIpRanges { first, second: Some(second) }),
            _ => wrong("there must be one or two service IP ranges"),
        }
    }
}

impl std::fmt::Display for ServiceIpRanges {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let texts: Vec<String> = self.iter().map(|range| range.to_string()).collect();
        f.write_str(&texts.join(","))
    }
}

impl ServiceIpRanges {
    /// Whether services have IPv6 addresses unless they ask for others: whether the first range is of that family.
    #[must_use]
    pub fn is_ipv6(&self) -> bool {
        self.first.is_v6
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Range> {
        std::iter::once(&self.first).chain(&self.second)
    }

    /// The range of the server's own service.
    pub(crate) fn first(&self) -> &Range {
        &self.first
    }

    /// The range of a family, if there is one.
    pub(crate) fn of(&self, family: &str) -> Option<&Range> {
        self.iter().find(|range| range.family() == family)
    }

    /// Whether there are addresses of both families.
    pub(crate) fn is_dual(&self) -> bool {
        self.second.is_some()
    }
}

impl Range {
    fn parse(text: &str) -> Result<Range, ServiceIpRangesError> {
        let wrong = |why: String| ServiceIpRangesError(format!("the service IP range {text:?} {why}"));
        let parsed = text
            .split_once('/')
            .and_then(|(ip, prefix)| Some((ip.parse::<IpAddr>().ok()?, prefix.parse::<u32>().ok()?)));
        let (ip, prefix) = parsed.ok_or_else(|| wrong("is not a valid CIDR".to_owned()))?;
        let (address, bits) = match ip {
            IpAddr::V4(ip) => (u128::from(u32::from(ip)), 32),
            IpAddr::V6(ip) => (u128::from(ip), 128),
        };
        if prefix > bits {
            return Err(wrong("is not a valid CIDR".to_owned()));
        }
        let free = bits - prefix;
        if free > MOST_BITS {
            let least = bits - MOST_BITS;
            return Err(wrong(format!("is too large: for {bits}-bit addresses the mask must be >= {least}")));
        }
        let size = 1u128 << free;
        if size < FEWEST {
            return Err(wrong(format!("must have at least {FEWEST} IP addresses")));
        }
        Ok(Range { base: address & !(size - 1), prefix, is_v6: ip.is_ipv6() })
    }

    pub(crate) fn family(&self) -> &'static str {
        if self.is_v6 { "IPv6" } else { "IPv4" }
    }

    fn size(&self) -> u128 {
        1 << (if self.is_v6 { 128 } else { 32 } - self.prefix)
    }

    fn last(&self) -> u128 {
        // The last address of an IPv4 network is everybody's.
        self.base + self.size() - if self.is_v6 { 1 } else { 2 }
    }

    fn address(&self, number: u128) -> IpAddr {
        if self.is_v6 {
            return Ipv6Addr::from(number).into();
        }
        Ipv4Addr::from(u32::try_from(number).unwrap_or(u32::MAX)).into()
    }

    /// The first address, which is that of the server itself.
    pub(crate) fn first(&self) -> IpAddr {
        self.address(self.base + 1)
    }

    /// Whether a service can have this address.
    pub(crate) fn contains(&self, ip: &str) -> bool {
        let number = match ip.parse() {
            Ok(IpAddr::V4(ip)) if !self.is_v6 => u32::from(ip).into(),
            Ok(IpAddr::V6(ip)) if self.is_v6 => u128::from(ip),
            _ => return false,
        };
        (self.base + 1..=self.last()).contains(&number)
    }

    /// A choice of `random`, which is asked for a number up to the one it is given. The lower addresses are left to those
    /// who choose their own.
    pub(crate) fn choose(&self, random: impl FnOnce(u64) -> u64) -> IpAddr {
        let low = (self.size() / 16).clamp(16, 256);
        let low = if self.size() <= low { 1 } else { low };
        let most = u64::try_from(self.last() - self.base - low).unwrap_or(u64::MAX);
        self.address(self.base + low + u128::from(random(most)))
    }

    /// All addresses, from the first.
    pub(crate) fn all(&self) -> impl Iterator<Item = IpAddr> {
        (self.base + 1..=self.last()).map(|number| self.address(number))
    }
}

impl std::fmt::Display for Range {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.address(self.base), self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_has_all_addresses_but_those_of_the_network_itself() {
        let ranges: ServiceIpRanges = "10.0.0.7/29, fd00::/125".parse().unwrap();
        assert_eq!(ranges.to_string(), "10.0.0.0/29,fd00::/125");
        let all = |range: &Range| range.all().map(|ip| ip.to_string()).collect::<Vec<_>>();
        assert_eq!(
            all(ranges.first()),
            ["10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.5", "10.0.0.6"]
        );
        assert_eq!(all(ranges.of("IPv6").unwrap()).len(), 7);
        for (ip, is_in) in
            [("10.0.0.0", false), ("10.0.0.1", true), ("10.0.0.6", true), ("10.0.0.7", false), ("x", false)]
        {
            assert_eq!(ranges.first().contains(ip), is_in, "{ip}");
        }
        assert!(ranges.is_dual() && !ServiceIpRanges::default().is_dual());
    }

    #[test]
    fn the_lower_addresses_are_left_to_those_who_choose() {
        let bounds = |text: &str| {
            let ranges: ServiceIpRanges = text.parse().unwrap();
            let range = *ranges.first();
            (range.choose(|_| 0).to_string(), range.choose(|most| most).to_string())
        };
        assert_eq!(bounds("10.0.0.0/24"), ("10.0.0.16".to_owned(), "10.0.0.254".to_owned()));
        assert_eq!(bounds("10.96.0.0/12"), ("10.96.1.0".to_owned(), "10.111.255.254".to_owned()));
        assert_eq!(bounds("10.0.0.0/28"), ("10.0.0.1".to_owned(), "10.0.0.14".to_owned()));
        assert_eq!(bounds("fd00::/64").0, "fd00::100");
    }

    #[test]
    fn ranges_that_services_cannot_have_are_refused() {
        for (text, words) in [
            ("", "not a valid CIDR"),
            ("10.0.0.0", "not a valid CIDR"),
            ("10.0.0.0/33", "not a valid CIDR"),
            ("10.0.0.0/30", "at least 8 IP addresses"),
            ("fd00::/63", "the mask must be >= 64"),
            ("10.0.0.0/24,10.1.0.0/24", "different IP families"),
            ("10.0.0.0/24,fd00::/112,fd01::/112", "one or two"),
        ] {
            let error = text.parse::<ServiceIpRanges>().unwrap_err().to_string();
            assert!(error.contains(words), "{text}: {error}");
        }
    }
}
