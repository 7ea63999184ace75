//! What functions and operators there are, and of which types: those of kube-apiserver's base environment that can be
//! evaluated here.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::OnceLock;

use super::kind::{Kind, Object};

/// One way to call a function.
#[derive(Debug)]
pub(super) struct Overload {
    /// Whether the first argument stands before the dot.
    pub(super) member: bool,
    args: Vec<Kind<Infallible>>,
    result: Kind<Infallible>,
}

impl Overload {
    /// The types of the arguments and of the result; what they leave open begins at `free`.
    pub(super) fn at<O: Object>(&self, free: usize) -> (Vec<Kind<O>>, Kind<O>) {
        (self.args.iter().map(|arg| instance(arg, free)).collect(), instance(&self.result, free))
    }
}

/// How many types an overload may leave open.
pub(super) const PARAMETERS: usize = 2;

fn instance<O: Object>(kind: &Kind<Infallible>, free: usize) -> Kind<O> {
    match kind {
        Kind::Dyn => Kind::Dyn,
        Kind::Error => Kind::Error,
        Kind::Null => Kind::Null,
        Kind::Bool => Kind::Bool,
        Kind::Int => Kind::Int,
        Kind::Uint => Kind::Uint,
        Kind::Double => Kind::Double,
        Kind::String => Kind::String,
        Kind::Bytes => Kind::Bytes,
        Kind::Duration => Kind::Duration,
        Kind::Timestamp => Kind::Timestamp,
        Kind::List(item) => Kind::list(instance(item, free)),
        Kind::Map(entry) => Kind::map(instance(&entry.0, free), instance(&entry.1, free)),
        Kind::Optional(item) => Kind::optional(instance(item, free)),
        Kind::Type(item) => Kind::of_type(instance(item, free)),
        Kind::Opaque(name) => Kind::Opaque(name),
        Kind::Object(never) => match *never {},
        Kind::Free(parameter) => Kind::Free(free + parameter),
    }
}

/// The ways to call a function, or nothing if there is no such function.
pub(super) fn of(function: &str) -> &'static [Overload] {
    static TABLE: OnceLock<BTreeMap<&'static str, Vec<Overload>>> = OnceLock::new();
    let table = TABLE.get_or_init(|| {
        let mut table: BTreeMap<&str, Vec<Overload>> = BTreeMap::new();
        for line in DECLARATIONS.lines().filter(|line| !line.is_empty()) {
            let (name, overloads) = line.split_once(' ').unwrap_or((line, ""));
            table.entry(name).or_default().extend(overloads.split(" | ").flat_map(overloads_of));
        }
        table
    });
    table.get(function).map_or(&[], Vec::as_slice)
}

/// `(a, b) c` and `a.(b) c`; with `T`, one for each type that can be put in order.
fn overloads_of(text: &str) -> Vec<Overload> {
    const ORDERED: [&str; 8] = ["int", "uint", "double", "bool", "duration", "timestamp", "string", "bytes"];
    if text.contains('T') {
        return ORDERED.iter().flat_map(|kind| overloads_of(&text.replace('T', kind))).collect();
    }
    let mut parser = Parser { rest: text };
    let mut args = Vec::new();
    let member = !parser.rest.starts_with('(');
    if member {
        args.push(parser.kind());
        parser.skip(".");
    }
    parser.skip("(");
    while !parser.rest.starts_with(')') {
        args.push(parser.kind());
        parser.skip(", ");
    }
    parser.skip(") ");
    vec![Overload { member, args, result: parser.kind() }]
}

struct Parser<'a> {
    rest: &'a str,
}

