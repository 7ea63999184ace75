//! What the client sends and what it wants back: Content-Type, Accept, and who gets indented JSON.

use std::cmp::Reverse;

use http::{HeaderMap, header};

use crate::handlers::review;
use crate::options::Query;
use crate::resource::Resource;
use crate::status::{Result, Status};

const JSON: &str = "application/json";
const YAML: &str = "application/yaml";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// How the answer is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Representation {
    pub(crate) media: Media,
    /// Indented, for people.
    pub(crate) pretty: bool,
    pub(crate) shape: Shape,
}

/// The media types that answers can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Media {
    Json,
    Yaml,
    Protobuf,
}

/// What an answer is about, which decides how it can be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Subject {
    /// Objects of a built-in kind: everything can be had.
    BuiltIn,
    /// The same, but nobody has made columns for them: questions to the server, and most subresources.
    WithoutColumns,
    /// Custom resources have no protobuf form, but their metadata do.
    Custom,
    /// The server itself, as text.
    Server,
}

/// What the answer shows of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// The object itself.
    Object,
    /// A row for each object; its columns are made for people.
    Table(TableShape),
    /// PartialObjectMetadata, or a list of them.
    PartialMetadata(MetaVersion),
}

/// What a table is like.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TableShape {
    pub(crate) version: MetaVersion,
    pub(crate) include: IncludeObject,
}

/// What a row has of its object, beside the cells: the parameter `includeObject`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum IncludeObject {
    None,
    #[default]
    Metadata,
    Object,
}

/// The version of `meta.k8s.io` that a client asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum MetaVersion {
    #[default]
    V1,
    V1Beta1,
}

impl Subject {
    /// What the answers of a resource or of its subresource are about.
    pub(crate) fn of(resource: &Resource, subresource: Option<&str>) -> Subject {
        if resource.definition().is_some() {
            return Subject::Custom;
        }
        let (group, plural) = (resource.group(), resource.plural());
        let has_columns = match subresource {
            None => !review::is_review(group, plural) && (group, plural) != ("", "bindings"),
            Some("status") => !matches!(
                group,
                "apiextensions.k8s.io" | "apiregistration.k8s.io" | "resource.k8s.io" | "scheduling.k8s.io"
            ),
            Some(part) => part == "scale",
        };
        if has_columns { Subject::BuiltIn } else { Subject::WithoutColumns }
    }
}

impl MetaVersion {
    pub(crate) fn api_version(self) -> &'static str {
        match self {
            MetaVersion::V1 => "meta.k8s.io/v1",
            MetaVersion::V1Beta1 => "meta.k8s.io/v1beta1",
        }
    }
}

impl IncludeObject {
    fn parse(query: &Query) -> Result<IncludeObject> {
        match query.get("includeObject").unwrap_or_default() {
            "" | "Metadata" => Ok(IncludeObject::Metadata),
            "None" => Ok(IncludeObject::None),
            "Object" => Ok(IncludeObject::Object),
            other => Err(Status::bad_request(format!(
                "Unable to convert to Table as requested: includeObject: Invalid value: {other:?}: must be \
                 'Metadata', 'Object', 'None', or empty"
            ))),
        }
    }
}

/// The format of a request's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BodyFormat {
    Json,
    Yaml,
    Protobuf,
}

impl Media {
    const ALL: [Media; 3] = [Media::Json, Media::Yaml, Media::Protobuf];

    /// The Content-Type of answers.
    pub(crate) fn content_type(self) -> &'static str {
        match self {
            Media::Json => JSON,
            Media::Yaml => YAML,
            Media::Protobuf => PROTOBUF,
        }
    }

    /// The Content-Type of an answer in text: what has no protobuf form is JSON.
    pub(crate) fn text_type(self) -> &'static str {
        if self == Media::Yaml { YAML } else { JSON }
    }

    fn subtype(self) -> &'static str {
        match self {
            Media::Json => "json",
            Media::Yaml => "yaml",
            Media::Protobuf => "vnd.kubernetes.protobuf",
        }
    }
}

