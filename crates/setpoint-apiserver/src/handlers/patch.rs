//! PATCH of an object or of a part of it.

use http::Response;
use serde_json::Value;

use super::{create, update};
use crate::answer::Answer;
use crate::options::WriteOptions;
use crate::patch::{self, PatchType};
use crate::request::{Draft, ResourceRequest};
use crate::response::Body;
use crate::server::Core;
use crate::status::Result;
use crate::strategy::Part;

pub(crate) async fn handle(core: &Core, request: &ResourceRequest, part: Part) -> Result<Response<Body>> {
    let options = WriteOptions::parse(&request.query, "PatchOptions")?;
    let kind = PatchType::of(request)?;
    let mut warnings = Vec::new();
    let payload = update::change(core, request, part, &options, |old: Value| {
        let expected = request.expected();
        let patched = patch::apply(kind, request.resource.ty(), &old, &request.body)?;
        let mut input = Draft::from(patched).finish(expected, options.field_validation)?;
        create::set_namespace(request, &mut input.object)?;
        update::check_name(request, &input.object)?;
        warnings = input.warnings;
        Ok(input.object)
    })
    .await?;
    let mut answer = Answer::ok(payload);
    answer.warnings = warnings;
    answer.respond(request)
}
