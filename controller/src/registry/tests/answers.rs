//! Servers with given answers.

use super::super::credentials::Account;
use super::*;

#[tokio::test]
async fn refusals_have_reasons() {
    let cases = [
        ("401 Unauthorized", "without an account; put an account of this registry", Retry::OnChange),
        ("403 Forbidden", "refuses os (403)", Retry::OnChange),
        ("429 Too Many Requests", "too many requests (429), for 7 s", Retry::After(Duration::from_secs(7))),
        ("500 Internal Server Error", "fails (500)", Retry::After(Duration::from_secs(7))),
        ("418 I am a teapot", "answers 418", Retry::OnChange),
    ];
    for (status, words, retry) in cases {
        let registry = FakeRegistry::new(move |_, _| answer(status, &["Retry-After: 7"], "")).await;
        let found =
            registry.client().find(&registry.image("os:1"), &Credentials::default()).await.unwrap_err();
        assert!(found.to_string().contains(words), "{found}");
        assert_eq!(found.retry(), retry, "{found}");
        let deleted =
            registry.client().remove(&registry.image("os:1"), &Credentials::default()).await.unwrap_err();
        assert_eq!(deleted.to_string(), found.to_string());
    }
}

#[tokio::test]
async fn time_to_stay_away_is_bounded() {
    for (header, retry) in [
        ("Retry-After: 99999999", Retry::After(MAX_RETRY_AFTER)),
        ("Retry-After: Wed, 21 Oct 2026 07:28:00 GMT", Retry::Later),
        ("Retry-After: -1", Retry::Later),
        ("X-None: 1", Retry::Later),
    ] {
        let registry = FakeRegistry::new(move |_, _| answer("429 Too Many Requests", &[header], "")).await;
        let found =
            registry.client().find(&registry.image("os:1"), &Credentials::default()).await.unwrap_err();
        assert_eq!(found.retry(), retry, "{header}");
    }
}

/// Behind an ingress without a route everything is 404.
#[tokio::test]
async fn only_registry_can_say_that_image_is_missing() {
    let registry = FakeRegistry::new(|_, _| answer("404 Not Found", &[], "default backend")).await;
    for image in [registry.image("os:1"), registry.image(&format!("os@sha256:{HEX}"))] {
        let found = registry.client().find(&image, &Credentials::default()).await.unwrap_err();
        assert!(matches!(found, Failure::NoRegistry { .. }) && found.retry() == Retry::Later, "{found}");
        let found = registry.client().remove(&image, &Credentials::default()).await.unwrap_err();
        assert!(matches!(found, Failure::NoRegistry { .. }), "{found}");
    }
    let registry = FakeRegistry::new(|head, _| {
        let is_root = head.starts_with("GET /v2/ ");
        answer(if is_root { "200 OK" } else { "404 Not Found" }, &[], "")
    })
    .await;
    assert_eq!(registry.client().find(&registry.image("os:1"), &Credentials::default()).await.unwrap(), None);
    registry.client().remove(&registry.image("os:1"), &Credentials::default()).await.unwrap();
    let expected = ["HEAD /v2/os/manifests/1", "GET /v2/", "HEAD /v2/os/manifests/1", "GET /v2/"];
    assert_eq!(registry.lines(), expected);
}

