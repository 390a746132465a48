//! The duties in the middle of a step, and before the first request to a registry: with an OS backend and a control plane
//! that a test plays.

use std::cell::RefCell;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use crate::fake_control_plane::FakeControlPlane;
use crate::fake_control_plane::os::{Played, image};
use crate::plain_host;
use machine_config_agent::agent::ExitReason;
use machine_config_agent::control::{TrustSender, trust_channel};
use machine_config_agent::host::watch::Watch;
use machine_config_agent::host::{AuthFile, FailPoints, Host, Root};
use machine_config_agent::model::certificates::{Registries, ServerCaRotation};
use machine_config_agent::model::{ClusterTrust, Contents, ProxySettings};

const KUBELET_CA: &str = "/etc/kubernetes/kubelet-ca.crt";
const MERGED: &str = "/etc/mco/internal-registry-pull-secret.json";

fn trust(version: &str, pull_secret: &str) -> ClusterTrust {
    ClusterTrust {
        version: version.to_owned(),
        rotation: ServerCaRotation::Off,
        kubelet_ca: Some(Contents::new(format!("CA {version}").into_bytes())),
        cloud_ca: None,
        registries: Registries::default(),
        server_ca: None,
        pull_secret: Some(Contents::new(pull_secret.as_bytes())),
        proxy: Ok(ProxySettings::default()),
    }
}

/// A pull that lasts until the certificates that come meanwhile are on the host.
#[derive(Debug)]
struct LongPull {
    root: Root,
    place: AuthFile,
    trust: TrustSender,
    /// Target of the link at each request to the registry.
    links: RefCell<Vec<String>>,
}

impl LongPull {
    fn record_link(&self) {
        let path = self.root.base().join(self.place.path().trim_start_matches('/'));
        let target = std::fs::read_link(path).map(|target| target.to_str().unwrap().to_owned());
        self.links.borrow_mut().push(target.unwrap_or_else(|error| error.to_string()));
    }

    async fn pull(&self) {
        self.record_link();
        assert_eq!(self.root.read(KUBELET_CA).unwrap().as_deref(), Some(&b"CA 1\n"[..]));
        let mut watch = Watch::new(&self.root, [KUBELET_CA], []).unwrap();
        self.trust.put(Some(trust("2", "{}")));
        while self.root.read(KUBELET_CA).unwrap().as_deref() != Some(b"CA 2\n") {
            watch.changed().await.unwrap();
        }
    }
}

/// Lives until the reboot; returns where the link led at each request.
async fn live(dir: &Path, place: AuthFile, pull_secret: &str) -> Vec<String> {
    let root = Root::open(dir).unwrap();
    let (sender, feed) = trust_channel();
    sender.put(Some(trust("1", pull_secret)));
    let links = RefCell::default();
    let pull = Rc::new(LongPull { root: root.clone(), place, trust: sender, links });
    let (asked, pulled) = (Rc::clone(&pull), Rc::clone(&pull));
    let os = Played {
        auth_file: place,
        asked: Box::new(move || {
            asked.record_link();
            Ok(())
        }),
        pulled: Box::new(move || {
            let pull = Rc::clone(&pulled);
            Box::pin(async move {
                pull.pull().await;
                Ok(())
            })
        }),
        ..Played::running(image("a"))
    };
    let host = Host { os: Box::new(os), ..Host::in_directory(root, FailPoints::off()) };
    let plane = FakeControlPlane { trust: feed, ..FakeControlPlane::wanting("rendered-b", Some(image("b"))) };
    let mut agent = plane.agent(host);
    let ended = tokio::time::timeout(Duration::from_secs(60), Box::pin(agent.run())).await;
    let Ok(end) = ended else { panic!("the pull waits for the certificates in vain") };
    assert_eq!(end.unwrap(), ExitReason::Reboot);
    pull.links.take()
}

/// FIL-012, OCL-002: certificates that come in the middle of a pull are written before it ends; the pull secret is linked
/// where the backend reads it before the first request to the registry, and at the attempt.
#[tokio::test]
async fn long_pull_keeps_no_certificate_waiting() {
    for (place, pull_secret, target) in [
        (AuthFile::Run, r#"{"auths":{}}"#, MERGED),
        (AuthFile::Etc, r#"{"auths":{}}"#, MERGED),
        (AuthFile::Run, "no json", "/var/lib/kubelet/config.json"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        plain_host::bare(dir.path());
        std::fs::create_dir_all(dir.path().join("var/lib/kubelet")).unwrap();
        std::fs::write(dir.path().join("var/lib/kubelet/config.json"), "{}").unwrap();
        assert_eq!(live(dir.path(), place, pull_secret).await, [target, target]);
    }
}
