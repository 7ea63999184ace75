//! Reads the generated text.
//!
//! The text is part of the program, so a mistake in it is a bug that every test meets: the reader
//! panics on it instead of handing out errors that nobody could handle.

use std::sync::OnceLock;

use crate::behavior;
use crate::resource::{Encoding, Group, Resource, Scope, Stored, Subresource};
use crate::table::Table;
use crate::types::{Embedded, Field, FieldDefault, FieldType, ListType, MapType, Slot, Type, TypeId};

type Words = std::str::SplitAsciiWhitespace<'static>;

/// A type before its embedded structs are flattened into it.
struct Declared {
    name: &'static str,
    attributes: &'static str,
    fields: Vec<Field>,
    embedded: Vec<Embedded>,
}

pub(super) fn parse(text: &'static str) -> Table {
    let names: Vec<&str> =
        text.lines().filter_map(|line| line.strip_prefix("type ")?.split(' ').next()).collect();
    assert!(names.is_sorted(), "the types of the table are sorted by name");
    let mut table = Table { version: "", groups: Vec::new(), resources: Vec::new(), types: Vec::new() };
    let mut declared: Vec<Declared> = Vec::with_capacity(names.len());
    let mut subresources: Vec<Vec<Subresource>> = Vec::new();
    for line in text.lines() {
        if let Some(field) = line.strip_prefix(' ') {
            declared.last_mut().expect("a field follows its type").add(field, &names);
            continue;
        }
        let (word, rest) = line.split_once(' ').expect("a line has a first word");
        let mut words = rest.split_ascii_whitespace();
        match word {
            "#" => {}
            "version" => table.version = next(&mut words),
            "group" => table.groups.push(group(&mut words)),
            "resource" => {
                table.resources.push(resource(&mut words, &names));
                subresources.push(Vec::new());
            }
            "sub" => subresources
                .last_mut()
                .expect("a subresource follows its resource")
                .push(subresource(&mut words, &names)),
            "type" => {
                let (name, attributes) = rest.split_once(' ').unwrap_or((rest, ""));
                declared.push(Declared { name, attributes, fields: Vec::new(), embedded: Vec::new() });
            }
            other => panic!("unexpected line: {other}"),
        }
    }
    for (resource, found) in table.resources.iter_mut().zip(subresources) {
        resource.subresources = found.into();
    }
    let inherited: Vec<Vec<Field>> = declared.iter().map(|of| inherited(of, &declared, "")).collect();
    table.types = declared.into_iter().zip(inherited).map(|(of, inherited)| finish(of, inherited)).collect();
    table
}

impl Declared {
    /// Adds a line `jsonName type number flags key=value…` or `^ type number GoName`.
    fn add(&mut self, line: &'static str, names: &[&str]) {
        let mut words = line.split_ascii_whitespace();
        let name = next(&mut words);
        if name == "^" {
            let ty = type_id(next(&mut words), names);
            let number = number(next(&mut words));
            self.embedded.push(Embedded { name: next(&mut words), ty, number });
            return;
        }
        let mut field = Field {
            name,
            ty: field_type(next(&mut words), names),
            number: number(next(&mut words)),
            position: 0,
            omit_empty: false,
            omit_zero: false,
            pointer: false,
            required: false,
            default: FieldDefault::None,
            patch_strategy: "",
            patch_merge_key: None,
            list_type: None,
            list_map_keys: "",
            map_type: None,
            through: "",
            go: None,
        };
        set_flags(&mut field, next(&mut words));
        for word in words {
            set_attribute(&mut field, word);
        }
        self.fields.push(field);
    }
}

fn set_flags(field: &mut Field, flags: &str) {
    for flag in flags.chars() {
        match flag {
            'o' => field.omit_empty = true,
            'z' => field.omit_zero = true,
            'p' => field.pointer = true,
            'r' => field.required = true,
            'd' => field.default = FieldDefault::Zero,
            '-' => {}
            other => panic!("unexpected flag {other} of {}", field.name),
        }
    }
}

fn set_attribute(field: &mut Field, word: &'static str) {
    let (key, value) = word.split_once('=').expect("an attribute has a value");
    match key {
        "patch" => field.patch_strategy = value,
        "merge" => field.patch_merge_key = Some(value),
        "list" => {
            field.list_type = Some(match value {
                "atomic" => ListType::Atomic,
                "set" => ListType::Set,
                "map" => ListType::Map,
                other => panic!("unexpected list type {other}"),
            });
        }
        "keys" => field.list_map_keys = value,
        "map" => field.map_type = Some(map_type(value)),
        "go" => field.go = Some(value),
        "default" => field.default = FieldDefault::Json(value),
        other => panic!("unexpected attribute {other}"),
    }
}

/// The fields that a struct has from the structs that it embeds.
fn inherited(of: &Declared, declared: &[Declared], through: &'static str) -> Vec<Field> {
    let mut fields = Vec::new();
    for embedded in &of.embedded {
        let through = match (through, embedded.name) {
            ("", name) => name,
            ("RuleWithOperations", "Rule") => "RuleWithOperations.Rule",
            (outer, name) => panic!("give the path {outer}.{name} a literal here"),
        };
        let inner = &declared[usize::from(embedded.ty.0)];
        fields.extend(inner.fields.iter().map(|field| Field { through, ..field.clone() }));
        fields.extend(inherited(inner, declared, through));
    }
    fields
}