impl Parser<'_> {
    fn skip(&mut self, text: &str) {
        self.rest = self.rest.strip_prefix(text).unwrap_or(self.rest);
    }

    fn kind(&mut self) -> Kind<Infallible> {
        let end = self.rest.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        match word {
            "A" => Kind::Free(0),
            "B" => Kind::Free(1),
            "bool" => Kind::Bool,
            "int" => Kind::Int,
            "uint" => Kind::Uint,
            "double" => Kind::Double,
            "string" => Kind::String,
            "bytes" => Kind::Bytes,
            "duration" => Kind::Duration,
            "timestamp" => Kind::Timestamp,
            "url" => Kind::Opaque("kubernetes.URL"),
            "quantity" => Kind::Opaque("kubernetes.Quantity"),
            "semver" => Kind::Opaque("kubernetes.Semver"),
            "format" => Kind::Opaque("kubernetes.NamedFormat"),
            "ip" => Kind::Opaque("net.IP"),
            "cidr" => Kind::Opaque("net.CIDR"),
            "list" => Kind::list(self.inner()),
            "optional" => Kind::optional(self.inner()),
            "type" => Kind::of_type(self.inner()),
            "map" => {
                self.skip("(");
                let key = self.kind();
                self.skip(", ");
                let value = self.kind();
                self.skip(")");
                Kind::map(key, value)
            }
            _ => Kind::Dyn,
        }
    }

    fn inner(&mut self) -> Kind<Infallible> {
        self.skip("(");
        let kind = self.kind();
        self.skip(")");
        kind
    }
}

