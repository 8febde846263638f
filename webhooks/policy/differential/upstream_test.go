// Package differential_test holds the answers of webhooks/policy against those of the API server's own dispatcher.
package differential_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"unicode"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/gatehouse-dev/gatehouse/test/support/dispatcher"
	kindversions "github.com/gatehouse-dev/gatehouse/webhooks/kinds/versions"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
)

// missingParams is what we say besides upstream's text: which params do not exist.
var missingParams = regexp.MustCompile("(`Deny` parameterNotFoundAction): there is no [^\\n]*? \\(hint: create it\\)")

// ours returns our answer, or an error if there is no decision. What upstream files under
// <policy>/<key> a webhook files under <policy>_<key>.
func ours(response admission.Response) (dispatcher.Outcome, error) {
	out := dispatcher.Outcome{Allowed: response.Allowed, Warnings: response.Warnings, Audit: map[string]string{}}
	if !response.Allowed {
		if response.Result.Code >= 500 {
			return out, fmt.Errorf("cannot decide: %s", response.Result.Message)
		}
		out.Code, out.Reason, out.First = response.Result.Code, response.Result.Reason, missingParams.ReplaceAllString(response.Result.Details.Causes[0].Message, "$1")
	}
	for key, value := range response.AuditAnnotations {
		policyName, name, found := strings.Cut(key, "_")
		switch {
		case key == policy.DeniedByKey:
			continue // upstream has nothing like it
		case key == "validation_failure":
			key = "validation.policy.admission.k8s.io/validation_failure"
		case found && !strings.Contains(key, "/"):
			key = policyName + "/" + name
		}
		out.Audit[key] = value
	}
	return out, nil
}

// difference returns how our answer to a request differs from upstream's, and "" if it does not.
func difference(t testing.TB, set *policy.Set, u *dispatcher.Dispatcher, a dispatcher.Asked) string {
	t.Helper()
	got, err := ours(set.Decide(t.Context(), policy.Input{Request: a.Sent}).Response())
	if err != nil {
		return err.Error()
	}
	var want dispatcher.Outcome
	// What upstream says can depend on the order of a map's members, which it has at random.
	for range 12 {
		if want = u.Dispatch(t, a); isBounded(got, want) {
			return ""
		}
	}
	return fmt.Sprintf("     got %s\nupstream %s", toJSON(t, got), toJSON(t, want))
}

// isBounded reports whether an outcome is the other with texts that are cut, and with
// what cannot be printed left out.
func isBounded(o, of dispatcher.Outcome) bool {
	if o.Allowed != of.Allowed || o.Code != of.Code || o.Reason != of.Reason || len(o.Audit) != len(of.Audit) {
		return false
	}
	for key, value := range o.Audit {
		if of, ok := of.Audit[key]; !ok || !isBoundedText(value, of) {
			return false
		}
	}
	return isBoundedText(o.First, of.First) && slices.EqualFunc(o.Warnings, of.Warnings, isBoundedText)
}

// goTypeName is how a message names the Go type of a value. Ours is another.
var goTypeName = regexp.MustCompile(`\*(value|types|common)\.[A-Za-z]+`)

func isBoundedText(text, of string) bool {
	text, of = goTypeName.ReplaceAllString(text, "*type"), goTypeName.ReplaceAllString(of, "*type")
	// Why an object cannot be converted is told in other words here.
	const conversion = "failed to convert object version: "
	if before, _, found := strings.Cut(of, conversion); found {
		return strings.HasPrefix(text, before+conversion)
	}
	if strings.ContainsFunc(of, func(r rune) bool { return !unicode.IsPrint(r) }) || strings.Contains(of, `\u0000`) { // as it is, or in JSON
		return text != ""
	}
	start, cut := strings.CutSuffix(text, "…")
	return text == of || cut && strings.HasPrefix(of, start)
}

// randomAuthorizer answers every question in a way that depends on all of it and
// on nothing else.
type randomAuthorizer struct{}

func (randomAuthorizer) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	h := fnv.New32a()
	_, _ = fmt.Fprint(h, a.GetUser().GetName(), a.GetUser().GetGroups(), a.GetVerb(), a.GetNamespace(), a.GetAPIGroup(), a.GetAPIVersion(), a.GetResource(), a.GetSubresource(), a.GetName(), a.GetPath(), a.IsResourceRequest())
	switch {
	case a.GetVerb() == "fail":
		return authorizer.DecisionNoOpinion, "", errors.New("backend away")
	case h.Sum32()%3 == 0:
		return authorizer.DecisionDeny, "no", nil
	case h.Sum32()%3 == 1:
		return authorizer.DecisionNoOpinion, "", nil
	default:
		return authorizer.DecisionAllow, "yes", nil
	}
}

func newUpstream(t testing.TB, spec policy.Spec) *dispatcher.Dispatcher {
	t.Helper()
	return dispatcher.New(t, spec, randomAuthorizer{}, served())
}

var served = sync.OnceValue(servedKinds)

// servedKinds returns what the API server of the test serves: the resources that
// random requests are about, each in all versions that are known of it.
func servedKinds() runtime.EquivalentResourceRegistry {
	registry := runtime.NewEquivalentResourceRegistryWithIdentity(func(resource schema.GroupResource) string {
		if resource.Resource == "events" {
			return "events"
		}
		return ""
	})
	done := map[string]bool{}
	register := func(resource schema.GroupVersionResource, subresource string, kind schema.GroupVersionKind) {
		if key := resource.String() + "/" + subresource; !done[key] {
			done[key] = true
			registry.RegisterKindFor(resource, subresource, kind)
		}
	}
	for _, t := range targets() {
		others := kindversions.Of(t.resource)
		if others == nil {
			register(t.resource, t.subresource, t.kind)
		}
		for _, e := range others {
			kind := t.kind
			if t.kind.GroupVersion() == t.resource.GroupVersion() {
				kind = e.GroupVersion().WithKind(t.kind.Kind)
			}
			register(e.GroupVersionResource, t.subresource, kind)
		}
	}
	return registry
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func toJSON(t testing.TB, v any) string {
	t.Helper()
	raw, err := json.Marshal(v)
	must(t, err)
	return string(raw)
}
