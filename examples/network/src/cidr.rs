//! Address ranges, compared as Neutron stores them.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// A range of addresses: `10.20.0.0/24`.
///
/// `10.20.0.5/24` is the same range, and Neutron stores it as `10.20.0.0/24`: compared as texts, the two would
/// differ for ever.
///
/// ```
/// use example_network::Cidr;
///
/// let range: Cidr = "10.20.0.5/24".parse()?;
/// assert_eq!(range, "10.20.0.0/24".parse()?);
/// assert_eq!(range.to_string(), "10.20.0.0/24");
/// assert!(range.contains("10.20.0.77".parse().unwrap()));
/// # Ok::<(), example_network::InvalidCidr>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Cidr {
    first: IpAddr,
    length: u8,
}

/// A text that is no range of addresses.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no CIDR: write an address, a slash and a length, such as 192.168.0.0/16")]
pub struct InvalidCidr(pub String);

impl Cidr {
    /// 4 or 6.
    pub fn ip_version(&self) -> u8 {
        if self.first.is_ipv4() { 4 } else { 6 }
    }

    /// Whether an address is in the range.
    pub fn contains(&self, address: IpAddr) -> bool {
        address.is_ipv4() == self.first.is_ipv4() && mask(address, self.length) == self.first
    }

    /// Whether a router can have the address: one of the range that is neither the range's own name nor, in
    /// IPv4, the one for everybody. Ranges of one or two addresses have no such names.
    pub fn can_be_gateway(&self, address: IpAddr) -> bool {
        let is_small = self.bits() - self.length <= 1;
        let is_special = address == self.first || (self.first.is_ipv4() && address == self.last());
        self.contains(address) && (is_small || !is_special)
    }

    /// The addresses that can be given to machines when the router has `gateway`, as Neutron's allocation pools.
    pub fn pools_without(&self, gateway: IpAddr) -> Vec<(IpAddr, IpAddr)> {
        let is_small = self.bits() - self.length <= 1;
        let (mut first, mut last) = (number(self.first), number(self.last()));
        if !is_small {
            first += 1;
            last -= u128::from(self.first.is_ipv4());
        }
        let gateway = number(gateway);
        let below = (first, gateway.saturating_sub(1).min(last));
        let above = (gateway.saturating_add(1).max(first), last);
        let is_there = |pool: &(u128, u128)| pool.0 <= pool.1;
        let pools = [below, above].into_iter().filter(is_there);
        pools.map(|(first, last)| (self.address(first), self.address(last))).collect()
    }

    fn bits(&self) -> u8 {
        if self.first.is_ipv4() { 32 } else { 128 }
    }

    fn last(&self) -> IpAddr {
        let host_bits = u32::from(self.bits() - self.length);
        let hosts = if host_bits == 128 { u128::MAX } else { (1 << host_bits) - 1 };
        self.address(number(self.first) | hosts)
    }

    fn address(&self, number: u128) -> IpAddr {
        match self.first {
            IpAddr::V4(_) => Ipv4Addr::from(u32::try_from(number).unwrap_or(u32::MAX)).into(),
            IpAddr::V6(_) => Ipv6Addr::from(number).into(),
        }
    }
}

fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u32::from(address).into(),
        IpAddr::V6(address) => address.into(),
    }
}

/// The address with all but the first `length` bits cleared.
fn mask(address: IpAddr, length: u8) -> IpAddr {
    match address {
        IpAddr::V4(address) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(length)).unwrap_or(0);
            Ipv4Addr::from(u32::from(address) & mask).into()
        }
        IpAddr::V6(address) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(length)).unwrap_or(0);
            Ipv6Addr::from(u128::from(address) & mask).into()
        }
    }
}

impl FromStr for Cidr {
    type Err = InvalidCidr;

    fn from_str(text: &str) -> Result<Cidr, InvalidCidr> {
        let invalid = || InvalidCidr(text.to_owned());
        let (address, length) = text.split_once('/').ok_or_else(invalid)?;
        let address: IpAddr = address.parse().map_err(|_| invalid())?;
        let is_number = !length.is_empty() && length.bytes().all(|byte| byte.is_ascii_digit());
        let length: u8 =
            Some(length).filter(|_| is_number).and_then(|text| text.parse().ok()).ok_or_else(invalid)?;
        if length > if address.is_ipv4() { 32 } else { 128 } {
            return Err(invalid());
        }
        Ok(Cidr { first: mask(address, length), length })
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.first, self.length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cidr(text: &str) -> Cidr {
        text.parse().unwrap()
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn ranges_are_the_same_whatever_their_host_bits_say() {
        for (text, same) in [
            ("10.20.0.5/24", "10.20.0.0/24"),
            ("0.0.0.0/0", "0.0.0.0/0"),
            ("255.255.255.255/32", "255.255.255.255/32"),
            ("2001:DB8::17/64", "2001:db8::/64"),
            ("::1/0", "::/0"),
            ("::1/128", "::1/128"),
        ] {
            assert_eq!(cidr(text).to_string(), same);
        }
    }

    #[test]
    fn what_is_no_range_is_refused() {
        for text in [
            "",
            "10.0.0.0",
            "10.0.0.0/",
            "10.0.0.0/33",
            "10.0.0/8",
            "::/129",
            "10.0.0.0/+8",
            "a/8",
            "1.2.3.4/-1",
        ] {
            assert_eq!(text.parse::<Cidr>(), Err(InvalidCidr(text.to_owned())));
        }
    }

    #[test]
    fn a_gateway_is_inside_and_no_special_address() {
        let range = cidr("10.0.0.0/24");
        for (address, can) in [
            ("10.0.0.1", true),
            ("10.0.0.254", true),
            ("10.0.0.0", false),
            ("10.0.0.255", false),
            ("10.0.1.1", false),
            ("::1", false),
        ] {
            assert_eq!(range.can_be_gateway(ip(address)), can, "{address}");
        }
        assert!(cidr("10.0.0.0/31").can_be_gateway(ip("10.0.0.0")));
        assert!(!cidr("fd00::/64").can_be_gateway(ip("fd00::")));
        assert!(cidr("fd00::/64").can_be_gateway(ip("fd00::ffff:ffff:ffff:ffff")));
    }

    #[test]
    fn pools_leave_out_the_gateway_and_the_special_addresses() {
        let pools = |range: &str, gateway: &str| {
            let pools = cidr(range).pools_without(ip(gateway)).into_iter();
            pools.map(|(first, last)| format!("{first}-{last}")).collect::<Vec<_>>()
        };
        assert_eq!(pools("10.0.0.0/24", "10.0.0.1"), ["10.0.0.2-10.0.0.254"]);
        assert_eq!(pools("10.0.0.0/24", "10.0.0.9"), ["10.0.0.1-10.0.0.8", "10.0.0.10-10.0.0.254"]);
        assert_eq!(pools("10.0.0.0/24", "10.0.0.254"), ["10.0.0.1-10.0.0.253"]);
        assert_eq!(pools("fd00::/126", "fd00::1"), ["fd00::2-fd00::3"]);
    }
}