impl Representation {
    /// The Content-Type of a watch; 406 if it cannot be answered like this: YAML has no form for a stream of events.
    pub(crate) fn stream_type(&self) -> Result<&'static str> {
        const STREAMS: [&str; 2] =
            ["application/json;stream=watch", "application/vnd.kubernetes.protobuf;stream=watch"];
        match self.media {
            Media::Json => Ok(JSON),
            Media::Protobuf => Ok(STREAMS[1]),
            Media::Yaml => Err(Status::not_acceptable(&STREAMS)),
        }
    }
}

impl Representation {
    fn is_possible(&self, subject: Subject) -> bool {
        match (self.media, self.shape, subject) {
            (_, Shape::Table(_), Subject::WithoutColumns) => false,
            (Media::Json | Media::Yaml, _, _) => true,
            (Media::Protobuf, Shape::Table(_), _) | (Media::Protobuf, _, Subject::Server) => false,
            (Media::Protobuf, Shape::Object, subject) => subject != Subject::Custom,
            (Media::Protobuf, Shape::PartialMetadata(_), _) => true,
        }
    }
}

impl BodyFormat {
    /// The format that a Content-Type names; JSON if there is none, 415 if it is unknown.
    pub(crate) fn of(content_type: Option<&str>) -> Result<BodyFormat> {
        let content_type = content_type.unwrap_or_default();
        let media_type = content_type.split(';').next().unwrap_or_default().trim();
        match media_type.to_ascii_lowercase().as_str() {
            "" if content_type.is_empty() => Ok(BodyFormat::Json),
            JSON => Ok(BodyFormat::Json),
            YAML => Ok(BodyFormat::Yaml),
            PROTOBUF => Ok(BodyFormat::Protobuf),
            _ => Err(Status::unsupported_media_type(&[JSON, YAML, PROTOBUF])),
        }
    }
}

/// The best representation that the client accepts; 406 if there is none.
pub(crate) fn representation(headers: &HeaderMap, query: &Query, subject: Subject) -> Result<Representation> {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let mut representation = accept(text(header::ACCEPT), subject)?;
    representation.pretty |= pretty(query, text(header::USER_AGENT));
    if let Shape::Table(table) = &mut representation.shape {
        table.include = IncludeObject::parse(query)?;
    }
    Ok(representation)
}

/// How the client wants to be told of failures. A failure is what it is: neither a table nor metadata.
pub(crate) fn of_status(headers: &HeaderMap, query: &Query) -> Representation {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let is_object = |offer: &Representation| offer.shape == Shape::Object;
    let plain = Representation { media: Media::Json, pretty: false, shape: Shape::Object };
    let mut asked = offers(text(header::ACCEPT), Subject::BuiltIn).find(is_object).unwrap_or(plain);
    asked.pretty |= pretty(query, text(header::USER_AGENT));
    asked
}

/// Whether the client takes this kind in JSON in place of the usual answer.
pub(crate) fn asks_for(headers: &HeaderMap, group: &str, version: &str, kind: &str) -> bool {
    let header = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    header.split(',').filter_map(Clause::parse).any(|clause| {
        clause.accepts(Media::Json)
            && clause.parameter("g") == Some(group)
            && clause.parameter("v") == Some(version)
            && clause.parameter("as") == Some(kind)
    })
}

/// Reads an Accept header. None at all means JSON.
fn accept(header: &str, subject: Subject) -> Result<Representation> {
    if header.is_empty() {
        return Ok(Representation { media: Media::Json, pretty: false, shape: Shape::Object });
    }
    let all = if subject == Subject::Server { &Media::ALL[..2] } else { &Media::ALL[..] };
    let types = || all.iter().map(|media| media.content_type()).collect::<Vec<_>>();
    offers(header, subject).next().ok_or_else(|| Status::not_acceptable(&types()))
}

