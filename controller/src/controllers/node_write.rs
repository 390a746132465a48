//! Patches of nodes.

use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::{Value, json};

use super::cache::Cache;
use super::cached::Cached as _;
use super::client::RequestError;
use super::conflict::{Conflict, Expected, judge};
use super::node::NodeObject;
use super::write::{Write, write};
use crate::rollout::{Answer, Node};

/// Writes to a Node as it was observed: onto that version of that very Node, or not at all. True if it is written. Either way the
/// cache has the Node as it is now.
pub(super) async fn write_node(
    what: Write,
    client: &Client,
    cache: &Cache,
    node: &Node,
    body: &Value,
) -> Result<bool, RequestError> {
    let mut body = body.clone();
    if let Some(metadata) = body.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.insert("uid".to_owned(), json!(node.uid));
        metadata.insert("resourceVersion".to_owned(), json!(node.resource_version));
    }
    write_body(what, client, cache, &node.name, &node.uid, &body).await
}

/// As [`write_node()`], with a body that names uid and version.
pub(super) async fn write_body(
    what: Write,
    client: &Client,
    cache: &Cache,
    name: &str,
    uid: &str,
    body: &Value,
) -> Result<bool, RequestError> {
    let nodes = Api::<NodeObject>::all(client.clone());
    let patched = write(what, nodes.patch(name, &PatchParams::default(), &Patch::Merge(body))).await;
    let (written, now) = match patched {
        Ok(now) => (true, now),
        Err(error) => {
            let expected =
                Expected::Version { uid: Some(uid.to_owned()), version: version(body).map(str::to_owned) };
            match judge(what, error, &expected, nodes.get(name)).await? {
                Conflict::Changed(now) => (false, now),
                Conflict::Gone => return Ok(gone(cache, name, uid)),
            }
        }
    };
    cache.change(|snapshot| now.put(snapshot));
    Ok(written)
}

/// Returns what an error says of a write.
pub(super) fn answer(error: &RequestError) -> Answer {
    match error {
        RequestError::Unsent(_) => Answer::Unsent,
        RequestError::Unreadable(_) => Answer::Unreadable,
        RequestError::Refused(_)
        | RequestError::NoConflict(_)
        | RequestError::TimedOut
        | RequestError::Failed(_) => Answer::from_code(error.code()),
    }
}

/// Returns the version that a body is written onto.
fn version(body: &Value) -> Option<&str> {
    body.get("metadata")?.get("resourceVersion")?.as_str()
}

/// Removes a node that is gone from the cache. One of the same name is another one.
fn gone(cache: &Cache, name: &str, uid: &str) -> bool {
    cache.change(|snapshot| {
        let same = snapshot.nodes.get(name).is_some_and(|known| known.uid == uid);
        same && NodeObject::remove(snapshot, name)
    });
    false
}
