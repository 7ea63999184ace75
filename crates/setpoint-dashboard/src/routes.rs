//! Which path answers what.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{HeaderValue, Method, Request, StatusCode, header};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use serde_json::json;
use setpoint::server::{Refused, Who};

use crate::answer::{self, Answer};
use crate::app::App;
use crate::contents::Search;
use crate::play::Act;
use crate::query::Query;
use crate::subject::Filter;
use crate::{assets, feed};

/// A token is a few kilobytes, what is played less.
const MOST_BODY: usize = 64 << 10;
const BODY_TIME: Duration = Duration::from_secs(10);
/// How long something that is played may take.
const ACT_TIME: Duration = Duration::from_secs(20);
/// How many keys of each kind of a queue are shown.
const KEYS: usize = 200;

/// Answers a request, if it is let in.
pub(crate) fn answer(app: Arc<App>, request: Request<Incoming>) -> BoxFuture<'static, Answer> {
    Box::pin(async move {
        match route(app, request).await {
            Ok(answer) => answer,
            Err(Refused(code, why)) => answer::refuse(code, &why),
        }
    })
}

async fn route(app: Arc<App>, request: Request<Incoming>) -> Result<Answer, Refused> {
    app.guard.check_source(&request)?;
    let (path, method) = (request.uri().path().to_owned(), request.method().clone());
    let asset = assets::find(&path).filter(|_| method == Method::GET);
    if let Some(asset) = asset.filter(|asset| asset.is_public) {
        return Ok(answer::file(asset.kind, asset.content));
    }
    if (method.clone(), path.as_str()) == (Method::POST, "/login") {
        return login(&app, request).await;
    }
    let who = match app.guard.admit(request.headers()).await {
        // A browser that comes for the page is asked for a token.
        Err(Refused(code @ (StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN), _)) if path == "/" => {
            return Ok(answer::html(code, assets::LOGIN));
        }
        admitted => admitted?,
    };
    if let Some(asset) = asset {
        return Ok(answer::file(asset.kind, asset.content));
    }
    let query = Query::parse(request.uri().query().unwrap_or_default());
    match (method, path.as_str()) {
        (Method::GET, path) => read(&app, path, &query, who.as_ref(), &request).await,
        (Method::POST, "/api/play") => play(&app, request).await,
        _ => Err(refused(StatusCode::METHOD_NOT_ALLOWED, "the page is read with GET")),
    }
}

fn refused(code: StatusCode, why: &str) -> Refused {
    Refused(code, why.to_owned())
}

