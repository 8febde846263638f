package e2e

import (
	"strings"
	"testing"
)

// A policy, its binding and an exception of it that are applied together are all accepted without a warning, in any order: what depends
// on another object is said by conditions, which do not depend on how late a server is.
func TestAppliedTogether(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	must(t, w.applyDefinitions(t.Context()))
	w.createShop(t)
	newResourceInstall(t, w, resourceOptions{}).start(t)
	must(t, w.apply(t.Context(), policyNamed("ready", "object.metadata.name != 'red'", "")))
	w.refuses(t, "red", "no ready") // the webhooks are called
	for i, order := range [][]string{{"policy", "binding", "exception"}, {"exception", "binding", "policy"}} {
		name := []string{"first", "second"}[i]
		documents := map[string]string{
			"policy":    strings.Replace(policyNamed(name, "object.metadata.name != 'blue'", ""), "validationActions: [Deny]", "", 1),
			"binding":   "\n---\napiVersion: gatehouse.dev/v1alpha1\nkind: AdmissionPolicyBinding\nmetadata: {name: " + name + "}\nspec: {policyName: " + name + ", validationActions: [Deny]}\n",
			"exception": "\n---\napiVersion: gatehouse.dev/v1alpha1\nkind: PolicyException\nmetadata: {name: " + name + ", namespace: " + system + "}\nspec: {reason: test, policies: [{name: " + name + "}], match: {namespaces: [shop]}}\n",
		}
		text := ""
		for _, part := range order {
			text += "\n---\n" + documents[part]
		}
		output, err := w.applyOutput(t.Context(), text)
		if err != nil || strings.Contains(output, "Warning") || strings.Count(output, "created") != len(documents) {
			t.Errorf("%v: %v\n%s", order, err, output)
		}
		w.hasConditions(t, "policyexception", system, name, inUse, healthy)
	}
}
