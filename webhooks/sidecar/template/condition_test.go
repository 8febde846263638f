package template_test

import (
	"context"
	"errors"
	"testing"

	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar/template"
)

// done returns a context whose time is over.
func done(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}

func TestCondition(t *testing.T) {
	t.Parallel()
	s := scope(t)
	for name, tc := range map[string]struct {
		expression string
		want       bool
		err        string // "" for none
	}{
		"true":               {expression: `pod.metadata.labels["app"] == "web"`, want: true},
		"false":              {expression: `pod.spec.containers.exists(c, c.name == "proxy")`},
		"namespace":          {expression: `namespace.metadata.name == "shop" && namespace.metadata.labels.team == "a"`, want: true},
		"presets":            {expression: `presets.mesh["address"].contains("mesh")`, want: true},
		"absent field":       {expression: `has(pod.spec.hostPID) && pod.spec.hostPID`},
		"one true is enough": {expression: `pod.spec.hostPID || true`, want: true},
		"an error":           {expression: `pod.spec.hostPID`, err: `the profile's spec.match.matchConditions[0].expression: "pod.spec.hostPID" fails: no such key: hostPID (hint: for what may be absent, write .?name or [?'key'], and .orValue(…) at the end)`},
		"constant":           {expression: `true`, want: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, found := s.Condition("spec.match.matchConditions[0].expression", tc.expression)
			if len(found) > 0 {
				t.Fatal(found)
			}
			got, err := c.Eval(input(t, s, nil))
			if got != tc.want || (err == nil) != (tc.err == "") || err != nil && err.Error() != tc.err {
				t.Errorf("got %v, %v", got, err)
			}
			in := input(t, s, nil)
			in.Context = done(t)
			if _, err := c.Eval(in); !errors.Is(err, template.ErrCannotDecide) {
				t.Errorf("without time: %v", err)
			}
		})
	}
}

func TestConditionFindings(t *testing.T) {
	t.Parallel()
	s := scope(t)
	for name, tc := range map[string]struct{ expression, want string }{
		"no boolean":              {`pod.metadata.name`, `c: "pod.metadata.name" is of type string, expected a boolean`},
		"an integer":              {`1`, `c: "1" is of type int, expected a boolean`},
		"a parameter":             {`params.level == 'info'`, `c: 1:1 in "params.level == 'info'": match conditions cannot read parameters (hint: read a field of the pod or its namespace, such as a label)`},
		"an undeclared parameter": {`pod.spec.hostPID && params.none`, `c: 1:21 in "pod.spec.hostPID && params.none": match conditions cannot read parameters (hint: read a field of the pod or its namespace, such as a label)`},
		"the name of a parameter": {`level == 'info'`, `c: 1:1 in "level == 'info'": "level" is not declared (hint: match conditions cannot read parameters)`},
		"the name of a preset":    {`mesh['a'] == ''`, `c: 1:1 in "mesh['a'] == ''": "mesh" is not declared (hint: did you mean "presets.mesh"?)`},
		"a variable of a shell":   {`HOME == ''`, `c: 1:1 in "HOME == ''": "HOME" is not declared (hint: the names here are pod, namespace, presets)`},
		"not known":               {`dyn(pod.metadata.name)`, `c: the type of "dyn(pod.metadata.name)" depends on the pod, expected a boolean (hint: compare it, as in "… == true")`},
		"empty":                   {" ", `c: the expression is empty`},
		"a placeholder":           {`${pod.spec.hostPID}`, `c: "${pod.spec.hostPID}" is a placeholder, expected an expression (hint: remove ${ and })`},
	} {
		c, found := s.Condition("c", tc.expression)
		if got := lines(found); c != nil || got != tc.want {
			t.Errorf("%s: got\n%s\nwant\n%s", name, got, tc.want)
		}
	}
}
