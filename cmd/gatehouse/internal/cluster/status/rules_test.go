package status

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
)

// TestRulesByIndex follows an exception that names a rule by its index: the rule changes, and then the exception does.
func TestRulesByIndex(t *testing.T) {
	t.Parallel()
	inWorld(t, func(t *testing.T, w *world) {
		resource := resourceFor("PolicyException")
		u := w.Put(map[string]any{
			"apiVersion": v1alpha1.GroupVersion.String(), "kind": "PolicyException", "metadata": map[string]any{"name": "x", "namespace": "shop"},
		})
		object := Object{Kind: "PolicyException", Namespace: "shop", Name: "x", UID: u.GetUID(), Generation: u.GetGeneration()}
		read := func() (status fields, rules string) {
			var e entry
			e.observe(w.Get(resource, "shop", "x"))
			for _, rule := range e.fields.Rules {
				rules += rule.Rule + "=" + rule.Hash + " "
			}
			return e.fields, strings.TrimSpace(rules)
		}
		a := w.start(t, "a")
		step := 0
		report := func(hashes ...string) {
			step++
			o := Outcome{Object: object, Use: Current}
			for i, hash := range hashes {
				o.Rules = append(o.Rules, v1alpha1.ExceptedRule{Policy: "AdmissionPolicy/p", Rule: v1alpha1.IndexedRule(i), Hash: hash})
			}
			a.Use(Report{Digest: fmt.Sprint(step), Outcomes: []Outcome{o}})
		}
		const changed = "Compiled True Compiled, Ready True InUse, Degraded True RuleChanged"
		const remark = `rule "validations[0]" of AdmissionPolicy/p has changed since the exception was last changed ` +
			`(hint: check that the exception means this rule; then change the exception, or give the rule a name and use it)`
		check := func(what, wantStatus, wantRules string, wantEvents ...string) {
			t.Helper()
			settle()
			status, rules := read()
			if says(status) != wantStatus || rules != wantRules {
				t.Errorf("%s: the status is %q with rules %q, want %q with %q", what, says(status), rules, wantStatus, wantRules)
			}
			wantLines(t, what+": Events", w.events.taken(), wantEvents)
		}
		report("one")
		elected()
		check("at first", "observed 1, "+healthy, "validations[0]=one")
		report("one", "two")
		check("another rule exists", "observed 1, "+healthy, "validations[0]=one validations[1]=two")
		report("other", "two")
		check("a rule changes", "observed 1, "+changed, "validations[0]=one validations[1]=two", "Warning RuleChanged PolicyException x: "+remark)
		report("other", "two")
		check("nothing changes", "observed 1, "+changed, "validations[0]=one validations[1]=two")
		report()
		check("the policy is gone", "observed 1, "+healthy, "validations[0]=one validations[1]=two")
		report("other", "two")
		check("the policy is back", "observed 1, "+changed, "validations[0]=one validations[1]=two", "Warning RuleChanged PolicyException x: "+remark)
		u = w.Get(resource, "shop", "x")
		u.Object["spec"] = map[string]any{"reason": "checked"}
		object.Generation = w.Put(u.Object).GetGeneration()
		report("other", "two")
		check("the exception changes", "observed 2, "+healthy, "validations[0]=other validations[1]=two")
		a.stop()
	})
}
