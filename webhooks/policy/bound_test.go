package policy_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/race"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
)

// aroundLimits are policies about an object with a text s and lists l and m, of which they reach a limit with as many bytes.
func aroundLimits() map[string]struct {
	spec  string
	limit int
} {
	const (
		things    = `matchConstraints: {resourceRules: [{apiGroups: ["example.com"], apiVersions: ["v1"], operations: ["*"], resources: ["things"]}]}` + "\n"
		told      = "\nbindings:\n- {validationActions: [Deny, Audit]}"
		variables = "variables.v0 && variables.v1 && variables.v2 && variables.v3 && variables.v4 && variables.v5 && variables.v6"
	)
	// A text is searched for one of 400 letters at a cost of 4 for each of its bytes.
	expensive := "!object.s.contains('" + strings.Repeat("b", 400) + "')"
	list := func(n int, element string) string {
		all := make([]string, n)
		for i := range all {
			all[i] = strings.NewReplacer("EXPENSIVE", expensive, "NUMBER", strconv.Itoa(i)).Replace(element)
		}
		return "[" + strings.Join(all, ", ") + "]"
	}
	rules := func(n int, element string) string { return things + "validations: " + list(n, element) + told }
	type limited = struct {
		spec  string
		limit int
	}
	return map[string]limited{
		"one rule":                  {rules(1, `{expression: "EXPENSIVE"}`), 250_000},
		"one rule, ignored":         {"failurePolicy: Ignore\n" + rules(1, `{expression: "EXPENSIVE"}`), 250_000},
		"rules together":            {rules(20, `{expression: "EXPENSIVE"}`), 125_000},
		"conditions together":       {"matchConditions: " + list(5, `{expression: "EXPENSIVE", name: "cNUMBER"}`) + "\n" + rules(1, `{expression: "false"}`), 125_000},
		"conditions ignored":        {"failurePolicy: Ignore\nmatchConditions: " + list(5, `{expression: "EXPENSIVE", name: "cNUMBER"}`) + "\n" + rules(1, `{expression: "false"}`), 125_000},
		"annotations together":      {"auditAnnotations: " + list(20, `{valueExpression: "EXPENSIVE ? 'a' : ''", key: "kNUMBER"}`) + "\n" + rules(1, `{expression: "true"}`), 125_000},
		"messages after rules":      {rules(10, `{expression: "EXPENSIVE", messageExpression: "EXPENSIVE ? 'x' : 'y'"}`), 125_000},
		"messages of a violation":   {rules(20, `{expression: "'NUMBER' == '3'", messageExpression: "EXPENSIVE ? 'x' : 'y'"}`), 125_000},
		"messages that nobody sees": {rules(11, `{expression: "EXPENSIVE", messageExpression: "EXPENSIVE ? 'x' : 'y'"}`), 23_000},
		"a variable": {"variables: " + list(1, `{expression: "EXPENSIVE", name: "vNUMBER"}`) + "\n" +
			rules(1, `{expression: "variables.v0"}, {expression: "!variables.v0", messageExpression: "string(variables.v0)"}`), 250_000},
		"variables in both phases": {"variables: " + list(7, `{expression: "EXPENSIVE", name: "vNUMBER"}`) + "\n" +
			rules(1, `{expression: "`+variables+`", messageExpression: "string(`+variables+`)"}, {expression: "false"}`), 178_000},
		"a loop":                   {rules(1, `{expression: "object.l.all(x, `+strings.ReplaceAll(expensive, "object.s", "x")+`)"}`), 250_000},
		"a loop in a loop":         {rules(1, `{expression: "object.m.all(a, object.m.all(b, {'a': {'a': {'a': a}}} != {'b': b}))"}`), 176},
		"a text that a loop makes": {rules(1, `{expression: "object.l.map(x, x + x).join(object.l[0]).size() > 0 && EXPENSIVE"}`), 240_000},
		"a variable of another size": {"variables: [{name: v, expression: \"object.l.join('').replace('a', 'aaaa')\"}]\n" +
			rules(1, `{expression: "`+strings.ReplaceAll(expensive, "object.s", "variables.v")+`"}`), 62_000},
	}
}

// thing returns an object with those of the members s, l and m that a spec reads, each with about as many bytes.
func thing(spec string, size int) string {
	const chunk = 500
	members := []string{`"apiVersion":"example.com/v1","kind":"Thing","metadata":{"name":"web","namespace":"shop"}`}
	if strings.Contains(spec, "object.s") {
		members = append(members, `"s":"`+strings.Repeat("a", size)+`"`)
	}
	if strings.Contains(spec, "object.l") {
		members = append(members, `"l":[`+strings.Repeat(`"`+strings.Repeat("a", chunk)+`",`, size/chunk)+`"`+strings.Repeat("a", size%chunk)+`"]`)
	}
	if strings.Contains(spec, "object.m") {
		members = append(members, `"m":[`+strings.Repeat("1,", size/2)+`1]`)
	}
	return "{" + strings.Join(members, ",") + "}"
}

