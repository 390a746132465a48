//! Pinned images with a real containerd, which pulls them from a registry that this test serves.

use crate::containerd::{Registry, containerd, program};
use crate::ran;
use machine_config_agent::host::Root;
use machine_config_agent::host::cri::{Cri, Runtime};

use crate::pinned::{Node, pin};

/// MCD-243 to 246 without a double: a real containerd pulls the image, keeps it, and lets it go with the set.
#[tokio::test]
async fn real_containerd_keeps_pinned_image() {
    let name = "real_containerd_keeps_pinned_image";
    let Some(program) = program().filter(|_| rustix::process::geteuid().is_root()) else {
        return ran::not_run(name, "containerd 1.7 or later, and root");
    };
    let image = Registry::new().serve().await;
    let mut node = Node::bare();
    let mut child = containerd(&program, node.root()).await;
    node.desire(pin(&image));
    node.until_pinned().await;
    let cri = Cri::connect(&Root::open(node.root()).unwrap()).await.unwrap();
    assert_eq!(cri.runtime, Runtime::Containerd);
    let found = cri.image(&image).await.unwrap().unwrap();
    assert!(found.is_pinned && found.id.starts_with("sha256:"), "{found:?}");
    let mut pinned = cri.pinned().await.unwrap();
    pinned.sort();
    assert_eq!(pinned, [image.clone(), found.id]);
    let (total, free) = cri.space().await.unwrap().unwrap();
    assert!(free > 0 && free < total);
    let missing = format!("{}@sha256:{}", image.split_once('@').unwrap().0, "0".repeat(64));
    let error = cri.pull(&missing, None).await.unwrap_err();
    assert!(error.to_string().contains("not found"), "{error}");
    node.want_nothing();
    node.until_empty().await;
    assert_eq!(cri.pinned().await.unwrap(), Vec::<String>::new());
    assert!(!cri.image(&image).await.unwrap().unwrap().is_pinned);
    child.kill().await.unwrap();
}
