//! Effects of the fault switches. Only `tests/apiserver` has them.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::pin::pin;
use std::time::Duration;

use futures_util::AsyncBufReadExt as _;
use serde_json::{Value, json};

use crate::cluster::{Bench, Connections, Fault, LIMIT, call, create_node, own_only, within};

const NODES: &str = "/api/v1/nodes";

#[tokio::test]
async fn fault_meets_only_requests_it_is_set_for_and_is_audited() {
    if !own_only("fault_meets_only_requests_it_is_set_for_and_is_audited") {
        return;
    }
    let bench = Bench::without_crds();
    let client = bench.client("faulty").await;
    bench.fault(&Fault::status(429).retry_after(3).count(1).method("GET").path(NODES).agent("faulty"));
    let mark = bench.mark().await;
    assert_eq!(call(&client, "GET", "/api/v1/namespaces", None).await.0, 200);
    assert_eq!(call(&bench.client("other").await, "GET", NODES, None).await.0, 200);
    let request = http::Request::get(NODES).body(kube::client::Body::empty()).unwrap();
    let answer = client.send(request).await.unwrap();
    assert_eq!((answer.status().as_u16(), answer.headers()["retry-after"].to_str().unwrap()), (429, "3"));
    assert_eq!(call(&client, "GET", NODES, None).await.0, 200);
    assert_eq!(bench.clear_faults(), [1]);
    let codes: Vec<_> = bench.requests_since(mark).await;
    assert!(codes.iter().any(|request| request.code == Some(429) && request.user == "faulty"), "{codes:?}");
    for code in [500, 503] {
        bench.fault(&Fault::status(code).count(1).path(NODES));
        assert_eq!(call(&client, "GET", NODES, None).await.0, code);
    }
}

#[tokio::test]
async fn expired_watch_gets_error_event() {
    if !own_only("expired_watch_gets_error_event") {
        return;
    }
    let bench = Bench::without_crds();
    let client = bench.client("expiring").await;
    bench.fault(&Fault::expired().count(1).path(NODES));
    let request = http::Request::get("/api/v1/nodes?watch=true&resourceVersion=0").body(vec![]).unwrap();
    let mut events = pin!(client.request_stream(request).await.unwrap());
    let mut line = String::new();
    within("the event", events.read_line(&mut line)).await.unwrap();
    let event: Value = serde_json::from_str(&line).unwrap();
    assert_eq!((&event["type"], &event["object"]["code"]), (&json!("ERROR"), &json!(410)), "{event}");
}

#[tokio::test]
async fn held_request_is_answered_when_it_is_let_go() {
    if !own_only("held_request_is_answered_when_it_is_let_go") {
        return;
    }
    let bench = Bench::without_crds();
    let client = bench.client("held").await;
    create_node(&client, "held", &[]).await;
    bench.fault(&Fault::held().method("GET").path("/api/v1/nodes/held"));
    let held = tokio::spawn(async move { call(&client, "GET", "/api/v1/nodes/held", None).await });
    bench.audit().until("the request comes in", |request| request.line() == "get nodes held").await;
    assert!(!held.is_finished());
    bench.clear_faults();
    assert_eq!(within("the held request", held).await.unwrap().0, 200);
}

#[tokio::test]
async fn half_open_connection_is_silent_and_dropped_one_ends() {
    if !own_only("half_open_connection_is_silent_and_dropped_one_ends") {
        return;
    }
    let bench = Bench::without_crds();
    let client = bench.client("silenced").await;
    assert_eq!(call(&client, "GET", NODES, None).await.0, 200);
    assert!(bench.connected().values().any(|agent| agent == "silenced"));
    // A server of TLS answers this at once, if it answers at all.
    let plain = |limit| {
        let mut stream = TcpStream::connect(bench.url().trim_start_matches("https://")).unwrap();
        stream.set_read_timeout(Some(limit)).unwrap();
        stream.write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
        stream
    };
    let mut buffer = [0; 12];
    assert!(plain(LIMIT).read(&mut buffer).unwrap() > 0);
    bench.connections(Connections::Hung);
    let mut silent = plain(Duration::from_millis(300));
    assert_eq!(silent.read(&mut buffer).unwrap_err().kind(), ErrorKind::WouldBlock);
    bench.connections(Connections::Resumed);
    silent.set_read_timeout(None).unwrap();
    assert!(matches!(silent.read(&mut buffer), Ok(0) | Err(_)));
    assert_eq!(call(&client, "GET", NODES, None).await.0, 200);
    let watch = http::Request::get("/api/v1/nodes?watch=true&resourceVersion=0").body(vec![]).unwrap();
    let mut events = pin!(client.request_stream(watch).await.unwrap());
    bench.connections(Connections::Dropped);
    let mut line = String::new();
    let end = within("the end of the watch", events.read_line(&mut line)).await;
    assert!(matches!(end, Err(_) | Ok(0)), "{line}");
}

#[tokio::test]
async fn stopped_server_refuses_connections_and_returns_at_same_address() {
    let bench = Bench::without_crds();
    let client = bench.client("waiting").await;
    create_node(&client, "kept", &[]).await;
    bench.stop();
    let request = http::Request::get(NODES).body(vec![]).unwrap();
    assert!(client.request_text(request).await.is_err());
    bench.start();
    assert_eq!(call(&client, "GET", "/api/v1/nodes/kept", None).await.0, 200);
}