async fn read(
    app: &Arc<App>,
    path: &str,
    query: &Query,
    who: Option<&Who>,
    request: &Request<Incoming>,
) -> Result<Answer, Refused> {
    let none = || refused(StatusCode::NOT_FOUND, "there is no such thing, or not any more");
    let text = |value: serde_json::Value| Ok(answer::json(value.to_string()));
    match path {
        "/api/state" => Ok(answer::json(Bytes::copy_from_slice(app.state().1.as_bytes()))),
        "/api/findings" => text(app.recorder.findings(app.facts.now())),
        "/api/stream" => {
            let place = place(app)?;
            let filter = Filter {
                controller: query.text("controller").to_owned(),
                key: query.text("key").to_owned(),
                namespace: query.text("namespace").to_owned(),
            };
            let headers = request.headers();
            // A browser names what it has seen last when it connects again by itself; a page that was put aside does so here.
            let last = headers.get("last-event-id").and_then(|id| id.to_str().ok());
            let last = last.unwrap_or(query.text("after"));
            Ok(answer::events(feed::stream(app.clone(), headers.clone(), last, filter, place)))
        }
        "/api/queue" => {
            let state = app.facts.state(KEYS);
            let queue = state.queues.into_iter().find(|queue| *queue.queue == *query.text("name"));
            text(json!(queue.ok_or_else(none)?))
        }
        "/api/cache" => {
            let id = query.number("id").ok_or_else(none)?;
            let cache =
                app.facts.state(0).caches.into_iter().find(|cache| cache.id == id).ok_or_else(none)?;
            let namespaces: Vec<_> = cache.scopes.iter().map(|scope| scope.namespace.as_deref()).collect();
            may_list_in(app, who, &cache.resource, &namespaces).await?;
            let search = Search { namespace: String::new(), text: query.text("q").to_owned() };
            text(app.contents.window(id, &search, query.rows()).ok_or_else(none)?)
        }
        "/api/kinds" => text(app.objects.kinds().await?),
        "/api/objects" => {
            let (resource, namespace) = (query.text("resource"), query.text("namespace"));
            let cached = match namespace {
                // Who may see them all learns that there are none; the others that they may not.
                "" => app.objects.namespaces(resource).await.unwrap_or_default(),
                namespace => vec![namespace.to_owned()],
            };
            let mut namespaces: Vec<_> = cached.iter().map(|namespace| Some(namespace.as_str())).collect();
            if namespaces.is_empty() {
                namespaces.push(None);
            }
            may_list_in(app, who, resource, &namespaces).await?;
            let search = Search { namespace: namespace.to_owned(), text: query.text("q").to_owned() };
            text(app.objects.window(resource, search, query.rows()).await?)
        }
        "/api/tree" => {
            let (resource, key) = (query.text("resource"), query.text("key"));
            text(app.objects.tree(resource, &key.into(), &app.guard, who).await?)
        }
        "/api/life" => {
            let (resource, key) = (query.text("resource"), query.text("key").into());
            may_get(app, who, resource, &key).await?;
            let place = place(app)?;
            let life = app.objects.life(resource, &key).await?;
            Ok(answer::events(life.stream(app.clone(), request.headers().clone(), place)))
        }
        "/api/events" => {
            let namespace = Some(query.text("namespace")).filter(|namespace| !namespace.is_empty());
            may_list(app, who, "events", namespace).await?;
            text(app.objects.events(namespace, query.text("uid")).await?)
        }
        "/api/play" => match &app.stage {
            Some(stage) => text(json!(stage.scene())),
            None => Err(none()),
        },
        _ => Err(none()),
    }
}

/// A place among those who are sent events as they come.
fn place(app: &App) -> Result<tokio::sync::OwnedSemaphorePermit, Refused> {
    let place = app.streams.clone().try_acquire_owned();
    place.map_err(|_| refused(StatusCode::SERVICE_UNAVAILABLE, "too many pages are open; close one"))
}

/// Whether somebody may see all of these: None is the whole cluster. Of what nobody knows where it is, nothing may be
/// seen by those who come from elsewhere.
async fn may_list_in(
    app: &App,
    who: Option<&Who>,
    resource: &str,
    namespaces: &[Option<&str>],
) -> Result<(), Refused> {
    if who.is_some() && namespaces.is_empty() {
        return Err(refused(StatusCode::FORBIDDEN, "it is not known of which namespaces this is"));
    }
    for namespace in namespaces {
        may_list(app, who, resource, *namespace).await?;
    }
    Ok(())
}

async fn may_list(
    app: &App,
    who: Option<&Who>,
    resource: &str,
    namespace: Option<&str>,
) -> Result<(), Refused> {
    let (plural, group) = resource.split_once('.').unwrap_or((resource, ""));
    app.guard.may(who, "list", group, plural, namespace).await
}

pub(crate) async fn may_get(
    app: &App,
    who: Option<&Who>,
    resource: &str,
    key: &setpoint::ObjectKey,
) -> Result<(), Refused> {
    let (plural, group) = resource.split_once('.').unwrap_or((resource, ""));
    app.guard.may(who, "get", group, plural, key.namespace()).await
}

