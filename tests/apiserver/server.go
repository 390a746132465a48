package main

import (
	"context"
	"fmt"
	"net/http"
	"net/url"

	noopoteltrace "go.opentelemetry.io/otel/trace/noop"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	crdserver "k8s.io/apiextensions-apiserver/pkg/apiserver"
	crdoptions "k8s.io/apiextensions-apiserver/pkg/cmd/server/options"
	crdopenapi "k8s.io/apiextensions-apiserver/pkg/generated/openapi"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/discovery/aggregated"
	openapinamer "k8s.io/apiserver/pkg/endpoints/openapi"
	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/apiserver/pkg/server/options"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	utilcompat "k8s.io/apiserver/pkg/util/compatibility"
	"k8s.io/apiserver/pkg/util/openapi"
	"k8s.io/apiserver/pkg/util/webhook"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
)

// parts are what both halves of the server share: the core kinds, and before them the custom resources.
type parts struct {
	flags      flags
	identify   authenticator.Request
	tokens     authenticator.Token
	clientCA   dynamiccertificates.CAContentProvider
	authorizer authorizer.Authorizer
	faults     *faults
	groups     aggregated.ResourceManager
}

// run serves until the context ends.
func run(ctx context.Context, f flags) error {
	identify, tokens, clientCA, err := identities(f)
	if err != nil {
		return err
	}
	connections, err := listen(f.address)
	if err != nil {
		return err
	}
	p := parts{f, identify, tokens, clientCA, newRules(f.rules), &faults{wires: connections}, aggregated.NewResourceManager("apis")}
	if f.admin != "" {
		if err := p.faults.serve(f.admin); err != nil {
			return err
		}
	}
	legacy := crdserver.Codecs.LegacyCodec(schema.GroupVersion{Group: "apiextensions.k8s.io", Version: "v1beta1"}, schema.GroupVersion{Group: "apiextensions.k8s.io", Version: "v1"})
	crdEtcd := p.etcd("/registry/apiextensions.kubernetes.io", legacy)
	crdConfig, err := p.config(crdserver.Codecs, crdEtcd, nil)
	if err != nil {
		return err
	}
	core, err := p.core(&crdConfig.Config)
	if err != nil {
		return err
	}
	crds, err := p.custom(crdConfig, crdEtcd, core)
	if err != nil {
		return err
	}
	return crds.GenericAPIServer.PrepareRun().RunWithContext(ctx)
}

func (p parts) etcd(prefix string, codec runtime.Codec) *options.EtcdOptions {
	etcd := options.NewEtcdOptions(storagebackend.NewDefaultConfig(prefix, codec))
	etcd.StorageConfig.Transport.ServerList = []string{p.flags.etcd}
	return etcd
}

// config is a half's configuration; the second half serves on the first one's connections.
func (p parts) config(codecs serializer.CodecFactory, etcd *options.EtcdOptions, first *genericapiserver.Config) (*genericapiserver.RecommendedConfig, error) {
	config := genericapiserver.NewRecommendedConfig(codecs)
	config.EffectiveVersion = utilcompat.DefaultBuildEffectiveVersion()
	config.AggregatedDiscoveryGroupManager = p.groups
	config.Authentication.Authenticator = p.identify
	config.Authorization.Authorizer = p.authorizer
	// Within the chain: what a fault answers is authenticated, authorised and audited like any request.
	config.BuildHandlerChainFunc = func(api http.Handler, config *genericapiserver.Config) http.Handler {
		return genericapiserver.DefaultBuildHandlerChain(p.faults.within(api), config)
	}
	if first != nil {
		config.SecureServing, config.LoopbackClientConfig = first.SecureServing, first.LoopbackClientConfig
	} else {
		serving := options.NewSecureServingOptions().WithLoopback()
		serving.Listener = p.faults.wires
		serving.ServerCert.CertKey = options.CertKey{CertFile: p.flags.cert, KeyFile: p.flags.key}
		if err := serving.ApplyTo(&config.SecureServing, &config.LoopbackClientConfig); err != nil {
			return nil, err
		}
		config.SecureServing.ClientCA = p.clientCA
	}
	if err := etcd.ApplyTo(&config.Config); err != nil {
		return nil, err
	}
	if p.flags.auditTarget != "" {
		audit := options.NewAuditOptions()
		audit.PolicyFile, audit.LogOptions.Path = p.flags.auditPolicy, p.flags.auditTarget
		if err := audit.ApplyTo(&config.Config); err != nil {
			return nil, err
		}
	}
	return config, nil
}