const DECLARATIONS: &str = "
_==_ (A, A) bool
_!=_ (A, A) bool
_<_ (T, T) bool | (int, double) bool | (int, uint) bool | (uint, double) bool | (uint, int) bool | (double, int) bool | (double, uint) bool
_<=_ (T, T) bool | (int, double) bool | (int, uint) bool | (uint, double) bool | (uint, int) bool | (double, int) bool | (double, uint) bool
_>_ (T, T) bool | (int, double) bool | (int, uint) bool | (uint, double) bool | (uint, int) bool | (double, int) bool | (double, uint) bool
_>=_ (T, T) bool | (int, double) bool | (int, uint) bool | (uint, double) bool | (uint, int) bool | (double, int) bool | (double, uint) bool
_+_ (bytes, bytes) bytes | (double, double) double | (duration, duration) duration | (duration, timestamp) timestamp | (timestamp, duration) timestamp | (int, int) int | (list(A), list(A)) list(A) | (string, string) string | (uint, uint) uint
_-_ (double, double) double | (duration, duration) duration | (int, int) int | (timestamp, duration) timestamp | (timestamp, timestamp) duration | (uint, uint) uint
_*_ (double, double) double | (int, int) int | (uint, uint) uint
_/_ (double, double) double | (int, int) int | (uint, uint) uint
_%_ (int, int) int | (uint, uint) uint
-_ (double) double | (int) int
!_ (bool) bool
@in (A, list(A)) bool | (A, map(A, B)) bool
_?_:_ (bool, A, A) A
_[_] (list(A), int) A | (map(A, B), A) B | (optional(list(A)), int) optional(A) | (optional(map(A, B)), A) optional(B)
_[?_] (list(A), int) optional(A) | (optional(list(A)), int) optional(A) | (map(A, B), A) optional(B) | (optional(map(A, B)), A) optional(B)
size (bytes) int | bytes.() int | (list(A)) int | list(A).() int | (map(A, B)) int | map(A, B).() int | (string) int | string.() int
type (A) type(A)
bool (bool) bool | (string) bool
bytes (bytes) bytes | (string) bytes
double (double) double | (int) double | (string) double | (uint) double
duration (duration) duration | (string) duration
dyn (A) dyn
int (int) int | (double) int | (duration) int | (string) int | (timestamp) int | (uint) int
string (string) string | (bool) string | (bytes) string | (double) string | (duration) string | (int) string | (timestamp) string | (uint) string | (ip) string | (cidr) string
timestamp (timestamp) timestamp | (int) timestamp | (string) timestamp
uint (uint) uint | (double) uint | (int) uint | (string) uint
contains string.(string) bool
endsWith string.(string) bool
startsWith string.(string) bool
matches (string, string) bool | string.(string) bool
getFullYear timestamp.() int | timestamp.(string) int
getMonth timestamp.() int | timestamp.(string) int
getDayOfYear timestamp.() int | timestamp.(string) int
getDayOfMonth timestamp.() int | timestamp.(string) int
getDate timestamp.() int | timestamp.(string) int
getDayOfWeek timestamp.() int | timestamp.(string) int
getHours timestamp.() int | timestamp.(string) int | duration.() int
getMinutes timestamp.() int | timestamp.(string) int | duration.() int
getSeconds timestamp.() int | timestamp.(string) int | duration.() int
getMilliseconds timestamp.() int | timestamp.(string) int | duration.() int
charAt string.(int) string
indexOf string.(string) int | string.(string, int) int | list(A).(A) int
lastIndexOf string.(string) int | string.(string, int) int | list(A).(A) int
lowerAscii string.() string
upperAscii string.() string
replace string.(string, string) string | string.(string, string, int) string
split string.(string) list(string) | string.(string, int) list(string)
substring string.(int) string | string.(int, int) string
trim string.() string
format string.(list(dyn)) string
strings.quote (string) string
join list(string).() string | list(string).(string) string
find string.(string) string
findAll string.(string) list(string) | string.(string, int) list(string)
sets.contains (list(A), list(A)) bool
sets.equivalent (list(A), list(A)) bool
sets.intersects (list(A), list(A)) bool
slice list(A).(int, int) list(A)
flatten list(list(A)).() list(A) | list(dyn).(int) list(dyn)
sort list(T).() list(T)
lists.range (int) list(int)
reverse list(A).() list(A)
distinct list(A).() list(A)
isSorted list(T).() bool
sum list(int).() int | list(uint).() uint | list(double).() double | list(duration).() duration
max list(T).() T
min list(T).() T
optional.of (A) optional(A)
optional.ofNonZeroValue (A) optional(A)
optional.none () optional(A)
unwrapOpt list(optional(A)).() list(A)
value optional(A).() A
hasValue optional(A).() bool
or optional(A).(optional(A)) optional(A)
orValue optional(A).(A) A
first list(A).() optional(A)
last list(A).() optional(A)
url (string) url
isURL (string) bool
getScheme url.() string
getHost url.() string
getHostname url.() string
getPort url.() string
getEscapedPath url.() string
getQuery url.() map(string, list(string))
quantity (string) quantity
isQuantity (string) bool
sign (quantity) int | quantity.() int
isGreaterThan quantity.(quantity) bool | semver.(semver) bool
isLessThan quantity.(quantity) bool | semver.(semver) bool
compareTo quantity.(quantity) int | semver.(semver) int
asApproximateFloat quantity.() double
asInteger quantity.() int
isInteger quantity.() bool
add quantity.(quantity) quantity | quantity.(int) quantity
sub quantity.(quantity) quantity | quantity.(int) quantity
semver (string) semver | (string, bool) semver
isSemver (string) bool | (string, bool) bool
major semver.() int
minor semver.() int
patch semver.() int
ip (string) ip | cidr.() ip
isIP (string) bool
ip.isCanonical (string) bool
family ip.() int
isUnspecified ip.() bool
isLoopback ip.() bool
isLinkLocalMulticast ip.() bool
isLinkLocalUnicast ip.() bool
isGlobalUnicast ip.() bool
cidr (string) cidr
isCIDR (string) bool
containsIP cidr.(string) bool | cidr.(ip) bool
containsCIDR cidr.(string) bool | cidr.(cidr) bool
prefixLength cidr.() int
masked cidr.() cidr
validate format.(string) optional(list(string))
format.named (string) optional(format)
format.byte () format
format.date () format
format.datetime () format
format.dns1035Label () format
format.dns1035LabelPrefix () format
format.dns1123Label () format
format.dns1123LabelPrefix () format
format.dns1123Subdomain () format
format.dns1123SubdomainPrefix () format
format.labelValue () format
format.qualifiedName () format
format.uri () format
format.uuid () format
";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cel::library::is_function;

    #[test]
    fn what_is_declared_can_be_evaluated() {
        for line in DECLARATIONS.lines().filter(|line| !line.is_empty()) {
            let name = line.split(' ').next().unwrap();
            let is_operator = name.contains('_') || name.starts_with('@');
            assert!(is_operator || is_function(name), "{name}");
            assert!(!of(name).is_empty(), "{name}");
        }
    }

    #[test]
    fn declarations_read_as_they_are_written() {
        let (args, result) = of("getQuery")[0].at::<Infallible>(0);
        assert_eq!(
            (args[0].to_string(), result.to_string()),
            ("kubernetes.URL".into(), "map(string, list(string))".into())
        );
        let (args, result) = of("_[?_]")[3].at::<Infallible>(7);
        assert_eq!(args[0], Kind::optional(Kind::map(Kind::Free(7), Kind::Free(8))));
        assert_eq!((&args[1], result), (&Kind::Free(7), Kind::optional(Kind::Free(8))));
        assert_eq!(of("max").len(), 8);
    }
}
