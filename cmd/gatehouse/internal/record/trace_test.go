package record

import (
	"strings"
	"testing"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// TestAttributesKey asks about users with different extra values. What is recorded has them redacted, as the
// request has, and a replay, which has the redacted ones, asks the same.
func TestAttributesKey(t *testing.T) {
	t.Parallel()
	ask := func(extra map[string][]string) authorizer.Attributes {
		return authorizer.AttributesRecord{User: &user.DefaultInfo{Name: "anna", Extra: extra}, Verb: "get", Resource: "pods", ResourceRequest: true}
	}
	seen := map[string]bool{}
	for _, extra := range []map[string][]string{
		nil, {"a": nil}, {"a": {""}}, {"a": {"x"}}, {"a": {"y"}}, {"a": {"x", "y"}}, {"a": {"x"}, "b": {"y"}}, {"a x": nil}, {"a": {"x"}, "b": nil},
	} {
		key := AttributesKey(ask(extra))
		if seen[key] {
			t.Errorf("%v: another question has the key %s", extra, key)
		}
		seen[key] = true
	}
	hash := func(value string) string { return "hash-of-" + strings.ToUpper(value) }
	recorded := attributesKey(ask(nil)) + extraKey(map[string][]string{"b": {"secret", ""}, "a": {"planted"}}, hash)
	if replayed := AttributesKey(ask(map[string][]string{"a": {"hash-of-PLANTED"}, "b": {"hash-of-SECRET", ""}})); recorded != replayed || strings.Contains(recorded, "planted") {
		t.Errorf("recorded %s, replayed %s", recorded, replayed)
	}
}