/// The registry of this many words: it names a token server, itself, which wants an account.
fn with_tokens(head: &str, own: &str) -> String {
    let bearer = head.lines().find(|line| line.to_lowercase().starts_with("authorization: "));
    let bearer = bearer.and_then(|line| line.split_once(": ")).map(|(_, value)| value);
    if head.starts_with("GET /token?") {
        // bob:open
        return match bearer {
            Some("Basic Ym9iOm9wZW4=") => answer("200 OK", &[], r#"{"access_token":"t0ken"}"#),
            _ => answer("401 Unauthorized", &[], ""),
        };
    }
    if head.starts_with("POST /token ") {
        return answer("200 OK", &[], r#"{"token":"t0ken"}"#);
    }
    if bearer == Some("Bearer t0ken") {
        return answer("200 OK", &[&format!("Docker-Content-Digest: sha256:{HEX}")], "");
    }
    let scope = match head.split(' ').next() {
        Some("DELETE") => "repository:a/os:delete,pull",
        Some("POST") => "repository:a/os:pull,push",
        _ => "repository:a/os:pull",
    };
    let challenge =
        format!("WWW-Authenticate: Bearer realm=\"http://{own}/token\",service=\"r\",scope=\"{scope}\"");
    answer("401 Unauthorized", &[&challenge], "")
}

#[tokio::test]
async fn token_is_fetched_with_account_and_scope() {
    let registry = FakeRegistry::new(with_tokens).await;
    let bob = account(&registry.address, "bob", "open");
    let digest = registry.client().find(&registry.image("a/os:1"), &bob).await.unwrap();
    assert_eq!(digest, Some(format!("sha256:{HEX}")));
    registry.client().remove(&registry.image(&format!("a/os@sha256:{HEX}")), &bob).await.unwrap();
    let (head, delete) = ("HEAD /v2/a/os/manifests/1", format!("DELETE /v2/a/os/manifests/sha256:{HEX}"));
    let expected = [
        head,
        "GET /token?service=r&scope=repository%3Aa%2Fos%3Apull",
        head,
        delete.as_str(),
        "GET /token?service=r&scope=repository%3Aa%2Fos%3Adelete%2Cpull",
        delete.as_str(),
    ];
    assert_eq!(registry.lines(), expected);
}

/// The right to push is asked for with its scope, and the upload is cancelled, but not on another server, which would get the token.
#[tokio::test]
async fn upload_is_begun_with_scope_and_cancelled_on_same_server() {
    let elsewhere = FakeRegistry::new(|_, _| answer("204 No Content", &[], "")).await;
    for place in
        ["/v2/a/os/blobs/uploads/1?state=x".to_owned(), format!("http://{}/upload", elsewhere.address)]
    {
        let location = place.clone();
        let registry = FakeRegistry::new(move |head, own| {
            let begun = head.starts_with("POST /v2/") && head.contains("Bearer t0ken");
            let location = format!("Location: {location}");
            if begun { answer("202 Accepted", &[&location], "") } else { with_tokens(head, own) }
        });
        let registry = registry.await;
        let bob = account(&registry.address, "bob", "open");
        assert!(registry.client().refusal(&registry.image("a/os:1"), &bob).await.unwrap().is_none());
        let post = "POST /v2/a/os/blobs/uploads/".to_owned();
        let token = "GET /token?service=r&scope=repository%3Aa%2Fos%3Apull%2Cpush".to_owned();
        let mut expected = vec![post.clone(), token, post];
        if place.starts_with('/') {
            expected.push(format!("DELETE {place}"));
        }
        assert_eq!(registry.lines(), expected);
    }
    assert!(elsewhere.lines().is_empty(), "{:?}", elsewhere.lines());
}

/// Only a refusal of these credentials counts: whoever else answers says nothing about them.
#[tokio::test]
async fn refusal_of_push_is_told_from_other_failures() {
    for (status, is_refused) in [
        ("401 Unauthorized", Some(true)),
        ("403 Forbidden", Some(true)),
        ("202 Accepted", Some(false)),
        ("404 Not Found", None),
        ("405 Method Not Allowed", None),
        ("503 Service Unavailable", None),
    ] {
        let registry = FakeRegistry::new(move |_, _| answer(status, &[], "")).await;
        let bob = account(&registry.address, "bob", "s3cret");
        let found = registry.client().refusal(&registry.image("os:1"), &bob).await;
        assert_eq!(found.as_ref().ok().map(Option::is_some), is_refused, "{status}: {found:?}");
        assert!(!format!("{found:?}").contains("s3cret"));
    }
}

#[tokio::test]
async fn token_server_that_refuses_is_named_without_password() {
    let registry = FakeRegistry::new(with_tokens).await;
    for credentials in [account(&registry.address, "bob", "s3cret"), Credentials::default()] {
        let found = registry.client().find(&registry.image("a/os:1"), &credentials).await.unwrap_err();
        let text = format!("{found} {found:?} {credentials:?}");
        assert!(matches!(found, Failure::Denied { status: 401, .. }), "{found}");
        assert!(!text.contains("s3cret") && !text.contains("Ym9iOnMzY3JldA"), "{text}");
    }
    assert_eq!(registry.lines().len(), 4, "{:?}", registry.lines());
}

#[tokio::test]
async fn refresh_token_is_posted() {
    let registry = FakeRegistry::new(with_tokens).await;
    let text = format!(r#"{{"auths":{{"{}":{{"identitytoken":"r3fresh"}}}}}}"#, registry.address);
    let credentials = Credentials::parse(text.as_bytes()).unwrap();
    assert!(registry.client().find(&registry.image("a/os:1"), &credentials).await.unwrap().is_some());
    assert_eq!(registry.lines()[1], "POST /token");
}

/// A password never goes out in plain text for a registry with TLS, whatever it names; here nobody speaks TLS at all.
#[tokio::test]
async fn registry_with_tls_gets_no_plain_text_request() {
    let registry = FakeRegistry::new(with_tokens).await;
    let bob = account(&registry.address, "bob", "open");
    let found = Client::default().find(&registry.image("a/os:1"), &bob).await.unwrap_err();
    assert!(matches!(found, Failure::Unreachable { .. }) && found.retry() == Retry::Later, "{found}");
    assert!(!found.to_string().contains("open"), "{found}");
}

#[tokio::test]
async fn digest_is_computed_where_no_header_names_it() {
    let registry =
        FakeRegistry::new(|head, _| answer("200 OK", &[], if head.starts_with("GET") { "{}" } else { "" }))
            .await;
    let digest = registry.client().find(&registry.image("os:1"), &Credentials::default()).await.unwrap();
    let of_braces = "sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a";
    assert_eq!(digest.as_deref(), Some(of_braces));
}

#[tokio::test]
async fn answer_without_end_is_cut() {
    let registry = FakeRegistry::new(|head, _| {
        let body = if head.starts_with("GET") { "x".repeat(MAX_MANIFEST + 1) } else { String::new() };
        answer("200 OK", &[], &body)
    })
    .await;
    let found = registry.client().find(&registry.image("os:1"), &Credentials::default()).await.unwrap_err();
    assert!(found.to_string().contains("too large"), "{found}");
}

/// Sent elsewhere by 302, a deletion would become a question that goes well.
#[tokio::test]
async fn deletion_stays_deletion_on_its_way() {
    for (status, expected) in [("302 Found", 1), ("307 Temporary Redirect", 2)] {
        let registry = FakeRegistry::new(move |head, own| {
            let location = format!("Location: http://{own}/v2/elsewhere");
            if head.contains("elsewhere") {
                answer("202 Accepted", &[], "")
            } else {
                answer(status, &[&location], "")
            }
        })
        .await;
        let image = registry.image(&format!("os@sha256:{HEX}"));
        let deleted = registry.client().remove(&image, &Credentials::default()).await;
        assert_eq!(deleted.is_ok(), expected == 2, "{deleted:?}");
        let lines = registry.lines();
        assert!(lines.len() == expected && lines.iter().all(|line| line.starts_with("DELETE ")), "{lines:?}");
    }
}

/// A proxy that wants a login answers everything with 200 and a page: no image is there, and none is deleted.
#[tokio::test]
async fn page_of_login_is_no_answer() {
    let page = |_: &str, _: &str| {
        answer("200 OK", &["Content-Type: text/html; charset=utf-8"], "<html>Sign in</html>")
    };
    let registry = FakeRegistry::new(page).await;
    for image in [registry.image("os:1"), registry.image(&format!("os@sha256:{HEX}"))] {
        let found = registry.client().find(&image, &Credentials::default()).await.unwrap_err();
        assert!(found.to_string().contains("returned an HTML page"), "{found}");
        assert_eq!(found.retry(), Retry::Later);
        let removed = registry.client().remove(&image, &Credentials::default()).await.unwrap_err();
        assert!(removed.to_string().contains("returned an HTML page"), "{removed}");
    }
    // Nor does its 200 make it a registry that may say that an image is missing.
    let registry = FakeRegistry::new(|head, _| {
        let status = if head.starts_with("GET /v2/ ") { "200 OK" } else { "404 Not Found" };
        answer(status, &["Content-Type: text/html"], "")
    })
    .await;
    let found = registry.client().find(&registry.image("os:1"), &Credentials::default()).await.unwrap_err();
    assert!(matches!(found, Failure::NoRegistry { .. }), "{found}");
}

#[tokio::test(start_paused = true)]
async fn silent_server_times_out() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let client = Client::new(Options { insecure: vec![address.clone()], trust: Vec::new() });
    let found = client.find(&format!("{address}/os:1"), &Credentials::default()).await.unwrap_err();
    assert!(
        matches!(found, Failure::Timeout { .. } | Failure::Unreachable { .. })
            && found.retry() == Retry::Later,
        "{found}"
    );
}

#[tokio::test]
async fn nobody_there_is_tried_later() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    drop(listener);
    let client = Client::new(Options { insecure: vec![address.clone()], trust: Vec::new() });
    let found = client.find(&format!("{address}/os:1"), &Credentials::default()).await.unwrap_err();
    assert!(found.to_string().contains("refused") && found.retry() == Retry::Later, "{found}");
}

#[test]
fn names_of_images_are_read_or_refused() {
    let read = |image: &str| {
        let found = Reference::parse(image).unwrap();
        format!("{} {} {}", found.host(), found.repository(), found.name())
    };
    assert_eq!(read("r.example:5000/a/b:1"), "r.example:5000 a/b 1");
    assert_eq!(read("docker://r.example/a/b"), "r.example a/b latest");
    assert_eq!(read("docker.io/busybox:1"), "docker.io library/busybox 1");
    assert_eq!(read("localhost/os"), "localhost os latest");
    assert_eq!(read(&format!("[::1]:5000/a:1@sha256:{HEX}")), format!("[::1]:5000 a sha256:{HEX}"));
    for wrong in [
        "",
        "os",
        "os:1",
        "a/b:1",
        "r.example/",
        "r.example/A",
        "r.example/a//b",
        "r.example/../b",
        "r.example/a:b c",
        "r.example/a@sha256:0",
        "r.example/a@md5:0",
        "user:password@r.example/a",
        "r.example/a?b",
        "/a.b/c",
    ] {
        let found = Reference::parse(wrong).unwrap_err();
        assert!(found.to_string().contains("give it as") && found.retry() == Retry::OnChange, "{wrong}");
    }
}

#[test]
fn account_of_longest_key_is_taken() {
    let text = r#"{"auths": {
        "r.example": {"auth": "YTpi"},
        "r.example/team": {"username": "c", "password": "d"},
        "https://index.docker.io/v1/": {"auth": "ZTpm"},
        "https://old.example": {"auth": "ZzpoOmk="},
        "empty.example": {}
    }}"#;
    let credentials = Credentials::parse(text.as_bytes()).unwrap();
    let found = |host: &str, repository: &str| match credentials.account(host, repository) {
        Some(Account::Password { user, password }) => format!("{user} {password}"),
        Some(Account::Refresh(_)) | None => String::new(),
    };
    assert_eq!(found("r.example", "os"), "a b");
    assert_eq!(found("r.example", "team/os"), "c d");
    assert_eq!(found("r.example", "teams/os"), "a b");
    assert_eq!(found("docker.io", "library/os"), "e f");
    assert_eq!(found("old.example", "os"), "g h:i");
    assert_eq!(found("r.example:5000", "os") + &found("empty.example", "os"), "");
    // The older form.
    let older = Credentials::parse(br#"{"r.example": {"auth": "YTpi"}}"#).unwrap();
    assert!(older.account("r.example", "os").is_some());
    for wrong in ["{", "[]", r#"{"auths": []}"#, r#"{"auths": {"r": {"auth": "s3cret"}}}"#] {
        let found = Credentials::parse(wrong.as_bytes()).unwrap_err();
        assert!(!format!("{found} {found:?}").contains("s3cret"), "{found}");
    }
}
