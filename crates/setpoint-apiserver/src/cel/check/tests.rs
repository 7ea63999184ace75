use super::*;

/// An object with some fields of every type.
#[derive(Clone, PartialEq, Debug)]
struct Thing;

impl Object for Thing {
    fn name(&self) -> String {
        "Thing".to_owned()
    }

    fn field(&self, name: &str) -> Option<Kind<Thing>> {
        Some(match name {
            "text" => Kind::String,
            "count" => Kind::Int,
            "ratio" => Kind::Double,
            "flag" => Kind::Bool,
            "when" => Kind::Timestamp,
            "wait" => Kind::Duration,
            "tags" => Kind::list(Kind::String),
            "things" => Kind::list(Kind::Object(Thing)),
            "labels" => Kind::map(Kind::String, Kind::String),
            "any" => Kind::Dyn,
            "maybe" => Kind::optional(Kind::String),
            _ => return None,
        })
    }
}

fn of(source: &str) -> Result<String, String> {
    let program = Program::compile(source).unwrap_or_else(|error| panic!("{source}: {error}"));
    check(&program, source, &[("self", Kind::Object(Thing))]).map(|kind| kind.to_string())
}

#[test]
fn expressions_have_the_types_that_cel_go_finds() {
    let cases = [
        ("1 + 2 * 3", "int"),
        ("'a' + self.any", "string"),
        ("self.any + self.any", "dyn"),
        ("self.count < self.ratio", "bool"),
        ("self.tags.map(t, t.size())", "list(int)"),
        ("self.tags.filter(t, t.startsWith('a'))", "list(string)"),
        ("self.things.all(t, t.count > 0 && t.tags.exists(x, x == t.text))", "bool"),
        ("self.tags.exists_one(t, t == 'a')", "bool"),
        ("self.labels.all(k, self.labels[k] != '')", "bool"),
        ("self.labels.exists(k, v, k == v)", "bool"),
        ("self.tags.transformList(i, t, i > 0, t + string(i))", "list(string)"),
        ("self.labels.transformMap(k, v, v.size())", "map(string, int)"),
        ("self.?text", "optional_type(string)"),
        ("self.?text.orValue('')", "string"),
        ("self.labels[?'a'].hasValue()", "bool"),
        ("self.maybe.optMap(m, m.size()).orValue(0)", "int"),
        ("self.tags.sortBy(t, t.size())[0]", "string"),
        ("[1, 2].sum() + self.tags.size()", "int"),
        ("type(self.any) == int ? self.any < 5 : self.any.matches('a')", "bool"),
        ("self.wait <= duration('1h') && self.when > timestamp('2020-01-01T00:00:00Z')", "bool"),
        ("self.when - self.when", "google.protobuf.Duration"),
        ("quantity('1').add(quantity('2'))", "kubernetes.Quantity"),
        ("ip('1.1.1.1').family() == 4 && cidr('1.0.0.0/8').containsIP('1.1.1.1')", "bool"),
        ("self.flag ? null : null", "null_type"),
        ("self.things[0] == null", "bool"),
        ("[]", "list(dyn)"),
        ("{'a': 1}", "map(string, int)"),
        ("self.count in [1, 2] && self.text in self.labels", "bool"),
        ("has(self.text) && !has(self.labels.a)", "bool"),
        ("'%s'.format([self.count])", "string"),
        ("'%s %d'.format([self.text, self.count])", "string"),
        ("self.any.map(x, x)", "list(dyn)"),
        ("format.dns1123Label().validate(self.text).hasValue()", "bool"),
    ];
    for (source, kind) in cases {
        assert_eq!(of(source).as_deref(), Ok(kind), "{source}");
    }
}

#[test]
fn errors_are_those_of_cel_go_at_its_places() {
    let cases: &[(&str, &[(usize, &str)])] = &[
        ("self.gone", &[(5, "undefined field 'gone'")]),
        ("has(self.gone)", &[(4, "undefined field 'gone'")]),
        ("gone == 1", &[(1, "undeclared reference to 'gone' (in container '')")]),
        ("self.text == 1", &[(11, "found no matching overload for '_==_' applied to '(string, int)'")]),
        ("self.text.shout()", &[(16, "undeclared reference to 'shout' (in container '')")]),
        (
            "self.text.size('a')",
            &[(15, "found no matching overload for 'size' applied to 'string.(string)'")],
        ),
        ("size(5)", &[(5, "found no matching overload for 'size' applied to '(int)'")]),
        ("self.count && true", &[(5, "expected type 'bool' but found 'int'")]),
        ("self.tags.all(t, t)", &[(18, "expected type 'bool' but found 'string'")]),
        (
            "self.tags.all(t, t.gone == 1) && self.tags.all(t, t > 1)",
            &[
                (19, "type 'string' does not support field selection"),
                (53, "found no matching overload for '_>_' applied to '(string, int)'"),
            ],
        ),
        (
            "self.text.all(c, c == 'a')",
            &[(
                5,
                "expression of type 'string' cannot be range of a comprehension (must be list, map, or dynamic)",
            )],
        ),
        ("'é' == self.count", &[(5, "found no matching overload for '_==_' applied to '(string, int)'")]),
        ("[1, 'a']", &[(5, "expected type 'int' but found 'string'")]),
        (
            "self.flag ? 1 : 'a'",
            &[(11, "found no matching overload for '_?_:_' applied to '(bool, int, string)'")],
        ),
        ("!self.text", &[(1, "found no matching overload for '!_' applied to '(string)'")]),
        ("self.tags[0].count", &[(13, "type 'string' does not support field selection")]),
        (
            "self.tags['a'] == ''",
            &[(10, "found no matching overload for '_[_]' applied to '(list(string), string)'")],
        ),
        ("self.text in 5", &[(11, "found no matching overload for '@in' applied to '(string, int)'")]),
        (
            "self.text.optMap(t, t)",
            &[(17, "found no matching overload for 'hasValue' applied to 'string.()'")],
        ),
        ("self == 'a'", &[(6, "found no matching overload for '_==_' applied to '(Thing, string)'")]),
        (
            "self.when == null && self.text == null",
            &[(32, "found no matching overload for '_==_' applied to '(string, null)'")],
        ),
    ];
    for (source, expected) in cases {
        let found = of(source).expect_err(source);
        let places: Vec<String> = expected
            .iter()
            .map(|(column, message)| {
                let wide = |c: char| if c.is_ascii() { '.' } else { '．' };
                let dots: String = source.chars().take(column - 1).map(wide).collect();
                format!("ERROR: <input>:1:{column}: {message}\n | {source}\n | {dots}^")
            })
            .collect();
        assert_eq!(found, places.join("\n"), "{source}");
    }
}

#[test]
fn what_kubernetes_does_not_have_is_undeclared() {
    for source in ["cel.bind(x, 1, x) == 1", "math.greatest(1, 2) == 2", "base64.encode(b'x') == ''"] {
        assert!(of(source).unwrap_err().contains("undeclared reference"), "{source}");
    }
}

/// The type of each step has twice the parts of the one before.
#[test]
fn types_do_not_grow_without_bounds() {
    assert_eq!(of("[1].map(x, {x: x})").as_deref(), Ok("list(map(int, int))"));
    let source = format!("[1]{}", ".map(x, {x: x})".repeat(60));
    assert!(of(&source).unwrap().len() < 1000);
}
