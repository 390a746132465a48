//! Transport to the API server: HTTP/2, so that watches and requests share a connection, as those of client-go do, while it has room.
//! kube's own client speaks HTTP/1.1, where each watch holds a connection.

use std::time::Duration;

use http::{Request, Response};
use http_body_util::BodyExt as _;
use hyper_rustls::{FixedServerNameResolver, HttpsConnector, HttpsConnectorBuilder};
use hyper_timeout::TimeoutConnector;
use hyper_util::client::legacy::{Client as HttpClient, connect::HttpConnector};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use kube::Config;
use kube::client::{Body, ClientBuilder, ConfigExt as _, DynBody};
use tower::timeout::TimeoutLayer;
use tower::util::BoxService;
use tower::{BoxError, ServiceBuilder, ServiceExt as _, service_fn};
use tower_http::decompression::DecompressionLayer;

use super::connections::Connections;

/// Time without a frame after which the connection is probed, and time for the answer: those of client-go. A watch has no
/// other sign of a server that is gone without a word.
const PING_INTERVAL: Duration = Duration::from_secs(30);
const PING_TIMEOUT: Duration = Duration::from_secs(15);

/// Probes of a connection in this time where it has no pings.
const KEEPALIVE_PROBES: u32 = 3;

/// Timeout of an answer's head: that of a list comes when the server has read it, which it does within 60 s. kube has none: a
/// list without an answer would be waited for until the process ends. A watch that is open has kube's.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(75);

/// kube's own name for it is not public.
type Transport = BoxService<Request<Body>, Response<Box<DynBody>>, BoxError>;

/// A way to the API server.
type Connector = TimeoutConnector<HttpsConnector<HttpConnector>>;

/// A client with connections of its own: one with HTTP/2.
#[derive(Debug, Clone)]
struct Connected {
    client: HttpClient<Connector, Body>,
    connector: Connector,
}

impl Connected {
    fn new(connector: Connector) -> Self {
        let client = HttpClient::builder(TokioExecutor::new())
            .timer(TokioTimer::new())
            .pool_timer(TokioTimer::new())
            .http2_keep_alive_interval(PING_INTERVAL)
            .http2_keep_alive_timeout(PING_TIMEOUT)
            .http2_keep_alive_while_idle(true)
            .build(connector.clone());
        Self { client, connector }
    }
}

/// Builds kube's client on this transport. A server or a load balancer without HTTP/2 gets HTTP/1.1.
pub(super) fn builder(config: Config) -> Result<ClientBuilder<Transport>, BoxError> {
    builder_with(config, ANSWER_TIMEOUT)
}

fn builder_with(config: Config, answer_timeout: Duration) -> Result<ClientBuilder<Transport>, BoxError> {
    if config.proxy_url.is_some() {
        // It refuses a proxy in its own words.
        return Ok(ClientBuilder::try_from(config)?);
    }
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    // For a server without HTTP/2, which has no pings.
    tcp.set_keepalive(Some(PING_INTERVAL));
    tcp.set_keepalive_interval(Some(PING_TIMEOUT / KEEPALIVE_PROBES));
    tcp.set_keepalive_retries(Some(KEEPALIVE_PROBES));
    let mut tls =
        HttpsConnectorBuilder::new().with_tls_config(config.rustls_client_config()?).https_or_http();
    if let Some(name) = &config.tls_server_name {
        tls = tls.with_server_name_resolver(FixedServerNameResolver::new(name.clone().try_into()?));
    }
    let mut connector = TimeoutConnector::new(tls.enable_http1().enable_http2().wrap_connector(tcp));
    connector.set_connect_timeout(config.connect_timeout);
    connector.set_write_timeout(config.write_timeout);
    let connections =
        Connections::new(Connected::new(connector), |first| Connected::new(first.connector.clone()));
    let answer = move |request: Request<Body>| {
        let taken = connections.take();
        async move {
            let Some((connected, place)) = taken else { return Err(BoxError::from("no connection")) };
            let response = connected.client.request(request).await?;
            // A watch has its place until its last byte.
            Ok(response.map(|body| {
                body.map_frame(move |frame| {
                    place.hold();
                    frame
                })
            }))
        }
    };
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .layer(DecompressionLayer::new())
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .layer(TimeoutLayer::new(answer_timeout))
        .service(service_fn(answer));
    let service = service.map_response(|response: Response<_>| {
        response.map(|body| {
            let body: Box<DynBody> = Box::new(body.map_err(BoxError::from));
            body
        })
    });
    Ok(ClientBuilder::new(service.boxed(), config.default_namespace.clone()))
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Node;
    use kube::Api;
    use kube::api::ListParams;
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn list_without_answer_ends() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let config = Config::new(url.parse().unwrap());
        let client = builder_with(config, Duration::from_millis(50)).unwrap().build();
        let (nodes, all) = (Api::<Node>::all(client), ListParams::default());
        // The connection is there, and nobody reads from it.
        let error = nodes.list(&all).await.map(drop).unwrap_err();
        assert!(super::super::client::chain(&error).contains("timed out"), "{error:?}");
    }
}