/// What an Accept header asks for and can be had, the best first.
fn offers(header: &str, subject: Subject) -> impl Iterator<Item = Representation> {
    let mut clauses: Vec<Clause<'_>> = header.split(',').filter_map(Clause::parse).collect();
    clauses.sort_by_key(|clause| (Reverse(clause.quality), clause.kind == "*", clause.subtype == "*"));
    clauses.into_iter().flat_map(move |clause| {
        Media::ALL.into_iter().filter_map(move |media| {
            let offer = clause.accepts(media).then(|| clause.offer(media)).flatten()?;
            offer.is_possible(subject).then_some(offer)
        })
    })
}

/// One alternative of an Accept header: `application/json;as=Table;v=v1;g=meta.k8s.io;q=0.5`.
struct Clause<'a> {
    kind: &'a str,
    subtype: &'a str,
    /// In thousandths.
    quality: u16,
    parameters: Vec<(&'a str, &'a str)>,
}

impl<'a> Clause<'a> {
    fn parse(text: &'a str) -> Option<Clause<'a>> {
        let mut parts = text.split(';');
        let (kind, subtype) = match parts.next()?.trim() {
            "*" => ("*", "*"),
            media_type => media_type.split_once('/')?,
        };
        if subtype.is_empty() || subtype.contains('/') {
            return None;
        }
        let mut clause =
            Clause { kind: kind.trim(), subtype: subtype.trim(), quality: 1000, parameters: vec![] };
        for (name, value) in parts.filter_map(|part| part.split_once('=')) {
            match name.trim() {
                "q" => clause.quality = quality(value),
                name => clause.parameters.push((name, value.trim())),
            }
        }
        Some(clause)
    }

    fn parameter(&self, name: &str) -> Option<&'a str> {
        // As in a map, the last of several counts.
        self.parameters.iter().rev().find(|(n, _)| *n == name).map(|(_, value)| *value)
    }

    fn accepts(&self, media: Media) -> bool {
        match (self.kind, self.subtype) {
            ("*", "*") | ("application", "*") => true,
            (kind, subtype) => kind == "application" && subtype == media.subtype(),
        }
    }

    /// What this alternative asks for, if it can be had.
    fn offer(&self, media: Media) -> Option<Representation> {
        match self.parameter("stream") {
            None | Some("") => {}
            Some("watch") if media != Media::Yaml => {}
            Some(_) => return None,
        }
        if self.parameter("sv").is_some_and(|version| !version.is_empty() && version != "v1") {
            return None;
        }
        let shape = match (self.parameter("as"), self.parameter("g"), self.parameter("v")) {
            (None, None, None) => Shape::Object,
            (Some(kind), Some("meta.k8s.io"), Some(version)) => shape(kind, version)?,
            _ => return None,
        };
        Some(Representation { media, pretty: self.parameter("pretty") == Some("1"), shape })
    }
}

fn shape(kind: &str, version: &str) -> Option<Shape> {
    let version = match version {
        "v1" => MetaVersion::V1,
        "v1beta1" => MetaVersion::V1Beta1,
        _ => return None,
    };
    match kind {
        "Table" => Some(Shape::Table(TableShape { version, ..TableShape::default() })),
        "PartialObjectMetadata" | "PartialObjectMetadataList" => Some(Shape::PartialMetadata(version)),
        _ => None,
    }
}

/// `0.5` → 500; what is not a number counts as nothing.
fn quality(text: &str) -> u16 {
    let value = text.trim().parse::<f32>().unwrap_or(0.0);
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let thousandths = (value.clamp(0.0, 1.0) * 1000.0) as u16;
    thousandths
}

