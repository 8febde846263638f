package replay

import (
	"bytes"
	"cmp"
	"encoding/json"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/history/record"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/admit"
	"github.com/gatehouse-dev/gatehouse/webhooks"
	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	rawjson "github.com/gatehouse-dev/gatehouse/webhooks/json"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
	"github.com/gatehouse-dev/gatehouse/webhooks/review"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar/status"
)

// difference is what differs between two answers.
type difference struct {
	changes   []Change
	undecided string
	rules     []Rule
}

// compare compares two answers to a review. A request that both refuse is unchanged,
// whatever the rules and messages are: the client gets the same verdict. Messages and audit
// annotations are not compared.
func compare(before, after *answer) difference {
	switch {
	case after.undecided != "":
		return difference{undecided: after.undecided}
	case after.decision == review.Unknown && before.decision != review.Unknown:
		return difference{changes: []Change{NoLongerDecidable}, rules: after.rulesOfFailure()}
	case after.decision == before.decision && after.decision != review.Allowed:
		return difference{}
	case before.decision == review.Unknown:
		return difference{undecided: notDecided}
	case after.decision == review.Denied:
		return difference{changes: []Change{NewlyRefused}, rules: after.refusingRules()}
	case before.decision == review.Denied:
		return difference{changes: []Change{NewlyAdmitted}, rules: before.refusingRules()}
	}
	return compareAllowed(before, after)
}

// compareAllowed compares two answers that allow the request.
func compareAllowed(before, after *answer) (out difference) {
	if len(after.patch)+len(before.patch) > 0 {
		same, known := samePatches(before.patch, after.patch)
		switch {
		case !known && (!same || before.by == nil || !after.by.hasProfilesOf(before.by)):
			out.undecided = "the patch may differ where a value is redacted in the recording"
		case !same:
			out.changes = append(out.changes, ChangedPatch)
			out.rules = append(out.rules, patchRules(before, after)...)
		}
	}
	if len(after.warnings) > 0 && !bytes.Equal(before.warnings, after.warnings) {
		added, unclear := newWarnings(texts(before.warnings), texts(after.warnings))
		if unclear {
			out.undecided = cmp.Or(out.undecided, "the text of a warning depends on a value that is redacted in the recording")
		}
		if len(added) > 0 {
			out.changes = append(out.changes, NewWarnings)
			out.rules = append(out.rules, after.warningRules(added)...)
		}
	}
	if len(out.changes) > 0 {
		out.undecided = "" // what is known to change counts
	}
	out.rules = sortedRules(out.rules)
	return out
}

// newWarnings returns the warnings that were not there before. It is unclear whether a warning is
// new if it differs from an earlier one in a redacted value.
func newWarnings(before, after []string) (added []string, unclear bool) {
	for _, warning := range after {
		if slices.Contains(before, warning) {
			continue
		}
		head, _, _ := strings.Cut(warning, ": ")
		similar := slices.ContainsFunc(before, func(earlier string) bool {
			return !slices.Contains(after, earlier) && strings.HasPrefix(earlier, head+": ") && (isUnclear(earlier) || isUnclear(warning))
		})
		if similar {
			unclear = true
			continue
		}
		added = append(added, warning)
	}
	return added, unclear
}

// isUnclear reports whether a text depends on a redacted value.
func isUnclear(text string) bool {
	return strings.Contains(text, record.Mark) || strings.Contains(text, errRedacted.Error()) || strings.Contains(text, policy.ErrUnanswered.Error())
}

const statusPath = "/metadata/annotations/sidecar.gatehouse.dev~1status"

// samePatches reports whether two JSON patches are the same: the same operations in the same order. It is not known if they hold redacted
// values, unless an operation differs that holds none. The status annotation has a hash of what is added, redacted values included.
func samePatches(before, after rawjson.Value) (same, known bool) {
	mark := []byte(record.Mark)
	isClear := !bytes.Contains(before, mark) && !bytes.Contains(after, mark)
	if bytes.Equal(before, after) {
		return true, isClear
	}
	a, b := decodePatch(before), decodePatch(after)
	if a == nil || b == nil || len(a) != len(b) {
		return false, true
	}
	same = true
	for i := range a {
		if equality.Semantic.DeepEqual(a[i], b[i]) {
			continue
		}
		same = false
		one, _ := b[i].(map[string]any)
		if path, _ := one["path"].(string); isClear || path != statusPath && !holdsMark(a[i]) && !holdsMark(b[i]) {
			return false, true
		}
	}
	return same, isClear
}

// holdsMark reports whether decoded JSON holds a redacted value.
func holdsMark(value any) bool {
	text, err := json.Marshal(value)
	return err != nil || bytes.Contains(text, []byte(record.Mark))
}

