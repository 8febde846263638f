#!/bin/sh
# access-check-field-selector.sh: where a field selector on metadata.name stands for the name, and where it does not.
#
#	sh findings/access-check-field-selector.sh
#
# A list or watch with `metadata.name=one` has the name "one" for authorizers, so that a role with resourceNames allows it, as client-go's reflectors for one object need. A deletecollection with the same selector has no name, and
# needs the right without resourceNames. A SubjectAccessReview or CEL's authorizer with the same field selector asks without a name as well: RBAC denies what it would allow in the request itself; `name('one')` asks for the same.
# A selector that does not parse is no error in CEL: the check goes on without it, as for everything.
# It needs Go and its module proxy. It ends with 1 if this changes.
set -eu
behaviour=$(sed -n '/^#\t/,/^# It needs/{/^#\t/d;/^# It needs/d;s/^# //p;}' "$0")
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
cat >main.go <<'EOF'
package main

import (
	"context"
	"fmt"
	"net/http/httptest"
	"os"

	"github.com/google/cel-go/cel"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/cel/library"
	"k8s.io/apiserver/pkg/endpoints/request"
)

func main() {
	changed := false
	requests := &request.RequestInfoFactory{APIPrefixes: sets.NewString("api"), GrouplessAPIPrefixes: sets.NewString("api")}
	for _, c := range []struct{ method, query, want string }{
		{"GET", "fieldSelector=metadata.name%3Done", "list configmaps one"},
		{"GET", "fieldSelector=metadata.name%3Done,metadata.namespace%3Ddefault&watch=1", "watch configmaps one"},
		{"GET", "fieldSelector=metadata.name!%3Done", "list configmaps "},
		{"DELETE", "fieldSelector=metadata.name%3Done", "deletecollection configmaps "},
	} {
		info, err := requests.NewRequestInfo(httptest.NewRequest(c.method, "/api/v1/namespaces/default/configmaps?"+c.query, nil))
		check(err)
		got := fmt.Sprintf("%s %s %s", info.Verb, info.Resource, info.Name)
		fmt.Printf("request %s ?%s: verb, resource and name %q\n", c.method, c.query, got)
		changed = changed || got != c.want
	}
	for _, c := range []struct{ selector, want string }{
		{"fieldSelector('metadata.name=one')", "list configmaps  [{= metadata.name one}] <nil>"},
		{"name('one')", "list configmaps one [] <nil>"},
		{"fieldSelector('metadata.name one')", "list configmaps  [] invalid selector: 'metadata.name one'; can't understand 'metadata.name one'"},
	} {
		got := attributes("authorizer.group('').resource('configmaps').namespace('default')." + c.selector + ".check('list').allowed()")
		fmt.Printf("CEL .%s.check('list'): verb, resource, name, requirements and error %q\n", c.selector, got)
		changed = changed || got != c.want
	}
	if changed {
		fmt.Println("this has changed")
		os.Exit(1)
	}
}

// attributes returns what the authorizer is asked by an expression.
func attributes(expression string) string {
	env, err := cel.NewEnv(library.Authz(), library.AuthzSelectors(), cel.Variable("authorizer", library.AuthorizerType))
	check(err)
	compiled, issues := env.Compile(expression)
	check(issues.Err())
	program, err := env.Program(compiled)
	check(err)
	asked := ""
	spy := authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
		requirements, err := a.GetFieldSelector()
		asked = fmt.Sprint(a.GetVerb(), " ", a.GetResource(), " ", a.GetName(), " ", requirements, " ", err)
		return authorizer.DecisionNoOpinion, "", nil
	})
	_, _, err = program.Eval(map[string]any{"authorizer": library.NewAuthorizerVal(&user.DefaultInfo{Name: "somebody"}, spy)})
	check(err)
	return asked
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
EOF
cat >go.mod <<'EOF'
module finding

go 1.26

require (
	github.com/google/cel-go v0.29.2
	k8s.io/apimachinery v0.37.2
	k8s.io/apiserver v0.37.2
)
EOF
unset GOFLAGS
GOWORK=off go mod tidy >tidy.log 2>&1 || { cat tidy.log; exit 2; }
echo "version: github.com/google/cel-go v0.29.2, k8s.io/apimachinery v0.37.2, k8s.io/apiserver v0.37.2"
echo "behaviour: $behaviour"
echo "output:"
GOWORK=off go run .