/// Joins the fields of a struct with those that it inherits, and indexes them.
fn finish(of: Declared, inherited: Vec<Field>) -> Type {
    let own: Vec<(u32, &str)> =
        of.fields.iter().filter(|field| field.number > 0).map(|field| (field.number, field.name)).collect();
    let required_times = of.fields.iter().filter(|field| field.is_required_time()).count();
    let mut fields = inherited;
    fields.extend(of.fields);
    for (position, field) in (0..).zip(&mut fields) {
        field.position = position;
    }
    fields.sort_unstable_by_key(|field| field.name);
    assert!(fields.is_sorted_by(|a, b| a.name < b.name), "the fields of {} have names of their own", of.name);
    let position = |name: &str| fields.binary_search_by_key(&name, |field| field.name).expect("joined");
    let embedded = (0..).zip(&of.embedded).filter(|(_, embedded)| embedded.number > 0);
    let mut numbers: Vec<(u32, Slot)> = own
        .iter()
        .map(|(number, name)| (*number, Slot::Field(short(position(name)))))
        .chain(embedded.map(|(at, embedded)| (embedded.number, Slot::Embedded(at))))
        .collect();
    numbers.sort_unstable_by_key(|(number, _)| *number);
    let always = (0..).zip(&fields).filter(|(_, field)| field.always()).map(|(at, _)| at).collect();
    let mut ty = Type {
        name: of.name,
        map_type: None,
        unions: None,
        fields: fields.into(),
        embedded: of.embedded.into(),
        numbers: numbers.into(),
        always,
        required_times,
        layout: OnceLock::new(),
    };
    for attribute in of.attributes.split_ascii_whitespace() {
        match attribute.split_once('=') {
            Some(("map", value)) => ty.map_type = Some(map_type(value)),
            Some(("unions", value)) => ty.unions = Some(value),
            _ => panic!("unexpected attribute {attribute} of {}", ty.name),
        }
    }
    ty
}

fn group(words: &mut Words) -> Group {
    Group { name: optional(next(words)), versions: list(next(words)) }
}

fn resource(words: &mut Words, names: &[&str]) -> Resource {
    let (group, version, plural) = (optional(next(words)), next(words), next(words));
    Resource {
        group,
        version,
        plural,
        singular: next(words),
        kind: next(words),
        scope: match next(words) {
            "Cluster" => Scope::Cluster,
            "Namespaced" => Scope::Namespaced,
            other => panic!("unexpected scope {other}"),
        },
        short_names: list(next(words)),
        categories: list(next(words)),
        verbs: list(next(words)),
        subresources: Box::default(),
        behavior: behavior::of(group, plural),
        ty: type_id(next(words), names),
        stored: stored(words),
    }
}

fn stored(words: &mut Words) -> Option<Stored> {
    let (prefix, api_version, encoding) = (optional(next(words)), next(words), next(words));
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let encoding = match encoding {
        "protobuf" => Encoding::Protobuf,
        "json" => Encoding::Json,
        "-" => return None,
        other => panic!("unexpected encoding {other}"),
    };
    Some(Stored { prefix, group, version, encoding })
}

fn subresource(words: &mut Words, names: &[&str]) -> Subresource {
    Subresource {
        name: next(words),
        group: optional(next(words)),
        version: next(words),
        kind: next(words),
        verbs: list(next(words)),
        ty: type_id(next(words), names),
    }
}

fn field_type(word: &str, names: &[&str]) -> FieldType {
    if let Some(item) = word.strip_prefix("[]") {
        return FieldType::List(Box::new(field_type(item, names)));
    }
    if let Some(item) = word.strip_prefix("()") {
        return FieldType::WrappedList(Box::new(field_type(item, names)));
    }
    if let Some(item) = word.strip_prefix("{}") {
        return FieldType::Map(Box::new(field_type(item, names)));
    }
    match word {
        "string" => FieldType::String,
        "bool" => FieldType::Bool,
        "int32" => FieldType::Int32,
        "int64" => FieldType::Int64,
        "float64" => FieldType::Float64,
        "bytes" => FieldType::Bytes,
        "quantity" => FieldType::Quantity,
        "intorstring" => FieldType::IntOrString,
        "time" => FieldType::Time,
        "microtime" => FieldType::MicroTime,
        "raw" => FieldType::RawExtension,
        "fields" => FieldType::FieldsV1,
        "json" => FieldType::Json,
        "propsorbool" => FieldType::SchemaOrBool,
        "propsorarray" => FieldType::SchemaOrArray,
        "propsorstrings" => FieldType::SchemaOrStrings,
        name => FieldType::Struct(type_id(name, names)),
    }
}

fn type_id(name: &str, names: &[&str]) -> TypeId {
    let at = names.binary_search(&name).unwrap_or_else(|_| panic!("the table has no type {name}"));
    TypeId(short(at))
}

fn map_type(word: &str) -> MapType {
    match word {
        "atomic" => MapType::Atomic,
        "granular" => MapType::Granular,
        other => panic!("unexpected map type {other}"),
    }
}

fn next(words: &mut Words) -> &'static str {
    words.next().expect("the line has another word")
}

fn optional(word: &'static str) -> &'static str {
    if word == "-" { "" } else { word }
}

fn list(word: &'static str) -> Box<[&'static str]> {
    optional(word).split(',').filter(|item| !item.is_empty()).collect()
}

fn number(word: &str) -> u32 {
    word.parse().expect("a protobuf number")
}

fn short(index: usize) -> u16 {
    index.try_into().expect("fewer than 65536 items")
}