// TestSameAroundLimits holds that policies whose expressions cost about as much as they may, alone or together, decide as
// upstream does: below the limits, near them, and above, whether the cost is counted or not.
func TestSameAroundLimits(t *testing.T) {
	t.Parallel()
	for name, test := range aroundLimits() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			spec := specOf(t, differentialSpec("p", test.spec)+"\n---"+differentialContext)
			set, err := policy.Compile(spec)
			must(t, err)
			reference := newUpstream(t, spec)
			seen := map[string]bool{}
			for _, percent := range []int{1, 5, 10, 20, 40, 60, 80, 90, 95, 98, 99, 100, 101, 102, 105, 110, 130} {
				if (race.Enabled || test.limit < 1000) && percent != 20 && percent != 98 && percent != 110 {
					continue // counting takes long
				}
				req := review(t, thing(test.spec, test.limit*percent/100))
				out := compare(t, fmt.Sprintf("%d%%", percent), set, reference, ask(t, req))
				seen[fmt.Sprintf("allowed %t: %s %v", out.Allowed, out.First, out.Audit)] = true
				explained := set.Decide(context.Background(), policy.Input{Request: req, Explain: true})
				if got, want := toJSON(t, set.Decide(context.Background(), policy.Input{Request: req}).Response()), toJSON(t, explained.Response()); got != want {
					t.Errorf("%d%%: %s\nwith its costs: %s", percent, got, want)
				}
			}
			if len(seen) < 2 && !strings.Contains(test.spec, "failurePolicy: Ignore") && name != "messages that nobody sees" && !race.Enabled {
				t.Errorf("no limit is exceeded: %v", seen)
			}
		})
	}
}

// TestObservedCost has what observers are told of a policy whose cost is counted once in 64 times.
func TestObservedCost(t *testing.T) {
	t.Parallel()
	set := compile(t, denyAll("p", `validations: [{expression: "object.metadata.name != 'x'"}]`, ""))
	req := review(t, configMap)
	cost := set.Decide(context.Background(), policy.Input{Request: req, Explain: true}).Evaluations[0].Cost
	told, counted := int64(0), 0
	for n := range int64(129) {
		set.Decide(context.Background(), policy.Input{Request: req, Checked: true, Observe: func(list []policy.Observation) {
			if whole := list[len(list)-1]; whole.Cost > 0 {
				told += whole.Cost
				counted++
			}
		}}).Response()
		if told > (n+1)*cost || told < (n-63)*cost {
			t.Errorf("after %d reviews, the cost is %d; each costs %d", n+1, told, cost)
		}
	}
	if counted != 3 || told != 129*cost {
		t.Errorf("counted %d times, %d together; each costs %d", counted, told, cost)
	}
}

// TestUncountedShare has a budget of which policies that do not count may use but a part: with more of them, the rest
// counts, and exceeds it.
func TestUncountedShare(t *testing.T) {
	t.Parallel()
	var policies []string
	for i := range 40 {
		policies = append(policies, denyAll(fmt.Sprintf("p%d", i), `validations: [{expression: "object.data.all(k, object.data[k] == object.data[k])"}]`, ""))
	}
	req := review(t, configMap)
	cost := compile(t, policies[0]).Decide(context.Background(), policy.Input{Request: req, Explain: true}).Evaluations[0].Cost
	for budget, want := range map[int64]string{100_000_000: "allowed", 50 * cost: "allowed", 20 * cost: "cannot decide", 1: "cannot decide"} {
		set := compile(t, documents(append(policies, fmt.Sprintf(`{apiVersion: gatehouse.dev/v1alpha1, kind: PolicyConfiguration, requestCostBudget: %d}`, budget))...))
		if got := verdict(set.Decide(context.Background(), policy.Input{Request: req}).Response()); got != want {
			t.Errorf("with %d, of which each costs %d: %s, want %s", budget, cost, got, want)
		}
	}
}

// TestUncountedExceptions has exceptions whose conditions cost less than they may, and more.
func TestUncountedExceptions(t *testing.T) {
	t.Parallel()
	expensive := "!object.data.s.contains('" + strings.Repeat("b", 400) + "')"
	set := compile(t, documents(
		denyAll("p", `validations: [{expression: "object.metadata.name != 'c'"}]`, ""),
		exceptionOf("gatehouse-system", `policies: [{name: p}], match: {matchConditions: [{name: a, expression: "`+expensive+`"}]}`)))
	for size, want := range map[int]string{10: "allowed", 1_000: "allowed", 240_000: "allowed", 260_000: "denied"} {
		req := review(t, `{apiVersion: v1, kind: ConfigMap, metadata: {name: c, namespace: shop}, data: {s: `+strings.Repeat("a", size)+`}}`)
		if got := verdict(decide(t, set, req)); got != want {
			t.Errorf("%d bytes: %s, want %s", size, got, want)
		}
	}
}
