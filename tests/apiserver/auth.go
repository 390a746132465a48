package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/group"
	"k8s.io/apiserver/pkg/authentication/request/anonymous"
	"k8s.io/apiserver/pkg/authentication/request/bearertoken"
	"k8s.io/apiserver/pkg/authentication/request/union"
	x509auth "k8s.io/apiserver/pkg/authentication/request/x509"
	"k8s.io/apiserver/pkg/authentication/token/tokenfile"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
)

// audience is the one that tokens here are for; a review that asks for another gets none.
var audience = authenticator.Audiences{"https://kubernetes.default.svc"}

// reread holds what a file says, and reads it again when the file is another one. Looking at every use, not being told
// of changes, makes the first request after a change the first one that is judged by it.
type reread[T any] struct {
	path  string
	parse func(path string) (T, error)
	lock  sync.Mutex
	seen  os.FileInfo
	value T
}

func (r *reread[T]) get() (T, error) {
	r.lock.Lock()
	defer r.lock.Unlock()
	now, err := os.Stat(r.path)
	if err != nil {
		return r.value, err
	}
	if r.seen != nil && os.SameFile(now, r.seen) && now.ModTime().Equal(r.seen.ModTime()) && now.Size() == r.seen.Size() {
		return r.value, nil
	}
	if r.value, err = r.parse(r.path); err == nil {
		r.seen = now
	}
	return r.value, err
}

// tokens are those of the file as it is now.
type tokens struct {
	file reread[*tokenfile.TokenAuthenticator]
}

func (t *tokens) AuthenticateToken(ctx context.Context, token string) (*authenticator.Response, bool, error) {
	known, err := t.file.get()
	if err != nil {
		return nil, false, err
	}
	return known.AuthenticateToken(ctx, token)
}

// identities makes the authenticator of requests, of tokens alone (for TokenReview), and the clients' authority.
func identities(f flags) (authenticator.Request, authenticator.Token, dynamiccertificates.CAContentProvider, error) {
	ca, err := dynamiccertificates.NewDynamicCAContentFromFile("client-ca", f.clientCA)
	if err != nil {
		return nil, nil, nil, err
	}
	known := &tokens{file: reread[*tokenfile.TokenAuthenticator]{path: f.tokens, parse: tokenfile.NewCSV}}
	if _, err := known.file.get(); err != nil {
		return nil, nil, nil, err
	}
	of := authenticator.WrapAudienceAgnosticToken(audience, known)
	// A credential that is not known is refused, not taken for nobody's.
	somebody := union.NewFailOnError(x509auth.NewDynamic(ca.VerifyOptions, x509auth.CommonNameUserConversion), bearertoken.New(of))
	return union.NewFailOnError(group.NewAuthenticatedGroupAdder(somebody), anonymous.NewAuthenticator(nil)), of, ca, nil
}

// rule is one line of the rules file: SUBJECT VERBS WHAT. SUBJECT is a user or a group, VERBS and WHAT are lists with
// commas. WHAT is a path (`/metrics`, `/healthz/*`), or `resource.group` with an optional `/subresource`; `*` is all.
type rule struct {
	subject     string
	verbs, what []string
}

func parseRules(path string) ([]rule, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	// As kube-apiserver without any role made by hand: administrators may do all, everybody may ask after its health.
	rules := []rule{
		{user.SystemPrivilegedGroup, []string{"*"}, []string{"*"}},
		{user.AllUnauthenticated, []string{"get"}, []string{"/healthz", "/livez", "/readyz", "/version"}},
		{user.AllAuthenticated, []string{"get"}, []string{"/healthz", "/livez", "/readyz", "/version", "/api", "/api/*", "/apis", "/apis/*"}},
	}
	lines := bufio.NewScanner(file)
	for number := 1; lines.Scan(); number++ {
		words := strings.Fields(lines.Text())
		if len(words) == 0 || strings.HasPrefix(words[0], "#") {
			continue
		}
		if len(words) != 3 {
			return nil, fmt.Errorf("%s:%d: SUBJECT VERBS WHAT is wanted", path, number)
		}
		rules = append(rules, rule{words[0], strings.Split(words[1], ","), strings.Split(words[2], ",")})
	}
	return rules, lines.Err()
}

// rules judges requests, and answers SubjectAccessReviews.
type rules struct{ file reread[[]rule] }

func newRules(path string) *rules { return &rules{file: reread[[]rule]{path: path, parse: parseRules}} }

func (r *rules) Authorize(_ context.Context, request authorizer.Attributes) (authorizer.Decision, string, error) {
	known, err := r.file.get()
	if err != nil {
		return authorizer.DecisionNoOpinion, "", err
	}
	for _, one := range known {
		if one.allows(request) {
			return authorizer.DecisionAllow, "allowed by a rule for " + one.subject, nil
		}
	}
	return authorizer.DecisionNoOpinion, "no rule allows it", nil
}

func (r rule) allows(request authorizer.Attributes) bool {
	who := request.GetUser()
	if who.GetName() != r.subject && !slices.Contains(who.GetGroups(), r.subject) {
		return false
	}
	return (r.verbs[0] == "*" || slices.Contains(r.verbs, request.GetVerb())) && slices.ContainsFunc(r.what, func(what string) bool { return covers(what, request) })
}

func covers(what string, request authorizer.Attributes) bool {
	if what == "*" {
		return true
	}
	if !request.IsResourceRequest() {
		start, open := strings.CutSuffix(what, "*")
		return what == request.GetPath() || open && strings.HasPrefix(request.GetPath(), start)
	}
	resource := request.GetResource()
	if group := request.GetAPIGroup(); group != "" {
		resource += "." + group
	}
	if sub := request.GetSubresource(); sub != "" {
		resource += "/" + sub
	}
	return what == resource
}
