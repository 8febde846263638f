package cluster

import (
	"fmt"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gatehouse-dev/gatehouse/test/support"
	"github.com/gatehouse-dev/gatehouse/test/support/fakeapi"
	"github.com/gatehouse-dev/gatehouse/webhooks/mutation"
)

// mutating returns a policy that matches resources.
func mutating(group string, resources ...string) mutation.Policy {
	var p mutation.Policy
	p.Spec.MatchConstraints = &admissionregistrationv1.MatchResources{ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{
		RuleWithOperations: admissionregistrationv1.RuleWithOperations{Rule: admissionregistrationv1.Rule{APIGroups: []string{group}, APIVersions: []string{"v1"}, Resources: resources}},
	}}}
	return p
}

// TestDefinitions: the schemas of custom resources that mutating policies match are those of the cluster, as they change.
func TestDefinitions(t *testing.T) {
	t.Parallel()
	gears := schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Gear"}
	definition := func(size string) string {
		return `{"metadata": {"name": "gears.example.com"}, "spec": {"group": "example.com", "names": {"kind": "Gear", "plural": "gears"}, "versions": [{"name": "v1",
			"schema": {"openAPIV3Schema": {"type": "object", "description": "a gear", "properties": {"size": {"type": "integer", "default": ` + size + `}, "description": {"type": "string"}}}}}]}}`
	}
	a := fakeapi.New(namespaceResource, fakeapi.Resource{GroupVersionResource: definitionKind.GroupVersion().WithResource("customresourcedefinitions"), Kind: definitionKind.Kind})
	forbid(a, "list", "customresourcedefinitions")
	put(t, a, definitionKind, definition("3"))
	c, _ := connected(t, a)
	var next configuration
	next.mutation.Policies = []mutation.Policy{mutating("example.com", "gears", "gears/status"), mutating("apps", "*")}
	v := c.Provide(&next.policy, &next.mutation, &next.sidecar)
	schemas := next.mutation.Schemas
	if err := schemas.Err(gears); schemas.TypeConverter(gears) != nil || err == nil || !strings.Contains(err.Error(), `CustomResourceDefinition.v1.apiextensions.k8s.io "gears.example.com"`) {
		t.Errorf("before the definition is read, the error is %v", err)
	}
	restore(a)
	read(t, v)
	if schemas.TypeConverter(gears) == nil || schemas.Err(gears) != nil {
		t.Errorf("there is no schema: %v", schemas.Err(gears))
	}
	if other := (schema.GroupVersionKind{Group: "example.com", Version: "v2", Kind: "Gear"}); schemas.TypeConverter(other) != nil || schemas.Err(other) != nil {
		t.Errorf("a version that is not defined: %v", schemas.Err(other))
	}
	for _, size := range []string{"3", "4"} {
		put(t, a, definitionKind, definition(size))
		support.Eventually(t, "the default", func() error {
			gear := &unstructured.Unstructured{Object: map[string]any{}}
			gear.SetGroupVersionKind(gears)
			schemas.Default(gear)
			if got := fmt.Sprint(gear.Object["size"]); got != size {
				return fmt.Errorf("it is %s, want %s", got, size)
			}
			return nil
		})
	}
	kept, err := v.Get(definitionKind, "", "gears.example.com")
	if err != nil {
		t.Fatal(err)
	}
	text, err := kept.MarshalJSON()
	if err != nil || strings.Contains(string(text), "a gear") || !strings.Contains(string(text), `"description":{"type":"string"}`) {
		t.Errorf("%s is kept, %v", text, err)
	}
}
