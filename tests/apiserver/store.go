package main

import (
	"context"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/names"
)

// stores makes the storage of every kind, by group and resource.
func stores(getter generic.RESTOptionsGetter) (map[string]map[string]rest.Storage, error) {
	all := map[string]map[string]rest.Storage{}
	for _, k := range kinds {
		group := all[k.group.Group]
		if group == nil {
			group = map[string]rest.Storage{}
			all[k.group.Group] = group
		}
		store, err := newStore(k, getter)
		if err != nil {
			return nil, err
		}
		group[k.resource] = store
		if k.status {
			ofStatus := *store
			ofStatus.UpdateStrategy = newStrategy(k, true)
			group[k.resource+"/status"] = &statusREST{&ofStatus}
		}
	}
	pods := all[corev1.GroupName]["pods"].(*registry.Store)
	budgets := all[policyv1.GroupName]["poddisruptionbudgets"].(*registry.Store)
	budgetStatus := all[policyv1.GroupName]["poddisruptionbudgets/status"].(*statusREST).store
	all[corev1.GroupName]["pods/eviction"] = &evictionREST{pods, budgets, budgetStatus}
	return all, nil
}

func newStore(k kind, getter generic.RESTOptionsGetter) (*registry.Store, error) {
	s := newStrategy(k, false)
	store := &registry.Store{
		NewFunc:     k.one,
		NewListFunc: k.list,
		PredicateFunc: func(label labels.Selector, field fields.Selector) storage.SelectionPredicate {
			return storage.SelectionPredicate{Label: label, Field: field, GetAttrs: attributes(k)}
		},
		DefaultQualifiedResource:  k.groupResource(),
		SingularQualifiedResource: (kind{group: k.group, resource: k.singular}).groupResource(),
		CreateStrategy:            s,
		UpdateStrategy:            s,
		DeleteStrategy:            s,
		TableConvertor:            rest.NewDefaultTableConvertor(k.groupResource()),
	}
	if k.resource == "events" {
		// kube-apiserver's default: events are forgotten after an hour.
		store.TTLFunc = func(runtime.Object, uint64, bool) (uint64, error) { return 3600, nil }
	}
	return store, store.CompleteWithOptions(&generic.StoreOptions{RESTOptions: getter, AttrFunc: attributes(k)})
}

func attributes(k kind) storage.AttrFunc {
	return func(object runtime.Object) (labels.Set, fields.Set, error) {
		metadata, err := meta.Accessor(object)
		if err != nil {
			return nil, nil, err
		}
		set := fields.Set{"metadata.name": metadata.GetName()}
		if k.namespaced {
			set["metadata.namespace"] = metadata.GetNamespace()
		}
		if k.fields != nil {
			for name, value := range k.fields(object) {
				set[name] = value
			}
		}
		return metadata.GetLabels(), set, nil
	}
}

// strategy stores what it is given. The main resource keeps the old status and the status subresource the old spec, as
// kube-apiserver does for these kinds.
type strategy struct {
	runtime.ObjectTyper
	names.NameGenerator
	k      kind
	status bool
}

func (s strategy) NamespaceScoped() bool                                   { return s.k.namespaced }
func (strategy) Validate(context.Context, runtime.Object) field.ErrorList  { return nil }
func (strategy) WarningsOnCreate(context.Context, runtime.Object) []string { return nil }
func (strategy) Canonicalize(runtime.Object)                               {}
func (strategy) AllowCreateOnUpdate() bool                                 { return false }
func (strategy) AllowUnconditionalUpdate() bool                            { return true }
func (strategy) WarningsOnUpdate(context.Context, runtime.Object, runtime.Object) []string {
	return nil
}
func (strategy) ValidateUpdate(context.Context, runtime.Object, runtime.Object) field.ErrorList {
	return nil
}

func (strategy) PrepareForCreate(_ context.Context, object runtime.Object) {
	switch object := object.(type) {
	case *corev1.Pod:
		object.Generation = 1
		object.Status = corev1.PodStatus{Phase: corev1.PodPending}
		if object.Spec.TerminationGracePeriodSeconds == nil {
			grace := int64(corev1.DefaultTerminationGracePeriodSeconds)
			object.Spec.TerminationGracePeriodSeconds = &grace
		}
	case *policyv1.PodDisruptionBudget:
		object.Generation = 1
		object.Status = policyv1.PodDisruptionBudgetStatus{}
	case *batchv1.Job:
		object.Status = batchv1.JobStatus{}
		generateSelector(object)
	}
}