/// Somebody shows a token in a form, and gets a cookie for it.
async fn login(app: &App, request: Request<Incoming>) -> Result<Answer, Refused> {
    let body = body(request).await?;
    let fields = form_urlencoded::parse(&body);
    let token = fields.into_iter().find(|(name, _)| name == "token").map(|(_, token)| token.into_owned());
    match app.guard.begin(token.unwrap_or_default().trim()).await {
        Ok(cookie) => {
            let mut answer = answer::see_other("/");
            let cookie = HeaderValue::from_str(&cookie);
            let cookie = cookie.map_err(|_| refused(StatusCode::BAD_REQUEST, "no cookie can be made"))?;
            answer.headers_mut().insert(header::SET_COOKIE, cookie);
            Ok(answer)
        }
        Err(Refused(code @ (StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN), _)) => {
            Ok(answer::html(code, assets::LOGIN))
        }
        Err(refused) => Err(refused),
    }
}

async fn play(app: &App, request: Request<Incoming>) -> Result<Answer, Refused> {
    let Some(stage) = app.stage.clone() else {
        return Err(refused(StatusCode::NOT_FOUND, "there is nothing to play with here"));
    };
    let kind = request.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    if kind != Some("application/json") {
        return Err(refused(StatusCode::UNSUPPORTED_MEDIA_TYPE, "send JSON"));
    }
    let act: Act = serde_json::from_slice(&body(request).await?)
        .map_err(|error| Refused(StatusCode::BAD_REQUEST, format!("send an act: {error}")))?;
    let said = tokio::time::timeout(ACT_TIME, stage.act(act)).await;
    app.redraw();
    match said {
        Ok(Ok(said)) => Ok(answer::json(json!({"said": said}).to_string())),
        Ok(Err(why)) => Err(Refused(StatusCode::CONFLICT, why)),
        Err(_) => Err(refused(StatusCode::GATEWAY_TIMEOUT, "it took too long")),
    }
}

async fn body(request: Request<Incoming>) -> Result<Bytes, Refused> {
    let body = Limited::new(request.into_body(), MOST_BODY).collect();
    match tokio::time::timeout(BODY_TIME, body).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(_)) => Err(refused(StatusCode::PAYLOAD_TOO_LARGE, "the body is too large, or was cut off")),
        Err(_) => Err(refused(StatusCode::REQUEST_TIMEOUT, "the body took too long")),
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderMap;
    use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
    use k8s_openapi::api::core::v1::ServiceAccount;
    use kube::api::{Api, PostParams};
    use setpoint::Facts;
    use setpoint_apiserver::{ApiServer, Authorization};
    use setpoint_env::Env;

    use super::*;
    use crate::DashboardConfig;

    #[tokio::test]
    async fn what_is_of_no_known_namespace_is_shown_to_nobody_from_elsewhere() {
        // Everybody may do everything here, so it is not the right that is missing.
        let server = ApiServer::builder().authorization(Authorization::AlwaysAllow).build();
        let accounts: Api<ServiceAccount> = Api::default_namespaced(server.client());
        let account = serde_json::from_value(json!({"metadata": {"name": "viewer"}})).unwrap();
        accounts.create(&PostParams::default(), &account).await.unwrap();
        let request = TokenRequest { spec: Some(TokenRequestSpec::default()), ..TokenRequest::default() };
        let token = accounts.create_token_request("viewer", &PostParams::default(), &request).await.unwrap();
        let bearer = format!("Bearer {}", token.status.unwrap().token.unwrap());
        let headers = HeaderMap::from_iter([(header::AUTHORIZATION, bearer.parse().unwrap())]);
        let env = Env::system();
        let config = DashboardConfig::default().listen("0.0.0.0:0".parse().unwrap());
        let app = App::new(&Facts::new(env.clone()), server.client(), env, config);
        let who = app.guard.admit(&headers).await.unwrap();
        assert!(who.is_some());
        may_list_in(&app, who.as_ref(), "configmaps", &[Some("default"), None]).await.unwrap();
        let refused = may_list_in(&app, who.as_ref(), "configmaps", &[]).await.unwrap_err();
        assert_eq!(refused.0, StatusCode::FORBIDDEN);
        may_list_in(&app, None, "configmaps", &[]).await.unwrap();
    }
}
