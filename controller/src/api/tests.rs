//! The definitions: their required fields and their rules.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::*;

/// Calls with each schema below one, and its path.
fn walk(schema: &Value, path: &str, visit: &mut dyn FnMut(&str, &Value)) {
    visit(path, schema);
    for (name, inner) in schema["properties"].as_object().into_iter().flatten() {
        walk(inner, &format!("{path}.{name}"), visit);
    }
    if schema["items"].is_object() {
        walk(&schema["items"], &format!("{path}[]"), visit);
    }
}

fn of_upstream_group(visit: &mut dyn FnMut(&str, &Value)) {
    for definition in definitions().iter().filter(|one| one.spec.group.ends_with(".openshift.io")) {
        let definition = json!(definition);
        let kind = definition["spec"]["names"]["kind"].as_str().unwrap();
        walk(&definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"], kind, visit);
    }
}

const REQUIRED_UPSTREAM: &str = "ControllerConfig.spec
ControllerConfig.spec.dns.spec
ControllerConfig.spec.imageRegistryBundleData[].data
ControllerConfig.spec.imageRegistryBundleData[].file
ControllerConfig.spec.imageRegistryBundleUserData[].data
ControllerConfig.spec.imageRegistryBundleUserData[].file
ControllerConfig.spec.network.mtuMigration
MachineConfig.spec
MachineConfigNode.spec
MachineConfigNode.spec.configVersion
MachineConfigNode.spec.configVersion.desired
MachineConfigNode.spec.node
MachineConfigNode.spec.node.name
MachineConfigNode.spec.pool
MachineConfigNode.spec.pool.name
MachineConfigNode.status.irreconcilableChanges[].diff
MachineConfigNode.status.irreconcilableChanges[].fieldPath
MachineConfigNode.status.pinnedImageSets[].name
MachineConfigPool.spec
MachineConfigPool.spec.machineConfigSelector.matchExpressions[].key
MachineConfigPool.spec.machineConfigSelector.matchExpressions[].operator
MachineConfigPool.spec.nodeSelector.matchExpressions[].key
MachineConfigPool.spec.nodeSelector.matchExpressions[].operator
MachineConfigPool.spec.osImageStream.name
MachineConfigPool.spec.pinnedImageSets[].name
MachineConfigPool.status.poolSynchronizersStatus[].availableMachineCount
MachineConfigPool.status.poolSynchronizersStatus[].machineCount
MachineConfigPool.status.poolSynchronizersStatus[].poolSynchronizerType
MachineConfigPool.status.poolSynchronizersStatus[].readyMachineCount
MachineConfigPool.status.poolSynchronizersStatus[].unavailableMachineCount
MachineConfigPool.status.poolSynchronizersStatus[].updatedMachineCount
MachineConfiguration.spec
MachineConfiguration.spec.bootImageSkewEnforcement.manual.mode
MachineConfiguration.spec.bootImageSkewEnforcement.mode
MachineConfiguration.spec.managedBootImages.machineManagers[].apiGroup
MachineConfiguration.spec.managedBootImages.machineManagers[].resource
MachineConfiguration.spec.managedBootImages.machineManagers[].selection
MachineConfiguration.spec.managedBootImages.machineManagers[].selection.mode
MachineConfiguration.spec.managedBootImages.machineManagers[].selection.partial.machineResourceSelector
MachineConfiguration.spec.managedBootImages.machineManagers[].selection.partial.machineResourceSelector.matchExpressions[].key
MachineConfiguration.spec.managedBootImages.machineManagers[].selection.partial.machineResourceSelector.matchExpressions[].operator
MachineConfiguration.spec.nodeDisruptionPolicy.files[].actions
MachineConfiguration.spec.nodeDisruptionPolicy.files[].actions[].reload.serviceName
MachineConfiguration.spec.nodeDisruptionPolicy.files[].actions[].restart.serviceName
MachineConfiguration.spec.nodeDisruptionPolicy.files[].actions[].type
MachineConfiguration.spec.nodeDisruptionPolicy.files[].path
MachineConfiguration.spec.nodeDisruptionPolicy.sshkey.actions
MachineConfiguration.spec.nodeDisruptionPolicy.sshkey.actions[].reload.serviceName
MachineConfiguration.spec.nodeDisruptionPolicy.sshkey.actions[].restart.serviceName
MachineConfiguration.spec.nodeDisruptionPolicy.sshkey.actions[].type
MachineConfiguration.spec.nodeDisruptionPolicy.units[].actions
MachineConfiguration.spec.nodeDisruptionPolicy.units[].actions[].reload.serviceName
MachineConfiguration.spec.nodeDisruptionPolicy.units[].actions[].restart.serviceName
MachineConfiguration.spec.nodeDisruptionPolicy.units[].actions[].type
MachineConfiguration.spec.nodeDisruptionPolicy.units[].name
MachineOSBuild.spec
MachineOSBuild.spec.machineConfig
MachineOSBuild.spec.machineConfig.name
MachineOSBuild.spec.machineOSConfig
MachineOSBuild.spec.machineOSConfig.name
MachineOSBuild.spec.renderedImagePushSpec
MachineOSBuild.status.builder.imageBuilderType
MachineOSConfig.spec
MachineOSConfig.spec.baseImagePullSecret.name
MachineOSConfig.spec.containerFile[].content
MachineOSConfig.spec.imageBuilder
MachineOSConfig.spec.imageBuilder.imageBuilderType
MachineOSConfig.spec.machineConfigPool
MachineOSConfig.spec.machineConfigPool.name
MachineOSConfig.spec.renderedImagePushSecret
MachineOSConfig.spec.renderedImagePushSecret.name
MachineOSConfig.spec.renderedImagePushSpec
MachineOSConfig.status.machineOSBuild.group
MachineOSConfig.status.machineOSBuild.name
MachineOSConfig.status.machineOSBuild.resource
PinnedImageSet.spec
PinnedImageSet.spec.pinnedImages
PinnedImageSet.spec.pinnedImages[].name";

/// A field that is demanded and was optional refuses each object that upstream's programs write.
#[test]
fn only_fields_required_upstream_are_required() {
    let mut found = BTreeSet::new();
    of_upstream_group(&mut |path, schema| {
        let fields = schema["required"].as_array().into_iter().flatten();
        // Conditions and references to objects are written as a whole.
        if !path.ends_with("conditions[]")
            && !path.ends_with("builder.job")
            && !path.ends_with("relatedObjects[]")
        {
            found.extend(fields.map(|field| format!("{path}.{}", field.as_str().unwrap())));
        }
    });
    let expected: BTreeSet<String> = REQUIRED_UPSTREAM.lines().map(str::to_owned).collect();
    assert_eq!(found, expected);
}

/// Each rule names the correction.
#[test]
fn rules_have_message() {
    let mut rules = 0;
    of_upstream_group(&mut |path, schema| {
        for rule in schema["x-kubernetes-validations"].as_array().into_iter().flatten() {
            assert!(rule["message"].as_str().is_some_and(|text| !text.is_empty()), "{path}: {rule}");
            rules += 1;
        }
    });
    assert!(rules >= 20, "{rules}");
}