// generateSelector gives a Job the selector and its pods the labels by which they belong to it.
func generateSelector(job *batchv1.Job) {
	uid := string(job.UID)
	job.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{batchv1.ControllerUidLabel: uid}}
	all := map[string]string{batchv1.ControllerUidLabel: uid, batchv1.JobNameLabel: job.Name}
	for name, value := range job.Spec.Template.Labels {
		all[name] = value
	}
	job.Spec.Template.Labels = all
}

func (s strategy) PrepareForUpdate(_ context.Context, object, old runtime.Object) {
	switch object := object.(type) {
	case *corev1.Namespace:
		keep(s.status, &object.Spec, &object.Status, old.(*corev1.Namespace).Spec, old.(*corev1.Namespace).Status)
	case *corev1.Node:
		keep(s.status, &object.Spec, &object.Status, old.(*corev1.Node).Spec, old.(*corev1.Node).Status)
	case *corev1.Pod:
		keep(s.status, &object.Spec, &object.Status, old.(*corev1.Pod).Spec, old.(*corev1.Pod).Status)
	case *batchv1.Job:
		keep(s.status, &object.Spec, &object.Status, old.(*batchv1.Job).Spec, old.(*batchv1.Job).Status)
	case *policyv1.PodDisruptionBudget:
		old := old.(*policyv1.PodDisruptionBudget)
		keep(s.status, &object.Spec, &object.Status, old.Spec, old.Status)
		// The budget's status counts only when it was reckoned from this generation.
		object.Generation = old.Generation
		if !equality.Semantic.DeepEqual(object.Spec, old.Spec) {
			object.Generation++
		}
	}
}

func keep[Spec, Status any](statusOnly bool, spec *Spec, status *Status, oldSpec Spec, oldStatus Status) {
	if statusOnly {
		*spec = oldSpec
	} else {
		*status = oldStatus
	}
}

// newStrategy gives pods the graceful deletion that their kubelet has to confirm, and Jobs theirs.
func newStrategy(k kind, status bool) rest.RESTCreateUpdateStrategy {
	plain := strategy{scheme, names.SimpleNameGenerator, k, status}
	switch k.resource {
	case "pods":
		return podStrategy{plain}
	case "jobs":
		return jobStrategy{plain}
	}
	return plain
}

type jobStrategy struct{ strategy }

// DefaultGarbageCollectionPolicy is that of batch/v1: who deletes a Job without a word about its pods keeps them.
func (jobStrategy) DefaultGarbageCollectionPolicy(context.Context) rest.GarbageCollectionPolicy {
	return rest.OrphanDependents
}

type podStrategy struct{ strategy }

// CheckGracefulDelete marks a running pod for deletion; only a second deletion without grace removes it.
func (podStrategy) CheckGracefulDelete(_ context.Context, object runtime.Object, options *metav1.DeleteOptions) bool {
	pod := object.(*corev1.Pod)
	grace := *pod.Spec.TerminationGracePeriodSeconds
	if options.GracePeriodSeconds != nil {
		grace = *options.GracePeriodSeconds
	}
	ended := pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
	if pod.Spec.NodeName == "" || ended {
		grace = 0
	}
	options.GracePeriodSeconds = &grace
	return true
}

// statusREST reads and writes an object's status.
type statusREST struct{ store *registry.Store }

func (r *statusREST) New() runtime.Object { return r.store.New() }
func (r *statusREST) Destroy()            {}

func (r *statusREST) Get(ctx context.Context, name string, options *metav1.GetOptions) (runtime.Object, error) {
	return r.store.Get(ctx, name, options)
}

func (r *statusREST) Update(ctx context.Context, name string, object rest.UpdatedObjectInfo, onCreate rest.ValidateObjectFunc, onUpdate rest.ValidateObjectUpdateFunc, _ bool, options *metav1.UpdateOptions) (runtime.Object, bool, error) {
	return r.store.Update(ctx, name, object, onCreate, onUpdate, false, options)
}
