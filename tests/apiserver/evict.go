package main

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/client-go/util/retry"
)

// evictionREST deletes a pod when the PodDisruptionBudgets that select it allow one disruption more. As in
// kube-apiserver, a budget's status says how many are allowed: a disruption controller has to have written it.
type evictionREST struct{ pods, budgets, budgetStatus *registry.Store }

func (*evictionREST) New() runtime.Object { return &policyv1.Eviction{} }
func (*evictionREST) Destroy()            {}

func (*evictionREST) GroupVersionKind(schema.GroupVersion) schema.GroupVersionKind {
	return policyv1.SchemeGroupVersion.WithKind("Eviction")
}

func (r *evictionREST) Create(ctx context.Context, name string, object runtime.Object, validate rest.ValidateObjectFunc, options *metav1.CreateOptions) (runtime.Object, error) {
	eviction := object.(*policyv1.Eviction)
	if eviction.Name != name {
		return nil, apierrors.NewBadRequest("name in URL does not match name in Eviction object")
	}
	if err := validate(ctx, eviction); err != nil {
		return nil, err
	}
	how := eviction.DeleteOptions
	if how == nil {
		how = &metav1.DeleteOptions{}
	}
	how.DryRun = options.DryRun
	found, err := r.pods.Get(ctx, name, &metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	pod := found.(*corev1.Pod)
	if !disrupts(pod) {
		return r.remove(ctx, pod, how)
	}
	budget, err := r.budgetOf(ctx, pod)
	if err != nil {
		return nil, err
	}
	if budget != nil && !spared(pod, budget) {
		if err := r.spend(ctx, budget.Name, pod.Name, len(how.DryRun) > 0); err != nil {
			return nil, err
		}
	}
	return r.remove(ctx, pod, how)
}

// disrupts is false for a pod that does no work, whose eviction no budget counts.
func disrupts(pod *corev1.Pod) bool {
	switch pod.Status.Phase {
	case corev1.PodSucceeded, corev1.PodFailed, corev1.PodPending:
		return false
	}
	return pod.DeletionTimestamp == nil
}

// spared is true for a pod that is not ready and whose budget is kept without it.
func spared(pod *corev1.Pod, budget *policyv1.PodDisruptionBudget) bool {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodReady && condition.Status == corev1.ConditionTrue {
			return false
		}
	}
	if policy := budget.Spec.UnhealthyPodEvictionPolicy; policy != nil && *policy == policyv1.AlwaysAllow {
		return true
	}
	return budget.Status.CurrentHealthy >= budget.Status.DesiredHealthy && budget.Status.DesiredHealthy > 0
}

func (r *evictionREST) budgetOf(ctx context.Context, pod *corev1.Pod) (*policyv1.PodDisruptionBudget, error) {
	listed, err := r.budgets.List(ctx, nil)
	if err != nil {
		return nil, err
	}
	var found *policyv1.PodDisruptionBudget
	for i := range listed.(*policyv1.PodDisruptionBudgetList).Items {
		budget := &listed.(*policyv1.PodDisruptionBudgetList).Items[i]
		selector, err := metav1.LabelSelectorAsSelector(budget.Spec.Selector)
		if err != nil || !selector.Matches(labels.Set(pod.Labels)) {
			continue
		}
		if found != nil {
			return nil, apierrors.NewInternalError(fmt.Errorf("this pod has more than one PodDisruptionBudget, which the eviction subresource does not support"))
		}
		found = budget
	}
	return found, nil
}

// spend takes one of the allowed disruptions, or says why there is none.
func (r *evictionREST) spend(ctx context.Context, name, pod string, dryRun bool) error {
	return retry.RetryOnConflict(retry.DefaultRetry, func() error {
		found, err := r.budgets.Get(ctx, name, &metav1.GetOptions{})
		if err != nil {
			return err
		}
		budget := found.(*policyv1.PodDisruptionBudget)
		switch status := &budget.Status; {
		case status.ObservedGeneration < budget.Generation:
			return refused(name, 10, "Cannot evict pod as it would violate the pod's disruption budget.", fmt.Sprintf("The disruption budget %s is still being processed by the server.", name))
		case status.DisruptionsAllowed < 0:
			return apierrors.NewForbidden(policyv1.Resource("poddisruptionbudget"), name, fmt.Errorf("pdb disruptions allowed is negative"))
		case status.DisruptionsAllowed == 0:
			return refused(name, 0, "Cannot evict pod as it would violate the pod's disruption budget.", fmt.Sprintf("The disruption budget %s needs %d healthy pods and has %d currently", name, status.DesiredHealthy, status.CurrentHealthy))
		default:
			status.DisruptionsAllowed--
			if status.DisruptedPods == nil {
				status.DisruptedPods = map[string]metav1.Time{}
			}
			status.DisruptedPods[pod] = metav1.Time{Time: time.Now()}
		}
		if dryRun {
			return nil
		}
		_, _, err = r.budgetStatus.Update(ctx, name, rest.DefaultUpdatedObjectInfo(budget), rest.ValidateAllObjectFunc, rest.ValidateAllObjectUpdateFunc, false, &metav1.UpdateOptions{})
		return err
	})
}

// refused is the 429 that a client waits on and tries again.
func refused(budget string, retryAfter int, message, cause string) error {
	err := apierrors.NewTooManyRequests(message, retryAfter)
	err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, metav1.StatusCause{Type: policyv1.DisruptionBudgetCause, Message: cause})
	return err
}

func (r *evictionREST) remove(ctx context.Context, pod *corev1.Pod, options *metav1.DeleteOptions) (runtime.Object, error) {
	if options.Preconditions == nil {
		options.Preconditions = &metav1.Preconditions{}
	}
	if options.Preconditions.UID == nil {
		options.Preconditions.UID = &pod.UID
	}
	ctx = genericapirequest.WithNamespace(ctx, pod.Namespace)
	if _, _, err := r.pods.Delete(ctx, pod.Name, rest.ValidateAllObjectFunc, options); err != nil {
		return nil, err
	}
	return &metav1.Status{Status: metav1.StatusSuccess, Code: 201}, nil
}
