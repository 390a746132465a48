// Command apiserver is the Kubernetes API server of this project's tests: the library modules k8s.io/apiserver and
// k8s.io/apiextensions-apiserver, pinned in go.mod, under a main of their own, with etcd as the storage.
//
// What is the library's own, so behaves as in kube-apiserver: TLS, client certificates, bearer tokens, audit, watches
// and bookmarks, metadata-only answers, JSON, merge and strategic merge patch, conflicts, custom resources in full
// (schemas, CEL rules, status subresource, server-side apply).
//
// What this program adds:
//
//	kinds.go    namespaces, nodes, pods, events, secrets, configmaps, serviceaccounts, leases,
//	            poddisruptionbudgets
//	evict.go    pods/eviction, judged by the status of the PodDisruptionBudgets
//	reviews.go  TokenReview and SubjectAccessReview
//	auth.go     users from certificates and tokens, and a file of rules in RBAC's place
//	faults.go   switches for tests: errors, expired watches, held requests, lost answers, dropped and half-open connections
//
// What it has not: RBAC, NodeRestriction, admission policies, TokenRequest, controllers (no garbage collection, no
// disruption controller), validation and server-side apply of the core kinds. Tests that need those run against a
// real kube-apiserver.
//
// The tests start it through tests/support/cluster; `apiserver --help` lists its flags. It says READY to NOTIFY_SOCKET when it
// listens, and stops on SIGTERM.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

type flags struct {
	etcd, address, admin     string
	cert, key, clientCA      string
	tokens, rules            string
	auditPolicy, auditTarget string
}

func parse() flags {
	var f flags
	text := func(into *string, name, value, usage string) { flag.StringVar(into, name, value, usage) }
	text(&f.etcd, "etcd", "", "`URL` of etcd")
	text(&f.address, "address", "127.0.0.1:0", "`HOST:PORT` to serve the API on")
	text(&f.admin, "admin", "", "`HOST:PORT` for the fault switches, plain HTTP (default: none; see faults.go)")
	text(&f.cert, "tls-cert", "", "`FILE` with the serving certificate")
	text(&f.key, "tls-key", "", "`FILE` with the serving certificate's key")
	text(&f.clientCA, "client-ca", "", "`FILE` with the authority of client certificates (CN is the user, O a group)")
	text(&f.tokens, "tokens", "", "`FILE` with lines of token,user,uid,\"group,group\"; read again when it changes")
	text(&f.rules, "rules", "", "`FILE` with lines of SUBJECT VERBS WHAT, what RBAC would hold; read again when it changes (see auth.go)")
	text(&f.auditPolicy, "audit-policy", "", "`FILE` with the audit policy")
	text(&f.auditTarget, "audit-log", "", "`FILE` for the audit log, - for standard output")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "Kubernetes API server for the tests of machine-config-agent.\n\nUsage: apiserver --etcd URL --tls-cert FILE --tls-key FILE --client-ca FILE --tokens FILE --rules FILE [flags]\n\nFlags:")
		flag.PrintDefaults()
	}
	flag.Parse()
	return f
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := run(ctx, parse()); err != nil {
		fmt.Fprintln(os.Stderr, "apiserver:", err)
		os.Exit(1)
	}
}