// decodePatch returns the operations of a patch, nil if it is none.
func decodePatch(patch rawjson.Value) []any {
	if len(patch) == 0 {
		return []any{}
	}
	tree, err := patch.Decode()
	list, _ := tree.([]any)
	if err != nil {
		return nil
	}
	return list
}

// refusingRules returns the rules that refuse the request.
func (a *answer) refusingRules() []Rule {
	var out []Rule
	if a.scope != "" {
		return []Rule{{Kind: ScopeKind, Name: short(a.scope)}}
	}
	for i := range a.violations {
		if v := &a.violations[i]; v.Refuses() {
			out = append(out, Rule{v.Kind, cmp.Or(v.Policy, otherRule), v.Rule})
		}
	}
	if a.violations == nil {
		out = a.recordedRules()
	}
	if len(out) == 0 {
		out = append(out, Rule{Name: otherRule})
	}
	return sortedRules(out)
}

// otherRule is the name of a rule that the answer does not name.
const otherRule = "other"

// recordedRules returns the rules that a recorded refusal names: in the causes of its status, and of
// a refusal by sidecar profiles in the audit annotation.
func (a *answer) recordedRules() (out []Rule) {
	for _, cause := range a.status.Get("details", "causes").Elements() {
		if kind, name, ok := policyOf(cause.Get("message").Text()); ok {
			out = append(out, Rule{kind, name, cause.Get("reason").Text()})
		}
	}
	for name, reason := range a.profiles() {
		if reason == string(sidecar.Refused) {
			out = append(out, Rule{admit.InjectionKind, name, admit.InjectionRule})
		}
	}
	if kind, name, ok := policyOf(a.status.Get("message").Text()); ok && len(out) == 0 {
		out = append(out, Rule{Kind: kind, Name: name})
	}
	return out
}

// Effect is what a policy or profile has done.
type Effect string

// The effects.
const (
	Refused  Effect = "refused"
	Warned   Effect = "warned"
	Injected Effect = "injected"
	Mutated  Effect = "mutated"
)

// Cause is a rule or profile that a recorded answer names, and what it has done.
type Cause struct {
	Rule

	Effect Effect `json:"effect"`
}

// Matches reports whether a list has the name of the policy or profile, or its kind/name.
func (c *Cause) Matches(names []string) bool {
	return slices.Contains(names, c.Name) || slices.Contains(names, c.Kind+"/"+c.Name)
}

// RecordedCauses returns the rules that have refused or warned, the profiles that were injected and the mutating policies that changed
// the object, as far as the recorded answer names them. They are sorted.
func RecordedCauses(r *record.Review) []Cause {
	if r.Token != nil || r.Request == nil {
		return nil
	}
	of := newItem(new(Source), nil, r)
	answer := of.recordedAnswer()
	var out []Cause
	add := func(effect Effect, rules ...Rule) {
		for _, rule := range rules {
			out = append(out, Cause{rule, effect})
		}
	}
	switch {
	case of.isAccess():
		if answer.decision == review.Denied {
			add(Refused, answer.refusingRules()...)
		}
		return out
	case answer.decision != review.Allowed:
		add(Refused, sortedRules(answer.recordedRules())...)
		return out
	}
	for name, reason := range answer.profiles() {
		if reason == string(sidecar.Applied) {
			add(Injected, Rule{Kind: admit.InjectionKind, Name: name})
		}
	}
	add(Mutated, answer.mutations()...)
	for _, warning := range answer.warnings.Elements() {
		if kind, name, ok := policyOf(warning.Text()); ok {
			add(Warned, Rule{Kind: kind, Name: name})
		}
	}
	slices.SortFunc(out, func(a, b Cause) int {
		return cmp.Or(cmp.Compare(a.Effect, b.Effect), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name))
	})
	return slices.Compact(out)
}

// policyOf returns the policy that a message of an answer begins with, as policy.Set and mutation.Set write it:
// "AdmissionPolicy 'team-label' denied request: …". Mutating policies are "policy 'x'", "policy "x"" and "MutatingAdmissionPolicy "x"".
func policyOf(message string) (kind, name string, ok bool) {
	kind, rest, _ := strings.Cut(strings.TrimPrefix(message, "Validation failed for "), " ")
	switch kind {
	case "policy":
		kind = admit.MutationKind
	case admit.MutationKind, "ValidatingAdmissionPolicy", "AdmissionPolicy":
	default:
		return "", "", false
	}
	if !strings.HasPrefix(rest, "'") && !strings.HasPrefix(rest, `"`) {
		return "", "", false
	}
	name, _, ok = strings.Cut(rest[1:], rest[:1])
	return kind, name, ok
}