// core serves the kinds of kinds.go and the reviews.
func (p parts) core(first *genericapiserver.Config) (*genericapiserver.GenericAPIServer, error) {
	etcd := p.etcd("/registry", codecs.LegacyCodec(corev1.SchemeGroupVersion, policyv1.SchemeGroupVersion, batchv1.SchemeGroupVersion, coordinationv1.SchemeGroupVersion))
	config, err := p.config(codecs, etcd, first)
	if err != nil {
		return nil, err
	}
	config.EnableDiscovery = false // discovery.go answers in its place
	// The core kinds have no OpenAPI models here, so no server-side apply.
	config.OpenAPIV3Config = genericapiserver.DefaultOpenAPIV3Config(crdopenapi.GetOpenAPIDefinitions, openapinamer.NewDefinitionNamer(scheme))
	config.OpenAPIV3Config.IgnorePrefixes = []string{"/api"}
	config.SkipOpenAPIInstallation = true
	server, err := config.Complete().New("core", genericapiserver.NewEmptyDelegate())
	if err != nil {
		return nil, err
	}
	all, err := stores(config.RESTOptionsGetter)
	if err != nil {
		return nil, err
	}
	all[authenticationv1.GroupName] = map[string]rest.Storage{"tokenreviews": &tokenReviews{p.tokens}}
	all[authorizationv1.GroupName] = map[string]rest.Storage{"subjectaccessreviews": &accessReviews{p.authorizer}}
	for name, storage := range all {
		group := genericapiserver.NewDefaultAPIGroupInfo(name, scheme, paramCodec, codecs)
		group.VersionedResourcesStorageMap["v1"] = storage
		if name == corev1.GroupName {
			err = server.InstallLegacyAPIGroup("/api", &group)
		} else {
			err = server.InstallAPIGroup(&group)
		}
		if err != nil {
			return nil, err
		}
	}
	server.Handler.NonGoRestfulMux.Handle("/apis", groupList(p.groups))
	return server, nil
}

// custom serves CustomResourceDefinitions and what they define, and hands the rest on.
func (p parts) custom(config *genericapiserver.RecommendedConfig, etcd *options.EtcdOptions, rest *genericapiserver.GenericAPIServer) (*crdserver.CustomResourceDefinitions, error) {
	enabled := options.NewAPIEnablementOptions()
	if err := enabled.ApplyTo(&config.Config, crdserver.DefaultAPIResourceConfigSource(), crdserver.Scheme); err != nil {
		return nil, err
	}
	definitions := openapi.GetOpenAPIDefinitionsWithoutDisabledFeatures(crdopenapi.GetOpenAPIDefinitions)
	config.OpenAPIV3Config = genericapiserver.DefaultOpenAPIV3Config(definitions, openapinamer.NewDefinitionNamer(crdserver.Scheme, clientscheme.Scheme))
	return (&crdserver.Config{
		GenericConfig: config,
		ExtraConfig: crdserver.ExtraConfig{
			CRDRESTOptionsGetter: crdoptions.NewCRDRESTOptionsGetter(*etcd, config.ResourceTransformers, config.StorageObjectCountTracker),
			ServiceResolver:      noServices{},
			AuthResolverWrapper:  webhook.NewDefaultAuthenticationInfoResolverWrapper(nil, nil, config.LoopbackClientConfig, noopoteltrace.NewTracerProvider()),
			MasterCount:          1,
		},
	}).Complete().New(rest)
}

// noServices: there are no services here that a conversion webhook could live behind.
type noServices struct{}

func (noServices) ResolveEndpoint(namespace, name string, _ int32) (*url.URL, error) {
	return nil, fmt.Errorf("there are no services here: %s/%s", namespace, name)
}
