package main

import (
	"fmt"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
)

var (
	scheme     = runtime.NewScheme()
	codecs     = serializer.NewCodecFactory(scheme)
	paramCodec = runtime.NewParameterCodec(scheme)
)

// kind is one stored resource.
type kind struct {
	group              schema.GroupVersion
	name               string
	resource, singular string
	namespaced         bool
	status             bool
	one, list          func() runtime.Object
	// fields are those that watches and lists may select by, besides name and namespace.
	fields func(runtime.Object) fields.Set
}

func (k kind) groupResource() schema.GroupResource {
	return schema.GroupResource{Group: k.group.Group, Resource: k.resource}
}

var kinds = []kind{
	{
		group: corev1.SchemeGroupVersion, name: "Namespace", resource: "namespaces", singular: "namespace", status: true,
		one:  func() runtime.Object { return &corev1.Namespace{} },
		list: func() runtime.Object { return &corev1.NamespaceList{} },
	},
	{
		group: corev1.SchemeGroupVersion, name: "Node", resource: "nodes", singular: "node", status: true,
		one:  func() runtime.Object { return &corev1.Node{} },
		list: func() runtime.Object { return &corev1.NodeList{} },
		fields: func(object runtime.Object) fields.Set {
			return fields.Set{"spec.unschedulable": fmt.Sprint(object.(*corev1.Node).Spec.Unschedulable)}
		},
	},
	{
		group: corev1.SchemeGroupVersion, name: "Pod", resource: "pods", singular: "pod", namespaced: true, status: true,
		one:  func() runtime.Object { return &corev1.Pod{} },
		list: func() runtime.Object { return &corev1.PodList{} },
		fields: func(object runtime.Object) fields.Set {
			pod := object.(*corev1.Pod)
			return fields.Set{"spec.nodeName": pod.Spec.NodeName, "status.phase": string(pod.Status.Phase)}
		},
	},
	{
		group: corev1.SchemeGroupVersion, name: "Event", resource: "events", singular: "event", namespaced: true,
		one:  func() runtime.Object { return &corev1.Event{} },
		list: func() runtime.Object { return &corev1.EventList{} },
		fields: func(object runtime.Object) fields.Set {
			event := object.(*corev1.Event)
			about := event.InvolvedObject
			return fields.Set{
				"involvedObject.kind": about.Kind, "involvedObject.name": about.Name, "involvedObject.uid": string(about.UID),
				"reason": event.Reason, "type": event.Type,
			}
		},
	},
	{
		group: corev1.SchemeGroupVersion, name: "Secret", resource: "secrets", singular: "secret", namespaced: true,
		one:  func() runtime.Object { return &corev1.Secret{} },
		list: func() runtime.Object { return &corev1.SecretList{} },
		fields: func(object runtime.Object) fields.Set {
			return fields.Set{"type": string(object.(*corev1.Secret).Type)}
		},
	},
	{
		group: corev1.SchemeGroupVersion, name: "ConfigMap", resource: "configmaps", singular: "configmap", namespaced: true,
		one:  func() runtime.Object { return &corev1.ConfigMap{} },
		list: func() runtime.Object { return &corev1.ConfigMapList{} },
	},
	{
		group: corev1.SchemeGroupVersion, name: "ServiceAccount", resource: "serviceaccounts", singular: "serviceaccount", namespaced: true,
		one:  func() runtime.Object { return &corev1.ServiceAccount{} },
		list: func() runtime.Object { return &corev1.ServiceAccountList{} },
	},
	{
		group: batchv1.SchemeGroupVersion, name: "Job", resource: "jobs", singular: "job", namespaced: true, status: true,
		one:  func() runtime.Object { return &batchv1.Job{} },
		list: func() runtime.Object { return &batchv1.JobList{} },
	},
	{
		group: coordinationv1.SchemeGroupVersion, name: "Lease", resource: "leases", singular: "lease", namespaced: true,
		one:  func() runtime.Object { return &coordinationv1.Lease{} },
		list: func() runtime.Object { return &coordinationv1.LeaseList{} },
	},
	{
		group: policyv1.SchemeGroupVersion, name: "PodDisruptionBudget", resource: "poddisruptionbudgets", singular: "poddisruptionbudget", namespaced: true, status: true,
		one:  func() runtime.Object { return &policyv1.PodDisruptionBudget{} },
		list: func() runtime.Object { return &policyv1.PodDisruptionBudgetList{} },
	},
}

func init() {
	utilruntime.Must(corev1.AddToScheme(scheme))
	utilruntime.Must(policyv1.AddToScheme(scheme))
	utilruntime.Must(batchv1.AddToScheme(scheme))
	utilruntime.Must(coordinationv1.AddToScheme(scheme))
	utilruntime.Must(authenticationv1.AddToScheme(scheme))
	utilruntime.Must(authorizationv1.AddToScheme(scheme))
	// The library keeps objects in an internal version and converts; here the internal version is v1's own types.
	internal := func(group string, objects ...runtime.Object) {
		scheme.AddKnownTypes(schema.GroupVersion{Group: group, Version: runtime.APIVersionInternal}, objects...)
	}
	for _, k := range kinds {
		internal(k.group.Group, k.one(), k.list())
		asGiven := func(label, value string) (string, string, error) { return label, value, nil }
		utilruntime.Must(scheme.AddFieldLabelConversionFunc(k.group.WithKind(k.name), asGiven))
	}
	internal(policyv1.GroupName, &policyv1.Eviction{})
	internal(authenticationv1.GroupName, &authenticationv1.TokenReview{})
	internal(authorizationv1.GroupName, &authorizationv1.SubjectAccessReview{})
	scheme.AddUnversionedTypes(schema.GroupVersion{Version: "v1"}, &metav1.Status{}, &metav1.APIVersions{}, &metav1.APIGroupList{}, &metav1.APIGroup{}, &metav1.APIResourceList{})
}