/// People get indented JSON: those who ask for it, and those who use curl, wget or a browser.
fn pretty(query: &Query, user_agent: &str) -> bool {
    match query.get("pretty") {
        Some(value) => matches!(value, "1" | "t" | "T" | "true" | "TRUE" | "True"),
        None => ["curl", "Wget", "Mozilla/5.0"].iter().any(|human| user_agent.starts_with(human)),
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use proptest::prelude::*;

    use super::*;

    const OBJECT: Representation = Representation { media: Media::Json, pretty: false, shape: Shape::Object };

    #[track_caller]
    fn check(header: &str, expect: Representation) {
        assert_eq!(accept(header, Subject::BuiltIn), Ok(expect), "{header}");
    }

    #[test]
    fn the_best_alternative_that_can_be_had_is_taken() {
        let yaml = Representation { media: Media::Yaml, ..OBJECT };
        let metadata = Representation { shape: Shape::PartialMetadata(MetaVersion::V1), ..OBJECT };
        check("", OBJECT);
        check("*/*", OBJECT);
        check("*", OBJECT);
        check("application/*", OBJECT);
        check("application/json", OBJECT);
        check("application/yaml", yaml);
        check("application/json;q=0.5, application/yaml", yaml);
        check("*/*, application/yaml", yaml);
        check("application/json;pretty=1", Representation { pretty: true, ..OBJECT });
        check("application/json;stream=watch", OBJECT);
        let protobuf = Representation { media: Media::Protobuf, ..OBJECT };
        check("application/vnd.kubernetes.protobuf;stream=watch,application/json;stream=watch", protobuf);
        // client-go, kubectl get, the metadata client, a browser.
        check("application/vnd.kubernetes.protobuf,application/json", protobuf);
        check("application/json;q=0.9,application/vnd.kubernetes.protobuf;q=0.5", OBJECT);
        check(
            "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,\
             application/json",
            Representation { shape: Shape::Table(TableShape::default()), ..OBJECT },
        );
        check(
            "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,\
             application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json",
            Representation { media: Media::Protobuf, ..metadata },
        );
        check(
            "application/vnd.kubernetes.protobuf;as=Table;g=meta.k8s.io;v=v1,\
             application/json;as=Table;g=meta.k8s.io;v=v1",
            Representation { shape: Shape::Table(TableShape::default()), ..OBJECT },
        );
        check("application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1", metadata);
        check("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", OBJECT);
    }

    #[test]
    fn what_cannot_be_had_is_not_acceptable() {
        for header in [
            "text/html",
            "application/vnd.kubernetes.protobuf;as=Table;g=meta.k8s.io;v=v1",
            "application/json;as=Pod;v=v1;g=meta.k8s.io",
            "application/json;as=PartialObjectMetadata",
            "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v2",
            "application/yaml;stream=watch",
            "application/json;stream=other",
            "json",
        ] {
            let status = accept(header, Subject::BuiltIn).unwrap_err();
            assert_eq!((status.code.as_u16(), &*status.reason), (406, "NotAcceptable"), "{header}");
            let expect = "only the following media types are accepted: application/json, application/yaml, \
                          application/vnd.kubernetes.protobuf";
            assert_eq!(status.message, expect);
        }
        let yaml = accept("application/yaml", Subject::BuiltIn).unwrap();
        assert_eq!(yaml.stream_type().unwrap_err().code, 406);
    }

    #[test]
    fn custom_resources_have_protobuf_for_their_metadata_only() {
        let protobuf = "application/vnd.kubernetes.protobuf";
        assert_eq!(accept(protobuf, Subject::Custom).unwrap_err().code, 406);
        assert_eq!(accept(&format!("{protobuf},application/json"), Subject::Custom), Ok(OBJECT));
        let metadata = format!("{protobuf};as=PartialObjectMetadata;g=meta.k8s.io;v=v1");
        assert_eq!(accept(&metadata, Subject::Custom).unwrap().media, Media::Protobuf);
        assert_eq!(accept(protobuf, Subject::Server).unwrap_err().code, 406);
    }

    #[test]
    fn failures_are_told_in_protobuf_to_those_who_ask_for_objects_in_it() {
        let takes = |accept: &'static str| {
            let headers = HeaderMap::from_iter([(header::ACCEPT, HeaderValue::from_static(accept))]);
            of_status(&headers, &Query::default()).media == Media::Protobuf
        };
        assert!(takes("application/vnd.kubernetes.protobuf,application/json"));
        assert!(!takes("application/json,application/vnd.kubernetes.protobuf"));
        assert!(!takes("application/vnd.kubernetes.protobuf;as=Table;g=meta.k8s.io;v=v1,application/json"));
        assert!(!takes("*/*"));
        assert_eq!(of_status(&HeaderMap::new(), &Query::default()).media, Media::Json);
    }

    #[test]
    fn a_table_has_of_its_objects_what_is_asked_for() {
        let ask = |query: &str| {
            let accept = HeaderValue::from_static("application/json;as=Table;v=v1beta1;g=meta.k8s.io");
            let headers = HeaderMap::from_iter([(header::ACCEPT, accept)]);
            representation(&headers, &Query::parse(query), Subject::BuiltIn).map(|found| found.shape)
        };
        let table = |include| Ok(Shape::Table(TableShape { version: MetaVersion::V1Beta1, include }));
        assert_eq!(ask(""), table(IncludeObject::Metadata));
        assert_eq!(ask("includeObject=None"), table(IncludeObject::None));
        assert_eq!(ask("includeObject=Object"), table(IncludeObject::Object));
        assert_eq!(
            ask("includeObject=All").unwrap_err().message,
            "Unable to convert to Table as requested: includeObject: Invalid value: \"All\": must be 'Metadata', \
             'Object', 'None', or empty"
        );
    }

    #[test]
    fn people_get_indented_json() {
        let wanted = |query: &str, agent: &'static str| {
            let headers = HeaderMap::from_iter([(header::USER_AGENT, HeaderValue::from_static(agent))]);
            let query = Query::parse(query);
            let pretty = representation(&headers, &query, Subject::BuiltIn).unwrap().pretty;
            assert_eq!(of_status(&headers, &query).pretty, pretty, "failures are told as objects are");
            pretty
        };
        assert!(wanted("pretty=true", "kubectl/v1.37"));
        assert!(wanted("", "curl/8.5.0"));
        assert!(wanted("", "Mozilla/5.0 (X11)"));
        assert!(!wanted("pretty=false", "curl/8.5.0"));
        assert!(!wanted("pretty=maybe", "curl/8.5.0"));
        assert!(!wanted("", "kubectl/v1.37"));
    }

    #[test]
    fn the_content_type_names_the_format() {
        assert_eq!(BodyFormat::of(None), Ok(BodyFormat::Json));
        assert_eq!(BodyFormat::of(Some("")), Ok(BodyFormat::Json));
        assert_eq!(BodyFormat::of(Some("application/json; charset=utf-8")), Ok(BodyFormat::Json));
        assert_eq!(BodyFormat::of(Some("Application/YAML")), Ok(BodyFormat::Yaml));
        assert_eq!(BodyFormat::of(Some("application/vnd.kubernetes.protobuf")), Ok(BodyFormat::Protobuf));
        let status = BodyFormat::of(Some("application/x-www-form-urlencoded")).unwrap_err();
        assert_eq!(status.code.as_u16(), 415);
        assert_eq!(
            status.message,
            "the body of the request was in an unknown format - accepted media types include: application/json, \
             application/yaml, application/vnd.kubernetes.protobuf"
        );
    }

    proptest! {
        #[test]
        fn no_header_makes_it_panic(header in "[a-z*/;,=q0-9. ]{0,40}|\\PC{0,30}") {
            let _ = accept(&header, Subject::BuiltIn);
            let _ = BodyFormat::of(Some(&header));
        }
    }
}
