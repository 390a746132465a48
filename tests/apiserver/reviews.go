package main

import (
	"context"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/registry/rest"
)

// tokenReviews answers whose token it is.
type tokenReviews struct{ tokens authenticator.Token }

func (*tokenReviews) New() runtime.Object     { return &authenticationv1.TokenReview{} }
func (*tokenReviews) Destroy()                {}
func (*tokenReviews) NamespaceScoped() bool   { return false }
func (*tokenReviews) GetSingularName() string { return "tokenreview" }

func (r *tokenReviews) Create(ctx context.Context, object runtime.Object, validate rest.ValidateObjectFunc, _ *metav1.CreateOptions) (runtime.Object, error) {
	review := object.(*authenticationv1.TokenReview)
	if review.Spec.Token == "" {
		return nil, apierrors.NewBadRequest("token is required for TokenReview in authentication")
	}
	if err := validate(ctx, review); err != nil {
		return nil, err
	}
	wanted := authenticator.Audiences(review.Spec.Audiences)
	if len(wanted) == 0 {
		wanted = audience
	}
	answer, known, err := r.tokens.AuthenticateToken(authenticator.WithAudiences(ctx, wanted), review.Spec.Token)
	review.Status = authenticationv1.TokenReviewStatus{Authenticated: known}
	if err != nil {
		review.Status.Error = err.Error()
	}
	if known {
		review.Status.User = authenticationv1.UserInfo{Username: answer.User.GetName(), UID: answer.User.GetUID(), Groups: append(answer.User.GetGroups(), user.AllAuthenticated)}
		review.Status.Audiences = answer.Audiences
	}
	return review, nil
}

// accessReviews answers whether somebody may do something, as the rules say.
type accessReviews struct{ rules authorizer.Authorizer }

func (*accessReviews) New() runtime.Object     { return &authorizationv1.SubjectAccessReview{} }
func (*accessReviews) Destroy()                {}
func (*accessReviews) NamespaceScoped() bool   { return false }
func (*accessReviews) GetSingularName() string { return "subjectaccessreview" }

func (r *accessReviews) Create(ctx context.Context, object runtime.Object, validate rest.ValidateObjectFunc, _ *metav1.CreateOptions) (runtime.Object, error) {
	review := object.(*authorizationv1.SubjectAccessReview)
	path, resource := review.Spec.NonResourceAttributes, review.Spec.ResourceAttributes
	if (path == nil) == (resource == nil) {
		return nil, apierrors.NewBadRequest("exactly one of nonResourceAttributes or resourceAttributes must be specified")
	}
	if review.Spec.User == "" && len(review.Spec.Groups) == 0 {
		return nil, apierrors.NewBadRequest("at least one of user or group must be specified")
	}
	if err := validate(ctx, review); err != nil {
		return nil, err
	}
	request := authorizer.AttributesRecord{User: &user.DefaultInfo{Name: review.Spec.User, UID: review.Spec.UID, Groups: review.Spec.Groups}}
	if path != nil {
		request.Path, request.Verb = path.Path, path.Verb
	} else {
		request.ResourceRequest = true
		request.Verb, request.Namespace, request.Name = resource.Verb, resource.Namespace, resource.Name
		request.APIGroup, request.APIVersion, request.Resource, request.Subresource = resource.Group, resource.Version, resource.Resource, resource.Subresource
	}
	decision, reason, err := r.rules.Authorize(ctx, request)
	review.Status = authorizationv1.SubjectAccessReviewStatus{Allowed: decision == authorizer.DecisionAllow, Denied: decision == authorizer.DecisionDeny, Reason: reason}
	if err != nil {
		review.Status.EvaluationError = err.Error()
	}
	return review, nil
}
