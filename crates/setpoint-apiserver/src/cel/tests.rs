use super::*;

fn evaluate(source: &str, variables: &[(&str, Result<Value, Failure>)]) -> Result<Value, Failure> {
    let mut budget = Budget::for_object();
    Program::compile(source)
        .unwrap_or_else(|error| panic!("{source}: {error}"))
        .evaluate(variables, &mut budget)
}

fn json_variable(json: serde_json::Value) -> Result<Value, Failure> {
    Ok(of_json(&json))
}

#[test]
fn expressions_have_the_values_that_the_language_gives_them() {
    let object = json_variable(serde_json::json!({
        "metadata": {"namespace": "ns", "labels": {"a": "b"}}, "items": [1, 2, 3], "none": null,
    }));
    let variables = [("object", object)];
    let truths = [
        "1 + 2 * 3 == 7",
        "-5 % 3 == -2",
        "'a' + 'b' == 'ab'",
        "[1] + [2] == [1, 2]",
        "2 in [1, 2] && 'k' in {'k': 1}",
        "object.metadata.namespace == 'ns'",
        "object.none == null && has(object.none) && !has(object.gone)",
        "object.items.map(i, i * 2) == [2, 4, 6]",
        "object.items.map(i, i > 1, i * 2) == [4, 6]",
        "object.items.filter(i, i > 1) == [2, 3]",
        "object.items.exists(i, i == 2) && !object.items.all(i, i == 2)",
        "object.items.existsOne(i, v, v == 2)",
        "object.items.transformList(i, v, i + v) == [1, 3, 5]",
        "object.metadata.labels.exists(k, v, k == 'a' && v == 'b')",
        "object.?gone.?deeper.orValue(5) == 5",
        "object.metadata[?'gone'].hasValue() == false",
        "optional.of(1).optMap(x, x + 1).value() == 2",
        "cel.bind(x, 5, x * x) == 25",
        "[3, 1, 2].sort() == [1, 2, 3] && ['b', 'a'].sortBy(x, x) == ['a', 'b']",
        "'%s is %d'.format(['x', 5]) == 'x is 5'",
        "size('é') == 1 && 'abc'.size() == 3",
        "'abcabc'.findAll('b.') == ['bc', 'bc'] && 'abc'.find('z') == ''",
        "type(1) == int && type('') == string && type([]) == list",
        "1 == 1.0 && 1 < 1.5 && 2u > 1u",
        "true || (1 / 0 == 1)",
        "(1 / 0 == 1) || true",
        "!(false && (1 / 0 == 1))",
        "[1, 0].exists(x, 1 / x == 1)",
        "duration('1h') + duration('30m') == duration('90m')",
        "int('5') == 5 && string(5) == '5' && double('1.5') == 1.5 && bool('true')",
        "dyn([1, 'a'])[1] == 'a'",
        "base64.decode(base64.encode(b'x')) == b'x'",
        "math.greatest(1, 5, 3) == 5",
        "format.dns1123Label().validate('Bad').hasValue()",
    ];
    for truth in truths {
        assert_eq!(evaluate(truth, &variables), Ok(Value::Bool(true)), "{truth}");
    }
    let errors = [
        ("object.gone", "no such key: gone"),
        ("object.items[7]", "index out of bounds: 7"),
        ("1 / 0", "division by zero"),
        ("1 % 0", "modulus by zero"),
        ("9223372036854775807 + 1", "integer overflow"),
        ("'a' + 1", "no such overload"),
        ("1 < 'a'", "no such overload"),
        ("unheard", "undeclared reference to 'unheard'"),
        ("optional.none().value()", "optional.none() dereference"),
        ("[1, 2].map(x, 1 / 0)", "division by zero"),
        ("'a'.matches('(')", "error parsing regexp: missing closing ): `(`"),
    ];
    for (source, error) in errors {
        assert_eq!(evaluate(source, &variables), Err(Failure::error(error)), "{source}");
    }
}

