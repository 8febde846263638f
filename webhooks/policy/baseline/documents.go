package baseline

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
)

// RuleName names a rule of a policy.
type RuleName struct{ Kind, Policy, Rule string }

// Compare orders rules by their policies.
func (r RuleName) Compare(other RuleName) int {
	return cmp.Or(cmp.Compare(r.Kind, other.Kind), cmp.Compare(r.Policy, other.Policy), cmp.Compare(r.Rule, other.Rule))
}

// Violations are the entries of violations, by their rules, and the rules whose violations cannot be in a baseline. Their zero value
// has none. They are not safe for concurrent use.
type Violations struct {
	entries map[RuleName]map[Entry]bool
	// without is how many violations cannot be in a baseline, by the rule and the reason.
	without map[uncovered]int64
}

type uncovered struct {
	RuleName

	reason string
}

// Add adds a violation of a rule. One without an entry, which is nil, is counted with the reason.
func (v *Violations) Add(rule RuleName, entry *Entry, reason string) {
	if entry == nil {
		if v.without == nil {
			v.without = map[uncovered]int64{}
		}
		v.without[uncovered{rule, reason}]++
		return
	}
	if v.entries == nil {
		v.entries = map[RuleName]map[Entry]bool{}
	}
	if v.entries[rule] == nil {
		v.entries[rule] = map[Entry]bool{}
	}
	v.entries[rule][*entry] = true
}

// Len returns the number of entries.
func (v *Violations) Len() int {
	n := 0
	for _, entries := range v.entries {
		n += len(entries)
	}
	return n
}

// Uncovered returns the rules whose violations cannot be in a baseline, in a fixed order.
func (v *Violations) Uncovered() []v1alpha1.UncoveredRule {
	all := slices.SortedFunc(maps.Keys(v.without), func(a, b uncovered) int { return cmp.Or(a.Compare(b.RuleName), cmp.Compare(a.reason, b.reason)) })
	out := make([]v1alpha1.UncoveredRule, len(all))
	for i, u := range all {
		out[i] = v1alpha1.UncoveredRule{Kind: u.Kind, Policy: u.Policy, Rule: u.Rule, Reason: u.reason, Violations: v.without[u]}
	}
	return out
}

// Read returns the entries of documents. The error names one that is none.
func Read(documents []v1alpha1.PolicyBaseline) (*Violations, error) {
	out := new(Violations)
	for i := range documents {
		for _, r := range documents[i].Spec.Rules {
			for _, text := range r.Entries {
				e, err := ParseEntry(text)
				if err != nil {
					return nil, fmt.Errorf("%s: %s of %s %s: %w", documents[i].Name, r.Rule, r.Kind, r.Policy, err)
				}
				out.Add(RuleName{r.Kind, r.Policy, r.Rule}, &e, "")
			}
		}
	}
	return out, nil
}

// Prune drops the entries that are not among the violations that there are now, and returns how many. Nothing is added. An entry
// without the name of an object gets that of the violation.
func (v *Violations) Prune(now *Violations) (dropped int) {
	for rule, entries := range v.entries {
		current := map[Digest]Entry{}
		for e := range now.entries[rule] {
			current[e.Digest] = e
		}
		kept := map[Entry]bool{}
		for e := range entries {
			if found, is := current[e.Digest]; is {
				kept[found] = true
			}
		}
		dropped += len(entries) - len(kept)
		v.entries[rule] = kept
	}
	v.without = maps.Clone(now.without)
	return dropped
}

// Documents returns documents with the violations and, in their order, what header has: the metadata, the reason and the time of the
// end. The first has its name, and if there are too many entries for one, others have the name with -2, -3 and so on.
func (v *Violations) Documents(header *v1alpha1.PolicyBaseline) []v1alpha1.PolicyBaseline {
	var out []v1alpha1.PolicyBaseline
	left := 0
	next := func() *v1alpha1.PolicyBaselineSpec {
		document := v1alpha1.PolicyBaseline{
			TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "PolicyBaseline"},
			ObjectMeta: *header.ObjectMeta.DeepCopy(),
			Spec:       v1alpha1.PolicyBaselineSpec{Reason: header.Spec.Reason, ExpiresAt: header.Spec.ExpiresAt},
		}
		if len(out) > 0 {
			document.Name = fmt.Sprintf("%s-%d", header.Name, len(out)+1)
		}
		out, left = append(out, document), MaxEntries
		return &out[len(out)-1].Spec
	}
	spec := next()
	spec.NotCovered = v.Uncovered()
	if len(spec.NotCovered) > MaxEntries {
		spec.NotCovered = spec.NotCovered[:MaxEntries]
	}
	for _, rule := range slices.SortedFunc(maps.Keys(v.entries), RuleName.Compare) {
		entries := slices.SortedFunc(maps.Keys(v.entries[rule]), Entry.Compare)
		for len(entries) > 0 {
			if left == 0 {
				spec = next()
			}
			n := min(left, len(entries))
			texts := make([]string, n)
			for i, e := range entries[:n] {
				texts[i] = e.String()
			}
			spec.Rules = append(spec.Rules, v1alpha1.BaselineRule{Kind: rule.Kind, Policy: rule.Policy, Rule: rule.Rule, Entries: texts})
			entries, left = entries[n:], left-n
		}
	}
	return out
}

// Encode returns documents as YAML, with the rules last and one entry on a line.
func Encode(documents []v1alpha1.PolicyBaseline) ([]byte, error) {
	var out bytes.Buffer
	write := func(prefix string, value any) error {
		text, err := yaml.Marshal(value)
		if err != nil {
			return fmt.Errorf("encode a baseline: %w", err)
		}
		out.WriteString(prefix)
		out.Write(text)
		return nil
	}
	for i := range documents {
		d := &documents[i]
		metadata := map[string]any{"name": d.Name, "namespace": d.Namespace}
		for field, values := range map[string]map[string]string{"labels": d.Labels, "annotations": d.Annotations} {
			if len(values) > 0 {
				metadata[field] = values
			}
		}
		header := map[string]any{"apiVersion": d.APIVersion, "kind": d.Kind, "metadata": metadata}
		spec := map[string]any{"expiresAt": d.Spec.ExpiresAt, "reason": d.Spec.Reason}
		if len(d.Spec.NotCovered) > 0 {
			spec["notCovered"] = d.Spec.NotCovered
		}
		header["spec"] = spec // the last of the members
		separator := ""
		if i > 0 {
			separator = "---\n"
		}
		if err := write(separator, header); err != nil {
			return nil, err
		}
		for k, r := range d.Spec.Rules {
			if k == 0 {
				out.WriteString("  rules:\n")
			}
			for _, field := range [...]struct{ prefix, value string }{{"  - kind: ", r.Kind}, {"    policy: ", r.Policy}, {"    rule: ", r.Rule}} {
				if err := write(field.prefix, field.value); err != nil {
					return nil, err
				}
			}
			out.WriteString("    entries:\n")
			for _, text := range r.Entries {
				if err := write("    - ", text); err != nil {
					return nil, err
				}
			}
		}
	}
	return out.Bytes(), nil
}
