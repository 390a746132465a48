//! The component `server`: the machine-config-server in a cluster.

use serde_json::{Value, json};

use crate::manifests::{each, strings};
use crate::rendered::{of_kind, render, text};

/// The server of new nodes: as least privilege has it, with a guard, and with no secret that others can read.
#[test]
fn server_is_unprivileged_and_guarded() {
    let all = render("overlays/kubernetes", &["server"]);
    let is_server = |one: &&Value| text(one, "/metadata/name") == "machine-config-server";
    let deployment = of_kind(&all, "Deployment").into_iter().find(is_server).unwrap();
    let desired = [
        ("/spec/replicas", json!(2)),
        ("/spec/template/spec/serviceAccountName", json!("machine-config-server")),
        ("/spec/template/spec/securityContext/runAsNonRoot", json!(true)),
        ("/spec/template/spec/containers/0/securityContext/readOnlyRootFilesystem", json!(true)),
        ("/spec/template/spec/containers/0/securityContext/allowPrivilegeEscalation", json!(false)),
        ("/spec/template/spec/containers/0/securityContext/capabilities", json!({ "drop": ["ALL"] })),
        ("/spec/template/spec/hostNetwork", Value::Null),
    ];
    for (pointer, value) in desired {
        assert_eq!(deployment.pointer(pointer).cloned().unwrap_or_default(), value, "{pointer}");
    }
    let volumes: Vec<&Value> = each(deployment, "/spec/template/spec/volumes").collect();
    assert_eq!(volumes.len(), 3);
    let guide = std::fs::read_to_string("docs/serve.md").unwrap();
    for volume in volumes {
        assert_eq!(volume.pointer("/secret/defaultMode"), Some(&json!(0o440)), "{volume}");
        let name = text(volume, "/secret/secretName");
        assert!(
            guide.contains(&format!("secret tls {name} "))
                || guide.contains(&format!("secret generic {name} "))
        );
    }
    let labels = deployment.pointer("/spec/template/metadata/labels").unwrap();
    for (kind, pointer) in [
        ("PodDisruptionBudget", "/spec/selector/matchLabels"),
        ("NetworkPolicy", "/spec/podSelector/matchLabels"),
        ("Service", "/spec/selector"),
    ] {
        let object = of_kind(&all, kind).into_iter().find(is_server).unwrap();
        assert_eq!(object.pointer(pointer), Some(labels), "{kind}");
    }
    let args = strings(deployment, "/spec/template/spec/containers/0/args");
    for needed in ["--tls-cert=", "--tls-key=", "--token-file="] {
        assert!(args.iter().any(|arg| arg.starts_with(needed)), "{needed} in {args:?}");
    }
    let flags = std::fs::read_to_string("controller/src/cli/serve.rs").unwrap();
    for flag in args.into_iter().skip(1) {
        let name = flag.trim_start_matches("--").split('=').next().unwrap().replace('-', "_");
        assert!(flags.contains(&format!("    {name}: ")), "`serve` has no {flag}");
    }
}