// warningRules returns the rules that warnings come from.
func (a *answer) warningRules(warnings []string) (out []Rule) {
	for _, warning := range warnings {
		kind, name, ok := policyOf(warning)
		if !ok {
			out = append(out, a.profileOf(warning))
			continue
		}
		found := false
		for i := range a.violations {
			if v := &a.violations[i]; v.Kind == kind && v.Policy == name && strings.Contains(warning, firstLine(v.Message)) {
				out, found = append(out, Rule{kind, name, v.Rule}), true
			}
		}
		if !found {
			out = append(out, Rule{Kind: kind, Name: name})
		}
	}
	return out
}

// profileOf returns the sidecar profile that a text names.
func (a *answer) profileOf(text string) Rule {
	for i := range a.verdicts {
		if name := a.verdicts[i].Profile; strings.Contains(text, `"`+name+`"`) {
			return Rule{Kind: admit.InjectionKind, Name: name}
		}
	}
	return Rule{Name: otherRule}
}

// rulesOfFailure returns the rules for which a request cannot be decided.
func (a *answer) rulesOfFailure() (out []Rule) {
	if a.scope != "" {
		return []Rule{{Kind: ScopeKind, Name: short(a.scope)}}
	}
	for i := range a.verdicts {
		if v := &a.verdicts[i]; v.Reason == sidecar.Unknown || v.Reason == sidecar.NamespaceUnknown {
			out = append(out, Rule{Kind: admit.InjectionKind, Name: v.Profile})
		}
	}
	if _, at, ok := strings.Cut(a.failure, ", at "); ok {
		if kind, name, ok := policyOf(at); ok {
			out = append(out, Rule{Kind: kind, Name: name})
		}
	}
	if len(out) == 0 {
		out = append(out, Rule{Name: otherRule})
	}
	return sortedRules(out)
}

// patchRules returns the profiles and mutating policies that patches differ by: profiles with another verdict or another revision,
// policies that one of the configurations does not have or has otherwise, or else all that have changed the object.
func patchRules(before, after *answer) (out []Rule) {
	was, is := before.profiles(), after.profiles()
	earlier, later := revisions(before.patch), revisions(after.patch)
	applied := func(reason string) bool {
		return reason == string(sidecar.Applied) || reason == string(sidecar.AlreadyThere)
	}
	var all []Rule
	for _, verdicts := range [...]map[string]string{was, is} {
		for name := range verdicts {
			if !applied(was[name]) && !applied(is[name]) {
				continue
			}
			rule := Rule{Kind: admit.InjectionKind, Name: name}
			all = append(all, rule)
			if was[name] != is[name] || earlier[name] != later[name] {
				out = append(out, rule)
			}
		}
	}
	changed, changes := before.mutations(), after.mutations()
	for _, rule := range slices.Concat(changed, changes) {
		all = append(all, rule)
		isSame := slices.Contains(changed, rule) && slices.Contains(changes, rule)
		if !isSame || before.by != nil && after.by != nil && !after.by.hasMutationOf(before.by, rule.Name) {
			out = append(out, rule)
		}
	}
	if len(out) == 0 {
		out = all
	}
	if len(out) == 0 {
		out = append(out, Rule{Name: otherRule})
	}
	return out
}

// mutations returns the mutating policies that changed the object.
func (a *answer) mutations() (out []Rule) {
	add := func(name string) {
		if rule := (Rule{Kind: admit.MutationKind, Name: name}); name != "" && !slices.Contains(out, rule) {
			out = append(out, rule)
		}
	}
	if a.mutation != nil {
		for _, one := range a.mutation.Applied {
			if one.Changed {
				add(one.Policy)
			}
		}
		return out
	}
	for one := range strings.SplitSeq(a.audit.Get(webhooks.MutatedByKey).Text(), ",") {
		if name, _, isWhole := strings.Cut(one, "/"); isWhole { // the text may be cut
			add(name)
		}
	}
	return out
}

// revisions returns the revisions of profiles in the status annotation that a patch sets.
func revisions(patch rawjson.Value) map[string]string {
	out := map[string]string{}
	for _, operation := range patch.Elements() {
		text := operation.Get("value")
		if !operation.Get("path").Is(statusPath) {
			text = text.Get(v1alpha1.StatusAnnotation)
		}
		if text.Kind() != rawjson.String {
			continue
		}
		if parsed, err := status.Parse(text.Text()); err == nil {
			for i := range parsed.Profiles {
				out[parsed.Profiles[i].Name] = parsed.Profiles[i].Revision
			}
		}
	}
	return out
}

// sortedRules returns each rule once.
func sortedRules(rules []Rule) []Rule {
	slices.SortFunc(rules, func(a, b Rule) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Rule, b.Rule))
	})
	return slices.Compact(rules)
}
