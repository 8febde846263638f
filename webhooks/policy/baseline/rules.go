package baseline

import (
	"cmp"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
)

// RuleName names a rule of a policy.
type RuleName struct{ Kind, Policy, Rule string }

// Compare orders rules by their policies.
func (r RuleName) Compare(other RuleName) int {
	return cmp.Or(cmp.Compare(r.Kind, other.Kind), cmp.Compare(r.Policy, other.Policy), cmp.Compare(r.Rule, other.Rule))
}

// Rule is what a PolicyBaseline allows of one rule, without the objects' names: 32 bytes for each entry.
type Rule struct {
	RuleName

	// Digests are those of the entries, sorted.
	Digests []Digest
}

// Has reports whether a digest is among those of the rule.
func (r *Rule) Has(d Digest) bool {
	_, found := slices.BinarySearchFunc(r.Digests, d, Digest.Compare)
	return found
}

// Compact returns the rules of a document without the objects' names, and what is wrong with the entries. It reads no more than
// MaxEntries.
func Compact(spec *v1alpha1.PolicyBaselineSpec) (rules []Rule, problems field.ErrorList) {
	path, left := field.NewPath("spec", "rules"), MaxEntries
	for i := range spec.Rules {
		of := &spec.Rules[i]
		at := path.Index(i)
		if left -= len(of.Entries); left < 0 {
			return nil, append(problems, field.Invalid(at.Child("entries"), len(of.Entries), fmt.Sprintf("the document has more than %d entries: split it into several", MaxEntries)))
		}
		for _, name := range [...]struct{ field, value string }{{"kind", of.Kind}, {"policy", of.Policy}, {"rule", of.Rule}} {
			if name.value == "" {
				problems = append(problems, field.Required(at.Child(name.field), "name the rule as its violations do"))
			}
		}
		out := Rule{RuleName: RuleName{of.Kind, of.Policy, of.Rule}, Digests: make([]Digest, 0, len(of.Entries))}
		for k, text := range of.Entries {
			e, err := ParseEntry(text)
			if err != nil {
				problems = append(problems, field.Invalid(at.Child("entries").Index(k), text, err.Error()))
				continue
			}
			out.Digests = append(out.Digests, e.Digest)
		}
		slices.SortFunc(out.Digests, Digest.Compare)
		rules = append(rules, out)
	}
	return rules, problems
}

// Expand returns rules of a document again. The entries are digests alone.
func Expand(rules []Rule) []v1alpha1.BaselineRule {
	out := make([]v1alpha1.BaselineRule, len(rules))
	for i := range rules {
		r := &rules[i]
		out[i] = v1alpha1.BaselineRule{Kind: r.Kind, Policy: r.Policy, Rule: r.Rule, Entries: make([]string, len(r.Digests))}
		for k, d := range r.Digests {
			out[i].Entries[k] = Entry{Digest: d}.String()
		}
	}
	return out
}