#[test]
fn a_variable_that_is_an_error_counts_only_if_it_is_used() {
    let variables = [("variables.good", Ok(Value::Int(1))), ("variables.bad", Err(Failure::error("broken")))];
    assert_eq!(evaluate("variables.good == 1", &variables), Ok(Value::Bool(true)));
    assert_eq!(evaluate("variables.bad == 1", &variables), Err(Failure::error("broken")));
    assert!(Program::compile("variables.bad == 1").unwrap().mentions("variables.bad"));
}

/// Each of these would take minutes or gigabytes.
#[test]
fn no_expression_costs_more_than_its_budget() {
    let many = serde_json::json!((0..5000).collect::<Vec<i64>>());
    let long = serde_json::json!("a".repeat(1_000_000));
    let variables = [("many", json_variable(many)), ("long", json_variable(long))];
    let hostile = [
        "many.all(a, many.all(b, many.all(c, a + b + c >= 0)))",
        "many.map(a, many.map(b, many))[0][0][0] == 1",
        "cel.bind(a, long + long, cel.bind(b, a + a, cel.bind(c, b + b, cel.bind(d, c + c, d + d)))) == ''",
        "long.replace('', long) == ''",
        "long.split('').join(long) == ''",
        "'%.999999999f'.format([1.0]) == ''",
        "lists.range(9223372036854775807) == []",
        "many.map(a, long.matches('(a|b)*' + string(a)))  == []",
        "many.map(a, 'x'.matches('(\\\\pL{50}){' + string(a) + '}')) == []",
        "sets.contains(many, many) && sets.equivalent(many, many)",
        "many.map(a, many).flatten().distinct() == []",
        "many.map(a, many.sort()) == []",
        "many.map(a, string(many)) == []",
        "many.map(a, long.reverse()) == []",
        "many.map(a, many == many) == []",
    ];
    for source in hostile {
        let mut budget = Budget::for_object();
        let result = Program::compile(source).unwrap().evaluate(&variables, &mut budget);
        assert!(result.is_err(), "{source}: {result:?}");
    }
}

#[test]
fn expressions_beyond_the_limits_are_refused_before_they_are_parsed_deeply() {
    let nested = format!("{}1{}", "(".repeat(5000), ")".repeat(5000));
    let chained = format!("1{}", "+1".repeat(5000));
    let negated = "!".repeat(5000) + "true";
    let conditional = "true ? 1 : ".repeat(1000) + "2";
    let selected = format!("a{}", ".b".repeat(5000));
    let indexed = format!("a{}", "[0]".repeat(3000));
    let long = format!("'{}'", "x".repeat(20_000));
    let lists = format!("{}{}", "[".repeat(900), "]".repeat(900));
    for source in [nested, chained, negated, conditional, selected, indexed, long, lists] {
        let start: String = source.chars().take(20).collect();
        assert!(Program::compile(&source).is_err(), "{start}");
    }
}

/// Threads of the server have 2 MiB, as those of tests.
#[test]
fn the_deepest_expressions_that_are_allowed_fit_the_stack() {
    let sources = [
        format!("1{}", "+1".repeat(limits::OPERATORS)),
        format!("{}true", "!".repeat(limits::UNARY)),
        format!("{}1{}", "(".repeat(limits::BRACKETS), ")".repeat(limits::BRACKETS)),
        format!("{}{}", "[".repeat(limits::BRACKETS), "]".repeat(limits::BRACKETS)),
        format!("{}2", "true ? 1 : ".repeat(limits::CHOICES)),
        format!("[1]{}", ".map(x, x)".repeat(limits::MEMBERS / 2 - 1)),
        format!("{}1{}", "[1].map(x, ".repeat(limits::BRACKETS), ")".repeat(limits::BRACKETS)),
        format!("{}1{}", "(!true ? 1 + ".repeat(limits::CHOICES), " : 2)".repeat(limits::CHOICES)),
        format!("true{}", " && true".repeat(limits::OPERATORS / 2)),
    ];
    for source in sources {
        let start: String = source.chars().take(30).collect();
        let program = Program::compile(&source).unwrap_or_else(|error| panic!("{start}: {error}"));
        let _value = program.evaluate(&[], &mut Budget::for_object());
    }
}
