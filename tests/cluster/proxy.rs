//! A node whose only way to the API server is a forward proxy.

use std::net::Ipv4Addr;

use crate::cluster::scene::{QUIET, Scene};
use crate::cluster::{Agent, AgentOptions, Bench};
use crate::forward_proxy::{ForwardProxy, PASSWORD};

/// Gives the API server a name that only the proxy knows; `more` goes into the kubeconfig's cluster.
fn behind(scene: &mut Scene<'_>, bench: &Bench, more: &[(&str, &str)]) {
    let text = std::fs::read_to_string(&scene.kubeconfig).unwrap();
    let mut kubeconfig: serde_json::Value = serde_json::from_str(&text).unwrap();
    let port = bench.url().rsplit(':').next().unwrap().trim_end_matches('/').to_owned();
    let cluster = kubeconfig.pointer_mut("/clusters/0/cluster").unwrap();
    cluster["server"] = format!("https://api.mca.test:{port}").into();
    cluster["tls-server-name"] = "localhost".into();
    for (key, value) in more {
        cluster[*key] = (*value).into();
    }
    scene.kubeconfig = scene.host.path().join("kubeconfig");
    std::fs::write(&scene.kubeconfig, kubeconfig.to_string()).unwrap();
}

/// Returns the API server's address.
fn address(bench: &Bench) -> Ipv4Addr {
    let url = bench.url();
    url.trim_start_matches("https://").split(':').next().unwrap().parse().unwrap()
}

/// Starts a proxy that leads to the API server.
fn in_front_of(bench: &Bench) -> ForwardProxy {
    ForwardProxy::start(address(bench))
}

fn started(scene: &Scene<'_>, env: &[(&str, &str)]) -> Agent {
    let options = AgentOptions::new(&scene.kubeconfig, &scene.name, scene.host.path());
    Agent::start(&env.iter().fold(options, |options, (name, value)| options.env(name, value)))
}

/// From the environment, from `/etc/mco/proxy.env`, from the kubeconfig's `proxy-url`: each leads to the API server, and
/// no line shows the password.
#[tokio::test]
async fn proxy_is_only_way_to_api_server() {
    let bench = Bench::shared();
    for (name, source) in [("proxy-env", "env"), ("proxy-file", "file"), ("proxy-url", "url")] {
        let proxy = in_front_of(bench);
        let url = proxy.url();
        let mut scene = Scene::with_drained(bench, name, &[("controlPlaneTopology", "SingleReplica")]).await;
        let named = [("proxy-url", url.as_str())];
        behind(&mut scene, bench, if source == "url" { &named } else { &[] });
        if source == "file" {
            std::fs::create_dir_all(scene.path("/etc/mco")).unwrap();
            scene.write("/etc/mco/proxy.env", &format!("HTTPS_PROXY={url}\nNO_PROXY=.svc,10.0.0.0/8\n"));
        }
        let set = [("https_proxy", url.as_str())];
        let agent = started(&scene, if source == "env" { &set } else { &[] });
        scene.settled("a").await;
        scene.want("b").await;
        scene.settled("b").await;
        assert_eq!(scene.on_disk(QUIET).as_deref(), Some("b"));
        let asked = proxy.requests();
        assert!(asked.iter().all(|line| line.starts_with("CONNECT api.mca.test:")), "{source}: {asked:?}");
        assert!(!asked.is_empty() && asked.len() <= 2, "{source}: one connection at a time: {asked:?}");
        let lines = agent.lines().join("\n");
        assert!(!lines.contains(PASSWORD), "{lines}");
    }
}

/// Verbs that reach the cluster without an agent use the proxy, too: `plan --to desired`, and `collect` with that plan.
#[tokio::test]
async fn plan_and_collect_use_proxy() {
    let bench = Bench::shared();
    for (name, source) in [("proxy-plan-env", "env"), ("proxy-plan-file", "file")] {
        let proxy = in_front_of(bench);
        let mut scene = Scene::set(bench, name, &[]).await;
        behind(&mut scene, bench, &[]);
        let run = async |words: &[&str]| {
            let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_machine-config-agent"));
            command.args(words).args(["--os-backend", "none", "--kubeconfig"]).arg(&scene.kubeconfig);
            command.arg("--root").arg(scene.host.path()).env_remove("NODE_NAME").kill_on_drop(true);
            if source == "env" {
                command.env("https_proxy", proxy.url());
            }
            command.output().await.unwrap()
        };
        if source == "file" {
            std::fs::create_dir_all(scene.path("/etc/mco")).unwrap();
            scene.write("/etc/mco/proxy.env", &format!("HTTPS_PROXY={}\n", proxy.url()));
        }
        let output = run(&["plan", "--output", "json"]).await;
        let err = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{source}: {err}");
        let plan: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(plan["to"]["config"], scene.config("a").as_str());
        let output = run(&["collect", "--file", "-"]).await;
        let err = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && !err.contains("plan.json"), "{source}: {err}");
        assert_eq!(proxy.requests().len(), 2, "{source}: {:?}", proxy.requests());
    }
}

/// A proxy that is refused, or can't be read, is named with its cause; the correction needs no restart.
#[tokio::test]
async fn unusable_proxy_is_named_and_its_correction_is_noticed() {
    let bench = Bench::shared();
    let proxy = in_front_of(bench);
    let mut scene = Scene::set(bench, "proxy-wrong", &[]).await;
    behind(&mut scene, bench, &[]);
    std::fs::create_dir_all(scene.path("/etc/mco")).unwrap();
    let wrong = format!("http://user:other-geheim@127.0.0.1:{}", proxy.port);
    scene.write("/etc/mco/proxy.env", &format!("HTTPS_PROXY={wrong}\n"));
    let mut agent = started(&scene, &[]);
    agent.line("the refusal", |line| line.contains("407") && line.contains("127.0.0.1:")).await;
    scene.write("/etc/mco/proxy.env", &format!("HTTPS_PROXY={}\n", proxy.url()));
    scene.settled("a").await;
    let lines = agent.lines().join("\n");
    assert!(!lines.contains("geheim"), "{lines}");
}

/// TLS leads to the proxy itself, too: one that the host does not trust is named with the remedy and gets no password; a
/// trusted one leads to the API server.
#[tokio::test]
async fn https_proxy_leads_to_api_server_once_host_trusts_it() {
    let bench = Bench::shared();
    let proxy = ForwardProxy::start_tls(address(bench));
    let mut scene = Scene::set(bench, "proxy-tls", &[]).await;
    behind(&mut scene, bench, &[("proxy-url", &proxy.url())]);
    let trusted = scene.path("/proxy.pem");
    std::fs::write(&trusted, "").unwrap();
    let mut agent = started(&scene, &[("SSL_CERT_FILE", trusted.to_str().unwrap())]);
    let named = format!("the proxy 127.0.0.1:{}: TLS to it: ", proxy.port);
    agent.line("the refusal", |line| line.contains(&named) && line.contains("trust store")).await;
    assert_eq!(proxy.requests(), Vec::<String>::new(), "no request, and no password");
    std::fs::write(&trusted, proxy.certificate()).unwrap();
    scene.settled("a").await;
    let asked = proxy.requests();
    assert!(asked.iter().all(|line| line.starts_with("CONNECT api.mca.test:")), "{asked:?}");
    assert!(!asked.is_empty() && asked.len() <= 2, "one connection at a time: {asked:?}");
    let lines = agent.lines().join("\n");
    assert!(!lines.contains(PASSWORD), "{lines}");
}
